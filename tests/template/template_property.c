/* See template_property.h. */
#include "template_property.h"

#include <rocmforge/chat.h>

#include <string.h>

#include "template/unicode_text.h"

static const char small[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", \"content\": "
    "\"Gr\\u00fc\\u00dfe "
    "<|im_end|>\"}, {\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"id\": \"1\", \"type\": "
    "\"function\", "
    "\"function\": {\"name\": \"f\", \"arguments\": {\"x\": [1, 2.5, null, true]}}}]}], \"tools\": [{\"type\": "
    "\"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\"}}}]}";

static const char *check_error(rf_status status) {
    const char *text = rf_error_text();
    if (!text[0]) return "a failure without a reason";
    if (strchr(text, '\n')) return "an error text of several lines";
    if (status != RF_E_SYNTAX && status != RF_E_UNSUPPORTED && status != RF_E_INVALID && status != RF_E_NO_MEMORY)
        return "an unexpected status";
    return NULL;
}

static const char *check_prompts(const struct rf_chat_prompt *a, const struct rf_chat_prompt *b) {
    if (a->text[a->bytes]) return "the text is not ended by zero";
    if (!rf_text_is_utf8(a->text, a->bytes)) return "the text is not UTF-8";
    for (size_t i = 0; i < a->bytes; i++)
        if (a->own[i] > 1) return "a mark is neither 0 nor 1";
    if (a->bytes != b->bytes || memcmp(a->text, b->text, a->bytes) != 0 || memcmp(a->own, b->own, a->bytes) != 0)
        return "a second rendering differs";
    return NULL;
}

const char *template_property(const unsigned char *bytes, size_t size) {
    struct rf_chat_template *chat_template = NULL;
    RF_PARAMS(struct rf_chat_template_params, made);
    RF_PARAMS(struct rf_chat_params, params);
    RF_PARAMS(struct rf_chat_prompt, first);
    RF_PARAMS(struct rf_chat_prompt, second);
    const char *zero = size ? memchr(bytes, 0, size) : NULL, *wrong;
    made.source = (const char *)bytes;
    made.source_bytes = zero ? (size_t)(zero - made.source) : size;
    params.conversation = zero ? zero + 1 : small;
    params.conversation_bytes = zero ? size - made.source_bytes - 1 : sizeof small - 1;
    params.bos = "<s>";
    params.eos = "</s>";
    params.now = "2026-07-26T12:30";
    rf_status status = rf_chat_template_create(&made, &chat_template);
    if (!status) status = rf_chat_render(chat_template, &params, &first);
    if (status) {
        wrong = check_error(status);
        if (first.text) wrong = "a prompt was written in spite of a failure";
    } else {
        status = rf_chat_render(chat_template, &params, &second);
        wrong = status ? "a second rendering fails" : check_prompts(&first, &second);
    }
    rf_chat_prompt_finish(&first);
    rf_chat_prompt_finish(&second);
    rf_chat_template_destroy(&chat_template);
    return wrong;
}
