/* Memory: the one place that asks the driver for device memory, and that decides how much may be asked for.
 *
 * An allocation is granted only if
 *   (a) what this process holds (driver's own and lent parts included) plus it stays within
 *       the budget, and
 *   (b) the live free memory less it stays at or above the floor.
 * (a) prevents a slow creep, in which each allocation takes a share of what the last one left; (b) notices a desktop
 * that takes more memory after us. Both are decided with the lease table locked, so that no other process of this
 * user decides on the same free bytes.
 *
 * Invariant: held_bytes is what the driver has given us and not got back, rounded to its granularity, plus
 * driver_bytes. rf_pool_is_valid checks it against the slabs and blocks that are known. Only a simulated driver
 * allows a check against the driver's own figure (budget.* in tests/gpu/test_memory.c). */
#include "gpu/device_impl.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Another process holds the lock for a short time while it decides; a process that is stopped must not stop us. With
 * a deadline of more than 10 s the patience is a fifth of it. */
#define LEASE_PATIENCE_NS RF_MS(2000)
#define FLOOR_LOOK_EVERY_NS RF_MS(100)
#define DRIVER_GROWTH_BYTES ((uint64_t)32 << 20) /* at most, beyond what was measured at its start */

static rf_status refuse_budget(struct rf_device *device, uint64_t bytes);
static rf_status refuse_floor(struct rf_device *device, uint64_t bytes, uint64_t live_free, uint64_t total);
static rf_status decide(struct rf_device *device, uint64_t bytes);
static rf_status look_again(struct rf_device *device, uint64_t bytes);

rf_status rf_memory_grant(struct rf_device *device, uint64_t bytes, rf_dptr *out) {
    struct rf_runtime *runtime = device->runtime;
    rf_status status = RF_OK;
    struct rf_block *record = calloc(1, sizeof *record); /* for memory that is refused after all */
    if (!record) return rf_fail(RF_E_NO_MEMORY, "no host memory for an allocation's records");
    /* An integrated GPU uses the host's memory, so both budgets are charged. */
    if (device->info.integrated) {
        status = rf_host_charge(&runtime->host, bytes, false);
        if (status) {
            free(record);
            return status;
        }
    }
    int64_t patience_ns = RF_MIN(runtime->timeout_ns, RF_MAX(LEASE_PATIENCE_NS, runtime->timeout_ns / 5));
    status = rf_lease_lock(device->lease, rf_deadline_after(patience_ns));
    if (status) goto release;
    status = decide(device, bytes);
    if (!status) {
        rf_dptr pointer = NULL;
        int code = device->driver->mem_alloc(&pointer, (size_t)bytes);
        if (code == RF_DRV_OK && !pointer) code = RF_DRV_OUT_OF_MEMORY; /* success without memory is none */
        status = rf_device_result(device, code, "mem_alloc", NULL);
        if (status == RF_E_DEVICE_MEMORY) {
            char size[32];
            rf_fail(status, "the driver has no %s left in one piece, although the budget allows it",
                    rf_format_bytes(bytes, size, sizeof size));
        }
        if (!status) {
            device->held_bytes += bytes;
            rf_memory_publish_held(device);
            status = look_again(device, bytes);
            *(status ? &record->base : out) = pointer;
        }
    }
    rf_lease_unlock(device->lease);
    if (record->base) {
        /* The driver's free waits for every stream. It is called when nothing runs; until then the memory counts as
         * held, and on an integrated GPU as the host's. */
        record->bytes = bytes;
        rf_pool_doom(device, record);
        return status;
    }
release:
    free(record);
    if (status && device->info.integrated) rf_host_release(&runtime->host, bytes, false);
    return status;
}

void rf_memory_return(struct rf_device *device, rf_dptr pointer, uint64_t bytes) {
    /* The lower figure is published before the memory is free: other processes must never see the free memory
     * together with the higher figure. */
    rf_assert(bytes <= device->held_bytes - device->driver_bytes);
    device->held_bytes -= bytes;
    rf_memory_publish_held(device);
    int code = device->driver->mem_free(pointer);
    if (rf_device_result(device, code, "mem_free", NULL)) {
        /* The driver still has it: it stays held, and is counted as abandoned. */
        device->held_bytes += bytes;
        device->abandoned_bytes += bytes;
        rf_memory_publish_held(device);
        rf_device_note(device, RF_LOG_ERROR, "%llu bytes could not be given back: %s", (unsigned long long)bytes,
                       rf_error_text());
        return;
    }
    if (device->info.integrated) rf_host_release(&device->runtime->host, bytes, false);
}

void rf_memory_publish_held(struct rf_device *device) {
    if (device->held_bytes > device->peak_bytes) device->peak_bytes = device->held_bytes;
    rf_lease_set_held(device->lease, device->held_bytes);
}

rf_status rf_memory_live_free(struct rf_device *device, uint64_t *free_bytes, uint64_t *total_bytes) {
    rf_status status = rf_memory_device_free(device, free_bytes, total_bytes);
    uint64_t host_available, host_total;
    if (!status && device->info.integrated && !rf_host_memory("", &host_available, &host_total))
        *free_bytes = RF_MIN(*free_bytes, host_available);
    return status;
}

/* Whether the GPU can have as much memory as the driver says: no more than the kernel says or, where the kernel says
 * nothing, than the driver itself said when it was probed. They count reserved memory differently, hence the quarter.
 * An integrated GPU may use the host's memory as well. */
static bool can_have(const struct rf_device *device, uint64_t most_bytes, uint64_t total_bytes) {
    uint64_t host_available, host_total = 0;
    if (total_bytes <= most_bytes + most_bytes / 4) return true;
    if (!device->info.integrated || rf_host_memory("", &host_available, &host_total)) return false;
    return total_bytes <= most_bytes + most_bytes / 4 + host_total;
}

static rf_status refuse_figures(const struct rf_device *device, uint64_t free_bytes, uint64_t total_bytes) {
    char free_text[32], total_text[32], has[32];
    return rf_fail(RF_E_DRIVER,
                   "the driver says that %s of %s are free on a GPU of %s, and the kernel does not say how much: no "
                   "budget can be kept; install another version of the driver",
                   rf_format_bytes(free_bytes, free_text, sizeof free_text),
                   rf_format_bytes(total_bytes, total_text, sizeof total_text),
                   rf_format_bytes(device->info.total_bytes, has, sizeof has));
}

static void note_odd_figures(struct rf_device *device, uint64_t free_bytes, uint64_t total_bytes,
                             uint64_t has_bytes) {
    char free_text[32], total_text[32], has[32];
    if (atomic_exchange(&device->odd_figures, true)) return; /* once is enough */
    rf_device_note(
        device, RF_LOG_WARN,
        "the driver says that %s of %s are free on a GPU that has %s by the kernel's figures: those are used",
        rf_format_bytes(free_bytes, free_text, sizeof free_text),
        rf_format_bytes(total_bytes, total_text, sizeof total_text), rf_format_bytes(has_bytes, has, sizeof has));
}

rf_status rf_memory_device_free(struct rf_device *device, uint64_t *free_bytes, uint64_t *total_bytes) {
    uint64_t least_free = UINT64_MAX, total = device->info.total_bytes;
    uint64_t witness_free, witness_total;
    struct rf_saved_error saved;
    rf_error_save(&saved);
    bool witnessed =
        rf_witness_memory(device->witness, device->info.integrated, &witness_free, &witness_total) == RF_OK;
    if (!witnessed) rf_error_restore(&saved); /* a witness without a figure is no failure */
    if (witnessed) {
        least_free = witness_free;
        if (!total) total = witness_total;
    }
    if (device->context.open) {
        size_t driver_free = 0, driver_total = 0;
        rf_status status =
            rf_device_result(device, device->driver->mem_info(&driver_free, &driver_total), "mem_info", NULL);
        if (status) return status;
        bool believed = can_have(device, witnessed ? witness_total : device->info.total_bytes, driver_total);
        if (!believed) {
            if (!witnessed) return refuse_figures(device, driver_free, driver_total);
            note_odd_figures(device, driver_free, driver_total, witness_total);
        }
        total = !believed ? witness_total : driver_total ? driver_total : total;
        /* Some drivers report more free memory than exists; then only the kernel's figure counts. */
        if (believed && driver_free <= driver_total) {
            least_free = RF_MIN(least_free, driver_free);
        } else if (!witnessed) {
            least_free = RF_MIN(least_free, driver_total);
        }
    }
    if (least_free == UINT64_MAX)
        return rf_fail(RF_E_UNSUPPORTED, "neither the driver nor the kernel says how much memory is free");
    *free_bytes = least_free;
    *total_bytes = total;
    return RF_OK;
}

uint64_t rf_memory_room(struct rf_device *device, uint64_t live_free) {
    uint64_t room = RF_MIN(rf_memory_budget_room(device), rf_memory_floor_room(device, live_free));
    if (device->info.integrated) room = RF_MIN(room, rf_host_room(&device->runtime->host, false));
    return room - room % device->granularity_bytes;
}

static rf_status decide(struct rf_device *device, uint64_t bytes) {
    uint64_t live_free, total;
    if (bytes > rf_memory_budget_room(device)) return refuse_budget(device, bytes);
    rf_status status = rf_memory_live_free(device, &live_free, &total);
    if (status) return status;
    if (bytes > rf_memory_floor_room(device, live_free)) return refuse_floor(device, bytes, live_free, total);
    return RF_OK;
}

/* Called after an allocation that comes near the budget. The more is allocated, the more the driver takes for itself,
 * and the kernel's figure for the process includes that too. More than a little is not the driver's: another library
 * in this process has a budget of its own, or memory that was freed has not come back yet. */
static rf_status look_again(struct rf_device *device, uint64_t bytes) {
    uint64_t process_bytes;
    struct rf_saved_error saved;
    if (rf_memory_budget_room(device) >= DRIVER_GROWTH_BYTES) return RF_OK;
    rf_error_save(&saved);
    if (rf_witness_process(device->witness, &process_bytes)) {
        rf_error_restore(&saved);
        return RF_OK;
    }
    uint64_t grown = rf_sub_saturate(process_bytes, device->held_bytes - device->kernel_room_bytes);
    if (grown > DRIVER_GROWTH_BYTES || grown <= rf_memory_budget_room(device)) return RF_OK;
    char asked[32], own[32], budget[32];
    return rf_fail(RF_E_BUDGET,
                   "refused %s: it would fit the budget '%s', which gives %s, but for %s that the driver took for "
                   "itself meanwhile; raise RF_BUDGET, or free something",
                   rf_format_bytes(bytes, asked, sizeof asked), device->budget_text,
                   rf_format_bytes(device->terms.promised_bytes, budget, sizeof budget),
                   rf_format_bytes(grown, own, sizeof own));
}

rf_status rf_memory_would_grant(struct rf_device *device, uint64_t bytes) {
    uint64_t room = UINT64_MAX;
    if (device->info.integrated) room = rf_host_room(&device->runtime->host, false);
    if (bytes > room) return rf_fail(RF_E_NO_MEMORY, "the host budget has no room; see RF_HOST_BUDGET");
    return decide(device, bytes);
}

/* ---- refusals a user can act on ---- */

static rf_status refuse_budget(struct rf_device *device, uint64_t bytes) {
    char asked[32], budget[32], held[32], left[32], live[32], total[32], others[96] = "";
    uint64_t taken = device->held_bytes + device->lent_bytes, free_bytes = 0, total_bytes = device->info.total_bytes;
    struct rf_saved_error saved;
    rf_error_save(&saved);
    if (rf_memory_live_free(device, &free_bytes, &total_bytes)) rf_error_restore(&saved);
    if (device->terms.others_promised_bytes) {
        char promised[32];
        snprintf(others, sizeof others, "; %d other process%s of yours hold%s %s of the budget (most: pid %d)",
                 device->terms.others, device->terms.others == 1 ? "" : "es", device->terms.others == 1 ? "s" : "",
                 rf_format_bytes(device->terms.others_promised_bytes, promised, sizeof promised),
                 device->terms.largest_pid);
    }
    return rf_fail(
        RF_E_BUDGET,
        "refused %s: the budget '%s' gives %s, %s is held, %s is left (free %s of %s)%s; raise RF_BUDGET, "
        "or free something",
        rf_format_bytes(bytes, asked, sizeof asked), device->budget_text,
        rf_format_bytes(device->terms.promised_bytes, budget, sizeof budget),
        rf_format_bytes(taken, held, sizeof held), rf_format_bytes(rf_memory_budget_room(device), left, sizeof left),
        rf_format_bytes(free_bytes, live, sizeof live), rf_format_bytes(total_bytes, total, sizeof total), others);
}

static rf_status refuse_floor(struct rf_device *device, uint64_t bytes, uint64_t live_free, uint64_t total_bytes) {
    char asked[32], live[32], total[32], keep[32], left[32];
    return rf_fail(RF_E_BUDGET,
                   "refused %s: %s of %s is free and %s must stay free for others, so %s is left; close something "
                   "that uses the GPU, or lower the floor with keep= in RF_BUDGET",
                   rf_format_bytes(bytes, asked, sizeof asked), rf_format_bytes(live_free, live, sizeof live),
                   rf_format_bytes(total_bytes, total, sizeof total),
                   rf_format_bytes(device->terms.floor_bytes, keep, sizeof keep),
                   rf_format_bytes(rf_memory_floor_room(device, live_free), left, sizeof left));
}

void rf_memory_watch_floor(struct rf_device *device) {
    int64_t now = rf_now_ns();
    uint64_t live_free, total;
    if (!device->pool.idle_bytes || now - device->pool.floor_checked_ns < FLOOR_LOOK_EVERY_NS) return;
    device->pool.floor_checked_ns = now;
    if (!rf_memory_live_free(device, &live_free, &total) && live_free < device->terms.floor_bytes)
        rf_pool_trim(device, 0);
}

/* ---- public questions ---- */

rf_status rf_device_memory_info(struct rf_device *device, struct rf_memory_info *info) {
    struct rf_entry entry;
    rf_status status = RF_RESULT_CHECK(struct rf_memory_info, info, "rf_device_memory_info");
    if (status) return status;
    /* A lost device still gives the figures of its ledger, so that abandoned memory can be seen. */
    status = rf_enter_cleanup(device, &entry);
    if (status) return status;
    pthread_mutex_lock(&device->memory_mutex);
    uint64_t live_free = 0, total = device->info.total_bytes;
    bool lost = rf_device_is_lost(device);
    if (!lost) status = rf_memory_live_free(device, &live_free, &total);
    if (status == RF_E_DEVICE_LOST) { /* the loss was noticed just now */
        lost = true;
        status = RF_OK;
    }
    if (!status) {
        uint64_t room = rf_memory_room(device, live_free);
        if (room && (device->checks & RF_CHECK_GUARD)) room -= 2 * RF_GUARD_BYTES;
        struct rf_memory_info filled = {
            .total_bytes = total,
            .free_bytes = live_free,
            .free0_bytes = device->terms.free0_bytes,
            .budget_bytes = device->terms.promised_bytes,
            .floor_bytes = device->terms.floor_bytes,
            .held_bytes = device->held_bytes,
            .used_bytes = device->used_bytes,
            .driver_bytes = device->driver_bytes,
            .pool_bytes = device->pool.idle_bytes,
            .lent_bytes = device->lent_bytes,
            .abandoned_bytes = device->abandoned_bytes,
            .peak_bytes = device->peak_bytes,
            .available_bytes = lost ? 0 : room,
            .live_count = device->live_count,
        };
        struct rf_saved_error saved;
        rf_error_save(&saved);
        if (lost || rf_witness_process(device->witness, &filled.process_bytes)) {
            filled.process_bytes = 0;
            rf_error_restore(&saved);
        }
        RF_RESULT_WRITE(struct rf_memory_info, info, &filled);
    }
    pthread_mutex_unlock(&device->memory_mutex);
    rf_leave(&entry);
    return status;
}

rf_status rf_safe_alloc_size(struct rf_device *device, uint64_t *bytes) {
    RF_PARAMS(struct rf_memory_info, info);
    if (!bytes) return rf_fail(RF_E_INVALID, "rf_safe_alloc_size: bytes is NULL");
    rf_status status = rf_device_memory_info(device, &info);
    if (!status && rf_device_is_lost(device)) status = rf_device_lost_status(device);
    if (!status) *bytes = info.available_bytes;
    return status;
}

rf_status rf_can_allocate(struct rf_device *device, uint64_t bytes, bool *yes) {
    struct rf_entry entry;
    if (!yes) return rf_fail(RF_E_INVALID, "rf_can_allocate: yes is NULL");
    rf_status status = rf_enter(device, &entry);
    if (status) return status;
    pthread_mutex_lock(&device->memory_mutex);
    bool granted = false;
    if (bytes && rf_pool_has(device, bytes)) {
        granted = true;
    } else {
        uint64_t rounded = rf_pool_rounded(device, bytes);
        if (bytes && rounded) {
            status = rf_memory_would_grant(device, rounded);
            granted = status == RF_OK;
            if (status == RF_E_BUDGET || status == RF_E_NO_MEMORY) status = RF_OK;
        }
    }
    pthread_mutex_unlock(&device->memory_mutex);
    rf_leave(&entry);
    if (!status) *yes = granted;
    return status;
}

/* ---- changing the terms ---- */

rf_status rf_device_set_budget(struct rf_device *device, const char *text) {
    struct rf_entry entry;
    struct rf_budget_spec spec;
    if (!text) return rf_fail(RF_E_INVALID, "rf_device_set_budget: spec is NULL");
    rf_status status = rf_budget_parse(text, &spec);
    if (status) return status;
    if (spec.has_part) return rf_fail(RF_E_INVALID, "rf_device_set_budget: a lent part cannot replace a budget");
    status = rf_enter(device, &entry);
    if (status) return status;
    pthread_mutex_lock(&device->memory_mutex);
    struct rf_lease_terms terms;
    status = rf_lease_renew(device->lease, &spec, &terms);
    if (!status) {
        terms.free0_bytes = device->terms.free0_bytes;
        device->terms = terms;
        snprintf(device->budget_text, sizeof device->budget_text, "%s", text);
        if (device->held_bytes + device->lent_bytes > terms.promised_bytes) rf_pool_trim(device, 0);
    }
    pthread_mutex_unlock(&device->memory_mutex);
    rf_leave(&entry);
    return status;
}

rf_status rf_device_trim(struct rf_device *device, int64_t timeout_ns) {
    struct rf_entry entry;
    rf_status status = rf_enter(device, &entry);
    if (status) return status;
    int64_t deadline = rf_device_deadline(device, timeout_ns);
    do {
        status = rf_timelines_drain(device, deadline);
        if (status) break;
        pthread_mutex_lock(&device->memory_mutex);
        status = rf_pool_trim(device, deadline);
        pthread_mutex_unlock(&device->memory_mutex);
    } while (status == RF_E_BUSY && rf_now_ns() < deadline);
    if (status == RF_E_BUSY) status = RF_E_TIMEOUT;
    rf_leave(&entry);
    return status;
}

rf_status rf_device_lend(struct rf_device *device, uint64_t bytes, char *spec, size_t size) {
    struct rf_entry entry;
    if (!spec || !size || !bytes) return rf_fail(RF_E_INVALID, "rf_device_lend: spec is NULL or bytes is 0");
    rf_status status = rf_enter(device, &entry);
    if (status) return status;
    pthread_mutex_lock(&device->memory_mutex);
    if (bytes > rf_memory_budget_room(device))
        status = refuse_budget(device, bytes);
    else
        status = rf_lease_lend(device->lease, bytes, spec, size);
    if (!status) device->lent_bytes += bytes;
    pthread_mutex_unlock(&device->memory_mutex);
    rf_leave(&entry);
    return status;
}

rf_status rf_device_reclaim(struct rf_device *device, const char *spec) {
    struct rf_entry entry;
    uint64_t bytes = 0;
    if (!spec) return rf_fail(RF_E_INVALID, "rf_device_reclaim: spec is NULL");
    rf_status status = rf_enter_cleanup(device, &entry);
    if (status) return status;
    pthread_mutex_lock(&device->memory_mutex);
    status = rf_lease_reclaim(device->lease, spec, &bytes);
    if (!status) device->lent_bytes = rf_sub_saturate(device->lent_bytes, bytes);
    pthread_mutex_unlock(&device->memory_mutex);
    rf_leave(&entry);
    return status;
}
