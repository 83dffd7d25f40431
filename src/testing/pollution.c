/* Finds out why a test failed in company: while others ran beside it, or before it in the same process (its company).
 *
 * Such a test is run alone a few times:
 *   it always fails alone         it fails
 *   it sometimes fails alone      it is flaky, n of m
 *   it never fails alone          it is run with its company again. If it fails again, it fails only when shared, and
 *                                 the company is reduced to the smallest that still makes it fail; if it does not, it
 *                                 is flaky
 * In one process the company is the sequence of tests before it: first the shortest prefix that still shows the
 * failure is found by bisection, then single tests are left out of it.
 *
 * Bounded: the number of tests explained, the runs for each, and the time. */
#include "runner_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPLAINED_MAX 20
#define ALONE_RUNS 5
#define RUNS_MAX 120                      /* runs with company, for one test */
#define NS_MAX INT64_C(300000000000)      /* time for all tests */
#define ALONE_NS_MAX INT64_C(60000000000) /* time for runs alone, for one test */
#define BESIDE_TRIES 3                    /* repeated, because what happens beside it depends on chance */
#define NAMED 8

struct inquiry {
    const struct rf_test_settings *settings;
    struct rf_test_plan *plan;
    struct rf_test_gate *gate;
    struct rf_test_job *job;
    int64_t until_ns;
    int runs; /* runs with company so far */
};

static bool over(const struct inquiry *inquiry) {
    return rf_test_interrupted || rf_test_now_ns() > inquiry->until_ns || (inquiry->job->gpu && inquiry->gate->lost);
}

/* ---- one run ---- */

/* Starts a job; false if it could not. */
static bool begin(const struct inquiry *inquiry, const struct rf_test_job *job, const char *before, bool alone,
                  struct rf_test_part *part, struct rf_test_child *child) {
    *part = (struct rf_test_part){0};
    /* If this process ran the tests itself, it has lent itself the share for good. */
    bool own = inquiry->settings->in_process && !inquiry->plan->executable_count;
    if (job->gpu && inquiry->gate->gpu && !own &&
        rf_test_gate_lend(inquiry->gate, inquiry->settings, job, alone, part) != RF_TEST_ADMITTED)
        return false;
    struct rf_test_command command;
    rf_test_command_make(&command, inquiry->settings, inquiry->gate, job, inquiry->job->failed_seed, part, before,
                         NULL);
    int64_t timeout_ns = (int64_t)job->timeout_ms * 1000000;
    if (before) timeout_ns *= 4;
    struct rf_test_spawn spawn = {.argv = command.argv, .environment = command.environment, .timeout_ns = timeout_ns};
    if (rf_test_child_start(child, &spawn) == 0) return true;
    rf_test_gate_reclaim(inquiry->gate, part);
    return false;
}

static void conclude(const struct inquiry *inquiry, struct rf_test_child *child, struct rf_test_part *part,
                     enum rf_test_verdict *verdict) {
    struct rf_test_attempt attempt;
    uint64_t peak = 0;
    if (verdict) {
        bool has_verdict = child->record && strstr(child->record, "verdict\t");
        rf_test_judge(child, inquiry->job->timeout_ms, &attempt, &peak);
        *verdict = attempt.verdict;
        /* If an earlier test of the sequence ends the process, that says nothing about this one. */
        if (!has_verdict && attempt.verdict == RF_TEST_FAILED && !child->record) *verdict = RF_TEST_NONE;
        free(attempt.message);
    }
    rf_test_child_finish(child);
    rf_test_gate_reclaim(inquiry->gate, part);
}

static enum rf_test_verdict run_alone(const struct inquiry *inquiry, const char *before) {
    struct rf_test_part part;
    struct rf_test_child child, *children[] = {&child};
    enum rf_test_verdict verdict = RF_TEST_NONE;
    if (!begin(inquiry, inquiry->job, before, true, &part, &child)) return RF_TEST_NONE;
    while (!child.ended && !rf_test_interrupted) rf_test_children_serve(children, 1, INT64_C(200000000));
    conclude(inquiry, &child, &part, child.ended ? &verdict : NULL);
    /* Alone, a crash without a record is still its own. */
    if (!before && verdict == RF_TEST_NONE && !rf_test_interrupted) verdict = RF_TEST_FAILED;
    return verdict;
}

/* ---- company ---- */

/* Runs the job after these, in one process. */
static bool fails_after(struct inquiry *inquiry, const size_t *company, size_t count) {
    if (over(inquiry) || inquiry->runs >= RUNS_MAX) return false;
    inquiry->runs++;
    int fd = memfd_create("before", 0);
    FILE *names = fd >= 0 ? fdopen(dup(fd), "w") : NULL;
    if (!names) {
        if (fd >= 0) close(fd);
        return false;
    }
    for (size_t i = 0; i < count; i++) fprintf(names, "%s\n", inquiry->plan->jobs[company[i]].name);
    fclose(names);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), fd);
    enum rf_test_verdict verdict = run_alone(inquiry, path);
    close(fd);
    return verdict == RF_TEST_FAILED;
}

/* The job beside these, each a process; started first, so that it meets them. */
static bool fails_beside_once(struct inquiry *inquiry, const size_t *company, size_t count) {
    if (over(inquiry) || inquiry->runs >= RUNS_MAX) return false;
    inquiry->runs++;
    struct rf_test_child *children = rf_test_grow(NULL, (count + 1) * sizeof *children);
    struct rf_test_child **list = rf_test_grow(NULL, (count + 1) * sizeof *list);
    struct rf_test_part *parts = rf_test_grow(NULL, (count + 1) * sizeof *parts);
    size_t started = 0;
    for (size_t i = 0; i < count; i++)
        started += begin(inquiry, &inquiry->plan->jobs[company[i]], NULL, false, &parts[started], &children[started]);
    enum rf_test_verdict verdict = RF_TEST_NONE;
    if (begin(inquiry, inquiry->job, NULL, started == 0, &parts[started], &children[started])) {
        for (size_t i = 0; i <= started; i++) list[i] = &children[i];
        while (!children[started].ended && !rf_test_interrupted)
            rf_test_children_serve(list, started + 1, INT64_C(200000000));
        conclude(inquiry, &children[started], &parts[started], children[started].ended ? &verdict : NULL);
    }
    for (size_t i = 0; i < started; i++) conclude(inquiry, &children[i], &parts[i], NULL);
    free(parts);
    free(list);
    free(children);
    return verdict == RF_TEST_FAILED;
}

static bool fails_with(struct inquiry *inquiry, const size_t *company, size_t count) {
    if (inquiry->settings->in_process) return fails_after(inquiry, company, count);
    for (int i = 0; i < BESIDE_TRIES; i++)
        if (fails_beside_once(inquiry, company, count)) return true;
    return false;
}

/* The shortest prefix that still fails, assuming that a longer prefix fails too. */
static size_t shortest_prefix(struct inquiry *inquiry, const size_t *company, size_t count) {
    size_t passes = 0, fails = count;
    while (passes + 1 < fails && !over(inquiry)) {
        size_t middle = (passes + fails) / 2;
        if (fails_with(inquiry, company, middle))
            fails = middle;
        else
            passes = middle;
    }
    return fails;
}

/* Leaves out pieces, large ones first, as long as the job still fails. */
static size_t leave_out(struct inquiry *inquiry, size_t *company, size_t count) {
    size_t *rest = rf_test_grow(NULL, (count + 1) * sizeof *rest);
    /* Most often the last one alone is the cause. */
    if (count > 1 && inquiry->settings->in_process && fails_with(inquiry, company + count - 1, 1)) {
        company[0] = company[count - 1];
        count = 1;
    }
    for (size_t piece = count / 2; piece >= 1 && count > 1; piece /= 2) {
        for (size_t at = 0; at < count && count > 1;) {
            size_t end = at + piece < count ? at + piece : count, kept = count - (end - at);
            memcpy(rest, company, at * sizeof *rest);
            memcpy(rest + at, company + end, (count - end) * sizeof *rest);
            if (kept && fails_with(inquiry, rest, kept)) {
                memcpy(company, rest, kept * sizeof *rest);
                count = kept;
            } else {
                at = end;
            }
        }
    }
    free(rest);
    return count;
}

static void name_company(const struct inquiry *inquiry, const size_t *company, size_t count, char *text,
                         size_t size) {
    size_t used = 0;
    text[0] = 0;
    for (size_t i = 0; i < count && i < NAMED && used < size; i++)
        used +=
            (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", inquiry->plan->jobs[company[i]].name);
    if (count > NAMED && used < size) snprintf(text + used, size - used, " and %zu more", count - NAMED);
}

/* ---- the verdict ---- */

static void label(struct rf_test_job *job, enum rf_test_label what, const char *text) {
    job->label = what;
    free(job->verdict_text);
    job->verdict_text = rf_test_copy(text);
}

static void explain_one(struct inquiry *inquiry) {
    struct rf_test_job *job = inquiry->job;
    const char *where = inquiry->settings->in_process ? "after" : "beside";
    unsigned alone = 0, failed_alone = 0;
    char text[3000], names[2400];
    int64_t until = rf_test_now_ns() + ALONE_NS_MAX;
    while (alone < ALONE_RUNS && !over(inquiry) && (alone < 2 || rf_test_now_ns() < until)) {
        enum rf_test_verdict verdict = run_alone(inquiry, NULL);
        if (rf_test_interrupted || verdict == RF_TEST_NONE || verdict == RF_TEST_SKIPPED) break;
        alone++;
        failed_alone += verdict == RF_TEST_FAILED;
        if (alone == 2 && failed_alone == 2) break; /* no rerun is needed */
    }
    if (alone == 0) return;
    if (failed_alone == alone) {
        snprintf(text, sizeof text, "fails (alone, too: %u of %u)", failed_alone, alone);
        label(job, RF_TEST_FAILS, text);
        return;
    }
    unsigned long failures = job->failures + failed_alone, runs = job->failures + job->passes + alone;
    if (failed_alone) {
        snprintf(text, sizeof text, "flaky (%lu of %lu runs failed, %u of %u alone)", failures, runs, failed_alone,
                 alone);
        label(job, RF_TEST_FLAKY, text);
        return;
    }
    size_t count = job->company_count;
    size_t *company = rf_test_grow(NULL, (count + 1) * sizeof *company);
    memcpy(company, job->company, count * sizeof *company);
    if (!fails_with(inquiry, company, count)) {
        snprintf(text, sizeof text, "flaky (%lu of %lu runs failed; did not fail again alone, nor %s the same tests)",
                 failures, runs, where);
        label(job, RF_TEST_FLAKY, text);
    } else {
        if (inquiry->settings->in_process) count = shortest_prefix(inquiry, company, count);
        count = leave_out(inquiry, company, count);
        name_company(inquiry, company, count, names, sizeof names);
        snprintf(text, sizeof text, "fails only when shared: passes alone (%u of %u), fails %s %s%s", alone, alone,
                 where, names, inquiry->runs >= RUNS_MAX || over(inquiry) ? " (fewer may be enough)" : "");
        label(job, RF_TEST_FAILS_SHARED, text);
    }
    free(company);
}

void rf_test_explain(const struct rf_test_settings *settings, struct rf_test_plan *plan, struct rf_test_gate *gate) {
    int64_t until = rf_test_now_ns() + NS_MAX;
    size_t explained = 0, left = 0;
    for (size_t i = 0; i < plan->count && !rf_test_interrupted; i++) {
        struct rf_test_job *job = &plan->jobs[i];
        if (!job->failures) continue;
        if (job->in_company && !settings->no_rerun) {
            if (explained == EXPLAINED_MAX || rf_test_now_ns() > until) {
                left++;
                continue;
            }
            explained++;
            struct inquiry inquiry = {
                .settings = settings, .plan = plan, .gate = gate, .job = job, .until_ns = until};
            explain_one(&inquiry);
        }
        if (!job->verdict_text && job->passes) {
            char text[96];
            snprintf(text, sizeof text, "flaky (%lu of %lu runs failed)", job->failures, job->failures + job->passes);
            label(job, RF_TEST_FLAKY, text);
        }
    }
    if (left) rf_test_remark("%zu more tests that failed in company were not rerun alone", left);
}
