/* paged_attention: attention over keys and values in pages, as attention_args.h says. table NULL: none. out and q are
 * of plan.q_type, k and v of the type in the kernel's name; sums are in f32. dim is a multiple of 8, at most
 * RF_ATTENTION_DIM_MAX; tensors and strides are aligned to 16 bytes. out and partial must not overlap anything else.
 *
 * *_q8_0*: k and v are blocks of Q8_0 (as kv_append writes them), aligned to 2 bytes; dim and their strides, in
 * elements, are multiples of 32.
 *
 * paged_attention_prefill_*: any q_rows. Launch: blocks of RF_ATTENTION_THREADS, one for each RF_ATTENTION_TILE
 * queries: tiles, then heads_q, then batch, all in grid x.
 *
 * paged_attention_decode_*_gN: one query a sequence. A block takes N query heads of a key-value head together, so
 * that each key and value is read once for N heads. The keys are split into plan.splits of plan.chunk. Launch: blocks
 * of RF_DECODE_PLAIN_THREADS: head tiles (of N), then splits, then heads_kv, then batch, all in grid x. With more
 * than one split partial gets dim sums for each batch, head and split, and behind all of those a maximum and a sum
 * for each; the last block of a sequence's head tile makes out of them, in the order of the splits. partial is
 * aligned to 16 bytes. counters has a word for each batch, key-value head and head tile, in this order: 0 before the
 * launch, and after it. With one split neither is used. */
#include "kernels/attention_decode.h"

RF_DEVICE struct rf_keys paged_keys(enum rf_type type, bool packed, const void *k, const void *v,
                                    const uint32_t *table, uint32_t batch, uint32_t head,
                                    const struct rf_paged_attention_args *args,
                                    const struct rf_paged_attention_plan *plan) {
    bool tabled = table != 0;
    uint64_t page = tabled ? 0 : batch; /* the only one, without a table */
    struct rf_keys keys = {rf_key_at(type, packed, k, page * args->k.batch + head * args->k.head),
                           rf_key_at(type, packed, v, page * args->v.batch + head * args->v.head),
                           args->k.row,
                           args->v.row,
                           args->k.batch,
                           args->v.batch,
                           table,
                           (uint64_t)batch * rf_size(&args->table_width),
                           tabled,
                           plan->page_shift,
                           rf_size(&args->page_count)};
    return keys;
}
RF_DEVICE uint32_t paged_length(const uint32_t *lengths, uint32_t batch, const struct rf_paged_attention_args *args) {
    uint32_t limit = rf_size(&args->max_length);
    return lengths[batch] < limit ? lengths[batch] : limit;
}

#define PAGED_PREFILL(name, type, packed)                                                                            \
    RF_KERNEL(paged_attention_prefill_##name, RF_ATTENTION_THREADS, (void *, out), (const void *, q),                \
              (const void *, k), (const void *, v), (const uint32_t *, table), (const uint32_t *, lengths),          \
              (struct rf_paged_attention_args, args), (struct rf_paged_attention_plan, plan)) {                      \
        RF_SHARED(float, shared, RF_ATTENTION_SHARED);                                                               \
        uint32_t heads_q = rf_size(&args.heads_q), group = heads_q / rf_size(&args.heads_kv);                        \
        uint32_t q_rows = rf_size(&args.q_rows);                                                                     \
        struct rf_share_of_heads share = rf_share_of_block(rf_tiles_of(q_rows, RF_ATTENTION_TILE), heads_q);         \
        struct rf_keys keys = paged_keys(type, packed, k, v, table, share.batch, share.head / group, &args, &plan);  \
        uint32_t length = paged_length(lengths, share.batch, &args);                                                 \
        struct rf_query_view view = {q_rows, length, (int64_t)length - q_rows, 0, 0};                                \
        enum rf_type of_q = (enum rf_type)plan.q_type;                                                               \
        rf_attend_tile(type, true, packed, of_q,                                                                     \
                       rf_at_mutable(of_q, out, rf_heads_at(args.out, share.batch, share.head)), args.out.row,       \
                       rf_at(of_q, q, rf_heads_at(args.q, share.batch, share.head)), args.q.row, &keys, &view,       \
                       share.tile *RF_ATTENTION_TILE, rf_size(&args.dim), args.scale, shared);                       \
    }

PAGED_PREFILL(f32, RF_TYPE_F32, false)
PAGED_PREFILL(f16, RF_TYPE_F16, false)
PAGED_PREFILL(bf16, RF_TYPE_BF16, false)
PAGED_PREFILL(q8_0, RF_TYPE_F16, true)

/* ---- decoding --------------------------------------------------------------------------------------- */

/* A key is read by a team of 2^n lanes, 8 elements each. A wave holds several teams, each with its own maximum, sum
 * and sums, which are brought together at the end in a fixed order. */
#define DECODE_THREADS RF_DECODE_PLAIN_THREADS
#define DECODE_WAVES (DECODE_THREADS / RF_WAVE)
#define DECODE_PITCH (RF_ATTENTION_DIM_MAX + 2)
#define DECODE_HEADS_MAX 8

/* 8 elements as they lie in memory: one vector of a 16-bit type, two of f32, or where packed two words and the scale.
 */
struct decode_piece {
    rf_u32x4 raw[2];
};
RF_DEVICE struct decode_piece decode_load(enum rf_type type, bool packed, const void *base, uint64_t row,
                                          uint32_t column, bool there) {
    struct decode_piece piece = {{{0, 0, 0, 0}, {0, 0, 0, 0}}};
    if (there && packed) {
        uint32_t words[2];
        piece.raw[0][2] = rf_bits_of_f32(rf_key_packed(rf_key_at(type, true, base, row), column, words));
        piece.raw[0][0] = words[0];
        piece.raw[0][1] = words[1];
    } else if (there) {
        piece.raw[0] = rf_load_16(rf_at(type, base, row + column));
        if (type == RF_TYPE_F32) piece.raw[1] = rf_load_16(rf_at(type, base, row + column + 4));
    }
    return piece;
}
RF_DEVICE float decode_value(enum rf_type type, bool packed, const struct decode_piece *piece, uint32_t k) {
    if (packed) {
        uint32_t words[2] = {piece->raw[0][0], piece->raw[0][1]};
        return rf_key_quant(words, k) * rf_f32_of_bits(piece->raw[0][2]);
    }
    if (type == RF_TYPE_F32) return rf_f32_of_bits(piece->raw[k / 4][k % 4]);
    return rf_f32_of_16(type, (uint16_t)(piece->raw[0][k / 2] >> k % 2 * 16));
}

struct decode_state {
    float max[DECODE_HEADS_MAX], sum[DECODE_HEADS_MAX], sums[DECODE_HEADS_MAX][8];
};

/* Brings two states of head g to their common maximum and adds them. */
RF_DEVICE void decode_merge(struct decode_state *state, uint32_t g, float max, float sum, const float *sums) {
    float both = rf_max(state->max[g], max), shift = rf_softmax_shift(both);
    float mine = rf_exp2(state->max[g] - shift), theirs = rf_exp2(max - shift);
    state->max[g] = both;
    state->sum[g] = state->sum[g] * mine + sum * theirs;
    RF_UNROLL
    for (uint32_t k = 0; k < 8; k++) state->sums[g][k] = state->sums[g][k] * mine + sums[k] * theirs;
}

/* Takes keys first to end of a split. All teams of the block work side by side, each on `depth` keys at a time. */
RF_DEVICE void decode_walk(enum rf_type type, bool packed, uint32_t heads, uint32_t depth, const float q[][8],
                           const struct rf_keys *keys, uint32_t first, uint32_t end, uint32_t team, uint32_t column,
                           bool inside, struct decode_state *state) {
    uint32_t teams = DECODE_THREADS / team, mine = rf_thread_x() / team;
    RF_NO_UNROLL
    for (uint32_t base = first; base < end; base += teams * depth) {
        struct decode_piece k[4], v[4];
        bool there[4];
        RF_UNROLL
        for (uint32_t u = 0; u < depth; u++) {
            struct rf_key_place place = {0, 0, false};
            uint32_t key = base + u * teams + mine;
            if (key < end) place = rf_key_find(true, keys, key);
            there[u] = place.there;
            k[u] = decode_load(type, packed, keys->k, place.k, column, place.there && inside);
            v[u] = decode_load(type, packed, keys->v, place.v, column, place.there && inside);
        }
        RF_UNROLL
        for (uint32_t g = 0; g < heads; g++) {
            float scores[4], max = state->max[g];
            RF_UNROLL
            for (uint32_t u = 0; u < depth; u++) {
                scores[u] = 0.0f;
                RF_UNROLL
                for (uint32_t e = 0; e < 8; e++)
                    scores[u] = rf_fma(q[g][e], decode_value(type, packed, &k[u], e), scores[u]);
                RF_UNROLL
                for (uint32_t mask = 1; mask < 32; mask *= 2)
                    if (mask < team) scores[u] += rf_wave_xor_f32(scores[u], mask);
                if (!there[u]) scores[u] = -RF_INFINITY;
                max = rf_max(max, scores[u]);
            }
            float shift = rf_softmax_shift(max), shrink = rf_exp2(state->max[g] - shift);
            state->max[g] = max;
            state->sum[g] *= shrink;
            RF_UNROLL
            for (uint32_t e = 0; e < 8; e++) state->sums[g][e] *= shrink;
            RF_UNROLL
            for (uint32_t u = 0; u < depth; u++) {
                float weight = rf_exp2(scores[u] - shift);
                state->sum[g] += weight;
                RF_UNROLL
                for (uint32_t e = 0; e < 8; e++)
                    state->sums[g][e] = rf_fma(weight, decode_value(type, packed, &v[u], e), state->sums[g][e]);
            }
        }
    }
}

/* Brings the teams and waves together, a head at a time. shared has DECODE_WAVES * DECODE_PITCH floats. */
RF_DEVICE void decode_finish(uint32_t heads, uint32_t heads_left, uint32_t dim, uint32_t team, uint32_t column,
                             bool inside, struct decode_state *state, const struct rf_decode_out *to, float *shared) {
    RF_UNROLL
    for (uint32_t g = 0; g < heads; g++) {
        RF_UNROLL
        for (uint32_t mask = 1; mask < RF_WAVE; mask *= 2) {
            if (mask < team) continue;
            float sums[8], max = rf_wave_xor_f32(state->max[g], mask), sum = rf_wave_xor_f32(state->sum[g], mask);
            RF_UNROLL
            for (uint32_t e = 0; e < 8; e++) sums[e] = rf_wave_xor_f32(state->sums[g][e], mask);
            decode_merge(state, g, max, sum, sums);
        }
        float *mine = shared + rf_thread_x() / RF_WAVE * DECODE_PITCH;
        if (rf_lane() < team && inside) {
            RF_UNROLL
            for (uint32_t e = 0; e < 8; e++) mine[column + e] = state->sums[g][e];
        }
        if (rf_lane() == 0) {
            mine[256] = state->max[g];
            mine[257] = state->sum[g];
        }
        rf_barrier();
        float max = -RF_INFINITY, sum = 0.0f;
        RF_UNROLL
        for (uint32_t w = 0; w < DECODE_WAVES; w++) max = rf_max(max, shared[w * DECODE_PITCH + 256]);
        float shift = rf_softmax_shift(max);
        RF_UNROLL
        for (uint32_t w = 0; w < DECODE_WAVES; w++)
            sum += shared[w * DECODE_PITCH + 257] * rf_exp2(shared[w * DECODE_PITCH + 256] - shift);
        RF_NO_UNROLL
        for (uint32_t d = rf_thread_x(); d < dim && g < heads_left; d += DECODE_THREADS) {
            float total = 0.0f;
            RF_UNROLL
            for (uint32_t w = 0; w < DECODE_WAVES; w++)
                total += shared[w * DECODE_PITCH + d] * rf_exp2(shared[w * DECODE_PITCH + 256] - shift);
            rf_decode_put(to, g, d, dim, total, sum);
        }
        if (g < heads_left && rf_thread_x() == 0) rf_decode_put_extent(to, g, max, sum);
        rf_barrier();
    }
}

/* How many lanes read a key together. */
RF_DEVICE uint32_t decode_team(uint32_t dim) {
    uint32_t team = 1;
    RF_UNROLL
    for (uint32_t i = 0; i < 5; i++) team = team * 8 < dim ? team * 2 : team;
    return team;
}

/* What a block of up to `heads` query heads of one key-value head has to do. */
struct decode_work {
    struct rf_keys keys;
    uint32_t first, end; /* keys */
    uint32_t settled;    /* keys before this one were written before the kernel's turn */
    uint32_t heads_left; /* heads from the block's first on */
    uint64_t q;          /* index of the first head's query */
    bool none;           /* no keys and no result: the block has nothing to do */
    struct rf_decode_out to;
};
RF_DEVICE struct decode_work decode_share(enum rf_type type, bool packed, uint32_t heads, void *out, float *partial,
                                          uint32_t *counters, const void *k, const void *v, const uint32_t *table,
                                          const uint32_t *lengths, const struct rf_paged_attention_args *args,
                                          const struct rf_paged_attention_plan *plan) {
    uint32_t heads_q = rf_size(&args->heads_q), heads_kv = rf_size(&args->heads_kv), dim = rf_size(&args->dim);
    uint32_t chunk = plan->chunk, splits = plan->splits, fresh = args->fresh;
    enum rf_type q_type = (enum rf_type)plan->q_type;
    uint32_t group = heads_q / heads_kv, head_tiles = rf_tiles_of(group, heads);
    struct rf_share_of_heads share = rf_share_of_block(head_tiles * splits, heads_kv);
    uint32_t split = share.tile / head_tiles, tile = share.tile % head_tiles;
    uint32_t first_head = share.head * group + tile * heads, first = split * chunk;
    uint32_t length = paged_length(lengths, share.batch, args);
    uint64_t batches = rf_grid_dim_x() / (head_tiles * splits * heads_kv);
    /* Opaque: it is not needed before the end, and scalar registers are few on AMD. */
    uint32_t used = rf_opaque(length > chunk ? (length - 1) / chunk + 1 : 1), mine = rf_opaque(split);
    uint64_t at = (uint64_t)rf_opaque(share.batch * heads_q + first_head) * splits;
    bool direct = used == 1;
    struct decode_work work = {
        paged_keys(type, packed, k, v, table, share.batch, share.head, args, plan),
        first,
        first >= length          ? first
        : length - first < chunk ? length
                                 : first + chunk,
        length > fresh ? length - fresh : 0,
        group - tile * heads,
        rf_heads_at(args->q, share.batch, first_head),
        split && first >= length,
        {direct, q_type, rf_at_mutable(q_type, out, rf_heads_at(args->out, share.batch, first_head)), args->out.head,
         partial + (direct ? 0 : at * dim), partial + (direct ? 0 : batches * heads_q * splits * dim + at * 2),
         splits, mine, used, counters + (direct ? 0 : (share.batch * heads_kv + share.head) * head_tiles + tile)}};
    return work;
}

RF_DEVICE void decode_body(enum rf_type type, bool packed, uint32_t heads, struct decode_work work, const void *q,
                           uint64_t q_head, uint32_t dim, float scale, float *shared) {
    if (work.none) return;
    uint32_t team = decode_team(dim), column = rf_lane() % team * 8;
    bool inside = column < dim;
    struct decode_state state;
    float query[DECODE_HEADS_MAX][8];
    RF_UNROLL
    for (uint32_t g = 0; g < heads; g++) {
        RF_UNROLL
        for (uint32_t e = 0; e < 8; e++) query[g][e] = state.sums[g][e] = 0.0f;
        state.max[g] = -RF_INFINITY;
        state.sum[g] = 0.0f;
        if (g < work.heads_left && inside) rf_load_many(work.to.type, 8, q, work.q + g * q_head + column, query[g]);
        RF_UNROLL
        for (uint32_t e = 0; e < 8; e++) query[g][e] *= scale * RF_LOG2_E;
    }
    decode_walk(type, packed, heads, (type == RF_TYPE_F32 && !packed) || heads > 4 ? 2 : 4, query, &work.keys,
                work.first, work.end, team, column, inside, &state);
    decode_finish(heads, work.heads_left, dim, team, column, inside, &state, &work.to, shared);
    rf_decode_join(RF_DECODE_LOADS, &work.to, work.heads_left < heads ? work.heads_left : heads, dim, shared);
}

#define PAGED_DECODE_ARGUMENTS                                                                                       \
    (void *, out), (float *, partial), (uint32_t *, counters), (const void *, q), (const void *, k),                 \
        (const void *, v), (const uint32_t *, table), (const uint32_t *, lengths),                                   \
        (struct rf_paged_attention_args, args), (struct rf_paged_attention_plan, plan)
#define PAGED_DECODE_SHARE(type, packed, heads)                                                                      \
    decode_share(type, packed, heads, out, partial, counters, k, v, table, lengths, &args, &plan)
#define PAGED_DECODE(name, type, packed, heads)                                                                      \
    RF_KERNEL(paged_attention_decode_##name, DECODE_THREADS, PAGED_DECODE_ARGUMENTS) {                               \
        RF_SHARED(float, shared, DECODE_WAVES *DECODE_PITCH);                                                        \
        decode_body(type, packed, heads, PAGED_DECODE_SHARE(type, packed, heads), q, args.q.head,                    \
                    rf_size(&args.dim), args.scale, shared);                                                         \
    }
#define PAGED_DECODES(name, type, packed)                                                                            \
    PAGED_DECODE(name##_g1, type, packed, 1)                                                                         \
    PAGED_DECODE(name##_g4, type, packed, 4)                                                                         \
    PAGED_DECODE(name##_g8, type, packed, 8)

PAGED_DECODES(f32, RF_TYPE_F32, false)
PAGED_DECODES(f16, RF_TYPE_F16, false)
PAGED_DECODES(bf16, RF_TYPE_BF16, false)
PAGED_DECODES(q8_0, RF_TYPE_F16, true)

/* paged_attention_decode_matrix_TYPE_dD: the same on matrix units for 16-bit types and head sizes up to D, with
 * RF_DECODE_HEADS heads together; _q8_0_dD: for a head size of D, with rows aligned to 4 bytes. chunk is a multiple
 * of RF_DECODE_KEYS. Launch: RF_DECODE_WAVES waves, and RF_DECODE_BYTES of dynamic shared memory. */
#ifndef RF_TILE_ABSENT
RF_DEVICE void decode_matrix(enum rf_type type, bool packed, uint32_t dim_most, struct decode_work work,
                             const void *q, uint64_t q_head, uint32_t dim, float scale, uint16_t *shared) {
    struct rf_decode_shape shape = {dim_most, packed};
    if (work.none) return;
    rf_decode_block(type, shape, rf_at(work.to.type, q, work.q), q_head,
                    work.heads_left < RF_DECODE_HEADS ? work.heads_left : RF_DECODE_HEADS, &work.keys, work.first,
                    work.end, work.settled, dim, scale, &work.to, shared);
}
#define PAGED_DECODE_MATRIX(name, type, packed, dim_)                                                                \
    RF_KERNEL_EARLY(paged_attention_decode_matrix_##name, RF_DECODE_THREADS_MAX, PAGED_DECODE_ARGUMENTS) {           \
        RF_SHARED_DYNAMIC(uint16_t, paged_shared);                                                                   \
        rf_grid_go();                                                                                                \
        if (args.fresh == RF_ALL_FRESH) rf_grid_wait();                                                              \
        decode_matrix(type, packed, dim_, PAGED_DECODE_SHARE(type, packed, RF_DECODE_HEADS), q, args.q.head,         \
                      rf_size(&args.dim), args.scale, paged_shared);                                                 \
    }

PAGED_DECODE_MATRIX(f16_d64, RF_TYPE_F16, false, 64)
PAGED_DECODE_MATRIX(f16_d128, RF_TYPE_F16, false, 128)
PAGED_DECODE_MATRIX(bf16_d64, RF_TYPE_BF16, false, 64)
PAGED_DECODE_MATRIX(bf16_d128, RF_TYPE_BF16, false, 128)
PAGED_DECODE_MATRIX(q8_0_d64, RF_TYPE_F16, true, 64)
PAGED_DECODE_MATRIX(q8_0_d128, RF_TYPE_F16, true, 128)
#endif

/* ---- prefill on matrix units ---------------------------------------------------------------------------- */

/* paged_attention_matrix_TYPE_dD: as prefill, for 16-bit types and head sizes up to D; weights, and queries of f32,
 * are rounded to the type. Launch: as flash_attention_matrix_*, with RF_MATRIX_PRESENT_BYTES more of dynamic shared
 * memory.
 *
 * rf-matrix: paged_attention_matrix_* paged_attention_decode_matrix_* */
#include "kernels/attention_matrix.h"

#ifndef RF_TILE_ABSENT

#define PAGED_MATRIX(name, type_, dim_)                                                                              \
    RF_KERNEL(paged_attention_matrix_##name##_d##dim_, RF_MATRIX_THREADS_MAX, (void *, out), (const void *, q),      \
              (const uint16_t *, k), (const uint16_t *, v), (const uint32_t *, table), (const uint32_t *, lengths),  \
              (struct rf_paged_attention_args, args), (struct rf_paged_attention_plan, plan)) {                      \
        RF_SHARED_DYNAMIC(uint16_t, paged_shared);                                                                   \
        struct rf_matrix_shape shape = RF_MATRIX_SHAPE(dim_);                                                        \
        uint32_t heads_q = rf_size(&args.heads_q), group = heads_q / rf_size(&args.heads_kv);                        \
        uint32_t q_rows = rf_size(&args.q_rows), tiles = rf_tiles_of(q_rows, RF_MATRIX_QUERIES);                     \
        struct rf_share_of_heads share = rf_share_of_block(tiles, heads_q);                                          \
        struct rf_keys keys = paged_keys(type_, false, k, v, table, share.batch, share.head / group, &args, &plan);  \
        uint32_t length = paged_length(lengths, share.batch, &args);                                                 \
        struct rf_query_view view = {q_rows, length, (int64_t)length - q_rows, 0, 0};                                \
        enum rf_type of_q = plan.q_type == RF_TYPE_F32 ? RF_TYPE_F32 : type_;                                        \
        rf_attend_matrix(                                                                                            \
            type_, true, shape, of_q, rf_at_mutable(of_q, out, rf_heads_at(args.out, share.batch, share.head)),      \
            args.out.row, rf_at(of_q, q, rf_heads_at(args.q, share.batch, share.head)), args.q.row, &keys, &view,    \
            (tiles - 1 - share.tile) * RF_MATRIX_QUERIES, rf_size(&args.dim), args.scale, paged_shared);             \
    }

RF_MATRIX_DIMS(PAGED_MATRIX, f16, RF_TYPE_F16)
RF_MATRIX_DIMS(PAGED_MATRIX, bf16, RF_TYPE_BF16)

#endif
