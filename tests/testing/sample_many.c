/* Ten thousand tests that do nothing, but for one that fails and some that skip. */
#include <rocmforge/test.h>

struct row {
    int unused;
};
static const struct row rows[10000];

RF_TEST_CASES(many, test, struct row, rows) {
    int number = (int)(c - rows);
    if (number == 7777) RF_FAIL("number %d", number);
    if (number % 1000 == 1) RF_SKIP("it is a one");
}
