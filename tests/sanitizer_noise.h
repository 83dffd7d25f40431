/* What a sanitizer says at the end of a program that is well: LeakSanitizer tells of threads that ended while it
 * looked at them. Such lines are no part of what a command prints. */
#ifndef SANITIZER_NOISE_H
#define SANITIZER_NOISE_H

#include <string.h>

static inline void drop_sanitizer_noise(char *text) {
    for (char *at; (at = strstr(text, "==Unable to get registers from thread "));) {
        char *end = strchr(at, '\n');
        while (at > text && at[-1] != '\n') at--;
        if (!end) {
            *at = 0;
            return;
        }
        memmove(at, end + 1, strlen(end + 1) + 1);
    }
}

#endif
