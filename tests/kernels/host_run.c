/* See host_run.h. One block at a time, on the calling thread. */
#include "host_run.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <rocmforge/test.h>

enum { MAX_LANES = 1024, STACK_BYTES = 64 << 10, MAX_SITES = 16, SHARED_BYTES = 64 << 10 };
enum lane_state { LANE_READY, LANE_AT_BARRIER, LANE_IN_WAVE, LANE_DONE };

struct lane {
    ucontext_t context;
    enum lane_state state;
    uint32_t value, source; /* what it brings to a wave operation, and whose it wants */
    uint64_t result;
    bool ballot;
    struct rfk_lane place;
};

/* The block being run. Test executables run one at a time on one thread. */
static struct {
    const struct rfk_table *table;
    const struct rfk_kernel *kernel;
    void **args;
    ucontext_t scheduler;
    struct lane lanes[MAX_LANES];
    uint32_t count, current;
    unsigned char *stacks;
    struct {
        const void *site;
        unsigned char *memory;
    } sites[MAX_SITES];
    size_t site_count;
    void *dynamic;
    uint64_t ticks;
} run;

static void give_up(enum lane_state state) {
    struct lane *lane = &run.lanes[run.current];
    lane->state = state;
    swapcontext(&lane->context, &run.scheduler);
}

static void serve_barrier(void) {
    give_up(LANE_AT_BARRIER);
}

static uint64_t meet(uint32_t value, uint32_t source, bool ballot) {
    struct lane *lane = &run.lanes[run.current];
    lane->value = value;
    lane->source = source;
    lane->ballot = ballot;
    give_up(LANE_IN_WAVE);
    return lane->result;
}
static uint32_t serve_shuffle(uint32_t value, uint32_t source) {
    return (uint32_t)meet(value, source, false);
}
static uint64_t serve_ballot(int predicate) {
    return meet(predicate != 0, 0, true);
}

static void *serve_shared_static(const void *site, size_t bytes, size_t align) {
    for (size_t i = 0; i < run.site_count; i++)
        if (run.sites[i].site == site) return run.sites[i].memory;
    if (run.site_count == MAX_SITES) RF_FAIL("more than %d shared arrays in a kernel", MAX_SITES);
    unsigned char *memory = aligned_alloc(align < 64 ? 64 : align, (bytes + 63) / 64 * 64);
    memset(memory, 0xff, bytes); /* NaN in every type */
    run.sites[run.site_count].site = site;
    run.sites[run.site_count++].memory = memory;
    return memory;
}
static void *serve_shared_dynamic(void) {
    return run.dynamic;
}
static uint64_t serve_clock(void) {
    return run.ticks += 1000;
}
static void serve_relax(void) {
    give_up(LANE_READY);
}

static void serve_fail(const char *why) {
    RF_FAIL("the kernel ended itself: %s", why);
}

static const struct rfk_services services = {serve_barrier,        serve_shuffle, serve_ballot, serve_shared_static,
                                             serve_shared_dynamic, serve_clock,   serve_relax,  serve_fail};

static void lane_main(void) {
    run.kernel->run(run.args);
    give_up(LANE_DONE);
}

/* Lets the waves and the block that have met go on. Whether anything moved. */
static bool release(void) {
    uint32_t wave = (uint32_t)run.table->wave, at_barrier = 0, live = 0;
    bool moved = false;
    for (uint32_t first = 0; first < run.count; first += wave) {
        uint32_t last = first + wave < run.count ? first + wave : run.count, in_wave = 0, alive = 0;
        uint64_t votes = 0;
        for (uint32_t i = first; i < last; i++) {
            struct lane *lane = &run.lanes[i];
            alive += lane->state != LANE_DONE;
            in_wave += lane->state == LANE_IN_WAVE;
            at_barrier += lane->state == LANE_AT_BARRIER;
            if (lane->state == LANE_IN_WAVE && lane->value) votes |= UINT64_C(1) << (i - first);
        }
        live += alive;
        if (!in_wave || in_wave < alive) continue;
        for (uint32_t i = first; i < last; i++) {
            struct lane *lane = &run.lanes[i];
            if (lane->state != LANE_IN_WAVE) continue;
            lane->result = lane->ballot ? votes : run.lanes[first + lane->source].value;
            lane->state = LANE_READY;
        }
        moved = true;
    }
    if (live && at_barrier == live) {
        for (uint32_t i = 0; i < run.count; i++)
            if (run.lanes[i].state == LANE_AT_BARRIER) run.lanes[i].state = LANE_READY;
        moved = true;
    }
    return moved;
}

static const char *run_block(struct rfk_dim block, const struct host_launch *launch, struct rf_random *random) {
    uint32_t wave = (uint32_t)run.table->wave;
    run.count = launch->block.x * launch->block.y * launch->block.z;
    run.site_count = 0;
    if (run.dynamic) memset(run.dynamic, 0xff, launch->shared_bytes);
    for (uint32_t i = 0; i < run.count; i++) {
        struct lane *lane = &run.lanes[i];
        lane->state = LANE_READY;
        lane->place.thread = (struct rfk_dim){i % launch->block.x, i / launch->block.x % launch->block.y,
                                              i / launch->block.x / launch->block.y};
        lane->place.block = block;
        lane->place.block_dim = launch->block;
        lane->place.grid_dim = launch->grid;
        lane->place.lane = i % wave;
        getcontext(&lane->context);
        lane->context.uc_stack.ss_sp = run.stacks + (size_t)i * STACK_BYTES;
        lane->context.uc_stack.ss_size = STACK_BYTES;
        lane->context.uc_link = NULL;
        makecontext(&lane->context, lane_main, 0);
    }
    const char *problem = NULL;
    uint32_t done = 0;
    while (done < run.count && !problem) {
        bool moved = false;
        uint32_t shift = launch->seed ? (uint32_t)rf_random_below(random, run.count) : 0;
        for (uint32_t k = 0; k < run.count; k++) {
            run.current = (k + shift) % run.count;
            struct lane *lane = &run.lanes[run.current];
            if (lane->state != LANE_READY) continue;
            run.table->set_lane(&lane->place);
            swapcontext(&run.scheduler, &lane->context);
            done += lane->state == LANE_DONE;
            moved = true;
        }
        moved |= release();
        if (!moved) problem = "lanes wait for each other at different places";
    }
    for (size_t i = 0; i < run.site_count; i++) free(run.sites[i].memory);
    return problem;
}

const char *host_run(const struct rfk_table *table, const struct rfk_kernel *kernel, const struct host_launch *launch,
                     void **args) {
    uint32_t threads = launch->block.x * launch->block.y * launch->block.z;
    if (threads == 0 || threads > MAX_LANES || threads > kernel->max_threads) return "the block is too large";
    if (launch->shared_bytes > SHARED_BYTES) return "too much shared memory";
    struct rf_random random = {launch->seed};
    const char *problem = NULL;
    run.table = table;
    run.kernel = kernel;
    run.args = args;
    run.stacks = malloc((size_t)threads * STACK_BYTES);
    run.dynamic = launch->shared_bytes ? malloc(launch->shared_bytes) : NULL;
    for (uint32_t z = 0; z < launch->grid.z && !problem; z++)
        for (uint32_t y = 0; y < launch->grid.y && !problem; y++)
            for (uint32_t x = 0; x < launch->grid.x && !problem; x++)
                problem = run_block((struct rfk_dim){x, y, z}, launch, &random);
    free(run.stacks);
    free(run.dynamic);
    return problem;
}

const struct rfk_table *host_library(const char *path, int wave) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) RF_FAIL("%s", dlerror());
    rfk_table_fn table_of;
    void *symbol = dlsym(library, "rfk_table");
    RF_ASSERT(symbol != NULL);
    memcpy(&table_of, &symbol, sizeof table_of);
    const struct rfk_table *table = table_of(wave);
    RF_ASSERT(table != NULL);
    RF_ASSERT_INT(table->abi, RFK_ABI);
    RF_ASSERT_INT(table->wave, wave);
    table->bind(&services);
    return table;
}

const struct rfk_kernel *host_kernel(const struct rfk_table *table, const char *name) {
    for (uint32_t i = 0; i < table->count; i++)
        if (strcmp(table->kernels[i].name, name) == 0) return &table->kernels[i];
    RF_FAIL("the library has no kernel %s", name);
    return NULL;
}
