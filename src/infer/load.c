/* See load.h.
 *
 * The caller's thread is the only one that uses the device: it hands out pieces, submits those that were read, and
 * checks which copies are done. Readers only read the file into a slot's memory. A slot cycles through these states:
 *
 *     free > wanted (a piece is assigned) > being read > read > copying > free
 *
 * Invariants
 * 1. 'wanted', 'read', 'reading' and 'failed' are guarded by the mutex; 'free' and 'copying' belong to the caller's
 *    thread. A slot is in one list, or with the reader that took it.
 * 2. Copies are on one queue, so they end in the order in which they were submitted: only the first is checked.
 * 3. When the call returns, all readers are joined and no slot is left, whatever went wrong.
 * 1 is checked once in each step, 2 is asserted where a copy ends, 3 at the end.
 *
 * It must not touch the file's map: if the file is truncated meanwhile, that would raise SIGBUS, whereas here it
 * is RF_E_IO. */
#include "infer/load.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "base/base.h"
#include "gpu/device.h"
#include "runtime/runtime.h"
#include "infer/engine_impl.h"

#define PIECE_BYTES ((uint64_t)4 << 20)
#define STAGING_BYTES ((uint64_t)48 << 20)   /* one piece for each reader, and some being copied */
#define LEAST_BYTES ((uint64_t)64 << 10)     /* the smallest piece */
#define SMALL_LOAD_BYTES ((uint64_t)1 << 20) /* reducing staging below this is not worth it */
#define READ_BYTES ((uint64_t)1 << 20)       /* per read call: decides how soon a reader notices that it must stop */
#define PATIENCE_NS INT64_C(1000000000)      /* for a copy, which usually takes less than a thousandth of this */
#define LOOK_NS INT64_C(100000)              /* the interval at which copies are checked while reads are waited for */
enum { READERS_MAX = 8, SLOTS_MAX = 64, SLOTS_USUAL = 4 };

struct slot {
    struct slot *next;        /* in its list */
    struct rf_pinned *pinned; /* NULL: the memory is not pinned */
    unsigned char *data;
    struct rf_event *event; /* recorded after its copy */
    int64_t submitted_ns;
    const struct rf_weight_home *home; /* the piece it holds: */
    uint64_t at, bytes;
    rf_status status; /* of reading the piece */
};
struct slots { /* first in, first out */
    struct slot *first, *last;
};

struct loader {
    struct rf_load *load;
    const struct rf_weight_home *homes;
    size_t count;
    uint64_t total, done;
    size_t next_home; /* the next piece to hand out: */
    uint64_t next_at;

    struct rf_queue *queue;
    struct slot slots[SLOTS_MAX];
    unsigned slot_count, slots_most;
    bool grown;                        /* this step has already tried to add a slot */
    uint64_t piece_bytes, plain_bytes; /* plain_bytes: of the first slot, if it is not pinned */
    struct slots free, copying;

    pthread_mutex_t mutex;
    pthread_cond_t work, finished; /* signalled when a piece is wanted, and when one was read */
    struct slots wanted, read;
    unsigned reading; /* the number of slots that are wanted or with a reader */
    rf_status failed; /* the first failure of reading, and its text: */
    struct rf_saved_error failure;
    atomic_bool stop;
    pthread_t readers[READERS_MAX];
    unsigned reader_count;
};

static rf_status begin(struct loader *loader);
static rf_status step(struct loader *loader);
static rf_status end(struct loader *loader, rf_status status);

rf_status rf_load_weights(struct rf_load *load, const struct rf_weight_home *homes, size_t count) {
    struct loader loader = {.load = load, .homes = homes, .count = count};
    for (size_t i = 0; i < count; i++) loader.total += homes[i].tensor->bytes;
    if (!loader.total) return RF_OK;
    rf_status status = begin(&loader);
    while (!status && loader.done < loader.total) status = step(&loader);
    return end(&loader, status);
}

/* ---- slots ---- */

static void push(struct slots *list, struct slot *slot) {
    slot->next = NULL;
    *(list->first ? &list->last->next : &list->first) = slot;
    list->last = slot;
}
static struct slot *pop(struct slots *list) {
    struct slot *slot = list->first;
    if (slot) list->first = slot->next;
    return slot;
}

/* Whether a smaller amount may be granted. */
static bool is_short(rf_status status) {
    return status == RF_E_NO_MEMORY || rf_is_full(status);
}

static rf_status add_slot(struct loader *loader, uint64_t bytes) {
    struct slot *slot = &loader->slots[loader->slot_count];
    rf_status status = rf_pinned_create(loader->load->device, bytes, &slot->pinned);
    if (!status) status = rf_event_create(loader->load->device, false, &slot->event);
    if (status) {
        rf_pinned_destroy(&slot->pinned);
        return status;
    }
    slot->data = rf_pinned_data(slot->pinned);
    loader->slot_count++;
    push(&loader->free, slot);
    return RF_OK;
}

/* Adds the first slot, without which nothing can be loaded: as large as is granted. If no more memory may be
 * pinned, it is ordinary memory, which is copied through the device's own staging. */
static rf_status add_first_slot(struct loader *loader) {
    rf_status status;
    while (is_short(status = add_slot(loader, loader->piece_bytes)) && loader->piece_bytes > LEAST_BYTES)
        loader->piece_bytes = RF_MAX(loader->piece_bytes / 2, LEAST_BYTES);
    if (!is_short(status)) return status;
    struct slot *slot = &loader->slots[0];
    void *data = NULL;
    status = rf_host_alloc(&rf_device_runtime(loader->load->device)->host, loader->piece_bytes, "loading", &data);
    if (status) return status;
    slot->data = data;
    loader->plain_bytes = loader->piece_bytes;
    loader->slot_count = loader->slots_most = 1;
    push(&loader->free, slot);
    return rf_event_create(loader->load->device, false, &slot->event);
}

/* Takes a free slot, or adds one while more are allowed, at most one in each step. NULL: there is none. The memory
 * is pinned when it is first needed, while the slots before it are being read: pinning takes as long as reading
 * does. */
static struct slot *take_slot(struct loader *loader) {
    if (!loader->free.first && !loader->grown && loader->slot_count < loader->slots_most) {
        loader->grown = true;
        if (add_slot(loader, loader->piece_bytes))
            loader->slots_most = loader->slot_count; /* refused: this many are enough */
    }
    return pop(&loader->free);
}

/* ---- readers ---- */

static void read_slot(struct loader *loader, struct slot *slot) {
    const struct rf_gguf *gguf = loader->load->gguf;
    const struct rf_gguf_tensor *tensor = slot->home->tensor;
    slot->status = RF_OK;
    for (uint64_t at = 0; at < slot->bytes && !slot->status && !atomic_load(&loader->stop); at += READ_BYTES) {
        slot->status =
            rf_gguf_read(gguf, tensor, slot->at + at, slot->data + at, (size_t)RF_MIN(READ_BYTES, slot->bytes - at));
        if (slot->status)
            rf_fail_within(slot->status, "loading, at byte %llu",
                           (unsigned long long)(tensor->offset + slot->at + at));
    }
}

/* Called with the mutex held; releases it while it reads. */
static void read_wanted(struct loader *loader) {
    struct slot *slot = pop(&loader->wanted);
    pthread_mutex_unlock(&loader->mutex);
    read_slot(loader, slot);
    pthread_mutex_lock(&loader->mutex);
    if (slot->status && !loader->failed) {
        loader->failed = slot->status;
        rf_error_save(&loader->failure); /* the error text belongs to this thread */
    }
    loader->reading--;
    push(&loader->read, slot);
    pthread_cond_signal(&loader->finished);
}

static void *reader(void *user) {
    struct loader *loader = user;
    pthread_mutex_lock(&loader->mutex);
    while (!atomic_load(&loader->stop))
        if (loader->wanted.first)
            read_wanted(loader);
        else
            pthread_cond_wait(&loader->work, &loader->mutex);
    pthread_mutex_unlock(&loader->mutex);
    return NULL;
}

/* Starts as many readers as possible; with none at all, the caller's thread reads. */
static void start_readers(struct loader *loader, unsigned most) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals go to the caller's threads */
    while (loader->reader_count < most &&
           !pthread_create(&loader->readers[loader->reader_count], NULL, reader, loader))
        loader->reader_count++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* ---- the caller's side ---- */

static rf_status begin(struct loader *loader) {
    struct rf_load *load = loader->load;
    uint64_t largest = 0, room = rf_host_room(&rf_device_runtime(load->device)->host, true) / 2;
    for (size_t i = 0; i < loader->count; i++) largest = RF_MAX(largest, loader->homes[i].tensor->bytes);
    /* Pinning a byte costs about as much as reading one, so staging is at most a quarter of what there is to load. */
    uint64_t staging = load->staging_bytes ? load->staging_bytes : STAGING_BYTES;
    staging = RF_MIN(RF_MIN(staging, room), RF_MAX(loader->total / 4, SMALL_LOAD_BYTES));
    uint64_t piece = RF_MIN(load->piece_bytes ? load->piece_bytes : PIECE_BYTES, staging / SLOTS_USUAL);
    loader->piece_bytes = RF_MAX(RF_MIN(piece, largest), RF_MIN(largest, LEAST_BYTES));
    loader->slots_most = (unsigned)RF_MIN(RF_MAX(staging / loader->piece_bytes, 1u), (uint64_t)SLOTS_MAX);

    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&loader->mutex, NULL);
    pthread_cond_init(&loader->work, NULL);
    pthread_cond_init(&loader->finished, &attributes);
    pthread_condattr_destroy(&attributes);
    RF_PARAMS(struct rf_queue_params, params);
    params.label = "loading";
    rf_status status = rf_queue_create(load->device, &params, &loader->queue);
    if (!status) status = add_first_slot(loader);
    if (status) return status;
    unsigned readers = load->readers ? load->readers : rf_usable_cores();
    readers = RF_MIN(RF_MIN(readers, (unsigned)READERS_MAX), loader->slots_most);
    start_readers(loader, (unsigned)RF_MIN((uint64_t)readers, loader->total / loader->piece_bytes + 1));
    return RF_OK;
}

/* Hands a piece to the readers. False: there is no piece left, or no slot. */
static bool want_piece(struct loader *loader) {
    if (loader->next_home == loader->count) return false;
    const struct rf_weight_home *home = &loader->homes[loader->next_home];
    struct slot *slot = home->tensor->bytes ? take_slot(loader) : NULL;
    if (slot) {
        slot->home = home;
        slot->at = loader->next_at;
        slot->bytes = RF_MIN(loader->piece_bytes, home->tensor->bytes - slot->at);
        loader->next_at += slot->bytes;
        pthread_mutex_lock(&loader->mutex);
        push(&loader->wanted, slot);
        loader->reading++;
        pthread_cond_signal(&loader->work);
        pthread_mutex_unlock(&loader->mutex);
    }
    if (loader->next_at == home->tensor->bytes) {
        loader->next_home++;
        loader->next_at = 0;
    }
    return slot != NULL;
}

static rf_status submit(struct loader *loader, struct slot *slot) {
    const struct rf_weight_home *home = slot->home;
    uint64_t to = home->offset + slot->at;
    rf_status status = slot->pinned
                           ? rf_upload_async(loader->queue, home->buffer, to, slot->pinned, 0, slot->bytes)
                           : rf_copy_to_device_safe(loader->queue, home->buffer, to, slot->data, slot->bytes);
    if (!status) status = rf_event_record(slot->event, loader->queue);
    slot->submitted_ns = rf_now_ns();
    push(&loader->copying, slot);
    return status;
}

/* Frees the slots with finished copies, and reports progress. */
static rf_status collect(struct loader *loader, bool *any) {
    const struct rf_load *load = loader->load;
    while (loader->copying.first) {
        bool done = false;
        rf_status status = rf_event_done(loader->copying.first->event, &done);
        if (status || !done) return status;
        struct slot *slot = pop(&loader->copying);
        rf_assert(!loader->copying.first || loader->copying.first->submitted_ns >= slot->submitted_ns);
        loader->done += slot->bytes;
        push(&loader->free, slot);
        *any = true;
        if (load->progress && !load->progress(load->user, loader->done, loader->total))
            return rf_fail(RF_E_CANCELLED, "loading %s was cancelled", rf_gguf_path(load->gguf));
    }
    return RF_OK;
}

/* Waits until a piece was read, or for a moment if a copy is under way. */
static rf_status wait_for_something(struct loader *loader) {
    pthread_mutex_lock(&loader->mutex);
    bool reading = loader->reading > 0;
    if (!loader->reader_count && loader->wanted.first) {
        read_wanted(loader);
    } else if (reading && !loader->read.first && !loader->copying.first) {
        pthread_cond_wait(&loader->finished, &loader->mutex);
    } else if (reading && !loader->read.first) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += LOOK_NS;
        if (until.tv_nsec >= 1000000000) {
            until.tv_sec++;
            until.tv_nsec -= 1000000000;
        }
        pthread_cond_timedwait(&loader->finished, &loader->mutex, &until);
    }
    pthread_mutex_unlock(&loader->mutex);
    struct slot *oldest = loader->copying.first;
    if (!oldest) return RF_OK;
    /* Waits for the copy with a deadline, if there is nothing else to wait for or it takes far too long. */
    bool late = rf_now_ns() - oldest->submitted_ns > PATIENCE_NS;
    return late || !reading ? rf_event_wait(oldest->event, RF_TIMEOUT_DEFAULT) : RF_OK;
}

#if RF_CHECKS >= 2
static unsigned length_of(const struct slots *list) {
    unsigned count = 0;
    for (const struct slot *slot = list->first; slot && count <= SLOTS_MAX; slot = slot->next) count++;
    return count;
}
/* Every slot is in one list, or with a reader. */
static bool slots_are_valid(struct loader *loader, const char **why) {
    pthread_mutex_lock(&loader->mutex);
    unsigned with_readers = loader->reading - length_of(&loader->wanted);
    unsigned listed = length_of(&loader->free) + length_of(&loader->copying) + length_of(&loader->read);
    bool sound = length_of(&loader->wanted) <= loader->reading && with_readers <= RF_MAX(loader->reader_count, 1u) &&
                 listed + loader->reading == loader->slot_count;
    pthread_mutex_unlock(&loader->mutex);
    RF_INVALID_UNLESS(sound, "a slot is in no list, or in two");
    RF_INVALID_UNLESS(loader->slot_count <= loader->slots_most && loader->slots_most <= SLOTS_MAX,
                      "there are more slots than there may be");
    RF_INVALID_UNLESS(loader->done <= loader->total, "more was loaded than there is");
    return true;
}
#endif

static rf_status step(struct loader *loader) {
    bool any = false;
    rf_assert_valid(slots_are_valid, loader);
    loader->grown = false;
    while (want_piece(loader)) any = true;
    for (;;) {
        pthread_mutex_lock(&loader->mutex);
        struct slot *slot = pop(&loader->read);
        rf_status failed = loader->failed;
        pthread_mutex_unlock(&loader->mutex);
        if (failed) {
            rf_error_restore(&loader->failure);
            return failed;
        }
        if (!slot) break;
        any = true;
        rf_status status = submit(loader, slot);
        if (status) return status;
    }
    rf_status status = collect(loader, &any);
    return status || any || loader->done == loader->total ? status : wait_for_something(loader);
}

static rf_status end(struct loader *loader, rf_status status) {
    struct rf_load *load = loader->load;
    struct rf_saved_error saved;
    rf_error_save(&saved);
    pthread_mutex_lock(&loader->mutex);
    atomic_store(&loader->stop, true);
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->mutex);
    for (unsigned i = 0; i < loader->reader_count; i++) pthread_join(loader->readers[i], NULL);
    /* Copies that were submitted before a failure must not use the memory any more, or it would be held beyond
     * this call. */
    if (loader->queue) {
        rf_status waited = rf_queue_wait(loader->queue, RF_TIMEOUT_DEFAULT);
        if (!status && (status = waited)) rf_error_save(&saved);
    }
    for (unsigned i = 0; i < loader->slot_count; i++) {
        rf_event_destroy(&loader->slots[i].event);
        if (!loader->slots[i].pinned)
            rf_host_free(&rf_device_runtime(load->device)->host, loader->slots[i].data, loader->plain_bytes);
        rf_pinned_destroy(&loader->slots[i].pinned);
    }
    rf_queue_destroy(&loader->queue);
    for (unsigned i = 0; i < loader->slot_count; i++) rf_assert(!loader->slots[i].event && !loader->slots[i].pinned);
    pthread_cond_destroy(&loader->work);
    pthread_cond_destroy(&loader->finished);
    pthread_mutex_destroy(&loader->mutex);
    load->readers_used = loader->reader_count;
    load->pieces_used = loader->slot_count;
    load->piece_bytes_used = loader->piece_bytes;
    if (!status) return rf_gguf_unchanged(load->gguf); /* if it changed, the device has parts of two files */
    rf_error_restore(&saved);
    return status;
}
