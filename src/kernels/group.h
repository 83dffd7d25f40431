/* Products of a group: four waves together multiply tiles in shared memory, and nobody waits for it at once.
 *
 *     sums[64][n] += left[64][16] * right[16][n]
 *
 * n, a constant, is 64, 128 or 256. Operands have 16 bits, sums are f32. Operands in shared memory are rows of 128
 * bytes with the largest swizzle (ring.h), from a multiple of 1024 bytes on: left 64 rows and right n rows, with k
 * along them (rf_operand_at; a row holds 64 elements of k, four products of 16); or right with n along its rows,
 * which are those of k (rf_operand_across; 64 columns, the next 64 some bytes further). left may also be words of the
 * threads: the sums of an earlier product, rounded and packed in pairs, words[4 * i] to words[4 * i + 3] of sums[8 *
 * i] to sums[8 * i + 7].
 *
 *     rf_group_begin(&products, n, sums);                before products, where sums were written since
 *     rf_group_multiply(&products, …);                   any number of them
 *     rf_group_sent(&products);                          they are one batch
 *     rf_group_done_but_1(&products);                    all batches but the newest are done
 *     rf_group_done(&products, n, sums);                 all are done: sums may be read
 *
 * All threads of the group make each call. Thread t of the group holds in sums[4 * j + 2 * h + i] the sum of row
 * t / 32 * 16 + t % 32 / 4 + 8 * h and column 8 * j + t % 4 * 2 + i (rf_group_row, rf_group_column).
 *
 * On sm_90a this is wgmma, which reads shared memory and writes the sums by itself. A compiler orders asm with asm,
 * but not with arithmetic: begin, done and pin name the sums, so that nothing writes them behind the one or reads
 * them before the other. On the host a product is noted, and made when it is waited for: who reads sums or reuses
 * operands too early gets wrong results there too. */
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
/* Over the threads that hold sums of the same row; all of them get it. */
RF_DEVICE float rf_group_row_max(float value) {
    value = rf_max(value, rf_wave_xor_f32(value, 1));
    return rf_max(value, rf_wave_xor_f32(value, 2));
}
RF_DEVICE float rf_group_row_total(float value) {
    value += rf_wave_xor_f32(value, 1);
    return value + rf_wave_xor_f32(value, 2);
}

/* Registers that move from waves which need few to those which need many; every wave of a group, constants. */
#if defined(RF_HOST)
#define RF_REGISTERS_LESS(count)
#define RF_REGISTERS_MORE(count)
#else
#define RF_REGISTERS_LESS(count) __asm__ volatile("setmaxnreg.dec.sync.aligned.u32 " #count ";" ::: "memory")
#define RF_REGISTERS_MORE(count) __asm__ volatile("setmaxnreg.inc.sync.aligned.u32 " #count ";" ::: "memory")
#endif

/* ---- barriers of one group and of two: numbers from 1 on ---- */

/* On the host they are barriers in shared memory, for as many arrivals as threads, and *parity is how far the thread
 * is. threads: RF_GROUP or twice that. */
RF_DEVICE void rf_group_meet(uint32_t number, uint32_t threads, rf_place bar, uint32_t *parity) {
#if defined(RF_HOST)
    (void)number;
    (void)threads;
    rf_bar_arrive(bar);
    rf_bar_wait(bar, *parity);
    *parity ^= 1;
#else
    (void)bar;
    (void)parity;
    __asm__ volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
#endif
}
/* Lets those who meet there go on, and does not wait itself. */
RF_DEVICE void rf_group_let(uint32_t number, uint32_t threads, rf_place bar) {
#if defined(RF_HOST)
    (void)number;
    (void)threads;
    rf_bar_arrive(bar);
#else
    (void)bar;
    __asm__ volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
#endif
}

/* ---- operands in shared memory, as the units take them ---- */

#if defined(RF_HOST)
typedef struct {
    rf_place place;
    uint32_t apart; /* 0: k is along the rows */
} rf_operand;
#else
typedef uint64_t
    rf_operand; /* in units of 16 bytes: the address; how far 64 columns or 8 rows are apart; the swizzle */
#define RF_OPERAND(place, apart)                                                                                     \
    ((uint64_t)((place) >> 4 & 0x3fff) | (uint64_t)((apart) & 0x3fff) << 16 | (uint64_t)(1024 >> 4) << 32 |          \
     (uint64_t)1 << 62)
#endif
RF_DEVICE rf_operand rf_operand_at(rf_place place) {
#if defined(RF_HOST)
    rf_operand operand = {place, 0};
    return operand;
#else
    return RF_OPERAND(place, 1);
#endif
}
RF_DEVICE rf_operand rf_operand_across(rf_place place, uint32_t apart_bytes) {
#if defined(RF_HOST)
    rf_operand operand = {place, apart_bytes};
    return operand;
#else
    return RF_OPERAND(place, apart_bytes >> 4);
#endif
}
/* `bytes` further, a multiple of 16: 16 elements of k are 32 bytes along the rows, 2048 across. */
RF_DEVICE rf_operand rf_operand_further(rf_operand operand, uint32_t bytes) {
#if defined(RF_HOST)
    operand.place += bytes;
    return operand;
#else
    return operand + (bytes >> 4);
#endif
}

/* ---- products ---- */

#if defined(RF_HOST)

#define RF_PRODUCTS_MOST 64
struct rf_product {
    enum rf_type type;
    uint32_t n, batch;
    bool fresh;
    float *sums;
    const uint32_t *words; /* NULL: left is in shared memory */
    rf_operand left, right;
};
struct rf_products {
    struct rf_product noted[RF_PRODUCTS_MOST];
    uint32_t count, batch;
};
RF_DEVICE void rf_products_init(struct rf_products *products) {
    products->count = products->batch = 0;
}
RF_DEVICE void rf_group_begin(struct rf_products *products, uint32_t n, float *sums) {
    (void)products, (void)n, (void)sums;
}
RF_DEVICE void rf_group_pin(uint32_t n, float *sums) {
    (void)n, (void)sums;
}
RF_DEVICE void rf_group_pin_words(uint32_t count, uint32_t *words) {
    (void)count, (void)words;
}
RF_DEVICE void rf_group_note(struct rf_products *products, struct rf_product product) {
    if (products->count == RF_PRODUCTS_MOST) rf_fail_launch("more products under way than a group may have");
    product.batch = products->batch;
    products->noted[products->count++] = product;
}
RF_DEVICE void rf_group_multiply(struct rf_products *products, enum rf_type type, uint32_t n, bool fresh, float *sums,
                                 rf_operand left, rf_operand right) {
    struct rf_product product = {type, n, 0, fresh, sums, (const uint32_t *)0, left, right};
    rf_group_note(products, product);
}
RF_DEVICE void rf_group_multiply_words(struct rf_products *products, enum rf_type type, uint32_t n, float *sums,
                                       const uint32_t *words, rf_operand right) {
    struct rf_product product = {type, n, 0, false, sums, words, right, right};
    rf_group_note(products, product);
}
RF_DEVICE void rf_group_sent(struct rf_products *products) {
    products->batch++;
}
RF_DEVICE float rf_operand_element(enum rf_type type, rf_operand operand, uint32_t k, uint32_t other) {
    rf_place at =
        operand.place + (operand.apart ? other / 64 * operand.apart + k * 128 + other % 64 * 2 : other * 128 + k * 2);
    return rf_f32_of_16(type, *(const uint16_t *)rf_place_swizzled(at));
}
/* The words of a thread are of its own columns; the other columns of its rows are in the three lanes beside it. */
RF_DEVICE float rf_words_element(enum rf_type type, const uint32_t *words, uint32_t h, uint32_t k) {
    uint32_t lane = rf_lane() / 4 * 4 + k % 8 / 2, word = rf_wave_get_u32(words[k / 8 * 2 + h], lane);
    return rf_f32_of_16(type, (uint16_t)(word >> k % 2 * 16));
}
RF_DEVICE void rf_group_make(const struct rf_product *product) {
    enum rf_type type = product->type;
    float rows[2][16], *sums = product->sums;
    for (uint32_t h = 0; h < 2; h++)
        for (uint32_t k = 0; k < 16; k++)
            rows[h][k] = product->words ? rf_words_element(type, product->words, h, k)
                                        : rf_operand_element(type, product->left, k, rf_group_row(h));
    for (uint32_t c = 0; c < product->n / 4; c++) {
        uint32_t j = c / 2, i = c % 2;
        for (uint32_t h = 0; h < 2 && product->fresh; h++) sums[4 * j + 2 * h + i] = 0.0f;
        for (uint32_t k = 0; k < 16; k++) {
            float element = rf_operand_element(type, product->right, k, rf_group_column(j) + i);
            for (uint32_t h = 0; h < 2; h++)
                sums[4 * j + 2 * h + i] = rf_fma(rows[h][k], element, sums[4 * j + 2 * h + i]);
        }
    }
}
/* All but the newest `newer` batches. */
RF_DEVICE void rf_group_catch_up(struct rf_products *products, uint32_t newer) {
    uint32_t made = 0;
    while (made < products->count && products->noted[made].batch + newer < products->batch)
        rf_group_make(&products->noted[made++]);
    for (uint32_t i = made; i < products->count; i++) products->noted[i - made] = products->noted[i];
    products->count -= made;
}
RF_DEVICE void rf_group_done_but_1(struct rf_products *products) {
    rf_group_catch_up(products, 1);
}
RF_DEVICE void rf_group_done(struct rf_products *products, uint32_t n, float *sums) {
    (void)n, (void)sums;
    rf_group_catch_up(products, 0);
}

#else /* sm_90a */

struct rf_products {
    uint32_t none;
};
RF_DEVICE void rf_products_init(struct rf_products *products) {
    products->none = 0;
}

#define RF_EIGHT(c, s, i)                                                                                            \
    c((s)[(i)]), c((s)[(i) + 1]), c((s)[(i) + 2]), c((s)[(i) + 3]), c((s)[(i) + 4]), c((s)[(i) + 5]),                \
        c((s)[(i) + 6]), c((s)[(i) + 7])
#define RF_EACH_SUM_32(c, s, i)                                                                                      \
    RF_EIGHT(c, s, i), RF_EIGHT(c, s, (i) + 8), RF_EIGHT(c, s, (i) + 16), RF_EIGHT(c, s, (i) + 24)
#define RF_EACH_SUM_64(c, s) RF_EACH_SUM_32(c, s, 0), RF_EACH_SUM_32(c, s, 32)
#define RF_EACH_SUM_128(c, s) RF_EACH_SUM_64(c, s), RF_EACH_SUM_32(c, s, 64), RF_EACH_SUM_32(c, s, 96)
/* The sums of a thread, for n of 64, 128 and 256. */
#define RF_SUMS_64(c, s) RF_EACH_SUM_32(c, s, 0)
#define RF_SUMS_128(c, s) RF_EACH_SUM_64(c, s)
#define RF_SUMS_256(c, s) RF_EACH_SUM_128(c, s)
#define RF_BOTH(value) "+f"(value)
#define RF_NEW(value) "=f"(value)
#define RF_WORD(value) "+r"(value)
/* "%10, %11, …, %19, " of tens 1 */
#define RF_TEN(tens)                                                                                                 \
    "%" #tens "0, %" #tens "1, %" #tens "2, %" #tens "3, %" #tens "4, %" #tens "5, %" #tens "6, %" #tens             \
    "7, %" #tens "8, %" #tens "9, "
#define RF_NAMES_30 RF_TEN() RF_TEN(1) RF_TEN(2)
#define RF_NAMES_60 RF_NAMES_30 RF_TEN(3) RF_TEN(4) RF_TEN(5)
#define RF_NAMES_120 RF_NAMES_60 RF_TEN(6) RF_TEN(7) RF_TEN(8) RF_TEN(9) RF_TEN(10) RF_TEN(11)
#define RF_NAMES_OF_64 RF_NAMES_30 "%30, %31"
#define RF_NAMES_OF_128 RF_NAMES_60 "%60, %61, %62, %63"
#define RF_NAMES_OF_256 RF_NAMES_120 "%120, %121, %122, %123, %124, %125, %126, %127"

/* An instruction that names the sums. */
#define RF_WITH_SUMS(text, n, sums)                                                                                  \
    do {                                                                                                             \
        if ((n) == 64) __asm__ volatile(text : RF_SUMS_64(RF_BOTH, sums) : : "memory");                              \
        if ((n) == 128) __asm__ volatile(text : RF_SUMS_128(RF_BOTH, sums) : : "memory");                            \
        if ((n) == 256) __asm__ volatile(text : RF_SUMS_256(RF_BOTH, sums) : : "memory");                            \
    } while (0)
RF_DEVICE void rf_group_begin(struct rf_products *products, uint32_t n, float *sums) {
    (void)products;
    RF_WITH_SUMS("wgmma.fence.sync.aligned;", n, sums);
}
/* Nothing reads or writes the sums across this; nor the words, of which there are 16 or 32. */
RF_DEVICE void rf_group_pin(uint32_t n, float *sums) {
    RF_WITH_SUMS("", n, sums);
}
RF_DEVICE void rf_group_pin_words(uint32_t count, uint32_t *words) {
    if (count == 16) __asm__ volatile("" : RF_EIGHT(RF_WORD, words, 0), RF_EIGHT(RF_WORD, words, 8) : : "memory");
    if (count == 32) __asm__ volatile("" : RF_EACH_SUM_32(RF_WORD, words, 0) : : "memory");
}
RF_DEVICE void rf_group_sent(struct rf_products *products) {
    (void)products;
    __asm__ volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
RF_DEVICE void rf_group_done_but_1(struct rf_products *products) {
    (void)products;
    __asm__ volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
}
RF_DEVICE void rf_group_done(struct rf_products *products, uint32_t n, float *sums) {
    (void)products;
    RF_WITH_SUMS("wgmma.wait_group.sync.aligned 0;", n, sums);
}

/* left and right are the operands behind the sums: numbers l and r. */
#define RF_WGMMA(n, type, kind, scale, l, r)                                                                         \
    __asm__ volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" RF_NAMES_OF_##n            \
                     "}, %" #l ", %" #r ", " scale ", 1, 1, 0, 0;"                                                   \
                     : RF_SUMS_##n(kind, sums)                                                                       \
                     : "l"(left), "l"(right)                                                                         \
                     : "memory")
#define RF_WGMMA_EACH(kind, scale)                                                                                   \
    do {                                                                                                             \
        if (n == 64 && type == RF_TYPE_F16) RF_WGMMA(64, "f16", kind, scale, 32, 33);                                \
        if (n == 64 && type == RF_TYPE_BF16) RF_WGMMA(64, "bf16", kind, scale, 32, 33);                              \
        if (n == 128 && type == RF_TYPE_F16) RF_WGMMA(128, "f16", kind, scale, 64, 65);                              \
        if (n == 128 && type == RF_TYPE_BF16) RF_WGMMA(128, "bf16", kind, scale, 64, 65);                            \
        if (n == 256 && type == RF_TYPE_F16) RF_WGMMA(256, "f16", kind, scale, 128, 129);                            \
        if (n == 256 && type == RF_TYPE_BF16) RF_WGMMA(256, "bf16", kind, scale, 128, 129);                          \
    } while (0)
/* fresh, a constant: sums = instead of sums +=. */
RF_DEVICE void rf_group_multiply(struct rf_products *products, enum rf_type type, uint32_t n, bool fresh, float *sums,
                                 rf_operand left, rf_operand right) {
    (void)products;
    if (fresh) {
        RF_WGMMA_EACH(RF_NEW, "0");
    } else {
        RF_WGMMA_EACH(RF_BOTH, "1");
    }
}
#define RF_WGMMA_WORDS(n, type, a, b, c, d, r)                                                                       \
    __asm__ volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" RF_NAMES_OF_##n            \
                     "}, {%" #a ", %" #b ", %" #c ", %" #d "}, %" #r ", 1, 1, 1, 1;"                                 \
                     : RF_SUMS_##n(RF_BOTH, sums)                                                                    \
                     : "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]), "l"(right)                        \
                     : "memory")
/* right is one of rf_operand_across. */
RF_DEVICE void rf_group_multiply_words(struct rf_products *products, enum rf_type type, uint32_t n, float *sums,
                                       const uint32_t *words, rf_operand right) {
    (void)products;
    if (n == 64 && type == RF_TYPE_F16) RF_WGMMA_WORDS(64, "f16", 32, 33, 34, 35, 36);
    if (n == 64 && type == RF_TYPE_BF16) RF_WGMMA_WORDS(64, "bf16", 32, 33, 34, 35, 36);
    if (n == 128 && type == RF_TYPE_F16) RF_WGMMA_WORDS(128, "f16", 64, 65, 66, 67, 68);
    if (n == 128 && type == RF_TYPE_BF16) RF_WGMMA_WORDS(128, "bf16", 64, 65, 66, 67, 68);
    if (n == 256 && type == RF_TYPE_F16) RF_WGMMA_WORDS(256, "f16", 128, 129, 130, 131, 132);
    if (n == 256 && type == RF_TYPE_BF16) RF_WGMMA_WORDS(256, "bf16", 128, 129, 130, 131, 132);
}

#endif
#endif
