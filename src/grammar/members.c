/* The members of JSON objects: any order, each name at most once, the required ones before the brace closes.
 *
 * A cell holds which names were seen, as a bit set, and how many members there are where that matters. A name's bytes
 * run through the automaton of the object's names; no byte is taken behind which only names follow that were seen, or
 * that have no room left beside those that are required. So a name that was begun can always be ended, and an object
 * can always be closed. Names are compared as they are spelt: there is one spelling for each (json_text.h). */
#include "grammar/expand.h"

/* The place in an object: behind the brace; behind a member; before a further name; before the closing brace. */
enum phase { FIRST, BEHIND, MORE, CLOSE };

struct place {
    const struct rf_object *object;
    const uint32_t *seen, *required;
    uint32_t index, at, count, seen_record, next; /* at: phase, or state of the names' automaton */
};
static struct place read_cell(const struct rf_store *store, uint32_t stack) {
    const uint32_t *data = rf_record_data(store, stack);
    const struct rf_object *object = rf_object(store->program, data[0]);
    return (struct place){.object = object,
                          .seen = rf_record_data(store, data[3]),
                          .required = rf_bits(store->program, object->required),
                          .index = data[0],
                          .at = data[1],
                          .count = data[2],
                          .seen_record = data[3],
                          .next = data[4]};
}

static uint32_t missing(const struct place *place) {
    uint32_t missing = 0;
    for (uint32_t i = 0; i < place->object->bit_words; i++)
        missing += (uint32_t)__builtin_popcount(place->required[i] & ~place->seen[i]);
    return missing;
}

static bool may_close(const struct place *place) {
    return place->count >= place->object->least && !missing(place);
}

/* Whether a member that is not required has room. */
static bool has_room(const struct place *place) {
    return place->object->most == RF_NO_LIMIT || place->object->most - place->count > missing(place);
}

/* Whether a name can be ended from this state on. */
static bool may_name(const struct rf_program *program, const struct place *place, uint32_t at, bool room) {
    const struct rf_dfa_state *state = rf_dfa_state(program, at);
    if (room && state->open) return true;
    for (uint32_t word = state->first_name / 32; word * 32 < state->last_name; word++) {
        uint32_t names = ~place->seen[word] & (room ? UINT32_MAX : place->required[word]);
        if (word == state->first_name / 32) names &= UINT32_MAX << state->first_name % 32;
        if (word == state->last_name / 32) names &= ~(UINT32_MAX << state->last_name % 32);
        if (names) return true;
    }
    return false;
}

static void add_members(struct rf_store *store, uint32_t object, enum phase phase, uint32_t count, uint32_t seen,
                        uint32_t next, bool behind_gap) {
    uint32_t cell[] = {object, phase, count, seen, next};
    uint32_t stack = rf_record_make(store, RF_RECORD_MEMBERS, cell, 5);
    uint32_t gap[] = {store->program->gap, stack};
    if (stack && behind_gap) stack = rf_record_make(store, RF_RECORD_NODE, gap, 2);
    rf_store_add(store, stack);
}

void rf_members_begin(struct rf_store *store, uint32_t index, uint32_t next) {
    const struct rf_object *object = rf_object(store->program, index);
    uint32_t seen = rf_record_make(store, RF_RECORD_BITS, rf_bits(store->program, object->never), object->bit_words);
    if (seen) add_members(store, index, FIRST, 0, seen, next, true);
}

bool rf_members_expand(struct rf_store *store, uint32_t stack) {
    if (rf_record_kind(store, stack) == RF_RECORD_KEY) return true;
    struct place place = read_cell(store, stack);
    if (place.at != BEHIND) return true;
    if (may_close(&place)) add_members(store, place.index, CLOSE, place.count, place.seen_record, place.next, true);
    return true;
}

/* The name is complete: its value follows. */
static void end_name(struct rf_store *store, const struct place *place) {
    const struct rf_program *program = store->program;
    const struct rf_object *object = place->object;
    uint32_t label = rf_dfa_state(program, place->at)->label, name = label - 1, value, seen = place->seen_record;
    bool room = has_room(place);
    if (!label) return;
    if (name < object->name_count) {
        bool required = place->required[name / 32] >> name % 32 & 1;
        if (place->seen[name / 32] >> name % 32 & 1 || !(required || room)) return;
        value = rf_link(program, object->values + name);
        uint32_t few[64], *bits = few;
        rf_assert(object->bit_words <= RF_COUNT(few));
        memcpy(bits, place->seen, object->bit_words * sizeof *bits);
        bits[name / 32] |= 1u << name % 32;
        seen = rf_record_make(store, RF_RECORD_BITS, bits, object->bit_words);
    } else {
        value = rf_link(program, object->open_values + name - object->name_count);
        if (!room || !rf_node(program, value)->productive) return;
    }
    uint32_t count = place->count + 1;
    if (object->most == RF_NO_LIMIT) count = RF_MIN(count, object->least);
    uint32_t behind[] = {place->index, BEHIND, count, seen, place->next};
    uint32_t next = seen ? rf_record_make(store, RF_RECORD_MEMBERS, behind, 5) : 0;
    uint32_t cell[] = {value, next};
    next = next ? rf_record_make(store, RF_RECORD_NODE, cell, 2) : 0;
    uint32_t colon[] = {program->colon, next};
    if (next) rf_store_add(store, rf_record_make(store, RF_RECORD_NODE, colon, 2));
}

static void step_name(struct rf_store *store, const struct place *place, uint8_t byte) {
    const struct rf_edge *edge = rf_dfa_edge(store->program, place->at, byte);
    if (byte == '"' && !edge) { /* behind a backslash it is part of the name, and has an edge */
        end_name(store, place);
        return;
    }
    if (!edge || !may_name(store->program, place, edge->target, has_room(place))) return;
    uint32_t cell[] = {place->index, edge->target, place->count, place->seen_record, place->next};
    rf_store_add(store, rf_record_make(store, RF_RECORD_KEY, cell, 5));
}

void rf_members_step(struct rf_store *store, uint32_t stack, uint8_t byte) {
    struct place place = read_cell(store, stack);
    if (rf_record_kind(store, stack) == RF_RECORD_KEY) {
        step_name(store, &place, byte);
        return;
    }
    bool may_go_on = may_name(store->program, &place, place.object->keys, has_room(&place));
    if (byte == '}' && (place.at == CLOSE || (place.at == FIRST && may_close(&place)))) {
        rf_store_add(store, place.next);
    } else if (byte == ',' && place.at == BEHIND && may_go_on) {
        add_members(store, place.index, MORE, place.count, place.seen_record, place.next, true);
    } else if (byte == '"' && (place.at == FIRST || place.at == MORE) && may_go_on) {
        uint32_t cell[] = {place.index, place.object->keys, place.count, place.seen_record, place.next};
        rf_store_add(store, rf_record_make(store, RF_RECORD_KEY, cell, 5));
    }
}

void rf_members_mark(const struct rf_store *store, uint32_t stack, uint64_t marks[256]) {
    struct place place = read_cell(store, stack);
    if (rf_record_kind(store, stack) != RF_RECORD_KEY) {
        static const char taken[] = "},\"";
        for (const char *byte = taken; *byte; byte++) rf_mark(&marks[(uint8_t)*byte], (uint64_t)*byte << 32 | stack);
        return;
    }
    const struct rf_dfa_state *state = rf_dfa_state(store->program, place.at);
    bool room = has_room(&place);
    if (state->label) rf_mark(&marks['"'], UINT64_C(1) << 63 | stack);
    for (uint32_t i = 0; i < state->edge_count; i++) {
        const struct rf_edge *edge = rf_edge(store->program, state->first_edge + i);
        if (!may_name(store->program, &place, edge->target, room)) continue;
        for (unsigned byte = edge->low; byte <= edge->high; byte++)
            rf_mark(&marks[byte], (uint64_t)edge->target << 32 | stack);
    }
}
