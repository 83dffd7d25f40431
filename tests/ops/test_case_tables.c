/* The op table as it is meant to be: what each op takes, and the cases that `rocmforge check` runs.
 *
 * A case that is lost, repeated or made easier is seen by no check, because all remaining cases pass. So every case
 * is written as one line of text with all that it is made of, and each op's lines have a digest. */
#include <rocmforge/test.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "ops/check_impl.h"

struct digest {
    size_t cases, bench;
    uint64_t all; /* of all lines, in order (FNV-1a) */
};

static void add_text(struct digest *digest, const char *text) {
    for (; *text; text++) digest->all = (digest->all ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
}

static void add_tensor(struct digest *digest, const struct rf_tensor_desc *desc) {
    char text[64];
    snprintf(text, sizeof text, " | %d at %llu", (int)desc->dtype, (unsigned long long)desc->byte_offset);
    if (desc->rank) add_text(digest, text); /* the type of a tensor that is left out means nothing */
    for (int i = 0; i < desc->rank; i++) {
        snprintf(text, sizeof text, " %llu:%llu", (unsigned long long)desc->shape[i],
                 (unsigned long long)desc->strides[i]);
        add_text(digest, text);
    }
}

static void add_case(struct digest *digest, const struct rf_op *op, const struct rf_op_case *one) {
    char text[256];
    snprintf(text, sizeof text, "%s: data %d fill %d tolerance %.9g %.9g bench %d tensors %d", one->label,
             (int)one->data, one->fill_kind, one->absolute, one->relative, one->bench, one->count);
    add_text(digest, text);
    struct rf_op_attributes attributes = one->attributes;
    for (const struct rf_op_attribute *row = op->attributes; row && row->name; row++) {
        if (row->integer)
            snprintf(text, sizeof text, " %s %lld", row->name, (long long)*rf_attribute_i(row, &attributes));
        else
            snprintf(text, sizeof text, " %s %.9g", row->name, *rf_attribute_f(row, &attributes));
        add_text(digest, text);
    }
    for (int i = 0; i < one->count; i++) add_tensor(digest, &one->tensors[i]);
    add_text(digest, "\n");
    digest->bench += one->bench;
    digest->cases += !one->bench;
}

static const struct row {
    const char *name;
    int inputs, outputs;
    uint32_t optional, updates, in_place; /* bits of inputs */
    size_t cases, bench;
    uint64_t digest;
} expected[] = {
    {"fill", 0, 1, 0x0, 0x0, 0x0, 90, 2, UINT64_C(0xe76ebb4644de63af)},
    {"copy", 1, 1, 0x0, 0x0, 0x0, 405, 9, UINT64_C(0x69f6f235e724f776)},
    {"add", 2, 1, 0x0, 0x0, 0x3, 135, 3, UINT64_C(0x30f656a7d26dd5ea)},
    {"scale", 1, 1, 0x0, 0x0, 0x1, 135, 3, UINT64_C(0x796e2c3a0dd83352)},
    {"softmax", 1, 1, 0x0, 0x0, 0x1, 102, 1, UINT64_C(0xcd2e55de76b25a12)},
    {"rms_norm", 2, 1, 0x0, 0x0, 0x1, 170, 5, UINT64_C(0xefa41b1b66909a1e)},
    {"matmul", 4, 1, 0xc, 0x0, 0x8, 742, 38, UINT64_C(0xbd8e5b40a6535448)},
    {"matmul_gate", 3, 1, 0x0, 0x0, 0x0, 200, 6, UINT64_C(0x3bd9c50791fddf8f)},
    {"matmul_q8", 4, 1, 0xc, 0x0, 0x8, 120, 4, UINT64_C(0x2d12b0b6efeeffda)},
    {"norm_qkv", 5, 4, 0x0, 0x0, 0x0, 97, 6, UINT64_C(0xb608c28b458ae10d)},
    {"norm_gate", 4, 2, 0x0, 0x0, 0x0, 95, 6, UINT64_C(0x47dc7fe718382ad5)},
    {"cast_matmul", 3, 2, 0x4, 0x0, 0x0, 95, 6, UINT64_C(0x804481103c9767bb)},
    {"norm_qkv_append", 11, 5, 0xc0, 0x600, 0x0, 135, 12, UINT64_C(0x55c8b79e872f0876)},
    {"quantize_q8", 1, 1, 0x0, 0x0, 0x0, 81, 3, UINT64_C(0x9d48c7e17731767b)},
    {"dequantize", 1, 1, 0x0, 0x0, 0x0, 144, 12, UINT64_C(0xeef665ac2c3510a0)},
    {"embedding", 2, 1, 0x0, 0x0, 0x0, 129, 6, UINT64_C(0xa3e0bb51a7ae2338)},
    {"layer_norm", 3, 1, 0x6, 0x0, 0x1, 144, 2, UINT64_C(0xbf26ce96bfefc041)},
    {"add_norm", 3, 2, 0x4, 0x0, 0x3, 108, 3, UINT64_C(0xcd4eb5d32f376293)},
    {"activation", 2, 1, 0x2, 0x0, 0x3, 300, 11, UINT64_C(0xf3ccfe4ea965f4e7)},
    {"multiply", 3, 1, 0x4, 0x0, 0x7, 150, 9, UINT64_C(0x92d14d071732f90d)},
    {"softmax_mask", 2, 1, 0x2, 0x0, 0x1, 108, 2, UINT64_C(0x8d3c7ca4cc279268)},
    {"transpose", 1, 1, 0x0, 0x0, 0x0, 352, 5, UINT64_C(0xb23e9e6672cfeb90)},
    {"concat", 4, 1, 0xe, 0x0, 0x0, 112, 2, UINT64_C(0x4b7ec245dd94a334)},
    {"rope", 3, 1, 0x0, 0x0, 0x1, 320, 8, UINT64_C(0x4274e2fbe2003585)},
    {"kv_append", 8, 0, 0x38, 0xc0, 0x0, 216, 6, UINT64_C(0xd4a07a67b9a4280c)},
    {"rope_append", 9, 1, 0x30, 0x180, 0x0, 264, 1, UINT64_C(0x3a67a6763ad596d7)},
    {"argmax", 1, 1, 0x0, 0x0, 0x0, 44, 3, UINT64_C(0xcdbcf25d812f7842)},
    {"sample", 6, 1, 0x3e, 0x0, 0x0, 279, 5, UINT64_C(0x8072f314ddc15713)},
    {"advance", 8, 0, 0x62, 0xfc, 0x0, 26, 0, UINT64_C(0x1a03d897bcfe8189)},
    {"qkt_matmul", 2, 1, 0x0, 0x0, 0x0, 102, 0, UINT64_C(0x7dbcc89b9a06bd24)},
    {"causal_mask", 1, 0, 0x0, 0x1, 0x0, 105, 1, UINT64_C(0xa28a1bdf68bb4844)},
    {"weighted_matmul", 2, 1, 0x0, 0x0, 0x0, 98, 0, UINT64_C(0x9ca5eb79bb3aeb69)},
    {"flash_attention", 4, 1, 0x8, 0x0, 0x0, 330, 2, UINT64_C(0xe5130c15a6e42730)},
    {"kv_replicate", 1, 1, 0x0, 0x0, 0x0, 75, 1, UINT64_C(0xc42e122b3e0887eb)},
    {"paged_attention", 5, 1, 0x8, 0x0, 0x0, 468, 10, UINT64_C(0x72ad13a2900e0d85)},
};

RF_TEST(case_tables, hold_every_op_and_case) {
    RF_EXPECT_UINT(rf_op_table_count, RF_COUNT(expected));
    for (size_t i = 0; i < rf_op_table_count; i++) {
        const struct rf_op *op = rf_op_table[i];
        struct digest digest = {.all = UINT64_C(0xcbf29ce484222325)};
        struct rf_case_list list = {0};
        op->cases(&list);
        RF_ASSERT(!list.failed);
        for (size_t k = 0; k < list.count; k++) add_case(&digest, op, &list.cases[k]);
        free(list.cases);
        char is[256], want[256] = "no row";
        snprintf(is, sizeof is, "{\"%s\", %d, %d, 0x%x, 0x%x, 0x%x, %zu, %zu, UINT64_C(0x%016llx)},", op->name,
                 op->inputs, op->outputs, op->optional, op->updates, op->in_place, digest.cases, digest.bench,
                 (unsigned long long)digest.all);
        for (size_t k = 0; k < RF_COUNT(expected); k++) {
            const struct row *row = &expected[k];
            if (strcmp(row->name, op->name)) continue;
            snprintf(want, sizeof want, "{\"%s\", %d, %d, 0x%x, 0x%x, 0x%x, %zu, %zu, UINT64_C(0x%016llx)},",
                     row->name, row->inputs, row->outputs, row->optional, row->updates, row->in_place, row->cases,
                     row->bench, (unsigned long long)row->digest);
        }
        /* If the change is meant, what it is now goes into the list. */
        RF_EXPECT_TEXT(is, want);
    }
}

/* Data of the kind "masked": row 1 is masked whole, every other row in part. */
RF_TEST(case_data, of_a_mask_hides_one_row_and_parts_of_others) {
    enum { ROWS = 4, COLUMNS = 64 };
    float values[ROWS][COLUMNS];
    uint64_t state = 14;
    struct rf_op_call call = {.op = rf_op_find("softmax"), .count = 2};
    struct rf_op_tensor *tensor = &call.tensors[0];
    RF_ASSERT(call.op != NULL);
    for (int i = 0; i < 2; i++)
        call.tensors[i].desc = (struct rf_tensor_desc){.dtype = RF_F32, .rank = 2, .shape = {ROWS, COLUMNS}};
    RF_ASSERT_OK(rf_op_check(&call));
    RF_ASSERT_UINT(tensor->bytes, sizeof values);
    tensor->host = values;
    RF_ASSERT_OK(rf_check_fill(&call, 0, RF_DATA_MASKED, &state));
    for (int row = 0; row < ROWS; row++) {
        int hidden = 0;
        for (int i = 0; i < COLUMNS; i++) hidden += isinf(values[row][i]) && values[row][i] < 0;
        RF_NOTE("row %d: %d of %d are hidden", row, hidden, COLUMNS);
        RF_EXPECT(row == 1 ? hidden == COLUMNS : hidden > 0 && hidden < COLUMNS / 2);
    }
}
