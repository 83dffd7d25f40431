/* Attention on matrix units: 16-bit queries, keys and values, f32 sums.
 *
 * A block takes 'queries' queries of one head, each wave 16 or 32 of them, and walks the keys in tiles.
 * Queries, a tile of keys and a tile of values lie in shared memory, rows padded by 16 bytes; while the
 * scores are computed the values arrive, and while the values are weighted the next keys do. Weights are
 * rounded to the operands' type, which is what limits the precision. */
#ifndef RF_KERNELS_ATTENTION_MATRIX_H
#define RF_KERNELS_ATTENTION_MATRIX_H

#include "kernels/attention.h"
#include "kernels/tile.h"

/* A variant; all members are constants. It takes head sizes up to dim, a multiple of 16. A wave takes 16 or 32 of the
 * queries. */
struct rf_matrix_shape {
    uint32_t dim, queries, keys, waves;
    uint32_t step; /* keys of a tile that are scored and weighed at once: as many as registers allow */
};
#if defined(RF_NVIDIA)
#define RF_ON_NVIDIA 1
#define RF_MATRIX_NO_OFFSET rf_opaque(0)
#else
#define RF_ON_NVIDIA 0
#define RF_MATRIX_NO_OFFSET 0
#endif

RF_DEVICE uint32_t rf_matrix_pitch(struct rf_matrix_shape shape) {
    return shape.dim + RF_MATRIX_PAD;
}

#ifndef RF_TILE_ABSENT

/* Stages this thread's share of a tile of queries; f32 queries are rounded to the type. */
RF_DEVICE void rf_matrix_stage_queries(enum rf_type type, struct rf_matrix_shape shape, uint16_t *tile,
                                       enum rf_type q_type, const void *q, uint64_t q_row, uint32_t first,
                                       uint32_t rows, uint32_t dim) {
    uint32_t per_line = shape.dim / 8, count = shape.queries * per_line, threads = shape.waves * RF_WAVE;
    if (q_type == RF_TYPE_F32) {
        RF_NO_UNROLL
        for (uint32_t item = rf_thread_x(); item < count; item += threads) {
            uint32_t line = item / per_line, column = item % per_line * 8;
            float values[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
            if (first + line < rows && column < dim)
                rf_load_many(RF_TYPE_F32, 8, q, (first + line) * q_row + column, values);
            rf_store_many(type, 8, tile, line * rf_matrix_pitch(shape) + column, values);
        }
        return;
    }
    RF_TILE_UNROLL
    for (uint32_t start = 0; start < count; start += threads) {
        uint32_t item = start + rf_thread_x(), line = item / per_line, column = item % per_line * 8;
        bool there = first + line < rows && column < dim;
        if (item < count)
            rf_copy_16(tile + line * rf_matrix_pitch(shape) + column,
                       (const uint16_t *)q + (there ? (first + line) * q_row + column : 0), there);
    }
}

/* Stages this thread's share of a tile of keys or values. Of keys in pages, present says which exist. */
RF_DEVICE void rf_matrix_stage_keys(struct rf_matrix_shape shape, bool paged, bool values, uint16_t *tile,
                                    const struct rf_keys *keys, uint32_t first, uint32_t end, uint32_t dim,
                                    uint32_t *present) {
    uint32_t per_line = shape.dim / 8, count = shape.keys * per_line, threads = shape.waves * RF_WAVE;
    uint32_t pitch = rf_matrix_pitch(shape);
    const uint16_t *from = (const uint16_t *)(values ? keys->v : keys->k);
    uint64_t row = values ? keys->v_row : keys->k_row;
    /* Where the block takes whole lines at a time, a thread keeps its column and its places are equally far apart. */
    if (!paged && threads % per_line == 0 && count % threads == 0) {
        uint32_t line = rf_thread_x() / per_line, column = rf_thread_x() % per_line * 8, lines = threads / per_line;
        uint32_t end_line = column < dim ? end : 0;
        uint64_t at = (first + line) * row + column;
        uint16_t *to = tile + line * pitch + column;
        RF_NO_UNROLL
        for (uint32_t i = 0; i < shape.keys / lines; i++) {
            bool there = first + line + i * lines < end_line;
            rf_copy_16(to + i * lines * pitch, from + (there ? at : 0), there);
            at += lines * row;
        }
        return;
    }
    RF_TILE_UNROLL
    for (uint32_t start = 0; start < count; start += threads) {
        uint32_t item = start + rf_thread_x(), line = item / per_line, column = item % per_line * 8;
        struct rf_key_place place = {0, 0, first + line < end};
        if (paged && item < count && place.there) place = rf_key_find(true, keys, first + line);
        bool there = place.there && column < dim;
        uint64_t at = paged ? (values ? place.v : place.k) + column : (uint64_t)(first + line) * row + column;
        if (item < count) rf_copy_16(tile + line * pitch + column, from + (there ? at : 0), there);
        if (paged && !values && item < count && column == 0) present[line] = place.there;
    }
}

RF_DEVICE void rf_matrix_clear(struct rf_sums *sums) {
    RF_TILE_UNROLL
    for (uint32_t i = 0; i < RF_SUM_COUNT; i++) sums->value[i] = 0.0f;
}

RF_DEVICE void rf_matrix_clear_all(struct rf_matrix_shape shape, struct rf_sums scores[2][4]) {
    uint32_t across = shape.step / 16;
    RF_TILE_UNROLL
    for (uint32_t i = 0; i < shape.queries / shape.waves / 16 * across; i++)
        rf_matrix_clear(&scores[i / across][i % across]);
}

/* What a wave keeps of its rows; the first index counts groups of 16 rows. */
struct rf_matrix_rows {
    float max[2][RF_SUM_ROWS], sum[2][RF_SUM_ROWS]; /* sum: of this lane's columns */
};

/* Hides the keys that a row does not see, turns the scores of a tile into weights, and shrinks what was summed
 * before. Without a mask the scale is applied on the way into the exponential, after the maximum is subtracted: the
 * largest weight is 1 then, however large the scores are. */
RF_DEVICE void rf_matrix_softmax(struct rf_matrix_shape shape, bool paged, const struct rf_query_view *view,
                                 uint32_t wave_row, uint32_t first_key, float scale, const uint32_t *present,
                                 struct rf_matrix_rows *rows, struct rf_sums scores[2][4],
                                 struct rf_sums result[2][16]) {
    uint32_t groups = shape.queries / shape.waves / 16, count = shape.step / 16 * RF_SUM_COLUMNS;
    bool late = !view->mask && scale > 0.0f;
    bool whole = !paged && late && first_key + shape.step <= rf_query_sees(view, wave_row);
    float factor = late ? scale * RF_LOG2_E : 1.0f, early = late ? 1.0f : scale * RF_LOG2_E, shrink[2][RF_SUM_ROWS];
    bool grown = false;
    RF_TILE_UNROLL
    for (uint32_t m = 0; m < groups; m++) {
        RF_TILE_UNROLL
        for (uint32_t r = 0; r < RF_SUM_ROWS; r++) {
            uint32_t row = wave_row + m * 16 + rf_sum_row(r);
            float max = -RF_INFINITY, sum = 0.0f;
            if (!whole) {
                uint32_t sees = rf_query_sees(view, row);
                RF_TILE_UNROLL
                for (uint32_t i = 0; i < count; i++) {
                    float *score = &scores[m][i / RF_SUM_COLUMNS].value[rf_sum_index(r, i % RF_SUM_COLUMNS)];
                    uint32_t column = i / RF_SUM_COLUMNS * 16 + rf_sum_column(i % RF_SUM_COLUMNS);
                    uint32_t key = first_key + column;
                    *score *= early;
                    if (view->mask && row < view->rows && key < view->keys)
                        *score += view->mask[row * view->mask_row + key] * RF_LOG2_E;
                    if (key >= sees || (paged && !present[column])) *score = -RF_INFINITY;
                }
            }
            RF_TILE_UNROLL
            for (uint32_t i = 0; i < count; i++)
                max = rf_max(max, scores[m][i / RF_SUM_COLUMNS].value[rf_sum_index(r, i % RF_SUM_COLUMNS)]);
            float new_max = rf_max(rows->max[m][r], rf_sum_row_max(max)), shift = rf_softmax_shift(new_max);
            shrink[m][r] = rf_exp2((rows->max[m][r] - shift) * factor);
            grown = grown || shrink[m][r] != 1.0f;
            rows->max[m][r] = new_max;
            RF_TILE_UNROLL
            for (uint32_t i = 0; i < count; i++) {
                float *score = &scores[m][i / RF_SUM_COLUMNS].value[rf_sum_index(r, i % RF_SUM_COLUMNS)];
                *score = rf_exp2((*score - shift) * factor);
                sum += *score;
            }
            rows->sum[m][r] = rows->sum[m][r] * shrink[m][r] + sum;
        }
    }
    /* After the first tiles most rows have met their maximum. */
    if (!rf_wave_ballot(grown)) return;
    RF_TILE_UNROLL
    for (uint32_t m = 0; m < groups; m++) {
        RF_TILE_UNROLL
        for (uint32_t r = 0; r < RF_SUM_ROWS; r++) {
            RF_TILE_UNROLL
            for (uint32_t i = 0; i < shape.dim / 16 * RF_SUM_COLUMNS; i++)
                result[m][i / RF_SUM_COLUMNS].value[rf_sum_index(r, i % RF_SUM_COLUMNS)] *= shrink[m][r];
        }
    }
}

/* Divides by the sums and stores. */
RF_DEVICE void rf_matrix_store(enum rf_type type, struct rf_matrix_shape shape, enum rf_type q_type, void *to,
                               uint64_t out_row, uint32_t wave_row, uint32_t query_count, uint32_t dim,
                               const struct rf_matrix_rows *rows, const struct rf_sums result[2][16]) {
    uint16_t *out = (uint16_t *)to;
    RF_TILE_UNROLL
    for (uint32_t m = 0; m < shape.queries / shape.waves / 16; m++) {
        RF_TILE_UNROLL
        for (uint32_t r = 0; r < RF_SUM_ROWS; r++) {
            uint32_t row = wave_row + m * 16 + rf_sum_row(r);
            float inverse = rf_softmax_inverse(rf_sum_row_total(rows->sum[m][r]));
            RF_TILE_UNROLL
            for (uint32_t i = 0; i < shape.dim / 16 * RF_SUM_COLUMNS; i += 1 + RF_SUM_PAIRS) {
                const float *value = result[m][i / RF_SUM_COLUMNS].value;
                uint32_t c = i % RF_SUM_COLUMNS, column = i / RF_SUM_COLUMNS * 16 + rf_sum_column(c);
                if (row >= query_count || column >= dim) continue;
                if (q_type == RF_TYPE_F32) {
                    RF_UNROLL
                    for (uint32_t k = 0; k < 1 + RF_SUM_PAIRS; k++)
                        ((float *)to)[row * out_row + column + k] = value[rf_sum_index(r, c + k)] * inverse;
                } else if (RF_SUM_PAIRS) {
                    *(uint32_t *)(out + row * out_row + column) = rf_tile_pack(
                        type, value[rf_sum_index(r, c)] * inverse, value[rf_sum_index(r, c + 1)] * inverse);
                } else {
                    out[row * out_row + column] = rf_16_of_f32(type, value[rf_sum_index(r, c)] * inverse);
                }
            }
        }
    }
}

/* Adds the products of a wave's queries and the keys to its scores, over elements first to last of the heads. */
RF_DEVICE void rf_matrix_scores(enum rf_type type, struct rf_matrix_shape shape, const uint16_t *queries,
                                const uint16_t *keys, uint32_t first, uint32_t last, struct rf_sums scores[2][4]) {
    uint32_t pitch = rf_matrix_pitch(shape), groups = shape.queries / shape.waves / 16;
    RF_TILE_UNROLL
    for (uint32_t k = first / 16; k < last / 16; k++) {
        struct rf_left left[2];
        RF_TILE_UNROLL
        for (uint32_t m = 0; m < groups; m++) left[m] = rf_left_load(queries + m * 16 * pitch + k * 16, pitch);
        RF_TILE_UNROLL
        for (uint32_t n = 0; n < shape.step / 16; n++) {
            struct rf_right right = rf_right_load_lines(keys + n * 16 * pitch + k * 16, pitch);
            RF_TILE_UNROLL
            for (uint32_t m = 0; m < groups; m++) rf_tile_multiply(type, &scores[m][n], &left[m], &right);
            if (n % 4 == 3) rf_tile_fence();
        }
    }
}

/* Adds a tile of values, weighted. */
RF_DEVICE void rf_matrix_weigh(enum rf_type type, struct rf_matrix_shape shape, const struct rf_sums weights[2][4],
                               const uint16_t *values, struct rf_sums result[2][16]) {
    uint32_t pitch = rf_matrix_pitch(shape), groups = shape.queries / shape.waves / 16;
    RF_TILE_UNROLL
    for (uint32_t k = 0; k < shape.step / 16; k++) {
        struct rf_left left[2];
        RF_TILE_UNROLL
        for (uint32_t m = 0; m < groups; m++) left[m] = rf_left_of_sums(type, &weights[m][k]);
        RF_TILE_UNROLL
        for (uint32_t n = 0; n < shape.dim / 16; n++) {
            struct rf_right right = rf_right_load(values + k * 16 * pitch + n * 16, pitch);
            RF_TILE_UNROLL
            for (uint32_t m = 0; m < groups; m++) rf_tile_multiply(type, &result[m][n], &left[m], &right);
            if (n % 4 == 3) rf_tile_fence();
        }
    }
}

/* Where this thread's wave begins, and how many keys the block's and the wave's queries see at most. */
struct rf_matrix_place {
    uint32_t row, end, wave_end;
};
RF_DEVICE struct rf_matrix_place rf_matrix_find(struct rf_matrix_shape shape, const struct rf_query_view *view,
                                                uint32_t first_query) {
    uint32_t each = shape.queries / shape.waves, row = first_query + rf_thread_x() / RF_WAVE * each;
    /* The last row that exists sees most. */
    uint32_t last = first_query + shape.queries < view->rows ? first_query + shape.queries - 1 : view->rows - 1;
    uint32_t wave_last = row + each < view->rows ? row + each - 1 : view->rows - 1;
    struct rf_matrix_place place = {row, rf_query_sees(view, last),
                                    row < view->rows ? rf_query_sees(view, wave_last) : 0};
    return place;
}
RF_DEVICE void rf_matrix_begin(struct rf_matrix_shape shape, struct rf_matrix_rows *rows,
                               struct rf_sums result[2][16]) {
    RF_TILE_UNROLL
    for (uint32_t m = 0; m < shape.queries / shape.waves / 16; m++) {
        RF_TILE_UNROLL
        for (uint32_t r = 0; r < RF_SUM_ROWS; r++) {
            rows->max[m][r] = -RF_INFINITY;
            rows->sum[m][r] = 0.0f;
        }
        RF_TILE_UNROLL
        for (uint32_t j = 0; j < shape.dim / 16; j++) rf_matrix_clear(&result[m][j]);
    }
}

/* out and q are those of this batch and head, with their row strides, of the type or f32: q_type, which need not be a
 * constant. dim is a multiple of 8, at most shape.dim; rows are aligned to 16 bytes. shared has
 * RF_MATRIX_TILES_BYTES(queries, 2, keys, shape.dim), and where paged RF_MATRIX_PRESENT_BYTES(keys) behind them. */
RF_DEVICE void rf_attend_matrix(enum rf_type type, bool paged, struct rf_matrix_shape shape, enum rf_type q_type,
                                void *out, uint64_t out_row, const void *q, uint64_t q_row,
                                const struct rf_keys *keys, const struct rf_query_view *view, uint32_t first_query,
                                uint32_t dim, float scale, uint16_t *shared) {
    uint32_t pitch = rf_matrix_pitch(shape), tile = shape.keys * pitch;
    uint16_t *query_tile = shared, *key_tile = query_tile + shape.queries * pitch;
    uint16_t *value_tile = key_tile + tile;
    uint32_t *present = (uint32_t *)(value_tile + tile);
    struct rf_matrix_place place = rf_matrix_find(shape, view, first_query);
    uint32_t wave_row = place.row, key_end = place.end;
    const uint16_t *wave_queries = query_tile + (wave_row - first_query) * pitch;
    struct rf_matrix_rows rows;
    struct rf_sums result[2][16];
    rf_matrix_begin(shape, &rows, result);
    rf_matrix_stage_queries(type, shape, query_tile, q_type, q, q_row, first_query, view->rows, dim);
    rf_matrix_stage_keys(shape, paged, false, key_tile, keys, 0, key_end, dim, present);
    rf_copy_batch();

    uint32_t turn = 0; /* 0 and 1 */
    RF_NO_UNROLL
    for (uint32_t first_key = 0; first_key < key_end; first_key += shape.keys, turn ^= 1) {
        struct rf_sums scores[2][4];
        bool busy = first_key < place.wave_end, more = first_key + shape.keys < key_end;
        /* Keeps the addresses of all fragments from living in registers around the loop. */
        uint32_t none = RF_MATRIX_NO_OFFSET;
        rf_matrix_stage_keys(shape, paged, true, value_tile, keys, first_key, key_end, dim, present);
        rf_copy_batch();
        rf_copied(1);
        rf_barrier(); /* the keys, and at first the queries, are there */
        rf_matrix_clear_all(shape, scores);
        if (busy) rf_matrix_scores(type, shape, wave_queries + none, key_tile + none, 0, shape.dim, scores);
        rf_barrier(); /* nobody reads the keys any more */
        if (more)
            rf_matrix_stage_keys(shape, paged, false, key_tile, keys, first_key + shape.keys, key_end, dim,
                                 present + (turn ^ 1) * shape.keys);
        rf_copy_batch();
        if (busy)
            rf_matrix_softmax(shape, paged, view, wave_row, first_key, scale, present + turn * shape.keys, &rows,
                              scores, result);
        rf_copied(1);
        rf_barrier(); /* the values are there */
        if (busy) rf_matrix_weigh(type, shape, scores, value_tile + none, result);
        rf_barrier(); /* nobody reads the values any more */
    }
    rf_copied(0);
    rf_matrix_store(type, shape, q_type, out, out_row, wave_row, view->rows, dim, &rows, result);
}
#endif /* RF_TILE_ABSENT */

/* The shape of the kernels for head sizes up to dim. */
#define RF_MATRIX_SHAPE_OF(dim, keys) {dim, RF_MATRIX_QUERIES, keys, RF_MATRIX_WAVES, keys}
#define RF_MATRIX_SHAPE(dim) RF_MATRIX_SHAPE_OF(dim, RF_MATRIX_KEYS(dim, RF_ON_NVIDIA))

#endif
