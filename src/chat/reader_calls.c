/* Calls: from a mark to a name, arguments that are one JSON value, what follows a call, and what is done about a
 * malformed one. */
#include "chat/reader_impl.h"

void rf_reader_try_call(struct rf_chat_reader *reader, enum rf_reader_mode mode, size_t mark_bytes) {
    reader->mode = mode;
    reader->mark_bytes = reader->at = mark_bytes;
    reader->bare = reader->listing = reader->array = reader->fenced = reader->has_id = false;
    reader->argument_bytes = 0;
    if (mode == RF_READ_OBJECT) rf_object_begin(reader);
}

rf_status rf_reader_not_a_call(struct rf_chat_reader *reader) {
    rf_assert(!reader->calling);
    rf_status status = rf_flow_give(reader, &reader->content, reader->text, reader->mark_bytes);
    rf_reader_drop(reader, reader->mark_bytes);
    reader->at = 0;
    reader->mode = RF_READ_CONTENT;
    return status;
}

bool rf_name_is_good(const char *name, size_t bytes) {
    if (!bytes || bytes > RF_READER_NAME_MAX) return false;
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)name[i] <= ' ' || name[i] == 0x7f || strchr("<>[]{}\"'`|", name[i])) return false;
    return true;
}

const json_t *rf_reader_offered(const struct rf_chat_reader *reader, const char *name) {
    size_t i;
    json_t *tool;
    json_array_foreach(reader->tools.root, i, tool) {
        const json_t *function = json_object_get(tool, "function");
        if (!function) function = tool;
        const char *text = json_string_value(json_object_get(function, "name"));
        if (text && !strcmp(text, name)) return function;
    }
    return NULL;
}

rf_status rf_read_section(struct rf_chat_reader *reader, bool *more) {
    const char *open = reader->call_format->open;
    enum rf_match match = rf_reader_match_next(reader, open);
    if (match == RF_MATCH_NO) return rf_reader_not_a_call(reader);
    if (match == RF_MATCH_PART) {
        *more = false;
        return RF_OK;
    }
    reader->at += strlen(open);
    reader->mode = RF_READ_HEAD;
    return RF_OK;
}

/* ---- heads ---- */

static void trim(const char **text, size_t *bytes) {
    while (*bytes && rf_is_blank(**text)) ++*text, --*bytes;
    while (*bytes && rf_is_blank((*text)[*bytes - 1])) --*bytes;
}

/* "functions.NAME:NUMBER", which is an id and holds a name. */
static bool name_within(const char **text, size_t *bytes) {
    static const char functions[] = "functions.";
    size_t end = *bytes;
    while (end && (*text)[end - 1] >= '0' && (*text)[end - 1] <= '9') end--;
    if (end == *bytes || end < sizeof functions || (*text)[end - 1] != ':') return false;
    if (memcmp(*text, functions, sizeof functions - 1)) return false;
    *text += sizeof functions - 1;
    *bytes = end - 1 - (sizeof functions - 1);
    return true;
}

static bool keep_part(struct rf_chat_reader *reader, char kind, const char *text, size_t bytes) {
    trim(&text, &bytes);
    if (kind == '_') return true;
    if (bytes > RF_READER_NAME_MAX) return false;
    if (kind == 'i' || kind == 'k') {
        memcpy(reader->id, text, bytes);
        reader->id[bytes] = 0;
        reader->has_id = bytes;
        if (kind == 'i') return true;
        if (!name_within(&text, &bytes)) return false;
    }
    if (!rf_name_is_good(text, bytes)) return false;
    memcpy(reader->name, text, bytes);
    reader->name[bytes] = 0;
    return true;
}

/* Takes name and id from a head that has this form. */
static bool fits_head(struct rf_chat_reader *reader, const char *form, const char *head, size_t bytes) {
    reader->has_id = false;
    while (*form) {
        rf_assert(form[0] == '%');
        char kind = form[1];
        const char *mark = form + 2;
        size_t mark_bytes = strcspn(mark, "%");
        const char *place = mark_bytes ? memmem(head, bytes, mark, mark_bytes) : head + bytes;
        if (!place || !keep_part(reader, kind, head, (size_t)(place - head))) return false;
        bytes -= (size_t)(place - head) + mark_bytes;
        head = place + mark_bytes;
        form = mark + mark_bytes;
    }
    trim(&head, &bytes);
    return !bytes;
}

/* The arguments begin with the first brace behind the mark. */
static rf_status read_named_head(struct rf_chat_reader *reader, bool *more) {
    const struct rf_call_format *format = reader->call_format;
    size_t from = reader->at, end = RF_MIN(reader->bytes, from + RF_READER_HEAD_MAX);
    const char *brace = memchr(reader->text + from, '{', end - from);
    if (!brace && !reader->final && end < from + RF_READER_HEAD_MAX) {
        *more = false;
        return RF_OK;
    }
    bool fits = false;
    for (size_t i = 0; brace && !fits && i < RF_COUNT(format->heads) && format->heads[i]; i++)
        fits = fits_head(reader, format->heads[i], reader->text + from, (size_t)(brace - reader->text) - from);
    if (!fits) return rf_reader_not_a_call(reader);
    reader->fenced = format->fence && memmem(reader->text + from, (size_t)(brace - reader->text) - from, "```", 3);
    rf_reader_drop(reader, (size_t)(brace - reader->text));
    reader->mode = RF_READ_ARGUMENTS;
    memset(&reader->scan, 0, sizeof reader->scan);
    return rf_reader_begin_call(reader);
}

/* Objects: one, or an array of them. */
static rf_status read_objects_head(struct rf_chat_reader *reader) {
    if (reader->text[reader->at] == '[' && !reader->array) {
        reader->array = true;
        reader->at++;
        return RF_OK;
    }
    if (reader->text[reader->at] != '{') return rf_reader_not_a_call(reader);
    reader->at++;
    reader->mode = RF_READ_OBJECT;
    rf_object_begin(reader);
    return RF_OK;
}

rf_status rf_read_head(struct rf_chat_reader *reader, bool *more) {
    const struct rf_call_format *format = reader->call_format;
    if (format->kind == RF_CALL_TAGGED) return rf_read_tagged_head(reader, more);
    rf_reader_skip_blanks(reader);
    if (reader->at >= RF_READER_HELD_MAX || (reader->at == reader->bytes && reader->final))
        return rf_reader_not_a_call(reader);
    if (reader->at == reader->bytes) {
        *more = false;
        return RF_OK;
    }
    char first = reader->text[reader->at];
    bool objects = format->kind == RF_CALL_OBJECTS || (format->objects_too && (first == '[' || first == '{'));
    if (objects || reader->array) return read_objects_head(reader);
    return read_named_head(reader, more);
}

/* ---- arguments ---- */

rf_status rf_read_arguments(struct rf_chat_reader *reader, bool *more) {
    enum rf_json_scanned scanned = RF_SCAN_MORE;
    size_t at = 0;
    if (!reader->scan.begun) {
        reader->at = 0;
        rf_reader_skip_blanks(reader);
        rf_reader_drop(reader, reader->at);
        if (reader->bytes && reader->text[0] != '{') scanned = RF_SCAN_WRONG;
    }
    bool too_long = false;
    while (scanned == RF_SCAN_MORE && at < reader->bytes && !too_long) {
        too_long = reader->argument_bytes + at >= RF_READER_ARGUMENTS_MAX && rf_begins_character(reader->text[at]);
        if (!too_long) scanned = rf_json_scan_byte(&reader->scan, reader->text[at++]);
    }
    if (scanned == RF_SCAN_WRONG && at) at--;
    rf_status status = rf_reader_give_arguments(reader, reader->text, at);
    rf_reader_drop(reader, at);
    if (status) return status;
    if (scanned == RF_SCAN_LAST) return rf_reader_end_call(reader);
    if (scanned == RF_SCAN_WRONG)
        rf_reader_break_call(reader, "the arguments are no JSON object");
    else if (too_long)
        rf_reader_break_call(reader, "the arguments are longer than %u bytes", RF_READER_ARGUMENTS_MAX);
    else
        *more = false;
    return RF_OK;
}

/* ---- behind a call ---- */

/* Marks that end calls, and what separates them, are dropped; the next object of a list is a call; anything else is
 * content, where the mark of the next call is found. */
rf_status rf_read_after(struct rf_chat_reader *reader, bool *more) {
    const struct rf_call_format *format = reader->call_format;
    reader->at = 0;
    rf_reader_skip_blanks(reader);
    rf_reader_drop(reader, reader->at);
    if (!reader->bytes) {
        *more = false;
        return RF_OK;
    }
    const char *const marks[] = {reader->channels ? rf_channel_ends[0] : format->close,
                                 reader->channels ? rf_channel_ends[1] : format->section_end,
                                 reader->channels ? rf_channel_ends[2]
                                 : reader->fenced ? "```"
                                                  : NULL};
    bool part = false;
    for (size_t i = 0; i < RF_COUNT(marks); i++) {
        enum rf_match match = marks[i] ? rf_reader_match(reader, 0, marks[i]) : RF_MATCH_NO;
        part |= match == RF_MATCH_PART;
        if (match != RF_MATCH_WHOLE) continue;
        rf_reader_drop(reader, strlen(marks[i]));
        reader->listing = reader->fenced = false;
        if (reader->channels) reader->mode = RF_READ_HEADER;
        return RF_OK;
    }
    if (part) {
        *more = false;
        return RF_OK;
    }
    char first = reader->text[0];
    if (reader->listing && ((reader->array && (first == ',' || first == ']')) || (reader->bare && first == ';'))) {
        rf_reader_drop(reader, 1);
        if (first == ']') reader->listing = false;
    } else if (reader->listing && first == '{') {
        bool bare = reader->bare, array = reader->array;
        rf_reader_try_call(reader, RF_READ_OBJECT, 1);
        reader->bare = bare;
        reader->array = array;
    } else {
        reader->mode = RF_READ_CONTENT;
    }
    return RF_OK;
}

/* The rest of a malformed call is given out as arguments, up to what ends it. */
rf_status rf_read_broken(struct rf_chat_reader *reader, bool *more) {
    const struct rf_call_format *format = reader->call_format;
    const char *const marks[] = {reader->channels ? rf_channel_ends[0] : format->close,
                                 reader->channels ? rf_channel_ends[1] : NULL,
                                 reader->channels ? rf_channel_ends[2] : NULL};
    size_t place, which;
    bool found = rf_reader_find(reader, 0, marks, RF_COUNT(marks), &place, &which);
    rf_status status = rf_reader_give_arguments(reader, reader->text, place);
    rf_reader_drop(reader, place);
    if (status || !found) {
        *more = false;
        return status;
    }
    reader->calling = false;
    reader->mode = RF_READ_AFTER; /* which drops the mark */
    return RF_OK;
}
