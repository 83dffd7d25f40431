/* What filters and methods do to texts. Marks follow the bytes; a code point whose case changes keeps the mark of its
 * first byte. */
#include "base/utf8.h"
#include "template/template_impl.h"

static uint32_t code_at(const struct rf_tpl_text *text, size_t at, size_t *taken) {
    return rf_utf8_decode(text->bytes + at, text->length - at, taken);
}

static rf_status finish(struct rf_run *run, const struct rf_tpl_builder *from, struct rf_tpl_text **out) {
    struct rf_tpl_text *text = rf_tpl_built(run, from);
    if (!text) return RF_E_NO_MEMORY;
    *out = text;
    return RF_OK;
}

/* ---- case ---- */

/* A capital sigma at the end of a word has a form of its own. */
static bool is_final_sigma(const struct rf_tpl_text *text, size_t at, size_t behind) {
    size_t start = at, taken;
    while (start && ((unsigned char)text->bytes[--start] & 0xc0) == 0x80) {
    }
    if (!at || !rf_code_is_cased(code_at(text, start, &taken))) return false;
    return behind >= text->length || !rf_code_is_cased(code_at(text, behind, &taken));
}

static rf_status build_lower(struct rf_run *run, struct rf_tpl_builder *to, const struct rf_tpl_text *text, size_t at,
                             size_t *taken) {
    uint32_t form[3], code = code_at(text, at, taken);
    size_t count = rf_code_lower(code, form);
    if (code == 0x3a3 && is_final_sigma(text, at, at + *taken)) form[0] = 0x3c2;
    for (size_t i = 0; i < count; i++) RF_TRY(rf_tpl_build_code(run, to, form[i], rf_tpl_own(text, at)));
    return RF_OK;
}

rf_status rf_tpl_text_lower(struct rf_run *run, const struct rf_tpl_text *text, struct rf_tpl_text **out) {
    struct rf_tpl_builder to = {0};
    RF_TRY(rf_tpl_build_room(run, &to, text->length));
    for (size_t at = 0, taken; at < text->length; at += taken) RF_TRY(build_lower(run, &to, text, at, &taken));
    return finish(run, &to, out);
}

rf_status rf_tpl_text_upper(struct rf_run *run, const struct rf_tpl_text *text, struct rf_tpl_text **out) {
    struct rf_tpl_builder to = {0};
    RF_TRY(rf_tpl_build_room(run, &to, text->length));
    for (size_t at = 0, taken; at < text->length; at += taken) {
        uint32_t form[3];
        size_t count = rf_code_upper(code_at(text, at, &taken), form);
        for (size_t i = 0; i < count; i++) RF_TRY(rf_tpl_build_code(run, &to, form[i], rf_tpl_own(text, at)));
    }
    return finish(run, &to, out);
}

rf_status rf_tpl_text_capitalize(struct rf_run *run, const struct rf_tpl_text *text, struct rf_tpl_text **out) {
    struct rf_tpl_builder to = {0};
    for (size_t at = 0, taken; at < text->length; at += taken) {
        if (at) {
            RF_TRY(build_lower(run, &to, text, at, &taken));
            continue;
        }
        uint32_t form[3];
        size_t count = rf_code_title(code_at(text, at, &taken), form);
        for (size_t i = 0; i < count; i++) RF_TRY(rf_tpl_build_code(run, &to, form[i], rf_tpl_own(text, at)));
    }
    return finish(run, &to, out);
}

/* ---- ends ---- */

static bool strips(const struct rf_tpl_text *text, size_t at, const struct rf_tpl_text *chars, size_t *taken) {
    uint32_t code = code_at(text, at, taken);
    if (!chars) return rf_code_is_space(code);
    return chars->length && memmem(chars->bytes, chars->length, text->bytes + at, *taken);
}

rf_status rf_tpl_text_strip(struct rf_run *run, const struct rf_tpl_text *text, const struct rf_tpl_text *chars,
                            int which, struct rf_tpl_text **out) {
    size_t from = 0, to = text->length, taken;
    RF_TRY(rf_run_steps(run, text->length / 64));
    while (which & 1 && from < to && strips(text, from, chars, &taken)) from += taken;
    while (which & 2 && to > from) {
        size_t start = to - 1;
        while (start > from && ((unsigned char)text->bytes[start] & 0xc0) == 0x80) start--;
        if (!strips(text, start, chars, &taken)) break;
        to = start;
    }
    struct rf_tpl_text *part = rf_tpl_text_part(run, text, from, to - from);
    if (!part) return RF_E_NO_MEMORY;
    *out = part;
    return RF_OK;
}

rf_status rf_tpl_text_pad(struct rf_run *run, const struct rf_tpl_text *text, int64_t width,
                          const struct rf_tpl_text *fill, char align, struct rf_tpl_text **out) {
    struct rf_tpl_builder to = {0};
    int64_t chars = (int64_t)rf_text_chars(text->bytes, text->length);
    int64_t room = width > chars ? width - chars : 0;
    if (room > RF_TPL_TEXT_BYTES_MAX)
        return rf_fail(RF_E_NO_MEMORY, "a text is longer than %u MiB", RF_TPL_TEXT_BYTES_MAX >> 20);
    /* the odd one goes left where both are odd, as Python's center has it */
    int64_t left = align == '<' ? 0 : align == '>' ? room : room / 2 + (room & width & 1);
    RF_TRY(rf_run_steps(run, (uint64_t)room));
    for (int64_t i = 0; i < left; i++) RF_TRY(rf_tpl_build_part(run, &to, fill, 0, fill->length));
    RF_TRY(rf_tpl_build_part(run, &to, text, 0, text->length));
    for (int64_t i = left; i < room; i++) RF_TRY(rf_tpl_build_part(run, &to, fill, 0, fill->length));
    return finish(run, &to, out);
}

/* ---- parts ---- */

rf_status rf_tpl_text_replace(struct rf_run *run, const struct rf_tpl_text *text, const struct rf_tpl_text *old,
                              const struct rf_tpl_text *with, int64_t count, struct rf_tpl_text **out) {
    struct rf_tpl_builder to = {0};
    size_t at = 0;
    RF_TRY(rf_run_steps(run, text->length / 16));
    if (!old->length) { /* before each code point and at the end */
        for (; count != 0; count--) {
            RF_TRY(rf_run_steps(run, 1));
            RF_TRY(rf_tpl_build_part(run, &to, with, 0, with->length));
            if (at >= text->length) break;
            size_t bytes = rf_text_char_bytes((unsigned char)text->bytes[at]);
            RF_TRY(rf_tpl_build_part(run, &to, text, at, bytes));
            at += bytes;
        }
    } else {
        for (size_t found; count != 0 && (found = rf_tpl_text_find(text, at, old)) != SIZE_MAX; count--) {
            RF_TRY(rf_run_steps(run, 1));
            RF_TRY(rf_tpl_build_part(run, &to, text, at, found - at));
            RF_TRY(rf_tpl_build_part(run, &to, with, 0, with->length));
            at = found + old->length;
        }
    }
    RF_TRY(rf_tpl_build_part(run, &to, text, at, text->length - at));
    return finish(run, &to, out);
}

static bool ends_line(uint32_t code) {
    return (code >= 0x0a && code <= 0x0d) || (code >= 0x1c && code <= 0x1e) || code == 0x85 || code == 0x2028 ||
           code == 0x2029;
}

rf_status rf_tpl_text_lines(struct rf_run *run, const struct rf_tpl_text *text, bool keep_ends,
                            struct rf_tpl_list **out) {
    struct rf_tpl_list *list = rf_tpl_list_new(run, 0);
    if (!list) return RF_E_NO_MEMORY;
    RF_TRY(rf_run_steps(run, text->length / 16));
    for (size_t at = 0; at < text->length;) {
        size_t end = at, taken = 0, behind;
        while (end < text->length && !ends_line(code_at(text, end, &taken))) end += taken;
        behind = end < text->length ? end + taken : end;
        if (end + 1 < text->length && text->bytes[end] == '\r' && text->bytes[end + 1] == '\n') behind++;
        struct rf_tpl_text *line = rf_tpl_text_part(run, text, at, (keep_ends ? behind : end) - at);
        if (!line) return RF_E_NO_MEMORY;
        struct rf_tpl_value value = rf_tpl_of_text(line);
        RF_TRY(rf_tpl_list_add(run, list, &value));
        at = behind;
    }
    *out = list;
    return RF_OK;
}
