/* libFuzzer: any bytes as a grammar of one kind and a text for it; grammar_property.h has what must hold. */
#include "../grammar/grammar_property.h"

#include <stdio.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    const char *why;
    if (!grammar_property(RF_GRAMMAR_REGEX, data, size, &why)) {
        fprintf(stderr, "%s\n", why);
        __builtin_trap();
    }
    return 0;
}
