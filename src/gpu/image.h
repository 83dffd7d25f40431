/* The kernel images embedded in the library: one per module and target, compressed with zstd. The table is written by
 * tools/build_kernels.py. Any thread may call any of these functions; none of them blocks. */
#ifndef RF_GPU_IMAGE_H
#define RF_GPU_IMAGE_H

#include "base/base.h"

struct rf_image {
    const char *module, *target;
    const void *packed; /* one zstd frame with a checksum */
    size_t packed_bytes;
    size_t bytes; /* of the image once it is unpacked; the NUL that ends PTX counts */
};

/* Look at the table only: nothing is unpacked. rf_image_at gives NULL past the end. */
size_t rf_image_count(void);
const struct rf_image *rf_image_at(size_t index);

/* Every target that kernels can be built for, with a space before each; not all are in this build. */
extern const char rf_image_known_targets[];

/* Unpacks an image into memory from malloc, which the caller frees. One NUL follows the image and is not counted in
 * bytes. RF_E_NO_MEMORY, or RF_E_IO where the packed bytes are damaged; *data is untouched then. */
rf_status rf_image_unpack(const struct rf_image *image, void **data);

#endif
