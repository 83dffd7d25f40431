/* The attention rows of the op table: what they refuse, with the op's name and the reason, before a backend sees it.
 * `rocmforge check` tests that they compute the right results. */
#include <rocmforge/test.h>

#include <math.h>

#include "ops/gpu_attention.h"
#include "ops/op.h"

static struct rf_tensor_desc heads(enum rf_dtype dtype, uint64_t batch, uint64_t count, uint64_t rows, uint64_t dim) {
    return (struct rf_tensor_desc){.dtype = dtype, .rank = 4, .shape = {batch, count, rows, dim}};
}

static struct rf_op_call call_of(const char *op, int count) {
    struct rf_op_call call = {.op = rf_op_find(op), .count = count};
    RF_ASSERT(call.op != NULL);
    return call;
}

static struct rf_op_call flash(void) {
    struct rf_op_call call = call_of("flash_attention", 5);
    call.attributes.scale = 0.125;
    call.tensors[0].desc = call.tensors[4].desc = heads(RF_F16, 2, 4, 8, 64);
    call.tensors[1].desc = call.tensors[2].desc = heads(RF_F16, 2, 2, 12, 64);
    return call;
}
static struct rf_op_call paged(void) {
    struct rf_op_call call = call_of("paged_attention", 6);
    call.attributes.scale = 0.125;
    call.tensors[0].desc = call.tensors[5].desc = heads(RF_F32, 2, 4, 1, 64);
    call.tensors[1].desc = call.tensors[2].desc = heads(RF_F32, 7, 2, 16, 64);
    call.tensors[3].desc = (struct rf_tensor_desc){.dtype = RF_I32, .rank = 2, .shape = {2, 3}};
    call.tensors[4].desc = (struct rf_tensor_desc){.dtype = RF_I32, .rank = 1, .shape = {2}};
    return call;
}

static void refused(struct rf_op_call call, rf_status status, const char *why) {
    RF_TRACE("%s", why);
    RF_ASSERT_STATUS(rf_op_check(&call), status);
    RF_EXPECT_CONTAINS(rf_error_text(), call.op->name);
    RF_EXPECT_CONTAINS(rf_error_text(), why);
}
#define REFUSED(make, status, why, ...)                                                                              \
    do {                                                                                                             \
        struct rf_op_call call = make;                                                                               \
        __VA_ARGS__;                                                                                                 \
        refused(call, status, why);                                                                                  \
    } while (0)

RF_TEST(op_attention, flash_refuses) {
    struct rf_op_call good = flash();
    RF_ASSERT_OK(rf_op_check(&good));
    REFUSED(flash(), RF_E_INVALID, "rank", call.tensors[1].desc.rank = 3);
    REFUSED(flash(), RF_E_INVALID, "k is bf16, expected f16", call.tensors[1].desc.dtype = RF_BF16);
    REFUSED(flash(), RF_E_UNSUPPORTED, "i32", call.tensors[0].desc.dtype = RF_I32);
    REFUSED(flash(), RF_E_INVALID, "dimension 2 of v", call.tensors[2].desc.shape[2] = 11);
    REFUSED(flash(), RF_E_INVALID, "dimension 0 of k", call.tensors[1].desc.shape[0] = 3);
    REFUSED(flash(), RF_E_INVALID, "dimension 3 of out", call.tensors[4].desc.shape[3] = 32);
    REFUSED(flash(), RF_E_INVALID, "no multiple of 3", call.tensors[1].desc.shape[1] = 3);
    REFUSED(flash(), RF_E_INVALID, "no multiple of 0", call.tensors[1].desc.shape[1] = 0);
    REFUSED(flash(), RF_E_UNSUPPORTED, "a head size of 60", call.tensors[0].desc.shape[3] = 60);
    REFUSED(flash(), RF_E_UNSUPPORTED, "a head size of 264", call.tensors[0].desc.shape[3] = 264);
    REFUSED(flash(), RF_E_INVALID, "q is at byte offset 8, which is no multiple of 16",
            call.tensors[0].desc.byte_offset = 8);
    REFUSED(flash(), RF_E_INVALID, "tensor 0", call.tensors[0].desc.byte_offset = 1);
    REFUSED(flash(), RF_E_INVALID, "overflow", call.tensors[0].desc.shape[0] = UINT64_MAX / 4);
    REFUSED(flash(), RF_E_INVALID, "scale", call.attributes.scale = NAN);
    REFUSED(flash(), RF_E_INVALID, "scale", call.attributes.scale = 1e300);
    REFUSED(flash(), RF_E_INVALID, "no kind of kernel", call.attributes.path = 9);
    REFUSED(flash(), RF_E_INVALID, "offset", call.attributes.causal = 1, call.attributes.offset = INT64_MAX);
    REFUSED(flash(), RF_E_INVALID, "takes 4 in and 1 out", call.count = 4);
    REFUSED(flash(), RF_E_INVALID, "the strides of k must be multiples of 16",
            memcpy(call.tensors[1].desc.strides, (uint64_t[]){1600, 800, 65, 1}, 32));
    REFUSED(flash(), RF_E_UNSUPPORTED, "the last dimension of q has a stride of 2",
            memcpy(call.tensors[0].desc.strides, (uint64_t[]){4096, 1024, 128, 2}, 32));
    REFUSED(flash(), RF_E_INVALID, "elements of out lie in one place",
            memcpy(call.tensors[4].desc.strides, (uint64_t[]){2048, 64, 64, 1}, 32));
    REFUSED(flash(), RF_E_UNSUPPORTED, "one row for all",
            memcpy(call.tensors[1].desc.strides, (uint64_t[]){0, 0, 0, 1}, 32));
}

RF_TEST(op_attention, flash_takes_a_mask_or_refuses_it) {
    struct rf_op_call good = flash();
    good.tensors[3].desc = heads(RF_F32, 1, 4, 8, 12);
    RF_ASSERT_OK(rf_op_check(&good));
    REFUSED(flash(), RF_E_INVALID, "mask is f16", call.tensors[3].desc = heads(RF_F16, 2, 4, 8, 12));
    REFUSED(flash(), RF_E_INVALID, "dimension 3 of mask", call.tensors[3].desc = heads(RF_F32, 2, 4, 8, 13));
    REFUSED(flash(), RF_E_INVALID, "dimension 1 of mask", call.tensors[3].desc = heads(RF_F32, 2, 2, 8, 12));
    REFUSED(flash(), RF_E_INVALID, "dimension 2 of mask", call.tensors[3].desc = heads(RF_F32, 2, 4, 1, 12));
}

RF_TEST(op_attention, paged_refuses) {
    struct rf_op_call good = paged();
    RF_ASSERT_OK(rf_op_check(&good));
    good.tensors[1].desc.dtype = good.tensors[2].desc.dtype = RF_Q8_0;
    RF_ASSERT_OK(rf_op_check(&good));
    REFUSED(paged(), RF_E_INVALID, "v is f32, expected q8_0", call.tensors[1].desc.dtype = RF_Q8_0);
    REFUSED(paged(), RF_E_INVALID, "k is q4_0", call.tensors[1].desc.dtype = RF_Q4_0);
    REFUSED(paged(), RF_E_UNSUPPORTED, "power of two",
            call.tensors[1].desc.shape[2] = call.tensors[2].desc.shape[2] = 15);
    REFUSED(paged(), RF_E_INVALID, "pages of no rows",
            call.tensors[1].desc.shape[2] = call.tensors[2].desc.shape[2] = 0);
    REFUSED(paged(), RF_E_INVALID, "the table must be i32", call.tensors[3].desc.dtype = RF_F32);
    REFUSED(paged(), RF_E_INVALID, "the table must be i32", call.tensors[3].desc.shape[0] = 3);
    REFUSED(paged(), RF_E_UNSUPPORTED, "a table of 0 pages", call.tensors[3].desc.shape[1] = 0);
    REFUSED(paged(), RF_E_UNSUPPORTED, "keys can be named", call.tensors[3].desc.shape[1] = UINT32_MAX);
    REFUSED(paged(), RF_E_INVALID, "lengths must be", call.tensors[4].desc.shape[0] = 1);
    REFUSED(paged(), RF_E_INVALID, "lengths must be", call.tensors[4].desc.rank = 2,
            call.tensors[4].desc.shape[1] = 1);
    REFUSED(paged(), RF_E_INVALID, "there is room for 48", call.attributes.max_length = 49);
    REFUSED(paged(), RF_E_INVALID, "there is room for 48", call.attributes.max_length = -1);
    REFUSED(paged(), RF_E_INVALID, "without a table", call.tensors[3].desc.rank = 0,
            call.tensors[1].desc.shape[0] = call.tensors[2].desc.shape[0] = 1);
    REFUSED(paged(), RF_E_INVALID, "k is at byte offset 4, which is no multiple of 16",
            call.tensors[1].desc.byte_offset = 4);
}

RF_TEST(op_attention, pieces_refuse) {
    struct rf_op_call qkt = call_of("qkt_matmul", 3), weighted = call_of("weighted_matmul", 3);
    struct rf_op_call mask = call_of("causal_mask", 1), replicate = call_of("kv_replicate", 2);
    qkt.attributes.scale = 1;
    qkt.tensors[0].desc = heads(RF_BF16, 1, 4, 3, 5);
    qkt.tensors[1].desc = heads(RF_BF16, 1, 2, 7, 5);
    qkt.tensors[2].desc = heads(RF_F32, 1, 4, 3, 7);
    weighted.tensors[0].desc = heads(RF_F32, 1, 4, 3, 7);
    weighted.tensors[1].desc = heads(RF_F16, 1, 2, 7, 5);
    weighted.tensors[2].desc = heads(RF_F16, 1, 4, 3, 5);
    mask.tensors[0].desc = heads(RF_F16, 2, 3, 4, 5);
    replicate.tensors[0].desc = heads(RF_F32, 1, 2, 3, 5);
    replicate.tensors[1].desc = heads(RF_F32, 1, 6, 3, 5);
    RF_ASSERT_OK(rf_op_check(&qkt));
    RF_ASSERT_OK(rf_op_check(&weighted));
    RF_ASSERT_OK(rf_op_check(&mask));
    RF_ASSERT_OK(rf_op_check(&replicate));
    REFUSED(qkt, RF_E_INVALID, "scores is bf16, expected f32", call.tensors[2].desc.dtype = RF_BF16);
    REFUSED(qkt, RF_E_INVALID, "dimension 3 of k", call.tensors[1].desc.shape[3] = 4);
    REFUSED(qkt, RF_E_INVALID, "dimension 2 of scores", call.tensors[2].desc.shape[2] = 4);
    REFUSED(weighted, RF_E_INVALID, "weights is f16", call.tensors[0].desc.dtype = RF_F16);
    REFUSED(weighted, RF_E_INVALID, "dimension 2 of v", call.tensors[1].desc.shape[2] = 6);
    REFUSED(weighted, RF_E_INVALID, "out is f32", call.tensors[2].desc.dtype = RF_F32);
    REFUSED(mask, RF_E_UNSUPPORTED, "i8", call.tensors[0].desc.dtype = RF_I8);
    REFUSED(mask, RF_E_INVALID, "offset", call.attributes.offset = INT64_MIN);
    REFUSED(mask, RF_E_INVALID, "elements of scores lie in one place",
            memcpy(call.tensors[0].desc.strides, (uint64_t[]){60, 4, 5, 1}, 32));
    REFUSED(replicate, RF_E_INVALID, "5 query heads are no multiple of 2", call.tensors[1].desc.shape[1] = 5);
    REFUSED(replicate, RF_E_INVALID, "dimension 2 of out", call.tensors[1].desc.shape[2] = 4);
    REFUSED(replicate, RF_E_INVALID, "out is f16", call.tensors[1].desc.dtype = RF_F16);
}

/* A graph passes an attribute only where the op's row names it. */
RF_TEST(op_attention, rows_name_their_attributes) {
    const struct rf_op_attribute *mask = rf_op_find("causal_mask")->attributes;
    RF_ASSERT(mask != NULL);
    RF_ASSERT_TEXT(mask[0].name, "offset");
    RF_ASSERT(mask[1].name == NULL);
    RF_ASSERT(rf_op_find("kv_replicate")->attributes == NULL);
}
