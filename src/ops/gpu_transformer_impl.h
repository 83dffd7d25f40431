/* What the launchers of a transformer's glue share: names and types, grids, and the axes of an array. */
#ifndef RF_OPS_GPU_TRANSFORMER_IMPL_H
#define RF_OPS_GPU_TRANSFORMER_IMPL_H

#include <stdio.h>

#include "ops/gpu_transformer.h"

#define GRID_X_MAX (1u << 30)
#define GRID_YZ_MAX 65535u

/* "f32", "f16", "bf16"; NULL for another. */
static inline const char *suffix(enum rf_dtype dtype) {
    return dtype == RF_F32 ? "f32" : dtype == RF_F16 ? "f16" : dtype == RF_BF16 ? "bf16" : NULL;
}
static inline rf_status float_type(const char *op, enum rf_dtype dtype) {
    if (suffix(dtype)) return RF_OK;
    const char *name = rf_dtype_name(dtype);
    return rf_fail(RF_E_UNSUPPORTED, "%s: no kernel for type %s: f32, f16 or bf16", op, name ? name : "?");
}
static inline rf_status nulls(const char *op, const void *queue, const void *args) {
    return queue && args ? RF_OK : rf_fail(RF_E_INVALID, "%s: queue or arguments are NULL", op);
}
static inline uint32_t clamp(uint64_t value, uint32_t most) {
    return (uint32_t)(value < 1 ? 1 : value > most ? most : value);
}

static inline void device_shape(struct rf_queue *queue, uint32_t *wave, uint32_t *units) {
    RF_PARAMS(struct rf_device_info, info);
    if (rf_device_get_info(rf_queue_device(queue), &info)) info.wave_size = info.compute_units = 0;
    *wave = info.wave_size == 64 ? 64 : 32;
    *units = clamp((uint64_t)(info.compute_units > 0 ? info.compute_units : 1), 1024);
}

struct axis {
    uint64_t size, out, in;
};

/* Drops dimensions of 1 and puts those that are furthest apart in the output first. Returns how many are left. */
static inline int order(struct axis *axes, int rank) {
    int count = 0;
    for (int i = 0; i < rank; i++)
        if (axes[i].size > 1) axes[count++] = axes[i];
    for (int i = 1; i < count; i++)
        for (int k = i; k > 0 && axes[k - 1].out < axes[k].out; k--) {
            struct axis swap = axes[k];
            axes[k] = axes[k - 1];
            axes[k - 1] = swap;
        }
    return count;
}
/* And joins neighbours that are dense in both arrays. */
static inline int simplify(struct axis *axes, int rank) {
    int count = order(axes, rank);
    for (int i = count - 1; i > 0; i--)
        if (axes[i - 1].out == axes[i].out * axes[i].size && axes[i - 1].in == axes[i].in * axes[i].size) {
            axes[i - 1] = (struct axis){axes[i - 1].size * axes[i].size, axes[i].out, axes[i].in};
            for (int k = i; k + 1 < count; k++) axes[k] = axes[k + 1];
            count--;
        }
    return count;
}

/* Whether the elements of the output lie apart from one another: sorted by stride, each dimension steps over all
 * that the smaller ones span. (Stricter than needed for some interleaved layouts, never too lax.) */
static inline bool distinct(const struct axis *axes, int count) {
    for (int i = count - 1; i >= 0; i--) {
        uint64_t span = 0;
        for (int k = i + 1; k < count; k++) span += (axes[k].size - 1) * axes[k].out;
        if (axes[i].out <= span) return false;
    }
    return true;
}

#endif
