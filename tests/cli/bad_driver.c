/* The simulated driver, with one call that misbehaves as BAD_DRIVER says: the first stream that a process makes,
 * which is made when a device is opened, not when drivers are probed. BAD_DRIVER_PIDS names a file to which the
 * process ids involved are appended. */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* Named, so that the linker keeps the simulated driver, where all other calls are found. */
int hipInit(unsigned flags);
EXPORT int (*bad_driver_needs)(unsigned) = hipInit;

static void note_pid(pid_t pid) {
    const char *path = getenv("BAD_DRIVER_PIDS");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file) return;
    fprintf(file, "%ld\n", (long)pid);
    fclose(file);
}

/* In a session of its own. keep: the worker's descriptors, and so its channel, stay open there. Returns when the
 * process that stays has noted its id. */
static void leave_daemon(int keep) {
    int ends[2];
    char byte = 0;
    (void)!pipe(ends);
    pid_t between = fork();
    if (between > 0) {
        close(ends[1]);
        (void)!read(ends[0], &byte, 1);
        close(ends[0]);
        waitpid(between, NULL, 0);
        return;
    }
    setsid();
    if (fork() > 0) _exit(0);
    note_pid(getpid());
    (void)!write(ends[1], &byte, 1);
    for (int fd = 0; fd < (keep ? 3 : 1024); fd++) close(fd);
    close(ends[1]);
    while (1) pause();
}

EXPORT int hipStreamCreateWithPriority(void **stream, unsigned flags, int priority);
EXPORT int hipStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
    static int calls;
    const char *bad = getenv("BAD_DRIVER");
    int (*next)(void **, unsigned, int) = NULL;
    *(void **)&next = dlsym(RTLD_NEXT, "hipStreamCreateWithPriority");
    if (!bad || calls++) return next(stream, flags, priority);
    note_pid(getpid());
    if (!strcmp(bad, "print")) {
        printf("the driver says hello\n");
        fflush(stdout);
        (void)!write(STDOUT_FILENO, "and again\n", 10);
    }
    if (!strcmp(bad, "daemon")) leave_daemon(0);
    if (!strcmp(bad, "daemon-with-channel")) {
        leave_daemon(1);
        _exit(0);
    }
    if (!strcmp(bad, "kill-parent")) kill(getppid(), SIGKILL);
    if (!strcmp(bad, "daemon-and-kill-parent")) {
        leave_daemon(1);
        kill(getppid(), SIGKILL);
    }
    if (!strcmp(bad, "stop-parent")) kill(getppid(), SIGSTOP);
    if (!strcmp(bad, "kill-group")) kill(0, SIGTERM);
    if (strstr(bad, "parent") || strstr(bad, "group"))
        while (1) pause();
    return next(stream, flags, priority);
}
