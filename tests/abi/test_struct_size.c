/* struct_size in every public function that reads or fills a struct: tools/check_structs.py demands a row for each.
 *
 * Each struct ends where a page ends that nothing follows: one byte read or written beyond struct_size is a crash. */
#include <rocmforge/chat.h>
#include <rocmforge/graph.h>
#include <rocmforge/infer.h>
#include <rocmforge/model.h>
#include <rocmforge/ops.h>
#include <rocmforge/tokenizer.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../gpu/gpu_testing.h"

/* What the functions need. */
static struct world {
    struct gpu gpu;
    const struct rf_kernel *kernel;
    struct rf_recording *recording;
    struct rf_buffer *buffer;
    struct rf_graph *graph; /* finished */
    rf_tensor_id x;
    struct rf_executor *executor;
    struct rf_gguf *gguf;
    struct rf_engine *engine;
    struct rf_session *session; /* with a token evaluated */
    const struct rf_tokenizer *tokenizer;
} world;

static rf_status add_tensor(struct rf_graph *graph, const char *name, enum rf_tensor_role role, rf_tensor_id *id) {
    RF_PARAMS(struct rf_graph_tensor, tensor);
    tensor.name = name;
    tensor.role = role;
    tensor.desc = (struct rf_tensor_desc){.dtype = RF_F32, .rank = 1, .shape = {8}};
    return rf_graph_add_tensor(graph, &tensor, id);
}

static struct rf_graph *new_graph(rf_tensor_id *x, rf_tensor_id *y) {
    struct rf_graph *graph = NULL;
    RF_ASSERT_OK(rf_graph_create("g", &graph));
    RF_ASSERT_OK(add_tensor(graph, "x", RF_ROLE_INPUT, x));
    RF_ASSERT_OK(add_tensor(graph, "y", RF_ROLE_RESULT, y));
    return graph;
}

static struct rf_graph_node scale_node(const rf_tensor_id *x, const rf_tensor_id *y) {
    return (struct rf_graph_node){.struct_size = sizeof(struct rf_graph_node),
                                  .op = "scale",
                                  .f = {2},
                                  .inputs = x,
                                  .input_count = 1,
                                  .outputs = y,
                                  .output_count = 1};
}

static void open_gpu(void) {
    world.gpu.modules = "fill,copy";
    gpu_open(&world.gpu, NULL);
    world.kernel = gpu_kernel(&world.gpu, "fill_f32");
    world.buffer = gpu_buffer(&world.gpu, 256);
    RF_ASSERT_OK(rf_queue_record_begin(world.gpu.queue, NULL));
    RF_ASSERT_OK(rf_fill(world.gpu.queue, world.buffer, 0, 256, 1));
    RF_ASSERT_OK(rf_queue_record_end(world.gpu.queue, &world.recording));
}

static void open_graph(void) {
    rf_tensor_id y;
    world.graph = new_graph(&world.x, &y);
    struct rf_graph_node node = scale_node(&world.x, &y);
    RF_ASSERT_OK(rf_graph_add_node(world.graph, &node, NULL));
    RF_ASSERT_OK(rf_graph_finish(world.graph));
    RF_PARAMS(struct rf_executor_params, params);
    params.graph = world.graph;
    RF_ASSERT_OK(rf_executor_create(&params, &world.executor));
}

static void open_model(void) {
    RF_PARAMS(struct rf_engine_params, params);
    RF_ASSERT_OK(rf_gguf_open(BUNDLED_MODEL, &world.gguf));
    gpu_make_runtime(&world.gpu, NULL);
    params.runtime = world.gpu.runtime;
    params.model = BUNDLED_MODEL;
    params.device = "cpu";
    params.context = 32;
    params.threads = 1;
    RF_ASSERT_OK(rf_engine_open(&params, &world.engine));
    world.tokenizer = rf_engine_tokenizer(world.engine);
    RF_ASSERT_OK(rf_session_create(world.engine, &world.session));
    RF_ASSERT_OK(rf_session_eval(world.session, (int32_t[]){1}, 1, false, NULL));
}

static void close_all(void) {
    rf_session_destroy(&world.session);
    RF_ASSERT_OK(rf_engine_close(&world.engine));
    rf_gguf_close(&world.gguf);
    RF_ASSERT_OK(rf_executor_destroy(&world.executor));
    rf_graph_destroy(&world.graph);
    if (world.gpu.device) {
        RF_ASSERT_OK(rf_recording_destroy(&world.recording));
        RF_ASSERT_OK(rf_buffer_destroy(&world.buffer));
        gpu_close(&world.gpu);
    } else {
        rf_runtime_destroy(&world.gpu.runtime);
    }
}

/* ---- the functions: each sets the fields that it needs, calls, and takes back what it made ---- */

static rf_status call_rf_runtime_create(void *given) {
    struct rf_runtime *made = NULL;
    rf_status status = rf_runtime_create(given, &made);
    rf_runtime_destroy(&made);
    return status;
}
static rf_status call_rf_device_choose(void *given) {
    int index;
    return rf_device_choose(world.gpu.runtime, given, &index);
}
static rf_status call_rf_device_open_checked(void *given) {
    struct rf_device *device = NULL;
    struct rf_device_params *params = given;
    params->modules = "fill"; /* as it is open */
    rf_status status = rf_device_open_checked(world.gpu.runtime, params, &device);
    if (!status) RF_ASSERT_OK(rf_device_close(&device));
    return status;
}
static rf_status call_rf_buffer_create_safe(void *given) {
    struct rf_buffer_params *params = given;
    struct rf_buffer *buffer = NULL;
    params->bytes = 64;
    rf_status status = rf_buffer_create_safe(world.gpu.device, params, &buffer);
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    return status;
}
static rf_status call_rf_queue_create(void *given) {
    struct rf_queue *queue = NULL;
    rf_status status = rf_queue_create(world.gpu.device, given, &queue);
    RF_ASSERT_OK(rf_queue_destroy(&queue));
    return status;
}
static rf_status call_rf_queue_launch(void *given) {
    const struct rf_arg args[] = {rf_arg_buffer(world.buffer), rf_arg_f32(1), rf_arg_i64(64)};
    struct rf_launch *launch = given;
    launch->kernel = world.kernel;
    launch->grid[0] = 1;
    launch->block[0] = 64;
    launch->args = args;
    launch->arg_count = 3;
    return rf_queue_launch(world.gpu.queue, launch);
}
static rf_status call_rf_share_create(void *given) {
    struct rf_share_params *params = given;
    struct rf_share *share = NULL;
    params->budget = "1MiB";
    rf_status status = rf_share_create(world.gpu.runtime, params, &share);
    rf_share_destroy(&share);
    return status;
}
static rf_status call_rf_device_sweep(void *given) {
    struct rf_sweep *sweep = given;
    sweep->mark = rf_device_mark(world.gpu.device);
    sweep->timeout_ns = RF_MS(60000);
    return rf_device_sweep(world.gpu.device, sweep);
}
static rf_status call_rf_device_info_at(void *given) {
    return rf_device_info_at(world.gpu.runtime, 0, given);
}
static rf_status call_rf_device_get_info(void *given) {
    return rf_device_get_info(world.gpu.device, given);
}
static rf_status call_rf_device_memory_info(void *given) {
    return rf_device_memory_info(world.gpu.device, given);
}
static rf_status call_rf_kernel_get_info(void *given) {
    return rf_kernel_get_info(world.kernel, given);
}
static rf_status call_rf_recording_get_info(void *given) {
    return rf_recording_get_info(world.recording, given);
}

static rf_status call_rf_graph_add_tensor(void *given) {
    rf_tensor_id x, y, id;
    struct rf_graph *graph = new_graph(&x, &y);
    struct rf_graph_tensor *tensor = given;
    tensor->role = RF_ROLE_INPUT;
    tensor->desc = (struct rf_tensor_desc){.dtype = RF_F32, .rank = 1, .shape = {8}};
    rf_status status = rf_graph_add_tensor(graph, tensor, &id);
    rf_graph_destroy(&graph);
    return status;
}
static rf_status call_rf_graph_add_node(void *given) {
    rf_tensor_id x, y;
    struct rf_graph *graph = new_graph(&x, &y);
    struct rf_graph_node *to = given, node = scale_node(&x, &y);
    to->op = node.op;
    to->f[0] = 2;
    to->inputs = node.inputs;
    to->outputs = node.outputs;
    to->input_count = to->output_count = 1;
    rf_status status = rf_graph_add_node(graph, to, NULL);
    rf_graph_destroy(&graph);
    return status;
}
static rf_status call_rf_executor_create(void *given) {
    struct rf_executor_params *params = given;
    struct rf_executor *executor = NULL;
    params->graph = world.graph;
    rf_status status = rf_executor_create(params, &executor);
    RF_ASSERT_OK(rf_executor_destroy(&executor));
    return status;
}
static rf_status call_rf_executor_plan_info(void *given) {
    return rf_executor_plan_info(world.executor, given);
}
static rf_status call_rf_check_run(void *given) {
    struct rf_check_params *params = given;
    struct rf_check_counts counts;
    params->op = "scale";
    params->threads = 1;
    return rf_check_run(params, &counts);
}
static rf_status call_rf_op_info_at(void *given) {
    return rf_op_info_at(0, given);
}

static rf_status call_rf_gguf_get_info(void *given) {
    return rf_gguf_get_info(world.gguf, given);
}
static rf_status call_rf_gguf_metadata_at(void *given) {
    return rf_gguf_metadata_at(world.gguf, 0, given);
}
static rf_status call_rf_gguf_metadata_find(void *given) {
    return rf_gguf_metadata_find(world.gguf, "general.architecture", given);
}
static rf_status call_rf_gguf_metadata_element(void *given) {
    return rf_gguf_metadata_element(world.gguf, "tokenizer.ggml.tokens", 1, given);
}
static rf_status call_rf_gguf_tensor_info_at(void *given) {
    return rf_gguf_tensor_info_at(world.gguf, 0, given);
}
static rf_status call_rf_tokenizer_get_info(void *given) {
    return rf_tokenizer_get_info(world.tokenizer, given);
}
static rf_status call_rf_tokenizer_token(void *given) {
    return rf_tokenizer_token(world.tokenizer, 1, given);
}
static rf_status call_rf_tokenizer_encode(void *given) {
    int32_t *ids = NULL;
    size_t count;
    rf_status status = rf_tokenizer_encode(world.tokenizer, "Once", 4, given, &ids, &count);
    rf_token_ids_destroy(&ids);
    return status;
}
static rf_status call_rf_chat_template_create(void *given) {
    struct rf_chat_template *chat_template = NULL;
    struct rf_chat_template_params *params = given;
    if (params && params->struct_size >= sizeof *params) {
        params->source = "x";
        params->source_bytes = 1;
    }
    rf_status status = rf_chat_template_create(given, &chat_template);
    rf_chat_template_destroy(&chat_template);
    return status;
}
/* Renders with the parameters or into the prompt that are given. */
static rf_status render_with(struct rf_chat_params *given_params, struct rf_chat_prompt *given_prompt) {
    static const struct rf_chat_message message = {.role = RF_CHAT_USER, .text = "Hi"};
    struct rf_chat_template *chat_template = NULL;
    RF_PARAMS(struct rf_chat_template_params, made);
    RF_PARAMS(struct rf_chat_params, params);
    RF_PARAMS(struct rf_chat_prompt, prompt);
    struct rf_chat_params *used = given_params ? given_params : &params;
    made.source = "x";
    made.source_bytes = 1;
    RF_ASSERT_OK(rf_chat_template_create(&made, &chat_template));
    if (used->struct_size >= sizeof *used) {
        used->messages = &message;
        used->message_bytes = sizeof message;
        used->message_count = 1;
    }
    rf_status status = rf_chat_render(chat_template, used, given_prompt ? given_prompt : &prompt);
    if (!status) rf_chat_prompt_finish(given_prompt ? given_prompt : &prompt);
    rf_chat_template_destroy(&chat_template);
    return status;
}
static rf_status call_rf_chat_render(void *given) {
    return render_with(given, NULL);
}
static rf_status call_rf_chat_prompt_finish(void *given) {
    return render_with(NULL, given);
}
static rf_status call_rf_tokenizer_decode(void *given) {
    char *text = NULL;
    size_t bytes;
    rf_status status = rf_tokenizer_decode(world.tokenizer, (int32_t[]){1}, 1, given, &text, &bytes);
    rf_text_destroy(&text);
    return status;
}
static rf_status call_rf_detokenizer_create(void *given) {
    struct rf_detokenizer *detokenizer = NULL;
    rf_status status = rf_detokenizer_create(world.tokenizer, given, &detokenizer);
    rf_detokenizer_destroy(&detokenizer);
    return status;
}
static rf_status call_rf_chat_prompt_encode(void *given) {
    char text[] = "Once";
    unsigned char own[sizeof text] = {1};
    int32_t *ids = NULL;
    size_t count;
    struct rf_chat_prompt *prompt = given;
    prompt->text = text;
    prompt->own = own;
    prompt->bytes = 4;
    rf_status status = rf_chat_prompt_encode(world.tokenizer, prompt, &ids, &count);
    rf_token_ids_destroy(&ids);
    return status;
}
static rf_status call_rf_chat_reader_create(void *given) {
    struct rf_chat_reader *reader = NULL;
    rf_status status = rf_chat_reader_create(given, &reader);
    rf_chat_reader_destroy(&reader);
    return status;
}

static rf_status call_rf_grammar_create(void *given) {
    struct rf_grammar_params *params = given;
    struct rf_grammar *grammar = NULL;
    params->kind = RF_GRAMMAR_REGEX;
    params->text = "a";
    params->bytes = 1;
    rf_status status = rf_grammar_create(params, &grammar);
    rf_grammar_destroy(&grammar);
    return status;
}

static rf_status call_rf_engine_open(void *given) {
    struct rf_engine_params *params = given;
    struct rf_engine *engine = NULL;
    params->runtime = world.gpu.runtime;
    params->model = BUNDLED_MODEL;
    params->device = "cpu";
    params->context = 32;
    params->plan_only = true;
    rf_status status = rf_engine_open(params, &engine);
    RF_ASSERT_OK(rf_engine_close(&engine));
    return status;
}
static rf_status call_rf_engine_get_info(void *given) {
    return rf_engine_get_info(world.engine, given);
}
static rf_status call_rf_session_sample(void *given) {
    int32_t token;
    return rf_session_sample(world.session, given, &token);
}
static rf_status call_rf_session_generate(void *given) {
    struct rf_generate_params *params = given;
    RF_PARAMS(struct rf_generate_result, result);
    params->max_tokens = 1;
    return rf_session_generate(world.session, params, &result);
}
static rf_status call_generate_with(const struct rf_sample_params *sampling, struct rf_generate_result *result) {
    RF_PARAMS(struct rf_generate_params, params);
    params.max_tokens = 1;
    params.sampling = sampling;
    return rf_session_generate(world.session, &params, result);
}
static rf_status call_sampling(void *given) {
    RF_PARAMS(struct rf_generate_result, result);
    return call_generate_with(given, &result);
}
static rf_status call_generate_result(void *given) {
    return call_generate_with(NULL, given);
}

/* ---- the table ---- */

static const struct row {
    const char *label;
    const char *type;
    size_t bytes; /* of the struct as this library knows it */
    size_t least; /* as 0.1.0 knew it */
    bool result;  /* the library fills it */
    bool changes; /* with each call */
    rf_status (*call)(void *given);
    void (*open)(void);
} rows[] = {
#define PARAMS(function, type, needs)                                                                                \
    {#function, #type, sizeof(type), sizeof(type), false, false, call_##function, needs}
#define GROWN(function, type, field, needs)                                                                          \
    {#function, #type, sizeof(type), offsetof(type, field), false, false, call_##function, needs}
#define RESULT(function, type, needs)                                                                                \
    {#function, #type, sizeof(type), sizeof(type), true, false, call_##function, needs}
    GROWN(rf_runtime_create, struct rf_runtime_params, progress, NULL),
    PARAMS(rf_device_choose, struct rf_device_choice, open_gpu),
    PARAMS(rf_device_open_checked, struct rf_device_params, open_gpu),
    PARAMS(rf_buffer_create_safe, struct rf_buffer_params, open_gpu),
    PARAMS(rf_queue_create, struct rf_queue_params, open_gpu),
    PARAMS(rf_queue_launch, struct rf_launch, open_gpu),
    PARAMS(rf_share_create, struct rf_share_params, open_gpu),
    PARAMS(rf_device_sweep, struct rf_sweep, open_gpu),
    PARAMS(rf_graph_add_tensor, struct rf_graph_tensor, NULL),
    GROWN(rf_graph_add_node, struct rf_graph_node, attributes, NULL),
    GROWN(rf_executor_create, struct rf_executor_params, place_group, open_graph),
    GROWN(rf_check_run, struct rf_check_params, runtime, NULL),
    PARAMS(rf_tokenizer_encode, struct rf_encode_params, open_model),
    PARAMS(rf_chat_template_create, struct rf_chat_template_params, NULL),
    PARAMS(rf_chat_render, struct rf_chat_params, NULL),
    RESULT(rf_chat_prompt_finish, struct rf_chat_prompt, NULL),
    PARAMS(rf_tokenizer_decode, struct rf_decode_params, open_model),
    PARAMS(rf_detokenizer_create, struct rf_decode_params, open_model),
    PARAMS(rf_chat_prompt_encode, struct rf_chat_prompt, open_model),
    PARAMS(rf_chat_reader_create, struct rf_chat_reader_params, NULL),
    PARAMS(rf_grammar_create, struct rf_grammar_params, NULL),
    PARAMS(rf_engine_open, struct rf_engine_params, open_model),
    GROWN(rf_session_sample, struct rf_sample_params, presence, open_model),
    GROWN(rf_session_generate, struct rf_generate_params, sampling, open_model),
    {"rf_session_generate.sampling", "struct rf_sample_params", sizeof(struct rf_sample_params),
     offsetof(struct rf_sample_params, presence), false, false, call_sampling, open_model},
    RESULT(rf_device_info_at, struct rf_device_info, open_gpu),
    RESULT(rf_device_get_info, struct rf_device_info, open_gpu),
    RESULT(rf_device_memory_info, struct rf_memory_info, open_gpu),
    RESULT(rf_kernel_get_info, struct rf_kernel_info, open_gpu),
    RESULT(rf_recording_get_info, struct rf_recording_info, open_gpu),
    RESULT(rf_executor_plan_info, struct rf_plan_info, open_graph),
    RESULT(rf_op_info_at, struct rf_op_info, NULL),
    RESULT(rf_gguf_get_info, struct rf_gguf_info, open_model),
    RESULT(rf_gguf_metadata_at, struct rf_gguf_metadata, open_model),
    RESULT(rf_gguf_metadata_find, struct rf_gguf_metadata, open_model),
    RESULT(rf_gguf_metadata_element, struct rf_gguf_metadata, open_model),
    RESULT(rf_gguf_tensor_info_at, struct rf_gguf_tensor_info, open_model),
    RESULT(rf_tokenizer_get_info, struct rf_tokenizer_info, open_model),
    RESULT(rf_tokenizer_token, struct rf_token_info, open_model),
    RESULT(rf_engine_get_info, struct rf_engine_info, open_model),
    {"rf_session_generate.result", "struct rf_generate_result", sizeof(struct rf_generate_result),
     sizeof(struct rf_generate_result), true, true, call_generate_result, open_model},
};

/* ---- the tests ---- */

enum { PAGES = 2, NEWER = 64, FILL = 0xa5 };

/* A struct of so many bytes with an unreadable page behind it; zeros, or FILL for a result. */
static unsigned char *new_struct(const struct row *row, size_t bytes, size_t struct_size) {
    static unsigned char *pages;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (!pages) {
        pages = mmap(NULL, (PAGES + 1) * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        RF_ASSERT(pages != MAP_FAILED);
        RF_ASSERT_INT(mprotect(pages + PAGES * page, page, PROT_NONE), 0);
    }
    unsigned char *given = pages + PAGES * page - bytes;
    memset(given, row->result ? FILL : 0, bytes);
    memcpy(given, &struct_size, sizeof struct_size);
    return given;
}

static void expect_refused(const struct row *row, size_t struct_size) {
    char number[32];
    unsigned char *given = new_struct(row, row->bytes, struct_size), before[4096];
    RF_TRACE("struct_size %zu", struct_size);
    RF_ASSERT(row->bytes <= sizeof before);
    memcpy(before, given, row->bytes);
    RF_EXPECT_STATUS(row->call(given), RF_E_INVALID);
    if (row->result) RF_EXPECT(!memcmp(given, before, row->bytes));
    snprintf(number, sizeof number, "%zu", struct_size);
    RF_EXPECT_CONTAINS(rf_error_text(), row->type);
    RF_EXPECT_CONTAINS(rf_error_text(), "struct_size");
    RF_EXPECT_CONTAINS(rf_error_text(), "RF_PARAMS");
    RF_EXPECT_CONTAINS(rf_error_text(), struct_size ? number : "not set");
    snprintf(number, sizeof number, "%zu bytes", row->bytes);
    RF_EXPECT_CONTAINS(rf_error_text(), number);
}

static void check_params(const struct row *row) {
    RF_EXPECT_OK(row->call(new_struct(row, row->bytes, row->bytes)));
    RF_EXPECT_OK(row->call(new_struct(row, row->bytes + NEWER, row->bytes + NEWER)));
    /* A field of a newer library, at the first, a middle and the last byte. */
    for (size_t at = row->bytes; at <= row->bytes + NEWER; at += NEWER / 2) {
        size_t set = at < row->bytes + NEWER ? at : at - 1;
        char where[64];
        unsigned char *given = new_struct(row, row->bytes + NEWER, row->bytes + NEWER);
        RF_TRACE("byte %zu set", set);
        given[set] = 1;
        RF_EXPECT_STATUS(row->call(given), RF_E_INVALID);
        snprintf(where, sizeof where, "%s has %zu bytes", row->type, row->bytes + NEWER);
        RF_EXPECT_CONTAINS(rf_error_text(), where);
        snprintf(where, sizeof where, "first %zu of them", row->bytes);
        RF_EXPECT_CONTAINS(rf_error_text(), where);
        snprintf(where, sizeof where, "byte %zu is set", set);
        RF_EXPECT_CONTAINS(rf_error_text(), where);
        RF_EXPECT_CONTAINS(rf_error_text(), "newer library");
    }
    /* What an older program has: nothing behind it can be read. The call sets fields that it has. */
    if (row->least < row->bytes) RF_EXPECT_OK(row->call(new_struct(row, row->least, row->least)));
}

static void check_result(const struct row *row) {
    unsigned char exact[4096];
    unsigned char *given = new_struct(row, row->bytes, row->bytes);
    size_t struct_size;
    RF_EXPECT_OK(row->call(given));
    memcpy(&struct_size, given, sizeof struct_size);
    RF_EXPECT_UINT(struct_size, row->bytes);
    memcpy(exact, given, row->bytes);
    given = new_struct(row, row->bytes + NEWER, row->bytes + NEWER);
    RF_EXPECT_OK(row->call(given));
    memcpy(&struct_size, given, sizeof struct_size);
    RF_EXPECT_UINT(struct_size, row->bytes + NEWER);
    for (size_t i = row->bytes; i < row->bytes + NEWER; i++) RF_EXPECT_UINT(given[i], 0);
    for (size_t i = sizeof struct_size; i < row->bytes && !row->changes; i++) RF_EXPECT_UINT(given[i], exact[i]);
}

RF_TEST_LABELLED_CASES(struct_size, is_honoured, struct row, rows, .gpu = true, .timeout_ms = 600000) {
    gpu_need_simulated("");
    if (c->open) c->open();
    (c->result ? check_result : check_params)(c);
    const size_t never[] = {0, 1, c->least - 8, c->least - 1, c->bytes + 1, 1 << 20, SIZE_MAX - 7};
    for (size_t i = 0; i < sizeof never / sizeof never[0]; i++) expect_refused(c, never[i]);
    close_all();
}

/* ---- what has a size beside it, and what 0.1.0 had in another place ---- */

RF_TEST(struct_size, of_chat_messages) {
    struct newer {
        struct rf_chat_message message;
        uint64_t more;
    } messages[2] = {{{.role = RF_CHAT_SYSTEM, .text = "Be brief."}, 0}, {{.role = RF_CHAT_USER, .text = "Why?"}, 0}};
    const struct rf_chat_message plain[2] = {messages[0].message, messages[1].message};
    int32_t *ids = NULL, *same = NULL;
    size_t count = 0, same_count = 0;
    open_model();
    RF_ASSERT_OK(rf_chat_encode(world.engine, RF_CHAT_CHATML, plain, 2, &ids, &count));
    RF_ASSERT_OK(rf_chat_encode_sized(sizeof *messages, world.engine, RF_CHAT_CHATML, &messages[0].message, 2, &same,
                                      &same_count));
    RF_EXPECT_UINT(same_count, count);
    RF_EXPECT(!memcmp(ids, same, count * sizeof *ids));
    rf_token_ids_destroy(&ids);
    messages[1].more = 1;
    RF_EXPECT_STATUS(
        rf_chat_encode_sized(sizeof *messages, world.engine, RF_CHAT_CHATML, &messages[0].message, 2, &ids, &count),
        RF_E_INVALID);
    RF_EXPECT_CONTAINS(rf_error_text(), "struct rf_chat_message has 64 bytes");
    RF_EXPECT_CONTAINS(rf_error_text(), "byte 56 is set");
    RF_EXPECT_STATUS(rf_chat_encode_sized(8, world.engine, RF_CHAT_CHATML, plain, 2, &ids, &count), RF_E_INVALID);
    RF_EXPECT(!ids);
    rf_token_ids_destroy(&same);
    close_all();
}

RF_TEST(struct_size, what_0_1_0_had_is_reserved) {
    RF_PARAMS(struct rf_generate_params, params);
    RF_PARAMS(struct rf_generate_result, result);
    open_model();
    params.max_tokens = 1;
    params.reserved[3] = 1;
    RF_EXPECT_STATUS(rf_session_generate(world.session, &params, &result), RF_E_INVALID);
    RF_EXPECT_CONTAINS(rf_error_text(), "reserved[3]");
    RF_EXPECT_CONTAINS(rf_error_text(), "sampling");
    close_all();
}
