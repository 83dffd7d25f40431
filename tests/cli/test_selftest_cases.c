/* Which cases `rocmforge selftest` chooses: even with --quick they touch every op that a GPU has and every kernel
 * module of the build. And what its report leaves out of a text.
 *
 * The parts of the command are compiled in, and each launch is seen on its way (--wrap). */
#include "../gpu/gpu_testing.h"
#include "../../src/cli/selftest.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODULES_MAX 256
static char modules[MODULES_MAX][64], kernels[4 * MODULES_MAX][64];
static size_t module_count, kernel_count;

static bool add(char (*names)[64], size_t *count, size_t most, const char *name) {
    for (size_t i = 0; i < *count; i++)
        if (!strcmp(names[i], name)) return false;
    RF_ASSERT(*count < most);
    snprintf(names[(*count)++], sizeof names[0], "%s", name);
    return true;
}

rf_status __real_rf_queue_launch(struct rf_queue *queue, const struct rf_launch *launch);
rf_status __wrap_rf_queue_launch(struct rf_queue *queue, const struct rf_launch *launch);
rf_status __wrap_rf_queue_launch(struct rf_queue *queue, const struct rf_launch *launch) {
    RF_PARAMS(struct rf_kernel_info, info);
    RF_ASSERT_OK(rf_kernel_get_info(launch->kernel, &info));
    add(modules, &module_count, MODULES_MAX, info.module);
    add(kernels, &kernel_count, 4 * MODULES_MAX, info.name);
    return __real_rf_queue_launch(queue, launch);
}

static bool in_list(const char *list, const char *word) {
    size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += length)
        if ((at == list || at[-1] == ' ') && (!at[length] || at[length] == ' ')) return true;
    return false;
}

RF_TEST(selftest_cases, every_op_is_in_one_item) {
    for (size_t i = 0; i < rf_op_count(); i++) {
        RF_PARAMS(struct rf_op_info, op);
        int items = 0;
        RF_ASSERT_OK(rf_op_info_at(i, &op));
        for (size_t k = 0; k < selftest_item_count; k++)
            items += selftest_items[k].on_gpu && selftest_items[k].ops && in_list(selftest_items[k].ops, op.name);
        if (items != op.on_gpu) RF_FAIL("%s is in %d items", op.name, items);
    }
}

RF_TEST(selftest_cases, the_quick_form_uses_every_kernel_module, .timeout_ms = 300000, .tags = "heavy") {
    struct gpu gpu = {0};
    gpu_need_simulated("");
    gpu_open(&gpu, NULL);
    struct selftest test = {.runtime = gpu.runtime, .device = gpu.device, .quick = true};
    RF_ASSERT((test.out = fopen("/dev/null", "w")) != NULL);
    for (size_t i = 0; i < selftest_item_count; i++) {
        const struct selftest_item *item = &selftest_items[i];
        if (!item->on_gpu || !item->ops) continue;
        enum selftest_mark mark = selftest_ops(&test, item->ops);
        if (mark != SELFTEST_OK) RF_FAIL("%s: %s", item->name, test.text);
    }
    size_t expected = 0;
    char built[MODULES_MAX][64];
    for (size_t i = 0; i < rf_builtin_kernel_count(); i++) {
        const struct rf_builtin_kernel *kernel = rf_builtin_kernel_at(i);
        if (!add(built, &expected, MODULES_MAX, kernel->module)) continue;
        if (add(modules, &module_count, MODULES_MAX, kernel->module))
            RF_EXPECT_TEXT("no case uses a kernel of this module", kernel->module);
    }
    RF_NOTE("%zu modules, %zu kernels", expected, kernel_count);
    RF_EXPECT(expected > 20);
    fclose(test.out);
    gpu_close(&gpu);
}

static bool choose_first(void *user, const char *op, const char *label) {
    RF_ASSERT_TEXT(op, "softmax");
    RF_ASSERT(label[0] != 0);
    return ++*(size_t *)user == 1;
}

RF_TEST(selftest_cases, a_check_runs_only_what_is_chosen) {
    struct rf_check_counts counts;
    size_t asked = 0;
    RF_PARAMS(struct rf_check_params, params);
    params.op = "softmax";
    params.choose = choose_first;
    params.user = &asked;
    RF_ASSERT_OK(rf_check_run(&params, &counts));
    RF_EXPECT(asked > 50);
    RF_EXPECT_UINT(counts.passed, 1);
    RF_EXPECT_UINT(counts.failed + counts.skipped, 0);
}

/* ---- what is left out ---- */

static const struct scrubbed {
    const char *label, *text, *clean;
} texts[] = {
    {"nothing", "1.05 GB/s up, 4 MiB: 2 of 3", "1.05 GB/s up, 4 MiB: 2 of 3"},
    {"system", "'/opt/rocm/lib/libamdhip64.so.6': no", "'/opt/rocm/lib/libamdhip64.so.6': no"},
    {"devices", "/dev/kfd: Permission denied", "/dev/kfd: Permission denied"},
    {"home", "open /home/marker/x/y.gguf: no", "open …/y.gguf: no"},
    {"home_with_spaces", "open '/home/marker/my models/y.gguf'", "open '…/y.gguf'"},
    {"folder", "no folder /data/secret/leases", "no folder …/leases"},
    {"short", "in /tmp", "in tmp"},
    {"through_the_system", "/usr/../data/secret/x", "…/x"},
    {"user", "for marker-user, not marker-users", "for USER, not marker-users"},
    {"pid", "in use by pid 4711, process 12 (most: pid 3)", "in use by pid N, process N (most: pid N)"},
    {"root", "/", "/"},
    {"empty", "", ""},
};
RF_TEST_LABELLED_CASES(selftest_scrub, leaves_out_what_is_private, struct scrubbed, texts) {
    char text[SELFTEST_TEXT_MAX];
    setenv("HOME", "/home/marker", 1);
    setenv("USER", "marker-user", 1);
    setenv("LOGNAME", "marker-user", 1);
    snprintf(text, sizeof text, "%s", c->text);
    selftest_scrub(NULL, text, sizeof text);
    RF_EXPECT_TEXT(text, c->clean);
}

RF_TEST(selftest_scrub, leaves_out_the_host_and_the_device) {
    char host[200] = "", text[SELFTEST_TEXT_MAX];
    struct gpu gpu = {0};
    RF_PARAMS(struct rf_device_info, info);
    gpu_need_simulated("");
    gpu_make_runtime(&gpu, NULL);
    RF_ASSERT_OK(rf_device_info_at(gpu.runtime, 0, &info));
    RF_ASSERT_INT(gethostname(host, sizeof host - 1), 0);
    snprintf(text, sizeof text, "%s: %s at %s, %s", host, info.uuid, info.pci, host);
    selftest_scrub(gpu.runtime, text, sizeof text);
    RF_EXPECT_TEXT(text, strlen(host) > 1 ? "HOST: UUID at PCI, HOST" : text);
    RF_EXPECT(strlen(info.uuid) > 8 && strlen(info.pci) > 8);
    rf_runtime_destroy(&gpu.runtime);
}

/* A text that grows stays inside its memory. */
RF_TEST(selftest_scrub, cuts_what_does_not_fit) {
    char text[32] = "abc de de de de de de de de de";
    setenv("USER", "de", 1); /* becomes USER */
    selftest_scrub(NULL, text, sizeof text);
    RF_EXPECT(strlen(text) < sizeof text);
    RF_EXPECT(strncmp(text, "abc USER USER ", 14) == 0);
    RF_EXPECT(strstr(text, " de") == NULL);
}
