/* Items of `rocmforge selftest` that compare ops with their scalar references, as `rocmforge check` does.
 *
 * All 5,800 cases take too long on a slow machine, so they are dealt into passes by a hash of their names: each pass
 * has some of every shape, type and kind of data, and is the same on every machine. The first pass is always
 * completed; the others go on until the item's time is used up. */
#include "selftest.h"

#include <string.h>

#define SECONDS_MAX 10 /* after which no further pass begins, and a pass other than the first stops */
#define SEED 1

int selftest_pass_of(const char *op, const char *label, bool is_first_of_op) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325) + SEED;
    for (const char *c = op; *c; c++) hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    for (const char *c = label; *c; c++) hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    hash ^= hash >> 29;
    return is_first_of_op ? 0 : (int)(hash % SELFTEST_PASSES);
}

struct progress {
    struct selftest *test;
    int pass;
    int64_t deadline_ns;
    char last_op[64]; /* the op of the case before */
    bool out_of_time;
    double worst; /* the largest error of a case that passed, as a share of what is allowed */
    char first_failure[640];
};

static bool choose(void *user, const char *op, const char *label) {
    struct progress *progress = user;
    bool is_first = strcmp(progress->last_op, op) != 0;
    snprintf(progress->last_op, sizeof progress->last_op, "%s", op);
    if (selftest_pass_of(op, label, is_first) != progress->pass) return false;
    selftest_at(progress->test, "%s %s", op, label); /* the case that runs next */
    return true;
}

static bool keep(void *user, const struct rf_check_result *result) {
    struct progress *progress = user;
    if (result->passed)
        progress->worst = result->error > progress->worst ? result->error : progress->worst;
    else if (result->status != RF_E_UNSUPPORTED && !progress->first_failure[0])
        snprintf(progress->first_failure, sizeof progress->first_failure, "%s %s: %s%serror %.3g of what is allowed",
                 result->op, result->label, result->why, result->why[0] ? "; " : "", result->error);
    progress->out_of_time = selftest_now_ns() > progress->deadline_ns;
    return !progress->out_of_time || progress->pass == 0;
}

/* Runs one pass of each op in the list. */
static rf_status run_pass(struct progress *progress, const char *ops, struct rf_check_counts *counts) {
    struct selftest *test = progress->test;
    RF_PARAMS(struct rf_check_params, params);
    params.device = test->device;
    params.runtime = test->runtime;
    params.seed = SEED;
    params.choose = choose;
    params.visit = keep;
    params.user = progress;
    progress->last_op[0] = 0;
    for (const char *at = ops; *at;) {
        struct rf_check_counts some;
        char op[64];
        size_t length = strcspn(at, " ");
        snprintf(op, sizeof op, "%.*s", (int)length, at);
        params.op = op;
        rf_status status = rf_check_run(&params, &some);
        counts->passed += some.passed;
        counts->failed += some.failed;
        counts->skipped += some.skipped;
        if (status || (progress->out_of_time && progress->pass > 0)) return status;
        at += length;
        at += strspn(at, " ");
    }
    return RF_OK;
}

enum selftest_mark selftest_ops(struct selftest *test, const char *ops) {
    struct progress progress = {.test = test, .deadline_ns = selftest_now_ns() + SECONDS_MAX * INT64_C(1000000000)};
    struct rf_check_counts counts = {0};
    int passes = test->quick ? 1 : SELFTEST_PASSES;
    rf_status status = RF_OK;
    for (; progress.pass < passes && !status && !progress.out_of_time; progress.pass++)
        status = run_pass(&progress, ops, &counts);
    if (progress.first_failure[0])
        return selftest_say(test, SELFTEST_FAILED, "%zu of %zu cases failed; the first: %s", counts.failed,
                            counts.passed + counts.failed, progress.first_failure);
    if (status) return selftest_fail(test, status, "after %zu cases", counts.passed);
    return selftest_say(test, SELFTEST_OK, "%zu cases%s, largest error %.2g of what is allowed", counts.passed,
                        test->quick            ? ""
                        : progress.out_of_time ? ", as many as the time allows"
                                               : ", all there are",
                        progress.worst);
}
