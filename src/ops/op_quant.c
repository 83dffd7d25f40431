/* The ops on quantized types: quantize_q8, dequantize, embedding.
 *
 * All three are exact: every backend gives the reference's bits (for a NaN: any NaN), so their cases allow no
 * error. */
#include "ops/op_weights_impl.h"

#include "cpu/fast.h"

static void moved_bytes(const struct rf_op_call *call, uint64_t *bytes, uint64_t *flops) {
    *bytes = *flops = 0;
    for (int i = 0; i < call->count; i++) *bytes += call->tensors[i].bytes - call->tensors[i].desc.byte_offset;
}

/* ---- quantize_q8: x to blocks of 32 with 8 bits each ---- */

static rf_status quantize_check(const struct rf_op_call *call) {
    const struct rf_op_tensor *x = rf_op_in(call, 0), *out = rf_op_out(call, 0);
    RF_TRY(rf_need_float(x, "x"));
    RF_TRY(rf_need_matrix(x, "x"));
    return rf_need_blocks(out, "out", x->desc.shape[0], x->desc.shape[1]);
}
static struct rf_quantize_q8_args quantize_args(const struct rf_op_call *call) {
    const struct rf_tensor_desc *x = &rf_op_in(call, 0)->desc;
    return (struct rf_quantize_q8_args){x->shape[0], x->shape[1], rf_row_stride(x)};
}
static void quantize_reference(const struct rf_op_call *call) {
    const struct rf_op_tensor *x = rf_op_in(call, 0);
    struct rf_quantize_q8_args args = quantize_args(call);
    rf_ref_quantize_q8(rf_op_host(rf_op_out(call, 0)), x->desc.dtype, rf_op_host(x), &args);
}
static rf_status quantize_cpu(struct rf_cpu *cpu, const struct rf_op_call *call) {
    const struct rf_op_tensor *x = rf_op_in(call, 0);
    struct rf_quantize_q8_args args = quantize_args(call);
    return rf_cpu_quantize_q8(cpu, rf_op_host(rf_op_out(call, 0)), x->desc.dtype, rf_op_host(x), &args);
}
static rf_status quantize_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    const struct rf_op_tensor *x = rf_op_in(call, 0);
    struct rf_quantize_q8_args args = quantize_args(call);
    RF_TRY(rf_need_gpu_aligned(call, x, "x", 16));
    RF_TRY(rf_need_gpu_stride(call, x, "x", RF_Q8_BLOCK));
    return rf_gpu_quantize_q8(queue, rf_op_operand(rf_op_out(call, 0)), x->desc.dtype, rf_op_operand(x), &args);
}
static void quantize_cases(struct rf_case_list *list) {
    static const struct {
        uint64_t rows, columns, pad;
    } shapes[] = {{1, 32, 0},  {3, 96, 32}, {2, 2080, 0}, {7, 512, 32}, {5, 64, 0},
                  {13, 32, 0}, {0, 64, 0},  {3, 0, 0},    {1, 4128, 96}};
    static const enum rf_case_data data[] = {RF_DATA_NORMAL, RF_DATA_EXTREME, RF_DATA_SPECIAL};
    static const char *const names[] = {"", " extreme", " special"};
    for (size_t t = 0; t < RF_COUNT(rf_case_floats); t++) {
        enum rf_dtype type = rf_case_floats[t];
        struct rf_op_case one = {.count = 2};
        for (size_t i = 0; i < RF_COUNT(shapes); i++)
            for (size_t d = 0; d < RF_COUNT(data); d++) {
                uint64_t rows = shapes[i].rows, columns = shapes[i].columns, pad = shapes[i].pad;
                one.data = data[d];
                one.tensors[0] = (struct rf_tensor_desc){.dtype = type, .rank = 2, .shape = {rows, columns}};
                if (pad) {
                    one.tensors[0].strides[0] = columns + pad;
                    one.tensors[0].strides[1] = 1;
                    one.tensors[0].byte_offset = 48;
                }
                one.tensors[1] = (struct rf_tensor_desc){.dtype = RF_U8,
                                                         .rank = 2,
                                                         .shape = {rows, columns / RF_Q8_BLOCK * RF_Q8_BLOCK_BYTES},
                                                         .byte_offset = pad ? 8 : 0};
                snprintf(one.label, sizeof one.label, "%s %llux%llu%s%s", rf_dtype_name(type),
                         (unsigned long long)rows, (unsigned long long)columns, pad ? " view" : "", names[d]);
                rf_case_add(list, &one);
            }
        uint64_t rows = ((uint64_t)256 << 20) / rf_dtype_bytes(type) / 4096;
        one = (struct rf_op_case){.count = 2, .bench = true};
        one.tensors[0] = (struct rf_tensor_desc){.dtype = type, .rank = 2, .shape = {rows, 4096}};
        one.tensors[1] = (struct rf_tensor_desc){
            .dtype = RF_U8, .rank = 2, .shape = {rows, 4096 / RF_Q8_BLOCK * RF_Q8_BLOCK_BYTES}};
        snprintf(one.label, sizeof one.label, "%s 256 MiB", rf_dtype_name(type));
        rf_case_add(list, &one);
    }
}
const struct rf_op rf_op_quantize_q8 = {
    .name = "quantize_q8",
    .summary = "activations to blocks of 32: a scale, their sum, and 32 integers of 8 bits (u8)",
    .inputs = 1,
    .outputs = 1,
    .check = quantize_check,
    .reference = quantize_reference,
    .gpu = quantize_gpu,
    .cpu = quantize_cpu,
    .cases = quantize_cases,
    .cost = moved_bytes,
};

/* ---- dequantize ---- */

static rf_status dequantize_check(const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0), *out = rf_op_out(call, 0);
    if (!rf_op_is_quantized(in->desc.dtype))
        return rf_fail(RF_E_UNSUPPORTED, "from %s, which is no quantized type", rf_dtype_name(in->desc.dtype));
    RF_TRY(rf_need_float(out, "out"));
    if (!rf_op_same_shape(&in->desc, &out->desc)) return rf_fail(RF_E_INVALID, "the shapes differ");
    return rf_need_dense(out, "out");
}
static struct rf_dequantize_args dequantize_args(const struct rf_op_call *call) {
    return (struct rf_dequantize_args){rf_op_elements(&rf_op_in(call, 0)->desc)};
}
static void dequantize_reference(const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0), *out = rf_op_out(call, 0);
    struct rf_dequantize_args args = dequantize_args(call);
    rf_ref_dequantize(out->desc.dtype, rf_op_host(out), in->desc.dtype, rf_op_host(in), &args);
}
static rf_status dequantize_cpu(struct rf_cpu *cpu, const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0), *out = rf_op_out(call, 0);
    struct rf_dequantize_args args = dequantize_args(call);
    return rf_cpu_dequantize(cpu, out->desc.dtype, rf_op_host(out), in->desc.dtype, rf_op_host(in), &args);
}
static rf_status dequantize_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    const struct rf_op_tensor *in = rf_op_in(call, 0), *out = rf_op_out(call, 0);
    struct rf_dequantize_args args = dequantize_args(call);
    RF_TRY(rf_need_gpu_aligned(call, in, "in", 16));
    RF_TRY(rf_need_gpu_aligned(call, out, "out", 16));
    return rf_gpu_dequantize(queue, out->desc.dtype, rf_op_operand(out), in->desc.dtype, rf_op_operand(in), &args);
}
/* A case of two rows gets random bits in its blocks, so that scales may be infinite or NaN. */
static bool dequantize_fill(const struct rf_op_call *call, int index, uint64_t *state) {
    const struct rf_op_tensor *in = rf_op_in(call, index);
    if (in->desc.rank != 2 || in->desc.shape[0] != 2) return false;
    for (uint64_t at = in->desc.byte_offset; at < in->bytes; at++)
        ((uint8_t *)in->host)[at] = (uint8_t)rf_op_random(state);
    return true;
}
static void dequantize_cases(struct rf_case_list *list) {
    static const struct {
        uint64_t rows, blocks; /* blocks of a row */
        uint64_t in_offset, out_offset;
    } shapes[] = {{1, 1, 0, 0}, {3, 7, 16, 32}, {2, 9, 0, 0}, {0, 5, 0, 0}};
    static const enum rf_dtype fast[] = {RF_Q8_0, RF_Q4_0, RF_Q4_K, RF_Q6_K};
    for (size_t t = 0; t < RF_COUNT(rf_case_floats); t++) {
        enum rf_dtype type = rf_case_floats[t];
        struct rf_op_case one = {.count = 2};
        for (size_t w = 0; w < RF_COUNT(rf_quantized_types); w++)
            for (size_t i = 0; i < RF_COUNT(shapes); i++) {
                enum rf_dtype from = rf_quantized_types[w];
                uint64_t columns = shapes[i].blocks * rf_dtype_block(from);
                one.tensors[0] = (struct rf_tensor_desc){
                    .dtype = from, .rank = 2, .shape = {shapes[i].rows, columns}, .byte_offset = shapes[i].in_offset};
                one.tensors[1] = (struct rf_tensor_desc){.dtype = type,
                                                         .rank = 2,
                                                         .shape = {shapes[i].rows, columns},
                                                         .byte_offset = shapes[i].out_offset};
                snprintf(one.label, sizeof one.label, "%s to %s %llux%llu%s%s", rf_dtype_name(from),
                         rf_dtype_name(type), (unsigned long long)shapes[i].rows, (unsigned long long)columns,
                         shapes[i].in_offset ? " view" : "", shapes[i].rows == 2 ? " any bits" : "");
                rf_case_add(list, &one);
            }
        for (size_t w = 0; w < RF_COUNT(fast); w++) {
            one = (struct rf_op_case){.count = 2, .bench = true};
            one.tensors[0] = (struct rf_tensor_desc){
                .dtype = fast[w], .rank = 1, .shape = {((uint64_t)256 << 20) / rf_dtype_bytes(type)}};
            one.tensors[1] = one.tensors[0];
            one.tensors[1].dtype = type;
            snprintf(one.label, sizeof one.label, "%s to %s, 256 MiB", rf_dtype_name(fast[w]), rf_dtype_name(type));
            rf_case_add(list, &one);
        }
    }
}
const struct rf_op rf_op_dequantize = {
    .name = "dequantize",
    .summary = "out[i] = element i of quantized blocks, rounded to out's type",
    .inputs = 1,
    .outputs = 1,
    .check = dequantize_check,
    .reference = dequantize_reference,
    .gpu = dequantize_gpu,
    .cpu = dequantize_cpu,
    .cases = dequantize_cases,
    .fill = dequantize_fill,
    .cost = moved_bytes,
};

/* ---- embedding ---- */

static rf_status embedding_check(const struct rf_op_call *call) {
    const struct rf_op_tensor *table = rf_op_in(call, 0), *indices = rf_op_in(call, 1), *out = rf_op_out(call, 0);
    RF_TRY(rf_need_weights(table, "table"));
    RF_TRY(rf_need_float(out, "out"));
    if (indices->desc.dtype != RF_I32 || indices->desc.rank != 1)
        return rf_fail(RF_E_INVALID, "indices of %s and rank %d; they must be a row of i32",
                       rf_dtype_name(indices->desc.dtype), indices->desc.rank);
    RF_TRY(rf_need_dense(indices, "indices"));
    RF_TRY(rf_need_matrix_of(out, "out", indices->desc.shape[0], table->desc.shape[1]));
    return rf_need_dense(out, "out");
}
static struct rf_embedding_args embedding_args(const struct rf_op_call *call) {
    const struct rf_tensor_desc *table = &rf_op_in(call, 0)->desc;
    return (struct rf_embedding_args){
        .count = rf_op_in(call, 1)->desc.shape[0], .columns = table->shape[1], .table_rows = table->shape[0]};
}
static void embedding_reference(const struct rf_op_call *call) {
    const struct rf_op_tensor *table = rf_op_in(call, 0), *out = rf_op_out(call, 0);
    struct rf_embedding_args args = embedding_args(call);
    rf_ref_embedding(out->desc.dtype, rf_op_host(out), table->desc.dtype, rf_op_host(table),
                     rf_op_host(rf_op_in(call, 1)), &args);
}
static rf_status embedding_cpu(struct rf_cpu *cpu, const struct rf_op_call *call) {
    const struct rf_op_tensor *table = rf_op_in(call, 0), *out = rf_op_out(call, 0);
    struct rf_embedding_args args = embedding_args(call);
    return rf_cpu_embedding(cpu, out->desc.dtype, rf_op_host(out), table->desc.dtype, rf_op_host(table),
                            rf_op_host(rf_op_in(call, 1)), &args);
}
static rf_status embedding_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    const struct rf_op_tensor *table = rf_op_in(call, 0), *out = rf_op_out(call, 0);
    if (rf_op_is_quantized(table->desc.dtype)) {
        RF_TRY(rf_need_gpu_aligned(call, table, "table", 16));
        RF_TRY(rf_need_gpu_aligned(call, out, "out", 16));
    }
    struct rf_gpu_embedding embedding = {.args = embedding_args(call),
                                         .table_type = table->desc.dtype,
                                         .type = out->desc.dtype,
                                         .out = rf_op_operand(out),
                                         .table = rf_op_operand(table),
                                         .indices = rf_op_operand(rf_op_in(call, 1))};
    return rf_gpu_embedding(queue, &embedding);
}
/* Writes rows of the table, and now and then an index outside it. A long list, a benchmark's, goes through the table
 * in strides and names no row twice if there are enough rows. */
static bool embedding_fill(const struct rf_op_call *call, int index, uint64_t *state) {
    if (index != 1) return false;
    int32_t *indices = rf_op_host(rf_op_in(call, 1));
    uint64_t rows = rf_op_in(call, 0)->desc.shape[0], count = rf_op_in(call, 1)->desc.shape[0];
    uint64_t names = RF_MIN(rows, (uint64_t)INT32_MAX);
    const int32_t outside[] = {-1, (int32_t)names, INT32_MIN, INT32_MAX};
    for (uint64_t i = 0; i < count; i++) {
        uint64_t random = rf_op_random(state);
        if (rows && count > 64)
            indices[i] = (int32_t)(i * 40503 % names);
        else
            indices[i] = rows && random % 4 ? (int32_t)(random / 4 % names) : outside[random / 4 % 4];
    }
    return true;
}
/* Counts the rows that are looked up, not the whole table. */
static void embedding_cost(const struct rf_op_call *call, uint64_t *bytes, uint64_t *flops) {
    const struct rf_tensor_desc *table = &rf_op_in(call, 0)->desc, *out = &rf_op_out(call, 0)->desc;
    uint64_t elements = rf_op_elements(out);
    *flops = 0;
    *bytes = elements / rf_dtype_block(table->dtype) * rf_dtype_block_bytes(table->dtype) +
             elements * rf_dtype_bytes(out->dtype) + out->shape[0] * sizeof(int32_t);
}

static void add_embedding(struct rf_case_list *list, enum rf_dtype table, enum rf_dtype type, uint64_t rows,
                          uint64_t count, uint64_t columns, bool view, enum rf_case_data data) {
    struct rf_op_case one = {.count = 3, .data = data, .bench = count > 1000};
    uint64_t skip = rf_op_is_quantized(table) ? 16 : 0;
    one.tensors[0] = (struct rf_tensor_desc){.dtype = table, .rank = 2, .shape = {rows, columns}};
    one.tensors[1] = (struct rf_tensor_desc){.dtype = RF_I32, .rank = 1, .shape = {count}};
    one.tensors[2] = (struct rf_tensor_desc){.dtype = type, .rank = 2, .shape = {count, columns}};
    if (view) {
        one.tensors[0].byte_offset = skip ? skip : rf_dtype_bytes(table);
        one.tensors[1].byte_offset = 4;
        one.tensors[2].byte_offset = skip ? skip : 3 * rf_dtype_bytes(type);
    }
    snprintf(one.label, sizeof one.label, "%s to %s, %llu of %llu rows of %llu%s%s", rf_dtype_name(table),
             rf_dtype_name(type), (unsigned long long)count, (unsigned long long)rows, (unsigned long long)columns,
             view ? " view" : "", data == RF_DATA_SPECIAL ? " special" : "");
    rf_case_add(list, &one);
}
static void embedding_cases(struct rf_case_list *list) {
    for (size_t t = 0; t < RF_COUNT(rf_case_floats); t++) {
        enum rf_dtype type = rf_case_floats[t];
        for (size_t w = 0; w < RF_COUNT(rf_quantized_types); w++) {
            enum rf_dtype table = rf_quantized_types[w];
            uint64_t block = rf_dtype_block(table);
            add_embedding(list, table, type, 5, 9, 3 * block, false, RF_DATA_NORMAL);
            add_embedding(list, table, type, 1, 3, block, true, RF_DATA_NORMAL);
        }
        add_embedding(list, RF_Q4_K, type, 3, 0, 256, false, RF_DATA_NORMAL);
        for (size_t w = 0; w < RF_COUNT(rf_case_floats); w++) {
            enum rf_dtype table = rf_case_floats[w];
            add_embedding(list, table, type, 7, 11, 64, false, RF_DATA_NORMAL);
            add_embedding(list, table, type, 5, 8, 37, true, RF_DATA_NORMAL);
            add_embedding(list, table, type, 3, 5, 1, false, RF_DATA_NORMAL);
            add_embedding(list, table, type, 4, 6, 40, false, RF_DATA_SPECIAL);
            add_embedding(list, table, type, 3, 0, 8, false, RF_DATA_NORMAL);
            add_embedding(list, table, type, 3, 4, 0, false, RF_DATA_NORMAL);
        }
    }
    static const enum rf_dtype large[] = {RF_F16, RF_BF16, RF_Q8_0, RF_Q4_0, RF_Q4_K, RF_Q6_K};
    for (size_t w = 0; w < RF_COUNT(large); w++)
        add_embedding(list, large[w], RF_F32, 32768, 16384, 4096, false, RF_DATA_NORMAL);
}
const struct rf_op rf_op_embedding = {
    .name = "embedding",
    .summary = "out[r] = row indices[r] of a table, as out's type; zeros for an index outside it",
    .inputs = 2,
    .outputs = 1,
    .check = embedding_check,
    .reference = embedding_reference,
    .gpu = embedding_gpu,
    .cpu = embedding_cpu,
    .cases = embedding_cases,
    .fill = embedding_fill,
    .cost = embedding_cost,
};
