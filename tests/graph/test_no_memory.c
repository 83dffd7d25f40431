/* Every allocation of host memory that building, finishing, optimizing and the dummy make fails once: each time the
 * call returns RF_E_NO_MEMORY, nothing is lost, and the same call succeeds when memory is available again. */
#include "no_memory.h"

/* This file calls the real functions. */
#undef malloc
#undef calloc
#undef realloc
#undef aligned_alloc
#undef strdup

#include "graph/backend.h"
#include <rocmforge/test.h>

static size_t fail_in; /* the nth allocation from now fails; 0: none does */
static size_t asked;   /* allocations so far */

static bool fails(void) {
    asked++;
    return fail_in && !--fail_in;
}
void *failing_malloc(size_t bytes) {
    return fails() ? NULL : malloc(bytes);
}
void *failing_calloc(size_t count, size_t bytes) {
    return fails() ? NULL : calloc(count, bytes);
}
void *failing_realloc(void *memory, size_t bytes) {
    return fails() ? NULL : realloc(memory, bytes);
}
void *failing_aligned_alloc(size_t alignment, size_t bytes) {
    return fails() ? NULL : aligned_alloc(alignment, bytes);
}
char *failing_strdup(const char *text) {
    return fails() ? NULL : strdup(text);
}

/* Makes a call; if it fails, checks the status and makes it again. */
#define RETRY(call)                                                                                                  \
    do {                                                                                                             \
        rf_status retry_status = (call);                                                                             \
        if (retry_status) {                                                                                          \
            RF_ASSERT_INT(retry_status, RF_E_NO_MEMORY);                                                             \
            RF_ASSERT_CONTAINS(rf_error_text(), "memory");                                                           \
            *failures += 1;                                                                                          \
            RF_ASSERT_OK(call);                                                                                      \
        }                                                                                                            \
    } while (0)

static rf_tensor_id tensor(struct rf_graph *graph, enum rf_tensor_role role, const void *data, uint64_t rows,
                           uint64_t columns, size_t *failures) {
    RF_PARAMS(struct rf_graph_tensor, t);
    rf_tensor_id id = 0;
    t.role = role;
    t.data = data;
    t.desc = (struct rf_tensor_desc){.dtype = RF_F32, .rank = 2, .shape = {rows, columns}};
    RETRY(rf_graph_add_tensor(graph, &t, &id));
    return id;
}
static void node(struct rf_graph *graph, const char *op, const rf_tensor_id *ids, size_t inputs, size_t *failures) {
    RF_PARAMS(struct rf_graph_node, n);
    n.op = op;
    n.f[0] = 0.5;
    n.inputs = ids;
    n.input_count = inputs;
    n.outputs = ids + inputs;
    n.output_count = 1;
    RETRY(rf_graph_add_node(graph, &n, NULL));
}

/* Does some work for every pass, enough for the tables to grow. Returns how many calls failed. */
static size_t work(void) {
    static const float weights[64] = {1, 2, 3};
    size_t count = 0, *failures = &count;
    struct rf_graph *graph = NULL, *out = NULL;
    RETRY(rf_graph_create("work", &graph));
    rf_tensor_id x = tensor(graph, RF_ROLE_INPUT, NULL, 4, 8, failures);
    rf_tensor_id w = tensor(graph, RF_ROLE_CONSTANT, weights, 8, 8, failures), last = x;
    for (int i = 0; i < 12; i++) {
        rf_tensor_id v[7];
        for (int k = 0; k < 7; k++) v[k] = tensor(graph, RF_ROLE_RESULT, NULL, k == 6 ? 8 : 4, 8, failures);
        node(graph, "scale", (rf_tensor_id[]){w, v[6]}, 1, failures);
        node(graph, "matmul", (rf_tensor_id[]){last, v[6], v[0]}, 2, failures);
        node(graph, "add", (rf_tensor_id[]){v[0], last, v[1]}, 2, failures);
        node(graph, "copy", (rf_tensor_id[]){v[1], v[2]}, 1, failures);
        node(graph, "scale", (rf_tensor_id[]){v[2], v[3]}, 1, failures);
        node(graph, "scale", (rf_tensor_id[]){v[2], v[4]}, 1, failures);
        node(graph, "add", (rf_tensor_id[]){v[3], v[4], v[5]}, 2, failures);
        last = v[5];
    }
    RETRY(rf_graph_finish(graph));
    RETRY(rf_graph_optimize(graph, RF_PASSES_ALL, &out, NULL, NULL));
    RF_ASSERT(rf_graph_node_count(out) < rf_graph_node_count(graph));
    rf_graph_destroy(&out);
    rf_graph_destroy(&graph);

    struct rf_dummy *dummy = NULL;
    struct rf_backend *backend = NULL;
    RETRY(rf_dummy_create(&dummy));
    RETRY(rf_backend_create_dummy(dummy, &backend));
    RETRY(backend->table->assigned(backend, 1, 8));
    RETRY(backend->table->assigned(backend, 1000, 8));
    RF_ASSERT_UINT(rf_dummy_get_stats(dummy).alloc_count, 2);
    backend->table->destroy(backend);
    rf_dummy_destroy(&dummy);
    return count;
}

RF_TEST(no_memory, at_every_allocation, .timeout_ms = 600000) {
    asked = 0;
    RF_ASSERT_UINT(work(), 0);
    size_t allocations = asked;
    RF_ASSERT(allocations > 200);
    for (size_t n = 1; n <= allocations; n++) {
        fail_in = n;
        RF_ASSERT_UINT(work(), 1);
        RF_ASSERT_UINT(fail_in, 0);
    }
}
