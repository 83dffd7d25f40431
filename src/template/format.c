/* Formatting: "…" % values and "…".format(…), with the specifications of both.
 *
 * The format's own characters keep their marks, as do texts that are put in; digits and padding are data. */
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "template/template_impl.h"

enum { PRECISION_MAX = 100, NUMBER_BYTES = 640 };

struct spec {
    const char *fill; /* one code point; NULL: the default */
    size_t fill_bytes;
    char align, sign, grouping, type; /* 0: none given */
    bool alternate, zero;
    int64_t width, precision; /* -1: none given */
};

static rf_status literal(struct rf_run *run, struct rf_tpl_builder *to, const char *text, size_t bytes) {
    return rf_tpl_build_bytes(run, to, text, bytes, 0);
}

/* Pads what a builder got since start: the text stands at its end. */
static rf_status build_padded(struct rf_run *run, struct rf_tpl_builder *to, const struct rf_tpl_text *text,
                              const struct spec *spec, char align) {
    struct rf_tpl_text fill = {.bytes = spec->fill ? spec->fill : " ", .length = spec->fill ? spec->fill_bytes : 1};
    int64_t chars = (int64_t)rf_text_chars(text->bytes, text->length);
    int64_t room = spec->width > chars ? spec->width - chars : 0;
    if (room > RF_TPL_TEXT_BYTES_MAX)
        return rf_fail(RF_E_NO_MEMORY, "a text is longer than %u MiB", RF_TPL_TEXT_BYTES_MAX >> 20);
    int64_t left = align == '<' ? 0 : align == '>' ? room : room / 2;
    RF_TRY(rf_run_steps(run, (uint64_t)room));
    for (int64_t i = 0; i < left; i++) RF_TRY(rf_tpl_build_part(run, to, &fill, 0, fill.length));
    RF_TRY(rf_tpl_build_part(run, to, text, 0, text->length));
    for (int64_t i = left; i < room; i++) RF_TRY(rf_tpl_build_part(run, to, &fill, 0, fill.length));
    return RF_OK;
}

/* ---- numbers ---- */

static void use_point(char *text) { /* what snprintf wrote, whatever the locale's point */
    const char *point = localeconv()->decimal_point;
    char *found = *point && strcmp(point, ".") != 0 ? strstr(text, point) : NULL;
    if (!found) return;
    *found = '.';
    memmove(found + 1, found + strlen(point), strlen(found + strlen(point)) + 1);
}

/* The digits of a number without its sign. */
static rf_status digits_of(struct rf_run *run, const struct rf_tpl_value *value, const struct spec *spec,
                           char *text) {
    char type = spec->type;
    if (rf_tpl_is_integer(value) && strchr("dixXobn", type ? type : 'd')) {
        int64_t number = rf_tpl_integer(value);
        uint64_t size = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
        const char *prefix = !spec->alternate ? ""
                             : type == 'x'    ? "0x"
                             : type == 'X'    ? "0X"
                             : type == 'o'    ? "0o"
                                              : "";
        if (type == 'b') {
            size_t at = 0;
            if (spec->alternate) at += (size_t)sprintf(text, "0b");
            int bits = 64 - (size ? __builtin_clzll(size) : 63);
            for (int i = bits; i-- > 0;) text[at++] = (char)('0' + (size >> i & 1));
            text[at] = 0;
        } else {
            const char *format = type == 'x' ? "%s%llx" : type == 'X' ? "%s%llX" : type == 'o' ? "%s%llo" : "%s%llu";
            snprintf(text, NUMBER_BYTES, format, prefix, (unsigned long long)size);
        }
        return RF_OK;
    }
    double real = fabs(rf_tpl_real(value));
    int64_t precision = spec->precision < 0 ? 6 : spec->precision;
    if (precision > PRECISION_MAX)
        return rf_run_fail(run, "format: a precision above %d is not supported", PRECISION_MAX);
    if (type == '%') real *= 100;
    bool upper = type == 'F' || type == 'E' || type == 'G';
    if (!isfinite(real)) {
        snprintf(text, NUMBER_BYTES, "%s", isnan(real) ? (upper ? "NAN" : "nan") : upper ? "INF" : "inf");
    } else if (!type && spec->precision < 0) {
        rf_tpl_float_repr(real, text);
    } else {
        char format[16];
        char kind = type == '%' ? 'f' : !type || type == 'n' ? 'g' : type;
        snprintf(format, sizeof format, spec->alternate ? "%%#.*%c" : "%%.*%c", kind);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(text, NUMBER_BYTES, format, (int)precision, real);
#pragma GCC diagnostic pop
        use_point(text);
        if (!type && !strpbrk(text, ".e")) strcat(text, ".0");
    }
    if (type == '%') strcat(text, "%");
    return RF_OK;
}

/* Puts separators between groups of three digits before the point. */
static void group(char *text, char separator) {
    size_t whole = strspn(text, "0123456789"), rest = strlen(text + whole) + 1;
    size_t more = whole ? (whole - 1) / 3 : 0; /* at most 102: 309 digits before the point, 100 behind it */
    memmove(text + whole + more, text + whole, rest);
    for (size_t from = whole, to = whole + more, count = 0; from-- > 0; count++) {
        if (count && count % 3 == 0) text[--to] = separator;
        text[--to] = text[from];
    }
}

static rf_status build_number(struct rf_run *run, struct rf_tpl_builder *to, const struct rf_tpl_value *value,
                              const struct spec *spec) {
    char text[NUMBER_BYTES + 8], signed_text[NUMBER_BYTES + 16];
    RF_TRY(digits_of(run, value, spec, text));
    if (spec->grouping) group(text, spec->grouping);
    bool negative =
        value->kind == RF_TPL_FLOAT ? signbit(value->real) && !isnan(value->real) : rf_tpl_integer(value) < 0;
    const char *sign = negative ? "-" : spec->sign == '+' ? "+" : spec->sign == ' ' ? " " : "";
    char align = spec->align ? spec->align : spec->zero ? '=' : '>';
    if (align == '=') { /* the padding stands behind the sign */
        struct spec rest = *spec;
        size_t length = strlen(sign);
        if (!rest.fill) rest.fill = spec->zero ? "0" : " ", rest.fill_bytes = 1;
        rest.width = rest.width > (int64_t)length ? rest.width - (int64_t)length : 0;
        RF_TRY(literal(run, to, sign, length));
        struct rf_tpl_text digits = {.bytes = text, .length = strlen(text)};
        return build_padded(run, to, &digits, &rest, '>');
    }
    snprintf(signed_text, sizeof signed_text, "%s%s", sign, text);
    struct rf_tpl_text whole = {.bytes = signed_text, .length = strlen(signed_text)};
    return build_padded(run, to, &whole, spec, align);
}

/* ---- "…".format(…) ---- */

static int64_t read_number(const char **at, const char *end) {
    int64_t value = -1;
    for (; *at < end && **at >= '0' && **at <= '9'; ++*at)
        value = value < 0 ? **at - '0' : value > INT32_MAX ? value : value * 10 + (**at - '0');
    return value;
}

static bool is_align(char c) {
    return c == '<' || c == '>' || c == '^' || c == '=';
}

static bool read_spec(const char *at, size_t bytes, struct spec *spec) {
    const char *end = at + bytes;
    *spec = (struct spec){.width = -1, .precision = -1};
    if (at < end) {
        size_t first = rf_text_char_bytes((unsigned char)*at);
        if (at + first < end && is_align(at[first])) {
            spec->fill = at;
            spec->fill_bytes = first;
            spec->align = at[first];
            at += first + 1;
        } else if (is_align(*at)) {
            spec->align = *at++;
        }
    }
    if (at < end && (*at == '+' || *at == '-' || *at == ' ')) spec->sign = *at++;
    if (at < end && *at == '#') spec->alternate = at++ != NULL;
    if (at < end && *at == '0') spec->zero = at++ != NULL;
    spec->width = read_number(&at, end);
    if (at < end && (*at == ',' || *at == '_')) spec->grouping = *at++;
    if (at < end && *at == '.') {
        at++;
        spec->precision = read_number(&at, end);
        if (spec->precision < 0) return false;
    }
    if (at < end) spec->type = *at++;
    return at == end;
}

rf_status rf_tpl_format_value(struct rf_run *run, const struct rf_tpl_value *value, const char *text, size_t bytes,
                              struct rf_tpl_builder *to) {
    struct spec spec;
    if (!bytes) return rf_tpl_build_str(run, to, value);
    if (!read_spec(text, bytes, &spec)) return rf_run_fail(run, "format: an invalid format specifier");
    if (value->kind == RF_TPL_TEXT) {
        if ((spec.type && spec.type != 's') || spec.sign || spec.align == '=' || spec.grouping || spec.alternate)
            return rf_run_fail(run, "format: a specifier that is not for str");
        if (spec.zero && !spec.fill) spec.fill = "0", spec.fill_bytes = 1;
        struct rf_tpl_text *part = rf_tpl_text_part(run, value->text, 0, value->text->length);
        if (!part) return RF_E_NO_MEMORY;
        if (spec.precision >= 0) part->length = rf_text_offset(part->bytes, part->length, (size_t)spec.precision);
        return build_padded(run, to, part, &spec, spec.align ? spec.align : '<');
    }
    if (!rf_tpl_is_number(value))
        return rf_run_fail(run, "format: a specifier that '%s' does not have", rf_tpl_type_name(value));
    bool whole = rf_tpl_is_integer(value);
    if (spec.type && !strchr(whole ? "bdoxXneEfFgG%" : "neEfFgG%", spec.type))
        return rf_run_fail(run, "format: the code '%c' is not for '%s'", spec.type, rf_tpl_type_name(value));
    if (whole && spec.precision >= 0 && (!spec.type || strchr("bdoxXn", spec.type)))
        return rf_run_fail(run, "format: a precision is not allowed for an integer");
    if (whole && spec.grouping && spec.type && strchr("boxX", spec.type))
        return rf_run_fail(run, "format: grouping of these digits is not supported");
    if (spec.zero && spec.grouping) return rf_run_fail(run, "format: grouping with zeros is not supported");
    return build_number(run, to, value, &spec);
}

struct formatter {
    struct rf_run *run;
    const struct rf_tpl_text *format;
    const struct rf_tpl_call *call;
    int64_t next; /* the number of the next {}; -1: fields are numbered */
};

static rf_status first_of_field(struct formatter *formatter, const char *name, size_t bytes,
                                struct rf_tpl_value *out) {
    struct rf_run *run = formatter->run;
    int64_t index = -1;
    const char *at = name;
    if (!bytes) {
        if (formatter->next < 0) return rf_run_fail(run, "format: numbered and automatic fields are mixed");
        index = formatter->next++;
    } else if (*name >= '0' && *name <= '9') {
        index = read_number(&at, name + bytes);
        if (at != name + bytes) index = -1;
        if (formatter->next > 0) return rf_run_fail(run, "format: numbered and automatic fields are mixed");
        formatter->next = -1;
    }
    if (index >= 0) {
        if (index >= (int64_t)formatter->call->count)
            return rf_run_fail(run, "format: there is no argument %lld", (long long)index);
        *out = formatter->call->args[index];
        return RF_OK;
    }
    for (size_t i = 0; i < formatter->call->named_count; i++) {
        const struct rf_tpl_text *each = formatter->call->names[i];
        if (each->length != bytes || memcmp(each->bytes, name, bytes) != 0) continue;
        *out = formatter->call->named[i];
        return RF_OK;
    }
    return rf_run_fail(run, "format: there is no argument '%.*s'", (int)RF_MIN(bytes, (size_t)64), name);
}

/* name, then .attribute and [item]. */
static rf_status field_value(struct formatter *formatter, size_t from, size_t to, struct rf_tpl_value *out) {
    const struct rf_tpl_text *format = formatter->format;
    struct rf_run *run = formatter->run;
    size_t at = from;
    while (at < to && format->bytes[at] != '.' && format->bytes[at] != '[') at++;
    RF_TRY(first_of_field(formatter, format->bytes + from, at - from, out));
    while (at < to) {
        bool is_item = format->bytes[at] == '[';
        size_t start = ++at;
        while (at < to && (is_item ? format->bytes[at] != ']' : format->bytes[at] != '.' && format->bytes[at] != '['))
            at++;
        struct rf_tpl_value of = *out;
        struct rf_tpl_text *name = rf_tpl_text_part(run, format, start, at - start);
        if (!name) return RF_E_NO_MEMORY;
        if (!name->length || (is_item && at >= to)) return rf_run_fail(run, "format: an empty attribute in a field");
        int64_t index;
        struct rf_tpl_value item = rf_tpl_of_text(name);
        if (is_item && rf_tpl_read_int(name->bytes, name->length, 10, &index) && name->bytes[0] != '-')
            item = rf_tpl_int(index);
        RF_TRY(is_item ? rf_tpl_getitem(run, &of, &item, out) : rf_tpl_getattr(run, &of, name, out));
        at += is_item;
    }
    return RF_OK;
}

/* One field, without its braces. */
static rf_status build_field(struct formatter *formatter, size_t from, size_t to, struct rf_tpl_builder *out) {
    const struct rf_tpl_text *format = formatter->format;
    struct rf_run *run = formatter->run;
    struct rf_tpl_value value;
    size_t name_end = from, depth = 0;
    for (; name_end < to; name_end++) { /* ! and : inside brackets belong to the name */
        char c = format->bytes[name_end];
        depth += c == '[';
        if (c == ']' && depth) depth--;
        if (!depth && (c == '!' || c == ':')) break;
    }
    RF_TRY(field_value(formatter, from, name_end, &value));
    size_t spec = name_end;
    char conversion = 0;
    if (spec < to && format->bytes[spec] == '!') {
        if (spec + 1 >= to) return rf_run_fail(run, "format: a conversion is missing");
        conversion = format->bytes[spec + 1];
        spec += 2;
        if (spec < to && format->bytes[spec] != ':') return rf_run_fail(run, "format: expected ':' after conversion");
    }
    if (conversion && conversion != 's' && conversion != 'r')
        return rf_run_fail(run, "format: the conversion '%c' is not supported", conversion);
    if (conversion) {
        struct rf_tpl_builder made = {0};
        RF_TRY(conversion == 'r' ? rf_tpl_build_repr(run, &made, &value) : rf_tpl_build_str(run, &made, &value));
        value = rf_tpl_of_text(rf_tpl_built(run, &made));
        if (!value.text) return RF_E_NO_MEMORY;
    }
    struct rf_tpl_text *how = rf_tpl_text_part(run, format, spec < to ? spec + 1 : to, spec < to ? to - spec - 1 : 0);
    if (!how) return RF_E_NO_MEMORY;
    if (how->length && memchr(how->bytes, '{', how->length))
        return rf_run_fail(run, "format: fields inside a specifier are not supported");
    return rf_tpl_format_value(run, &value, how->bytes, how->length, out);
}

rf_status rf_tpl_format(struct rf_run *run, const struct rf_tpl_text *format, const struct rf_tpl_call *call,
                        struct rf_tpl_text **out) {
    struct formatter formatter = {run, format, call, 0};
    struct rf_tpl_builder to = {0};
    for (size_t at = 0; at < format->length; at++) {
        char c = format->bytes[at];
        bool twice = at + 1 < format->length && format->bytes[at + 1] == c;
        if ((c != '{' && c != '}') || twice) {
            RF_TRY(rf_tpl_build_part(run, &to, format, at, 1));
            at += twice && (c == '{' || c == '}');
            continue;
        }
        if (c == '}') return rf_run_fail(run, "format: a single '}'");
        size_t end = at + 1, depth = 1;
        for (; end < format->length; end++) {
            depth += format->bytes[end] == '{';
            if (format->bytes[end] == '}' && --depth == 0) break;
        }
        if (end >= format->length) return rf_run_fail(run, "format: a single '{'");
        struct rf_tpl_builder field = {0};
        RF_TRY(build_field(&formatter, at + 1, end, &field));
        struct rf_tpl_text *text = rf_tpl_built(run, &field);
        if (!text) return RF_E_NO_MEMORY;
        if (format->safe) RF_TRY(rf_tpl_escape(run, text, &text));
        RF_TRY(rf_tpl_build_part(run, &to, text, 0, text->length));
        at = end;
    }
    *out = rf_tpl_built(run, &to);
    return *out ? RF_OK : RF_E_NO_MEMORY;
}

/* ---- "…" % … ---- */

struct percent {
    struct rf_run *run;
    const struct rf_tpl_value *args;
    size_t used;
};

static rf_status next_arg(struct percent *percent, struct rf_tpl_value *out) {
    bool is_tuple = percent->args->kind == RF_TPL_TUPLE;
    size_t count = is_tuple ? percent->args->list->count : 1;
    if (percent->used >= count) return rf_run_fail(percent->run, "not enough arguments for format string");
    *out = is_tuple ? percent->args->list->items[percent->used] : *percent->args;
    percent->used++;
    return RF_OK;
}

/* One conversion; *at is behind the percent sign, and behind the conversion afterwards. */
static rf_status build_conversion(struct percent *percent, const struct rf_tpl_text *format, size_t *at,
                                  struct rf_tpl_builder *to) {
    struct rf_run *run = percent->run;
    struct spec spec = {.width = -1, .precision = -1};
    struct rf_tpl_value value = {0};
    const char *text = format->bytes, *end = text + format->length, *here;
    if (*at < format->length && text[*at] == '(') {
        size_t start = ++*at, depth = 1;
        for (; *at < format->length; ++*at) {
            depth += text[*at] == '(';
            if (text[*at] == ')' && --depth == 0) break;
        }
        if (*at >= format->length) return rf_run_fail(run, "incomplete format key");
        if (percent->args->kind != RF_TPL_DICT) return rf_run_fail(run, "format requires a mapping");
        const struct rf_tpl_value *found = rf_tpl_dict_get(percent->args->dict, text + start, *at - start);
        if (!found) return rf_run_fail(run, "a key of the format is missing");
        value = *found;
        percent->used = 1;
        ++*at;
    }
    for (; *at < format->length && text[*at] && strchr("-+ 0#", text[*at]); ++*at) {
        if (text[*at] == '-') spec.align = '<';
        if (text[*at] == '+' || (text[*at] == ' ' && !spec.sign)) spec.sign = text[*at];
        if (text[*at] == '0') spec.zero = true;
        if (text[*at] == '#') spec.alternate = true;
    }
    here = text + *at;
    spec.width = read_number(&here, end);
    if (here < end && *here == '.') {
        here++;
        spec.precision = read_number(&here, end);
        if (spec.precision < 0) spec.precision = 0;
    }
    if (here < end && (*here == 'l' || *here == 'h' || *here == 'L')) here++;
    if (here >= end) return rf_run_fail(run, "incomplete format");
    spec.type = *here++;
    *at = (size_t)(here - text);
    if (spec.type == '%') return literal(run, to, "%", 1);
    if (value.kind == RF_TPL_MISSING) RF_TRY(next_arg(percent, &value));
    if (spec.type == 's' || spec.type == 'r' || spec.type == 'c') {
        struct rf_tpl_builder made = {0};
        if (spec.type == 'c') {
            if (value.kind == RF_TPL_INT && value.integer >= 0 && value.integer <= 0x10ffff &&
                (value.integer < 0xd800 || value.integer > 0xdfff))
                RF_TRY(rf_tpl_build_code(run, &made, (uint32_t)value.integer, 0));
            else if (value.kind == RF_TPL_TEXT && rf_tpl_text_chars(value.text) == 1)
                RF_TRY(rf_tpl_build_str(run, &made, &value));
            else
                return rf_run_fail(run, "%%c requires int or char");
        } else {
            RF_TRY(spec.type == 'r' ? rf_tpl_build_repr(run, &made, &value) : rf_tpl_build_str(run, &made, &value));
        }
        struct rf_tpl_text *part = rf_tpl_built(run, &made);
        if (!part) return RF_E_NO_MEMORY;
        if (spec.precision >= 0) part->length = rf_text_offset(part->bytes, part->length, (size_t)spec.precision);
        if (format->safe) {
            part->safe = value.kind == RF_TPL_TEXT && value.text->safe && spec.type == 's';
            RF_TRY(rf_tpl_escape(run, part, &part));
        }
        spec.zero = false;
        return build_padded(run, to, part, &spec, spec.align ? spec.align : '>');
    }
    if (value.kind == RF_TPL_UNDEFINED) return rf_tpl_fail_undefined(run, &value);
    if (!strchr("diueEfFgGxXo", spec.type))
        return rf_run_fail(run, "unsupported format character '%c'",
                           spec.type > ' ' && spec.type < 127 ? spec.type : '?');
    if (!rf_tpl_is_number(&value))
        return rf_run_fail(run, "%%%c format: a number is required, not '%s'", spec.type, rf_tpl_type_name(&value));
    if (strchr("xXo", spec.type) && value.kind == RF_TPL_FLOAT)
        return rf_run_fail(run, "%%%c format: an integer is required, not 'float'", spec.type);
    if (strchr("diu", spec.type)) {
        spec.type = 'd';
        if (value.kind == RF_TPL_FLOAT) {
            if (!(fabs(value.real) < 9223372036854775808.0))
                return rf_run_fail(run, "an integer has more than 64 bits");
            value = rf_tpl_int((int64_t)value.real);
        }
    }
    if (strchr("dxXo", spec.type) && spec.precision >= 0)
        return rf_run_fail(run, "a precision of an integer is not supported");
    if (spec.align) spec.zero = false;
    return build_number(run, to, &value, &spec);
}

rf_status rf_tpl_percent(struct rf_run *run, const struct rf_tpl_text *format, const struct rf_tpl_value *args,
                         struct rf_tpl_value *out) {
    struct percent percent = {run, args, 0};
    struct rf_tpl_builder to = {0};
    for (size_t at = 0; at < format->length;) {
        if (format->bytes[at] != '%') {
            RF_TRY(rf_tpl_build_part(run, &to, format, at, 1));
            at++;
            continue;
        }
        at++;
        RF_TRY(build_conversion(&percent, format, &at, &to));
    }
    bool is_mapping = args->kind == RF_TPL_DICT || args->kind == RF_TPL_LIST || args->kind == RF_TPL_UNDEFINED ||
                      args->kind == RF_TPL_RANGE;
    if (!is_mapping && percent.used < (args->kind == RF_TPL_TUPLE ? args->list->count : 1))
        return rf_run_fail(run, "not all arguments converted during string formatting");
    struct rf_tpl_text *made = rf_tpl_built(run, &to);
    if (!made) return RF_E_NO_MEMORY;
    made->safe = format->safe;
    *out = rf_tpl_of_text(made);
    return RF_OK;
}
