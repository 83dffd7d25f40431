/* The tests of this executable, as their constructors registered them. Registration happens
 * before main, on one thread; afterwards the list does not change. */
#include "testing_impl.h"

#include <string.h>

static struct rf_test *first, **last = &first;

void rf_test_register(struct rf_test *test) {
    test->next = NULL;
    *last = test;
    last = &test->next;
}

struct rf_test *rf_test_first(void) {
    return first;
}

void rf_test_full_name(const struct rf_test *test, char *text, size_t size) {
    snprintf(text, size, "%s.%s", test->suite, test->name);
}

struct rf_test *rf_test_find(const char *full_name) {
    char name[RF_TEST_NAME_BYTES];
    for (struct rf_test *test = first; test; test = test->next) {
        rf_test_full_name(test, name, sizeof name);
        if (strcmp(name, full_name) == 0) return test;
    }
    return NULL;
}

const struct rf_test *rf_test_duplicate(void) {
    char name[RF_TEST_NAME_BYTES];
    for (const struct rf_test *test = first; test; test = test->next) {
        rf_test_full_name(test, name, sizeof name);
        if (rf_test_find(name) != test) return test;
    }
    return NULL;
}

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SANITIZER_FACTOR 10
#elif __has_feature(address_sanitizer) || __has_feature(undefined_behavior_sanitizer)
#define SANITIZER_FACTOR 4
#endif
#endif
#if !defined(SANITIZER_FACTOR) && defined(__SANITIZE_THREAD__)
#define SANITIZER_FACTOR 10
#elif !defined(SANITIZER_FACTOR) && defined(__SANITIZE_ADDRESS__)
#define SANITIZER_FACTOR 4
#elif !defined(SANITIZER_FACTOR)
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
