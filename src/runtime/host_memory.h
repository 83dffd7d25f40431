/* Host memory that is charged to a host budget before it is taken. Whatever the library keeps for runs on the CPU and
 * is larger than a page comes from here, or its owner charges it with rf_host_charge: the budget's figure is then
 * what the process holds.
 *
 * Memory of 64 KiB or more is a mapping of its own. It is zero pages, which the system provides one by one as
 * they are written, and freeing it gives it back to the system at once; the C library would keep it.
 *
 * Threads: every function may be called from any thread; none blocks except on the budget's mutex. */
#ifndef RF_RUNTIME_HOST_MEMORY_H
#define RF_RUNTIME_HOST_MEMORY_H

#include "runtime/host_budget.h"

/* Takes zeroed memory, aligned to 64 bytes. budget: NULL charges nothing. what: names the memory in the error text.
 * RF_E_NO_MEMORY: the budget or the system refuses; nothing is charged and *out is unchanged. 0 bytes give NULL. */
rf_status rf_host_alloc(struct rf_host_budget *budget, uint64_t bytes, const char *what, void **out);
/* Gives it back; budget and bytes must be the same as then. memory may be NULL. */
void rf_host_free(struct rf_host_budget *budget, void *memory, uint64_t bytes);
/* What rf_host_alloc charges for this many bytes. */
uint64_t rf_host_alloc_bytes(uint64_t bytes);

/* Returns to the system what the C library keeps of memory that was freed. It walks the whole heap: for the moments
 * when much was freed, not for every free. */
void rf_host_trim(void);

/* The budget as layers see it that do not know the runtime. It is borrowed as long as the account is used. */
struct rf_account rf_host_account(struct rf_host_budget *budget);

#endif
