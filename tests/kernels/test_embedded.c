/* What is embedded in the library agrees with itself and with the host kernels. */
#include "host_run.h"

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

RF_TEST(embedded, every_kernel_has_an_image_and_no_scratch) {
    RF_ASSERT(rf_builtin_kernel_count() > 0);
    RF_ASSERT(rf_builtin_kernel_at(rf_builtin_kernel_count()) == NULL);
    for (size_t i = 0; i < rf_builtin_kernel_count(); i++) {
        const struct rf_builtin_kernel *kernel = rf_builtin_kernel_at(i);
        bool found = false;
        for (size_t k = 0; k < rf_builtin_image_count() && !found; k++) {
            const struct rf_builtin_image *image = rf_builtin_image_at(k);
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
