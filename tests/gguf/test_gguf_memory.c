/* Each allocation of the GGUF reader and writer refused in turn: RF_E_NO_MEMORY with a reason, and
 * everything given back (a leak sanitizer sees to the latter). */
#include <rocmforge/test.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../refused_memory.h"
#include "gguf_testing.h"
#include "support/gguf_write.h"

static bool skip_part(void *user, const struct rf_model_part *part) {
    (void)user, (void)part;
    return true;
}

static rf_status read_all(const void *bytes, size_t size, const char *path) {
    struct rf_gguf *gguf = NULL;
    rf_status status = rf_gguf_open_memory(bytes, size, NULL, &gguf);
    if (!status) status = rf_gguf_visit_parts(gguf, skip_part, NULL);
    rf_gguf_close(&gguf);
    if (!status) status = rf_gguf_open(path, &gguf);
    rf_gguf_close(&gguf);
    return status;
}

static rf_status write_all(void **bytes, size_t *size, const char *path) {
    static const float data[4];
    struct rf_gguf_writer *writer = NULL;
    const struct rf_gguf_string strings[] = {{"a", 1}, {"b", 1}};
    rf_status status = rf_gguf_writer_create(&writer);
    if (status) return status;
    char name[32];
    for (int i = 0; i < 100; i++) { /* enough for every table to grow twice */
        snprintf(name, sizeof name, "key.%d", i);
        rf_gguf_write_u32(writer, name, 1);
        snprintf(name, sizeof name, "blk.%d.weight", i);
        rf_gguf_write_tensor(writer, name, RF_F32, 1, (uint64_t[]){4}, data);
    }
    rf_gguf_write_strings(writer, "strings", strings, 2);
    status = rf_gguf_writer_finish_memory(writer, bytes, size);
    if (!status) status = rf_gguf_writer_finish(writer, path);
    rf_gguf_writer_destroy(&writer);
    return status;
}

RF_TEST(gguf, every_allocation_refused) {
    void *bytes = NULL;
    size_t size = 0;
    const char *path = scratch_path("x-00001-of-00001.gguf");
    RF_ASSERT_OK(write_all(&bytes, &size, path));
    rf_status status = RF_E_NO_MEMORY;
    long count;
    for (count = 0; status; count++) {
        countdown = count;
        status = read_all(bytes, size, path);
        countdown = -1;
        if (status != RF_OK) RF_ASSERT_INT(status, RF_E_NO_MEMORY);
        if (status != RF_OK) RF_ASSERT_CONTAINS(rf_error_text(), "memory");
    }
    RF_NOTE("reading takes %ld allocations", count - 1);
    RF_ASSERT(count > 10);
    free(bytes);
    status = RF_E_NO_MEMORY;
    for (count = 0; status; count++) {
        bytes = NULL;
        countdown = count;
        status = write_all(&bytes, &size, path);
        countdown = -1;
        if (status != RF_OK) RF_ASSERT_INT(status, RF_E_NO_MEMORY);
        free(bytes);
    }
    RF_NOTE("writing takes %ld allocations", count - 1);
    RF_ASSERT(count > 200);
}
