/* ROCmForge: text to token ids and back, with a model's own vocabulary.
 *
 * Two families, as GGUF files name them: "llama" (SentencePiece-style: pieces merged by score, a
 * space is part of the word that follows it, bytes as a fallback) and "gpt2" (byte-level BPE, with
 * the pre-tokenizer that the file names).
 *
 * Any bytes can be encoded, valid UTF-8 or not, and decoding what was encoded gives the same bytes
 * back, as long as the vocabulary has a token for every byte (all common ones do). Text is not
 * normalised. "llama" vocabularies put a space before the text and after special tokens; decoding
 * takes it away again (see rf_decode_params.continues).
 *
 * Threads: a tokenizer never changes once it is made: any number of threads may use it at once. A detokenizer belongs
 * to one thread at a time. Only opening a file blocks. */
#ifndef ROCMFORGE_TOKENIZER_H
#define ROCMFORGE_TOKENIZER_H

#include <rocmforge/base.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rf_gguf; /* <rocmforge/model.h> */
struct rf_tokenizer;

/* Reads the tokenizer from a GGUF file, copies everything and closes the file. RF_E_NOT_FOUND: there is no such file,
 * or it has no vocabulary. RF_E_UNSUPPORTED: a tokenizer or pre-tokenizer that is not known; the error text names it.
 * RF_E_SYNTAX: the file or its vocabulary is malformed. */
RF_API rf_status rf_tokenizer_open(const char *path, struct rf_tokenizer **out);
/* Reads it from an open GGUF file, which is borrowed for the call. */
RF_API rf_status rf_tokenizer_from_gguf(const struct rf_gguf *gguf, struct rf_tokenizer **out);
/* No other thread may be using it, nor a detokenizer made from it. */
RF_API void rf_tokenizer_destroy(struct rf_tokenizer **tokenizer);

struct rf_tokenizer_info {
    size_t struct_size;
    const char *family;         /* "llama" or "gpt2"; static */
    const char *pre;            /* the pre-tokenizer's name; "" for "llama"; static */
    int32_t token_count;        /* ids go from 0 to token_count - 1 */
    int32_t bos, eos, unk, pad; /* -1: none */
    int32_t eot;                /* ends a turn of a chat; -1: none */
    bool add_bos, add_eos;      /* the model wants them around a text */
    bool add_space_prefix;
};
RF_API rf_status rf_tokenizer_get_info(const struct rf_tokenizer *tokenizer, struct rf_tokenizer_info *info);

/* The numbers are those in the files. */
enum rf_token_type {
    RF_TOKEN_NORMAL = 1,
    RF_TOKEN_UNKNOWN = 2,
    RF_TOKEN_CONTROL = 3,      /* not text: it marks the beginning, the end, or a turn of a chat */
    RF_TOKEN_USER_DEFINED = 4, /* text that is always one token */
    RF_TOKEN_UNUSED = 5,
    RF_TOKEN_BYTE = 6
};
/* Texts are borrowed until the tokenizer is destroyed; they may hold any byte, and a zero byte
 * follows them. */
struct rf_token_info {
    size_t struct_size;
    const char *text; /* as the file spells it */
    size_t text_bytes;
    const char *piece; /* the bytes it stands for */
    size_t piece_bytes;
    float score;
    enum rf_token_type type;
    bool ends_text; /* a model that gives this token has finished: eos, eot and similar tokens */
};
/* RF_E_INVALID: no such id. */
RF_API rf_status rf_tokenizer_token(const struct rf_tokenizer *tokenizer, int32_t id, struct rf_token_info *info);
/* Finds the token with this text, as the file spells it; -1: none. */
RF_API int32_t rf_tokenizer_find(const struct rf_tokenizer *tokenizer, const char *text, size_t bytes);

/* ---- encoding ---------------------------------------------------------------------------- */

struct rf_encode_params {
    size_t struct_size;
    bool no_bos; /* no beginning token, even if the model wants one */
    bool no_eos;
    /* Control tokens that are spelt out in the text ("<|im_end|>") become those tokens; else they are text like any
     * other. The leftmost token wins, then the longest. User-defined tokens are always found. Leave this off for text
     * that you do not trust. */
    bool parse_special;
};
/* Gives the ids in an array that the library allocates; destroy it with rf_token_ids_destroy. The array is not NULL
 * even where there are no ids. params may be NULL. The time is at most n log n in the text's length, whatever the
 * text. RF_E_INVALID: 1 GiB of text or more. RF_E_UNSUPPORTED: the vocabulary has no token for some byte, and no
 * unknown token either. */
RF_API rf_status rf_tokenizer_encode(const struct rf_tokenizer *tokenizer, const char *text, size_t bytes,
                                     const struct rf_encode_params *params, int32_t **ids, size_t *count);
RF_API void rf_token_ids_destroy(int32_t **ids);

/* ---- decoding ------------------------------------------------------------------------------ */

struct rf_decode_params {
    size_t struct_size;
    bool show_special; /* write control and unknown tokens as their text; else they give nothing */
    /* The ids continue earlier ones: with a "llama" vocabulary the first space is text, not the space that encoding
     * puts before a text. */
    bool continues;
    bool replace_invalid; /* bytes that are not UTF-8 become U+FFFD, so that the output is always UTF-8 */
};
/* Gives text that the library allocates, terminated by a zero byte that bytes does not count; destroy it with
 * rf_text_destroy. params may be NULL. RF_E_INVALID names an id that the vocabulary does not have. */
RF_API rf_status rf_tokenizer_decode(const struct rf_tokenizer *tokenizer, const int32_t *ids, size_t count,
                                     const struct rf_decode_params *params, char **text, size_t *bytes);
RF_API void rf_text_destroy(char **text);

/* Decodes one token after the other, to show text while it is generated: the bytes of a character that is not
 * complete yet are kept back until it is. The texts that push and finish give, joined together, are the text that
 * rf_tokenizer_decode gives. The tokenizer must outlive the detokenizer. */
struct rf_detokenizer;
RF_API rf_status rf_detokenizer_create(const struct rf_tokenizer *tokenizer, const struct rf_decode_params *params,
                                       struct rf_detokenizer **out);
RF_API void rf_detokenizer_destroy(struct rf_detokenizer **detokenizer);
/* The text is borrowed until the next call, is terminated by a zero byte, and may be empty. After a failure the
 * detokenizer is as it was. */
RF_API rf_status rf_detokenizer_push(struct rf_detokenizer *detokenizer, int32_t id, const char **text,
                                     size_t *bytes);
/* Gives the bytes that were kept back; after that the detokenizer is as new. */
RF_API rf_status rf_detokenizer_finish(struct rf_detokenizer *detokenizer, const char **text, size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
