/* JSON as programs (see json_text.h). */
#include "grammar/json_text.h"

#include "grammar/chars.h"
#include "grammar/regex.h"

static rf_status add_regex(struct rf_program *program, const char *text, uint32_t *out) {
    return rf_add_regex(program, text, strlen(text), RF_REGEX_WHOLE, "json", out);
}

/* Nested at most so deep: a rule for each depth, the innermost without values inside. */
static rf_status add_values(struct rf_program *program, struct rf_json_nodes *json) {
    uint32_t scalars[] = {json->string, json->number, json->null_word, json->true_word, json->false_word};
    uint32_t scalar, open_brace, close_brace, end_array, end_object, inner, bare_close;
    RF_TRY(rf_add_choice(program, scalars, RF_COUNT(scalars), &scalar));
    RF_TRY(rf_add_text(program, "{", &open_brace));
    RF_TRY(rf_add_text(program, "}", &close_brace));
    RF_TRY(rf_add_text(program, "]", &bare_close));
    RF_TRY(rf_add_sequence(program, (uint32_t[]){json->gap, close_brace}, 2, &end_object));
    end_array = json->end_array;
    inner = scalar;
    for (int depth = RF_NESTING_MAX; depth >= 0; depth--) {
        uint32_t member, more, members, object, items, array, rule, value;
        RF_TRY(rf_add_sequence(program, (uint32_t[]){json->string, json->colon, inner}, 3, &member));
        RF_TRY(rf_add_sequence(program, (uint32_t[]){json->comma, member}, 2, &more));
        RF_TRY(rf_add_repeat(program, more, 0, RF_NO_LIMIT, &more));
        RF_TRY(rf_add_sequence(program, (uint32_t[]){member, more, end_object}, 3, &members));
        RF_TRY(rf_add_choice(program, (uint32_t[]){close_brace, members}, 2, &members));
        RF_TRY(rf_add_sequence(program, (uint32_t[]){open_brace, json->gap, members}, 3, &object));
        RF_TRY(rf_add_sequence(program, (uint32_t[]){json->comma, inner}, 2, &more));
        RF_TRY(rf_add_repeat(program, more, 0, RF_NO_LIMIT, &more));
        RF_TRY(rf_add_sequence(program, (uint32_t[]){inner, more, end_array}, 3, &items));
        RF_TRY(rf_add_choice(program, (uint32_t[]){bare_close, items}, 2, &items));
        RF_TRY(rf_add_sequence(program, (uint32_t[]){json->begin_array, items}, 2, &array));
        RF_TRY(rf_add_choice(program, (uint32_t[]){scalar, object, array}, 3, &value));
        RF_TRY(rf_add_rule(program, "value", 5, 0, &rule, &inner));
        rf_rule_set(program, rule, value);
        json->any_object = object;
        json->any_array = array;
    }
    json->any = inner;
    return RF_OK;
}

rf_status rf_add_json(struct rf_program *program, struct rf_json_nodes *json) {
    uint32_t characters, bracket;
    struct rf_chars all = {.count = 0};
    RF_TRY(add_regex(program, "( |\\n[ \\t]{0,64})?", &json->gap));
    RF_TRY(add_regex(program, "[ \\n]?", &json->front));
    RF_TRY(add_regex(program, ": ?", &json->colon));
    program->gap = json->gap;
    program->colon = json->colon;
    RF_TRY(rf_add_text(program, ",", &json->comma));
    RF_TRY(rf_add_sequence(program, (uint32_t[]){json->comma, json->gap}, 2, &json->comma));
    RF_TRY(rf_add_text(program, "[", &bracket));
    RF_TRY(rf_add_sequence(program, (uint32_t[]){bracket, json->gap}, 2, &json->begin_array));
    RF_TRY(rf_add_text(program, "]", &bracket));
    RF_TRY(rf_add_sequence(program, (uint32_t[]){json->gap, bracket}, 2, &json->end_array));
    RF_TRY(rf_add_text(program, "\"", &json->quote));
    /* Escapes of surrogates come in pairs. */
    RF_TRY(add_regex(
        program,
        "[^\\x00-\\x1f\"\\\\]|\\\\([\"\\\\/bfnrt]|u([0-9a-cA-Ce-fE-F][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}|"
        "[dD][89abAB][0-9a-fA-F]{2}\\\\u[dD][c-fC-F][0-9a-fA-F]{2}))",
        &json->character));
    RF_TRY(rf_chars_add(&all, 0, RF_CODE_MAX));
    RF_TRY(rf_add_chars(program, &all, RF_SPELL_JSON, &json->plain));
    RF_TRY(add_regex(program, "-?(0|[1-9][0-9]{0,63})(\\.[0-9]{1,64})?([eE][-+]?([0-9]{1,2}|1[0-9]{2}|2[0-3][0-9]))?",
                     &json->number));
    RF_TRY(add_regex(program, "0|-?[1-9][0-9]{0,63}", &json->integer));
    RF_TRY(rf_add_text(program, "null", &json->null_word));
    RF_TRY(rf_add_text(program, "true", &json->true_word));
    RF_TRY(rf_add_text(program, "false", &json->false_word));
    RF_TRY(rf_add_repeat(program, json->character, 0, RF_NO_LIMIT, &characters));
    RF_TRY(rf_add_sequence(program, (uint32_t[]){json->quote, characters, json->quote}, 3, &json->string));
    return add_values(program, json);
}
