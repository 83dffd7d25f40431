/* qwen3: no biases; each head of queries and keys is normed before it is rotated, by halves. The size of a head is in
 * the metadata and need not be width / heads. */
#include "infer/arch_build.h"
#include "infer/arch_impl.h"

static const struct rf_weight weights[] = {
    {"attn_q_norm.weight", RF_EXTENT_HEAD, RF_EXTENT_NONE, .layer = true},
    {"attn_k_norm.weight", RF_EXTENT_HEAD, RF_EXTENT_NONE, .layer = true},
};

static rf_status read(const struct rf_gguf *gguf, struct rf_hparams *hparams) {
    hparams->rope_halves = true;
    hparams->qk_norm = true;
    rf_status status = rf_arch_read_common(gguf, hparams);
    return status ? status : rf_arch_check_weights(gguf, hparams, weights, RF_COUNT(weights));
}

static rf_status build(const struct rf_gguf *gguf, const struct rf_hparams *hparams,
                       const struct rf_graph_shape *shape, struct rf_graph **out) {
    return rf_build_decoder(gguf, hparams, shape, rf_build_block, out);
}

const struct rf_arch rf_arch_qwen3 = {.name = "qwen3", .read = read, .build = build};
