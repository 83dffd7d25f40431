/* Generations that follow a grammar, for tests in Python: reads requests, one JSON object a line, and answers each.
 *
 *   grammar_runs MODEL
 *   {"kind": "schema"|"gbnf"|"regex"|"json", "text": "…", "prompt": "…", "seed": 1, "temperature": 1, "max_tokens":
 * 200}
 *   {"refused": "RF_E_…", "why": "…"}  or  {"end": "grammar"|"token"|"length"|…, "hex": "the text's bytes"} */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rocmforge/rocmforge.h>

struct said {
    char hex[1 << 20];
    size_t at;
};
static bool take_text(void *user, const char *text, size_t bytes) {
    struct said *said = user;
    for (size_t i = 0; i < bytes && said->at + 3 < sizeof said->hex; i++)
        said->at += (size_t)sprintf(said->hex + said->at, "%02x", (unsigned char)text[i]);
    return true;
}

static json_t *refused(rf_status status) {
    return json_pack("{s:s,s:s}", "refused", rf_status_name(status), "why", rf_error_text());
}

static json_t *answer(struct rf_engine *engine, struct rf_session *session, struct said *said,
                      const json_t *request) {
    static const char *const kinds[] = {"json", "schema", "gbnf", "regex"};
    static const char *const ends[] = {"length", "token", "stop", "caller", "context", "grammar"};
    RF_PARAMS(struct rf_grammar_params, params);
    const char *kind = json_string_value(json_object_get(request, "kind"));
    const char *prompt = json_string_value(json_object_get(request, "prompt"));
    const json_t *text = json_object_get(request, "text");
    struct rf_grammar *grammar = NULL;
    for (int i = 0; kind && i < 4; i++)
        if (!strcmp(kind, kinds[i])) params.kind = (enum rf_grammar_kind)i;
    params.text = json_string_value(text);
    params.bytes = json_string_length(text);
    rf_status status = rf_grammar_create(&params, &grammar);
    if (status) return refused(status);
    int32_t *ids = NULL;
    size_t count = 0;
    status = rf_tokenizer_encode(rf_engine_tokenizer(engine), prompt ? prompt : "", prompt ? strlen(prompt) : 0, NULL,
                                 &ids, &count);
    if (!status) status = rf_session_rewind(session, 0);
    if (!status) status = rf_session_eval(session, ids, count, false, NULL);
    RF_PARAMS(struct rf_sample_params, sampling);
    RF_PARAMS(struct rf_generate_params, generate);
    RF_PARAMS(struct rf_generate_result, result);
    sampling.temperature = (float)json_number_value(json_object_get(request, "temperature"));
    sampling.seed = (uint64_t)json_integer_value(json_object_get(request, "seed"));
    generate.sampling = &sampling;
    generate.grammar = grammar;
    generate.max_tokens = (uint32_t)json_integer_value(json_object_get(request, "max_tokens"));
    generate.text = take_text;
    generate.user = said;
    said->at = 0;
    said->hex[0] = 0;
    if (!status) status = rf_session_generate(session, &generate, &result);
    json_t *made =
        status ? refused(status)
               : json_pack("{s:s,s:s,s:i}", "end", ends[result.end], "hex", said->hex, "tokens", (int)result.tokens);
    rf_token_ids_destroy(&ids);
    rf_grammar_destroy(&grammar);
    return made;
}

int main(int argc, char **argv) {
    struct rf_runtime *runtime = NULL;
    struct rf_engine *engine = NULL;
    struct rf_session *session = NULL;
    static struct said said;
    RF_PARAMS(struct rf_engine_params, params);
    char *line = NULL;
    size_t size = 0;
    if (argc < 2 || rf_runtime_create(NULL, &runtime)) return 2;
    params.runtime = runtime;
    params.model = argv[1];
    params.device = "cpu";
    params.threads = 1;
    if (rf_engine_open(&params, &engine) || rf_session_create(engine, &session)) {
        fprintf(stderr, "grammar_runs: %s\n", rf_error_text());
        return 1;
    }
    while (getline(&line, &size, stdin) > 0) {
        json_t *request = json_loads(line, JSON_ALLOW_NUL, NULL);
        json_t *made = answer(engine, session, &said, request);
        char *text = json_dumps(made, JSON_COMPACT);
        puts(text ? text : "{\"refused\":\"answer\",\"why\":\"not UTF-8\"}");
        fflush(stdout);
        free(text);
        json_decref(made);
        json_decref(request);
    }
    free(line);
    rf_session_destroy(&session);
    rf_engine_close(&engine);
    rf_runtime_destroy(&runtime);
    return 0;
}
