/* The texts of a vocabulary as two tries (see grammar_impl.h), from its tokens sorted by their bytes. */
#include "grammar/grammar_impl.h"

#include <stdlib.h>

#include "base/utf8.h"
#include "runtime/host_memory.h"
#include "runtime/runtime.h"

enum { TOKEN_BYTES_MAX = 64 << 10, NODES_MAX = 1 << 24 };

struct text {
    const char *bytes;
    uint32_t count, token;
};

static int by_text(const void *a, const void *b) {
    const struct text *x = a, *y = b;
    int order = memcmp(x->bytes, y->bytes, RF_MIN(x->count, y->count));
    if (order) return order;
    if (x->count != y->count) return x->count < y->count ? -1 : 1;
    return x->token < y->token ? -1 : x->token > y->token;
}

static bool is_plain(const char *bytes, size_t count) {
    for (size_t at = 0, taken; at < count; at += taken) {
        uint32_t code = rf_utf8_decode(bytes + at, count - at, &taken);
        if (code == RF_CODE_INVALID || code < 0x20 || code == '"' || code == '\\') return false;
    }
    return true;
}

static rf_status add_node(struct rf_token_trie *trie, uint8_t byte) {
    if (trie->node_count == trie->node_capacity) {
        uint32_t capacity = 2 * trie->node_capacity + 4096;
        if (capacity > NODES_MAX) return rf_fail(RF_E_NO_MEMORY, "the vocabulary's texts are too long for a trie");
        RF_TRY(rf_account_resize(&trie->account, (void **)&trie->nodes, trie->node_capacity * sizeof *trie->nodes,
                                 capacity * sizeof *trie->nodes, "a vocabulary's texts"));
        trie->node_capacity = capacity;
    }
    trie->nodes[trie->node_count++] = (struct rf_trie_node){RF_NO_TOKEN, 1, byte};
    return RF_OK;
}

/* Sorted texts to nodes. path: the nodes of the last text's bytes. */
static rf_status add_texts(struct rf_token_trie *trie, const struct text *texts, uint32_t count, bool plain,
                           uint32_t *path) {
    const struct text *last = NULL;
    uint32_t depth = 0;
    for (uint32_t i = 0; i <= count; i++) {
        const struct text *text = i < count ? &texts[i] : NULL;
        uint32_t common = 0;
        if (text && is_plain(text->bytes, text->count) != plain) continue;
        while (text && last && common < RF_MIN(text->count, last->count) &&
               text->bytes[common] == last->bytes[common])
            common++;
        while (depth > common) {
            depth--;
            trie->nodes[path[depth]].size = (trie->node_count - path[depth]) & 0xffffff;
        }
        if (!text) break;
        if (last && common == text->count) { /* the same text: the two are sorted by their number */
            trie->nodes[path[depth - 1]].token |= RF_TWINS;
            trie->twins[last->token] = text->token;
        }
        for (; depth < text->count; depth++) {
            path[depth] = trie->node_count;
            RF_TRY(add_node(trie, (uint8_t)text->bytes[depth]));
            if (depth + 1 == text->count) trie->nodes[path[depth]].token = text->token;
        }
        last = text;
    }
    return RF_OK;
}

/* Which tokens are text, and which end one. */
static rf_status read_tokens(struct rf_token_trie *trie, struct text *texts, uint32_t *count) {
    *count = 0;
    for (uint32_t id = 0; id < trie->token_count; id++) {
        RF_PARAMS(struct rf_token_info, info);
        RF_TRY(rf_tokenizer_token(trie->tokenizer, (int32_t)id, &info));
        trie->twins[id] = RF_NO_TOKEN;
        if (info.ends_text) trie->ends[id / 32] |= 1u << id % 32;
        bool is_text = !info.ends_text && info.type != RF_TOKEN_CONTROL && info.type != RF_TOKEN_UNKNOWN &&
                       info.type != RF_TOKEN_UNUSED;
        if (!is_text || !info.piece_bytes || info.piece_bytes > TOKEN_BYTES_MAX) continue;
        texts[(*count)++] = (struct text){info.piece, (uint32_t)info.piece_bytes, id};
        trie->spells[id] = 1;
        if (is_plain(info.piece, info.piece_bytes)) trie->plain[id / 32] |= 1u << id % 32;
        trie->longest = RF_MAX(trie->longest, (uint32_t)info.piece_bytes);
    }
    return RF_OK;
}

static rf_status take(struct rf_account *account, void *out, uint64_t bytes) {
    RF_TRY(rf_account_resize(account, out, 0, bytes, "a vocabulary's texts"));
    memset(*(void **)out, 0, bytes);
    return RF_OK;
}

static rf_status build(struct rf_token_trie *trie) {
    struct rf_account account = rf_account_open(&trie->account);
    struct text *texts = NULL;
    uint32_t *path = NULL, count = 0;
    uint64_t tokens = trie->token_count;
    rf_status status = take(&account, &texts, (tokens + 1) * sizeof *texts);
    if (!status) status = take(&trie->account, &trie->twins, (tokens + 1) * sizeof *trie->twins);
    if (!status) status = take(&trie->account, &trie->spells, tokens + 1);
    if (!status) status = take(&trie->account, &trie->plain, (trie->words + 1) * sizeof *trie->plain);
    if (!status) status = take(&trie->account, &trie->ends, (trie->words + 1) * sizeof *trie->ends);
    if (!status) status = read_tokens(trie, texts, &count);
    if (!status) status = take(&account, &path, (trie->longest + 1ull) * sizeof *path);
    if (!status) {
        qsort(texts, count, sizeof *texts, by_text);
        status = add_texts(trie, texts, count, true, path);
        trie->plain_count = trie->node_count;
    }
    if (!status) status = add_texts(trie, texts, count, false, path);
    free(texts);
    free(path);
    rf_account_close(&account);
    return status;
}

rf_status rf_token_trie_create(struct rf_runtime *runtime, const struct rf_tokenizer *tokenizer,
                               struct rf_token_trie **out) {
    if (!tokenizer || !out) return rf_fail(RF_E_INVALID, "rf_token_trie_create: tokenizer or out is NULL");
    RF_PARAMS(struct rf_tokenizer_info, info);
    RF_TRY(rf_tokenizer_get_info(tokenizer, &info));
    struct rf_token_trie *trie = calloc(1, sizeof *trie);
    if (!trie) return rf_fail(RF_E_NO_MEMORY, "no host memory for a vocabulary's texts");
    if (runtime) trie->account = rf_host_account(&runtime->host);
    trie->tokenizer = tokenizer;
    trie->token_count = (uint32_t)info.token_count;
    trie->words = (trie->token_count + 31) / 32;
    rf_status status = build(trie);
    if (status) {
        rf_token_trie_destroy(&trie);
        return status;
    }
    *out = trie;
    return RF_OK;
}

void rf_token_trie_destroy(struct rf_token_trie **pointer) {
    if (!pointer || !*pointer) return;
    struct rf_token_trie *trie = *pointer;
    free(trie->nodes);
    free(trie->twins);
    free(trie->spells);
    free(trie->plain);
    free(trie->ends);
    rf_account_close(&trie->account);
    free(trie);
    *pointer = NULL;
}
