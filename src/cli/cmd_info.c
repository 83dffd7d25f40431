/* rocmforge info: what is in a model file, how much memory it needs, and how it would be placed.
 *
 * Loads no weights. On a machine with a GPU a worker process finds the placement that the present budget gives; if
 * the worker dies or fails, the rest is still shown. */
#include "model.h"
#include "placement.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

#include <rocmforge/model.h>

#define JSON_ELEMENTS 8 /* of an array; the rest is left out, but its count is given */
#define KV_TOKENS 1024

/* How the model would be placed. */
struct plan {
    rf_status status; /* not RF_OK: 'why' says what failed */
    char why[1024];
    struct rf_engine_info info; /* its texts are kept here: */
    char device[160], notice[640];
};
static void find_plan(const struct model_options *options, struct plan *plan);
static int report_plan(const struct model_options *options);

static int show_text(const struct rf_gguf *gguf, const struct plan *plan, bool all);
static int show_json(const struct rf_gguf *gguf, const struct plan *plan, bool all);

/* As cli_exit_code, but a file that is not found is a failure. The error may come from the worker. */
static int plan_code(rf_status status) {
    if (status == RF_E_SYNTAX) return CLI_USAGE;
    return status == RF_E_NO_DEVICE || status == RF_E_NO_DRIVER ? CLI_ABSENT : CLI_FAILED;
}

int cmd_info(int argc, char **argv) {
    bool json = false, brief = false;
    struct model_options model = MODEL_DEFAULTS("f16");
    const struct cli_option options[] = {
        {0, "json", CLI_FLAG, &json, NULL, "write JSON to standard output"},
        {0, "brief", CLI_FLAG, &brief, NULL, "leave out the list of tensors"},
        {0, "device", CLI_TEXT, &model.device, "D",
         "plan for this device: auto, cpu, gpu, an index or part of a name"},
        {0, "budget", CLI_TEXT, &model.budget, "SPEC", "plan with this limit on GPU memory (default: RF_BUDGET)"},
        {0, "host-budget", CLI_TEXT, &model.host_budget, "SPEC",
         "plan with this limit on host memory (default: RF_HOST_BUDGET)"},
        {0, "ctx", CLI_NUMBER, &model.context, "N", "plan for a context of N tokens"},
        {0, "kv", CLI_TEXT, &model.kv, "TYPE", "plan for a KV cache of f16, f32 or q8_0"},
        {0, "in-worker", CLI_FLAG, &model.in_worker, NULL, NULL}, /* for the worker */
    };
    const struct cli_command command = {
        .name = "info",
        .usage = "FILE.gguf [--json] [--brief] [--device D] [--budget SPEC] [--ctx N] [--kv TYPE]",
        .summary =
            "Shows what is in a model file: metadata, tensors, parameters, the memory that its parts need, and\n"
            "how the present budget would place them. If a model has several files\n"
            "(NAME-00001-of-00003.gguf ...), name any of them; the others are found next to it.\n",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
        .positional_max = 1,
    };
    int count, code = cli_parse(&command, argc, argv, &count);
    if (code != CLI_GO_ON) return code;
    if (count != 1) return cli_fail(CLI_USAGE, "info: name a model file: see rocmforge info --help");
    model.model = argv[1];
    model.plan_only = true;
    code = model_check("info", &model);
    if (code != CLI_GO_ON) return code;
    if (model.in_worker) return report_plan(&model);
    struct rf_runtime *runtime = NULL;
    rf_status status = rf_runtime_create(NULL, &runtime);
    if (status) return cli_fail_status(status, "info"); /* a malformed option, such as RF_BUDGET */
    rf_runtime_destroy(&runtime);
    struct rf_gguf *gguf = NULL;
    status = rf_gguf_open(argv[1], &gguf);
    /* A file that is malformed or missing is a failure, not wrong usage. */
    if (status) return cli_fail(CLI_FAILED, "info: %s (%s)", rf_error_text(), rf_status_name(status));
    struct plan plan = {.info = {.struct_size = sizeof plan.info}};
    find_plan(&model, &plan);
    /* A placement that was asked for and is not possible is an error; otherwise the file is still shown. */
    bool asked = model.budget || model.host_budget || model.context || strcmp(model.device, "auto");
    if (plan.status && asked)
        code = cli_fail(plan_code(plan.status), "info: %s (%s)", plan.why, rf_status_name(plan.status));
    else
        code = json ? show_json(gguf, &plan, !brief) : show_text(gguf, &plan, !brief);
    rf_gguf_close(&gguf);
    return code;
}

/* ---- the placement ---- */

static void plan_locally(const struct model_options *options, struct plan *plan) {
    struct rf_runtime *runtime = NULL;
    struct rf_engine *engine = NULL;
    plan->status = model_open(options, &runtime, &engine);
    if (!plan->status) plan->status = rf_engine_get_info(engine, &plan->info);
    if (plan->status) {
        snprintf(plan->why, sizeof plan->why, "%s", rf_error_text());
    } else {
        snprintf(plan->device, sizeof plan->device, "%s", plan->info.device);
        snprintf(plan->notice, sizeof plan->notice, "%s", rf_engine_notice(engine));
        plan->info.device = plan->device;
        plan->info.architecture = plan->info.name = plan->info.chat_template = "";
    }
    if (engine) model_close(&runtime, &engine);
}

/* The figures that the worker sends, in order: taken out of a plan, or put into one. */
#define PLAN_FIGURES 16
static void take_figures(struct plan *plan, unsigned long long figures[PLAN_FIGURES], bool into_plan) {
    struct rf_engine_info *info = &plan->info;
    uint32_t *small[] = {&info->layers, &info->device_layers, &info->context, &info->trained_context};
    uint64_t *large[] = {&info->device_weight_bytes, &info->host_weight_bytes,    &info->device_kv_bytes,
                         &info->host_kv_bytes,       &info->budget_bytes,         &info->driver_bytes,
                         &info->scratch_bytes,       &info->spilled_weight_bytes, &info->host_budget_bytes,
                         &info->host_used_bytes};
    size_t at = 0;
    for (size_t i = 0; i < sizeof small / sizeof small[0]; i++, at++)
        if (into_plan)
            *small[i] = (uint32_t)figures[at];
        else
            figures[at] = *small[i];
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++, at++)
        if (into_plan)
            *large[i] = figures[at];
        else
            figures[at] = *large[i];
    if (into_plan) {
        info->kv = (enum rf_kv_type)figures[at];
        info->degraded = figures[at + 1] != 0;
    } else {
        figures[at] = info->kv;
        figures[at + 1] = info->degraded;
    }
}

/* In the worker. Writes "plan FIGURES", the device and the notice, one line each; or "error NUMBER TEXT". */
static int report_plan(const struct model_options *options) {
    if (!cli_is_worker()) return cli_fail(CLI_USAGE, "info: --in-worker is for internal use");
    FILE *report = cli_out();
    struct plan plan = {.info = {.struct_size = sizeof plan.info}};
    unsigned long long figures[PLAN_FIGURES];
    plan_locally(options, &plan);
    if (plan.status) {
        fprintf(report, "error %d %s\n", (int)plan.status, plan.why);
    } else {
        take_figures(&plan, figures, false);
        fputs("plan", report);
        for (size_t i = 0; i < PLAN_FIGURES; i++) fprintf(report, " %llu", figures[i]);
        fprintf(report, "\n%s\n%s\n", plan.device, plan.notice);
    }
    return plan.status ? CLI_FAILED : CLI_DONE;
}

/* Copies one line of a report; returns where the next one begins. */
static char *take_line(char *at, char *text, size_t size) {
    size_t length = strcspn(at, "\n");
    snprintf(text, size, "%.*s", (int)length, at);
    return at + length + (at[length] == '\n');
}

static void read_report(char *report, struct plan *plan) {
    unsigned long long figures[PLAN_FIGURES];
    char *at = report + strlen("plan");
    plan->status = RF_E_IO;
    snprintf(plan->why, sizeof plan->why, "the worker process sent no plan");
    if (!strncmp(report, "error ", 6)) {
        long status = strtol(report + 6, &at, 10);
        plan->status = status > 0 && status < RF_STATUS_COUNT ? (rf_status)status : RF_E_IO;
        take_line(at + (*at == ' '), plan->why, sizeof plan->why);
    }
    if (strncmp(report, "plan ", 5)) return;
    for (size_t i = 0; i < PLAN_FIGURES; i++) figures[i] = strtoull(at, &at, 10);
    if (*at != '\n') return;
    at = take_line(at + 1, plan->device, sizeof plan->device);
    take_line(at, plan->notice, sizeof plan->notice);
    take_figures(plan, figures, true);
    plan->info.device = plan->device;
    plan->status = RF_OK;
}

static void find_plan(const struct model_options *options, struct plan *plan) {
    struct rf_runtime *runtime = NULL;
    bool gpu = model_wants_worker(options) && !rf_runtime_create(NULL, &runtime) && rf_gpu_available(runtime);
    rf_runtime_destroy(&runtime);
    if (!gpu) {
        plan_locally(options, plan);
        return;
    }
    char why[CLI_WHY_BYTES], context[32];
    struct cli_text report = {0};
    snprintf(context, sizeof context, "%lld", (long long)options->context);
    const char *arguments[16] = {"info", "--in-worker", "--device", options->device,
                                 "--kv", options->kv,   "--ctx",    context};
    size_t count = 8;
    if (options->budget) {
        arguments[count++] = "--budget";
        arguments[count++] = options->budget;
    }
    if (options->host_budget) {
        arguments[count++] = "--host-budget";
        arguments[count++] = options->host_budget;
    }
    arguments[count++] = "--";
    arguments[count++] = options->model;
    const struct cli_job job = {.arguments = arguments, .output = cli_text_keep, .user = &report};
    int exit_code;
    rf_status status = cli_worker_run(&job, &exit_code, why);
    if (status) {
        plan->status = status;
        snprintf(plan->why, sizeof plan->why, "%s", why);
        return;
    }
    read_report(report.text, plan);
}

/* ---- as text ---- */

/* "1.24 billion" */
static const char *people_count(uint64_t count, char text[32]) {
    static const struct {
        double one;
        const char *name;
    } units[] = {{1e12, " trillion"}, {1e9, " billion"}, {1e6, " million"}};
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if ((double)count >= units[i].one) {
            snprintf(text, 32, "%.2f%s", (double)count / units[i].one, units[i].name);
            return text;
        }
    snprintf(text, 32, "%llu", (unsigned long long)count);
    return text;
}

static void show_metadata(const struct rf_gguf *gguf, uint64_t count) {
    RF_PARAMS(struct rf_gguf_metadata, value);
    printf("\nMetadata\n");
    for (uint64_t i = 0; i < count; i++) {
        if (rf_gguf_metadata_at(gguf, i, &value)) continue;
        if (value.type == RF_GGUF_ARRAY)
            printf("  %-40s %s (%llu): %s\n", value.key, value.type_name, (unsigned long long)value.element_count,
                   value.shown);
        else
            printf("  %-40s %s: %s\n", value.key, value.type_name, value.shown);
    }
}

static void show_tensors(const struct rf_gguf *gguf, uint64_t count) {
    RF_PARAMS(struct rf_gguf_tensor_info, tensor);
    printf("\nTensors (rows first, the last dimension is contiguous)\n");
    for (uint64_t i = 0; i < count; i++) {
        if (rf_gguf_tensor_info_at(gguf, i, &tensor)) continue;
        char shape[128] = "";
        for (int d = 0; d < tensor.rank; d++) {
            size_t used = strlen(shape);
            snprintf(shape + used, sizeof shape - used, "%s%llu", d ? " x " : "",
                     (unsigned long long)tensor.shape[d]);
        }
        printf("  %-36s %-7s %-20s %12s\n", tensor.name, rf_dtype_name(tensor.dtype), shape, cli_bytes(tensor.bytes));
    }
}

/* Layers that need the same memory are shown as one range. */
struct part_rows {
    struct rf_model_part first, last; /* of a range of layers; first.struct_size 0: none */
};

static void show_part(const char *name, const struct rf_model_part *part, uint64_t times) {
    char parameters[32];
    if (times > 1)
        printf("  %-16s %12s each, %12s together, %s parameters each\n", name, cli_bytes(part->weight_bytes),
               cli_bytes(part->weight_bytes * times), people_count(part->parameter_count, parameters));
    else
        printf("  %-16s %12s, %s parameters\n", name, cli_bytes(part->weight_bytes),
               people_count(part->parameter_count, parameters));
}

static void flush_layers(struct part_rows *rows) {
    if (!rows->first.struct_size) return;
    char name[48];
    if (rows->first.layer == rows->last.layer)
        snprintf(name, sizeof name, "layer %u", rows->first.layer);
    else
        snprintf(name, sizeof name, "layers %u to %u", rows->first.layer, rows->last.layer);
    show_part(name, &rows->first, (uint64_t)rows->last.layer - rows->first.layer + 1);
    rows->first.struct_size = 0;
}

static bool add_part(void *user, const struct rf_model_part *part) {
    static const char *const names[] = {"embedding", "", "output", "other"};
    struct part_rows *rows = user;
    if (part->kind != RF_PART_LAYER) {
        flush_layers(rows);
        show_part(names[part->kind], part, 1);
        return true;
    }
    bool joins = rows->first.struct_size && part->layer == rows->last.layer + 1 &&
                 part->weight_bytes == rows->first.weight_bytes &&
                 part->parameter_count == rows->first.parameter_count;
    if (!joins) {
        flush_layers(rows);
        rows->first = *part;
    }
    rows->last = *part;
    return true;
}

static void show_needs(const struct rf_gguf *gguf, const struct rf_gguf_info *info) {
    struct part_rows rows;
    memset(&rows, 0, sizeof rows);
    printf("\nMemory\n");
    if (rf_gguf_visit_parts(gguf, add_part, &rows)) printf("  unknown: %s\n", rf_error_text());
    flush_layers(&rows);
    if (info->tied_output) printf("  %-16s uses the embedding\n", "output product");
    printf("  %-16s %12s\n", "all weights", cli_bytes(info->tensor_bytes));
    uint64_t f16, q8_0, f32;
    if (rf_gguf_kv_bytes(gguf, KV_TOKENS, RF_F16, &f16) || rf_gguf_kv_bytes(gguf, KV_TOKENS, RF_F32, &f32) ||
        rf_gguf_kv_bytes(gguf, KV_TOKENS, RF_Q8_0, &q8_0))
        printf("  %-16s unknown: %s\n", "KV cache", rf_error_text());
    else
        printf("  %-16s %12s per %d tokens in f16; %s in f32, %s in q8_0\n", "KV cache", cli_bytes(f16), KV_TOKENS,
               cli_bytes(f32), cli_bytes(q8_0));
}

static void show_plan(const struct plan *plan) {
    printf("\nPlacement\n  ");
    if (plan->status) {
        printf("unknown: %s\n", plan->why);
        return;
    }
    placement_show(stdout, &plan->info);
    if (plan->notice[0]) printf("  note: %s\n", plan->notice);
}

static int show_text(const struct rf_gguf *gguf, const struct plan *plan, bool all) {
    char parameters[32];
    RF_PARAMS(struct rf_gguf_info, info);
    rf_status status = rf_gguf_get_info(gguf, &info);
    if (status) return cli_fail_status(status, "info");
    printf("%s%s%s\n", info.name[0] ? info.name : "a model without a name", info.architecture[0] ? ", " : "",
           info.architecture);
    printf("GGUF version %u, %llu file%s, %s; %llu keys, %llu tensors, %s parameters\n", info.version,
           (unsigned long long)info.file_count, info.file_count == 1 ? "" : "s", cli_bytes(info.file_bytes),
           (unsigned long long)info.metadata_count, (unsigned long long)info.tensor_count,
           people_count(info.parameter_count, parameters));
    show_metadata(gguf, info.metadata_count);
    if (all) show_tensors(gguf, info.tensor_count);
    show_needs(gguf, &info);
    show_plan(plan);
    return CLI_DONE;
}

/* ---- as JSON ---- */

/* Text in full, because a chat template may be long; text that holds a zero byte as it is shown elsewhere. */
static void json_string(struct rf_json *json, const char *key, const struct rf_gguf_metadata *value) {
    char *text = memchr(value->text, 0, value->text_bytes) ? NULL : malloc(value->text_bytes + 1);
    if (text) {
        memcpy(text, value->text, value->text_bytes);
        text[value->text_bytes] = 0;
    }
    rf_json_text(json, key, text ? text : value->shown);
    free(text);
}

static void json_value(struct rf_json *json, const char *key, const struct rf_gguf_metadata *value) {
    switch (value->type) {
    case RF_GGUF_U8:
    case RF_GGUF_U16:
    case RF_GGUF_U32:
    case RF_GGUF_U64: rf_json_uint(json, key, value->uint_value); break;
    case RF_GGUF_I8:
    case RF_GGUF_I16:
    case RF_GGUF_I32:
    case RF_GGUF_I64: rf_json_int(json, key, value->int_value); break;
    case RF_GGUF_F32:
    case RF_GGUF_F64: rf_json_double(json, key, value->float_value); break;
    case RF_GGUF_BOOL: rf_json_bool(json, key, value->bool_value); break;
    case RF_GGUF_STRING: json_string(json, key, value); break;
    default: rf_json_text(json, key, value->shown); break;
    }
}

/* Key, type and value; for an array its count and first elements. */
static void json_metadata(struct rf_json *json, const struct rf_gguf *gguf, const struct rf_gguf_metadata *value) {
    rf_json_open_object(json, NULL);
    rf_json_text(json, "key", value->key);
    rf_json_text(json, "type", value->type_name);
    if (value->type == RF_GGUF_ARRAY) {
        rf_json_uint(json, "count", value->element_count);
        rf_json_open_array(json, "first");
        for (uint64_t i = 0; i < value->element_count && i < JSON_ELEMENTS; i++) {
            RF_PARAMS(struct rf_gguf_metadata, element);
            if (rf_gguf_metadata_element(gguf, value->key, i, &element)) break;
            json_value(json, NULL, &element);
        }
        rf_json_close(json);
    } else {
        json_value(json, "value", value);
    }
    rf_json_close(json);
}

static void json_tensor(struct rf_json *json, const struct rf_gguf_tensor_info *tensor) {
    rf_json_open_object(json, NULL);
    rf_json_text(json, "name", tensor->name);
    rf_json_text(json, "type", rf_dtype_name(tensor->dtype));
    rf_json_open_array(json, "shape");
    for (int d = 0; d < tensor->rank; d++) rf_json_uint(json, NULL, tensor->shape[d]);
    rf_json_close(json);
    rf_json_uint(json, "bytes", tensor->bytes);
    rf_json_uint(json, "file", tensor->file);
    rf_json_uint(json, "offset", tensor->offset);
    rf_json_close(json);
}

static bool json_part(void *user, const struct rf_model_part *part) {
    static const char *const names[] = {"embedding", "layer", "output", "other"};
    struct rf_json *json = user;
    rf_json_open_object(json, NULL);
    rf_json_text(json, "part", names[part->kind]);
    if (part->kind == RF_PART_LAYER) rf_json_uint(json, "layer", part->layer);
    rf_json_uint(json, "tensors", part->tensor_count);
    rf_json_uint(json, "parameters", part->parameter_count);
    rf_json_uint(json, "weight_bytes", part->weight_bytes);
    rf_json_close(json);
    return true;
}

static void json_kv(struct rf_json *json, const struct rf_gguf *gguf) {
    static const enum rf_dtype dtypes[] = {RF_F16, RF_F32, RF_Q8_0};
    rf_json_open_object(json, "kv_bytes_per_1024_tokens");
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        uint64_t bytes;
        if (rf_gguf_kv_bytes(gguf, KV_TOKENS, dtypes[i], &bytes))
            rf_json_null(json, rf_dtype_name(dtypes[i]));
        else
            rf_json_uint(json, rf_dtype_name(dtypes[i]), bytes);
    }
    rf_json_close(json);
}

static int show_json(const struct rf_gguf *gguf, const struct plan *plan, bool all) {
    RF_PARAMS(struct rf_gguf_info, info);
    rf_status status = rf_gguf_get_info(gguf, &info);
    if (status) return cli_fail_status(status, "info");
    struct rf_json json;
    rf_json_begin_file(&json, stdout, RF_JSON_LINES);
    rf_json_open_object(&json, NULL);
    rf_json_text(&json, "name", info.name[0] ? info.name : NULL);
    rf_json_text(&json, "architecture", info.architecture[0] ? info.architecture : NULL);
    rf_json_uint(&json, "version", info.version);
    rf_json_uint(&json, "files", info.file_count);
    rf_json_uint(&json, "file_bytes", info.file_bytes);
    rf_json_uint(&json, "alignment_bytes", info.alignment_bytes);
    rf_json_uint(&json, "parameters", info.parameter_count);
    rf_json_uint(&json, "weight_bytes", info.tensor_bytes);
    rf_json_bool(&json, "tied_output", info.tied_output);
    rf_json_open_array(&json, "metadata");
    RF_PARAMS(struct rf_gguf_metadata, value);
    for (uint64_t i = 0; i < info.metadata_count; i++)
        if (!rf_gguf_metadata_at(gguf, i, &value)) json_metadata(&json, gguf, &value);
    rf_json_close(&json);
    rf_json_open_array(&json, "tensors");
    RF_PARAMS(struct rf_gguf_tensor_info, tensor);
    for (uint64_t i = 0; i < info.tensor_count && all; i++)
        if (!rf_gguf_tensor_info_at(gguf, i, &tensor)) json_tensor(&json, &tensor);
    rf_json_close(&json);
    rf_json_open_array(&json, "parts");
    status = rf_gguf_visit_parts(gguf, json_part, &json);
    rf_json_close(&json);
    json_kv(&json, gguf);
    if (plan->status) {
        rf_json_null(&json, "placement");
        rf_json_text(&json, "placement_error", plan->why);
    } else {
        placement_json(&json, &plan->info, plan->notice);
    }
    rf_json_end(&json);
    return status ? cli_fail_status(status, "info") : CLI_DONE;
}
