/* Row softmax and RMSNorm compared with the bandwidth of a copy, over 1 GiB read and 1 GiB written by each launch, so
 * that no cache holds any of it from one launch to the next.
 *
 * Rates count bytes read and bytes written. The baseline is the faster of the driver's own copy and our copy kernel,
 * over the same memory. Every kernel's last row is checked afterwards: the rate of a kernel that computes nothing is
 * worth nothing. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

#include "kernels/norm_args.h"

#define FULL_BYTES ((uint64_t)1 << 30)
#define QUICK_BYTES ((uint64_t)256 << 10)
#define LEAST_BYTES ((uint64_t)256 << 10) /* two of the longest rows */
enum { COPY_BYTES_PER_THREAD = 64, LONGEST_ROW = 32768 };

struct ground { /* the memory that the kernels run on */
    struct rf_buffer *in, *out, *weight;
    uint64_t bytes; /* of in, and of out */
    struct rf_event *start, *end;
    double copy_rate; /* the baseline, GB/s */
    int launches, rounds;
};

struct norm { /* one kernel and one row length */
    const char *kernel;
    uint32_t columns, element_bytes;
    bool softmax; /* otherwise RMSNorm, with a weight */
};

static double rate(const struct ground *ground, int64_t elapsed_ns) {
    return 2.0 * (double)ground->bytes * ground->launches / (double)RF_MAX(elapsed_ns, 1);
}

/* ---- our side ---- */

static rf_status our_rate(struct bench *bench, const struct ground *ground, const struct rf_launch *launch,
                          double *median) {
    struct samples samples = {.count = 0};
    rf_status status = RF_OK;
    for (int round = -1; round < ground->rounds && !status; round++) {
        int64_t elapsed_ns = 0;
        status = rf_event_record(ground->start, bench->queue);
        for (int i = 0; i < ground->launches && !status; i++) status = rf_queue_launch(bench->queue, launch);
        if (!status) status = rf_event_record(ground->end, bench->queue);
        if (!status) status = rf_queue_wait(bench->queue, RF_TIMEOUT_DEFAULT);
        if (!status) status = rf_event_elapsed(ground->start, ground->end, &elapsed_ns);
        if (round >= 0) samples_add(&samples, rate(ground, elapsed_ns));
    }
    *median = samples_median(&samples);
    return status;
}

static float f32_of_bf16(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* A softmax row sums to one; the squares of a normalized row have a mean of one. */
static rf_status check_last_row(struct bench *bench, const struct ground *ground, const struct norm *norm) {
    uint64_t row_bytes = (uint64_t)norm->columns * norm->element_bytes;
    void *row = malloc((size_t)row_bytes);
    if (!row) return rf_fail(RF_E_NO_MEMORY, "no host memory for a row");
    rf_status status = rf_copy_from_device_safe(bench->queue, row, ground->out, ground->bytes - row_bytes, row_bytes);
    double sum = 0;
    for (uint32_t i = 0; i < norm->columns && !status; i++) {
        double value = norm->element_bytes == 2 ? f32_of_bf16(((uint16_t *)row)[i]) : ((float *)row)[i];
        sum += norm->softmax ? value : value * value / norm->columns;
    }
    free(row);
    if (!status && !(fabs(sum - 1) < 1e-2))
        return rf_fail(RF_E_CORRUPT, "%s with rows of %u gives wrong results: %g where 1 is due", norm->kernel,
                       norm->columns, sum);
    return status;
}

static rf_status measure(struct bench *bench, const struct ground *ground, const struct norm *norm) {
    RF_PARAMS(struct rf_launch, launch);
    rf_status status = rf_kernel_find(bench->device, norm->kernel, &launch.kernel);
    if (status) return status;
    /* As kernels/norm_args.h says: a wave takes a short row, and the fewest waves that hold it take a longer one. */
    uint64_t rows = ground->bytes / norm->element_bytes / norm->columns;
    uint32_t wave = (uint32_t)bench->info.wave_size, held = RF_ROW_WAVE_BYTES(wave) / norm->element_bytes,
             threads = RF_ROW_WAVE_THREADS;
    uint64_t teams_per_block = threads / wave;
    if (norm->columns > held) {
        threads = RF_MIN((norm->columns + held - 1) / held * wave, launch.kernel->max_threads);
        teams_per_block = 1;
    }
    launch.block[0] = threads;
    launch.grid[0] = (uint32_t)((rows + teams_per_block - 1) / teams_per_block);
    struct rf_norm_args norm_args = {.rows = rows, .columns = norm->columns, .eps = 1e-6f};
    struct rf_arg args[4];
    size_t count = 0;
    args[count++] = rf_arg_buffer(ground->out);
    args[count++] = rf_arg_buffer(ground->in);
    if (norm->softmax) {
        args[count++] = rf_arg_i64((int64_t)rows);
        args[count++] = rf_arg_i64(norm->columns);
    } else {
        args[count++] = rf_arg_buffer(ground->weight);
        args[count++] = rf_arg_struct(&norm_args, sizeof norm_args);
    }
    launch.args = args;
    launch.arg_count = count;
    struct row row = {.group = "rows against copy",
                      .raw = ground->copy_rate,
                      .unit = "GB/s",
                      .measured_unit = "%",
                      .sense = AT_LEAST,
                      .target = 85};
    status = our_rate(bench, ground, &launch, &row.ours);
    if (!status) status = check_last_row(bench, ground, norm);
    if (status) return status;
    row.measured = 100 * row.ours / row.raw;
    snprintf(row.name, sizeof row.name, "%s, rows of %u", norm->kernel, norm->columns);
    snprintf(row.note, sizeof row.note, "%u threads a block, %u registers", threads, launch.kernel->loaded.registers);
    return report_add(&bench->report, &row);
}

/* ---- the baseline: copies ---- */

static rf_status driver_copy_rate(struct bench *bench, const struct ground *ground, double *median) {
    const struct rf_driver *driver = bench->driver;
    rf_dptr to = (rf_dptr)(uintptr_t)rf_buffer_address(ground->out);
    rf_dptr from = (rf_dptr)(uintptr_t)rf_buffer_address(ground->in);
    void *start = NULL, *end = NULL;
    struct samples samples = {.count = 0};
    rf_status status = raw_result(bench, driver->event_create(&start, 0), "event_create");
    if (!status) status = raw_result(bench, driver->event_create(&end, 0), "event_create");
    for (int round = -1; round < ground->rounds && !status; round++) {
        float milliseconds = 0;
        int code = driver->event_record(start, bench->stream);
        for (int i = 0; i < ground->launches && code == RF_DRV_OK; i++)
            code = driver->copy_on_device(to, from, (size_t)ground->bytes, bench->stream);
        if (code == RF_DRV_OK) code = driver->event_record(end, bench->stream);
        status = raw_result(bench, code, "copy_on_device");
        if (!status) status = raw_poll(bench, end);
        if (!status) status = raw_result(bench, driver->event_elapsed(&milliseconds, start, end), "event_elapsed");
        if (round >= 0) samples_add(&samples, rate(ground, (int64_t)((double)milliseconds * 1e6)));
    }
    if (start) raw_result(bench, driver->event_destroy(start), "event_destroy");
    if (end) raw_result(bench, driver->event_destroy(end), "event_destroy");
    *median = samples_median(&samples);
    return status;
}

static rf_status copies(struct bench *bench, struct ground *ground) {
    RF_PARAMS(struct rf_launch, launch);
    double driver_rate, kernel_rate;
    rf_status status = rf_kernel_find(bench->device, "copy_f32_f32", &launch.kernel);
    if (!status) status = driver_copy_rate(bench, ground, &driver_rate);
    if (status) return status;
    struct rf_arg args[] = {rf_arg_buffer(ground->out), rf_arg_buffer(ground->in),
                            rf_arg_i64((int64_t)(ground->bytes / 4))};
    uint32_t block = RF_MIN(256u, launch.kernel->max_threads);
    launch.block[0] = block;
    launch.grid[0] = (uint32_t)(ground->bytes / (block * COPY_BYTES_PER_THREAD));
    launch.args = args;
    launch.arg_count = RF_COUNT(args);
    status = our_rate(bench, ground, &launch, &kernel_rate);
    if (status) return status;
    ground->copy_rate = RF_MAX(driver_rate, kernel_rate);
    char size[32];
    struct row row = {.group = "rows against copy",
                      .name = "copy: the driver's, and copy_f32_f32",
                      .raw = driver_rate,
                      .ours = kernel_rate,
                      .unit = "GB/s",
                      .measured = 100 * kernel_rate / driver_rate,
                      .measured_unit = "%"};
    snprintf(row.note, sizeof row.note, "%s read and as much written by each; the faster is the measure",
             rf_format_bytes(ground->bytes, size, sizeof size));
    return report_add(&bench->report, &row);
}

/* ---- the memory ---- */

/* Fills the buffer with numbers between -2 and 2: a pattern from the host, copied over the buffer by doubling. */
static rf_status fill_in(struct bench *bench, const struct ground *ground, uint32_t element_bytes) {
    uint64_t pattern_bytes = RF_MIN(ground->bytes, (uint64_t)4 << 20);
    size_t count = (size_t)(pattern_bytes / element_bytes);
    void *pattern = malloc((size_t)pattern_bytes);
    if (!pattern) return rf_fail(RF_E_NO_MEMORY, "no host memory for the pattern");
    uint32_t state = 12345;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        float value = (float)(state >> 8) * (4.0f / 16777216.0f) - 2.0f;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        if (element_bytes == 2)
            ((uint16_t *)pattern)[i] = (uint16_t)(bits >> 16);
        else
            ((uint32_t *)pattern)[i] = bits;
    }
    rf_status status = rf_copy_to_device_safe(bench->queue, ground->in, 0, pattern, pattern_bytes);
    for (uint64_t done = pattern_bytes; done < ground->bytes && !status; done *= 2)
        status = rf_copy_on_device(bench->queue, ground->in, done, ground->in, 0, RF_MIN(done, ground->bytes - done));
    if (!status) status = rf_queue_wait(bench->queue, RF_TIMEOUT_DEFAULT);
    free(pattern);
    return status;
}

static rf_status fill_weight(struct bench *bench, const struct ground *ground) {
    RF_PARAMS(struct rf_launch, launch);
    struct rf_arg args[] = {rf_arg_buffer(ground->weight), rf_arg_f32(1.0f), rf_arg_i64(LONGEST_ROW)};
    rf_status status = rf_kernel_find(bench->device, "fill_f32", &launch.kernel);
    if (status) return status;
    launch.grid[0] = 1;
    launch.block[0] = RF_MIN(256u, launch.kernel->max_threads);
    launch.args = args;
    launch.arg_count = RF_COUNT(args);
    return rf_queue_launch(bench->queue, &launch);
}

static rf_status prepare(struct bench *bench, struct ground *ground) {
    ground->bytes = bench->quick ? QUICK_BYTES : FULL_BYTES;
    while (ground->bytes > LEAST_BYTES && !bench_fits(bench, 3 * ground->bytes)) ground->bytes /= 2;
    ground->launches = bench->quick ? 1 : 8;
    ground->rounds = bench->quick ? 1 : 15;
    rf_status status = bench_buffer(bench, ground->bytes, &ground->in);
    if (!status) status = bench_buffer(bench, ground->bytes, &ground->out);
    if (!status) status = bench_buffer(bench, LONGEST_ROW * sizeof(float), &ground->weight);
    if (!status) status = rf_event_create(bench->device, true, &ground->start);
    if (!status) status = rf_event_create(bench->device, true, &ground->end);
    if (!status) status = fill_weight(bench, ground);
    return status;
}

rf_status bench_rows(struct bench *bench) {
    static const struct {
        const char *kernel;
        uint32_t element_bytes;
        bool softmax;
    } kernels[] = {{"softmax_f32", 4, true}, {"rms_norm_f32", 4, false}, {"rms_norm_bf16", 2, false}};
    static const uint32_t columns[] = {512, 1024, 4096, 8192, LONGEST_ROW};
    struct ground ground = {0};
    rf_status status = prepare(bench, &ground);
    if (!status) status = fill_in(bench, &ground, 4);
    if (!status) status = copies(bench, &ground);
    for (size_t i = 0; i < RF_COUNT(kernels) && !status; i++) {
        if (kernels[i].element_bytes != 4) status = fill_in(bench, &ground, kernels[i].element_bytes);
        for (size_t j = 0; j < RF_COUNT(columns) && !status; j++) {
            struct norm norm = {kernels[i].kernel, columns[j], kernels[i].element_bytes, kernels[i].softmax};
            status = measure(bench, &ground, &norm);
        }
    }
    rf_event_destroy(&ground.start);
    rf_event_destroy(&ground.end);
    rf_buffer_destroy(&ground.weight);
    rf_buffer_destroy(&ground.out);
    rf_buffer_destroy(&ground.in);
    return status;
}
