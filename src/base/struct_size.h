/* Reading struct_size: whether a public struct from an older or a newer program can be used.
 *
 * Invariants: nothing beyond the caller's struct_size is ever read or written; a field that the caller's struct does
 * not have reads as 0. The header is self-contained, because the test harness includes it and is linked to the
 * library from outside. */
#ifndef RF_BASE_STRUCT_SIZE_H
#define RF_BASE_STRUCT_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* No public struct is or will be larger. A larger struct_size comes from memory that was never initialised. */
#define RF_STRUCT_BYTES_MAX 16384

/* Whether a caller's struct of given_bytes can be one that this library, which knows known_bytes of it, may write.
 * least_bytes: its size when it was first released. False: why says the reason in one line. */
static inline bool rf_struct_has_size(size_t given_bytes, size_t known_bytes, size_t least_bytes, const char *type,
                                      char *why, size_t why_bytes) {
    if (!given_bytes) {
        snprintf(
            why, why_bytes,
            "the struct_size of %s is not set, this library's has %zu bytes; declare it with RF_PARAMS(%s, name)",
            type, known_bytes, type);
        return false;
    }
    /* Each struct begins with a size_t, so each size is a multiple of it. */
    if (given_bytes < least_bytes || given_bytes > RF_STRUCT_BYTES_MAX || given_bytes % sizeof(size_t)) {
        snprintf(why, why_bytes,
                 "the struct_size of %s is %zu, which was never its size: this library's has %zu bytes, the first "
                 "release's had %zu; declare it with RF_PARAMS(%s, name)",
                 type, given_bytes, known_bytes, least_bytes, type);
        return false;
    }
    return true;
}

/* Copies a caller's struct of given_bytes into one of known_bytes: fields that the caller's struct does not have
 * become 0. False where the size is wrong, or where the caller has set a byte that this library does not know: why
 * says which. */
static inline bool rf_struct_read(void *own, size_t known_bytes, size_t least_bytes, const void *given,
                                  size_t given_bytes, const char *type, char *why, size_t why_bytes) {
    if (!rf_struct_has_size(given_bytes, known_bytes, least_bytes, type, why, why_bytes)) return false;
    for (size_t i = known_bytes; i < given_bytes; i++) {
        if (!((const unsigned char *)given)[i]) continue;
        snprintf(why, why_bytes,
                 "%s has %zu bytes, this library knows the first %zu of them, and byte %zu is set: the program uses "
                 "a field of a newer library; install that one, or leave the field 0",
                 type, given_bytes, known_bytes, i);
        return false;
    }
    size_t common = given_bytes < known_bytes ? given_bytes : known_bytes;
    memcpy(own, given, common);
    memset((char *)own + common, 0, known_bytes - common);
    return true;
}

#endif
