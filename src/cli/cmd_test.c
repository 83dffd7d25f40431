/* rocmforge test: the runner, over any number of test executables. */
#include "cli.h"

#include <rocmforge/test.h>

int cmd_test(int argc, char **argv) {
    argv[0] = "rocmforge test";
    return rf_test_main_executables(argc, argv);
}
