/* The op table, as the other files of the library use it.
 *
 * A call is an op with its attributes and tensors, inputs first and outputs after them. Each tensor has a descriptor
 * and a place: host memory for the reference and the CPU, a buffer for the GPU. rf_op_check is the one gate: nothing
 * is launched that it did not accept. Invariants:
 *   - an op's reference accepts every call that rf_op_check accepts
 *   - a backend may refuse a call (RF_E_UNSUPPORTED) that the reference accepts, never the
 *     other way round, and refuses before it launches anything
 *   - an optional tensor that is left out has rank 0
 *   - a size may be 0: that tensor has no elements, and nothing of it is read or written
 *   - outputs share no memory with inputs, except output 0 if the row allows it (in_place)
 *   - a tensor that an op changes in place is an input that the op 'updates'
 * rf_graph_is_valid checks every node of a graph with rf_op_check, and its outputs against its inputs. The first
 * three are about what code accepts and refuses: `rocmforge check` runs every case of every op on every backend. */
#ifndef RF_OPS_OP_H
#define RF_OPS_OP_H

#include "ops/launch.h"
#include <rocmforge/ops.h>

enum { RF_OP_TENSORS_MAX = 16 };

struct rf_op_tensor {
    struct rf_tensor_desc desc;
    uint64_t bytes;           /* bytes spanned, byte_offset included */
    void *host;               /* the start of the memory, byte_offset not included */
    struct rf_buffer *buffer; /* the buffer; byte_offset is not included */
    bool constant;            /* no kernel writes it in this run, so a kernel may read it before its turn */
};

/* The attributes of a call. There is one struct for all ops: an op's row lists the attributes that it has
 * (rf_op.attributes), the others are 0. Every member has 8 bytes, so that two of these structs can be compared as
 * bytes. */
struct rf_op_attributes {
    double value;                              /* fill: for float tensors */
    double scale;                              /* scale, qkt_matmul, softmax_mask, attention */
    double eps;                                /* norms */
    double magnitude;                          /* rotations: the result is multiplied by it */
    double temperature, top_p, min_p, penalty; /* sample */
    double presence, frequency;                /* sample */
    int64_t integer;                           /* fill: for integer tensors */
    int64_t path;                              /* enum rf_matmul_path or rf_attention_path; 0: the op chooses */
    int64_t kind;                              /* activation: enum rf_activation */
    int64_t axis;                              /* concat */
    int64_t causal;                            /* flash_attention: query i sees keys up to i + offset */
    int64_t offset;                            /* flash_attention, causal_mask */
    int64_t halves;                            /* rotations: 1: pairs are i and i + half; 0: neighbours */
    int64_t max_length; /* paged_attention: no sequence is longer; 0: as long as the pages allow */
    int64_t fresh;      /* paged_attention: the most keys of a sequence, its newest, that this graph writes */
    int64_t top_k, temperature_last, strict; /* sample */
};

/* One attribute of an op, by name. */
struct rf_op_attribute {
    const char *name; /* NULL ends a list */
    size_t offset;    /* in struct rf_op_attributes */
    bool integer;     /* int64_t; else double */
    int position;     /* its position in rf_graph_node.f or .i, for nodes that give it by position */
};
#define RF_ATTRIBUTE_F(name, position) {#name, offsetof(struct rf_op_attributes, name), false, position}
#define RF_ATTRIBUTE_I(name, position) {#name, offsetof(struct rf_op_attributes, name), true, position}
#define RF_ATTRIBUTES(...) ((const struct rf_op_attribute[]){__VA_ARGS__, {NULL, 0, false, 0}})

static inline double *rf_attribute_f(const struct rf_op_attribute *row, struct rf_op_attributes *attributes) {
    return (double *)(void *)((char *)attributes + row->offset);
}
static inline int64_t *rf_attribute_i(const struct rf_op_attribute *row, struct rf_op_attributes *attributes) {
    return (int64_t *)(void *)((char *)attributes + row->offset);
}

struct rf_op;
struct rf_op_call {
    const struct rf_op *op;
    struct rf_op_attributes attributes;
    int fill_kind; /* in a check: rf_op_case.fill_kind */
    int count;     /* number of tensors */
    struct rf_op_tensor tensors[RF_OP_TENSORS_MAX];
    struct rf_buffer *workspace; /* on the GPU: op->workspace bytes at a multiple of 256; contents need not be kept */
    uint64_t workspace_offset;
    struct rf_buffer *counters; /* on the GPU: op->counters bytes of zeros at a multiple of 256, left as zeros */
    uint64_t counters_offset;
};

/* A case of the table: what a call is built from, and the tolerance of its result. */
struct rf_op_case {
    char label[96];
    struct rf_op_attributes attributes;
    int count;
    struct rf_tensor_desc tensors[RF_OP_TENSORS_MAX];
    enum rf_case_data { RF_DATA_NORMAL, RF_DATA_MASKED, RF_DATA_EXTREME, RF_DATA_SPECIAL } data;
    int fill_kind; /* tells the op's own `fill` what to write */
    double absolute, relative;
    bool bench; /* a large case, for the benchmark alone */
};

/* Collects an op's cases; a NULL list counts them. */
struct rf_case_list {
    struct rf_op_case *cases;
    size_t count, capacity;
    bool failed; /* out of memory */
};
void rf_case_add(struct rf_case_list *list, const struct rf_op_case *one);

struct rf_cpu;
struct rf_op {
    const char *name, *summary;
    int inputs, outputs;
    const struct rf_op_attribute *attributes; /* ended by a name of NULL; NULL: no attributes */
    uint32_t optional;                        /* bit i: input i may be left out (rank 0) */
    uint32_t updates;  /* bit i: input i is changed in place (a cache, a matrix that is masked) */
    uint32_t in_place; /* bit i: output 0 may lie exactly where input i does, with its type, shape and strides */
    /* Checks shapes, types, strides and alignment. rf_fail sets the reason; the caller puts the op's name in
     * front. */
    rf_status (*check)(const struct rf_op_call *call);
    void (*reference)(const struct rf_op_call *call);
    rf_status (*gpu)(struct rf_queue *queue, const struct rf_op_call *call); /* NULL: not offered */
    rf_status (*cpu)(struct rf_cpu *cpu, const struct rf_op_call *call);     /* NULL: the CPU runs the reference */
    /* The scratch bytes that the GPU needs, by sizes alone; NULL: none. The call has passed rf_op_check. */
    rf_status (*workspace)(const struct rf_op_call *call, uint64_t *bytes);
    /* Likewise the bytes of counters, by which blocks of a kernel find out that they are the last one. They are 0
     * before the op's work and after it, so the ops of a queue can share them; NULL: none. */
    rf_status (*counters)(const struct rf_op_call *call, uint64_t *bytes);
    void (*cases)(struct rf_case_list *list);
    /* Fills input 'index' of a case if random numbers are not suitable: indices, tables, lengths. The host memory
     * exists, and earlier inputs are filled. Returns false if this input gets random numbers like any other. NULL:
     * all inputs do. */
    bool (*fill)(const struct rf_op_call *call, int index, uint64_t *state);
    /* The bytes that a call must move and the operations that it must compute at least; for the benchmark. */
    void (*cost)(const struct rf_op_call *call, uint64_t *bytes, uint64_t *flops);
};

extern const struct rf_op *const rf_op_table[];
extern const size_t rf_op_table_count;
const struct rf_op *rf_op_find(const char *name); /* NULL if there is no such op */

/* As rf_tensor_desc_check, and sets strides and bytes, but a tensor may have no elements and, if optional, may be
 * left out. */
rf_status rf_op_check_tensor(struct rf_op_tensor *tensor, bool optional);
/* Checks the descriptors (and sets strides and spans), then the op's own rules. */
rf_status rf_op_check(struct rf_op_call *call);

/* ---- shorthands for the rows of the table ---- */

static inline const struct rf_op_tensor *rf_op_in(const struct rf_op_call *call, int index) {
    return &call->tensors[index];
}
static inline const struct rf_op_tensor *rf_op_out(const struct rf_op_call *call, int index) {
    return &call->tensors[call->op->inputs + index];
}
static inline bool rf_op_given(const struct rf_op_tensor *tensor) {
    return tensor->desc.rank > 0;
}
/* NULL if the tensor is left out. */
static inline void *rf_op_host(const struct rf_op_tensor *tensor) {
    return tensor->host ? (char *)tensor->host + tensor->desc.byte_offset : NULL;
}
static inline uint64_t rf_op_elements(const struct rf_tensor_desc *desc) {
    uint64_t count = 1;
    for (int i = 0; i < desc->rank; i++) count *= desc->shape[i];
    return count;
}
bool rf_op_contiguous(const struct rf_tensor_desc *desc);
bool rf_op_same_shape(const struct rf_tensor_desc *a, const struct rf_tensor_desc *b);
bool rf_op_is_float(enum rf_dtype dtype); /* f32, f16, bf16 */
static inline bool rf_op_is_quantized(enum rf_dtype dtype) {
    return rf_dtype_block(dtype) > 1;
}
/* The relative error of rounding one result to a type. */
double rf_op_step(enum rf_dtype dtype);
/* The next number of a seeded stream; for the fill functions. */
uint64_t rf_op_random(uint64_t *state);
/* For an op that stands for several ops: rf_op_part gives its op number `index`. One function runs the first `end` of
 * them, one after the other; the other gives the cost of those from `first` to `end` - 1 together. */
typedef struct rf_op_call (*rf_op_part)(const struct rf_op_call *call, int index);
void rf_op_parts_reference(const struct rf_op_call *call, rf_op_part part, int end);
void rf_op_parts_cost(const struct rf_op_call *call, rf_op_part part, int first, int end, uint64_t *bytes,
                      uint64_t *flops);
#endif
