/* What rf_graph_is_valid and rf_plan_is_valid find: each invariant is broken once by hand. */
#include "exec_testing.h"

#include "../checks_testing.h"
#include "graph/executor_impl.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* The transformer's layers with every pass over them: views, constants, caches that are updated, in-place nodes. */
static struct rf_graph *optimized_graph(struct rf_graph **source) {
    struct rf_graph *graph = NULL;
    *source = exec_block_graph(&EXEC_SMALL_BLOCK);
    RF_ASSERT_OK(rf_graph_optimize(*source, RF_PASSES_ALL, &graph, NULL, NULL));
    return graph;
}

static uint32_t find_tensor(const struct rf_graph *graph, bool (*wanted)(const struct rf_tensor_row *tensor)) {
    uint32_t v = 0;
    while (v < graph->tensor_count && !wanted(&graph->tensors[v])) v++;
    RF_ASSERT(v < graph->tensor_count);
    return v;
}
static bool is_view(const struct rf_tensor_row *tensor) {
    return tensor->view_of != RF_NO_INDEX;
}
static bool is_made(const struct rf_tensor_row *tensor) {
    return tensor->producer != RF_NO_INDEX && tensor->producer > 0;
}
static bool is_constant(const struct rf_tensor_row *tensor) {
    return tensor->role == RF_ROLE_CONSTANT && tensor->data;
}
static bool is_input(const struct rf_tensor_row *tensor) {
    return tensor->role == RF_ROLE_INPUT;
}

static struct rf_node_row *find_node(const struct rf_graph *graph, bool (*wanted)(const struct rf_node_row *node)) {
    size_t s = 0;
    while (s < graph->node_count && !wanted(&graph->nodes[s])) s++;
    RF_ASSERT(s < graph->node_count);
    return &graph->nodes[s];
}
static bool updates_one(const struct rf_node_row *node) {
    return node->op->updates != 0;
}
static bool takes_storage(const struct rf_node_row *node) {
    return node->op->outputs && node->in_place[0] >= 0;
}

RF_TEST(invariants, of_a_graph) {
    NEED_CHECKS();
    struct rf_graph *source, *graph = optimized_graph(&source);
    EXPECT_VALID(rf_graph_is_valid, source);
    EXPECT_VALID(rf_graph_is_valid, graph);
    struct rf_tensor_row *view = &graph->tensors[find_tensor(graph, is_view)];
    struct rf_tensor_row *made = &graph->tensors[find_tensor(graph, is_made)];
    struct rf_tensor_row *constant = &graph->tensors[find_tensor(graph, is_constant)];
    struct rf_tensor_row *input = &graph->tensors[find_tensor(graph, is_input)];
    struct rf_node_row *updates = find_node(graph, updates_one), *takes = find_node(graph, takes_storage);
    /* the tables */
    PLANT(rf_graph_is_valid, graph, graph->tensor_capacity, graph->tensor_count - 1, "more than it has room for");
    PLANT(rf_graph_is_valid, graph, graph->node_capacity, graph->node_count - 1, "more than it has room for");
    PLANT(rf_graph_is_valid, graph, graph->bytes, graph->bytes + 1, "not the sum of all storage");
    size_t slot = 0;
    while (!graph->names[slot]) slot++;
    PLANT(rf_graph_is_valid, graph, graph->names[slot], 0, "not each tensor once");
    PLANT(rf_graph_is_valid, graph, graph->names[slot], (uint32_t)graph->tensor_count + 1, "does not exist");
    PLANT(rf_graph_is_valid, graph, graph->name_slots, graph->name_slots - 1, "no power of two");
    PLANT(rf_graph_is_valid, graph, made->name[0], '\x01', "not in the table of names");
    /* 1: the order */
    struct rf_node_row *maker = &graph->nodes[made->producer];
    PLANT(rf_graph_is_valid, graph, maker->op, NULL, "no name or no op");
    RF_ASSERT(graph->finished);
    size_t last = graph->node_count - 1;
    struct rf_node_row first_node = graph->nodes[0], last_node = graph->nodes[last];
    for (int swap = 0; swap < 2; swap++) { /* swaps the first and the last node with their outputs, and back */
        graph->nodes[0] = swap ? first_node : last_node;
        graph->nodes[last] = swap ? last_node : first_node;
        for (size_t s = 0; s <= last; s += last)
            for (int o = 0; o < graph->nodes[s].op->outputs; o++)
                graph->tensors[graph->nodes[s].tensors[graph->nodes[s].op->inputs + o]].producer = (uint32_t)s;
        if (!swap) EXPECT_INVALID(rf_graph_is_valid, graph, "stands before one that makes what it reads");
    }
    EXPECT_VALID(rf_graph_is_valid, graph);
    /* 2: producers */
    PLANT(rf_graph_is_valid, graph, made->producer, RF_NO_INDEX, "no node makes a result");
    PLANT(rf_graph_is_valid, graph, made->producer, (uint32_t)graph->node_count, "producer does not exist");
    PLANT(rf_graph_is_valid, graph, made->producer, made->producer - 1, "not among the outputs of its producer");
    PLANT(rf_graph_is_valid, graph, input->producer, 0, "has a producer");
    PLANT(rf_graph_is_valid, graph, view->producer, 0, "has a producer");
    /* 3: roots and views */
    PLANT(rf_graph_is_valid, graph, view->root, (uint32_t)graph->tensor_count, "root does not exist");
    PLANT(rf_graph_is_valid, graph, view->root, (uint32_t)(view - graph->tensors), "root is a view");
    PLANT(rf_graph_is_valid, graph, made->root, (uint32_t)(input - graph->tensors), "another's storage");
    PLANT(rf_graph_is_valid, graph, view->view_of, (uint32_t)(input - graph->tensors), "of what it is a view of");
    PLANT(rf_graph_is_valid, graph, view->bytes, graph->tensors[view->root].bytes + 1, "within its root's");
    PLANT(rf_graph_is_valid, graph, view->desc.byte_offset, view->bytes + 1, "within its root's");
    PLANT(rf_graph_is_valid, graph, constant->data, NULL, "a constant has no data");
    PLANT(rf_graph_is_valid, graph, constant->owned_data, graph, "not what the graph owns");
    uint32_t v = 0;
    while (v < graph->tensor_count && !(is_view(&graph->tensors[v]) && !graph->tensors[v].output &&
                                        graph->tensors[graph->tensors[v].root].role == RF_ROLE_RESULT &&
                                        !graph->tensors[graph->tensors[v].root].output))
        v++;
    if (v < graph->tensor_count) PLANT(rf_graph_is_valid, graph, graph->tensors[v].output, true, "its root is not");
    /* 4: nodes */
    PLANT(rf_graph_is_valid, graph, maker->tensors[0], (uint32_t)graph->tensor_count, "tensor that does not exist");
    PLANT(rf_graph_is_valid, graph, maker->tensors[0], RF_NO_INDEX, "lacks a tensor");
    PLANT(rf_graph_is_valid, graph, made->desc.shape[0], made->desc.shape[0] + 1, "does not pass rf_op_check");
    int updated = __builtin_ctz(updates->op->updates);
    struct rf_tensor_row *cache = &graph->tensors[graph->tensors[updates->tensors[updated]].root];
    PLANT(rf_graph_is_valid, graph, cache->updated, false, "not marked as updated");
    /* the input that a node takes in place */
    struct rf_tensor_row *taken = &graph->tensors[takes->tensors[takes->in_place[0]]];
    PLANT(rf_graph_is_valid, graph, takes->in_place[0], (int8_t)takes->op->inputs, "that the op does not allow");
    PLANT(rf_graph_is_valid, graph, graph->tensors[taken->root].output, true, "kept or wanted after a run");
    rf_graph_destroy(&graph);
    rf_graph_destroy(&source);
}

/* The same through the library: finishing a broken graph ends the process with a message that says what is wrong. */
RF_TEST(invariants, of_a_graph_end_the_process) {
    NEED_CHECKS();
    int ends[2], status = 0;
    char text[1024] = "";
    RF_ASSERT(pipe(ends) == 0);
    pid_t child = fork();
    RF_ASSERT(child >= 0);
    if (!child) {
        struct rlimit none = {0, 0};
        struct rf_graph *graph = graph_new("broken");
        rf_tensor_id x = GRAPH_TENSOR(graph, "x", RF_ROLE_INPUT, 4, 8), y = GRAPH_VALUE(graph, 4, 8);
        GRAPH_NODE(graph, "half", "scale", F0(0.5), x, y);
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGABRT, SIG_DFL);
        dup2(ends[1], STDERR_FILENO);
        graph->bytes++;
        rf_graph_finish(graph);
        _exit(7);
    }
    close(ends[1]);
    for (size_t used = 0; used + 1 < sizeof text;) {
        ssize_t got = read(ends[0], text + used, sizeof text - 1 - used);
        if (got <= 0) break;
        used += (size_t)got;
    }
    close(ends[0]);
    RF_ASSERT(waitpid(child, &status, 0) == child);
    RF_EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    RF_ASSERT_CONTAINS(text, "src/graph/graph_order.c:");
    RF_ASSERT_CONTAINS(text, "rf_graph_finish: rf_graph_is_valid(graph): bytes is not the sum of all storage");
}

/* Layers alternate between places, so that there are copies both ways and several tensors alive on each place. */
static int alternate(void *user, const char *node) {
    int *count = user;
    (void)node;
    return ++*count / 5 % 2 ? -1 : 0;
}

struct planned {
    struct exec_gpus gpus;
    struct rf_graph *graph;
    struct rf_executor *executor;
    struct rf_plan *plan;
    int count;
};
static void make_plan(struct planned *planned, bool split) {
    gpu_need_simulated("");
    exec_open(&planned->gpus, 1, "", NULL, NULL);
    planned->graph = split ? exec_random_graph(3) : exec_block_graph(&EXEC_SMALL_BLOCK);
    struct rf_executor_params params = exec_params(planned->graph, &planned->gpus);
    params.passes = RF_PASSES_ALL;
    if (split) {
        params.place = alternate;
        params.user = &planned->count;
    }
    RF_ASSERT_OK(rf_executor_create(&params, &planned->executor));
    planned->plan = planned->executor->assembly.plan;
}
static void drop_plan(struct planned *planned) {
    RF_ASSERT_OK(rf_executor_destroy(&planned->executor));
    rf_graph_destroy(&planned->graph);
    exec_close(&planned->gpus);
}

/* Finds two results on the place that are alive at the same time, neither in the other's storage. */
static bool find_pair(const struct rf_plan *plan, int place, struct rf_plan_home **a, struct rf_plan_home **b) {
    for (uint32_t x = 0; x < plan->graph->tensor_count; x++)
        for (uint32_t y = x + 1; y < plan->graph->tensor_count; y++) {
            *a = rf_plan_home(plan, x, place), *b = rf_plan_home(plan, y, place);
            if ((*a)->present && (*b)->present && !(*a)->kept && !(*b)->kept && !(*a)->in_place && !(*b)->in_place &&
                (*a)->first < (*b)->last && (*b)->first < (*a)->last)
                return true;
        }
    return false;
}

RF_TEST(invariants, of_a_plan, .tags = "sim") {
    NEED_CHECKS();
    struct planned planned = {0};
    make_plan(&planned, false);
    struct rf_plan *plan = planned.plan;
    struct rf_plan_place *place = &plan->places[0];
    const struct rf_graph *graph = plan->graph;
    EXPECT_VALID(rf_plan_is_valid, plan);
    /* the order */
    PLANT(rf_plan_is_valid, plan, plan->node_place[0], plan->place_count, "place that does not exist");
    PLANT(rf_plan_is_valid, plan, plan->order[0], plan->order[1], "order and position");
    PLANT(rf_plan_is_valid, plan, place->node_count, place->node_count + 1, "not the number of its nodes");
    uint32_t v = 0; /* made by one node and read by a later one, with nothing else on the two */
    while (plan->maker[v] == RF_NO_INDEX || graph->tensors[v].role != RF_ROLE_RESULT ||
           plan->use_start[v + 1] - plan->use_start[v] < 2)
        v++;
    uint32_t maker = plan->maker[v], reader = plan->uses[plan->use_start[v] + 1].node;
    struct rf_plan_home *home = rf_plan_home(plan, v, plan->node_place[maker]);
    uint32_t at_maker = plan->position[maker], at_reader = plan->position[reader];
    for (int swap = 0; swap < 2; swap++) {
        plan->position[maker] = swap ? at_maker : at_reader;
        plan->position[reader] = swap ? at_reader : at_maker;
        plan->order[plan->position[maker]] = maker;
        plan->order[plan->position[reader]] = reader;
        if (!swap) RF_ASSERT(WHY_INVALID(rf_plan_is_valid, plan) != NULL);
    }
    EXPECT_VALID(rf_plan_is_valid, plan);
    /* lifetimes */
    PLANT(rf_plan_is_valid, plan, home->last, home->first, "not alive then");
    PLANT(rf_plan_is_valid, plan, home->present, false, "no home on its place");
    PLANT(rf_plan_is_valid, plan, home->kept, true, "is kept and holds a result");
    /* 2: outputs */
    uint32_t output = 0;
    while (!plan->root_output[output] || graph->tensors[output].role != RF_ROLE_RESULT) output++;
    struct rf_plan_home *wanted = rf_plan_home(plan, output, plan->node_place[plan->maker[output]]);
    PLANT(rf_plan_is_valid, plan, wanted->last, (uint32_t)graph->node_count, "does not live to the end");
    /* 1: apart */
    struct rf_plan_home *a = NULL, *b = NULL;
    RF_ASSERT(find_pair(plan, 0, &a, &b));
    PLANT(rf_plan_is_valid, plan, b->offset, a->offset, "overlap in an arena");
    uint32_t k[2], kept = 0; /* two kept tensors */
    for (uint32_t t = 0; t < graph->tensor_count && kept < 2; t++) {
        const struct rf_plan_home *one = rf_plan_home(plan, t, 0);
        if (one->present && one->kept && !one->bound && !one->borrowed) k[kept++] = t;
    }
    RF_ASSERT_INT(kept, 2);
    PLANT(rf_plan_is_valid, plan, rf_plan_home(plan, k[1], 0)->offset, rf_plan_home(plan, k[0], 0)->offset,
          "two kept tensors overlap");
    uint32_t in_place = 0; /* a tensor in place of another may share its storage; any other tensor may not */
    while (in_place < graph->tensor_count && !rf_plan_home(plan, in_place, 0)->in_place) in_place++;
    RF_ASSERT(in_place < graph->tensor_count);
    PLANT(rf_plan_is_valid, plan, rf_plan_home(plan, in_place, 0)->in_place, false, "overlap in an arena");
    uint32_t s = 0;
    while (s < graph->node_count && !plan->node_workspace[s]) s++;
    if (s < graph->node_count)
        PLANT(rf_plan_is_valid, plan, plan->workspace_at[s],
              rf_plan_home(plan, graph->tensors[graph->nodes[s].tensors[graph->nodes[s].op->inputs]].root, 0)->offset,
              "overlap in an arena");
    /* 1 and 3: counters, which this graph has none of */
    uint64_t end = place->counters_at;
    RF_ASSERT_UINT(place->counter_bytes, 0);
    PLANT(rf_plan_is_valid, plan, place->counter_bytes, 1, "outside the arena's first part");
    place->counters_at = 0;
    PLANT(rf_plan_is_valid, plan, place->counter_bytes, 1, "a kept tensor and the counters overlap");
    place->counters_at = end + 1;
    PLANT(rf_plan_is_valid, plan, place->counter_bytes, 1, "no multiple of the alignment");
    place->counters_at = end;
    /* 3: alignment, limits, arenas */
    PLANT(rf_plan_is_valid, plan, home->offset, home->offset + 1, "no multiple of the alignment");
    PLANT(rf_plan_is_valid, plan, place->limit, rf_plan_arena_bytes(place) - 1, "larger than its place's limit");
    PLANT(rf_plan_is_valid, plan, home->offset, rf_plan_arena_bytes(place), "outside the arena's second part");
    PLANT(rf_plan_is_valid, plan, home->offset, 0, "outside the arena's second part");
    PLANT(rf_plan_is_valid, plan, place->kept_bytes, 0, "outside the arena's first part");
    drop_plan(&planned);
}

RF_TEST(invariants, of_a_plan_with_copies, .tags = "sim") {
    NEED_CHECKS();
    struct planned planned = {0};
    make_plan(&planned, true);
    struct rf_plan *plan = planned.plan;
    EXPECT_VALID(rf_plan_is_valid, plan);
    RF_ASSERT(plan->copy_count >= 2);
    struct rf_plan_copy *copy = &plan->copies[0];
    PLANT(rf_plan_is_valid, plan, copy->to, copy->from, "from no place to another");
    PLANT(rf_plan_is_valid, plan, copy->to, plan->place_count, "from no place to another");
    PLANT(rf_plan_is_valid, plan, copy->after, copy->after + 1, "where its tensor is made");
    PLANT(rf_plan_is_valid, plan, copy->before, copy->after, "after what needs it");
    PLANT(rf_plan_is_valid, plan, plan->copy_count, plan->copy_count - 1, "has no copy");
    struct rf_plan_copy *later = &plan->copies[plan->copy_count - 1], saved = *later;
    if (later->before != copy->before) {
        *later = *copy;
        *copy = saved;
        EXPECT_INVALID(rf_plan_is_valid, plan, "copies are not in order");
        *copy = *later;
        *later = saved;
        EXPECT_VALID(rf_plan_is_valid, plan);
    }
    PLANT(rf_plan_is_valid, plan, plan->updated[copy->tensor], 1, "homes on several places");
    drop_plan(&planned);
}
