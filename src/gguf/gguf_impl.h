/* What the GGUF reader's files share: gguf.c parses, gguf_file.c maps, gguf_get.c looks up. */
#ifndef RF_GGUF_GGUF_IMPL_H
#define RF_GGUF_GGUF_IMPL_H

#include <sys/types.h>
#include <time.h>

#include "base/base.h"
#include "gguf/gguf.h"

/* Keys of one file. */
struct gguf_values {
    struct rf_gguf_value *items;
    size_t count, room;
    uint32_t *sorted; /* indices of items by key */
};

/* One file of a model. */
struct gguf_part {
    char *path;
    int descriptor; /* -1: memory */
    const unsigned char *bytes;
    uint64_t size;
    bool mapped; /* bytes is our own map; otherwise it is borrowed */
    struct timespec modified;
    uint32_t version;
    uint64_t alignment;
    struct gguf_values values;
};

/* Storage for names, in pieces that never move. */
struct gguf_names {
    struct gguf_names *next;
    size_t used, room;
    char text[];
};

struct rf_gguf {
    struct gguf_part *parts;
    size_t part_count;
    struct rf_gguf_tensor *tensors; /* of all parts, in order */
    size_t tensor_count, tensor_room;
    uint32_t *tensors_sorted; /* indices by name */
    struct gguf_names *names;
    struct rf_account account; /* for all these tables */
};

/* The list that rf_gguf_mapped() searches. False: no memory. A map must be removed before it is unmapped. */
bool gguf_map_add(const void *address, uint64_t bytes);
void gguf_map_remove(const void *address);

/* Parses part number `index`, whose bytes and size are set: reads its values, and appends its tensors. */
rf_status gguf_parse(struct rf_gguf *gguf, size_t index);
/* After the last part: sorts the tensors and refuses a name that occurs twice. */
rf_status gguf_index_tensors(struct rf_gguf *gguf);

const struct rf_gguf_value *gguf_find_value(const struct gguf_values *values, const char *key);
/* Reads an integer of any type into 64 bits; false: it is not an integer, or it is negative. */
bool gguf_value_u64(const struct rf_gguf_value *value, uint64_t *out);

/* "array of u32". Static. */
const char *gguf_array_type_name(enum rf_gguf_type elements);

/* Bytes of a value of a plain type; 0 for strings, arrays and numbers that are no type. */
size_t gguf_type_bytes(enum rf_gguf_type type);
/* Reads a value of a plain type from unaligned bytes. */
struct rf_gguf_value gguf_decode(enum rf_gguf_type type, const unsigned char *bytes);

#endif
