/* See placement.h.
 *
 * The last layers and the output are on the device, the first layers on the CPU; the embedding is where the first
 * layer is. Weights that spilled are read from host memory for every token. How fast that is gets measured, for some
 * milliseconds, and only if something spilled. */
#include "placement.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SAMPLE_BYTES ((size_t)32 << 20) /* per thread: more than its share of any cache */
#define PASSES 2
enum { THREADS_MAX = 16 };

/* A range of layers in one place. */
struct part {
    const char *device;
    uint32_t first, count; /* layers */
    bool embedding, output, on_device;
    uint64_t weight_bytes, kv_bytes;
};

static size_t split(const struct rf_engine_info *info, struct part parts[2]) {
    uint32_t host = info->layers - info->device_layers;
    size_t count = 0;
    if (host)
        parts[count++] = (struct part){.device = "CPU",
                                       .count = host,
                                       .embedding = true,
                                       .output = !info->device_layers,
                                       .weight_bytes = info->host_weight_bytes,
                                       .kv_bytes = info->host_kv_bytes};
    if (info->device_layers)
        parts[count++] = (struct part){.device = info->device,
                                       .first = host,
                                       .count = info->device_layers,
                                       .embedding = !host,
                                       .output = true,
                                       .on_device = true,
                                       .weight_bytes = info->device_weight_bytes,
                                       .kv_bytes = info->device_kv_bytes};
    return count;
}

/* ---- what reading from host memory costs ---- */

struct sample {
    pthread_t thread;
    bool started;
    uint64_t *memory;
    double seconds;
    uint64_t seen;
};

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void *read_sample(void *user) {
    struct sample *sample = user;
    memset(sample->memory, 1, SAMPLE_BYTES); /* so that its pages exist */
    double start = seconds_now();
    for (int pass = 0; pass < PASSES; pass++)
        for (size_t i = 0; i < SAMPLE_BYTES / sizeof(uint64_t); i += 8)
            sample->seen |= sample->memory[i] ^ (uint64_t)pass; /* one cache line at a time */
    sample->seconds = seconds_now() - start;
    return NULL;
}

/* Bytes per second that the CPU's threads read together; 0: it could not be measured. */
static double host_rate(void) {
    struct sample samples[THREADS_MAX] = {{0}};
    double rate = 0;
    unsigned threads = rf_usable_cores();
    for (unsigned i = 0; i < threads && i < THREADS_MAX; i++) {
        samples[i].memory = malloc(SAMPLE_BYTES);
        samples[i].started =
            samples[i].memory && pthread_create(&samples[i].thread, NULL, read_sample, &samples[i]) == 0;
    }
    for (int i = 0; i < THREADS_MAX; i++) {
        if (samples[i].started) pthread_join(samples[i].thread, NULL);
        if (samples[i].started && samples[i].seconds > 0) rate += PASSES * (double)SAMPLE_BYTES / samples[i].seconds;
        free(samples[i].memory);
    }
    return rate;
}

/* ---- shown ---- */

static const char *kv_name(enum rf_kv_type kv) {
    static const char *const names[] = {[RF_KV_F16] = "f16", [RF_KV_F32] = "f32", [RF_KV_Q8_0] = "q8_0"};
    return kv <= RF_KV_Q8_0 ? names[kv] : "?";
}

void placement_show(FILE *to, const struct rf_engine_info *info) {
    struct part parts[2];
    size_t count = split(info, parts);
    fprintf(to, "%s; ", info->device);
    if (info->budget_bytes)
        fprintf(to, "budget %s, of which the driver takes %s and a run about %s; ", cli_bytes(info->budget_bytes),
                cli_bytes(info->driver_bytes), cli_bytes(info->scratch_bytes));
    if (info->device_layers < info->layers) {
        fprintf(to, "host budget %s", cli_bytes(info->host_budget_bytes));
        if (info->host_used_bytes) fprintf(to, ", of which %s is taken", cli_bytes(info->host_used_bytes));
        fputs("; ", to);
    }
    fprintf(to, "context %u of %u tokens, cache %s\n", info->context, info->trained_context, kv_name(info->kv));
    for (size_t i = 0; i < count; i++) {
        const struct part *part = &parts[i];
        char what[96];
        int used = snprintf(what, sizeof what, "%s%s %u", part->embedding ? "embedding, " : "",
                            part->count > 1 ? "layers" : "layer", part->first);
        if (part->count > 1)
            used += snprintf(what + used, sizeof what - (size_t)used, " to %u", part->first + part->count - 1);
        snprintf(what + used, sizeof what - (size_t)used, "%s", part->output ? ", output" : "");
        fprintf(to, "  %-38s %12s weights %12s cache  %s\n", what, cli_bytes(part->weight_bytes),
                cli_bytes(part->kv_bytes), part->device);
    }
    if (!info->spilled_weight_bytes) return;
    double rate = host_rate();
    fprintf(to, "  spilled: each token reads %s of weights from host memory", cli_bytes(info->spilled_weight_bytes));
    if (rate > 0)
        fprintf(to, ", about %.1f ms at %.0f GB/s", 1e3 * (double)info->spilled_weight_bytes / rate, rate * 1e-9);
    fputc('\n', to);
}

void placement_json(struct rf_json *json, const struct rf_engine_info *info, const char *notice) {
    struct part parts[2];
    size_t count = split(info, parts);
    double rate = info->spilled_weight_bytes ? host_rate() : 0;
    rf_json_open_object(json, "placement");
    rf_json_text(json, "device", info->device);
    rf_json_uint(json, "budget_bytes", info->budget_bytes);
    rf_json_uint(json, "driver_bytes", info->driver_bytes);
    rf_json_uint(json, "scratch_bytes", info->scratch_bytes);
    rf_json_uint(json, "host_budget_bytes", info->host_budget_bytes);
    rf_json_uint(json, "host_used_bytes", info->host_used_bytes);
    rf_json_uint(json, "context", info->context);
    rf_json_uint(json, "trained_context", info->trained_context);
    rf_json_text(json, "kv", kv_name(info->kv));
    rf_json_open_array(json, "parts");
    for (size_t i = 0; i < count; i++) {
        rf_json_open_object(json, NULL);
        rf_json_text(json, "where", parts[i].on_device ? "gpu" : "cpu");
        rf_json_uint(json, "first_layer", parts[i].first);
        rf_json_uint(json, "layers", parts[i].count);
        rf_json_bool(json, "embedding", parts[i].embedding);
        rf_json_bool(json, "output", parts[i].output);
        rf_json_uint(json, "weight_bytes", parts[i].weight_bytes);
        rf_json_uint(json, "kv_bytes", parts[i].kv_bytes);
        rf_json_close(json);
    }
    rf_json_close(json);
    rf_json_bool(json, "degraded", info->degraded);
    rf_json_text(json, "notice", *notice ? notice : NULL);
    rf_json_uint(json, "spilled_weight_bytes", info->spilled_weight_bytes);
    if (rate > 0)
        rf_json_double(json, "spilled_ms_per_token", 1e3 * (double)info->spilled_weight_bytes / rate);
    else
        rf_json_null(json, "spilled_ms_per_token");
    rf_json_close(json);
}
