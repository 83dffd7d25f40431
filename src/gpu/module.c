/* Loading kernels when they are needed.
 *
 * A driver's call that loads a module waits for every stream, so it is made at a quiet moment only. What can be done
 * beforehand is: images are unpacked, and PTX is compiled, on as many threads as RF_THREADS allows. On an H200's host
 * with 16 cores all 359 kernels take cuLibraryLoadData 2.9 s. (cuModuleLoadData compiles one module at a time,
 * whatever the number of threads: 40 s. cuLinkComplete compiles side by side too, but other code, with more
 * registers.) The driver keeps what it compiled in a cache on disk. Every function is looked up and its attributes
 * are read when its module is loaded, because drivers load code lazily, and that must not happen at the first launch.
 *
 * One thread loads at a time (device->loading); the others wait as long as it makes progress. */
#include "gpu/device_impl.h"
#include "gpu/image.h"
#include "gpu/ptx.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    MAX_DYNAMIC_SHARED = 8, /* function attribute, the same number in both drivers */
    ERROR_LOG = 5,          /* CUjit_option of cuda.h, which is ABI */
    ERROR_LOG_BYTES = 6,
};
#define COMPILING "compiling kernels for this GPU, the first time only"
#define PROGRESS_AFTER_NS RF_MS(500) /* what takes less needs no progress */
#define PROGRESS_EVERY_NS RF_MS(100)
/* Submissions of other threads are held up at most this long, once, while work that is running ends. */
#define GATE_HOLD_NS RF_MS(1000)

/* One load of several codes. */
struct load {
    struct rf_device *device;
    struct rf_code **codes;
    size_t count;
    _Atomic size_t done;
    struct failure {
        rf_status status;
        struct rf_saved_error error;
    } *failures;                  /* one per code */
    void **texts;                 /* the unpacked PTX of each code; codes of one image share it */
    int64_t started_ns, shown_ns; /* shown_ns: when progress was shown last; 0: not yet */
    size_t shown_done;
    pthread_t thread;
};

/* ---- preparing: unpacking and compiling ---- */

static rf_status compile(struct rf_device *device, struct rf_code *code, const char *text) {
    char log[1024] = "";
    int options[] = {ERROR_LOG, ERROR_LOG_BYTES};
    void *values[] = {log, (void *)(uintptr_t)(sizeof log - 1)}, *library = NULL;
    int result = device->driver->library_load(&library, text, options, values, 2, NULL, NULL, 0);
    rf_status status = rf_device_result(device, result, "library_load", code->entry);
    log[strcspn(log, "\n")] = 0;
    if (status && log[0]) rf_fail_within(status, "%s", log);
    if (!status) code->library = library;
    return status;
}

/* Codes of one image follow each other. */
static bool shares_text(const struct load *load, size_t index) {
    return index && load->codes[index]->image == load->codes[index - 1]->image;
}

static rf_status unpack_texts(struct load *load) {
    rf_status status = RF_OK;
    for (size_t i = 0; i < load->count && !status; i++) {
        if (!load->codes[i]->entry) continue;
        if (shares_text(load, i))
            load->texts[i] = load->texts[i - 1];
        else
            status = rf_image_unpack(load->codes[i]->image, &load->texts[i]);
    }
    return status;
}

static void free_texts(struct load *load) {
    for (size_t i = 0; i < load->count && load->texts; i++)
        if (!shares_text(load, i)) free(load->texts[i]);
    free(load->texts);
}

static rf_status prepare(struct load *load, size_t index) {
    struct rf_code *code = load->codes[index];
    if (code->library) return RF_OK; /* compiled by an earlier attempt, which could not load it */
    if (!code->entry) {
        code->bytes = code->image->bytes;
        return rf_image_unpack(code->image, &code->data);
    }
    char *cut;
    size_t bytes;
    rf_status status = rf_ptx_cut(load->texts[index], code->entry, &cut, &bytes);
    if (status) return status;
    code->bytes = bytes;
    if (rf_driver_has_libraries(load->device->driver)) {
        code->bytes = bytes / 2; /* about what the compiled code takes */
        status = compile(load->device, code, cut);
        free(cut);
    } else {
        code->data = cut;
    }
    return status;
}

static void show_progress(struct load *load, size_t done) {
    struct rf_runtime *runtime = load->device->runtime;
    int64_t now = rf_now_ns();
    if (!runtime->progress || !pthread_equal(load->thread, pthread_self())) return;
    if (now - load->started_ns < PROGRESS_AFTER_NS || now - load->shown_ns < PROGRESS_EVERY_NS) return;
    load->shown_ns = now;
    load->shown_done = done;
    runtime->progress(runtime->progress_user, COMPILING, done, load->count);
}

static void prepare_range(void *user, size_t begin, size_t end, unsigned thread) {
    struct load *load = user;
    struct rf_device *device = load->device;
    struct rf_entered entered;
    (void)thread;
    rf_status entering =
        rf_device_result(device, rf_context_enter(device->driver, &device->context, &entered), "context_enter", NULL);
    for (size_t i = begin; i < end; i++) {
        struct failure *failure = &load->failures[i];
        failure->status = entering ? entering : prepare(load, i);
        if (failure->status) rf_error_save(&failure->error);
        atomic_fetch_add(&device->prepared, 1);
        show_progress(load, atomic_fetch_add(&load->done, 1) + 1);
    }
    if (!entering) rf_context_leave(device->driver, &entered);
}

static rf_status prepare_all(struct load *load) {
    struct rf_runtime *runtime = load->device->runtime;
    struct rf_thread_pool *pool = NULL;
    unsigned threads = (unsigned)RF_MIN(rf_runtime_thread_count(runtime, 0), load->count);
    bool compiles = false;
    for (size_t i = 0; i < load->count; i++) compiles = compiles || load->codes[i]->entry;
    rf_status status = unpack_texts(load);
    if (status) return status;
    load->started_ns = rf_now_ns();
    load->thread = pthread_self();
    if (compiles && threads > 1 && !rf_runtime_threads(runtime, threads, &pool))
        rf_thread_pool_run(pool, threads, load->count, 1, prepare_range, load);
    else
        prepare_range(load, 0, load->count, 0); /* also if no thread can be started */
    if (load->shown_ns && load->shown_done < load->count)
        runtime->progress(runtime->progress_user, COMPILING, load->count, load->count);
    for (size_t i = 0; i < load->count; i++) {
        if (!load->failures[i].status) continue;
        rf_error_restore(&load->failures[i].error);
        return load->failures[i].status;
    }
    return RF_OK;
}

/* ---- loading ---- */

/* Looks a function up and reads what the driver says about it. */
static rf_status read_function(struct rf_kernel *kernel, void *module) {
    struct rf_device *device = kernel->device;
    const struct rf_driver *driver = device->driver;
    void **function = &kernel->loaded.function;
    int code = driver->module_function(function, module, kernel->name);
    rf_status status = rf_device_result(device, code, "module_function", kernel->name);
    if (status) return rf_fail_within(status, "kernel '%s'", kernel->name);
    struct {
        int attribute;
        uint32_t *value;
    } wanted[] = {{RF_FUNC_MAX_THREADS, &kernel->loaded.max_threads},
                  {RF_FUNC_SHARED_BYTES, &kernel->loaded.shared_bytes},
                  {RF_FUNC_LOCAL_BYTES, &kernel->loaded.local_bytes},
                  {RF_FUNC_REGISTERS, &kernel->loaded.registers}};
    for (size_t i = 0; i < RF_COUNT(wanted); i++) {
        int value = 0;
        code = driver->function_attribute(&value, wanted[i].attribute, *function);
        status = rf_device_result(device, code, "function_attribute", kernel->name);
        if (status) return status;
        *wanted[i].value = value > 0 ? (uint32_t)value : 0;
    }
    if (driver->function_load) {
        status = rf_device_result(device, driver->function_load(*function), "function_load", kernel->name);
        if (status) return status;
    }
    if (kernel->max_threads && kernel->max_threads < kernel->loaded.max_threads)
        kernel->loaded.max_threads = kernel->max_threads;
    if (driver->function_set_attribute && device->limits.shared_optin > device->limits.shared) {
        int most = device->limits.shared_optin - (int)kernel->loaded.shared_bytes;
        code = driver->function_set_attribute(*function, MAX_DYNAMIC_SHARED, most);
        status = rf_device_result(device, code, "function_set_attribute", kernel->name);
    }
    return status;
}

/* Loads code whose data is prepared. On failure nothing of it is loaded. */
static rf_status load_code(struct rf_device *device, struct rf_code *code) {
    size_t index = (size_t)(code - device->codes);
    const char *what = code->entry ? code->entry : code->image ? code->image->module : "a kernel image";
    void *module = NULL;
    const struct rf_driver *driver = device->driver;
    int result =
        code->library ? driver->library_module(&module, code->library) : driver->module_load(&module, code->data);
    rf_status status = rf_device_result(device, result, "module_load", what);
    bool loaded = !status;
    for (size_t i = 0; i < device->kernel_count && !status; i++)
        if (device->kernels[i].code == index) status = read_function(&device->kernels[i], module);
    if (!status) {
        code->handle = module;
        for (size_t i = 0; i < device->kernel_count; i++) {
            struct rf_kernel *kernel = &device->kernels[i];
            if (kernel->code == index)
                atomic_store_explicit(&kernel->function, kernel->loaded.function, memory_order_release);
        }
    } else if (loaded && !code->library && !rf_device_is_lost(device)) {
        struct rf_saved_error saved;
        rf_error_save(&saved);
        rf_device_result(device, device->driver->module_unload(module), "module_unload", NULL);
        rf_error_restore(&saved);
    }
    return status;
}

rf_status rf_code_load_image(struct rf_device *device, struct rf_code *code, const void *data, size_t bytes) {
    code->bytes = bytes;
    code->data = malloc(bytes);
    if (!code->data) return rf_fail(RF_E_NO_MEMORY, "no host memory for a kernel image of %zu bytes", bytes);
    memcpy(code->data, data, bytes);
    return load_code(device, code);
}

/* Not at a quiet moment: to make room, the pool may need one of its own. */
static rf_status make_room(struct load *load) {
    struct rf_device *device = load->device;
    rf_status status = RF_OK;
    uint64_t expected = 0;
    for (size_t i = 0; i < load->count; i++) expected += load->codes[i]->bytes;
    pthread_mutex_lock(&device->memory_mutex);
    if (expected > device->kernel_room_bytes)
        status = rf_driver_make_room(device, expected - device->kernel_room_bytes);
    pthread_mutex_unlock(&device->memory_mutex);
    return status ? rf_fail_within(status, "kernels") : RF_OK;
}

/* Called at a quiet moment with memory_mutex held. */
static rf_status load_and_charge(struct load *load) {
    struct rf_device *device = load->device;
    struct rf_driver_usage before, after;
    rf_status status = rf_driver_usage(device, &before);
    for (size_t i = 0; i < load->count && !status; i++) status = load_code(device, load->codes[i]);
    if (rf_device_is_lost(device) || rf_driver_usage(device, &after)) return status;
    uint64_t took = rf_driver_growth(before, after), kept = RF_MIN(took, device->kernel_room_bytes);
    device->kernel_room_bytes -= kept;
    rf_driver_charge(device, took - kept);
    return status ? status : rf_driver_check_budget(device, took, "kernels");
}

static void forget(struct rf_code *code) {
    if (code->handle) return;
    free(code->data);
    code->data = NULL;
}

/* Waits until no other thread loads. Each code that the other thread prepares begins the default deadline anew. */
static rf_status take_turn(struct rf_device *device) {
    uint64_t seen = atomic_load(&device->prepared);
    int64_t deadline_ns = rf_device_deadline(device, RF_TIMEOUT_DEFAULT);
    struct rf_backoff backoff;
    rf_status status = RF_OK;
    rf_backoff_begin(&backoff);
    for (bool loading = false; !atomic_compare_exchange_strong(&device->loading, &loading, true); loading = false) {
        uint64_t now = atomic_load(&device->prepared);
        if (now != seen) deadline_ns = rf_device_deadline(device, RF_TIMEOUT_DEFAULT);
        seen = now;
        if (!rf_backoff_step(&backoff, deadline_ns)) {
            status = rf_fail(RF_E_TIMEOUT, "another thread is loading kernels and did not get on until the deadline");
            break;
        }
    }
    rf_backoff_end(&backoff);
    return status;
}

static rf_status load_list(struct load *load) {
    struct rf_device *device = load->device;
    rf_status status = prepare_all(load);
    if (!status) status = make_room(load);
    if (!status) {
        int64_t deadline_ns = rf_device_deadline(device, RF_TIMEOUT_DEFAULT);
        status = rf_quiet_enter_with_memory(device, GATE_HOLD_NS, deadline_ns);
        if (status) return rf_fail_within(status, "kernels cannot be loaded now");
        status = load_and_charge(load);
        rf_quiet_leave(device);
        pthread_mutex_unlock(&device->memory_mutex);
    }
    return status;
}

rf_status rf_kernels_load_wanted(struct rf_device *device) {
    struct load load = {.device = device};
    rf_status status = take_turn(device);
    if (status) return status;
    load.codes = calloc(device->code_count + 1, sizeof *load.codes);
    for (size_t i = 0; i < device->code_count && load.codes; i++) {
        struct rf_code *code = &device->codes[i];
        if (atomic_exchange(&code->wanted, false) && !code->handle) load.codes[load.count++] = code;
    }
    load.failures = load.count ? calloc(load.count, sizeof *load.failures) : NULL;
    load.texts = load.count ? calloc(load.count, sizeof *load.texts) : NULL;
    if (!load.codes || (load.count && (!load.failures || !load.texts)))
        status = rf_fail(RF_E_NO_MEMORY, "no host memory to load kernels");
    else if (load.count)
        status = load_list(&load);
    for (size_t i = 0; i < load.count; i++) forget(load.codes[i]);
    free_texts(&load);
    free(load.failures);
    free(load.codes);
    atomic_store(&device->loading, false);
    return status;
}

rf_status rf_kernel_load(const struct rf_kernel *kernel) {
    if (rf_kernel_is_loaded(kernel)) return RF_OK;
    struct rf_device *device = kernel->device;
    atomic_store(&device->codes[kernel->code].wanted, true);
    rf_status status = rf_kernels_load_wanted(device);
    /* Another thread may have taken it off the list and failed for a reason of its own: try once more. */
    if (!status && !rf_kernel_is_loaded(kernel)) {
        atomic_store(&device->codes[kernel->code].wanted, true);
        status = rf_kernels_load_wanted(device);
    }
    rf_assert(status || rf_kernel_is_loaded(kernel));
    return status;
}

void rf_kernels_close(struct rf_device *device) {
    for (size_t i = device->code_count; i--;) {
        struct rf_code *code = &device->codes[i];
        if (code->library && !rf_device_is_lost(device))
            rf_device_result(device, device->driver->library_unload(code->library), "library_unload", NULL);
        else if (code->handle && !rf_device_is_lost(device))
            rf_device_result(device, device->driver->module_unload(code->handle), "module_unload", NULL);
        code->handle = code->library = NULL;
        forget(code);
    }
    for (size_t i = 0; i < device->kernel_count; i++) free(device->kernels[i].arg_bytes);
    free(device->codes);
    free(device->kernels);
    device->codes = NULL;
    device->kernels = NULL;
    device->code_count = device->kernel_count = 0;
}
