/* Runs a plan in isolated processes: CPU tests fill the cores, GPU tests go through the gate (admission.c).
 *
 * A verdict needs the record and the exit status to agree: a test that passed and then crashed in a destructor, or
 * that leaked according to a sanitizer, has failed. Rounds (--repeat) overlap, but a test never runs beside itself.
 *
 * After a GPU test fails, a separate process checks whether the device still works; if not, no further GPU test is
 * started, and one message says so. */
#include "runner_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WAIT_NS INT64_C(1000000000)
#define LIVE_WAIT_NS INT64_C(200000000)
#define SAMPLE_NS INT64_C(50000000)
#define TURN_WAIT_NS 50000000
#define COMPANY_MAX 64
#define FAILED_ALLOCATIONS_MAX 10000
#define RETURN_TOLERANCE (UINT64_C(64) << 20)

volatile sig_atomic_t rf_test_interrupted;

static void on_interrupt(int number) {
    (void)number;
    rf_test_interrupted = 1;
}

struct slot {
    struct rf_test_job *job; /* NULL: free */
    long round;
    struct rf_test_child child;
    struct rf_test_part part;
    struct rf_test_stream stream;
    char prefix[RF_TEST_NAME_BYTES + 8];
    char marker[RF_TEST_FOLDER_BYTES + 32]; /* --fail-alloc: a file that is made when the allocation was refused */
    unsigned long fail_at;                  /* --fail-alloc: the number of the allocation to refuse */
    int64_t spent_ns;                       /* time of the earlier attempts of the sweep */
    uint64_t peak_bytes;                    /* seen so far */
    size_t company[COMPANY_MAX];
    size_t company_count;
};

struct pending {
    size_t number; /* of the job */
    long round;
};

struct run {
    const struct rf_test_settings *settings;
    struct rf_test_plan *plan;
    struct rf_test_gate *gate;
    struct rf_test_tally *tally;
    struct slot *slots;
    struct rf_test_child **children;
    size_t slot_count, busy, gpu_busy;
    size_t *order, order_count; /* jobs of this round, without those that are skipped */
    size_t next;                /* in order */
    long round;
    struct pending *deferred; /* jobs that could not start when their turn came */
    size_t deferred_count;
    size_t done;
    int64_t next_sample_ns, expected_ns, average_ns;
    uint64_t gpu_bytes;
    const char *folder; /* --fail-alloc: for the markers */
    bool stop, announced;
};

static void run_rounds(struct run *run);

void rf_test_run_plan(const struct rf_test_settings *settings, struct rf_test_plan *plan, struct rf_test_gate *gate,
                      struct rf_test_tally *tally) {
    struct sigaction action = {.sa_handler = on_interrupt}, old_int, old_term;
    rf_test_interrupted = 0;
    sigaction(SIGINT, &action, &old_int);
    sigaction(SIGTERM, &action, &old_term);
    rf_test_orphans_begin();
    rf_test_report_start(settings, plan);
    rf_test_progress_begin(settings, plan);
    for (size_t i = 0; i < plan->count; i++) {
        struct rf_test_job *job = &plan->jobs[i];
        if (!job->skip_tag) continue;
        char reason[128];
        snprintf(reason, sizeof reason, "tagged %s", job->skip_tag);
        rf_test_report(settings, job, &(struct rf_test_result){.verdict = RF_TEST_SKIPPED, .message = reason}, tally);
    }
    if (settings->in_process && plan->executable_count) {
        rf_test_run_in_one_child(settings, plan, gate, tally);
    } else if (settings->in_process) {
        rf_test_run_in_process(settings, plan, gate, tally);
    } else {
        struct run run = {.settings = settings, .plan = plan, .gate = gate, .tally = tally};
        run_rounds(&run);
    }
    if (!rf_test_interrupted && !settings->fail_alloc) rf_test_explain(settings, plan, gate);
    rf_test_progress_end();
    rf_test_orphans_end();
    sigaction(SIGINT, &old_int, NULL);
    sigaction(SIGTERM, &old_term, NULL);
}

/* ---- a job's process ---- */

static char *append(struct rf_test_command *command, size_t *used, const char *format, ...) RF_PRINTF(3, 4);
static char *append(struct rf_test_command *command, size_t *used, const char *format, ...) {
    char *at = command->text + *used;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(at, sizeof command->text - *used, format, args);
    va_end(args);
    *used += (size_t)length + 1;
    rf_assert(*used <= sizeof command->text); /* numbers, and texts whose length is bounded */
    return at;
}

void rf_test_command_make(struct rf_test_command *command, const struct rf_test_settings *settings,
                          const struct rf_test_gate *gate, const struct rf_test_job *job, uint64_t seed,
                          const struct rf_test_part *part, const char *before, const char *fail_alloc) {
    size_t used = 0, count = 0, variables = 0;
    command->argv[count++] = (char *)(job->executable ? job->executable : "/proc/self/exe");
    command->argv[count++] = "--run-one";
    command->argv[count++] = job->name;
    command->argv[count++] = "--record-fd";
    command->argv[count++] = append(command, &used, "%d", RF_TEST_RECORD_FD);
    command->argv[count++] = "--seed";
    command->argv[count++] = append(command, &used, "%llu", (unsigned long long)seed);
    if (before) {
        command->argv[count++] = "--before";
        command->argv[count++] = (char *)before;
    }
    command->argv[count] = NULL;
    const char **environment = command->environment;
    if (gate->gpu) environment[variables++] = append(command, &used, "RF_TEST_DEVICE=%d", gate->device);
    if (part && part->bytes) environment[variables++] = append(command, &used, "RF_BUDGET=%s", part->spec);
    if (settings->check) environment[variables++] = append(command, &used, "RF_CHECK=%s", settings->check);
    if (settings->debug) environment[variables++] = "RF_TEST_DEBUG=1";
    if (settings->debug) environment[variables++] = "RF_LOG=debug";
    if (fail_alloc) environment[variables++] = append(command, &used, "RF_FAIL_ALLOC=%s", fail_alloc);
    environment[variables] = NULL;
}

static void add_line(char **message, const char *text) {
    size_t have = strlen(*message), more = strlen(text);
    *message = rf_test_grow(*message, have + more + 2);
    if (have) (*message)[have++] = '\n';
    memcpy(*message + have, text, more + 1);
}

void rf_test_judge(struct rf_test_child *child, int timeout_ms, struct rf_test_attempt *attempt,
                   uint64_t *peak_bytes) {
    struct rf_test_record record;
    char nothing[1] = "", text[480] = "";
    rf_test_record_parse(child->record ? child->record : nothing, &record);
    const char *so_far = record.verdict == RF_TEST_NONE ? "" : ", after the test itself had ended";
    int code = WIFEXITED(child->wait_status) ? WEXITSTATUS(child->wait_status) : -1;
    int expected = record.verdict == RF_TEST_PASSED ? 0 : record.verdict == RF_TEST_SKIPPED ? 77 : 1;
    if (child->timed_out) {
        snprintf(text, sizeof text, "timeout: killed after %.1f s%s%s", timeout_ms / 1000.0,
                 child->killed ? ", it did not end when asked" : "", so_far);
    } else if (WIFSIGNALED(child->wait_status)) {
        int number = WTERMSIG(child->wait_status);
        const char *name = sigabbrev_np(number);
        snprintf(text, sizeof text, "crash: SIG%s (%s)%s", name ? name : "?", strsignal(number), so_far);
    } else if (record.verdict == RF_TEST_NONE) {
        snprintf(text, sizeof text, "exited with status %d before the test ended", code);
    } else if (code != expected && !(record.failure_seen && (code == 0 || code == 1 || code == 77))) {
        /* (A failure may come from a process that the test forked without learning of its failure.) */
        snprintf(text, sizeof text, "exited with status %d%s", code, so_far);
    }
    attempt->clean = !text[0] && !record.leak_seen && !child->left_behind[0];
    if (text[0]) add_line(&record.message, text);
    if (child->left_behind[0]) {
        rf_test_child_describe_left(child, text, sizeof text);
        add_line(&record.message, text);
    }
    if (text[0]) record.verdict = RF_TEST_FAILED;
    attempt->verdict = record.verdict;
    attempt->message = record.message;
    attempt->elapsed_ns = child->ended_ns - child->started_ns;
    if (record.peak_bytes > *peak_bytes) *peak_bytes = record.peak_bytes;
}

/* ---- starting ---- */

static void stream_output(void *user, const char *data, size_t length) {
    rf_test_stream_add(user, data, length);
}

static void report(struct run *run, struct slot *slot, enum rf_test_verdict verdict, const char *message,
                   const struct rf_test_capture *output, int64_t elapsed_ns) {
    struct rf_test_job *job = slot->job;
    if (verdict == RF_TEST_FAILED && job->failures == 0 && slot->company_count) {
        job->in_company = true;
        job->company_count = slot->company_count;
        job->company = rf_test_grow(NULL, slot->company_count * sizeof *job->company);
        memcpy(job->company, slot->company, slot->company_count * sizeof *job->company);
    }
    rf_test_report(run->settings, job,
                   &(struct rf_test_result){.verdict = verdict,
                                            .message = message,
                                            .elapsed_ns = elapsed_ns,
                                            .seed = run->settings->seed + (uint64_t)slot->round,
                                            .output = output},
                   run->tally);
    run->done++;
    run->expected_ns -= job->usual_ns ? job->usual_ns : run->average_ns;
    if (verdict == RF_TEST_FAILED && (run->settings->fail_fast || run->settings->until_fail)) run->stop = true;
}

/* Starts the process of the slot's job; called again for each allocation of a sweep. */
static bool launch(struct run *run, struct slot *slot) {
    char fail_alloc[RF_TEST_FOLDER_BYTES + 64];
    if (run->settings->fail_alloc) {
        unlink(slot->marker);
        snprintf(fail_alloc, sizeof fail_alloc, "%lu:%s", slot->fail_at, slot->marker);
    }
    struct rf_test_command command;
    rf_test_command_make(&command, run->settings, run->gate, slot->job, run->settings->seed + (uint64_t)slot->round,
                         &slot->part, NULL, run->settings->fail_alloc ? fail_alloc : NULL);
    struct rf_test_spawn spawn = {.argv = command.argv,
                                  .environment = command.environment,
                                  .timeout_ns = (int64_t)slot->job->timeout_ms * 1000000};
    if (run->settings->show_output) {
        snprintf(slot->prefix, sizeof slot->prefix, run->settings->jobs == 1 ? "      | " : "%s | ", slot->job->name);
        slot->stream = (struct rf_test_stream){.prefix = slot->prefix};
        spawn.on_output = stream_output;
        spawn.user = &slot->stream;
    }
    int error = rf_test_child_start(&slot->child, &spawn);
    if (!error) return true;
    char message[256];
    snprintf(message, sizeof message, "could not start: %s", strerror(error));
    report(run, slot, RF_TEST_FAILED, message, NULL, 0);
    return false;
}

static void add_company(struct slot *slot, size_t number) {
    for (size_t i = 0; i < slot->company_count; i++)
        if (slot->company[i] == number) return;
    if (slot->company_count < COMPANY_MAX) slot->company[slot->company_count++] = number;
}

static void start(struct run *run, struct slot *slot, struct pending what, const struct rf_test_part *part) {
    struct rf_test_job *job = &run->plan->jobs[what.number];
    size_t index = (size_t)(slot - run->slots);
    *slot = (struct slot){.job = job, .round = what.round, .part = *part, .fail_at = 1};
    snprintf(slot->marker, sizeof slot->marker, "%s/refused.%zu", run->folder ? run->folder : "", index);
    for (size_t i = 0; i < run->slot_count; i++) {
        if (i == index || !run->slots[i].job) continue;
        add_company(slot, (size_t)(run->slots[i].job - run->plan->jobs));
        add_company(&run->slots[i], what.number);
    }
    if (launch(run, slot)) {
        run->busy++;
        run->gpu_busy += job->gpu;
    } else {
        rf_test_gate_reclaim(run->gate, &slot->part);
        slot->job = NULL;
    }
}

/* ---- choosing ---- */

/* Whether it may run beside what runs now, apart from memory. */
static bool fits_beside(const struct run *run, const struct rf_test_job *job) {
    if (job->gpu && run->gpu_busy >= (size_t)run->settings->gpu_jobs) return false;
    if (job->serial && run->gpu_busy) return false;
    for (size_t i = 0; i < run->slot_count; i++) {
        const struct rf_test_job *other = run->slots[i].job;
        if (!other) continue;
        if (other == job) return false;
        if (other->serial && (job->gpu || job->serial)) return false;
        if (job->group[0] && strcmp(job->group, other->group) == 0) return false;
    }
    return true;
}

static void not_run(struct run *run, struct rf_test_job *job) {
    char message[600];
    snprintf(message, sizeof message, "not run: %s", run->gate->why);
    free(job->message);
    job->message = rf_test_copy(message);
    if (job->failures == 0) job->verdict = RF_TEST_SKIPPED;
    job->label = RF_TEST_NOT_RUN;
    job->skips++;
    run->tally->skipped++;
    run->done++;
}

/* Starts the job in the slot if it may start now. True: the job has been handled. */
static bool try_start(struct run *run, struct slot *slot, struct pending what) {
    struct rf_test_job *job = &run->plan->jobs[what.number];
    struct rf_test_part part = {0};
    if (job->gpu && run->gate->lost) {
        not_run(run, job);
        return true;
    }
    if (!fits_beside(run, job)) return false;
    if (job->gpu && run->gate->gpu) {
        if (!rf_test_gate_turn(run->gate, run->settings) || run->gate->lost) return false;
        switch (rf_test_gate_lend(run->gate, run->settings, job, run->gpu_busy == 0, &part)) {
        case RF_TEST_ADMITTED: break;
        case RF_TEST_LATER: return false;
        case RF_TEST_NEVER:
            *slot = (struct slot){.job = job, .round = what.round};
            report(run, slot, RF_TEST_FAILED, "wants more GPU memory than the runner's share: raise RF_BUDGET", NULL,
                   0);
            slot->job = NULL;
            return true;
        }
    }
    start(run, slot, what, &part);
    return true;
}

static void begin_round(struct run *run) {
    run->next = 0;
    if (!run->settings->shuffle || run->round == 0) return; /* the plan itself was shuffled */
    struct rf_random random = {run->settings->shuffle_seed + (uint64_t)run->round};
    for (size_t i = run->order_count; i > 1; i--) {
        size_t other = (size_t)rf_random_below(&random, i), number = run->order[i - 1];
        run->order[i - 1] = run->order[other];
        run->order[other] = number;
    }
}

static bool take_next(struct run *run, struct pending *what) {
    if (run->next == run->order_count) {
        if (run->round + 1 >= run->settings->repeat) return false;
        run->round++;
        begin_round(run);
    }
    *what = (struct pending){run->order[run->next++], run->round};
    return true;
}

static void fill(struct run *run, struct slot *slot) {
    for (size_t i = 0; i < run->deferred_count; i++) {
        if (!try_start(run, slot, run->deferred[i])) continue;
        memmove(&run->deferred[i], &run->deferred[i + 1], (run->deferred_count - i - 1) * sizeof run->deferred[0]);
        run->deferred_count--;
        i--;
        if (slot->job) return;
    }
    struct pending what;
    /* Jobs that wait are kept, at most one round of them. */
    while (!slot->job && !run->stop && run->deferred_count < run->order_count && take_next(run, &what))
        if (!try_start(run, slot, what)) run->deferred[run->deferred_count++] = what;
}

static bool more_to_start(const struct run *run) {
    return !run->stop &&
           (run->deferred_count || run->next < run->order_count || run->round + 1 < run->settings->repeat);
}

/* ---- ending ---- */

static size_t collect_children(struct run *run, const struct slot *without) {
    size_t count = 0;
    for (size_t i = 0; i < run->slot_count; i++)
        if (run->slots[i].job && &run->slots[i] != without) run->children[count++] = &run->slots[i].child;
    return count;
}

/* After a GPU test failed: checks whether the device still works and its memory came back. */
static void check_device(struct run *run, const struct slot *slot, bool killed) {
    struct rf_test_gate *gate = run->gate;
    if (!gate->gpu || gate->lost || rf_test_interrupted) return;
    uint64_t now = 0, before = gate->info.free_bytes;
    if (killed && run->gpu_busy == 0 && before > RETURN_TOLERANCE &&
        !rf_test_wait_for_memory(gate->device, before - RETURN_TOLERANCE, &now)) {
        char had[32], has[32];
        rf_test_remark("after %s the GPU has %s free, %s before the run: not all memory came back", slot->job->name,
                       rf_format_bytes(now, has, sizeof has), rf_format_bytes(before, had, sizeof had));
    }
    struct rf_test_part part = {0};
    char budget[160] = "";
    if (gate->share) {
        uint64_t left = gate->share_bytes > gate->lent_bytes ? gate->share_bytes - gate->lent_bytes : 0;
        if (!left || rf_share_lend(gate->share, left, part.spec, sizeof part.spec) != RF_OK) return;
        part.bytes = left;
        gate->lent_bytes += left;
        snprintf(budget, sizeof budget, "RF_BUDGET=%s", part.spec);
    }
    struct rf_test_health health;
    rf_test_health_probe(gate->device, budget[0] ? budget : NULL, run->children, collect_children(run, slot),
                         &health);
    rf_test_gate_reclaim(gate, &part);
    if (health.good || rf_test_interrupted) return;
    gate->lost = true;
    snprintf(gate->why, sizeof gate->why, "device lost after %s: %s", slot->job->name, health.why);
}

static void announce_loss(struct run *run) {
    size_t left = 0;
    run->announced = true;
    for (size_t i = 0; i < run->deferred_count; i++) left += run->plan->jobs[run->deferred[i].number].gpu;
    for (size_t i = run->next; i < run->order_count; i++) left += run->plan->jobs[run->order[i]].gpu;
    char message[700];
    snprintf(message, sizeof message, "%s\n%zu GPU tests of this round are not run; the rest is", run->gate->why,
             left);
    rf_test_report_trouble("the GPU", message, run->tally);
}

/* Continues the sweep with the next allocation. False: the sweep is over, and *attempt is its result. */
static bool sweep_on(struct run *run, struct slot *slot, struct rf_test_attempt *attempt) {
    bool hit = access(slot->marker, F_OK) == 0;
    if (!hit || slot->fail_at >= FAILED_ALLOCATIONS_MAX) return false;
    if (attempt->clean) {
        slot->fail_at++;
        slot->spent_ns += attempt->elapsed_ns;
        return !rf_test_interrupted && !run->stop;
    }
    char text[128];
    snprintf(text, sizeof text, "this happened when allocation number %lu was refused (RF_FAIL_ALLOC)",
             slot->fail_at);
    add_line(&attempt->message, text);
    attempt->verdict = RF_TEST_FAILED;
    return false;
}

static void end(struct run *run, struct slot *slot) {
    struct rf_test_child *child = &slot->child;
    struct rf_test_attempt attempt;
    bool abnormal = child->timed_out || WIFSIGNALED(child->wait_status);
    if (slot->stream.length) rf_test_stream_end(&slot->stream);
    rf_test_judge(child, slot->job->timeout_ms, &attempt, &slot->peak_bytes);
    if (run->settings->fail_alloc && sweep_on(run, slot, &attempt)) {
        free(attempt.message);
        rf_test_child_finish(child);
        if (launch(run, slot)) return;
    } else {
        report(run, slot, attempt.verdict, attempt.message, &child->output, slot->spent_ns + attempt.elapsed_ns);
        free(attempt.message);
        rf_test_child_finish(child);
    }
    if (slot->peak_bytes > slot->job->peak_bytes) slot->job->peak_bytes = slot->peak_bytes;
    rf_test_gate_reclaim(run->gate, &slot->part);
    run->busy--;
    run->gpu_busy -= slot->job->gpu;
    if (slot->job->gpu && attempt.verdict == RF_TEST_FAILED) check_device(run, slot, abnormal);
    slot->job = NULL;
}

/* ---- the loop ---- */

static void look_at_memory(struct run *run) {
    int64_t now = rf_test_now_ns();
    if (!run->gpu_busy || now < run->next_sample_ns || !run->gate->gpu) return;
    run->next_sample_ns = now + SAMPLE_NS;
    run->gpu_bytes = 0;
    for (size_t i = 0; i < run->slot_count; i++) {
        struct slot *slot = &run->slots[i];
        if (!slot->job || !slot->job->gpu) continue;
        uint64_t held = rf_test_gate_held(run->gate, slot->child.pid);
        if (held > slot->peak_bytes) slot->peak_bytes = held;
        run->gpu_bytes += held;
    }
}

static void show_progress(struct run *run) {
    if (!rf_test_progress_shown()) return;
    struct rf_test_running running[8];
    size_t count = 0;
    for (size_t i = 0; i < run->slot_count && count < 8; i++)
        if (run->slots[i].job)
            running[count++] = (struct rf_test_running){run->slots[i].job->name, run->slots[i].child.started_ns};
    rf_test_progress_draw(running, count, run->done, run->tally, run->expected_ns / run->settings->jobs,
                          run->gpu_busy ? run->gpu_bytes : 0);
}

static void expect(struct run *run) {
    int64_t known = 0;
    size_t known_count = 0;
    for (size_t i = 0; i < run->order_count; i++) {
        int64_t usual = run->plan->jobs[run->order[i]].usual_ns;
        known += usual;
        known_count += usual > 0;
    }
    run->average_ns = known_count ? known / (int64_t)known_count : 0;
    run->expected_ns = (known + run->average_ns * (int64_t)(run->order_count - known_count)) * run->settings->repeat;
}

static void report_interrupt(struct run *run) {
    size_t busy = run->busy, left = run->deferred_count + run->order_count - run->next;
    for (size_t i = 0; i < run->slot_count; i++) {
        struct slot *slot = &run->slots[i];
        if (!slot->job) continue;
        rf_test_child_finish(&slot->child);
        rf_test_gate_reclaim(run->gate, &slot->part);
    }
    char message[128];
    snprintf(message, sizeof message, "%zu tests were running and %zu had not begun", busy, left);
    rf_test_report_trouble("interrupted", message, run->tally);
}

static void prepare(struct run *run) {
    const struct rf_test_settings *settings = run->settings;
    run->slot_count = (size_t)(settings->jobs > settings->gpu_jobs ? settings->jobs : settings->gpu_jobs);
    run->slots = rf_test_grow(NULL, run->slot_count * sizeof *run->slots);
    memset(run->slots, 0, run->slot_count * sizeof *run->slots);
    run->children = rf_test_grow(NULL, run->slot_count * sizeof *run->children);
    run->order = rf_test_grow(NULL, run->plan->count * sizeof *run->order);
    run->deferred = rf_test_grow(NULL, run->plan->count * sizeof *run->deferred);
    for (size_t i = 0; i < run->plan->count; i++)
        if (!run->plan->jobs[i].skip_tag) run->order[run->order_count++] = i;
    run->done = run->plan->count - run->order_count;
    if (settings->fail_alloc && !(run->folder = rf_test_try_folder())) {
        rf_test_remark("no folder for --fail-alloc: %s", strerror(errno));
        run->folder = "/nowhere";
    }
    expect(run);
}

static void finish(struct run *run) {
    rf_test_sweep_folders(); /* of tests that were killed, in this run or before it */
    free(run->deferred);
    free(run->order);
    free(run->children);
    free(run->slots);
}

static void run_rounds(struct run *run) {
    prepare(run);
    while ((more_to_start(run) || run->busy) && !rf_test_interrupted) {
        if (run->gate->lost && !run->announced) announce_loss(run);
        for (size_t i = 0; i < run->slot_count && more_to_start(run); i++)
            if (!run->slots[i].job) fill(run, &run->slots[i]);
        size_t count = collect_children(run, NULL);
        bool live = rf_test_progress_shown() || run->deferred_count;
        if (count)
            rf_test_children_serve(run->children, count, run->gpu_busy ? SAMPLE_NS : live ? LIVE_WAIT_NS : WAIT_NS);
        else if (run->deferred_count)
            nanosleep(&(struct timespec){0, TURN_WAIT_NS}, NULL); /* the GPU's turn has not come */
        look_at_memory(run);
        for (size_t i = 0; i < run->slot_count; i++)
            if (run->slots[i].job && run->slots[i].child.ended) end(run, &run->slots[i]);
        show_progress(run);
    }
    if (run->gate->lost && !run->announced) announce_loss(run);
    if (rf_test_interrupted) report_interrupt(run);
    finish(run);
}
