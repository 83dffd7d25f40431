#include "gguf_testing.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rocmforge/test.h>

#include "../scratch.h"

void blob_add(struct blob *blob, const void *data, size_t size) {
    if (blob->used + size > blob->room) {
        blob->room = 2 * (blob->used + size);
        blob->data = realloc(blob->data, blob->room);
        RF_ASSERT(blob->data != NULL);
    }
    if (size) memcpy(blob->data + blob->used, data, size);
    blob->used += size;
}

void blob_u32(struct blob *blob, uint32_t value) {
    blob_add(blob, &value, sizeof value);
}
void blob_u64(struct blob *blob, uint64_t value) {
    blob_add(blob, &value, sizeof value);
}
void blob_string(struct blob *blob, const char *text) {
    blob_u64(blob, strlen(text));
    blob_add(blob, text, strlen(text));
}

void blob_header(struct blob *blob, uint32_t version, uint64_t tensors, uint64_t keys) {
    blob_add(blob, "GGUF", 4);
    blob_u32(blob, version);
    blob_u64(blob, tensors);
    blob_u64(blob, keys);
}

void blob_key_u32(struct blob *blob, const char *key, uint32_t value) {
    blob_string(blob, key);
    blob_u32(blob, RF_GGUF_U32);
    blob_u32(blob, value);
}

void blob_key_string(struct blob *blob, const char *key, const char *text) {
    blob_string(blob, key);
    blob_u32(blob, RF_GGUF_STRING);
    blob_string(blob, text);
}

void blob_tensor(struct blob *blob, const char *name, const uint64_t *dimensions, uint32_t type, uint64_t offset) {
    uint32_t rank = 0;
    while (dimensions[rank]) rank++;
    blob_string(blob, name);
    blob_u32(blob, rank);
    for (uint32_t i = 0; i < rank; i++) blob_u64(blob, dimensions[i]);
    blob_u32(blob, type);
    blob_u64(blob, offset);
}

void blob_zeros(struct blob *blob, size_t count) {
    for (; count; count--) blob_add(blob, "", 1);
}

void blob_pad(struct blob *blob, size_t multiple) {
    blob_zeros(blob, (multiple - blob->used % multiple) % multiple);
}

void blob_free(struct blob *blob) {
    free(blob->data);
    *blob = (struct blob){0};
}

/* ---- files ---- */

const char *scratch_path(const char *name) {
    static char paths[4][SCRATCH_BYTES + 64];
    static unsigned turn;
    static char folder[SCRATCH_BYTES];
    if (!folder[0]) scratch_folder(folder, "model");
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

void write_bytes(const char *path, const void *data, size_t size) {
    FILE *file = fopen(path, "wb");
    if (!file) RF_FAIL("%s: %s", path, strerror(errno));
    bool written = fwrite(data, 1, size, file) == size;
    if (fclose(file) != 0 || !written) RF_FAIL("%s: %s", path, strerror(errno));
}

unsigned char *read_bytes(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file) RF_FAIL("%s: %s", path, strerror(errno));
    RF_ASSERT(fseek(file, 0, SEEK_END) == 0);
    long end = ftell(file);
    RF_ASSERT(end >= 0 && fseek(file, 0, SEEK_SET) == 0);
    unsigned char *data = malloc((size_t)end + 1);
    RF_ASSERT(data != NULL);
    *size = fread(data, 1, (size_t)end, file);
    fclose(file);
    RF_ASSERT_UINT(*size, end);
    return data;
}
