/* The main that comes with the library. It is in an object of its own and weak, so an executable with a main of its
 * own does not use it. */
#include "testing_impl.h"

#include "base/descriptors.h"

__attribute__((weak)) int main(int argc, char **argv) {
    if (!rf_reserve_standard_fds()) return 2;
    return rf_test_main(argc, argv);
}
