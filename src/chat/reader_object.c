/* Calls that are one JSON object: {"name": "f", "arguments": {…}}, in any order, with further members.
 *
 * The name is given out as soon as it is there, and the arguments as they come. Arguments that come before the name
 * are held until the name is known. A call without a mark (Llama 3) must be stricter, for an answer may well be JSON:
 * it has no other members, it is of a function that was offered, where those are known, and is one only once both its
 * name and the beginning of its arguments are there. */
#include "chat/reader_impl.h"

void rf_object_begin(struct rf_chat_reader *reader) {
    memset(&reader->object, 0, sizeof reader->object);
    reader->listing = true; /* more may follow, in an array or not */
}

/* Forgets text that is no longer needed. */
static void forget(struct rf_chat_reader *reader, size_t bytes) {
    struct rf_object *object = &reader->object;
    rf_reader_drop(reader, bytes);
    object->token = object->token > bytes ? object->token - bytes : 0;
}

/* The text at hand cannot be part of a call. What was not given out yet is the rest of a malformed call. */
static rf_status wrong(struct rf_chat_reader *reader, const char *what) {
    const struct rf_object *object = &reader->object;
    if (!reader->calling) return rf_reader_not_a_call(reader);
    bool within = object->place == RF_OBJECT_KEY || object->place == RF_OBJECT_VALUE;
    forget(reader, within ? object->token : reader->at);
    rf_reader_break_call(reader, "%s", what);
    return RF_OK;
}

/* A string's text, without escapes, in one of the reader's short texts; false: it is no string, empty or too long. */
static rf_status read_string(struct rf_chat_reader *reader, const char *text, size_t bytes, char *out, bool *good) {
    struct rf_json_tree tree = {0};
    *good = false;
    if (bytes > 6 * RF_READER_NAME_MAX + 2) return RF_OK;
    rf_status status = rf_json_read(&reader->account, text, bytes, "a name", &tree);
    if (status) return status == RF_E_SYNTAX ? RF_OK : status;
    size_t length = json_string_length(tree.root);
    const char *value = json_string_value(tree.root);
    *good = value && length && length <= RF_READER_NAME_MAX;
    for (size_t i = 0; i < length && *good; i++) *good = (unsigned char)value[i] >= 0x20 && value[i] != 0x7f;
    if (*good) memcpy(out, value, length + 1);
    if (!*good && json_is_integer(tree.root) && bytes <= RF_READER_NAME_MAX) { /* an id may be a number */
        memcpy(out, text, bytes);
        out[bytes] = 0;
        *good = out == reader->id;
    }
    rf_json_tree_finish(&tree);
    return RF_OK;
}

/* Arguments that are complete: an object, an object within a string, or null. */
static rf_status give_whole(struct rf_chat_reader *reader, const char *text, size_t bytes) {
    if (text[0] == '{') return rf_reader_give_arguments(reader, text, bytes);
    if (bytes == 4 && !memcmp(text, "null", 4)) return rf_reader_give_arguments(reader, "{}", 2);
    struct rf_json_tree tree = {0};
    rf_status status = rf_json_read(&reader->account, text, bytes, "the arguments", &tree);
    if (status && status != RF_E_SYNTAX) return status;
    const char *inner = status ? NULL : json_string_value(tree.root);
    status = inner ? rf_reader_give_arguments(reader, inner, json_string_length(tree.root))
                   : rf_reader_give_arguments(reader, text, bytes);
    rf_json_tree_finish(&tree);
    return status;
}

static rf_status begin(struct rf_chat_reader *reader) {
    struct rf_object *object = &reader->object;
    rf_status status = rf_reader_begin_call(reader);
    if (!status && object->argument_bytes)
        status = give_whole(reader, reader->text + object->arguments_from, object->argument_bytes);
    return status;
}

static enum rf_object_field field_of(const char *key, size_t bytes) {
    static const struct {
        const char *key;
        enum rf_object_field field;
    } fields[] = {{"\"name\"", RF_FIELD_NAME},
                  {"\"tool_name\"", RF_FIELD_NAME},
                  {"\"arguments\"", RF_FIELD_ARGUMENTS},
                  {"\"parameters\"", RF_FIELD_ARGUMENTS},
                  {"\"id\"", RF_FIELD_ID},
                  {"\"tool_call_id\"", RF_FIELD_ID}};
    for (size_t i = 0; i < RF_COUNT(fields); i++)
        if (strlen(fields[i].key) == bytes && !memcmp(key, fields[i].key, bytes)) return fields[i].field;
    return RF_FIELD_OTHER;
}

/* Behind a key. */
static rf_status take_key(struct rf_chat_reader *reader) {
    struct rf_object *object = &reader->object;
    const char *key = reader->text + object->token;
    size_t bytes = reader->at - object->token;
    object->field = field_of(key, bytes);
    bool type = bytes == 6 && !memcmp(key, "\"type\"", 6);
    if (reader->bare && object->field == RF_FIELD_OTHER && !type)
        return wrong(reader, "it has a member that calls do not have");
    if ((object->field == RF_FIELD_NAME && object->named) ||
        (object->field == RF_FIELD_ARGUMENTS && object->has_arguments))
        return wrong(reader, "it has its name or its arguments twice");
    object->place = RF_OBJECT_COLON;
    return RF_OK;
}

/* A value's first byte is at hand. */
static rf_status begin_value(struct rf_chat_reader *reader) {
    struct rf_object *object = &reader->object;
    object->token = reader->at;
    object->place = RF_OBJECT_VALUE;
    memset(&object->scan, 0, sizeof object->scan);
    if (object->field != RF_FIELD_ARGUMENTS) return RF_OK;
    object->has_arguments = true;
    bool braces = reader->text[reader->at] == '{';
    if (reader->bare && !braces) return wrong(reader, "the arguments are no JSON object");
    if (object->named && !reader->calling) {
        rf_status status = begin(reader);
        if (status) return status;
    }
    object->streaming = braces && reader->calling;
    return RF_OK;
}

/* Behind a value. */
static rf_status take_value(struct rf_chat_reader *reader) {
    struct rf_object *object = &reader->object;
    const char *value = reader->text + object->token;
    size_t bytes = reader->at - object->token;
    rf_status status = RF_OK;
    bool good = true;
    object->place = RF_OBJECT_COMMA;
    if (object->field == RF_FIELD_NAME) {
        status = read_string(reader, value, bytes, reader->name, &good);
        if (status) return status;
        if (!good) return wrong(reader, "its name is no text");
        if (reader->bare && reader->tools.root && !rf_reader_offered(reader, reader->name))
            return rf_reader_not_a_call(reader);
        object->named = true;
        if (!reader->bare || object->has_arguments) status = begin(reader);
    } else if (object->field == RF_FIELD_ID) {
        status = read_string(reader, value, bytes, reader->id, &good);
        reader->has_id = good;
    } else if (object->field == RF_FIELD_ARGUMENTS && !object->streaming) {
        if (reader->calling) {
            status = give_whole(reader, value, bytes);
        } else {
            object->arguments_from = object->token;
            object->argument_bytes = bytes;
        }
    }
    object->streaming = false;
    return status;
}

static rf_status end_object(struct rf_chat_reader *reader) {
    struct rf_object *object = &reader->object;
    if (!object->named || (reader->bare && !object->has_arguments)) return wrong(reader, "it has no name");
    rf_status status = RF_OK;
    if (!object->has_arguments) status = rf_reader_give_arguments(reader, "{}", 2);
    forget(reader, reader->at);
    return status ? status : rf_reader_end_call(reader);
}

/* Whether the call has all the text that it may have, and the next byte begins another character. */
static bool too_long(const struct rf_chat_reader *reader) {
    return reader->calling && reader->at - reader->object.token + reader->argument_bytes >= RF_READER_ARGUMENTS_MAX &&
           rf_begins_character(reader->text[reader->at]);
}

/* Goes through a key or a value as far as the text reaches. *ended: it is complete, and reader->at behind it. */
static rf_status scan(struct rf_chat_reader *reader, bool *ended) {
    struct rf_object *object = &reader->object;
    enum rf_json_scanned scanned = RF_SCAN_MORE;
    *ended = false;
    while (scanned == RF_SCAN_MORE && reader->at < reader->bytes) {
        if (!reader->calling && reader->at >= RF_READER_HELD_MAX) return rf_reader_not_a_call(reader);
        if (too_long(reader)) break;
        scanned = rf_json_scan_byte(&object->scan, reader->text[reader->at++]);
    }
    if (scanned == RF_SCAN_BEFORE || scanned == RF_SCAN_WRONG) reader->at--;
    *ended = scanned == RF_SCAN_LAST || scanned == RF_SCAN_BEFORE;
    rf_status status = RF_OK;
    if (object->streaming) {
        status = rf_reader_give_arguments(reader, reader->text + object->token, reader->at - object->token);
        object->token = reader->at;
    }
    if (status || *ended) return status;
    if (scanned == RF_SCAN_WRONG) return wrong(reader, "its text is no JSON");
    if (reader->at < reader->bytes) {
        rf_reader_break_call(reader, "it is longer than %u bytes", RF_READER_ARGUMENTS_MAX);
        forget(reader, object->token);
    }
    return RF_OK;
}

/* A byte that is neither in a key nor in a value. */
static rf_status take_byte(struct rf_chat_reader *reader) {
    struct rf_object *object = &reader->object;
    char c = reader->text[reader->at];
    switch (object->place) {
    case RF_OBJECT_FIRST_KEY:
    case RF_OBJECT_NEXT_KEY:
        if (c == '}' && object->place == RF_OBJECT_FIRST_KEY) break;
        if (c != '"') return wrong(reader, "its text is no JSON");
        object->token = reader->at;
        memset(&object->scan, 0, sizeof object->scan);
        object->place = RF_OBJECT_KEY;
        return RF_OK;
    case RF_OBJECT_COLON:
        if (c != ':') return wrong(reader, "its text is no JSON");
        object->place = RF_OBJECT_VALUE_BEGIN;
        reader->at++;
        return RF_OK;
    case RF_OBJECT_VALUE_BEGIN: return begin_value(reader);
    default:
        if (c == '}') break;
        if (c != ',') return wrong(reader, "its text is no JSON");
        object->place = RF_OBJECT_NEXT_KEY;
        reader->at++;
        return RF_OK;
    }
    reader->at++;
    return end_object(reader);
}

rf_status rf_read_object(struct rf_chat_reader *reader, bool *more) {
    struct rf_object *object = &reader->object;
    rf_status status = RF_OK;
    while (!status && reader->mode == RF_READ_OBJECT && reader->at < reader->bytes) {
        bool ended = false, scanning = object->place == RF_OBJECT_KEY || object->place == RF_OBJECT_VALUE;
        if (scanning) {
            status = scan(reader, &ended);
            if (status || reader->mode != RF_READ_OBJECT) break;
            if (ended) status = object->place == RF_OBJECT_KEY ? take_key(reader) : take_value(reader);
        } else {
            rf_reader_skip_blanks(reader);
            if (!reader->calling && reader->at >= RF_READER_HELD_MAX) return rf_reader_not_a_call(reader);
            if (reader->at < reader->bytes) status = take_byte(reader);
        }
        if (!status && reader->mode == RF_READ_OBJECT && reader->calling) {
            scanning = object->place == RF_OBJECT_KEY || object->place == RF_OBJECT_VALUE;
            forget(reader, scanning ? object->token : reader->at);
        }
    }
    if (status || reader->mode != RF_READ_OBJECT) return status;
    if (reader->final && !reader->calling) return rf_reader_not_a_call(reader);
    *more = false;
    return RF_OK;
}
