/* The methods of lists, dictionaries, numbers, loops and cyclers. What would change a value is refused by lookup.c,
 * except pop and clear of lists, which jinja2's sandbox lets through. */
#include <math.h>

#include "template/template_impl.h"

#define METHOD(name_)                                                                                                \
    static rf_status name_(struct rf_run *run, const struct rf_tpl_value *self, const struct rf_tpl_value *args,     \
                           const struct rf_tpl_call *call, struct rf_tpl_value *out)

/* ---- lists ---- */

METHOD(list_count) {
    int64_t count = 0;
    (void)call;
    for (size_t i = 0; i < self->list->count; i++) {
        bool equal;
        RF_TRY(rf_tpl_equal(run, &self->list->items[i], &args[0], &equal));
        count += equal;
    }
    *out = rf_tpl_int(count);
    return RF_OK;
}

METHOD(list_index) {
    int64_t length = (int64_t)self->list->count, start, end;
    (void)call;
    RF_TRY(rf_tpl_arg_int(run, &args[1], 0, &start));
    RF_TRY(rf_tpl_arg_int(run, &args[2], length, &end));
    if (start < 0) start = start < -length ? 0 : start + length;
    if (end < 0) end = end < -length ? 0 : end + length;
    for (int64_t i = start; i < end && i < length; i++) {
        bool equal;
        RF_TRY(rf_tpl_equal(run, &self->list->items[i], &args[0], &equal));
        if (!equal) continue;
        *out = rf_tpl_int(i);
        return RF_OK;
    }
    return rf_run_fail(run, "the value is not in the list");
}

METHOD(list_pop) {
    struct rf_tpl_list *list = self->list;
    int64_t index;
    (void)call;
    RF_TRY(rf_tpl_arg_int(run, &args[0], -1, &index));
    if (index < 0) index = index < -(int64_t)list->count ? -1 : index + (int64_t)list->count;
    if (index < 0 || index >= (int64_t)list->count)
        return rf_run_fail(run, list->count ? "pop index out of range" : "pop from empty list");
    *out = list->items[index];
    list->count--;
    memmove(&list->items[index], &list->items[index + 1], (list->count - (size_t)index) * sizeof *list->items);
    return rf_run_steps(run, list->count - (size_t)index);
}

METHOD(list_clear) {
    (void)run, (void)args, (void)call;
    self->list->count = 0;
    *out = rf_tpl_none();
    return RF_OK;
}

METHOD(list_copy) {
    struct rf_tpl_list *list = NULL;
    (void)args, (void)call;
    RF_TRY(rf_tpl_to_list(run, self, &list));
    *out = rf_tpl_of_list(list, false);
    return RF_OK;
}

/* ---- dictionaries ---- */

METHOD(dict_get) {
    struct rf_tpl_value *found = NULL;
    (void)call;
    RF_TRY(rf_tpl_dict_find(run, self->dict, &args[0], &found));
    *out = found ? *found : args[1].kind == RF_TPL_MISSING ? rf_tpl_none() : args[1];
    return RF_OK;
}

static rf_status view(struct rf_run *run, const struct rf_tpl_value *self, enum rf_tpl_view_of of,
                      struct rf_tpl_value *out) {
    struct rf_tpl_view *made = RF_ARENA_NEW(&run->arena, struct rf_tpl_view);
    if (!made) return RF_E_NO_MEMORY;
    *made = (struct rf_tpl_view){self->dict, of};
    *out = (struct rf_tpl_value){.kind = RF_TPL_VIEW, .view = made};
    return RF_OK;
}

METHOD(dict_items) {
    (void)args, (void)call;
    return view(run, self, RF_TPL_ITEMS, out);
}

METHOD(dict_keys) {
    (void)args, (void)call;
    return view(run, self, RF_TPL_KEYS, out);
}

METHOD(dict_values) {
    (void)args, (void)call;
    return view(run, self, RF_TPL_VALUES, out);
}

METHOD(dict_copy) {
    struct rf_tpl_dict *dict = rf_tpl_dict_new(run);
    (void)args, (void)call;
    if (!dict) return RF_E_NO_MEMORY;
    for (size_t i = 0; i < self->dict->count; i++)
        RF_TRY(rf_tpl_dict_set(run, dict, &self->dict->entries[i].key, &self->dict->entries[i].value));
    *out = rf_tpl_of_dict(dict);
    return RF_OK;
}

/* ---- numbers ---- */

METHOD(float_is_integer) {
    (void)run, (void)args, (void)call;
    *out = rf_tpl_bool(isfinite(self->real) && self->real == floor(self->real));
    return RF_OK;
}

METHOD(int_bit_length) {
    int64_t value = rf_tpl_integer(self), bits = 0;
    (void)run, (void)args, (void)call;
    for (uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value; left; left >>= 1) bits++;
    *out = rf_tpl_int(bits);
    return RF_OK;
}

/* ---- loops and cyclers ---- */

METHOD(loop_cycle) {
    (void)args;
    if (call->named_count || !call->count) return rf_run_fail(run, "no items for cycling given");
    int64_t at = self->loop->index0 % (int64_t)call->count;
    *out = call->args[at < 0 ? at + (int64_t)call->count : at];
    return RF_OK;
}

METHOD(loop_changed) {
    struct rf_tpl_list *values = rf_tpl_list_new(run, call->count);
    bool equal = false;
    (void)args;
    if (!values) return RF_E_NO_MEMORY;
    if (call->named_count) return rf_run_fail(run, "changed() takes no names");
    for (size_t i = 0; i < call->count; i++) RF_TRY(rf_tpl_list_add(run, values, &call->args[i]));
    struct rf_tpl_value now = rf_tpl_of_list(values, true);
    if (self->loop->last.kind != RF_TPL_MISSING) RF_TRY(rf_tpl_equal(run, &self->loop->last, &now, &equal));
    self->loop->last = now;
    *out = rf_tpl_bool(!equal);
    return RF_OK;
}

METHOD(cycler_next) {
    struct rf_tpl_cycler *cycler = self->cycler;
    (void)run, (void)args, (void)call;
    *out = cycler->items->items[cycler->at];
    cycler->at = (cycler->at + 1) % cycler->items->count;
    return RF_OK;
}

METHOD(cycler_reset) {
    (void)run, (void)args, (void)call;
    self->cycler->at = 0;
    *out = rf_tpl_none();
    return RF_OK;
}

const struct rf_tpl_builtin *rf_tpl_find_other_method(const struct rf_tpl_value *of, const char *name, size_t bytes) {
    static const struct rf_tpl_builtin lists[] = {
        {"count", "!value", 1, list_count}, {"index", "!value start end", 1, list_index},
        {"pop", "!index", 0, list_pop},     {"clear", "!", 0, list_clear},
        {"copy", "!", 0, list_copy},
    };
    static const struct rf_tpl_builtin dicts[] = {
        {"get", "!key default", 1, dict_get}, {"items", "!", 0, dict_items}, {"keys", "!", 0, dict_keys},
        {"values", "!", 0, dict_values},      {"copy", "!", 0, dict_copy},   {"fromkeys", NULL, 0, NULL},
    };
    static const struct rf_tpl_builtin ints[] = {
        {"bit_length", "!", 0, int_bit_length}, {"bit_count", NULL, 0, NULL},
        {"conjugate", NULL, 0, NULL},           {"to_bytes", NULL, 0, NULL},
        {"from_bytes", NULL, 0, NULL},          {"as_integer_ratio", NULL, 0, NULL},
    };
    static const struct rf_tpl_builtin floats[] = {
        {"is_integer", "!", 0, float_is_integer},
        {"hex", NULL, 0, NULL},
        {"conjugate", NULL, 0, NULL},
        {"as_integer_ratio", NULL, 0, NULL},
    };
    static const struct rf_tpl_builtin loops[] = {
        {"cycle", NULL, 0, loop_cycle},
        {"changed", NULL, 0, loop_changed},
    };
    static const struct rf_tpl_builtin cyclers[] = {
        {"next", "!", 0, cycler_next},
        {"reset", "!", 0, cycler_reset},
    };
    switch (of->kind) {
    case RF_TPL_TUPLE: return rf_tpl_find_builtin(lists, 2, name, bytes);
    case RF_TPL_LIST: return rf_tpl_find_builtin(lists, RF_COUNT(lists), name, bytes);
    case RF_TPL_DICT: return rf_tpl_find_builtin(dicts, RF_COUNT(dicts), name, bytes);
    case RF_TPL_BOOL:
    case RF_TPL_INT: return rf_tpl_find_builtin(ints, RF_COUNT(ints), name, bytes);
    case RF_TPL_FLOAT: return rf_tpl_find_builtin(floats, RF_COUNT(floats), name, bytes);
    case RF_TPL_LOOP: return rf_tpl_find_builtin(loops, RF_COUNT(loops), name, bytes);
    case RF_TPL_CYCLER: return rf_tpl_find_builtin(cyclers, RF_COUNT(cyclers), name, bytes);
    default: return NULL;
    }
}
