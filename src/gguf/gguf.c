/* The GGUF parser: it turns bytes into checked values and tensors. gguf.h says what it promises.
 *
 *     magic "GGUF", version u32, tensor count u64, key count u64
 *     keys: name (length u64, bytes), type u32, value; an array is type u32, count u64, elements
 *     tensors: name, rank u32, dimensions u64 (fastest first), type u32, offset u64
 *     padding to general.alignment, then the tensors' data; their offsets count from here
 *
 * Invariants
 *   1. Every byte is read through take() or take_copy(), which refuse to pass the end.
 *   2. No sum or product of numbers from the file is formed unchecked.
 *   3. Tables grow with the entries that are really there, never by a count from the file.
 * take() and take_copy() assert the position. 2 and 3 say how the source is written: tests/gguf/test_gguf_malformed.c
 * and the fuzzer try what would follow from breaking them.
 *
 * The parser must not know where the bytes come from: gguf_file.c handles files. */
#include "gguf/gguf_impl.h"

#include <stdio.h>
#include <stdlib.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "GGUF values are read as they lie in memory");

#define MAX_KEY_BYTES 65535
#define MAX_NAME_BYTES 255
#define MAX_FILE_RANK 4
#define MAX_NESTING 4
#define DEFAULT_ALIGNMENT 32

/* The fewest bytes that a key (length, one letter, type, a byte) and a tensor (length, one letter, rank, one
 * dimension, type, offset) take. They bound the counts. */
#define MIN_KEY_BYTES (8 + 1 + 4 + 1)
#define MIN_TENSOR_BYTES (8 + 1 + 4 + 8 + 4 + 8)

#define ULL(x) ((unsigned long long)(x))

struct reader {
    struct rf_gguf *gguf;
    struct gguf_part *part;
    size_t part_index;
    uint64_t at;
    const char *kind; /* what is being read, for the error text: "key", "tensor" */
    uint64_t number;  /* its number, from 1; 0: none */
    const char *name; /* its name once known, or NULL */
};

static rf_status read_header(struct reader *r, uint64_t *tensor_count, uint64_t *key_count);
static rf_status read_key(struct reader *r);
static rf_status read_tensor(struct reader *r);
static rf_status index_values(struct reader *r);
static rf_status find_alignment(struct reader *r);
static rf_status place_tensors(struct reader *r, size_t first);

rf_status gguf_parse(struct rf_gguf *gguf, size_t index) {
    struct reader reader = {.gguf = gguf, .part = &gguf->parts[index], .part_index = index}, *r = &reader;
    size_t first_tensor = gguf->tensor_count;
    uint64_t tensor_count = 0, key_count = 0;
    rf_status status = read_header(r, &tensor_count, &key_count);
    for (uint64_t i = 0; i < key_count && !status; i++) {
        r->kind = "key", r->number = i + 1, r->name = NULL;
        status = read_key(r);
    }
    if (!status) status = index_values(r);
    if (!status) status = find_alignment(r);
    for (uint64_t i = 0; i < tensor_count && !status; i++) {
        r->kind = "tensor", r->number = i + 1, r->name = NULL;
        status = read_tensor(r);
    }
    if (!status) status = place_tensors(r, first_tensor);
    return status;
}

/* ---- reading, never past the end ---- */

static uint64_t bytes_left(const struct reader *r) {
    rf_assert(r->at <= r->part->size);
    return r->part->size - r->at;
}

/* "tensor 3 ("blk.0.attn_q.weight")" */
static const char *where(const struct reader *r, char text[160]) {
    if (!r->number)
        snprintf(text, 160, "the header");
    else if (r->name)
        snprintf(text, 160, "%s %llu (\"%.80s\")", r->kind, ULL(r->number), r->name);
    else
        snprintf(text, 160, "%s %llu", r->kind, ULL(r->number));
    return text;
}

static rf_status truncated(const struct reader *r, uint64_t wanted) {
    char place[160];
    return rf_fail(RF_E_SYNTAX,
                   "%s: %s wants %llu bytes at byte %llu, but the file ends at %llu: it is truncated or damaged, "
                   "copy or download it again",
                   r->part->path, where(r, place), ULL(wanted), ULL(r->at), ULL(r->part->size));
}

/* Gives the next bytes where they are, without a copy. */
static rf_status take(struct reader *r, uint64_t bytes, const unsigned char **out) {
    if (bytes > bytes_left(r)) return truncated(r, bytes);
    *out = r->part->bytes + r->at;
    r->at += bytes;
    return RF_OK;
}

static rf_status take_copy(struct reader *r, void *to, size_t bytes) {
    if (bytes > bytes_left(r)) return truncated(r, bytes);
    memcpy(to, r->part->bytes + r->at, bytes);
    r->at += bytes;
    return RF_OK;
}

static rf_status take_u32(struct reader *r, uint32_t *out) {
    return take_copy(r, out, sizeof *out);
}

static rf_status take_u64(struct reader *r, uint64_t *out) {
    return take_copy(r, out, sizeof *out);
}

static rf_status take_string(struct reader *r, struct rf_gguf_string *out) {
    uint64_t length = 0;
    const unsigned char *text = NULL;
    rf_status status = take_u64(r, &length);
    if (!status) status = take(r, length, &text);
    if (!status) *out = (struct rf_gguf_string){(const char *)text, (size_t)length};
    return status;
}

/* ---- tables that grow as they are filled ---- */

static rf_status out_of_memory(const struct reader *r) {
    return rf_fail(RF_E_NO_MEMORY, "%s: no host memory for its table of contents", r->part->path);
}

static rf_status charge(struct rf_gguf *gguf, uint64_t bytes) {
    rf_status status = rf_account_charge(&gguf->account, bytes);
    return status ? rf_fail_within(status, "%s: its table of contents", gguf->parts[0].path) : RF_OK;
}

/* Makes room for one more item. RF_E_NO_MEMORY: there is none, and items is unchanged. */
static rf_status make_room(const struct reader *r, void **items, size_t count, size_t *room, size_t item_bytes) {
    rf_assert(count <= *room);
    if (count < *room) return RF_OK;
    uint64_t more = *room ? *room : 32, bytes;
    if (rf_mul_overflows(more, 2, &more) || rf_mul_overflows(more, item_bytes, &bytes) || bytes > SIZE_MAX)
        return out_of_memory(r);
    rf_status status =
        rf_account_resize(&r->gguf->account, items, *room * item_bytes, bytes, "its table of contents");
    if (status) return rf_fail_within(status, "%s", r->part->path);
    *room = (size_t)more;
    return RF_OK;
}

/* A zero-terminated copy that lives as long as the gguf. */
static rf_status keep_name(const struct reader *r, struct rf_gguf_string name, const char **out) {
    struct rf_gguf *gguf = r->gguf;
    struct gguf_names *names = gguf->names;
    if (!names || names->room - names->used < name.bytes + 1) {
        size_t room = RF_MAX(name.bytes + 1, (size_t)4096 - sizeof *names);
        rf_status status = charge(gguf, sizeof *names + room);
        if (status) return status;
        names = malloc(sizeof *names + room);
        if (!names) {
            rf_account_release(&gguf->account, sizeof *names + room);
            return out_of_memory(r);
        }
        *names = (struct gguf_names){.next = gguf->names, .room = room};
        gguf->names = names;
    }
    char *text = names->text + names->used;
    memcpy(text, name.text, name.bytes);
    text[name.bytes] = 0;
    names->used += name.bytes + 1;
    *out = text;
    return RF_OK;
}

static rf_status take_name(struct reader *r, size_t longest) {
    struct rf_gguf_string name;
    char place[160];
    rf_status status = take_string(r, &name);
    if (status) return status;
    if (!name.bytes || name.bytes > longest)
        return rf_fail(RF_E_SYNTAX, "%s: the name of %s has %zu bytes, allowed are 1 to %zu: the file is damaged",
                       r->part->path, where(r, place), name.bytes, longest);
    /* Names are shown to people, so nothing in them may control a terminal. */
    for (size_t i = 0; i < name.bytes; i++)
        if (name.text[i] < 0x20 || name.text[i] > 0x7e)
            return rf_fail(
                RF_E_SYNTAX,
                "%s: the name of %s holds the byte 0x%02x, allowed is printable ASCII: the file is damaged",
                r->part->path, where(r, place), (unsigned char)name.text[i]);
    return keep_name(r, name, &r->name);
}

/* ---- the header ---- */

static rf_status read_header(struct reader *r, uint64_t *tensor_count, uint64_t *key_count) {
    const char *path = r->part->path;
    const unsigned char *magic;
    uint32_t version;
    if (r->part->size < 4)
        return rf_fail(RF_E_SYNTAX, "%s: is no GGUF file: it has %llu bytes", path, ULL(r->part->size));
    rf_status status = take(r, 4, &magic);
    if (status) return status;
    static const char big_endian[] =
        "%s: is a big-endian GGUF file, which is not supported: convert it to little-endian";
    if (memcmp(magic, "FUGG", 4) == 0) return rf_fail(RF_E_UNSUPPORTED, big_endian, path);
    if (memcmp(magic, "GGUF", 4) != 0)
        return rf_fail(RF_E_SYNTAX, "%s: is no GGUF file: it begins with %02x %02x %02x %02x instead of \"GGUF\"",
                       path, magic[0], magic[1], magic[2], magic[3]);
    status = take_u32(r, &version);
    if (status) return status;
    if (version && !(version & 0xffff)) return rf_fail(RF_E_UNSUPPORTED, big_endian, path);
    if (version != 2 && version != 3)
        return rf_fail(
            RF_E_UNSUPPORTED,
            "%s: is a GGUF file of version %u, supported are 2 and 3: convert it with a newer tool, or get "
            "another file",
            path, version);
    r->part->version = version;
    status = take_u64(r, tensor_count);
    if (!status) status = take_u64(r, key_count);
    if (status) return status;
    if (*key_count > bytes_left(r) / MIN_KEY_BYTES || *tensor_count > bytes_left(r) / MIN_TENSOR_BYTES)
        return rf_fail(RF_E_SYNTAX,
                       "%s: the header claims %llu keys and %llu tensors, but only %llu bytes follow: the file is "
                       "truncated or damaged",
                       path, ULL(*key_count), ULL(*tensor_count), ULL(bytes_left(r)));
    if (*key_count > UINT32_MAX || *tensor_count > UINT32_MAX)
        return rf_fail(RF_E_SYNTAX, "%s: the header claims %llu keys and %llu tensors: the file is damaged", path,
                       ULL(*key_count), ULL(*tensor_count));
    return RF_OK;
}

/* ---- keys ---- */

size_t gguf_type_bytes(enum rf_gguf_type type) {
    static const unsigned char bytes[RF_GGUF_TYPE_COUNT] = {
        [RF_GGUF_U8] = 1,  [RF_GGUF_I8] = 1,  [RF_GGUF_U16] = 2, [RF_GGUF_I16] = 2,
        [RF_GGUF_U32] = 4, [RF_GGUF_I32] = 4, [RF_GGUF_F32] = 4, [RF_GGUF_BOOL] = 1,
        [RF_GGUF_U64] = 8, [RF_GGUF_I64] = 8, [RF_GGUF_F64] = 8,
    };
    return (unsigned)type < RF_GGUF_TYPE_COUNT ? bytes[type] : 0;
}

struct rf_gguf_value gguf_decode(enum rf_gguf_type type, const unsigned char *bytes) {
    struct rf_gguf_value value = {.type = type};
    uint64_t raw = 0;
    float f32;
    memcpy(&raw, bytes, gguf_type_bytes(type));
    switch (type) {
    case RF_GGUF_I8: value.i = (int8_t)raw; break;
    case RF_GGUF_I16: value.i = (int16_t)raw; break;
    case RF_GGUF_I32: value.i = (int32_t)raw; break;
    case RF_GGUF_I64: value.i = (int64_t)raw; break;
    case RF_GGUF_F32:
        memcpy(&f32, bytes, sizeof f32);
        value.f = (double)f32;
        break;
    case RF_GGUF_F64: memcpy(&value.f, bytes, sizeof value.f); break;
    case RF_GGUF_BOOL: value.b = raw != 0; break;
    default: value.u = raw; break;
    }
    return value;
}

static rf_status check_bools(struct reader *r, const unsigned char *bytes, uint64_t count) {
    char place[160];
    for (uint64_t i = 0; i < count; i++)
        if (bytes[i] > 1)
            return rf_fail(RF_E_SYNTAX, "%s: %s holds a bool of %u, allowed are 0 and 1: the file is damaged",
                           r->part->path, where(r, place), bytes[i]);
    return RF_OK;
}

static rf_status take_type(struct reader *r, enum rf_gguf_type *type) {
    uint32_t number = 0;
    char place[160];
    rf_status status = take_u32(r, &number);
    if (status) return status;
    if (number >= RF_GGUF_TYPE_COUNT)
        return rf_fail(RF_E_SYNTAX, "%s: %s has a value of type %u, known are 0 to %d: the file is damaged",
                       r->part->path, where(r, place), number, RF_GGUF_TYPE_COUNT - 1);
    *type = (enum rf_gguf_type)number;
    return RF_OK;
}

/* Checks an array's elements and steps over them. An array in an array takes at least 12 bytes of the
 * file, so the work is bounded by the file's size. */
static rf_status take_array(struct reader *r, int depth, struct rf_gguf_array *out) {
    struct rf_gguf_array array = {0};
    char place[160];
    rf_status status = take_type(r, &array.type);
    if (!status) status = take_u64(r, &array.count);
    if (status) return status;
    size_t element_bytes = gguf_type_bytes(array.type);
    uint64_t least = element_bytes ? element_bytes : array.type == RF_GGUF_STRING ? 8 : 12;
    if (array.count > bytes_left(r) / least)
        return rf_fail(
            RF_E_SYNTAX,
            "%s: %s claims an array of %llu elements, but only %llu bytes follow: the file is truncated or "
            "damaged",
            r->part->path, where(r, place), ULL(array.count), ULL(bytes_left(r)));
    uint64_t start = r->at;
    if (element_bytes) {
        status = take(r, array.count * element_bytes, &array.data);
        if (!status && array.type == RF_GGUF_BOOL) status = check_bools(r, array.data, array.count);
    } else {
        if (array.type == RF_GGUF_ARRAY && depth == MAX_NESTING)
            return rf_fail(RF_E_SYNTAX, "%s: %s nests arrays deeper than %d: the file is damaged", r->part->path,
                           where(r, place), MAX_NESTING);
        array.data = r->part->bytes + start;
        for (uint64_t i = 0; i < array.count && !status; i++) {
            struct rf_gguf_string string;
            struct rf_gguf_array inner;
            status = array.type == RF_GGUF_STRING ? take_string(r, &string) : take_array(r, depth + 1, &inner);
        }
    }
    array.bytes = r->at - start;
    if (!status) *out = array;
    return status;
}

static rf_status read_key(struct reader *r) {
    struct gguf_values *values = &r->part->values;
    enum rf_gguf_type type = RF_GGUF_U8;
    rf_status status = take_name(r, MAX_KEY_BYTES);
    if (!status) status = take_type(r, &type);
    if (status) return status;
    struct rf_gguf_value value = {.type = type};
    const unsigned char *bytes = NULL;
    if (type == RF_GGUF_STRING) {
        status = take_string(r, &value.string);
    } else if (type == RF_GGUF_ARRAY) {
        status = take_array(r, 1, &value.array);
    } else {
        status = take(r, gguf_type_bytes(type), &bytes);
        if (!status && type == RF_GGUF_BOOL) status = check_bools(r, bytes, 1);
        if (!status) value = gguf_decode(type, bytes);
    }
    if (status) return status;
    value.key = r->name;
    status = make_room(r, (void **)&values->items, values->count, &values->room, sizeof *values->items);
    if (status) return status;
    values->items[values->count++] = value;
    return RF_OK;
}

/* ---- finding by name ---- */

static int compare_keys(const void *a, const void *b, void *items) {
    const struct rf_gguf_value *values = items;
    return strcmp(values[*(const uint32_t *)a].key, values[*(const uint32_t *)b].key);
}

static int compare_tensor_names(const void *a, const void *b, void *items) {
    const struct rf_gguf_tensor *tensors = items;
    return strcmp(tensors[*(const uint32_t *)a].name, tensors[*(const uint32_t *)b].name);
}

static int compare_offsets(const void *a, const void *b, void *items) {
    const struct rf_gguf_tensor *tensors = items;
    uint64_t x = tensors[*(const uint32_t *)a].offset, y = tensors[*(const uint32_t *)b].offset;
    return x < y ? -1 : x > y;
}

/* The indices first … first + count - 1, sorted. */
static rf_status sort_indices(struct rf_gguf *gguf, size_t first, size_t count,
                              int (*compare)(const void *, const void *, void *), void *items, uint32_t **out) {
    uint32_t *sorted;
    rf_status status = charge(gguf, count * sizeof *sorted);
    if (status) return status;
    sorted = malloc(RF_MAX(count, (size_t)1) * sizeof *sorted);
    if (!sorted) {
        rf_account_release(&gguf->account, count * sizeof *sorted);
        return rf_fail(RF_E_NO_MEMORY, "%s: no host memory for its table of contents", gguf->parts[0].path);
    }
    for (size_t i = 0; i < count; i++) sorted[i] = (uint32_t)(first + i);
    qsort_r(sorted, count, sizeof *sorted, compare, items);
    *out = sorted;
    return RF_OK;
}

static rf_status index_values(struct reader *r) {
    struct gguf_values *values = &r->part->values;
    rf_status status = sort_indices(r->gguf, 0, values->count, compare_keys, values->items, &values->sorted);
    if (status) return status;
    for (size_t i = 1; i < values->count; i++) {
        const char *key = values->items[values->sorted[i]].key;
        if (strcmp(key, values->items[values->sorted[i - 1]].key) == 0)
            return rf_fail(RF_E_SYNTAX, "%s: the key \"%.200s\" comes twice: the file is damaged", r->part->path,
                           key);
    }
    return RF_OK;
}

const struct rf_gguf_value *gguf_find_value(const struct gguf_values *values, const char *key) {
    size_t low = 0, high = values->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct rf_gguf_value *value = &values->items[values->sorted[middle]];
        int order = strcmp(key, value->key);
        if (!order) return value;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

rf_status gguf_index_tensors(struct rf_gguf *gguf) {
    rf_status status =
        sort_indices(gguf, 0, gguf->tensor_count, compare_tensor_names, gguf->tensors, &gguf->tensors_sorted);
    if (status) return status;
    for (size_t i = 1; i < gguf->tensor_count; i++) {
        const struct rf_gguf_tensor *tensor = &gguf->tensors[gguf->tensors_sorted[i]];
        if (strcmp(tensor->name, gguf->tensors[gguf->tensors_sorted[i - 1]].name) == 0)
            return rf_fail(RF_E_SYNTAX, "%s: the tensor \"%s\" comes twice: the file is damaged",
                           gguf->parts[tensor->file].path, tensor->name);
    }
    return RF_OK;
}

const struct rf_gguf_tensor *rf_gguf_find_tensor(const struct rf_gguf *gguf, const char *name) {
    size_t low = 0, high = gguf->tensor_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct rf_gguf_tensor *tensor = &gguf->tensors[gguf->tensors_sorted[middle]];
        int order = strcmp(name, tensor->name);
        if (!order) return tensor;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

/* ---- tensors ---- */

/* Every type number that GGUF files have used. */
static const struct {
    const char *name;
    int dtype; /* -1: not supported */
} tensor_types[] = {
    [0] = {"F32", RF_F32},     [1] = {"F16", RF_F16},     [2] = {"Q4_0", RF_Q4_0},
    [3] = {"Q4_1", RF_Q4_1},   [4] = {"Q4_2", -1},        [5] = {"Q4_3", -1},
    [6] = {"Q5_0", RF_Q5_0},   [7] = {"Q5_1", RF_Q5_1},   [8] = {"Q8_0", RF_Q8_0},
    [9] = {"Q8_1", -1},        [10] = {"Q2_K", RF_Q2_K},  [11] = {"Q3_K", RF_Q3_K},
    [12] = {"Q4_K", RF_Q4_K},  [13] = {"Q5_K", RF_Q5_K},  [14] = {"Q6_K", RF_Q6_K},
    [15] = {"Q8_K", -1},       [16] = {"IQ2_XXS", -1},    [17] = {"IQ2_XS", -1},
    [18] = {"IQ3_XXS", -1},    [19] = {"IQ1_S", -1},      [20] = {"IQ4_NL", RF_IQ4_NL},
    [21] = {"IQ3_S", -1},      [22] = {"IQ2_S", -1},      [23] = {"IQ4_XS", RF_IQ4_XS},
    [24] = {"I8", -1},         [25] = {"I16", -1},        [26] = {"I32", -1},
    [27] = {"I64", -1},        [28] = {"F64", -1},        [29] = {"IQ1_M", -1},
    [30] = {"BF16", RF_BF16},  [31] = {"Q4_0_4_4", -1},   [32] = {"Q4_0_4_8", -1},
    [33] = {"Q4_0_8_8", -1},   [34] = {"TQ1_0", -1},      [35] = {"TQ2_0", -1},
    [36] = {"IQ4_NL_4_4", -1}, [37] = {"IQ4_NL_4_8", -1}, [38] = {"IQ4_NL_8_8", -1},
    [39] = {"MXFP4", -1},      [40] = {"NVFP4", -1},      [41] = {"Q1_0", -1},
};

int rf_gguf_tensor_type(enum rf_dtype dtype) {
    for (size_t i = 0; i < RF_COUNT(tensor_types); i++)
        if (tensor_types[i].dtype == (int)dtype) return (int)i;
    return -1;
}

static rf_status unsupported_type(const struct reader *r, uint32_t type) {
    char supported[256] = "", named[48], place[160];
    for (size_t i = 0; i < RF_COUNT(tensor_types); i++) {
        size_t length = strlen(supported);
        if (tensor_types[i].dtype >= 0)
            snprintf(supported + length, sizeof supported - length, "%s%s", length ? ", " : "", tensor_types[i].name);
    }
    bool known = type < RF_COUNT(tensor_types);
    if (known)
        snprintf(named, sizeof named, "%s (number %u)", tensor_types[type].name, type);
    else
        snprintf(named, sizeof named, "number %u", type);
    return rf_fail(known ? RF_E_UNSUPPORTED : RF_E_SYNTAX,
                   "%s: %s has the type %s, which is not %s; supported are %s", r->part->path, where(r, place), named,
                   known ? "supported" : "known", supported);
}

static rf_status read_tensor(struct reader *r) {
    struct rf_gguf *gguf = r->gguf;
    const char *path = r->part->path;
    struct rf_gguf_tensor tensor = {.file = r->part_index, .elements = 1};
    uint32_t rank = 0, type = 0;
    char place[160];
    rf_status status = take_name(r, MAX_NAME_BYTES);
    if (!status) status = take_u32(r, &rank);
    if (status) return status;
    tensor.name = r->name;
    if (rank < 1 || rank > MAX_FILE_RANK)
        return rf_fail(RF_E_SYNTAX, "%s: %s has %u dimensions, allowed are 1 to %d: the file is damaged", path,
                       where(r, place), rank, MAX_FILE_RANK);
    tensor.rank = (int)rank;
    for (uint32_t i = 0; i < rank; i++) {
        uint64_t *dimension = &tensor.shape[rank - 1 - i];
        status = take_u64(r, dimension);
        if (status) return status;
        if (!*dimension || rf_mul_overflows(tensor.elements, *dimension, &tensor.elements))
            return rf_fail(RF_E_SYNTAX, "%s: %s has a dimension of %llu%s: the file is damaged", path,
                           where(r, place), ULL(*dimension), *dimension ? ", which overflows its size" : "");
    }
    status = take_u32(r, &type);
    if (!status) status = take_u64(r, &tensor.offset);
    if (status) return status;
    if (type >= RF_COUNT(tensor_types) || tensor_types[type].dtype < 0) return unsupported_type(r, type);
    tensor.dtype = (enum rf_dtype)tensor_types[type].dtype;
    size_t block = rf_dtype_block(tensor.dtype);
    if (tensor.shape[rank - 1] % block)
        return rf_fail(RF_E_SYNTAX,
                       "%s: %s has rows of %llu elements, but %s comes in blocks of %zu: the file is "
                       "damaged",
                       path, where(r, place), ULL(tensor.shape[rank - 1]), tensor_types[type].name, block);
    if (rf_mul_overflows(tensor.elements / block, rf_dtype_block_bytes(tensor.dtype), &tensor.bytes))
        return rf_fail(RF_E_SYNTAX, "%s: the size of %s overflows: the file is damaged", path, where(r, place));
    if (gguf->tensor_count == UINT32_MAX) return rf_fail(RF_E_SYNTAX, "%s: more than 2^32 tensors", path);
    status = make_room(r, (void **)&gguf->tensors, gguf->tensor_count, &gguf->tensor_room, sizeof *gguf->tensors);
    if (status) return status;
    gguf->tensors[gguf->tensor_count++] = tensor;
    return RF_OK;
}

static rf_status find_alignment(struct reader *r) {
    r->part->alignment = DEFAULT_ALIGNMENT;
    const struct rf_gguf_value *value = gguf_find_value(&r->part->values, "general.alignment");
    if (!value) return RF_OK;
    if (value->type != RF_GGUF_U32)
        return rf_fail(RF_E_SYNTAX, "%s: the key \"general.alignment\" is of type %s instead of u32", r->part->path,
                       rf_gguf_type_name(value->type));
    /* The format requires a multiple of 8, so readers may use floats in the map directly. */
    if (value->u < 8 || (value->u & (value->u - 1)))
        return rf_fail(RF_E_SYNTAX, "%s: the key \"general.alignment\" is %llu, which is no power of two from 8 up",
                       r->part->path, ULL(value->u));
    r->part->alignment = value->u;
    return RF_OK;
}

/* Turns offsets from the start of the data into offsets in the file, and checks that each tensor
 * lies inside it and that no two overlap. */
static rf_status place_tensors(struct reader *r, size_t first) {
    struct rf_gguf *gguf = r->gguf;
    const char *path = r->part->path;
    size_t count = gguf->tensor_count - first;
    uint64_t end, alignment = r->part->alignment;
    if (!count) return RF_OK;
    /* This cannot overflow: it is a position in memory and less than 2^32 more. */
    uint64_t start = r->at + (alignment - r->at % alignment) % alignment;
    for (size_t i = first; i < gguf->tensor_count; i++) {
        struct rf_gguf_tensor *tensor = &gguf->tensors[i];
        if (tensor->offset % r->part->alignment)
            return rf_fail(
                RF_E_SYNTAX,
                "%s: the tensor \"%s\" lies at offset %llu, which is no multiple of the alignment %llu: the "
                "file is damaged",
                path, tensor->name, ULL(tensor->offset), ULL(r->part->alignment));
        if (rf_add_overflows(start, tensor->offset, &tensor->offset) ||
            rf_add_overflows(tensor->offset, tensor->bytes, &end) || end > r->part->size)
            return rf_fail(RF_E_SYNTAX,
                           "%s: the tensor \"%s\" has %llu bytes from byte %llu on, but the file ends at %llu: it is "
                           "truncated or damaged, copy or download it again",
                           path, tensor->name, ULL(tensor->bytes), ULL(tensor->offset), ULL(r->part->size));
        tensor->data = r->part->bytes + tensor->offset;
    }
    /* If a wrong count left tensors out, the data of all others would be at the wrong place. */
    for (uint64_t at = r->at; at < start; at++)
        if (r->part->bytes[at])
            return rf_fail(
                RF_E_SYNTAX,
                "%s: byte %llu, between its %zu tensors' descriptions and their data, is not 0: the tensor "
                "count is wrong or the file is damaged, copy or download it again",
                path, ULL(at), count);
    uint32_t *sorted = NULL;
    rf_status status = sort_indices(gguf, first, count, compare_offsets, gguf->tensors, &sorted);
    if (status) return status;
    for (size_t i = 1; i < count && !status; i++) {
        const struct rf_gguf_tensor *before = &gguf->tensors[sorted[i - 1]], *tensor = &gguf->tensors[sorted[i]];
        if (tensor->offset < before->offset + before->bytes)
            status =
                rf_fail(RF_E_SYNTAX, "%s: the tensors \"%s\" and \"%s\" overlap at byte %llu: the file is damaged",
                        path, before->name, tensor->name, ULL(tensor->offset));
    }
    free(sorted);
    rf_account_release(&gguf->account, count * sizeof *sorted);
    return status;
}
