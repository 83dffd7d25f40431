#include "gpu_testing.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../../src/sim/rfsim.h"
#include "../../src/testing/fixture_impl.h"

#include "../scratch.h"

extern const struct rf_kernel_image test_images[];
extern const size_t test_image_count;
extern const int test_image_groups[];

bool gpu_simulated(void) {
    const char *driver = getenv("RF_DRIVER");
    return !driver || !*driver || !strcmp(driver, "sim");
}

/* Finds the build folder from this executable's path: build/tests/gpu/NAME. */
static void build_folder(char *path, size_t size) {
    ssize_t length = readlink("/proc/self/exe", path, size - 1);
    RF_ASSERT(length > 0);
    path[length] = 0;
    for (int up = 0; up < 3; up++) {
        char *slash = strrchr(path, '/');
        RF_ASSERT(slash != NULL);
        *slash = 0;
    }
}

/* What RFSIM held when the process started applies to every test, unless the test sets it itself. */
static const char *given_settings(void) {
    static char *given;
    const char *text = getenv("RFSIM");
    if (!given) given = strdup(text ? text : "");
    RF_ASSERT(given != NULL);
    return given;
}

/* Whether the kernel's figures are in gpu_folder()/sys: without them a context counts as memory that was never free,
 * and context= in the settings given to all tests would change nothing. */
static bool has_tree;

void gpu_set_sim(const char *rfsim) {
    char folder[512], text[4096], tree[300] = "";
    const char *given = given_settings();
    has_tree = *given && !strstr(given, "sysfs=") && !strstr(rfsim, "sysfs=") && !strstr(rfsim, "context=");
    if (has_tree) snprintf(tree, sizeof tree, ",sysfs=%s/sys", gpu_folder());
    build_folder(folder, sizeof folder);
    snprintf(text, sizeof text, "kernels=%s/librfsim-kernels.so:%s/librfsim-test-kernels.so%s%s%s%s%s", folder,
             folder, *given ? "," : "", given, *rfsim ? "," : "", rfsim, tree);
    setenv("RFSIM", text, 1);
}

static bool never_on_a_real_gpu;

void gpu_need_simulated(const char *rfsim) {
    if (!gpu_simulated()) RF_SKIP("needs the simulated driver (unset RF_DRIVER)");
    never_on_a_real_gpu = true;
    gpu_set_sim(rfsim);
}

void gpu_demand_admission(void) {
    const struct rf_test *test = rf_fixture_test();
    if (test && !test->options.gpu && !never_on_a_real_gpu)
        RF_FAIL("the test may run on a real GPU: declare it with .gpu = true, or the runner puts it next to others, "
                "whose leases refuse its own");
}

void gpu_need_groups(const char *rfsim) {
    bool there = false;
    for (size_t i = 0; i < rf_builtin_kernel_count(); i++)
        there = there || !strcmp(rf_builtin_kernel_at(i)->target, "sm_90a");
    if (!there) RF_SKIP("this build has no kernels for sm_90a: see the Meson option kernel_targets");
    gpu_need_simulated(rfsim);
}
void gpu_need_own_leases(void) {
    const char *budget = getenv("RF_BUDGET");
    if (!gpu_simulated() && budget && !strncmp(budget, "part=", 5))
        RF_SKIP("needs leases of its own, and a runner holds this GPU: run the executable by itself");
}

/* ---- a private folder ---- */

static char folder_path[SCRATCH_BYTES];

void gpu_use_folder(const char *path) {
    snprintf(folder_path, sizeof folder_path, "%s", path); /* its owner removes it */
}

const char *gpu_folder(void) {
    if (!folder_path[0]) scratch_folder(folder_path, "gpu");
    return folder_path;
}

/* ---- runtime and device ---- */

static pthread_mutex_t log_mutex = PTHREAD_MUTEX_INITIALIZER;
static char log_text[65536];

void (*gpu_on_log)(const char *line);

static void keep_line(void *user, enum rf_log_level level, const char *line) {
    (void)user, (void)level;
    pthread_mutex_lock(&log_mutex);
    size_t used = strlen(log_text);
    snprintf(log_text + used, sizeof log_text - used, "%s\n", line);
    pthread_mutex_unlock(&log_mutex);
    RF_NOTE("log: %s", line);
    if (gpu_on_log) gpu_on_log(line);
}

const char *gpu_log(void) {
    return log_text;
}

void gpu_make_runtime(struct gpu *gpu, const char *const *options) {
    static char driver[64], leases[320], helper[600], library[600], folder[512], sysfs[320];
    /* On a simulated GPU a budget that a runner lends is useless: it belongs to other leases. */
    const char *all[32] = {driver, leases, helper};
    size_t count = 3;
    if (gpu_simulated()) {
        all[count++] = library;
        all[count++] = "RF_BUDGET=70%";
    }
    *gpu = (struct gpu){.modules = gpu->modules};
    /* This executable contains the library itself, away from the files that the library looks for beside it. */
    build_folder(folder, sizeof folder);
    const char *other_helper = getenv("RF_PROBE_HELPER"), *other_leases = getenv("RF_LEASE_DIR");
    if (other_helper && *other_helper)
        snprintf(helper, sizeof helper, "RF_PROBE_HELPER=%s", other_helper);
    else
        snprintf(helper, sizeof helper, "RF_PROBE_HELPER=%s/rocmforge-probe", folder);
    snprintf(library, sizeof library, "RF_HIP_LIBRARY=%s/librfsim-hip.so", folder);
    const char *asked = getenv("RF_DRIVER");
    snprintf(driver, sizeof driver, "RF_DRIVER=%s", gpu_simulated() ? "sim" : asked);
    /* The leases of a simulated GPU are the process's own; on a real one the runner's folder is used. */
    snprintf(leases, sizeof leases, "RF_LEASE_DIR=%s", gpu_simulated() || !other_leases ? "" : other_leases);
    if (gpu_simulated() && !never_on_a_real_gpu) gpu_set_sim("");
    if (gpu_simulated() && has_tree) {
        snprintf(sysfs, sizeof sysfs, "RF_SYSFS=%s/sys", gpu_folder());
        all[count++] = sysfs;
    }
    for (; options && *options && count < 31; options++) {
        /* A later value of the same option replaces an earlier one. */
        size_t name = strcspn(*options, "=") + 1, at = 0;
        while (at < count && strncmp(all[at], *options, name)) at++;
        all[at] = *options;
        if (at == count) count++;
    }
    RF_PARAMS(struct rf_runtime_params, params);
    params.log = keep_line;
    params.options = all;
    RF_ASSERT_OK(rf_runtime_create(&params, &gpu->runtime));
}

rf_status gpu_try_open(struct gpu *gpu, const char *budget) {
    gpu_demand_admission();
    if (!gpu->runtime) gpu_make_runtime(gpu, NULL);
    if (!gpu_simulated() && !rf_gpu_available(gpu->runtime)) RF_SKIP("no GPU: %s", rf_gpu_reason(gpu->runtime));
    RF_PARAMS(struct rf_device_params, params);
    params.budget = budget;
    params.modules = gpu->modules;
    params.images = test_images;
    params.image_count = test_image_count;
    params.image_groups = test_image_groups;
    rf_status status = rf_device_open_checked(gpu->runtime, &params, &gpu->device);
    if (status) return status;
    return rf_queue_create(gpu->device, NULL, &gpu->queue);
}

void gpu_open(struct gpu *gpu, const char *budget) {
    RF_ASSERT_OK(gpu_try_open(gpu, budget));
}

void gpu_open_above_driver(struct gpu *gpu, uint64_t bytes) {
    char budget[32];
    gpu_open(gpu, NULL);
    snprintf(budget, sizeof budget, "%llu", (unsigned long long)(gpu_memory(gpu).driver_bytes + bytes));
    RF_ASSERT_OK(rf_device_set_budget(gpu->device, budget));
}

void gpu_close(struct gpu *gpu) {
    RF_ASSERT_OK(rf_queue_destroy(&gpu->queue));
    struct rf_memory_info info = gpu_memory(gpu);
    RF_EXPECT_INT(info.live_count, 0);
    RF_EXPECT_INT(info.used_bytes, 0);
    RF_ASSERT_OK(rf_device_close(&gpu->device));
    rf_runtime_destroy(&gpu->runtime);
    RF_EXPECT_INT(gpu_sim_device_bytes(), 0);
    RF_EXPECT_INT(gpu_sim_traps(), 0);
}

struct rf_memory_info gpu_memory(struct gpu *gpu) {
    RF_PARAMS(struct rf_memory_info, info);
    RF_ASSERT_OK(rf_device_memory_info(gpu->device, &info));
    return info;
}

struct rf_buffer *gpu_buffer(struct gpu *gpu, uint64_t bytes) {
    RF_PARAMS(struct rf_buffer_params, params);
    struct rf_buffer *buffer = NULL;
    params.bytes = bytes;
    RF_ASSERT_OK(rf_buffer_create_safe(gpu->device, &params, &buffer));
    return buffer;
}

const struct rf_kernel *gpu_kernel(struct gpu *gpu, const char *name) {
    const struct rf_kernel *kernel = NULL;
    RF_ASSERT_OK(rf_kernel_find(gpu->device, name, &kernel));
    return kernel;
}

rf_status gpu_launch(struct rf_queue *queue, const struct rf_kernel *kernel, uint64_t threads,
                     const struct rf_arg *args, size_t count) {
    RF_PARAMS(struct rf_launch, launch);
    launch.kernel = kernel;
    launch.block[0] = threads < 256 ? (uint32_t)threads : 256;
    launch.grid[0] = (uint32_t)((threads + 255) / 256);
    launch.args = args;
    launch.arg_count = count;
    return rf_queue_launch(queue, &launch);
}

/* ---- the simulated driver's own figures ---- */

/* The library's symbol, if this process has loaded the library. */
static void *sim_symbol(const char *name) {
    static void *library;
    if (!gpu_simulated()) return NULL;
    if (!library) {
        char path[600];
        build_folder(path, sizeof path - 32);
        strcat(path, "/librfsim-hip.so");
        library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    }
    return library ? dlsym(library, name) : NULL;
}

static struct rfsim_stats sim_stats(void) {
    struct rfsim_stats stats = {.struct_size = sizeof stats};
    void (*ask)(struct rfsim_stats *) = NULL;
    void *symbol = sim_symbol("rfsim_stats");
    memcpy(&ask, &symbol, sizeof ask);
    if (ask) ask(&stats);
    return stats;
}

uint64_t gpu_sim_calls(void) {
    return sim_stats().calls;
}
uint64_t gpu_sim_traps(void) {
    return sim_stats().traps;
}
uint64_t gpu_sim_device_bytes(void) {
    return sim_stats().charged_bytes;
}
uint64_t gpu_sim_entry_calls(const char *entry) {
    uint64_t (*ask)(const char *) = NULL;
    void *symbol = sim_symbol("rfsim_entry_count");
    memcpy(&ask, &symbol, sizeof ask);
    return ask ? ask(entry) : 0;
}
uint64_t gpu_sim_least_free(void) {
    return sim_stats().least_free;
}
void gpu_sim_set_desktop(uint64_t bytes) {
    void (*set)(int, uint64_t) = NULL;
    void *symbol = sim_symbol("rfsim_set_desktop");
    memcpy(&set, &symbol, sizeof set);
    if (set) set(0, bytes);
}
void gpu_sim_set_current(int index) {
    int (*set)(int) = NULL;
    void *symbol = sim_symbol("hipSetDevice");
    memcpy(&set, &symbol, sizeof set);
    RF_ASSERT(set && set(index) == 0);
}
int gpu_sim_current(void) {
    int (*get)(int *) = NULL, index = -1;
    void *symbol = sim_symbol("hipGetDevice");
    memcpy(&get, &symbol, sizeof get);
    RF_ASSERT(get && get(&index) == 0);
    return index;
}
void gpu_sim_release_hangs(void) {
    void (*release)(void) = NULL;
    void *symbol = sim_symbol("rfsim_release_hangs");
    memcpy(&release, &symbol, sizeof release);
    if (release) release();
}

const char *gpu_sim_message(void) {
    const char *(*message)(void) = NULL;
    void *symbol = sim_symbol("rfsim_last_message");
    memcpy(&message, &symbol, sizeof message);
    return message ? message() : "";
}

void gpu_hold_prepare(struct gpu *gpu, struct gpu_hold *hold) {
    *hold = (struct gpu_hold){.flag = gpu_buffer(gpu, 4), .outcome = gpu_buffer(gpu, 4)};
    RF_ASSERT_OK(rf_queue_create(gpu->device, NULL, &hold->other));
    RF_ASSERT_OK(rf_fill(hold->other, hold->flag, 0, 4, 0));
    RF_ASSERT_OK(rf_queue_wait(hold->other, RF_MS(60000)));
}

rf_status gpu_hold_launch(struct gpu *gpu, const struct gpu_hold *hold, struct rf_queue *queue) {
    return GPU_LAUNCH(queue, gpu_kernel(gpu, "spin_forever_flag"), 1, rf_arg_buffer(hold->flag),
                      rf_arg_buffer(hold->outcome), rf_arg_i64(gpu_simulated() ? INT64_MAX : RF_MS(9000)));
}

void gpu_hold_end(struct gpu *gpu, const struct gpu_hold *hold) {
    RF_ASSERT_OK(GPU_LAUNCH(hold->other, gpu_kernel(gpu, "set_flag"), 1, rf_arg_buffer(hold->flag), rf_arg_u32(1)));
    RF_ASSERT_OK(rf_queue_wait(hold->other, RF_MS(60000)));
}

void gpu_hold_finish(struct gpu_hold *hold) {
    RF_ASSERT_OK(rf_buffer_destroy(&hold->flag));
    RF_ASSERT_OK(rf_buffer_destroy(&hold->outcome));
    RF_ASSERT_OK(rf_queue_destroy(&hold->other));
}

int64_t gpu_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
