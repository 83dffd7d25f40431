/* A model continues a text: open, encode, evaluate, generate, close.
 *
 *     build/examples/generate model.gguf "Once upon a time"
 *
 * It runs on the best GPU within its budget, on the CPU if there is none, and on both if the model does not fit; the
 * program is the same in each case. Exit status: 0 done, 1 failed, 2 wrong usage. */
#include <stdio.h>
#include <string.h>

#include <rocmforge/rocmforge.h>

/* Every failure has a name and one line that says what to do. Returns whether the call went well. */
static bool went_well(rf_status status, const char *what) {
    if (status != RF_OK) fprintf(stderr, "generate: %s: %s: %s\n", what, rf_status_name(status), rf_error_text());
    return status == RF_OK;
}

/* Text arrives as it is generated, in whole characters; returning false would stop the generation. */
static bool show(void *user, const char *text, size_t bytes) {
    (void)user;
    return fwrite(text, 1, bytes, stdout) == bytes && fflush(stdout) == 0;
}

/* A session is one timeline of tokens. Several sessions may generate at once, each in a thread of its own. */
static bool go_on(struct rf_session *session, const struct rf_tokenizer *tokenizer, const char *prompt) {
    int32_t *tokens = NULL;
    size_t count = 0;
    RF_PARAMS(struct rf_sample_params, sampling);
    RF_PARAMS(struct rf_generate_params, params);
    RF_PARAMS(struct rf_generate_result, result);
    sampling.temperature = 0.8f; /* 0, the default, always takes the best token */
    sampling.top_k = 40;
    sampling.seed = 42; /* the same seed gives the same text */
    params.sampling = &sampling;
    params.max_tokens = 32;
    params.text = show;
    bool well =
        went_well(rf_tokenizer_encode(tokenizer, prompt, strlen(prompt), NULL, &tokens, &count), "encoding") &&
        went_well(rf_session_eval(session, tokens, count, false, NULL), "reading the prompt") &&
        went_well(rf_session_generate(session, &params, &result), "generating");
    rf_token_ids_destroy(&tokens);
    if (well) printf("\n[%zu tokens read, %u written]\n", count, result.tokens);
    return well;
}

int main(int argc, char **argv) {
    struct rf_runtime *runtime = NULL;
    struct rf_engine *engine = NULL;
    struct rf_session *session = NULL;
    if (argc != 3) {
        fprintf(stderr, "usage: generate MODEL.gguf TEXT\n");
        return 2;
    }
    bool well = went_well(rf_runtime_create(NULL, &runtime), "starting");

    /* An engine is a loaded model: weights and KV caches, on the GPU as far as they fit. Layers that do not fit the
     * GPU run on the CPU. */
    RF_PARAMS(struct rf_engine_params, params);
    params.runtime = runtime;
    params.model = argv[1];
    params.context = 256; /* tokens; 0 would take as many as the model was trained for */
    well = well && went_well(rf_engine_open(&params, &engine), "opening the model");

    RF_PARAMS(struct rf_engine_info, info);
    if (well && went_well(rf_engine_get_info(engine, &info), "asking about it"))
        printf("%s on %s, %u of %u layers on a GPU\n", info.architecture, info.device, info.device_layers,
               info.layers);
    if (well && !rf_engine_tokenizer(engine)) {
        fprintf(stderr, "generate: %s has no vocabulary\n", argv[1]);
        well = false;
    }
    well = well && went_well(rf_session_create(engine, &session), "a session") &&
           go_on(session, rf_engine_tokenizer(engine), argv[2]);

    /* Sessions first, then the engine, then the runtime; also after a failure. */
    rf_session_destroy(&session);
    well = went_well(rf_engine_close(&engine), "closing the model") && well;
    rf_runtime_destroy(&runtime);
    return well ? 0 : 1;
}
