/* A plan: the place of every node and tensor, the order of the nodes, the copies between places, and the offsets in
 * each place's arena. It is made from a finished graph, descriptors and limits alone; planning allocates nothing on a
 * device.
 *
 * A place is a backend and has one arena. The arena holds first what is kept (constants, inputs, states, and
 * counters, which all nodes of the place use in turn) and then computed tensors, which give their storage to others
 * when they are no longer used. Constants, inputs and states have a home on each place that reads them; on the CPU a
 * constant is read where the graph has it. A tensor that is read on another place than the one that made it is copied
 * there once. A tensor that some node updates lives on one place, and all nodes that use it are placed there with it.
 *
 * "node" is an index into the graph's nodes; "position" is when it runs. A node on a device that needs nothing from
 * another place goes before one that must wait for a copy, and devices before the CPU, so that the CPU computes while
 * devices do.
 *
 * Invariants (rf_plan_is_valid checks 1 to 3; 4 would need every plan to be made twice, which
 * tests/graph/test_placement.c does):
 *   1. two tensors with overlapping lifetimes on a place do not overlap in its arena, unless one took the other's
 *      storage in place
 *   2. an output lives to the end of the run, and nothing else uses its storage from then on
 *   3. offsets are multiples of the place's alignment; a place's arena stays within its limit
 *   4. the same graph, places and limits give the same plan */
#ifndef RF_GRAPH_PLAN_H
#define RF_GRAPH_PLAN_H

#include "graph/backend.h"

#define RF_PLACES_MAX 17 /* 16 devices and the CPU */

struct rf_plan_place {
    struct rf_backend *backend;
    bool cpu;
    uint64_t limit; /* the most bytes the arena may have; UINT64_MAX: no limit */
    uint64_t alignment;
    double bytes_per_ns; /* memory bandwidth, for the estimate */
    double flops_per_ns;
    double link_bytes_per_ns; /* to and from the host; not of the CPU, which has no link */
    int64_t launch_ns;        /* per node */
    /* Filled in by the plan: */
    uint64_t kept_bytes;      /* the arena's first part */
    uint64_t counter_bytes;   /* the most counters of a node; they lie at the end of the first part */
    uint64_t counters_at;     /* their offset in the arena */
    uint64_t result_bytes;    /* its second part */
    uint64_t workspace_bytes; /* the largest workspace of a node; it lies among the tensors while the node runs */
    uint64_t live_bytes;      /* the largest sum of tensors and workspace alive at once, rounded to the alignment */
    size_t node_count;
};

/* A tensor's storage on one place. Only roots have one; views lie in their root's. */
struct rf_plan_home {
    bool present;
    bool kept;     /* it lies in the arena's first part */
    bool borrowed; /* on the CPU: the constant's own data is used; no storage in the arena */
    bool bound;    /* in memory that the caller gave; no storage in the arena */
    struct rf_binding binding;
    bool in_place;        /* it took over the storage of another tensor */
    uint64_t offset;      /* in the arena */
    uint32_t first, last; /* positions between which the tensor is alive; last is UINT32_MAX: to the end */
};

/* A copy of a root's storage: read after position 'after', and available before position 'before'. */
struct rf_plan_copy {
    uint32_t tensor; /* root */
    int from, to;    /* places */
    uint32_t after, before;
};

/* A node that uses a root's storage; uses are in the order of nodes. */
struct rf_plan_use {
    uint32_t node;
    bool writes; /* makes or updates it, or takes its storage in place */
};

struct rf_plan {
    const struct rf_graph *graph;
    struct rf_plan_place places[RF_PLACES_MAX];
    int place_count;
    uint64_t guard_bytes; /* after each tensor, for 'check' */

    /* Known from the graph alone, by the index of the tensor. The uses of root r begin at use_start[r] and end
     * before use_start[r + 1]. */
    size_t *use_start;
    struct rf_plan_use *uses;
    uint8_t *root_output; /* the root, or a view of it, is wanted after a run */
    uint32_t *maker;      /* the first node that writes it; RF_NO_INDEX: none does */
    uint8_t *updated;     /* several nodes write it, or one that did not make it */
    uint64_t *node_bytes, *node_flops;

    int *node_place;
    const char **node_why;    /* static text that says why the node is on its place */
    uint32_t *order;          /* [position] the node */
    uint32_t *position;       /* [node] */
    uint64_t *node_workspace; /* [node] bytes of its workspace on its place */
    uint64_t *workspace_at;   /* [node] the offset of its workspace in the arena */

    bool optimized; /* as in rf_plan_params */
    bool (*bind)(void *user, rf_tensor_id id, const char *name, int place, struct rf_binding *binding);
    void *user;                  /* of bind */
    struct rf_plan_home *homes;  /* [tensor][place] */
    struct rf_plan_copy *copies; /* ordered by 'before', then tensor */
    size_t copy_count;
    int64_t expected_ns;
    bool degraded; /* something that a device could run did not fit there */
};

static inline struct rf_plan_home *rf_plan_home(const struct rf_plan *plan, uint32_t tensor, int place) {
    return &plan->homes[(size_t)tensor * (size_t)plan->place_count + (size_t)place];
}
/* The id by which the caller knows a tensor; 0: a pass made the tensor. */
static inline rf_tensor_id rf_plan_caller_id(const struct rf_plan *plan, uint32_t tensor) {
    return plan->optimized ? plan->graph->tensors[tensor].origin : tensor + 1;
}
static inline uint64_t rf_plan_arena_bytes(const struct rf_plan_place *place) {
    return place->kept_bytes + place->result_bytes;
}

struct rf_plan_params {
    const struct rf_graph *graph;
    const struct rf_plan_place *places; /* backend, cpu, limit, alignment, rates; the CPU last */
    int place_count;
    uint64_t guard_bytes;
    const uint8_t *refused; /* [node * place_count + place] refusals found in a rehearsal; NULL: none */
    bool optimized;         /* the graph is a clone: the caller knows tensors by their origin */
    int (*place_group)(void *user, int group);  /* overrides the planner for a group; -1: the CPU */
    int (*place)(void *user, const char *node); /* overrides the planner; -1: the CPU */
    bool (*bind)(void *user, rf_tensor_id id, const char *name, int place, struct rf_binding *binding);
    void *user;
};
/* RF_E_BUDGET: the graph fits nowhere. RF_E_UNSUPPORTED: no place runs a node; the message names it. */
rf_status rf_plan_create(const struct rf_plan_params *params, struct rf_plan **out);
void rf_plan_destroy(struct rf_plan **plan);
/* The host memory that a plan takes: for charging it. */
uint64_t rf_plan_host_bytes(const struct rf_plan *plan);
/* Computes the positions of the nodes for a placement. eager: as described above; otherwise in the order of the
 * graph. */
rf_status rf_plan_order(struct rf_plan *plan, bool eager);

/* placement.c: decides which place each node goes to, and from there makes the whole plan. What does not fit goes
 * on to the next device and in the end to the CPU, by one rule: of the groups on the place, the one with the least
 * added time per byte saved moves first, until the rest fits. */
rf_status rf_plan_place_nodes(struct rf_plan *plan, const struct rf_plan_params *params);
int64_t rf_plan_node_ns(const struct rf_plan *plan, uint32_t node, int place);
int64_t rf_plan_copy_ns(const struct rf_plan *plan, uint64_t bytes, int from, int to);

/* plan_memory.c: homes, copies and offsets for a placement and an order. RF_E_BUDGET: a limit is exceeded; *over
 * is set to the place, and the figures of the places say by how much. */
rf_status rf_plan_memory(struct rf_plan *plan, int *over);
/* plan_valid.c, only in builds with checks at level 2: checks the invariants above, and that lifetimes, copies and
 * the order fit the graph. *why: what does not hold. */
bool rf_plan_is_valid(const struct rf_plan *plan, const char **why);
/* plan_dump.c */
void rf_plan_dump(const struct rf_plan *plan, enum rf_plan_format format, struct rf_writer *writer);

#endif
