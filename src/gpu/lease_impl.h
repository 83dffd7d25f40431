/* Leases: what lease.c, lease_places.c and lease_table.c share.
 *
 * A lease file has a table of slots. There is one file per GPU and place, and a lease is written into the files of
 * all places that this user can use (lease_places.c says which, and why). The table of a GPU that is one process's
 * own (a simulated one) is a memfd of that process; a process that was lent a part of such a lease opens it through
 * /proc/PID/fd, which the part's id names, and it goes with the last of them. lease_table.c knows one file, its lock
 * and which processes are alive; lease_places.c knows where the files are and locks them together; lease.c knows what
 * a promise is.
 *
 * Invariants
 *   1. Identity, links and promises in a slot change only under the table's lock; held_bytes
 *      is stored by the slot's owner at any time and read by anybody.
 *   2. A slot counts only while its owner lives; see rf_lease_table_refresh. Its state is
 *      written last when it is claimed and first when it is given up, so that a process
 *      killed in between leaves a free slot.
 *   3. Nothing in the file is trusted: a slot is free unless its owner can be shown to be alive, figures are bounded
 *      by the card's memory, and sums saturate. Random bytes count as an empty table.
 *   4. The file only grows, and is never opened twice by one process: POSIX record locks
 *      vanish when any descriptor of the file is closed.
 *   5. A lease has the same generation in every file, so that a reader of several files counts it once. Each file
 *      alone is complete for a process that can see only that one, and the layout is the one that versions before
 *      lease_places.c wrote into a single file: they and this version count each other.
 * rf_lease_table_is_valid checks the state after a refresh (2 and 3) and the files this process has open (4); the
 * lock of 1 is asserted where slots are claimed and published. Whether other processes keep 1 cannot be checked from
 * here: the storms (tests/budget/test_lease_storm.c) check it, by an observer that reads the files itself. 5 is
 * tested by lease_places.* (tests/budget/test_lease_places.c). */
#ifndef RF_GPU_LEASE_IMPL_H
#define RF_GPU_LEASE_IMPL_H

#include "gpu/budget.h"

#include <sys/types.h>

#define RF_LEASE_LAYOUT 1
#define RF_LEASE_SLOTS 1024
#define RF_LEASE_PLACES_MAX 16 /* tables that one lease is written into, those of vanished files included */
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

struct rf_lease_registry; /* the tables that this process has open */
/* The functions of a registry. NULL: no memory. */
struct rf_lease_registry *rf_lease_registry_get(void);
/* True if the process that this one was forked from made it; its tables must not be touched then. Makes no system
 * call. */
bool rf_lease_registry_inherited(const struct rf_lease_registry *registry);
int rf_lease_registry_pid(const struct rf_lease_registry *registry); /* of the process that made it */

/* ---- lease_table.c ---- */

struct rf_lease_table { /* used by lease_table.c only; here for the tests of rf_lease_table_is_valid */
    struct rf_lease_table *next;
    struct rf_lease_registry *registry;
    int references; /* under the registry's mutex */
    dev_t device;
    ino_t inode;
    char *own_uuid; /* owned; a memfd: the GPU that it is for. NULL: a file in a folder */
    int fd;
    unsigned char *map;
    pthread_mutex_t mutex;      /* recursive; this process's side of the table lock */
    int depth;                  /* under mutex */
    bool turn;                  /* under mutex: this process has the turn */
    bool taken[RF_LEASE_SLOTS]; /* under the table's lock: slots that this process claimed and did not give up */
    char path[];
};

/* Opens the file of this name in an open folder, or finds it among the tables that this process has open. create
 * false: RF_E_NOT_FOUND where there is none yet. path: for messages and rf_lease_table_in_place. Each open needs a
 * release. */
rf_status rf_lease_table_open(int folder, const char *name, const char *path, bool create,
                              struct rf_lease_table **out);
/* The same for a file that this or another process has open: link is its /proc/PID/fd/N. */
rf_status rf_lease_table_open_link(const char *link, struct rf_lease_table **out);
/* The table of a GPU that is this process's own: the memfd that this process made or was lent a part of. */
rf_status rf_lease_table_acquire_own(const char *uuid, bool create, struct rf_lease_table **out);
/* The table in the memfd that another process (or this one) has open as this descriptor. */
rf_status rf_lease_table_acquire_lent(int pid, int fd, const char *uuid, struct rf_lease_table **out);
/* This process's descriptor of the table, for others to find it by; -1 where it is a file in a folder. */
int rf_lease_table_own_fd(const struct rf_lease_table *table);
void rf_lease_table_release(struct rf_lease_table *table);
const char *rf_lease_table_path(const struct rf_lease_table *table);
/* False if the file was deleted or another file is at its path. */
bool rf_lease_table_in_place(const struct rf_lease_table *table);
/* Makes the file as long as its map and gives it its blocks. RF_E_IO: the file system is full. */
rf_status rf_lease_table_make_room(const struct rf_lease_table *table);

/* Excludes other processes and threads; one thread may nest it. */
rf_status rf_lease_table_lock(struct rf_lease_table *table, int64_t deadline_ns);
void rf_lease_table_unlock(struct rf_lease_table *table);

/* Takes the GPU's turn: one process of this user has it at a time, for as long as it likes, and the kernel ends it
 * with the process. Does not wait. holder: the pid that has the turn (0: not visible from here). */
bool rf_lease_table_take_turn(struct rf_lease_table *table, int *holder);
void rf_lease_table_end_turn(struct rf_lease_table *table);

/* The functions below need the table's lock. */

/* Makes room, and mends the file's header. */
rf_status rf_lease_table_repair(struct rf_lease_table *table);
/* Repairs the file if necessary, gives up dead owners' slots and says which slots are alive. */
rf_status rf_lease_table_refresh(struct rf_lease_table *table, bool live[RF_LEASE_SLOTS]);
/* Exists in builds with checks at level 2 only. Says whether the table is as a refresh leaves it; *why: what is not.
 */
bool rf_lease_table_is_valid(struct rf_lease_table *table, const char **why);
struct rf_lease_slot *rf_lease_table_slot(const struct rf_lease_table *table, uint32_t index);
bool rf_lease_slot_is_mine(const struct rf_lease_table *table, const struct rf_lease_slot *slot);
/* The owner's pid as seen from here; 0: its pid namespace is not visible from here. */
int rf_lease_slot_pid(const struct rf_lease_table *table, uint32_t index);
/* Takes a slot that the last refresh left free, and zeroes it except for owner and generation; it counts from
 * rf_lease_slot_publish on. */
rf_status rf_lease_slot_claim(struct rf_lease_table *table, uint64_t generation, uint32_t *index);
/* Takes a slot again that this process claimed and whose contents were damaged. False: this process lost the slot's
 * lock, and the slot belongs to another process now. */
bool rf_lease_slot_reclaim(struct rf_lease_table *table, uint32_t index, uint64_t generation);
void rf_lease_slot_publish(struct rf_lease_table *table, uint32_t index);
void rf_lease_slot_give_up(struct rf_lease_table *table, uint32_t index, uint64_t generation);
/* The same for a file that could not be repaired, so that its map must not be touched. */
void rf_lease_slot_abandon(struct rf_lease_table *table, uint32_t index);
uint64_t rf_lease_draw(void); /* a random generation, never 0 */

/* ---- lease_places.c ---- */

/* The tables that the leases of one GPU are in. A table keeps its number until it is dropped; table[number] is NULL
 * where there is none. Changed under the lock only. */
struct rf_lease_places {
    struct rf_lease_registry *registry;
    struct rf_lease_table *table[RF_LEASE_PLACES_MAX];
    bool away[RF_LEASE_PLACES_MAX];   /* its file is no longer where it was */
    bool locked[RF_LEASE_PLACES_MAX]; /* by the lock that is held */
    pthread_mutex_t mutex;            /* recursive; held from lock to unlock */
    int depth;                        /* under mutex */
    bool fixed;                       /* one memfd, in no folder */
    bool create;
    bool searched;    /* the thorough search was done with the tables locked */
    char *dir, *root; /* owned; as in struct rf_lease_params */
    char name[160];   /* of the file in every folder */
};
/* Finds the tables of a GPU; create: makes the missing ones. Fails only if there is no table at all: RF_E_NOT_FOUND
 * without create, else what was wrong with the first place. part_id: NULL, or the id of a part that is to be found.
 */
rf_status rf_lease_places_open(const struct rf_lease_params *params, bool create, const char *part_id,
                               struct rf_lease_places **out);
void rf_lease_places_close(struct rf_lease_places **places);
/* Locks all tables, and looks again at all places when they are locked: see lease_places.c. One thread may nest it.
 */
rf_status rf_lease_places_lock(struct rf_lease_places *places, int64_t deadline_ns);
void rf_lease_places_unlock(struct rf_lease_places *places);
void rf_lease_places_drop(struct rf_lease_places *places, int number); /* under the lock */
/* The turn, in all tables at once. */
bool rf_lease_places_take_turn(struct rf_lease_places *places, int *holder);
void rf_lease_places_end_turn(struct rf_lease_places *places);
/* The status for an errno of a place: RF_E_IO if the place cannot be used, RF_E_BUSY or RF_E_NO_MEMORY if this
 * process ran out of something and the place may be as good as ever. */
rf_status rf_lease_place_status(int error);
/* One table in one folder; for tests. */
rf_status rf_lease_table_acquire(const char *dir, const char *uuid, bool create, struct rf_lease_table **out);

#endif
