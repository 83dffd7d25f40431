/* qwen2: Qwen 1.5, 2 and 2.5. Queries, keys and values have biases; rotates halves of a head. */
#include "infer/arch_build.h"
#include "infer/arch_impl.h"

static const struct rf_weight weights[] = {
    {"attn_q.bias", RF_EXTENT_QUERIES, RF_EXTENT_NONE, .layer = true},
    {"attn_k.bias", RF_EXTENT_KEYS, RF_EXTENT_NONE, .layer = true},
    {"attn_v.bias", RF_EXTENT_KEYS, RF_EXTENT_NONE, .layer = true},
    {"output.bias", RF_EXTENT_VOCABULARY, RF_EXTENT_NONE, .optional = true},
};

static rf_status read(const struct rf_gguf *gguf, struct rf_hparams *hparams) {
    hparams->rope_halves = true;
    hparams->qkv_bias = true;
    rf_status status = rf_arch_read_common(gguf, hparams);
    return status ? status : rf_arch_check_weights(gguf, hparams, weights, RF_COUNT(weights));
}

static rf_status build(const struct rf_gguf *gguf, const struct rf_hparams *hparams,
                       const struct rf_graph_shape *shape, struct rf_graph **out) {
    return rf_build_decoder(gguf, hparams, shape, rf_build_block, out);
}

const struct rf_arch rf_arch_qwen2 = {.name = "qwen2", .read = read, .build = build};
