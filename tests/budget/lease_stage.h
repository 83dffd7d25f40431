/* A stage for tests of leases: a folder of its own, a GPU that the test makes up, and other processes that act on
 * demand (helpers.h). */
#ifndef RF_TEST_LEASE_STAGE_H
#define RF_TEST_LEASE_STAGE_H

#include "helpers.h"
#include "gpu/lease_impl.h"

#include <fcntl.h>
#include <unistd.h>

/* A folder for the leases, a GPU and a leash. */
struct stage {
    char dir[64], gpu_path[80], table[160];
    struct fake_gpu *gpu;
    int leash[2];
};

static inline void stage_open(struct stage *stage) {
    make_folder(stage->dir, sizeof stage->dir);
    snprintf(stage->gpu_path, sizeof stage->gpu_path, "%s/gpu", stage->dir);
    snprintf(stage->table, sizeof stage->table, "%s/gpu-%s.v1", stage->dir, TEST_UUID);
    stage->gpu = fake_gpu_map(stage->gpu_path, true);
    RF_ASSERT(stage->gpu != NULL);
    atomic_fetch_add(&stage->gpu->users, 1); /* index 0 is the test's own */
    RF_ASSERT(pipe2(stage->leash, O_CLOEXEC) == 0);
}

static inline void stage_close(struct stage *stage) {
    RF_ASSERT_INT(survey(stage->dir).leases, 0);
    close(stage->leash[0]);
    close(stage->leash[1]);
    remove_folder(stage->dir);
}

static inline void start(struct stage *stage, struct puppet *puppet) {
    puppet_start(puppet, stage->dir, stage->gpu_path, stage->leash[0]);
}

static inline rf_status try_open(struct stage *stage, const char *text, struct rf_lease **lease,
                                 struct rf_lease_terms *terms) {
    struct rf_lease_params params = {.dir = stage->dir,
                                     .uuid = TEST_UUID,
                                     .live_free = fake_gpu_free,
                                     .user = stage->gpu,
                                     .timeout_ns = PATIENCE_NS,
                                     .total_bytes = GPU_TOTAL};
    RF_ASSERT_OK(rf_budget_parse(text, &params.spec));
    return rf_lease_open(&params, lease, terms);
}

#endif
