/* ROCmForge: safe GPU memory, queues, kernels and waits on a GPU that others also use.
 *
 * Promises (docs/safety.md names the test that checks each):
 *   - every allocation stays within the budget and leaves the floor free; there is no other way to allocate
 *   - no wait without a deadline, no device-wide wait, no device reset
 *   - a fatal driver error makes the device lost; later calls return RF_E_DEVICE_LOST at once
 *   - every byte is in the ledger, with its call site, until it is given back or abandoned
 *
 * Threads: functions on a runtime or a device may be called from any thread at any time. A queue, an event recorded
 * on it, and a recording belong to one thread at a time. A buffer may be used from several threads' queues; the
 * caller orders the queues (rf_queue_after). Destroying an object while another thread uses it is an error of the
 * caller. */
#ifndef ROCMFORGE_GPU_H
#define ROCMFORGE_GPU_H

#include <rocmforge/base.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rf_device;
struct rf_buffer;
struct rf_pinned;
struct rf_queue;
struct rf_event;
struct rf_kernel;
struct rf_tensor;
struct rf_recording;

/* ---- probing --------------------------------------------------------------------------- */

enum rf_vendor { RF_VENDOR_NONE, RF_VENDOR_AMD, RF_VENDOR_NVIDIA };
enum rf_tristate { RF_UNKNOWN, RF_NO, RF_YES };

struct rf_device_info {
    size_t struct_size;
    int index;      /* which device to open */
    char name[128]; /* as the driver says */
    char arch[32];  /* "gfx1100", "sm_90" */
    char uuid[48];
    char pci[32];    /* "0000:03:00.0", empty where unknown */
    char driver[64]; /* "HIP 6.2", "CUDA 13.0", "HIP 5.2 (simulated)" */
    enum rf_vendor vendor;
    bool simulated;
    bool integrated;          /* shares the host's memory */
    enum rf_tristate display; /* drives a display */
    uint64_t total_bytes;
    uint64_t free_bytes; /* by the kernel's figure; 0 where only a context could tell */
    uint64_t granularity_bytes;
    int wave_size;
    int compute_units;
    int max_threads_per_block;
    int max_shared_bytes_per_block;
    bool usable;            /* a built-in kernel set fits it and its figures make sense */
    char kernel_target[32]; /* the blob that fits: "gfx1100", "sm_80"; empty if none */
    char reason[256];       /* why it is not usable; empty if it is */
};

/* True where at least one usable device exists. The first call on a runtime probes in a helper process by the
 * deadline of RF_PROBE_TIMEOUT_MS; a driver that crashes, exits, hangs or reports false figures does not harm this
 * process. The answer is cached. Never fails, creates no GPU context in this process. Blocks: once, up to that
 * deadline. */
RF_API bool rf_gpu_available(struct rf_runtime *runtime);

/* Why rf_gpu_available is false, or which devices were refused; empty if none was. Probes if needed. Valid as long as
 * the runtime. */
RF_API const char *rf_gpu_reason(struct rf_runtime *runtime);

RF_API int rf_device_count(struct rf_runtime *runtime);
RF_API rf_status rf_device_info_at(struct rf_runtime *runtime, int index, struct rf_device_info *info);

struct rf_device_choice {
    size_t struct_size;
    const char *want;   /* NULL or "auto" or "gpu": the best; else an index, a uuid, or part of a name */
    bool avoid_display; /* prefer one that drives no display, as tests do; warns if none */
};
RF_API rf_status rf_device_choose(struct rf_runtime *runtime, const struct rf_device_choice *choice, int *index);

/* ---- devices --------------------------------------------------------------------------- */

struct rf_builtin_kernel;

/* The caller's own kernels, for one architecture; tools/build_kernels.py writes these tables (docs/architecture.md
 * says how). Frozen. */
struct rf_kernel_image {
    const char *target; /* "gfx1100", "sm_80" */
    const void *data;
    size_t bytes;
    const struct rf_builtin_kernel *kernels; /* what the image contains, for argument checks */
    size_t kernel_count;
};

struct rf_device_params {
    size_t struct_size;
    int index;
    const char *budget; /* NULL: RF_BUDGET. See docs/safety.md for the grammar. */
    /* Further images, loaded while the device is opened. Of the images with the same number in image_groups, the one
     * whose target fits best is loaded; a group without an image that fits is an error. Borrowed for the call. */
    const struct rf_kernel_image *images;
    const int *image_groups; /* one per image; NULL: all one group */
    size_t image_count;
    /* Which built-in kernel modules the device has: names or patterns with * and ?, separated by commas
     * ("copy,matmul*"); NULL: all. Their kernels are loaded when they are needed: see rf_kernel_find. A name that
     * matches no module is not an error: rf_kernel_find tells which kernels a device has. */
    const char *modules;
};

/* Opens a device. Where there is none it fails with RF_E_NO_DRIVER or RF_E_NO_DEVICE, and rf_error_text() gives the
 * reason. RF_E_UNSUPPORTED: there is no place where this user's leases can be written. A device that is opened again
 * in the same runtime is shared: the call gives the same handle with one more reference, and refuses a different
 * budget and further images or modules. Blocks: for driver initialisation, and for the loading of images. */
RF_API rf_status rf_device_open_checked(struct rf_runtime *runtime, const struct rf_device_params *params,
                                        struct rf_device **out);

/* Gives a reference back. The last one drains every queue by the default deadline, reports what was leaked, frees it
 * and ends the lease. RF_E_TIMEOUT: a queue was stuck, its memory is abandoned and the device is lost to this
 * process. RF_E_DEVICE_LOST: the device was lost already, and its memory is abandoned. *device is NULL in any case.
 */
RF_API rf_status rf_device_close(struct rf_device **device);

RF_API rf_status rf_device_get_info(const struct rf_device *device, struct rf_device_info *info);

/* RF_OK, or RF_E_DEVICE_LOST with the first fatal error in rf_error_text(). Does not block. */
RF_API rf_status rf_device_status(struct rf_device *device);

/* ---- memory: budget and ledger ----------------------------------------------------------- */

struct rf_memory_info {
    size_t struct_size;
    uint64_t total_bytes;
    uint64_t free_bytes;      /* live: the smallest figure of driver and kernel */
    uint64_t free0_bytes;     /* free when the device was opened, others' promises deducted */
    uint64_t budget_bytes;    /* how much this process may hold */
    uint64_t floor_bytes;     /* free memory is never pushed below this */
    uint64_t held_bytes;      /* allocations + driver_bytes + what the pool keeps */
    uint64_t used_bytes;      /* what live buffers occupy */
    uint64_t driver_bytes;    /* the driver's own: context, modules, recordings */
    uint64_t pool_bytes;      /* held for reuse, idle */
    uint64_t lent_bytes;      /* handed to child processes */
    uint64_t abandoned_bytes; /* could not be given back */
    uint64_t peak_bytes;      /* the largest held_bytes so far */
    uint64_t available_bytes; /* the largest single allocation that would be granted now */
    uint64_t live_count;      /* live allocations in the ledger */
    uint64_t process_bytes;   /* what the kernel or NVML says this process holds; 0: they do not */
};
RF_API rf_status rf_device_memory_info(struct rf_device *device, struct rf_memory_info *info);

/* Whether an allocation of this size would be granted now. */
RF_API rf_status rf_can_allocate(struct rf_device *device, uint64_t bytes, bool *yes);
/* The largest size that would be granted now; 0 if none. */
RF_API rf_status rf_safe_alloc_size(struct rf_device *device, uint64_t *bytes);

/* Replaces the budget, for example to give a part back. Memory that is held stays held: a
 * smaller budget only stops growth. Idle pool memory is trimmed first. */
RF_API rf_status rf_device_set_budget(struct rf_device *device, const char *spec);

/* Gives idle pool memory back to the driver, waiting for running work by the deadline. */
RF_API rf_status rf_device_trim(struct rf_device *device, int64_t timeout_ns);

/* Lends bytes of this lease to a child process: writes a spec for the child's RF_BUDGET. The bytes count as held here
 * until rf_device_reclaim, which refuses (RF_E_BUSY) while a child that uses them lives. */
RF_API rf_status rf_device_lend(struct rf_device *device, uint64_t bytes, char *spec, size_t size);
RF_API rf_status rf_device_reclaim(struct rf_device *device, const char *spec);

/* A live lease of one of this user's processes. May grow at its end. */
struct rf_lease_info {
    int pid;
    uint64_t promised_bytes, held_bytes;
    bool part; /* of another process's lease */
    bool mine; /* of this process */
};
/* Calls visit for each live lease on a GPU, which need not be open; stops when it returns
 * false. Probes if needed. Blocks: for the lease table's lock, by a deadline. */
RF_API rf_status rf_device_leases(struct rf_runtime *runtime, int index,
                                  bool (*visit)(void *user, const struct rf_lease_info *lease), void *user);

enum rf_allocation_kind { RF_ALLOC_BUFFER, RF_ALLOC_PINNED, RF_ALLOC_DRIVER };
/* One row of the ledger. May grow at its end. */
struct rf_allocation {
    enum rf_allocation_kind kind;
    uint64_t id;         /* never reused; a later allocation has a larger one */
    uint64_t bytes;      /* as asked */
    uint64_t held_bytes; /* as charged */
    const char *label;   /* may be empty, never NULL */
    struct rf_site site;
    int64_t age_ns;
    bool abandoned;
};
/* Calls visit for each live or abandoned allocation, oldest first; stops when it returns
 * false. visit must not call into the device. */
RF_API rf_status rf_device_ledger(struct rf_device *device, bool (*visit)(void *user, const struct rf_allocation *a),
                                  void *user);

/* Checks the guard bands of all live buffers (RF_CHECK=guard): RF_E_CORRUPT names the first damaged one. Waits for
 * running work by the deadline. Without guard bands it returns RF_OK. */
RF_API rf_status rf_device_check_guards(struct rf_device *device, int64_t timeout_ns);

/* ---- buffers ----------------------------------------------------------------------------- */

struct rf_buffer_params {
    size_t struct_size;
    uint64_t bytes; /* > 0 */
    bool zeroed;
    bool direct;            /* allocated from and freed to the driver, not through the pool */
    struct rf_queue *queue; /* where it will be used first: lets the pool reuse memory in queue order */
    const char *label;      /* for the ledger */
};

/* RF_E_BUDGET: refused; rf_error_text() gives the bytes asked for, the limit, the free and total memory, and the
 * option to change. RF_E_DEVICE_MEMORY: the budget granted it, but the driver had no memory. The ledger is unchanged
 * on failure. Blocks: not on other queues' work; zeroing is ordered on params->queue or waited for by the default
 * deadline. */
RF_API rf_status rf_buffer_create_safe_at(struct rf_device *device, const struct rf_buffer_params *params,
                                          struct rf_buffer **out, struct rf_site site);
RF_API rf_status rf_buffer_create_safe(struct rf_device *device, const struct rf_buffer_params *params,
                                       struct rf_buffer **out);
#define rf_buffer_create_safe(device, params, out) rf_buffer_create_safe_at((device), (params), (out), RF_SITE)

/* The memory is reused or freed once the work that was submitted with it is done; the call does not wait for that. A
 * buffer with views lives until the last of them is destroyed. RF_E_CORRUPT: destroyed, but a guard band had been
 * overwritten. */
RF_API rf_status rf_buffer_destroy(struct rf_buffer **buffer);

/* A part of a buffer that can be passed wherever a buffer can. */
RF_API rf_status rf_buffer_view(struct rf_buffer *buffer, uint64_t offset, uint64_t bytes, struct rf_buffer **out);

RF_API uint64_t rf_buffer_bytes(const struct rf_buffer *buffer);
RF_API struct rf_device *rf_buffer_device(const struct rf_buffer *buffer);
/* The device address, for passing to foreign code. What that code does is not tracked: keep
 * the buffer until it is done. */
RF_API uint64_t rf_buffer_address(const struct rf_buffer *buffer);

/* Pinned host memory, for transfers without an intermediate copy. It is charged to the host budget. */
RF_API rf_status rf_pinned_create_at(struct rf_device *device, uint64_t bytes, struct rf_pinned **out,
                                     struct rf_site site);
#define rf_pinned_create(device, bytes, out) rf_pinned_create_at((device), (bytes), (out), RF_SITE)
RF_API rf_status rf_pinned_destroy(struct rf_pinned **pinned);
RF_API void *rf_pinned_data(const struct rf_pinned *pinned);
RF_API uint64_t rf_pinned_bytes(const struct rf_pinned *pinned);

/* ---- transfers ---------------------------------------------------------------------------- */

/* The copy is ordered on the queue and goes through pinned staging memory. On return the source may be reused; the
 * copy itself may still be under way. */
RF_API rf_status rf_copy_to_device_safe(struct rf_queue *queue, struct rf_buffer *to, uint64_t to_offset,
                                        const void *from, uint64_t bytes);
/* The copy is ordered on the queue, and the call waits for it by the queue's deadline. On failure the destination may
 * be partly written. */
RF_API rf_status rf_copy_from_device_safe(struct rf_queue *queue, void *to, struct rf_buffer *from,
                                          uint64_t from_offset, uint64_t bytes);
/* Asynchronous: the pinned memory must stay untouched until the queue has passed the copy. */
RF_API rf_status rf_upload_async(struct rf_queue *queue, struct rf_buffer *to, uint64_t to_offset,
                                 struct rf_pinned *from, uint64_t from_offset, uint64_t bytes);
RF_API rf_status rf_download_async(struct rf_queue *queue, struct rf_pinned *to, uint64_t to_offset,
                                   struct rf_buffer *from, uint64_t from_offset, uint64_t bytes);
/* Within one device; the ranges must not overlap. */
RF_API rf_status rf_copy_on_device(struct rf_queue *queue, struct rf_buffer *to, uint64_t to_offset,
                                   struct rf_buffer *from, uint64_t from_offset, uint64_t bytes);
RF_API rf_status rf_fill(struct rf_queue *queue, struct rf_buffer *to, uint64_t offset, uint64_t bytes,
                         unsigned char value);

/* ---- queues, events, waits ------------------------------------------------------------------ */

struct rf_queue_params {
    size_t struct_size;
    bool high_priority; /* default: the lowest priority the driver offers, so that a desktop comes first */
    int64_t timeout_ns; /* default deadline of waits on it; 0: RF_TIMEOUT_MS */
    const char *label;
};
RF_API rf_status rf_queue_create(struct rf_device *device, const struct rf_queue_params *params,
                                 struct rf_queue **out);
/* Does not wait: work already submitted still runs, and memory it uses stays until it ends. */
RF_API rf_status rf_queue_destroy(struct rf_queue **queue);
/* Waits until everything submitted so far is done. RF_E_TIMEOUT names the oldest unfinished launch; waiting again is
 * allowed. RF_E_DEVICE_LOST: a fault happened; the error text names the same launch. */
RF_API rf_status rf_queue_wait(struct rf_queue *queue, int64_t timeout_ns);
RF_API rf_status rf_queue_idle(struct rf_queue *queue, bool *idle);
/* Work submitted to 'queue' from now on runs after what was submitted to 'before' so far. */
RF_API rf_status rf_queue_after(struct rf_queue *queue, struct rf_queue *before);
RF_API struct rf_device *rf_queue_device(const struct rf_queue *queue);

RF_API rf_status rf_event_create(struct rf_device *device, bool timing, struct rf_event **out);
RF_API rf_status rf_event_destroy(struct rf_event **event);
RF_API rf_status rf_event_record(struct rf_event *event, struct rf_queue *queue);
RF_API rf_status rf_event_wait(struct rf_event *event, int64_t timeout_ns);
RF_API rf_status rf_event_done(struct rf_event *event, bool *done);
/* Both events must have been created with timing, recorded, and be done. */
RF_API rf_status rf_event_elapsed(struct rf_event *start, struct rf_event *end, int64_t *elapsed_ns);
RF_API rf_status rf_queue_after_event(struct rf_queue *queue, struct rf_event *event);

/* ---- kernels ---------------------------------------------------------------------------------- */

struct rf_kernel_info {
    size_t struct_size;
    const char *name;
    const char *module; /* source file without its ending */
    size_t arg_count;
    const uint32_t *arg_bytes;
    uint32_t max_threads;  /* per block */
    uint32_t shared_bytes; /* static */
    uint32_t local_bytes;  /* per thread: spills or private arrays, as the driver says */
    uint32_t registers;    /* as the driver says, 0 if it does not */
};
/* Finds a kernel and loads it if it is not loaded yet. The kernel is borrowed until the device closes. RF_E_NOT_FOUND
 * names the kernel with the closest name. Blocks while it loads: for the driver's compiler (NVIDIA, the first time
 * only), and by the default deadline for the work of all queues, which the driver waits for; the queues' next work
 * waits meanwhile. RF_E_BUSY or RF_E_TIMEOUT: that work did not end. RF_E_BUDGET: the driver's memory for it does not
 * fit. */
RF_API rf_status rf_kernel_find(struct rf_device *device, const char *name, const struct rf_kernel **out);
/* Loads kernels now instead of when each is needed, with one wait, and compiled side by side on the threads that
 * RF_THREADS allows. names: kernels or modules, by names or patterns, separated by commas; NULL: all that the device
 * has. Blocks and fails as rf_kernel_find does. Executors and engines load what they need when they are created. */
RF_API rf_status rf_device_load_kernels(struct rf_device *device, const char *names);
RF_API rf_status rf_kernel_get_info(const struct rf_kernel *kernel, struct rf_kernel_info *info);

enum rf_arg_kind { RF_ARG_KIND_NONE, RF_ARG_KIND_BUFFER, RF_ARG_KIND_VALUE, RF_ARG_KIND_STRUCT, RF_ARG_KIND_MAP };
/* One argument of a launch. Frozen. */
struct rf_arg {
    enum rf_arg_kind kind;
    uint32_t bytes;           /* of a value or a struct */
    struct rf_buffer *buffer; /* borrowed for the call; NULL passes a null pointer */
    uint64_t offset;
    union {
        int32_t i32;
        uint32_t u32;
        int64_t i64;
        uint64_t u64;
        float f32;
        unsigned char raw[32];
        const void *data; /* of a struct or a map: borrowed for the call */
    } value;
};
static inline struct rf_arg rf_arg_buffer_at(struct rf_buffer *buffer, uint64_t offset) {
    struct rf_arg arg = {RF_ARG_KIND_BUFFER, 8, buffer, offset, {0}};
    return arg;
}
static inline struct rf_arg rf_arg_buffer(struct rf_buffer *buffer) {
    return rf_arg_buffer_at(buffer, 0);
}
static inline struct rf_arg rf_arg_i32(int32_t v) {
    struct rf_arg arg = {RF_ARG_KIND_VALUE, 4, NULL, 0, {v}};
    return arg;
}
static inline struct rf_arg rf_arg_u32(uint32_t v) {
    struct rf_arg arg = {RF_ARG_KIND_VALUE, 4, NULL, 0, {0}};
    arg.value.u32 = v;
    return arg;
}
static inline struct rf_arg rf_arg_i64(int64_t v) {
    struct rf_arg arg = {RF_ARG_KIND_VALUE, 8, NULL, 0, {0}};
    arg.value.i64 = v;
    return arg;
}
static inline struct rf_arg rf_arg_f32(float v) {
    struct rf_arg arg = {RF_ARG_KIND_VALUE, 4, NULL, 0, {0}};
    arg.value.f32 = v;
    return arg;
}
/* A struct by value, of any size that the kernel takes. */
static inline struct rf_arg rf_arg_struct(const void *data, uint32_t bytes) {
    struct rf_arg arg = {RF_ARG_KIND_STRUCT, bytes, NULL, 0, {0}};
    arg.value.data = data;
    return arg;
}

struct rf_launch {
    size_t struct_size;
    const struct rf_kernel *kernel;
    uint32_t grid[3];      /* blocks; 0 in y or z counts as 1 */
    uint32_t block[3];     /* threads; 0 in y or z counts as 1 */
    uint32_t shared_bytes; /* dynamic */
    const struct rf_arg *args;
    size_t arg_count;
};
/* Reports argument errors only (count, sizes, grid, block, shared memory against the device's limits, buffers of
 * another device); what goes wrong on the GPU shows at the wait. Blocks: only when very many launches are unfinished,
 * and then by the queue's deadline. */
RF_API rf_status rf_queue_launch(struct rf_queue *queue, const struct rf_launch *launch);

/* ---- recordings: many launches in one submission ---------------------------------------------- */

/* From here to rf_queue_record_end the work that is submitted to the queue is recorded and does not run. That holds
 * for rf_queue_launch, rf_fill, rf_copy_on_device, rf_upload_async and rf_download_async. Arguments and addresses are
 * recorded as they are; data that differs from run to run must be in memory. Everything else on the queue is refused
 * with RF_E_INVALID and is not part of the recording: copies of ordinary host memory, events, order between queues,
 * waits, zeroed buffers, runs of other recordings. Other queues are not disturbed, not even other queues of this
 * thread. name: the name of a run in the texts of time-outs and faults; copied; NULL: "recording". RF_E_UNSUPPORTED:
 * the driver cannot record, or RF_REPLAY=off. On failure the queue is as it was. */
RF_API rf_status rf_queue_record_begin(struct rf_queue *queue, const char *name);

/* Ends the recording and makes it ready to run. The memory that the driver takes for it is measured and charged as
 * part of driver_bytes: RF_E_BUDGET if there is no room for it, or if the driver took too much. If a call that was to
 * be recorded failed, also for wrong arguments, ending fails with the first such failure; if nothing was recorded, it
 * fails with RF_E_INVALID. On failure there is no recording, and the queue is usable as before, if need be on another
 * stream. It does not block on other work. Buffers and pinned memory that were recorded are kept until the recording
 * is destroyed, even if their handles are destroyed before that; they stay in the ledger for that time. */
RF_API rf_status rf_queue_record_end(struct rf_queue *queue, struct rf_recording **out);

/* Runs the recording as one submission, which is ordered, waited for and named as a launch is. A fault in it names
 * the recording. queue may be any queue of the same device; the caller orders runs on different queues. One thread at
 * a time may use a recording. */
RF_API rf_status rf_recording_run(struct rf_queue *queue, struct rf_recording *recording);

struct rf_recording_info {
    size_t struct_size;
    const char *name;      /* valid as long as the recording */
    uint64_t submissions;  /* how many were recorded */
    uint64_t driver_bytes; /* charged for the recording */
};
RF_API rf_status rf_recording_get_info(const struct rf_recording *recording, struct rf_recording_info *info);

/* It does not wait: runs that are under way go on. The driver's memory for the recording is given back at the next
 * moment when nothing runs on the device, at the latest when the device closes. If the device cannot be closed by its
 * deadline, this memory is abandoned with the rest. */
RF_API rf_status rf_recording_destroy(struct rf_recording **recording);

/* ---- for test runners ------------------------------------------------------------------------- */

/* Gives a number that separates the objects made on the device so far from those made later. */
RF_API uint64_t rf_device_mark(struct rf_device *device);

struct rf_sweep {
    size_t struct_size;
    uint64_t mark;                                            /* sweep the objects made after it */
    int64_t timeout_ns;                                       /* deadline for the work that still runs */
    bool (*visit)(void *user, const struct rf_allocation *a); /* for each allocation that remained; may be NULL */
    void *user;
    /* Filled in: */
    uint64_t allocations, bytes; /* that remained and were released */
    uint64_t handles;            /* queues, events and views that remained */
};
/* Drains every queue by the deadline, checks guard bands, and reports and releases every buffer, pinned memory, queue
 * and event that was made after the mark and not destroyed. Their handles are invalid after that. RF_E_TIMEOUT: work
 * did not end, the device is lost. RF_E_CORRUPT: swept, but a guard band had been overwritten, now or at a destroy
 * since the mark. No other thread may use the device meanwhile. */
RF_API rf_status rf_device_sweep(struct rf_device *device, struct rf_sweep *sweep);

/* A share of a GPU for a process that does not open the GPU but starts other processes that do. It is a lease without
 * a device, and no driver is touched. */
struct rf_share;
struct rf_share_params {
    size_t struct_size;
    int index;
    const char *budget;  /* NULL: RF_BUDGET */
    uint64_t free_bytes; /* free memory that another process measured; 0: ask the kernel, else assume all */
    bool exclusive;      /* wait for a turn: one exclusive share of this user on a GPU at a time */
    int64_t timeout_ns;  /* for waiting for the turn */
};
/* RF_E_BUSY: the turn did not come by the deadline; the error text names the holder. */
RF_API rf_status rf_share_create(struct rf_runtime *runtime, const struct rf_share_params *params,
                                 struct rf_share **out);
RF_API void rf_share_destroy(struct rf_share **share);
RF_API uint64_t rf_share_bytes(const struct rf_share *share);
/* As rf_device_lend and rf_device_reclaim. */
RF_API rf_status rf_share_lend(struct rf_share *share, uint64_t bytes, char *spec, size_t size);
RF_API rf_status rf_share_reclaim(struct rf_share *share, const char *spec);

/* ---- device tensors ----------------------------------------------------------------------------- */

/* Element types. The block-quantized ones have the layouts of GGUF files: a block of elements
 * along the last dimension shares its scales. */
enum rf_dtype {
    RF_F32,
    RF_F16,
    RF_BF16,
    RF_I32,
    RF_I8,
    RF_U8,
    RF_Q4_0,
    RF_Q4_1,
    RF_Q5_0,
    RF_Q5_1,
    RF_Q8_0,
    RF_Q2_K,
    RF_Q3_K,
    RF_Q4_K,
    RF_Q5_K,
    RF_Q6_K,
    RF_IQ4_NL,
    RF_IQ4_XS,
    RF_DTYPE_COUNT
};
#define RF_MAX_RANK 8
/* The type, shape and place of a tensor's elements in memory. Frozen. */
struct rf_tensor_desc {
    enum rf_dtype dtype;
    int rank;
    uint64_t shape[RF_MAX_RANK];
    uint64_t strides[RF_MAX_RANK]; /* in elements; all zero: row-major, the only layout for quantized types */
    uint64_t byte_offset;
};
RF_API const char *rf_dtype_name(enum rf_dtype dtype);
/* The elements in a block (1 for plain types) and the bytes of a block; 0 for a number that is no dtype. */
RF_API size_t rf_dtype_block(enum rf_dtype dtype);
RF_API size_t rf_dtype_block_bytes(enum rf_dtype dtype);
/* Bytes of an element of a plain type; 0 for a quantized one. */
RF_API size_t rf_dtype_bytes(enum rf_dtype dtype);

/* Checks rank, sizes and overflow, fills zero strides and gives the bytes spanned. */
RF_API rf_status rf_tensor_desc_check(struct rf_tensor_desc *desc, uint64_t *bytes);

RF_API rf_status rf_tensor_empty_safe_at(struct rf_device *device, const struct rf_tensor_desc *desc,
                                         struct rf_tensor **out, struct rf_site site);
#define rf_tensor_empty_safe(device, desc, out) rf_tensor_empty_safe_at((device), (desc), (out), RF_SITE)
RF_API rf_status rf_tensor_destroy(struct rf_tensor **tensor);
/* Borrowed from the tensor. */
RF_API struct rf_buffer *rf_tensor_buffer(const struct rf_tensor *tensor);
RF_API const struct rf_tensor_desc *rf_tensor_get_desc(const struct rf_tensor *tensor);

/* A tensor on the GPU if the budget allows it, else in host memory: for programs that need only memory and can go on
 * with either. The graph's planner (graph.h) does the same for whole models. */
struct rf_smart_tensor;
enum rf_tensor_location { RF_ON_DEVICE, RF_ON_HOST };
/* On the device the memory is as rf_tensor_empty_safe makes it, not cleared. Where the budget, the floor or the
 * driver refuses, or the device is lost, the tensor gets zeroed host memory, charged to the host budget, and the log
 * gets one warning. device NULL: host memory that is charged to no budget. RF_E_INVALID: a descriptor that makes no
 * sense. RF_E_NO_MEMORY: the host has no memory either. */
RF_API rf_status rf_tensor_create_smart_at(struct rf_device *device, const struct rf_tensor_desc *desc,
                                           struct rf_smart_tensor **out, struct rf_site site);
#define rf_tensor_create_smart(device, desc, out) rf_tensor_create_smart_at((device), (desc), (out), RF_SITE)
RF_API rf_status rf_smart_tensor_destroy(struct rf_smart_tensor **tensor);
RF_API enum rf_tensor_location rf_smart_tensor_location(const struct rf_smart_tensor *tensor);
RF_API const struct rf_tensor_desc *rf_smart_tensor_get_desc(const struct rf_smart_tensor *tensor);
/* Borrowed from the tensor; NULL where it is in the other place. */
RF_API struct rf_tensor *rf_smart_tensor_device(const struct rf_smart_tensor *tensor);
RF_API void *rf_smart_tensor_host(const struct rf_smart_tensor *tensor);

/* ---- tensor maps ---------------------------------------------------------------------------------- */

#define RF_MAP_RANK 5
/* Whether groups of 16 bytes are exchanged from row to row, and within how many bytes. */
enum rf_map_swizzle { RF_MAP_PLAIN, RF_MAP_SWIZZLE_32, RF_MAP_SWIZZLE_64, RF_MAP_SWIZZLE_128 };
/* What the bulk copies of a kernel (NVIDIA, from sm_90 on) see of a buffer. A copy takes a box of elements; those of
 * the box that lie outside `sizes` are zeros in shared memory, and are not written to memory. Frozen. */
struct rf_map {
    enum rf_dtype dtype;           /* RF_F32, RF_F16, RF_BF16, RF_I32 or RF_U8 */
    uint32_t rank;                 /* 1 to RF_MAP_RANK */
    uint64_t sizes[RF_MAP_RANK];   /* elements, up to 2^32; those of the first dimension follow each other */
    uint64_t strides[RF_MAP_RANK]; /* bytes from one to the next, multiples of 16; the first is not read */
    uint32_t box[RF_MAP_RANK];     /* elements, up to 256; the first are whole 16 bytes and fit into the swizzle */
    enum rf_map_swizzle swizzle;
};
/* An argument that the kernel takes by value, as 128 bytes. The map begins `offset` bytes into the buffer, at a
 * multiple of 16, and lies within it. It is made at the launch (while recording: once, for all runs), and the buffer
 * counts as used by the launch, like that of any argument. map: borrowed for the call. buffer NULL passes zeros,
 * which the kernel must not use. RF_E_UNSUPPORTED: the driver has no tensor maps. */
static inline struct rf_arg rf_arg_map(struct rf_buffer *buffer, uint64_t offset, const struct rf_map *map) {
    struct rf_arg arg = {RF_ARG_KIND_MAP, 128, buffer, offset, {0}};
    arg.value.data = map;
    return arg;
}

/* ---- built-in kernels, without a device ------------------------------------------------------------ */

/* One kernel of an image. Frozen: programs have tables of their own kernels. */
struct rf_builtin_kernel {
    const char *name;
    const char *module;
    const char *target; /* "gfx1100", "sm_80" */
    size_t arg_count;
    const uint32_t *arg_bytes;
    uint32_t max_threads;
    uint32_t shared_bytes;
    int32_t vector_registers; /* -1 where only the driver's compiler knows (PTX) */
    int32_t scalar_registers;
    int32_t scratch_bytes;
    int32_t spills;
    uint32_t early; /* 1: the kernel itself waits for the work before it, so a driver may start it before that ends */
};
RF_API size_t rf_builtin_kernel_count(void);
RF_API const struct rf_builtin_kernel *rf_builtin_kernel_at(size_t index);
/* Whether a device of this architecture ("gfx1100", "sm_90") gets the kernel for this target: of the targets that a
 * module was built for, the one that fits best. */
RF_API bool rf_builtin_kernel_fits(const struct rf_builtin_kernel *kernel, const char *arch);
/* One image of the library's own kernels. May grow at its end. The library holds its images compressed;
 * rf_builtin_image_at unpacks an image when it is first asked for, and keeps it as long as the process lives. NULL
 * past the last image, and where there is no memory for it (rf_error_text says so). Any thread may call it. For the
 * names alone rf_builtin_kernel_at is cheaper. */
struct rf_builtin_image {
    const char *module;
    const char *target;
    const void *data;
    size_t bytes;
};
RF_API size_t rf_builtin_image_count(void);
RF_API const struct rf_builtin_image *rf_builtin_image_at(size_t index);

#ifdef __cplusplus
}
#endif
#endif
