/* The worker: this program again, as a process that may die of its GPU. A vendor's runtime can
 * abort the process or hang in a call that no deadline reaches; the command outlives it and
 * says what happened. */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST_ARGUMENTS 64
#define TICK_MS 10

extern char **environ;

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int start(const char *const *arguments, int report_end, pid_t *pid) {
    const char *argv[MOST_ARGUMENTS + 2] = {"rocmforge"};
    for (int i = 0; arguments[i] && i < MOST_ARGUMENTS; i++) argv[i + 1] = arguments[i];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (report_end >= 0) posix_spawn_file_actions_adddup2(&actions, report_end, CLI_REPORT_FD);
    int error = posix_spawn(pid, "/proc/self/exe", &actions, NULL, (char *const *)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

FILE *cli_worker_report(void) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody waits for a worker whose command is gone */
    if (fcntl(CLI_REPORT_FD, F_SETFD, FD_CLOEXEC) != 0) return NULL;
    return fdopen(CLI_REPORT_FD, "w");
}

rf_status cli_worker(const char *const *arguments, int64_t timeout_ms, char *report, size_t size, int *exit_code,
                     char why[256]) {
    int ends[2] = {-1, -1};
    size_t length = 0;
    pid_t pid;
    if (pipe2(ends, O_CLOEXEC) != 0 || fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) {
        snprintf(why, 256, "no pipe: %s", strerror(errno));
        return RF_E_IO;
    }
    fflush(NULL);
    int error = start(arguments, ends[1], &pid);
    close(ends[1]);
    if (error) {
        close(ends[0]);
        snprintf(why, 256, "the worker process could not start: %s", strerror(error));
        return RF_E_IO;
    }
    int64_t deadline = now_ms() + timeout_ms;
    int wait_status = 0;
    bool timed_out = false, open = true;
    for (;;) {
        pid_t ended = waitpid(pid, &wait_status, WNOHANG);
        char data[4096];
        ssize_t count;
        while (open && (count = read(ends[0], data, sizeof data)) != 0) {
            if (count < 0) break;
            for (ssize_t i = 0; i < count && report && length + 1 < size; i++) report[length++] = data[i];
        }
        if (ended == pid) break;
        if (!timed_out && now_ms() >= deadline) {
            timed_out = true;
            kill(pid, SIGKILL);
        }
        struct pollfd polled = {.fd = ends[0], .events = POLLIN};
        open = poll(&polled, 1, TICK_MS) <= 0 || (polled.revents & POLLIN);
        if (!open) nanosleep(&(struct timespec){0, TICK_MS * 1000000}, NULL); /* the pipe has ended, the worker not */
    }
    close(ends[0]);
    if (report && size) report[length] = 0;
    if (timed_out) {
        snprintf(why, 256, "the driver did not answer within %.1f s; the worker process was killed",
                 (double)timeout_ms / 1000);
        return RF_E_TIMEOUT;
    }
    if (WIFSIGNALED(wait_status)) {
        if (WTERMSIG(wait_status) == SIGPIPE) { /* whoever read its output had enough */
            *exit_code = CLI_FAILED;
            return RF_OK;
        }
        if (WTERMSIG(wait_status) == SIGINT) {
            snprintf(why, 256, "interrupted");
            return RF_E_CANCELLED;
        }
        const char *name = sigabbrev_np(WTERMSIG(wait_status));
        snprintf(why, 256, "the worker process died of SIG%s, most likely inside the driver", name ? name : "?");
        return RF_E_DEVICE_LOST;
    }
    *exit_code = WEXITSTATUS(wait_status);
    return RF_OK;
}
