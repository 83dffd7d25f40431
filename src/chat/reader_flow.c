/* Giving out parts of an answer: content, reasoning, and calls with their arguments.
 *
 * White space around reasoning and calls is no part of the content: white space at the end of a text is held back
 * until the next text, and dropped where reasoning or a call comes instead. Two texts of one kind that something else
 * separated are joined by a line end.
 *
 * Must not give out anything once a callback has said no: its status is RF_E_CANCELLED, and stays (reader.c). */
#include "chat/reader_impl.h"

#include <stdio.h>

#include "base/utf8.h"

static rf_status hand_over(struct rf_chat_reader *reader, const struct rf_flow *flow, const char *text,
                           size_t bytes) {
    if (!bytes || !flow->give || flow->give(reader->params.user, text, bytes)) return RF_OK;
    return rf_fail(RF_E_CANCELLED, "the caller wants no more of the answer");
}

static rf_status give_blanks(struct rf_chat_reader *reader, struct rf_flow *flow) {
    size_t bytes = flow->blank_bytes;
    flow->blank_bytes = 0;
    return hand_over(reader, flow, flow->blanks, bytes);
}

/* White space at the end of what is known: held back, unless it is too long for that. */
static rf_status keep_blanks(struct rf_chat_reader *reader, struct rf_flow *flow, const char *text, size_t bytes) {
    if (!flow->flowing && bytes <= sizeof flow->blanks - flow->blank_bytes) {
        memcpy(flow->blanks + flow->blank_bytes, text, bytes);
        flow->blank_bytes += bytes;
        return RF_OK;
    }
    flow->flowing = true;
    rf_status status = give_blanks(reader, flow);
    return status ? status : hand_over(reader, flow, text, bytes);
}

rf_status rf_flow_give(struct rf_chat_reader *reader, struct rf_flow *flow, const char *text, size_t bytes) {
    size_t from = 0, end = bytes;
    while (flow->skipping && from < bytes && rf_is_blank(text[from])) from++;
    while (end > from && rf_is_blank(text[end - 1])) end--;
    rf_status status = RF_OK;
    if (end > from) {
        if (flow->gap && flow->begun) status = hand_over(reader, flow, "\n", 1);
        flow->begun = true;
        flow->skipping = flow->gap = flow->flowing = false;
        if (!status) status = give_blanks(reader, flow);
        if (!status) status = hand_over(reader, flow, text + from, end - from);
    }
    if (!status && end < bytes) status = keep_blanks(reader, flow, text + end, bytes - end);
    return status;
}

void rf_flow_break(struct rf_flow *flow) {
    flow->blank_bytes = 0;
    flow->flowing = false;
    flow->skipping = flow->gap = true;
}

rf_status rf_flow_end(struct rf_chat_reader *reader, struct rf_flow *flow) {
    return give_blanks(reader, flow);
}

/* ---- calls ---- */

static rf_status want_more(bool more) {
    return more ? RF_OK : rf_fail(RF_E_CANCELLED, "the caller wants no more of the answer");
}

rf_status rf_reader_begin_call(struct rf_chat_reader *reader) {
    rf_flow_break(&reader->content);
    rf_flow_break(&reader->reasoning);
    rf_assert(!reader->calling);
    reader->calling = true;
    reader->argument_bytes = 0;
    size_t index = reader->call_count++;
    return want_more(!reader->params.call || reader->params.call(reader->params.user, index, reader->name));
}

rf_status rf_reader_give_arguments(struct rf_chat_reader *reader, const char *text, size_t bytes) {
    if (!bytes) return RF_OK;
    rf_assert(reader->calling);
    if (reader->mode != RF_READ_BROKEN) { /* of a malformed call nothing is kept */
        size_t room = reader->argument_bytes + bytes + 1;
        if (room > reader->argument_capacity) {
            size_t capacity = 2 * room + 64;
            rf_status status = rf_account_resize(&reader->account, (void **)&reader->arguments,
                                                 reader->argument_capacity, capacity, "the arguments of a call");
            if (status) return status;
            reader->argument_capacity = capacity;
        }
        memcpy(reader->arguments + reader->argument_bytes, text, bytes);
        reader->argument_bytes += bytes;
        reader->arguments[reader->argument_bytes] = 0;
    }
    return want_more(!reader->params.arguments ||
                     reader->params.arguments(reader->params.user, reader->call_count - 1, text, bytes));
}

rf_status rf_reader_give_escaped(struct rf_chat_reader *reader, const char *text, size_t bytes) {
    static const char special[] = "\"\\\n\t\r", escapes[] = "\"\\ntr";
    char out[512];
    size_t used = 0;
    rf_status status = RF_OK;
    for (size_t i = 0; i < bytes && !status; i++) {
        unsigned char c = (unsigned char)text[i];
        if (used > sizeof out - 16 && rf_begins_character(text[i])) { /* room for a character, or an escape */
            status = rf_reader_give_arguments(reader, out, used);
            used = 0;
        }
        const char *place = c ? strchr(special, c) : NULL;
        if (place) {
            out[used++] = '\\';
            out[used++] = escapes[place - special];
        } else if (c < 0x20) {
            used += (size_t)snprintf(out + used, 8, "\\u%04x", c);
        } else {
            out[used++] = (char)c;
        }
    }
    return status ? status : rf_reader_give_arguments(reader, out, used);
}

/* How many of the first bytes of a text, at most so many, are whole characters. */
static size_t whole_characters(const char *text, size_t most) {
    size_t bytes = strnlen(text, most);
    return bytes - rf_utf8_unfinished(text, bytes);
}

void rf_reader_break_call(struct rf_chat_reader *reader, const char *format, ...) {
    char why[160];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, sizeof why, format, arguments);
    va_end(arguments);
    if (!*reader->error) {
        snprintf(reader->error, sizeof reader->error, "call %zu of the answer (%.*s) is malformed: %s",
                 reader->call_count, (int)whole_characters(reader->name, 80), reader->name, why);
        reader->error[whole_characters(reader->error, sizeof reader->error)] = 0;
        for (char *at = reader->error; *at; at++) /* a JSON parser quotes what it met */
            if ((unsigned char)*at < 0x20 || *at == 0x7f) *at = '?';
    }
    reader->mode = RF_READ_BROKEN;
}

rf_status rf_reader_end_call(struct rf_chat_reader *reader) {
    struct rf_json_tree tree = {0};
    const char *text = reader->argument_bytes ? reader->arguments : "";
    rf_status status = rf_json_read(&reader->account, text, reader->argument_bytes, "the arguments", &tree);
    if (status && status != RF_E_SYNTAX) return status;
    if (status)
        rf_reader_break_call(reader, "%s", rf_error_text());
    else if (!json_is_object(tree.root))
        rf_reader_break_call(reader, "the arguments are no JSON object");
    bool good = !status && json_is_object(tree.root);
    if (!status) rf_json_tree_finish(&tree);
    reader->mode = RF_READ_AFTER;
    reader->calling = false;
    if (!good || !reader->params.call_end) return RF_OK;
    struct rf_chat_tool_call call = {reader->has_id ? reader->id : NULL, reader->name, text};
    return want_more(reader->params.call_end(reader->params.user, reader->call_count - 1, &call));
}
