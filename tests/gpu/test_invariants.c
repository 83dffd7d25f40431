/* What rf_pool_is_valid, rf_ledger_is_valid and rf_timeline_is_valid find: each invariant is broken once by hand. */
#include "gpu_testing.h"

#include "../checks_testing.h"
#include "gpu/device_impl.h"

static struct rf_buffer *direct_buffer(struct gpu *gpu, uint64_t bytes) {
    struct rf_buffer *buffer = NULL;
    RF_PARAMS(struct rf_buffer_params, params);
    params.bytes = bytes;
    params.direct = true;
    RF_ASSERT_OK(rf_buffer_create_safe(gpu->device, &params, &buffer));
    return buffer;
}

/* A pool with something in every list: idle and live chunks of two sizes, idle and doomed whole blocks. */
struct filled {
    struct gpu gpu;
    struct rf_buffer *live[3];
    struct rf_block *doomed;
};

static void fill(struct filled *filled) {
    struct gpu *gpu = &filled->gpu;
    gpu_need_simulated("");
    gpu_open(gpu, "1GiB");
    struct rf_buffer *idle[] = {gpu_buffer(gpu, 5000), gpu_buffer(gpu, 5000), gpu_buffer(gpu, 100 * KIB),
                                gpu_buffer(gpu, 3 * MIB), gpu_buffer(gpu, 5 * MIB)};
    filled->live[0] = gpu_buffer(gpu, 5000);
    filled->live[1] = gpu_buffer(gpu, 3 * MIB);
    filled->live[2] = direct_buffer(gpu, 1);
    for (size_t i = 0; i < sizeof idle / sizeof *idle; i++) RF_ASSERT_OK(rf_buffer_destroy(&idle[i]));
    /* The driver gets a doomed block back at once if nothing runs, so the test inserts one by hand. */
    struct rf_pool *pool = &gpu->device->pool;
    RF_ASSERT(pool->blocks.count >= 2 && pool->blocks.first->next);
    filled->doomed = pool->blocks.first;
    pool->blocks.first = filled->doomed->next;
    pool->blocks.count--;
    filled->doomed->next = NULL;
    pool->doomed = (struct rf_block_list){filled->doomed, filled->doomed, 1};
}

static void empty(struct filled *filled) {
    for (size_t i = 0; i < 3; i++) RF_ASSERT_OK(rf_buffer_destroy(&filled->live[i]));
    gpu_close(&filled->gpu);
}

RF_TEST(invariants, of_the_pool, .tags = "sim") {
    NEED_CHECKS();
    struct filled filled = {0};
    fill(&filled);
    struct rf_device *device = filled.gpu.device;
    struct rf_pool *pool = &device->pool;
    int class = 1; /* 8 KiB */
    struct rf_block_list *chunks = &pool->chunks[class];
    struct rf_slab *slab = chunks->first->slab;
    EXPECT_VALID(rf_pool_is_valid, device);
    /* 1: the sum */
    PLANT(rf_pool_is_valid, device, pool->idle_bytes, pool->idle_bytes + 1, "idle_bytes is not the sum");
    PLANT(rf_pool_is_valid, device, pool->idle_bytes, pool->idle_bytes - 4096, "idle_bytes is not the sum");
    PLANT(rf_pool_is_valid, device, filled.doomed->bytes, filled.doomed->bytes + 4096, "idle_bytes is not the sum");
    /* 2: the slabs' counts */
    PLANT(rf_pool_is_valid, device, slab->idle_count, slab->idle_count - 1, "a slab's idle_count is not");
    PLANT(rf_pool_is_valid, device, slab->idle_count, slab->idle_count + 1, "a slab's idle_count is not");
    PLANT(rf_pool_is_valid, device, slab->chunk_count, slab->idle_count - 1, "does not lie in its slab");
    PLANT(rf_pool_is_valid, device, slab->size_class, class + 1, "in the list of another size");
    PLANT(rf_pool_is_valid, device, chunks->first->slab, NULL, "in the list of another size");
    PLANT(rf_pool_is_valid, device, chunks->first->bytes, 4096, "not the size of its class");
    /* the lists */
    PLANT(rf_pool_is_valid, device, chunks->count, chunks->count + 1, "shorter than its count");
    PLANT(rf_pool_is_valid, device, chunks->count, chunks->count - 1, "longer than its count");
    PLANT(rf_pool_is_valid, device, chunks->last->next, chunks->first, "longer than its count, or a ring");
    PLANT(rf_pool_is_valid, device, chunks->last, chunks->first, "not the end of its chain");
    PLANT(rf_pool_is_valid, device, pool->blocks.count, pool->blocks.count + 1, "shorter than its count");
    PLANT(rf_pool_is_valid, device, pool->blocks.first->direct, true, "a chunk, direct or pinned");
    PLANT(rf_pool_is_valid, device, filled.doomed->slab, slab, "a doomed block is a chunk or pinned");
    /* an idle chunk of a slab that the pool does not have */
    struct rf_slab **link = &pool->slabs;
    while (*link != slab) link = &(*link)->next;
    PLANT(rf_pool_is_valid, device, *link, slab->next, "belongs to no slab");
    /* the bytes that the driver granted */
    PLANT(rf_pool_is_valid, device, device->held_bytes, device->held_bytes - 1, "held_bytes is less");
    empty(&filled);
}

RF_TEST(invariants, of_the_ledger, .tags = "sim") {
    NEED_CHECKS();
    struct filled filled = {0};
    fill(&filled);
    struct rf_device *device = filled.gpu.device;
    struct rf_ledger_entry *last = device->ledger_last, *before = last->previous;
    EXPECT_VALID(rf_ledger_is_valid, device);
    PLANT(rf_ledger_is_valid, device, device->used_bytes, device->used_bytes + 1, "used_bytes is not the sum");
    PLANT(rf_ledger_is_valid, device, last->record.held_bytes, 0, "used_bytes is not the sum");
    PLANT(rf_ledger_is_valid, device, device->live_count, device->live_count - 1, "live_count is not");
    PLANT(rf_ledger_is_valid, device, last->previous, NULL, "does not point back");
    PLANT(rf_ledger_is_valid, device, last->record.id, before->record.id, "not oldest first");
    PLANT(rf_ledger_is_valid, device, device->ledger_last, before, "not the end of the list");
    PLANT(rf_ledger_is_valid, device, last->record.abandoned, true, "used_bytes is not the sum");
    empty(&filled);
}

/* The gate keeps everybody's work out, so it is not held for work that does not end: rf_quiet_enter gives up long
 * before its deadline. How long it held the gate shows in how often it looked meanwhile, at most every 20 us; a
 * loaded machine only looks less often. */
RF_TEST(invariants, of_the_gate, .tags = "sim") {
    gpu_need_simulated("");
    struct gpu gpu = {0};
    struct gpu_hold hold;
    gpu_open(&gpu, NULL);
    gpu_hold_prepare(&gpu, &hold);
    RF_ASSERT_OK(gpu_hold_launch(&gpu, &hold, gpu.queue));
    struct rf_device *device = gpu.device;
    uint64_t looked = gpu_sim_entry_calls("hipEventQuery");
    pthread_mutex_lock(&device->memory_mutex);
    RF_EXPECT_STATUS(rf_quiet_enter(device, rf_deadline_after(RF_MS(20000))), RF_E_BUSY);
    pthread_mutex_unlock(&device->memory_mutex);
    looked = gpu_sim_entry_calls("hipEventQuery") - looked;
    RF_NOTE("%llu looks", (unsigned long long)looked);
    RF_EXPECT(looked > 0 && looked <= 200);
    RF_EXPECT(!atomic_load(&device->gate_closed));
    gpu_hold_end(&gpu, &hold);
    RF_ASSERT_OK(rf_queue_wait(gpu.queue, RF_TIMEOUT_DEFAULT));
    gpu_hold_finish(&hold);
    gpu_close(&gpu);
}

RF_TEST(invariants, of_a_timeline, .tags = "sim") {
    NEED_CHECKS();
    struct gpu gpu = {0};
    gpu_need_simulated("");
    gpu_open(&gpu, NULL);
    struct rf_buffer *buffer = gpu_buffer(&gpu, 4096);
    struct rf_timeline *line = ((struct rf_queue *)gpu.queue)->line;
    for (int i = 0; i < 20; i++) RF_ASSERT_OK(rf_fill(gpu.queue, buffer, 0, 4096, 1));
    RF_ASSERT_OK(rf_queue_wait(gpu.queue, RF_TIMEOUT_DEFAULT));
    /* All work is done: the test adds the marks of two unfinished submissions. */
    EXPECT_VALID(rf_timeline_is_valid, line);
    RF_ASSERT(line->spare_count >= 2);
    unsigned spare = line->spare_count;
    uint64_t done = line->submitted;
    for (unsigned i = 0; i < 2; i++) {
        unsigned at = (line->mark_first + i) % RF_MARKS_MAX;
        line->marks[at].event = line->spare_events[--line->spare_count];
        line->marks[at].ticket = done + 1 + i;
    }
    line->mark_count = 2;
    line->submitted = done + 2;
    unsigned first = line->mark_first % RF_MARKS_MAX, second = (first + 1) % RF_MARKS_MAX;
    EXPECT_VALID(rf_timeline_is_valid, line);
    /* 1: tickets */
    PLANT(rf_timeline_is_valid, line, line->completed, done + 3, "more is completed than was submitted");
    PLANT(rf_timeline_is_valid, line, line->submitted, done + RF_IN_FLIGHT_MAX + 1, "more is unfinished than");
    /* 2: marks */
    PLANT(rf_timeline_is_valid, line, line->marks[second].ticket, done + 1, "not in ticket order");
    PLANT(rf_timeline_is_valid, line, line->marks[first].ticket, done, "not in ticket order");
    PLANT(rf_timeline_is_valid, line, line->marks[second].ticket, done + 3, "was not handed out");
    PLANT(rf_timeline_is_valid, line, line->marks[first].event, NULL, "a mark has no event");
    PLANT(rf_timeline_is_valid, line, line->spare_count, RF_MARKS_MAX, "more marks and spare events than places");
    PLANT(rf_timeline_is_valid, line, line->mark_first, RF_MARKS_MAX, "more marks and spare events than places");
    if (line->spare_count)
        PLANT(rf_timeline_is_valid, line, line->spare_events[0], line->marks[first].event, "spare as well");
    /* slots */
    PLANT(rf_timeline_is_valid, line, line->stream, NULL, "a free slot is in use or has marks");
    line->submitted = done;
    line->mark_count = 0;
    line->spare_count = spare;
    EXPECT_VALID(rf_timeline_is_valid, line);
    PLANT(rf_timeline_is_valid, line, line->stream, NULL, "a free slot is in use or has marks");
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    gpu_close(&gpu);
}
