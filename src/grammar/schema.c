/* JSON schemas: members, conjunctions and the queue of rules (see schema_impl.h). */
#include "grammar/schema.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "grammar/schema_impl.h"

enum { TABLE = 1 << 16 };

/* ---- places ---- */

static void write_place(const struct rf_schema *schema, uint32_t place, char *out, size_t size) {
    uint32_t path[24];
    size_t count = 0, at = 0;
    const struct rf_place *places = schema->places.data;
    for (; place && count < RF_COUNT(path); place = places[place].parent) path[count++] = place;
    at += (size_t)snprintf(out, size, place ? "#/…" : "#");
    while (count-- && at < size) {
        const struct rf_place *part = &places[path[count]];
        if (part->key)
            at += (size_t)snprintf(out + at, size - at, "/%.60s", part->key);
        else
            at += (size_t)snprintf(out + at, size - at, "/%u", part->number);
    }
}

rf_status rf_schema_fail(const struct rf_schema *schema, rf_status status, uint32_t place, const char *format, ...) {
    char where[512], text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    write_place(schema, place, where, sizeof where);
    return rf_fail(status, "%s: %s: %s", schema->what, where, text);
}

rf_status rf_place_add(struct rf_schema *schema, uint32_t parent, const char *key, uint32_t number, uint32_t *out) {
    struct rf_place place = {parent, key, number};
    return rf_list_add(schema->program, &schema->places, &place, 1, sizeof place, out);
}

/* ---- members and conjunctions ---- */

rf_status rf_member_add(struct rf_schema *schema, struct rf_member member, uint32_t *id) {
    uint32_t hash =
        (uint32_t)(((uintptr_t)member.schema >> 4) * 2654435761u) + member.done * 40503u + member.is_constant;
    uint32_t slot = hash % TABLE, *table = schema->table + TABLE;
    for (; table[slot]; slot = (slot + 1) % TABLE) {
        const struct rf_member *known = rf_member(schema, table[slot] - 1);
        if (known->schema == member.schema && known->done == member.done &&
            known->is_constant == member.is_constant) {
            *id = table[slot] - 1;
            return RF_OK;
        }
    }
    if (schema->members.count >= TABLE / 2)
        return rf_schema_fail(schema, RF_E_NO_MEMORY, member.place, "the schema has too many parts; make it smaller");
    RF_TRY(rf_list_add(schema->program, &schema->members, &member, 1, sizeof member, id));
    table[slot] = *id + 1;
    return RF_OK;
}

static int by_number(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

rf_status rf_conjunction_node(struct rf_schema *schema, const uint32_t *ids, size_t count, uint32_t *out) {
    uint32_t sorted[RF_MEMBERS_MAX], kept = 0, hash = 17;
    if (!count) {
        *out = schema->json.any;
        return RF_OK;
    }
    if (count > RF_MEMBERS_MAX)
        return rf_schema_fail(schema, RF_E_NO_MEMORY, rf_member(schema, ids[0])->place,
                              "more than %d schemas apply to one value", RF_MEMBERS_MAX);
    memcpy(sorted, ids, count * sizeof *ids);
    qsort(sorted, count, sizeof *sorted, by_number);
    for (size_t i = 0; i < count; i++)
        if (!kept || sorted[kept - 1] != sorted[i]) sorted[kept++] = sorted[i];
    for (uint32_t i = 0; i < kept; i++) hash = (hash ^ sorted[i]) * 2654435761u;
    uint32_t slot = (hash >> 3) % TABLE;
    for (; schema->table[slot]; slot = (slot + 1) % TABLE) {
        const struct rf_conjunction *known =
            (const struct rf_conjunction *)schema->conjunctions.data + schema->table[slot] - 1;
        if (known->count == kept &&
            !memcmp((const uint32_t *)schema->member_ids.data + known->first, sorted, kept * sizeof *sorted)) {
            *out = known->node;
            return RF_OK;
        }
    }
    if (schema->conjunctions.count == RF_CONJUNCTIONS_MAX)
        return rf_schema_fail(schema, RF_E_NO_MEMORY, rf_member(schema, ids[0])->place,
                              "the schema combines into more than %d; make it simpler", RF_CONJUNCTIONS_MAX);
    struct rf_conjunction made = {.count = kept};
    uint32_t index;
    char name[256];
    write_place(schema, rf_member(schema, sorted[0])->place, name, sizeof name);
    RF_TRY(rf_list_add(schema->program, &schema->member_ids, sorted, kept, sizeof *sorted, &made.first));
    RF_TRY(rf_add_rule(schema->program, name, strlen(name), 0, &made.rule, &made.node));
    RF_TRY(rf_list_add(schema->program, &schema->conjunctions, &made, 1, sizeof made, &index));
    schema->table[slot] = index + 1;
    *out = made.node;
    return RF_OK;
}

rf_status rf_schema_keep(struct rf_schema *schema, json_t *made) {
    if (!made || json_array_append_new(schema->made, made))
        return rf_fail(RF_E_NO_MEMORY, "%s: no host memory", schema->what);
    if (json_array_size(schema->made) > RF_CONJUNCTIONS_MAX)
        return rf_fail(RF_E_NO_MEMORY, "%s: the schema combines into too many; make it simpler", schema->what);
    return RF_OK;
}

/* ---- references ---- */

static int hex(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

/* One part of a pointer, without its escapes. */
static size_t read_part(const char **at, char *out, size_t size) {
    size_t count = 0;
    while (**at && **at != '/' && count + 1 < size) {
        char c = *(*at)++;
        if (c == '%' && hex((*at)[0]) >= 0 && hex((*at)[1]) >= 0) {
            c = (char)(hex((*at)[0]) * 16 + hex((*at)[1]));
            *at += 2;
        }
        if (c == '~' && (**at == '0' || **at == '1')) c = *(*at)++ == '0' ? '~' : '/';
        out[count++] = c;
    }
    out[count] = 0;
    return count;
}

rf_status rf_schema_find(struct rf_schema *schema, uint32_t from, const char *ref, const json_t **out,
                         uint32_t *place) {
    const json_t *at = schema->tree.root, *id = json_object_get(at, "$id");
    size_t length = id && json_is_string(id) ? json_string_length(id) : 0;
    const char *rest = ref;
    char part[256];
    if (length && !strncmp(ref, json_string_value(id), length) && (ref[length] == '#' || !ref[length]))
        rest += length;
    *place = 0;
    if (*rest == '#')
        rest++;
    else if (rest == ref)
        return rf_schema_fail(schema, RF_E_UNSUPPORTED, from,
                              "$ref to \"%.100s\": only references within the schema (#…) are supported", ref);
    if (*rest && *rest != '/')
        return rf_schema_fail(schema, RF_E_UNSUPPORTED, from, "$ref to \"%.100s\": anchors are not supported", ref);
    while (*rest == '/') {
        rest++;
        read_part(&rest, part, sizeof part);
        char *end;
        unsigned long number = json_is_array(at) && *part ? strtoul(part, &end, 10) : 0;
        const json_t *next =
            json_is_array(at) ? (*part && !*end ? json_array_get(at, number) : NULL) : json_object_get(at, part);
        if (!next || (*rest && *rest != '/'))
            return rf_schema_fail(schema, RF_E_SYNTAX, from, "$ref to \"%.100s\": there is no such place", ref);
        const char *key = NULL;
        if (json_is_object(at)) key = json_object_iter_key(json_object_iter_at((json_t *)at, part));
        RF_TRY(rf_place_add(schema, *place, key, (uint32_t)number, place));
        at = next;
        if (json_is_string(json_object_get(at, "$id")) && *rest)
            return rf_schema_fail(schema, RF_E_UNSUPPORTED, from,
                                  "$ref to \"%.100s\": it passes a schema with its own $id", ref);
    }
    *out = at;
    return RF_OK;
}

/* ---- compiling ---- */

/* The choices of a split: for each alternative the members, the one that was split marked, and the alternative. */
static rf_status emit_choice(struct rf_schema *schema, const struct rf_facts *facts, uint32_t *out) {
    struct rf_program *program = schema->program;
    struct rf_member split = *rf_member(schema, facts->choice_member);
    uint32_t ids[RF_MEMBERS_MAX + 2], kept = 0, count = (uint32_t)json_array_size(facts->choice);
    struct rf_list nodes = {0}, alternatives = {0};
    rf_status status = RF_OK;
    split.done |= facts->choice_done;
    for (size_t i = 0; i < facts->count; i++)
        if (facts->ids[i] != facts->choice_member) ids[kept++] = facts->ids[i];
    status = rf_member_add(schema, split, &ids[kept++]);
    for (uint32_t i = 0; i < count && !status; i++) {
        struct rf_member member = {.schema = json_array_get(facts->choice, i),
                                   .is_constant = facts->choice_is_constants};
        uint32_t node;
        status = rf_place_add(schema, facts->choice_place, NULL, i, &member.place);
        if (!status) status = rf_member_add(schema, member, &ids[kept]);
        if (!status) status = rf_list_add(program, &alternatives, &ids[kept], 1, sizeof *ids, NULL);
        if (!status) status = rf_conjunction_node(schema, ids, kept + 1u, &node);
        if (!status) status = rf_list_add(program, &nodes, &node, 1, sizeof node, NULL);
    }
    for (uint32_t i = 0; i < count && !status && facts->choice_is_exclusive; i++)
        for (uint32_t k = i + 1; k < count && !status; k++) {
            struct rf_disjoint both = {.place = facts->choice_place, .a = i, .b = k};
            ids[kept] = ((uint32_t *)alternatives.data)[i];
            ids[kept + 1] = ((uint32_t *)alternatives.data)[k];
            status = rf_conjunction_node(schema, ids, kept + 2u, &both.rule_node);
            if (!status) status = rf_list_add(program, &schema->disjoint, &both, 1, sizeof both, NULL);
        }
    if (!status) status = rf_add_choice(program, nodes.data, nodes.count, out);
    rf_account_release(&program->account, ((uint64_t)nodes.capacity + alternatives.capacity) * sizeof(uint32_t));
    free(nodes.data);
    free(alternatives.data);
    return status;
}

static rf_status compile_rule(struct rf_schema *schema, uint32_t index) {
    struct rf_conjunction conjunction = ((const struct rf_conjunction *)schema->conjunctions.data)[index];
    uint32_t ids[RF_MEMBERS_MAX], body;
    struct rf_facts facts;
    memcpy(ids, (const uint32_t *)schema->member_ids.data + conjunction.first, conjunction.count * sizeof *ids);
    RF_TRY(rf_gather(schema, ids, conjunction.count, &facts));
    if (!facts.types)
        RF_TRY(rf_add_never(schema->program, &body));
    else if (facts.choice)
        RF_TRY(emit_choice(schema, &facts, &body));
    else
        RF_TRY(rf_emit(schema, &facts, &body));
    rf_rule_set(schema->program, conjunction.rule, body);
    return RF_OK;
}

static rf_status check_disjoint(struct rf_schema *schema) {
    if (!schema->disjoint.count) return RF_OK;
    RF_TRY(rf_program_analyse(schema->program));
    for (uint32_t i = 0; i < schema->disjoint.count; i++) {
        const struct rf_disjoint *both = (const struct rf_disjoint *)schema->disjoint.data + i;
        if (rf_node(schema->program, both->rule_node)->productive)
            return rf_schema_fail(schema, RF_E_UNSUPPORTED, both->place,
                                  "oneOf is not supported where a value may satisfy two of its schemas (%u and %u "
                                  "here); use anyOf",
                                  both->a, both->b);
    }
    return RF_OK;
}

static rf_status read_dialect(struct rf_schema *schema) {
    const json_t *dialect = json_object_get(schema->tree.root, "$schema");
    const char *name = json_string_value(dialect);
    if (!dialect) return RF_OK;
    static const char *const older[] = {"http://json-schema.org/draft-07/schema",
                                        "http://json-schema.org/draft-06/schema"};
    static const char *const newer[] = {"https://json-schema.org/draft/2020-12/schema",
                                        "https://json-schema.org/draft/2019-09/schema",
                                        "http://json-schema.org/schema"};
    for (size_t i = 0; name && i < RF_COUNT(older); i++)
        if (!strncmp(name, older[i], strlen(older[i])) &&
            (!name[strlen(older[i])] || !strcmp(name + strlen(older[i]), "#"))) {
            schema->ref_alone = true;
            return RF_OK;
        }
    for (size_t i = 0; name && i < RF_COUNT(newer); i++)
        if (!strncmp(name, newer[i], strlen(newer[i])) &&
            (!name[strlen(newer[i])] || !strcmp(name + strlen(newer[i]), "#")))
            return RF_OK;
    return rf_schema_fail(schema, RF_E_UNSUPPORTED, 0, "$schema \"%.100s\" is not supported", name ? name : "");
}

static rf_status compile(struct rf_schema *schema) {
    struct rf_program *program = schema->program;
    uint32_t id, node;
    RF_TRY(rf_place_add(schema, 0, NULL, 0, &id));
    RF_TRY(read_dialect(schema));
    RF_TRY(rf_add_json(program, &schema->json));
    RF_TRY(rf_member_add(schema, (struct rf_member){.schema = schema->tree.root}, &id));
    RF_TRY(rf_conjunction_node(schema, &id, 1, &node));
    for (uint32_t i = 0; i < schema->conjunctions.count; i++) RF_TRY(compile_rule(schema, i));
    RF_TRY(check_disjoint(schema));
    return rf_add_sequence(program, (uint32_t[]){schema->json.front, node}, 2, &program->root);
}

rf_status rf_schema_compile(struct rf_program *program, const char *text, size_t bytes, const char *what) {
    struct rf_schema schema = {.program = program, .what = what};
    struct rf_account account = rf_account_open(&program->account);
    uint64_t table_bytes = 2ull * TABLE * sizeof *schema.table;
    RF_TRY(rf_json_read(&program->account, text, bytes, what, &schema.tree));
    rf_status status = rf_account_resize(&account, (void **)&schema.table, 0, table_bytes, what);
    schema.made = json_array();
    if (!status && !schema.made) status = rf_fail(RF_E_NO_MEMORY, "%s: no host memory", what);
    if (!status) {
        memset(schema.table, 0, table_bytes);
        status = compile(&schema);
    }
    struct rf_list *lists[] = {&schema.members, &schema.places, &schema.conjunctions, &schema.member_ids,
                               &schema.disjoint};
    size_t sizes[] = {sizeof(struct rf_member), sizeof(struct rf_place), sizeof(struct rf_conjunction),
                      sizeof(uint32_t), sizeof(struct rf_disjoint)};
    for (size_t i = 0; i < RF_COUNT(lists); i++) {
        rf_account_release(&program->account, (uint64_t)lists[i]->capacity * sizes[i]);
        free(lists[i]->data);
    }
    free(schema.table);
    rf_account_close(&account);
    json_decref(schema.made);
    rf_json_tree_finish(&schema.tree);
    return status;
}
