/* rocmforge demo: what the library promises, shown in a few lines on the best device present, or on the simulated one
 * if there is none.
 *
 * A worker process does the work, so that a driver that aborts takes down nothing else. The same code runs on every
 * device: open within a budget, upload, launch, download, compare with the CPU, be refused, release everything. */
#include "cli.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TOLERANCE 1e-6

struct demo {
    const char *want;
    bool in_worker;
};

static int demonstrate(const struct demo *demo);

int cmd_demo(int argc, char **argv) {
    struct demo demo = {.want = "auto"};
    const struct cli_option options[] = {
        {'d', "device", CLI_TEXT, &demo.want, "D",
         "auto (default), an index, a UUID, part of a name, or sim for the simulated driver"},
        {0, "in-worker", CLI_FLAG, &demo.in_worker, NULL, NULL}, /* for the worker */
    };
    const struct cli_command command = {
        .name = "demo",
        .usage = "[--device D]",
        .summary = "Opens a device within its memory budget, runs a kernel, checks it against the CPU, and shows an\n"
                   "allocation being refused. Without a GPU the simulated driver stands in for it.\n",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    int count, code = cli_parse(&command, argc, argv, &count);
    if (code != CLI_GO_ON) return code;
    if (demo.in_worker) return demonstrate(&demo);
    const char *arguments[] = {"demo", "--in-worker", "--device", demo.want, NULL};
    char why[CLI_WHY_BYTES];
    rf_status status = cli_worker_run(&(struct cli_job){.arguments = arguments}, &code, why);
    return status == RF_OK ? code : cli_fail(CLI_FAILED, "demo: %s", why);
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int run_on_device(struct rf_runtime *runtime, struct rf_device *device, double open_s);

/* Opens a runtime on the wanted driver and chooses a device. */
static rf_status choose(const struct demo *demo, struct rf_runtime **runtime, int *index) {
    static const char *const simulated[] = {"RF_DRIVER=sim", NULL};
    RF_PARAMS(struct rf_runtime_params, params);
    RF_PARAMS(struct rf_device_choice, choice);
    params.log = cli_log;
    params.progress = cli_progress;
    params.options = strcmp(demo->want, "sim") == 0 ? simulated : NULL;
    choice.want = params.options ? NULL : demo->want;
    choice.avoid_display = true;
    rf_status status = rf_runtime_create(&params, runtime);
    if (status != RF_OK) return status;
    if (strcmp(demo->want, "auto") == 0 && !rf_gpu_available(*runtime)) {
        fprintf(cli_out(), "No usable GPU: %s\nThe simulated driver stands in for it.\n\n", rf_gpu_reason(*runtime));
        rf_runtime_destroy(runtime);
        params.options = simulated;
        choice.want = NULL;
        status = rf_runtime_create(&params, runtime);
        if (status != RF_OK) return status;
    }
    return rf_device_choose(*runtime, &choice, index);
}

static int demonstrate(const struct demo *demo) {
    struct rf_runtime *runtime = NULL;
    struct rf_device *device = NULL;
    RF_PARAMS(struct rf_device_params, params);
    int code;
    cli_at(CLI_LOADS, "choosing a device");
    rf_status status = choose(demo, &runtime, &params.index);
    double start = now_s();
    cli_at(CLI_LOADS, "opening the device");
    if (status == RF_OK) status = rf_device_open_checked(runtime, &params, &device);
    if (status == RF_OK) {
        code = run_on_device(runtime, device, now_s() - start);
        cli_at(CLI_DEVICE_WORKS, "closing the device");
        status = rf_device_close(&device);
        /* A device that failed before fails again here: one line is enough. */
        if (status != RF_OK && code == CLI_DONE) code = cli_fail_status(status, "demo: closing the device");
    } else {
        code = cli_fail_status(status, "demo: opening a device");
    }
    rf_runtime_destroy(&runtime);
    return code;
}

/* ---- on the open device ---- */

struct matrix {
    uint64_t rows, columns;
    float *in, *out;
};

static void fill_random(float *values, uint64_t count) {
    uint64_t state = 1;
    for (uint64_t i = 0; i < count; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        values[i] = (float)(state >> 40) / (float)(1 << 24) * 16 - 8;
    }
}

static double largest_difference(const struct matrix *m) {
    double largest = 0;
    for (uint64_t r = 0; r < m->rows; r++) {
        const float *in = m->in + r * m->columns, *out = m->out + r * m->columns;
        double max = -INFINITY, sum = 0;
        for (uint64_t c = 0; c < m->columns; c++) max = fmax(max, (double)in[c]);
        for (uint64_t c = 0; c < m->columns; c++) sum += exp((double)in[c] - max);
        for (uint64_t c = 0; c < m->columns; c++) {
            double difference = fabs((double)out[c] - exp((double)in[c] - max) / sum);
            if (!(difference <= largest)) largest = isnan(difference) ? INFINITY : difference;
        }
    }
    return largest;
}

static rf_status launch_softmax(struct rf_queue *queue, struct rf_buffer *out, struct rf_buffer *in,
                                const struct matrix *m) {
    const struct rf_kernel *kernel;
    rf_status status = rf_kernel_find(rf_queue_device(queue), "softmax_f32", &kernel);
    if (status != RF_OK) return status;
    struct rf_arg args[] = {rf_arg_buffer(out), rf_arg_buffer(in), rf_arg_i64((int64_t)m->rows),
                            rf_arg_i64((int64_t)m->columns)};
    RF_PARAMS(struct rf_launch, launch);
    launch.kernel = kernel;
    launch.grid[0] = (uint32_t)m->rows;
    launch.block[0] = 256;
    launch.args = args;
    launch.arg_count = sizeof args / sizeof args[0];
    return rf_queue_launch(queue, &launch);
}

static rf_status compute_with(struct rf_queue *queue, struct rf_buffer *out, struct rf_buffer *in, struct matrix *m,
                              uint64_t bytes) {
    double start = now_s();
    cli_at(CLI_LOADS, "softmax of %llu rows of %llu", (unsigned long long)m->rows, (unsigned long long)m->columns);
    rf_status status = rf_copy_to_device_safe(queue, in, 0, m->in, bytes);
    if (status == RF_OK) status = rf_queue_wait(queue, RF_TIMEOUT_DEFAULT);
    double uploaded = now_s();
    if (status == RF_OK) status = launch_softmax(queue, out, in, m);
    if (status == RF_OK) status = rf_queue_wait(queue, RF_TIMEOUT_DEFAULT);
    double computed = now_s();
    if (status == RF_OK) status = rf_copy_from_device_safe(queue, m->out, out, 0, bytes);
    double downloaded = now_s();
    if (status == RF_OK)
        fprintf(cli_out(),
                "%-9s %llu rows of %llu: up %.2f ms, kernel softmax_f32 %.2f ms, down %.2f ms (%s each way)\n",
                "Softmax", (unsigned long long)m->rows, (unsigned long long)m->columns, (uploaded - start) * 1e3,
                (computed - uploaded) * 1e3, (downloaded - computed) * 1e3, cli_bytes(bytes));
    return status;
}

static int compute(struct rf_device *device, struct rf_queue *queue, struct matrix *m) {
    uint64_t bytes = m->rows * m->columns * sizeof(float);
    struct rf_buffer *in = NULL, *out = NULL;
    RF_PARAMS(struct rf_buffer_params, params);
    params.bytes = bytes;
    params.queue = queue;
    params.label = "demo input";
    cli_at(CLI_DEVICE_WORKS, "allocating %s twice", cli_bytes(bytes));
    rf_status status = rf_buffer_create_safe(device, &params, &in);
    params.label = "demo output";
    if (status == RF_OK) status = rf_buffer_create_safe(device, &params, &out);
    if (status == RF_OK) status = compute_with(queue, out, in, m, bytes);
    int code = status == RF_OK ? CLI_DONE : cli_fail_status(status, "demo: softmax");
    rf_status out_status = rf_buffer_destroy(&out), in_status = rf_buffer_destroy(&in);
    return out_status == RF_OK && in_status == RF_OK ? code : CLI_FAILED;
}

static int show_refusal(struct rf_device *device, const struct rf_memory_info *memory) {
    struct rf_buffer *buffer = NULL;
    RF_PARAMS(struct rf_buffer_params, params);
    params.bytes = memory->budget_bytes + memory->budget_bytes / 4 + 1;
    params.label = "too much";
    cli_at(CLI_DEVICE_WORKS, "asking for more than the budget");
    rf_status status = rf_buffer_create_safe(device, &params, &buffer);
    if (status == RF_E_BUDGET) {
        fprintf(cli_out(), "%-9s %s\n", "Refused", rf_error_text());
        return CLI_DONE;
    }
    if (status == RF_OK) rf_buffer_destroy(&buffer);
    return cli_fail(CLI_FAILED, "demo: an allocation beyond the budget gave %s, not RF_E_BUDGET",
                    rf_status_name(status));
}

static int run_on_device(struct rf_runtime *runtime, struct rf_device *device, double open_s) {
    RF_PARAMS(struct rf_device_info, info);
    RF_PARAMS(struct rf_memory_info, memory);
    struct rf_queue *queue = NULL;
    struct matrix m = {0};
    rf_status status = rf_device_get_info(device, &info);
    if (status == RF_OK) status = rf_device_memory_info(device, &memory);
    if (status != RF_OK) return cli_fail_status(status, "demo");
    fprintf(cli_out(), "%-9s %s, %s, %s, opened in %.0f ms\n", "Device", info.name, info.arch, info.driver,
            open_s * 1e3);
    fprintf(cli_out(), "%-9s %s: %s of the %s that were free; %s always stay free for others\n", "Budget",
            rf_runtime_option(runtime, "RF_BUDGET"), cli_bytes(memory.budget_bytes), cli_bytes(memory.free0_bytes),
            cli_bytes(memory.floor_bytes));

    /* The simulated driver runs every GPU thread on the host, so its matrix is smaller. */
    m.rows = info.simulated ? 64 : 4096;
    m.columns = info.simulated ? 1000 : 8192;
    uint64_t count = m.rows * m.columns;
    m.in = calloc(count, sizeof *m.in);
    m.out = calloc(count, sizeof *m.out);
    int code = CLI_FAILED;
    if (!m.in || !m.out) {
        cli_fail(CLI_FAILED, "demo: no host memory for %s", cli_bytes(2 * count * sizeof(float)));
        goto done;
    }
    fill_random(m.in, count);
    status = rf_queue_create(device, NULL, &queue);
    code = status == RF_OK ? compute(device, queue, &m) : cli_fail_status(status, "demo: creating a queue");
    if (code != CLI_DONE) goto done;
    cli_at(CLI_HOST_WORKS, "comparing with the CPU's result");
    double difference = largest_difference(&m);
    bool close_enough = difference <= TOLERANCE;
    fprintf(cli_out(), "%-9s largest difference from the CPU's result %.1e, %s %.0e: %s\n", "Checked", difference,
            close_enough ? "within" : "beyond", TOLERANCE, close_enough ? "right" : "WRONG");
    code = show_refusal(device, &memory);
    if (!close_enough) code = CLI_FAILED;
done:
    free(m.in);
    free(m.out);
    status = queue ? rf_queue_destroy(&queue) : RF_OK;
    if (status != RF_OK && code != CLI_DONE) return code; /* as the closing of the device */
    if (status == RF_OK) status = rf_device_memory_info(device, &memory);
    if (status != RF_OK) return cli_fail_status(status, "demo");
    fprintf(cli_out(), "%-9s %llu live allocations, %s in use; at most %s was held, the driver's own %s included\n",
            "Ledger", (unsigned long long)memory.live_count, cli_bytes(memory.used_bytes),
            cli_bytes(memory.peak_bytes), cli_bytes(memory.driver_bytes));
    if (memory.live_count || memory.used_bytes) return cli_fail(CLI_FAILED, "demo: something was not released");
    return code;
}
