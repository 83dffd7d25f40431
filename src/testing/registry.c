/* The tests and suites of this executable, as their constructors registered them. Registration happens before main,
 * on one thread; afterwards the lists do not change.
 *
 * Invariant: the index by name is built only when it pays off. With it ten thousand tests can be found, and checked
 * for duplicates, without comparing each with each; a process that runs one test looks up one name and does without.
 * It is asserted that the index is at most half full, so that a search in it ends. */
#include "testing_impl.h"
#include "base/sanitizers.h"

#include <stdlib.h>
#include <string.h>

#define FEW_QUESTIONS 8

static struct rf_test *first, **last = &first;
static struct rf_test_suite *first_suite, **last_suite = &first_suite;
static size_t count;

/* Open addressing; a free slot is NULL. */
static struct rf_test **slots;
static size_t slot_count, indexed_count;
static struct rf_test *twice;

void rf_test_register(struct rf_test *test) {
    test->next = NULL;
    *last = test;
    last = &test->next;
    count++;
}

void rf_test_register_suite(struct rf_test_suite *suite) {
    const struct rf_test_suite *other = rf_test_find_suite(suite->name);
    if (other) {
        /* This runs before main, so nothing else could report it. */
        fprintf(stderr, "%s:%d: the suite %s already has its set-up at %s:%d: merge them\n", suite->file, suite->line,
                suite->name, other->file, other->line);
        exit(2);
    }
    suite->next = NULL;
    *last_suite = suite;
    last_suite = &suite->next;
}

struct rf_test *rf_test_first(void) {
    return first;
}

struct rf_test_suite *rf_test_first_suite(void) {
    return first_suite;
}

struct rf_test_suite *rf_test_find_suite(const char *name) {
    for (struct rf_test_suite *suite = first_suite; suite; suite = suite->next)
        if (strcmp(suite->name, name) == 0) return suite;
    return NULL;
}

void rf_test_full_name(const struct rf_test *test, char *text, size_t size) {
    snprintf(text, size, "%s.%s", test->suite, test->name);
}

static uint64_t hash(const char *text) {
    uint64_t value = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (; *text; text++) value = (value ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return value;
}

/* The slot that holds the name, or the free slot where it belongs. */
static struct rf_test **slot_of(const char *full_name) {
    char name[RF_TEST_NAME_BYTES];
    size_t at = hash(full_name) & (slot_count - 1);
    for (; slots[at]; at = (at + 1) & (slot_count - 1)) {
        rf_test_full_name(slots[at], name, sizeof name);
        if (strcmp(name, full_name) == 0) break;
    }
    return &slots[at];
}

static void build_index(void) {
    if (indexed_count == count && slots) return;
    slot_count = 64;
    while (slot_count < 2 * count) slot_count *= 2;
    slots = rf_test_grow(slots, slot_count * sizeof *slots);
    memset(slots, 0, slot_count * sizeof *slots);
    twice = NULL;
    char name[RF_TEST_NAME_BYTES];
    for (struct rf_test *test = first; test; test = test->next) {
        rf_test_full_name(test, name, sizeof name);
        struct rf_test **slot = slot_of(name);
        if (!*slot)
            *slot = test;
        else if (!twice)
            twice = test;
    }
    indexed_count = count;
    rf_assert(2 * indexed_count <= slot_count);
}

static bool is_named(const struct rf_test *test, const char *full_name) {
    size_t length = strlen(test->suite);
    return strncmp(test->suite, full_name, length) == 0 && full_name[length] == '.' &&
           strcmp(test->name, full_name + length + 1) == 0;
}

struct rf_test *rf_test_find(const char *full_name) {
    static int questions;
    if (questions++ >= FEW_QUESTIONS || (indexed_count == count && slots)) {
        build_index();
        return *slot_of(full_name);
    }
    struct rf_test *test = first;
    while (test && !is_named(test, full_name)) test = test->next;
    return test;
}

const struct rf_test *rf_test_duplicate(void) {
    build_index();
    return twice;
}

#if RF_UNDER_TSAN
#define SANITIZER_FACTOR 10
#elif RF_UNDER_ASAN
#define SANITIZER_FACTOR 4
#else
#define SANITIZER_FACTOR 1
#endif

int rf_test_timeout_ms(const struct rf_test *test) {
    int timeout_ms = test->options.timeout_ms > 0 ? test->options.timeout_ms : RF_TEST_DEFAULT_TIMEOUT_MS;
    return timeout_ms > INT32_MAX / SANITIZER_FACTOR ? INT32_MAX : timeout_ms * SANITIZER_FACTOR;
}

bool rf_test_has_tag(const char *tags, const char *tag) {
    size_t length = strlen(tag);
    for (const char *at = tags; at && *at;) {
        size_t word = strcspn(at, ",");
        if (word == length && memcmp(at, tag, length) == 0) return true;
        at += word;
        if (*at == ',') at++;
    }
    return false;
}
