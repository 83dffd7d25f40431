/* The parts of the budget that need no device: witnesses of free memory, and leases. The grammar is in
 * runtime/budget_spec.h.
 *
 * A budget belongs to this user's processes together. With "base" the memory that would be
 * free if none of them held anything (live free + what live leases hold), a spec gives a
 * limit and a floor; a new lease is promised at most limit less what live leases were
 * promised. Invariants:
 *   - the promises of live root leases never exceed the largest limit any of them was
 *     granted under
 *   - a dead process's lease no longer counts from the next look on, however the process died
 * lease.c and lease_table.c say which parts of this are asserted, and why the rest is not. */
#ifndef RF_GPU_BUDGET_H
#define RF_GPU_BUDGET_H

#include "base/base.h"
#include "gpu/driver.h"
#include "runtime/budget_spec.h"

/* ---- witness.c: what the kernel (or NVML) says, without a GPU context ---- */

struct rf_witness;
/* sysfs: "/sys", or a tree made for a test. Creating a witness never fails for lack of a source: the functions below
 * then return RF_E_UNSUPPORTED. pci may be empty. */
rf_status rf_witness_create(enum rf_driver_kind kind, const char *sysfs, const char *pci, const char *uuid,
                            struct rf_witness **out);
/* The same with NVML loaded from another path; NULL: the usual one. */
rf_status rf_witness_create_with(enum rf_driver_kind kind, const char *sysfs, const char *nvml_library,
                                 const char *pci, const char *uuid, struct rf_witness **out);
void rf_witness_destroy(struct rf_witness **witness);
/* Counts VRAM, and on an integrated GPU the GTT too. Thread-safe. */
rf_status rf_witness_memory(struct rf_witness *witness, bool integrated, uint64_t *free_bytes, uint64_t *total_bytes);
/* What this process holds on the GPU by fdinfo, KFD or NVML; GTT is included once rf_witness_memory was called for an
 * integrated GPU. */
rf_status rf_witness_process(struct rf_witness *witness, uint64_t *bytes);
enum rf_tristate rf_witness_display(struct rf_witness *witness);
const char *rf_witness_name(const struct rf_witness *witness); /* "sysfs", "nvml", "none" */

/* ---- lease.c ----
 * A lease belongs to the process that opened it: in a forked child its functions return
 * RF_E_INVALID (closing frees the child's memory only) and the child opens its own. */

struct rf_lease;
struct rf_lease_params {
    const char *dir;      /* the only folder to use; NULL: all the usual ones, see lease_places.c */
    const char *root;     /* NULL, or what stands before the usual folders' paths; for tests */
    const char *uuid;     /* of the GPU */
    bool own;             /* the GPU is this process's own, so its leases are: no folder is used */
    uint64_t total_bytes; /* the GPU's memory: no lease can be of more, whatever a damaged file says; 0: not known */
    struct rf_budget_spec spec;
    /* Measures live free memory; called with the lease table locked. */
    rf_status (*live_free)(void *user, uint64_t *free_bytes);
    void *user;
    int64_t timeout_ns; /* for the table's lock */
};
struct rf_lease_terms {
    uint64_t free0_bytes;    /* live free less what others were promised and do not yet hold */
    uint64_t promised_bytes; /* this lease's budget; 0: other leases hold all of it */
    uint64_t floor_bytes;
    uint64_t limit_bytes; /* what the spec gives to all leases together */
    uint64_t others_promised_bytes;
    uint64_t others_held_bytes;
    int others;      /* live leases besides this one */
    int largest_pid; /* the other lease with the largest promise; 0 if none */
};
rf_status rf_lease_open(const struct rf_lease_params *params, struct rf_lease **out, struct rf_lease_terms *terms);
void rf_lease_close(struct rf_lease **lease);
/* Publishes how much this process really holds, without the parts that it lent. Raise the figure after allocating and
 * lower it before freeing: other processes add it to the live free memory, and the sum must never be too large.
 * Thread-safe; waits for no other process. */
void rf_lease_set_held(struct rf_lease *lease, uint64_t bytes);
/* Replaces the promise by the bytes that the spec gives now. */
rf_status rf_lease_renew(struct rf_lease *lease, const struct rf_budget_spec *spec, struct rf_lease_terms *terms);
/* Excludes every other process (and thread) of this user that allocates on this GPU. It waits until an absolute
 * deadline, then RF_E_BUSY names the holder's pid. The lock ends with the process that holds it. The same thread may
 * nest it; each lock needs an unlock on the same thread. */
rf_status rf_lease_lock(struct rf_lease *lease, int64_t deadline_ns);
void rf_lease_unlock(struct rf_lease *lease);
/* Lends a part of this lease to a child process, and writes it as a spec for RF_BUDGET. A child can lend out of its
 * part once more (RF_E_UNSUPPORTED beyond that). The part lies inside its lender's promise, under its lender's floor.
 * When the lender is gone the part counts on its own and can be renewed to less, not to more. */
rf_status rf_lease_lend(struct rf_lease *lease, uint64_t bytes, char *spec, size_t size);
/* Takes a lent part back and gives its size. RF_E_BUSY: a process that uses the part is still alive. */
rf_status rf_lease_reclaim(struct rf_lease *lease, const char *spec, uint64_t *bytes);

struct rf_lease_entry {
    int pid; /* 0: in a pid namespace that is not visible from here */
    uint64_t promised_bytes, held_bytes;
    bool part; /* of another process's lease */
    bool mine;
};
/* Visits all live leases on a GPU; for doctor and tests. Of place the folders, uuid, own and total_bytes are used;
 * with own only leases of this process and of processes that use parts of them are found. */
rf_status rf_lease_survey(const struct rf_lease_params *place,
                          bool (*visit)(void *user, const struct rf_lease_entry *entry), void *user);

#endif
