/* What a conjunction allows, type by type, as nodes (see schema_impl.h): strings and arrays here, numbers and objects
 * in files of their own. */
#include <stdlib.h>

#include "grammar/dfa.h"
#include "grammar/schema_impl.h"

/* ---- strings ---- */

rf_status rf_emit_string_body(struct rf_schema *schema, const struct rf_facts *facts, bool spelt, uint32_t *out) {
    uint32_t nodes[RF_PATTERNS_MAX + 1];
    size_t count = facts->pattern_count;
    bool bounded = facts->shortest || facts->longest != RF_NO_LIMIT;
    if (!count)
        return rf_add_repeat(schema->program, spelt ? schema->json.plain : schema->json.character, facts->shortest,
                             facts->longest, out);
    memcpy(nodes, facts->patterns, count * sizeof *nodes);
    if (count == 1 && !bounded && rf_node(schema->program, nodes[0])->kind == RF_NODE_LITERAL) {
        *out = nodes[0];
        return RF_OK;
    }
    if (bounded)
        RF_TRY(rf_add_repeat(schema->program, schema->json.plain, facts->shortest, facts->longest, &nodes[count++]));
    struct rf_dfa_params params = {.nodes = nodes, .count = count, .what = "pattern"};
    rf_status status = rf_add_dfa(schema->program, &params, out);
    if (status != RF_E_NO_MEMORY) return status;
    struct rf_saved_error saved;
    rf_error_save(&saved);
    return rf_schema_fail(schema, status, rf_member(schema, facts->ids[0])->place, "%.300s", saved.text);
}

static rf_status emit_string(struct rf_schema *schema, const struct rf_facts *facts, uint32_t *out) {
    uint32_t body, quote = schema->json.quote;
    RF_TRY(rf_emit_string_body(schema, facts, false, &body));
    return rf_add_sequence(schema->program, (uint32_t[]){quote, body, quote}, 3, out);
}

/* ---- arrays ---- */

/* The schema that a member has for the item with this number; NULL: none. */
static const json_t *item_schema(const struct rf_member *member, size_t number, const char **keyword) {
    if (member->is_constant) return json_array_get(member->schema, number);
    const json_t *prefix = json_object_get(member->schema, "prefixItems");
    const json_t *items = json_object_get(member->schema, "items");
    *keyword = "prefixItems";
    if (prefix && number < json_array_size(prefix)) return json_array_get(prefix, number);
    *keyword = "items";
    if (!json_is_array(items)) return items;
    if (number < json_array_size(items)) return json_array_get(items, number); /* as drafts before 2020-12 have it */
    *keyword = "additionalItems";
    return json_object_get(member->schema, "additionalItems");
}

static size_t prefix_size(const struct rf_member *member) {
    if (member->is_constant) return json_array_size(member->schema);
    size_t prefix = json_array_size(json_object_get(member->schema, "prefixItems"));
    return RF_MAX(prefix, json_array_size(json_object_get(member->schema, "items")));
}

static rf_status item_node(struct rf_schema *schema, const struct rf_facts *facts, size_t number, uint32_t *out) {
    uint32_t ids[RF_MEMBERS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < facts->count; i++) {
        const struct rf_member member = *rf_member(schema, facts->ids[i]);
        const char *keyword = "const";
        const json_t *item =
            json_is_boolean(member.schema) && !member.is_constant ? NULL : item_schema(&member, number, &keyword);
        if (!item) continue;
        struct rf_member made = {.schema = item, .is_constant = member.is_constant};
        RF_TRY(rf_place_add(schema, member.place, keyword, 0, &made.place));
        RF_TRY(rf_member_add(schema, made, &ids[count++]));
    }
    return rf_conjunction_node(schema, ids, count, out);
}

rf_status rf_emit_array(struct rf_schema *schema, const struct rf_facts *facts, uint32_t *out) {
    enum { PREFIX_MAX = 2000 };
    struct rf_program *program = schema->program;
    const struct rf_json_nodes *json = &schema->json;
    size_t prefix = 0;
    uint32_t least = facts->fewest_items, most = facts->most_items, rest, tail, node;
    if (facts->unique_items && most > 1)
        return rf_schema_fail(schema, RF_E_UNSUPPORTED, facts->unique_place, "uniqueItems is not supported");
    if (!facts->has_array_facts) {
        *out = json->any_array;
        return RF_OK;
    }
    if (least > most) return rf_add_never(program, out);
    for (size_t i = 0; i < facts->count; i++) prefix = RF_MAX(prefix, prefix_size(rf_member(schema, facts->ids[i])));
    if (prefix > PREFIX_MAX)
        return rf_schema_fail(schema, RF_E_NO_MEMORY, rf_member(schema, facts->ids[0])->place,
                              "more than %d items have schemas of their own", PREFIX_MAX);
    prefix = RF_MIN(prefix, (size_t)most);
    /* From the end to the beginning. The first item has no comma before it. */
    RF_TRY(item_node(schema, facts, prefix, &node));
    RF_TRY(rf_add_sequence(program, (uint32_t[]){json->comma, node}, 2, &rest));
    uint32_t first = prefix ? (uint32_t)prefix : 1; /* items before the repetition */
    uint32_t more_least = least > first ? least - first : 0;
    uint32_t more_most = most == RF_NO_LIMIT ? RF_NO_LIMIT : most > first ? most - first : 0;
    RF_TRY(rf_add_repeat(program, rest, more_least, more_most, &tail));
    if (!prefix) {
        RF_TRY(rf_add_sequence(program, (uint32_t[]){node, tail}, 2, &tail));
        if (!least) RF_TRY(rf_add_optional(program, tail, &tail));
        if (!most) RF_TRY(rf_add_empty(program, &tail));
    }
    for (size_t i = prefix; i-- > 0;) {
        RF_TRY(item_node(schema, facts, i, &node));
        RF_TRY(rf_add_sequence(program, (uint32_t[]){json->comma, node, tail}, i ? 3 : 0, &rest));
        if (!i) RF_TRY(rf_add_sequence(program, (uint32_t[]){node, tail}, 2, &rest));
        tail = rest;
        if (i >= least) RF_TRY(rf_add_optional(program, tail, &tail));
    }
    return rf_add_sequence(program, (uint32_t[]){json->begin_array, tail, json->end_array}, 3, out);
}

/* ---- all types ---- */

rf_status rf_emit(struct rf_schema *schema, struct rf_facts *facts, uint32_t *out) {
    uint32_t nodes[8];
    size_t count = 0;
    if (facts->types & RF_TYPE_NULL) nodes[count++] = schema->json.null_word;
    if (facts->types & RF_TYPE_TRUE) nodes[count++] = schema->json.true_word;
    if (facts->types & RF_TYPE_FALSE) nodes[count++] = schema->json.false_word;
    if (facts->types & RF_TYPES_NUMBER) RF_TRY(rf_emit_number(schema, facts, &nodes[count++]));
    if (facts->types & RF_TYPE_STRING) RF_TRY(emit_string(schema, facts, &nodes[count++]));
    if (facts->types & RF_TYPE_ARRAY) RF_TRY(rf_emit_array(schema, facts, &nodes[count++]));
    if (facts->types & RF_TYPE_OBJECT) RF_TRY(rf_emit_object(schema, facts, &nodes[count++]));
    return rf_add_choice(schema->program, nodes, count, out);
}
