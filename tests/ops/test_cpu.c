/* The choice of a SIMD level, and the fast CPU ops on elements and rows: each level that this machine has, compared
 * with the scalar reference. */
#include "cpu_testing.h"

/* ---- levels ---- */

RF_TEST(cpu, levels_of_this_machine) {
    const struct rf_simd *best = rf_simd_table(RF_SIMD_AUTO);
    RF_ASSERT(best != NULL && rf_simd_table(RF_SIMD_SCALAR) != NULL);
    for (int level = RF_SIMD_SCALAR; level < RF_SIMD_LEVELS; level++) {
        const struct rf_simd *table = rf_simd_table((enum rf_simd_level)level);
        struct rf_cpu *cpu = NULL;
        rf_status status =
            rf_cpu_create(&(struct rf_cpu_params){.threads = 1, .level = (enum rf_simd_level)level}, &cpu);
        RF_ASSERT_STATUS(status, table ? RF_OK : RF_E_UNSUPPORTED);
        if (!table) RF_NOTE("not on this machine: %s", rf_simd_name((enum rf_simd_level)level));
        if (!table) continue;
        RF_ASSERT_INT(table->level, level);
        RF_ASSERT_TEXT(table->name, rf_simd_name((enum rf_simd_level)level));
        RF_ASSERT(table->level <= best->level);
        RF_ASSERT_POINTER(rf_cpu_simd(cpu), table);
        rf_cpu_destroy(&cpu);
    }
    RF_ASSERT_NULL(rf_simd_table(RF_SIMD_LEVELS));
    struct rf_cpu *cpu = NULL;
    RF_ASSERT_STATUS(rf_cpu_create(&(struct rf_cpu_params){.threads = 1, .level = RF_SIMD_LEVELS}, &cpu),
                     RF_E_INVALID);
    RF_ASSERT_OK(rf_cpu_create(NULL, &cpu));
    RF_ASSERT(rf_cpu_threads(cpu) >= 1);
    rf_cpu_destroy(&cpu);
    rf_cpu_destroy(&cpu);
}

/* ---- elements ---- */

static const size_t counts[] = {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 100, 1023, 40009};

RF_TEST(cpu, add_multiply_scale_have_the_references_bits) {
    struct rf_random random = {rf_test_seed()};
    for (int d = RF_F32; d <= RF_BF16; d++)
        for (size_t c = 0; c < RF_COUNT(counts); c++) {
            enum rf_dtype dtype = (enum rf_dtype)d;
            size_t count = counts[c], skew = c % 5;
            RF_TRACE("%s, %zu elements", rf_dtype_name(dtype), count);
            struct array a = array_random(&random, dtype, count, skew, 1, RF_SPECIAL_ALL);
            struct array b = array_random(&random, dtype, count, skew + 1, 1, RF_SPECIAL_ALL);
            struct array z = array_random(&random, dtype, count, skew, 1, RF_SPECIAL_ALL);
            struct array want = array_like(&a), got = array_like(&a);
            EACH_CPU(cpu) {
                RF_TRACE("%s, %u threads", rf_cpu_simd(cpu)->name, rf_cpu_threads(cpu));
                struct rf_elementwise_args args = {.count = count, .factor = 1.7f};
                struct rf_multiply_args row = {1, count, count, count, count, count};
                rf_ref_add(dtype, want.at, a.at, b.at, &args);
                RF_ASSERT_OK(rf_cpu_add(cpu, dtype, got.at, a.at, b.at, &args));
                RF_ASSERT_ARRAY(dtype, got.at, want.at, count, rf_ulp(0));
                rf_ref_scale(dtype, want.at, a.at, &args);
                RF_ASSERT_OK(rf_cpu_scale(cpu, dtype, got.at, a.at, &args));
                RF_ASSERT_ARRAY(dtype, got.at, want.at, count, rf_ulp(0));
                rf_ref_multiply(dtype, want.at, a.at, b.at, z.at, &row);
                RF_ASSERT_OK(rf_cpu_multiply(cpu, dtype, got.at, a.at, b.at, z.at, &row));
                RF_ASSERT_ARRAY(dtype, got.at, want.at, count, rf_ulp(0));
                rf_ref_multiply(dtype, want.at, a.at, b.at, NULL, &row);
                memmove(got.at, a.at, a.bytes); /* in place */
                RF_ASSERT_OK(rf_cpu_multiply(cpu, dtype, got.at, got.at, b.at, NULL, &row));
                RF_ASSERT_ARRAY(dtype, got.at, want.at, count, rf_ulp(0));
            }
            array_free(&a), array_free(&b), array_free(&z), array_free(&want), array_free(&got);
        }
}

RF_TEST(cpu, multiply_repeats_rows) {
    struct rf_random random = {rf_test_seed() + 1};
    enum { ROWS = 13, COLUMNS = 37, STRIDE = 41 };
    struct array a = array_random(&random, RF_F32, ROWS * STRIDE, 1, 1, 0);
    struct array b = array_random(&random, RF_F32, COLUMNS, 3, 1, 0);
    struct array want = array_like(&a), got = array_like(&a);
    struct rf_multiply_args args = {
        .rows = ROWS, .columns = COLUMNS, .out_row = STRIDE, .a_row = STRIDE, .b_row = 0, .c_row = STRIDE};
    EACH_CPU(cpu) {
        rf_ref_multiply(RF_F32, want.at, a.at, b.at, a.at, &args);
        RF_ASSERT_OK(rf_cpu_multiply(cpu, RF_F32, got.at, a.at, b.at, a.at, &args));
        RF_ASSERT_BYTES(got.at, want.at, got.bytes); /* the bytes between the rows too */
    }
    array_free(&a), array_free(&b), array_free(&want), array_free(&got);
}

RF_TEST(cpu, casts_are_exact) {
    struct rf_random random = {rf_test_seed() + 2};
    /* All f16 values, and floats around the limits of f16. */
    enum { HALVES = 65536, FLOATS = 40003 };
    struct array halves = array_new(HALVES * 2, 2);
    for (unsigned i = 0; i < HALVES; i++) ((uint16_t *)halves.at)[i] = (uint16_t)i;
    struct array floats = array_random(&random, RF_F32, FLOATS, 1, 1, RF_SPECIAL_ALL);
    for (size_t i = 0; i < FLOATS; i += 2) {
        uint32_t bits = (uint32_t)rf_random_next(&random);
        memcpy((float *)floats.at + i, &bits, 4);
        if (i % 4 == 0)
            ((float *)floats.at)[i] = (float)ldexp(rf_random_normal(&random), (int)rf_random_below(&random, 48) - 30);
    }
    EACH_CPU(cpu)
    for (int to = RF_F32; to <= RF_BF16; to++)
        for (int from = RF_F32; from <= RF_BF16; from++) {
            RF_TRACE("%s, %s to %s", rf_cpu_simd(cpu)->name, rf_dtype_name((enum rf_dtype)from),
                     rf_dtype_name((enum rf_dtype)to));
            const struct array *in = from == RF_F32 ? &floats : &halves;
            size_t count = from == RF_F32 ? FLOATS : HALVES;
            struct array want = array_new(count * float_bytes((enum rf_dtype)to), float_bytes((enum rf_dtype)to));
            struct array got = array_like(&want);
            struct rf_elementwise_args args = {.count = count};
            rf_ref_copy((enum rf_dtype)to, want.at, (enum rf_dtype)from, in->at, &args);
            RF_ASSERT_OK(rf_cpu_copy(cpu, (enum rf_dtype)to, got.at, (enum rf_dtype)from, in->at, &args));
            RF_ASSERT_ARRAY((enum rf_dtype)to, got.at, want.at, count, to == from ? rf_same_bits() : rf_ulp(0));
            array_free(&want), array_free(&got);
        }
    array_free(&halves), array_free(&floats);
}

RF_TEST(cpu, activations_with_gate) {
    struct rf_random random = {rf_test_seed() + 3};
    static const size_t shapes[][2] = {{1, 1}, {1, 17}, {3, 33}, {2, 1000}, {1, 50001}, {0, 5}, {4, 0}};
    for (int d = RF_F32; d <= RF_BF16; d++)
        for (size_t s = 0; s < RF_COUNT(shapes); s++) {
            enum rf_dtype dtype = (enum rf_dtype)d;
            size_t rows = shapes[s][0], columns = shapes[s][1], count = rows * columns;
            struct array gate = array_random(&random, dtype, count, 1, 4, RF_SPECIAL_ALL);
            struct array up = array_random(&random, dtype, count, 2, 1, 0);
            struct array want = array_like(&gate), got = array_like(&gate);
            EACH_CPU(cpu)
            for (int kind = 0; kind < RF_ACTIVATION_COUNT; kind++)
                for (int with = 0; with < 2; with++) {
                    RF_TRACE("%s, %s, kind %d, %zu x %zu", rf_cpu_simd(cpu)->name, rf_dtype_name(dtype), kind, rows,
                             columns);
                    struct rf_activation_args args = {rows, columns, columns, columns, columns, (uint32_t)kind, 0};
                    rf_ref_activation(dtype, want.at, gate.at, with ? up.at : NULL, &args);
                    RF_ASSERT_OK(rf_cpu_activation(cpu, dtype, got.at, gate.at, with ? up.at : NULL, &args));
                    double relative = dtype == RF_F32 ? 2e-6 : dtype == RF_F16 ? 1e-3 : 8e-3;
                    RF_ASSERT_ARRAY(dtype, got.at, want.at, count,
                                    rf_within(dtype == RF_F32 ? 1e-6 : 1e-5, relative));
                }
            array_free(&gate), array_free(&up), array_free(&want), array_free(&got);
        }
}

/* ---- rows ---- */

static const size_t row_shapes[][2] = {{1, 1},   {2, 7},    {3, 16},   {5, 17}, {1, 64},
                                       {7, 100}, {2, 4096}, {3, 5003}, {0, 8},  {8, 0}};

RF_TEST(cpu, norms) {
    struct rf_random random = {rf_test_seed() + 4};
    for (int d = RF_F32; d <= RF_BF16; d++)
        for (size_t s = 0; s < RF_COUNT(row_shapes); s++) {
            enum rf_dtype dtype = (enum rf_dtype)d;
            size_t rows = row_shapes[s][0], columns = row_shapes[s][1], count = rows * columns;
            struct array in = array_random(&random, dtype, count, 1, 2, 0),
                         more = array_random(&random, dtype, count, 0, 2, 0);
            struct array weight = array_random(&random, RF_F32, columns, 3, 1, 0);
            struct array bias = array_random(&random, RF_F32, columns, 1, 1, 0);
            struct array want = array_like(&in), got = array_like(&in), want_sum = array_like(&in),
                         got_sum = array_like(&in);
            struct rf_compare how = dtype == RF_F32   ? rf_within(1e-5, 1e-5)
                                    : dtype == RF_F16 ? rf_within(1e-5, 1e-3)
                                                      : rf_within(1e-4, 8e-3);
            EACH_CPU(cpu) {
                RF_TRACE("%s, %s, %zu x %zu", rf_cpu_simd(cpu)->name, rf_dtype_name(dtype), rows, columns);
                for (int with = 0; with < 2; with++) {
                    const float *w = with ? weight.at : NULL, *b = with ? bias.at : NULL;
                    struct rf_norm_args args = {.rows = rows, .columns = columns, .eps = 1e-5f};
                    rf_ref_rms_norm(dtype, want.at, in.at, w, &args);
                    RF_ASSERT_OK(rf_cpu_rms_norm(cpu, dtype, got.at, in.at, w, &args));
                    RF_ASSERT_ARRAY(dtype, got.at, want.at, count, how);
                    rf_ref_layer_norm(dtype, want.at, in.at, w, b, &args);
                    RF_ASSERT_OK(rf_cpu_layer_norm(cpu, dtype, got.at, in.at, w, b, &args));
                    RF_ASSERT_ARRAY(dtype, got.at, want.at, count, how);
                    rf_ref_add_rms_norm(dtype, want_sum.at, want.at, in.at, more.at, w, &args);
                    RF_ASSERT_OK(rf_cpu_add_rms_norm(cpu, dtype, got_sum.at, got.at, in.at, more.at, w, &args));
                    RF_ASSERT_ARRAY(dtype, got_sum.at, want_sum.at, count, rf_ulp(0));
                    RF_ASSERT_ARRAY(dtype, got.at, want.at, count, how);
                }
            }
            array_free(&in), array_free(&more), array_free(&weight), array_free(&bias);
            array_free(&want), array_free(&got), array_free(&want_sum), array_free(&got_sum);
        }
}

RF_TEST(cpu, a_nan_or_infinity_stays_in_its_row) {
    enum { ROWS = 4, COLUMNS = 45 };
    EACH_CPU(cpu)
    for (int which = 0; which < 3; which++) {
        RF_TRACE("%s, special %d", rf_cpu_simd(cpu)->name, which);
        float in[ROWS * COLUMNS], want[ROWS * COLUMNS], got[ROWS * COLUMNS];
        struct rf_random random = {rf_test_seed() + 5};
        rf_random_normals(&random, in, ROWS * COLUMNS, 0, 1);
        in[COLUMNS + 44] = which == 0 ? NAN : which == 1 ? INFINITY : -INFINITY;
        for (int c = 0; c < COLUMNS; c++) in[3 * COLUMNS + c] = -INFINITY;
        struct rf_softmax_args softmax = {ROWS, COLUMNS, 1, 1, 1, 0};
        struct rf_norm_args norm = {.rows = ROWS - 1, .columns = COLUMNS, .eps = 1e-5f};
        rf_ref_softmax(want, in, &softmax);
        RF_ASSERT_OK(rf_cpu_softmax_mask(cpu, got, in, RF_F32, NULL, &softmax));
        RF_ASSERT_F32(got, want, ROWS * COLUMNS, rf_within(1e-6, 1e-5));
        rf_ref_rms_norm(RF_F32, want, in, NULL, &norm);
        RF_ASSERT_OK(rf_cpu_rms_norm(cpu, RF_F32, got, in, NULL, &norm));
        RF_ASSERT_F32(got, want, (ROWS - 1) * COLUMNS, rf_within(1e-5, 1e-5));
    }
}

RF_TEST(cpu, softmax_with_mask_and_scale) {
    struct rf_random random = {rf_test_seed() + 6};
    for (size_t s = 0; s < RF_COUNT(row_shapes); s++) {
        size_t rows_each = row_shapes[s][0], columns = row_shapes[s][1], heads = 3, batch = 2;
        size_t rows = rows_each * heads * batch, count = rows * columns;
        struct array in = array_random(&random, RF_F32, count, 1, 5, 0), want = array_like(&in),
                     got = array_like(&in);
        for (int kind = 0; kind < 3; kind++) {
            enum rf_dtype mask_type = kind == 2 ? RF_F16 : RF_F32;
            struct array mask = array_random(&random, mask_type, batch * rows_each * columns, 2, 1, 0);
            for (size_t i = 0; i < batch * rows_each * columns; i += 3)
                rf_element_set(mask_type, mask.at, i, -(double)INFINITY);
            struct rf_softmax_args args = {rows, columns, rows_each, heads, 0.37f, 0};
            rf_ref_softmax_mask(want.at, in.at, mask_type, kind ? mask.at : NULL, &args);
            EACH_CPU(cpu) {
                RF_TRACE("%s, %zu x %zu, mask %d", rf_cpu_simd(cpu)->name, rows, columns, kind);
                RF_ASSERT_OK(rf_cpu_softmax_mask(cpu, got.at, in.at, mask_type, kind ? mask.at : NULL, &args));
                RF_ASSERT_F32((float *)got.at, (float *)want.at, count, rf_within(1e-7, 1e-5));
            }
            array_free(&mask);
        }
        array_free(&in), array_free(&want), array_free(&got);
    }
}

RF_TEST(cpu, rope_in_both_pairings) {
    struct rf_random random = {rf_test_seed() + 7};
    static const size_t shapes[][4] = {{1, 1, 2, 2}, {5, 3, 64, 64}, {7, 2, 80, 80}, {3, 4, 128, 96}, {2, 3, 40, 26}};
    for (size_t s = 0; s < RF_COUNT(shapes); s++)
        for (int d = RF_F32; d <= RF_BF16; d++) {
            enum rf_dtype dtype = (enum rf_dtype)d;
            size_t tokens = shapes[s][0], heads = shapes[s][1], dim = shapes[s][2], rotated = shapes[s][3];
            uint64_t steps[128];
            int32_t positions[8] = {0, 1, 4095, 131071, 7, -3, 100000};
            struct rf_rope_params params = {.rotated = (uint32_t)rotated, .base = 500000};
            size_t head = dim + 3, token = heads * head + 5, count = tokens * token;
            struct rf_rope_args args = {.tokens = tokens,
                                        .out_token = token,
                                        .out_head = head,
                                        .in_token = token,
                                        .in_head = head,
                                        .heads = (uint32_t)heads,
                                        .dim = (uint32_t)dim,
                                        .rotated = (uint32_t)rotated};
            RF_ASSERT(rf_rope_steps(&params, steps, &args.magnitude));
            args.magnitude = 1.25f;
            struct array in = array_random(&random, dtype, count, 1, 1, 0), want = array_like(&in),
                         got = array_like(&in);
            struct rf_compare how = rf_within(dtype == RF_F32 ? 1e-5 : 1e-4, dtype == RF_F32   ? 1e-6
                                                                             : dtype == RF_F16 ? 1e-3
                                                                                               : 8e-3);
            for (int halves = 0; halves < 2; halves++) {
                args.halves = (uint32_t)halves;
                rf_ref_rope(dtype, want.at, dtype, in.at, positions, steps, &args);
                EACH_CPU(cpu) {
                    RF_TRACE("%s, %s, dim %zu, halves %d", rf_cpu_simd(cpu)->name, rf_dtype_name(dtype), dim, halves);
                    RF_ASSERT_OK(rf_cpu_rope(cpu, dtype, got.at, dtype, in.at, positions, steps, &args));
                    RF_ASSERT_ARRAY(dtype, got.at, want.at, count,
                                    how); /* the bytes between the heads are NaN in both */
                    struct array place = array_like(&in);
                    memcpy(place.at, in.at, in.bytes);
                    RF_ASSERT_OK(rf_cpu_rope(cpu, dtype, place.at, dtype, place.at, positions, steps, &args));
                    for (size_t t = 0; t < tokens; t++)
                        for (size_t h = 0; h < heads; h++) {
                            size_t at = (t * token + h * head) * float_bytes(dtype);
                            RF_ASSERT_BYTES((char *)place.at + at, (char *)got.at + at, dim * float_bytes(dtype));
                        }
                    array_free(&place);
                }
            }
            array_free(&in), array_free(&want), array_free(&got);
        }
}

/* Keys that are rotated and keys that are not, tokens without a place, and two tokens with the same place: the later
 * one wins, whatever the number of threads. */
RF_TEST(cpu, kv_append_into_pages) {
    struct rf_random random = {rf_test_seed() + 8};
    enum { TOKENS = 300, HEADS = 3, DIM = 96, ROTATED = 64, PAGES = 9, PAGE_ROWS = 5, WIDTH = 4, SEQUENCES = 2 };
    static const enum rf_dtype types[] = {RF_F32, RF_F16, RF_Q8_0};
    struct array k = array_random(&random, RF_F32, TOKENS * (HEADS * DIM + 7), 1, 1, 0);
    struct array v = array_random(&random, RF_F32, TOKENS * HEADS * DIM, 1, 1, 0);
    static const uint32_t table[SEQUENCES * WIDTH] = {4, 0, 8, PAGES, 1, 3, 2, 6};
    uint32_t sequences[TOKENS];
    int32_t positions[TOKENS];
    for (size_t t = 0; t < TOKENS; t++) {
        sequences[t] = (uint32_t)rf_random_below(&random, SEQUENCES + 1);
        positions[t] = (int32_t)rf_random_below(&random, WIDTH * PAGE_ROWS + 2) - 1;
    }
    uint64_t steps[ROTATED / 2];
    float magnitude;
    struct rf_rope_params params = {.rotated = ROTATED, .base = 10000};
    RF_ASSERT(rf_rope_steps(&params, steps, &magnitude));
    for (size_t d = 0; d < RF_COUNT(types); d++)
        for (int turned = 0; turned < 3; turned++) {
            struct rf_ref_kv_append append = {.args = {.tokens = TOKENS,
                                                       .k_token = HEADS * DIM + 7,
                                                       .v_token = HEADS * DIM,
                                                       .page = HEADS * PAGE_ROWS * DIM,
                                                       .head = PAGE_ROWS * DIM,
                                                       .row = DIM,
                                                       .table_width = WIDTH,
                                                       .sequence_count = SEQUENCES,
                                                       .heads = HEADS,
                                                       .dim = DIM,
                                                       .page_rows = PAGE_ROWS,
                                                       .page_count = PAGES,
                                                       .rotated = ROTATED,
                                                       .halves = turned == 2,
                                                       .magnitude = magnitude},
                                              .dtype = types[d],
                                              .k = k.at,
                                              .v = v.at,
                                              .positions = positions,
                                              .sequences = sequences,
                                              .table = table,
                                              .steps = turned ? steps : NULL};
            size_t count = PAGES * HEADS * PAGE_ROWS * DIM;
            size_t bytes = count / rf_dtype_block(types[d]) * rf_dtype_block_bytes(types[d]);
            struct array want[2], got[2];
            for (int i = 0; i < 2; i++) want[i] = array_new(bytes, 4), got[i] = array_like(&want[i]);
            for (int i = 0; i < 2; i++) memset(want[i].at, 0, bytes);
            append.k_cache = want[0].at, append.v_cache = want[1].at;
            rf_ref_kv_append(&append);
            append.k_cache = got[0].at, append.v_cache = got[1].at;
            EACH_CPU(cpu) {
                RF_TRACE("%s, %s, %u threads, turned %d", rf_dtype_name(types[d]), rf_cpu_simd(cpu)->name,
                         rf_cpu_threads(cpu), turned);
                for (int i = 0; i < 2; i++) memset(got[i].at, 0, bytes);
                RF_ASSERT_OK(rf_cpu_kv_append(cpu, &append));
                RF_ASSERT_BYTES(got[1].at, want[1].at, bytes);
                if (!turned) {
                    RF_ASSERT_BYTES(got[0].at, want[0].at, bytes);
                } else if (types[d] != RF_Q8_0) {
                    RF_ASSERT_ARRAY(types[d], got[0].at, want[0].at, count,
                                    rf_within(1e-5, types[d] == RF_F32 ? 1e-6 : 1e-3));
                } else {
                    float a[32], b[32]; /* an element on the edge between two quants may be rounded to either */
                    for (size_t i = 0; i < count; i += 32) {
                        rf_dequantize_row(RF_Q8_0, (char *)got[0].at + i / 32 * 34, a, 32);
                        rf_dequantize_row(RF_Q8_0, (char *)want[0].at + i / 32 * 34, b, 32);
                        for (int e = 0; e < 32; e++) RF_ASSERT_DOUBLE((double)a[e], (double)b[e], 0.06);
                    }
                }
            }
            for (int i = 0; i < 2; i++) array_free(&want[i]), array_free(&got[i]);
            struct rf_cpu *cpu = open_cpu(RF_SIMD_AUTO, 2);
            float cache[32];
            append.k_cache = append.v_cache = cache;
            struct rf_ref_kv_append bad[5] = {append, append, append, append, append};
            bad[0].args.page_rows = 0;
            bad[1].positions = NULL;
            bad[2].dtype = RF_Q4_0;
            bad[3].steps = steps, bad[3].args.rotated = DIM + 2;
            bad[4].k_cache = NULL;
            for (size_t i = 0; i < RF_COUNT(bad); i++) {
                RF_ASSERT_STATUS(rf_cpu_kv_append(cpu, &bad[i]), RF_E_INVALID);
                RF_ASSERT_CONTAINS(rf_error_text(), "kv_append");
            }
            RF_ASSERT_STATUS(rf_cpu_kv_append(cpu, NULL), RF_E_INVALID);
            rf_cpu_destroy(&cpu);
        }
    array_free(&k), array_free(&v);
}

RF_TEST(cpu, refuses_bad_arguments) {
    struct rf_cpu *cpu = open_cpu(RF_SIMD_AUTO, 2);
    float x[8] = {0};
    struct rf_elementwise_args eight = {.count = 8}, one = {.count = 1}, none = {.count = 0};
    RF_ASSERT_STATUS(rf_cpu_add(cpu, RF_Q8_0, x, x, x, &eight), RF_E_INVALID);
    RF_ASSERT_CONTAINS(rf_error_text(), "add");
    RF_ASSERT_STATUS(rf_cpu_add(cpu, RF_F32, NULL, x, x, &eight), RF_E_INVALID);
    RF_ASSERT_STATUS(rf_cpu_add(NULL, RF_F32, x, x, x, &eight), RF_E_INVALID);
    RF_ASSERT_STATUS(rf_cpu_add(cpu, RF_F32, (char *)x + 2, x, x, &one), RF_E_INVALID);
    RF_ASSERT_OK(rf_cpu_add(cpu, RF_F32, NULL, NULL, NULL, &none));
    RF_ASSERT_STATUS(rf_cpu_copy(cpu, RF_F16, x, RF_I8, x, &eight), RF_E_INVALID);
    struct rf_activation_args activation = {1, 8, 8, 8, 0, RF_ACTIVATION_COUNT, 0};
    RF_ASSERT_STATUS(rf_cpu_activation(cpu, RF_F32, x, x, NULL, &activation), RF_E_INVALID);
    struct rf_softmax_args softmax = {1, 8, 1, 1, 1, 0};
    RF_ASSERT_STATUS(rf_cpu_softmax_mask(cpu, x, x, RF_BF16, x, &softmax), RF_E_INVALID);
    softmax.rows_each = 0;
    RF_ASSERT_STATUS(rf_cpu_softmax_mask(cpu, x, x, RF_F32, x, &softmax), RF_E_INVALID);
    struct rf_rope_args rope = {.tokens = 1, .heads = 1, .dim = 8, .rotated = 10};
    int32_t position = 0;
    uint64_t steps[5] = {0};
    RF_ASSERT_STATUS(rf_cpu_rope(cpu, RF_F32, x, RF_F32, x, &position, steps, &rope), RF_E_INVALID);
    RF_ASSERT_CONTAINS(rf_error_text(), "rope: 10 elements of a head of 8");
    rope.rotated = 8;
    RF_ASSERT_STATUS(rf_cpu_rope(cpu, RF_BF16, x, RF_F32, x, &position, steps, &rope), RF_E_INVALID);
    RF_ASSERT_CONTAINS(rf_error_text(), "rope: from f32 to bf16");
    rf_cpu_destroy(&cpu);
}
