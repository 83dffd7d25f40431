/* UTF-8, and the classes of code points by binary search in the generated table.
 *
 * Invariant: decoding never reads past the bytes given, takes at least one byte, and the bytes
 * taken are what rf_rune_bytes says. rf_utf8_decode asserts it. */
#include "tokenizer/unicode.h"

#include "base/assert.h"

/* What a lead byte promises: the sequence's length, the bits it carries, the range of its second
 * byte (which rules out overlong forms, surrogates and what is above U+10FFFF). 0: no lead byte. */
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
    rf_assert(*taken <= bytes && *taken == rf_rune_bytes(code));
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

uint32_t rf_rune(uint32_t code) {
    uint32_t wanted = code == RF_CODE_INVALID ? 0xfffd : code;
    uint32_t low = 0, high = rf_unicode_range_count; /* the last range that begins at or before it */
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (RF_RUNE_CODE(rf_unicode_ranges[middle]) <= wanted)
            low = middle;
        else
            high = middle;
    }
    return code | (rf_unicode_ranges[low] & ~0x1fffffu);
}
