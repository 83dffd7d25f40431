/* Rows held in registers by a team of threads: a wave or a whole block.
 *
 * A lane holds RF_ROW_LANE_BYTES of a row in vectors (RF_ROW_WORDS words: 16 elements of f32, 32 of a
 * 16-bit type), or RF_ROW_SINGLES elements where the row is not aligned for vectors. A row that the team
 * can hold is read once; a longer one is read in pieces of that size, twice (the second time mostly from
 * a cache). Each wave takes a stretch of the piece; within it, neighbouring lanes hold neighbouring
 * vectors or elements, at distances that are constants.
 *
 * norm_args.h says how a row kernel is launched. */
#ifndef RF_KERNELS_ROWS_H
#define RF_KERNELS_ROWS_H

#include "kernels/kernel.h"

#include "kernels/norm_args.h"

/* In the functions below, wave says whether the team is a wave, and vector whether the row is accessed in
 * vectors; both are constants at compile time, as is type. */
#define RF_ROW_WORDS (RF_ROW_LANE_BYTES / 4)
#define RF_ROW_SINGLES 8

/* Elements per memory access: as many as fill 16 bytes, or 1. */
RF_DEVICE uint32_t rf_row_group(enum rf_type type, bool vector) {
    return !vector ? 1 : type == RF_TYPE_F32 ? 4 : 8;
}
/* Whether all rows of a dense matrix can be accessed in vectors. */
RF_DEVICE bool rf_rows_vector(enum rf_type type, const void *base, uint64_t columns) {
    return columns % rf_row_group(type, true) == 0 && rf_aligned(base, 16);
}
/* Elements a lane holds. */
RF_DEVICE uint32_t rf_row_held(enum rf_type type, bool vector) {
    return !vector ? RF_ROW_SINGLES : type == RF_TYPE_F32 ? RF_ROW_WORDS : 2 * RF_ROW_WORDS;
}
/* Words that a lane holds them in. */
RF_DEVICE uint32_t rf_row_words(bool vector) {
    return vector ? RF_ROW_WORDS : RF_ROW_SINGLES;
}
/* Elements the team holds: a piece of a row. */
RF_DEVICE uint32_t rf_row_piece(enum rf_type type, bool vector, bool wave) {
    return (wave ? (uint32_t)RF_WAVE : rf_block_dim_x()) * rf_row_held(type, vector);
}

/* The rows this team takes: first, first + step, … */
RF_DEVICE uint64_t rf_team_first_row(bool wave) {
    if (!wave) return rf_block_x();
    return (uint64_t)rf_block_x() * (rf_block_dim_x() / RF_WAVE) + rf_thread_x() / RF_WAVE;
}
RF_DEVICE uint64_t rf_team_row_step(bool wave) {
    return (uint64_t)rf_grid_dim_x() * (wave ? rf_block_dim_x() / RF_WAVE : 1);
}

/* Where in a piece this lane's elements begin. Opaque, so that the addresses are computed in the loop over
 * the rows instead of being kept in registers around it. */
RF_DEVICE uint32_t rf_row_column(enum rf_type type, bool vector, bool wave) {
    uint32_t stretch = wave ? 0 : rf_thread_x() / RF_WAVE * (RF_WAVE * rf_row_held(type, vector));
    return rf_opaque(stretch + rf_lane() * rf_row_group(type, vector));
}
/* How much further the elements of access 'slot' are, a constant; and whether they are inside a piece of which
 * 'left' elements belong to the row. */
RF_DEVICE uint32_t rf_row_step(enum rf_type type, bool vector, uint32_t slot) {
    return slot * RF_WAVE * rf_row_group(type, vector);
}
RF_DEVICE bool rf_row_inside(uint32_t step, uint32_t left, uint32_t first) {
    return (int32_t)step < (int32_t)(left - first);
}
RF_DEVICE uint32_t rf_row_left(uint32_t piece, uint64_t columns, uint64_t start) {
    return (uint32_t)rf_min_u64(columns - start, piece);
}

/* Loads a piece; elements past the end get the bits 'beyond' (of f32, or a pair of 16-bit ones). */
RF_DEVICE void rf_row_load(enum rf_type type, bool vector, bool wave, const void *piece, uint32_t left,
                           uint32_t beyond, uint32_t *words) {
    uint32_t group = rf_row_group(type, vector), first = rf_row_column(type, vector, wave);
    const void *from = rf_at(type, piece, first);
    RF_UNROLL
    for (uint32_t slot = 0; slot < rf_row_held(type, vector) / group; slot++) {
        uint32_t at = rf_row_step(type, vector, slot);
        bool inside = rf_row_inside(at, left, first);
        if (vector) {
            rf_u32x4 four = {beyond, beyond, beyond, beyond};
            if (inside) four = rf_load_16(rf_at(type, from, at));
            RF_UNROLL
            for (uint32_t k = 0; k < 4; k++) words[4 * slot + k] = four[k];
        } else {
            words[slot] = inside ? rf_bits_of_f32(rf_load(type, from, at)) : beyond;
        }
    }
}
/* Element k of those the lane holds. */
RF_DEVICE float rf_row_value(enum rf_type type, bool vector, const uint32_t *words, uint32_t k) {
    if (!vector || type == RF_TYPE_F32) return rf_f32_of_bits(words[k]);
    return rf_f32_of_16(type, (uint16_t)(words[k / 2] >> k % 2 * 16));
}
/* Stores the elements of one access. */
RF_DEVICE void rf_row_store(enum rf_type type, bool vector, void *to, uint32_t at, const float *values) {
    if (vector) {
        rf_store_many(type, rf_row_group(type, true), to, at, values);
    } else {
        rf_store(type, to, at, values[0]);
    }
}

#endif
