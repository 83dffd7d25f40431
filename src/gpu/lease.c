/* Leases: how much of one GPU each of this user's processes was promised and holds.
 *
 * A root lease is a process's own; a part is a piece of another process's lease, lent through
 * RF_BUDGET. Parts lie inside their lender's promise while that lender lives (or, when a
 * lender in the middle died, inside the lease at the top of the chain), and count on their
 * own after that. Such a chain of leases is a family; it is counted once, by its root.
 *
 * Invariants
 *   1. The families' promises together never exceed the largest limit that one of them was
 *      granted under; what is lent never exceeds the lender's promise, so that a lender's
 *      death never raises the sum.
 *   2. A part is used by one live process at a time.
 *   3. A forked child can read its parent's lease object but changes nothing by it.
 * settle asserts the parts of 1 that this process decides. The sum over all processes and 2 are not asserted: the
 * file is not trusted (lease_impl.h), so a wrong sum may come from damage to the file. lease_table.c asserts 3. The
 * caller measures live free memory; nothing here talks to a GPU. */
#include "gpu/lease_impl.h"

#include <stdio.h>
#include <stdlib.h>

#define SURVEY_TIMEOUT_NS (INT64_C(2) * 1000000000)
#define REPLACED_RETRIES 8

struct rf_lease {
    struct rf_lease_table *table;
    _Atomic(struct rf_lease_slot *) slot;
    uint32_t index;
    uint64_t generation;
    _Atomic uint64_t held_bytes; /* also in the slot; kept here to survive damage to the file */
    uint64_t promised_bytes;     /* also in the slot; under the table's lock */
    rf_status (*live_free)(void *user, uint64_t *free_bytes);
    void *user;
    int64_t timeout_ns;
    /* For a part: the lease that it is a part of. The same as in the slot. */
    bool part;
    char part_id[64];
    uint64_t part_bytes, part_floor_bytes, top_lent;
    struct rf_lease_link parent, root, lent;
};

/* What one look at the table found, from the point of view of one lease. */
struct view {
    bool live[RF_LEASE_SLOTS];
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
static rf_status look(struct rf_lease_table *table, const struct rf_lease *lease, struct view *view);
static void settle(const struct rf_lease *lease, const struct rf_budget_spec *spec, const struct view *view,
                   struct rf_lease_terms *terms);
static rf_status attach(struct rf_lease *lease, const struct rf_budget_spec *spec, const struct view *view);
static rf_status occupy(struct rf_lease *lease, const struct view *view, const struct rf_lease_terms *terms);
static rf_status check_owner(const struct rf_lease *lease, const char *what);
static rf_status refuse_part(const char *id);

static uint64_t add_saturate(uint64_t a, uint64_t b) {
    uint64_t sum;
    return rf_add_overflows(a, b, &sum) ? UINT64_MAX : sum;
}

/* A part is found where its id says that it was lent, whatever else the parameters say. */
static rf_status acquire(const struct rf_lease_params *params, struct rf_lease_table **table) {
    int pid, fd, end = 0;
    unsigned slot;
    unsigned long long generation;
    if (!params->spec.has_part)
        return params->own ? rf_lease_table_acquire_own(params->uuid, true, table)
                           : rf_lease_table_acquire(params->dir, params->uuid, true, table);
    const char *id = params->spec.part_id;
    if (sscanf(id, "%d-%u-%16llx-fd%d%n", &pid, &slot, &generation, &fd, &end) != 4 || id[end])
        return rf_lease_table_acquire(params->dir, params->uuid, true, table);
    rf_status status = rf_lease_table_acquire_lent(pid, fd, params->uuid, table);
    return status == RF_E_NOT_FOUND ? refuse_part(id) : status;
}

/* Acquires and locks the table; the file may have been replaced since it was last opened. */
static rf_status enter(struct rf_lease *lease, const struct rf_lease_params *params, struct view *view) {
    int64_t deadline_ns = rf_deadline_after(lease->timeout_ns);
    for (int tries = 0;; tries++) {
        rf_status status = acquire(params, &lease->table);
        if (status) return status;
        status = rf_lease_table_lock(lease->table, deadline_ns);
        bool replaced = false;
        if (!status) {
            replaced = rf_lease_table_replaced(lease->table) && tries < REPLACED_RETRIES;
            if (!replaced) status = measure(lease, view);
            if (!replaced && !status) return RF_OK;
            rf_lease_table_unlock(lease->table);
        }
        rf_lease_table_release(lease->table);
        if (!replaced) return status;
    }
}

rf_status rf_lease_open(const struct rf_lease_params *params, struct rf_lease **out, struct rf_lease_terms *terms) {
    if (!params || !out || !params->uuid || !params->uuid[0] || !params->live_free)
        return rf_fail(RF_E_INVALID,
                       "rf_lease_open needs parameters, the GPU's uuid, a measure of free memory and out");
    struct view *view = calloc(1, sizeof *view);
    struct rf_lease *lease = calloc(1, sizeof *lease);
    struct rf_lease_terms found = {0};
    rf_status status = view && lease ? RF_OK : rf_fail(RF_E_NO_MEMORY, "no memory for a lease");
    if (!status) {
        lease->live_free = params->live_free;
        lease->user = params->user;
        lease->timeout_ns = params->timeout_ns;
        status = enter(lease, params, view);
    }
    if (!status) {
        if (params->spec.has_part) status = attach(lease, &params->spec, view);
        if (!status && lease->part) /* the lease now has a family: look again from inside it */
            status = look(lease->table, lease, view);
        if (!status) {
            settle(lease, &params->spec, view, &found);
            status = occupy(lease, view, &found);
        }
        rf_lease_table_unlock(lease->table);
        if (status) rf_lease_table_release(lease->table);
    }
    free(view);
    if (status) {
        free(lease);
        return status;
    }
    *out = lease;
    if (terms) *terms = found;
    return RF_OK;
}

/* Gives the family that a slot belongs to, as the index of the family's root. Links in a damaged file may form a
 * ring, so the number of steps is bounded. */
static uint32_t family_of(struct rf_lease_table *table, const bool live[RF_LEASE_SLOTS], uint32_t index) {
    for (int depth = 0; depth < 4; depth++) {
        const struct rf_lease_slot *slot = rf_lease_table_slot(table, index);
        if (slot->kind == RF_LEASE_ROOT) break;
        const struct rf_lease_link *links[] = {&slot->parent, &slot->root};
        uint32_t up = index;
        for (size_t i = 0; i < RF_COUNT(links) && up == index; i++) {
            const struct rf_lease_link *link = links[i];
            if (link->slot < RF_LEASE_SLOTS && live[link->slot] &&
                rf_lease_table_slot(table, link->slot)->generation == link->generation)
                up = link->slot;
        }
        if (up == index) break;
        index = up;
    }
    return index;
}

static bool is_link_to(const struct rf_lease_link *link, const struct rf_lease *lease) {
    return link->generation && link->generation == lease->generation && link->slot == lease->index;
}

/* lease->generation is 0 while the lease is being opened; its part links may be set already. */
static rf_status look(struct rf_lease_table *table, const struct rf_lease *lease, struct view *view) {
    struct {
        uint64_t promised, held;
        bool used;
    } families[RF_LEASE_SLOTS];
    memset(families, 0, sizeof families);
    *view = (struct view){.live_free = view->live_free};
    rf_status status = rf_lease_table_refresh(table, view->live);
    if (status) return status;
    uint32_t own_family = RF_LEASE_SLOTS;
    uint64_t largest = 0;
    if (lease->generation && view->live[lease->index] &&
        rf_lease_table_slot(table, lease->index)->generation == lease->generation)
        own_family = family_of(table, view->live, lease->index);
    else if (lease->part && lease->parent.slot < RF_LEASE_SLOTS && view->live[lease->parent.slot] &&
             rf_lease_table_slot(table, lease->parent.slot)->generation == lease->parent.generation)
        own_family = family_of(table, view->live, lease->parent.slot);
    view->orphan = lease->part && (own_family == RF_LEASE_SLOTS || (lease->generation && own_family == lease->index));
    for (uint32_t i = 0; i < RF_LEASE_SLOTS; i++) {
        if (!view->live[i]) continue;
        const struct rf_lease_slot *slot = rf_lease_table_slot(table, i);
        if (slot->kind == RF_LEASE_LENT) {
            if (is_link_to(&slot->parent, lease))
                view->lent_bytes = add_saturate(view->lent_bytes, slot->promised_bytes);
            continue;
        }
        uint32_t family = family_of(table, view->live, i);
        uint64_t held = atomic_load_explicit(&slot->held_bytes, memory_order_relaxed);
        families[family].used = true;
        if (family == i) families[family].promised = slot->promised_bytes;
        if (slot->generation == lease->generation) continue; /* this is the lease itself */
        families[family].held = add_saturate(families[family].held, held);
        view->everybody_held = add_saturate(view->everybody_held, held);
        view->others++;
        if (view->others == 1 || slot->promised_bytes > largest) {
            view->largest_pid = rf_lease_slot_pid(table, i);
            largest = slot->promised_bytes;
        }
    }
    for (uint32_t i = 0; i < RF_LEASE_SLOTS; i++) {
        if (!families[i].used) continue;
        if (i == own_family) {
            view->family_held = families[i].held;
            continue;
        }
        uint64_t counted = RF_MAX(families[i].promised, families[i].held);
        view->others_promised = add_saturate(view->others_promised, counted);
        view->others_unheld = add_saturate(view->others_unheld, counted - families[i].held);
    }
    return RF_OK;
}

/* Measures free memory first, and what each lease holds afterwards. If a process dies or frees memory in between,
 * that memory is then missed, not counted twice. (No process takes more meanwhile: that needs the lock.) */
static rf_status measure(struct rf_lease *lease, struct view *view) {
    rf_status status = lease->live_free(lease->user, &view->live_free);
    return status ? status : look(lease->table, lease, view);
}

/* Computes the terms that a spec gives now. base: the memory that would be free if no lease held anything. */
static void settle(const struct rf_lease *lease, const struct rf_budget_spec *spec, const struct view *view,
                   struct rf_lease_terms *terms) {
    uint64_t own_held = atomic_load(&lease->held_bytes);
    uint64_t base = add_saturate(view->live_free, add_saturate(view->everybody_held, own_held));
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
        if (view->orphan) terms->promised_bytes = RF_MIN(terms->promised_bytes, lease->promised_bytes);
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

/* Writes the terms into the lease's slot, or into a fresh slot where the lease has none or lost it. */
static rf_status occupy(struct rf_lease *lease, const struct view *view, const struct rf_lease_terms *terms) {
    struct rf_lease_slot *slot = NULL;
    if (lease->generation && view->live[lease->index]) {
        slot = rf_lease_table_slot(lease->table, lease->index);
        if (slot->generation != lease->generation || !rf_lease_slot_is_mine(lease->table, slot)) slot = NULL;
    }
    if (!slot) {
        uint32_t index;
        rf_status status = rf_lease_slot_claim(lease->table, view->live, &index);
        if (status) return status;
        slot = rf_lease_table_slot(lease->table, index);
        slot->kind = lease->part ? RF_LEASE_PART : RF_LEASE_ROOT;
        slot->parent = lease->parent;
        slot->root = lease->root;
        slot->lent = lease->lent;
        slot->top_lent = lease->top_lent;
        atomic_store(&slot->held_bytes, atomic_load(&lease->held_bytes));
        lease->index = index;
        lease->generation = slot->generation;
        atomic_store(&lease->slot, slot);
    }
    slot->promised_bytes = lease->promised_bytes = terms->promised_bytes;
    slot->floor_bytes = terms->floor_bytes;
    rf_lease_slot_publish(lease->table, lease->index);
    return RF_OK;
}

void rf_lease_set_held(struct rf_lease *lease, uint64_t bytes) {
    if (!lease || rf_lease_table_inherited(lease->table)) return;
    atomic_store_explicit(&lease->held_bytes, bytes, memory_order_relaxed);
    atomic_store_explicit(&atomic_load_explicit(&lease->slot, memory_order_relaxed)->held_bytes, bytes,
                          memory_order_relaxed);
}

rf_status rf_lease_lock(struct rf_lease *lease, int64_t deadline_ns) {
    rf_status status = check_owner(lease, "rf_lease_lock");
    return status ? status : rf_lease_table_lock(lease->table, deadline_ns);
}

void rf_lease_unlock(struct rf_lease *lease) {
    if (lease && !rf_lease_table_inherited(lease->table)) rf_lease_table_unlock(lease->table);
}

rf_status rf_lease_renew(struct rf_lease *lease, const struct rf_budget_spec *spec, struct rf_lease_terms *terms) {
    rf_status status = check_owner(lease, "rf_lease_renew");
    if (status) return status;
    if (!spec) return rf_fail(RF_E_INVALID, "rf_lease_renew: spec is NULL");
    if (spec->has_part && (!lease->part || strcmp(spec->part_id, lease->part_id) != 0))
        return rf_fail(RF_E_INVALID, "part=%s can only be taken when the device is opened", spec->part_id);
    struct view *view = calloc(1, sizeof *view);
    if (!view) return rf_fail(RF_E_NO_MEMORY, "no memory to look at the leases");
    struct rf_lease_terms found = {0};
    status = rf_lease_table_lock(lease->table, rf_deadline_after(lease->timeout_ns));
    if (!status) {
        status = measure(lease, view);
        if (!status) {
            settle(lease, spec, view, &found);
            status = occupy(lease, view, &found);
        }
        rf_lease_table_unlock(lease->table);
    }
    free(view);
    if (!status && terms) *terms = found;
    return status;
}

/* If the lock cannot be taken by the deadline, the slot is given up all the same, because only this process uses it.
 * The lender's records of parts are then removed when this process ends. */
void rf_lease_close(struct rf_lease **lease_pointer) {
    if (!lease_pointer || !*lease_pointer) return;
    struct rf_lease *lease = *lease_pointer;
    *lease_pointer = NULL;
    if (!rf_lease_table_inherited(lease->table)) {
        struct rf_saved_error saved;
        bool live[RF_LEASE_SLOTS] = {false};
        rf_error_save(&saved);
        bool locked = !rf_lease_table_lock(lease->table, rf_deadline_after(lease->timeout_ns));
        bool sound = !locked || !rf_lease_table_refresh(lease->table, live);
        for (uint32_t i = 0; sound && i < RF_LEASE_SLOTS; i++) {
            struct rf_lease_slot *slot = rf_lease_table_slot(lease->table, i);
            if (live[i] && slot->kind == RF_LEASE_LENT && is_link_to(&slot->parent, lease) &&
                rf_lease_slot_is_mine(lease->table, slot))
                rf_lease_slot_give_up(lease->table, i);
        }
        if (sound && rf_lease_table_slot(lease->table, lease->index)->generation == lease->generation)
            rf_lease_slot_give_up(lease->table, lease->index);
        if (locked) rf_lease_table_unlock(lease->table);
        rf_lease_table_release(lease->table);
        rf_error_restore(&saved);
    }
    free(lease);
}

static rf_status check_owner(const struct rf_lease *lease, const char *what) {
    if (!lease) return rf_fail(RF_E_INVALID, "%s: the lease is NULL", what);
    if (rf_lease_table_inherited(lease->table))
        return rf_fail(RF_E_INVALID, "%s: this lease belongs to process %d; a forked child must open its own", what,
                       rf_lease_table_pid(lease->table));
    return RF_OK;
}

/* ---- parts ---- */

/* Writes "PID-SLOT-GENERATION": the pid is for people to read, the generation prevents guessing. */
/* own_fd: the lender's descriptor of a table that is in no folder, by which others find it; -1: it is in a folder. */
static void write_id(const struct rf_lease_slot *slot, uint32_t index, int own_fd, char *id, size_t size) {
    int length = snprintf(id, size, "%d-%u-%016llx", (int)slot->owner.pid, (unsigned)index,
                          (unsigned long long)slot->generation);
    if (own_fd >= 0) snprintf(id + length, size - (size_t)length, "-fd%d", own_fd);
}

static rf_status refuse_part(const char *id) {
    return rf_fail(RF_E_NOT_FOUND,
                   "part=%s is not lent on this GPU: its lender ended or took it back; unset RF_BUDGET or ask anew",
                   id);
}

/* What follows the generation in an id is the lender's descriptor, which only the lender knows. */
static bool find_lent(struct rf_lease_table *table, const struct view *view, const char *id, uint32_t *index) {
    for (uint32_t i = 0; i < RF_LEASE_SLOTS; i++) {
        const struct rf_lease_slot *slot = rf_lease_table_slot(table, i);
        char found[64];
        if (!view->live[i] || slot->kind != RF_LEASE_LENT) continue;
        write_id(slot, i, -1, found, sizeof found);
        size_t length = strlen(found);
        if (strncmp(found, id, length) == 0 && (!id[length] || id[length] == '-')) {
            *index = i;
            return true;
        }
    }
    return false;
}

/* Whether a live process uses a lent part, or a part lent out of it; name says which. */
static bool in_use(struct rf_lease_table *table, const struct view *view, uint64_t lent_generation, char *name,
                   size_t size) {
    for (uint32_t i = 0; i < RF_LEASE_SLOTS; i++) {
        const struct rf_lease_slot *slot = rf_lease_table_slot(table, i);
        if (!view->live[i] || slot->kind != RF_LEASE_PART ||
            (slot->lent.generation != lent_generation && slot->top_lent != lent_generation))
            continue;
        int pid = rf_lease_slot_pid(table, i);
        if (pid)
            snprintf(name, size, "process %d", pid);
        else
            snprintf(name, size, "a process of another pid namespace");
        return true;
    }
    return false;
}

static rf_status attach(struct rf_lease *lease, const struct rf_budget_spec *spec, const struct view *view) {
    uint32_t index;
    if (!find_lent(lease->table, view, spec->part_id, &index)) return refuse_part(spec->part_id);
    const struct rf_lease_slot *record = rf_lease_table_slot(lease->table, index);
    uint32_t above = record->parent.slot;
    if (above >= RF_LEASE_SLOTS || !view->live[above] ||
        rf_lease_table_slot(lease->table, above)->generation != record->parent.generation)
        return rf_fail(RF_E_NOT_FOUND, "part=%s: the lease it was lent from has ended", spec->part_id);
    if (record->promised_bytes != spec->part_bytes)
        return rf_fail(RF_E_INVALID, "part=%s is of %llu bytes, not %llu; pass it on as it was written",
                       spec->part_id, (unsigned long long)record->promised_bytes,
                       (unsigned long long)spec->part_bytes);
    char user[64];
    if (in_use(lease->table, view, record->generation, user, sizeof user))
        return rf_fail(RF_E_BUSY, "part=%s is in use by %s; each part serves one process at a time", spec->part_id,
                       user);
    lease->part = true;
    snprintf(lease->part_id, sizeof lease->part_id, "%s", spec->part_id);
    lease->part_bytes = record->promised_bytes;
    lease->part_floor_bytes = rf_lease_table_slot(lease->table, above)->floor_bytes;
    lease->parent = record->parent;
    lease->root = record->root;
    lease->lent = (struct rf_lease_link){.generation = record->generation, .slot = index};
    lease->top_lent = record->top_lent;
    return RF_OK;
}

static rf_status lend_locked(struct rf_lease *lease, uint64_t bytes, const struct view *view, char *spec,
                             size_t size) {
    if (!view->live[lease->index] || rf_lease_table_slot(lease->table, lease->index)->generation != lease->generation)
        return rf_fail(RF_E_IO, "this lease is no longer in %s; renew it", rf_lease_table_path(lease->table));
    if (lease->part && lease->parent.generation != lease->root.generation)
        return rf_fail(RF_E_UNSUPPORTED, "a part of a part cannot be lent further; lend it from the process above");
    uint64_t promised = rf_lease_table_slot(lease->table, lease->index)->promised_bytes;
    uint64_t held = atomic_load(&lease->held_bytes);
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
    uint32_t index;
    rf_status status = rf_lease_slot_claim(lease->table, view->live, &index);
    if (status) return status;
    struct rf_lease_slot *record = rf_lease_table_slot(lease->table, index);
    char id[64], text[128];
    write_id(record, index, rf_lease_table_own_fd(lease->table), id, sizeof id);
    int length = snprintf(text, sizeof text, "part=%s:%llu", id, (unsigned long long)bytes);
    if ((size_t)length >= size) {
        rf_lease_slot_give_up(lease->table, index);
        return rf_fail(RF_E_INVALID, "rf_lease_lend: the spec takes %d bytes, there is room for %zu", length + 1,
                       size);
    }
    record->kind = RF_LEASE_LENT;
    record->promised_bytes = bytes;
    record->parent = (struct rf_lease_link){.generation = lease->generation, .slot = lease->index};
    record->root = lease->part ? lease->root : record->parent;
    record->top_lent = lease->part ? lease->top_lent : record->generation;
    rf_assert(view->lent_bytes + bytes <= promised);
    rf_lease_slot_publish(lease->table, index);
    memcpy(spec, text, (size_t)length + 1);
    return RF_OK;
}

static rf_status reclaim_locked(struct rf_lease *lease, const struct rf_budget_spec *part, const struct view *view,
                                uint64_t *bytes) {
    uint32_t index;
    if (!find_lent(lease->table, view, part->part_id, &index) ||
        !is_link_to(&rf_lease_table_slot(lease->table, index)->parent, lease))
        return rf_fail(RF_E_NOT_FOUND, "part=%s is not lent by this lease, or was taken back already", part->part_id);
    const struct rf_lease_slot *record = rf_lease_table_slot(lease->table, index);
    char user[64];
    if (in_use(lease->table, view, record->generation, user, sizeof user))
        return rf_fail(RF_E_BUSY, "part=%s is in use by %s; wait for it to end", part->part_id, user);
    if (bytes) *bytes = record->promised_bytes;
    rf_lease_slot_give_up(lease->table, index);
    return RF_OK;
}

rf_status rf_lease_lend(struct rf_lease *lease, uint64_t bytes, char *spec, size_t size) {
    rf_status status = check_owner(lease, "rf_lease_lend");
    if (status) return status;
    if (!bytes || !spec)
        return rf_fail(RF_E_INVALID, "rf_lease_lend: %s", spec ? "nothing to lend: bytes is 0" : "spec is NULL");
    struct view *view = calloc(1, sizeof *view);
    if (!view) return rf_fail(RF_E_NO_MEMORY, "no memory to look at the leases");
    status = rf_lease_table_lock(lease->table, rf_deadline_after(lease->timeout_ns));
    if (!status) {
        status = look(lease->table, lease, view);
        if (!status) status = lend_locked(lease, bytes, view, spec, size);
        rf_lease_table_unlock(lease->table);
    }
    free(view);
    return status;
}

rf_status rf_lease_reclaim(struct rf_lease *lease, const char *spec, uint64_t *bytes) {
    struct rf_budget_spec part;
    rf_status status = check_owner(lease, "rf_lease_reclaim");
    if (!status) status = rf_budget_parse(spec, &part);
    if (status) return status;
    if (!part.has_part)
        return rf_fail(RF_E_INVALID, "rf_lease_reclaim: \"%.80s\" is no part= as written by rf_lease_lend", spec);
    struct view *view = calloc(1, sizeof *view);
    if (!view) return rf_fail(RF_E_NO_MEMORY, "no memory to look at the leases");
    status = rf_lease_table_lock(lease->table, rf_deadline_after(lease->timeout_ns));
    if (!status) {
        status = look(lease->table, lease, view);
        if (!status) status = reclaim_locked(lease, &part, view, bytes);
        rf_lease_table_unlock(lease->table);
    }
    free(view);
    return status;
}

/* ---- for doctor and tests ---- */

/* The entries are copied under the lock and shown without it, so visit may call anything. */
rf_status rf_lease_survey(const char *dir, const char *uuid, bool own,
                          bool (*visit)(void *user, const struct rf_lease_entry *entry), void *user) {
    if (!uuid || !uuid[0] || !visit)
        return rf_fail(RF_E_INVALID, "rf_lease_survey needs the GPU's uuid and a function to call");
    struct rf_lease_table *table;
    struct rf_saved_error saved;
    rf_error_save(&saved);
    rf_status status =
        own ? rf_lease_table_acquire_own(uuid, false, &table) : rf_lease_table_acquire(dir, uuid, false, &table);
    if (status == RF_E_NOT_FOUND) {
        rf_error_restore(&saved);
        return RF_OK;
    }
    if (status) return status;
    size_t count = 0;
    struct view *view = calloc(1, sizeof *view);
    struct rf_lease_entry *entries = calloc(RF_LEASE_SLOTS, sizeof *entries);
    status = view && entries ? RF_OK : rf_fail(RF_E_NO_MEMORY, "no memory to look at the leases");
    if (!status) status = rf_lease_table_lock(table, rf_deadline_after(SURVEY_TIMEOUT_NS));
    if (!status) {
        status = rf_lease_table_refresh(table, view->live);
        for (uint32_t i = 0; !status && i < RF_LEASE_SLOTS; i++) {
            const struct rf_lease_slot *slot = rf_lease_table_slot(table, i);
            if (!view->live[i] || slot->kind == RF_LEASE_LENT) continue;
            entries[count++] = (struct rf_lease_entry){
                .pid = rf_lease_slot_pid(table, i),
                .promised_bytes = slot->promised_bytes,
                .held_bytes = atomic_load(&slot->held_bytes),
                .part = family_of(table, view->live, i) != i,
                .mine = rf_lease_slot_is_mine(table, slot),
            };
        }
        rf_lease_table_unlock(table);
    }
    rf_lease_table_release(table);
    for (size_t i = 0; !status && i < count && visit(user, &entries[i]); i++) continue;
    free(entries);
    free(view);
    return status;
}
