/* Building blocks of graphs: what architectures are put together from.
 *
 * A builder keeps the first failure: every function takes and gives tensors by id, gives 0 after a failure and where
 * it was given 0, so a caller strings calls together and the end reports. Values are f32 [rows, columns]; only what
 * attention reads and makes is of the caches' type where they are f16.
 *
 * The last layer computes queries, attention and feed-forward for the wanted rows alone, and where no logits are
 * wanted it ends with its caches: rf_build_attention then gives 0 without a failure. */
#ifndef RF_MODEL_ARCH_BUILD_H
#define RF_MODEL_ARCH_BUILD_H

#include "infer/arch.h"

struct rf_builder {
    const struct rf_gguf *gguf;
    const struct rf_hparams *hparams;
    const struct rf_graph_shape *shape;
    struct rf_graph *graph;
    rf_status status; /* of the first failure; its text is the thread's last */
    uint32_t layer;   /* of which blocks are built */
    int group;        /* of what is added */
    uint32_t rows;    /* of values now: all tokens, then those wanted */
    rf_tensor_id tokens, positions, sequences, table, lengths, steps;
};

/* A layer: from the residual stream before it to that after it. */
typedef rf_tensor_id (*rf_build_block_fn)(struct rf_builder *builder, rf_tensor_id x);

/* The whole graph of a decoder: embedding, a block for each layer, a norm and the output's product. */
rf_status rf_build_decoder(const struct rf_gguf *gguf, const struct rf_hparams *hparams,
                           const struct rf_graph_shape *shape, rf_build_block_fn block, struct rf_graph **out);

/* The usual block: attention, then feed-forward. */
rf_tensor_id rf_build_block(struct rf_builder *builder, rf_tensor_id x);
/* x + attention(norm(x)): with biases where the file has them, norms of heads where hparams says so. */
rf_tensor_id rf_build_attention(struct rf_builder *builder, rf_tensor_id x);
/* x + down(silu(gate(norm(x))) * up(norm(x))) */
rf_tensor_id rf_build_feed_forward(struct rf_builder *builder, rf_tensor_id x);

/* ---- smaller ones; names are those of the layer's tensors, without "blk.N." ---- */

/* x weight^T + bias + residual; the bias where the file has one, residual may be 0. result: the name of what is made,
 * after "blk.N."; NULL: none. */
rf_tensor_id rf_build_product(struct rf_builder *builder, rf_tensor_id x, const char *name, rf_tensor_id residual,
                              const char *result);
/* Rows of x over their root mean square, times "NAME.weight". */
rf_tensor_id rf_build_norm(struct rf_builder *builder, rf_tensor_id x, const char *name);

#endif
