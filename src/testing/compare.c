/* Compares two arrays: whether they agree, and if not, where and by how much, in the terms of numerics.
 *
 * Invariants: one pass over the data, nothing allocated; a NaN or an infinity where it is not expected exceeds every
 * tolerance and counts as infinitely far off, so a finite difference never hides it; NMSE is over the pairs where
 * both values are finite. This is asserted for each pair; that nothing is allocated is a property of the source. */
#include "testing_impl.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define CELLS 64
#define SHOWN 10

/* What one pass finds. An index is meaningful if its count or difference is not zero. */
struct findings {
    size_t count, over, first_over;
    size_t worst, worst_finite;        /* where the largest is: of those over the tolerance, or of all if none is */
    double difference, finite;         /* the differences there; -1: none */
    uint64_t distance;                 /* the difference there, in ULP */
    double squared_error, squared_sum; /* of the expected values */
    size_t nan_actual, nan_expected, inf_actual, inf_expected;
    size_t cell_over[CELLS];
};

/* ---- elements ---- */

static bool is_float(enum rf_dtype dtype) {
    return dtype == RF_F32 || dtype == RF_F16 || dtype == RF_BF16;
}

static uint32_t bits_at(enum rf_dtype dtype, const void *data, size_t index) {
    uint32_t word = 0;
    size_t bytes = rf_dtype_bytes(dtype);
    memcpy(&word, (const char *)data + index * bytes, bytes); /* little-endian, as everywhere in the library */
    return word;
}

static double value_of(enum rf_dtype dtype, uint32_t bits) {
    float value;
    switch (dtype) {
    case RF_F32: memcpy(&value, &bits, sizeof value); return (double)value;
    case RF_F16: return (double)rf_f16_to_float((uint16_t)bits);
    case RF_BF16: return (double)rf_bf16_to_float((uint16_t)bits);
    case RF_I32: return (double)(int32_t)bits;
    case RF_I8: return (double)(int8_t)bits;
    default: return (double)bits;
    }
}

/* Maps values to integers in the same order, with neighbouring values one apart; 0 and -0 map to the same integer. */
static int64_t order_of(enum rf_dtype dtype, uint32_t bits) {
    if (!is_float(dtype)) return (int64_t)value_of(dtype, bits);
    uint32_t sign = dtype == RF_F32 ? UINT32_C(0x80000000) : 0x8000;
    return bits & sign ? -(int64_t)(bits & (sign - 1)) : (int64_t)bits;
}

/* ---- the pass ---- */

struct pair {
    double difference; /* HUGE_VAL if NaNs or infinities do not agree */
    uint64_t distance;
    bool over;
};

static struct pair compare(enum rf_dtype dtype, uint32_t a_bits, uint32_t e_bits, double actual, double expected,
                           const struct rf_compare *how) {
    struct pair pair = {0};
    if (how->rule == RF_COMPARE_BITS) pair.over = a_bits != e_bits;
    if (isnan(actual) || isnan(expected)) {
        bool both = isnan(actual) && isnan(expected);
        if (!both) pair = (struct pair){HUGE_VAL, UINT64_MAX, true};
        return pair;
    }
    if (actual == expected) return pair;
    if (isinf(actual) || isinf(expected)) return (struct pair){HUGE_VAL, UINT64_MAX, true};
    int64_t a = order_of(dtype, a_bits), e = order_of(dtype, e_bits);
    pair.difference = fabs(actual - expected);
    pair.distance = a > e ? (uint64_t)(a - e) : (uint64_t)(e - a);
    if (how->rule == RF_COMPARE_NEAR) /* not "greater than", so that a tolerance of NaN allows nothing */
        pair.over = !(pair.difference <= how->absolute + how->relative * fabs(expected));
    else if (how->rule == RF_COMPARE_ULP)
        pair.over = pair.distance > how->ulp;
    return pair;
}

static void note_worst(struct findings *found, size_t index, struct pair pair, bool fresh, bool by_distance) {
    bool larger =
        by_distance ? pair.distance > found->distance || found->difference < 0 : pair.difference > found->difference;
    if (fresh || larger) {
        found->worst = index;
        found->difference = pair.difference;
        found->distance = pair.distance;
    }
    if (!isinf(pair.difference) && (fresh || pair.difference > found->finite)) {
        found->worst_finite = index;
        found->finite = pair.difference;
    } else if (fresh) {
        found->finite = -1;
    }
}

static void examine(enum rf_dtype dtype, const void *actual, const void *expected, size_t count,
                    const struct rf_compare *how, struct findings *found) {
    *found = (struct findings){.count = count, .difference = -1, .finite = -1};
    size_t cells = count < CELLS ? count : CELLS;
    for (size_t i = 0; i < count; i++) {
        uint32_t a_bits = bits_at(dtype, actual, i), e_bits = bits_at(dtype, expected, i);
        double a = value_of(dtype, a_bits), e = value_of(dtype, e_bits);
        found->nan_actual += isnan(a) != 0;
        found->nan_expected += isnan(e) != 0;
        found->inf_actual += isinf(a) != 0;
        found->inf_expected += isinf(e) != 0;
        struct pair pair = compare(dtype, a_bits, e_bits, a, e, how);
        rf_assert(isfinite(a) == isfinite(e) || (pair.over && isinf(pair.difference)));
        if (isfinite(a) && isfinite(e)) {
            found->squared_error += pair.difference * pair.difference;
            found->squared_sum += e * e;
        }
        /* Values within the tolerance matter only as long as all values are. */
        if (pair.over || found->over == 0)
            note_worst(found, i, pair, pair.over && found->over == 0, how->rule == RF_COMPARE_ULP);
        if (!pair.over) continue;
        if (found->over++ == 0) found->first_over = i;
        found->cell_over[i * cells / count]++;
    }
}

/* ---- the message ---- */

struct text {
    char *at;
    size_t length, size;
};

static void add(struct text *text, const char *format, ...) RF_PRINTF(2, 3);
static void add(struct text *text, const char *format, ...) {
    if (text->length >= text->size) return;
    va_list args;
    va_start(args, format);
    text->length += (size_t)vsnprintf(text->at + text->length, text->size - text->length, format, args);
    va_end(args);
}

static void write_value(char *text, size_t size, enum rf_dtype dtype, uint32_t bits) {
    double value = value_of(dtype, bits);
    if (is_float(dtype) && isnan(value))
        snprintf(text, size, "NaN");
    else if (is_float(dtype))
        snprintf(text, size, "%.*g", dtype == RF_F32 ? 9 : dtype == RF_F16 ? 5 : 4, value);
    else
        snprintf(text, size, "%.0f", value);
}

static void add_place(struct text *text, size_t index, const struct rf_compare *how) {
    add(text, "[%zu]", index);
    uint64_t elements = 1;
    for (int i = 0; i < how->rank; i++) elements *= how->shape[i];
    if (how->rank < 1 || elements == 0) return;
    uint64_t rest = index;
    add(text, " (");
    for (int i = 0; i < how->rank; i++) {
        elements /= how->shape[i];
        add(text, "%s%" PRIu64, i ? ", " : "", rest / elements);
        rest %= elements;
    }
    add(text, ")");
}

static void add_pair(struct text *text, enum rf_dtype dtype, const void *actual, const void *expected, size_t index) {
    uint32_t a_bits = bits_at(dtype, actual, index), e_bits = bits_at(dtype, expected, index);
    char a[40], e[40];
    write_value(a, sizeof a, dtype, a_bits);
    write_value(e, sizeof e, dtype, e_bits);
    add(text, "is %s, expected %s", a, e);
    if (strcmp(a, e) == 0) add(text, " (bits 0x%" PRIx32 ", 0x%" PRIx32 ")", a_bits, e_bits);
}

static void add_allowed(struct text *text, const struct rf_compare *how) {
    if (how->rule == RF_COMPARE_BITS)
        add(text, "in any bit");
    else if (how->rule == RF_COMPARE_ULP)
        add(text, "by more than %" PRIu64 " ULP", how->ulp);
    else if (how->absolute == 0 && how->relative == 0)
        add(text, "at all");
    else if (how->relative == 0)
        add(text, "by more than %g", how->absolute);
    else if (how->absolute == 0)
        add(text, "by more than %g * |expected|", how->relative);
    else
        add(text, "by more than %g + %g * |expected|", how->absolute, how->relative);
}

/* Up to ten values of both arrays, one row below the other. */
static void add_values(struct text *text, enum rf_dtype dtype, const void *actual, const void *expected, size_t from,
                       size_t count) {
    char values[2][SHOWN][40];
    int width[SHOWN];
    size_t shown = count - from < SHOWN ? count - from : SHOWN;
    for (size_t i = 0; i < shown; i++) {
        write_value(values[0][i], sizeof values[0][i], dtype, bits_at(dtype, expected, from + i));
        write_value(values[1][i], sizeof values[1][i], dtype, bits_at(dtype, actual, from + i));
        size_t wide = strlen(values[0][i]), other = strlen(values[1][i]);
        width[i] = (int)(wide > other ? wide : other);
    }
    for (int side = 0; side < 2; side++) {
        add(text, "\n  %s", side ? "actual  " : "expected");
        if (from) add(text, " [%zu…]", from);
        for (size_t i = 0; i < shown; i++) add(text, " %*s", width[i], values[side][i]);
        if (from + shown < count) add(text, " …");
    }
}

static void add_picture(struct text *text, const struct findings *found) {
    size_t count = found->count, cells = count < CELLS ? count : CELLS;
    char picture[CELLS + 1];
    for (size_t i = 0; i < cells; i++) {
        size_t start = (i * count + cells - 1) / cells, end = ((i + 1) * count + cells - 1) / cells;
        size_t over = found->cell_over[i];
        picture[i] = over == 0 ? ' ' : over == end - start ? '#' : over * 4 >= end - start ? 'x' : '.';
    }
    picture[cells] = 0;
    add(text, "\n  where    |%s| a cell is %zu value%s%s", picture, count / cells, count / cells == 1 ? "" : "s",
        count % cells ? " or one more" : "");
}

static double nmse(const struct findings *found) {
    if (found->squared_error == 0) return 0;
    return found->squared_error / found->squared_sum; /* infinite if all expected values are 0 */
}

static void describe(struct text *text, const char *what, enum rf_dtype dtype, const void *actual,
                     const void *expected, const struct rf_compare *how, const struct findings *found) {
    add(text, "%s: %zu of %zu values are off ", what, found->over, found->count);
    add_allowed(text, how);
    add(text, " (%s)\n  largest difference ", rf_dtype_name(dtype));
    if (isinf(found->difference))
        add(text, "infinite");
    else
        add(text, "%g", found->difference);
    if (is_float(dtype) && !isinf(found->difference)) add(text, " (%" PRIu64 " ULP)", found->distance);
    add(text, " at ");
    add_place(text, found->worst, how);
    add(text, ": ");
    add_pair(text, dtype, actual, expected, found->worst);
    if (isinf(found->difference) && found->finite >= 0) {
        add(text, "\n  largest finite difference %g at ", found->finite);
        add_place(text, found->worst_finite, how);
        add(text, ": ");
        add_pair(text, dtype, actual, expected, found->worst_finite);
    }
    add(text, "\n  first at ");
    add_place(text, found->first_over, how);
    add(text, "; NMSE %g", nmse(found));
    if (is_float(dtype))
        add(text, "; NaN %zu (expected %zu), Inf %zu (expected %zu)", found->nan_actual, found->nan_expected,
            found->inf_actual, found->inf_expected);
    add_values(text, dtype, actual, expected, 0, found->count);
    if (found->first_over >= SHOWN) add_values(text, dtype, actual, expected, found->first_over, found->count);
    add_picture(text, found);
}

/* One line about arrays that agree. */
static void note_agreement(const char *file, int line, const char *what, enum rf_dtype dtype, const void *actual,
                           const void *expected, const struct rf_compare *how, const struct findings *found) {
    char line_text[900];
    struct text text = {line_text, 0, sizeof line_text};
    const char *slash = strrchr(file, '/');
    add(&text, "%s:%d: %s: %zu values agree; largest difference %g", slash ? slash + 1 : file, line, what,
        found->count, found->difference > 0 ? found->difference : 0);
    if (found->difference > 0) {
        add(&text, " at ");
        add_place(&text, found->worst, how);
        add(&text, ": ");
        add_pair(&text, dtype, actual, expected, found->worst);
    }
    add(&text, "; first");
    for (size_t i = 0; i < found->count && i < SHOWN; i++) {
        char value[40];
        write_value(value, sizeof value, dtype, bits_at(dtype, actual, i));
        add(&text, " %s", value);
    }
    rf_test_note("%s", line_text);
}

/* The product of the dimensions; 0 if there is no shape, UINT64_MAX if it overflows. */
static uint64_t shape_elements(const struct rf_compare *how) {
    uint64_t elements = how->rank > 0;
    for (int i = 0; i < how->rank; i++)
        if (__builtin_mul_overflow(elements, how->shape[i], &elements)) return UINT64_MAX;
    return elements;
}

static bool is_known(enum rf_dtype dtype) {
    return is_float(dtype) || dtype == RF_I32 || dtype == RF_I8 || dtype == RF_U8;
}

bool rf_test_array_agrees(const char *file, int line, const char *what, enum rf_dtype dtype, const void *actual,
                          const void *expected, size_t count, struct rf_compare how) {
    if (!is_known(dtype)) {
        rf_test_fail(file, line, false, "%s: values of type %s (%d) cannot be compared", what, rf_dtype_name(dtype),
                     (int)dtype);
        return false;
    }
    if (count && (!actual || !expected)) {
        rf_test_fail(file, line, false, "%s: the %s array is NULL", what, actual ? "expected" : "actual");
        return false;
    }
    if (how.rank < 0 || how.rank > RF_MAX_RANK) how.rank = 0;
    uint64_t elements = shape_elements(&how);
    if (how.rank && elements != count) {
        rf_test_fail(file, line, false, "%s: the shape holds %" PRIu64 " values, the array %zu", what, elements,
                     count);
        return false;
    }
    struct findings found;
    examine(dtype, actual, expected, count, &how, &found);
    if (found.over == 0) {
        if (rf_test_is_debug()) note_agreement(file, line, what, dtype, actual, expected, &how, &found);
        return true;
    }
    char whole[4000];
    struct text text = {whole, 0, sizeof whole};
    describe(&text, what, dtype, actual, expected, &how, &found);
    rf_test_fail_text(file, line, false, whole);
    return false;
}

void rf_test_array(const char *file, int line, bool fatal, const char *what, enum rf_dtype dtype, const void *actual,
                   const void *expected, size_t count, struct rf_compare how) {
    if (!rf_test_array_agrees(file, line, what, dtype, actual, expected, count, how) && fatal) rf_test_leave();
}
