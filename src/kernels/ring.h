/* A ring of stages in shared memory, and the bulk copies that fill it.
 *
 * One thread has the stages filled, some waves use them:
 *
 *     filling   for each stage: bar = rf_ring_claim(&ring, bytes); rf_map_load(…, bar), in all `bytes`; rf_ring_next
 *     using     for each stage: rf_ring_wait(&ring); read it; rf_ring_release(&ring, its slot); rf_ring_next
 *
 * Each side has a struct rf_ring of its own, which says where it is. A stage has two barriers in shared memory: full
 * (its bytes have come) and empty (all that use it have released it). The kernel places the stages: slot i is its
 * i-th.
 *
 * NVIDIA's sm_90a has the copy engine and the barriers that count bytes. On the host the engine copies when the other
 * lanes had a turn, and a wait lets them run: a stage that is used before it came, or filled before it was released,
 * shows as a wrong result there. Other targets have neither: their kernels copy by themselves (tile.h).
 *
 * No wait is endless (RF_RING_PATIENCE): a mistake ends the launch with an error, not with a GPU that hangs. */
#ifndef RF_KERNELS_RING_H
#define RF_KERNELS_RING_H

#include "kernels/kernel.h"

#if !defined(RF_HOST) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error "only sm_90a and the host have rings: say rf-target: sm_90a in the source"
#endif

/* RF_KERNEL_RING: a kernel with rings, launched with exactly `threads` threads, one block to a compute unit, so that
 * registers can move between its waves. It takes tensor maps by value, as struct rf_map_argument. It may start early:
 * it calls rf_grid_go and rf_grid_wait itself. */
#if defined(RF_HOST)
#define RF_KERNEL_RING RF_KERNEL
#define RF_RING_PATIENCE 200000 /* turns of the lane that waits; a machine may be busy, so time says nothing */
#else
#define RF_KERNEL_RING(name, threads, ...)                                                                           \
    extern "C" __attribute__((global, launch_bounds(threads, 1))) void name(RF_EACH(RF_PARAM, __VA_ARGS__))
#define RF_RING_PATIENCE 4000000000ull /* nanoseconds */
#endif

/* ---- places in shared memory ---- */

#if defined(RF_HOST)
typedef uintptr_t rf_place;
#else
typedef uint32_t rf_place; /* an address of shared memory */
#endif
RF_DEVICE rf_place rf_place_of(const void *shared) {
#if defined(RF_HOST)
    return (uintptr_t)shared;
#else
    return (uint32_t)(uintptr_t)(const __attribute__((address_space(3))) void *)shared;
#endif
}
RF_DEVICE void *rf_place_pointer(rf_place place) {
#if defined(RF_HOST)
    return (void *)place;
#else
    return (void *)(__attribute__((address_space(3))) void *)(uintptr_t)place;
#endif
}
/* With the largest swizzle the engine exchanges the groups of 16 bytes in rows of 128, by the row's number: where the
 * byte of this address lies. */
RF_DEVICE rf_place rf_place_swizzled(rf_place place) {
    return place ^ (place >> 7 & 7) << 4;
}

/* ---- tensor maps ---- */

#if defined(RF_HOST)
struct rf_map_argument {
    struct rfk_map map;
};
typedef const struct rfk_map *rf_map;
#define RF_MAP_OF(kernel, index, argument) (&(argument).map)
#else
struct rf_map_argument {
    uint64_t words[16];
} __attribute__((aligned(64)));
typedef uint64_t rf_map;
/* The engine reads a map where the kernel's arguments are. clang 19 would copy an argument whose address is taken to
 * private memory, where the engine may not read; so its symbol is named instead. LLVM calls it
 * <kernel>_param_<index>.
 */
#define RF_MAP_OF(kernel, index, argument)                                                                           \
    ((void)(argument), __extension__({                                                                               \
         uint64_t rf_map_at;                                                                                         \
         __asm__("{ .reg .b64 p; mov.b64 p, " #kernel "_param_" #index "; cvta.param.u64 %0, p; }"                   \
                 : "=l"(rf_map_at));                                                                                 \
         rf_map_at;                                                                                                  \
     }))
#endif

RF_DEVICE void rf_map_fetch(rf_map map) {
#if defined(RF_HOST)
    (void)map;
#else
    __asm__ volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
#endif
}

/* ---- barriers of shared memory, 8 bytes each ---- */

#if defined(RF_HOST)
struct rf_bar_on_host {
    int32_t bytes;              /* still to come */
    uint16_t arrivals, missing; /* missing: of the present phase; its top bit is the phase */
};
RF_DEVICE void rf_bar_settle(struct rf_bar_on_host *bar) {
    if (bar->bytes == 0 && (bar->missing & 0x7fff) == 0)
        bar->missing = (uint16_t)((~bar->missing & 0x8000) | bar->arrivals);
}
#endif

/* arrivals: below 2^15. Behind the inits rf_bars_ready in the thread that made them, then a barrier of the block. */
RF_DEVICE void rf_bar_init(rf_place bar, uint32_t arrivals) {
#if defined(RF_HOST)
    struct rf_bar_on_host fresh = {0, (uint16_t)arrivals, (uint16_t)arrivals};
    *(struct rf_bar_on_host *)bar = fresh;
#else
    __asm__ volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
#endif
}
RF_DEVICE void rf_bars_ready(void) {
#if !defined(RF_HOST)
    __asm__ volatile("fence.mbarrier_init.release.cluster;\n\tfence.proxy.async;" ::: "memory");
#endif
}
RF_DEVICE void rf_bar_arrive(rf_place bar) {
#if defined(RF_HOST)
    ((struct rf_bar_on_host *)bar)->missing--;
    rf_bar_settle((struct rf_bar_on_host *)bar);
#else
    __asm__ volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
#endif
}
/* Arrives, and so many bytes must come too. */
RF_DEVICE void rf_bar_expect(rf_place bar, uint32_t bytes) {
#if defined(RF_HOST)
    ((struct rf_bar_on_host *)bar)->bytes += (int32_t)bytes;
    rf_bar_arrive(bar);
#else
    __asm__ volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
#endif
}
/* Whether the phase of this parity is over. May wait a little by itself. */
RF_DEVICE bool rf_bar_passed(rf_place bar, uint32_t parity) {
#if defined(RF_HOST)
    return (uint32_t)(((struct rf_bar_on_host *)bar)->missing >> 15) != parity;
#else
    uint32_t passed;
    __asm__ volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                     "selp.u32 %0, 1, 0, p; }"
                     : "=r"(passed)
                     : "r"(bar), "r"(parity)
                     : "memory");
    return passed != 0;
#endif
}
RF_DEVICE void rf_bar_wait(rf_place bar, uint32_t parity) {
    if (rf_bar_passed(bar, parity)) return;
#if defined(RF_HOST)
    uint64_t waited = 0;
#else
    uint64_t waited, start = rf_clock_ns();
#endif
    RF_NO_UNROLL
    while (!rf_bar_passed(bar, parity)) {
#if defined(RF_HOST)
        waited++;
#else
        waited = rf_clock_ns() - start;
#endif
        if (waited > RF_RING_PATIENCE) rf_fail_launch("a wait inside the block did not end");
        rf_relax();
    }
}

/* ---- the ring ---- */

#define RF_RING_BYTES(stages) (16 * (stages)) /* of its barriers */
struct rf_ring {
    rf_place full, empty; /* the first barrier of each kind */
    uint32_t stages;
    uint32_t slot, parity; /* of the next stage */
};
/* barriers: RF_RING_BYTES at a multiple of 8. */
RF_DEVICE struct rf_ring rf_ring_at(rf_place barriers, uint32_t stages) {
    struct rf_ring ring = {barriers, barriers + 8 * stages, stages, 0, 0};
    return ring;
}
/* By one thread, before a barrier of the block. A stage is empty after so many calls of rf_ring_release_one. */
RF_DEVICE void rf_ring_init_for(const struct rf_ring *ring, uint32_t releases) {
    RF_UNROLL
    for (uint32_t i = 0; i < ring->stages; i++) {
        rf_bar_init(ring->full + 8 * i, 1);
        rf_bar_init(ring->empty + 8 * i, releases);
    }
    rf_bars_ready();
}
/* users: threads of the waves that call rf_ring_release. Of a wave that works in step one lane arrives; on the host
 * lanes are not in step. */
RF_DEVICE void rf_ring_init(const struct rf_ring *ring, uint32_t users) {
#if defined(RF_HOST)
    rf_ring_init_for(ring, users);
#else
    rf_ring_init_for(ring, users / RF_WAVE);
#endif
}
RF_DEVICE void rf_ring_next(struct rf_ring *ring) {
    if (++ring->slot == ring->stages) {
        ring->slot = 0;
        ring->parity ^= 1;
    }
}
/* Filling: waits until the stage is empty. What is written to shared memory then, who waits for the stage reads. */
RF_DEVICE void rf_ring_empty(const struct rf_ring *ring) {
    rf_bar_wait(ring->empty + 8 * ring->slot, ring->parity ^ 1);
}
/* The same; returns the barrier that the copies of its `bytes` must name. */
RF_DEVICE rf_place rf_ring_claim(const struct rf_ring *ring, uint32_t bytes) {
    rf_place bar = ring->full + 8 * ring->slot;
    rf_ring_empty(ring);
    rf_bar_expect(bar, bytes);
    return bar;
}
/* Using: until the stage's bytes are there; and when all lanes of a wave have read it. */
RF_DEVICE void rf_ring_wait(const struct rf_ring *ring) {
    rf_bar_wait(ring->full + 8 * ring->slot, ring->parity);
}
RF_DEVICE void rf_ring_release_one(const struct rf_ring *ring, uint32_t slot) {
    rf_bar_arrive(ring->empty + 8 * slot);
}
RF_DEVICE void rf_ring_release(const struct rf_ring *ring, uint32_t slot) {
#if !defined(RF_HOST)
    if (rf_lane()) return;
#endif
    rf_bar_arrive(ring->empty + 8 * slot);
}

/* ---- bulk copies ---- */

#if defined(RF_HOST)
/* One box, to shared memory or from it. It has one row of rows: in the dimensions behind the second it is 1. */
RF_DEVICE void rf_map_copy_on_host(const struct rfk_map *map, uint32_t rank, const uint32_t *from, rf_place shared,
                                   bool load) {
    uint32_t size = map->element_bytes, mask = map->swizzle_bytes ? map->swizzle_bytes / 16 - 1 : 0;
    uint64_t base = map->base, end = map->sizes[0] * size;
    bool inside = true;
    if (!load) end = (end + 15) / 16 * 16; /* what the engine writes of a row */
    if (map->magic != RFK_MAP_MAGIC || map->rank != rank) rf_fail_launch("a bulk copy without a map of its rank");
    if (shared % 128) rf_fail_launch("a bulk copy of shared memory at no multiple of 128");
    for (uint32_t i = 2; i < rank; i++) {
        if (map->box[i] != 1) rf_fail_launch("a bulk copy of more than rows");
        inside = inside && from[i] < map->sizes[i];
        base += from[i] * map->strides[i - 1];
    }
    for (uint32_t row = 0; row < map->box[1]; row++)
        for (uint32_t column = 0; column < map->box[0]; column++, shared += size) {
            uint8_t *place = (uint8_t *)(shared ^ (shared >> 7 & mask) << 4);
            uint64_t x = (uint64_t)from[0] + column, y = (uint64_t)from[1] + row;
            bool there = inside && x * size < end && y < map->sizes[1];
            uint8_t *memory = (uint8_t *)(uintptr_t)(base + y * map->strides[0] + x * size);
            for (uint32_t i = 0; i < size; i++) {
                if (load) {
                    place[i] = there ? memory[i] : 0;
                } else if (there) {
                    memory[i] = place[i];
                }
            }
        }
}
RF_DEVICE void rf_map_load_on_host(const struct rfk_map *map, uint32_t rank, const uint32_t *from, rf_place to,
                                   rf_place bar) {
    rf_relax(); /* who uses the stage comes first, and must wait */
    rf_map_copy_on_host(map, rank, from, to, true);
    ((struct rf_bar_on_host *)bar)->bytes -= (int32_t)(map->box[0] * map->box[1] * map->element_bytes);
    rf_bar_settle((struct rf_bar_on_host *)bar);
}
#endif

/* A box of a map of two dimensions, from element (x, y) on, to shared memory at a multiple of 128 bytes (of 1024 with
 * the largest swizzle); bar gets its bytes, those outside the map included. */
RF_DEVICE void rf_map_load(rf_place to, rf_map map, uint32_t x, uint32_t y, rf_place bar) {
#if defined(RF_HOST)
    uint32_t from[2] = {x, y};
    rf_map_load_on_host(map, 2, from, to, bar);
#else
    __asm__ volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
                     "l"(map), "r"(x), "r"(y), "r"(bar)
                     : "memory");
#endif
}
/* The same of four dimensions; rows of one box are of one z and w. */
RF_DEVICE void rf_map_load_4d(rf_place to, rf_map map, uint32_t x, uint32_t y, uint32_t z, uint32_t w, rf_place bar) {
#if defined(RF_HOST)
    uint32_t from[4] = {x, y, z, w};
    rf_map_load_on_host(map, 4, from, to, bar);
#else
    __asm__ volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
                     "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(bar)
                     : "memory");
#endif
}
/* A box from shared memory, which the threads that wrote it have followed with rf_shared_written and then with a
 * barrier. rf_stores_sent ends a batch; behind rf_stores_read(n) all but the newest n batches have been read from
 * shared memory, behind rf_stores_done all are written. These four by one thread, n a constant.
 * Of each row the engine writes whole groups of 16 bytes, beyond the map's end too: a map to store by has rows of
 * such a size. */
RF_DEVICE void rf_map_store(rf_map map, uint32_t x, uint32_t y, rf_place from) {
#if defined(RF_HOST)
    uint32_t to[2] = {x, y};
    rf_map_copy_on_host(map, 2, to, from, false);
#else
    __asm__ volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
                     "r"(x), "r"(y), "r"(from)
                     : "memory");
#endif
}
RF_DEVICE void rf_map_store_4d(rf_map map, uint32_t x, uint32_t y, uint32_t z, uint32_t w, rf_place from) {
#if defined(RF_HOST)
    uint32_t to[4] = {x, y, z, w};
    rf_map_copy_on_host(map, 4, to, from, false);
#else
    __asm__ volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(map), "r"(x),
        "r"(y), "r"(z), "r"(w), "r"(from)
        : "memory");
#endif
}
RF_DEVICE void rf_shared_written(void) {
#if !defined(RF_HOST)
    __asm__ volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
RF_DEVICE void rf_stores_sent(void) {
#if !defined(RF_HOST)
    __asm__ volatile("cp.async.bulk.commit_group;" ::: "memory");
#endif
}
RF_DEVICE void rf_stores_read(uint32_t newer) { /* 0 or 1 */
#if !defined(RF_HOST)
    if (newer == 0) {
        __asm__ volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    } else {
        __asm__ volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
    }
#else
    (void)newer;
#endif
}
RF_DEVICE void rf_stores_done(void) {
#if !defined(RF_HOST)
    __asm__ volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
}

#endif
