/* See ptx.h. The texts come from this project's build: every kernel begins with ENTRY and ends where the next one
 * begins. */
#include "gpu/ptx.h"

#include <stdlib.h>

#define ENTRY "\n.visible .entry "

rf_status rf_ptx_cut(const char *text, const char *kernel, char **out, size_t *bytes) {
    const char *first = strstr(text, ENTRY);
    size_t name_length = strlen(kernel);
    for (const char *at = first; at; at = strstr(at + 1, ENTRY)) {
        const char *name = at + sizeof ENTRY - 1, *next = strstr(name, ENTRY);
        if (strncmp(name, kernel, name_length) || name[name_length] != '(') continue;
        size_t before = (size_t)(first - text), own = next ? (size_t)(next - at) : strlen(at);
        char *cut = malloc(before + own + 1);
        if (!cut) return rf_fail(RF_E_NO_MEMORY, "kernel '%s': no host memory for its PTX", kernel);
        memcpy(cut, text, before);
        memcpy(cut + before, at, own);
        cut[before + own] = 0;
        *out = cut;
        *bytes = before + own + 1;
        return RF_OK;
    }
    return rf_fail(RF_E_NOT_FOUND, "kernel '%s' is not in its PTX", kernel);
}
