/* The pool: memory is reused in queue order, and given back to the driver only at a quiet
 * moment, because the driver's free waits for every stream.
 *
 * Sizes up to 1 MiB are chunks of slabs, by powers of two from 4 KiB; larger ones are driver
 * allocations of their own, kept for reuse up to a share of the budget. Direct blocks never
 * enter the pool, but they too wait for a quiet moment, in 'doomed'.
 * Invariants (memory_mutex held throughout; rf_pool_is_valid checks 1 and 2 after each change):
 *   1. idle_bytes is the sum of bytes in chunks[], blocks and doomed
 *   2. a slab's idle_count is the number of its chunks in chunks[size_class]
 *   3. a block that was taken has no unfinished use except on the taker's own timeline */
#include "gpu/device_impl.h"

#include <stdlib.h>

enum { SMALLEST_CHUNK_SHIFT = 12, LOOKS = 16 };
#define LARGEST_CHUNK ((uint64_t)1 << (SMALLEST_CHUNK_SHIFT + RF_SIZE_CLASSES - 1))
#define SLAB_BYTES ((uint64_t)2 << 20)
#define LARGEST_KEPT ((uint64_t)256 << 20)
#define KEPT_SHARE 8 /* the pool keeps at most this fraction of the budget idle */
/* How long an allocation that would be refused waits for a quiet moment in which the pool can be trimmed. */
#define TRIM_PATIENCE_NS RF_MS(20)

static bool wanted_bytes(const struct rf_device *device, uint64_t bytes, uint64_t *wanted) {
    uint64_t guards = device->checks & RF_CHECK_GUARD ? 2 * RF_GUARD_BYTES : 0;
    return !rf_add_overflows(bytes, guards, wanted);
}

static int size_class(uint64_t wanted) {
    int class = 0;
    while (((uint64_t)1 << (SMALLEST_CHUNK_SHIFT + class)) < wanted) class ++;
    return class;
}

static uint64_t slab_bytes(const struct rf_device *device, int class) {
    uint64_t chunk = (uint64_t)1 << (SMALLEST_CHUNK_SHIFT + class),
             bytes = RF_MAX(chunk, RF_MIN(16 * chunk, SLAB_BYTES));
    rf_round_up_overflows(bytes, device->granularity_bytes, &bytes);
    return bytes;
}

uint64_t rf_pool_rounded(const struct rf_device *device, uint64_t bytes) {
    uint64_t wanted, rounded;
    if (!wanted_bytes(device, bytes, &wanted)) return 0;
    if (wanted <= LARGEST_CHUNK) return slab_bytes(device, size_class(wanted));
    return rf_round_up_overflows(wanted, device->granularity_bytes, &rounded) ? 0 : rounded;
}

/* ---- uses ---- */

static void lock_uses(struct rf_uses *uses) {
    while (atomic_flag_test_and_set_explicit(&uses->lock, memory_order_acquire)) {
    }
}
static void unlock_uses(struct rf_uses *uses) {
    atomic_flag_clear_explicit(&uses->lock, memory_order_release);
}

void rf_uses_note(struct rf_uses *uses, struct rf_timeline *line, uint64_t ticket) {
    lock_uses(uses);
    int own = -1, passed = -1;
    for (int i = 0; i < uses->count; i++) {
        if (uses->last[i].line == line) own = i;
        if (rf_timeline_passed(uses->last[i].line, uses->last[i].ticket)) passed = i;
    }
    int slot = own >= 0 ? own : passed >= 0 ? passed : uses->count < RF_USES_MAX ? uses->count++ : -1;
    if (slot >= 0)
        uses->last[slot] = (struct rf_use){line, ticket};
    else
        uses->overflow = true;
    unlock_uses(uses);
}

void rf_uses_clear(struct rf_uses *uses) {
    lock_uses(uses);
    uses->count = 0;
    uses->overflow = false;
    unlock_uses(uses);
}

static int copy_uses(struct rf_uses *uses, struct rf_use copy[RF_USES_MAX], bool *overflow) {
    lock_uses(uses);
    int count = uses->count;
    *overflow = uses->overflow;
    for (int i = 0; i < count; i++) copy[i] = uses->last[i];
    unlock_uses(uses);
    return count;
}

bool rf_uses_done(struct rf_uses *uses, struct rf_timeline *hint) {
    struct rf_use copy[RF_USES_MAX];
    bool overflow;
    int count = copy_uses(uses, copy, &overflow);
    if (overflow) return rf_timelines_idle(copy[0].line->device);
    for (int i = 0; i < count; i++) {
        bool done = copy[i].line == hint;
        if (!done && (rf_timeline_poll(copy[i].line, copy[i].ticket, &done) || !done)) return false;
    }
    return true;
}

rf_status rf_uses_wait(struct rf_uses *uses, int64_t deadline_ns) {
    struct rf_use copy[RF_USES_MAX];
    bool overflow;
    int count = copy_uses(uses, copy, &overflow);
    if (overflow) return rf_timelines_drain(copy[0].line->device, deadline_ns);
    for (int i = 0; i < count; i++) {
        rf_status status = rf_timeline_wait(copy[i].line, copy[i].ticket, deadline_ns);
        if (status) return status;
    }
    return RF_OK;
}

/* ---- lists ---- */

static void push(struct rf_block_list *list, struct rf_block *block) {
    block->next = NULL;
    if (list->last)
        list->last->next = block;
    else
        list->first = block;
    list->last = block;
    list->count++;
}

static struct rf_block *pop(struct rf_block_list *list) {
    struct rf_block *block = list->first;
    if (!block) return NULL;
    list->first = block->next;
    if (!list->first) list->last = NULL;
    list->count--;
    block->next = NULL;
    return block;
}

/* Takes the first block that fits and is free for this caller; blocks that are not free go to the back of the list.
 */
static struct rf_block *pick(struct rf_block_list *list, uint64_t wanted, uint64_t granularity_bytes,
                             struct rf_timeline *hint) {
    size_t looks = RF_MIN(list->count, (size_t)LOOKS);
    for (size_t i = 0; i < looks; i++) {
        struct rf_block *block = pop(list);
        bool fits = block->bytes >= wanted && block->bytes - wanted <= wanted / 4 + granularity_bytes;
        if ((block->slab || fits) && rf_uses_done(&block->uses, hint)) {
            /* Work on the caller's own timeline comes before whatever the caller submits next. */
            rf_uses_clear(&block->uses);
            return block;
        }
        push(list, block);
    }
    return NULL;
}

/* ---- taking ---- */

static rf_status add_slab(struct rf_device *device, int class) {
    uint64_t bytes = slab_bytes(device, class), chunk = (uint64_t)1 << (SMALLEST_CHUNK_SHIFT + class);
    size_t count = (size_t)(bytes / chunk);
    struct rf_slab *slab = calloc(1, sizeof *slab + count * sizeof slab->chunks[0]);
    if (!slab) return rf_fail(RF_E_NO_MEMORY, "no host memory for the pool's records");
    rf_status status = rf_memory_grant(device, bytes, &slab->base);
    if (status) {
        free(slab);
        return status;
    }
    slab->bytes = bytes;
    slab->size_class = class;
    slab->chunk_count = slab->idle_count = count;
    slab->next = device->pool.slabs;
    device->pool.slabs = slab;
    for (size_t i = 0; i < count; i++) {
        struct rf_block *block = &slab->chunks[i];
        block->base = (char *)slab->base + i * chunk;
        block->bytes = chunk;
        block->slab = slab;
        push(&device->pool.chunks[class], block);
    }
    /* The bytes of a slab beyond its chunks count as idle with them. */
    device->pool.idle_bytes += count * chunk;
    return RF_OK;
}

static rf_status take_once(struct rf_device *device, uint64_t wanted, bool direct, struct rf_timeline *hint,
                           struct rf_block **out) {
    struct rf_pool *pool = &device->pool;
    rf_status status = RF_OK;
    struct rf_block *block = NULL;
    if (wanted <= LARGEST_CHUNK && !direct) {
        int class = size_class(wanted);
        block = pick(&pool->chunks[class], wanted, device->granularity_bytes, hint);
        if (!block) {
            status = add_slab(device, class);
            if (status) return status;
            /* The new chunks are behind busy ones in the list. */
            size_t count = pool->chunks[class].count;
            for (size_t i = 0; i < count && !block; i += LOOKS)
                block = pick(&pool->chunks[class], wanted, device->granularity_bytes, hint);
            if (!block) return rf_fail(RF_E_BUSY, "pool: a fresh chunk was not free");
        }
        block->slab->idle_count--;
        pool->idle_bytes -= block->bytes;
    } else {
        if (!direct) block = pick(&pool->blocks, wanted, device->granularity_bytes, hint);
        if (block) {
            pool->idle_bytes -= block->bytes;
        } else {
            uint64_t bytes;
            if (rf_round_up_overflows(wanted, device->granularity_bytes, &bytes))
                return rf_fail(RF_E_INVALID, "an allocation of %llu bytes overflows", (unsigned long long)wanted);
            block = calloc(1, sizeof *block);
            if (!block) return rf_fail(RF_E_NO_MEMORY, "no host memory for a buffer's records");
            status = rf_memory_grant(device, bytes, &block->base);
            if (status) {
                free(block);
                return status;
            }
            block->bytes = bytes;
            block->direct = direct;
        }
    }
    block->user_offset = device->checks & RF_CHECK_GUARD ? RF_GUARD_BYTES : 0;
    *out = block;
    return RF_OK;
}

rf_status rf_pool_take(struct rf_device *device, uint64_t bytes, bool direct, struct rf_timeline *hint,
                       struct rf_block **out) {
    uint64_t wanted;
    if (!wanted_bytes(device, bytes, &wanted))
        return rf_fail(RF_E_INVALID, "an allocation of %llu bytes overflows", (unsigned long long)bytes);
    rf_memory_watch_floor(device);
    rf_status status = take_once(device, wanted, direct, hint, out);
    bool short_of_memory = status == RF_E_BUDGET || status == RF_E_DEVICE_MEMORY || status == RF_E_NO_MEMORY;
    if (short_of_memory && device->pool.idle_bytes) {
        struct rf_saved_error saved;
        rf_error_save(&saved);
        if (rf_pool_trim(device, rf_deadline_after(TRIM_PATIENCE_NS)) == RF_OK)
            status = take_once(device, wanted, direct, hint, out);
        else
            rf_error_restore(&saved);
    }
    /* Invariant 3: pick took a block only when its uses were done or the taker's own, and cleared them. */
    rf_assert(status || ((*out)->uses.count == 0 && !(*out)->uses.overflow));
    rf_assert_valid(rf_pool_is_valid, device);
    return status;
}

bool rf_pool_has(struct rf_device *device, uint64_t bytes) {
    uint64_t wanted;
    if (!wanted_bytes(device, bytes, &wanted)) return false;
    struct rf_block_list *list =
        wanted <= LARGEST_CHUNK ? &device->pool.chunks[size_class(wanted)] : &device->pool.blocks;
    struct rf_block *block = pick(list, wanted, device->granularity_bytes, NULL);
    if (block) push(list, block);
    return block != NULL;
}

/* ---- giving back ---- */

static void return_list(struct rf_device *device, struct rf_block_list *list) {
    rf_assert(atomic_load(&device->gate_closed)); /* the driver's free waits for every stream */
    for (struct rf_block *block; (block = pop(list));) {
        device->pool.idle_bytes -= block->bytes;
        rf_memory_return(device, block->base, block->bytes);
        free(block);
    }
}

/* Gives the doomed blocks back if nothing runs at this moment. */
static void return_doomed(struct rf_device *device) {
    if (!device->pool.doomed.first || rf_device_is_lost(device)) return;
    struct rf_saved_error saved;
    rf_error_save(&saved);
    if (rf_quiet_enter(device, 0) == RF_OK) {
        return_list(device, &device->pool.doomed);
        rf_quiet_leave(device);
    }
    rf_error_restore(&saved);
}

void rf_pool_doom(struct rf_device *device, struct rf_block *block) {
    device->pool.idle_bytes += block->bytes;
    push(&device->pool.doomed, block);
    return_doomed(device);
}

void rf_pool_give(struct rf_device *device, struct rf_block *block) {
    struct rf_pool *pool = &device->pool;
    rf_assert(!block->pinned && !block->next);
    pool->idle_bytes += block->bytes;
    if (block->slab) {
        block->slab->idle_count++;
        push(&pool->chunks[block->slab->size_class], block);
    } else if (block->direct || block->bytes > LARGEST_KEPT ||
               pool->idle_bytes > device->terms.promised_bytes / KEPT_SHARE) {
        push(&pool->doomed, block);
    } else {
        push(&pool->blocks, block);
    }
    return_doomed(device); /* the others are kept for reuse */
    rf_memory_watch_floor(device);
    rf_assert_valid(rf_pool_is_valid, device);
}

static void return_idle_slabs(struct rf_device *device) {
    struct rf_pool *pool = &device->pool;
    rf_assert(atomic_load(&device->gate_closed));
    for (struct rf_slab **link = &pool->slabs; *link;) {
        struct rf_slab *slab = *link;
        if (slab->idle_count < slab->chunk_count) {
            link = &slab->next;
            continue;
        }
        struct rf_block_list *list = &pool->chunks[slab->size_class];
        for (size_t i = list->count; i; i--) {
            struct rf_block *block = pop(list);
            if (block->slab == slab)
                pool->idle_bytes -= block->bytes;
            else
                push(list, block);
        }
        *link = slab->next;
        rf_memory_return(device, slab->base, slab->bytes);
        free(slab);
    }
}

rf_status rf_pool_trim(struct rf_device *device, int64_t deadline_ns) {
    rf_status status = rf_quiet_enter(device, deadline_ns);
    if (status) return status;
    rf_pool_return_all(device);
    rf_pinned_free_doomed(device);
    rf_recordings_free_doomed(device);
    rf_quiet_leave(device);
    rf_assert_valid(rf_pool_is_valid, device);
    return RF_OK;
}

void rf_pool_return_all(struct rf_device *device) {
    return_list(device, &device->pool.doomed);
    return_list(device, &device->pool.blocks);
    return_idle_slabs(device);
}

void rf_pool_finish(struct rf_device *device) {
    struct rf_pool *pool = &device->pool;
    for (struct rf_block *block; (block = pop(&pool->doomed));) free(block);
    for (struct rf_block *block; (block = pop(&pool->blocks));) free(block);
    while (pool->slabs) {
        struct rf_slab *slab = pool->slabs;
        pool->slabs = slab->next;
        free(slab);
    }
    memset(pool, 0, sizeof *pool);
}

/* ---- the invariants ---- */

#if RF_CHECKS >= 2
/* Whether the list's links, count and last element agree; adds the bytes of its blocks. */
static bool list_is_valid(const struct rf_block_list *list, uint64_t *bytes, const char **why) {
    const struct rf_block *last = NULL;
    size_t count = 0;
    for (const struct rf_block *block = list->first; block; block = block->next) {
        RF_INVALID_UNLESS(count++ < list->count, "a list of idle blocks is longer than its count, or a ring");
        *bytes += block->bytes;
        last = block;
    }
    RF_INVALID_UNLESS(count == list->count, "a list of idle blocks is shorter than its count");
    RF_INVALID_UNLESS(list->last == last, "a list's last block is not the end of its chain");
    return true;
}

static bool chunks_are_valid(const struct rf_pool *pool, int class, const char **why) {
    size_t idle = 0;
    for (const struct rf_block *block = pool->chunks[class].first; block; block = block->next) {
        const struct rf_slab *slab = block->slab;
        RF_INVALID_UNLESS(slab && slab->size_class == class, "an idle chunk is in the list of another size");
        RF_INVALID_UNLESS(block >= slab->chunks && block < slab->chunks + slab->chunk_count,
                          "an idle chunk does not lie in its slab");
        RF_INVALID_UNLESS(block->bytes == (uint64_t)1 << (SMALLEST_CHUNK_SHIFT + class),
                          "an idle chunk has not the size of its class");
    }
    for (const struct rf_slab *slab = pool->slabs; slab; slab = slab->next) {
        if (slab->size_class != class) continue;
        size_t count = 0;
        for (const struct rf_block *block = pool->chunks[class].first; block; block = block->next)
            count += block->slab == slab;
        RF_INVALID_UNLESS(count == slab->idle_count, "a slab's idle_count is not the number of its idle chunks");
        RF_INVALID_UNLESS(slab->idle_count <= slab->chunk_count, "a slab has more idle chunks than chunks");
        idle += count;
    }
    RF_INVALID_UNLESS(idle == pool->chunks[class].count, "an idle chunk belongs to no slab of the pool");
    return true;
}

bool rf_pool_is_valid(struct rf_device *device, const char **why) {
    const struct rf_pool *pool = &device->pool;
    uint64_t idle = 0, whole = 0, slabs = 0;
    for (int class = 0; class < RF_SIZE_CLASSES; class ++)
        if (!list_is_valid(&pool->chunks[class], &idle, why) || !chunks_are_valid(pool, class, why)) return false;
    if (!list_is_valid(&pool->blocks, &whole, why) || !list_is_valid(&pool->doomed, &whole, why)) return false;
    for (const struct rf_block *block = pool->blocks.first; block; block = block->next)
        RF_INVALID_UNLESS(!block->slab && !block->direct && !block->pinned,
                          "an idle whole block is a chunk, direct or pinned");
    for (const struct rf_block *block = pool->doomed.first; block; block = block->next)
        RF_INVALID_UNLESS(!block->slab && !block->pinned, "a doomed block is a chunk or pinned");
    RF_INVALID_UNLESS(pool->idle_bytes == idle + whole, "idle_bytes is not the sum of the idle blocks");
    for (const struct rf_slab *slab = pool->slabs; slab; slab = slab->next) slabs += slab->bytes;
    for (const struct rf_ledger_entry *entry = device->ledger_first; entry; entry = entry->next) {
        if (entry->record.kind != RF_ALLOC_BUFFER) continue;
        const struct rf_block *block =
            (const struct rf_block *)((const char *)entry - offsetof(struct rf_block, ledger));
        if (!block->slab) whole += block->bytes;
    }
    RF_INVALID_UNLESS(device->held_bytes >= device->driver_bytes + slabs + whole,
                      "held_bytes is less than the driver's own, the slabs and the whole blocks together");
    return true;
}
#endif
