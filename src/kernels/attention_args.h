/* The arguments of the attention ops: kernels, launchers, references and the fast CPU ops all take these structs.
 * They hold sizes, strides and scalars; pointers and element types are passed beside them.
 *
 * Tensors are [batch, heads, rows, dim]. The last dimension is dense, the others have strides, in elements. Query
 * head h uses key-value head h / (heads_q / heads_kv), so heads_q is a multiple of heads_kv. Launchers see to it that
 * sizes which a kernel counts in 32 bits are at most INT32_MAX.
 *
 * Behind the structs stand the tile sizes, thread counts and shared memory of the kernels, which launchers need too.
 */
#ifndef RF_KERNELS_ATTENTION_ARGS_H
#define RF_KERNELS_ATTENTION_ARGS_H

#ifndef RF_KERNELS_KERNEL_H
#include <stdint.h>
#endif

struct rf_head_strides {
    uint64_t batch, head, row;
};

/* The two products of attention. Both sum in f32.
 *   qkt_matmul:      scores[b][h][i][j] = scale * sum over d of q[b][h][i][d] * k[b][h'][j][d]; scores are f32.
 *   weighted_matmul: out[b][h][i][d] = sum over j of weights[b][h][i][j] * v[b][h'][j][d]; weights are f32.
 * h' is the key-value head of h. */
struct rf_head_product_args {
    struct rf_head_strides out;   /* scores; or out */
    struct rf_head_strides left;  /* q; or weights */
    struct rf_head_strides right; /* k; or v */
    uint64_t batch, heads_q, heads_kv;
    uint64_t q_rows, k_rows; /* queries; keys and values */
    uint64_t dim;            /* elements of a head */
    float scale;             /* qkt_matmul alone */
    uint32_t unused;
};

/* causal_mask, in place: scores[b][h][i][j] = -inf for j > i + offset. The other scores are neither read nor written.
 */
struct rf_causal_mask_args {
    struct rf_head_strides scores;
    uint64_t batch, heads, rows, columns;
    int64_t offset; /* keys before the first query: columns - rows with a cache, 0 without; may be negative */
};

/* kv_replicate: out[b][h] = in[b][h / (heads_q / heads_kv)], rows x dim elements each, bit for bit. */
struct rf_kv_replicate_args {
    struct rf_head_strides out, in;
    uint64_t batch, heads_q, heads_kv;
    uint64_t rows, dim;
};

/* flash_attention: out = softmax(scale * q k^T + mask, over the keys that a query sees) v. The mask is f32
 * [batch, heads_q, q_rows, k_rows] and may be left out. A query that sees no key, or whose mask is -inf throughout,
 * gives zeros. */
struct rf_flash_attention_args {
    struct rf_head_strides out, q, k, v;
    struct rf_head_strides mask; /* a stride of 0 repeats */
    uint64_t batch, heads_q, heads_kv;
    uint64_t q_rows, k_rows;
    uint64_t dim;
    int64_t offset; /* query i sees the keys j <= i + offset; with k_rows, or more, every query sees them all */
    float scale;
    uint32_t unused;
};

/* paged_attention: the same over keys and values in pages, k and v being [page_count, heads_kv, page_rows, dim].
 *
 * With a table (u32 [batch, table_width]) page_rows is a power of two, and key j of sequence b is row j % page_rows
 * of page table[b][j / page_rows]; a number not below page_count is no page, and its keys do not exist. Without a
 * table sequence b has page b alone, and page_rows is any number: a cache in one piece.
 *
 * Sequence b has lengths[b] keys (u32 [batch]), of which the first max_length count. Its query i stands at position
 * length - q_rows + i and sees the keys up to there; a query before the first key gives zeros. */
struct rf_paged_attention_args {
    struct rf_head_strides out, q;
    struct rf_head_strides k, v; /* batch: from page to page */
    uint64_t batch, heads_q, heads_kv;
    uint64_t q_rows, dim;
    uint64_t page_rows, page_count;
    uint64_t table_width; /* 0 without a table */
    uint64_t max_length;
    float scale;
    /* No work on the queue writes the table, the lengths, or any keys and values but the newest `fresh` of each
     * sequence: a kernel may read the others before its turn. RF_ALL_FRESH: the queue may write all of them. The CPU
     * does not look at this. */
    uint32_t fresh;
};
#define RF_ALL_FRESH (~(uint32_t)0)

/* What the launcher of paged_attention decides; only kernels take it. */
struct rf_paged_attention_plan {
    uint32_t page_shift;    /* with a table: page_rows is 2^page_shift; else 0 */
    uint32_t q_type;        /* of q and out: an enum rf_type of kernel.h */
    uint32_t chunk, splits; /* decoding: a block takes `chunk` keys, a sequence has `splits` chunks */
};

/* ---- qkt_matmul and weighted_matmul: a block for each 64 x 64 of the output ---- */

enum { RF_PRODUCT_TILE = 64, RF_PRODUCT_THREADS = 256 };

/* ---- causal_mask and kv_replicate: any block is right, this one is fast ---- */

enum { RF_HEAD_ROWS_THREADS = 256 };

/* ---- attention in f32: a block for each 32 queries of a head, which takes 32 keys at a time ---- */

enum {
    RF_ATTENTION_DIM_MAX = 256, /* of every kernel */
    RF_ATTENTION_TILE = 32,
    RF_ATTENTION_THREADS = 256,
    RF_ATTENTION_CHUNK = 64, /* elements of a head that are staged together */
    RF_ATTENTION_PITCH = RF_ATTENTION_CHUNK + 4,
    RF_ATTENTION_WEIGHTS = RF_ATTENTION_TILE + 1,
    /* Queries, keys or values, weights; floats. */
    RF_ATTENTION_SHARED = 2 * RF_ATTENTION_TILE * RF_ATTENTION_PITCH + RF_ATTENTION_TILE * RF_ATTENTION_WEIGHTS
};

/* ---- attention on matrix units ---- */

/* A block of 4 waves takes 64 queries. A kernel is for head sizes up to one of RF_MATRIX_DIMS; rows in shared memory
 * are padded by RF_MATRIX_PAD elements. The tile of keys is smaller where a head is large; elsewhere than on NVIDIA a
 * block has no more than 64 KiB of shared memory. */
enum {
    RF_MATRIX_WAVES = 4,
    RF_MATRIX_THREADS_MAX = RF_MATRIX_WAVES * 64, /* waves of 64 */
    RF_MATRIX_QUERIES = 64,
    RF_MATRIX_PAD = 8
};
#define RF_MATRIX_KEYS(dim, nvidia) ((dim) < 256 ? 64 : (nvidia) ? 32 : 16)
#define RF_MATRIX_DIMS(each, name, type)                                                                             \
    each(name, type, 32) each(name, type, 64) each(name, type, 80) each(name, type, 96) each(name, type, 128)        \
        each(name, type, 256)

/* The wide kernels, for head sizes from RF_WIDE_DIM_MIN to RF_WIDE_DIM: a block takes 128 queries, and on NVIDIA it
 * has two tiles of keys and two of values. A few words are kept in shared memory behind the tiles. */
enum { RF_WIDE_DIM = 128, RF_WIDE_DIM_MIN = 104, RF_WIDE_QUERIES = 128, RF_WIDE_NOTES_BYTES = 32 };
#define RF_WIDE_KEYS(nvidia) ((nvidia) ? 64 : 32)
#define RF_WIDE_TILES(nvidia) ((nvidia) ? 4 : 2)

/* Bytes of shared memory: queries, and tiles of keys and values. Where keys lie in pages, there are two words more
 * for each key of a tile: which keys of this tile and of the next one exist. */
#define RF_MATRIX_TILES_BYTES(queries, tiles, keys, dim)                                                             \
    (((queries) + (tiles) * (keys)) * ((dim) + RF_MATRIX_PAD) * 2)
#define RF_MATRIX_PRESENT_BYTES(keys) (8 * (keys))

/* ---- decoding: one query a sequence ---- */

/* Without matrix units: a block takes 1, 4 or 8 query heads of a key-value head. */
enum { RF_DECODE_PLAIN_THREADS = 128 };

/* On matrix units: a block of 4 waves takes up to 8 query heads and walks the keys in tiles of 64. `dim` is 64 or 128
 * below. On NVIDIA the next tile arrives while one is used, hence two stages. */
enum {
    RF_DECODE_WAVES = 4,
    RF_DECODE_THREADS_MAX = RF_DECODE_WAVES * 64, /* waves of 64 */
    RF_DECODE_KEYS = 16 * RF_DECODE_WAVES,
    RF_DECODE_HEADS = 8,
    RF_DECODE_DIM_MAX = 128,
    /* A factor for each head; for each key of two tiles whether it exists. */
    RF_DECODE_NOTES_BYTES = 4 * RF_DECODE_HEADS + 2 * 4 * RF_DECODE_KEYS
};
#define RF_DECODE_STAGES_OF(nvidia) ((nvidia) ? 2 : 1)
#define RF_DECODE_QUERIES_BYTES(dim) (16 * ((dim) + RF_MATRIX_PAD) * 2)
#define RF_DECODE_TILE_BYTES(dim) (2 * RF_DECODE_KEYS * ((dim) + RF_MATRIX_PAD) * 2) /* keys and values */
#define RF_DECODE_RAW_BYTES(dim) (2 * RF_DECODE_KEYS * (dim) / 32 * 34)              /* the same as blocks of Q8_0 */
/* packed: keys and values are Q8_0. Every stage then holds blocks, and one tile is widened at a time. */
#define RF_DECODE_BYTES(dim, packed, stages)                                                                         \
    (RF_DECODE_NOTES_BYTES + RF_DECODE_QUERIES_BYTES(dim) +                                                          \
     ((packed) ? RF_DECODE_TILE_BYTES(dim) + (stages) * RF_DECODE_RAW_BYTES(dim)                                     \
               : (stages) * RF_DECODE_TILE_BYTES(dim)))

#endif
