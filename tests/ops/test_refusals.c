/* What the op table refuses, before anything is launched: with the op's name, the reason and a typed status.
 *
 * For every op: what no op may take (types that do not exist, sizes that overflow, offsets that split an element).
 * For the ops of a transformer besides products and attention, and for the sampler: each rule of their own, with one
 * thing spoiled at a time. */
#include <rocmforge/test.h>

#include <stdlib.h>
#include <string.h>

#include "ops/op.h"

/* A call made from one of the op's cases: among the cases with elements, the one that leaves out the fewest tensors,
 * then the one with the most dimensions above 1. */
static struct rf_op_call good_call(const struct rf_op *op) {
    struct rf_case_list list = {0};
    struct rf_op_call best = {0};
    int most = 0; /* the tens count given tensors */
    op->cases(&list);
    RF_ASSERT(!list.failed);
    for (size_t i = 0; i < list.count; i++) {
        struct rf_op_call call = {.op = op, .attributes = list.cases[i].attributes, .count = list.cases[i].count};
        int given = 0;
        bool empty = list.cases[i].bench;
        for (int t = 0; t < call.count; t++) {
            call.tensors[t].desc = list.cases[i].tensors[t];
            given += rf_op_given(&call.tensors[t]) ? 10 : 0;
            for (int d = 0; d < call.tensors[t].desc.rank; d++) given += call.tensors[t].desc.shape[d] > 1;
            empty |= rf_op_given(&call.tensors[t]) && rf_op_elements(&call.tensors[t].desc) < 4;
        }
        if (!empty && given > most) best = call, most = given;
    }
    free(list.cases);
    RF_ASSERT(most > 0);
    struct rf_op_call checked = best;
    RF_ASSERT_OK(rf_op_check(&checked));
    return best;
}

/* The error text must begin with the op's name. */
static void expect_refusal(struct rf_op_call *call, rf_status status, const char *reason) {
    rf_status got = rf_op_check(call);
    if (got != status) RF_NOTE("%s: %s", call->op->name, got ? rf_error_text() : "accepted");
    RF_ASSERT_INT(got, status);
    size_t name = strlen(call->op->name);
    RF_ASSERT(!strncmp(rf_error_text(), call->op->name, name) && rf_error_text()[name] == ':');
    RF_ASSERT_CONTAINS(rf_error_text(), reason);
}

RF_TEST(refusals, every_case_is_accepted) {
    for (size_t i = 0; i < rf_op_table_count; i++) {
        struct rf_case_list list = {0};
        rf_op_table[i]->cases(&list);
        RF_ASSERT(!list.failed && list.count > 0);
        for (size_t k = 0; k < list.count; k++) {
            struct rf_op_call call = {
                .op = rf_op_table[i], .attributes = list.cases[k].attributes, .count = list.cases[k].count};
            for (int t = 0; t < call.count; t++) call.tensors[t].desc = list.cases[k].tensors[t];
            rf_status status = rf_op_check(&call);
            if (status) RF_NOTE("%s %s", rf_op_table[i]->name, list.cases[k].label);
            RF_ASSERT_OK(status);
        }
        free(list.cases);
    }
}

RF_TEST(refusals, what_no_op_takes) {
    for (size_t i = 0; i < rf_op_table_count; i++) {
        const struct rf_op *op = rf_op_table[i];
        struct rf_op_call good = good_call(op), bad = good;
        bad.count--;
        expect_refusal(&bad, RF_E_INVALID, "tensors given");
        for (int t = 0; t < good.count; t++) {
            if (!rf_op_given(&good.tensors[t])) continue;
            struct rf_tensor_desc *desc = &bad.tensors[t].desc;
            bool optional = t < op->inputs && (op->optional >> t & 1);
            bad = good;
            desc->dtype = RF_DTYPE_COUNT;
            expect_refusal(&bad, RF_E_INVALID, "no dtype");
            bad = good;
            desc->rank = optional ? RF_MAX_RANK + 1 : 0;
            expect_refusal(&bad, RF_E_INVALID, "rank");
            bad = good;
            desc->shape[0] = UINT64_MAX / 256 * 256;
            expect_refusal(&bad, RF_E_INVALID, "overflow");
            if (rf_dtype_block(good.tensors[t].desc.dtype) == 1 && rf_dtype_bytes(good.tensors[t].desc.dtype) == 1)
                continue;
            bad = good;
            desc->byte_offset = UINT64_MAX / 8 * 8;
            expect_refusal(&bad, RF_E_INVALID, "overflow");
            bad = good;
            desc->byte_offset++;
            expect_refusal(&bad, RF_E_INVALID, "not a multiple");
        }
    }
}

enum spoiled { TYPE, RANK, SIZE, STRIDE, OFFSET, FLAG, NUMBER };
static const struct {
    const char *op;
    int tensor; /* or the attribute */
    enum spoiled what;
    int dimension;
    int64_t value; /* for SIZE: it is added */
    rf_status status;
    const char *reason;
} rules[] = {
    {"fill", 0, TYPE, 0, RF_F16, RF_E_UNSUPPORTED, "only f32 and i32"},
    {"copy", 1, SIZE, 0, 1, RF_E_INVALID, "shapes of out and in differ"},
    {"copy", 0, TYPE, 0, RF_I32, RF_E_UNSUPPORTED, "not among"},
    {"add", 1, TYPE, 0, RF_F16, RF_E_INVALID, "types differ"},
    {"scale", 0, STRIDE, 0, 2, RF_E_UNSUPPORTED, "not contiguous"},
    {"softmax", 0, TYPE, 0, RF_F16, RF_E_UNSUPPORTED, "must be f32"},
    {"softmax", 1, SIZE, 1, 1, RF_E_INVALID, "shapes"},
    {"rms_norm", 1, SIZE, 0, 1, RF_E_INVALID, "weight has"},
    {"rms_norm", 1, TYPE, 0, RF_F16, RF_E_UNSUPPORTED, "weight is f16"},
    {"layer_norm", 0, TYPE, 0, RF_I32, RF_E_UNSUPPORTED, "in is i32"},
    {"layer_norm", 2, SIZE, 0, -1, RF_E_INVALID, "bias has"},
    {"layer_norm", 3, TYPE, 0, RF_BF16, RF_E_INVALID, "types differ"},
    {"add_norm", 1, SIZE, 0, 1, RF_E_INVALID, "shapes of b and a"},
    {"add_norm", 4, SIZE, 1, 1, RF_E_INVALID, "shapes of out and a"},
    {"activation", 0, FLAG, 0, 3, RF_E_INVALID, "no activation 3"},
    {"activation", 0, FLAG, 0, -1, RF_E_INVALID, "no activation -1"},
    {"activation", 1, SIZE, 1, 1, RF_E_INVALID, "shapes of up and gate"},
    {"activation", 1, STRIDE, 1, 2, RF_E_UNSUPPORTED, "must be 1"},
    {"multiply", 2, TYPE, 0, RF_F16, RF_E_INVALID, "types differ"},
    {"multiply", 3, STRIDE, 0, 1, RF_E_INVALID, "in one place"},
    {"softmax_mask", 1, TYPE, 0, RF_BF16, RF_E_UNSUPPORTED, "f32 or f16"},
    {"softmax_mask", 1, SIZE, 1, 1, RF_E_INVALID, "mask has"},
    {"transpose", 1, SIZE, 3, 1, RF_E_INVALID, "shapes of in and out"},
    {"transpose", 0, TYPE, 0, RF_I32, RF_E_UNSUPPORTED, "not among"},
    {"transpose", 1, STRIDE, 0, 0, RF_E_INVALID, "in one place"},
    {"concat", 0, FLAG, 0, 4, RF_E_INVALID, "no dimension 4"},
    {"concat", 1, SIZE, 3, 1, RF_E_INVALID, "in[1] has"},
    {"concat", 4, SIZE, 0, 1, RF_E_INVALID, "out has"},
    {"concat", 2, TYPE, 0, RF_F16, RF_E_UNSUPPORTED, "in[2] is f16"},
    {"rope", 1, SIZE, 0, 1, RF_E_INVALID, "positions has"},
    {"rope", 1, TYPE, 0, RF_F32, RF_E_UNSUPPORTED, "positions is f32"},
    {"rope", 2, OFFSET, 0, 4, RF_E_INVALID, "multiple of 8"},
    {"rope", 2, SIZE, 0, 1000, RF_E_INVALID, "pairs to rotate"},
    {"rope", 0, FLAG, 0, 2, RF_E_INVALID, "no pairing 2"},
    {"kv_append", 0, TYPE, 0, RF_F16, RF_E_UNSUPPORTED, "k is f16"},
    {"kv_append", 1, SIZE, 0, 1, RF_E_INVALID, "shapes of v and k"},
    {"kv_append", 6, TYPE, 0, RF_BF16, RF_E_UNSUPPORTED, "cache of bf16"},
    {"kv_append", 7, SIZE, 2, 1, RF_E_INVALID, "shapes of v_cache"},
    {"kv_append", 3, SIZE, 0, 1, RF_E_INVALID, "sequences has"},
    {"kv_append", 4, TYPE, 0, RF_F32, RF_E_UNSUPPORTED, "table is f32"},
    {"kv_append", 5, OFFSET, 0, 4, RF_E_INVALID, "multiple of 8"},
    {"kv_append", 5, SIZE, 0, 1000, RF_E_INVALID, "pairs to rotate"},
    {"argmax", 0, TYPE, 0, RF_F16, RF_E_UNSUPPORTED, "values is f16"},
    {"argmax", 0, SIZE, 1, 1 << 23, RF_E_INVALID, "up to"},
    {"argmax", 1, SIZE, 0, 1, RF_E_INVALID, "out has"},
    {"sample", 0, NUMBER, 0, -1, RF_E_INVALID, "temperature"},
    {"sample", 1, NUMBER, 0, -1, RF_E_INVALID, "top_p"},
    {"sample", 2, NUMBER, 0, 2, RF_E_INVALID, "min_p"},
    {"sample", 3, NUMBER, 0, -1, RF_E_INVALID, "penalty"},
    {"sample", 0, FLAG, 0, -1, RF_E_INVALID, "top_k"},
    {"sample", 1, RANK, 0, 0, RF_E_INVALID, "no seeds"},
    {"sample", 1, OFFSET, 0, 4, RF_E_INVALID, "multiple of 8"},
    {"sample", 2, SIZE, 0, 1, RF_E_INVALID, "window has"},
    {"sample", 3, SIZE, 1, 1, RF_E_INVALID, "settings has"},
    {"sample", 3, SIZE, 0, 1, RF_E_INVALID, "settings has"},
    {"sample", 3, OFFSET, 0, 4, RF_E_INVALID, "multiple of 8"},
    {"advance", 0, TYPE, 0, RF_F32, RF_E_UNSUPPORTED, "drawn is f32"},
    {"advance", 1, RANK, 0, 0, RF_E_INVALID, "no settings"},
    {"advance", 1, SIZE, 1, 1, RF_E_INVALID, "settings has"},
    {"advance", 2, SIZE, 0, 1, RF_E_INVALID, "tokens has"},
    {"advance", 3, SIZE, 0, 1, RF_E_INVALID, "positions has"},
    {"advance", 4, TYPE, 0, RF_F32, RF_E_UNSUPPORTED, "lengths is f32"},
    {"advance", 5, SIZE, 1, 1, RF_E_INVALID, "random has"},
    {"advance", 6, SIZE, 0, 1, RF_E_INVALID, "window has"},
    {"advance", 7, SIZE, 2, 1, RF_E_INVALID, "ring has"},
    {"advance", 7, SIZE, 1, 1 << 20, RF_E_INVALID, "slots"},
    {"advance", 7, OFFSET, 0, 4, RF_E_INVALID, "multiple of 8"},
};

/* The op's attribute of that kind and position. */
static const struct rf_op_attribute *attribute(const struct rf_op *op, bool integer, int position) {
    const struct rf_op_attribute *row = op->attributes;
    while (row->integer != integer || row->position != position) RF_ASSERT((++row)->name != NULL);
    return row;
}

RF_TEST(refusals, each_rule_of_glue_and_sampling) {
    for (size_t i = 0; i < RF_COUNT(rules); i++) {
        const struct rf_op *op = rf_op_find(rules[i].op);
        RF_ASSERT(op != NULL);
        struct rf_op_call call = good_call(op);
        struct rf_tensor_desc *desc = &call.tensors[rules[i].tensor].desc;
        int64_t value = rules[i].value;
        if (!strcmp(rules[i].op, "sample")) call.attributes.temperature = 0.7; /* not greedy, so seeds are needed */
        switch (rules[i].what) {
        case TYPE:
            desc->dtype = (enum rf_dtype)value;
            desc->byte_offset = 0;
            break;
        case RANK: desc->rank = (int)value; break;
        case SIZE: /* makes a row-major tensor again */
            desc->shape[rules[i].dimension] += (uint64_t)value;
            memset(desc->strides, 0, sizeof desc->strides);
            break;
        case STRIDE: {
            struct rf_op_call filled = call;
            RF_ASSERT_OK(rf_op_check(&filled));
            *desc = filled.tensors[rules[i].tensor].desc;
            desc->strides[rules[i].dimension] = (uint64_t)value;
            break;
        }
        case OFFSET: desc->byte_offset = (uint64_t)value; break;
        case FLAG: *rf_attribute_i(attribute(op, true, rules[i].tensor), &call.attributes) = value; break;
        case NUMBER: *rf_attribute_f(attribute(op, false, rules[i].tensor), &call.attributes) = (double)value; break;
        }
        expect_refusal(&call, rules[i].status, rules[i].reason);
    }
}

/* A graph can set whatever a case sets: every attribute that is not 0 is in the op's list, once. */
RF_TEST(refusals, attributes_of_cases_are_listed) {
    for (size_t i = 0; i < rf_op_table_count; i++) {
        const struct rf_op *op = rf_op_table[i];
        struct rf_case_list list = {0};
        op->cases(&list);
        RF_ASSERT(!list.failed);
        for (size_t c = 0; c < list.count; c++) {
            static const struct rf_op_attributes none;
            struct rf_op_attributes left = list.cases[c].attributes;
            for (const struct rf_op_attribute *row = op->attributes; row && row->name; row++)
                memset((char *)&left + row->offset, 0, sizeof(int64_t));
            if (memcmp(&left, &none, sizeof left))
                RF_FAIL("%s: '%s' sets what is not listed", op->name, list.cases[c].label);
        }
        for (const struct rf_op_attribute *row = op->attributes; row && row->name; row++)
            for (const struct rf_op_attribute *other = op->attributes; other < row; other++)
                RF_EXPECT(strcmp(row->name, other->name) &&
                          (row->integer != other->integer || row->position != other->position));
        free(list.cases);
    }
}
