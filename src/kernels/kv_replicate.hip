/* kv_replicate: out[b][h] = in[b][h / group], for heads_kv * group heads of rows x dim elements: the
 * keys or values of grouped or single key-value heads, for every query head. Bits are copied. Both have
 * strides and a dense last dimension; rows that follow each other without a gap are best given as one.
 * Each element is read once and written group times.
 *
 * Launch: one-dimensional blocks; grid x over the elements of a head (16 bytes a thread where sizes,
 * strides and addresses allow, else one element), any number is right; grid y over batch * heads_kv,
 * any number is right. out must not overlap in. */
#include "kernels/attention.h"

RF_DEVICE void replicate(uint32_t bytes, bool vector, uint8_t *out, const uint8_t *in, struct rf_heads out_strides,
                         struct rf_heads in_strides, uint32_t group, uint64_t rows, uint64_t dim) {
    uint64_t per_row = vector ? dim * bytes / 16 : dim, count = rows * per_row;
    RF_NO_UNROLL
    for (uint64_t item = rf_global_x(); item < count; item += rf_global_count_x()) {
        uint64_t row = rows == 1 ? 0 : item / per_row, column = (item - row * per_row) * (vector ? 16 : bytes);
        const uint8_t *from = in + row * in_strides.row * bytes + column;
        uint8_t *to = out + row * out_strides.row * bytes + column;
        rf_u32x4 sixteen = {0, 0, 0, 0};
        uint32_t one = 0;
        if (vector) sixteen = rf_load_16(from);
        if (!vector) one = bytes == 4 ? *(const uint32_t *)from : *(const uint16_t *)from;
        RF_NO_UNROLL
        for (uint32_t copy = 0; copy < group; copy++, to += out_strides.head * bytes) {
            if (vector) {
                rf_store_16(to, sixteen);
            } else if (bytes == 4) {
                *(uint32_t *)to = one;
            } else {
                *(uint16_t *)to = (uint16_t)one;
            }
        }
    }
}

RF_DEVICE void replicate_heads(uint32_t bytes, uint8_t *out, const uint8_t *in, struct rf_heads out_strides,
                               struct rf_heads in_strides, uint64_t batch, uint32_t heads_kv, uint32_t group,
                               uint64_t rows, uint64_t dim) {
    uint64_t together = dim | in_strides.batch | in_strides.head | out_strides.batch | out_strides.head;
    if (rows > 1) together |= in_strides.row | out_strides.row;
    bool vector = together * bytes % 16 == 0 && rf_aligned(in, 16) && rf_aligned(out, 16);
    RF_NO_UNROLL
    for (uint64_t pair = rf_block_y(); pair < batch * heads_kv; pair += rf_grid_dim_y()) {
        uint64_t b = pair / heads_kv, h = pair % heads_kv;
        const uint8_t *from = in + (b * in_strides.batch + h * in_strides.head) * bytes;
        uint8_t *to = out + (b * out_strides.batch + h * group * out_strides.head) * bytes;
        if (vector) {
            replicate(bytes, true, to, from, out_strides, in_strides, group, rows, dim);
        } else {
            replicate(bytes, false, to, from, out_strides, in_strides, group, rows, dim);
        }
    }
}

#define KV_REPLICATE(name, bytes, element)                                                                           \
    RF_KERNEL(kv_replicate_##name, 1024, (element *, out), (const element *, in), (struct rf_heads, out_strides),    \
              (struct rf_heads, in_strides), (uint64_t, batch), (uint32_t, heads_kv), (uint32_t, group),             \
              (uint64_t, rows), (uint64_t, dim)) {                                                                   \
        replicate_heads(bytes, (uint8_t *)out, (const uint8_t *)in, out_strides, in_strides, batch, heads_kv, group, \
                        rows, dim);                                                                                  \
    }

KV_REPLICATE(b32, 4, uint32_t)
KV_REPLICATE(b16, 2, uint16_t)
