/* Leases: how much of one GPU each of this user's processes was promised and holds.
 *
 * A root lease is a process's own; a part is a piece of another process's lease, lent through
 * RF_BUDGET. Parts lie inside their lender's promise while that lender lives (or, when a
 * lender in the middle died, inside the lease at the top of the chain), and count on their
 * own after that. Such a chain of leases is a family; it is counted once, by its root.
 *
 * A lease is written into several files (lease_places.c). What is read from them is merged into rows, one for each
 * lease, by the generation. Where two copies of a lease differ, one of them is damaged: the larger figures count.
 *
 * Invariants
 *   1. The families' promises together never exceed the largest limit that one of them was
 *      granted under; what is lent never exceeds the lender's promise, so that a lender's
 *      death never raises the sum.
 *   2. A part is used by one live process at a time.
 *   3. A forked child can read its parent's lease object but changes nothing by it.
 *   4. While the lock is held, the lease and the records of what it lent are in every table of its places.
 * settle asserts the parts of 1 that this process decides. The sum over all processes and 2 are not asserted: the
 * file is not trusted (lease_impl.h), so a wrong sum may come from damage to the file. lease_table.c asserts 3. 4 may
 * fail for a table that is full or has no room; the tests lease_places.* look at all files. The caller measures live
 * free memory; nothing here talks to a GPU. */
#include "gpu/lease_impl.h"

#include <stdio.h>
#include <stdlib.h>

#define SURVEY_TIMEOUT_NS (INT64_C(2) * 1000000000)
#define NO_SEAT UINT32_MAX

/* What a slot says, as this process wants it to be in every table. Links are generations; 0: none. */
struct record {
    struct record *next;
    uint32_t kind;
    uint64_t generation, promised_bytes, floor_bytes;
    uint64_t parent, root, lent, top_lent;
    uint32_t seat[RF_LEASE_PLACES_MAX]; /* its slot in each table, or NO_SEAT */
};

struct rf_lease {
    struct rf_lease_places *places;
    struct record self;
    struct record *lent_records; /* owned; what this lease lent, under the lock */
    pthread_mutex_t held_mutex;  /* held_bytes, here and in the slots; self.seat changes under it and the lock */
    uint64_t held_bytes;
    rf_status (*live_free)(void *user, uint64_t *free_bytes);
    void *user;
    int64_t timeout_ns;
    uint64_t total_bytes;
    bool granted; /* self has its promise, and belongs into the tables */
    /* For a part: what it is a part of. */
    bool part;
    char part_id[64];
    uint64_t part_bytes, part_floor_bytes;
};

/* One lease or lent part, as all tables together show it. */
struct row {
    uint32_t kind, first_slot;
    uint64_t generation, promised_bytes, held_bytes, floor_bytes;
    uint64_t parent, root, lent, top_lent;
    int32_t owner_pid; /* in its own namespace */
    int pid;           /* as seen from here; 0: not visible */
    bool mine;
    /* for a family's root only */
    uint64_t family_held; /* by all of its leases but the one that looks */
    uint64_t parts_held;  /* by those that are not the root */
    uint64_t root_lent;   /* by the root */
    bool family_used;
};

/* What one look at the tables found, from the point of view of one lease. */
struct view {
    struct row *rows;
    uint32_t count, capacity;
    uint64_t live_free;       /* set by measure; else 0 */
    uint64_t everybody_held;  /* by other leases, parts included */
    uint64_t family_held;     /* by other leases of this lease's own family */
    uint64_t others_promised; /* to other families; for one that holds more than its promise, what it holds */
    uint64_t others_unheld;   /* promised to other families and not yet held */
    uint64_t lent_bytes;      /* by this lease */
    int others;
    int largest_pid;
    bool orphan; /* a part whose lender is gone: a family of its own */
};

static rf_status measure(struct rf_lease *lease, struct view *view);
static rf_status look(const struct rf_lease *lease, struct view *view);
static void settle(const struct rf_lease *lease, const struct rf_budget_spec *spec, const struct view *view,
                   struct rf_lease_terms *terms);
static rf_status attach(struct rf_lease *lease, const struct rf_budget_spec *spec, const struct view *view);
static rf_status check_owner(const struct rf_lease *lease, const char *what);
static rf_status refuse_part(const char *id);

static uint64_t add_saturate(uint64_t a, uint64_t b) {
    uint64_t sum;
    return rf_add_overflows(a, b, &sum) ? UINT64_MAX : sum;
}

/* ---- a record and its slots ---- */

static void begin_record(struct record *record, uint32_t kind) {
    record->kind = kind;
    record->generation = rf_lease_draw();
    for (int i = 0; i < RF_LEASE_PLACES_MAX; i++) record->seat[i] = NO_SEAT;
}

static uint64_t held_in_slot(const struct rf_lease *lease, const struct record *record) {
    return record == &lease->self ? lease->held_bytes : 0; /* held_mutex is held */
}

/* The slot of the link's lease in the same table, for versions that read one table only. */
static struct rf_lease_link link_in(const struct rf_lease_table *table, uint64_t generation) {
    struct rf_lease_link link = {.generation = generation, .slot = generation ? NO_SEAT : 0};
    for (uint32_t i = 0; generation && i < RF_LEASE_SLOTS; i++) {
        const struct rf_lease_slot *slot = rf_lease_table_slot(table, i);
        if (slot->generation == generation && atomic_load(&slot->state) == RF_LEASE_LIVE) link.slot = i;
    }
    return link;
}

static bool is_intact(const struct rf_lease *lease, const struct record *record, const struct rf_lease_table *table,
                      const struct rf_lease_slot *slot) {
    return atomic_load(&slot->state) == RF_LEASE_LIVE && slot->kind == record->kind &&
           rf_lease_slot_is_mine(table, slot) && slot->generation == record->generation &&
           slot->promised_bytes == record->promised_bytes && slot->floor_bytes == record->floor_bytes &&
           slot->parent.generation == record->parent && slot->root.generation == record->root &&
           slot->lent.generation == record->lent && slot->top_lent == record->top_lent &&
           atomic_load(&slot->held_bytes) == held_in_slot(lease, record);
}

/* Writes the record into one table, into its own slot or into a fresh one. */
static rf_status seat_in(struct rf_lease *lease, struct record *record, int number) {
    struct rf_lease_table *table = lease->places->table[number];
    uint32_t index = record->seat[number];
    if (index != NO_SEAT) {
        struct rf_lease_slot *slot = rf_lease_table_slot(table, index);
        if (is_intact(lease, record, table, slot)) return RF_OK;
        bool is_ours = atomic_load(&slot->state) == RF_LEASE_LIVE && slot->generation == record->generation &&
                       rf_lease_slot_is_mine(table, slot);
        if (!is_ours && !rf_lease_slot_reclaim(table, index, record->generation)) index = NO_SEAT;
    }
    if (index == NO_SEAT) {
        bool live[RF_LEASE_SLOTS];
        record->seat[number] = NO_SEAT;
        rf_status status = rf_lease_table_refresh(table, live);
        if (!status) status = rf_lease_slot_claim(table, record->generation, &index);
        if (status) return status;
    }
    struct rf_lease_slot *slot = rf_lease_table_slot(table, index);
    slot->kind = record->kind;
    slot->promised_bytes = record->promised_bytes;
    slot->floor_bytes = record->floor_bytes;
    slot->parent = link_in(table, record->parent);
    slot->root = link_in(table, record->root);
    slot->lent = link_in(table, record->lent);
    slot->top_lent = record->top_lent;
    atomic_store(&slot->held_bytes, held_in_slot(lease, record));
    record->seat[number] = index;
    rf_lease_slot_publish(table, index);
    return RF_OK;
}

static void unseat(struct rf_lease *lease, struct record *record) {
    for (int i = 0; i < RF_LEASE_PLACES_MAX; i++) {
        if (lease->places->table[i] && record->seat[i] != NO_SEAT)
            rf_lease_slot_give_up(lease->places->table[i], record->seat[i], record->generation);
        record->seat[i] = NO_SEAT;
    }
}

/* The record in every table that is locked. Fails if one of them has no slot for it, or if none could be written. */
static rf_status seat_record(struct rf_lease *lease, struct record *record) {
    rf_status status = RF_OK;
    int seated = 0;
    pthread_mutex_lock(&lease->held_mutex);
    for (int i = 0; i < RF_LEASE_PLACES_MAX; i++) {
        if (!lease->places->locked[i]) continue;
        rf_status failed = seat_in(lease, record, i);
        if (failed && !status) status = failed;
        seated += !failed;
    }
    pthread_mutex_unlock(&lease->held_mutex);
    return seated && status != RF_E_BUSY ? RF_OK : status;
}

/* Gives up a table: one whose file can no longer be repaired, or that vanished and that nobody else is in. */
static void leave_table(struct rf_lease *lease, int number, bool sound) {
    struct rf_lease_table *table = lease->places->table[number];
    pthread_mutex_lock(&lease->held_mutex);
    for (struct record *record = &lease->self; record;
         record = record == &lease->self ? lease->lent_records : record->next) {
        if (record->seat[number] == NO_SEAT) continue;
        if (sound)
            rf_lease_slot_give_up(table, record->seat[number], record->generation);
        else
            rf_lease_slot_abandon(table, record->seat[number]);
        record->seat[number] = NO_SEAT;
    }
    rf_lease_places_drop(lease->places, number);
    pthread_mutex_unlock(&lease->held_mutex);
}

static bool others_in(struct rf_lease_table *table) {
    bool live[RF_LEASE_SLOTS];
    if (rf_lease_table_refresh(table, live)) return false;
    for (uint32_t i = 0; i < RF_LEASE_SLOTS; i++)
        if (live[i] && !rf_lease_slot_is_mine(table, rf_lease_table_slot(table, i))) return true;
    return false;
}

/* Invariant 4, each time that the lock is taken: tables that are new, and slots that were damaged, get the lease and
 * its promise as they are. A lease that is being opened has no seat yet. */
static rf_status restore(struct rf_lease *lease) {
    struct rf_lease_places *places = lease->places;
    rf_status status = RF_OK;
    int left = 0, in_place = 0;
    for (int i = 0; i < RF_LEASE_PLACES_MAX; i++) in_place += places->locked[i] && !places->away[i];
    for (int i = 0; i < RF_LEASE_PLACES_MAX; i++) {
        if (!places->locked[i]) continue;
        rf_status failed = rf_lease_table_repair(places->table[i]);
        if (failed) {
            status = failed;
            leave_table(lease, i, false);
        } else if (places->away[i] && in_place && !others_in(places->table[i])) {
            leave_table(lease, i, true);
        } else {
            left++;
        }
    }
    if (!left) return status ? status : rf_fail(RF_E_IO, "there is no lease file left");
    status = lease->granted ? seat_record(lease, &lease->self) : RF_OK;
    for (struct record *record = lease->lent_records; !status && record; record = record->next)
        status = seat_record(lease, record);
    return status == RF_E_BUSY ? RF_OK : status; /* a table is full: the others have it */
}

/* ---- the lock ---- */

static rf_status lock(struct rf_lease *lease, int64_t deadline_ns) {
    rf_status status = rf_lease_places_lock(lease->places, deadline_ns);
    if (status) return status;
    status = restore(lease);
    if (status) rf_lease_places_unlock(lease->places);
    return status;
}

static void free_view(struct view *view) {
    free(view->rows);
    view->rows = NULL;
}

static void free_lease(struct rf_lease *lease) {
    while (lease->lent_records) {
        struct record *record = lease->lent_records;
        lease->lent_records = record->next;
        free(record);
    }
    free(lease);
}

rf_status rf_lease_open(const struct rf_lease_params *params, struct rf_lease **out, struct rf_lease_terms *terms) {
    if (!params || !out || !params->uuid || !params->uuid[0] || !params->live_free)
        return rf_fail(RF_E_INVALID,
                       "rf_lease_open needs parameters, the GPU's uuid, a measure of free memory and out");
    struct view view = {0};
    struct rf_lease_terms found = {0};
    struct rf_lease *lease = calloc(1, sizeof *lease);
    if (!lease) return rf_fail(RF_E_NO_MEMORY, "no memory for a lease");
    lease->live_free = params->live_free;
    lease->user = params->user;
    lease->timeout_ns = params->timeout_ns;
    lease->total_bytes = params->total_bytes;
    pthread_mutex_init(&lease->held_mutex, NULL);
    begin_record(&lease->self, params->spec.has_part ? RF_LEASE_PART : RF_LEASE_ROOT);
    const char *part_id = params->spec.has_part ? params->spec.part_id : NULL;
    rf_status status = rf_lease_places_open(params, true, part_id, &lease->places);
    if (status == RF_E_NOT_FOUND && part_id) status = refuse_part(part_id);
    if (status) goto fail;
    status = lock(lease, rf_deadline_after(lease->timeout_ns));
    if (status) goto close;
    status = measure(lease, &view);
    if (!status && part_id) status = attach(lease, &params->spec, &view);
    if (!status && part_id) status = look(lease, &view); /* the lease now has a family: look again from inside it */
    if (!status) {
        settle(lease, &params->spec, &view, &found);
        lease->self.promised_bytes = found.promised_bytes;
        lease->self.floor_bytes = found.floor_bytes;
        lease->granted = true;
        status = seat_record(lease, &lease->self);
        if (status) unseat(lease, &lease->self);
    }
    rf_lease_places_unlock(lease->places);
close:
    if (status) rf_lease_places_close(&lease->places);
fail:
    free_view(&view);
    if (status) {
        free_lease(lease);
        return status;
    }
    *out = lease;
    if (terms) *terms = found;
    return RF_OK;
}

/* ---- looking ---- */

/* The lease, or lent part, of this generation; NULL: it is not alive. */
static struct row *find_row(const struct view *view, uint64_t generation, bool lent) {
    for (uint32_t i = 0; generation && i < view->count; i++)
        if (view->rows[i].generation == generation && (view->rows[i].kind == RF_LEASE_LENT) == lent)
            return &view->rows[i];
    return NULL;
}

/* Gives the root of the family that a lease belongs to. Links in a damaged file may form a ring, so the number of
 * steps is bounded. */
static struct row *family_of(const struct view *view, struct row *row) {
    for (int depth = 0; depth < 4 && row->kind != RF_LEASE_ROOT; depth++) {
        struct row *up = find_row(view, row->parent, false);
        if (!up) up = find_row(view, row->root, false);
        if (!up || up == row) break;
        row = up;
    }
    return row;
}

/* A lease cannot be of more than the card has. */
static uint64_t bounded(uint64_t bytes, uint64_t total_bytes) {
    return total_bytes ? RF_MIN(bytes, total_bytes) : bytes;
}

static void add_row(struct view *view, const struct rf_lease_table *table, uint32_t index, uint64_t total_bytes) {
    const struct rf_lease_slot *slot = rf_lease_table_slot(table, index);
    struct row row = {.kind = slot->kind,
                      .first_slot = index,
                      .generation = slot->generation,
                      .promised_bytes = bounded(slot->promised_bytes, total_bytes),
                      .held_bytes =
                          bounded(atomic_load_explicit(&slot->held_bytes, memory_order_relaxed), total_bytes),
                      .floor_bytes = slot->floor_bytes,
                      .parent = slot->parent.generation,
                      .root = slot->root.generation,
                      .lent = slot->lent.generation,
                      .top_lent = slot->top_lent,
                      .owner_pid = slot->owner.pid,
                      .mine = rf_lease_slot_is_mine(table, slot)};
    for (uint32_t i = 0; i < view->count; i++) {
        struct row *same = &view->rows[i];
        if (same->generation != row.generation || same->kind != row.kind) continue;
        same->promised_bytes = RF_MAX(same->promised_bytes, row.promised_bytes);
        same->held_bytes = RF_MAX(same->held_bytes, row.held_bytes);
        same->mine |= row.mine;
        return;
    }
    row.pid = rf_lease_slot_pid(table, index);
    view->rows[view->count++] = row;
}

/* Reads all tables that are locked. */
static rf_status read_rows(struct rf_lease_places *places, uint64_t total_bytes, struct view *view) {
    uint32_t tables = 0, read = 0;
    for (int i = 0; i < RF_LEASE_PLACES_MAX; i++) tables += places->locked[i];
    if (view->capacity < tables * RF_LEASE_SLOTS) {
        free(view->rows);
        view->capacity = tables * RF_LEASE_SLOTS;
        view->rows = calloc(view->capacity, sizeof *view->rows);
    }
    view->count = 0;
    if (!view->rows) {
        view->capacity = 0;
        return rf_fail(RF_E_NO_MEMORY, "no memory to look at the leases");
    }
    rf_status status = RF_OK;
    for (int i = 0; i < RF_LEASE_PLACES_MAX; i++) {
        bool live[RF_LEASE_SLOTS];
        if (!places->locked[i]) continue;
        rf_status failed = rf_lease_table_refresh(places->table[i], live);
        if (failed) status = failed;
        for (uint32_t slot = 0; !failed && slot < RF_LEASE_SLOTS; slot++)
            if (live[slot]) add_row(view, places->table[i], slot, total_bytes);
        read += !failed;
    }
    return read ? RF_OK : status;
}

/* While the lease is being opened it is in no table; its part links may be set already. */
static rf_status look(const struct rf_lease *lease, struct view *view) {
    *view = (struct view){.live_free = view->live_free, .rows = view->rows, .capacity = view->capacity};
    rf_status status = read_rows(lease->places, lease->total_bytes, view);
    if (status) return status;
    struct row *own = find_row(view, lease->self.generation, false);
    struct row *lender = lease->part && !own ? find_row(view, lease->self.parent, false) : NULL;
    struct row *own_family = own ? family_of(view, own) : lender ? family_of(view, lender) : NULL;
    uint64_t largest = 0;
    for (const struct record *record = lease->lent_records; record; record = record->next)
        view->lent_bytes += record->promised_bytes; /* each was checked against what is left */
    view->orphan = lease->part && (!own_family || own_family == own);
    for (uint32_t i = 0; i < view->count; i++) {
        struct row *row = &view->rows[i];
        if (row->kind == RF_LEASE_LENT) {
            struct row *lender_row = find_row(view, row->parent, false);
            if (lender_row) lender_row->root_lent = add_saturate(lender_row->root_lent, row->promised_bytes);
            continue;
        }
        struct row *family = family_of(view, row);
        family->family_used = true;
        if (family != row) family->parts_held = add_saturate(family->parts_held, row->held_bytes);
        if (row == own) continue;
        family->family_held = add_saturate(family->family_held, row->held_bytes);
        view->everybody_held = add_saturate(view->everybody_held, row->held_bytes);
        view->others++;
        if (view->others == 1 || row->promised_bytes > largest) {
            view->largest_pid = row->pid;
            largest = row->promised_bytes;
        }
    }
    for (uint32_t i = 0; i < view->count; i++) {
        const struct row *row = &view->rows[i];
        if (!row->family_used) continue;
        if (row == own_family) {
            view->family_held = row->family_held;
            continue;
        }
        /* What is lent may be taken at any time. So a lender whose promise shrank under what it holds and lent counts
         * for both, before its parts are used too. */
        uint64_t counted = add_saturate(row->held_bytes, RF_MAX(row->root_lent, row->parts_held));
        counted = RF_MAX(counted, row->promised_bytes);
        view->others_promised = add_saturate(view->others_promised, counted);
        view->others_unheld = add_saturate(view->others_unheld, counted - row->family_held);
    }
    return RF_OK;
}

/* Measures free memory first, and what each lease holds afterwards. If a process dies or frees memory in between,
 * that memory is then missed, not counted twice. (No process takes more meanwhile: that needs the lock.) */
static rf_status measure(struct rf_lease *lease, struct view *view) {
    rf_status status = lease->live_free(lease->user, &view->live_free);
    return status ? status : look(lease, view);
}

static uint64_t get_held(const struct rf_lease *lease) {
    struct rf_lease *own = (struct rf_lease *)(uintptr_t)lease;
    pthread_mutex_lock(&own->held_mutex);
    uint64_t bytes = own->held_bytes;
    pthread_mutex_unlock(&own->held_mutex);
    return bytes;
}

/* Computes the terms that a spec gives now. base: the memory that would be free if no lease held anything. */
static void settle(const struct rf_lease *lease, const struct rf_budget_spec *spec, const struct view *view,
                   struct rf_lease_terms *terms) {
    uint64_t own_held = get_held(lease);
    /* Damaged figures of others must not make the card larger than it is. */
    uint64_t base = RF_MAX(
        bounded(add_saturate(view->live_free, add_saturate(view->everybody_held, own_held)), lease->total_bytes),
        view->live_free);
    /* The parts of a root count as its own; a part's relatives do not. */
    uint64_t ours = lease->part ? own_held : add_saturate(own_held, view->family_held);
    uint64_t without_us = add_saturate(view->live_free, ours);
    rf_budget_eval(spec, base, &terms->limit_bytes, &terms->floor_bytes);
    terms->free0_bytes = rf_sub_saturate(without_us, view->others_unheld);
    terms->others_promised_bytes = view->others_promised;
    terms->others_held_bytes = view->everybody_held;
    terms->others = view->others;
    terms->largest_pid = view->largest_pid;
    if (lease->part) {
        /* The lender's promise holds these bytes already, under the lender's floor. */
        bool narrowed = spec->has_percent || spec->has_cap || spec->has_keep || spec->has_keep_percent;
        bool keeps = spec->has_keep || spec->has_keep_percent;
        terms->limit_bytes = narrowed ? RF_MIN(terms->limit_bytes, lease->part_bytes) : lease->part_bytes;
        terms->floor_bytes = keeps ? RF_MAX(terms->floor_bytes, lease->part_floor_bytes) : lease->part_floor_bytes;
        terms->promised_bytes = terms->limit_bytes;
        /* On its own the part counts for what it was promised last. Bytes that it gave back before may be promised to
         * others by now, so it can only shrink. */
        if (view->orphan) terms->promised_bytes = RF_MIN(terms->promised_bytes, lease->self.promised_bytes);
    } else {
        terms->promised_bytes =
            RF_MIN(rf_sub_saturate(terms->limit_bytes, view->others_promised), terms->free0_bytes);
    }
    /* Lent bytes belong to another process: a smaller promise cannot take them back. */
    terms->promised_bytes = RF_MAX(terms->promised_bytes, view->lent_bytes);
    rf_assert(terms->promised_bytes == view->lent_bytes ||
              terms->promised_bytes <=
                  (lease->part ? lease->part_bytes : rf_sub_saturate(terms->limit_bytes, view->others_promised)));
}

void rf_lease_set_held(struct rf_lease *lease, uint64_t bytes) {
    if (!lease || rf_lease_registry_inherited(lease->places->registry)) return;
    pthread_mutex_lock(&lease->held_mutex);
    lease->held_bytes = bytes;
    for (int i = 0; i < RF_LEASE_PLACES_MAX; i++) {
        if (lease->self.seat[i] == NO_SEAT) continue;
        struct rf_lease_slot *slot = rf_lease_table_slot(lease->places->table[i], lease->self.seat[i]);
        atomic_store_explicit(&slot->held_bytes, bytes, memory_order_relaxed);
    }
    pthread_mutex_unlock(&lease->held_mutex);
}

rf_status rf_lease_lock(struct rf_lease *lease, int64_t deadline_ns) {
    rf_status status = check_owner(lease, "rf_lease_lock");
    return status ? status : lock(lease, deadline_ns);
}

void rf_lease_unlock(struct rf_lease *lease) {
    if (lease && !rf_lease_registry_inherited(lease->places->registry)) rf_lease_places_unlock(lease->places);
}

rf_status rf_lease_renew(struct rf_lease *lease, const struct rf_budget_spec *spec, struct rf_lease_terms *terms) {
    rf_status status = check_owner(lease, "rf_lease_renew");
    if (status) return status;
    if (!spec) return rf_fail(RF_E_INVALID, "rf_lease_renew: spec is NULL");
    if (spec->has_part && (!lease->part || strcmp(spec->part_id, lease->part_id) != 0))
        return rf_fail(RF_E_INVALID, "part=%s can only be taken when the device is opened", spec->part_id);
    struct view view = {0};
    struct rf_lease_terms found = {0};
    status = lock(lease, rf_deadline_after(lease->timeout_ns));
    if (status) return status;
    status = measure(lease, &view);
    if (!status) {
        settle(lease, spec, &view, &found);
        lease->self.promised_bytes = found.promised_bytes;
        lease->self.floor_bytes = found.floor_bytes;
        status = seat_record(lease, &lease->self);
    }
    rf_lease_places_unlock(lease->places);
    free_view(&view);
    if (!status && terms) *terms = found;
    return status;
}

/* If the lock cannot be taken by the deadline, the slots are given up all the same, because only this process uses
 * them. */
void rf_lease_close(struct rf_lease **lease_pointer) {
    if (!lease_pointer || !*lease_pointer) return;
    struct rf_lease *lease = *lease_pointer;
    *lease_pointer = NULL;
    if (!rf_lease_registry_inherited(lease->places->registry)) {
        struct rf_saved_error saved;
        rf_error_save(&saved);
        bool locked = !rf_lease_places_lock(lease->places, rf_deadline_after(lease->timeout_ns));
        for (int i = 0; locked && i < RF_LEASE_PLACES_MAX; i++)
            if (lease->places->locked[i] && rf_lease_table_repair(lease->places->table[i]))
                leave_table(lease, i, false);
        for (struct record *record = lease->lent_records; record; record = record->next) unseat(lease, record);
        unseat(lease, &lease->self);
        if (locked) rf_lease_places_unlock(lease->places);
        pthread_mutex_destroy(&lease->held_mutex);
        rf_error_restore(&saved);
    }
    rf_lease_places_close(&lease->places);
    free_lease(lease);
}

static rf_status check_owner(const struct rf_lease *lease, const char *what) {
    if (!lease) return rf_fail(RF_E_INVALID, "%s: the lease is NULL", what);
    if (rf_lease_registry_inherited(lease->places->registry))
        return rf_fail(RF_E_INVALID, "%s: this lease belongs to process %d; a forked child must open its own", what,
                       rf_lease_registry_pid(lease->places->registry));
    return RF_OK;
}

/* ---- parts ---- */

static rf_status refuse_part(const char *id) {
    return rf_fail(RF_E_NOT_FOUND,
                   "part=%s is not lent on this GPU: its lender ended or took it back; unset RF_BUDGET or ask anew",
                   id);
}

/* An id is "PID-SLOT-GENERATION": the pid is for people to read, the generation, a random number, says which part it
 * is. The slot is that of the first table; versions that knew only one table compare it. What follows the generation
 * is the lender's descriptor of a table that is in no folder; rf_lease_places_open has used it. */
static struct row *find_lent(const struct view *view, const char *id) {
    int pid;
    unsigned slot;
    unsigned long long generation;
    if (sscanf(id, "%d-%u-%16llx", &pid, &slot, &generation) != 3) return NULL;
    struct row *row = find_row(view, generation, true);
    return row && row->owner_pid == pid ? row : NULL;
}

/* Whether a live process uses a lent part, or a part lent out of it; name says which. */
static bool in_use(const struct view *view, uint64_t lent_generation, char *name, size_t size) {
    for (uint32_t i = 0; i < view->count; i++) {
        const struct row *row = &view->rows[i];
        if (row->kind != RF_LEASE_PART || (row->lent != lent_generation && row->top_lent != lent_generation))
            continue;
        if (row->pid)
            snprintf(name, size, "process %d", row->pid);
        else
            snprintf(name, size, "a process of another pid namespace");
        return true;
    }
    return false;
}

static rf_status attach(struct rf_lease *lease, const struct rf_budget_spec *spec, const struct view *view) {
    const struct row *record = find_lent(view, spec->part_id);
    if (!record) return refuse_part(spec->part_id);
    const struct row *above = find_row(view, record->parent, false);
    if (!above) return rf_fail(RF_E_NOT_FOUND, "part=%s: the lease it was lent from has ended", spec->part_id);
    if (record->promised_bytes != spec->part_bytes)
        return rf_fail(RF_E_INVALID, "part=%s is of %llu bytes, not %llu; pass it on as it was written",
                       spec->part_id, (unsigned long long)record->promised_bytes,
                       (unsigned long long)spec->part_bytes);
    char user[64];
    if (in_use(view, record->generation, user, sizeof user))
        return rf_fail(RF_E_BUSY, "part=%s is in use by %s; each part serves one process at a time", spec->part_id,
                       user);
    lease->part = true;
    snprintf(lease->part_id, sizeof lease->part_id, "%s", spec->part_id);
    lease->part_bytes = record->promised_bytes;
    lease->part_floor_bytes = above->floor_bytes;
    lease->self.parent = record->parent;
    lease->self.root = record->root;
    lease->self.lent = record->generation;
    lease->self.top_lent = record->top_lent;
    return RF_OK;
}

/* The first table with this record: its number, or -1. */
static int first_seat(const struct record *record) {
    for (int i = 0; i < RF_LEASE_PLACES_MAX; i++)
        if (record->seat[i] != NO_SEAT) return i;
    return -1;
}

static rf_status lend_locked(struct rf_lease *lease, uint64_t bytes, const struct view *view, char *spec,
                             size_t size) {
    if (lease->part && lease->self.parent != lease->self.root)
        return rf_fail(RF_E_UNSUPPORTED, "a part of a part cannot be lent further; lend it from the process above");
    uint64_t promised = lease->self.promised_bytes;
    uint64_t held = get_held(lease);
    uint64_t left = rf_sub_saturate(promised, add_saturate(held, view->lent_bytes));
    if (bytes > left) {
        char asked[32], all[32], mine[32], lent[32], rest[32];
        return rf_fail(RF_E_BUDGET,
                       "lending %s: of this lease's %s, %s is held and %s lent already, %s is left; "
                       "lend less, free some or raise RF_BUDGET",
                       rf_format_bytes(bytes, asked, sizeof asked), rf_format_bytes(promised, all, sizeof all),
                       rf_format_bytes(held, mine, sizeof mine), rf_format_bytes(view->lent_bytes, lent, sizeof lent),
                       rf_format_bytes(left, rest, sizeof rest));
    }
    struct record *record = calloc(1, sizeof *record);
    if (!record) return rf_fail(RF_E_NO_MEMORY, "no memory for the record of a lent part");
    begin_record(record, RF_LEASE_LENT);
    record->promised_bytes = bytes;
    record->parent = lease->self.generation;
    record->root = lease->part ? lease->self.root : record->parent;
    record->top_lent = lease->part ? lease->self.top_lent : record->generation;
    rf_assert(view->lent_bytes + bytes <= promised);
    rf_status status = seat_record(lease, record);
    if (!status) {
        int first = first_seat(record), own_fd = rf_lease_table_own_fd(lease->places->table[first]);
        char text[128], descriptor[32] = "";
        if (own_fd >= 0) snprintf(descriptor, sizeof descriptor, "-fd%d", own_fd);
        int length = snprintf(text, sizeof text, "part=%d-%u-%016llx%s:%llu",
                              rf_lease_registry_pid(lease->places->registry), (unsigned)record->seat[first],
                              (unsigned long long)record->generation, descriptor, (unsigned long long)bytes);
        if ((size_t)length < size)
            memcpy(spec, text, (size_t)length + 1);
        else
            status = rf_fail(RF_E_INVALID, "rf_lease_lend: the spec takes %d bytes, there is room for %zu",
                             length + 1, size);
    }
    if (status) {
        unseat(lease, record);
        free(record);
        return status;
    }
    record->next = lease->lent_records;
    lease->lent_records = record;
    return RF_OK;
}

static rf_status reclaim_locked(struct rf_lease *lease, const struct rf_budget_spec *part, const struct view *view,
                                uint64_t *bytes) {
    const struct row *row = find_lent(view, part->part_id);
    struct record **link = &lease->lent_records;
    while (row && *link && (*link)->generation != row->generation) link = &(*link)->next;
    if (!row || !*link)
        return rf_fail(RF_E_NOT_FOUND, "part=%s is not lent by this lease, or was taken back already", part->part_id);
    char user[64];
    if (in_use(view, row->generation, user, sizeof user))
        return rf_fail(RF_E_BUSY, "part=%s is in use by %s; wait for it to end", part->part_id, user);
    struct record *record = *link;
    if (bytes) *bytes = record->promised_bytes;
    unseat(lease, record);
    *link = record->next;
    free(record);
    return RF_OK;
}

rf_status rf_lease_lend(struct rf_lease *lease, uint64_t bytes, char *spec, size_t size) {
    rf_status status = check_owner(lease, "rf_lease_lend");
    if (status) return status;
    if (!bytes || !spec)
        return rf_fail(RF_E_INVALID, "rf_lease_lend: %s", spec ? "nothing to lend: bytes is 0" : "spec is NULL");
    struct view view = {0};
    status = lock(lease, rf_deadline_after(lease->timeout_ns));
    if (status) return status;
    status = look(lease, &view);
    if (!status) status = lend_locked(lease, bytes, &view, spec, size);
    rf_lease_places_unlock(lease->places);
    free_view(&view);
    return status;
}

rf_status rf_lease_reclaim(struct rf_lease *lease, const char *spec, uint64_t *bytes) {
    struct rf_budget_spec part;
    rf_status status = check_owner(lease, "rf_lease_reclaim");
    if (!status) status = rf_budget_parse(spec, &part);
    if (status) return status;
    if (!part.has_part)
        return rf_fail(RF_E_INVALID, "rf_lease_reclaim: \"%.80s\" is no part= as written by rf_lease_lend", spec);
    struct view view = {0};
    status = lock(lease, rf_deadline_after(lease->timeout_ns));
    if (status) return status;
    status = look(lease, &view);
    if (!status) status = reclaim_locked(lease, &part, &view, bytes);
    rf_lease_places_unlock(lease->places);
    free_view(&view);
    return status;
}

/* ---- for doctor and tests ---- */

/* The rows are read under the lock and shown without it, so visit may call anything. */
rf_status rf_lease_survey(const struct rf_lease_params *place,
                          bool (*visit)(void *user, const struct rf_lease_entry *entry), void *user) {
    if (!place || !place->uuid || !place->uuid[0] || !visit)
        return rf_fail(RF_E_INVALID, "rf_lease_survey needs the GPU's uuid and a function to call");
    struct rf_lease_places *places;
    struct rf_saved_error saved;
    struct view view = {0};
    rf_error_save(&saved);
    rf_status status = rf_lease_places_open(place, false, NULL, &places);
    if (status == RF_E_NOT_FOUND) {
        rf_error_restore(&saved);
        return RF_OK;
    }
    if (status) return status;
    status = rf_lease_places_lock(places, rf_deadline_after(SURVEY_TIMEOUT_NS));
    if (!status) {
        status = read_rows(places, place->total_bytes, &view);
        rf_lease_places_unlock(places);
    }
    rf_lease_places_close(&places);
    for (uint32_t i = 0; !status && i < view.count; i++) {
        struct row *row = &view.rows[i];
        if (row->kind == RF_LEASE_LENT) continue;
        struct rf_lease_entry entry = {
            .pid = row->pid,
            .promised_bytes = row->promised_bytes,
            .held_bytes = row->held_bytes,
            .part = family_of(&view, row) != row,
            .mine = row->mine,
        };
        if (!visit(user, &entry)) break;
    }
    free_view(&view);
    return status;
}
