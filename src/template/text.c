/* Texts with a mark per byte.
 *
 * A text never changes. One that was made by joining ends in a buffer with room behind it (rf_tpl_grow): joining more
 * to it appends there, so that a template that collects its result in a variable takes linear time and memory.
 *
 * Invariant: no text is longer than RF_TPL_TEXT_BYTES_MAX (rf_tpl_build_room refuses more); what other texts see of a
 * buffer is never written again. */
#include "template/template_impl.h"

#include "base/utf8.h"

struct rf_tpl_grow {
    char *bytes;
    unsigned char *own;
    size_t length, capacity;
};

static rf_status too_long(void) {
    return rf_fail(RF_E_NO_MEMORY, "a text is longer than %u MiB", RF_TPL_TEXT_BYTES_MAX >> 20);
}

struct rf_tpl_text *rf_tpl_text_of(struct rf_run *run, const char *bytes, size_t length, unsigned char mark) {
    struct rf_tpl_text *text = rf_arena_take_raw(&run->arena, sizeof *text);
    if (text) *text = (struct rf_tpl_text){.bytes = bytes, .length = length, .mark = mark};
    return text;
}

struct rf_tpl_text *rf_tpl_text_part(struct rf_run *run, const struct rf_tpl_text *text, size_t from, size_t length) {
    struct rf_tpl_text *part = rf_tpl_text_of(run, text->bytes + from, length, text->mark);
    if (!part) return NULL;
    if (text->own) part->own = text->own + from;
    part->safe = text->safe;
    return part;
}

static void copy_marks(unsigned char *to, const struct rf_tpl_text *text, size_t from, size_t length) {
    if (text->own)
        memcpy(to, text->own + from, length);
    else
        memset(to, text->mark, length);
}

static bool append(struct rf_tpl_grow *grow, const struct rf_tpl_text *text) {
    if (text->length > grow->capacity - grow->length) return false;
    if (!text->length) return true;
    memcpy(grow->bytes + grow->length, text->bytes, text->length);
    copy_marks(grow->own + grow->length, text, 0, text->length);
    grow->length += text->length;
    return true;
}

rf_status rf_tpl_text_join(struct rf_run *run, struct rf_tpl_text *a, struct rf_tpl_text *b,
                           struct rf_tpl_text **out) {
    size_t length = a->length + b->length;
    if (length > RF_TPL_TEXT_BYTES_MAX) return too_long();
    struct rf_tpl_grow *grow = a->grow;
    if (!grow || a->bytes + a->length != grow->bytes + grow->length || b->length > grow->capacity - grow->length) {
        RF_TRY(rf_run_steps(run, length / 64));
        size_t capacity = length + (a->grow ? length : 16);
        grow = rf_arena_take_raw(&run->arena, sizeof *grow + 2 * capacity);
        if (!grow) return RF_E_NO_MEMORY;
        *grow = (struct rf_tpl_grow){(char *)(grow + 1), (unsigned char *)(grow + 1) + capacity, 0, capacity};
        append(grow, a);
    }
    RF_TRY(rf_run_steps(run, b->length / 64));
    size_t start = grow->length - a->length;
    append(grow, b);
    struct rf_tpl_text *joined = rf_tpl_text_of(run, grow->bytes + start, length, 0);
    if (!joined) return RF_E_NO_MEMORY;
    joined->own = grow->own + start;
    joined->grow = grow;
    *out = joined;
    return RF_OK;
}

size_t rf_tpl_text_chars(const struct rf_tpl_text *text) {
    return rf_text_chars(text->bytes, text->length);
}

bool rf_tpl_text_is(const struct rf_tpl_text *text, const char *literal) {
    size_t length = strlen(literal);
    return text->length == length && memcmp(text->bytes, literal, length) == 0;
}

bool rf_tpl_text_equal(const struct rf_tpl_text *a, const struct rf_tpl_text *b) {
    return a->length == b->length && (a->length == 0 || memcmp(a->bytes, b->bytes, a->length) == 0);
}

size_t rf_tpl_text_find(const struct rf_tpl_text *text, size_t from, const struct rf_tpl_text *part) {
    if (from > text->length) return SIZE_MAX;
    if (!part->length) return from;
    const char *found = memmem(text->bytes + from, text->length - from, part->bytes, part->length);
    return found ? (size_t)(found - text->bytes) : SIZE_MAX;
}

/* ---- building ---- */

rf_status rf_tpl_build_room(struct rf_run *run, struct rf_tpl_builder *to, size_t more) {
    if (more > RF_TPL_TEXT_BYTES_MAX || to->length + more > RF_TPL_TEXT_BYTES_MAX) return too_long();
    RF_TRY(rf_run_steps(run, more / 64));
    size_t length = to->length + more;
    if (length <= to->capacity) return RF_OK;
    size_t capacity = RF_MAX(to->capacity ? 2 * to->capacity : 64, length);
    char *bytes = rf_arena_take_raw(&run->arena, capacity);
    unsigned char *own = bytes ? rf_arena_take_raw(&run->arena, capacity) : NULL;
    if (!own) return RF_E_NO_MEMORY;
    if (to->length) {
        memcpy(bytes, to->bytes, to->length);
        memcpy(own, to->own, to->length);
    }
    to->bytes = bytes;
    to->own = own;
    to->capacity = capacity;
    return RF_OK;
}

rf_status rf_tpl_build_bytes(struct rf_run *run, struct rf_tpl_builder *to, const char *bytes, size_t length,
                             unsigned char mark) {
    RF_TRY(rf_tpl_build_room(run, to, length));
    if (length) {
        memcpy(to->bytes + to->length, bytes, length);
        memset(to->own + to->length, mark, length);
    }
    to->length += length;
    return RF_OK;
}

rf_status rf_tpl_build_part(struct rf_run *run, struct rf_tpl_builder *to, const struct rf_tpl_text *text,
                            size_t from, size_t length) {
    RF_TRY(rf_tpl_build_room(run, to, length));
    if (!length) return RF_OK;
    memcpy(to->bytes + to->length, text->bytes + from, length);
    copy_marks(to->own + to->length, text, from, length);
    to->length += length;
    return RF_OK;
}

rf_status rf_tpl_build_code(struct rf_run *run, struct rf_tpl_builder *to, uint32_t code, unsigned char mark) {
    char bytes[4];
    return rf_tpl_build_bytes(run, to, bytes, rf_utf8_encode(code, bytes), mark);
}

struct rf_tpl_text *rf_tpl_built(struct rf_run *run, const struct rf_tpl_builder *from) {
    struct rf_tpl_text *text = rf_tpl_text_of(run, from->length ? from->bytes : "", from->length, 0);
    if (text && from->length) text->own = from->own;
    return text;
}

rf_status rf_tpl_escape(struct rf_run *run, struct rf_tpl_text *text, struct rf_tpl_text **out) {
    struct rf_tpl_builder to = {0};
    if (text->safe) {
        *out = text;
        return RF_OK;
    }
    for (size_t i = 0; i < text->length; i++) {
        char c = text->bytes[i];
        const char *entity = c == '&'    ? "&amp;"
                             : c == '<'  ? "&lt;"
                             : c == '>'  ? "&gt;"
                             : c == '"'  ? "&#34;"
                             : c == '\'' ? "&#39;"
                                         : NULL;
        if (entity)
            RF_TRY(rf_tpl_build_bytes(run, &to, entity, strlen(entity), rf_tpl_own(text, i)));
        else
            RF_TRY(rf_tpl_build_part(run, &to, text, i, 1));
    }
    struct rf_tpl_text *escaped = rf_tpl_built(run, &to);
    if (!escaped) return RF_E_NO_MEMORY;
    escaped->safe = true;
    *out = escaped;
    return RF_OK;
}
