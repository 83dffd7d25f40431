/* Runs all tests of an executable in one child process: as test suites without isolation do, except that the runner
 * survives a crash.
 *
 * The child gets the order and writes to the record which test begins; the runner enforces the deadline of each test.
 * When the process dies, the test that ran has failed, and the rest continues in a new process. The company of a test
 * that fails is what ran before it in the same process. */
#include "runner_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WAIT_NS INT64_C(500000000)
#define END_TIMEOUT_NS INT64_C(60000000000) /* for the tear-downs of suites and closing the fixture */
#define TURN_PAUSE_NS 50000000
#define QUEUED_MAX ((size_t)200000) /* most tests for one process */

struct entry {
    size_t number; /* of the job */
    long round;
};

struct one_child {
    const struct rf_test_settings *settings;
    struct rf_test_plan *plan;
    struct rf_test_gate *gate;
    struct rf_test_tally *tally;
    struct entry *queue; /* the tests to run, in order */
    size_t queue_count, next;
    size_t begun_at;      /* index in queue of the first test of this process */
    bool running, at_end; /* a test is running; or the clean-up after the last one */
    bool verdict_seen, stop, lost;
    int64_t started_ns;
    char *record; /* of the running test; owned */
    size_t record_length;
    struct rf_test_child child;
    struct rf_test_part part;
    struct rf_test_stream stream;
};

/* ---- in the child ---- */

int rf_test_run_list(const char *path, int record_fd) {
    FILE *list = fopen(path, "re");
    if (!list) return 2;
    char line[RF_TEST_NAME_BYTES + 32];
    rf_test_keep_process(true);
    while (fgets(line, sizeof line, list)) {
        char *tab = strchr(line, '\t');
        if (!tab) continue;
        *tab = 0;
        const struct rf_test *test = rf_test_find(line);
        if (!test) continue;
        rf_test_record_write(record_fd, "begin", "%s", line);
        rf_test_set_seed(strtoull(tab + 1, NULL, 10));
        rf_test_run_here(test, record_fd);
    }
    fclose(list);
    rf_test_record_write(record_fd, "begin", "%s", "");
    return rf_test_end_process(record_fd) == RF_TEST_FAILED ? 1 : 0;
}

/* ---- in the runner: the result of one test ---- */

static struct rf_test_job *current_job(const struct one_child *t) {
    return &t->plan->jobs[t->queue[t->next].number];
}

static void keep_line(struct one_child *t, const char *line, size_t length) {
    t->record = rf_test_grow(t->record, t->record_length + length + 1);
    memcpy(t->record + t->record_length, line, length);
    t->record_length += length;
    t->record[t->record_length] = 0;
}

/* The running test is over: by its verdict or, if how is not NULL, because its process ended. */
static void end_test(struct one_child *t, const char *how) {
    struct rf_test_job *job = current_job(t);
    struct rf_test_record record;
    char nothing[1] = "";
    rf_test_record_parse(t->record ? t->record : nothing, &record);
    if (how) {
        size_t have = strlen(record.message);
        record.message = rf_test_grow(record.message, have + strlen(how) + 2);
        sprintf(record.message + have, "%s%s", have ? "\n" : "", how);
        record.verdict = RF_TEST_FAILED;
    }
    bool failed = record.verdict == RF_TEST_FAILED || record.verdict == RF_TEST_NONE;
    size_t before = t->next - t->begun_at;
    if (failed && !job->failures && before && !job->company) {
        job->in_company = true;
        job->company_count = before;
        job->company = rf_test_grow(NULL, before * sizeof *job->company);
        for (size_t i = 0; i < before; i++) job->company[i] = t->queue[t->begun_at + i].number;
    }
    if (record.peak_bytes > job->peak_bytes) job->peak_bytes = record.peak_bytes;
    t->lost |= record.lost_seen;
    if (t->stream.length) rf_test_stream_end(&t->stream);
    rf_test_report(t->settings, job,
                   &(struct rf_test_result){.verdict = record.verdict,
                                            .message = record.message,
                                            .elapsed_ns = rf_test_now_ns() - t->started_ns,
                                            .seed = t->settings->seed + (uint64_t)t->queue[t->next].round,
                                            .output = &t->child.output},
                   t->tally);
    rf_test_record_finish(&record);
    t->stop |= failed && (t->settings->fail_fast || t->settings->until_fail);
    t->running = false;
    t->record_length = 0;
    t->next++;
}

static void clear_output(struct one_child *t) {
    free(t->child.output.head);
    free(t->child.output.tail);
    t->child.output = (struct rf_test_capture){0};
}

static void take_line(struct one_child *t, char *line, size_t length) {
    if (strncmp(line, "begin\t", 6) == 0) {
        t->at_end = line[6] == '\n';
        t->running = !t->at_end;
        t->record_length = 0;
        t->started_ns = rf_test_now_ns();
        /* The runner's own list counts, not the name in the record. */
        if (t->running && t->next >= t->queue_count) t->running = false;
        int64_t limit_ns = t->running ? (int64_t)current_job(t)->timeout_ms * 1000000 : END_TIMEOUT_NS;
        t->child.deadline_ns = t->started_ns + limit_ns;
        clear_output(t);
        return;
    }
    keep_line(t, line, length);
    if (strncmp(line, "verdict\t", 8) == 0 && t->running) end_test(t, NULL);
}

/* Takes the complete lines out of what the child has written. */
static void take_record(struct one_child *t) {
    struct rf_test_child *child = &t->child;
    if (!child->record) return;
    char *line = child->record, *end;
    while (!t->stop && !t->lost &&
           (end = memchr(line, '\n', child->record_length - (size_t)(line - child->record)))) {
        take_line(t, line, (size_t)(end - line) + 1);
        line = end + 1;
    }
    child->record_length -= (size_t)(line - child->record);
    memmove(child->record, line, child->record_length);
    child->record[child->record_length] = 0;
}

/* ---- one process ---- */

static void stream_output(void *user, const char *data, size_t length) {
    rf_test_stream_add(user, data, length);
}

static int open_list(const struct one_child *t) {
    int fd = memfd_create("list", 0);
    FILE *file = fd >= 0 ? fdopen(dup(fd), "w") : NULL;
    for (size_t i = t->next; file && i < t->queue_count; i++)
        fprintf(file, "%s\t%llu\n", t->plan->jobs[t->queue[i].number].name,
                (unsigned long long)(t->settings->seed + (uint64_t)t->queue[i].round));
    if (file && fclose(file) == 0) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

static void how_it_ended(const struct one_child *t, char *text, size_t size) {
    const struct rf_test_child *child = &t->child;
    if (child->timed_out) {
        snprintf(text, size, "timeout: killed after %.1f s%s", current_job(t)->timeout_ms / 1000.0,
                 child->killed ? ", it did not end when asked" : "");
    } else if (WIFSIGNALED(child->wait_status)) {
        int number = WTERMSIG(child->wait_status);
        const char *name = sigabbrev_np(number);
        snprintf(text, size, "crash: SIG%s (%s)", name ? name : "?", strsignal(number));
    } else {
        snprintf(text, size, "exited with status %d before the test ended", WEXITSTATUS(child->wait_status));
    }
}

/* The clean-up after the last test failed: it belongs to no test, but is a failure. */
static void judge_end(struct one_child *t) {
    struct rf_test_record record;
    char nothing[1] = "", text[200] = "";
    rf_test_record_parse(t->record && t->record_length ? t->record : nothing, &record);
    bool died = WIFSIGNALED(t->child.wait_status) || t->child.timed_out;
    if (died)
        snprintf(text, sizeof text, "after the last test the process %s", t->child.timed_out ? "hung" : "crashed");
    if (died || record.verdict == RF_TEST_FAILED)
        rf_test_report_trouble("the end of the process", died ? text : record.message, t->tally);
    else if (WEXITSTATUS(t->child.wait_status) != 0)
        rf_test_report_trouble("the end of the process", "it exited with a status other than 0", t->tally);
    if (t->child.left_behind[0]) {
        char left[480];
        rf_test_child_describe_left(&t->child, left, sizeof left);
        rf_test_report_trouble("the end of the process", left, t->tally);
    }
    rf_test_record_finish(&record);
}

static bool run_process(struct one_child *t, const char *executable) {
    int list = open_list(t);
    char path[64], record_fd[16];
    if (list < 0) {
        rf_test_report_trouble(executable, strerror(errno), t->tally);
        return false;
    }
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), list);
    snprintf(record_fd, sizeof record_fd, "%d", RF_TEST_RECORD_FD);
    bool gpu = false;
    for (size_t i = t->next; i < t->queue_count; i++) gpu |= t->plan->jobs[t->queue[i].number].gpu;
    t->part = (struct rf_test_part){0};
    struct rf_test_settings alone = *t->settings;
    alone.gpu_jobs = 1; /* it gets the whole share */
    if (gpu && t->gate->gpu) rf_test_gate_lend(t->gate, &alone, current_job(t), true, &t->part);
    struct rf_test_command command;
    rf_test_command_make(&command, t->settings, t->gate, current_job(t), 0, &t->part, NULL, NULL);
    char *argv[] = {(char *)executable, "--run-list", path, "--record-fd", record_fd, NULL};
    t->stream = (struct rf_test_stream){.prefix = "      | "};
    struct rf_test_spawn spawn = {.argv = argv,
                                  .environment = command.environment,
                                  .timeout_ns = END_TIMEOUT_NS,
                                  .on_output = t->settings->show_output ? stream_output : NULL,
                                  .user = &t->stream};
    t->begun_at = t->next;
    t->running = t->at_end = t->lost = false;
    t->record_length = 0;
    int error = rf_test_child_start(&t->child, &spawn);
    if (error) rf_test_report_trouble(executable, strerror(error), t->tally);
    struct rf_test_child *children[] = {&t->child};
    size_t first = t->next;
    while (!error && !t->child.ended && !rf_test_interrupted && !t->stop && !t->lost) {
        rf_test_children_serve(children, 1, WAIT_NS);
        take_record(t);
    }
    if (!error && t->child.ended && !t->stop && !t->lost) {
        char how[200];
        if (t->running) {
            how_it_ended(t, how, sizeof how);
            end_test(t, how);
        } else if (t->at_end) {
            judge_end(t);
        } else if (t->next < t->queue_count) {
            /* The process ended between two tests, or before the first: the next one never began. */
            t->started_ns = rf_test_now_ns();
            how_it_ended(t, how, sizeof how);
            end_test(t, how);
        }
    }
    if (!error) rf_test_child_finish(&t->child);
    rf_test_gate_reclaim(t->gate, &t->part);
    close(list);
    return !error && t->next > first;
}

/* ---- all processes ---- */

/* That process lost the device: is it lost to other processes, too? */
static void check_device(struct one_child *t) {
    struct rf_test_health health;
    char budget[160] = "";
    struct rf_test_part part = {0};
    if (!t->gate->gpu) return;
    if (t->gate->share && rf_share_lend(t->gate->share, t->gate->share_bytes, part.spec, sizeof part.spec) == RF_OK) {
        part.bytes = t->gate->share_bytes;
        t->gate->lent_bytes += part.bytes;
        snprintf(budget, sizeof budget, "RF_BUDGET=%s", part.spec);
    }
    rf_test_health_probe(t->gate->device, budget[0] ? budget : NULL, NULL, 0, &health);
    rf_test_gate_reclaim(t->gate, &part);
    if (health.good) {
        rf_test_remark("only that process lost the device: the rest continues in a new one");
        return;
    }
    t->gate->lost = true;
    snprintf(t->gate->why, sizeof t->gate->why, "device lost: %s", health.why);
}

/* GPU tests are not run any more: they are removed from the queue. */
static void drop_gpu_tests(struct one_child *t) {
    size_t kept = t->next, dropped = 0;
    for (size_t i = t->next; i < t->queue_count; i++) {
        struct rf_test_job *job = &t->plan->jobs[t->queue[i].number];
        if (!job->gpu) {
            t->queue[kept++] = t->queue[i];
            continue;
        }
        if (!job->message) job->message = rf_test_copy("not run: the device was lost");
        if (job->verdict == RF_TEST_NONE) job->verdict = RF_TEST_SKIPPED;
        job->label = RF_TEST_NOT_RUN;
        t->tally->skipped++;
        dropped++;
    }
    t->queue_count = kept;
    char message[700];
    snprintf(message, sizeof message, "%s\n%zu GPU tests are not run; the rest is", t->gate->why, dropped);
    if (dropped) rf_test_report_trouble("the GPU", message, t->tally);
}

static void fill_queue(struct one_child *t, const char *executable, long *round) {
    struct rf_random random = {t->settings->shuffle_seed + (uint64_t)*round};
    t->queue_count = t->next = 0;
    size_t begin = 0;
    do {
        begin = t->queue_count;
        for (size_t i = 0; i < t->plan->count; i++) {
            const struct rf_test_job *job = &t->plan->jobs[i];
            if (job->executable != executable || job->skip_tag) continue;
            t->queue = rf_test_grow(t->queue, (t->queue_count + 1) * sizeof *t->queue);
            t->queue[t->queue_count++] = (struct entry){i, *round};
        }
        for (size_t i = t->queue_count - begin; t->settings->shuffle && *round && i > 1; i--) {
            size_t other = begin + (size_t)rf_random_below(&random, i);
            struct entry entry = t->queue[begin + i - 1];
            t->queue[begin + i - 1] = t->queue[other];
            t->queue[other] = entry;
        }
        (*round)++;
    } while (*round < t->settings->repeat && t->queue_count + (t->queue_count - begin) <= QUEUED_MAX &&
             t->queue_count > begin && !t->settings->until_fail);
}

void rf_test_run_in_one_child(const struct rf_test_settings *settings, struct rf_test_plan *plan,
                              struct rf_test_gate *gate, struct rf_test_tally *tally) {
    struct one_child t = {.settings = settings, .plan = plan, .gate = gate, .tally = tally};
    while (!rf_test_gate_turn(gate, settings) && !rf_test_interrupted)
        nanosleep(&(struct timespec){0, TURN_PAUSE_NS}, NULL);
    for (size_t e = 0; e < plan->executable_count && !t.stop; e++) {
        for (long round = 0; round < settings->repeat && !t.stop && !rf_test_interrupted;) {
            fill_queue(&t, plan->executables[e], &round);
            bool going = true;
            if (gate->lost) drop_gpu_tests(&t);
            while (going && t.next < t.queue_count && !t.stop && !rf_test_interrupted) {
                going = run_process(&t, plan->executables[e]);
                if (t.lost && !gate->lost) {
                    check_device(&t);
                    if (gate->lost) drop_gpu_tests(&t);
                }
            }
        }
    }
    if (rf_test_interrupted) rf_test_report_trouble("interrupted", "the tests that follow were not run", tally);
    free(t.queue);
    free(t.record);
}
