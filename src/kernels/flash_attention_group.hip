/* flash_attention_group_<type>_d<dim>: flash_attention (attention_args.h says what it computes), without a mask, for
 * many queries on Hopper's own matrix units. f16 and bf16; heads of up to dim elements. rf-target: sm_90a
 * paged_attention_group_<type>_d<dim>: the same with keys and values in pages.
 *
 * q, k, v and out come as tensor maps of four dimensions {head size, rows, heads, batch}, with zeros outside and a
 * swizzle of 128 bytes: boxes of 64 elements by RF_FLASH_GROUP_ROWS rows (q, out) or RF_FLASH_GROUP_KEYS (k, v); of
 * pages the last dimension is the page, and with a table a page has a multiple of RF_FLASH_GROUP_KEYS rows. The
 * scale is above 0. Scores and sums are f32; the weights of the values are rounded to the operands' type. Launch:
 * RF_FLASH_GROUP_THREADS threads, any number of blocks in x, RF_FLASH_GROUP_SHARED(dim) bytes of shared memory.
 *
 * A block stays for the whole launch and takes one tile of 128 queries of a head after the other; where later queries
 * see more keys, those with most keys first. One thread fills rings of keys and of values (ring.h), from the last
 * keys that a tile sees to the first, so that only the first turns have anything to hide. Two groups of four waves
 * (group.h) have 64 queries each.
 *
 * Two overlaps. Within a group the scores of the next keys and the weighing of the last values are both sent before
 * the softmax of the next scores begins. Between the groups: they take turns at sending products, so that the softmax
 * of one runs beside the products of the other. */
#include "kernels/group.h"

#include "kernels/attention_args.h"
#include "kernels/attention_group_args.h"

#define FLASH_LINE_BYTES 128
#define FLASH_BOX_BYTES (RF_FLASH_GROUP_ROWS * FLASH_LINE_BYTES)
#define FLASH_USERS (2 * RF_GROUP)

struct flash_op {
    rf_map q, k, v, out;
    uint32_t heads_q, heads_kv, batch, q_rows, k_rows, dim; /* k_rows: of pages, the most that count */
    int64_t offset;
    float factor; /* of scores, for powers of two */
    bool paged;   /* a constant; with it: */
    const uint32_t *table, *lengths;
    uint32_t table_width, page_shift, page_count;
};
struct flash_tile {
    uint32_t first, head, kv, batch; /* first: its first query */
    uint32_t k_rows;                 /* keys that exist */
    int32_t sees;                    /* the first query sees those before this one; each further query one more */
    uint32_t turns;                  /* stages of keys */
};
struct flash_shared {
    rf_place queries, keys, values, bars;
    uint32_t *absent; /* of each stage of keys: it has no page */
};
/* Where the waiting is: rings of queries (one stage), keys and values. */
struct flash_rings {
    struct rf_ring q, k, v;
};

/* The keys that query number `more` behind the first one sees. all: those that do not exist count too; of pages no
 * query that exists sees any. */
RF_DEVICE uint32_t flash_sees(bool all, const struct flash_tile *tile, uint32_t more) {
    int32_t sees = tile->sees + (int32_t)more;
    return sees < 0 ? 0 : all || (uint32_t)sees < tile->k_rows ? (uint32_t)sees : tile->k_rows;
}
RF_DEVICE uint32_t flash_tiles(const struct flash_op *op) {
    return (op->q_rows + RF_FLASH_GROUP_QUERIES - 1) / RF_FLASH_GROUP_QUERIES;
}
RF_DEVICE struct flash_tile flash_tile(uint32_t keys, const struct flash_op *op, uint32_t number) {
    uint32_t tiles = flash_tiles(op), all = op->heads_q * op->batch;
    /* Where every tile has as much to do: those of a head one after the other. */
    bool even = !op->paged && op->offset + 1 >= (int64_t)op->k_rows;
    uint32_t at = even ? number % tiles : tiles - 1 - number / all, which = even ? number / tiles : number % all;
    struct flash_tile tile;
    tile.first = at * RF_FLASH_GROUP_QUERIES;
    tile.head = which % op->heads_q;
    tile.batch = which / op->heads_q;
    tile.kv = tile.head / (op->heads_q / op->heads_kv);
    tile.k_rows = op->k_rows;
    int64_t offset = op->offset;
    if (op->paged) {
        uint32_t length = op->lengths[tile.batch];
        if (length < tile.k_rows) tile.k_rows = length;
        offset = (int64_t)tile.k_rows - op->q_rows;
    }
    int64_t sees = (int64_t)tile.first + 1 + offset;
    tile.sees = sees < (int64_t)tile.k_rows ? (int32_t)sees : (int32_t)tile.k_rows;
    tile.turns = (flash_sees(false, &tile, RF_FLASH_GROUP_QUERIES - 1) + keys - 1) / keys;
    if (!tile.turns) tile.turns = 1;
    return tile;
}

/* ---- filling ---- */

/* A stage of keys or of values. page, with pages: that of the stage. */
RF_DEVICE void flash_bring(uint32_t dim, uint32_t keys, const struct flash_op *op, rf_map map, rf_place stages,
                           struct rf_ring *ring, const struct flash_tile *tile, uint32_t turn, uint32_t page) {
    rf_place to = stages + ring->slot * (keys * dim * 2), bar = rf_ring_claim(ring, keys * dim * 2);
    uint32_t row = turn * keys, last = op->paged ? page : tile->batch;
    if (op->paged && op->table) row &= (1u << op->page_shift) - 1;
    RF_UNROLL
    for (uint32_t part = 0; part < dim / RF_FLASH_GROUP_LINE; part++)
        rf_map_load_4d(to + part * (keys * FLASH_LINE_BYTES), map, part * RF_FLASH_GROUP_LINE, row, tile->kv, last,
                       bar);
    rf_ring_next(ring);
}
/* The page of a stage. One that does not exist lies outside the map. */
RF_DEVICE uint32_t flash_page(uint32_t keys, const struct flash_op *op, const struct flash_tile *tile,
                              uint32_t turn) {
    if (!op->paged) return 0;
    if (!op->table) return tile->batch;
    uint32_t page = op->table[(uint64_t)tile->batch * op->table_width + (turn * keys >> op->page_shift)];
    return page < op->page_count ? page : op->page_count;
}
RF_DEVICE void flash_bring_keys(uint32_t dim, uint32_t keys, const struct flash_op *op,
                                const struct flash_shared *shared, struct rf_ring *ring,
                                const struct flash_tile *tile, uint32_t turn, uint32_t page) {
    if (op->paged) {
        rf_ring_empty(ring);
        shared->absent[ring->slot] = page >= op->page_count;
    }
    flash_bring(dim, keys, op, op->k, shared->keys, ring, tile, turn, page);
}
RF_DEVICE void flash_fill(uint32_t dim, uint32_t keys, const struct flash_op *op, const struct flash_shared *shared,
                          struct flash_rings *rings) {
    const uint32_t parts = dim / RF_FLASH_GROUP_LINE;
    uint32_t count = flash_tiles(op) * op->heads_q * op->batch;
    RF_NO_UNROLL
    for (uint32_t number = rf_block_x(); number < count; number += rf_grid_dim_x()) {
        struct flash_tile tile = flash_tile(keys, op, number);
        rf_place bar = rf_ring_claim(&rings->q, RF_FLASH_GROUP_QUERIES * dim * 2);
        RF_UNROLL
        for (uint32_t i = 0; i < 2 * parts; i++) /* [group][part][64 rows] */
            rf_map_load_4d(shared->queries + i * FLASH_BOX_BYTES, op->q, i % parts * RF_FLASH_GROUP_LINE,
                           tile.first + i / parts * RF_FLASH_GROUP_ROWS, tile.head, tile.batch, bar);
        rf_ring_next(&rings->q);
        uint32_t turn = tile.turns - 1, page = flash_page(keys, op, &tile, turn);
        flash_bring_keys(dim, keys, op, shared, &rings->k, &tile, turn, page);
        RF_NO_UNROLL
        for (; turn; turn--) {
            uint32_t next = flash_page(keys, op, &tile, turn - 1);
            flash_bring_keys(dim, keys, op, shared, &rings->k, &tile, turn - 1, next);
            flash_bring(dim, keys, op, op->v, shared->values, &rings->v, &tile, turn, page);
            page = next;
        }
        flash_bring(dim, keys, op, op->v, shared->values, &rings->v, &tile, 0, page);
    }
}

/* ---- a group's scores ---- */

struct flash_rows {
    float max[2], sum[2];
};
/* Whether the stage has no page. The lane that reads it is the one that releases the stage. */
RF_DEVICE bool flash_absent(const struct flash_op *op, const struct flash_shared *shared,
                            const struct rf_ring *ring) {
    uint32_t absent = 0;
    if (!op->paged) return false;
    if (rf_lane() == 0) absent = shared->absent[ring->slot];
    return rf_wave_get_u32(absent, 0) != 0;
}
/* Most turns have nothing to hide. first: the group's first query, of the tile's. */
RF_DEVICE void flash_hide(uint32_t keys, bool paged, const struct flash_tile *tile, uint32_t first,
                          uint32_t first_key, bool absent, float *scores) {
    if (first_key + keys <= flash_sees(paged, tile, rf_opaque(first)) && !absent) return;
    RF_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        uint32_t sees = absent ? 0 : flash_sees(paged, tile, first + rf_opaque(rf_group_row(h)));
        RF_UNROLL
        for (uint32_t j = 0; j < keys / 8; j++) RF_UNROLL
        for (uint32_t i = 0; i < 2; i++)
            if (first_key + rf_group_column(j) + i >= sees) scores[4 * j + 2 * h + i] = -RF_INFINITY;
    }
}
/* Scores become weights. shrink: what was summed before counts so much less. The difference is taken before the
 * factor: one fma for both would miss large scores by their rounding. */
RF_DEVICE void flash_softmax(uint32_t keys, float factor, struct flash_rows *rows, float *scores, float *shrink) {
    RF_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        float left = scores[2 * h], right = scores[2 * h + 1];
        RF_UNROLL
        for (uint32_t j = 1; j < keys / 8; j++) {
            left = rf_max(left, scores[4 * j + 2 * h]);
            right = rf_max(right, scores[4 * j + 2 * h + 1]);
        }
        float max = rf_max(rf_group_row_max(rf_max(left, right)), rows->max[h]);
        float base = max == -RF_INFINITY ? 0.0f : max;
        shrink[h] = rf_exp2((rows->max[h] - base) * factor);
        rows->max[h] = max;
        left = right = 0.0f;
        RF_UNROLL
        for (uint32_t j = 0; j < keys / 8; j++) {
            float *two = scores + 4 * j + 2 * h;
            two[0] = rf_exp2((two[0] - base) * factor);
            two[1] = rf_exp2((two[1] - base) * factor);
            left += two[0];
            right += two[1];
        }
        rows->sum[h] = rf_fma(rows->sum[h], shrink[h], left + right);
    }
}
RF_DEVICE uint32_t flash_pack(enum rf_type type, float low, float high) {
#if defined(RF_HOST)
    return rf_pack_16(type, low, high);
#else
    uint32_t word; /* weights are numbers, or no number at all: which one does not matter */
    if (type == RF_TYPE_F16) {
        __asm__("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    } else {
        __asm__("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    }
    return word;
#endif
}
RF_DEVICE void flash_scores(enum rf_type type, uint32_t dim, uint32_t keys, struct rf_products *products,
                            rf_place queries, rf_place stage, float *scores) {
    RF_UNROLL
    for (uint32_t i = 0; i < dim / 16; i++) {
        uint32_t part = i / 4, bytes = i % 4 * 32;
        rf_operand q = rf_operand_further(rf_operand_at(queries), part * FLASH_BOX_BYTES + bytes),
                   k = rf_operand_further(rf_operand_at(stage), part * (keys * FLASH_LINE_BYTES) + bytes);
        if (i == 0) {
            rf_group_multiply(products, type, keys, true, scores, q, k);
        } else {
            rf_group_multiply(products, type, keys, false, scores, q, k);
        }
    }
}
RF_DEVICE void flash_weigh(enum rf_type type, uint32_t dim, uint32_t keys, struct rf_products *products,
                           const uint32_t *weights, rf_place stage, float *result) {
    rf_operand v = rf_operand_across(stage, keys * FLASH_LINE_BYTES);
    RF_UNROLL
    for (uint32_t i = 0; i < keys / 16; i++)
        rf_group_multiply_words(products, type, dim, result, weights + 4 * i, rf_operand_further(v, 2048 * i));
}

/* Behind the last key of a page lies anything; times a weight of 0 it must be 0. Both groups
 * clear the values from a row on. */
RF_DEVICE void flash_clear(uint32_t dim, uint32_t keys, rf_place stage, uint32_t from) {
    const uint32_t parts = dim / RF_FLASH_GROUP_LINE;
    rf_u32x4 zeros = {0, 0, 0, 0};
    RF_NO_UNROLL
    for (uint32_t i = rf_thread_x() - RF_GROUP; i < (keys - from) * 8; i += 2 * RF_GROUP) {
        RF_UNROLL
        for (uint32_t part = 0; part < parts; part++)
            rf_store_16(rf_place_pointer(stage + (part * keys + from) * FLASH_LINE_BYTES + i * 16), zeros);
    }
    rf_shared_written();
}

/* ---- a group's tile ---- */

struct flash_group {
    uint32_t number; /* 0 or 1 */
    uint32_t parity, turn_parity, both_parity;
    rf_place bar, turn_bar, other_turn_bar, both_bar;
};
/* Products are sent between these two. */
RF_DEVICE void flash_turn_begins(struct flash_group *group) {
    rf_group_meet(3 + rf_opaque(group->number), 2 * RF_GROUP, group->turn_bar, &group->turn_parity);
}
RF_DEVICE void flash_turn_ends(const struct flash_group *group) {
    rf_group_let(4 - rf_opaque(group->number), 2 * RF_GROUP, group->other_turn_bar);
}

/* The results go where the group's queries were, and from there to memory. */
RF_DEVICE void flash_finish(enum rf_type type, uint32_t dim, uint32_t keys, const struct flash_op *op,
                            uint32_t number, struct flash_group *group, rf_place to, const struct flash_rows *rows,
                            const float *result) {
    float total[2], inverse[2];
    RF_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        total[h] = rf_group_row_total(rows->sum[h]);
        inverse[h] = rf_rcp(total[h]);
    }
    rf_group_meet(1 + rf_opaque(group->number), RF_GROUP, group->bar,
                  &group->parity); /* nobody reads the queries any more */
    RF_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        bool none = total[h] == 0.0f; /* the query sees no key */
        uint32_t row = rf_opaque(rf_group_row(h) * FLASH_LINE_BYTES + rf_group_column(0) * 2);
        RF_UNROLL
        for (uint32_t j = 0; j < 8; j++) {
            rf_place place = rf_place_swizzled(to + row + j * 16); /* in each box */
            RF_UNROLL
            for (uint32_t part = 0; part < dim / RF_FLASH_GROUP_LINE; part++) {
                const float *two = result + 4 * (8 * part + j) + 2 * h;
                *(uint32_t *)rf_place_pointer(place + part * FLASH_BOX_BYTES) =
                    none ? 0 : flash_pack(type, two[0] * inverse[h], two[1] * inverse[h]);
            }
        }
    }
    rf_shared_written();
    rf_group_meet(1 + rf_opaque(group->number), RF_GROUP, group->bar, &group->parity);
    if (rf_group_thread() == 0) {
        struct flash_tile tile = flash_tile(keys, op, rf_opaque(number));
        uint32_t row = tile.first + group->number * RF_FLASH_GROUP_ROWS;
        RF_UNROLL
        for (uint32_t part = 0; part < dim / RF_FLASH_GROUP_LINE; part++)
            if (row < op->q_rows && part * RF_FLASH_GROUP_LINE < op->dim)
                rf_map_store_4d(op->out, part * RF_FLASH_GROUP_LINE, row, tile.head, tile.batch,
                                to + part * FLASH_BOX_BYTES);
        rf_stores_sent();
        rf_stores_read(0);
    }
}

RF_DEVICE void flash_attend(enum rf_type type, uint32_t dim, uint32_t keys, const struct flash_op *op,
                            const struct flash_shared *shared, struct flash_rings *rings, struct flash_group *group) {
    uint32_t count = flash_tiles(op) * op->heads_q * op->batch;
    const uint32_t stage_bytes = keys * dim * 2;
    rf_place queries = shared->queries + group->number * (RF_FLASH_GROUP_ROWS * dim * 2);
    if (group->number == 1) flash_turn_ends(group); /* the first group may begin */
    RF_NO_UNROLL
    for (uint32_t number = rf_block_x(); number < count; number += rf_grid_dim_x()) {
        struct flash_tile tile = flash_tile(keys, op, number);
        uint32_t first = group->number * RF_FLASH_GROUP_ROWS, turn = tile.turns - 1;
        struct flash_rows rows = {{-RF_INFINITY, -RF_INFINITY}, {0.0f, 0.0f}};
        float scores[RF_GROUP_SUMS(128)], result[RF_GROUP_SUMS(256)], shrink[2];
        uint32_t weights[RF_GROUP_SUMS(128) / 2];
        struct rf_products products;
        rf_products_init(&products);
        RF_UNROLL
        for (uint32_t i = 0; i < RF_GROUP_SUMS(dim); i++) result[i] = 0.0f;

        rf_ring_wait(&rings->q);
        if (op->paged && tile.turns * keys > tile.k_rows) {
            rf_ring_wait(&rings->v);
            flash_clear(dim, keys, shared->values + rings->v.slot * stage_bytes, tile.k_rows - turn * keys);
            rf_group_meet(5, 2 * RF_GROUP, group->both_bar, &group->both_parity);
        }
        rf_ring_wait(&rings->k);
        flash_turn_begins(group);
        rf_group_begin(&products, dim, result);
        flash_scores(type, dim, keys, &products, queries, shared->keys + rings->k.slot * stage_bytes, scores);
        rf_group_sent(&products);
        flash_turn_ends(group);
        rf_group_done(&products, keys, scores);
        bool absent = flash_absent(op, shared, &rings->k);
        rf_ring_release(&rings->k, rings->k.slot);
        rf_ring_next(&rings->k);
        flash_hide(keys, op->paged, &tile, first, turn * keys, absent, scores);
        flash_softmax(keys, op->factor, &rows, scores, shrink);
        RF_UNROLL
        for (uint32_t i = 0; i < keys / 4; i++) weights[i] = flash_pack(type, scores[2 * i], scores[2 * i + 1]);

        RF_NO_UNROLL
        for (; turn; turn--) {
            rf_ring_wait(&rings->k);
            flash_turn_begins(group);
            rf_group_pin_words(keys / 4, weights);
            rf_group_begin(&products, dim, result);
            flash_scores(type, dim, keys, &products, queries, shared->keys + rings->k.slot * stage_bytes, scores);
            rf_group_sent(&products);
            rf_ring_wait(&rings->v);
            flash_weigh(type, dim, keys, &products, weights, shared->values + rings->v.slot * stage_bytes, result);
            rf_group_sent(&products);
            flash_turn_ends(group);
            rf_group_done_but_1(&products);
            rf_group_pin(keys, scores);
            absent = flash_absent(op, shared, &rings->k);
            rf_ring_release(&rings->k, rings->k.slot);
            rf_ring_next(&rings->k);
            flash_hide(keys, op->paged, &tile, first, (turn - 1) * keys, absent, scores);
            flash_softmax(keys, op->factor, &rows, scores, shrink);
            rf_group_done(&products, dim, result);
            rf_ring_release(&rings->v, rings->v.slot);
            rf_ring_next(&rings->v);
            RF_UNROLL
            for (uint32_t i = 0; i < RF_GROUP_SUMS(dim); i++) result[i] *= shrink[i / 2 % 2];
            RF_UNROLL
            for (uint32_t i = 0; i < keys / 4; i++) weights[i] = flash_pack(type, scores[2 * i], scores[2 * i + 1]);
        }
        rf_ring_wait(&rings->v);
        rf_group_pin_words(keys / 4, weights);
        rf_group_begin(&products, dim, result);
        flash_weigh(type, dim, keys, &products, weights, shared->values + rings->v.slot * stage_bytes, result);
        rf_group_sent(&products);
        rf_group_done(&products, dim, result);
        rf_ring_release(&rings->v, rings->v.slot);
        rf_ring_next(&rings->v);
        flash_finish(type, dim, keys, op, number, group, queries, &rows, result);
        if (rf_group_thread() == 0) rf_ring_release_one(&rings->q, 0);
        rf_ring_next(&rings->q);
    }
    if (rf_group_thread() == 0) rf_stores_done();
    if (group->number == 0) flash_turn_begins(group); /* which the other group let begin, and nobody took */
}

RF_DEVICE void flash_body(enum rf_type type, uint32_t dim, const struct flash_op *op, uint8_t *memory) {
    const uint32_t keys = RF_FLASH_GROUP_KEYS(dim), stages = RF_FLASH_GROUP_STAGES;
    struct flash_shared shared;
    struct flash_rings rings;
    shared.queries = (rf_place_of(memory) + 1023) / 1024 * 1024;
    shared.keys = shared.queries + RF_FLASH_GROUP_QUERIES * dim * 2;
    shared.values = shared.keys + stages * keys * dim * 2;
    shared.bars = shared.values + stages * keys * dim * 2;
    rings.q = rf_ring_at(shared.bars, 1);
    rings.k = rf_ring_at(shared.bars + RF_RING_BYTES(1), stages);
    rings.v = rf_ring_at(shared.bars + RF_RING_BYTES(1) + RF_RING_BYTES(stages), stages);
    rf_place group_bars = shared.bars + RF_RING_BYTES(1) + 2 * RF_RING_BYTES(stages);
    shared.absent = (uint32_t *)rf_place_pointer(group_bars + 5 * 8);
    if (rf_thread_x() == 0) {
        rf_map_fetch(op->q);
        rf_map_fetch(op->k);
        rf_map_fetch(op->v);
        rf_map_fetch(op->out);
        RF_UNROLL
        for (uint32_t i = 0; i < 5; i++) rf_bar_init(group_bars + 8 * i, i < 2 ? RF_GROUP : 2 * RF_GROUP);
        rf_ring_init_for(&rings.q, 2);
        rf_ring_init(&rings.k, FLASH_USERS);
        rf_ring_init(&rings.v, FLASH_USERS);
    }
    rf_barrier();
    rf_grid_go();
    rf_grid_wait();
    if (rf_thread_x() < RF_GROUP) {
        RF_REGISTERS_LESS(24);
        if (rf_thread_x() == 0) flash_fill(dim, keys, op, &shared, &rings);
    } else {
        RF_REGISTERS_MORE(240);
        uint32_t number = rf_thread_x() / RF_GROUP - 1;
        struct flash_group group = {number,
                                    0,
                                    0,
                                    0,
                                    group_bars + 8 * number,
                                    group_bars + 8 * (2 + number),
                                    group_bars + 8 * (3 - number),
                                    group_bars + 8 * 4};
        flash_attend(type, dim, keys, op, &shared, &rings, &group);
    }
}

RF_DEVICE struct flash_op flash_op_of(const struct rf_flash_attention_args *args) {
    struct flash_op op;
    __builtin_memset(&op, 0, sizeof op);
    op.heads_q = (uint32_t)args->heads_q;
    op.heads_kv = (uint32_t)args->heads_kv;
    op.batch = (uint32_t)args->batch;
    op.q_rows = (uint32_t)args->q_rows;
    op.k_rows = (uint32_t)args->k_rows;
    op.dim = (uint32_t)args->dim;
    op.offset = args->offset;
    op.factor = args->scale * RF_LOG2_E;
    return op;
}
RF_DEVICE struct flash_op flash_op_of_pages(const struct rf_paged_attention_args *args, uint32_t page_shift,
                                            const uint32_t *table, const uint32_t *lengths) {
    struct flash_op op;
    __builtin_memset(&op, 0, sizeof op);
    op.heads_q = (uint32_t)args->heads_q;
    op.heads_kv = (uint32_t)args->heads_kv;
    op.batch = (uint32_t)args->batch;
    op.q_rows = (uint32_t)args->q_rows;
    op.k_rows = (uint32_t)args->max_length;
    op.dim = (uint32_t)args->dim;
    op.factor = args->scale * RF_LOG2_E;
    op.paged = true;
    op.table = table;
    op.lengths = lengths;
    op.table_width = (uint32_t)args->table_width;
    op.page_shift = page_shift;
    op.page_count = (uint32_t)args->page_count;
    return op;
}

#define FLASH_MAPS(kernel)                                                                                           \
    op.q = RF_MAP_OF(kernel, 0, q);                                                                                  \
    op.k = RF_MAP_OF(kernel, 1, k);                                                                                  \
    op.v = RF_MAP_OF(kernel, 2, v);                                                                                  \
    op.out = RF_MAP_OF(kernel, 3, out)
#define FLASH_GROUP(name, type, width)                                                                               \
    RF_KERNEL_RING(flash_attention_group_##name, RF_FLASH_GROUP_THREADS, (struct rf_map_argument, q),                \
                   (struct rf_map_argument, k), (struct rf_map_argument, v), (struct rf_map_argument, out),          \
                   (struct rf_flash_attention_args, args)) {                                                         \
        RF_SHARED_DYNAMIC(uint8_t, memory);                                                                          \
        struct flash_op op = flash_op_of(&args);                                                                     \
        FLASH_MAPS(flash_attention_group_##name);                                                                    \
        flash_body(type, width, &op, memory);                                                                        \
    }                                                                                                                \
    RF_KERNEL_RING(paged_attention_group_##name, RF_FLASH_GROUP_THREADS, (struct rf_map_argument, q),                \
                   (struct rf_map_argument, k), (struct rf_map_argument, v), (struct rf_map_argument, out),          \
                   (const uint32_t *, table), (const uint32_t *, lengths), (struct rf_paged_attention_args, args),   \
                   (uint32_t, page_shift)) {                                                                         \
        RF_SHARED_DYNAMIC(uint8_t, memory);                                                                          \
        struct flash_op op = flash_op_of_pages(&args, page_shift, table, lengths);                                   \
        FLASH_MAPS(paged_attention_group_##name);                                                                    \
        flash_body(type, width, &op, memory);                                                                        \
    }
FLASH_GROUP(f16_d64, RF_TYPE_F16, 64)
FLASH_GROUP(f16_d128, RF_TYPE_F16, 128)
FLASH_GROUP(f16_d256, RF_TYPE_F16, 256)
FLASH_GROUP(bf16_d64, RF_TYPE_BF16, 64)
FLASH_GROUP(bf16_d128, RF_TYPE_BF16, 128)
FLASH_GROUP(bf16_d256, RF_TYPE_BF16, 256)
