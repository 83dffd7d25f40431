/* Values as text: str() and repr() as Python has them, and numbers read from text.
 *
 * Bytes that come from inside a text keep their marks; what is added around them, and numbers, counts as data (0):
 * digits and quotes spell no control token that the template did not write. */
#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "template/template_impl.h"

/* ---- floats ---- */

/* Digits and exponent of the shortest decimal that gives the same number: value = 0.DIGITS * 10^point. */
static int shortest_digits(double value, char digits[24], int *point) {
    char text[64];
    for (int precision = 0; precision < 17; precision++) {
        snprintf(text, sizeof text, "%.*e", precision, value);
        if (precision == 16 || strtod(text, NULL) == value) break;
    }
    int count = 0;
    const char *at = text;
    for (; *at && *at != 'e'; at++) /* skips the point, whatever the locale writes */
        if (*at >= '0' && *at <= '9' && count < 20) digits[count++] = *at;
    *point = (*at ? atoi(at + 1) : 0) + 1;
    while (count > 1 && digits[count - 1] == '0') count--;
    return count;
}

size_t rf_tpl_float_repr(double value, char out[RF_TPL_FLOAT_BYTES]) {
    char digits[24];
    int point, count;
    size_t at = 0;
    if (isnan(value)) return (size_t)snprintf(out, RF_TPL_FLOAT_BYTES, "nan");
    if (isinf(value)) return (size_t)snprintf(out, RF_TPL_FLOAT_BYTES, value < 0 ? "-inf" : "inf");
    if (signbit(value)) out[at++] = '-';
    count = shortest_digits(fabs(value), digits, &point);
    if (point > 16 || point < -3) {
        out[at++] = digits[0];
        if (count > 1) out[at++] = '.';
        for (int i = 1; i < count; i++) out[at++] = digits[i];
        at += (size_t)snprintf(out + at, RF_TPL_FLOAT_BYTES - at, "e%c%02d", point > 0 ? '+' : '-', abs(point - 1));
        return at;
    }
    if (point <= 0) {
        out[at++] = '0';
        out[at++] = '.';
        for (int i = point; i < 0; i++) out[at++] = '0';
        for (int i = 0; i < count; i++) out[at++] = digits[i];
    } else {
        for (int i = 0; i < point; i++) out[at++] = i < count ? digits[i] : '0';
        out[at++] = '.';
        if (count <= point) out[at++] = '0';
        for (int i = point; i < count; i++) out[at++] = digits[i];
    }
    out[at] = 0;
    return at;
}

static void strip(const char **text, size_t *bytes) {
    while (*bytes) {
        size_t taken;
        if (!rf_code_is_space(rf_utf8_decode(*text, *bytes, &taken))) break;
        *text += taken;
        *bytes -= taken;
    }
    while (*bytes) {
        size_t start = *bytes - 1, taken;
        while (start && ((unsigned char)(*text)[start] & 0xc0) == 0x80) start--;
        if (!rf_code_is_space(rf_utf8_decode(*text + start, *bytes - start, &taken))) break;
        *bytes = start;
    }
}

bool rf_tpl_read_float(const char *text, size_t bytes, double *out) {
    char copy[512];
    size_t length = 0, digits = 0;
    bool point = false, exponent = false;
    const char *decimal = localeconv()->decimal_point;
    strip(&text, &bytes);
    if (!bytes || bytes > sizeof copy / 4) return false;
    size_t sign = text[0] == '+' || text[0] == '-';
    static const char *const words[] = {"inf", "infinity", "nan"};
    for (size_t i = 0; i < RF_COUNT(words); i++) {
        if (bytes - sign != strlen(words[i]) || strncasecmp(text + sign, words[i], bytes - sign) != 0) continue;
        *out = i == 2 ? NAN : text[0] == '-' ? -INFINITY : INFINITY;
        return true;
    }
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        bool digit = c >= '0' && c <= '9';
        if (c == '_') { /* between digits only */
            bool before = i && text[i - 1] >= '0' && text[i - 1] <= '9';
            if (!before || i + 1 >= bytes || text[i + 1] < '0' || text[i + 1] > '9') return false;
            continue;
        }
        digits += digit;
        if (c == '.') {
            if (point || exponent) return false;
            point = true;
            for (const char *at = decimal; *at && length < sizeof copy - 8; at++) copy[length++] = *at;
            continue;
        }
        if ((c | 32) == 'e') {
            if (exponent || !digits || i + 1 >= bytes) return false;
            exponent = true;
            digits = 0;
        } else if (c == '+' || c == '-') {
            if (i && (text[i - 1] | 32) != 'e') return false;
        } else if (!digit) {
            return false;
        }
        copy[length++] = c;
    }
    if (!digits) return false;
    copy[length] = 0;
    char *end;
    *out = strtod(copy, &end);
    return *end == 0;
}

bool rf_tpl_read_int(const char *text, size_t bytes, int base, int64_t *out) {
    strip(&text, &bytes);
    size_t at = 0;
    bool negative = bytes && text[0] == '-', any = false, before = false;
    if (bytes && (text[0] == '-' || text[0] == '+')) at++;
    int prefix = at + 1 < bytes && text[at] == '0' ? text[at + 1] | 32 : 0;
    int named = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 0;
    if (named && (base == 0 || base == named)) {
        at += 2;
        base = named;
        before = true; /* an underscore may follow */
    } else if (base == 0) {
        base = 10;
    }
    uint64_t value = 0;
    for (; at < bytes; at++) {
        char c = text[at];
        if (c == '_') {
            if (!before) return false;
            before = false;
            continue;
        }
        int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'z' ? (c | 32) - 'a' + 10 : 99;
        if (digit >= base || __builtin_mul_overflow(value, (uint64_t)base, &value) ||
            __builtin_add_overflow(value, (uint64_t)digit, &value) || value > (uint64_t)INT64_MAX + negative)
            return false;
        any = before = true;
    }
    if (!any || !before) return false;
    *out = negative ? (int64_t)(0 - value) : (int64_t)value;
    return true;
}

/* ---- str and repr ---- */

static rf_status build_literal(struct rf_run *run, struct rf_tpl_builder *to, const char *text) {
    return rf_tpl_build_bytes(run, to, text, strlen(text), 0);
}

static rf_status build_text_repr(struct rf_run *run, struct rf_tpl_builder *to, const struct rf_tpl_text *text) {
    bool single = text->length && memchr(text->bytes, '\'', text->length);
    bool twofold = text->length && memchr(text->bytes, '"', text->length);
    char quote = single && !twofold ? '"' : '\'';
    if (text->safe) RF_TRY(build_literal(run, to, "Markup("));
    RF_TRY(rf_tpl_build_bytes(run, to, &quote, 1, 0));
    for (size_t at = 0, taken; at < text->length; at += taken) {
        uint32_t code = rf_utf8_decode(text->bytes + at, text->length - at, &taken);
        unsigned char mark = rf_tpl_own(text, at);
        char escape[16];
        if (code == (uint32_t)quote || code == '\\')
            snprintf(escape, sizeof escape, "\\%c", (char)code);
        else if (code == '\n' || code == '\r' || code == '\t')
            snprintf(escape, sizeof escape, "\\%c", code == '\n' ? 'n' : code == '\r' ? 'r' : 't');
        else if (rf_code_is_printable(code)) {
            RF_TRY(rf_tpl_build_part(run, to, text, at, taken));
            continue;
        } else
            snprintf(escape, sizeof escape, code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x", code);
        RF_TRY(rf_tpl_build_bytes(run, to, escape, strlen(escape), mark));
    }
    RF_TRY(rf_tpl_build_bytes(run, to, &quote, 1, 0));
    return text->safe ? build_literal(run, to, ")") : RF_OK;
}

static rf_status build_items(struct rf_run *run, struct rf_tpl_builder *to, const struct rf_tpl_list *list,
                             bool tuple) {
    RF_TRY(build_literal(run, to, tuple ? "(" : "["));
    for (size_t i = 0; i < list->count; i++) {
        if (i) RF_TRY(build_literal(run, to, ", "));
        RF_TRY(rf_tpl_build_repr(run, to, &list->items[i]));
    }
    return build_literal(run, to, !tuple ? "]" : list->count == 1 ? ",)" : ")");
}

static rf_status build_dict(struct rf_run *run, struct rf_tpl_builder *to, const struct rf_tpl_dict *dict) {
    RF_TRY(build_literal(run, to, "{"));
    for (size_t i = 0; i < dict->count; i++) {
        if (i) RF_TRY(build_literal(run, to, ", "));
        RF_TRY(rf_tpl_build_repr(run, to, &dict->entries[i].key));
        RF_TRY(build_literal(run, to, ": "));
        RF_TRY(rf_tpl_build_repr(run, to, &dict->entries[i].value));
    }
    return build_literal(run, to, "}");
}

static rf_status build_view(struct rf_run *run, struct rf_tpl_builder *to, const struct rf_tpl_value *value) {
    struct rf_tpl_list *list = NULL;
    RF_TRY(rf_tpl_to_list(run, value, &list));
    RF_TRY(build_literal(run, to, rf_tpl_type_name(value)));
    RF_TRY(build_literal(run, to, "("));
    RF_TRY(build_items(run, to, list, false));
    return build_literal(run, to, ")");
}

static rf_status build_other(struct rf_run *run, struct rf_tpl_builder *to, const struct rf_tpl_value *value) {
    char text[128];
    struct rf_tpl_value length;
    bool found;
    switch (value->kind) {
    case RF_TPL_RANGE:
        if (value->range->step == 1)
            snprintf(text, sizeof text, "range(%lld, %lld)", (long long)value->range->start,
                     (long long)value->range->stop);
        else
            snprintf(text, sizeof text, "range(%lld, %lld, %lld)", (long long)value->range->start,
                     (long long)value->range->stop, (long long)value->range->step);
        return build_literal(run, to, text);
    case RF_TPL_NAMESPACE:
        RF_TRY(build_literal(run, to, "<Namespace "));
        RF_TRY(build_dict(run, to, value->dict));
        return build_literal(run, to, ">");
    case RF_TPL_MACRO:
        RF_TRY(build_literal(run, to, "<Macro "));
        RF_TRY(build_text_repr(run, to, value->macro->node->name));
        return build_literal(run, to, ">");
    case RF_TPL_LOOP:
        RF_TRY(rf_loop_attribute(run, value->loop, &(struct rf_tpl_text){.bytes = "length", .length = 6}, &found,
                                 &length));
        snprintf(text, sizeof text, "<LoopContext %lld/%lld>", (long long)value->loop->index0 + 1,
                 (long long)length.integer);
        return build_literal(run, to, text);
    default: return rf_run_fail(run, "an object of type '%s' cannot be printed", rf_tpl_type_name(value));
    }
}

rf_status rf_tpl_build_repr(struct rf_run *run, struct rf_tpl_builder *to, const struct rf_tpl_value *value) {
    char text[RF_TPL_FLOAT_BYTES];
    rf_status status;
    RF_TRY(rf_run_steps(run, 1));
    switch (value->kind) {
    case RF_TPL_MISSING:
    case RF_TPL_UNDEFINED: return build_literal(run, to, "Undefined");
    case RF_TPL_NONE: return build_literal(run, to, "None");
    case RF_TPL_BOOL: return build_literal(run, to, value->boolean ? "True" : "False");
    case RF_TPL_INT:
        snprintf(text, sizeof text, "%lld", (long long)value->integer);
        return build_literal(run, to, text);
    case RF_TPL_FLOAT: return rf_tpl_build_bytes(run, to, text, rf_tpl_float_repr(value->real, text), 0);
    case RF_TPL_TEXT: return build_text_repr(run, to, value->text);
    default: break;
    }
    RF_TRY(rf_run_enter(run));
    if (value->kind == RF_TPL_LIST || value->kind == RF_TPL_TUPLE)
        status = build_items(run, to, value->list, value->kind == RF_TPL_TUPLE);
    else if (value->kind == RF_TPL_DICT)
        status = build_dict(run, to, value->dict);
    else if (value->kind == RF_TPL_VIEW)
        status = build_view(run, to, value);
    else
        status = build_other(run, to, value);
    rf_run_leave(run);
    return status;
}

rf_status rf_tpl_build_str(struct rf_run *run, struct rf_tpl_builder *to, const struct rf_tpl_value *value) {
    if (value->kind == RF_TPL_TEXT) return rf_tpl_build_part(run, to, value->text, 0, value->text->length);
    if (value->kind == RF_TPL_UNDEFINED || value->kind == RF_TPL_MISSING) return RF_OK;
    return rf_tpl_build_repr(run, to, value);
}

rf_status rf_tpl_str(struct rf_run *run, const struct rf_tpl_value *value, struct rf_tpl_text **out) {
    struct rf_tpl_builder to = {0};
    if (value->kind == RF_TPL_TEXT) {
        *out = value->text;
        return RF_OK;
    }
    RF_TRY(rf_tpl_build_str(run, &to, value));
    struct rf_tpl_text *text = rf_tpl_built(run, &to);
    if (!text) return RF_E_NO_MEMORY;
    *out = text;
    return RF_OK;
}
