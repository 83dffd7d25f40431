/* What the kernel says about a process or thread, in /proc.
 *
 * It depends on nothing else here: the command, the probe's helper and the test harness compile it. */
#ifndef RF_BASE_PROCESS_H
#define RF_BASE_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

struct rf_process {
    char state; /* as proc(5) spells it: 'R' runs or waits for a core, 'D' waits inside the kernel, 'Z' has ended */
    pid_t parent;
    bool ending;   /* it has begun to end, and may have no environment any more */
    char name[32]; /* may hold anything */
};
/* False: there is none. */
bool rf_process_read(pid_t pid, struct rf_process *out);
/* Whether a thread of the process is in one of these states. */
bool rf_process_has_state(pid_t pid, const char *states);

#endif
