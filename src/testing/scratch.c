/* A folder for the files of a test, and sweeping the folders of processes that were killed.
 *
 * The folder's name says whose it is: rf-test-NAMESPACE-PID-START-XXXXXX, with the inode of the pid namespace and the
 * start time of the process as the kernel counts it, so that another process with the same pid is not taken for the
 * owner. It is removed when its owner exits. A process that is killed removes nothing; a runner does it, at its end.
 *
 * Must not remove anything else: only folders (no links) with such a name, of this user, whose owner was of this pid
 * namespace and is gone. */
#include "runner_impl.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "rf-test-"

struct owner {
    unsigned long long space, start;
    int pid;
};

/* When the process started; 0: there is none, or it cannot be seen. */
static unsigned long long start_of(int pid) {
    char path[64], text[1024];
    unsigned long long start = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) fclose(file);
    text[length] = 0;
    /* The second field is the name, in parentheses, and may hold anything; the start is the 22nd. */
    const char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    if (at) start = strtoull(at, NULL, 10);
    return start;
}

static bool identify(struct owner *self) {
    struct stat space;
    if (stat("/proc/self/ns/pid", &space) != 0) return false;
    *self = (struct owner){.space = space.st_ino, .pid = (int)getpid(), .start = start_of((int)getpid())};
    return self->start != 0;
}

static const char *base(void) {
    const char *folder = getenv("TMPDIR");
    return folder && folder[0] == '/' && strlen(folder) < 100 ? folder : "/tmp";
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *place) {
    (void)info, (void)kind, (void)place;
    return remove(path);
}

static void remove_tree(const char *path) {
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/* ---- this process's ---- */

static char folder[RF_TEST_FOLDER_BYTES];
static pid_t folder_owner; /* a forked child has the name too, and must not remove it */

static void remove_own(void) {
    if (folder[0] && getpid() == folder_owner) remove_tree(folder);
}

const char *rf_test_try_folder(void) {
    struct owner self = {0};
    if (folder[0]) return folder;
    identify(&self); /* without it the name has zeros and is never swept */
    snprintf(folder, sizeof folder, "%s/" PREFIX "%llu-%d-%llu-XXXXXX", base(), self.space, (int)getpid(),
             self.start);
    if (!mkdtemp(folder)) {
        folder[0] = 0;
        return NULL;
    }
    folder_owner = getpid();
    atexit(remove_own);
    return folder;
}

const char *rf_test_folder(void) {
    const char *path = rf_test_try_folder();
    if (!path) RF_FAIL("no folder for the test's files in %s: %s", base(), strerror(errno));
    return path;
}

/* ---- those of the dead ---- */

static bool read_name(const char *name, struct owner *owner) {
    int used = 0;
    return sscanf(name, PREFIX "%llu-%d-%llu-%n", &owner->space, &owner->pid, &owner->start, &used) == 3 &&
           used > 0 && strlen(name + used) == 6 && owner->pid > 0 && owner->start;
}

void rf_test_sweep_folders(void) {
    struct owner self, owner;
    DIR *entries = identify(&self) ? opendir(base()) : NULL;
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        char path[400];
        struct stat info;
        if (!read_name(entry->d_name, &owner) || owner.space != self.space) continue;
        if (start_of(owner.pid) == owner.start) continue;
        snprintf(path, sizeof path, "%s/%s", base(), entry->d_name);
        if (lstat(path, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid()) remove_tree(path);
    }
    if (entries) closedir(entries);
}
