/* A plan as text and as JSON: where each node and tensor was placed, why, and what it is expected to cost; and the
 * arenas of tensors as a chart, with time from left to right and offsets from bottom to top. */
#include "graph/plan.h"

#include <stdio.h>

#include "base/json.h"

enum { CHART_COLUMNS = 100, CHART_ROWS = 24, LEGEND_MAX = 62 };

static const char *const roles[] = {"tensor", "input", "constant", "state"};

static const char *size_text(uint64_t bytes, char text[32]) {
    return bytes == UINT64_MAX ? "no limit" : rf_format_bytes(bytes, text, 32);
}

/* ---- text ---- */

static void dump_text(const struct rf_plan *plan, struct rf_writer *out) {
    const struct rf_graph *graph = plan->graph;
    char a[32], b[32], c[32], d[32];
    rf_writer_print(out, "graph '%s': %zu nodes, %zu copies between places, expected %.3f ms a run%s\n", graph->name,
                    graph->node_count, plan->copy_count, (double)plan->expected_ns / 1e6,
                    plan->degraded ? "; not all of it fits on the devices" : "");
    for (int p = 0; p < plan->place_count; p++) {
        const struct rf_plan_place *place = &plan->places[p];
        rf_writer_print(out, "place %d: %s: %zu nodes, %s kept, %s tensors (%s alive at once), limit %s\n", p,
                        place->backend->name, place->node_count, size_text(place->kept_bytes, a),
                        size_text(place->result_bytes, b), size_text(place->live_bytes, c),
                        size_text(place->limit, d));
    }
    rf_writer_print(out, "nodes, in the order they run:\n");
    for (uint32_t at = 0; at < graph->node_count; at++) {
        uint32_t node = plan->order[at];
        rf_writer_print(out, "  %5u  place %d  %-24s %-16s %10.1f us  %s\n", at, plan->node_place[node],
                        graph->nodes[node].name, graph->nodes[node].op->name,
                        (double)rf_plan_node_ns(plan, node, plan->node_place[node]) / 1e3, plan->node_why[node]);
    }
    rf_writer_print(out, "kept:\n");
    for (uint32_t v = 0; v < graph->tensor_count; v++)
        for (int p = 0; p < plan->place_count; p++) {
            const struct rf_plan_home *home = rf_plan_home(plan, v, p);
            if (!home->present || !home->kept) continue;
            if (home->borrowed)
                rf_writer_print(out, "  place %d  %-9s %-24s %s, where the graph has it\n", p,
                                roles[graph->tensors[v].role], graph->tensors[v].name,
                                size_text(graph->tensors[v].bytes, a));
            else
                rf_writer_print(out, "  place %d  %-9s %-24s %s at %llu\n", p, roles[graph->tensors[v].role],
                                graph->tensors[v].name, size_text(graph->tensors[v].bytes, a),
                                (unsigned long long)home->offset);
        }
    if (plan->copy_count) rf_writer_print(out, "copies:\n");
    for (size_t i = 0; i < plan->copy_count; i++) {
        const struct rf_plan_copy *copy = &plan->copies[i];
        uint64_t bytes = graph->tensors[copy->tensor].bytes;
        rf_writer_print(out, "  place %d to %d, after %u, before %u: %-24s %s, %.1f us\n", copy->from, copy->to,
                        copy->after, copy->before, graph->tensors[copy->tensor].name, size_text(bytes, a),
                        (double)rf_plan_copy_ns(plan, bytes, copy->from, copy->to) / 1e3);
    }
}

/* ---- JSON ---- */

static void json_place(struct rf_json *json, const struct rf_plan_place *place) {
    rf_json_open_object(json, NULL);
    rf_json_text(json, "name", place->backend->name);
    rf_json_text(json, "kind", place->backend->table->kind);
    rf_json_uint(json, "nodes", place->node_count);
    rf_json_uint(json, "kept_bytes", place->kept_bytes);
    rf_json_uint(json, "result_bytes", place->result_bytes);
    rf_json_uint(json, "live_bytes", place->live_bytes);
    rf_json_uint(json, "workspace_bytes", place->workspace_bytes);
    if (place->limit == UINT64_MAX)
        rf_json_null(json, "limit_bytes");
    else
        rf_json_uint(json, "limit_bytes", place->limit);
    rf_json_close(json);
}

static void json_node(struct rf_json *json, const struct rf_plan *plan, uint32_t node) {
    const struct rf_graph *graph = plan->graph;
    rf_json_open_object(json, NULL);
    rf_json_text(json, "name", graph->nodes[node].name);
    rf_json_text(json, "op", graph->nodes[node].op->name);
    rf_json_int(json, "place", plan->node_place[node]);
    rf_json_int(json, "expected_ns", rf_plan_node_ns(plan, node, plan->node_place[node]));
    rf_json_text(json, "why", plan->node_why[node]);
    rf_json_close(json);
}

static void json_tensor(struct rf_json *json, const struct rf_plan *plan, uint32_t tensor, int place) {
    const struct rf_graph *graph = plan->graph;
    const struct rf_plan_home *home = rf_plan_home(plan, tensor, place);
    if (!home->present) return;
    rf_json_open_object(json, NULL);
    rf_json_text(json, "name", graph->tensors[tensor].name);
    rf_json_text(json, "role", roles[graph->tensors[tensor].role]);
    rf_json_int(json, "place", place);
    rf_json_uint(json, "bytes", graph->tensors[tensor].bytes);
    rf_json_bool(json, "borrowed", home->borrowed);
    rf_json_uint(json, "offset", home->offset);
    rf_json_close(json);
}

static void json_copy(struct rf_json *json, const struct rf_plan *plan, const struct rf_plan_copy *copy) {
    const struct rf_graph *graph = plan->graph;
    uint64_t bytes = graph->tensors[copy->tensor].bytes;
    rf_json_open_object(json, NULL);
    rf_json_text(json, "tensor", graph->tensors[copy->tensor].name);
    rf_json_int(json, "from", copy->from);
    rf_json_int(json, "to", copy->to);
    rf_json_uint(json, "after", copy->after);
    rf_json_uint(json, "before", copy->before);
    rf_json_uint(json, "bytes", bytes);
    rf_json_int(json, "expected_ns", rf_plan_copy_ns(plan, bytes, copy->from, copy->to));
    rf_json_close(json);
}

static void dump_json(const struct rf_plan *plan, struct rf_writer *out) {
    const struct rf_graph *graph = plan->graph;
    struct rf_json json;
    rf_json_begin(&json, out->write, out->user, RF_JSON_COMPACT);
    rf_json_open_object(&json, NULL);
    rf_json_text(&json, "graph", graph->name);
    rf_json_int(&json, "expected_ns", plan->expected_ns);
    rf_json_bool(&json, "degraded", plan->degraded);
    rf_json_open_array(&json, "places");
    for (int p = 0; p < plan->place_count; p++) json_place(&json, &plan->places[p]);
    rf_json_close(&json);
    rf_json_open_array(&json, "nodes");
    for (uint32_t at = 0; at < graph->node_count; at++) json_node(&json, plan, plan->order[at]);
    rf_json_close(&json);
    rf_json_open_array(&json, "tensors");
    for (uint32_t t = 0; t < graph->tensor_count; t++)
        for (int p = 0; p < plan->place_count; p++) json_tensor(&json, plan, t, p);
    rf_json_close(&json);
    rf_json_open_array(&json, "copies");
    for (size_t i = 0; i < plan->copy_count; i++) json_copy(&json, plan, &plan->copies[i]);
    if (!rf_json_end(&json)) out->stopped = true;
}

/* ---- chart ---- */

static char letter(size_t index) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    return letters[index % (sizeof letters - 1)];
}

static void chart_place(const struct rf_plan *plan, int p, struct rf_writer *out) {
    const struct rf_graph *graph = plan->graph;
    const struct rf_plan_place *place = &plan->places[p];
    size_t nodes = graph->node_count, columns = RF_MIN(nodes, (size_t)CHART_COLUMNS), shown = 0;
    char grid[CHART_ROWS][CHART_COLUMNS + 1], a[32], b[32];
    rf_writer_print(out, "place %d: %s: %s of tensors, %s alive at once\n", p, place->backend->name,
                    size_text(place->result_bytes, a), size_text(place->live_bytes, b));
    if (!place->result_bytes || !columns) return;
    for (int r = 0; r < CHART_ROWS; r++) {
        memset(grid[r], '.', columns);
        grid[r][columns] = 0;
    }
    for (uint32_t v = 0; v < graph->tensor_count; v++) {
        const struct rf_plan_home *home = rf_plan_home(plan, v, p);
        if (!home->present || home->kept) continue;
        double scale = (double)CHART_ROWS / (double)place->result_bytes;
        double low = (double)(home->offset - place->kept_bytes) * scale;
        double high = low + (double)graph->tensors[v].bytes * scale;
        size_t from = (size_t)home->first * columns / nodes;
        size_t to = (size_t)RF_MIN((size_t)home->last, nodes - 1) * columns / nodes;
        for (int r = (int)low; r < CHART_ROWS && (r == (int)low || (double)r < high); r++)
            for (size_t c = from; c <= to; c++) grid[r][c] = letter(shown);
        shown++;
    }
    for (int r = CHART_ROWS; r-- > 0;) {
        uint64_t offset = (uint64_t)((double)place->result_bytes * r / (double)CHART_ROWS);
        rf_writer_print(out, "%10s |%s|\n", size_text(offset, a), grid[r]);
    }
    rf_writer_print(out, "%10s  nodes 0 to %zu\n", "", nodes - 1);
    shown = 0;
    for (uint32_t v = 0; v < graph->tensor_count; v++) {
        const struct rf_plan_home *home = rf_plan_home(plan, v, p);
        if (!home->present || home->kept) continue;
        if (shown < LEGEND_MAX)
            rf_writer_print(out, "  %c %-24s %s at %llu, %u to %s\n", letter(shown), graph->tensors[v].name,
                            size_text(graph->tensors[v].bytes, a), (unsigned long long)home->offset, home->first,
                            home->last == UINT32_MAX ? "the end" : (snprintf(b, sizeof b, "%u", home->last), b));
        shown++;
    }
    if (shown > LEGEND_MAX) rf_writer_print(out, "  and %zu more\n", shown - LEGEND_MAX);
}

void rf_plan_dump(const struct rf_plan *plan, enum rf_plan_format format, struct rf_writer *writer) {
    if (format == RF_PLAN_JSON)
        dump_json(plan, writer);
    else if (format == RF_PLAN_TEXT)
        dump_text(plan, writer);
    else
        for (int p = 0; p < plan->place_count; p++) chart_place(plan, p, writer);
}
