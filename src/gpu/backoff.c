/* Waiting: a few quick looks, then sleeps whose length grows with the time already waited, so that a short wait is
 * noticed soon and a long one costs nothing. A sleep costs several microseconds of processor time and ends tens of
 * them late, so where the same wait was seen before, one sleep covers all but the end of it. Around the expected end
 * it looks without a pause, for a thirtieth of a long wait; after that it waits as if nothing had been known. The
 * thread's timer slack (50 µs by default, more than the whole allowance of the wait) is lowered for the wait and
 * restored after it. */
#include "gpu/device_impl.h"

#include <sys/prctl.h>

enum { QUICK_LOOKS = 3 };
#define SHORTEST_SLEEP_NS INT64_C(24000)
#define LONGEST_SLEEP_NS RF_MS(2)
#define SHARE_OF_WAIT 40 /* a sleep is at most this fraction of the time waited so far */
#define LEAST_EXPECTED_NS INT64_C(40000)
#define LONGEST_FIRST_SLEEP_NS RF_MS(20) /* what a wrong expectation can cost */
#define LEAST_EARLY_NS INT64_C(60000)    /* a sleep that ends later than this is rare */
#define EARLY_NS_MAX INT64_C(250000)

void rf_backoff_begin(struct rf_backoff *backoff) {
    backoff->started_ns = rf_now_ns();
    backoff->rounds = 0;
    backoff->saved_slack = -1;
    backoff->expected_ns = 0;
    backoff->long_sleep = false;
}

/* How long before the expected end sleeping stops; after the expected end there is no sleep for half as long. */
static int64_t near_end_ns(int64_t expected_ns) {
    int64_t share = RF_MIN(RF_MAX(expected_ns / 48, LEAST_EARLY_NS), EARLY_NS_MAX);
    return RF_MIN(share, expected_ns / 8);
}

/* How long to sleep; 0: look again at once. */
static int64_t pause_ns(struct rf_backoff *backoff, int64_t waited_ns) {
    int64_t expected = backoff->expected_ns, near = near_end_ns(expected);
    backoff->long_sleep = false;
    if (expected >= LEAST_EXPECTED_NS && waited_ns <= expected + near / 2) {
        int64_t left = expected - near - waited_ns;
        if (left < SHORTEST_SLEEP_NS) return 0;
        backoff->long_sleep = true;
        return RF_MIN(left, LONGEST_FIRST_SLEEP_NS);
    }
    return RF_MAX(RF_MIN(waited_ns / SHARE_OF_WAIT, LONGEST_SLEEP_NS), SHORTEST_SLEEP_NS);
}

bool rf_backoff_step(struct rf_backoff *backoff, int64_t deadline_ns) {
    int64_t now = rf_now_ns();
    if (now >= deadline_ns) return false;
    if (backoff->rounds++ < QUICK_LOOKS) return true;
    int64_t pause = pause_ns(backoff, now - backoff->started_ns);
    if (!pause) return true;
    if (backoff->saved_slack < 0) {
        backoff->saved_slack = prctl(PR_GET_TIMERSLACK);
        if (backoff->saved_slack > 0) prctl(PR_SET_TIMERSLACK, 1UL);
    }
    rf_sleep_ns(RF_MIN(pause, deadline_ns - now));
    return true;
}

void rf_backoff_end(struct rf_backoff *backoff) {
    if (backoff->saved_slack > 0) prctl(PR_SET_TIMERSLACK, (unsigned long)backoff->saved_slack);
}
