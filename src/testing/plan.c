/* The plan: which tests of which executables run, and in which order. Each executable is run once with --list
 * --machine; it answers on the pipe of the record, so what its constructors print does no harm.
 *
 * A line of the listing: name, timeout in ms, gpu, memory in bytes, serial, group, tags, file, line, separated by
 * tabs. */
#include "runner_impl.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define LIST_TIMEOUT_NS INT64_C(60000000000)
#define LIST_BYTES ((size_t)256 << 20)
#define FIELDS 9

static const char *first_tag(const char *const *wanted, size_t count, const char *tags) {
    for (size_t i = 0; i < count; i++)
        if (rf_test_has_tag(tags, wanted[i])) return wanted[i];
    return NULL;
}

static bool is_wanted(const struct rf_test_settings *settings, const char *name, const char *tags, bool gpu) {
    if (settings->gpu_only && !gpu) return false;
    bool named = settings->pattern_count == 0;
    for (size_t i = 0; i < settings->pattern_count && !named; i++)
        named = fnmatch(settings->patterns[i], name, 0) == 0;
    return named && (settings->tag_count == 0 || first_tag(settings->tags, settings->tag_count, tags));
}

/* One test of a listing. */
struct entry {
    const char *name, *group, *tags, *file;
    int timeout_ms, line;
    bool gpu, serial;
    uint64_t memory_bytes;
    const struct rf_test *test;
};

static void add_job(struct rf_test_plan *plan, const struct rf_test_settings *settings, const char *executable,
                    const struct entry *entry) {
    if (!is_wanted(settings, entry->name, entry->tags, entry->gpu)) return;
    double scaled = entry->timeout_ms * settings->timeout_scale;
    if (plan->count == plan->capacity) {
        plan->capacity = plan->capacity ? 2 * plan->capacity : 64;
        plan->jobs = rf_test_grow(plan->jobs, plan->capacity * sizeof *plan->jobs);
    }
    plan->jobs[plan->count++] = (struct rf_test_job){
        .executable = executable,
        .test = entry->test,
        .name = rf_test_copy(entry->name),
        .group = rf_test_copy(entry->group),
        .file = rf_test_copy(entry->file),
        .line = entry->line,
        .timeout_ms = scaled < 1           ? 1
                      : scaled > INT32_MAX ? INT32_MAX
                                           : (int)scaled,
        .gpu = entry->gpu,
        .serial = entry->serial,
        .memory_bytes = entry->memory_bytes,
        .skip_tag = first_tag(settings->skip_tags, settings->skip_tag_count, entry->tags),
    };
}

static struct entry entry_of(const struct rf_test *test, char *name, size_t size) {
    rf_test_full_name(test, name, size);
    const char *file = test->file;
    while (strncmp(file, "../", 3) == 0) file += 3;
    return (struct entry){.name = name,
                          .group = test->options.group ? test->options.group : "",
                          .tags = test->options.tags ? test->options.tags : "",
                          .file = file,
                          .line = test->line,
                          .timeout_ms = rf_test_timeout_ms(test),
                          .gpu = test->options.gpu,
                          .serial = test->options.serial,
                          .memory_bytes = test->options.memory_bytes,
                          .test = test};
}

void rf_test_plan_own(struct rf_test_plan *plan, const struct rf_test_settings *settings) {
    char name[RF_TEST_NAME_BYTES];
    for (const struct rf_test *test = rf_test_first(); test; test = test->next) {
        struct entry entry = entry_of(test, name, sizeof name);
        add_job(plan, settings, NULL, &entry);
    }
}

void rf_test_list(const struct rf_test_settings *settings, FILE *to) {
    char name[RF_TEST_NAME_BYTES];
    size_t count = 0;
    for (const struct rf_test *test = rf_test_first(); test; test = test->next) {
        struct entry entry = entry_of(test, name, sizeof name);
        char line[1800];
        snprintf(line, sizeof line, "%s\t%d\t%d\t%llu\t%d\t%s\t%s\t%s\t%d", entry.name, entry.timeout_ms, entry.gpu,
                 (unsigned long long)entry.memory_bytes, entry.serial, entry.group, entry.tags, entry.file,
                 entry.line);
        if (settings->machine && settings->record_fd >= 0)
            rf_test_record_write(settings->record_fd, "test", "%s", line);
        else if (settings->machine)
            fprintf(to, "test\t%s\n", line);
        else if (is_wanted(settings, entry.name, entry.tags, entry.gpu))
            fprintf(to, "%s\n", entry.name);
        count++;
    }
    if (settings->machine && settings->record_fd >= 0)
        rf_test_record_write(settings->record_fd, "end", "%zu", count);
    else if (settings->machine)
        fprintf(to, "end\t%zu\n", count);
}

/* ---- other executables ---- */

struct listing {
    struct rf_test_plan *plan;
    const struct rf_test_settings *settings;
    const char *executable;
    size_t count;
    bool complete, malformed;
};

static void take_line(void *user, const char *kind, char *value) {
    struct listing *listing = user;
    if (strcmp(kind, "end") == 0) {
        listing->complete = strtoull(value, NULL, 10) == listing->count;
        return;
    }
    char *fields[FIELDS];
    int count = 0;
    for (char *at = value; at && count < FIELDS; count++) {
        fields[count] = at;
        at = strchr(at, '\t');
        if (at) *at++ = 0;
    }
    struct entry entry = {0};
    if (count == FIELDS)
        entry = (struct entry){.name = fields[0],
                               .timeout_ms = atoi(fields[1]),
                               .gpu = atoi(fields[2]) != 0,
                               .memory_bytes = strtoull(fields[3], NULL, 10),
                               .serial = atoi(fields[4]) != 0,
                               .group = fields[5],
                               .tags = fields[6],
                               .file = fields[7],
                               .line = atoi(fields[8])};
    if (strcmp(kind, "test") != 0 || count != FIELDS || !entry.name[0] || entry.timeout_ms <= 0) {
        listing->malformed = true;
        return;
    }
    listing->count++;
    add_job(listing->plan, listing->settings, listing->executable, &entry);
}

static void free_job(struct rf_test_job *job) {
    free(job->name);
    free(job->group);
    free(job->file);
    free(job->message);
    free(job->output);
    free(job->verdict_text);
    free(job->company);
}

/* The first line of its output, for a message of one line. */
static char *first_line(const struct rf_test_capture *output) {
    char *text;
    size_t length, gap_at;
    uint64_t left_out;
    rf_test_capture_text(output, &text, &length, &gap_at, &left_out);
    text[strcspn(text, "\n")] = 0;
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20) *c = '?';
    return text;
}

int rf_test_plan_executable(struct rf_test_plan *plan, const struct rf_test_settings *settings, const char *path,
                            char **trouble) {
    char record_fd[16];
    snprintf(record_fd, sizeof record_fd, "%d", RF_TEST_RECORD_FD);
    char *executable = rf_test_copy(path);
    plan->executables = rf_test_grow(plan->executables, (plan->executable_count + 1) * sizeof *plan->executables);
    plan->executables[plan->executable_count++] = executable;
    char *argv[] = {executable, "--list", "--machine", "--record-fd", record_fd, NULL};
    struct rf_test_spawn spawn = {.argv = argv, .timeout_ns = LIST_TIMEOUT_NS, .record_limit = LIST_BYTES};
    struct rf_test_child child;
    int error = rf_test_child_start(&child, &spawn);
    if (error) {
        *trouble = rf_test_copy(strerror(error));
        return 2;
    }
    struct rf_test_child *children[] = {&child};
    while (!child.ended) rf_test_children_serve(children, 1, INT64_C(1000000000));
    struct listing listing = {.plan = plan, .settings = settings, .executable = executable};
    size_t before = plan->count;
    if (child.record) rf_test_record_lines(child.record, take_line, &listing);
    bool good = listing.complete && !listing.malformed && child.wait_status == 0;
    /* It knows our options and refuses to list: show its own message. */
    bool refuses = !good && listing.count == 0 && WIFEXITED(child.wait_status) && WEXITSTATUS(child.wait_status) == 2;
    if (refuses) *trouble = first_line(&child.output);
    rf_test_child_finish(&child);
    if (good) return 0;
    while (plan->count > before) free_job(&plan->jobs[--plan->count]);
    if (refuses && (*trouble)[0]) return 2;
    if (refuses) free(*trouble);
    *trouble =
        rf_test_copy("did not list its tests when run with --list --machine: is it linked with librocmforge-test?");
    return 1;
}

const char *rf_test_job_program(const struct rf_test_job *job) {
    static char own[256];
    const char *path = job->executable;
    if (!path) {
        snprintf(own, sizeof own, "%s", program_invocation_short_name);
        return own;
    }
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* ---- the plan as a whole ---- */

static int by_name(const void *a, const void *b) {
    const struct rf_test_job *one = *(const struct rf_test_job *const *)a,
                             *two = *(const struct rf_test_job *const *)b;
    if (one->executable != two->executable) return (uintptr_t)one->executable < (uintptr_t)two->executable ? -1 : 1;
    return strcmp(one->name, two->name);
}

const struct rf_test_job *rf_test_plan_duplicate(const struct rf_test_plan *plan) {
    if (plan->count < 2) return NULL;
    const struct rf_test_job **sorted = rf_test_grow(NULL, plan->count * sizeof *sorted);
    for (size_t i = 0; i < plan->count; i++) sorted[i] = &plan->jobs[i];
    qsort(sorted, plan->count, sizeof *sorted, by_name);
    const struct rf_test_job *twice = NULL;
    for (size_t i = 1; i < plan->count && !twice; i++)
        if (by_name(&sorted[i - 1], &sorted[i]) == 0) twice = sorted[i];
    free(sorted);
    return twice;
}

void rf_test_plan_shuffle(struct rf_test_plan *plan, uint64_t seed) {
    struct rf_random random = {seed};
    for (size_t i = plan->count; i > 1; i--) {
        size_t other = (size_t)rf_random_below(&random, i);
        struct rf_test_job job = plan->jobs[i - 1];
        plan->jobs[i - 1] = plan->jobs[other];
        plan->jobs[other] = job;
    }
}

void rf_test_plan_finish(struct rf_test_plan *plan) {
    for (size_t i = 0; i < plan->count; i++) free_job(&plan->jobs[i]);
    for (size_t i = 0; i < plan->executable_count; i++) free(plan->executables[i]);
    free(plan->jobs);
    free(plan->executables);
    *plan = (struct rf_test_plan){0};
}
