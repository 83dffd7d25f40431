/* libFuzzer's way into the GGUF reader: whatever the bytes, they are refused with a reason or
 * everything in them can be read. Built on demand: make fuzz. */
#include "../gguf/gguf_property.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    /* A copy of the exact size: a read past it is seen. */
    uint8_t *bytes = malloc(size ? size : 1);
    if (!bytes) return 0;
    if (size) memcpy(bytes, data, size);
    const char *wrong = gguf_reads_soundly(bytes, size, NULL);
    free(bytes);
    if (wrong) {
        fprintf(stderr, "%s\n", wrong);
        abort();
    }
    return 0;
}
