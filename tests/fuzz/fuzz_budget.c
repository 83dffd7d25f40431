/* libFuzzer: any text as a budget. It is refused with one line that says what is allowed, or its limits are within
 * what there is. */
#include "gpu/budget.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    char *text = malloc(size + 1);
    if (!text) return 0;
    memcpy(text, data, size);
    text[size] = 0;
    struct rf_budget_spec spec;
    if (rf_budget_parse(text, &spec) == RF_OK) {
        static const uint64_t bases[] = {0, 1, 1000, UINT64_C(24) << 30, UINT64_C(1) << 63, UINT64_MAX};
        for (size_t i = 0; i < RF_COUNT(bases); i++) {
            uint64_t limit, floor_bytes;
            rf_budget_eval(&spec, bases[i], &limit, &floor_bytes);
            if (limit > bases[i] || (spec.has_cap && limit > spec.cap_bytes)) __builtin_trap();
        }
    } else if (!strstr(rf_error_text(), "allowed:") || strchr(rf_error_text(), '\n')) {
        __builtin_trap();
    }
    free(text);
    return 0;
}
