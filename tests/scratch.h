/* Files and folders of a test, in rf_test_folder(): if the test is killed, a runner removes them. */
#ifndef TESTS_SCRATCH_H
#define TESTS_SCRATCH_H

#include <stdio.h>
#include <stdlib.h>

#include <rocmforge/test.h>

#define SCRATCH_BYTES (RF_TEST_FOLDER_BYTES + 40)

/* Makes a folder of its own with a name that begins with stem (at most 24 characters), and writes its path. */
static inline void scratch_folder(char path[SCRATCH_BYTES], const char *stem) {
    snprintf(path, SCRATCH_BYTES, "%s/%.24s-XXXXXX", rf_test_folder(), stem);
    RF_ASSERT(mkdtemp(path) != NULL);
}

/* The same for an open, empty file; its descriptor. */
static inline int scratch_file(char path[SCRATCH_BYTES], const char *stem) {
    snprintf(path, SCRATCH_BYTES, "%s/%.24s-XXXXXX", rf_test_folder(), stem);
    int fd = mkstemp(path);
    RF_ASSERT(fd >= 0);
    return fd;
}

#endif
