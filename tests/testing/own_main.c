/* A test executable with a main of its own: the library's must not clash with it. */
#include <rocmforge/test.h>

#include <stdio.h>

RF_TEST(own, passes) {
    RF_ASSERT(1 + 1 == 2);
}

int main(int argc, char **argv) {
    fprintf(stderr, "a main of its own\n");
    return rf_test_main(argc, argv);
}
