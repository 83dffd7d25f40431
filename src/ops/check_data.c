/* The data of cases: fills tensors of any type and strides with seeded random numbers. */
#include "ops/check_impl.h"

#include <math.h>
#include <stdlib.h>

#include "cpu/quant.h"
#include "cpu/reference.h"

void rf_check_elements(const struct rf_tensor_desc *desc, bool (*visit)(void *user, uint64_t byte), void *user) {
    uint64_t block = rf_dtype_block(desc->dtype), width = rf_dtype_block_bytes(desc->dtype);
    uint64_t elements = rf_op_elements(desc), index[RF_MAX_RANK] = {0}, at = 0;
    for (uint64_t i = 0; i < elements; i += block) {
        if (!visit(user, desc->byte_offset + at / block * width)) return;
        for (int d = desc->rank; d-- > 0;) {
            uint64_t step = d + 1 == desc->rank ? block : 1;
            index[d] += step;
            at += step * desc->strides[d];
            if (index[d] < desc->shape[d]) break;
            at -= index[d] * desc->strides[d];
            index[d] = 0;
        }
    }
}

static double random_unit(uint64_t *state) {
    return (double)(rf_op_random(state) >> 11) * 0x1p-53;
}

static double draw(enum rf_case_data data, uint64_t index, const struct rf_tensor_desc *desc, uint64_t *state) {
    double value = random_unit(state) * 8 - 4;
    uint64_t columns = desc->shape[desc->rank - 1], kind = rf_op_random(state) % 16;
    switch (data) {
    case RF_DATA_MASKED: /* one row is masked whole, others in part */
        return (index / columns == 1 || kind < 4) ? -INFINITY : value;
    case RF_DATA_EXTREME: return value * (kind < 4 ? 1e-6 : kind < 8 ? 1e4 : 20);
    case RF_DATA_SPECIAL: {
        static const double special[] = {NAN, INFINITY, -INFINITY, -0.0, 0.0, 1e-40, -6e-8, 65504};
        return kind < 8 ? special[kind] : value;
    }
    default: return value;
    }
}

struct filling {
    const struct rf_op_tensor *tensor;
    enum rf_case_data data;
    uint64_t *state;
    uint64_t index; /* index of the next element */
};

static bool fill_one(void *user, uint64_t byte) {
    struct filling *filling = user;
    const struct rf_tensor_desc *desc = &filling->tensor->desc;
    char *place = (char *)filling->tensor->host + byte;
    size_t block = rf_dtype_block(desc->dtype);
    if (block > 1) {
        /* A model's weights are small and finite, whatever the activations are. */
        float values[RF_BLOCK_LARGE];
        for (size_t i = 0; i < block; i++) values[i] = (float)(random_unit(filling->state) * 2 - 1);
        rf_quantize_row(desc->dtype, values, place, block);
    } else if (rf_op_is_float(desc->dtype)) {
        rf_element_set(desc->dtype, place, 0, draw(filling->data, filling->index, desc, filling->state));
    } else {
        uint64_t bits = rf_op_random(filling->state);
        memcpy(place, &bits, rf_dtype_bytes(desc->dtype));
    }
    filling->index += block;
    return true;
}

rf_status rf_check_fill(const struct rf_op_call *call, int index, enum rf_case_data data, uint64_t *state) {
    const struct rf_op_tensor *tensor = &call->tensors[index];
    if (!rf_op_given(tensor) || (call->op->fill && call->op->fill(call, index, state))) return RF_OK;
    struct filling filling = {.tensor = tensor, .data = data, .state = state};
    rf_check_elements(&tensor->desc, fill_one, &filling);
    return RF_OK;
}
