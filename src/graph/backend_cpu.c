/* The CPU as a backend: fast ops where the op table has them, the scalar reference for the rest.
 *
 * Work is done when execute returns. Arenas and the scratch memory of the fast ops are charged to the runtime's host
 * budget. The runtime's threads start with the first arena, so that a plan that never uses the CPU never starts them.
 * Scratch memory is reserved when a plan is rehearsed, as much as its largest call needs, and is then kept. */
#include "graph/backend.h"

#include <stdlib.h>

#include "cpu/fast.h"
#include "runtime/host_memory.h"
#include "runtime/runtime.h"

enum { CPU_ALIGNMENT = 64 };

struct cpu_backend {
    struct rf_backend base;
    struct rf_runtime *runtime;
    unsigned threads;
    enum rf_simd_level level;
    struct rf_cpu *cpu; /* NULL until the threads are started */
};

static struct cpu_backend *self(struct rf_backend *backend) {
    return (struct cpu_backend *)backend;
}

static rf_status execute(struct rf_backend *backend, const struct rf_op_call *call) {
    if (call->op->cpu) {
        rf_status status = call->op->cpu(self(backend)->cpu, call);
        if (status != RF_E_UNSUPPORTED) return status;
    }
    call->op->reference(call);
    return RF_OK;
}

/* Reserves the scratch memory of a call. Another failure than a refusal of memory can be due to inputs that are not
 * written yet, and comes again when the call runs. */
static rf_status rehearse(struct rf_backend *backend, const struct rf_op_call *call) {
    struct rf_cpu *cpu = self(backend)->cpu;
    if (!call->op->cpu) return RF_OK;
    struct rf_saved_error saved;
    rf_error_save(&saved);
    rf_cpu_rehearse(cpu, true);
    rf_status status = call->op->cpu(cpu, call);
    rf_cpu_rehearse(cpu, false);
    if (status == RF_E_NO_MEMORY) return status;
    rf_error_restore(&saved);
    return RF_OK;
}

/* The reference handles every call that passed the op's check. */
static rf_status supports(struct rf_backend *backend, const struct rf_op_call *call) {
    (void)backend, (void)call;
    return RF_OK;
}

static rf_status workspace(struct rf_backend *backend, const struct rf_op_call *call, uint64_t *bytes) {
    (void)backend, (void)call;
    *bytes = 0;
    return RF_OK;
}

static uint64_t alignment(struct rf_backend *backend) {
    (void)backend;
    return CPU_ALIGNMENT;
}

static rf_status start(struct cpu_backend *backend) {
    if (backend->cpu) return RF_OK;
    struct rf_cpu_params params = {
        .threads = backend->threads, .level = backend->level, .host = &backend->runtime->host};
    rf_status status = rf_runtime_threads(backend->runtime, backend->threads, &params.pool);
    return status ? status : rf_cpu_create(&params, &backend->cpu);
}

static rf_status arena_create(struct rf_backend *backend, uint64_t bytes, const char *label, struct rf_arena *out) {
    struct cpu_backend *cpu = self(backend);
    rf_status status = start(cpu);
    *out = (struct rf_arena){0};
    if (status || !bytes) return status;
    void *memory = NULL;
    status = rf_runtime_injected_failure(cpu->runtime);
    if (status) return rf_fail_within(status, "%s", label);
    status = rf_host_alloc(&cpu->runtime->host, bytes, label, &memory);
    if (!status) *out = (struct rf_arena){.bytes = bytes, .host = memory};
    return status;
}

static rf_status arena_destroy(struct rf_backend *backend, struct rf_arena *arena) {
    rf_host_free(&self(backend)->runtime->host, arena->host, arena->bytes);
    *arena = (struct rf_arena){0};
    return RF_OK;
}

static rf_status upload(struct rf_backend *backend, struct rf_arena *arena, uint64_t offset, const void *data,
                        uint64_t bytes) {
    (void)backend;
    if (bytes) memcpy((char *)arena->host + offset, data, (size_t)bytes);
    return RF_OK;
}

static rf_status download(struct rf_backend *backend, struct rf_arena *arena, uint64_t offset, void *data,
                          uint64_t bytes) {
    (void)backend;
    if (bytes) memcpy(data, (const char *)arena->host + offset, (size_t)bytes);
    return RF_OK;
}

static rf_status wait(struct rf_backend *backend, int64_t timeout_ns) {
    (void)backend, (void)timeout_ns;
    return RF_OK;
}

static void destroy(struct rf_backend *backend) {
    rf_cpu_destroy(&self(backend)->cpu);
    free(backend);
}

static const struct rf_backend_table table = {
    .kind = "cpu",
    .supports = supports,
    .workspace = workspace,
    .alignment = alignment,
    .arena_create = arena_create,
    .arena_destroy = arena_destroy,
    .upload = upload,
    .download = download,
    .rehearse = rehearse,
    .execute = execute,
    .wait = wait,
    .destroy = destroy,
};

rf_status rf_backend_create_cpu(struct rf_runtime *runtime, unsigned threads, const char *simd,
                                struct rf_backend **out) {
    enum rf_simd_level level;
    rf_status status = rf_simd_find(simd, &level);
    if (status) return status;
    struct cpu_backend *backend = calloc(1, sizeof *backend);
    if (!backend) return rf_fail(RF_E_NO_MEMORY, "no host memory for the CPU backend");
    backend->base.table = &table;
    backend->runtime = runtime;
    backend->threads = rf_runtime_thread_count(runtime, threads);
    backend->level = level;
    rf_runtime_describe_cpu(runtime, level, threads, backend->base.name, sizeof backend->base.name);
    *out = &backend->base;
    return RF_OK;
}
