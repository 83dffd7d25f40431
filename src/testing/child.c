/* A process that may do anything: its record, its output, its deadline.
 *
 * Invariants: never blocks on a child; memory for what a child says is bounded; when a child
 * ends or its time is up its whole process group is killed before it is reaped, while its pid
 * cannot belong to anybody else. Must not wait for the end of a pipe: a process that the
 * child left behind may hold it open. */
#include "testing_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define HEAD_BYTES ((size_t)64 << 10)
#define TAIL_BYTES ((size_t)64 << 10)
#define RECORD_BYTES ((size_t)1 << 20)
#define TICK_MS 20 /* where the kernel gives no pid descriptor */

extern char **environ;

/* A pipe whose ends are out of the way of the numbers that a child's files get. */
static int open_pipe(int *read_end, int *write_end) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return errno;
    *read_end = fcntl(ends[0], F_DUPFD_CLOEXEC, RF_TEST_RECORD_FD + 1);
    *write_end = fcntl(ends[1], F_DUPFD_CLOEXEC, RF_TEST_RECORD_FD + 1);
    int error = *read_end < 0 || *write_end < 0 ? errno : 0;
    close(ends[0]);
    close(ends[1]);
    if (!error && fcntl(*read_end, F_SETFL, O_NONBLOCK) != 0) error = errno;
    return error;
}

static void close_fd(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static int spawn(struct rf_test_child *child, char *const argv[], int record_fd, int output_fd) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, usual;
    sigemptyset(&none);
    sigemptyset(&usual);
    sigaddset(&usual, SIGINT);
    sigaddset(&usual, SIGTERM);
    sigaddset(&usual, SIGPIPE);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, output_fd, 1);
    posix_spawn_file_actions_adddup2(&actions, output_fd, 2);
    posix_spawn_file_actions_adddup2(&actions, record_fd, RF_TEST_RECORD_FD);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &usual);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int error = posix_spawn(&child->pid, argv[0], &actions, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

int rf_test_child_start(struct rf_test_child *child, char *const argv[], int64_t timeout_ns) {
    *child = (struct rf_test_child){.pid = -1, .pid_fd = -1, .record_fd = -1, .output_fd = -1};
    int record_end = -1, output_end = -1;
    int error = open_pipe(&child->record_fd, &record_end);
    if (!error) error = open_pipe(&child->output_fd, &output_end);
    child->started_ns = rf_test_now_ns();
    child->deadline_ns = child->started_ns + timeout_ns;
    if (!error) error = spawn(child, argv, record_end, output_end);
    close_fd(&record_end);
    close_fd(&output_end);
    if (error) {
        child->pid = -1;
        rf_test_child_finish(child);
        return error;
    }
    child->pid_fd = (int)syscall(SYS_pidfd_open, child->pid, 0);
    return 0;
}

static void add_record(struct rf_test_child *child, const char *data, size_t length) {
    /* What lies beyond the bound is read and dropped; the verdict is then missing. */
    if (child->record_length + length > RECORD_BYTES) return;
    if (child->record_length + length + 1 > child->record_capacity) {
        child->record_capacity = (child->record_length + length + 1) * 2;
        child->record = rf_test_grow(child->record, child->record_capacity);
    }
    memcpy(child->record + child->record_length, data, length);
    child->record_length += length;
    child->record[child->record_length] = 0;
}

void rf_test_capture_add(struct rf_test_capture *capture, const char *data, size_t length) {
    capture->total += length;
    if (!capture->head) capture->head = rf_test_grow(NULL, HEAD_BYTES);
    size_t first = length < HEAD_BYTES - capture->head_length ? length : HEAD_BYTES - capture->head_length;
    memcpy(capture->head + capture->head_length, data, first);
    capture->head_length += first;
    if (first < length && !capture->tail) capture->tail = rf_test_grow(NULL, TAIL_BYTES);
    for (size_t i = first; i < length; i++) {
        capture->tail[capture->tail_at] = data[i];
        capture->tail_at = (capture->tail_at + 1) % TAIL_BYTES;
        if (capture->tail_length < TAIL_BYTES) capture->tail_length++;
    }
}

void rf_test_capture_text(const struct rf_test_capture *capture, char **text, size_t *length, size_t *gap_at,
                          uint64_t *left_out) {
    *length = capture->head_length + capture->tail_length;
    *gap_at = capture->head_length;
    *left_out = capture->total - *length;
    *text = rf_test_grow(NULL, *length + 1);
    if (capture->head_length) memcpy(*text, capture->head, capture->head_length);
    size_t oldest = capture->tail_length < TAIL_BYTES ? 0 : capture->tail_at;
    for (size_t i = 0; i < capture->tail_length; i++)
        (*text)[capture->head_length + i] = capture->tail[(oldest + i) % TAIL_BYTES];
    (*text)[*length] = 0;
}

/* Reads what is there; a bounded number of times, since a child may write without end. */
static void drain(struct rf_test_child *child, int *fd, bool is_record) {
    char data[16384];
    for (int round = 0; *fd >= 0 && round < 64; round++) {
        ssize_t count = read(*fd, data, sizeof data);
        if (count > 0 && is_record)
            add_record(child, data, (size_t)count);
        else if (count > 0)
            rf_test_capture_add(&child->output, data, (size_t)count);
        else if (count == 0)
            close_fd(fd);
        else if (errno != EINTR)
            return;
    }
}

static void look_after(struct rf_test_child *child) {
    if (child->ended) return;
    drain(child, &child->record_fd, true);
    drain(child, &child->output_fd, false);
    if (!child->timed_out && rf_test_now_ns() >= child->deadline_ns) {
        child->timed_out = true;
        kill(-child->pid, SIGKILL);
    }
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    child->ended_ns = rf_test_now_ns();
    kill(-child->pid, SIGKILL); /* what it left behind; itself it is dead but not yet reaped */
    drain(child, &child->record_fd, true);
    drain(child, &child->output_fd, false);
    while (waitpid(child->pid, &child->wait_status, 0) < 0 && errno == EINTR) {
    }
    child->ended = true;
}

void rf_test_children_serve(struct rf_test_child *const *children, size_t count, int64_t wait_ns) {
    struct pollfd *polled = rf_test_grow(NULL, 3 * count * sizeof *polled);
    nfds_t polled_count = 0;
    int64_t until = rf_test_now_ns() + wait_ns;
    bool tick = false;
    for (size_t i = 0; i < count; i++) {
        const struct rf_test_child *child = children[i];
        if (child->ended) continue;
        if (child->deadline_ns < until && !child->timed_out) until = child->deadline_ns;
        tick |= child->pid_fd < 0;
        int fds[] = {child->pid_fd, child->record_fd, child->output_fd};
        for (int f = 0; f < 3; f++)
            if (fds[f] >= 0) polled[polled_count++] = (struct pollfd){.fd = fds[f], .events = POLLIN};
    }
    int64_t left_ms = (until - rf_test_now_ns() + 999999) / 1000000;
    if (left_ms < 0) left_ms = 0;
    if (tick && left_ms > TICK_MS) left_ms = TICK_MS;
    poll(polled, polled_count, left_ms > 1000 ? 1000 : (int)left_ms);
    free(polled);
    for (size_t i = 0; i < count; i++) look_after(children[i]);
}

void rf_test_child_finish(struct rf_test_child *child) {
    if (child->pid > 0 && !child->ended) {
        kill(-child->pid, SIGKILL);
        while (waitpid(child->pid, &child->wait_status, 0) < 0 && errno == EINTR) {
        }
    }
    close_fd(&child->pid_fd);
    close_fd(&child->record_fd);
    close_fd(&child->output_fd);
    free(child->record);
    free(child->output.head);
    free(child->output.tail);
    *child = (struct rf_test_child){.pid = -1, .pid_fd = -1, .record_fd = -1, .output_fd = -1, .ended = true};
}
