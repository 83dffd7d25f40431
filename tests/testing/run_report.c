#include "run_report.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../sanitizer_noise.h"

#include "../scratch.h"

char report[1 << 20];

int run_shell(const char *command) {
    fflush(NULL);
    FILE *pipe = popen(command, "r");
    RF_ASSERT(pipe != NULL);
    size_t length = fread(report, 1, sizeof report - 1, pipe);
    report[length] = 0;
    drop_sanitizer_noise(report);
    int status = pclose(pipe);
    RF_ASSERT(WIFEXITED(status));
    return WEXITSTATUS(status);
}

int run_report(const char *environment, const char *executable, const char *arguments) {
    char command[4096];
    snprintf(command, sizeof command, "%s '%s' %s 2>&1", environment, executable, arguments);
    return run_shell(command);
}

int run_command(const char *format, ...) {
    char command[4096];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(command, sizeof command - 8, format, arguments);
    va_end(arguments);
    RF_ASSERT(length > 0 && length < (int)sizeof command - 8);
    strcat(command, " 2>&1");
    int status = run_shell(command);
    RF_NOTE("$ %s\n%s", command, report);
    return status;
}

const char *last_line(void) {
    size_t length = strlen(report);
    RF_ASSERT(length > 0 && report[length - 1] == '\n');
    const char *line = report + length - 1;
    while (line > report && line[-1] != '\n') line--;
    return line;
}

int count_in_report(const char *part) {
    int count = 0;
    for (const char *at = report; (at = strstr(at, part)); at += strlen(part)) count++;
    return count;
}

bool is_gone(int pid) {
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) return true;
    if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = 0; /* it ended while it was read */
    fclose(file);
    return state == 0 || state == 'Z' || state == 'X';
}

static char folder[256];

static void make_folder(void);

const char *simulated(const char *rfsim) {
    static char text[1024];
    make_folder();
    snprintf(text, sizeof text, "RF_DRIVER=sim RF_LEASE_DIR='%s/leases' RF_LOG=warn RFSIM='%s'", folder, rfsim);
    return text;
}

const char *simulated_tree(const char *rfsim) {
    static char text[1024];
    make_folder();
    snprintf(text, sizeof text,
             "RF_DRIVER=sim RF_LEASE_DIR='%s/leases' RF_LOG=warn RF_SYSFS='%s/sys' RFSIM='sysfs=%s/sys%s%s'", folder,
             folder, folder, *rfsim ? "," : "", rfsim);
    return text;
}

const char *enter_simulated(void) {
    char leases[300];
    make_folder();
    snprintf(leases, sizeof leases, "%s/leases", folder);
    setenv("RF_LEASE_DIR", leases, 1);
    setenv("RF_DRIVER", "sim", 1);
    unsetenv("RFSIM");
    unsetenv("RF_BUDGET");
    unsetenv("RF_CHECK");
    return folder;
}

static void make_folder(void) {
    if (!folder[0]) scratch_folder(folder, "command");
}
