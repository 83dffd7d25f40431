/* The host's side of the budget: memory this runtime takes of the machine itself, pinned or
 * not. On an integrated GPU the device layer charges GPU allocations here too.
 *
 * One object per runtime, embedded; every function may be called from any thread and none
 * blocks but for the object's own mutex. */
#ifndef RF_RUNTIME_HOST_BUDGET_H
#define RF_RUNTIME_HOST_BUDGET_H

#include "base/base.h"

struct rf_host_budget {
    pthread_mutex_t mutex;                  /* used and pinned */
    char root[256];                         /* where proc and sys are found; "" for the real ones */
    char spec[64];                          /* as given, for refusals */
    uint64_t available0_bytes, total_bytes; /* when it was made */
    uint64_t limit_bytes, pinned_limit_bytes, floor_bytes;
    uint64_t used_bytes; /* pinned included */
    uint64_t pinned_bytes;
};

/* spec: the grammar of rf_budget_parse less part=, on what rf_host_memory says is available.
 * root: as for rf_host_memory. Pinned memory gets at most a quarter of the limit. */
rf_status rf_host_budget_init(struct rf_host_budget *budget, const char *spec, const char *root);
void rf_host_budget_finish(struct rf_host_budget *budget);

/* RF_E_NO_MEMORY says what was asked, what stood against it and which knob changes it; nothing
 * is charged then. A large charge is also held against what the host has available now. */
rf_status rf_host_charge(struct rf_host_budget *budget, uint64_t bytes, bool pinned);
/* What was charged, with the same flag. */
void rf_host_release(struct rf_host_budget *budget, uint64_t bytes, bool pinned);
/* The largest charge that would be granted now. */
uint64_t rf_host_room(struct rf_host_budget *budget, bool pinned);

#endif
