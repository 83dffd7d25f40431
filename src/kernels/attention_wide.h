/* Attention for many queries on matrix units with little idle time: what the wide kernels do on NVIDIA (and on the
 * host, so that it can be tried there).
 *
 * As in attention_matrix.h a block of 4 waves takes 'queries' queries of one head, but a wave works on two steps of
 * keys at once: while the matrix units weigh the values of one step, the scores of the step behind it become weights.
 * So values are used a step later than keys, and tiles of values are cut a step later than tiles of keys:
 *
 *     tile          0      1      2
 *     keys        |0 1 | |2 3 | |4 5 |      (numbers are steps, two of them a tile)
 *     values      |  0 | |1 2 | |3 4 |
 *
 * There are two tiles of each; while one is used the next one arrives, and a barrier a tile is enough.
 *
 * Scores are not taken from a row's maximum but from a reference near it, which moves only when the maximum has left
 * it by 2^RF_WIDE_SLACK: what was summed before must then be shrunk, which costs as much as a fifth of a step and
 * would otherwise be due at most steps for some row. Weights are at most 2^RF_WIDE_SLACK, which f16 holds.
 *
 * Before the first step zeros are weighed, by zero; the step behind a wave's last one is scored too, and hidden: what
 * lies in the tile then is of no importance. */
#ifndef RF_KERNELS_ATTENTION_WIDE_H
#define RF_KERNELS_ATTENTION_WIDE_H

#include "kernels/attention_matrix.h"

/* The wide kernels' shape. AMD has fewer registers; the wide kernels there are those of attention_matrix.h, which
 * take RF_WIDE_QUERIES queries in two turns. */
#if defined(RF_NVIDIA)
#define RF_WIDE 1
#define RF_WIDE_SHAPE {RF_WIDE_DIM, RF_WIDE_QUERIES, RF_WIDE_KEYS(1), RF_MATRIX_WAVES, RF_WIDE_KEYS(1) / 2}
#elif defined(RF_HOST)
#define RF_WIDE 1
/* Half the queries and twice the tiles need the same shared memory. */
#define RF_WIDE_SHAPE {RF_WIDE_DIM, RF_WIDE_QUERIES / 2, RF_WIDE_KEYS(0), RF_MATRIX_WAVES, RF_WIDE_KEYS(0) / 2}
#else
#define RF_WIDE 0
#define RF_WIDE_SHAPE RF_MATRIX_SHAPE_OF(RF_WIDE_DIM, RF_WIDE_KEYS(0))
#endif
#define RF_WIDE_SLACK 8.0f

#if RF_WIDE

/* This thread's share of a tile of rows: first to first + count - 1 of those at base, of which 0 to end are there. */
RF_DEVICE void rf_wide_stage(struct rf_matrix_shape shape, uint32_t count, uint16_t *tile, const uint16_t *base,
                             uint64_t row, int32_t first, uint32_t end, uint32_t dim) {
    uint32_t per_line = shape.dim / 8, lines = shape.waves * RF_WAVE / per_line, pitch = rf_matrix_pitch(shape);
    uint32_t line = rf_thread_x() / per_line, column = rf_thread_x() % per_line * 8;
    uint16_t *to = tile + line * pitch + column;
    uint64_t at = (uint64_t)((int64_t)first + line) * row + column, step = lines * row;
    if (first >= 0 && (uint32_t)first + count <= end && dim == shape.dim) {
        const uint16_t *from = base + at;
        RF_TILE_UNROLL
        for (uint32_t i = 0; i < count / lines; i++, from += step) rf_copy_16_there(to + i * lines * pitch, from);
        return;
    }
    RF_NO_UNROLL
    for (uint32_t i = 0; i < count / lines; i++, at += step) {
        int64_t number = (int64_t)first + line + i * lines;
        bool there = number >= 0 && number < end && column < dim;
        rf_copy_16(to + i * lines * pitch, base + (there ? at : 0), there);
    }
}

/* Hides what a row does not see, and applies the scale where that cannot wait (factor is 1 then). */
RF_DEVICE void rf_wide_hide(struct rf_matrix_shape shape, const struct rf_query_view *view, uint32_t wave_row,
                            uint32_t first_key, float scale, struct rf_sums scores[2][4]) {
    RF_TILE_UNROLL
    for (uint32_t m = 0; m < shape.queries / shape.waves / 16; m++) {
        RF_TILE_UNROLL
        for (uint32_t r = 0; r < RF_SUM_ROWS; r++) {
            uint32_t sees = rf_query_sees(view, wave_row + m * 16 + rf_sum_row(r));
            RF_TILE_UNROLL
            for (uint32_t i = 0; i < shape.step / 16 * RF_SUM_COLUMNS; i++) {
                float *score = &scores[m][i / RF_SUM_COLUMNS].value[rf_sum_index(r, i % RF_SUM_COLUMNS)];
                uint32_t key = first_key + i / RF_SUM_COLUMNS * 16 + rf_sum_column(i % RF_SUM_COLUMNS);
                *score = key < sees ? *score * scale : -RF_INFINITY;
            }
        }
    }
}

/* Moves the references (rows->max, before the factor) that the maxima have left; shrink: by what that makes earlier
 * weights too large. Says whether the sums of the wave's rows must be shrunk. */
RF_DEVICE bool rf_wide_follow(struct rf_matrix_shape shape, float factor, const struct rf_sums scores[2][4],
                              struct rf_matrix_rows *rows, float shrink[2][RF_SUM_ROWS]) {
    float slack = RF_WIDE_SLACK * rf_rcp(factor);
    bool moved = false;
    RF_TILE_UNROLL
    for (uint32_t m = 0; m < shape.queries / shape.waves / 16; m++) {
        RF_TILE_UNROLL
        for (uint32_t r = 0; r < RF_SUM_ROWS; r++) {
            float most = -RF_INFINITY;
            RF_TILE_UNROLL
            for (uint32_t i = 0; i < shape.step / 16 * RF_SUM_COLUMNS; i++)
                most = rf_max(most, scores[m][i / RF_SUM_COLUMNS].value[rf_sum_index(r, i % RF_SUM_COLUMNS)]);
            most = rf_sum_row_max(most);
            bool leaves = most > rows->max[m][r] + slack;
            float reference = leaves ? most : rows->max[m][r];
            shrink[m][r] = rf_exp2((rows->max[m][r] - rf_softmax_shift(reference)) * factor);
            rows->max[m][r] = reference;
            moved = moved || leaves;
        }
    }
    return rf_wave_ballot(moved) != 0;
}

/* Zero, but the compiler believes that it depends on a weight: what is loaded from there on is used after that weight
 * is computed. Weights are not negative. */
RF_DEVICE uint32_t rf_wide_after(float weight) {
#if defined(RF_NVIDIA)
    uint32_t zero;
    __asm__("shr.u32 %0, %1, 31;" : "=r"(zero) : "r"(rf_bits_of_f32(weight)));
    return zero;
#else
    (void)weight;
    return 0;
#endif
}

/* Adds the values of the step before, weighted, while the scores become weights. The compiler would let the matrix
 * units finish first and then idle; so the later products wait for the weights, four by four. */
RF_DEVICE void rf_wide_weigh(enum rf_type type, struct rf_matrix_shape shape, float factor,
                             const float shrink[2][RF_SUM_ROWS], const uint16_t *values,
                             const struct rf_left weights[2][2], struct rf_sums scores[2][4],
                             struct rf_matrix_rows *rows, struct rf_sums result[2][16]) {
    uint32_t pitch = rf_matrix_pitch(shape), groups = shape.queries / shape.waves / 16, across = shape.dim / 16;
    uint32_t products = shape.step / 16 * across, per_row = shape.step / 16 * RF_SUM_COLUMNS;
    uint32_t count = groups * RF_SUM_ROWS * per_row, done = 0, after = 0;
    RF_TILE_UNROLL
    for (uint32_t i = 0; i < groups * RF_SUM_ROWS; i++)
        rows->sum[i / RF_SUM_ROWS][i % RF_SUM_ROWS] *= shrink[i / RF_SUM_ROWS][i % RF_SUM_ROWS];
    RF_TILE_UNROLL
    for (uint32_t p = 0; p < products; p++) {
        uint32_t k = p / across, n = p % across;
        struct rf_right right = rf_right_load(values + after + k * 16 * pitch + n * 16, pitch);
        RF_TILE_UNROLL
        for (uint32_t m = 0; m < groups; m++) rf_tile_multiply(type, &result[m][n], &weights[m][k], &right);
        /* The first products, a third of them, go with the search for the maxima. */
        uint32_t until = p < products / 3 ? 0 : (p - products / 3 + 1) * 4;
        RF_TILE_UNROLL
        for (; done < count && (done < until || p + 1 == products); done++) {
            uint32_t m = done / (RF_SUM_ROWS * per_row), r = done / per_row % RF_SUM_ROWS, i = done % per_row;
            float *score = &scores[m][i / RF_SUM_COLUMNS].value[rf_sum_index(r, i % RF_SUM_COLUMNS)];
            /* 1 at the reference, however large that is */
            *score = rf_exp2((*score - rf_softmax_shift(rows->max[m][r])) * factor);
            rows->sum[m][r] += *score;
            after = rf_wide_after(*score);
        }
    }
}

RF_DEVICE void rf_wide_shrink(struct rf_matrix_shape shape, const float shrink[2][RF_SUM_ROWS],
                              struct rf_sums result[2][16]) {
    RF_TILE_UNROLL
    for (uint32_t m = 0; m < shape.queries / shape.waves / 16; m++) {
        RF_TILE_UNROLL
        for (uint32_t r = 0; r < RF_SUM_ROWS; r++) {
            RF_TILE_UNROLL
            for (uint32_t i = 0; i < shape.dim / 16 * RF_SUM_COLUMNS; i++)
                result[m][i / RF_SUM_COLUMNS].value[rf_sum_index(r, i % RF_SUM_COLUMNS)] *= shrink[m][r];
        }
    }
}

/* What a block puts by in shared memory, to have more registers for its sums. */
struct rf_wide_notes {
    const uint16_t *k, *v;
    uint16_t *out;
    uint32_t first_query;
};

/* What is the same for all steps of a wave. */
struct rf_wide_wave {
    const struct rf_query_view *view;
    const struct rf_wide_notes *notes;
    uint32_t end; /* keys from here on are seen by none of its queries */
    float scale;  /* times log2 e */
    const uint16_t *queries;
};

/* The first query of this wave. */
RF_DEVICE uint32_t rf_wide_row(struct rf_matrix_shape shape, const struct rf_wide_notes *notes) {
    return notes->first_query + rf_thread_x() / RF_WAVE * (shape.queries / shape.waves);
}

/* One step: its keys are scored and the values of the step before it are weighted. */
RF_DEVICE void rf_wide_turn(enum rf_type type, struct rf_matrix_shape shape, const struct rf_wide_wave *wave,
                            const uint16_t *keys, const uint16_t *values, uint32_t first_key,
                            struct rf_left weights[2][2], struct rf_matrix_rows *rows, struct rf_sums result[2][16]) {
    bool late = wave->scale > 0.0f; /* the scale may wait for the exponential */
    float factor = late ? wave->scale : 1.0f, shrink[2][RF_SUM_ROWS];
    struct rf_sums scores[2][4];
    rf_matrix_clear_all(shape, scores);
    rf_matrix_scores(type, shape, wave->queries, keys, 0, shape.dim, scores);
    /* A query sees at most one key more than the query before it. */
    if (!late || first_key + shape.step + shape.queries / shape.waves - 1 > wave->end)
        rf_wide_hide(shape, wave->view, rf_wide_row(shape, wave->notes), first_key, late ? 1.0f : wave->scale,
                     scores);
    bool moved = rf_wide_follow(shape, factor, scores, rows, shrink);
    rf_wide_weigh(type, shape, factor, shrink, values, weights, scores, rows, result);
    uint32_t across = shape.step / 16;
    RF_TILE_UNROLL
    for (uint32_t i = 0; i < shape.queries / shape.waves / 16 * across; i++)
        weights[i / across][i % across] = rf_left_of_sums(type, &scores[i / across][i % across]);
    if (moved) rf_wide_shrink(shape, shrink, result);
}

/* As rf_attend_matrix, not paged, of one type, without a mask. shared has RF_MATRIX_TILES_BYTES(queries, 4, keys,
 * shape.dim) and RF_WIDE_NOTES_BYTES. keys is two steps. */
RF_DEVICE void rf_attend_wide(enum rf_type type, struct rf_matrix_shape shape, uint16_t *out, uint64_t out_row,
                              const uint16_t *q, uint64_t q_row, const struct rf_keys *keys,
                              const struct rf_query_view *view, uint32_t first_query, uint32_t dim, float scale,
                              uint16_t *shared) {
    uint32_t pitch = rf_matrix_pitch(shape), groups = shape.queries / shape.waves / 16, tile = shape.keys * pitch;
    uint32_t half = shape.step * pitch;
    uint16_t *query_tile = shared, *key_tile = query_tile + shape.queries * pitch, *value_tile = key_tile + 2 * tile;
    struct rf_wide_notes *notes = (struct rf_wide_notes *)(void *)(value_tile + 2 * tile);
    struct rf_matrix_place place = rf_matrix_find(shape, view, first_query);
    uint32_t end = place.end;
    struct rf_wide_wave wave = {view, notes, place.wave_end, scale * RF_LOG2_E,
                                query_tile + (place.row - first_query) * pitch};
    struct rf_matrix_rows rows;
    struct rf_left weights[2][2];
    struct rf_sums result[2][16];
    rf_matrix_begin(shape, &rows, result);
    RF_TILE_UNROLL
    for (uint32_t m = 0; m < groups; m++) {
        RF_TILE_UNROLL
        for (uint32_t i = 0; i < 2 * RF_TILE_WORDS; i++) weights[m][i / RF_TILE_WORDS].words[i % RF_TILE_WORDS] = 0;
    }
    rf_barrier(); /* all have done with what they did before in this memory */
    if (rf_thread_x() == 0) {
        notes->k = (const uint16_t *)keys->k;
        notes->v = (const uint16_t *)keys->v;
        notes->out = out;
        notes->first_query = first_query;
    }
    rf_wide_stage(shape, shape.queries, query_tile, q, q_row, (int32_t)first_query, view->rows, dim);
    rf_wide_stage(shape, shape.keys, key_tile, (const uint16_t *)keys->k, keys->k_row, 0, end, dim);
    rf_wide_stage(shape, shape.keys, value_tile, (const uint16_t *)keys->v, keys->v_row, -(int32_t)shape.step, end,
                  dim);
    rf_copy_batch();

    RF_NO_UNROLL
    for (uint32_t key = 0; key < end + shape.step; key += shape.keys) {
        uint32_t now = key / shape.keys % 2 * tile, coming = key + shape.keys;
        rf_copied(0);
        rf_barrier(); /* these tiles are there, and nobody reads the ones before them any more */
        if (coming < end + shape.step) {
            rf_wide_stage(shape, shape.keys, key_tile + (tile - now), notes->k, keys->k_row, (int32_t)coming, end,
                          dim);
            rf_wide_stage(shape, shape.keys, value_tile + (tile - now), notes->v, keys->v_row,
                          (int32_t)(coming - shape.step), end, dim);
        }
        rf_copy_batch();
        /* The opaque zero keeps the addresses of all fragments from living in registers around the loop. */
        const uint16_t *key_lines = key_tile + RF_MATRIX_NO_OFFSET + now;
        const uint16_t *value_lines = value_tile + RF_MATRIX_NO_OFFSET + now;
        RF_NO_UNROLL
        for (uint32_t part = 0; part < 2; part++) {
            if (key + part * shape.step < wave.end + shape.step)
                rf_wide_turn(type, shape, &wave, key_lines + part * half, value_lines + part * half,
                             key + part * shape.step, weights, &rows, result);
        }
    }
    rf_copied(0);
    rf_matrix_store(type, shape, type, notes->out, out_row, rf_wide_row(shape, notes), view->rows, dim, &rows,
                    result);
}
#elif !defined(RF_TILE_ABSENT)
RF_DEVICE void rf_attend_wide(enum rf_type type, struct rf_matrix_shape shape, uint16_t *out, uint64_t out_row,
                              const uint16_t *q, uint64_t q_row, const struct rf_keys *keys,
                              const struct rf_query_view *view, uint32_t first_query, uint32_t dim, float scale,
                              uint16_t *shared) {
    rf_attend_matrix(type, false, shape, type, out, out_row, q, q_row, keys, view, first_query, dim, scale, shared);
}
#endif

#endif
