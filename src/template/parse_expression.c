/* Expressions, by the grammar of jinja2's parser: condition, or, and, not, comparison, sum, ~, product, power, sign,
 * then what follows a value: attributes, items, calls, filters and tests.
 *
 * Invariant: as in parser.c; what recurses counts with rf_tpl_deeper. */
#include "template/template_impl.h"

static rf_status parse_condition(struct rf_tpl_parser *parser, struct rf_tpl_node **out);
static rf_status parse_or(struct rf_tpl_parser *parser, struct rf_tpl_node **out);
static rf_status parse_unary(struct rf_tpl_parser *parser, bool with_filters, struct rf_tpl_node **out);
static rf_status parse_primary(struct rf_tpl_parser *parser, struct rf_tpl_node **out);
static rf_status parse_postfix(struct rf_tpl_parser *parser, struct rf_tpl_node **node);

rf_status rf_tpl_parse_expression(struct rf_tpl_parser *parser, enum rf_tpl_expression how,
                                  struct rf_tpl_node **out) {
    RF_TRY(rf_tpl_deeper(parser));
    RF_TRY(how == RF_TPL_WHOLE ? parse_condition(parser, out) : parse_or(parser, out));
    parser->depth--;
    return RF_OK;
}

/* Puts a node above one or two others. */
static rf_status above(struct rf_tpl_parser *parser, enum rf_tpl_node_kind kind, enum rf_tpl_op op,
                       struct rf_tpl_node *a, struct rf_tpl_node *b, struct rf_tpl_node **out) {
    struct rf_tpl_node *node = rf_tpl_node(parser, kind);
    if (!node) return RF_E_NO_MEMORY;
    node->op = op;
    node->a = a;
    node->b = b;
    if (a) node->line = a->line;
    *out = node;
    return rf_tpl_measure(parser, node);
}

/* ---- tuples and targets ---- */

static bool is_tuple_end(const struct rf_tpl_parser *parser) {
    enum rf_tpl_token_kind kind = parser->at->kind;
    return kind == RF_TOK_VARIABLE_END || kind == RF_TOK_BLOCK_END || rf_tpl_is(parser, ")");
}

enum tuple_of { EXPRESSIONS, CONDITIONLESS, PRIMARIES };

/* end: the name that ends it too; NULL: none. in_brackets: it may be empty. */
static rf_status parse_items(struct rf_tpl_parser *parser, enum tuple_of of, const char *end, bool in_brackets,
                             struct rf_tpl_node **out) {
    struct rf_tpl_node *tuple = rf_tpl_node(parser, RF_NODE_TUPLE);
    bool is_tuple = false;
    if (!tuple) return RF_E_NO_MEMORY;
    for (;;) {
        struct rf_tpl_node *item = NULL;
        if (tuple->list.count) RF_TRY(rf_tpl_expect(parser, ","));
        if (is_tuple_end(parser) || (end && rf_tpl_is_name(parser, end))) break;
        if (of == PRIMARIES)
            RF_TRY(parse_primary(parser, &item));
        else
            RF_TRY(rf_tpl_parse_expression(parser, of == EXPRESSIONS ? RF_TPL_WHOLE : RF_TPL_NO_CONDITION, &item));
        RF_TRY(rf_tpl_nodes_add(parser, &tuple->list, item));
        if (!rf_tpl_is(parser, ",")) break;
        is_tuple = true;
    }
    if (!is_tuple && tuple->list.count) {
        *out = tuple->list.items[0];
        return RF_OK;
    }
    if (!is_tuple && !in_brackets) return rf_tpl_unexpected(parser, "an expression");
    *out = tuple;
    return rf_tpl_measure(parser, tuple);
}

rf_status rf_tpl_parse_tuple(struct rf_tpl_parser *parser, enum rf_tpl_expression how, struct rf_tpl_node **out) {
    return parse_items(parser, how == RF_TPL_WHOLE ? EXPRESSIONS : CONDITIONLESS,
                       how == RF_TPL_WHOLE ? NULL : "recursive", false, out);
}

static bool can_assign(const struct rf_tpl_node *node) {
    if (node->kind == RF_NODE_NAME) return true;
    if (node->kind != RF_NODE_TUPLE) return false;
    for (size_t i = 0; i < node->list.count; i++)
        if (!can_assign(node->list.items[i])) return false;
    return true;
}

rf_status rf_tpl_parse_target(struct rf_tpl_parser *parser, bool namespaces, struct rf_tpl_node **out) {
    const struct rf_tpl_token *first = parser->at;
    if (namespaces && first->kind == RF_TOK_NAME && first[1].kind == RF_TOK_OPERATOR && first[1].length == 1 &&
        first[1].text[0] == '.') {
        struct rf_tpl_node *node = rf_tpl_node(parser, RF_NODE_NSREF), *attribute;
        if (!node) return RF_E_NO_MEMORY;
        RF_TRY(rf_tpl_expect_name(parser, &node->name));
        parser->at++;
        attribute = rf_tpl_node(parser, RF_NODE_NAME);
        if (!attribute) return RF_E_NO_MEMORY;
        RF_TRY(rf_tpl_expect_name(parser, &attribute->name));
        node->b = attribute;
        *out = node;
        return RF_OK;
    }
    RF_TRY(parse_items(parser, PRIMARIES, "in", false, out));
    if (!can_assign(*out)) return rf_tpl_syntax(parser, first->line, "this cannot be assigned to");
    return RF_OK;
}

/* ---- operators ---- */

static rf_status parse_condition(struct rf_tpl_parser *parser, struct rf_tpl_node **out) {
    struct rf_tpl_node *value = NULL;
    RF_TRY(parse_or(parser, &value));
    while (rf_tpl_take_name(parser, "if")) {
        struct rf_tpl_node *test = NULL, *otherwise = NULL, *node = NULL;
        RF_TRY(parse_or(parser, &test));
        if (rf_tpl_take_name(parser, "else")) RF_TRY(rf_tpl_parse_expression(parser, RF_TPL_WHOLE, &otherwise));
        RF_TRY(above(parser, RF_NODE_COND, 0, test, value, &node));
        node->c = otherwise;
        RF_TRY(rf_tpl_measure(parser, node));
        value = node;
    }
    *out = value;
    return RF_OK;
}

static rf_status parse_power(struct rf_tpl_parser *parser, struct rf_tpl_node **out) {
    RF_TRY(parse_unary(parser, true, out));
    while (rf_tpl_take(parser, "**")) {
        struct rf_tpl_node *right = NULL;
        RF_TRY(parse_unary(parser, true, &right));
        RF_TRY(above(parser, RF_NODE_BINARY, RF_OP_POW, *out, right, out));
    }
    return RF_OK;
}

static rf_status parse_product(struct rf_tpl_parser *parser, struct rf_tpl_node **out) {
    RF_TRY(parse_power(parser, out));
    for (;;) {
        struct rf_tpl_node *right = NULL;
        enum rf_tpl_op op;
        if (rf_tpl_take(parser, "*"))
            op = RF_OP_MUL;
        else if (rf_tpl_take(parser, "/"))
            op = RF_OP_DIV;
        else if (rf_tpl_take(parser, "//"))
            op = RF_OP_FLOORDIV;
        else if (rf_tpl_take(parser, "%"))
            op = RF_OP_MOD;
        else
            return RF_OK;
        RF_TRY(parse_power(parser, &right));
        RF_TRY(above(parser, RF_NODE_BINARY, op, *out, right, out));
    }
}

static rf_status parse_concat(struct rf_tpl_parser *parser, struct rf_tpl_node **out) {
    struct rf_tpl_node *concat;
    RF_TRY(parse_product(parser, out));
    if (!rf_tpl_is(parser, "~")) return RF_OK;
    concat = rf_tpl_node(parser, RF_NODE_CONCAT);
    if (!concat) return RF_E_NO_MEMORY;
    RF_TRY(rf_tpl_nodes_add(parser, &concat->list, *out));
    while (rf_tpl_take(parser, "~")) {
        struct rf_tpl_node *right = NULL;
        RF_TRY(parse_product(parser, &right));
        RF_TRY(rf_tpl_nodes_add(parser, &concat->list, right));
    }
    *out = concat;
    return rf_tpl_measure(parser, concat);
}

static rf_status parse_sum(struct rf_tpl_parser *parser, struct rf_tpl_node **out) {
    RF_TRY(parse_concat(parser, out));
    for (;;) {
        struct rf_tpl_node *right = NULL;
        bool add = rf_tpl_take(parser, "+");
        if (!add && !rf_tpl_take(parser, "-")) return RF_OK;
        RF_TRY(parse_concat(parser, &right));
        RF_TRY(above(parser, RF_NODE_BINARY, add ? RF_OP_ADD : RF_OP_SUB, *out, right, out));
    }
}

static bool take_comparison(struct rf_tpl_parser *parser, enum rf_tpl_op *op) {
    static const struct {
        const char *text;
        enum rf_tpl_op op;
    } operators[] = {{"==", RF_OP_EQ}, {"!=", RF_OP_NE}, {"<", RF_OP_LT},
                     {"<=", RF_OP_LE}, {">", RF_OP_GT},  {">=", RF_OP_GE}};
    for (size_t i = 0; i < RF_COUNT(operators); i++) {
        *op = operators[i].op;
        if (rf_tpl_take(parser, operators[i].text)) return true;
    }
    *op = RF_OP_IN;
    if (rf_tpl_take_name(parser, "in")) return true;
    *op = RF_OP_NOT_IN;
    if (!rf_tpl_is_name(parser, "not")) return false;
    parser->at++;
    if (rf_tpl_take_name(parser, "in")) return true;
    parser->at--;
    return false;
}

static rf_status parse_comparison(struct rf_tpl_parser *parser, struct rf_tpl_node **out) {
    struct rf_tpl_node *compare = NULL;
    enum rf_tpl_op op;
    RF_TRY(parse_sum(parser, out));
    while (take_comparison(parser, &op)) {
        struct rf_tpl_node *right = NULL, *operand = NULL;
        if (!compare) RF_TRY(above(parser, RF_NODE_COMPARE, 0, *out, NULL, &compare));
        RF_TRY(parse_sum(parser, &right));
        RF_TRY(above(parser, RF_NODE_OPERAND, op, right, NULL, &operand));
        RF_TRY(rf_tpl_nodes_add(parser, &compare->list, operand));
    }
    if (!compare) return RF_OK;
    *out = compare;
    return rf_tpl_measure(parser, compare);
}

static rf_status parse_not(struct rf_tpl_parser *parser, struct rf_tpl_node **out) {
    struct rf_tpl_node *inner = NULL;
    if (!rf_tpl_take_name(parser, "not")) return parse_comparison(parser, out);
    RF_TRY(rf_tpl_deeper(parser));
    RF_TRY(parse_not(parser, &inner));
    parser->depth--;
    return above(parser, RF_NODE_NOT, 0, inner, NULL, out);
}

static rf_status parse_and(struct rf_tpl_parser *parser, struct rf_tpl_node **out) {
    RF_TRY(parse_not(parser, out));
    while (rf_tpl_take_name(parser, "and")) {
        struct rf_tpl_node *right = NULL;
        RF_TRY(parse_not(parser, &right));
        RF_TRY(above(parser, RF_NODE_AND, 0, *out, right, out));
    }
    return RF_OK;
}

static rf_status parse_or(struct rf_tpl_parser *parser, struct rf_tpl_node **out) {
    RF_TRY(parse_and(parser, out));
    while (rf_tpl_take_name(parser, "or")) {
        struct rf_tpl_node *right = NULL;
        RF_TRY(parse_and(parser, &right));
        RF_TRY(above(parser, RF_NODE_OR, 0, *out, right, out));
    }
    return RF_OK;
}

/* ---- what follows a value ---- */

static rf_status parse_call_args(struct rf_tpl_parser *parser, struct rf_tpl_args **out) {
    struct rf_tpl_args *args = RF_ARENA_NEW(parser->arena, struct rf_tpl_args);
    bool again = false;
    if (!args) return RF_E_NO_MEMORY;
    RF_TRY(rf_tpl_expect(parser, "("));
    while (!rf_tpl_is(parser, ")")) {
        struct rf_tpl_node *value = NULL;
        if (again) {
            RF_TRY(rf_tpl_expect(parser, ","));
            if (rf_tpl_is(parser, ")")) break;
        }
        again = true;
        uint32_t line = parser->at->line;
        if (rf_tpl_take(parser, "*")) {
            if (args->star || args->star_star) return rf_tpl_syntax(parser, line, "a second * in a call");
            RF_TRY(rf_tpl_parse_expression(parser, RF_TPL_WHOLE, &args->star));
        } else if (rf_tpl_take(parser, "**")) {
            if (args->star_star) return rf_tpl_syntax(parser, line, "a second ** in a call");
            RF_TRY(rf_tpl_parse_expression(parser, RF_TPL_WHOLE, &args->star_star));
        } else if (parser->at->kind == RF_TOK_NAME && parser->at[1].kind == RF_TOK_OPERATOR &&
                   parser->at[1].length == 1 && parser->at[1].text[0] == '=') {
            if (args->star_star) return rf_tpl_syntax(parser, line, "an argument behind **");
            if (args->named.count == args->name_capacity) {
                size_t capacity = args->name_capacity ? 2 * args->name_capacity : 4;
                args->names = rf_arena_regrow(parser->arena, args->names, args->named.count * sizeof *args->names,
                                              capacity * sizeof *args->names);
                if (!args->names) return RF_E_NO_MEMORY;
                args->name_capacity = capacity;
            }
            RF_TRY(rf_tpl_expect_name(parser, &args->names[args->named.count]));
            for (size_t i = 0; i < args->named.count; i++)
                if (rf_tpl_text_equal(args->names[i], args->names[args->named.count]))
                    return rf_tpl_syntax(parser, line, "an argument's name is repeated");
            parser->at++;
            RF_TRY(rf_tpl_parse_expression(parser, RF_TPL_WHOLE, &value));
            RF_TRY(rf_tpl_nodes_add(parser, &args->named, value));
        } else {
            if (args->star || args->star_star || args->named.count)
                return rf_tpl_syntax(parser, line, "an argument without a name follows one with a name");
            RF_TRY(rf_tpl_parse_expression(parser, RF_TPL_WHOLE, &value));
            RF_TRY(rf_tpl_nodes_add(parser, &args->positional, value));
        }
    }
    parser->at++;
    *out = args;
    return RF_OK;
}

static rf_status parse_call(struct rf_tpl_parser *parser, struct rf_tpl_node **node) {
    struct rf_tpl_node *call = rf_tpl_node(parser, RF_NODE_CALL);
    if (!call) return RF_E_NO_MEMORY;
    call->a = *node;
    RF_TRY(parse_call_args(parser, &call->args));
    *node = call;
    return rf_tpl_measure(parser, call);
}

/* One item of a subscript, or a slice. */
static rf_status parse_subscribed(struct rf_tpl_parser *parser, struct rf_tpl_node *node, struct rf_tpl_node **item) {
    struct rf_tpl_node *bounds[3] = {NULL, NULL, NULL};
    if (!rf_tpl_is(parser, ":")) {
        RF_TRY(rf_tpl_parse_expression(parser, RF_TPL_WHOLE, &bounds[0]));
        if (!rf_tpl_is(parser, ":")) {
            *item = bounds[0];
            return RF_OK;
        }
    }
    parser->at++;
    if (!rf_tpl_is(parser, ":") && !rf_tpl_is(parser, "]") && !rf_tpl_is(parser, ","))
        RF_TRY(rf_tpl_parse_expression(parser, RF_TPL_WHOLE, &bounds[1]));
    if (rf_tpl_take(parser, ":") && !rf_tpl_is(parser, "]") && !rf_tpl_is(parser, ","))
        RF_TRY(rf_tpl_parse_expression(parser, RF_TPL_WHOLE, &bounds[2]));
    for (size_t i = 0; i < 3; i++) RF_TRY(rf_tpl_nodes_add(parser, &node->list, bounds[i]));
    *item = NULL;
    return RF_OK;
}

static rf_status parse_subscript(struct rf_tpl_parser *parser, struct rf_tpl_node **node) {
    struct rf_tpl_node *subscript = rf_tpl_node(parser, RF_NODE_GETITEM), *item = NULL;
    if (!subscript) return RF_E_NO_MEMORY;
    subscript->a = *node;
    if (rf_tpl_take(parser, ".")) {
        if (parser->at->kind == RF_TOK_INTEGER) {
            RF_TRY(parse_primary(parser, &subscript->b));
        } else {
            subscript->kind = RF_NODE_GETATTR;
            RF_TRY(rf_tpl_expect_name(parser, &subscript->name));
        }
    } else {
        RF_TRY(rf_tpl_expect(parser, "["));
        if (rf_tpl_is(parser, "]")) return rf_tpl_unexpected(parser, "an expression");
        RF_TRY(parse_subscribed(parser, subscript, &item));
        if (!item) {
            subscript->kind = RF_NODE_SLICE;
            if (rf_tpl_is(parser, ",")) return rf_tpl_unexpected(parser, "\"]\"");
        } else if (rf_tpl_is(parser, ",")) {
            struct rf_tpl_node *tuple = rf_tpl_node(parser, RF_NODE_TUPLE);
            if (!tuple) return RF_E_NO_MEMORY;
            RF_TRY(rf_tpl_nodes_add(parser, &tuple->list, item));
            while (rf_tpl_take(parser, ",")) {
                RF_TRY(rf_tpl_parse_expression(parser, RF_TPL_WHOLE, &item));
                RF_TRY(rf_tpl_nodes_add(parser, &tuple->list, item));
            }
            RF_TRY(rf_tpl_measure(parser, tuple));
            item = tuple;
        }
        subscript->b = item;
        RF_TRY(rf_tpl_expect(parser, "]"));
    }
    *node = subscript;
    return rf_tpl_measure(parser, subscript);
}

static rf_status parse_postfix(struct rf_tpl_parser *parser, struct rf_tpl_node **node) {
    for (;;) {
        if (rf_tpl_is(parser, ".") || rf_tpl_is(parser, "["))
            RF_TRY(parse_subscript(parser, node));
        else if (rf_tpl_is(parser, "("))
            RF_TRY(parse_call(parser, node));
        else
            return RF_OK;
    }
}

/* The name of a filter or a test: names with points between them. */
static rf_status parse_dotted(struct rf_tpl_parser *parser, struct rf_tpl_text **out) {
    const struct rf_tpl_token *first = parser->at;
    struct rf_tpl_text *name = NULL, *part = NULL;
    RF_TRY(rf_tpl_expect_name(parser, &name));
    while (rf_tpl_take(parser, ".")) {
        RF_TRY(rf_tpl_expect_name(parser, &part));
        name->length = (size_t)(part->bytes + part->length - first->text);
    }
    *out = name;
    return RF_OK;
}

rf_status rf_tpl_parse_filters(struct rf_tpl_parser *parser, struct rf_tpl_node *node, bool name_first,
                               struct rf_tpl_node **out) {
    while (name_first || rf_tpl_take(parser, "|")) {
        struct rf_tpl_node *filter = rf_tpl_node(parser, RF_NODE_FILTER);
        if (!filter) return RF_E_NO_MEMORY;
        name_first = false;
        RF_TRY(parse_dotted(parser, &filter->name));
        filter->a = node;
        filter->builtin = rf_tpl_find_filter(filter->name->bytes, filter->name->length);
        if (rf_tpl_is(parser, "(")) RF_TRY(parse_call_args(parser, &filter->args));
        RF_TRY(rf_tpl_measure(parser, filter));
        node = filter;
    }
    *out = node;
    return RF_OK;
}

static rf_status parse_test(struct rf_tpl_parser *parser, struct rf_tpl_node **node) {
    struct rf_tpl_node *test = rf_tpl_node(parser, RF_NODE_TEST), *arg = NULL;
    if (!test) return RF_E_NO_MEMORY;
    bool negated = rf_tpl_take_name(parser, "not");
    test->a = *node;
    RF_TRY(parse_dotted(parser, &test->name));
    test->builtin = rf_tpl_find_test(test->name->bytes, test->name->length);
    enum rf_tpl_token_kind kind = parser->at->kind;
    if (rf_tpl_is(parser, "(")) {
        RF_TRY(parse_call_args(parser, &test->args));
    } else if ((kind == RF_TOK_NAME || kind == RF_TOK_STRING || kind == RF_TOK_INTEGER || kind == RF_TOK_FLOAT ||
                rf_tpl_is(parser, "[") || rf_tpl_is(parser, "{")) &&
               !rf_tpl_is_name(parser, "else") && !rf_tpl_is_name(parser, "or") && !rf_tpl_is_name(parser, "and")) {
        if (rf_tpl_is_name(parser, "is")) return rf_tpl_unexpected(parser, "no second test");
        RF_TRY(parse_primary(parser, &arg));
        RF_TRY(parse_postfix(parser, &arg));
        test->args = RF_ARENA_NEW(parser->arena, struct rf_tpl_args);
        if (!test->args) return RF_E_NO_MEMORY;
        RF_TRY(rf_tpl_nodes_add(parser, &test->args->positional, arg));
    }
    RF_TRY(rf_tpl_measure(parser, test));
    *node = test;
    return negated ? above(parser, RF_NODE_NOT, 0, test, NULL, node) : RF_OK;
}

static rf_status parse_unary(struct rf_tpl_parser *parser, bool with_filters, struct rf_tpl_node **out) {
    bool minus = rf_tpl_is(parser, "-");
    if (minus || rf_tpl_is(parser, "+")) {
        struct rf_tpl_node *inner = NULL;
        parser->at++;
        RF_TRY(rf_tpl_deeper(parser));
        RF_TRY(parse_unary(parser, false, &inner));
        parser->depth--;
        RF_TRY(above(parser, minus ? RF_NODE_NEGATE : RF_NODE_PLUS, 0, inner, NULL, out));
    } else {
        RF_TRY(parse_primary(parser, out));
    }
    RF_TRY(parse_postfix(parser, out));
    while (with_filters) {
        if (rf_tpl_is(parser, "|"))
            RF_TRY(rf_tpl_parse_filters(parser, *out, false, out));
        else if (rf_tpl_take_name(parser, "is"))
            RF_TRY(parse_test(parser, out));
        else if (rf_tpl_is(parser, "("))
            RF_TRY(parse_call(parser, out));
        else
            break;
    }
    return RF_OK;
}

/* ---- values ---- */

static rf_status parse_name(struct rf_tpl_parser *parser, struct rf_tpl_node *node) {
    static const struct {
        const char *name;
        enum rf_tpl_kind kind;
        bool value;
    } constants[] = {{"true", RF_TPL_BOOL, true},   {"True", RF_TPL_BOOL, true},  {"false", RF_TPL_BOOL, false},
                     {"False", RF_TPL_BOOL, false}, {"none", RF_TPL_NONE, false}, {"None", RF_TPL_NONE, false}};
    node->kind = RF_NODE_CONST;
    for (size_t i = 0; i < RF_COUNT(constants); i++) {
        if (!rf_tpl_take_name(parser, constants[i].name)) continue;
        node->value = constants[i].kind == RF_TPL_BOOL ? rf_tpl_bool(constants[i].value) : rf_tpl_none();
        return RF_OK;
    }
    node->kind = RF_NODE_NAME;
    if (parser->macro) {
        parser->macro->takes_varargs |= rf_tpl_is_name(parser, "varargs");
        parser->macro->takes_kwargs |= rf_tpl_is_name(parser, "kwargs");
    }
    return rf_tpl_expect_name(parser, &node->name);
}

/* Strings that follow one another are one. */
static rf_status parse_string(struct rf_tpl_parser *parser, struct rf_tpl_node *node) {
    const struct rf_tpl_token *first = parser->at;
    struct rf_tpl_text *text = RF_ARENA_NEW(parser->arena, struct rf_tpl_text);
    size_t length = 0;
    if (!text) return RF_E_NO_MEMORY;
    for (; parser->at->kind == RF_TOK_STRING; parser->at++) length += parser->at->length;
    const char *bytes = first->text;
    if (parser->at - first > 1) {
        char *joined = rf_arena_take_raw(parser->arena, length);
        if (!joined) return RF_E_NO_MEMORY;
        size_t at = 0;
        for (const struct rf_tpl_token *token = first; token < parser->at; token++) {
            memcpy(joined + at, token->text, token->length);
            at += token->length;
        }
        bytes = joined;
    }
    *text = (struct rf_tpl_text){.bytes = bytes, .length = length, .mark = 1};
    node->value = rf_tpl_of_text(text);
    return RF_OK;
}

static rf_status parse_list(struct rf_tpl_parser *parser, struct rf_tpl_node *node) {
    node->kind = RF_NODE_LIST;
    parser->at++;
    while (!rf_tpl_is(parser, "]")) {
        struct rf_tpl_node *item = NULL;
        if (node->list.count) RF_TRY(rf_tpl_expect(parser, ","));
        if (rf_tpl_is(parser, "]")) break;
        RF_TRY(rf_tpl_parse_expression(parser, RF_TPL_WHOLE, &item));
        RF_TRY(rf_tpl_nodes_add(parser, &node->list, item));
    }
    parser->at++;
    return rf_tpl_measure(parser, node);
}

static rf_status parse_dict(struct rf_tpl_parser *parser, struct rf_tpl_node *node) {
    node->kind = RF_NODE_DICT;
    parser->at++;
    while (!rf_tpl_is(parser, "}")) {
        struct rf_tpl_node *key = NULL, *value = NULL;
        if (node->list.count) RF_TRY(rf_tpl_expect(parser, ","));
        if (rf_tpl_is(parser, "}")) break;
        RF_TRY(rf_tpl_parse_expression(parser, RF_TPL_WHOLE, &key));
        RF_TRY(rf_tpl_expect(parser, ":"));
        RF_TRY(rf_tpl_parse_expression(parser, RF_TPL_WHOLE, &value));
        RF_TRY(rf_tpl_nodes_add(parser, &node->list, key));
        RF_TRY(rf_tpl_nodes_add(parser, &node->list, value));
    }
    parser->at++;
    return rf_tpl_measure(parser, node);
}

static rf_status parse_primary(struct rf_tpl_parser *parser, struct rf_tpl_node **out) {
    struct rf_tpl_node *node = rf_tpl_node(parser, RF_NODE_CONST);
    if (!node) return RF_E_NO_MEMORY;
    *out = node;
    switch (parser->at->kind) {
    case RF_TOK_NAME: return parse_name(parser, node);
    case RF_TOK_STRING: return parse_string(parser, node);
    case RF_TOK_INTEGER: node->value = rf_tpl_int(parser->at++->integer); return RF_OK;
    case RF_TOK_FLOAT: node->value = rf_tpl_float(parser->at++->real); return RF_OK;
    default: break;
    }
    if (rf_tpl_take(parser, "(")) {
        RF_TRY(rf_tpl_deeper(parser));
        RF_TRY(parse_items(parser, EXPRESSIONS, NULL, true, out));
        parser->depth--;
        return rf_tpl_expect(parser, ")");
    }
    if (rf_tpl_is(parser, "[")) return parse_list(parser, node);
    if (rf_tpl_is(parser, "{")) return parse_dict(parser, node);
    return rf_tpl_unexpected(parser, "an expression");
}
