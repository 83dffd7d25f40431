#include "infer_testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- an engine ---- */

void infer_need(const struct where *where) {
    for (int level = 0; where->simd && level < RF_SIMD_LEVELS; level++)
        if (!strcmp(where->simd, rf_simd_name((enum rf_simd_level)level)) && level != RF_SIMD_AUTO &&
            !rf_simd_table((enum rf_simd_level)level))
            RF_SKIP("this machine has no %s", where->simd);
    if (!where->rfsim || gpu_simulated()) return;
    if (*where->rfsim) RF_SKIP("needs the simulated driver");
    struct gpu gpu = {0};
    gpu_make_runtime(&gpu, NULL);
    bool there = rf_gpu_available(gpu.runtime);
    rf_runtime_destroy(&gpu.runtime);
    if (!there) RF_SKIP("no GPU");
}

rf_status infer_try_open(struct infer *infer, const struct where *where, const struct rf_engine_params *params) {
    struct rf_engine_params all = *params;
    *infer = (struct infer){0};
    if (where->rfsim && gpu_simulated()) gpu_set_sim(where->rfsim);
    gpu_make_runtime(&infer->gpu, NULL);
    all.struct_size = sizeof all;
    all.runtime = infer->gpu.runtime;
    if (!all.device) all.device = where->rfsim ? "gpu" : "cpu";
    if (!all.simd) all.simd = where->simd;
    if (!all.device_layers) all.device_layers = where->device_layers;
    if (!all.threads) all.threads = 2;
    all.no_replay = all.no_replay || where->no_replay;
    rf_status status = rf_engine_open(&all, &infer->engine);
    if (status) return status;
    RF_PARAMS(struct rf_engine_info, info);
    RF_ASSERT_OK(rf_engine_get_info(infer->engine, &info));
    infer->vocabulary = info.vocabulary;
    return RF_OK;
}

void infer_open(struct infer *infer, const struct where *where, const struct rf_engine_params *params) {
    RF_ASSERT_OK(infer_try_open(infer, where, params));
    RF_PARAMS(struct rf_engine_info, info);
    RF_ASSERT_OK(rf_engine_get_info(infer->engine, &info));
    if (where->device_layers) RF_ASSERT_UINT(info.device_layers, where->device_layers);
}

void infer_close(struct infer *infer) {
    RF_ASSERT_OK(rf_engine_close(&infer->engine));
    RF_ASSERT_NULL(infer->engine);
    rf_runtime_destroy(&infer->gpu.runtime);
    RF_EXPECT_UINT(gpu_sim_device_bytes(), 0);
    RF_EXPECT_UINT(gpu_sim_traps(), 0);
}

struct rf_engine_info infer_info(const struct infer *infer) {
    RF_PARAMS(struct rf_engine_info, info);
    RF_ASSERT_OK(rf_engine_get_info(infer->engine, &info));
    return info;
}

struct rf_session *infer_session(struct infer *infer) {
    struct rf_session *session = NULL;
    RF_ASSERT_OK(rf_session_create(infer->engine, &session));
    return session;
}

float *infer_rows(const struct infer *infer, size_t rows) {
    return allocate(rows * infer->vocabulary, sizeof(float));
}

const char *infer_model(const struct spec *spec, const char *name) {
    size_t bytes = 0;
    void *file = spec_file(spec, &bytes);
    const char *path = scratch_path(name);
    write_bytes(path, file, bytes);
    free(file);
    return path;
}

/* ---- a scripted model ---- */

int32_t script_byte(int byte) {
    return 3 + byte;
}

void script_add_bytes(struct rf_gguf_writer *writer) {
    static struct script script;
    struct rf_gguf_string texts[SCRIPT_TOKENS];
    float scores[SCRIPT_TOKENS] = {0};
    script_begin(&script, false);
    for (int32_t i = 0; i < script.count; i++)
        texts[i] = (struct rf_gguf_string){script.texts[i], strlen(script.texts[i])};
    rf_gguf_write_string(writer, "tokenizer.ggml.model", "llama");
    rf_gguf_write_strings(writer, "tokenizer.ggml.tokens", texts, (uint64_t)script.count);
    rf_gguf_write_array(writer, "tokenizer.ggml.token_type", RF_GGUF_I32, script.types, (uint64_t)script.count);
    rf_gguf_write_array(writer, "tokenizer.ggml.scores", RF_GGUF_F32, scores, (uint64_t)script.count);
}

int32_t script_add(struct script *script, const char *text, enum rf_token_type type) {
    RF_ASSERT(script->count < SCRIPT_TOKENS);
    snprintf(script->texts[script->count], sizeof script->texts[0], "%s", text);
    script->types[script->count] = (int32_t)type;
    script->next[script->count] = 2;
    return script->count++;
}

/* How gpt2 vocabularies spell a byte: a printable byte as itself, the others as letters from U+0100 on. */
static void spell_byte(int byte, char text[8]) {
    int letter = byte, others = 0;
    for (int b = 0; b <= byte; b++) {
        bool printable = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        if (b == byte && !printable) letter = 256 + others;
        others += !printable;
    }
    if (letter < 128)
        snprintf(text, 8, "%c", letter);
    else
        snprintf(text, 8, "%c%c", (char)(0xc0 | letter >> 6), (char)(0x80 | (letter & 63)));
}

void script_begin(struct script *script, bool bytes_as_letters) {
    *script = (struct script){.bytes_as_letters = bytes_as_letters, .bos = 1, .eos = 2};
    script_add(script, "<unk>", RF_TOKEN_UNKNOWN);
    script_add(script, "<s>", RF_TOKEN_CONTROL);
    script_add(script, "</s>", RF_TOKEN_CONTROL);
    for (int byte = 0; byte < 256; byte++) {
        char text[8];
        if (bytes_as_letters)
            spell_byte(byte, text);
        else
            snprintf(text, sizeof text, "<0x%02X>", (unsigned)byte);
        script_add(script, text, bytes_as_letters ? RF_TOKEN_NORMAL : RF_TOKEN_BYTE);
    }
    if (!bytes_as_letters) script_add(script, "▁", RF_TOKEN_NORMAL);
}

void script_say(struct script *script, int32_t first, const char *text, int32_t end) {
    bool seen[256] = {false};
    int32_t last = first;
    for (; *text; text++) {
        int byte = (unsigned char)*text;
        RF_ASSERT(!seen[byte]);
        seen[byte] = true;
        int32_t token = byte == ' ' && !script->bytes_as_letters ? 259 : script_byte(byte);
        script->next[last] = token;
        last = token;
    }
    script->next[last] = end;
}

static void write_vocabulary(const struct script *script, struct rf_gguf_writer *writer) {
    struct rf_gguf_string texts[SCRIPT_TOKENS], merges[16];
    float scores[SCRIPT_TOKENS] = {0};
    uint64_t merge_count = 0;
    for (int32_t i = 0; i < script->count; i++)
        texts[i] = (struct rf_gguf_string){script->texts[i], strlen(script->texts[i])};
    for (; merge_count < 16 && script->merges[merge_count]; merge_count++)
        merges[merge_count] =
            (struct rf_gguf_string){script->merges[merge_count], strlen(script->merges[merge_count])};
    rf_gguf_write_string(writer, "tokenizer.ggml.model", script->bytes_as_letters ? "gpt2" : "llama");
    rf_gguf_write_strings(writer, "tokenizer.ggml.tokens", texts, (uint64_t)script->count);
    rf_gguf_write_array(writer, "tokenizer.ggml.token_type", RF_GGUF_I32, script->types, (uint64_t)script->count);
    if (script->bytes_as_letters) {
        rf_gguf_write_string(writer, "tokenizer.ggml.pre", script->pre ? script->pre : "gpt-2");
        rf_gguf_write_strings(writer, "tokenizer.ggml.merges", merges, merge_count);
    } else {
        rf_gguf_write_array(writer, "tokenizer.ggml.scores", RF_GGUF_F32, scores, (uint64_t)script->count);
    }
    if (script->bos >= 0) rf_gguf_write_u32(writer, "tokenizer.ggml.bos_token_id", (uint32_t)script->bos);
    if (script->eos >= 0) rf_gguf_write_u32(writer, "tokenizer.ggml.eos_token_id", (uint32_t)script->eos);
    rf_gguf_write_bool(writer, "tokenizer.ggml.add_bos_token", !script->no_bos);
    if (script->chat_template) rf_gguf_write_string(writer, "tokenizer.chat_template", script->chat_template);
}

/* Embeddings are unit vectors and the layer adds nothing, so the logits are the output matrix's column of the last
 * token: a 1 in the row of the token that follows. */
void script_write(const struct script *script, const char *path) {
    enum { WIDTH = SCRIPT_TOKENS, WIDE = 32 };
    struct rf_gguf_writer *writer = NULL;
    float *zeros = allocate(WIDTH * WIDTH, sizeof *zeros), *ones = allocate(WIDTH, sizeof *ones);
    float *units = allocate(WIDTH * WIDTH, sizeof *units), *output = allocate(WIDTH * WIDTH, sizeof *output);
    uint64_t count = (uint64_t)script->count;
    for (int32_t i = 0; i < script->count; i++) {
        units[i * WIDTH + i] = 1;
        output[script->next[i] * WIDTH + i] = 1;
    }
    for (int i = 0; i < WIDTH; i++) ones[i] = 1;
    RF_ASSERT_OK(rf_gguf_writer_create(&writer));
    rf_gguf_write_string(writer, "general.architecture", "llama");
    rf_gguf_write_string(writer, "general.name", "scripted");
    rf_gguf_write_u32(writer, "llama.block_count", 1);
    rf_gguf_write_u32(writer, "llama.embedding_length", WIDTH);
    rf_gguf_write_u32(writer, "llama.context_length", 256);
    rf_gguf_write_u32(writer, "llama.feed_forward_length", WIDE);
    rf_gguf_write_u32(writer, "llama.attention.head_count", WIDTH / 32);
    rf_gguf_write_u32(writer, "llama.attention.head_count_kv", 1);
    rf_gguf_write_f32(writer, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    write_vocabulary(script, writer);
    const struct {
        const char *name;
        uint64_t rows, columns;
        const float *data;
    } tensors[] = {{"token_embd.weight", count, WIDTH, units},   {"blk.0.attn_norm.weight", WIDTH, 0, ones},
                   {"blk.0.attn_q.weight", WIDTH, WIDTH, zeros}, {"blk.0.attn_k.weight", 32, WIDTH, zeros},
                   {"blk.0.attn_v.weight", 32, WIDTH, zeros},    {"blk.0.attn_output.weight", WIDTH, WIDTH, zeros},
                   {"blk.0.ffn_norm.weight", WIDTH, 0, ones},    {"blk.0.ffn_gate.weight", WIDE, WIDTH, zeros},
                   {"blk.0.ffn_up.weight", WIDE, WIDTH, zeros},  {"blk.0.ffn_down.weight", WIDTH, WIDE, zeros},
                   {"output_norm.weight", WIDTH, 0, ones},       {"output.weight", count, WIDTH, output}};
    for (size_t i = 0; i < RF_COUNT(tensors); i++)
        rf_gguf_write_tensor(writer, tensors[i].name, RF_F32, tensors[i].columns ? 2 : 1,
                             (uint64_t[]){tensors[i].rows, tensors[i].columns}, tensors[i].data);
    RF_ASSERT_OK(rf_gguf_writer_finish(writer, path));
    rf_gguf_writer_destroy(&writer);
    free(zeros);
    free(ones);
    free(units);
    free(output);
}
