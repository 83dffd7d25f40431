/* Files that are opened while standard descriptors are closed. Each test closes its own process's. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rocmforge/test.h>

#include "../scratch.h"
#include "base/descriptors.h"

/* Closes those of 0 to 2 whose bit is set. */
static void close_some(int which) {
    for (int fd = 0; fd < 3; fd++)
        if (which & 1 << fd) close(fd);
}
/* Opens them again on /dev/null, so that every combination can be tried. */
static void open_all(void) {
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0) RF_ASSERT_INT(open("/dev/null", O_RDWR), fd);
}
static int closed_now(void) {
    int closed = 0;
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0) closed |= 1 << fd;
    return closed;
}
static void expect_high(int fd, bool closes_on_exec) {
    RF_ASSERT(fd > 2);
    RF_EXPECT_INT(fcntl(fd, F_GETFD) & FD_CLOEXEC, closes_on_exec ? FD_CLOEXEC : 0);
}

RF_TEST(descriptors, nothing_is_opened_on_a_closed_standard_one) {
    for (int which = 0; which < 8; which++) {
        RF_TRACE("closed: %d", which);
        int ends[2] = {-1, -1};
        close_some(which);
        int plain = rf_open("/proc/self/stat", O_RDONLY, 0);
        expect_high(plain, false);
        int closing = rf_open("/proc/self/stat", O_RDONLY | O_CLOEXEC, 0);
        expect_high(closing, true);
        int folder = rf_open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
        int inside = rf_openat(folder, "stat", O_RDONLY | O_CLOEXEC, 0);
        expect_high(folder, true);
        expect_high(inside, true);
        RF_ASSERT_INT(rf_pipe(ends, O_CLOEXEC), 0);
        expect_high(ends[0], true);
        expect_high(ends[1], true);
        RF_EXPECT_INT(write(ends[1], "x", 1), 1);
        int memory = rf_memfd("test", MFD_CLOEXEC);
        expect_high(memory, true);
        DIR *entries = rf_opendir("/proc/self");
        RF_ASSERT(entries != NULL);
        expect_high(dirfd(entries), true);
        FILE *file = rf_fopen_new("/dev/null");
        RF_ASSERT(file != NULL);
        expect_high(fileno(file), true);
        /* What the program closed is closed afterwards too, and the reason of a failure is kept. */
        RF_EXPECT_INT(closed_now(), which);
        errno = 0;
        RF_EXPECT_INT(rf_open("/nowhere/to/be/found", O_RDONLY, 0), -1);
        RF_EXPECT_INT(errno, ENOENT);
        RF_EXPECT(rf_opendir("/proc/self/stat") == NULL && errno == ENOTDIR);
        RF_EXPECT_INT(closed_now(), which);
        const int all[] = {plain, closing, folder, inside, ends[0], ends[1], memory};
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) close(all[i]);
        closedir(entries);
        fclose(file);
        open_all();
    }
}

/* Closing any descriptor of a file drops the record locks of the process on it: none may be closed on the way. */
RF_TEST(descriptors, record_locks_survive_an_open) {
    char path[SCRATCH_BYTES];
    int locked = scratch_file(path, "locked");
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    RF_ASSERT_INT(fcntl(locked, F_SETLK, &lock), 0);
    close_some(7);
    int again = rf_open(path, O_RDWR | O_CLOEXEC, 0);
    expect_high(again, true);
    pid_t child = fork(); /* has no locks, and sees those of others */
    RF_ASSERT(child >= 0);
    if (!child) _exit(fcntl(locked, F_GETLK, &lock) == 0 && lock.l_type == F_WRLCK ? 0 : 1);
    int status = -1;
    RF_ASSERT_INT(waitpid(child, &status, 0), child);
    RF_EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(again);
    close(locked);
}

/* While one thread gives the numbers back that it held, another opens. */
static void *open_often(void *unused) {
    (void)unused;
    for (int i = 0; i < 20000; i++) {
        int fd = rf_open("/proc/self/stat", O_RDONLY | O_CLOEXEC, 0);
        RF_ASSERT(fd > 2);
        close(fd);
    }
    return NULL;
}
RF_TEST(descriptors, threads_get_none_either, .timeout_ms = 300000) {
    pthread_t threads[4];
    close_some(7);
    for (int i = 0; i < 4; i++) RF_ASSERT_INT(pthread_create(&threads[i], NULL, open_often, NULL), 0);
    for (int i = 0; i < 4; i++) RF_ASSERT_INT(pthread_join(threads[i], NULL), 0);
    RF_EXPECT_INT(closed_now(), 7);
}

RF_TEST(descriptors, reserved_ones_still_fail) {
    char byte;
    close_some(7);
    RF_ASSERT(rf_reserve_standard_fds());
    RF_EXPECT_INT(closed_now(), 0);
    RF_EXPECT(read(0, &byte, 1) == -1 && errno == EBADF);
    RF_EXPECT(write(1, "x", 1) == -1 && errno == EBADF);
    RF_EXPECT(write(2, "x", 1) == -1 && errno == EBADF);
    for (int fd = 0; fd < 3; fd++) RF_EXPECT_INT(fcntl(fd, F_GETFD), 0); /* child processes inherit them */
    int next = open("/dev/null", O_RDONLY);
    RF_EXPECT(next > 2);
    close(next);
    /* Those that are open are left alone. */
    int ends[2];
    close_some(7);
    RF_ASSERT_INT(pipe(ends), 0);
    RF_ASSERT(ends[0] == 0 && ends[1] == 1);
    RF_ASSERT(rf_reserve_standard_fds());
    RF_EXPECT_INT(write(1, "y", 1), 1);
    RF_EXPECT(read(0, &byte, 1) == 1 && byte == 'y');
    RF_EXPECT(write(2, "x", 1) == -1 && errno == EBADF);
}
