/* Runs all tests in this process, one after another: for a debugger, and to find out how tests affect each other.
 * There are no time limits, and a crash ends the run.
 *
 * Also what the child does when a failure in company is examined: it runs some tests first, then the one in question.
 */
#include "runner_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define TURN_PAUSE_NS 50000000

/* Gives this process the environment that isolated tests get; no driver has been called so far. */
static void set_up(const struct rf_test_settings *settings, struct rf_test_gate *gate) {
    while (!rf_test_gate_turn(gate, settings) && !rf_test_interrupted)
        nanosleep(&(struct timespec){0, TURN_PAUSE_NS}, NULL);
    if (settings->check) setenv("RF_CHECK", settings->check, 1);
    if (settings->debug) setenv("RF_TEST_DEBUG", "1", 1);
    if (settings->debug) setenv("RF_LOG", "debug", 1);
    if (!gate->gpu || gate->lost) return;
    char device[16], spec[128];
    snprintf(device, sizeof device, "%d", gate->device);
    setenv("RF_TEST_DEVICE", device, 1);
    if (gate->share && rf_share_lend(gate->share, gate->share_bytes, spec, sizeof spec) == RF_OK) {
        gate->lent_bytes = gate->share_bytes;
        setenv("RF_BUDGET", spec, 1);
    }
}

static void note_company(struct rf_test_job *job, const size_t *ran, size_t count) {
    if (!count || job->company) return;
    job->in_company = true;
    job->company_count = count;
    job->company = rf_test_grow(NULL, count * sizeof *job->company);
    memcpy(job->company, ran, count * sizeof *job->company);
}

static char *read_record(int fd) {
    off_t length = lseek(fd, 0, SEEK_END);
    char *text = rf_test_grow(NULL, (size_t)(length > 0 ? length : 0) + 1);
    ssize_t count = length > 0 ? pread(fd, text, (size_t)length, 0) : 0;
    text[count > 0 ? count : 0] = 0;
    return text;
}

static void run_test(struct rf_test_job *job, uint64_t seed, int fd, struct rf_test_record *record,
                     int64_t *elapsed_ns) {
    /* The record is a file in memory, because forked children of the test write to it as well. */
    if (ftruncate(fd, 0) == 0) lseek(fd, 0, SEEK_SET);
    rf_test_set_seed(seed);
    int64_t started = rf_test_now_ns();
    rf_test_run_here(job->test, fd);
    *elapsed_ns = rf_test_now_ns() - started;
    char *text = read_record(fd);
    rf_test_record_parse(text, record);
    free(text);
}

void rf_test_run_in_process(const struct rf_test_settings *settings, struct rf_test_plan *plan,
                            struct rf_test_gate *gate, struct rf_test_tally *tally) {
    size_t *ran = rf_test_grow(NULL, plan->count * sizeof *ran), ran_count = 0;
    bool stop = false, announced = false;
    set_up(settings, gate);
    rf_test_keep_process(true);
    int fd = memfd_create("record", MFD_CLOEXEC);
    if (fd < 0) {
        rf_test_report_trouble("--in-process", strerror(errno), tally);
        stop = true;
    }
    for (long round = 0; round < settings->repeat && !stop; round++) {
        if (round && settings->shuffle) ran_count = 0;
        for (size_t i = 0; i < plan->count && !stop && !rf_test_interrupted; i++) {
            struct rf_test_job *job = &plan->jobs[i];
            if (job->skip_tag) continue;
            if (job->gpu && gate->lost) {
                if (!announced) rf_test_report_trouble("the GPU", gate->why, tally);
                announced = true;
                if (!job->message) job->message = rf_test_copy("not run: the device was lost");
                job->label = RF_TEST_NOT_RUN;
                if (job->verdict == RF_TEST_NONE) job->verdict = RF_TEST_SKIPPED;
                tally->skipped++;
                continue;
            }
            struct rf_test_record record;
            struct rf_test_result result = {.seed = settings->seed + (uint64_t)round};
            run_test(job, result.seed, fd, &record, &result.elapsed_ns);
            result.verdict = record.verdict;
            result.message = record.message;
            if (record.verdict == RF_TEST_FAILED && round == 0) note_company(job, ran, ran_count);
            if (record.peak_bytes > job->peak_bytes) job->peak_bytes = record.peak_bytes;
            if (record.lost_seen && !gate->lost) {
                gate->lost = true;
                snprintf(gate->why, sizeof gate->why,
                         "device lost in this process after %s: no further GPU test runs", job->name);
            }
            rf_test_report(settings, job, &result, tally);
            stop = record.verdict == RF_TEST_FAILED && (settings->fail_fast || settings->until_fail);
            rf_test_record_finish(&record);
            if (round == 0) ran[ran_count++] = i;
        }
    }
    if (rf_test_interrupted) rf_test_report_trouble("interrupted", "the tests that follow were not run", tally);
    if (fd >= 0) {
        if (ftruncate(fd, 0) == 0) lseek(fd, 0, SEEK_SET);
        struct rf_test_record record;
        rf_test_end_process(fd); /* tears down the suites and closes the fixture */
        char *text = read_record(fd);
        rf_test_record_parse(text, &record);
        if (record.verdict == RF_TEST_FAILED) rf_test_report_trouble("the end of the process", record.message, tally);
        rf_test_record_finish(&record);
        free(text);
        close(fd);
    }
    rf_test_keep_process(false);
    free(ran);
}

enum rf_test_verdict rf_test_run_sequence(const char *before, const struct rf_test *test, int record_fd) {
    FILE *names = before ? fopen(before, "re") : NULL;
    char name[RF_TEST_NAME_BYTES + 2];
    rf_test_keep_process(true);
    while (names && fgets(name, sizeof name, names)) {
        name[strcspn(name, "\n")] = 0;
        const struct rf_test *earlier = rf_test_find(name);
        if (earlier) rf_test_run_here(earlier, -1);
    }
    if (names) fclose(names);
    rf_test_keep_process(false); /* the process ends with this test */
    return rf_test_run_here(test, record_fd);
}
