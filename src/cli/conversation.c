/* A conversation as JSON: see conversation.h. */
#include "conversation.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool refuse(char why[CONVERSATION_WHY_BYTES], const char *format, ...) RF_PRINTF(2, 3);
static bool refuse(char why[CONVERSATION_WHY_BYTES], const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(why, CONVERSATION_WHY_BYTES, format, args);
    va_end(args);
    return false;
}

/* NULL: 'why' has the place and what is wrong there. */
static json_t *read_json(const char *text, size_t bytes, char why[CONVERSATION_WHY_BYTES]) {
    json_error_t error;
    if (bytes > CONVERSATION_BYTES_MAX) {
        refuse(why, "%zu bytes are more than the %d that are read", bytes, CONVERSATION_BYTES_MAX);
        return NULL;
    }
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    if (!root) refuse(why, "not JSON: line %d, column %d: %s", error.line, error.column, error.text);
    return root;
}

static json_t *messages_of(const struct conversation *conversation) {
    return json_object_get(conversation->root, "messages");
}
static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* ---- what a message must be ---- */

static bool role_is_known(const char *name) {
    for (int role = RF_CHAT_SYSTEM; role <= RF_CHAT_DEVELOPER; role++)
        if (!strcmp(name, rf_chat_role_name((enum rf_chat_role)role))) return true;
    return false;
}

/* A call is {"function": {"name", "arguments"}}, as OpenAI has it, or {"name", "arguments"}. Arguments are an object,
 * or the text of one. */
static bool call_is_good(const json_t *call, size_t message, char why[CONVERSATION_WHY_BYTES]) {
    const json_t *function = json_object_get(call, "function");
    if (!function) function = call;
    if (!*text_of(function, "name")) return refuse(why, "message %zu: a tool call has no name", message);
    const json_t *arguments = json_object_get(function, "arguments");
    if (!arguments || json_is_object(arguments)) return true;
    char ignored[CONVERSATION_WHY_BYTES];
    json_t *parsed = json_is_string(arguments)
                         ? read_json(json_string_value(arguments), json_string_length(arguments), ignored)
                         : NULL;
    bool good = json_is_object(parsed);
    json_decref(parsed);
    return good || refuse(why, "message %zu: the arguments of the tool call %.100s are not a JSON object", message,
                          text_of(function, "name"));
}

static bool message_is_good(const json_t *message, size_t number, char why[CONVERSATION_WHY_BYTES]) {
    if (!json_is_object(message)) return refuse(why, "message %zu is not a JSON object", number);
    const char *role = text_of(message, "role");
    if (!*role) return refuse(why, "message %zu has no role", number);
    if (!role_is_known(role))
        return refuse(why,
                      "message %zu: unknown role \"%.60s\": the roles are system, user, assistant, tool, developer",
                      number, role);
    const json_t *calls = json_object_get(message, "tool_calls"), *content = json_object_get(message, "content");
    bool has_calls = json_is_array(calls) && json_array_size(calls);
    if (calls && !json_is_null(calls) && (!json_is_array(calls) || strcmp(role, "assistant") != 0))
        return refuse(why, "message %zu: tool calls must be a list, in a message of the assistant", number);
    for (size_t i = 0; has_calls && i < json_array_size(calls); i++)
        if (!call_is_good(json_array_get(calls, i), number, why)) return false;
    bool has_content = json_is_string(content) || json_is_array(content);
    if (!has_content && !((!content || json_is_null(content)) && has_calls))
        return refuse(why, "message %zu has no content: a text is needed", number);
    for (size_t i = 0; json_is_array(content) && i < json_array_size(content); i++)
        if (!json_is_object(json_array_get(content, i)))
            return refuse(why, "message %zu: a part of its content is not a JSON object", number);
    return true;
}

static bool is_list_of_tools(const json_t *tools, char why[CONVERSATION_WHY_BYTES]) {
    if (!json_is_array(tools)) return refuse(why, "the tools are not a JSON array");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i), *function = json_object_get(tool, "function");
        if (!*text_of(function ? function : tool, "name")) return refuse(why, "tool %zu has no name", i + 1);
    }
    return true;
}

/* ---- beginning and ending ---- */

bool conversation_begin(struct conversation *conversation, const char *tools, const char *variables,
                        char why[CONVERSATION_WHY_BYTES]) {
    json_t *root = variables ? read_json(variables, strlen(variables), why) : json_object();
    json_t *offered = tools && root ? read_json(tools, strlen(tools), why) : NULL;
    bool good = root && (offered || !tools);
    if (!root && !variables) refuse(why, "no memory");
    if (good && !json_is_object(root)) good = refuse(why, "the variables are not a JSON object");
    if (good && json_object_get(root, "messages")) good = refuse(why, "\"messages\" cannot be a variable");
    if (good && offered) good = is_list_of_tools(offered, why);
    if (good && offered && json_object_set(root, "tools", offered) != 0) good = refuse(why, "no memory");
    if (good && json_object_set_new(root, "messages", json_array()) != 0) good = refuse(why, "no memory");
    json_decref(offered);
    if (good)
        conversation->root = root;
    else
        json_decref(root);
    return good;
}

void conversation_finish(struct conversation *conversation) {
    json_decref(conversation->root);
    conversation->root = NULL;
}

/* ---- looking at it ---- */

size_t conversation_count(const struct conversation *conversation) {
    return json_array_size(messages_of(conversation));
}

static bool has_role(const json_t *message, const char *role) {
    return !strcmp(text_of(message, "role"), role);
}

bool conversation_waits(const struct conversation *conversation) {
    const json_t *messages = messages_of(conversation);
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    return last && (has_role(last, "user") || has_role(last, "tool"));
}

bool conversation_offers_tools(const struct conversation *conversation) {
    return json_array_size(json_object_get(conversation->root, "tools")) > 0;
}

char *conversation_tools(const struct conversation *conversation) {
    return conversation_offers_tools(conversation)
               ? json_dumps(json_object_get(conversation->root, "tools"), JSON_COMPACT)
               : NULL;
}

static json_t *system_of(const struct conversation *conversation) {
    json_t *first = json_array_get(messages_of(conversation), 0);
    return first && (has_role(first, "system") || has_role(first, "developer")) ? first : NULL;
}

const char *conversation_system(const struct conversation *conversation) {
    const json_t *message = system_of(conversation);
    return message ? text_of(message, "content") : NULL;
}

/* ---- changing it ---- */

bool conversation_set_system(struct conversation *conversation, const char *text) {
    json_t *messages = messages_of(conversation), *message = system_of(conversation);
    if (!text) return !message || json_array_remove(messages, 0) == 0;
    if (message) return json_object_set_new(message, "content", json_string(text)) == 0;
    return json_array_insert_new(messages, 0, json_pack("{s:s, s:s}", "role", "system", "content", text)) == 0;
}

bool conversation_add_user(struct conversation *conversation, const char *text) {
    return json_array_append_new(messages_of(conversation),
                                 json_pack("{s:s, s:s}", "role", "user", "content", text)) == 0;
}

char *conversation_call(const struct rf_chat_tool_call *call) {
    char ignored[CONVERSATION_WHY_BYTES];
    const char *arguments = call->arguments ? call->arguments : "{}";
    json_t *object = read_json(arguments, strlen(arguments), ignored);
    char *line = NULL;
    if (json_is_object(object)) {
        json_t *made = json_pack("{s:s, s:O}", "name", call->name, "arguments", object);
        if (made && call->id && json_object_set_new(made, "id", json_string(call->id)) != 0) {
            json_decref(made);
            made = NULL;
        }
        line = made ? json_dumps(made, JSON_COMPACT) : NULL;
        json_decref(made);
    }
    json_decref(object);
    return line;
}

/* In the form of OpenAI's API; NULL: no memory. */
static json_t *call_of_line(const char *line) {
    char ignored[CONVERSATION_WHY_BYTES];
    json_t *call = read_json(line, strlen(line), ignored);
    json_t *made = json_pack("{s:s, s:{s:O, s:O}}", "type", "function", "function", "name",
                             json_object_get(call, "name"), "arguments", json_object_get(call, "arguments"));
    json_t *id = json_object_get(call, "id");
    if (made && id && json_object_set(made, "id", id) != 0) {
        json_decref(made);
        made = NULL;
    }
    json_decref(call);
    return made;
}

bool conversation_add_answer(struct conversation *conversation, const char *text, const char *reasoning,
                             const char *const *calls, size_t call_count) {
    json_t *message = json_pack("{s:s, s:s}", "role", "assistant", "content", text);
    bool good = message != NULL;
    if (good && reasoning && *reasoning)
        good = json_object_set_new(message, "reasoning_content", json_string(reasoning)) == 0;
    if (good && call_count) {
        json_t *list = json_array();
        for (size_t i = 0; i < call_count && good; i++)
            good = json_array_append_new(list, call_of_line(calls[i])) == 0;
        good = json_object_set_new(message, "tool_calls", list) == 0 && good;
    }
    if (good) return json_array_append_new(messages_of(conversation), message) == 0;
    json_decref(message);
    return false;
}

void conversation_cut(struct conversation *conversation, size_t count) {
    json_t *messages = messages_of(conversation);
    while (json_array_size(messages) > count) json_array_remove(messages, json_array_size(messages) - 1);
}

void conversation_reset(struct conversation *conversation) {
    conversation_cut(conversation, system_of(conversation) ? 1 : 0);
}

bool conversation_undo(struct conversation *conversation) {
    json_t *messages = messages_of(conversation);
    for (size_t at = json_array_size(messages); at > 0; at--)
        if (has_role(json_array_get(messages, at - 1), "user")) {
            conversation_cut(conversation, at - 1);
            return true;
        }
    return false;
}

/* ---- as text ---- */

char *conversation_text(const struct conversation *conversation) {
    return json_dumps(conversation->root, JSON_INDENT(1));
}

/* A message as templates want it: a reference to it, or a copy; NULL: no memory. */
static json_t *message_for_template(json_t *message) {
    json_t *reasoning = json_object_get(message, "reasoning_content"),
           *calls = json_object_get(message, "tool_calls");
    if (!json_is_string(reasoning) && !json_is_array(calls)) return json_incref(message);
    json_t *copy = json_deep_copy(message);
    bool good = copy != NULL;
    /* gpt-oss refuses a call with both content and thinking. */
    bool thinks = !(json_is_array(calls) && *text_of(message, "content"));
    if (good && json_is_string(reasoning)) {
        if (!json_object_get(copy, "reasoning")) good = json_object_set(copy, "reasoning", reasoning) == 0;
        if (good && thinks && !json_object_get(copy, "thinking"))
            good = json_object_set(copy, "thinking", reasoning) == 0;
    }
    calls = json_object_get(copy, "tool_calls");
    for (size_t i = 0; good && i < json_array_size(calls); i++) {
        json_t *call = json_array_get(calls, i), *function = json_object_get(call, "function");
        if (!function) function = call;
        const json_t *arguments = json_object_get(function, "arguments");
        char ignored[CONVERSATION_WHY_BYTES];
        if (json_is_string(arguments))
            good = json_object_set_new(
                       function, "arguments",
                       read_json(json_string_value(arguments), json_string_length(arguments), ignored)) == 0;
    }
    if (good) return copy;
    json_decref(copy);
    return NULL;
}

char *conversation_for_template(const struct conversation *conversation) {
    json_t *root = json_copy(conversation->root), *messages = json_array(), *message;
    bool good = root && messages && json_object_set_new(root, "messages", json_incref(messages)) == 0;
    size_t i;
    json_array_foreach(messages_of(conversation), i, message) good =
        good && json_array_append_new(messages, message_for_template(message)) == 0;
    char *text = good ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(messages);
    json_decref(root);
    return text;
}

bool conversation_parse(struct conversation *conversation, const char *text, size_t bytes,
                        char why[CONVERSATION_WHY_BYTES]) {
    json_t *root = read_json(text, bytes, why);
    const json_t *messages = json_object_get(root, "messages"), *tools = json_object_get(root, "tools");
    bool good = root != NULL;
    if (good && !json_is_array(messages)) good = refuse(why, "there is no list of \"messages\" in it");
    for (size_t i = 0; good && i < json_array_size(messages); i++)
        good = message_is_good(json_array_get(messages, i), i + 1, why);
    if (good && tools && !json_is_null(tools)) good = is_list_of_tools(tools, why);
    if (good) json_object_del(root, "add_generation_prompt"); /* an answer is always begun */
    if (good && json_object_update_missing(root, conversation->root) != 0) good = refuse(why, "no memory");
    if (!good) {
        json_decref(root);
        return false;
    }
    json_decref(conversation->root);
    conversation->root = root;
    return true;
}

struct rf_chat_message *conversation_messages(const struct conversation *conversation,
                                              char why[CONVERSATION_WHY_BYTES]) {
    const json_t *messages = messages_of(conversation);
    size_t count = json_array_size(messages);
    struct rf_chat_message *list = calloc(count + 1, sizeof *list);
    if (!list) refuse(why, "no memory for %zu messages", count);
    for (size_t i = 0; i < count && list; i++) {
        const json_t *message = json_array_get(messages, i), *content = json_object_get(message, "content");
        bool good = json_is_string(content) && !json_object_get(message, "tool_calls") &&
                    strlen(json_string_value(content)) == json_string_length(content);
        list[i].text = json_string_value(content);
        if (has_role(message, "user"))
            list[i].role = RF_CHAT_USER;
        else if (has_role(message, "assistant"))
            list[i].role = RF_CHAT_ASSISTANT;
        else if (!has_role(message, "tool"))
            list[i].role = RF_CHAT_SYSTEM;
        else
            good = false;
        if (good) continue;
        refuse(why, "message %zu is more than text: a built-in format cannot hold it; a chat template can", i + 1);
        free(list);
        list = NULL;
    }
    return list;
}
