/* Threads that a test started and left running: they would run into the next test, or keep the process from ending.
 *
 * Drivers and libraries keep threads of their own; those are not leaks. A thread counts as one of the test if it did
 * not exist before, still runs after a moment (longer where it works and gets no processor), has no name of its own
 * (drivers name theirs, the simulated one too), and began in the code of the executable: the bottom of its stack then
 * holds an address in the executable. If the stack cannot be found (the thread runs rather than waits), it counts
 * only if no GPU driver is loaded. A sanitizer starts every thread in the code of the executable: there the name
 * decides.
 *
 * Must not stop or signal a thread: it may belong to a driver. */
#include "testing_impl.h"
#include "base/sanitizers.h"

#include <dirent.h>
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MOMENT_NS INT64_C(1000000000)
#define UNSURE_NS INT64_C(200000000)
#define WORKING_NS INT64_C(20000000000) /* for a thread that does not get a processor */
#define BOTTOM_BYTES 16384 /* bytes of a stack that are read: the thread's own data and its first frames */

#define SANITIZED (RF_UNDER_ASAN || RF_UNDER_TSAN)

struct threads {
    int *ids; /* owned */
    size_t count;
};

static struct threads before;
static struct threads ours; /* known to belong to the test: a thread that runs at a later look shows no stack then */

static bool has(const struct threads *list, int id) {
    for (size_t i = 0; i < list->count; i++)
        if (list->ids[i] == id) return true;
    return false;
}
static void add(struct threads *list, int id) {
    list->ids = rf_test_grow(list->ids, (list->count + 1) * sizeof *list->ids);
    list->ids[list->count++] = id;
}
static void forget(struct threads *list) {
    free(list->ids);
    *list = (struct threads){NULL, 0};
}

static struct threads list_threads(void) {
    struct threads list = {NULL, 0};
    DIR *folder = opendir("/proc/self/task");
    if (!folder) return list;
    for (struct dirent *entry; (entry = readdir(folder));) {
        int id = atoi(entry->d_name);
        if (id > 0) add(&list, id);
    }
    closedir(folder);
    return list;
}

static bool read_line(const char *path, char *text, size_t size) {
    FILE *file = fopen(path, "re");
    bool good = file && fgets(text, (int)size, file);
    if (file) fclose(file);
    if (good) text[strcspn(text, "\n")] = 0;
    return good;
}

static bool has_usual_name(int id, char name[32]) {
    char path[64], usual[32];
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", id);
    if (!read_line(path, name, 32) || !read_line("/proc/self/comm", usual, sizeof usual)) return false;
    return strcmp(name, usual) == 0;
}

static int is_driver(struct dl_phdr_info *info, size_t size, void *user) {
    (void)size;
    static const char *const names[] = {"libcuda.so", "libamdhip64", "libhsa-runtime", "librfsim", "libnvidia"};
    for (size_t i = 0; info->dlpi_name && i < sizeof names / sizeof names[0]; i++)
        *(bool *)user |= strstr(info->dlpi_name, names[i]) != NULL;
    return 0;
}

/* Where the executable's own code lies. */
struct code {
    uintptr_t low, high;
};
static int find_code(struct dl_phdr_info *info, size_t size, void *user) {
    (void)size;
    struct code *code = user;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_LOAD || !(info->dlpi_phdr[i].p_flags & PF_X)) continue;
        code->low = (uintptr_t)info->dlpi_addr + (uintptr_t)info->dlpi_phdr[i].p_vaddr;
        code->high = code->low + (uintptr_t)info->dlpi_phdr[i].p_memsz;
    }
    return 1; /* the executable comes first */
}

/* Where the stack that holds this address ends. */
static uintptr_t stack_end(uintptr_t address) {
    FILE *maps = fopen("/proc/self/maps", "re");
    uintptr_t found = 0;
    unsigned long low, high;
    char line[512];
    while (maps && !found && fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx", &low, &high) == 2 && address >= low && address < high) found = high;
    if (maps) fclose(maps);
    return found;
}

enum origin { THEIRS, OURS, UNKNOWN };

static enum origin origin_of(int id) {
    char path[64], text[256];
    unsigned long stack = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", id);
    if (!read_line(path, text, sizeof text)) return UNKNOWN;
    /* number, six arguments, the stack pointer, the program counter; or "running" */
    if (sscanf(text, "%*s %*s %*s %*s %*s %*s %*s %lx", &stack) != 1 && sscanf(text, "-1 %lx", &stack) != 1)
        return UNKNOWN;
    uintptr_t end = stack_end(stack);
    struct code code = {0, 0};
    dl_iterate_phdr(find_code, &code);
    if (!end || !code.low) return UNKNOWN;
    uintptr_t start = end - stack < BOTTOM_BYTES ? stack : end - BOTTOM_BYTES;
    start &= ~(uintptr_t)7;
    static uintptr_t words[BOTTOM_BYTES / sizeof(uintptr_t) + 1];
    struct iovec to = {words, end - start}, from = {(void *)start, end - start};
    ssize_t count = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
    if (count <= 0) return UNKNOWN;
    for (size_t i = 0; i < (size_t)count / sizeof words[0]; i++)
        if (words[i] >= code.low && words[i] < code.high) return OURS;
    return THEIRS;
}

static enum origin judge(int id, char name[32]) {
    if (!has_usual_name(id, name)) return THEIRS;
    if (SANITIZED) return OURS;
    enum origin origin = origin_of(id);
    bool driver = false;
    if (origin == UNKNOWN) dl_iterate_phdr(is_driver, &driver);
    return origin != UNKNOWN || driver ? origin : OURS;
}

/* Whether it runs, or waits for a processor or a disk. */
static bool works(int id) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", id);
    const char *end = read_line(path, text, sizeof text) ? strrchr(text, ')') : NULL;
    return end && end[1] && (end[2] == 'R' || end[2] == 'D');
}

struct left {
    size_t count;   /* threads of the test that still run */
    size_t unsure;  /* threads that cannot be told yet */
    bool works;     /* one of all these works: it may end, or show where it began, once it gets a processor */
    char text[400]; /* the first ones */
};

static struct left find_left(void) {
    struct threads now = list_threads();
    struct left left = {0};
    size_t length = 0;
    for (size_t i = 0; i < now.count; i++) {
        char name[32] = "?";
        if (has(&before, now.ids[i])) continue;
        enum origin origin = judge(now.ids[i], name);
        if (origin == OURS && !has(&ours, now.ids[i])) add(&ours, now.ids[i]);
        if (origin == UNKNOWN && has(&ours, now.ids[i])) origin = OURS;
        left.unsure += origin == UNKNOWN;
        left.works |= origin != THEIRS && works(now.ids[i]);
        if (origin != OURS) continue;
        if (left.count++ < 8 && length < sizeof left.text)
            length += (size_t)snprintf(left.text + length, sizeof left.text - length, "%s%d '%s'",
                                       left.count > 1 ? ", " : "", now.ids[i], name);
    }
    forget(&now);
    return left;
}

static void *do_nothing(void *user) {
    return user;
}

void rf_test_threads_before(void) {
    pthread_t thread;
    /* Thread sanitizer starts its own thread with the first of the program: start it before the list is taken. */
    if (SANITIZED && pthread_create(&thread, NULL, do_nothing, NULL) == 0) pthread_join(thread, NULL);
    forget(&before);
    forget(&ours);
    before = list_threads();
}

/* Processor time of this process. */
static int64_t spent_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void rf_test_threads_after(const struct rf_test *test) {
    int64_t started = rf_test_now_ns(), started_spent = spent_ns();
    struct left left = find_left();
    /* A thread that was joined may be listed a moment longer; one that just began is running, and shows its stack as
     * soon as it waits for something. On a busy machine that moment is counted in processor time. */
    for (;;) {
        int64_t passed = rf_test_now_ns() - started;
        bool soon = passed < (left.count ? MOMENT_NS : left.unsure ? UNSURE_NS : 0);
        if (!soon && (!left.works || passed >= WORKING_NS || spent_ns() - started_spent >= MOMENT_NS)) break;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
        left = find_left();
    }
    if (left.count && rf_test_verdict_so_far() == RF_TEST_PASSED)
        rf_test_fail(test->file, test->line, false, "left %zu thread%s running: %s", left.count,
                     left.count > 1 ? "s" : "", left.text);
    forget(&before);
    forget(&ours);
}
