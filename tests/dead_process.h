/* Whether a process has ended. */
#ifndef TESTS_DEAD_PROCESS_H
#define TESTS_DEAD_PROCESS_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Gone, or dead and waiting for whoever is its parent now. */
static inline bool is_dead(long pid) {
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) return true;
    size_t length = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[length] = 0;
    const char *state = strrchr(line, ')');
    return !state || state[2] == 'Z' || state[2] == 'X';
}

#endif
