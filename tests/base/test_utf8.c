/* UTF-8: the boundaries, every code point, and random bytes against a second, slow decoder. */
#include "base/utf8.h"
#include <rocmforge/test.h>

#include <string.h>

/* The second decoder, written from the definition and not from bit patterns: the code point whose encoding text
 * begins with. Encodings are told apart by their length and by the smallest code that needs it. */
static uint32_t slow_decode(const unsigned char *text, size_t bytes, size_t *taken) {
    static const struct {
        unsigned first_low, first_high; /* of the first byte */
        uint32_t smallest;
    } forms[] = {{0, 127, 0}, {192, 223, 128}, {224, 239, 2048}, {240, 247, 65536}};
    *taken = 1;
    for (size_t length = 1; length <= 4; length++) {
        unsigned low = forms[length - 1].first_low, high = forms[length - 1].first_high;
        if (text[0] < low || text[0] > high) continue;
        if (length > bytes) return RF_CODE_INVALID;
        uint32_t code = text[0] - low;
        for (size_t i = 1; i < length; i++) {
            if (text[i] / 64 != 2) return RF_CODE_INVALID;
            code = code * 64 + text[i] % 64;
        }
        if (code < forms[length - 1].smallest || code > 1114111 || (code >= 55296 && code <= 57343))
            return RF_CODE_INVALID;
        *taken = length;
        return code;
    }
    return RF_CODE_INVALID;
}

/* Whether some bytes after these would make one character of them: tries all that matter. */
static bool slow_is_beginning(const unsigned char *text, size_t bytes) {
    static const unsigned char edges[] = {0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf};
    unsigned char whole[4];
    size_t taken, count = sizeof edges;
    memcpy(whole, text, bytes);
    for (size_t length = bytes + 1; length <= 4; length++)
        for (size_t tried = 0; tried < count * count * count; tried++) {
            whole[bytes] = edges[tried % count];
            if (bytes + 1 < 4) whole[bytes + 1] = edges[tried / count % count];
            if (bytes + 2 < 4) whole[bytes + 2] = edges[tried / count / count];
            if (slow_decode(whole, length, &taken) != RF_CODE_INVALID && taken == length) return true;
        }
    return false;
}

static size_t slow_unfinished(const unsigned char *text, size_t bytes) {
    for (size_t back = bytes < 3 ? bytes : 3; back > 0; back--)
        if (slow_is_beginning(text + bytes - back, back)) return back;
    return 0;
}

RF_TEST(utf8, decodes_strictly) {
    static const struct {
        const char *text;
        size_t bytes;
        uint32_t code;
        size_t taken;
    } cases[] = {
        {"A", 1, 'A', 1},
        {"\xc2\x80", 2, 0x80, 2},
        {"\xdf\xbf", 2, 0x7ff, 2},
        {"\xe0\xa0\x80", 3, 0x800, 3},
        {"\xed\x9f\xbf", 3, 0xd7ff, 3},
        {"\xee\x80\x80", 3, 0xe000, 3},
        {"\xf0\x90\x80\x80", 4, 0x10000, 4},
        {"\xf4\x8f\xbf\xbf", 4, 0x10ffff, 4},
        {"\x80", 1, RF_CODE_INVALID, 1},             /* a continuation alone */
        {"\xc0\x80", 2, RF_CODE_INVALID, 1},         /* overlong */
        {"\xc1\xbf", 2, RF_CODE_INVALID, 1},         /* overlong */
        {"\xe0\x9f\xbf", 3, RF_CODE_INVALID, 1},     /* overlong */
        {"\xf0\x8f\xbf\xbf", 4, RF_CODE_INVALID, 1}, /* overlong */
        {"\xed\xa0\x80", 3, RF_CODE_INVALID, 1},     /* a surrogate */
        {"\xf4\x90\x80\x80", 4, RF_CODE_INVALID, 1}, /* above U+10FFFF */
        {"\xf5\x80\x80\x80", 4, RF_CODE_INVALID, 1},
        {"\xff", 1, RF_CODE_INVALID, 1},
        {"\xe2\x82", 2, RF_CODE_INVALID, 1},     /* cut short */
        {"\xe2\x82\x41", 3, RF_CODE_INVALID, 1}, /* interrupted */
        {"\xc3\xa9", 1, RF_CODE_INVALID, 1},     /* the second byte is not part of the text */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        RF_TRACE("case %zu", i);
        size_t taken = 0;
        RF_EXPECT_UINT(rf_utf8_decode(cases[i].text, cases[i].bytes, &taken), cases[i].code);
        RF_EXPECT_UINT(taken, cases[i].taken);
    }
}

RF_TEST(utf8, every_code_point_comes_back) {
    for (uint32_t code = 0; code < 0x110000; code++) {
        if (code >= 0xd800 && code < 0xe000) continue;
        char text[4];
        size_t bytes = rf_utf8_encode(code, text), taken = 0;
        if (rf_utf8_decode(text, bytes, &taken) != code || taken != bytes) RF_FAIL("U+%04X does not come back", code);
        if (slow_decode((const unsigned char *)text, bytes, &taken) != code) RF_FAIL("U+%04X is not encoded", code);
        for (size_t cut = 1; cut < bytes; cut++) {
            if (rf_utf8_unfinished(text, cut) != cut) RF_FAIL("%zu bytes of U+%04X are not unfinished", cut, code);
            if (rf_utf8_decode(text, cut, &taken) != RF_CODE_INVALID || taken != 1)
                RF_FAIL("%zu bytes of U+%04X are not invalid", cut, code);
        }
        if (rf_utf8_unfinished(text, bytes) != 0) RF_FAIL("U+%04X is unfinished", code);
    }
}

RF_TEST(utf8, unfinished) {
    RF_ASSERT_UINT(rf_utf8_unfinished("", 0), 0);
    RF_ASSERT_UINT(rf_utf8_unfinished("a\xed\xa0", 3), 0); /* can only become a surrogate */
    RF_ASSERT_UINT(rf_utf8_unfinished("\xf0\x8f", 2), 0);  /* can only become overlong */
    RF_ASSERT_UINT(rf_utf8_unfinished("\xf4\x90", 2), 0);  /* can only be above U+10FFFF */
    RF_ASSERT_UINT(rf_utf8_unfinished("\x80\x80\x80\x80", 4), 0);
    RF_ASSERT_UINT(rf_utf8_unfinished("\xf0\x9f\x98", 3), 3);
    RF_ASSERT_UINT(rf_utf8_unfinished("\xc3", 1), 1);
    RF_ASSERT_UINT(rf_utf8_unfinished("\xc3\xa9\xe2", 3), 1);
}

/* Half of the bytes are drawn from those at the edges of a rule, so that long valid and nearly valid sequences come
 * up often. */
RF_TEST(utf8, random_bytes_as_the_slow_decoder) {
    static const unsigned char edges[] = {0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2,
                                          0xdf, 0xe0, 0xe1, 0xec, 0xed, 0xee, 0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5};
    struct rf_random random = {rf_test_seed()};
    size_t valid = 0, unfinished = 0;
    for (int round = 0; round < 20000; round++) {
        unsigned char text[16];
        size_t bytes = 1 + (size_t)(rf_random_next(&random) % sizeof text), fast_taken, slow_taken;
        for (size_t i = 0; i < bytes; i++) {
            uint64_t drawn = rf_random_next(&random);
            text[i] = drawn & 1 ? edges[(drawn >> 8) % sizeof edges] : (unsigned char)(drawn >> 8);
        }
        for (size_t at = 0; at < bytes; at += fast_taken) {
            uint32_t fast = rf_utf8_decode((const char *)text + at, bytes - at, &fast_taken);
            uint32_t slow = slow_decode(text + at, bytes - at, &slow_taken);
            if (fast != slow || fast_taken != slow_taken)
                RF_FAIL("round %d, byte %zu: U+%04X in %zu bytes, not U+%04X in %zu", round, at, fast, fast_taken,
                        slow, slow_taken);
            valid += fast != RF_CODE_INVALID && fast_taken > 1;
        }
        size_t fast = rf_utf8_unfinished((const char *)text, bytes), slow = slow_unfinished(text, bytes);
        if (fast != slow) RF_FAIL("round %d: %zu bytes are unfinished, not %zu", round, fast, slow);
        unfinished += fast > 0;
    }
    RF_EXPECT(valid > 1000 && unfinished > 1000); /* the draw must reach what it is meant to test */
}
