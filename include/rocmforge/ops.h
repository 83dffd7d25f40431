/* ROCmForge: the operations, and checking them against their references.
 *
 * One table names each op: its tensors, the rules for their shapes and types, a scalar reference that defines the
 * right result, the tolerance, and a list of cases. The checks here and the benchmarks use this table, and backends
 * take from it what they support. */
#ifndef ROCMFORGE_OPS_H
#define ROCMFORGE_OPS_H

#include <rocmforge/gpu.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rf_op_info {
    size_t struct_size;
    const char *name;
    const char *summary; /* one line */
    size_t case_count;
    bool on_gpu, on_cpu; /* offered by these backends, apart from the reference */
};
RF_API size_t rf_op_count(void);
RF_API rf_status rf_op_info_at(size_t index, struct rf_op_info *info);

/* One case on one device. Text is borrowed for the visit. May grow at its end. */
struct rf_check_result {
    const char *op, *label; /* "softmax", "f32 3x1021 offset 3" */
    rf_status status;       /* RF_OK: it ran; else 'why' says why it did not */
    const char *why;        /* where the results differ, also how */
    bool passed;
    double error, tolerance; /* largest |got - want| / (absolute + relative * |want|); at most 1 passes */
    bool same_bits;          /* a second run gave the same bits */
    int64_t time_ns;         /* with bench: the median time; else 0 */
    uint64_t bytes, flops;   /* with bench: the traffic bytes and operations that the case needs at least */
};

struct rf_check_params {
    size_t struct_size;
    const char *op;           /* a name or pattern (*, ?); NULL: all */
    struct rf_device *device; /* NULL: the CPU */
    const char *simd;         /* of the CPU: "scalar", "avx2", "avx512"; NULL or "auto": the best this machine has */
    unsigned threads;         /* CPU threads; 0: RF_THREADS, else one per usable core */
    uint64_t seed;            /* of the data; the same seed, the same data */
    bool bench;
    bool (*visit)(void *user, const struct rf_check_result *result); /* false stops */
    void *user;
    struct rf_runtime *runtime; /* provides the CPU's threads; NULL: the device's, else one of its own */
    /* Asked before each case, in the order of the table, whether to run it; NULL: all are run. Cases that are not
     * run are not counted. The texts are borrowed for the call. */
    bool (*choose)(void *user, const char *op, const char *label);
};
/* Frozen. */
struct rf_check_counts {
    size_t passed, failed, skipped; /* skipped: the backend does not offer the op or type */
};
/* Runs the cases. RF_E_NOT_FOUND: no op matches; the closest is named. A case that fails is a
 * result, not a failure of the call; a lost device ends it with RF_E_DEVICE_LOST. */
RF_API rf_status rf_check_run(const struct rf_check_params *params, struct rf_check_counts *counts);

#ifdef __cplusplus
}
#endif
#endif
