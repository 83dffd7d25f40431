/* embedding: out[r] = row indices[r] of a table, as f32, f16 or bf16; an index outside the table gives a row of zeros
 * (struct rf_embedding_args).
 *
 * Rows of out are dense. With a quantized table columns is a multiple of the type's block, and table and out are at
 * multiples of 16 bytes. A float table has any columns and any alignment of elements. out overlaps neither input.
 * Launch: any grid and one-dimensional block; rows are in y, and in x a thread takes 8 elements of a row to f32, else
 * a unit of 8 to 32 (quant.h). */
#include "kernels/quant.h"

/* Lanes share a row as in dequantize.hip. */
RF_DEVICE void embedding_quant(enum rf_weight weight, enum rf_type type, void *out, const void *table,
                               const int32_t *indices, struct rf_embedding_args args) {
    uint64_t count = args.count, columns = args.columns, table_rows = args.table_rows;
    uint32_t parts = type == RF_TYPE_F32 ? 1 : rf_unit_parts(weight);
    uint64_t turns = columns / (8 * parts), row_bytes = rf_weight_row_bytes(weight, columns);
    RF_NO_UNROLL
    for (uint64_t r = rf_block_y(); r < count; r += rf_grid_dim_y()) {
        int32_t index = indices[r];
        bool inside = index >= 0 && (uint64_t)index < table_rows;
        const uint8_t *row = (const uint8_t *)table + (inside ? (uint64_t)index : 0) * row_bytes;
        RF_NO_UNROLL
        for (uint64_t turn = rf_global_x(); turn < turns; turn += rf_global_count_x()) {
            uint64_t element = type == RF_TYPE_F32 ? turn * 8 : rf_unit_element(weight, turn);
            struct rf_unit all;
            if (inside && type == RF_TYPE_F32) all.part[0] = rf_read_part_at(weight, row, element);
            if (inside && type != RF_TYPE_F32) rf_read_unit(weight, row, turn, &all);
            RF_UNROLL
            for (uint32_t p = 0; p < parts; p++) {
                float values[8] = {0, 0, 0, 0, 0, 0, 0, 0};
                if (inside) rf_part_values(weight, &all.part[p], values);
                rf_store_many(type, 8, out, r * columns + element + p * rf_unit_stride(weight), values);
            }
        }
    }
}

RF_DEVICE void embedding_float(enum rf_type from, enum rf_type type, void *out, const void *table,
                               const int32_t *indices, struct rf_embedding_args args) {
    uint64_t count = args.count, columns = args.columns, table_rows = args.table_rows;
    bool vector = columns % 8 == 0 && rf_aligned(table, 16) && rf_aligned(out, 16);
    RF_NO_UNROLL
    for (uint64_t r = rf_block_y(); r < count; r += rf_grid_dim_y()) {
        int32_t index = indices[r];
        bool inside = index >= 0 && (uint64_t)index < table_rows;
        uint64_t start = (inside ? (uint64_t)index : 0) * columns;
        if (vector) {
            RF_NO_UNROLL
            for (uint64_t at = rf_global_x() * 8; at < columns; at += rf_global_count_x() * 8) {
                float values[8] = {0, 0, 0, 0, 0, 0, 0, 0};
                if (inside) rf_load_many(from, 8, table, start + at, values);
                rf_store_many(type, 8, out, r * columns + at, values);
            }
        } else {
            RF_NO_UNROLL
            for (uint64_t at = rf_global_x(); at < columns; at += rf_global_count_x())
                rf_store(type, out, r * columns + at, inside ? rf_load(from, table, start + at) : 0.0f);
        }
    }
}

#define EMBEDDING_ONE(kind, table_name, from, out_name, type, element)                                               \
    RF_KERNEL(embedding_##table_name##_##out_name, RF_QUANT_THREADS, (element *, out), (const void *, table),        \
              (const int32_t *, indices), (struct rf_embedding_args, args)) {                                        \
        embedding_##kind(from, type, out, table, indices, args);                                                     \
    }
#define EMBEDDING_TO_ALL(kind, table_name, from)                                                                     \
    EMBEDDING_ONE(kind, table_name, from, f32, RF_TYPE_F32, float)                                                   \
    EMBEDDING_ONE(kind, table_name, from, f16, RF_TYPE_F16, rf_f16)                                                  \
    EMBEDDING_ONE(kind, table_name, from, bf16, RF_TYPE_BF16, rf_bf16)
#define EMBEDDING_FLOAT(name, NAME, parts) EMBEDDING_TO_ALL(float, name, RF_TYPE_##NAME)
#define EMBEDDING_QUANT(name, NAME, parts) EMBEDDING_TO_ALL(quant, name, RF_WEIGHT_##NAME)

RF_EACH_FLOAT_WEIGHT(EMBEDDING_FLOAT)
RF_EACH_QUANT_WEIGHT(EMBEDDING_QUANT)
