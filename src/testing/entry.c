/* The main that comes with the library. In an object of its own, and weak: an executable with
 * a main of its own never meets it. */
#include "testing_impl.h"

__attribute__((weak)) int main(int argc, char **argv) {
    return rf_test_main(argc, argv);
}
