/* Where everything lies: homes on each place, copies between them, and offsets by lifetime.
 *
 * What is kept lies in sequence. Computed tensors are packed by lifetime: the largest first, each into the smallest
 * gap that is free for as long as it lives. Other orders are tried if that leaves more than a little unused. A tensor
 * and the one that takes its storage in place are one item; a node's workspace is an item that lives only while the
 * node runs.
 *
 * Must not: look at devices, or depend on anything but the plan. */
#include "graph/plan.h"

#include <stdlib.h>

enum { KEEP_ALIGNED = 16, RETRIES = 48 };
#define TO_THE_END UINT32_MAX

struct item {
    uint64_t bytes;
    uint32_t first, last; /* the first and last position it is alive at, both included */
    uint64_t offset;
};

struct work {
    struct rf_plan *plan;
    /* For the place that is being laid out: */
    struct item *items;
    size_t count;
    uint32_t *item_of;  /* [tensor] the item in which it lies */
    uint32_t *owner_of; /* [item] the tensor that holds it now, while in-place chains are followed */
    uint64_t *within;   /* [tensor] offset in its item */
    /* Packing: */
    uint32_t *order, *placed;
    uint64_t *offsets;
};

static rf_status find_homes(struct rf_plan *plan);
static rf_status lay_out(struct work *work, int place);

rf_status rf_plan_memory(struct rf_plan *plan, int *over) {
    size_t most = plan->graph->tensor_count + plan->graph->node_count + 1;
    struct work work = {
        .plan = plan,
        .items = calloc(most, sizeof *work.items),
        .item_of = calloc(most, sizeof *work.item_of),
        .owner_of = calloc(most, sizeof *work.owner_of),
        .within = calloc(most, sizeof *work.within),
        .order = calloc(most, sizeof *work.order),
        .placed = calloc(most, sizeof *work.placed),
        .offsets = calloc(most, sizeof *work.offsets),
    };
    rf_status status = RF_OK;
    *over = -1;
    if (!work.items || !work.item_of || !work.owner_of || !work.within || !work.order || !work.placed ||
        !work.offsets)
        status = rf_fail(RF_E_NO_MEMORY, "graph '%s': no host memory for a plan", plan->graph->name);
    if (!status) status = find_homes(plan);
    for (int p = 0; p < plan->place_count && !status; p++) {
        status = lay_out(&work, p);
        if (!status && rf_plan_arena_bytes(&plan->places[p]) > plan->places[p].limit && *over < 0) *over = p;
    }
    free(work.items);
    free(work.item_of);
    free(work.owner_of);
    free(work.within);
    free(work.order);
    free(work.placed);
    free(work.offsets);
    if (!status && *over >= 0) {
        const struct rf_plan_place *place = &plan->places[*over];
        char need[32], limit[32];
        status = rf_fail(RF_E_BUDGET, "graph '%s' needs %s on %s, which has %s to give; raise the budget",
                         plan->graph->name, rf_format_bytes(rf_plan_arena_bytes(place), need, sizeof need),
                         place->backend->name, rf_format_bytes(place->limit, limit, sizeof limit));
    }
    return status;
}

/* ---- homes and copies ---- */

static bool usable_where_it_is(const struct rf_tensor_row *tensor) {
    return tensor->data && (uintptr_t)tensor->data % KEEP_ALIGNED == 0;
}

static rf_status add_copy(struct rf_plan *plan, size_t *capacity, struct rf_plan_copy copy) {
    if (plan->copy_count == *capacity) {
        size_t grown = *capacity ? 2 * *capacity : 16;
        struct rf_plan_copy *copies = realloc(plan->copies, grown * sizeof *copies);
        if (!copies) return rf_fail(RF_E_NO_MEMORY, "graph '%s': no host memory for a plan", plan->graph->name);
        plan->copies = copies;
        *capacity = grown;
    }
    plan->copies[plan->copy_count++] = copy;
    return RF_OK;
}

static int compare_copies(const void *left, const void *right) {
    const struct rf_plan_copy *a = left, *b = right;
    if (a->before != b->before) return a->before < b->before ? -1 : 1;
    if (a->tensor != b->tensor) return a->tensor < b->tensor ? -1 : 1;
    return a->to - b->to;
}

static rf_status find_homes(struct rf_plan *plan) {
    const struct rf_graph *graph = plan->graph;
    size_t capacity = 0;
    free(plan->copies);
    plan->copies = NULL;
    plan->copy_count = 0;
    memset(plan->homes, 0, graph->tensor_count * (size_t)plan->place_count * sizeof *plan->homes);
    for (uint32_t v = 0; v < graph->tensor_count; v++) {
        const struct rf_tensor_row *tensor = &graph->tensors[v];
        if (tensor->root != v) continue;
        bool kept = tensor->role != RF_ROLE_RESULT, used = false;
        for (size_t u = plan->use_start[v]; u < plan->use_start[v + 1]; u++) {
            uint32_t node = plan->uses[u].node, at = plan->position[node];
            struct rf_plan_home *home = rf_plan_home(plan, v, plan->node_place[node]);
            if (!home->present) *home = (struct rf_plan_home){.present = true, .kept = kept, .first = at, .last = at};
            home->first = RF_MIN(home->first, at);
            home->last = RF_MAX(home->last, at);
            used = true;
        }
        if (kept) {
            /* No node reads it, but the caller can still write and read it. */
            if (!used && tensor->role != RF_ROLE_CONSTANT)
                *rf_plan_home(plan, v, plan->place_count - 1) = (struct rf_plan_home){.present = true, .kept = true};
            for (int p = 0; p < plan->place_count; p++) {
                struct rf_plan_home *home = rf_plan_home(plan, v, p);
                if (home->present && plan->bind)
                    home->bound = plan->bind(plan->user, rf_plan_caller_id(plan, v), tensor->name,
                                             plan->places[p].cpu ? -1 : p, &home->binding);
                if (tensor->role == RF_ROLE_CONSTANT && plan->places[p].cpu && !home->bound)
                    home->borrowed = usable_where_it_is(tensor);
            }
            continue;
        }
        if (plan->maker[v] == RF_NO_INDEX) continue;
        uint32_t after = plan->position[plan->maker[v]];
        int from = plan->node_place[plan->maker[v]];
        if (plan->root_output[v]) rf_plan_home(plan, v, from)->last = TO_THE_END;
        for (int p = 0; p < plan->place_count; p++) {
            struct rf_plan_home *home = rf_plan_home(plan, v, p);
            if (!home->present || p == from) continue;
            rf_status status = add_copy(
                plan, &capacity,
                (struct rf_plan_copy){.tensor = v, .from = from, .to = p, .after = after, .before = home->first});
            if (status) return status;
            /* The CPU sends a tensor as soon as it is made, so that the copy runs while the CPU goes on. */
            if (plan->places[from].cpu) home->first = after;
        }
    }
    if (plan->copy_count) qsort(plan->copies, plan->copy_count, sizeof *plan->copies, compare_copies);
    return RF_OK;
}

/* ---- packing ---- */

static bool meet(const struct item *a, const struct item *b) {
    return a->first <= b->last && b->first <= a->last;
}

/* Gives the items offsets, in the order of work->order. Returns the highest end of an item. */
static uint64_t pack(struct work *work, uint32_t *highest) {
    uint64_t peak = 0;
    size_t placed = 0;
    for (size_t i = 0; i < work->count; i++) {
        uint32_t index = work->order[i];
        struct item *item = &work->items[index];
        uint64_t end = 0, best = UINT64_MAX, best_gap = UINT64_MAX;
        for (size_t k = 0; k < placed && best_gap != item->bytes; k++) {
            const struct item *other = &work->items[work->placed[k]];
            if (!meet(item, other)) continue;
            if (other->offset > end && other->offset - end >= item->bytes && other->offset - end < best_gap) {
                best = end;
                best_gap = other->offset - end;
            }
            end = RF_MAX(end, other->offset + other->bytes);
        }
        item->offset = best == UINT64_MAX ? end : best;
        size_t at = placed;
        while (at && work->items[work->placed[at - 1]].offset > item->offset) at--;
        memmove(&work->placed[at + 1], &work->placed[at], (placed - at) * sizeof *work->placed);
        work->placed[at] = index;
        placed++;
        if (item->offset + item->bytes > peak) {
            peak = item->offset + item->bytes;
            *highest = (uint32_t)i;
        }
    }
    return peak;
}

struct sort_key {
    uint64_t major, minor;
    uint32_t index;
};
static int compare_keys(const void *left, const void *right) {
    const struct sort_key *a = left, *b = right;
    if (a->major != b->major) return a->major > b->major ? -1 : 1;
    if (a->minor != b->minor) return a->minor < b->minor ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

enum rule { BY_SIZE, BY_AREA, BY_TIME, RULES };

static rf_status sort_items(struct work *work, enum rule rule) {
    struct sort_key *keys = calloc(work->count + 1, sizeof *keys);
    if (!keys) return rf_fail(RF_E_NO_MEMORY, "graph '%s': no host memory for a plan", work->plan->graph->name);
    for (uint32_t i = 0; i < work->count; i++) {
        const struct item *item = &work->items[i];
        uint64_t span = (uint64_t)RF_MIN(item->last, (uint32_t)work->plan->graph->node_count) - item->first + 1;
        uint64_t area = item->bytes / 64 * span; /* only for sorting: an overflow merely sorts the item oddly */
        keys[i] = (struct sort_key){rule == BY_SIZE   ? item->bytes
                                    : rule == BY_AREA ? area
                                                      : UINT32_MAX - item->first,
                                    rule == BY_TIME ? UINT64_MAX - item->bytes : item->first, i};
    }
    qsort(keys, work->count, sizeof *keys, compare_keys);
    for (size_t i = 0; i < work->count; i++) work->order[i] = keys[i].index;
    free(keys);
    return RF_OK;
}

/* The largest sum of bytes that are alive at once. */
static uint64_t live_sum(struct work *work) {
    /* Bytes are added and removed at positions; an item still counts at its last position. */
    const struct rf_plan *plan = work->plan;
    size_t nodes = plan->graph->node_count;
    uint64_t *come = work->offsets, *go = calloc(nodes + 2, sizeof *go), live = 0, most = 0;
    if (!go) return 0;
    memset(come, 0, (nodes + 1) * sizeof *come);
    for (size_t i = 0; i < work->count; i++) {
        come[work->items[i].first] += work->items[i].bytes;
        if (work->items[i].last < nodes) go[work->items[i].last + 1] += work->items[i].bytes;
    }
    for (size_t s = 0; s <= nodes; s++) {
        live += come[s];
        live -= go[s];
        most = RF_MAX(most, live);
    }
    free(go);
    return most;
}

static rf_status pack_best(struct work *work, uint64_t *live, uint64_t *bytes) {
    uint64_t best = UINT64_MAX;
    *live = live_sum(work);
    for (enum rule rule = BY_SIZE; rule < RULES && best > *live; rule++) {
        rf_status status = sort_items(work, rule);
        if (status) return status;
        for (int retry = 0;; retry++) {
            uint32_t highest = 0;
            uint64_t peak = pack(work, &highest);
            if (peak < best) {
                best = peak;
                for (size_t i = 0; i < work->count; i++) work->offsets[i] = work->items[i].offset;
            }
            /* Within a twentieth is good enough; otherwise the item that ends highest is placed earlier, and
             * packing is retried. */
            if (best - *live <= *live / 20 || retry == RETRIES || work->count > 2000 || !highest) break;
            uint32_t moved = work->order[highest];
            size_t to = highest / 2;
            memmove(&work->order[to + 1], &work->order[to], (highest - to) * sizeof *work->order);
            work->order[to] = moved;
        }
        if (best - *live <= *live / 20) break;
    }
    for (size_t i = 0; i < work->count; i++) work->items[i].offset = work->offsets[i];
    *bytes = work->count ? best : 0;
    return RF_OK;
}

/* ---- one place ---- */

static rf_status too_large(const struct rf_plan *plan) {
    return rf_fail(RF_E_BUDGET, "graph '%s' is larger than memory can be", plan->graph->name);
}

static bool padded(const struct rf_plan *plan, int place, uint64_t bytes, uint64_t *out) {
    return !rf_add_overflows(RF_MAX(bytes, (uint64_t)1), plan->guard_bytes, out) &&
           !rf_round_up_overflows(*out, plan->places[place].alignment, out) && *out < UINT64_MAX / 4;
}

/* Gives output o of a node the item of the input that it may take the storage of, if nothing prevents it. */
static bool take_storage(struct work *work, int place, uint32_t node, int o) {
    const struct rf_plan *plan = work->plan;
    const struct rf_graph *graph = plan->graph;
    const struct rf_node_row *row = &graph->nodes[node];
    int i = row->in_place[o];
    if (i < 0 || i >= row->op->inputs || row->tensors[i] == RF_NO_INDEX) return false;
    const struct rf_tensor_row *in = &graph->tensors[row->tensors[i]];
    uint32_t root = in->root, made = row->tensors[row->op->inputs + o];
    const struct rf_plan_home *home = rf_plan_home(plan, root, place);
    if (graph->tensors[root].role != RF_ROLE_RESULT || graph->tensors[made].root != made || !home->present)
        return false;
    if (home->last != plan->position[node] || work->owner_of[work->item_of[root]] != root) return false;
    uint64_t skip = in->desc.byte_offset;
    if (skip % plan->places[place].alignment || graph->tensors[made].bytes > graph->tensors[root].bytes - skip)
        return false;
    struct item *item = &work->items[work->item_of[root]];
    work->item_of[made] = work->item_of[root];
    work->owner_of[work->item_of[made]] = made;
    work->within[made] = work->within[root] + skip;
    item->last = RF_MAX(item->last, rf_plan_home(plan, made, place)->last);
    rf_plan_home(plan, made, place)->in_place = true;
    return true;
}

static rf_status add_item(struct work *work, int place, uint64_t bytes, uint32_t first, uint32_t last) {
    struct item *item = &work->items[work->count];
    *item = (struct item){.first = first, .last = last};
    if (!padded(work->plan, place, bytes, &item->bytes)) return too_large(work->plan);
    work->count++;
    return RF_OK;
}

/* Adds the counters of the place's nodes, one after the other in time, to the end of what is kept. */
static rf_status lay_out_counters(struct rf_plan *plan, int p, uint64_t *kept) {
    struct rf_plan_place *place = &plan->places[p];
    uint64_t bytes = 0;
    place->counter_bytes = 0;
    place->counters_at = *kept;
    for (uint32_t node = 0; node < plan->graph->node_count && place->backend->table->counters; node++) {
        struct rf_op_call call;
        if (plan->node_place[node] != p) continue;
        rf_graph_call(plan->graph, &plan->graph->nodes[node], &call);
        rf_status status = place->backend->table->counters(place->backend, &call, &bytes);
        if (status) return rf_fail_within(status, "node '%s'", plan->graph->nodes[node].name);
        place->counter_bytes = RF_MAX(place->counter_bytes, bytes);
    }
    if (!place->counter_bytes) return RF_OK;
    if (!padded(plan, p, place->counter_bytes, &bytes) || rf_add_overflows(*kept, bytes, kept))
        return too_large(plan);
    return RF_OK;
}

static rf_status lay_out(struct work *work, int p) {
    struct rf_plan *plan = work->plan;
    struct rf_plan_place *place = &plan->places[p];
    const struct rf_graph *graph = plan->graph;
    rf_status status = RF_OK;
    uint64_t kept = 0, total = 0, bytes;
    place->node_count = 0;
    place->workspace_bytes = 0;
    work->count = 0;
    for (uint32_t v = 0; v < graph->tensor_count; v++) {
        struct rf_plan_home *home = rf_plan_home(plan, v, p);
        if (!home->present || !home->kept || home->borrowed || home->bound) continue;
        if (!padded(plan, p, graph->tensors[v].bytes, &bytes)) return too_large(plan);
        home->offset = kept;
        if (rf_add_overflows(kept, bytes, &kept) || kept > UINT64_MAX / 4) return too_large(plan);
    }
    status = lay_out_counters(plan, p, &kept);
    if (status) return status;
    place->kept_bytes = kept;
    /* Tensors are visited in the order they are made, so that an input which a node takes in place already has its
     * item. */
    for (uint32_t at = 0; at < graph->node_count && !status; at++) {
        uint32_t node = plan->order[at];
        const struct rf_node_row *row = &graph->nodes[node];
        plan->workspace_at[node] = plan->node_place[node] == p ? 0 : plan->workspace_at[node];
        int outputs = row->op->outputs;
        for (int o = 0; o < outputs && !status; o++) {
            uint32_t made = row->tensors[row->op->inputs + o];
            if (made == RF_NO_INDEX) continue;
            made = graph->tensors[made].root;
            struct rf_plan_home *home = rf_plan_home(plan, made, p);
            if (!home->present || home->kept || plan->maker[made] != node) continue;
            if (plan->node_place[node] == p && take_storage(work, p, node, o)) continue;
            work->item_of[made] = (uint32_t)work->count;
            work->owner_of[work->count] = made;
            work->within[made] = 0;
            status = add_item(work, p, graph->tensors[made].bytes, home->first, home->last);
        }
        if (plan->node_place[node] != p || status) continue;
        place->node_count++;
        struct rf_op_call call;
        rf_graph_call(graph, row, &call);
        status = place->backend->table->workspace(place->backend, &call, &bytes);
        if (status) return rf_fail_within(status, "node '%s'", row->name);
        plan->node_workspace[node] = bytes;
        if (!bytes) continue;
        place->workspace_bytes = RF_MAX(place->workspace_bytes, bytes);
        plan->workspace_at[node] = work->count;
        status = add_item(work, p, bytes, at, at);
    }
    for (size_t i = 0; i < work->count && !status; i++)
        if (rf_add_overflows(total, work->items[i].bytes, &total) || total > UINT64_MAX / 4) return too_large(plan);
    if (!status) status = pack_best(work, &place->live_bytes, &place->result_bytes);
    if (status) return status;
    for (uint32_t v = 0; v < graph->tensor_count; v++) {
        struct rf_plan_home *home = rf_plan_home(plan, v, p);
        if (home->present && !home->kept)
            home->offset = kept + work->items[work->item_of[v]].offset + work->within[v];
    }
    for (uint32_t s = 0; s < graph->node_count; s++)
        if (plan->node_place[s] == p && plan->node_workspace[s])
            plan->workspace_at[s] = kept + work->items[plan->workspace_at[s]].offset;
    return RF_OK;
}
