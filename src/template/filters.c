/* Filters on lists, dictionaries and numbers, and the table of all filters.
 *
 * Those that give a generator in Python give an iterator here, whose items are computed at once; a failure on the way
 * shows when that item is reached, so nothing fails that jinja2 would not reach. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "template/template_impl.h"

#define FILTER(name_)                                                                                                \
    static rf_status name_(struct rf_run *run, const struct rf_tpl_value *self, const struct rf_tpl_value *args,     \
                           const struct rf_tpl_call *call, struct rf_tpl_value *out)

static bool given(const struct rf_tpl_value *arg) {
    return arg->kind != RF_TPL_MISSING && arg->kind != RF_TPL_NONE;
}

/* ---- attributes by a path ---- */

static bool is_digits(const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (text[i] < '0' || text[i] > '9') return false;
    return bytes > 0;
}

/* path: "a.b.0", an integer, or nothing. otherwise: instead of what is undefined; missing: none. */
static rf_status get_path(struct rf_run *run, struct rf_tpl_value item, const struct rf_tpl_value *path,
                          const struct rf_tpl_value *otherwise, struct rf_tpl_value *out) {
    *out = item;
    if (!given(path)) return RF_OK;
    const struct rf_tpl_text *text = path->kind == RF_TPL_TEXT ? path->text : NULL;
    for (size_t from = 0;;) {
        struct rf_tpl_value part = *path;
        size_t to = from;
        if (text) {
            while (to < text->length && text->bytes[to] != '.') to++;
            int64_t number;
            if (is_digits(text->bytes + from, to - from) &&
                rf_tpl_read_int(text->bytes + from, to - from, 10, &number)) {
                part = rf_tpl_int(number);
            } else {
                part = rf_tpl_of_text(rf_tpl_text_part(run, text, from, to - from));
                if (!part.text) return RF_E_NO_MEMORY;
            }
        }
        RF_TRY(rf_tpl_getitem(run, out, &part, &item));
        *out = item.kind == RF_TPL_UNDEFINED && given(otherwise) ? *otherwise : item;
        if (!text || to >= text->length) return RF_OK;
        from = to + 1;
    }
}

static rf_status ignore_case(struct rf_run *run, bool ignore, struct rf_tpl_value *key) {
    if (!ignore || key->kind != RF_TPL_TEXT) return RF_OK;
    struct rf_tpl_text *lower = NULL;
    RF_TRY(rf_tpl_text_lower(run, key->text, &lower));
    *key = rf_tpl_of_text(lower);
    return RF_OK;
}

/* The keys of "a,b.c": a list of as many values. */
static rf_status get_keys(struct rf_run *run, const struct rf_tpl_value *item, const struct rf_tpl_value *paths,
                          bool ignore, struct rf_tpl_value *out) {
    static const struct rf_tpl_value none = {0};
    struct rf_tpl_list *keys = rf_tpl_list_new(run, 1);
    if (!keys) return RF_E_NO_MEMORY;
    const struct rf_tpl_text *text = paths->kind == RF_TPL_TEXT ? paths->text : NULL;
    for (size_t from = 0;;) {
        struct rf_tpl_value path = *paths, key;
        size_t to = from;
        if (text) {
            while (to < text->length && text->bytes[to] != ',') to++;
            path = rf_tpl_of_text(rf_tpl_text_part(run, text, from, to - from));
            if (!path.text) return RF_E_NO_MEMORY;
        }
        RF_TRY(get_path(run, *item, &path, &none, &key));
        RF_TRY(ignore_case(run, ignore, &key));
        RF_TRY(rf_tpl_list_add(run, keys, &key));
        if (!text || to >= text->length) break;
        from = to + 1;
    }
    *out = rf_tpl_of_list(keys, false);
    return RF_OK;
}

/* ---- items ---- */

FILTER(f_length) {
    int64_t length;
    (void)args, (void)call;
    RF_TRY(rf_tpl_length(run, self, &length));
    *out = rf_tpl_int(length);
    return RF_OK;
}

FILTER(f_first) {
    struct rf_tpl_iter iter;
    bool found;
    (void)args, (void)call;
    RF_TRY(rf_tpl_iter_begin(run, self, &iter));
    RF_TRY(rf_tpl_iter_next(run, &iter, out, &found));
    if (!found) *out = rf_tpl_undefined();
    return RF_OK;
}

static bool is_reversible(const struct rf_tpl_value *value) {
    return rf_tpl_has_length(value) && value->kind != RF_TPL_LOOP;
}

FILTER(f_last) {
    struct rf_tpl_list *list = NULL;
    (void)args, (void)call;
    if (!is_reversible(self)) return rf_run_fail(run, "'%s' object is not reversible", rf_tpl_type_name(self));
    RF_TRY(rf_tpl_to_list(run, self, &list));
    *out = list->count ? list->items[list->count - 1] : rf_tpl_undefined();
    return RF_OK;
}

FILTER(f_list) {
    struct rf_tpl_list *list = NULL;
    (void)args, (void)call;
    RF_TRY(rf_tpl_to_list(run, self, &list));
    *out = rf_tpl_of_list(list, false);
    return RF_OK;
}

FILTER(f_reverse) {
    struct rf_tpl_list *list = NULL;
    (void)args, (void)call;
    if (self->kind == RF_TPL_TEXT) {
        struct rf_tpl_value bounds[3] = {rf_tpl_none(), rf_tpl_none(), rf_tpl_int(-1)};
        return rf_tpl_slice(run, self, bounds, out);
    }
    RF_TRY(rf_tpl_to_list(run, self, &list));
    for (size_t i = 0; i < list->count / 2; i++) {
        struct rf_tpl_value other = list->items[i];
        list->items[i] = list->items[list->count - 1 - i];
        list->items[list->count - 1 - i] = other;
    }
    if (is_reversible(self)) return rf_tpl_iterator_of(run, list, RF_OK, out);
    *out = rf_tpl_of_list(list, false);
    return RF_OK;
}

FILTER(f_join) {
    struct rf_tpl_text empty = {.bytes = "", .mark = 1}, *separator = &empty;
    struct rf_tpl_builder to = {0};
    struct rf_tpl_iter iter;
    static const struct rf_tpl_value none = {0};
    (void)call;
    if (args[0].kind != RF_TPL_MISSING) RF_TRY(rf_tpl_str(run, &args[0], &separator));
    RF_TRY(rf_tpl_iter_begin(run, self, &iter));
    for (bool again = false;; again = true) {
        struct rf_tpl_value item;
        bool found;
        RF_TRY(rf_tpl_iter_next(run, &iter, &item, &found));
        if (!found) break;
        RF_TRY(get_path(run, item, &args[1], &none, &item));
        if (again) RF_TRY(rf_tpl_build_part(run, &to, separator, 0, separator->length));
        RF_TRY(rf_tpl_build_str(run, &to, &item));
    }
    struct rf_tpl_text *made = rf_tpl_built(run, &to);
    if (!made) return RF_E_NO_MEMORY;
    *out = rf_tpl_of_text(made);
    return RF_OK;
}

FILTER(f_default) {
    (void)call;
    bool use = self->kind == RF_TPL_UNDEFINED || (rf_tpl_truth(&args[1]) && !rf_tpl_truth(self));
    *out = *self;
    if (!use) return RF_OK;
    *out = args[0];
    if (args[0].kind != RF_TPL_MISSING) return RF_OK;
    struct rf_tpl_text *empty = rf_tpl_text_of(run, "", 0, 1);
    if (!empty) return RF_E_NO_MEMORY;
    *out = rf_tpl_of_text(empty);
    return RF_OK;
}

FILTER(f_attr) {
    struct rf_tpl_text *name = NULL;
    bool found;
    (void)call;
    RF_TRY(rf_tpl_arg_text(run, &args[0], &name));
    RF_TRY(rf_tpl_attribute(run, self, name, &found, out));
    if (!found) *out = rf_tpl_undefined();
    return RF_OK;
}

/* ---- dictionaries ---- */

static rf_status items_of(struct rf_run *run, const struct rf_tpl_value *self, struct rf_tpl_list **out) {
    struct rf_tpl_view view = {self->dict, RF_TPL_ITEMS};
    return rf_tpl_to_list(run, &(struct rf_tpl_value){.kind = RF_TPL_VIEW, .view = &view}, out);
}

FILTER(f_items) {
    struct rf_tpl_list *list = rf_tpl_list_new(run, 0);
    rf_status status = RF_OK;
    (void)args, (void)call;
    if (!list) return RF_E_NO_MEMORY;
    if (self->kind == RF_TPL_DICT)
        RF_TRY(items_of(run, self, &list));
    else if (self->kind != RF_TPL_UNDEFINED)
        status = rf_run_fail(run, "can only get item pairs from a mapping, not from '%s'", rf_tpl_type_name(self));
    return rf_tpl_iterator_of(run, list, status, out);
}

static rf_status sort_list(struct rf_run *run, struct rf_tpl_list *list, struct rf_tpl_value *keys, bool reverse,
                           struct rf_tpl_value *out) {
    RF_TRY(rf_tpl_sort(run, list->items, keys, list->count, reverse));
    *out = rf_tpl_of_list(list, false);
    return RF_OK;
}

FILTER(f_dictsort) {
    struct rf_tpl_list *list = NULL;
    (void)call;
    bool by_value = args[1].kind == RF_TPL_TEXT && rf_tpl_text_is(args[1].text, "value");
    if (!by_value && args[1].kind != RF_TPL_MISSING &&
        !(args[1].kind == RF_TPL_TEXT && rf_tpl_text_is(args[1].text, "key")))
        return rf_run_fail(run, "dictsort: you can only sort by either \"key\" or \"value\"");
    if (self->kind == RF_TPL_UNDEFINED) return rf_tpl_fail_undefined(run, self);
    if (self->kind != RF_TPL_DICT) return rf_run_fail(run, "dictsort: '%s' is no mapping", rf_tpl_type_name(self));
    RF_TRY(items_of(run, self, &list));
    struct rf_tpl_value *keys = rf_arena_take_raw(&run->arena, (list->count + 1) * sizeof *keys);
    if (!keys) return RF_E_NO_MEMORY;
    for (size_t i = 0; i < list->count; i++) {
        keys[i] = list->items[i].list->items[by_value];
        RF_TRY(ignore_case(run, !rf_tpl_truth(&args[0]), &keys[i]));
    }
    return sort_list(run, list, keys, rf_tpl_truth(&args[2]), out);
}

/* ---- order ---- */

FILTER(f_sort) {
    struct rf_tpl_list *list = NULL;
    (void)call;
    RF_TRY(rf_tpl_to_list(run, self, &list));
    struct rf_tpl_value *keys = rf_arena_take_raw(&run->arena, (list->count + 1) * sizeof *keys);
    if (!keys) return RF_E_NO_MEMORY;
    for (size_t i = 0; i < list->count; i++)
        RF_TRY(get_keys(run, &list->items[i], &args[2], !rf_tpl_truth(&args[1]), &keys[i]));
    return sort_list(run, list, keys, rf_tpl_truth(&args[0]), out);
}

static rf_status add_unique(struct rf_run *run, struct rf_tpl_list *from, const struct rf_tpl_value *args,
                            struct rf_tpl_list *to) {
    static const struct rf_tpl_value none = {0};
    struct rf_tpl_dict *seen = rf_tpl_dict_new(run);
    if (!seen) return RF_E_NO_MEMORY;
    for (size_t i = 0; i < from->count; i++) {
        struct rf_tpl_value key, *found = NULL;
        RF_TRY(get_path(run, from->items[i], &args[1], &none, &key));
        RF_TRY(ignore_case(run, !rf_tpl_truth(&args[0]), &key));
        RF_TRY(rf_tpl_dict_find(run, seen, &key, &found));
        if (found) continue;
        RF_TRY(rf_tpl_dict_set(run, seen, &key, &none));
        RF_TRY(rf_tpl_list_add(run, to, &from->items[i]));
    }
    return RF_OK;
}

FILTER(f_unique) {
    struct rf_tpl_list *list = rf_tpl_list_new(run, 0), *from = list;
    (void)call;
    if (!list) return RF_E_NO_MEMORY;
    rf_status status = rf_tpl_to_list(run, self, &from);
    if (!status) status = add_unique(run, from, args, list);
    return rf_tpl_iterator_of(run, list, status, out);
}

static rf_status extreme(struct rf_run *run, const struct rf_tpl_value *self, const struct rf_tpl_value *args,
                         bool largest, struct rf_tpl_value *out) {
    static const struct rf_tpl_value none = {0};
    struct rf_tpl_list *list = NULL;
    struct rf_tpl_value best = {0};
    RF_TRY(rf_tpl_to_list(run, self, &list));
    *out = rf_tpl_undefined();
    for (size_t i = 0; i < list->count; i++) {
        struct rf_tpl_value key;
        bool better = i == 0;
        RF_TRY(get_path(run, list->items[i], &args[1], &none, &key));
        RF_TRY(ignore_case(run, !rf_tpl_truth(&args[0]), &key));
        if (i)
            RF_TRY(largest ? rf_tpl_less(run, &best, &key, ">", &better)
                           : rf_tpl_less(run, &key, &best, "<", &better));
        if (!better) continue;
        best = key;
        *out = list->items[i];
    }
    return RF_OK;
}

FILTER(f_min) {
    (void)call;
    return extreme(run, self, args, false, out);
}

FILTER(f_max) {
    (void)call;
    return extreme(run, self, args, true, out);
}

FILTER(f_sum) {
    static const struct rf_tpl_value none = {0};
    struct rf_tpl_iter iter;
    struct rf_tpl_value sum = args[1].kind == RF_TPL_MISSING ? rf_tpl_int(0) : args[1];
    (void)call;
    RF_TRY(rf_tpl_iter_begin(run, self, &iter));
    if (sum.kind == RF_TPL_TEXT) return rf_run_fail(run, "sum: strings cannot be summed: use join");
    for (;;) {
        struct rf_tpl_value item, next;
        bool found;
        RF_TRY(rf_tpl_iter_next(run, &iter, &item, &found));
        if (!found) break;
        RF_TRY(get_path(run, item, &args[0], &none, &item));
        RF_TRY(rf_tpl_binary(run, RF_OP_ADD, &sum, &item, &next));
        sum = next;
    }
    *out = sum;
    return RF_OK;
}

FILTER(f_groupby) {
    struct rf_tpl_list *list = NULL, *groups = rf_tpl_list_new(run, 0), *group = NULL;
    (void)call;
    if (!groups) return RF_E_NO_MEMORY;
    RF_TRY(rf_tpl_to_list(run, self, &list));
    struct rf_tpl_value *keys = rf_arena_take_raw(&run->arena, (list->count + 1) * sizeof *keys);
    if (!keys) return RF_E_NO_MEMORY;
    for (size_t i = 0; i < list->count; i++) {
        RF_TRY(get_path(run, list->items[i], &args[0], &args[1], &keys[i]));
        RF_TRY(ignore_case(run, !rf_tpl_truth(&args[2]), &keys[i]));
    }
    RF_TRY(rf_tpl_sort(run, list->items, keys, list->count, false));
    for (size_t i = 0; i < list->count; i++) {
        bool same = false;
        if (i) RF_TRY(rf_tpl_equal(run, &keys[i - 1], &keys[i], &same));
        if (!same) {
            struct rf_tpl_list *pair = rf_tpl_list_new(run, 2);
            group = pair ? rf_tpl_list_new(run, 0) : NULL;
            if (!group) return RF_E_NO_MEMORY;
            pair->is_group = true;
            pair->count = 2;
            RF_TRY(get_path(run, list->items[i], &args[0], &args[1], &pair->items[0]));
            pair->items[1] = rf_tpl_of_list(group, false);
            struct rf_tpl_value value = rf_tpl_of_list(pair, true);
            RF_TRY(rf_tpl_list_add(run, groups, &value));
        }
        RF_TRY(rf_tpl_list_add(run, group, &list->items[i]));
    }
    *out = rf_tpl_of_list(groups, false);
    return RF_OK;
}

/* ---- choosing and changing ---- */

static rf_status map_items(struct rf_run *run, const struct rf_tpl_value *self, const struct rf_tpl_call *call,
                           struct rf_tpl_list *to) {
    static const struct rf_tpl_value none = {0};
    const struct rf_tpl_value *attribute = NULL, *otherwise = &none;
    const struct rf_tpl_builtin *filter = NULL;
    struct rf_tpl_call rest = *call;
    struct rf_tpl_iter iter;
    for (size_t i = 0; !call->count && i < call->named_count; i++)
        if (rf_tpl_text_is(call->names[i], "attribute")) attribute = &call->named[i];
    if (attribute) {
        for (size_t i = 0; i < call->named_count; i++) {
            if (rf_tpl_text_is(call->names[i], "default"))
                otherwise = &call->named[i];
            else if (!rf_tpl_text_is(call->names[i], "attribute"))
                return rf_run_fail(run, "map: unexpected keyword argument");
        }
    } else {
        if (!call->count) return rf_run_fail(run, "map requires a filter argument");
        rest.args++;
        rest.count--;
    }
    RF_TRY(rf_tpl_iter_begin(run, self, &iter));
    for (;;) {
        struct rf_tpl_value item, made;
        bool found;
        RF_TRY(rf_tpl_iter_next(run, &iter, &item, &found));
        if (!found) return RF_OK;
        if (attribute) {
            RF_TRY(get_path(run, item, attribute, otherwise, &made));
        } else {
            if (!filter && call->args[0].kind == RF_TPL_TEXT)
                filter = rf_tpl_find_filter(call->args[0].text->bytes, call->args[0].text->length);
            if (!filter) return rf_run_fail(run, "map: there is no such filter");
            RF_TRY(rf_tpl_call_builtin(run, filter, &item, &rest, &made));
        }
        RF_TRY(rf_tpl_list_add(run, to, &made));
    }
}

FILTER(f_map) {
    struct rf_tpl_list *list = rf_tpl_list_new(run, 0);
    uint32_t depth = run->depth;
    (void)args;
    if (!list) return RF_E_NO_MEMORY;
    rf_status status = rf_tpl_truth(self) ? map_items(run, self, call, list) : RF_OK;
    run->depth = depth;
    return rf_tpl_iterator_of(run, list, status, out);
}

static rf_status select_items(struct rf_run *run, const struct rf_tpl_value *self, const struct rf_tpl_call *call,
                              bool by_attribute, bool wanted, struct rf_tpl_list *to) {
    static const struct rf_tpl_value none = {0};
    struct rf_tpl_call rest = *call;
    const struct rf_tpl_builtin *test = NULL;
    struct rf_tpl_iter iter;
    if (by_attribute && !call->count) return rf_run_fail(run, "the name of an attribute is missing");
    size_t skip = by_attribute;
    const struct rf_tpl_value *name = call->count > skip ? &call->args[skip] : NULL;
    if (name) skip++;
    if (skip) rest.args += skip;
    rest.count -= skip;
    RF_TRY(rf_tpl_iter_begin(run, self, &iter));
    for (;;) {
        struct rf_tpl_value item, subject, holds;
        bool found;
        RF_TRY(rf_tpl_iter_next(run, &iter, &item, &found));
        if (!found) return RF_OK;
        subject = item;
        if (by_attribute) RF_TRY(get_path(run, item, &call->args[0], &none, &subject));
        holds = subject;
        if (name) {
            if (!test && name->kind == RF_TPL_TEXT) test = rf_tpl_find_test(name->text->bytes, name->text->length);
            if (!test) return rf_run_fail(run, "there is no such test");
            RF_TRY(rf_tpl_call_builtin(run, test, &subject, &rest, &holds));
        }
        if (rf_tpl_truth(&holds) == wanted) RF_TRY(rf_tpl_list_add(run, to, &item));
    }
}

static rf_status choose(struct rf_run *run, const struct rf_tpl_value *self, const struct rf_tpl_call *call,
                        bool by_attribute, bool wanted, struct rf_tpl_value *out) {
    struct rf_tpl_list *list = rf_tpl_list_new(run, 0);
    uint32_t depth = run->depth;
    if (!list) return RF_E_NO_MEMORY;
    rf_status status = rf_tpl_truth(self) ? select_items(run, self, call, by_attribute, wanted, list) : RF_OK;
    run->depth = depth;
    return rf_tpl_iterator_of(run, list, status, out);
}

FILTER(f_select) {
    (void)args;
    return choose(run, self, call, false, true, out);
}

FILTER(f_reject) {
    (void)args;
    return choose(run, self, call, false, false, out);
}

FILTER(f_selectattr) {
    (void)args;
    return choose(run, self, call, true, true, out);
}

FILTER(f_rejectattr) {
    (void)args;
    return choose(run, self, call, true, false, out);
}

static rf_status batch_items(struct rf_run *run, const struct rf_tpl_value *self, const struct rf_tpl_value *args,
                             struct rf_tpl_list *to) {
    struct rf_tpl_list *from = NULL, *batch = NULL;
    RF_TRY(rf_tpl_to_list(run, self, &from));
    int64_t size = rf_tpl_is_integer(&args[0]) ? rf_tpl_integer(&args[0]) : -1; /* others compare with no length */
    for (size_t i = 0; i < from->count; i++) {
        if (!batch || (int64_t)batch->count == size) {
            batch = rf_tpl_list_new(run, 0);
            if (!batch) return RF_E_NO_MEMORY;
            struct rf_tpl_value value = rf_tpl_of_list(batch, false);
            if (i == 0 && size == 0) { /* an empty one first, as jinja2 */
                RF_TRY(rf_tpl_list_add(run, to, &value));
                batch = rf_tpl_list_new(run, 0);
                if (!batch) return RF_E_NO_MEMORY;
                value = rf_tpl_of_list(batch, false);
            }
            RF_TRY(rf_tpl_list_add(run, to, &value));
        }
        RF_TRY(rf_tpl_list_add(run, batch, &from->items[i]));
    }
    if (!batch || !given(&args[1])) return RF_OK;
    if (!rf_tpl_is_integer(&args[0])) return rf_run_fail(run, "batch: the size is not an integer");
    while ((int64_t)batch->count < size) RF_TRY(rf_tpl_list_add(run, batch, &args[1]));
    return RF_OK;
}

FILTER(f_batch) {
    struct rf_tpl_list *list = rf_tpl_list_new(run, 0);
    (void)call;
    if (!list) return RF_E_NO_MEMORY;
    return rf_tpl_iterator_of(run, list, batch_items(run, self, args, list), out);
}

static rf_status slice_items(struct rf_run *run, const struct rf_tpl_value *self, const struct rf_tpl_value *args,
                             struct rf_tpl_list *to) {
    struct rf_tpl_list *from = NULL;
    int64_t slices, offset = 0;
    RF_TRY(rf_tpl_to_list(run, self, &from));
    RF_TRY(rf_tpl_arg_int(run, &args[0], 0, &slices));
    if (!slices) return rf_run_fail(run, "slice: division by zero");
    int64_t length = (int64_t)from->count, each = slices > 0 ? length / slices : 0;
    int64_t with_extra = slices > 0 ? length % slices : 0;
    for (int64_t i = 0; i < slices; i++) {
        int64_t start = offset + i * each;
        if (i < with_extra) offset++;
        int64_t end = offset + (i + 1) * each;
        struct rf_tpl_list *slice = rf_tpl_list_new(run, 0);
        if (!slice) return RF_E_NO_MEMORY;
        for (int64_t j = start; j < end; j++) RF_TRY(rf_tpl_list_add(run, slice, &from->items[j]));
        if (given(&args[1]) && i >= with_extra) RF_TRY(rf_tpl_list_add(run, slice, &args[1]));
        struct rf_tpl_value value = rf_tpl_of_list(slice, false);
        RF_TRY(rf_tpl_list_add(run, to, &value));
    }
    return RF_OK;
}

FILTER(f_slice) {
    struct rf_tpl_list *list = rf_tpl_list_new(run, 0);
    (void)call;
    if (!list) return RF_E_NO_MEMORY;
    return rf_tpl_iterator_of(run, list, slice_items(run, self, args, list), out);
}

const struct rf_tpl_builtin *rf_tpl_find_filter(const char *name, size_t bytes) {
    static const struct rf_tpl_builtin filters[] = {
        {"attr", "name", 1, f_attr},
        {"batch", "linecount fill_with", 1, f_batch},
        {"count", "!", 0, f_length},
        {"d", "default_value boolean", 0, f_default},
        {"default", "default_value boolean", 0, f_default},
        {"dictsort", "case_sensitive by reverse", 0, f_dictsort},
        {"first", "", 0, f_first},
        {"groupby", "attribute default case_sensitive", 1, f_groupby},
        {"items", "", 0, f_items},
        {"join", "d attribute", 0, f_join},
        {"last", "", 0, f_last},
        {"length", "!", 0, f_length},
        {"list", "", 0, f_list},
        {"map", NULL, 0, f_map},
        {"max", "case_sensitive attribute", 0, f_max},
        {"min", "case_sensitive attribute", 0, f_min},
        {"reject", NULL, 0, f_reject},
        {"rejectattr", NULL, 0, f_rejectattr},
        {"reverse", "", 0, f_reverse},
        {"select", NULL, 0, f_select},
        {"selectattr", NULL, 0, f_selectattr},
        {"slice", "slices fill_with", 1, f_slice},
        {"sort", "reverse case_sensitive attribute", 0, f_sort},
        {"sum", "attribute start", 0, f_sum},
        {"unique", "case_sensitive attribute", 0, f_unique},
    };
    const struct rf_tpl_builtin *found = rf_tpl_find_builtin(filters, RF_COUNT(filters), name, bytes);
    if (!found) found = rf_tpl_find_text_filter(name, bytes);
    return found ? found : rf_tpl_find_number_filter(name, bytes);
}
