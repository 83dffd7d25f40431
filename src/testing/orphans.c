/* Finds the processes that a test left behind.
 *
 * While a plan runs, this process is the reaper of its descendants: one whose parent ended becomes its child and is
 * found among its children. Which test it came from is known from its process group or, if it left that, from
 * RF_TEST_KEY in the environment it was started with; a runner inside a test extends the key, so what it leaves
 * behind belongs to that test. A process that matches neither is not ours to judge.
 *
 * Must not reap or kill a process that no test left behind: the surrounding program may have children. */
#include "runner_impl.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.h"

static int was_subreaper;

void rf_test_orphans_begin(void) {
    was_subreaper = 0;
    prctl(PR_GET_CHILD_SUBREAPER, &was_subreaper);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

void rf_test_orphans_end(void) {
    prctl(PR_SET_CHILD_SUBREAPER, was_subreaper);
}

void rf_test_orphans_key(char key[RF_TEST_KEY_BYTES]) {
    static unsigned long number;
    const char *above = getenv("RF_TEST_KEY");
    /* A runner nested too deep starts a new key: its processes are then found by their group alone. */
    if (!above || strlen(above) > RF_TEST_KEY_BYTES - 48) above = "";
    snprintf(key, RF_TEST_KEY_BYTES, "%.140s/%d.%lu", above, (int)getpid(), ++number);
}

static ssize_t read_small(const char *path, char *text, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    size_t length = 0;
    ssize_t count;
    while (length < size - 1 && (count = read(fd, text + length, size - 1 - length)) > 0) length += (size_t)count;
    close(fd);
    text[length] = 0;
    return (ssize_t)length;
}

/* Calls visit for each child of this process; false if the kernel does not list them. */
static bool each_listed(void (*visit)(void *user, pid_t pid), void *user) {
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks) return false;
    bool listed = false;
    for (struct dirent *entry; (entry = readdir(tasks));) {
        char path[64], text[16384];
        if (!isdigit((unsigned char)entry->d_name[0])) continue;
        snprintf(path, sizeof path, "/proc/self/task/%.20s/children", entry->d_name);
        if (read_small(path, text, sizeof text) < 0) continue;
        listed = true;
        char *end;
        for (char *at = text; *at; at = end) {
            long pid = strtol(at, &end, 10);
            if (end == at) break;
            if (pid > 0) visit(user, (pid_t)pid);
        }
    }
    closedir(tasks);
    return listed;
}

static void each_scanned(void (*visit)(void *user, pid_t pid), void *user) {
    DIR *processes = opendir("/proc");
    for (struct dirent *entry; processes && (entry = readdir(processes));) {
        pid_t pid = (pid_t)atoi(entry->d_name);
        struct rf_process process;
        if (pid > 0 && rf_process_read(pid, &process) && process.parent == getpid()) visit(user, pid);
    }
    if (processes) closedir(processes);
}

/* Whether it was started with this key, or one below it. */
static bool has_key(pid_t pid, const char *key) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    size_t size = (size_t)256 << 10;
    char *text = rf_test_grow(NULL, size);
    ssize_t length = read_small(path, text, size);
    bool found = false;
    static const char name[] = "RF_TEST_KEY=";
    for (ssize_t at = 0; at < length && !found; at += (ssize_t)strlen(text + at) + 1) {
        if (strncmp(text + at, name, sizeof name - 1) != 0) continue;
        const char *value = text + at + sizeof name - 1;
        size_t own = strlen(key);
        found = strncmp(value, key, own) == 0 && (value[own] == 0 || value[own] == '/');
    }
    free(text);
    return found;
}

bool rf_test_process_works(pid_t pid) {
    return rf_process_has_state(pid, "RD");
}

struct search {
    const struct rf_test_child *child;
    bool end;
    bool again; /* one has ended: what it left became our child after the list was read */
    bool dying; /* one is ending, or has threads that have not ended: what it left stays their child until then */
    bool works; /* one that was found does not sleep: it may be about to end */
    int count;
    char *text;
    size_t size;
};

static void judge_one(void *user, pid_t pid) {
    struct search *search = user;
    const struct rf_test_child *child = search->child;
    if (pid == child->pid) return;
    struct rf_process process;
    bool ours =
        getpgid(pid) == child->pid || has_key(pid, child->key); /* a dead process has no environment to read */
    bool there = rf_process_read(pid, &process), dead = there && (process.state == 'Z' || process.state == 'X');
    search->again |= !there || dead;
    search->dying |= !ours && there && !dead && process.ending;
    siginfo_t info = {0};
    if (dead && (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) || !info.si_pid)) search->dying = true;
    if (ours && dead) waitpid(pid, NULL, WNOHANG);
    if (!ours || !there || dead) return;
    if (search->end) kill(pid, SIGKILL);
    search->works |= rf_test_process_works(pid);
    size_t used = strlen(search->text);
    search->count++;
    if (search->count <= 4)
        snprintf(search->text + used, search->size - used, "%s%d (%s)", used ? ", " : "", (int)pid, process.name);
    else if (search->count == 5)
        snprintf(search->text + used, search->size - used, " and more");
}

int rf_test_orphans_of(const struct rf_test_child *child, bool end, char *text, size_t size, bool *works) {
    enum { LOOKS_MAX = 4 };
    struct search search = {.child = child, .end = end, .text = text, .size = size, .again = true};
    text[0] = 0;
    for (int look = 0; look < LOOKS_MAX && search.again && !search.count; look++) {
        search.again = search.dying = false;
        if (!each_listed(judge_one, &search)) each_scanned(judge_one, &search);
    }
    *works = search.works || search.dying;
    return !search.count && search.dying ? -1 : search.count;
}
