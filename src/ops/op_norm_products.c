/* Ops that prepare rows and then multiply them: norm_qkv and norm_gate, with which the two halves of a transformer's
 * layer begin, are rms_norm and the products of its result; cast_matmul is a copy to f32 and a product. The result of
 * the first op is an output too.
 *
 * Each of these ops stands for several, one after the other. The reference and the CPU run it that way, and so does a
 * GPU without a kernel for all of it. For one row of x a GPU has one kernel for most types of weights; the first op
 * then needs no launch of its own, nor do a second and third product.
 *
 * Cases have rows of one magnitude with random signs and norms that 8 bits hold exactly (like op_matmul.c's
 * fill_exact): the normalized rows lose nothing by being rounded to 8 bits, and the tolerances are those of sums in
 * f32. The same holds for cast rows. */
#include "ops/op_weights_impl.h"

#include <math.h>

#include "cpu/fast.h"
#include "cpu/reference.h"

enum { X, NORM, WEIGHTS, GATE, CAST_WEIGHTS = 1, CAST_RESIDUAL, PRODUCTS_MAX = 3 }; /* inputs */

extern const struct rf_op rf_op_norm_qkv, rf_op_norm_gate, rf_op_cast_matmul;
extern const struct rf_op rf_op_rms_norm, rf_op_copy, rf_op_matmul, rf_op_matmul_gate;

static bool is_cast(const struct rf_op_call *call) {
    return call->op == &rf_op_cast_matmul;
}
static int products(const struct rf_op_call *call) {
    return call->op == &rf_op_norm_qkv ? PRODUCTS_MAX : 1;
}
static const struct rf_op_tensor *weights_of(const struct rf_op_call *call, int product) {
    return rf_op_in(call, (is_cast(call) ? CAST_WEIGHTS : WEIGHTS) + product);
}

/* Op number `index` of those that the op stands for: the norm, then the products. */
static struct rf_op_call part_of(const struct rf_op_call *call, int index) {
    bool gate = call->op == &rf_op_norm_gate;
    struct rf_op_call part = {.workspace = call->workspace, .workspace_offset = call->workspace_offset};
    const struct rf_op_tensor *normed = rf_op_out(call, 0);
    if (index == 0 && is_cast(call)) {
        part.op = &rf_op_copy;
        part.tensors[0] = *rf_op_in(call, X);
        part.tensors[1] = *normed;
    } else if (index == 0) {
        part.op = &rf_op_rms_norm;
        part.attributes.eps = call->attributes.eps;
        part.tensors[0] = *rf_op_in(call, X);
        part.tensors[1] = *rf_op_in(call, NORM);
        part.tensors[2] = *normed;
    } else {
        part.op = gate ? &rf_op_matmul_gate : &rf_op_matmul;
        part.tensors[0] = *normed;
        part.tensors[1] = *weights_of(call, index - 1);
        if (gate) part.tensors[2] = *rf_op_in(call, GATE);
        if (is_cast(call)) part.tensors[3] = *rf_op_in(call, CAST_RESIDUAL);
        part.tensors[part.op->inputs] = *rf_op_out(call, index);
    }
    part.count = part.op->inputs + 1;
    return part;
}

static rf_status norm_check(const struct rf_op_call *call) {
    for (int i = 0; i <= products(call); i++) {
        struct rf_op_call part = part_of(call, i);
        RF_TRY(part.op->check(&part));
    }
    return RF_OK;
}
static void norm_reference(const struct rf_op_call *call) {
    rf_op_parts_reference(call, part_of, 1 + products(call));
}
static rf_status norm_cpu(struct rf_cpu *cpu, const struct rf_op_call *call) {
    struct rf_op_call first = part_of(call, 0);
    struct rf_ref_matmul all[PRODUCTS_MAX];
    RF_TRY(first.op->cpu(cpu, &first));
    for (int i = 0; i < products(call); i++) {
        struct rf_op_call part = part_of(call, 1 + i);
        all[i] = rf_op_product(&part);
    }
    for (int i = 0, next; i < products(call); i = next) {
        next = i + 1;
        while (next < products(call) && all[next].weight_type == all[i].weight_type) next++;
        RF_TRY(rf_cpu_matmuls(cpu, all + i, (size_t)(next - i)));
    }
    return RF_OK;
}
static rf_status norm_workspace(const struct rf_op_call *call, uint64_t *bytes) {
    *bytes = 0;
    for (int i = 1; i <= products(call); i++) {
        struct rf_op_call part = part_of(call, i);
        uint64_t needed = 0;
        if (part.op->workspace) RF_TRY(part.op->workspace(&part, &needed));
        *bytes = RF_MAX(*bytes, needed);
    }
    return RF_OK;
}

/* Converts a call of one row to the arguments of the launcher that uses one kernel for all products whose weights are
 * of the same type as those of product `first`. */
static struct rf_gpu_norm_products gpu_products(const struct rf_op_call *call, int first) {
    const struct rf_op_tensor *x = rf_op_in(call, X), *weights = weights_of(call, first);
    bool gate = call->op == &rf_op_norm_gate, constant = !gate || rf_op_in(call, GATE)->constant;
    struct rf_gpu_norm_products all = {.args = {.k = weights->desc.shape[1], .eps = (float)call->attributes.eps},
                                       .weight_type = weights->desc.dtype,
                                       .type = x->desc.dtype,
                                       .count = products(call),
                                       .x = rf_op_operand(x),
                                       .normed = rf_op_operand(rf_op_out(call, 0))};
    if (gate) all.gate = rf_op_operand(rf_op_in(call, GATE));
    if (is_cast(call))
        all.residual = rf_op_operand(rf_op_in(call, CAST_RESIDUAL));
    else
        all.norm = rf_op_operand(rf_op_in(call, NORM));
    for (int i = 0; i < all.count; i++) {
        const struct rf_op_tensor *one = weights_of(call, i);
        all.args.n[i] = one->desc.dtype == all.weight_type ? one->desc.shape[0] : 0;
        all.weights[i] = rf_op_operand(one);
        all.out[i] = rf_op_operand(rf_op_out(call, 1 + i));
        constant = constant && one->constant;
    }
    all.args.flags = constant ? RF_PRODUCTS_CONSTANT : 0;
    return all;
}
/* One kernel for the products that share the type of product `first`. plan_only: it is not launched. */
static rf_status products_at_once(struct rf_queue *queue, const struct rf_op_call *call, int first,
                                  const struct rf_gpu_kv_append *append, struct rf_operand counters, bool plan_only,
                                  bool *done) {
    struct rf_gpu_norm_products all = gpu_products(call, first);
    all.append = append;
    all.counters = counters;
    all.plan_only = plan_only;
    *done = false;
    for (int i = 0; i < all.count; i++) {
        if (!weights_of(call, i)->desc.shape[0]) return RF_OK;
        if (rf_op_is_quantized(all.weight_type) && all.args.n[i])
            RF_TRY(rf_need_gpu_aligned(call, weights_of(call, i), "weights", 16));
    }
    if (rf_op_is_quantized(all.weight_type)) {
        if (all.gate.buffer) RF_TRY(rf_need_gpu_aligned(call, rf_op_in(call, GATE), "gate", 16));
        RF_TRY(rf_need_gpu_aligned(call, rf_op_out(call, 0), "normed", 16));
    }
    return rf_gpu_norm_products(queue, &all, done);
}
/* The first product before this one whose weights have its type; the product itself if there is none. */
static int same_type(const struct rf_op_call *call, int product) {
    int first = 0;
    while (weights_of(call, first)->desc.dtype != weights_of(call, product)->desc.dtype) first++;
    return first;
}
rf_status rf_norm_products_at_once(struct rf_queue *queue, const struct rf_op_call *call,
                                   const struct rf_gpu_kv_append *append, struct rf_operand counters, bool *done) {
    const struct rf_op_tensor *x = rf_op_in(call, X);
    *done = false;
    if (x->desc.shape[0] != 1 || (x->desc.dtype != RF_F32 && x->desc.dtype != RF_F16) || !rf_op_contiguous(&x->desc))
        return RF_OK;
    bool one_type = true;
    for (int i = 1; i < products(call); i++) one_type = one_type && same_type(call, i) == 0;
    if (one_type) return products_at_once(queue, call, 0, append, counters, false, done);
    /* A kernel for each type normalizes x again, which is worth it if the products go on from there. */
    if (!append) return RF_OK;
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < products(call); i++) {
            if (same_type(call, i) != i) continue;
            RF_TRY(products_at_once(queue, call, i, append, counters, round == 0, done));
            if (!*done) return RF_OK;
        }
    return RF_OK;
}
static rf_status norm_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    bool done;
    RF_TRY(rf_norm_products_at_once(queue, call, NULL, (struct rf_operand){NULL, 0}, &done));
    for (int i = 0; i <= products(call) && !done; i++) {
        struct rf_op_call part = part_of(call, i);
        RF_TRY(part.op->gpu(queue, &part));
    }
    return RF_OK;
}

static void norm_cost(const struct rf_op_call *call, uint64_t *bytes, uint64_t *flops) {
    rf_op_parts_cost(call, part_of, 1, 1 + products(call), bytes, flops);
}

/* ---- cases ---- */

/* Writes numbers that 8 bits hold exactly, with a 127 among each 32; an x that is normalized has one magnitude. */
static bool norm_fill(const struct rf_op_call *call, int index, uint64_t *state) {
    const struct rf_op_tensor *tensor = rf_op_in(call, index);
    uint64_t count = rf_op_elements(&tensor->desc);
    void *to = rf_op_host(tensor);
    if (index > (is_cast(call) ? X : NORM) || !rf_op_contiguous(&tensor->desc)) return false;
    for (uint64_t at = 0; at < count; at += RF_Q8_BLOCK) {
        uint64_t largest = rf_op_random(state) % RF_Q8_BLOCK;
        for (uint64_t i = 0; i < RF_Q8_BLOCK && at + i < count; i++) {
            bool negative = rf_op_random(state) % 2;
            double exact = (i == largest ? 127.0 : (double)(rf_op_random(state) % 255) - 127.0) / 32;
            rf_element_set(tensor->desc.dtype, to, at + i,
                           index == X && !is_cast(call) ? (negative ? -3.0 : 3.0) : exact);
        }
    }
    return true;
}

static void add_case_of(struct rf_case_list *list, const struct rf_op *op, enum rf_dtype weights, enum rf_dtype last,
                        uint64_t m, const uint64_t n[PRODUCTS_MAX], uint64_t k, bool bench) {
    bool gate = op == &rf_op_norm_gate, cast = op == &rf_op_cast_matmul, quant = rf_op_is_quantized(weights);
    int first = cast ? CAST_WEIGHTS : WEIGHTS;
    struct rf_op_case one = {.count = op->inputs + op->outputs, .bench = bench};
    struct rf_tensor_desc rows = {.dtype = RF_F32, .rank = 2, .shape = {m, k}};
    if (!cast) one.attributes.eps = 1e-5;
    one.tensors[X] = one.tensors[op->inputs] = rows;
    if (cast)
        one.tensors[X].dtype = n[1] % 2 ? RF_BF16 : RF_F16;
    else
        one.tensors[NORM] = (struct rf_tensor_desc){.dtype = RF_F32, .rank = 1, .shape = {k}};
    for (int i = 0; i < (gate ? 2 : cast ? 1 : PRODUCTS_MAX); i++) {
        uint64_t columns = n[gate ? 0 : i];
        one.tensors[first + i] = (struct rf_tensor_desc){
            .dtype = i == PRODUCTS_MAX - 1 ? last : weights, .rank = 2, .shape = {columns, k}};
        if (!gate || i == 0)
            one.tensors[op->inputs + 1 + i] =
                (struct rf_tensor_desc){.dtype = RF_F32, .rank = 2, .shape = {m, columns}};
    }
    if (cast && n[2] % 2)
        one.tensors[CAST_RESIDUAL] = (struct rf_tensor_desc){.dtype = RF_F32, .rank = 2, .shape = {m, n[0]}};
    /* As op_matmul.c says, with norms in place of x; the norm's own rounding adds a few roundings of each product. */
    double product = quant ? 1.4 : 5.4;
    one.absolute = 1.5e-7 * product * ((double)k + 4) + 4e-7 * product * sqrt((double)k);
    one.relative = 2e-6;
    if (m > RF_MATVEC_ROWS && !gate && weights != RF_F32)
        one.absolute += 4 * (weights == RF_BF16 ? 0x1p-8 : 0x1p-11) * product * sqrt((double)k);
    if (gate) {
        one.absolute *= 2 * (4 * product * sqrt((double)k) + 1);
        one.relative = 1e-5;
    }
    snprintf(one.label, sizeof one.label, "%s %s %llux%llux%llu%s%s", rf_dtype_name(weights),
             rf_dtype_name(one.tensors[X].dtype), (unsigned long long)m,
             (unsigned long long)(gate || cast ? n[0] : n[0] + n[1] + n[2]), (unsigned long long)k,
             cast && n[2] % 2 ? " residual" : "", last == weights ? "" : " and another type");
    rf_case_add(list, &one);
}
static void add_case(struct rf_case_list *list, const struct rf_op *op, enum rf_dtype weights, uint64_t m,
                     const uint64_t n[PRODUCTS_MAX], uint64_t k, bool bench) {
    add_case_of(list, op, weights, weights, m, n, k, bench);
}

static void add_cases(struct rf_case_list *list, const struct rf_op *op) {
    static const struct {
        uint64_t m, n[PRODUCTS_MAX], k;
    } shapes[] = {{1, {5, 3, 4}, 256},  {1, {67, 2, 33}, 2048}, {1, {1, 1, 1}, 4096},
                  {1, {9, 6, 7}, 2304}, {3, {4, 3, 5}, 256},    {1, {2, 4, 6}, 22528},
                  {9, {3, 2, 1}, 256},  {2, {3, 0, 1}, 256},    {0, {3, 2, 1}, 256}};
    static const enum rf_dtype fast[] = {RF_F16, RF_BF16, RF_Q4_0, RF_Q8_0, RF_Q4_K, RF_Q6_K};
    for (size_t s = 0; s < RF_COUNT(shapes); s++) {
        for (size_t w = 0; w < RF_COUNT(rf_case_floats); w++)
            if (shapes[s].k == 256 || (shapes[s].m == 1 && rf_case_floats[w] != RF_F32))
                add_case(list, op, rf_case_floats[w], shapes[s].m, shapes[s].n, shapes[s].k, false);
        for (size_t w = 0; w < RF_COUNT(rf_quantized_types); w++)
            if (s < 5 || w % 4 == s % 4)
                add_case(list, op, rf_quantized_types[w], shapes[s].m, shapes[s].n, shapes[s].k, false);
    }
    for (size_t w = 0; w < RF_COUNT(fast); w++)
        add_case(list, op, fast[w], 1,
                 op == &rf_op_norm_gate ? (const uint64_t[]){14336, 0, 0} : (const uint64_t[]){4096, 1024, 1024},
                 4096, true);
}
static void norm_qkv_cases(struct rf_case_list *list) {
    add_cases(list, &rf_op_norm_qkv);
    for (uint64_t m = 1; m <= 3; m += 2)
        add_case_of(list, &rf_op_norm_qkv, RF_Q4_K, RF_Q6_K, m, (const uint64_t[]){5, 3, 4}, 2048, false);
}
static void norm_gate_cases(struct rf_case_list *list) {
    add_cases(list, &rf_op_norm_gate);
}

static void cast_matmul_cases(struct rf_case_list *list) {
    add_cases(list, &rf_op_cast_matmul);
}

const struct rf_op rf_op_norm_qkv = {
    .name = "norm_qkv",
    .summary = "normed = rms_norm(x, norm) with eps; three products of it, normed weights^T",
    .inputs = 5,
    .outputs = 4,
    .attributes = RF_ATTRIBUTES(RF_ATTRIBUTE_F(eps, 0)),
    .check = norm_check,
    .reference = norm_reference,
    .gpu = norm_gpu,
    .cpu = norm_cpu,
    .workspace = norm_workspace,
    .cases = norm_qkv_cases,
    .fill = norm_fill,
    .cost = norm_cost,
};
const struct rf_op rf_op_norm_gate = {
    .name = "norm_gate",
    .summary = "normed = rms_norm(x, norm) with eps; out = silu(normed weights^T) * (normed gate^T)",
    .inputs = 4,
    .outputs = 2,
    .attributes = RF_ATTRIBUTES(RF_ATTRIBUTE_F(eps, 0)),
    .check = norm_check,
    .reference = norm_reference,
    .gpu = norm_gpu,
    .cpu = norm_cpu,
    .workspace = norm_workspace,
    .cases = norm_gate_cases,
    .fill = norm_fill,
    .cost = norm_cost,
};
const struct rf_op rf_op_cast_matmul = {
    .name = "cast_matmul",
    .summary = "cast = x in f32; out = cast weights^T + residual",
    .inputs = 3,
    .outputs = 2,
    .optional = 1 << CAST_RESIDUAL,
    .check = norm_check,
    .reference = norm_reference,
    .gpu = norm_gpu,
    .cpu = norm_cpu,
    .workspace = norm_workspace,
    .cases = cast_matmul_cases,
    .fill = norm_fill,
    .cost = norm_cost,
};
