/* The worker: this program again, as a process that its GPU may take down.
 *
 * A vendor's runtime can abort the process, end it, hang in a call that no deadline reaches, print, leave processes
 * behind or kill its parent. The command survives that and says what happened.
 *
 * Three processes: the command starts the keeper (base/keeper.h), which splits off the worker. The worker and the
 * command share a channel, a socket pair. The worker has no input, what it or the driver prints goes to standard
 * error, and Ctrl-C does not reach it, because it has a process group of its own. When the command ends, however it
 * ends, so does the worker.
 *
 *   worker.c       in the command: starting a worker, ending it
 *   worker_run.c   in the command: one job in a worker, its output and its signs of life
 *   worker_main.c  in the worker: the channel, output, signs of life, the closing message
 *   silence.c      in the command: for how long a worker has given no sign of life */
#ifndef RF_CLI_WORKER_H
#define RF_CLI_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include <rocmforge/base.h>

enum { CLI_WHY_BYTES = 512 };

/* ---- in the command ---- */

struct cli_worker {
    pid_t pid;    /* of the worker; 0: there is none */
    pid_t keeper; /* the child of this process */
    int channel;
    int exit_code;   /* after cli_worker_end: its exit status, or -1 if it did not exit by itself */
    int exit_signal; /* after cli_worker_end: the signal that it died of by itself, or 0 */
    bool killed;     /* after cli_worker_end: it had to be killed */
    bool stuck;      /* after cli_worker_end: it was killed and does not end */
};

/* Starts `rocmforge ARGUMENTS…` (ended by NULL), and waits until there is a worker. RF_E_IO, with the reason in why.
 */
rf_status cli_worker_start(const char *const *arguments, struct cli_worker *worker, char why[CLI_WHY_BYTES]);
/* Whether there is still a process that could write to the channel. A driver that killed the keeper may have left a
 * process that holds the channel open. */
bool cli_worker_lives(const struct cli_worker *worker);
/* Closes the channel and waits a few seconds for the worker to exit, then kills it; at_once: kills it without
 * waiting. Whatever the worker started is killed too. True: it exited by itself with status 0. False: why says what
 * happened, or there was no worker. Returns by a deadline also if the kernel does not let go of the worker; why says
 * that. */
bool cli_worker_end(struct cli_worker *worker, bool at_once, char why[CLI_WHY_BYTES]);

/* One job: a command that a worker carries out from beginning to end. */
struct cli_job {
    const char *const *arguments; /* ended by NULL */
    int64_t duty_percent;         /* of --duty; 0: not given */
    /* Called with what the worker wrote to cli_out(). False: nobody takes it any more, and the worker is ended.
     * NULL: it goes to standard output. */
    bool (*output)(void *user, const void *bytes, size_t count);
    void *user;
};
/* For output that is a short text: keeps it, ended by zero. Zero-initialised: empty. */
struct cli_text {
    char text[4096];
    size_t length;
};
bool cli_text_keep(void *text, const void *bytes, size_t count);
/* Returns RF_OK if the worker finished: its closing message came, with *exit_code. CLI_FAILED where nobody takes the
 * output. Otherwise RF_E_TIMEOUT (no sign of life for too long), RF_E_DEVICE_LOST (it ended without a closing
 * message, or not as that said) or RF_E_IO, with the reason in why: what happened, and where the worker stood. */
rf_status cli_worker_run(const struct cli_job *job, int *exit_code, char why[CLI_WHY_BYTES]);

/* ---- silence ---- */

/* What a worker does until its next sign of life. */
enum cli_work {
    CLI_DEVICE_WORKS, /* the CPU should be idle, or waits for the device */
    CLI_HOST_WORKS,   /* the CPU may be busy for long */
    CLI_LOADS,        /* the same, and files are read */
};

/* For how long a worker has given no sign of life. Silence counts only while this process is awake (a stopped
 * terminal job counts nothing), and how much it counts depends on what the worker does meanwhile:
 *   it reads a file       not at all: the disk is slow
 *   it uses the CPU       a sixtieth if that is expected of its work, or if it uses more than one core, because a
 *                         driver does not spin on several. Otherwise it spins in the driver, and that counts in full
 *   neither               in full
 * Zero-initialised: none. */
struct cli_silence {
    int64_t silent_ns, looked_ns, cpu_ns;
    uint64_t read_bytes;
};
enum { CLI_TICK_MS = 50 };
/* To be called after each tick of CLI_TICK_MS in which nothing arrived. */
void cli_silence_count(struct cli_silence *silence, pid_t worker, enum cli_work work);
void cli_silence_end(struct cli_silence *silence); /* something arrived */
/* How much silence is too much: twice the library's deadline, because a piece of work may consist of several waits,
 * and a second. With --duty the device, and so the worker, is idle for a multiple of the time that it works. */
rf_status cli_patience(int64_t duty_percent, int64_t *patience_ns, int64_t *probe_ns);

/* ---- in the worker ---- */

/* main calls it first. In a process that a command started as its worker: splits off the keeper and takes the
 * channel. Returns false if no worker can be made of this process; it must then end. */
bool cli_worker_enter(void);
/* main calls it last: sends the closing message of a job. Returns the exit code. */
int cli_worker_finish(int exit_code);
bool cli_is_worker(void);
/* The channel, for a worker that is no job and talks in its own way; from then on cli_out and cli_at are not for it.
 * May be called once. -1: this process is not a worker. */
int cli_worker_channel(void);

/* Where a command writes its results: standard output, and in a worker what job.output gets. Never use stdout in code
 * that may run in a worker: that is where drivers print. */
FILE *cli_out(void);
/* In the worker of a job: passes the text of an error on to the command, which prints it when the worker has
 * finished. False: this process is no such worker. */
bool cli_worker_tell_error(const char *text);
/* In the worker a sign of life: the text says what it is about to do. Elsewhere it does nothing. Any thread may call
 * it. */
void cli_at(enum cli_work work, const char *format, ...) RF_PRINTF(2, 3);

#endif
