/* Messages and prompts: the names of roles, and a rendered prompt as tokens. */
#include <rocmforge/chat.h>

#include "base/base.h"
#include "tokenizer/tokenizer.h"

const char *rf_chat_role_name(enum rf_chat_role role) {
    static const char *const names[] = {"system", "user", "assistant", "tool", "developer"};
    return (unsigned)role < RF_COUNT(names) ? names[role] : "?";
}

rf_status rf_chat_prompt_encode(const struct rf_tokenizer *tokenizer, const struct rf_chat_prompt *prompt,
                                int32_t **ids, size_t *id_count) {
    struct rf_chat_prompt own;
    rf_status status = RF_PARAMS_READ(struct rf_chat_prompt, &own, prompt, "rf_chat_prompt_encode");
    if (status) return status;
    if (!tokenizer || !ids || !id_count || (own.bytes && (!own.text || !own.own)))
        return rf_fail(RF_E_INVALID, "rf_chat_prompt_encode: an argument, or the prompt's text or marks, is NULL");
    return rf_tokenizer_encode_marked(tokenizer, own.text, own.own, own.bytes, ids, id_count);
}
