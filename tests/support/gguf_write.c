/* Writing GGUF files. gguf_write.h says what is promised, gguf.c how a file is laid out.
 *
 * Invariants: keys are kept as the bytes that the file will hold; what was added is written in
 * order, so the same calls give the same bytes. */
#include "support/gguf_write.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "gguf/gguf_impl.h"

#define MAX_KEY_BYTES 65535
#define MAX_NAME_BYTES 63 /* what other readers allow */
#define MAX_FILE_RANK 4

struct bytes {
    unsigned char *data;
    size_t used, room;
};

struct written_tensor {
    char *name;
    enum rf_dtype dtype;
    int rank;
    uint64_t shape[MAX_FILE_RANK];
    uint64_t bytes;
    const void *data; /* borrowed */
};

struct rf_gguf_writer {
    rf_status failed; /* the first failure, which sticks */
    struct rf_saved_error why;
    uint32_t alignment;
    struct bytes keys; /* as in the file */
    char **key_names;
    size_t key_count, key_room;
    struct written_tensor *tensors;
    size_t tensor_count, tensor_room;
};

static rf_status write_all(struct rf_gguf_writer *writer, FILE *to);

rf_status rf_gguf_writer_create(struct rf_gguf_writer **out) {
    struct rf_gguf_writer *writer = calloc(1, sizeof *writer);
    if (!writer) return rf_fail(RF_E_NO_MEMORY, "no host memory for a GGUF writer");
    writer->alignment = 32;
    *out = writer;
    return RF_OK;
}

void rf_gguf_writer_destroy(struct rf_gguf_writer **pointer) {
    if (!pointer || !*pointer) return;
    struct rf_gguf_writer *writer = *pointer;
    for (size_t i = 0; i < writer->key_count; i++) free(writer->key_names[i]);
    for (size_t i = 0; i < writer->tensor_count; i++) free(writer->tensors[i].name);
    free(writer->key_names);
    free(writer->tensors);
    free(writer->keys.data);
    free(writer);
    *pointer = NULL;
}

/* ---- failures that stick, buffers that grow ---- */

static rf_status fails(struct rf_gguf_writer *writer, rf_status status) {
    if (status && !writer->failed) {
        writer->failed = status;
        rf_error_save(&writer->why);
    }
    return status;
}

static rf_status failed_before(const struct rf_gguf_writer *writer) {
    rf_error_restore(&writer->why);
    return writer->failed;
}

static rf_status no_memory(struct rf_gguf_writer *writer) {
    return fails(writer, rf_fail(RF_E_NO_MEMORY, "no host memory for the contents of a GGUF file"));
}

static bool grow(void **items, size_t wanted, size_t *room, size_t item_bytes) {
    if (wanted <= *room) return true;
    uint64_t more, bytes;
    if (rf_mul_overflows(RF_MAX(wanted, (size_t)64), 2, &more) || rf_mul_overflows(more, item_bytes, &bytes) ||
        bytes > SIZE_MAX)
        return false;
    void *grown = realloc(*items, (size_t)bytes);
    if (!grown) return false;
    *items = grown;
    *room = (size_t)more;
    return true;
}

static bool append(struct bytes *to, const void *data, size_t size) {
    uint64_t wanted;
    if (rf_add_overflows(to->used, size, &wanted) || wanted > SIZE_MAX) return false;
    if (!grow((void **)&to->data, (size_t)wanted, &to->room, 1)) return false;
    if (size) memcpy(to->data + to->used, data, size);
    to->used += size;
    return true;
}

static bool append_u32(struct bytes *to, uint32_t value) {
    return append(to, &value, sizeof value);
}
static bool append_u64(struct bytes *to, uint64_t value) {
    return append(to, &value, sizeof value);
}
static bool append_string(struct bytes *to, const char *text, size_t length) {
    return append_u64(to, length) && append(to, text, length);
}

/* ---- keys ---- */

/* The key's name and type; what follows is the caller's. */
static rf_status begin_key(struct rf_gguf_writer *writer, const char *key, enum rf_gguf_type type) {
    if (writer->failed) return failed_before(writer);
    size_t length = key ? strlen(key) : 0;
    if (!length || length > MAX_KEY_BYTES)
        return fails(writer, rf_fail(RF_E_INVALID, "a GGUF key has 1 to %d bytes, not %zu", MAX_KEY_BYTES, length));
    for (size_t i = 0; i < writer->key_count; i++)
        if (strcmp(writer->key_names[i], key) == 0)
            return fails(writer, rf_fail(RF_E_INVALID, "the GGUF key \"%.200s\" was written before", key));
    if (!grow((void **)&writer->key_names, writer->key_count + 1, &writer->key_room, sizeof *writer->key_names))
        return no_memory(writer);
    char *name = strdup(key);
    if (!name) return no_memory(writer);
    writer->key_names[writer->key_count++] = name;
    if (!append_string(&writer->keys, key, length) || !append_u32(&writer->keys, (uint32_t)type))
        return no_memory(writer);
    return RF_OK;
}

rf_status rf_gguf_write_value(struct rf_gguf_writer *writer, const char *key, enum rf_gguf_type type,
                              const void *value) {
    size_t bytes = gguf_type_bytes(type);
    if (!bytes || !value)
        return fails(writer, rf_fail(RF_E_INVALID, "rf_gguf_write_value: \"%s\" is no plain type, or no value",
                                     rf_gguf_type_name(type)));
    rf_status status = begin_key(writer, key, type);
    if (status) return status;
    return append(&writer->keys, value, bytes) ? RF_OK : no_memory(writer);
}

rf_status rf_gguf_write_u32(struct rf_gguf_writer *writer, const char *key, uint32_t value) {
    return rf_gguf_write_value(writer, key, RF_GGUF_U32, &value);
}

rf_status rf_gguf_write_f32(struct rf_gguf_writer *writer, const char *key, float value) {
    return rf_gguf_write_value(writer, key, RF_GGUF_F32, &value);
}

rf_status rf_gguf_write_bool(struct rf_gguf_writer *writer, const char *key, bool value) {
    unsigned char byte = value;
    return rf_gguf_write_value(writer, key, RF_GGUF_BOOL, &byte);
}

rf_status rf_gguf_write_string(struct rf_gguf_writer *writer, const char *key, const char *text) {
    if (!text) return fails(writer, rf_fail(RF_E_INVALID, "rf_gguf_write_string: text is NULL"));
    rf_status status = begin_key(writer, key, RF_GGUF_STRING);
    if (status) return status;
    return append_string(&writer->keys, text, strlen(text)) ? RF_OK : no_memory(writer);
}

rf_status rf_gguf_write_array(struct rf_gguf_writer *writer, const char *key, enum rf_gguf_type type,
                              const void *elements, uint64_t count) {
    uint64_t bytes;
    if (!gguf_type_bytes(type) || (!elements && count) || rf_mul_overflows(gguf_type_bytes(type), count, &bytes) ||
        bytes > SIZE_MAX)
        return fails(writer, rf_fail(RF_E_INVALID, "rf_gguf_write_array: \"%s\" is no plain type, or no elements",
                                     rf_gguf_type_name(type)));
    rf_status status = begin_key(writer, key, RF_GGUF_ARRAY);
    if (status) return status;
    bool kept = append_u32(&writer->keys, (uint32_t)type) && append_u64(&writer->keys, count) &&
                append(&writer->keys, elements, (size_t)bytes);
    return kept ? RF_OK : no_memory(writer);
}

rf_status rf_gguf_write_strings(struct rf_gguf_writer *writer, const char *key, const struct rf_gguf_string *strings,
                                uint64_t count) {
    if (!strings && count) return fails(writer, rf_fail(RF_E_INVALID, "rf_gguf_write_strings: strings is NULL"));
    rf_status status = begin_key(writer, key, RF_GGUF_ARRAY);
    if (status) return status;
    bool kept = append_u32(&writer->keys, RF_GGUF_STRING) && append_u64(&writer->keys, count);
    for (uint64_t i = 0; i < count && kept; i++)
        kept = append_string(&writer->keys, strings[i].text, strings[i].bytes);
    return kept ? RF_OK : no_memory(writer);
}

/* ---- tensors ---- */

rf_status rf_gguf_write_tensor(struct rf_gguf_writer *writer, const char *name, enum rf_dtype dtype, int rank,
                               const uint64_t *shape, const void *data) {
    if (writer->failed) return failed_before(writer);
    size_t length = name ? strlen(name) : 0;
    if (!length || length > MAX_NAME_BYTES)
        return fails(
            writer, rf_fail(RF_E_INVALID, "a GGUF tensor's name has 1 to %d bytes, not %zu", MAX_NAME_BYTES, length));
    if (rank < 1 || rank > MAX_FILE_RANK || !shape || !data || rf_gguf_tensor_type(dtype) < 0)
        return fails(writer,
                     rf_fail(RF_E_INVALID,
                             "the GGUF tensor \"%s\" has rank %d (allowed are 1 to %d), no data, or the type %s "
                             "that files do not hold",
                             name, rank, MAX_FILE_RANK, rf_dtype_name(dtype)));
    for (size_t i = 0; i < writer->tensor_count; i++)
        if (strcmp(writer->tensors[i].name, name) == 0)
            return fails(writer, rf_fail(RF_E_INVALID, "the GGUF tensor \"%s\" was written before", name));
    struct written_tensor tensor = {.dtype = dtype, .rank = rank, .data = data};
    struct rf_tensor_desc desc = {.dtype = dtype, .rank = rank};
    for (int i = 0; i < rank; i++) desc.shape[i] = tensor.shape[i] = shape[i];
    rf_status status = rf_tensor_desc_check(&desc, &tensor.bytes);
    if (status) return fails(writer, rf_fail_within(status, "the GGUF tensor \"%s\"", name));
    if (!grow((void **)&writer->tensors, writer->tensor_count + 1, &writer->tensor_room, sizeof *writer->tensors))
        return no_memory(writer);
    tensor.name = strdup(name);
    if (!tensor.name) return no_memory(writer);
    writer->tensors[writer->tensor_count++] = tensor;
    return RF_OK;
}

rf_status rf_gguf_writer_align(struct rf_gguf_writer *writer, uint32_t alignment) {
    if (alignment < 8 || (alignment & (alignment - 1)))
        return fails(writer, rf_fail(RF_E_INVALID, "the alignment %u is no power of two from 8 up", alignment));
    rf_status status = rf_gguf_write_u32(writer, "general.alignment", alignment);
    if (!status) writer->alignment = alignment;
    return status;
}

/* ---- the file ---- */

rf_status rf_gguf_writer_finish(struct rf_gguf_writer *writer, const char *path) {
    if (writer->failed) return failed_before(writer);
    if (!path) return rf_fail(RF_E_INVALID, "rf_gguf_writer_finish: path is NULL");
    size_t size = strlen(path) + 32;
    char *partial = malloc(size);
    if (!partial) return rf_fail(RF_E_NO_MEMORY, "no host memory to write %s", path);
    snprintf(partial, size, "%s.%ld.partial", path, (long)getpid());
    rf_status status = RF_OK;
    FILE *to = fopen(partial, "wxbe");
    if (!to) {
        status = rf_fail(RF_E_IO, "%s: cannot be written: %s", partial, strerror(errno));
    } else {
        status = write_all(writer, to);
        if (fclose(to) != 0 && !status) status = rf_fail(RF_E_IO, "writing failed: %s", strerror(errno));
        if (!status && rename(partial, path) != 0)
            status = rf_fail(RF_E_IO, "cannot be renamed: %s", strerror(errno));
        if (status) rf_fail_within(status, "%s", path);
        if (status) unlink(partial);
    }
    free(partial);
    return status;
}

rf_status rf_gguf_writer_finish_memory(struct rf_gguf_writer *writer, void **bytes, size_t *size) {
    if (writer->failed) return failed_before(writer);
    char *memory = NULL;
    size_t used = 0;
    FILE *to = open_memstream(&memory, &used);
    if (!to) return rf_fail(RF_E_NO_MEMORY, "no host memory for a GGUF file");
    rf_status status = write_all(writer, to);
    if (fclose(to) != 0 && !status) status = rf_fail(RF_E_NO_MEMORY, "no host memory for a GGUF file");
    if (status) {
        free(memory);
        return status;
    }
    *bytes = memory;
    *size = used;
    return RF_OK;
}

static bool pad(FILE *to, uint64_t at, uint64_t alignment) {
    for (; at % alignment; at++)
        if (putc(0, to) == EOF) return false;
    return true;
}

static rf_status write_all(struct rf_gguf_writer *writer, FILE *to) {
    struct bytes head = {0};
    uint64_t offset = 0;
    bool built = append(&head, "GGUF", 4) && append_u32(&head, 3) && append_u64(&head, writer->tensor_count) &&
                 append_u64(&head, writer->key_count) && append(&head, writer->keys.data, writer->keys.used);
    bool overflow = false;
    for (size_t i = 0; i < writer->tensor_count && built; i++) {
        const struct written_tensor *tensor = &writer->tensors[i];
        built = append_string(&head, tensor->name, strlen(tensor->name)) && append_u32(&head, (uint32_t)tensor->rank);
        for (int d = tensor->rank; d-- > 0 && built;) built = append_u64(&head, tensor->shape[d]);
        built = built && append_u32(&head, (uint32_t)rf_gguf_tensor_type(tensor->dtype)) && append_u64(&head, offset);
        overflow |= rf_add_overflows(offset, tensor->bytes, &offset) ||
                    rf_round_up_overflows(offset, writer->alignment, &offset);
    }
    if (!built || overflow) {
        free(head.data);
        return overflow ? rf_fail(RF_E_INVALID, "the tensors together are too large for a file")
                        : rf_fail(RF_E_NO_MEMORY, "no host memory for the header of a GGUF file");
    }
    errno = 0;
    bool written = fwrite(head.data, 1, head.used, to) == head.used;
    if (writer->tensor_count) written = written && pad(to, head.used, writer->alignment);
    free(head.data);
    for (size_t i = 0; i < writer->tensor_count && written; i++) {
        const struct written_tensor *tensor = &writer->tensors[i];
        written = fwrite(tensor->data, 1, (size_t)tensor->bytes, to) == tensor->bytes &&
                  pad(to, tensor->bytes, writer->alignment);
    }
    return written ? RF_OK : rf_fail(RF_E_IO, "writing failed: %s", strerror(errno ? errno : EIO));
}
