/* Products with weights (see fast.h): the choice of a loop for each type and shape, and the division of the work.
 *
 * Columns are rows of x. Work is cut into chunks of weight rows. A chunk's products with all columns (of a batch of
 * at most COLUMNS_MAX) go to the thread's own tile in f32, then through bias, residual, gate and rounding to the
 * output. A chunk's weights are read from memory once, however many columns there are. Several products of one x are
 * one piece of work: their chunks are numbered one after the other. There are two loops, and the choice depends on
 * the shape alone:
 *   few columns    multiplies the rows with one column after the other; the chunk stays in the L2 cache
 *   many columns   unpacks the rows to a panel first (see struct rf_panel), then multiplies panel by column
 *
 * Scratch holds the activations in the loop's layout, then two tiles and a panel for each thread. */
#include "cpu/fast_impl.h"
#include "cpu/quant.h"

enum {
    COLUMNS_MAX = 512,
    CHUNK_BYTES = 96 * 1024,
    CHUNK_ROWS = 64, /* at most; a multiple of the rows of any panel */
    PART = 512,      /* elements of k that are widened at a time; a multiple of every block */
    QUANTIZE_PART = 2048,
};

/* The number of columns from which unpacking to a panel pays, as measured; vectors of 16 unpack quickly. */
static size_t panel_from(const struct rf_simd *simd, enum rf_dtype dtype) {
    bool quick = simd->level == RF_SIMD_AVX512;
    switch (dtype) {
    case RF_Q8_0:
    case RF_Q6_K: return quick ? 3 : 12;
    case RF_Q4_K: return quick ? 3 : 24;
    case RF_Q4_0: return quick ? 3 : 32;
    case RF_F16:
    case RF_BF16: return 48;
    case RF_F32: return 24;
    default: return 6; /* these types are widened in any case */
    }
}

enum path { FEW_QUANT, MANY_QUANT, FEW_FLOAT, MANY_FLOAT, FEW_WIDENED };

struct job {
    struct rf_cpu *cpu;
    const struct rf_ref_matmul *op; /* the first product; what all products share is read from it */
    const struct rf_q8_block *q8;   /* if the activations are already in 8 bits */
    enum path path;
    rf_matvec_quant matvec;
    enum rf_act_order order;
    size_t row_bytes, chunk_rows;
    size_t first, columns; /* of x, in this batch */
    /* In scratch: */
    struct rf_act_group *groups; /* per column: k / 128, rounded up */
    size_t column_groups;
    float *x; /* per column: k; or the caller's own */
    size_t x_stride;
    char *threads;
    size_t thread_bytes, tile_floats;
};

static size_t element_bytes(enum rf_dtype dtype) {
    return dtype == RF_F32 ? 4 : 2;
}

/* ---- activations ---- */

/* Copies blocks that are already in 8 bits, in the loop's order. */
static void take_blocks(struct rf_act_group *groups, const struct rf_q8_block *blocks, size_t count,
                        enum rf_act_order order) {
    memset(groups, 0, (count + 127) / 128 * sizeof *groups);
    for (size_t i = 0; i < count / RF_Q8_BLOCK; i++) {
        struct rf_act_group *group = groups + i / 4;
        size_t b = i % 4;
        for (size_t e = 0; e < RF_Q8_BLOCK; e++) {
            size_t place = order == RF_ACT_SPLIT   ? e / 16 * 64 + 16 * b + e % 16
                           : order == RF_ACT_PAIRS ? 32 * (b % 2 * 2 + b / 2) + e
                                                   : 32 * b + e;
            group->quants[place] = blocks[i].quants[e];
            group->half[2 * b + e / 16] += blocks[i].quants[e];
            group->sum[b] += blocks[i].quants[e];
        }
        group->scale[b] = blocks[i].scale;
    }
}

static void quantize_parts(void *user, size_t begin, size_t end, unsigned thread) {
    (void)thread;
    struct job *job = user;
    const struct rf_ref_matmul *op = job->op;
    size_t parts = (op->args.k + QUANTIZE_PART - 1) / QUANTIZE_PART;
    for (size_t i = begin; i < end; i++) {
        size_t column = i / parts, from = i % parts * QUANTIZE_PART;
        size_t count = RF_MIN((size_t)QUANTIZE_PART, op->args.k - from);
        struct rf_act_group *groups = job->groups + column * job->column_groups + from / 128;
        float copy[QUANTIZE_PART];
        size_t index = (job->first + column) * op->args.x_stride + from;
        if (job->q8) {
            take_blocks(groups, job->q8 + ((job->first + column) * op->args.k + from) / RF_Q8_BLOCK, count,
                        job->order);
            continue;
        }
        const float *x = op->type == RF_F32 ? (const float *)op->x + index : copy;
        if (op->type != RF_F32) {
            job->cpu->simd->cast[RF_F32][op->type](copy, (const uint16_t *)op->x + index, count);
        }
        job->cpu->simd->quantize(groups, x, count, job->order);
    }
}

static void widen_columns(void *user, size_t begin, size_t end, unsigned thread) {
    (void)thread;
    struct job *job = user;
    const struct rf_ref_matmul *op = job->op;
    for (size_t c = begin; c < end; c++) {
        float *x = job->x + c * op->args.k;
        if (job->q8) {
            const struct rf_q8_block *blocks = job->q8 + (job->first + c) * op->args.k / RF_Q8_BLOCK;
            for (size_t i = 0; i < op->args.k; i++)
                x[i] = blocks[i / RF_Q8_BLOCK].scale * (float)blocks[i / RF_Q8_BLOCK].quants[i % RF_Q8_BLOCK];
        } else {
            const uint16_t *from = (const uint16_t *)op->x + (job->first + c) * op->args.x_stride;
            job->cpu->simd->cast[RF_F32][op->type](x, from, op->args.k);
        }
    }
}

/* ---- one chunk of rows ---- */

/* Multiplies `rows` rows, from weights on, with all columns; tile[column][row] has chunk_rows between columns. */
static void few_quant(struct job *job, float *tile, const char *weights, size_t rows) {
    for (size_t c = 0; c < job->columns; c++)
        job->matvec(tile + c * job->chunk_rows, weights, job->row_bytes, rows, job->groups + c * job->column_groups,
                    job->op->args.k);
}

static void few_float(struct job *job, float *tile, const char *weights, size_t rows) {
    for (size_t c = 0; c < job->columns; c++)
        job->cpu->simd->matvec[job->op->weight_type](tile + c * job->chunk_rows, weights, job->row_bytes, rows,
                                                     job->x + c * job->x_stride, job->op->args.k);
}

static void widen_weights(const struct job *job, float *out, const char *row, size_t from, size_t count) {
    enum rf_dtype dtype = job->op->weight_type;
    const char *at = row + from / rf_dtype_block(dtype) * rf_dtype_block_bytes(dtype);
    if (rf_cpu_is_float(dtype))
        job->cpu->simd->cast[RF_F32][dtype](out, at, count);
    else
        job->cpu->simd->widen(dtype, at, out, count);
}

static void few_widened(struct job *job, float *tile, const char *weights, size_t rows, float *space) {
    for (size_t r = 0; r < rows; r++)
        for (size_t from = 0; from < job->op->args.k; from += PART) {
            size_t count = RF_MIN((size_t)PART, job->op->args.k - from);
            widen_weights(job, space, weights + r * job->row_bytes, from, count);
            for (size_t c = 0; c < job->columns; c++) {
                float part, *sum = &tile[c * job->chunk_rows + r];
                job->cpu->simd->matvec[RF_F32](&part, space, 0, 1, job->x + c * job->x_stride + from, count);
                *sum = from == 0 ? part : *sum + part;
            }
        }
}

static void many_quant(struct job *job, float *tile, const char *weights, size_t rows, char *space) {
    const struct rf_simd *simd = job->cpu->simd;
    size_t k = job->op->args.k, width = simd->width;
    struct rf_panel panel = {.quants = (uint8_t *)space};
    panel.scale = (float *)(void *)(space + rf_cpu_round_64(k * width));
    panel.minimum = panel.scale + rf_cpu_round_64(k / 16 * width * sizeof(float)) / sizeof(float);
    for (size_t r = 0; r < rows; r += width) {
        size_t count = RF_MIN(width, rows - r);
        simd->pack(&panel, job->op->weight_type, weights + r * job->row_bytes, job->row_bytes, count, k);
        simd->panel_dot(tile + r, job->chunk_rows, count, &panel, job->op->weight_type, job->groups,
                        job->column_groups, job->columns, k);
    }
}

static void many_float(struct job *job, float *tile, const char *weights, size_t rows, float *space) {
    const struct rf_simd *simd = job->cpu->simd;
    size_t width = 2 * simd->width;
    float *panel = space + PART * width;
    for (size_t r = 0; r < rows; r += width) {
        size_t count = RF_MIN(width, rows - r);
        for (size_t from = 0; from < job->op->args.k; from += PART) {
            size_t part = RF_MIN((size_t)PART, job->op->args.k - from);
            for (size_t i = 0; i < count; i++)
                widen_weights(job, space + i * PART, weights + (r + i) * job->row_bytes, from, part);
            simd->pack_float(panel, space, PART, count, part);
            simd->panel_float(tile + r, job->chunk_rows, count, panel, job->x + from, job->x_stride, job->columns,
                              part, from == 0);
        }
    }
}

static void product(struct job *job, float *tile, const void *matrix, size_t row, size_t rows, char *space) {
    const char *weights = (const char *)matrix + row * job->row_bytes;
    if (job->op->args.k == 0) {
        for (size_t i = 0; i < job->columns * job->chunk_rows; i++) tile[i] = 0;
        return;
    }
    switch (job->path) {
    case FEW_QUANT: few_quant(job, tile, weights, rows); break;
    case MANY_QUANT: many_quant(job, tile, weights, rows, space); break;
    case FEW_FLOAT: few_float(job, tile, weights, rows); break;
    case MANY_FLOAT: many_float(job, tile, weights, rows, (float *)(void *)space); break;
    case FEW_WIDENED: few_widened(job, tile, weights, rows, (float *)(void *)space); break;
    }
}

/* Writes the tile to the output, with bias, residual and rounding. */
static void finish(const struct job *job, const struct rf_ref_matmul *op, float *tile, const float *gate, size_t row,
                   size_t rows) {
    const struct rf_simd *simd = job->cpu->simd;
    for (size_t c = 0; c < job->columns; c++) {
        float *y = tile + c * job->chunk_rows, wide[CHUNK_ROWS];
        size_t index = (job->first + c) * op->args.out_stride + row;
        if (gate) simd->activate[RF_F32](RF_ACTIVATION_SILU, y, y, gate + c * job->chunk_rows, rows);
        if (op->bias) simd->add[RF_F32](y, y, op->bias + row, rows);
        if (op->residual) {
            const char *from = (const char *)op->residual + index * element_bytes(op->type);
            simd->cast[RF_F32][op->type](wide, from, rows);
            simd->add[RF_F32](y, y, wide, rows);
        }
        simd->cast[op->type][RF_F32]((char *)op->out + index * element_bytes(op->type), y, rows);
    }
}

static size_t chunks_of(const struct job *job, const struct rf_ref_matmul *op) {
    return (op->args.n + job->chunk_rows - 1) / job->chunk_rows;
}
static void chunks(void *user, size_t begin, size_t end, unsigned thread) {
    struct job *job = user;
    float *tile = (float *)(void *)(job->threads + thread * job->thread_bytes), *gate = tile + job->tile_floats;
    char *space = (char *)(gate + job->tile_floats);
    for (size_t i = begin; i < end; i++) {
        const struct rf_ref_matmul *op = job->op;
        size_t chunk = i;
        for (; chunk >= chunks_of(job, op); op++) chunk -= chunks_of(job, op);
        size_t row = chunk * job->chunk_rows, rows = RF_MIN(job->chunk_rows, op->args.n - row);
        product(job, tile, op->weights, row, rows, space);
        if (op->gate) product(job, gate, op->gate, row, rows, space);
        finish(job, op, tile, op->gate ? gate : NULL, row, rows);
    }
}

/* ---- the whole product ---- */

static rf_status check(const struct rf_cpu *cpu, const struct rf_ref_matmul *op) {
    if (!cpu || !op) return rf_fail(RF_E_INVALID, "matmul: cpu or its arguments are NULL");
    size_t block = rf_dtype_block(op->weight_type);
    if (block == 0 || (block == 1 && !rf_cpu_is_float(op->weight_type)))
        return rf_fail(RF_E_INVALID, "matmul: type %s is none of weights", rf_dtype_name(op->weight_type));
    if (!rf_cpu_is_float(op->type))
        return rf_fail(RF_E_INVALID, "matmul: activations of type %s are not f32, f16 or bf16",
                       rf_dtype_name(op->type));
    if (op->args.k % block)
        return rf_fail(RF_E_INVALID, "matmul: k = %llu is not a multiple of the %zu elements of a block of %s",
                       (unsigned long long)op->args.k, block, rf_dtype_name(op->weight_type));
    if (op->args.x_q8 && op->args.k % RF_Q8_BLOCK)
        return rf_fail(RF_E_INVALID, "matmul: k = %llu is not a multiple of %d, which activations in 8 bits need",
                       (unsigned long long)op->args.k, RF_Q8_BLOCK);
    if (op->gate && (op->bias || op->residual))
        return rf_fail(RF_E_INVALID, "matmul: bias and residual are not possible with a gate");
    if (op->args.m == 0 || op->args.n == 0) return RF_OK;
    if (!op->out || (op->args.k && (!op->weights || !op->x)))
        return rf_fail(RF_E_INVALID, "matmul: weights, activations or output are NULL");
    if (op->args.out_stride < op->args.n || (!op->args.x_q8 && op->x && op->args.x_stride < op->args.k))
        return rf_fail(RF_E_INVALID, "matmul: a stride is shorter than its row");
    uintptr_t together = (uintptr_t)op->out | (uintptr_t)op->residual;
    if (together % element_bytes(op->type) || (uintptr_t)op->bias % 4 ||
        (uintptr_t)op->x % (op->args.x_q8 ? 4 : element_bytes(op->type)) ||
        (block == 1 && ((uintptr_t)op->weights | (uintptr_t)op->gate) % rf_dtype_block_bytes(op->weight_type)))
        return rf_fail(RF_E_INVALID, "matmul: a tensor is not aligned to its elements");
    uint64_t bytes;
    if (rf_mul_overflows(op->args.k / block, rf_dtype_block_bytes(op->weight_type), &bytes) ||
        rf_mul_overflows(bytes, op->args.n, &bytes) || rf_mul_overflows(op->args.m, op->args.out_stride, &bytes) ||
        rf_mul_overflows(op->args.m, op->args.x_stride, &bytes))
        return rf_fail(RF_E_INVALID, "matmul: %llu x %llu x %llu overflows", (unsigned long long)op->args.m,
                       (unsigned long long)op->args.n, (unsigned long long)op->args.k);
    return RF_OK;
}

static void choose(struct job *job) {
    const struct rf_simd *simd = job->cpu->simd;
    const struct rf_ref_matmul *op = job->op;
    job->order = RF_ACT_PLAIN;
    switch (op->weight_type) {
    case RF_Q8_0: job->matvec = simd->matvec_q8_0; break;
    case RF_Q4_0:
        job->matvec = simd->matvec_q4_0;
        job->order = simd->order_q4_0;
        break;
    case RF_Q4_K:
        job->matvec = simd->matvec_q4_k;
        job->order = simd->order_q4_k;
        break;
    case RF_Q6_K: job->matvec = simd->matvec_q6_k; break;
    default: break;
    }
    if (job->matvec) {
        job->path = op->args.m < panel_from(simd, op->weight_type) ? FEW_QUANT : MANY_QUANT;
        if (job->path == MANY_QUANT) job->order = RF_ACT_PLAIN;
    } else if (op->args.m >= panel_from(simd, op->weight_type)) {
        job->path = MANY_FLOAT;
    } else {
        job->path = rf_cpu_is_float(op->weight_type) ? FEW_FLOAT : FEW_WIDENED;
    }
    size_t block = rf_dtype_block(op->weight_type);
    job->row_bytes = op->args.k / block * rf_dtype_block_bytes(op->weight_type);
    if (job->path == MANY_QUANT)
        job->chunk_rows = simd->width;
    else if (job->path == MANY_FLOAT)
        job->chunk_rows = 2 * simd->width;
    else
        job->chunk_rows =
            RF_MIN(RF_MAX(CHUNK_BYTES / RF_MAX(job->row_bytes, (size_t)1) / 8, (size_t)1) * 8, (size_t)CHUNK_ROWS);
}

/* Lays out the scratch; columns is the most columns of a batch. */
static rf_status reserve(struct job *job, size_t columns) {
    const struct rf_ref_matmul *op = job->op;
    size_t width = job->cpu->simd->width;
    bool quant = job->path == FEW_QUANT || job->path == MANY_QUANT,
         copied = !quant && (job->q8 || op->type != RF_F32);
    job->column_groups = (op->args.k + 127) / 128;
    uint64_t activations = quant    ? columns * job->column_groups * sizeof(struct rf_act_group)
                           : copied ? rf_cpu_round_64(columns * op->args.k * sizeof(float))
                                    : 0;
    uint64_t space = 0;
    if (job->path == MANY_QUANT)
        space = rf_cpu_round_64(op->args.k * width) + rf_cpu_round_64(op->args.k / 16 * width * 4) +
                rf_cpu_round_64(op->args.k / 32 * width * 4);
    else if (job->path == MANY_FLOAT)
        space = 2 * PART * 2 * width * sizeof(float);
    else if (job->path == FEW_WIDENED)
        space = PART * sizeof(float);
    job->tile_floats = rf_cpu_round_64(columns * job->chunk_rows * sizeof(float)) / sizeof(float);
    job->thread_bytes = 2 * job->tile_floats * sizeof(float) + space;
    RF_TRY(rf_cpu_reserve(job->cpu, "matmul", activations + job->cpu->threads * job->thread_bytes));
    if (quant)
        job->groups = (struct rf_act_group *)(void *)job->cpu->scratch;
    else if (copied)
        job->x = (float *)(void *)job->cpu->scratch;
    job->threads = (char *)job->cpu->scratch + activations;
    return RF_OK;
}

static bool share_x(const struct rf_ref_matmul *a, const struct rf_ref_matmul *b) {
    return a->weight_type == b->weight_type && a->type == b->type && a->x == b->x && a->args.x_q8 == b->args.x_q8 &&
           a->args.m == b->args.m && a->args.k == b->args.k && a->args.x_stride == b->args.x_stride;
}

rf_status rf_cpu_matmul(struct rf_cpu *cpu, const struct rf_ref_matmul *op) {
    return rf_cpu_matmuls(cpu, op, 1);
}

rf_status rf_cpu_matmuls(struct rf_cpu *cpu, const struct rf_ref_matmul *ops, size_t count) {
    uint64_t chunk_count = 0;
    if (!ops) return check(cpu, NULL);
    for (size_t i = 0; i < count; i++) {
        RF_TRY(check(cpu, ops + i));
        if (!share_x(ops, ops + i)) return rf_fail(RF_E_INVALID, "matmul: products at once are not of the same x");
    }
    if (count == 0 || ops->args.m == 0) return RF_OK;
    struct job job = {.cpu = cpu, .op = ops, .q8 = ops->args.x_q8 ? ops->x : NULL};
    choose(&job);
    for (size_t i = 0; i < count; i++)
        if (rf_add_overflows(chunk_count, chunks_of(&job, ops + i), &chunk_count))
            return rf_fail(RF_E_INVALID, "matmul: the rows of %zu products overflow", count);
    if (chunk_count == 0) return RF_OK;
    RF_TRY(reserve(&job, RF_MIN(ops->args.m, (size_t)COLUMNS_MAX)));
    size_t parts = (ops->args.k + QUANTIZE_PART - 1) / QUANTIZE_PART;
    for (; job.first < ops->args.m; job.first += job.columns) {
        job.columns = RF_MIN(ops->args.m - job.first, (size_t)COLUMNS_MAX);
        if (job.groups) {
            rf_cpu_run(cpu, job.columns * parts, 1 + 4 / RF_MAX(parts, (size_t)1), quantize_parts, &job);
        } else if (job.q8 || ops->type != RF_F32) {
            job.x_stride = ops->args.k;
            rf_cpu_run(cpu, job.columns, 1, widen_columns, &job);
        } else {
            job.x = (float *)(uintptr_t)ops->x + job.first * ops->args.x_stride; /* only read */
            job.x_stride = ops->args.x_stride;
        }
        rf_cpu_run(cpu, chunk_count, 1, chunks, &job);
    }
    return RF_OK;
}
