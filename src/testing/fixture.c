/* The fixture: the one device that the tests of a process share.
 *
 * Invariants: it is opened at most once at a time, by the first thread that asks, with the mutex held; the state and
 * the device change only under the mutex. A queue is used by the thread that asked for it and is destroyed when that
 * thread ends or, at the latest, after the test it was made in. A forked child never calls the driver: no driver
 * survives a fork. It is asserted that the fixture is opened once, and that a queue which is destroyed is in the list
 * of this process. A mutex does not tell who holds it.
 *
 * Must not decide what a leak is: leaks.c does. */
#include "fixture_impl.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/struct_size.h"

enum state { UNTRIED, OPEN, ABSENT, BROKEN };

struct thread_queue {
    struct rf_queue *queue; /* NULL: destroyed after a test; owned by the list */
    uint64_t mark;          /* older than the queue */
    struct thread_queue *previous, *next;
};

static struct {
    pthread_mutex_t mutex;
    enum state state;
    pid_t process;
    struct rf_fixture_params params;
    struct rf_runtime *runtime;
    struct rf_device *device;
    struct rf_device_info info;
    struct rf_memory_info first;
    uint64_t safe_bytes;
    uint64_t opened_mark, test_mark;
    char reason[1000];          /* why the state is not OPEN */
    char lost[1000];            /* in which test and why the device was lost; kept from then on */
    const struct rf_test *test; /* the running test */
    char name[128];             /* outlives the device */
    struct thread_queue *queues;
} fixture = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key; /* the struct thread_queue of each thread */

/* ---- opening ---- */

static void print_log(void *user, enum rf_log_level level, const char *line) {
    (void)user;
    static const char *const names[] = {"", "error: ", "warning: ", "", "debug: "};
    fprintf(stderr, "rocmforge: %s%s\n", level <= RF_LOG_DEBUG ? names[level] : "", line);
}

/* With RF_TEST_DEBUG the library logs what it does, unless RF_LOG is set. */
static rf_status make_runtime(void) {
    const char *options[64];
    size_t count = 0;
    if (rf_test_is_debug() && !getenv("RF_LOG")) options[count++] = "RF_LOG=debug";
    for (const char *const *given = fixture.params.options; given && *given; given++) {
        if (count + 1 == sizeof options / sizeof options[0]) break;
        options[count++] = *given;
    }
    options[count] = NULL;
    RF_PARAMS(struct rf_runtime_params, params);
    params.log = print_log;
    params.options = options;
    return rf_runtime_create(&params, &fixture.runtime);
}

/* A hint on what to do, which the reason does not give. */
static const char *hint(void) {
    const char *driver = getenv("RF_DRIVER");
    if (driver && strcmp(driver, "none") == 0) return "RF_DRIVER=none turns GPUs off: unset it";
    if (access("/dev/kfd", F_OK) == 0 && access("/dev/kfd", R_OK | W_OK) != 0)
        return "no permission for /dev/kfd: join the groups render and video";
    if (access("/dev/nvidiactl", F_OK) == 0 && access("/dev/nvidiactl", R_OK | W_OK) != 0)
        return "no permission for /dev/nvidiactl";
    if (access("/dev/kfd", F_OK) != 0 && access("/dev/nvidiactl", F_OK) != 0)
        return "no kernel driver of a GPU is loaded; RF_DRIVER=sim runs the test on the simulated driver";
    return "rocmforge doctor shows more";
}

static void set_absent(const char *reason) {
    fixture.state = ABSENT;
    snprintf(fixture.reason, sizeof fixture.reason, "no GPU: %s (%s)", reason[0] ? reason : "none found", hint());
}

static void set_broken(const char *step, rf_status status) {
    fixture.state = BROKEN;
    snprintf(fixture.reason, sizeof fixture.reason, "ERROR: the GPU test fixture could not %s: %s: %s", step,
             rf_status_name(status), rf_error_text());
    fprintf(stderr, "%s\n", fixture.reason);
}

static bool open_device(void) {
    if (!rf_gpu_available(fixture.runtime)) {
        set_absent(rf_gpu_reason(fixture.runtime));
        return false;
    }
    RF_PARAMS(struct rf_device_choice, choice);
    const char *want = getenv("RF_TEST_DEVICE");
    choice.want = want && *want ? want : NULL;
    choice.avoid_display = true;
    RF_PARAMS(struct rf_device_params, params);
    rf_status status = rf_device_choose(fixture.runtime, &choice, &params.index);
    if (status) {
        set_broken(choice.want ? "find the device of RF_TEST_DEVICE" : "choose a device", status);
        return false;
    }
    params.budget = fixture.params.budget;
    params.images = fixture.params.images;
    params.image_groups = fixture.params.image_groups;
    params.image_count = fixture.params.image_count;
    status = rf_device_open_checked(fixture.runtime, &params, &fixture.device);
    if (status == RF_E_NO_DRIVER || status == RF_E_NO_DEVICE)
        set_absent(rf_error_text());
    else if (status)
        set_broken("open the device", status);
    return status == RF_OK;
}

static bool read_figures(void) {
    fixture.info = (struct rf_device_info){.struct_size = sizeof fixture.info};
    fixture.first = (struct rf_memory_info){.struct_size = sizeof fixture.first};
    rf_status status = rf_device_get_info(fixture.device, &fixture.info);
    if (!status) status = rf_device_memory_info(fixture.device, &fixture.first);
    if (!status) status = rf_safe_alloc_size(fixture.device, &fixture.safe_bytes);
    if (!status) return true;
    set_broken("read the device's figures", status);
    return false;
}

/* With the mutex held. */
static void open_fixture(void) {
    rf_assert(fixture.state == UNTRIED && !fixture.device && !fixture.runtime);
    fixture.process = getpid();
    rf_status status = make_runtime();
    if (status) {
        set_broken("start", status);
        return;
    }
    if (!open_device() || !read_figures()) {
        rf_device_close(&fixture.device);
        rf_runtime_destroy(&fixture.runtime);
        return;
    }
    fixture.state = OPEN;
    fixture.opened_mark = fixture.test_mark = rf_device_mark(fixture.device);
    snprintf(fixture.name, sizeof fixture.name, "%s", fixture.info.name);
    fprintf(stderr, "GPU test fixture: %s, total %llu MiB, free %llu MiB, safe %llu MiB, seed %llu\n", fixture.name,
            (unsigned long long)rf_mib(fixture.first.total_bytes),
            (unsigned long long)rf_mib(fixture.first.free_bytes), (unsigned long long)rf_mib(fixture.safe_bytes),
            (unsigned long long)rf_test_seed());
    /* Without another choice the library has warned already. */
    const char *want = getenv("RF_TEST_DEVICE");
    if (want && *want && fixture.info.display == RF_YES)
        fprintf(stderr, "GPU test fixture: warning: %s drives a display: a hanging test may freeze it\n",
                fixture.name);
}

/* Opens the device if that was not tried yet. NULL, with a copy of the reason, if there is none. */
static struct rf_device *device_or_reason(char *reason, size_t size) {
    pthread_mutex_lock(&fixture.mutex);
    if (fixture.state == UNTRIED) open_fixture();
    struct rf_device *device = fixture.state == OPEN ? fixture.device : NULL;
    bool forked = fixture.process != getpid();
    snprintf(reason, size, "%s", fixture.reason);
    pthread_mutex_unlock(&fixture.mutex);
    if (forked)
        RF_FAIL("the fixture was opened before this process was forked: no driver survives a fork; start a program "
                "instead");
    return device;
}

static void demand_gpu_test(void) {
    if (fixture.test && !fixture.test->options.gpu && rf_test_is_running())
        RF_FAIL("the test uses the GPU test fixture: declare it with .gpu = true, or the runner puts it next to "
                "others");
}

bool rf_fixture_available(void) {
    char reason[sizeof fixture.reason];
    demand_gpu_test();
    return device_or_reason(reason, sizeof reason) != NULL;
}

struct rf_device *rf_fixture(void) {
    char reason[sizeof fixture.reason];
    demand_gpu_test();
    struct rf_device *device = device_or_reason(reason, sizeof reason);
    if (!device) RF_SKIP("%s", reason);
    return device;
}

struct rf_device *rf_fixture_device(void) {
    return rf_fixture();
}

void rf_fixture_configure(const struct rf_fixture_params *params) {
    struct rf_fixture_params own;
    char why[512];
    if (!params) RF_FAIL("rf_fixture_configure: params is NULL");
    if (!rf_struct_read(&own, sizeof own, sizeof own, params, params->struct_size, "struct rf_fixture_params", why,
                        sizeof why))
        RF_FAIL("rf_fixture_configure: %s", why);
    pthread_mutex_lock(&fixture.mutex);
    bool late = fixture.state != UNTRIED;
    if (!late) fixture.params = own;
    pthread_mutex_unlock(&fixture.mutex);
    if (late) RF_FAIL("rf_fixture_configure: the fixture is open already: call it before the first use");
}

void rf_fixture_images(const struct rf_kernel_image *images, const int *groups, size_t count) {
    pthread_mutex_lock(&fixture.mutex);
    bool late = fixture.state != UNTRIED;
    if (!late) {
        fixture.params.images = images;
        fixture.params.image_groups = groups;
        fixture.params.image_count = count;
    }
    pthread_mutex_unlock(&fixture.mutex);
    if (late) RF_FAIL("rf_fixture_images: the fixture is open already: call it before the first use");
}

/* ---- figures ---- */

const char *rf_fixture_device_name(void) {
    rf_fixture();
    return fixture.name;
}

uint64_t rf_fixture_total_mb(void) {
    rf_fixture();
    return rf_mib(fixture.first.total_bytes);
}

uint64_t rf_fixture_free_mb(void) {
    rf_fixture();
    return rf_mib(fixture.first.free_bytes);
}

uint64_t rf_fixture_safe_mb(void) {
    rf_fixture();
    return rf_mib(fixture.safe_bytes);
}

void rf_fixture_memory_stats(struct rf_memory_info *info) {
    struct rf_device *device = rf_fixture();
    RF_ASSERT_OK(rf_device_memory_info(device, info));
}

/* ---- a queue per thread ---- */

/* With the mutex held. */
static void drop_queue(struct thread_queue *entry) {
    if (!entry->queue) return;
    rf_assert(fixture.process == getpid());
    rf_assert((entry->previous ? entry->previous->next : fixture.queues) == entry);
    rf_queue_destroy(&entry->queue);
    entry->queue = NULL;
    if (entry->previous)
        entry->previous->next = entry->next;
    else
        fixture.queues = entry->next;
    if (entry->next) entry->next->previous = entry->previous;
}

static void end_of_thread(void *user) {
    struct thread_queue *entry = user;
    pthread_mutex_lock(&fixture.mutex);
    drop_queue(entry);
    pthread_mutex_unlock(&fixture.mutex);
    free(entry);
}

static void make_key(void) {
    if (pthread_key_create(&key, end_of_thread)) abort(); /* the process has no free key */
}

struct rf_queue *rf_fixture_queue(void) {
    struct rf_device *device = rf_fixture();
    pthread_once(&key_once, make_key);
    struct thread_queue *entry = pthread_getspecific(key);
    if (!entry) {
        entry = rf_test_grow(NULL, sizeof *entry);
        *entry = (struct thread_queue){0};
        pthread_setspecific(key, entry);
    }
    pthread_mutex_lock(&fixture.mutex);
    rf_status status = RF_OK;
    if (!entry->queue) {
        entry->mark = rf_device_mark(device);
        RF_PARAMS(struct rf_queue_params, params);
        params.label = "fixture";
        status = rf_queue_create(device, &params, &entry->queue);
        if (!status) {
            entry->previous = NULL;
            entry->next = fixture.queues;
            if (entry->next) entry->next->previous = entry;
            fixture.queues = entry;
        }
    }
    struct rf_queue *queue = entry->queue;
    pthread_mutex_unlock(&fixture.mutex);
    if (status) rf_test_status(__FILE__, __LINE__, true, "the fixture's queue", status, RF_OK);
    return queue;
}

void rf_fixture_drop_queues(uint64_t mark) {
    pthread_mutex_lock(&fixture.mutex);
    for (struct thread_queue *entry = fixture.queues, *next; entry; entry = next) {
        next = entry->next;
        if (entry->mark >= mark) drop_queue(entry);
    }
    pthread_mutex_unlock(&fixture.mutex);
}

/* ---- around tests ---- */

void rf_fixture_before(const struct rf_test *test) {
    fixture.test = test;
    if (fixture.lost[0] && test && test->options.gpu) rf_test_fail_text(test->file, test->line, false, fixture.lost);
}

void rf_fixture_mark(void) {
    struct rf_device *device = rf_fixture_peek();
    if (device) fixture.test_mark = rf_device_mark(device);
}

struct rf_device *rf_fixture_peek(void) {
    pthread_mutex_lock(&fixture.mutex);
    struct rf_device *device = fixture.state == OPEN && fixture.process == getpid() ? fixture.device : NULL;
    pthread_mutex_unlock(&fixture.mutex);
    return device;
}

uint64_t rf_fixture_opened_mark(void) {
    return fixture.opened_mark;
}

uint64_t rf_fixture_test_mark(void) {
    return fixture.test_mark;
}

void rf_fixture_set_test_mark(uint64_t mark) {
    fixture.test_mark = mark;
}

const struct rf_memory_info *rf_fixture_first_figures(void) {
    return &fixture.first;
}

const struct rf_test *rf_fixture_test(void) {
    return fixture.test;
}

void rf_fixture_set_lost(const char *why) {
    char name[RF_TEST_NAME_BYTES] = "a suite's tear-down";
    if (fixture.test) rf_test_full_name(fixture.test, name, sizeof name);
    snprintf(fixture.lost, sizeof fixture.lost, "the GPU was lost in %s, earlier in this process: %s", name, why);
}

bool rf_fixture_is_lost(void) {
    return fixture.lost[0] != 0;
}

rf_status rf_fixture_close(void) {
    pthread_mutex_lock(&fixture.mutex);
    rf_status status = rf_device_close(&fixture.device);
    rf_runtime_destroy(&fixture.runtime);
    fixture.state = UNTRIED;
    pthread_mutex_unlock(&fixture.mutex);
    return status;
}
