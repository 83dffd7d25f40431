/* Tensor maps as arguments of launches: the checks, and the driver's call that makes one.
 *
 * Everything that the driver would refuse is found before it is asked, because its answer is one code for all of it.
 * The rules are those of cuTensorMapEncodeTiled in cuda.h, and that a map lies inside its buffer. */
#include "gpu/device_impl.h"

enum {
    BOX_MAX = 256,
    GROUP_BYTES = 16,  /* addresses, strides and the rows of boxes are multiples of it */
    PROMOTE_256 = 3,   /* CU_TENSOR_MAP_L2_PROMOTION_L2_256B */
    SWIZZLE_FIRST = 16 /* RF_MAP_SWIZZLE_32 is within twice that */
};
#define SIZE_MOST (UINT64_C(1) << 32)
#define STRIDE_END (UINT64_C(1) << 40)

/* CUtensorMapDataType; -1: there is none. */
static int type_number(enum rf_dtype dtype) {
    switch (dtype) {
    case RF_U8: return 0;
    case RF_I32: return 3;
    case RF_F16: return 6;
    case RF_F32: return 7;
    case RF_BF16: return 9;
    default: return -1;
    }
}

static rf_status check_dimension(const struct rf_map *map, uint32_t i) {
    if (!map->sizes[i] || map->sizes[i] > SIZE_MOST)
        return rf_fail(RF_E_INVALID, "a map with %llu elements in dimension %u, it may have 1 to 2^32",
                       (unsigned long long)map->sizes[i], i);
    if (!map->box[i] || map->box[i] > BOX_MAX)
        return rf_fail(RF_E_INVALID, "a map with a box of %u elements in dimension %u, it may have 1 to %d",
                       map->box[i], i, BOX_MAX);
    if (i && (map->strides[i] % GROUP_BYTES || map->strides[i] >= STRIDE_END))
        return rf_fail(RF_E_INVALID,
                       "a map with a stride of %llu bytes in dimension %u, it must be a multiple of %d below 2^40",
                       (unsigned long long)map->strides[i], i, GROUP_BYTES);
    return RF_OK;
}

/* The bytes from the first element to behind the last one. */
static bool extent_overflows(const struct rf_map *map, uint64_t *bytes) {
    *bytes = map->sizes[0] * rf_dtype_bytes(map->dtype); /* at most 2^34 */
    for (uint32_t i = 1; i < map->rank; i++) {
        uint64_t before;
        if (rf_mul_overflows(map->sizes[i] - 1, map->strides[i], &before) || rf_add_overflows(*bytes, before, bytes))
            return true;
    }
    return false;
}

rf_status rf_map_check(const struct rf_arg *arg, const struct rf_driver *driver) {
    const struct rf_map *map = arg->value.data;
    uint64_t extent;
    if (!driver->map_encode)
        return rf_fail(RF_E_UNSUPPORTED, "a map, and %s has no tensor maps (CUDA has them from 12.0 on)",
                       driver->label);
    if (!map->rank || map->rank > RF_MAP_RANK)
        return rf_fail(RF_E_INVALID, "a map of %u dimensions, it may have 1 to %d", map->rank, RF_MAP_RANK);
    if (type_number(map->dtype) < 0) return rf_fail(RF_E_INVALID, "a map cannot have elements of this type");
    if ((unsigned)map->swizzle > RF_MAP_SWIZZLE_128)
        return rf_fail(RF_E_INVALID, "a map with a swizzle %d, which there is not", (int)map->swizzle);
    for (uint32_t i = 0; i < map->rank; i++) {
        rf_status status = check_dimension(map, i);
        if (status) return status;
    }
    uint64_t row = map->box[0] * rf_dtype_bytes(map->dtype);
    if (row % GROUP_BYTES)
        return rf_fail(RF_E_INVALID, "a map whose box has rows of %llu bytes, which is no multiple of %d",
                       (unsigned long long)row, GROUP_BYTES);
    if (map->swizzle && row > (uint64_t)SWIZZLE_FIRST << map->swizzle)
        return rf_fail(RF_E_INVALID, "a map whose box has rows of %llu bytes, more than the %d of its swizzle",
                       (unsigned long long)row, SWIZZLE_FIRST << map->swizzle);
    if ((uintptr_t)rf_buffer_pointer(arg->buffer, arg->offset) % GROUP_BYTES)
        return rf_fail(RF_E_INVALID, "a map that begins %llu bytes into its buffer, at no multiple of %d",
                       (unsigned long long)arg->offset, GROUP_BYTES);
    if (extent_overflows(map, &extent) || extent > arg->buffer->bytes - arg->offset)
        return rf_fail(RF_E_INVALID, "a map that leaves its buffer: it begins %llu bytes into %llu",
                       (unsigned long long)arg->offset, (unsigned long long)arg->buffer->bytes);
    return RF_OK;
}

int rf_map_make(const struct rf_driver *driver, const struct rf_arg *arg, struct rf_made_map *made) {
    static const uint32_t steps[RF_MAP_RANK] = {1, 1, 1, 1, 1};
    const struct rf_map *map = arg->value.data;
    memset(made, 0, sizeof *made);
    if (!arg->buffer) return RF_DRV_OK;
    return driver->map_encode(made, type_number(map->dtype), map->rank, rf_buffer_pointer(arg->buffer, arg->offset),
                              map->sizes, map->strides + 1, map->box, steps, 0, (int)map->swizzle, PROMOTE_256, 0);
}
