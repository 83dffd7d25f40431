/* The probe's wire format: round trips, exact refusals, seeded mutations, and judgement. */
#include "gpu/image.h"
#include "gpu/probe_report.h"
#include "gpu/target.h"
#include "report_property.h"

#include <stdio.h>
#include <stdlib.h>

#include <rocmforge/gpu.h>
#include <rocmforge/test.h>

static struct rf_probe_report *example(int devices) {
    struct rf_probe_report *report = calloc(1, sizeof *report);
    RF_ASSERT(report != NULL);
    report->kind = RF_DRIVER_CUDA;
    snprintf(report->library, sizeof report->library, "/usr/lib/libcuda.so.1");
    snprintf(report->label, sizeof report->label, "CUDA 13.0");
    report->count = devices;
    for (int i = 0; i < devices; i++) {
        struct rf_probe_device *device = &report->devices[i];
        device->ordinal = i;
        snprintf(device->name, sizeof device->name, "A 100%% \"card\"\n\x01\xff=%d", i);
        snprintf(device->arch, sizeof device->arch, "sm_90");
        snprintf(device->uuid, sizeof device->uuid, "GPU-%d", i);
        snprintf(device->pci, sizeof device->pci, "0000:%02x:00.0", i);
        device->total_bytes = UINT64_C(150754820096) + (uint64_t)i;
        device->free_bytes = 1;
        device->granularity_bytes = 1 << 21;
        device->display = RF_NO;
        device->wave_size = 32;
        device->compute_units = 132;
        device->max_threads_per_block = 1024;
        device->max_shared_bytes_per_block = 232448;
    }
    return report;
}

static size_t write_whole(const struct rf_probe_report *report, char *text, size_t size) {
    size_t length = strlen(RF_PROBE_HEADER);
    memcpy(text, RF_PROBE_HEADER, length);
    length += rf_probe_step_write("loading the driver", text + length, size - length);
    length += rf_probe_step_write("100% of /odd\npath", text + length, size - length);
    size_t body = rf_probe_report_write(report, text + length, size - length);
    RF_ASSERT(body > 0);
    return length + body;
}

RF_TEST(report, round_trip) {
    struct rf_probe_report *report = example(3), *read = calloc(1, sizeof *read);
    char text[8192], step[160];
    report->devices[1].wave_size = -2147483647 - 1;
    report->devices[2].total_bytes = UINT64_MAX;
    memset(report->devices[2].fault, 'f', sizeof report->devices[2].fault - 1);
    size_t length = write_whole(report, text, sizeof text);
    RF_ASSERT(rf_probe_report_complete(text, length));
    RF_ASSERT_OK(rf_probe_report_parse(text, length, read));
    RF_ASSERT(memcmp(report, read, sizeof *read) == 0);
    RF_ASSERT(rf_probe_last_step(text, length, step, sizeof step));
    RF_ASSERT_TEXT(step, "100% of /odd\npath");
    free(report);
    free(read);
}

RF_TEST(report, largest_fits) {
    struct rf_probe_report *report = example(RF_MAX_DEVICES), *read = calloc(1, sizeof *read);
    static char text[RF_PROBE_REPORT_MAX_BYTES];
    for (int i = 0; i < RF_MAX_DEVICES; i++) { /* every text full, every byte escaped */
        struct rf_probe_device *device = &report->devices[i];
        memset(device->name, '\xff', sizeof device->name - 1);
        memset(device->arch, '\x01', sizeof device->arch - 1);
        memset(device->uuid, '%', sizeof device->uuid - 1);
        memset(device->pci, '\n', sizeof device->pci - 1);
        memset(device->fault, '\x7f', sizeof device->fault - 1);
    }
    memset(report->library + 1, '\xff', sizeof report->library - 2);
    memset(report->label, '\xff', sizeof report->label - 1);
    size_t length = write_whole(report, text, sizeof text);
    RF_ASSERT_OK(rf_probe_report_parse(text, length, read));
    RF_ASSERT(memcmp(report, read, sizeof *read) == 0);
    RF_ASSERT_INT(rf_probe_report_write(report, text, 1000), 0);
    free(report);
    free(read);
}

/* Every prefix of a report is refused: an interrupted one is never believed. */
RF_TEST(report, prefixes) {
    struct rf_probe_report *report = example(2);
    char text[8192];
    size_t length = write_whole(report, text, sizeof text);
    for (size_t cut = 0; cut < length; cut++) {
        bool accepted = true;
        RF_ASSERT(report_reads_soundly(text, cut, &accepted));
        RF_ASSERT(!accepted);
    }
    free(report);
}

/* Exactly one replacement in a good report, and the line at which it is refused. */
static void check_refusal(const char *from, const char *to, const char *reason) {
    struct rf_probe_report *report = example(1), *untouched = calloc(1, sizeof *untouched);
    char text[4096], changed[4096];
    size_t length = write_whole(report, text, sizeof text - 1);
    text[length] = 0;
    char *at = strstr(text, from);
    if (!at) RF_FAIL("'%s' is not in the report", from);
    snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    memset(untouched, 0x42, sizeof *untouched);
    RF_EXPECT_STATUS(rf_probe_report_parse(changed, strlen(changed), untouched), RF_E_SYNTAX);
    RF_ASSERT_CONTAINS(rf_error_text(), reason);
    for (size_t i = 0; i < sizeof *untouched; i++) RF_ASSERT(((unsigned char *)untouched)[i] == 0x42);
    free(report);
    free(untouched);
}

RF_TEST(report, refusals) {
    check_refusal("rocmforge-probe 1", "rocmforge-probe 2", "line 1");
    check_refusal("step=loading", "stop=loading", "line 2");
    check_refusal("begin\n", "", "line 4: expected a step or begin");
    check_refusal("driver=cuda", "driver=vulkan", "no such driver vulkan");
    check_refusal("driver=cuda", "driver=metal-compute", "not a value for driver");
    check_refusal("simulated=0", "simulated=3", "not a value for simulated");
    check_refusal("library=/usr", "library=usr", "not a value for library");
    check_refusal("status=0", "status=5", "not a value for status");
    check_refusal("status=0", "status=11", "contradict");
    check_refusal("status=0", "status=00", "line 9: not a value for status");
    check_refusal("reason=", "reason=broken", "contradict");
    check_refusal("devices=1", "devices=0", "contradict");
    check_refusal("devices=1", "devices=2", "expected device");
    check_refusal("devices=1", "devices=65", "not a value for devices");
    check_refusal("devices=1", "devices=-1", "not a value for devices");
    check_refusal("device=0", "device=1", "out of order");
    check_refusal("name=A", "Name=A", "expected name");
    check_refusal("%01", "%0a", "not a value for name");
    check_refusal("%01", "%00", "not a value for name");
    check_refusal("%01", "%41", "not a value for name");
    check_refusal("%01", "\n", "expected arch");
    check_refusal("arch=sm_90", "arch=0123456789012345678901234567890123456789", "not a value for arch");
    check_refusal("total_bytes=1", "total_bytes=-1", "not a value for total_bytes");
    check_refusal("total_bytes=150754820096", "total_bytes=18446744073709551616", "not a value for total_bytes");
    check_refusal("total_bytes=", "total_bytes=0x", "not a value for total_bytes");
    check_refusal("total_bytes=", "total_bytes= ", "not a value for total_bytes");
    check_refusal("wave_size=32", "wave_size=2147483648", "not a value for wave_size");
    check_refusal("wave_size=32", "wave_size=-0", "not a value for wave_size");
    check_refusal("wave_size=32", "wave_size=", "not a value for wave_size");
    check_refusal("integrated=0", "integrated=7", "not a value for integrated");
    check_refusal("display=1", "display=3", "not a value for display");
    check_refusal("fault=\n", "", "expected fault");
    check_refusal("\nend\n", "\nend\nend\n", "something follows the end");
    check_refusal("\nend\n", "\nEnd\n", "expected end");
}

RF_TEST(report, mutations, .timeout_ms = 600000) {
    struct rf_probe_report *report = example(2);
    struct rf_random random = {rf_test_seed() + 1};
    char original[8192], text[20000];
    size_t original_length = write_whole(report, original, sizeof original), accepted_count = 0;
    for (int round = 0; round < 20000; round++) {
        size_t length = original_length, changes = 1 + rf_random_below(&random, 4);
        bool accepted;
        memcpy(text, original, length);
        while (changes--) {
            size_t at = rf_random_below(&random, length), span = 1 + rf_random_below(&random, 40);
            span = RF_MIN(span, length - at);
            switch (rf_random_below(&random, 5)) {
            case 0: text[at] = (char)rf_random_next(&random); break;
            case 1: text[at] ^= (char)(1 << rf_random_below(&random, 8)); break;
            case 2: /* cut a piece out */
                memmove(text + at, text + at + span, length - at - span);
                length = RF_MAX(length - span, (size_t)1);
                break;
            case 3: /* put a piece in twice */
                memmove(text + at + span, text + at, length - at);
                length += span;
                break;
            default: text[at] = "0123456789-=%\n"[rf_random_below(&random, 14)]; break;
            }
        }
        if (!report_reads_soundly(text, length, &accepted))
            RF_FAIL("round %d: read unsoundly: %.*s", round, (int)length, text);
        accepted_count += accepted;
    }
    /* Some mutations only change a digit or a letter; if none were accepted, nothing was tested. */
    RF_ASSERT(accepted_count > 100 && accepted_count < 15000);
    free(report);
}

/* ---- judgement ---- */

static void check_judgement(void (*spoil)(struct rf_probe_device *), const char *reason) {
    struct rf_probe_report *report = example(1);
    struct rf_probe_device *device = &report->devices[0];
    char why[256];
    snprintf(device->name, sizeof device->name, "Card");
    RF_ASSERT(rf_probe_device_plausible(RF_DRIVER_CUDA, device, why, sizeof why));
    RF_ASSERT_TEXT(why, "");
    spoil(device);
    RF_ASSERT(!rf_probe_device_plausible(RF_DRIVER_CUDA, device, why, sizeof why));
    RF_ASSERT_CONTAINS(why, reason);
    free(report);
}

#define SPOIL(name, statement)                                                                                       \
    static void name(struct rf_probe_device *device) {                                                               \
        statement;                                                                                                   \
    }
SPOIL(spoil_fault, strcpy(device->fault, "it smokes"))
SPOIL(spoil_name, strcpy(device->name, "\t"))
SPOIL(spoil_no_name, device->name[0] = 0)
SPOIL(spoil_arch, strcpy(device->arch, "gfx1100"))
SPOIL(spoil_uuid, strcpy(device->uuid, "../../etc"))
SPOIL(spoil_pci, strcpy(device->pci, "0000:3A:00.0"))
SPOIL(spoil_total, device->total_bytes = 0)
SPOIL(spoil_much, device->total_bytes = UINT64_MAX)
SPOIL(spoil_free, device->free_bytes = device->total_bytes + 1)
SPOIL(spoil_granularity, device->granularity_bytes = 0)
SPOIL(spoil_wave, device->wave_size = 48)
SPOIL(spoil_units, device->compute_units = -3)
SPOIL(spoil_threads, device->max_threads_per_block = 31)
SPOIL(spoil_shared, device->max_shared_bytes_per_block = -1)

RF_TEST(report, judgement) {
    check_judgement(spoil_fault, "it smokes");
    check_judgement(spoil_name, "a name that is no text");
    check_judgement(spoil_no_name, "a name that is no text");
    check_judgement(spoil_arch, "architecture");
    check_judgement(spoil_uuid, "impossible identity");
    check_judgement(spoil_pci, "impossible PCI address");
    check_judgement(spoil_total, "0 bytes of memory");
    check_judgement(spoil_much, "18446744073709551615 bytes of memory");
    check_judgement(spoil_free, "more memory free");
    check_judgement(spoil_granularity, "steps of 0 bytes");
    check_judgement(spoil_wave, "waves have 48 threads");
    check_judgement(spoil_units, "-3 compute units");
    check_judgement(spoil_threads, "at most 31 threads");
    check_judgement(spoil_shared, "-1 bytes of shared memory");
}

/* ---- which image fits which device ---- */

RF_TEST(target, fits) {
    static const struct {
        const char *device, *target;
        bool fits;
    } cases[] = {
        {"gfx1100", "gfx1100", true}, {"gfx1100", "gfx1101", false},
        {"gfx90a", "gfx90a", true},   {"gfx1100", "sm_80", false},
        {"sm_90", "gfx1100", false},  {"sm_90", "sm_80", true},
        {"sm_90", "sm_90", true},     {"sm_90", "sm_90a", true},
        {"sm_89", "sm_90", false},    {"sm_100", "sm_90", true},
        {"sm_100", "sm_90a", false},  {"sm_120", "sm_80", true},
        {"sm_75", "sm_80", false},    {"sm_8", "sm_8", false},
        {"sm_90", "sm_9x", false},    {"", "", false},
        {"gfx", "sm_", false},        {"x", "x", false},
        {"sm_90", "sm_90ab", false},  {NULL, "sm_80", false},
        {"sm_80", NULL, false},
    };
    for (size_t i = 0; i < RF_COUNT(cases); i++) {
        int rank = -77;
        bool fits = rf_target_fits(cases[i].device, cases[i].target, &rank);
        if (fits != cases[i].fits) RF_FAIL("%s on %s", cases[i].target, cases[i].device);
        RF_ASSERT((rank != -77) == fits);
    }
}

RF_TEST(target, better_ranks_higher) {
    int sm_80 = 0, sm_90 = 0, sm_90a = 0;
    RF_ASSERT(rf_target_fits("sm_90", "sm_80", &sm_80) && rf_target_fits("sm_90", "sm_90", &sm_90) &&
              rf_target_fits("sm_90", "sm_90a", &sm_90a));
    RF_ASSERT(sm_80 < sm_90 && sm_90 < sm_90a);
    RF_ASSERT(rf_target_fits("sm_90", "sm_80", NULL));
}

/* The refusal names the one command, where it helps: 'make kernels-all' has every known target. */
RF_TEST(target, refusals_say_how_to_get_kernels) {
    char best[32], target[16];
    int refused = 0;
    for (const char *at = rf_image_known_targets; sscanf(at, " %15s", target) == 1; at += 1 + strlen(target)) {
        if (strncmp(target, "gfx", 3) != 0 || rf_target_best_builtin(target, best, sizeof best) == RF_OK) continue;
        refused++;
        RF_EXPECT_CONTAINS(rf_error_text(), target);
        RF_EXPECT_CONTAINS(rf_error_text(), "'make kernels-all' in the source tree adds them");
    }
    RF_EXPECT(refused > 0 || rf_target_best_builtin("gfx1035", best, sizeof best) == RF_OK);
}

/* A device gets each kernel once, of the target that fits best. */
RF_TEST(target, each_kernel_once) {
    static const char *const devices[] = {"gfx1100", "sm_80", "sm_90", "sm_100"};
    for (size_t d = 0; d < RF_COUNT(devices); d++) {
        size_t own = 0;
        for (size_t i = 0; i < rf_builtin_kernel_count(); i++) {
            const struct rf_builtin_kernel *row = rf_builtin_kernel_at(i);
            if (!rf_builtin_kernel_fits(row, devices[d])) continue;
            RF_EXPECT(rf_target_fits(devices[d], row->target, NULL));
            own += strcmp(row->target, "sm_90a") == 0;
            for (size_t k = 0; k < i; k++)
                if (!strcmp(rf_builtin_kernel_at(k)->name, row->name) &&
                    rf_builtin_kernel_fits(rf_builtin_kernel_at(k), devices[d]))
                    RF_FAIL("%s gets %s twice", devices[d], row->name);
        }
        RF_EXPECT(!own || !strcmp(devices[d], "sm_90"));
    }
    RF_EXPECT(!rf_builtin_kernel_fits(NULL, "sm_90") && !rf_builtin_kernel_fits(rf_builtin_kernel_at(0), NULL));
}

RF_TEST(target, best_builtin) {
    char best[32];
    for (size_t i = 0; i < rf_image_count(); i++) {
        const char *target = rf_image_at(i)->target;
        if (strncmp(target, "gfx", 3) != 0) continue;
        RF_ASSERT_OK(rf_target_best_builtin(target, best, sizeof best));
        RF_ASSERT_TEXT(best, target);
    }
    /* Kernels for exactly one architecture come beside the general ones: nothing is named after them, and a device
     * without them is complete. */
    if (rf_target_best_builtin("sm_90", best, sizeof best) == RF_OK) RF_EXPECT(!strchr(best, 'a'));
    RF_EXPECT_STATUS(rf_target_best_builtin("gfx700", best, sizeof best), RF_E_UNSUPPORTED);
    RF_ASSERT_CONTAINS(rf_error_text(), "no kernels for gfx700");
    RF_ASSERT_CONTAINS(rf_error_text(), "cannot be built for it");
    RF_EXPECT_STATUS(rf_target_best_builtin("sm_20", best, sizeof best), RF_E_UNSUPPORTED);
}
