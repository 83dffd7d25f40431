/* Files for the model tests: raw GGUF bytes put together by hand, so that they may be wrong, and a
 * folder that goes away with the process. */
#ifndef GGUF_TESTING_H
#define GGUF_TESTING_H

#include <stddef.h>
#include <stdint.h>

#include "gguf/gguf.h"

/* Bytes that grow; zero-initialised is empty. Running out of memory fails the test. */
struct blob {
    unsigned char *data;
    size_t used, room;
};
void blob_add(struct blob *blob, const void *data, size_t size);
void blob_u32(struct blob *blob, uint32_t value);
void blob_u64(struct blob *blob, uint64_t value);
void blob_string(struct blob *blob, const char *text);
/* "GGUF", version, counts. */
void blob_header(struct blob *blob, uint32_t version, uint64_t tensors, uint64_t keys);
void blob_key_u32(struct blob *blob, const char *key, uint32_t value);
void blob_key_string(struct blob *blob, const char *key, const char *text);
/* dimensions in the file's order, fastest first, ended by 0. */
void blob_tensor(struct blob *blob, const char *name, const uint64_t *dimensions, uint32_t type, uint64_t offset);
void blob_pad(struct blob *blob, size_t multiple);
void blob_zeros(struct blob *blob, size_t count);
void blob_free(struct blob *blob);

/* A path in this process's own folder, which is removed when it ends. Borrowed until four more
 * were asked for. */
const char *scratch_path(const char *name);
void write_bytes(const char *path, const void *data, size_t size);
/* The whole file; the caller frees. Fails the test where it cannot be read. */
unsigned char *read_bytes(const char *path, size_t *size);

#endif
