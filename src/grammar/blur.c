/* A state as it looks for the next few bytes (see rf_store_blur). */
#include "grammar/store.h"

/* How many cells of a stack, from its top, are looked at. Below them nothing is blurred: that costs only time. */
enum { CELLS = 48 };

/* A round takes at least one byte, so within 'bytes' bytes a counter moves at most that far. */
static uint32_t blur_times(const struct rf_store *store, const uint32_t *data, uint32_t bytes) {
    const struct rf_node *repeat = rf_node(store->program, data[0]);
    uint32_t least = rf_node(store->program, repeat->a)->nullable ? 0 : repeat->b, most = repeat->c, times = data[1];
    if (times >= RF_TIMES_MUST) return times;
    if (times < least) return least - times > bytes ? RF_TIMES_MUST : times;
    return most == RF_NO_LIMIT || most - times > bytes ? RF_TIMES_FREE : times;
}

static uint32_t blur_stack(struct rf_store *store, uint32_t stack, uint32_t bytes) {
    uint32_t cells[CELLS], count = 0, changed = 0;
    for (uint32_t at = stack; count < CELLS && at != store->empty; count++) {
        cells[count] = at;
        const uint32_t *data = rf_record_data(store, at);
        if (rf_record_kind(store, at) == RF_RECORD_TIMES && blur_times(store, data, bytes) != data[1])
            changed = count + 1;
        at = data[rf_record_count(store, at) - 1];
    }
    if (!changed) return stack;
    const uint32_t *lowest = rf_record_data(store, cells[changed - 1]);
    uint32_t below = lowest[rf_record_count(store, cells[changed - 1]) - 1];
    while (changed-- && below) {
        uint32_t words = rf_record_count(store, cells[changed]), data[8];
        rf_assert(words <= RF_COUNT(data));
        memcpy(data, rf_record_data(store, cells[changed]), words * sizeof *data);
        enum rf_record_kind kind = rf_record_kind(store, cells[changed]);
        if (kind == RF_RECORD_TIMES) data[1] = blur_times(store, data, bytes);
        data[words - 1] = below;
        below = rf_record_make(store, kind, data, words);
    }
    return below;
}

rf_status rf_store_blur(struct rf_store *store, uint32_t state, uint32_t bytes, uint32_t *blurred) {
    uint32_t set = store->states[state].set, count = rf_record_count(store, set);
    bool changed = false;
    for (uint32_t i = 0; i < count && !store->status; i++) {
        uint32_t stack = rf_record_data(store, set)[i], now = blur_stack(store, stack, bytes);
        changed = changed || now != stack;
        rf_store_add(store, now);
    }
    if (!changed && !store->status) {
        *blurred = state;
        if (store->seen_count) memset(store->seen, 0, store->seen_capacity * sizeof *store->seen);
        store->seen_count = store->work_count = 0;
        return RF_OK;
    }
    return rf_store_close(store, blurred);
}
