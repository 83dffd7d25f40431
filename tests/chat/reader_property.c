#include "reader_property.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "chat/reader_impl.h"

struct log {
    char *text;
    size_t bytes, capacity;
    char kind;       /* of the last event */
    size_t index;    /* of the last call */
    char *arguments; /* of the call at hand */
    size_t argument_bytes, argument_capacity;
    char name[512];
    bool open; /* a call was begun and is not complete */
    size_t refuse_after, events;
    const char *wrong;
};

static void add(struct log *log, const char *text, size_t bytes) {
    if (log->bytes + bytes + 1 > log->capacity) {
        log->capacity = 2 * (log->bytes + bytes) + 64;
        log->text = realloc(log->text, log->capacity);
    }
    memcpy(log->text + log->bytes, text, bytes);
    log->bytes += bytes;
    log->text[log->bytes] = 0;
}

static void fault(struct log *log, const char *what) {
    if (!log->wrong) log->wrong = what;
}

/* False: enough. */
static bool event(struct log *log, char kind, const char *text, size_t bytes) {
    for (size_t at = 0, taken; at < bytes; at += taken)
        if (rf_utf8_decode(text + at, bytes - at, &taken) == RF_CODE_INVALID)
            fault(log, "a part of a character was given out");
    if (kind != log->kind || (kind != 'R' && kind != 'C' && kind != 'A')) {
        char head[4] = {'|', kind, kind == '!' ? 0 : ':', 0};
        add(log, head + !log->bytes, strlen(head + !log->bytes));
    }
    log->kind = kind;
    add(log, text, bytes);
    if (log->refuse_after && log->events >= log->refuse_after) fault(log, "an event came behind a refusal");
    return !log->refuse_after || ++log->events < log->refuse_after;
}

static bool on_content(void *user, const char *text, size_t bytes) {
    if (!bytes) fault(user, "an event without text");
    return event(user, 'C', text, bytes);
}
static bool on_reasoning(void *user, const char *text, size_t bytes) {
    if (!bytes) fault(user, "an event without text");
    return event(user, 'R', text, bytes);
}
static bool on_call(void *user, size_t index, const char *name) {
    struct log *log = user;
    if (index != log->index) fault(log, "calls are not counted");
    log->index++;
    log->argument_bytes = 0;
    log->open = true;
    if (strlen(name) >= sizeof log->name || !*name) fault(log, "a name is empty or too long");
    snprintf(log->name, sizeof log->name, "%s", name);
    return event(log, 'F', name, strlen(name));
}
static bool on_arguments(void *user, size_t index, const char *text, size_t bytes) {
    struct log *log = user;
    if (index + 1 != log->index || !log->open) fault(log, "arguments of a call that is not at hand");
    if (!bytes) fault(log, "an event without text");
    if (log->argument_bytes + bytes + 1 > log->argument_capacity) {
        log->argument_capacity = 2 * (log->argument_bytes + bytes) + 64;
        log->arguments = realloc(log->arguments, log->argument_capacity);
    }
    memcpy(log->arguments + log->argument_bytes, text, bytes);
    log->argument_bytes += bytes;
    return event(log, 'A', text, bytes);
}
static bool on_call_end(void *user, size_t index, const struct rf_chat_tool_call *call) {
    struct log *log = user;
    struct rf_json_tree tree = {0};
    if (index + 1 != log->index || !log->open) fault(log, "a call ends that is not at hand");
    log->open = false;
    if (strcmp(call->name, log->name)) fault(log, "a call ends with another name");
    if (strlen(call->arguments) != log->argument_bytes ||
        memcmp(call->arguments, log->arguments, log->argument_bytes))
        fault(log, "a call ends with other arguments than were given out");
    if (rf_json_read(NULL, call->arguments, strlen(call->arguments), "arguments", &tree) ||
        !json_is_object(tree.root))
        fault(log, "arguments that are no JSON object");
    rf_json_tree_finish(&tree);
    return event(log, 'E', call->id ? call->id : "-", strlen(call->id ? call->id : "-"));
}

char *read_answer(const struct reading *how, const char *text, size_t bytes, const size_t *cuts, size_t cut_count,
                  const char **wrong) {
    struct log log = {.refuse_after = how->refuse_after};
    struct rf_chat_reader *reader = NULL;
    RF_PARAMS(struct rf_chat_reader_params, params);
    RF_PARAMS(struct rf_chat_prompt, prompt);
    add(&log, "", 0);
    if (how->prompt) {
        prompt.bytes = strlen(how->prompt);
        prompt.text = strdup(how->prompt);
        prompt.own = malloc(prompt.bytes + 1);
        memset(prompt.own, 1, prompt.bytes);
        params.prompt = &prompt;
    }
    params.runtime = how->runtime;
    params.calls = !how->no_calls;
    params.tools = how->tools;
    params.content = on_content;
    params.reasoning = on_reasoning;
    params.call = on_call;
    params.arguments = on_arguments;
    params.call_end = on_call_end;
    params.user = &log;
    if (how->rendered) params.prompt = how->rendered;
    params.chat_template = how->chat_template;
    rf_status status = how->chat_template ? rf_chat_reader_create(&params, &reader)
                                          : rf_chat_reader_create_for(how->source, &params, &reader);
    free(prompt.text);
    free(prompt.own);
    size_t from = 0;
    for (size_t i = 0; i <= cut_count && !status; i++) {
        size_t to = i < cut_count ? cuts[i] : bytes;
        status = rf_chat_reader_push(reader, text + from, to - from);
        from = to;
    }
    if (!status) status = rf_chat_reader_finish(reader);
    log.refuse_after = 0;
    for (const char *at = rf_error_text(); status && *at; at++)
        if ((unsigned char)*at < 0x20) fault(&log, "an error text of more than one line");
    if (status) event(&log, '!', rf_error_text(), strlen(rf_error_text()));
    if (!status && log.open) fault(&log, "a call is not complete, and finishing does not say so");
    rf_chat_reader_destroy(&reader);
    free(log.arguments);
    *wrong = log.wrong;
    return log.text;
}

/* Strings that a template must hold to have each format, and words that answers are made of. */
static const char *const sources[] = {
    "",
    "</think><tool_call>",
    "[THINK][TOOL_CALLS]",
    "<|channel|><|message|><|start|>",
    "</think><｜tool▁call▁begin｜>",
    "</think><function=<parameter=",
    "</think><arg_key>",
    "<|start_header_id|>\"parameters\": ",
    "</think>｜DSML｜function_calls>",
    "<|START_THINKING|><|START_ACTION|>",
    "<|tool_call_argument_begin|></think></response>",
    "<function=",
    "<|channel>thought<tool_calls>",
};
static const char *const words[] = {
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "{\"name\": \"f\", \"arguments\": {\"a\": 1}}",
    "[THINK]",
    "[/THINK]",
    "[TOOL_CALLS]",
    "[ARGS]",
    "[CALL_ID]",
    "<|channel|>",
    "<|message|>",
    "<|start|>assistant",
    "analysis",
    "final",
    " to=functions.f",
    "<|end|>",
    "<|call|>",
    "<|return|>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "function",
    "<｜tool▁sep｜>",
    "\n```json\n",
    "```",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
    "<function=",
    "f",
    ">",
    "<parameter=",
    "</parameter>",
    "</function>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<|python_tag|>",
    "{\"name\": \"",
    "\"",
    ", \"parameters\": ",
    "{",
    "}",
    "[",
    "]",
    ",",
    "<｜DSML｜function_calls>",
    "<｜DSML｜invoke name=\"f\">",
    "<｜DSML｜parameter name=\"a\" string=\"",
    "true\">",
    "false\">",
    "</｜DSML｜parameter>",
    "</｜DSML｜invoke>",
    "</｜DSML｜function_calls>",
    "<|START_ACTION|>",
    "<|END_ACTION|>",
    "<|START_RESPONSE|>",
    "<|tool_calls_section_begin|>",
    "<|tool_call_begin|>",
    "functions.f:0",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<response>",
    "<tool_calls>",
    "</tool_calls>",
    "<channel|>",
    "<|channel>thought",
    "\n",
    " ",
    "\\",
    "ü",
    ":",
    "\"arguments\"",
    "null",
    "\"id\": \"x\"",
    "true",
    "-1.5e3",
};

/* Bytes from 0x80 up are words, the others themselves: what a fuzzer finds stays readable. */
static char *spell(const unsigned char *bytes, size_t size, size_t *spelt_bytes) {
    char *text = calloc(size * 64 + 1, 1);
    *spelt_bytes = 0;
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] < 0x80) {
            text[(*spelt_bytes)++] = (char)bytes[i];
        } else if (bytes[i] == 0xff && i + 1 < size) { /* the next byte as it is, UTF-8 or not */
            text[(*spelt_bytes)++] = (char)bytes[++i];
        } else {
            const char *word = words[(bytes[i] - 0x80) % (sizeof words / sizeof *words)];
            memcpy(text + *spelt_bytes, word, strlen(word));
            *spelt_bytes += strlen(word);
        }
    }
    return text;
}

/* Whether an answer has no reasoning, no calls and no marks that are dropped: then all of it is content. */
static bool is_plain(const struct reading *how, const char *text, size_t bytes, const char *events) {
    const struct rf_reasoning_format *format = rf_reasoning_format_of(how->source);
    if (how->prompt || rf_template_has_channels(how->source)) return false;
    if (!strncmp(events, "F:", 2) || strstr(events, "|F:")) return false;
    if (!format) return true;
    for (size_t i = 0; i < RF_COUNT(format->drops); i++)
        if (format->drops[i] && memmem(text, bytes, format->drops[i], strlen(format->drops[i]))) return false;
    return !memmem(text, bytes, format->open, strlen(format->open));
}

const char *reader_property(const unsigned char *bytes, size_t size) {
    static char why[4096];
    const char *wrong = NULL, *wrong_in_pieces = NULL;
    if (size < 4) return NULL;
    struct reading how = {.source = sources[bytes[0] % (sizeof sources / sizeof *sources)],
                          .no_calls = bytes[1] % 8 == 7,
                          .prompt = bytes[1] % 8 == 6 ? "<think>\n" : NULL,
                          .tools = bytes[1] % 2
                                       ? "[{\"function\": {\"name\": \"f\", \"parameters\": {\"properties\": "
                                         "{\"a\": {\"type\": \"string\"}}}}}]"
                                       : NULL};
    size_t count, seed = bytes[2] | (size_t)bytes[3] << 8;
    char *text = spell(bytes + 4, RF_MIN(size - 4, (size_t)4096), &count);
    char *whole = read_answer(&how, text, count, NULL, 0, &wrong);
    if (!wrong && is_plain(&how, text, count, whole)) {
        struct reading plainly = {.source = NULL};
        char *plain = read_answer(&plainly, text, count, NULL, 0, &wrong);
        if (!wrong && strcmp(plain, whole)) {
            snprintf(why, sizeof why, "text was lost:\n%.1500s\nof:\n%.1500s", whole, plain);
            wrong = why;
        }
        free(plain);
    }
    size_t *cuts = malloc((count + 1) * sizeof *cuts);
    for (size_t i = 0; i < count; i++) cuts[i] = i;
    size_t at = count ? seed % count : 0;
    for (int i = 0; i < 2 && !wrong; i++) {
        char *pieces = i ? read_answer(&how, text, count, &at, count > 0, &wrong_in_pieces)
                         : read_answer(&how, text, count, cuts, count, &wrong_in_pieces);
        if (wrong_in_pieces) wrong = wrong_in_pieces;
        if (!wrong && strcmp(whole, pieces)) {
            snprintf(why, sizeof why, "whole:\n%.1500s\n%s:\n%.1500s", whole, i ? "in two pieces" : "byte by byte",
                     pieces);
            wrong = why;
        }
        free(pieces);
    }
    free(cuts);
    free(whole);
    free(text);
    return wrong;
}
