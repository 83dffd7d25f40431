/* See descriptors.h. Where one of 0 to 2 is closed, it is held by /dev/null during the open, so that the file gets a
 * higher number at once. Moving the file afterwards would not do: closing any descriptor of a lease file drops the
 * record locks of the process on it, and another thread could print into the file meanwhile. Only if another thread
 * closes one of the three between the two steps is the file moved. */
#include "base/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { STANDARD_FDS = 3 };

static bool is_closed(int fd) {
    return fcntl(fd, F_GETFD) < 0 && errno == EBADF;
}

/* A descriptor that can be neither read as input nor written as output. Where there is no /dev/null, as in a bare
 * chroot, a path that is not opened for reading or writing serves. */
static int open_nothing(int for_fd, int flags) {
    int fd = open("/dev/null", (for_fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) | flags);
    return fd >= 0 ? fd : open("/", O_PATH | O_DIRECTORY | flags);
}

bool rf_reserve_standard_fds(void) {
    for (int fd = 0; fd < STANDARD_FDS; fd++) {
        if (!is_closed(fd)) continue;
        int opened = open_nothing(fd, 0);
        if (opened < 0) return false;
        if (opened != fd) close(opened); /* another thread took it, which reserves it too */
    }
    return true;
}

void rf_hold_standard_fds(struct rf_held_fds *held) {
    held->count = 0;
    for (int fd = 0; fd < STANDARD_FDS; fd++) {
        if (!is_closed(fd)) continue;
        int opened = open_nothing(fd, O_CLOEXEC);
        if (opened >= 0) held->fds[held->count++] = opened;
    }
}

void rf_release_standard_fds(const struct rf_held_fds *held) {
    int error = errno;
    for (int i = 0; i < held->count; i++) close(held->fds[i]);
    errno = error;
}

static int move_up(int fd) {
    if (fd < 0 || fd >= STANDARD_FDS) return fd;
    int on_exec = fcntl(fd, F_GETFD), error;
    int moved = fcntl(fd, on_exec & FD_CLOEXEC ? F_DUPFD_CLOEXEC : F_DUPFD, STANDARD_FDS);
    error = errno;
    close(fd);
    errno = error;
    return moved;
}

int rf_open(const char *path, int flags, mode_t mode) {
    return rf_openat(AT_FDCWD, path, flags, mode);
}

int rf_openat(int folder, const char *path, int flags, mode_t mode) {
    struct rf_held_fds held;
    rf_hold_standard_fds(&held);
    int fd = move_up(openat(folder, path, flags, mode));
    rf_release_standard_fds(&held);
    return fd;
}

int rf_pipe(int ends[2], int flags) {
    struct rf_held_fds held;
    rf_hold_standard_fds(&held);
    int error = pipe2(ends, flags);
    for (int i = 0; !error && i < 2; i++) ends[i] = move_up(ends[i]);
    rf_release_standard_fds(&held);
    if (error || (ends[0] >= 0 && ends[1] >= 0)) return error;
    error = errno;
    for (int i = 0; i < 2; i++)
        if (ends[i] >= 0) close(ends[i]);
    errno = error;
    return -1;
}

int rf_memfd(const char *name, unsigned flags) {
    struct rf_held_fds held;
    rf_hold_standard_fds(&held);
    int fd = move_up(memfd_create(name, flags));
    rf_release_standard_fds(&held);
    return fd;
}

DIR *rf_opendir(const char *path) {
    int fd = rf_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK, 0);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    if (fd >= 0 && !folder) {
        int error = errno;
        close(fd);
        errno = error;
    }
    return folder;
}

FILE *rf_fopen_new(const char *path) {
    int fd = rf_open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (fd >= 0 && !file) {
        int error = errno;
        close(fd);
        errno = error;
    }
    return file;
}
