/* The dialect every kernel is written in: one source, three compilers.
 *
 * A .hip file is C (functions, structs, constants, macros) that clang compiles to PTX, to an
 * AMD code object, and as plain C11 for the host, once per wave size, where the simulated
 * driver runs it lane by lane. This header is the whole difference between the three.
 *
 *     RF_KERNEL(scale_f32, 256, (float *, out), (const float *, in), (float, factor), (uint64_t, count)) {
 *         uint64_t i = rf_block_x() * (uint64_t)rf_block_dim_x() + rf_thread_x();
 *         if (i < count) out[i] = in[i] * factor;
 *     }
 *
 * Rules
 *   - Include "kernels/….h" only; no library function, no global variable, no recursion.
 *   - Every device function is RF_DEVICE: it is always inlined, so constant arguments select
 *     variants at compile time. A variant is one RF_KERNEL line around a shared body.
 *   - Private arrays are indexed by constants only, after RF_UNROLL; else they land in memory
 *     and the build's lint refuses the kernel.
 *   - A kernel that uses wave or block operations is launched with whole waves (block size a
 *     multiple of 64 suits every device), and all lanes of a wave make each such call.
 *   - No float atomics and no order that depends on timing: the same launch gives the same bits.
 *   - A file says what its kernels expect of grid and block. Sizes are uint64_t.
 * Vendor instructions beyond these belong in a header of their own, with a host version. */
#ifndef RF_KERNELS_KERNEL_H
#define RF_KERNELS_KERNEL_H

#if defined(__NVPTX__)
#define RF_NVIDIA 1
#elif defined(__AMDGCN__)
#define RF_AMD 1
#else
#define RF_HOST 1
#endif

#ifdef RF_HOST
#include "kernels/host_abi.h"
#include <stdbool.h>
#else
typedef __UINT8_TYPE__ uint8_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __UINT64_TYPE__ uint64_t;
typedef __INT8_TYPE__ int8_t;
typedef __INT16_TYPE__ int16_t;
typedef __INT32_TYPE__ int32_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINTPTR_TYPE__ uintptr_t;
typedef __SIZE_TYPE__ size_t;
#endif

#define RF_UNROLL _Pragma("unroll")
#define RF_NO_UNROLL _Pragma("nounroll")

/* ---- functions and kernels --------------------------------------------------------------- */

/* RF_EACH(m, (type, name), …): m(left, type, name) for each pair, with commas between; left
 * counts down to 1. */
#define RF_PAIR(type, name) type, name
#define RF_APPLY(m, ...) m(__VA_ARGS__)
#define RF_EACH_1(m, p) RF_APPLY(m, 1, RF_PAIR p)
#define RF_EACH_2(m, p, ...) RF_APPLY(m, 2, RF_PAIR p), RF_EACH_1(m, __VA_ARGS__)
#define RF_EACH_3(m, p, ...) RF_APPLY(m, 3, RF_PAIR p), RF_EACH_2(m, __VA_ARGS__)
#define RF_EACH_4(m, p, ...) RF_APPLY(m, 4, RF_PAIR p), RF_EACH_3(m, __VA_ARGS__)
#define RF_EACH_5(m, p, ...) RF_APPLY(m, 5, RF_PAIR p), RF_EACH_4(m, __VA_ARGS__)
#define RF_EACH_6(m, p, ...) RF_APPLY(m, 6, RF_PAIR p), RF_EACH_5(m, __VA_ARGS__)
#define RF_EACH_7(m, p, ...) RF_APPLY(m, 7, RF_PAIR p), RF_EACH_6(m, __VA_ARGS__)
#define RF_EACH_8(m, p, ...) RF_APPLY(m, 8, RF_PAIR p), RF_EACH_7(m, __VA_ARGS__)
#define RF_EACH_9(m, p, ...) RF_APPLY(m, 9, RF_PAIR p), RF_EACH_8(m, __VA_ARGS__)
#define RF_EACH_10(m, p, ...) RF_APPLY(m, 10, RF_PAIR p), RF_EACH_9(m, __VA_ARGS__)
#define RF_EACH_11(m, p, ...) RF_APPLY(m, 11, RF_PAIR p), RF_EACH_10(m, __VA_ARGS__)
#define RF_EACH_12(m, p, ...) RF_APPLY(m, 12, RF_PAIR p), RF_EACH_11(m, __VA_ARGS__)
#define RF_EACH_13(m, p, ...) RF_APPLY(m, 13, RF_PAIR p), RF_EACH_12(m, __VA_ARGS__)
#define RF_EACH_14(m, p, ...) RF_APPLY(m, 14, RF_PAIR p), RF_EACH_13(m, __VA_ARGS__)
#define RF_EACH_15(m, p, ...) RF_APPLY(m, 15, RF_PAIR p), RF_EACH_14(m, __VA_ARGS__)
#define RF_EACH_16(m, p, ...) RF_APPLY(m, 16, RF_PAIR p), RF_EACH_15(m, __VA_ARGS__)
#define RF_EACH_17(m, p, ...) RF_APPLY(m, 17, RF_PAIR p), RF_EACH_16(m, __VA_ARGS__)
#define RF_EACH_18(m, p, ...) RF_APPLY(m, 18, RF_PAIR p), RF_EACH_17(m, __VA_ARGS__)
#define RF_EACH_19(m, p, ...) RF_APPLY(m, 19, RF_PAIR p), RF_EACH_18(m, __VA_ARGS__)
#define RF_EACH_20(m, p, ...) RF_APPLY(m, 20, RF_PAIR p), RF_EACH_19(m, __VA_ARGS__)
#define RF_EACH_PICK(a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20, f,   \
                     ...)                                                                                            \
    f
#define RF_EACH(m, ...)                                                                                              \
    RF_EACH_PICK(__VA_ARGS__, RF_EACH_20, RF_EACH_19, RF_EACH_18, RF_EACH_17, RF_EACH_16, RF_EACH_15, RF_EACH_14,    \
                 RF_EACH_13, RF_EACH_12, RF_EACH_11, RF_EACH_10, RF_EACH_9, RF_EACH_8, RF_EACH_7, RF_EACH_6,         \
                 RF_EACH_5, RF_EACH_4, RF_EACH_3, RF_EACH_2, RF_EACH_1, )                                            \
    (m, __VA_ARGS__)
#define RF_PARAM(left, type, name) type name
#define RF_PARAM_BYTES(left, type, name) (uint32_t)sizeof(type)
#define RF_PARAM_VALUE(left, type, name) *(type *)rf_args[rf_count - left]

/* RF_KERNEL(name, max_threads, (type, arg), …) { body }: a kernel launched with blocks of up
 * to max_threads, which bounds its registers. 1 to 20 arguments.
 *
 * Where the hardware can, a kernel is started while the work before it on its queue ends, and waits at its own begin:
 * the next one's start costs nothing then. RF_KERNEL_EARLY is for one that has something to fetch meanwhile: its body
 * calls rf_grid_go and rf_grid_wait itself. */
#if defined(RF_NVIDIA)
#define RF_DEVICE static __attribute__((device, always_inline)) inline
#define RF_PARAM_NAME(left, type, name) name
#define RF_KERNEL_EARLY(name, max_threads, ...)                                                                      \
    extern "C" __attribute__((global, launch_bounds(max_threads))) void name(RF_EACH(RF_PARAM, __VA_ARGS__))
#define RF_KERNEL(name, max_threads, ...)                                                                            \
    RF_DEVICE void name##_body(RF_EACH(RF_PARAM, __VA_ARGS__));                                                      \
    RF_KERNEL_EARLY(name, max_threads, __VA_ARGS__) {                                                                \
        rf_grid_go();                                                                                                \
        rf_grid_wait();                                                                                              \
        name##_body(RF_EACH(RF_PARAM_NAME, __VA_ARGS__));                                                            \
    }                                                                                                                \
    RF_DEVICE void name##_body(RF_EACH(RF_PARAM, __VA_ARGS__))
#elif defined(RF_AMD)
#define RF_DEVICE static __attribute__((device, always_inline)) inline
#define RF_KERNEL(name, max_threads, ...)                                                                            \
    extern "C" __attribute__((global, amdgpu_flat_work_group_size(1, max_threads))) void name(                       \
        RF_EACH(RF_PARAM, __VA_ARGS__))
#else
#define RF_DEVICE static __attribute__((always_inline, unused)) inline
#define RF_SECTION_OF_(wave) "rfk_rows_" #wave
#define RF_SECTION_OF(wave) RF_SECTION_OF_(wave)
/* The rows of all sources meet in one linker section per wave size; host_library.c finds them. */
#define RF_KERNEL(name, max_threads, ...)                                                                            \
    static void name##_body(RF_EACH(RF_PARAM, __VA_ARGS__));                                                         \
    static const uint32_t name##_bytes[] = {RF_EACH(RF_PARAM_BYTES, __VA_ARGS__)};                                   \
    static void name##_run(void **rf_args) {                                                                         \
        enum { rf_count = sizeof(name##_bytes) / sizeof(uint32_t) };                                                 \
        name##_body(RF_EACH(RF_PARAM_VALUE, __VA_ARGS__));                                                           \
    }                                                                                                                \
    static const struct rfk_kernel name##_row __attribute__((used, aligned(8), section(RF_SECTION_OF(RF_WAVE)))) = { \
        #name, name##_run, sizeof(name##_bytes) / sizeof(uint32_t), name##_bytes, max_threads};                      \
    static void name##_body(RF_EACH(RF_PARAM, __VA_ARGS__))
#endif
#if !defined(RF_NVIDIA)
#define RF_KERNEL_EARLY RF_KERNEL
#endif

/* ---- where a lane is ------------------------------------------------------------------------ */

/* Lanes per wave, a compile-time constant: 32 on NVIDIA and RDNA, 64 on CDNA; the host build
 * gets it with -DRF_WAVE. */
#if defined(RF_NVIDIA)
#define RF_WAVE 32
#elif defined(RF_AMD)
#define RF_WAVE __AMDGCN_WAVEFRONT_SIZE__
#elif !defined(RF_WAVE)
#error "build the host kernels with -DRF_WAVE=32 or 64"
#endif
#define RF_MAX_THREADS 1024

#if defined(RF_NVIDIA)
#define RF_NV_INDEX(name, axis, sreg)                                                                                \
    RF_DEVICE uint32_t name##_##axis(void) {                                                                         \
        return (uint32_t)__nvvm_read_ptx_sreg_##sreg##_##axis();                                                     \
    }
RF_NV_INDEX(rf_thread, x, tid)
RF_NV_INDEX(rf_thread, y, tid)
RF_NV_INDEX(rf_thread, z, tid)
RF_NV_INDEX(rf_block, x, ctaid)
RF_NV_INDEX(rf_block, y, ctaid)
RF_NV_INDEX(rf_block, z, ctaid)
RF_NV_INDEX(rf_block_dim, x, ntid)
RF_NV_INDEX(rf_block_dim, y, ntid)
RF_NV_INDEX(rf_block_dim, z, ntid)
RF_NV_INDEX(rf_grid_dim, x, nctaid)
RF_NV_INDEX(rf_grid_dim, y, nctaid)
RF_NV_INDEX(rf_grid_dim, z, nctaid)
RF_DEVICE uint32_t rf_lane(void) {
    return (uint32_t)__nvvm_read_ptx_sreg_laneid();
}
#elif defined(RF_AMD)
/* The hidden arguments of code object V5 begin with the three block counts. */
#define RF_AMD_INDEX(axis, number)                                                                                   \
    RF_DEVICE uint32_t rf_thread_##axis(void) {                                                                      \
        return __builtin_amdgcn_workitem_id_##axis();                                                                \
    }                                                                                                                \
    RF_DEVICE uint32_t rf_block_##axis(void) {                                                                       \
        return __builtin_amdgcn_workgroup_id_##axis();                                                               \
    }                                                                                                                \
    RF_DEVICE uint32_t rf_block_dim_##axis(void) {                                                                   \
        return __builtin_amdgcn_workgroup_size_##axis();                                                             \
    }                                                                                                                \
    RF_DEVICE uint32_t rf_grid_dim_##axis(void) {                                                                    \
        return ((const __attribute__((address_space(4))) uint32_t *)__builtin_amdgcn_implicitarg_ptr())[number];     \
    }
RF_AMD_INDEX(x, 0)
RF_AMD_INDEX(y, 1)
RF_AMD_INDEX(z, 2)
RF_DEVICE uint32_t rf_lane(void) {
    uint32_t low = __builtin_amdgcn_mbcnt_lo(~0u, 0u);
    return RF_WAVE == 64 ? __builtin_amdgcn_mbcnt_hi(~0u, low) : low;
}
#else
extern __attribute__((visibility("hidden"))) const struct rfk_services *rfk_services;
extern __attribute__((visibility("hidden"))) _Thread_local struct rfk_lane rfk_lane_now;
#define RF_HOST_INDEX(axis)                                                                                          \
    RF_DEVICE uint32_t rf_thread_##axis(void) {                                                                      \
        return rfk_lane_now.thread.axis;                                                                             \
    }                                                                                                                \
    RF_DEVICE uint32_t rf_block_##axis(void) {                                                                       \
        return rfk_lane_now.block.axis;                                                                              \
    }                                                                                                                \
    RF_DEVICE uint32_t rf_block_dim_##axis(void) {                                                                   \
        return rfk_lane_now.block_dim.axis;                                                                          \
    }                                                                                                                \
    RF_DEVICE uint32_t rf_grid_dim_##axis(void) {                                                                    \
        return rfk_lane_now.grid_dim.axis;                                                                           \
    }
RF_HOST_INDEX(x)
RF_HOST_INDEX(y)
RF_HOST_INDEX(z)
RF_DEVICE uint32_t rf_lane(void) {
    return rfk_lane_now.lane;
}
#endif

/* Of one-dimensional grids and blocks. */
RF_DEVICE uint64_t rf_global_x(void) {
    return (uint64_t)rf_block_x() * rf_block_dim_x() + rf_thread_x();
}
RF_DEVICE uint64_t rf_global_count_x(void) {
    return (uint64_t)rf_grid_dim_x() * rf_block_dim_x();
}

/* The same value, but the compiler cannot know it: what is computed from it stays in the loop
 * where it is written instead of being kept in registers around it. */
RF_DEVICE uint32_t rf_opaque(uint32_t value) {
#if defined(RF_AMD)
    __asm__ volatile("" : "+v"(value));
#else
    __asm__ volatile("" : "+r"(value));
#endif
    return value;
}

/* The same value; on gfx90a, which has the fewest scalar registers, the compiler cannot know that it is. What is
 * computed from it (masks of lanes, quotients) is then computed where it is used, instead of being kept in scalar
 * registers around a loop, where they would not suffice. The second one is for a value that all lanes share. */
RF_DEVICE uint32_t rf_anew(uint32_t value) {
#if defined(__gfx90a__)
    __asm__ volatile("" : "+v"(value));
#endif
    return value;
}
RF_DEVICE uint32_t rf_anew_shared(uint32_t value) {
#if defined(__gfx90a__)
    __asm__ volatile("" : "+s"(value));
#endif
    return value;
}

/* ---- shared memory, barrier, clock --------------------------------------------------------- */

/* RF_SHARED(type, name, count): an array of the block, at the head of a function; never
 * initialised. RF_SHARED_DYNAMIC(type, name): the launch's dynamic part, one per kernel. */
#if defined(RF_HOST)
#define RF_SHARED(type, name, count)                                                                                 \
    static const char name##_site = 0;                                                                               \
    type *name = (type *)rfk_services->shared_static(&name##_site, sizeof(type) * (count), 16)
#define RF_SHARED_DYNAMIC(type, name) type *name = (type *)rfk_services->shared_dynamic()
#else
#define RF_SHARED(type, name, count) static __attribute__((shared, aligned(16))) type name[count]
#define RF_SHARED_DYNAMIC(type, name) extern __attribute__((shared, aligned(16))) type name[]
#endif

/* Every thread of the block; orders memory among them. */
RF_DEVICE void rf_barrier(void) {
#if defined(RF_NVIDIA)
    __syncthreads();
#elif defined(RF_AMD)
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
#if defined(__GFX10__)
    /* For gfx10 clang 19 leaves the fence's wait for stores out of loops (tools/check_instructions.py). */
    __asm__ volatile("s_waitcnt_vscnt null, 0x0" ::: "memory");
#endif
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
#else
    rfk_services->barrier();
#endif
}

/* ---- starting while the kernel before ends ---- */

/* rf_grid_go: the kernel after this one may start as soon as there is room. rf_grid_wait: until the work before this
 * kernel is done and visible; every thread calls it, first of all that touches memory which other work writes or
 * reads. Both belong to RF_KERNEL_EARLY; elsewhere than on NVIDIA from sm_90 on they do nothing. */
RF_DEVICE void rf_grid_go(void) {
#if defined(RF_NVIDIA) && __CUDA_ARCH__ >= 900
    __asm__ volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
RF_DEVICE void rf_grid_wait(void) {
#if defined(RF_NVIDIA) && __CUDA_ARCH__ >= 900
    __asm__ volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/* Towards the cache that all units share, 32 bytes from an address on; allowed before rf_grid_wait, whatever is
 * written there meanwhile. Only where the address is mapped. */
RF_DEVICE void rf_grid_fetch(const void *from) {
#if defined(RF_NVIDIA) && __CUDA_ARCH__ >= 900
    __asm__ volatile("prefetch.global.L2 [%0];" ::"l"(from));
#else
    (void)from;
#endif
}

/* A steady clock of the device; its start is arbitrary. Coarse: about a microsecond. */
RF_DEVICE uint64_t rf_clock_ns(void) {
#if defined(RF_NVIDIA)
    return __builtin_readsteadycounter();
#elif defined(RF_AMD)
    return __builtin_readsteadycounter() * 10; /* 100 MHz */
#else
    return rfk_services->clock_ns();
#endif
}

/* Inside every loop that waits for something else to happen. */
RF_DEVICE void rf_relax(void) {
#if defined(RF_AMD)
    __builtin_amdgcn_s_sleep(1);
#elif defined(RF_HOST)
    rfk_services->relax();
#endif
}

/* Ends the launch with an error, which the caller sees at its next wait; the device is lost then. why: a constant,
 * shown where kernels run on the host. */
RF_DEVICE void rf_fail_launch(const char *why) {
#if defined(RF_HOST)
    rfk_services->fail(why);
#else
    (void)why;
    __builtin_trap();
#endif
}

/* ---- waves: all lanes of the wave call ---------------------------------------------------- */

/* The value of another lane of the wave. */
RF_DEVICE uint32_t rf_wave_get_u32(uint32_t value, uint32_t lane) {
#if defined(RF_NVIDIA)
    return (uint32_t)__nvvm_shfl_sync_idx_i32(~0u, (int)value, (int)lane, 31);
#elif defined(RF_AMD)
    return (uint32_t)__builtin_amdgcn_ds_bpermute((int)(lane * 4), (int)value);
#else
    return rfk_services->shuffle(value, lane);
#endif
}
/* mask < RF_WAVE */
RF_DEVICE uint32_t rf_wave_xor_u32(uint32_t value, uint32_t mask) {
#if defined(RF_NVIDIA)
    return (uint32_t)__nvvm_shfl_sync_bfly_i32(~0u, (int)value, (int)mask, 31);
#else
    return rf_wave_get_u32(value, rf_lane() ^ mask);
#endif
}
/* From the lane delta further up; a lane's own value where there is none. */
RF_DEVICE uint32_t rf_wave_down_u32(uint32_t value, uint32_t delta) {
    uint32_t from = rf_lane() + delta;
    return rf_wave_get_u32(value, from < RF_WAVE ? from : rf_lane());
}
/* Bit i: lane i's predicate. */
RF_DEVICE uint64_t rf_wave_ballot(bool predicate) {
#if defined(RF_NVIDIA)
    return (uint32_t)__nvvm_vote_ballot_sync(~0u, predicate);
#elif defined(RF_AMD) && __AMDGCN_WAVEFRONT_SIZE__ == 32
    return __builtin_amdgcn_ballot_w32(predicate);
#elif defined(RF_AMD)
    return __builtin_amdgcn_ballot_w64(predicate);
#else
    return rfk_services->ballot(predicate);
#endif
}

RF_DEVICE uint32_t rf_bits_of_f32(float value) {
    uint32_t bits;
    __builtin_memcpy(&bits, &value, 4);
    return bits;
}
RF_DEVICE float rf_f32_of_bits(uint32_t bits) {
    float value;
    __builtin_memcpy(&value, &bits, 4);
    return value;
}
RF_DEVICE float rf_wave_get_f32(float value, uint32_t lane) {
    return rf_f32_of_bits(rf_wave_get_u32(rf_bits_of_f32(value), lane));
}
RF_DEVICE float rf_wave_xor_f32(float value, uint32_t mask) {
    return rf_f32_of_bits(rf_wave_xor_u32(rf_bits_of_f32(value), mask));
}
RF_DEVICE float rf_wave_down_f32(float value, uint32_t delta) {
    return rf_f32_of_bits(rf_wave_down_u32(rf_bits_of_f32(value), delta));
}

/* ---- arithmetic: within 2 units in the last place, results below the smallest normal may be
 * zero ---- */

#define RF_INFINITY __builtin_inff()
#define RF_LOG2_E 1.44269504088896340736f
#define RF_LN_2 0.693147180559945309417f

#if defined(RF_NVIDIA)
RF_DEVICE float rf_exp2(float x) {
    return __nvvm_ex2_approx_ftz_f(x);
}
RF_DEVICE float rf_log2(float x) {
    return __nvvm_lg2_approx_ftz_f(x);
}
RF_DEVICE float rf_rcp(float x) {
    return __nvvm_rcp_approx_ftz_f(x);
}
RF_DEVICE float rf_rsqrt(float x) {
    return __nvvm_rsqrt_approx_ftz_f(x);
}
#elif defined(RF_AMD)
RF_DEVICE float rf_exp2(float x) {
    return __builtin_amdgcn_exp2f(x);
}
RF_DEVICE float rf_log2(float x) {
    return __builtin_amdgcn_logf(x);
}
RF_DEVICE float rf_rcp(float x) {
    return __builtin_amdgcn_rcpf(x);
}
RF_DEVICE float rf_rsqrt(float x) {
    return __builtin_amdgcn_rsqf(x);
}
#else
RF_DEVICE float rf_exp2(float x) {
    return __builtin_exp2f(x);
}
RF_DEVICE float rf_log2(float x) {
    return __builtin_log2f(x);
}
RF_DEVICE float rf_rcp(float x) {
    return 1.0f / x;
}
RF_DEVICE float rf_rsqrt(float x) {
    return 1.0f / __builtin_sqrtf(x);
}
#endif
/* The relative error of exp grows with |x|, to about 1e-5 near the ends of its range. */
RF_DEVICE float rf_exp(float x) {
    return rf_exp2(x * RF_LOG2_E);
}
RF_DEVICE float rf_log(float x) {
    return rf_log2(x) * RF_LN_2;
}
/* Of a number and a NaN: the number. */
RF_DEVICE float rf_max(float a, float b) {
    return __builtin_fmaxf(a, b);
}
RF_DEVICE float rf_min(float a, float b) {
    return __builtin_fminf(a, b);
}
RF_DEVICE float rf_fma(float a, float b, float c) {
    return __builtin_fmaf(a, b, c);
}
RF_DEVICE uint64_t rf_min_u64(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* ---- reductions in a fixed order; every lane gets the result ------------------------------ */

RF_DEVICE float rf_wave_sum(float value) {
    RF_UNROLL
    for (uint32_t mask = RF_WAVE / 2; mask; mask /= 2) value += rf_wave_xor_f32(value, mask);
    return value;
}
RF_DEVICE float rf_wave_max(float value) {
    RF_UNROLL
    for (uint32_t mask = RF_WAVE / 2; mask; mask /= 2) value = rf_max(value, rf_wave_xor_f32(value, mask));
    return value;
}

/* Over a one-dimensional block. scratch: RF_SHARED(float, scratch, RF_BLOCK_SCRATCH); it may be
 * written again only after a barrier that follows the call: two that alternate need no extra one. */
#define RF_BLOCK_SCRATCH (RF_MAX_THREADS / RF_WAVE)
RF_DEVICE float rf_block_gather(float value, float *scratch, float neutral) {
    if (rf_lane() == 0) scratch[rf_thread_x() / RF_WAVE] = value;
    rf_barrier();
    return rf_lane() < rf_block_dim_x() / RF_WAVE ? scratch[rf_lane()] : neutral;
}
RF_DEVICE float rf_block_sum(float value, float *scratch) {
    return rf_wave_sum(rf_block_gather(rf_wave_sum(value), scratch, 0.0f));
}
RF_DEVICE float rf_block_max(float value, float *scratch) {
    return rf_wave_max(rf_block_gather(rf_wave_max(value), scratch, -RF_INFINITY));
}

/* ---- 16-bit floats, as bits ---------------------------------------------------------------- */

typedef uint16_t rf_f16;
typedef uint16_t rf_bf16;

/* To nearest, ties to even, subnormals kept, the same bits everywhere; any NaN gives 0x7e00 or
 * 0x7fc0. Widening is exact; the payload of a NaN is not kept. */
RF_DEVICE rf_f16 rf_f16_of_f32(float value) {
#if defined(RF_HOST)
    uint32_t bits = rf_bits_of_f32(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return 0x7e00;
    if (magnitude >= 0x477ff000) return (rf_f16)(sign | 0x7c00); /* 65520 and up */
    if (magnitude < 0x38800000) { /* subnormal: adding 0.5 leaves the multiple of 2^-24 in the last bits */
        uint32_t sum = rf_bits_of_f32(rf_f32_of_bits(magnitude) + 0.5f);
        return (rf_f16)(sign | (sum - 0x3f000000));
    }
    return (rf_f16)(sign | ((magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13));
#else
    _Float16 half = (_Float16)value;
    rf_f16 bits;
    __builtin_memcpy(&bits, &half, 2);
    return value != value ? (rf_f16)0x7e00 : bits;
#endif
}
RF_DEVICE float rf_f32_of_f16(rf_f16 bits) {
#if defined(RF_HOST)
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, magnitude = bits & 0x7fff;
    if (magnitude >= 0x7c00) return rf_f32_of_bits(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
    if (magnitude < 0x400) return rf_f32_of_bits(sign | rf_bits_of_f32((float)magnitude * 0x1p-24f));
    return rf_f32_of_bits(sign | ((magnitude << 13) + 0x38000000));
#else
    _Float16 half;
    __builtin_memcpy(&half, &bits, 2);
    return (float)half;
#endif
}
RF_DEVICE rf_bf16 rf_bf16_of_f32(float value) {
#if defined(RF_NVIDIA)
    rf_bf16 rounded;
    __asm__("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(value));
#else
    uint32_t bits = rf_bits_of_f32(value);
    rf_bf16 rounded = (rf_bf16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
#endif
    return value != value ? (rf_bf16)0x7fc0 : rounded;
}
RF_DEVICE float rf_f32_of_bf16(rf_bf16 bits) {
    return rf_f32_of_bits((uint32_t)bits << 16);
}

/* ---- memory in vectors ----------------------------------------------------------------------- */

/* Raw memory of 16 and 8 bytes, aligned to its size, of whatever type. */
typedef uint32_t rf_u32x4 __attribute__((vector_size(16), may_alias));
typedef uint32_t rf_u32x2 __attribute__((vector_size(8), may_alias));
RF_DEVICE rf_u32x4 rf_load_16(const void *from) {
    return *(const rf_u32x4 *)from;
}
RF_DEVICE void rf_store_16(void *to, rf_u32x4 value) {
    *(rf_u32x4 *)to = value;
}
RF_DEVICE rf_u32x2 rf_load_8(const void *from) {
    return *(const rf_u32x2 *)from;
}
RF_DEVICE void rf_store_8(void *to, rf_u32x2 value) {
    *(rf_u32x2 *)to = value;
}
RF_DEVICE bool rf_aligned(const void *pointer, uint32_t bytes) {
    return ((uintptr_t)pointer & (bytes - 1)) == 0;
}

/* Element types, as constant arguments of bodies. */
enum rf_type { RF_TYPE_F32, RF_TYPE_F16, RF_TYPE_BF16 };
RF_DEVICE uint32_t rf_type_bytes(enum rf_type type) {
    return type == RF_TYPE_F32 ? 4 : 2;
}
RF_DEVICE const void *rf_at(enum rf_type type, const void *base, uint64_t index) {
    return (const uint8_t *)base + index * rf_type_bytes(type);
}
RF_DEVICE void *rf_at_mutable(enum rf_type type, void *base, uint64_t index) {
    return (uint8_t *)base + index * rf_type_bytes(type);
}

RF_DEVICE float rf_f32_of_16(enum rf_type type, uint16_t bits) {
    return type == RF_TYPE_F16 ? rf_f32_of_f16(bits) : rf_f32_of_bf16(bits);
}
RF_DEVICE uint16_t rf_16_of_f32(enum rf_type type, float value) {
    return type == RF_TYPE_F16 ? rf_f16_of_f32(value) : rf_bf16_of_f32(value);
}

/* One element. */
RF_DEVICE float rf_load(enum rf_type type, const void *base, uint64_t index) {
    if (type == RF_TYPE_F32) return ((const float *)base)[index];
    return rf_f32_of_16(type, ((const uint16_t *)base)[index]);
}
RF_DEVICE void rf_store(enum rf_type type, void *base, uint64_t index, float value) {
    if (type == RF_TYPE_F32) {
        ((float *)base)[index] = value;
    } else {
        ((uint16_t *)base)[index] = rf_16_of_f32(type, value);
    }
}

/* count elements, 4 or 8 (a constant), from index on; the address is aligned to 16 bytes, or to
 * all the elements' bytes where those are fewer. */
RF_DEVICE void rf_load_many(enum rf_type type, uint32_t count, const void *base, uint64_t index, float *values) {
    const void *from = rf_at(type, base, index);
    if (type == RF_TYPE_F32) {
        RF_UNROLL
        for (uint32_t i = 0; i < count / 4; i++) {
            rf_u32x4 raw = rf_load_16((const uint8_t *)from + 16 * i);
            RF_UNROLL
            for (uint32_t k = 0; k < 4; k++) values[4 * i + k] = rf_f32_of_bits(raw[k]);
        }
    } else if (count == 4) {
        rf_u32x2 raw = rf_load_8(from);
        RF_UNROLL
        for (uint32_t k = 0; k < 4; k++) values[k] = rf_f32_of_16(type, (uint16_t)(raw[k / 2] >> k % 2 * 16));
    } else {
        rf_u32x4 raw = rf_load_16(from);
        RF_UNROLL
        for (uint32_t k = 0; k < 8; k++) values[k] = rf_f32_of_16(type, (uint16_t)(raw[k / 2] >> k % 2 * 16));
    }
}
RF_DEVICE uint32_t rf_pack_16(enum rf_type type, float low, float high) {
    return rf_16_of_f32(type, low) | (uint32_t)rf_16_of_f32(type, high) << 16;
}
RF_DEVICE void rf_store_many(enum rf_type type, uint32_t count, void *base, uint64_t index, const float *values) {
    void *to = rf_at_mutable(type, base, index);
    if (type == RF_TYPE_F32) {
        RF_UNROLL
        for (uint32_t i = 0; i < count / 4; i++) {
            const float *v = values + 4 * i;
            rf_u32x4 raw = {rf_bits_of_f32(v[0]), rf_bits_of_f32(v[1]), rf_bits_of_f32(v[2]), rf_bits_of_f32(v[3])};
            rf_store_16((uint8_t *)to + 16 * i, raw);
        }
    } else if (count == 4) {
        rf_u32x2 raw = {rf_pack_16(type, values[0], values[1]), rf_pack_16(type, values[2], values[3])};
        rf_store_8(to, raw);
    } else {
        rf_u32x4 raw = {rf_pack_16(type, values[0], values[1]), rf_pack_16(type, values[2], values[3]),
                        rf_pack_16(type, values[4], values[5]), rf_pack_16(type, values[6], values[7])};
        rf_store_16(to, raw);
    }
}

#endif
