/* Writing GGUF files, version 3: for tests, generated models and the bundled one.
 *
 * A writer collects keys and tensors, then writes the file in one go. The first failure sticks:
 * later calls do nothing and rf_gguf_writer_finish() returns it, so a caller may check once.
 *
 * Threads: a writer belongs to one thread at a time. Text and metadata are copied; the data of
 * tensors is borrowed until the writer is destroyed. */
#ifndef GGUF_WRITE_H
#define GGUF_WRITE_H

#include "gguf/gguf.h"

struct rf_gguf_writer;
rf_status rf_gguf_writer_create(struct rf_gguf_writer **out);
void rf_gguf_writer_destroy(struct rf_gguf_writer **writer);

/* RF_E_INVALID: a name that is empty or too long, a type that is not that kind, a key that was
 * added before. */
rf_status rf_gguf_write_u32(struct rf_gguf_writer *writer, const char *key, uint32_t value);
rf_status rf_gguf_write_f32(struct rf_gguf_writer *writer, const char *key, float value);
rf_status rf_gguf_write_bool(struct rf_gguf_writer *writer, const char *key, bool value);
rf_status rf_gguf_write_string(struct rf_gguf_writer *writer, const char *key, const char *text);
/* Any type but strings and arrays; value points at one of its size. */
rf_status rf_gguf_write_value(struct rf_gguf_writer *writer, const char *key, enum rf_gguf_type type,
                              const void *value);
/* count elements of a type but strings and arrays, in order. */
rf_status rf_gguf_write_array(struct rf_gguf_writer *writer, const char *key, enum rf_gguf_type type,
                              const void *elements, uint64_t count);
rf_status rf_gguf_write_strings(struct rf_gguf_writer *writer, const char *key, const struct rf_gguf_string *strings,
                                uint64_t count);

/* shape is row-major, rank 1 to 4; data holds as many bytes as dtype and shape say. */
rf_status rf_gguf_write_tensor(struct rf_gguf_writer *writer, const char *name, enum rf_dtype dtype, int rank,
                               const uint64_t *shape, const void *data);

/* A power of two from 8 up; 32 unless told. Another one is written as general.alignment. Before finish. */
rf_status rf_gguf_writer_align(struct rf_gguf_writer *writer, uint32_t alignment);

/* Writes the file whole or not at all: under another name beside it, then renamed. */
rf_status rf_gguf_writer_finish(struct rf_gguf_writer *writer, const char *path);
/* The same into memory, which the caller frees. */
rf_status rf_gguf_writer_finish_memory(struct rf_gguf_writer *writer, void **bytes, size_t *size);

#endif
