/* The gate: the runner's share of the GPU, and the parts of it that tests get.
 *
 * The runner takes one exclusive share of one GPU, which keeps other runners of this user off it, and lends parts of
 * it to the test processes through RF_BUDGET; RF_TEST_DEVICE names the GPU. A runner that itself runs on such a part
 * (a test that runs the runner) already has its turn: it divides that part without asking for another share.
 *
 * Invariants: what is lent never exceeds the share; a part is taken back only when the process that had it is gone;
 * nothing here blocks except the probe, once, with its own deadline. The sum is
 * asserted; rf_share_reclaim refuses what would break the second; the third is about time. */
#include "runner_impl.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ASK_EVERY_NS INT64_C(100000000)
#define RECLAIM_TRIES 100
#define RECLAIM_PAUSE_NS 10000000
#define SLACK_BYTES (UINT64_C(16) << 20) /* for rounding, staging, and what a test did not declare */

static int fail_open(struct rf_test_gate *gate, const struct rf_test_settings *settings, int code) {
    fprintf(stderr, "%s: %s\n", settings->program, rf_error_text());
    rf_test_gate_close(gate);
    return code;
}

/* Finds the GPU; gate->gpu stays false if there is none. */
static int find_gpu(struct rf_test_gate *gate, const struct rf_test_settings *settings) {
    *gate = (struct rf_test_gate){.device = -1};
    if (rf_runtime_create(NULL, &gate->runtime) != RF_OK) return fail_open(gate, settings, 2);
    if (!rf_gpu_available(gate->runtime)) {
        snprintf(gate->why, sizeof gate->why, "%s", rf_gpu_reason(gate->runtime));
        return 0;
    }
    RF_PARAMS(struct rf_device_choice, choice);
    const char *wanted = getenv("RF_TEST_DEVICE");
    choice.want = wanted && *wanted ? wanted : NULL;
    choice.avoid_display = true;
    if (rf_device_choose(gate->runtime, &choice, &gate->device) != RF_OK) return fail_open(gate, settings, 2);
    gate->info.struct_size = sizeof gate->info;
    if (rf_device_info_at(gate->runtime, gate->device, &gate->info) != RF_OK) return fail_open(gate, settings, 2);
    gate->gpu = true;
    if (gate->info.display == RF_YES && !settings->quiet)
        rf_test_remark("the only GPU, %s, drives a display: GPU tests may disturb it", gate->info.name);
    return 0;
}

/* A test that wants more memory than it can ever get is refused before anything runs. */
static int check_wishes(const struct rf_test_gate *gate, const struct rf_test_settings *settings,
                        const struct rf_test_plan *plan) {
    uint64_t most = gate->share ? gate->share_bytes : gate->info.total_bytes;
    for (size_t i = 0; i < plan->count; i++) {
        const struct rf_test_job *job = &plan->jobs[i];
        if (!job->gpu || job->skip_tag || job->memory_bytes <= most) continue;
        char wish[32], have[32];
        fprintf(stderr,
                "%s: the test %s wants %s of GPU memory, more than the %s of %s: raise RF_BUDGET, or skip it\n",
                settings->program, job->name, rf_format_bytes(job->memory_bytes, wish, sizeof wish),
                rf_format_bytes(most, have, sizeof have), gate->share ? "the runner's share" : "the whole device");
        return 2;
    }
    return 0;
}

int rf_test_gate_open(struct rf_test_gate *gate, const struct rf_test_settings *settings,
                      const struct rf_test_plan *plan) {
    *gate = (struct rf_test_gate){.device = -1};
    bool wanted = false;
    for (size_t i = 0; i < plan->count && !wanted; i++) wanted = plan->jobs[i].gpu && !plan->jobs[i].skip_tag;
    if (!wanted) return 0;
    int code = find_gpu(gate, settings);
    if (code || !gate->gpu) return code;
    rf_test_gate_turn(gate, settings);
    code = check_wishes(gate, settings, plan);
    if (code) rf_test_gate_close(gate);
    return code;
}

int rf_test_gate_open_for_command(struct rf_test_gate *gate, const struct rf_test_settings *settings) {
    return find_gpu(gate, settings);
}

void rf_test_gate_close(struct rf_test_gate *gate) {
    rf_share_destroy(&gate->share);
    rf_runtime_destroy(&gate->runtime);
}

static void give_up(struct rf_test_gate *gate, const char *format, const char *detail) {
    gate->lost = true;
    snprintf(gate->why, sizeof gate->why, format, detail);
}

/* Finds out how much memory the driver takes in every process, and that it works at all, before many start. */
static void measure(struct rf_test_gate *gate) {
    struct rf_test_health health;
    struct rf_test_part part = {.bytes = gate->share_bytes};
    char budget[160];
    if (rf_share_lend(gate->share, part.bytes, part.spec, sizeof part.spec) != RF_OK) return;
    gate->lent_bytes += part.bytes;
    snprintf(budget, sizeof budget, "RF_BUDGET=%s", part.spec);
    rf_test_health_probe(gate->device, budget, NULL, 0, &health);
    rf_test_gate_reclaim(gate, &part);
    if (!health.good) {
        give_up(gate, "%s", health.why);
        return;
    }
    gate->driver_bytes = health.driver_bytes;
    /* Kept back, so that a health probe can run while the rest is lent. */
    gate->reserve_bytes = gate->driver_bytes + SLACK_BYTES;
    if (gate->reserve_bytes > gate->share_bytes / 2) gate->reserve_bytes = 0;
}

bool rf_test_gate_turn(struct rf_test_gate *gate, const struct rf_test_settings *settings) {
    if (!gate->gpu || gate->share || gate->without_share || gate->lost) return true;
    int64_t now = rf_test_now_ns();
    if (!gate->asked_ns) gate->asked_ns = now;
    if (now < gate->next_ask_ns) return false;
    gate->next_ask_ns = now + ASK_EVERY_NS;
    RF_PARAMS(struct rf_share_params, params);
    params.index = gate->device;
    const char *budget = rf_runtime_option(gate->runtime, "RF_BUDGET");
    params.exclusive = !strstr(budget ? budget : "", "part=");
    params.timeout_ns = 0;
    rf_status status = rf_share_create(gate->runtime, &params, &gate->share);
    if (status == RF_E_BUSY) {
        if (!gate->said_waiting) rf_test_remark("waiting for the GPU: %s", rf_error_text());
        gate->said_waiting = true;
        if (now - gate->asked_ns > settings->gpu_wait_ms * 1000000)
            give_up(gate, "the GPU's turn did not come: %s", rf_error_text());
        return gate->lost;
    }
    if (status != RF_OK) {
        rf_test_remark("running GPU tests without a share of the GPU, next to other programs: %s", rf_error_text());
        gate->without_share = true;
        return true;
    }
    gate->share_bytes = rf_share_bytes(gate->share);
    if (gate->share_bytes == 0)
        give_up(gate, "%s",
                "other processes of yours were promised all of the GPU's budget: end them or raise RF_BUDGET");
    else if (settings->gpu_jobs > 1)
        measure(gate);
    return true;
}

static uint64_t estimate(const struct rf_test_gate *gate, const struct rf_test_settings *settings,
                         const struct rf_test_job *job) {
    if (job->memory_bytes) return job->memory_bytes + gate->driver_bytes + SLACK_BYTES;
    if (job->usual_bytes) return job->usual_bytes + job->usual_bytes / 8 + SLACK_BYTES;
    return (gate->share_bytes - gate->reserve_bytes) / (uint64_t)settings->gpu_jobs;
}

enum rf_test_admission rf_test_gate_lend(struct rf_test_gate *gate, const struct rf_test_settings *settings,
                                         const struct rf_test_job *job, bool alone, struct rf_test_part *part) {
    *part = (struct rf_test_part){0};
    if (!gate->share) return RF_TEST_ADMITTED;
    if (job->memory_bytes > gate->share_bytes) return RF_TEST_NEVER;
    uint64_t left = gate->share_bytes - gate->reserve_bytes;
    left = left > gate->lent_bytes ? left - gate->lent_bytes : 0;
    /* Alone it may have everything, because no other test wants it. */
    bool all = alone && (settings->gpu_jobs == 1 || job->serial);
    uint64_t wanted = all ? left : estimate(gate, settings, job);
    if (alone && wanted > left) wanted = left;
    if (!alone && (wanted > left || left == 0)) return RF_TEST_LATER;
    if (left == 0 || rf_share_lend(gate->share, wanted, part->spec, sizeof part->spec) != RF_OK) {
        if (!alone) return RF_TEST_LATER;
        /* Parts that were never given back: waiting for them would take forever. */
        rf_test_remark("%s runs without a part of the GPU's share: %s", job->name,
                       left ? rf_error_text() : "what was lent did not come back");
        *part = (struct rf_test_part){0};
        return RF_TEST_ADMITTED;
    }
    part->bytes = wanted;
    gate->lent_bytes += wanted;
    rf_assert(gate->lent_bytes <= gate->share_bytes);
    return RF_TEST_ADMITTED;
}

void rf_test_gate_reclaim(struct rf_test_gate *gate, struct rf_test_part *part) {
    if (!part->bytes || !gate->share) return;
    rf_status status = RF_E_BUSY;
    for (int i = 0; i < RECLAIM_TRIES && status == RF_E_BUSY; i++) {
        if (i) nanosleep(&(struct timespec){0, RECLAIM_PAUSE_NS}, NULL);
        status = rf_share_reclaim(gate->share, part->spec);
    }
    rf_assert(part->bytes <= gate->lent_bytes);
    if (status == RF_OK)
        gate->lent_bytes -= part->bytes;
    else
        rf_test_remark("a part of the GPU's share does not come back: %s", rf_error_text());
    *part = (struct rf_test_part){0};
}

struct held {
    pid_t pid;
    uint64_t bytes;
};

static bool add_held(void *user, const struct rf_lease_info *lease) {
    struct held *held = user;
    if (!lease->mine && (held->pid == 0 || held->pid == lease->pid)) held->bytes += lease->held_bytes;
    return true;
}

uint64_t rf_test_gate_held(struct rf_test_gate *gate, pid_t pid) {
    struct held held = {.pid = pid};
    if (!gate->gpu) return 0;
    return rf_device_leases(gate->runtime, gate->device, add_held, &held) == RF_OK ? held.bytes : 0;
}
