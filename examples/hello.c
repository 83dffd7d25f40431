/* The smallest useful program: softmax of a few rows on a GPU that others also use.
 *
 *     RF_DRIVER=sim build/examples/hello        without a GPU, on the simulated driver
 *     build/examples/hello                      on the best GPU there is
 *
 * Read it from top to bottom: every call that a safe GPU program needs stands here once, in the
 * order in which it is made, with what it promises. Exit status: 0 done, 1 failed, 77 no GPU. */
#include <math.h>
#include <stdio.h>

#include <rocmforge/rocmforge.h>

enum { ROWS = 3, COLUMNS = 5, COUNT = ROWS * COLUMNS };

/* Warnings of the library come here, one line each; without a callback it is silent. */
static void print_line(void *user, enum rf_log_level level, const char *line) {
    (void)user, (void)level;
    fprintf(stderr, "hello: %s\n", line);
}

/* Every failure has a name and one line that says what was asked, what stood against it and what
 * to change. Returns whether the call went well, so that calls can be chained with &&. */
static bool went_well(rf_status status, const char *what) {
    if (status != RF_OK) fprintf(stderr, "hello: %s: %s: %s\n", what, rf_status_name(status), rf_error_text());
    return status == RF_OK;
}

/* The work itself, between two buffers that exist already. */
static bool compute(struct rf_device *device, struct rf_queue *queue, struct rf_buffer *in, struct rf_buffer *out,
                    const float *input, float *output) {
    /* Kernels were loaded when the device was opened: this is a lookup and cannot stall anybody. */
    const struct rf_kernel *softmax = NULL;
    if (!went_well(rf_kernel_find(device, "softmax_f32", &softmax), "finding the kernel")) return false;

    /* softmax_f32(out, in, rows, columns). Count and sizes of the arguments are checked. */
    const struct rf_arg args[] = {rf_arg_buffer(out), rf_arg_buffer(in), rf_arg_i64(ROWS), rf_arg_i64(COLUMNS)};
    RF_PARAMS(struct rf_launch, launch);
    launch.kernel = softmax;
    launch.grid[0] = 1;   /* blocks: any number is right for this kernel */
    launch.block[0] = 64; /* threads: whole waves, and 64 is whole on every GPU */
    launch.args = args;
    launch.arg_count = sizeof args / sizeof args[0];

    /* Upload, launch, wait, download: they run in this order on one queue, so each sees what the one before it wrote.
     * The wait is for this queue alone and has a deadline of two seconds; if the kernel never ended, RF_E_TIMEOUT
     * would name it. The download waits with the queue's own deadline. */
    return went_well(rf_copy_to_device_safe(queue, in, 0, input, COUNT * sizeof *input), "uploading") &&
           went_well(rf_queue_launch(queue, &launch), "launching") &&
           went_well(rf_queue_wait(queue, RF_MS(2000)), "waiting") &&
           went_well(rf_copy_from_device_safe(queue, output, out, 0, COUNT * sizeof *output), "downloading");
}

/* Allocates within the budget, computes, and gives everything back, also after a failure. */
static bool with_buffers(struct rf_device *device, const float *input, float *output) {
    struct rf_queue *queue = NULL;
    struct rf_buffer *in = NULL, *out = NULL;

    /* How much would be granted now? Not needed before an allocation, which checks it again. */
    uint64_t most = 0;
    char text[32];
    if (went_well(rf_safe_alloc_size(device, &most), "asking for the safe size"))
        printf("up to %s would be granted\n", rf_format_bytes(most, text, sizeof text));

    /* A queue belongs to one thread at a time. It has the lowest priority: the desktop comes first. */
    bool well = went_well(rf_queue_create(device, NULL, &queue), "making a queue");

    /* There is no other way to allocate than within the budget: RF_E_BUDGET would say what was
     * asked, the limit, what is free, and which knob changes it. The label shows in leak reports. */
    RF_PARAMS(struct rf_buffer_params, params);
    params.bytes = COUNT * sizeof(float);
    params.label = "hello";
    well = well && went_well(rf_buffer_create_safe(device, &params, &in), "allocating the input");
    params.zeroed = true;
    well = well && went_well(rf_buffer_create_safe(device, &params, &out), "allocating the output");

    well = well && compute(device, queue, in, out, input, output);

    /* Each destroy accepts a pointer to NULL too. Memory goes back once the work that uses it is done; nothing here
     * waits for other queues. */
    well = went_well(rf_buffer_destroy(&out), "destroying the output") && well;
    well = went_well(rf_buffer_destroy(&in), "destroying the input") && well;
    return went_well(rf_queue_destroy(&queue), "destroying the queue") && well;
}

int main(void) {
    /* The runtime owns log and options. It touches no driver. */
    struct rf_runtime *runtime = NULL;
    RF_PARAMS(struct rf_runtime_params, runtime_params);
    runtime_params.log = print_line;
    if (!went_well(rf_runtime_create(&runtime_params, &runtime), "starting")) return 1;

    /* A helper process asks the driver: if the driver crashes or hangs, this process goes on. */
    if (!rf_gpu_available(runtime)) {
        printf("no GPU: %s\n", rf_gpu_reason(runtime));
        rf_runtime_destroy(&runtime);
        return 77;
    }

    /* The best device, preferably one that drives no display. Without a budget of its own the
     * program heeds RF_BUDGET, by default 70% of what is free: the user decides. */
    struct rf_device *device = NULL;
    RF_PARAMS(struct rf_device_choice, choice);
    choice.avoid_display = true;
    RF_PARAMS(struct rf_device_params, device_params);
    device_params.budget = NULL;
    bool well = went_well(rf_device_choose(runtime, &choice, &device_params.index), "choosing a device") &&
                went_well(rf_device_open_checked(runtime, &device_params, &device), "opening the device");

    float input[COUNT], output[COUNT];
    for (int i = 0; i < COUNT; i++) input[i] = (float)(i % COLUMNS);
    if (well) {
        well = with_buffers(device, input, output);
        /* Waits for the queues with a deadline, names leaks, and ends the lease. */
        well = went_well(rf_device_close(&device), "closing the device") && well;
    }
    rf_runtime_destroy(&runtime);
    if (!well) return 1;

    /* Each row must sum to 1, and each column must be e times the one before it. */
    for (int row = 0; row < ROWS; row++) {
        double sum = 0;
        for (int column = 0; column < COLUMNS; column++) {
            printf("%s%.6f", column ? "  " : "", (double)output[row * COLUMNS + column]);
            sum += (double)output[row * COLUMNS + column];
            if (column == 0) continue;
            double ratio = (double)output[row * COLUMNS + column] / (double)output[row * COLUMNS + column - 1];
            well = well && fabs(ratio - exp(1)) < 1e-4;
        }
        printf("  sum %.6f\n", sum);
        well = well && fabs(sum - 1) < 1e-5;
    }
    if (!well) fprintf(stderr, "hello: these rows are no softmax\n");
    return well ? 0 : 1;
}
