/* Building deterministic automata (see dfa.h): the states that several parts reach together are explored from the
 * beginning on; those from which no label can be reached are left out, so that every state kept leads somewhere. */
#include "grammar/dfa.h"

#include <stdlib.h>

#include "grammar/store.h"

#define NO_NAME UINT32_MAX
enum { WIDTH = RF_DFA_PARTS_MAX + 2 };

/* A state of the product: the parts' states, and the names that it is the beginning of: names [low, high), after so
 * many bytes; low == high: none. */
struct product {
    uint32_t parts[RF_DFA_PARTS_MAX];
    uint32_t low, high, depth;
    uint32_t label;
    uint32_t first_edge, edge_count;
    bool alive;
};
struct builder {
    struct rf_program *program;
    const struct rf_dfa_params *params;
    struct rf_store store;
    struct rf_list products, edges; /* charged with the program's */
    uint32_t *table;                /* product plus 1, by hash */
    size_t part_count;
};
enum { TABLE = 1 << 16 };
_Static_assert(TABLE > 2 * RF_DFA_STATES_MAX, "the table always has room");

static struct product *product(const struct builder *builder, uint32_t index) {
    return (struct product *)builder->products.data + index;
}

static rf_status find_label(struct builder *builder, struct product *made) {
    const struct rf_dfa_params *params = builder->params;
    uint32_t matches = 0, name = NO_NAME;
    made->label = 0;
    for (size_t i = 0; i < params->count; i++)
        if (rf_store_is_complete(&builder->store, made->parts[i]) == (params->negated && params->negated[i]))
            return RF_OK;
    for (size_t i = 0; i < params->pattern_count; i++)
        if (rf_store_is_complete(&builder->store, made->parts[params->count + i])) matches |= 1u << i;
    if (made->low < made->high && params->names[made->low].bytes == made->depth) name = made->low;
    made->label = 1;
    return params->label ? params->label(params->user, name, matches, &made->label) : RF_OK;
}

static rf_status intern(struct builder *builder, const struct product *wanted, uint32_t *out) {
    uint64_t hash = wanted->low * 31ull + wanted->high * 17ull + wanted->depth;
    for (size_t i = 0; i < builder->part_count; i++) hash = (hash ^ wanted->parts[i]) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 31;
    uint32_t slot = (uint32_t)(hash % TABLE);
    for (; builder->table[slot]; slot = (slot + 1) % TABLE) {
        const struct product *known = product(builder, builder->table[slot] - 1);
        if (known->low == wanted->low && known->high == wanted->high && known->depth == wanted->depth &&
            !memcmp(known->parts, wanted->parts, builder->part_count * sizeof *wanted->parts)) {
            *out = builder->table[slot] - 1;
            return RF_OK;
        }
    }
    if (builder->products.count == RF_DFA_STATES_MAX)
        return rf_fail(RF_E_NO_MEMORY, "%s: needs an automaton of more than %d states; make it simpler",
                       builder->params->what, RF_DFA_STATES_MAX);
    struct product made = *wanted;
    RF_TRY(find_label(builder, &made));
    RF_TRY(rf_list_add(builder->program, &builder->products, &made, 1, sizeof made, out));
    builder->table[slot] = *out + 1;
    return RF_OK;
}

/* The names of [low, high) whose next byte is this one. */
static void narrow(const struct builder *builder, struct product *to, uint8_t byte) {
    const struct rf_dfa_name *names = builder->params->names;
    uint32_t low = to->low, depth = to->depth;
    while (low < to->high && (names[low].bytes <= depth || (uint8_t)names[low].text[depth] < byte)) low++;
    uint32_t high = low;
    while (high < to->high && (uint8_t)names[high].text[depth] == byte) high++;
    to->low = low;
    to->high = high;
    to->depth = depth + 1;
    if (low == high) to->low = to->high = to->depth = 0;
}

/* Where this byte leads; false: nowhere. */
static bool lead(const struct builder *builder, const struct product *from, const uint32_t rows[][256], uint8_t byte,
                 struct product *to) {
    const struct rf_dfa_params *params = builder->params;
    *to = (struct product){.low = from->low, .high = from->high, .depth = from->depth};
    for (size_t i = 0; i < builder->part_count; i++) {
        to->parts[i] = rows[i][byte];
        bool may_die = i >= params->count || (params->negated && params->negated[i]);
        if (to->parts[i] == RF_STATE_DEAD && !may_die) return false;
    }
    if (from->low < from->high) narrow(builder, to, byte);
    return true;
}

static rf_status explore_one(struct builder *builder, uint32_t index) {
    uint32_t rows[RF_DFA_PARTS_MAX][256];
    struct product from = *product(builder, index), to, last = {.low = 0};
    uint32_t target = 0;
    bool have_last = false;
    from.first_edge = builder->edges.count;
    for (size_t i = 0; i < builder->part_count; i++) {
        const uint32_t *row;
        RF_TRY(rf_store_row(&builder->store, from.parts[i], &row));
        memcpy(rows[i], row, sizeof rows[i]);
    }
    for (unsigned byte = 0; byte < 256; byte++) {
        bool leads = lead(builder, &from, (const uint32_t(*)[256])rows, (uint8_t)byte, &to);
        if (!leads) {
            have_last = false;
            continue;
        }
        if (have_last && !memcmp(&to, &last, sizeof to)) {
            ((struct rf_edge *)builder->edges.data)[builder->edges.count - 1].high = (uint8_t)byte;
            continue;
        }
        RF_TRY(intern(builder, &to, &target));
        struct rf_edge edge = {(uint8_t)byte, (uint8_t)byte, target};
        RF_TRY(rf_list_add(builder->program, &builder->edges, &edge, 1, sizeof edge, NULL));
        last = to;
        have_last = true;
    }
    from.edge_count = builder->edges.count - from.first_edge;
    *product(builder, index) = from;
    return RF_OK;
}

static void find_alive(struct builder *builder) {
    bool changed = true;
    for (uint32_t i = 0; i < builder->products.count; i++) product(builder, i)->alive = product(builder, i)->label;
    while (changed) {
        changed = false;
        for (uint32_t i = builder->products.count; i-- > 0;) {
            struct product *from = product(builder, i);
            for (uint32_t k = 0; k < from->edge_count && !from->alive; k++) {
                const struct rf_edge *edge = (const struct rf_edge *)builder->edges.data + from->first_edge + k;
                if (product(builder, edge->target)->alive) from->alive = changed = true;
            }
        }
    }
}

/* Copies the states that lead somewhere into the program; the first one always. */
static rf_status copy_states(struct builder *builder, uint32_t *start, uint32_t *count) {
    struct rf_program *program = builder->program;
    uint32_t next = program->states.count;
    *start = next;
    for (uint32_t i = 0; i < builder->products.count; i++) {
        struct product *from = product(builder, i);
        from->depth = next; /* from now on: its place */
        next += from->alive || !i;
    }
    *count = next - *start;
    for (uint32_t i = 0; i < builder->products.count; i++) {
        const struct product *from = product(builder, i);
        if (!from->alive && i) continue;
        struct rf_dfa_state state = {.first_edge = program->edges.count,
                                     .label = from->label,
                                     .first_name = from->low,
                                     .last_name = from->high};
        for (uint32_t k = 0; k < from->edge_count; k++) {
            struct rf_edge edge = ((const struct rf_edge *)builder->edges.data)[from->first_edge + k];
            if (!product(builder, edge.target)->alive) continue;
            edge.target = product(builder, edge.target)->depth;
            RF_TRY(rf_list_add(program, &program->edges, &edge, 1, sizeof edge, NULL));
            state.edge_count++;
        }
        RF_TRY(rf_list_add(program, &program->states, &state, 1, sizeof state, NULL));
    }
    return RF_OK;
}

static rf_status build(struct builder *builder, uint32_t *start, uint32_t *count) {
    const struct rf_dfa_params *params = builder->params;
    struct product first = {.high = params->name_count};
    uint32_t index;
    builder->part_count = params->count + params->pattern_count;
    if (builder->part_count > RF_DFA_PARTS_MAX)
        return rf_fail(RF_E_NO_MEMORY, "%s: more than %d patterns for one text", params->what, RF_DFA_PARTS_MAX);
    for (size_t i = 0; i < builder->part_count; i++) {
        uint32_t node = i < params->count ? params->nodes[i] : params->patterns[i - params->count];
        RF_TRY(rf_store_begin(&builder->store, node, &first.parts[i]));
    }
    RF_TRY(intern(builder, &first, &index));
    for (uint32_t i = 0; i < builder->products.count; i++) RF_TRY(explore_one(builder, i));
    find_alive(builder);
    return copy_states(builder, start, count);
}

rf_status rf_add_automaton(struct rf_program *program, const struct rf_dfa_params *params, uint32_t *start,
                           uint32_t *count) {
    struct builder builder = {.program = program, .params = params};
    struct rf_account account = rf_account_open(&program->account);
    rf_store_init(&builder.store, program, &program->account);
    rf_status status =
        rf_account_resize(&account, (void **)&builder.table, 0, TABLE * sizeof *builder.table, "an automaton");
    if (!status) {
        memset(builder.table, 0, TABLE * sizeof *builder.table);
        status = build(&builder, start, count);
    }
    rf_store_destroy(&builder.store);
    rf_account_release(&program->account, (uint64_t)builder.products.capacity * sizeof(struct product) +
                                              (uint64_t)builder.edges.capacity * sizeof(struct rf_edge));
    free(builder.products.data);
    free(builder.edges.data);
    free(builder.table);
    rf_account_close(&account);
    return status;
}

rf_status rf_add_dfa(struct rf_program *program, const struct rf_dfa_params *params, uint32_t *out) {
    struct rf_node node = {.kind = RF_NODE_DFA};
    uint32_t count;
    RF_TRY(rf_add_automaton(program, params, &node.a, &count));
    return rf_add_node(program, node, out);
}
