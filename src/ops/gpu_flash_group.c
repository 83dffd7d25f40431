/* flash_attention and paged_attention by groups of waves (kernels/flash_attention_group.hip): what NVIDIA's sm_90a
 * has. The grid follows the device, a block for each compute unit as far as there are tiles; no result depends on
 * it. */
#include "ops/gpu_attention_impl.h"

#include <stdio.h>

#include "gpu/device.h"
#include "kernels/attention_group_args.h"

/* About half of a large GPU's units get a tile; with fewer, smaller tiles keep more units busy. */
#define TILES_ENOUGH 64

static uint32_t width_of(uint64_t dim) {
    return dim <= 64 ? 64 : dim <= 128 ? 128 : 256;
}
static uint64_t tiles_of(uint64_t q_rows, uint64_t heads_q, uint64_t batch) {
    return rf_ceil_div(q_rows, RF_FLASH_GROUP_QUERIES) * heads_q * batch;
}
static void name_kernel(const char *op, enum rf_dtype dtype, uint64_t dim, char name[64]) {
    snprintf(name, 64, "%s_group_%s_d%u", op, rf_dtype_name(dtype), width_of(dim));
}
static bool is_there(struct rf_queue *queue, const char *op, enum rf_dtype dtype, uint64_t dim) {
    RF_PARAMS(struct rf_device_info, info);
    struct rf_device *device = rf_queue_device(queue);
    char name[64];
    name_kernel(op, dtype, dim, name);
    return rf_kernel_is_there(device, name) && rf_device_takes_maps(device) && !rf_device_get_info(device, &info) &&
           (uint64_t)RF_MAX(info.max_shared_bytes_per_block, 0) >= RF_FLASH_GROUP_SHARED(width_of(dim));
}

/* A stride of 0 repeats; a map has none. Of one row, head or sequence the stride does not matter. */
static bool map_takes(const struct rf_head_strides *strides, uint64_t rows, uint64_t heads, uint64_t batch) {
    return (rows == 1 || strides->row) && (heads == 1 || strides->head) && (batch == 1 || strides->batch);
}

/* What both ops ask. The engine writes 16 bytes at a time. */
static bool takes(enum rf_dtype dtype, uint64_t dim, uint64_t tiles, float scale) {
    return (dtype == RF_F16 || dtype == RF_BF16) && dim && dim % 8 == 0 && tiles && tiles <= INT32_MAX && scale > 0;
}

static struct rf_map heads_map(enum rf_dtype dtype, const struct rf_head_strides *strides, uint64_t dim,
                               uint64_t rows, uint64_t heads, uint64_t batch, uint32_t box_rows) {
    const uint64_t any = 16; /* bytes, where the stride does not matter */
    return (struct rf_map){.dtype = dtype,
                           .rank = 4,
                           .sizes = {dim, rows, heads, batch},
                           .strides = {0, rows > 1 ? strides->row * 2 : any, heads > 1 ? strides->head * 2 : any,
                                       batch > 1 ? strides->batch * 2 : any},
                           .box = {RF_FLASH_GROUP_LINE, box_rows, 1, 1},
                           .swizzle = RF_MAP_SWIZZLE_128};
}
static struct rf_arg map_arg(struct rf_operand operand, const struct rf_map *map) {
    return rf_arg_map(operand.buffer, operand.offset_bytes, map);
}

static rf_status launch_group(struct rf_queue *queue, const char *op, enum rf_dtype dtype, uint64_t dim,
                              uint64_t tiles, const struct rf_arg *args, size_t count) {
    RF_PARAMS(struct rf_device_info, info);
    char name[64];
    name_kernel(op, dtype, dim, name);
    RF_TRY(rf_device_get_info(rf_queue_device(queue), &info));
    struct rf_grid grid = {.blocks = {(uint32_t)RF_MIN(tiles, (uint64_t)RF_MAX(info.compute_units, 1))},
                           .threads = {RF_FLASH_GROUP_THREADS},
                           .shared_bytes = (uint32_t)RF_FLASH_GROUP_SHARED(width_of(dim))};
    return rf_op_launch(queue, name, grid, args, count);
}

/* ---- flash_attention ---- */

bool rf_flash_group_suits(struct rf_queue *queue, const struct rf_flash_attention_launch *l) {
    const struct rf_flash_attention_args *a = &l->args;
    return !l->mask.buffer && a->k_rows &&
           takes(l->dtype, a->dim, tiles_of(a->q_rows, a->heads_q, a->batch), a->scale) &&
           map_takes(&a->q, a->q_rows, a->heads_q, a->batch) && map_takes(&a->out, a->q_rows, a->heads_q, a->batch) &&
           map_takes(&a->k, a->k_rows, a->heads_kv, a->batch) && map_takes(&a->v, a->k_rows, a->heads_kv, a->batch) &&
           is_there(queue, "flash_attention", l->dtype, a->dim);
}

bool rf_flash_group_worth(uint64_t q_rows, uint64_t heads_q, uint64_t batch) {
    return q_rows >= RF_FLASH_GROUP_QUERIES && tiles_of(q_rows, heads_q, batch) >= TILES_ENOUGH;
}

rf_status rf_flash_group(struct rf_queue *queue, const struct rf_flash_attention_launch *l) {
    const struct rf_flash_attention_args *a = &l->args;
    uint32_t keys = (uint32_t)RF_FLASH_GROUP_KEYS(width_of(a->dim)), rows = RF_FLASH_GROUP_ROWS;
    struct rf_map q = heads_map(l->dtype, &a->q, a->dim, a->q_rows, a->heads_q, a->batch, rows),
                  k = heads_map(l->dtype, &a->k, a->dim, a->k_rows, a->heads_kv, a->batch, keys),
                  v = heads_map(l->dtype, &a->v, a->dim, a->k_rows, a->heads_kv, a->batch, keys),
                  out = heads_map(l->dtype, &a->out, a->dim, a->q_rows, a->heads_q, a->batch, rows);
    const struct rf_arg args[] = {map_arg(l->q, &q), map_arg(l->k, &k), map_arg(l->v, &v), map_arg(l->out, &out),
                                  rf_arg_struct(a, sizeof *a)};
    return launch_group(queue, "flash_attention", l->dtype, a->dim, tiles_of(a->q_rows, a->heads_q, a->batch), args,
                        RF_COUNT(args));
}

/* ---- paged_attention ---- */

/* Stages of keys begin and end with a page. */
bool rf_paged_group_suits(struct rf_queue *queue, const struct rf_paged_attention_launch *l) {
    const struct rf_paged_attention_args *a = &l->args;
    return l->cache_dtype == l->dtype && a->page_rows && a->page_count &&
           takes(l->dtype, a->dim, tiles_of(a->q_rows, a->heads_q, a->batch), a->scale) &&
           (!a->table_width || a->page_rows % RF_FLASH_GROUP_KEYS(width_of(a->dim)) == 0) &&
           map_takes(&a->q, a->q_rows, a->heads_q, a->batch) && map_takes(&a->out, a->q_rows, a->heads_q, a->batch) &&
           map_takes(&a->k, a->page_rows, a->heads_kv, a->page_count) &&
           map_takes(&a->v, a->page_rows, a->heads_kv, a->page_count) &&
           is_there(queue, "paged_attention", l->dtype, a->dim);
}

rf_status rf_paged_group(struct rf_queue *queue, const struct rf_paged_attention_launch *l) {
    const struct rf_paged_attention_args *a = &l->args;
    uint32_t keys = (uint32_t)RF_FLASH_GROUP_KEYS(width_of(a->dim)), rows = RF_FLASH_GROUP_ROWS;
    uint32_t shift = a->table_width ? (uint32_t)__builtin_ctzll(a->page_rows) : 0;
    struct rf_map q = heads_map(l->dtype, &a->q, a->dim, a->q_rows, a->heads_q, a->batch, rows),
                  k = heads_map(l->dtype, &a->k, a->dim, a->page_rows, a->heads_kv, a->page_count, keys),
                  v = heads_map(l->dtype, &a->v, a->dim, a->page_rows, a->heads_kv, a->page_count, keys),
                  out = heads_map(l->dtype, &a->out, a->dim, a->q_rows, a->heads_q, a->batch, rows);
    const struct rf_arg args[] = {map_arg(l->q, &q),           map_arg(l->k, &k),        map_arg(l->v, &v),
                                  map_arg(l->out, &out),       rf_operand_arg(l->table), rf_operand_arg(l->lengths),
                                  rf_arg_struct(a, sizeof *a), rf_arg_u32(shift)};
    return launch_group(queue, "paged_attention", l->dtype, a->dim, tiles_of(a->q_rows, a->heads_q, a->batch), args,
                        RF_COUNT(args));
}
