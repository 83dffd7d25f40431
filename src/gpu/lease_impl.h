/* The lease table: what lease.c and lease_table.c share.
 *
 * One file per GPU in a folder of this user's, mapped by every process that holds a lease on that GPU. The table of a
 * GPU that is one process's own (a simulated one) is a memfd of that process; a process that was lent a part of such
 * a lease opens it through /proc/PID/fd, which the part's id names, and it goes with the last of them. lease_table.c
 * knows files, locks and which processes are alive; lease.c knows what a promise is.
 *
 * Invariants
 *   1. Identity, links and promises in a slot change only under the table's lock; held_bytes
 *      is stored by the slot's owner at any time and read by anybody.
 *   2. A slot counts only while its owner lives; see rf_lease_table_refresh. Its state is
 *      written last when it is claimed and first when it is given up, so that a process
 *      killed in between leaves a free slot.
 *   3. Nothing in the file is trusted: a slot is free unless its owner can be shown to be alive, and sums saturate.
 *      Random bytes count as an empty table.
 *   4. The file only grows, and is never opened twice by one process: POSIX record locks
 *      vanish when any descriptor of the file is closed.
 * rf_lease_table_is_valid checks the state after a refresh (2 and 3) and the files this process has open (4); the
 * lock of 1 is asserted where slots are claimed and published. Whether other processes keep 1 cannot be checked from
 * here: the test with 200 processes (tests/budget/test_lease_storm.c) checks it by its sums. */
#ifndef RF_GPU_LEASE_IMPL_H
#define RF_GPU_LEASE_IMPL_H

#include "gpu/budget.h"

#include <sys/types.h>

#define RF_LEASE_SLOTS 1024
#define RF_LEASE_LIVE UINT32_C(0x5ea5e11e)

enum rf_lease_kind {
    RF_LEASE_ROOT = 1, /* a process's own lease */
    RF_LEASE_PART,     /* a process's lease of a part that another lent */
    RF_LEASE_LENT,     /* the lender's record of a part, used or not */
};

struct rf_lease_owner {
    int32_t pid; /* in its own namespace */
    int32_t unused;
    uint64_t start_ticks;   /* since boot; with the pid it is unique */
    uint64_t stack;         /* exec changes it, keeps pid and start, and ends the lease */
    uint64_t pid_namespace; /* inode; 0: /proc could not tell, only locks can say who is alive */
    uint64_t nonce;         /* a random number of each process: it says which slots are its own */
    unsigned char boot[16];
};

/* Another slot, valid while that slot lives with the same generation. */
struct rf_lease_link {
    uint64_t generation; /* 0: none */
    uint32_t slot;
    uint32_t unused;
};

struct rf_lease_slot {
    _Atomic uint32_t state; /* RF_LEASE_LIVE; any other value means free */
    uint32_t kind;
    struct rf_lease_owner owner;
    uint64_t generation; /* random: a part's id cannot be guessed from the last one */
    uint64_t promised_bytes;
    _Atomic uint64_t held_bytes;
    uint64_t floor_bytes;
    struct rf_lease_link parent; /* PART: the lender's lease; LENT: the lease it is a part of */
    struct rf_lease_link root;   /* PART, LENT: the lease at the top of that chain */
    struct rf_lease_link lent;   /* PART: the record it attached to */
    uint64_t top_lent;           /* PART, LENT: generation of the record in the root's lease */
    unsigned char reserved[40];
};

struct rf_lease_registry;
struct rf_lease_table { /* used by lease_table.c only; here for the tests of rf_lease_table_is_valid */
    struct rf_lease_table *next;
    struct rf_lease_registry *registry;
    int references; /* under the registry's mutex */
    dev_t device;
    ino_t inode;
    char *own_uuid; /* owned; a memfd: the GPU that it is for. NULL: a file in a folder */
    int fd;
    unsigned char *map;
    pthread_mutex_t mutex; /* recursive; this process's side of the table lock */
    int depth;             /* under mutex */
    bool turn;             /* under mutex: this process has the turn */
    char path[];
};

/* Opens the table of a GPU, or finds it among the tables that this process has open. create false: RF_E_NOT_FOUND
 * where there is none yet. Each acquire needs a release. */
rf_status rf_lease_table_acquire(const char *dir, const char *uuid, bool create, struct rf_lease_table **out);
/* The table of a GPU that is this process's own: the memfd that this process made or was lent a part of. */
rf_status rf_lease_table_acquire_own(const char *uuid, bool create, struct rf_lease_table **out);
/* The table in the memfd that another process (or this one) has open as this descriptor. */
rf_status rf_lease_table_acquire_lent(int pid, int fd, const char *uuid, struct rf_lease_table **out);
/* This process's descriptor of the table, for others to find it by; -1 where it is a file in a folder. */
int rf_lease_table_own_fd(const struct rf_lease_table *table);
void rf_lease_table_release(struct rf_lease_table *table);
/* True if the process that this one was forked from made the table; it must not be touched then. Makes no system
 * call. */
bool rf_lease_table_inherited(const struct rf_lease_table *table);
const char *rf_lease_table_path(const struct rf_lease_table *table);
int rf_lease_table_pid(const struct rf_lease_table *table); /* of the process that opened it */

/* Excludes other processes and threads; one thread may nest it. */
rf_status rf_lease_table_lock(struct rf_lease_table *table, int64_t deadline_ns);
void rf_lease_table_unlock(struct rf_lease_table *table);

/* Takes the GPU's turn: one process of this user has it at a time, for as long as it likes, and the kernel ends it
 * with the process. Does not wait. holder: the pid that has the turn (0: not visible from here). */
bool rf_lease_table_take_turn(struct rf_lease_table *table, int *holder);
void rf_lease_table_end_turn(struct rf_lease_table *table);

/* The functions below need the table's lock. */

/* True if the file was deleted or another file stands in its place: new leases must not join this table. Those that
 * are in it stay in it together. */
bool rf_lease_table_replaced(const struct rf_lease_table *table);
/* Repairs the file if necessary, gives up dead owners' slots and says which slots are alive. */
rf_status rf_lease_table_refresh(struct rf_lease_table *table, bool live[RF_LEASE_SLOTS]);
/* Exists in builds with checks at level 2 only. Says whether the table is as a refresh leaves it; *why: what is not.
 */
bool rf_lease_table_is_valid(struct rf_lease_table *table, const char **why);
struct rf_lease_slot *rf_lease_table_slot(const struct rf_lease_table *table, uint32_t index);
bool rf_lease_slot_is_mine(const struct rf_lease_table *table, const struct rf_lease_slot *slot);
/* The owner's pid as seen from here; 0: its pid namespace is not visible from here. */
int rf_lease_slot_pid(const struct rf_lease_table *table, uint32_t index);
/* Takes a free slot and zeroes it except for owner and generation; it counts from rf_lease_slot_publish on. */
rf_status rf_lease_slot_claim(struct rf_lease_table *table, const bool live[RF_LEASE_SLOTS], uint32_t *index);
void rf_lease_slot_publish(struct rf_lease_table *table, uint32_t index);
void rf_lease_slot_give_up(struct rf_lease_table *table, uint32_t index);

#endif
