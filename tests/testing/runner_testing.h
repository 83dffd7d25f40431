/* What the tests of the runner share: a folder of the test's own, and samples run in an environment of its own. */
#ifndef RUNNER_TESTING_H
#define RUNNER_TESTING_H

#include "run_report.h"

extern char folder[256], environment[1024];

void make_folder(void); /* once */
void leave(void);       /* removes it */

/* As run_report, in that environment; noted with what it said. */
int run(const char *executable, const char *format, ...) RF_PRINTF(2, 3);
/* The report's last line, its end included, and not its only one. */
void expect_end(const char *closing);

#endif
