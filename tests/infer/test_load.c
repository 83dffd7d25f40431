/* Loading weights: every byte arrives, however few and small the pieces are; a cancelled load, a file that fails on
 * the way and a device that fails leave nothing behind. */
#include "infer_testing.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/device.h"
#include "runtime/runtime.h"
#include "infer/engine_impl.h"
#include "infer/load.h"

/* ---- files, and the buffers that their tensors go to ---- */

enum { TENSORS = 9 };
/* Sizes in elements of two bytes: one element, odd sizes, some larger than a piece, multiples of a piece. */
static const uint64_t sizes[TENSORS] = {1, 4096, 65536, 65537, 3, 300001, 131072, 1048579, 77};

/* The file has two parts, to check that each tensor is read from its own part. */
static const char *write_model(void) {
    static char names[2][64];
    for (uint32_t part = 0; part < 2; part++) {
        struct rf_gguf_writer *writer = NULL;
        unsigned char *data[TENSORS] = {NULL}; /* borrowed by the writer */
        snprintf(names[part], sizeof names[part], "load-%05u-of-00002.gguf", part + 1);
        RF_ASSERT_OK(rf_gguf_writer_create(&writer));
        RF_ASSERT_OK(rf_gguf_write_u32(writer, "split.no", part));
        RF_ASSERT_OK(rf_gguf_write_u32(writer, "split.count", 2));
        RF_ASSERT_OK(rf_gguf_write_u32(writer, "split.tensors.count", TENSORS));
        for (uint32_t i = part; i < TENSORS; i += 2) {
            char name[32];
            snprintf(name, sizeof name, "tensor.%u", i);
            data[i] = allocate(sizes[i], 2);
            uint64_t state = 88172645463325252u + i;
            for (uint64_t at = 0; at < 2 * sizes[i]; at++) {
                state ^= state << 13, state ^= state >> 7, state ^= state << 17;
                data[i][at] = (unsigned char)state;
            }
            RF_ASSERT_OK(rf_gguf_write_tensor(writer, name, RF_F16, 1, &sizes[i], data[i]));
        }
        RF_ASSERT_OK(rf_gguf_writer_finish(writer, scratch_path(names[part])));
        rf_gguf_writer_destroy(&writer);
        for (int i = 0; i < TENSORS; i++) free(data[i]);
    }
    return scratch_path(names[0]);
}

struct scene {
    struct gpu gpu;
    struct rf_gguf *gguf;
    char path[512];
    struct rf_weight_home homes[TENSORS];
    struct rf_buffer *buffers[2]; /* both hold tensors, in another order than the file */
    uint64_t total;
    struct rf_load load;
    uint64_t used_before, live_before;
};

static uint64_t host_used(struct scene *scene) {
    return rf_device_runtime(scene->gpu.device)->host.used_bytes;
}

static void scene_begin(struct scene *scene, const char *const *options) {
    *scene = (struct scene){.gpu = {.modules = "copy"}};
    gpu_make_runtime(&scene->gpu, options);
    gpu_open(&scene->gpu, NULL);
    snprintf(scene->path, sizeof scene->path, "%s", write_model());
    RF_ASSERT_OK(rf_gguf_open(scene->path, &scene->gguf));
    RF_ASSERT_UINT(rf_gguf_tensor_count(scene->gguf), TENSORS);
    uint64_t bytes[2] = {0, 0};
    for (size_t i = 0; i < TENSORS; i++) {
        const struct rf_gguf_tensor *tensor = rf_gguf_tensor_at(scene->gguf, (i * 5 + 3) % TENSORS);
        scene->homes[i] = (struct rf_weight_home){.tensor = tensor, .offset = bytes[i & 1]};
        bytes[i & 1] += (tensor->bytes + 255) / 256 * 256;
        scene->total += tensor->bytes;
    }
    for (int b = 0; b < 2; b++) scene->buffers[b] = gpu_buffer(&scene->gpu, bytes[b]);
    for (size_t i = 0; i < TENSORS; i++) scene->homes[i].buffer = scene->buffers[i & 1];
    scene->load = (struct rf_load){.device = scene->gpu.device, .gguf = scene->gguf};
    scene->used_before = host_used(scene);
    scene->live_before = gpu_memory(&scene->gpu).live_count;
}

static void expect_nothing_held(struct scene *scene) {
    RF_EXPECT_UINT(host_used(scene), scene->used_before);
    RF_EXPECT_UINT(gpu_memory(&scene->gpu).live_count, scene->live_before);
}

static void scene_end(struct scene *scene) {
    expect_nothing_held(scene);
    for (int b = 0; b < 2; b++) RF_EXPECT_OK(rf_buffer_destroy(&scene->buffers[b]));
    rf_gguf_close(&scene->gguf);
    gpu_close(&scene->gpu);
}

static rf_status load(struct scene *scene) {
    return rf_load_weights(&scene->load, scene->homes, TENSORS);
}

static void expect_arrived(struct scene *scene) {
    for (size_t i = 0; i < TENSORS; i++) {
        const struct rf_weight_home *home = &scene->homes[i];
        unsigned char *there = allocate(home->tensor->bytes, 1);
        RF_ASSERT_OK(
            rf_copy_from_device_safe(scene->gpu.queue, there, home->buffer, home->offset, home->tensor->bytes));
        if (memcmp(there, home->tensor->data, home->tensor->bytes) != 0)
            RF_FAIL("%s is another on the device", home->tensor->name);
        free(there);
    }
}
static void forget_what_arrived(struct scene *scene) {
    for (int b = 0; b < 2; b++)
        RF_ASSERT_OK(rf_fill(scene->gpu.queue, scene->buffers[b], 0, rf_buffer_bytes(scene->buffers[b]), 0xa5));
    RF_ASSERT_OK(rf_queue_wait(scene->gpu.queue, RF_TIMEOUT_DEFAULT));
}

/* ---- loads that must succeed ---- */

/* Copies lag behind the reads by random times, so that a piece that is reused too early shows. */
RF_TEST(load, every_byte_arrives, .gpu = true) {
    static const struct {
        unsigned readers;
        uint64_t piece, staging;
    } ways[] = {{0, 0, 0},          {1, 4096, 4096}, {1, 65536, 65536 * 4}, {2, 4096, 65536},
                {8, 10007, 200000}, {8, 65536, 0},   {3, 1, 262144},        {8, 2097152, 8388608}};
    struct scene scene;
    if (gpu_simulated()) gpu_set_sim("delay=11/100us");
    scene_begin(&scene, NULL);
    for (size_t i = 0; i < RF_COUNT(ways); i++) {
        RF_TRACE("%u readers, pieces of %llu, staging %llu", ways[i].readers, (unsigned long long)ways[i].piece,
                 (unsigned long long)ways[i].staging);
        forget_what_arrived(&scene);
        scene.load.readers = ways[i].readers;
        scene.load.piece_bytes = ways[i].piece;
        scene.load.staging_bytes = ways[i].staging;
        RF_ASSERT_OK(load(&scene));
        expect_arrived(&scene);
        expect_nothing_held(&scene);
        RF_EXPECT(scene.load.readers_used >= 1 && scene.load.pieces_used >= 1);
        if (ways[i].readers) RF_EXPECT(scene.load.readers_used <= ways[i].readers);
    }
    RF_EXPECT_OK(rf_load_weights(&scene.load, scene.homes, 0));
    scene_end(&scene);
}

struct watch {
    uint64_t last, total;
    int calls, stop_at;
    pthread_t thread;
    void (*then)(void *user); /* called at the first call */
    void *user;
};
static bool watched(void *user, uint64_t done, uint64_t total) {
    struct watch *watch = user;
    RF_EXPECT(done > watch->last && done <= total);
    RF_EXPECT(pthread_equal(pthread_self(), watch->thread));
    watch->last = done;
    watch->total = total;
    if (!watch->calls++ && watch->then) watch->then(watch->user);
    return watch->calls != watch->stop_at;
}
static struct watch watch_scene(struct scene *scene, struct watch *watch) {
    struct watch fresh = {.thread = pthread_self()};
    scene->load.progress = watched;
    scene->load.user = watch;
    return fresh;
}

/* Progress is reported for each piece, on the caller's own thread, up to all bytes; the load is stopped at each of
 * them. */
RF_TEST(load, is_watched_and_cancelled, .gpu = true) {
    struct scene scene;
    struct watch watch;
    scene_begin(&scene, NULL);
    scene.load.piece_bytes = 65536;
    scene.load.readers = 4;
    watch = watch_scene(&scene, &watch);
    RF_ASSERT_OK(load(&scene));
    RF_EXPECT_UINT(watch.last, scene.total);
    RF_EXPECT_UINT(watch.total, scene.total);
    int calls = watch.calls;
    RF_EXPECT(calls > TENSORS);
    for (int stop = 1; stop <= calls; stop += stop < 4 ? 1 : 5) {
        RF_TRACE("cancelled at call %d", stop);
        watch = watch_scene(&scene, &watch);
        watch.stop_at = stop;
        RF_EXPECT_STATUS(load(&scene), RF_E_CANCELLED);
        RF_EXPECT_CONTAINS(rf_error_text(), "cancelled");
        RF_EXPECT_INT(watch.calls, stop);
        expect_nothing_held(&scene);
    }
    watch = watch_scene(&scene, &watch); /* and once more, to the end */
    RF_ASSERT_OK(load(&scene));
    expect_arrived(&scene);
    scene_end(&scene);
}

/* ---- little memory ---- */

/* Pins all that the host's budget still allows, except this many bytes. */
static struct rf_pinned *pin_all_but(struct scene *scene, uint64_t bytes) {
    struct rf_pinned *pinned = NULL;
    uint64_t room = rf_host_room(&rf_device_runtime(scene->gpu.device)->host, true) / 4096 * 4096;
    if (room > bytes) RF_ASSERT_OK(rf_pinned_create(scene->gpu.device, room - bytes, &pinned));
    return pinned;
}

RF_TEST(load, with_little_pinned_memory, .gpu = true) {
    static const uint64_t rooms[] = {0, 4096, 65536, 128 << 10, 256 << 10, 1 << 20};
    const char *options[] = {"RF_HOST_BUDGET=96MiB", NULL};
    struct scene scene;
    gpu_need_simulated("delay=3/100us");
    scene_begin(&scene, options);
    for (size_t i = 0; i < RF_COUNT(rooms); i++) {
        RF_TRACE("room for %llu bytes", (unsigned long long)rooms[i]);
        struct rf_pinned *pinned = pin_all_but(&scene, rooms[i]);
        forget_what_arrived(&scene);
        scene.load.readers = 4;
        RF_ASSERT_OK(load(&scene));
        RF_NOTE("%u pieces of %llu bytes, %u readers", scene.load.pieces_used,
                (unsigned long long)scene.load.piece_bytes_used, scene.load.readers_used);
        RF_EXPECT(scene.load.pieces_used * scene.load.piece_bytes_used <= RF_MAX(rooms[i], (uint64_t)65536));
        expect_arrived(&scene);
        rf_pinned_destroy(&pinned);
        expect_nothing_held(&scene);
    }
    /* Not even one piece of ordinary memory. */
    struct rf_host_budget *host = &rf_device_runtime(scene.gpu.device)->host;
    struct rf_pinned *pinned = pin_all_but(&scene, 0);
    uint64_t rest = rf_host_room(host, false);
    RF_ASSERT_OK(rf_host_charge(host, rest, false));
    RF_EXPECT_STATUS(load(&scene), RF_E_NO_MEMORY);
    RF_EXPECT_CONTAINS(rf_error_text(), "RF_HOST_BUDGET");
    rf_host_release(host, rest, false);
    rf_pinned_destroy(&pinned);
    scene_end(&scene);
}

/* The driver itself refuses to pin: the load works with the pieces that it got, and even with none. */
struct refusal {
    const char *label, *rfsim;
    unsigned pieces;
};
static const struct refusal refusals[] = {
    /* The first pinned memory is the device's own staging; then come pieces of 128 and of 64 KiB. */
    {"any", "fault=hipHostMalloc:2:2,fault=hipHostMalloc:3:2", 1},
    {"large", "fault=hipHostMalloc:2:2,fault=hipHostMalloc:4:2", 1},
    {"second", "fault=hipHostMalloc:3:2", 1},
    {"fourth", "fault=hipHostMalloc:5:2", 3}};
RF_TEST_LABELLED_CASES(load, when_the_driver_pins_no_more, struct refusal, refusals, .gpu = true) {
    struct scene scene;
    gpu_need_simulated(c->rfsim);
    scene_begin(&scene, NULL);
    scene.load.piece_bytes = 131072;
    RF_ASSERT_OK(load(&scene));
    RF_EXPECT_UINT(scene.load.pieces_used, c->pieces);
    expect_arrived(&scene);
    scene_end(&scene);
}

/* ---- failures on the way ---- */

static void cut_file(void *path) {
    RF_ASSERT_INT(truncate(path, 8192), 0);
}
static void write_into_file(void *path) {
    int file = open(path, O_WRONLY);
    RF_ASSERT(file >= 0);
    RF_ASSERT_INT(pwrite(file, "x", 1, 4000), 1);
    RF_ASSERT_INT(close(file), 0);
}

RF_TEST(load, a_file_that_ends_in_the_middle, .gpu = true) {
    struct scene scene;
    struct watch watch;
    for (unsigned readers = 1; readers <= 4; readers += 3) {
        scene_begin(&scene, NULL);
        scene.load.piece_bytes = 65536;
        scene.load.staging_bytes = 65536 * 4; /* small, so that most of the file is unread at the first call */
        scene.load.readers = readers;
        watch = watch_scene(&scene, &watch);
        watch.then = cut_file;
        watch.user = scene.path;
        RF_EXPECT_STATUS(load(&scene), RF_E_IO);
        RF_EXPECT_CONTAINS(rf_error_text(), scene.path);
        RF_EXPECT_CONTAINS(rf_error_text(), "loading, at byte ");
        RF_EXPECT_CONTAINS(rf_error_text(), "shortened");
        RF_EXPECT(watch.last < scene.total);
        scene_end(&scene);
    }
}

RF_TEST(load, a_file_that_is_changed_meanwhile, .gpu = true) {
    struct scene scene;
    struct watch watch;
    scene_begin(&scene, NULL);
    watch = watch_scene(&scene, &watch);
    watch.then = write_into_file;
    watch.user = scene.path;
    RF_EXPECT_STATUS(load(&scene), RF_E_IO);
    RF_EXPECT_CONTAINS(rf_error_text(), scene.path);
    RF_EXPECT_CONTAINS(rf_error_text(), "was changed");
    scene_end(&scene);
}

/* The same with a whole model: nothing of the engine is left, and the model loads once the file is whole again. */
RF_TEST(load, an_engine_whose_file_is_cut, .gpu = true) {
    static const struct spec spec = {"llama",    "llama",       .layers = 5,         .width = 256,
                                     .heads = 4, .kv_heads = 2, .feed_forward = 512, .vocabulary = 300};
    static const struct where gpu = {.label = "gpu", .rfsim = ""};
    struct infer infer;
    gpu_need_simulated("");
    char path[512];
    snprintf(path, sizeof path, "%s", infer_model(&spec, "cut.gguf"));
    size_t bytes;
    unsigned char *whole = read_bytes(path, &bytes);
    struct watch watch = {.thread = pthread_self(), .then = cut_file, .user = path};
    struct rf_engine_params params = {.model = path, .context = 16, .progress = watched, .user = &watch};
    RF_EXPECT_STATUS(infer_try_open(&infer, &gpu, &params), RF_E_IO);
    RF_EXPECT_CONTAINS(rf_error_text(), path);
    RF_EXPECT_CONTAINS(rf_error_text(), "at byte");
    RF_EXPECT(infer.engine == NULL);
    rf_runtime_destroy(&infer.gpu.runtime);
    RF_EXPECT_UINT(gpu_sim_device_bytes(), 0);
    write_bytes(path, whole, bytes);
    free(whole);
    params.progress = NULL;
    infer_open(&infer, &gpu, &params);
    infer_close(&infer);
}

/* A plan is made without a trial, so its number of layers must be right by itself: they fit with their caches and the
 * scratch of a run, and one more would not. */
RF_TEST(load, a_plan_fits_the_budget) {
    static const struct spec spec = {"llama",    "llama",       .layers = 5,         .width = 256,
                                     .heads = 4, .kv_heads = 2, .feed_forward = 512, .vocabulary = 300};
    static const unsigned budgets[] = {8, 12, 20, 24, 28, 32, 40, 48, 64, 256}; /* MiB */
    struct gpu gpu = {0};
    uint32_t seen = 0, before = 0;
    gpu_need_simulated("context=0");
    gpu_make_runtime(&gpu, NULL);
    for (size_t i = 0; i < RF_COUNT(budgets); i++) {
        char budget[32];
        struct rf_engine *plan = NULL;
        RF_PARAMS(struct rf_engine_info, info);
        RF_PARAMS(struct rf_engine_params, params);
        snprintf(budget, sizeof budget, "%uMiB", budgets[i]);
        params.runtime = gpu.runtime;
        params.model = infer_model(&spec, "plan.gguf");
        params.device = "gpu";
        params.context = 4096;
        params.kv = RF_KV_F32;
        params.plan_only = true;
        params.budget = budget;
        RF_ASSERT_OK(rf_engine_open(&params, &plan));
        RF_ASSERT_OK(rf_engine_get_info(plan, &info));
        uint64_t all = info.device_weight_bytes + info.device_kv_bytes + rf_engine_scratch_bytes(plan);
        RF_NOTE("%s: %u layers, %llu KiB", budget, info.device_layers, (unsigned long long)(all / 1024));
        RF_EXPECT(!info.device_layers || all <= budgets[i] * MIB);
        RF_EXPECT(info.device_layers == spec.layers || all + 12 * MIB > budgets[i] * MIB);
        RF_EXPECT(info.device_layers >= before);
        before = info.device_layers;
        seen |= 1u << info.device_layers;
        RF_ASSERT_OK(rf_engine_close(&plan));
    }
    RF_EXPECT((seen & 1) && (seen & 1u << spec.layers) && (seen & ~(1u | 1u << spec.layers)));
    rf_runtime_destroy(&gpu.runtime);
}

/* A plan has the same figures as the load after it, takes nothing but the tables of the file, and gives back nothing
 * that is not its own. */
RF_TEST(load, a_plan_takes_nothing, .gpu = true) {
    static const struct spec spec = {"llama",    "llama",       .layers = 5,         .width = 256,
                                     .heads = 4, .kv_heads = 2, .feed_forward = 512, .vocabulary = 300};
    struct infer infer;
    RF_PARAMS(struct rf_engine_info, planned);
    RF_PARAMS(struct rf_engine_info, done);
    gpu_need_simulated("");
    for (uint32_t layers = 0; layers <= 5; layers++) {
        static const struct where cpu = {.label = "cpu"};
        const struct where gpu = {.label = "gpu", .rfsim = "", .device_layers = layers};
        RF_TRACE("%u layers", layers);
        struct rf_engine_params params = {.model = infer_model(&spec, "plan.gguf"), .context = 300};
        infer_open(&infer, layers ? &gpu : &cpu, &params);
        RF_ASSERT_OK(rf_engine_get_info(infer.engine, &done));
        const struct rf_host_budget *host = &infer.engine->runtime->host;
        uint64_t used = host->used_bytes;

        struct rf_engine *plan = NULL;
        struct rf_session *session = NULL;
        params.struct_size = sizeof params;
        params.runtime = infer.gpu.runtime;
        params.device = layers ? "gpu" : "cpu";
        params.device_layers = layers;
        params.threads = 2;
        params.plan_only = true;
        params.progress = watched; /* is not called: its user is NULL */
        RF_ASSERT_OK(rf_engine_open(&params, &plan));
        RF_ASSERT_OK(rf_engine_get_info(plan, &planned));
        RF_EXPECT_TEXT(planned.device, done.device);
        RF_EXPECT_UINT(planned.device_layers, done.device_layers);
        RF_EXPECT_UINT(planned.context, done.context);
        RF_EXPECT_UINT(planned.device_weight_bytes, done.device_weight_bytes);
        RF_EXPECT_UINT(planned.device_kv_bytes, done.device_kv_bytes);
        RF_EXPECT_UINT(planned.host_kv_bytes, done.host_kv_bytes);
        RF_EXPECT_UINT(planned.host_used_bytes, done.host_used_bytes);
        RF_EXPECT_UINT(planned.spilled_weight_bytes, done.spilled_weight_bytes);
        RF_EXPECT_INT(planned.degraded, done.degraded);
        /* The plan rounds up for the device, tensor by tensor. */
        RF_EXPECT(planned.host_weight_bytes >= done.host_weight_bytes &&
                  planned.host_weight_bytes - done.host_weight_bytes < 256 * 64);
        RF_EXPECT_STATUS(rf_session_create(plan, &session), RF_E_BUDGET);
        RF_EXPECT(host->used_bytes - used < 64 << 10); /* the tables of the file */
        RF_ASSERT_OK(rf_engine_close(&plan));
        RF_EXPECT_UINT(host->used_bytes, used);
        infer_close(&infer);
    }
}

/* The device faults at the nth copy, event or pinning: one line says so, and the host memory that was taken is given
 * back. */
struct fault {
    const char *label, *rfsim;
    rf_status status;
};
static const struct fault faults[] = {{"first_copy", "fault=hipMemcpyHtoDAsync:1:719", RF_E_DEVICE_LOST},
                                      {"later_copy", "fault=hipMemcpyHtoDAsync:20:700", RF_E_DEVICE_LOST},
                                      {"running_copy", "fault=hipMemcpyHtoDAsync:5:work/719", RF_E_DEVICE_LOST},
                                      {"refused_copy", "fault=hipMemcpyHtoDAsync:4:1", RF_E_DRIVER},
                                      {"event", "fault=hipEventRecord:9:719", RF_E_DEVICE_LOST},
                                      {"pinning", "fault=hipHostMalloc:3:719", RF_E_DEVICE_LOST},
                                      {"hang", "fault=hipMemcpyHtoDAsync:6:work/hang", RF_E_TIMEOUT}};
RF_TEST_LABELLED_CASES(load, a_device_that_fails, struct fault, faults, .gpu = true) {
    const char *options[] = {c->status == RF_E_TIMEOUT ? "RF_TIMEOUT_MS=1000" : NULL, NULL};
    struct scene scene;
    gpu_need_simulated(c->rfsim);
    scene_begin(&scene, options);
    scene.load.piece_bytes = 65536;
    scene.load.readers = 4;
    RF_EXPECT_STATUS(load(&scene), c->status);
    RF_NOTE("%s", rf_error_text());
    RF_EXPECT(rf_error_text()[0] != 0 && !strchr(rf_error_text(), '\n'));
    for (int b = 0; b < 2; b++) rf_buffer_destroy(&scene.buffers[b]);
    rf_gguf_close(&scene.gguf);
    gpu_sim_release_hangs();
    rf_queue_destroy(&scene.gpu.queue);
    rf_device_close(&scene.gpu.device);
    rf_runtime_destroy(&scene.gpu.runtime);
    RF_EXPECT_UINT(gpu_sim_traps(), 0);
}
