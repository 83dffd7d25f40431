/* What the schemas of a conjunction say together (see schema_impl.h): one function for each keyword, found by name.
 * Keywords that say nothing about validity are known too; any other is refused, because a misspelt one would leave a
 * value unconstrained. */
#include <stdlib.h>

#include "grammar/chars.h"
#include "grammar/regex.h"
#include "grammar/schema_impl.h"

struct gathering {
    struct rf_schema *schema;
    struct rf_facts *facts;
    uint32_t parents[RF_MEMBERS_MAX]; /* [place in facts->ids] the member whose $ref or allOf added it; UINT32_MAX */
    size_t at;
};
typedef rf_status (*keyword_fn)(struct gathering *gathering, const json_t *value, uint32_t place);

/* ---- adding members ---- */

static rf_status add_member(struct gathering *gathering, struct rf_member member) {
    struct rf_facts *facts = gathering->facts;
    uint32_t id;
    RF_TRY(rf_member_add(gathering->schema, member, &id));
    for (uint32_t at = (uint32_t)gathering->at; at != UINT32_MAX; at = gathering->parents[at])
        if (rf_member(gathering->schema, facts->ids[at])->schema == member.schema)
            return rf_schema_fail(gathering->schema, RF_E_UNSUPPORTED, member.place,
                                  "it refers to itself without end");
    for (size_t i = 0; i < facts->count; i++)
        if (facts->ids[i] == id) return RF_OK;
    /* the same schema with a keyword dealt with says the rest already */
    for (size_t i = 0; i < facts->count && !member.is_constant; i++) {
        const struct rf_member *known = rf_member(gathering->schema, facts->ids[i]);
        if (known->schema == member.schema && !known->is_constant && known->done) return RF_OK;
    }
    if (facts->count == RF_MEMBERS_MAX - 1)
        return rf_schema_fail(gathering->schema, RF_E_NO_MEMORY, member.place,
                              "more than %d schemas apply to one value", RF_MEMBERS_MAX - 1);
    gathering->parents[facts->count] = (uint32_t)gathering->at;
    facts->ids[facts->count++] = id;
    return RF_OK;
}

static rf_status kw_all_of(struct gathering *gathering, const json_t *value, uint32_t place) {
    if (!json_is_array(value)) return rf_schema_fail(gathering->schema, RF_E_SYNTAX, place, "allOf is not an array");
    for (size_t i = 0; i < json_array_size(value); i++) {
        struct rf_member member = {.schema = json_array_get(value, i)};
        RF_TRY(rf_place_add(gathering->schema, place, NULL, (uint32_t)i, &member.place));
        RF_TRY(add_member(gathering, member));
    }
    return RF_OK;
}

static rf_status kw_ref(struct gathering *gathering, const json_t *value, uint32_t place) {
    struct rf_member member = {.schema = NULL};
    if (!json_is_string(value)) return rf_schema_fail(gathering->schema, RF_E_SYNTAX, place, "$ref is not a text");
    RF_TRY(rf_schema_find(gathering->schema, place, json_string_value(value), &member.schema, &member.place));
    return add_member(gathering, member);
}

static rf_status kw_const(struct gathering *gathering, const json_t *value, uint32_t place) {
    return add_member(gathering, (struct rf_member){.schema = value, .is_constant = true, .place = place});
}

/* ---- splits: only noted, the first one is made ---- */

static rf_status note_choice(struct gathering *gathering, const json_t *value, uint32_t place, uint32_t done) {
    struct rf_facts *facts = gathering->facts;
    uint32_t id = facts->ids[gathering->at];
    if (!json_is_array(value) || !json_array_size(value))
        return rf_schema_fail(gathering->schema, RF_E_SYNTAX, place, "it is not an array with something in it");
    if (facts->choice || rf_member(gathering->schema, id)->done & done) return RF_OK;
    facts->choice = value;
    facts->choice_member = id;
    facts->choice_done = done;
    facts->choice_place = place;
    facts->choice_is_constants = done == RF_DID_ENUM;
    facts->choice_is_exclusive = done == RF_DID_ONEOF;
    return RF_OK;
}

static rf_status kw_any_of(struct gathering *gathering, const json_t *value, uint32_t place) {
    return note_choice(gathering, value, place, RF_DID_ANYOF);
}
static rf_status kw_one_of(struct gathering *gathering, const json_t *value, uint32_t place) {
    return note_choice(gathering, value, place, RF_DID_ONEOF);
}
static rf_status kw_enum(struct gathering *gathering, const json_t *value, uint32_t place) {
    return note_choice(gathering, value, place, RF_DID_ENUM);
}

/* not, if, dependent…: all of a member's at once. */
static rf_status kw_rewritten(struct gathering *gathering, const json_t *value, uint32_t place) {
    struct rf_facts *facts = gathering->facts;
    struct rf_member member = *rf_member(gathering->schema, facts->ids[gathering->at]);
    const json_t *made = NULL;
    uint32_t done = 0;
    (void)value;
    if (facts->choice) return RF_OK;
    RF_TRY(rf_rewrite(gathering->schema, &member, &made, &done));
    return made ? note_choice(gathering, made, place, done) : RF_OK;
}

/* ---- types ---- */

static uint32_t type_by_name(const char *name) {
    static const struct {
        const char *name;
        uint32_t types;
    } names[] = {{"null", RF_TYPE_NULL},       {"boolean", RF_TYPE_TRUE | RF_TYPE_FALSE},
                 {"integer", RF_TYPE_INTEGER}, {"number", RF_TYPES_NUMBER},
                 {"string", RF_TYPE_STRING},   {"array", RF_TYPE_ARRAY},
                 {"object", RF_TYPE_OBJECT},   {RF_FRACTION_NAME, RF_TYPE_FRACTION}};
    for (size_t i = 0; name && i < RF_COUNT(names); i++)
        if (!strcmp(name, names[i].name)) return names[i].types;
    return 0;
}

static rf_status kw_type(struct gathering *gathering, const json_t *value, uint32_t place) {
    uint32_t types = 0;
    size_t count = json_is_array(value) ? json_array_size(value) : 1;
    for (size_t i = 0; i < count; i++) {
        const json_t *one = json_is_array(value) ? json_array_get(value, i) : value;
        uint32_t type = type_by_name(json_string_value(one));
        if (!type) return rf_schema_fail(gathering->schema, RF_E_SYNTAX, place, "it names a type that is not known");
        types |= type;
    }
    gathering->facts->types &= types;
    return RF_OK;
}

/* ---- numbers ---- */

static rf_status read_bound(struct gathering *gathering, const json_t *value, uint32_t place, bool upper,
                            bool strict) {
    struct rf_bound *bound = upper ? &gathering->facts->most : &gathering->facts->least;
    struct rf_decimal given;
    if (!json_is_number(value)) return rf_schema_fail(gathering->schema, RF_E_SYNTAX, place, "it is not a number");
    if (rf_decimal_read(value, &given))
        return rf_schema_fail(gathering->schema, RF_E_UNSUPPORTED, place,
                              "bounds of more than %d digits are not supported", RF_DIGITS_MAX);
    gathering->facts->has_number_facts = true;
    int order = bound->set ? rf_decimal_compare(&given, &bound->value) : 0;
    if (upper) order = -order;
    if (!bound->set || order > 0 || (!order && strict)) *bound = (struct rf_bound){true, strict, given};
    return RF_OK;
}
static rf_status kw_minimum(struct gathering *gathering, const json_t *value, uint32_t place) {
    return read_bound(gathering, value, place, false, false);
}
static rf_status kw_maximum(struct gathering *gathering, const json_t *value, uint32_t place) {
    return read_bound(gathering, value, place, true, false);
}
static rf_status kw_exclusive_minimum(struct gathering *gathering, const json_t *value, uint32_t place) {
    return read_bound(gathering, value, place, false, true);
}
static rf_status kw_exclusive_maximum(struct gathering *gathering, const json_t *value, uint32_t place) {
    return read_bound(gathering, value, place, true, true);
}
static rf_status kw_multiple_of(struct gathering *gathering, const json_t *value, uint32_t place) {
    struct rf_facts *facts = gathering->facts;
    if (!json_is_number(value) || json_number_value(value) <= 0)
        return rf_schema_fail(gathering->schema, RF_E_SYNTAX, place, "it is not a number above 0");
    if (facts->multiple_count == RF_COUNT(facts->multiples))
        return rf_schema_fail(gathering->schema, RF_E_UNSUPPORTED, place, "too many multiples for one number");
    facts->multiples[facts->multiple_count++] = value;
    facts->has_number_facts = true;
    return RF_OK;
}

/* ---- counts ---- */

static rf_status read_count(struct gathering *gathering, const json_t *value, uint32_t place, uint32_t *count) {
    double number = json_number_value(value);
    if (!json_is_number(value) || number < 0 || number > 1e18 || number != (double)(uint64_t)number)
        return rf_schema_fail(gathering->schema, RF_E_SYNTAX, place, "it is not a whole number from 0 on");
    if (number > 1e9) return rf_schema_fail(gathering->schema, RF_E_NO_MEMORY, place, "it is more than 1000000000");
    *count = (uint32_t)number;
    return RF_OK;
}
static rf_status read_least(struct gathering *gathering, const json_t *value, uint32_t place, uint32_t *least) {
    uint32_t count = 0;
    RF_TRY(read_count(gathering, value, place, &count));
    *least = RF_MAX(*least, count);
    return RF_OK;
}
static rf_status read_most(struct gathering *gathering, const json_t *value, uint32_t place, uint32_t *most) {
    uint32_t count = 0;
    RF_TRY(read_count(gathering, value, place, &count));
    *most = RF_MIN(*most, count);
    return RF_OK;
}
static rf_status kw_min_length(struct gathering *gathering, const json_t *value, uint32_t place) {
    return read_least(gathering, value, place, &gathering->facts->shortest);
}
static rf_status kw_max_length(struct gathering *gathering, const json_t *value, uint32_t place) {
    return read_most(gathering, value, place, &gathering->facts->longest);
}
static rf_status kw_min_items(struct gathering *gathering, const json_t *value, uint32_t place) {
    gathering->facts->has_array_facts = true;
    return read_least(gathering, value, place, &gathering->facts->fewest_items);
}
static rf_status kw_max_items(struct gathering *gathering, const json_t *value, uint32_t place) {
    gathering->facts->has_array_facts = true;
    return read_most(gathering, value, place, &gathering->facts->most_items);
}
static rf_status kw_min_properties(struct gathering *gathering, const json_t *value, uint32_t place) {
    gathering->facts->has_object_facts = true;
    gathering->facts->fewest_place = place;
    return read_least(gathering, value, place, &gathering->facts->fewest_members);
}
static rf_status kw_max_properties(struct gathering *gathering, const json_t *value, uint32_t place) {
    gathering->facts->has_object_facts = true;
    return read_most(gathering, value, place, &gathering->facts->most_members);
}

/* ---- strings ---- */

static rf_status add_pattern(struct gathering *gathering, const char *text, size_t bytes, enum rf_regex_mode mode,
                             uint32_t place) {
    struct rf_facts *facts = gathering->facts;
    if (!(facts->types & RF_TYPE_STRING)) return RF_OK;
    if (facts->pattern_count == RF_COUNT(facts->patterns))
        return rf_schema_fail(gathering->schema, RF_E_NO_MEMORY, place, "more than %d patterns for one text",
                              RF_PATTERNS_MAX);
    rf_status status = rf_add_regex(gathering->schema->program, text, bytes, mode, "pattern",
                                    &facts->patterns[facts->pattern_count++]);
    if (!status) return RF_OK;
    struct rf_saved_error saved;
    rf_error_save(&saved);
    return rf_schema_fail(gathering->schema, status, place, "%.300s", saved.text);
}
static rf_status kw_pattern(struct gathering *gathering, const json_t *value, uint32_t place) {
    if (!json_is_string(value)) return rf_schema_fail(gathering->schema, RF_E_SYNTAX, place, "pattern is not a text");
    return add_pattern(gathering, json_string_value(value), json_string_length(value), RF_REGEX_SEARCH, place);
}
static rf_status kw_format(struct gathering *gathering, const json_t *value, uint32_t place) {
    const char *name = json_string_value(value), *regex = name ? rf_format_regex(name) : NULL;
    if (!name) return rf_schema_fail(gathering->schema, RF_E_SYNTAX, place, "format is not a text");
    if (!(gathering->facts->types & RF_TYPE_STRING)) return RF_OK;
    if (!regex)
        return rf_schema_fail(gathering->schema, RF_E_UNSUPPORTED, place, "format \"%.60s\" is not supported", name);
    return add_pattern(gathering, regex, strlen(regex), RF_REGEX_SEARCH, place);
}

/* ---- arrays and objects: what has subschemas is read again where it is compiled ---- */

static rf_status kw_of_array(struct gathering *gathering, const json_t *value, uint32_t place) {
    (void)value, (void)place;
    gathering->facts->has_array_facts = true;
    return RF_OK;
}
static rf_status kw_schemas(struct gathering *gathering, const json_t *value, uint32_t place) {
    if (!json_is_array(value)) return rf_schema_fail(gathering->schema, RF_E_SYNTAX, place, "it is not an array");
    return kw_of_array(gathering, value, place);
}
static rf_status kw_of_object(struct gathering *gathering, const json_t *value, uint32_t place) {
    (void)value, (void)place;
    gathering->facts->has_object_facts = true;
    return RF_OK;
}
static rf_status kw_properties(struct gathering *gathering, const json_t *value, uint32_t place) {
    if (!json_is_object(value)) return rf_schema_fail(gathering->schema, RF_E_SYNTAX, place, "it is not an object");
    return kw_of_object(gathering, value, place);
}
static rf_status kw_required(struct gathering *gathering, const json_t *value, uint32_t place) {
    for (size_t i = 0; i < json_array_size(value); i++)
        if (!json_is_string(json_array_get(value, i))) value = NULL;
    if (!json_is_array(value))
        return rf_schema_fail(gathering->schema, RF_E_SYNTAX, place, "it is not an array of texts");
    return kw_of_object(gathering, value, place);
}
static rf_status kw_unique_items(struct gathering *gathering, const json_t *value, uint32_t place) {
    if (!json_is_boolean(value))
        return rf_schema_fail(gathering->schema, RF_E_SYNTAX, place, "it is not true or false");
    if (json_is_true(value)) {
        gathering->facts->unique_items = true;
        gathering->facts->unique_place = place;
    }
    return RF_OK;
}

static rf_status kw_id(struct gathering *gathering, const json_t *value, uint32_t place) {
    (void)value;
    if (rf_member(gathering->schema, gathering->facts->ids[gathering->at])->schema == gathering->schema->tree.root)
        return RF_OK;
    return rf_schema_fail(gathering->schema, RF_E_UNSUPPORTED, place, "$id below the root is not supported");
}

static rf_status kw_refused(struct gathering *gathering, const json_t *value, uint32_t place) {
    const struct rf_place *named = (const struct rf_place *)gathering->schema->places.data + place;
    (void)value;
    return rf_schema_fail(gathering->schema, RF_E_UNSUPPORTED, named->parent, "%s is not supported", named->key);
}

/* Assertions in draft-07, annotations since. */
static rf_status kw_content(struct gathering *gathering, const json_t *value, uint32_t place) {
    return gathering->schema->ref_alone ? kw_refused(gathering, value, place) : RF_OK;
}

static const struct {
    const char *name;
    keyword_fn read; /* NULL: says nothing about validity by itself */
} keywords[] = {
    {"$anchor", NULL},
    {"$comment", NULL},
    {"$defs", NULL},
    {"$dynamicAnchor", NULL},
    {"$dynamicRef", kw_refused},
    {"$id", kw_id},
    {"$recursiveAnchor", kw_refused},
    {"$recursiveRef", kw_refused},
    {"$ref", kw_ref},
    {"$schema", NULL},
    {"$vocabulary", kw_refused},
    {"additionalItems", kw_of_array},
    {"additionalProperties", kw_of_object},
    {"allOf", kw_all_of},
    {"anyOf", kw_any_of},
    {"const", kw_const},
    {"contains", kw_refused},
    {"contentEncoding", kw_content},
    {"contentMediaType", kw_content},
    {"contentSchema", NULL},
    {"default", NULL},
    {"definitions", NULL},
    {"dependencies", kw_rewritten},
    {"dependentRequired", kw_rewritten},
    {"dependentSchemas", kw_rewritten},
    {"deprecated", NULL},
    {"description", NULL},
    {"else", NULL}, /* read with "if" */
    {"enum", kw_enum},
    {"example", NULL},
    {"examples", NULL},
    {"exclusiveMaximum", kw_exclusive_maximum},
    {"exclusiveMinimum", kw_exclusive_minimum},
    {"format", kw_format},
    {"if", kw_rewritten},
    {"items", kw_of_array},
    {"maxContains", NULL}, /* says nothing without "contains" */
    {"maxItems", kw_max_items},
    {"maxLength", kw_max_length},
    {"maxProperties", kw_max_properties},
    {"maximum", kw_maximum},
    {"minContains", NULL},
    {"minItems", kw_min_items},
    {"minLength", kw_min_length},
    {"minProperties", kw_min_properties},
    {"minimum", kw_minimum},
    {"multipleOf", kw_multiple_of},
    {"not", kw_rewritten},
    {"oneOf", kw_one_of},
    {"pattern", kw_pattern},
    {"patternProperties", kw_properties},
    {"prefixItems", kw_schemas},
    {"properties", kw_properties},
    {"propertyNames", kw_of_object},
    {"readOnly", NULL},
    {"required", kw_required},
    {"then", NULL},
    {"title", NULL},
    {"type", kw_type},
    {"unevaluatedItems", kw_refused},
    {"unevaluatedProperties", kw_refused},
    {"uniqueItems", kw_unique_items},
    {"writeOnly", NULL},
};

static rf_status read_keyword(struct gathering *gathering, const char *key, const json_t *value, uint32_t parent) {
    uint32_t place;
    for (size_t i = 0; i < RF_COUNT(keywords); i++) {
        if (strcmp(key, keywords[i].name)) continue;
        if (!keywords[i].read) return RF_OK;
        RF_TRY(rf_place_add(gathering->schema, parent, key, 0, &place));
        return keywords[i].read(gathering, value, place);
    }
    if (!strncmp(key, "x-", 2)) return RF_OK;
    return rf_schema_fail(gathering->schema, RF_E_UNSUPPORTED, parent, "the keyword \"%.60s\" is not known", key);
}

static uint32_t type_of(const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_OBJECT: return RF_TYPE_OBJECT;
    case JSON_ARRAY: return RF_TYPE_ARRAY;
    case JSON_STRING: return RF_TYPE_STRING;
    case JSON_INTEGER: return RF_TYPE_INTEGER;
    case JSON_REAL:
        return json_real_value(value) == __builtin_floor(json_real_value(value)) ? RF_TYPE_INTEGER : RF_TYPE_FRACTION;
    case JSON_TRUE: return RF_TYPE_TRUE;
    case JSON_FALSE: return RF_TYPE_FALSE;
    case JSON_NULL: return RF_TYPE_NULL;
    }
    return 0;
}

static rf_status read_constant(struct gathering *gathering, const struct rf_member *member) {
    struct rf_facts *facts = gathering->facts;
    struct rf_schema *schema = gathering->schema;
    facts->types &= type_of(member->schema);
    if (json_is_number(member->schema)) {
        if (facts->number && json_number_value(facts->number) != json_number_value(member->schema)) facts->types = 0;
        facts->number = member->schema;
    }
    if (json_is_array(member->schema)) {
        facts->has_array_facts = true;
        facts->fewest_items = RF_MAX(facts->fewest_items, (uint32_t)json_array_size(member->schema));
        facts->most_items = RF_MIN(facts->most_items, (uint32_t)json_array_size(member->schema));
    }
    facts->has_object_facts = facts->has_object_facts || json_is_object(member->schema);
    if (!json_is_string(member->schema) || !(facts->types & RF_TYPE_STRING)) return RF_OK;
    char *text;
    size_t bytes;
    if (facts->pattern_count == RF_COUNT(facts->patterns))
        return rf_schema_fail(schema, RF_E_NO_MEMORY, member->place, "more than %d patterns for one text",
                              RF_PATTERNS_MAX);
    RF_TRY(rf_spell_text(json_string_value(member->schema), json_string_length(member->schema), &text, &bytes));
    rf_status status = rf_add_literal(schema->program, text, bytes, &facts->patterns[facts->pattern_count++]);
    free(text);
    return status;
}

rf_status rf_gather(struct rf_schema *schema, const uint32_t *ids, size_t count, struct rf_facts *facts) {
    struct gathering gathering = {.schema = schema, .facts = facts};
    *facts = (struct rf_facts){.types = RF_TYPES_ALL,
                               .count = count,
                               .longest = RF_NO_LIMIT,
                               .most_items = RF_NO_LIMIT,
                               .most_members = RF_NO_LIMIT};
    memcpy(facts->ids, ids, count * sizeof *ids);
    for (size_t i = 0; i < count; i++) gathering.parents[i] = UINT32_MAX;
    for (; gathering.at < facts->count && facts->types; gathering.at++) {
        struct rf_member member = *rf_member(schema, facts->ids[gathering.at]);
        const json_t *ref = schema->ref_alone && !member.is_constant ? json_object_get(member.schema, "$ref") : NULL;
        if (member.is_constant) {
            RF_TRY(read_constant(&gathering, &member));
        } else if (json_is_boolean(member.schema)) {
            if (json_is_false(member.schema)) facts->types = 0;
        } else if (!json_is_object(member.schema)) {
            return rf_schema_fail(schema, RF_E_SYNTAX, member.place, "a schema is an object, true or false");
        } else if (ref) {
            RF_TRY(read_keyword(&gathering, "$ref", ref, member.place));
        } else {
            const char *key;
            json_t *value;
            json_object_foreach((json_t *)member.schema, key, value)
                RF_TRY(read_keyword(&gathering, key, value, member.place));
        }
    }
    return RF_OK;
}
