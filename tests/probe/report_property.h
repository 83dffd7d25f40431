#ifndef REPORT_PROPERTY_H
#define REPORT_PROPERTY_H

#include <stdbool.h>
#include <stddef.h>

/* Reads text as a probe's report. True if it is refused with a line number, or accepted and
 * the writer writes the very same text again: the reader accepts nothing else. */
bool report_reads_soundly(const char *text, size_t length, bool *accepted);

#endif
