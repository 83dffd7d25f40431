/* rocmforge doctor: which GPUs there are, whether each is usable or why not, and the memory budget of each.
 *
 * The probe works without a GPU context. The budget needs one, so a worker process with a deadline opens each usable
 * device for a moment: a driver that crashes or hangs costs one line of the report. A machine without a GPU is not a
 * failure. */
#include "cli.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

/* What was found by opening a device. */
struct opened {
    bool known;
    uint64_t free0_bytes, budget_bytes, floor_bytes, available_bytes, driver_bytes;
    char reason[1024]; /* why it is not known */
};

struct doctor {
    struct rf_runtime *runtime;
    bool json, options, quick;
};

static int report_budget(struct rf_runtime *runtime, int64_t index);
static void show_text(const struct doctor *doctor);
static void show_json(const struct doctor *doctor);

int cmd_doctor(int argc, char **argv) {
    struct doctor doctor = {0};
    int64_t budget_of = -1;
    const struct cli_option options[] = {
        {0, "json", CLI_FLAG, &doctor.json, NULL, "write JSON, for scripts"},
        {0, "options", CLI_FLAG, &doctor.options, NULL, "also list every option with its value, default and meaning"},
        {0, "quick", CLI_FLAG, &doctor.quick, NULL, "do not open the devices; the budgets are not shown"},
        {0, "budget-of", CLI_NUMBER, &budget_of, "N", NULL}, /* for the worker */
    };
    const struct cli_command command = {
        .name = "doctor",
        .usage = "[--json] [--options] [--quick]",
        .summary = "Shows the GPUs, whether each can be used or why not, and how much of its memory would be\n"
                   "granted. A machine without a GPU is not a failure: the exit status is 0.\n",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    int count, code = cli_parse(&command, argc, argv, &count);
    if (code != CLI_GO_ON) return code;

    RF_PARAMS(struct rf_runtime_params, params);
    params.log = budget_of < 0 ? cli_log : NULL;
    rf_status status = rf_runtime_create(&params, &doctor.runtime);
    if (status != RF_OK) return cli_fail_status(status, "doctor");
    if (budget_of >= 0)
        code = report_budget(doctor.runtime, budget_of);
    else if (doctor.json)
        show_json(&doctor), code = CLI_DONE;
    else
        show_text(&doctor), code = CLI_DONE;
    rf_runtime_destroy(&doctor.runtime);
    return code;
}

/* ---- the worker and its report ---- */

static int report_budget(struct rf_runtime *runtime, int64_t index) {
    FILE *report = cli_out();
    if (!cli_is_worker()) return cli_fail(CLI_USAGE, "doctor: --budget-of is for internal use");
    cli_at(CLI_LOADS, "opening the device");
    RF_PARAMS(struct rf_device_params, params);
    RF_PARAMS(struct rf_memory_info, memory);
    params.index = index > INT32_MAX ? INT32_MAX : (int)index;
    struct rf_device *device = NULL;
    rf_status status = rf_device_open_checked(runtime, &params, &device);
    if (status == RF_OK) status = rf_device_memory_info(device, &memory);
    if (status == RF_OK)
        fprintf(report, "budget %llu %llu %llu %llu %llu\n", (unsigned long long)memory.free0_bytes,
                (unsigned long long)memory.budget_bytes, (unsigned long long)memory.floor_bytes,
                (unsigned long long)memory.available_bytes, (unsigned long long)memory.driver_bytes);
    else
        fprintf(report, "error %s (%s)\n", rf_error_text(), rf_status_name(status));
    cli_at(CLI_DEVICE_WORKS, "closing the device");
    if (device) rf_device_close(&device);
    return status == RF_OK ? CLI_DONE : CLI_FAILED;
}

static void open_by_worker(const struct doctor *doctor, int index, struct opened *opened) {
    *opened = (struct opened){0};
    if (doctor->quick) {
        snprintf(opened->reason, sizeof opened->reason, "not opened (--quick)");
        return;
    }
    char number[16], why[CLI_WHY_BYTES] = "";
    struct cli_text report = {0};
    snprintf(number, sizeof number, "%d", index);
    const char *arguments[] = {"doctor", "--budget-of", number, NULL};
    const struct cli_job job = {.arguments = arguments, .output = cli_text_keep, .user = &report};
    int exit_code = CLI_FAILED;
    rf_status status = cli_worker_run(&job, &exit_code, why);
    unsigned long long free0, budget, floor_bytes, available, driver;
    if (status != RF_OK) {
        snprintf(opened->reason, sizeof opened->reason, "%s", why);
    } else if (sscanf(report.text, "budget %llu %llu %llu %llu %llu", &free0, &budget, &floor_bytes, &available,
                      &driver) == 5) {
        *opened = (struct opened){.known = true,
                                  .free0_bytes = free0,
                                  .budget_bytes = budget,
                                  .floor_bytes = floor_bytes,
                                  .available_bytes = available,
                                  .driver_bytes = driver};
    } else if (strncmp(report.text, "error ", 6) == 0) {
        snprintf(opened->reason, sizeof opened->reason, "%.*s", (int)strcspn(report.text + 6, "\n"), report.text + 6);
    } else {
        snprintf(opened->reason, sizeof opened->reason, "the worker process ended with status %d", exit_code);
    }
}

/* ---- what is shown ---- */

/* The number of kernels that the device gets; other: those of them for another target than most (sm_90a beside
 * sm_90), and which one; NULL: none. */
static size_t kernels_for(const struct rf_device_info *info, size_t *others, const char **other) {
    size_t count = 0;
    *others = 0;
    *other = NULL;
    for (size_t i = 0; i < rf_builtin_kernel_count(); i++) {
        const struct rf_builtin_kernel *row = rf_builtin_kernel_at(i);
        if (!rf_builtin_kernel_fits(row, info->arch)) continue;
        count++;
        if (strcmp(row->target, info->kernel_target) == 0) continue;
        (*others)++;
        *other = row->target;
    }
    return count;
}

static void show_kernels_text(const struct rf_device_info *info) {
    size_t others = 0;
    const char *other = NULL;
    size_t count = kernels_for(info, &others, &other);
    if (!info->kernel_target[0]) {
        printf("  %-13s none for this GPU\n", "kernels");
        return;
    }
    printf("  %-13s %zu built for %s", "kernels", count - others, info->kernel_target);
    if (other) printf(", %zu for %s", others, other);
    putchar('\n');
}

static const char *display_text(enum rf_tristate display) {
    return display == RF_YES ? "attached: waits and launches are kept short" : display == RF_NO ? "none" : "unknown";
}

static bool show_lease_text(void *user, const struct rf_lease_info *lease) {
    bool *first = user;
    printf("  %-13s process %d was promised %s and holds %s%s\n", *first ? "leases" : "", lease->pid,
           cli_bytes(lease->promised_bytes), cli_bytes(lease->held_bytes),
           lease->part ? ", as part of another lease" : "");
    *first = false;
    return true;
}

static void show_device_text(const struct doctor *doctor, const struct rf_device_info *info) {
    printf("\nGPU %d  %s%s\n", info->index, info->name, info->simulated ? "; a test instrument, not hardware" : "");
    if (info->usable)
        printf("  %-13s yes\n", "usable");
    else
        printf("  %-13s no: %s\n", "usable", info->reason);
    printf("  %-13s %s, %d compute units, wave %d, %s\n", "architecture", info->arch, info->compute_units,
           info->wave_size, info->integrated ? "integrated: shares host memory" : "discrete");
    printf("  %-13s %s\n", "driver", info->driver);
    show_kernels_text(info);
    struct opened opened = {0};
    if (info->usable) open_by_worker(doctor, info->index, &opened);
    uint64_t free_bytes = info->free_bytes ? info->free_bytes : opened.free0_bytes;
    printf("  %-13s %s", "memory", cli_bytes(info->total_bytes));
    if (free_bytes) printf(", %s free", cli_bytes(free_bytes));
    putchar('\n');
    if (opened.known) {
        printf("  %-13s %s (%s of %s free), %s of it left after the driver's %s\n", "budget",
               cli_bytes(opened.budget_bytes), rf_runtime_option(doctor->runtime, "RF_BUDGET"),
               cli_bytes(opened.free0_bytes), cli_bytes(opened.available_bytes), cli_bytes(opened.driver_bytes));
        printf("  %-13s %s stays free for everybody else\n", "floor", cli_bytes(opened.floor_bytes));
    } else if (info->usable) {
        printf("  %-13s %s; unknown: %s\n", "budget", rf_runtime_option(doctor->runtime, "RF_BUDGET"), opened.reason);
    }
    bool first = true;
    if (rf_device_leases(doctor->runtime, info->index, show_lease_text, &first) != RF_OK)
        printf("  %-13s unknown: %s\n", "leases", rf_error_text());
    else if (first)
        printf("  %-13s none: no other process of this user holds one\n", "leases");
    printf("  %-13s %s\n", "display", display_text(info->display));
    if (info->pci[0]) printf("  %-13s %s\n", "PCI address", info->pci);
    if (info->uuid[0]) printf("  %-13s %s\n", "UUID", info->uuid);
}

/* Prints the words in indented lines of at most 100 columns. */
static void print_wrapped(int indent, const char *text) {
    int column = 0;
    for (const char *word = text; *word;) {
        int length = (int)strcspn(word, " ");
        if (column && column + 1 + length > 100) {
            putchar('\n');
            column = 0;
        }
        column += column ? printf(" %.*s", length, word) : printf("%*s%.*s", indent, "", length, word);
        word += length;
        word += strspn(word, " ");
    }
    putchar('\n');
}

static void show_text(const struct doctor *doctor) {
    bool available = rf_gpu_available(doctor->runtime);
    const char *reason = rf_gpu_reason(doctor->runtime);
    int count = rf_device_count(doctor->runtime);
    printf("ROCmForge %s\n", rf_version());
    if (!available)
        printf("No usable GPU: %s\n", reason[0] ? reason : "the driver lists none");
    else if (reason[0])
        printf("Not every GPU is usable: %s\n", reason);
    for (int i = 0; i < count; i++) {
        RF_PARAMS(struct rf_device_info, info);
        if (rf_device_info_at(doctor->runtime, i, &info) == RF_OK) show_device_text(doctor, &info);
    }
    if (!available && count == 0)
        printf("To try the GPU code on the simulated driver: RF_DRIVER=sim rocmforge doctor\n");
    if (!doctor->options) return;
    printf("\nOptions, from the environment:\n");
    for (size_t i = 0; i < rf_option_count(); i++) {
        const struct rf_option *option = rf_option_at(i);
        const char *value = rf_runtime_option(doctor->runtime, option->name);
        const char *usual = option->default_value[0] ? option->default_value : "empty";
        printf("  %-20s %s", option->name, value[0] ? value : "(empty)");
        if (strcmp(value, option->default_value) != 0) printf("  (default: %s)", usual);
        putchar('\n');
        print_wrapped(23, option->help);
    }
}

static void json_tristate(struct rf_json *json, const char *key, enum rf_tristate value) {
    if (value == RF_UNKNOWN)
        rf_json_null(json, key);
    else
        rf_json_bool(json, key, value == RF_YES);
}

static bool show_lease_json(void *user, const struct rf_lease_info *lease) {
    rf_json_open_object(user, NULL);
    rf_json_int(user, "pid", lease->pid);
    rf_json_uint(user, "promised", lease->promised_bytes);
    rf_json_uint(user, "held", lease->held_bytes);
    rf_json_bool(user, "part", lease->part);
    rf_json_close(user);
    return true;
}

static void show_device_json(const struct doctor *doctor, struct rf_json *json, const struct rf_device_info *info) {
    static const char *const vendors[] = {"", "amd", "nvidia"};
    struct opened opened = {0};
    if (info->usable) open_by_worker(doctor, info->index, &opened);
    uint64_t free_bytes = info->free_bytes ? info->free_bytes : opened.free0_bytes;
    rf_json_open_object(json, NULL);
    rf_json_int(json, "index", info->index);
    rf_json_text(json, "name", info->name);
    rf_json_text(json, "arch", info->arch);
    rf_json_text(json, "vendor", (unsigned)info->vendor < 3 ? vendors[info->vendor] : "");
    rf_json_text(json, "driver", info->driver);
    rf_json_text(json, "uuid", info->uuid);
    rf_json_text(json, "pci", info->pci);
    rf_json_bool(json, "simulated", info->simulated);
    rf_json_bool(json, "integrated", info->integrated);
    json_tristate(json, "display", info->display);
    rf_json_uint(json, "total", info->total_bytes);
    if (free_bytes)
        rf_json_uint(json, "free", free_bytes);
    else
        rf_json_null(json, "free");
    if (opened.known) {
        rf_json_uint(json, "budget", opened.budget_bytes);
        rf_json_uint(json, "floor", opened.floor_bytes);
        rf_json_uint(json, "available", opened.available_bytes);
        rf_json_uint(json, "driver_bytes", opened.driver_bytes);
    } else {
        rf_json_null(json, "budget");
        rf_json_null(json, "floor");
        rf_json_null(json, "available");
        rf_json_null(json, "driver_bytes");
    }
    rf_json_text(json, "budget_spec", rf_runtime_option(doctor->runtime, "RF_BUDGET"));
    rf_json_text(json, "budget_reason", opened.reason);
    rf_json_open_array(json, "leases");
    rf_device_leases(doctor->runtime, info->index, show_lease_json, json);
    rf_json_close(json);
    rf_json_int(json, "wave_size", info->wave_size);
    rf_json_int(json, "compute_units", info->compute_units);
    rf_json_int(json, "max_threads_per_block", info->max_threads_per_block);
    rf_json_int(json, "max_shared_bytes_per_block", info->max_shared_bytes_per_block);
    rf_json_uint(json, "granularity", info->granularity_bytes);
    rf_json_bool(json, "usable", info->usable);
    rf_json_text(json, "reason", info->reason);
    size_t others = 0;
    const char *other = NULL;
    size_t kernels = kernels_for(info, &others, &other);
    rf_json_text(json, "kernel_target", info->kernel_target);
    rf_json_uint(json, "kernels", info->kernel_target[0] ? kernels : 0);
    rf_json_text(json, "kernel_target_beside", other ? other : "");
    rf_json_close(json);
}

static void show_json(const struct doctor *doctor) {
    struct rf_json json;
    rf_json_begin_file(&json, stdout, RF_JSON_LINES);
    rf_json_open_object(&json, NULL);
    rf_json_text(&json, "version", rf_version());
    rf_json_bool(&json, "gpu_available", rf_gpu_available(doctor->runtime));
    rf_json_text(&json, "reason", rf_gpu_reason(doctor->runtime));
    rf_json_open_array(&json, "devices");
    for (int i = 0; i < rf_device_count(doctor->runtime); i++) {
        RF_PARAMS(struct rf_device_info, info);
        if (rf_device_info_at(doctor->runtime, i, &info) == RF_OK) show_device_json(doctor, &json, &info);
    }
    rf_json_close(&json);
    if (doctor->options) {
        rf_json_open_array(&json, "options");
        for (size_t i = 0; i < rf_option_count(); i++) {
            const struct rf_option *option = rf_option_at(i);
            rf_json_open_object(&json, NULL);
            rf_json_text(&json, "name", option->name);
            rf_json_text(&json, "value", rf_runtime_option(doctor->runtime, option->name));
            rf_json_text(&json, "default", option->default_value);
            rf_json_text(&json, "help", option->help);
            rf_json_close(&json);
        }
        rf_json_close(&json);
    }
    rf_json_end(&json);
}
