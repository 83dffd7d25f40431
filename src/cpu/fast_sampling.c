/* Sampling, cut into rows for the thread pool (see fast.h): the definition's own code (ref_sampling.h), with scratch
 * memory that is charged. */
#include "cpu/fast_impl.h"

#include "cpu/ref_sampling.h"

struct sample {
    int32_t *out;
    const struct rf_sample_rows *rows;
    const struct rf_sample_args *args;
    uint64_t *scratch; /* `columns` elements for each thread */
};

static void sample_rows(void *user, size_t begin, size_t end, unsigned thread) {
    struct sample *op = user;
    struct rf_sample_args part = *op->args;
    struct rf_sample_rows rows = rf_sample_rows_from(op->rows, begin, op->args);
    part.rows = end - begin;
    rf_ref_sample_rows(op->out + begin, &rows, &part, op->scratch + (size_t)thread * part.columns);
}

rf_status rf_cpu_sample(struct rf_cpu *cpu, int32_t *out, const struct rf_sample_rows *rows,
                        const struct rf_sample_args *args) {
    if (!args->rows) return RF_OK;
    RF_TRY(rf_cpu_reserve(cpu, "sample", (uint64_t)cpu->threads * args->columns * sizeof(uint64_t)));
    struct sample op = {out, rows, args, cpu->scratch};
    rf_cpu_run(cpu, args->rows, 1, sample_rows, &op);
    return RF_OK;
}
