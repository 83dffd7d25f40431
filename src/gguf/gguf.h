/* GGUF model files, versions 2 and 3: metadata by key and tensors by name, out of one memory map
 * per file.
 *
 * Everything in a file is hostile until checked. Opening checks all of it, once: every count, length,
 * type, alignment and offset, that no key or tensor name occurs twice, that tensors lie inside the
 * file and do not overlap, and that the parts of a split model agree with each other. The form of what
 * an open object hands out needs no further check; what a value means (a head count of 0, a shape that
 * disagrees with the metadata) is for the reader to check. Opening takes memory in proportion to the
 * keys and tensors that are really there, never to a count that the file claims.
 *
 * Threads: any number may read one open object; nothing in it changes until it is closed.
 * Lifetime: all pointers handed out are borrowed until rf_gguf_close().
 *
 * One risk remains: sizes are checked when a file is opened, but it stays mapped. If somebody shortens
 * the file afterwards, a thread that touches a page past its new end gets SIGBUS; the kernel offers no
 * other way. rf_gguf_read() does not touch the map and fails cleanly instead; rf_gguf_unchanged() says
 * whether the file changed. If somebody overwrites the file in place, weights and strings are whatever
 * is there then; lengths of strings in arrays are checked again at each step. */
#ifndef RF_GGUF_GGUF_H
#define RF_GGUF_GGUF_H

#include <rocmforge/gpu.h>
#include <rocmforge/model.h>

/* Opening and closing are public: rf_gguf_open(), rf_gguf_close(). */

/* The same from memory, which is borrowed until close. It must be a model of one file: a part of a split
 * model is refused. Error texts begin with name ("memory" if NULL). */
rf_status rf_gguf_open_memory(const void *bytes, size_t size, const char *name, struct rf_gguf **out);

struct rf_account;
/* rf_gguf_open, and its tables are charged to an account's budget as they grow, until it is closed. */
rf_status rf_gguf_open_charged(const char *path, const struct rf_account *account, struct rf_gguf **out);

/* The (first) file's path, or the name given for memory. */
const char *rf_gguf_path(const struct rf_gguf *gguf);

/* ---- metadata ---- */

/* Text inside a file. It may hold any byte and does not end with a zero. */
struct rf_gguf_string {
    const char *text;
    size_t bytes;
};

struct rf_gguf_array {
    enum rf_gguf_type type; /* of the elements */
    uint64_t count;
    const unsigned char *data; /* little-endian, unaligned */
    uint64_t bytes;
};

/* One key. The key is a C string. */
struct rf_gguf_value {
    const char *key;
    enum rf_gguf_type type;
    union {
        uint64_t u;                   /* RF_GGUF_U8 … U64 */
        int64_t i;                    /* RF_GGUF_I8 … I64 */
        double f;                     /* RF_GGUF_F32, F64 */
        bool b;                       /* RF_GGUF_BOOL */
        struct rf_gguf_string string; /* RF_GGUF_STRING */
        struct rf_gguf_array array;   /* RF_GGUF_ARRAY */
    };
};

size_t rf_gguf_value_count(const struct rf_gguf *gguf);
const struct rf_gguf_value *rf_gguf_value_at(const struct rf_gguf *gguf, size_t index); /* in the file's order */
/* NULL if there is no such key; for keys that are optional. In a split model only the first part's keys
 * are found. */
const struct rf_gguf_value *rf_gguf_find(const struct rf_gguf *gguf, const char *key);

/* RF_E_NOT_FOUND names the key; RF_E_SYNTAX names the key, the type wanted and the type found. Integers
 * of any width and sign are accepted if the value fits; floats are accepted as F32 or F64. */
rf_status rf_gguf_get_u32(const struct rf_gguf *gguf, const char *key, uint32_t *out);
rf_status rf_gguf_get_u64(const struct rf_gguf *gguf, const char *key, uint64_t *out);
rf_status rf_gguf_get_i64(const struct rf_gguf *gguf, const char *key, int64_t *out);
rf_status rf_gguf_get_f32(const struct rf_gguf *gguf, const char *key, float *out);
rf_status rf_gguf_get_f64(const struct rf_gguf *gguf, const char *key, double *out);
rf_status rf_gguf_get_bool(const struct rf_gguf *gguf, const char *key, bool *out);
rf_status rf_gguf_get_string(const struct rf_gguf *gguf, const char *key, struct rf_gguf_string *out);
/* The elements must have exactly this type. */
rf_status rf_gguf_get_array(const struct rf_gguf *gguf, const char *key, enum rf_gguf_type elements,
                            struct rf_gguf_array *out);
/* Elements of any integer type, or F32 or F64: read them with rf_gguf_array_int or _float. */
rf_status rf_gguf_get_int_array(const struct rf_gguf *gguf, const char *key, struct rf_gguf_array *out);
rf_status rf_gguf_get_float_array(const struct rf_gguf *gguf, const char *key, struct rf_gguf_array *out);

/* Whether the string has exactly the bytes of text. */
bool rf_gguf_string_is(struct rf_gguf_string string, const char *text);

/* The element at an index, of an array of integers or bools; of an array of F32 or F64. 0 past the end and
 * for any other type. A U64 element above INT64_MAX gives INT64_MAX. */
int64_t rf_gguf_array_int(const struct rf_gguf_array *array, uint64_t index);
double rf_gguf_array_float(const struct rf_gguf_array *array, uint64_t index);

/* The strings of an array one after the other, never more than its count. Returns false after the last, and
 * if the file was overwritten meanwhile so that a length no longer fits: check how many came.
 *     struct rf_gguf_cursor cursor = {0};
 *     while (rf_gguf_array_next_string(&array, &cursor, &token)) … cursor.index - 1 is its number … */
struct rf_gguf_cursor {
    uint64_t index; /* strings given so far */
    uint64_t at;    /* where the next one begins, in bytes */
};
bool rf_gguf_array_next_string(const struct rf_gguf_array *array, struct rf_gguf_cursor *cursor,
                               struct rf_gguf_string *out);

/* "u32", "string"; "?" for a number that is no type. Static. */
const char *rf_gguf_type_name(enum rf_gguf_type type);

/* ---- tensors ---- */

struct rf_gguf_tensor {
    const char *name; /* a C string */
    enum rf_dtype dtype;
    int rank;                    /* 1 to 4 */
    uint64_t shape[RF_MAX_RANK]; /* row-major, the last varies fastest: the reverse of the file's order */
    uint64_t elements;
    uint64_t bytes;
    const void *data; /* in the map, aligned to at least 8 (for memory: as the memory is) */
    size_t file;      /* index of the part, 0 for a model of one file */
    uint64_t offset;  /* of data in that file */
};

size_t rf_gguf_tensor_count(const struct rf_gguf *gguf);
const struct rf_gguf_tensor *rf_gguf_tensor_at(const struct rf_gguf *gguf, size_t index); /* in the files' order */
const struct rf_gguf_tensor *rf_gguf_find_tensor(const struct rf_gguf *gguf, const char *name); /* NULL: none */

/* Copies a part of a tensor by reading the file, not the map. RF_E_IO: the file was shortened or
 * could not be read. */
rf_status rf_gguf_read(const struct rf_gguf *gguf, const struct rf_gguf_tensor *tensor, uint64_t offset, void *to,
                       size_t bytes);

/* RF_E_IO if the size or modification time of a file differs from when it was opened. */
rf_status rf_gguf_unchanged(const struct rf_gguf *gguf);

/* The number that GGUF files use for a dtype; -1 if they have no supported number for it. */
int rf_gguf_tensor_type(enum rf_dtype dtype);

#endif
