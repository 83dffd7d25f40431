/* The command line: of a test executable (rf_test_main) and of `rocmforge test`
 * (rf_test_main_executables), with the same options. */
#include "testing_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static const char option_help[] =
    "  --list                 show the tests' names and do nothing else\n"
    "  --match PATTERN        only tests whose suite.name matches, such as 'budget.*'; may be repeated\n"
    "  --tag TAG              only tests with this tag; may be repeated\n"
    "  --skip-tag TAG         skip tests with this tag; may be repeated\n"
    "  --jobs N               so many tests at a time (default: one per core); GPU tests never overlap\n"
    "  --repeat N             run each test N times, each with a seed of its own\n"
    "  --seed N               the seed of random input (default: RF_TEST_SEED, else drawn)\n"
    "  --timeout-scale X      multiply every test's time limit\n"
    "  --show-output          show what passing tests print, too\n"
    "  --quiet                show failures and the closing line only\n"
    "  --in-process           all tests in one process, without time limits, for a debugger\n"
    "  --help                 this text\n"
    "Exit status: 0 no test failed, 1 a test failed, 2 the command line is wrong.\n";

enum long_only {
    MATCH = 256,
    TAG,
    SKIP_TAG,
    JOBS,
    REPEAT,
    SEED,
    SCALE,
    SHOW,
    QUIET,
    IN_PROCESS,
    LIST,
    MACHINE,
    ONE,
    RECORD_FD,
    HELP
};

static const struct option options[] = {
    {"list", no_argument, NULL, LIST},
    {"match", required_argument, NULL, MATCH},
    {"tag", required_argument, NULL, TAG},
    {"skip-tag", required_argument, NULL, SKIP_TAG},
    {"jobs", required_argument, NULL, JOBS},
    {"repeat", required_argument, NULL, REPEAT},
    {"seed", required_argument, NULL, SEED},
    {"timeout-scale", required_argument, NULL, SCALE},
    {"show-output", no_argument, NULL, SHOW},
    {"quiet", no_argument, NULL, QUIET},
    {"in-process", no_argument, NULL, IN_PROCESS},
    {"help", no_argument, NULL, HELP},
    /* between the runner and an executable */
    {"machine", no_argument, NULL, MACHINE},
    {"run-one", required_argument, NULL, ONE},
    {"record-fd", required_argument, NULL, RECORD_FD},
    {NULL, 0, NULL, 0},
};

enum parsed { RUN, SHOW_HELP, WRONG };

static int core_count(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

static bool parse_whole(const char *text, uint64_t low, uint64_t high, uint64_t *value) {
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 0);
    if (text[0] < '0' || text[0] > '9' || *end || errno || number < low || number > high) return false;
    *value = number;
    return true;
}

static bool parse_scale(const char *text, double *value) {
    char *end;
    double number = strtod(text, &end);
    if (end == text || *end || !(number > 0 && number <= 1000)) return false;
    *value = number;
    return true;
}

static void add(const char ***list, size_t *count, const char *text) {
    *list = rf_test_grow(*list, (*count + 1) * sizeof **list);
    (*list)[(*count)++] = text;
}

/* One option; false where its value is wrong. */
static bool take(struct rf_test_settings *settings, int option, const char *value) {
    uint64_t number = 0;
    bool valid = true;
    switch (option) {
    case LIST: settings->list = true; break;
    case MACHINE: settings->machine = true; break;
    case SHOW: settings->show_output = true; break;
    case QUIET: settings->quiet = true; break;
    case IN_PROCESS: settings->in_process = true; break;
    case ONE: settings->run_one = value; break;
    case MATCH: add(&settings->patterns, &settings->pattern_count, value); break;
    case TAG: add(&settings->tags, &settings->tag_count, value); break;
    case SKIP_TAG: add(&settings->skip_tags, &settings->skip_tag_count, value); break;
    case SCALE: valid = parse_scale(value, &settings->timeout_scale); break;
    case SEED:
        if ((valid = parse_whole(value, 0, UINT64_MAX, &number))) settings->seed = number;
        break;
    case JOBS:
        if ((valid = parse_whole(value, 1, 1024, &number))) settings->jobs = (int)number;
        break;
    case REPEAT:
        if ((valid = parse_whole(value, 1, 1000000, &number))) settings->repeat = (int)number;
        break;
    case RECORD_FD:
        if ((valid = parse_whole(value, 3, 65535, &number))) settings->record_fd = (int)number;
        break;
    default: break;
    }
    return valid;
}

static enum parsed parse(struct rf_test_settings *settings, int argc, char **argv, bool executables) {
    *settings = (struct rf_test_settings){.jobs = core_count(),
                                          .repeat = 1,
                                          .timeout_scale = 1,
                                          .seed = rf_test_seed(),
                                          .program = argv[0],
                                          .record_fd = -1};
    optind = 0; /* glibc: begin afresh */
    opterr = 0;
    int option, index = 0;
    while ((option = getopt_long(argc, argv, ":", options, &index)) != -1) {
        if (option == HELP) return SHOW_HELP;
        if (option == '?' || option == ':') {
            fprintf(stderr, "%s: %s %s: --help shows the options\n", argv[0],
                    option == '?' ? "unknown option" : "no value after", argv[optind - 1]);
            return WRONG;
        }
        if (!take(settings, option, optarg)) {
            fprintf(stderr, "%s: --%s does not take \"%s\": --help shows the options\n", argv[0], options[index].name,
                    optarg);
            return WRONG;
        }
    }
    for (; optind < argc; optind++) {
        if (executables)
            add(&settings->executables, &settings->executable_count, argv[optind]);
        else
            add(&settings->patterns, &settings->pattern_count, argv[optind]);
    }
    return RUN;
}

static void finish(struct rf_test_settings *settings) {
    free(settings->patterns);
    free(settings->tags);
    free(settings->skip_tags);
    free(settings->executables);
}

/* The isolated process: one test, then the end. */
static int run_one(const struct rf_test_settings *settings) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a killed runner leaves nothing running */
    const struct rf_test *test = rf_test_find(settings->run_one);
    if (!test) {
        fprintf(stderr, "no test is named %s\n", settings->run_one);
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0); /* a crash should not take the last lines with it */
    enum rf_test_verdict verdict = rf_test_run_here(test, settings->record_fd);
    return verdict == RF_TEST_PASSED ? 0 : verdict == RF_TEST_SKIPPED ? 77 : 1;
}

static int run_and_close(const struct rf_test_settings *settings, const struct rf_test_plan *plan,
                         struct rf_test_tally *tally, const char *program) {
    if (plan->count == 0 && tally->failed == 0) {
        fprintf(stderr, "%s: no test matches: --list shows the names\n", program);
        return 2;
    }
    rf_test_run_plan(settings, plan, tally);
    rf_test_report_end(tally);
    return tally->failed ? 1 : 0;
}

static int run_own(const struct rf_test_settings *settings, const char *program) {
    const struct rf_test *twice = rf_test_duplicate();
    if (twice) {
        fprintf(stderr, "%s:%d: the test %s.%s exists twice: rename one\n", twice->file, twice->line, twice->suite,
                twice->name);
        return 2;
    }
    if (settings->list) {
        rf_test_list(settings, stdout);
        return 0;
    }
    struct rf_test_plan plan = {0};
    struct rf_test_tally tally = {0};
    rf_test_plan_own(&plan, settings);
    int code = run_and_close(settings, &plan, &tally, program);
    rf_test_plan_finish(&plan);
    return code;
}

int rf_test_main(int argc, char **argv) {
    struct rf_test_settings settings;
    enum parsed parsed = parse(&settings, argc, argv, false);
    /* Programs that a test starts must not hold the runner's pipe. */
    if (settings.record_fd >= 0) fcntl(settings.record_fd, F_SETFD, FD_CLOEXEC);
    int code = 2;
    if (parsed == SHOW_HELP) {
        printf("usage: %s [options] [PATTERN…]\nRuns its tests, each in a process of its own.\n%s", argv[0],
               option_help);
        code = 0;
    } else if (parsed == RUN) {
        rf_test_set_seed(settings.seed);
        code = settings.run_one ? run_one(&settings) : run_own(&settings, argv[0]);
    }
    finish(&settings);
    return code;
}

static int run_executables(const struct rf_test_settings *settings, const char *program) {
    if (settings->in_process || settings->run_one || settings->machine) {
        fprintf(stderr, "%s: --in-process is for a test executable itself: run it alone\n", program);
        return 2;
    }
    if (settings->executable_count == 0) {
        fprintf(stderr, "%s: name at least one test executable\n", program);
        return 2;
    }
    for (size_t i = 0; i < settings->executable_count; i++) {
        if (access(settings->executables[i], X_OK) == 0) continue;
        fprintf(stderr, "%s: %s cannot be run: %s\n", program, settings->executables[i], strerror(errno));
        return 2;
    }
    struct rf_test_plan plan = {0};
    struct rf_test_tally tally = {0};
    for (size_t i = 0; i < settings->executable_count; i++) {
        char *trouble = rf_test_plan_executable(&plan, settings, settings->executables[i]);
        if (trouble) rf_test_report_trouble(settings->executables[i], trouble, &tally);
        free(trouble);
    }
    int code;
    if (settings->list) {
        for (size_t i = 0; i < plan.count; i++) printf("%s %s\n", plan.jobs[i].executable, plan.jobs[i].name);
        code = tally.failed ? 1 : 0;
    } else {
        code = run_and_close(settings, &plan, &tally, program);
    }
    rf_test_plan_finish(&plan);
    return code;
}

int rf_test_main_executables(int argc, char **argv) {
    struct rf_test_settings settings;
    enum parsed parsed = parse(&settings, argc, argv, true);
    int code = 2;
    if (parsed == SHOW_HELP) {
        printf("usage: rocmforge test [options] EXECUTABLE…\n"
               "Runs the tests of several executables, each test in a process of its own.\n%s",
               option_help);
        code = 0;
    } else if (parsed == RUN) {
        code = run_executables(&settings, argv[0]);
    }
    finish(&settings);
    return code;
}
