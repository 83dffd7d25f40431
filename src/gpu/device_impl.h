/* The device layer's internal header: what its files share and no other layer sees.
 *
 * Objects
 *   handle    what a user holds: begins with struct rf_object, linked into its device
 *   timeline  the persistent half of a queue: stream, tickets, marks. Its slot lives as long
 *             as the device and its tickets never repeat, so {timeline, ticket} stays a valid
 *             name for a piece of work after the queue is gone
 *   ticket    the number of a submission on a timeline; complete when an event recorded
 *             behind it (a mark) is
 *   recording the work submitted to a queue while it recorded, as the driver's executable graph
 *   block     device memory of one buffer: a driver allocation of its own or a slab's chunk
 *   quiet     no timeline has unfinished work, and none can get any while the gate is held.
 *             The driver calls that wait for all streams are made only then
 *
 * Locks, in the order they are taken; never the other way round:
 *   gpu_state.devices_mutex > device.memory_mutex > device.timelines_mutex > timeline.mutex >
 *   block.lock, device.notes_mutex
 * The log callback is called with none of them held: messages are noted and flushed when the
 * public function leaves (rf_leave). */
#ifndef RF_GPU_DEVICE_IMPL_H
#define RF_GPU_DEVICE_IMPL_H

#include "base/base.h"
#include "gpu/budget.h"
#include "gpu/driver.h"
#include "gpu/probe.h"
#include "runtime/runtime.h"
#include <rocmforge/gpu.h>

/* ---- handles (object.c) ---- */

enum rf_object_kind {
    RF_OBJECT_BUFFER = 0x52464255,
    RF_OBJECT_PINNED = 0x52465049,
    RF_OBJECT_QUEUE = 0x52465155,
    RF_OBJECT_EVENT = 0x52464556,
    RF_OBJECT_TENSOR = 0x52465445,
    RF_OBJECT_RECORDING = 0x52465243,
    RF_OBJECT_DEVICE = 0x52464456,
    RF_OBJECT_DEAD = 0x52464444,
};

struct rf_object {
    uint32_t kind; /* enum rf_object_kind */
    uint64_t id;   /* counted together with the allocations: a later one is larger */
    struct rf_device *device;
    struct rf_object *previous, *next; /* device->objects */
};

void rf_object_init(struct rf_object *object, enum rf_object_kind kind, struct rf_device *device);
/* RF_E_INVALID for NULL, RF_E_HANDLE for anything that is not a live handle of that kind. */
rf_status rf_object_check(const void *handle, enum rf_object_kind kind, const char *what);
/* Unlinks and frees; in checked mode the memory is kept until the runtime ends, so that a
 * later use of the dead handle is recognised without reading freed memory. */
void rf_object_free(struct rf_object *object);
void rf_object_retire(struct rf_object *object, bool keep); /* the same; keep says whether the memory is kept */

/* ---- the GPUs of a runtime (devices.c) ---- */

enum rf_check_flags { RF_CHECK_GUARD = 1, RF_CHECK_POISON = 2, RF_CHECK_HANDLE = 4, RF_CHECK_LAUNCH = 8 };

struct rf_loaded_driver {
    struct rf_loaded_driver *next;
    struct rf_driver driver;
};

/* The GPU layer's state on the runtime; it is made when a GPU is first asked for. */
struct rf_gpu_state {
    struct rf_runtime *runtime;
    unsigned checks; /* RF_CHECK, as enum rf_check_flags */

    pthread_mutex_t probe_mutex;
    struct rf_probe_result *probe; /* set once */

    pthread_mutex_t devices_mutex;
    struct rf_device *devices; /* open, closed and lost ones; freed with the runtime */
    struct rf_loaded_driver *drivers;
};
/* Returns NULL, with the error text set, where there is no host memory. */
struct rf_gpu_state *rf_gpu_state(struct rf_runtime *runtime);

/* Returns NULL where there is no host memory. */
const struct rf_probe_result *rf_gpu_probe(struct rf_runtime *runtime);
/* Gives the driver of a probed device, which is loaded and initialised once per runtime. devices_mutex must be held.
 */
rf_status rf_gpu_driver(struct rf_gpu_state *gpu, int index, struct rf_driver **out);

/* ---- timelines (timeline.c) ---- */

enum { RF_IN_FLIGHT_MAX = 512, RF_MARKS_MAX = 64, RF_MARK_EVERY = 16, RF_HABITS = 8, RF_HABIT_DEPTH = 4 };

struct rf_timeline {
    struct rf_device *device;
    pthread_mutex_t mutex; /* guards everything below except 'completed' */
    void *stream;          /* NULL: the slot is free */
    bool in_use;           /* a queue handle points here */
    bool unusable;         /* a capture on the stream failed, and the driver still holds it */
    /* Not NULL: submissions are recorded, not run. Only the thread that uses the queue changes it. */
    _Atomic(struct rf_recording *) recording;
    int priority;
    uint64_t submitted;
    _Atomic uint64_t completed;
    struct {
        uint64_t ticket;
        void *event;
    } marks[RF_MARKS_MAX]; /* a ring of recorded, not yet completed events */
    unsigned mark_first, mark_count;
    void *spare_events[RF_MARKS_MAX];
    unsigned spare_count;
    const char *names[RF_IN_FLIGHT_MAX]; /* by ticket; strings that are static or live as long as the device */
    /* A hash of what was submitted since the last wait for everything, and how long waits for that work took. When
     * the same work comes again (a token, a batch), the wait can sleep through most of it. */
    uint64_t signature;
    struct {
        uint64_t signature;
        int64_t took_ns[RF_HABIT_DEPTH];
        unsigned next;
    } habits[RF_HABITS];
};
static inline void rf_timeline_sign(struct rf_timeline *line, uint64_t value) {
    line->signature = (line->signature ^ value) * UINT64_C(0x100000001b3);
}

rf_status rf_timeline_open(struct rf_device *device, bool high_priority, struct rf_timeline **out);
/* The handle is gone; the slot becomes free once its work is done. */
void rf_timeline_release(struct rf_timeline *line);
/* These two bracket one driver submission: begin locks and makes room by the deadline; end unlocks. If the call in
 * between succeeded, end gives the ticket. */
rf_status rf_timeline_begin(struct rf_timeline *line, int64_t deadline_ns);
rf_status rf_timeline_end(struct rf_timeline *line, int code, const char *call, const char *name, uint64_t *ticket);
/* Looks without blocking; RF_E_DEVICE_LOST if it found a fault. */
rf_status rf_timeline_poll(struct rf_timeline *line, uint64_t ticket, bool *done);
rf_status rf_timeline_wait(struct rf_timeline *line, uint64_t ticket, int64_t deadline_ns);
uint64_t rf_timeline_submitted(struct rf_timeline *line);
static inline bool rf_timeline_passed(struct rf_timeline *line, uint64_t ticket) {
    return atomic_load_explicit(&line->completed, memory_order_acquire) >= ticket;
}
static inline struct rf_recording *rf_timeline_recording(const struct rf_timeline *line) {
    return atomic_load_explicit(&line->recording, memory_order_acquire);
}
/* From begin to end, the brackets above give no ticket: the submission between them is captured. end takes
 * 'recording' off the timeline in any case; on a lost device it does not call the driver. Where end fails, the
 * timeline may be unusable from then on. */
rf_status rf_timeline_capture_begin(struct rf_timeline *line, struct rf_recording *recording, int64_t deadline_ns);
rf_status rf_timeline_capture_end(struct rf_timeline *line, void **graph);
/* Opens another timeline in place of an unusable one and releases that. Work on the new one starts after the work
 * that was submitted to the old one. On failure *line stays. */
rf_status rf_timeline_replace(struct rf_timeline **line, int64_t deadline_ns);
/* Exists in builds with checks at level 2 only. Says whether invariants 1 and 2 of timeline.c hold; *why: the one
 * that does not. The timeline must be locked. */
bool rf_timeline_is_valid(struct rf_timeline *line, const char **why);
/* Destroys the streams of released timelines that are done. timelines_mutex must be held. */
void rf_timelines_reap(struct rf_device *device);

/* The gate. rf_quiet_enter keeps new work out and finds all work complete, or fails: RF_E_BUSY by the deadline.
 * Between enter and leave the caller may make driver calls that wait for all streams; other threads' submissions wait
 * meanwhile. rf_quiet_enter itself waits at most 2 ms: drain first where there is time. */
rf_status rf_quiet_enter(struct rf_device *device, int64_t deadline_ns);
/* The same with memory_mutex taken before it. It tries until the deadline: each time it waits with the gate open for
 * the work submitted so far, then at most hold_ns with the gate closed for the rest. */
#define RF_GATE_HOLD_NS RF_MS(2)
rf_status rf_quiet_enter_with_memory(struct rf_device *device, int64_t hold_ns, int64_t deadline_ns);
/* Whether every timeline is idle now. None of the timelines may be locked. */
bool rf_timelines_idle(struct rf_device *device);
/* Waits, with no lock held and the gate open, for all work that was submitted before the call. */
rf_status rf_timelines_drain(struct rf_device *device, int64_t deadline_ns);
void rf_quiet_leave(struct rf_device *device);

/* Waits without keeping a core busy: it polls, then sleeps in steps that grow with the time waited so far. */
struct rf_backoff {
    int64_t started_ns;
    int rounds;
    int saved_slack;     /* the thread's timer slack; -1: not changed */
    int64_t expected_ns; /* how long the same wait took before; 0: unknown */
    bool long_sleep;     /* the last sleep was the one that relied on expected_ns */
};
void rf_backoff_begin(struct rf_backoff *backoff);
/* Sleeps a little, never past the deadline; false if the deadline had passed already. */
bool rf_backoff_step(struct rf_backoff *backoff, int64_t deadline_ns);
void rf_backoff_end(struct rf_backoff *backoff);

/* ---- memory (memory.c, pool.c, ledger.c) ---- */

struct rf_ledger_entry {
    struct rf_ledger_entry *previous, *next;
    struct rf_allocation record; /* age_ns holds the time of creation */
    char label[48];
};

enum { RF_USES_MAX = 6, RF_GUARD_BYTES = 256, RF_SIZE_CLASSES = 9 };

struct rf_use {
    struct rf_timeline *line;
    uint64_t ticket;
};
/* The unfinished work that touches a piece of memory: the last ticket per timeline. */
struct rf_uses {
    atomic_flag lock;
    int count;
    bool overflow; /* more timelines at once than there are places: then every timeline counts */
    struct rf_use last[RF_USES_MAX];
};
void rf_uses_note(struct rf_uses *uses, struct rf_timeline *line, uint64_t ticket);
/* Whether all uses are done, apart from those on 'hint' (NULL: none). Does not wait. */
bool rf_uses_done(struct rf_uses *uses, struct rf_timeline *hint);
rf_status rf_uses_wait(struct rf_uses *uses, int64_t deadline_ns);
void rf_uses_clear(struct rf_uses *uses);

struct rf_slab;
struct rf_pinned;
struct rf_block {
    rf_dptr base;
    uint64_t bytes;       /* the whole block, guards included */
    uint64_t user_offset; /* RF_GUARD_BYTES in guard mode, else 0 */
    struct rf_slab *slab; /* NULL: a driver allocation of its own */
    /* Not NULL: the block is a part of this pinned host memory, which kernels reach. It then has no guards, no ledger
     * entry except that of the pinned memory, and is never in the pool. */
    struct rf_pinned *pinned;
    bool direct;           /* never pooled */
    struct rf_block *next; /* in the list it is in */
    struct rf_uses uses;
    atomic_int references; /* held by a buffer, its views, recordings */
    struct rf_ledger_entry ledger;
};
struct rf_block_list { /* first in, first out */
    struct rf_block *first, *last;
    size_t count;
};

struct rf_slab { /* one driver allocation cut into equal chunks */
    struct rf_slab *next;
    rf_dptr base;
    uint64_t bytes;
    int size_class;
    size_t chunk_count, idle_count;
    struct rf_block chunks[];
};

struct rf_pool {
    struct rf_block_list chunks[RF_SIZE_CLASSES]; /* idle chunks of slabs */
    struct rf_slab *slabs;
    struct rf_block_list blocks; /* idle whole allocations */
    struct rf_block_list doomed; /* to be given back to the driver at the next quiet moment */
    uint64_t idle_bytes;         /* in all three */
    int64_t floor_checked_ns;
};

/* Takes a block with room for this many user bytes, from the pool or the driver. memory_mutex must be held. */
rf_status rf_pool_take(struct rf_device *device, uint64_t bytes, bool direct, struct rf_timeline *hint,
                       struct rf_block **out);
/* Gives the block back; work that uses it may still be running. memory_mutex must be held. */
void rf_pool_give(struct rf_device *device, struct rf_block *block);
/* Takes over the record of a whole allocation that no work has used, and gives the memory back to the driver: now if
 * nothing runs, else at the next quiet moment. It counts as idle until then. memory_mutex must be held. */
void rf_pool_doom(struct rf_device *device, struct rf_block *block);
/* Returns idle memory to the driver if a quiet moment comes by the deadline. memory_mutex must be held. */
rf_status rf_pool_trim(struct rf_device *device, int64_t deadline_ns);
/* The same when the device closes: the gate is held already and every slab is idle. */
void rf_pool_return_all(struct rf_device *device);
/* Whether a request would be met without asking the driver. memory_mutex must be held. */
bool rf_pool_has(struct rf_device *device, uint64_t bytes);
/* Frees host-side records at the very end; no driver call. */
void rf_pool_finish(struct rf_device *device);
uint64_t rf_pool_rounded(const struct rf_device *device,
                         uint64_t bytes); /* what the driver would be asked for; 0: overflow */
/* Exists in builds with checks at level 2 only. Says whether the pool's lists and sums agree (invariants 1 and 2 of
 * pool.c), and whether held_bytes is what the pool and the ledger have. *why: what does not hold. memory_mutex must
 * be held, and no call into the pool may be under way. */
bool rf_pool_is_valid(struct rf_device *device, const char **why);

/* The one place that asks the driver for device memory. It asks the budget, the floor, the lease, and on an
 * integrated GPU the host budget; then the driver. memory_mutex must be held. */
rf_status rf_memory_grant(struct rf_device *device, uint64_t bytes, rf_dptr *out);
/* What rf_memory_grant would say to a multiple of the granularity, without allocating it. */
rf_status rf_memory_would_grant(struct rf_device *device, uint64_t bytes);
/* How much more would be granted: by the budget, by the floor under what is free now, and by both, on an integrated
 * GPU by the host budget too; in whole granules. No other function computes this. memory_mutex must be held. */
uint64_t rf_memory_room(struct rf_device *device, uint64_t live_free);
/* Trims the pool if free memory is under the floor; looks at most every 100 ms. */
void rf_memory_watch_floor(struct rf_device *device);
/* May be called only between rf_quiet_enter and leave. memory_mutex must be held. */
void rf_memory_return(struct rf_device *device, rf_dptr pointer, uint64_t bytes);
/* The memory that is free now: the smallest figure of the driver, the kernel, and on an integrated GPU the host.
 * device_free leaves out the host, because every process changes the host's figure. */
rf_status rf_memory_live_free(struct rf_device *device, uint64_t *free_bytes, uint64_t *total_bytes);
rf_status rf_memory_device_free(struct rf_device *device, uint64_t *free_bytes, uint64_t *total_bytes);
void rf_memory_publish_held(struct rf_device *device); /* to the lease and the peak */

void rf_ledger_add(struct rf_device *device, struct rf_ledger_entry *entry, enum rf_allocation_kind kind,
                   uint64_t bytes, uint64_t held_bytes, const char *label, struct rf_site site);
void rf_ledger_remove(struct rf_device *device, struct rf_ledger_entry *entry);
void rf_ledger_abandon(struct rf_device *device, struct rf_ledger_entry *entry);
/* The same for the invariants of ledger.c. */
bool rf_ledger_is_valid(struct rf_device *device, const char **why);

/* ---- checks on memory (memory_check.c) ---- */

rf_status rf_check_prepare(struct rf_device *device, struct rf_block *block, uint64_t bytes); /* guards and poison */
rf_status rf_check_verify(struct rf_device *device, struct rf_block *block, uint64_t bytes, int64_t deadline_ns);
void rf_check_scribble(struct rf_device *device, struct rf_block *block, int64_t deadline_ns);

/* ---- staging (staging.c): pinned host memory for transfers of pageable memory ---- */

enum { RF_STAGE_LARGE = 4, RF_STAGE_SMALL = 64 };
#define RF_STAGE_LARGE_BYTES ((size_t)4 << 20)
#define RF_STAGE_SMALL_BYTES ((size_t)64 << 10)

struct rf_stage {
    unsigned char *data;
    size_t bytes;
    bool taken;
    struct rf_use use; /* the stage is free for the next user once this is done */
};
struct rf_staging {
    pthread_mutex_t mutex;
    void *memory; /* one pinned allocation */
    uint64_t bytes;
    struct rf_stage large[RF_STAGE_LARGE], small[RF_STAGE_SMALL];
};
rf_status rf_staging_open(struct rf_device *device);
/* Takes, by the deadline, a free stage of the size that suits 'bytes', the number of bytes left to copy. */
rf_status rf_stage_take(struct rf_device *device, struct rf_timeline *line, uint64_t bytes, int64_t deadline_ns,
                        struct rf_stage **out);
void rf_stage_give(struct rf_device *device, struct rf_stage *stage, struct rf_timeline *line, uint64_t ticket);
void rf_staging_close(struct rf_device *device, bool quiet);
/* Whole transfers of pageable memory (transfer.c). */
rf_status rf_stage_to_device(struct rf_timeline *line, rf_dptr to, const void *from, uint64_t bytes,
                             int64_t deadline_ns, struct rf_uses *uses);
rf_status rf_stage_from_device(struct rf_timeline *line, void *to, rf_dptr from, uint64_t bytes, int64_t deadline_ns,
                               struct rf_uses *uses);

/* ---- kernels: the table of them (kernel.c), loading them (module.c) ---- */

/* What is loaded at once. Of AMD's and of callers' images that is a whole image. Of PTX it is one kernel, because the
 * driver has to compile it, which takes a tenth of a second for a kernel and most of a minute for all. */
struct rf_code {
    const struct rf_image *image; /* NULL: a caller's */
    const char *entry;            /* the one kernel that is cut out of PTX; NULL: the whole image */
    _Atomic bool wanted;          /* load it with the next rf_kernels_load_wanted */
    void *handle;                 /* the driver's module; NULL: not loaded */
    /* The image in memory of our own. It is kept while the code is loaded: a driver may read it later, and the pages
     * of an executable that is replaced meanwhile are lost. */
    void *data;
    size_t bytes;  /* that it takes on the device, about */
    void *library; /* what the driver compiled of PTX, and has the module in; NULL: none */
};

struct rf_kernel {
    struct rf_device *device;
    _Atomic(void *) function; /* NULL: not loaded */
    size_t code;              /* index in device->codes */
    char name[96];
    char module[64];
    uint32_t *arg_bytes;
    size_t arg_count;
    uint32_t max_threads, shared_bytes; /* as the build says; 0 threads: unknown */
    bool early;                         /* the kernel itself waits for the work before it on its stream */
    struct {
        void *function;
        uint32_t max_threads, shared_bytes, local_bytes, registers;
    } loaded; /* as the driver says; written before function is */
};
/* Lists the built-in kernels that fit the device (params->modules: only those) and loads the caller's images, while
 * the device is opened. */
rf_status rf_kernels_open(struct rf_device *device, const struct rf_device_params *params);
/* Whether every module that the list names (NULL: all) is in the table. */
bool rf_kernels_include(const struct rf_device *device, const char *list);
/* Whether a name matches a list of patterns, separated by commas; NULL matches every name. */
bool rf_is_listed(const char *list, const char *name);
static inline bool rf_kernel_is_loaded(const struct rf_kernel *kernel) {
    return atomic_load_explicit(&kernel->function, memory_order_acquire) != NULL;
}

/* Loads a caller's image, of which this code is, while the device is opened. The data is copied. */
rf_status rf_code_load_image(struct rf_device *device, struct rf_code *code, const void *data, size_t bytes);
/* Loads every code that is wanted and not loaded yet: PTX is compiled on all threads that RF_THREADS allows, then all
 * of it is loaded at a quiet moment. Blocks: for the compiler, for another thread that loads, and for running work by
 * the default deadline. The context must be current. */
rf_status rf_kernels_load_wanted(struct rf_device *device);
/* The same for one kernel; at once if it is loaded. */
rf_status rf_kernel_load(const struct rf_kernel *kernel);
void rf_kernels_close(struct rf_device *device); /* at a quiet moment; on a lost device it frees host memory only */

/* ---- the driver's own memory (driver_memory.c) ---- */

/* Memory in use, by the figure that other processes disturb least. */
struct rf_driver_usage {
    bool of_process;
    uint64_t bytes;
};
/* All of them: memory_mutex must be held. */
rf_status rf_driver_usage(struct rf_device *device, struct rf_driver_usage *usage);
uint64_t rf_driver_growth(struct rf_driver_usage before, struct rf_driver_usage after);
void rf_driver_charge(struct rf_device *device, uint64_t bytes);
void rf_driver_refund(struct rf_device *device, uint64_t bytes);
/* Refuses with RF_E_BUDGET if the driver may not take this much more (at least one granule); trims the pool first. */
rf_status rf_driver_make_room(struct rf_device *device, uint64_t bytes);
/* Refuses with RF_E_BUDGET if what was charged is more than the budget. */
rf_status rf_driver_check_budget(struct rf_device *device, uint64_t took_bytes, const char *what);

/* ---- the device ---- */

enum rf_device_state { RF_DEVICE_OPEN, RF_DEVICE_CLOSED };
enum { RF_TIMELINES_MAX = 4096 };

struct rf_limits {
    int max_threads, block[3], grid[3], shared, shared_optin;
};

struct rf_device {
    uint32_t kind; /* RF_OBJECT_DEVICE */
    struct rf_runtime *runtime;
    struct rf_gpu_state *gpu;
    unsigned checks; /* enum rf_check_flags */
    struct rf_device *next;
    int references; /* gpu_state.devices_mutex */
    _Atomic int state;
    struct rf_driver *driver;
    struct rf_context context;
    struct rf_device_info info;
    struct rf_limits limits;
    int ordinal;

    _Atomic bool lost;
    pthread_mutex_t lost_mutex;
    char lost_text[512];

    pthread_mutex_t notes_mutex;
    struct rf_note *notes;
    _Atomic bool has_notes;
    _Atomic bool odd_figures; /* it was said that the driver's figures of memory cannot be */

    pthread_mutex_t memory_mutex; /* guards the memory section and the object list */
    struct rf_object *objects, *quarantine;
    struct rf_witness *witness;
    struct rf_lease *lease;
    struct rf_lease_terms terms;
    char budget_text[256];
    char damage_text[512]; /* about the last guard band found overwritten; damage_id says when */
    uint64_t damage_id;
    uint64_t granularity_bytes;
    uint64_t held_bytes, driver_bytes, used_bytes, lent_bytes, abandoned_bytes, peak_bytes;
    uint64_t next_allocation_id, live_count;
    struct rf_ledger_entry *ledger_first, *ledger_last;
    struct rf_ledger_entry driver_entry;
    struct rf_pool pool;
    struct rf_doomed_pinned *doomed_pinned;
    struct rf_driver_graph *doomed_graphs;
    uint64_t recording_most_bytes; /* the most that the driver took for one recording */
    uint64_t recording_bytes;      /* the part of driver_bytes for executable graphs */
    struct rf_device_name *names;  /* of recordings */

    pthread_mutex_t timelines_mutex;
    struct rf_timeline *timelines[RF_TIMELINES_MAX];
    unsigned timeline_count;
    struct rf_timeline *service; /* for zeroing, poison and guards */
    _Atomic bool gate_closed;    /* read by every submission with its timeline locked */
    int priority_low, priority_high;

    struct rf_staging staging;

    struct rf_kernel *kernels; /* sorted by name; neither array changes after the device was opened */
    size_t kernel_count;
    struct rf_code *codes;
    size_t code_count;
    bool some_modules;          /* not all of the built-in modules were asked for */
    _Atomic bool loading;       /* one thread loads kernels; only it changes codes and kernels */
    _Atomic uint64_t prepared;  /* how many codes were unpacked or compiled; shows that a loading thread gets on */
    uint64_t kernel_room_bytes; /* the part of driver_bytes kept for kernels that are not loaded (memory_mutex) */
};

/* Every public function on a device calls rf_enter first and rf_leave at its end. rf_enter refuses if the device is
 * closed or lost or the process is a forked child, and makes the context current. rf_leave restores the thread's
 * context and flushes notes. */
struct rf_entry {
    struct rf_device *device;
    struct rf_entered entered;
};
rf_status rf_enter(struct rf_device *device, struct rf_entry *entry);
/* The same as rf_enter, but it accepts a lost device, to clean up host memory; no context is current then. */
rf_status rf_enter_cleanup(struct rf_device *device, struct rf_entry *entry);
void rf_leave(struct rf_entry *entry);

/* Turns a driver's code into a status; a fatal code marks the device lost. 'call' is the call's text, 'about' is what
 * the call was for (a kernel's name) or NULL. */
rf_status rf_device_result(struct rf_device *device, int code, const char *call, const char *about);
static inline bool rf_device_is_lost(const struct rf_device *device) {
    return atomic_load_explicit(&device->lost, memory_order_acquire);
}
rf_status rf_device_mark_lost(struct rf_device *device, const char *format, ...) RF_PRINTF(2, 3);
rf_status rf_device_lost_status(struct rf_device *device);
void rf_device_note(struct rf_device *device, enum rf_log_level level, const char *format, ...) RF_PRINTF(3, 4);
/* Sets dir, uuid and own: where the leases of a GPU are recorded. A simulated GPU that no other process shares has
 * leases that no other process shares either, unless RF_LEASE_DIR names a folder for them. info: borrowed by place.
 */
void rf_lease_place(struct rf_runtime *runtime, int index, const struct rf_device_info *info,
                    struct rf_lease_params *place);
/* Closes everything that is open, for rf_runtime_destroy, and frees the struct. */
void rf_device_free(struct rf_device *device);

static inline uint64_t rf_memory_budget_room(const struct rf_device *device) {
    return rf_sub_saturate(device->terms.promised_bytes, device->held_bytes + device->lent_bytes);
}
static inline uint64_t rf_memory_floor_room(const struct rf_device *device, uint64_t live_free) {
    return rf_sub_saturate(live_free, device->terms.floor_bytes);
}

static inline int64_t rf_device_deadline(const struct rf_device *device, int64_t timeout_ns) {
    return rf_deadline_after(timeout_ns == RF_TIMEOUT_DEFAULT ? device->runtime->timeout_ns : timeout_ns);
}

/* ---- user handles ---- */

struct rf_buffer {
    struct rf_object object;
    struct rf_block *block;
    uint64_t offset, bytes; /* within the user part of the block */
    uint64_t whole_bytes;   /* the user part's size, for guards */
};
struct rf_pinned {
    struct rf_object object;
    void *data;
    uint64_t bytes, charged_bytes;
    atomic_int references; /* held by the handle, recordings, and the block while it has references */
    struct rf_uses uses;
    struct rf_ledger_entry ledger;
    struct rf_block block; /* the block of buffers over it: rf_pinned_buffer */
};
struct rf_doomed_pinned {
    struct rf_doomed_pinned *next;
    void *data;
    uint64_t charged_bytes;
};
struct rf_queue {
    struct rf_object object;
    struct rf_timeline *line;
    int64_t timeout_ns;
    char label[48];
    bool rehearsing; /* launches are checked but not made: rf_queue_rehearse */
};
struct rf_event {
    struct rf_object object;
    void *event;
    bool timing, recorded;
    struct rf_use use;
};
static inline int64_t rf_queue_deadline(const struct rf_queue *queue, int64_t timeout_ns) {
    return rf_deadline_after(timeout_ns == RF_TIMEOUT_DEFAULT ? queue->timeout_ns : timeout_ns);
}
static inline rf_dptr rf_buffer_pointer(const struct rf_buffer *buffer, uint64_t offset) {
    return (char *)buffer->block->base + buffer->block->user_offset + buffer->offset + offset;
}
/* Gives one reference back; the last one gives the memory to the pool. RF_E_CORRUPT: it did, and a guard was damaged.
 */
rf_status rf_block_release(struct rf_device *device, struct rf_block *block);
/* Gives a recording's reference back. Where the handle is gone and no other reference is left, the memory is given
 * back. */
void rf_pinned_release(struct rf_device *device, struct rf_pinned *pinned);
/* Frees doomed pinned memory. memory_mutex must be held, and the moment must be quiet. */
void rf_pinned_free_doomed(struct rf_device *device);
/* Submits a copy or fill as one ticket and notes the uses. */
rf_status rf_submit_fill(struct rf_timeline *line, rf_dptr to, unsigned char value, uint64_t bytes,
                         int64_t deadline_ns, uint64_t *ticket);

/* ---- tensor maps (map.c) ---- */

enum { RF_MAP_BYTES = 128 };
struct rf_made_map { /* as a kernel takes it */
    _Alignas(64) unsigned char bytes[RF_MAP_BYTES];
};
/* An argument of kind RF_ARG_KIND_MAP whose buffer and offset are checked. */
rf_status rf_map_check(const struct rf_arg *arg, const struct rf_driver *driver);
/* Of a checked argument; the driver's code. */
int rf_map_make(const struct rf_driver *driver, const struct rf_arg *arg, struct rf_made_map *made);

/* ---- recordings (recording.c) ---- */

struct rf_driver_graph { /* outlives its recording until a quiet moment */
    struct rf_driver_graph *next;
    void *executable;
};
struct rf_recording_list {
    void **items;
    size_t count, capacity;
};
struct rf_recording {
    struct rf_object object;
    const char *name; /* lives as long as the device */
    uint64_t submissions, driver_bytes;
    rf_status failed; /* the status of the first call that was to be recorded and failed */
    struct rf_saved_error failure;
    struct rf_recording_list blocks, pinned; /* one reference each */
    struct rf_driver_graph *part;            /* NULL: not made yet, or given back */
};
/* RF_OK, or RF_E_INVALID because the queue is recording and 'who' cannot be recorded. */
rf_status rf_recording_refuses(const struct rf_queue *queue, const char *who);
/* Keeps memory for the recording under way, if there is one. */
rf_status rf_recording_hold_block(struct rf_queue *queue, struct rf_block *block);
rf_status rf_recording_hold_pinned(struct rf_queue *queue, struct rf_pinned *pinned);
/* Returns the status of a call that was to be recorded. A recording must not be made with a call missing, so the
 * first failure is kept, with its text, and ending the recording repeats it. */
rf_status rf_recording_note(struct rf_queue *queue, rf_status status);
void rf_recording_cancel(struct rf_queue *queue); /* if one is under way */
/* Destroys executable graphs whose recordings are gone. memory_mutex must be held, and the moment must be quiet. */
void rf_recordings_free_doomed(struct rf_device *device);
void rf_recordings_close(struct rf_device *device);  /* destroys all of them and names the leaked ones; same locks */
void rf_recordings_finish(struct rf_device *device); /* frees host memory only */

#endif
