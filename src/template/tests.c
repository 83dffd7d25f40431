/* The tests behind "is". */
#include "template/template_impl.h"

#define TEST(name_)                                                                                                  \
    static rf_status name_(struct rf_run *run, const struct rf_tpl_value *self, const struct rf_tpl_value *args,     \
                           const struct rf_tpl_call *call, struct rf_tpl_value *out)
/* A test that only looks at the value. */
#define LOOK(name_, expression_)                                                                                     \
    TEST(name_) {                                                                                                    \
        (void)run, (void)args, (void)call;                                                                           \
        *out = rf_tpl_bool(expression_);                                                                             \
        return RF_OK;                                                                                                \
    }
#define COMPARISON(name_, op_)                                                                                       \
    TEST(name_) {                                                                                                    \
        bool holds = false;                                                                                          \
        (void)call;                                                                                                  \
        RF_TRY(rf_tpl_compare(run, op_, self, &args[0], &holds));                                                    \
        *out = rf_tpl_bool(holds);                                                                                   \
        return RF_OK;                                                                                                \
    }

LOOK(t_defined, self->kind != RF_TPL_UNDEFINED)
LOOK(t_undefined, self->kind == RF_TPL_UNDEFINED)
LOOK(t_none, self->kind == RF_TPL_NONE)
LOOK(t_boolean, self->kind == RF_TPL_BOOL)
LOOK(t_true, self->kind == RF_TPL_BOOL && self->boolean)
LOOK(t_false, self->kind == RF_TPL_BOOL && !self->boolean)
LOOK(t_integer, self->kind == RF_TPL_INT)
LOOK(t_float, self->kind == RF_TPL_FLOAT)
LOOK(t_number, rf_tpl_is_number(self))
LOOK(t_string, self->kind == RF_TPL_TEXT)
LOOK(t_mapping, self->kind == RF_TPL_DICT)
LOOK(t_iterable, rf_tpl_is_iterable(self))
LOOK(t_sequence, rf_tpl_has_length(self) && self->kind != RF_TPL_VIEW && self->kind != RF_TPL_LOOP)
LOOK(t_escaped, self->kind == RF_TPL_TEXT && self->text->safe)
LOOK(t_callable, self->kind == RF_TPL_MACRO || self->kind == RF_TPL_FUNCTION || self->kind == RF_TPL_METHOD ||
                     self->kind == RF_TPL_JOINER || self->kind == RF_TPL_LOOP || self->kind == RF_TPL_UNDEFINED)
LOOK(t_filter, self->kind == RF_TPL_TEXT && rf_tpl_find_filter(self->text->bytes, self->text->length))
LOOK(t_test, self->kind == RF_TPL_TEXT && rf_tpl_find_test(self->text->bytes, self->text->length))

COMPARISON(t_eq, RF_OP_EQ)
COMPARISON(t_ne, RF_OP_NE)
COMPARISON(t_lt, RF_OP_LT)
COMPARISON(t_le, RF_OP_LE)
COMPARISON(t_gt, RF_OP_GT)
COMPARISON(t_ge, RF_OP_GE)
COMPARISON(t_in, RF_OP_IN)

static rf_status remainder_is(struct rf_run *run, const struct rf_tpl_value *self, const struct rf_tpl_value *divisor,
                              int64_t wanted, struct rf_tpl_value *out) {
    struct rf_tpl_value rest, number = rf_tpl_int(wanted);
    bool equal;
    RF_TRY(rf_tpl_binary(run, RF_OP_MOD, self, divisor, &rest));
    RF_TRY(rf_tpl_equal(run, &rest, &number, &equal));
    *out = rf_tpl_bool(equal);
    return RF_OK;
}

TEST(t_odd) {
    struct rf_tpl_value two = rf_tpl_int(2);
    (void)args, (void)call;
    return remainder_is(run, self, &two, 1, out);
}

TEST(t_even) {
    struct rf_tpl_value two = rf_tpl_int(2);
    (void)args, (void)call;
    return remainder_is(run, self, &two, 0, out);
}

TEST(t_divisibleby) {
    (void)call;
    return remainder_is(run, self, &args[0], 0, out);
}

static rf_status ask_case(struct rf_run *run, const struct rf_tpl_value *self, const char *method,
                          struct rf_tpl_value *out) {
    struct rf_tpl_value text = {.kind = RF_TPL_TEXT};
    RF_TRY(rf_tpl_str(run, self, &text.text));
    return rf_tpl_call_builtin(run, rf_tpl_find_text_method(method, strlen(method)), &text, &(struct rf_tpl_call){0},
                               out);
}

TEST(t_lower) {
    (void)args, (void)call;
    return ask_case(run, self, "islower", out);
}

TEST(t_upper) {
    (void)args, (void)call;
    return ask_case(run, self, "isupper", out);
}

TEST(t_sameas) {
    bool same = false;
    (void)call;
    if (self->kind == args[0].kind) {
        if (self->kind == RF_TPL_LIST || self->kind == RF_TPL_TUPLE || self->kind == RF_TPL_DICT)
            same = self->list == args[0].list;
        else
            RF_TRY(rf_tpl_equal(run, self, &args[0], &same));
    }
    *out = rf_tpl_bool(same);
    return RF_OK;
}

const struct rf_tpl_builtin *rf_tpl_find_test(const char *name, size_t bytes) {
    static const struct rf_tpl_builtin tests[] = {
        {"!=", "!b", 1, t_ne},
        {"<", "!b", 1, t_lt},
        {"<=", "!b", 1, t_le},
        {"==", "!b", 1, t_eq},
        {">", "!b", 1, t_gt},
        {">=", "!b", 1, t_ge},
        {"boolean", "", 0, t_boolean},
        {"callable", "!", 0, t_callable},
        {"defined", "", 0, t_defined},
        {"divisibleby", "num", 1, t_divisibleby},
        {"eq", "!b", 1, t_eq},
        {"equalto", "!b", 1, t_eq},
        {"escaped", "", 0, t_escaped},
        {"even", "", 0, t_even},
        {"false", "", 0, t_false},
        {"filter", "", 0, t_filter},
        {"float", "", 0, t_float},
        {"ge", "!b", 1, t_ge},
        {"greaterthan", "!b", 1, t_gt},
        {"gt", "!b", 1, t_gt},
        {"in", "seq", 1, t_in},
        {"integer", "", 0, t_integer},
        {"iterable", "", 0, t_iterable},
        {"le", "!b", 1, t_le},
        {"lessthan", "!b", 1, t_lt},
        {"lower", "", 0, t_lower},
        {"lt", "!b", 1, t_lt},
        {"mapping", "", 0, t_mapping},
        {"ne", "!b", 1, t_ne},
        {"none", "", 0, t_none},
        {"number", "", 0, t_number},
        {"odd", "", 0, t_odd},
        {"sameas", "other", 1, t_sameas},
        {"sequence", "", 0, t_sequence},
        {"string", "", 0, t_string},
        {"test", "", 0, t_test},
        {"true", "", 0, t_true},
        {"undefined", "", 0, t_undefined},
        {"upper", "", 0, t_upper},
    };
    return rf_tpl_find_builtin(tests, RF_COUNT(tests), name, bytes);
}
