/* Building blocks of graphs: what architectures are put together from.
 *
 * A builder keeps the first failure: every function takes and gives tensors by id, gives 0 after a failure and where
 * it was given 0, so a caller strings calls together and the end reports. Tensors are f32 [rows, columns]; only what
 * attention reads and makes is of the caches' type where they are f16. Ops are plain: the passes fuse them.
 *
 * The last layer computes queries, attention and feed-forward for the wanted rows alone, and where no logits are
 * wanted it ends with its caches: rf_build_attention then gives 0 without a failure. */
#ifndef RF_INFER_ARCH_BUILD_H
#define RF_INFER_ARCH_BUILD_H

#include "infer/arch.h"

struct rf_builder {
    const struct rf_gguf *gguf;
    const struct rf_hparams *hparams;
    const struct rf_graph_shape *shape;
    struct rf_model_graph *model; /* what is made */
    struct rf_graph *graph;       /* its graph */
    rf_status status;             /* of the first failure; its text is the thread's last */
    uint32_t layer;               /* of which blocks are built */
    int group;                    /* of what is added */
    uint32_t rows;                /* of tensors now: all tokens, then those wanted */
    rf_tensor_id positions, sequences, table, lengths, steps;
};

/* The usual block: attention, then feed-forward. */
rf_tensor_id rf_build_block(struct rf_builder *builder, rf_tensor_id x);
/* x + attention(norm(x)): with biases where the file has them, norms of heads where hparams says so. */
rf_tensor_id rf_build_attention(struct rf_builder *builder, rf_tensor_id x);
/* x + down(silu(gate(norm(x))) * up(norm(x))) */
rf_tensor_id rf_build_feed_forward(struct rf_builder *builder, rf_tensor_id x);

/* ---- smaller ones; names are those of the layer's tensors, without "blk.N." ---- */

/* x weight^T + bias; the bias where the file has one. */
rf_tensor_id rf_build_product(struct rf_builder *builder, rf_tensor_id x, const char *name);
/* a + b, rows of the model's width. result: the name of what is made, after "blk.N."; "" is the layer's own. */
rf_tensor_id rf_build_sum(struct rf_builder *builder, rf_tensor_id a, rf_tensor_id b, const char *name,
                          const char *result);
/* Rows of x over their root mean square, times "NAME.weight". */
rf_tensor_id rf_build_norm(struct rf_builder *builder, rf_tensor_id x, const char *name);

#endif
