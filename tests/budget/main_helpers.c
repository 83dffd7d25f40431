/* See helpers.h. */
#include "helpers.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

struct fake_gpu *fake_gpu_map(const char *path, bool create) {
    int fd = open(path, O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0), 0600);
    if (fd < 0) return NULL;
    if (create && ftruncate(fd, sizeof(struct fake_gpu)) < 0) {
        close(fd);
        return NULL;
    }
    void *map = mmap(NULL, sizeof(struct fake_gpu), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED) return NULL;
    if (create) atomic_store(&((struct fake_gpu *)map)->total, GPU_TOTAL);
    return map;
}

rf_status fake_gpu_free(void *user, uint64_t *free_bytes) {
    struct fake_gpu *gpu = user;
    uint64_t left = rf_sub_saturate(atomic_load(&gpu->total), atomic_load(&gpu->desktop));
    uint32_t users = RF_MIN(atomic_load(&gpu->users), GPU_USERS);
    for (uint32_t i = 0; i < users; i++) left = rf_sub_saturate(left, atomic_load(&gpu->used[i]));
    *free_bytes = left;
    return RF_OK;
}

void make_folder(char *path, size_t size) {
    RF_ASSERT(snprintf(path, size, "%s/b-XXXXXX", rf_test_folder()) < (int)size);
    RF_ASSERT(mkdtemp(path) != NULL);
}

static int remove_one(const char *path, const struct stat *file, int kind, struct FTW *where) {
    (void)file, (void)kind, (void)where;
    return remove(path);
}

void remove_folder(const char *path) {
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void write_file(const char *folder, const char *name, const char *text) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (char *at = path + strlen(folder) + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = 0;
        mkdir(path, 0700);
    }
    FILE *file = fopen(path, "w");
    RF_ASSERT(file != NULL);
    RF_ASSERT(fputs(text, file) >= 0);
    RF_ASSERT(fclose(file) == 0);
}

pid_t spawn_self(const char *const *arguments, int in, int out, int leash) {
    pid_t pid = -1;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (in >= 0) posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    if (out >= 0) posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    if (leash >= 0) posix_spawn_file_actions_adddup2(&actions, leash, LEASH_FD);
    int error = posix_spawn(&pid, "/proc/self/exe", &actions, NULL, (char *const *)(uintptr_t)arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    return error ? -1 : pid;
}

void lease_where(const char *where, struct rf_lease_params *params) {
    if (where[0] == '@') {
        params->root = where + 1;
        params->uuid = strrchr(where, '/') + 1;
    } else {
        params->dir = where;
        params->uuid = TEST_UUID;
    }
}

void puppet_start(struct puppet *puppet, const char *where, const char *gpu, int leash) {
    int to[2], from[2];
    RF_ASSERT(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0);
    const char *arguments[] = {"test_budget", "--puppet", where, gpu, NULL};
    puppet->pid = spawn_self(arguments, to[0], from[1], leash);
    RF_ASSERT(puppet->pid > 0);
    close(to[0]);
    close(from[1]);
    puppet->to = fdopen(to[1], "w");
    puppet->from = fdopen(from[0], "r");
    RF_ASSERT(puppet->to && puppet->from);
}

void puppet_tell(struct puppet *puppet, const char *command) {
    RF_ASSERT(fprintf(puppet->to, "%s\n", command) > 0 && fflush(puppet->to) == 0);
}

const char *puppet_ask(struct puppet *puppet, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vfprintf(puppet->to, format, args);
    va_end(args);
    fputc('\n', puppet->to);
    RF_ASSERT(fflush(puppet->to) == 0);
    return puppet_answer(puppet);
}

const char *puppet_answer(struct puppet *puppet) {
    static char reply[2048];
    struct pollfd wait = {.fd = fileno(puppet->from), .events = POLLIN};
    RF_ASSERT(poll(&wait, 1, 100000) == 1);
    RF_ASSERT(fgets(reply, sizeof reply, puppet->from) != NULL);
    reply[strcspn(reply, "\n")] = 0;
    return reply;
}

uint64_t number(const char *answer, const char *name) {
    char wanted[64];
    snprintf(wanted, sizeof wanted, " %s=", name);
    const char *at = strstr(answer, wanted);
    if (!at) RF_FAIL("no %s in: %s", name, answer);
    return strtoull(at + strlen(wanted), NULL, 10);
}

static void reap(struct puppet *puppet) {
    fclose(puppet->to);
    RF_ASSERT(waitpid(puppet->pid, NULL, 0) == puppet->pid);
    fclose(puppet->from);
    memset(puppet, 0, sizeof *puppet);
}

void puppet_kill(struct puppet *puppet) {
    kill(puppet->pid, SIGKILL);
    reap(puppet);
}

void puppet_end(struct puppet *puppet) {
    fputs("leave\n", puppet->to);
    reap(puppet);
}

static bool count(void *user, const struct rf_lease_entry *entry) {
    struct survey *found = user;
    found->leases++;
    found->parts += entry->part;
    found->mine += entry->mine;
    found->held += entry->held_bytes;
    if (!entry->part) found->root_promised += entry->promised_bytes;
    return true;
}

struct survey survey(const char *where) {
    struct rf_lease_params place = {.total_bytes = UINT64_C(1) << 40};
    if (where[0] != '@') place.total_bytes = GPU_TOTAL;
    lease_where(where, &place);
    struct survey found = {0};
    rf_status status;
    while ((status = rf_lease_survey(&place, count, &found)) == RF_E_BUSY) { /* a crowd; nothing was visited */
    }
    RF_ASSERT_OK(status);
    return found;
}
