/* Between fixture.c, which opens the shared device and hands it out, and leaks.c, which judges
 * what tests leave on it. */
#ifndef RF_FIXTURE_IMPL_H
#define RF_FIXTURE_IMPL_H

#include "testing_impl.h"

static inline uint64_t rf_mib(uint64_t bytes) {
    return bytes >> 20;
}

struct rf_device *rf_fixture_peek(void);     /* the device if it is open, else NULL; opens nothing */
const struct rf_test *rf_fixture_test(void); /* the running one; NULL behind the last */
/* The memory figures when it was opened. */
const struct rf_memory_info *rf_fixture_first_figures(void);
uint64_t rf_fixture_opened_mark(void);
/* What was made after it is the running test's. */
uint64_t rf_fixture_test_mark(void);
void rf_fixture_set_test_mark(uint64_t mark);
/* Destroys the threads' queues that are younger than the mark. */
void rf_fixture_drop_queues(uint64_t mark);
/* From now on GPU tests of this process fail at once, with these words. */
void rf_fixture_set_lost(const char *why);
bool rf_fixture_is_lost(void);
/* The device and its runtime; a later rf_fixture() opens anew. */
rf_status rf_fixture_close(void);

#endif
