/* Checking ops: runs every case of the table on a device and compares it with the scalar reference.
 *
 * Inputs are seeded and outputs are poisoned before a run. The result must lie within the case's tolerance. The bytes
 * before, between and behind a view's elements must be untouched, and inputs that the op does not update must be
 * unchanged. A second run must give the same bits. With the device's guard bands on (RF_CHECK=guard), a write past
 * the end is found as well. */
#include "ops/check_impl.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cpu/fast.h"
#include "runtime/runtime.h"
#include "cpu/quant.h"
#include "cpu/reference.h"

enum { POISON = 0xFF, GUARD = 0xA7, GUARD_BYTES = 64 };

/* A case that is being run. The call's host memory holds the inputs and, after the reference ran, its results. */
struct trial {
    const struct rf_op_case *one;
    struct rf_op_call call;
    void *start[RF_OP_TENSORS_MAX];      /* the contents before a run: inputs, poison */
    void *got[RF_OP_TENSORS_MAX];        /* the contents after it, and GUARD_BYTES behind them */
    void *first_bits[RF_OP_TENSORS_MAX]; /* the contents after the first run */
};

static rf_status run_case(const struct rf_check_params *params, struct rf_cpu *cpu, const struct rf_op *op,
                          const struct rf_op_case *one, struct rf_check_result *result, char *why, size_t size);
static rf_status open_cpu(struct rf_runtime *runtime, const struct rf_check_params *params, struct rf_cpu **out);
static rf_status none_matches(const char *pattern);

rf_status rf_check_run(const struct rf_check_params *params, struct rf_check_counts *counts) {
    struct rf_check_params full;
    rf_status status = RF_PARAMS_READ_SINCE(struct rf_check_params, runtime, &full, params, "rf_check_run");
    if (status) return status;
    params = &full;
    if (!counts) return rf_fail(RF_E_INVALID, "rf_check_run: counts is NULL");
    const char *pattern = params->op ? params->op : "*";
    size_t matched = 0;
    struct rf_cpu *cpu = NULL;
    *counts = (struct rf_check_counts){0};
    struct rf_runtime *own = NULL;
    status = params->device || params->runtime ? RF_OK : rf_runtime_create(NULL, &own);
    if (!status && !params->device) status = open_cpu(own ? own : params->runtime, params, &cpu);
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
            if (params->choose && !params->choose(params->user, op->name, list.cases[k].label)) continue;
            char why[512] = "";
            struct rf_check_result result = {.op = op->name, .label = list.cases[k].label, .why = why};
            result.status = params->bench ? rf_check_bench(params->device, cpu, op, &list.cases[k], &result)
                                          : run_case(params, cpu, op, &list.cases[k], &result, why, sizeof why);
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
    rf_cpu_destroy(&cpu);
    rf_runtime_destroy(&own);
    return status || matched ? status : none_matches(pattern);
}

static rf_status none_matches(const char *pattern) {
    char known[1024] = "";
    for (size_t i = 0; i < rf_op_table_count; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, " %s", rf_op_table[i]->name);
    }
    return rf_fail(RF_E_NOT_FOUND, "no op matches '%s'; there are%s", pattern, known);
}

static rf_status open_cpu(struct rf_runtime *runtime, const struct rf_check_params *params, struct rf_cpu **out) {
    struct rf_cpu_params cpu = {.threads = rf_runtime_thread_count(runtime, params->threads)};
    rf_status status = rf_simd_find(params->simd, &cpu.level);
    if (!status) status = rf_runtime_threads(runtime, cpu.threads, &cpu.pool);
    return status ? status : rf_cpu_create(&cpu, out);
}

/* ---- one case ---- */

static void finish(struct trial *trial) {
    for (int i = 0; i < trial->call.count; i++) {
        rf_buffer_destroy(&trial->call.tensors[i].buffer);
        free(trial->call.tensors[i].host);
        free(trial->start[i]);
        free(trial->got[i]);
        free(trial->first_bits[i]);
    }
    rf_buffer_destroy(&trial->call.workspace);
    rf_buffer_destroy(&trial->call.counters);
}

static rf_status prepare(struct trial *trial, const struct rf_op *op, const struct rf_op_case *one, uint64_t seed) {
    trial->one = one;
    trial->call = (struct rf_op_call){
        .op = op, .attributes = one->attributes, .fill_kind = one->fill_kind, .count = one->count};
    for (int i = 0; i < one->count; i++) trial->call.tensors[i].desc = one->tensors[i];
    rf_status status = rf_op_check(&trial->call);
    uint64_t state = seed;
    for (const char *c = one->label; *c; c++) state = (state ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    for (int i = 0; i < one->count && !status; i++) {
        struct rf_op_tensor *tensor = &trial->call.tensors[i];
        size_t bytes = (size_t)tensor->bytes;
        if (!rf_op_given(tensor)) continue;
        tensor->host = malloc(bytes);
        trial->start[i] = malloc(bytes);
        trial->got[i] = malloc(bytes + GUARD_BYTES);
        trial->first_bits[i] = malloc(bytes);
        if (!tensor->host || !trial->start[i] || !trial->got[i] || !trial->first_bits[i])
            return rf_fail(RF_E_NO_MEMORY, "no host memory for the case");
        memset(tensor->host, POISON, bytes);
        if (i < op->inputs) status = rf_check_fill(&trial->call, i, one->data, &state);
        memcpy(trial->start[i], tensor->host, bytes);
    }
    if (!status) op->reference(&trial->call);
    return status;
}

static rf_status run_on_gpu(struct trial *trial, struct rf_device *device, struct rf_queue *queue) {
    struct rf_op_call *call = &trial->call;
    const struct rf_op *op = call->op;
    rf_status status = rf_check_workspace(device, call);
    for (int i = 0; i < call->count && !status; i++) {
        struct rf_op_tensor *tensor = &call->tensors[i];
        if (!rf_op_given(tensor)) continue;
        RF_PARAMS(struct rf_buffer_params, params);
        params.bytes = tensor->bytes;
        params.queue = queue;
        params.label = op->name;
        if (!tensor->buffer) status = rf_buffer_create_safe(device, &params, &tensor->buffer);
        tensor->constant = i < op->inputs && !(op->updates >> i & 1);
        if (!status) status = rf_copy_to_device_safe(queue, tensor->buffer, 0, trial->start[i], tensor->bytes);
    }
    if (!status) status = op->gpu(queue, call);
    for (int i = 0; i < call->count && !status; i++)
        if (call->tensors[i].buffer)
            status =
                rf_copy_from_device_safe(queue, trial->got[i], call->tensors[i].buffer, 0, call->tensors[i].bytes);
    if (!status) status = rf_queue_wait(queue, RF_TIMEOUT_DEFAULT);
    return status;
}

static rf_status run_on_cpu(struct trial *trial, struct rf_cpu *cpu) {
    struct rf_op_call call = trial->call;
    for (int i = 0; i < call.count; i++) {
        if (!rf_op_given(&call.tensors[i])) continue;
        size_t bytes = (size_t)call.tensors[i].bytes;
        memcpy(trial->got[i], trial->start[i], bytes);
        memset((char *)trial->got[i] + bytes, GUARD, GUARD_BYTES);
        call.tensors[i].host = trial->got[i];
    }
    rf_status status = call.op->cpu(cpu, &call);
    for (int i = 0; i < call.count && !status; i++)
        for (int k = 0; k < GUARD_BYTES && trial->got[i]; k++)
            if (((unsigned char *)trial->got[i])[call.tensors[i].bytes + (uint64_t)k] != GUARD)
                return rf_fail(RF_E_CORRUPT, "byte %d past the end of tensor %d was overwritten", k, i);
    return status;
}

struct judgement {
    const struct trial *trial;
    int index;
    uint64_t element;
    double worst;
    char *why;
    size_t size;
};

/* Compares one element: the error is a multiple of the tolerance. The element then counts as compared: the
 * reference's bytes replace it. */
static bool judge_element(void *user, uint64_t byte) {
    struct judgement *judgement = user;
    const struct rf_op_case *one = judgement->trial->one;
    const struct rf_op_tensor *tensor = &judgement->trial->call.tensors[judgement->index];
    enum rf_dtype dtype = tensor->desc.dtype;
    size_t width = rf_dtype_block_bytes(dtype);
    char *got = (char *)judgement->trial->got[judgement->index] + byte;
    const char *want = (const char *)tensor->host + byte;
    double error = 0, a = 0, b = 0;
    if (rf_op_is_float(dtype)) {
        a = rf_element_get(dtype, got, 0);
        b = rf_element_get(dtype, want, 0);
        if (isnan(a) || isnan(b))
            error = isnan(a) && isnan(b) ? 0 : INFINITY;
        else if (a != b)
            error = fabs(a - b) / (one->absolute + one->relative * fabs(b));
    } else if (rf_dtype_block(dtype) > 1 && (one->absolute > 0 || one->relative > 0)) {
        /* The decoded elements are compared: one on the edge between two quants may be rounded to either. */
        float values[2][RF_BLOCK_LARGE];
        rf_dequantize_row(dtype, got, values[0], rf_dtype_block(dtype));
        rf_dequantize_row(dtype, want, values[1], rf_dtype_block(dtype));
        for (size_t i = 0; i < rf_dtype_block(dtype); i++) {
            double x = (double)values[0][i], y = (double)values[1][i];
            double off =
                x == y || (isnan(x) && isnan(y)) ? 0 : fabs(x - y) / (one->absolute + one->relative * fabs(y));
            if (isnan(off)) off = INFINITY;
            if (off > error) {
                error = off;
                a = x;
                b = y;
            }
        }
    } else if (memcmp(got, want, width)) {
        int32_t numbers[2] = {0};
        memcpy(&numbers[0], got, RF_MIN(width, sizeof numbers[0]));
        memcpy(&numbers[1], want, RF_MIN(width, sizeof numbers[1]));
        a = numbers[0];
        b = numbers[1];
        error = INFINITY;
    }
    if (error > judgement->worst) {
        judgement->worst = error;
        if (error > 1)
            snprintf(judgement->why, judgement->size, "tensor %d [%llu] is %.9g, expected %.9g", judgement->index,
                     (unsigned long long)judgement->element, a, b);
    }
    judgement->element += rf_dtype_block(dtype);
    memcpy(got, want, width);
    return true;
}

/* The largest error of a tensor as a multiple of the tolerance; INFINITY if a byte between its elements changed. */
static double judge(const struct trial *trial, int index, char *why, size_t size) {
    const struct rf_op_tensor *tensor = &trial->call.tensors[index];
    struct judgement judgement = {.trial = trial, .index = index, .why = why, .size = size};
    const unsigned char *got = trial->got[index], *want = tensor->host;
    bool may_change = index >= trial->call.op->inputs || (trial->call.op->updates >> index & 1);
    if (may_change) rf_check_elements(&tensor->desc, judge_element, &judgement);
    for (uint64_t i = 0; i < tensor->bytes; i++)
        if (got[i] != want[i]) {
            snprintf(why, size, "byte %llu of tensor %d, which it must leave alone, was changed",
                     (unsigned long long)i, index);
            return INFINITY;
        }
    return judgement.worst;
}

static rf_status run_case(const struct rf_check_params *params, struct rf_cpu *cpu, const struct rf_op *op,
                          const struct rf_op_case *one, struct rf_check_result *result, char *why, size_t size) {
    struct trial trial = {0};
    struct rf_queue *queue = NULL;
    if (params->device ? !op->gpu : !op->cpu)
        return rf_fail(RF_E_UNSUPPORTED, "%s: %s", op->name,
                       params->device ? "not offered on a GPU" : "the CPU runs the reference itself");
    rf_status status = prepare(&trial, op, one, params->seed);
    if (!status && params->device) status = rf_queue_create(params->device, NULL, &queue);
    result->tolerance = 1;
    result->same_bits = true;
    for (int round = 0; round < 2 && !status; round++) {
        status = params->device ? run_on_gpu(&trial, params->device, queue) : run_on_cpu(&trial, cpu);
        for (int i = 0; i < trial.call.count && !status; i++) {
            size_t bytes = (size_t)trial.call.tensors[i].bytes;
            if (!trial.got[i]) continue;
            if (round == 0) {
                memcpy(trial.first_bits[i], trial.got[i], bytes);
                double error = judge(&trial, i, why, size);
                if (error > result->error) result->error = error;
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
