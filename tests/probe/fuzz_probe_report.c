/* libFuzzer entry: whatever the bytes, the report's reader is sound. */
#include "report_property.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    bool accepted;
    if (!report_reads_soundly((const char *)data, size, &accepted)) abort();
    return 0;
}
