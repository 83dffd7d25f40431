/* libFuzzer: any template, any conversation; template_property.h says what must hold. */
#include <stdio.h>
#include <stdlib.h>

#include "../template/template_property.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size) {
    const char *wrong = template_property(bytes, size);
    if (wrong) {
        fprintf(stderr, "%s\n", wrong);
        abort();
    }
    return 0;
}
