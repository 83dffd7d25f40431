/* kv_replicate: gives every query head a copy of its key-value head's keys or values (attention_args.h). Each element
 * is read once and written heads_q / heads_kv times. Rows that follow each other without a gap are best given as one
 * row.
 *
 * Launch: one-dimensional blocks of any size. Grid x is over the elements of a head: a thread takes 16 bytes where
 * sizes, strides and addresses allow it, else one element. Grid y is over batch * heads_kv. Any grid is right. out
 * must not overlap in. */
#include "kernels/attention.h"

RF_DEVICE void replicate(uint32_t bytes, bool vector, uint8_t *out, const uint8_t *in,
                         const struct rf_kv_replicate_args *args, uint32_t group) {
    uint64_t rows = args->rows, dim = args->dim;
    uint64_t per_row = vector ? dim * bytes / 16 : dim, count = rows * per_row;
    RF_NO_UNROLL
    for (uint64_t item = rf_global_x(); item < count; item += rf_global_count_x()) {
        uint64_t row = rows == 1 ? 0 : item / per_row, column = (item - row * per_row) * (vector ? 16 : bytes);
        const uint8_t *from = in + row * args->in.row * bytes + column;
        uint8_t *to = out + row * args->out.row * bytes + column;
        rf_u32x4 sixteen = {0, 0, 0, 0};
        uint32_t one = 0;
        if (vector) sixteen = rf_load_16(from);
        if (!vector) one = bytes == 4 ? *(const uint32_t *)from : *(const uint16_t *)from;
        RF_NO_UNROLL
        for (uint32_t copy = 0; copy < group; copy++, to += args->out.head * bytes) {
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

RF_DEVICE void replicate_heads(uint32_t bytes, uint8_t *out, const uint8_t *in,
                               const struct rf_kv_replicate_args *args) {
    uint32_t heads_kv = (uint32_t)args->heads_kv, group = (uint32_t)args->heads_q / heads_kv;
    uint64_t together = args->dim | args->in.batch | args->in.head | args->out.batch | args->out.head;
    if (args->rows > 1) together |= args->in.row | args->out.row;
    bool vector = together * bytes % 16 == 0 && rf_aligned(in, 16) && rf_aligned(out, 16);
    RF_NO_UNROLL
    for (uint64_t pair = rf_block_y(); pair < args->batch * heads_kv; pair += rf_grid_dim_y()) {
        uint64_t b = pair / heads_kv, h = pair % heads_kv;
        const uint8_t *from = in + (b * args->in.batch + h * args->in.head) * bytes;
        uint8_t *to = out + (b * args->out.batch + h * group * args->out.head) * bytes;
        if (vector) {
            replicate(bytes, true, to, from, args, group);
        } else {
            replicate(bytes, false, to, from, args, group);
        }
    }
}

#define KV_REPLICATE(name, bytes, element)                                                                           \
    RF_KERNEL(kv_replicate_##name, RF_MAX_THREADS, (element *, out), (const element *, in),                          \
              (struct rf_kv_replicate_args, args)) {                                                                 \
        replicate_heads(bytes, (uint8_t *)out, (const uint8_t *)in, &args);                                          \
    }

KV_REPLICATE(b32, 4, uint32_t)
KV_REPLICATE(b16, 2, uint16_t)
