/* A HIP driver of one or two devices that misbehaves in one way, chosen by -DBEHAVIOUR=NAME.
 *
 * GOOD behaves, and shows what the others would say if they did: each differs from it in one
 * place. HOSTILE_ARCH and HOSTILE_DEVICES change the architecture and number of devices;
 * HOSTILE_PIDS names a file to which the process ids involved are appended. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum behaviour {
    GOOD,
    LOAD_SEGV, /* in the library's constructor */
    INIT_SEGV,
    INIT_ABORT,
    THREAD_ABORT,    /* from a thread of the driver's */
    INIT_EXIT,       /* exit(0) */
    INIT_QUICK_EXIT, /* _exit(7) */
    INIT_HANG,
    INIT_SPIN,          /* all signals blocked */
    INIT_STOP,          /* SIGSTOP to itself */
    INIT_UNKNOWN,       /* 999 */
    PRINT,              /* megabytes to stdout and stderr, then good */
    EXIT_HANDLER_HANGS, /* good until the process ends */
    KILL_GROUP,         /* SIGTERM to its process group */
    CLOSE_AND_HANG,     /* closes every descriptor, the report's too */
    FLOOD,              /* garbage into every descriptor, for ever */
    FORGE,              /* writes an end of its own making into every descriptor */
    FORK_AND_EXIT,      /* leaves a process that keeps the report's pipe open */
    DAEMON,             /* leaves a process in a session of its own with no descriptor, then good */
    KILL_PARENT,        /* SIGKILL to its parent */
    COUNT_NEGATIVE,
    COUNT_HUGE,
    COUNT_ZERO,
    COUNT_ERROR,
    NAME_CONTROL,
    NAME_UNTERMINATED,
    NAME_OVERRUN,
    NAME_EMPTY,
    ARCH_NONSENSE,
    ARCH_NEW_LAYOUT, /* HIP 6's property call, the architecture at its place */
    TOTAL_ZERO,
    TOTAL_HUGE,
    WAVE_NONSENSE,
    ATTRIBUTE_ERROR,
    SECOND_SEGV,    /* while asked about the second device */
    MISSING_SYMBOL, /* no hipModuleLaunchKernel */
    NO_IDENTITY,    /* tells neither UUIDs nor PCI addresses, which are optional; good otherwise */
};

#define EXPORT __attribute__((visibility("default")))
#define IS(name) (BEHAVIOUR == (name))

static void note_pid(pid_t pid) {
    const char *path = getenv("HOSTILE_PIDS");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file) return;
    fprintf(file, "%ld\n", (long)pid);
    fclose(file);
}

static void crash(void) {
    raise(SIGSEGV);
}

__attribute__((constructor)) static void load(void) {
    if (IS(LOAD_SEGV)) crash();
}

static void *abort_elsewhere(void *unused) {
    (void)unused;
    abort();
}

static void write_everywhere(const char *text, size_t length) {
    for (int fd = 0; fd < 16; fd++) (void)!write(fd, text, length);
}

static void never_return(void) {
    while (1) pause();
}

/* Returns when the process that stays has noted its pid. */
static void leave_daemon(void) {
    pid_t between = fork();
    if (between > 0) {
        waitpid(between, NULL, 0);
        return;
    }
    setsid();
    int ends[2];
    char byte = 0;
    (void)!pipe(ends);
    if (fork() > 0) {
        (void)!read(ends[0], &byte, 1);
        _exit(0);
    }
    note_pid(getpid());
    (void)!write(ends[1], &byte, 1);
    for (int fd = 0; fd < 64; fd++) close(fd);
    never_return();
}

EXPORT int hipInit(unsigned flags);
EXPORT int hipInit(unsigned flags) {
    static char garbage[65536];
    sigset_t all;
    pthread_t thread;
    (void)flags;
    note_pid(getpid());
    switch ((enum behaviour)BEHAVIOUR) {
    case INIT_SEGV: crash(); break;
    case INIT_ABORT: abort();
    case THREAD_ABORT:
        pthread_create(&thread, NULL, abort_elsewhere, NULL);
        never_return();
        break;
    case INIT_EXIT: exit(0);
    case INIT_QUICK_EXIT: _exit(7);
    case INIT_HANG: never_return(); break;
    case INIT_SPIN:
        sigfillset(&all);
        sigprocmask(SIG_BLOCK, &all, NULL);
        for (volatile unsigned long i = 0;; i++) {
        }
    case INIT_STOP: raise(SIGSTOP); break;
    case INIT_UNKNOWN: return 999;
    case PRINT:
        memset(garbage, 'x', sizeof garbage);
        for (int i = 0; i < 64; i++) {
            (void)!write(1, garbage, sizeof garbage);
            (void)!write(2, garbage, sizeof garbage);
        }
        printf("hello\n");
        fflush(stdout);
        break;
    case EXIT_HANDLER_HANGS: atexit(never_return); break;
    case KILL_GROUP:
        kill(0, SIGTERM);
        never_return();
        break;
    case CLOSE_AND_HANG:
        for (int fd = 0; fd < 64; fd++) close(fd);
        never_return();
        break;
    case FLOOD:
        memset(garbage, '\n', sizeof garbage);
        while (1) write_everywhere(garbage, sizeof garbage);
    case FORGE:
        write_everywhere("begin\ndriver=hip\nend\n", 21);
        never_return();
        break;
    case FORK_AND_EXIT: {
        pid_t child = fork();
        if (child == 0) never_return();
        note_pid(child);
        _exit(0);
    }
    case DAEMON: leave_daemon(); break;
    case KILL_PARENT:
        kill(getppid(), SIGKILL);
        never_return();
        break;
    default: break;
    }
    return 0;
}

EXPORT int hipDriverGetVersion(int *version);
EXPORT int hipDriverGetVersion(int *version) {
    *version = 60300000;
    return 0;
}

EXPORT int hipGetDeviceCount(int *count);
EXPORT int hipGetDeviceCount(int *count) {
    const char *wanted = getenv("HOSTILE_DEVICES");
    *count = wanted ? atoi(wanted) : 1;
    if (IS(SECOND_SEGV)) *count = 2;
    if (IS(COUNT_NEGATIVE)) *count = -1;
    if (IS(COUNT_HUGE)) *count = 1000000000;
    if (IS(COUNT_ZERO)) *count = 0;
    return IS(COUNT_ERROR) ? 304 : 0;
}

EXPORT int hipDeviceGet(int *device, int ordinal);
EXPORT int hipDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return 0;
}

EXPORT int hipDeviceGetName(char *name, int size, int device);
EXPORT int hipDeviceGetName(char *name, int size, int device) {
    if (IS(SECOND_SEGV) && device == 1) crash();
    snprintf(name, (size_t)size, "Hostile GPU %d", device);
    if (IS(NAME_CONTROL)) snprintf(name, (size_t)size, "bad\nname=\x1b[31m");
    if (IS(NAME_UNTERMINATED)) memset(name, 'n', (size_t)size);
    if (IS(NAME_OVERRUN)) memset(name, 'n', (size_t)size + 40);
    if (IS(NAME_EMPTY)) name[0] = 0;
    return 0;
}

EXPORT int hipDeviceTotalMem(size_t *bytes, int device);
EXPORT int hipDeviceTotalMem(size_t *bytes, int device) {
    (void)device;
    *bytes = IS(TOTAL_ZERO) ? 0 : IS(TOTAL_HUGE) ? ~(size_t)0 : (size_t)16 << 30;
    return 0;
}

#if !BEHAVIOUR_HAS_NO_IDENTITY
EXPORT int hipDeviceGetUuid(void *uuid, int device);
EXPORT int hipDeviceGetUuid(void *uuid, int device) {
    memcpy(uuid, "0123456789abcde", 15);
    ((char *)uuid)[15] = (char)('0' + device % 10); /* from ten devices on, some share an identity */
    return 0;
}

EXPORT int hipDeviceGetPCIBusId(char *text, int size, int device);
EXPORT int hipDeviceGetPCIBusId(char *text, int size, int device) {
    snprintf(text, (size_t)size, "0000:%02X:00.0", 0x3a + device);
    return 0;
}
#endif

EXPORT int hipDeviceGetAttribute(int *value, int attribute, int device);
EXPORT int hipDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    if (IS(ATTRIBUTE_ERROR)) return 1;
    switch (attribute) {
    case 56: *value = 1024; return 0;
    case 63: *value = 84; return 0;
    case 74: *value = 65536; return 0;
    case 87: *value = IS(WAVE_NONSENSE) ? -7 : 32; return 0;
    case 16: *value = 0; return 0;
    default: return 1;
    }
}

static int fill_properties(char *properties, size_t offset, size_t size) {
    const char *arch = getenv("HOSTILE_ARCH");
    memset(properties, 0x11, size);
    snprintf(properties + offset, 256, "%s:xnack-", arch ? arch : "gfx1100");
    if (IS(ARCH_NONSENSE)) snprintf(properties + offset, 256, "gfx\x01\x02\x03%%s");
    return 0;
}
EXPORT int hipGetDeviceProperties(void *properties, int device);
EXPORT int hipGetDeviceProperties(void *properties, int device) {
    (void)device;
    return fill_properties(properties, 396, 792);
}
#if BEHAVIOUR_HAS_NEW_LAYOUT
EXPORT int hipGetDevicePropertiesR0600(void *properties, int device);
EXPORT int hipGetDevicePropertiesR0600(void *properties, int device) {
    (void)device;
    return fill_properties(properties, 1160, 1472);
}
#endif

/* A current device per thread, as HIP has. */
static __thread int current_device;
EXPORT int hipSetDevice(int device);
EXPORT int hipSetDevice(int device) {
    if (device < 0 || device > 1) return 101;
    current_device = device;
    return 0;
}
EXPORT int hipGetDevice(int *device);
EXPORT int hipGetDevice(int *device) {
    *device = current_device;
    return 0;
}
EXPORT int hipMemGetInfo(size_t *free_bytes, size_t *total_bytes);
EXPORT int hipMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    *free_bytes = (size_t)1 << 30;
    *total_bytes = (size_t)16 << 30;
    return 0;
}
EXPORT const char *hipGetErrorName(int code);
EXPORT const char *hipGetErrorName(int code) {
    return code == 999 ? "hipErrorUnknown" : code == 304 ? "hipErrorOperatingSystem" : NULL;
}

/* The probe must not call any of these. */
#define UNUSED(name)                                                                                                 \
    EXPORT int name(void);                                                                                           \
    EXPORT int name(void) {                                                                                          \
        abort();                                                                                                     \
    }
UNUSED(hipMalloc)
UNUSED(hipFree)
UNUSED(hipHostMalloc)
UNUSED(hipHostFree)
UNUSED(hipMemcpyHtoDAsync)
UNUSED(hipMemcpyDtoHAsync)
UNUSED(hipMemcpyDtoDAsync)
UNUSED(hipMemsetD8Async)
UNUSED(hipStreamCreateWithPriority)
UNUSED(hipStreamDestroy)
UNUSED(hipStreamWaitEvent)
UNUSED(hipEventCreateWithFlags)
UNUSED(hipEventDestroy)
UNUSED(hipEventRecord)
UNUSED(hipEventQuery)
UNUSED(hipEventElapsedTime)
UNUSED(hipModuleLoadData)
UNUSED(hipModuleUnload)
UNUSED(hipModuleGetFunction)
UNUSED(hipFuncGetAttribute)
#if !BEHAVIOUR_MISSES_SYMBOL
UNUSED(hipModuleLaunchKernel)
#endif
