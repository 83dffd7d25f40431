/* The probe against drivers that crash, end, hang, flood and lie: the caller is unharmed, the
 * reason is right, and no process stays behind. */
#include "probe_testing.h"

#include <unistd.h>

#include "../scratch.h"

/* ---- a driver that behaves ---- */

RF_TEST(probe, good_driver) {
    setenv("HOSTILE_ARCH", built_arch("gfx"), 1);
    struct rf_probe_result *result = PROBE("RF_HIP_LIBRARY=" HOSTILE("GOOD"));
    RF_ASSERT_TEXT(result->reason, "");
    RF_ASSERT_INT(result->status, RF_OK);
    RF_ASSERT_INT(result->count, 1);
    const struct rf_device_info *info = &result->devices[0];
    RF_ASSERT_TEXT(info->name, "Hostile GPU 0");
    RF_ASSERT_TEXT(info->arch, getenv("HOSTILE_ARCH"));
    RF_ASSERT_TEXT(info->kernel_target, getenv("HOSTILE_ARCH"));
    RF_ASSERT_TEXT(info->uuid, "GPU-0123456789abcde0");
    RF_ASSERT_TEXT(info->pci, "0000:3a:00.0");
    RF_ASSERT_TEXT(info->driver, "HIP 6.3");
    RF_ASSERT_TEXT(info->reason, "");
    RF_ASSERT_INT(info->struct_size, sizeof *info);
    RF_ASSERT_INT(info->index, 0);
    RF_ASSERT_INT(info->vendor, RF_VENDOR_AMD);
    RF_ASSERT_INT(info->total_bytes, (long long)16 << 30);
    RF_ASSERT_INT(info->wave_size, 32);
    RF_ASSERT_INT(info->compute_units, 84);
    RF_ASSERT_INT(info->max_threads_per_block, 1024);
    RF_ASSERT_INT(info->max_shared_bytes_per_block, 65536);
    RF_ASSERT(info->usable && !info->simulated && !info->integrated);
    RF_ASSERT_INT(result->source[0].kind, RF_DRIVER_HIP);
    RF_ASSERT_INT(result->source[0].ordinal, 0);
    RF_ASSERT_CONTAINS(result->source[0].library, "hostile-GOOD.so");
    free(result);
}

RF_TEST(probe, several_devices) {
    setenv("HOSTILE_ARCH", built_arch("gfx"), 1);
    setenv("HOSTILE_DEVICES", "64", 1);
    struct rf_probe_result *result = PROBE("RF_HIP_LIBRARY=" HOSTILE("GOOD"));
    RF_ASSERT_TEXT(result->reason, "");
    RF_ASSERT_INT(result->count, 64);
    for (int i = 0; i < 64; i++) {
        RF_ASSERT_INT(result->devices[i].index, i);
        RF_ASSERT_INT(result->source[i].ordinal, i);
        for (int j = 0; j < i; j++) RF_ASSERT(strcmp(result->devices[i].uuid, result->devices[j].uuid) != 0);
    }
    free(result);
}

RF_TEST(probe, arch_in_new_layout) {
    setenv("HOSTILE_ARCH", built_arch("gfx"), 1);
    struct rf_probe_result *result = PROBE("RF_HIP_LIBRARY=" HOSTILE("ARCH_NEW_LAYOUT"));
    RF_ASSERT_TEXT(result->devices[0].arch, getenv("HOSTILE_ARCH"));
    RF_ASSERT(result->devices[0].usable);
    free(result);
}

RF_TEST(probe, both_vendors) {
    setenv("HOSTILE_ARCH", built_arch("gfx"), 1);
    built_arch("sm_");
    struct rf_probe_result *result =
        PROBE("RF_DRIVER=auto", "RF_HIP_LIBRARY=" HOSTILE("GOOD"), "RF_CUDA_LIBRARY=" DRIVER_FOLDER "/fake-cuda.so");
    RF_ASSERT_TEXT(result->reason, "");
    RF_ASSERT_INT(result->status, RF_OK);
    RF_ASSERT_INT(result->count, 2);
    RF_ASSERT_INT(result->devices[0].vendor, RF_VENDOR_AMD);
    RF_ASSERT_INT(result->devices[1].vendor, RF_VENDOR_NVIDIA);
    RF_ASSERT_INT(result->devices[1].index, 1);
    RF_ASSERT_INT(result->source[1].ordinal, 0);
    RF_ASSERT_INT(result->source[1].kind, RF_DRIVER_CUDA);
    RF_ASSERT_TEXT(result->devices[1].arch, "sm_90");
    RF_ASSERT_TEXT(result->devices[1].driver, "CUDA 12.4");
    RF_ASSERT_TEXT(result->devices[1].uuid, "GPU-f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff");
    RF_ASSERT_TEXT(result->devices[1].pci, "0000:e1:00.0");
    RF_ASSERT_INT(result->devices[1].max_shared_bytes_per_block, 232448);
    free(result);
}

/* One vendor's crash does not hide the other's GPU, and is told. */
RF_TEST(probe, one_vendor_crashes) {
    built_arch("sm_");
    struct rf_probe_result *result = PROBE("RF_DRIVER=auto", "RF_HIP_LIBRARY=" HOSTILE("INIT_SEGV"),
                                           "RF_CUDA_LIBRARY=" DRIVER_FOLDER "/fake-cuda.so");
    RF_ASSERT_INT(result->status, RF_OK);
    RF_ASSERT_INT(result->count, 1);
    RF_ASSERT(result->devices[0].usable);
    RF_ASSERT_CONTAINS(result->reason, "HIP driver: the probe crashed with SIGSEGV");
    free(result);
}

/* A vendor that is merely absent is not worth a word beside a GPU that works. */
RF_TEST(probe, one_vendor_absent) {
    built_arch("sm_");
    struct rf_probe_result *result = PROBE("RF_DRIVER=auto", "RF_HIP_LIBRARY=/nonexistent/libamdhip64.so",
                                           "RF_CUDA_LIBRARY=" DRIVER_FOLDER "/fake-cuda.so");
    RF_ASSERT_INT(result->count, 1);
    RF_ASSERT_TEXT(result->reason, "");
    free(result);
}

/* ---- drivers that do not let the probe finish ---- */

struct hostile {
    const char *library;
    rf_status status;
    const char *reason, *also;
    bool hangs; /* the deadline decides: try longer ones until the driver got to where it hangs */
};

static struct rf_probe_result *probe_hostile(const struct hostile *hostile) {
    char library[512], timeout[64];
    snprintf(library, sizeof library, "RF_HIP_LIBRARY=%s", hostile->library);
    for (int timeout_ms = hostile->hangs ? 250 : 64000;; timeout_ms *= 4) {
        snprintf(timeout, sizeof timeout, "RF_PROBE_TIMEOUT_MS=%d", timeout_ms);
        struct rf_probe_result *result = PROBE(library, timeout);
        RF_NOTE("%s", result->reason);
        bool as_told =
            strstr(result->reason, hostile->reason) && (!hostile->also || strstr(result->reason, hostile->also));
        if (as_told || timeout_ms >= 16000) return result;
        free(result);
    }
}

/* A file to which the driver writes the processes that it ran in or made. */
static void note_pids(char path[SCRATCH_BYTES]) {
    int file = scratch_file(path, "probe-pids");
    RF_ASSERT(file >= 0);
    close(file);
    setenv("HOSTILE_PIDS", path, 1);
}

/* Not one of them is left; killing takes its time. And none is ours to reap. At least 'least' were noted. */
static void expect_none_left(const char *pids, int least) {
    FILE *list = fopen(pids, "r");
    long pid;
    int count = 0;
    RF_ASSERT(list != NULL);
    for (; fscanf(list, "%ld", &pid) == 1; count++)
        for (int i = 0; !is_dead(pid); i++) {
            if (i > 12000) RF_FAIL("process %ld is still there", pid);
            rf_sleep_ns(5000000);
        }
    fclose(list);
    unlink(pids);
    RF_EXPECT(count >= least);
    RF_ASSERT(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
}

static void check_hostile(const struct hostile *hostile) {
    char pids[SCRATCH_BYTES];
    note_pids(pids);
    struct rf_probe_result *result = probe_hostile(hostile);
    RF_EXPECT(result->status == hostile->status);
    RF_ASSERT_INT(result->count, 0);
    RF_ASSERT_CONTAINS(result->reason, hostile->reason);
    if (hostile->also) RF_ASSERT_CONTAINS(result->reason, hostile->also);
    RF_ASSERT(strchr(result->reason, '\n') == NULL);
    free(result);
    expect_none_left(pids, 0);
}

#define HOSTILE_TEST(name, ...)                                                                                      \
    RF_TEST(hostile, name) {                                                                                         \
        struct hostile hostile = {__VA_ARGS__};                                                                      \
        check_hostile(&hostile);                                                                                     \
    }

HOSTILE_TEST(load_segv, .library = HOSTILE("LOAD_SEGV"), .status = RF_E_DRIVER, .reason = "crashed with SIGSEGV",
             .also = "while loading")
HOSTILE_TEST(init_segv, .library = HOSTILE("INIT_SEGV"), .status = RF_E_DRIVER, .reason = "crashed with SIGSEGV",
             .also = "while initialising")
HOSTILE_TEST(init_abort, .library = HOSTILE("INIT_ABORT"), .status = RF_E_DRIVER, .reason = "crashed with SIGABRT",
             .also = "while initialising")
HOSTILE_TEST(thread_abort, .library = HOSTILE("THREAD_ABORT"), .status = RF_E_DRIVER,
             .reason = "crashed with SIGABRT", .also = "while initialising")
HOSTILE_TEST(second_segv, .library = HOSTILE("SECOND_SEGV"), .status = RF_E_DRIVER, .reason = "crashed with SIGSEGV",
             .also = "while asking about device 1")
HOSTILE_TEST(init_exit, .library = HOSTILE("INIT_EXIT"), .status = RF_E_DRIVER,
             .reason = "exited with code 0 without a report", .also = "while initialising")
HOSTILE_TEST(init_quick_exit, .library = HOSTILE("INIT_QUICK_EXIT"), .status = RF_E_DRIVER,
             .reason = "exited with code 7 without a report")
HOSTILE_TEST(kill_group, .library = HOSTILE("KILL_GROUP"), .status = RF_E_DRIVER, .reason = "crashed with SIGTERM")
HOSTILE_TEST(fork_and_exit, .library = HOSTILE("FORK_AND_EXIT"), .status = RF_E_DRIVER,
             .reason = "exited with code 0 without a report")
HOSTILE_TEST(kill_parent, .library = HOSTILE("KILL_PARENT"), .status = RF_E_DRIVER, .reason = "crashed with SIGKILL",
             .also = "while initialising")
HOSTILE_TEST(init_hang, .library = HOSTILE("INIT_HANG"), .status = RF_E_TIMEOUT, .reason = "gave no answer within",
             .also = "while initialising", .hangs = true)
HOSTILE_TEST(init_spin, .library = HOSTILE("INIT_SPIN"), .status = RF_E_TIMEOUT, .reason = "ms (RF_PROBE_TIMEOUT_MS)",
             .also = "while initialising", .hangs = true)
HOSTILE_TEST(init_stop, .library = HOSTILE("INIT_STOP"), .status = RF_E_TIMEOUT, .reason = "gave no answer within",
             .also = "while initialising", .hangs = true)
HOSTILE_TEST(close_and_hang, .library = HOSTILE("CLOSE_AND_HANG"), .status = RF_E_TIMEOUT,
             .reason = "closed its report unfinished and hung", .hangs = true)
HOSTILE_TEST(flood, .library = HOSTILE("FLOOD"), .status = RF_E_DRIVER,
             .reason = "wrote more than 256 KiB that are no report")
HOSTILE_TEST(forge, .library = HOSTILE("FORGE"), .status = RF_E_DRIVER,
             .reason = "report is malformed: line 6: expected simulated")
HOSTILE_TEST(init_unknown, .library = HOSTILE("INIT_UNKNOWN"), .status = RF_E_DRIVER,
             .reason = "cannot be initialised: hipErrorUnknown (999)")
HOSTILE_TEST(count_negative, .library = HOSTILE("COUNT_NEGATIVE"), .status = RF_E_DRIVER,
             .reason = "says there are -1 devices")
HOSTILE_TEST(count_huge, .library = HOSTILE("COUNT_HUGE"), .status = RF_E_DRIVER,
             .reason = "says there are 1000000000 devices")
HOSTILE_TEST(count_error, .library = HOSTILE("COUNT_ERROR"), .status = RF_E_DRIVER,
             .reason = "cannot count its devices: hipErrorOperatingSystem (304)")
HOSTILE_TEST(count_zero, .library = HOSTILE("COUNT_ZERO"), .status = RF_E_NO_DEVICE, .reason = "finds no device")
HOSTILE_TEST(missing_symbol, .library = HOSTILE("MISSING_SYMBOL"), .status = RF_E_NO_DRIVER,
             .reason = "hostile-MISSING_SYMBOL.so has no", .also = "hipModuleLaunchKernel")
HOSTILE_TEST(no_such_file, .library = "/nonexistent/libamdhip64.so", .status = RF_E_NO_DRIVER,
             .reason = "/nonexistent/libamdhip64.so does not exist")
HOSTILE_TEST(a_folder, .library = DRIVER_FOLDER, .status = RF_E_NO_DRIVER,
             .reason = "is a folder, not a shared library")
HOSTILE_TEST(a_program, .library = PROBE_HELPER, .status = RF_E_NO_DRIVER,
             .reason = "rocmforge-probe cannot be loaded")
HOSTILE_TEST(a_text, .library = "/etc/passwd", .status = RF_E_NO_DRIVER, .reason = "cannot be loaded")
HOSTILE_TEST(a_device, .library = "/dev/zero", .status = RF_E_NO_DRIVER,
             .reason = "is a special file, not a shared library")

/* ---- drivers that finish, and lie or are only loud ---- */

static void check_usable(const char *library_option) {
    setenv("HOSTILE_ARCH", built_arch("gfx"), 1);
    struct rf_probe_result *result = PROBE(library_option);
    RF_ASSERT_TEXT(result->reason, "");
    RF_ASSERT_INT(result->count, 1);
    RF_ASSERT(result->devices[0].usable);
    free(result);
}
RF_TEST(hostile, print) {
    check_usable("RF_HIP_LIBRARY=" HOSTILE("PRINT"));
}
RF_TEST(hostile, exit_handler_hangs) {
    check_usable("RF_HIP_LIBRARY=" HOSTILE("EXIT_HANDLER_HANGS"));
}
RF_TEST(hostile, daemon) {
    char pids[SCRATCH_BYTES];
    note_pids(pids);
    check_usable("RF_HIP_LIBRARY=" HOSTILE("DAEMON"));
    expect_none_left(pids, 2);
}
RF_TEST(hostile, name_empty) {
    check_usable("RF_HIP_LIBRARY=" HOSTILE("NAME_EMPTY"));
}

RF_TEST(hostile, no_identity) {
    check_usable("RF_HIP_LIBRARY=" HOSTILE("NO_IDENTITY"));
}

static void check_liar(const char *library_option, const char *reason) {
    setenv("HOSTILE_ARCH", built_arch("gfx"), 1);
    struct rf_probe_result *result = PROBE(library_option);
    RF_ASSERT_INT(result->status, RF_E_NO_DEVICE);
    RF_ASSERT_INT(result->count, 1);
    RF_ASSERT(!result->devices[0].usable);
    RF_ASSERT_TEXT(result->devices[0].kernel_target, "");
    RF_ASSERT_CONTAINS(result->devices[0].reason, reason);
    RF_ASSERT_CONTAINS(result->reason, reason);
    for (const char *c = result->devices[0].name; *c; c++) RF_ASSERT(*c >= 0x20 && *c <= 0x7e);
    free(result);
}
#define LIAR_TEST(name, library, reason)                                                                             \
    RF_TEST(liar, name) {                                                                                            \
        check_liar("RF_HIP_LIBRARY=" HOSTILE(library), reason);                                                      \
    }
LIAR_TEST(name_control, "NAME_CONTROL", "a name that is no text")
LIAR_TEST(name_unterminated, "NAME_UNTERMINATED", "a name without an end")
LIAR_TEST(name_overrun, "NAME_OVERRUN", "a name without an end")
LIAR_TEST(arch_nonsense, "ARCH_NONSENSE", "does not tell its architecture")
LIAR_TEST(total_zero, "TOTAL_ZERO", "says it has 0 bytes of memory")
LIAR_TEST(total_huge, "TOTAL_HUGE", "says it has 18446744073709551615 bytes of memory")
LIAR_TEST(wave_nonsense, "WAVE_NONSENSE", "waves have -7 threads")
LIAR_TEST(attribute_error, "ATTRIBUTE_ERROR", "does not tell its wave size")

RF_TEST(probe, arch_without_kernels) {
    setenv("HOSTILE_ARCH", "gfx700", 1);
    struct rf_probe_result *result = PROBE("RF_HIP_LIBRARY=" HOSTILE("GOOD"));
    RF_ASSERT_INT(result->status, RF_E_NO_DEVICE);
    RF_ASSERT(!result->devices[0].usable);
    RF_ASSERT_CONTAINS(result->reason, "no kernels for gfx700 in this build");
    free(result);
}

/* ---- other drivers ---- */

RF_TEST(probe, driver_none) {
    struct rf_probe_result *result = PROBE("RF_DRIVER=none", "RF_PROBE_HELPER=/nonexistent");
    RF_ASSERT_INT(result->status, RF_E_NO_DRIVER);
    RF_ASSERT_INT(result->count, 0);
    RF_ASSERT_CONTAINS(result->reason, "RF_DRIVER=none");
    free(result);
}

RF_TEST(probe, no_driver_at_all) {
    struct rf_probe_result *result =
        PROBE("RF_DRIVER=auto", "RF_HIP_LIBRARY=/nonexistent/a.so", "RF_CUDA_LIBRARY=/nonexistent/b.so");
    RF_ASSERT_INT(result->status, RF_E_NO_DRIVER);
    RF_ASSERT_CONTAINS(result->reason, "HIP driver: /nonexistent/a.so does not exist");
    RF_ASSERT_CONTAINS(result->reason, "CUDA driver: /nonexistent/b.so does not exist");
    free(result);
}

/* A real HIP runtime on a machine without an AMD GPU. */
RF_TEST(probe, real_hip_without_device) {
    struct rf_probe_result *result = PROBE("RF_DRIVER=hip", "RF_HIP_LIBRARY=");
    if (result->status == RF_E_NO_DRIVER) RF_SKIP("%s", result->reason);
    if (result->count > 0) RF_SKIP("there is a device: %s", result->devices[0].name);
    RF_ASSERT_INT(result->status, RF_E_NO_DEVICE);
    RF_ASSERT_CONTAINS(result->reason, "finds no device");
    free(result);
}
