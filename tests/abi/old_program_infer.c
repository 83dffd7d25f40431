/* Model files, tokenizers, engines and sessions, as a program of 0.1.0 uses them. Its rf_generate_params holds the
 * sampling parameters, and its rf_generate_result and rf_chat_message have no size. */
#include "old_program.h"

static bool add_part(void *user, const struct rf_model_part *part) {
    CHECK(part->struct_size >= sizeof *part && part->tensor_count && part->weight_bytes);
    *(uint64_t *)user += part->tensor_count;
    return true;
}

static void use_tokenizer(const struct rf_tokenizer *tokenizer) {
    static const char text[] = "Once upon a time";
    SIZED(struct rf_tokenizer_info, info);
    SIZED(struct rf_token_info, token);
    RF_PARAMS(struct rf_encode_params, encode);
    RF_PARAMS(struct rf_decode_params, decode);
    int32_t *ids = NULL;
    size_t count = 0, bytes = 0;
    char *back = NULL;
    struct rf_detokenizer *detokenizer = NULL;
    OK(rf_tokenizer_get_info(tokenizer, &info.it));
    FILLED(info);
    CHECK(*info.it.family && info.it.token_count > 100);
    encode.no_bos = encode.no_eos = true;
    encode.parse_special = true;
    OK(rf_tokenizer_encode(tokenizer, text, strlen(text), &encode, &ids, &count));
    CHECK(count > 1 && count < strlen(text) && ids[0] != info.it.bos);
    OK(rf_tokenizer_token(tokenizer, ids[0], &token.it));
    FILLED(token);
    CHECK(token.it.text_bytes && token.it.piece_bytes && token.it.type == RF_TOKEN_NORMAL);
    OK(rf_tokenizer_decode(tokenizer, ids, count, &decode, &back, &bytes));
    CHECK(bytes == strlen(text) && !strcmp(back, text));
    decode.replace_invalid = true;
    decode.show_special = true;
    OK(rf_detokenizer_create(tokenizer, &decode, &detokenizer));
    rf_detokenizer_destroy(&detokenizer);
    rf_text_destroy(&back);
    rf_token_ids_destroy(&ids);
}

void use_model(const char *path) {
    struct rf_gguf *gguf = NULL;
    struct rf_tokenizer *tokenizer = NULL;
    SIZED(struct rf_gguf_info, info);
    SIZED(struct rf_gguf_metadata, value);
    SIZED(struct rf_gguf_metadata, first);
    SIZED(struct rf_gguf_tensor_info, tensor);
    OK(rf_gguf_open(path, &gguf));
    OK(rf_gguf_get_info(gguf, &info.it));
    FILLED(info);
    CHECK(info.it.version >= 2 && info.it.tensor_count && info.it.file_count == 1 && *info.it.architecture);
    OK(rf_gguf_metadata_at(gguf, 0, &first.it));
    FILLED(first);
    CHECK(*first.it.key && *first.it.type_name && *first.it.shown);
    OK(rf_gguf_metadata_find(gguf, "general.architecture", &value.it));
    FILLED(value);
    CHECK(value.it.type == RF_GGUF_STRING && value.it.text_bytes == strlen(info.it.architecture));
    CHECK(!memcmp(value.it.text, info.it.architecture, value.it.text_bytes));
    OK(rf_gguf_metadata_element(gguf, "tokenizer.ggml.tokens", 2, &value.it));
    FILLED(value);
    CHECK(value.it.type == RF_GGUF_STRING && !strcmp(value.it.key, "tokenizer.ggml.tokens"));
    OK(rf_gguf_tensor_info_at(gguf, 0, &tensor.it));
    FILLED(tensor);
    CHECK(*tensor.it.name && tensor.it.rank >= 1 && tensor.it.shape[0] && tensor.it.bytes);
    uint64_t tensors = 0, bytes = 0;
    OK(rf_gguf_visit_parts(gguf, add_part, &tensors));
    CHECK(tensors == info.it.tensor_count);
    OK(rf_gguf_kv_bytes(gguf, 64, RF_F16, &bytes));
    CHECK(bytes);
    OK(rf_tokenizer_from_gguf(gguf, &tokenizer));
    use_tokenizer(tokenizer);
    rf_tokenizer_destroy(&tokenizer);
    rf_gguf_close(&gguf);
}

enum { ANSWER = 4 }; /* the simulated GPU takes its time */
struct answer {
    int32_t tokens[ANSWER];
    size_t count;
    char text[512];
};
static bool keep_token(void *user, int32_t token) {
    struct answer *answer = user;
    CHECK(answer->count < ANSWER);
    answer->tokens[answer->count++] = token;
    return true;
}
static bool keep_text(void *user, const char *text, size_t bytes) {
    struct answer *answer = user;
    CHECK(strlen(answer->text) + bytes < sizeof answer->text);
    strncat(answer->text, text, bytes);
    return true;
}

static struct answer generate(struct rf_session *session, const int32_t *ids, size_t count, float temperature,
                              uint32_t top_k, uint64_t seed) {
    struct answer answer = {.count = 0};
    RF_PARAMS(struct rf_generate_params, params);
    GUARDED(struct rf_generate_result, result);
    static const char *const stops[] = {"no such text"};
    params.sampling.temperature = temperature; /* its struct_size was never looked at */
    params.sampling.top_k = top_k;
    params.sampling.top_p = 0.95f;
    params.sampling.penalty = 1.3f;
    params.sampling.penalty_window = 16;
    params.sampling.seed = seed;
    params.max_tokens = ANSWER;
    params.stops = stops;
    params.stop_count = 1;
    params.ignore_end = true;
    params.token = keep_token;
    params.text = keep_text;
    params.user = &answer;
    memset(&result.it, GUARD, sizeof result.it);
    OK(rf_session_rewind(session, 0));
    OK(rf_session_eval(session, ids, count, false, NULL));
    OK(rf_session_generate(session, &params, &result.it));
    UNTOUCHED(result);
    CHECK(result.it.end == RF_END_LENGTH && result.it.tokens == ANSWER && answer.count == ANSWER && *answer.text);
    CHECK(result.it.first_ns > 0 && result.it.rest_ns > 0);

    /* The same by hand. */
    RF_PARAMS(struct rf_sample_params, sample);
    size_t bytes = sizeof sample.struct_size;
    memcpy((char *)&sample + bytes, (char *)&params.sampling + bytes, sizeof sample - bytes);
    OK(rf_session_rewind(session, 0));
    OK(rf_session_eval(session, ids, count, false, NULL));
    for (int i = 0; i < ANSWER; i++) {
        int32_t token = -1;
        OK(rf_session_sample(session, &sample, &token));
        CHECK(token == answer.tokens[i]);
        OK(rf_session_eval(session, &token, 1, false, NULL));
    }
    return answer;
}

static bool progress(void *user, uint64_t done, uint64_t total) {
    CHECK(done <= total);
    ++*(int *)user;
    return true;
}

void use_engine(const char *path, const char *device) {
    struct rf_engine *engine = NULL;
    struct rf_session *session = NULL;
    RF_PARAMS(struct rf_engine_params, params);
    SIZED(struct rf_engine_info, info);
    int steps = 0;
    params.runtime = runtime;
    params.model = path;
    params.device = device;
    params.budget = "512MiB";
    params.context = 96;
    params.sessions = 1;
    params.kv = RF_KV_F32;
    params.threads = 2;
    params.batch = 32;
    params.progress = progress;
    params.user = &steps;
    OK(rf_engine_open(&params, &engine));
    OK(rf_engine_get_info(engine, &info.it));
    FILLED(info);
    CHECK(info.it.context == 96 && info.it.kv == RF_KV_F32 && info.it.layers && info.it.vocabulary);
    CHECK(info.it.device_layers == (strcmp(device, "cpu") ? info.it.layers : 0));
    CHECK(strcmp(device, "cpu") ? steps > 0 : steps == 0); /* the CPU reads the mapped file */
    OK(rf_session_create(engine, &session));

    static const char prompt[] = "Once upon a time";
    int32_t *ids = NULL;
    size_t count = 0;
    OK(rf_tokenizer_encode(rf_engine_tokenizer(engine), prompt, strlen(prompt), NULL, &ids, &count));
    /* What is sampled follows the parameters in the struct: the best token, then drawn with two seeds. */
    struct answer best = generate(session, ids, count, 0, 0, 1);
    struct answer drawn = generate(session, ids, count, 1.5f, 200, 1);
    struct answer other = generate(session, ids, count, 1.5f, 200, 2);
    CHECK(memcmp(best.tokens, drawn.tokens, sizeof best.tokens));
    CHECK(memcmp(drawn.tokens, other.tokens, sizeof drawn.tokens));
    CHECK(rf_session_generate(session, NULL, NULL) == RF_E_INVALID);
    rf_token_ids_destroy(&ids);

    const struct rf_chat_message messages[] = {{RF_CHAT_SYSTEM, "Be brief."}, {RF_CHAT_USER, "Why?"}};
    RF_PARAMS(struct rf_decode_params, decode);
    char *text = NULL;
    size_t bytes = 0;
    decode.show_special = true;
    OK(rf_chat_encode(engine, RF_CHAT_CHATML, messages, 2, &ids, &count));
    OK(rf_tokenizer_decode(rf_engine_tokenizer(engine), ids, count, &decode, &text, &bytes));
    CHECK(strstr(
        text, "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n"));
    rf_text_destroy(&text);
    rf_token_ids_destroy(&ids);
    rf_session_destroy(&session);
    OK(rf_engine_close(&engine));
}
