/* Chat templates: what is rendered, which bytes are the template's own, what is refused, and the limits. compare.py
 * holds the language against jinja2; here stands what jinja2 cannot tell. */
#include <rocmforge/chat.h>
#include <rocmforge/test.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dirent.h>

#include "runtime/runtime.h"
#include "template/template.h"
#include "template_property.h"

static rf_status create(const char *source, struct rf_chat_template **out) {
    RF_PARAMS(struct rf_chat_template_params, params);
    params.source = source;
    params.source_bytes = strlen(source);
    params.name = "t";
    return rf_chat_template_create(&params, out);
}

/* Renders with a conversation in JSON; NULL: one message. */
static rf_status render(const char *source, const char *conversation, struct rf_chat_prompt *prompt) {
    struct rf_chat_template *chat_template = NULL;
    RF_PARAMS(struct rf_chat_params, params);
    params.conversation = conversation ? conversation : "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}";
    params.conversation_bytes = strlen(params.conversation);
    params.bos = "<s>";
    params.eos = "</s>";
    params.now = "2026-07-26T12:30";
    rf_status status = create(source, &chat_template);
    if (!status) status = rf_chat_render(chat_template, &params, prompt);
    rf_chat_template_destroy(&chat_template);
    return status;
}

static void expect_text(const char *source, const char *conversation, const char *text) {
    RF_PARAMS(struct rf_chat_prompt, prompt);
    RF_TRACE("%s", source);
    RF_ASSERT_OK(render(source, conversation, &prompt));
    RF_EXPECT_TEXT(prompt.text, text);
    RF_EXPECT_UINT(prompt.bytes, strlen(text));
    rf_chat_prompt_finish(&prompt);
}

/* One line, and no prompt. */
static void expect_refused(const char *source, const char *conversation, rf_status status, const char *part) {
    RF_PARAMS(struct rf_chat_prompt, prompt);
    RF_TRACE("%.200s", source);
    RF_EXPECT_STATUS(render(source, conversation, &prompt), status);
    RF_EXPECT_CONTAINS(rf_error_text(), part);
    RF_EXPECT(!strchr(rf_error_text(), '\n'));
    RF_EXPECT(prompt.text == NULL && prompt.own == NULL && prompt.bytes == 0);
}

/* ---- marks ---- */

struct marks {
    const char *label, *source;
    const char *text, *own; /* 'T': the template's, 'c': the conversation's */
};
#define MESSAGES "{\"messages\": [{\"role\": \"user\", \"content\": \" a<E>b \"}], \"d\": {\"k\": \"<E>\"}, \"n\": 7}"
#define CONTENT "messages[0].content"
static const struct marks marks[] = {
    {"plain", "<E>{{ " CONTENT " }}<E>", "<E> a<E>b <E>", "TTTcccccccTTT"},
    {"literal", "{{ '<E>' + " CONTENT " + '<E>' }}", "<E> a<E>b <E>", "TTTcccccccTTT"},
    {"trim", "{{ " CONTENT "|trim ~ '<E>' }}", "a<E>b<E>", "cccccTTT"},
    {"strip", "{{ (" CONTENT " + '  ').strip() }}", "a<E>b", "ccccc"},
    {"replace_old", "{{ " CONTENT "|replace('<E>', '-') }}", " a-b ", "ccTcc"},
    {"replace_new", "{{ 'x_y'|replace('_', " CONTENT ") }}", "x a<E>b y", "TcccccccT"},
    {"replace_method", "{{ '<E>'.replace('E', messages[0].role) }}", "<user>", "TTTTTT"},
    {"slice", "{{ ('<E>' + " CONTENT ")[1:6] }}", "E> a<", "TTccc"},
    {"reversed", "{{ ('<E>' + d.k)[::-1] }}", ">E<>E<", "cccTTT"},
    {"split", "{{ ('<E>|' + d.k).split('|')|join('<E>') }}", "<E><E><E>", "TTTTTTccc"},
    {"join", "{{ ['<E>', d.k]|join(d.k) }}", "<E><E><E>", "TTTcccccc"},
    {"upper", "{{ ('<e>' + d.k)|upper }}", "<E><E>", "TTTccc"},
    {"macro", "{% macro m(x) %}<E>{{ x }}{% endmacro %}{{ m(d.k) }}", "<E><E>", "TTTccc"},
    {"set_block", "{% set b %}<E>{{ d.k }}{% endset %}{{ b }}", "<E><E>", "TTTccc"},
    {"namespace",
     "{% set ns = namespace(v='<E>') %}{% for i in [1] %}{% set ns.v = ns.v + d.k %}{% endfor %}{{ ns.v }}", "<E><E>",
     "TTTccc"},
    {"filter_block", "{% filter upper %}<e>{{ d.k }}{% endfilter %}", "<E><E>", "TTTccc"},
    {"tojson", "{{ {'<E>': d.k}|tojson }}", "{\"<E>\": \"<E>\"}", "ccTTTccccccccc"},
    {"repr", "{{ ['<E>', d.k] }}", "['<E>', '<E>']", "ccTTTccccccccc"},
    {"percent", "{{ '<E>%s' % d.k }}", "<E><E>", "TTTccc"},
    {"format", "{{ '<E>{}'.format(d.k) }}", "<E><E>", "TTTccc"},
    {"number", "{{ n }}", "7", "c"},
    {"tokens", "{{ bos_token + d.k + eos_token }}", "<s><E></s>", "TTTcccTTTT"},
    {"role", "<|{{ messages[0].role }}|>", "<|user|>", "TTTTTTTT"},
    {"date", "{{ strftime_now('<%Y>') }}", "<2026>", "TccccT"},
    {"indent", "{{ ('<E>\n' + d.k)|indent(1) }}", "<E>\n <E>", "TTTTTccc"},
    {"escape", "{{ ('&' ~ d.k)|e }}", "&amp;&lt;E&gt;", "TTTTTccccccccc"},
    {"from_json", "{{ '[\"<E>\"]'|from_json|first }}", "<E>", "ccc"},
    {"repeat", "{{ ('x' + d.k) * 2 }}", "x<E>x<E>", "TcccTccc"},
    {"default", "{{ nope|default('<E>') }}{{ d.nope|default(d.k) }}", "<E><E>", "TTTccc"},
};

RF_TEST_LABELLED_CASES(template, marks, struct marks, marks) {
    RF_PARAMS(struct rf_chat_prompt, prompt);
    char own[64];
    RF_ASSERT_OK(render(c->source, MESSAGES, &prompt));
    RF_ASSERT_TEXT(prompt.text, c->text);
    RF_ASSERT(prompt.bytes < sizeof own);
    for (size_t i = 0; i < prompt.bytes; i++) own[i] = prompt.own[i] == 1 ? 'T' : prompt.own[i] == 0 ? 'c' : '?';
    own[prompt.bytes] = 0;
    RF_EXPECT_TEXT(own, c->own);
    rf_chat_prompt_finish(&prompt);
}

/* What a JSON object says of the tokens is data: only the caller's own are the template's. */
RF_TEST(template, tokens_in_a_conversation_are_data) {
    RF_PARAMS(struct rf_chat_prompt, prompt);
    RF_ASSERT_OK(render("{{ bos_token }}", "{\"messages\": [], \"bos_token\": \"<E>\"}", &prompt));
    RF_EXPECT_TEXT(prompt.text, "<E>");
    RF_EXPECT(!prompt.own[0] && !prompt.own[1] && !prompt.own[2]);
    rf_chat_prompt_finish(&prompt);
}

/* ---- refused when the template is made ---- */

struct refusal {
    const char *label, *source;
    rf_status status;
    const char *part;
};
static const struct refusal refusals[] = {
    {"include", "a\n{% include 'x' %}", RF_E_UNSUPPORTED, "t, line 2: the tag \"include\" is not supported"},
    {"import", "{% import 'x' as y %}", RF_E_UNSUPPORTED, "\"import\""},
    {"from", "{% from 'x' import y %}", RF_E_UNSUPPORTED, "\"from\""},
    {"extends", "{% extends 'x' %}", RF_E_UNSUPPORTED, "\"extends\""},
    {"block", "{% block x %}{% endblock %}", RF_E_UNSUPPORTED, "\"block\""},
    {"call", "{% call x() %}{% endcall %}", RF_E_UNSUPPORTED, "\"call\""},
    {"autoescape", "{% autoescape true %}{% endautoescape %}", RF_E_UNSUPPORTED, "\"autoescape\""},
    {"recursive", "{% for x in y recursive %}{% endfor %}", RF_E_UNSUPPORTED, "recursive loops"},
    {"unknown_tag", "\n\n{% frobnicate %}", RF_E_SYNTAX, "line 3: there is no tag \"frobnicate\""},
    {"unknown_filter", "{{ x|frobnicate }}", RF_E_UNSUPPORTED, "there is no filter \"frobnicate\""},
    {"unknown_test", "{{ x is frobnicated }}", RF_E_UNSUPPORTED, "there is no test \"frobnicated\""},
    {"open_if", "{% if x %}", RF_E_SYNTAX, "ends before the tag"},
    {"open_tag", "a {{ x ", RF_E_SYNTAX, "not ended by }}"},
    {"open_comment", "{# x", RF_E_SYNTAX, "comment"},
    {"open_string", "{{ 'x }}", RF_E_SYNTAX, "string"},
    {"open_raw", "{% raw %}x", RF_E_SYNTAX, "raw"},
    {"bracket", "{{ (x] }}", RF_E_SYNTAX, "expected \")\""},
    {"character", "{{ x ? y }}", RF_E_SYNTAX, "unexpected character"},
    {"big_integer", "{{ 99999999999999999999 }}", RF_E_SYNTAX, "64 bits"},
    {"named_escape", "{{ '\\N{DASH}' }}", RF_E_SYNTAX, "escape"},
    {"break_outside", "{% break %}", RF_E_SYNTAX, "outside a loop"},
    {"assign_to_constant", "{% set true = 1 %}", RF_E_SYNTAX, "cannot be assigned to"},
    {"utf8", "{{ x }}\xff", RF_E_SYNTAX, "UTF-8"},
};
RF_TEST_LABELLED_CASES(template, refused_by_name, struct refusal, refusals) {
    struct rf_chat_template *chat_template = NULL;
    RF_EXPECT_STATUS(create(c->source, &chat_template), c->status);
    RF_EXPECT_CONTAINS(rf_error_text(), c->part);
    RF_EXPECT(chat_template == NULL);
}

RF_TEST(template, keeps_its_source) {
    struct rf_chat_template *chat_template = NULL;
    RF_ASSERT_OK(create("a\r\n{{ b }}\n", &chat_template));
    RF_EXPECT_TEXT(rf_chat_template_source(chat_template), "a\r\n{{ b }}\n");
    rf_chat_template_destroy(&chat_template);
    rf_chat_template_destroy(&chat_template);
    RF_EXPECT_TEXT(rf_chat_template_source(NULL), "");
}

/* ---- failures while rendering ---- */

RF_TEST(template, failures_name_the_line) {
    expect_refused("\n{{ raise_exception('no\nsuch thing') }}", NULL, RF_E_INVALID,
                   "t, line 2: the template refuses: no such thing");
    expect_refused("{{ nope.x }}", NULL, RF_E_UNSUPPORTED, "t, line 1: 'nope' is undefined");
    expect_refused("{{ messages.nope.x }}", NULL, RF_E_UNSUPPORTED, "'list' object has no attribute 'nope'");
    expect_refused("{{ 'a' + 1 }}", NULL, RF_E_UNSUPPORTED, "'+' is not possible with 'str' and 'int'");
    expect_refused("{{ [].append(1) }}", NULL, RF_E_UNSUPPORTED, "refused");
    expect_refused("{{ 2 ** 64 }}", NULL, RF_E_UNSUPPORTED, "64 bits");
    expect_refused("{{ 1 // 0 }}", NULL, RF_E_UNSUPPORTED, "division by zero");
}

/* ---- limits ---- */

static char *repeated(const char *head, const char *unit, size_t count, const char *tail) {
    size_t bytes = strlen(unit);
    char *text = malloc(strlen(head) + count * bytes + strlen(tail) + 1), *at;
    RF_ASSERT(text != NULL);
    at = stpcpy(text, head);
    for (size_t i = 0; i < count; i++, at += bytes) memcpy(at, unit, bytes);
    strcpy(at, tail);
    return text;
}

struct deep {
    const char *label, *head, *unit, *tail;
    size_t count;
};
static const struct deep deep[] = {
    {"parentheses", "{{ ", "(", "", 60000},      {"brackets", "{{ ", "[", "", 60000},
    {"braces", "{{ ", "{1:", "", 60000},         {"ifs", "", "{% if x %}", "", 10000},
    {"fors", "", "{% for x in y %}", "", 10000}, {"nots", "{{ ", "not ", "x }}", 60000},
    {"signs", "{{ ", "-", "x }}", 60000},        {"sums", "{{ 1", "+1", " }}", 60000},
    {"items", "{{ x", "[0]", " }}", 60000},      {"filters", "{{ x", "|trim", " }}", 60000},
    {"calls", "{{ x", "()", " }}", 60000},       {"conditions", "{{ ", "1 if 1 else ", "1 }}", 60000},
};
RF_TEST_LABELLED_CASES(template, deep_sources_are_refused, struct deep, deep, .timeout_ms = 20000) {
    char *source = repeated(c->head, c->unit, c->count, c->tail);
    struct rf_chat_template *chat_template = NULL;
    RF_EXPECT_STATUS(create(source, &chat_template), RF_E_SYNTAX);
    RF_EXPECT_CONTAINS(rf_error_text(), "nested deeper than 200");
    free(source);
    source = repeated(c->head, c->unit, 8, ""); /* what is short is read, or fails for another reason */
    if (create(source, &chat_template)) RF_EXPECT(!strstr(rf_error_text(), "deeper"));
    rf_chat_template_destroy(&chat_template);
    free(source);
}

/* Many branches are not deep. */
RF_TEST(template, many_branches) {
    char *source = repeated("{% if false %}", "{% elif false %}", 20000, "{% else %}ok{% endif %}");
    expect_text(source, NULL, "ok");
    free(source);
}

struct endless {
    const char *label, *source, *part;
};
static const struct endless endless[] = {
    {"recursion", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recurses deeper than 1000"},
    {"doubling", "{% set ns = namespace(s='ab') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
     "longer than 32 MiB"},
    {"doubled_lists",
     "{% set ns = namespace(s=[1]) %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", "more than"},
    {"text_times", "{{ 'x' * 10**9 }}", "longer than 32 MiB"},
    {"list_times", "{{ [1] * 10**9 }}", "more than 20000000 steps"},
    {"padding", "{{ 'x'.center(10**9) }}", "longer than 32 MiB"},
    {"width", "{{ '%999999999s' % 1 }}", "longer than 32 MiB"},
    {"loops", "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
     "more than 20000000 steps"},
    {"output", "{% set s = 'x' * 1000000 %}{% for i in range(1000) %}{{ s }}{% endfor %}", "longer than 32 MiB"},
    {"memory",
     "{% set s = 'x' * 1000000 %}{% set ns = namespace(l=[]) %}{% for i in range(1000) %}"
     "{% set ns.l = ns.l + [s ~ i] %}{% endfor %}",
     "more than 256 MiB"},
    {"nested_data",
     "{% set ns = namespace(l=[]) %}{% for i in range(5000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
     "deeper than 1000"},
    {"nested_json",
     "{% set ns = namespace(l=[]) %}{% for i in range(5000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l|tojson }}",
     "deeper than 1000"},
    {"nested_equal",
     "{% set ns = namespace(l=[], m=[]) %}{% for i in range(5000) %}{% set ns.l = [ns.l] %}{% set ns.m = [ns.m] %}{% "
     "endfor %}"
     "{{ ns.l == ns.m }}",
     "deeper than 1000"},
};
RF_TEST_LABELLED_CASES(template, endless_ones_are_stopped, struct endless, endless, .timeout_ms = 30000) {
    expect_refused(c->source, NULL, RF_E_NO_MEMORY, c->part);
}

RF_TEST(template, ranges_are_bounded) {
    expect_refused("{{ range(10**12) }}", NULL, RF_E_UNSUPPORTED, "range() is too large: at most 100000");
    expect_text("{{ range(100000)|length }}", NULL, "100000");
    expect_refused("{{ range(100001)|length }}", NULL, RF_E_UNSUPPORTED, "too large");
}

RF_TEST(template, deep_data_is_refused) {
    char *list = repeated("", "[", 300, ""), *end = repeated("", "]", 300, "");
    char *conversation = malloc(2048);
    snprintf(conversation, 2048, "{\"messages\": [], \"x\": %s%s}", list, end);
    expect_refused("x", conversation, RF_E_INVALID, "nested deeper than 200");
    free(list);
    free(end);
    free(conversation);
}

/* A result that is collected in a variable, 200,000 pieces: linear in time and memory. */
RF_TEST(template, collecting_is_linear, .timeout_ms = 30000) {
    RF_PARAMS(struct rf_chat_prompt, prompt);
    RF_ASSERT_OK(
        render("{% set ns = namespace(s='') %}{% for i in range(100000) %}{% set ns.s = ns.s + 'ab' ~ 'cd' %}"
               "{% endfor %}{{ ns.s|length }}",
               NULL, &prompt));
    RF_EXPECT_TEXT(prompt.text, "400000");
    rf_chat_prompt_finish(&prompt);
}

/* What a template and a rendering take is charged, and given back. */
RF_TEST(template, memory_is_charged) {
    struct rf_runtime *runtime = NULL;
    struct rf_chat_template *chat_template = NULL;
    RF_PARAMS(struct rf_runtime_params, small);
    RF_PARAMS(struct rf_chat_template_params, made);
    RF_PARAMS(struct rf_chat_params, params);
    RF_PARAMS(struct rf_chat_prompt, prompt);
    const char *const options[] = {"RF_HOST_BUDGET=4MiB", NULL};
    small.options = options;
    RF_ASSERT_OK(rf_runtime_create(&small, &runtime));
    uint64_t before = rf_host_used(&runtime->host);
    made.runtime = runtime;
    made.source = "{% set x = 'y' * (messages|length) * 1000000 %}{{ x|length }}";
    made.source_bytes = strlen(made.source);
    RF_ASSERT_OK(rf_chat_template_create(&made, &chat_template));
    RF_EXPECT(rf_host_used(&runtime->host) > before);
    uint64_t with_template = rf_host_used(&runtime->host);
    params.conversation = "{\"messages\": [{\"role\": \"user\", \"content\": \"\"}]}";
    params.conversation_bytes = strlen(params.conversation);
    RF_ASSERT_OK(rf_chat_render(chat_template, &params, &prompt));
    RF_EXPECT_TEXT(prompt.text, "1000000");
    rf_chat_prompt_finish(&prompt);
    RF_EXPECT_UINT(rf_host_used(&runtime->host), with_template);
    params.conversation = "{\"messages\": [{\"role\": \"user\"}, {\"role\": \"user\"}, {\"role\": \"user\"}]}";
    params.conversation_bytes = strlen(params.conversation);
    RF_EXPECT_STATUS(rf_chat_render(chat_template, &params, &prompt), RF_E_NO_MEMORY);
    RF_EXPECT_CONTAINS(rf_error_text(), "RF_HOST_BUDGET");
    RF_EXPECT_UINT(rf_host_used(&runtime->host), with_template);
    rf_chat_template_destroy(&chat_template);
    RF_EXPECT_UINT(rf_host_used(&runtime->host), before);
    rf_runtime_destroy(&runtime);
}

/* ---- conversations ---- */

static const struct refusal conversations[] = {
    {"not_json", "{\"messages\": [}", RF_E_SYNTAX, "the conversation is not JSON"},
    {"twice", "{\"messages\": [], \"messages\": []}", RF_E_SYNTAX, "duplicate"},
    {"not_utf8", "{\"messages\": [{\"role\": \"user\", \"content\": \"\xff\"}]}", RF_E_SYNTAX,
     "unable to decode byte 0xff"},
    {"list", "[1]", RF_E_INVALID, "say which by its name"},
    {"number", "7", RF_E_INVALID, "is not an object"},
    {"no_messages", "{}", RF_E_INVALID, "has no messages"},
    {"messages_object", "{\"messages\": {}}", RF_E_INVALID, "messages is not a list"},
    {"message_number", "{\"messages\": [1]}", RF_E_INVALID, "messages[0] is not an object"},
    {"no_role", "{\"messages\": [{\"content\": \"x\"}]}", RF_E_INVALID, "messages[0] has no role"},
    {"unknown_role", "{\"messages\": [{\"role\": \"user\"}, {\"role\": \"pope\"}]}", RF_E_INVALID,
     "messages[1]: the role \"pope\" is not known"},
    {"content", "{\"messages\": [{\"role\": \"user\", \"content\": 7}]}", RF_E_INVALID, "neither a text nor a list"},
    {"call_name", "{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {}}]}]}", RF_E_INVALID,
     "messages[0]: tool_calls[0] has no name"},
    {"call_arguments",
     "{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": "
     "[1]}}]}]}",
     RF_E_INVALID, "are not an object"},
    {"tools", "{\"messages\": [], \"tools\": {}}", RF_E_INVALID, "tools is not a list"},
    {"tool_name", "{\"messages\": [], \"tools\": [{\"function\": {\"name\": \"\"}}]}", RF_E_INVALID,
     "tools[0] has no name"},
};
RF_TEST_LABELLED_CASES(template, bad_conversations, struct refusal, conversations) {
    expect_refused("{{ messages|length }}", c->source, c->status, c->part);
}

RF_TEST(template, conversation_by_name) {
    struct rf_chat_template *chat_template = NULL;
    RF_PARAMS(struct rf_chat_params, params);
    RF_PARAMS(struct rf_chat_prompt, prompt);
    RF_ASSERT_OK(create("{{ x }}{{ name }}", &chat_template));
    params.conversation =
        "[{\"name\": \"a\", \"messages\": [], \"x\": 1}, {\"name\": \"b\", \"messages\": [], \"x\": 2}]";
    params.conversation_bytes = strlen(params.conversation);
    params.conversation_name = "b";
    RF_ASSERT_OK(rf_chat_render(chat_template, &params, &prompt));
    RF_EXPECT_TEXT(prompt.text, "2"); /* its name is no variable */
    rf_chat_prompt_finish(&prompt);
    params.conversation_name = "c";
    RF_EXPECT_STATUS(rf_chat_render(chat_template, &params, &prompt), RF_E_NOT_FOUND);
    RF_EXPECT_CONTAINS(rf_error_text(), "no conversation is named \"c\"");
    rf_chat_template_destroy(&chat_template);
}

/* ---- structured messages ---- */

static rf_status render_messages(const char *source, const struct rf_chat_message *messages, size_t count,
                                 struct rf_chat_prompt *prompt) {
    struct rf_chat_template *chat_template = NULL;
    RF_PARAMS(struct rf_chat_params, params);
    params.message_bytes = sizeof *messages;
    params.messages = messages;
    params.message_count = count;
    RF_ASSERT_OK(create(source, &chat_template));
    rf_status status = rf_chat_render(chat_template, &params, prompt);
    rf_chat_template_destroy(&chat_template);
    return status;
}

RF_TEST(template, structured_messages) {
    const struct rf_chat_tool_call calls[] = {{"c1", "f", "{\"x\": [1, 2.50]}"}, {NULL, "g", NULL}};
    const struct rf_chat_message messages[] = {
        {.role = RF_CHAT_SYSTEM, .text = "S"},
        {.role = RF_CHAT_ASSISTANT, .reasoning = "hm", .tool_calls = calls, .tool_call_count = 2},
        {.role = RF_CHAT_TOOL, .text = "R", .tool_call_id = "c1", .name = "f"},
        {.role = RF_CHAT_DEVELOPER, .text = "D"},
    };
    RF_PARAMS(struct rf_chat_prompt, prompt);
    RF_ASSERT_OK(
        render_messages("{% for m in messages %}{{ m|tojson }}\n{% endfor %}{{ tools }}{{ add_generation_prompt }}",
                        messages, 4, &prompt));
    RF_EXPECT_TEXT(
        prompt.text,
        "{\"role\": \"system\", \"content\": \"S\"}\n"
        "{\"role\": \"assistant\", \"content\": \"\", \"reasoning_content\": \"hm\", \"tool_calls\": "
        "[{\"id\": \"c1\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": {\"x\": [1, "
        "2.5]}}}, {\"type\": \"function\", \"function\": {\"name\": \"g\", \"arguments\": {}}}]}\n"
        "{\"role\": \"tool\", \"content\": \"R\", \"tool_call_id\": \"c1\", \"name\": \"f\"}\n"
        "{\"role\": \"developer\", \"content\": \"D\"}\nNoneTrue");
    rf_chat_prompt_finish(&prompt);
}

/* A template that joins the arguments to a text gets them as text. */
RF_TEST(template, arguments_as_text_where_needed) {
    const struct rf_chat_tool_call call = {"c1", "f", "{\"x\":  1}"};
    const struct rf_chat_message message = {.role = RF_CHAT_ASSISTANT, .tool_calls = &call, .tool_call_count = 1};
    RF_PARAMS(struct rf_chat_prompt, prompt);
    RF_ASSERT_OK(render_messages("{{ 'A' + messages[0].tool_calls[0].function.arguments }}", &message, 1, &prompt));
    RF_EXPECT_TEXT(prompt.text, "A{\"x\":  1}");
    RF_EXPECT(prompt.own[0] == 1 && prompt.own[1] == 0);
    rf_chat_prompt_finish(&prompt);
    RF_EXPECT_STATUS(render_messages("{{ 1 + messages[0].tool_calls[0].function.arguments }}", &message, 1, &prompt),
                     RF_E_UNSUPPORTED);
    RF_EXPECT_CONTAINS(rf_error_text(), "'int' and 'dict'"); /* the first reason, not the second */
}

RF_TEST(template, bad_messages) {
    const struct rf_chat_tool_call no_name = {"c", NULL, "{}"}, no_object = {"c", "f", "[1]"},
                                   no_json = {"c", "f", "{"};
    const struct {
        struct rf_chat_message message;
        rf_status status;
        const char *part;
    } bad[] = {
        {{.role = (enum rf_chat_role)9, .text = "x"}, RF_E_INVALID, "messages[0]: there is no role 9"},
        {{.role = RF_CHAT_USER}, RF_E_INVALID, "messages[0] has no text"},
        {{.role = RF_CHAT_ASSISTANT}, RF_E_INVALID, "messages[0] has no text"},
        {{.role = RF_CHAT_USER, .text = "a\xc3"}, RF_E_SYNTAX, "messages[0]: the text is not valid UTF-8"},
        {{.role = RF_CHAT_ASSISTANT, .text = "a", .reasoning = "\xff"},
         RF_E_SYNTAX,
         "the reasoning is not valid UTF-8"},
        {{.role = RF_CHAT_USER, .text = "x", .reasoning = "r"}, RF_E_INVALID, "only an assistant"},
        {{.role = RF_CHAT_ASSISTANT, .tool_calls = &no_name, .tool_call_count = 1},
         RF_E_INVALID,
         "tool call 0 has no name"},
        {{.role = RF_CHAT_ASSISTANT, .tool_calls = &no_object, .tool_call_count = 1},
         RF_E_INVALID,
         "are not a JSON object"},
        {{.role = RF_CHAT_ASSISTANT, .tool_calls = &no_json, .tool_call_count = 1}, RF_E_SYNTAX, "is not JSON"},
        {{.role = RF_CHAT_ASSISTANT, .tool_call_count = 1}, RF_E_INVALID, "tool calls are NULL"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        RF_PARAMS(struct rf_chat_prompt, prompt);
        RF_TRACE("%s", bad[i].part);
        RF_EXPECT_STATUS(render_messages("x", &bad[i].message, 1, &prompt), bad[i].status);
        RF_EXPECT_CONTAINS(rf_error_text(), bad[i].part);
        RF_EXPECT(prompt.text == NULL);
    }
}

RF_TEST(template, parameters) {
    const struct rf_chat_message message = {.role = RF_CHAT_USER, .text = "x"};
    struct rf_chat_template *chat_template = NULL;
    RF_ASSERT_OK(create("{{ think }}{{ tools|length }}{{ add_generation_prompt }}", &chat_template));
    RF_PARAMS(struct rf_chat_params, params);
    RF_PARAMS(struct rf_chat_prompt, prompt);
    RF_EXPECT_STATUS(rf_chat_render(chat_template, &params, &prompt), RF_E_INVALID);
    RF_EXPECT_CONTAINS(rf_error_text(), "either messages or a conversation");
    params.messages = &message;
    params.message_bytes = sizeof message;
    params.message_count = 1;
    params.tools = "[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]";
    params.variables = "{\"think\": false}";
    params.no_generation_prompt = true;
    RF_ASSERT_OK(rf_chat_render(chat_template, &params, &prompt));
    RF_EXPECT_TEXT(prompt.text, "False1False");
    rf_chat_prompt_finish(&prompt);
    params.variables = "{\"messages\": []}";
    RF_EXPECT_STATUS(rf_chat_render(chat_template, &params, &prompt), RF_E_INVALID);
    RF_EXPECT_CONTAINS(rf_error_text(), "variables holds \"messages\"");
    params.variables = "[]";
    RF_EXPECT_STATUS(rf_chat_render(chat_template, &params, &prompt), RF_E_INVALID);
    params.variables = NULL;
    params.now = "2026-02-30T10:00";
    RF_EXPECT_STATUS(rf_chat_render(chat_template, &params, &prompt), RF_E_INVALID);
    RF_EXPECT_CONTAINS(rf_error_text(), "is no time");
    rf_chat_template_destroy(&chat_template);
}

RF_TEST(template, dates) {
    expect_text("{{ strftime_now('%A %d %B %Y, %-d/%-m, %I:%M %p, day %j, week %V of %G, %U %W %%') }}", NULL,
                "Sunday 26 July 2026, 26/7, 12:30 PM, day 207, week 30 of 2026, 30 29 %");
}

/* ---- the fuzzer's seeds ---- */

RF_TEST(template, seeds_of_the_fuzzer) {
    DIR *folder = opendir(FUZZ_CORPUS "/template");
    RF_ASSERT(folder != NULL);
    size_t count = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        static unsigned char bytes[1 << 16];
        char path[1024];
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/template/%s", FUZZ_CORPUS, entry->d_name);
        FILE *file = fopen(path, "rb");
        RF_ASSERT(file != NULL);
        size_t size = fread(bytes, 1, sizeof bytes, file);
        fclose(file);
        const char *wrong = template_property(bytes, size);
        if (wrong) RF_FAIL("%s: %s", entry->d_name, wrong);
        count++;
    }
    closedir(folder);
    RF_EXPECT(count >= 10);
}
