/* What is embedded in the library agrees with itself and with the host kernels. */
#include "gpu/image.h"
#include "host_run.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <rocmforge/gpu.h>
#include <rocmforge/test.h>

static bool is_ptx(const char *target) {
    return strncmp(target, "sm_", 3) == 0;
}

RF_TEST(embedded, images_are_what_they_say) {
    RF_ASSERT(rf_builtin_image_count() > 0);
    RF_ASSERT(rf_builtin_image_at(rf_builtin_image_count()) == NULL);
    for (size_t i = 0; i < rf_builtin_image_count(); i++) {
        const struct rf_builtin_image *image = rf_builtin_image_at(i);
        const char *data = image->data;
        RF_ASSERT(image->bytes > 64);
        if (is_ptx(image->target)) {
            RF_ASSERT_INT(strlen(data) + 1, image->bytes);
            char directive[32] = ".target ";
            strncat(directive, image->target, sizeof directive - strlen(directive) - 1);
            RF_ASSERT_CONTAINS(data, directive);
        } else {
            RF_ASSERT(memcmp(data, "\177ELF", 4) == 0);
            RF_ASSERT(data[image->bytes] == 0);
        }
    }
}

RF_TEST(embedded, images_unpack_to_what_was_packed) {
    RF_ASSERT_INT(rf_image_count(), rf_builtin_image_count());
    RF_ASSERT(rf_image_at(rf_image_count()) == NULL);
    for (size_t i = 0; i < rf_image_count(); i++) {
        const struct rf_image *image = rf_image_at(i);
        const struct rf_builtin_image *kept = rf_builtin_image_at(i);
        void *data = NULL;
        RF_ASSERT_OK(rf_image_unpack(image, &data));
        RF_ASSERT(data != kept->data && ((char *)data)[image->bytes] == 0);
        RF_ASSERT_INT(kept->bytes, image->bytes);
        RF_ASSERT(memcmp(data, kept->data, image->bytes) == 0);
        RF_ASSERT_TEXT(kept->module, image->module);
        RF_ASSERT_TEXT(kept->target, image->target);
        RF_EXPECT(image->packed_bytes < image->bytes);
        free(data);
    }
}

/* Damage is found, or is of no consequence (a frame has bits that mean nothing): the frame has a checksum of what was
 * packed, and the table says how long that is. */
RF_TEST(embedded, damaged_images_are_refused) {
    const struct rf_image *good = rf_image_at(0);
    struct rf_image bad = *good;
    char *packed = malloc(good->packed_bytes);
    void *data = NULL;
    int refused = 0;
    RF_ASSERT(packed != NULL);
    bad.packed = packed;
    size_t step = good->packed_bytes / 512 + 1;
    for (size_t at = 0; at < good->packed_bytes; at += step) {
        memcpy(packed, good->packed, good->packed_bytes);
        packed[at] ^= 0x10;
        if (rf_image_unpack(&bad, &data)) {
            RF_ASSERT_CONTAINS(rf_error_text(), "damaged");
            refused++;
        } else if (memcmp(data, rf_builtin_image_at(0)->data, good->bytes) != 0) {
            RF_FAIL("byte %zu of %zu was changed", at, good->packed_bytes);
        }
        free(data);
        data = NULL;
    }
    RF_ASSERT(refused > 256);
    memcpy(packed, good->packed, good->packed_bytes);
    for (bad.packed_bytes = 0; bad.packed_bytes < good->packed_bytes; bad.packed_bytes += step)
        RF_ASSERT_STATUS(rf_image_unpack(&bad, &data), RF_E_IO);
    bad.packed_bytes = good->packed_bytes;
    bad.bytes = good->bytes - 1;
    RF_ASSERT_STATUS(rf_image_unpack(&bad, &data), RF_E_IO);
    bad.bytes = good->bytes + 1;
    RF_ASSERT_STATUS(rf_image_unpack(&bad, &data), RF_E_IO);
    RF_ASSERT(data == NULL);
    free(packed);
}

static void *ask_for_all(void *user) {
    const struct rf_builtin_image **seen = user;
    for (size_t i = 0; i < rf_builtin_image_count(); i++) seen[i] = rf_builtin_image_at(i);
    return NULL;
}

RF_TEST(embedded, threads_see_one_copy_of_an_image) {
    enum { THREADS = 8 };
    size_t count = rf_builtin_image_count();
    const struct rf_builtin_image **seen = calloc(THREADS * count, sizeof *seen);
    pthread_t threads[THREADS];
    RF_ASSERT(seen != NULL);
    for (size_t i = 0; i < THREADS; i++)
        RF_ASSERT_INT(pthread_create(&threads[i], NULL, ask_for_all, seen + i * count), 0);
    for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (size_t i = 0; i < count; i++)
        for (size_t t = 0; t < THREADS; t++) RF_ASSERT(seen[i] && seen[t * count + i] == seen[i]);
    free(seen);
}

RF_TEST(embedded, every_kernel_has_an_image_and_no_scratch) {
    RF_ASSERT(rf_builtin_kernel_count() > 0);
    RF_ASSERT(rf_builtin_kernel_at(rf_builtin_kernel_count()) == NULL);
    for (size_t i = 0; i < rf_builtin_kernel_count(); i++) {
        const struct rf_builtin_kernel *kernel = rf_builtin_kernel_at(i);
        bool found = false;
        for (size_t k = 0; k < rf_image_count() && !found; k++) {
            const struct rf_image *image = rf_image_at(k);
            found = strcmp(image->module, kernel->module) == 0 && strcmp(image->target, kernel->target) == 0;
        }
        if (!found) RF_FAIL("%s for %s has no image", kernel->name, kernel->target);
        RF_EXPECT_INT(kernel->spills, is_ptx(kernel->target) ? -1 : 0);
        RF_EXPECT(kernel->arg_count > 0 && kernel->max_threads >= 64 && kernel->max_threads <= 1024);
        if (!is_ptx(kernel->target)) RF_EXPECT(kernel->vector_registers > 0);
    }
}

RF_TEST(embedded, the_host_library_has_the_same_kernels) {
    for (int wave = 32; wave <= 64; wave += 32) {
        const struct rfk_table *table = host_library(KERNEL_LIBRARY, wave);
        for (size_t i = 0; i < rf_builtin_kernel_count(); i++) {
            const struct rf_builtin_kernel *kernel = rf_builtin_kernel_at(i);
            const struct rfk_kernel *host = host_kernel(table, kernel->name);
            RF_ASSERT_INT(host->arg_count, kernel->arg_count);
            RF_ASSERT_INT(host->max_threads, kernel->max_threads);
            for (size_t a = 0; a < kernel->arg_count; a++) RF_ASSERT_INT(host->arg_bytes[a], kernel->arg_bytes[a]);
        }
    }
}
