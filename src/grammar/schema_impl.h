/* Compiling JSON schemas: what its files share.
 *
 * The unit of work is a conjunction: a set of schemas that one value must satisfy all. $ref and allOf add to it;
 * anyOf, oneOf, enum and the like split it into a choice of larger ones. Each conjunction becomes one rule of the
 * program, made once, so recursion through $ref is a rule that uses itself. Rules wait in a queue for their bodies:
 * nothing here recurses into a schema.
 *
 *   member       a schema of a conjunction, with the keywords of it that were dealt with; or a constant
 *   conjunction  a set of members; its rule
 *   facts        what the members of a conjunction say together, type by type
 *
 * oneOf is a choice whose alternatives must exclude each other: for each pair their conjunction is compiled too, and
 * when all is done it must have no texts (analyse.c finds out), or the schema is refused. */
#ifndef RF_GRAMMAR_SCHEMA_IMPL_H
#define RF_GRAMMAR_SCHEMA_IMPL_H

#include "base/json_read.h"
#include "grammar/json_text.h"
#include "grammar/program.h"

enum { RF_MEMBERS_MAX = 64, RF_PATTERNS_MAX = 8, RF_CONJUNCTIONS_MAX = 20000, RF_NAMES_MAX = 2000 };

enum rf_types {
    RF_TYPE_NULL = 1,
    RF_TYPE_TRUE = 2,
    RF_TYPE_FALSE = 4,
    RF_TYPE_INTEGER = 8,
    RF_TYPE_FRACTION = 16, /* numbers that are not whole */
    RF_TYPE_STRING = 32,
    RF_TYPE_ARRAY = 64,
    RF_TYPE_OBJECT = 128,
    RF_TYPES_ALL = 255,
    RF_TYPES_NUMBER = RF_TYPE_INTEGER | RF_TYPE_FRACTION
};

/* Keywords that split a conjunction, and were dealt with for a member. */
enum rf_split { RF_DID_ANYOF = 1, RF_DID_ONEOF = 2, RF_DID_ENUM = 4, RF_DID_NOT = 8 /* and if, dependent… */ };
/* A type that JSON Schema has no name for: numbers that are not whole. */
#define RF_FRACTION_NAME                                                                                             \
    "\x01"                                                                                                           \
    "fraction"
struct rf_member {
    const json_t *schema; /* or the constant */
    bool is_constant;
    uint32_t done;  /* enum rf_split */
    uint32_t place; /* of struct rf_place */
};
struct rf_place { /* "#/properties/a": a list from the end to the beginning */
    uint32_t parent;
    const char *key; /* borrowed from the tree; NULL: a number */
    uint32_t number;
};
struct rf_conjunction {
    uint32_t first, count; /* in member_ids, sorted */
    uint32_t rule, node;
};
struct rf_disjoint { /* a rule that must have no texts */
    uint32_t rule_node, place, a, b;
};
struct rf_schema {
    struct rf_program *program;
    const char *what;
    struct rf_json_tree tree;
    struct rf_json_nodes json;
    bool ref_alone; /* drafts before 2019-09: $ref hides what stands beside it */
    struct rf_list members, places, conjunctions, member_ids, disjoint;
    uint32_t *table; /* conjunction plus 1, by hash */
    json_t *made;    /* an array that owns schemas made here */
};

/* Exact decimal numbers, as schemas bound them. */
struct rf_decimal {
    bool negative;
    char whole[RF_DIGITS_MAX + 1], fraction[RF_DIGITS_MAX + 1]; /* no zeros in front; none at the end */
};
struct rf_bound {
    bool set, strict;
    struct rf_decimal value;
};

/* What a conjunction says. */
struct rf_facts {
    uint32_t types;
    uint32_t ids[RF_MEMBERS_MAX]; /* all members, those from $ref and allOf too */
    size_t count;
    /* a split that is still to be made; NULL: none */
    const json_t *choice; /* an array of schemas */
    uint32_t choice_member, choice_done, choice_place;
    bool choice_is_constants, choice_is_exclusive;
    /* numbers */
    struct rf_bound least, most;
    const json_t *multiples[RF_PATTERNS_MAX];
    size_t multiple_count;
    const json_t *number; /* a constant; NULL: none */
    bool has_number_facts;
    /* strings */
    uint32_t patterns[RF_PATTERNS_MAX]; /* nodes for what stands between the quotation marks */
    size_t pattern_count;
    uint32_t shortest, longest;
    /* arrays */
    uint32_t fewest_items, most_items;
    bool unique_items;
    uint32_t unique_place;
    bool has_array_facts;
    /* objects */
    uint32_t fewest_members, most_members;
    uint32_t fewest_place;
    bool has_object_facts;
};

/* ---- schema.c ---- */

static inline struct rf_member *rf_member(const struct rf_schema *schema, uint32_t id) {
    return (struct rf_member *)schema->members.data + id;
}
/* Fails with the place and the text. */
rf_status rf_schema_fail(const struct rf_schema *schema, rf_status status, uint32_t place, const char *format, ...)
    RF_PRINTF(4, 5);
rf_status rf_place_add(struct rf_schema *schema, uint32_t parent, const char *key, uint32_t number, uint32_t *out);
rf_status rf_member_add(struct rf_schema *schema, struct rf_member member, uint32_t *id);
/* The node of a conjunction; ids may repeat. */
rf_status rf_conjunction_node(struct rf_schema *schema, const uint32_t *ids, size_t count, uint32_t *out);
/* Keeps a schema that was made here until the end. Takes it, also on failure. */
rf_status rf_schema_keep(struct rf_schema *schema, json_t *made);
rf_status rf_schema_find(struct rf_schema *schema, uint32_t from, const char *ref, const json_t **out,
                         uint32_t *place);

/* ---- schema_gather.c ---- */

/* Collects what the members say. A split that is to be made ends the collection: the facts are not complete then. */
rf_status rf_gather(struct rf_schema *schema, const uint32_t *ids, size_t count, struct rf_facts *facts);

/* ---- schema_rewrite.c ---- */

/* "not", "if" and "dependent…" as choices of other schemas. *made: an array for a choice; NULL: nothing to rewrite.
 * RF_E_UNSUPPORTED: it cannot be done exactly. */
rf_status rf_rewrite(struct rf_schema *schema, const struct rf_member *member, const json_t **made, uint32_t *done);

/* ---- schema_emit.c ---- */

/* The values of all types that the facts allow. */
rf_status rf_emit(struct rf_schema *schema, struct rf_facts *facts, uint32_t *out);
/* What may stand between a string's quotation marks. */
rf_status rf_emit_string_body(struct rf_schema *schema, const struct rf_facts *facts, bool spelt, uint32_t *out);
rf_status rf_emit_array(struct rf_schema *schema, const struct rf_facts *facts, uint32_t *out);

/* ---- schema_object.c ---- */

rf_status rf_emit_object(struct rf_schema *schema, struct rf_facts *facts, uint32_t *out);
/* A text as JSON spells it between quotation marks, in memory from malloc. */
rf_status rf_spell_text(const char *text, size_t bytes, char **out, size_t *out_bytes);

/* ---- schema_number.c ---- */

rf_status rf_decimal_read(const json_t *number, struct rf_decimal *out); /* RF_E_UNSUPPORTED: too many digits */
int rf_decimal_compare(const struct rf_decimal *a, const struct rf_decimal *b);
rf_status rf_emit_number(struct rf_schema *schema, const struct rf_facts *facts, uint32_t *out);
rf_status rf_emit_number_constant(struct rf_schema *schema, const json_t *number, uint32_t *out);

/* ---- schema_format.c ---- */

/* A regular expression for the whole of a string of this format; NULL: not supported. */
const char *rf_format_regex(const char *format);

#endif
