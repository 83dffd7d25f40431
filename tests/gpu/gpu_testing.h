/* What the device layer's tests share: a device, simulated unless RF_DRIVER says otherwise.
 *
 * The tests use public headers only, so that they show what a user can rely on; the simulated driver's own figures
 * come through its rfsim_* functions as a second witness. Each test runs in a process of its own, so setting RFSIM
 * affects no other test. */
#ifndef GPU_TESTING_H
#define GPU_TESTING_H

#include <rocmforge/gpu.h>
#include <rocmforge/test.h>

#define KIB UINT64_C(1024)
#define MIB (KIB * 1024)
#define GIB (MIB * 1024)

struct gpu {
    const char *modules; /* set before opening: see struct rf_device_params */
    struct rf_runtime *runtime;
    struct rf_device *device;
    struct rf_queue *queue;
};

/* Whether this run is on the simulated driver. */
bool gpu_simulated(void);
/* Skips the test on a real GPU; otherwise sets RFSIM for this process ("" for the default). */
void gpu_need_simulated(const char *rfsim);
/* The same for kernels by groups of waves: skips too if the build has none for sm_90a. */
void gpu_need_groups(const char *rfsim);
/* Skips the test if a runner holds the GPU and lends this process a part of it: the test needs leases of its own. On
 * the simulated driver a test always has them. */
void gpu_need_own_leases(void);
/* Sets RFSIM again, for example to add faults after the probe. What RFSIM held when the process started goes first.
 */
void gpu_set_sim(const char *rfsim);
/* A private folder for leases, trees and files of this test; removed when the process ends. */
const char *gpu_folder(void);
/* For a child process: uses its parent's folder. */
void gpu_use_folder(const char *path);

/* A runtime with these further options ("NAME=VALUE"; NULL-ended, may be NULL). Log lines go to
 * the test's output and to gpu_log(). */
void gpu_make_runtime(struct gpu *gpu, const char *const *options);
/* Opens device 0 with the test kernels, and a queue. Skips the test if RF_DRIVER asks for a real GPU and there is
 * none. budget NULL means the default. */
void gpu_open(struct gpu *gpu, const char *budget);
/* The same with a budget of what the driver takes for itself (518 MiB on an H200) and this much. */
void gpu_open_above_driver(struct gpu *gpu, uint64_t bytes);
/* Fails a test that opens a GPU, and may do so on a real one, without saying so to the runner. */
void gpu_demand_admission(void);
void gpu_close(struct gpu *gpu); /* asserts that nothing leaked */
rf_status gpu_try_open(struct gpu *gpu, const char *budget);
const char *gpu_log(void); /* all log lines so far */
/* Called with each log line, on the thread that logs it; NULL: nobody. */
extern void (*gpu_on_log)(const char *line);

struct rf_memory_info gpu_memory(struct gpu *gpu);
struct rf_buffer *gpu_buffer(struct gpu *gpu, uint64_t bytes);
const struct rf_kernel *gpu_kernel(struct gpu *gpu, const char *name);
/* Launches this many threads in all, in blocks of 256. */
rf_status gpu_launch(struct rf_queue *queue, const struct rf_kernel *kernel, uint64_t threads,
                     const struct rf_arg *args, size_t count);
#define GPU_LAUNCH(queue, kernel, threads, ...)                                                                      \
    gpu_launch((queue), (kernel), (threads), (const struct rf_arg[]){__VA_ARGS__},                                   \
               sizeof((const struct rf_arg[]){__VA_ARGS__}) / sizeof(struct rf_arg))

/* Work that ends when the test says so, for tests that look at a device while it is busy: on a loaded machine work of
 * any length may be over before the test looks. On a real GPU it ends by itself after nine seconds. */
struct gpu_hold {
    struct rf_buffer *flag, *outcome;
    struct rf_queue *other;
};
void gpu_hold_prepare(struct gpu *gpu, struct gpu_hold *hold);
/* Submits it, under the name of its kernel, "spin_forever_flag"; once for each gpu_hold_prepare. */
rf_status gpu_hold_launch(struct gpu *gpu, const struct gpu_hold *hold, struct rf_queue *queue);
void gpu_hold_end(struct gpu *gpu, const struct gpu_hold *hold); /* does not wait for the queue */
/* When the queue has ended it. */
void gpu_hold_finish(struct gpu_hold *hold);

/* The simulated driver's figures; 0 if the driver is real. */
uint64_t gpu_sim_calls(void);
uint64_t gpu_sim_traps(void);
uint64_t gpu_sim_device_bytes(void);             /* charged bytes, without contexts */
uint64_t gpu_sim_entry_calls(const char *entry); /* calls of one entry point, for example "hipFree" */
uint64_t gpu_sim_least_free(void);               /* right after an allocation; UINT64_MAX: there was no allocation */
void gpu_sim_set_desktop(uint64_t bytes);        /* for device 0, once the driver is loaded */
void gpu_sim_release_hangs(void);
const char *gpu_sim_message(void); /* why something failed, as the driver says it; "" if nothing did */
/* The driver's current device of this thread, as a caller sets it who uses the driver beside the library. */
void gpu_sim_set_current(int index);
int gpu_sim_current(void);

int64_t gpu_now_ns(void);

#endif
