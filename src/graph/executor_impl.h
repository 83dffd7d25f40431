/* The internals of an executor.
 *
 *   assembly   a plan and all that it needs to run: backends, arenas, calls, copies, recordings
 *   action     one thing a run does: a node, a recording of several nodes, a part of a copy
 *
 * Invariants:
 *   1. an executor has an assembly, or (after a failed replan) saved contents of inputs and states; replan turns one
 *      into the other and loses neither
 *   2. a run allocates nothing: calls, copies, marks and recordings are made with the assembly
 *   3. no work of a run is under way when a public function returns, unless 'unfinished' says so
 * 1 is checked after create and replan. 2 cannot be checked here: exec_faults.a_run_allocates_nothing
 * (tests/graph/test_exec_faults.c) counts allocations. 3 cannot be checked either: only the driver knows, and
 * waiting already asks it. */
#ifndef RF_GRAPH_EXECUTOR_IMPL_H
#define RF_GRAPH_EXECUTOR_IMPL_H

#include "graph/plan.h"
#include "runtime/host_memory.h"
#include "runtime/runtime.h"

enum { RF_DEVICES_MAX = RF_PLACES_MAX - 1, RF_GRAPH_GUARD_BYTES = 256, RF_GRAPH_GUARD = 0xA7 };

enum rf_action_kind {
    RF_ACTION_RUN,    /* the node at position 'index' */
    RF_ACTION_REPLAY, /* recording 'index' */
    RF_ACTION_BEGIN,  /* copy 'index' starts to leave its device */
    RF_ACTION_FINISH, /* waits for copy 'index' and uploads it where it is needed */
    RF_ACTION_SEND,   /* copy 'index' goes from the CPU to a device */
};
struct rf_action {
    enum rf_action_kind kind;
    int place;
    uint32_t index;
};
struct rf_segment {
    int place;
    void *recording;
};

struct rf_assembly {
    uint64_t charged_bytes; /* to the host budget, for everything here but arenas, copies and what drivers take */
    struct rf_backend *gpus[RF_DEVICES_MAX]; /* owned; their places come before the CPU's */
    size_t gpu_count;
    struct rf_backend *dummy; /* owned */
    struct rf_plan *plan;
    struct rf_arena arenas[RF_PLACES_MAX];
    struct rf_op_call *calls;       /* [position] */
    struct rf_transfer **transfers; /* [copy] NULL where the copy comes from the CPU */
    struct rf_action *actions;
    size_t action_count;
    struct rf_segment *segments;
    size_t segment_count;
    uint32_t *mark; /* [position] the first of the node's two marks on its place; 0: none. For tracing and timing */
};

struct rf_executor {
    const struct rf_graph *source; /* the caller's */
    struct rf_graph *optimized;    /* NULL: the source runs as it is */
    const struct rf_graph *graph;  /* the one of the two that runs */
    uint32_t *index_of; /* [id in source - 1] the index in graph; RF_NO_INDEX: the tensor was optimized away */

    struct rf_device *devices[RF_DEVICES_MAX];
    uint64_t device_bytes[RF_DEVICES_MAX];
    size_t device_count;
    bool no_cpu, check, replay;
    struct rf_dummy *dummy;
    struct rf_backend *cpu; /* lives as long as the executor; NULL: the CPU is not used */
    unsigned cpu_threads;
    struct rf_runtime *runtime;     /* threads, host budget; NULL with a dummy */
    struct rf_runtime *own_runtime; /* the same, owned, where the caller named none and there is no device */
    uint64_t charged_bytes;         /* to the host budget, for the optimized graph and the tables here */
    int64_t timeout_ns;
    int (*place)(void *user, const char *node);
    int (*place_group)(void *user, int group);
    bool (*bind)(void *user, rf_tensor_id id, const char *name, int place, struct rf_binding *binding);
    void *user;
    bool (*stop)(void *stop_user); /* NULL: a run is never stopped */
    void *stop_user;

    struct rf_assembly assembly;
    uint64_t epoch;
    void **saved;    /* [tensor] contents of inputs and states while there is no assembly; NULL: zeros */
    bool unfinished; /* work may still be under way: a deadline passed, or a run was only submitted */
    uint64_t newest; /* the ticket of the run that was submitted last */

    struct rf_trace *trace; /* NULL: none */
    bool timed;             /* nodes are timed, for longest_ns */
    int64_t longest_ns;
};
/* NULL: nothing is charged. */
static inline struct rf_host_budget *rf_executor_host(const struct rf_executor *executor) {
    return executor->runtime ? &executor->runtime->host : NULL;
}
static inline bool rf_executor_marks(const struct rf_executor *executor) {
    return executor->trace || executor->timed;
}

/* executor_build.c. On failure nothing stays allocated. */
rf_status rf_assembly_create(struct rf_executor *executor, struct rf_assembly *out);
rf_status rf_assembly_destroy(struct rf_executor *executor, struct rf_assembly *assembly);
static inline struct rf_backend *rf_assembly_backend(const struct rf_assembly *assembly, int place) {
    return assembly->plan->places[place].backend;
}

/* Where a root lies on a place: the arena, or the caller's memory it is bound to, and the offset. */
static inline struct rf_arena rf_assembly_locate(const struct rf_assembly *assembly, uint32_t root, int place,
                                                 uint64_t *offset) {
    const struct rf_plan_home *home = rf_plan_home(assembly->plan, root, place);
    *offset = home->bound ? home->binding.offset_bytes : home->offset;
    if (!home->bound) return assembly->arenas[place];
    return (struct rf_arena){.host = home->binding.host, .buffer = home->binding.buffer};
}

/* Makes the marks that measure runs. Called once, for an assembly that has none. */
rf_status rf_assembly_make_marks(struct rf_executor *executor, struct rf_assembly *assembly);

/* executor_run.c */
rf_status rf_assembly_run(struct rf_executor *executor, struct rf_assembly *assembly);
/* The parts of a run that is one recording: submitting it, and waiting for it. */
rf_status rf_assembly_submit(struct rf_executor *executor, struct rf_assembly *assembly, uint64_t *ticket);
rf_status rf_assembly_wait_for(struct rf_executor *executor, struct rf_assembly *assembly, uint64_t ticket);
/* Waits for what a run left unfinished. */
rf_status rf_assembly_finish_run(struct rf_executor *executor, struct rf_assembly *assembly);
static inline rf_status rf_assembly_drain(struct rf_executor *executor, struct rf_assembly *assembly) {
    return executor->unfinished ? rf_assembly_finish_run(executor, assembly) : RF_OK;
}
/* Writes the guard band after a tensor, for executors with 'check'. */
rf_status rf_assembly_guard(struct rf_assembly *assembly, uint32_t tensor, int place);

/* trace.c: the times of nodes, kept in memory until they are written in Chrome's trace format. */
struct rf_trace;
/* host: its events are charged to it; borrowed as long as the trace lives. NULL: they are not charged. */
rf_status rf_trace_create(const char *path, struct rf_host_budget *host, struct rf_trace **out);
/* Silently drops an event for which there is no memory: a trace must not end a run. */
void rf_trace_add(struct rf_trace *trace, const char *name, const char *kind, int place, int64_t start_ns,
                  int64_t elapsed_ns);
void rf_trace_place(struct rf_trace *trace, int place, const char *name);
/* Writes the file and frees the trace. */
rf_status rf_trace_destroy(struct rf_trace **trace);

#endif
