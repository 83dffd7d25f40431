/* What the tokenizer's files share: the tokenizer itself, its text index, and the state of one encoding.
 *
 * A symbol is a string of bytes that merging can produce. Every token is a symbol (symbol = id), and
 * so are the few strings that merges name and the vocabulary lacks (symbol >= token_count).
 *
 * Invariants: everything in struct rf_tokenizer is constant once rf_tokenizer_create has returned. A
 * symbol's bytes lie in `bytes`, followed by a zero. The index holds only symbols that text may
 * become by merging: never a control or user-defined token, so that text cannot pose as one.
 * tokenizer_create.c checks the last two; the first needs no check: everybody else has the tokenizer as const. */
#ifndef RF_TOKENIZER_TOKENIZER_IMPL_H
#define RF_TOKENIZER_TOKENIZER_IMPL_H

#include "base/base.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/tokenizer.h"

#define RF_NO_SYMBOL UINT32_MAX
#define RF_TEXT_BYTES_MAX ((size_t)1 << 30)

struct rf_symbol {
    size_t offset; /* in rf_tokenizer.bytes */
    uint32_t bytes;
};

struct rf_token {
    struct rf_symbol text; /* as the file spells it; the token's symbol has the bytes that it stands for */
    float score;
    uint32_t order; /* rank of the score: the smaller, the sooner it is merged */
    enum rf_token_type type;
    bool ends_text;
};

/* A hash table with open addressing; a slot holds symbol + 1, or 0 if it is empty. */
struct rf_text_index {
    uint32_t *slots;
    size_t slot_count; /* a power of two, at least twice `used` */
    size_t used;
};

/* From two neighbouring symbols to their merge. */
struct rf_merge {
    uint32_t left, right, rank, merged;
};
struct rf_merge_index {
    struct rf_merge *slots; /* merged == RF_NO_SYMBOL: empty */
    size_t slot_count;
};

struct rf_tokenizer {
    struct rf_account account; /* for its tables */
    enum rf_vocab_family family;
    const struct rf_pretokenizer *pretokenizer; /* gpt2 only */
    struct rf_token *tokens;
    uint32_t token_count;
    struct rf_symbol *symbols;
    uint32_t symbol_count, symbol_capacity;
    char *bytes;
    size_t byte_count, byte_capacity;
    struct rf_text_index by_piece; /* symbols by the bytes of text that become them */
    struct rf_text_index by_text;  /* tokens by their spelling */
    size_t longest_piece;
    struct rf_merge_index merges; /* gpt2 only */
    uint32_t byte_symbols[256];   /* the token of each byte; RF_NO_SYMBOL: none */
    uint32_t *specials;           /* tokens that are found in text as a whole, sorted by piece */
    uint32_t special_count;
    uint32_t special_starts[257]; /* specials that begin with a byte are at [byte] to [byte + 1] - 1 */
    int32_t bos, eos, unk, pad, eot;
    bool add_bos, add_eos, add_space_prefix;
};

static inline const char *rf_symbol_text(const struct rf_tokenizer *tokenizer, struct rf_symbol symbol) {
    return tokenizer->bytes + symbol.offset;
}

/* ---- tokenizer_index.c ---- */

rf_status rf_text_index_init(struct rf_text_index *index, size_t expected, struct rf_account *account);
/* The symbol with these bytes, or RF_NO_SYMBOL. spelling: compare with the tokens' texts, not their pieces. */
uint32_t rf_text_index_find(const struct rf_tokenizer *tokenizer, const struct rf_text_index *index, bool spelling,
                            const char *text, size_t bytes);
/* Adds a symbol unless one with the same bytes is there. */
rf_status rf_text_index_add(struct rf_tokenizer *tokenizer, struct rf_text_index *index, bool spelling,
                            uint32_t symbol);
rf_status rf_merge_index_init(struct rf_merge_index *index, size_t count, struct rf_account *account);
/* Of two merges of the same pair, the first stays. */
void rf_merge_index_add(struct rf_merge_index *index, struct rf_merge merge);
const struct rf_merge *rf_merge_index_find(const struct rf_merge_index *index, uint32_t left, uint32_t right);

/* ---- one encoding ---- */

/* A link of the chain that merging shortens. A link that was merged away has bytes 0. */
struct rf_link {
    uint32_t start, bytes; /* its place in the text that is merged */
    uint32_t symbol;       /* or RF_NO_SYMBOL */
    uint32_t previous, next;
};
#define RF_NO_LINK UINT32_MAX

struct rf_candidate {
    uint64_t order; /* rank or order of the score, then the position: the smallest is merged first */
    uint32_t merged;
    uint32_t bytes; /* of both links when it was made; if they differ now, it is outdated */
};

struct rf_encoding {
    const struct rf_tokenizer *tokenizer;
    struct rf_account account;
    int32_t *ids;
    size_t id_count, id_capacity;
    struct rf_link *links;
    size_t link_capacity;
    struct rf_candidate *heap;
    size_t heap_count, heap_capacity;
    uint32_t *runes; /* gpt2 */
    size_t rune_capacity;
    char *prefixed; /* llama */
    size_t prefixed_capacity;
    uint64_t steps;
};

/* Takes zeroed memory for count elements, charged; RF_E_NO_MEMORY: nothing is charged. Its owner closes the account
 * when it frees the memory. */
rf_status rf_take_array(struct rf_account *account, void **array, uint64_t count, size_t element_bytes);
#define RF_TAKE(account, array, count) rf_take_array((account), (void **)&(array), (count), sizeof *(array))
/* Grows an array to hold at least count elements (by half, or more), and charges what is added; RF_E_NO_MEMORY leaves
 * it as it was. */
rf_status rf_grow_array(struct rf_account *account, void **array, size_t *capacity, size_t count,
                        size_t element_bytes);
static inline rf_status rf_grow(struct rf_account *account, void **array, size_t *capacity, size_t count,
                                size_t element_bytes) {
    return count <= *capacity ? RF_OK : rf_grow_array(account, array, capacity, count, element_bytes);
}
#define RF_GROW(account, array, capacity, count)                                                                     \
    rf_grow((account), (void **)&(array), &(capacity), (count), sizeof *(array))

rf_status rf_encoding_emit(struct rf_encoding *encoding, uint32_t id);
/* For bytes that no token covers: emits one byte token for each, or the unknown token once. */
rf_status rf_encoding_emit_bytes(struct rf_encoding *encoding, const char *text, size_t bytes);

/* Whether two neighbours may be merged; gives their rank (the smaller, the sooner) and the merged symbol. */
typedef bool (*rf_merge_fn)(const struct rf_tokenizer *tokenizer, const char *text, const struct rf_link *left,
                            const struct rf_link *right, uint32_t *rank, uint32_t *merged);
/* tokenizer_merge.c: merges the chain of links 0 … count-1 until no two neighbours can be merged. */
rf_status rf_merge_links(struct rf_encoding *encoding, const char *text, size_t count, rf_merge_fn find);

/* tokenizer_spm.c, tokenizer_bpe.c: encode text without special tokens; prefix: put a space before it. */
rf_status rf_spm_encode(struct rf_encoding *encoding, const char *text, size_t bytes, bool prefix);
rf_status rf_bpe_encode(struct rf_encoding *encoding, const char *text, size_t bytes);

/* Writes the bytes that a token's spelling stands for into out (at least as long as the spelling). False:
 * text never becomes this token by merging; out then holds the text to show for it. */
bool rf_spm_piece(const char *text, size_t bytes, enum rf_token_type type, char *out, size_t *out_bytes);
bool rf_bpe_piece(const char *text, size_t bytes, char *out, size_t *out_bytes);
/* The byte of a spelling <0xNN>, else -1. */
int rf_spm_byte(const char *text, size_t bytes);
/* The order of a score: larger scores come first, NaN last. */
uint32_t rf_spm_order(float score);
rf_status rf_bpe_add_merges(struct rf_tokenizer *tokenizer, const struct rf_vocab *vocab);

/* tokenizer_create.c: the symbol with these bytes; makes one if there is none. */
rf_status rf_tokenizer_add_symbol(struct rf_tokenizer *tokenizer, const char *text, size_t bytes, uint32_t *out);

/* tokenizer_create.c: the longest special token at the beginning of the text; RF_NO_SYMBOL: none. Control tokens lie
 * within the first control_bytes, user-defined tokens anywhere. */
uint32_t rf_special_at(const struct rf_tokenizer *tokenizer, const char *text, size_t bytes, size_t control_bytes,
                       uint64_t *steps);

#endif
