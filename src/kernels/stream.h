/* A wave's own stream from memory to shared memory: slices of consecutive bytes, several under way at once.
 *
 *     rf_stream_begin(…, slot)   starts a slice on its way into a slot;
 *                                rf_stream_end(…, slot) follows before the next begin
 *     rf_streamed(newer)         all but the newest `newer` slices have arrived, for the lane that asks
 *     rf_wave_barrier()          behind it they have arrived for every lane of the wave, and a slot that lanes
 *                                read before it may be overwritten
 *
 * All lanes of a wave make each call, for every slice, also one of no bytes. NVIDIA copies without registers and
 * without waiting; elsewhere a slice waits in registers from begin to end, so that the work between them overlaps
 * with the copy. Lengths are constants of the kernel, so that there are registers enough: a slice has at most `most`
 * bytes, its slot RF_STREAM_SLOT(most) bytes, aligned to 16. */
#ifndef RF_KERNELS_STREAM_H
#define RF_KERNELS_STREAM_H

#include "kernels/kernel.h"

#include "kernels/matmul_args.h"

#define RF_STREAM_PIECES(most) ((RF_STREAM_SLOT(most) / 16 + RF_WAVE - 1) / RF_WAVE)
#define RF_STREAM_PIECES_MAX 6

/* While one slice is read, at least one less than there are slots are on their way. */
#if defined(RF_NVIDIA)
#define RF_STREAM_SLOTS(most) RF_STREAM_SLOTS_ON(true, most)
#else
#define RF_STREAM_SLOTS(most) RF_STREAM_SLOTS_ON(false, most)
#endif

struct rf_stream {
    const uint8_t *end; /* nothing from here on is read */
#if !defined(RF_NVIDIA)
    rf_u32x4 value[RF_STREAM_PIECES_MAX];
    const uint8_t *from;
    uint32_t pieces;
#endif
};

RF_DEVICE void rf_wave_barrier(void) {
#if defined(RF_NVIDIA)
    __nvvm_bar_warp_sync(~0u);
#elif defined(RF_AMD)
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
#else
    (void)rfk_services->ballot(1);
#endif
}

/* Where a slice's first byte lies in its slot. */
RF_DEVICE uint32_t rf_stream_skew(const uint8_t *from) {
    return (uint32_t)((uintptr_t)from & 15);
}

RF_DEVICE void rf_stream_begin(struct rf_stream *stream, uint32_t most, uint8_t *slot, const uint8_t *from,
                               uint32_t bytes) {
    uint32_t skew = rf_stream_skew(from), pieces = bytes ? (skew + bytes + 15) / 16 : 0;
    from -= skew;
#if defined(RF_NVIDIA)
    uint64_t room = (uint64_t)(stream->end - from);
    uint32_t left = room < RF_STREAM_SLOT(most) ? (uint32_t)room : RF_STREAM_SLOT(most);
    uint32_t to = (uint32_t)(uintptr_t)(const __attribute__((address_space(3))) void *)slot;
    RF_UNROLL
    for (uint32_t i = 0; i < RF_STREAM_PIECES(most); i++) {
        uint32_t piece = i * RF_WAVE + rf_lane(), at = piece * 16;
        uint32_t some = left - at < 16 ? left - at : 16;
        if (piece < pieces)
            __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                             :
                             : "r"(to + at), "l"(from + at), "r"(some)
                             : "memory");
    }
    __asm__ volatile("cp.async.commit_group;" ::: "memory");
#else
    (void)slot;
    stream->from = from;
    stream->pieces = pieces;
    RF_UNROLL
    for (uint32_t i = 0; i < RF_STREAM_PIECES(most); i++) {
        uint32_t piece = i * RF_WAVE + rf_lane();
        const uint8_t *at = from + piece * 16;
        if (piece < pieces && (uint64_t)(stream->end - at) >= 16) stream->value[i] = rf_load_16(at);
    }
#endif
}

RF_DEVICE void rf_stream_end(struct rf_stream *stream, uint32_t most, uint8_t *slot) {
#if defined(RF_NVIDIA)
    (void)stream, (void)most, (void)slot;
#else
    RF_UNROLL
    for (uint32_t i = 0; i < RF_STREAM_PIECES(most); i++) {
        uint32_t piece = i * RF_WAVE + rf_lane();
        const uint8_t *at = stream->from + piece * 16;
        uint64_t left = (uint64_t)(stream->end - at);
        if (piece < stream->pieces && left >= 16) rf_store_16(slot + piece * 16, stream->value[i]);
        if (piece < stream->pieces && left < 16) { /* the last piece of all: an even number of bytes */
            RF_NO_UNROLL
            for (uint32_t b = 0; b < left; b += 2) *(uint16_t *)(slot + piece * 16 + b) = *(const uint16_t *)(at + b);
        }
    }
#endif
}

/* The same for slices that begin and end at multiples of 16: a slot is `most` bytes, and no other bytes are copied.
 * Slices up to a call of rf_stream_sent count as one for rf_streamed. */
RF_DEVICE void rf_stream_begin_16(struct rf_stream *stream, uint32_t most, uint8_t *slot, const uint8_t *from,
                                  uint32_t bytes) {
    int32_t mine = (int32_t)bytes - (int32_t)rf_lane() * 16;
    from += rf_lane() * 16;
#if defined(RF_NVIDIA)
    (void)stream;
    uint32_t to = (uint32_t)(uintptr_t)(const __attribute__((address_space(3))) void *)slot + rf_lane() * 16;
    RF_UNROLL
    for (uint32_t i = 0; i < (most / 16 + RF_WAVE - 1) / RF_WAVE; i++) {
        if ((int32_t)(i * RF_WAVE * 16) < mine)
            __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                             :
                             : "r"(to + i * RF_WAVE * 16), "l"(from + i * RF_WAVE * 16)
                             : "memory");
    }
#else
    (void)slot;
    stream->pieces = bytes / 16;
    RF_UNROLL
    for (uint32_t i = 0; i < (most / 16 + RF_WAVE - 1) / RF_WAVE; i++)
        if ((int32_t)(i * RF_WAVE * 16) < mine) stream->value[i] = rf_load_16(from + i * RF_WAVE * 16);
#endif
}
RF_DEVICE void rf_stream_end_16(const struct rf_stream *stream, uint32_t most, uint8_t *slot) {
#if defined(RF_NVIDIA)
    (void)stream, (void)most, (void)slot;
#else
    RF_UNROLL
    for (uint32_t i = 0; i < (most / 16 + RF_WAVE - 1) / RF_WAVE; i++) {
        uint32_t piece = i * RF_WAVE + rf_lane();
        if (piece < stream->pieces) rf_store_16(slot + piece * 16, stream->value[i]);
    }
#endif
}
RF_DEVICE void rf_stream_sent(void) {
#if defined(RF_NVIDIA)
    __asm__ volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Loads 16 bytes of shared memory, aligned to 16, at once: a compiler may split a plain load where each word has a
 * use of its own. */
RF_DEVICE rf_u32x4 rf_shared_16(const void *shared) {
#if defined(RF_NVIDIA)
    uint32_t a, b, c, d;
    __asm__ volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                     : "r"((uint32_t)(uintptr_t)(const __attribute__((address_space(3))) void *)shared)
                     : "memory");
    rf_u32x4 value = {a, b, c, d};
    return value;
#else
    return rf_load_16(shared);
#endif
}

/* newer: a constant up to 2. */
RF_DEVICE void rf_streamed(uint32_t newer) {
#if defined(RF_NVIDIA)
    if (newer == 0) __asm__ volatile("cp.async.wait_group 0;" ::: "memory");
    if (newer == 1) __asm__ volatile("cp.async.wait_group 1;" ::: "memory");
    if (newer == 2) __asm__ volatile("cp.async.wait_group 2;" ::: "memory");
#else
    (void)newer;
#endif
}

#endif
