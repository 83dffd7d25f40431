/* Rows of the op table say whether output 0 may lie where an input does. Every case that allows it is run that way,
 * by the reference, by the CPU and by the (simulated) GPU, and must give the bits of a run with separate memory. */
#include "../gpu/gpu_testing.h"

#include <stdlib.h>
#include <string.h>

#include "cpu/fast.h"
#include "ops/check_impl.h"
#include "graph/graph_impl.h"

struct memory {
    void *host[RF_OP_TENSORS_MAX];
    struct rf_buffer *buffers[RF_OP_TENSORS_MAX];
};

static uint64_t size_of(const struct rf_op_call *call, int i) {
    return (call->tensors[i].bytes + 255) / 256 * 256;
}
/* Fills inputs from the seed, and outputs with bytes that no result has. */
static void fill_call(struct rf_op_call *call, struct memory *memory, enum rf_case_data data) {
    uint64_t state = 7;
    for (int i = 0; i < call->count; i++) {
        if (!rf_op_given(&call->tensors[i])) continue;
        memset(memory->host[i], 0x5a, size_of(call, i));
        call->tensors[i].host = memory->host[i];
        if (i < call->op->inputs) RF_ASSERT_OK(rf_check_fill(call, i, data, &state));
    }
}

enum where { REFERENCE, CPU, GPU, PLACES };

/* Returns whether it ran; the bytes of output 0 and of the other tensors are in 'out'. */
static bool run(struct rf_op_call call, struct memory *memory, enum rf_case_data data, int input, enum where where,
                struct rf_cpu *cpu, struct gpu *gpu, void *out) {
    int first = call.op->inputs;
    fill_call(&call, memory, data);
    if (input >= 0) {
        call.tensors[first].host = call.tensors[input].host;
    }
    int from = input >= 0 ? input : first;
    if (where == REFERENCE) {
        call.op->reference(&call);
    } else if (where == CPU) {
        if (!call.op->cpu || call.op->cpu(cpu, &call)) return false;
    } else {
        if (!call.op->gpu) return false;
        for (int i = 0; i < call.count; i++) {
            if (!rf_op_given(&call.tensors[i])) continue;
            memory->buffers[i] = gpu_buffer(gpu, size_of(&call, i));
            RF_ASSERT_OK(
                rf_copy_to_device_safe(gpu->queue, memory->buffers[i], 0, memory->host[i], size_of(&call, i)));
            call.tensors[i].buffer = memory->buffers[i];
        }
        call.tensors[first].buffer = memory->buffers[from];
        rf_status status = rf_check_workspace(gpu->device, &call);
        if (!status) status = call.op->gpu(gpu->queue, &call);
        if (!status)
            status = rf_copy_from_device_safe(gpu->queue, memory->host[from], memory->buffers[from], 0,
                                              size_of(&call, first));
        if (status) RF_NOTE("%s", rf_error_text());
        for (int i = 0; i < call.count; i++)
            if (memory->buffers[i]) RF_ASSERT_OK(rf_buffer_destroy(&memory->buffers[i]));
        RF_ASSERT_OK(rf_buffer_destroy(&call.workspace));
        RF_ASSERT_OK(rf_buffer_destroy(&call.counters));
        if (status == RF_E_UNSUPPORTED) return false;
        RF_ASSERT_OK(status);
    }
    memcpy(out, memory->host[from], size_of(&call, first));
    return true;
}

static bool byte_differs(void *user, uint64_t byte) {
    const char **both = user;
    size_t width = (size_t)(uintptr_t)both[2];
    if (!memcmp(both[0] + byte, both[1] + byte, width)) return true;
    both[3] = both[0] + byte;
    return false;
}

static void check_op(const struct rf_op *op, enum where where) {
    struct rf_case_list list = {0};
    struct rf_cpu *cpu = NULL;
    struct gpu gpu = {0};
    size_t ran[RF_OP_TENSORS_MAX] = {0};
    op->cases(&list);
    RF_ASSERT(!list.failed);
    RF_ASSERT_OK(rf_cpu_create(NULL, &cpu));
    if (where == GPU) gpu_open(&gpu, NULL);
    for (size_t c = 0; c < list.count; c++) {
        struct rf_op_call call = {.op = op, .attributes = list.cases[c].attributes, .count = list.cases[c].count};
        for (int i = 0; i < call.count; i++) call.tensors[i].desc = list.cases[c].tensors[i];
        if (list.cases[c].bench || rf_op_check(&call)) continue;
        if (!rf_op_elements(&call.tensors[op->inputs].desc)) continue;
        for (int input = 0; input < op->inputs; input++) {
            const struct rf_op_tensor *in = &call.tensors[input], *out = &call.tensors[op->inputs];
            if (!(op->in_place >> input & 1) || !rf_op_given(in) || in->bytes != out->bytes ||
                memcmp(&in->desc, &out->desc, sizeof in->desc) || ran[input] >= (where == GPU ? 6 : 40))
                continue;
            struct memory memory = {{0}, {0}};
            for (int i = 0; i < call.count; i++)
                if (rf_op_given(&call.tensors[i])) memory.host[i] = aligned_alloc(256, size_of(&call, i));
            char *apart = calloc(1, size_of(&call, op->inputs)), *together = calloc(1, size_of(&call, op->inputs));
            bool done = run(call, &memory, list.cases[c].data, -1, where, cpu, &gpu, apart) &&
                        run(call, &memory, list.cases[c].data, input, where, cpu, &gpu, together);
            const char *both[] = {apart, together, (const char *)(uintptr_t)rf_dtype_bytes(out->desc.dtype), NULL};
            if (done) {
                rf_check_elements(&out->desc, byte_differs, both);
                if (both[3]) RF_NOTE("%s %s: input %d", op->name, list.cases[c].label, input);
                RF_ASSERT(!both[3]);
                ran[input]++;
            }
            free(apart);
            free(together);
            for (int i = 0; i < call.count; i++) free(memory.host[i]);
        }
    }
    for (int input = 0; input < op->inputs; input++) {
        bool offered = where == REFERENCE || (where == CPU ? op->cpu != NULL : op->gpu != NULL);
        if (!(op->in_place >> input & 1) || !offered) continue;
        if (!ran[input]) RF_NOTE("%s: no case has output 0 like input %d", op->name, input);
        RF_ASSERT(ran[input] > 0);
    }
    free(list.cases);
    rf_cpu_destroy(&cpu);
    if (where == GPU) gpu_close(&gpu);
}

static void check_all(enum where where) {
    size_t count = 0;
    for (size_t i = 0; i < rf_op_table_count; i++) {
        const struct rf_op *op = rf_op_table[i];
        if (!op->in_place) continue;
        RF_ASSERT(op->outputs > 0 && !(op->in_place >> op->inputs));
        RF_ASSERT(!(op->in_place & op->updates));
        check_op(op, where);
        count++;
    }
    RF_ASSERT(count >= 12);
}
RF_TEST(in_place_rows, by_reference) {
    check_all(REFERENCE);
}
RF_TEST(in_place_rows, on_the_cpu) {
    check_all(CPU);
}
RF_TEST(in_place_rows, on_the_gpu, .gpu = true) {
    check_all(GPU);
}
