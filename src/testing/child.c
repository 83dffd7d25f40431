/* A child process that may do anything: its record, its output, its deadline, and what it leaves behind.
 *
 * Invariants: this code never blocks on a child, except that rf_test_child_finish waits a bounded time for the death
 * of what it killed; the memory for what a child writes is bounded; past its deadline a child is asked to end
 * (SIGTERM), then killed; when it has ended, its whole process group and every descendant that can be found are
 * killed, and are dead or named as not dead, before it is reaped, while its pid cannot belong to another process. The
 * bounds and the order of asking, killing and reaping are asserted. Must not wait for the end of a pipe: a process
 * that the child left behind may hold it open.
 *
 * A busy machine must not change a verdict. So a process that sleeps is given a second to end, and one that works (it
 * runs, or waits for a processor or a disk) is given much longer. */
#include "runner_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HEAD_BYTES ((size_t)64 << 10)
#define TAIL_BYTES ((size_t)64 << 10)
#define RECORD_BYTES ((size_t)1 << 20)
#define TICK_MS 20                      /* if the kernel provides no pid descriptor, or a child is overdue */
#define LINGER_TICK_MS 5                /* while the child's own children get time to end */
#define LINGER_NS INT64_C(1000000000)   /* for this long, if they sleep */
#define ASK_NS INT64_C(1000000000)      /* between SIGTERM and SIGKILL, if the child sleeps */
#define WORKING_NS INT64_C(20000000000) /* both, for one that works */
#define DEATH_NS INT64_C(20000000000)   /* between SIGKILL and giving up on a death */

extern char **environ;

/* A pipe whose ends do not collide with the descriptor numbers that a child gets. */
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

static bool same_name(const char *variable, const char *other) {
    size_t length = strcspn(variable, "=");
    return strncmp(variable, other, length) == 0 && other[length] == '=';
}

/* Our environment, with the child's variables replacing ours; only the list is owned. */
static const char **make_environment(const char *const *more, const char *key) {
    size_t ours = 0, count = 0, added = 0;
    while (environ[ours]) ours++;
    while (more && more[added]) added++;
    const char **list = rf_test_grow(NULL, (ours + added + 2) * sizeof *list);
    for (size_t i = 0; i < ours; i++) {
        bool replaced = same_name(key, environ[i]);
        for (size_t m = 0; m < added && !replaced; m++) replaced = same_name(more[m], environ[i]);
        if (!replaced) list[count++] = environ[i];
    }
    for (size_t m = 0; m < added; m++) list[count++] = more[m];
    list[count++] = key;
    list[count] = NULL;
    return list;
}

static int start_process(struct rf_test_child *child, const struct rf_test_spawn *spawn, int record_fd,
                         int output_fd) {
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
    if (!spawn->is_command) {
        posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
        posix_spawn_file_actions_adddup2(&actions, output_fd, 1);
        posix_spawn_file_actions_adddup2(&actions, output_fd, 2);
        posix_spawn_file_actions_adddup2(&actions, record_fd, RF_TEST_RECORD_FD);
    }
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &usual);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    char key[RF_TEST_KEY_BYTES + 16];
    snprintf(key, sizeof key, "RF_TEST_KEY=%s", child->key);
    const char **environment = make_environment(spawn->environment, key);
    int error = (spawn->is_command ? posix_spawnp : posix_spawn)(&child->pid, spawn->argv[0], &actions, &attributes,
                                                                 spawn->argv, (char *const *)environment);
    free(environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

int rf_test_child_start(struct rf_test_child *child, const struct rf_test_spawn *spawn) {
    *child = (struct rf_test_child){.pid = -1, .pid_fd = -1, .record_fd = -1, .output_fd = -1};
    child->record_limit = spawn->record_limit ? spawn->record_limit : RECORD_BYTES;
    child->on_output = spawn->on_output;
    child->user = spawn->user;
    rf_test_orphans_key(child->key);
    int record_end = -1, output_end = -1, error = 0;
    if (!spawn->is_command) error = open_pipe(&child->record_fd, &record_end);
    if (!error && !spawn->is_command) error = open_pipe(&child->output_fd, &output_end);
    child->started_ns = rf_test_now_ns();
    child->deadline_ns = child->started_ns + spawn->timeout_ns;
    if (!error) error = start_process(child, spawn, record_end, output_end);
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
    /* What exceeds the bound is read and dropped; the verdict is then missing. */
    if (child->record_length + length > child->record_limit) return;
    if (child->record_length + length + 1 > child->record_capacity) {
        child->record_capacity = (child->record_length + length + 1) * 2;
        child->record = rf_test_grow(child->record, child->record_capacity);
    }
    memcpy(child->record + child->record_length, data, length);
    child->record_length += length;
    rf_assert(child->record_length <= child->record_limit && child->record_length < child->record_capacity);
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
    rf_assert(capture->head_length <= HEAD_BYTES && capture->tail_length <= TAIL_BYTES);
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

/* Reads what has arrived; a bounded number of times, because a child may write without end. */
static void drain(struct rf_test_child *child, int *fd, bool is_record) {
    char data[16384];
    for (int round = 0; *fd >= 0 && round < 64; round++) {
        ssize_t count = read(*fd, data, sizeof data);
        if (count > 0 && is_record)
            add_record(child, data, (size_t)count);
        else if (count > 0) {
            rf_test_capture_add(&child->output, data, (size_t)count);
            if (child->on_output) child->on_output(child->user, data, (size_t)count);
        } else if (count == 0)
            close_fd(fd);
        else if (errno != EINTR)
            return;
    }
}

/* Past the deadline: SIGTERM, then SIGKILL. */
static void press(struct rf_test_child *child, int64_t now) {
    rf_assert(child->pid > 1 && !child->leader_ended && (!child->killed || child->timed_out));
    if (!child->timed_out && now >= child->deadline_ns) {
        child->timed_out = true;
        child->asked_ns = now;
        kill(-child->pid, SIGTERM);
    } else if (child->timed_out && !child->killed && now >= child->asked_ns + ASK_NS &&
               (now >= child->asked_ns + WORKING_NS || !rf_test_process_works(child->pid))) {
        child->killed = true;
        kill(-child->pid, SIGKILL);
    }
}

/* The child is dead but not yet reaped, so its pid is still its own. Processes that it left behind may be about to
 * end by themselves; after a while they are killed. True: they are dead, or will not die. */
static bool end_what_is_left(struct rf_test_child *child, int64_t now) {
    char left[sizeof child->left_behind];
    bool works;
    int count = rf_test_orphans_of(child, child->left_killed_ns != 0, left, sizeof left, &works);
    if (!count) return true;
    if (!child->left_killed_ns) {
        if (!child->timed_out && now < child->ended_ns + (works ? WORKING_NS : LINGER_NS)) return false;
        if (count < 0) return true;
        memcpy(child->left_behind, left, sizeof left);
        child->left_killed_ns = now;
        rf_test_orphans_of(child, true, left, sizeof left, &works);
        return false;
    }
    if (now < child->left_killed_ns + DEATH_NS) return false;
    if (count > 0) memcpy(child->undead, left, sizeof left);
    return true;
}

void rf_test_child_describe_left(const struct rf_test_child *child, char *text, size_t size) {
    if (child->undead[0])
        snprintf(text, size, "left a process behind: %s; it was killed, but %s had not ended %d s later",
                 child->left_behind, child->undead, (int)(DEATH_NS / 1000000000));
    else
        snprintf(text, size, "left a process behind: %s; it was killed", child->left_behind);
}

static void look_after(struct rf_test_child *child) {
    if (child->ended) return;
    drain(child, &child->record_fd, true);
    drain(child, &child->output_fd, false);
    int64_t now = rf_test_now_ns();
    if (!child->leader_ended) {
        press(child, now);
        siginfo_t info = {0};
        if (waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
        child->leader_ended = true;
        child->ended_ns = now;
    }
    if (!end_what_is_left(child, now)) return;
    rf_assert(child->leader_ended && child->pid > 1); /* not reaped: the pid is its own */
    kill(-child->pid, SIGKILL);
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
    bool tick = false, linger = false;
    for (size_t i = 0; i < count; i++) {
        const struct rf_test_child *child = children[i];
        if (child->ended) continue;
        int64_t next = child->timed_out ? child->asked_ns + ASK_NS : child->deadline_ns;
        bool overdue = child->timed_out && rf_test_now_ns() >= next; /* it was asked to end, and works */
        if (next < until && !child->killed && !child->leader_ended && !overdue) until = next;
        tick |= child->pid_fd < 0 || overdue;
        linger |= child->leader_ended;
        /* The pid descriptor of an ended child stays readable and would cut every wait short. */
        int fds[] = {child->leader_ended ? -1 : child->pid_fd, child->record_fd, child->output_fd};
        for (int f = 0; f < 3; f++)
            if (fds[f] >= 0) polled[polled_count++] = (struct pollfd){.fd = fds[f], .events = POLLIN};
    }
    int64_t left_ms = (until - rf_test_now_ns() + 999999) / 1000000;
    if (left_ms < 0) left_ms = 0;
    if (tick && left_ms > TICK_MS) left_ms = TICK_MS;
    if (linger && left_ms > LINGER_TICK_MS) left_ms = LINGER_TICK_MS;
    poll(polled, polled_count, left_ms > 1000 ? 1000 : (int)left_ms);
    free(polled);
    for (size_t i = 0; i < count; i++) look_after(children[i]);
}

void rf_test_child_finish(struct rf_test_child *child) {
    if (child->pid > 0 && !child->ended) {
        char left[160];
        bool works;
        kill(-child->pid, SIGKILL);
        for (int64_t until = rf_test_now_ns() + DEATH_NS; rf_test_now_ns() < until;) {
            siginfo_t info = {0};
            bool dead = !waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) && info.si_pid;
            if (!rf_test_orphans_of(child, true, left, sizeof left, &works) && dead) break;
            nanosleep(&(struct timespec){0, LINGER_TICK_MS * 1000000}, NULL);
        }
        waitpid(child->pid, &child->wait_status, WNOHANG);
    }
    close_fd(&child->pid_fd);
    close_fd(&child->record_fd);
    close_fd(&child->output_fd);
    free(child->record);
    free(child->output.head);
    free(child->output.tail);
    *child = (struct rf_test_child){.pid = -1, .pid_fd = -1, .record_fd = -1, .output_fd = -1, .ended = true};
}
