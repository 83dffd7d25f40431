/* Statements of the tree write to the output.
 *
 * Names are set in the innermost scope and looked for outwards. A loop's body, a macro's body and the blocks of set,
 * filter, with and generation have scopes of their own; the branches of an if do not.
 *
 * Invariant: run->scope and run->out are, when a function returns RF_OK, what they were when it was called. */
#include "template/template_impl.h"

/* ---- scopes ---- */

struct rf_scope *rf_scope_push(struct rf_run *run, struct rf_scope *parent, const struct rf_tpl_names *unset) {
    struct rf_scope *scope = RF_ARENA_NEW(&run->arena, struct rf_scope);
    if (!scope) return NULL;
    scope->parent = parent;
    return rf_scope_clear(run, scope, unset) ? NULL : scope;
}

rf_status rf_scope_clear(struct rf_run *run, struct rf_scope *scope, const struct rf_tpl_names *unset) {
    static const struct rf_tpl_value missing = {0};
    scope->count = 0;
    for (size_t i = 0; unset && i < unset->count; i++) RF_TRY(rf_scope_set(run, scope, unset->items[i], &missing));
    return RF_OK;
}

rf_status rf_scope_set(struct rf_run *run, struct rf_scope *scope, const struct rf_tpl_text *name,
                       const struct rf_tpl_value *value) {
    for (size_t i = 0; i < scope->count; i++) {
        if (!rf_tpl_text_equal(scope->items[i].name, name)) continue;
        scope->items[i].value = *value;
        return RF_OK;
    }
    if (scope->count == scope->capacity) {
        size_t capacity = scope->capacity ? 2 * scope->capacity : 4;
        struct rf_binding *grown =
            rf_arena_regrow(&run->arena, scope->items, scope->count * sizeof *grown, capacity * sizeof *grown);
        if (!grown) return RF_E_NO_MEMORY;
        scope->items = grown;
        scope->capacity = capacity;
    }
    scope->items[scope->count++] = (struct rf_binding){name, *value};
    return RF_OK;
}

static rf_status unpack(struct rf_run *run, const struct rf_tpl_node *targets, const struct rf_tpl_value *value) {
    struct rf_tpl_list *items = NULL;
    RF_TRY(rf_tpl_to_list(run, value, &items));
    if (items->count != targets->list.count)
        return rf_run_fail(run, "%zu values cannot be unpacked into %zu names", items->count, targets->list.count);
    RF_TRY(rf_run_enter(run));
    for (size_t i = 0; i < items->count; i++) RF_TRY(rf_tpl_assign(run, targets->list.items[i], &items->items[i]));
    rf_run_leave(run);
    return RF_OK;
}

rf_status rf_tpl_assign(struct rf_run *run, const struct rf_tpl_node *target, const struct rf_tpl_value *value) {
    struct rf_tpl_value to;
    run->line = target->line;
    if (target->kind == RF_NODE_NAME) return rf_scope_set(run, run->scope, target->name, value);
    if (target->kind == RF_NODE_TUPLE) return unpack(run, target, value);
    RF_TRY(rf_tpl_lookup(run, target->name, &to));
    if (to.kind != RF_TPL_NAMESPACE)
        return rf_run_fail(run, "an attribute can only be set on a namespace, and '%.*s' is none",
                           (int)RF_MIN(target->name->length, (size_t)64), target->name->bytes);
    struct rf_tpl_value name = rf_tpl_of_text(target->b->name);
    return rf_tpl_dict_set(run, to.dict, &name, value);
}

/* ---- blocks ---- */

/* Runs a body in a scope of its own. text: what it wrote; NULL: it goes to the output. */
static rf_status run_body(struct rf_run *run, const struct rf_tpl_nodes *body, const struct rf_tpl_names *unset,
                          enum rf_flow *flow, struct rf_tpl_text **text) {
    struct rf_scope *scope = run->scope;
    struct rf_tpl_builder *out = run->out, inner = {0};
    run->scope = rf_scope_push(run, scope, unset);
    if (!run->scope) return RF_E_NO_MEMORY;
    if (text) run->out = &inner;
    RF_TRY(rf_tpl_execute(run, body, flow));
    run->scope = scope;
    run->out = out;
    if (!text) return RF_OK;
    *text = rf_tpl_built(run, &inner);
    return *text ? RF_OK : RF_E_NO_MEMORY;
}

/* Applies a chain of filters, whose innermost one has no operand, to a value. */
static rf_status apply_filters(struct rf_run *run, const struct rf_tpl_node *filter, struct rf_tpl_value *value) {
    struct rf_tpl_call call;
    RF_TRY(rf_run_enter(run));
    if (filter->a) RF_TRY(apply_filters(run, filter->a, value));
    RF_TRY(rf_tpl_call_args(run, filter->args, &call));
    run->line = filter->line;
    if (!filter->builtin)
        return rf_run_fail(run, "there is no filter \"%.*s\"", (int)RF_MIN(filter->name->length, (size_t)64),
                           filter->name->bytes);
    struct rf_tpl_value self = *value;
    RF_TRY(rf_tpl_call_builtin(run, filter->builtin, &self, &call, value));
    rf_run_leave(run);
    return RF_OK;
}

static rf_status run_set_block(struct rf_run *run, const struct rf_tpl_node *node, enum rf_flow *flow) {
    struct rf_tpl_text *text = NULL;
    RF_TRY(run_body(run, &node->list, &node->unset, flow, &text));
    if (*flow != RF_FLOW_ON) return RF_OK;
    struct rf_tpl_value value = rf_tpl_of_text(text);
    if (node->b) RF_TRY(apply_filters(run, node->b, &value));
    return rf_tpl_assign(run, node->a, &value);
}

static rf_status run_filter_block(struct rf_run *run, const struct rf_tpl_node *node, enum rf_flow *flow) {
    struct rf_tpl_text *text = NULL;
    RF_TRY(run_body(run, &node->list, &node->unset, flow, &text));
    if (*flow != RF_FLOW_ON) return RF_OK;
    struct rf_tpl_value value = rf_tpl_of_text(text);
    RF_TRY(apply_filters(run, node->b, &value));
    return rf_tpl_build_str(run, run->out, &value);
}

static rf_status run_with(struct rf_run *run, const struct rf_tpl_node *node, enum rf_flow *flow) {
    struct rf_scope *outer = run->scope, *inner = rf_scope_push(run, outer, &node->unset);
    if (!inner) return RF_E_NO_MEMORY;
    for (size_t i = 0; i + 1 < node->more.count; i += 2) { /* the values are those of the scope around it */
        struct rf_tpl_value value;
        run->scope = outer;
        RF_TRY(rf_tpl_evaluate(run, node->more.items[i + 1], &value));
        run->scope = inner;
        RF_TRY(rf_tpl_assign(run, node->more.items[i], &value));
    }
    run->scope = inner;
    RF_TRY(rf_tpl_execute(run, &node->list, flow));
    run->scope = outer;
    return RF_OK;
}

static rf_status run_macro_statement(struct rf_run *run, const struct rf_tpl_node *node) {
    struct rf_tpl_macro *macro = RF_ARENA_NEW(&run->arena, struct rf_tpl_macro);
    if (!macro) return RF_E_NO_MEMORY;
    *macro = (struct rf_tpl_macro){node, run->scope};
    for (struct rf_scope *scope = run->scope; scope && !scope->kept; scope = scope->parent) scope->kept = true;
    struct rf_tpl_value value = {.kind = RF_TPL_MACRO, .macro = macro};
    return rf_scope_set(run, run->scope, node->name, &value);
}

/* ---- loops ---- */

static rf_status next_item(struct rf_run *run, struct rf_tpl_loop *loop, struct rf_tpl_value *item, bool *found) {
    if (loop->rest) {
        *found = loop->rest_at < loop->rest->count;
        if (*found) *item = loop->rest->items[loop->rest_at++];
        return RF_OK;
    }
    for (;;) {
        struct rf_tpl_value holds;
        RF_TRY(rf_tpl_iter_next(run, &loop->iter, item, found));
        if (!*found || !loop->node->c) return RF_OK;
        struct rf_scope *scope = run->scope;
        run->scope = rf_scope_push(run, loop->scope, NULL);
        if (!run->scope) return RF_E_NO_MEMORY;
        RF_TRY(rf_tpl_assign(run, loop->node->a, item));
        RF_TRY(rf_tpl_evaluate(run, loop->node->c, &holds));
        run->scope = scope;
        if (rf_tpl_truth(&holds)) return RF_OK;
    }
}

rf_status rf_loop_next(struct rf_run *run, struct rf_tpl_loop *loop, bool *found) {
    struct rf_tpl_value item;
    *found = true;
    if (loop->after.kind != RF_TPL_MISSING) {
        item = loop->after;
        loop->after = (struct rf_tpl_value){0};
    } else {
        RF_TRY(next_item(run, loop, &item, found));
        if (!*found) return RF_OK;
    }
    loop->index0++;
    loop->before = loop->current;
    loop->current = item;
    return RF_OK;
}

static rf_status peek(struct rf_run *run, struct rf_tpl_loop *loop, bool *found) {
    *found = true;
    if (loop->after.kind != RF_TPL_MISSING) return RF_OK;
    struct rf_tpl_value item;
    RF_TRY(next_item(run, loop, &item, found));
    if (*found) loop->after = item;
    return RF_OK;
}

static rf_status count_loop(struct rf_run *run, struct rf_tpl_loop *loop) {
    if (loop->length >= 0) return RF_OK;
    if (!loop->node->c && rf_tpl_has_length(&loop->iter.of)) return rf_tpl_length(run, &loop->iter.of, &loop->length);
    struct rf_tpl_list *rest = rf_tpl_list_new(run, 0);
    if (!rest) return RF_E_NO_MEMORY;
    for (;;) {
        struct rf_tpl_value item;
        bool found;
        RF_TRY(next_item(run, loop, &item, &found));
        if (!found) break;
        RF_TRY(rf_tpl_list_add(run, rest, &item));
    }
    loop->rest = rest;
    loop->length = (int64_t)rest->count + loop->index0 + 1 + (loop->after.kind != RF_TPL_MISSING);
    return RF_OK;
}

rf_status rf_loop_attribute(struct rf_run *run, struct rf_tpl_loop *loop, const struct rf_tpl_text *name, bool *found,
                            struct rf_tpl_value *out) {
    bool more;
    *found = true;
    if (rf_tpl_text_is(name, "index")) {
        *out = rf_tpl_int(loop->index0 + 1);
    } else if (rf_tpl_text_is(name, "index0")) {
        *out = rf_tpl_int(loop->index0);
    } else if (rf_tpl_text_is(name, "first")) {
        *out = rf_tpl_bool(loop->index0 == 0);
    } else if (rf_tpl_text_is(name, "last")) {
        RF_TRY(peek(run, loop, &more));
        *out = rf_tpl_bool(!more);
    } else if (rf_tpl_text_is(name, "previtem")) {
        *out = loop->index0 == 0 ? rf_tpl_undefined() : loop->before;
    } else if (rf_tpl_text_is(name, "nextitem")) {
        RF_TRY(peek(run, loop, &more));
        *out = more ? loop->after : rf_tpl_undefined();
    } else if (rf_tpl_text_is(name, "length") || rf_tpl_text_is(name, "revindex") ||
               rf_tpl_text_is(name, "revindex0")) {
        RF_TRY(count_loop(run, loop));
        int64_t less = name->bytes[0] == 'l' ? 0 : name->length == 8 ? loop->index0 : loop->index0 + 1;
        *out = rf_tpl_int(loop->length - less);
    } else if (rf_tpl_text_is(name, "depth")) {
        *out = rf_tpl_int(1);
    } else if (rf_tpl_text_is(name, "depth0")) {
        *out = rf_tpl_int(0);
    } else {
        *found = false;
    }
    return RF_OK;
}

static rf_status run_for(struct rf_run *run, const struct rf_tpl_node *node, enum rf_flow *flow) {
    static const struct rf_tpl_text loop_name = {.bytes = "loop", .length = 4};
    struct rf_tpl_value items, self;
    struct rf_scope *outer = run->scope, *scope = NULL;
    bool completed = false; /* an iteration ended by itself: as in jinja2, only then is else left out */
    RF_TRY(rf_tpl_evaluate(run, node->b, &items));
    struct rf_tpl_loop *loop = RF_ARENA_NEW(&run->arena, struct rf_tpl_loop);
    if (!loop) return RF_E_NO_MEMORY;
    run->line = node->line;
    *loop = (struct rf_tpl_loop){.node = node, .scope = outer, .index0 = -1, .length = -1};
    RF_TRY(rf_tpl_iter_begin(run, &items, &loop->iter));
    self = (struct rf_tpl_value){.kind = RF_TPL_LOOP, .loop = loop};
    for (bool found = true; *flow != RF_FLOW_BREAK;) {
        RF_TRY(rf_loop_next(run, loop, &found));
        if (!found) break;
        if (!scope || scope->kept)
            scope = rf_scope_push(run, outer, &node->unset);
        else
            RF_TRY(rf_scope_clear(run, scope, &node->unset));
        if (!scope) return RF_E_NO_MEMORY;
        run->scope = scope;
        RF_TRY(rf_tpl_assign(run, node->a, &loop->current));
        RF_TRY(rf_scope_set(run, scope, &loop_name, &self));
        RF_TRY(rf_tpl_execute(run, &node->list, flow));
        run->scope = outer;
        completed |= *flow == RF_FLOW_ON;
        if (*flow == RF_FLOW_CONTINUE) *flow = RF_FLOW_ON;
    }
    *flow = RF_FLOW_ON;
    return !completed && node->more.count ? run_body(run, &node->more, &node->unset_else, flow, NULL) : RF_OK;
}

/* ---- statements ---- */

static rf_status run_print(struct rf_run *run, const struct rf_tpl_node *node) {
    for (size_t i = 0; i < node->list.count; i++) {
        struct rf_tpl_value value;
        RF_TRY(rf_tpl_evaluate(run, node->list.items[i], &value));
        RF_TRY(rf_tpl_build_str(run, run->out, &value));
    }
    return RF_OK;
}

static rf_status run_if(struct rf_run *run, const struct rf_tpl_node *node, enum rf_flow *flow) {
    for (;; node = node->b) {
        struct rf_tpl_value holds;
        RF_TRY(rf_tpl_evaluate(run, node->a, &holds));
        if (rf_tpl_truth(&holds)) return rf_tpl_execute(run, &node->list, flow);
        if (!node->b) return rf_tpl_execute(run, &node->more, flow);
    }
}

static rf_status run_statement(struct rf_run *run, const struct rf_tpl_node *node, enum rf_flow *flow) {
    struct rf_tpl_value value;
    run->line = node->line;
    switch (node->kind) {
    case RF_NODE_DATA: return rf_tpl_build_part(run, run->out, node->value.text, 0, node->value.text->length);
    case RF_NODE_PRINT: return run_print(run, node);
    case RF_NODE_IF: return run_if(run, node, flow);
    case RF_NODE_FOR: return run_for(run, node, flow);
    case RF_NODE_SET: RF_TRY(rf_tpl_evaluate(run, node->b, &value)); return rf_tpl_assign(run, node->a, &value);
    case RF_NODE_SET_BLOCK: return run_set_block(run, node, flow);
    case RF_NODE_FILTER_BLOCK: return run_filter_block(run, node, flow);
    case RF_NODE_MACRO: return run_macro_statement(run, node);
    case RF_NODE_GENERATION: return run_body(run, &node->list, &node->unset, flow, NULL);
    case RF_NODE_WITH: return run_with(run, node, flow);
    case RF_NODE_BREAK: *flow = RF_FLOW_BREAK; return RF_OK;
    case RF_NODE_CONTINUE: *flow = RF_FLOW_CONTINUE; return RF_OK;
    default: return rf_run_fail(run, "this cannot be executed");
    }
}

rf_status rf_tpl_execute(struct rf_run *run, const struct rf_tpl_nodes *body, enum rf_flow *flow) {
    RF_TRY(rf_run_enter(run));
    for (size_t i = 0; i < body->count && *flow == RF_FLOW_ON; i++) {
        RF_TRY(rf_run_steps(run, 1));
        RF_TRY(run_statement(run, body->items[i], flow));
    }
    rf_run_leave(run);
    return RF_OK;
}
