/* Runs a plan. Each test is a process of its own, several side by side, GPU tests one after
 * another; or, with --in-process, all in this one, for a debugger.
 *
 * A verdict needs the record and the exit status to agree: a test that passed and then crashed
 * in a destructor, or leaked by a sanitizer's word, has failed. */
#include "testing_impl.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number) {
    (void)number;
    interrupted = 1;
}

static void run_isolated(const struct rf_test_settings *settings, const struct rf_test_plan *plan,
                         struct rf_test_tally *tally);
static void run_in_process(const struct rf_test_settings *settings, const struct rf_test_plan *plan,
                           struct rf_test_tally *tally);

void rf_test_run_plan(const struct rf_test_settings *settings, const struct rf_test_plan *plan,
                      struct rf_test_tally *tally) {
    rf_test_report_start(settings, plan);
    for (size_t i = 0; i < plan->count; i++) {
        const struct rf_test_job *job = &plan->jobs[i];
        if (!job->skip_tag) continue;
        char reason[128];
        snprintf(reason, sizeof reason, "tagged %s", job->skip_tag);
        rf_test_report(settings, job, &(struct rf_test_result){.verdict = RF_TEST_SKIPPED, .message = reason}, tally);
    }
    if (settings->in_process)
        run_in_process(settings, plan, tally);
    else
        run_isolated(settings, plan, tally);
}

struct slot {
    const struct rf_test_job *job; /* NULL: free */
    struct rf_test_child child;
};

static void start(struct slot *slot, const struct rf_test_settings *settings, const struct rf_test_job *job,
                  struct rf_test_tally *tally) {
    char record_fd[16], seed[32];
    snprintf(record_fd, sizeof record_fd, "%d", RF_TEST_RECORD_FD);
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)job->seed);
    char *argv[] = {(char *)(job->executable ? job->executable : "/proc/self/exe"),
                    "--run-one",
                    job->name,
                    "--record-fd",
                    record_fd,
                    "--seed",
                    seed,
                    NULL};
    int error = rf_test_child_start(&slot->child, argv, (int64_t)job->timeout_ms * 1000000);
    if (!error) {
        slot->job = job;
        return;
    }
    char message[256];
    snprintf(message, sizeof message, "could not start: %s", strerror(error));
    rf_test_report(settings, job, &(struct rf_test_result){.verdict = RF_TEST_FAILED, .message = message}, tally);
}

/* What the process's end adds to its record; empty where both agree. */
static void judge(const struct rf_test_child *child, int timeout_ms, struct rf_test_record *record, char *text,
                  size_t size) {
    text[0] = 0;
    const char *so_far = record->verdict == RF_TEST_NONE ? "" : ", after the test itself had ended";
    int code = WIFEXITED(child->wait_status) ? WEXITSTATUS(child->wait_status) : -1;
    int expected = record->verdict == RF_TEST_PASSED ? 0 : record->verdict == RF_TEST_SKIPPED ? 77 : 1;
    if (child->timed_out) {
        snprintf(text, size, "timeout: killed after %.1f s%s", timeout_ms / 1000.0, so_far);
    } else if (WIFSIGNALED(child->wait_status)) {
        int number = WTERMSIG(child->wait_status);
        const char *name = sigabbrev_np(number);
        snprintf(text, size, "crash: SIG%s (%s)%s", name ? name : "?", strsignal(number), so_far);
    } else if (record->verdict == RF_TEST_NONE) {
        snprintf(text, size, "exited with status %d before the test ended", code);
    } else if (code != expected && !(code == 1 && record->verdict == RF_TEST_FAILED)) {
        snprintf(text, size, "exited with status %d%s", code, so_far);
    }
    if (text[0]) record->verdict = RF_TEST_FAILED;
}

static void end(struct slot *slot, const struct rf_test_settings *settings, struct rf_test_tally *tally) {
    struct rf_test_child *child = &slot->child;
    struct rf_test_record record;
    char nothing[1] = "", trouble[256];
    rf_test_record_parse(child->record ? child->record : nothing, &record);
    judge(child, slot->job->timeout_ms, &record, trouble, sizeof trouble);
    if (trouble[0]) {
        size_t have = strlen(record.message), more = strlen(trouble);
        record.message = rf_test_grow(record.message, have + more + 2);
        if (have) record.message[have++] = '\n';
        memcpy(record.message + have, trouble, more + 1);
    }
    struct rf_test_result result = {.verdict = record.verdict,
                                    .message = record.message,
                                    .elapsed_ns = child->ended_ns - child->started_ns,
                                    .output = &child->output};
    rf_test_report(settings, slot->job, &result, tally);
    rf_test_record_finish(&record);
    rf_test_child_finish(child);
    slot->job = NULL;
}

/* The next job that may start now, or NULL. done[i]: started or skipped. */
static const struct rf_test_job *next_job(const struct rf_test_plan *plan, bool *done, bool gpu_busy) {
    for (size_t i = 0; i < plan->count; i++) {
        if (done[i] || (plan->jobs[i].gpu && gpu_busy)) continue;
        done[i] = true;
        return &plan->jobs[i];
    }
    return NULL;
}

static void run_isolated(const struct rf_test_settings *settings, const struct rf_test_plan *plan,
                         struct rf_test_tally *tally) {
    struct sigaction action = {.sa_handler = on_interrupt}, old_int, old_term;
    sigaction(SIGINT, &action, &old_int);
    sigaction(SIGTERM, &action, &old_term);
    size_t slot_count = (size_t)settings->jobs, busy = 0;
    struct slot *slots = rf_test_grow(NULL, slot_count * sizeof *slots);
    struct rf_test_child **children = rf_test_grow(NULL, slot_count * sizeof *children);
    bool *done = rf_test_grow(NULL, plan->count * sizeof *done);
    memset(slots, 0, slot_count * sizeof *slots);
    for (size_t i = 0; i < plan->count; i++) done[i] = plan->jobs[i].skip_tag != NULL;

    bool more = true;
    while ((more || busy) && !interrupted) {
        bool gpu_busy = false;
        for (size_t i = 0; i < slot_count; i++) gpu_busy |= slots[i].job && slots[i].job->gpu;
        for (size_t i = 0; i < slot_count && more; i++) {
            while (!slots[i].job) {
                const struct rf_test_job *job = next_job(plan, done, gpu_busy);
                if (!job) break;
                start(&slots[i], settings, job, tally);
                if (slots[i].job) {
                    gpu_busy |= job->gpu;
                    busy++;
                }
            }
        }
        size_t count = 0;
        for (size_t i = 0; i < slot_count; i++)
            if (slots[i].job) children[count++] = &slots[i].child;
        if (count) rf_test_children_serve(children, count, INT64_C(1000000000));
        for (size_t i = 0; i < slot_count; i++) {
            if (!slots[i].job || !slots[i].child.ended) continue;
            end(&slots[i], settings, tally);
            busy--;
        }
        more = false;
        for (size_t i = 0; i < plan->count; i++) more |= !done[i];
    }
    if (interrupted) {
        size_t left = 0;
        for (size_t i = 0; i < plan->count; i++) left += !done[i];
        for (size_t i = 0; i < slot_count; i++)
            if (slots[i].job) rf_test_child_finish(&slots[i].child);
        char message[128];
        snprintf(message, sizeof message, "%zu tests were running and %zu had not begun", busy, left);
        rf_test_report_trouble("interrupted", message, tally);
    }
    free(done);
    free(children);
    free(slots);
    sigaction(SIGINT, &old_int, NULL);
    sigaction(SIGTERM, &old_term, NULL);
}

static void run_in_process(const struct rf_test_settings *settings, const struct rf_test_plan *plan,
                           struct rf_test_tally *tally) {
    for (size_t i = 0; i < plan->count; i++) {
        const struct rf_test_job *job = &plan->jobs[i];
        const struct rf_test *test = rf_test_find(job->name);
        if (job->skip_tag || !test) continue;
        /* The record in a file of memory: forked children of the test write to it as well. */
        int fd = memfd_create("record", MFD_CLOEXEC);
        if (fd < 0) {
            rf_test_report_trouble(job->name, strerror(errno), tally);
            continue;
        }
        rf_test_set_seed(job->seed);
        int64_t started = rf_test_now_ns();
        rf_test_run_here(test, fd);
        int64_t elapsed = rf_test_now_ns() - started;
        off_t length = lseek(fd, 0, SEEK_END);
        char *text = rf_test_grow(NULL, (size_t)length + 1);
        ssize_t count = pread(fd, text, (size_t)length, 0);
        text[count > 0 ? count : 0] = 0;
        close(fd);
        struct rf_test_record record;
        rf_test_record_parse(text, &record);
        struct rf_test_result result = {.verdict = record.verdict, .message = record.message, .elapsed_ns = elapsed};
        rf_test_report(settings, job, &result, tally);
        rf_test_record_finish(&record);
        free(text);
    }
}
