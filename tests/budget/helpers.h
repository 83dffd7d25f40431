/* Shared by the budget's tests: temporary folders, a GPU's memory as a file that several
 * processes map, and processes that do what they are told.
 *
 * The executable is its own helper: started with --puppet or --stress it is one of the
 * processes that lease (see main_worker.c). */
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
};
struct fake_gpu *fake_gpu_map(const char *path, bool create);
rf_status fake_gpu_free(void *gpu, uint64_t *free_bytes); /* as rf_lease_params.live_free */

/* A fresh folder of this user, 0700, in path. */
void make_folder(char *path, size_t size);
void remove_folder(const char *path);
void write_file(const char *folder, const char *name, const char *text); /* makes folders in name */

struct puppet {
    pid_t pid;
    FILE *to, *from;
};
void puppet_start(struct puppet *puppet, const char *dir, const char *gpu, int leash);
/* Sends a command and gives the answer, "ok …" or "STATUS text". */
const char *puppet_ask(struct puppet *puppet, const char *format, ...) RF_PRINTF(2, 3);
void puppet_kill(struct puppet *puppet); /* SIGKILL, reaped */
void puppet_end(struct puppet *puppet);  /* asks it to leave, reaps it */

pid_t spawn_self(const char *const *arguments, int in, int out, int leash);

/* What rf_lease_survey finds. */
struct survey {
    int leases, parts, mine;
    uint64_t root_promised, held;
};
struct survey survey(const char *dir);

int worker_main(int argc, char **argv); /* main_worker.c */

#endif
