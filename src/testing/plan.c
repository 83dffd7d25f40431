/* The plan: which tests of which executables run, how often and with which seed. An
 * executable is asked by running it with --list --machine; it answers on the record's pipe, so
 * what its constructors print does no harm. */
#include "testing_impl.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#define LIST_TIMEOUT_NS INT64_C(60000000000)

static const char *first_tag(const char *const *wanted, size_t count, const char *tags) {
    for (size_t i = 0; i < count; i++)
        if (rf_test_has_tag(tags, wanted[i])) return wanted[i];
    return NULL;
}

static bool is_wanted(const struct rf_test_settings *settings, const char *name, const char *tags) {
    bool named = settings->pattern_count == 0;
    for (size_t i = 0; i < settings->pattern_count && !named; i++)
        named = fnmatch(settings->patterns[i], name, 0) == 0;
    return named && (settings->tag_count == 0 || first_tag(settings->tags, settings->tag_count, tags));
}

static void add_job(struct rf_test_plan *plan, const struct rf_test_settings *settings, const char *executable,
                    const char *name, int timeout_ms, bool gpu, const char *tags) {
    if (!is_wanted(settings, name, tags)) return;
    double scaled = timeout_ms * settings->timeout_scale;
    for (int i = 0; i < settings->repeat; i++) {
        if (plan->count == plan->capacity) {
            plan->capacity = plan->capacity ? 2 * plan->capacity : 64;
            plan->jobs = rf_test_grow(plan->jobs, plan->capacity * sizeof *plan->jobs);
        }
        plan->jobs[plan->count++] = (struct rf_test_job){
            .executable = executable,
            .name = rf_test_copy(name),
            .timeout_ms = scaled < 1           ? 1
                          : scaled > INT32_MAX ? INT32_MAX
                                               : (int)scaled,
            .gpu = gpu,
            .skip_tag = first_tag(settings->skip_tags, settings->skip_tag_count, tags),
            .seed = settings->seed + (uint64_t)i,
        };
    }
}

void rf_test_plan_own(struct rf_test_plan *plan, const struct rf_test_settings *settings) {
    char name[RF_TEST_NAME_BYTES];
    for (const struct rf_test *test = rf_test_first(); test; test = test->next) {
        rf_test_full_name(test, name, sizeof name);
        add_job(plan, settings, NULL, name, rf_test_timeout_ms(test), test->options.gpu, test->options.tags);
    }
}

void rf_test_list(const struct rf_test_settings *settings, FILE *to) {
    char name[RF_TEST_NAME_BYTES];
    size_t count = 0;
    for (const struct rf_test *test = rf_test_first(); test; test = test->next) {
        rf_test_full_name(test, name, sizeof name);
        const char *tags = test->options.tags ? test->options.tags : "";
        if (!settings->machine) {
            if (is_wanted(settings, name, tags)) fprintf(to, "%s\n", name);
        } else if (settings->record_fd >= 0) {
            rf_test_record_write(settings->record_fd, "test", "%s %d %d %s", name, rf_test_timeout_ms(test),
                                 test->options.gpu, tags);
        } else {
            fprintf(to, "test\t%s %d %d %s\n", name, rf_test_timeout_ms(test), test->options.gpu, tags);
        }
        count++;
    }
    if (settings->machine && settings->record_fd >= 0)
        rf_test_record_write(settings->record_fd, "end", "%zu", count);
    else if (settings->machine)
        fprintf(to, "end\t%zu\n", count);
}

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
    char name[RF_TEST_NAME_BYTES], tags[512] = "";
    int timeout_ms = 0, gpu = 0;
    if (strcmp(kind, "test") != 0 || sscanf(value, "%255s %d %d %511s", name, &timeout_ms, &gpu, tags) < 3 ||
        timeout_ms <= 0) {
        listing->malformed = true;
        return;
    }
    listing->count++;
    add_job(listing->plan, listing->settings, listing->executable, name, timeout_ms, gpu != 0, tags);
}

char *rf_test_plan_executable(struct rf_test_plan *plan, const struct rf_test_settings *settings, const char *path) {
    char record_fd[16];
    snprintf(record_fd, sizeof record_fd, "%d", RF_TEST_RECORD_FD);
    char *executable = rf_test_copy(path);
    plan->executables = rf_test_grow(plan->executables, (plan->executable_count + 1) * sizeof *plan->executables);
    plan->executables[plan->executable_count++] = executable;
    char *argv[] = {executable, "--list", "--machine", "--record-fd", record_fd, NULL};
    struct rf_test_child child;
    int error = rf_test_child_start(&child, argv, LIST_TIMEOUT_NS);
    if (error) return rf_test_copy(strerror(error));
    struct rf_test_child *children[] = {&child};
    while (!child.ended) rf_test_children_serve(children, 1, INT64_C(1000000000));
    struct listing listing = {.plan = plan, .settings = settings, .executable = executable};
    size_t before = plan->count;
    if (child.record) rf_test_record_lines(child.record, take_line, &listing);
    bool good = listing.complete && !listing.malformed && child.wait_status == 0;
    rf_test_child_finish(&child);
    if (good) return NULL;
    while (plan->count > before) free(plan->jobs[--plan->count].name);
    return rf_test_copy(
        "did not list its tests when run with --list --machine: is it linked with librocmforge-test?");
}

void rf_test_plan_finish(struct rf_test_plan *plan) {
    for (size_t i = 0; i < plan->count; i++) free(plan->jobs[i].name);
    for (size_t i = 0; i < plan->executable_count; i++) free(plan->executables[i]);
    free(plan->jobs);
    free(plan->executables);
    *plan = (struct rf_test_plan){0};
}
