/* Memory that is charged before it is taken (see host_memory.h). */
#include "runtime/host_memory.h"
#include "base/sanitizers.h"

#include <malloc.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#if RF_UNDER_ASAN
#define MAPPED_BYTES UINT64_MAX /* nothing is mapped: the address sanitizer sees only the C library's memory */
#else
#define MAPPED_BYTES ((uint64_t)64 << 10)
#endif
enum { ALIGNMENT = 64 };

uint64_t rf_host_alloc_bytes(uint64_t bytes) {
    uint64_t unit = bytes < MAPPED_BYTES ? ALIGNMENT : (uint64_t)sysconf(_SC_PAGESIZE), rounded;
    return rf_round_up_overflows(bytes, unit, &rounded) ? UINT64_MAX : rounded;
}

rf_status rf_host_alloc(struct rf_host_budget *budget, uint64_t bytes, const char *what, void **out) {
    uint64_t taken = rf_host_alloc_bytes(bytes);
    void *memory = NULL;
    if (bytes > PTRDIFF_MAX)
        return rf_fail(RF_E_NO_MEMORY, "%s: %llu bytes are more than an address space", what,
                       (unsigned long long)bytes);
    rf_status status = budget ? rf_host_charge(budget, taken, false) : RF_OK;
    if (status) return rf_fail_within(status, "%s", what);
    if (bytes >= MAPPED_BYTES) {
        memory =
            mmap(NULL, (size_t)taken, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) memory = NULL;
    } else if (bytes) {
        memory = aligned_alloc(ALIGNMENT, (size_t)taken);
        if (memory) memset(memory, 0, (size_t)taken);
    }
    if (bytes && !memory) {
        if (budget) rf_host_release(budget, taken, false);
        return rf_fail(RF_E_NO_MEMORY, "%s: the host has no %llu bytes", what, (unsigned long long)bytes);
    }
    *out = memory;
    return RF_OK;
}

void rf_host_free(struct rf_host_budget *budget, void *memory, uint64_t bytes) {
    if (!memory) return;
    uint64_t taken = rf_host_alloc_bytes(bytes);
    if (bytes >= MAPPED_BYTES)
        munmap(memory, (size_t)taken);
    else
        free(memory);
    if (budget) rf_host_release(budget, taken, false);
}

void rf_host_trim(void) {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

static rf_status charge(void *user, uint64_t bytes) {
    return rf_host_charge(user, bytes, false);
}
static void release(void *user, uint64_t bytes) {
    rf_host_release(user, bytes, false);
}
struct rf_account rf_host_account(struct rf_host_budget *budget) {
    return (struct rf_account){charge, release, budget, 0};
}
