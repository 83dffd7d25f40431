/* The vocabulary of a GGUF file: the keys tokenizer.ggml.*.
 *
 * Invariant: no pointer into the file is kept; the tokenizer copies what it needs. A pointer does not tell where it
 * came from, so this is not asserted: the tests close the file first, and the address sanitizer would see a use of
 * it. */
#include "gguf/gguf.h"
#include "tokenizer/tokenizer_impl.h"

#include <stdlib.h>

struct loading {
    const struct rf_gguf *gguf;
    struct rf_account account; /* for tokens and merges */
    struct rf_vocab vocab;
    struct rf_vocab_token *tokens;
    struct rf_vocab_text *merges;
};

static rf_status read_family(struct loading *loading) {
    struct rf_gguf_string model;
    if (!rf_gguf_find(loading->gguf, "tokenizer.ggml.model") || !rf_gguf_find(loading->gguf, "tokenizer.ggml.tokens"))
        return rf_fail(RF_E_NOT_FOUND, "no vocabulary in the file (tokenizer.ggml.model and tokenizer.ggml.tokens): "
                                       "use a model that has one, or token ids");
    rf_status status = rf_gguf_get_string(loading->gguf, "tokenizer.ggml.model", &model);
    if (status) return status;
    if (rf_gguf_string_is(model, "llama"))
        loading->vocab.family = RF_VOCAB_LLAMA;
    else if (rf_gguf_string_is(model, "gpt2"))
        loading->vocab.family = RF_VOCAB_GPT2;
    else
        return rf_fail(RF_E_UNSUPPORTED,
                       "the tokenizer \"%.*s\" (tokenizer.ggml.model) is unknown; known: llama, gpt2",
                       (int)RF_MIN(model.bytes, (size_t)60), model.text);
    return RF_OK;
}

/* Reads an optional array with one number per token; *found is false if it is absent. */
static rf_status read_numbers(struct loading *loading, const char *key, bool floats, uint64_t count,
                              struct rf_gguf_array *array, bool *found) {
    *found = rf_gguf_find(loading->gguf, key) != NULL;
    if (!*found) return RF_OK;
    rf_status status = floats ? rf_gguf_get_float_array(loading->gguf, key, array)
                              : rf_gguf_get_int_array(loading->gguf, key, array);
    if (!status && array->count != count)
        status = rf_fail(RF_E_SYNTAX, "%s has %llu values for %llu tokens", key, (unsigned long long)array->count,
                         (unsigned long long)count);
    return status;
}

static rf_status read_tokens(struct loading *loading) {
    struct rf_gguf_array texts, scores, types;
    struct rf_gguf_string text;
    bool have_scores = false, have_types = false;
    rf_status status = rf_gguf_get_array(loading->gguf, "tokenizer.ggml.tokens", RF_GGUF_STRING, &texts);
    if (!status) status = read_numbers(loading, "tokenizer.ggml.scores", true, texts.count, &scores, &have_scores);
    if (!status) status = read_numbers(loading, "tokenizer.ggml.token_type", false, texts.count, &types, &have_types);
    if (status) return status;
    if (texts.count == 0 || texts.count > INT32_MAX - 1)
        return rf_fail(RF_E_SYNTAX, "tokenizer.ggml.tokens has %llu tokens", (unsigned long long)texts.count);
    status = RF_TAKE(&loading->account, loading->tokens, texts.count);
    if (status) return status;
    uint64_t count = 0;
    for (struct rf_gguf_cursor at = {0}; count < texts.count && rf_gguf_array_next_string(&texts, &at, &text);
         count++) {
        int64_t type = have_types ? rf_gguf_array_int(&types, count) : RF_TOKEN_NORMAL;
        if (!have_types && loading->vocab.family == RF_VOCAB_LLAMA && rf_spm_byte(text.text, text.bytes) >= 0)
            type = RF_TOKEN_BYTE;
        if (type < 0 || type > RF_TOKEN_BYTE)
            return rf_fail(RF_E_SYNTAX, "tokenizer.ggml.token_type: token %llu has the unknown type %lld",
                           (unsigned long long)count, (long long)type);
        loading->tokens[count] = (struct rf_vocab_token){
            .text = {text.text, text.bytes},
            .score = have_scores ? (float)rf_gguf_array_float(&scores, count) : 0,
            .type = (enum rf_token_type)type,
        };
    }
    if (count != texts.count) return rf_fail(RF_E_IO, "tokenizer.ggml.tokens changed while it was read");
    loading->vocab.tokens = loading->tokens;
    loading->vocab.token_count = count;
    return RF_OK;
}

static rf_status read_merges(struct loading *loading) {
    struct rf_gguf_array texts;
    struct rf_gguf_string text;
    if (loading->vocab.family != RF_VOCAB_GPT2) return RF_OK;
    rf_status status = rf_gguf_get_array(loading->gguf, "tokenizer.ggml.merges", RF_GGUF_STRING, &texts);
    if (status) return status;
    if (texts.count > UINT32_MAX / 4)
        return rf_fail(RF_E_SYNTAX, "tokenizer.ggml.merges has %llu merges", (unsigned long long)texts.count);
    status = RF_TAKE(&loading->account, loading->merges, texts.count);
    if (status) return status;
    for (struct rf_gguf_cursor at = {0};
         loading->vocab.merge_count < texts.count && rf_gguf_array_next_string(&texts, &at, &text);)
        loading->merges[loading->vocab.merge_count++] = (struct rf_vocab_text){text.text, text.bytes};
    if (loading->vocab.merge_count != texts.count)
        return rf_fail(RF_E_IO, "tokenizer.ggml.merges changed while it was read");
    loading->vocab.merges = loading->merges;
    return RF_OK;
}

/* Reads an optional token id. If the key is absent, the id is `otherwise`, provided the vocabulary has that id. */
static rf_status read_id(struct loading *loading, const char *key, int32_t otherwise, int32_t *id) {
    *id = otherwise >= 0 && (size_t)otherwise < loading->vocab.token_count ? otherwise : -1;
    if (!rf_gguf_find(loading->gguf, key)) return RF_OK;
    int64_t wide;
    rf_status status = rf_gguf_get_i64(loading->gguf, key, &wide);
    if (status) return status;
    if (wide == -1 || wide == UINT32_MAX) {
        *id = -1; /* this is how some files say that there is none */
        return RF_OK;
    }
    if (wide < 0 || (uint64_t)wide >= loading->vocab.token_count)
        return rf_fail(RF_E_SYNTAX, "%s is %lld, but there are only %zu tokens", key, (long long)wide,
                       loading->vocab.token_count);
    *id = (int32_t)wide;
    return RF_OK;
}

static rf_status read_choice(struct loading *loading, const char *key, enum rf_vocab_choice *choice) {
    bool value;
    *choice = RF_VOCAB_UNSAID;
    if (!rf_gguf_find(loading->gguf, key)) return RF_OK;
    rf_status status = rf_gguf_get_bool(loading->gguf, key, &value);
    if (!status) *choice = value ? RF_VOCAB_YES : RF_VOCAB_NO;
    return status;
}

static rf_status read_settings(struct loading *loading) {
    struct rf_vocab *vocab = &loading->vocab;
    bool llama = vocab->family == RF_VOCAB_LLAMA; /* this family has default ids */
    rf_status status = read_id(loading, "tokenizer.ggml.bos_token_id", llama ? 1 : -1, &vocab->bos);
    if (!status) status = read_id(loading, "tokenizer.ggml.eos_token_id", llama ? 2 : -1, &vocab->eos);
    if (!status) status = read_id(loading, "tokenizer.ggml.unknown_token_id", llama ? 0 : -1, &vocab->unk);
    if (!status) status = read_id(loading, "tokenizer.ggml.padding_token_id", -1, &vocab->pad);
    if (!status) status = read_id(loading, "tokenizer.ggml.eot_token_id", -1, &vocab->eot);
    if (!status) status = read_choice(loading, "tokenizer.ggml.add_bos_token", &vocab->add_bos);
    if (!status) status = read_choice(loading, "tokenizer.ggml.add_eos_token", &vocab->add_eos);
    if (!status) status = read_choice(loading, "tokenizer.ggml.add_space_prefix", &vocab->add_space_prefix);
    if (!status && !llama && rf_gguf_find(loading->gguf, "tokenizer.ggml.pre")) {
        struct rf_gguf_string pre;
        status = rf_gguf_get_string(loading->gguf, "tokenizer.ggml.pre", &pre);
        if (!status) vocab->pre = (struct rf_vocab_text){pre.text, pre.bytes};
    }
    return status;
}

rf_status rf_tokenizer_from_gguf(const struct rf_gguf *gguf, struct rf_tokenizer **out) {
    return rf_tokenizer_from_gguf_charged(gguf, NULL, out);
}

rf_status rf_tokenizer_from_gguf_charged(const struct rf_gguf *gguf, const struct rf_account *account,
                                         struct rf_tokenizer **out) {
    if (!gguf || !out) return rf_fail(RF_E_INVALID, "rf_tokenizer_from_gguf: an argument is NULL");
    struct loading loading = {.gguf = gguf, .account = rf_account_open(account)};
    loading.vocab.account = rf_account_open(account);
    rf_status status = read_family(&loading);
    if (!status) status = read_tokens(&loading);
    if (!status) status = read_merges(&loading);
    if (!status) status = read_settings(&loading);
    if (!status) status = rf_tokenizer_create(&loading.vocab, out);
    free(loading.tokens);
    free(loading.merges);
    rf_account_close(&loading.account);
    const char *path = rf_gguf_path(gguf);
    if (!status || strncmp(rf_error_text(), path, strlen(path)) == 0) return status; /* it already names the file */
    return rf_fail_within(status, "%s", path);
}

rf_status rf_tokenizer_open(const char *path, struct rf_tokenizer **out) {
    struct rf_gguf *gguf = NULL;
    if (!path || !out) return rf_fail(RF_E_INVALID, "rf_tokenizer_open: an argument is NULL");
    rf_status status = rf_gguf_open(path, &gguf);
    if (!status) status = rf_tokenizer_from_gguf(gguf, out);
    rf_gguf_close(&gguf);
    return status;
}
