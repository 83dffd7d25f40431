/* Which models are refused, with the reason; and which look odd but are accepted. */
#include "arch_testing.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"

#define PLAIN .layers = 2, .width = 64, .heads = 4, .kv_heads = 2, .feed_forward = 96, .vocabulary = 40
struct refusal {
    const char *label;
    struct spec spec;
    rf_status status;
    const char *says[3]; /* all are in the text */
};
#define LLAMA(...) {"file", "llama", PLAIN, __VA_ARGS__}
static const struct refusal refusals[] = {
    {"unknown", {"file", "gpt-j", PLAIN}, RF_E_UNSUPPORTED, {"gpt-j", "llama, qwen2, qwen3"}},
    {"no_block_count", LLAMA(.no_key = "block_count"), RF_E_NOT_FOUND, {"llama.block_count"}},
    {"no_width", LLAMA(.no_key = "embedding_length"), RF_E_NOT_FOUND, {"llama.embedding_length"}},
    {"no_heads", LLAMA(.no_key = "attention.head_count"), RF_E_NOT_FOUND, {"llama.attention.head_count"}},
    {"no_feed_forward", LLAMA(.no_key = "feed_forward_length"), RF_E_NOT_FOUND, {"llama.feed_forward_length"}},
    {"no_context", LLAMA(.no_key = "context_length"), RF_E_NOT_FOUND, {"llama.context_length"}},
    {"no_epsilon", LLAMA(.no_key = "attention.layer_norm_rms_epsilon"), RF_E_NOT_FOUND, {"layer_norm_rms_epsilon"}},
    {"no_layers", LLAMA(.key_u32 = "block_count", .u32 = 0), RF_E_SYNTAX, {"llama.block_count", "is 0"}},
    {"many_layers", LLAMA(.key_u32 = "block_count", .u32 = 4000000000u), RF_E_SYNTAX, {"block_count", "4000000000"}},
    {"one_layer_more", LLAMA(.key_u32 = "block_count", .u32 = 3), RF_E_NOT_FOUND, {"\"blk.2."}},
    {"one_layer_less", LLAMA(.key_u32 = "block_count", .u32 = 1), RF_E_UNSUPPORTED, {"\"blk.1."}},
    {"width_0", LLAMA(.key_u32 = "embedding_length", .u32 = 0), RF_E_SYNTAX, {"embedding_length"}},
    {"width_huge", LLAMA(.key_u32 = "embedding_length", .u32 = UINT32_MAX), RF_E_SYNTAX, {"embedding_length"}},
    {"width_other", LLAMA(.key_u32 = "embedding_length", .u32 = 128), RF_E_SYNTAX, {"token_embd.weight", "40 x 64"}},
    {"heads_0", LLAMA(.key_u32 = "attention.head_count", .u32 = 0), RF_E_SYNTAX, {"attention.head_count"}},
    {"heads_odd", LLAMA(.key_u32 = "attention.head_count", .u32 = 6), RF_E_SYNTAX, {"attention.head_count", "64"}},
    {"heads_many", LLAMA(.key_u32 = "attention.head_count", .u32 = 64), RF_E_UNSUPPORTED, {"heads of 1 "}},
    {"kv_heads_0", LLAMA(.key_u32 = "attention.head_count_kv", .u32 = 0), RF_E_SYNTAX, {"head_count_kv"}},
    {"kv_heads_odd", LLAMA(.key_u32 = "attention.head_count_kv", .u32 = 3), RF_E_SYNTAX, {"head_count_kv", "3"}},
    {"kv_heads_more", LLAMA(.key_u32 = "attention.head_count_kv", .u32 = 8), RF_E_SYNTAX, {"head_count_kv"}},
    {"kv_heads_other", LLAMA(.key_u32 = "attention.head_count_kv", .u32 = 4), RF_E_SYNTAX, {"blk.0.attn_k.weight"}},
    {"key_length_odd", LLAMA(.key_u32 = "attention.key_length", .u32 = 20), RF_E_UNSUPPORTED, {"key_length", "20"}},
    {"key_length_large", LLAMA(.key_u32 = "attention.key_length", .u32 = 512), RF_E_UNSUPPORTED, {"512"}},
    {"value_length", LLAMA(.key_u32 = "attention.value_length", .u32 = 32), RF_E_UNSUPPORTED, {"value_length"}},
    {"text_for_number", LLAMA(.key_text = "embedding_length", .text = "64"), RF_E_SYNTAX, {"embedding_length"}},
    {"rotated_odd", LLAMA(.key_u32 = "rope.dimension_count", .u32 = 7), RF_E_SYNTAX, {"dimension_count", "even"}},
    {"rotated_more", LLAMA(.key_u32 = "rope.dimension_count", .u32 = 18), RF_E_SYNTAX, {"dimension_count"}},
    {"base_negative", LLAMA(.rope_base = -1), RF_E_SYNTAX, {"rope.freq_base"}},
    {"scaling_unknown", LLAMA(.scaling = "longrope"), RF_E_UNSUPPORTED, {"longrope", "yarn"}},
    {"yarn_multiplier",
     LLAMA(.scaling = "yarn", .key_u32 = "rope.scaling.yarn_log_multiplier", .u32 = 1),
     RF_E_UNSUPPORTED,
     {"llama.rope.scaling.yarn_log_multiplier", "YaRN with a multiplier of its own"}},
    {"factor_negative", LLAMA(.factor = -2), RF_E_SYNTAX, {"rope.scaling.factor"}},
    {"experts", LLAMA(.key_u32 = "expert_count", .u32 = 8), RF_E_UNSUPPORTED, {"expert_count", "experts"}},
    {"vocabulary", LLAMA(.key_u32 = "vocab_size", .u32 = 41), RF_E_SYNTAX, {"llama.vocab_size", "41", "40"}},
    {"no_embedding", LLAMA(.no_tensor = "token_embd.weight"), RF_E_NOT_FOUND, {"token_embd.weight"}},
    {"no_norm", LLAMA(.no_tensor = "output_norm.weight"), RF_E_NOT_FOUND, {"output_norm.weight"}},
    {"no_ffn_down", LLAMA(.no_tensor = "blk.1.ffn_down.weight"), RF_E_NOT_FOUND, {"blk.1.ffn_down.weight"}},
    {"wide_q", LLAMA(.wider = "blk.1.attn_q.weight"), RF_E_SYNTAX, {"blk.1.attn_q.weight", "64 x 96", "64 x 64"}},
    {"wide_norm", LLAMA(.wider = "blk.0.ffn_norm.weight"), RF_E_SYNTAX, {"blk.0.ffn_norm.weight", "96", "64"}},
    {"wide_output", LLAMA(.wider = "output.weight"), RF_E_SYNTAX, {"output.weight"}},
    {"wide_factors", LLAMA(.factors = true, .wider = "rope_freqs.weight"), RF_E_SYNTAX, {"rope_freqs.weight"}},
    {"norm_f16", LLAMA(.halved = "blk.1.attn_norm.weight"), RF_E_UNSUPPORTED, {"blk.1.attn_norm.weight", "f16"}},
    {"extra", LLAMA(.extra_tensor = "blk.1.attn_sinks.weight"), RF_E_UNSUPPORTED, {"blk.1.attn_sinks.weight"}},
    {"qwen2_no_bias",
     {"file", "qwen2", PLAIN, .no_tensor = "blk.1.attn_k.bias"},
     RF_E_NOT_FOUND,
     {"blk.1.attn_k.bias", "qwen2"}},
    {"qwen3_no_norm",
     {"file", "qwen3", PLAIN, .head_width = 32, .no_tensor = "blk.0.attn_q_norm.weight"},
     RF_E_NOT_FOUND,
     {"blk.0.attn_q_norm.weight"}},
    {"qwen3_with_biases", {"file", "qwen3", PLAIN, .biases = true}, RF_E_UNSUPPORTED, {"blk.0.attn_q.bias"}},
};

RF_TEST_LABELLED_CASES(arch, refuses, struct refusal, refusals) {
    size_t bytes;
    struct rf_gguf *gguf = NULL;
    struct rf_hparams hparams, before;
    void *file = spec_file(&c->spec, &bytes);
    RF_ASSERT_OK(rf_gguf_open_memory(file, bytes, "bad.gguf", &gguf));
    memset(&hparams, 0x5a, sizeof hparams);
    before = hparams;
    RF_ASSERT_STATUS(rf_arch_read(gguf, &hparams), c->status);
    RF_NOTE("%s", rf_error_text());
    RF_EXPECT_CONTAINS(rf_error_text(), "bad.gguf: ");
    RF_EXPECT(strchr(rf_error_text(), '\n') == NULL);
    for (size_t i = 0; i < RF_COUNT(c->says) && c->says[i]; i++) RF_EXPECT_CONTAINS(rf_error_text(), c->says[i]);
    RF_EXPECT(!memcmp(&hparams, &before, sizeof hparams));
    rf_gguf_close(&gguf);
    free(file);
}

/* A size that is given for each layer must be the same in all layers. */
RF_TEST(arch, refuses_layers_that_differ) {
    static const struct {
        uint32_t each[3];
        uint64_t count;
        rf_status status;
        const char *says;
    } arrays[] = {{{2, 2, 4}, 3, RF_E_UNSUPPORTED, "layer 2"},
                  {{2, 2, 2}, 2, RF_E_SYNTAX, "2 numbers for 3 layers"},
                  {{0, 2, 2}, 3, RF_E_SYNTAX, "is 0"},
                  {{2, 2, 2}, 0, RF_E_SYNTAX, "0 numbers"}};
    for (size_t i = 0; i < RF_COUNT(arrays); i++) {
        struct rf_gguf_writer *writer = NULL;
        struct rf_gguf *gguf = NULL;
        struct rf_hparams hparams;
        void *file = NULL;
        size_t bytes;
        RF_ASSERT_OK(rf_gguf_writer_create(&writer));
        rf_gguf_write_string(writer, "general.architecture", "llama");
        rf_gguf_write_u32(writer, "llama.block_count", 3);
        rf_gguf_write_u32(writer, "llama.embedding_length", 64);
        rf_gguf_write_u32(writer, "llama.context_length", 64);
        rf_gguf_write_u32(writer, "llama.feed_forward_length", 64);
        rf_gguf_write_u32(writer, "llama.attention.head_count", 4);
        rf_gguf_write_array(writer, "llama.attention.head_count_kv", RF_GGUF_U32, arrays[i].each, arrays[i].count);
        RF_ASSERT_OK(rf_gguf_writer_finish_memory(writer, &file, &bytes));
        rf_gguf_writer_destroy(&writer);
        RF_ASSERT_OK(rf_gguf_open_memory(file, bytes, "bad.gguf", &gguf));
        RF_EXPECT_STATUS(rf_arch_read(gguf, &hparams), arrays[i].status);
        RF_EXPECT_CONTAINS(rf_error_text(), "head_count_kv");
        RF_EXPECT_CONTAINS(rf_error_text(), arrays[i].says);
        rf_gguf_close(&gguf);
        free(file);
    }
}

RF_TEST(arch, reads_what_the_file_says) {
    static const struct spec spec = {"file", "qwen3", PLAIN, .head_width = 48, .rope_base = 1e6f, .tied = true};
    struct model model;
    model_make(&model, &spec);
    const struct rf_hparams *h = &model.hparams;
    RF_EXPECT_TEXT(h->arch->name, "qwen3");
    RF_EXPECT_TEXT(h->name, "made for a test");
    RF_EXPECT_UINT(h->layers, 2);
    RF_EXPECT_UINT(h->width, 64);
    RF_EXPECT_UINT(h->heads, 4);
    RF_EXPECT_UINT(h->kv_heads, 2);
    RF_EXPECT_UINT(h->head_width, 48);
    RF_EXPECT_UINT(h->value_width, 48);
    RF_EXPECT_UINT(h->feed_forward, 96);
    RF_EXPECT_UINT(h->vocabulary, 40);
    RF_EXPECT_UINT(h->trained_context, 512);
    RF_EXPECT_UINT(h->rotated, 48);
    RF_EXPECT(h->rope_base == 1e6 && h->rope_scale == 1 && h->rope_magnitude == 1 && h->rope_halves);
    RF_EXPECT(h->tied_output && h->qk_norm);
    RF_EXPECT(h->norm_epsilon == 1e-5f);
    model_close(&model);
}

/* Shapes of graphs that are not possible. */
RF_TEST(arch, refuses_shapes) {
    static const struct spec spec = {"file", "llama", PLAIN}; /* heads of 16 */
    static const struct rf_graph_shape good = {.tokens = 3,
                                               .sequences = 1,
                                               .page_rows = 16,
                                               .page_count = 4,
                                               .table_width = 2,
                                               .longest = 32,
                                               .kv_dtype = RF_F16};
    struct rf_graph_shape bad[10];
    static const rf_status statuses[10] = {[9] = RF_E_UNSUPPORTED, [8] = RF_E_UNSUPPORTED};
    for (size_t i = 0; i < RF_COUNT(bad); i++) bad[i] = good;
    bad[0].tokens = 0;
    bad[1].sequences = 2;
    bad[2].page_rows = 12;
    bad[2].longest = 8;
    bad[3].page_count = 0;
    bad[4].table_width = 0;
    bad[5].longest = 33;
    bad[6].all_logits = bad[6].no_logits = true;
    bad[7].table_width = UINT32_MAX;
    bad[8].kv_dtype = RF_Q4_0;
    bad[9].kv_dtype = RF_Q8_0;
    struct model model;
    struct rf_model_graph made = {0};
    model_make(&model, &spec);
    for (size_t i = 0; i < RF_COUNT(bad); i++) {
        RF_TRACE("shape %zu", i);
        RF_EXPECT_STATUS(rf_arch_build(model.gguf, &model.hparams, &bad[i], NULL, &made),
                         statuses[i] ? statuses[i] : RF_E_INVALID);
        RF_EXPECT(made.graph == NULL);
        RF_NOTE("%s", rf_error_text());
        if (i >= 2 && i <= 4) RF_EXPECT_CONTAINS(rf_error_text(), "none may be 0, and the tokens are a power of 2");
    }
    /* What was built before a tensor is found missing is released, and the error stays. */
    struct rf_hparams taller = model.hparams;
    taller.layers++;
    RF_EXPECT_STATUS(rf_arch_build(model.gguf, &taller, &good, NULL, &made), RF_E_NOT_FOUND);
    RF_EXPECT_CONTAINS(rf_error_text(), "blk.2.");
    RF_EXPECT(made.graph == NULL);
    RF_ASSERT_OK(rf_arch_build(model.gguf, &model.hparams, &good, NULL, &made));
    static const char *const names[] = {"tokens",     "positions", "sequences", "table",  "lengths",
                                        "rope_steps", "cache_k.0", "cache_v.1", "logits", "blk.0.attn_q.weight"};
    for (size_t i = 0; i < RF_COUNT(names); i++) {
        RF_TRACE("%s", names[i]);
        RF_EXPECT(rf_graph_find(made.graph, names[i]) != 0);
    }
    rf_model_graph_finish(&made);
    model_close(&model);
}

/* With any one byte of the header changed, the file is refused with one line, or gives a graph. A sanitizer build
 * finds more. */
RF_TEST(arch, survives_flipped_bytes, .timeout_ms = 1500000) {
    static const struct spec spec = {"file", "llama", PLAIN, .factors = true, .scaling = "yarn", .factor = 2};
    static const unsigned char flips[] = {0x01, 0x80, 0xff};
    static const struct rf_graph_shape shape = {
        .tokens = 2, .sequences = 1, .page_rows = 8, .page_count = 2, .table_width = 2, .kv_dtype = RF_F16};
    size_t bytes, refused = 0, built = 0;
    unsigned char *file = spec_file(&spec, &bytes);
    for (size_t i = 0; i < RF_MIN(bytes, (size_t)4096); i++)
        for (size_t f = 0; f < RF_COUNT(flips); f++) {
            struct rf_gguf *gguf = NULL;
            struct rf_model_graph made = {0};
            struct rf_hparams hparams;
            file[i] ^= flips[f];
            rf_status status = rf_gguf_open_memory(file, bytes, "flipped", &gguf);
            if (!status) status = rf_arch_read(gguf, &hparams);
            if (!status) status = rf_arch_build(gguf, &hparams, &shape, NULL, &made);
            if (status) {
                RF_TRACE("byte %zu by %#x", i, flips[f]);
                RF_EXPECT(*rf_error_text() && !strchr(rf_error_text(), '\n'));
                refused++;
            } else {
                built++;
            }
            rf_model_graph_finish(&made);
            rf_gguf_close(&gguf);
            file[i] ^= flips[f];
        }
    RF_NOTE("%zu refused, %zu built", refused, built);
    RF_EXPECT(refused > 1000 && built > 100);
    free(file);
}
