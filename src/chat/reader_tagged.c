/* Calls whose arguments are text between tags: <parameter=city>Paris</parameter>. The reader makes JSON of them.
 *
 * The text does not tell a string from a number. Where the tag says (DeepSeek) or the offered functions do, that
 * counts: a string is given out as it comes. Else a value is held until its end: what reads as a number, true, false,
 * null, an array or an object is given out as it is; everything else is a string. */
#include "chat/reader_impl.h"

/* Where a mark ends within the next RF_READER_HEAD_MAX bytes; NULL: not there. *more: false where it may yet come. */
static const char *find_near(const struct rf_chat_reader *reader, size_t from, const char *mark, bool *more) {
    size_t end = RF_MIN(reader->bytes, from + RF_READER_HEAD_MAX);
    const char *place = memmem(reader->text + from, end - from, mark, strlen(mark));
    *more = place || reader->final || end == from + RF_READER_HEAD_MAX;
    return place;
}

rf_status rf_read_tagged_head(struct rf_chat_reader *reader, bool *more) {
    const struct rf_call_format *format = reader->call_format;
    size_t from = reader->at, end;
    if (format->name_end) {
        const char *place = find_near(reader, from, format->name_end, more);
        if (!place && *more) return rf_reader_not_a_call(reader);
        if (!place) return RF_OK;
        end = (size_t)(place - reader->text);
        reader->at = end + strlen(format->name_end);
    } else {
        rf_reader_skip_blanks(reader);
        from = end = reader->at;
        while (end < reader->bytes && end - from <= RF_READER_NAME_MAX && reader->text[end] != '<' &&
               !rf_is_blank(reader->text[end]))
            end++;
        reader->at = end;
    }
    bool good = rf_name_is_good(reader->text + from, end - from);
    enum rf_match key = rf_reader_match_next(reader, format->key_open);
    enum rf_match close = rf_reader_match_next(reader, format->close);
    bool certain = key == RF_MATCH_WHOLE || close == RF_MATCH_WHOLE;
    bool open_end = key == RF_MATCH_PART || close == RF_MATCH_PART;
    if (!format->name_end && !reader->final && end == reader->bytes && end - from <= RF_READER_NAME_MAX &&
        end < RF_READER_HELD_MAX)
        open_end = true, certain = false, good = good || end == from; /* the name may go on */
    if (!good || (!certain && !open_end)) return rf_reader_not_a_call(reader);
    if (!certain) {
        reader->at = from;
        *more = false;
        return RF_OK;
    }
    memcpy(reader->name, reader->text + from, end - from);
    reader->name[end - from] = 0;
    rf_reader_drop(reader, reader->at);
    reader->mode = RF_READ_KEY;
    reader->value_bytes = 0;
    rf_status status = rf_reader_begin_call(reader);
    return status ? status : rf_reader_give_arguments(reader, "{", 1);
}

/* Whether the offered functions say that this parameter is a string. */
static bool is_string(const struct rf_chat_reader *reader, const char *key) {
    const json_t *parameters = json_object_get(rf_reader_offered(reader, reader->name), "parameters");
    const json_t *type = json_object_get(json_object_get(json_object_get(parameters, "properties"), key), "type");
    return json_is_string(type) && !strcmp(json_string_value(type), "string");
}

/* A parameter's tag is complete, up to its value. */
static rf_status begin_value(struct rf_chat_reader *reader, const char *key, size_t key_bytes, const char *kind,
                             size_t kind_bytes) {
    char text[RF_READER_NAME_MAX + 1];
    bool said = reader->call_format->value_open && kind_bytes;
    memcpy(text, key, key_bytes);
    text[key_bytes] = 0;
    reader->string_value = said ? kind_bytes == 4 && !memcmp(kind, "true", 4) : is_string(reader, text);
    reader->value_begun = false;
    rf_status status = reader->argument_bytes > 1 ? rf_reader_give_arguments(reader, ", ", 2) : RF_OK;
    if (!status) status = rf_reader_give_arguments(reader, "\"", 1);
    if (!status) status = rf_reader_give_escaped(reader, text, key_bytes);
    if (!status) status = rf_reader_give_arguments(reader, "\": ", 3);
    if (!status && reader->string_value) status = rf_reader_give_arguments(reader, "\"", 1);
    return status;
}

rf_status rf_read_key(struct rf_chat_reader *reader, bool *more) {
    const struct rf_call_format *format = reader->call_format;
    reader->at = 0;
    rf_reader_skip_blanks(reader);
    rf_reader_drop(reader, reader->at);
    enum rf_match key = rf_reader_match(reader, 0, format->key_open);
    enum rf_match close = rf_reader_match(reader, 0, format->close);
    if (close == RF_MATCH_WHOLE) {
        rf_status status = rf_reader_give_arguments(reader, "}", 1);
        return status ? status : rf_reader_end_call(reader); /* the mark is dropped behind the call */
    }
    if (key == RF_MATCH_PART || close == RF_MATCH_PART || !reader->bytes) {
        *more = false;
        return RF_OK;
    }
    const char *value = NULL, *key_end = NULL;
    size_t from = strlen(format->key_open);
    bool decided = true;
    if (key == RF_MATCH_WHOLE) key_end = find_near(reader, from, format->key_end, &decided);
    if (key_end) {
        value = key_end + strlen(format->key_end);
        if (format->value_open)
            value = find_near(reader, (size_t)(value - reader->text), format->value_open, &decided);
    }
    if (!decided) {
        *more = false;
        return RF_OK;
    }
    size_t key_bytes = key_end ? (size_t)(key_end - reader->text) - from : 0;
    if (!value || !key_bytes || key_bytes > RF_READER_NAME_MAX || memchr(reader->text + from, 0, key_bytes)) {
        rf_reader_break_call(reader, "there is no parameter where one should be");
        return RF_OK;
    }
    const char *kind = key_end + strlen(format->key_end);
    size_t kind_bytes = (size_t)(value - kind);
    while (kind_bytes && rf_is_blank(*kind)) kind++, kind_bytes--;
    rf_status status = begin_value(reader, reader->text + from, key_bytes, kind, kind_bytes);
    rf_reader_drop(reader, (size_t)(value - reader->text) + (format->value_open ? strlen(format->value_open) : 0));
    reader->mode = RF_READ_VALUE;
    reader->at = 0;
    return status;
}

/* Whether a value that is complete is JSON and no string. */
static rf_status is_json(struct rf_chat_reader *reader, const char *text, size_t bytes, bool *json) {
    struct rf_json_tree tree = {0};
    *json = false;
    rf_status status = rf_json_read(&reader->account, text, bytes, "a value", &tree);
    if (status) return status == RF_E_SYNTAX ? RF_OK : status;
    *json = !json_is_string(tree.root);
    rf_json_tree_finish(&tree);
    return RF_OK;
}

static rf_status give_held(struct rf_chat_reader *reader, const char *text, size_t bytes) {
    bool json;
    const char *inner = text;
    size_t inner_bytes = bytes;
    while (inner_bytes && rf_is_blank(*inner)) inner++, inner_bytes--;
    while (inner_bytes && rf_is_blank(inner[inner_bytes - 1])) inner_bytes--;
    rf_status status = is_json(reader, inner, inner_bytes, &json);
    if (status) return status;
    if (json) return rf_reader_give_arguments(reader, inner, inner_bytes);
    status = rf_reader_give_arguments(reader, "\"", 1);
    if (!status) status = rf_reader_give_escaped(reader, text, bytes);
    return status ? status : rf_reader_give_arguments(reader, "\"", 1);
}

/* Only `room` more bytes of values may come, or fewer where a character would be cut. */
static rf_status too_long(struct rf_chat_reader *reader, size_t room) {
    rf_status status = RF_OK;
    while (room && !rf_begins_character(reader->text[room])) room--;
    if (reader->string_value) {
        status = rf_reader_give_escaped(reader, reader->text, room);
        rf_reader_drop(reader, room);
    }
    rf_reader_break_call(reader, "the arguments are longer than %u bytes", RF_READER_ARGUMENTS_MAX);
    return status;
}

rf_status rf_read_value(struct rf_chat_reader *reader, bool *more) {
    const struct rf_call_format *format = reader->call_format;
    size_t place, which;
    if (format->lines && !reader->value_begun && reader->bytes) {
        if (reader->text[0] == '\n') rf_reader_drop(reader, 1);
        reader->value_begun = true;
    }
    bool found = rf_reader_find(reader, reader->at, &format->value_end, 1, &place, &which);
    size_t end = place, room = RF_READER_ARGUMENTS_MAX - reader->value_bytes;
    if (format->lines && end && reader->text[end - 1] == '\n') end--;
    if (end > room) return too_long(reader, room);
    rf_status status = RF_OK;
    if (reader->string_value) {
        status = rf_reader_give_escaped(reader, reader->text, end);
        if (!found) rf_reader_drop(reader, end);
        reader->value_bytes += end;
        if (found && !status) status = rf_reader_give_arguments(reader, "\"", 1);
    } else if (found) {
        status = give_held(reader, reader->text, end);
        reader->value_bytes += end;
    } else {
        reader->at = place;
    }
    if (found) {
        rf_reader_drop(reader, place + strlen(format->value_end));
        reader->mode = RF_READ_KEY;
    } else {
        *more = false;
    }
    return status;
}
