/* Items of `rocmforge selftest` about the device itself: opening, kernels, transfers, recordings, waits, the budget
 * and leases. Each gives back all that it took; selftest_worker.c looks afterwards. */
#include "selftest.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

/* Ends an item with the failure of a call; 'what' says what was tried. */
#define TRY(call, what)                                                                                              \
    do {                                                                                                             \
        rf_status status_ = (call);                                                                                  \
        if (status_) return selftest_fail(test, status_, "%s", what);                                                \
    } while (0)

static uint64_t next_random(uint64_t *state) {
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static void fill_random(void *data, size_t bytes, uint64_t seed) {
    unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++) at[i] = (unsigned char)(next_random(&seed) >> 24);
}

static rf_status create_buffer(struct selftest *test, uint64_t bytes, bool direct, const char *label,
                               struct rf_buffer **out) {
    RF_PARAMS(struct rf_buffer_params, params);
    params.bytes = bytes;
    params.direct = direct;
    params.label = label;
    return rf_buffer_create_safe(test->device, &params, out);
}

/* ---- open, kernels ---- */

enum selftest_mark selftest_open(struct selftest *test) {
    RF_PARAMS(struct rf_memory_info, memory);
    TRY(rf_device_memory_info(test->device, &memory), "asking for the memory figures");
    if (!memory.budget_bytes || memory.budget_bytes > memory.free0_bytes || memory.held_bytes > memory.budget_bytes)
        return selftest_say(test, SELFTEST_FAILED, "the figures make no sense: budget %s, %s free, %s held",
                            cli_bytes(memory.budget_bytes), cli_bytes(memory.free0_bytes),
                            cli_bytes(memory.held_bytes));
    return selftest_say(
        test, SELFTEST_OK, "budget %s of %s free, floor %s, the driver takes %s, %s available; opened in %.2f s",
        cli_bytes(memory.budget_bytes), cli_bytes(memory.free0_bytes), cli_bytes(memory.floor_bytes),
        cli_bytes(memory.driver_bytes), cli_bytes(memory.available_bytes), (double)test->open_ns * 1e-9);
}

/* Every kernel of the build for this GPU can be found, which loads its module. */
enum selftest_mark selftest_kernels(struct selftest *test) {
    size_t found = 0, with_local = 0, modules = 0;
    char local[160] = "";
    const char *module = "";
    /* All at once, because they are compiled side by side. A failure is found again below, with the kernel's name. */
    selftest_at(test, "loading all kernels");
    if (rf_device_load_kernels(test->device, NULL) == RF_E_DEVICE_LOST)
        return selftest_fail(test, RF_E_DEVICE_LOST, "loading all kernels");
    for (size_t i = 0; i < rf_builtin_kernel_count(); i++) {
        const struct rf_builtin_kernel *built = rf_builtin_kernel_at(i);
        const struct rf_kernel *kernel;
        RF_PARAMS(struct rf_kernel_info, info);
        if (!rf_builtin_kernel_fits(built, test->info.arch)) continue;
        selftest_at(test, "loading %s of module %s", built->name, built->module);
        rf_status status = rf_kernel_find(test->device, built->name, &kernel);
        if (!status) status = rf_kernel_get_info(kernel, &info);
        if (status) return selftest_fail(test, status, "kernel %s of module %s", built->name, built->module);
        found++;
        modules += strcmp(module, built->module) != 0;
        module = built->module;
        if (info.local_bytes && !with_local++)
            snprintf(local, sizeof local, "; %s needs %u bytes of local memory", built->name, info.local_bytes);
    }
    if (!found)
        return selftest_say(test, SELFTEST_FAILED, "this build has no kernels for %s", test->info.kernel_target);
    if (with_local > 1)
        snprintf(local + strlen(local), sizeof local - strlen(local), ", and so do %zu more", with_local - 1);
    return selftest_say(test, SELFTEST_OK, "%zu kernels of %zu modules for %s%s", found, modules,
                        test->info.kernel_target, local);
}

/* ---- transfers ---- */

enum { QUEUES = 3 };

struct transfers {
    struct rf_queue *queues[QUEUES];
    struct rf_buffer *up, *down; /* data goes host, up, down, host */
    struct rf_pinned *pinned;
    unsigned char *sent, *got, *expected;
    uint64_t capacity;
};

static void end_transfers(struct transfers *t) {
    for (int i = 0; i < QUEUES; i++) rf_queue_destroy(&t->queues[i]);
    rf_buffer_destroy(&t->up);
    rf_buffer_destroy(&t->down);
    rf_pinned_destroy(&t->pinned);
    free(t->sent);
    free(t->got);
    free(t->expected);
}

static rf_status begin_transfers(struct selftest *test, struct transfers *t, uint64_t capacity) {
    rf_status status = RF_OK;
    t->capacity = capacity;
    t->sent = malloc(capacity);
    t->got = malloc(capacity);
    t->expected = malloc(capacity);
    if (!t->sent || !t->got || !t->expected) return RF_E_NO_MEMORY;
    for (int i = 0; i < QUEUES && !status; i++) status = rf_queue_create(test->device, NULL, &t->queues[i]);
    if (!status) status = create_buffer(test, capacity, false, "selftest up", &t->up);
    if (!status) status = create_buffer(test, capacity, false, "selftest down", &t->down);
    if (!status) status = rf_pinned_create(test->device, capacity, &t->pinned);
    return status;
}

/* Sends 'bytes' to an odd place, moves them on the device on another queue, and brings everything back on a third. */
static rf_status round_trip(struct transfers *t, uint64_t bytes, uint64_t offset, bool pinned, int turn) {
    struct rf_queue *first = t->queues[turn % QUEUES], *second = t->queues[(turn + 1) % QUEUES],
                    *third = t->queues[(turn + 2) % QUEUES];
    unsigned char background = (unsigned char)(17 + turn);
    uint64_t moved = (offset * 3 + 1) % (t->capacity - bytes + 1);
    memset(t->expected, background, t->capacity);
    memcpy(t->expected + moved, t->sent, bytes);
    rf_status status = rf_fill(third, t->down, 0, t->capacity, background);
    if (pinned) {
        memcpy((char *)rf_pinned_data(t->pinned) + offset, t->sent, bytes);
        if (!status) status = rf_upload_async(first, t->up, offset, t->pinned, offset, bytes);
    } else if (!status) {
        status = rf_copy_to_device_safe(first, t->up, offset, t->sent, bytes);
    }
    if (!status) status = rf_queue_after(second, first);
    if (!status) status = rf_queue_after(second, third);
    if (!status) status = rf_copy_on_device(second, t->down, moved, t->up, offset, bytes);
    if (!status) status = rf_queue_after(third, second);
    memset(t->got, 0, t->capacity);
    if (pinned) {
        if (!status) status = rf_download_async(third, t->pinned, 0, t->down, 0, t->capacity);
        if (!status) status = rf_queue_wait(third, RF_TIMEOUT_DEFAULT);
        if (!status) memcpy(t->got, rf_pinned_data(t->pinned), t->capacity);
    } else if (!status) {
        status = rf_copy_from_device_safe(third, t->got, t->down, 0, t->capacity);
    }
    return status;
}

/* Bytes per nanosecond, up and down, of pinned memory. */
static rf_status measure(struct transfers *t, double rates[2]) {
    for (int down = 0; down < 2; down++) {
        rf_status status = RF_OK;
        for (int round = 0; round < 2; round++) { /* the first is not counted */
            int64_t started = selftest_now_ns();
            status = down ? rf_download_async(t->queues[0], t->pinned, 0, t->down, 0, t->capacity)
                          : rf_upload_async(t->queues[0], t->up, 0, t->pinned, 0, t->capacity);
            if (!status) status = rf_queue_wait(t->queues[0], RF_TIMEOUT_DEFAULT);
            if (status) return status;
            rates[down] = (double)t->capacity / (double)(selftest_now_ns() - started);
        }
    }
    return RF_OK;
}

static enum selftest_mark transfer_all(struct selftest *test, struct transfers *t) {
    const uint64_t sizes[] = {1, 2, 3, 15, 255, 4095, 4097, 65537, MIB + 13, 3 * MIB + 7};
    const uint64_t offsets[] = {0, 1, 7, 255, 4093};
    double rates[2] = {0};
    int turn = 0;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (size_t o = 0; o < sizeof offsets / sizeof offsets[0]; o++)
            for (int pinned = 0; pinned < 2; pinned++, turn++) {
                const char *kind = pinned ? "pinned" : "pageable";
                if (test->quick && turn % 4 == 3) continue;
                selftest_at(test, "%llu bytes at offset %llu, %s", (unsigned long long)sizes[s],
                            (unsigned long long)offsets[o], kind);
                rf_status status = round_trip(t, sizes[s], offsets[o], pinned, turn);
                if (status)
                    return selftest_fail(test, status, "%llu bytes at offset %llu, %s", (unsigned long long)sizes[s],
                                         (unsigned long long)offsets[o], kind);
                for (uint64_t i = 0; i < t->capacity; i++)
                    if (t->got[i] != t->expected[i])
                        return selftest_say(test, SELFTEST_FAILED,
                                            "%llu bytes at offset %llu, %s: byte %llu is %d, expected %d",
                                            (unsigned long long)sizes[s], (unsigned long long)offsets[o], kind,
                                            (unsigned long long)i, t->got[i], t->expected[i]);
            }
    selftest_at(test, "measuring the transfer rate");
    TRY(measure(t, rates), "measuring the transfer rate");
    return selftest_say(test, SELFTEST_OK,
                        "%zu sizes at %zu offsets, pinned and pageable, on %d queues; %s: %.2f GB/s up, %.2f down",
                        sizeof sizes / sizeof sizes[0], sizeof offsets / sizeof offsets[0], QUEUES,
                        cli_bytes(t->capacity), rates[0], rates[1]);
}

enum selftest_mark selftest_transfers(struct selftest *test) {
    struct transfers t = {0};
    rf_status status = begin_transfers(test, &t, 4 * MIB);
    if (!status) fill_random(t.sent, t.capacity, 3);
    enum selftest_mark mark =
        status ? selftest_fail(test, status, "queues and buffers for transfers") : transfer_all(test, &t);
    end_transfers(&t);
    return mark;
}

/* ---- recordings ---- */

enum { ROWS = 5, COLUMNS = 1021, RUNS = 4 };

struct recorded {
    struct rf_queue *queue;
    struct rf_buffer *in, *out, *copy;
    struct rf_pinned *from, *to;
    struct rf_recording *recording;
    uint64_t bytes;
};

/* Upload, kernel, copy, fill and download, as one piece of work. */
static rf_status submit(struct recorded *r, const struct rf_kernel *kernel) {
    struct rf_arg args[] = {rf_arg_buffer(r->out), rf_arg_buffer(r->in), rf_arg_i64(ROWS), rf_arg_i64(COLUMNS)};
    RF_PARAMS(struct rf_launch, launch);
    launch.kernel = kernel;
    launch.grid[0] = ROWS;
    launch.block[0] = 256;
    launch.args = args;
    launch.arg_count = sizeof args / sizeof args[0];
    rf_status status = rf_upload_async(r->queue, r->in, 0, r->from, 0, r->bytes);
    if (!status) status = rf_queue_launch(r->queue, &launch);
    if (!status) status = rf_copy_on_device(r->queue, r->copy, 0, r->out, 0, r->bytes);
    if (!status) status = rf_fill(r->queue, r->copy, 12, 21, 0x5a);
    if (!status) status = rf_download_async(r->queue, r->to, 0, r->copy, 0, r->bytes);
    return status;
}

static enum selftest_mark record_and_compare(struct selftest *test, struct recorded *r) {
    const struct rf_kernel *kernel;
    float *plain = malloc(r->bytes);
    RF_PARAMS(struct rf_recording_info, info);
    if (!plain) return selftest_say(test, SELFTEST_FAILED, "no host memory");
    enum selftest_mark mark = SELFTEST_OK;
    rf_status status = rf_kernel_find(test->device, "softmax_f32", &kernel);
    if (!status) status = rf_queue_record_begin(r->queue, "selftest");
    if (status == RF_E_UNSUPPORTED) {
        free(plain);
        return selftest_say(test, SELFTEST_SKIPPED, "%s", rf_error_text());
    }
    if (!status) {
        status = submit(r, kernel);
        rf_status ended = rf_queue_record_end(r->queue, &r->recording);
        if (!status) status = ended;
    }
    if (!status) status = rf_recording_get_info(r->recording, &info);
    for (uint64_t run = 0; run < RUNS && !status && mark == SELFTEST_OK; run++) {
        float *from = rf_pinned_data(r->from);
        uint64_t state = run;
        for (int i = 0; i < ROWS * COLUMNS; i++) from[i] = (float)(next_random(&state) >> 40) / (1 << 20) - 8;
        selftest_at(test, "run %llu, without a recording", (unsigned long long)run);
        status = submit(r, kernel);
        if (!status) status = rf_queue_wait(r->queue, RF_TIMEOUT_DEFAULT);
        memcpy(plain, rf_pinned_data(r->to), r->bytes);
        memset(rf_pinned_data(r->to), 0, r->bytes);
        selftest_at(test, "run %llu of the recording", (unsigned long long)run);
        if (!status) status = rf_recording_run(r->queue, r->recording);
        if (!status) status = rf_queue_wait(r->queue, RF_TIMEOUT_DEFAULT);
        if (!status && memcmp(plain, rf_pinned_data(r->to), r->bytes))
            mark =
                selftest_say(test, SELFTEST_FAILED, "run %llu of the recording gave other bits than plain launches",
                             (unsigned long long)run);
    }
    free(plain);
    if (status) return selftest_fail(test, status, "recording and running");
    if (mark != SELFTEST_OK) return mark;
    return selftest_say(test, SELFTEST_OK, "%llu submissions recorded (%s), %d runs with the bits of plain launches",
                        (unsigned long long)info.submissions, cli_bytes(info.driver_bytes), RUNS);
}

enum selftest_mark selftest_recordings(struct selftest *test) {
    struct recorded r = {.bytes = ROWS * COLUMNS * sizeof(float)};
    rf_status status = rf_queue_create(test->device, NULL, &r.queue);
    if (!status) status = create_buffer(test, r.bytes, false, "selftest in", &r.in);
    if (!status) status = create_buffer(test, r.bytes, false, "selftest out", &r.out);
    if (!status) status = create_buffer(test, r.bytes, false, "selftest copy", &r.copy);
    if (!status) status = rf_pinned_create(test->device, r.bytes, &r.from);
    if (!status) status = rf_pinned_create(test->device, r.bytes, &r.to);
    enum selftest_mark mark =
        status ? selftest_fail(test, status, "a queue and buffers") : record_and_compare(test, &r);
    rf_recording_destroy(&r.recording);
    rf_queue_destroy(&r.queue);
    rf_buffer_destroy(&r.in);
    rf_buffer_destroy(&r.out);
    rf_buffer_destroy(&r.copy);
    rf_pinned_destroy(&r.from);
    rf_pinned_destroy(&r.to);
    return mark;
}

/* ---- deadline ---- */

/* Twice as many fills each time, until a wait of no time at all finds them unfinished. */
static enum selftest_mark outpace(struct selftest *test, struct rf_queue *queue, struct rf_buffer *buffer) {
    enum { MOST = 256 };
    uint64_t bytes = rf_buffer_bytes(buffer);
    for (int fills = 4; fills <= MOST; fills *= 2) {
        selftest_at(test, "a wait without time while %d fills of %s run", fills, cli_bytes(bytes));
        for (int i = 0; i < fills; i++) TRY(rf_fill(queue, buffer, 0, bytes, (unsigned char)i), "filling a buffer");
        rf_status status = rf_queue_wait(queue, 0);
        if (status && status != RF_E_TIMEOUT) return selftest_fail(test, status, "waiting without time");
        char text[256];
        snprintf(text, sizeof text, "%s", rf_error_text());
        int64_t started = selftest_now_ns();
        TRY(rf_queue_wait(queue, RF_TIMEOUT_DEFAULT), "waiting for the fills");
        unsigned char last = 0;
        TRY(rf_copy_from_device_safe(queue, &last, buffer, bytes - 1, 1), "reading the last byte");
        if (last != (unsigned char)(fills - 1))
            return selftest_say(test, SELFTEST_FAILED, "after the wait the last byte is %d, expected %d", last,
                                fills - 1);
        if (status == RF_E_TIMEOUT)
            return selftest_say(test, SELFTEST_OK, "%d fills of %s: RF_E_TIMEOUT at once, done %.2f ms later", fills,
                                cli_bytes(bytes), (double)(selftest_now_ns() - started) * 1e-6);
    }
    return selftest_say(test, SELFTEST_SKIPPED, "the work was always done before it could be waited for");
}

enum selftest_mark selftest_deadline(struct selftest *test) {
    struct rf_queue *queue = NULL;
    struct rf_buffer *buffer = NULL;
    uint64_t most = 0, bytes = test->info.simulated ? 8 * MIB : 256 * MIB;
    rf_status status = rf_safe_alloc_size(test->device, &most);
    if (bytes > most / 2) bytes = most / 2;
    if (!status && bytes < MIB)
        return selftest_say(test, SELFTEST_SKIPPED, "the budget leaves no more than %s", cli_bytes(most));
    if (!status) status = rf_queue_create(test->device, NULL, &queue);
    if (!status) status = create_buffer(test, bytes, false, "selftest deadline", &buffer);
    enum selftest_mark mark = status ? selftest_fail(test, status, "a queue and a buffer of %s", cli_bytes(bytes))
                                     : outpace(test, queue, buffer);
    rf_queue_destroy(&queue);
    rf_buffer_destroy(&buffer);
    return mark;
}

/* ---- squeeze ---- */

enum { CHUNKS_MAX = 64 };
struct squeeze {
    struct rf_buffer *chunks[CHUNKS_MAX];
    int count;
    char refusal[512];
};

/* Takes ever smaller pieces until not even one granule is granted, and marks the ends of each. */
static rf_status take_all(struct selftest *test, struct squeeze *squeeze, uint64_t first, struct rf_queue *queue) {
    uint64_t least = test->info.granularity_bytes ? test->info.granularity_bytes : 2 * MIB;
    for (uint64_t bytes = first; squeeze->count < CHUNKS_MAX;) {
        struct rf_buffer *chunk = NULL;
        selftest_at(test, "taking %s more, with %d pieces held", cli_bytes(bytes), squeeze->count);
        rf_status status = create_buffer(test, bytes, true, "selftest squeeze", &chunk);
        if (status == RF_E_BUDGET) {
            snprintf(squeeze->refusal, sizeof squeeze->refusal, "%s", rf_error_text());
            if (bytes <= least) return RF_OK;
            bytes = bytes / 2 > least ? bytes / 2 : least;
            continue;
        }
        if (status) return status;
        squeeze->chunks[squeeze->count] = chunk;
        unsigned char mark = (unsigned char)++squeeze->count;
        status = rf_fill(queue, chunk, 0, 4096, mark);
        if (!status) status = rf_fill(queue, chunk, bytes - 4096, 4096, mark);
        if (status) return status;
    }
    return RF_OK;
}

static enum selftest_mark check_squeezed(struct selftest *test, struct squeeze *squeeze, struct rf_queue *queue,
                                         const struct rf_memory_info *before) {
    RF_PARAMS(struct rf_memory_info, full);
    TRY(rf_device_memory_info(test->device, &full), "asking for the memory figures");
    if (!squeeze->refusal[0])
        return selftest_say(test, SELFTEST_FAILED, "%d pieces were granted, %s in all, and none was refused",
                            squeeze->count, cli_bytes(full.held_bytes));
    if (!strpbrk(squeeze->refusal, "0123456789") || !strstr(squeeze->refusal, "RF_BUDGET"))
        return selftest_say(test, SELFTEST_FAILED, "the refusal gives no figures, or no setting to change: %s",
                            squeeze->refusal);
    if (full.held_bytes > full.budget_bytes || full.peak_bytes > full.budget_bytes)
        return selftest_say(test, SELFTEST_FAILED, "%s was held, %s at the most, with a budget of %s",
                            cli_bytes(full.held_bytes), cli_bytes(full.peak_bytes), cli_bytes(full.budget_bytes));
    /* Others may take memory meanwhile; what counts is what we took. */
    uint64_t ours = full.held_bytes - before->held_bytes;
    uint64_t gone = before->free_bytes > full.free_bytes ? before->free_bytes - full.free_bytes : 0;
    bool others_took = gone > ours + ours / 64 + 64 * MIB;
    if (full.free_bytes < full.floor_bytes && !others_took)
        return selftest_say(test, SELFTEST_FAILED, "%s is free, less than the floor of %s",
                            cli_bytes(full.free_bytes), cli_bytes(full.floor_bytes));
    for (int i = 0; i < squeeze->count; i++) {
        unsigned char ends[2] = {0};
        selftest_at(test, "reading piece %d", i);
        TRY(rf_copy_from_device_safe(queue, &ends[0], squeeze->chunks[i], 0, 1), "reading what was taken");
        TRY(rf_copy_from_device_safe(queue, &ends[1], squeeze->chunks[i], rf_buffer_bytes(squeeze->chunks[i]) - 1, 1),
            "reading what was taken");
        if (ends[0] != i + 1 || ends[1] != i + 1)
            return selftest_say(test, SELFTEST_FAILED, "piece %d holds %d and %d at its ends, expected %d", i,
                                ends[0], ends[1], i + 1);
    }
    return selftest_say(test, SELFTEST_OK, "%d pieces, %s of %s held, %s free with a floor of %s%s, then RF_E_BUDGET",
                        squeeze->count, cli_bytes(full.held_bytes), cli_bytes(full.budget_bytes),
                        cli_bytes(full.free_bytes), cli_bytes(full.floor_bytes),
                        others_took ? " (others took memory meanwhile)" : "");
}

/* After everything was destroyed: the driver has it back. */
static enum selftest_mark check_given_back(struct selftest *test, const struct rf_memory_info *before) {
    RF_PARAMS(struct rf_memory_info, after);
    selftest_at(test, "giving everything back");
    TRY(rf_device_trim(test->device, RF_TIMEOUT_DEFAULT), "giving idle memory back");
    TRY(rf_device_memory_info(test->device, &after), "asking for the memory figures");
    if (after.live_count || after.used_bytes || after.pool_bytes || after.held_bytes > before->held_bytes + 64 * MIB)
        return selftest_say(
            test, SELFTEST_FAILED,
            "not everything was given back: %llu allocations, %s in use, %s idle, %s held (%s before)",
            (unsigned long long)after.live_count, cli_bytes(after.used_bytes), cli_bytes(after.pool_bytes),
            cli_bytes(after.held_bytes), cli_bytes(before->held_bytes));
    return SELFTEST_OK;
}

enum selftest_mark selftest_squeeze(struct selftest *test) {
    struct squeeze squeeze = {0};
    struct rf_queue *queue = NULL;
    RF_PARAMS(struct rf_memory_info, before);
    TRY(rf_device_memory_info(test->device, &before), "asking for the memory figures");
    TRY(rf_queue_create(test->device, NULL, &queue), "a queue");
    uint64_t first = before.available_bytes / 8 & ~(uint64_t)4095;
    if (first < 64 * 1024) first = 64 * 1024;
    rf_status status = take_all(test, &squeeze, first, queue);
    enum selftest_mark mark = status ? selftest_fail(test, status, "taking memory, %d pieces held", squeeze.count)
                                     : check_squeezed(test, &squeeze, queue, &before);
    for (int i = 0; i < squeeze.count; i++) {
        status = rf_buffer_destroy(&squeeze.chunks[i]);
        if (status && mark == SELFTEST_OK) mark = selftest_fail(test, status, "giving piece %d back", i);
    }
    rf_queue_destroy(&queue);
    if (mark == SELFTEST_OK) mark = check_given_back(test, &before);
    return mark;
}

/* ---- leases ---- */

struct leases {
    int mine, others;
    uint64_t promised_bytes, held_bytes;
};

static bool count_lease(void *user, const struct rf_lease_info *lease) {
    struct leases *leases = user;
    leases->mine += lease->mine;
    leases->others += !lease->mine;
    if (lease->mine) {
        leases->promised_bytes = lease->promised_bytes;
        leases->held_bytes = lease->held_bytes;
    }
    return true;
}

/* Another process opens the device with a part of this lease. Its result is read until it ends. */
static enum selftest_mark run_lent(struct selftest *test, const char *spec) {
    struct cli_worker worker = {0};
    char number[16], why[CLI_WHY_BYTES], line[SELFTEST_TEXT_MAX + 16];
    enum selftest_mark mark =
        selftest_say(test, SELFTEST_FAILED, "the process that was lent a part ended without a result");
    snprintf(number, sizeof number, "%d", test->info.index);
    const char *arguments[] = {"selftest", "--item", "lent", "--on", number, "--lent", spec, NULL};
    if (cli_worker_start(arguments, &worker, why)) return selftest_say(test, SELFTEST_FAILED, "%s", why);
    FILE *in = fdopen(dup(worker.channel), "r");
    while (in && fgets(line, sizeof line, in)) {
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, "at ", 3)) selftest_at(test, "in the process that was lent a part: %s", line + 3);
        if (!strncmp(line, "ok ", 3)) mark = selftest_say(test, SELFTEST_OK, "%s", line + 3);
        if (!strncmp(line, "failed ", 7))
            mark = selftest_say(test, SELFTEST_FAILED, "the process that was lent a part: %s", line + 7);
    }
    if (in) fclose(in);
    if (!cli_worker_end(&worker, false, why) && mark == SELFTEST_OK)
        mark = selftest_say(test, SELFTEST_FAILED, "the process that was lent a part: %s", why);
    return mark;
}

static enum selftest_mark lend(struct selftest *test, const struct rf_memory_info *before) {
    char spec[128], text[SELFTEST_TEXT_MAX];
    RF_PARAMS(struct rf_memory_info, now);
    uint64_t bytes = 2 * before->driver_bytes + 256 * MIB;
    if (bytes > before->available_bytes / 2)
        return selftest_say(test, SELFTEST_SKIPPED, "%s are available, too little to lend a part to another process",
                            cli_bytes(before->available_bytes));
    selftest_at(test, "lending %s", cli_bytes(bytes));
    TRY(rf_device_lend(test->device, bytes, spec, sizeof spec), "lending a part");
    TRY(rf_device_memory_info(test->device, &now), "asking for the memory figures");
    if (now.lent_bytes < bytes || now.available_bytes + bytes > before->available_bytes + 64 * MIB)
        return selftest_say(test, SELFTEST_FAILED, "%s were lent, but %s of %s are still available here",
                            cli_bytes(bytes), cli_bytes(now.available_bytes), cli_bytes(before->available_bytes));
    enum selftest_mark mark = run_lent(test, spec);
    snprintf(text, sizeof text, "%s", test->text);
    rf_status status = rf_device_reclaim(test->device, spec);
    if (mark != SELFTEST_OK) return mark;
    if (status) return selftest_fail(test, status, "taking the lent part back");
    TRY(rf_device_memory_info(test->device, &now), "asking for the memory figures");
    if (now.lent_bytes)
        return selftest_say(test, SELFTEST_FAILED, "%s are still lent after they were taken back",
                            cli_bytes(now.lent_bytes));
    return selftest_say(test, SELFTEST_OK, "lent %s to another process, which %.400s", cli_bytes(bytes), text);
}

enum selftest_mark selftest_leases(struct selftest *test) {
    struct leases leases = {0}, after = {0};
    RF_PARAMS(struct rf_memory_info, memory);
    int index = test->info.index;
    TRY(rf_device_leases(test->runtime, index, count_lease, &leases), "listing the leases");
    TRY(rf_device_memory_info(test->device, &memory), "asking for the memory figures");
    if (leases.mine != 1 || leases.promised_bytes < memory.held_bytes)
        return selftest_say(test, SELFTEST_FAILED, "this process has %d leases, of %s, and holds %s", leases.mine,
                            cli_bytes(leases.promised_bytes), cli_bytes(memory.held_bytes));
    enum selftest_mark mark = lend(test, &memory);
    if (mark == SELFTEST_FAILED) return mark;
    rf_status status = rf_device_close(&test->device);
    if (status) return selftest_fail(test, status, "closing the device");
    TRY(rf_device_leases(test->runtime, index, count_lease, &after), "listing the leases");
    if (after.mine)
        return selftest_say(test, SELFTEST_FAILED, "the lease is still there after the device was closed");
    return mark;
}

/* In the process that was lent a part: it may use the part, and no more. */
enum selftest_mark selftest_lent(struct selftest *test) {
    struct rf_buffer *fits = NULL, *too_large = NULL;
    RF_PARAMS(struct rf_memory_info, memory);
    TRY(rf_device_memory_info(test->device, &memory), "asking for the memory figures");
    uint64_t half = memory.available_bytes / 2;
    TRY(create_buffer(test, half, false, "selftest lent", &fits), "taking half of what was lent");
    rf_status status = create_buffer(test, memory.budget_bytes, false, "selftest too much", &too_large);
    rf_buffer_destroy(&too_large);
    rf_buffer_destroy(&fits);
    if (status != RF_E_BUDGET)
        return selftest_say(test, SELFTEST_FAILED, "asking for more than was lent gave %s, not RF_E_BUDGET",
                            rf_status_name(status));
    return selftest_say(test, SELFTEST_OK, "got a budget of %s, used %s and was refused more",
                        cli_bytes(memory.budget_bytes), cli_bytes(half));
}
