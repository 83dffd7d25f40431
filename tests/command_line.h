/* A command line of `rocmforge`, run in a folder by a shell: what it prints, and how it ends. For tests of one
 * command that needs neither a worker nor a GPU; tests/cli/run_testing.h has more. ROCMFORGE names the executable. */
#ifndef TESTS_COMMAND_LINE_H
#define TESTS_COMMAND_LINE_H

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include <rocmforge/test.h>

static char output[1 << 16]; /* of the last run, ended by zero */
static size_t output_bytes;

/* The exit status. The arguments may redirect. */
static inline int run_in(const char *folder, const char *arguments) {
    char command[1024];
    snprintf(command, sizeof command, "cd %s && '%s' %s", folder, ROCMFORGE, arguments);
    FILE *pipe = popen(command, "r");
    RF_ASSERT(pipe != NULL);
    output_bytes = fread(output, 1, sizeof output - 1, pipe);
    output[output_bytes] = 0;
    int status = pclose(pipe);
    RF_ASSERT(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static inline void expect_in(const char *folder, const char *arguments, const char *text) {
    RF_TRACE("rocmforge %s", arguments);
    RF_EXPECT_INT(run_in(folder, arguments), 0);
    RF_EXPECT_TEXT(output, text);
}

/* One line on standard error and nothing on standard output. */
static inline void expect_one_line_in(const char *folder, const char *arguments, int code, const char *part) {
    char with_errors[512];
    RF_TRACE("rocmforge %s", arguments);
    snprintf(with_errors, sizeof with_errors, "%s 2>&1", arguments);
    RF_EXPECT_INT(run_in(folder, with_errors), code);
    const char *end = strchr(output, '\n');
    if (!end || end[1] || strncmp(output, "rocmforge: ", 11) != 0) RF_FAIL("not one line: %s", output);
    RF_EXPECT_CONTAINS(output, part);
}

#endif
