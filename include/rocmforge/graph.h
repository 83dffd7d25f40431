/* ROCmForge: graphs of ops, planned within a budget and executed on GPU, CPU or both.
 *
 * Glossary
 *   tensor     a descriptor with a name and a role: input, constant, state, or made by a node
 *   node       an op of the op table (ops.h), its attributes, the tensors it reads and those it makes
 *   backend    where nodes run: a GPU, the CPU, or the dummy, which has no memory and computes nothing
 *   plan       which backend each node and tensor goes to, at which offset of which arena
 *   executor   a graph with a plan and its memory; it runs the graph as often as wanted
 *
 * A graph is built by one thread, then finished: from there on it is immutable and may be shared.
 * Nothing is allocated on a device before the plan is charged to its budget, and nothing while a graph runs. */
#ifndef ROCMFORGE_GRAPH_H
#define ROCMFORGE_GRAPH_H

#include <rocmforge/gpu.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- building ------------------------------------------------------------------------------------ */

struct rf_graph;
typedef uint32_t rf_tensor_id; /* 0: none */
typedef uint32_t rf_node_id;   /* 0: none */

enum rf_tensor_role {
    RF_ROLE_RESULT,   /* made by a node */
    RF_ROLE_INPUT,    /* written by the caller before a run; kept between runs */
    RF_ROLE_CONSTANT, /* never changes; its data is given with the descriptor */
    RF_ROLE_STATE,    /* kept between runs, zeros at first; changed by ops that update an input in place */
};
enum rf_layout {
    RF_LAYOUT_ROW_MAJOR, /* strides may be left 0 */
    RF_LAYOUT_STRIDED,   /* any strides that stay within the storage */
};

/* A tensor's descriptor. */
struct rf_graph_tensor {
    size_t struct_size;
    const char *name; /* copied; NULL: "tN". Unique in the graph */
    enum rf_tensor_role role;
    enum rf_layout layout;
    struct rf_tensor_desc desc; /* dtype, shape, strides; byte_offset counts from the start of view_of's tensor */
    rf_tensor_id view_of; /* 0: the tensor has storage of its own. A view shares the storage of another tensor, which
                             may itself be a view; it is made when that tensor is made, and has role RESULT */
    const void *data;     /* of a constant: borrowed until the graph is destroyed; NULL: it will be bound */
    int group;            /* of a constant, input or state: the nodes it is placed with (see rf_graph_node) */
};

/* An attribute of a node, by its name in the op's row: {"eps", .f = 1e-5}, {"axis", .i = 2}. Frozen. */
struct rf_attribute {
    const char *name;
    double f;
    int64_t i;
};

#define RF_GRAPH_ATTRIBUTES 12
struct rf_graph_node {
    size_t struct_size;
    const char *op;                 /* a name of the op table */
    const char *name;               /* copied; NULL: "op_N" */
    double f[RF_GRAPH_ATTRIBUTES];  /* attributes by position, as programs built for 0.1.0 give them; */
    int64_t i[RF_GRAPH_ATTRIBUTES]; /* those given by name below win */
    const rf_tensor_id *inputs;     /* 0 for an input that is left out */
    size_t input_count;             /* inputs left out at the end need not be counted */
    const rf_tensor_id *outputs;
    size_t output_count;
    int group; /* nodes with the same number (a layer of a model) are placed on one backend; 0: on its own */
    const struct rf_attribute *attributes; /* borrowed for the call; one that is not given is 0 */
    size_t attribute_count;
};

RF_API rf_status rf_graph_create(const char *name, struct rf_graph **out);
RF_API void rf_graph_destroy(struct rf_graph **graph);
/* RF_E_INVALID with the name and the reason: a descriptor that makes no sense, a view that leaves its storage, a
 * constant without data, a name that is taken. */
RF_API rf_status rf_graph_add_tensor(struct rf_graph *graph, const struct rf_graph_tensor *tensor, rf_tensor_id *id);
/* RF_E_INVALID with the node's name and the reason: no such op or tensor, shapes or types the op refuses, an output
 * that a node makes already or whose role is not RESULT, an output that shares storage with an input. */
RF_API rf_status rf_graph_add_node(struct rf_graph *graph, const struct rf_graph_node *node, rf_node_id *id);
/* Names a tensor that is wanted after a run. Tensors that no node reads after their last change are outputs without
 * being named here. Where a view is named, its storage is an output too. */
RF_API rf_status rf_graph_add_output(struct rf_graph *graph, rf_tensor_id id);
/* Orders the nodes (those that update a tensor keep their place among those that use it) and checks the whole graph:
 * RF_E_INVALID for a cycle, a tensor with role RESULT that no node makes, a graph without a node. Nothing can be
 * added afterwards. */
RF_API rf_status rf_graph_finish(struct rf_graph *graph);

RF_API const char *rf_graph_name(const struct rf_graph *graph);
RF_API size_t rf_graph_node_count(const struct rf_graph *graph);
RF_API size_t rf_graph_tensor_count(const struct rf_graph *graph);                        /* ids are 1 to this */
RF_API rf_tensor_id rf_graph_find(const struct rf_graph *graph, const char *tensor_name); /* 0: none */
enum rf_graph_format { RF_GRAPH_TEXT, RF_GRAPH_DOT };
/* Calls write with pieces of text until it returns false. */
RF_API rf_status rf_graph_dump(const struct rf_graph *graph, enum rf_graph_format format,
                               bool (*write)(void *user, const char *text, size_t length), void *user);

/* ---- optimizing ---------------------------------------------------------------------------------- */

/* Bits of a set of passes, in the order they run. Inputs, states, named outputs and tensors that no node read when
 * the graph was finished are roots: they are never removed, and no pass makes them share storage. */
enum rf_pass {
    RF_PASS_DEAD = 1 << 0,     /* removes nodes whose outputs are not needed */
    RF_PASS_CONSTANT = 1 << 1, /* computes nodes that have only constant inputs, now and by the reference */
    RF_PASS_COMMON = 1 << 2,   /* runs the same op with the same inputs only once */
    RF_PASS_VIEW = 1 << 3,     /* turns copies that change nothing into views */
    RF_PASS_FUSE = 1 << 4,     /* replaces patterns by the op table's fused ops */
    RF_PASS_IN_PLACE =
        1 << 5, /* writes an output over an input that is not needed afterwards, where the op allows it */
    RF_PASSES_ALL = (1 << 6) - 1
};
RF_API const char *rf_pass_name(enum rf_pass pass);
/* What one pass did. Frozen. */
struct rf_pass_report {
    enum rf_pass pass;
    size_t nodes_before, nodes_after;
    size_t changes; /* nodes removed, computed, fused or written in place */
};
/* Makes a new, finished graph. Its ids differ: rf_graph_find gives those of the roots, which keep their names. It
 * borrows the constants of the old graph, which must outlive it. report may be NULL; otherwise it must have room for
 * 6 reports, and report_count is set to the number written. */
RF_API rf_status rf_graph_optimize(const struct rf_graph *graph, unsigned passes, struct rf_graph **out,
                                   struct rf_pass_report *report, size_t *report_count);

/* ---- the dummy backend --------------------------------------------------------------------------- */

/* The dummy backend pretends to allocate and computes nothing. It is for tests of graphs, plans and placements. Its
 * addresses begin at 16 and are never read or written. */
struct rf_dummy;
/* Frozen. */
struct rf_dummy_stats {
    size_t alloc_count;      /* tensors that were given a buffer */
    size_t execute_op_count; /* nodes that were "executed" */
};
RF_API rf_status rf_dummy_create(struct rf_dummy **out); /* buffers of at most 64 bytes, aligned to 8 */
/* alignment: a power of two. */
RF_API rf_status rf_dummy_create_with_config(uint64_t max_bytes, uint64_t alignment, struct rf_dummy **out);
RF_API void rf_dummy_destroy(struct rf_dummy **dummy);
RF_API struct rf_dummy_stats rf_dummy_get_stats(const struct rf_dummy *dummy);
RF_API uint64_t rf_dummy_allocated_total(const struct rf_dummy *dummy);
RF_API bool rf_dummy_has_buffer(const struct rf_dummy *dummy, rf_tensor_id id); /* of the graph last executed */
RF_API void rf_dummy_reset(struct rf_dummy *dummy);
/* The nth allocation from now on (1: the next) fails with RF_E_DEVICE_MEMORY; 0: none. */
RF_API void rf_dummy_fail_at(struct rf_dummy *dummy, size_t nth);

/* ---- executing ----------------------------------------------------------------------------------- */

struct rf_executor;
/* Where a tensor's storage begins: host memory for the CPU, else a buffer. Frozen. */
struct rf_binding {
    void *host;
    struct rf_buffer *buffer;
    uint64_t offset_bytes;
};
struct rf_executor_params {
    size_t struct_size;
    const struct rf_graph *graph; /* finished; borrowed until the executor is destroyed */
    /* The devices it may run on, best first. Borrowed until the executor is destroyed. None: the CPU alone. */
    struct rf_device *const *devices;
    size_t device_count;
    const uint64_t *device_bytes; /* for each device: the limit within its budget; NULL or 0: all it grants */
    bool no_cpu;                  /* RF_E_BUDGET where the graph does not fit the devices, instead of using the CPU */
    struct rf_dummy *dummy;       /* not NULL: the graph runs on this alone */
    unsigned cpu_threads;         /* 0: RF_THREADS, else one per usable core */
    const char *cpu_simd;         /* NULL: the best */
    unsigned passes;              /* of rf_graph_optimize; 0: runs the graph as it is */
    bool check;                   /* checks guard bands between the tensors of an arena after each node; slow */
    bool replay;                  /* records the work of each device once and replays it, where the driver can */
    const char *trace_path;       /* writes the nodes' times in Chrome's trace format when destroyed; NULL: none */
    int64_t timeout_ns;           /* of a run; 0: RF_TIMEOUT_MS */
    /* Places nodes instead of the planner: the index of a device, or -1 for the CPU. */
    int (*place)(void *user, const char *node);
    /* Binds memory that the executor does not own and that several executors share (weights, KV caches). It is called
     * once for each constant, input and state on each place that needs it (a device's index, -1: the CPU). True: the
     * binding is used as it is, for the executor's life, and is not counted, uploaded, zeroed or freed. Constants
     * that are bound need no data. Memory that is bound as a constant, or as an input that no node changes, must not
     * be written while a run is under way: kernels may read it before their turn. */
    bool (*bind)(void *user, rf_tensor_id id, const char *name, int place, struct rf_binding *binding);
    void *user;
    /* Called by the running thread before each node on the CPU and each submission to a device. True ends the run
     * with RF_E_CANCELLED, once the submitted work is done. NULL: every run goes to its end. */
    bool (*stop)(void *stop_user);
    void *stop_user;
    /* Places all nodes of a group together, as `place` does by name: the index of a device, or -1 for the CPU. It is
     * not called for nodes without a group (0), or where `place` is given. */
    int (*place_group)(void *user, int group);
    /* The runtime that provides the CPU's threads, options and host budget; borrowed until the executor is destroyed.
     * NULL: the first device's runtime; without a device, a runtime of the executor's own. */
    struct rf_runtime *runtime;
};
/* One thread at a time may use an executor; any number of executors may run side by side, on one device or on
 * several. The call plans, charges and allocates memory, and uploads constants. RF_E_BUDGET: the graph fits nowhere,
 * and no memory is held. If a device no longer has the memory that it granted, or refuses to run a node, that part is
 * placed elsewhere. Later runs allocate nothing, except scratch memory of the CPU's ops, which grows in the first
 * run. Constants used on the CPU are read where the graph has them. */
RF_API rf_status rf_executor_create(const struct rf_executor_params *params, struct rf_executor **out);
RF_API rf_status rf_executor_destroy(struct rf_executor **executor);
/* Writes the whole of an input or a state; bytes must be its size, for a strided tensor its span. Waits for earlier
 * work. */
RF_API rf_status rf_executor_write(struct rf_executor *executor, rf_tensor_id id, const void *data, uint64_t bytes);
/* Reads an output, an input or a state, after a run. */
RF_API rf_status rf_executor_read(struct rf_executor *executor, rf_tensor_id id, void *data, uint64_t bytes);
/* Runs all nodes and waits. RF_E_DEVICE_LOST: inputs and states that were only on that device are gone, constants are
 * not. After rf_executor_replan without that device the executor can go on, with zeros in their place. Other failures
 * leave the executor usable, but states may be half changed. RF_E_TIMEOUT: the next call first waits for the work
 * that is still under way. */
RF_API rf_status rf_executor_run(struct rf_executor *executor);
/* Plans again for these devices and limits (as in params), moves the tensors that must move, and keeps inputs and
 * states. Outputs are available again after the next run. On failure the executor keeps inputs and states in host
 * memory and has no plan: it cannot run until a replan succeeds. */
RF_API rf_status rf_executor_replan(struct rf_executor *executor, struct rf_device *const *devices,
                                    size_t device_count, const uint64_t *device_bytes);

/* ---- what the plan says -------------------------------------------------------------------------- */

struct rf_plan_info {
    size_t struct_size;
    uint64_t epoch;          /* counts the plans of an executor */
    size_t place_count;      /* places used; the CPU is the last if it is one */
    size_t nodes_on_cpu;     /* where there is a device: the nodes that spilled to the CPU */
    uint64_t bytes_on_cpu;   /* host memory held */
    uint64_t transfers;      /* per run, between places */
    uint64_t transfer_bytes; /* per run */
    int64_t expected_ns;     /* of a run, by the planner's estimate */
    uint64_t peak_bytes;     /* of all arenas that hold results */
    uint64_t live_bytes;     /* the most bytes of results that are needed at the same time, for comparison */
    bool degraded;           /* something that could run on a device did not fit */
};
RF_API rf_status rf_executor_plan_info(const struct rf_executor *executor, struct rf_plan_info *info);
/* Writes where each node and tensor was placed, why, and the expected cost, as text or JSON; or the arenas as a chart
 * of lifetimes over offsets. */
enum rf_plan_format { RF_PLAN_TEXT, RF_PLAN_JSON, RF_PLAN_CHART };
RF_API rf_status rf_executor_dump_plan(const struct rf_executor *executor, enum rf_plan_format format,
                                       bool (*write)(void *user, const char *text, size_t length), void *user);

#ifdef __cplusplus
}
#endif
#endif
