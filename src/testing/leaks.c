/* What a test leaves on the device of the fixture: drained, judged, reported, released.
 *
 * Invariants: the verdict on a leak rests on the ledger, which is exact and knows call sites; no tolerance excuses
 * what it lists. The figure of the kernel is a second witness for memory that never went through the ledger. A device
 * that could not be drained is lost, and what it held is abandoned, not leaked. These say how a verdict is
 * found and are not asserted: tests/misbehaving and tests/testing check the verdicts. */
#include "fixture_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SHOWN_MAX 20
#define LATE_NS INT64_C(2000000000)            /* memory may come back this late */
#define LATE_DRIVER_BYTES (UINT64_C(64) << 20) /* drivers take some for themselves at first use */

/* ---- a list of allocations, as text ---- */

struct list {
    uint64_t mark;
    uint64_t count, bytes;
    struct rf_site site; /* call site of the first one */
    char text[4000];
    size_t length;
};

/* Shows paths relative to the source root. */
static const char *short_path(const char *file) {
    while (file && strncmp(file, "../", 3) == 0) file += 3;
    return file ? file : "?";
}

static bool take(void *user, const struct rf_allocation *a) {
    struct list *list = user;
    if (a->id <= list->mark || a->kind == RF_ALLOC_DRIVER || a->abandoned) return true;
    if (list->count++ == 0) list->site = a->site;
    list->bytes += a->bytes;
    if (list->count > SHOWN_MAX || list->length >= sizeof list->text) return true;
    list->length +=
        (size_t)snprintf(list->text + list->length, sizeof list->text - list->length,
                         "\n  %" PRIu64 " bytes%s%s%s%s, %s:%d in %s, %.3f s old", a->bytes,
                         a->kind == RF_ALLOC_PINNED ? " of pinned host memory" : "", a->label[0] ? " '" : "",
                         a->label, a->label[0] ? "'" : "", short_path(a->site.file), a->site.line,
                         a->site.function ? a->site.function : "?", (double)a->age_ns * 1e-9);
    return true;
}

static void close_list(struct list *list) {
    if (list->count > SHOWN_MAX && list->length < sizeof list->text)
        snprintf(list->text + list->length, sizeof list->text - list->length, "\n  and %" PRIu64 " more",
                 list->count - SHOWN_MAX);
}

/* ---- after a test ---- */

/* Fails the test; adds to the report of a test that already failed; prints a note for one that was skipped. */
static void tell_leak(const struct list *list) {
    char text[4400];
    const char *file = list->site.file ? list->site.file : "?";
    enum rf_test_verdict so_far = rf_test_verdict_so_far();
    snprintf(text, sizeof text, "%s %" PRIu64 " bytes%s: %s:%d%s",
             so_far == RF_TEST_PASSED ? "leaked" : "left behind, and released for it,", list->bytes,
             list->count > 1 ? " in several allocations" : "", short_path(file), list->site.line, list->text);
    if (so_far == RF_TEST_SKIPPED)
        rf_test_note("%s", text);
    else
        rf_test_fail_text(file, list->site.line, false, text);
}

/* Releases what was made after the mark and reports it. */
static void sweep(uint64_t mark) {
    struct rf_device *device = rf_fixture_peek();
    if (!device || rf_fixture_is_lost()) return;
    rf_fixture_drop_queues(mark);
    struct list *list = rf_test_grow(NULL, sizeof *list);
    *list = (struct list){.mark = mark};
    RF_PARAMS(struct rf_sweep, params);
    params.mark = mark;
    params.timeout_ns = RF_TIMEOUT_DEFAULT;
    params.visit = take;
    params.user = list;
    rf_status status = rf_device_sweep(device, &params);
    char why[900];
    snprintf(why, sizeof why, "%s", status ? rf_error_text() : "");
    const struct rf_test *test = rf_fixture_test();
    const char *file = test ? test->file : "fixture";
    int line = test ? test->line : 0;
    close_list(list);
    if (status == RF_E_TIMEOUT || rf_device_status(device) == RF_E_DEVICE_LOST) {
        if (!status) snprintf(why, sizeof why, "%s", rf_error_text());
        rf_fixture_set_lost(why);
        rf_test_say("lost", "%s", why);
        rf_test_fail(file, line, false, "the GPU was lost: %s", why);
    } else {
        if (status) rf_test_fail(file, line, false, "after the test: %s: %s", rf_status_name(status), why);
        if (list->count) tell_leak(list);
        if (params.handles && rf_test_verdict_so_far() == RF_TEST_PASSED)
            rf_test_fail(file, line, false, "left %" PRIu64 " queues, events or views undestroyed", params.handles);
    }
    free(list);
}

void rf_fixture_after(void) {
    sweep(rf_fixture_test_mark());
}

void rf_fixture_end(void) {
    struct rf_device *device = rf_fixture_peek();
    if (!device) return;
    sweep(rf_fixture_opened_mark());
    RF_PARAMS(struct rf_memory_info, memory);
    if (!rf_fixture_is_lost() && rf_device_memory_info(device, &memory) == RF_OK)
        rf_test_say("memory", "%" PRIu64, memory.peak_bytes); /* the runner uses it to admit the test next time */
    rf_fixture_drop_queues(0);
    rf_status status = rf_fixture_close();
    if (status && !rf_fixture_is_lost())
        rf_test_fail("fixture", 0, false, "closing the GPU test fixture: %s: %s", rf_status_name(status),
                     rf_error_text());
}

/* ---- a test inside a test ---- */

struct inner {
    void (*body)(struct rf_device *device, void *user);
    struct rf_device *device;
    void *user;
};

static void call_inner(void *user) {
    struct inner *inner = user;
    inner->body(inner->device, inner->user);
}

void rf_fixture_run(void (*body)(struct rf_device *device, void *user), void *user) {
    struct inner inner = {body, rf_fixture(), user};
    if (!rf_test_is_own_thread()) RF_FAIL("rf_fixture_run: call it on the test's own thread");
    uint64_t outer = rf_fixture_test_mark();
    rf_fixture_set_test_mark(rf_device_mark(inner.device));
    bool returned = rf_test_protected(call_inner, &inner);
    sweep(rf_fixture_test_mark());
    rf_fixture_set_test_mark(outer);
    if (!returned) rf_test_leave();
}

/* ---- rf_fixture_assert_no_leak ---- */

/* How much more memory than the ledger knows is in use now than when the fixture was opened: by this process or, if
 * that is not known, on the whole GPU. False: no source tells. */
static bool unexplained(const struct rf_memory_info *now, uint64_t *bytes, bool *own) {
    const struct rf_memory_info *first = rf_fixture_first_figures();
    int64_t ledger = (int64_t)now->held_bytes - (int64_t)first->held_bytes, grown;
    *own = first->process_bytes && now->process_bytes;
    if (*own)
        grown = (int64_t)now->process_bytes - (int64_t)first->process_bytes;
    else
        grown = (int64_t)first->free_bytes - (int64_t)now->free_bytes;
    *bytes = grown > ledger ? (uint64_t)(grown - ledger) : 0;
    return now->free_bytes != 0 || *own;
}

void rf_fixture_assert_no_leak_at(double percent, struct rf_site site) {
    struct rf_device *device = rf_fixture();
    if (!(percent >= 0 && percent <= 100))
        rf_test_fail(site.file, site.line, true, "rf_fixture_assert_no_leak: %g is not a percentage from 0 to 100",
                     percent);
    struct list *list = rf_test_grow(NULL, sizeof *list);
    int64_t deadline = rf_test_now_ns() + LATE_NS;
    RF_PARAMS(struct rf_memory_info, now);
    uint64_t extra = 0, allowed = 0;
    bool known = false, own = false, over = false;
    rf_status status;
    while (true) {
        *list = (struct list){.mark = rf_fixture_test_mark()};
        status = rf_device_ledger(device, take, list);
        if (!status) status = rf_device_memory_info(device, &now);
        if (status) break;
        known = unexplained(&now, &extra, &own);
        allowed = (uint64_t)((double)now.total_bytes * percent / 100) + LATE_DRIVER_BYTES;
        over = known && extra > allowed && (own || percent > 0);
        /* The ledger is always up to date; the figures of drivers and of the kernel may lag. */
        if (list->count || !over || rf_test_now_ns() > deadline) break;
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    }
    close_list(list);
    bool failed = true;
    if (status)
        rf_test_status(site.file, site.line, false, "the fixture's device", status, RF_OK);
    else if (list->count)
        rf_test_fail(site.file, site.line, false, "leaked %" PRIu64 " bytes in %" PRIu64 " allocation%s:%s",
                     list->bytes, list->count, list->count == 1 ? "" : "s", list->text);
    else if (over)
        rf_test_fail(site.file, site.line, false,
                     "the ledger is balanced, but %s %" PRIu64
                     " bytes more than when the fixture was opened, allowed %" PRIu64
                     " (%g%% of the GPU and what drivers take late): something allocates outside the ledger",
                     own ? "this process holds" : "the whole GPU has in use", extra, allowed, percent);
    else
        failed = false;
    free(list);
    if (failed) rf_test_leave();
}
