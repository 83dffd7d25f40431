/* Preloaded into the command: calls of the system that do not do what they should.
 *
 *   FAILING=kill     SIGKILL has no effect, as if the process hung inside the kernel
 *   FAILING=signals  no signal has
 *   FAILING=spawn/N  the Nth start of this program again fails; 0: every one
 *   FAILING=fork     fork fails */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static const char *failing(void) {
    const char *what = getenv("FAILING");
    return what ? what : "";
}

EXPORT int kill(pid_t pid, int number) {
    int (*next)(pid_t, int) = NULL;
    *(void **)&next = dlsym(RTLD_NEXT, "kill");
    if (!strcmp(failing(), "signals") || (!strcmp(failing(), "kill") && number == SIGKILL)) return 0;
    return next(pid, number);
}

EXPORT pid_t fork(void) {
    pid_t (*next)(void) = NULL;
    *(void **)&next = dlsym(RTLD_NEXT, "fork");
    if (strcmp(failing(), "fork")) return next();
    errno = EAGAIN;
    return -1;
}

EXPORT int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                       const posix_spawnattr_t *attributes, char *const argv[], char *const environment[]) {
    static long calls;
    int (*next)(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const[],
                char *const[]) = NULL;
    *(void **)&next = dlsym(RTLD_NEXT, "posix_spawn");
    if (!strncmp(failing(), "spawn/", 6) && !strcmp(path, "/proc/self/exe")) {
        long which = strtol(failing() + 6, NULL, 10);
        if (++calls == which || !which) return EAGAIN;
    }
    return next(pid, path, actions, attributes, argv, environment);
}
