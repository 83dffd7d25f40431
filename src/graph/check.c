/* Checking ops: every case of the table on a device, against the scalar reference.
 *
 * Inputs are seeded, outputs poisoned first; the result must lie within the case's tolerance,
 * what lies before a view must be untouched, and a second run must give the same bits. With the
 * device's guard bands on (RF_CHECK=guard) a write past the end is found as well. */
#include "graph/op.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cpu/reference.h"

enum { POISON = 0xFF, GUARD = 0xA7, GUARD_BYTES = 64, BENCH_ROUNDS = 15, BENCH_SETS_MAX = 64 };
#define BENCH_DISTINCT_BYTES ((uint64_t)1 << 30)

/* A case under way: one call on host memory with the reference's results, and room for a
 * backend's. */
struct trial {
    const struct rf_op_case *one;
    struct rf_op_call call;              /* host: the reference's */
    void *got[RF_OP_TENSORS_MAX];        /* outputs of the backend, GUARD_BYTES more than spanned */
    void *first_bits[RF_OP_TENSORS_MAX]; /* of its first run */
};

static rf_status run_case(const struct rf_check_params *params, const struct rf_op *op, const struct rf_op_case *one,
                          struct rf_check_result *result, char *why, size_t size);
static rf_status bench_case(const struct rf_check_params *params, const struct rf_op *op,
                            const struct rf_op_case *one, struct rf_check_result *result);

rf_status rf_check_run(const struct rf_check_params *params, struct rf_check_counts *counts) {
    if (!params || params->struct_size < sizeof *params || !counts)
        return rf_fail(RF_E_INVALID, "rf_check_run: NULL, or struct_size is not set");
    const char *pattern = params->op ? params->op : "*";
    size_t matched = 0;
    *counts = (struct rf_check_counts){0};
    rf_status status = RF_OK;
    bool go_on = true;
    for (size_t i = 0; i < rf_op_table_count && !status && go_on; i++) {
        const struct rf_op *op = rf_op_table[i];
        if (fnmatch(pattern, op->name, 0)) continue;
        matched++;
        struct rf_case_list list = {0};
        op->cases(&list);
        if (list.failed) status = rf_fail(RF_E_NO_MEMORY, "no memory for the cases of %s", op->name);
        for (size_t k = 0; k < list.count && !status && go_on; k++) {
            if (list.cases[k].bench != params->bench) continue;
            char why[512] = "";
            struct rf_check_result result = {.op = op->name, .label = list.cases[k].label, .why = why};
            result.status = params->bench ? bench_case(params, op, &list.cases[k], &result)
                                          : run_case(params, op, &list.cases[k], &result, why, sizeof why);
            if (result.status && !why[0]) snprintf(why, sizeof why, "%s", rf_error_text());
            if (result.status == RF_E_UNSUPPORTED)
                counts->skipped++;
            else if (result.status == RF_OK && result.passed)
                counts->passed++;
            else
                counts->failed++;
            if (params->visit) go_on = params->visit(params->user, &result);
            if (result.status == RF_E_DEVICE_LOST) status = rf_fail(RF_E_DEVICE_LOST, "%s", why);
        }
        free(list.cases);
    }
    if (!matched) {
        char known[512] = "";
        for (size_t i = 0; i < rf_op_table_count; i++) {
            size_t used = strlen(known);
            snprintf(known + used, sizeof known - used, " %s", rf_op_table[i]->name);
        }
        return rf_fail(RF_E_NOT_FOUND, "no op matches '%s'; there are%s", pattern, known);
    }
    return status;
}

/* ---- data ---- */

static uint64_t next_random(uint64_t *state) {
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}
static double random_unit(uint64_t *state) {
    return (double)(next_random(state) >> 11) * 0x1p-53;
}

static double draw(enum rf_case_data data, uint64_t index, const struct rf_tensor_desc *desc, uint64_t *state) {
    double value = random_unit(state) * 8 - 4;
    uint64_t columns = desc->shape[desc->rank - 1], kind = next_random(state) % 16;
    switch (data) {
    case RF_DATA_MASKED: /* a row masked whole, and some elsewhere */
        return (index / columns == 1 || kind < 4) ? -INFINITY : value;
    case RF_DATA_EXTREME: return value * (kind < 4 ? 1e-6 : kind < 8 ? 1e4 : 20);
    case RF_DATA_SPECIAL: {
        static const double special[] = {NAN, INFINITY, -INFINITY, -0.0, 0.0, 1e-40, -6e-8, 65504};
        return kind < 8 ? special[kind] : value;
    }
    default: return value;
    }
}

static void fill_tensor(const struct rf_op_tensor *tensor, enum rf_case_data data, uint64_t *state) {
    uint64_t elements = rf_op_elements(&tensor->desc);
    for (uint64_t i = 0; i < elements; i++)
        rf_element_set(tensor->desc.dtype, rf_op_host(tensor), i, draw(data, i, &tensor->desc, state));
}

/* ---- one case ---- */

static void finish(struct trial *trial) {
    for (int i = 0; i < trial->call.count; i++) {
        rf_buffer_destroy(&trial->call.tensors[i].buffer);
        free(trial->call.tensors[i].host);
        free(trial->got[i]);
        free(trial->first_bits[i]);
    }
}

static rf_status prepare(struct trial *trial, const struct rf_op *op, const struct rf_op_case *one, uint64_t seed) {
    trial->one = one;
    trial->call = (struct rf_op_call){.op = op, .attributes = one->attributes, .count = one->count};
    for (int i = 0; i < one->count; i++) trial->call.tensors[i].desc = one->tensors[i];
    rf_status status = rf_op_check(&trial->call);
    uint64_t state = seed;
    for (const char *c = one->label; *c; c++) state = (state ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    for (int i = 0; i < one->count && !status; i++) {
        struct rf_op_tensor *tensor = &trial->call.tensors[i];
        size_t bytes = (size_t)tensor->bytes;
        tensor->host = malloc(bytes);
        trial->got[i] = malloc(bytes + GUARD_BYTES);
        trial->first_bits[i] = malloc(bytes);
        if (!tensor->host || !trial->got[i] || !trial->first_bits[i])
            return rf_fail(RF_E_NO_MEMORY, "no host memory for the case");
        memset(tensor->host, POISON, bytes);
        if (i < op->inputs) fill_tensor(tensor, one->data, &state);
    }
    if (!status) op->reference(&trial->call);
    return status;
}

static rf_status run_on_gpu(struct trial *trial, struct rf_device *device, struct rf_queue *queue) {
    struct rf_op_call *call = &trial->call;
    const struct rf_op *op = call->op;
    rf_status status = RF_OK;
    for (int i = 0; i < call->count && !status; i++) {
        struct rf_op_tensor *tensor = &call->tensors[i];
        RF_PARAMS(struct rf_buffer_params, params);
        params.bytes = tensor->bytes;
        params.queue = queue;
        params.label = op->name;
        if (!tensor->buffer) status = rf_buffer_create_safe(device, &params, &tensor->buffer);
        if (!status && i < op->inputs)
            status = rf_copy_to_device_safe(queue, tensor->buffer, 0, tensor->host, tensor->bytes);
        else if (!status)
            status = rf_fill(queue, tensor->buffer, 0, tensor->bytes, POISON);
    }
    if (!status) status = op->gpu(queue, call);
    for (int i = 0; i < call->count && !status; i++)
        status = rf_copy_from_device_safe(queue, trial->got[i], call->tensors[i].buffer, 0, call->tensors[i].bytes);
    if (!status) status = rf_queue_wait(queue, RF_TIMEOUT_DEFAULT);
    return status;
}

static rf_status run_on_cpu(struct trial *trial) {
    struct rf_op_call call = trial->call;
    for (int i = 0; i < call.count; i++) {
        struct rf_op_tensor *tensor = &call.tensors[i];
        memset(trial->got[i], POISON, (size_t)tensor->bytes);
        memset((char *)trial->got[i] + tensor->bytes, GUARD, GUARD_BYTES);
        if (i < call.op->inputs) memcpy(trial->got[i], tensor->host, (size_t)tensor->bytes);
        tensor->host = trial->got[i];
    }
    rf_status status = call.op->cpu(&call);
    for (int i = 0; i < call.count && !status; i++)
        for (int k = 0; k < GUARD_BYTES; k++)
            if (((unsigned char *)trial->got[i])[call.tensors[i].bytes + (uint64_t)k] != GUARD)
                return rf_fail(RF_E_CORRUPT, "byte %d past the end of tensor %d was overwritten", k, i);
    return status;
}

/* The largest error as a multiple of what is allowed. */
static double judge(const struct trial *trial, int index, char *why, size_t size) {
    const struct rf_op_tensor *tensor = &trial->call.tensors[index];
    const struct rf_tensor_desc *desc = &tensor->desc;
    const char *got = trial->got[index], *want = tensor->host;
    double worst = 0;
    if (index < trial->call.op->inputs) {
        if (!memcmp(got, want, (size_t)tensor->bytes)) return 0;
        snprintf(why, size, "input %d was changed", index);
        return INFINITY;
    }
    for (uint64_t i = 0; i < desc->byte_offset; i++)
        if ((unsigned char)got[i] != POISON) {
            snprintf(why, size, "byte %llu before the output's view was overwritten", (unsigned long long)i);
            return INFINITY;
        }
    uint64_t elements = rf_op_elements(desc);
    for (uint64_t i = 0; i < elements; i++) {
        double a = rf_element_get(desc->dtype, got + desc->byte_offset, i);
        double b = rf_element_get(desc->dtype, want + desc->byte_offset, i);
        double error = 0;
        if (isnan(a) || isnan(b))
            error = isnan(a) && isnan(b) ? 0 : INFINITY;
        else if (a != b)
            error = fabs(a - b) / (trial->one->absolute + trial->one->relative * fabs(b));
        if (error > worst) {
            worst = error;
            if (error > 1)
                snprintf(why, size, "output %d [%llu] is %.9g, expected %.9g", index - trial->call.op->inputs,
                         (unsigned long long)i, a, b);
        }
    }
    return worst;
}

static rf_status run_case(const struct rf_check_params *params, const struct rf_op *op, const struct rf_op_case *one,
                          struct rf_check_result *result, char *why, size_t size) {
    struct trial trial = {0};
    struct rf_queue *queue = NULL;
    if (params->device ? !op->gpu : !op->cpu)
        return rf_fail(RF_E_UNSUPPORTED, "%s is not offered by this backend", op->name);
    rf_status status = prepare(&trial, op, one, params->seed);
    if (!status && params->device) status = rf_queue_create(params->device, NULL, &queue);
    result->tolerance = 1;
    result->same_bits = true;
    for (int round = 0; round < 2 && !status; round++) {
        status = params->device ? run_on_gpu(&trial, params->device, queue) : run_on_cpu(&trial);
        for (int i = 0; i < trial.call.count && !status; i++) {
            size_t bytes = (size_t)trial.call.tensors[i].bytes;
            if (round == 0) {
                double error = judge(&trial, i, why, size);
                if (error > result->error) result->error = error;
                memcpy(trial.first_bits[i], trial.got[i], bytes);
            } else if (memcmp(trial.first_bits[i], trial.got[i], bytes)) {
                result->same_bits = false;
                snprintf(why, size, "a second run gave other bits in tensor %d", i);
            }
        }
    }
    if (!status && params->device) status = rf_device_check_guards(params->device, RF_TIMEOUT_DEFAULT);
    if (status) snprintf(why, size, "%s", rf_error_text());
    result->passed = !status && result->error <= 1 && result->same_bits;
    finish(&trial);
    rf_queue_destroy(&queue);
    return status;
}

/* ---- benchmarks ---- */

static int compare_times(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Sets of tensors, enough that no cache holds what the next round reads. */
static rf_status bench_sets(struct rf_device *device, struct rf_queue *queue, const struct rf_op *op,
                            struct rf_op_call *sets, size_t count) {
    rf_status status = RF_OK;
    for (size_t s = 0; s < count && !status; s++)
        for (int i = 0; i < sets[s].count && !status; i++) {
            RF_PARAMS(struct rf_buffer_params, params);
            params.bytes = sets[s].tensors[i].bytes;
            params.label = op->name;
            status = rf_buffer_create_safe(device, &params, &sets[s].tensors[i].buffer);
            if (status || i >= op->inputs) continue;
            /* Random, not zeros: zeros run faster than real data. One random piece, repeated. */
            uint64_t piece = RF_MIN(params.bytes, (uint64_t)4 << 20);
            if (!s) {
                struct rf_op_tensor host = {.desc = sets[s].tensors[i].desc};
                uint64_t state = 1 + (uint64_t)i, width = RF_MAX(rf_dtype_bytes(host.desc.dtype), (size_t)1);
                host.desc = (struct rf_tensor_desc){.dtype = host.desc.dtype, .rank = 1, .shape = {piece / width}};
                host.host = malloc((size_t)piece);
                if (!host.host) return rf_fail(RF_E_NO_MEMORY, "no host memory for the benchmark");
                fill_tensor(&host, RF_DATA_NORMAL, &state);
                for (uint64_t at = 0; at < params.bytes && !status; at += piece)
                    status = rf_copy_to_device_safe(queue, sets[s].tensors[i].buffer, at, host.host,
                                                    RF_MIN(piece, params.bytes - at));
                free(host.host);
            } else {
                status = rf_copy_on_device(queue, sets[s].tensors[i].buffer, 0, sets[0].tensors[i].buffer, 0,
                                           params.bytes);
            }
        }
    return status;
}

static rf_status bench_rounds(struct rf_device *device, struct rf_queue *queue, const struct rf_op *op,
                              const struct rf_op_call *sets, size_t count, int64_t *median) {
    struct rf_event *start = NULL, *end = NULL;
    int64_t times[BENCH_ROUNDS];
    rf_status status = rf_event_create(device, true, &start);
    if (!status) status = rf_event_create(device, true, &end);
    for (int round = -2; round < BENCH_ROUNDS && !status; round++) {
        status = rf_event_record(start, queue);
        for (size_t s = 0; s < count && !status; s++) status = op->gpu(queue, &sets[s]);
        if (!status) status = rf_event_record(end, queue);
        if (!status) status = rf_queue_wait(queue, RF_TIMEOUT_DEFAULT);
        int64_t elapsed = 0;
        if (!status) status = rf_event_elapsed(start, end, &elapsed);
        if (round >= 0) times[round] = elapsed / (int64_t)count;
    }
    rf_event_destroy(&start);
    rf_event_destroy(&end);
    if (status) return status;
    qsort(times, BENCH_ROUNDS, sizeof times[0], compare_times);
    *median = times[BENCH_ROUNDS / 2];
    return RF_OK;
}

static rf_status bench_case(const struct rf_check_params *params, const struct rf_op *op,
                            const struct rf_op_case *one, struct rf_check_result *result) {
    if (!params->device || !op->gpu) return rf_fail(RF_E_UNSUPPORTED, "%s has no benchmark here", op->name);
    struct rf_op_call call = {.op = op, .attributes = one->attributes, .count = one->count};
    for (int i = 0; i < one->count; i++) call.tensors[i].desc = one->tensors[i];
    rf_status status = rf_op_check(&call);
    if (status) return status;
    uint64_t set_bytes = 0;
    for (int i = 0; i < call.count; i++) set_bytes += call.tensors[i].bytes;
    size_t count = (size_t)RF_MIN((BENCH_DISTINCT_BYTES + set_bytes - 1) / set_bytes, (uint64_t)BENCH_SETS_MAX);
    struct rf_op_call *sets = calloc(count, sizeof *sets);
    if (!sets) return rf_fail(RF_E_NO_MEMORY, "no host memory for the benchmark");
    for (size_t s = 0; s < count; s++) sets[s] = call;
    struct rf_queue *queue = NULL;
    status = rf_queue_create(params->device, NULL, &queue);
    if (!status) status = bench_sets(params->device, queue, op, sets, count);
    if (!status) status = bench_rounds(params->device, queue, op, sets, count, &result->time_ns);
    if (!status && op->cost) op->cost(&call, &result->bytes, &result->flops);
    result->passed = !status;
    for (size_t s = 0; s < count; s++)
        for (int i = 0; i < call.count; i++) rf_buffer_destroy(&sets[s].tensors[i].buffer);
    rf_queue_destroy(&queue);
    free(sets);
    return status;
}
