/* Cells for each kind of node but objects (see expand.h, store.h).
 *
 * Empty rounds: a repetition whose child can be empty is entered as if its least number were 0, which gives the same
 * texts; and a round that ended without a byte is dropped, because the state before it allows all that the state
 * after it does. So no count makes a step long. */
#include "grammar/expand.h"

static void add_cell(struct rf_store *store, enum rf_record_kind kind, uint32_t a, uint32_t next) {
    uint32_t cell[] = {a, next};
    rf_store_add(store, rf_record_make(store, kind, cell, 2));
}

static void add_node(struct rf_store *store, uint32_t node, uint32_t next) {
    if (rf_node(store->program, node)->productive) add_cell(store, RF_RECORD_NODE, node, next);
}

/* Before the part with this number of a sequence. */
static void reach_part(struct rf_store *store, uint32_t node, uint32_t part, uint32_t next) {
    const struct rf_node *sequence = rf_node(store->program, node);
    if (part + 1 < sequence->b) {
        uint32_t cell[] = {node, part + 1, next};
        next = rf_record_make(store, RF_RECORD_PARTS, cell, 3);
        if (!next) return;
    }
    add_node(store, rf_link(store->program, sequence->a + part), next);
}

/* After so many rounds of a repetition. */
static void reach_times(struct rf_store *store, uint32_t node, uint32_t times, uint32_t next) {
    const struct rf_node *repeat = rf_node(store->program, node);
    const struct rf_node *child = rf_node(store->program, repeat->a);
    uint32_t least = child->nullable ? 0 : repeat->b, most = repeat->c, after = times + 1;
    bool may_end = times == RF_TIMES_FREE || (times != RF_TIMES_MUST && times >= least);
    bool may_go_on = times >= RF_TIMES_MUST || most == RF_NO_LIMIT || times < most;
    if (may_end) rf_store_add(store, next);
    if (!may_go_on || !child->productive) return;
    if (times >= RF_TIMES_MUST)
        after = times;
    else if (most == RF_NO_LIMIT)
        after = RF_MIN(after, RF_MAX(least, 1u)); /* what is more makes no difference */
    uint32_t cell[] = {node, after, next};
    uint32_t below = rf_record_make(store, RF_RECORD_TIMES, cell, 3);
    if (below && child->nullable) rf_store_note_round(store, below);
    if (below) add_cell(store, RF_RECORD_NODE, repeat->a, below);
}

static bool expand_node(struct rf_store *store, uint32_t index, uint32_t next) {
    const struct rf_program *program = store->program;
    const struct rf_node *node = rf_node(program, index);
    switch ((enum rf_node_kind)node->kind) {
    case RF_NODE_EMPTY: rf_store_add(store, next); return false;
    case RF_NODE_NEVER: return false;
    case RF_NODE_CLASS:
    case RF_NODE_LITERAL:
    case RF_NODE_OBJECT: return node->productive;
    case RF_NODE_SEQUENCE: reach_part(store, index, 0, next); return false;
    case RF_NODE_CHOICE:
        for (uint32_t i = 0; i < node->b && !store->status; i++) add_node(store, rf_link(program, node->a + i), next);
        return false;
    case RF_NODE_REPEAT: reach_times(store, index, 0, next); return false;
    case RF_NODE_RULE:
        add_node(store, ((const struct rf_rule *)program->rules.data)[node->a].body, next);
        return false;
    case RF_NODE_DFA: add_cell(store, RF_RECORD_DFA, node->a, next); return false;
    }
    return false;
}

bool rf_stack_expand(struct rf_store *store, uint32_t stack) {
    const uint32_t *data = rf_record_data(store, stack);
    const struct rf_dfa_state *state;
    switch (rf_record_kind(store, stack)) {
    case RF_RECORD_EMPTY:
    case RF_RECORD_TEXT: return true;
    case RF_RECORD_NODE: return expand_node(store, data[0], data[1]);
    case RF_RECORD_PARTS: reach_part(store, data[0], data[1], data[2]); return false;
    case RF_RECORD_TIMES:
        if (!rf_store_knows_round(store, stack)) reach_times(store, data[0], data[1], data[2]);
        return false;
    case RF_RECORD_DFA:
        state = rf_dfa_state(store->program, data[0]);
        if (state->label) rf_store_add(store, data[1]);
        return state->edge_count != 0;
    case RF_RECORD_MEMBERS:
    case RF_RECORD_KEY: return rf_members_expand(store, stack);
    case RF_RECORD_BITS:
    case RF_RECORD_SET: break;
    }
    return false;
}

static bool class_has(const struct rf_program *program, uint32_t index, uint8_t byte) {
    const struct rf_byte_class *bytes = (const struct rf_byte_class *)program->classes.data + index;
    return bytes->bits[byte / 32] >> byte % 32 & 1;
}

/* Behind the first 'place' bytes of a literal. */
static void step_text(struct rf_store *store, uint32_t node, uint32_t place, uint32_t next, uint8_t byte) {
    const struct rf_node *literal = rf_node(store->program, node);
    if ((uint8_t)*rf_program_bytes(store->program, literal->a + place) != byte) return;
    if (place + 1 == literal->b) {
        rf_store_add(store, next);
        return;
    }
    uint32_t cell[] = {node, place + 1, next};
    rf_store_add(store, rf_record_make(store, RF_RECORD_TEXT, cell, 3));
}

static void step_node(struct rf_store *store, uint32_t index, uint32_t next, uint8_t byte) {
    const struct rf_node *node = rf_node(store->program, index);
    if (node->kind == RF_NODE_CLASS && class_has(store->program, node->a, byte)) rf_store_add(store, next);
    if (node->kind == RF_NODE_LITERAL) step_text(store, index, 0, next, byte);
    if (node->kind == RF_NODE_OBJECT && byte == '{') rf_members_begin(store, node->a, next);
}

void rf_stack_step(struct rf_store *store, uint32_t stack, uint8_t byte) {
    const uint32_t *data = rf_record_data(store, stack);
    const struct rf_edge *edge;
    switch (rf_record_kind(store, stack)) {
    case RF_RECORD_NODE: step_node(store, data[0], data[1], byte); break;
    case RF_RECORD_TEXT: step_text(store, data[0], data[1], data[2], byte); break;
    case RF_RECORD_DFA:
        edge = rf_dfa_edge(store->program, data[0], byte);
        if (edge) add_cell(store, RF_RECORD_DFA, edge->target, data[1]);
        break;
    case RF_RECORD_MEMBERS:
    case RF_RECORD_KEY: rf_members_step(store, stack, byte); break;
    case RF_RECORD_EMPTY:
    case RF_RECORD_PARTS:
    case RF_RECORD_TIMES:
    case RF_RECORD_BITS:
    case RF_RECORD_SET: break;
    }
}

void rf_stack_mark(const struct rf_store *store, uint32_t stack, uint64_t marks[256]) {
    const struct rf_program *program = store->program;
    const uint32_t *data = rf_record_data(store, stack);
    enum rf_record_kind kind = rf_record_kind(store, stack);
    if (kind == RF_RECORD_NODE) {
        const struct rf_node *node = rf_node(program, data[0]);
        if (node->kind == RF_NODE_LITERAL) rf_mark(&marks[(uint8_t)*rf_program_bytes(program, node->a)], stack);
        if (node->kind == RF_NODE_OBJECT) rf_mark(&marks['{'], stack);
        if (node->kind != RF_NODE_CLASS) return;
        const struct rf_byte_class *bytes = (const struct rf_byte_class *)program->classes.data + node->a;
        for (unsigned word = 0; word < 8; word++)
            for (uint32_t left = bytes->bits[word]; left; left &= left - 1)
                rf_mark(&marks[word * 32 + (unsigned)__builtin_ctz(left)], stack);
    } else if (kind == RF_RECORD_TEXT) {
        const struct rf_node *node = rf_node(program, data[0]);
        rf_mark(&marks[(uint8_t)*rf_program_bytes(program, node->a + data[1])], stack);
    } else if (kind == RF_RECORD_DFA) {
        const struct rf_dfa_state *state = rf_dfa_state(program, data[0]);
        for (uint32_t i = 0; i < state->edge_count; i++) {
            const struct rf_edge *edge = rf_edge(program, state->first_edge + i);
            for (unsigned byte = edge->low; byte <= edge->high; byte++)
                rf_mark(&marks[byte], (uint64_t)edge->target << 32 | stack);
        }
    } else if (kind == RF_RECORD_MEMBERS || kind == RF_RECORD_KEY) {
        rf_members_mark(store, stack, marks);
    }
}
