/* ROCmForge: chat. A conversation becomes a prompt as the model's own template says, and the text that the model
 * answers with becomes messages again: content, reasoning and tool calls.
 *
 *   template   the program, in the language Jinja, that a model's file holds: how messages become one text
 *   prompt     the rendered text. Each byte is the template's own or the conversation's; only the template's own
 *              bytes can spell a control token
 *   reader     takes the text that a model generates, piece by piece, and tells its parts apart
 *
 * Threads: a template never changes once it is made: any number of threads may render with it at once. A reader
 * belongs to one thread at a time. Nothing here blocks. */
#ifndef ROCMFORGE_CHAT_H
#define ROCMFORGE_CHAT_H

#include <rocmforge/base.h>
#include <rocmforge/tokenizer.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- messages ---------------------------------------------------------------------------------------------- */

enum rf_chat_role { RF_CHAT_SYSTEM, RF_CHAT_USER, RF_CHAT_ASSISTANT, RF_CHAT_TOOL, RF_CHAT_DEVELOPER };
RF_API const char *rf_chat_role_name(enum rf_chat_role role); /* "system", "user", …; "?": no such role */

/* Frozen. A call that an assistant's message makes. */
struct rf_chat_tool_call {
    const char *id;        /* NULL: it has none */
    const char *name;      /* of the function */
    const char *arguments; /* a JSON object, as text */
};

/* An array element; its size is passed with it, so it may grow at its end. Texts are UTF-8. */
struct rf_chat_message {
    enum rf_chat_role role;
    const char *text;      /* NULL: none, which only an assistant's message with tool calls may have */
    const char *reasoning; /* of an assistant: what it thought before it answered; NULL: nothing */
    const struct rf_chat_tool_call *tool_calls; /* of an assistant */
    size_t tool_call_count;
    const char *tool_call_id; /* of a tool's result: the call that it answers; NULL: not said */
    const char *name;         /* of a tool's result: the function; NULL: not said */
};

/* ---- templates --------------------------------------------------------------------------------------------- */

struct rf_runtime;
struct rf_chat_template;
struct rf_chat_template_params {
    size_t struct_size;
    struct rf_runtime *runtime; /* its host budget is charged; borrowed until the template is destroyed. NULL: none */
    const char *source;         /* copied; UTF-8 */
    size_t source_bytes;
    const char *name; /* for error texts; copied; NULL: "the chat template" */
};
/* RF_E_SYNTAX: the template is malformed: the error text has the line and what is wrong. RF_E_UNSUPPORTED: it uses a
 * part of the language that is not supported, which the error text names. RF_E_NO_MEMORY: too large. */
RF_API rf_status rf_chat_template_create(const struct rf_chat_template_params *params, struct rf_chat_template **out);
RF_API void rf_chat_template_destroy(struct rf_chat_template **chat_template);
RF_API const char *rf_chat_template_source(const struct rf_chat_template *chat_template); /* ended by zero */

/* What is rendered: messages, or a JSON object that holds them. Borrowed for the call. */
struct rf_chat_params {
    size_t struct_size;
    size_t message_bytes; /* sizeof(struct rf_chat_message) */
    const struct rf_chat_message *messages;
    size_t message_count;
    /* Instead of messages: a JSON object with "messages" and, optionally, "tools", "add_generation_prompt" and
     * further variables of the template. What it holds overrides the fields below. */
    const char *conversation;
    size_t conversation_bytes;
    const char *tools;     /* a JSON array of the functions that may be called, as OpenAI's API has it; NULL: none */
    const char *variables; /* a JSON object of further variables: {"enable_thinking": false}; NULL: none */
    bool no_generation_prompt; /* the prompt ends behind the last message, not with the beginning of an answer */
    const char *bos, *eos;     /* the texts of these tokens; NULL: "" */
    const char *now;           /* the local time that the template sees: "2026-07-26T12:30"; NULL: the clock's */
    /* The conversation may be a JSON array of such objects: the one whose "name" is this. NULL: it is one object. */
    const char *conversation_name;
};
/* A rendered text. */
struct rf_chat_prompt {
    size_t struct_size;
    char *text;         /* ended by zero, which 'bytes' does not count */
    unsigned char *own; /* for each byte: 1 if the template's own text holds it, 0 if it came from the conversation */
    size_t bytes;
};
/* RF_E_INVALID: the conversation or the template itself refuses (raise_exception): the error text says what.
 * RF_E_SYNTAX: text that should be JSON is not, or text is not UTF-8. RF_E_UNSUPPORTED: something in the template
 * that cannot be evaluated. RF_E_NO_MEMORY: more steps, depth or output than the limits allow, or host memory.
 * *prompt is unchanged then. Finish it with rf_chat_prompt_finish. */
RF_API rf_status rf_chat_render(const struct rf_chat_template *chat_template, const struct rf_chat_params *params,
                                struct rf_chat_prompt *prompt);
RF_API void rf_chat_prompt_finish(struct rf_chat_prompt *prompt);

/* The prompt's token ids; destroy them with rf_token_ids_destroy. Control tokens are recognised in the template's own
 * bytes only, whatever a message says; user-defined tokens are text and are found everywhere, as rf_tokenizer_encode
 * finds them. The beginning token is added where the vocabulary wants one and the prompt does not begin with it; an
 * end token is not added. RF_E_INVALID, RF_E_UNSUPPORTED: as rf_tokenizer_encode. */
RF_API rf_status rf_chat_prompt_encode(const struct rf_tokenizer *tokenizer, const struct rf_chat_prompt *prompt,
                                       int32_t **ids, size_t *id_count);

/* ---- reading answers --------------------------------------------------------------------------------------- */

struct rf_chat_reader;
struct rf_chat_reader_params {
    size_t struct_size;
    struct rf_runtime *runtime; /* its host budget is charged; borrowed until the reader is destroyed. NULL: none */
    /* Borrowed for the call. The template tells which marks the model's reasoning and tool calls have; the prompt's
     * end tells whether the answer begins inside the reasoning. NULL: no template, or not known. */
    const struct rf_chat_template *chat_template;
    const struct rf_chat_prompt *prompt;
    bool calls; /* functions were offered: look for calls. Else what looks like a call is content */
    /* Each gets a part of the answer as soon as it is certain what it belongs to. Texts are whole UTF-8 sequences,
     * not ended by zero. False: the caller wants no more; push then returns RF_E_CANCELLED. Each may be NULL. */
    bool (*content)(void *user, const char *text, size_t bytes);
    bool (*reasoning)(void *user, const char *text, size_t bytes);
    bool (*call)(void *user, size_t index, const char *name); /* the next call begins; its name is known */
    bool (*arguments)(void *user, size_t index, const char *text, size_t bytes); /* more of its JSON text */
    /* The call is complete, and its arguments are valid JSON. */
    bool (*call_end)(void *user, size_t index, const struct rf_chat_tool_call *call);
    void *user;
    /* As in rf_chat_params; borrowed for the call. Where a model writes arguments as text between tags, this tells
     * which are strings. NULL: not known: what reads as a number, true, false, null, an array or an object is one. */
    const char *tools;
};
RF_API rf_status rf_chat_reader_create(const struct rf_chat_reader_params *params, struct rf_chat_reader **out);
RF_API void rf_chat_reader_destroy(struct rf_chat_reader **reader);
/* For rf_generate_params.grammar_after: the text behind which the content begins, where the prompt or the format has
 * the answer begin with something else ("</think>"). To be asked before anything is pushed. NULL: the answer begins
 * with content. Static. */
RF_API const char *rf_chat_reader_reasoning_end(const struct rf_chat_reader *reader);
/* More of the generated text, with control tokens as their text (rf_generate_params.show_special). A mark may be cut
 * anywhere between two calls. */
RF_API rf_status rf_chat_reader_push(struct rf_chat_reader *reader, const char *text, size_t bytes);
/* The answer is over: gives out what was held back. RF_E_SYNTAX: a call was begun and is not complete or not valid;
 * its text was given out as arguments as far as it went. */
RF_API rf_status rf_chat_reader_finish(struct rf_chat_reader *reader);

#ifdef __cplusplus
}
#endif
#endif
