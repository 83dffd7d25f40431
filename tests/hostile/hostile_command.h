/* The commands that use a GPU, each with arguments that make it quick, run against a driver or a fault, and judged:
 *
 *   - it ends, and its status is 0 only if its output is that of work that was done
 *   - any other status is 1 or 77, and one line on standard error (or a failed item in its report) says why
 *   - no process is left
 *
 * The test process becomes the parent of whatever a command leaves behind, so nothing escapes it. */
#ifndef HOSTILE_COMMAND_H
#define HOSTILE_COMMAND_H

#include "../cli/run_testing.h"
#include "hostile_testing.h"

enum command_name { DOCTOR, INFO, BENCH, CHECK, LOGITS, SELFTEST, RUN, DEMO, COMMANDS };
struct hostile_command {
    const char *label;
    enum command_name name;
};
extern const struct hostile_command hostile_commands[COMMANDS];

/* What a command is run against. */
struct attack {
    const char *hostile; /* HOSTILE: see hostile_hip.c; NULL: the simulated driver itself */
    const char *rfsim;   /* RFSIM; NULL: empty */
    bool hangs;          /* with short deadlines, which then decide; work that they cut short is not done either */
    bool gpu;            /* with --device gpu, so that `run` has no CPU to continue on */
    bool resume;         /* whatever stops is let go on */
};

struct outcome {
    int status;        /* as waitpid has it */
    bool hung;         /* it did not end, and was killed */
    bool reached;      /* the driver misbehaved, */
    char entries[512]; /* at these entry points, a line for each process of the command */
    int left;          /* processes that were still there */
    char output[1 << 16], errors[1 << 16];
    uint64_t calls;     /* of the simulated driver in the worker that called it most */
    bool trapped, held; /* by any worker that ended in order: a banned call; device or pinned memory held */
    char again[1024];   /* the command line that repeats it */
};

/* Runs it to its end. */
void hostile_run(const struct hostile_command *command, const struct attack *attack, struct outcome *outcome);

enum verdict {
    ANY,      /* done, or failed with a reason */
    DONE,     /* must be done, as if nothing had happened */
    EXACT,    /* the same, to the last bit */
    NOT_DONE, /* must not be done on the GPU: `run` continues on the CPU, doctor and info tell why */
};
/* NULL: as it must be; else what is wrong. */
const char *hostile_judge(const struct hostile_command *command, const struct outcome *outcome, enum verdict verdict);
/* The same where the command itself may die of this signal. */
const char *hostile_judge_signal(const struct hostile_command *command, const struct outcome *outcome,
                                 enum verdict verdict, int signal_number);

/* How many driver calls the undisturbed command makes in the worker that makes most; fails the test where it is not
 * done. */
uint64_t hostile_calls(const struct hostile_command *command);

/* Plays the attacks of 'count' seeds after the run's own, or of as many as there is time for in a long form
 * (LONG_FORM); then no lease may be left. HOSTILE_ONE plays that of the run's seed itself: what a failure names. */
typedef void (*hostile_play_fn)(const struct hostile_command *command, uint64_t calls, uint64_t seed);
void hostile_play(const struct hostile_command *command, hostile_play_fn play, int count);
enum { LONG_FORM = -1, HOSTILE_ONE = 0 };

/* Records a failure with everything that is needed to see it again. */
void hostile_report(const struct outcome *outcome, const char *wrong);

/* No process of the commands that ran holds a lease. */
void hostile_expect_no_lease(void);

#endif
