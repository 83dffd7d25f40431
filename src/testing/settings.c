/* The options of a test executable and of `rocmforge test`: the same for both. */
#include "runner_impl.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

const char rf_test_option_help[] =
    "Which tests\n"
    "  --list                 only list the names of the tests\n"
    "  --match PATTERN        only tests whose suite.name matches, such as 'budget.*'; may be repeated\n"
    "  --tag TAG              only tests with this tag; may be repeated\n"
    "  --skip-tag TAG         skip tests with this tag; may be repeated\n"
    "  --gpu-only             only tests that use a GPU; exit status 77 if there is none\n"
    "  --rerun-failed         only tests that failed when they last ran\n"
    "How\n"
    "  --jobs N               run N tests at a time (default: one per core)\n"
    "  --gpu-jobs N           run N GPU tests at a time, if memory allows (default: 1)\n"
    "  --gpu-wait SECONDS     wait at most this long for the GPU (default: 3600)\n"
    "  --repeat N             run each test N times, each time with another seed\n"
    "  --until-fail           repeat until a test fails\n"
    "  --fail-fast            start no further test after a failure\n"
    "  --shuffle SEED         run in a random order drawn from this seed\n"
    "  --seed N               seed of random input (default: RF_TEST_SEED, else random)\n"
    "  --timeout-scale X      multiply every time limit\n"
    "  --no-rerun             do not rerun alone the tests that failed in company\n"
    "  --in-process           run all tests of an executable in one process; if the executable itself is\n"
    "                         run, in its own process, without time limits, for a debugger\n"
    "Checks\n"
    "  --check LIST           RF_CHECK for all tests: guard, poison, handle, launch, separated by commas\n"
    "  --fail-alloc           refuse each test's first GPU allocation, then its second, and so on: every\n"
    "                         run must end by itself and leave nothing behind\n"
    "Output\n"
    "  --show-output          show what tests print, as they print it\n"
    "  --debug                the same, with stages, launches, first values (RF_TEST_DEBUG=1, RF_LOG=debug)\n"
    "  --verbose              one line per test, however many there are\n"
    "  --quiet                only failures and the closing line\n"
    "  --slowest N            list the N slowest tests (default: 5 if the run takes more than 5 s)\n"
    "  --junit FILE           write a JUnit XML report\n"
    "  --json FILE            write a JSON report\n"
    "  --help                 show this help\n"
    "Exit status: 0 no test failed, 1 a test failed, 2 the command line is wrong, 77 --gpu-only without a GPU.\n";

enum long_only {
    MATCH = 256,
    TAG,
    SKIP_TAG,
    GPU_ONLY,
    RERUN_FAILED,
    JOBS,
    GPU_JOBS,
    GPU_WAIT,
    REPEAT,
    UNTIL_FAIL,
    FAIL_FAST,
    SHUFFLE,
    SEED,
    SCALE,
    TIMEOUT,
    NO_RERUN,
    IN_PROCESS,
    CHECK,
    FAIL_ALLOC,
    SHOW,
    DEBUG,
    VERBOSE,
    QUIET,
    SLOWEST,
    JUNIT,
    JSON,
    LIST,
    MACHINE,
    ONE,
    BEFORE,
    RUN_LIST,
    HEALTH,
    RECORD_FD,
    HELP
};

static const struct option options[] = {
    {"list", no_argument, NULL, LIST},
    {"match", required_argument, NULL, MATCH},
    {"tag", required_argument, NULL, TAG},
    {"skip-tag", required_argument, NULL, SKIP_TAG},
    {"gpu-only", no_argument, NULL, GPU_ONLY},
    {"rerun-failed", no_argument, NULL, RERUN_FAILED},
    {"jobs", required_argument, NULL, JOBS},
    {"gpu-jobs", required_argument, NULL, GPU_JOBS},
    {"gpu-wait", required_argument, NULL, GPU_WAIT},
    {"repeat", required_argument, NULL, REPEAT},
    {"until-fail", no_argument, NULL, UNTIL_FAIL},
    {"fail-fast", no_argument, NULL, FAIL_FAST},
    {"shuffle", required_argument, NULL, SHUFFLE},
    {"seed", required_argument, NULL, SEED},
    {"timeout-scale", required_argument, NULL, SCALE},
    {"timeout", required_argument, NULL, TIMEOUT},
    {"no-rerun", no_argument, NULL, NO_RERUN},
    {"in-process", no_argument, NULL, IN_PROCESS},
    {"check", required_argument, NULL, CHECK},
    {"fail-alloc", no_argument, NULL, FAIL_ALLOC},
    {"show-output", no_argument, NULL, SHOW},
    {"debug", no_argument, NULL, DEBUG},
    {"verbose", no_argument, NULL, VERBOSE},
    {"quiet", no_argument, NULL, QUIET},
    {"slowest", required_argument, NULL, SLOWEST},
    {"junit", required_argument, NULL, JUNIT},
    {"json", required_argument, NULL, JSON},
    {"help", no_argument, NULL, HELP},
    /* between the runner and an executable */
    {"machine", no_argument, NULL, MACHINE},
    {"run-one", required_argument, NULL, ONE},
    {"before", required_argument, NULL, BEFORE},
    {"run-list", required_argument, NULL, RUN_LIST},
    {"health-probe", required_argument, NULL, HEALTH},
    {"record-fd", required_argument, NULL, RECORD_FD},
    {NULL, 0, NULL, 0},
};

static bool parse_whole(const char *text, uint64_t low, uint64_t high, uint64_t *value) {
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 0);
    if (text[0] < '0' || text[0] > '9' || *end || errno || number < low || number > high) return false;
    *value = number;
    return true;
}

static bool parse_real(const char *text, double low, double high, double *value) {
    char *end;
    double number = strtod(text, &end);
    if (end == text || *end || !(number > low && number <= high)) return false;
    *value = number;
    return true;
}

/* Each word once is as long as a list may be: it goes into the environment of tests (rf_test_command). */
static bool is_check_list(const char *text) {
    static const char *const words[] = {"guard", "poison", "handle", "launch"};
    if (strlen(text) > strlen("guard,poison,handle,launch")) return false;
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ","), i = 0;
        while (i < 4 && (strlen(words[i]) != length || memcmp(words[i], at, length) != 0)) i++;
        if (i == 4) return false;
        at += length;
        if (!*at) return true;
    }
}

static void add(const char ***list, size_t *count, const char *text) {
    *list = rf_test_grow(*list, (*count + 1) * sizeof **list);
    (*list)[(*count)++] = text;
}

static bool take_number(struct rf_test_settings *settings, int option, const char *value) {
    uint64_t number = 0;
    double real = 0;
    bool valid = true;
    switch (option) {
    case SCALE: return parse_real(value, 0, 1000, &settings->timeout_scale);
    case TIMEOUT:
        if ((valid = parse_real(value, 0, 864000, &real))) settings->timeout_ms = (int64_t)(real * 1000) + 1;
        break;
    case GPU_WAIT:
        if ((valid = parse_real(value, -1, 864000, &real))) settings->gpu_wait_ms = (int64_t)(real * 1000);
        break;
    case SEED: return parse_whole(value, 0, UINT64_MAX, &settings->seed);
    case SHUFFLE: settings->shuffle = true; return parse_whole(value, 0, UINT64_MAX, &settings->shuffle_seed);
    case JOBS:
        if ((valid = parse_whole(value, 1, 1024, &number))) settings->jobs = (int)number;
        break;
    case GPU_JOBS:
        if ((valid = parse_whole(value, 1, 64, &number))) settings->gpu_jobs = (int)number;
        break;
    case REPEAT:
        if ((valid = parse_whole(value, 1, 1000000, &number))) settings->repeat = (long)number;
        break;
    case SLOWEST:
        if ((valid = parse_whole(value, 0, 1000000, &number))) settings->slowest = (int)number;
        break;
    case RECORD_FD:
        if ((valid = parse_whole(value, 3, 65535, &number))) settings->record_fd = (int)number;
        break;
    default: break;
    }
    return valid;
}

/* Handles one option; false if its value is wrong. */
static bool take(struct rf_test_settings *settings, int option, const char *value) {
    switch (option) {
    case LIST: settings->list = true; break;
    case MACHINE: settings->machine = true; break;
    case GPU_ONLY: settings->gpu_only = true; break;
    case RERUN_FAILED: settings->rerun_failed = true; break;
    case UNTIL_FAIL: settings->until_fail = true; break;
    case FAIL_FAST: settings->fail_fast = true; break;
    case NO_RERUN: settings->no_rerun = true; break;
    case FAIL_ALLOC: settings->fail_alloc = true; break;
    case SHOW: settings->show_output = true; break;
    case DEBUG: settings->debug = settings->show_output = true; break;
    case VERBOSE: settings->verbose = true; break;
    case QUIET: settings->quiet = true; break;
    case IN_PROCESS: settings->in_process = true; break;
    case ONE: settings->run_one = value; break;
    case BEFORE: settings->before = value; break;
    case RUN_LIST: settings->run_list = value; break;
    case HEALTH: settings->health = value; break;
    case JUNIT: settings->junit = value; break;
    case JSON: settings->json = value; break;
    case CHECK: settings->check = value; return is_check_list(value);
    case MATCH: add(&settings->patterns, &settings->pattern_count, value); break;
    case TAG: add(&settings->tags, &settings->tag_count, value); break;
    case SKIP_TAG: add(&settings->skip_tags, &settings->skip_tag_count, value); break;
    default: return take_number(settings, option, value);
    }
    return true;
}

enum rf_test_parsed rf_test_settings_parse(struct rf_test_settings *settings, int argc, char **argv,
                                           bool executables) {
    *settings = (struct rf_test_settings){.jobs = (int)rf_usable_cores(),
                                          .gpu_jobs = 1,
                                          .repeat = 0,
                                          .slowest = -1,
                                          .timeout_scale = 1,
                                          .gpu_wait_ms = 3600000,
                                          .seed = rf_test_seed(),
                                          .program = argv[0],
                                          .record_fd = -1};
    /* What follows "--" is a command with its own options: getopt must not touch it. */
    int own = argc;
    for (int i = 1; executables && i < argc && own == argc; i++)
        if (strcmp(argv[i], "--") == 0) own = i;
    optind = 0; /* glibc: start over */
    int option, index = 0;
    /* The colon in front keeps getopt from printing messages of its own. */
    while ((option = getopt_long(own, argv, ":", options, &index)) != -1) {
        if (option == HELP) return RF_TEST_HELP;
        if (option == '?' || option == ':') {
            fprintf(stderr, "%s: %s %s: --help shows the options\n", argv[0],
                    option == '?' ? "unknown option" : "a value is missing after", argv[optind - 1]);
            return RF_TEST_WRONG;
        }
        if (!take(settings, option, optarg)) {
            fprintf(stderr, "%s: --%s does not accept \"%s\": --help shows the options\n", argv[0],
                    options[index].name, optarg);
            return RF_TEST_WRONG;
        }
    }
    for (; optind < own; optind++) {
        if (executables)
            add(&settings->executables, &settings->executable_count, argv[optind]);
        else
            add(&settings->patterns, &settings->pattern_count, argv[optind]);
    }
    if (own < argc) settings->command = argv + own + 1;
    if (!settings->repeat) settings->repeat = settings->until_fail ? 1000000 : 1;
    return RF_TEST_RUN;
}

void rf_test_settings_finish(struct rf_test_settings *settings) {
    free(settings->patterns);
    free(settings->tags);
    free(settings->skip_tags);
    free(settings->executables);
}
