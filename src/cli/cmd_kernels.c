/* rocmforge kernels: the kernels that are built into the library, and their code as files.
 *
 * Needs no GPU and calls no driver: everything comes from the tables of the library. Only --device asks a driver, in
 * a worker process, what it made of the kernels. */
#include "cli.h"
#include "base/json.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

static int show_table(void);
static int show_json(void);
static int extract(const char *target, const char *folder);
static int ask_device(const char *which);
static int ask_in_worker(const char *which);

int cmd_kernels(int argc, char **argv) {
    bool json = false;
    const char *target = NULL, *device = NULL, *asked = NULL;
    const struct cli_option options[] = {
        {0, "json", CLI_FLAG, &json, NULL, "write JSON to standard output"},
        {0, "extract", CLI_TEXT, &target, "ARCH", "write the code for ARCH and a manifest.json into DIR"},
        {0, "device", CLI_TEXT, &device, "D",
         "show what the driver of this GPU made of them: auto, an index, part of a name"},
        {0, "ask-device", CLI_TEXT, &asked, "D", NULL},
    };
    const struct cli_command command = {
        .name = "kernels",
        .usage = "[--json] [--extract ARCH DIR] [--device D]",
        .summary = "Lists the GPU kernels in this build: their targets, arguments, registers and memory. The\n"
                   "registers of PTX kernels are known only to the driver that compiles them and are shown as -;\n"
                   "--device asks the driver.\n",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
        .positional_max = 1,
    };
    int count, code = cli_parse(&command, argc, argv, &count);
    if (code != CLI_GO_ON) return code;
    if (target && json) return cli_fail(CLI_USAGE, "kernels: --json and --extract cannot be combined");
    if (target && count != 1) return cli_fail(CLI_USAGE, "kernels: --extract %s needs a folder to write to", target);
    if (!target && count) return cli_fail(CLI_USAGE, "kernels: unexpected argument \"%s\"", argv[1]);
    if (device && (target || json))
        return cli_fail(CLI_USAGE, "kernels: --device cannot be combined with other options");
    if (asked) return ask_device(asked);
    if (device) return ask_in_worker(device);
    if (target) return extract(target, argv[1]);
    return json ? show_json() : show_table();
}

/* "-" if the number is not known before the driver compiles the kernel. */
static const char *number(int32_t value, char text[16]) {
    if (value < 0) return "-";
    snprintf(text, 16, "%d", (int)value);
    return text;
}

static int show_table(void) {
    printf("%-20s %-10s %-8s %5s %8s %7s %6s %6s %8s %7s\n", "kernel", "module", "target", "args", "threads",
           "shared", "vregs", "sregs", "scratch", "spills");
    for (size_t i = 0; i < rf_builtin_kernel_count(); i++) {
        const struct rf_builtin_kernel *k = rf_builtin_kernel_at(i);
        char vregs[16], sregs[16], scratch[16], spills[16];
        printf("%-20s %-10s %-8s %5zu %8u %7u %6s %6s %8s %7s\n", k->name, k->module, k->target, k->arg_count,
               k->max_threads, k->shared_bytes, number(k->vector_registers, vregs),
               number(k->scalar_registers, sregs), number(k->scratch_bytes, scratch), number(k->spills, spills));
    }
    return CLI_DONE;
}

/* A number, or null if it is not known. */
static void json_known(struct rf_json *json, const char *key, int32_t value) {
    if (value < 0) {
        rf_json_null(json, key);
    } else {
        rf_json_int(json, key, value);
    }
}

/* file: NULL outside a manifest. */
static void json_kernel(struct rf_json *json, const struct rf_builtin_kernel *k, const char *file) {
    rf_json_open_object(json, NULL);
    rf_json_text(json, "kernel", k->name);
    rf_json_text(json, "module", k->module);
    rf_json_text(json, "target", k->target);
    if (file) rf_json_text(json, "file", file);
    rf_json_open_array(json, "arguments");
    for (size_t i = 0; i < k->arg_count; i++) {
        rf_json_open_object(json, NULL);
        rf_json_uint(json, "bytes", k->arg_bytes[i]);
        rf_json_close(json);
    }
    rf_json_close(json);
    rf_json_uint(json, "max_threads", k->max_threads);
    rf_json_uint(json, "shared_bytes", k->shared_bytes);
    json_known(json, "vector_registers", k->vector_registers);
    json_known(json, "scalar_registers", k->scalar_registers);
    json_known(json, "scratch_bytes", k->scratch_bytes);
    json_known(json, "spills", k->spills);
    rf_json_close(json);
}

static int show_json(void) {
    struct rf_json json;
    rf_json_begin_file(&json, stdout, RF_JSON_LINES);
    rf_json_open_object(&json, NULL);
    rf_json_open_array(&json, "images");
    for (size_t i = 0; i < rf_builtin_image_count(); i++) {
        const struct rf_builtin_image *image = rf_builtin_image_at(i);
        if (!image) return cli_fail_status(RF_E_NO_MEMORY, "kernels");
        rf_json_open_object(&json, NULL);
        rf_json_text(&json, "module", image->module);
        rf_json_text(&json, "target", image->target);
        rf_json_uint(&json, "bytes", image->bytes);
        rf_json_close(&json);
    }
    rf_json_close(&json);
    rf_json_open_array(&json, "kernels");
    for (size_t i = 0; i < rf_builtin_kernel_count(); i++) json_kernel(&json, rf_builtin_kernel_at(i), NULL);
    rf_json_close(&json);
    rf_json_end(&json);
    return CLI_DONE;
}

/* ---- extracting ---- */

static bool is_ptx(const char *target) {
    return strncmp(target, "sm_", 3) == 0;
}

static void blob_name(const char *module, const char *target, char *name, size_t size) {
    snprintf(name, size, "%s.%s.%s", module, target, is_ptx(target) ? "ptx" : "hsaco");
}

static int write_file(const char *folder, const char *name, const void *data, size_t bytes) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return cli_fail(CLI_FAILED, "%s/%s: the path is too long", folder, name);
    FILE *file = fopen(path, "wb");
    if (!file) return cli_fail(CLI_FAILED, "%s: %s", path, strerror(errno));
    bool written = fwrite(data, 1, bytes, file) == bytes;
    if (fclose(file) != 0 || !written)
        return cli_fail(CLI_FAILED, "%s: could not be written: %s", path, strerror(errno));
    return CLI_DONE;
}

static int write_manifest(const char *target, const char *folder) {
    char path[PATH_MAX], file[256];
    struct rf_json json;
    if (snprintf(path, sizeof path, "%s/manifest.json", folder) >= (int)sizeof path)
        return cli_fail(CLI_FAILED, "%s: the path is too long", folder);
    FILE *to = fopen(path, "w");
    if (!to) return cli_fail(CLI_FAILED, "%s: %s", path, strerror(errno));
    rf_json_begin_file(&json, to, RF_JSON_LINES);
    rf_json_open_object(&json, NULL);
    rf_json_text(&json, "target", target);
    rf_json_open_array(&json, "kernels");
    for (size_t i = 0; i < rf_builtin_kernel_count(); i++) {
        const struct rf_builtin_kernel *k = rf_builtin_kernel_at(i);
        if (strcmp(k->target, target) != 0) continue;
        blob_name(k->module, k->target, file, sizeof file);
        json_kernel(&json, k, file);
    }
    rf_json_close(&json);
    rf_json_end(&json);
    bool failed = ferror(to) != 0;
    if (fclose(to) != 0 || failed) return cli_fail(CLI_FAILED, "%s: could not be written: %s", path, strerror(errno));
    return CLI_DONE;
}

/* Whether no kernel before this one has the same target. */
static bool is_first_of_target(size_t index) {
    for (size_t i = 0; i < index; i++)
        if (strcmp(rf_builtin_kernel_at(i)->target, rf_builtin_kernel_at(index)->target) == 0) return false;
    return true;
}

/* Whether no kernel before this one is of the same module and target: an image has at least one kernel. */
static bool is_first_of_image(size_t index) {
    const struct rf_builtin_kernel *kernel = rf_builtin_kernel_at(index);
    for (size_t i = 0; i < index; i++) {
        const struct rf_builtin_kernel *other = rf_builtin_kernel_at(i);
        if (strcmp(other->target, kernel->target) == 0 && strcmp(other->module, kernel->module) == 0) return false;
    }
    return true;
}

static int no_such_target(const char *target) {
    char known[512] = "";
    for (size_t i = 0; i < rf_builtin_kernel_count(); i++) {
        size_t length = strlen(known);
        if (is_first_of_target(i))
            snprintf(known + length, sizeof known - length, " %s", rf_builtin_kernel_at(i)->target);
    }
    return cli_fail(
        CLI_FAILED,
        "no kernels for \"%s\" in this build, only for%s: 'make kernels-all' in the source tree adds the rest",
        target, known);
}

static int extract(const char *target, const char *folder) {
    size_t count = 0;
    char file[256];
    for (size_t i = 0; i < rf_builtin_kernel_count(); i++)
        count += strcmp(rf_builtin_kernel_at(i)->target, target) == 0 && is_first_of_image(i);
    if (!count) return no_such_target(target);
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) return cli_fail(CLI_FAILED, "%s: %s", folder, strerror(errno));
    for (size_t i = 0; i < rf_builtin_image_count(); i++) {
        const struct rf_builtin_image *image = rf_builtin_image_at(i);
        if (!image) return cli_fail_status(RF_E_NO_MEMORY, "kernels");
        if (strcmp(image->target, target) != 0) continue;
        blob_name(image->module, target, file, sizeof file);
        /* The size of a PTX image includes the zero byte that ends it, which does not belong in a file. */
        int code = write_file(folder, file, image->data, image->bytes - is_ptx(target));
        if (code != CLI_DONE) return code;
    }
    int code = write_manifest(target, folder);
    if (code == CLI_DONE) printf("%zu modules for %s and manifest.json written to %s\n", count, target, folder);
    return code;
}

/* ---- asking a driver ---- */

static int ask_in_worker(const char *which) {
    const char *const arguments[] = {"kernels", "--ask-device", which, NULL};
    char why[CLI_WHY_BYTES];
    int code = CLI_FAILED;
    rf_status status = cli_worker_run(&(struct cli_job){.arguments = arguments}, &code, why);
    return status ? cli_fail(CLI_FAILED, "kernels: %s", why) : code;
}

/* In the worker. */
static int ask_device(const char *which) {
    struct rf_runtime *runtime = NULL;
    struct rf_device *device = NULL;
    RF_PARAMS(struct rf_runtime_params, log);
    RF_PARAMS(struct rf_device_choice, choice);
    RF_PARAMS(struct rf_device_params, params);
    RF_PARAMS(struct rf_device_info, info);
    log.log = cli_log;
    log.progress = cli_progress;
    choice.want = which;
    cli_at(CLI_LOADS, "opening the device");
    rf_status status = rf_runtime_create(&log, &runtime);
    if (!status) status = rf_device_choose(runtime, &choice, &params.index);
    if (!status) status = rf_device_open_checked(runtime, &params, &device);
    cli_at(CLI_LOADS, "loading the kernels");
    if (!status) status = rf_device_load_kernels(device, NULL);
    if (!status) status = rf_device_get_info(device, &info);
    if (!status) {
        fprintf(cli_out(), "%s, %s, %s\n", info.name, info.arch, info.driver);
        fprintf(cli_out(), "%-24s %-12s %-8s %8s %9s %6s %7s\n", "kernel", "module", "target", "threads", "registers",
                "local", "shared");
    }
    for (size_t i = 0; i < rf_builtin_kernel_count() && !status; i++) {
        const struct rf_builtin_kernel *row = rf_builtin_kernel_at(i);
        const struct rf_kernel *kernel;
        RF_PARAMS(struct rf_kernel_info, found);
        if (!rf_builtin_kernel_fits(row, info.arch)) continue;
        cli_at(CLI_LOADS, "asking about %s", row->name);
        status = rf_kernel_find(device, row->name, &kernel);
        if (!status) status = rf_kernel_get_info(kernel, &found);
        if (!status)
            fprintf(cli_out(), "%-24s %-12s %-8s %8u %9u %6u %7u\n", found.name, found.module, row->target,
                    found.max_threads, found.registers, found.local_bytes, found.shared_bytes);
    }
    int code = status ? cli_fail_status(status, "kernels") : CLI_DONE;
    cli_at(CLI_DEVICE_WORKS, "closing the device");
    rf_device_close(&device);
    rf_runtime_destroy(&runtime);
    return code;
}
