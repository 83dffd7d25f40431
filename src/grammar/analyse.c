/* Finishing a program: which nodes have texts, which have the empty one, and whether a rule begins with itself.
 *
 * Both sets grow until nothing changes, one pass over all nodes after the other. Children mostly come before their
 * parents, so few passes are needed; their number is bounded by the rules' nesting, and PASSES_MAX ends a grammar
 * made to need more. */
#include "grammar/program.h"

#include <stdlib.h>

enum { PASSES_MAX = 10000 };
/* Of all nodes looked at: a second's work. */
#define VISITS_MAX ((uint64_t)400 << 20)

static bool object_is_productive(const struct rf_program *program, const struct rf_object *object) {
    uint32_t possible = 0, required = 0;
    bool open = false;
    for (uint32_t i = 0; i < object->name_count; i++) {
        bool can = rf_node(program, rf_link(program, object->values + i))->productive;
        bool must = rf_bits(program, object->required)[i / 32] >> i % 32 & 1;
        if (must && !can) return false;
        possible += can;
        required += must;
    }
    for (uint32_t i = 0; i < object->open_count; i++)
        open = open || rf_node(program, rf_link(program, object->open_values + i))->productive;
    return required <= object->most && object->least <= object->most && (open || object->least <= possible);
}

/* *nullable, *productive: what a node's children say of it. */
void rf_node_look(const struct rf_program *program, const struct rf_node *node, bool *nullable, bool *productive) {
    const struct rf_node *child;
    switch ((enum rf_node_kind)node->kind) {
    case RF_NODE_EMPTY: *nullable = *productive = true; break;
    case RF_NODE_NEVER: break;
    case RF_NODE_CLASS:
    case RF_NODE_LITERAL: *productive = true; break;
    case RF_NODE_DFA:
        *productive = rf_dfa_state(program, node->a)->label || rf_dfa_state(program, node->a)->edge_count;
        *nullable = rf_dfa_state(program, node->a)->label != 0;
        break;
    case RF_NODE_SEQUENCE:
        *nullable = *productive = true;
        for (uint32_t i = 0; i < node->b; i++) {
            child = rf_node(program, rf_link(program, node->a + i));
            *nullable = *nullable && child->nullable;
            *productive = *productive && child->productive;
        }
        break;
    case RF_NODE_CHOICE:
        for (uint32_t i = 0; i < node->b; i++) {
            child = rf_node(program, rf_link(program, node->a + i));
            *nullable = *nullable || child->nullable;
            *productive = *productive || child->productive;
        }
        break;
    case RF_NODE_REPEAT:
        child = rf_node(program, node->a);
        *nullable = !node->b || child->nullable;
        *productive = !node->b || child->productive;
        break;
    case RF_NODE_RULE:
        child = rf_node(program, ((const struct rf_rule *)program->rules.data)[node->a].body);
        *nullable = child->nullable;
        *productive = child->productive;
        break;
    case RF_NODE_OBJECT: *productive = object_is_productive(program, rf_object(program, node->a)); break;
    }
}

rf_status rf_program_analyse(struct rf_program *program) {
    bool changed = true;
    uint64_t visits = 0;
    for (int pass = 0; changed; pass++) {
        visits += program->nodes.count + program->links.count;
        if (pass == PASSES_MAX || visits > VISITS_MAX)
            return rf_fail(RF_E_NO_MEMORY, "the grammar's rules are nested too deeply; make it simpler");
        changed = false;
        for (uint32_t i = 0; i < program->nodes.count; i++) {
            struct rf_node *node = rf_node(program, pass % 2 ? i : program->nodes.count - 1 - i);
            bool nullable = false, productive = false;
            rf_node_look(program, node, &nullable, &productive);
            nullable = nullable && productive;
            changed = changed || (nullable && !node->nullable) || (productive && !node->productive);
            node->nullable = node->nullable || nullable;
            node->productive = node->productive || productive;
        }
    }
    return RF_OK;
}

/* ---- objects: which names are left ---- */

static rf_status find_names(struct rf_program *program, struct rf_object *object) {
    RF_TRY(rf_list_add(program, &program->bits, NULL, object->bit_words, sizeof(uint32_t), &object->never));
    uint32_t *never = (uint32_t *)program->bits.data + object->never;
    for (uint32_t i = 0; i < object->name_count; i++)
        if (!rf_node(program, rf_link(program, object->values + i))->productive) never[i / 32] |= 1u << i % 32;
    return RF_OK;
}

/* A name of another kind leads nowhere where its value has no texts: 'open' is what is left. */
static void close_states(struct rf_program *program, const struct rf_object *object) {
    struct rf_dfa_state *states = program->states.data;
    bool changed = true;
    uint32_t first = object->keys, end = first + object->key_count;
    for (uint32_t i = first; i < end; i++) {
        uint32_t label = states[i].label;
        states[i].open =
            label > object->name_count &&
            rf_node(program, rf_link(program, object->open_values + label - 1 - object->name_count))->productive;
    }
    while (changed) {
        changed = false;
        for (uint32_t i = end; i-- > first;)
            for (uint32_t k = 0; k < states[i].edge_count && !states[i].open; k++)
                if (states[rf_edge(program, states[i].first_edge + k)->target].open) states[i].open = changed = true;
    }
}

/* ---- rules that begin with themselves ---- */

/* The n-th node that a text of this node may begin with; UINT32_MAX: no more. */
static uint32_t first_part(const struct rf_program *program, const struct rf_node *node, uint32_t n) {
    if (node->kind == RF_NODE_RULE && !n) return ((const struct rf_rule *)program->rules.data)[node->a].body;
    if (node->kind == RF_NODE_REPEAT && !n) return node->a;
    if (node->kind == RF_NODE_CHOICE && n < node->b) return rf_link(program, node->a + n);
    if (node->kind != RF_NODE_SEQUENCE || n >= node->b) return UINT32_MAX;
    return n && !rf_node(program, rf_link(program, node->a + n - 1))->nullable ? UINT32_MAX
                                                                               : rf_link(program, node->a + n);
}

struct visit {
    uint32_t node, next;
};
static rf_status refuse_recursion(const struct rf_program *program, const struct visit *path, size_t depth,
                                  const char *what) {
    /* the cycle is the end of the path; some node in it is a rule */
    uint32_t again = path[depth - 1].node;
    for (size_t i = depth; i-- > 0;) {
        const struct rf_node *node = rf_node(program, path[i].node);
        if (node->kind == RF_NODE_RULE) {
            const struct rf_rule *rule = (const struct rf_rule *)program->rules.data + node->a;
            const char *name = rf_program_bytes(program, rule->name);
            if (rule->line)
                return rf_fail(RF_E_UNSUPPORTED,
                               "%s: line %u: rule \"%s\" begins with itself (left recursion); write it as a "
                               "repetition",
                               what, rule->line, name);
            return rf_fail(RF_E_UNSUPPORTED, "%s: %s refers to itself without end", what, name);
        }
        if (path[i].node == again && i + 1 < depth) break;
    }
    return rf_fail(RF_E_UNSUPPORTED, "%s: a part begins with itself", what);
}

static rf_status find_recursion(struct rf_program *program, struct visit *path, uint8_t *colours, const char *what) {
    enum { NEW, OPEN, DONE };
    for (uint32_t start = 0; start < program->nodes.count; start++) {
        size_t depth = 0;
        if (colours[start] != NEW || !rf_node(program, start)->productive) continue;
        path[depth++] = (struct visit){start, 0};
        colours[start] = OPEN;
        while (depth) {
            struct visit *top = &path[depth - 1];
            uint32_t part = first_part(program, rf_node(program, top->node), top->next++);
            if (part == UINT32_MAX) {
                colours[top->node] = DONE;
                depth--;
            } else if (rf_node(program, part)->productive && colours[part] != DONE) {
                if (colours[part] == OPEN) {
                    path[depth++] = (struct visit){part, 0}; /* there is room: not all nodes are on the path */
                    return refuse_recursion(program, path, depth, what);
                }
                colours[part] = OPEN;
                path[depth++] = (struct visit){part, 0};
            }
        }
    }
    return RF_OK;
}

rf_status rf_program_finish(struct rf_program *program, const char *what) {
    RF_TRY(rf_program_analyse(program));
    if (!rf_node(program, program->root)->productive)
        return rf_fail(RF_E_INVALID, "%s: no text can follow it: its parts contradict each other, or never end",
                       what);
    for (uint32_t i = 0; i < program->objects.count; i++) {
        struct rf_object *object = (struct rf_object *)program->objects.data + i;
        RF_TRY(find_names(program, object));
        close_states(program, object);
    }
    struct rf_account account = rf_account_open(&program->account);
    struct visit *path = NULL;
    uint8_t *colours = NULL;
    uint64_t path_bytes = (program->nodes.count + 1ull) * sizeof *path;
    rf_status status = rf_account_resize(&account, (void **)&path, 0, path_bytes, "a grammar");
    if (!status) status = rf_account_resize(&account, (void **)&colours, 0, program->nodes.count, "a grammar");
    if (!status) {
        memset(colours, 0, program->nodes.count);
        status = find_recursion(program, path, colours, what);
    }
    free(path);
    free(colours);
    rf_account_close(&account);
    return status;
}
