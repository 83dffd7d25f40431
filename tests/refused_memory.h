/* Host memory that is refused at will, and measured: the linker puts these in front of the C library's, as the
 * dependency refused_memory tells it. For one source of an executable. */
#ifndef REFUSED_MEMORY_H
#define REFUSED_MEMORY_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static _Atomic long countdown = -1; /* allocations until one is refused, 0: it is the next; below: none is */
static _Atomic long allocations;    /* so far */
/* The largest request; set it to 0 to measure from there on. */
static _Atomic size_t largest_request;

static bool refused(size_t bytes) {
    size_t largest = atomic_load(&largest_request);
    while (bytes > largest && !atomic_compare_exchange_weak(&largest_request, &largest, bytes)) continue;
    atomic_fetch_add(&allocations, 1);
    if (atomic_load(&countdown) < 0 || atomic_fetch_sub(&countdown, 1) != 0) return false;
    errno = ENOMEM;
    return true;
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
char *__wrap_strdup(const char *text);

void *__wrap_malloc(size_t bytes) {
    return refused(bytes) ? NULL : __real_malloc(bytes);
}
void *__wrap_calloc(size_t count, size_t bytes) {
    size_t all;
    if (__builtin_mul_overflow(count, bytes, &all)) all = SIZE_MAX;
    return refused(all) ? NULL : __real_calloc(count, bytes);
}
void *__wrap_realloc(void *old, size_t bytes) {
    return refused(bytes) ? NULL : __real_realloc(old, bytes);
}
char *__wrap_strdup(const char *text) {
    return refused(strlen(text) + 1) ? NULL : __real_strdup(text);
}

#endif
