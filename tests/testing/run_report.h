/* Runs a program under a shell and keeps what it said: for tests that look at what the harness
 * makes of other tests. */
#ifndef RUN_REPORT_H
#define RUN_REPORT_H

#include <rocmforge/test.h>

extern char report[1 << 20]; /* what the last run said, ended by zero */

/* A command line as it is: its output alone, unless it says otherwise. Returns the exit status; a death by signal
 * fails the test. */
int run_shell(const char *command);

/* Output and errors together. environment: "NAME=VALUE …" as a shell takes it, or "". */
int run_report(const char *environment, const char *executable, const char *arguments);
/* The same with a whole command line, which is noted with what it said. */
int run_command(const char *format, ...) RF_PRINTF(1, 2);
/* The report's last line, with its end. */
const char *last_line(void);
/* How often a text stands in the report. */
int count_in_report(const char *part);
/* Whether the process has died. A zombie has: who reaps it, and when, is the system's business. */
bool is_gone(int pid);
/* The same environment for every GPU sample: the simulated driver, a lease folder of this process
 * alone (removed at its end), and these RFSIM settings. Static storage. */
const char *simulated(const char *rfsim);
/* The same with a tree of the kernel's figures, which alone know of displays and processes. */
const char *simulated_tree(const char *rfsim);
/* The same for what this process itself starts from here on: set, not given back. The folder. */
const char *enter_simulated(void);

#endif
