/* Waiting: a few quick looks, then sleeps whose length grows with the time already waited, so
 * that a short wait is noticed soon and a long one costs nothing. A sleep costs several
 * microseconds of processor time, so where the same wait was seen before, one sleep covers most
 * of it; the bound on that sleep is what a wrong expectation can cost. The thread's timer slack
 * (50 µs by default, more than the wait's whole allowance) is lowered for the wait and put
 * back after it. */
#include "gpu/device_impl.h"

#include <sys/prctl.h>

enum { QUICK_LOOKS = 3 };
#define SHORTEST_SLEEP_NS INT64_C(24000)
#define LONGEST_SLEEP_NS RF_MS(2)
#define SHARE_OF_WAIT 40 /* a sleep is at most this fraction of what was waited */
#define LEAST_EXPECTED_NS INT64_C(40000)
#define LONGEST_FIRST_SLEEP_NS RF_MS(20)

void rf_backoff_begin(struct rf_backoff *backoff) {
    backoff->started_ns = rf_now_ns();
    backoff->rounds = 0;
    backoff->saved_slack = -1;
    backoff->expected_ns = 0;
    backoff->long_sleep = false;
}

bool rf_backoff_step(struct rf_backoff *backoff, int64_t deadline_ns) {
    int64_t now = rf_now_ns();
    if (now >= deadline_ns) return false;
    if (backoff->rounds++ < QUICK_LOOKS) return true;
    if (backoff->saved_slack < 0) {
        backoff->saved_slack = prctl(PR_GET_TIMERSLACK);
        if (backoff->saved_slack > 0) prctl(PR_SET_TIMERSLACK, 1UL);
    }
    int64_t waited = now - backoff->started_ns, pause;
    if (backoff->expected_ns >= LEAST_EXPECTED_NS) {
        pause = RF_MIN(backoff->expected_ns - backoff->expected_ns / 8 - waited, LONGEST_FIRST_SLEEP_NS);
        backoff->expected_ns = 0;
        backoff->long_sleep = true;
    } else {
        backoff->long_sleep = false;
        pause = RF_MIN(waited / SHARE_OF_WAIT, LONGEST_SLEEP_NS);
    }
    pause = RF_MAX(pause, SHORTEST_SLEEP_NS);
    rf_sleep_ns(RF_MIN(pause, deadline_ns - now));
    return true;
}

void rf_backoff_end(struct rf_backoff *backoff) {
    if (backoff->saved_slack > 0) prctl(PR_SET_TIMERSLACK, (unsigned long)backoff->saved_slack);
}
