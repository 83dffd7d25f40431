/* The one file of the library that prints and aborts, compiled only where the option 'checks' is on.
 *
 * Must not allocate, lock or use the library: whatever is broken may be what it would need. */
#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void rf_assert_failed(const char *file, int line, const char *function, const char *condition, const char *note) {
    char text[1024];
    while (!strncmp(file, "../", 3)) file += 3; /* the way from the build folder */
    int length = snprintf(text, sizeof text - 1, "%s:%d: %s: %s: %s\n", file, line, function, condition,
                          note ? note : "this must always hold; it is a defect of ROCmForge");
    if (length >= (int)sizeof text - 1) { /* cut: still one line */
        length = (int)sizeof text - 1;
        text[length - 1] = '\n';
    }
    /* One write, past stdio's buffer, so that lines of several threads do not mix. */
    if (length > 0 && write(STDERR_FILENO, text, (size_t)length) < 0) abort();
    abort();
}
