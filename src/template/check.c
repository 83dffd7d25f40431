/* Looks at a whole tree: a filter or test that does not exist is refused when the template is made, except where
 * jinja2 leaves it to the rendering: inside an if or a conditional expression, because a template may ask whether it
 * can be used before it uses it.
 *
 * Invariant: the depth of the tree is bounded (parser.c), and so is the recursion. */
#include "template/template_impl.h"

static rf_status check_node(const char *name, const struct rf_tpl_node *node, bool soft);

static rf_status check_nodes(const char *name, const struct rf_tpl_nodes *nodes, bool soft) {
    for (size_t i = 0; i < nodes->count; i++) RF_TRY(check_node(name, nodes->items[i], soft));
    return RF_OK;
}

rf_status rf_tpl_check(const char *name, const struct rf_tpl_nodes *body) {
    return check_nodes(name, body, false);
}

static rf_status check_node(const char *name, const struct rf_tpl_node *node, bool soft) {
    for (; node; node = node->kind == RF_NODE_IF ? node->b : NULL) {
        bool is_filter = node->kind == RF_NODE_FILTER;
        if ((is_filter || node->kind == RF_NODE_TEST) && !node->builtin && !soft)
            return rf_fail(RF_E_UNSUPPORTED, "%s, line %u: there is no %s \"%.*s\"", name, node->line,
                           is_filter ? "filter" : "test", (int)RF_MIN(node->name->length, (size_t)64),
                           node->name->bytes);
        bool inner = soft;
        switch (node->kind) {
        case RF_NODE_IF:
        case RF_NODE_COND: inner = true; break;
        case RF_NODE_FOR:
            RF_TRY(check_node(name, node->b, soft));
            RF_TRY(check_node(name, node->c, false));
            RF_TRY(check_nodes(name, &node->list, false));
            RF_TRY(check_nodes(name, &node->more, false));
            return RF_OK;
        case RF_NODE_MACRO:
        case RF_NODE_SET_BLOCK:
        case RF_NODE_FILTER_BLOCK:
        case RF_NODE_GENERATION:
        case RF_NODE_WITH: inner = false; break;
        default: break;
        }
        RF_TRY(check_node(name, node->a, inner));
        if (node->kind != RF_NODE_IF) RF_TRY(check_node(name, node->b, inner));
        RF_TRY(check_node(name, node->c, inner));
        RF_TRY(check_nodes(name, &node->list, inner));
        RF_TRY(check_nodes(name, &node->more, inner));
        if (node->args) {
            RF_TRY(check_nodes(name, &node->args->positional, inner));
            RF_TRY(check_nodes(name, &node->args->named, inner));
            RF_TRY(check_node(name, node->args->star, inner));
            RF_TRY(check_node(name, node->args->star_star, inner));
        }
    }
    return RF_OK;
}
