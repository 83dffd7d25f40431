/* The host budget: how much host memory this runtime may take, pinned or not. On an integrated GPU the device layer
 * charges GPU allocations here too.
 *
 * One object per runtime, embedded; every function may be called from any thread, and none blocks except on the
 * object's own mutex. */
#ifndef RF_RUNTIME_HOST_BUDGET_H
#define RF_RUNTIME_HOST_BUDGET_H

#include "base/base.h"

struct rf_host_budget {
    pthread_mutex_t mutex;                  /* guards used_bytes and pinned_bytes */
    char root[256];                         /* the folder that holds proc and sys; "" for the real ones */
    char spec[64];                          /* as given, for error texts */
    uint64_t available0_bytes, total_bytes; /* when it was made */
    uint64_t limit_bytes, pinned_limit_bytes, floor_bytes;
    uint64_t used_bytes; /* pinned included */
    uint64_t pinned_bytes;
};

/* spec: in the grammar of rf_budget_parse, without part=. Percentages are of the memory that rf_host_memory says is
 * available. root: as for rf_host_memory. Pinned memory gets at most a quarter of the limit. */
rf_status rf_host_budget_init(struct rf_host_budget *budget, const char *spec, const char *root);
void rf_host_budget_finish(struct rf_host_budget *budget);

/* RF_E_NO_MEMORY: nothing is charged, and the error text says what was asked, which limit refused it and which option
 * changes that limit. A large charge is also compared with what the host has available now. */
rf_status rf_host_charge(struct rf_host_budget *budget, uint64_t bytes, bool pinned);
/* Gives back bytes that were charged; pinned must be the same as then. */
void rf_host_release(struct rf_host_budget *budget, uint64_t bytes, bool pinned);
/* What is charged now, pinned memory included. */
uint64_t rf_host_used(struct rf_host_budget *budget);
/* The largest charge that would be granted now. */
uint64_t rf_host_room(struct rf_host_budget *budget, bool pinned);

#endif
