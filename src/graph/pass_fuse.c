/* Fusion: patterns of nodes become the op table's fused forms.
 *
 *   scale(scale(x))                                    -> scale
 *   scale(qkt_matmul), softmax_mask(scale(x))          -> the op's own scale
 *   matmul + residual, matmul_q8 likewise              -> matmul with a residual
 *   a * b + c                                          -> multiply with c
 *   act(a) * b                                         -> activation with up
 *   silu(x w1^T) * (x w2^T)                            -> matmul_gate
 *   a + b, rms_norm of it                              -> add_norm
 *   rms_norm of a row, matmul_gate or 3 matmuls of it  -> norm_gate, norm_qkv
 *   kv_append(rope(k))                                 -> kv_append with rotation steps
 *   rope(q) after the kv_append of its keys            -> rope_append
 *   norm_qkv, rope_append of its products              -> norm_qkv_append
 *   copy to f32, matmul of it                          -> cast_matmul
 *   qkt_matmul, causal_mask, softmax, weighted_matmul  -> flash_attention; softmax_mask likewise
 *
 * A pattern is tried at its last node, and the fused node takes the place of that node (with a norm: of the first).
 * Tensors that are no longer made had no other reader and are no roots. Tensors that are now read later than before
 * are not changed by any node. The op's own check decides whether shapes and types fit. Nodes of different groups are
 * never fused, because a group is placed as one. Fused results differ by roundings that no longer happen.
 *
 * The patterns found in one round do not overlap, so that the counts of uses stay true; rounds repeat until one
 * finds nothing. */
#include "graph/pass.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "ops/gpu_matmul.h"
#include "cpu/reference.h"

struct fusing {
    struct rf_graph *graph;
    struct rf_pass_use *uses;
    bool *gone;    /* nodes that were removed */
    bool *touched; /* nodes that took part in this round */
};

/* Names for the inputs and outputs of ops, in the order of the op table's rows. */
enum {
    MATMUL_X,
    MATMUL_WEIGHTS,
    MATMUL_BIAS,
    MATMUL_RESIDUAL,
    MATMUL_OUT,
    GATE_WEIGHTS = 1,
    GATE_GATE,
    GATE_OUT,
    NORM_WEIGHTS = 2,  /* the first one, of norm_qkv and norm_gate */
    NORM_PRODUCTS = 1, /* the first output of norm_qkv that is a product */
    APPEND_TOKENS = 3, /* behind q, k and v of rope_append */
    QKV_TOKENS = 5,    /* behind x, norm and weights of norm_qkv_append */
    KV_K = 0,
    KV_POSITIONS = 2,
    KV_SEQUENCES,
    KV_TABLE,
    KV_STEPS,
    KV_K_CACHE,
    KV_V_CACHE,
    CAST_WEIGHTS = 1,
    CAST_RESIDUAL,
    CAST_CAST,
    CAST_OUT,
    FLASH_MASK = 3,
    FLASH_OUT
};

static bool is(const struct rf_node_row *node, const char *op) {
    return !strcmp(node->op->name, op);
}

/* The node that makes exactly this tensor, for a single reader. NULL: there is none, or it cannot be removed. */
static struct rf_node_row *only_for_here(struct fusing *f, uint32_t tensor) {
    if (tensor == RF_NO_INDEX) return NULL;
    const struct rf_tensor_row *made = &f->graph->tensors[tensor];
    const struct rf_pass_use *use = &f->uses[tensor];
    if (made->root != tensor || made->producer == RF_NO_INDEX || made->output || use->reads != 1 || use->updated)
        return NULL;
    if (f->touched[made->producer]) return NULL;
    return &f->graph->nodes[made->producer];
}
static size_t index_of(struct fusing *f, const struct rf_node_row *node) {
    return (size_t)(node - f->graph->nodes);
}
/* Whether a node behind the first one changes a storage, up to the last one. */
static bool changed(struct fusing *f, uint32_t root, const struct rf_node_row *first,
                    const struct rf_node_row *last) {
    if (!f->uses[root].updated) return false;
    for (const struct rf_node_row *node = first + 1; node <= last; node++)
        for (int i = 0; i < node->op->inputs && !f->gone[index_of(f, node)]; i++)
            if (node->op->updates >> i & 1 && rf_node_root(f->graph, node, i) == root) return true;
    return false;
}
/* Whether the first 'inputs' inputs of the node have the same contents when 'reader' reads them instead. */
static bool steady_but(struct fusing *f, const struct rf_node_row *node, int inputs,
                       const struct rf_node_row *reader) {
    for (int i = 0; i < inputs; i++)
        if (node->tensors[i] != RF_NO_INDEX && changed(f, rf_node_root(f->graph, node, i), node, reader))
            return false;
    return true;
}
static bool steady(struct fusing *f, const struct rf_node_row *node, const struct rf_node_row *reader) {
    return steady_but(f, node, node->op->inputs, reader);
}
/* A copy of this node with another op, without tensors and attributes. */
static struct rf_node_row form(const struct rf_node_row *node, const char *op) {
    struct rf_node_row fused = *node;
    fused.op = rf_op_find(op);
    fused.attributes = (struct rf_op_attributes){0};
    for (int i = 0; i < RF_OP_TENSORS_MAX; i++) fused.tensors[i] = RF_NO_INDEX;
    return fused;
}
/* Replaces 'at' by the fused node and removes the others (NULL: none), if the op accepts it. */
static bool settle(struct fusing *f, struct rf_node_row *at, const struct rf_node_row *fused,
                   struct rf_node_row *const *others, int count) {
    for (int i = 0; i < count; i++)
        if (others[i] && others[i]->group != at->group) return false;
    if (!fused->op || !rf_pass_fits(f->graph, fused)) return false;
    *at = *fused;
    f->touched[index_of(f, at)] = true;
    for (int o = 0; o < fused->op->outputs; o++)
        f->graph->tensors[rf_node_out(fused, o)].producer = (uint32_t)index_of(f, at);
    for (int i = 0; i < count; i++)
        if (others[i]) f->touched[index_of(f, others[i])] = f->gone[index_of(f, others[i])] = true;
    return true;
}
#define SETTLE(f, at, fused, ...)                                                                                    \
    settle((f), (at), (fused), (struct rf_node_row *const[]){__VA_ARGS__},                                           \
           (int)RF_COUNT(((struct rf_node_row *const[]){__VA_ARGS__})))

/* ---- scales ---- */

/* The product of two scales. False: one f32 cannot stand for both. */
static bool joined_scale(const struct rf_node_row *a, const struct rf_node_row *b, double *scale) {
    *scale = (double)(float)a->attributes.scale * (double)(float)b->attributes.scale;
    return fabs(*scale) >= (double)FLT_MIN && fabs(*scale) <= (double)FLT_MAX;
}

static bool fuse_scale(struct fusing *f, struct rf_node_row *node) {
    if (!is(node, "scale")) return false;
    struct rf_node_row *from = only_for_here(f, node->tensors[0]);
    if (!from || !(is(from, "scale") || is(from, "qkt_matmul")) || !steady(f, from, node)) return false;
    /* A 16-bit intermediate may be infinite where the fused result is not. */
    if (f->graph->tensors[node->tensors[0]].desc.dtype != RF_F32) return false;
    struct rf_node_row fused = form(node, from->op->name);
    fused.attributes = from->attributes;
    memcpy(fused.tensors, from->tensors, sizeof fused.tensors);
    fused.tensors[from->op->inputs] = rf_node_out(node, 0);
    return joined_scale(from, node, &fused.attributes.scale) && SETTLE(f, node, &fused, from);
}
static bool fuse_softmax_scale(struct fusing *f, struct rf_node_row *node) {
    if (!is(node, "softmax_mask")) return false;
    struct rf_node_row *scale = only_for_here(f, node->tensors[0]);
    if (!scale || !is(scale, "scale") || !steady(f, scale, node)) return false;
    struct rf_node_row fused = *node;
    fused.tensors[0] = scale->tensors[0];
    return joined_scale(scale, node, &fused.attributes.scale) && SETTLE(f, node, &fused, scale);
}

/* ---- products ---- */

static bool fuse_residual(struct fusing *f, struct rf_node_row *node) {
    if (!is(node, "add")) return false;
    for (int side = 0; side < 2; side++) {
        struct rf_node_row *product = only_for_here(f, node->tensors[side]);
        if (!product || !(is(product, "matmul") || is(product, "matmul_q8")) || !steady(f, product, node) ||
            product->tensors[MATMUL_RESIDUAL] != RF_NO_INDEX)
            continue;
        struct rf_node_row fused = form(node, product->op->name);
        fused.attributes = product->attributes;
        memcpy(fused.tensors, product->tensors, sizeof fused.tensors);
        fused.tensors[MATMUL_RESIDUAL] = node->tensors[!side];
        fused.tensors[MATMUL_OUT] = rf_node_out(node, 0);
        if (SETTLE(f, node, &fused, product)) return true;
    }
    return false;
}
static bool fuse_multiply_add(struct fusing *f, struct rf_node_row *node) {
    if (!is(node, "add")) return false;
    for (int side = 0; side < 2; side++) {
        struct rf_node_row *product = only_for_here(f, node->tensors[side]);
        if (!product || !is(product, "multiply") || product->tensors[2] != RF_NO_INDEX || !steady(f, product, node))
            continue;
        struct rf_node_row fused = form(node, "multiply");
        fused.tensors[0] = product->tensors[0];
        fused.tensors[1] = product->tensors[1];
        fused.tensors[2] = node->tensors[!side];
        fused.tensors[3] = rf_node_out(node, 0);
        if (SETTLE(f, node, &fused, product)) return true;
    }
    return false;
}

/* ---- activations ---- */

static bool fuse_activation(struct fusing *f, struct rf_node_row *node) {
    if (!is(node, "multiply") || node->tensors[2] != RF_NO_INDEX) return false;
    for (int side = 0; side < 2; side++) {
        struct rf_node_row *act = only_for_here(f, node->tensors[side]);
        if (!act || !is(act, "activation") || act->tensors[1] != RF_NO_INDEX || !steady(f, act, node)) continue;
        const struct rf_tensor_desc *up = &f->graph->tensors[node->tensors[!side]].desc;
        if (up->shape[0] > 1 && !up->strides[0]) continue; /* a repeated row: only multiply supports it */
        struct rf_node_row fused = form(node, "activation");
        fused.attributes = act->attributes;
        fused.tensors[0] = act->tensors[0];
        fused.tensors[1] = node->tensors[!side];
        fused.tensors[2] = rf_node_out(node, 0);
        if (SETTLE(f, node, &fused, act)) return true;
    }
    return false;
}
static bool plain_product(const struct rf_node_row *node) {
    return is(node, "matmul") && node->tensors[MATMUL_BIAS] == RF_NO_INDEX &&
           node->tensors[MATMUL_RESIDUAL] == RF_NO_INDEX && !node->attributes.path;
}
/* For few rows only: with many, two tiled products are faster than the gate, which reads its weights row by row. */
static bool fuse_gate(struct fusing *f, struct rf_node_row *node) {
    if (!is(node, "activation") || node->attributes.kind != RF_ACTIVATION_SILU ||
        f->graph->tensors[node->tensors[0]].desc.shape[0] > RF_MATVEC_ROWS)
        return false;
    struct rf_node_row *act = only_for_here(f, node->tensors[0]), *up = only_for_here(f, node->tensors[1]);
    if (!act || !up || act == up || !plain_product(act) || !plain_product(up) || !steady(f, act, node) ||
        !steady(f, up, node) || act->tensors[MATMUL_X] != up->tensors[MATMUL_X])
        return false;
    struct rf_node_row fused = form(node, "matmul_gate");
    fused.tensors[MATMUL_X] = act->tensors[MATMUL_X];
    fused.tensors[GATE_WEIGHTS] = act->tensors[MATMUL_WEIGHTS];
    fused.tensors[GATE_GATE] = up->tensors[MATMUL_WEIGHTS];
    fused.tensors[GATE_OUT] = rf_node_out(node, 0);
    return SETTLE(f, node, &fused, act, up);
}

/* ---- norms ---- */

/* The sum may have other readers. The norm's weight must exist when the sum is made. */
static bool fuse_add_norm(struct fusing *f, struct rf_node_row *node) {
    if (!is(node, "rms_norm")) return false;
    uint32_t sum = node->tensors[0];
    const struct rf_tensor_row *made = &f->graph->tensors[sum];
    const struct rf_tensor_row *weight = &f->graph->tensors[rf_node_root(f->graph, node, 1)];
    if (made->root != sum || made->producer == RF_NO_INDEX || f->uses[sum].updated || f->touched[made->producer])
        return false;
    struct rf_node_row *add = &f->graph->nodes[made->producer];
    if (!is(add, "add") || f->uses[rf_node_root(f->graph, node, 1)].updated ||
        (weight->producer != RF_NO_INDEX && weight->producer >= made->producer))
        return false;
    struct rf_node_row fused = form(add, "add_norm");
    fused.attributes.eps = node->attributes.eps;
    fused.tensors[0] = add->tensors[0];
    fused.tensors[1] = add->tensors[1];
    fused.tensors[2] = node->tensors[1];
    fused.tensors[3] = sum;
    fused.tensors[4] = rf_node_out(node, 0);
    return SETTLE(f, add, &fused, node);
}

/* Whether a weight exists when the norm runs, and has a type that a kernel takes together with the norm. */
static bool early_weight(struct fusing *f, const struct rf_node_row *product, int input) {
    uint32_t root = rf_node_root(f->graph, product, input);
    const struct rf_tensor_row *weight = &f->graph->tensors[product->tensors[input]];
    return f->graph->tensors[root].producer == RF_NO_INDEX && !f->uses[root].updated && weight->desc.dtype != RF_F32;
}
/* For one row of x only: no kernel does all of it for more. The normalized row may have other readers. */
static bool fuse_norm_products(struct fusing *f, struct rf_node_row *node) {
    enum { PRODUCTS_MAX = 3 };
    if (!is(node, "rms_norm") || node->tensors[1] == RF_NO_INDEX) return false;
    uint32_t normed = rf_node_out(node, 0);
    if (f->graph->tensors[node->tensors[0]].desc.shape[0] != 1 || f->uses[f->graph->tensors[normed].root].updated)
        return false;
    struct rf_node_row *found[PRODUCTS_MAX] = {NULL};
    int count = 0;
    bool gate = false;
    for (size_t s = index_of(f, node) + 1; s < f->graph->node_count; s++) {
        struct rf_node_row *next = &f->graph->nodes[s];
        bool is_gate = is(next, "matmul_gate");
        if (f->gone[s] || f->touched[s] || next->tensors[MATMUL_X] != normed || !(is_gate || plain_product(next)))
            continue;
        if (count == PRODUCTS_MAX || (count && is_gate != gate) || !early_weight(f, next, MATMUL_WEIGHTS))
            return false;
        gate = is_gate;
        found[count++] = next;
    }
    if (count != (gate ? 1 : PRODUCTS_MAX) || (gate && !early_weight(f, found[0], GATE_GATE))) return false;
    struct rf_node_row fused = form(node, gate ? "norm_gate" : "norm_qkv");
    fused.attributes.eps = node->attributes.eps;
    fused.tensors[0] = node->tensors[0];
    fused.tensors[1] = node->tensors[1];
    fused.tensors[fused.op->inputs] = normed;
    for (int i = 0; i < count; i++) {
        fused.tensors[NORM_WEIGHTS + i] = found[i]->tensors[MATMUL_WEIGHTS];
        fused.tensors[fused.op->inputs + 1 + i] = rf_node_out(found[i], 0);
    }
    if (gate) fused.tensors[NORM_WEIGHTS + 1] = found[0]->tensors[GATE_GATE];
    return SETTLE(f, node, &fused, found[0], found[1], found[2]);
}

/* ---- the KV cache ---- */

/* rope's positions must be those of kv_append, which rotates k by them as it stores it. */
static bool fuse_rope(struct fusing *f, struct rf_node_row *node) {
    if (!is(node, "kv_append") || node->tensors[KV_STEPS] != RF_NO_INDEX) return false;
    struct rf_node_row *rope = only_for_here(f, node->tensors[KV_K]);
    if (!rope || !is(rope, "rope") || rope->tensors[1] != node->tensors[KV_POSITIONS] || !steady(f, rope, node))
        return false;
    struct rf_node_row fused = *node;
    fused.attributes = rope->attributes;
    fused.tensors[KV_K] = rope->tensors[0];
    fused.tensors[KV_STEPS] = rope->tensors[2];
    return SETTLE(f, node, &fused, rope);
}

/* The kv_append of the keys that belong to these queries: it has the same positions and the same rotation, and
 * between the two no node reads or changes the cache it appends to. */
static struct rf_node_row *append_for(struct fusing *f, const struct rf_node_row *rope) {
    for (size_t s = index_of(f, rope); s-- > 0;) {
        struct rf_node_row *append = &f->graph->nodes[s];
        if (f->gone[s] || f->touched[s] || append->group != rope->group || !is(append, "kv_append") ||
            append->tensors[KV_POSITIONS] != rope->tensors[1] || append->tensors[KV_STEPS] != rope->tensors[2])
            continue;
        for (size_t between = s + 1; between < index_of(f, rope); between++)
            for (int i = 0; i < f->graph->nodes[between].op->inputs && !f->gone[between]; i++)
                for (int cache = KV_K_CACHE; cache <= KV_V_CACHE; cache++)
                    if (rf_node_root(f->graph, &f->graph->nodes[between], i) == rf_node_root(f->graph, append, cache))
                        return NULL;
        return append;
    }
    return NULL;
}
/* For few tokens only: the queries of many tokens are rotated by themselves, in place. */
static bool fuse_rope_append(struct fusing *f, struct rf_node_row *node) {
    enum { TOKENS_MAX = 16 };
    if (!is(node, "rope") || f->graph->tensors[node->tensors[0]].desc.shape[0] > TOKENS_MAX) return false;
    struct rf_node_row *append = append_for(f, node);
    if (!append || !steady_but(f, append, KV_K_CACHE, node) || append->attributes.halves != node->attributes.halves ||
        append->attributes.magnitude != node->attributes.magnitude)
        return false;
    struct rf_node_row fused = form(node, "rope_append");
    fused.attributes = append->attributes;
    fused.tensors[0] = node->tensors[0];
    memcpy(fused.tensors + 1, append->tensors, (size_t)append->op->inputs * sizeof *fused.tensors);
    fused.tensors[1 + append->op->inputs] = rf_node_out(node, 0);
    return SETTLE(f, node, &fused, append);
}

/* A row that is cast to f32 only for a product: one kernel reads it as it is. */
static bool fuse_cast(struct fusing *f, struct rf_node_row *node) {
    if (!is(node, "matmul") || node->tensors[MATMUL_BIAS] != RF_NO_INDEX || node->attributes.path ||
        f->graph->tensors[node->tensors[MATMUL_X]].desc.shape[0] != 1 || !early_weight(f, node, MATMUL_WEIGHTS))
        return false;
    struct rf_node_row *cast = only_for_here(f, node->tensors[MATMUL_X]);
    if (!cast || !is(cast, "copy") || !steady(f, cast, node)) return false;
    struct rf_node_row fused = form(node, "cast_matmul");
    fused.tensors[0] = cast->tensors[0];
    fused.tensors[CAST_WEIGHTS] = node->tensors[MATMUL_WEIGHTS];
    fused.tensors[CAST_RESIDUAL] = node->tensors[MATMUL_RESIDUAL];
    fused.tensors[CAST_CAST] = rf_node_out(cast, 0);
    fused.tensors[CAST_OUT] = rf_node_out(node, 0);
    return SETTLE(f, node, &fused, cast);
}

/* ---- attention ---- */

/* Whether a tensor is the whole of a dense storage, in any shape. */
static bool whole(const struct rf_graph *graph, uint32_t tensor) {
    const struct rf_tensor_row *part = &graph->tensors[tensor], *root = &graph->tensors[part->root];
    return part->desc.dtype == root->desc.dtype && part->desc.byte_offset == root->desc.byte_offset &&
           part->bytes == root->bytes && rf_op_contiguous(&part->desc) && rf_op_contiguous(&root->desc);
}
/* The node that makes a storage, if it has exactly 'readers' readers, all of them in the pattern. */
static struct rf_node_row *maker(struct fusing *f, uint32_t tensor, uint32_t readers) {
    uint32_t root = f->graph->tensors[tensor].root;
    const struct rf_tensor_row *made = &f->graph->tensors[root];
    if (made->producer == RF_NO_INDEX || made->output || f->uses[root].reads != readers ||
        f->touched[made->producer] || !whole(f->graph, tensor))
        return NULL;
    return &f->graph->nodes[made->producer];
}
/* The first node between two nodes that uses a storage. If the storage has 2 readers, this is the one that changes
 * it. */
static struct rf_node_row *changer(struct fusing *f, uint32_t root, size_t after, size_t before) {
    for (size_t s = after + 1; s < before; s++)
        for (int i = 0; i < f->graph->nodes[s].op->inputs; i++)
            if (!f->gone[s] && rf_node_root(f->graph, &f->graph->nodes[s], i) == root) return &f->graph->nodes[s];
    return NULL;
}

/* A view of the mask of a softmax_mask, [batch or 1, rows, columns], in flash_attention's form: one for all heads.
 * 0: there is no memory for the view, which is not a failure of the graph. */
static rf_tensor_id mask_of_heads(struct rf_graph *graph, uint32_t mask) {
    RF_PARAMS(struct rf_graph_tensor, view);
    const struct rf_tensor_desc *desc = &graph->tensors[mask].desc;
    rf_tensor_id id = 0;
    view.view_of = mask + 1;
    view.desc = (struct rf_tensor_desc){
        .dtype = desc->dtype, .rank = 4, .shape = {desc->shape[0], 1, desc->shape[1], desc->shape[2]}};
    return rf_graph_add_tensor(graph, &view, &id) ? 0 : id;
}

/* The softmax must be over rows of the scores (the last dimension is the same), with or without a causal_mask in
 * between; or it is a softmax_mask. */
static bool fuse_attention(struct fusing *f, struct rf_node_row *node) {
    struct rf_graph *graph = f->graph;
    if (!is(node, "weighted_matmul")) return false;
    struct rf_node_row *softmax = maker(f, node->tensors[0], 1), *mask = NULL;
    if (!softmax || !(is(softmax, "softmax") || is(softmax, "softmax_mask"))) return false;
    uint32_t scores = rf_node_root(graph, softmax, 0);
    bool causal = f->uses[scores].updated, scaled = is(softmax, "softmax_mask");
    struct rf_node_row *qkt = maker(f, softmax->tensors[0], causal ? 2 : 1);
    if (!qkt || !is(qkt, "qkt_matmul") || !steady(f, qkt, node)) return false;
    const struct rf_tensor_desc *shape = &graph->tensors[scores].desc,
                                *in = &graph->tensors[softmax->tensors[0]].desc;
    if (causal) {
        mask = changer(f, scores, index_of(f, qkt), index_of(f, softmax));
        if (!mask || !is(mask, "causal_mask") || !whole(graph, mask->tensors[0]) || f->touched[index_of(f, mask)] ||
            !rf_op_same_shape(&graph->tensors[mask->tensors[0]].desc, shape))
            return false;
    }
    if ((scaled ? !rf_op_same_shape(in, shape) : in->shape[1] != shape->shape[3]) ||
        !rf_op_same_shape(&graph->tensors[node->tensors[0]].desc, shape))
        return false;
    struct rf_node_row fused = form(node, "flash_attention");
    fused.attributes.scale = qkt->attributes.scale;
    fused.attributes.causal = causal;
    fused.attributes.offset = causal ? mask->attributes.offset : 0;
    fused.tensors[0] = qkt->tensors[0];
    fused.tensors[1] = qkt->tensors[1];
    fused.tensors[2] = node->tensors[1];
    fused.tensors[FLASH_OUT] = rf_node_out(node, 0);
    if (scaled && !joined_scale(qkt, softmax, &fused.attributes.scale)) return false;
    if (scaled && softmax->tensors[1] != RF_NO_INDEX) {
        /* Checked before the view is made: flash_attention does not take an f16 mask. */
        if (graph->tensors[softmax->tensors[1]].desc.dtype != RF_F32 ||
            f->uses[rf_node_root(graph, softmax, 1)].updated)
            return false;
        rf_tensor_id view = mask_of_heads(graph, softmax->tensors[1]);
        if (!view) return false;
        fused.tensors[FLASH_MASK] = view - 1;
    }
    return SETTLE(f, node, &fused, qkt, mask, softmax);
}

/* ---- the begin of a layer ---- */

/* Which product of this norm_qkv becomes a tensor of rope_append, the only reader of all of it; -1: none. */
static int product_of(struct fusing *f, const struct rf_node_row *norm, uint32_t heads) {
    for (int i = 0; i < 3; i++)
        if (f->graph->tensors[heads].root == rf_node_out(norm, NORM_PRODUCTS + i) && maker(f, heads, 1) == norm)
            return i;
    return -1;
}
/* For one token, of which norm_qkv is already. Nothing else may read the products or the normalized row: one kernel
 * keeps them to itself. */
static bool fuse_qkv_append(struct fusing *f, struct rf_node_row *node) {
    struct rf_graph *graph = f->graph;
    if (!is(node, "rope_append")) return false;
    struct rf_node_row *norm = maker(f, node->tensors[0], 1);
    if (!norm || !is(norm, "norm_qkv") || !steady(f, norm, node)) return false;
    uint32_t normed = rf_node_out(norm, 0);
    if (f->uses[graph->tensors[normed].root].reads || graph->tensors[graph->tensors[normed].root].output)
        return false;
    struct rf_node_row fused = form(node, "norm_qkv_append");
    fused.attributes = node->attributes;
    fused.attributes.eps = norm->attributes.eps;
    fused.tensors[0] = norm->tensors[0];
    fused.tensors[1] = norm->tensors[1];
    fused.tensors[fused.op->inputs] = normed;
    for (int i = 0; i < 3; i++) {
        int product = product_of(f, norm, node->tensors[i]);
        if (product < 0) return false;
        fused.tensors[NORM_WEIGHTS + i] = norm->tensors[NORM_WEIGHTS + product];
        fused.tensors[fused.op->inputs + NORM_PRODUCTS + i] = rf_node_out(norm, NORM_PRODUCTS + product);
    }
    memcpy(fused.tensors + QKV_TOKENS, node->tensors + APPEND_TOKENS,
           (size_t)(node->op->inputs - APPEND_TOKENS) * sizeof *fused.tensors);
    fused.tensors[fused.op->inputs + NORM_PRODUCTS + 3] = rf_node_out(node, 0);
    return SETTLE(f, node, &fused, norm);
}

/* ---- rounds ---- */

typedef bool (*pattern)(struct fusing *f, struct rf_node_row *node);

/* Tries one pattern over the whole graph. Better forms come first in the list below. */
static rf_status round_of(struct rf_graph *graph, pattern try, size_t *changes) {
    struct fusing f = {graph, rf_pass_uses(graph), rf_pass_flags(graph), rf_pass_flags(graph)};
    rf_status status = f.uses && f.gone && f.touched ? RF_OK : RF_E_NO_MEMORY;
    size_t found = 0;
    for (size_t s = 0; !status && s < graph->node_count; s++)
        if (!f.gone[s] && !f.touched[s] && try(&f, &graph->nodes[s])) found++;
    if (!status && found) {
        /* This also frees the names of the removed nodes. */
        status = rf_graph_compact(graph, f.gone);
    }
    *changes += found;
    free(f.uses);
    free(f.gone);
    free(f.touched);
    return status;
}

rf_status rf_pass_fuse(struct rf_graph *graph, size_t *changes) {
    static const pattern patterns[] = {fuse_scale, fuse_softmax_scale, fuse_attention,    fuse_activation,
                                       fuse_gate,  fuse_residual,      fuse_multiply_add, fuse_add_norm,
                                       fuse_rope,  fuse_norm_products, fuse_rope_append,  fuse_qkv_append,
                                       fuse_cast};
    for (size_t i = 0; i < RF_COUNT(patterns); i++)
        for (size_t found = 1; found;) {
            found = 0;
            rf_status status = round_of(graph, patterns[i], &found);
            if (status) return status;
            *changes += found;
        }
    return RF_OK;
}
