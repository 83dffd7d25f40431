/* flash_attention by groups of waves (kernels/flash_attention_group.hip): what NVIDIA's sm_90a has. The grid follows
 * the device, a block for each compute unit as far as there are tiles; no result depends on it. */
#include "ops/gpu_attention_impl.h"

#include <stdio.h>

#include "gpu/device.h"
#include "kernels/attention_group_args.h"

/* About half of a large GPU's units get a tile; with fewer, smaller tiles keep more units busy. */
#define TILES_ENOUGH 64

static uint32_t width_of(uint64_t dim) {
    return dim <= 64 ? 64 : dim <= 128 ? 128 : 256;
}
static uint64_t tiles_of(const struct rf_flash_attention_args *a) {
    return rf_ceil_div(a->q_rows, RF_FLASH_GROUP_QUERIES) * a->heads_q * a->batch;
}
static void name_kernel(const struct rf_flash_attention_launch *l, char name[64]) {
    snprintf(name, 64, "flash_attention_group_%s_d%u", rf_dtype_name(l->dtype), width_of(l->args.dim));
}

/* A stride of 0 repeats; a map has none. Of one row, head or sequence the stride does not matter. */
static bool map_takes(const struct rf_head_strides *strides, uint64_t rows, uint64_t heads, uint64_t batch) {
    return (rows == 1 || strides->row) && (heads == 1 || strides->head) && (batch == 1 || strides->batch);
}

bool rf_flash_group_suits(struct rf_queue *queue, const struct rf_flash_attention_launch *l) {
    const struct rf_flash_attention_args *a = &l->args;
    RF_PARAMS(struct rf_device_info, info);
    struct rf_device *device = rf_queue_device(queue);
    char name[64];
    if (l->mask.buffer || (l->dtype != RF_F16 && l->dtype != RF_BF16) || !(a->scale > 0)) return false;
    if (!a->k_rows || !a->q_rows || !a->batch || !a->heads_q || !a->dim || tiles_of(a) > INT32_MAX) return false;
    if (a->dim % 8) return false; /* the engine writes 16 bytes at a time */
    if (!map_takes(&a->q, a->q_rows, a->heads_q, a->batch) || !map_takes(&a->out, a->q_rows, a->heads_q, a->batch) ||
        !map_takes(&a->k, a->k_rows, a->heads_kv, a->batch) || !map_takes(&a->v, a->k_rows, a->heads_kv, a->batch))
        return false;
    name_kernel(l, name);
    return rf_kernel_is_there(device, name) && rf_device_takes_maps(device) && !rf_device_get_info(device, &info) &&
           (uint64_t)RF_MAX(info.max_shared_bytes_per_block, 0) >= RF_FLASH_GROUP_SHARED(width_of(a->dim));
}

bool rf_flash_group_worth(const struct rf_flash_attention_launch *l) {
    return l->args.q_rows >= RF_FLASH_GROUP_QUERIES && tiles_of(&l->args) >= TILES_ENOUGH;
}

static struct rf_map heads_map(const struct rf_flash_attention_launch *l, const struct rf_head_strides *strides,
                               uint64_t rows, uint64_t heads, uint32_t box_rows) {
    const uint64_t any = 16; /* bytes, where the stride does not matter */
    return (struct rf_map){.dtype = l->dtype,
                           .rank = 4,
                           .sizes = {l->args.dim, rows, heads, l->args.batch},
                           .strides = {0, rows > 1 ? strides->row * 2 : any, heads > 1 ? strides->head * 2 : any,
                                       l->args.batch > 1 ? strides->batch * 2 : any},
                           .box = {RF_FLASH_GROUP_LINE, box_rows, 1, 1},
                           .swizzle = RF_MAP_SWIZZLE_128};
}

rf_status rf_flash_group(struct rf_queue *queue, const struct rf_flash_attention_launch *l) {
    const struct rf_flash_attention_args *a = &l->args;
    uint32_t width = width_of(a->dim), keys = (uint32_t)RF_FLASH_GROUP_KEYS(width);
    RF_PARAMS(struct rf_device_info, info);
    char name[64];
    name_kernel(l, name);
    RF_TRY(rf_device_get_info(rf_queue_device(queue), &info));
    struct rf_map q = heads_map(l, &a->q, a->q_rows, a->heads_q, RF_FLASH_GROUP_ROWS),
                  k = heads_map(l, &a->k, a->k_rows, a->heads_kv, keys),
                  v = heads_map(l, &a->v, a->k_rows, a->heads_kv, keys),
                  out = heads_map(l, &a->out, a->q_rows, a->heads_q, RF_FLASH_GROUP_ROWS);
    const struct rf_arg args[] = {rf_arg_map(l->q.buffer, l->q.offset_bytes, &q),
                                  rf_arg_map(l->k.buffer, l->k.offset_bytes, &k),
                                  rf_arg_map(l->v.buffer, l->v.offset_bytes, &v),
                                  rf_arg_map(l->out.buffer, l->out.offset_bytes, &out), rf_arg_struct(a, sizeof *a)};
    struct rf_grid grid = {.blocks = {(uint32_t)RF_MIN(tiles_of(a), (uint64_t)RF_MAX(info.compute_units, 1))},
                           .threads = {RF_FLASH_GROUP_THREADS},
                           .shared_bytes = (uint32_t)RF_FLASH_GROUP_SHARED(width)};
    return rf_op_launch(queue, name, grid, args, RF_COUNT(args));
}
