/* Expressions of the tree become values.
 *
 * Invariant: each node that is evaluated costs a step and, while it lasts, a level (rf_run_steps, rf_run_enter). */
#include "template/template_impl.h"

static rf_status evaluate(struct rf_run *run, const struct rf_tpl_node *node, struct rf_tpl_value *out);

rf_status rf_tpl_evaluate(struct rf_run *run, const struct rf_tpl_node *node, struct rf_tpl_value *out) {
    RF_TRY(rf_run_steps(run, 1));
    if (node->kind == RF_NODE_CONST) {
        *out = node->value;
        return RF_OK;
    }
    if (node->kind == RF_NODE_NAME) return rf_tpl_lookup(run, node->name, out);
    RF_TRY(rf_run_enter(run));
    rf_status status = evaluate(run, node, out);
    rf_run_leave(run);
    return status;
}

static rf_status evaluate_list(struct rf_run *run, const struct rf_tpl_node *node, struct rf_tpl_value *out) {
    struct rf_tpl_list *list = rf_tpl_list_new(run, node->list.count);
    if (!list) return RF_E_NO_MEMORY;
    for (size_t i = 0; i < node->list.count; i++) {
        RF_TRY(rf_tpl_evaluate(run, node->list.items[i], &list->items[i]));
        list->count = i + 1;
    }
    *out = rf_tpl_of_list(list, node->kind == RF_NODE_TUPLE);
    return RF_OK;
}

static rf_status evaluate_dict(struct rf_run *run, const struct rf_tpl_node *node, struct rf_tpl_value *out) {
    struct rf_tpl_dict *dict = rf_tpl_dict_new(run);
    if (!dict) return RF_E_NO_MEMORY;
    for (size_t i = 0; i + 1 < node->list.count; i += 2) {
        struct rf_tpl_value key, value;
        RF_TRY(rf_tpl_evaluate(run, node->list.items[i], &key));
        RF_TRY(rf_tpl_evaluate(run, node->list.items[i + 1], &value));
        RF_TRY(rf_tpl_dict_set(run, dict, &key, &value));
    }
    *out = rf_tpl_of_dict(dict);
    return RF_OK;
}

static rf_status evaluate_slice(struct rf_run *run, const struct rf_tpl_node *node, struct rf_tpl_value *out) {
    struct rf_tpl_value of, bounds[3];
    RF_TRY(rf_tpl_evaluate(run, node->a, &of));
    for (size_t i = 0; i < 3; i++) {
        bounds[i] = rf_tpl_none();
        if (node->list.items[i]) RF_TRY(rf_tpl_evaluate(run, node->list.items[i], &bounds[i]));
    }
    return rf_tpl_slice(run, &of, bounds, out);
}

static rf_status evaluate_call(struct rf_run *run, const struct rf_tpl_node *node, struct rf_tpl_value *out) {
    struct rf_tpl_value callee;
    struct rf_tpl_call call;
    RF_TRY(rf_tpl_evaluate(run, node->a, &callee));
    RF_TRY(rf_tpl_call_args(run, node->args, &call));
    run->line = node->line;
    return rf_tpl_call_value(run, &callee, &call, out);
}

/* A filter or a test. */
static rf_status evaluate_builtin(struct rf_run *run, const struct rf_tpl_node *node, struct rf_tpl_value *out) {
    struct rf_tpl_value self;
    struct rf_tpl_call call;
    RF_TRY(rf_tpl_evaluate(run, node->a, &self));
    RF_TRY(rf_tpl_call_args(run, node->args, &call));
    run->line = node->line;
    if (!node->builtin)
        return rf_run_fail(run, "there is no %s \"%.*s\"", node->kind == RF_NODE_FILTER ? "filter" : "test",
                           (int)RF_MIN(node->name->length, (size_t)64), node->name->bytes);
    return rf_tpl_call_builtin(run, node->builtin, &self, &call, out);
}

static rf_status evaluate_binary(struct rf_run *run, const struct rf_tpl_node *node, struct rf_tpl_value *out) {
    struct rf_tpl_value a, b;
    RF_TRY(rf_tpl_evaluate(run, node->a, &a));
    RF_TRY(rf_tpl_evaluate(run, node->b, &b));
    run->line = node->line;
    return rf_tpl_binary(run, node->op, &a, &b, out);
}

static rf_status evaluate_concat(struct rf_run *run, const struct rf_tpl_node *node, struct rf_tpl_value *out) {
    struct rf_tpl_text *joined = NULL;
    for (size_t i = 0; i < node->list.count; i++) {
        struct rf_tpl_value value;
        struct rf_tpl_text *text = NULL;
        RF_TRY(rf_tpl_evaluate(run, node->list.items[i], &value));
        RF_TRY(rf_tpl_str(run, &value, &text));
        if (joined)
            RF_TRY(rf_tpl_text_join(run, joined, text, &joined));
        else
            joined = text;
    }
    if (joined->safe) { /* what ~ gives is a plain text */
        joined = rf_tpl_text_part(run, joined, 0, joined->length);
        if (!joined) return RF_E_NO_MEMORY;
        joined->safe = false;
    }
    *out = rf_tpl_of_text(joined);
    return RF_OK;
}

static rf_status evaluate_compare(struct rf_run *run, const struct rf_tpl_node *node, struct rf_tpl_value *out) {
    struct rf_tpl_value left, right;
    bool holds = true;
    RF_TRY(rf_tpl_evaluate(run, node->a, &left));
    for (size_t i = 0; holds && i < node->list.count; i++, left = right) {
        const struct rf_tpl_node *operand = node->list.items[i];
        RF_TRY(rf_tpl_evaluate(run, operand->a, &right));
        run->line = node->line;
        RF_TRY(rf_tpl_compare(run, operand->op, &left, &right, &holds));
    }
    *out = rf_tpl_bool(holds);
    return RF_OK;
}

static rf_status evaluate(struct rf_run *run, const struct rf_tpl_node *node, struct rf_tpl_value *out) {
    struct rf_tpl_value a, b;
    run->line = node->line;
    switch (node->kind) {
    case RF_NODE_LIST:
    case RF_NODE_TUPLE: return evaluate_list(run, node, out);
    case RF_NODE_DICT: return evaluate_dict(run, node, out);
    case RF_NODE_GETATTR:
        RF_TRY(rf_tpl_evaluate(run, node->a, &a));
        run->line = node->line;
        return rf_tpl_getattr(run, &a, node->name, out);
    case RF_NODE_GETITEM:
        RF_TRY(rf_tpl_evaluate(run, node->a, &a));
        RF_TRY(rf_tpl_evaluate(run, node->b, &b));
        run->line = node->line;
        return rf_tpl_getitem(run, &a, &b, out);
    case RF_NODE_SLICE: return evaluate_slice(run, node, out);
    case RF_NODE_CALL: return evaluate_call(run, node, out);
    case RF_NODE_FILTER:
    case RF_NODE_TEST: return evaluate_builtin(run, node, out);
    case RF_NODE_NOT:
        RF_TRY(rf_tpl_evaluate(run, node->a, &a));
        *out = rf_tpl_bool(!rf_tpl_truth(&a));
        return RF_OK;
    case RF_NODE_NEGATE:
    case RF_NODE_PLUS:
        RF_TRY(rf_tpl_evaluate(run, node->a, &a));
        return rf_tpl_negate(run, &a, node->kind == RF_NODE_NEGATE, out);
    case RF_NODE_BINARY: return evaluate_binary(run, node, out);
    case RF_NODE_AND:
    case RF_NODE_OR:
        RF_TRY(rf_tpl_evaluate(run, node->a, &a));
        if (rf_tpl_truth(&a) != (node->kind == RF_NODE_AND)) {
            *out = a;
            return RF_OK;
        }
        return rf_tpl_evaluate(run, node->b, out);
    case RF_NODE_CONCAT: return evaluate_concat(run, node, out);
    case RF_NODE_COMPARE: return evaluate_compare(run, node, out);
    case RF_NODE_COND:
        RF_TRY(rf_tpl_evaluate(run, node->a, &a));
        if (rf_tpl_truth(&a)) return rf_tpl_evaluate(run, node->b, out);
        if (node->c) return rf_tpl_evaluate(run, node->c, out);
        *out = rf_tpl_undefined();
        return RF_OK;
    default: return rf_run_fail(run, "this cannot be evaluated");
    }
}
