/* Objects: the names of members, which schemas apply to each, and the automaton of all names (see schema_impl.h).
 *
 * A name that the schemas mention (properties, required, constants) has a bit; every other name is of a kind, by the
 * patterns that it matches. Each member schema decides for itself whether a name is "additional". */
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "grammar/chars.h"
#include "grammar/dfa.h"
#include "grammar/regex.h"
#include "grammar/schema_impl.h"

rf_status rf_spell_text(const char *text, size_t bytes, char **out, size_t *out_bytes) {
    char *spelt = malloc(6 * bytes + 1);
    size_t count = 0;
    if (!spelt) return rf_fail(RF_E_NO_MEMORY, "no host memory for a text of %zu bytes", bytes);
    for (size_t at = 0, taken; at < bytes; at += taken) /* jansson let only UTF-8 through */
        count += rf_spell(rf_utf8_decode(text + at, bytes - at, &taken), RF_SPELL_JSON, spelt + count);
    spelt[count] = 0;
    *out = spelt;
    *out_bytes = count;
    return RF_OK;
}

struct name {
    const char *key; /* borrowed from the tree */
    char *spelt;
    size_t bytes;
    bool required;
};
struct kind { /* of names that are not mentioned */
    uint32_t matches, node;
};
enum { KINDS_MAX = 64 };
struct members {
    struct rf_schema *schema;
    const struct rf_facts *facts;
    struct name *names;
    struct rf_dfa_name *dfa_names;
    uint32_t *values; /* [name] nodes */
    size_t name_count, name_capacity;
    struct {
        size_t member; /* place in facts->ids */
        const json_t *schema;
        uint32_t place;
    } patterns[RF_PATTERNS_MAX];
    uint32_t pattern_nodes[RF_PATTERNS_MAX];
    size_t pattern_count;
    struct kind kinds[KINDS_MAX];
    size_t kind_count;
    uint32_t conditions[RF_PATTERNS_MAX]; /* nodes that all names follow */
    size_t condition_count;
};

static rf_status add_name(struct members *members, const char *key, bool required) {
    if (members->name_count == members->name_capacity) {
        size_t capacity = 2 * members->name_capacity + 16;
        struct name *more = realloc(members->names, capacity * sizeof *more);
        if (!more) return rf_fail(RF_E_NO_MEMORY, "no host memory for %zu names", capacity);
        members->names = more;
        members->name_capacity = capacity;
    }
    struct name made = {.key = key, .required = required};
    RF_TRY(rf_spell_text(key, strlen(key), &made.spelt, &made.bytes));
    members->names[members->name_count++] = made;
    return RF_OK;
}

static int by_spelling(const void *a, const void *b) {
    const struct name *x = a, *y = b;
    int order = memcmp(x->spelt, y->spelt, RF_MIN(x->bytes, y->bytes));
    return order ? order : x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static rf_status find_names(struct members *members) {
    const char *key;
    json_t *value;
    for (size_t i = 0; i < members->facts->count; i++) {
        const struct rf_member *member = rf_member(members->schema, members->facts->ids[i]);
        if (!json_is_object(member->schema)) continue;
        json_t *properties =
            member->is_constant ? (json_t *)member->schema : json_object_get(member->schema, "properties");
        const json_t *required = member->is_constant ? NULL : json_object_get(member->schema, "required");
        json_object_foreach(properties, key, value) RF_TRY(add_name(members, key, member->is_constant));
        for (size_t k = 0; k < json_array_size(required); k++) {
            const json_t *name = json_array_get(required, k);
            if (strlen(json_string_value(name)) != json_string_length(name))
                return rf_schema_fail(members->schema, RF_E_UNSUPPORTED, member->place,
                                      "a name with a zero byte is not supported");
            RF_TRY(add_name(members, json_string_value(name), true));
        }
        if (members->name_count > 16 * RF_NAMES_MAX) break;
    }
    size_t kept = 0;
    if (members->name_count) qsort(members->names, members->name_count, sizeof *members->names, by_spelling);
    for (size_t i = 0; i < members->name_count; i++) {
        struct name *name = &members->names[i];
        if (kept && !by_spelling(name, &members->names[kept - 1])) {
            members->names[kept - 1].required = members->names[kept - 1].required || name->required;
            free(name->spelt);
        } else {
            members->names[kept++] = *name;
        }
    }
    members->name_count = kept;
    if (kept > RF_NAMES_MAX)
        return rf_schema_fail(members->schema, RF_E_NO_MEMORY,
                              rf_member(members->schema, members->facts->ids[0])->place, "more than %d properties",
                              RF_NAMES_MAX);
    return RF_OK;
}

/* ---- patterns and conditions ---- */

static rf_status find_patterns(struct members *members) {
    struct rf_schema *schema = members->schema;
    const char *key;
    json_t *value;
    for (size_t i = 0; i < members->facts->count; i++) {
        const struct rf_member member = *rf_member(schema, members->facts->ids[i]);
        json_t *patterns = member.is_constant ? NULL : json_object_get(member.schema, "patternProperties");
        json_object_foreach(patterns, key, value) {
            uint32_t place;
            RF_TRY(rf_place_add(schema, member.place, "patternProperties", 0, &place));
            RF_TRY(rf_place_add(schema, place, key, 0, &place));
            if (members->pattern_count == RF_PATTERNS_MAX)
                return rf_schema_fail(schema, RF_E_NO_MEMORY, place, "more than %d patterns for one name",
                                      RF_PATTERNS_MAX);
            members->patterns[members->pattern_count].member = i;
            members->patterns[members->pattern_count].schema = value;
            members->patterns[members->pattern_count].place = place;
            rf_status status = rf_add_regex(schema->program, key, strlen(key), RF_REGEX_SEARCH, "pattern",
                                            &members->pattern_nodes[members->pattern_count++]);
            if (status) {
                struct rf_saved_error saved;
                rf_error_save(&saved);
                return rf_schema_fail(schema, status, place, "%.300s", saved.text);
            }
        }
    }
    return RF_OK;
}

/* What propertyNames says, as nodes that every name follows. */
static rf_status add_name_condition(struct members *members, const json_t *names, uint32_t place) {
    struct rf_schema *schema = members->schema;
    struct rf_facts facts;
    uint32_t id, node;
    if (members->condition_count + 2 > RF_COUNT(members->conditions))
        return rf_schema_fail(schema, RF_E_NO_MEMORY, place, "too many conditions on names");
    RF_TRY(rf_member_add(schema, (struct rf_member){.schema = names, .place = place}, &id));
    RF_TRY(rf_gather(schema, &id, 1, &facts));
    if (!(facts.types & RF_TYPE_STRING))
        return rf_add_never(schema->program, &members->conditions[members->condition_count++]);
    if (facts.choice) {
        if (!facts.choice_is_constants)
            return rf_schema_fail(schema, RF_E_UNSUPPORTED, place,
                                  "propertyNames with a choice of schemas is not supported");
        struct rf_list nodes = {0};
        rf_status status = RF_OK;
        for (size_t i = 0; i < json_array_size(facts.choice) && !status; i++) {
            const json_t *value = json_array_get(facts.choice, i);
            char *text;
            size_t bytes;
            if (!json_is_string(value)) continue;
            status = rf_spell_text(json_string_value(value), json_string_length(value), &text, &bytes);
            if (status) break;
            status = rf_add_literal(schema->program, text, bytes, &node);
            free(text);
            if (!status) status = rf_list_add(schema->program, &nodes, &node, 1, sizeof node, NULL);
        }
        if (!status) status = rf_add_choice(schema->program, nodes.data, nodes.count, &node);
        rf_account_release(&schema->program->account, (uint64_t)nodes.capacity * sizeof node);
        free(nodes.data);
        RF_TRY(status);
        members->conditions[members->condition_count++] = node;
    }
    return rf_emit_string_body(schema, &facts, true, &members->conditions[members->condition_count++]);
}

static rf_status find_conditions(struct members *members) {
    struct rf_schema *schema = members->schema;
    RF_TRY(rf_add_repeat(schema->program, schema->json.plain, 0, RF_NO_LIMIT,
                         &members->conditions[members->condition_count++]));
    for (size_t i = 0; i < members->facts->count; i++) {
        const struct rf_member member = *rf_member(schema, members->facts->ids[i]);
        const json_t *names = member.is_constant ? NULL : json_object_get(member.schema, "propertyNames");
        uint32_t place;
        if (!names) continue;
        RF_TRY(rf_place_add(schema, member.place, "propertyNames", 0, &place));
        RF_TRY(add_name_condition(members, names, place));
    }
    return RF_OK;
}

/* ---- which schemas apply to a name ---- */

static rf_status add_schema(struct members *members, const json_t *schema, bool is_constant, uint32_t parent,
                            const char *keyword, const char *key, uint32_t *ids, size_t *count) {
    struct rf_member made = {.schema = schema, .is_constant = is_constant};
    if (*count == RF_MEMBERS_MAX)
        return rf_schema_fail(members->schema, RF_E_NO_MEMORY, parent, "more than %d schemas apply to one value",
                              RF_MEMBERS_MAX);
    RF_TRY(rf_place_add(members->schema, parent, keyword, 0, &made.place));
    if (key) RF_TRY(rf_place_add(members->schema, made.place, key, 0, &made.place));
    return rf_member_add(members->schema, made, &ids[(*count)++]);
}

/* key: NULL for a name that is not mentioned. *never: one of the schemas is false. */
static rf_status find_value(struct members *members, const char *key, uint32_t matches, bool *never, uint32_t *node) {
    struct rf_schema *schema = members->schema;
    uint32_t ids[RF_MEMBERS_MAX];
    size_t count = 0;
    *never = false;
    for (size_t i = 0; i < members->facts->count; i++) {
        const struct rf_member member = *rf_member(schema, members->facts->ids[i]);
        if (!json_is_object(member.schema)) continue;
        const json_t *properties = member.is_constant ? member.schema : json_object_get(member.schema, "properties");
        const json_t *value = key ? json_object_get(properties, key) : NULL;
        bool found = value != NULL;
        if (member.is_constant && !value) {
            *never = true;
            continue;
        }
        if (value)
            RF_TRY(add_schema(members, value, member.is_constant, member.place,
                              member.is_constant ? "const" : "properties", key, ids, &count));
        for (size_t k = 0; k < members->pattern_count; k++) {
            if (members->patterns[k].member != i || !(matches >> k & 1)) continue;
            found = true;
            RF_TRY(add_schema(members, members->patterns[k].schema, false, members->patterns[k].place, "", NULL, ids,
                              &count));
            *never = *never || json_is_false(members->patterns[k].schema);
        }
        const json_t *additional = found ? NULL : json_object_get(member.schema, "additionalProperties");
        if (additional)
            RF_TRY(add_schema(members, additional, false, member.place, "additionalProperties", NULL, ids, &count));
        *never = *never || (value && !member.is_constant && json_is_false(value)) ||
                 (additional && json_is_false(additional));
    }
    if (*never) return rf_add_never(schema->program, node);
    return rf_conjunction_node(schema, ids, count, node);
}

static rf_status label_name(void *user, uint32_t name, uint32_t matches, uint32_t *label) {
    struct members *members = user;
    bool never;
    if (name != UINT32_MAX) {
        *label = 1 + name;
        return find_value(members, members->names[name].key, matches, &never, &members->values[name]);
    }
    for (size_t i = 0; i <= members->kind_count; i++) {
        if (i == members->kind_count) {
            if (i == KINDS_MAX)
                return rf_schema_fail(members->schema, RF_E_NO_MEMORY, 0, "names match patterns in more than %d ways",
                                      KINDS_MAX);
            struct kind made = {.matches = matches};
            RF_TRY(find_value(members, NULL, matches, &never, &made.node));
            if (never) made.node = UINT32_MAX;
            members->kinds[members->kind_count++] = made;
        }
        if (members->kinds[i].matches != matches) continue;
        *label = members->kinds[i].node == UINT32_MAX ? 0 : (uint32_t)(1 + members->name_count + i);
        return RF_OK;
    }
    return RF_OK;
}

/* ---- the node ---- */

static rf_status check_least(struct members *members, struct rf_object *object, uint32_t required) {
    bool open = false;
    for (size_t i = 0; i < members->kind_count; i++) open = open || members->kinds[i].node != UINT32_MAX;
    if (object->least <= required) object->least = 0; /* implied */
    if (object->least > 1 && open)
        return rf_schema_fail(members->schema, RF_E_UNSUPPORTED, members->facts->fewest_place,
                              "minProperties above 1, and above the number of required properties, is not supported "
                              "where other names are allowed: "
                              "they could repeat");
    return RF_OK;
}

static rf_status build(struct members *members, uint32_t *out) {
    struct rf_program *program = members->schema->program;
    struct rf_object object = {.least = members->facts->fewest_members, .most = members->facts->most_members};
    struct rf_node node = {.kind = RF_NODE_OBJECT};
    uint32_t required = 0, never;
    RF_TRY(find_names(members));
    RF_TRY(find_patterns(members));
    RF_TRY(find_conditions(members));
    RF_TRY(rf_add_never(program, &never));
    members->dfa_names = calloc(members->name_count + 1, sizeof *members->dfa_names);
    members->values = calloc(members->name_count + 1, sizeof *members->values);
    if (!members->dfa_names || !members->values) return rf_fail(RF_E_NO_MEMORY, "no host memory for the names");
    object.name_count = (uint32_t)members->name_count;
    object.bit_words = object.name_count / 32 + 1;
    RF_TRY(rf_list_add(program, &program->bits, NULL, object.bit_words, sizeof(uint32_t), &object.required));
    for (uint32_t i = 0; i < object.name_count; i++) {
        members->dfa_names[i] = (struct rf_dfa_name){members->names[i].spelt, members->names[i].bytes};
        members->values[i] = never;
        required += members->names[i].required;
        if (members->names[i].required) ((uint32_t *)program->bits.data)[object.required + i / 32] |= 1u << i % 32;
    }
    struct rf_dfa_params params = {.nodes = members->conditions,
                                   .count = members->condition_count,
                                   .names = members->dfa_names,
                                   .name_count = object.name_count,
                                   .patterns = members->pattern_nodes,
                                   .pattern_count = members->pattern_count,
                                   .label = label_name,
                                   .user = members,
                                   .what = "the names of properties"};
    RF_TRY(rf_add_automaton(program, &params, &object.keys, &object.key_count));
    RF_TRY(check_least(members, &object, required));
    RF_TRY(
        rf_list_add(program, &program->links, members->values, object.name_count, sizeof(uint32_t), &object.values));
    object.open_count = (uint32_t)members->kind_count;
    object.open_values = program->links.count;
    for (size_t i = 0; i < members->kind_count; i++) {
        uint32_t value = members->kinds[i].node == UINT32_MAX ? never : members->kinds[i].node;
        RF_TRY(rf_list_add(program, &program->links, &value, 1, sizeof value, NULL));
    }
    RF_TRY(rf_list_add(program, &program->objects, &object, 1, sizeof object, &node.a));
    return rf_add_node(program, node, out);
}

rf_status rf_emit_object(struct rf_schema *schema, struct rf_facts *facts, uint32_t *out) {
    if (!facts->has_object_facts) {
        *out = schema->json.any_object;
        return RF_OK;
    }
    struct members *members = calloc(1, sizeof *members);
    if (!members) return rf_fail(RF_E_NO_MEMORY, "no host memory for an object's schema");
    members->schema = schema;
    members->facts = facts;
    rf_status status = build(members, out);
    for (size_t i = 0; i < members->name_count; i++) free(members->names[i].spelt);
    free(members->names);
    free(members->dfa_names);
    free(members->values);
    free(members);
    return status;
}
