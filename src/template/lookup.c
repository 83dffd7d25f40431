/* Attributes, items and slices, as jinja2's sandbox looks them up: an attribute first and an item of that name if
 * there is none, or the other way round; what is not there is undefined, and what would change a value is refused. */
#include <stdlib.h>

#include "template/template_impl.h"

static rf_status make_undefined(struct rf_run *run, const struct rf_tpl_value *of, const struct rf_tpl_text *name,
                                const char *hint, struct rf_tpl_value *out) {
    struct rf_tpl_undefined *why = RF_ARENA_NEW(&run->arena, struct rf_tpl_undefined);
    if (!why) return RF_E_NO_MEMORY;
    *why = (struct rf_tpl_undefined){hint, of ? rf_tpl_type_name(of) : NULL, name};
    *out = (struct rf_tpl_value){.kind = RF_TPL_UNDEFINED, .undefined = why};
    return RF_OK;
}

rf_status rf_tpl_fail_undefined(struct rf_run *run, const struct rf_tpl_value *value) {
    const struct rf_tpl_undefined *why = value->undefined;
    if (!why) return rf_run_fail(run, "a value that is undefined was used");
    if (why->hint) return rf_run_fail(run, "%s", why->hint);
    if (!why->name) return rf_run_fail(run, "'%s' object has no such element", why->owner);
    int length = (int)RF_MIN(why->name->length, (size_t)100);
    if (why->owner)
        return rf_run_fail(run, "'%s' object has no attribute '%.*s'", why->owner, length, why->name->bytes);
    return rf_run_fail(run, "'%.*s' is undefined", length, why->name->bytes);
}

rf_status rf_tpl_lookup(struct rf_run *run, const struct rf_tpl_text *name, struct rf_tpl_value *out) {
    for (const struct rf_scope *scope = run->scope; scope; scope = scope->parent) {
        for (size_t i = scope->count; i-- > 0;) {
            if (scope->items[i].name != name && !rf_tpl_text_equal(scope->items[i].name, name)) continue;
            *out = scope->items[i].value;
            return out->kind == RF_TPL_MISSING ? make_undefined(run, NULL, name, NULL, out) : RF_OK;
        }
    }
    const struct rf_tpl_value *variable = rf_tpl_dict_get(run->variables, name->bytes, name->length);
    if (variable) {
        *out = *variable;
        return RF_OK;
    }
    const struct rf_tpl_builtin *function = rf_tpl_find_global(name->bytes, name->length);
    if (function) {
        *out = (struct rf_tpl_value){.kind = RF_TPL_FUNCTION, .function = function};
        return RF_OK;
    }
    return make_undefined(run, NULL, name, NULL, out);
}

/* ---- attributes ---- */

/* The sandbox refuses methods that change a value. (Lists do have pop and clear, as in jinja2 3.1.2.) */
static bool is_refused(const struct rf_tpl_value *of, const struct rf_tpl_text *name) {
    static const char *const lists[] = {"append", "reverse", "insert", "sort", "extend", "remove"};
    static const char *const dicts[] = {"clear", "pop", "popitem", "setdefault", "update"};
    if (of->kind == RF_TPL_LIST)
        for (size_t i = 0; i < RF_COUNT(lists); i++)
            if (rf_tpl_text_is(name, lists[i])) return true;
    if (of->kind == RF_TPL_DICT)
        for (size_t i = 0; i < RF_COUNT(dicts); i++)
            if (rf_tpl_text_is(name, dicts[i])) return true;
    return false;
}

/* Attributes that are values, not methods. */
static bool plain_attribute(struct rf_run *run, const struct rf_tpl_value *of, const struct rf_tpl_text *name,
                            struct rf_tpl_value *out) {
    bool is_int = rf_tpl_is_integer(of);
    (void)run;
    switch (of->kind) {
    case RF_TPL_BOOL:
    case RF_TPL_INT:
    case RF_TPL_FLOAT:
        if (rf_tpl_text_is(name, "real") || (is_int && rf_tpl_text_is(name, "numerator")))
            *out = is_int ? rf_tpl_int(rf_tpl_integer(of)) : *of;
        else if (rf_tpl_text_is(name, "imag"))
            *out = is_int ? rf_tpl_int(0) : rf_tpl_float(0);
        else if (is_int && rf_tpl_text_is(name, "denominator"))
            *out = rf_tpl_int(1);
        else
            return false;
        return true;
    case RF_TPL_RANGE:
        if (rf_tpl_text_is(name, "start"))
            *out = rf_tpl_int(of->range->start);
        else if (rf_tpl_text_is(name, "stop"))
            *out = rf_tpl_int(of->range->stop);
        else if (rf_tpl_text_is(name, "step"))
            *out = rf_tpl_int(of->range->step);
        else
            return false;
        return true;
    case RF_TPL_TUPLE:
        if (!of->list->is_group) return false;
        if (!rf_tpl_text_is(name, "grouper") && !rf_tpl_text_is(name, "list")) return false;
        *out = of->list->items[rf_tpl_text_is(name, "list")];
        return true;
    case RF_TPL_CYCLER:
        if (!rf_tpl_text_is(name, "current")) return false;
        *out = of->cycler->items->items[of->cycler->at];
        return true;
    case RF_TPL_MACRO:
        if (!rf_tpl_text_is(name, "name")) return false;
        *out = rf_tpl_of_text(of->macro->node->name);
        return true;
    default: return false;
    }
}

rf_status rf_tpl_attribute(struct rf_run *run, const struct rf_tpl_value *of, const struct rf_tpl_text *name,
                           bool *found, struct rf_tpl_value *out) {
    *found = false;
    if (of->kind == RF_TPL_UNDEFINED) return rf_tpl_fail_undefined(run, of);
    if (of->kind == RF_TPL_NAMESPACE) {
        const struct rf_tpl_value *value = rf_tpl_dict_get(of->dict, name->bytes, name->length);
        if (!value) return RF_OK;
        *found = true;
        if (name->length && name->bytes[0] == '_')
            return make_undefined(run, of, name, "names that begin with _ are refused", out);
        *out = *value;
        return RF_OK;
    }
    if (name->length && name->bytes[0] == '_') return RF_OK;
    if (is_refused(of, name)) {
        *found = true;
        return make_undefined(run, of, name, "what changes a list or a dictionary is refused", out);
    }
    if (of->kind == RF_TPL_LOOP) {
        RF_TRY(rf_loop_attribute(run, of->loop, name, found, out));
        if (*found) return RF_OK;
    }
    *found = plain_attribute(run, of, name, out);
    if (*found) return RF_OK;
    const struct rf_tpl_builtin *builtin = of->kind == RF_TPL_TEXT
                                               ? rf_tpl_find_text_method(name->bytes, name->length)
                                               : rf_tpl_find_other_method(of, name->bytes, name->length);
    if (!builtin) return RF_OK;
    struct rf_tpl_method *method = RF_ARENA_NEW(&run->arena, struct rf_tpl_method);
    if (!method) return RF_E_NO_MEMORY;
    *method = (struct rf_tpl_method){*of, builtin, builtin->name};
    *out = (struct rf_tpl_value){.kind = RF_TPL_METHOD, .method = method};
    *found = true;
    return RF_OK;
}

rf_status rf_tpl_getattr(struct rf_run *run, const struct rf_tpl_value *of, const struct rf_tpl_text *name,
                         struct rf_tpl_value *out) {
    bool found;
    RF_TRY(rf_tpl_attribute(run, of, name, &found, out));
    if (found) return RF_OK;
    if (of->kind == RF_TPL_DICT) {
        const struct rf_tpl_value *value = rf_tpl_dict_get(of->dict, name->bytes, name->length);
        if (value) {
            *out = *value;
            return RF_OK;
        }
    }
    return make_undefined(run, of, name, NULL, out);
}

/* ---- items ---- */

/* The byte range of a code point. */
static bool char_at(const struct rf_tpl_text *text, int64_t index, size_t *from, size_t *bytes) {
    int64_t chars = (int64_t)rf_text_chars(text->bytes, text->length);
    if (index < 0) index += chars;
    if (index < 0 || index >= chars) return false;
    *from = (size_t)chars == text->length ? (size_t)index : rf_text_offset(text->bytes, text->length, (size_t)index);
    *bytes = rf_text_char_bytes((unsigned char)text->bytes[*from]);
    return true;
}

static rf_status item_at(struct rf_run *run, const struct rf_tpl_value *of, int64_t index, bool *found,
                         struct rf_tpl_value *out) {
    size_t from, bytes;
    *found = false;
    if (of->kind == RF_TPL_TEXT) {
        RF_TRY(rf_run_steps(run, of->text->length / 64));
        if (!char_at(of->text, index, &from, &bytes)) return RF_OK;
        struct rf_tpl_text *text = rf_tpl_text_part(run, of->text, from, bytes);
        if (!text) return RF_E_NO_MEMORY;
        *out = rf_tpl_of_text(text);
        *found = true;
        return RF_OK;
    }
    int64_t count = of->kind == RF_TPL_RANGE ? of->range->count : (int64_t)of->list->count;
    if (index < 0) index += count;
    if (index < 0 || index >= count) return RF_OK;
    *out = of->kind == RF_TPL_RANGE ? rf_tpl_int(of->range->start + index * of->range->step) : of->list->items[index];
    *found = true;
    return RF_OK;
}

rf_status rf_tpl_getitem(struct rf_run *run, const struct rf_tpl_value *of, const struct rf_tpl_value *item,
                         struct rf_tpl_value *out) {
    bool found = false;
    if (of->kind == RF_TPL_UNDEFINED) return rf_tpl_fail_undefined(run, of);
    if (of->kind == RF_TPL_DICT && rf_tpl_is_hashable(item)) {
        struct rf_tpl_value *value = NULL;
        RF_TRY(rf_tpl_dict_find(run, of->dict, item, &value));
        found = value != NULL;
        if (found) *out = *value;
    } else if (rf_tpl_is_integer(item) && (of->kind == RF_TPL_TEXT || of->kind == RF_TPL_LIST ||
                                           of->kind == RF_TPL_TUPLE || of->kind == RF_TPL_RANGE)) {
        RF_TRY(item_at(run, of, rf_tpl_integer(item), &found, out));
    }
    if (!found && item->kind == RF_TPL_TEXT) RF_TRY(rf_tpl_attribute(run, of, item->text, &found, out));
    if (found) return RF_OK;
    return make_undefined(run, of, item->kind == RF_TPL_TEXT ? item->text : NULL, NULL, out);
}

/* ---- slices ---- */

struct slice {
    int64_t start, step;
    size_t count;
};

static rf_status resolve_slice(struct rf_run *run, const struct rf_tpl_value bounds[3], int64_t length,
                               struct slice *slice) {
    int64_t values[3] = {0, 0, 1};
    for (size_t i = 0; i < 3; i++) {
        if (bounds[i].kind == RF_TPL_NONE) continue;
        if (!rf_tpl_is_integer(&bounds[i]))
            return rf_run_fail(run, "slice indices must be integers or None, not '%s'", rf_tpl_type_name(&bounds[i]));
        values[i] = rf_tpl_integer(&bounds[i]);
    }
    int64_t step = values[2];
    if (!step) return rf_run_fail(run, "slice step cannot be zero");
    if (step < -INT64_MAX) step = -INT64_MAX;
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? length - 1 : length;
    for (size_t i = 0; i < 2; i++) {
        if (bounds[i].kind == RF_TPL_NONE) {
            values[i] = (i == 0) == (step > 0) ? low : high;
            continue;
        }
        if (values[i] < 0) values[i] = values[i] < -length ? -length - 1 : values[i];
        if (values[i] < 0) values[i] += length;
        values[i] = values[i] < 0 ? low : values[i] > high ? high : values[i];
    }
    int64_t count = step > 0 ? (values[1] > values[0] ? (values[1] - values[0] - 1) / step + 1 : 0)
                             : (values[0] > values[1] ? (values[0] - values[1] - 1) / -step + 1 : 0);
    *slice = (struct slice){values[0], step, (size_t)count};
    return RF_OK;
}

static rf_status slice_text(struct rf_run *run, struct rf_tpl_text *text, const struct rf_tpl_value bounds[3],
                            struct rf_tpl_value *out) {
    size_t chars = rf_tpl_text_chars(text);
    bool plain = chars == text->length; /* a byte for each code point */
    struct rf_tpl_text *made;
    struct slice slice;
    RF_TRY(rf_run_steps(run, text->length / 64));
    RF_TRY(resolve_slice(run, bounds, (int64_t)chars, &slice));
    if (slice.step == 1 || !slice.count) {
        size_t start = plain ? (size_t)slice.start : rf_text_offset(text->bytes, text->length, (size_t)slice.start);
        if (!slice.count) start = 0;
        size_t bytes = plain ? slice.count : rf_text_offset(text->bytes + start, text->length - start, slice.count);
        made = rf_tpl_text_part(run, text, start, slice.count ? bytes : 0);
    } else {
        struct rf_tpl_builder to = {0};
        size_t *offsets = NULL;
        if (!plain) {
            offsets = rf_arena_take_raw(&run->arena, (chars + 1) * sizeof *offsets);
            if (!offsets) return RF_E_NO_MEMORY;
            for (size_t i = 0, at = 0; i < chars; i++) {
                offsets[i] = at;
                at += rf_text_char_bytes((unsigned char)text->bytes[at]);
            }
        }
        RF_TRY(rf_run_steps(run, slice.count));
        for (size_t i = 0; i < slice.count; i++) {
            size_t index = (size_t)(slice.start + (int64_t)i * slice.step), at = plain ? index : offsets[index];
            RF_TRY(rf_tpl_build_part(run, &to, text, at, rf_text_char_bytes((unsigned char)text->bytes[at])));
        }
        made = rf_tpl_built(run, &to);
        if (made) made->safe = text->safe;
    }
    if (!made) return RF_E_NO_MEMORY;
    *out = rf_tpl_of_text(made);
    return RF_OK;
}

static rf_status slice_list(struct rf_run *run, const struct rf_tpl_value *of, const struct rf_tpl_value bounds[3],
                            struct rf_tpl_value *out) {
    struct slice slice;
    RF_TRY(resolve_slice(run, bounds, (int64_t)of->list->count, &slice));
    RF_TRY(rf_run_steps(run, slice.count));
    struct rf_tpl_list *list = rf_tpl_list_new(run, slice.count);
    if (!list) return RF_E_NO_MEMORY;
    for (size_t i = 0; i < slice.count; i++) list->items[i] = of->list->items[slice.start + (int64_t)i * slice.step];
    list->count = slice.count;
    *out = rf_tpl_of_list(list, of->kind == RF_TPL_TUPLE);
    return RF_OK;
}

static rf_status slice_range(struct rf_run *run, const struct rf_tpl_range *of, const struct rf_tpl_value bounds[3],
                             struct rf_tpl_value *out) {
    struct slice slice;
    RF_TRY(resolve_slice(run, bounds, of->count, &slice));
    struct rf_tpl_range *range = RF_ARENA_NEW(&run->arena, struct rf_tpl_range);
    if (!range) return RF_E_NO_MEMORY;
    int64_t step = of->count && llabs(slice.step) <= of->count ? slice.step * of->step : of->step;
    range->start = of->start + slice.start * of->step;
    range->step = step;
    range->count = (int64_t)slice.count;
    range->stop = range->start + range->count * step;
    *out = (struct rf_tpl_value){.kind = RF_TPL_RANGE, .range = range};
    return RF_OK;
}

rf_status rf_tpl_slice(struct rf_run *run, const struct rf_tpl_value *of, const struct rf_tpl_value bounds[3],
                       struct rf_tpl_value *out) {
    switch (of->kind) {
    case RF_TPL_UNDEFINED: return rf_tpl_fail_undefined(run, of);
    case RF_TPL_TEXT: return slice_text(run, of->text, bounds, out);
    case RF_TPL_LIST:
    case RF_TPL_TUPLE: return slice_list(run, of, bounds, out);
    case RF_TPL_RANGE: return slice_range(run, of->range, bounds, out);
    default: return rf_run_fail(run, "'%s' object cannot be sliced", rf_tpl_type_name(of));
    }
}
