/* What architectures share: reading metadata, and the list of weights against which a file is checked. Building
 * graphs: arch_build.h. */
#ifndef RF_MODEL_ARCH_IMPL_H
#define RF_MODEL_ARCH_IMPL_H

#include "base/base.h"
#include "infer/arch.h"

extern const struct rf_arch rf_arch_llama, rf_arch_qwen2, rf_arch_qwen3;

/* What a dimension of a weight must be. */
enum rf_extent {
    RF_EXTENT_NONE,
    RF_EXTENT_WIDTH,
    RF_EXTENT_QUERIES, /* heads * head_width */
    RF_EXTENT_KEYS,    /* kv_heads * head_width */
    RF_EXTENT_HEAD,
    RF_EXTENT_FEED_FORWARD,
    RF_EXTENT_VOCABULARY,
    RF_EXTENT_PAIRS, /* rotated / 2 */
};

/* A tensor of a file. A matrix [rows, columns] may be of any type of weights; a vector, columns of RF_EXTENT_NONE, is
 * f32. In a layer the name stands for "blk.N.name". */
struct rf_weight {
    const char *name;
    enum rf_extent rows, columns;
    bool layer, optional;
};

/* Everything of struct rf_hparams that is read in the same way for all, from "ARCH.key"; the rotation's steps come
 * with rf_arch_check_weights, as the file's factors are a tensor. */
rf_status rf_arch_read_common(const struct rf_gguf *gguf, struct rf_hparams *hparams);

/* Presence, type and shape of the weights that every decoder has (norms, the attention's four and the feed-forward's
 * three matrices, embedding and output) and of those given besides; a tensor of the file that is in neither list is
 * refused, as the model would need what nobody computes. Sets tied_output, rope_steps and rope_magnitude. */
rf_status rf_arch_check_weights(const struct rf_gguf *gguf, struct rf_hparams *hparams, const struct rf_weight *more,
                                size_t count);

#endif
