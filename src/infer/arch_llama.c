/* llama: Llama 1 to 3, Mistral, TinyLlama, SmolLM. Rotates neighbours; may have biases anywhere and factors on the
 * frequencies ("rope_freqs.weight", since Llama 3.1). */
#include "infer/arch_build.h"
#include "infer/arch_impl.h"

static const struct rf_weight weights[] = {
    {"attn_q.bias", RF_EXTENT_QUERIES, RF_EXTENT_NONE, .layer = true, .optional = true},
    {"attn_k.bias", RF_EXTENT_KEYS, RF_EXTENT_NONE, .layer = true, .optional = true},
    {"attn_v.bias", RF_EXTENT_KEYS, RF_EXTENT_NONE, .layer = true, .optional = true},
    {"attn_output.bias", RF_EXTENT_WIDTH, RF_EXTENT_NONE, .layer = true, .optional = true},
    {"ffn_gate.bias", RF_EXTENT_FEED_FORWARD, RF_EXTENT_NONE, .layer = true, .optional = true},
    {"ffn_up.bias", RF_EXTENT_FEED_FORWARD, RF_EXTENT_NONE, .layer = true, .optional = true},
    {"ffn_down.bias", RF_EXTENT_WIDTH, RF_EXTENT_NONE, .layer = true, .optional = true},
};

static rf_status read(const struct rf_gguf *gguf, struct rf_hparams *hparams) {
    rf_status status = rf_arch_read_common(gguf, hparams);
    return status ? status : rf_arch_check_weights(gguf, hparams, weights, RF_COUNT(weights));
}

static rf_status build(const struct rf_gguf *gguf, const struct rf_hparams *hparams,
                       const struct rf_graph_shape *shape, struct rf_graph **out) {
    return rf_build_decoder(gguf, hparams, shape, rf_build_block, out);
}

const struct rf_arch rf_arch_llama = {.name = "llama", .read = read, .build = build};
