/* UTF-8: decoding, encoding, and finding a character that is cut off at the end.
 *
 * Strict, as the Unicode standard defines it: no overlong forms, no surrogates, nothing above U+10FFFF. This is the
 * only decoder of the project: the library, the command and the test runner all use it.
 *
 * It must not depend on the locale, nor on any other file of the library: the command and the test runner compile it
 * into themselves. */
#ifndef RF_BASE_UTF8_H
#define RF_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

#define RF_CODE_INVALID 0x110000u /* the code of a byte that is not part of valid UTF-8 */

/* Returns the code point at the start of text, and sets *taken to the number of bytes it takes. bytes must be at
 * least 1, and no more than bytes are read. Where no valid sequence begins, the result is RF_CODE_INVALID and one
 * byte is taken. */
uint32_t rf_utf8_decode(const char *text, size_t bytes, size_t *taken);
/* Writes 1 to 4 bytes and returns how many; code must be a code point. */
size_t rf_utf8_encode(uint32_t code, char out[4]);
/* How many bytes at the end of text may be the beginning of a sequence that further bytes would complete: 0 to 3. */
size_t rf_utf8_unfinished(const char *text, size_t bytes);

#endif
