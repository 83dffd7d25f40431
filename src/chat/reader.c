/* The reader: takes what a model generates and tells content, reasoning and calls apart (reader_impl.h has the map
 * and the invariants; docs/chat.md what is promised).
 *
 * Must not guess: without a template that says so, text is content. Reasoning that was begun by the prompt is known
 * by the prompt's end. Where a call could begin, nothing is given out until it is one or cannot be one. */
#include "chat/reader_impl.h"

#include <stdlib.h>

#include "base/utf8.h"
#include "runtime/host_memory.h"
#include "runtime/runtime.h"

static rf_status read_content(struct rf_chat_reader *reader, bool *more);
static rf_status read_reasoning(struct rf_chat_reader *reader, bool *more);

static const rf_reader_step steps[RF_READ_MODES] = {
    [RF_READ_CONTENT] = read_content,        [RF_READ_REASONING] = read_reasoning, [RF_READ_HEADER] = rf_read_header,
    [RF_READ_SECTION] = rf_read_section,     [RF_READ_HEAD] = rf_read_head,        [RF_READ_OBJECT] = rf_read_object,
    [RF_READ_ARGUMENTS] = rf_read_arguments, [RF_READ_KEY] = rf_read_key,          [RF_READ_VALUE] = rf_read_value,
    [RF_READ_AFTER] = rf_read_after,         [RF_READ_BROKEN] = rf_read_broken,
};

static rf_status run(struct rf_chat_reader *reader) {
    bool more = true;
    rf_status status = RF_OK;
    while (!status && more) {
        rf_assert(reader->at <= reader->bytes);
        status = steps[reader->mode](reader, &more);
    }
    return status;
}

/* ---- the text at hand ---- */

enum rf_match rf_reader_match(const struct rf_chat_reader *reader, size_t at, const char *mark) {
    size_t length = strlen(mark), there = reader->bytes - at;
    if (memcmp(reader->text + at, mark, RF_MIN(length, there))) return RF_MATCH_NO;
    return there >= length ? RF_MATCH_WHOLE : reader->final ? RF_MATCH_NO : RF_MATCH_PART;
}

void rf_reader_skip_blanks(struct rf_chat_reader *reader) {
    size_t end = reader->calling ? reader->bytes : RF_MIN(reader->bytes, (size_t)RF_READER_HELD_MAX);
    while (reader->at < end && rf_is_blank(reader->text[reader->at])) reader->at++;
}

enum rf_match rf_reader_match_next(struct rf_chat_reader *reader, const char *mark) {
    rf_reader_skip_blanks(reader);
    if (!reader->calling && reader->at >= RF_READER_HELD_MAX) return RF_MATCH_NO;
    return rf_reader_match(reader, reader->at, mark);
}

bool rf_reader_find(const struct rf_chat_reader *reader, size_t from, const char *const *marks, size_t count,
                    size_t *place, size_t *which) {
    for (size_t at = from; at < reader->bytes; at++) {
        size_t best = 0;
        bool part = false;
        for (size_t i = 0; i < count; i++) {
            if (!marks[i] || marks[i][0] != reader->text[at]) continue;
            enum rf_match match = rf_reader_match(reader, at, marks[i]);
            part |= match == RF_MATCH_PART;
            if (match != RF_MATCH_WHOLE || strlen(marks[i]) <= best) continue;
            best = strlen(marks[i]);
            *which = i;
        }
        *place = at;
        if (best && !part) return true;
        if (part) return false; /* a longer mark may stand here */
    }
    *place = reader->bytes;
    return false;
}

void rf_reader_drop(struct rf_chat_reader *reader, size_t bytes) {
    rf_assert(bytes <= reader->bytes);
    reader->text += bytes;
    reader->bytes -= bytes;
    reader->at = reader->at > bytes ? reader->at - bytes : 0;
}

/* Gives out the text up to a place and drops it. */
static rf_status give_up_to(struct rf_chat_reader *reader, struct rf_flow *flow, size_t place) {
    rf_status status = rf_flow_give(reader, flow, reader->text, place);
    rf_reader_drop(reader, place);
    return status;
}

/* ---- content and reasoning ---- */

static void begin_reasoning(struct rf_chat_reader *reader) {
    rf_flow_break(&reader->content);
    rf_flow_break(&reader->reasoning);
    reader->mode = RF_READ_REASONING;
}

static size_t blanks_at_front(const struct rf_chat_reader *reader) {
    size_t bytes = 0;
    while (bytes < reader->bytes && rf_is_blank(reader->text[bytes])) bytes++;
    return bytes;
}

/* What only the beginning of an answer can be. *done: it was that, or more text must come to know. */
static rf_status read_beginning(struct rf_chat_reader *reader, bool *more, bool *done) {
    const struct rf_reasoning_format *format = reader->reasoning_format;
    rf_status status = give_up_to(reader, &reader->content, blanks_at_front(reader));
    *done = true;
    if (status) return status;
    if (!reader->bytes) {
        *more = false;
        return RF_OK;
    }
    enum rf_match match = format && !format->anywhere ? rf_reader_match(reader, 0, format->open) : RF_MATCH_NO;
    if (match == RF_MATCH_WHOLE) {
        rf_reader_drop(reader, strlen(format->open));
        begin_reasoning(reader);
    } else if (match == RF_MATCH_PART) {
        *more = false;
    } else if (reader->call_format && reader->call_format->bare && reader->text[0] == '{') {
        rf_reader_try_call(reader, RF_READ_OBJECT, 1);
        reader->bare = true;
    } else {
        *done = false;
    }
    return RF_OK;
}

static rf_status read_content(struct rf_chat_reader *reader, bool *more) {
    rf_assert(!reader->at);
    const struct rf_reasoning_format *reasoning = reader->reasoning_format;
    const struct rf_call_format *calls = reader->call_format;
    enum { OPEN, DROP, SECTION = DROP + 3, CALL, END, HEADER = END + 3, MARKS = HEADER + 2 };
    const char *marks[MARKS] = {NULL};
    size_t place, which = 0;
    bool done;
    if (!reader->content.begun) {
        rf_status status = read_beginning(reader, more, &done);
        if (status || done) return status;
    }
    if (reasoning) {
        marks[OPEN] = reasoning->anywhere ? reasoning->open : NULL;
        for (size_t i = 0; i < RF_COUNT(reasoning->drops); i++) marks[DROP + i] = reasoning->drops[i];
    }
    if (calls) {
        marks[SECTION] = calls->section;
        marks[CALL] = calls->open;
    }
    if (reader->channels) {
        for (size_t i = 0; i < 3; i++) marks[END + i] = rf_channel_ends[i];
        marks[HEADER] = "<|start|>";
        marks[HEADER + 1] = "<|channel|>";
    }
    bool found = rf_reader_find(reader, 0, marks, MARKS, &place, &which);
    rf_status status = give_up_to(reader, &reader->content, place);
    if (status || !found) {
        *more = false;
        return status;
    }
    size_t bytes = strlen(marks[which]);
    if (which == SECTION || which == CALL) {
        rf_reader_try_call(reader, which == SECTION ? RF_READ_SECTION : RF_READ_HEAD, bytes);
    } else if (which >= HEADER) {
        reader->mode = RF_READ_HEADER;
    } else {
        rf_reader_drop(reader, bytes);
        if (which == OPEN) {
            begin_reasoning(reader);
        } else {
            rf_flow_break(&reader->content);
            if (which < SECTION)
                reader->content.gap = false;
            else
                reader->mode = RF_READ_HEADER;
        }
    }
    return RF_OK;
}

static rf_status read_reasoning(struct rf_chat_reader *reader, bool *more) {
    const struct rf_reasoning_format *format = reader->reasoning_format;
    enum { CLOSE, END, HEADER = END + 3, MARKS = HEADER + 1 };
    const char *marks[MARKS] = {format ? format->close : NULL};
    size_t place, which = 0;
    if (reader->reasoning.skipping && format) { /* a model may repeat the mark that the prompt ended with */
        rf_reader_drop(reader, blanks_at_front(reader));
        enum rf_match match = reader->bytes ? rf_reader_match(reader, 0, format->open) : RF_MATCH_PART;
        if (match == RF_MATCH_WHOLE) rf_reader_drop(reader, strlen(format->open));
        if (match == RF_MATCH_PART) *more = false;
        if (match != RF_MATCH_NO) return RF_OK;
    }
    for (size_t i = 0; i < 3 && reader->channels; i++) marks[END + i] = rf_channel_ends[i];
    if (reader->channels) marks[HEADER] = "<|start|>";
    bool found = rf_reader_find(reader, 0, marks, MARKS, &place, &which);
    rf_status status = give_up_to(reader, &reader->reasoning, place);
    if (status || !found) {
        *more = false;
        return status;
    }
    if (which != HEADER) rf_reader_drop(reader, strlen(marks[which]));
    rf_flow_break(&reader->reasoning);
    rf_flow_break(&reader->content);
    reader->mode = which == CLOSE ? RF_READ_CONTENT : RF_READ_HEADER;
    return RF_OK;
}

/* ---- taking text ---- */

static rf_status append(struct rf_chat_reader *reader, const char *text, size_t bytes) {
    static const char replacement[] = "\xef\xbf\xbd"; /* for what is not UTF-8 */
    char piece[RF_READER_SLICE_BYTES + sizeof reader->cut];
    memcpy(piece, reader->cut, reader->cut_bytes);
    memcpy(piece + reader->cut_bytes, text, bytes);
    bytes += reader->cut_bytes;
    reader->cut_bytes = reader->final ? 0 : rf_utf8_unfinished(piece, bytes);
    bytes -= reader->cut_bytes;
    memcpy(reader->cut, piece + bytes, reader->cut_bytes);
    if (reader->bytes) memmove(reader->held, reader->text, reader->bytes);
    size_t room = reader->bytes + 3 * bytes + 1;
    if (room > reader->held_capacity) {
        rf_status status = rf_account_resize(&reader->account, (void **)&reader->held, reader->held_capacity,
                                             2 * room, "the text of an answer");
        if (status) return status;
        reader->held_capacity = 2 * room;
    }
    reader->text = reader->held;
    for (size_t at = 0, taken; at < bytes; at += taken) {
        bool invalid = rf_utf8_decode(piece + at, bytes - at, &taken) == RF_CODE_INVALID;
        size_t length = invalid ? 3 : taken;
        memcpy(reader->text + reader->bytes, invalid ? replacement : piece + at, length);
        reader->bytes += length;
    }
    return RF_OK;
}

static rf_status push(struct rf_chat_reader *reader, const char *text, size_t bytes) {
    rf_status status = RF_OK;
    for (size_t at = 0; at < bytes && !status;) {
        size_t slice = RF_MIN(bytes - at, (size_t)RF_READER_SLICE_BYTES);
        status = append(reader, text + at, slice);
        if (!status) status = run(reader);
        at += slice;
    }
    reader->stopped = status;
    return status;
}

static rf_status check(const struct rf_chat_reader *reader, const char *function) {
    if (!reader) return rf_fail(RF_E_INVALID, "%s: reader is NULL", function);
    if (reader->finished) return rf_fail(RF_E_INVALID, "%s: this answer is finished: make another reader", function);
    if (reader->stopped) return rf_fail(reader->stopped, "%s: an earlier call failed", function);
    return RF_OK;
}

rf_status rf_chat_reader_push(struct rf_chat_reader *reader, const char *text, size_t bytes) {
    rf_status status = check(reader, "rf_chat_reader_push");
    if (status) return status;
    if (!text && bytes) return rf_fail(RF_E_INVALID, "rf_chat_reader_push: text is NULL");
    return push(reader, text, bytes);
}

rf_status rf_chat_reader_finish(struct rf_chat_reader *reader) {
    rf_status status = check(reader, "rf_chat_reader_finish");
    if (status) return status;
    reader->final = reader->finished = true;
    status = append(reader, "", 0);
    if (!status) status = run(reader);
    if (!status && reader->calling) {
        rf_reader_break_call(reader, "the answer ends within it");
        status = rf_reader_give_arguments(reader, reader->text, reader->bytes);
        rf_reader_drop(reader, reader->bytes);
    }
    rf_assert(status || !reader->bytes);
    if (!status) status = rf_flow_end(reader, &reader->content);
    if (!status && *reader->error) status = rf_fail(RF_E_SYNTAX, "%s", reader->error);
    return status;
}

/* ---- making one ---- */

/* Whether the prompt ends with a mark that the template wrote, and perhaps white space. */
static bool prompt_ends_with(const struct rf_chat_prompt *prompt, const char *mark) {
    size_t end = prompt->bytes, length = strlen(mark);
    while (end && rf_is_blank(prompt->text[end - 1])) end--;
    if (end < length || memcmp(prompt->text + end - length, mark, length)) return false;
    for (size_t i = end - length; i < end && prompt->own; i++)
        if (!prompt->own[i]) return false;
    return true;
}

/* A message of a channel that the prompt has begun: its header is read as the answer's beginning. */
static rf_status take_header(struct rf_chat_reader *reader, const struct rf_chat_prompt *prompt) {
    static const char start[] = "<|start|>assistant", message[] = "<|message|>";
    if (!prompt_ends_with(prompt, message)) return RF_OK;
    size_t end = prompt->bytes;
    while (rf_is_blank(prompt->text[end - 1])) end--;
    size_t least = end > RF_READER_HEAD_MAX ? end - RF_READER_HEAD_MAX : 0;
    for (size_t at = end - (sizeof message - 1); at-- > least;) {
        const char *header = prompt->text + at;
        if (end - at < sizeof start - 1 || memcmp(header, start, sizeof start - 1)) continue;
        bool calls = memmem(header, end - at, "to=", 3);
        return calls ? RF_OK : push(reader, header, end - at);
    }
    return RF_OK;
}

static rf_status take_prompt(struct rf_chat_reader *reader, const struct rf_chat_prompt *prompt) {
    RF_PARAMS(struct rf_chat_prompt, own);
    rf_status status = RF_PARAMS_READ(struct rf_chat_prompt, &own, prompt, "rf_chat_reader_create");
    if (status) return status;
    if (!own.text || !own.bytes) return RF_OK;
    if (reader->channels) return take_header(reader, &own);
    const struct rf_reasoning_format *format = reader->reasoning_format;
    if (format && prompt_ends_with(&own, format->open)) begin_reasoning(reader);
    return RF_OK;
}

static rf_status take_tools(struct rf_chat_reader *reader, const char *tools) {
    rf_status status = rf_json_read(&reader->account, tools, strlen(tools), "tools", &reader->tools);
    if (status || json_is_array(reader->tools.root)) return status;
    return rf_fail(RF_E_SYNTAX, "rf_chat_reader_create: tools is no JSON array");
}

rf_status rf_chat_reader_create_for(const char *source, const struct rf_chat_reader_params *params,
                                    struct rf_chat_reader **out) {
    struct rf_chat_reader *reader = calloc(1, sizeof *reader);
    if (!reader) return rf_fail(RF_E_NO_MEMORY, "rf_chat_reader_create: no host memory");
    reader->params = *params;
    if (params->runtime) reader->account = rf_host_account(&params->runtime->host);
    reader->content.give = params->content;
    reader->reasoning.give = params->reasoning;
    if (source) {
        reader->channels = rf_template_has_channels(source);
        if (!reader->channels) reader->reasoning_format = rf_reasoning_format_of(source);
        if (!reader->channels && params->calls) reader->call_format = rf_call_format_of(source);
    }
    if (reader->channels) reader->mode = RF_READ_HEADER;
    rf_status status = params->tools ? take_tools(reader, params->tools) : RF_OK;
    if (!status && params->prompt) status = take_prompt(reader, params->prompt);
    reader->params.prompt = NULL;
    reader->params.chat_template = NULL;
    reader->params.tools = NULL;
    if (status)
        rf_chat_reader_destroy(&reader);
    else
        *out = reader;
    return status;
}

rf_status rf_chat_reader_create(const struct rf_chat_reader_params *params, struct rf_chat_reader **out) {
    struct rf_chat_reader_params own;
    rf_status status = RF_PARAMS_READ(struct rf_chat_reader_params, &own, params, "rf_chat_reader_create");
    if (status) return status;
    if (!out) return rf_fail(RF_E_INVALID, "rf_chat_reader_create: out is NULL");
    const char *source = own.chat_template ? rf_chat_template_source(own.chat_template) : NULL;
    return rf_chat_reader_create_for(source, &own, out);
}

const char *rf_chat_reader_reasoning_end(const struct rf_chat_reader *reader) {
    if (!reader) return NULL;
    if (reader->channels) return reader->mode == RF_READ_CONTENT ? NULL : "<|channel|>final<|message|>";
    return reader->mode == RF_READ_REASONING ? reader->reasoning_format->close : NULL;
}

void rf_chat_reader_destroy(struct rf_chat_reader **pointer) {
    if (!pointer || !*pointer) return;
    struct rf_chat_reader *reader = *pointer;
    *pointer = NULL;
    free(reader->held);
    free(reader->arguments);
    if (reader->tools.root) rf_json_tree_finish(&reader->tools);
    rf_account_close(&reader->account);
    free(reader);
}
