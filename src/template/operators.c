/* Operators on values, with Python's rules: which types go together, signs of // and %, texts and lists that are
 * joined and repeated. Integers have 64 bits; a result beyond that is refused, not rounded. */
#include "template/template_impl.h"

#include <math.h>

static const char *const names[] = {"+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">="};

static rf_status wrong_types(struct rf_run *run, enum rf_tpl_op op, const struct rf_tpl_value *a,
                             const struct rf_tpl_value *b) {
    return rf_run_fail(run, "'%s' is not possible with '%s' and '%s'", names[op], rf_tpl_type_name(a),
                       rf_tpl_type_name(b));
}

static rf_status too_large(struct rf_run *run) {
    return rf_run_fail(run, "an integer has more than 64 bits");
}

/* ---- numbers ---- */

static rf_status int_power(struct rf_run *run, int64_t base, int64_t exponent, struct rf_tpl_value *out) {
    int64_t result = 1;
    for (; exponent; exponent >>= 1) {
        if (exponent & 1 && __builtin_mul_overflow(result, base, &result)) return too_large(run);
        if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) return too_large(run);
    }
    *out = rf_tpl_int(result);
    return RF_OK;
}

static rf_status integers(struct rf_run *run, enum rf_tpl_op op, int64_t a, int64_t b, struct rf_tpl_value *out) {
    int64_t result = 0;
    bool overflow = false;
    switch (op) {
    case RF_OP_ADD: overflow = __builtin_add_overflow(a, b, &result); break;
    case RF_OP_SUB: overflow = __builtin_sub_overflow(a, b, &result); break;
    case RF_OP_MUL: overflow = __builtin_mul_overflow(a, b, &result); break;
    default:
        if (!b) return rf_run_fail(run, "division by zero");
        if (b == -1) { /* the remainder of INT64_MIN would trap */
            overflow = op == RF_OP_FLOORDIV && __builtin_sub_overflow((int64_t)0, a, &result);
            break;
        }
        bool rounds = a % b != 0 && (a < 0) != (b < 0); /* towards minus infinity */
        result = op == RF_OP_FLOORDIV ? a / b - rounds : a % b + (rounds ? b : 0);
    }
    if (overflow) return too_large(run);
    *out = rf_tpl_int(result);
    return RF_OK;
}

static rf_status reals(struct rf_run *run, enum rf_tpl_op op, double a, double b, struct rf_tpl_value *out) {
    double result = 0;
    switch (op) {
    case RF_OP_ADD: result = a + b; break;
    case RF_OP_SUB: result = a - b; break;
    case RF_OP_MUL: result = a * b; break;
    case RF_OP_POW:
        if (a == 0 && b < 0) return rf_run_fail(run, "0.0 cannot be raised to a negative power");
        if (a < 0 && isfinite(a) && isfinite(b) && b != floor(b))
            return rf_run_fail(run, "a root of a negative number is not supported");
        result = pow(a, b);
        if (isinf(result) && isfinite(a) && isfinite(b)) return rf_run_fail(run, "the result is too large");
        break;
    case RF_OP_DIV:
        if (b == 0) return rf_run_fail(run, "division by zero");
        result = a / b;
        break;
    default: {
        if (b == 0) return rf_run_fail(run, "division by zero");
        double rest = fmod(a, b), quotient = (a - rest) / b;
        if (rest != 0) {
            if ((b < 0) != (rest < 0)) {
                rest += b;
                quotient -= 1;
            }
        } else {
            rest = copysign(0, b);
        }
        if (quotient != 0) {
            double whole = floor(quotient);
            quotient = quotient - whole > 0.5 ? whole + 1 : whole;
        } else {
            quotient = copysign(0, a / b);
        }
        result = op == RF_OP_MOD ? rest : quotient;
    }
    }
    *out = rf_tpl_float(result);
    return RF_OK;
}

static rf_status numbers(struct rf_run *run, enum rf_tpl_op op, const struct rf_tpl_value *a,
                         const struct rf_tpl_value *b, struct rf_tpl_value *out) {
    bool whole = rf_tpl_is_integer(a) && rf_tpl_is_integer(b);
    if (whole && op == RF_OP_POW && rf_tpl_integer(b) >= 0)
        return int_power(run, rf_tpl_integer(a), rf_tpl_integer(b), out);
    if (whole && op != RF_OP_DIV && op != RF_OP_POW)
        return integers(run, op, rf_tpl_integer(a), rf_tpl_integer(b), out);
    return reals(run, op, rf_tpl_real(a), rf_tpl_real(b), out);
}

/* ---- texts and lists ---- */

static rf_status add_texts(struct rf_run *run, struct rf_tpl_text *a, struct rf_tpl_text *b,
                           struct rf_tpl_value *out) {
    bool safe = a->safe || b->safe;
    struct rf_tpl_text *joined = NULL;
    if (safe) {
        RF_TRY(rf_tpl_escape(run, a, &a));
        RF_TRY(rf_tpl_escape(run, b, &b));
    }
    RF_TRY(rf_tpl_text_join(run, a, b, &joined));
    joined->safe = safe;
    *out = rf_tpl_of_text(joined);
    return RF_OK;
}

static rf_status add_lists(struct rf_run *run, const struct rf_tpl_value *a, const struct rf_tpl_value *b,
                           struct rf_tpl_value *out) {
    size_t count = a->list->count + b->list->count;
    RF_TRY(rf_run_steps(run, count));
    struct rf_tpl_list *list = rf_tpl_list_new(run, count);
    if (!list) return RF_E_NO_MEMORY;
    if (a->list->count) memcpy(list->items, a->list->items, a->list->count * sizeof *list->items);
    if (b->list->count) memcpy(list->items + a->list->count, b->list->items, b->list->count * sizeof *list->items);
    list->count = count;
    *out = rf_tpl_of_list(list, a->kind == RF_TPL_TUPLE);
    return RF_OK;
}

static rf_status repeat(struct rf_run *run, const struct rf_tpl_value *what, int64_t times,
                        struct rf_tpl_value *out) {
    if (times < 0) times = 0;
    if (what->kind == RF_TPL_TEXT) {
        const struct rf_tpl_text *text = what->text;
        struct rf_tpl_builder to = {0};
        if (!text->length) times = 0;
        if (times > (int64_t)(RF_TPL_TEXT_BYTES_MAX / RF_MAX(text->length, (size_t)1)))
            return rf_fail(RF_E_NO_MEMORY, "a text is longer than %u MiB", RF_TPL_TEXT_BYTES_MAX >> 20);
        RF_TRY(rf_tpl_build_room(run, &to, text->length * (size_t)times));
        RF_TRY(rf_run_steps(run, (uint64_t)times));
        for (int64_t i = 0; i < times; i++) RF_TRY(rf_tpl_build_part(run, &to, text, 0, text->length));
        struct rf_tpl_text *made = rf_tpl_built(run, &to);
        if (!made) return RF_E_NO_MEMORY;
        made->safe = text->safe;
        *out = rf_tpl_of_text(made);
        return RF_OK;
    }
    size_t count = what->list->count;
    uint64_t all;
    if (!count) times = 0;
    if (rf_mul_overflows(count, (uint64_t)times, &all)) all = UINT64_MAX / 2;
    RF_TRY(rf_run_steps(run, all));
    struct rf_tpl_list *list = rf_tpl_list_new(run, (size_t)all);
    if (!list) return RF_E_NO_MEMORY;
    for (int64_t i = 0; i < times; i++)
        memcpy(list->items + (size_t)i * count, what->list->items, count * sizeof *list->items);
    list->count = (size_t)all;
    *out = rf_tpl_of_list(list, what->kind == RF_TPL_TUPLE);
    return RF_OK;
}

static bool is_sequence(const struct rf_tpl_value *value) {
    return value->kind == RF_TPL_TEXT || value->kind == RF_TPL_LIST || value->kind == RF_TPL_TUPLE;
}

rf_status rf_tpl_binary(struct rf_run *run, enum rf_tpl_op op, const struct rf_tpl_value *a,
                        const struct rf_tpl_value *b, struct rf_tpl_value *out) {
    if (rf_tpl_is_number(a) && rf_tpl_is_number(b)) return numbers(run, op, a, b, out);
    if (op == RF_OP_MOD && a->kind == RF_TPL_TEXT) return rf_tpl_percent(run, a->text, b, out);
    if (a->kind == RF_TPL_UNDEFINED) return rf_tpl_fail_undefined(run, a);
    if (b->kind == RF_TPL_UNDEFINED) return rf_tpl_fail_undefined(run, b);
    if (op == RF_OP_ADD && a->kind == b->kind) {
        if (a->kind == RF_TPL_TEXT) return add_texts(run, a->text, b->text, out);
        if (a->kind == RF_TPL_LIST || a->kind == RF_TPL_TUPLE) return add_lists(run, a, b, out);
    }
    if (op == RF_OP_MUL && is_sequence(a) && rf_tpl_is_integer(b)) return repeat(run, a, rf_tpl_integer(b), out);
    if (op == RF_OP_MUL && is_sequence(b) && rf_tpl_is_integer(a)) return repeat(run, b, rf_tpl_integer(a), out);
    return wrong_types(run, op, a, b);
}

rf_status rf_tpl_compare(struct rf_run *run, enum rf_tpl_op op, const struct rf_tpl_value *a,
                         const struct rf_tpl_value *b, bool *out) {
    switch (op) {
    case RF_OP_EQ: return rf_tpl_equal(run, a, b, out);
    case RF_OP_NE: RF_TRY(rf_tpl_equal(run, a, b, out)); break;
    case RF_OP_LT: return rf_tpl_less(run, a, b, "<", out);
    case RF_OP_GT: return rf_tpl_less(run, b, a, ">", out);
    case RF_OP_LE:
    case RF_OP_GE:
        if (rf_tpl_is_number(a) && rf_tpl_is_number(b) && (isnan(rf_tpl_real(a)) || isnan(rf_tpl_real(b)))) {
            *out = false;
            return RF_OK;
        }
        RF_TRY(op == RF_OP_LE ? rf_tpl_less(run, b, a, "<=", out) : rf_tpl_less(run, a, b, ">=", out));
        break;
    case RF_OP_IN: return rf_tpl_contains(run, b, a, out);
    default: RF_TRY(rf_tpl_contains(run, b, a, out)); break;
    }
    *out = !*out;
    return RF_OK;
}

rf_status rf_tpl_negate(struct rf_run *run, const struct rf_tpl_value *a, bool negative, struct rf_tpl_value *out) {
    if (a->kind == RF_TPL_UNDEFINED) return rf_tpl_fail_undefined(run, a);
    if (!rf_tpl_is_number(a)) return rf_run_fail(run, "a sign is not possible with '%s'", rf_tpl_type_name(a));
    if (a->kind == RF_TPL_FLOAT) {
        *out = rf_tpl_float(negative ? -a->real : a->real);
        return RF_OK;
    }
    int64_t value = rf_tpl_integer(a);
    if (negative && value == INT64_MIN) return too_large(run);
    *out = rf_tpl_int(negative ? -value : value);
    return RF_OK;
}
