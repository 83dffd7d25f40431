/* The worker of `rocmforge selftest`: opens the device, runs one item, closes the device and writes the result. */
#include "selftest.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* What finds a wrong write or a stale handle. With "launch" each launch is waited for, so a fault names its kernel;
 * items about queues and recordings need work that overlaps, and go without. "poison" writes to all memory that is
 * allocated, which is too much for an item that takes as much as it can get. */
#define EVERY_CHECK "RF_CHECK=guard,poison,handle,launch"
#define CHECKS_OF_MEMORY "RF_CHECK=guard,poison,handle"
#define CHECKS_OF_HANDLES "RF_CHECK=handle"

/* clang-format off */
const struct selftest_item selftest_items[] = {
    {.name = "open",         .on_gpu = true, .checks = CHECKS_OF_MEMORY, .run = selftest_open},
    {.name = "kernels",      .on_gpu = true, .checks = CHECKS_OF_MEMORY, .run = selftest_kernels},
    {.name = "elementwise",  .on_gpu = true, .checks = EVERY_CHECK, .ops = "fill copy add scale multiply activation"},
    {.name = "rows",         .on_gpu = true, .checks = EVERY_CHECK,
     .ops = "softmax softmax_mask rms_norm layer_norm add_norm"},
    {.name = "moving",       .on_gpu = true, .checks = EVERY_CHECK, .ops = "transpose concat embedding"},
    {.name = "quantization", .on_gpu = true, .checks = EVERY_CHECK, .ops = "quantize_q8 dequantize"},
    {.name = "products",     .on_gpu = true, .checks = EVERY_CHECK,
     .ops = "matmul matmul_gate matmul_q8 norm_qkv norm_qkv_append norm_gate cast_matmul"},
    {.name = "kv-cache",     .on_gpu = true, .checks = EVERY_CHECK, .ops = "rope rope_append kv_append kv_replicate"},
    {.name = "attention",    .on_gpu = true, .checks = EVERY_CHECK,
     .ops = "qkt_matmul causal_mask weighted_matmul flash_attention paged_attention"},
    {.name = "sampling",     .on_gpu = true, .checks = EVERY_CHECK, .ops = "argmax sample advance"},
    {.name = "transfers",    .on_gpu = true, .checks = CHECKS_OF_MEMORY, .run = selftest_transfers},
    {.name = "recordings",   .on_gpu = true, .checks = CHECKS_OF_MEMORY, .run = selftest_recordings},
    {.name = "deadline",     .on_gpu = true, .checks = CHECKS_OF_MEMORY, .run = selftest_deadline},
    {.name = "squeeze",      .on_gpu = true, .checks = CHECKS_OF_HANDLES, .run = selftest_squeeze},
    {.name = "leases",       .on_gpu = true, .checks = CHECKS_OF_HANDLES, .run = selftest_leases},
    {.name = "lent",         .on_gpu = true, .checks = CHECKS_OF_HANDLES, .run = selftest_lent, .hidden = true},
    {.name = "model",        .on_gpu = true, .checks = CHECKS_OF_MEMORY, .run = selftest_model},
    {.name = "cpu-ops",      .checks = CHECKS_OF_MEMORY, .ops = "*"},
    {.name = "cpu-model",    .checks = CHECKS_OF_MEMORY, .run = selftest_cpu_model},
};
/* clang-format on */
const size_t selftest_item_count = sizeof selftest_items / sizeof selftest_items[0];

const struct selftest_item *selftest_find(const char *name) {
    for (size_t i = 0; i < selftest_item_count; i++)
        if (!strcmp(selftest_items[i].name, name)) return &selftest_items[i];
    return NULL;
}

const char *selftest_mark_name(enum selftest_mark mark) {
    return mark == SELFTEST_OK ? "ok" : mark == SELFTEST_FAILED ? "FAILED" : "skipped";
}

int64_t selftest_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- what an item says ---- */

static void write_line(struct selftest *test, const char *word, const char *text) {
    fprintf(test->out, "%s ", word);
    for (; *text; text++) fputc(*text == '\n' || *text == '\r' ? ' ' : *text, test->out);
    fputc('\n', test->out);
    fflush(test->out);
}

enum selftest_mark selftest_say(struct selftest *test, enum selftest_mark mark, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(test->text, sizeof test->text, format, arguments);
    va_end(arguments);
    return mark;
}

enum selftest_mark selftest_fail(struct selftest *test, rf_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(test->text, sizeof test->text, format, arguments);
    va_end(arguments);
    if (length >= 0 && length < (int)sizeof test->text)
        snprintf(test->text + length, sizeof test->text - (size_t)length, ": %s (%s)", rf_error_text(),
                 rf_status_name(status));
    return SELFTEST_FAILED;
}

void selftest_at(struct selftest *test, const char *format, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    write_line(test, "at", text);
}

/* ---- one item ---- */

static enum selftest_mark run_on_gpu(struct selftest *test, const struct selftest_item *item, int index) {
    RF_PARAMS(struct rf_device_params, open);
    RF_PARAMS(struct rf_memory_info, memory);
    open.index = index;
    open.budget = test->budget;
    selftest_at(test, "opening the device");
    int64_t started = selftest_now_ns();
    rf_status status = rf_device_open_checked(test->runtime, &open, &test->device);
    test->open_ns = selftest_now_ns() - started;
    if (status) return selftest_fail(test, status, "opening the device");
    test->info.struct_size = sizeof test->info;
    status = rf_device_get_info(test->device, &test->info);
    if (status) return selftest_fail(test, status, "asking for the device's properties");
    enum selftest_mark mark = item->ops ? selftest_ops(test, item->ops) : item->run(test);
    if (mark == SELFTEST_FAILED || !test->device) return mark;
    /* A guard band that was overwritten, and whatever the item forgot. */
    selftest_at(test, "looking at guard bands and ledger");
    status = rf_device_check_guards(test->device, RF_TIMEOUT_DEFAULT);
    if (!status) status = rf_device_memory_info(test->device, &memory);
    if (status) return selftest_fail(test, status, "at the end of the item");
    if (memory.live_count || memory.used_bytes || memory.abandoned_bytes)
        return selftest_say(
            test, SELFTEST_FAILED, "the ledger is not empty at the end: %llu allocations, %s in use, %s abandoned",
            (unsigned long long)memory.live_count, cli_bytes(memory.used_bytes), cli_bytes(memory.abandoned_bytes));
    return mark;
}

int selftest_work(const struct selftest_item *item, int index, bool quick, const char *budget) {
    struct selftest test = {.quick = quick, .budget = budget};
    int channel = cli_worker_channel();
    /* The channel stays open: it closes when the process has ended, and so tells the command that it has. */
    if (channel < 0 || !(test.out = fdopen(channel, "w")))
        return cli_fail(CLI_USAGE, "selftest: --item is for internal use");
    const char *const options[] = {item->checks, NULL};
    RF_PARAMS(struct rf_runtime_params, params);
    params.options = options;
    rf_status status = rf_runtime_create(&params, &test.runtime);
    enum selftest_mark mark = status         ? selftest_fail(&test, status, "creating the runtime")
                              : item->on_gpu ? run_on_gpu(&test, item, index)
                              : item->ops    ? selftest_ops(&test, item->ops)
                                             : item->run(&test);
    if (test.device) {
        selftest_at(&test, "closing the device");
        status = rf_device_close(&test.device);
        if (status && mark != SELFTEST_FAILED) mark = selftest_fail(&test, status, "closing the device");
    }
    rf_runtime_destroy(&test.runtime);
    write_line(&test, mark == SELFTEST_FAILED ? "failed" : selftest_mark_name(mark), test.text);
    return CLI_DONE;
}
