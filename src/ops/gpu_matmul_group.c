/* Products of many rows by groups of waves (kernels/matmul_group.hip): what NVIDIA's sm_90a has. Operands have 16
 * bits here; gpu_matmul.c rounds and decodes what has not.
 *
 * The sums do not depend on the grid, which follows the device: a block for each compute unit, as far as there are
 * tiles. */
#include "ops/gpu_matmul_impl.h"

#include "gpu/device.h"
#include "kernels/matmul_group_args.h"

#define ALIGN 16 /* bytes: where rows begin that the copy engine reads or writes */
/* A product is worth it if about half of a large GPU's units get a tile, and at least half of a tile's rows exist.
 * With fewer tiles the kernels of gpu_matmul.c split k. From measurements with a prototype on an H200. */
#define TILES_ENOUGH 64
#define ROWS_ENOUGH (RF_GROUP_ROWS / 2)

static void name_kernel(enum rf_dtype unit, enum rf_dtype type, char name[64]) {
    snprintf(name, 64, "matmul_group_%s_%s", type_suffix(unit), type_suffix(type));
}

bool rf_matmul_group_there(struct rf_device *device, enum rf_dtype unit, enum rf_dtype type) {
    RF_PARAMS(struct rf_device_info, info);
    char name[64];
    name_kernel(unit, type, name);
    return rf_kernel_is_there(device, name) && rf_device_takes_maps(device) && !rf_device_get_info(device, &info) &&
           info.max_shared_bytes_per_block >= RF_GROUP_SHARED;
}

static uint64_t tiles_of(const struct rf_matmul_args *a) {
    return rf_ceil_div(a->m, RF_GROUP_ROWS) * rf_ceil_div(a->n, RF_GROUP_COLUMNS);
}

bool rf_matmul_group_worth(const struct rf_matmul_args *a) {
    return a->k && a->m > ROWS_ENOUGH && tiles_of(a) >= TILES_ENOUGH;
}

/* A map of a matrix whose rows are copied `box_rows` at a time, 128 bytes of each. */
static struct rf_map matrix_map(enum rf_dtype dtype, uint64_t rows, uint64_t columns, uint64_t stride,
                                uint32_t box_rows) {
    uint64_t element = rf_dtype_bytes(dtype);
    return (struct rf_map){.dtype = dtype,
                           .rank = 2,
                           .sizes = {columns, rows},
                           .strides = {0, stride * element},
                           .box = {(uint32_t)(RF_GROUP_OUT_LINE / element), box_rows},
                           .swizzle = RF_MAP_SWIZZLE_128};
}
static struct rf_arg map_arg(struct rf_operand operand, const struct rf_map *map) {
    return rf_arg_map(operand.buffer, operand.offset_bytes, map);
}

rf_status rf_matmul_group(struct rf_queue *queue, const struct rf_group_product *p) {
    const struct rf_matmul_args *a = &p->args;
    RF_PARAMS(struct rf_device_info, info);
    char name[64];
    name_kernel(p->unit, p->type, name);
    RF_TRY(rf_device_get_info(rf_queue_device(queue), &info));
    struct rf_map x = matrix_map(p->unit, a->m, a->k, a->x_stride, RF_GROUP_BOX_ROWS),
                  weights = matrix_map(p->unit, a->n, a->k, a->k, RF_GROUP_BOX_ROWS),
                  out = matrix_map(p->type, a->m, a->n, a->out_stride, RF_GROUP_OUT_ROWS);
    /* The engine writes ALIGN bytes at a time. */
    bool mapped = rf_operand_address(p->out) % ALIGN == 0 && out.strides[1] % ALIGN == 0 &&
                  a->n * rf_dtype_bytes(p->type) % ALIGN == 0;
    struct rf_arg args[] = {map_arg(p->x, &x),
                            map_arg(p->weights, &weights),
                            mapped ? map_arg(p->out, &out) : rf_arg_map(NULL, 0, NULL),
                            rf_operand_arg(p->out),
                            rf_operand_arg(p->bias),
                            rf_operand_arg(p->residual),
                            rf_arg_struct(a, sizeof *a),
                            rf_arg_u32(mapped)};
    uint32_t units = (uint32_t)RF_MAX(info.compute_units, 1);
    struct rf_grid grid = {.blocks = {(uint32_t)RF_MIN(tiles_of(a), units)},
                           .threads = {RF_GROUP_THREADS},
                           .shared_bytes = RF_GROUP_SHARED};
    return rf_op_launch(queue, name, grid, args, RF_COUNT(args));
}
