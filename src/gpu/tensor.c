/* Device tensors: a descriptor over a buffer. */
#include "gpu/device_impl.h"

#include <stdlib.h>

struct rf_tensor {
    struct rf_object object;
    struct rf_tensor_desc desc;
    struct rf_buffer *buffer; /* owned */
};

static const struct {
    const char *name;
    size_t block, block_bytes;
} dtypes[RF_DTYPE_COUNT] = {
    [RF_F32] = {"f32", 1, 4},       [RF_F16] = {"f16", 1, 2},         [RF_BF16] = {"bf16", 1, 2},
    [RF_I32] = {"i32", 1, 4},       [RF_I8] = {"i8", 1, 1},           [RF_U8] = {"u8", 1, 1},
    [RF_Q4_0] = {"q4_0", 32, 18},   [RF_Q4_1] = {"q4_1", 32, 20},     [RF_Q5_0] = {"q5_0", 32, 22},
    [RF_Q5_1] = {"q5_1", 32, 24},   [RF_Q8_0] = {"q8_0", 32, 34},     [RF_Q2_K] = {"q2_k", 256, 84},
    [RF_Q3_K] = {"q3_k", 256, 110}, [RF_Q4_K] = {"q4_k", 256, 144},   [RF_Q5_K] = {"q5_k", 256, 176},
    [RF_Q6_K] = {"q6_k", 256, 210}, [RF_IQ4_NL] = {"iq4_nl", 32, 18}, [RF_IQ4_XS] = {"iq4_xs", 256, 136},
};

static bool known(enum rf_dtype dtype) {
    return (unsigned)dtype < RF_DTYPE_COUNT;
}

const char *rf_dtype_name(enum rf_dtype dtype) {
    return known(dtype) ? dtypes[dtype].name : "?";
}
size_t rf_dtype_block(enum rf_dtype dtype) {
    return known(dtype) ? dtypes[dtype].block : 0;
}
size_t rf_dtype_block_bytes(enum rf_dtype dtype) {
    return known(dtype) ? dtypes[dtype].block_bytes : 0;
}
size_t rf_dtype_bytes(enum rf_dtype dtype) {
    return rf_dtype_block(dtype) == 1 ? dtypes[dtype].block_bytes : 0;
}

rf_status rf_tensor_desc_check(struct rf_tensor_desc *desc, uint64_t *bytes) {
    if (!desc || !bytes) return rf_fail(RF_E_INVALID, "tensor: desc or bytes is NULL");
    size_t block = rf_dtype_block(desc->dtype), element = rf_dtype_block_bytes(desc->dtype);
    if (!block) return rf_fail(RF_E_INVALID, "tensor: %d is no dtype", (int)desc->dtype);
    if (desc->rank < 1 || desc->rank > RF_MAX_RANK)
        return rf_fail(RF_E_INVALID, "tensor: rank %d, allowed are 1 to %d", desc->rank, RF_MAX_RANK);
    /* A quantized block is a struct whose widest member has two bytes. */
    size_t alignment = block == 1 ? element : 2;
    if (desc->byte_offset % alignment)
        return rf_fail(RF_E_INVALID, "tensor: byte offset %llu is not a multiple of %zu",
                       (unsigned long long)desc->byte_offset, alignment);
    if (desc->shape[desc->rank - 1] % block)
        return rf_fail(RF_E_INVALID, "tensor: %s comes in blocks of %zu, the last dimension is %llu",
                       rf_dtype_name(desc->dtype), block, (unsigned long long)desc->shape[desc->rank - 1]);
    uint64_t strides[RF_MAX_RANK] = {0}, last = 0, step, dense = 1;
    bool given = false;
    for (int i = 0; i < desc->rank; i++) {
        given |= desc->strides[i] != 0;
        if (!desc->shape[i]) return rf_fail(RF_E_INVALID, "tensor: dimension %d is 0", i);
    }
    for (int i = desc->rank; i-- > 0;) {
        strides[i] = given ? desc->strides[i] : dense;
        if (rf_mul_overflows(dense, desc->shape[i], &dense) ||
            rf_mul_overflows(desc->shape[i] - 1, strides[i], &step) || rf_add_overflows(last, step, &last))
            return rf_fail(RF_E_INVALID, "tensor: its size overflows in dimension %d", i);
    }
    if (block > 1) {
        /* Quantized tensors are counted in blocks: only a row-major tensor has whole blocks. */
        bool row_major = strides[desc->rank - 1] == 1;
        for (int i = 0; i + 1 < desc->rank; i++) row_major &= strides[i] == strides[i + 1] * desc->shape[i + 1];
        if (!row_major) return rf_fail(RF_E_INVALID, "tensor: %s must be row-major", rf_dtype_name(desc->dtype));
        last = dense / block - 1;
    }
    uint64_t span;
    if (rf_add_overflows(last, 1, &span) || rf_mul_overflows(span, element, &span) ||
        rf_add_overflows(span, desc->byte_offset, &span))
        return rf_fail(RF_E_INVALID, "tensor: its size in bytes overflows");
    memcpy(desc->strides, strides, sizeof strides);
    *bytes = span;
    return RF_OK;
}

rf_status rf_tensor_empty_safe_at(struct rf_device *device, const struct rf_tensor_desc *desc, struct rf_tensor **out,
                                  struct rf_site site) {
    if (!desc || !out) return rf_fail(RF_E_INVALID, "rf_tensor_empty_safe: desc or out is NULL");
    rf_status status = rf_object_check(device, RF_OBJECT_DEVICE, "rf_tensor_empty_safe: device");
    if (status) return status;
    struct rf_tensor_desc checked = *desc;
    RF_PARAMS(struct rf_buffer_params, params);
    params.label = "tensor";
    status = rf_tensor_desc_check(&checked, &params.bytes);
    if (status) return status;
    struct rf_tensor *tensor = calloc(1, sizeof *tensor);
    if (!tensor) return rf_fail(RF_E_NO_MEMORY, "rf_tensor_empty_safe: no host memory");
    status = rf_buffer_create_safe_at(device, &params, &tensor->buffer, site);
    if (status) {
        free(tensor);
        return status;
    }
    tensor->desc = checked;
    rf_object_init(&tensor->object, RF_OBJECT_TENSOR, device);
    *out = tensor;
    return RF_OK;
}

rf_status rf_tensor_destroy(struct rf_tensor **pointer) {
    if (!pointer || !*pointer) return RF_OK;
    struct rf_tensor *tensor = *pointer;
    rf_status status = rf_object_check(tensor, RF_OBJECT_TENSOR, "rf_tensor_destroy: tensor");
    if (status) return status;
    *pointer = NULL;
    status = rf_buffer_destroy(&tensor->buffer);
    rf_object_free(&tensor->object);
    return status;
}

struct rf_buffer *rf_tensor_buffer(const struct rf_tensor *tensor) {
    return rf_object_check(tensor, RF_OBJECT_TENSOR, "rf_tensor_buffer: tensor") ? NULL : tensor->buffer;
}

const struct rf_tensor_desc *rf_tensor_get_desc(const struct rf_tensor *tensor) {
    return rf_object_check(tensor, RF_OBJECT_TENSOR, "rf_tensor_get_desc: tensor") ? NULL : &tensor->desc;
}
