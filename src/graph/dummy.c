/* The dummy: a backend with fake memory that executes nothing, for tests of graphs, plans and placements.
 *
 * The struct rf_dummy belongs to the user and keeps the counts; a struct rf_backend uses it while a graph is
 * executed.
 * Invariants:
 *   - an address is a number from 16 on, a multiple of the alignment, and is never dereferenced
 *   - alloc_count counts tensors that were given a buffer, not arenas; total is the sum of their bytes, each rounded
 *     up to the alignment
 *   - a refused allocation counts nothing
 * Addresses and sums are asserted where they change. Dereferencing an address would end the process.
 * One thread at a time. */
#include "graph/backend.h"

#include <stdio.h>
#include <stdlib.h>

enum { BASE = 16 };

struct rf_dummy {
    uint64_t max_bytes, alignment; /* max_bytes of one buffer, and its alignment */
    uint64_t next;                 /* the address of the next arena */
    uint64_t total;
    struct rf_dummy_stats stats;
    size_t fail_in; /* the allocation that fails, counted from 1 for the next one; 0: none fails */
    bool *buffers;  /* [id - 1] whether the tensor has a buffer, in the graph executed last */
    size_t buffer_count;
};

rf_status rf_dummy_create(struct rf_dummy **out) {
    return rf_dummy_create_with_config(64, 8, out);
}

rf_status rf_dummy_create_with_config(uint64_t max_bytes, uint64_t alignment, struct rf_dummy **out) {
    if (!out) return rf_fail(RF_E_INVALID, "rf_dummy_create_with_config: out is NULL");
    if (!alignment || (alignment & (alignment - 1)) || alignment > (uint64_t)1 << 32)
        return rf_fail(RF_E_INVALID, "dummy: an alignment of %llu: it must be a power of two, at most 2^32",
                       (unsigned long long)alignment);
    if (!max_bytes) return rf_fail(RF_E_INVALID, "dummy: buffers of at most 0 bytes hold nothing");
    struct rf_dummy *dummy = calloc(1, sizeof *dummy);
    if (!dummy) return rf_fail(RF_E_NO_MEMORY, "dummy: the host has no memory left");
    dummy->max_bytes = max_bytes;
    dummy->alignment = alignment;
    dummy->next = BASE;
    *out = dummy;
    return RF_OK;
}

void rf_dummy_destroy(struct rf_dummy **dummy) {
    if (!dummy || !*dummy) return;
    free((*dummy)->buffers);
    free(*dummy);
    *dummy = NULL;
}

struct rf_dummy_stats rf_dummy_get_stats(const struct rf_dummy *dummy) {
    return dummy ? dummy->stats : (struct rf_dummy_stats){0, 0};
}
uint64_t rf_dummy_allocated_total(const struct rf_dummy *dummy) {
    return dummy ? dummy->total : 0;
}
bool rf_dummy_has_buffer(const struct rf_dummy *dummy, rf_tensor_id id) {
    return dummy && id && id <= dummy->buffer_count && dummy->buffers[id - 1];
}
static void forget_buffers(struct rf_dummy *dummy) {
    free(dummy->buffers);
    dummy->buffers = NULL;
    dummy->buffer_count = 0;
}
void rf_dummy_reset(struct rf_dummy *dummy) {
    if (!dummy) return;
    forget_buffers(dummy);
    dummy->stats = (struct rf_dummy_stats){0, 0};
    dummy->total = 0;
    dummy->next = BASE;
    dummy->fail_in = 0;
}
void rf_dummy_fail_at(struct rf_dummy *dummy, size_t nth) {
    if (dummy) dummy->fail_in = nth;
}

/* ---- as a backend ---- */

struct dummy_backend {
    struct rf_backend base; /* must be the first member */
    struct rf_dummy *dummy;
};
static struct rf_dummy *dummy_of(struct rf_backend *backend) {
    return ((struct dummy_backend *)backend)->dummy;
}

static rf_status dummy_supports(struct rf_backend *backend, const struct rf_op_call *call) {
    (void)backend, (void)call; /* rf_op_check accepted the call, and the dummy computes nothing */
    return RF_OK;
}
static rf_status dummy_workspace(struct rf_backend *backend, const struct rf_op_call *call, uint64_t *bytes) {
    (void)backend, (void)call;
    *bytes = 0;
    return RF_OK;
}
static uint64_t dummy_alignment(struct rf_backend *backend) {
    return dummy_of(backend)->alignment;
}

static rf_status dummy_arena_create(struct rf_backend *backend, uint64_t bytes, const char *label,
                                    struct rf_arena *out) {
    struct rf_dummy *dummy = dummy_of(backend);
    uint64_t address, next;
    if (rf_round_up_overflows(dummy->next, dummy->alignment, &address) || rf_add_overflows(address, bytes, &next) ||
        next > INT64_MAX) /* no address space reaches further */
        return rf_fail(RF_E_DEVICE_MEMORY, "dummy: no addresses are left for %llu bytes of %s",
                       (unsigned long long)bytes, label ? label : "an arena");
    dummy->next = RF_MAX(next, address + 1); /* no two arenas have the same address, not even empty ones */
    rf_assert(address >= BASE && address % dummy->alignment == 0 && dummy->next > address);
    *out = (struct rf_arena){.bytes = bytes, .host = (void *)(uintptr_t)address};
    return RF_OK;
}
static rf_status dummy_arena_destroy(struct rf_backend *backend, struct rf_arena *arena) {
    (void)backend;
    *arena = (struct rf_arena){0};
    return RF_OK;
}

static bool mark_buffer(struct rf_dummy *dummy, rf_tensor_id id) {
    if (id > dummy->buffer_count) {
        size_t count = RF_MAX((size_t)id, 2 * dummy->buffer_count);
        bool *grown = realloc(dummy->buffers, count * sizeof *grown);
        if (!grown) return false;
        memset(grown + dummy->buffer_count, 0, count - dummy->buffer_count);
        dummy->buffers = grown;
        dummy->buffer_count = count;
    }
    dummy->buffers[id - 1] = true;
    return true;
}
static rf_status dummy_assigned(struct rf_backend *backend, rf_tensor_id id, uint64_t bytes) {
    struct rf_dummy *dummy = dummy_of(backend);
    if (!id) return rf_fail(RF_E_INVALID, "dummy: a buffer for no tensor");
    if (dummy->fail_in && !--dummy->fail_in)
        return rf_fail(RF_E_DEVICE_MEMORY, "dummy: allocation %zu, %llu bytes for tensor %u, fails as it was told to",
                       dummy->stats.alloc_count + 1, (unsigned long long)bytes, id);
    uint64_t rounded, total;
    if (bytes > dummy->max_bytes || rf_round_up_overflows(bytes, dummy->alignment, &rounded) ||
        rf_add_overflows(dummy->total, rounded, &total))
        return rf_fail(
            RF_E_DEVICE_MEMORY,
            "dummy: tensor %u needs %llu bytes, a buffer has at most %llu: see rf_dummy_create_with_config", id,
            (unsigned long long)bytes, (unsigned long long)dummy->max_bytes);
    if (!mark_buffer(dummy, id)) return rf_fail(RF_E_NO_MEMORY, "dummy: the host has no memory left");
    dummy->total = total;
    dummy->stats.alloc_count++;
    rf_assert(dummy->total % dummy->alignment == 0 && dummy->buffers[id - 1]);
    return RF_OK;
}

static rf_status check_range(const struct rf_arena *arena, uint64_t offset, uint64_t bytes) {
    if ((uintptr_t)arena->host < BASE) return rf_fail(RF_E_INVALID, "dummy: the arena was not made by it");
    return rf_range_fits(offset, bytes, arena->bytes)
               ? RF_OK
               : rf_fail(RF_E_INVALID, "dummy: %llu bytes at offset %llu of an arena of %llu",
                         (unsigned long long)bytes, (unsigned long long)offset, (unsigned long long)arena->bytes);
}
static rf_status dummy_upload(struct rf_backend *backend, struct rf_arena *arena, uint64_t offset, const void *data,
                              uint64_t bytes) {
    (void)backend, (void)data;
    return check_range(arena, offset, bytes);
}
/* Uploaded data was not kept. The caller gets zeros, so that nobody reads the previous contents of its memory. */
static rf_status dummy_download(struct rf_backend *backend, struct rf_arena *arena, uint64_t offset, void *data,
                                uint64_t bytes) {
    (void)backend;
    rf_status status = check_range(arena, offset, bytes);
    if (!status && bytes) memset(data, 0, (size_t)bytes);
    return status;
}
static rf_status dummy_execute(struct rf_backend *backend, const struct rf_op_call *call) {
    for (int i = 0; i < call->count; i++)
        if (rf_op_given(&call->tensors[i]) && (uintptr_t)call->tensors[i].host < BASE)
            return rf_fail(RF_E_INVALID, "dummy: %s: tensor %d has no place", call->op->name, i);
    dummy_of(backend)->stats.execute_op_count++;
    return RF_OK;
}
static rf_status dummy_wait(struct rf_backend *backend, int64_t timeout_ns) {
    (void)backend, (void)timeout_ns;
    return RF_OK;
}
static void dummy_destroy(struct rf_backend *backend) {
    free(backend);
}

static const struct rf_backend_table table = {
    .kind = "dummy",
    .supports = dummy_supports,
    .workspace = dummy_workspace,
    .alignment = dummy_alignment,
    .arena_create = dummy_arena_create,
    .arena_destroy = dummy_arena_destroy,
    .assigned = dummy_assigned,
    .upload = dummy_upload,
    .download = dummy_download,
    .execute = dummy_execute,
    .wait = dummy_wait,
    .destroy = dummy_destroy,
};

/* A new backend means a new graph: which tensors had a buffer in the last one is forgotten, but the counts are
 * kept. */
rf_status rf_backend_create_dummy(struct rf_dummy *dummy, struct rf_backend **out) {
    if (!dummy || !out) return rf_fail(RF_E_INVALID, "rf_backend_create_dummy: dummy or out is NULL");
    struct dummy_backend *backend = calloc(1, sizeof *backend);
    if (!backend) return rf_fail(RF_E_NO_MEMORY, "dummy: the host has no memory left");
    backend->base.table = &table;
    snprintf(backend->base.name, sizeof backend->base.name, "Dummy (buffers of %llu bytes, alignment %llu)",
             (unsigned long long)dummy->max_bytes, (unsigned long long)dummy->alignment);
    backend->dummy = dummy;
    forget_buffers(dummy);
    *out = &backend->base;
    return RF_OK;
}
