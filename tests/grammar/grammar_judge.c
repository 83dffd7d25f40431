/* Grammars for tests in other languages: reads requests, one JSON object a line, and answers each with one.
 *
 *   {"kind": "schema"|"gbnf"|"regex"|"json", "text": "…", "inputs": ["…", …]}
 *   {"refused": "RF_E_…", "why": "…"}  or  {"accepts": [true, …]}
 *
 * An input is accepted where the whole of it follows the grammar and is complete. "limit" for an input means that a
 * limit of the matcher was reached. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rocmforge/rocmforge.h>

static json_t *judge(struct rf_grammar *grammar, const json_t *inputs) {
    json_t *accepts = json_array();
    struct rf_grammar_matcher *matcher = NULL;
    if (rf_grammar_matcher_create(grammar, &matcher))
        return json_pack("{s:s,s:s}", "refused", "matcher", "why", rf_error_text());
    for (size_t i = 0; i < json_array_size(inputs); i++) {
        const json_t *input = json_array_get(inputs, i);
        rf_grammar_matcher_reset(matcher);
        rf_status status =
            rf_grammar_matcher_push(matcher, json_string_value(input), (size_t)json_string_length(input));
        if (status == RF_E_NO_MEMORY)
            json_array_append_new(accepts, json_string("limit"));
        else
            json_array_append_new(accepts, json_boolean(!status && rf_grammar_matcher_is_complete(matcher)));
    }
    rf_grammar_matcher_destroy(&matcher);
    return json_pack("{s:o}", "accepts", accepts);
}

static json_t *answer(const json_t *request) {
    static const char *const kinds[] = {"json", "schema", "gbnf", "regex"};
    RF_PARAMS(struct rf_grammar_params, params);
    const char *kind = json_string_value(json_object_get(request, "kind"));
    const json_t *text = json_object_get(request, "text");
    struct rf_grammar *grammar = NULL;
    for (int i = 0; kind && i < 4; i++)
        if (!strcmp(kind, kinds[i])) params.kind = (enum rf_grammar_kind)i;
    params.text = json_string_value(text);
    params.bytes = json_string_length(text);
    rf_status status = rf_grammar_create(&params, &grammar);
    if (status) return json_pack("{s:s,s:s}", "refused", rf_status_name(status), "why", rf_error_text());
    json_t *made = judge(grammar, json_object_get(request, "inputs"));
    rf_grammar_destroy(&grammar);
    return made;
}

int main(void) {
    char *line = NULL;
    size_t size = 0;
    while (getline(&line, &size, stdin) > 0) {
        json_t *request = json_loads(line, JSON_ALLOW_NUL, NULL);
        json_t *made = request ? answer(request) : json_pack("{s:s,s:s}", "refused", "request", "why", "not JSON");
        char *text = json_dumps(made, JSON_COMPACT);
        puts(text ? text : "{\"refused\":\"answer\",\"why\":\"not UTF-8\"}");
        fflush(stdout);
        free(text);
        json_decref(made);
        json_decref(request);
    }
    free(line);
    return 0;
}
