/* The op table itself and what its rows share. A new op is a row in the file of its family and a line here. */
#include "ops/op.h"

#include "gpu/device.h"

#include <stdio.h>
#include <stdlib.h>

extern const struct rf_op rf_op_fill, rf_op_copy, rf_op_add, rf_op_scale;
extern const struct rf_op rf_op_softmax, rf_op_rms_norm;
extern const struct rf_op rf_op_layer_norm, rf_op_add_norm, rf_op_activation, rf_op_multiply, rf_op_softmax_mask;
extern const struct rf_op rf_op_transpose, rf_op_concat, rf_op_rope, rf_op_kv_append, rf_op_rope_append;
extern const struct rf_op rf_op_argmax, rf_op_sample, rf_op_advance;
extern const struct rf_op rf_op_matmul, rf_op_matmul_gate, rf_op_matmul_q8;
extern const struct rf_op rf_op_norm_qkv, rf_op_norm_gate, rf_op_cast_matmul, rf_op_norm_qkv_append;
extern const struct rf_op rf_op_quantize_q8, rf_op_dequantize, rf_op_embedding;
extern const struct rf_op rf_op_qkt_matmul, rf_op_causal_mask, rf_op_weighted_matmul, rf_op_flash_attention;
extern const struct rf_op rf_op_kv_replicate, rf_op_paged_attention;

const struct rf_op *const rf_op_table[] = {
    &rf_op_fill,
    &rf_op_copy,
    &rf_op_add,
    &rf_op_scale,
    &rf_op_softmax,
    &rf_op_rms_norm,
    /* products with weights, quantized types */
    &rf_op_matmul,
    &rf_op_matmul_gate,
    &rf_op_matmul_q8,
    &rf_op_norm_qkv,
    &rf_op_norm_gate,
    &rf_op_cast_matmul,
    &rf_op_norm_qkv_append,
    &rf_op_quantize_q8,
    &rf_op_dequantize,
    &rf_op_embedding,
    /* the other ops of a transformer, and the choice of a token */
    &rf_op_layer_norm,
    &rf_op_add_norm,
    &rf_op_activation,
    &rf_op_multiply,
    &rf_op_softmax_mask,
    &rf_op_transpose,
    &rf_op_concat,
    &rf_op_rope,
    &rf_op_kv_append,
    &rf_op_rope_append,
    &rf_op_argmax,
    &rf_op_sample,
    &rf_op_advance,
    /* attention */
    &rf_op_qkt_matmul,
    &rf_op_causal_mask,
    &rf_op_weighted_matmul,
    &rf_op_flash_attention,
    &rf_op_kv_replicate,
    &rf_op_paged_attention,
};
const size_t rf_op_table_count = RF_COUNT(rf_op_table);

const struct rf_op *rf_op_find(const char *name) {
    for (size_t i = 0; i < rf_op_table_count; i++)
        if (!strcmp(rf_op_table[i]->name, name)) return rf_op_table[i];
    return NULL;
}

rf_status rf_op_check_tensor(struct rf_op_tensor *tensor, bool optional) {
    if (!tensor->desc.rank && optional) {
        tensor->bytes = 0;
        return RF_OK;
    }
    struct rf_tensor_desc filled = tensor->desc;
    bool empty = false;
    if (filled.rank < 0 || filled.rank > RF_MAX_RANK) filled.rank = 0; /* refused below */
    for (int i = 0; i < filled.rank; i++)
        if (!filled.shape[i]) {
            empty = true;
            filled.shape[i] = i + 1 == filled.rank ? rf_dtype_block(filled.dtype) : 1;
        }
    rf_status status = rf_tensor_desc_check(&filled, &tensor->bytes);
    if (status) return status;
    memcpy(tensor->desc.strides, filled.strides, sizeof filled.strides);
    if (empty) tensor->bytes = filled.byte_offset + rf_dtype_block_bytes(filled.dtype);
    return RF_OK;
}

rf_status rf_op_check(struct rf_op_call *call) {
    const struct rf_op *op = call->op;
    if (call->count != op->inputs + op->outputs)
        return rf_fail(RF_E_INVALID, "%s: %d tensors given, it takes %d in and %d out", op->name, call->count,
                       op->inputs, op->outputs);
    for (int i = 0; i < call->count; i++) {
        rf_status status = rf_op_check_tensor(&call->tensors[i], i < op->inputs && (op->optional >> i & 1));
        if (status) return rf_fail_within(status, "%s: tensor %d", op->name, i);
    }
    rf_status status = op->check(call);
    return status ? rf_fail_within(status, "%s", op->name) : RF_OK;
}

bool rf_op_contiguous(const struct rf_tensor_desc *desc) {
    uint64_t dense = 1;
    if (!rf_op_elements(desc)) return true;
    for (int i = desc->rank; i-- > 0; dense *= desc->shape[i])
        if (desc->shape[i] > 1 && desc->strides[i] != dense) return false;
    return true;
}

bool rf_op_same_shape(const struct rf_tensor_desc *a, const struct rf_tensor_desc *b) {
    return a->rank == b->rank && !memcmp(a->shape, b->shape, (size_t)a->rank * sizeof a->shape[0]);
}

bool rf_op_is_float(enum rf_dtype dtype) {
    return dtype == RF_F32 || dtype == RF_F16 || dtype == RF_BF16;
}

double rf_op_step(enum rf_dtype dtype) {
    switch (dtype) {
    case RF_F16: return 1.0 / 1024;
    case RF_BF16: return 1.0 / 128;
    default: return 1.0 / 8388608;
    }
}

rf_status rf_op_launch(struct rf_queue *queue, const char *kernel, struct rf_grid grid, const struct rf_arg *args,
                       size_t count) {
    if (!grid.blocks[0]) return RF_OK;
    RF_PARAMS(struct rf_launch, launch);
    RF_TRY(rf_kernel_find_unloaded(rf_queue_device(queue), kernel, &launch.kernel));
    memcpy(launch.grid, grid.blocks, sizeof launch.grid);
    memcpy(launch.block, grid.threads, sizeof launch.block);
    launch.shared_bytes = grid.shared_bytes;
    launch.args = args;
    launch.arg_count = count;
    return rf_queue_launch(queue, &launch);
}

void rf_op_parts_reference(const struct rf_op_call *call, rf_op_part part, int end) {
    for (int i = 0; i < end; i++) {
        struct rf_op_call one = part(call, i);
        one.op->reference(&one);
    }
}
void rf_op_parts_cost(const struct rf_op_call *call, rf_op_part part, int first, int end, uint64_t *bytes,
                      uint64_t *flops) {
    *bytes = *flops = 0;
    for (int i = first; i < end; i++) {
        struct rf_op_call one = part(call, i);
        uint64_t more_bytes, more_flops;
        one.op->cost(&one, &more_bytes, &more_flops);
        *bytes += more_bytes;
        *flops += more_flops;
    }
}

uint64_t rf_op_random(uint64_t *state) {
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

void rf_case_add(struct rf_case_list *list, const struct rf_op_case *one) {
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 64;
        struct rf_op_case *grown = realloc(list->cases, capacity * sizeof *grown);
        if (!grown) {
            list->failed = true;
            return;
        }
        list->cases = grown;
        list->capacity = capacity;
    }
    list->cases[list->count++] = *one;
}

size_t rf_op_count(void) {
    return rf_op_table_count;
}

rf_status rf_op_info_at(size_t index, struct rf_op_info *info) {
    rf_status status = RF_RESULT_CHECK(struct rf_op_info, info, "rf_op_info_at");
    if (status) return status;
    if (index >= rf_op_table_count) return rf_fail(RF_E_NOT_FOUND, "there are %zu ops", rf_op_table_count);
    const struct rf_op *op = rf_op_table[index];
    struct rf_case_list list = {0};
    op->cases(&list);
    struct rf_op_info filled = {.name = op->name,
                                .summary = op->summary,
                                .case_count = list.count,
                                .on_gpu = op->gpu != NULL,
                                .on_cpu = op->cpu != NULL};
    RF_RESULT_WRITE(struct rf_op_info, info, &filled);
    free(list.cases);
    return RF_OK;
}
