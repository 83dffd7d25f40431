/* Filters on numbers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "template/template_impl.h"

#define FILTER(name_)                                                                                                \
    static rf_status name_(struct rf_run *run, const struct rf_tpl_value *self, const struct rf_tpl_value *args,     \
                           const struct rf_tpl_call *call, struct rf_tpl_value *out)

FILTER(f_abs) {
    (void)args, (void)call;
    if (!rf_tpl_is_number(self)) return rf_run_fail(run, "abs: '%s' is no number", rf_tpl_type_name(self));
    return rf_tpl_negate(run, self, rf_tpl_real(self) < 0 || (self->kind == RF_TPL_FLOAT && signbit(self->real)),
                         out);
}

static rf_status whole(struct rf_run *run, double value, struct rf_tpl_value *out) {
    if (!(fabs(value) < 9223372036854775808.0)) return rf_run_fail(run, "an integer has more than 64 bits");
    *out = rf_tpl_int((int64_t)value);
    return RF_OK;
}

FILTER(f_int) {
    int64_t base, value;
    double real;
    (void)call;
    RF_TRY(rf_tpl_arg_int(run, &args[1], 10, &base));
    if (self->kind == RF_TPL_UNDEFINED) return rf_tpl_fail_undefined(run, self);
    *out = args[0].kind == RF_TPL_MISSING ? rf_tpl_int(0) : args[0];
    if (rf_tpl_is_integer(self)) {
        *out = rf_tpl_int(rf_tpl_integer(self));
    } else if (self->kind == RF_TPL_FLOAT) {
        if (!isnan(self->real)) return whole(run, self->real, out);
    } else if (self->kind == RF_TPL_TEXT) {
        bool good_base = base == 0 || (base >= 2 && base <= 36);
        if (good_base && rf_tpl_read_int(self->text->bytes, self->text->length, (int)base, &value))
            *out = rf_tpl_int(value);
        else if (rf_tpl_read_float(self->text->bytes, self->text->length, &real) && !isnan(real))
            return whole(run, real, out);
    }
    return RF_OK;
}

FILTER(f_float) {
    double real;
    (void)call;
    if (self->kind == RF_TPL_UNDEFINED) return rf_tpl_fail_undefined(run, self);
    *out = args[0].kind == RF_TPL_MISSING ? rf_tpl_float(0) : args[0];
    if (rf_tpl_is_number(self))
        *out = rf_tpl_float(rf_tpl_real(self));
    else if (self->kind == RF_TPL_TEXT && rf_tpl_read_float(self->text->bytes, self->text->length, &real))
        *out = rf_tpl_float(real);
    return RF_OK;
}

/* Half to even, of the exact value, as Python has it. */
static double round_real(double value, int64_t digits) {
    char text[400];
    if (!isfinite(value) || digits > 300) return value;
    if (digits < -300) return copysign(0, value);
    if (digits < 0) {
        double unit = pow(10, (double)-digits);
        return nearbyint(value / unit) * unit;
    }
    if (fabs(value) > 1e17) return value;
    snprintf(text, sizeof text, "%.*f", (int)digits, value);
    return strtod(text, NULL); /* the same locale wrote it */
}

static rf_status round_int(struct rf_run *run, int64_t value, int64_t digits, struct rf_tpl_value *out) {
    int64_t unit = 1;
    if (digits >= 0) {
        *out = rf_tpl_int(value);
        return RF_OK;
    }
    if (digits < -18) {
        *out = rf_tpl_int(0);
        return RF_OK;
    }
    for (; digits; digits++) unit *= 10;
    int64_t rest = value % unit, low = value - rest; /* towards zero */
    int64_t size = rest < 0 ? -rest : rest, half = unit / 2;
    bool away = size > half || (size == half && (low / unit) % 2 != 0);
    if (away && __builtin_add_overflow(low, value < 0 ? -unit : unit, &low))
        return rf_run_fail(run, "an integer has more than 64 bits");
    *out = rf_tpl_int(low);
    return RF_OK;
}

FILTER(f_round) {
    int64_t digits;
    (void)call;
    bool common = args[1].kind == RF_TPL_MISSING, up = false;
    if (args[1].kind == RF_TPL_TEXT) {
        common = rf_tpl_text_is(args[1].text, "common");
        up = rf_tpl_text_is(args[1].text, "ceil");
    }
    if (!common && !up && !(args[1].kind == RF_TPL_TEXT && rf_tpl_text_is(args[1].text, "floor")))
        return rf_run_fail(run, "round: the method must be common, ceil or floor");
    RF_TRY(rf_tpl_arg_int(run, &args[0], 0, &digits));
    if (self->kind == RF_TPL_UNDEFINED) return rf_tpl_fail_undefined(run, self);
    if (!rf_tpl_is_number(self)) return rf_run_fail(run, "round: '%s' is no number", rf_tpl_type_name(self));
    if (common) {
        if (rf_tpl_is_integer(self)) return round_int(run, rf_tpl_integer(self), digits, out);
        *out = rf_tpl_float(round_real(self->real, digits));
        return RF_OK;
    }
    struct rf_tpl_value ten = rf_tpl_int(10), exponent = rf_tpl_int(digits), unit, scaled;
    RF_TRY(rf_tpl_binary(run, RF_OP_POW, &ten, &exponent, &unit));
    RF_TRY(rf_tpl_binary(run, RF_OP_MUL, self, &unit, &scaled));
    if (scaled.kind == RF_TPL_FLOAT) {
        double rounded = up ? ceil(scaled.real) : floor(scaled.real);
        RF_TRY(whole(run, rounded, &scaled));
    }
    return rf_tpl_binary(run, RF_OP_DIV, &scaled, &unit, out);
}

const struct rf_tpl_builtin *rf_tpl_find_number_filter(const char *name, size_t bytes) {
    static const struct rf_tpl_builtin filters[] = {
        {"abs", "!", 0, f_abs},
        {"float", "default", 0, f_float},
        {"int", "default base", 0, f_int},
        {"round", "precision method", 0, f_round},
    };
    return rf_tpl_find_builtin(filters, RF_COUNT(filters), name, bytes);
}
