/* Runs a launch: block after block, a block's lanes as fibers that take turns on the stream's thread.
 *
 * A lane runs until it returns or needs others: a barrier, a shuffle, a ballot. Only then does another lane get its
 * turn, and only then does a lane need a stack of its own: lanes that never wait run one after the other on one
 * fiber. The last lane to arrive settles what the others wait for. With shuffle= the next lane is drawn from a seed
 * at every such point, which is what finds lanes that race inside a block.
 *
 * Invariants: a lane is queued, running, waiting or done, and the queue holds exactly the queued ones; waves are runs
 * of 'wave' lanes; a barrier wants every lane of the block, except that whole waves may have returned; a wave service
 * wants every lane of its wave that has not returned. If nobody can run and somebody waits, the kernel has diverged:
 * that is a launch failure (719) with a message, not a hang. This is asserted where lanes enter and leave the queue,
 * and where a barrier or wave service is settled. */
#include "sim/sim.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern void __asan_poison_memory_region(void const volatile *address, size_t bytes) __attribute__((weak));
extern void __asan_unpoison_memory_region(void const volatile *address, size_t bytes) __attribute__((weak));
extern void __tsan_acquire(void *address) __attribute__((weak));

#define STACK_BYTES ((size_t)(64 << 10))
#define STACK_BYTES_CHECKED ((size_t)(256 << 10)) /* address sanitizer widens frames */
#define MAX_SITES 64
#define CANARY UINT64_C(0x5afe57ac5afe57ac)
#define POISON_WORD 0x7fc0deadu /* a NaN as a float, a large number as an integer */

enum lane_state { QUEUED, RUNNING, AT_BARRIER, AT_SHUFFLE, AT_BALLOT, DONE };
static const char *const state_names[] = {"ready",        "running",     "in a barrier",
                                          "in a shuffle", "in a ballot", "returned"};

struct lane {
    struct rfk_lane place;
    struct sim_fiber *fiber; /* NULL: not begun, or done */
    enum lane_state state;
    uint32_t value, source;
    uint64_t answer;
};

struct wave {
    uint32_t size, live, waiting; /* waiting: in a wave service */
};

struct sim_executor {
    struct sim_device *device;
    uint64_t random;
    struct sim_fiber thread; /* the stack of the stream's thread */
    struct sim_fiber *fibers[SIM_MAX_THREADS];
    uint32_t fiber_count;
    struct sim_fiber *idle;
    size_t stack_bytes;

    const struct sim_launch *launch;
    uint32_t wave_size, lane_count, wave_count;
    uint32_t live, at_barrier;
    struct lane lanes[SIM_MAX_THREADS];
    struct wave waves[SIM_MAX_THREADS / 32];
    uint16_t queue[SIM_MAX_THREADS]; /* a ring */
    uint32_t queue_first, queue_count;
    uint32_t current;
    bool in_kernel;
    uint32_t idle_turns; /* how long a lane has been spinning alone */

    struct {
        const void *site;
        void *memory;
        size_t bytes;
    } sites[MAX_SITES];
    uint32_t site_count;
    size_t shared_used;
    size_t shared_limit; /* static and dynamic together */
    char *shared;        /* SIM_SHARED_BYTES, static sites from the front */
    char *dynamic;
    size_t dynamic_capacity;
    char *signal_stack;

    int fault;
    char why[400];
};

static _Thread_local struct sim_executor *executor; /* per stream thread */

static void fiber_body(void *user);
static void run_block(struct sim_executor *e, struct rfk_dim block);
static void install_fault_handler(void);

static uint64_t greatest_common_divisor(uint64_t a, uint64_t b) {
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

int sim_execute(struct sim_executor *e, const struct sim_launch *launch) {
    struct rfk_dim block = launch->block;
    e->launch = launch;
    e->wave_size = (uint32_t)launch->table->wave;
    e->lane_count = block.x * block.y * block.z;
    e->wave_count = (e->lane_count + e->wave_size - 1) / e->wave_size;
    e->fault = 0;
    if (launch->shared_bytes > e->dynamic_capacity) {
        char *grown = realloc(e->dynamic, launch->shared_bytes);
        if (!grown) return SIM_OUT_OF_RESOURCES;
        e->dynamic = grown;
        e->dynamic_capacity = launch->shared_bytes;
    }
    uint32_t i = 0;
    for (uint32_t z = 0; z < block.z; z++)
        for (uint32_t y = 0; y < block.y; y++)
            for (uint32_t x = 0; x < block.x; x++, i++)
                e->lanes[i].place = (struct rfk_lane){
                    .thread = {x, y, z}, .block_dim = block, .grid_dim = launch->grid, .lane = i % e->wave_size};
    uint64_t blocks = (uint64_t)launch->grid.x * launch->grid.y * launch->grid.z, step = 1, first = 0;
    if (sim.config.shuffle) {
        /* Also another order of blocks: a walk whose step has no factor in common with their number. */
        first = sim_random(&e->random) % blocks;
        do step = 1 + sim_random(&e->random) % blocks;
        while (greatest_common_divisor(step, blocks) != 1);
    }
    for (uint64_t n = 0, block_index = first; n < blocks; n++, block_index = (block_index + step) % blocks) {
        struct rfk_dim at = {.x = (uint32_t)(block_index % launch->grid.x),
                             .y = (uint32_t)(block_index / launch->grid.x % launch->grid.y),
                             .z = (uint32_t)(block_index / launch->grid.x / launch->grid.y)};
        run_block(e, at);
        if (atomic_load_explicit(&e->device->lost, memory_order_relaxed)) return SIM_OK;
        if (e->fault) {
            sim_message("kernel %s, block (%u, %u, %u): %s", launch->kernel->name, at.x, at.y, at.z, e->why);
            return e->fault;
        }
    }
    return SIM_OK;
}

/* ---- lanes taking turns ---- */

static void enqueue(struct sim_executor *e, uint32_t lane) {
    e->lanes[lane].state = QUEUED;
    e->queue[(e->queue_first + e->queue_count++) % SIM_MAX_THREADS] = (uint16_t)lane;
    rf_assert(lane < e->lane_count && e->queue_count <= e->lane_count);
}

/* Placed ahead of the others: a wave that can continue does so while its stacks are in the cache, and its fibers are
 * soon free again. */
static void enqueue_first(struct sim_executor *e, uint32_t lane) {
    e->lanes[lane].state = QUEUED;
    e->queue_first = (e->queue_first + SIM_MAX_THREADS - 1) % SIM_MAX_THREADS;
    e->queue_count++;
    e->queue[e->queue_first] = (uint16_t)lane;
    rf_assert(lane < e->lane_count && e->queue_count <= e->lane_count);
}

/* The lane to run next; -1: none can run. */
static int dequeue(struct sim_executor *e) {
    if (!e->queue_count) return -1;
    uint16_t *first = &e->queue[e->queue_first % SIM_MAX_THREADS];
    if (sim.config.shuffle) {
        uint16_t *drawn = &e->queue[(e->queue_first + sim_random(&e->random) % e->queue_count) % SIM_MAX_THREADS];
        uint16_t swapped = *first;
        *first = *drawn;
        *drawn = swapped;
    }
    e->queue_first = (e->queue_first + 1) % SIM_MAX_THREADS;
    e->queue_count--;
    rf_assert(*first < e->lane_count && e->lanes[*first].state == QUEUED);
    return *first;
}

static struct sim_fiber *take_fiber(struct sim_executor *e) {
    struct sim_fiber *fiber = e->idle;
    if (fiber) {
        e->idle = fiber->next_idle;
        return fiber;
    }
    fiber = calloc(1, sizeof *fiber);
    char *stack =
        mmap(NULL, e->stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!fiber || stack == MAP_FAILED) {
        free(fiber);
        return NULL;
    }
    *(uint64_t *)(void *)stack = CANARY;
    /* Staggered, because stacks that end at equal offsets would all compete for the same few cache lines. */
    size_t usable = e->stack_bytes - e->fiber_count % 32 * 256;
    if (!sim_fiber_init(fiber, stack, usable, fiber_body, e)) {
        munmap(stack, e->stack_bytes);
        free(fiber);
        return NULL;
    }
    e->fibers[e->fiber_count++] = fiber;
    return fiber;
}

/* Ends the block: called from a fiber, which is never switched to again, or on the thread's own stack. */
static void __attribute__((format(printf, 3, 4))) give_up(struct sim_executor *e, int code, const char *format, ...) {
    if (!e->fault) {
        va_list args;
        va_start(args, format);
        vsnprintf(e->why, sizeof e->why, format, args);
        va_end(args);
        e->fault = code;
    }
    struct sim_fiber *fiber = e->lanes[e->current].fiber;
    if (fiber) sim_fiber_switch(fiber, &e->thread);
}

/* Switches from the fiber 'from', which may be a waiting lane or an idle fiber, to 'lane'. */
static void switch_to_lane(struct sim_executor *e, struct sim_fiber *from, uint32_t next) {
    struct lane *lane = &e->lanes[next];
    struct sim_fiber *fiber = lane->fiber ? lane->fiber : take_fiber(e);
    if (!fiber) {
        give_up(e, SIM_LAUNCH_FAILURE, "no memory for a lane's stack");
        return;
    }
    e->current = next;
    lane->fiber = fiber;
    lane->state = RUNNING;
    e->launch->table->set_lane(&lane->place);
    if (fiber != from) sim_fiber_switch(from, fiber);
}

static void report_divergence(struct sim_executor *e) {
    uint32_t counts[DONE + 1] = {0};
    for (uint32_t i = 0; i < e->lane_count; i++) counts[e->lanes[i].state]++;
    give_up(e, SIM_LAUNCH_FAILURE,
            "lanes diverged: of %u lanes %u wait in a barrier, %u in a shuffle, %u in a ballot, and %u have returned",
            e->lane_count, counts[AT_BARRIER], counts[AT_SHUFFLE], counts[AT_BALLOT], counts[DONE]);
}

/* Lets the running lane wait; returns when it is its turn again. */
static void wait_turn(struct sim_executor *e) {
    struct lane *lane = &e->lanes[e->current];
    int next = dequeue(e);
    if (next < 0) {
        report_divergence(e);
        return;
    }
    switch_to_lane(e, lane->fiber, (uint32_t)next);
}

/* ---- what lanes wait for ---- */

static void settle_barrier(struct sim_executor *e) {
    rf_assert(e->at_barrier <= e->live && e->live <= e->lane_count);
    if (!e->live || e->at_barrier != e->live) return;
    for (uint32_t w = 0; w < e->wave_count; w++)
        if (e->waves[w].live && e->waves[w].live != e->waves[w].size) {
            give_up(e, SIM_LAUNCH_FAILURE,
                    "divergent barrier: in wave %u, %u of %u lanes wait in it and the others have returned", w,
                    e->waves[w].live, e->waves[w].size);
            return;
        }
    e->at_barrier = 0;
    for (uint32_t i = 0; i < e->lane_count; i++)
        if (e->lanes[i].state == AT_BARRIER) enqueue(e, i);
}

static void settle_wave(struct sim_executor *e, uint32_t wave) {
    struct wave *w = &e->waves[wave];
    rf_assert(w->waiting <= w->live && w->live <= w->size && w->size <= e->wave_size);
    if (!w->live || w->waiting != w->live) return;
    struct lane *lanes = &e->lanes[wave * e->wave_size];
    enum lane_state kind = DONE;
    uint64_t ballot = 0;
    for (uint32_t i = 0; i < w->size; i++) {
        if (lanes[i].state == DONE) continue;
        if (kind != DONE && lanes[i].state != kind) {
            give_up(e, SIM_LAUNCH_FAILURE, "lanes of wave %u diverged: one is %s, another %s", wave,
                    state_names[kind], state_names[lanes[i].state]);
            return;
        }
        kind = lanes[i].state;
        if (kind == AT_BALLOT && lanes[i].value) ballot |= UINT64_C(1) << i;
    }
    w->waiting = 0;
    /* All answers are computed before any lane runs, because a lane that runs may already write its next value. */
    for (uint32_t i = 0; i < w->size; i++) {
        if (lanes[i].state == DONE) continue;
        uint32_t source = lanes[i].source & (e->wave_size - 1);
        bool there = source < w->size && lanes[source].state != DONE;
        lanes[i].answer = kind == AT_BALLOT ? ballot : there ? lanes[source].value : POISON_WORD;
    }
    for (uint32_t i = w->size; i-- > 0;)
        if (lanes[i].state == kind) enqueue_first(e, wave * e->wave_size + i);
}

/* ---- the services ---- */

static void barrier(void) {
    struct sim_executor *e = executor;
    e->lanes[e->current].state = AT_BARRIER;
    e->at_barrier++;
    settle_barrier(e);
    wait_turn(e);
}

static uint64_t wave_service(enum lane_state state, uint32_t value, uint32_t source) {
    struct sim_executor *e = executor;
    uint32_t index = e->current, wave = index / e->wave_size;
    struct lane *lane = &e->lanes[index];
    lane->state = state;
    lane->value = value;
    lane->source = source;
    e->waves[wave].waiting++;
    settle_wave(e, wave);
    wait_turn(e);
    return lane->answer;
}

static uint32_t shuffle(uint32_t value, uint32_t source_lane) {
    return (uint32_t)wave_service(AT_SHUFFLE, value, source_lane);
}

static uint64_t ballot(int predicate) {
    return wave_service(AT_BALLOT, predicate != 0, 0);
}

static void poison(char *memory, size_t bytes) {
    uint32_t word = POISON_WORD;
    if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(memory, bytes);
    for (size_t i = 0; i < bytes; i += sizeof word)
        memcpy(memory + i, &word, bytes - i < sizeof word ? bytes - i : sizeof word);
}

static void *shared_static(const void *site, size_t bytes, size_t align) {
    struct sim_executor *e = executor;
    for (uint32_t i = 0; i < e->site_count; i++)
        if (e->sites[i].site == site) return e->sites[i].memory;
    size_t offset = (e->shared_used + align - 1) / align * align;
    if (e->site_count == MAX_SITES || offset > SIM_SHARED_BYTES || bytes > SIM_SHARED_BYTES - offset ||
        offset + bytes + e->launch->shared_bytes > e->shared_limit) {
        give_up(e, SIM_LAUNCH_FAILURE, "more than %zu bytes (or %d arrays) of shared memory", e->shared_limit,
                MAX_SITES);
        return NULL;
    }
    char *memory = e->shared + offset;
    poison(memory, bytes);
    e->sites[e->site_count].site = site;
    e->sites[e->site_count].memory = memory;
    e->sites[e->site_count++].bytes = bytes;
    /* Under address sanitizer there is a poisoned gap between arrays; otherwise they are packed as on a GPU. */
    e->shared_used = offset + bytes + (__asan_poison_memory_region ? 32 : 0);
    return memory;
}

static void *shared_dynamic(void) {
    return executor->dynamic;
}

static uint64_t clock_ns(void) {
    return (uint64_t)sim_now_ns();
}

static void relax(void) {
    struct sim_executor *e = executor;
    if (atomic_load_explicit(&e->device->lost, memory_order_relaxed)) {
        give_up(e, atomic_load(&e->device->lost), "stopped: the device was lost");
        return;
    }
    if (!e->queue_count) {
        /* No other lane of this block can run: yields the processor to other streams, after a while for longer. */
        if (++e->idle_turns < 64)
            sched_yield();
        else
            sim_sleep_ns(20000);
        return;
    }
    enqueue(e, e->current);
    wait_turn(e);
}

static void fail(const char *why) {
    give_up(executor, SIM_LAUNCH_FAILURE, "the kernel ended itself: %s", why);
}

const struct rfk_services sim_services = {
    .barrier = barrier,
    .shuffle = shuffle,
    .ballot = ballot,
    .shared_static = shared_static,
    .shared_dynamic = shared_dynamic,
    .clock_ns = clock_ns,
    .relax = relax,
    .fail = fail,
};

/* ---- blocks ---- */

static void finish_lane(struct sim_executor *e, struct sim_fiber *fiber) {
    uint32_t index = e->current, wave = index / e->wave_size;
    struct lane *lane = &e->lanes[index];
    if (*(uint64_t *)(void *)fiber->stack != CANARY)
        give_up(e, SIM_LAUNCH_FAILURE, "a lane used more than %zu bytes of stack", e->stack_bytes);
    lane->state = DONE;
    e->live--;
    e->waves[wave].live--;
    /* Other lanes may have been waiting for this one only. */
    settle_wave(e, wave);
    settle_barrier(e);
    lane->fiber = NULL;
}

/* What a fiber runs: lanes, one after the other. */
static void fiber_body(void *user) {
    struct sim_executor *e = user;
    struct sim_fiber *fiber = e->lanes[e->current].fiber;
    sim_fiber_arrived(fiber);
    for (;;) {
        e->launch->kernel->run(e->launch->args);
        finish_lane(e, fiber);
        int next = dequeue(e);
        if (next >= 0 && !e->lanes[next].fiber) {
            struct lane *lane = &e->lanes[next];
            e->current = (uint32_t)next;
            lane->fiber = fiber;
            lane->state = RUNNING;
            e->launch->table->set_lane(&lane->place);
            continue;
        }
        fiber->next_idle = e->idle;
        e->idle = fiber;
        if (next >= 0) {
            switch_to_lane(e, fiber, (uint32_t)next);
        } else {
            if (e->live) report_divergence(e);
            sim_fiber_switch(fiber, &e->thread);
        }
    }
}

/* After a block that was given up, every fiber starts over. */
static void reset_fibers(struct sim_executor *e) {
    e->idle = NULL;
    for (uint32_t i = 0; i < e->fiber_count; i++) {
        struct sim_fiber *fiber = e->fibers[i];
        if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(fiber->stack, fiber->stack_bytes);
        *(uint64_t *)(void *)fiber->stack = CANARY;
        sim_fiber_init(fiber, fiber->stack, fiber->stack_bytes, fiber_body, e);
        fiber->next_idle = e->idle;
        e->idle = fiber;
    }
}

static void run_block(struct sim_executor *e, struct rfk_dim block) {
    e->live = e->lane_count;
    e->at_barrier = 0;
    e->queue_first = e->queue_count = 0;
    e->site_count = 0;
    e->idle_turns = 0;
    e->shared_used = 0;
    if (__asan_poison_memory_region) __asan_poison_memory_region(e->shared, SIM_SHARED_BYTES);
    if (e->launch->shared_bytes) poison(e->dynamic, e->launch->shared_bytes);
    for (uint32_t w = 0; w < e->wave_count; w++) {
        uint32_t left = e->lane_count - w * e->wave_size;
        uint32_t size = left < e->wave_size ? left : e->wave_size;
        e->waves[w] = (struct wave){.size = size, .live = size};
    }
    for (uint32_t i = 0; i < e->lane_count; i++) {
        e->lanes[i].place.block = block;
        e->lanes[i].fiber = NULL;
        enqueue(e, i);
    }
    executor = e;
    e->in_kernel = true;
    int first = dequeue(e);
    switch_to_lane(e, &e->thread, (uint32_t)first);
    e->in_kernel = false;
    if (e->fault) reset_fibers(e);
}

/* ---- a lane that touches memory it does not have ---- */

static struct sigaction earlier[2]; /* SIGSEGV, SIGBUS */

static void on_fault(int number, siginfo_t *info, void *context) {
    struct sim_executor *e = executor;
    if (e && e->in_kernel)
        give_up(e, SIM_ILLEGAL_ADDRESS, "lane (%u, %u, %u) touched address %p", e->lanes[e->current].place.thread.x,
                e->lanes[e->current].place.thread.y, e->lanes[e->current].place.thread.z, info->si_addr);
    struct sigaction *before = &earlier[number == SIGBUS];
    if (before->sa_flags & SA_SIGINFO) {
        before->sa_sigaction(number, info, context);
    } else if (before->sa_handler != SIG_DFL && before->sa_handler != SIG_IGN) {
        before->sa_handler(number);
    } else {
        signal(number, SIG_DFL); /* the fault repeats, now with its default effect */
    }
}

static void install_handler_once(void) {
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
    action.sa_sigaction = on_fault;
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &earlier[0]);
    sigaction(SIGBUS, &action, &earlier[1]);
}

/* Under a sanitizer its own handler stays, because its report says more. */
static void install_fault_handler(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (!__asan_poison_memory_region && !__tsan_acquire) pthread_once(&once, install_handler_once);
}

/* ---- life ---- */

struct sim_executor *sim_executor_create(struct sim_device *device, uint64_t serial) {
    const size_t signal_stack_bytes = 64 << 10;
    struct sim_executor *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    e->shared = aligned_alloc(256, SIM_SHARED_BYTES);
    e->signal_stack = malloc(signal_stack_bytes);
    if (!e->shared || !e->signal_stack) {
        free(e->shared);
        free(e->signal_stack);
        free(e);
        return NULL;
    }
    e->device = device;
    e->shared_limit = sim_shared_bytes(device->config->arch);
    e->random = sim.config.shuffle_seed + serial * UINT64_C(0xd1342543de82ef95);
    e->stack_bytes = __asan_poison_memory_region ? STACK_BYTES_CHECKED : STACK_BYTES;
    sim_fiber_adopt_thread(&e->thread);
    install_fault_handler();
    if (!__asan_poison_memory_region && !__tsan_acquire) {
        stack_t stack = {.ss_sp = e->signal_stack, .ss_size = signal_stack_bytes};
        sigaltstack(&stack, NULL);
    }
    return e;
}

void sim_executor_destroy(struct sim_executor *e) {
    if (!__asan_poison_memory_region && !__tsan_acquire) {
        stack_t none = {.ss_flags = SS_DISABLE};
        sigaltstack(&none, NULL);
    }
    for (uint32_t i = 0; i < e->fiber_count; i++) {
        if (__asan_unpoison_memory_region)
            __asan_unpoison_memory_region(e->fibers[i]->stack, e->fibers[i]->stack_bytes);
        munmap(e->fibers[i]->stack, e->stack_bytes);
#if SIM_FIBERS_BY_UCONTEXT
        free(e->fibers[i]->context);
#endif
        free(e->fibers[i]);
    }
    if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(e->shared, SIM_SHARED_BYTES);
    free(e->shared);
    free(e->dynamic);
    free(e->signal_stack);
    free(e);
    executor = NULL;
}
