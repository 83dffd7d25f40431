/* From tokens to the tree: statements. parse_expression.c has the expressions.
 *
 * Invariant: no level is opened without rf_tpl_deeper, so the parser's stack is bounded by RF_TPL_NESTING_MAX; a
 * node's depth is known when it is made (rf_tpl_measure), so that whoever walks the tree is bounded too. */
#include <stdio.h>

#include "template/template_impl.h"

static rf_status parse_body(struct rf_tpl_parser *parser, const char *const *ends, struct rf_tpl_nodes *body);

rf_status rf_tpl_parse(struct rf_arena *arena, const char *name, const struct rf_tpl_tokens *tokens,
                       struct rf_tpl_nodes *body) {
    struct rf_tpl_parser parser = {.arena = arena, .name = name, .tokens = tokens->items, .at = tokens->items};
    return parse_body(&parser, NULL, body);
}

/* ---- tools ---- */

rf_status rf_tpl_syntax(const struct rf_tpl_parser *parser, uint32_t line, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return rf_fail(RF_E_SYNTAX, "%s, line %u: %s", parser->name, line, text);
}

static bool token_is(const struct rf_tpl_token *token, enum rf_tpl_token_kind kind, const char *text) {
    return token->kind == kind && token->length == strlen(text) && memcmp(token->text, text, token->length) == 0;
}

bool rf_tpl_is(const struct rf_tpl_parser *parser, const char *operator_text) {
    return token_is(parser->at, RF_TOK_OPERATOR, operator_text);
}

bool rf_tpl_is_name(const struct rf_tpl_parser *parser, const char *name) {
    return token_is(parser->at, RF_TOK_NAME, name);
}

bool rf_tpl_take(struct rf_tpl_parser *parser, const char *operator_text) {
    bool is = rf_tpl_is(parser, operator_text);
    parser->at += is;
    return is;
}

bool rf_tpl_take_name(struct rf_tpl_parser *parser, const char *name) {
    bool is = rf_tpl_is_name(parser, name);
    parser->at += is;
    return is;
}

rf_status rf_tpl_unexpected(const struct rf_tpl_parser *parser, const char *wanted) {
    const struct rf_tpl_token *token = parser->at;
    char found[64];
    if (token->kind == RF_TOK_END)
        snprintf(found, sizeof found, "the end of the template");
    else if (token->kind == RF_TOK_DATA)
        snprintf(found, sizeof found, "text");
    else
        snprintf(found, sizeof found, "\"%.*s\"", (int)RF_MIN(token->length, (size_t)40), token->text);
    return rf_tpl_syntax(parser, token->line, "expected %s, found %s", wanted, found);
}

rf_status rf_tpl_expect(struct rf_tpl_parser *parser, const char *operator_text) {
    char wanted[16];
    if (rf_tpl_take(parser, operator_text)) return RF_OK;
    snprintf(wanted, sizeof wanted, "\"%s\"", operator_text);
    return rf_tpl_unexpected(parser, wanted);
}

rf_status rf_tpl_expect_name(struct rf_tpl_parser *parser, struct rf_tpl_text **out) {
    if (parser->at->kind != RF_TOK_NAME) return rf_tpl_unexpected(parser, "a name");
    struct rf_tpl_text *name = RF_ARENA_NEW(parser->arena, struct rf_tpl_text);
    if (!name) return RF_E_NO_MEMORY;
    *name = (struct rf_tpl_text){.bytes = parser->at->text, .length = parser->at->length, .mark = 1};
    parser->at++;
    *out = name;
    return RF_OK;
}

static rf_status expect_block_end(struct rf_tpl_parser *parser) {
    if (parser->at->kind != RF_TOK_BLOCK_END) return rf_tpl_unexpected(parser, "the end of the tag");
    parser->at++;
    return RF_OK;
}

rf_status rf_tpl_deeper(struct rf_tpl_parser *parser) {
    if (parser->depth >= RF_TPL_NESTING_MAX)
        return rf_tpl_syntax(parser, parser->at->line, "nested deeper than %d", RF_TPL_NESTING_MAX);
    parser->depth++;
    return RF_OK;
}

struct rf_tpl_node *rf_tpl_node(struct rf_tpl_parser *parser, enum rf_tpl_node_kind kind) {
    struct rf_tpl_node *node = RF_ARENA_NEW(parser->arena, struct rf_tpl_node);
    if (node) {
        node->kind = kind;
        node->line = parser->at->line;
        node->depth = 1;
    }
    return node;
}

rf_status rf_tpl_nodes_add(struct rf_tpl_parser *parser, struct rf_tpl_nodes *nodes, struct rf_tpl_node *node) {
    if (nodes->count == nodes->capacity) {
        size_t capacity = nodes->capacity ? 2 * nodes->capacity : 4;
        struct rf_tpl_node **grown =
            rf_arena_regrow(parser->arena, nodes->items, nodes->count * sizeof *grown, capacity * sizeof *grown);
        if (!grown) return RF_E_NO_MEMORY;
        nodes->items = grown;
        nodes->capacity = capacity;
    }
    nodes->items[nodes->count++] = node;
    return RF_OK;
}

static uint32_t deepest(const struct rf_tpl_nodes *nodes, uint32_t so_far) {
    for (size_t i = 0; i < nodes->count; i++)
        if (nodes->items[i] && nodes->items[i]->depth > so_far) so_far = nodes->items[i]->depth;
    return so_far;
}

rf_status rf_tpl_measure(struct rf_tpl_parser *parser, struct rf_tpl_node *node) {
    uint32_t depth = deepest(&node->more, deepest(&node->list, 0));
    const struct rf_tpl_node *others[5] = {node->a, node->b, node->c, NULL, NULL};
    if (node->args) {
        depth = deepest(&node->args->named, deepest(&node->args->positional, depth));
        others[3] = node->args->star;
        others[4] = node->args->star_star;
    }
    for (size_t i = 0; i < RF_COUNT(others); i++)
        if (others[i] && others[i]->depth > depth) depth = others[i]->depth;
    node->depth = depth + 1;
    if (node->kind == RF_NODE_IF && node->b) node->depth = depth; /* a chain of elif is gone through, not into */
    if (node->depth > 2 * RF_TPL_NESTING_MAX)
        return rf_tpl_syntax(parser, node->line, "nested deeper than %d", RF_TPL_NESTING_MAX);
    return RF_OK;
}

/* ---- statements: each is called behind its name ---- */

/* Ends with the position at the closing tag's name. */
static rf_status parse_statements(struct rf_tpl_parser *parser, const char *const *ends, struct rf_tpl_nodes *body) {
    RF_TRY(expect_block_end(parser));
    return parse_body(parser, ends, body);
}

static rf_status parse_whole_block(struct rf_tpl_parser *parser, const char *end, struct rf_tpl_nodes *body) {
    const char *const ends[] = {end, NULL};
    RF_TRY(parse_statements(parser, ends, body));
    parser->at++;
    return RF_OK;
}

static rf_status parse_if(struct rf_tpl_parser *parser, struct rf_tpl_node *node) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct rf_tpl_node *at = node;
    for (;;) {
        RF_TRY(rf_tpl_parse_tuple(parser, RF_TPL_NO_CONDITION, &at->a));
        RF_TRY(parse_statements(parser, ends, &at->list));
        if (!rf_tpl_take_name(parser, "elif")) break;
        struct rf_tpl_node *next = rf_tpl_node(parser, RF_NODE_IF);
        if (!next) return RF_E_NO_MEMORY;
        at->b = next;
        at = next;
    }
    if (rf_tpl_take_name(parser, "else"))
        RF_TRY(parse_whole_block(parser, "endif", &at->more));
    else
        parser->at++;
    uint32_t depth = 0;
    for (at = node; at; at = at->b) {
        struct rf_tpl_node alone = *at;
        alone.b = NULL;
        RF_TRY(rf_tpl_measure(parser, &alone));
        depth = RF_MAX(depth, alone.depth);
    }
    node->depth = depth;
    return RF_OK;
}

static rf_status parse_for(struct rf_tpl_parser *parser, struct rf_tpl_node *node) {
    static const char *const ends[] = {"endfor", "else", NULL};
    RF_TRY(rf_tpl_parse_target(parser, false, &node->a));
    if (!rf_tpl_take_name(parser, "in")) return rf_tpl_unexpected(parser, "\"in\"");
    RF_TRY(rf_tpl_parse_tuple(parser, RF_TPL_NO_CONDITION, &node->b));
    if (rf_tpl_take_name(parser, "if")) RF_TRY(rf_tpl_parse_expression(parser, RF_TPL_WHOLE, &node->c));
    if (rf_tpl_is_name(parser, "recursive"))
        return rf_fail(RF_E_UNSUPPORTED, "%s, line %u: recursive loops are not supported: use a macro", parser->name,
                       parser->at->line);
    parser->loops++;
    RF_TRY(parse_statements(parser, ends, &node->list));
    parser->loops--;
    if (rf_tpl_take_name(parser, "endfor")) return RF_OK;
    parser->at++;
    return parse_whole_block(parser, "endfor", &node->more);
}

static rf_status parse_set(struct rf_tpl_parser *parser, struct rf_tpl_node *node) {
    RF_TRY(rf_tpl_parse_target(parser, true, &node->a));
    if (rf_tpl_take(parser, "=")) return rf_tpl_parse_tuple(parser, RF_TPL_WHOLE, &node->b);
    node->kind = RF_NODE_SET_BLOCK;
    RF_TRY(rf_tpl_parse_filters(parser, NULL, false, &node->b));
    return parse_whole_block(parser, "endset", &node->list);
}

static rf_status parse_macro(struct rf_tpl_parser *parser, struct rf_tpl_node *node) {
    struct rf_tpl_node *around = parser->macro;
    uint32_t loops = parser->loops;
    RF_TRY(rf_tpl_expect_name(parser, &node->name));
    node->args = RF_ARENA_NEW(parser->arena, struct rf_tpl_args);
    if (!node->args) return RF_E_NO_MEMORY;
    RF_TRY(rf_tpl_expect(parser, "("));
    while (!rf_tpl_is(parser, ")")) {
        struct rf_tpl_node *param = rf_tpl_node(parser, RF_NODE_NAME), *otherwise = NULL;
        if (!param) return RF_E_NO_MEMORY;
        if (node->args->positional.count) RF_TRY(rf_tpl_expect(parser, ","));
        RF_TRY(rf_tpl_expect_name(parser, &param->name));
        if (rf_tpl_take(parser, "="))
            RF_TRY(rf_tpl_parse_expression(parser, RF_TPL_WHOLE, &otherwise));
        else if (node->args->named.count && node->args->named.items[node->args->named.count - 1])
            return rf_tpl_syntax(parser, param->line, "a parameter without a default follows one with a default");
        RF_TRY(rf_tpl_nodes_add(parser, &node->args->positional, param));
        RF_TRY(rf_tpl_nodes_add(parser, &node->args->named, otherwise)); /* NULL: none */
    }
    parser->at++;
    parser->macro = node;
    parser->loops = 0;
    RF_TRY(parse_whole_block(parser, "endmacro", &node->list));
    parser->loops = loops;
    parser->macro = around;
    return RF_OK;
}

static rf_status parse_filter_block(struct rf_tpl_parser *parser, struct rf_tpl_node *node) {
    RF_TRY(rf_tpl_parse_filters(parser, NULL, true, &node->b));
    return parse_whole_block(parser, "endfilter", &node->list);
}

static rf_status parse_generation(struct rf_tpl_parser *parser, struct rf_tpl_node *node) {
    uint32_t loops = parser->loops;
    parser->loops = 0; /* a break cannot leave it */
    RF_TRY(parse_whole_block(parser, "endgeneration", &node->list));
    parser->loops = loops;
    return RF_OK;
}

static rf_status parse_with(struct rf_tpl_parser *parser, struct rf_tpl_node *node) {
    while (parser->at->kind != RF_TOK_BLOCK_END) {
        struct rf_tpl_node *target = NULL, *value = NULL;
        if (node->more.count) RF_TRY(rf_tpl_expect(parser, ","));
        RF_TRY(rf_tpl_parse_target(parser, false, &target));
        RF_TRY(rf_tpl_expect(parser, "="));
        RF_TRY(rf_tpl_parse_expression(parser, RF_TPL_WHOLE, &value));
        RF_TRY(rf_tpl_nodes_add(parser, &node->more, target));
        RF_TRY(rf_tpl_nodes_add(parser, &node->more, value));
    }
    return parse_whole_block(parser, "endwith", &node->list);
}

static rf_status parse_print(struct rf_tpl_parser *parser, struct rf_tpl_node *node) {
    while (parser->at->kind != RF_TOK_BLOCK_END) {
        struct rf_tpl_node *value = NULL;
        if (node->list.count) RF_TRY(rf_tpl_expect(parser, ","));
        RF_TRY(rf_tpl_parse_expression(parser, RF_TPL_WHOLE, &value));
        RF_TRY(rf_tpl_nodes_add(parser, &node->list, value));
    }
    return RF_OK;
}

static rf_status parse_jump(struct rf_tpl_parser *parser, struct rf_tpl_node *node) {
    if (parser->loops) return RF_OK;
    return rf_tpl_syntax(parser, node->line, "\"%s\" outside a loop",
                         node->kind == RF_NODE_BREAK ? "break" : "continue");
}

static rf_status parse_statement(struct rf_tpl_parser *parser, struct rf_tpl_node **out) {
    static const struct {
        const char *name;
        enum rf_tpl_node_kind kind;
        rf_status (*parse)(struct rf_tpl_parser *parser, struct rf_tpl_node *node); /* NULL: not supported */
    } statements[] = {
        {"if", RF_NODE_IF, parse_if},
        {"for", RF_NODE_FOR, parse_for},
        {"set", RF_NODE_SET, parse_set},
        {"macro", RF_NODE_MACRO, parse_macro},
        {"filter", RF_NODE_FILTER_BLOCK, parse_filter_block},
        {"generation", RF_NODE_GENERATION, parse_generation},
        {"with", RF_NODE_WITH, parse_with},
        {"print", RF_NODE_PRINT, parse_print},
        {"break", RF_NODE_BREAK, parse_jump},
        {"continue", RF_NODE_CONTINUE, parse_jump},
        {"include", 0, NULL},
        {"import", 0, NULL},
        {"from", 0, NULL},
        {"extends", 0, NULL},
        {"block", 0, NULL},
        {"call", 0, NULL},
        {"autoescape", 0, NULL},
    };
    const struct rf_tpl_token *token = parser->at;
    if (token->kind != RF_TOK_NAME) return rf_tpl_unexpected(parser, "the name of a tag");
    for (size_t i = 0; i < RF_COUNT(statements); i++) {
        if (!rf_tpl_is_name(parser, statements[i].name)) continue;
        if (!statements[i].parse)
            return rf_fail(RF_E_UNSUPPORTED, "%s, line %u: the tag \"%s\" is not supported", parser->name,
                           token->line, statements[i].name);
        struct rf_tpl_node *node = rf_tpl_node(parser, statements[i].kind);
        if (!node) return RF_E_NO_MEMORY;
        parser->at++;
        RF_TRY(rf_tpl_deeper(parser));
        RF_TRY(statements[i].parse(parser, node));
        parser->depth--;
        if (node->kind != RF_NODE_IF) RF_TRY(rf_tpl_measure(parser, node));
        *out = node;
        return RF_OK;
    }
    return rf_tpl_syntax(parser, token->line, "there is no tag \"%.*s\"", (int)RF_MIN(token->length, (size_t)40),
                         token->text);
}

/* ---- what stands between tags ---- */

static bool is_end(const struct rf_tpl_parser *parser, const char *const *ends) {
    for (; ends && *ends; ends++)
        if (rf_tpl_is_name(parser, *ends)) return true;
    return false;
}

/* ends: the names of tags that end it; it stops at that name. NULL: the end of the source. */
static rf_status parse_body(struct rf_tpl_parser *parser, const char *const *ends, struct rf_tpl_nodes *body) {
    for (;;) {
        struct rf_tpl_node *node = NULL;
        const struct rf_tpl_token *token = parser->at;
        switch (token->kind) {
        case RF_TOK_END:
            if (!ends) return RF_OK;
            return rf_tpl_syntax(parser, token->line, "the template ends before the tag \"%s\"", *ends);
        case RF_TOK_DATA:
            node = rf_tpl_node(parser, RF_NODE_DATA);
            if (!node) return RF_E_NO_MEMORY;
            node->value = rf_tpl_of_text(RF_ARENA_NEW(parser->arena, struct rf_tpl_text));
            if (!node->value.text) return RF_E_NO_MEMORY;
            *node->value.text = (struct rf_tpl_text){.bytes = token->text, .length = token->length, .mark = 1};
            parser->at++;
            break;
        case RF_TOK_VARIABLE_BEGIN: {
            struct rf_tpl_node *value = NULL;
            parser->at++;
            node = rf_tpl_node(parser, RF_NODE_PRINT);
            if (!node) return RF_E_NO_MEMORY;
            RF_TRY(rf_tpl_parse_tuple(parser, RF_TPL_WHOLE, &value));
            RF_TRY(rf_tpl_nodes_add(parser, &node->list, value));
            RF_TRY(rf_tpl_measure(parser, node));
            if (parser->at->kind != RF_TOK_VARIABLE_END) return rf_tpl_unexpected(parser, "\"}}\"");
            parser->at++;
            break;
        }
        default:
            parser->at++;
            if (is_end(parser, ends)) return RF_OK;
            RF_TRY(parse_statement(parser, &node));
            RF_TRY(expect_block_end(parser));
        }
        RF_TRY(rf_tpl_nodes_add(parser, body, node));
    }
}
