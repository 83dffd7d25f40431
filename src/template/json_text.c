/* The filter tojson: text as Python's json.dumps writes it.
 *
 * Bytes from inside a text keep their marks, also where an escape stands for them; brackets, quotes, separators and
 * numbers count as data (0). */
#include <stdio.h>

#include "base/utf8.h"
#include "template/template_impl.h"

static rf_status build_value(struct rf_run *run, struct rf_tpl_builder *to, const struct rf_tpl_value *value,
                             const struct rf_tpl_json_style *style, size_t level);

rf_status rf_tpl_build_json(struct rf_run *run, struct rf_tpl_builder *to, const struct rf_tpl_value *value,
                            const struct rf_tpl_json_style *style) {
    return build_value(run, to, value, style, 0);
}

static rf_status literal(struct rf_run *run, struct rf_tpl_builder *to, const char *text) {
    return rf_tpl_build_bytes(run, to, text, strlen(text), 0);
}

static rf_status build_text(struct rf_run *run, struct rf_tpl_builder *to, const struct rf_tpl_text *text,
                            bool ensure_ascii) {
    RF_TRY(literal(run, to, "\""));
    for (size_t at = 0, taken; at < text->length; at += taken) {
        uint32_t code = rf_utf8_decode(text->bytes + at, text->length - at, &taken);
        static const char simple[] = "\"\\\n\r\t\f\b", names[] = "\"\\nrtfb";
        const char *found = code && code < 0x80 ? strchr(simple, (int)code) : NULL;
        char escape[16];
        if (found)
            snprintf(escape, sizeof escape, "\\%c", names[found - simple]);
        else if (code < 0x20 || (ensure_ascii && code > 0x7e && code < 0x10000))
            snprintf(escape, sizeof escape, "\\u%04x", code);
        else if (ensure_ascii && code >= 0x10000)
            snprintf(escape, sizeof escape, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10),
                     0xdc00 + ((code - 0x10000) & 0x3ff));
        else {
            size_t run_of = taken; /* as much as needs no escape, at once */
            while (at + run_of < text->length && (unsigned char)text->bytes[at + run_of] >= 0x20 &&
                   text->bytes[at + run_of] != '"' && text->bytes[at + run_of] != '\\' &&
                   (!ensure_ascii || (unsigned char)text->bytes[at + run_of] < 0x7f))
                run_of++;
            RF_TRY(rf_tpl_build_part(run, to, text, at, run_of));
            taken = run_of;
            continue;
        }
        RF_TRY(rf_tpl_build_bytes(run, to, escape, strlen(escape), rf_tpl_own(text, at)));
    }
    return literal(run, to, "\"");
}

static rf_status build_number(struct rf_run *run, struct rf_tpl_builder *to, const struct rf_tpl_value *value) {
    char text[RF_TPL_FLOAT_BYTES];
    if (value->kind == RF_TPL_INT) {
        snprintf(text, sizeof text, "%lld", (long long)value->integer);
        return literal(run, to, text);
    }
    size_t length = rf_tpl_float_repr(value->real, text);
    if (text[length - 1] == 'n') return literal(run, to, "NaN");
    if (text[length - 1] == 'f') return literal(run, to, value->real < 0 ? "-Infinity" : "Infinity");
    return rf_tpl_build_bytes(run, to, text, length, 0);
}

static rf_status build_line(struct rf_run *run, struct rf_tpl_builder *to, const struct rf_tpl_json_style *style,
                            size_t level) {
    if (!style->indented) return RF_OK;
    RF_TRY(literal(run, to, "\n"));
    for (size_t i = 0; i < level; i++) RF_TRY(rf_tpl_build_part(run, to, style->indent, 0, style->indent->length));
    return RF_OK;
}

static rf_status build_key(struct rf_run *run, struct rf_tpl_builder *to, const struct rf_tpl_value *key,
                           const struct rf_tpl_json_style *style) {
    if (key->kind == RF_TPL_TEXT) return build_text(run, to, key->text, style->ensure_ascii);
    if (key->kind != RF_TPL_NONE && !rf_tpl_is_number(key))
        return rf_run_fail(run, "tojson: keys must be str, int, float, bool or None, not '%s'",
                           rf_tpl_type_name(key));
    RF_TRY(literal(run, to, "\""));
    RF_TRY(build_value(run, to, key, style, 0));
    return literal(run, to, "\"");
}

static rf_status build_dict(struct rf_run *run, struct rf_tpl_builder *to, const struct rf_tpl_dict *dict,
                            const struct rf_tpl_json_style *style, size_t level) {
    if (!dict->count) return literal(run, to, "{}");
    struct rf_tpl_value *keys = rf_arena_take_raw(&run->arena, 2 * dict->count * sizeof *keys);
    if (!keys) return RF_E_NO_MEMORY;
    for (size_t i = 0; i < dict->count; i++) {
        keys[i] = dict->entries[i].key;
        keys[dict->count + i] = dict->entries[i].value;
    }
    if (style->sort_keys) RF_TRY(rf_tpl_sort(run, keys + dict->count, keys, dict->count, false));
    RF_TRY(literal(run, to, "{"));
    for (size_t i = 0; i < dict->count; i++) {
        if (i) RF_TRY(rf_tpl_build_part(run, to, style->item_separator, 0, style->item_separator->length));
        RF_TRY(build_line(run, to, style, level + 1));
        RF_TRY(build_key(run, to, &keys[i], style));
        RF_TRY(rf_tpl_build_part(run, to, style->key_separator, 0, style->key_separator->length));
        RF_TRY(build_value(run, to, &keys[dict->count + i], style, level + 1));
    }
    RF_TRY(build_line(run, to, style, level));
    return literal(run, to, "}");
}

static rf_status build_list(struct rf_run *run, struct rf_tpl_builder *to, const struct rf_tpl_list *list,
                            const struct rf_tpl_json_style *style, size_t level) {
    if (!list->count) return literal(run, to, "[]");
    RF_TRY(literal(run, to, "["));
    for (size_t i = 0; i < list->count; i++) {
        if (i) RF_TRY(rf_tpl_build_part(run, to, style->item_separator, 0, style->item_separator->length));
        RF_TRY(build_line(run, to, style, level + 1));
        RF_TRY(build_value(run, to, &list->items[i], style, level + 1));
    }
    RF_TRY(build_line(run, to, style, level));
    return literal(run, to, "]");
}

static rf_status build_value(struct rf_run *run, struct rf_tpl_builder *to, const struct rf_tpl_value *value,
                             const struct rf_tpl_json_style *style, size_t level) {
    rf_status status;
    RF_TRY(rf_run_steps(run, 1));
    switch (value->kind) {
    case RF_TPL_NONE: return literal(run, to, "null");
    case RF_TPL_BOOL: return literal(run, to, value->boolean ? "true" : "false");
    case RF_TPL_INT:
    case RF_TPL_FLOAT: return build_number(run, to, value);
    case RF_TPL_TEXT: return build_text(run, to, value->text, style->ensure_ascii);
    case RF_TPL_LIST:
    case RF_TPL_TUPLE:
    case RF_TPL_DICT:
        RF_TRY(rf_run_enter(run));
        status = value->kind == RF_TPL_DICT ? build_dict(run, to, value->dict, style, level)
                                            : build_list(run, to, value->list, style, level);
        rf_run_leave(run);
        return status;
    default:
        return rf_run_fail(run, "tojson: an object of type '%s' is not JSON serializable", rf_tpl_type_name(value));
    }
}
