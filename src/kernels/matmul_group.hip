/* matmul_group_<weights>_<out>: matmul (matmul.hip says what it computes) for many rows on Hopper's own matrix units.
 * rf-target: sm_90a
 *
 * Weights and x are f16 or bf16, both of one type; products are exact, sums are f32 in the order of k, whatever the
 * grid. x and the weights come as tensor maps, with zeros outside:
 *   x        sizes {k, m}, box {RF_GROUP_DEPTH, RF_GROUP_BOX_ROWS}
 *   weights  sizes {k, n}, box {RF_GROUP_DEPTH, RF_GROUP_BOX_ROWS}
 *   out      sizes {n, m}, box {RF_GROUP_OUT_LINE bytes, RF_GROUP_OUT_ROWS}
 * all with a swizzle of 128 bytes. Rows of x and of the weights begin at multiples of 16 bytes; m, n and k are below
 * 2^31, and k is not 0. Where rows of out do not begin at multiples of 16 bytes there is no map of it, `mapped` is 0,
 * and the threads store what the engine would. residual may be out; otherwise out overlaps nothing.
 * Launch: RF_GROUP_THREADS threads, any number of blocks in x, RF_GROUP_SHARED bytes of shared memory.
 *
 * A block stays for the whole launch and takes one tile of 128 x 256 outputs after the other. Its first four waves
 * fill a ring of stages (ring.h), each 64 elements of k; one thread of them does it. The other eight are two groups
 * (group.h) that multiply, each for 64 rows of the tile. Results pass through shared memory, so that the engine can
 * write whole rows of 128 bytes while the next ones are made. */
#include "kernels/group.h"

#include "kernels/matmul_args.h"
#include "kernels/matmul_group_args.h"

#define GROUP_BAND 16 /* rows of tiles that run side by side and share a cache */
#define GROUP_LINE RF_GROUP_OUT_LINE
#define GROUP_BOX_BYTES (RF_GROUP_BOX_ROWS * GROUP_LINE)
#define GROUP_X_BYTES (RF_GROUP_ROWS * GROUP_LINE)
#define GROUP_STAGE_BYTES (GROUP_X_BYTES + RF_GROUP_COLUMNS * GROUP_LINE)
#define GROUP_OUT_BYTES (RF_GROUP_OUT_ROWS * GROUP_LINE) /* of a buffer for results; two for each group */
#define GROUP_USERS (RF_GROUP_THREADS - RF_GROUP)
#define GROUP_BARS_BYTES (RF_RING_BYTES(RF_GROUP_STAGES) + 2 * 8) /* the ring's, and one for each group */

#if RF_GROUP_SHARED != 1024 + RF_GROUP_STAGES * GROUP_STAGE_BYTES + 4 * GROUP_OUT_BYTES + GROUP_BARS_BYTES
#error "the shared memory of matmul_group_args.h is not that of the kernel"
#endif

struct group_op {
    rf_map x, weights, out_map;
    void *out;
    const float *bias;
    const void *residual;
    uint64_t out_stride;
    uint32_t m, n, turns; /* turns: stages of k */
    uint32_t down, tiles;
    bool mapped;
};
struct group_place {
    uint32_t row, column;
};
/* Where the parts of shared memory are. */
struct group_shared {
    rf_place stages, results, bars;
};

/* Tiles go down a band of GROUP_BAND rows of them before they go on to the next columns. */
RF_DEVICE struct group_place group_place(const struct group_op *op, uint32_t tile) {
    uint32_t across = op->tiles / op->down, top = tile / (GROUP_BAND * across) * GROUP_BAND,
             within = tile % (GROUP_BAND * across);
    uint32_t band = op->down - top < GROUP_BAND ? op->down - top : GROUP_BAND;
    struct group_place place = {(top + within % band) * RF_GROUP_ROWS, within / band * RF_GROUP_COLUMNS};
    return place;
}

/* ---- filling ---- */

RF_DEVICE void group_fill(const struct group_op *op, const struct group_shared *shared, struct rf_ring *ring) {
    RF_NO_UNROLL
    for (uint32_t tile = rf_block_x(); tile < op->tiles; tile += rf_grid_dim_x()) {
        struct group_place place = group_place(op, tile);
        RF_NO_UNROLL
        for (uint32_t turn = 0; turn < op->turns; turn++) {
            rf_place stage = shared->stages + ring->slot * GROUP_STAGE_BYTES;
            rf_place bar = rf_ring_claim(ring, GROUP_STAGE_BYTES);
            uint32_t k = turn * RF_GROUP_DEPTH;
            rf_map_load(stage, op->x, k, place.row, bar);
            RF_UNROLL
            for (uint32_t i = 0; i < RF_GROUP_COLUMNS / RF_GROUP_BOX_ROWS; i++)
                rf_map_load(stage + GROUP_X_BYTES + i * GROUP_BOX_BYTES, op->weights, k,
                            place.column + i * RF_GROUP_BOX_ROWS, bar);
            rf_ring_next(ring);
        }
    }
}

/* ---- results ---- */

RF_DEVICE uint32_t group_least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* What is added to a thread's part of the results, 128 bytes of each row. Where there is no output it is the nearest
 * one's: nothing depends on it, and without branches all loads are under way at once. */
struct group_addends {
    float bias[RF_GROUP_OUT_LINE / 2 / 8][2], residual[RF_GROUP_OUT_LINE / 2 / 8][2][2];
};
RF_DEVICE void group_load_addends(enum rf_type type, const struct group_op *op, uint32_t row, uint32_t column,
                                  struct group_addends *addends) {
    const uint32_t pairs = GROUP_LINE / rf_type_bytes(type) / 8;
    RF_UNROLL
    for (uint32_t j = 0; j < pairs; j++) RF_UNROLL
    for (uint32_t i = 0; i < 2; i++)
        addends->bias[j][i] = addends->residual[j][0][i] = addends->residual[j][1][i] = 0;
    if (op->bias) {
        RF_UNROLL
        for (uint32_t j = 0; j < pairs; j++) RF_UNROLL
        for (uint32_t i = 0; i < 2; i++)
            addends->bias[j][i] = op->bias[group_least(column + rf_group_column(j) + i, op->n - 1)];
    }
    if (!op->residual) return;
    RF_UNROLL
    for (uint32_t h = 0; h < 2; h++) {
        uint64_t at = group_least(row + rf_group_row(h), op->m - 1) * op->out_stride;
        RF_UNROLL
        for (uint32_t j = 0; j < pairs; j++) RF_UNROLL
        for (uint32_t i = 0; i < 2; i++)
            addends->residual[j][h][i] =
                rf_load(type, op->residual, at + group_least(column + rf_group_column(j) + i, op->n - 1));
    }
}
/* Without the engine: the threads of the group store 64 rows of 128 bytes from shared memory. */
RF_DEVICE void group_store(enum rf_type type, const struct group_op *op, rf_place from, uint32_t row,
                           uint32_t column) {
    const uint32_t size = rf_type_bytes(type), each = GROUP_LINE / size;
    RF_NO_UNROLL
    for (uint32_t i = rf_group_thread(); i < RF_GROUP_OUT_ROWS * each; i += RF_GROUP) {
        uint32_t r = row + i / each, c = column + i % each;
        const void *value = rf_place_pointer(rf_place_swizzled(from + i * size));
        if (r < op->m && c < op->n) rf_store(type, op->out, r * op->out_stride + c, rf_load(type, value, 0));
    }
}
/* A group's 64 rows, 128 bytes of columns at a time, by two buffers in turn. */
RF_DEVICE void group_finish(enum rf_type type, const struct group_op *op, const struct group_shared *shared,
                            struct group_place place, uint32_t group, uint32_t *parity, const float *sums) {
    const uint32_t size = rf_type_bytes(type), columns = GROUP_LINE / size, parts = RF_GROUP_COLUMNS / columns;
    rf_place own = shared->results + group * (2 * GROUP_OUT_BYTES),
             bar = shared->bars + RF_RING_BYTES(RF_GROUP_STAGES) + 8 * group;
    uint32_t first_row = place.row + group * RF_GROUP_OUT_ROWS;
    struct group_addends addends;
    RF_UNROLL
    for (uint32_t part = 0; part < parts; part++) {
        rf_place buffer = own + part % 2 * GROUP_OUT_BYTES;
        uint32_t column = place.column + part * columns;
        group_load_addends(type, op, first_row, column, &addends);
        if (op->mapped && rf_group_thread() == 0) rf_stores_read(1);
        rf_group_meet(1 + group, RF_GROUP, bar, parity);
        RF_UNROLL
        for (uint32_t j = 0; j < columns / 8; j++) RF_UNROLL
        for (uint32_t h = 0; h < 2; h++) {
            const float *sum = sums + 4 * (part * (columns / 8) + j) + 2 * h;
            float two[2] = {sum[0] + addends.bias[j][0] + addends.residual[j][h][0],
                            sum[1] + addends.bias[j][1] + addends.residual[j][h][1]};
            void *to = rf_place_pointer(
                rf_place_swizzled(buffer + rf_group_row(h) * GROUP_LINE + rf_group_column(j) * size));
            if (type == RF_TYPE_F32) {
                rf_u32x2 bits = {rf_bits_of_f32(two[0]), rf_bits_of_f32(two[1])};
                rf_store_8(to, bits);
            } else {
                *(uint32_t *)to = rf_pack_16(type, two[0], two[1]);
            }
        }
        if (op->mapped) rf_shared_written();
        rf_group_meet(1 + group, RF_GROUP, bar, parity);
        if (!op->mapped) {
            group_store(type, op, buffer, first_row, column);
        } else if (rf_group_thread() == 0) {
            if (first_row < op->m && column < op->n) rf_map_store(op->out_map, column, first_row, buffer);
            rf_stores_sent();
        }
    }
}

/* ---- multiplying ---- */

RF_DEVICE void group_multiply(enum rf_type unit, enum rf_type type, const struct group_op *op,
                              const struct group_shared *shared, struct rf_ring *ring, uint32_t group) {
    uint32_t parity = 0;
    RF_NO_UNROLL
    for (uint32_t tile = rf_block_x(); tile < op->tiles; tile += rf_grid_dim_x()) {
        struct rf_products products;
        float sums[RF_GROUP_SUMS(RF_GROUP_COLUMNS)];
        uint32_t before = 0;
        rf_products_init(&products);
        RF_UNROLL
        for (uint32_t i = 0; i < RF_GROUP_SUMS(RF_GROUP_COLUMNS); i++) sums[i] = 0.0f;
        RF_NO_UNROLL
        for (uint32_t turn = 0; turn < op->turns; turn++) {
            rf_place stage = shared->stages + ring->slot * GROUP_STAGE_BYTES;
            rf_operand left = rf_operand_at(stage + group * (64 * GROUP_LINE)),
                       right = rf_operand_at(stage + GROUP_X_BYTES);
            rf_ring_wait(ring);
            rf_group_begin(&products, RF_GROUP_COLUMNS, sums);
            RF_UNROLL
            for (uint32_t i = 0; i < RF_GROUP_DEPTH / 16; i++)
                rf_group_multiply(&products, unit, RF_GROUP_COLUMNS, false, sums, rf_operand_further(left, 32 * i),
                                  rf_operand_further(right, 32 * i));
            rf_group_sent(&products);
            rf_group_done_but_1(&products);
            if (turn) rf_ring_release(ring, before);
            before = ring->slot;
            rf_ring_next(ring);
        }
        rf_group_done(&products, RF_GROUP_COLUMNS, sums);
        rf_ring_release(ring, before);
        group_finish(type, op, shared, group_place(op, tile), group, &parity, sums);
    }
    if (op->mapped && rf_group_thread() == 0) rf_stores_done();
}

RF_DEVICE void group_body(enum rf_type unit, enum rf_type type, const struct group_op *op, uint8_t *memory) {
    struct group_shared shared;
    shared.stages = (rf_place_of(memory) + 1023) / 1024 * 1024;
    shared.results = shared.stages + RF_GROUP_STAGES * GROUP_STAGE_BYTES;
    shared.bars = shared.results + 4 * GROUP_OUT_BYTES;
    struct rf_ring ring = rf_ring_at(shared.bars, RF_GROUP_STAGES);
    if (rf_thread_x() == 0) {
        rf_map_fetch(op->x);
        rf_map_fetch(op->weights);
        if (op->mapped) rf_map_fetch(op->out_map);
        rf_bar_init(shared.bars + RF_RING_BYTES(RF_GROUP_STAGES), RF_GROUP);
        rf_bar_init(shared.bars + RF_RING_BYTES(RF_GROUP_STAGES) + 8, RF_GROUP);
        rf_ring_init(&ring, GROUP_USERS);
    }
    rf_barrier();
    rf_grid_go();
    rf_grid_wait();
    if (rf_thread_x() < RF_GROUP) {
        RF_REGISTERS_LESS(40);
        if (rf_thread_x() == 0) group_fill(op, &shared, &ring);
    } else {
        RF_REGISTERS_MORE(232);
        group_multiply(unit, type, op, &shared, &ring, rf_thread_x() / RF_GROUP - 1);
    }
}

#define MATMUL_GROUP(name, unit, type, element)                                                                      \
    RF_KERNEL_RING(matmul_group_##name, RF_GROUP_THREADS, (struct rf_map_argument, x),                               \
                   (struct rf_map_argument, weights), (struct rf_map_argument, out_map), (element *, out),           \
                   (const float *, bias), (const element *, residual), (struct rf_matmul_args, args),                \
                   (uint32_t, mapped)) {                                                                             \
        RF_SHARED_DYNAMIC(uint8_t, memory);                                                                          \
        struct group_op op;                                                                                          \
        op.x = RF_MAP_OF(matmul_group_##name, 0, x);                                                                 \
        op.weights = RF_MAP_OF(matmul_group_##name, 1, weights);                                                     \
        op.out_map = RF_MAP_OF(matmul_group_##name, 2, out_map);                                                     \
        op.out = out;                                                                                                \
        op.bias = bias;                                                                                              \
        op.residual = residual;                                                                                      \
        op.out_stride = args.out_stride;                                                                             \
        op.m = (uint32_t)args.m;                                                                                     \
        op.n = (uint32_t)args.n;                                                                                     \
        op.turns = ((uint32_t)args.k + RF_GROUP_DEPTH - 1) / RF_GROUP_DEPTH;                                         \
        op.down = (op.m + RF_GROUP_ROWS - 1) / RF_GROUP_ROWS;                                                        \
        op.tiles = op.down * ((op.n + RF_GROUP_COLUMNS - 1) / RF_GROUP_COLUMNS);                                     \
        op.mapped = mapped != 0;                                                                                     \
        group_body(unit, type, &op, memory);                                                                         \
    }
MATMUL_GROUP(f16_f16, RF_TYPE_F16, RF_TYPE_F16, rf_f16)
MATMUL_GROUP(f16_f32, RF_TYPE_F16, RF_TYPE_F32, float)
MATMUL_GROUP(bf16_bf16, RF_TYPE_BF16, RF_TYPE_BF16, rf_bf16)
MATMUL_GROUP(bf16_f32, RF_TYPE_BF16, RF_TYPE_F32, float)
