/* The variables of a rendering: from JSON and from structured messages to values. What comes from outside is checked
 * here, once: after this all texts are UTF-8 and no data is nested deeper than RF_TPL_DATA_DEPTH_MAX.
 *
 * Marks: all texts are data (0), except the beginning and the end token, and the roles, of which there are only the
 * few known ones: a template that writes '<|' + role + '|>' means a control token. */
#include <stdio.h>

#include "template/template_impl.h"

static const char *const roles[] = {"system", "user", "assistant", "tool", "developer"};

/* ---- JSON ---- */

static rf_status convert(struct rf_run *run, const json_t *json, int depth, struct rf_tpl_value *out);

rf_status rf_tpl_from_json(struct rf_run *run, const json_t *json, struct rf_tpl_value *out) {
    return convert(run, json, 0, out);
}

static rf_status convert_object(struct rf_run *run, const json_t *json, int depth, struct rf_tpl_value *out) {
    struct rf_tpl_dict *dict = rf_tpl_dict_new(run);
    if (!dict) return RF_E_NO_MEMORY;
    json_t *object = (json_t *)json; /* jansson's iterators want it so, and change nothing */
    for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at)) {
        struct rf_tpl_value value, key;
        key = rf_tpl_of_text(rf_tpl_text_of(run, json_object_iter_key(at), json_object_iter_key_len(at), 0));
        if (!key.text) return RF_E_NO_MEMORY;
        RF_TRY(convert(run, json_object_iter_value(at), depth + 1, &value));
        RF_TRY(rf_tpl_dict_set(run, dict, &key, &value));
    }
    *out = rf_tpl_of_dict(dict);
    return RF_OK;
}

static rf_status convert(struct rf_run *run, const json_t *json, int depth, struct rf_tpl_value *out) {
    if (depth > RF_TPL_DATA_DEPTH_MAX)
        return rf_fail(RF_E_INVALID, "JSON is nested deeper than %d", RF_TPL_DATA_DEPTH_MAX);
    switch (json_typeof(json)) {
    case JSON_NULL: *out = rf_tpl_none(); return RF_OK;
    case JSON_TRUE:
    case JSON_FALSE: *out = rf_tpl_bool(json_is_true(json)); return RF_OK;
    case JSON_INTEGER: *out = rf_tpl_int(json_integer_value(json)); return RF_OK;
    case JSON_REAL: *out = rf_tpl_float(json_real_value(json)); return RF_OK;
    case JSON_STRING:
        *out = rf_tpl_of_text(rf_tpl_text_of(run, json_string_value(json), json_string_length(json), 0));
        return out->text ? RF_OK : RF_E_NO_MEMORY;
    case JSON_OBJECT: return convert_object(run, json, depth, out);
    default: break;
    }
    struct rf_tpl_list *list = rf_tpl_list_new(run, json_array_size(json));
    if (!list) return RF_E_NO_MEMORY;
    for (size_t i = 0; i < json_array_size(json); i++) {
        struct rf_tpl_value value;
        RF_TRY(convert(run, json_array_get(json, i), depth + 1, &value));
        RF_TRY(rf_tpl_list_add(run, list, &value));
    }
    *out = rf_tpl_of_list(list, false);
    return RF_OK;
}

/* Reads a text; the tree lives as long as the rendering. */
static rf_status read_json(struct rf_run *run, const char *text, size_t bytes, const char *what, const json_t **out) {
    struct rf_run_tree *tree = RF_ARENA_NEW(&run->arena, struct rf_run_tree);
    if (!tree) return RF_E_NO_MEMORY;
    RF_TRY(rf_json_read(run->account, text, bytes, what, &tree->tree));
    tree->next = run->trees;
    run->trees = tree;
    *out = tree->tree.root;
    return RF_OK;
}

/* ---- tools ---- */

static rf_status set(struct rf_run *run, struct rf_tpl_dict *dict, const char *name, struct rf_tpl_value value) {
    struct rf_tpl_value key = rf_tpl_of_text(rf_tpl_text_of(run, name, strlen(name), 0));
    return key.text ? rf_tpl_dict_set(run, dict, &key, &value) : RF_E_NO_MEMORY;
}

static rf_status set_text(struct rf_run *run, struct rf_tpl_dict *dict, const char *name, const char *text,
                          unsigned char mark) {
    struct rf_tpl_text *made = rf_tpl_text_of(run, text, strlen(text), mark);
    return made ? set(run, dict, name, rf_tpl_of_text(made)) : RF_E_NO_MEMORY;
}

static bool has_name(const json_t *object) {
    const json_t *name = json_object_get(object, "name");
    return json_is_string(name) && json_string_length(name) > 0;
}

/* The functions that may be called: OpenAI's form, or the function itself. */
static rf_status check_tools(const json_t *tools) {
    if (json_is_null(tools)) return RF_OK;
    if (!json_is_array(tools)) return rf_fail(RF_E_INVALID, "tools is not a list");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i), *function = json_object_get(tool, "function");
        if (!json_is_object(tool)) return rf_fail(RF_E_INVALID, "tools[%zu] is not an object", i);
        if (!has_name(function ? function : tool))
            return rf_fail(RF_E_INVALID,
                           "tools[%zu] has no name: it needs {\"type\": \"function\", \"function\": "
                           "{\"name\": …}}",
                           i);
    }
    return RF_OK;
}

/* ---- messages as JSON ---- */

static bool known_role(const char *text, size_t bytes) {
    for (size_t i = 0; i < RF_COUNT(roles); i++)
        if (strlen(roles[i]) == bytes && memcmp(roles[i], text, bytes) == 0) return true;
    return false;
}

static rf_status check_calls(const json_t *calls, size_t message) {
    if (!calls || json_is_null(calls)) return RF_OK;
    if (!json_is_array(calls)) return rf_fail(RF_E_INVALID, "messages[%zu]: tool_calls is not a list", message);
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i), *function = json_object_get(call, "function");
        if (!json_is_object(call) || !has_name(function ? function : call))
            return rf_fail(RF_E_INVALID, "messages[%zu]: tool_calls[%zu] has no name", message, i);
        const json_t *arguments = json_object_get(function ? function : call, "arguments");
        if (arguments && !json_is_object(arguments) && !json_is_string(arguments) && !json_is_null(arguments))
            return rf_fail(RF_E_INVALID, "messages[%zu]: the arguments of tool_calls[%zu] are not an object", message,
                           i);
    }
    return RF_OK;
}

static rf_status check_messages(const json_t *messages) {
    if (!messages) return rf_fail(RF_E_INVALID, "the conversation has no messages");
    if (!json_is_array(messages)) return rf_fail(RF_E_INVALID, "messages is not a list");
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i), *role = json_object_get(message, "role");
        if (!json_is_object(message)) return rf_fail(RF_E_INVALID, "messages[%zu] is not an object", i);
        if (!json_is_string(role)) return rf_fail(RF_E_INVALID, "messages[%zu] has no role", i);
        if (!known_role(json_string_value(role), json_string_length(role)))
            return rf_fail(
                RF_E_INVALID,
                "messages[%zu]: the role \"%.40s\" is not known: use system, developer, user, assistant or "
                "tool",
                i, json_string_value(role));
        const json_t *content = json_object_get(message, "content");
        if (content && !json_is_string(content) && !json_is_null(content) && !json_is_array(content))
            return rf_fail(RF_E_INVALID, "messages[%zu]: the content is neither a text nor a list of parts", i);
        RF_TRY(check_calls(json_object_get(message, "tool_calls"), i));
    }
    return RF_OK;
}

static void mark_roles(const struct rf_tpl_value *messages) {
    for (size_t i = 0; i < messages->list->count; i++) {
        struct rf_tpl_value *role = rf_tpl_dict_get(messages->list->items[i].dict, "role", 4);
        if (role && role->kind == RF_TPL_TEXT) role->text->mark = 1;
    }
}

/* The object itself, or the one of that name in a list. */
static rf_status find_conversation(const json_t *root, const char *name, const json_t **out) {
    *out = root;
    if (json_is_object(root)) {
        const char *own = json_string_value(json_object_get(root, "name"));
        if (name && (!own || strcmp(own, name) != 0))
            return rf_fail(RF_E_NOT_FOUND, "the conversation is not named \"%.80s\"", name);
        return RF_OK;
    }
    if (!json_is_array(root)) return rf_fail(RF_E_INVALID, "the conversation is not an object");
    if (!name) return rf_fail(RF_E_INVALID, "there is a list of conversations: say which by its name");
    for (size_t i = 0; i < json_array_size(root); i++) {
        const char *each = json_string_value(json_object_get(json_array_get(root, i), "name"));
        if (!each || strcmp(each, name) != 0) continue;
        *out = json_array_get(root, i);
        return RF_OK;
    }
    return rf_fail(RF_E_NOT_FOUND, "no conversation is named \"%.80s\"", name);
}

static rf_status set_conversation(struct rf_run *run, const struct rf_chat_params *params) {
    const json_t *root = NULL;
    RF_TRY(read_json(run, params->conversation, params->conversation_bytes, "the conversation", &root));
    RF_TRY(find_conversation(root, params->conversation_name, &root));
    RF_TRY(check_messages(json_object_get(root, "messages")));
    if (json_object_get(root, "tools")) RF_TRY(check_tools(json_object_get(root, "tools")));
    struct rf_tpl_value all;
    RF_TRY(rf_tpl_from_json(run, root, &all));
    mark_roles(rf_tpl_dict_get(all.dict, "messages", 8));
    for (size_t i = 0; i < all.dict->count; i++) {
        const struct rf_tpl_entry *entry = &all.dict->entries[i];
        if (rf_tpl_text_is(entry->key.text, "name")) continue; /* the conversation's, not a variable */
        RF_TRY(rf_tpl_dict_set(run, run->variables, &entry->key, &entry->value));
    }
    return RF_OK;
}

/* ---- structured messages ---- */

static rf_status check_text(const char *text, size_t message, const char *what) {
    if (text && !rf_text_is_utf8(text, strlen(text)))
        return rf_fail(RF_E_SYNTAX, "messages[%zu]: the %s is not valid UTF-8", message, what);
    return RF_OK;
}

static rf_status make_call(struct rf_run *run, const struct rf_chat_tool_call *call, size_t message, size_t index,
                           bool arguments_as_text, struct rf_tpl_value *out) {
    struct rf_tpl_dict *dict = rf_tpl_dict_new(run), *function = rf_tpl_dict_new(run);
    const char *arguments = call->arguments ? call->arguments : "{}";
    const json_t *read = NULL;
    char what[80];
    if (!dict || !function) return RF_E_NO_MEMORY;
    if (!call->name || !*call->name)
        return rf_fail(RF_E_INVALID, "messages[%zu]: tool call %zu has no name", message, index);
    RF_TRY(check_text(call->name, message, "name of a tool call"));
    RF_TRY(check_text(call->id, message, "id of a tool call"));
    snprintf(what, sizeof what, "messages[%zu]: the arguments of tool call %zu", message, index);
    RF_TRY(read_json(run, arguments, strlen(arguments), what, &read));
    if (!json_is_object(read)) return rf_fail(RF_E_INVALID, "%s are not a JSON object", what);
    if (call->id) RF_TRY(set_text(run, dict, "id", call->id, 0));
    RF_TRY(set_text(run, dict, "type", "function", 0));
    RF_TRY(set_text(run, function, "name", call->name, 0));
    if (arguments_as_text) {
        RF_TRY(set_text(run, function, "arguments", arguments, 0));
    } else {
        struct rf_tpl_value value;
        RF_TRY(rf_tpl_from_json(run, read, &value));
        RF_TRY(set(run, function, "arguments", value));
    }
    RF_TRY(set(run, dict, "function", rf_tpl_of_dict(function)));
    *out = rf_tpl_of_dict(dict);
    return RF_OK;
}

static rf_status make_message(struct rf_run *run, const struct rf_chat_message *message, size_t index,
                              bool arguments_as_text, struct rf_tpl_value *out) {
    struct rf_tpl_dict *dict = rf_tpl_dict_new(run);
    if (!dict) return RF_E_NO_MEMORY;
    if ((unsigned)message->role >= RF_COUNT(roles))
        return rf_fail(RF_E_INVALID, "messages[%zu]: there is no role %d", index, (int)message->role);
    bool assistant = message->role == RF_CHAT_ASSISTANT;
    if (!message->text && !(assistant && message->tool_call_count))
        return rf_fail(RF_E_INVALID, "messages[%zu] has no text", index);
    if (!assistant && (message->tool_call_count || message->reasoning))
        return rf_fail(RF_E_INVALID, "messages[%zu]: only an assistant calls tools and reasons", index);
    if (message->tool_call_count && !message->tool_calls)
        return rf_fail(RF_E_INVALID, "messages[%zu]: its tool calls are NULL", index);
    RF_TRY(check_text(message->text, index, "text"));
    RF_TRY(check_text(message->reasoning, index, "reasoning"));
    RF_TRY(check_text(message->tool_call_id, index, "tool_call_id"));
    RF_TRY(check_text(message->name, index, "name"));
    RF_TRY(set_text(run, dict, "role", roles[message->role], 1));
    RF_TRY(set_text(run, dict, "content", message->text ? message->text : "", 0));
    if (message->reasoning && *message->reasoning)
        RF_TRY(set_text(run, dict, "reasoning_content", message->reasoning, 0));
    if (message->tool_call_count) {
        struct rf_tpl_list *calls = rf_tpl_list_new(run, 0);
        if (!calls) return RF_E_NO_MEMORY;
        for (size_t i = 0; i < message->tool_call_count; i++) {
            struct rf_tpl_value call;
            RF_TRY(make_call(run, &message->tool_calls[i], index, i, arguments_as_text, &call));
            RF_TRY(rf_tpl_list_add(run, calls, &call));
        }
        RF_TRY(set(run, dict, "tool_calls", rf_tpl_of_list(calls, false)));
    }
    if (message->tool_call_id) RF_TRY(set_text(run, dict, "tool_call_id", message->tool_call_id, 0));
    if (message->name) RF_TRY(set_text(run, dict, "name", message->name, 0));
    *out = rf_tpl_of_dict(dict);
    return RF_OK;
}

static rf_status set_messages(struct rf_run *run, const struct rf_chat_params *params, bool arguments_as_text,
                              bool *has_calls) {
    struct rf_tpl_list *list = rf_tpl_list_new(run, 0);
    if (!list) return RF_E_NO_MEMORY;
    for (size_t i = 0; i < params->message_count; i++) {
        struct rf_chat_message message;
        struct rf_tpl_value value;
        RF_TRY(rf_element_read(&message, sizeof message, offsetof(struct rf_chat_message, reasoning),
                               (const char *)params->messages + i * params->message_bytes, params->message_bytes,
                               "struct rf_chat_message", "rf_chat_render"));
        *has_calls |= message.tool_call_count > 0;
        RF_TRY(make_message(run, &message, i, arguments_as_text, &value));
        RF_TRY(rf_tpl_list_add(run, list, &value));
    }
    return set(run, run->variables, "messages", rf_tpl_of_list(list, false));
}

/* ---- all of them ---- */

static rf_status set_variables(struct rf_run *run, const char *text) {
    const json_t *root = NULL;
    struct rf_tpl_value all;
    RF_TRY(read_json(run, text, strlen(text), "variables", &root));
    if (!json_is_object(root)) return rf_fail(RF_E_INVALID, "variables is not a JSON object");
    static const char *const others[] = {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"};
    for (size_t i = 0; i < RF_COUNT(others); i++)
        if (json_object_get(root, others[i]))
            return rf_fail(RF_E_INVALID, "variables holds \"%s\", which is not given that way", others[i]);
    RF_TRY(rf_tpl_from_json(run, root, &all));
    for (size_t i = 0; i < all.dict->count; i++)
        RF_TRY(rf_tpl_dict_set(run, run->variables, &all.dict->entries[i].key, &all.dict->entries[i].value));
    return RF_OK;
}

rf_status rf_tpl_variables(struct rf_run *run, const struct rf_chat_params *params, bool arguments_as_text,
                           bool *has_calls) {
    const char *bos = params->bos ? params->bos : "", *eos = params->eos ? params->eos : "";
    run->variables = rf_tpl_dict_new(run);
    if (!run->variables) return RF_E_NO_MEMORY;
    if (!rf_text_is_utf8(bos, strlen(bos)) || !rf_text_is_utf8(eos, strlen(eos)))
        return rf_fail(RF_E_SYNTAX, "the beginning or the end token is not valid UTF-8");
    RF_TRY(set_text(run, run->variables, "bos_token", bos, 1));
    RF_TRY(set_text(run, run->variables, "eos_token", eos, 1));
    RF_TRY(set(run, run->variables, "add_generation_prompt", rf_tpl_bool(!params->no_generation_prompt)));
    struct rf_tpl_value tools = rf_tpl_none();
    if (params->tools) {
        const json_t *root = NULL;
        RF_TRY(read_json(run, params->tools, strlen(params->tools), "tools", &root));
        RF_TRY(check_tools(root));
        RF_TRY(rf_tpl_from_json(run, root, &tools));
    }
    RF_TRY(set(run, run->variables, "tools", tools));
    if (params->variables) RF_TRY(set_variables(run, params->variables));
    return params->conversation ? set_conversation(run, params)
                                : set_messages(run, params, arguments_as_text, has_calls);
}
