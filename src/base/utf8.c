/* See utf8.h.
 *
 * Invariant: decoding never reads past the bytes given, and takes at least one byte. */
#include "base/utf8.h"

#include <stdbool.h>

/* What the first byte of a sequence says: the length of the sequence, the bits of the code point that the byte
 * carries, and the range of the second byte, which rules out overlong forms, surrogates and codes above U+10FFFF.
 * Length 0: no sequence begins with this byte. */
struct lead {
    unsigned length;
    unsigned char bits, low, high;
};

static struct lead lead_of(unsigned char byte) {
    if (byte < 0x80) return (struct lead){1, byte, 0, 0};
    if (byte < 0xc2) return (struct lead){0};
    if (byte < 0xe0) return (struct lead){2, byte & 0x1f, 0x80, 0xbf};
    if (byte < 0xf0) return (struct lead){3, byte & 0x0f, byte == 0xe0 ? 0xa0 : 0x80, byte == 0xed ? 0x9f : 0xbf};
    if (byte < 0xf5) return (struct lead){4, byte & 0x07, byte == 0xf0 ? 0x90 : 0x80, byte == 0xf4 ? 0x8f : 0xbf};
    return (struct lead){0};
}

uint32_t rf_utf8_decode(const char *text, size_t bytes, size_t *taken) {
    const unsigned char *at = (const unsigned char *)text;
    struct lead lead = lead_of(at[0]);
    *taken = 1;
    if (lead.length == 1) return at[0];
    if (lead.length == 0 || bytes < lead.length || at[1] < lead.low || at[1] > lead.high) return RF_CODE_INVALID;
    uint32_t code = lead.bits;
    for (unsigned i = 1; i < lead.length; i++) {
        if ((at[i] & 0xc0) != 0x80) return RF_CODE_INVALID;
        code = code << 6 | (at[i] & 0x3f);
    }
    *taken = lead.length;
    return code;
}

size_t rf_utf8_encode(uint32_t code, char out[4]) {
    size_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char marks[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = length - 1; i > 0; i--, code >>= 6) out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(marks[length] | code);
    return length;
}

size_t rf_utf8_unfinished(const char *text, size_t bytes) {
    const unsigned char *end = (const unsigned char *)text + bytes;
    for (size_t back = 1; back <= 3 && back <= bytes; back++) {
        struct lead lead = lead_of(end[-(ptrdiff_t)back]);
        if (lead.length == 0 && (end[-(ptrdiff_t)back] & 0xc0) == 0x80) continue; /* a continuation: look further */
        bool second_fits =
            back < 2 || (end[1 - (ptrdiff_t)back] >= lead.low && end[1 - (ptrdiff_t)back] <= lead.high);
        return lead.length > back && second_fits ? back : 0;
    }
    return 0;
}
