/* libFuzzer: any answer in any format, cut anywhere; reader_property.h says what must hold. */
#include <stdio.h>
#include <stdlib.h>

#include "../chat/reader_property.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size) {
    const char *wrong = reader_property(bytes, size);
    if (wrong) {
        fprintf(stderr, "%s\n", wrong);
        abort();
    }
    return 0;
}
