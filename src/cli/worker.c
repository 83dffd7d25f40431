/* The worker: this program again, as a process that its GPU may take down. A vendor's runtime can abort the process,
 * or hang in a call that no deadline reaches; the command survives and says what happened.
 *
 * Must not block in waitpid: a process that hangs inside the kernel does not even end on SIGKILL, and the command
 * that killed it must go on. */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TICK_MS 10
#define END_MS 2000

extern char **environ;

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* A worker with a channel talks through that alone: it reads no input, what it or a driver prints goes to standard
 * error, and Ctrl-C, which the terminal sends to all processes, is left to its command. */
static int start(const char *const *arguments, int end, bool with_channel, pid_t *pid) {
    size_t count = 0;
    while (arguments[count]) count++;
    const char **argv = malloc((count + 2) * sizeof *argv);
    if (!argv) return ENOMEM;
    argv[0] = "rocmforge";
    memcpy(argv + 1, arguments, (count + 1) * sizeof *argv);
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t blocked;
    int error = posix_spawn_file_actions_init(&actions);
    if (error) {
        free(argv);
        return error;
    }
    error = posix_spawnattr_init(&attributes);
    if (!error) error = posix_spawn_file_actions_adddup2(&actions, end, CLI_REPORT_FD);
    if (!error && with_channel) {
        pthread_sigmask(SIG_SETMASK, NULL, &blocked);
        sigaddset(&blocked, SIGINT);
        posix_spawnattr_setsigmask(&attributes, &blocked);
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
        error = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
        if (!error) error = posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    }
    if (!error) error = posix_spawn(pid, "/proc/self/exe", &actions, &attributes, (char *const *)argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    free(argv);
    return error == EBADF ? EMFILE : error; /* RLIMIT_NOFILE is not above CLI_REPORT_FD */
}

FILE *cli_worker_report(void) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a worker must not outlive its command */
    if (fcntl(CLI_REPORT_FD, F_SETFD, FD_CLOEXEC) != 0) return NULL;
    return fdopen(CLI_REPORT_FD, "w");
}

/* Why a worker ended that should not have; wait_status is the one of waitpid. */
static void explain_end(int wait_status, char why[256]) {
    if (WIFSIGNALED(wait_status)) {
        const char *name = sigabbrev_np(WTERMSIG(wait_status));
        snprintf(why, 256, "the worker process died of SIG%s, most likely inside the driver", name ? name : "?");
    } else {
        snprintf(why, 256, "the worker process ended with status %d, most likely inside the driver",
                 WEXITSTATUS(wait_status));
    }
}

rf_status cli_worker_run(const char *const *arguments, int64_t timeout_ms, char *report, size_t size, int *exit_code,
                         char why[256]) {
    int ends[2] = {-1, -1};
    size_t length = 0;
    pid_t pid;
    if (pipe2(ends, O_CLOEXEC) != 0 || fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) {
        snprintf(why, 256, "no pipe: %s", strerror(errno));
        return RF_E_IO;
    }
    fflush(NULL);
    int error = start(arguments, ends[1], false, &pid);
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
        if (!open)
            nanosleep(&(struct timespec){0, TICK_MS * 1000000},
                      NULL); /* the worker closed the pipe but has not ended */
    }
    close(ends[0]);
    if (report && size) report[length] = 0;
    if (timed_out) {
        snprintf(why, 256, "the driver did not answer within %.1f s; the worker process was killed",
                 (double)timeout_ms / 1000);
        return RF_E_TIMEOUT;
    }
    if (WIFSIGNALED(wait_status)) {
        if (WTERMSIG(wait_status) == SIGPIPE) { /* the reader of its output closed the pipe */
            cli_output_unread();
            *exit_code = CLI_FAILED;
            return RF_OK;
        }
        if (WTERMSIG(wait_status) == SIGINT) {
            snprintf(why, 256, "interrupted");
            return RF_E_CANCELLED;
        }
        explain_end(wait_status, why);
        return RF_E_DEVICE_LOST;
    }
    *exit_code = WEXITSTATUS(wait_status);
    return RF_OK;
}

/* ---- with a channel ---- */

rf_status cli_worker_start(const char *const *arguments, struct cli_worker *worker, char why[256]) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        snprintf(why, 256, "no socket for the worker process: %s", strerror(errno));
        return RF_E_IO;
    }
    fflush(NULL);
    int error = start(arguments, ends[1], true, &worker->pid);
    close(ends[1]);
    if (error) {
        close(ends[0]);
        snprintf(why, 256, "the worker process could not start: %s", strerror(error));
        return RF_E_IO;
    }
    worker->channel = ends[0];
    return RF_OK;
}

bool cli_worker_end(struct cli_worker *worker, bool at_once, char why[256]) {
    int64_t deadline = now_ms() + END_MS;
    bool clean = false, known = false, killed = false;
    int wait_status;
    snprintf(why, 256, "the worker process was killed");
    if (worker->pid <= 0) return false;
    close(worker->channel); /* a worker that waits for its command notices that it is gone */
    while (!known) {
        pid_t ended = waitpid(worker->pid, &wait_status, WNOHANG);
        if (ended < 0 && errno == EINTR) continue;
        known = ended == worker->pid;
        if (known || ended < 0) break; /* below zero: it was reaped by another wait */
        if (at_once || now_ms() >= deadline) {
            if (killed) break; /* it hangs inside the kernel, and ends when the kernel lets it */
            kill(worker->pid, SIGKILL);
            killed = true;
            at_once = false;
            deadline = now_ms() + END_MS;
        }
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    }
    *worker = (struct cli_worker){.channel = -1, .exit_code = -1};
    if (known && !killed) {
        if (WIFEXITED(wait_status)) worker->exit_code = WEXITSTATUS(wait_status);
        clean = worker->exit_code == CLI_DONE;
        explain_end(wait_status, why);
    }
    return clean;
}

int cli_worker_channel(void) {
    int type = 0;
    socklen_t size = sizeof type;
    if (getsockopt(CLI_REPORT_FD, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM) return -1;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int channel = fcntl(CLI_REPORT_FD, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    close(CLI_REPORT_FD);
    return channel;
}
