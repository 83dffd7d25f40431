/* The thread's floating-point mode: rounding, flushing of subnormal numbers, which exceptions trap.
 *
 * Foreign code may change it, and then every number that this thread computes is another one: a driver's library that
 * was linked with -ffast-math flushes subnormal numbers to zero as soon as it is loaded. The GPU layer puts the mode
 * back after its calls of a driver, and the threads of the thread pool begin with the usual mode. */
#ifndef RF_BASE_FLOAT_MODE_H
#define RF_BASE_FLOAT_MODE_H

#if defined(__x86_64__)

/* SSE's register and that of the x87, by which the C library rounds when it reads and prints numbers. */
struct rf_float_mode {
    unsigned sse;
    unsigned short x87;
};
enum { RF_SSE_FLAGS = 0x3f, RF_SSE_USUAL = 0x1f80, RF_X87_USUAL = 0x037f };

static inline struct rf_float_mode rf_float_mode_get(void) {
    struct rf_float_mode mode;
    __asm__ volatile("stmxcsr %0" : "=m"(mode.sse));
    __asm__ volatile("fnstcw %0" : "=m"(mode.x87));
    return mode;
}

/* Writing is slow, so it is done only where something changed. The flags of exceptions that happened are left. */
static inline void rf_float_mode_set(struct rf_float_mode mode) {
    struct rf_float_mode now = rf_float_mode_get();
    if ((now.sse ^ mode.sse) & ~(unsigned)RF_SSE_FLAGS) __asm__ volatile("ldmxcsr %0" : : "m"(mode.sse));
    if (now.x87 != mode.x87) __asm__ volatile("fldcw %0" : : "m"(mode.x87));
}

static inline struct rf_float_mode rf_float_mode_usual(void) {
    return (struct rf_float_mode){RF_SSE_USUAL, RF_X87_USUAL};
}

#else

#include <fenv.h>

struct rf_float_mode {
    fenv_t environment;
};

static inline struct rf_float_mode rf_float_mode_get(void) {
    struct rf_float_mode mode;
    fegetenv(&mode.environment);
    return mode;
}

static inline void rf_float_mode_set(struct rf_float_mode mode) {
    fesetenv(&mode.environment);
}

static inline struct rf_float_mode rf_float_mode_usual(void) {
    struct rf_float_mode before = rf_float_mode_get(), usual;
    fesetenv(FE_DFL_ENV);
    usual = rf_float_mode_get();
    rf_float_mode_set(before);
    return usual;
}

#endif

#endif
