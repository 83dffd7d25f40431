/* ROCmForge: reading a model file's metadata.
 *
 * A GGUF file holds metadata (keys with typed values) and tensors. Opening one maps it and checks every count, length
 * and offset in it; a malformed or hostile file is refused with one line that says what is wrong. No tensor is
 * loaded: the functions here read only a few pages of the file.
 *
 * Threads: an open file may be read from any number of threads; nothing in it changes until it is closed. Text and
 * pointers that the functions give are borrowed until then unless said otherwise. */
#ifndef ROCMFORGE_MODEL_H
#define ROCMFORGE_MODEL_H

#include <rocmforge/gpu.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rf_gguf;

/* If a model is split into parts (NAME-00001-of-00003.gguf …), name any part: the others are found in the same
 * folder. RF_E_NOT_FOUND: no such file. RF_E_IO: it cannot be read. RF_E_SYNTAX: it is not a GGUF file or is
 * malformed. RF_E_UNSUPPORTED: a version, byte order or tensor type that is not supported; the error text names it.
 * Blocks: while the file is read. */
RF_API rf_status rf_gguf_open(const char *path, struct rf_gguf **out);
RF_API void rf_gguf_close(struct rf_gguf **gguf);

/* Whether an address lies in a model file that this process has mapped: one that is open, by itself or in an engine.
 * A handler of SIGBUS can use it: the kernel raises that signal where a mapped file was shortened or its disk fails,
 * and the handler can tell this case from others. Threads: any; takes no lock, so it may be called in a handler. */
RF_API bool rf_gguf_mapped(const void *address);

struct rf_gguf_info {
    size_t struct_size;
    uint32_t version;         /* 2 or 3 */
    uint64_t alignment_bytes; /* of tensors in the file */
    uint64_t file_count;      /* how many parts */
    uint64_t file_bytes;      /* of all parts together */
    uint64_t metadata_count;
    uint64_t tensor_count;
    uint64_t tensor_bytes;
    uint64_t parameter_count; /* elements of all tensors */
    char architecture[64];    /* such as "llama"; empty where the file does not say */
    char name[128];           /* empty where the file does not say */
    bool tied_output;         /* the output product uses the embedding's weights */
};
RF_API rf_status rf_gguf_get_info(const struct rf_gguf *gguf, struct rf_gguf_info *info);

/* ---- metadata -------------------------------------------------------------------------- */

/* The numbers are those in the files. */
enum rf_gguf_type {
    RF_GGUF_U8,
    RF_GGUF_I8,
    RF_GGUF_U16,
    RF_GGUF_I16,
    RF_GGUF_U32,
    RF_GGUF_I32,
    RF_GGUF_F32,
    RF_GGUF_BOOL,
    RF_GGUF_STRING,
    RF_GGUF_ARRAY,
    RF_GGUF_U64,
    RF_GGUF_I64,
    RF_GGUF_F64,
    RF_GGUF_TYPE_COUNT
};

/* One key with its value. */
struct rf_gguf_metadata {
    size_t struct_size;
    const char *key;
    enum rf_gguf_type type;
    const char *type_name; /* "u32", "string", "array of f32" */
    uint64_t uint_value;   /* U8 … U64 */
    int64_t int_value;     /* I8 … I64 */
    double float_value;    /* F32, F64 */
    bool bool_value;       /* BOOL */
    const char *text;      /* STRING: text_bytes bytes of any value, not terminated by zero */
    size_t text_bytes;
    enum rf_gguf_type element_type; /* ARRAY */
    uint64_t element_count;
    /* The value as one line that is safe to print: control characters and invalid UTF-8 escaped,
     * long text and arrays shortened. Valid while this struct is. */
    char shown[160];
};
/* index: from 0 to metadata_count - 1, in the file's order. RF_E_INVALID past the end. */
RF_API rf_status rf_gguf_metadata_at(const struct rf_gguf *gguf, uint64_t index, struct rf_gguf_metadata *value);
/* RF_E_NOT_FOUND: no such key. */
RF_API rf_status rf_gguf_metadata_find(const struct rf_gguf *gguf, const char *key, struct rf_gguf_metadata *value);
/* An element of an array, with the array's key. For strings the time grows with the index. */
RF_API rf_status rf_gguf_metadata_element(const struct rf_gguf *gguf, const char *key, uint64_t element,
                                          struct rf_gguf_metadata *value);

/* ---- tensors ---------------------------------------------------------------------------- */

struct rf_gguf_tensor_info {
    size_t struct_size;
    const char *name;
    enum rf_dtype dtype;
    int rank;
    uint64_t shape[RF_MAX_RANK]; /* row-major: the last varies fastest */
    uint64_t elements;
    uint64_t bytes;
    uint64_t file;   /* which part, from 0 */
    uint64_t offset; /* in that file */
};
RF_API rf_status rf_gguf_tensor_info_at(const struct rf_gguf *gguf, uint64_t index, struct rf_gguf_tensor_info *info);

/* ---- the memory a model needs ------------------------------------------------------------- */

enum rf_model_part_kind {
    RF_PART_EMBEDDING, /* token_embd.* */
    RF_PART_LAYER,     /* blk.N.* */
    RF_PART_OUTPUT,    /* output.*, output_norm.* */
    RF_PART_OTHER
};
struct rf_model_part {
    size_t struct_size;
    enum rf_model_part_kind kind;
    uint32_t layer; /* the layer's number, if kind is RF_PART_LAYER */
    uint64_t tensor_count, parameter_count, weight_bytes;
};
/* Calls visit for each part that has tensors: embedding, layers by number, output, the rest; stops
 * when it returns false. The part is borrowed for the visit. */
RF_API rf_status rf_gguf_visit_parts(const struct rf_gguf *gguf,
                                     bool (*visit)(void *user, const struct rf_model_part *part), void *user);

/* The bytes of a KV cache that holds this many tokens, for all layers, with elements of this type (RF_F16, RF_F32,
 * RF_Q8_0 …). RF_E_NOT_FOUND: the metadata does not say enough; the error text names the missing key. */
RF_API rf_status rf_gguf_kv_bytes(const struct rf_gguf *gguf, uint64_t tokens, enum rf_dtype dtype, uint64_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
