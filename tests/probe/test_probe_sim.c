/* The probe on the simulated driver: devices as configured, the kernel's figures from a tree
 * that the driver keeps, and faults at the calls that the probe makes. */
#include "probe_testing.h"

#include <unistd.h>

#include "../scratch.h"

static struct rf_probe_result *probe_sim(const char *configuration, const char *more) {
    setenv("RFSIM", configuration, 1);
    struct rf_probe_result *result =
        PROBE("RF_DRIVER=sim", "RF_HIP_LIBRARY=" SIMULATED_DRIVER, more ? more : "RF_SYSFS=/sys");
    RF_NOTE("%s", result->reason);
    return result;
}

RF_TEST(simulated, one_device) {
    char configuration[512];
    snprintf(configuration, sizeof configuration, "arch=%s,vram=8GiB,wave=64,units=7", built_arch("gfx"));
    struct rf_probe_result *result = probe_sim(configuration, NULL);
    RF_ASSERT_TEXT(result->reason, "");
    RF_ASSERT_INT(result->status, RF_OK);
    RF_ASSERT_INT(result->count, 1);
    const struct rf_device_info *info = &result->devices[0];
    RF_ASSERT(info->usable && info->simulated && info->vendor == RF_VENDOR_AMD);
    RF_ASSERT_CONTAINS(info->driver, "(simulated)");
    RF_ASSERT_TEXT(info->arch, built_arch("gfx"));
    RF_ASSERT_INT(info->total_bytes, (long long)8 << 30);
    RF_ASSERT_INT(info->free_bytes, 0); /* the real kernel knows nothing of it */
    RF_ASSERT_INT(info->display, RF_UNKNOWN);
    RF_ASSERT_INT(info->wave_size, 64);
    RF_ASSERT_INT(info->compute_units, 7);
    RF_ASSERT_CONTAINS(result->source[0].library, "rfsim-hip");
    free(result);
}

RF_TEST(simulated, four_devices_by_the_kernels_word) {
    char folder[SCRATCH_BYTES], configuration[512], option[512], command[1024];
    scratch_folder(folder, "probe-sysfs");
    snprintf(configuration, sizeof configuration,
             "devices=4,arch=%s,vram=8GiB,desktop=3GiB,gpu1.desktop=1GiB,gpu2.display=1,gpu3.integrated=1,sysfs=%s",
             built_arch("gfx"), folder);
    snprintf(option, sizeof option, "RF_SYSFS=%s", folder);
    struct rf_probe_result *result = probe_sim(configuration, option);
    RF_ASSERT_TEXT(result->reason, "");
    RF_ASSERT_INT(result->count, 4);
    for (int i = 0; i < 4; i++) {
        RF_ASSERT(result->devices[i].usable);
        RF_ASSERT_INT(result->source[i].ordinal, i);
        RF_ASSERT_INT(result->devices[i].display, i == 2 ? RF_YES : RF_NO);
        RF_ASSERT_INT(result->devices[i].integrated, i == 3);
        RF_ASSERT(result->devices[i].free_bytes > 0 &&
                  result->devices[i].free_bytes <= result->devices[i].total_bytes);
    }
    RF_ASSERT_INT(result->devices[0].free_bytes, (long long)5 << 30);
    RF_ASSERT_INT(result->devices[1].free_bytes, (long long)7 << 30);
    free(result);
    snprintf(command, sizeof command, "rm -r %s", folder);
    RF_ASSERT(system(command) == 0);
}

/* The kernels are code objects that HIP reads from 5.2 on; the default of the simulated driver is 5.2. */
RF_TEST(simulated, an_old_hip_is_refused) {
    static const struct {
        const char *version, *shown;
        bool accepted;
    } cases[] = {{"40500000", "4.5", false}, {"50013601", "5.0", false}, {"50120531", "5.1", false},
                 {"50200000", "5.2", true},  {"60342134", "6.3", true},  {"100000000", "10.0", true}};
    for (size_t i = 0; i < RF_COUNT(cases); i++) {
        char configuration[512], text[512];
        snprintf(configuration, sizeof configuration, "arch=%s,version=%s", built_arch("gfx"), cases[i].version);
        struct rf_probe_result *result = probe_sim(configuration, NULL);
        if (cases[i].accepted) {
            RF_EXPECT_INT(result->status, RF_OK);
            RF_EXPECT_INT(result->count, 1);
            snprintf(text, sizeof text, "HIP %s (simulated)", cases[i].shown);
            RF_EXPECT_TEXT(result->devices[0].driver, text);
        } else {
            RF_EXPECT_INT(result->status, RF_E_NO_DRIVER);
            RF_EXPECT_INT(result->count, 0);
            snprintf(text, sizeof text, "librfsim-hip.so is HIP %s, and HIP 5.2 is the oldest that can be used; ",
                     cases[i].shown);
            RF_EXPECT_CONTAINS(result->reason, text);
            RF_EXPECT_CONTAINS(result->reason, "install a newer HIP or set RF_HIP_LIBRARY");
            RF_EXPECT(strchr(result->reason, '\n') == NULL);
        }
        free(result);
    }
}

/* HIP counts pairs of compute units in WGP mode. The kernel's files tell the units themselves. */
RF_TEST(simulated, compute_units_of_a_gpu_in_wgp_mode) {
    static const struct {
        const char *units;
        bool kernel; /* its files can be read */
        int found;
    } cases[] = {{"units=84", true, 84},          {"units=84,wgp=plain", false, 84}, {"units=84,wgp=1", false, 42},
                 {"units=84,wgp=1", true, 84},    {"units=83,wgp=1", true, 83},      {"units=1,wgp=plain", true, 1},
                 {"units=304,wave=64", true, 304}};
    for (size_t i = 0; i < RF_COUNT(cases); i++) {
        char folder[SCRATCH_BYTES], configuration[512], option[512], command[1024];
        scratch_folder(folder, "probe-sysfs");
        snprintf(configuration, sizeof configuration, "arch=%s,%s,sysfs=%s", built_arch("gfx"), cases[i].units,
                 folder);
        snprintf(option, sizeof option, "RF_SYSFS=%s", cases[i].kernel ? folder : "/nonexistent");
        struct rf_probe_result *result = probe_sim(configuration, option);
        RF_EXPECT_INT(result->status, RF_OK);
        RF_EXPECT_INT(result->devices[0].compute_units, cases[i].found);
        free(result);
        snprintf(command, sizeof command, "rm -r %s", folder);
        RF_ASSERT(system(command) == 0);
    }
}

/* Where HIP's count is neither the kernel's nor half of it, units are masked for this process. */
RF_TEST(simulated, masked_compute_units_are_not_counted) {
    char folder[SCRATCH_BYTES], configuration[512], option[512], command[1024];
    scratch_folder(folder, "probe-sysfs");
    snprintf(command, sizeof command,
             "mkdir -p %s/class/kfd/kfd/topology/nodes/1 && printf 'simd_count 192\nsimd_per_cu 2\n"
             "gfx_target_version 110000\nlocation_id 768\ndomain 0\n' "
             "> %s/class/kfd/kfd/topology/nodes/1/properties",
             folder, folder);
    RF_ASSERT(system(command) == 0);
    snprintf(option, sizeof option, "RF_SYSFS=%s", folder);
    static const struct {
        int units, found;
    } cases[] = {{20, 20}, {48, 96}, {96, 96}};
    for (size_t i = 0; i < RF_COUNT(cases); i++) {
        snprintf(configuration, sizeof configuration, "arch=%s,units=%d", built_arch("gfx"), cases[i].units);
        struct rf_probe_result *result = probe_sim(configuration, option);
        RF_EXPECT_INT(result->devices[0].compute_units, cases[i].found);
        free(result);
    }
    snprintf(command, sizeof command, "rm -r %s", folder);
    RF_ASSERT(system(command) == 0);
}

RF_TEST(simulated, faults) {
    static const struct {
        const char *fault, *reason;
        rf_status status;
    } cases[] = {
        {"fault=hipInit:1:crash", "crashed with SIG", RF_E_DRIVER},
        {"fault=hipInit:1:abort", "crashed with SIGABRT", RF_E_DRIVER},
        {"fault=hipInit:1:exit/5", "exited with code 5 without a report", RF_E_DRIVER},
        {"fault=hipInit:1:100", "finds no device", RF_E_NO_DEVICE},
        {"fault=hipInit:1:999", "cannot be initialised", RF_E_DRIVER},
        {"fault=hipDriverGetVersion:1:1", "does not tell its version", RF_E_DRIVER},
        {"fault=hipGetDeviceCount:1:3", "cannot count its devices", RF_E_DRIVER},
        {"fault=hipDeviceGet:1:101", "the driver does not give it", RF_E_NO_DEVICE},
        {"fault=hipDeviceGetName:1:1", "does not tell its name", RF_E_NO_DEVICE},
        {"fault=hipDeviceTotalMem:1:1", "does not tell its memory", RF_E_NO_DEVICE},
        {"fault=hipDeviceGetAttribute:2:1", "does not tell its compute units", RF_E_NO_DEVICE},
        {"devices=0", "finds no device", RF_E_NO_DEVICE},
    };
    built_arch("gfx1100");
    for (size_t i = 0; i < RF_COUNT(cases); i++) {
        struct rf_probe_result *result = probe_sim(cases[i].fault, NULL);
        RF_EXPECT(result->status == cases[i].status);
        RF_ASSERT_CONTAINS(result->reason, cases[i].reason);
        free(result);
    }
}

/* A second device is not hidden by a first that does not answer. */
RF_TEST(simulated, one_of_two_refused) {
    char configuration[512];
    snprintf(configuration, sizeof configuration, "devices=2,arch=%s,fault=hipDeviceTotalMem:1:1", built_arch("gfx"));
    struct rf_probe_result *result = probe_sim(configuration, NULL);
    RF_ASSERT_INT(result->status, RF_OK);
    RF_ASSERT_INT(result->count, 2);
    RF_ASSERT(!result->devices[0].usable && result->devices[1].usable);
    RF_ASSERT_CONTAINS(result->reason, "device 0 (Simulated GPU 0");
    RF_EXPECT_INT(result->devices[0].total_bytes, 0); /* a figure that the driver did not tell is none */
    RF_EXPECT(result->devices[1].total_bytes > 0);
    free(result);
}

RF_TEST(simulated, missing) {
    struct rf_probe_result *result = PROBE("RF_DRIVER=sim", "RF_HIP_LIBRARY=/nonexistent/librfsim-hip.so");
    RF_ASSERT_INT(result->status, RF_E_NO_DRIVER);
    RF_ASSERT_CONTAINS(result->reason, "/nonexistent/librfsim-hip.so");
    free(result);
}

RF_TEST(simulated, a_real_driver_is_refused) {
    struct rf_probe_result *result = PROBE("RF_DRIVER=sim", "RF_HIP_LIBRARY=" HOSTILE("GOOD"));
    RF_ASSERT_INT(result->status, RF_E_NO_DRIVER);
    RF_ASSERT_INT(result->count, 0);
    RF_ASSERT_CONTAINS(result->reason, "hostile-GOOD.so is not one");
    free(result);
}
