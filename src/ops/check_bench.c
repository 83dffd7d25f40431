/* Benchmarks of ops: each runs a large case over several sets of tensors, which together are larger than any cache.
 *
 * The result is the median over rounds; a round runs every set once. */
#include "ops/check_impl.h"

#include <stdlib.h>

#include "cpu/fast.h"

enum { ROUNDS = 15, CPU_ROUNDS = 9, SETS_MAX = 64 };
#define DISTINCT_BYTES ((uint64_t)1 << 30)

static int compare_times(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

rf_status rf_check_workspace(struct rf_device *device, struct rf_op_call *call) {
    RF_PARAMS(struct rf_buffer_params, params);
    params.label = call->op->name;
    rf_status status = call->op->workspace ? call->op->workspace(call, &params.bytes) : RF_OK;
    if (!status && params.bytes && !call->workspace)
        status = rf_buffer_create_safe(device, &params, &call->workspace);
    params.bytes = 0;
    params.zeroed = true;
    if (!status && call->op->counters) status = call->op->counters(call, &params.bytes);
    if (!status && params.bytes && !call->counters) status = rf_buffer_create_safe(device, &params, &call->counters);
    return status;
}

/* The data is random because zeros run faster than real data. An input that the op fills itself (tables, lengths) is
 * filled whole; for the others, one random piece is repeated. */
static rf_status fill_host(struct rf_op_call *call, int index) {
    struct rf_op_tensor *tensor = &call->tensors[index];
    uint64_t state = 1 + (uint64_t)index;
    size_t bytes = (size_t)tensor->bytes;
    if (!tensor->host) tensor->host = calloc(1, bytes);
    if (!tensor->host) return rf_fail(RF_E_NO_MEMORY, "no host memory for the benchmark");
    if (call->op->fill && call->op->fill(call, index, &state)) return RF_OK;
    enum rf_dtype dtype = tensor->desc.dtype;
    size_t block = rf_dtype_block(dtype), width = rf_dtype_block_bytes(dtype);
    size_t piece = RF_MIN(bytes, (size_t)(block > 1 ? 64 << 10 : 4 << 20) / width * width);
    struct rf_op_call part = {.op = &(struct rf_op){0}, .count = 1};
    part.tensors[0].host = tensor->host;
    part.tensors[0].desc =
        (struct rf_tensor_desc){.dtype = dtype, .rank = 1, .shape = {piece / width * block}, .strides = {1}};
    rf_status status = rf_check_fill(&part, 0, RF_DATA_NORMAL, &state);
    for (size_t at = piece; at < bytes; at += piece)
        memcpy((char *)tensor->host + at, tensor->host, RF_MIN(piece, bytes - at));
    return status;
}

/* ---- on a GPU ---- */

static rf_status upload_sets(struct rf_device *device, struct rf_queue *queue, struct rf_op_call *sets,
                             size_t count) {
    const struct rf_op *op = sets[0].op;
    rf_status status = RF_OK;
    for (size_t s = 0; s < count && !status; s++) {
        status = rf_check_workspace(device, &sets[s]);
        for (int i = 0; i < sets[s].count && !status; i++) {
            struct rf_op_tensor *tensor = &sets[s].tensors[i];
            if (!rf_op_given(tensor)) continue;
            RF_PARAMS(struct rf_buffer_params, params);
            params.bytes = tensor->bytes;
            params.label = op->name;
            status = rf_buffer_create_safe(device, &params, &tensor->buffer);
            tensor->constant = i < op->inputs && !(op->updates >> i & 1);
            if (status || i >= op->inputs) continue;
            if (s) {
                status = rf_copy_on_device(queue, tensor->buffer, 0, sets[0].tensors[i].buffer, 0, tensor->bytes);
                continue;
            }
            status = fill_host(&sets[0], i);
            if (!status) status = rf_copy_to_device_safe(queue, tensor->buffer, 0, tensor->host, tensor->bytes);
        }
    }
    return status;
}

static rf_status time_on_gpu(struct rf_device *device, struct rf_queue *queue, const struct rf_op_call *sets,
                             size_t count, int64_t *median) {
    struct rf_event *start = NULL, *end = NULL;
    int64_t times[ROUNDS];
    rf_status status = rf_event_create(device, true, &start);
    if (!status) status = rf_event_create(device, true, &end);
    for (int round = -2; round < ROUNDS && !status; round++) {
        status = rf_event_record(start, queue);
        for (size_t s = 0; s < count && !status; s++) status = sets[s].op->gpu(queue, &sets[s]);
        if (!status) status = rf_event_record(end, queue);
        if (!status) status = rf_queue_wait(queue, RF_TIMEOUT_DEFAULT);
        int64_t elapsed = 0;
        if (!status) status = rf_event_elapsed(start, end, &elapsed);
        if (round >= 0) times[round] = elapsed / (int64_t)count;
    }
    rf_event_destroy(&start);
    rf_event_destroy(&end);
    if (status) return status;
    qsort(times, ROUNDS, sizeof times[0], compare_times);
    *median = times[ROUNDS / 2];
    return RF_OK;
}

/* ---- on the CPU ---- */

static rf_status time_on_cpu(struct rf_cpu *cpu, struct rf_op_call *sets, size_t count, int64_t *median) {
    const struct rf_op *op = sets[0].op;
    int64_t times[CPU_ROUNDS];
    rf_status status = RF_OK;
    for (size_t s = 0; s < count && !status; s++)
        for (int i = 0; i < sets[s].count && !status; i++) {
            struct rf_op_tensor *tensor = &sets[s].tensors[i];
            if (!rf_op_given(tensor)) continue;
            tensor->host = malloc((size_t)tensor->bytes);
            if (!tensor->host) return rf_fail(RF_E_NO_MEMORY, "no host memory for the benchmark");
            if (s)
                memcpy(tensor->host, sets[0].tensors[i].host, (size_t)tensor->bytes);
            else if (i < op->inputs)
                status = fill_host(&sets[0], i);
            else
                memset(tensor->host, 0, (size_t)tensor->bytes);
        }
    for (int round = -1; round < CPU_ROUNDS && !status; round++) {
        int64_t start = rf_now_ns();
        for (size_t s = 0; s < count && !status; s++) status = op->cpu(cpu, &sets[s]);
        if (round >= 0) times[round] = (rf_now_ns() - start) / (int64_t)count;
    }
    if (status) return status;
    qsort(times, CPU_ROUNDS, sizeof times[0], compare_times);
    *median = times[CPU_ROUNDS / 2];
    return RF_OK;
}

rf_status rf_check_bench(struct rf_device *device, struct rf_cpu *cpu, const struct rf_op *op,
                         const struct rf_op_case *one, struct rf_check_result *result) {
    if (device ? !op->gpu : !op->cpu) return rf_fail(RF_E_UNSUPPORTED, "%s has no benchmark here", op->name);
    struct rf_op_call call = {
        .op = op, .attributes = one->attributes, .fill_kind = one->fill_kind, .count = one->count};
    for (int i = 0; i < one->count; i++) call.tensors[i].desc = one->tensors[i];
    rf_status status = rf_op_check(&call);
    if (status) return status;
    uint64_t set_bytes = 1;
    for (int i = 0; i < call.count; i++) set_bytes += call.tensors[i].bytes;
    size_t count = (size_t)RF_MIN((DISTINCT_BYTES + set_bytes - 1) / set_bytes, (uint64_t)SETS_MAX);
    struct rf_op_call *sets = calloc(count, sizeof *sets);
    if (!sets) return rf_fail(RF_E_NO_MEMORY, "no host memory for the benchmark");
    for (size_t s = 0; s < count; s++) sets[s] = call;
    if (device) {
        struct rf_queue *queue = NULL;
        status = rf_queue_create(device, NULL, &queue);
        if (!status) status = upload_sets(device, queue, sets, count);
        if (!status) status = time_on_gpu(device, queue, sets, count, &result->time_ns);
        rf_queue_destroy(&queue);
    } else {
        status = time_on_cpu(cpu, sets, count, &result->time_ns);
    }
    if (!status && op->cost) op->cost(&call, &result->bytes, &result->flops);
    result->passed = !status;
    for (size_t s = 0; s < count; s++) {
        for (int i = 0; i < call.count; i++) {
            rf_buffer_destroy(&sets[s].tensors[i].buffer);
            free(sets[s].tensors[i].host);
        }
        rf_buffer_destroy(&sets[s].workspace);
        rf_buffer_destroy(&sets[s].counters);
    }
    free(sets);
    return status;
}
