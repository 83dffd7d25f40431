/* Shared by the budget's tests: temporary folders, a GPU's memory as a file that several
 * processes map, and processes that do what they are told.
 *
 * The executable is its own helper: started with --puppet or --stress it is one of the
 * processes that lease (see main_worker.c), with --observe the one that watches them (main_observer.c). */
#ifndef RF_TESTS_BUDGET_HELPERS_H
#define RF_TESTS_BUDGET_HELPERS_H

#include "gpu/budget.h"
#include <rocmforge/test.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#define TEST_UUID "GPU-00112233-4455-6677-8899-aabbccddeeff"
#define GPU_TOTAL UINT64_C(1000000)
#define GPU_USERS 4096
/* Longer than any load may take: the harness's limit decides, not this. */
#define PATIENCE_NS RF_MS(100000)
#define LEASH_FD 3 /* what lingers ends when this reads end-of-file */

/* Memory of a GPU that has no driver. Each user adds to used before it says so to others and
 * takes away after; see rf_lease_set_held. */
struct fake_gpu {
    _Atomic uint64_t total;
    _Atomic uint64_t desktop;
    _Atomic uint32_t users; /* indices given out */
    _Atomic int32_t stop;
    _Atomic int32_t fault; /* a worker saw something wrong: the line where */
    _Atomic int32_t pid[GPU_USERS];
    _Atomic uint64_t used[GPU_USERS];
    _Atomic uint64_t opened, lent, attached, refused_busy;
    _Atomic int32_t damaging; /* lease files are being damaged: a part may look different from what was lent */
    /* of the observer, main_observer.c */
    _Atomic int32_t observer_stop, observer_fault; /* fault: the line */
    _Atomic uint64_t observer_looks, observer_bytes, most_promised, most_used;
};
struct fake_gpu *fake_gpu_map(const char *path, bool create);
rf_status fake_gpu_free(void *gpu, uint64_t *free_bytes); /* as rf_lease_params.live_free */

/* A fresh folder of this user, 0700, in path. */
void make_folder(char *path, size_t size);
void remove_folder(const char *path);
void write_file(const char *folder, const char *name, const char *text); /* makes folders in name */

/* Says where leases are. where: a folder, for TEST_UUID, or "@ROOT" for all the usual places below ROOT, for a GPU of
 * ROOT's name: the processes of other tests do not meet there. */
void lease_where(const char *where, struct rf_lease_params *params);

struct puppet {
    pid_t pid;
    FILE *to, *from;
};
void puppet_start(struct puppet *puppet, const char *where, const char *gpu, int leash);
/* Sends a command and gives the answer, "ok …" or "STATUS text". */
const char *puppet_ask(struct puppet *puppet, const char *format, ...) RF_PRINTF(2, 3);
void puppet_tell(struct puppet *puppet, const char *command); /* without waiting for the answer */
const char *puppet_answer(struct puppet *puppet);
uint64_t number(const char *answer, const char *name); /* of "ok … NAME=NUMBER …" */
void puppet_kill(struct puppet *puppet);               /* SIGKILL, reaped */
void puppet_end(struct puppet *puppet);                /* asks it to leave, reaps it */

pid_t spawn_self(const char *const *arguments, int in, int out, int leash);

/* What rf_lease_survey finds. */
struct survey {
    int leases, parts, mine;
    uint64_t root_promised, held;
};
struct survey survey(const char *where);

int worker_main(int argc, char **argv);                                /* main_worker.c */
int observer_main(struct fake_gpu *gpu, uint64_t limit, char **files); /* main_observer.c */

#endif
