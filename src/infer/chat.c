/* The built-in chat formats: a conversation as tokens, for files that have no chat template.
 *
 * A format consists of marks and text. A mark that the vocabulary has as a control token becomes that token; one
 * that it does not have ("[INST]" of the first Llama 2 and Mistral files) is text like any other. Invariants:
 *   1. all text between two control tokens is encoded in one piece, as it was when the model was trained: a token may
 *      span the format's text and a message's
 *   2. the text of a message never becomes a control token, however it is spelt (checked when text is encoded)
 * 1 follows from how the source is written: text is collected until a control token or the end, and then encoded
 * at once. */
#include "infer/engine_impl.h"

#include <stdlib.h>

static const char *const names[] = {"none", "chatml", "llama2", "llama3", "mistral"};

const char *rf_chat_format_name(enum rf_chat_format format) {
    return (unsigned)format < RF_COUNT(names) ? names[format] : "?";
}

/* The control token with this name; -1: there is none. */
static int32_t find_control(const struct rf_tokenizer *tokenizer, const char *text) {
    RF_PARAMS(struct rf_token_info, info);
    int32_t id = rf_tokenizer_find(tokenizer, text, strlen(text));
    if (id < 0 || rf_tokenizer_token(tokenizer, id, &info)) return -1;
    return info.type == RF_TOKEN_CONTROL || info.type == RF_TOKEN_USER_DEFINED ? id : -1;
}

static bool has_token(const struct rf_engine *engine, const char *text) {
    return find_control(engine->tokenizer, text) >= 0;
}

enum rf_chat_format rf_engine_chat_format(const struct rf_engine *engine) {
    if (!engine || !engine->tokenizer) return RF_CHAT_NONE;
    /* A template is rendered (rf_chat_render), never guessed from. */
    if (engine->chat_template && *engine->chat_template) return RF_CHAT_NONE;
    if (has_token(engine, "<|im_start|>") && has_token(engine, "<|im_end|>")) return RF_CHAT_CHATML;
    if (has_token(engine, "<|start_header_id|>")) return RF_CHAT_LLAMA3;
    if (has_token(engine, "[INST]") && has_token(engine, "[/INST]")) return RF_CHAT_MISTRAL;
    return RF_CHAT_NONE;
}

/* ---- building ---- */

struct conversation {
    const struct rf_tokenizer *tokenizer;
    struct rf_account account; /* for ids and text */
    int32_t *ids;
    size_t count, capacity;
    char *text; /* the text since the last control token */
    size_t text_bytes, text_capacity;
    rf_status status; /* the first failure */
};

static void add_ids(struct conversation *to, const int32_t *ids, size_t count) {
    if (to->capacity - to->count < count) {
        size_t capacity = 2 * (to->count + count) + 64;
        to->status = rf_account_resize(&to->account, (void **)&to->ids, to->capacity * sizeof *to->ids,
                                       capacity * sizeof *to->ids, "the conversation");
        if (to->status) return;
        to->capacity = capacity;
    }
    if (count) memcpy(to->ids + to->count, ids, count * sizeof *ids);
    to->count += count;
}

static void add_bytes(struct conversation *to, const char *text, size_t bytes) {
    if (to->status || !bytes) return;
    if (to->text_capacity - to->text_bytes < bytes) {
        size_t capacity = 2 * (to->text_bytes + bytes) + 64;
        to->status =
            rf_account_resize(&to->account, (void **)&to->text, to->text_capacity, capacity, "the conversation");
        if (to->status) return;
        to->text_capacity = capacity;
    }
    memcpy(to->text + to->text_bytes, text, bytes);
    to->text_bytes += bytes;
}
static void words(struct conversation *to, const char *text) {
    add_bytes(to, text, strlen(text));
}
/* Adds text without the white space around it. */
static void trimmed(struct conversation *to, const char *text) {
    static const char blanks[] = " \t\r\n\v\f";
    text += strspn(text, blanks);
    size_t bytes = strlen(text);
    while (bytes && strchr(blanks, text[bytes - 1])) bytes--;
    add_bytes(to, text, bytes);
}

struct encoded {
    const struct rf_tokenizer *tokenizer;
    const int32_t *ids;
    size_t count;
};
#if RF_CHECKS >= 2
static bool encoded_is_text(const struct encoded *encoded, const char **why) {
    for (size_t i = 0; i < encoded->count; i++) {
        RF_PARAMS(struct rf_token_info, info);
        rf_status status = rf_tokenizer_token(encoded->tokenizer, encoded->ids[i], &info);
        RF_INVALID_UNLESS(!status && info.type != RF_TOKEN_CONTROL, "text became a control token");
    }
    return true;
}
#endif

/* Encodes the text that was collected. */
static void end_text(struct conversation *to) {
    if (to->status || !to->text_bytes) return;
    int32_t *ids = NULL;
    size_t count = 0;
    RF_PARAMS(struct rf_encode_params, params);
    params.no_bos = params.no_eos = true;
    to->status = rf_tokenizer_encode(to->tokenizer, to->text, to->text_bytes, &params, &ids, &count);
    struct encoded encoded = {to->tokenizer, ids, count};
    if (!to->status) rf_assert_valid(encoded_is_text, &encoded);
    if (!to->status) add_ids(to, ids, count);
    rf_token_ids_destroy(&ids);
    to->text_bytes = 0;
}
static void token(struct conversation *to, int32_t id) {
    end_text(to);
    if (id >= 0 && !to->status) add_ids(to, &id, 1);
}
/* Adds a mark of the format. */
static void mark(struct conversation *to, const char *text) {
    int32_t id = find_control(to->tokenizer, text);
    if (id >= 0)
        token(to, id);
    else
        words(to, text);
}

static void build_chatml(struct conversation *to, const struct rf_chat_message *messages, size_t count) {
    for (size_t i = 0; i < count; i++) {
        mark(to, "<|im_start|>");
        words(to, rf_chat_role_name(messages[i].role));
        words(to, "\n");
        words(to, messages[i].text);
        mark(to, "<|im_end|>");
        words(to, "\n");
    }
    mark(to, "<|im_start|>");
    words(to, "assistant\n");
}

static void build_llama3(struct conversation *to, const struct rf_chat_message *messages, size_t count) {
    for (size_t i = 0; i <= count; i++) {
        mark(to, "<|start_header_id|>");
        words(to, i < count ? rf_chat_role_name(messages[i].role) : "assistant");
        mark(to, "<|end_header_id|>");
        words(to, "\n\n");
        if (i == count) break;
        trimmed(to, messages[i].text);
        mark(to, "<|eot_id|>");
    }
}

/* Llama 2 and Mistral: a system message becomes part of the next user message. Where the marks are text, spaces
 * separate them. */
static void build_inst(struct conversation *to, const struct rf_chat_message *messages, size_t count, bool llama2,
                       const struct rf_tokenizer_info *info) {
    bool plain = find_control(to->tokenizer, "[INST]") < 0, first = true;
    const char *system = NULL;
    for (size_t i = 0; i < count; i++) {
        if (messages[i].role == RF_CHAT_SYSTEM) {
            system = messages[i].text;
            continue;
        }
        if (messages[i].role == RF_CHAT_ASSISTANT) {
            if (plain) words(to, " ");
            trimmed(to, messages[i].text);
            if (llama2) words(to, " ");
            token(to, info->eos);
            continue;
        }
        if (!first && llama2) token(to, info->bos);
        first = false;
        mark(to, "[INST]");
        if (plain) words(to, " ");
        if (system && llama2) words(to, "<<SYS>>\n");
        if (system) words(to, system);
        if (system) words(to, llama2 ? "\n<</SYS>>\n\n" : "\n\n");
        system = NULL;
        if (llama2)
            trimmed(to, messages[i].text);
        else
            words(to, messages[i].text);
        if (plain) words(to, " ");
        mark(to, "[/INST]");
    }
    if (system && !to->status)
        to->status = rf_fail(RF_E_INVALID, "rf_chat_encode: a system message with no user's behind it");
}

static rf_status encode(const struct rf_engine *engine, enum rf_chat_format format,
                        const struct rf_chat_message *messages, size_t count, int32_t **ids, size_t *id_count);

rf_status rf_chat_encode_sized(size_t message_bytes, const struct rf_engine *engine, enum rf_chat_format format,
                               const struct rf_chat_message *messages, size_t count, int32_t **ids,
                               size_t *id_count) {
    if (!engine || !messages || !count || !ids || !id_count)
        return rf_fail(RF_E_INVALID, "rf_chat_encode: NULL, or no messages");
    if (!engine->tokenizer) return rf_fail(RF_E_NOT_FOUND, "this model has no vocabulary: give tokens, not text");
    if (format == RF_CHAT_NONE || (unsigned)format >= RF_COUNT(names))
        return rf_fail(
            RF_E_UNSUPPORTED,
            "rf_chat_encode: this model is not known to have one of the formats chatml, llama2, llama3, mistral: "
            "choose one, or render its chat template");
    struct rf_chat_message *own = calloc(count, sizeof *own);
    if (!own) return rf_fail(RF_E_NO_MEMORY, "no host memory for the conversation");
    rf_status status = RF_OK;
    for (size_t i = 0; i < count && !status; i++)
        status = rf_element_read(&own[i], sizeof *own, offsetof(struct rf_chat_message, reasoning),
                                 (const char *)messages + i * message_bytes, message_bytes, "struct rf_chat_message",
                                 "rf_chat_encode");
    if (!status) status = encode(engine, format, own, count, ids, id_count);
    free(own);
    return status;
}

static rf_status encode(const struct rf_engine *engine, enum rf_chat_format format,
                        const struct rf_chat_message *messages, size_t count, int32_t **ids, size_t *id_count) {
    for (size_t i = 0; i < count; i++)
        if (!messages[i].text || (unsigned)messages[i].role > RF_CHAT_ASSISTANT)
            return rf_fail(RF_E_INVALID, "rf_chat_encode: message %zu has no text or no such role", i);
    RF_PARAMS(struct rf_tokenizer_info, info);
    rf_status status = rf_tokenizer_get_info(engine->tokenizer, &info);
    if (status) return status;
    struct conversation to = {.tokenizer = engine->tokenizer, .account = rf_host_account(&engine->runtime->host)};
    bool inst = format == RF_CHAT_LLAMA2 || format == RF_CHAT_MISTRAL;
    if (info.add_bos || inst || format == RF_CHAT_LLAMA3) token(&to, info.bos);
    if (format == RF_CHAT_CHATML)
        build_chatml(&to, messages, count);
    else if (format == RF_CHAT_LLAMA3)
        build_llama3(&to, messages, count);
    else
        build_inst(&to, messages, count, format == RF_CHAT_LLAMA2, &info);
    end_text(&to);
    free(to.text);
    rf_account_close(&to.account); /* the ids are the caller's from here on */
    if (!to.status && !to.count) to.status = rf_fail(RF_E_INVALID, "rf_chat_encode: the conversation is empty");
    if (to.status) {
        rf_token_ids_destroy(&to.ids);
        return to.status;
    }
    *ids = to.ids;
    *id_count = to.count;
    return RF_OK;
}
