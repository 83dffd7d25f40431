/* The log callback: levels, one thread at a time, invisible to the code that logs. */
#include "base/base.h"
#include <rocmforge/test.h>

#include <errno.h>
#include <pthread.h>

struct heard {
    struct rf_log *log;
    int count;
    char last[256];
    enum rf_log_level level;
    bool log_again;
};

static void hear(void *user, enum rf_log_level level, const char *line) {
    struct heard *heard = user;
    heard->count++;
    heard->level = level;
    strncpy(heard->last, line, sizeof heard->last - 1);
    rf_fail(RF_E_IO, "the callback failed");
    errno = ENOSPC;
    if (heard->log_again) rf_logf(heard->log, RF_LOG_ERROR, "from inside");
}

RF_TEST(log, levels) {
    struct rf_log log;
    struct heard heard = {.log = &log};
    rf_log_init(&log, hear, &heard, RF_LOG_WARN);
    rf_logf(&log, RF_LOG_INFO, "too fine");
    rf_logf(&log, RF_LOG_NONE, "no level");
    RF_ASSERT_INT(heard.count, 0);
    rf_logf(&log, RF_LOG_WARN, "%d\n", 5);
    rf_logf(&log, RF_LOG_ERROR, "two\nlines");
    RF_ASSERT_INT(heard.count, 2);
    RF_ASSERT_TEXT(heard.last, "two lines");
    RF_ASSERT_INT(heard.level, RF_LOG_ERROR);
    rf_log_finish(&log);
    rf_log_init(&log, NULL, NULL, RF_LOG_DEBUG);
    rf_logf(&log, RF_LOG_ERROR, "nobody listens");
    rf_log_finish(&log);
}

RF_TEST(log, callback_is_invisible) {
    struct rf_log log;
    struct heard heard = {.log = &log, .log_again = true};
    rf_log_init(&log, hear, &heard, RF_LOG_DEBUG);
    rf_fail(RF_E_BUDGET, "the reason");
    errno = EINTR;
    rf_logf(&log, RF_LOG_INFO, "once");
    RF_ASSERT_INT(errno, EINTR);
    RF_ASSERT_TEXT(rf_error_text(), "the reason");
    RF_ASSERT_INT(heard.count, 1);
    rf_logf(&log, RF_LOG_INFO, "twice");
    RF_ASSERT_INT(heard.count, 2);
    rf_log_finish(&log);
}

static void *log_much(void *log) {
    for (int i = 0; i < 500; i++) rf_logf(log, RF_LOG_INFO, "line %d", i);
    return NULL;
}

RF_TEST(log, one_thread_at_a_time) {
    struct rf_log log;
    struct heard heard = {.log = &log};
    rf_log_init(&log, hear, &heard, RF_LOG_INFO);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) RF_ASSERT(pthread_create(&threads[i], NULL, log_much, &log) == 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    RF_ASSERT_INT(heard.count, 2000); /* unguarded counting would lose some, and TSan would say so */
    rf_log_finish(&log);
}
