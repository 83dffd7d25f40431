/* bench_load: how fast weights get from a model's file to the device, compared with reading the same file into pinned
 * memory with the same threads and pieces, without sending it anywhere.
 *
 *     bench_load [--quick] [-m M.gguf] [--readers N] [--piece MIB] [--staging MIB] [--rounds N] [--cold]
 *
 * Without -m a file of 1 GiB (--quick: 16 MiB) is made and removed. If the budget does not hold the model, as many
 * tensors as fit are loaded. Rounds of reading and loading alternate, after one that fills the kernel's cache and is
 * not counted; the medians are reported. --cold asks the kernel to drop the file from its cache before each round,
 * which measures the disk. With -m the whole of rf_engine_open is timed too, on a device that is open already. The
 * load's time includes pinning its staging; the reader's memory is pinned before. Timings decide nothing: the exit
 * status says whether the benchmark ran; 77: no GPU. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <rocmforge/infer.h>

#include "runtime/thread_pool.h"
#include "gpu/device_impl.h"
#include "infer/engine_impl.h"
#include "gguf/gguf_impl.h"
#include "support/gguf_write.h"
#include "infer/load.h"
#include "start.h"

enum { ROUNDS_MAX = 64, READERS_MAX = 64, EXIT_ABSENT = 77 };

struct bench {
    bool quick, cold;
    const char *model;
    unsigned readers;
    uint64_t piece_bytes, staging_bytes;
    int rounds;
    char made[256]; /* path of the file that was made; "": none */
    struct rf_runtime *runtime;
    struct rf_device *device;
    struct rf_gguf *gguf;
    struct rf_buffer *buffer;
    struct rf_weight_home *homes;
    size_t count;
    uint64_t total;
    struct rf_load load; /* result of the last round */
};

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double median(double *values, int count) {
    qsort(values, (size_t)count, sizeof *values, compare);
    return values[count / 2];
}

/* ---- what is loaded ---- */

static rf_status make_file(struct bench *bench) {
    const char *folder = getenv("TMPDIR");
    uint64_t tensors = 16, bytes = bench->quick ? (uint64_t)1 << 20 : (uint64_t)64 << 20, elements = bytes / 2;
    unsigned char *data = malloc((size_t)bytes);
    struct rf_gguf_writer *writer = NULL;
    if (!data) return rf_fail(RF_E_NO_MEMORY, "no memory for a tensor");
    uint64_t state = 88172645463325252u;
    for (uint64_t i = 0; i + 8 <= bytes; i += 8) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        memcpy(data + i, &state, 8);
    }
    snprintf(bench->made, sizeof bench->made, "%s/rocmforge-bench-load-%d.gguf", folder && *folder ? folder : "/tmp",
             (int)getpid());
    rf_status status = rf_gguf_writer_create(&writer);
    for (uint64_t i = 0; i < tensors && !status; i++) {
        char name[32];
        snprintf(name, sizeof name, "blk.%u.weight", (unsigned)i);
        status = rf_gguf_write_tensor(writer, name, RF_F16, 1, &elements, data);
    }
    if (!status) status = rf_gguf_writer_finish(writer, bench->made);
    rf_gguf_writer_destroy(&writer);
    free(data);
    return status;
}

/* Makes one buffer for all tensors that fit. */
static rf_status place(struct bench *bench) {
    uint64_t room = 0;
    rf_status status = rf_safe_alloc_size(bench->device, &room);
    if (status) return status;
    bench->homes = calloc(rf_gguf_tensor_count(bench->gguf), sizeof *bench->homes);
    if (!bench->homes) return rf_fail(RF_E_NO_MEMORY, "no memory for the list of tensors");
    uint64_t at = 0;
    for (size_t i = 0; i < rf_gguf_tensor_count(bench->gguf); i++) {
        const struct rf_gguf_tensor *tensor = rf_gguf_tensor_at(bench->gguf, i);
        if (tensor->bytes > rf_sub_saturate(room, at)) continue;
        bench->homes[bench->count++] = (struct rf_weight_home){.tensor = tensor, .offset = at};
        bench->total += tensor->bytes;
        at += (tensor->bytes + 255) / 256 * 256;
    }
    if (!at) return rf_fail(RF_E_BUDGET, "no tensor fits the budget: raise it with RF_BUDGET");
    RF_PARAMS(struct rf_buffer_params, params);
    params.bytes = RF_MIN(at, room);
    params.label = "bench";
    status = rf_buffer_create_safe(bench->device, &params, &bench->buffer);
    for (size_t i = 0; i < bench->count; i++) bench->homes[i].buffer = bench->buffer;
    return status;
}

static void forget(struct bench *bench) {
    for (size_t i = 0; i < bench->gguf->part_count && bench->cold; i++)
        posix_fadvise(bench->gguf->parts[i].descriptor, 0, 0, POSIX_FADV_DONTNEED);
}

/* ---- reading alone ---- */

struct piece {
    const struct rf_gguf_tensor *tensor;
    uint64_t at, bytes;
};
struct reading {
    const struct rf_gguf *gguf;
    struct piece *pieces;
    struct rf_pinned *memory[READERS_MAX];
    atomic_int failed;
};
static void read_pieces(void *user, size_t begin, size_t end, unsigned thread) {
    struct reading *reading = user;
    for (size_t i = begin; i < end; i++) {
        const struct piece *piece = &reading->pieces[i];
        if (rf_gguf_read(reading->gguf, piece->tensor, piece->at, rf_pinned_data(reading->memory[thread]),
                         (size_t)piece->bytes))
            atomic_store(&reading->failed, 1);
    }
}

static rf_status read_alone(struct bench *bench, double *rate) {
    struct reading reading = {.gguf = bench->gguf};
    struct rf_thread_pool *pool = NULL;
    uint64_t step = bench->load.piece_bytes_used;
    size_t count = 0;
    for (size_t i = 0; i < bench->count; i++) count += (size_t)((bench->homes[i].tensor->bytes + step - 1) / step);
    reading.pieces = calloc(count, sizeof *reading.pieces);
    rf_status status = reading.pieces ? RF_OK : rf_fail(RF_E_NO_MEMORY, "no memory for the list of pieces");
    if (!status) status = rf_thread_pool_create(RF_MAX(bench->load.readers_used, 1u), &pool);
    for (unsigned i = 0; !status && i < rf_thread_pool_threads(pool); i++)
        status = rf_pinned_create(bench->device, step, &reading.memory[i]);
    count = 0;
    for (size_t i = 0; i < bench->count && !status; i++)
        for (uint64_t at = 0; at < bench->homes[i].tensor->bytes; at += step)
            reading.pieces[count++] =
                (struct piece){bench->homes[i].tensor, at, RF_MIN(step, bench->homes[i].tensor->bytes - at)};
    if (!status) {
        forget(bench);
        int64_t start = rf_now_ns();
        rf_thread_pool_run(pool, 0, count, 1, read_pieces, &reading);
        *rate = (double)bench->total / (double)(rf_now_ns() - start);
        if (atomic_load(&reading.failed)) status = rf_fail(RF_E_IO, "the file could not be read");
    }
    for (unsigned i = 0; i < READERS_MAX; i++) rf_pinned_destroy(&reading.memory[i]);
    rf_thread_pool_destroy(&pool);
    free(reading.pieces);
    return status;
}

/* ---- loading ---- */

static rf_status load_once(struct bench *bench, double *rate) {
    bench->load = (struct rf_load){.device = bench->device,
                                   .gguf = bench->gguf,
                                   .readers = bench->readers,
                                   .piece_bytes = bench->piece_bytes,
                                   .staging_bytes = bench->staging_bytes};
    forget(bench);
    int64_t start = rf_now_ns();
    rf_status status = rf_load_weights(&bench->load, bench->homes, bench->count);
    *rate = (double)bench->total / (double)(rf_now_ns() - start);
    return status;
}

static rf_status open_engine(struct bench *bench) {
    RF_PARAMS(struct rf_engine_params, params);
    RF_PARAMS(struct rf_engine_info, info);
    struct rf_engine *engine = NULL;
    params.runtime = bench->runtime;
    params.model = bench->model;
    params.device = "gpu";
    params.context = 512;
    rf_buffer_destroy(&bench->buffer);
    rf_device_trim(bench->device, RF_TIMEOUT_DEFAULT);
    int64_t start = rf_now_ns();
    rf_status status = rf_engine_open(&params, &engine);
    int64_t took = rf_now_ns() - start;
    if (!status) status = rf_engine_get_info(engine, &info);
    if (!status)
        printf("rf_engine_open        %8.3f s, %u of %u layers on the device, %.2f GB/s of its weights\n",
               (double)took * 1e-9, info.device_layers, info.layers, (double)info.device_weight_bytes / (double)took);
    rf_engine_close(&engine);
    return status;
}

static rf_status run(struct bench *bench) {
    double reads[ROUNDS_MAX], loads[ROUNDS_MAX], ignored;
    rf_status status = load_once(bench, &ignored);
    for (int round = 0; round < bench->rounds && !status; round++) {
        status = read_alone(bench, &reads[round]);
        if (!status) status = load_once(bench, &loads[round]);
    }
    if (status) return status;
    double read = median(reads, bench->rounds), load = median(loads, bench->rounds);
    printf("%.2f GB in %zu tensors; %u readers, %u pieces of %.1f MiB; medians of %d rounds%s\n",
           (double)bench->total * 1e-9, bench->count, bench->load.readers_used, bench->load.pieces_used,
           (double)bench->load.piece_bytes_used / 0x1p20, bench->rounds, bench->cold ? ", file not in memory" : "");
    printf("read to pinned memory %8.2f GB/s\n", read);
    printf("load to the device    %8.2f GB/s, %.2f of it (target: 0.70)\n", load, load / read);
    return bench->model ? open_engine(bench) : RF_OK;
}

/* ---- the program ---- */

static bool parse(struct bench *bench, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--quick")) {
            bench->quick = true;
            bench->rounds = 2;
            continue;
        }
        if (!strcmp(argv[i], "--cold")) {
            bench->cold = true;
            continue;
        }
        long number = strtol(value, NULL, 10);
        if (!strcmp(argv[i], "-m") && *value)
            bench->model = value;
        else if (!strcmp(argv[i], "--readers") && number > 0 && number <= READERS_MAX)
            bench->readers = (unsigned)number;
        else if (!strcmp(argv[i], "--piece") && number > 0 && number <= 1024)
            bench->piece_bytes = (uint64_t)number << 20;
        else if (!strcmp(argv[i], "--staging") && number > 0 && number <= 1 << 16)
            bench->staging_bytes = (uint64_t)number << 20;
        else if (!strcmp(argv[i], "--rounds") && number > 0 && number <= ROUNDS_MAX)
            bench->rounds = (int)number;
        else
            return false;
        i++;
    }
    return true;
}

int main(int argc, char **argv) {
    struct bench bench = {.rounds = 5};
    if (!parse(&bench, argc, argv)) {
        fprintf(stderr, "usage: bench_load [--quick] [-m M.gguf] [--readers N] [--piece MIB] [--staging MIB] "
                        "[--rounds N] [--cold]\n");
        return 2;
    }
    RF_PARAMS(struct rf_device_params, params);
    params.modules = bench.model ? NULL : "copy";
    rf_status status = start_runtime(NULL, &bench.runtime);
    if (!status) status = rf_device_choose(bench.runtime, NULL, &params.index);
    if (status == RF_E_NO_DEVICE || status == RF_E_NO_DRIVER) {
        fprintf(stderr, "bench_load: %s\n", rf_error_text());
        rf_runtime_destroy(&bench.runtime);
        return EXIT_ABSENT;
    }
    if (!status) status = rf_device_open_checked(bench.runtime, &params, &bench.device);
    if (!status && !bench.model) status = make_file(&bench);
    if (!status) status = rf_gguf_open(bench.model ? bench.model : bench.made, &bench.gguf);
    if (!status) status = place(&bench);
    if (!status) status = run(&bench);
    if (status) fprintf(stderr, "bench_load: %s (%s)\n", rf_error_text(), rf_status_name(status));
    rf_buffer_destroy(&bench.buffer);
    free(bench.homes);
    rf_gguf_close(&bench.gguf);
    if (bench.made[0]) unlink(bench.made);
    rf_device_close(&bench.device);
    rf_runtime_destroy(&bench.runtime);
    return status ? 1 : 0;
}
