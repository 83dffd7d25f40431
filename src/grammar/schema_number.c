/* Numbers with bounds and multiples, compared as they are spelt: decimals without an exponent. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "grammar/dfa.h"
#include "grammar/regex.h"
#include "grammar/schema_impl.h"

/* ---- decimals ---- */

/* Digits and an exponent to a decimal: digits[0].digits[1…] times ten to the exponent. */
static rf_status place_point(const char *digits, int exponent, struct rf_decimal *out) {
    int count = (int)strlen(digits), whole = exponent + 1;
    if (whole > RF_DIGITS_MAX || count - whole > RF_DIGITS_MAX) return RF_E_UNSUPPORTED;
    int at = 0, fraction = 0;
    for (int i = 0; i < whole; i++)
        if (at || (i < count && digits[i] != '0')) out->whole[at++] = i < count ? digits[i] : '0';
    if (!at) out->whole[at++] = '0';
    out->whole[at] = 0;
    for (int i = whole; i < count; i++) out->fraction[fraction++] = i < 0 ? '0' : digits[i];
    while (fraction && out->fraction[fraction - 1] == '0') fraction--;
    out->fraction[fraction] = 0;
    return RF_OK;
}

/* The shortest digits that give this number back, and the exponent. */
static void shortest(double value, char digits[32], int *exponent) {
    char text[40];
    for (int precision = 0; precision <= 16; precision++) {
        snprintf(text, sizeof text, "%.*e", precision, value);
        if (strtod(text, NULL) == value) break;
    }
    size_t count = 0;
    char *e = strchr(text, 'e');
    for (char *c = text; c < e; c++)
        if (*c >= '0' && *c <= '9') digits[count++] = *c; /* the point depends on the locale */
    while (count > 1 && digits[count - 1] == '0') count--;
    digits[count] = 0;
    *exponent = atoi(e + 1);
}

rf_status rf_decimal_read(const json_t *number, struct rf_decimal *out) {
    char digits[32];
    int exponent;
    *out = (struct rf_decimal){.negative = json_number_value(number) < 0};
    if (json_is_integer(number)) {
        json_int_t value = json_integer_value(number);
        snprintf(digits, sizeof digits, "%llu",
                 value < 0 ? 0 - (unsigned long long)value : (unsigned long long)value);
        return place_point(digits, (int)strlen(digits) - 1, out);
    }
    shortest(fabs(json_real_value(number)), digits, &exponent);
    return place_point(digits, exponent, out);
}

static int compare_magnitudes(const struct rf_decimal *a, const struct rf_decimal *b) {
    size_t x = strlen(a->whole), y = strlen(b->whole);
    if (x != y) return x < y ? -1 : 1;
    int order = strcmp(a->whole, b->whole);
    return order ? order : strcmp(a->fraction, b->fraction);
}

static bool is_zero(const struct rf_decimal *value) {
    return !strcmp(value->whole, "0") && !*value->fraction;
}

int rf_decimal_compare(const struct rf_decimal *a, const struct rf_decimal *b) {
    if (is_zero(a) && is_zero(b)) return 0;
    if (a->negative != b->negative) return a->negative ? -1 : 1;
    return a->negative ? compare_magnitudes(b, a) : compare_magnitudes(a, b);
}

/* ---- bounds as regular expressions ---- */

struct writer {
    char text[16384];
    size_t at;
};
static void put(struct writer *writer, const char *format, ...) RF_PRINTF(2, 3);
static void put(struct writer *writer, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int count = vsnprintf(writer->text + writer->at, sizeof writer->text - writer->at, format, arguments);
    va_end(arguments);
    writer->at = RF_MIN(writer->at + (size_t)count, sizeof writer->text - 1);
}

/* Spellings, without a sign, of magnitudes above or below this one; 'equal': and of itself. Digits that are no
 * spelling of a number do no harm: the caller wants numbers only. */
static void put_magnitudes(struct writer *writer, const struct rf_decimal *value, bool above, bool equal) {
    const char *w = value->whole, *f = value->fraction;
    int whole = (int)strlen(w), fraction = (int)strlen(f);
    put(writer, "(");
    if (above)
        put(writer, "[0-9]{%d,}(\\.[0-9]+)?", whole + 1);
    else
        put(writer, "[0-9]{0,%d}(\\.[0-9]+)?", whole - 1);
    for (int i = 0; i < whole; i++) {
        if (w[i] == (above ? '9' : '0')) continue;
        put(writer, "|%.*s[%c-%c][0-9]{%d}(\\.[0-9]+)?", i, w, above ? w[i] + 1 : '0', above ? '9' : w[i] - 1,
            whole - i - 1);
    }
    for (int i = 0; i < fraction; i++) {
        if (f[i] != (above ? '9' : '0'))
            put(writer, "|%s\\.%.*s[%c-%c][0-9]*", w, i, f, above ? f[i] + 1 : '0', above ? '9' : f[i] - 1);
        if (!above) put(writer, i ? "|%s\\.%.*s" : "|%s", w, i, f); /* less is written */
    }
    if (above) put(writer, "|%s\\.%s[0-9]*[1-9][0-9]*", w, f);
    if (equal && fraction) put(writer, "|%s\\.%s0*", w, f);
    if (equal && !fraction) put(writer, "|%s(\\.0+)?", w);
    put(writer, ")");
}

static rf_status bound_node(struct rf_schema *schema, const struct rf_bound *bound, bool upper, uint32_t *out) {
    struct writer *writer = calloc(1, sizeof *writer);
    if (!writer) return rf_fail(RF_E_NO_MEMORY, "no host memory for a bound");
    bool zero = is_zero(&bound->value), negative = bound->value.negative && !zero, equal = !bound->strict;
    if (upper && zero)
        put(writer, equal ? "-[0-9.]+|0(\\.0+)?" : "-[0-9.]*[1-9][0-9.]*");
    else if (upper && negative)
        put(writer, "-"), put_magnitudes(writer, &bound->value, true, equal);
    else if (upper)
        put(writer, "-[0-9.]+|"), put_magnitudes(writer, &bound->value, false, equal);
    else if (zero)
        put(writer, equal ? "[0-9.]+|-0(\\.0+)?" : "[0-9.]*[1-9][0-9.]*");
    else if (negative)
        put(writer, "[0-9.]+|-"), put_magnitudes(writer, &bound->value, false, equal);
    else
        put_magnitudes(writer, &bound->value, true, equal);
    rf_status status =
        writer->at + 1 < sizeof writer->text
            ? rf_add_regex(schema->program, writer->text, writer->at, RF_REGEX_WHOLE, "a bound", out)
            : rf_fail(RF_E_UNSUPPORTED, "%s: bounds of so many digits are not supported", schema->what);
    free(writer);
    return status;
}

/* ---- multiples ---- */

enum { REMAINDERS_MAX = 4096 };

static rf_status add_edge(struct rf_program *program, char low, char high, uint32_t target) {
    struct rf_edge edge = {(uint8_t)low, (uint8_t)high, target};
    return rf_list_add(program, &program->edges, &edge, 1, sizeof edge, NULL);
}

/* An automaton over the digits: remainders by 'divisor'. Row 0: before the point; row 1 + j: behind it and j digits;
 * the last row: behind all places, where only zeros follow. */
static rf_status multiple_node(struct rf_schema *schema, uint32_t divisor, uint32_t places, uint32_t *out) {
    struct rf_program *program = schema->program;
    struct rf_node node = {.kind = RF_NODE_DFA, .a = program->states.count};
    uint32_t rows = places + 3, first = node.a + 2; /* behind the beginning, and the sign */
    for (uint32_t i = 0; i < 2 + divisor * rows; i++) {
        struct rf_dfa_state state = {.first_edge = program->edges.count};
        uint32_t row = i < 2 ? 0 : (i - 2) / divisor, rest = i < 2 ? 0 : (i - 2) % divisor, scaled = rest;
        for (uint32_t k = row ? row - 1 : 0; k < places; k++) scaled = (uint32_t)((uint64_t)scaled * 10 % divisor);
        state.label = i >= 2 && row != 1 && !scaled;
        if (!i) RF_TRY(add_edge(program, '-', '-', node.a + 1));
        if (i >= 2 && !row) RF_TRY(add_edge(program, '.', '.', first + divisor + rest));
        uint32_t next = row && row <= places ? row + 1 : row;
        for (uint32_t digit = 0; digit < 10 && row <= places; digit++)
            RF_TRY(add_edge(program, (char)('0' + digit), (char)('0' + digit),
                            first + next * divisor + (uint32_t)((10ull * rest + digit) % divisor)));
        if (row > places && !rest) RF_TRY(add_edge(program, '0', '0', first + (rows - 1) * divisor));
        state.edge_count = program->edges.count - state.first_edge;
        RF_TRY(rf_list_add(program, &program->states, &state, 1, sizeof state, NULL));
    }
    return rf_add_node(program, node, out);
}

/* value times ten to the places is whole; both fit. */
static rf_status read_multiple(const json_t *value, uint32_t *divisor, uint32_t *places) {
    struct rf_decimal decimal;
    RF_TRY(rf_decimal_read(value, &decimal));
    char digits[2 * RF_DIGITS_MAX + 2];
    snprintf(digits, sizeof digits, "%s%s", decimal.whole, decimal.fraction);
    if (strlen(decimal.fraction) > 8) return RF_E_UNSUPPORTED;
    unsigned long long whole = strlen(digits) > 9 ? 0 : strtoull(digits, NULL, 10);
    if (!whole || whole * (strlen(decimal.fraction) + 3) > REMAINDERS_MAX) return RF_E_UNSUPPORTED;
    *divisor = (uint32_t)whole;
    *places = (uint32_t)strlen(decimal.fraction);
    return RF_OK;
}

/* ---- nodes ---- */

rf_status rf_emit_number_constant(struct rf_schema *schema, const json_t *number, uint32_t *out) {
    struct rf_decimal decimal;
    char text[160], digits[32];
    double value = json_number_value(number);
    bool plain =
        !rf_decimal_read(number, &decimal) && strlen(decimal.whole) <= 21 && (fabs(value) >= 1e-6 || value == 0);
    const char *sign = value < 0 ? "-" : "";
    if (plain) {
        snprintf(text, sizeof text, "%s%s%s%s", sign, decimal.whole, *decimal.fraction ? "." : "", decimal.fraction);
    } else {
        int exponent;
        shortest(fabs(value), digits, &exponent);
        snprintf(text, sizeof text, "%s%c%s%se%+d", sign, digits[0], digits[1] ? "." : "", digits + 1, exponent);
    }
    return rf_add_text(schema->program, text, out);
}

static bool within(const struct rf_facts *facts, const struct rf_decimal *value) {
    int least = facts->least.set ? rf_decimal_compare(value, &facts->least.value) : 1;
    int most = facts->most.set ? rf_decimal_compare(value, &facts->most.value) : -1;
    return (least > 0 || (!least && !facts->least.strict)) && (most < 0 || (!most && !facts->most.strict));
}

static rf_status emit_constant(struct rf_schema *schema, const struct rf_facts *facts, uint32_t *out) {
    struct rf_decimal value;
    if (facts->has_number_facts && rf_decimal_read(facts->number, &value))
        return rf_fail(RF_E_UNSUPPORTED, "%s: a constant of so many digits with bounds is not supported",
                       schema->what);
    if (facts->has_number_facts && !within(facts, &value)) return rf_add_never(schema->program, out);
    for (size_t i = 0; i < facts->multiple_count; i++) {
        if (!json_is_integer(facts->number) || !json_is_integer(facts->multiples[i]))
            return rf_fail(RF_E_UNSUPPORTED, "%s: a constant with multipleOf is supported for whole numbers only",
                           schema->what);
        if (json_integer_value(facts->number) % json_integer_value(facts->multiples[i]))
            return rf_add_never(schema->program, out);
    }
    return rf_emit_number_constant(schema, facts->number, out);
}

rf_status rf_emit_number(struct rf_schema *schema, const struct rf_facts *facts, uint32_t *out) {
    static const char whole[] = "0|-?[1-9][0-9]{0,63}", any[] = "-?(0|[1-9][0-9]{0,63})(\\.[0-9]{1,64})?";
    static const char broken[] = "-?(0|[1-9][0-9]{0,63})\\.[0-9]{0,63}[1-9]";
    uint32_t types = facts->types & RF_TYPES_NUMBER, nodes[RF_PATTERNS_MAX + 3];
    const char *spelling = types == RF_TYPE_INTEGER ? whole : types == RF_TYPE_FRACTION ? broken : any;
    size_t count = 0;
    if (facts->number) return emit_constant(schema, facts, out);
    if (!facts->has_number_facts && types != RF_TYPE_FRACTION) {
        *out = types == RF_TYPE_INTEGER ? schema->json.integer : schema->json.number;
        return RF_OK;
    }
    RF_TRY(rf_add_regex(schema->program, spelling, strlen(spelling), RF_REGEX_WHOLE, "a number", &nodes[count++]));
    if (facts->least.set) RF_TRY(bound_node(schema, &facts->least, false, &nodes[count++]));
    if (facts->most.set) RF_TRY(bound_node(schema, &facts->most, true, &nodes[count++]));
    for (size_t i = 0; i < facts->multiple_count; i++) {
        uint32_t divisor, places;
        if (read_multiple(facts->multiples[i], &divisor, &places))
            return rf_schema_fail(schema, RF_E_UNSUPPORTED, rf_member(schema, facts->ids[0])->place,
                                  "multipleOf %g is not supported: too many remainders",
                                  json_number_value(facts->multiples[i]));
        RF_TRY(multiple_node(schema, divisor, places, &nodes[count++]));
    }
    struct rf_dfa_params params = {.nodes = nodes, .count = count, .what = "a number's bounds"};
    return rf_add_dfa(schema->program, &params, out);
}
