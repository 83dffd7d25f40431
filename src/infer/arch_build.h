/* Building blocks of graphs, from which architectures are put together.
 *
 * A builder keeps the first failure. Every function takes and returns tensors by id; it returns 0 after a failure and
 * if it was given 0, so a caller can chain calls and check the status at the end. Tensors are f32 [rows, columns];
 * only attention's inputs and output are f16 if the caches are f16, and rows that matrix units multiply are of 16
 * bits (shape->units_from). Ops are plain: the passes fuse them.
 *
 * The last layer computes queries, attention and feed-forward for the wanted rows only. Where no logits are
 * wanted, it ends with its caches: rf_build_attention then returns 0 without a failure. */
#ifndef RF_INFER_ARCH_BUILD_H
#define RF_INFER_ARCH_BUILD_H

#include "infer/arch.h"

struct rf_builder {
    const struct rf_gguf *gguf;
    const struct rf_hparams *hparams;
    const struct rf_graph_shape *shape;
    struct rf_model_graph *model; /* the result */
    struct rf_graph *graph;       /* its graph */
    rf_status status;             /* of the first failure; its text is the thread's last error */
    uint32_t layer;               /* the layer that is being built */
    int group;                    /* the group of what is added */
    uint32_t rows;                /* rows of tensors at this point: all tokens, then the wanted ones */
    rf_tensor_id positions, sequences, table, lengths, steps;
};

/* The usual block: attention, then feed-forward. */
rf_tensor_id rf_build_block(struct rf_builder *builder, rf_tensor_id x);
/* x + attention(norm(x)), with biases if the file has them, and with norms of heads if hparams says so. */
rf_tensor_id rf_build_attention(struct rf_builder *builder, rf_tensor_id x);
/* x + down(silu(gate(norm(x))) * up(norm(x))) */
rf_tensor_id rf_build_feed_forward(struct rf_builder *builder, rf_tensor_id x);

/* ---- smaller building blocks; names are those of the layer's tensors, without "blk.N." ---- */

/* x weight^T + bias, with the bias if the file has one. */
rf_tensor_id rf_build_product(struct rf_builder *builder, rf_tensor_id x, const char *name);
/* a + b, rows of the model's width. result: the name of the result, after "blk.N."; "" makes it the layer's own. */
rf_tensor_id rf_build_sum(struct rf_builder *builder, rf_tensor_id a, rf_tensor_id b, const char *name,
                          const char *result);
/* Rows of x divided by their root mean square, times "NAME.weight". */
rf_tensor_id rf_build_norm(struct rf_builder *builder, rf_tensor_id x, const char *name);

#endif
