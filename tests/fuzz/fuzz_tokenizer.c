/* libFuzzer: any vocabulary, any text; tokenizer_property.h says what must hold. */
#include <stdio.h>
#include <stdlib.h>

#include "../tokenizer/tokenizer_property.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size) {
    const char *wrong = tokenizer_property(bytes, size);
    if (wrong) {
        fprintf(stderr, "%s\n", wrong);
        abort();
    }
    return 0;
}
