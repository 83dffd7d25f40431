/* What every driver call does first: counting, faults, initialisation, loss. Also the banned entry points, the
 * questions that tests may ask (rfsim.h), and the beginning and end of the process.
 *
 * Counting is exact: one call of one entry point is one count, whatever threads and streams do, so that a scenario on
 * one thread can be made to fail at its first, second, ... call. */
#include "sim/sim.h"

#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct sim sim = {.stats.least_free = UINT64_MAX};

const char *const sim_entry_names[SIM_ENTRY_COUNT] = {
#define SIM_NAME(name, flags) #name,
    SIM_ENTRIES(SIM_NAME)
#undef SIM_NAME
};
static const unsigned char entry_flags[SIM_ENTRY_COUNT] = {
#define SIM_FLAGS(name, flags) flags,
    SIM_ENTRIES(SIM_FLAGS)
#undef SIM_FLAGS
};

static _Thread_local int current_device;
static _Thread_local struct sim_fault work_fault;

static void configure(void);
static void spoil_rounding(void);
static int deliver(const struct sim_fault *fault);

int sim_enter(enum sim_entry entry) {
    if (atomic_load(&sim.forked)) return SIM_NOT_INITIALIZED; /* what real drivers return in a forked child */
    work_fault.kind = SIM_FAULT_NONE;
    struct sim_fault fault = {0};
    sim_lock(&sim.lock);
    if (!sim.configured) configure();
    sim.counts[entry]++;
    uint64_t calls = ++sim.stats.calls;
    for (int i = 0; i < sim.config.fault_count; i++) {
        const struct sim_fault *candidate = &sim.config.faults[i];
        uint64_t count = candidate->entry < 0 ? calls : sim.counts[entry];
        if (candidate->entry >= 0 && candidate->entry != (int)entry) continue;
        if (count == candidate->nth || (candidate->onwards && count > candidate->nth)) {
            fault = *candidate;
            sim.stats.faults++;
            break;
        }
    }
    if (sim.initialised) sim_desktop_tick(calls);
    bool bad = sim.config_bad, initialised = sim.initialised, rounding = sim.config.rounding;
    sim_unlock(&sim.lock);
    if (rounding) spoil_rounding();

    if (fault.kind != SIM_FAULT_NONE) {
        if (fault.in_work)
            work_fault = fault;
        else {
            int code = deliver(&fault);
            if (code) return code;
        }
    }
    unsigned flags = entry_flags[entry];
    if (bad) return entry == SIM_ENTRY_hipInit ? SIM_INVALID_VALUE : SIM_NOT_INITIALIZED;
    if ((flags & SIM_INIT) && !initialised) return SIM_NOT_INITIALIZED;
    if ((flags & SIM_CONTEXT) == SIM_CONTEXT) {
        struct sim_device *device = sim_current();
        if (!device) return SIM_NO_DEVICE;
        int lost = atomic_load(&device->lost);
        if (lost) return lost;
        if (!device->context) {
            sim_lock(&sim.lock);
            int code = sim_charge_context(device);
            sim_unlock(&sim.lock);
            return code;
        }
    }
    return SIM_OK;
}

struct sim_fault sim_take_work_fault(void) {
    struct sim_fault fault = work_fault;
    work_fault.kind = SIM_FAULT_NONE;
    return fault;
}

static void spoil_rounding(void) {
    fesetround(FE_UPWARD);
#if defined(__x86_64__)
    enum { FLUSH = 0x8040 }; /* results and operands */
    unsigned mode;
    __asm__ volatile("stmxcsr %0" : "=m"(mode));
    mode |= FLUSH;
    __asm__ volatile("ldmxcsr %0" : : "m"(mode));
#endif
}

/* ---- faults ---- */

/* After one of these errors the context of a real driver is gone: an uncorrectable memory error, a bad address, a
 * timeout, an assertion, and the exceptions of a kernel from 714 (stack) to 719 (any other). */
bool sim_is_fatal(int code) {
    return code == 214 || code == SIM_ILLEGAL_ADDRESS || code == SIM_LAUNCH_TIMEOUT || code == 710 ||
           (code >= 714 && code <= SIM_LAUNCH_FAILURE) || code == SIM_UNKNOWN;
}

void sim_lose(struct sim_device *device, int code) {
    if (atomic_load(&device->lost)) return;
    atomic_store(&device->lost, code);
    /* Threads that wait for work of this device must notice. */
    for (struct sim_stream *stream = device->streams; stream; stream = stream->next) {
        sim_wake(&stream->progress);
        sim_wake(&stream->wake);
    }
}

static int deliver(const struct sim_fault *fault) {
    bool loses = fault->kind == SIM_FAULT_LOSS || (fault->kind == SIM_FAULT_CODE && sim_is_fatal(fault->code));
    struct sim_device *device = sim_current();
    if (loses && device) {
        sim_lock(&sim.lock);
        sim_lose(device, fault->code);
        sim_unlock(&sim.lock);
    }
    if (fault->kind == SIM_FAULT_CODE || fault->kind == SIM_FAULT_LOSS) return fault->code;
    sim_play(fault);
    return SIM_OK;
}

static void *abort_thread(void *unused) {
    (void)unused;
    abort();
}

void sim_play(const struct sim_fault *fault) {
    pthread_t thread;
    switch (fault->kind) {
    case SIM_FAULT_CRASH:
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
        break;
    case SIM_FAULT_ABORT:
        if (pthread_create(&thread, NULL, abort_thread, NULL) != 0) abort();
        pthread_join(thread, NULL);
        break;
    case SIM_FAULT_EXIT: exit(fault->code);
    case SIM_FAULT_HANG:
        sim_lock(&sim.lock);
        while (!atomic_load(&sim.released)) sim_wait(&sim.hang_signal, &sim.lock, -1);
        sim_unlock(&sim.lock);
        break;
    default: break;
    }
}

/* ---- devices of threads ---- */

struct sim_device *sim_device_at(int index) {
    return index >= 0 && index < sim.config.device_count ? &sim.devices[index] : NULL;
}

struct sim_device *sim_current(void) {
    return sim_device_at(current_device);
}

void sim_set_current(int index) {
    current_device = index;
}

/* ---- small things ---- */

void sim_message(const char *format, ...) {
    va_list args;
    char text[sizeof sim.message];
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    sim_lock(&sim.lock);
    memcpy(sim.message, text, sizeof text);
    sim_unlock(&sim.lock);
}

/* splitmix64: any seed works, zero included. */
uint64_t sim_random(uint64_t *state) {
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* ---- beginning and end ---- */

static void forked(void) {
    atomic_store(&sim.lock.state, 0);
    atomic_store(&sim.forked, true);
}

/* With the lock held. */
static void configure(void) {
    char why[400] = "";
    sim.configured = true;
    sim.last_trap = "";
    pthread_atfork(NULL, NULL, forked);
    if (!sim_config_parse(getenv("RFSIM"), &sim.config, why, sizeof why)) {
        sim.config_bad = true;
        sim.config = (struct sim_config){0};
        snprintf(sim.message, sizeof sim.message, "RFSIM: %s", why);
        fprintf(stderr, "rfsim: %s\n", sim.message);
        return;
    }
    for (int i = 0; i < sim.config.device_count; i++) {
        struct sim_device *device = &sim.devices[i];
        device->index = i;
        device->config = &sim.config.devices[i];
        device->desktop = device->config->desktop;
        device->walk_state = device->config->walk_seed;
        sscanf(device->config->pci, "%x:%x:%x.%x", &device->pci_domain, &device->pci_bus, &device->pci_device,
               &device->pci_function);
    }
}

hipError_t hipInit(unsigned int flags) {
    int code = sim_enter(SIM_ENTRY_hipInit);
    if (code) return code;
    if (flags) return SIM_INVALID_VALUE;
    char why[400] = "";
    sim_lock(&sim.lock);
    bool good = true;
    if (!sim.initialised) {
        good = (!sim.config.shared[0] || sim_shared_open(sim.config.shared, why, sizeof why)) &&
               (!sim.config.sysfs[0] || sim_sysfs_open(sim.config.sysfs, why, sizeof why));
        if (good) {
            sim.initialised = true;
            sim.start_ns = sim_now_ns();
            sim_account_start();
        } else {
            sim.config_bad = true;
            snprintf(sim.message, sizeof sim.message, "RFSIM: %s", why);
            fprintf(stderr, "rfsim: %s\n", sim.message);
        }
    }
    sim_unlock(&sim.lock);
    if (!good) return SIM_INVALID_VALUE;
    return sim.config.device_count ? SIM_OK : SIM_NO_DEVICE;
}

/* Streams may still be running and may hang forever: nothing is joined, nothing is freed. */
__attribute__((destructor)) static void at_exit(void) {
    if (!sim.configured || atomic_load(&sim.forked)) return;
    sim_sysfs_close();
    if (!sim.config.report[0]) return;
    FILE *file = fopen(sim.config.report, "a");
    if (!file) return;
    const struct rfsim_stats *stats = &sim.stats;
    fprintf(file, "pid %d calls %llu traps %llu faults %llu launches %llu device_bytes %llu pinned_bytes %llu\n",
            (int)getpid(), (unsigned long long)stats->calls, (unsigned long long)stats->traps,
            (unsigned long long)stats->faults, (unsigned long long)stats->launches,
            (unsigned long long)stats->device_bytes, (unsigned long long)stats->pinned_bytes);
    fclose(file);
}

/* ---- what must not be called ---- */

static int trap(enum sim_entry entry) {
    int code = sim_enter(entry);
    sim_message("%s is banned: it waits without a deadline, or for others' work, or destroys what others hold",
                sim_entry_names[entry]);
    sim_lock(&sim.lock);
    sim.stats.traps++;
    sim.last_trap = sim_entry_names[entry];
    sim_unlock(&sim.lock);
    if (sim.config.trap_abort) {
        fprintf(stderr, "rfsim: %s was called (trap=abort)\n", sim_entry_names[entry]);
        abort();
    }
    return code ? code : SIM_NOT_SUPPORTED;
}

#pragma GCC diagnostic ignored "-Wunused-parameter"
#define SIM_TRAP(result, name, parameters)                                                                           \
    result name parameters {                                                                                         \
        return trap(SIM_ENTRY_##name);                                                                               \
    }
SIM_BANNED_PROTOTYPES(SIM_TRAP)

/* ---- what tests may ask ---- */

const char *rfsim_version(void) {
    return "1";
}

int rfsim_shared(void) {
    return sim.config.shared[0] != 0;
}

void rfsim_stats(struct rfsim_stats *stats) {
    size_t size = stats->struct_size < sizeof *stats ? stats->struct_size : sizeof *stats;
    sim_lock(&sim.lock);
    struct rfsim_stats copy = sim.stats;
    sim_unlock(&sim.lock);
    copy.struct_size = size;
    memcpy(stats, &copy, size);
}

uint64_t rfsim_call_count(void) {
    sim_lock(&sim.lock);
    uint64_t count = sim.stats.calls;
    sim_unlock(&sim.lock);
    return count;
}

uint64_t rfsim_entry_count(const char *entry) {
    uint64_t count = UINT64_MAX;
    sim_lock(&sim.lock);
    for (int i = 0; i < SIM_ENTRY_COUNT; i++)
        if (strcmp(entry, sim_entry_names[i]) == 0) count = sim.counts[i];
    sim_unlock(&sim.lock);
    return count;
}

uint64_t rfsim_trap_count(void) {
    sim_lock(&sim.lock);
    uint64_t count = sim.stats.traps;
    sim_unlock(&sim.lock);
    return count;
}

const char *rfsim_last_trap(void) {
    return sim.last_trap ? sim.last_trap : "";
}

/* Each thread gets its own copy, so that a failure in another thread cannot change it while it is read. */
const char *rfsim_last_message(void) {
    static _Thread_local char text[sizeof sim.message];
    sim_lock(&sim.lock);
    memcpy(text, sim.message, sizeof text);
    sim_unlock(&sim.lock);
    return text;
}

void rfsim_set_desktop(int index, uint64_t bytes) {
    sim_lock(&sim.lock);
    struct sim_device *device = sim_device_at(index);
    if (device) sim_set_desktop(device, bytes);
    sim_unlock(&sim.lock);
}

void rfsim_release_hangs(void) {
    sim_lock(&sim.lock);
    atomic_store(&sim.released, true);
    sim_wake(&sim.hang_signal);
    sim_unlock(&sim.lock);
}
