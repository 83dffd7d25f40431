/* A backend is where nodes run. It is a small table of functions, which the GPU, the CPU and the dummy fill in.
 *
 * A backend has arenas: memory of one kind in which tensors lie at fixed offsets. A call given to execute has, for
 * each tensor, the arena's memory (host or buffer) and the offset in desc.byte_offset. Work is submitted in order.
 * Submitting does not wait for the work, except that the CPU computes in execute; wait, download and transfer_end
 * do. A backend object may be used by one thread at a time. */
#ifndef RF_GRAPH_BACKEND_H
#define RF_GRAPH_BACKEND_H

#include "graph/graph_impl.h"

struct rf_arena {
    uint64_t bytes;
    void *host;               /* CPU: the memory; dummy: a number that is never dereferenced */
    struct rf_buffer *buffer; /* GPU */
};

struct rf_backend;
struct rf_transfer;
struct rf_backend_table {
    const char *kind; /* "gpu", "cpu", "dummy" */
    /* RF_OK, or RF_E_UNSUPPORTED with the reason. */
    rf_status (*supports)(struct rf_backend *backend, const struct rf_op_call *call);
    /* How many bytes of scratch memory a call needs besides its tensors. */
    rf_status (*workspace)(struct rf_backend *backend, const struct rf_op_call *call, uint64_t *bytes);
    /* How many bytes of counters (ops/op.h) it needs. NULL: none. */
    rf_status (*counters)(struct rf_backend *backend, const struct rf_op_call *call, uint64_t *bytes);
    /* The alignment of tensors within an arena. */
    uint64_t (*alignment)(struct rf_backend *backend);
    /* Allocates zeroed memory for tensors. The budget is charged before the memory is allocated; the ledger shows
     * it under label. */
    rf_status (*arena_create)(struct rf_backend *backend, uint64_t bytes, const char *label, struct rf_arena *out);
    rf_status (*arena_destroy)(struct rf_backend *backend, struct rf_arena *arena);
    /* Called for each tensor that gets storage: the dummy counts them, and may refuse one. NULL: the backend does
     * not need to know. */
    rf_status (*assigned)(struct rf_backend *backend, rf_tensor_id id, uint64_t bytes);
    /* Both are ordered with the backend's work. upload: the host memory may be reused when the call returns.
     * download waits for its data. */
    rf_status (*upload)(struct rf_backend *backend, struct rf_arena *arena, uint64_t offset, const void *data,
                        uint64_t bytes);
    rf_status (*download)(struct rf_backend *backend, struct rf_arena *arena, uint64_t offset, void *data,
                          uint64_t bytes);
    /* A download that does not wait, for copies between places. transfer_create allocates all memory that the copy
     * needs. transfer_begin is ordered with the backend's work. transfer_end waits for the copy and returns its
     * bytes, which stay valid until the next transfer_begin. NULL: download is used. */
    rf_status (*transfer_create)(struct rf_backend *backend, uint64_t bytes, struct rf_transfer **out);
    rf_status (*transfer_begin)(struct rf_backend *backend, struct rf_transfer *transfer, struct rf_arena *arena,
                                uint64_t offset);
    rf_status (*transfer_end)(struct rf_backend *backend, struct rf_transfer *transfer, int64_t timeout_ns,
                              const void **data);
    void (*transfer_destroy)(struct rf_backend *backend, struct rf_transfer *transfer);
    /* Does everything that execute does except launch, and so says whether execute would succeed. NULL: whatever
     * is supported can be executed. */
    rf_status (*rehearse)(struct rf_backend *backend, const struct rf_op_call *call);
    /* Called when everything was rehearsed: loads what the rehearsals found to be needed. NULL: nothing is. */
    rf_status (*rehearsed)(struct rf_backend *backend);
    rf_status (*execute)(struct rf_backend *backend, const struct rf_op_call *call);
    /* Measure executed work without waiting for each node: marks are created beforehand, set in order with the
     * work, and read after a wait. NULL: execute returns when the work is done. */
    rf_status (*marks_create)(struct rf_backend *backend, size_t count);
    rf_status (*mark)(struct rf_backend *backend, size_t index);
    rf_status (*marks_between)(struct rf_backend *backend, size_t first, size_t second, int64_t *elapsed_ns);
    rf_status (*wait)(struct rf_backend *backend, int64_t timeout_ns);
    /* A number for all that was submitted so far, and a wait for that alone. NULL: the backend has no queue. */
    uint64_t (*submitted)(struct rf_backend *backend);
    rf_status (*wait_until)(struct rf_backend *backend, uint64_t submitted, int64_t timeout_ns);
    /* Recording: between record_begin and record_end, execute records instead of running; replay runs the
     * recording. NULL: the backend cannot record. */
    rf_status (*record_begin)(struct rf_backend *backend);
    rf_status (*record_end)(struct rf_backend *backend, void **recording);
    rf_status (*replay)(struct rf_backend *backend, void *recording);
    void (*recording_destroy)(struct rf_backend *backend, void *recording);
    void (*destroy)(struct rf_backend *backend); /* frees the backend, not the device or dummy it uses */
};
struct rf_backend {
    const struct rf_backend_table *table;
    struct rf_device *device; /* of a GPU backend, borrowed; else NULL */
    char name[96];            /* "Simulated GPU 0 (gfx1100)", "CPU, avx512, 2 threads" */
};

rf_status rf_backend_create_gpu(struct rf_device *device, struct rf_backend **out);
/* Runs on the runtime's thread pool, with at most this many threads (0: RF_THREADS, else one per usable core).
 * simd: NULL for the best. Its arenas are charged to the runtime's host budget. It borrows the runtime until it is
 * destroyed. */
rf_status rf_backend_create_cpu(struct rf_runtime *runtime, unsigned threads, const char *simd,
                                struct rf_backend **out);
rf_status rf_backend_create_dummy(struct rf_dummy *dummy, struct rf_backend **out);
void rf_backend_destroy(struct rf_backend **backend);

#endif
