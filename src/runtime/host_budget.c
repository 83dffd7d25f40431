/* Charging host memory against a limit fixed when the runtime was made.
 *
 * Invariants: pinned <= used <= limit and pinned <= pinned_limit (asserted after each change); a refused charge
 * changes nothing. Only the limit bounds the sum. The host's live figure is read for large charges only, where the
 * cost of reading it is small compared with the cost of touching the memory. */
#include "runtime/host_budget.h"
#include "runtime/budget_spec.h"

#include <stdio.h>

#define PINNED_SHARE 4 /* a quarter: the rest of the host cannot page pinned memory out */
#define LARGE_BYTES (UINT64_C(64) << 20)

static rf_status check_live(const struct rf_host_budget *budget, uint64_t bytes);
static bool spare_now(const struct rf_host_budget *budget, uint64_t *spare, uint64_t *available, uint64_t *total);

RF_FOR_CHECKS bool sums_hold(const struct rf_host_budget *budget) {
    return budget->pinned_bytes <= budget->used_bytes && budget->used_bytes <= budget->limit_bytes &&
           budget->pinned_bytes <= budget->pinned_limit_bytes;
}

rf_status rf_host_charge(struct rf_host_budget *budget, uint64_t bytes, bool pinned) {
    if (!budget) return rf_fail(RF_E_INVALID, "rf_host_charge: budget is NULL");
    if (bytes >= LARGE_BYTES) {
        rf_status status = check_live(budget, bytes);
        if (status) return status;
    }
    pthread_mutex_lock(&budget->mutex);
    uint64_t used = budget->used_bytes, used_pinned = budget->pinned_bytes;
    bool over = bytes > budget->limit_bytes - used;
    bool over_pinned = pinned && bytes > budget->pinned_limit_bytes - used_pinned;
    if (!over && !over_pinned) {
        budget->used_bytes += bytes;
        if (pinned) budget->pinned_bytes += bytes;
    }
    rf_assert(sums_hold(budget));
    pthread_mutex_unlock(&budget->mutex);
    if (!over && !over_pinned) return RF_OK;
    char asked[32], held[32], limit[32], available[32], total[32];
    rf_format_bytes(bytes, asked, sizeof asked);
    rf_format_bytes(over ? used : used_pinned, held, sizeof held);
    rf_format_bytes(over ? budget->limit_bytes : budget->pinned_limit_bytes, limit, sizeof limit);
    rf_format_bytes(budget->available0_bytes, available, sizeof available);
    rf_format_bytes(budget->total_bytes, total, sizeof total);
    return rf_fail(
        RF_E_NO_MEMORY,
        "%s of %shost memory refused: %s held of the %s that host budget %s allows%s (%s were available at "
        "the start, %s in all); free some or raise --host-budget (RF_HOST_BUDGET)",
        asked, pinned ? "pinned " : "", held, limit, budget->spec,
        over ? "" : " for pinned memory, a quarter of the whole", available, total);
}

void rf_host_release(struct rf_host_budget *budget, uint64_t bytes, bool pinned) {
    if (!budget) return;
    pthread_mutex_lock(&budget->mutex);
    budget->used_bytes = rf_sub_saturate(budget->used_bytes, bytes);
    if (pinned) budget->pinned_bytes = rf_sub_saturate(budget->pinned_bytes, bytes);
    rf_assert(sums_hold(budget));
    pthread_mutex_unlock(&budget->mutex);
}

rf_status rf_host_budget_init(struct rf_host_budget *budget, const char *spec, const char *root) {
    struct rf_budget_spec parsed;
    uint64_t available, total;
    if (!budget || !spec) return rf_fail(RF_E_INVALID, "rf_host_budget_init needs a budget and a spec");
    if (root && strlen(root) >= sizeof budget->root)
        return rf_fail(RF_E_INVALID, "rf_host_budget_init: the root folder's name is too long");
    rf_status status = rf_budget_parse(spec, &parsed);
    if (status) return rf_fail_within(status, "host");
    if (parsed.has_part) return rf_fail(RF_E_SYNTAX, "host budget \"%.60s\": part= is for GPU budgets only", spec);
    status = rf_host_memory(root ? root : "", &available, &total);
    if (status) return rf_fail_within(status, "host budget");
    memset(budget, 0, sizeof *budget);
    pthread_mutex_init(&budget->mutex, NULL);
    snprintf(budget->root, sizeof budget->root, "%s", root ? root : "");
    snprintf(budget->spec, sizeof budget->spec, "%.60s", spec);
    budget->available0_bytes = available;
    budget->total_bytes = total;
    rf_budget_eval(&parsed, available, &budget->limit_bytes, &budget->floor_bytes);
    budget->pinned_limit_bytes = budget->limit_bytes / PINNED_SHARE;
    return RF_OK;
}

void rf_host_budget_finish(struct rf_host_budget *budget) {
    if (budget) pthread_mutex_destroy(&budget->mutex);
}

uint64_t rf_host_used(struct rf_host_budget *budget) {
    pthread_mutex_lock(&budget->mutex);
    uint64_t used = budget->used_bytes;
    pthread_mutex_unlock(&budget->mutex);
    return used;
}

uint64_t rf_host_room(struct rf_host_budget *budget, bool pinned) {
    if (!budget) return 0;
    pthread_mutex_lock(&budget->mutex);
    uint64_t room = budget->limit_bytes - budget->used_bytes;
    if (pinned) room = RF_MIN(room, budget->pinned_limit_bytes - budget->pinned_bytes);
    pthread_mutex_unlock(&budget->mutex);
    uint64_t spare, available, total;
    if (room >= LARGE_BYTES && spare_now(budget, &spare, &available, &total))
        room = RF_MIN(room, RF_MAX(spare, LARGE_BYTES - 1));
    return room;
}

/* How much the host could give without going under the floor. False where the host's figure cannot be read. That does
 * not refuse a charge: the limit still holds. */
static bool spare_now(const struct rf_host_budget *budget, uint64_t *spare, uint64_t *available, uint64_t *total) {
    struct rf_saved_error saved;
    rf_error_save(&saved);
    if (rf_host_memory(budget->root, available, total)) {
        rf_error_restore(&saved);
        return false;
    }
    *spare = rf_sub_saturate(*available, budget->floor_bytes);
    return true;
}

static rf_status check_live(const struct rf_host_budget *budget, uint64_t bytes) {
    uint64_t spare, available, total;
    if (!spare_now(budget, &spare, &available, &total) || bytes <= spare) return RF_OK;
    char asked[32], now[32], all[32], keep[32];
    return rf_fail(
        RF_E_NO_MEMORY,
        "%s of host memory refused: %s of %s are available now and %s must stay free under host budget %s; "
        "close something, or change keep= in --host-budget (RF_HOST_BUDGET)",
        rf_format_bytes(bytes, asked, sizeof asked), rf_format_bytes(available, now, sizeof now),
        rf_format_bytes(total, all, sizeof all), rf_format_bytes(budget->floor_bytes, keep, sizeof keep),
        budget->spec);
}
