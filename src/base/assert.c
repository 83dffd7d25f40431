/* The one file of the library that prints and aborts, compiled only where the option 'checks' is on.
 *
 * It must not allocate, lock or call the rest of the library, because the part that is broken may be the one it would
 * call. */
#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void rf_assert_failed(const char *file, int line, const char *function, const char *condition, const char *note) {
    char text[1024];
    while (!strncmp(file, "../", 3)) file += 3; /* __FILE__ is relative to the build folder */
    int length = snprintf(text, sizeof text - 1, "%s:%d: %s: %s: %s\n", file, line, function, condition,
                          note ? note : "this must always hold; it is a defect of ROCmForge");
    if (length >= (int)sizeof text - 1) { /* the text was cut: it still ends as one line */
        length = (int)sizeof text - 1;
        text[length - 1] = '\n';
    }
    /* This is one write that bypasses stdio's buffer, so that lines of several threads do not mix. */
    if (length > 0 && write(STDERR_FILENO, text, (size_t)length) < 0) abort();
    abort();
}
