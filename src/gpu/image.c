/* See image.h. Also the public rf_builtin_image_at, whose struct holds the unpacked image: each image is unpacked
 * when it is first asked for, and kept as long as the process lives, because the caller may keep the pointer. Inside
 * the library only rf_image_at is used, which costs no memory.
 *
 * Invariant: kept[i] is NULL or an image that never changes again. Threads that ask for the same image at the same
 * time each unpack it, one of them publishes its copy, and the others free theirs: no lock, so a fork is safe. */
#include "gpu/image.h"

#include <stdatomic.h>
#include <stdlib.h>

#include <rocmforge/gpu.h>
#include <zstd.h>

/* One pointer per image of the table; made at the first question. */
static _Atomic(struct rf_builtin_image *) *_Atomic kept;

rf_status rf_image_unpack(const struct rf_image *image, void **data) {
    char *memory = malloc(image->bytes + 1);
    if (!memory) return rf_fail(RF_E_NO_MEMORY, "no host memory for %zu bytes of kernels", image->bytes);
    size_t unpacked = ZSTD_decompress(memory, image->bytes, image->packed, image->packed_bytes);
    if (ZSTD_isError(unpacked) || unpacked != image->bytes) {
        const char *why = ZSTD_isError(unpacked) ? ZSTD_getErrorName(unpacked) : "it is too short";
        free(memory);
        return rf_fail(RF_E_IO, "the kernels of module %s for %s are damaged in this library (%s): install it again",
                       image->module, image->target, why);
    }
    memory[image->bytes] = 0;
    *data = memory;
    return RF_OK;
}

static _Atomic(struct rf_builtin_image *) *kept_table(void) {
    _Atomic(struct rf_builtin_image *) *table = atomic_load(&kept), *none = NULL;
    if (table) return table;
    table = calloc(rf_image_count(), sizeof *table);
    if (!table || atomic_compare_exchange_strong(&kept, &none, table)) return table;
    free(table);
    return none;
}

static const struct rf_builtin_image *no_memory(void) {
    rf_fail(RF_E_NO_MEMORY, "no host memory for the table of kernel images");
    return NULL;
}

size_t rf_builtin_image_count(void) {
    return rf_image_count();
}

const struct rf_builtin_image *rf_builtin_image_at(size_t index) {
    const struct rf_image *image = rf_image_at(index);
    if (!image) return NULL;
    _Atomic(struct rf_builtin_image *) *table = kept_table();
    if (!table) return no_memory();
    struct rf_builtin_image *found = atomic_load(&table[index]), *none = NULL;
    if (found) return found;
    void *data = NULL;
    found = malloc(sizeof *found);
    if (!found) return no_memory();
    if (rf_image_unpack(image, &data)) {
        free(found);
        return NULL;
    }
    *found = (struct rf_builtin_image){image->module, image->target, data, image->bytes};
    if (atomic_compare_exchange_strong(&table[index], &none, found)) return found;
    free(data);
    free(found);
    return none;
}
