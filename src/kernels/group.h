/* Products of a group: four waves together multiply tiles in shared memory, and nobody waits for it at once.
 *
 *     sums[64][n] += left[64][16] * right[16][n]
 *
 * Operands have 16 bits, sums are f32. Both operands lie in shared memory as rows of 128 bytes with the largest
 * swizzle (ring.h), k along the rows: 64 rows of left, n rows of right, from a multiple of 1024 bytes on. A row holds
 * 64 elements of k, four products of 16.
 *
 *     rf_group_begin_256(&products, sums);               before products, where sums were written since
 *     rf_group_multiply_256(…);                          any number of them
 *     rf_group_sent(&products);                          they are one batch
 *     rf_group_done_but_1_256(&products, sums);          all batches but the newest have read their operands
 *     rf_group_done_256(&products, sums);                all are done: sums may be read
 *
 * All threads of the group make each call. Thread t of the group holds in sums[4 * j + 2 * h + i] the sum of row
 * t / 32 * 16 + t % 32 / 4 + 8 * h and column 8 * j + t % 4 * 2 + i (rf_group_row, rf_group_column).
 *
 * On sm_90a this is wgmma, which reads shared memory and writes the sums by itself. A compiler orders asm with asm,
 * but not with arithmetic: begin and done name the sums, so that nothing writes them behind the one or reads them
 * before the other. On the host a product is noted, and made when it is waited for: who reads sums or reuses operands
 * too early gets wrong results there too. */
#ifndef RF_KERNELS_GROUP_H
#define RF_KERNELS_GROUP_H

#include "kernels/ring.h"

#define RF_GROUP 128 /* threads */
#define RF_GROUP_SUMS(n) ((n) / 2)

RF_DEVICE uint32_t rf_group_thread(void) {
    return rf_thread_x() % RF_GROUP;
}
RF_DEVICE uint32_t rf_group_row(uint32_t h) {
    return rf_group_thread() / 32 * 16 + rf_group_thread() % 32 / 4 + 8 * h;
}
RF_DEVICE uint32_t rf_group_column(uint32_t j) {
    return 8 * j + rf_thread_x() % 4 * 2;
}

#if defined(RF_HOST)
#define RF_PRODUCTS_MOST 16
struct rf_products {
    struct {
        enum rf_type type;
        rf_place left, right;
        uint32_t batch;
    } noted[RF_PRODUCTS_MOST];
    uint32_t count, batch;
};
#else
struct rf_products {
    uint32_t none;
};
#endif

/* Where an operand begins, as the units take it. */
#if defined(RF_HOST)
typedef rf_place rf_operand;
#else
typedef uint64_t rf_operand;
#endif
RF_DEVICE rf_operand rf_operand_at(rf_place place) {
#if defined(RF_HOST)
    return place;
#else
    /* The address, 1024 bytes from 8 rows to the next 8, swizzled within 128 bytes; all in units of 16 bytes. */
    return (uint64_t)(place >> 4 & 0x3fff) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
#endif
}
/* Further along k: 16 * i elements. */
RF_DEVICE rf_operand rf_operand_step(rf_operand operand, uint32_t i) {
#if defined(RF_HOST)
    return operand + 32 * i;
#else
    return operand + 2 * i;
#endif
}

/* Registers that move from waves which need few to those which need many; every wave of a group, constants. */
#if defined(RF_HOST)
#define RF_REGISTERS_LESS(count)
#define RF_REGISTERS_MORE(count)
#else
#define RF_REGISTERS_LESS(count) __asm__ volatile("setmaxnreg.dec.sync.aligned.u32 " #count ";" ::: "memory")
#define RF_REGISTERS_MORE(count) __asm__ volatile("setmaxnreg.inc.sync.aligned.u32 " #count ";" ::: "memory")
#endif

/* A barrier of a group: number from 1 on. On the host it is made of a barrier in shared memory, for RF_GROUP
 * arrivals, and *parity is how far the thread is. */
RF_DEVICE void rf_group_barrier(uint32_t number, rf_place bar, uint32_t *parity) {
#if defined(RF_HOST)
    (void)number;
    rf_bar_arrive(bar);
    rf_bar_wait(bar, *parity);
    *parity ^= 1;
#else
    (void)bar;
    (void)parity;
    __asm__ volatile("bar.sync %0, %1;" ::"r"(number), "r"(RF_GROUP) : "memory");
#endif
}

RF_DEVICE void rf_group_sent(struct rf_products *products) {
#if defined(RF_HOST)
    products->batch++;
#else
    (void)products;
    __asm__ volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}

#if defined(RF_HOST)

RF_DEVICE void rf_products_init(struct rf_products *products) {
    products->count = products->batch = 0;
}
RF_DEVICE float rf_operand_element(enum rf_type type, rf_place operand, uint32_t row, uint32_t k) {
    return rf_f32_of_16(type, *(const uint16_t *)rf_place_swizzled(operand + row * 128 + k * 2));
}
RF_DEVICE void rf_group_note(struct rf_products *products, enum rf_type type, rf_operand left, rf_operand right) {
    if (products->count == RF_PRODUCTS_MOST) rf_fail_launch("more products under way than a group may have");
    products->noted[products->count].type = type;
    products->noted[products->count].left = left;
    products->noted[products->count].right = right;
    products->noted[products->count++].batch = products->batch;
}
RF_DEVICE void rf_group_make(enum rf_type type, uint32_t n, float *sums, rf_place left, rf_place right) {
    float rows[2][16];
    for (uint32_t h = 0; h < 2; h++)
        for (uint32_t k = 0; k < 16; k++) rows[h][k] = rf_operand_element(type, left, rf_group_row(h), k);
    for (uint32_t c = 0; c < n / 4; c++) {
        uint32_t j = c / 2, i = c % 2;
        for (uint32_t k = 0; k < 16; k++) {
            float element = rf_operand_element(type, right, rf_group_column(j) + i, k);
            for (uint32_t h = 0; h < 2; h++)
                sums[4 * j + 2 * h + i] = rf_fma(rows[h][k], element, sums[4 * j + 2 * h + i]);
        }
    }
}
/* All but the newest `newer` batches. */
RF_DEVICE void rf_group_catch_up(struct rf_products *products, uint32_t n, float *sums, uint32_t newer) {
    uint32_t made = 0;
    while (made < products->count && products->noted[made].batch + newer < products->batch) {
        rf_group_make(products->noted[made].type, n, sums, products->noted[made].left, products->noted[made].right);
        made++;
    }
    for (uint32_t i = made; i < products->count; i++) products->noted[i - made] = products->noted[i];
    products->count -= made;
}
#define rf_group_begin_256(products, sums) ((void)(products), (void)(sums))
#define rf_group_multiply_256(products, type, sums, left, right)                                                     \
    ((void)(sums), rf_group_note((products), (type), (left), (right)))
#define rf_group_done_but_1_256(products, sums) rf_group_catch_up((products), 256, (sums), 1)
#define rf_group_done_256(products, sums) rf_group_catch_up((products), 256, (sums), 0)

#else /* sm_90a */

RF_DEVICE void rf_products_init(struct rf_products *products) {
    products->none = 0;
}
#define RF_SUMS_8(s, i)                                                                                              \
    "+f"((s)[(i)]), "+f"((s)[(i) + 1]), "+f"((s)[(i) + 2]), "+f"((s)[(i) + 3]), "+f"((s)[(i) + 4]),                  \
        "+f"((s)[(i) + 5]), "+f"((s)[(i) + 6]), "+f"((s)[(i) + 7])
#define RF_SUMS_32(s, i) RF_SUMS_8(s, i), RF_SUMS_8(s, (i) + 8), RF_SUMS_8(s, (i) + 16), RF_SUMS_8(s, (i) + 24)
#define RF_SUMS_128(s) RF_SUMS_32(s, 0), RF_SUMS_32(s, 32), RF_SUMS_32(s, 64), RF_SUMS_32(s, 96)
/* "%10, %11, …, %19, " of tens 1 */
#define RF_TEN(tens)                                                                                                 \
    "%" #tens "0, %" #tens "1, %" #tens "2, %" #tens "3, %" #tens "4, %" #tens "5, %" #tens "6, %" #tens             \
    "7, %" #tens "8, %" #tens "9, "
#define RF_NAMES_60 RF_TEN() RF_TEN(1) RF_TEN(2) RF_TEN(3) RF_TEN(4) RF_TEN(5)
#define RF_NAMES_120 RF_NAMES_60 RF_TEN(6) RF_TEN(7) RF_TEN(8) RF_TEN(9) RF_TEN(10) RF_TEN(11)
#define RF_NAMES_128 RF_NAMES_120 "%120, %121, %122, %123, %124, %125, %126, %127"

#define rf_group_begin_256(products, sums)                                                                           \
    ((void)(products), __extension__({                                                                               \
         __asm__ volatile("wgmma.fence.sync.aligned;" : RF_SUMS_128(sums) : : "memory");                             \
     }))
#define RF_MULTIPLY_256(type, sums, left, right)                                                                     \
    __asm__ volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type " {" RF_NAMES_128                  \
                     "}, %128, %129, 1, 1, 1, 0, 0;"                                                                 \
                     : RF_SUMS_128(sums)                                                                             \
                     : "l"(left), "l"(right)                                                                         \
                     : "memory")
RF_DEVICE void rf_group_multiply_256(struct rf_products *products, enum rf_type type, float *sums, rf_operand left,
                                     rf_operand right) {
    (void)products;
    if (type == RF_TYPE_F16) {
        RF_MULTIPLY_256("f16", sums, left, right);
    } else {
        RF_MULTIPLY_256("bf16", sums, left, right);
    }
}
/* The sums still belong to the newest batch: they are not named. */
#define rf_group_done_but_1_256(products, sums)                                                                      \
    ((void)(products), (void)(sums), __extension__({                                                                 \
         __asm__ volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");                                          \
     }))
#define rf_group_done_256(products, sums)                                                                            \
    ((void)(products), __extension__({                                                                               \
         __asm__ volatile("wgmma.wait_group.sync.aligned 0;" : RF_SUMS_128(sums) : : "memory");                      \
     }))

#endif
#endif
