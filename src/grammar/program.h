/* A grammar as data: the one form that all notations are compiled to, and that matchers read.
 *
 * A program is a graph of nodes over bytes. A node stands for a set of texts; rules give nodes names, so that they
 * can contain themselves. Repetitions have bounds and are never written out. What needs more than that (patterns,
 * conjunctions) is compiled to a deterministic automaton here (dfa.c) and becomes one node. JSON objects are nodes of
 * their own kind: their members come in any order, each name once.
 *
 *   node      a set of texts
 *   rule      a node with a name
 *   link      a node's child, in one array for all nodes
 *   state     of an automaton; its edges are sorted by byte, and from each state a state with a label can be reached
 *   label     0: the text so far is not accepted; otherwise 1, or for the names of members which member it is
 *
 * Invariants: indices stay valid while a program grows; once rf_program_finish succeeded nothing changes any more;
 * from then on a node is "productive" where it has at least one text, and no other node is ever entered. */
#ifndef RF_GRAMMAR_PROGRAM_H
#define RF_GRAMMAR_PROGRAM_H

#include "base/base.h"

#define RF_NO_LIMIT UINT32_MAX

enum rf_node_kind {
    RF_NODE_EMPTY,    /* the empty text */
    RF_NODE_NEVER,    /* no text */
    RF_NODE_CLASS,    /* one byte. a: class */
    RF_NODE_LITERAL,  /* bytes. a: place in 'bytes', b: how many */
    RF_NODE_SEQUENCE, /* one child after the other. a: first link, b: how many */
    RF_NODE_CHOICE,   /* one of its children. a: first link, b: how many */
    RF_NODE_REPEAT,   /* a: child, b: least, c: most */
    RF_NODE_RULE,     /* a: rule */
    RF_NODE_DFA,      /* a: state at the beginning */
    RF_NODE_OBJECT    /* a JSON object. a: object */
};
struct rf_node {
    uint8_t kind;
    bool nullable, productive;
    uint32_t a, b, c;
};
struct rf_rule {
    uint32_t body;
    uint32_t name; /* place in 'bytes', a text with a zero byte at its end */
    uint32_t line; /* 0: unknown */
};
struct rf_byte_class {
    uint32_t bits[8];
};
struct rf_edge {
    uint8_t low, high;
    uint32_t target;
};
struct rf_dfa_state {
    uint32_t first_edge, edge_count, label;
    /* of the names of members: names [first_name, last_name) can follow; 'open': other names can */
    uint32_t first_name, last_name;
    bool open;
};
/* The members of an object: named ones, each at most once, in any order; and kinds of other names, any number.
 * Label 1 + i is name i; label 1 + name_count + k is a name of kind k. Bit sets have bit_words words in 'bits'. */
struct rf_object {
    uint32_t keys;        /* state at the beginning of a name; all states of names follow it */
    uint32_t key_count;   /* how many they are */
    uint32_t name_count;  /* sorted by bytes */
    uint32_t values;      /* first link of the names' values */
    uint32_t open_count;  /* kinds of other names */
    uint32_t open_values; /* first link of their values */
    uint32_t least, most; /* members */
    uint32_t required;    /* bit set */
    uint32_t never;       /* bit set of names that cannot have a value; made by rf_program_finish */
    uint32_t bit_words;
};

struct rf_list {
    void *data;
    uint32_t count, capacity;
};
struct rf_program {
    struct rf_account account;
    struct rf_list nodes, links, rules, classes, bytes, states, edges, objects, bits;
    uint32_t root;       /* node */
    uint32_t gap, colon; /* nodes: white space between the parts of JSON, and what follows a member's name */
};

static inline struct rf_node *rf_node(const struct rf_program *program, uint32_t index) {
    return (struct rf_node *)program->nodes.data + index;
}
static inline uint32_t rf_link(const struct rf_program *program, uint32_t index) {
    return ((const uint32_t *)program->links.data)[index];
}
static inline const struct rf_dfa_state *rf_dfa_state(const struct rf_program *program, uint32_t index) {
    return (const struct rf_dfa_state *)program->states.data + index;
}
static inline const struct rf_edge *rf_edge(const struct rf_program *program, uint32_t index) {
    return (const struct rf_edge *)program->edges.data + index;
}
static inline const struct rf_object *rf_object(const struct rf_program *program, uint32_t index) {
    return (const struct rf_object *)program->objects.data + index;
}
static inline const uint32_t *rf_bits(const struct rf_program *program, uint32_t index) {
    return (const uint32_t *)program->bits.data + index;
}
static inline const char *rf_program_bytes(const struct rf_program *program, uint32_t index) {
    return (const char *)program->bytes.data + index;
}

/* ---- building (program.c) ----
 * All set *out to an index. RF_E_NO_MEMORY: the budget, or RF_NODES_MAX. */
enum { RF_NODES_MAX = 4 << 20 };

void rf_program_init(struct rf_program *program, const struct rf_account *account);
void rf_program_destroy(struct rf_program *program);
/* Appends count elements; zeroed where data is NULL. *out: the first one's index; may be NULL. */
rf_status rf_list_add(struct rf_program *program, struct rf_list *list, const void *data, uint32_t count,
                      size_t element_bytes, uint32_t *out);
rf_status rf_add_node(struct rf_program *program, struct rf_node node, uint32_t *out);
rf_status rf_add_empty(struct rf_program *program, uint32_t *out);
rf_status rf_add_never(struct rf_program *program, uint32_t *out);
rf_status rf_add_class(struct rf_program *program, const struct rf_byte_class *bytes, uint32_t *out);
rf_status rf_add_range(struct rf_program *program, uint8_t low, uint8_t high, uint32_t *out);
rf_status rf_add_literal(struct rf_program *program, const char *text, size_t bytes, uint32_t *out);
rf_status rf_add_text(struct rf_program *program, const char *text, uint32_t *out);
rf_status rf_add_sequence(struct rf_program *program, const uint32_t *children, size_t count, uint32_t *out);
rf_status rf_add_choice(struct rf_program *program, const uint32_t *children, size_t count, uint32_t *out);
rf_status rf_add_repeat(struct rf_program *program, uint32_t child, uint32_t least, uint32_t most, uint32_t *out);
rf_status rf_add_optional(struct rf_program *program, uint32_t child, uint32_t *out);
/* A rule without a body yet (RF_NODE_NEVER), and the node that stands for it. */
rf_status rf_add_rule(struct rf_program *program, const char *name, size_t bytes, uint32_t line, uint32_t *rule,
                      uint32_t *out);
static inline void rf_rule_set(struct rf_program *program, uint32_t rule, uint32_t body) {
    ((struct rf_rule *)program->rules.data)[rule].body = body;
}

/* ---- finishing (analyse.c) ---- */

/* What a node's children say of it now; sets to true only. */
void rf_node_look(const struct rf_program *program, const struct rf_node *node, bool *nullable, bool *productive);

/* Which nodes have texts, and which have the empty text. */
rf_status rf_program_analyse(struct rf_program *program);
/* Analyses, and refuses what cannot be matched: RF_E_UNSUPPORTED for a rule that begins with itself, RF_E_INVALID for
 * a grammar without any text. what: names the grammar. */
rf_status rf_program_finish(struct rf_program *program, const char *what);

#endif
