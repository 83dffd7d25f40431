/* What all attacks share: how long the long forms go on, and how a failure names the program that repeats it. */
#ifndef HOSTILE_TESTING_H
#define HOSTILE_TESTING_H

#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <rocmforge/test.h>

/* No long form takes longer, whatever HOSTILE_SECONDS says. */
#define HOSTILE_LONG_MS (24 * 3600 * 1000)

static inline int64_t hostile_now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* How long all rows of a long form may take together: HOSTILE_SECONDS, or a minute. */
static inline int64_t hostile_seconds(void) {
    const char *text = getenv("HOSTILE_SECONDS");
    long long seconds = text ? strtoll(text, NULL, 10) : 60;
    return seconds < 1 ? 1 : seconds > HOSTILE_LONG_MS / 1000 ? HOSTILE_LONG_MS / 1000 : seconds;
}

/* The path of this test executable. */
static inline const char *hostile_program(void) {
    static char path[512];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    return path;
}

#endif
