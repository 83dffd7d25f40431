/* bench_cpu: the fast CPU ops against the machine's own limits, measured in the same run.
 *
 *   bench_cpu [--quick] [--threads N] [--level scalar|avx2|avx512] [--rounds N]
 *
 * Decoding multiplies one column with a matrix of 4096 x 14336, over more than 1 GiB of distinct matrices, so that no
 * cache helps. It compares weight bytes per second with plain reading of the same memory by the same threads. The two
 * alternate, and the best pass of each counts, because other programs disturb both. Prefill takes 512 columns and
 * counts floating-point operations per second (two per weight and column). Timings decide nothing: the exit status
 * says whether the benchmark ran. */
#include "base/base.h"
#include "cpu/fast.h"
#include "runtime/thread_pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

struct options {
    bool quick;
    unsigned threads;
    int rounds;
    enum rf_simd_level level;
};

struct memory {
    unsigned char *at;
    size_t bytes;
};

/* ---- reading ---- */

enum { PIECE = 1 << 20 };
struct reading {
    const unsigned char *at;
    uint64_t *seen; /* one result per piece, so that the compiler keeps every read */
};
static void read_pieces(void *user, size_t begin, size_t end, unsigned thread) {
    (void)thread;
    struct reading *reading = user;
    for (size_t i = begin; i < end; i++) {
        const uint64_t *p = (const uint64_t *)(const void *)(reading->at + i * PIECE);
        uint64_t a = 0, b = 0, c = 0, d = 0;
        for (size_t j = 0; j < PIECE / 8; j += 8) {
            a |= p[j] | p[j + 4];
            b |= p[j + 1] | p[j + 5];
            c |= p[j + 2] | p[j + 6];
            d |= p[j + 3] | p[j + 7];
            __builtin_prefetch(p + j + 2048, 0, 2); /* as the matvecs do: into the L2 cache, far ahead */
        }
        reading->seen[i] = a | b | c | d;
    }
}
static double read_pass(struct rf_thread_pool *pool, const struct memory *memory, uint64_t *seen) {
    struct reading reading = {memory->at, seen};
    int64_t start = rf_now_ns();
    rf_thread_pool_run(pool, 0, memory->bytes / PIECE, 1, read_pieces, &reading);
    return (double)(memory->bytes / PIECE * PIECE) / (double)(rf_now_ns() - start);
}

/* ---- decoding ---- */

/* Fills the whole memory with random blocks whose scales have a sensible size. */
static void fill(struct memory *memory, enum rf_dtype dtype) {
    uint64_t state = 88172645463325252u;
    for (size_t i = 0; i + 8 <= memory->bytes; i += 8) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        memcpy(memory->at + i, &state, 8);
    }
    static const uint16_t scale = 0x1c00; /* 2^-8 */
    size_t block = rf_dtype_block_bytes(dtype);
    for (size_t i = 0; i + block <= memory->bytes; i += block) {
        unsigned char *p = memory->at + i;
        switch (dtype) {
        case RF_F32: p[3] &= 0x3f; break;
        case RF_F16: p[1] &= 0x3b; break;
        case RF_BF16: p[1] &= 0x3f; break;
        case RF_Q6_K: memcpy(p + 208, &scale, 2); break;
        case RF_Q4_K:
            memcpy(p + 2, &scale, 2);
            memcpy(p, &scale, 2);
            break;
        default: memcpy(p, &scale, 2); break;
        }
    }
}

static bool decode(struct rf_cpu *cpu, struct rf_thread_pool *pool, struct memory *memory, uint64_t *seen,
                   enum rf_dtype dtype, size_t rows, size_t k, int rounds) {
    size_t bytes = rows * (k / rf_dtype_block(dtype)) * rf_dtype_block_bytes(dtype), copies = memory->bytes / bytes;
    float *x = calloc(k, sizeof *x), *y = calloc(rows, sizeof *y);
    if (!x || !y || copies == 0) return false;
    fill(memory, dtype);
    for (size_t i = 0; i < k; i++) x[i] = (float)(i * 7919 % 1000) / 500 - 1;
    double best = 0, best_read = 0;
    for (int r = 0; r < rounds; r++) {
        best_read = RF_MAX(best_read, read_pass(pool, memory, seen));
        int64_t start = rf_now_ns();
        for (size_t i = 0; i < copies; i++) {
            struct rf_ref_matmul op = {.weight_type = dtype,
                                       .weights = memory->at + i * bytes,
                                       .type = RF_F32,
                                       .x = x,
                                       .out = y,
                                       .args = {.m = 1, .n = rows, .k = k, .x_stride = k, .out_stride = rows}};
            if (rf_cpu_matmul(cpu, &op)) {
                fprintf(stderr, "bench_cpu: %s\n", rf_error_text());
                return false;
            }
        }
        best = RF_MAX(best, (double)(copies * bytes) / (double)(rf_now_ns() - start));
    }
    printf("decode   %-6s %5zu x %5zu, %3zu matrices  %7.1f GB/s  read %7.1f GB/s  %5.1f%%\n", rf_dtype_name(dtype),
           rows, k, copies, best, best_read, 100 * best / best_read);
    fflush(stdout);
    free(x);
    free(y);
    return true;
}

static bool prefill(struct rf_cpu *cpu, struct memory *memory, enum rf_dtype dtype, size_t columns, size_t rows,
                    size_t k, int rounds) {
    float *x = calloc(columns * k, sizeof *x), *y = calloc(columns * rows, sizeof *y);
    if (!x || !y) return false;
    struct memory part = {memory->at, rows * (k / rf_dtype_block(dtype)) * rf_dtype_block_bytes(dtype)};
    fill(&part, dtype);
    for (size_t i = 0; i < columns * k; i++) x[i] = (float)(i * 7919 % 1000) / 500 - 1;
    double best = 0;
    for (int r = 0; r < rounds; r++) {
        struct rf_ref_matmul op = {.weight_type = dtype,
                                   .weights = memory->at,
                                   .type = RF_F32,
                                   .x = x,
                                   .out = y,
                                   .args = {.m = columns, .n = rows, .k = k, .x_stride = k, .out_stride = rows}};
        int64_t start = rf_now_ns();
        if (rf_cpu_matmul(cpu, &op)) return false;
        best = RF_MAX(best, 2.0 * (double)columns * (double)rows * (double)k / (double)(rf_now_ns() - start));
    }
    printf("prefill  %-6s %5zu x %5zu, %3zu columns   %7.1f GFLOP/s\n", rf_dtype_name(dtype), rows, k, columns, best);
    fflush(stdout);
    free(x);
    free(y);
    return true;
}

static bool parse(int argc, char **argv, struct options *options) {
    *options = (struct options){.rounds = 7};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--quick")) {
            options->quick = true;
            options->rounds = 1;
            continue;
        }
        if (!strcmp(argv[i], "--threads"))
            options->threads = (unsigned)atoi(value);
        else if (!strcmp(argv[i], "--rounds"))
            options->rounds = RF_MAX(1, atoi(value));
        else if (!strcmp(argv[i], "--level"))
            for (int l = 0; l < RF_SIMD_LEVELS; l++)
                options->level =
                    !strcmp(value, rf_simd_name((enum rf_simd_level)l)) ? (enum rf_simd_level)l : options->level;
        else
            return false;
        i++;
    }
    return true;
}

int main(int argc, char **argv) {
    struct options options;
    if (!parse(argc, argv, &options)) {
        fprintf(stderr, "usage: %s [--quick] [--threads N] [--level scalar|avx2|avx512] [--rounds N]\n", argv[0]);
        return 2;
    }
    struct rf_cpu *cpu = NULL;
    struct rf_thread_pool *pool = NULL;
    if (rf_cpu_create(&(struct rf_cpu_params){.threads = options.threads, .level = options.level}, &cpu) ||
        rf_thread_pool_create(options.threads, &pool)) {
        fprintf(stderr, "bench_cpu: %s\n", rf_error_text());
        return 1;
    }
    /* More than 1 GiB, and room for a whole number of the largest matrices. */
    struct memory memory = {.bytes = options.quick ? (size_t)8 << 20 : (size_t)1200 << 20};
    memory.at = mmap(NULL, memory.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t *seen = calloc(memory.bytes / PIECE, sizeof *seen);
    if (memory.at == MAP_FAILED || !seen) {
        fprintf(stderr, "bench_cpu: no memory for %zu MiB of weights\n", memory.bytes >> 20);
        return 1;
    }
    madvise(memory.at, memory.bytes, MADV_HUGEPAGE);
    printf("%s, %u threads, best of %d\n", rf_cpu_simd(cpu)->name, rf_cpu_threads(cpu), options.rounds);
    static const enum rf_dtype types[] = {RF_Q8_0, RF_Q4_0, RF_Q4_K, RF_Q6_K, RF_F16, RF_BF16, RF_F32};
    size_t rows = options.quick ? 512 : 4096, k = options.quick ? 1024 : 14336;
    bool ok = true;
    for (size_t t = 0; ok && t < RF_COUNT(types); t++)
        ok = decode(cpu, pool, &memory, seen, types[t], rows, k, options.rounds);
    ok = ok && decode(cpu, pool, &memory, seen, RF_Q4_0, k, rows, options.rounds);
    for (size_t t = 0; ok && t < RF_COUNT(types); t++)
        ok = prefill(cpu, &memory, types[t], options.quick ? 32 : 512, options.quick ? 256 : 2048,
                     options.quick ? 1024 : 4096, options.rounds);
    free(seen);
    munmap(memory.at, memory.bytes);
    rf_thread_pool_destroy(&pool);
    rf_cpu_destroy(&cpu);
    return ok ? 0 : 1;
}
