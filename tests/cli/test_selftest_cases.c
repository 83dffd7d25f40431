/* Which cases `rocmforge selftest` chooses: even with --quick they touch every op that a GPU has and every kernel
 * module of the build. What items make of figures that no driver gives on demand, and what the report leaves out of a
 * text.
 *
 * The parts of the command are compiled in, and launches, figures and logits are seen on their way (--wrap). */
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

/* The labels of the buffers that were there at a launch. */
static char labels[16][64];
static size_t label_count;
static bool see_label(void *user, const struct rf_allocation *allocation) {
    (void)user;
    if (allocation->kind == RF_ALLOC_BUFFER && label_count < 16) add(labels, &label_count, 16, allocation->label);
    return true;
}

rf_status __real_rf_queue_launch(struct rf_queue *queue, const struct rf_launch *launch);
rf_status __wrap_rf_queue_launch(struct rf_queue *queue, const struct rf_launch *launch);
rf_status __wrap_rf_queue_launch(struct rf_queue *queue, const struct rf_launch *launch) {
    RF_PARAMS(struct rf_kernel_info, info);
    RF_ASSERT_OK(rf_kernel_get_info(launch->kernel, &info));
    add(modules, &module_count, MODULES_MAX, info.module);
    add(kernels, &kernel_count, 4 * MODULES_MAX, info.name);
    RF_ASSERT_OK(rf_device_ledger(rf_queue_device(queue), see_label, NULL));
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

/* Of all modules that a device of the architecture gets. sm_90 has some that no other has. */
struct device {
    const char *label, *rfsim;
};
static const struct device devices[] = {{"gfx1100", "arch=gfx1100"}, {"sm_90", "arch=sm_90"}};
RF_TEST_LABELLED_CASES(selftest_cases, the_quick_form_uses_every_kernel_module, struct device, devices,
                       .timeout_ms = 300000, .tags = "heavy") {
    struct gpu gpu = {0};
    gpu_need_simulated(c->rfsim);
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
        if (!rf_builtin_kernel_fits(kernel, c->label)) continue;
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

/* ---- items ---- */

/* Another process takes this much of the device before the figures are asked for the second time. */
static uint64_t others_take, held[2];
static int asked_figures;
rf_status __real_rf_device_memory_info(struct rf_device *device, struct rf_memory_info *info);
rf_status __wrap_rf_device_memory_info(struct rf_device *device, struct rf_memory_info *info);
rf_status __wrap_rf_device_memory_info(struct rf_device *device, struct rf_memory_info *info) {
    int number = asked_figures++;
    if (number == 1 && others_take) gpu_sim_set_desktop(others_take);
    rf_status status = __real_rf_device_memory_info(device, info);
    if (number < 2) held[number] = info->held_bytes;
    return status;
}

static struct selftest open_selftest(struct gpu *gpu, const char *rfsim) {
    gpu_need_simulated(rfsim);
    gpu_open(gpu, NULL);
    struct selftest test = {.runtime = gpu->runtime, .device = gpu->device, .quick = true};
    test.info.struct_size = sizeof test.info;
    RF_ASSERT_OK(rf_device_get_info(gpu->device, &test.info));
    RF_ASSERT((test.out = fopen("/dev/null", "w")) != NULL);
    return test;
}

/* Memory below the floor is no failure where it was others who took it, and more than the item's own bytes explain.
 */
RF_TEST(selftest_items, squeeze_sees_that_others_took_memory) {
    struct gpu gpu = {0};
    struct selftest test = open_selftest(&gpu, "");
    asked_figures = 0;
    RF_ASSERT_INT(selftest_squeeze(&test), SELFTEST_OK);
    RF_EXPECT(!strstr(test.text, "others"));
    RF_ASSERT(held[0] > 0 && held[1] > held[0]);
    /* A little more than what is put down to the item's own bytes. */
    others_take = 64 * MIB + (held[1] - held[0]) / 64 + held[0];
    asked_figures = 0;
    RF_EXPECT_INT(selftest_squeeze(&test), SELFTEST_OK);
    RF_NOTE("%s", test.text);
    RF_EXPECT_CONTAINS(test.text, " (others took memory meanwhile), then RF_E_BUDGET");
    fclose(test.out);
    gpu_close(&gpu);
}

RF_TEST(selftest_items, buffers_are_labelled) {
    struct gpu gpu = {0};
    struct selftest test = open_selftest(&gpu, "");
    RF_ASSERT_INT(selftest_recordings(&test), SELFTEST_OK);
    RF_ASSERT_UINT(label_count, 3);
    RF_EXPECT_TEXT(labels[0], "selftest in");
    RF_EXPECT_TEXT(labels[1], "selftest out");
    RF_EXPECT_TEXT(labels[2], "selftest copy");
    fclose(test.out);
    gpu_close(&gpu);
}

/* Logits as the test wants them: the first token leads. */
static bool same_logits;
rf_status __real_rf_session_eval(struct rf_session *session, const int32_t *tokens, size_t count, bool all,
                                 float *logits);
rf_status __wrap_rf_session_eval(struct rf_session *session, const int32_t *tokens, size_t count, bool all,
                                 float *logits);
rf_status __wrap_rf_session_eval(struct rf_session *session, const int32_t *tokens, size_t count, bool all,
                                 float *logits) {
    rf_status status = __real_rf_session_eval(session, tokens, count, all, logits);
    for (int i = 0; same_logits && i < 2048; i++) logits[i] = i ? 1 : 1.01f;
    return status;
}
/* The bundled model is looked for beside the command. */
ssize_t __real_readlink(const char *path, char *text, size_t size);
ssize_t __wrap_readlink(const char *path, char *text, size_t size);
ssize_t __wrap_readlink(const char *path, char *text, size_t size) {
    if (!same_logits || strcmp(path, "/proc/self/exe")) return __real_readlink(path, text, size);
    return (ssize_t)snprintf(text, size, "%s", ROCMFORGE);
}

/* Equal logits have no error at all, and however small the lead of a token is, it is compared. */
RF_TEST(selftest_items, equal_logits_have_no_error) {
    struct selftest test = {.quick = true};
    RF_ASSERT((test.out = fopen("/dev/null", "w")) != NULL);
    RF_ASSERT_OK(rf_runtime_create(NULL, &test.runtime));
    same_logits = true;
    enum selftest_mark mark = selftest_cpu_model(&test);
    same_logits = false;
    RF_NOTE("%s", test.text);
    RF_EXPECT_INT(mark, SELFTEST_OK);
    int steps = -1;
    double error = -1;
    RF_ASSERT_INT(
        sscanf(test.text, "squared error of the logits %lf (at most 5e-04), %*d of %d tokens", &error, &steps), 2);
    RF_EXPECT_DOUBLE(error, 0, 0);
    RF_EXPECT(steps > 0);
    rf_runtime_destroy(&test.runtime);
    fclose(test.out);
}

/* ---- progress ---- */

/* In a file a line is written every five seconds, and the last one. */
RF_TEST(cli_progress, is_written_now_and_then) {
    for (int i = 0; i < 20; i++) { /* until it takes less than five seconds */
        FILE *file = tmpfile();
        RF_ASSERT_NOT_NULL(file);
        int kept = dup(STDERR_FILENO);
        RF_ASSERT(dup2(fileno(file), STDERR_FILENO) >= 0);
        int64_t start = gpu_now_ns();
        cli_progress(NULL, "compiling", 10, 10); /* the last one, so five seconds begin */
        for (uint64_t done = 1; done <= 10; done++) cli_progress(NULL, "compiling", done, 10);
        bool soon = gpu_now_ns() - start < INT64_C(4000000000);
        dup2(kept, STDERR_FILENO);
        close(kept);
        char text[1024] = "";
        rewind(file);
        size_t length = fread(text, 1, sizeof text - 1, file);
        text[length] = 0;
        fclose(file);
        if (!soon) continue;
        RF_EXPECT_TEXT(text, "compiling: 10 of 10\ncompiling: 10 of 10\n");
        return;
    }
    RF_SKIP("this machine takes more than four seconds for ten lines");
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
