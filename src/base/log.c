/* The log: lines for the runtime's callback, never for a stream of our own.
 *
 * Invariants: the callback runs on one thread at a time; what it does (calls of its own that fail, errno) is
 * invisible to the code that logged; a line logged from inside the callback is dropped and causes no deadlock. This
 * file restores the error text and errno after the callback; it cannot check that nothing shows.
 * log.callback_is_invisible (tests/base/test_log.c) checks that from outside. */
#include "base/base.h"

#include <errno.h>
#include <stdio.h>

void rf_log_init(struct rf_log *log, rf_log_fn fn, void *user, enum rf_log_level level) {
    *log = (struct rf_log){.fn = fn, .user = user, .level = level};
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&log->mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

void rf_log_finish(struct rf_log *log) {
    log->fn = NULL;
    pthread_mutex_destroy(&log->mutex);
}

void rf_logf(struct rf_log *log, enum rf_log_level level, const char *format, ...) {
    if (!log->fn || level == RF_LOG_NONE || level > log->level) return;
    char line[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < 0x20) *c = ' ';

    struct rf_saved_error saved;
    rf_error_save(&saved);
    int saved_errno = errno;
    pthread_mutex_lock(&log->mutex);
    if (!log->calling) {
        log->calling = true;
        log->fn(log->user, level, line);
        rf_assert(log->calling); /* no other thread was in here meanwhile */
        log->calling = false;
    }
    pthread_mutex_unlock(&log->mutex);
    errno = saved_errno;
    rf_error_restore(&saved);
}
