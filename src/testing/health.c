/* The health probe: does the GPU still work? A separate process opens it, computes a little and compares the result;
 * if the driver hangs or takes that process down, the runner survives and knows.
 *
 * The process is this program again, called as `PROGRAM test --health-probe DEVICE`: the `rocmforge` command finds
 * its subcommand, and a test executable takes "test" for a pattern and ignores it. */
#include "runner_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#define PROBE_TIMEOUT_NS INT64_C(60000000000)
#define RETURN_TIMEOUT_NS INT64_C(5000000000)
#define RETURN_PAUSE_NS 100000000
#define COLUMNS 256

/* ---- in the child ---- */

static rf_status launch(struct rf_queue *queue, struct rf_buffer *out, struct rf_buffer *in) {
    const struct rf_kernel *kernel;
    rf_status status = rf_kernel_find(rf_queue_device(queue), "softmax_f32", &kernel);
    if (status != RF_OK) return status;
    struct rf_arg args[] = {rf_arg_buffer(out), rf_arg_buffer(in), rf_arg_i64(1), rf_arg_i64(COLUMNS)};
    RF_PARAMS(struct rf_launch, launch);
    launch.kernel = kernel;
    launch.grid[0] = 1;
    launch.block[0] = COLUMNS;
    launch.args = args;
    launch.arg_count = sizeof args / sizeof args[0];
    return rf_queue_launch(queue, &launch);
}

/* The softmax of equal numbers is one over their count. */
static rf_status compute(struct rf_device *device, bool *right, char *why, size_t size) {
    float values[COLUMNS];
    for (int i = 0; i < COLUMNS; i++) values[i] = 3;
    struct rf_queue *queue = NULL;
    struct rf_buffer *in = NULL, *out = NULL;
    RF_PARAMS(struct rf_buffer_params, params);
    params.bytes = sizeof values;
    rf_status status = rf_queue_create(device, NULL, &queue);
    if (status == RF_OK) status = rf_buffer_create_safe(device, &params, &in);
    if (status == RF_OK) status = rf_buffer_create_safe(device, &params, &out);
    if (status == RF_OK) status = rf_copy_to_device_safe(queue, in, 0, values, sizeof values);
    if (status == RF_OK) status = launch(queue, out, in);
    if (status == RF_OK) status = rf_copy_from_device_safe(queue, values, out, 0, sizeof values);
    *right = status == RF_OK;
    for (int i = 0; i < COLUMNS && *right; i++) *right = fabsf(values[i] - 1.0f / COLUMNS) < 1e-6f;
    if (status != RF_OK) snprintf(why, size, "%s", rf_error_text()); /* because clean-up may fail, too */
    rf_buffer_destroy(&in);
    rf_buffer_destroy(&out);
    rf_queue_destroy(&queue);
    return status;
}

int rf_test_health_here(const char *text, int record_fd) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct rf_runtime *runtime = NULL;
    struct rf_device *device = NULL;
    RF_PARAMS(struct rf_device_params, params);
    RF_PARAMS(struct rf_memory_info, memory);
    params.index = atoi(text);
    bool right = false;
    char why[800] = "";
    rf_status status = rf_runtime_create(NULL, &runtime);
    if (status == RF_OK) status = rf_device_open_checked(runtime, &params, &device);
    if (status == RF_OK) status = rf_device_memory_info(device, &memory);
    if (status == RF_OK) status = compute(device, &right, why, sizeof why);
    if (status != RF_OK)
        rf_test_record_write(record_fd, "bad", "%s (%s)", why[0] ? why : rf_error_text(), rf_status_name(status));
    else if (!right)
        rf_test_record_write(record_fd, "bad", "a small kernel computed wrong numbers");
    else
        rf_test_record_write(record_fd, "good", "%llu %llu",
                             (unsigned long long)(memory.free_bytes + memory.held_bytes),
                             (unsigned long long)memory.driver_bytes);
    rf_device_close(&device);
    rf_runtime_destroy(&runtime);
    return right ? 0 : 1;
}

/* ---- in the runner ---- */

static void take_line(void *user, const char *kind, char *value) {
    struct rf_test_health *health = user;
    if (strcmp(kind, "bad") == 0) {
        health->good = false;
        snprintf(health->why, sizeof health->why, "%s", value);
    } else if (strcmp(kind, "good") == 0) {
        unsigned long long free_bytes, driver_bytes;
        health->good = sscanf(value, "%llu %llu", &free_bytes, &driver_bytes) == 2;
        if (health->good) {
            health->free_bytes = free_bytes;
            health->driver_bytes = driver_bytes;
        }
    }
}

void rf_test_health_probe(int device, const char *budget, struct rf_test_child *const *others, size_t other_count,
                          struct rf_test_health *health) {
    *health = (struct rf_test_health){.good = false};
    char index[16], record_fd[16];
    snprintf(index, sizeof index, "%d", device);
    snprintf(record_fd, sizeof record_fd, "%d", RF_TEST_RECORD_FD);
    char *argv[] = {"/proc/self/exe", "test", "--health-probe", index, "--record-fd", record_fd, NULL};
    /* A test's own troubles are not the device's. */
    const char *environment[] = {"RF_FAIL_ALLOC=", "RF_CHECK=", budget, NULL};
    struct rf_test_spawn spawn = {.argv = argv, .environment = environment, .timeout_ns = PROBE_TIMEOUT_NS};
    struct rf_test_child child;
    int error = rf_test_child_start(&child, &spawn);
    if (error) {
        snprintf(health->why, sizeof health->why, "the health probe could not start: %s", strerror(error));
        return;
    }
    struct rf_test_child **all = rf_test_grow(NULL, (other_count + 1) * sizeof *all);
    if (other_count) memcpy(all, others, other_count * sizeof *all);
    all[other_count] = &child;
    while (!child.ended && !rf_test_interrupted) rf_test_children_serve(all, other_count + 1, INT64_C(200000000));
    free(all);
    if (child.record) rf_test_record_lines(child.record, take_line, health);
    if (child.timed_out)
        snprintf(health->why, sizeof health->why, "the driver did not answer within %d s",
                 (int)(PROBE_TIMEOUT_NS / 1000000000));
    else if (!health->good && !health->why[0])
        snprintf(health->why, sizeof health->why, "the process that asked the driver died");
    health->good &= !child.timed_out;
    rf_test_child_finish(&child);
}

uint64_t rf_test_free_bytes(int device) {
    struct rf_runtime *runtime = NULL;
    RF_PARAMS(struct rf_device_info, info);
    if (rf_runtime_create(NULL, &runtime) != RF_OK) return 0;
    uint64_t bytes = rf_device_info_at(runtime, device, &info) == RF_OK ? info.free_bytes : 0;
    rf_runtime_destroy(&runtime);
    return bytes;
}

bool rf_test_wait_for_memory(int device, uint64_t wanted_bytes, uint64_t *now) {
    int64_t until = rf_test_now_ns() + RETURN_TIMEOUT_NS;
    for (;;) {
        *now = rf_test_free_bytes(device);
        if (*now == 0 || *now >= wanted_bytes) return true;
        if (rf_test_now_ns() >= until || rf_test_interrupted) return false;
        nanosleep(&(struct timespec){0, RETURN_PAUSE_NS}, NULL);
    }
}
