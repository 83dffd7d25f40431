/* How many tokens of a prompt are evaluated at a time.
 *
 * Every engine can run engine->batch tokens at once: it was tried when the engine was opened, and layers were placed
 * beside it. On a device a longer chunk reads (and decodes) the weights fewer times, so a prompt takes up to
 * engine->longest tokens at once where that costs nothing else:
 *   - nothing that could be on the device is on the host, and the run takes at most half of the room that budget and
 *     floor leave;
 *   - no kernel must be short (a display), and the device need not be left idle (duty_percent);
 *   - chunks are measured, and none should take longer than a tenth of the deadline of a wait, so that a slow device
 *     is not taken for one that hangs, and a cancelled session ends soon.
 * A number of tokens that the caller gave is obeyed: longest is then batch. When memory is needed, that of long
 * chunks is given back before anything moves (ladder.c). */
#include "infer/engine_impl.h"

#include "gpu/device.h"

/* KERNEL_MS: the limit for kernels on a GPU with a display, which must stay smooth. ROOM_SHARE: a long chunk takes
 * at most one part in so many of the device's room. */
enum { KERNEL_MS = 8, FIRST_CHUNK = 64, LEAST_CHUNK = 2, ROOM_SHARE = 2, DEADLINE_SHARE = 10 };

void rf_chunk_init(struct rf_engine *engine, const struct rf_engine_params *params) {
    RF_PARAMS(struct rf_device_info, info);
    bool display = engine->device && !rf_device_get_info(engine->device, &info) && info.display == RF_YES;
    int32_t milliseconds = params->kernel_ms ? params->kernel_ms : display ? KERNEL_MS : 0;
    engine->kernel_ns = engine->device && milliseconds > 0 ? RF_MS(milliseconds) : 0;
    bool may_be_long = engine->device && !params->batch && !engine->kernel_ns && engine->duty_percent >= 100;
    engine->longest = may_be_long ? RF_MIN(engine->context, (uint32_t)RF_BATCH_LONGEST) : engine->batch;
    engine->pace.run_ns = engine->runtime->timeout_ns / DEADLINE_SHARE;
    atomic_store(&engine->pace.chunk,
                 engine->kernel_ns ? RF_MIN(engine->batch, (uint32_t)FIRST_CHUNK) : engine->batch);
    atomic_store(&engine->pace.least, RF_MIN(engine->batch, (uint32_t)LEAST_CHUNK));
}

/* ---- time ---- */

/* Halves the chunk if a kernel took too long, unless halving did not help before: then the time does not depend on
 * the number of tokens. Doubles it if twice as many tokens would be well within the limit. A single token is not
 * measured. */
static void learn_from_kernel(struct rf_engine *engine, uint32_t count, int64_t longest_ns) {
    struct rf_pace *pace = &engine->pace;
    uint32_t chunk = atomic_load(&pace->chunk), least = atomic_load(&pace->least);
    if (longest_ns > engine->kernel_ns && count > least) {
        bool helped = count * 2 > atomic_load(&pace->long_count) || longest_ns < atomic_load(&pace->long_ns) / 10 * 9;
        if (helped) {
            atomic_store(&pace->long_count, count);
            atomic_store(&pace->long_ns, longest_ns);
        } else {
            least = atomic_load(&pace->long_count);
            atomic_store(&pace->least, least);
        }
        atomic_store(&pace->chunk, helped ? RF_MAX(count / 2, least) : least);
    } else if (longest_ns < engine->kernel_ns / 4 && count == chunk) {
        atomic_store(&pace->chunk, RF_MIN(2 * chunk, engine->batch));
    }
}

/* The chunk becomes as long as the time for a run allows, by what this run took. Runs of fewer tokens than an engine
 * can always do are slower for each of them, and tell nothing. */
static void learn_from_run(struct rf_engine *engine, uint32_t count, int64_t run_ns) {
    if (engine->longest <= engine->batch || count < engine->batch) return;
    int64_t each_ns = RF_MAX(run_ns / count, (int64_t)1), fits = engine->pace.run_ns / each_ns;
    uint32_t chunk = engine->batch;
    while (chunk < engine->longest && 2 * (int64_t)chunk <= fits) chunk *= 2;
    atomic_store(&engine->pace.chunk, RF_MIN(chunk, engine->longest));
}

void rf_chunk_learn(struct rf_engine *engine, uint32_t count, int64_t run_ns, int64_t longest_ns) {
    if (engine->kernel_ns) {
        if (longest_ns >= 0) learn_from_kernel(engine, count, longest_ns);
    } else {
        learn_from_run(engine, count, run_ns);
    }
}

/* ---- memory ---- */

uint64_t rf_chunk_bytes(const struct rf_engine *engine, uint64_t tokens) {
    const struct rf_hparams *hparams = &engine->hparams;
    uint64_t row = 6 * (uint64_t)hparams->width + 3 * (uint64_t)hparams->feed_forward;
    uint64_t estimate = (tokens * row + 2 * (uint64_t)hparams->vocabulary) * sizeof(float) + ((uint64_t)16 << 20);
    if (tokens <= engine->batch || !engine->run_bytes) return estimate;
    /* What does not grow with the tokens, such as decoded weights, is counted too often; the driver rounds up. */
    return RF_MIN(estimate, (engine->run_bytes / engine->batch + 1) * tokens + ((uint64_t)4 << 20));
}

uint32_t rf_chunk_most(struct rf_engine *engine, uint32_t wanted, uint64_t held_tokens) {
    bool paced = !engine->kernel_ns || engine->device_layers;
    uint32_t most = RF_MIN(RF_MIN(wanted, engine->longest), paced ? atomic_load(&engine->pace.chunk) : engine->batch);
    bool complete = engine->device_layers == engine->hparams.layers && !engine->pinned_kv_bytes;
    struct rf_pressure pressure;
    struct rf_saved_error saved;
    if (most <= engine->batch) return most;
    rf_error_save(&saved);
    if (!complete || rf_device_pressure(engine->device, &pressure)) {
        rf_error_restore(&saved); /* a lost device is reported when it is used */
        return engine->batch;
    }
    uint64_t held = held_tokens ? rf_chunk_bytes(engine, held_tokens) : 0;
    uint64_t room = (pressure.room_bytes + held) / ROOM_SHARE;
    uint32_t fits = engine->batch;
    if (most <= held_tokens || rf_chunk_bytes(engine, most) <= room) return most;
    while (2 * fits < most && rf_chunk_bytes(engine, 2 * (uint64_t)fits) <= room) fits *= 2;
    return fits;
}
