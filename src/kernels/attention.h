/* What the attention kernels share: places in tensors of heads, keys in one piece or in pages, a plain matrix
 * product, and attention over tiles of 32 queries and 32 keys in f32 arithmetic. attention_args.h describes the
 * tensors and has the tile sizes. */
#ifndef RF_KERNELS_ATTENTION_H
#define RF_KERNELS_ATTENTION_H

#include "kernels/kernel.h"

#include "kernels/attention_args.h"

/* A size, of which kernels take the low 32 bits. Only those are loaded: told to drop the upper half, the compiler
 * would clear it again wherever the size is widened, and multiply in 64 bits. */
typedef uint32_t rf_low_word __attribute__((may_alias));
RF_DEVICE uint32_t rf_size(const uint64_t *size) {
    return *(const rf_low_word *)size;
}

/* The index of a head's first element. */
RF_DEVICE uint64_t rf_heads_at(struct rf_head_strides strides, uint32_t batch, uint32_t head) {
    return batch * strides.batch + head * strides.head;
}

/* ---- a block's share of a grid that has x alone ------------------------------------------------- */

struct rf_share_of_heads {
    uint32_t tile, head, batch;
};
RF_DEVICE struct rf_share_of_heads rf_share_of_block(uint32_t tiles, uint32_t heads) {
    struct rf_share_of_heads share;
    uint32_t rest = rf_block_x() / tiles;
    share.tile = rf_block_x() % tiles;
    share.batch = rest / heads;
    share.head = rest % heads;
    return share;
}
RF_DEVICE uint32_t rf_tiles_of(uint32_t count, uint32_t tile) {
    return (count + tile - 1) / tile;
}

/* ---- C = A B over one head: a block takes 64 x 64 of C ------------------------------------------- */

#define RF_PRODUCT_DEPTH 16
#define RF_PRODUCT_PITCH (RF_PRODUCT_TILE + 4)
#define RF_PRODUCT_SHARED (2 * RF_PRODUCT_DEPTH * RF_PRODUCT_PITCH)

/* Stages 64 lines, 16 deep, as staged[depth][line]. by_line: element (line, depth) is at line * stride + depth, else
 * at depth * stride + line. Elements beyond the matrix are 0. */
RF_DEVICE void rf_product_stage(enum rf_type type, bool by_line, float *staged, const void *base, uint64_t stride,
                                uint32_t first_line, uint32_t lines, uint32_t first_depth, uint32_t depths) {
    RF_UNROLL
    for (uint32_t i = 0; i < RF_PRODUCT_TILE * RF_PRODUCT_DEPTH / RF_PRODUCT_THREADS; i++) {
        uint32_t item = rf_thread_x() + RF_PRODUCT_THREADS * i;
        uint32_t line = by_line ? item / RF_PRODUCT_DEPTH : item % RF_PRODUCT_TILE;
        uint32_t depth = by_line ? item % RF_PRODUCT_DEPTH : item / RF_PRODUCT_TILE;
        uint64_t l = first_line + line, d = first_depth + depth;
        float value = 0.0f;
        if (l < lines && d < depths) value = rf_load(type, base, by_line ? l * stride + d : d * stride + l);
        staged[depth * RF_PRODUCT_PITCH + line] = value;
    }
}

RF_DEVICE void rf_product_four(const float *from, float *values) {
    rf_u32x4 raw = rf_load_16(from);
    RF_UNROLL
    for (uint32_t k = 0; k < 4; k++) values[k] = rf_f32_of_bits(raw[k]);
}

/* out[m][n] = scale * sum over k of a[m][k] * b, b's element at n * b_stride + k (b_by_line) or
 * k * b_stride + n. shared: RF_PRODUCT_SHARED floats. */
RF_DEVICE void rf_product(enum rf_type out_type, enum rf_type a_type, enum rf_type b_type, bool b_by_line, void *out,
                          uint64_t out_stride, const void *a, uint64_t a_stride, const void *b, uint64_t b_stride,
                          uint32_t rows, uint32_t columns, uint32_t depth, uint32_t first_row, uint32_t first_column,
                          float scale, float *shared) {
    float *left = shared, *right = shared + RF_PRODUCT_DEPTH * RF_PRODUCT_PITCH;
    uint32_t tx = rf_thread_x() % 16, ty = rf_thread_x() / 16;
    float sums[4][4];
    RF_UNROLL
    for (uint32_t i = 0; i < 16; i++) sums[i / 4][i % 4] = 0.0f;
    RF_NO_UNROLL
    for (uint32_t first = 0; first < depth; first += RF_PRODUCT_DEPTH) {
        rf_product_stage(a_type, true, left, a, a_stride, first_row, rows, first, depth);
        rf_product_stage(b_type, b_by_line, right, b, b_stride, first_column, columns, first, depth);
        rf_barrier();
        RF_UNROLL
        for (uint32_t k = 0; k < RF_PRODUCT_DEPTH; k++) {
            float l[4], r[4];
            rf_product_four(left + k * RF_PRODUCT_PITCH + ty * 4, l);
            rf_product_four(right + k * RF_PRODUCT_PITCH + tx * 4, r);
            RF_UNROLL
            for (uint32_t i = 0; i < 16; i++) sums[i / 4][i % 4] = rf_fma(l[i / 4], r[i % 4], sums[i / 4][i % 4]);
        }
        rf_barrier();
    }
    RF_UNROLL
    for (uint32_t i = 0; i < 16; i++) {
        uint32_t row = first_row + ty * 4 + i / 4, column = first_column + tx * 4 + i % 4;
        if (row < rows && column < columns)
            rf_store(out_type, out, row * out_stride + column, sums[i / 4][i % 4] * scale);
    }
}

/* ---- keys ---------------------------------------------------------------------------------------- */

/* The keys and values of one sequence and key-value head. In pages: key j is row j % 2^shift of page
 * table[table_first + (j >> shift)]; a page number that is not below page_count is no page. Without a table, or where
 * keys are not in pages, they lie in one piece: key j is row j. */
struct rf_keys {
    const void *k, *v;
    uint64_t k_row, v_row;   /* strides */
    uint64_t k_page, v_page; /* from page to page */
    /* No pointer here is chosen by a condition: the compiler would forget that it is to memory. */
    const uint32_t *table;
    uint64_t table_first; /* this sequence's first entry */
    bool tabled;
    uint32_t shift, page_count;
};
struct rf_key_place {
    uint64_t k, v; /* element indices */
    bool there;
};
RF_DEVICE struct rf_key_place rf_key_find(bool paged, const struct rf_keys *keys, uint32_t key) {
    struct rf_key_place place = {key * keys->k_row, key * keys->v_row, true};
    if (paged && keys->tabled) {
        uint32_t page = keys->table[keys->table_first + (key >> keys->shift)], row = key & ((1u << keys->shift) - 1);
        place.there = page < keys->page_count;
        place.k = page * keys->k_page + row * keys->k_row;
        place.v = page * keys->v_page + row * keys->v_row;
    }
    return place;
}

/* Keys and values are of the tensors' type, or packed: blocks of Q8_0, which are 34 bytes, an f16 scale and 32
 * elements, aligned to 2 bytes. Element indices of packed rows are multiples of 32. */
RF_DEVICE const void *rf_key_at(enum rf_type type, bool packed, const void *base, uint64_t index) {
    return packed ? (const uint8_t *)base + index / 32 * 34 : rf_at(type, base, index);
}
/* 8 packed elements, from a column that is a multiple of 8 on, in two words. Returns their scale. */
RF_DEVICE float rf_key_packed(const void *row, uint32_t column, uint32_t words[2]) {
    const uint16_t *block = (const uint16_t *)((const uint8_t *)row + column / 32 * 34),
                   *at = block + 1 + column % 32 / 2;
    words[0] = at[0] | (uint32_t)at[1] << 16;
    words[1] = at[2] | (uint32_t)at[3] << 16;
    return rf_f32_of_f16(block[0]);
}
RF_DEVICE float rf_key_quant(const uint32_t words[2], uint32_t k) {
    return (float)(int8_t)(words[k / 4] >> k % 4 * 8);
}

/* What the queries of a head attend to. */
struct rf_query_view {
    uint32_t rows, keys; /* queries, and keys that exist */
    int64_t offset;      /* query i sees the keys j <= i + offset */
    const float *mask;   /* of this batch and head, added to the scaled scores; or NULL */
    uint64_t mask_row;
};
/* How many keys, from the first, query i sees. */
RF_DEVICE uint32_t rf_query_sees(const struct rf_query_view *view, uint32_t row) {
    int64_t count = (int64_t)row + view->offset + 1;
    return count < 0 ? 0 : count < (int64_t)view->keys ? (uint32_t)count : view->keys;
}

/* ---- the online softmax: scores are kept times log2 e ------------------------------------------ */

/* What is subtracted from scores: never -inf, which would give NaN. */
RF_DEVICE float rf_softmax_shift(float max) {
    return max == -RF_INFINITY ? 0.0f : max;
}
RF_DEVICE float rf_softmax_inverse(float sum) {
    return sum == 0.0f ? 0.0f : rf_rcp(sum);
}

/* ---- attention in f32: a block of 256 threads takes 32 queries of one head ----------------------- */

#define RF_ATTENTION_CHUNKS (RF_ATTENTION_DIM_MAX / RF_ATTENTION_CHUNK)

/* Stages 8 elements of a row: this thread's share of a tile of 32 rows and 64 columns. */
RF_DEVICE void rf_tile_stage(enum rf_type type, bool packed, float *staged, const void *row, bool there,
                             uint32_t column, uint32_t dim) {
    float values[8];
    RF_UNROLL
    for (uint32_t k = 0; k < 8; k++) values[k] = 0.0f;
    if (there && column < dim) {
        if (packed) {
            uint32_t words[2];
            float scale = rf_key_packed(row, column, words);
            RF_UNROLL
            for (uint32_t k = 0; k < 8; k++) values[k] = rf_key_quant(words, k) * scale;
        } else {
            rf_load_many(type, 8, row, column, values);
        }
    }
    rf_store_many(RF_TYPE_F32, 8, staged, rf_thread_x() / 8 * RF_ATTENTION_PITCH + rf_thread_x() % 8 * 8, values);
}

RF_DEVICE void rf_tile_scores(const float *queries, const float *keys, float scores[2][2]) {
    uint32_t tx = rf_thread_x() % 16, ty = rf_thread_x() / 16;
    RF_NO_UNROLL
    for (uint32_t d = 0; d < RF_ATTENTION_CHUNK; d += 4) {
        float q[2][4], k[2][4];
        RF_UNROLL
        for (uint32_t i = 0; i < 2; i++) {
            rf_product_four(queries + (ty * 2 + i) * RF_ATTENTION_PITCH + d, q[i]);
            rf_product_four(keys + (tx + 16 * i) * RF_ATTENTION_PITCH + d, k[i]);
        }
        RF_UNROLL
        for (uint32_t i = 0; i < 16; i++)
            scores[i / 8][i / 4 % 2] = rf_fma(q[i / 8][i % 4], k[i / 4 % 2][i % 4], scores[i / 8][i / 4 % 2]);
    }
}

/* The sum or maximum over the 16 threads of a row. */
RF_DEVICE float rf_tile_row_max(float value) {
    RF_UNROLL
    for (uint32_t mask = 8; mask; mask /= 2) value = rf_max(value, rf_wave_xor_f32(value, mask));
    return value;
}
RF_DEVICE float rf_tile_row_sum(float value) {
    RF_UNROLL
    for (uint32_t mask = 8; mask; mask /= 2) value += rf_wave_xor_f32(value, mask);
    return value;
}

/* out and q are those of this batch and head, of q_type, which need not be a constant; out_row and q_row are their
 * strides. type is that of keys and values. dim is a multiple of 8, at most 256. Rows are aligned to 16 bytes, apart
 * from packed keys and values. shared has RF_ATTENTION_SHARED floats. */
RF_DEVICE void rf_attend_tile(enum rf_type type, bool paged, bool packed, enum rf_type q_type, void *out,
                              uint64_t out_row, const void *q, uint64_t q_row, const struct rf_keys *keys,
                              const struct rf_query_view *view, uint32_t first_query, uint32_t dim, float scale,
                              float *shared) {
    float *queries = shared, *others = shared + RF_ATTENTION_TILE * RF_ATTENTION_PITCH,
          *weights = others + RF_ATTENTION_TILE * RF_ATTENTION_PITCH;
    uint32_t tx = rf_thread_x() % 16, ty = rf_thread_x() / 16;
    uint32_t stage_row = rf_thread_x() / 8, stage_column = rf_thread_x() % 8 * 8;
    uint32_t last =
        first_query + RF_ATTENTION_TILE < view->rows ? first_query + RF_ATTENTION_TILE - 1 : view->rows - 1;
    uint32_t key_end = rf_query_sees(view, last), sees[2];
    const void *my_query = rf_at(q_type, q, (first_query + stage_row) * q_row);
    float max[2], sum[2], result[RF_ATTENTION_CHUNKS][2][4];
    RF_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        sees[i] = rf_query_sees(view, first_query + ty * 2 + i);
        max[i] = -RF_INFINITY;
        sum[i] = 0.0f;
    }
    RF_UNROLL
    for (uint32_t i = 0; i < 8 * RF_ATTENTION_CHUNKS; i++) result[i / 8][i / 4 % 2][i % 4] = 0.0f;

    RF_NO_UNROLL
    for (uint32_t first_key = 0; first_key < key_end; first_key += RF_ATTENTION_TILE) {
        struct rf_key_place place = {0, 0, false};
        float scores[2][2] = {{0.0f, 0.0f}, {0.0f, 0.0f}};
        if (first_key + stage_row < key_end) place = rf_key_find(paged, keys, first_key + stage_row);
        RF_NO_UNROLL
        for (uint32_t chunk = 0; chunk < dim; chunk += RF_ATTENTION_CHUNK) {
            rf_tile_stage(q_type, false, queries, my_query, first_query + stage_row < view->rows,
                          chunk + stage_column, dim);
            rf_tile_stage(type, packed, others, rf_key_at(type, packed, keys->k, place.k), place.there,
                          chunk + stage_column, dim);
            rf_barrier();
            rf_tile_scores(queries, others, scores);
            rf_barrier();
        }
        /* A key without a page does not exist for any query. */
        uint32_t absent[2] = {0, 0};
        if (paged) {
            if (stage_column == 0) weights[stage_row] = place.there ? 0.0f : 1.0f;
            rf_barrier();
            absent[0] = weights[tx] != 0.0f;
            absent[1] = weights[tx + 16] != 0.0f;
            rf_barrier();
        }
        RF_UNROLL
        for (uint32_t i = 0; i < 2; i++) {
            uint32_t row = first_query + ty * 2 + i;
            RF_UNROLL
            for (uint32_t c = 0; c < 2; c++) {
                uint32_t key = first_key + tx + 16 * c;
                scores[i][c] *= scale * RF_LOG2_E;
                if (view->mask && row < view->rows && key < view->keys)
                    scores[i][c] += view->mask[row * view->mask_row + key] * RF_LOG2_E;
                if (key >= sees[i] || absent[c]) scores[i][c] = -RF_INFINITY;
            }
            float new_max = rf_max(max[i], rf_tile_row_max(rf_max(scores[i][0], scores[i][1])));
            float shift = rf_softmax_shift(new_max), shrink = rf_exp2(max[i] - shift);
            max[i] = new_max;
            sum[i] *= shrink;
            RF_UNROLL
            for (uint32_t c = 0; c < 2; c++) {
                float weight = rf_exp2(scores[i][c] - shift);
                sum[i] += weight;
                weights[(ty * 2 + i) * RF_ATTENTION_WEIGHTS + tx + 16 * c] = weight;
            }
            RF_UNROLL
            for (uint32_t k = 0; k < 4 * RF_ATTENTION_CHUNKS; k++) result[k / 4][i][k % 4] *= shrink;
        }
        rf_barrier();
        RF_UNROLL
        for (uint32_t chunk = 0; chunk < RF_ATTENTION_CHUNKS; chunk++) {
            if (chunk * RF_ATTENTION_CHUNK >= dim) break;
            rf_tile_stage(type, packed, others, rf_key_at(type, packed, keys->v, place.v), place.there,
                          chunk * RF_ATTENTION_CHUNK + stage_column, dim);
            rf_barrier();
            RF_NO_UNROLL
            for (uint32_t k = 0; k < RF_ATTENTION_TILE; k++) {
                float v[4];
                rf_product_four(others + k * RF_ATTENTION_PITCH + tx * 4, v);
                RF_UNROLL
                for (uint32_t i = 0; i < 8; i++)
                    result[chunk][i / 4][i % 4] = rf_fma(weights[(ty * 2 + i / 4) * RF_ATTENTION_WEIGHTS + k],
                                                         v[i % 4], result[chunk][i / 4][i % 4]);
            }
            rf_barrier();
        }
    }
    RF_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t row = first_query + ty * 2 + i;
        float inverse = rf_softmax_inverse(rf_tile_row_sum(sum[i]));
        RF_UNROLL
        for (uint32_t chunk = 0; chunk < RF_ATTENTION_CHUNKS; chunk++) {
            uint32_t column = chunk * RF_ATTENTION_CHUNK + tx * 4;
            RF_UNROLL
            for (uint32_t k = 0; k < 4; k++) result[chunk][i][k] *= inverse;
            if (row < view->rows && column < dim)
                rf_store_many(q_type, 4, out, row * out_row + column, result[chunk][i]);
        }
    }
}

#endif
