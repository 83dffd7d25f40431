/* A plan for people and for scripts: what went where, why, what it is expected to cost; and the arenas of tensors as
 * a chart, time from left to right, offsets from bottom to top. */
#include "graph/plan.h"

#include <stdio.h>

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

static void json_text(struct rf_writer *out, const char *text) {
    char piece[256];
    size_t used = 0;
    rf_writer_print(out, "\"");
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (used + 8 > sizeof piece) {
            rf_writer_print(out, "%.*s", (int)used, piece);
            used = 0;
        }
        if (c == '"' || c == '\\') {
            piece[used++] = '\\';
            piece[used++] = (char)c;
        } else if (c < 32) {
            used += (size_t)snprintf(piece + used, sizeof piece - used, "\\u%04x", c);
        } else {
            piece[used++] = (char)c;
        }
    }
    rf_writer_print(out, "%.*s\"", (int)used, piece);
}

static void dump_json(const struct rf_plan *plan, struct rf_writer *out) {
    const struct rf_graph *graph = plan->graph;
    bool first = true;
    rf_writer_print(out, "{\"graph\":");
    json_text(out, graph->name);
    rf_writer_print(out, ",\"expected_ns\":%lld,\"degraded\":%s,\"places\":[", (long long)plan->expected_ns,
                    plan->degraded ? "true" : "false");
    for (int p = 0; p < plan->place_count; p++) {
        const struct rf_plan_place *place = &plan->places[p];
        rf_writer_print(out, "%s{\"name\":", p ? "," : "");
        json_text(out, place->backend->name);
        rf_writer_print(
            out,
            ",\"kind\":\"%s\",\"nodes\":%zu,\"kept_bytes\":%llu,\"result_bytes\":%llu,\"live_bytes\":%llu,"
            "\"workspace_bytes\":%llu,\"limit_bytes\":",
            place->backend->table->kind, place->node_count, (unsigned long long)place->kept_bytes,
            (unsigned long long)place->result_bytes, (unsigned long long)place->live_bytes,
            (unsigned long long)place->workspace_bytes);
        if (place->limit == UINT64_MAX)
            rf_writer_print(out, "null}");
        else
            rf_writer_print(out, "%llu}", (unsigned long long)place->limit);
    }
    rf_writer_print(out, "],\"nodes\":[");
    for (uint32_t at = 0; at < graph->node_count; at++) {
        uint32_t node = plan->order[at];
        rf_writer_print(out, "%s{\"name\":", at ? "," : "");
        json_text(out, graph->nodes[node].name);
        rf_writer_print(out, ",\"op\":\"%s\",\"place\":%d,\"expected_ns\":%lld,\"why\":\"%s\"}",
                        graph->nodes[node].op->name, plan->node_place[node],
                        (long long)rf_plan_node_ns(plan, node, plan->node_place[node]), plan->node_why[node]);
    }
    rf_writer_print(out, "],\"tensors\":[");
    for (uint32_t v = 0; v < graph->tensor_count; v++)
        for (int p = 0; p < plan->place_count; p++) {
            const struct rf_plan_home *home = rf_plan_home(plan, v, p);
            if (!home->present) continue;
            rf_writer_print(out, "%s{\"name\":", first ? "" : ",");
            first = false;
            json_text(out, graph->tensors[v].name);
            rf_writer_print(out, ",\"role\":\"%s\",\"place\":%d,\"bytes\":%llu,\"borrowed\":%s,\"offset\":%llu}",
                            roles[graph->tensors[v].role], p, (unsigned long long)graph->tensors[v].bytes,
                            home->borrowed ? "true" : "false", (unsigned long long)home->offset);
        }
    rf_writer_print(out, "],\"copies\":[");
    for (size_t i = 0; i < plan->copy_count; i++) {
        const struct rf_plan_copy *copy = &plan->copies[i];
        uint64_t bytes = graph->tensors[copy->tensor].bytes;
        rf_writer_print(out, "%s{\"tensor\":", i ? "," : "");
        json_text(out, graph->tensors[copy->tensor].name);
        rf_writer_print(out, ",\"from\":%d,\"to\":%d,\"after\":%u,\"before\":%u,\"bytes\":%llu,\"expected_ns\":%lld}",
                        copy->from, copy->to, copy->after, copy->before, (unsigned long long)bytes,
                        (long long)rf_plan_copy_ns(plan, bytes, copy->from, copy->to));
    }
    rf_writer_print(out, "]}\n");
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
