/* Launchers of the attention ops (see gpu_attention.h).
 *
 * Each op: its sizes are checked, then every view (inside its buffer, aligned, an output that does not
 * overlap itself or an input), then the kernel's arguments are put together and submitted. Sizes reach
 * the kernels as 32 bits where that is all they can be; the checks see to that. */
#include "ops/gpu_attention.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"

enum { DIM_MAX = 256, ROWS_MAX = INT32_MAX, TILE = 32, PRODUCT_TILE = 64 };

/* ---- views ---- */

/* A view with its sizes, strides filled in: what the checks work on. */
struct tensor {
    const char *name;
    struct rf_buffer *buffer;
    uint64_t offset, element;         /* bytes; of a quantized type an element is a block */
    uint64_t batch, heads, rows, dim; /* sizes */
    uint64_t strides[3];              /* of batch, head, row, as the kernels take them */
    uint64_t bytes;                   /* from the first element to the end of the last */
};

/* Fills strides and checks that the view stays inside its buffer. repeats: strides may be 0. */
static rf_status open_view(const char *op, const char *name, const struct rf_head_view *view, enum rf_dtype dtype,
                           const uint64_t sizes[4], uint64_t align, struct tensor *t) {
    uint64_t dense_head = 0, dense_batch = 0, span = sizes[3], block = rf_dtype_block(dtype);
    *t = (struct tensor){name,     view->buffer, view->offset_bytes, rf_dtype_block_bytes(dtype),          sizes[0],
                         sizes[1], sizes[2],     sizes[3],           {view->batch, view->head, view->row}, 0};
    if (rf_mul_overflows(sizes[2], sizes[3], &dense_head) || rf_mul_overflows(dense_head, sizes[1], &dense_batch))
        return rf_fail(RF_E_INVALID, "%s: the size of %s overflows", op, name);
    if (!view->batch && !view->head && !view->row) {
        t->strides[0] = dense_batch;
        t->strides[1] = dense_head;
        t->strides[2] = sizes[3];
    }
    if (!sizes[0] || !sizes[1] || !sizes[2] || !sizes[3]) return RF_OK;
    for (int i = 0; i < 3; i++) {
        uint64_t reach;
        if (rf_mul_overflows(t->strides[i], sizes[i] - 1, &reach) || rf_add_overflows(span, reach, &span))
            return rf_fail(RF_E_INVALID, "%s: the strides of %s overflow", op, name);
        if (t->strides[i] % block || sizes[3] % block)
            return rf_fail(RF_E_INVALID, "%s: %s comes in blocks of %llu, its rows and strides must be whole ones",
                           op, name, (unsigned long long)block);
    }
    if (rf_mul_overflows(span / block, t->element, &t->bytes) || t->bytes > INT64_MAX)
        return rf_fail(RF_E_INVALID, "%s: the size of %s overflows", op, name);
    if (!t->buffer) return rf_fail(RF_E_INVALID, "%s: %s has no buffer", op, name);
    if (!rf_range_fits(t->offset, t->bytes, rf_buffer_bytes(t->buffer)))
        return rf_fail(RF_E_INVALID, "%s: %s takes %llu bytes from offset %llu, its buffer has %llu", op, name,
                       (unsigned long long)t->bytes, (unsigned long long)t->offset,
                       (unsigned long long)rf_buffer_bytes(t->buffer));
    uint64_t address = rf_buffer_address(t->buffer) + t->offset, whole = block > 1 ? 2 : t->element;
    if (address % align || address % whole)
        return rf_fail(RF_E_INVALID, "%s: %s must begin at a multiple of %llu bytes", op, name,
                       (unsigned long long)RF_MAX(align, whole));
    for (int i = 0; i < 3; i++)
        if (align > t->element && sizes[i] > 1 && t->strides[i] * t->element % align)
            return rf_fail(RF_E_INVALID, "%s: the strides of %s must be multiples of %llu bytes", op, name,
                           (unsigned long long)align);
    return RF_OK;
}

static bool overlap(const struct tensor *a, const struct tensor *b) {
    if (!a->bytes || !b->bytes) return false;
    uint64_t a_first = rf_buffer_address(a->buffer) + a->offset, b_first = rf_buffer_address(b->buffer) + b->offset;
    return a_first < b_first + b->bytes && b_first < a_first + a->bytes;
}

/* No two elements of an output share memory: from the smallest stride up, each steps over all before it. */
static bool overlaps_itself(const struct tensor *t) {
    const uint64_t sizes[3] = {t->batch, t->heads, t->rows};
    bool done[3] = {false, false, false};
    uint64_t span = t->dim;
    for (int turn = 0; turn < 3; turn++) {
        int least = -1;
        for (int i = 0; i < 3; i++)
            if (!done[i] && (least < 0 || t->strides[i] < t->strides[least])) least = i;
        done[least] = true;
        if (sizes[least] <= 1) continue;
        if (t->strides[least] < span) return true;
        span += t->strides[least] * (sizes[least] - 1);
    }
    return false;
}

static rf_status check_output(const char *op, const struct tensor *out, const struct tensor *inputs, size_t count) {
    if (out->bytes && overlaps_itself(out))
        return rf_fail(RF_E_INVALID, "%s: the strides of %s make its elements overlap", op, out->name);
    for (size_t i = 0; i < count; i++)
        if (overlap(out, &inputs[i]))
            return rf_fail(RF_E_INVALID, "%s: %s overlaps %s", op, out->name, inputs[i].name);
    return RF_OK;
}

/* ---- types and sizes ---- */

static const char *suffix_of(enum rf_dtype dtype) {
    return dtype == RF_F32 ? "f32" : dtype == RF_F16 ? "f16" : dtype == RF_BF16 ? "bf16" : NULL;
}

static rf_status check_type(const char *op, enum rf_dtype dtype) {
    if (suffix_of(dtype)) return RF_OK;
    const char *name = rf_dtype_name(dtype);
    return rf_fail(RF_E_UNSUPPORTED, "%s: no kernel for %s, only f32, f16 and bf16", op, name ? name : "that type");
}

static rf_status check_heads(const char *op, uint64_t heads_q, uint64_t heads_kv) {
    if (!heads_kv || heads_q % heads_kv || heads_q > ROWS_MAX)
        return rf_fail(RF_E_INVALID, "%s: %llu query heads are no multiple of %llu key-value heads", op,
                       (unsigned long long)heads_q, (unsigned long long)heads_kv);
    return RF_OK;
}

static rf_status check_rows(const char *op, const char *what, uint64_t rows) {
    if (rows <= ROWS_MAX) return RF_OK;
    return rf_fail(RF_E_UNSUPPORTED, "%s: %llu %s, at most %d", op, (unsigned long long)rows, what, ROWS_MAX);
}

static rf_status check_head_size(const char *op, uint64_t dim) {
    if (dim && dim % 8 == 0 && dim <= DIM_MAX) return RF_OK;
    return rf_fail(RF_E_UNSUPPORTED, "%s: a head size of %llu; it must be a multiple of 8 up to %d", op,
                   (unsigned long long)dim, DIM_MAX);
}

static uint64_t tiles_of(uint64_t count, uint64_t tile) {
    return count / tile + (count % tile != 0);
}

/* a * b * c * d as a number of blocks in x. */
static rf_status count_blocks(const char *op, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint32_t *blocks) {
    uint64_t all;
    if (rf_mul_overflows(a, b, &all) || rf_mul_overflows(all, c, &all) || rf_mul_overflows(all, d, &all) ||
        all > INT32_MAX)
        return rf_fail(RF_E_UNSUPPORTED, "%s: too large for one launch: %llu x %llu x %llu x %llu blocks", op,
                       (unsigned long long)a, (unsigned long long)b, (unsigned long long)c, (unsigned long long)d);
    *blocks = (uint32_t)all;
    return RF_OK;
}

/* ---- launching ---- */

static struct rf_arg pointer_arg(const struct tensor *t) {
    return rf_arg_buffer_at(t->buffer, t->offset);
}
static struct rf_arg bytes_arg(const void *value, uint32_t bytes) {
    struct rf_arg arg = {RF_ARG_KIND_VALUE, bytes, NULL, 0, {0}};
    memcpy(arg.value.raw, value, bytes);
    return arg;
}
static struct rf_arg strides_arg(const struct tensor *t) {
    return bytes_arg(t->strides, sizeof t->strides);
}
static struct rf_arg u32_arg(uint64_t value) {
    return rf_arg_u32((uint32_t)value);
}

static rf_status submit_grid(struct rf_queue *queue, const char *op, const char *kernel, const uint32_t grid[3],
                             uint32_t threads, uint32_t shared, const struct rf_arg *args, size_t count) {
    RF_PARAMS(struct rf_launch, launch);
    rf_status status = rf_kernel_find(rf_queue_device(queue), kernel, &launch.kernel);
    if (!status) {
        memcpy(launch.grid, grid, sizeof launch.grid);
        launch.block[0] = threads;
        launch.shared_bytes = shared;
        launch.args = args;
        launch.arg_count = count;
        status = rf_queue_launch(queue, &launch);
    }
    return status ? rf_fail_within(status, "%s", op) : RF_OK;
}

static rf_status submit(struct rf_queue *queue, const char *op, const char *kernel, uint32_t blocks_x,
                        uint32_t blocks_y, uint32_t threads, uint32_t shared, const struct rf_arg *args,
                        size_t count) {
    const uint32_t grid[3] = {blocks_x, blocks_y, 1};
    return submit_grid(queue, op, kernel, grid, threads, shared, args, count);
}

static rf_status check_call(const char *op, const struct rf_queue *queue, const void *args) {
    if (queue && args) return RF_OK;
    return rf_fail(RF_E_INVALID, "%s: %s is NULL", op, queue ? "args" : "queue");
}

/* ---- qkt_matmul and weighted_matmul ---- */

/* Names of out, left and right, and whether left holds the scores (or weights) instead of out. */
struct product {
    const char *op, *names[3];
    bool weighted;
};

static rf_status product(struct rf_queue *queue, const struct product *p, const struct rf_head_product_args *a) {
    struct tensor out, in[2];
    uint32_t blocks = 0;
    char kernel[64];
    rf_status status = check_call(p->op, queue, a);
    if (!status) status = check_type(p->op, a->dtype);
    if (!status) status = check_heads(p->op, a->heads_q, a->heads_kv);
    if (!status) status = check_rows(p->op, "queries", a->q_rows);
    if (!status) status = check_rows(p->op, "keys", a->k_rows);
    if (!status) status = check_rows(p->op, "elements of a head", a->dim);
    if (status) return status;
    const uint64_t queries[] = {a->batch, a->heads_q, a->q_rows, a->dim};
    const uint64_t scores[] = {a->batch, a->heads_q, a->q_rows, a->k_rows};
    const uint64_t right[] = {a->batch, a->heads_kv, a->k_rows, a->dim};
    const uint64_t *sizes[] = {p->weighted ? queries : scores, p->weighted ? scores : queries};
    const enum rf_dtype types[] = {p->weighted ? a->dtype : RF_F32, p->weighted ? RF_F32 : a->dtype};
    status = open_view(p->op, p->names[0], &a->out, types[0], sizes[0], p->weighted ? 1 : 4, &out);
    if (!status) status = open_view(p->op, p->names[1], &a->left, types[1], sizes[1], p->weighted ? 4 : 1, &in[0]);
    if (!status) status = open_view(p->op, p->names[2], &a->right, a->dtype, right, 1, &in[1]);
    if (!status) status = check_output(p->op, &out, in, 2);
    if (!status)
        status = count_blocks(p->op, tiles_of(sizes[0][3], PRODUCT_TILE), tiles_of(a->q_rows, PRODUCT_TILE),
                              a->heads_q, a->batch, &blocks);
    if (status || !blocks) return status;
    const struct rf_arg args[] = {pointer_arg(&out),   pointer_arg(&in[0]),  pointer_arg(&in[1]),
                                  strides_arg(&out),   strides_arg(&in[0]),  strides_arg(&in[1]),
                                  u32_arg(a->heads_q), u32_arg(a->heads_kv), u32_arg(a->q_rows),
                                  u32_arg(a->k_rows),  u32_arg(a->dim),      rf_arg_f32(a->scale)};
    snprintf(kernel, sizeof kernel, "%s_%s", p->op, suffix_of(a->dtype));
    return submit(queue, p->op, kernel, blocks, 1, 256, 0, args, RF_COUNT(args) - p->weighted); /* without a scale */
}

rf_status rf_gpu_qkt_matmul(struct rf_queue *queue, const struct rf_head_product_args *args) {
    return product(queue, &(struct product){"qkt_matmul", {"scores", "q", "k"}, false}, args);
}
rf_status rf_gpu_weighted_matmul(struct rf_queue *queue, const struct rf_head_product_args *args) {
    return product(queue, &(struct product){"weighted_matmul", {"out", "weights", "v"}, true}, args);
}

/* ---- causal_mask and kv_replicate ---- */

rf_status rf_gpu_causal_mask(struct rf_queue *queue, const struct rf_causal_mask_args *a) {
    static const char op[] = "causal_mask";
    struct tensor scores;
    char kernel[64];
    rf_status status = check_call(op, queue, a);
    if (!status) status = check_type(op, a->dtype);
    if (!status) status = check_rows(op, "rows", a->rows);
    if (!status) status = check_rows(op, "heads", a->heads);
    if (!status) status = check_rows(op, "batches", a->batch);
    if (!status && (a->offset > INT64_MAX / 2 || a->offset < INT64_MIN / 2))
        status = rf_fail(RF_E_INVALID, "%s: an offset of %lld", op, (long long)a->offset);
    if (status) return status;
    const uint64_t sizes[] = {a->batch, a->heads, a->rows, a->columns};
    status = open_view(op, "scores", &a->scores, a->dtype, sizes, 1, &scores);
    if (!status) status = check_output(op, &scores, NULL, 0);
    if (status || !scores.bytes) return status;
    RF_PARAMS(struct rf_device_info, info);
    status = rf_device_get_info(rf_queue_device(queue), &info);
    if (status) return rf_fail_within(status, "%s", op);
    /* A wave takes a row. */
    uint64_t blocks = tiles_of(a->rows, 256 / (uint64_t)RF_MAX(info.wave_size, 32));
    const uint32_t grid[3] = {(uint32_t)RF_MIN(blocks, UINT64_C(1) << 20),
                              (uint32_t)RF_MIN(a->heads, UINT64_C(65535)),
                              (uint32_t)RF_MIN(a->batch, UINT64_C(65535))};
    const struct rf_arg args[] = {pointer_arg(&scores), strides_arg(&scores), u32_arg(a->batch),
                                  u32_arg(a->heads),    u32_arg(a->rows),     rf_arg_i64((int64_t)a->columns),
                                  rf_arg_i64(a->offset)};
    snprintf(kernel, sizeof kernel, "causal_mask_%s", suffix_of(a->dtype));
    return submit_grid(queue, op, kernel, grid, 256, 0, args, RF_COUNT(args));
}

rf_status rf_gpu_kv_replicate(struct rf_queue *queue, const struct rf_kv_replicate_args *a) {
    static const char op[] = "kv_replicate";
    struct tensor out, in;
    rf_status status = check_call(op, queue, a);
    if (!status) status = check_type(op, a->dtype);
    if (!status) status = check_heads(op, a->heads_q, a->heads_kv);
    if (status) return status;
    const uint64_t out_sizes[] = {a->batch, a->heads_q, a->rows, a->dim};
    const uint64_t in_sizes[] = {a->batch, a->heads_kv, a->rows, a->dim};
    status = open_view(op, "out", &a->out, a->dtype, out_sizes, 1, &out);
    if (!status) status = open_view(op, "in", &a->in, a->dtype, in_sizes, 1, &in);
    if (!status) status = check_output(op, &out, &in, 1);
    if (status || !out.bytes) return status;
    uint64_t rows = a->rows, dim = a->dim;
    if (out.strides[2] == dim && in.strides[2] == dim) { /* no gaps: one long row, no division in the kernel */
        dim *= rows;
        rows = 1;
    }
    uint64_t per_thread = 16 / out.element, blocks = tiles_of(rows * dim, 256 * per_thread),
             pairs = a->batch * a->heads_kv;
    const struct rf_arg args[] = {pointer_arg(&out),
                                  pointer_arg(&in),
                                  strides_arg(&out),
                                  strides_arg(&in),
                                  rf_arg_i64((int64_t)a->batch),
                                  u32_arg(a->heads_kv),
                                  u32_arg(a->heads_q / a->heads_kv),
                                  rf_arg_i64((int64_t)rows),
                                  rf_arg_i64((int64_t)dim)};
    return submit(queue, op, out.element == 4 ? "kv_replicate_b32" : "kv_replicate_b16",
                  (uint32_t)RF_MIN(blocks, UINT64_C(1) << 20), (uint32_t)RF_MIN(pairs, UINT64_C(65535)), 256, 0, args,
                  RF_COUNT(args));
}

/* ---- flash_attention ---- */

/* How a matrix kernel cuts the work; as kernels/attention_matrix.h says. */
struct matrix_choice {
    bool use;
    uint32_t dim, queries, keys, tiles, threads; /* tiles: of keys and values, in shared memory */
    const char *wide;
};

static uint32_t matrix_shared(const struct matrix_choice *choice, bool paged) {
    uint32_t bytes = (choice->queries + choice->tiles * choice->keys) * (choice->dim + 8) * 2;
    if (choice->wide[0]) bytes += 32;
    return RF_MAX(bytes + (paged ? 8 * choice->keys : 0), 21632u);
}

/* The kernel for a path; choice->use says whether it is one on matrix units. rows: the queries, where the wide kernel
 * may be chosen; else 0. */
static rf_status choose_matrix(const char *op, struct rf_queue *queue, enum rf_dtype dtype, uint64_t dim,
                               uint64_t rows, enum rf_attention_path path, struct matrix_choice *choice) {
    static const uint32_t sizes[] = {32, 64, 80, 96, 128, 256};
    RF_PARAMS(struct rf_device_info, info);
    *choice = (struct matrix_choice){false, 0, 64, 64, 2, 0, ""};
    if (path == RF_ATTENTION_PLAIN) return RF_OK;
    rf_status status = rf_device_get_info(rf_queue_device(queue), &info);
    if (status) return rf_fail_within(status, "%s", op);
    bool units = strncmp(info.arch, "gfx10", 5) != 0; /* RDNA2 has none */
    bool nvidia = info.vendor == RF_VENDOR_NVIDIA, wide = path == RF_ATTENTION_WIDE;
    if (path != RF_ATTENTION_AUTO && (!units || dtype == RF_F32))
        return rf_fail(RF_E_UNSUPPORTED, "%s: no matrix units for %s on %s", op, rf_dtype_name(dtype), info.arch);
    if (wide && (dim <= 96 || dim > 128))
        return rf_fail(RF_E_UNSUPPORTED, "%s: the wide kernel takes head sizes from 104 to 128, not %llu", op,
                       (unsigned long long)dim);
    const struct matrix_choice wider = {true, 128, 128, nvidia ? 64 : 32, nvidia ? 4 : 2, 0, "_wide"};
    if (path == RF_ATTENTION_AUTO && nvidia && dtype != RF_F32 && dim > 96 && dim <= 128 && rows >= 128)
        wide = matrix_shared(&wider, false) <= (uint32_t)RF_MAX(info.max_shared_bytes_per_block, 0);
    if (wide) *choice = wider;
    size_t i = 0;
    while (sizes[i] < dim) i++;
    choice->use = units && dtype != RF_F32;
    choice->dim = sizes[i];
    choice->threads = 4 * (uint32_t)info.wave_size;
    if (choice->dim == 256) choice->keys = nvidia ? 32 : 16;
    return RF_OK;
}

rf_status rf_gpu_flash_attention(struct rf_queue *queue, const struct rf_flash_attention_args *a) {
    static const char op[] = "flash_attention";
    struct tensor out, in[4] = {{.name = "q"}, {.name = "k"}, {.name = "v"}, {.name = "mask"}};
    uint32_t blocks = 0;
    struct matrix_choice choice;
    char kernel[64];
    rf_status status = check_call(op, queue, a);
    if (!status) status = check_type(op, a->dtype);
    if (!status) status = check_heads(op, a->heads_q, a->heads_kv);
    if (!status) status = check_rows(op, "queries", a->q_rows);
    if (!status) status = check_rows(op, "keys", a->k_rows);
    if (!status) status = check_head_size(op, a->dim);
    bool plainly = a->mask.buffer && a->path == RF_ATTENTION_WIDE; /* that one takes no mask */
    if (!status)
        status = choose_matrix(op, queue, a->dtype, a->dim, a->mask.buffer ? 0 : a->q_rows,
                               plainly ? RF_ATTENTION_MATRIX : a->path, &choice);
    if (!status && a->causal && (a->offset > ROWS_MAX || a->offset < -(int64_t)ROWS_MAX))
        status = rf_fail(RF_E_INVALID, "%s: an offset of %lld", op, (long long)a->offset);
    if (status) return status;
    const uint64_t q_sizes[] = {a->batch, a->heads_q, a->q_rows, a->dim};
    const uint64_t k_sizes[] = {a->batch, a->heads_kv, a->k_rows, a->dim};
    const uint64_t mask_sizes[] = {a->batch, a->heads_q, a->q_rows, a->k_rows};
    status = open_view(op, "out", &a->out, a->dtype, q_sizes, 16, &out);
    if (!status) status = open_view(op, "q", &a->q, a->dtype, q_sizes, 16, &in[0]);
    if (!status) status = open_view(op, "k", &a->k, a->dtype, k_sizes, 16, &in[1]);
    if (!status) status = open_view(op, "v", &a->v, a->dtype, k_sizes, 16, &in[2]);
    if (!status && a->mask.buffer) status = open_view(op, "mask", &a->mask, RF_F32, mask_sizes, 4, &in[3]);
    if (!status) status = check_output(op, &out, in, 4);
    if (status) return status;
    status =
        count_blocks(op, tiles_of(a->q_rows, choice.use ? choice.queries : TILE), a->heads_q, a->batch, 1, &blocks);
    if (status || !blocks) return status;
    /* All keys are seen by every query when the first query's last key is the last key. */
    int64_t offset = a->causal ? a->offset : (int64_t)a->k_rows;
    const struct rf_arg args[] = {pointer_arg(&out),   pointer_arg(&in[0]), pointer_arg(&in[1]), pointer_arg(&in[2]),
                                  pointer_arg(&in[3]), strides_arg(&out),   strides_arg(&in[0]), strides_arg(&in[1]),
                                  strides_arg(&in[2]), strides_arg(&in[3]), u32_arg(a->heads_q), u32_arg(a->heads_kv),
                                  u32_arg(a->q_rows),  u32_arg(a->k_rows),  u32_arg(a->dim),     rf_arg_f32(a->scale),
                                  rf_arg_i64(offset)};
    if (!choice.use) {
        snprintf(kernel, sizeof kernel, "flash_attention_%s", suffix_of(a->dtype));
        return submit(queue, op, kernel, blocks, 1, 256, 0, args, RF_COUNT(args));
    }
    snprintf(kernel, sizeof kernel, "flash_attention_matrix_%s_d%u%s", suffix_of(a->dtype), choice.dim, choice.wide);
    return submit(queue, op, kernel, blocks, 1, choice.threads, matrix_shared(&choice, false), args, RF_COUNT(args));
}

/* ---- paged_attention ---- */

/* As the kernels' struct paged. */
struct pages_arg {
    uint32_t shift, page_count, width, limit;
};

struct split {
    uint32_t chunk, splits; /* keys a block takes; chunks in all */
};

/* By sizes alone, so that the same call gives the same bits, and the workspace is known before the kernel is: enough
 * blocks to fill any device, but each with enough keys to be worth its start, and of a long sequence so many that
 * adding up what they give does not take long (as measured on an H200); few keys are not split, for that takes a
 * launch of its own. */
static struct split choose_split(const struct rf_paged_attention_args *a, uint64_t limit) {
    enum { BLOCKS = 1024, ALONE = 128, CHUNK_STEP = 64 };
    uint64_t pairs = a->batch * a->heads_kv * tiles_of(a->heads_q / a->heads_kv, 8);
    uint64_t wanted = pairs && pairs < BLOCKS ? BLOCKS / pairs : 1;
    uint64_t least = limit <= ALONE ? ALONE : limit <= 2048 ? 64 : limit <= 4096 ? 128 : 256;
    uint64_t chunk = tiles_of(tiles_of(limit, wanted), CHUNK_STEP) * CHUNK_STEP;
    struct split split;
    split.chunk = (uint32_t)RF_MIN(RF_MAX(chunk, least), (uint64_t)ROWS_MAX + 1);
    split.splits = (uint32_t)RF_MAX(tiles_of(limit, split.chunk), UINT64_C(1));
    return split;
}

/* Of k and v. */
static enum rf_dtype cache_type(const struct rf_paged_attention_args *a) {
    return a->q8_0 ? RF_Q8_0 : a->cache_16 ? a->cache_16 : a->dtype;
}

/* Sizes, and the pages as the kernels take them. */
static rf_status check_paged(const char *op, const struct rf_paged_attention_args *a, bool tabled,
                             struct pages_arg *pages) {
    uint64_t named = a->page_rows;
    rf_status status = check_type(op, a->dtype);
    if (!status) status = check_heads(op, a->heads_q, a->heads_kv);
    if (!status) status = check_rows(op, "queries", a->q_rows);
    if (!status) status = check_rows(op, "sequences", a->batch);
    if (!status) status = check_head_size(op, a->dim);
    if (!status) status = check_rows(op, "pages", a->page_count);
    if (!status) status = check_rows(op, "rows a page", a->page_rows);
    if (!status && a->cache_16 &&
        (a->q8_0 || (a->cache_16 != RF_F16 && a->cache_16 != RF_BF16) ||
         (a->dtype != RF_F32 && a->dtype != a->cache_16)))
        status = rf_fail(RF_E_UNSUPPORTED,
                         "%s: keys and values of another type than the queries: only f16 or bf16 with f32", op);
    if (!status && a->q8_0 && a->dim % 32)
        status = rf_fail(RF_E_UNSUPPORTED, "%s: keys in q8_0 come in blocks of 32, the head size is %llu", op,
                         (unsigned long long)a->dim);
    if (status) return status;
    if (tabled) {
        if (!a->page_rows || (a->page_rows & (a->page_rows - 1)))
            return rf_fail(RF_E_UNSUPPORTED, "%s: pages of %llu rows; with a table it must be a power of two", op,
                           (unsigned long long)a->page_rows);
        if (rf_mul_overflows(a->table_width, a->page_rows, &named) || named > ROWS_MAX)
            return rf_fail(RF_E_UNSUPPORTED, "%s: a table of %llu pages of %llu rows names more than %d keys", op,
                           (unsigned long long)a->table_width, (unsigned long long)a->page_rows, ROWS_MAX);
        pages->shift = (uint32_t)__builtin_ctzll(a->page_rows);
        pages->width = (uint32_t)a->table_width;
    } else {
        if (a->page_count < a->batch)
            return rf_fail(RF_E_INVALID, "%s: without a table each of %llu sequences needs a page, there are %llu",
                           op, (unsigned long long)a->batch, (unsigned long long)a->page_count);
        pages->shift = pages->width = 0;
    }
    if (a->max_length > named)
        return rf_fail(RF_E_INVALID, "%s: max_length is %llu, there is room for %llu keys", op,
                       (unsigned long long)a->max_length, (unsigned long long)named);
    pages->limit = (uint32_t)(a->max_length ? a->max_length : named);
    pages->page_count = (uint32_t)a->page_count;
    return RF_OK;
}

static rf_status workspace_bytes(const char *op, const struct rf_paged_attention_args *a, uint64_t limit,
                                 uint64_t *bytes) {
    struct split split = choose_split(a, limit);
    uint64_t heads, all = 0;
    if (a->q_rows == 1 && split.splits > 1 &&
        (rf_mul_overflows(a->batch, a->heads_q, &heads) || rf_mul_overflows(heads, split.splits, &all) ||
         rf_mul_overflows(all, (a->dim + 2) * sizeof(float), &all)))
        return rf_fail(RF_E_INVALID, "%s: the size of the workspace overflows", op);
    *bytes = all;
    return RF_OK;
}

rf_status rf_gpu_paged_attention_workspace(const struct rf_paged_attention_args *args, uint64_t *bytes) {
    static const char op[] = "paged_attention";
    struct pages_arg pages;
    if (!args || !bytes) return rf_fail(RF_E_INVALID, "%s: args or bytes is NULL", op);
    rf_status status = check_paged(op, args, args->table_width != 0, &pages);
    return status ? status : workspace_bytes(op, args, pages.limit, bytes);
}

/* A dense array of u32 as a tensor, for the checks. */
static rf_status open_words(const char *op, const char *name, struct rf_buffer *buffer, uint64_t offset,
                            uint64_t rows, uint64_t columns, struct tensor *t) {
    const struct rf_head_view view = {buffer, offset, 0, 0, 0};
    const uint64_t sizes[] = {1, 1, rows, columns};
    return open_view(op, name, &view, RF_I32, sizes, 4, t);
}

/* As the kernels' enum rf_type. */
static uint32_t type_number(enum rf_dtype dtype) {
    return dtype == RF_F32 ? 0 : dtype == RF_F16 ? 1 : 2;
}

/* A decode kernel, and how many heads its blocks take together. */
struct decode_choice {
    char kernel[64];
    uint32_t heads, threads, shared;
};
/* Whether rows of q8_0 can be copied by words, whole rows at a time. */
static bool words_fit(const struct tensor *t) {
    uint64_t address = rf_buffer_address(t->buffer) + t->offset;
    return address % 4 == 0 && t->strides[0] % 64 == 0 && t->strides[1] % 64 == 0 && t->strides[2] % 64 == 0;
}
static rf_status choose_decode(const char *op, struct rf_queue *queue, const struct rf_paged_attention_args *a,
                               const struct tensor *in, struct decode_choice *choice) {
    RF_PARAMS(struct rf_device_info, info);
    rf_status status = rf_device_get_info(rf_queue_device(queue), &info);
    if (status) return rf_fail_within(status, "%s", op);
    enum rf_dtype cache = cache_type(a);
    const char *suffix = cache == RF_Q8_0 ? "q8_0" : suffix_of(cache);
    uint64_t group = a->heads_q / a->heads_kv;
    uint32_t dim = a->dim <= 64 ? 64 : 128, stages = info.vendor == RF_VENDOR_NVIDIA ? 2 : 1;
    bool matrix = a->path != RF_ATTENTION_PLAIN && strncmp(info.arch, "gfx10", 5) != 0 && cache != RF_F32 &&
                  a->dim <= 128 && (cache != RF_Q8_0 || (a->dim == dim && words_fit(&in[1]) && words_fit(&in[2])));
    if (matrix) {
        uint32_t tile = 256 * (dim + 8);
        *choice =
            (struct decode_choice){"", 8, 4 * (uint32_t)info.wave_size,
                                   544 + tile / 8 + (cache == RF_Q8_0 ? tile + stages * 136 * dim : stages * tile)};
        snprintf(choice->kernel, sizeof choice->kernel, "paged_attention_decode_matrix_%s_d%u", suffix, dim);
    } else {
        *choice = (struct decode_choice){"", group == 1 ? 1 : group <= 4 ? 4 : 8, 128, 0};
        snprintf(choice->kernel, sizeof choice->kernel, "paged_attention_decode_%s_g%u", suffix, choice->heads);
    }
    return RF_OK;
}

static rf_status decode(struct rf_queue *queue, const char *op, const struct rf_paged_attention_args *a,
                        const struct tensor *out, const struct tensor *in, const struct tensor *workspace,
                        const struct pages_arg *pages) {
    struct split split = choose_split(a, pages->limit);
    struct decode_choice choice;
    uint32_t blocks = 0;
    char kernel[64];
    rf_status status = choose_decode(op, queue, a, in, &choice);
    if (status) return status;
    uint64_t tiles = tiles_of(a->heads_q / a->heads_kv, choice.heads);
    status = count_blocks(op, tiles, split.splits, a->heads_kv, a->batch, &blocks);
    if (status || !blocks) return status;
    const struct rf_arg args[] = {pointer_arg(out),
                                  pointer_arg(workspace),
                                  pointer_arg(&in[0]),
                                  pointer_arg(&in[1]),
                                  pointer_arg(&in[2]),
                                  pointer_arg(&in[3]),
                                  pointer_arg(&in[4]),
                                  strides_arg(out),
                                  strides_arg(&in[0]),
                                  strides_arg(&in[1]),
                                  strides_arg(&in[2]),
                                  u32_arg(a->heads_q),
                                  u32_arg(a->heads_kv),
                                  u32_arg(a->dim),
                                  bytes_arg(pages, 16),
                                  rf_arg_u32(split.chunk),
                                  rf_arg_u32(split.splits),
                                  rf_arg_f32(a->scale),
                                  rf_arg_u32(type_number(a->dtype)),
                                  rf_arg_u32(a->settled ? RF_MIN(a->fresh, UINT32_MAX - 1) : UINT32_MAX)};
    status = submit(queue, op, choice.kernel, blocks, 1, choice.threads, choice.shared, args, RF_COUNT(args));
    if (status || split.splits == 1) return status;
    const struct rf_arg combine[] = {pointer_arg(out),    pointer_arg(workspace), strides_arg(out),
                                     u32_arg(a->heads_q), u32_arg(a->dim),        rf_arg_u32(split.splits)};
    snprintf(kernel, sizeof kernel, "paged_attention_combine_%s", suffix_of(a->dtype));
    return submit(queue, op, kernel, (uint32_t)(a->batch * a->heads_q), 1, 256, 0, combine, RF_COUNT(combine));
}

rf_status rf_gpu_paged_attention(struct rf_queue *queue, const struct rf_paged_attention_args *a) {
    static const char op[] = "paged_attention";
    struct tensor out, workspace = {.name = "workspace"};
    struct tensor in[] = {{.name = "q"}, {.name = "k"}, {.name = "v"}, {.name = "table"}, {.name = "lengths"}};
    struct pages_arg pages;
    uint64_t bytes = 0;
    uint32_t blocks = 0;
    struct matrix_choice choice;
    char kernel[64];
    rf_status status = check_call(op, queue, a);
    if (!status) status = check_paged(op, a, a->table_width != 0, &pages);
    if (!status) {
        bool plain = a->q8_0 && a->path == RF_ATTENTION_AUTO;
        enum rf_dtype type = a->q8_0 ? a->dtype : cache_type(a);
        status = choose_matrix(op, queue, type, a->dim, 0, plain ? RF_ATTENTION_PLAIN : a->path, &choice);
    }
    if (!status && (a->path == RF_ATTENTION_WIDE || (a->path == RF_ATTENTION_MATRIX && a->q8_0)))
        status = rf_fail(RF_E_UNSUPPORTED, "%s: there is no such kernel%s", op, a->q8_0 ? " for q8_0" : "");
    if (!status && !a->table != !a->table_width)
        status = rf_fail(RF_E_INVALID, "%s: table and table_width must be given together", op);
    if (!status) status = workspace_bytes(op, a, pages.limit, &bytes);
    if (status) return status;
    const uint64_t q_sizes[] = {a->batch, a->heads_q, a->q_rows, a->dim};
    const uint64_t k_sizes[] = {a->page_count, a->heads_kv, a->page_rows, a->dim};
    status = open_view(op, "out", &a->out, a->dtype, q_sizes, 16, &out);
    if (!status) status = open_view(op, "q", &a->q, a->dtype, q_sizes, 16, &in[0]);
    enum rf_dtype cache = cache_type(a);
    uint64_t align = a->q8_0 ? 2 : 16;
    if (!status) status = open_view(op, "k", &a->k, cache, k_sizes, align, &in[1]);
    if (!status) status = open_view(op, "v", &a->v, cache, k_sizes, align, &in[2]);
    if (!status && a->table)
        status = open_words(op, "table", a->table, a->table_offset_bytes, a->batch, a->table_width, &in[3]);
    if (!status) status = open_words(op, "lengths", a->lengths, a->lengths_offset_bytes, a->batch, 1, &in[4]);
    if (!status && bytes)
        status = open_words(op, "workspace", a->workspace, a->workspace_offset_bytes, 1, bytes / 4, &workspace);
    if (!status && bytes && (rf_buffer_address(a->workspace) + a->workspace_offset_bytes) % 16)
        status = rf_fail(RF_E_INVALID, "%s: the workspace must begin at a multiple of 16 bytes", op);
    if (!status) status = check_output(op, &out, in, 5);
    if (!status) status = check_output(op, &workspace, in, 5);
    if (!status) status = check_output(op, &workspace, &out, 1);
    if (status) return status;
    if (a->q_rows == 1) return decode(queue, op, a, &out, in, &workspace, &pages);

    status =
        count_blocks(op, tiles_of(a->q_rows, choice.use ? choice.queries : TILE), a->heads_q, a->batch, 1, &blocks);
    if (status || !blocks) return status;
    const struct rf_arg args[] = {pointer_arg(&out),
                                  pointer_arg(&in[0]),
                                  pointer_arg(&in[1]),
                                  pointer_arg(&in[2]),
                                  pointer_arg(&in[3]),
                                  pointer_arg(&in[4]),
                                  strides_arg(&out),
                                  strides_arg(&in[0]),
                                  strides_arg(&in[1]),
                                  strides_arg(&in[2]),
                                  u32_arg(a->heads_q),
                                  u32_arg(a->heads_kv),
                                  u32_arg(a->q_rows),
                                  u32_arg(a->dim),
                                  bytes_arg(&pages, 16),
                                  rf_arg_f32(a->scale),
                                  rf_arg_u32(type_number(a->dtype))};
    if (!choice.use) {
        snprintf(kernel, sizeof kernel, "paged_attention_prefill_%s", a->q8_0 ? "q8_0" : suffix_of(cache));
        return submit(queue, op, kernel, blocks, 1, 256, 0, args, RF_COUNT(args));
    }
    snprintf(kernel, sizeof kernel, "paged_attention_matrix_%s_d%u", suffix_of(cache), choice.dim);
    return submit(queue, op, kernel, blocks, 1, choice.threads, matrix_shared(&choice, true), args, RF_COUNT(args));
}
