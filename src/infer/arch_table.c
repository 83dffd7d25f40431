/* The table of architectures: one row each. docs/architectures.md says how to add one. */
#include "base/base.h"
#include "infer/arch_build.h"

#define LAYER_VECTOR(name, rows) {name, rows, RF_EXTENT_NONE, .layer = true}
#define LAYER_VECTOR_OR_NONE(name, rows) {name, rows, RF_EXTENT_NONE, .layer = true, .optional = true}

/* Llama may have biases anywhere. */
static const struct rf_weight llama_weights[] = {
    LAYER_VECTOR_OR_NONE("attn_q.bias", RF_EXTENT_QUERIES),
    LAYER_VECTOR_OR_NONE("attn_k.bias", RF_EXTENT_KEYS),
    LAYER_VECTOR_OR_NONE("attn_v.bias", RF_EXTENT_KEYS),
    LAYER_VECTOR_OR_NONE("attn_output.bias", RF_EXTENT_WIDTH),
    LAYER_VECTOR_OR_NONE("ffn_gate.bias", RF_EXTENT_FEED_FORWARD),
    LAYER_VECTOR_OR_NONE("ffn_up.bias", RF_EXTENT_FEED_FORWARD),
    LAYER_VECTOR_OR_NONE("ffn_down.bias", RF_EXTENT_WIDTH),
};

static const struct rf_weight qwen2_weights[] = {
    LAYER_VECTOR("attn_q.bias", RF_EXTENT_QUERIES),
    LAYER_VECTOR("attn_k.bias", RF_EXTENT_KEYS),
    LAYER_VECTOR("attn_v.bias", RF_EXTENT_KEYS),
    {"output.bias", RF_EXTENT_VOCABULARY, RF_EXTENT_NONE, .optional = true},
};

/* The size of a head is in the metadata and need not be width / heads. */
static const struct rf_weight qwen3_weights[] = {
    LAYER_VECTOR("attn_q_norm.weight", RF_EXTENT_HEAD),
    LAYER_VECTOR("attn_k_norm.weight", RF_EXTENT_HEAD),
};

#define WEIGHTS(list) .weights = list, .weight_count = RF_COUNT(list)

const struct rf_arch rf_arch_table[] = {
    /* Llama 1 to 3, Mistral, TinyLlama, SmolLM. */
    {.name = "llama", WEIGHTS(llama_weights), .block = rf_build_block},
    /* Qwen 1.5, 2 and 2.5. */
    {.name = "qwen2", WEIGHTS(qwen2_weights), .rope_halves = true, .block = rf_build_block},
    {.name = "qwen3", WEIGHTS(qwen3_weights), .rope_halves = true, .qk_norm = true, .block = rf_build_block},
};
const size_t rf_arch_table_count = RF_COUNT(rf_arch_table);
