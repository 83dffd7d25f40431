/* Matrix units: products of 16 x 16 x 16 by one wave, with 16-bit operands and f32 sums.
 *
 *     sums[m][n] += left[m][k] * right[k][n]
 *
 * Fragments are opaque: which lane holds what differs between the units. A kernel loads them from shared
 * memory, multiplies, and reaches the sums through rf_sum_row, rf_sum_column and rf_sum_index alone. All
 * lanes of a wave make each call. Behind it:
 *
 *   NVIDIA        mma.sync m16n8k16, twice; ldmatrix
 *   gfx11         v_wmma_f32_16x16x16, operands repeated in both halves of the wave
 *   gfx12         v_wmma_f32_16x16x16, operands split over the halves
 *   gfx9 (CDNA)   v_mfma_f32_16x16x16
 *   gfx10         nothing: RF_TILE_ABSENT is defined, and the kernels for matrix units are not there. A source names
 *                 them after "rf-matrix:" in a comment, by which the build knows that they are absent on purpose;
 *                 launchers take the plain kernels there
 *   the host      plain arithmetic, RF_TILE_PLAIN
 *
 * On AMD the unit computes the transposed product: a lane then holds sums of one row m only, and what
 * it holds of a product is (but for gfx11) what it must hold of the next product's left operand.
 *
 * Also here: tiles of shared memory laid out for the units (rf_line_…), and, since only NVIDIA has it, copying 16
 * bytes from memory to shared memory without waiting. */
#ifndef RF_KERNELS_TILE_H
#define RF_KERNELS_TILE_H

#include "kernels/kernel.h"

#if defined(RF_NVIDIA)
#define RF_TILE_NVIDIA 1
#elif defined(RF_AMD) && defined(__GFX11__)
#define RF_TILE_GFX11 1
#elif defined(RF_AMD) && defined(__GFX12__)
#define RF_TILE_GFX12 1
#elif defined(RF_AMD) && defined(__GFX9__)
#define RF_TILE_GFX9 1
#elif defined(RF_AMD)
#define RF_TILE_ABSENT 1
#else
#define RF_TILE_PLAIN 1
#endif

#ifndef RF_TILE_ABSENT

/* Before loops over fragments: unrolled on a GPU, where fragments must be registers; not on the host, where
 * it would only make a compiler slow. */
#if defined(RF_HOST)
#define RF_TILE_UNROLL
#else
#define RF_TILE_UNROLL RF_UNROLL
#endif

/* A lane holds sums of RF_SUM_ROWS rows, RF_SUM_COLUMNS of each. */
#if defined(RF_TILE_NVIDIA)
#define RF_SUM_ROWS 2
#define RF_SUM_COLUMNS 4
#else
#define RF_SUM_ROWS 1
#define RF_SUM_COLUMNS (256 / RF_WAVE)
#endif
#define RF_SUM_COUNT (RF_SUM_ROWS * RF_SUM_COLUMNS)

/* 32-bit words of an operand that a lane holds. */
#if defined(RF_TILE_NVIDIA) || defined(RF_TILE_GFX12)
#define RF_TILE_WORDS 4
#elif defined(RF_TILE_GFX9)
#define RF_TILE_WORDS 2
#else
#define RF_TILE_WORDS 8
#endif

struct rf_left {
    uint32_t words[RF_TILE_WORDS];
};
struct rf_right {
#if defined(RF_TILE_PLAIN)
    const uint16_t *from; /* read when multiplied: it must still be there */
    uint32_t stride_k, stride_n;
#else
    uint32_t words[RF_TILE_WORDS];
#endif
};
struct rf_sums {
    float value[RF_SUM_COUNT];
};

/* ---- where a lane's sums are: r below RF_SUM_ROWS, c below RF_SUM_COLUMNS, constants --------------- */

RF_DEVICE uint32_t rf_sum_row(uint32_t r) {
#if defined(RF_TILE_NVIDIA)
    return rf_lane() / 4 + 8 * r;
#else
    (void)r;
    return rf_lane() % 16;
#endif
}
RF_DEVICE uint32_t rf_sum_column(uint32_t c) {
#if defined(RF_TILE_NVIDIA)
    return rf_lane() % 4 * 2 + c / 2 * 8 + c % 2;
#elif defined(RF_TILE_GFX11)
    return 2 * c + rf_lane() / 16;
#else
    return rf_lane() / 16 * RF_SUM_COLUMNS + c;
#endif
}
RF_DEVICE uint32_t rf_sum_index(uint32_t r, uint32_t c) {
#if defined(RF_TILE_NVIDIA)
    return c / 2 * 4 + r * 2 + c % 2;
#else
    return r * RF_SUM_COLUMNS + c;
#endif
}
/* Columns 2i and 2i + 1 of a lane are neighbours, the first one even. */
#if defined(RF_TILE_GFX11)
#define RF_SUM_PAIRS 0
#else
#define RF_SUM_PAIRS 1
#endif

/* Over the lanes that hold sums of the same row, in a fixed order; all of them get it. */
RF_DEVICE float rf_sum_row_max(float value) {
#if defined(RF_TILE_NVIDIA)
    value = rf_max(value, rf_wave_xor_f32(value, 1));
    return rf_max(value, rf_wave_xor_f32(value, 2));
#else
    RF_UNROLL
    for (uint32_t mask = 16; mask < RF_WAVE; mask *= 2) value = rf_max(value, rf_wave_xor_f32(value, mask));
    return value;
#endif
}
RF_DEVICE float rf_sum_row_total(float value) {
#if defined(RF_TILE_NVIDIA)
    value += rf_wave_xor_f32(value, 1);
    return value + rf_wave_xor_f32(value, 2);
#else
    RF_UNROLL
    for (uint32_t mask = 16; mask < RF_WAVE; mask *= 2) value += rf_wave_xor_f32(value, mask);
    return value;
#endif
}

/* ---- operands ----------------------------------------------------------------------------------------- */

/* Two numbers in a word, the first one low; rounded to nearest. */
RF_DEVICE uint32_t rf_tile_pack(enum rf_type type, float low, float high) {
#if defined(RF_TILE_NVIDIA)
    uint32_t word;
    if (type == RF_TYPE_F16) {
        __asm__("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    } else {
        __asm__("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    }
    return word;
#else
    return rf_pack_16(type, low, high);
#endif
}

#if defined(RF_TILE_NVIDIA)
/* By a cast, which the compiler sees through: addresses then differ by constants. */
RF_DEVICE uint32_t rf_shared_address(const void *shared) {
    return (uint32_t)(uintptr_t)(const __attribute__((address_space(3))) void *)shared;
}
RF_DEVICE void rf_tile_gather(bool transposed, const uint16_t *shared, uint32_t *words) {
    uint32_t address = rf_shared_address(shared);
    if (transposed) {
        __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                         : "r"(address)
                         : "memory");
    } else {
        __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                         : "r"(address)
                         : "memory");
    }
}
#elif !defined(RF_TILE_PLAIN)
/* The first of the depths that a lane holds: all 16 on gfx11, else its quarter or half. */
RF_DEVICE uint32_t rf_tile_depth(void) {
    return RF_TILE_WORDS == 8 ? 0 : rf_lane() / 16 * (2 * RF_TILE_WORDS);
}
/* 2 * RF_TILE_WORDS elements that follow each other; aligned to 8 bytes. */
RF_DEVICE void rf_tile_line(const uint16_t *from, uint32_t *words) {
    RF_UNROLL
    for (uint32_t i = 0; i < RF_TILE_WORDS; i += 2) {
        rf_u32x2 two = rf_load_8(from + 2 * i);
        words[i] = two[0];
        words[i + 1] = two[1];
    }
}
#endif

/* Element (m, k) is at shared[m * stride + k]; rows are aligned to 16 bytes. */
RF_DEVICE struct rf_left rf_left_load(const uint16_t *shared, uint32_t stride) {
    struct rf_left left;
    uint32_t lane = rf_lane();
#if defined(RF_TILE_NVIDIA)
    rf_tile_gather(false, shared + lane % 16 * stride + lane / 16 * 8, left.words);
#elif defined(RF_TILE_PLAIN)
    RF_UNROLL
    for (uint32_t i = 0; i < 8; i++)
        left.words[i] = shared[lane % 16 * stride + 2 * i] | (uint32_t)shared[lane % 16 * stride + 2 * i + 1] << 16;
#else
    rf_tile_line(shared + lane % 16 * stride + rf_tile_depth(), left.words);
#endif
    return left;
}

/* Element (k, n) is at shared[n * stride + k]; aligned likewise. */
RF_DEVICE struct rf_right rf_right_load_lines(const uint16_t *shared, uint32_t stride) {
    struct rf_right right;
#if defined(RF_TILE_NVIDIA)
    uint32_t lane = rf_lane();
    rf_tile_gather(false, shared + (lane % 8 + lane / 16 * 8) * stride + lane / 8 % 2 * 8, right.words);
#elif defined(RF_TILE_PLAIN)
    right.from = shared;
    right.stride_k = 1;
    right.stride_n = stride;
#else
    rf_tile_line(shared + rf_lane() % 16 * stride + rf_tile_depth(), right.words);
#endif
    return right;
}

/* Element (k, n) is at shared[k * stride + n]; aligned likewise. */
RF_DEVICE struct rf_right rf_right_load(const uint16_t *shared, uint32_t stride) {
    struct rf_right right;
#if defined(RF_TILE_NVIDIA)
    uint32_t lane = rf_lane();
    rf_tile_gather(true, shared + lane % 16 * stride + lane / 16 * 8, right.words);
#elif defined(RF_TILE_PLAIN)
    right.from = shared;
    right.stride_k = stride;
    right.stride_n = 1;
#else
    const uint16_t *column = shared + rf_tile_depth() * stride + rf_lane() % 16;
    RF_UNROLL
    for (uint32_t i = 0; i < RF_TILE_WORDS; i++)
        right.words[i] = column[2 * i * stride] | (uint32_t)column[(2 * i + 1) * stride] << 16;
#endif
    return right;
}

/* ---- tiles of lines: rows of RF_LINE elements, in groups of 8 that rf_line_at places ------------------------
 *
 * Eight lanes that take the same group of eight rows, as the units' loads do, meet on no bank of shared memory, nor
 * do those that write the groups of one row. On NVIDIA a row is the 128 bytes of all banks and its groups are
 * exchanged from row to row; elsewhere rows are padded. */
#if defined(RF_NVIDIA)
#define RF_LINE 64
#define RF_LINE_PITCH 64
#else
#define RF_LINE 32
#define RF_LINE_PITCH 40
#endif

/* Where group `group` of a row begins, in elements. */
RF_DEVICE uint32_t rf_line_at(uint32_t row, uint32_t group) {
#if defined(RF_NVIDIA)
    return row * RF_LINE_PITCH + (group ^ row % 8) * 8;
#else
    return row * RF_LINE_PITCH + group * 8;
#endif
}
/* left[m][k]: element k + … of row row + m. row and k are multiples of 16. */
RF_DEVICE struct rf_left rf_left_lines(const uint16_t *tile, uint32_t row, uint32_t k) {
#if defined(RF_TILE_NVIDIA)
    struct rf_left left;
    uint32_t lane = rf_lane(); /* k / 8 is even: it may be put in last, which leaves one address for all k */
    rf_tile_gather(false, tile + (row * RF_LINE_PITCH + (rf_line_at(lane % 16, lane / 16) ^ k)), left.words);
    return left;
#else
    return rf_left_load(tile + row * RF_LINE_PITCH + k, RF_LINE_PITCH);
#endif
}
/* right[k][n]: element k + … of row row + n. */
RF_DEVICE struct rf_right rf_right_lines(const uint16_t *tile, uint32_t row, uint32_t k) {
#if defined(RF_TILE_NVIDIA)
    struct rf_right right;
    uint32_t lane = rf_lane();
    rf_tile_gather(false, tile + (row * RF_LINE_PITCH + (rf_line_at(lane % 8 + lane / 16 * 8, lane / 8 % 2) ^ k)),
                   right.words);
    return right;
#else
    return rf_right_load_lines(tile + row * RF_LINE_PITCH + k, RF_LINE_PITCH);
#endif
}

/* The sums of one product as the left operand of the next: left[m][k] = sums[m][n = k], rounded. */
RF_DEVICE struct rf_left rf_left_of_sums(enum rf_type type, const struct rf_sums *sums) {
    struct rf_left left;
    const float *v = sums->value;
#if defined(RF_TILE_NVIDIA) || defined(RF_TILE_GFX12) || defined(RF_TILE_GFX9)
    RF_UNROLL
    for (uint32_t i = 0; i < RF_TILE_WORDS; i++) left.words[i] = rf_tile_pack(type, v[2 * i], v[2 * i + 1]);
#elif defined(RF_TILE_GFX11)
    /* The lower lanes hold the even columns, the upper ones the odd. */
    RF_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t mine = rf_tile_pack(type, v[2 * i], v[2 * i + 1]), other = rf_wave_xor_u32(mine, 16);
        uint32_t even = rf_lane() < 16 ? mine : other, odd = rf_lane() < 16 ? other : mine;
        left.words[2 * i] = (even & 0xffff) | odd << 16;
        left.words[2 * i + 1] = even >> 16 | (odd & 0xffff0000);
    }
#else
    RF_UNROLL
    for (uint32_t i = 0; i < RF_SUM_COLUMNS / 2; i++) {
        uint32_t mine = rf_tile_pack(type, v[2 * i], v[2 * i + 1]);
        RF_UNROLL
        for (uint32_t part = 0; part < RF_WAVE / 16; part++)
            left.words[part * RF_SUM_COLUMNS / 2 + i] = rf_wave_get_u32(mine, rf_lane() % 16 + 16 * part);
    }
#endif
    return left;
}

/* ---- the product --------------------------------------------------------------------------------------- */

#if defined(RF_AMD)
typedef _Float16 rf_tile_f16 __attribute__((ext_vector_type(2 * RF_TILE_WORDS)));
typedef short rf_tile_i16 __attribute__((ext_vector_type(2 * RF_TILE_WORDS)));
typedef float rf_tile_f32 __attribute__((ext_vector_type(RF_SUM_COUNT)));
#endif

RF_DEVICE void rf_tile_multiply(enum rf_type type, struct rf_sums *sums, const struct rf_left *left,
                                const struct rf_right *right) {
#if defined(RF_TILE_NVIDIA)
    RF_UNROLL
    for (uint32_t half = 0; half < 2; half++) {
        float *c = sums->value + 4 * half;
        const uint32_t *a = left->words, *b = right->words + 2 * half;
        if (type == RF_TYPE_F16) {
            __asm__("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                    "{%8, %9}, {%0, %1, %2, %3};"
                    : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
        } else {
            __asm__("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                    "{%8, %9}, {%0, %1, %2, %3};"
                    : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
        }
    }
#elif defined(RF_TILE_PLAIN)
    RF_TILE_UNROLL
    for (uint32_t i = 0; i < RF_SUM_COLUMNS; i++) {
        const uint16_t *from = right->from + rf_sum_column(i) * right->stride_n;
        RF_TILE_UNROLL
        for (uint32_t k = 0; k < 16; k++)
            sums->value[i] = rf_fma(rf_f32_of_16(type, (uint16_t)(left->words[k / 2] >> k % 2 * 16)),
                                    rf_f32_of_16(type, from[k * right->stride_k]), sums->value[i]);
    }
#else
    rf_tile_f32 c;
    RF_UNROLL
    for (uint32_t i = 0; i < RF_SUM_COUNT; i++) c[i] = sums->value[i];
    if (type == RF_TYPE_F16) {
        rf_tile_f16 a, b;
        __builtin_memcpy(&a, right->words, sizeof a);
        __builtin_memcpy(&b, left->words, sizeof b);
#if defined(RF_TILE_GFX11)
        c = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c);
#elif defined(RF_TILE_GFX12)
        c = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c);
#else
        c = __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, 0, 0, 0);
#endif
    } else {
        rf_tile_i16 a, b;
        __builtin_memcpy(&a, right->words, sizeof a);
        __builtin_memcpy(&b, left->words, sizeof b);
#if defined(RF_TILE_GFX11)
        c = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c);
#elif defined(RF_TILE_GFX12)
        c = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a, b, c);
#else
        c = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, 0, 0, 0);
#endif
    }
    RF_UNROLL
    for (uint32_t i = 0; i < RF_SUM_COUNT; i++) sums->value[i] = c[i];
#endif
}

/* Keeps the compiler from fetching operands far ahead of their products, for which there are no registers. */
RF_DEVICE void rf_tile_fence(void) {
#if defined(RF_AMD)
    __builtin_amdgcn_sched_barrier(0);
#endif
}

#endif /* RF_TILE_ABSENT */

/* ---- memory to shared memory ---------------------------------------------------------------------------- */

/* Whether copies go on by themselves: a pipeline of several stages is worth its shared memory then. */
#if defined(RF_NVIDIA)
#define RF_COPY_ASYNC 1
#else
#define RF_COPY_ASYNC 0
#endif

/* 16 bytes, or zeros where they are not there (then `from` may be anything); both addresses aligned to 16. They are
 * in shared memory for this thread after rf_copied(n), where at most n later batches (ended by rf_copy_batch) may
 * still be under way, and for the block after a barrier behind that. */
RF_DEVICE void rf_copy_16(void *shared, const void *from, bool there) {
#if defined(RF_NVIDIA)
    uint32_t bytes = there ? 16 : 0;
    __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :
                     : "r"(rf_shared_address(shared)), "l"(from), "r"(bytes)
                     : "memory");
#else
    rf_u32x4 value = {0, 0, 0, 0};
    if (there) value = rf_load_16(from);
    rf_store_16(shared, value);
#endif
}
/* The same, of bytes that are there: to say how many costs instructions. */
RF_DEVICE void rf_copy_16_there(void *shared, const void *from) {
#if defined(RF_NVIDIA)
    __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                     :
                     : "r"(rf_shared_address(shared)), "l"(from)
                     : "memory");
#else
    rf_store_16(shared, rf_load_16(from));
#endif
}
/* As rf_copy_16, of 4 bytes and aligned to them. */
RF_DEVICE void rf_copy_4(uint32_t *shared, const uint32_t *from, bool there) {
#if defined(RF_NVIDIA)
    uint32_t bytes = there ? 4 : 0;
    __asm__ volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                     :
                     : "r"(rf_shared_address(shared)), "l"(from), "r"(bytes)
                     : "memory");
#else
    *shared = there ? *from : 0;
#endif
}
RF_DEVICE void rf_copy_batch(void) {
#if defined(RF_NVIDIA)
    __asm__ volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/* newer: 0, 1 or 2, the same for all threads. */
RF_DEVICE void rf_copied(uint32_t newer) {
#if defined(RF_NVIDIA)
    if (newer == 0) {
        __asm__ volatile("cp.async.wait_group 0;" ::: "memory");
    } else if (newer == 1) {
        __asm__ volatile("cp.async.wait_group 1;" ::: "memory");
    } else {
        __asm__ volatile("cp.async.wait_group 2;" ::: "memory");
    }
#else
    (void)newer;
#endif
}

#endif
