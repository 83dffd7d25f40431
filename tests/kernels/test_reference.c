/* The references themselves: conversions over all 16-bit values, and cases whose results are known
 * without computing them the same way. */
#include "cpu/reference.h"

#include <math.h>
#include <string.h>

#include <rocmforge/test.h>

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

RF_TEST(reference, f16_round_trip) {
    for (uint32_t bits = 0; bits < 65536; bits++) {
        double value = rf_f16_to_double((uint16_t)bits);
        bool nan = (bits & 0x7c00) == 0x7c00 && (bits & 0x3ff);
        if (isnan(value) != nan) RF_FAIL("f16 %04x: NaN is %d", bits, isnan(value));
        uint16_t back = rf_f16_from_double(value);
        if (back != (nan ? 0x7e00 : bits)) RF_FAIL("f16 %04x came back as %04x", bits, back);
    }
}

RF_TEST(reference, bf16_round_trip) {
    for (uint32_t bits = 0; bits < 65536; bits++) {
        double value = rf_bf16_to_double((uint16_t)bits);
        bool nan = (bits & 0x7f80) == 0x7f80 && (bits & 0x7f);
        float plain = float_of(bits << 16); /* a bf16 is the upper half of an f32 */
        if (!nan && value != (double)plain) RF_FAIL("bf16 %04x is %g, should be %g", bits, value, (double)plain);
        uint16_t back = rf_bf16_from_double(value);
        if (back != (nan ? 0x7fc0 : bits)) RF_FAIL("bf16 %04x came back as %04x", bits, back);
    }
}

/* Halfway between neighbours: to the even one; a little either way: to the nearer. */
static void check_ties(uint16_t (*narrow)(double), double (*widen)(uint16_t), uint16_t infinity) {
    for (uint32_t bits = 0; bits < infinity; bits++) {
        double low = widen((uint16_t)bits);
        double high = bits + 1 == infinity ? 2 * low - widen((uint16_t)(bits - 1)) : widen((uint16_t)(bits + 1));
        double middle = low + (high - low) / 2; /* exact in double */
        uint16_t even = (uint16_t)(bits & 1 ? bits + 1 : bits);
        RF_ASSERT_INT(narrow(middle), even);
        RF_ASSERT_INT(narrow(-middle), even | 0x8000);
        RF_ASSERT_INT(narrow(nextafter(middle, low)), bits);
        RF_ASSERT_INT(narrow(nextafter(middle, high)), bits + 1);
    }
}
RF_TEST(reference, f16_ties) {
    check_ties(rf_f16_from_double, rf_f16_to_double, 0x7c00);
}
RF_TEST(reference, bf16_ties) {
    check_ties(rf_bf16_from_double, rf_bf16_to_double, 0x7f80);
}

RF_TEST(reference, known_conversions) {
    RF_EXPECT_INT(rf_f16_from_double(1.0), 0x3c00);
    RF_EXPECT_INT(rf_f16_from_double(-2.0), 0xc000);
    RF_EXPECT_INT(rf_f16_from_double(65504.0), 0x7bff);
    RF_EXPECT_INT(rf_f16_from_double(65519.999), 0x7bff);
    RF_EXPECT_INT(rf_f16_from_double(65520.0), 0x7c00);
    RF_EXPECT_INT(rf_f16_from_double(1e300), 0x7c00);
    RF_EXPECT_INT(rf_f16_from_double(-INFINITY), 0xfc00);
    RF_EXPECT_INT(rf_f16_from_double(0x1p-24), 0x0001);
    RF_EXPECT_INT(rf_f16_from_double(0x1p-25), 0x0000);
    RF_EXPECT_INT(rf_f16_from_double(-0.0), 0x8000);
    RF_EXPECT_INT(rf_f16_from_double(-NAN), 0x7e00);
    RF_EXPECT_INT(rf_bf16_from_double(1.0), 0x3f80);
    RF_EXPECT_INT(rf_bf16_from_double(3.4e38), 0x7f80);
    RF_EXPECT_INT(rf_bf16_from_double(0x1p-133), 0x0001);
    RF_EXPECT_INT(rf_bf16_from_double(NAN), 0x7fc0);
}

RF_TEST(reference, softmax_known) {
    float in[3][4] = {{0, 0, 0, 0}, {logf(1), logf(2), logf(3), logf(4)}, {1000, -INFINITY, 1000, -1000}};
    float out[3][4], want[3][4] = {{.25f, .25f, .25f, .25f}, {.1f, .2f, .3f, .4f}, {.5f, 0, .5f, 0}};
    rf_ref_softmax(out[0], in[0], &(struct rf_softmax_args){.rows = 3, .columns = 4});
    RF_ASSERT_FLOATS(out[0], want[0], 12, 1e-7, 1e-6);
    float one = 3.0f;
    rf_ref_softmax(&one, &one, &(struct rf_softmax_args){.rows = 1, .columns = 1});
    RF_ASSERT(one == 1.0f);
}

RF_TEST(reference, softmax_special_rows) {
    float in[3][3] = {{-INFINITY, -INFINITY, -INFINITY}, {1, INFINITY, 2}, {1, NAN, 2}};
    float out[3][3];
    rf_ref_softmax(out[0], in[0], &(struct rf_softmax_args){.rows = 3, .columns = 3});
    for (int c = 0; c < 3; c++) {
        RF_EXPECT(out[0][c] == 0.0f);
        RF_EXPECT(isnan(out[2][c]));
    }
    RF_EXPECT(isnan(out[1][1]));
}

RF_TEST(reference, rms_norm_known) {
    float in[2][2] = {{3, 4}, {0, 0}}, weight[2] = {1, 10}, out[2][2];
    float want[2][2] = {{3 / sqrtf(12.5f), 40 / sqrtf(12.5f)}, {0, 0}};
    rf_ref_rms_norm(RF_F32, out, in, weight, &(struct rf_norm_args){.rows = 2, .columns = 2, .eps = 1e-12f});
    RF_ASSERT_FLOATS(out[0], want[0], 4, 1e-6, 1e-6);
    /* eps doubles the mean square */
    rf_ref_rms_norm(RF_F32, out, in, NULL, &(struct rf_norm_args){.rows = 1, .columns = 2, .eps = 12.5f});
    RF_EXPECT(fabsf(out[0][0] - 0.6f) < 1e-6f && fabsf(out[0][1] - 0.8f) < 1e-6f);
}

RF_TEST(reference, copies) {
    uint32_t nan_payload = 0x7fa12345, kept = 0;
    rf_ref_copy(RF_F32, &kept, RF_F32, &nan_payload, &(struct rf_elementwise_args){.count = 1});
    RF_ASSERT_INT(kept, nan_payload);
    float in[6] = {1, 2, 3, 4, 5, 6};
    uint16_t out[6];
    struct rf_copy_2d_args transposed = {
        .rows = 2, .columns = 3, .out_row = 1, .out_column = 2, .in_row = 3, .in_column = 1};
    rf_ref_copy_2d(RF_F16, out, RF_F32, in, &transposed);
    const double want[6] = {1, 4, 2, 5, 3, 6};
    for (int i = 0; i < 6; i++) RF_EXPECT(rf_f16_to_double(out[i]) == want[i]);
}

RF_TEST(reference, add_and_scale_round) {
    uint16_t a[2] = {0x3c00, 0x7bff}, b[2] = {0x1000, 0x7bff}, out[2]; /* 1 + 2^-11: a tie, to even */
    rf_ref_add(RF_F16, out, a, b, &(struct rf_elementwise_args){.count = 2});
    RF_EXPECT_INT(out[0], 0x3c00);
    RF_EXPECT_INT(out[1], 0x7c00);
    float x = 3.0f, y;
    rf_ref_scale(RF_F32, &y, &x, &(struct rf_elementwise_args){.count = 1, .factor = 1.0f / 3.0f});
    RF_EXPECT(y == (float)(3.0 * (double)(1.0f / 3.0f)));
    rf_ref_fill(&y, &(struct rf_elementwise_args){.count = 1, .bits = 0xbfc00000});
    RF_EXPECT(y == -1.5f);
    uint32_t u = 0;
    rf_ref_fill(&u, &(struct rf_elementwise_args){.count = 1, .bits = 0xdeadbeef});
    RF_EXPECT(u == 0xdeadbeef);
}
