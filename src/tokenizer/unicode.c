/* The classes of code points, by binary search in the generated table. */
#include "tokenizer/unicode.h"

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
