/* Waiting: a few quick looks, then sleeps whose length grows with the time already waited, so
 * that a short wait is noticed soon and a long one costs nothing. The thread's timer slack
 * (50 µs by default, more than the wait's whole allowance) is lowered for the wait and put
 * back after it. */
#include "gpu/device_impl.h"

#include <sys/prctl.h>

enum { QUICK_LOOKS = 3 };
#define SHORTEST_SLEEP_NS INT64_C(20000)
#define LONGEST_SLEEP_NS RF_MS(2)
#define SHARE_OF_WAIT 64 /* a sleep is at most this fraction of what was waited */

void rf_backoff_begin(struct rf_backoff *backoff) {
    backoff->started_ns = rf_now_ns();
    backoff->rounds = 0;
    backoff->saved_slack = -1;
}

bool rf_backoff_step(struct rf_backoff *backoff, int64_t deadline_ns) {
    int64_t now = rf_now_ns();
    if (now >= deadline_ns) return false;
    if (backoff->rounds++ < QUICK_LOOKS) return true;
    if (backoff->saved_slack < 0) {
        backoff->saved_slack = prctl(PR_GET_TIMERSLACK);
        if (backoff->saved_slack > 0) prctl(PR_SET_TIMERSLACK, 1UL);
    }
    int64_t pause = (now - backoff->started_ns) / SHARE_OF_WAIT;
    pause = RF_MAX(pause, SHORTEST_SLEEP_NS);
    pause = RF_MIN(pause, LONGEST_SLEEP_NS);
    rf_sleep_ns(RF_MIN(pause, deadline_ns - now));
    return true;
}

void rf_backoff_end(struct rf_backoff *backoff) {
    if (backoff->saved_slack > 0) prctl(PR_SET_TIMERSLACK, (unsigned long)backoff->saved_slack);
}
