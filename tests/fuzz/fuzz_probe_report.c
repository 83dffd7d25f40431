/* libFuzzer: any bytes as a probe's report; report_property.h says what must hold. */
#include <stdint.h>
#include <stdlib.h>

#include "../probe/report_property.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    bool accepted;
    if (!report_reads_soundly((const char *)data, size, &accepted)) abort();
    return 0;
}
