/* See runner_testing.h. */
#include "runner_testing.h"

#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../scratch.h"

char folder[256], environment[1024];

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *at) {
    (void)info, (void)type, (void)at;
    return remove(path);
}

void make_folder(void) {
    if (folder[0]) return;
    scratch_folder(folder, "runner");
}

void leave(void) {
    if (folder[0]) nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    folder[0] = 0;
}

int run(const char *executable, const char *format, ...) {
    char arguments[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(arguments, sizeof arguments, format, args);
    va_end(args);
    int code = run_report(environment, executable, arguments);
    RF_NOTE("$ %s %s\n%.20000s", executable, arguments, report);
    return code;
}

void expect_end(const char *closing) {
    const char *line = last_line();
    if (line == report || strcmp(line, closing)) RF_FAIL("the last line is not \"%s\":\n%s", closing, report);
}
