/* Which names are unset where a scope begins, although a scope around it, or the conversation, has them: jinja2 knows
 * before it runs a template which names each scope sets. A name that a scope sets, and does not look up before that,
 * begins undefined there, also for the macros and loops inside that run before it is set. The exceptions: an outer
 * scope uses the name too, or only some branches of an if set it.
 *
 * Each scope is gone through once in the source's order, without the scopes inside, and then those. A branch of an if
 * is undone from a log, so that the time is bounded by the source's size times its depth.
 *
 * Invariant: between scopes no symbol is used or set; 'around' counts the open scopes that use it. */
#include "template/template_impl.h"

enum begins { LOOKED_UP, UNSET }; /* how a name that a scope uses begins */

struct state {
    bool used, set;
    enum begins begins;
};

struct symbol {
    const struct rf_tpl_text *name;
    uint64_t hash;
    uint32_t around;
    struct state state; /* in the scope that is being read */
    uint64_t stamp;     /* the branch or the if that met it last */
    uint32_t branches;  /* of that if: how many set it */
    bool was_set;       /* before that if */
};

struct change { /* in the log: what it was; in the results: what a branch made of it */
    uint32_t symbol;
    struct state state;
};

struct changes {
    struct change *items;
    size_t count, capacity;
};

struct names {
    struct rf_arena *arena;
    struct symbol *symbols;
    size_t count, capacity;
    uint32_t *slots; /* symbol numbers + 1 */
    size_t slot_count;
    struct changes log, results;
    uint64_t stamp;
};

static rf_status read_scope(struct names *names, const struct rf_tpl_node *node, const struct rf_tpl_nodes *body,
                            bool is_else, struct rf_tpl_names *unset);
static rf_status visit(struct names *names, const struct rf_tpl_node *node);

rf_status rf_tpl_find_unset(struct rf_arena *arena, const struct rf_tpl_nodes *body, struct rf_tpl_names *unset) {
    struct names names = {.arena = arena};
    return read_scope(&names, NULL, body, false, unset);
}

/* ---- symbols ---- */

static bool grow(struct rf_arena *arena, void **items, size_t count, size_t *capacity, size_t bytes) {
    if (count < *capacity) return true;
    size_t wanted = *capacity ? 2 * *capacity : 64;
    void *grown = rf_arena_regrow(arena, *items, count * bytes, wanted * bytes);
    if (!grown) return false;
    *items = grown;
    *capacity = wanted;
    return true;
}

static rf_status rehash(struct names *names) {
    size_t slot_count = 4 * names->capacity + 1;
    uint32_t *slots = rf_arena_take(names->arena, slot_count * sizeof *slots);
    if (!slots) return RF_E_NO_MEMORY;
    for (size_t i = 0; i < names->count; i++) {
        size_t slot = names->symbols[i].hash % slot_count;
        while (slots[slot]) slot = (slot + 1) % slot_count;
        slots[slot] = (uint32_t)i + 1;
    }
    names->slots = slots;
    names->slot_count = slot_count;
    return RF_OK;
}

static rf_status find(struct names *names, const struct rf_tpl_text *name, uint32_t *out) {
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < name->length; i++) hash = (hash ^ (unsigned char)name->bytes[i]) * UINT64_C(1099511628211);
    size_t slot = names->slot_count ? hash % names->slot_count : 0;
    for (; names->slot_count && names->slots[slot]; slot = (slot + 1) % names->slot_count) {
        const struct symbol *symbol = &names->symbols[names->slots[slot] - 1];
        if (symbol->hash != hash || !rf_tpl_text_equal(symbol->name, name)) continue;
        *out = names->slots[slot] - 1;
        return RF_OK;
    }
    size_t capacity = names->capacity;
    if (!grow(names->arena, (void **)&names->symbols, names->count, &names->capacity, sizeof *names->symbols))
        return RF_E_NO_MEMORY;
    names->symbols[names->count++] = (struct symbol){.name = name, .hash = hash};
    *out = (uint32_t)names->count - 1;
    if (capacity != names->capacity) return rehash(names);
    names->slots[slot] = (uint32_t)names->count;
    return RF_OK;
}

static rf_status note(struct names *names, struct changes *changes, uint32_t symbol) {
    if (!grow(names->arena, (void **)&changes->items, changes->count, &changes->capacity, sizeof *changes->items))
        return RF_E_NO_MEMORY;
    changes->items[changes->count++] = (struct change){symbol, names->symbols[symbol].state};
    return RF_OK;
}

static rf_status look_up(struct names *names, const struct rf_tpl_text *name) {
    uint32_t symbol;
    RF_TRY(find(names, name, &symbol));
    if (names->symbols[symbol].around || names->symbols[symbol].state.used) return RF_OK;
    RF_TRY(note(names, &names->log, symbol));
    names->symbols[symbol].state.used = true;
    names->symbols[symbol].state.begins = LOOKED_UP;
    return RF_OK;
}

static rf_status set_name(struct names *names, const struct rf_tpl_text *name, bool is_param) {
    uint32_t symbol;
    RF_TRY(find(names, name, &symbol));
    struct state *state = &names->symbols[symbol].state;
    if (state->set) return RF_OK;
    RF_TRY(note(names, &names->log, symbol));
    if (!state->used) state->begins = is_param || names->symbols[symbol].around ? LOOKED_UP : UNSET;
    state->used = state->set = true;
    return RF_OK;
}

static rf_status set_target(struct names *names, const struct rf_tpl_node *target, bool is_param) {
    if (target->kind == RF_NODE_NAME) return set_name(names, target->name, is_param);
    if (target->kind == RF_NODE_NSREF) return look_up(names, target->name);
    for (size_t i = 0; i < target->list.count; i++) RF_TRY(set_target(names, target->list.items[i], is_param));
    return RF_OK;
}

/* ---- one scope ---- */

static rf_status visit_all(struct names *names, const struct rf_tpl_nodes *nodes) {
    for (size_t i = 0; i < nodes->count; i++) RF_TRY(visit(names, nodes->items[i]));
    return RF_OK;
}

/* Keeps what a branch made of each symbol since mark as a result, and undoes it. */
static rf_status end_branch(struct names *names, size_t mark) {
    uint64_t stamp = ++names->stamp;
    while (names->log.count > mark) {
        struct change change = names->log.items[names->log.count - 1];
        struct symbol *symbol = &names->symbols[change.symbol];
        if (symbol->stamp != stamp) RF_TRY(note(names, &names->results, change.symbol));
        symbol->stamp = stamp;
        symbol->state = change.state;
        names->log.count--;
    }
    return RF_OK;
}

/* Takes over what the branches did: what not all three set (if, elif, else) is looked up. */
static rf_status merge_branches(struct names *names, size_t first) {
    uint64_t stamp = ++names->stamp;
    for (size_t i = first; i < names->results.count; i++) {
        struct symbol *symbol = &names->symbols[names->results.items[i].symbol];
        if (symbol->stamp != stamp) {
            symbol->branches = 0;
            symbol->was_set = symbol->state.set;
        }
        symbol->stamp = stamp;
        symbol->branches += names->results.items[i].state.set;
    }
    for (size_t i = first; i < names->results.count; i++) {
        const struct change result = names->results.items[i];
        struct symbol *symbol = &names->symbols[result.symbol];
        RF_TRY(note(names, &names->log, result.symbol));
        symbol->state.used |= result.state.used;
        symbol->state.set |= result.state.set;
        symbol->state.begins = result.state.begins;
        if (!symbol->was_set && symbol->branches && symbol->branches < 3) symbol->state.begins = LOOKED_UP;
    }
    names->results.count = first;
    return RF_OK;
}

/* with_rest: with its elif and else. An elif by itself is an if without them, as jinja2 has it. */
static rf_status visit_if(struct names *names, const struct rf_tpl_node *node, bool with_rest) {
    size_t first = names->results.count;
    RF_TRY(visit(names, node->a));
    size_t mark = names->log.count;
    RF_TRY(visit_all(names, &node->list));
    RF_TRY(end_branch(names, mark));
    if (with_rest) {
        const struct rf_tpl_node *last = node;
        for (; last->b; last = last->b) RF_TRY(visit_if(names, last->b, false)); /* all elif are one branch */
        RF_TRY(end_branch(names, mark));
        RF_TRY(visit_all(names, &last->more));
        RF_TRY(end_branch(names, mark));
    }
    return merge_branches(names, first);
}

static rf_status visit_args(struct names *names, const struct rf_tpl_args *args) {
    if (!args) return RF_OK;
    RF_TRY(visit_all(names, &args->positional));
    RF_TRY(visit_all(names, &args->named));
    RF_TRY(visit(names, args->star));
    return visit(names, args->star_star);
}

/* An expression or a statement, without the scopes inside. */
static rf_status visit(struct names *names, const struct rf_tpl_node *node) {
    if (!node) return RF_OK;
    switch (node->kind) {
    case RF_NODE_NAME: return look_up(names, node->name);
    case RF_NODE_IF: return visit_if(names, node, true);
    case RF_NODE_FOR: return visit(names, node->b);
    case RF_NODE_SET: RF_TRY(visit(names, node->b)); return set_target(names, node->a, false);
    case RF_NODE_SET_BLOCK: return set_target(names, node->a, false);
    case RF_NODE_MACRO: return set_name(names, node->name, false);
    case RF_NODE_GENERATION: return RF_OK;
    case RF_NODE_FILTER_BLOCK: return visit(names, node->b);
    case RF_NODE_WITH:
        for (size_t i = 1; i < node->more.count; i += 2) RF_TRY(visit(names, node->more.items[i]));
        return RF_OK;
    default: break;
    }
    RF_TRY(visit(names, node->a));
    RF_TRY(visit(names, node->b));
    RF_TRY(visit(names, node->c));
    RF_TRY(visit_all(names, &node->list));
    return visit_args(names, node->args);
}

/* The names that a scope has from its beginning. */
static rf_status visit_params(struct names *names, const struct rf_tpl_node *node, bool is_else) {
    static const struct rf_tpl_text loop = {.bytes = "loop", .length = 4};
    if (!node || is_else) return RF_OK;
    if (node->kind == RF_NODE_FOR) {
        RF_TRY(set_target(names, node->a, true));
        return set_name(names, &loop, true);
    }
    if (node->kind == RF_NODE_WITH)
        for (size_t i = 0; i < node->more.count; i += 2) RF_TRY(set_target(names, node->more.items[i], true));
    if (node->kind == RF_NODE_MACRO) {
        for (size_t i = 0; i < node->args->positional.count; i++)
            RF_TRY(set_target(names, node->args->positional.items[i], true));
        RF_TRY(visit_all(names, &node->args->named));
    }
    return RF_OK;
}

/* ---- the scopes inside ---- */

static rf_status read_inner(struct names *names, const struct rf_tpl_nodes *body) {
    for (size_t i = 0; i < body->count; i++) {
        struct rf_tpl_node *node = body->items[i];
        switch (node->kind) {
        case RF_NODE_IF:
            for (const struct rf_tpl_node *at = node; at; at = at->b) {
                RF_TRY(read_inner(names, &at->list));
                RF_TRY(read_inner(names, &at->more));
            }
            break;
        case RF_NODE_FOR: RF_TRY(read_scope(names, node, &node->more, true, &node->unset_else)); /* fall through */
        case RF_NODE_MACRO:
        case RF_NODE_SET_BLOCK:
        case RF_NODE_FILTER_BLOCK:
        case RF_NODE_GENERATION:
        case RF_NODE_WITH: RF_TRY(read_scope(names, node, &node->list, false, &node->unset)); break;
        default: break;
        }
    }
    return RF_OK;
}

static rf_status read_scope(struct names *names, const struct rf_tpl_node *node, const struct rf_tpl_nodes *body,
                            bool is_else, struct rf_tpl_names *unset) {
    RF_TRY(visit_params(names, node, is_else));
    RF_TRY(visit_all(names, body));
    if (node && node->kind == RF_NODE_FILTER_BLOCK) RF_TRY(visit(names, node->b));
    size_t count = 0, used = 0, unset_count = 0;
    uint64_t stamp = ++names->stamp;
    for (size_t i = 0; i < names->log.count; i++) { /* each symbol once */
        struct symbol *symbol = &names->symbols[names->log.items[i].symbol];
        if (symbol->stamp == stamp) continue;
        symbol->stamp = stamp;
        unset_count += symbol->state.used && symbol->state.begins == UNSET;
        names->log.items[count++] = names->log.items[i];
    }
    uint32_t *inside = rf_arena_take_raw(names->arena, count * sizeof *inside);
    unset->items = rf_arena_take(names->arena, unset_count * sizeof *unset->items);
    if (!inside || !unset->items) return RF_E_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        struct symbol *symbol = &names->symbols[names->log.items[i].symbol];
        if (symbol->state.used) inside[used++] = names->log.items[i].symbol;
        if (symbol->state.used && symbol->state.begins == UNSET) unset->items[unset->count++] = symbol->name;
        symbol->state = (struct state){0};
    }
    names->log.count = 0;
    for (size_t i = 0; i < used; i++) names->symbols[inside[i]].around++;
    RF_TRY(read_inner(names, body));
    for (size_t i = 0; i < used; i++) names->symbols[inside[i]].around--;
    return RF_OK;
}
