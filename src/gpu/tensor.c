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
    size_t bytes;
} dtypes[RF_DTYPE_COUNT] = {
    [RF_F32] = {"f32", 4}, [RF_F16] = {"f16", 2}, [RF_BF16] = {"bf16", 2},
    [RF_I32] = {"i32", 4}, [RF_I8] = {"i8", 1},   [RF_U8] = {"u8", 1},
};

const char *rf_dtype_name(enum rf_dtype dtype) {
    return (unsigned)dtype < RF_DTYPE_COUNT ? dtypes[dtype].name : "?";
}
size_t rf_dtype_bytes(enum rf_dtype dtype) { return (unsigned)dtype < RF_DTYPE_COUNT ? dtypes[dtype].bytes : 0; }

rf_status rf_tensor_desc_check(struct rf_tensor_desc *desc, uint64_t *bytes) {
    if (!desc || !bytes) return rf_fail(RF_E_INVALID, "tensor: desc or bytes is NULL");
    size_t element = rf_dtype_bytes(desc->dtype);
    if (!element) return rf_fail(RF_E_INVALID, "tensor: %d is no dtype", (int)desc->dtype);
    if (desc->rank < 1 || desc->rank > RF_MAX_RANK)
        return rf_fail(RF_E_INVALID, "tensor: rank %d, allowed are 1 to %d", desc->rank, RF_MAX_RANK);
    if (desc->byte_offset % element)
        return rf_fail(RF_E_INVALID, "tensor: byte offset %llu is not a multiple of %zu",
                       (unsigned long long)desc->byte_offset, element);
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
