/* Text as code points, as Python's str has it: white space, case, classes.
 *
 * Texts here are valid UTF-8: what comes from outside was checked when it came. Nothing depends on the locale. */
#ifndef RF_TEMPLATE_UNICODE_TEXT_H
#define RF_TEMPLATE_UNICODE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool rf_text_is_utf8(const char *text, size_t bytes);
size_t rf_text_chars(const char *text, size_t bytes); /* how many code points */
/* The byte at which the code point with this index begins; bytes if there are not so many. */
size_t rf_text_offset(const char *text, size_t bytes, size_t index);
size_t rf_text_char_bytes(unsigned char first); /* how many bytes the code point that begins with this byte takes */

bool rf_code_is_space(uint32_t code); /* str.isspace, and \s in a regular expression */
bool rf_code_is_word(uint32_t code);  /* \w */
bool rf_code_is_alpha(uint32_t code);
bool rf_code_is_cased(uint32_t code);
bool rf_code_is_upper(uint32_t code);
bool rf_code_is_lower(uint32_t code);
bool rf_code_is_number(uint32_t code);    /* any of the classes N */
bool rf_code_is_printable(uint32_t code); /* repr leaves it as it is */
/* Writes the upper- or lower-case form, 1 to 3 code points; returns how many. */
size_t rf_code_upper(uint32_t code, uint32_t out[3]);
size_t rf_code_lower(uint32_t code, uint32_t out[3]);
size_t rf_code_title(uint32_t code, uint32_t out[3]); /* the upper-case form, what is behind its first lower */

/* ---- the tables (case_table.c) ---- */
struct rf_case_run {
    uint32_t first, last;
    int32_t step, distance;
};
struct rf_case_long {
    uint32_t code, form[3]; /* 0: no more */
};
extern const size_t rf_case_upper_count, rf_case_lower_count, rf_case_upper_long_count, rf_case_lower_long_count;
extern const struct rf_case_run rf_case_upper[], rf_case_lower[];
extern const struct rf_case_long rf_case_upper_long[], rf_case_lower_long[];

#endif
