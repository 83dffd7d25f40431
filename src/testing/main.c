/* What executables call: rf_test_main of a test executable, rf_test_main_executables of
 * `rocmforge test`. */
#include "runner_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Like rf_test_find, which sorts all names first: too slow for a single name when ten thousand processes do it. */
static const struct rf_test *find_one(const char *full_name) {
    for (const struct rf_test *test = rf_test_first(); test; test = test->next) {
        size_t suite = strlen(test->suite);
        if (strncmp(test->suite, full_name, suite) == 0 && full_name[suite] == '.' &&
            strcmp(test->name, full_name + suite + 1) == 0)
            return test;
    }
    return NULL;
}

/* The process that the runner started: runs one test, or a list of them, and ends. */
static int run_child(const struct rf_test_settings *settings) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* if the runner is killed, nothing keeps running */
    if (settings->run_list) {
        setvbuf(stdout, NULL, _IOLBF, 0);
        return rf_test_run_list(settings->run_list, settings->record_fd);
    }
    const struct rf_test *test = find_one(settings->run_one);
    if (!test) {
        fprintf(stderr, "no test is named %s\n", settings->run_one);
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0); /* so that a crash does not lose the last lines */
    enum rf_test_verdict verdict = rf_test_run_sequence(settings->before, test, settings->record_fd);
    return verdict == RF_TEST_PASSED ? 0 : verdict == RF_TEST_SKIPPED ? 77 : 1;
}

struct files {
    struct rf_test_report_file junit, json;
};

static bool open_file(struct rf_test_report_file *file, const char *path, const char *program) {
    if (!path || rf_test_report_open(file, path)) return true;
    fprintf(stderr, "%s: the report %s cannot be written: %s\n", program, path, strerror(errno));
    return false;
}

static bool write_files(struct files *files, const struct rf_test_settings *settings, const struct rf_test_plan *plan,
                        const struct rf_test_tally *tally, int64_t elapsed_ns) {
    if (files->junit.file) rf_test_write_junit(files->junit.file, plan, elapsed_ns);
    if (files->json.file) rf_test_write_json(files->json.file, settings, plan, tally, elapsed_ns);
    bool good = true;
    struct rf_test_report_file *all[] = {&files->junit, &files->json};
    for (int i = 0; i < 2; i++) {
        if (rf_test_report_commit(all[i])) continue;
        fprintf(stderr, "%s: the report %s could not be written: %s\n", settings->program, all[i]->path,
                strerror(errno));
        good = false;
    }
    return good;
}

/* The plan is complete; from here on own tests and executables are handled alike. */
static int run_and_close(const struct rf_test_settings *settings, struct rf_test_plan *plan,
                         struct rf_test_tally *tally) {
    const struct rf_test_job *twice = rf_test_plan_duplicate(plan);
    if (twice) {
        fprintf(stderr, "%s:%d: the test %s exists twice: rename one\n", twice->file, twice->line, twice->name);
        return 2;
    }
    bool any = plan->count != 0;
    rf_test_history_apply(plan, settings->rerun_failed);
    if (plan->count == 0 && tally->failed == 0) {
        if (any) {
            printf("no failed test is recorded\n0 passed, 0 failed, 0 skipped\n");
            return 0;
        }
        fprintf(stderr, "%s: no test matches: --list shows the names\n", settings->program);
        return 2;
    }
    if (settings->shuffle) rf_test_plan_shuffle(plan, settings->shuffle_seed);
    struct files files = {0};
    struct rf_test_gate gate;
    int code = open_file(&files.junit, settings->junit, settings->program) &&
                       open_file(&files.json, settings->json, settings->program)
                   ? 0
                   : 2;
    if (!code) code = rf_test_gate_open(&gate, settings, plan);
    if (code) {
        rf_test_report_drop(&files.junit);
        rf_test_report_drop(&files.json);
        return code;
    }
    int64_t started = rf_test_now_ns();
    rf_test_run_plan(settings, plan, &gate, tally);
    int64_t elapsed = rf_test_now_ns() - started;
    bool absent = settings->gpu_only && !gate.gpu && tally->passed == 0 && tally->failed == 0;
    rf_test_gate_close(&gate);
    rf_test_history_save(plan);
    code = write_files(&files, settings, plan, tally, elapsed) ? 0 : 1;
    rf_test_report_end(settings, plan, elapsed, tally);
    return tally->failed ? 1 : code ? code : absent ? 77 : 0;
}

/* ---- a test executable ---- */

static int run_own(const struct rf_test_settings *settings) {
    if (settings->list && !settings->machine) {
        rf_test_list(settings, stdout);
        return 0;
    }
    struct rf_test_settings all = {.timeout_scale = 1};
    struct rf_test_plan plan = {0};
    struct rf_test_tally tally = {0};
    /* Names that exist twice are refused, whichever tests were asked for. */
    rf_test_plan_own(&plan, &all);
    const struct rf_test_job *twice = rf_test_plan_duplicate(&plan);
    int code = twice ? 2 : 0;
    if (twice)
        fprintf(stderr, "%s:%d: the test %s exists twice: rename one\n", twice->file, twice->line, twice->name);
    rf_test_plan_finish(&plan);
    if (code) return code;
    if (settings->list) {
        rf_test_list(settings, stdout);
        return 0;
    }
    rf_test_plan_own(&plan, settings);
    code = run_and_close(settings, &plan, &tally);
    rf_test_plan_finish(&plan);
    return code;
}

int rf_test_main(int argc, char **argv) {
    struct rf_test_settings settings;
    enum rf_test_parsed parsed = rf_test_settings_parse(&settings, argc, argv, false);
    /* Programs that a test starts must not inherit the runner's pipe. */
    if (settings.record_fd >= 0) fcntl(settings.record_fd, F_SETFD, FD_CLOEXEC);
    int code = 2;
    if (parsed == RF_TEST_HELP) {
        printf("usage: %s [options] [PATTERN…]\nRuns the tests of this executable, each in its own process.\n\n%s",
               argv[0], rf_test_option_help);
        code = 0;
    } else if (parsed == RF_TEST_RUN) {
        rf_test_set_seed(settings.seed);
        code = settings.health                         ? rf_test_health_here(settings.health, settings.record_fd)
               : settings.run_one || settings.run_list ? run_child(&settings)
                                                       : run_own(&settings);
    }
    rf_test_settings_finish(&settings);
    return code;
}

/* ---- rocmforge test ---- */

static int check_executables(const struct rf_test_settings *settings) {
    for (size_t i = 0; i < settings->executable_count; i++) {
        const char *path = settings->executables[i];
        struct stat info;
        if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
            errno = EISDIR;
        } else if (access(path, X_OK) == 0) {
            for (size_t j = 0; j < i; j++) {
                if (strcmp(path, settings->executables[j]) != 0) continue;
                fprintf(stderr, "%s: %s is named twice\n", settings->program, path);
                return 2;
            }
            continue;
        }
        fprintf(stderr, "%s: %s cannot be run: %s\n", settings->program, path, strerror(errno));
        return 2;
    }
    return 0;
}

static int run_executables(const struct rf_test_settings *settings) {
    if (settings->executable_count == 0) {
        fprintf(stderr, "%s: name at least one test executable, or a command after --\n", settings->program);
        return 2;
    }
    int code = check_executables(settings);
    struct rf_test_plan plan = {0};
    struct rf_test_tally tally = {0};
    for (size_t i = 0; i < settings->executable_count && !code; i++) {
        char *trouble = NULL;
        int result = rf_test_plan_executable(&plan, settings, settings->executables[i], &trouble);
        if (result == 1) rf_test_report_trouble(settings->executables[i], trouble, &tally);
        if (result == 2) {
            fprintf(stderr, "%s: %s: %s\n", settings->program, settings->executables[i], trouble);
            code = 2;
        }
        free(trouble);
    }
    if (!code && settings->list) {
        for (size_t i = 0; i < plan.count; i++) printf("%s %s\n", plan.jobs[i].executable, plan.jobs[i].name);
        code = tally.failed ? 1 : 0;
    } else if (!code) {
        code = run_and_close(settings, &plan, &tally);
    }
    rf_test_plan_finish(&plan);
    return code;
}

static int run_any_command(const struct rf_test_settings *settings) {
    if (settings->executable_count || !settings->command[0]) {
        fprintf(stderr, "%s: %s\n", settings->program,
                settings->command[0] ? "give either test executables or, after --, one command"
                                     : "no command follows --");
        return 2;
    }
    return rf_test_run_command(settings);
}

int rf_test_main_executables(int argc, char **argv) {
    struct rf_test_settings settings;
    enum rf_test_parsed parsed = rf_test_settings_parse(&settings, argc, argv, true);
    int code = 2;
    if (parsed == RF_TEST_HELP) {
        printf("usage: rocmforge test [options] EXECUTABLE…\n"
               "       rocmforge test [options] -- COMMAND [ARGUMENT…]\n"
               "Runs the tests of executables that are linked with librocmforge-test, each test in its own process.\n"
               "The second form runs any command under the same GPU lock, with a deadline (--timeout SECONDS,\n"
               "default 600), and passes on its exit status.\n\n%s",
               rf_test_option_help);
        code = 0;
    } else if (parsed == RF_TEST_RUN) {
        code = settings.health    ? rf_test_health_here(settings.health, settings.record_fd)
               : settings.command ? run_any_command(&settings)
                                  : run_executables(&settings);
    }
    rf_test_settings_finish(&settings);
    return code;
}
