/* The methods of texts.
 *
 * Searching works on bytes, which is right in UTF-8; positions that a template sees are code points. The result of a
 * method of a safe text is safe, and texts given to it are escaped, as markupsafe does. */
#include "base/utf8.h"
#include "template/template_impl.h"

#define METHOD(name_)                                                                                                \
    static rf_status name_(struct rf_run *run, const struct rf_tpl_value *self, const struct rf_tpl_value *args,     \
                           const struct rf_tpl_call *call, struct rf_tpl_value *out)

static rf_status give(const struct rf_tpl_value *self, struct rf_tpl_text *text, struct rf_tpl_value *out) {
    text->safe = self->text->safe;
    *out = rf_tpl_of_text(text);
    return RF_OK;
}

/* A text argument; NULL where it is not given or None. */
static rf_status text_arg(struct rf_run *run, const struct rf_tpl_value *self, const struct rf_tpl_value *arg,
                          struct rf_tpl_text **out) {
    *out = NULL;
    if (arg->kind == RF_TPL_MISSING || arg->kind == RF_TPL_NONE) return RF_OK;
    RF_TRY(rf_tpl_arg_text(run, arg, out));
    return self->text->safe ? rf_tpl_escape(run, *out, out) : RF_OK;
}

static rf_status needed_text(struct rf_run *run, const struct rf_tpl_value *self, const struct rf_tpl_value *arg,
                             struct rf_tpl_text **out) {
    RF_TRY(rf_tpl_arg_text(run, arg, out));
    return self->text->safe ? rf_tpl_escape(run, *out, out) : RF_OK;
}

/* ---- case ---- */

METHOD(m_upper) {
    struct rf_tpl_text *text = NULL;
    (void)args, (void)call;
    RF_TRY(rf_tpl_text_upper(run, self->text, &text));
    return give(self, text, out);
}

METHOD(m_lower) {
    struct rf_tpl_text *text = NULL;
    (void)args, (void)call;
    RF_TRY(rf_tpl_text_lower(run, self->text, &text));
    return give(self, text, out);
}

METHOD(m_capitalize) {
    struct rf_tpl_text *text = NULL;
    (void)args, (void)call;
    RF_TRY(rf_tpl_text_capitalize(run, self->text, &text));
    return give(self, text, out);
}

/* title and swapcase. */
static rf_status map_case(struct rf_run *run, const struct rf_tpl_value *self, bool title, struct rf_tpl_value *out) {
    const struct rf_tpl_text *text = self->text;
    struct rf_tpl_builder to = {0};
    bool inside = false; /* behind a cased letter */
    for (size_t at = 0, taken; at < text->length; at += taken) {
        uint32_t code = rf_utf8_decode(text->bytes + at, text->length - at, &taken), form[3];
        bool upper = title ? !inside : rf_code_is_lower(code);
        size_t count = !upper  ? rf_code_lower(code, form)
                       : title ? rf_code_title(code, form)
                               : rf_code_upper(code, form);
        for (size_t i = 0; i < count; i++) RF_TRY(rf_tpl_build_code(run, &to, form[i], rf_tpl_own(text, at)));
        inside = rf_code_is_cased(code);
    }
    struct rf_tpl_text *made = rf_tpl_built(run, &to);
    return made ? give(self, made, out) : RF_E_NO_MEMORY;
}

METHOD(m_title) {
    (void)args, (void)call;
    return map_case(run, self, true, out);
}

METHOD(m_swapcase) {
    (void)args, (void)call;
    return map_case(run, self, false, out);
}

/* ---- ends ---- */

static rf_status strip_ends(struct rf_run *run, const struct rf_tpl_value *self, const struct rf_tpl_value *args,
                            int which, struct rf_tpl_value *out) {
    struct rf_tpl_text *chars = NULL, *text = NULL;
    RF_TRY(text_arg(run, self, &args[0], &chars));
    RF_TRY(rf_tpl_text_strip(run, self->text, chars, which, &text));
    return give(self, text, out);
}

METHOD(m_strip) {
    (void)call;
    return strip_ends(run, self, args, 3, out);
}

METHOD(m_lstrip) {
    (void)call;
    return strip_ends(run, self, args, 1, out);
}

METHOD(m_rstrip) {
    (void)call;
    return strip_ends(run, self, args, 2, out);
}

/* start and end, in code points, as bytes. False: the range is empty because it begins behind the end. */
static rf_status byte_range(struct rf_run *run, const struct rf_tpl_text *text, const struct rf_tpl_value *start,
                            const struct rf_tpl_value *end, size_t *from, size_t *to, bool *fits) {
    int64_t chars = (int64_t)rf_text_chars(text->bytes, text->length), bounds[2] = {0, chars};
    const struct rf_tpl_value *given[2] = {start, end};
    for (size_t i = 0; i < 2; i++) {
        if (given[i]->kind == RF_TPL_MISSING || given[i]->kind == RF_TPL_NONE) continue;
        RF_TRY(rf_tpl_arg_int(run, given[i], 0, &bounds[i]));
        if (bounds[i] < 0) bounds[i] = bounds[i] < -chars ? 0 : bounds[i] + chars;
    }
    if (bounds[1] > chars) bounds[1] = chars;
    *fits = bounds[0] <= bounds[1];
    if (!*fits) return RF_OK;
    *from = rf_text_offset(text->bytes, text->length, (size_t)bounds[0]);
    *to = rf_text_offset(text->bytes, text->length, (size_t)bounds[1]);
    return RF_OK;
}

static bool has_end(const struct rf_tpl_text *text, const struct rf_tpl_text *part, bool at_start) {
    if (part->length > text->length) return false;
    return !part->length ||
           memcmp(text->bytes + (at_start ? 0 : text->length - part->length), part->bytes, part->length) == 0;
}

/* startswith and endswith; the argument may be a tuple. */
static rf_status ends(struct rf_run *run, const struct rf_tpl_value *self, const struct rf_tpl_value *args,
                      bool at_start, struct rf_tpl_value *out) {
    size_t from = 0, to = 0;
    bool fits, holds = false;
    RF_TRY(rf_run_steps(run, self->text->length / 64));
    bool is_tuple = args[0].kind == RF_TPL_TUPLE;
    size_t count = is_tuple ? args[0].list->count : 1;
    RF_TRY(byte_range(run, self->text, &args[1], &args[2], &from, &to, &fits));
    struct rf_tpl_text range = {.bytes = self->text->bytes + from, .length = to - from};
    for (size_t i = 0; i < count && !holds; i++) {
        const struct rf_tpl_value *part = is_tuple ? &args[0].list->items[i] : &args[0];
        if (part->kind != RF_TPL_TEXT)
            return rf_run_fail(run, "%s first arg must be str or a tuple of str, not '%s'",
                               at_start ? "startswith" : "endswith", rf_tpl_type_name(part));
        holds = fits && has_end(&range, part->text, at_start);
    }
    *out = rf_tpl_bool(holds);
    return RF_OK;
}

METHOD(m_startswith) {
    (void)call;
    return ends(run, self, args, true, out);
}

METHOD(m_endswith) {
    (void)call;
    return ends(run, self, args, false, out);
}

static rf_status remove_end(struct rf_run *run, const struct rf_tpl_value *self, const struct rf_tpl_value *args,
                            bool at_start, struct rf_tpl_value *out) {
    struct rf_tpl_text *part = NULL;
    RF_TRY(rf_tpl_arg_text(run, &args[0], &part));
    size_t cut = has_end(self->text, part, at_start) ? part->length : 0;
    struct rf_tpl_text *text = rf_tpl_text_part(run, self->text, at_start ? cut : 0, self->text->length - cut);
    if (!text) return RF_E_NO_MEMORY;
    text->safe = false;
    *out = rf_tpl_of_text(text);
    return RF_OK;
}

METHOD(m_removeprefix) {
    (void)call;
    return remove_end(run, self, args, true, out);
}

METHOD(m_removesuffix) {
    (void)call;
    return remove_end(run, self, args, false, out);
}

/* ---- searching ---- */

static size_t find_last(const struct rf_tpl_text *text, const struct rf_tpl_text *part) {
    if (part->length > text->length) return SIZE_MAX;
    for (size_t at = text->length - part->length + 1; at-- > 0;)
        if (!part->length || memcmp(text->bytes + at, part->bytes, part->length) == 0) return at;
    return SIZE_MAX;
}

static rf_status find(struct rf_run *run, const struct rf_tpl_value *self, const struct rf_tpl_value *args, bool last,
                      bool must, struct rf_tpl_value *out) {
    struct rf_tpl_text *part = NULL;
    size_t from = 0, to = 0, found = SIZE_MAX;
    bool fits;
    RF_TRY(rf_tpl_arg_text(run, &args[0], &part));
    RF_TRY(rf_run_steps(run, self->text->length / 16));
    RF_TRY(byte_range(run, self->text, &args[1], &args[2], &from, &to, &fits));
    struct rf_tpl_text range = {.bytes = self->text->bytes + from, .length = to - from};
    if (fits) found = last ? find_last(&range, part) : rf_tpl_text_find(&range, 0, part);
    if (found == SIZE_MAX && must) return rf_run_fail(run, "substring not found");
    *out = rf_tpl_int(found == SIZE_MAX ? -1 : (int64_t)rf_text_chars(self->text->bytes, from + found));
    return RF_OK;
}

METHOD(m_find) {
    (void)call;
    return find(run, self, args, false, false, out);
}

METHOD(m_rfind) {
    (void)call;
    return find(run, self, args, true, false, out);
}

METHOD(m_index) {
    (void)call;
    return find(run, self, args, false, true, out);
}

METHOD(m_rindex) {
    (void)call;
    return find(run, self, args, true, true, out);
}

METHOD(m_count) {
    struct rf_tpl_text *part = NULL;
    size_t from = 0, to = 0;
    int64_t count = 0;
    bool fits;
    (void)call;
    RF_TRY(rf_tpl_arg_text(run, &args[0], &part));
    RF_TRY(rf_run_steps(run, self->text->length / 16));
    RF_TRY(byte_range(run, self->text, &args[1], &args[2], &from, &to, &fits));
    struct rf_tpl_text range = {.bytes = self->text->bytes + from, .length = to - from};
    if (fits && !part->length)
        count = (int64_t)rf_text_chars(range.bytes, range.length) + 1;
    else
        for (size_t at = 0; fits && (at = rf_tpl_text_find(&range, at, part)) != SIZE_MAX; at += part->length)
            count++;
    *out = rf_tpl_int(count);
    return RF_OK;
}

METHOD(m_replace) {
    struct rf_tpl_text *old = NULL, *with = NULL, *text = NULL;
    int64_t count;
    (void)call;
    RF_TRY(needed_text(run, self, &args[0], &old));
    RF_TRY(needed_text(run, self, &args[1], &with));
    RF_TRY(rf_tpl_arg_int(run, &args[2], -1, &count));
    RF_TRY(rf_tpl_text_replace(run, self->text, old, with, count, &text));
    return give(self, text, out);
}

/* ---- splitting and joining ---- */

static rf_status add_part(struct rf_run *run, struct rf_tpl_list *list, const struct rf_tpl_text *text, size_t from,
                          size_t to) {
    struct rf_tpl_text *part = rf_tpl_text_part(run, text, from, to - from);
    if (!part) return RF_E_NO_MEMORY;
    struct rf_tpl_value value = rf_tpl_of_text(part);
    return rf_tpl_list_add(run, list, &value);
}

/* The code point before at. */
static uint32_t code_before(const struct rf_tpl_text *text, size_t at, size_t *start) {
    size_t taken;
    *start = at - 1;
    while (*start && ((unsigned char)text->bytes[*start] & 0xc0) == 0x80) --*start;
    return rf_utf8_decode(text->bytes + *start, text->length - *start, &taken);
}

static rf_status split_spaces(struct rf_run *run, const struct rf_tpl_text *text, int64_t most,
                              struct rf_tpl_list *list) {
    size_t at = 0, taken;
    for (;;) {
        while (at < text->length && rf_code_is_space(rf_utf8_decode(text->bytes + at, text->length - at, &taken)))
            at += taken;
        if (at >= text->length) return RF_OK;
        size_t from = at;
        if (most == 0) { /* the rest, without blanks at its end */
            size_t end = text->length, start;
            while (end > from && rf_code_is_space(code_before(text, end, &start))) end = start;
            return add_part(run, list, text, from, end);
        }
        while (at < text->length && !rf_code_is_space(rf_utf8_decode(text->bytes + at, text->length - at, &taken)))
            at += taken;
        RF_TRY(add_part(run, list, text, from, at));
        if (most > 0) most--;
    }
}

static rf_status rsplit_spaces(struct rf_run *run, const struct rf_tpl_text *text, int64_t most,
                               struct rf_tpl_list *list) {
    size_t at = text->length, start, taken;
    for (;;) {
        while (at && rf_code_is_space(code_before(text, at, &start))) at = start;
        if (!at) return RF_OK;
        size_t to = at;
        if (most == 0) {
            size_t from = 0;
            while (from < to && rf_code_is_space(rf_utf8_decode(text->bytes + from, text->length - from, &taken)))
                from += taken;
            return add_part(run, list, text, from, to);
        }
        while (at && !rf_code_is_space(code_before(text, at, &start))) at = start;
        RF_TRY(add_part(run, list, text, at, to));
        if (most > 0) most--;
    }
}

static void reverse(struct rf_tpl_list *list) {
    for (size_t i = 0; i < list->count / 2; i++) {
        struct rf_tpl_value other = list->items[i];
        list->items[i] = list->items[list->count - 1 - i];
        list->items[list->count - 1 - i] = other;
    }
}

static rf_status split(struct rf_run *run, const struct rf_tpl_value *self, const struct rf_tpl_value *args,
                       bool from_right, struct rf_tpl_value *out) {
    const struct rf_tpl_text *text = self->text;
    struct rf_tpl_text *separator = NULL;
    int64_t most;
    struct rf_tpl_list *list = rf_tpl_list_new(run, 0);
    if (!list) return RF_E_NO_MEMORY;
    if (args[0].kind != RF_TPL_MISSING && args[0].kind != RF_TPL_NONE)
        RF_TRY(rf_tpl_arg_text(run, &args[0], &separator));
    RF_TRY(rf_tpl_arg_int(run, &args[1], -1, &most));
    RF_TRY(rf_run_steps(run, text->length / 16));
    if (separator && !separator->length) return rf_run_fail(run, "empty separator");
    if (!separator) {
        RF_TRY(from_right ? rsplit_spaces(run, text, most, list) : split_spaces(run, text, most, list));
    } else if (from_right) {
        size_t to = text->length;
        for (; most != 0; most--) {
            size_t at = find_last(&(struct rf_tpl_text){.bytes = text->bytes, .length = to}, separator);
            if (at == SIZE_MAX) break;
            RF_TRY(add_part(run, list, text, at + separator->length, to));
            to = at;
        }
        RF_TRY(add_part(run, list, text, 0, to));
    } else {
        size_t from = 0, at;
        for (; most != 0 && (at = rf_tpl_text_find(text, from, separator)) != SIZE_MAX; most--) {
            RF_TRY(add_part(run, list, text, from, at));
            from = at + separator->length;
        }
        RF_TRY(add_part(run, list, text, from, text->length));
    }
    if (from_right) reverse(list);
    *out = rf_tpl_of_list(list, false);
    return RF_OK;
}

METHOD(m_split) {
    (void)call;
    return split(run, self, args, false, out);
}

METHOD(m_rsplit) {
    (void)call;
    return split(run, self, args, true, out);
}

static rf_status partition(struct rf_run *run, const struct rf_tpl_value *self, const struct rf_tpl_value *args,
                           bool last, struct rf_tpl_value *out) {
    const struct rf_tpl_text *text = self->text;
    struct rf_tpl_text *separator = NULL;
    struct rf_tpl_list *list = rf_tpl_list_new(run, 3);
    if (!list) return RF_E_NO_MEMORY;
    RF_TRY(needed_text(run, self, &args[0], &separator));
    if (!separator->length) return rf_run_fail(run, "empty separator");
    size_t at = last ? find_last(text, separator) : rf_tpl_text_find(text, 0, separator);
    size_t cuts[4] = {0, at, at + separator->length, text->length};
    if (at == SIZE_MAX) cuts[1] = cuts[2] = last ? 0 : text->length;
    for (size_t i = 0; i < 3; i++) RF_TRY(add_part(run, list, text, cuts[i], cuts[i + 1]));
    *out = rf_tpl_of_list(list, true);
    return RF_OK;
}

METHOD(m_partition) {
    (void)call;
    return partition(run, self, args, false, out);
}

METHOD(m_rpartition) {
    (void)call;
    return partition(run, self, args, true, out);
}

METHOD(m_splitlines) {
    struct rf_tpl_list *list = NULL;
    (void)call;
    RF_TRY(rf_tpl_text_lines(run, self->text, rf_tpl_truth(&args[0]), &list));
    *out = rf_tpl_of_list(list, false);
    return RF_OK;
}

METHOD(m_join) {
    struct rf_tpl_iter iter;
    struct rf_tpl_builder to = {0};
    (void)call;
    RF_TRY(rf_tpl_iter_begin(run, &args[0], &iter));
    for (size_t i = 0;; i++) {
        struct rf_tpl_value item;
        struct rf_tpl_text *text = NULL;
        bool found;
        RF_TRY(rf_tpl_iter_next(run, &iter, &item, &found));
        if (!found) break;
        if (self->text->safe) {
            RF_TRY(rf_tpl_str(run, &item, &text));
            RF_TRY(rf_tpl_escape(run, text, &text));
        } else {
            if (item.kind != RF_TPL_TEXT)
                return rf_run_fail(run, "sequence item %zu: expected str instance, '%s' found", i,
                                   rf_tpl_type_name(&item));
            text = item.text;
        }
        if (i) RF_TRY(rf_tpl_build_part(run, &to, self->text, 0, self->text->length));
        RF_TRY(rf_tpl_build_part(run, &to, text, 0, text->length));
    }
    struct rf_tpl_text *made = rf_tpl_built(run, &to);
    return made ? give(self, made, out) : RF_E_NO_MEMORY;
}

/* ---- padding and format ---- */

static rf_status pad(struct rf_run *run, const struct rf_tpl_value *self, const struct rf_tpl_value *args, char align,
                     struct rf_tpl_value *out) {
    struct rf_tpl_text blank = {.bytes = " ", .length = 1, .mark = 1}, *fill = &blank, *text = NULL;
    int64_t width;
    RF_TRY(rf_tpl_arg_int(run, &args[0], 0, &width));
    if (args[1].kind != RF_TPL_MISSING) RF_TRY(needed_text(run, self, &args[1], &fill));
    if (rf_text_chars(fill->bytes, fill->length) != 1)
        return rf_run_fail(run, "the fill character must be exactly one character long");
    RF_TRY(rf_tpl_text_pad(run, self->text, width, fill, align, &text));
    return give(self, text, out);
}

METHOD(m_ljust) {
    (void)call;
    return pad(run, self, args, '<', out);
}

METHOD(m_rjust) {
    (void)call;
    return pad(run, self, args, '>', out);
}

METHOD(m_center) {
    (void)call;
    return pad(run, self, args, '^', out);
}

METHOD(m_zfill) {
    struct rf_tpl_text zero = {.bytes = "0", .length = 1, .mark = 1}, *text = NULL, *rest;
    struct rf_tpl_builder to = {0};
    int64_t width;
    (void)call;
    RF_TRY(rf_tpl_arg_int(run, &args[0], 0, &width));
    bool sign = self->text->length && (self->text->bytes[0] == '-' || self->text->bytes[0] == '+');
    rest = rf_tpl_text_part(run, self->text, sign, self->text->length - sign);
    if (!rest) return RF_E_NO_MEMORY;
    RF_TRY(rf_tpl_text_pad(run, rest, width < INT64_MIN + 1 ? 0 : width - sign, &zero, '>', &text));
    RF_TRY(rf_tpl_build_part(run, &to, self->text, 0, sign));
    RF_TRY(rf_tpl_build_part(run, &to, text, 0, text->length));
    struct rf_tpl_text *made = rf_tpl_built(run, &to);
    return made ? give(self, made, out) : RF_E_NO_MEMORY;
}

METHOD(m_format) {
    struct rf_tpl_text *text = NULL;
    (void)args;
    RF_TRY(rf_tpl_format(run, self->text, call, &text));
    return give(self, text, out);
}

/* ---- questions ---- */

enum question { ALNUM, ALPHA, ASCII, DIGIT, LOWER, SPACE, UPPER, PRINTABLE, TITLE };

static bool ask(const struct rf_tpl_text *text, enum question question) {
    bool cased = false, inside = false;
    for (size_t at = 0, taken; at < text->length; at += taken) {
        uint32_t code = rf_utf8_decode(text->bytes + at, text->length - at, &taken);
        switch (question) {
        case ALNUM:
            if (!rf_code_is_alpha(code) && !rf_code_is_number(code)) return false;
            break;
        case ALPHA:
            if (!rf_code_is_alpha(code)) return false;
            break;
        case ASCII:
            if (code >= 0x80) return false;
            break;
        case DIGIT:
            if (code < 0x80 ? code < '0' || code > '9' : !rf_code_is_number(code)) return false;
            break;
        case SPACE:
            if (!rf_code_is_space(code)) return false;
            break;
        case PRINTABLE:
            if (!rf_code_is_printable(code)) return false;
            break;
        case TITLE:
            if (rf_code_is_upper(code) ? inside : rf_code_is_lower(code) && !inside) return false;
            inside = rf_code_is_cased(code);
            cased |= inside;
            break;
        default:
            if (question == LOWER ? rf_code_is_cased(code) && !rf_code_is_lower(code)
                                  : rf_code_is_cased(code) && !rf_code_is_upper(code))
                return false;
            cased |= rf_code_is_cased(code);
        }
    }
    if (question == LOWER || question == UPPER || question == TITLE) return cased;
    return text->length || question == ASCII || question == PRINTABLE;
}

#define QUESTION(name_, question_)                                                                                   \
    METHOD(name_) {                                                                                                  \
        (void)run, (void)args, (void)call;                                                                           \
        *out = rf_tpl_bool(ask(self->text, question_));                                                              \
        return RF_OK;                                                                                                \
    }
QUESTION(m_isalnum, ALNUM)
QUESTION(m_isalpha, ALPHA)
QUESTION(m_isascii, ASCII)
QUESTION(m_isdigit, DIGIT)
QUESTION(m_islower, LOWER)
QUESTION(m_isspace, SPACE)
QUESTION(m_isupper, UPPER)
QUESTION(m_isprintable, PRINTABLE)
QUESTION(m_istitle, TITLE)

const struct rf_tpl_builtin *rf_tpl_find_text_method(const char *name, size_t bytes) {
    static const struct rf_tpl_builtin methods[] = {
        {"capitalize", "!", 0, m_capitalize},
        {"casefold", NULL, 0, NULL},
        {"center", "!width fill", 1, m_center},
        {"count", "!sub start end", 1, m_count},
        {"encode", NULL, 0, NULL},
        {"endswith", "!suffix start end", 1, m_endswith},
        {"expandtabs", NULL, 0, NULL},
        {"find", "!sub start end", 1, m_find},
        {"format", NULL, 0, m_format},
        {"format_map", NULL, 0, NULL},
        {"index", "!sub start end", 1, m_index},
        {"isalnum", "!", 0, m_isalnum},
        {"isalpha", "!", 0, m_isalpha},
        {"isascii", "!", 0, m_isascii},
        {"isdecimal", "!", 0, m_isdigit},
        {"isdigit", "!", 0, m_isdigit},
        {"isidentifier", NULL, 0, NULL},
        {"islower", "!", 0, m_islower},
        {"isnumeric", "!", 0, m_isdigit},
        {"isprintable", "!", 0, m_isprintable},
        {"isspace", "!", 0, m_isspace},
        {"istitle", "!", 0, m_istitle},
        {"isupper", "!", 0, m_isupper},
        {"join", "!iterable", 1, m_join},
        {"ljust", "!width fill", 1, m_ljust},
        {"lower", "!", 0, m_lower},
        {"lstrip", "!chars", 0, m_lstrip},
        {"maketrans", NULL, 0, NULL},
        {"partition", "!sep", 1, m_partition},
        {"removeprefix", "!prefix", 1, m_removeprefix},
        {"removesuffix", "!suffix", 1, m_removesuffix},
        {"replace", "!old new count", 2, m_replace},
        {"rfind", "!sub start end", 1, m_rfind},
        {"rindex", "!sub start end", 1, m_rindex},
        {"rjust", "!width fill", 1, m_rjust},
        {"rpartition", "!sep", 1, m_rpartition},
        {"rsplit", "sep maxsplit", 0, m_rsplit},
        {"rstrip", "!chars", 0, m_rstrip},
        {"split", "sep maxsplit", 0, m_split},
        {"splitlines", "keepends", 0, m_splitlines},
        {"startswith", "!prefix start end", 1, m_startswith},
        {"strip", "!chars", 0, m_strip},
        {"swapcase", "!", 0, m_swapcase},
        {"title", "!", 0, m_title},
        {"translate", NULL, 0, NULL},
        {"upper", "!", 0, m_upper},
        {"zfill", "!width", 1, m_zfill},
    };
    return rf_tpl_find_builtin(methods, RF_COUNT(methods), name, bytes);
}
