/* For how long a worker has given no sign of life; see worker.h. */
#include "cli.h"

#include <stdlib.h>
#include <time.h>

enum { BUSY_SHARE = 60 };
static const int64_t MS = 1000000, MARGIN_NS = 1000000000;

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t cpu_time(pid_t pid) {
    clockid_t clock;
    struct timespec used = {0};
    if (clock_getcpuclockid(pid, &clock) == 0) clock_gettime(clock, &used);
    return (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
}

/* Bytes that the process read from disk, mapped files included; 0 if the kernel does not say. Some file systems are
 * not counted in read_bytes, so while the model is loaded everything that it reads counts (rchar). Later rchar would
 * count other things that it reads now and then. */
static uint64_t read_bytes(pid_t pid, bool loads) {
    char path[64], line[128];
    unsigned long long bytes, all = 0;
    snprintf(path, sizeof path, "/proc/%d/io", (int)pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "read_bytes: %llu", &bytes) == 1 || (loads && sscanf(line, "rchar: %llu", &bytes) == 1))
            all += bytes;
    if (file) fclose(file);
    return all;
}

void cli_silence_count(struct cli_silence *silence, pid_t worker, enum cli_work work) {
    int64_t now = now_ns(), passed = silence->looked_ns ? now - silence->looked_ns : 0;
    int64_t cpu = cpu_time(worker), used = cpu - silence->cpu_ns;
    uint64_t read = read_bytes(worker, work == CLI_LOADS);
    bool busy = used > passed / 10, many_cores = used > passed + passed / 2;
    if (read != silence->read_bytes)
        passed = 0;
    else if (busy && (work != CLI_DEVICE_WORKS || many_cores))
        passed /= BUSY_SHARE;
    if (passed > 4 * CLI_TICK_MS * MS) passed = 4 * CLI_TICK_MS * MS; /* this process itself was asleep */
    silence->silent_ns += passed;
    silence->looked_ns = now;
    silence->cpu_ns = cpu;
    silence->read_bytes = read;
}

void cli_silence_end(struct cli_silence *silence) {
    silence->silent_ns = silence->looked_ns = 0;
}

static int64_t option_ns(const struct rf_runtime *runtime, const char *name) {
    const char *text = rf_runtime_option(runtime, name);
    return text ? strtoll(text, NULL, 10) * MS : 0;
}

rf_status cli_patience(int64_t duty_percent, int64_t *patience_ns, int64_t *probe_ns) {
    struct rf_runtime *runtime = NULL;
    rf_status status = rf_runtime_create(NULL, &runtime);
    if (status) return status;
    *patience_ns = 2 * option_ns(runtime, "RF_TIMEOUT_MS") + MARGIN_NS;
    if (duty_percent) *patience_ns = *patience_ns * 100 / duty_percent;
    *probe_ns = option_ns(runtime, "RF_PROBE_TIMEOUT_MS");
    rf_runtime_destroy(&runtime);
    return RF_OK;
}
