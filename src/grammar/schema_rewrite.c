/* Keywords that are said in other keywords (see rf_rewrite): "not" moves inwards until it stands before something
 * whose opposite has a name; "if" is a choice; "dependent…" is a choice between a property that is absent and one
 * that is there with what it needs. The schemas made here are kept until the end; types that have no name in JSON
 * Schema have one of ours that no text from outside can spell. */
#include "grammar/schema_impl.h"

static json_t *text(const char *value) {
    return json_string_nocheck(value);
}

/* ---- not ---- */

static rf_status add(json_t *alternatives, json_t *made) {
    return made && !json_array_append_new(alternatives, made)
               ? RF_OK
               : rf_fail(RF_E_NO_MEMORY, "no host memory for a schema");
}

static rf_status not_type(const json_t *value, json_t *alternatives) {
    static const struct {
        const char *name, *covers;
    } types[] = {{"null", "null"},     {"boolean", "boolean"}, {RF_FRACTION_NAME, "number"}, {"integer", "number"},
                 {"string", "string"}, {"array", "array"},     {"object", "object"}};
    json_t *others = json_array();
    for (size_t i = 0; others && i < RF_COUNT(types); i++) {
        bool named = false;
        for (size_t k = 0; k < (json_is_array(value) ? json_array_size(value) : 1); k++) {
            const char *name = json_string_value(json_is_array(value) ? json_array_get(value, k) : value);
            named = named || (name && (!strcmp(name, types[i].name) || !strcmp(name, types[i].covers)));
        }
        if (!named) json_array_append_new(others, text(types[i].name));
    }
    return add(alternatives, json_pack("{s:o}", "type", others));
}

static rf_status not_constant(struct rf_schema *schema, uint32_t place, const json_t *value, json_t *alternatives) {
    if (json_is_null(value)) {
        json_t *type = text("null");
        rf_status status = not_type(type, alternatives);
        json_decref(type);
        return status;
    }
    if (!json_is_boolean(value))
        return rf_schema_fail(schema, RF_E_UNSUPPORTED, place,
                              "not is not supported over const and enum of texts, numbers, arrays and objects");
    json_t *type = text("boolean");
    rf_status status = not_type(type, alternatives);
    json_decref(type);
    return status ? status : add(alternatives, json_pack("{s:b}", "const", !json_is_true(value)));
}

static rf_status not_count(const json_t *value, const char *type, const char *opposite, int step,
                           json_t *alternatives) {
    double count = json_number_value(value) + step;
    if (count < 0) return RF_OK; /* there is no such value */
    return add(alternatives, json_pack("{s:s,s:I}", "type", type, opposite, (json_int_t)count));
}

/* One keyword's opposite, as alternatives. *known: it has one, or says nothing. */
static rf_status not_keyword(struct rf_schema *schema, uint32_t place, const char *key, json_t *value,
                             json_t *alternatives, bool *known) {
    static const struct {
        const char *name, *type, *opposite;
        int step; /* 0: the same number */
    } counts[] = {{"minLength", "string", "maxLength", -1},
                  {"maxLength", "string", "minLength", 1},
                  {"minItems", "array", "maxItems", -1},
                  {"maxItems", "array", "minItems", 1},
                  {"minProperties", "object", "maxProperties", -1},
                  {"maxProperties", "object", "minProperties", 1},
                  {"minimum", "number", "exclusiveMaximum", 0},
                  {"maximum", "number", "exclusiveMinimum", 0},
                  {"exclusiveMinimum", "number", "maximum", 0},
                  {"exclusiveMaximum", "number", "minimum", 0}};
    static const char *const silent[] = {"$comment", "$schema",     "$defs",   "definitions",
                                         "title",    "description", "default", "examples"};
    const char *name;
    json_t *inner;
    *known = true;
    for (size_t i = 0; i < RF_COUNT(silent); i++)
        if (!strcmp(key, silent[i])) return RF_OK;
    for (size_t i = 0; i < RF_COUNT(counts); i++) {
        if (strcmp(key, counts[i].name)) continue;
        if (!counts[i].step)
            return add(alternatives, json_pack("{s:s,s:O}", "type", counts[i].type, counts[i].opposite, value));
        return not_count(value, counts[i].type, counts[i].opposite, counts[i].step, alternatives);
    }
    if (!strcmp(key, "type")) return not_type(value, alternatives);
    if (!strcmp(key, "const")) return not_constant(schema, place, value, alternatives);
    if (!strcmp(key, "enum") && json_array_size(value) == 1)
        return not_constant(schema, place, json_array_get(value, 0), alternatives);
    if (!strcmp(key, "not")) return add(alternatives, json_incref(value));
    if (!strcmp(key, "allOf")) {
        for (size_t i = 0; i < json_array_size(value); i++)
            RF_TRY(add(alternatives, json_pack("{s:O}", "not", json_array_get(value, i))));
        return RF_OK;
    }
    if (!strcmp(key, "anyOf")) {
        json_t *all = json_array();
        for (size_t i = 0; all && i < json_array_size(value); i++)
            json_array_append_new(all, json_pack("{s:O}", "not", json_array_get(value, i)));
        return add(alternatives, json_pack("{s:o}", "allOf", all));
    }
    if (!strcmp(key, "required")) {
        for (size_t i = 0; i < json_array_size(value); i++)
            RF_TRY(add(alternatives, json_pack("{s:s,s:{s:b}}", "type", "object", "properties",
                                               json_string_value(json_array_get(value, i))
                                                   ? json_string_value(json_array_get(value, i))
                                                   : "",
                                               0)));
        return RF_OK;
    }
    if (!strcmp(key, "properties")) {
        json_object_foreach(value, name, inner)
            RF_TRY(add(alternatives, json_pack("{s:s,s:[s],s:{s:{s:O}}}", "type", "object", "required", name,
                                               "properties", name, "not", inner)));
        return RF_OK;
    }
    *known = false;
    return RF_OK;
}

static rf_status rewrite_not(struct rf_schema *schema, uint32_t place, json_t *value, json_t *all) {
    json_t *alternatives = json_array(), *inner;
    rf_status status = alternatives ? RF_OK : rf_fail(RF_E_NO_MEMORY, "no host memory for a schema");
    const char *key;
    bool known = true;
    if (!status && json_is_false(value)) status = add(alternatives, json_true());
    if (!status && !json_is_boolean(value) && !json_is_object(value))
        status = rf_schema_fail(schema, RF_E_SYNTAX, place, "not is no schema");
    json_object_foreach(value, key, inner) {
        if (!status) status = not_keyword(schema, place, key, inner, alternatives, &known);
        if (!status && !known)
            status = rf_schema_fail(schema, RF_E_UNSUPPORTED, place, "not is not supported over \"%.60s\"", key);
    }
    if (!status && !json_array_size(alternatives))
        status = add(alternatives, json_false()); /* not everything: nothing */
    if (status) {
        json_decref(alternatives);
        return status;
    }
    return add(all, json_pack("{s:o}", "anyOf", alternatives));
}

/* ---- if, dependent… ---- */

static rf_status rewrite_if(const json_t *schema, json_t *all) {
    json_t *condition = json_object_get(schema, "if"), *then = json_object_get(schema, "then");
    json_t *otherwise = json_object_get(schema, "else");
    if (!then && !otherwise) return RF_OK;
    json_t *yes = then ? json_incref(then) : json_true(), *no = otherwise ? json_incref(otherwise) : json_true();
    return add(all, json_pack("{s:[{s:[O,o]},{s:[{s:O},o]}]}", "anyOf", "allOf", condition, yes, "allOf", "not",
                              condition, no));
}

static rf_status rewrite_dependent(struct rf_schema *schema, uint32_t place, json_t *value, json_t *all) {
    const char *key;
    json_t *needs;
    if (!json_is_object(value)) return rf_schema_fail(schema, RF_E_SYNTAX, place, "dependencies are not an object");
    json_object_foreach(value, key, needs) {
        json_t *there;
        if (json_is_array(needs)) {
            json_t *names = json_copy(needs);
            json_array_append_new(names, text(key));
            there = json_pack("{s:o}", "required", names);
        } else {
            there = json_pack("{s:[s],s:[O]}", "required", key, "allOf", needs);
        }
        RF_TRY(add(all, json_pack("{s:[{s:{s:b}},o]}", "anyOf", "properties", key, 0, there)));
    }
    return RF_OK;
}

rf_status rf_rewrite(struct rf_schema *schema, const struct rf_member *member, const json_t **made, uint32_t *done) {
    static const char *const dependent[] = {"dependentRequired", "dependentSchemas", "dependencies"};
    *done = RF_DID_NOT;
    *made = NULL;
    if (member->done & RF_DID_NOT) return RF_OK;
    json_t *all = json_array(), *value = json_object_get(member->schema, "not");
    rf_status status = all ? RF_OK : rf_fail(RF_E_NO_MEMORY, "no host memory for a schema");
    if (!status && value) status = rewrite_not(schema, member->place, value, all);
    if (!status && json_object_get(member->schema, "if")) status = rewrite_if(member->schema, all);
    for (size_t i = 0; i < RF_COUNT(dependent) && !status; i++)
        if ((value = json_object_get(member->schema, dependent[i])))
            status = rewrite_dependent(schema, member->place, value, all);
    if (status || !json_array_size(all)) {
        json_decref(all);
        return status;
    }
    json_t *choice = json_pack("[{s:o}]", "allOf", all);
    RF_TRY(rf_schema_keep(schema, choice));
    *made = choice;
    return RF_OK;
}
