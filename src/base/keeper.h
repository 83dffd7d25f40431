/* A keeper: a process between a program and the process that calls a driver for it.
 *
 * A driver may crash, hang, leave processes behind, or kill its parent. The program must survive all of that, and
 * nothing may be left of it afterwards. So the process that the program starts splits in two before it loads a
 * driver: the parent is the keeper, the child works. To the driver the keeper is the parent, and processes that the
 * driver leaves behind become children of the keeper, which kills them.
 *
 * Compiled into rocmforge and rocmforge-probe; no part of the library. */
#ifndef RF_BASE_KEEPER_H
#define RF_BASE_KEEPER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* How long the keeper waits for what it has killed while none of it could go on, and how long in all. A process that
 * hangs inside the kernel dies later or never; then the keeper ends with this exit status. One that only waits for a
 * core of a busy machine dies as soon as it gets one. */
enum { RF_KEEPER_END_MS = 10000, RF_KEEPER_MOST_MS = 300000, RF_KEEPER_STUCK = 125 };

/* Call it before there is a second thread. parent: the process id of the program; if the program is gone already,
 * this process ends. 0: not known.
 *
 * Returns 0 in the child only: it has the signal mask and the descriptors of before, a process group of its own, and
 * gets SIGKILL when the keeper ends. The keeper never returns. It has no descriptor open and blocks every signal. It
 * waits for the child to end, for SIGTERM, or for the end of the thread that started it; then it kills the child and
 * all that the child left, and ends as the child did: with the same exit status or by the same signal.
 *
 * Returns an errno in the only process there is if the child cannot be made. */
int rf_keeper_split(pid_t parent);

/* Whether a thread of the process runs, or could if it had a core. */
bool rf_keeper_is_running(pid_t pid);

/* Patience with processes that should end. Its time is what this process gets of it: a pause counts as long as it was
 * meant to be, however late a busy machine ends it, for there the others need longer too. While they could go on, it
 * begins anew; in all it has RF_KEEPER_MOST_MS of the clock's time more. */
struct rf_patience {
    int64_t whole_ms, left_ms, end_ms;
};
struct rf_patience rf_patience_of(int64_t ms);
/* Pauses. running: those it waits for could go on. False: the patience is at an end. */
bool rf_patience_lasts(struct rf_patience *patience, int64_t pause_ms, bool running);

/* Kills the children of this process that were started with 'mark', "NAME=VALUE", in their environment; NULL: all. It
 * does not wait for their end. Returns how many there were. running: whether one of them still runs; may be NULL. */
int rf_keeper_kill_children(const char *mark, bool *running);

#endif
