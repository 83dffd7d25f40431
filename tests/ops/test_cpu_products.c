/* The fast CPU's products with weights and its attention: each SIMD level compared with the scalar reference. */
#include "cpu_testing.h"

static bool in_8_bits(enum rf_dtype dtype) {
    return dtype == RF_Q8_0 || dtype == RF_Q4_0 || dtype == RF_Q4_K || dtype == RF_Q6_K;
}

/* Differences of f32 sums are proportional to the sum of magnitudes, not to the result. */
static void assert_close(const float *got, const float *want, const float *magnitudes, size_t count,
                         double relative) {
    for (size_t i = 0; i < count; i++) {
        double limit = (double)magnitudes[i] * relative + 1e-30;
        if (isnan(want[i]) ? !isnan(got[i]) : !(fabs((double)got[i] - (double)want[i]) <= limit))
            RF_FAIL("element %zu: %.9g, expected %.9g within %.3g", i, (double)got[i], (double)want[i], limit);
    }
}

struct product {
    enum rf_dtype dtype;
    size_t m, n, k;
    struct array weights, gate, x, q8, residual, bias;
    float *want, *magnitudes, *exact;
};

static size_t odd_k(struct rf_random *random, enum rf_dtype dtype, size_t most_blocks) {
    size_t blocks = 1 + rf_random_below(random, most_blocks);
    return rf_dtype_block(dtype) == 1 ? 1 + rf_random_below(random, 700) : blocks * rf_dtype_block(dtype);
}

static struct rf_ref_matmul operation(const struct product *p) {
    return (struct rf_ref_matmul){
        .weight_type = p->dtype,
        .weights = p->weights.at,
        .type = RF_F32,
        .x = p->x.at,
        .args = {.m = p->m, .n = p->n, .k = p->k, .x_stride = p->k + 3, .out_stride = p->n + 1}};
}

static void take_q8(struct rf_ref_matmul *op, const void *blocks) {
    op->x = blocks;
    op->args.x_q8 = 1;
    op->args.x_stride = op->args.k;
}

/* The sum of |w| |x| for each output: rounding errors are measured relative to it. */
static void magnitudes_of(const struct product *p, float *out) {
    float *row = malloc(p->k * sizeof *row);
    for (size_t r = 0; r < p->n; r++) {
        size_t row_bytes = p->k / rf_dtype_block(p->dtype) * rf_dtype_block_bytes(p->dtype);
        rf_dequantize_row(p->dtype, (const char *)p->weights.at + r * row_bytes, row, p->k);
        for (size_t c = 0; c < p->m; c++) {
            double sum = 0;
            const float *x = (const float *)p->x.at + c * (p->k + 3);
            for (size_t i = 0; i < p->k; i++) sum += fabs((double)row[i] * (double)x[i]);
            out[c * (p->n + 1) + r] = (float)sum;
        }
    }
    free(row);
}

static void product_free(struct product *p) {
    array_free(&p->weights), array_free(&p->x), array_free(&p->residual), array_free(&p->bias), array_free(&p->gate);
    if (p->q8.memory) array_free(&p->q8);
    free(p->want), free(p->magnitudes), free(p->exact);
}

static struct product product_new(struct rf_random *random, enum rf_dtype dtype, size_t m, size_t n, size_t k) {
    struct product p = {.dtype = dtype, .m = m, .n = n, .k = k};
    size_t skew = rf_dtype_block(dtype) == 1 ? float_bytes(dtype) : 1 + rf_random_below(random, 7);
    p.weights = array_weights(random, dtype, n, k, skew);
    p.gate = array_weights(random, dtype, n, k, skew);
    p.x = array_random(random, RF_F32, m * (k + 3), 1, 1, 0);
    p.residual = array_random(random, RF_F32, m * (n + 1), 2, 1, 0);
    p.bias = array_random(random, RF_F32, n, 1, 1, 0);
    size_t outputs = m * (n + 1);
    p.want = calloc(outputs, sizeof(float)), p.exact = calloc(outputs, sizeof(float));
    p.magnitudes = calloc(outputs, sizeof(float));
    RF_ASSERT(p.want && p.exact && p.magnitudes);
    struct rf_ref_matmul op = operation(&p);
    op.out = p.exact;
    rf_ref_matmul(&op);
    if (in_8_bits(dtype)) {
        p.q8 = array_new(m * k / RF_Q8_BLOCK * sizeof(struct rf_q8_block), 4);
        rf_ref_quantize_q8(p.q8.at, RF_F32, p.x.at, &(struct rf_quantize_q8_args){m, k, k + 3});
        take_q8(&op, p.q8.at);
    }
    op.out = p.want;
    rf_ref_matmul(&op);
    magnitudes_of(&p, p.magnitudes);
    return p;
}

static const enum rf_dtype weight_types[] = {RF_F32,  RF_F16,  RF_BF16, RF_Q4_0,   RF_Q4_1,
                                             RF_Q5_0, RF_Q5_1, RF_Q8_0, RF_Q2_K,   RF_Q3_K,
                                             RF_Q4_K, RF_Q5_K, RF_Q6_K, RF_IQ4_NL, RF_IQ4_XS};
struct type_case {
    const char *label;
    enum rf_dtype dtype;
};
static const struct type_case type_cases[] = {
    {"f32", RF_F32},   {"f16", RF_F16},   {"bf16", RF_BF16}, {"q4_0", RF_Q4_0},     {"q4_1", RF_Q4_1},
    {"q5_0", RF_Q5_0}, {"q5_1", RF_Q5_1}, {"q8_0", RF_Q8_0}, {"q2_k", RF_Q2_K},     {"q3_k", RF_Q3_K},
    {"q4_k", RF_Q4_K}, {"q5_k", RF_Q5_K}, {"q6_k", RF_Q6_K}, {"iq4_nl", RF_IQ4_NL}, {"iq4_xs", RF_IQ4_XS},
};

/* Few and many columns, odd sizes; the bits do not change with the number of threads or from run to run. */
RF_TEST_LABELLED_CASES(cpu, matmul, struct type_case, type_cases, .timeout_ms = 1200000) {
    struct rf_random random = {rf_test_seed() + c->dtype};
    static const size_t columns[] = {1, 1, 1, 2, 5, 13, 31, 57};
    for (size_t s = 0; s < RF_COUNT(columns); s++) {
        size_t n = 1 + rf_random_below(&random, s < 3 ? 150 : 60),
               k = odd_k(&random, c->dtype, c->dtype >= RF_Q2_K ? 5 : 23);
        struct product p = product_new(&random, c->dtype, columns[s], n, k);
        struct array first = array_new(p.m * (n + 1) * 4, 4), out = array_like(&first);
        EACH_CPU(cpu) {
            RF_TRACE("%s, %u threads, %zu columns, %zu x %zu", rf_cpu_simd(cpu)->name, rf_cpu_threads(cpu), p.m, n,
                     k);
            struct rf_ref_matmul op = operation(&p);
            op.out = out.at;
            for (int run = 0; run < 2; run++) {
                memset(out.at, 0xff, out.bytes);
                RF_ASSERT_OK(rf_cpu_matmul(cpu, &op));
                if (run == 0 && rf_cpu_threads(cpu) == 1) memcpy(first.at, out.at, out.bytes);
                RF_ASSERT_BYTES(out.at, first.at, out.bytes);
            }
            for (size_t r = 0; r < p.m; r++) /* the gap between the rows is unchanged */
                RF_ASSERT(isnan(((float *)out.at)[r * (n + 1) + n]));
            for (size_t r = 0; r < p.m; r++)
                assert_close((float *)out.at + r * (n + 1), p.want + r * (n + 1), p.magnitudes + r * (n + 1), n,
                             2e-6);
            /* Rounding activations to 8 bits costs at most half a step of each. */
            double difference = 0, scale = 0;
            for (size_t i = 0; i < p.m * (n + 1); i++) {
                if (i % (n + 1) == n) continue;
                difference += pow((double)((float *)out.at)[i] - (double)p.exact[i], 2);
                scale += pow((double)p.magnitudes[i], 2) / (double)k;
            }
            if (!(sqrt(difference) <= 0.02 * sqrt(scale))) RF_FAIL("off by %g of %g", sqrt(difference), sqrt(scale));
        }
        array_free(&first), array_free(&out);
        product_free(&p);
    }
}

/* Activations and output of 16 bits. */
static void check_halves(const struct product *p, enum rf_dtype type, struct rf_random *random) {
    size_t outputs = p->m * (p->n + 1);
    struct array x = array_random(random, type, p->m * p->k, 1, 1, 0), q8 = {0};
    uint16_t *want = calloc(outputs, 2), *got = calloc(outputs, 2);
    struct rf_ref_matmul op = operation(p);
    op.type = type;
    op.args.x_stride = p->k;
    op.x = x.at;
    op.out = want;
    struct rf_ref_matmul rounded = op;
    if (in_8_bits(p->dtype)) {
        q8 = array_new(p->m * p->k / RF_Q8_BLOCK * sizeof(struct rf_q8_block), 4);
        rf_ref_quantize_q8(q8.at, type, x.at, &(struct rf_quantize_q8_args){p->m, p->k, p->k});
        take_q8(&rounded, q8.at);
    }
    rf_ref_matmul(&rounded);
    op.out = got;
    double relative = type == RF_F16 ? 1.1e-3 : 8.2e-3;
    EACH_CPU(cpu) {
        RF_TRACE("%s, %u threads, %s", rf_cpu_simd(cpu)->name, rf_cpu_threads(cpu), rf_dtype_name(type));
        memset(got, 0xff, outputs * 2);
        RF_ASSERT_OK(rf_cpu_matmul(cpu, &op));
        for (size_t i = 0; i < outputs; i++) {
            if (i % (p->n + 1) == p->n) continue;
            double expected = rf_element_get(type, want, i),
                   limit = 1e-4 * sqrt((double)p->k) + relative * fabs(expected);
            RF_ASSERT_DOUBLE(rf_element_get(type, got, i), expected, limit);
        }
    }
    free(want), free(got);
    array_free(&x);
    if (q8.memory) array_free(&q8);
}

/* Bias, residual (in place too), gate; activations that are given in 8 bits. */
RF_TEST_LABELLED_CASES(cpu, matmul_fused, struct type_case, type_cases, .timeout_ms = 1200000) {
    struct rf_random random = {rf_test_seed() + 100 + c->dtype};
    static const size_t columns[] = {1, 3, 50};
    for (size_t s = 0; s < RF_COUNT(columns); s++) {
        size_t n = 1 + rf_random_below(&random, 40), k = odd_k(&random, c->dtype, 3), outputs = columns[s] * (n + 1);
        struct product p = product_new(&random, c->dtype, columns[s], n, k);
        float *added = calloc(outputs, sizeof *added), *gated = calloc(outputs, sizeof *gated);
        float *out = calloc(outputs, sizeof *out);
        struct rf_ref_matmul add = operation(&p), gate;
        if (in_8_bits(c->dtype)) take_q8(&add, p.q8.at);
        gate = add;
        add.bias = p.bias.at;
        add.residual = p.residual.at;
        add.out = added;
        rf_ref_matmul(&add);
        gate.gate = p.gate.at;
        gate.out = gated;
        rf_ref_matmul(&gate);
        gate.out = add.out = out;
        add.residual = out;
        double most = 0;
        for (size_t i = 0; i < outputs; i++) most = fmax(most, (double)p.magnitudes[i]);
        EACH_CPU(cpu) {
            RF_TRACE("%s, %u threads, %zu columns, %zu x %zu", rf_cpu_simd(cpu)->name, rf_cpu_threads(cpu), p.m, n,
                     k);
            memcpy(out, p.residual.at, outputs * sizeof *out);
            RF_ASSERT_OK(rf_cpu_matmul(cpu, &add));
            for (size_t i = 0; i < outputs; i++)
                if (i % (n + 1) < n)
                    RF_ASSERT_DOUBLE((double)out[i], (double)added[i], 1e-5 + 4e-6 * (double)p.magnitudes[i]);
            RF_ASSERT_OK(rf_cpu_matmul(cpu, &gate));
            /* The product of two sums, each as exact as above. */
            for (size_t i = 0; i < outputs; i++)
                if (i % (n + 1) < n) RF_ASSERT_DOUBLE((double)out[i], (double)gated[i], 1e-5 + 4e-6 * most * most);
        }
        check_halves(&p, RF_F16, &random);
        check_halves(&p, RF_BF16, &random);
        free(added), free(gated), free(out);
        product_free(&p);
    }
}

RF_TEST(cpu, matmul_beyond_a_batch_of_columns) {
    struct rf_random random = {rf_test_seed() + 200};
    static const enum rf_dtype types[] = {RF_F16, RF_Q8_0};
    for (size_t t = 0; t < RF_COUNT(types); t++) {
        struct product p = product_new(&random, types[t], 1029, 19, 64);
        struct array out = array_new(p.m * (p.n + 1) * 4, 4);
        struct rf_ref_matmul op = operation(&p);
        op.out = out.at;
        struct rf_cpu *cpu = open_cpu(RF_SIMD_AUTO, 3);
        RF_ASSERT_OK(rf_cpu_matmul(cpu, &op));
        rf_cpu_destroy(&cpu);
        for (size_t r = 0; r < p.m; r++)
            assert_close((float *)out.at + r * (p.n + 1), p.want + r * (p.n + 1), p.magnitudes + r * (p.n + 1), p.n,
                         2e-6);
        array_free(&out);
        product_free(&p);
    }
}

RF_TEST(cpu, matmul_nan_and_infinity_stay_in_their_column) {
    struct rf_random random = {rf_test_seed() + 300};
    for (size_t t = 0; t < RF_COUNT(weight_types); t++)
        for (size_t m = 3; m <= 52; m += 49) {
            struct product p = product_new(&random, weight_types[t], m, 21, 256);
            struct array out = array_new(p.m * (p.n + 1) * 4, 4);
            ((float *)p.x.at)[1 * (p.k + 3) + 77] = NAN;
            ((float *)p.x.at)[2 * (p.k + 3) + 255] = INFINITY;
            EACH_CPU(cpu) {
                struct rf_ref_matmul op = operation(&p);
                op.out = out.at;
                RF_ASSERT_OK(rf_cpu_matmul(cpu, &op));
                for (size_t r = 0; r < p.m; r++)
                    for (size_t i = 0; i < p.n; i++) {
                        float y = ((float *)out.at)[r * (p.n + 1) + i];
                        RF_ASSERT(r == 1 ? isnan(y) : r == 2 ? !isfinite(y) : isfinite(y));
                    }
            }
            array_free(&out);
            product_free(&p);
        }
}

/* Three products of one x at once, of different heights, one with everything that may follow a product: the bits are
 * those of one product after the other. */
RF_TEST(cpu, matmuls_of_one_x) {
    struct rf_random random = {rf_test_seed() + 350};
    static const enum rf_dtype types[] = {RF_F16, RF_Q4_0, RF_Q4_K, RF_Q5_1};
    static const size_t columns[] = {1, 4, 49};
    enum { HEIGHTS = 4 };
    static const size_t heights[HEIGHTS] = {67, 0, 1, 40};
    for (size_t t = 0; t < RF_COUNT(types); t++)
        for (size_t s = 0; s < RF_COUNT(columns); s++) {
            size_t k = odd_k(&random, types[t], 2);
            struct product p[HEIGHTS];
            struct rf_ref_matmul ops[HEIGHTS];
            struct array want[HEIGHTS], got[HEIGHTS];
            for (size_t i = 0; i < HEIGHTS; i++) {
                p[i] = product_new(&random, types[t], columns[s], heights[i], k);
                want[i] = array_new(columns[s] * (heights[i] + 1) * 4, 4), got[i] = array_like(&want[i]);
                ops[i] = operation(&p[i]);
                ops[i].x = ops[0].x;
            }
            ops[0].gate = p[0].gate.at;
            ops[3].bias = p[3].bias.at;
            ops[3].residual = p[3].residual.at;
            EACH_CPU(cpu) {
                RF_TRACE("%s, %s, %u threads, %zu columns", rf_dtype_name(types[t]), rf_cpu_simd(cpu)->name,
                         rf_cpu_threads(cpu), columns[s]);
                for (size_t i = 0; i < HEIGHTS; i++) {
                    ops[i].out = want[i].at;
                    RF_ASSERT_OK(rf_cpu_matmul(cpu, &ops[i]));
                    ops[i].out = got[i].at;
                    memset(got[i].at, 0xff, got[i].bytes);
                }
                RF_ASSERT_OK(rf_cpu_matmuls(cpu, ops, HEIGHTS));
                for (size_t i = 0; i < HEIGHTS; i++) RF_ASSERT_BYTES(got[i].at, want[i].at, want[i].bytes);
            }
            for (size_t i = 0; i < HEIGHTS; i++) {
                array_free(&want[i]), array_free(&got[i]);
                product_free(&p[i]);
            }
        }
}

/* Blocks of every kind: ordinary, all zero, below the smallest scale that counts, subnormal, huge, not finite. */
RF_TEST(cpu, quantize_q8_has_the_references_bits) {
    struct rf_random random = {rf_test_seed() + 360};
    enum { ROWS = 7, COLUMNS = 32 * 37, STRIDE = COLUMNS + 3 };
    for (int d = RF_F32; d <= RF_BF16; d++) {
        enum rf_dtype type = (enum rf_dtype)d;
        struct array x = array_random(&random, type, ROWS * STRIDE, 1, 1, 0);
        struct array want = array_new(ROWS * COLUMNS / RF_Q8_BLOCK * sizeof(struct rf_q8_block), 4),
                     got = array_like(&want);
        for (size_t b = 0; b < STRIDE / 32; b++) {
            size_t at = 2 * STRIDE + 32 * b;
            double factor = b % 3 == 0 ? 0 : b % 3 == 1 ? 1e-31 : 0x1p-133;
            for (size_t i = 0; i < 32; i++)
                rf_element_set(type, x.at, at + i, rf_element_get(type, x.at, at + i) * factor);
            at = 3 * STRIDE + 32 * b;
            for (size_t i = 0; i < 32; i++) rf_element_set(type, x.at, at + i, (double)(i % 9) - 4.5);
            rf_element_set(type, x.at, at + b % 32, b % 3 == 0 ? 127 : b % 3 == 1 ? (double)NAN : -(double)INFINITY);
            if (type == RF_F32) rf_element_set(type, x.at, 4 * STRIDE + 32 * b, 3e38);
        }
        const struct rf_quantize_q8_args args = {ROWS, COLUMNS, STRIDE};
        rf_ref_quantize_q8(want.at, type, x.at, &args);
        EACH_CPU(cpu) {
            RF_TRACE("%s, %s, %u threads", rf_dtype_name(type), rf_cpu_simd(cpu)->name, rf_cpu_threads(cpu));
            memset(got.at, 0xa5, got.bytes);
            RF_ASSERT_OK(rf_cpu_quantize_q8(cpu, got.at, type, x.at, &args));
            for (size_t b = 0; b < ROWS * COLUMNS / RF_Q8_BLOCK; b++) {
                struct rf_q8_block *one = (struct rf_q8_block *)got.at + b,
                                   *expected = (struct rf_q8_block *)want.at + b;
                if (isnan(expected->scale)) {
                    RF_ASSERT(isnan(one->scale) && isnan(one->sum));
                    RF_ASSERT_BYTES(one->quants, expected->quants, sizeof one->quants);
                } else {
                    RF_ASSERT_BYTES(one, expected, sizeof *one);
                }
            }
        }
        array_free(&x), array_free(&want), array_free(&got);
    }
}

RF_TEST(cpu, matmul_of_nothing_and_refusals) {
    struct rf_cpu *cpu = open_cpu(RF_SIMD_AUTO, 2);
    float x[64] = {0}, y[4] = {7, 7, 7, 7};
    uint8_t w[136] = {0};
    struct rf_ref_matmul op = {.weight_type = RF_F32,
                               .weights = x,
                               .type = RF_F32,
                               .x = x,
                               .out = y,
                               .args = {.m = 1, .n = 4, .out_stride = 4}};
    RF_ASSERT_OK(rf_cpu_matmul(cpu, &op)); /* an empty sum is 0 */
    for (int i = 0; i < 4; i++) RF_ASSERT(y[i] == 0);
    op.args.m = 0;
    RF_ASSERT_OK(rf_cpu_matmul(cpu, &op));
    struct rf_ref_matmul good = {.weight_type = RF_Q8_0,
                                 .weights = w,
                                 .type = RF_F32,
                                 .x = x,
                                 .out = y,
                                 .args = {.m = 1, .n = 4, .k = 32, .x_stride = 32, .out_stride = 4}};
    RF_ASSERT_OK(rf_cpu_matmul(cpu, &good));
    struct rf_ref_matmul bad[9];
    for (int i = 0; i < 9; i++) bad[i] = good;
    bad[0].weight_type = RF_I8;
    bad[1].type = RF_Q8_0;
    bad[2].args.k = 33;
    bad[3].weights = NULL;
    bad[4].out = NULL;
    bad[5].args.out_stride = 3;
    bad[6].args.x_stride = 31;
    bad[7].gate = w;
    bad[7].bias = x;
    bad[8].args.n = bad[8].args.out_stride = SIZE_MAX / 2;
    for (int i = 0; i < 9; i++) {
        y[0] = 42;
        RF_ASSERT_STATUS(rf_cpu_matmul(cpu, &bad[i]), RF_E_INVALID);
        RF_ASSERT_CONTAINS(rf_error_text(), "matmul");
        RF_ASSERT(y[0] == 42);
    }
    RF_ASSERT_STATUS(rf_cpu_matmul(NULL, &good), RF_E_INVALID);
    RF_ASSERT_STATUS(rf_cpu_matmul(cpu, NULL), RF_E_INVALID);
    RF_ASSERT_OK(rf_cpu_matmuls(cpu, &good, 0));
    struct rf_ref_matmul differ[][2] = {{good, good}, {good, good}, {good, bad[3]}};
    differ[0][1].x = x + 32;
    differ[1][1].weight_type = RF_Q4_0;
    for (size_t i = 0; i < RF_COUNT(differ); i++) {
        y[0] = 42;
        RF_ASSERT_STATUS(rf_cpu_matmuls(cpu, differ[i], 2), RF_E_INVALID);
        RF_ASSERT_CONTAINS(rf_error_text(), "matmul");
        RF_ASSERT(y[0] == 42);
    }
    rf_cpu_destroy(&cpu);
}

RF_TEST(cpu, dequantize_and_embedding) {
    struct rf_random random = {rf_test_seed() + 400};
    enum { ROWS = 11, K = 768, COUNT = 7 };
    static const int32_t indices[COUNT] = {0, 10, -1, 3, 11, 3, INT32_MAX};
    const struct rf_dequantize_args all = {ROWS * K};
    const struct rf_embedding_args named = {.count = COUNT, .columns = K, .table_rows = ROWS};
    for (size_t t = 0; t < RF_COUNT(weight_types); t++) {
        struct array table =
            array_weights(&random, weight_types[t], ROWS, K, rf_dtype_block(weight_types[t]) == 1 ? 4 : 3);
        for (int d = RF_F32; d <= RF_BF16; d++) {
            enum rf_dtype type = (enum rf_dtype)d;
            struct array want = array_new(ROWS * K * float_bytes(type), float_bytes(type)), got = array_like(&want);
            EACH_CPU(cpu) {
                RF_TRACE("%s, %s to %s", rf_cpu_simd(cpu)->name, rf_dtype_name(weight_types[t]), rf_dtype_name(type));
                rf_ref_dequantize(type, want.at, weight_types[t], table.at, &all);
                RF_ASSERT_OK(rf_cpu_dequantize(cpu, type, got.at, weight_types[t], table.at, &all));
                RF_ASSERT_ARRAY(type, got.at, want.at, ROWS * K, rf_ulp(0));
                rf_ref_embedding(type, want.at, weight_types[t], table.at, indices, &named);
                RF_ASSERT_OK(rf_cpu_embedding(cpu, type, got.at, weight_types[t], table.at, indices, &named));
                RF_ASSERT_ARRAY(type, got.at, want.at, COUNT * K, rf_ulp(0));
            }
            array_free(&want), array_free(&got);
        }
        array_free(&table);
    }
}

/* ---- attention ---- */

struct attention_case {
    const char *label;
    uint64_t batch, heads_q, heads_kv, q_rows, k_rows, dim;
    enum rf_dtype dtype;
    bool causal, masked;
};
static const struct attention_case attention_cases[] = {
    {"one", 1, 1, 1, 1, 1, 8, RF_F32, false, false},
    {"decode", 2, 8, 2, 1, 333, 128, RF_F16, false, false},
    {"decode_mqa", 1, 7, 1, 1, 130, 64, RF_F16, false, false},
    {"prefill_causal", 1, 4, 2, 37, 37, 64, RF_F32, true, false},
    {"prefill_later", 2, 6, 3, 9, 100, 80, RF_BF16, true, false},
    {"not_causal", 1, 3, 3, 32, 32, 32, RF_F32, false, false},
    {"masked", 2, 4, 2, 13, 67, 96, RF_F16, false, true},
    {"masked_causal", 1, 2, 1, 65, 65, 40, RF_F32, true, true},
    {"dim_256", 1, 2, 2, 5, 129, 256, RF_F16, true, false},
    {"dim_72", 1, 34, 2, 3, 70, 72, RF_F32, false, false},
    {"no_keys", 1, 2, 1, 3, 0, 16, RF_F32, false, false},
};

/* The reference of flash_attention has one type for all tensors: f32 here, so keys of 16 bits are widened to it. */
static struct array widened(enum rf_dtype dtype, const struct array *in, size_t count) {
    struct array out = array_new(count * 4, 4);
    rf_ref_copy(RF_F32, out.at, dtype, in->at, &(struct rf_elementwise_args){.count = count});
    return out;
}

RF_TEST_LABELLED_CASES(cpu, attention, struct attention_case, attention_cases) {
    struct rf_random random = {rf_test_seed() + 500};
    size_t q_count = c->batch * c->heads_q * c->q_rows * c->dim,
           k_count = c->batch * c->heads_kv * (c->k_rows + 2) * c->dim;
    struct array q = array_random(&random, RF_F32, q_count, 1, 1, 0), want = array_like(&q), got = array_like(&q),
                 first = array_like(&q);
    struct array k = array_random(&random, c->dtype, k_count, 1, 1, 0),
                 v = array_random(&random, c->dtype, k_count, 3, 1, 0);
    struct array wide_k = widened(c->dtype, &k, k_count), wide_v = widened(c->dtype, &v, k_count);
    struct array mask = array_random(&random, RF_F32, c->q_rows * c->k_rows, 1, 1, 0);
    for (size_t i = 0; i < c->q_rows * c->k_rows; i += 5) ((float *)mask.at)[i] = -INFINITY;
    for (size_t i = 0; i < c->k_rows && c->masked; i++) ((float *)mask.at)[i] = -INFINITY; /* query 0 sees nothing */
    struct rf_flash_attention_args a = {.batch = c->batch,
                                        .heads_q = c->heads_q,
                                        .heads_kv = c->heads_kv,
                                        .q_rows = c->q_rows,
                                        .k_rows = c->k_rows,
                                        .dim = c->dim,
                                        .scale = 0.125f,
                                        .offset =
                                            c->causal ? (int64_t)c->k_rows - (int64_t)c->q_rows : (int64_t)c->k_rows};
    a.q = a.out = rf_head_strides_dense(c->heads_q, c->q_rows, c->dim);
    a.k = a.v = rf_head_strides_dense(c->heads_kv, c->k_rows + 2, c->dim); /* room to grow */
    a.mask = (struct rf_head_strides){0, 0, c->k_rows};
    const float *given = c->masked ? mask.at : NULL;
    rf_ref_flash_attention(RF_F32, want.at, q.at, wide_k.at, wide_v.at, given, &a);
    EACH_CPU(cpu) {
        RF_TRACE("%s, %u threads", rf_cpu_simd(cpu)->name, rf_cpu_threads(cpu));
        memset(got.at, 0xff, got.bytes);
        RF_ASSERT_OK(rf_cpu_flash_attention(cpu, RF_F32, c->dtype, got.at, q.at, k.at, v.at, given, &a));
        RF_ASSERT_F32((float *)got.at, (float *)want.at, q_count, rf_within(2e-6, 2e-5));
        if (rf_cpu_threads(cpu) == 1) memcpy(first.at, got.at, got.bytes);
        RF_ASSERT_BYTES(got.at, first.at, got.bytes);
    }
    array_free(&q), array_free(&k), array_free(&v), array_free(&wide_k), array_free(&wide_v), array_free(&mask);
    array_free(&want), array_free(&got), array_free(&first);
}

RF_TEST(cpu, attention_over_pages) {
    struct rf_random random = {rf_test_seed() + 600};
    static const uint64_t page_sizes[] = {1, 16, 24, 64, 100};
    for (size_t s = 0; s < RF_COUNT(page_sizes); s++)
        for (uint64_t q_rows = 1; q_rows <= 6; q_rows += 5) {
            enum { BATCH = 3, HEADS_Q = 6, HEADS_KV = 2, DIM = 48, PAGES = 12, WIDTH = 4 };
            uint64_t page_rows = page_sizes[s];
            size_t q_count = BATCH * HEADS_Q * q_rows * DIM, k_count = PAGES * HEADS_KV * page_rows * DIM;
            uint32_t table[BATCH * WIDTH], lengths[BATCH];
            for (size_t i = 0; i < RF_COUNT(table); i++) table[i] = (uint32_t)((i * 5 + 3) % PAGES);
            table[WIDTH + 1] = PAGES + 7; /* a page that does not exist */
            lengths[0] = (uint32_t)(WIDTH * page_rows), lengths[1] = (uint32_t)(2 * page_rows + 1), lengths[2] = 1;
            struct array q = array_random(&random, RF_F32, q_count, 1, 1, 0), want = array_like(&q),
                         got = array_like(&q);
            struct array k = array_random(&random, RF_F16, k_count, 1, 1, 0),
                         v = array_random(&random, RF_F16, k_count, 1, 1, 0);
            struct rf_paged_attention_args a = {.batch = BATCH,
                                                .heads_q = HEADS_Q,
                                                .heads_kv = HEADS_KV,
                                                .q_rows = q_rows,
                                                .dim = DIM,
                                                .page_rows = page_rows,
                                                .page_count = PAGES,
                                                .table_width = WIDTH,
                                                .max_length = WIDTH * page_rows,
                                                .scale = 0.2f};
            a.k = a.v = rf_head_strides_dense(HEADS_KV, page_rows, DIM);
            a.q = a.out = rf_head_strides_dense(HEADS_Q, q_rows, DIM);
            rf_ref_paged_attention(RF_F32, RF_F16, want.at, q.at, k.at, v.at, table, lengths, &a);
            EACH_CPU(cpu) {
                RF_TRACE("%s, pages of %llu", rf_cpu_simd(cpu)->name, (unsigned long long)page_rows);
                RF_ASSERT_OK(
                    rf_cpu_paged_attention(cpu, RF_F32, RF_F16, got.at, q.at, k.at, v.at, table, lengths, &a));
                RF_ASSERT_F32((float *)got.at, (float *)want.at, q_count, rf_within(2e-6, 2e-5));
            }
            array_free(&q), array_free(&k), array_free(&v), array_free(&want), array_free(&got);
        }
}

RF_TEST(cpu, attention_nan_and_refusals) {
    enum { KEYS = 70, DIM = 16 };
    float q[2 * DIM], k[KEYS * DIM], v[KEYS * DIM], out[2 * DIM];
    struct rf_random random = {rf_test_seed() + 700};
    struct rf_flash_attention_args a = {
        .batch = 1, .heads_q = 2, .heads_kv = 1, .q_rows = 1, .k_rows = KEYS, .dim = DIM, .scale = 1, .offset = KEYS};
    a.q = a.out = rf_head_strides_dense(2, 1, DIM);
    a.k = a.v = rf_head_strides_dense(1, KEYS, DIM);
    EACH_CPU(cpu) {
        rf_random_normals(&random, q, 2 * DIM, 0, 1);
        rf_random_normals(&random, k, KEYS * DIM, 0, 1);
        rf_random_normals(&random, v, KEYS * DIM, 0, 1);
        q[3] = NAN; /* head 0 only */
        RF_ASSERT_OK(rf_cpu_flash_attention(cpu, RF_F32, RF_F32, out, q, k, v, NULL, &a));
        for (int i = 0; i < DIM; i++) RF_ASSERT(isnan(out[i]) && isfinite(out[DIM + i]));
        q[3] = 1;
        k[5] = 1e30f; /* huge scores must not overflow the softmax */
        RF_ASSERT_OK(rf_cpu_flash_attention(cpu, RF_F32, RF_F32, out, q, k, v, NULL, &a));
        for (int i = 0; i < 2 * DIM; i++) RF_ASSERT(isfinite(out[i]));
    }
    struct rf_cpu *cpu = open_cpu(RF_SIMD_AUTO, 1);
    struct rf_flash_attention_args bad = a;
    bad.heads_kv = 3;
    RF_ASSERT_STATUS(rf_cpu_flash_attention(cpu, RF_F32, RF_F32, out, q, k, v, NULL, &bad), RF_E_INVALID);
    RF_ASSERT_CONTAINS(rf_error_text(), "attention");
    RF_ASSERT_STATUS(rf_cpu_flash_attention(cpu, RF_F32, RF_Q8_0, out, q, k, v, NULL, &a), RF_E_INVALID);
    RF_ASSERT_STATUS(rf_cpu_flash_attention(cpu, RF_F32, RF_F32, NULL, q, k, v, NULL, &a), RF_E_INVALID);
    RF_ASSERT_STATUS(rf_cpu_flash_attention(cpu, RF_F32, RF_F32, out, q, k, v, NULL, NULL), RF_E_INVALID);
    rf_cpu_destroy(&cpu);
}
