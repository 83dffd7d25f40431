/* The base layer's internal header: what every other layer may use and the public headers do not show.
 *
 * Invariants: nothing here knows of GPUs; nothing here exits, aborts or prints, except a failed check (assert.c). The
 * only mutable state outside objects is the thread's last error text, as errno is. A running program cannot check
 * this: these are properties of the source, and tools/check_layers.py reads it. */
#ifndef RF_BASE_BASE_H
#define RF_BASE_BASE_H

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

#include <rocmforge/base.h>

#include "base/assert.h"

#define RF_COUNT(array) (sizeof(array) / sizeof(0 [array]))
#define RF_MIN(a, b) ((a) < (b) ? (a) : (b))
#define RF_MAX(a, b) ((a) > (b) ? (a) : (b))

/* Returns from the calling function with the status of a call that failed. */
#define RF_TRY(call)                                                                                                 \
    do {                                                                                                             \
        rf_status try_status = (call);                                                                               \
        if (try_status) return try_status;                                                                           \
    } while (0)

/* ---- status.c: failing with a reason ---- */

/* Sets the thread's error text and returns status. */
rf_status rf_fail(rf_status status, const char *format, ...) RF_PRINTF(2, 3);
/* Puts "prefix: " before the thread's present error text; returns status. */
rf_status rf_fail_within(rf_status status, const char *format, ...) RF_PRINTF(2, 3);
/* Saves and restores the error text around clean-up that may itself fail. */
struct rf_saved_error {
    char text[1024];
};
void rf_error_save(struct rf_saved_error *saved);
void rf_error_restore(const struct rf_saved_error *saved);

/* ---- struct_size.c: structs of programs built for an older or a newer library ---- */

/* Every public function that takes a parameter struct reads it through this, once, and uses the copy from then on:
 *
 *     struct rf_launch own;
 *     rf_status status = RF_PARAMS_READ(struct rf_launch, &own, launch, "rf_queue_launch");
 *     if (status) return status;
 *     launch = &own;
 *
 * Fields that the caller's struct does not have are 0 in the copy, and the copy's struct_size is this library's.
 * RF_E_INVALID: NULL, a struct_size that is not set or was never the struct's, or a set byte that this library does
 * not know. */
#define RF_PARAMS_READ(type, own, given, function)                                                                   \
    rf_params_read(RF_POINTER_TO_(type, own), sizeof(type), sizeof(type), RF_POINTER_TO_(const type, given), #type,  \
                   (function))
/* The same for a struct that has grown: first_new is the first field that its first release did not have. */
#define RF_PARAMS_READ_SINCE(type, first_new, own, given, function)                                                  \
    rf_params_read(RF_POINTER_TO_(type, own), sizeof(type), offsetof(type, first_new),                               \
                   RF_POINTER_TO_(const type, given), #type, (function))
/* Every public function that fills a caller's struct first checks its struct_size, before it does anything else. It
 * then fills a struct of its own and copies it with RF_RESULT_WRITE: as many bytes as the caller's struct holds, and
 * zeros for the rest where the caller's struct is larger. The caller's struct_size does not change. */
#define RF_RESULT_CHECK(type, given, function)                                                                       \
    rf_result_check(RF_POINTER_TO_(const type, given), sizeof(type), sizeof(type), #type, (function))
#define RF_RESULT_WRITE(type, given, filled)                                                                         \
    rf_result_write(RF_POINTER_TO_(type, given), RF_POINTER_TO_(const type, filled), sizeof(type))

#define RF_POINTER_TO_(type, pointer) (1 ? (pointer) : (type *)NULL) /* the compiler checks the type */
rf_status rf_params_read(void *own, size_t known_bytes, size_t least_bytes, const void *given, const char *type,
                         const char *function);
/* The same for an array element that has no struct_size: the caller passed its size as an argument. */
rf_status rf_element_read(void *own, size_t known_bytes, size_t least_bytes, const void *given, size_t given_bytes,
                          const char *type, const char *function);
rf_status rf_result_check(const void *given, size_t known_bytes, size_t least_bytes, const char *type,
                          const char *function);
void rf_result_write(void *given, const void *filled, size_t known_bytes);

/* ---- clock.c ---- */

int64_t rf_now_ns(void); /* CLOCK_MONOTONIC */
void rf_sleep_ns(int64_t ns);
/* An absolute deadline from a relative timeout, without overflow. */
int64_t rf_deadline_after(int64_t timeout_ns);
/* Locks the mutex by an absolute deadline on the clock of rf_now_ns; false if the deadline passed. */
bool rf_mutex_lock_until(pthread_mutex_t *mutex, int64_t deadline_ns);

/* ---- checked arithmetic: true on overflow ---- */

static inline bool rf_add_overflows(uint64_t a, uint64_t b, uint64_t *sum) {
    return __builtin_add_overflow(a, b, sum);
}
static inline bool rf_mul_overflows(uint64_t a, uint64_t b, uint64_t *product) {
    return __builtin_mul_overflow(a, b, product);
}
static inline uint64_t rf_sub_saturate(uint64_t a, uint64_t b) {
    return a > b ? a - b : 0;
}
/* Rounds up to a multiple (> 0); true on overflow. */
static inline bool rf_round_up_overflows(uint64_t value, uint64_t multiple, uint64_t *rounded) {
    uint64_t more = value % multiple ? multiple - value % multiple : 0;
    return rf_add_overflows(value, more, rounded);
}
/* Whether offset + bytes stays within size. */
static inline bool rf_range_fits(uint64_t offset, uint64_t bytes, uint64_t size) {
    return offset <= size && bytes <= size - offset;
}

/* ---- options.c: the one table ---- */

struct rf_options; /* the values in force */
rf_status rf_options_create(const char *const *overrides, struct rf_options **out);
void rf_options_destroy(struct rf_options **options);
const char *rf_options_get(const struct rf_options *options, const char *name); /* NULL: unknown */
int64_t rf_options_int(const struct rf_options *options, const char *name);     /* validated at creation */

/* ---- log.c ---- */

struct rf_log {
    rf_log_fn fn;
    void *user;
    enum rf_log_level level; /* from RF_LOG */
    pthread_mutex_t mutex;   /* recursive: the callback may call the library */
    bool calling;            /* guarded by mutex; a line logged by the callback itself is dropped */
};
void rf_log_init(struct rf_log *log, rf_log_fn fn, void *user, enum rf_log_level level);
void rf_log_finish(struct rf_log *log);
void rf_logf(struct rf_log *log, enum rf_log_level level, const char *format, ...) RF_PRINTF(3, 4);

/* ---- cgroup.c ---- */

/* Calls visit for each control group of this process under a controller ("memory", "cpu"), innermost first: those of
 * version 1, then those of version 2. root: the folder that holds proc and sys, "" for the real ones. */
typedef void (*rf_cgroup_fn)(void *user, int version, const char *folder);
void rf_cgroup_each(const char *root, const char *controller, rf_cgroup_fn visit, void *user);

/* ---- cores.c ---- */

/* How much CPU time control groups allow this process, in whole CPUs, rounded up; UINT64_MAX: no quota. root: as
 * above. The public function rf_usable_cores takes this quota into account. */
uint64_t rf_quota_cores(const char *root);

/* ---- hostmem.c: what the host can spare ---- */

/* MemAvailable, or less where a cgroup (v1 or v2) limits this process. root: as above. */
rf_status rf_host_memory(const char *root, uint64_t *available, uint64_t *total);

/* What one owner charged for memory, before it took it, and to whom: a runtime's host budget, for layers that do not
 * know the runtime. Zeros: nothing is charged. Threads: those that may change its owner. */
struct rf_account {
    rf_status (*charge)(void *user, uint64_t bytes); /* RF_E_NO_MEMORY: refused, and nothing is charged */
    void (*release)(void *user, uint64_t bytes);
    void *user;     /* lives as long as the account is used */
    uint64_t bytes; /* charged now */
};
static inline rf_status rf_account_charge(struct rf_account *account, uint64_t bytes) {
    rf_status status = account->charge && bytes ? account->charge(account->user, bytes) : RF_OK;
    if (!status && account->charge) account->bytes += bytes;
    return status;
}
static inline void rf_account_release(struct rf_account *account, uint64_t bytes) {
    if (!account->charge || !bytes) return;
    account->release(account->user, bytes);
    account->bytes -= bytes;
}
/* Another owner's account with the same budget. account: NULL gives one that charges nothing. */
static inline struct rf_account rf_account_open(const struct rf_account *account) {
    return account ? (struct rf_account){account->charge, account->release, account->user, 0}
                   : (struct rf_account){.bytes = 0};
}
static inline void rf_account_close(struct rf_account *account) {
    rf_account_release(account, account->bytes);
}
/* realloc (new_bytes is not 0) of memory whose size is charged; what: names it in the error text. RF_E_NO_MEMORY:
 * nothing changes. (account.c) */
rf_status rf_account_resize(struct rf_account *account, void **memory, uint64_t old_bytes, uint64_t new_bytes,
                            const char *what);

/* ---- fileio.c ---- */

/* RF_E_NOT_FOUND or RF_E_IO: "opening PATH failed: …". */
rf_status rf_fail_errno(const char *verb, const char *path, int error);

/* Reads at most size-1 bytes of a small file as text, trimmed of trailing white space. */
rf_status rf_read_text(const char *path, char *text, size_t size);
rf_status rf_read_u64(const char *path, uint64_t *value);

#endif
