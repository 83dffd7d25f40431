/* Values: lists, dictionaries, truth, equality and order, as Python has them.
 *
 * Invariant: what compares equal hashes equal (1, 1.0 and true are one key). */
#include "template/template_impl.h"

#include <math.h>

enum { FEW_ENTRIES = 8 }; /* a dictionary of no more has no slots */

const char *rf_tpl_type_name(const struct rf_tpl_value *value) {
    static const char *const names[] = {
        [RF_TPL_MISSING] = "Undefined", [RF_TPL_UNDEFINED] = "Undefined",
        [RF_TPL_NONE] = "NoneType",     [RF_TPL_BOOL] = "bool",
        [RF_TPL_INT] = "int",           [RF_TPL_FLOAT] = "float",
        [RF_TPL_TEXT] = "str",          [RF_TPL_LIST] = "list",
        [RF_TPL_TUPLE] = "tuple",       [RF_TPL_DICT] = "dict",
        [RF_TPL_RANGE] = "range",       [RF_TPL_ITERATOR] = "generator",
        [RF_TPL_MACRO] = "Macro",       [RF_TPL_NAMESPACE] = "Namespace",
        [RF_TPL_FUNCTION] = "function", [RF_TPL_METHOD] = "method",
        [RF_TPL_LOOP] = "LoopContext",  [RF_TPL_CYCLER] = "Cycler",
        [RF_TPL_JOINER] = "Joiner",
    };
    static const char *const views[] = {"dict_keys", "dict_values", "dict_items"};
    if (value->kind == RF_TPL_VIEW) return views[value->view->of];
    return names[value->kind];
}

bool rf_tpl_truth(const struct rf_tpl_value *value) {
    switch (value->kind) {
    case RF_TPL_MISSING:
    case RF_TPL_UNDEFINED:
    case RF_TPL_NONE: return false;
    case RF_TPL_BOOL: return value->boolean;
    case RF_TPL_INT: return value->integer != 0;
    case RF_TPL_FLOAT: return value->real != 0;
    case RF_TPL_TEXT: return value->text->length > 0;
    case RF_TPL_LIST:
    case RF_TPL_TUPLE: return value->list->count > 0;
    case RF_TPL_DICT: return value->dict->count > 0;
    case RF_TPL_VIEW: return value->view->dict->count > 0;
    case RF_TPL_RANGE: return value->range->count > 0;
    default: return true;
    }
}

/* ---- equality ---- */

static rf_status equal_lists(struct rf_run *run, const struct rf_tpl_list *a, const struct rf_tpl_list *b,
                             bool *equal) {
    *equal = a->count == b->count;
    for (size_t i = 0; *equal && i < a->count && i < b->count; i++)
        RF_TRY(rf_tpl_equal(run, &a->items[i], &b->items[i], equal));
    return RF_OK;
}

static rf_status equal_dicts(struct rf_run *run, const struct rf_tpl_dict *a, const struct rf_tpl_dict *b,
                             bool *equal) {
    *equal = a->count == b->count;
    for (size_t i = 0; *equal && i < a->count; i++) {
        struct rf_tpl_value *other = NULL;
        RF_TRY(rf_tpl_dict_find(run, b, &a->entries[i].key, &other));
        *equal = other != NULL;
        if (other) RF_TRY(rf_tpl_equal(run, &a->entries[i].value, other, equal));
    }
    return RF_OK;
}

rf_status rf_tpl_equal(struct rf_run *run, const struct rf_tpl_value *a, const struct rf_tpl_value *b, bool *equal) {
    RF_TRY(rf_run_steps(run, 1));
    if (rf_tpl_is_number(a) && rf_tpl_is_number(b)) {
        *equal = rf_tpl_is_integer(a) && rf_tpl_is_integer(b) ? rf_tpl_integer(a) == rf_tpl_integer(b)
                                                              : rf_tpl_real(a) == rf_tpl_real(b);
        return RF_OK;
    }
    *equal = false;
    if (a->kind != b->kind) return RF_OK;
    rf_status status = RF_OK;
    switch (a->kind) {
    case RF_TPL_UNDEFINED:
    case RF_TPL_NONE: *equal = true; return RF_OK;
    case RF_TPL_TEXT: *equal = rf_tpl_text_equal(a->text, b->text); return rf_run_steps(run, a->text->length / 64);
    case RF_TPL_LIST:
    case RF_TPL_TUPLE:
        RF_TRY(rf_run_enter(run));
        status = equal_lists(run, a->list, b->list, equal);
        rf_run_leave(run);
        return status;
    case RF_TPL_DICT:
        RF_TRY(rf_run_enter(run));
        status = equal_dicts(run, a->dict, b->dict, equal);
        rf_run_leave(run);
        return status;
    case RF_TPL_RANGE:
        *equal = a->range->count == b->range->count &&
                 (a->range->count == 0 ||
                  (a->range->start == b->range->start && (a->range->count == 1 || a->range->step == b->range->step)));
        return RF_OK;
    case RF_TPL_METHOD: *equal = a->method == b->method; return RF_OK;
    default: *equal = a->list == b->list; return RF_OK; /* the same object */
    }
}

/* ---- order ---- */

static int compare_texts(const struct rf_tpl_text *a, const struct rf_tpl_text *b) {
    size_t length = RF_MIN(a->length, b->length); /* UTF-8 sorts as its code points do */
    int order = length ? memcmp(a->bytes, b->bytes, length) : 0;
    return order ? order : (a->length > b->length) - (a->length < b->length);
}

rf_status rf_tpl_less(struct rf_run *run, const struct rf_tpl_value *a, const struct rf_tpl_value *b,
                      const char *operator_text, bool *less) {
    RF_TRY(rf_run_steps(run, 1));
    if (a->kind == RF_TPL_UNDEFINED) return rf_tpl_fail_undefined(run, a);
    if (b->kind == RF_TPL_UNDEFINED) return rf_tpl_fail_undefined(run, b);
    if (rf_tpl_is_number(a) && rf_tpl_is_number(b)) {
        *less = rf_tpl_is_integer(a) && rf_tpl_is_integer(b) ? rf_tpl_integer(a) < rf_tpl_integer(b)
                                                             : rf_tpl_real(a) < rf_tpl_real(b);
        return RF_OK;
    }
    if (a->kind == RF_TPL_TEXT && b->kind == RF_TPL_TEXT) {
        *less = compare_texts(a->text, b->text) < 0;
        return rf_run_steps(run, RF_MIN(a->text->length, b->text->length) / 64);
    }
    if (a->kind == b->kind && (a->kind == RF_TPL_LIST || a->kind == RF_TPL_TUPLE)) {
        RF_TRY(rf_run_enter(run));
        rf_status status = RF_OK;
        bool equal = true, decided = false;
        for (size_t i = 0; !status && !decided && i < a->list->count && i < b->list->count; i++) {
            status = rf_tpl_equal(run, &a->list->items[i], &b->list->items[i], &equal);
            if (status || equal) continue;
            status = rf_tpl_less(run, &a->list->items[i], &b->list->items[i], operator_text, less);
            decided = true;
        }
        if (!decided) *less = a->list->count < b->list->count;
        rf_run_leave(run);
        return status;
    }
    return rf_run_fail(run, "'%s' is not supported between '%s' and '%s'", operator_text, rf_tpl_type_name(a),
                       rf_tpl_type_name(b));
}

/* ---- lists ---- */

struct rf_tpl_list *rf_tpl_list_new(struct rf_run *run, size_t capacity) {
    struct rf_tpl_list *list = RF_ARENA_NEW(&run->arena, struct rf_tpl_list);
    if (!list || !capacity) return list;
    list->items = rf_arena_take_raw(&run->arena, capacity * sizeof *list->items);
    list->capacity = capacity;
    return list->items ? list : NULL;
}

rf_status rf_tpl_list_add(struct rf_run *run, struct rf_tpl_list *list, const struct rf_tpl_value *value) {
    RF_TRY(rf_run_steps(run, 1));
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 4;
        struct rf_tpl_value *grown =
            rf_arena_regrow(&run->arena, list->items, list->count * sizeof *grown, capacity * sizeof *grown);
        if (!grown) return RF_E_NO_MEMORY;
        list->items = grown;
        list->capacity = capacity;
    }
    list->items[list->count++] = *value;
    return RF_OK;
}

/* ---- dictionaries ---- */

bool rf_tpl_is_hashable(const struct rf_tpl_value *value) {
    if (value->kind == RF_TPL_LIST || value->kind == RF_TPL_DICT) return false;
    if (value->kind == RF_TPL_VIEW) return value->view->of == RF_TPL_VALUES;
    for (size_t i = 0; value->kind == RF_TPL_TUPLE && i < value->list->count; i++) {
        const struct rf_tpl_value *item = &value->list->items[i];
        /* a tuple in a tuple: no further, which bounds the recursion; nobody has such keys */
        if (item->kind == RF_TPL_TUPLE ? item->list->count > 0 : !rf_tpl_is_hashable(item)) return false;
    }
    return true;
}

static uint64_t hash_bytes(const void *bytes, size_t length, uint64_t hash) {
    const unsigned char *at = bytes;
    for (size_t i = 0; i < length; i++) hash = (hash ^ at[i]) * UINT64_C(1099511628211);
    return hash;
}

static uint64_t hash_of(const struct rf_tpl_value *value) {
    const uint64_t start = UINT64_C(14695981039346656037) ^ (uint64_t)value->kind;
    if (rf_tpl_is_number(value)) {
        double real = rf_tpl_real(value);
        if (real == 0) real = 0; /* not -0 */
        return hash_bytes(&real, sizeof real, UINT64_C(14695981039346656037));
    }
    if (value->kind == RF_TPL_TEXT) return hash_bytes(value->text->bytes, value->text->length, start);
    if (value->kind == RF_TPL_TUPLE) {
        uint64_t hash = start;
        for (size_t i = 0; i < value->list->count; i++) {
            uint64_t part = value->list->items[i].kind == RF_TPL_TUPLE ? 0 : hash_of(&value->list->items[i]);
            hash = hash_bytes(&part, sizeof part, hash);
        }
        return hash;
    }
    return start;
}

struct rf_tpl_dict *rf_tpl_dict_new(struct rf_run *run) {
    return RF_ARENA_NEW(&run->arena, struct rf_tpl_dict);
}

static rf_status find_entry(struct rf_run *run, const struct rf_tpl_dict *dict, const struct rf_tpl_value *key,
                            uint64_t hash, size_t *found) {
    bool equal = false;
    *found = SIZE_MAX;
    if (!dict->slots) {
        for (size_t i = 0; i < dict->count; i++) {
            if (dict->entries[i].hash != hash) continue;
            RF_TRY(rf_tpl_equal(run, &dict->entries[i].key, key, &equal));
            if (!equal) continue;
            *found = i;
            return RF_OK;
        }
        return RF_OK;
    }
    for (size_t slot = hash % dict->slot_count; dict->slots[slot]; slot = (slot + 1) % dict->slot_count) {
        size_t i = dict->slots[slot] - 1;
        if (dict->entries[i].hash != hash) continue;
        RF_TRY(rf_tpl_equal(run, &dict->entries[i].key, key, &equal));
        if (!equal) continue;
        *found = i;
        return RF_OK;
    }
    return RF_OK;
}

static void put_slot(struct rf_tpl_dict *dict, size_t entry) {
    size_t slot = dict->entries[entry].hash % dict->slot_count;
    while (dict->slots[slot]) slot = (slot + 1) % dict->slot_count;
    dict->slots[slot] = (uint32_t)entry + 1;
}

static rf_status make_slots(struct rf_run *run, struct rf_tpl_dict *dict) {
    size_t slot_count = 4 * dict->capacity + 1;
    uint32_t *slots = rf_arena_take(&run->arena, slot_count * sizeof *slots);
    if (!slots) return RF_E_NO_MEMORY;
    dict->slots = slots;
    dict->slot_count = slot_count;
    for (size_t i = 0; i < dict->count; i++) put_slot(dict, i);
    return rf_run_steps(run, dict->count);
}

rf_status rf_tpl_dict_set(struct rf_run *run, struct rf_tpl_dict *dict, const struct rf_tpl_value *key,
                          const struct rf_tpl_value *value) {
    size_t found;
    RF_TRY(rf_run_steps(run, 1));
    if (!rf_tpl_is_hashable(key)) return rf_run_fail(run, "unhashable type: '%s'", rf_tpl_type_name(key));
    uint64_t hash = hash_of(key);
    RF_TRY(find_entry(run, dict, key, hash, &found));
    if (found != SIZE_MAX) {
        dict->entries[found].value = *value;
        return RF_OK;
    }
    if (dict->count == dict->capacity) {
        size_t capacity = dict->capacity ? 2 * dict->capacity : 4;
        struct rf_tpl_entry *grown =
            rf_arena_regrow(&run->arena, dict->entries, dict->count * sizeof *grown, capacity * sizeof *grown);
        if (!grown) return RF_E_NO_MEMORY;
        dict->entries = grown;
        dict->capacity = capacity;
        dict->slots = NULL;
    }
    dict->entries[dict->count] = (struct rf_tpl_entry){*key, *value, hash};
    dict->count++;
    if (dict->slots)
        put_slot(dict, dict->count - 1);
    else if (dict->count > FEW_ENTRIES)
        return make_slots(run, dict);
    return RF_OK;
}

rf_status rf_tpl_dict_find(struct rf_run *run, const struct rf_tpl_dict *dict, const struct rf_tpl_value *key,
                           struct rf_tpl_value **found) {
    size_t entry;
    *found = NULL;
    if (!rf_tpl_is_hashable(key)) return rf_run_fail(run, "unhashable type: '%s'", rf_tpl_type_name(key));
    RF_TRY(find_entry(run, dict, key, hash_of(key), &entry));
    if (entry != SIZE_MAX) *found = &dict->entries[entry].value;
    return RF_OK;
}

struct rf_tpl_value *rf_tpl_dict_get(const struct rf_tpl_dict *dict, const char *key, size_t bytes) {
    struct rf_tpl_text text = {.bytes = key, .length = bytes};
    uint64_t hash = hash_of(&(struct rf_tpl_value){.kind = RF_TPL_TEXT, .text = &text});
    for (size_t i = 0, slot = dict->slots ? hash % dict->slot_count : 0; i < dict->count; i++) {
        size_t at = i;
        if (dict->slots) {
            if (!dict->slots[slot]) return NULL;
            at = dict->slots[slot] - 1;
            slot = (slot + 1) % dict->slot_count;
        }
        const struct rf_tpl_entry *entry = &dict->entries[at];
        if (entry->hash == hash && entry->key.kind == RF_TPL_TEXT && rf_tpl_text_equal(entry->key.text, &text))
            return &dict->entries[at].value;
    }
    return NULL;
}

/* ---- sorting ---- */

rf_status rf_tpl_sort(struct rf_run *run, struct rf_tpl_value *items, struct rf_tpl_value *keys, size_t count,
                      bool reverse) {
    struct rf_tpl_value *other = rf_arena_take_raw(&run->arena, 2 * count * sizeof *other);
    if (!other) return RF_E_NO_MEMORY;
    struct rf_tpl_value *other_keys = other + count;
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t from = 0; from < count; from += 2 * width) {
            size_t middle = RF_MIN(from + width, count), end = RF_MIN(from + 2 * width, count);
            size_t left = from, right = middle;
            for (size_t to = from; to < end; to++) {
                bool take_right = left == middle;
                if (!take_right && right < end)
                    RF_TRY(reverse ? rf_tpl_less(run, &keys[left], &keys[right], "<", &take_right)
                                   : rf_tpl_less(run, &keys[right], &keys[left], "<", &take_right));
                size_t taken = take_right ? right++ : left++;
                other[to] = items[taken];
                other_keys[to] = keys[taken];
            }
        }
        memcpy(items, other, count * sizeof *items);
        memcpy(keys, other_keys, count * sizeof *keys);
    }
    return RF_OK;
}
