/* Checks whether a plan keeps the invariants of plan.h; compiled only with checks at level 2.
 *
 * Works from the graph's nodes and the plan's results, not from the planner's intermediate data, so that it finds
 * the planner's mistakes. Must not allocate with malloc: tests make allocations fail one by one, and those of a
 * check must not be among them. */
#include "graph/plan.h"

#include <stdlib.h>
#include <sys/mman.h>

/* A range of an arena that is in use from one position to another. */
struct extent {
    uint64_t begin, end;
    uint32_t first, last;
    uint32_t tensor; /* RF_NO_INDEX: a node's workspace */
};

static int by_first(const void *left, const void *right) {
    const struct extent *a = left, *b = right;
    return a->first < b->first ? -1 : a->first > b->first;
}

/* The bytes a tensor or workspace takes in the arena. */
static uint64_t padded(const struct rf_plan *plan, int place, uint64_t bytes) {
    uint64_t out = RF_MAX(bytes, (uint64_t)1) + plan->guard_bytes;
    return rf_round_up_overflows(out, plan->places[place].alignment, &out) ? UINT64_MAX : out;
}

/* Whether 'later' was made by a node that takes the storage of 'earlier' at its last use. */
static bool took_storage(const struct rf_plan *plan, int place, uint32_t earlier, uint32_t later) {
    if (earlier == RF_NO_INDEX || later == RF_NO_INDEX || !rf_plan_home(plan, later, place)->in_place) return false;
    uint32_t maker = plan->maker[later];
    if (maker == RF_NO_INDEX || rf_plan_home(plan, earlier, place)->last != plan->position[maker]) return false;
    const struct rf_node_row *node = &plan->graph->nodes[maker];
    for (int o = 0; o < node->op->outputs; o++) {
        int input = node->in_place[o];
        if (node->tensors[node->op->inputs + o] == later && input >= 0 && node->tensors[input] != RF_NO_INDEX &&
            plan->graph->tensors[node->tensors[input]].root == earlier)
            return true;
    }
    return false;
}

/* Invariant 1: the extents are visited in the order they begin, and each is compared with those that are still
 * alive. */
static bool extents_are_apart(const struct rf_plan *plan, int place, struct extent *extents, size_t count,
                              const char **why) {
    struct extent *alive = extents + count; /* the second half of the array */
    size_t alive_count = 0;
    qsort(extents, count, sizeof *extents, by_first);
    for (size_t i = 0; i < count; i++) {
        const struct extent *one = &extents[i];
        size_t kept = 0;
        for (size_t k = 0; k < alive_count; k++) {
            if (alive[k].last < one->first) continue;
            alive[kept++] = alive[k];
            if (alive[k].begin >= one->end || one->begin >= alive[k].end) continue;
            RF_INVALID_UNLESS(took_storage(plan, place, alive[k].tensor, one->tensor) ||
                                  took_storage(plan, place, one->tensor, alive[k].tensor),
                              "two tensors that are alive at once overlap in an arena");
        }
        alive[kept++] = *one;
        alive_count = kept;
    }
    return true;
}

static bool kept_is_valid(const struct rf_plan *plan, int place, const char **why) {
    uint64_t end = 0;
    for (uint32_t v = 0; v < plan->graph->tensor_count; v++) {
        const struct rf_plan_home *home = rf_plan_home(plan, v, place);
        if (!home->present || !home->kept || home->borrowed || home->bound) continue;
        RF_INVALID_UNLESS(home->offset >= end, "two kept tensors overlap in an arena");
        end = home->offset + padded(plan, place, plan->graph->tensors[v].bytes);
    }
    const struct rf_plan_place *row = &plan->places[place];
    if (row->counter_bytes) {
        RF_INVALID_UNLESS(row->counters_at >= end, "a kept tensor and the counters overlap in an arena");
        RF_INVALID_UNLESS(row->counters_at % row->alignment == 0, "an offset is no multiple of the alignment");
        end = row->counters_at + padded(plan, place, row->counter_bytes);
    }
    RF_INVALID_UNLESS(end <= row->kept_bytes, "what is kept lies outside the arena's first part");
    return true;
}

static bool place_is_valid(const struct rf_plan *plan, int p, struct extent *extents, const char **why) {
    const struct rf_graph *graph = plan->graph;
    const struct rf_plan_place *place = &plan->places[p];
    size_t nodes = 0, count = 0;
    RF_INVALID_UNLESS(rf_plan_arena_bytes(place) <= place->limit, "an arena is larger than its place's limit");
    for (uint32_t v = 0; v < graph->tensor_count; v++) {
        const struct rf_plan_home *home = rf_plan_home(plan, v, p);
        if (!home->present) continue;
        RF_INVALID_UNLESS(graph->tensors[v].root == v, "a view has a home");
        RF_INVALID_UNLESS(home->kept == (graph->tensors[v].role != RF_ROLE_RESULT),
                          "a home is kept and holds a result, or the other way round");
        if (home->borrowed || home->bound) continue;
        RF_INVALID_UNLESS(home->offset % place->alignment == 0, "an offset is no multiple of the alignment");
        if (home->kept) continue;
        extents[count++] = (struct extent){home->offset, home->offset + padded(plan, p, graph->tensors[v].bytes),
                                           home->first, home->last, v};
    }
    if (!kept_is_valid(plan, p, why)) return false;
    for (uint32_t s = 0; s < graph->node_count; s++) {
        if (plan->node_place[s] != p) continue;
        nodes++;
        if (!plan->node_workspace[s]) continue;
        uint32_t at = plan->position[s];
        RF_INVALID_UNLESS(plan->workspace_at[s] % place->alignment == 0, "an offset is no multiple of the alignment");
        RF_INVALID_UNLESS(plan->node_workspace[s] <= place->workspace_bytes, "a node's workspace is not counted");
        extents[count++] =
            (struct extent){plan->workspace_at[s], plan->workspace_at[s] + padded(plan, p, plan->node_workspace[s]),
                            at, at, RF_NO_INDEX};
    }
    RF_INVALID_UNLESS(nodes == place->node_count, "a place's node_count is not the number of its nodes");
    for (size_t i = 0; i < count; i++)
        RF_INVALID_UNLESS(extents[i].begin >= place->kept_bytes && extents[i].end <= rf_plan_arena_bytes(place),
                          "a tensor or workspace lies outside the arena's second part");
    return extents_are_apart(plan, p, extents, count, why);
}

/* A root must have a home on every place where nodes use it, alive for as long as they do; an output's home to the
 * end. */
static bool root_is_valid(const struct rf_plan *plan, uint32_t root, const char **why) {
    const struct rf_graph *graph = plan->graph;
    uint32_t written = 0, used = 0; /* 1 + the last position of a write, and of any use */
    int homes = 0;
    for (int p = 0; p < plan->place_count; p++) homes += rf_plan_home(plan, root, p)->present;
    RF_INVALID_UNLESS(!plan->updated[root] || homes <= 1, "a tensor that is updated has homes on several places");
    for (size_t u = plan->use_start[root]; u < plan->use_start[root + 1]; u++) {
        uint32_t node = plan->uses[u].node, at = plan->position[node];
        const struct rf_plan_home *home = rf_plan_home(plan, root, plan->node_place[node]);
        RF_INVALID_UNLESS(home->present, "a node uses a tensor that has no home on its place");
        RF_INVALID_UNLESS(home->kept || (home->first <= at && at <= home->last),
                          "a node uses a tensor that is not alive then");
        /* Uses are in the graph's order: a read must come after all earlier writes, a write after all earlier
         * uses. */
        RF_INVALID_UNLESS(at >= (plan->uses[u].writes ? used : written), "nodes run against a dependency");
        if (plan->uses[u].writes) written = at + 1;
        used = RF_MAX(used, at + 1);
    }
    uint32_t maker = plan->maker[root];
    if (graph->tensors[root].role != RF_ROLE_RESULT || maker == RF_NO_INDEX) return true;
    const struct rf_plan_home *made = rf_plan_home(plan, root, plan->node_place[maker]);
    RF_INVALID_UNLESS(!plan->root_output[root] || made->last == UINT32_MAX, "an output does not live to the end");
    return true;
}

static bool copies_are_valid(const struct rf_plan *plan, const char **why) {
    size_t wanted = 0;
    for (size_t i = 0; i < plan->copy_count; i++) {
        const struct rf_plan_copy *copy = &plan->copies[i];
        RF_INVALID_UNLESS(copy->tensor < plan->graph->tensor_count && copy->from != copy->to && copy->from >= 0 &&
                              copy->to >= 0 && copy->from < plan->place_count && copy->to < plan->place_count,
                          "a copy is of no tensor, or from no place to another");
        const struct rf_plan_home *from = rf_plan_home(plan, copy->tensor, copy->from);
        const struct rf_plan_home *to = rf_plan_home(plan, copy->tensor, copy->to);
        uint32_t maker = plan->maker[copy->tensor];
        RF_INVALID_UNLESS(from->present && to->present && maker != RF_NO_INDEX &&
                              plan->node_place[maker] == copy->from && plan->position[maker] == copy->after,
                          "a copy is not from where its tensor is made to where it has a home");
        RF_INVALID_UNLESS(copy->after < copy->before && to->first <= copy->before,
                          "a copy comes after what needs it");
        RF_INVALID_UNLESS(!i || plan->copies[i - 1].before <= copy->before, "copies are not in order");
    }
    for (uint32_t v = 0; v < plan->graph->tensor_count; v++) {
        if (plan->graph->tensors[v].root != v || plan->graph->tensors[v].role != RF_ROLE_RESULT) continue;
        for (int p = 0; p < plan->place_count && plan->maker[v] != RF_NO_INDEX; p++)
            wanted += rf_plan_home(plan, v, p)->present && p != plan->node_place[plan->maker[v]];
    }
    RF_INVALID_UNLESS(wanted == plan->copy_count, "a home on another place than the maker's has no copy, or several");
    return true;
}

bool rf_plan_is_valid(const struct rf_plan *plan, const char **why) {
    const struct rf_graph *graph = plan->graph;
    for (uint32_t s = 0; s < graph->node_count; s++) {
        RF_INVALID_UNLESS(plan->node_place[s] >= 0 && plan->node_place[s] < plan->place_count,
                          "a node is on a place that does not exist");
        RF_INVALID_UNLESS(plan->position[s] < graph->node_count && plan->order[plan->position[s]] == s,
                          "order and position do not say the same");
    }
    for (uint32_t v = 0; v < graph->tensor_count; v++)
        if (!root_is_valid(plan, v, why)) return false;
    if (!copies_are_valid(plan, why)) return false;
    size_t bytes = 2 * (graph->tensor_count + graph->node_count + 1) * sizeof(struct extent);
    struct extent *extents = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (extents == MAP_FAILED) return true; /* no memory for the check is no reason to end the program */
    bool valid = true;
    for (int p = 0; p < plan->place_count && valid; p++) valid = place_is_valid(plan, p, extents, why);
    munmap(extents, bytes);
    return valid;
}
