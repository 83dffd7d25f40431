/* What a backend may offer beyond what all backends do (test_backend.c): rehearsals, copies that do not wait,
 * recordings, marks, charges. Each is tested if the table has it, in one sequence of work. */
#include "exec_testing.h"

#include <stdlib.h>
#include <string.h>

#include "graph/backend.h"

enum { COUNT = 64, BYTES = COUNT * 4 };

static struct rf_op_call add_call(struct rf_arena *arena, uint64_t a, uint64_t b, uint64_t out) {
    const uint64_t offsets[] = {a, b, out};
    struct rf_op_call call = {.op = rf_op_find("add"), .count = 3};
    for (int i = 0; i < 3; i++)
        call.tensors[i].desc =
            (struct rf_tensor_desc){.dtype = RF_F32, .rank = 1, .shape = {COUNT}, .byte_offset = offsets[i]};
    RF_ASSERT_OK(rf_op_check(&call));
    for (int i = 0; i < 3; i++) {
        call.tensors[i].host = arena->host;
        call.tensors[i].buffer = arena->buffer;
    }
    return call;
}

static void works(struct rf_backend *backend, bool computes) {
    const struct rf_backend_table *table = backend->table;
    uint64_t step = table->alignment(backend), workspace = 1;
    struct rf_arena arena = {0}, empty = {0};
    float sent[COUNT], got[COUNT];
    RF_ASSERT(step && !(step & (step - 1)));
    RF_ASSERT(table->kind && backend->name[0]);
    while (step < BYTES) step *= 2;
    for (int i = 0; i < COUNT; i++) sent[i] = (float)i - 10;
    RF_ASSERT_OK(table->arena_create(backend, 4 * step, "work", &arena));
    RF_EXPECT_INT(arena.bytes, 4 * step);
    RF_ASSERT_OK(table->arena_create(backend, 0, "nothing", &empty));
    struct rf_op_call call = add_call(&arena, 0, step, 2 * step);
    RF_EXPECT_OK(table->supports(backend, &call));
    RF_EXPECT_OK(table->workspace(backend, &call, &workspace));
    RF_EXPECT_INT(workspace, 0);
    if (table->rehearse) RF_EXPECT_OK(table->rehearse(backend, &call));
    /* The memory is zeroed, and the rehearsal has changed nothing. */
    memset(got, 1, sizeof got);
    RF_ASSERT_OK(table->download(backend, &arena, 2 * step, got, BYTES));
    for (int i = 0; i < COUNT && computes; i++) RF_EXPECT(got[i] == 0);
    /* A download returns what was uploaded, and the source may be reused at once. */
    RF_ASSERT_OK(table->upload(backend, &arena, 0, sent, BYTES));
    memset(sent, 0, sizeof sent);
    for (int i = 0; i < COUNT; i++) sent[i] = 100;
    RF_ASSERT_OK(table->upload(backend, &arena, step, sent, BYTES));
    RF_ASSERT_OK(table->download(backend, &arena, 0, got, BYTES));
    for (int i = 0; i < COUNT && computes; i++) RF_EXPECT(got[i] == (float)i - 10);
    RF_ASSERT_OK(table->execute(backend, &call));
    RF_ASSERT_OK(table->wait(backend, RF_TIMEOUT_DEFAULT));
    RF_ASSERT_OK(table->download(backend, &arena, 2 * step, got, BYTES));
    for (int i = 0; i < COUNT && computes; i++) RF_EXPECT(got[i] == (float)i + 90);
    if (table->transfer_create) {
        struct rf_transfer *transfer = NULL;
        const void *data = NULL;
        struct rf_op_call more = add_call(&arena, step, 2 * step, 3 * step);
        RF_ASSERT_OK(table->transfer_create(backend, BYTES, &transfer));
        for (int round = 0; round < 2; round++) {
            RF_ASSERT_OK(table->execute(backend, &more));
            RF_ASSERT_OK(table->transfer_begin(backend, transfer, &arena, 3 * step));
            RF_ASSERT_OK(table->transfer_end(backend, transfer, RF_TIMEOUT_DEFAULT, &data));
            for (int i = 0; i < COUNT; i++) RF_EXPECT(((const float *)data)[i] == (float)i + 190);
        }
        table->transfer_destroy(backend, transfer);
    }
    if (table->record_begin) {
        /* 2 = 0 + 1; 3 = 2 + 1. Recording does not run the ops; replaying does. */
        struct rf_op_call more = add_call(&arena, 2 * step, step, 3 * step);
        void *recording = NULL;
        RF_ASSERT_OK(table->upload(backend, &arena, 3 * step, sent, BYTES));
        RF_ASSERT_OK(table->wait(backend, RF_TIMEOUT_DEFAULT));
        RF_ASSERT_OK(table->record_begin(backend));
        RF_ASSERT_OK(table->execute(backend, &call));
        RF_ASSERT_OK(table->execute(backend, &more));
        RF_ASSERT_OK(table->record_end(backend, &recording));
        RF_ASSERT_OK(table->download(backend, &arena, 3 * step, got, BYTES));
        for (int i = 0; i < COUNT && computes; i++) RF_EXPECT(got[i] == 100);
        RF_ASSERT_OK(table->replay(backend, recording));
        RF_ASSERT_OK(table->download(backend, &arena, 3 * step, got, BYTES));
        for (int i = 0; i < COUNT && computes; i++) RF_EXPECT(got[i] == (float)i + 190);
        table->recording_destroy(backend, recording);
    }
    if (table->mark) {
        int64_t elapsed = -1;
        RF_ASSERT_OK(table->marks_create(backend, 2));
        RF_ASSERT_OK(table->mark(backend, 0));
        RF_ASSERT_OK(table->execute(backend, &call));
        RF_ASSERT_OK(table->mark(backend, 1));
        RF_ASSERT_OK(table->wait(backend, RF_TIMEOUT_DEFAULT));
        RF_ASSERT_OK(table->marks_between(backend, 0, 1, &elapsed));
        RF_EXPECT(elapsed >= 0);
    }
    RF_ASSERT_OK(table->arena_destroy(backend, &empty));
    RF_ASSERT_OK(table->arena_destroy(backend, &arena));
    RF_EXPECT(!arena.bytes && !arena.host && !arena.buffer);
}

RF_TEST(backend_work, on_a_gpu, .gpu = true) {
    struct exec_gpus gpus = {0};
    struct rf_backend *backend = NULL;
    exec_open(&gpus, 1, "", NULL, NULL);
    RF_ASSERT_OK(rf_backend_create_gpu(gpus.devices[0], &backend));
    RF_EXPECT(backend->device == gpus.devices[0]);
    works(backend, true);
    struct rf_arena arena = {0};
    RF_EXPECT_STATUS(backend->table->arena_create(backend, UINT64_C(1) << 50, "too large", &arena), RF_E_BUDGET);
    RF_EXPECT(!arena.buffer);
    rf_backend_destroy(&backend);
    RF_EXPECT(backend == NULL);
    exec_close(&gpus);
}

RF_TEST(backend_work, on_the_cpu) {
    struct rf_runtime *runtime = NULL;
    struct rf_backend *backend = NULL;
    RF_ASSERT_OK(rf_runtime_create(NULL, &runtime));
    RF_ASSERT_OK(rf_backend_create_cpu(runtime, 0, NULL, &backend));
    RF_EXPECT(backend->device == NULL);
    works(backend, true);
    struct rf_arena arena = {0};
    RF_EXPECT_STATUS(backend->table->arena_create(backend, UINT64_MAX, "too large", &arena), RF_E_NO_MEMORY);
    RF_EXPECT(!arena.host);
    rf_backend_destroy(&backend);
    rf_runtime_destroy(&runtime);
}

RF_TEST(backend_work, on_the_dummy) {
    struct rf_dummy *dummy = NULL;
    struct rf_backend *backend = NULL;
    RF_ASSERT_OK(rf_dummy_create(&dummy));
    RF_ASSERT_OK(rf_backend_create_dummy(dummy, &backend));
    works(backend, false);
    rf_backend_destroy(&backend);
    RF_EXPECT(rf_dummy_get_stats(dummy).execute_op_count > 0);
    rf_dummy_destroy(&dummy);
}

/* The CPU's arenas are charged to the host budget of the runtime, and given back when they are freed. */
RF_TEST(backend_work, cpu_arenas_are_charged) {
    struct rf_runtime *runtime = NULL;
    RF_PARAMS(struct rf_runtime_params, params);
    struct rf_backend *backend = NULL;
    struct rf_arena first = {0}, second = {0};
    params.options = (const char *[]){"RF_HOST_BUDGET=256MiB", NULL};
    RF_ASSERT_OK(rf_runtime_create(&params, &runtime));
    RF_ASSERT_OK(rf_backend_create_cpu(runtime, 0, NULL, &backend));
    for (int round = 0; round < 3; round++) {
        RF_ASSERT_OK(backend->table->arena_create(backend, 150 * MIB, "one", &first));
        RF_EXPECT_STATUS(backend->table->arena_create(backend, 150 * MIB, "two", &second), RF_E_NO_MEMORY);
        RF_ASSERT_OK(backend->table->arena_destroy(backend, &first));
    }
    rf_backend_destroy(&backend);
    rf_runtime_destroy(&runtime);
}
