#include "gguf_mutate.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rocmforge/test.h>

#include "base/base.h"

enum { KEYS_MAX = 128, TENSORS_MAX = 512, DIMENSIONS_MAX = 8 };

/* Bytes of the original file, or of the mutant's own arena. */
struct text {
    const unsigned char *data;
    size_t bytes;
    uint64_t claimed; /* the length that is written in front of it */
};
struct key {
    struct text name;
    uint32_t type;
    struct text value; /* everything after the type, as the file has it; claimed is not used */
    bool askew;        /* the type and the bytes no longer fit each other */
};
struct tensor {
    struct text name;
    uint32_t rank, written; /* the rank as the file claims it, and how many dimensions follow */
    uint64_t dimensions[DIMENSIONS_MAX];
    uint32_t type;
    uint64_t offset;
};
struct file {
    struct rf_random random;
    struct gguf_mutation *mutation;
    uint32_t magic, version;
    struct key keys[KEYS_MAX];
    struct tensor tensors[TENSORS_MAX];
    size_t key_count, tensor_count;
    uint64_t extra_keys, extra_tensors; /* what the header claims beyond what is there, modulo 2^64 */
    uint32_t alignment;                 /* that of the original: the data is put at a multiple of it */
    struct text data;
    struct blob arena[16]; /* what mutations made; each is allocated once and does not move */
    int arenas;
};

static uint64_t below(struct file *file, uint64_t bound) {
    return bound ? rf_random_below(&file->random, bound) : 0;
}

static void RF_PRINTF(2, 3) tell(struct file *file, const char *format, ...) {
    struct gguf_mutation *mutation = file->mutation;
    va_list args;
    if (mutation->count == GGUF_MUTATIONS_MAX) return;
    va_start(args, format);
    vsnprintf(mutation->text[mutation->count++], GGUF_MUTATION_TEXT, format, args);
    va_end(args);
}

/* ---- taking a file apart ---- */

struct reader {
    const unsigned char *at, *end;
};
static const unsigned char *take(struct reader *reader, uint64_t bytes) {
    const unsigned char *at = reader->at;
    RF_ASSERT(bytes <= (uint64_t)(reader->end - reader->at));
    reader->at += bytes;
    return at;
}
static uint32_t take_u32(struct reader *reader) {
    uint32_t value;
    memcpy(&value, take(reader, sizeof value), sizeof value);
    return value;
}
static uint64_t take_u64(struct reader *reader) {
    uint64_t value;
    memcpy(&value, take(reader, sizeof value), sizeof value);
    return value;
}
static struct text take_text(struct reader *reader) {
    uint64_t bytes = take_u64(reader);
    return (struct text){take(reader, bytes), (size_t)bytes, bytes};
}

static size_t type_bytes(uint32_t type) {
    static const unsigned char sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < RF_COUNT(sizes) ? sizes[type] : 0;
}

static void skip_value(struct reader *reader, uint32_t type) {
    if (type == RF_GGUF_STRING) {
        take(reader, take_u64(reader));
    } else if (type == RF_GGUF_ARRAY) {
        uint32_t elements = take_u32(reader);
        uint64_t count = take_u64(reader);
        if (elements == RF_GGUF_STRING)
            for (uint64_t i = 0; i < count; i++) take(reader, take_u64(reader));
        else
            take(reader, count * type_bytes(elements));
    } else {
        take(reader, type_bytes(type));
    }
}

static bool is_named(const struct text *name, const char *text) {
    return name->bytes == strlen(text) && !memcmp(name->data, text, name->bytes);
}

static void parse(struct file *file, const unsigned char *bytes, size_t size) {
    struct reader reader = {bytes, bytes + size};
    file->magic = take_u32(&reader);
    file->version = take_u32(&reader);
    file->tensor_count = (size_t)take_u64(&reader);
    file->key_count = (size_t)take_u64(&reader);
    RF_ASSERT(file->version == 3 && file->tensor_count < TENSORS_MAX / 2 && file->key_count < KEYS_MAX / 2);
    file->alignment = 32;
    for (size_t i = 0; i < file->key_count; i++) {
        struct key *key = &file->keys[i];
        key->name = take_text(&reader);
        key->type = take_u32(&reader);
        const unsigned char *begin = reader.at;
        skip_value(&reader, key->type);
        key->value = (struct text){begin, (size_t)(reader.at - begin), 0};
        if (is_named(&key->name, "general.alignment")) memcpy(&file->alignment, begin, sizeof file->alignment);
    }
    for (size_t i = 0; i < file->tensor_count; i++) {
        struct tensor *tensor = &file->tensors[i];
        tensor->name = take_text(&reader);
        tensor->rank = tensor->written = take_u32(&reader);
        RF_ASSERT(tensor->rank <= 4);
        for (uint32_t d = 0; d < tensor->rank; d++) tensor->dimensions[d] = take_u64(&reader);
        tensor->type = take_u32(&reader);
        tensor->offset = take_u64(&reader);
    }
    size_t at = (size_t)(reader.at - bytes), begin = (at + file->alignment - 1) / file->alignment * file->alignment;
    RF_ASSERT(begin <= size);
    file->data = (struct text){bytes + begin, size - begin, 0};
}

/* ---- putting it together ---- */

static void write_text(struct blob *out, const struct text *text) {
    blob_u64(out, text->claimed);
    blob_add(out, text->data, text->bytes);
}

static void write_file(const struct file *file, struct blob *out) {
    blob_u32(out, file->magic);
    blob_u32(out, file->version);
    blob_u64(out, file->tensor_count + file->extra_tensors);
    blob_u64(out, file->key_count + file->extra_keys);
    for (size_t i = 0; i < file->key_count; i++) {
        write_text(out, &file->keys[i].name);
        blob_u32(out, file->keys[i].type);
        blob_add(out, file->keys[i].value.data, file->keys[i].value.bytes);
    }
    for (size_t i = 0; i < file->tensor_count; i++) {
        const struct tensor *tensor = &file->tensors[i];
        write_text(out, &tensor->name);
        blob_u32(out, tensor->rank);
        for (uint32_t d = 0; d < tensor->written; d++) blob_u64(out, tensor->dimensions[d]);
        blob_u32(out, tensor->type);
        blob_u64(out, tensor->offset);
    }
    blob_pad(out, file->alignment);
    blob_add(out, file->data.data, file->data.bytes);
}

/* ---- odd numbers ---- */

static uint64_t odd_number(struct file *file, uint64_t was) {
    const uint64_t odd[] = {0,
                            1,
                            2,
                            3,
                            7,
                            8,
                            31,
                            33,
                            64,
                            255,
                            256,
                            4096,
                            65535,
                            65536,
                            INT32_MAX,
                            (uint64_t)INT32_MAX + 1,
                            UINT32_MAX,
                            (uint64_t)UINT32_MAX + 1,
                            (uint64_t)INT64_MAX,
                            (uint64_t)INT64_MAX + 1,
                            UINT64_MAX,
                            UINT64_MAX - 31,
                            UINT64_MAX / 2 / 3,
                            was + 1,
                            was - 1,
                            was * 2,
                            was / 2,
                            was * 1000,
                            was ^ (UINT64_C(1) << below(file, 64)),
                            below(file, 1000),
                            rf_random_next(&file->random)};
    return odd[below(file, RF_COUNT(odd))];
}

static double odd_real(struct file *file, double was) {
    const double odd[] = {
        0,    -1,  1, NAN,  INFINITY, -INFINITY, 1e38,     -1e38,     1e-45, 1e-30,
        1e30, 0.5, 2, -0.0, was,      was * 10,  was / 10, was * 1e6, -was,  rf_random_unit(&file->random)};
    return odd[below(file, RF_COUNT(odd))];
}

/* Room in the mutant for what a mutation makes; borrowed until the mutant is written. */
static struct blob *arena(struct file *file) {
    RF_ASSERT(file->arenas < (int)RF_COUNT(file->arena));
    return &file->arena[file->arenas++];
}
static struct text of_blob(const struct blob *blob) {
    return (struct text){blob->data, blob->used, blob->used};
}
static struct text own_text(struct file *file, const void *data, size_t bytes) {
    struct blob *blob = arena(file);
    blob_add(blob, "", 1); /* so that there is an address even where nothing follows */
    blob->used = 0;
    blob_add(blob, data, bytes);
    return of_blob(blob);
}

static void odd_string(struct file *file, struct blob *out) {
    static const char *const texts[] = {"",
                                        "llama",
                                        "gpt2",
                                        "bert",
                                        "default",
                                        "\xff\xfe\x80",
                                        "\xed\xa0\x80",
                                        "a\nb\x1b[31m",
                                        "%s%n%s",
                                        "qwen2",
                                        "gemma",
                                        "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m }}",
                                        "../../../../etc/passwd"};
    if (below(file, 8) == 0) { /* a long one */
        size_t bytes = (size_t)below(file, 200000);
        blob_u64(out, bytes);
        for (size_t i = 0; i < bytes; i++) blob_add(out, &"a<|{"[i % 4], 1);
        return;
    }
    blob_string(out, texts[below(file, RF_COUNT(texts))]);
}

/* A well-formed value of a type. */
static void odd_value(struct file *file, struct blob *out, uint32_t type, uint64_t was) {
    uint64_t number = odd_number(file, was);
    if (type == RF_GGUF_STRING) {
        odd_string(file, out);
    } else if (type == RF_GGUF_F32) {
        float real = (float)odd_real(file, (double)was);
        blob_add(out, &real, sizeof real);
    } else if (type == RF_GGUF_F64) {
        double real = odd_real(file, (double)was);
        blob_add(out, &real, sizeof real);
    } else if (type == RF_GGUF_ARRAY) {
        uint32_t elements = (uint32_t)below(file, 13);
        uint64_t count = below(file, 40);
        if (elements == RF_GGUF_ARRAY) elements = RF_GGUF_I32;
        blob_u32(out, elements);
        blob_u64(out, count);
        for (uint64_t i = 0; i < count; i++) odd_value(file, out, elements, i);
    } else {
        blob_add(out, &number, type_bytes(type));
    }
}

/* ---- keys ---- */

static struct key *some_key(struct file *file) {
    return file->key_count ? &file->keys[below(file, file->key_count)] : NULL;
}
#define NAME(thing) (int)RF_MIN((thing)->name.bytes, (size_t)48), (const char *)(thing)->name.data

/* The number another type, the bytes as they were: what follows is read askew. */
static void key_type(struct file *file) {
    struct key *key = some_key(file);
    if (!key) return;
    uint32_t was = key->type;
    key->type = below(file, 4) ? (uint32_t)below(file, 14) : (uint32_t)odd_number(file, was);
    key->askew = true;
    tell(file, "key %.*s: type %u becomes %u", NAME(key), was, key->type);
}

static void key_other_value(struct file *file) {
    struct key *key = some_key(file);
    struct blob *blob = arena(file);
    if (!key || key->askew) return;
    uint32_t was = key->type;
    uint64_t old = 0;
    memcpy(&old, key->value.data, RF_MIN(type_bytes(was), sizeof old));
    if (below(file, 2)) key->type = (uint32_t)below(file, 13);
    odd_value(file, blob, key->type, old);
    key->value = of_blob(blob);
    uint64_t now = 0;
    memcpy(&now, key->value.data, RF_MIN(key->value.bytes, sizeof now));
    tell(file, "key %.*s: type %u, %#llx, becomes type %u, %#llx", NAME(key), was, (unsigned long long)old, key->type,
         (unsigned long long)now);
}

/* A hyperparameter or token id, of the type it has: what passes the parser and reaches the engine. */
static void key_number(struct file *file) {
    for (int tries = 0; tries < 50; tries++) {
        struct key *key = some_key(file);
        if (!key || !type_bytes(key->type) || key->askew) continue;
        struct blob *blob = arena(file);
        uint64_t was = 0, is = 0;
        float real = 0;
        memcpy(&was, key->value.data, RF_MIN(key->value.bytes, sizeof was));
        if (key->type == RF_GGUF_F32) { /* as a number, not as its bits */
            float old;
            memcpy(&old, key->value.data, sizeof old);
            real = (float)odd_real(file, (double)old);
            blob_add(blob, &real, sizeof real);
        } else {
            odd_value(file, blob, key->type, was);
        }
        key->value = of_blob(blob);
        memcpy(&is, key->value.data, RF_MIN(key->value.bytes, sizeof is));
        if (key->type == RF_GGUF_F32)
            tell(file, "key %.*s: becomes %g", NAME(key), (double)real);
        else
            tell(file, "key %.*s: %llu becomes %llu", NAME(key), (unsigned long long)was, (unsigned long long)is);
        return;
    }
}

static void key_string_length(struct file *file) {
    for (int tries = 0; tries < 50; tries++) {
        struct key *key = some_key(file);
        if (!key || key->type != RF_GGUF_STRING || key->askew) continue;
        key->askew = true;
        uint64_t length;
        memcpy(&length, key->value.data, sizeof length);
        uint64_t claimed = odd_number(file, length);
        key->value = own_text(file, key->value.data, key->value.bytes);
        memcpy(file->arena[file->arenas - 1].data, &claimed, sizeof claimed);
        tell(file, "key %.*s: a string of %llu bytes claims %llu", NAME(key), (unsigned long long)length,
             (unsigned long long)claimed);
        return;
    }
}

static struct key *some_array(struct file *file) {
    for (int tries = 0; tries < 100; tries++) {
        struct key *key = some_key(file);
        if (key && key->type == RF_GGUF_ARRAY && !key->askew) return key;
    }
    return NULL;
}

/* Count or type of an array's elements, the bytes as they were. */
static void array_header(struct file *file) {
    struct key *key = some_array(file);
    if (!key) return;
    uint32_t elements;
    uint64_t count;
    key->askew = true;
    key->value = own_text(file, key->value.data, key->value.bytes);
    unsigned char *to = file->arena[file->arenas - 1].data;
    memcpy(&elements, to, sizeof elements);
    memcpy(&count, to + 4, sizeof count);
    if (below(file, 2)) {
        uint64_t other = odd_number(file, count);
        memcpy(to + 4, &other, sizeof other);
        tell(file, "key %.*s: an array of %llu claims %llu", NAME(key), (unsigned long long)count,
             (unsigned long long)other);
    } else {
        uint32_t other = (uint32_t)below(file, 14);
        memcpy(to, &other, sizeof other);
        tell(file, "key %.*s: an array of type %u becomes one of %u", NAME(key), elements, other);
    }
}

/* A well-formed array of another length or with other elements. */
static void array_elements(struct file *file) {
    struct key *key = some_array(file);
    if (!key) return;
    struct reader reader = {key->value.data, key->value.data + key->value.bytes};
    struct blob *blob = arena(file), made = {0};
    uint32_t type = take_u32(&reader);
    uint64_t count = take_u64(&reader), kept = 0;
    bool cut = below(file, 2), odd_all = below(file, 8) == 0;
    uint64_t most = cut ? below(file, count + 1) : count, odd_one = below(file, count);
    if (type == RF_GGUF_ARRAY || (type != RF_GGUF_STRING && !type_bytes(type))) return;
    for (uint64_t i = 0; i < count && kept < most; i++, kept++) {
        const unsigned char *begin = reader.at;
        skip_value(&reader, type);
        if (!cut && (odd_all || i == odd_one)) /* strings of a whole array are kept short */
            odd_all &&type == RF_GGUF_STRING ? blob_string(&made, "same") : odd_value(file, &made, type, i);
        else
            blob_add(&made, begin, (size_t)(reader.at - begin));
    }
    blob_u32(blob, type);
    blob_u64(blob, kept);
    blob_add(blob, made.data, made.used);
    blob_free(&made);
    key->value = of_blob(blob);
    if (cut)
        tell(file, "key %.*s: the array of %llu is cut to %llu", NAME(key), (unsigned long long)count,
             (unsigned long long)kept);
    else
        tell(file, "key %.*s: %s of the array's %llu elements changed", NAME(key), odd_all ? "all" : "one",
             (unsigned long long)count);
}

/* Tables of the tokenizer in each other's places, among others. */
static void swap_values(struct file *file, bool arrays) {
    struct key *a = arrays ? some_array(file) : some_key(file), *b = arrays ? some_array(file) : some_key(file);
    if (!a || !b) return;
    struct key was = *a;
    a->type = b->type;
    a->value = b->value;
    a->askew = b->askew;
    b->type = was.type;
    b->value = was.value;
    b->askew = was.askew;
    tell(file, "keys %.*s and %.*s have each other's values", NAME(a), NAME(b));
}
static void swap_tables(struct file *file) {
    swap_values(file, true);
}
static void swap_any(struct file *file) {
    swap_values(file, false);
}

static void key_drop(struct file *file) {
    struct key *key = some_key(file);
    if (!key) return;
    tell(file, "key %.*s is dropped", NAME(key));
    memmove(key, key + 1, (size_t)(file->keys + file->key_count - key - 1) * sizeof *key);
    file->key_count--;
}

static void key_twice(struct file *file) {
    struct key *key = some_key(file);
    if (!key || file->key_count == KEYS_MAX) return;
    file->keys[file->key_count++] = *key;
    tell(file, "key %.*s is there twice", NAME(key));
}

static struct text odd_name(struct file *file, const struct text *was) {
    char text[512];
    memset(text, 'n', sizeof text);
    switch (below(file, 5)) {
    case 0: return own_text(file, "", 0);
    case 1: return own_text(file, text, below(file, 2) ? sizeof text : 65);
    case 2: return own_text(file, "bad\0\x01\xff", 6);
    case 3: {
        struct text longer = own_text(file, was->data, was->bytes);
        longer.claimed = odd_number(file, was->bytes);
        return longer;
    }
    default: return own_text(file, was->data, was->bytes ? was->bytes - 1 : 0);
    }
}

static void key_rename(struct file *file) {
    struct key *key = some_key(file);
    if (!key) return;
    tell(file, "key %.*s gets another name", NAME(key));
    key->name = odd_name(file, &key->name);
}

/* An alignment that the data may not have. */
static void alignment(struct file *file) {
    static const uint32_t odd[] = {0, 1, 3, 4, 7, 8, 16, 48, 64, 128, 4096, UINT32_C(1) << 31, UINT32_MAX};
    struct blob *blob = arena(file);
    if (file->key_count == KEYS_MAX) return;
    struct key *key = &file->keys[file->key_count++];
    for (size_t i = 0; i + 1 < file->key_count; i++)
        if (is_named(&file->keys[i].name, "general.alignment")) {
            key = &file->keys[i];
            file->key_count--;
        }
    key->name = own_text(file, "general.alignment", 17);
    key->type = below(file, 4) ? RF_GGUF_U32 : (uint32_t)below(file, 13);
    uint32_t value = odd[below(file, RF_COUNT(odd))];
    if (key->type == RF_GGUF_U32)
        blob_u32(blob, value);
    else
        odd_value(file, blob, key->type, 32);
    key->value = of_blob(blob);
    if (value && value <= 4096 && below(file, 2)) file->alignment = value; /* and the data lies as it says */
    tell(file, "general.alignment becomes %u, of type %u; the data lies at a multiple of %u", value, key->type,
         file->alignment);
}

/* Another architecture, whose hyperparameters this file does not have; or has, where the keys are renamed too. */
static void architecture(struct file *file) {
    static const char *const names[] = {"llama", "qwen2", "qwen3", "gemma", "gemma2", "phi3", "mistral", "", "x"};
    const char *name = names[below(file, RF_COUNT(names))];
    for (size_t i = 0; i < file->key_count; i++) {
        struct key *key = &file->keys[i];
        if (!is_named(&key->name, "general.architecture")) continue;
        struct blob *blob = arena(file);
        key->type = RF_GGUF_STRING;
        blob_string(blob, name);
        key->value = of_blob(blob);
        tell(file, "the architecture becomes \"%s\"", name);
        return;
    }
}

/* ---- tensors ---- */

static struct tensor *some_tensor(struct file *file) {
    return file->tensor_count ? &file->tensors[below(file, file->tensor_count)] : NULL;
}

static void tensor_dimension(struct file *file) {
    struct tensor *tensor = some_tensor(file);
    if (!tensor || !tensor->rank) return;
    uint32_t d = (uint32_t)below(file, tensor->rank) % DIMENSIONS_MAX;
    uint64_t was = tensor->dimensions[d];
    if (tensor->rank > 1 && below(file, 3) == 0) {
        tensor->dimensions[d] = tensor->dimensions[(d + 1) % tensor->rank % DIMENSIONS_MAX];
        tensor->dimensions[(d + 1) % tensor->rank % DIMENSIONS_MAX] = was;
        tell(file, "tensor %.*s is transposed", NAME(tensor));
        return;
    }
    tensor->dimensions[d] = odd_number(file, was);
    tell(file, "tensor %.*s: dimension %u, %llu, becomes %llu", NAME(tensor), d, (unsigned long long)was,
         (unsigned long long)tensor->dimensions[d]);
}

static void tensor_rank(struct file *file) {
    struct tensor *tensor = some_tensor(file);
    if (!tensor) return;
    uint32_t was = tensor->rank;
    tensor->rank = below(file, 3) ? (uint32_t)below(file, 7) : (uint32_t)odd_number(file, was);
    bool consistent = below(file, 2) && tensor->rank <= DIMENSIONS_MAX;
    if (consistent) {
        for (uint32_t d = was; d < tensor->rank; d++) tensor->dimensions[d] = 1;
        tensor->written = tensor->rank;
    }
    tell(file, "tensor %.*s: rank %u becomes %u%s", NAME(tensor), was, tensor->rank,
         consistent ? ", and so many dimensions follow" : "");
}

static void tensor_type(struct file *file) {
    struct tensor *tensor = some_tensor(file);
    if (!tensor) return;
    uint32_t was = tensor->type;
    tensor->type = below(file, 4) ? (uint32_t)below(file, 42) : (uint32_t)odd_number(file, was);
    tell(file, "tensor %.*s: type %u becomes %u", NAME(tensor), was, tensor->type);
}

static void tensor_offset(struct file *file) {
    struct tensor *tensor = some_tensor(file), *other = some_tensor(file);
    if (!tensor) return;
    uint64_t was = tensor->offset;
    const uint64_t odd[] = {other->offset,    was + 1,  was + 8, was + file->alignment, was - file->alignment,
                            file->data.bytes, ~was + 1, 0,       odd_number(file, was)};
    tensor->offset = odd[below(file, RF_COUNT(odd))];
    tell(file, "tensor %.*s: offset %llu becomes %llu", NAME(tensor), (unsigned long long)was,
         (unsigned long long)tensor->offset);
}

static void tensor_drop(struct file *file) {
    struct tensor *tensor = some_tensor(file);
    if (!tensor) return;
    tell(file, "tensor %.*s is dropped", NAME(tensor));
    memmove(tensor, tensor + 1, (size_t)(file->tensors + file->tensor_count - tensor - 1) * sizeof *tensor);
    file->tensor_count--;
}

static void tensor_twice(struct file *file) {
    struct tensor *tensor = some_tensor(file);
    if (!tensor || file->tensor_count == TENSORS_MAX) return;
    file->tensors[file->tensor_count++] = *tensor;
    tell(file, "tensor %.*s is there twice", NAME(tensor));
}

static void tensor_rename(struct file *file) {
    struct tensor *tensor = some_tensor(file), *other = some_tensor(file);
    if (!tensor) return;
    if (below(file, 2)) {
        struct text was = tensor->name;
        tell(file, "tensors %.*s and %.*s have each other's names", NAME(tensor), NAME(other));
        tensor->name = other->name;
        other->name = was;
        return;
    }
    tell(file, "tensor %.*s gets another name", NAME(tensor));
    tensor->name = odd_name(file, &tensor->name);
}

/* ---- the whole ---- */

static void counts(struct file *file) {
    bool keys = below(file, 2);
    uint64_t real = keys ? file->key_count : file->tensor_count, claimed = odd_number(file, real);
    *(keys ? &file->extra_keys : &file->extra_tensors) = claimed - real;
    tell(file, "the file claims %llu %s instead of %llu", (unsigned long long)claimed, keys ? "keys" : "tensors",
         (unsigned long long)real);
}

static void version(struct file *file) {
    static const uint32_t odd[] = {0, 1, 2, 4, UINT32_C(3) << 24, UINT32_MAX};
    file->version = odd[below(file, RF_COUNT(odd))];
    if (below(file, 8) == 0) file->magic ^= UINT32_C(1) << below(file, 32);
    tell(file, "the version becomes %u, the magic number %#x", file->version, file->magic);
}

static void data_cut(struct file *file) {
    size_t was = file->data.bytes;
    file->data.bytes = (size_t)below(file, was + 1);
    tell(file, "of %zu bytes of data %zu are left", was, file->data.bytes);
}

void gguf_mutate(const unsigned char *bytes, size_t size, uint64_t seed, struct blob *out,
                 struct gguf_mutation *mutation) {
    static void (*const kinds[])(struct file *) = {
        key_type,     key_other_value, key_number,  key_number,     key_number,       key_number,  key_string_length,
        array_header, array_elements,  swap_tables, array_elements, swap_any,         key_drop,    key_twice,
        key_rename,   alignment,       counts,      architecture,   tensor_dimension, tensor_rank, tensor_type,
        tensor_type,  tensor_offset,   tensor_drop, tensor_twice,   tensor_rename,    version,     data_cut,
    };
    struct file *file = calloc(1, sizeof *file);
    RF_ASSERT(file != NULL);
    *mutation = (struct gguf_mutation){0};
    file->random.state = seed;
    file->mutation = mutation;
    parse(file, bytes, size);
    /* Most mutants have one change: a second one often hides behind the first. */
    int wanted = below(file, 4) ? 1 : 1 + (int)below(file, GGUF_MUTATIONS_MAX);
    for (int tries = 0; mutation->count < wanted && tries < 20 && file->arenas < 12; tries++)
        kinds[below(file, RF_COUNT(kinds))](file);
    size_t start = out->used;
    write_file(file, out);
    if (below(file, 20) == 0) { /* and anywhere: cut off, or with something behind it */
        size_t now = out->used - start;
        if (below(file, 2))
            out->used = start + (size_t)below(file, now);
        else
            blob_zeros(out, (size_t)below(file, 5000));
        tell(file, "the whole file of %zu bytes becomes one of %zu", now, out->used - start);
    }
    for (int i = 0; i < file->arenas; i++) blob_free(&file->arena[i]);
    free(file);
}
