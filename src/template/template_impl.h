/* What the files of the chat templates' language share.
 *
 *   source   -> tokens (lexer.c) -> tree (parser.c, parse_expression.c; check.c looks at it as a whole)
 *   tree and variables -> text: statements (execute.c), expressions (evaluate.c), operators (operators.c),
 *   attributes and items (lookup.c), calls (call.c), filters, tests and methods (filters*.c, tests.c, methods*.c)
 *
 * The language is Jinja as python3-jinja2 3.1.2 has it, in its immutable sandbox; docs/chat.md has what differs.
 *
 * Invariants:
 *   1. a template's tree does not change once it is made; everything that a rendering changes hangs on struct rf_run
 *   2. all memory of a rendering is in its arena and is freed with it; nothing in it points to another rendering
 *   3. every recursion is bounded: in the source by RF_TPL_NESTING_MAX, in data by RF_TPL_DATA_DEPTH_MAX, while
 *      rendering by RF_TPL_DEPTH_MAX (rf_run_enter)
 *   4. each byte of a text has a mark: 1 for the template's own, 0 for what came from outside
 *
 * Threads: a template may be used by any number of threads; a rendering belongs to one. */
#ifndef RF_TEMPLATE_TEMPLATE_IMPL_H
#define RF_TEMPLATE_TEMPLATE_IMPL_H

#include <rocmforge/chat.h>

#include "base/json_read.h"
#include "template/arena.h"
#include "template/template.h"
#include "template/unicode_text.h"

/* ---- values ------------------------------------------------------------------------------------------------ */

enum rf_tpl_kind {
    RF_TPL_MISSING, /* no value: an argument that was not given */
    RF_TPL_UNDEFINED,
    RF_TPL_NONE,
    RF_TPL_BOOL,
    RF_TPL_INT,
    RF_TPL_FLOAT,
    RF_TPL_TEXT,
    RF_TPL_LIST,
    RF_TPL_TUPLE,
    RF_TPL_DICT,
    RF_TPL_VIEW, /* what keys(), values() and items() give */
    RF_TPL_RANGE,
    RF_TPL_ITERATOR, /* what map, select and others give: it can be gone through once */
    RF_TPL_NAMESPACE,
    RF_TPL_MACRO,
    RF_TPL_FUNCTION,
    RF_TPL_METHOD, /* of a value, bound to it */
    RF_TPL_LOOP,
    RF_TPL_CYCLER,
    RF_TPL_JOINER,
};

/* Bytes and their marks. Immutable; parts of it share its memory. */
struct rf_tpl_text {
    const char *bytes;        /* valid UTF-8 */
    const unsigned char *own; /* NULL: all are as 'mark' says */
    size_t length;            /* in bytes */
    struct rf_tpl_grow *grow; /* the buffer that it ends in, if more may be appended there; NULL: none */
    unsigned char mark;
    bool safe; /* marked as safe HTML (the filter safe): what is added to it is escaped */
};

struct rf_tpl_value {
    enum rf_tpl_kind kind;
    union {
        bool boolean;
        int64_t integer;
        double real;
        struct rf_tpl_text *text;
        struct rf_tpl_list *list; /* also of a tuple */
        struct rf_tpl_dict *dict; /* also of a namespace */
        struct rf_tpl_view *view;
        struct rf_tpl_range *range;
        struct rf_tpl_iterator *iterator;
        struct rf_tpl_macro *macro;
        const struct rf_tpl_builtin *function;
        struct rf_tpl_method *method;
        struct rf_tpl_loop *loop;
        struct rf_tpl_cycler *cycler;
        struct rf_tpl_joiner *joiner;
        const struct rf_tpl_undefined *undefined; /* NULL: nothing is known of it */
    };
};

struct rf_tpl_list {
    struct rf_tpl_value *items;
    size_t count, capacity;
    bool is_group; /* a tuple of groupby, whose items have names */
};

struct rf_tpl_entry {
    struct rf_tpl_value key, value;
    uint64_t hash;
};
/* In the order of insertion. */
struct rf_tpl_dict {
    struct rf_tpl_entry *entries;
    size_t count, capacity;
    uint32_t *slots; /* of entry numbers + 1; NULL: few entries, which are compared one by one */
    size_t slot_count;
};

enum rf_tpl_view_of { RF_TPL_KEYS, RF_TPL_VALUES, RF_TPL_ITEMS };
struct rf_tpl_view {
    struct rf_tpl_dict *dict;
    enum rf_tpl_view_of of;
};

struct rf_tpl_range {
    int64_t start, stop, step, count;
};

/* The items are computed when it is made; a failure on the way shows only when it is reached, as in Python. */
struct rf_tpl_iterator {
    struct rf_tpl_value *items;
    size_t count, at;
    rf_status failure; /* behind the last item; 0: none */
    const char *failure_text;
};

struct rf_tpl_undefined {
    const char *hint;               /* the whole sentence; NULL: made from the others */
    const char *owner;              /* the type of what has no such attribute; NULL: a variable's name */
    const struct rf_tpl_text *name; /* NULL: an item that is not a text */
};

struct rf_tpl_macro {
    const struct rf_tpl_node *node;
    struct rf_scope *scope; /* where it was made */
};

struct rf_tpl_method {
    struct rf_tpl_value self;
    const struct rf_tpl_builtin *builtin; /* NULL: known by name, but not supported */
    const char *name;
};

struct rf_tpl_cycler {
    struct rf_tpl_list *items;
    size_t at;
};

struct rf_tpl_joiner {
    struct rf_tpl_value separator;
    bool used;
};

/* Goes through anything that can be gone through. */
struct rf_tpl_iter {
    struct rf_tpl_value of;
    size_t at;
};

struct rf_tpl_loop {
    struct rf_tpl_iter iter;
    const struct rf_tpl_node *node; /* the for statement; its condition is asked for each item */
    struct rf_scope *scope;         /* around the statement */
    struct rf_tpl_list *rest;       /* the remaining items, once they were counted; NULL: not yet */
    size_t rest_at;
    int64_t index0, length;                           /* length: -1: not known yet */
    struct rf_tpl_value before, current, after, last; /* last: what changed() saw */
};

/* ---- the tree ---------------------------------------------------------------------------------------------- */

enum rf_tpl_node_kind {
    /* expressions */
    RF_NODE_CONST,
    RF_NODE_NAME,
    RF_NODE_LIST,
    RF_NODE_TUPLE,
    RF_NODE_DICT,    /* list: keys and values in turn */
    RF_NODE_GETATTR, /* a.name */
    RF_NODE_GETITEM, /* a[b] */
    RF_NODE_SLICE,   /* a[list[0]:list[1]:list[2]]; each may be NULL */
    RF_NODE_CALL,
    RF_NODE_FILTER, /* a|name(args); a: NULL for the body of a block */
    RF_NODE_TEST,
    RF_NODE_NOT,
    RF_NODE_NEGATE,
    RF_NODE_PLUS,
    RF_NODE_BINARY,
    RF_NODE_AND,
    RF_NODE_OR,
    RF_NODE_CONCAT,
    RF_NODE_COMPARE, /* a, then list of RF_NODE_OPERAND */
    RF_NODE_OPERAND, /* op, a */
    RF_NODE_COND,    /* b if a else c; c may be NULL */
    RF_NODE_NSREF,   /* target name.b's name */
    /* statements */
    RF_NODE_DATA,
    RF_NODE_PRINT,
    RF_NODE_IF,        /* a: test, list: body, b: the next elif, more: else */
    RF_NODE_FOR,       /* a: target, b: items, c: condition, list: body, more: else */
    RF_NODE_SET,       /* a: target, b: value */
    RF_NODE_SET_BLOCK, /* a: target, b: filter, list: body */
    RF_NODE_MACRO,     /* name, args: parameters and defaults, list: body */
    RF_NODE_FILTER_BLOCK,
    RF_NODE_GENERATION,
    RF_NODE_WITH, /* more: targets and values in turn, list: body */
    RF_NODE_BREAK,
    RF_NODE_CONTINUE,
};

enum rf_tpl_op {
    RF_OP_ADD,
    RF_OP_SUB,
    RF_OP_MUL,
    RF_OP_DIV,
    RF_OP_FLOORDIV,
    RF_OP_MOD,
    RF_OP_POW,
    RF_OP_EQ,
    RF_OP_NE,
    RF_OP_LT,
    RF_OP_LE,
    RF_OP_GT,
    RF_OP_GE,
    RF_OP_IN,
    RF_OP_NOT_IN,
};

struct rf_tpl_nodes {
    struct rf_tpl_node **items;
    size_t count, capacity;
};

struct rf_tpl_args {
    struct rf_tpl_nodes positional;
    struct rf_tpl_text **names; /* of the keyword arguments */
    struct rf_tpl_nodes named;
    size_t name_capacity;
    struct rf_tpl_node *star, *star_star; /* *a, **b; NULL: none */
};

struct rf_tpl_names {
    const struct rf_tpl_text **items;
    size_t count;
};

struct rf_tpl_node {
    enum rf_tpl_node_kind kind;
    enum rf_tpl_op op;
    uint32_t line, depth; /* depth: of the tree below, itself included */
    struct rf_tpl_node *a, *b, *c;
    struct rf_tpl_nodes list, more;
    struct rf_tpl_text *name;
    struct rf_tpl_value value;
    struct rf_tpl_args *args;
    const struct rf_tpl_builtin *builtin;  /* of a filter or a test; NULL: there is none of that name */
    bool takes_varargs, takes_kwargs;      /* a macro whose body uses these names */
    struct rf_tpl_names unset, unset_else; /* that begin undefined in its scope; in that of its else */
};

struct rf_chat_template {
    struct rf_arena arena;
    struct rf_runtime *runtime;
    char *source; /* as given, ended by zero */
    char *name;
    struct rf_tpl_nodes body;
    struct rf_tpl_names unset;
};

/* ---- reading the source ------------------------------------------------------------------------------------ */

enum rf_tpl_token_kind {
    RF_TOK_END,
    RF_TOK_DATA,
    RF_TOK_VARIABLE_BEGIN,
    RF_TOK_VARIABLE_END,
    RF_TOK_BLOCK_BEGIN,
    RF_TOK_BLOCK_END,
    RF_TOK_NAME,
    RF_TOK_STRING,
    RF_TOK_INTEGER,
    RF_TOK_FLOAT,
    RF_TOK_OPERATOR,
};
struct rf_tpl_token {
    enum rf_tpl_token_kind kind;
    uint32_t line;
    const char *text; /* as in the source; of a string: what it stands for */
    size_t length;
    int64_t integer;
    double real;
};
struct rf_tpl_tokens {
    struct rf_tpl_token *items;
    size_t count, capacity;
};
/* The tokens of a source, RF_TOK_END last. Their texts are in the arena. */
rf_status rf_tpl_lex(struct rf_arena *arena, const char *name, const char *source, size_t bytes,
                     struct rf_tpl_tokens *tokens);

struct rf_tpl_parser {
    struct rf_arena *arena;
    const char *name; /* of the template */
    const struct rf_tpl_token *tokens, *at;
    uint32_t depth;            /* of what is being read */
    uint32_t loops;            /* for statements around, within the same macro */
    struct rf_tpl_node *macro; /* the macro around; NULL: none */
};
rf_status rf_tpl_parse(struct rf_arena *arena, const char *name, const struct rf_tpl_tokens *tokens,
                       struct rf_tpl_nodes *body);
/* Filters and tests that do not exist; depth. (check.c) */
rf_status rf_tpl_check(const char *name, const struct rf_tpl_nodes *body);

/* Fills in which names begin undefined in each scope. (names.c) */
rf_status rf_tpl_find_unset(struct rf_arena *arena, const struct rf_tpl_nodes *body, struct rf_tpl_names *unset);

/* parse_expression.c; the flags as in jinja2 */
enum rf_tpl_expression { RF_TPL_WHOLE, RF_TPL_NO_CONDITION };
rf_status rf_tpl_parse_expression(struct rf_tpl_parser *parser, enum rf_tpl_expression how, struct rf_tpl_node **out);
rf_status rf_tpl_parse_tuple(struct rf_tpl_parser *parser, enum rf_tpl_expression how, struct rf_tpl_node **out);
rf_status rf_tpl_parse_target(struct rf_tpl_parser *parser, bool namespaces, struct rf_tpl_node **out);
/* filter: what is read is the first filter's name; else each begins with |. node: NULL: the body of a block. */
rf_status rf_tpl_parse_filters(struct rf_tpl_parser *parser, struct rf_tpl_node *node, bool name_first,
                               struct rf_tpl_node **out);

/* What both parts of the parser use. */
bool rf_tpl_is(const struct rf_tpl_parser *parser, const char *operator_text);
bool rf_tpl_is_name(const struct rf_tpl_parser *parser, const char *name);
bool rf_tpl_take(struct rf_tpl_parser *parser, const char *operator_text); /* steps over it if it is there */
bool rf_tpl_take_name(struct rf_tpl_parser *parser, const char *name);
rf_status rf_tpl_expect(struct rf_tpl_parser *parser, const char *operator_text);
rf_status rf_tpl_expect_name(struct rf_tpl_parser *parser, struct rf_tpl_text **out); /* any name */
rf_status rf_tpl_unexpected(const struct rf_tpl_parser *parser, const char *wanted);
rf_status rf_tpl_syntax(const struct rf_tpl_parser *parser, uint32_t line, const char *format, ...) RF_PRINTF(3, 4);
rf_status rf_tpl_deeper(struct rf_tpl_parser *parser); /* counts one level; the caller takes it back */
struct rf_tpl_node *rf_tpl_node(struct rf_tpl_parser *parser, enum rf_tpl_node_kind kind);
rf_status rf_tpl_nodes_add(struct rf_tpl_parser *parser, struct rf_tpl_nodes *nodes, struct rf_tpl_node *node);
/* The node's depth, from what hangs on it; RF_E_SYNTAX: too deep. */
rf_status rf_tpl_measure(struct rf_tpl_parser *parser, struct rf_tpl_node *node);

/* ---- rendering --------------------------------------------------------------------------------------------- */

struct rf_tpl_builder {
    char *bytes;
    unsigned char *own;
    size_t length, capacity;
};

struct rf_binding {
    const struct rf_tpl_text *name;
    struct rf_tpl_value value;
};
struct rf_scope {
    struct rf_scope *parent;
    struct rf_binding *items;
    size_t count, capacity;
    bool kept; /* a macro may still look into it: it is not used again */
};

struct rf_run_tree { /* of from_json */
    struct rf_run_tree *next;
    struct rf_json_tree tree;
};

enum rf_flow { RF_FLOW_ON, RF_FLOW_BREAK, RF_FLOW_CONTINUE };

struct rf_run {
    struct rf_arena arena;
    const struct rf_account *account; /* of the budget; NULL: none */
    const struct rf_chat_template *chat_template;
    struct rf_scope *scope;
    struct rf_tpl_dict *variables;
    struct rf_tpl_builder *out; /* where statements write */
    uint64_t steps;
    uint32_t depth, line;
    struct rf_run_tree *trees;
    int64_t now[6]; /* year, month, day, hour, minute, second */
};

rf_status rf_run_steps(struct rf_run *run, uint64_t steps); /* RF_E_NO_MEMORY: more than the limit */
rf_status rf_run_enter(struct rf_run *run);                 /* one level deeper; RF_E_NO_MEMORY: too deep */
static inline void rf_run_leave(struct rf_run *run) {
    run->depth--;
}
/* A failure of the template itself: a wrong type, an undefined value. RF_E_UNSUPPORTED. */
rf_status rf_run_fail(struct rf_run *run, const char *format, ...) RF_PRINTF(2, 3);
static inline bool rf_run_is_final(rf_status status) { /* limits and memory: never put off */
    return status == RF_E_NO_MEMORY;
}

rf_status rf_tpl_execute(struct rf_run *run, const struct rf_tpl_nodes *body, enum rf_flow *flow);
rf_status rf_tpl_assign(struct rf_run *run, const struct rf_tpl_node *target, const struct rf_tpl_value *value);
rf_status rf_scope_set(struct rf_run *run, struct rf_scope *scope, const struct rf_tpl_text *name,
                       const struct rf_tpl_value *value);
/* unset: names that begin undefined; NULL: none. NULL: RF_E_NO_MEMORY. */
struct rf_scope *rf_scope_push(struct rf_run *run, struct rf_scope *parent, const struct rf_tpl_names *unset);
rf_status rf_scope_clear(struct rf_run *run, struct rf_scope *scope, const struct rf_tpl_names *unset);
rf_status rf_loop_next(struct rf_run *run, struct rf_tpl_loop *loop, bool *found);
rf_status rf_loop_attribute(struct rf_run *run, struct rf_tpl_loop *loop, const struct rf_tpl_text *name, bool *found,
                            struct rf_tpl_value *out);

rf_status rf_tpl_evaluate(struct rf_run *run, const struct rf_tpl_node *node, struct rf_tpl_value *out);
rf_status rf_tpl_lookup(struct rf_run *run, const struct rf_tpl_text *name, struct rf_tpl_value *out);

/* ---- value.c: making and comparing ------------------------------------------------------------------------- */

static inline struct rf_tpl_value rf_tpl_none(void) {
    return (struct rf_tpl_value){.kind = RF_TPL_NONE};
}
static inline struct rf_tpl_value rf_tpl_bool(bool value) {
    return (struct rf_tpl_value){.kind = RF_TPL_BOOL, .boolean = value};
}
static inline struct rf_tpl_value rf_tpl_int(int64_t value) {
    return (struct rf_tpl_value){.kind = RF_TPL_INT, .integer = value};
}
static inline struct rf_tpl_value rf_tpl_float(double value) {
    return (struct rf_tpl_value){.kind = RF_TPL_FLOAT, .real = value};
}
static inline struct rf_tpl_value rf_tpl_undefined(void) {
    return (struct rf_tpl_value){.kind = RF_TPL_UNDEFINED};
}
static inline struct rf_tpl_value rf_tpl_of_text(struct rf_tpl_text *text) {
    return (struct rf_tpl_value){.kind = RF_TPL_TEXT, .text = text};
}
static inline struct rf_tpl_value rf_tpl_of_list(struct rf_tpl_list *list, bool tuple) {
    return (struct rf_tpl_value){.kind = tuple ? RF_TPL_TUPLE : RF_TPL_LIST, .list = list};
}
static inline struct rf_tpl_value rf_tpl_of_dict(struct rf_tpl_dict *dict) {
    return (struct rf_tpl_value){.kind = RF_TPL_DICT, .dict = dict};
}
static inline bool rf_tpl_is_integer(const struct rf_tpl_value *value) { /* as Python: a bool is one */
    return value->kind == RF_TPL_INT || value->kind == RF_TPL_BOOL;
}
static inline int64_t rf_tpl_integer(const struct rf_tpl_value *value) {
    return value->kind == RF_TPL_BOOL ? value->boolean : value->integer;
}
static inline bool rf_tpl_is_number(const struct rf_tpl_value *value) {
    return rf_tpl_is_integer(value) || value->kind == RF_TPL_FLOAT;
}
static inline double rf_tpl_real(const struct rf_tpl_value *value) {
    return value->kind == RF_TPL_FLOAT ? value->real : (double)rf_tpl_integer(value);
}

const char *rf_tpl_type_name(const struct rf_tpl_value *value); /* Python's name: "str" */
bool rf_tpl_truth(const struct rf_tpl_value *value);
rf_status rf_tpl_equal(struct rf_run *run, const struct rf_tpl_value *a, const struct rf_tpl_value *b, bool *equal);
rf_status rf_tpl_less(struct rf_run *run, const struct rf_tpl_value *a, const struct rf_tpl_value *b,
                      const char *operator_text, bool *less);
/* RF_E_UNSUPPORTED: has no length. */
rf_status rf_tpl_length(struct rf_run *run, const struct rf_tpl_value *value, int64_t *length);
bool rf_tpl_has_length(const struct rf_tpl_value *value);

struct rf_tpl_list *rf_tpl_list_new(struct rf_run *run, size_t capacity); /* NULL: RF_E_NO_MEMORY */
rf_status rf_tpl_list_add(struct rf_run *run, struct rf_tpl_list *list, const struct rf_tpl_value *value);
struct rf_tpl_dict *rf_tpl_dict_new(struct rf_run *run);
/* The key must be hashable, else RF_E_UNSUPPORTED. */
rf_status rf_tpl_dict_set(struct rf_run *run, struct rf_tpl_dict *dict, const struct rf_tpl_value *key,
                          const struct rf_tpl_value *value);
rf_status rf_tpl_dict_find(struct rf_run *run, const struct rf_tpl_dict *dict, const struct rf_tpl_value *key,
                           struct rf_tpl_value **found); /* *found: NULL: not there */
struct rf_tpl_value *rf_tpl_dict_get(const struct rf_tpl_dict *dict, const char *key, size_t bytes);
bool rf_tpl_is_hashable(const struct rf_tpl_value *value);

bool rf_tpl_is_iterable(const struct rf_tpl_value *value);
rf_status rf_tpl_iter_begin(struct rf_run *run, const struct rf_tpl_value *of, struct rf_tpl_iter *iter);
rf_status rf_tpl_iter_next(struct rf_run *run, struct rf_tpl_iter *iter, struct rf_tpl_value *out, bool *found);
rf_status rf_tpl_to_list(struct rf_run *run, const struct rf_tpl_value *from, struct rf_tpl_list **out);
rf_status rf_tpl_iterator_of(struct rf_run *run, struct rf_tpl_list *items, rf_status failure,
                             struct rf_tpl_value *out);
rf_status rf_tpl_contains(struct rf_run *run, const struct rf_tpl_value *container, const struct rf_tpl_value *item,
                          bool *inside);
/* Stable. keys: as many as items; both are put in order. */
rf_status rf_tpl_sort(struct rf_run *run, struct rf_tpl_value *items, struct rf_tpl_value *keys, size_t count,
                      bool reverse);

/* ---- text.c: texts ----------------------------------------------------------------------------------------- */

/* Borrows the bytes, which live as long as the rendering. NULL: RF_E_NO_MEMORY. */
struct rf_tpl_text *rf_tpl_text_of(struct rf_run *run, const char *bytes, size_t length, unsigned char mark);
struct rf_tpl_text *rf_tpl_text_part(struct rf_run *run, const struct rf_tpl_text *text, size_t from, size_t length);
rf_status rf_tpl_text_join(struct rf_run *run, struct rf_tpl_text *a, struct rf_tpl_text *b,
                           struct rf_tpl_text **out);
size_t rf_tpl_text_chars(const struct rf_tpl_text *text); /* its code points */
bool rf_tpl_text_is(const struct rf_tpl_text *text, const char *literal);
bool rf_tpl_text_equal(const struct rf_tpl_text *a, const struct rf_tpl_text *b);
/* Where part begins in text at or behind from; SIZE_MAX: nowhere. */
size_t rf_tpl_text_find(const struct rf_tpl_text *text, size_t from, const struct rf_tpl_text *part);
static inline unsigned char rf_tpl_own(const struct rf_tpl_text *text, size_t at) {
    return text->own ? text->own[at] : text->mark;
}

rf_status rf_tpl_build_room(struct rf_run *run, struct rf_tpl_builder *to, size_t more);
rf_status rf_tpl_build_bytes(struct rf_run *run, struct rf_tpl_builder *to, const char *bytes, size_t length,
                             unsigned char mark);
rf_status rf_tpl_build_part(struct rf_run *run, struct rf_tpl_builder *to, const struct rf_tpl_text *text,
                            size_t from, size_t length);
rf_status rf_tpl_build_code(struct rf_run *run, struct rf_tpl_builder *to, uint32_t code, unsigned char mark);
struct rf_tpl_text *rf_tpl_built(struct rf_run *run, const struct rf_tpl_builder *from); /* NULL: RF_E_NO_MEMORY */
/* & < > " ' as HTML has them, unless the text is safe. The result is safe. */
rf_status rf_tpl_escape(struct rf_run *run, struct rf_tpl_text *text, struct rf_tpl_text **out);

/* ---- to_text.c: str() and repr() --------------------------------------------------------------------------- */

rf_status rf_tpl_str(struct rf_run *run, const struct rf_tpl_value *value, struct rf_tpl_text **out);
rf_status rf_tpl_build_str(struct rf_run *run, struct rf_tpl_builder *to, const struct rf_tpl_value *value);
rf_status rf_tpl_build_repr(struct rf_run *run, struct rf_tpl_builder *to, const struct rf_tpl_value *value);
enum { RF_TPL_FLOAT_BYTES = 40 };
size_t rf_tpl_float_repr(double value, char out[RF_TPL_FLOAT_BYTES]); /* the shortest that gives the same number */
/* As float() reads a text: white space around it, underscores, inf, nan. */
bool rf_tpl_read_float(const char *text, size_t bytes, double *out);
/* As int() does, for this base (0: by its prefix). False: malformed or beyond 64 bits. */
bool rf_tpl_read_int(const char *text, size_t bytes, int base, int64_t *out);

/* ---- operators.c, lookup.c, call.c ------------------------------------------------------------------------- */

rf_status rf_tpl_binary(struct rf_run *run, enum rf_tpl_op op, const struct rf_tpl_value *a,
                        const struct rf_tpl_value *b, struct rf_tpl_value *out);
rf_status rf_tpl_compare(struct rf_run *run, enum rf_tpl_op op, const struct rf_tpl_value *a,
                         const struct rf_tpl_value *b, bool *out);
rf_status rf_tpl_negate(struct rf_run *run, const struct rf_tpl_value *a, bool negative, struct rf_tpl_value *out);

rf_status rf_tpl_getattr(struct rf_run *run, const struct rf_tpl_value *of, const struct rf_tpl_text *name,
                         struct rf_tpl_value *out);
rf_status rf_tpl_getitem(struct rf_run *run, const struct rf_tpl_value *of, const struct rf_tpl_value *item,
                         struct rf_tpl_value *out);
/* from, to, step: None where not given. */
rf_status rf_tpl_slice(struct rf_run *run, const struct rf_tpl_value *of, const struct rf_tpl_value bounds[3],
                       struct rf_tpl_value *out);
/* Python's attribute of this name, without items; *found false: there is none. */
rf_status rf_tpl_attribute(struct rf_run *run, const struct rf_tpl_value *of, const struct rf_tpl_text *name,
                           bool *found, struct rf_tpl_value *out);
/* Fails because an undefined value was used. */
rf_status rf_tpl_fail_undefined(struct rf_run *run, const struct rf_tpl_value *value);

/* What a call was given. */
struct rf_tpl_call {
    struct rf_tpl_value *args;
    size_t count;
    const struct rf_tpl_text **names;
    struct rf_tpl_value *named;
    size_t named_count;
};
enum { RF_TPL_PARAMS_MAX = 6 };
/* args: in the order of the parameters; RF_TPL_MISSING where not given. */
typedef rf_status (*rf_tpl_fn)(struct rf_run *run, const struct rf_tpl_value *self, const struct rf_tpl_value *args,
                               const struct rf_tpl_call *call, struct rf_tpl_value *out);
struct rf_tpl_builtin {
    const char *name;
    const char *params; /* "old new count"; "!" first: not by name; NULL: it reads the call itself */
    int required;
    rf_tpl_fn run;
};
rf_status rf_tpl_call_builtin(struct rf_run *run, const struct rf_tpl_builtin *builtin,
                              const struct rf_tpl_value *self, const struct rf_tpl_call *call,
                              struct rf_tpl_value *out);
rf_status rf_tpl_call_value(struct rf_run *run, const struct rf_tpl_value *callee, const struct rf_tpl_call *call,
                            struct rf_tpl_value *out);
rf_status rf_tpl_call_args(struct rf_run *run, const struct rf_tpl_args *args, struct rf_tpl_call *call);

const struct rf_tpl_builtin *rf_tpl_find_builtin(const struct rf_tpl_builtin *table, size_t count, const char *name,
                                                 size_t bytes);
const struct rf_tpl_builtin *rf_tpl_find_filter(const char *name, size_t bytes);        /* NULL: none */
const struct rf_tpl_builtin *rf_tpl_find_test(const char *name, size_t bytes);          /* NULL: none */
const struct rf_tpl_builtin *rf_tpl_find_global(const char *name, size_t bytes);        /* NULL: none */
const struct rf_tpl_builtin *rf_tpl_find_text_filter(const char *name, size_t bytes);   /* filters_text.c */
const struct rf_tpl_builtin *rf_tpl_find_number_filter(const char *name, size_t bytes); /* filters_number.c */
const struct rf_tpl_builtin *rf_tpl_find_text_method(const char *name, size_t bytes);
const struct rf_tpl_builtin *rf_tpl_find_other_method(const struct rf_tpl_value *of, const char *name, size_t bytes);

/* Arguments of built-in functions. */
rf_status rf_tpl_arg_int(struct rf_run *run, const struct rf_tpl_value *arg, int64_t otherwise, int64_t *out);
rf_status rf_tpl_arg_text(struct rf_run *run, const struct rf_tpl_value *arg, struct rf_tpl_text **out);

/* ---- what several filters and methods use ------------------------------------------------------------------ */

rf_status rf_tpl_text_upper(struct rf_run *run, const struct rf_tpl_text *text, struct rf_tpl_text **out);
rf_status rf_tpl_text_lower(struct rf_run *run, const struct rf_tpl_text *text, struct rf_tpl_text **out);
rf_status rf_tpl_text_capitalize(struct rf_run *run, const struct rf_tpl_text *text, struct rf_tpl_text **out);
/* which: 1 left, 2 right, 3 both. chars: NULL: white space. */
rf_status rf_tpl_text_strip(struct rf_run *run, const struct rf_tpl_text *text, const struct rf_tpl_text *chars,
                            int which, struct rf_tpl_text **out);
rf_status rf_tpl_text_replace(struct rf_run *run, const struct rf_tpl_text *text, const struct rf_tpl_text *old,
                              const struct rf_tpl_text *with, int64_t count, struct rf_tpl_text **out);
rf_status rf_tpl_text_lines(struct rf_run *run, const struct rf_tpl_text *text, bool keep_ends,
                            struct rf_tpl_list **out);
rf_status rf_tpl_text_pad(struct rf_run *run, const struct rf_tpl_text *text, int64_t width,
                          const struct rf_tpl_text *fill, char align, struct rf_tpl_text **out);
rf_status rf_tpl_percent(struct rf_run *run, const struct rf_tpl_text *format, const struct rf_tpl_value *args,
                         struct rf_tpl_value *out); /* "…" % args */
rf_status rf_tpl_format(struct rf_run *run, const struct rf_tpl_text *format, const struct rf_tpl_call *call,
                        struct rf_tpl_text **out); /* "…".format() */
/* A value as a format's specification wants it: ">10.2f". */
rf_status rf_tpl_format_value(struct rf_run *run, const struct rf_tpl_value *value, const char *spec, size_t bytes,
                              struct rf_tpl_builder *to);

struct rf_tpl_json_style {
    bool ensure_ascii, sort_keys, indented;
    const struct rf_tpl_text *indent, *item_separator, *key_separator;
};
rf_status rf_tpl_build_json(struct rf_run *run, struct rf_tpl_builder *to, const struct rf_tpl_value *value,
                            const struct rf_tpl_json_style *style);
/* Texts are borrowed from the tree. mark: of its texts. (data.c) */
rf_status rf_tpl_from_json(struct rf_run *run, const json_t *json, struct rf_tpl_value *out);
rf_status rf_tpl_strftime(struct rf_run *run, const struct rf_tpl_text *format, struct rf_tpl_text **out);
rf_status rf_tpl_read_now(const char *now, int64_t out[6]); /* NULL: the clock */

/* The variables of a rendering (data.c): reads and checks what the caller gave. */
rf_status rf_tpl_variables(struct rf_run *run, const struct rf_chat_params *params, bool arguments_as_text,
                           bool *has_calls);

#endif
