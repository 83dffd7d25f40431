/* What fixture.c, which opens the shared device and hands it out, and leaks.c, which judges what tests leave on it,
 * share. */
#ifndef RF_FIXTURE_IMPL_H
#define RF_FIXTURE_IMPL_H

#include "testing_impl.h"

static inline uint64_t rf_mib(uint64_t bytes) {
    return bytes >> 20;
}

struct rf_device *rf_fixture_peek(void);     /* the device if it is open, else NULL; opens nothing */
const struct rf_test *rf_fixture_test(void); /* the running test; NULL after the last */
/* The memory figures at the time when it was opened. */
const struct rf_memory_info *rf_fixture_first_figures(void);
uint64_t rf_fixture_opened_mark(void);
/* Allocations made after this mark belong to the running test. */
uint64_t rf_fixture_test_mark(void);
void rf_fixture_set_test_mark(uint64_t mark);
/* Destroys the queues of threads that were made after the mark. */
void rf_fixture_drop_queues(uint64_t mark);
/* From now on GPU tests of this process fail at once, with this reason. */
void rf_fixture_set_lost(const char *why);
bool rf_fixture_is_lost(void);
/* Closes the device and its runtime; a later rf_fixture() opens them again. */
rf_status rf_fixture_close(void);

#endif
