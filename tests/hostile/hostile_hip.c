/* A HIP driver that forwards every call to the simulated one, and misbehaves at a chosen call. HOSTILE says how:
 *
 *     HOSTILE=PROCESS:ENTRY:N:WHAT
 *
 * PROCESS  probe (rocmforge-probe), worker (any other) or any
 * ENTRY    an entry point's name, any (every entry point counts), or load (the library's constructor; N is ignored)
 * N        which call of it, from 1; N+ that call and all later ones
 * WHAT     what it does; the functions below say what each is
 *
 * HOSTILE_COMMAND holds the process id of the command, which is not always the parent of the process that the driver
 * is in. Process ids that a test must know are appended to the file that HOSTILE_PIDS names. If HOSTILE is malformed,
 * every call returns 999, so that no test passes because nothing happened; HOSTILE_DONE names a file that is made
 * when the driver misbehaves, which tells a test that the call was reached. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SIM_ABI_CHECK /* names and numbers alone: the functions here have another type */
#include "sim/hip_abi.h"

#define EXPORT __attribute__((visibility("default")))
#define ENTRIES(X)                                                                                                   \
    SIM_PROTOTYPES(X)                                                                                                \
    X(int, hipGraphUpload, ())                                                                                       \
    X(int, hipGetDevicePropertiesR0600, ()) X(const char *, rfsim_version, ()) X(int, rfsim_shared, ())

enum entry {
#define ENTRY(result, name, parameters) ENTRY_##name,
    ENTRIES(ENTRY)
#undef ENTRY
        ENTRY_COUNT
};
static const char *const names[ENTRY_COUNT] = {
#define NAME(result, name, parameters) #name,
    ENTRIES(NAME)
#undef NAME
};

/* Integers and pointers alone, in the registers and on the stack where any of HIP's functions has them. A function
 * with fewer parameters gets more than it was given; it does not look at them. */
enum { ARGUMENTS = 11 };
typedef long (*function)(long, long, long, long, long, long, long, long, long, long, long);

static struct {
    pthread_once_t once;
    function real[ENTRY_COUNT];
    bool malformed, off; /* off: this is not the process meant */
    int entry;           /* -1: any */
    bool onwards;
    long nth;
    char what[64];
} hostile = {.once = PTHREAD_ONCE_INIT};
static _Atomic long counts[ENTRY_COUNT], all_calls;

/* ---- what the driver does ---- */

static void note_pid(pid_t pid) {
    const char *path = getenv("HOSTILE_PIDS");
    FILE *file = path ? fopen(path, "ae") : NULL;
    if (!file) return;
    fprintf(file, "%ld\n", (long)pid);
    fclose(file);
}

/* Each process of a command that the driver misbehaves in adds a line. */
static void note_done(const char *entry) {
    const char *path = getenv("HOSTILE_DONE");
    char line[64];
    int file = path ? open(path, O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (file < 0) return;
    (void)!write(file, line, (size_t)snprintf(line, sizeof line, "%s\n", entry));
    close(file);
}

static void never_return(void) {
    while (1) pause();
}

static void *abort_elsewhere(void *unused) {
    (void)unused;
    abort();
}

static pid_t command(void) {
    const char *text = getenv("HOSTILE_COMMAND");
    return text ? (pid_t)atol(text) : getppid();
}

/* Leaves a process behind that has a session of its own, as a daemon does. */
static void leave_daemon(void) {
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, 0);
        setsid();
        if (fork() != 0) _exit(0);
        note_pid(getpid());
        never_return();
    }
    note_pid(child);
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR) continue; /* the daemon has left its group */
}

/* signal/TARGET/NAME: sends it to the command, the parent, the worker (this process) or, as a terminal does, to the
 * command's process group. */
static void send_signal(const char *how) {
    static const struct {
        const char *name;
        int number;
    } signals[] = {{"HUP", SIGHUP},   {"INT", SIGINT},   {"QUIT", SIGQUIT},   {"TERM", SIGTERM}, {"PIPE", SIGPIPE},
                   {"CHLD", SIGCHLD}, {"STOP", SIGSTOP}, {"WINCH", SIGWINCH}, {"KILL", SIGKILL}, {"CONT", SIGCONT}};
    char target[16] = "", name[16] = "";
    if (sscanf(how, "%15[^/]/%15s", target, name) != 2) return;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        if (strcmp(name, signals[i].name)) continue;
        pid_t to = !strcmp(target, "worker")    ? getpid()
                   : !strcmp(target, "parent")  ? getppid()
                   : !strcmp(target, "command") ? command()
                                                : -getpgid(command());
        note_pid(to > 0 ? to : getpid()); /* one that is stopped must be let go on */
        kill(to, signals[i].number);
    }
}

static void print_much(void) {
    static const char text[] = "{\"hostile\": the driver prints}\nrocmforge: the driver prints\n";
    for (int i = 0; i < 20; i++) {
        (void)!write(STDOUT_FILENO, text, sizeof text - 1);
        (void)!write(STDERR_FILENO, text, sizeof text - 1);
        fputs(text, stdout);
        fputs(text, stderr);
    }
}

static void close_all(int first) {
    for (int fd = first; fd < 1024; fd++) close(fd);
}

/* Before the call is forwarded. */
static void act(const char *what) {
    sigset_t all;
    pthread_t thread;
    if (!strcmp(what, "crash")) signal(SIGSEGV, SIG_DFL), raise(SIGSEGV);
    if (!strcmp(what, "abort")) signal(SIGABRT, SIG_DFL), abort();
    if (!strcmp(what, "abort-elsewhere")) {
        signal(SIGABRT, SIG_DFL);
        if (pthread_create(&thread, NULL, abort_elsewhere, NULL) == 0) never_return();
    }
    if (!strncmp(what, "exit/", 5)) exit(atoi(what + 5));
    if (!strncmp(what, "quick-exit/", 11)) _exit(atoi(what + 11));
    if (!strcmp(what, "hang")) never_return();
    if (!strcmp(what, "stop")) raise(SIGSTOP);
    if (!strcmp(what, "print")) print_much();
    if (!strcmp(what, "close")) close_all(0);
    if (!strcmp(what, "close-others")) close_all(3);
    if (!strcmp(what, "round")) fesetround(FE_UPWARD);
    if (!strcmp(what, "daemon")) leave_daemon();
    if (!strcmp(what, "sleep")) nanosleep(&(struct timespec){0, 300000000}, NULL);
    if (!strcmp(what, "environment")) clearenv();
    if (!strcmp(what, "mask")) {
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, NULL);
    }
    if (!strcmp(what, "exit-handler")) atexit(never_return);
    if (!strncmp(what, "signal/", 7)) send_signal(what + 7);
    if (!strncmp(what, "signal-hang/", 12)) send_signal(what + 12), never_return();
}

/* What a call hands out, as numbers of 4 or 8 bytes or as text with its size in another argument. */
static const struct output {
    enum entry entry;
    int argument, bytes, size_argument; /* bytes 0: text */
} outputs[] = {
    {ENTRY_hipGetDeviceCount, 0, 4, 0},
    {ENTRY_hipDriverGetVersion, 0, 4, 0},
    {ENTRY_hipDeviceGet, 0, 4, 0},
    {ENTRY_hipDeviceGetName, 0, 0, 1},
    {ENTRY_hipDeviceGetPCIBusId, 0, 0, 1},
    {ENTRY_hipDeviceTotalMem, 0, 8, 0},
    {ENTRY_hipDeviceGetUuid, 0, 8, 0},
    {ENTRY_hipDeviceGetAttribute, 0, 4, 0},
    {ENTRY_hipMemGetInfo, 0, 8, 0},
    {ENTRY_hipMemGetInfo, 1, 8, 0},
    {ENTRY_hipMalloc, 0, 8, 0},
    {ENTRY_hipHostMalloc, 0, 8, 0},
    {ENTRY_hipDeviceGetStreamPriorityRange, 0, 4, 0},
    {ENTRY_hipDeviceGetStreamPriorityRange, 1, 4, 0},
    {ENTRY_hipStreamCreateWithPriority, 0, 8, 0},
    {ENTRY_hipEventCreateWithFlags, 0, 8, 0},
    {ENTRY_hipEventElapsedTime, 0, 4, 0},
    {ENTRY_hipModuleLoadData, 0, 8, 0},
    {ENTRY_hipModuleGetFunction, 0, 8, 0},
    {ENTRY_hipFuncGetAttribute, 0, 4, 0},
    {ENTRY_hipStreamEndCapture, 1, 8, 0},
    {ENTRY_hipStreamIsCapturing, 1, 4, 0},
    {ENTRY_hipGraphInstantiateWithFlags, 0, 8, 0},
    {ENTRY_hipGetDevice, 0, 4, 0},
};

/* lie/HOW, after the call: zero, one, minus, huge (2^63, or 2^31 - 1 in 4 bytes), nan; a text gets no end, control
 * characters, or becomes empty. lie/contrary: the first output is small and the second huge, or the other way. */
static void lie(enum entry entry, const char *how, const long *arguments) {
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
        const struct output *output = &outputs[i];
        if (output->entry != entry) continue;
        unsigned char *to = (unsigned char *)arguments[output->argument];
        if (!to) continue;
        if (!output->bytes) {
            size_t size = (size_t)(int)arguments[output->size_argument];
            if (!strcmp(how, "zero")) memset(to, 0, size);
            if (!strcmp(how, "one")) snprintf((char *)to, size, "\x1b[31m\nname=x\t\x80\xff");
            if (!strcmp(how, "minus") || !strcmp(how, "huge")) memset(to, 'n', size);
            continue;
        }
        uint64_t value = 0;
        float nan = __builtin_nanf("");
        if (!strcmp(how, "one")) value = 1;
        if (!strcmp(how, "minus")) value = UINT64_MAX;
        if (!strcmp(how, "huge")) value = output->bytes == 4 ? INT_MAX : (uint64_t)1 << 63;
        if (!strcmp(how, "contrary")) value = output->argument ? 1 : (uint64_t)1 << 62;
        if (!strcmp(how, "nan")) memcpy(&value, &nan, sizeof nan);
        memcpy(to, &value, (size_t)output->bytes);
    }
}

/* Text that never ends where C expects it to, as far as the page reaches. */
static const char *odd_error_name(const char *how) {
    static char text[4096];
    if (!strcmp(how, "zero")) return NULL;
    memset(text, 'e', sizeof text - 1);
    if (strcmp(how, "huge")) snprintf(text, sizeof text, "two\nlines \x1b[2J %%s%%n");
    return text;
}

/* ---- how a call goes ---- */

static bool parse(const char *text) {
    char process[16] = "", entry[64] = "", nth[24] = "", comm[32] = "";
    if (sscanf(text, "%15[^:]:%63[^:]:%23[^:]:%63s", process, entry, nth, hostile.what) != 4) return false;
    FILE *file = fopen("/proc/self/comm", "re");
    if (file && !fgets(comm, sizeof comm, file)) comm[0] = 0;
    if (file) fclose(file);
    bool probe = !strncmp(comm, "rocmforge-probe", 15);
    hostile.off = strcmp(process, "any") && probe != !strcmp(process, "probe");
    char *end;
    hostile.nth = strtol(nth, &end, 10);
    hostile.onwards = *end == '+';
    hostile.entry = -1;
    for (int i = 0; i < ENTRY_COUNT; i++)
        if (!strcmp(entry, names[i])) hostile.entry = i;
    return hostile.entry >= 0 || !strcmp(entry, "any") || !strcmp(entry, "load");
}

static void begin(void) {
    const char *text = getenv("HOSTILE");
    void *library = dlopen(SIMULATED_DRIVER, RTLD_NOW | RTLD_LOCAL);
    hostile.off = true;
    if (text && *text && !parse(text)) hostile.malformed = true;
    for (int i = 0; i < ENTRY_COUNT; i++) {
        void *address = library ? dlsym(library, names[i]) : NULL;
        memcpy(&hostile.real[i], &address, sizeof address);
        if (!address) hostile.malformed = true;
    }
    if (hostile.malformed) fprintf(stderr, "hostile driver: HOSTILE or " SIMULATED_DRIVER " is wrong\n");
    if (text && strstr(text, ":load:") && !hostile.off) {
        hostile.off = true;
        note_done("load");
        act(hostile.what);
    }
}
__attribute__((constructor)) static void load(void) {
    pthread_once(&hostile.once, begin);
}

static long call(enum entry entry, const long *a) {
    pthread_once(&hostile.once, begin);
    if (hostile.malformed) return SIM_UNKNOWN;
    function real = hostile.real[entry];
    bool asks = entry == ENTRY_hipGetErrorName || entry == ENTRY_hipGetErrorString || entry == ENTRY_rfsim_version ||
                entry == ENTRY_rfsim_shared; /* these do not count, as with the simulated driver's faults */
    long count = atomic_fetch_add(&counts[entry], 1) + 1, calls = atomic_load(&all_calls);
    if (!asks) calls = atomic_fetch_add(&all_calls, 1) + 1;
    if (hostile.entry < 0) count = asks ? 0 : calls;
    bool now = !hostile.off && (hostile.entry < 0 || hostile.entry == (int)entry) &&
               (count == hostile.nth || (hostile.onwards && count > hostile.nth));
    if (now) {
        note_done(names[entry]);
        if (!strcmp(hostile.what, "nothing")) return 0; /* success, and no output is filled */
        if (!strncmp(hostile.what, "code/", 5)) return atol(hostile.what + 5);
        act(hostile.what);
    }
    long result = real(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10]);
    if (now && !strncmp(hostile.what, "lie/", 4)) {
        if (entry == ENTRY_hipGetErrorName) return (long)odd_error_name(hostile.what + 4);
        lie(entry, hostile.what + 4, a);
    }
    return result;
}

#define FORWARD(result, name, parameters)                                                                            \
    EXPORT long name(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j, long k);        \
    EXPORT long name(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j, long k) {       \
        return call(ENTRY_##name, (const long[ARGUMENTS]){a, b, c, d, e, f, g, h, i, j, k});                         \
    }
ENTRIES(FORWARD)
