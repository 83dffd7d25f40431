/* Making grammars: one notation or the other, compiled to a program. */
#include "grammar/gbnf.h"
#include "grammar/grammar_impl.h"
#include "grammar/json_text.h"
#include "grammar/regex.h"
#include "grammar/schema.h"

#include <stdlib.h>

#include "runtime/host_memory.h"
#include "runtime/runtime.h"

enum { TEXT_MAX = 16 << 20 };

static rf_status compile_json(struct rf_program *program) {
    struct rf_json_nodes json;
    RF_TRY(rf_add_json(program, &json));
    return rf_add_sequence(program, (uint32_t[]){json.front, json.any_object}, 2, &program->root);
}

static rf_status compile(struct rf_program *program, const struct rf_grammar_params *params) {
    static const char *const names[] = {"JSON", "the schema", "the grammar", "the regular expression"};
    const char *what = params->name ? params->name : names[params->kind];
    rf_status status = RF_OK;
    switch (params->kind) {
    case RF_GRAMMAR_JSON: status = compile_json(program); break;
    case RF_GRAMMAR_JSON_SCHEMA: status = rf_schema_compile(program, params->text, params->bytes, what); break;
    case RF_GRAMMAR_GBNF: status = rf_gbnf_compile(program, params->text, params->bytes, what); break;
    case RF_GRAMMAR_REGEX:
        status = rf_add_regex(program, params->text, params->bytes, RF_REGEX_WHOLE, what, &program->root);
        break;
    }
    return status ? status : rf_program_finish(program, what);
}

rf_status rf_grammar_create(const struct rf_grammar_params *params, struct rf_grammar **out) {
    struct rf_grammar_params own;
    RF_TRY(RF_PARAMS_READ(struct rf_grammar_params, &own, params, "rf_grammar_create"));
    if (!out || (unsigned)own.kind > RF_GRAMMAR_REGEX || (own.bytes && !own.text))
        return rf_fail(RF_E_INVALID, "rf_grammar_create: out or text is NULL, or the kind is not known");
    if (own.bytes > TEXT_MAX)
        return rf_fail(RF_E_NO_MEMORY, "rf_grammar_create: %zu bytes; a grammar has at most %d", own.bytes, TEXT_MAX);
    if (!own.text) own.text = "";
    struct rf_account account = {.bytes = 0};
    if (own.runtime) account = rf_host_account(&own.runtime->host);
    struct rf_grammar *grammar = calloc(1, sizeof *grammar);
    if (!grammar) return rf_fail(RF_E_NO_MEMORY, "no host memory for a grammar");
    rf_program_init(&grammar->program, &account);
    rf_status status = compile(&grammar->program, &own);
    if (status) {
        rf_grammar_destroy(&grammar);
        return status;
    }
    *out = grammar;
    return RF_OK;
}

void rf_grammar_destroy(struct rf_grammar **grammar) {
    if (!grammar || !*grammar) return;
    rf_program_destroy(&(*grammar)->program);
    free(*grammar);
    *grammar = NULL;
}
