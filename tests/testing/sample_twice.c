/* Two tests of one name. */
#include <rocmforge/test.h>

static void nothing(void) {}
static struct rf_test tests[2] = {{.suite = "same", .name = "name", .file = __FILE__, .line = 1, .run = nothing},
                                  {.suite = "same", .name = "name", .file = __FILE__, .line = 2, .run = nothing}};
__attribute__((constructor)) static void add(void) {
    rf_test_register(&tests[0]);
    rf_test_register(&tests[1]);
}
