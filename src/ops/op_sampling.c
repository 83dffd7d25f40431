/* The ops that choose a token: argmax and sample; and advance, which follows them. Tokens are exact: the tolerance of
 * every case is 0, on every backend (cpu/ref_sampling.h defines them to the bit).
 *
 * There may be gaps between rows of logits; a row has at least one logit. */
#include "ops/op_impl.h"

#include <stdlib.h>

#include "cpu/fast.h"
#include "ops/gpu_sampling.h"

static rf_status check_logits(const struct rf_op_call *call, const char *name) {
    const struct rf_op_tensor *logits = rf_op_in(call, 0), *out = rf_op_out(call, 0);
    RF_TRY(rf_need_type(logits, name, RF_F32));
    RF_TRY(rf_need_rank(logits, name, 2));
    RF_TRY(rf_need_dense_rows(logits, name));
    RF_TRY(rf_need_distinct(logits, name));
    uint64_t rows = logits->desc.shape[0], columns = logits->desc.shape[1];
    if (rows > RF_SAMPLING_ROWS_MAX || columns < 1 || columns > RF_SAMPLING_COLUMNS_MAX)
        return rf_fail(RF_E_INVALID, "%s has %llu rows of %llu: up to %d rows of 1 to %d", name,
                       (unsigned long long)rows, (unsigned long long)columns, RF_SAMPLING_ROWS_MAX,
                       RF_SAMPLING_COLUMNS_MAX);
    RF_TRY(rf_need_type(out, "out", RF_I32));
    RF_TRY(rf_need_rank(out, "out", 1));
    RF_TRY(rf_need_size(out, "out", 0, rows));
    return rf_need_dense(out, "out");
}
static struct rf_operand workspace_of(const struct rf_op_call *call) {
    return (struct rf_operand){call->workspace, call->workspace_offset};
}

/* ---- argmax ---- */

static rf_status argmax_check(const struct rf_op_call *call) {
    return check_logits(call, "values");
}
static struct rf_argmax_args argmax_args(const struct rf_op_call *call) {
    const struct rf_tensor_desc *in = &rf_op_in(call, 0)->desc;
    return (struct rf_argmax_args){.rows = in->shape[0], .columns = in->shape[1], .row_stride = in->strides[0]};
}
static void argmax_reference(const struct rf_op_call *call) {
    struct rf_argmax_args args = argmax_args(call);
    rf_ref_argmax(rf_op_host(rf_op_out(call, 0)), rf_op_host(rf_op_in(call, 0)), &args);
}
static rf_status argmax_workspace(const struct rf_op_call *call, uint64_t *bytes) {
    const struct rf_tensor_desc *in = &rf_op_in(call, 0)->desc;
    return rf_gpu_argmax_workspace(in->shape[0], in->shape[1], bytes);
}
static rf_status argmax_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    struct rf_argmax_args args = argmax_args(call);
    return rf_gpu_argmax(queue, rf_op_operand(rf_op_out(call, 0)), rf_op_operand(rf_op_in(call, 0)),
                         workspace_of(call), &args);
}

static const struct {
    uint64_t rows, columns, stride, skip;
} shapes[] = {{1, 1, 0, 0},       {3, 2, 0, 1},     {5, 7, 11, 0},   {2, 33, 0, 3},
              {4, 257, 300, 1},   {1, 1000, 0, 0},  {2, 1024, 0, 2}, {3, 1025, 0, 0},
              {2, 4099, 5000, 1}, {1, 32003, 0, 0}, {0, 17, 0, 0}};

static void argmax_cases(struct rf_case_list *list) {
    for (size_t i = 0; i < RF_COUNT(shapes); i++)
        for (int data = RF_DATA_NORMAL; data <= RF_DATA_SPECIAL; data++) {
            struct rf_op_case one = {.count = 2, .data = (enum rf_case_data)data};
            one.tensors[0] =
                rf_case_matrix(RF_F32, shapes[i].rows, shapes[i].columns, shapes[i].stride, shapes[i].skip);
            one.tensors[1] = rf_case_vector(RF_I32, shapes[i].rows, (uint64_t)data);
            rf_case_add_shown(list, &one, 0, "%s", shapes[i].stride ? ", gaps" : "");
        }
    static const uint64_t large[][2] = {{1, 131072}, {64, 131072}, {512, 131072}};
    for (size_t i = 0; i < RF_COUNT(large); i++) {
        struct rf_op_case one = {.count = 2, .bench = true};
        one.tensors[0] = rf_case_matrix(RF_F32, large[i][0], large[i][1], 0, 0);
        one.tensors[1] = rf_case_vector(RF_I32, large[i][0], 0);
        rf_case_add_shown(list, &one, 0, "%s", "");
    }
}
static void cost(const struct rf_op_call *call, uint64_t *bytes, uint64_t *flops) {
    *bytes = rf_op_all_traffic_bytes(call);
    *flops = 0;
}
const struct rf_op rf_op_argmax = {
    .name = "argmax",
    .summary = "out[r] = the index of the largest of values[r], of equals the first; never a NaN; -1: none",
    .inputs = 1,
    .outputs = 1,
    .check = argmax_check,
    .reference = argmax_reference,
    .gpu = argmax_gpu,
    .workspace = argmax_workspace,
    .cases = argmax_cases,
    .cost = cost,
};

/* ---- sample: logits, random (u64 seed and counter as i32 [rows, 4]), window or none, settings or none, biases
 * (struct rf_sample_bias as i32 [rows, n, 2]) or none, allowed (bits as i32 [rows, columns / 32]) or none ---- An
 * attribute of 0 turns its step off. random may be left out if the temperature is 0. settings, struct
 * rf_sample_settings as i32 [rows, 10], are read when the op runs, in place of the attributes, which then only say
 * which steps there are: at temperature 0 the best token is taken, and without top_k or top_p these are off. */

enum { LOGITS, RANDOM, WINDOW, SETTINGS, BIASES, ALLOWED, SAMPLE_INPUTS };
enum { SETTINGS_WORDS = sizeof(struct rf_sample_settings) / 4 };

static rf_status check_settings(const struct rf_op_tensor *settings, uint64_t rows) {
    RF_TRY(rf_need_type(settings, "settings", RF_I32));
    RF_TRY(rf_need_rank(settings, "settings", 2));
    RF_TRY(rf_need_size(settings, "settings", 0, rows));
    RF_TRY(rf_need_size(settings, "settings", 1, SETTINGS_WORDS));
    RF_TRY(rf_need_dense(settings, "settings"));
    return rf_need_aligned(settings, "settings", 8);
}
static rf_status check_random(const struct rf_op_tensor *random, uint64_t rows) {
    RF_TRY(rf_need_type(random, "random", RF_I32));
    RF_TRY(rf_need_rank(random, "random", 2));
    RF_TRY(rf_need_size(random, "random", 0, rows));
    RF_TRY(rf_need_size(random, "random", 1, 4));
    RF_TRY(rf_need_dense(random, "random"));
    return rf_need_aligned(random, "random", 8);
}
static rf_status check_window(const struct rf_op_tensor *window, uint64_t rows) {
    RF_TRY(rf_need_type(window, "window", RF_I32));
    RF_TRY(rf_need_rank(window, "window", 2));
    RF_TRY(rf_need_size(window, "window", 0, rows));
    RF_TRY(rf_need_dense_rows(window, "window"));
    RF_TRY(rf_need_distinct(window, "window"));
    if (window->desc.shape[1] > UINT32_MAX)
        return rf_fail(RF_E_INVALID, "window has more than 2^32 - 1 tokens a row");
    return RF_OK;
}

static rf_status check_biases(const struct rf_op_tensor *biases, uint64_t rows) {
    RF_TRY(rf_need_type(biases, "biases", RF_I32));
    RF_TRY(rf_need_rank(biases, "biases", 3));
    RF_TRY(rf_need_size(biases, "biases", 0, rows));
    RF_TRY(rf_need_size(biases, "biases", 2, 2));
    RF_TRY(rf_need_dense(biases, "biases"));
    RF_TRY(rf_need_aligned(biases, "biases", 8));
    if (biases->desc.shape[1] > UINT32_MAX) return rf_fail(RF_E_INVALID, "biases has more than 2^32 - 1 a row");
    return RF_OK;
}
static rf_status check_allowed(const struct rf_op_tensor *allowed, uint64_t rows, uint64_t columns) {
    RF_TRY(rf_need_type(allowed, "allowed", RF_I32));
    RF_TRY(rf_need_rank(allowed, "allowed", 2));
    RF_TRY(rf_need_size(allowed, "allowed", 0, rows));
    RF_TRY(rf_need_size(allowed, "allowed", 1, rf_ceil_div(columns, 32)));
    RF_TRY(rf_need_dense_rows(allowed, "allowed"));
    return rf_need_distinct(allowed, "allowed");
}

/* Returns NULL, or why the settings make no sense. */
static const char *sample_args(const struct rf_op_call *call, struct rf_sample_args *args) {
    const struct rf_op_attributes *a = &call->attributes;
    const struct rf_tensor_desc *in = &rf_op_in(call, LOGITS)->desc, *window = &rf_op_in(call, WINDOW)->desc;
    const struct rf_sampling settings = {.temperature = (float)a->temperature,
                                         .top_p = (float)a->top_p,
                                         .min_p = (float)a->min_p,
                                         .penalty = (float)a->penalty,
                                         .presence = (float)a->presence,
                                         .frequency = (float)a->frequency,
                                         .top_k = (uint32_t)a->top_k,
                                         .temperature_last = a->temperature_last != 0};
    *args = (struct rf_sample_args){
        .rows = in->shape[0], .columns = (uint32_t)in->shape[1], .row_stride = in->strides[0]};
    if (rf_op_given(rf_op_in(call, WINDOW))) {
        args->window_count = (uint32_t)window->shape[1];
        args->window_stride = window->strides[0];
    }
    if (rf_op_given(rf_op_in(call, BIASES))) {
        args->bias_count = (uint32_t)rf_op_in(call, BIASES)->desc.shape[1];
        args->bias_stride = args->bias_count;
    }
    if (rf_op_given(rf_op_in(call, ALLOWED))) args->allowed_stride = rf_op_in(call, ALLOWED)->desc.strides[0];
    args->strict = a->strict != 0;
    return rf_sampling_resolve(&settings, args);
}
static rf_status sample_check(const struct rf_op_call *call) {
    const struct rf_op_tensor *logits = rf_op_in(call, LOGITS), *random = rf_op_in(call, RANDOM),
                              *window = rf_op_in(call, WINDOW);
    RF_TRY(check_logits(call, "logits"));
    if (call->attributes.top_k < 0 || call->attributes.top_k > UINT32_MAX)
        return rf_fail(RF_E_INVALID, "top_k is %lld: 0 to 2^32 - 1", (long long)call->attributes.top_k);
    struct rf_sample_args args;
    const char *wrong = sample_args(call, &args);
    if (wrong) return rf_fail(RF_E_INVALID, "%s", wrong);
    uint64_t rows = logits->desc.shape[0];
    if (!rf_op_given(random) && !args.greedy)
        return rf_fail(RF_E_INVALID, "no seeds and counters: they may be left out where the temperature is 0");
    if (rf_op_given(random)) RF_TRY(check_random(random, rows));
    if (rf_op_given(window)) RF_TRY(check_window(window, rows));
    if (rf_op_given(rf_op_in(call, BIASES))) RF_TRY(check_biases(rf_op_in(call, BIASES), rows));
    if (rf_op_given(rf_op_in(call, ALLOWED)))
        RF_TRY(check_allowed(rf_op_in(call, ALLOWED), rows, logits->desc.shape[1]));
    return rf_op_given(rf_op_in(call, SETTINGS)) ? check_settings(rf_op_in(call, SETTINGS), rows) : RF_OK;
}
static struct rf_sample_rows sample_rows(const struct rf_op_call *call) {
    return (struct rf_sample_rows){.logits = rf_op_host(rf_op_in(call, LOGITS)),
                                   .random = rf_op_host(rf_op_in(call, RANDOM)),
                                   .window = rf_op_host(rf_op_in(call, WINDOW)),
                                   .biases = rf_op_host(rf_op_in(call, BIASES)),
                                   .allowed = rf_op_host(rf_op_in(call, ALLOWED)),
                                   .settings = rf_op_host(rf_op_in(call, SETTINGS))};
}
static void sample_reference(const struct rf_op_call *call) {
    struct rf_sample_args args;
    if (sample_args(call, &args)) return;
    struct rf_sample_rows rows = sample_rows(call);
    uint64_t *scratch = malloc(args.columns * sizeof *scratch);
    /* If memory runs out, the output stays unchanged, which no check accepts as a token. */
    if (scratch) rf_ref_sample_rows(rf_op_host(rf_op_out(call, 0)), &rows, &args, scratch);
    free(scratch);
}
static rf_status sample_cpu(struct rf_cpu *cpu, const struct rf_op_call *call) {
    struct rf_sample_args args;
    const char *wrong = sample_args(call, &args);
    if (wrong) return rf_fail(RF_E_INVALID, "sample: %s", wrong);
    struct rf_sample_rows rows = sample_rows(call);
    return rf_cpu_sample(cpu, rf_op_host(rf_op_out(call, 0)), &rows, &args);
}
static rf_status sample_workspace(const struct rf_op_call *call, uint64_t *bytes) {
    const struct rf_tensor_desc *in = &rf_op_in(call, LOGITS)->desc;
    return rf_gpu_sample_workspace(in->shape[0], in->shape[1], bytes);
}
static rf_status sample_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    struct rf_gpu_sample sample = {.out = rf_op_operand(rf_op_out(call, 0)),
                                   .logits = rf_op_operand(rf_op_in(call, LOGITS)),
                                   .random = rf_op_operand(rf_op_in(call, RANDOM)),
                                   .window = rf_op_operand(rf_op_in(call, WINDOW)),
                                   .biases = rf_op_operand(rf_op_in(call, BIASES)),
                                   .allowed = rf_op_operand(rf_op_in(call, ALLOWED)),
                                   .workspace = workspace_of(call),
                                   .settings = rf_op_operand(rf_op_in(call, SETTINGS))};
    const char *wrong = sample_args(call, &sample.args);
    if (wrong) return rf_fail(RF_E_INVALID, "sample: %s", wrong);
    return rf_gpu_sample(queue, &sample);
}
/* Settings that differ from row to row, with every step on or off. */
static void fill_settings(void *memory, uint64_t rows, uint64_t *state) {
    for (uint64_t r = 0; r < rows; r++) {
        uint64_t drawn = rf_op_random(state);
        const struct rf_sampling sampling = {.temperature = 0.5f + (float)(drawn % 8) * 0.25f,
                                             .top_k = drawn >> 8 & 1 ? (uint32_t)(drawn >> 9 & 63) : 0,
                                             .top_p = drawn >> 16 & 1 ? 0.9f : 0,
                                             .min_p = drawn >> 17 & 1 ? 0.05f : 0,
                                             .penalty = drawn >> 18 & 1 ? 1.3f : 1,
                                             .presence = drawn >> 23 & 1 ? 0.7f : 0,
                                             .frequency = drawn >> 24 & 1 ? 0.3f : 0,
                                             .temperature_last = drawn >> 19 & 1};
        struct rf_sample_args args = {.window_count = (uint32_t)(drawn >> 20 & 7),
                                      .bias_count = (uint32_t)(drawn >> 25 & 7)};
        rf_sampling_resolve(&sampling, &args);
        struct rf_sample_settings settings = rf_sampling_settings(&args);
        memcpy((char *)memory + r * sizeof settings, &settings, sizeof settings);
    }
}
/* No token twice: every so many of them, from one on; some numbers name no token. */
static void fill_biases(struct rf_sample_bias *biases, uint64_t rows, uint64_t count, uint64_t columns,
                        uint64_t *state) {
    for (uint64_t r = 0; r < rows; r++) {
        int32_t step = (int32_t)(columns / RF_MAX(count, 1)) + 1, token = (int32_t)(rf_op_random(state) % 3) - 1;
        for (uint64_t i = 0; i < count; i++, token += step)
            biases[r * count + i] = (struct rf_sample_bias){
                token, (float)((int64_t)(rf_op_random(state) % 2001) - 1000) * (i % 4 ? 0.01f : 0.1f)};
    }
}
/* A window holds some tokens twice, and some numbers that name no token. */
static bool sample_fill(const struct rf_op_call *call, int index, uint64_t *state) {
    const struct rf_op_tensor *tensor = rf_op_in(call, index);
    if (index == LOGITS) return false;
    if (index == SETTINGS) {
        fill_settings(rf_op_host(tensor), tensor->desc.shape[0], state);
        return true;
    }
    if (index == BIASES) {
        fill_biases(rf_op_host(tensor), tensor->desc.shape[0], tensor->desc.shape[1],
                    rf_op_in(call, LOGITS)->desc.shape[1], state);
        return true;
    }
    char *memory = rf_op_host(tensor);
    uint64_t columns = rf_op_in(call, LOGITS)->desc.shape[1], bytes = tensor->bytes - tensor->desc.byte_offset;
    for (uint64_t i = 0; i + 4 <= bytes; i += 4) {
        uint64_t drawn = rf_op_random(state);
        bool any = index == RANDOM || index == ALLOWED;
        int32_t number = any ? (int32_t)(uint32_t)drawn : (int32_t)(drawn % (columns + 3)) - 1;
        memcpy(memory + i, &number, 4);
    }
    return true;
}

static const struct {
    const char *name;
    struct rf_op_attributes a;
} settings[] = {
    {"greedy", {.temperature = 0}},
    {"greedy with a penalty", {.penalty = 1.3}},
    {"temperature 1", {.temperature = 1}},
    {"temperature 0.1", {.temperature = 0.1}},
    {"temperature 100", {.temperature = 100}},
    {"top_k 1", {.temperature = 0.8, .top_k = 1}},
    {"top_k 40", {.temperature = 0.8, .top_k = 40}},
    {"top_k of millions", {.temperature = 0.8, .top_k = 4000000}},
    {"top_p 0.9", {.temperature = 1.2, .top_p = 0.9}},
    {"top_p 1e-9", {.temperature = 1, .top_p = 1e-9}},
    {"top_k 40 top_p 0.9", {.temperature = 0.8, .top_p = 0.9, .top_k = 40}},
    {"min_p 0.05", {.temperature = 0.8, .min_p = 0.05}},
    {"min_p 1", {.temperature = 1.5, .min_p = 1}},
    {"all, penalty", {.temperature = 0.7, .top_p = 0.95, .min_p = 0.02, .penalty = 1.1, .top_k = 50}},
    {"all, penalty below 1, temperature last",
     {.temperature = 1.7, .top_p = 0.95, .min_p = 0.02, .penalty = 0.8, .top_k = 50, .temperature_last = 1}},
    {"top_p 0.5, temperature last", {.temperature = 3, .top_p = 0.5, .temperature_last = 1}},
    {"strict", {.temperature = 1, .strict = 1}},
    {"strict greedy, penalty", {.penalty = 1.3, .strict = 1}},
    {"strict, all", {.temperature = 0.7, .top_p = 0.95, .min_p = 0.02, .penalty = 1.1, .top_k = 50, .strict = 1}},
    {"presence and frequency", {.temperature = 0.9, .presence = 0.6, .frequency = 0.4}},
    {"greedy, negative presence, penalty", {.penalty = 1.2, .presence = -1.5}},
    {"biases", {.temperature = 1, .top_k = 40}},
    {"biases and allowed, all", {.temperature = 0.8, .top_p = 0.9, .penalty = 1.1, .frequency = 0.2, .strict = 1}},
    {"allowed, greedy", {.strict = 1}},
    {"settings of each row", {.temperature = 1, .top_p = 0.5, .penalty = 1.1, .top_k = 1, .strict = 1}},
    {"settings of each row, no top_k", {.temperature = 1, .top_p = 0.5, .penalty = 1.1}},
    {"settings of each row, greedy", {.penalty = 1.1, .strict = 1}},
};
static bool benched(size_t setting) {
    return setting == 0 || setting == 2 || setting == 10 || setting == 11 || setting == 13;
}
enum { PENALTIES = 19, BIASED = 21, BOTH = 22, MASKED = 23, FIRST_WITH_SETTINGS = 24 };
static bool with_settings(size_t setting) {
    return setting >= FIRST_WITH_SETTINGS;
}
static bool with_biases(size_t setting) {
    return setting == BIASED || setting == BOTH || setting == FIRST_WITH_SETTINGS;
}
static bool with_allowed(size_t setting) {
    return setting == BOTH || setting == MASKED || setting == FIRST_WITH_SETTINGS + 1;
}
static void sample_case(struct rf_case_list *list, size_t setting, struct rf_op_case *one, uint64_t rows,
                        uint64_t columns, uint64_t stride, uint64_t skip) {
    one->attributes = settings[setting].a;
    one->count = SAMPLE_INPUTS + 1;
    one->tensors[LOGITS] = rf_case_matrix(RF_F32, rows, columns, stride, skip);
    if (one->attributes.temperature > 0 || skip) one->tensors[RANDOM] = rf_case_matrix(RF_I32, rows, 4, 0, skip * 2);
    if (one->attributes.penalty > 0 || setting == PENALTIES)
        one->tensors[WINDOW] = rf_case_matrix(RF_I32, rows, stride ? 5 : 64, stride ? 9 : 0, skip);
    if (with_biases(setting))
        one->tensors[BIASES] = rf_case_tensor(RF_I32, 3, (uint64_t[]){rows, stride ? 3 : 17, 2}, skip * 2);
    if (with_allowed(setting))
        one->tensors[ALLOWED] =
            rf_case_matrix(RF_I32, rows, rf_ceil_div(columns, 32), stride ? rf_ceil_div(columns, 32) + 3 : 0, skip);
    if (with_settings(setting)) one->tensors[SETTINGS] = rf_case_matrix(RF_I32, rows, SETTINGS_WORDS, 0, skip * 2);
    one->tensors[SAMPLE_INPUTS] = rf_case_vector(RF_I32, rows, skip);
    rf_case_add_shown(list, one, LOGITS, ", %s%s", settings[setting].name, stride ? ", gaps" : "");
}
static void sample_cases(struct rf_case_list *list) {
    for (size_t i = 0; i < RF_COUNT(shapes); i++)
        for (size_t k = 0; k < RF_COUNT(settings); k++) {
            struct rf_op_case one = {.data = (enum rf_case_data)((i + k) % 4)};
            if (shapes[i].columns > 5000 && k % 3 != 1) continue; /* enough of the long ones */
            sample_case(list, k, &one, shapes[i].rows, shapes[i].columns, shapes[i].stride, shapes[i].skip);
        }
    for (size_t k = 0; k < RF_COUNT(settings); k++) {
        struct rf_op_case one = {.bench = true};
        if (benched(k)) sample_case(list, k, &one, 1, 131072, 0, 0);
    }
}
const struct rf_op rf_op_sample = {
    .name = "sample",
    .summary = "out[r] = a token drawn from logits[r] by temperature, top_k, top_p, min_p, penalties, biases and the "
               "mask of those allowed; temperature_last: after the others; strict: -1 if a logit is no number",
    .inputs = SAMPLE_INPUTS,
    .outputs = 1,
    .attributes =
        RF_ATTRIBUTES(RF_ATTRIBUTE_F(temperature, 0), RF_ATTRIBUTE_F(top_p, 1), RF_ATTRIBUTE_F(min_p, 2),
                      RF_ATTRIBUTE_F(penalty, 3), RF_ATTRIBUTE_F(presence, 4), RF_ATTRIBUTE_F(frequency, 5),
                      RF_ATTRIBUTE_I(top_k, 0), RF_ATTRIBUTE_I(temperature_last, 1), RF_ATTRIBUTE_I(strict, 2)),
    .optional = 1 << RANDOM | 1 << WINDOW | 1 << SETTINGS | 1 << BIASES | 1 << ALLOWED,
    .check = sample_check,
    .reference = sample_reference,
    .cpu = sample_cpu,
    .gpu = sample_gpu,
    .workspace = sample_workspace,
    .cases = sample_cases,
    .fill = sample_fill,
    .cost = cost,
};

/* ---- advance: drawn, settings or none; and, changed in place: tokens, positions, lengths, random or none, window or
 * none, ring (i32 [rows, slots, 2]). Settings may be left out where there is no window. ---- */

enum { DRAWN, ADVANCE_SETTINGS, TOKENS, POSITIONS, LENGTHS, ADVANCE_RANDOM, ADVANCE_WINDOW, RING, ADVANCE_INPUTS };

static rf_status advance_check(const struct rf_op_call *call) {
    static const char *const names[] = {
        [DRAWN] = "drawn", [TOKENS] = "tokens", [POSITIONS] = "positions", [LENGTHS] = "lengths"};
    static const int vectors[] = {DRAWN, TOKENS, POSITIONS, LENGTHS};
    const struct rf_op_tensor *random = rf_op_in(call, ADVANCE_RANDOM), *window = rf_op_in(call, ADVANCE_WINDOW),
                              *set = rf_op_in(call, ADVANCE_SETTINGS), *ring = rf_op_in(call, RING);
    uint64_t rows = rf_op_in(call, DRAWN)->desc.shape[0];
    for (size_t i = 0; i < RF_COUNT(vectors); i++) {
        const struct rf_op_tensor *one = rf_op_in(call, vectors[i]);
        RF_TRY(rf_need_type(one, names[vectors[i]], RF_I32));
        RF_TRY(rf_need_rank(one, names[vectors[i]], 1));
        RF_TRY(rf_need_size(one, names[vectors[i]], 0, rows));
        RF_TRY(rf_need_dense(one, names[vectors[i]]));
    }
    RF_TRY(rf_need_type(ring, "ring", RF_I32));
    RF_TRY(rf_need_rank(ring, "ring", 3));
    RF_TRY(rf_need_size(ring, "ring", 0, rows));
    RF_TRY(rf_need_size(ring, "ring", 2, 2));
    RF_TRY(rf_need_dense(ring, "ring"));
    RF_TRY(rf_need_aligned(ring, "ring", 8));
    if (rows > RF_SAMPLING_ROWS_MAX || !ring->desc.shape[1] || ring->desc.shape[1] > RF_ADVANCE_SLOTS_MAX)
        return rf_fail(RF_E_INVALID, "ring has %llu rows of %llu slots: up to %d rows of 1 to %d",
                       (unsigned long long)rows, (unsigned long long)ring->desc.shape[1], RF_SAMPLING_ROWS_MAX,
                       RF_ADVANCE_SLOTS_MAX);
    if (rf_op_given(random)) RF_TRY(check_random(random, rows));
    if (rf_op_given(window)) RF_TRY(check_window(window, rows));
    if (rf_op_given(set)) return check_settings(set, rows);
    return rf_op_given(window) ? rf_fail(RF_E_INVALID, "no settings: they say how long the window is") : RF_OK;
}
static struct rf_advance_args advance_args(const struct rf_op_call *call) {
    const struct rf_op_tensor *window = rf_op_in(call, ADVANCE_WINDOW);
    struct rf_advance_args args = {.rows = rf_op_in(call, DRAWN)->desc.shape[0],
                                   .slots = (uint32_t)rf_op_in(call, RING)->desc.shape[1]};
    if (rf_op_given(window)) {
        args.window_columns = (uint32_t)window->desc.shape[1];
        args.window_stride = window->desc.strides[0];
    }
    return args;
}
static void advance_reference(const struct rf_op_call *call) {
    struct rf_advance_args args = advance_args(call);
    struct rf_ref_advance on = {.tokens = rf_op_in_host(call, TOKENS),
                                .positions = rf_op_in_host(call, POSITIONS),
                                .lengths = rf_op_in_host(call, LENGTHS),
                                .random = rf_op_in_host(call, ADVANCE_RANDOM),
                                .window = rf_op_in_host(call, ADVANCE_WINDOW),
                                .ring = rf_op_in_host(call, RING),
                                .drawn = rf_op_in_host(call, DRAWN),
                                .settings = rf_op_in_host(call, ADVANCE_SETTINGS)};
    rf_ref_advance(&on, &args);
}
static rf_status advance_gpu(struct rf_queue *queue, const struct rf_op_call *call) {
    struct rf_gpu_advance advance = {.args = advance_args(call),
                                     .tokens = rf_op_in_operand(call, TOKENS),
                                     .positions = rf_op_in_operand(call, POSITIONS),
                                     .lengths = rf_op_in_operand(call, LENGTHS),
                                     .random = rf_op_in_operand(call, ADVANCE_RANDOM),
                                     .window = rf_op_in_operand(call, ADVANCE_WINDOW),
                                     .ring = rf_op_in_operand(call, RING),
                                     .drawn = rf_op_in_operand(call, DRAWN),
                                     .settings = rf_op_in_operand(call, ADVANCE_SETTINGS)};
    return rf_gpu_advance(queue, &advance);
}
/* Numbers of any size: a ring and a window take a length modulo theirs, and sums wrap. */
static bool advance_fill(const struct rf_op_call *call, int index, uint64_t *state) {
    const struct rf_op_tensor *tensor = rf_op_in(call, index);
    char *memory = rf_op_host(tensor);
    if (index == ADVANCE_SETTINGS) {
        fill_settings(memory, tensor->desc.shape[0], state);
        return true;
    }
    for (uint64_t i = 0, bytes = tensor->bytes - tensor->desc.byte_offset; i + 4 <= bytes; i += 4) {
        int32_t number = (int32_t)(uint32_t)(rf_op_random(state) >> (index == LENGTHS && i % 8 ? 52 : 0));
        memcpy(memory + i, &number, 4);
    }
    return true;
}
static void advance_cases(struct rf_case_list *list) {
    static const struct {
        uint64_t rows, slots, columns, stride, skip;
    } sizes[] = {{1, 1, 1, 0, 0}, {1, 8, 64, 0, 0}, {3, 7, 5, 9, 1},      {33, 2, 4, 0, 0},
                 {0, 4, 8, 0, 0}, {5, 3, 0, 0, 3},  {300, 16, 4096, 0, 0}};
    for (size_t i = 0; i < RF_COUNT(sizes); i++)
        for (int given = 0; given < 4; given++) { /* random, window */
            struct rf_op_case one = {.count = ADVANCE_INPUTS};
            uint64_t rows = sizes[i].rows, skip = sizes[i].skip;
            bool window = given & 2 && sizes[i].columns;
            if (given & 2 && !window) continue;
            for (int t = TOKENS; t <= LENGTHS; t++) one.tensors[t] = rf_case_vector(RF_I32, rows, skip);
            one.tensors[DRAWN] = rf_case_vector(RF_I32, rows, skip);
            one.tensors[RING] = rf_case_tensor(RF_I32, 3, (uint64_t[]){rows, sizes[i].slots, 2}, 2 * skip);
            if (given & 1) one.tensors[ADVANCE_RANDOM] = rf_case_matrix(RF_I32, rows, 4, 0, 2 * skip);
            if (window) {
                one.tensors[ADVANCE_WINDOW] = rf_case_matrix(RF_I32, rows, sizes[i].columns, sizes[i].stride, skip);
                one.tensors[ADVANCE_SETTINGS] = rf_case_matrix(RF_I32, rows, SETTINGS_WORDS, 0, 2 * skip);
            }
            rf_case_add_shown(list, &one, RING, "%s%s", given & 1 ? ", random" : "", window ? ", window" : "");
        }
}
const struct rf_op rf_op_advance = {
    .name = "advance",
    .summary =
        "after a token was drawn: ring[r] gets it; tokens[r], positions[r], lengths[r], random[r] and window[r] "
        "become those of the next one",
    .inputs = ADVANCE_INPUTS,
    .optional = 1 << ADVANCE_SETTINGS | 1 << ADVANCE_RANDOM | 1 << ADVANCE_WINDOW,
    .updates = 1 << TOKENS | 1 << POSITIONS | 1 << LENGTHS | 1 << ADVANCE_RANDOM | 1 << ADVANCE_WINDOW | 1 << RING,
    .check = advance_check,
    .reference = advance_reference,
    .gpu = advance_gpu,
    .cases = advance_cases,
    .fill = advance_fill,
    .cost = cost,
};
