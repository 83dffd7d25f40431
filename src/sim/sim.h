/* The simulated driver's inside: a HIP driver without a GPU.
 *
 * Objects
 *   sim      the one driver of the process: configuration, counters, devices
 *   device   its memory figures, its streams, and the code of the fault that lost it
 *   stream   a queue of work and the thread that does it, in order
 *   work     one copy, fill, launch, event record or wait; made first, submitted afterwards
 *   event    how often it was recorded and how many of those records have run
 *   graph    work that was captured instead of queued, to be run again and again
 *
 * Invariants
 *   1. One lock, sim.lock, guards every mutable field, and is never held while work runs or a fault is played.
 *   2. Work of one stream runs in the order of submission; between streams there is no order but events, and the
 *      legacy one of the default stream.
 *   3. A lost device runs no further work: what is queued is dropped, and every call that uses it returns its code.
 *   4. Device memory is one host allocation per hipMalloc, exactly as large as asked, so that address sanitizer sees
 *      each overflow; the figures are rounded to the granularity, as a driver's are.
 *   5. Nothing is taken down at exit: threads are detached, memory stays reachable.
 * 2 is asserted by the count of completed work, 3 where work is submitted, 4 where memory is given back. 1 is about
 * who holds a lock, which the lock does not tell; 5 is about what is not done.
 *
 * It must not include anything of the library but kernels/host_abi.h and base/assert.h. It prints only what its
 * configuration asks for, and why that configuration is malformed. */
#ifndef RFSIM_SIM_H
#define RFSIM_SIM_H

#include <stdbool.h>

#include "base/assert.h"
#include "kernels/host_abi.h"
#include "sim/hip_abi.h"
#include "sim/lock.h"
#include "sim/rfsim.h"

#define SIM_MAX_DEVICES 16
#define SIM_MAX_FAULTS 32
#define SIM_MAX_STEPS 32
#define SIM_MAX_THREADS 1024   /* per block */
#define SIM_SHARED_BYTES 65536 /* of a block, on AMD; static arrays have no more on any device */

/* ---- entries: what can be counted and made to fail ---- */

enum sim_entry_flag {
    SIM_PLAIN = 0,
    SIM_INIT = 1,        /* returns 3 before hipInit */
    SIM_CONTEXT = 2 | 1, /* uses the current device: its loss and its context */
};

#define SIM_ENTRIES(X)                                                                                               \
    X(hipInit, SIM_PLAIN)                                                                                            \
    X(hipDriverGetVersion, SIM_PLAIN)                                                                                \
    X(hipRuntimeGetVersion, SIM_PLAIN)                                                                               \
    X(hipGetDeviceCount, SIM_INIT)                                                                                   \
    X(hipDeviceGet, SIM_INIT)                                                                                        \
    X(hipDeviceGetName, SIM_INIT)                                                                                    \
    X(hipDeviceTotalMem, SIM_INIT)                                                                                   \
    X(hipDeviceGetUuid, SIM_INIT)                                                                                    \
    X(hipDeviceGetPCIBusId, SIM_INIT)                                                                                \
    X(hipSetDevice, SIM_INIT)                                                                                        \
    X(hipGetDevice, SIM_INIT)                                                                                        \
    X(hipDeviceGetAttribute, SIM_INIT)                                                                               \
    X(hipGetDeviceProperties, SIM_INIT)                                                                              \
    X(hipGetDevicePropertiesR0600, SIM_INIT)                                                                         \
    X(hipMemGetInfo, SIM_CONTEXT)                                                                                    \
    X(hipMalloc, SIM_CONTEXT)                                                                                        \
    X(hipFree, SIM_CONTEXT)                                                                                          \
    X(hipHostMalloc, SIM_CONTEXT)                                                                                    \
    X(hipHostFree, SIM_CONTEXT)                                                                                      \
    X(hipMemcpyHtoDAsync, SIM_CONTEXT)                                                                               \
    X(hipMemcpyDtoHAsync, SIM_CONTEXT)                                                                               \
    X(hipMemcpyDtoDAsync, SIM_CONTEXT)                                                                               \
    X(hipMemsetD8Async, SIM_CONTEXT)                                                                                 \
    X(hipDeviceGetStreamPriorityRange, SIM_INIT)                                                                     \
    X(hipStreamCreateWithPriority, SIM_CONTEXT)                                                                      \
    X(hipStreamDestroy, SIM_CONTEXT)                                                                                 \
    X(hipStreamWaitEvent, SIM_CONTEXT)                                                                               \
    X(hipStreamQuery, SIM_CONTEXT)                                                                                   \
    X(hipStreamSynchronize, SIM_CONTEXT)                                                                             \
    X(hipEventCreateWithFlags, SIM_CONTEXT)                                                                          \
    X(hipEventDestroy, SIM_CONTEXT)                                                                                  \
    X(hipEventRecord, SIM_CONTEXT)                                                                                   \
    X(hipEventQuery, SIM_CONTEXT)                                                                                    \
    X(hipEventElapsedTime, SIM_CONTEXT)                                                                              \
    X(hipModuleLoadData, SIM_CONTEXT)                                                                                \
    X(hipModuleUnload, SIM_CONTEXT)                                                                                  \
    X(hipModuleGetFunction, SIM_CONTEXT)                                                                             \
    X(hipFuncGetAttribute, SIM_CONTEXT)                                                                              \
    X(hipFuncSetAttribute, SIM_CONTEXT)                                                                              \
    X(hipModuleLaunchKernel, SIM_CONTEXT)                                                                            \
    X(rfsim_map_encode, SIM_INIT)                                                                                    \
    X(hipStreamBeginCapture, SIM_CONTEXT)                                                                            \
    X(hipStreamEndCapture, SIM_CONTEXT)                                                                              \
    X(hipStreamIsCapturing, SIM_CONTEXT)                                                                             \
    X(hipGraphInstantiateWithFlags, SIM_CONTEXT)                                                                     \
    X(hipGraphLaunch, SIM_CONTEXT)                                                                                   \
    X(hipGraphUpload, SIM_CONTEXT)                                                                                   \
    X(hipGraphExecDestroy, SIM_INIT)                                                                                 \
    X(hipGraphDestroy, SIM_CONTEXT)                                                                                  \
    X(hipDeviceSynchronize, SIM_PLAIN)                                                                               \
    X(hipDeviceReset, SIM_PLAIN)                                                                                     \
    X(hipCtxSynchronize, SIM_PLAIN)                                                                                  \
    X(hipDevicePrimaryCtxReset, SIM_PLAIN)                                                                           \
    X(hipEventSynchronize, SIM_PLAIN)                                                                                \
    X(hipMemcpy, SIM_PLAIN)                                                                                          \
    X(hipMemcpyHtoD, SIM_PLAIN)                                                                                      \
    X(hipMemcpyDtoH, SIM_PLAIN)                                                                                      \
    X(hipMemset, SIM_PLAIN)

enum sim_entry {
#define SIM_ENUM(name, flags) SIM_ENTRY_##name,
    SIM_ENTRIES(SIM_ENUM)
#undef SIM_ENUM
        SIM_ENTRY_COUNT
};
extern const char *const sim_entry_names[SIM_ENTRY_COUNT];

/* ---- configuration (config.c) ---- */

enum sim_fault_kind {
    SIM_FAULT_NONE,
    SIM_FAULT_CODE,
    SIM_FAULT_HANG,
    SIM_FAULT_CRASH,
    SIM_FAULT_ABORT,
    SIM_FAULT_EXIT,
    SIM_FAULT_LOSS
};
struct sim_fault {
    int entry; /* -1: any */
    uint64_t nth;
    bool onwards; /* from the nth call on, not only at the nth */
    bool in_work; /* hits the work that the call submits, not the call */
    enum sim_fault_kind kind;
    int code; /* error code or exit status */
};

struct sim_desktop_step {
    bool by_time;
    uint64_t at; /* calls or nanoseconds since hipInit */
    uint64_t bytes;
};

/* Whether HIP counts pairs of compute units: not; as multiprocessors only; as "physical" ones too, as HIP does. */
enum sim_wgp { SIM_WGP_NONE, SIM_WGP_PLAIN, SIM_WGP_BOTH };
struct sim_device_config {
    char name[128], arch[16], pci[32];
    int wave, units;
    enum sim_wgp wgp;
    uint64_t vram, desktop, context, grows, granularity;
    uint64_t graph; /* bytes per node of an executable graph */
    int64_t late_ns;
    uint64_t pace_ns; /* how long a block takes by the clock of events; 0: its real time */
    bool integrated, display;
    bool blind;      /* hipMemGetInfo does not see the desktop */
    uint64_t claims; /* what hipMemGetInfo says there is, all of it free; 0: the truth */
    struct sim_desktop_step steps[SIM_MAX_STEPS];
    int step_count;
    uint64_t walk_every, walk_seed, walk_low, walk_high; /* a new level after this many calls; 0: never */
};

struct sim_config {
    int device_count;
    struct sim_device_config devices[SIM_MAX_DEVICES];
    struct sim_fault faults[SIM_MAX_FAULTS];
    int fault_count;
    uint64_t seed; /* seed of the garbage in fresh memory */
    bool shuffle;
    uint64_t shuffle_seed;
    uint64_t delay_seed, delay_max_ns; /* 0: none */
    uint64_t pending_limit;            /* launches on a stream before the next one blocks */
    bool trap_abort;
    bool rounding; /* every call leaves its thread rounding upward and flushing subnormal numbers */
    bool stale;    /* a capture that ended with an error stays on its stream, as in HIP before 7.14 */
    int version;
    char shared[512], sysfs[512], kernels[1024], report[512];
};
/* False with a message in 'why'. */
bool sim_config_parse(const char *text, struct sim_config *config, char *why, size_t size);
/* 110000 for gfx1100, 90000 for sm_90; 0 for no such name. */
int sim_arch_version(const char *arch);
bool sim_arch_is_nvidia(const char *arch);
uint32_t sim_shared_bytes(const char *arch); /* that a block may have */

/* ---- the driver's state (driver_call.c) ---- */

struct sim_stream;
struct sim_work;
struct sim_capture;
struct sim_graph;

struct sim_late {
    uint64_t bytes;
    int64_t due_ns;
};

struct sim_device {
    int index;
    const struct sim_device_config *config;
    uint64_t desktop;                    /* now */
    uint64_t allocated;                  /* allocated by hipMalloc in this process, rounded */
    bool context;                        /* charged */
    uint64_t graph_bytes, graph_charged; /* for executable graphs: as asked, and in whole granules */
    _Atomic int lost;                    /* 0, or the code that every call returns */
    uint64_t walk_state;
    int next_step;
    struct sim_late *late;
    size_t late_count, late_capacity;
    struct sim_stream *streams; /* all live ones */
    struct sim_stream *default_stream;
    unsigned pci_domain, pci_bus, pci_device, pci_function;
};

struct sim {
    struct sim_lock lock;
    struct sim_config config;
    bool configured, config_bad, initialised;
    _Atomic bool forked;
    _Atomic bool released; /* ends injected hangs */
    int64_t start_ns;
    struct sim_device devices[SIM_MAX_DEVICES];
    uint64_t counts[SIM_ENTRY_COUNT];
    struct rfsim_stats stats;
    const char *last_trap;
    uint64_t stream_serial;
    struct sim_signal hang_signal;
    char message[512];
};
extern struct sim sim;

/* Counts the call, plays the faults set on it, checks initialisation and the current device. 0, or what the entry
 * point must return at once. */
int sim_enter(enum sim_entry entry);
/* The fault that the call entered last on this thread put into the work it is about to submit; clears it. */
struct sim_fault sim_take_work_fault(void);
void sim_message(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Marks a device lost; the lock is held. The first code stays. */
void sim_lose(struct sim_device *device, int code);
bool sim_is_fatal(int code);
/* Plays a hang, crash, abort or exit on this thread; the lock is not held. */
void sim_play(const struct sim_fault *fault);
/* The calling thread's device. */
struct sim_device *sim_current(void);
void sim_set_current(int index);
struct sim_device *sim_device_at(int index); /* NULL: there is no such device */
uint64_t sim_random(uint64_t *state);

/* ---- memory figures (account.c); the lock is held ---- */

struct sim_figures {
    uint64_t total, used_now, used_reported; /* memory that comes back late counts only in the second */
    uint64_t desktop;
};
void sim_account_start(void); /* at hipInit, after the configuration was read */
void sim_figures(struct sim_device *device, struct sim_figures *figures);
int sim_charge_context(struct sim_device *device);
int sim_charge(struct sim_device *device, uint64_t bytes, uint64_t *charged); /* 0 or out of memory */
void sim_discharge(struct sim_device *device, uint64_t charged);
void sim_desktop_tick(uint64_t calls); /* applies the steps due */
void sim_set_desktop(struct sim_device *device, uint64_t bytes);

/* shared.c: the same figures for several processes; does nothing without shared= */
bool sim_shared_open(const char *path, char *why, size_t size);
void sim_shared_lock(void);
void sim_shared_unlock(void);
void sim_shared_publish(int device, uint64_t used, uint64_t reported);
void sim_shared_others(int device, int64_t late_ns, uint64_t *used, uint64_t *reported);

/* sysfs.c: the kernel's view as files; does nothing without sysfs= */
bool sim_sysfs_open(const char *dir, char *why, size_t size);
void sim_sysfs_update(struct sim_device *device, const struct sim_figures *figures, uint64_t own);
void sim_sysfs_close(void);

/* ---- allocations (memory.c); the lock is held ---- */

struct sim_allocation {
    char *base;
    uint64_t bytes, charged, mapped_bytes; /* mapped_bytes 0: from malloc */
    int device;                            /* -1: pinned host memory */
};
/* The allocation that holds [pointer, pointer + bytes), or NULL. */
const struct sim_allocation *sim_find_allocation(const void *pointer, uint64_t bytes);

/* ---- streams and events (stream.c) ---- */

#define SIM_STREAM_MAGIC 0x5354524du
#define SIM_EVENT_MAGIC 0x45564e54u
#define SIM_MODULE_MAGIC 0x4d4f4455u
#define SIM_FUNCTION_MAGIC 0x46554e43u
#define SIM_DEAD_MAGIC 0xdeaddeadu

struct sim_event {
    uint32_t magic;
    int refs; /* one for the handle, and one per work that uses it */
    struct sim_device *device;
    bool timing;
    uint64_t recorded, done; /* generations: submitted records, and the last that ran */
    uint64_t captured;       /* the capture that it was last recorded in; 0: in none */
    int64_t time_ns;
    struct sim_signal signal;
    struct sim_event *previous,
        *next; /* all live ones; what a program abandons must not look like a leak of this process */
    struct sim_event *next_dead;
};

struct sim_stream {
    uint32_t magic;
    int refs; /* one for the handle, one for the thread, and one per waiter */
    struct sim_device *device;
    struct sim_stream *next;
    bool non_blocking, ending, has_worker;
    uint64_t submitted, completed; /* works */
    uint64_t launches_pending;
    struct sim_work *head, *tail;
    struct sim_capture *capture; /* NULL: work is queued, not kept */
    struct sim_signal wake;      /* signals that work came, or the end */
    struct sim_signal progress;  /* signals that work was done */
    uint64_t delay_state;
    uint64_t paced_ns; /* time of the blocks that ran on this stream; used by its thread only */
    uint64_t serial;
    struct sim_stream *next_dead;
};

enum sim_work_kind {
    SIM_WORK_COPY,
    SIM_WORK_FILL,
    SIM_WORK_LAUNCH,
    SIM_WORK_RECORD,
    SIM_WORK_WAIT,
    SIM_WORK_JOIN,
    SIM_WORK_GRAPH
};

struct sim_launch {
    const struct rfk_kernel *kernel;
    const struct rfk_table *table;
    struct rfk_dim grid, block;
    uint32_t shared_bytes;
    void **args; /* into the same allocation as the work */
};

struct sim_work {
    struct sim_work *next;
    enum sim_work_kind kind;
    struct sim_fault fault;
    union {
        struct {
            void *to;
            const void *from;
            size_t bytes;
            void *staging; /* owned; freed when the work is */
        } copy;
        struct {
            void *to;
            size_t bytes;
            unsigned char value;
        } fill;
        struct {
            struct sim_event *event;
            uint64_t generation;
        } event;
        struct {
            struct sim_stream *stream;
            uint64_t until; /* its 'completed' */
        } join;
        struct sim_launch launch;
        struct sim_graph *graph; /* executable */
    };
};

/* Making and submitting are separate so that a capture can keep what was made. NULL: no memory. */
struct sim_work *sim_work_create(enum sim_work_kind kind, size_t extra_bytes);
void sim_work_destroy(struct sim_work *work);
/* Takes ownership of the work in any case. wait: until it is done. */
int sim_submit(struct sim_stream *stream, struct sim_work *work, bool wait);
/* NULL handle: the current device's default stream. NULL: not a stream of this device. The lock is not held. */
struct sim_stream *sim_stream_of(hipStream_t handle);
/* Waits until everything submitted so far on the device is done; returns its loss, if any. */
int sim_drain(struct sim_device *device);

/* ---- capture and graphs (graph.c) ---- */

/* Whether a capture in progress forbids a call by this thread that a capture cannot record; if so, the capture is
 * invalidated. 0 or the code. The lock is not held. */
int sim_capture_forbids(void);
/* The rest with the lock held. Keeps work as the next node; 0, or the work stays the caller's. */
int sim_capture_keep(struct sim_stream *stream, struct sim_work *work);
int sim_capture_spoil(struct sim_stream *stream, int code);   /* returns the code */
uint64_t sim_capture_serial(const struct sim_stream *stream); /* 0: none */
/* Whether using the default stream would make a capture depend on it: 0 or the code. */
int sim_capture_refuses_default(struct sim_device *device);
void sim_capture_drop(struct sim_stream *stream); /* if there is one */
struct sim_work *sim_graph_nodes(const struct sim_graph *executable);
void sim_graph_release(struct sim_graph *graph);

/* ---- running kernels (exec.c, fiber.c) ---- */

struct sim_executor;
struct sim_executor *sim_executor_create(struct sim_device *device, uint64_t serial);
void sim_executor_destroy(struct sim_executor *executor);
/* 0, or the fatal code of the failure, with a message. */
int sim_execute(struct sim_executor *executor, const struct sim_launch *launch);
extern const struct rfk_services sim_services;

#if (defined(__x86_64__) || defined(__aarch64__)) && !defined(RFSIM_UCONTEXT)
#define SIM_FIBERS_BY_UCONTEXT 0
#else
#define SIM_FIBERS_BY_UCONTEXT 1
#endif

struct sim_fiber {
    void *context; /* the saved stack pointer, or an owned ucontext_t */
    char *stack;
    size_t stack_bytes;
    void *fake_stack; /* address sanitizer's */
    struct sim_fiber *next_idle;
    void *user;
};
/* Prepares a fiber to run entry(user) at the first switch to it; entry never returns. */
bool sim_fiber_init(struct sim_fiber *fiber, char *stack, size_t bytes, void (*entry)(void *user), void *user);
void sim_fiber_switch(struct sim_fiber *from, struct sim_fiber *to);
/* Called first by every fiber, and by every switch for itself. */
void sim_fiber_arrived(struct sim_fiber *fiber);
/* Describes the thread's own stack, so that fibers can switch back to it. */
void sim_fiber_adopt_thread(struct sim_fiber *fiber);

#endif
