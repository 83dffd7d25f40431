/* See keeper.h.
 *
 * Must not block in waitpid once something was killed: a process that hangs inside the kernel does not end even on
 * SIGKILL. Children are found by their parent's id in /proc, because not every kernel lists them. */
#include "base/keeper.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/process.h"

static void keep(pid_t child) __attribute__((noreturn));

int rf_keeper_split(pid_t parent) {
    sigset_t all, before;
    pid_t keeper = getpid();
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (parent && getppid() != parent) _exit(1); /* it ended before the call above */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    signal(SIGCHLD, SIG_DFL); /* where it is ignored, how a child ended is lost */
    pid_t child = fork();
    if (child > 0) keep(child);
    int error = child < 0 ? errno : 0;
    if (!child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != keeper) _exit(1);
        setpgid(0, 0);
        signal(SIGTTOU, SIG_IGN); /* it may print on the terminal, though it is in the background there */
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return error;
}

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void close_descriptors(void) {
#ifdef SYS_close_range
    if (syscall(SYS_close_range, 0, ~0u, 0) == 0) return;
#endif
    long most = sysconf(_SC_OPEN_MAX);
    for (int fd = 0; fd < (most > 0 && most < 4096 ? (int)most : 4096); fd++) close(fd);
}

bool rf_keeper_is_running(pid_t pid) {
    return rf_process_has_state(pid, "R");
}

struct rf_patience rf_patience_of(int64_t ms) {
    return (struct rf_patience){ms, ms, now_ms() + RF_KEEPER_MOST_MS + ms};
}

bool rf_patience_lasts(struct rf_patience *patience, int64_t pause_ms, bool running) {
    if (running) patience->left_ms = patience->whole_ms;
    if (patience->left_ms <= 0 || now_ms() >= patience->end_ms) return false;
    nanosleep(&(struct timespec){pause_ms / 1000, pause_ms % 1000 * 1000000}, NULL);
    patience->left_ms -= pause_ms;
    return true;
}

/* A process that has ended has no environment any more. */
static bool has_mark(pid_t pid, const char *mark) {
    char path[64];
    char *entry = NULL;
    size_t room = 0;
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    FILE *file = fopen(path, "re");
    while (file && !found && getdelim(&entry, &room, 0, file) > 0) found = !strcmp(entry, mark);
    if (file) fclose(file);
    free(entry);
    return found;
}

int rf_keeper_kill_children(const char *mark, bool *running) {
    pid_t self = getpid();
    int count = 0;
    DIR *processes = opendir("/proc");
    for (struct dirent *entry; processes && (entry = readdir(processes));) {
        pid_t pid = atoi(entry->d_name);
        struct rf_process process;
        if (pid <= 0 || !rf_process_read(pid, &process) || process.parent != self || (mark && !has_mark(pid, mark)))
            continue;
        kill(pid, SIGKILL);
        if (running) *running = *running || rf_keeper_is_running(pid);
        count++;
    }
    if (processes) closedir(processes);
    return count;
}

/* Reaps what has ended. True: no child is left. status: how 'child' ended, where it is among them. */
static bool reap(pid_t child, int *status, bool *ended) {
    for (;;) {
        int one;
        pid_t pid = waitpid(-1, &one, WNOHANG);
        if (pid < 0 && errno == EINTR) continue;
        if (pid <= 0) return pid < 0;
        if (pid != child) continue;
        *status = one;
        *ended = true;
    }
}

static void end_as(int status) __attribute__((noreturn));
static void end_as(int status) {
    if (WIFSIGNALED(status)) {
        sigset_t one;
        int number = WTERMSIG(status);
        prctl(PR_SET_DUMPABLE, 0); /* the child's core is enough */
        signal(number, SIG_DFL);
        sigemptyset(&one);
        sigaddset(&one, number);
        kill(getpid(), number);
        sigprocmask(SIG_UNBLOCK, &one, NULL);
    }
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

static void keep(pid_t child) {
    sigset_t awaited;
    int status = 0;
    bool ended = false, alone = false;
    close_descriptors();
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGCHLD);
    sigaddset(&awaited, SIGTERM);
    while (!ended) {
        int number = sigwaitinfo(&awaited, NULL);
        alone = reap(child, &status, &ended);
        if (number == SIGTERM) break;
    }
    struct rf_patience patience = rf_patience_of(RF_KEEPER_END_MS);
    /* What a process leaves becomes ours when that process is dead: look until there is none. */
    for (int64_t pause_ms = 1; !alone; pause_ms += pause_ms < 20) {
        bool running = false;
        rf_keeper_kill_children(NULL, &running);
        if (!rf_patience_lasts(&patience, pause_ms, running)) break;
        alone = reap(child, &status, &ended);
    }
    if (!alone) _exit(RF_KEEPER_STUCK);
    end_as(status);
}
