/* Where the helper and the simulated driver are looked for: an executable is put into made-up
 * installations and asked. */
#include "gpu/locate.h"
#include "probe_testing.h"

#include <limits.h>

#include "../scratch.h"

/* Also run by the test below in copies of this executable, with places to find. */
RF_TEST(locate, as_installed) {
    const char *helper = getenv("LOCATE_HELPER"), *driver = getenv("LOCATE_DRIVER");
    char path[PATH_MAX], real[PATH_MAX];
    RF_ASSERT_OK(rf_locate_own_folder(path, sizeof path));
    RF_ASSERT(realpath("/proc/self/exe", real) != NULL);
    *strrchr(real, '/') = 0;
    RF_ASSERT_TEXT(path, real);
    if (!helper || !driver) return;
    if (helper[0]) {
        RF_ASSERT_OK(rf_locate_probe_helper(path, sizeof path));
        RF_ASSERT(realpath(path, real) != NULL);
        RF_ASSERT_TEXT(real, helper);
    } else {
        RF_ASSERT_STATUS(rf_locate_probe_helper(path, sizeof path), RF_E_NOT_FOUND);
        RF_ASSERT_CONTAINS(rf_error_text(), "rocmforge-probe is neither in /");
    }
    if (driver[0]) {
        RF_ASSERT_OK(rf_locate_simulated_driver(path, sizeof path));
        RF_ASSERT(realpath(path, real) != NULL);
        RF_ASSERT_TEXT(real, driver);
    } else {
        RF_ASSERT_STATUS(rf_locate_simulated_driver(path, sizeof path), RF_E_NOT_FOUND);
    }
}

static void shell(const char *format, ...) RF_PRINTF(1, 2);
static void shell(const char *format, ...) {
    char command[3 * PATH_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    if (system(command) != 0) RF_FAIL("failed: %s", command);
}

static void put(const char *root, const char *path) {
    shell("mkdir -p $(dirname %s/%s) && touch %s/%s", root, path, root, path);
}

/* Files as in a layout, the executable at 'place', and where the two must then be found. */
static void check_layout(const char *place, const char *helper, const char *driver) {
    char root[SCRATCH_BYTES], self[PATH_MAX] = "", value[PATH_MAX];
    scratch_folder(root, "locate");
    RF_ASSERT(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    shell("mkdir -p $(dirname %s/%s) && cp %s %s/%s", root, place, self, root, place);
    if (helper[0]) put(root, helper);
    if (driver[0]) put(root, driver);
    snprintf(value, sizeof value, "%s/%s", root, helper);
    if (!helper[0]) value[0] = 0;
    setenv("LOCATE_HELPER", value, 1);
    snprintf(value, sizeof value, "%s/%s", root, driver);
    if (!driver[0]) value[0] = 0;
    setenv("LOCATE_DRIVER", value, 1);
    /* By a relative name, and from a folder that has things of that name, too. */
    shell(
        "cd %s && mkdir -p elsewhere && touch elsewhere/rocmforge-probe elsewhere/librfsim-hip.so && cd elsewhere && "
        "../%s 'locate.as_installed'",
        root, place);
    shell("rm -r %s", root);
}

RF_TEST(locate, layouts) {
    check_layout("build/x", "build/rocmforge-probe", "build/librfsim-hip.so");
    check_layout("bin/x", "libexec/rocmforge/rocmforge-probe", "lib/librfsim-hip.so");
    check_layout("lib/x86_64-linux-gnu/x", "libexec/rocmforge/rocmforge-probe",
                 "lib/x86_64-linux-gnu/librfsim-hip.so");
    check_layout("bin/x", "", "");
}
