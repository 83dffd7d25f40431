/* What every backend must do: the CPU, a (simulated) GPU, and the dummy; the dummy computes no results, so those are
 * not compared. */
#include "../gpu/gpu_testing.h"

#include <stdlib.h>
#include <string.h>

#include "cpu/fast.h"
#include "graph/backend.h"
#include "ops/check_impl.h"

struct kind {
    const char *label;
    bool computes;
};
static const struct kind kinds[] = {{"cpu", true}, {"gpu", true}, {"dummy", false}};

struct subject {
    struct rf_backend *backend;
    const struct rf_backend_table *table;
    struct gpu gpu;
    struct rf_dummy *dummy;
    struct rf_runtime *runtime; /* the CPU backend's runtime */
};

static void subject_open(struct subject *s, const struct kind *kind) {
    *s = (struct subject){0};
    if (!strcmp(kind->label, "cpu")) {
        RF_ASSERT_OK(rf_runtime_create(NULL, &s->runtime));
        RF_ASSERT_OK(rf_backend_create_cpu(s->runtime, 0, NULL, &s->backend));
    }
    if (!strcmp(kind->label, "gpu")) {
        gpu_open(&s->gpu, NULL);
        RF_ASSERT_OK(rf_backend_create_gpu(s->gpu.device, &s->backend));
    }
    if (!strcmp(kind->label, "dummy")) {
        RF_ASSERT_OK(rf_dummy_create_with_config(UINT64_C(1) << 40, 64, &s->dummy));
        RF_ASSERT_OK(rf_backend_create_dummy(s->dummy, &s->backend));
    }
    s->table = s->backend->table;
    RF_ASSERT_TEXT(s->table->kind, kind->label);
}
static void subject_close(struct subject *s) {
    rf_backend_destroy(&s->backend);
    rf_runtime_destroy(&s->runtime);
    RF_ASSERT_NULL(s->backend);
    if (s->gpu.device) gpu_close(&s->gpu); /* asserts that nothing leaked */
    rf_dummy_destroy(&s->dummy);
}

RF_TEST_LABELLED_CASES(backend, has_what_all_have, struct kind, kinds, .gpu = true) {
    struct subject s;
    subject_open(&s, c);
    RF_ASSERT(s.backend->name[0] != 0);
    RF_ASSERT(s.table->supports && s.table->workspace && s.table->alignment && s.table->arena_create &&
              s.table->arena_destroy && s.table->upload && s.table->download && s.table->execute && s.table->wait &&
              s.table->destroy);
    /* Optional entries are given together. */
    RF_ASSERT(!s.table->record_begin == !s.table->record_end && !s.table->record_begin == !s.table->replay &&
              !s.table->record_begin == !s.table->recording_destroy);
    uint64_t alignment = s.table->alignment(s.backend);
    RF_ASSERT(alignment >= 8 && !(alignment & (alignment - 1)));
    RF_ASSERT_OK(s.table->wait(s.backend, INT64_C(1000000000)));
    RF_ASSERT((s.backend->device != NULL) == (s.gpu.device != NULL));
    subject_close(&s);
}

RF_TEST_LABELLED_CASES(backend, arenas, struct kind, kinds, .gpu = true) {
    struct subject s;
    struct rf_arena a = {0}, b = {0}, empty = {0};
    unsigned char in[1000], out[1000];
    subject_open(&s, c);
    RF_ASSERT_OK(s.table->arena_create(s.backend, 5000, "first", &a));
    RF_ASSERT_OK(s.table->arena_create(s.backend, 0, "empty", &empty));
    RF_ASSERT_OK(s.table->arena_create(s.backend, 1000, "second", &b));
    RF_ASSERT(a.bytes >= 5000 && b.bytes >= 1000);
    memset(out, 0x5a, sizeof out);
    RF_ASSERT_OK(s.table->download(s.backend, &a, 4000, out, sizeof out));
    for (size_t i = 0; i < sizeof out; i++) RF_ASSERT_UINT(out[i], 0); /* zeroed */
    for (size_t i = 0; i < sizeof in; i++) in[i] = (unsigned char)(i * 7 + 1);
    RF_ASSERT_OK(s.table->upload(s.backend, &a, 3, in, 997));
    RF_ASSERT_OK(s.table->upload(s.backend, &b, 0, in, 1000));
    RF_ASSERT_OK(s.table->upload(s.backend, &b, 10, in, 0));
    memset(in, 0, 500); /* the source may be reused at once */
    RF_ASSERT_OK(s.table->download(s.backend, &a, 3, out, 997));
    if (c->computes)
        for (size_t i = 0; i < 997; i++) RF_ASSERT_UINT(out[i], (unsigned char)(i * 7 + 1));
    RF_ASSERT_OK(s.table->download(s.backend, &b, 990, out, 10));
    if (c->computes)
        for (size_t i = 0; i < 10; i++) RF_ASSERT_UINT(out[i], (unsigned char)((990 + i) * 7 + 1));
    RF_ASSERT_OK(s.table->arena_destroy(s.backend, &a));
    RF_ASSERT_OK(s.table->arena_destroy(s.backend, &empty));
    RF_ASSERT_OK(s.table->arena_destroy(s.backend, &b));
    /* An arena goes back to the driver, not into the pool: the next plan needs another size. */
    if (s.backend->device) {
        RF_PARAMS(struct rf_memory_info, info);
        RF_ASSERT_OK(rf_device_memory_info(s.backend->device, &info));
        RF_EXPECT_UINT(info.pool_bytes, 0);
    }
    subject_close(&s);
}

/* An arena larger than the memory is refused, and nothing is held. */
RF_TEST_LABELLED_CASES(backend, an_arena_that_cannot_be, struct kind, kinds, .gpu = true) {
    struct subject s;
    struct rf_arena a = {0};
    subject_open(&s, c);
    RF_ASSERT(s.table->arena_create(s.backend, UINT64_MAX - 4096, "everything", &a) != RF_OK);
    RF_ASSERT(strlen(rf_error_text()) > 0);
    RF_ASSERT_OK(s.table->arena_create(s.backend, 4096, "a little", &a));
    RF_ASSERT_OK(s.table->arena_destroy(s.backend, &a));
    subject_close(&s);
}

/* Lays out a call in one arena: its tensors one after the other, workspace and counters behind them. */
static bool place_call(struct subject *s, struct rf_op_call *call, struct rf_arena *arena, unsigned char *image) {
    uint64_t alignment = s->table->alignment(s->backend), at = 0, scratch = 0;
    for (int i = 0; i < call->count; i++) {
        if (!rf_op_given(&call->tensors[i])) continue;
        uint64_t bytes = call->tensors[i].bytes;
        if (rf_round_up_overflows(at, alignment, &at) || !rf_range_fits(at, bytes, arena->bytes)) return false;
        memcpy(image + at, call->tensors[i].host, bytes);
        call->tensors[i].host = arena->host;
        call->tensors[i].buffer = arena->buffer;
        call->tensors[i].desc.byte_offset += at;
        call->tensors[i].bytes += at;
        at += bytes;
    }
    RF_ASSERT_OK(s->table->workspace(s->backend, call, &scratch));
    if (rf_round_up_overflows(at, 256, &at) || !rf_range_fits(at, scratch, arena->bytes)) return false;
    call->workspace = arena->buffer;
    call->workspace_offset = at;
    at += scratch;
    scratch = 0;
    if (s->table->counters) RF_ASSERT_OK(s->table->counters(s->backend, call, &scratch));
    if (rf_round_up_overflows(at, 256, &at) || !rf_range_fits(at, scratch, arena->bytes)) return false;
    call->counters = arena->buffer;
    call->counters_offset = at;
    return true;
}

/* The first cases of every op: a supported call is executed; any other is refused with a reason. */
RF_TEST_LABELLED_CASES(backend, executes_what_it_supports, struct kind, kinds, .gpu = true, .timeout_ms = 600000) {
    enum { ARENA = 1 << 20, CASES = 4 };
    struct subject s;
    struct rf_arena arena = {0};
    size_t executed = 0, ops = 0;
    subject_open(&s, c);
    RF_ASSERT_OK(s.table->arena_create(s.backend, ARENA, "calls", &arena));
    unsigned char *image = malloc(ARENA);
    for (size_t i = 0; i < rf_op_table_count; i++) {
        struct rf_case_list list = {0};
        size_t of_op = 0;
        rf_op_table[i]->cases(&list);
        RF_ASSERT(!list.failed && image);
        for (size_t k = 0; k < list.count && of_op < CASES; k++) {
            struct rf_op_call call = {
                .op = rf_op_table[i], .attributes = list.cases[k].attributes, .count = list.cases[k].count};
            void *memory[RF_OP_TENSORS_MAX] = {0};
            uint64_t state = 5, total = 0;
            for (int t = 0; t < call.count; t++) call.tensors[t].desc = list.cases[k].tensors[t];
            RF_ASSERT_OK(rf_op_check(&call));
            for (int t = 0; t < call.count; t++) total += call.tensors[t].bytes;
            if (list.cases[k].bench || total > ARENA / 4) continue;
            for (int t = 0; t < call.count; t++) {
                if (!rf_op_given(&call.tensors[t])) continue;
                call.tensors[t].host = memory[t] = calloc(1, call.tensors[t].bytes);
                if (t < call.op->inputs) RF_ASSERT_OK(rf_check_fill(&call, t, list.cases[k].data, &state));
            }
            memset(image, 0, ARENA);
            bool fits = place_call(&s, &call, &arena, image);
            for (int t = 0; t < call.count; t++) free(memory[t]);
            if (!fits) continue;
            rf_status supported = s.table->supports(s.backend, &call);
            if (supported) {
                RF_ASSERT_INT(supported, RF_E_UNSUPPORTED);
                RF_ASSERT(strlen(rf_error_text()) > 0);
                continue;
            }
            RF_ASSERT_OK(s.table->upload(s.backend, &arena, 0, image, ARENA));
            rf_status status = s.table->execute(s.backend, &call);
            if (status) RF_NOTE("%s %s", call.op->name, list.cases[k].label);
            RF_ASSERT_OK(status);
            of_op++;
        }
        RF_ASSERT_OK(s.table->wait(s.backend, INT64_C(60000000000)));
        executed += of_op;
        ops += of_op > 0;
        free(list.cases);
    }
    if (s.dummy) RF_ASSERT_UINT(rf_dummy_get_stats(s.dummy).execute_op_count, executed);
    RF_NOTE("%zu calls of %zu ops", executed, ops);
    RF_ASSERT(ops + 3 >= rf_op_table_count);
    free(image);
    RF_ASSERT_OK(s.table->arena_destroy(s.backend, &arena));
    subject_close(&s);
}

/* Work is done in order: a chain of nodes through the same memory, with uploads in between. */
RF_TEST_LABELLED_CASES(backend, work_is_done_in_order, struct kind, kinds, .gpu = true) {
    struct subject s;
    struct rf_arena arena = {0};
    float in[64], out[64];
    subject_open(&s, c);
    RF_ASSERT_OK(s.table->arena_create(s.backend, 1024, "chain", &arena));
    for (int i = 0; i < 64; i++) in[i] = (float)i;
    struct rf_op_call call = {.op = rf_op_find("add"), .count = 3};
    for (int i = 0; i < 3; i++) {
        call.tensors[i].desc = (struct rf_tensor_desc){.dtype = RF_F32,
                                                       .rank = 1,
                                                       .shape = {64},
                                                       .byte_offset = i == 2   ? 256
                                                                      : i == 1 ? 512
                                                                               : 0};
        call.tensors[i].host = arena.host;
        call.tensors[i].buffer = arena.buffer;
    }
    RF_ASSERT_OK(rf_op_check(&call));
    RF_ASSERT_OK(s.table->upload(s.backend, &arena, 0, in, sizeof in));
    for (int i = 0; i < 64; i++) in[i] = 1;
    RF_ASSERT_OK(s.table->upload(s.backend, &arena, 512, in, sizeof in));
    RF_ASSERT_OK(s.table->execute(s.backend, &call)); /* 256: i + 1 */
    for (int round = 0; round < 10; round++) {
        uint64_t from = call.tensors[0].desc.byte_offset;
        call.tensors[0].desc.byte_offset = call.tensors[2].desc.byte_offset;
        call.tensors[2].desc.byte_offset = from;
        RF_ASSERT_OK(rf_op_check(&call));
        RF_ASSERT_OK(s.table->execute(s.backend, &call));
    }
    for (int i = 0; i < 64; i++) in[i] = 100;
    RF_ASSERT_OK(s.table->upload(s.backend, &arena, 512, in, sizeof in)); /* comes after all of that work */
    RF_ASSERT_OK(s.table->download(s.backend, &arena, call.tensors[2].desc.byte_offset, out, sizeof out));
    if (c->computes)
        for (int i = 0; i < 64; i++) RF_ASSERT_DOUBLE((double)out[i], i + 11, 0);
    RF_ASSERT_OK(s.table->wait(s.backend, INT64_C(10000000000)));
    RF_ASSERT_OK(s.table->arena_destroy(s.backend, &arena));
    subject_close(&s);
}
