/* The ladder: what an engine gives up while it runs, when the GPU's memory gets short, and takes back when there is
 * room again.
 *
 * Down, until free memory is above the floor:
 *   1. the pool's idle memory, the scratch memory of shapes that were not used last, then that of long chunks
 *   2. KV caches, layer by layer, to pinned host memory: kernels can reach it there, so results are the same bits
 *   3. layers, the first on the device first: their weights are dropped (the file has them), and the CPU computes
 * Up, in the reverse order: layers, then caches; only if a margin is left, and not soon after another step, so that a
 * desktop with changing memory use does not cause gigabytes to move back and forth.
 *
 * Memory is checked between runs, at most every watch_ns. A step holds the gate exclusively: no session runs. It
 * destroys all runners before it asks for memory, and copies the logits that lay in them to the host, so no result is
 * lost. The log messages of a step are written after the gate is open again.
 *
 * Must not: fail. A move that is refused is not made, and the engine continues as it is. */
#include "infer/engine_impl.h"

#include <stdio.h>

#include "gpu/device.h"

#define WATCH_NS RF_MS(20)
/* Runs between a step and the next step up; the number grows if steps up are soon undone. */
enum { HOLD_RUNS = 16, HOLD_RUNS_MAX = 4096, STUCK_RUNS = 256 };
/* What stays free above the floor after a step up: this fraction of the GPU's memory, within bounds. */
enum { MARGIN_SHARE = 64 };
#define MARGIN_LEAST ((uint64_t)4 << 20)
#define MARGIN_MAX ((uint64_t)256 << 20)

enum want { STAY, DOWN, UP };

/* What is logged afterwards: one line for adjacent layers that moved the same way. */
enum move { CACHE_DOWN, LAYER_DOWN, LAYER_UP, CACHE_UP, MOVES };
enum { LINES_MAX = 8 }; /* a step goes one way; moves that do not fit are not logged */
struct notes {
    char why[96], trouble[200];
    int count;
    struct {
        enum move move;
        uint32_t first, last; /* layers */
    } lines[LINES_MAX];
};

rf_status rf_ladder_init(struct rf_engine *engine, const struct rf_engine_params *params) {
    pthread_rwlockattr_t attributes;
    pthread_rwlockattr_init(&attributes);
    /* Sessions that run without a pause must not lock out a step. */
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    int failed = pthread_rwlock_init(&engine->gate, &attributes);
    pthread_rwlockattr_destroy(&attributes);
    engine->ladder.watch_ns = params->watch_ns ? params->watch_ns : WATCH_NS;
    engine->ladder.hold_runs = HOLD_RUNS;
    return failed ? rf_fail(RF_E_NO_MEMORY, "no host memory for an engine's lock") : RF_OK;
}

/* ---- checking ---- */

/* The layer whose cache can move down, or up. The number of layers: there is none. */
static uint32_t cache_to_lower(const struct rf_engine *engine) {
    uint32_t layer = rf_engine_first_device_layer(engine);
    while (layer < engine->hparams.layers && engine->caches[layer].pinned) layer++;
    return layer;
}
static uint32_t cache_to_raise(const struct rf_engine *engine) {
    for (uint32_t layer = engine->hparams.layers; layer-- > rf_engine_first_device_layer(engine);)
        if (engine->caches[layer].pinned) return layer;
    return engine->hparams.layers;
}

/* How many bytes the next step up takes on the device; 0: there is no such step. */
static uint64_t bytes_up(const struct rf_engine *engine) {
    if (engine->device_layers < engine->target_layers) return rf_engine_raise_bytes(engine);
    return cache_to_raise(engine) < engine->hparams.layers ? rf_engine_layer_cache_bytes(engine) : 0;
}

static uint64_t margin(const struct rf_engine *engine, const struct rf_pressure *pressure) {
    uint64_t share = pressure->total_bytes / MARGIN_SHARE;
    share = RF_MIN(RF_MAX(share, MARGIN_LEAST), MARGIN_MAX);
    return RF_MAX(share, rf_engine_scratch_bytes(engine));
}

static uint64_t missing(const struct rf_pressure *pressure) {
    return rf_sub_saturate(pressure->floor_bytes, pressure->free_bytes);
}

static bool look(struct rf_engine *engine, struct rf_pressure *pressure) {
    struct rf_saved_error saved;
    rf_error_save(&saved);
    bool good = rf_device_pressure(engine->device, pressure) == RF_OK;
    if (!good) rf_error_restore(&saved); /* a lost device is reported when it is used */
    return good;
}

static enum want judge(struct rf_engine *engine, const struct rf_pressure *pressure) {
    uint32_t runs = atomic_load(&engine->ladder.runs);
    if (missing(pressure)) {
        bool something = engine->device_layers || pressure->idle_bytes;
        return something && runs >= engine->ladder.stuck_runs ? DOWN : STAY;
    }
    if (runs < engine->ladder.hold_runs) return STAY;
    uint64_t bytes = bytes_up(engine), need;
    return bytes && !rf_add_overflows(bytes, margin(engine, pressure), &need) && pressure->room_bytes >= need ? UP
                                                                                                              : STAY;
}

/* ---- moving ---- */

static void note(struct notes *notes, enum move move, uint32_t layer) {
    int last = notes->count - 1;
    if (last >= 0 && notes->lines[last].move == move && layer == notes->lines[last].last + 1) {
        notes->lines[last].last = layer;
    } else if (last >= 0 && notes->lines[last].move == move && layer + 1 == notes->lines[last].first) {
        notes->lines[last].first = layer;
    } else if (notes->count < LINES_MAX) {
        notes->lines[notes->count].move = move;
        notes->lines[notes->count].first = notes->lines[notes->count].last = layer;
        notes->count++;
    }
}

static void log_moves(struct rf_engine *engine, const struct notes *notes) {
    static const char *const where[MOVES] = {[CACHE_DOWN] = "moved to the host",
                                             [LAYER_DOWN] = "moved to the CPU",
                                             [LAYER_UP] = "moved back to the GPU",
                                             [CACHE_UP] = "moved back to the GPU"};
    struct rf_log *log = &engine->runtime->log;
    for (int i = 0; i < notes->count; i++) {
        enum move move = notes->lines[i].move;
        uint32_t first = notes->lines[i].first, last = notes->lines[i].last;
        bool cache = move == CACHE_DOWN || move == CACHE_UP;
        if (first == last)
            rf_logf(log, RF_LOG_WARN, "%s: layer %u%s %s", notes->why, first, cache ? "'s cache" : "", where[move]);
        else
            rf_logf(log, RF_LOG_WARN, "%s: %slayers %u to %u %s", notes->why, cache ? "the caches of " : "", first,
                    last, where[move]);
    }
    if (notes->trouble[0]) rf_logf(log, RF_LOG_WARN, "%s: %s", notes->why, notes->trouble);
}

/* Destroys runners of all sessions, then returns their memory to the driver.
 * False: the driver cannot take it back, because something on the device does not finish. */
static bool retire_runners(struct rf_engine *engine, enum rf_retire which) {
    bool finished = true; /* after one wait in vain the others are not waited for: nobody may enter meanwhile */
    if (which == RF_RETIRE_LONG && !atomic_load(&engine->long_tokens)) return true;
    pthread_mutex_lock(&engine->mutex);
    for (uint32_t slot = 0; slot < engine->slot_count; slot++)
        if (engine->sessions[slot]) finished = rf_session_retire(engine->sessions[slot], which, finished) && finished;
    pthread_mutex_unlock(&engine->mutex);
    return !engine->device || (finished && rf_device_trim(engine->device, RF_TIMEOUT_DEFAULT) == RF_OK);
}

#if RF_CHECKS >= 2
static bool runners_are_gone(struct rf_engine *engine, const char **why) {
    size_t left = 0;
    pthread_mutex_lock(&engine->mutex);
    for (uint32_t slot = 0; slot < engine->slot_count; slot++)
        if (engine->sessions[slot]) left += engine->sessions[slot]->runner_count;
    pthread_mutex_unlock(&engine->mutex);
    RF_INVALID_UNLESS(!left, "a session has a runner of the placement that is about to change");
    return true;
}
#endif

/* Moves one thing down; no runner may be left. False: nothing can be moved. */
static bool lower(struct rf_engine *engine, bool *pinned_full, struct notes *notes) {
    rf_assert_valid(runners_are_gone, engine);
    uint32_t layers = engine->hparams.layers, layer = *pinned_full ? layers : cache_to_lower(engine);
    rf_status status = RF_E_NO_MEMORY;
    if (layer < layers) {
        status = rf_engine_lower_cache(engine, layer);
        if (status) *pinned_full = true; /* then layers move instead */
    }
    if (!status) {
        note(notes, CACHE_DOWN, layer);
    } else if (engine->device_layers) {
        layer = rf_engine_first_device_layer(engine);
        status = rf_engine_lower_layer(engine);
        if (!status)
            note(notes, LAYER_DOWN, layer);
        else
            snprintf(notes->trouble, sizeof notes->trouble, "layer %u should move to the CPU and cannot: %.140s",
                     layer, rf_error_text());
    }
    if (!status) engine->ladder.down++;
    return !status;
}

static void end_step(struct rf_engine *engine, enum want went) {
    struct rf_ladder *ladder = &engine->ladder;
    uint32_t runs = atomic_exchange(&ladder->runs, 0);
    engine->epoch++;
    ladder->stuck_runs = 0;
    if (went == DOWN) {
        /* A step up that is undone this soon was too much. */
        bool soon = ladder->rose && runs < 4 * ladder->hold_runs;
        ladder->hold_runs = soon ? RF_MIN(4 * ladder->hold_runs, (uint32_t)HOLD_RUNS_MAX) : HOLD_RUNS;
    }
    ladder->rose = went == UP;
}

/* Moves things down until free memory is above the floor, with room for the runners. */
static void step_down(struct rf_engine *engine, struct rf_pressure pressure, struct notes *notes) {
    char size[32];
    snprintf(notes->why, sizeof notes->why, "the GPU's free memory fell under the floor by %s",
             rf_format_bytes(missing(&pressure), size, sizeof size));
    /* Often the pool's memory and old scratch memory are enough, or that of long chunks. */
    bool idle = retire_runners(engine, RF_RETIRE_UNUSED);
    if (idle && look(engine, &pressure) && !missing(&pressure)) return;
    idle = idle && retire_runners(engine, RF_RETIRE_LONG);
    if (idle && look(engine, &pressure) && !missing(&pressure)) return;
    uint64_t held = pressure.held_bytes, runners = 0;
    bool moved = false, pinned_full = engine->integrated; /* an integrated GPU's memory is the host's */
    if (idle && engine->device_layers && retire_runners(engine, RF_RETIRE_ALL) && look(engine, &pressure)) {
        runners = rf_sub_saturate(held, pressure.held_bytes);
        while (pressure.free_bytes < pressure.floor_bytes + runners && lower(engine, &pinned_full, notes)) {
            moved = true;
            if (rf_device_trim(engine->device, RF_TIMEOUT_DEFAULT) || !look(engine, &pressure)) break;
        }
    }
    if (moved)
        end_step(engine, DOWN);
    else
        engine->ladder.stuck_runs = atomic_load(&engine->ladder.runs) + STUCK_RUNS;
}

static void step_up(struct rf_engine *engine, const struct rf_pressure *pressure, struct notes *notes) {
    uint64_t spare = rf_sub_saturate(pressure->room_bytes, margin(engine, pressure)), bytes = bytes_up(engine);
    rf_status status = RF_OK;
    bool moved = false;
    snprintf(notes->why, sizeof notes->why, "the GPU has room again");
    if (!bytes || bytes > spare || !retire_runners(engine, RF_RETIRE_ALL)) return;
    for (; bytes && bytes <= spare && !status; bytes = bytes_up(engine)) {
        rf_assert_valid(runners_are_gone, engine);
        bool whole = engine->device_layers < engine->target_layers;
        uint32_t layer = whole ? rf_engine_first_device_layer(engine) - 1 : cache_to_raise(engine);
        status = whole ? rf_engine_raise_layer(engine) : rf_engine_raise_cache(engine, layer);
        if (status) {
            snprintf(notes->trouble, sizeof notes->trouble, "layer %u%s should move back and cannot: %.140s", layer,
                     whole ? "" : "'s cache", rf_error_text());
        } else {
            note(notes, whole ? LAYER_UP : CACHE_UP, layer);
            engine->ladder.up++;
            moved = true;
            spare -= bytes;
        }
    }
    if (moved) end_step(engine, UP);
    if (status) {
        engine->ladder.hold_runs = RF_MIN(4 * engine->ladder.hold_runs, (uint32_t)HOLD_RUNS_MAX);
        atomic_store(&engine->ladder.runs, 0);
    }
    /* Freed pinned memory waits for a quiet moment, and this is one. */
    rf_device_trim(engine->device, RF_TIMEOUT_DEFAULT);
}

/* ---- the gate ---- */

static bool due(struct rf_engine *engine) {
    struct rf_ladder *ladder = &engine->ladder;
    if (!engine->device || ladder->watch_ns < 0) return false;
    int64_t now = rf_now_ns(), before = atomic_load(&ladder->looked_ns);
    return now - before >= ladder->watch_ns && atomic_compare_exchange_strong(&ladder->looked_ns, &before, now);
}

void rf_ladder_enter_quietly(struct rf_engine *engine) {
    pthread_rwlock_rdlock(&engine->gate);
}

void rf_ladder_enter(struct rf_engine *engine) {
    struct rf_pressure pressure;
    rf_ladder_enter_quietly(engine);
    atomic_fetch_add(&engine->ladder.runs, 1);
    if (!due(engine) || !look(engine, &pressure) || judge(engine, &pressure) == STAY) return;
    struct notes notes = {.count = 0};
    struct rf_saved_error saved;
    rf_error_save(&saved);
    rf_ladder_leave(engine);
    pthread_rwlock_wrlock(&engine->gate);
    /* Another thread may have made the step already. */
    enum want want = look(engine, &pressure) ? judge(engine, &pressure) : STAY;
    if (want == DOWN) step_down(engine, pressure, &notes);
    if (want == UP) step_up(engine, &pressure, &notes);
    pthread_rwlock_unlock(&engine->gate);
    log_moves(engine, &notes);
    rf_error_restore(&saved);
    rf_ladder_enter_quietly(engine);
}

void rf_ladder_leave(struct rf_engine *engine) {
    pthread_rwlock_unlock(&engine->gate);
}

bool rf_ladder_relieve(struct rf_engine *engine, uint64_t epoch) {
    struct rf_pressure before, after;
    struct notes notes = {.why = "the GPU has no room for a run"};
    struct rf_saved_error saved;
    if (!engine->device || engine->ladder.watch_ns < 0) return false;
    rf_error_save(&saved);
    pthread_rwlock_wrlock(&engine->gate);
    bool gained = engine->epoch != epoch;
    if (!gained && engine->device_layers && look(engine, &before)) {
        retire_runners(engine, RF_RETIRE_UNUSED);
        gained = look(engine, &after) && after.held_bytes < before.held_bytes;
        if (!gained && retire_runners(engine, RF_RETIRE_LONG))
            gained = look(engine, &after) && after.held_bytes < before.held_bytes;
        if (!gained && retire_runners(engine, RF_RETIRE_ALL)) {
            bool pinned_full = engine->integrated;
            gained = lower(engine, &pinned_full, &notes);
            if (gained) {
                rf_device_trim(engine->device, RF_TIMEOUT_DEFAULT);
                end_step(engine, DOWN);
            }
        }
    }
    pthread_rwlock_unlock(&engine->gate);
    log_moves(engine, &notes);
    rf_error_restore(&saved);
    return gained;
}

static void retire_alone(struct rf_engine *engine, enum rf_retire which) {
    struct rf_saved_error saved;
    rf_error_save(&saved);
    pthread_rwlock_wrlock(&engine->gate);
    retire_runners(engine, which);
    pthread_rwlock_unlock(&engine->gate);
    rf_error_restore(&saved);
}

bool rf_ladder_relieve_host(struct rf_engine *engine) {
    uint64_t before = rf_host_used(&engine->runtime->host);
    retire_alone(engine, RF_RETIRE_UNUSED);
    return rf_host_used(&engine->runtime->host) < before;
}

bool rf_ladder_relieve_long(struct rf_engine *engine) {
    uint64_t before = atomic_load(&engine->long_tokens);
    if (before) retire_alone(engine, RF_RETIRE_LONG);
    return atomic_load(&engine->long_tokens) < before;
}
