/* Starting a worker and ending it; see worker.h.
 *
 * Must not block in waitpid: a process that hangs inside the kernel does not even end on SIGKILL, and the command
 * that killed it must go on. */
#include "cli.h"
#include "worker_impl.h"
#include "base/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* How long a worker has to exit by itself, with the driver's exit handlers, and how long the kernel has to end the
 * keeper. A start is the start of a program, on whatever the machine is busy with. */
enum { EXIT_MS = 5000, KILL_MS = 2000, LOOK_MS = 5, START_MS = 120000 };

extern char **environ;

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- starting ---- */

/* The environment, with the mark of a worker instead of one that is there already. The caller frees the array. */
static char **make_environment(char *mark) {
    size_t count = 0, kept = 0;
    while (environ[count]) count++;
    char **made = malloc((count + 2) * sizeof *made);
    for (size_t i = 0; made && i < count; i++)
        if (strncmp(environ[i], WORKER_MARK "=", sizeof WORKER_MARK) != 0) made[kept++] = environ[i];
    if (!made) return NULL;
    made[kept++] = mark;
    made[kept] = NULL;
    return made;
}

static int spawn_with(char *const *argv, char *const *environment, int end, pid_t *pid) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int error = posix_spawn_file_actions_init(&actions);
    if (error) return error;
    error = posix_spawnattr_init(&attributes);
    if (!error) {
        error = posix_spawn_file_actions_adddup2(&actions, end, WORKER_FD);
        if (!error) error = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
        if (!error) error = posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
        if (!error) error = posix_spawnattr_setpgroup(&attributes, 0);
        if (!error) error = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
        if (!error) error = posix_spawn(pid, "/proc/self/exe", &actions, &attributes, argv, environment);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    return error == EBADF ? EMFILE : error; /* RLIMIT_NOFILE is not above WORKER_FD */
}

static void make_mark(char mark[64]) {
    snprintf(mark, 64, WORKER_MARK "=%d", (int)getpid());
}

static int spawn(const char *const *arguments, int end, pid_t *pid) {
    char mark[64];
    size_t count = 0;
    while (arguments[count]) count++;
    const char **argv = malloc((count + 2) * sizeof *argv);
    make_mark(mark);
    char **environment = make_environment(mark);
    int error = ENOMEM;
    if (argv && environment) {
        argv[0] = "rocmforge";
        memcpy(argv + 1, arguments, (count + 1) * sizeof *argv);
        error = spawn_with((char *const *)(uintptr_t)argv, environment, end, pid);
    }
    free(environment);
    free(argv);
    return error;
}

/* The first thing on the channel is the worker's process id, or an errno below zero. Returns 0 or the errno. */
static int await_worker(int channel, pid_t *pid) {
    int32_t number = 0;
    int64_t deadline = now_ms() + START_MS;
    for (;;) {
        struct pollfd polled = {.fd = channel, .events = POLLIN};
        int64_t left = deadline - now_ms();
        if (left <= 0) return ETIMEDOUT;
        if (poll(&polled, 1, (int)left) <= 0) continue;
        ssize_t count = recv(channel, &number, sizeof number, MSG_WAITALL);
        if (count < 0 && errno == EINTR) continue;
        if (count != sizeof number) return ECHILD;
        if (number <= 0) return -number;
        *pid = number;
        return 0;
    }
}

rf_status cli_worker_start(const char *const *arguments, struct cli_worker *worker, char why[CLI_WHY_BYTES]) {
    int ends[2];
    char ignored[CLI_WHY_BYTES];
    *worker = (struct cli_worker){.channel = -1, .exit_code = -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        snprintf(why, CLI_WHY_BYTES, "no socket for the worker process: %s", strerror(errno));
        return RF_E_IO;
    }
    /* Whoever started this command may ignore SIGCHLD; then nobody would learn how workers end. */
    signal(SIGCHLD, SIG_DFL);
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* for clean_up */
    fflush(NULL);
    int error = spawn(arguments, ends[1], &worker->keeper);
    close(ends[1]);
    worker->channel = ends[0];
    if (!error) {
        error = await_worker(ends[0], &worker->pid);
        if (error) cli_worker_end(worker, true, ignored);
    } else {
        close(ends[0]);
        worker->channel = -1;
        worker->keeper = 0;
    }
    if (!error) return RF_OK;
    snprintf(why, CLI_WHY_BYTES, "the worker process could not start: %s",
             error == ECHILD ? "it ended at once" : strerror(error));
    return RF_E_IO;
}

/* ---- ending ---- */

bool cli_worker_lives(const struct cli_worker *worker) {
    siginfo_t info = {0};
    return worker->keeper > 0 && waitid(P_PID, (id_t)worker->keeper, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           !info.si_pid;
}

enum life { RUNNING, ENDED, UNKNOWN /* it was reaped by another wait */ };

static enum life look(pid_t child, int *wait_status) {
    for (;;) {
        pid_t ended = waitpid(child, wait_status, WNOHANG);
        if (ended < 0 && errno == EINTR) continue;
        return !ended ? RUNNING : ended == child ? ENDED : UNKNOWN;
    }
}

static enum life await_end(pid_t child, int64_t within_ms, int *wait_status) {
    int64_t deadline = now_ms() + within_ms;
    enum life life;
    while ((life = look(child, wait_status)) == RUNNING && now_ms() < deadline)
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    return life;
}

/* The same for a child that was told to end, or killed: while it or 'other' (0: nobody) only lacks a core to go on,
 * the time does not count. */
static enum life await_death(pid_t child, pid_t other, int64_t within_ms, int *wait_status) {
    struct rf_patience patience = rf_patience_of(within_ms);
    enum life life;
    while ((life = look(child, wait_status)) == RUNNING)
        if (!rf_patience_lasts(&patience, LOOK_MS,
                               rf_keeper_is_running(child) || (other > 0 && rf_keeper_is_running(other))))
            break;
    return life;
}

/* After the keeper was killed: the worker gets SIGKILL and becomes a child of this process, and so does what the
 * driver left. Whatever else this process has for children is not touched. False: the worker does not end. */
static bool clean_up(pid_t worker) {
    char mark[64];
    int status, left;
    make_mark(mark);
    /* What the worker started becomes ours at its end. */
    bool ended = worker <= 0 || await_death(worker, 0, RF_KEEPER_END_MS, &status) != RUNNING;
    struct rf_patience patience = rf_patience_of(RF_KEEPER_END_MS);
    for (bool running = false; (left = rf_keeper_kill_children(mark, &running)); running = false)
        if (!rf_patience_lasts(&patience, 2, running)) break;
    return ended && !left;
}

/* Why a worker ended that should not have; wait_status is the one of waitpid. */
static void explain_end(int wait_status, char why[CLI_WHY_BYTES]) {
    if (WIFSIGNALED(wait_status)) {
        const char *name = sigabbrev_np(WTERMSIG(wait_status));
        snprintf(why, CLI_WHY_BYTES, "the worker process died of SIG%s, most likely inside the driver",
                 name ? name : "?");
    } else {
        snprintf(why, CLI_WHY_BYTES, "the worker process ended with status %d, most likely inside the driver",
                 WEXITSTATUS(wait_status));
    }
}

bool cli_worker_end(struct cli_worker *worker, bool at_once, char why[CLI_WHY_BYTES]) {
    pid_t keeper = worker->keeper, pid = worker->pid;
    int status = 0;
    snprintf(why, CLI_WHY_BYTES, "the worker process was killed");
    if (keeper <= 0) return false;
    close(worker->channel); /* a worker that waits for its command notices that it is gone */
    *worker = (struct cli_worker){.channel = -1, .exit_code = -1};
    enum life life = await_end(keeper, at_once ? 0 : EXIT_MS, &status);
    if (life == RUNNING) {
        worker->killed = true;
        kill(keeper, SIGTERM); /* it kills everything, waits for that and ends */
        life = await_death(keeper, pid, RF_KEEPER_END_MS + KILL_MS, &status);
    }
    if (life == RUNNING) { /* it was stopped; its end is the worker's end */
        kill(keeper, SIGKILL);
        life = await_death(keeper, 0, KILL_MS, &status);
    }
    bool left = life == ENDED && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && !clean_up(pid);
    if (left || life == RUNNING || (life == ENDED && WIFEXITED(status) && WEXITSTATUS(status) == RF_KEEPER_STUCK)) {
        snprintf(why, CLI_WHY_BYTES,
                 "the worker process was killed, but does not end: it hangs inside the kernel, and may hold GPU "
                 "memory until the machine is restarted");
        worker->stuck = true;
        return false;
    }
    if (worker->killed) return false;
    if (life == UNKNOWN) {
        snprintf(why, CLI_WHY_BYTES, "the worker process ended, and how is not known");
        return false;
    }
    if (WIFEXITED(status)) worker->exit_code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) worker->exit_signal = WTERMSIG(status);
    explain_end(status, why);
    return worker->exit_code == CLI_DONE;
}
