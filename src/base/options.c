/* The one options table: every option of the library, its default, its help and the values it allows. A value comes
 * from the overrides, else from the environment, else from the default; an empty value counts as not given.
 *
 * Invariants: a struct rf_options holds valid values only; it does not change after creation (every function but
 * destroy takes it as const), so reading it needs no lock. This file must not know what the values mean beyond their
 * form: the budget's grammar belongs to the runtime layer (runtime/budget_spec.c). */
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>

enum kind {
    TEXT,    /* anything */
    CHOICE,  /* one of 'words' */
    LIST,    /* some of 'words', separated by commas */
    NUMBER,  /* a whole number from low to high */
    FOREIGN, /* read from the environment by other code; only shown here */
};

struct row {
    struct rf_option shown;
    enum kind kind;
    const char *words; /* separated by '|' */
    int64_t low, high;
    const char *simulated; /* the default with RF_DRIVER=sim; NULL: the same default */
};

#define TEXT_ROW(name, value, help) {{name, value, help}, TEXT, NULL, 0, 0, NULL}
#define CHOICE_ROW(name, value, words, help) {{name, value, help}, CHOICE, words, 0, 0, NULL}
#define LIST_ROW(name, value, words, help) {{name, value, help}, LIST, words, 0, 0, NULL}
#define NUMBER_ROW(name, value, low, high, help) {{name, value, help}, NUMBER, NULL, low, high, NULL}
#define DEADLINE_ROW(name, value, simulated, help) {{name, value, help}, NUMBER, NULL, 1, 3600000, simulated}
#define FOREIGN_ROW(name, value, help) {{name, value, help}, FOREIGN, NULL, 0, 0, NULL}

/* clang-format off */
static const struct row table[] = {
    CHOICE_ROW("RF_DRIVER", "auto", "auto|hip|cuda|sim|none",
        "which driver: auto (whichever has a usable GPU), hip, cuda, sim (the simulated one, for tests), none"),
    TEXT_ROW("RF_HIP_LIBRARY", "", "path of the HIP library; empty: libamdhip64 by its usual names"),
    TEXT_ROW("RF_CUDA_LIBRARY", "", "path of the CUDA driver library; empty: libcuda.so.1"),
    TEXT_ROW("RF_NVML_LIBRARY", "", "path of the NVIDIA management library; empty: libnvidia-ml.so.1"),
    TEXT_ROW("RF_BUDGET", "70%",
        "GPU memory to take at most: 70% (of what is free), 12GiB, keep=2GiB, keep=30%, or several with commas"),
    TEXT_ROW("RF_HOST_BUDGET", "60%", "host memory to take at most, of what is available; written as RF_BUDGET"),
    /* The simulated driver computes on the host, at the pace that the host's other work leaves it. */
    DEADLINE_ROW("RF_TIMEOUT_MS", "10000", "200000",
        "deadline of waits that name none, in milliseconds; with RF_DRIVER=sim 200000 unless it is given"),
    DEADLINE_ROW("RF_PROBE_TIMEOUT_MS", "10000", "200000",
        "deadline for finding the GPUs, in milliseconds; with RF_DRIVER=sim 200000 unless it is given"),
    TEXT_ROW("RF_PROBE_HELPER", "", "path of the probe helper; empty: found beside the library"),
    LIST_ROW("RF_CHECK", "", "guard|poison|handle|launch",
        "checks that cost time, with commas: guard (bands around allocations), poison (fresh and freed memory is "
        "scribbled), handle (foreign and freed handles are refused), launch (each launch is waited for)"),
    CHOICE_ROW("RF_LOG", "warn", "none|error|warn|info|debug", "how much is logged: none, error, warn, info, debug"),
    CHOICE_ROW("RF_REPLAY", "on", "on|off",
        "whether work may be recorded and replayed: on, or off (kernels are launched one by one)"),
    NUMBER_ROW("RF_THREADS", "0", 0, 4096, "CPU threads; 0: one per core"),
    TEXT_ROW("RF_SYSFS", "/sys", "where the kernel's figures about GPUs are read"),
    TEXT_ROW("RF_DEV", "/dev", "where AMD's device nodes are looked for if HIP finds no device"),
    TEXT_ROW("RF_FAIL_ALLOC", "",
        "N or N:PATH: the Nth device allocation of a runtime is refused, and PATH then made; to test what a program "
        "does about it"),
    TEXT_ROW("RF_LEASE_DIR", "", "folder for lease files instead of the usual ones: a budget apart"),
    FOREIGN_ROW("RFSIM", "", "configures the simulated driver, which alone reads it, from the environment"),
};
/* clang-format on */

struct rf_options {
    char *values[RF_COUNT(table)]; /* owned, never NULL once created */
};

size_t rf_option_count(void) {
    return RF_COUNT(table);
}

const struct rf_option *rf_option_at(size_t index) {
    return index < RF_COUNT(table) ? &table[index].shown : NULL;
}

static size_t find_row(const char *name, size_t length) {
    size_t index = 0;
    while (index < RF_COUNT(table) &&
           (strlen(table[index].shown.name) != length || memcmp(table[index].shown.name, name, length) != 0))
        index++;
    return index;
}

static bool is_word(const char *words, const char *word, size_t length) {
    for (const char *at = words; at; at = strchr(at, '|'), at = at ? at + 1 : NULL)
        if (strcspn(at, "|") == length && memcmp(at, word, length) == 0) return true;
    return false;
}

static bool is_list(const char *words, const char *value) {
    while (true) {
        size_t length = strcspn(value, ",");
        if (!is_word(words, value, length)) return false;
        value += length;
        if (!*value) return true;
        value++;
    }
}

static bool parse_number(const char *value, int64_t *number) {
    size_t digits = strspn(value, "0123456789");
    if (digits == 0 || value[digits] || digits > 18) return false;
    *number = strtoll(value, NULL, 10);
    return true;
}

static void describe_allowed(const struct row *row, char *text, size_t size) {
    if (row->kind == NUMBER)
        snprintf(text, size, "a whole number from %lld to %lld", (long long)row->low, (long long)row->high);
    else
        snprintf(text, size, "%s%s", row->kind == LIST ? "with commas, some of " : "one of ", row->words);
}

enum { DRIVER_ROW = 0 }; /* RF_DRIVER comes first: other defaults depend on it */

static const char *default_of(const struct row *row, const struct rf_options *options) {
    bool simulated = row->simulated && strcmp(options->values[DRIVER_ROW], "sim") == 0;
    return simulated ? row->simulated : row->shown.default_value;
}

static rf_status check_value(const struct row *row, const char *value) {
    int64_t number = 0;
    bool valid = true;
    switch (row->kind) {
    case CHOICE: valid = is_word(row->words, value, strlen(value)); break;
    case LIST: valid = !*value || is_list(row->words, value); break;
    case NUMBER: valid = parse_number(value, &number) && number >= row->low && number <= row->high; break;
    case TEXT:
    case FOREIGN: break;
    }
    if (valid) return RF_OK;
    char allowed[128];
    describe_allowed(row, allowed, sizeof allowed);
    return rf_fail(RF_E_SYNTAX, "option %s=%.80s is not allowed: give %s", row->shown.name, value, allowed);
}

/* Finds each override's row. If several have the same name, the last one wins. */
static rf_status sort_overrides(const char *const *overrides, const char *given[RF_COUNT(table)]) {
    for (; overrides && *overrides; overrides++) {
        const char *equals = strchr(*overrides, '=');
        if (!equals) return rf_fail(RF_E_SYNTAX, "option \"%.80s\" has no value: write NAME=VALUE", *overrides);
        size_t index = find_row(*overrides, (size_t)(equals - *overrides));
        if (index == RF_COUNT(table))
            return rf_fail(RF_E_SYNTAX, "option \"%.80s\" is unknown: rocmforge doctor --options lists the names",
                           *overrides);
        if (table[index].kind == FOREIGN)
            return rf_fail(RF_E_SYNTAX, "option %s can be set in the environment only", table[index].shown.name);
        given[index] = equals + 1;
    }
    return RF_OK;
}

#if RF_CHECKS >= 2
static bool options_are_valid(const struct rf_options *options, const char **why) {
    for (size_t i = 0; i < RF_COUNT(table); i++)
        RF_INVALID_UNLESS(options->values[i] && check_value(&table[i], options->values[i]) == RF_OK,
                          "an option holds a value that its row does not allow");
    return true;
}
#endif

rf_status rf_options_create(const char *const *overrides, struct rf_options **out) {
    const char *given[RF_COUNT(table)] = {NULL};
    rf_status status = sort_overrides(overrides, given);
    if (status != RF_OK) return status;
    struct rf_options *options = calloc(1, sizeof *options);
    if (!options) return rf_fail(RF_E_NO_MEMORY, "no memory for the options");
    for (size_t i = 0; i < RF_COUNT(table); i++) {
        const char *value = given[i] ? given[i] : getenv(table[i].shown.name);
        if (!value || !*value) value = default_of(&table[i], options);
        status = check_value(&table[i], value);
        if (status == RF_OK && !(options->values[i] = strdup(value)))
            status = rf_fail(RF_E_NO_MEMORY, "no memory for the options");
        if (status != RF_OK) {
            rf_options_destroy(&options);
            return status;
        }
    }
    rf_assert_valid(options_are_valid, options);
    *out = options;
    return RF_OK;
}

void rf_options_destroy(struct rf_options **options) {
    if (!options || !*options) return;
    for (size_t i = 0; i < RF_COUNT(table); i++) free((*options)->values[i]);
    free(*options);
    *options = NULL;
}

const char *rf_options_get(const struct rf_options *options, const char *name) {
    if (!options || !name) return NULL;
    size_t index = find_row(name, strlen(name));
    return index < RF_COUNT(table) ? options->values[index] : NULL;
}

int64_t rf_options_int(const struct rf_options *options, const char *name) {
    const char *value = rf_options_get(options, name);
    int64_t number = 0;
    return value && parse_number(value, &number) ? number : 0;
}
