/* Chat templates: made from a source, rendered with a conversation. The public entry of this folder.
 *
 * Invariants: a rendering's memory, trees of JSON included, is freed before rf_chat_render returns; what it gives is
 * the caller's. Nothing of a template changes while it is rendered. */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/host_memory.h"
#include "runtime/runtime.h"
#include "template/template_impl.h"

/* ---- limits ---- */

rf_status rf_run_steps(struct rf_run *run, uint64_t steps) {
    if (steps > RF_TPL_STEPS_MAX - run->steps)
        return rf_fail(RF_E_NO_MEMORY, "the template takes more than %u steps", RF_TPL_STEPS_MAX);
    run->steps += steps;
    return RF_OK;
}

rf_status rf_run_enter(struct rf_run *run) {
    if (run->depth >= RF_TPL_DEPTH_MAX)
        return rf_fail(RF_E_NO_MEMORY, "the template is nested or recurses deeper than %d", RF_TPL_DEPTH_MAX);
    run->depth++;
    return RF_OK;
}

rf_status rf_run_fail(struct rf_run *run, const char *format, ...) {
    char text[512];
    va_list args;
    (void)run;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return rf_fail(RF_E_UNSUPPORTED, "%s", text);
}

/* ---- making ---- */

static struct rf_account account_of(struct rf_runtime *runtime) {
    return runtime ? rf_host_account(&runtime->host) : rf_account_open(NULL);
}

static char *copy(struct rf_arena *arena, const char *text, size_t bytes) {
    char *made = rf_arena_take_raw(arena, bytes + 1);
    if (!made) return NULL;
    if (bytes) memcpy(made, text, bytes);
    made[bytes] = 0;
    return made;
}

static rf_status make(struct rf_chat_template *chat_template, const struct rf_chat_template_params *params) {
    struct rf_tpl_tokens tokens = {0};
    const char *name = params->name ? params->name : "the chat template";
    chat_template->name = copy(&chat_template->arena, name, strlen(name));
    chat_template->source = copy(&chat_template->arena, params->source, params->source_bytes);
    if (!chat_template->name || !chat_template->source) return RF_E_NO_MEMORY;
    name = chat_template->name;
    if (!rf_text_is_utf8(params->source, params->source_bytes))
        return rf_fail(RF_E_SYNTAX, "%s is not valid UTF-8", name);
    RF_TRY(rf_tpl_lex(&chat_template->arena, name, chat_template->source, params->source_bytes, &tokens));
    RF_TRY(rf_tpl_parse(&chat_template->arena, name, &tokens, &chat_template->body));
    RF_TRY(rf_tpl_check(name, &chat_template->body));
    return rf_tpl_find_unset(&chat_template->arena, &chat_template->body, &chat_template->unset);
}

rf_status rf_chat_template_create(const struct rf_chat_template_params *params, struct rf_chat_template **out) {
    struct rf_chat_template_params own;
    RF_TRY(RF_PARAMS_READ(struct rf_chat_template_params, &own, params, "rf_chat_template_create"));
    if (!out || (!own.source && own.source_bytes))
        return rf_fail(RF_E_INVALID, "rf_chat_template_create: %s is NULL", out ? "source" : "out");
    if (own.source_bytes > RF_TPL_SOURCE_BYTES_MAX)
        return rf_fail(RF_E_NO_MEMORY, "a chat template of %zu bytes is too large: at most %u", own.source_bytes,
                       RF_TPL_SOURCE_BYTES_MAX);
    struct rf_chat_template *chat_template = calloc(1, sizeof *chat_template);
    if (!chat_template) return rf_fail(RF_E_NO_MEMORY, "no host memory for a chat template");
    struct rf_account account = account_of(own.runtime);
    rf_arena_init(&chat_template->arena, &account, RF_TPL_TREE_BYTES_MAX, "reading the chat template");
    chat_template->runtime = own.runtime;
    rf_status status = make(chat_template, &own);
    if (status) {
        rf_chat_template_destroy(&chat_template);
        return status;
    }
    *out = chat_template;
    return RF_OK;
}

void rf_chat_template_destroy(struct rf_chat_template **chat_template) {
    if (!chat_template || !*chat_template) return;
    rf_arena_finish(&(*chat_template)->arena);
    free(*chat_template);
    *chat_template = NULL;
}

const char *rf_chat_template_source(const struct rf_chat_template *chat_template) {
    return chat_template ? chat_template->source : "";
}

/* ---- rendering ---- */

static rf_status give(const struct rf_tpl_builder *from, struct rf_chat_prompt *prompt) {
    struct rf_chat_prompt made = {.bytes = from->length};
    made.text = malloc(from->length + 1);
    made.own = malloc(from->length + 1);
    if (!made.text || !made.own) {
        free(made.text);
        free(made.own);
        return rf_fail(RF_E_NO_MEMORY, "no host memory for a prompt of %zu bytes", from->length);
    }
    if (from->length) {
        memcpy(made.text, from->bytes, from->length);
        memcpy(made.own, from->own, from->length);
    }
    made.text[from->length] = 0;
    made.own[from->length] = 0;
    RF_RESULT_WRITE(struct rf_chat_prompt, prompt, &made);
    return RF_OK;
}

static rf_status render(const struct rf_chat_template *chat_template, const struct rf_chat_params *params,
                        bool arguments_as_text, bool *has_calls, struct rf_chat_prompt *prompt) {
    struct rf_account account = account_of(chat_template->runtime);
    struct rf_run run = {.account = &account, .chat_template = chat_template};
    struct rf_tpl_builder out = {0};
    enum rf_flow flow = RF_FLOW_ON;
    rf_arena_init(&run.arena, &account, RF_TPL_MEMORY_BYTES_MAX, "rendering the chat template");
    run.out = &out;
    rf_status status = rf_tpl_read_now(params->now, run.now);
    if (!status) status = rf_tpl_variables(&run, params, arguments_as_text, has_calls);
    if (!status) {
        run.scope = rf_scope_push(&run, NULL, &chat_template->unset);
        status = run.scope ? rf_tpl_execute(&run, &chat_template->body, &flow) : RF_E_NO_MEMORY;
        if (status) rf_fail_within(status, "%s, line %u", chat_template->name, run.line);
    }
    if (!status) status = give(&out, prompt);
    for (struct rf_run_tree *tree = run.trees; tree; tree = tree->next) rf_json_tree_finish(&tree->tree);
    rf_arena_finish(&run.arena);
    return status;
}

rf_status rf_chat_render(const struct rf_chat_template *chat_template, const struct rf_chat_params *params,
                         struct rf_chat_prompt *prompt) {
    struct rf_chat_params own;
    RF_TRY(RF_PARAMS_READ(struct rf_chat_params, &own, params, "rf_chat_render"));
    RF_TRY(RF_RESULT_CHECK(struct rf_chat_prompt, prompt, "rf_chat_render"));
    if (!chat_template) return rf_fail(RF_E_INVALID, "rf_chat_render: chat_template is NULL");
    if (!own.messages == !own.conversation)
        return rf_fail(RF_E_INVALID, "rf_chat_render: give either messages or a conversation");
    bool has_calls = false;
    rf_status status = render(chat_template, &own, false, &has_calls, prompt);
    if (!has_calls || (status != RF_E_UNSUPPORTED && status != RF_E_INVALID)) return status;
    /* Some templates want a call's arguments as text. If that fails too, the first reason is given. */
    struct rf_saved_error saved;
    rf_error_save(&saved);
    if (!render(chat_template, &own, true, &has_calls, prompt)) return RF_OK;
    rf_error_restore(&saved);
    return status;
}

void rf_chat_prompt_finish(struct rf_chat_prompt *prompt) {
    if (!prompt) return;
    free(prompt->text);
    free(prompt->own);
    prompt->text = NULL;
    prompt->own = NULL;
    prompt->bytes = 0;
}
