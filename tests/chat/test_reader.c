/* Reading answers: each format's answers with exactly the events expected, cut at every byte; malformed calls, limits
 * and refusals. */
#include <rocmforge/test.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "chat/reader_impl.h"
#include "reader_property.h"

#define THINK "{{ '<think>' }}{{ '</think>' }}"
#define HERMES THINK "<tool_call>"
#define CODER THINK "<tool_call><function=<parameter="
#define GLM THINK "<tool_call><arg_key>"
#define MISTRAL "[THINK][TOOL_CALLS]"
#define DEEPSEEK THINK "<｜tool▁call▁begin｜>"
#define DSML THINK "{% set token = '｜DSML｜' %}function_calls>"
#define LLAMA "<|start_header_id|>{\"name\": function name, \"parameters\": dictionary}"
#define CHANNELS "<|start|><|channel|><|message|><|call|>"
#define COMMAND_R "<|START_THINKING|><|START_ACTION|>"
#define KIMI THINK "<|tool_call_argument_begin|>"
#define TOOLS                                                                                                        \
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\", "              \
    "\"properties\": {\"s\": {\"type\": \"string\"}, \"n\": {\"type\": \"number\"}}}}}]"

struct row {
    const char *label, *source, *answer, *events;
    const char *prompt;
    bool no_calls;
    const char *tools;
};
#define ROW(label_, source_, answer_, ...)                                                                           \
    {.label = label_, .source = source_, .answer = answer_, .events = __VA_ARGS__}
static const struct row rows[] = {
    ROW("plain", NULL, " Hello <think>x</think> [TOOL_CALLS] \n", "C: Hello <think>x</think> [TOOL_CALLS] \n"),
    ROW("nothing", HERMES, "", ""),
    ROW("blanks", HERMES, " \n ", "C: \n "),

    /* Reasoning. */
    ROW("think", THINK, "<think>\nBecause.\n\nSo.\n</think>\n\nNo.\n", "R:Because.\n\nSo.|C:No.\n"),
    ROW("think_late", THINK, "\n<think>a</think>b", "R:a|C:b"),
    ROW("think_twice", THINK, "<think>a</think>\n<think>b</think>c", "R:a\nb|C:c"),
    ROW("think_in_text", THINK, "Use <think> and </think> so.", "C:Use <think> and </think> so."),
    ROW("think_begun", THINK, "Because.\n</think>\n\nNo.", "R:Because.|C:No.",
        .prompt = "<|im_start|>assistant\n<think>\n"),
    ROW("think_repeated", THINK, "<think>\nBecause.</think>No.", "R:Because.|C:No.",
        .prompt = "assistant\n<think>\n"),
    ROW("think_repeated_below", THINK, "\n <think>\nBecause.</think>No.", "R:Because.|C:No.",
        .prompt = "assistant\n<think>\n"),
    ROW("think_empty", THINK, "No.", "C:No.", .prompt = "assistant\n<think>\n\n</think>\n\n"),
    ROW("think_none", THINK, "<think>\n\n</think>\n\nNo.", "C:No."),
    ROW("think_open", THINK, "<think>Because </thin", "R:Because </thin"),
    ROW("think_mentioned", THINK, "<think>a <think> b</think>c", "R:a <think> b|C:c"),
    ROW("think_marks", MISTRAL, "[THINK]a[/THIN][/THINK]b [/THINK]", "R:a[/THIN]|C:b [/THINK]"),
    ROW("think_response", "<think></think><response></response>", "<think>a</think><response>b</response>",
        "R:a|C:b"),
    ROW("think_command_r", COMMAND_R, "<|START_THINKING|>a<|END_THINKING|><|START_RESPONSE|>b<|END_RESPONSE|>",
        "R:a|C:b"),
    ROW("think_gemma", "<|channel>thought", "<|channel>thought\na<channel|>b<|channel>thought\nc<channel|>d",
        "R:a|C:b|R:\nc|C:\nd"),
    ROW("think_apriel", "[BEGIN FINAL RESPONSE]", "One.\n[BEGIN FINAL RESPONSE]\nb\n[END FINAL RESPONSE]\n",
        "R:One.|C:b", .prompt = "<|begin_assistant|>\nHere are my reasoning steps:\n"),

    ROW("think_kimi", "<|open|><|end_of_msg|>",
        "a<|close|>think<|sep|><|open|>response<|sep|>b<|close|>response<|sep|><|close|>message<|sep|>", "R:a|C:b",
        .prompt = "<|open|>message role=\"assistant\"<|sep|><|open|>think<|sep|>"),

    /* Hermes and Qwen. */
    ROW("hermes", HERMES,
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": [\"}\", {}]}}\n</tool_call>",
        "F:f|A:{\"a\": 1, \"b\": [\"}\", {}]}|E:-"),
    ROW("hermes_two", HERMES,
        "<think>x</think>Wait.\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call><tool_call>\n"
        "{\"arguments\":{\"x\":null},\"id\":\"c1\",\"name\":\"g\"}\n</tool_call>\nDone.",
        "R:x|C:Wait.|F:f|A:{}|E:-|F:g|A:{\"x\":null}|E:c1|C:\nDone."),
    ROW("hermes_strings", HERMES,
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"</tool_call> \\\" \\\\\", \"t\": \"{[\"}} "
        "</tool_call>",
        "F:f|A:{\"s\": \"</tool_call> \\\" \\\\\", \"t\": \"{[\"}|E:-"),
    ROW("hermes_escapes", HERMES,
        "<tool_call>{\"name\": \"\\u0066\\u00fc\", \"arguments\": {\"ü\": \"😀\"}}</tool_call>",
        "F:fü|A:{\"ü\": \"😀\"}|E:-"),
    ROW("hermes_no_arguments", HERMES, "<tool_call>{\"name\": \"f\"}</tool_call>", "F:f|A:{}|E:-"),
    ROW("hermes_null", HERMES, "<tool_call>{\"name\": \"f\", \"arguments\": null}</tool_call>", "F:f|A:{}|E:-"),
    ROW("hermes_in_string", HERMES, "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>",
        "F:f|A:{\"a\": 1}|E:-"),
    ROW("hermes_more", HERMES,
        "<tool_call>{\"x\": [1, {\"name\": 2}], \"name\": \"f\", \"arguments\": {}, \"y\": 1}</tool_call>",
        "F:f|A:{}|E:-"),
    ROW("hermes_list", HERMES,
        "<tool_call>[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {}}]</tool_call>x",
        "F:f|A:{}|E:-|F:g|A:{}|E:-|C:x"),
    ROW("hermes_longer_list", HERMES,
        "<tool_call>[{\"name\": \"f\"}, {\"name\": \"g\"}, {\"name\": \"h\"}]</tool_call>, so",
        "F:f|A:{}|E:-|F:g|A:{}|E:-|F:h|A:{}|E:-|C:, so"),
    ROW("hermes_no_list", HERMES, "<tool_call>{\"name\": \"f\"}, so]", "F:f|A:{}|E:-|C:, so]"),
    ROW("hermes_lines", "<tool_calls>", "<tool_calls>\n{\"name\": \"f\"}\n{\"name\": \"g\"}\n</tool_calls>",
        "F:f|A:{}|E:-|F:g|A:{}|E:-"),
    ROW("hermes_not_offered", HERMES, "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
        "C:<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", .no_calls = true),
    ROW("hermes_text", HERMES, "The tag <tool_call> is followed by <tool_call>[] or {\"name\"",
        "C:The tag <tool_call> is followed by <tool_call>[] or {\"name\""),
    ROW("hermes_nameless", HERMES, "a\n<tool_call>{\"arguments\": {}}</tool_call>",
        "C:a\n<tool_call>{\"arguments\": {}}</tool_call>"),
    ROW("hermes_bad_name", HERMES, "<tool_call>{\"name\": 7, \"arguments\": {}}",
        "C:<tool_call>{\"name\": 7, \"arguments\": {}}"),
    ROW("hermes_odd_name", HERMES, "<tool_call>{\"name\": \"a\\nb\"}</tool_call>",
        "C:<tool_call>{\"name\": \"a\\nb\"}</tool_call>"),
    ROW("hermes_cut_early", HERMES, "a <tool_call>{\"name\": \"f", "C:a <tool_call>{\"name\": \"f"),
    ROW("hermes_cut", HERMES, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1",
        "F:f|A:{\"a\": 1|!call 1 of the answer (f) is malformed: the answer ends within it"),
    ROW("hermes_wrong", HERMES,
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": }}</tool_call>\n<tool_call>{\"name\": "
        "\"g\"}</tool_call>",
        "F:f|A:{\"a\": }|F:g|A:{}|E:-|!call 1 of the answer (f) is malformed: the arguments is not JSON: line 1, "
        "column "
        "7: "
        "unexpected token near '}'"),
    ROW("hermes_brackets", HERMES, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [}}</tool_call>b",
        "F:f|A:{\"a\": [}}|C:b|!call 1 of the answer (f) is malformed: its text is no JSON"),
    ROW("hermes_array", HERMES, "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
        "F:f|A:[1]|!call 1 of the answer (f) is malformed: the arguments are no JSON object"),
    ROW("hermes_unclosed", HERMES, "<tool_call>{\"name\": \"f\", \"arguments\": {}</tool_call>b",
        "F:f|A:{}|C:b|!call 1 of the answer (f) is malformed: its text is no JSON"),

    /* Tagged arguments. */
    ROW("coder", CODER,
        "<tool_call>\n<function=f>\n<parameter=s>\nParis\n</parameter>\n<parameter=n>\n1\n</parameter>\n"
        "<parameter=o>\n{\"a\": [1]}\n</parameter>\n</function>\n</tool_call>",
        "F:f|A:{\"s\": \"Paris\", \"n\": 1, \"o\": {\"a\": [1]}}|E:-"),
    ROW("coder_typed", CODER,
        "<tool_call>\n<function=f>\n<parameter=s>\n12\n\n</parameter>\n<parameter=n>\nmany "
        "\"x\"\n</parameter>\n</function>\n</tool_call>",
        "F:f|A:{\"s\": \"12\\n\", \"n\": \"many \\\"x\\\"\"}|E:-", .tools = TOOLS),
    ROW("coder_escapes", CODER, "<function=f><parameter=s>\n\t\r\"\\/\x01\x7fü\n\n</parameter></function>",
        "F:f|A:{\"s\": \"\\t\\r\\\"\\\\/\\u0001\x7fü\\n\"}|E:-", .tools = TOOLS),
    ROW("coder_no_wrap", CODER, "Hm.\n<function=g></function>\n<function=f><parameter=x>true</parameter></function>",
        "C:Hm.|F:g|A:{}|E:-|F:f|A:{\"x\": true}|E:-"),
    ROW("coder_text", CODER, "<tool_call>\nHello <function=f> you", "C:<tool_call>\nHello <function=f> you"),
    ROW("coder_cut", CODER, "<tool_call>\n<function=f>\n<parameter=s>\nPar",
        "F:f|A:{\"s\": \"Par|!call 1 of the answer (f) is malformed: the answer ends within it", .tools = TOOLS),
    ROW("coder_twice", CODER, "<function=f><parameter=a>1</parameter><parameter=a>2</parameter></function>",
        "F:f|A:{\"a\": 1, \"a\": 2}|!call 1 of the answer (f) is malformed: the arguments is not JSON: line 1, "
        "column "
        "12: "
        "duplicate object key near '\"a\"'"),
    ROW("coder_broken", CODER, "<function=f><parameter=a>1</parameter>so</function></tool_call>b",
        "F:f|A:{\"a\": 1so|C:b|!call 1 of the answer (f) is malformed: there is no parameter where one should be"),
    ROW("glm", GLM,
        "\n<think>a</think>\n<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>x <b> "
        "\"q\"\n</arg_value>\n<arg_key>n</arg_key>\n"
        "<arg_value>[2, {\"c\": null}]</arg_value>\n</tool_call>\n<tool_call>g</tool_call>",
        "R:a|F:f|A:{\"s\": \"x <b> \\\"q\\\"\\n\", \"n\": [2, {\"c\": null}]}|E:-|F:g|A:{}|E:-"),
    ROW("glm_text", GLM, "<tool_call>f is a <tool_call>", "C:<tool_call>f is a <tool_call>"),
    ROW("dsml", DSML,
        "<think>a</think>b\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"s\" "
        "string=\"true\">12"
        "</｜DSML｜parameter>\n<｜DSML｜parameter name=\"n\" "
        "string=\"false\">[1]</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
        "<｜DSML｜invoke name=\"g\">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        "R:a|C:b|F:f|A:{\"s\": \"12\", \"n\": [1]}|E:-|F:g|A:{}|E:-"),

    ROW("dsml_v4", THINK "{% set token = '｜DSML｜' %}",
        "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"n\" "
        "string=\"false\">x</｜DSML｜parameter>\n"
        "</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
        "F:f|A:{\"n\": \"x\"}|E:-"),
    ROW("hunyuan", "<think{}><tool_call{}>:opensource",
        "<think:opensource>a</"
        "think:opensource><tool_calls:opensource>\n<tool_call:opensource>f<tool_sep:opensource>\n"
        "<arg_key:opensource>n</arg_key:opensource>\n<arg_value:opensource>1</arg_value:opensource>\n"
        "</tool_call:opensource>\n</tool_calls:opensource>",
        "R:a|F:f|A:{\"n\": 1}|E:-"),
    ROW("minimax_m2", THINK "<minimax:tool_call>",
        "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"n\">1</parameter>\n<parameter name=\"s\">a\n"
        "</parameter>\n</invoke>\n</minimax:tool_call>",
        "F:f|A:{\"n\": 1, \"s\": \"a\\n\"}|E:-"),
    ROW("minimax_m3", "<mm:think>", "<mm:think>a</mm:think>b", "R:a|C:b"),
    ROW("granite", "<|tool_call|>", "<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\"}]",
        "F:f|A:{}|E:-|F:g|A:{}|E:-"),

    /* Llama 3. */
    ROW("llama", LLAMA, "{\"name\": \"f\", \"parameters\": {\"s\": \"x\"}}", "F:f|A:{\"s\": \"x\"}|E:-"),
    ROW("llama_type", LLAMA, "\n{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}", "F:f|A:{}|E:-"),
    ROW("llama_python", LLAMA, "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}", "F:f|A:{}|E:-"),
    ROW("llama_two", LLAMA, "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}",
        "F:f|A:{}|E:-|F:g|A:{}|E:-"),
    ROW("llama_json", LLAMA, "{\"name\": \"Bob\", \"age\": 7}", "C:{\"name\": \"Bob\", \"age\": 7}"),
    ROW("llama_then_json", LLAMA, "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"Bob\", \"age\": 7}",
        "F:f|A:{}|E:-|C:{\"name\": \"Bob\", \"age\": 7}"),
    ROW("llama_name_only", LLAMA, "{\"name\": \"Bob\"} ", "C:{\"name\": \"Bob\"} "),
    ROW("llama_late", LLAMA, "So: {\"name\": \"f\", \"parameters\": {}}",
        "C:So: {\"name\": \"f\", \"parameters\": {}}"),
    ROW("llama_not_offered", LLAMA, "{\"name\": \"f\", \"parameters\": {}}",
        "C:{\"name\": \"f\", \"parameters\": {}}", .no_calls = true),
    ROW("llama_offered", LLAMA, "{\"name\": \"f\", \"parameters\": {}}", "F:f|A:{}|E:-", .tools = TOOLS),
    ROW("llama_other", LLAMA, "{\"name\": \"g\", \"parameters\": {}}", "C:{\"name\": \"g\", \"parameters\": {}}",
        .tools = TOOLS),
    ROW("llama_code", LLAMA, "<|python_tag|>print(1)", "C:<|python_tag|>print(1)"),

    /* Mistral. */
    ROW("mistral", MISTRAL,
        "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": [\"]\"]}, \"id\": \"abc123def\"}, "
        "{\"name\": \"g\", \"arguments\": {}, \"id\": \"x\"}]",
        "F:f|A:{\"a\": [\"]\"]}|E:abc123def|F:g|A:{}|E:x"),
    ROW("mistral_named", MISTRAL, "Hm [TOOL_CALLS]f[ARGS]{\"a\": \"[ARGS]\"}[TOOL_CALLS]g[CALL_ID]abc[ARGS]{}",
        "C:Hm|F:f|A:{\"a\": \"[ARGS]\"}|E:-|F:g|A:{}|E:abc"),
    ROW("mistral_text", MISTRAL, "[TOOL_CALLS]what is this[ARGS]{}", "C:[TOOL_CALLS]what is this[ARGS]{}"),
    ROW("mistral_cut", MISTRAL, "[THINK]a[/THINK]b[TOOL_CALLS]f[ARG", "R:a|C:b[TOOL_CALLS]f[ARG"),

    /* DeepSeek and Kimi. */
    ROW("deepseek", DEEPSEEK,
        "<think>\na\n</"
        "think>\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": "
        "\"```\"}\n```"
        "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜><"
        "｜tool▁calls▁end｜>",
        "R:a|F:f|A:{\"a\": \"```\"}|E:-|F:g|A:{}|E:-"),
    ROW("deepseek_v3.1", DEEPSEEK,
        "Hm.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": "
        "1}<｜tool▁call▁end｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{}"
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "C:Hm.|F:f|A:{\"a\": 1}|E:-|F:g|A:{}|E:-"),
    ROW("deepseek_text", DEEPSEEK, "<｜tool▁calls▁begin｜>none", "C:<｜tool▁calls▁begin｜>none"),
    ROW("deepseek_content", DEEPSEEK, "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}<｜tool▁call▁end｜>```c\n```",
        "F:f|A:{}|E:-|C:```c\n```"),
    ROW("kimi", KIMI,
        "Hm.<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": "
        "1}<|tool_call_end|>"
        "<|tool_call_begin|>functions.g.h:12<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|"
        ">",
        "C:Hm.|F:f|A:{\"a\": 1}|E:functions.f:0|F:g.h|A:{}|E:functions.g.h:12"),
    ROW("command_r", COMMAND_R,
        "<|START_THINKING|>a<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", "
        "\"parameters\": "
        "{\"a\": 1}},\n    {\"tool_call_id\": 1, \"tool_name\": \"g\", \"parameters\": {}}\n]<|END_ACTION|>",
        "R:a|F:f|A:{\"a\": 1}|E:0|F:g|A:{}|E:1"),
    ROW("functionary", "<function=", "Hm.<function=f>{\"a\": \"</function>\"}</function><function=g>{}</function>",
        "C:Hm.|F:f|A:{\"a\": \"</function>\"}|E:-|F:g|A:{}|E:-"),

    /* gpt-oss. */
    ROW("channels", CHANNELS,
        "<|channel|>analysis<|message|>Because.<|end|><|start|>assistant<|channel|>final<|message|>No.<|return|>",
        "R:Because.|C:No.", .prompt = "<|start|>assistant"),
    ROW("channels_call", CHANNELS,
        "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary<|message|>Hm.<|end|><|start|>"
        "assistant"
        "<|channel|>commentary to=functions.get_x <|constrain|>json<|message|>{\"a\": \"<|call|>\"}<|call|>",
        "R:a|C:Hm.|F:get_x|A:{\"a\": \"<|call|>\"}|E:-"),
    ROW("channels_to_first", CHANNELS, " to=functions.get_x<|channel|>commentary json<|message|>{\"a\": 1}",
        "F:get_x|A:{\"a\": 1}|E:-"),
    ROW("channels_twice", CHANNELS,
        "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|><|start|>"
        "assistant"
        "<|channel|>final<|message|>c",
        "R:a\nb|C:c"),
    ROW("channels_plain", CHANNELS, "Hello <|x|>", "C:Hello <|x|>"),
    ROW("channels_cut", CHANNELS, "<|channel|>fin", "C:<|channel|>fin"),
    ROW("channels_begun", CHANNELS, "c<|return|>", "C:c",
        .prompt = "<|start|>user<|message|>x<|end|><|start|>assistant<|channel|>final<|message|>"),
    ROW("channels_no_calls", CHANNELS, "<|channel|>commentary to=functions.get_x<|message|>{}", "C:{}",
        .no_calls = true),
    ROW("channels_wrong", CHANNELS, "<|channel|>commentary to=functions.get_x<|message|>a = 1<|call|>",
        "F:get_x|A:a = 1|!call 1 of the answer (get_x) is malformed: the arguments are no JSON object"),
};

static struct reading how_to_read(const struct row *row) {
    return (struct reading){
        .source = row->source, .prompt = row->prompt, .no_calls = row->no_calls, .tools = row->tools};
}

static void expect_events(const struct row *row, const size_t *cuts, size_t cut_count) {
    const char *wrong = NULL;
    struct reading how = how_to_read(row);
    char *events = read_answer(&how, row->answer, strlen(row->answer), cuts, cut_count, &wrong);
    RF_ASSERT_TEXT(events, row->events);
    if (wrong) RF_FAIL("%s", wrong);
    free(events);
}

RF_TEST_LABELLED_CASES(reader, answers, struct row, rows) {
    expect_events(c, NULL, 0);
    size_t bytes = strlen(c->answer), *cuts = calloc(bytes + 1, sizeof *cuts);
    for (size_t at = 1; at < bytes; at++) {
        RF_TRACE("cut behind %zu bytes", at);
        expect_events(c, &at, 1);
        cuts[at - 1] = at;
    }
    RF_TRACE("byte by byte");
    expect_events(c, cuts, bytes ? bytes - 1 : 0);
    free(cuts);
}

/* Every answer of the table, read with every row's format, in random pieces. */
RF_TEST(reader, random_pieces) {
    struct rf_random random = {rf_test_seed()};
    for (int round = 0; round < 4000; round++) {
        const struct row *row = &rows[rf_random_below(&random, RF_COUNT(rows))];
        const struct row *other = &rows[rf_random_below(&random, RF_COUNT(rows))];
        struct reading how = how_to_read(row);
        const char *wrong = NULL;
        char answer[2048];
        snprintf(answer, sizeof answer, "%s%s", rf_random_below(&random, 2) ? other->answer : "", row->answer);
        size_t bytes = strlen(answer), cuts[8], count = 1 + rf_random_below(&random, RF_COUNT(cuts));
        size_t from = 0;
        for (size_t i = 0; i < count; i++) from = cuts[i] = from + rf_random_below(&random, bytes - from + 1);
        char *whole = read_answer(&how, answer, bytes, NULL, 0, &wrong);
        if (wrong) RF_FAIL("%s: %s", answer, wrong);
        char *pieces = read_answer(&how, answer, bytes, cuts, count, &wrong);
        if (wrong) RF_FAIL("%s: %s", answer, wrong);
        RF_ASSERT_TEXT(pieces, whole);
        free(whole);
        free(pieces);
    }
}

/* What the fuzzer looks at, with random bytes. */
RF_TEST(reader, random_answers) {
    struct rf_random random = {rf_test_seed() + 1};
    unsigned char bytes[80];
    for (int round = 0; round < 4000; round++) {
        size_t size = 4 + rf_random_below(&random, sizeof bytes - 4);
        for (size_t i = 0; i < size; i++)
            bytes[i] = (unsigned char)(rf_random_below(&random, 4) ? 0x80 + rf_random_below(&random, 128)
                                                                   : rf_random_below(&random, 256));
        const char *wrong = reader_property(bytes, size);
        if (wrong) RF_FAIL("%s", wrong);
    }
}

/* Bytes that are not UTF-8 become U+FFFD, wherever they are cut. */
RF_TEST(reader, bytes_that_are_not_utf8) {
    static const struct row row =
        ROW("", HERMES, "a\xff<tool_call>{\"name\": \"f\", \"arguments\": {\"\xe2\x82\": \"\xc3\"}}\xe2",
            "C:a\xef\xbf\xbd|F:f|A:{\"\xef\xbf\xbd\xef\xbf\xbd\": \"\xef\xbf\xbd\"}|E:-|C:\n\xef\xbf\xbd");
    expect_events(&row, NULL, 0);
    for (size_t at = 1; at < strlen(row.answer); at++) expect_events(&row, &at, 1);
}

/* Behind which text the content begins, for a grammar that must hold from there on. */
RF_TEST(reader, where_the_content_begins) {
    static const struct {
        const char *source, *prompt;
        size_t own; /* from which byte on the prompt is the template's */
        const char *end;
    } cases[] = {
        {NULL, "<think>\n", 0, NULL},
        {THINK, "a\n<think>\n", 2, "</think>"},
        {THINK, "a\n<think>\n", 3, NULL}, /* a message that ends with the mark begins nothing */
        {THINK, "a\n<think>\n", 9, NULL},
        {THINK, "a\n<think>\n\n</think>\n", 0, NULL},
        {THINK, "a\n", 0, NULL},
        {THINK, "", 0, NULL},
        {THINK, "<think>x", 0, NULL},
        {MISTRAL, "[THINK]", 0, "[/THINK]"},
        {CHANNELS, "<|start|>assistant", 0, "<|channel|>final<|message|>"},
        {CHANNELS, "<|start|>assistant<|channel|>analysis<|message|>", 0, "<|channel|>final<|message|>"},
        {CHANNELS, "<|start|>assistant<|channel|>final<|message|>", 0, NULL},
    };
    for (size_t i = 0; i < RF_COUNT(cases); i++) {
        struct rf_chat_reader *reader = NULL;
        char text[64];
        unsigned char own[64];
        RF_PARAMS(struct rf_chat_reader_params, params);
        RF_PARAMS(struct rf_chat_prompt, prompt);
        RF_TRACE("case %zu", i);
        snprintf(text, sizeof text, "%s", cases[i].prompt);
        for (size_t k = 0; k < sizeof own; k++) own[k] = k >= cases[i].own;
        prompt.text = text;
        prompt.own = own;
        prompt.bytes = strlen(text);
        params.prompt = &prompt;
        RF_ASSERT_OK(rf_chat_reader_create_for(cases[i].source, &params, &reader));
        const char *end = rf_chat_reader_reasoning_end(reader);
        RF_EXPECT_TEXT(end ? end : "none", cases[i].end ? cases[i].end : "none");
        rf_chat_reader_destroy(&reader);
    }
    RF_EXPECT(!rf_chat_reader_reasoning_end(NULL));
}

/* ---- limits ---- */

/* A text of so many times the middle part. */
static char *repeated(const char *front, const char *middle, size_t count, const char *back) {
    size_t bytes = strlen(middle), at = strlen(front);
    char *text = malloc(at + count * bytes + strlen(back) + 1);
    memcpy(text, front, at);
    for (size_t i = 0; i < count; i++, at += bytes) memcpy(text + at, middle, bytes);
    memcpy(text + at, back, strlen(back) + 1);
    return text;
}

struct limit {
    const char *label, *source, *front, *middle, *back;
    size_t count;
    const char *events; /* how they end */
    const char *tools;
};
static const struct limit limits[] = {
    /* Held too long to become a call: content. */
    {"held", HERMES, "<tool_call>{\"arguments\": {\"a\": \"", "x", "\"}, \"name\": \"f\"}</tool_call>", 65600,
     "</tool_call>", NULL},
    {"held_name_in_time", HERMES, "<tool_call>{\"arguments\": {\"a\": \"", "x", "\"}, \"name\": \"f\"}</tool_call>",
     65000, "\"}|E:-", NULL},
    {"held_blanks", HERMES, "<tool_call>", " ", "{\"name\": \"f\"}</tool_call>", 70000, "</tool_call>", NULL},
    {"head", MISTRAL, "[TOOL_CALLS]", "x", "[ARGS]{}", 600, "[ARGS]{}", NULL},
    {"head_behind_blanks", MISTRAL, "[TOOL_CALLS]", " ", "f[ARGS]{}", 5000, "F:f|A:{}|E:-", NULL},
    {"header", CHANNELS, "<|channel|>", "x", "<|message|>b", 600, "<|message|>b", NULL},
    {"header_behind_blanks", CHANNELS, "", " ", "<|channel|>final<|message|>b", 505, "C:b", NULL},
    {"header_in_time", CHANNELS, "", " ", "<|channel|>final<|message|>b", 485, "C:b", NULL},
    {"header_behind_more_blanks", CHANNELS, "", " ", "<|channel|>final<|message|>b", 60000, "C:b", NULL},
    {"name", GLM, "<tool_call>", "n", "</tool_call>", 257, "</tool_call>", NULL},
    /* Too long, or too deep, for a call. */
    {"arguments", HERMES, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"", "ü", "\"}}</tool_call>b", 600000,
     "\"}}|C:b|!call 1 of the answer (f) is malformed: it is longer than 1048576 bytes", NULL},
    {"arguments_named", MISTRAL, "[TOOL_CALLS]f[ARGS]{\"a\": \"", "😀", "\"}", 300000,
     "\"}|!call 1 of the answer (f) is malformed: the arguments are longer than 1048576 bytes", NULL},
    {"other", HERMES, "<tool_call>{\"name\": \"f\", \"b\": \"", "x", "\"}</tool_call>b", 1100000,
     "\"}|C:b|!call 1 of the answer (f) is malformed: it is longer than 1048576 bytes", NULL},
    {"value", CODER, "<function=f><parameter=n>", "ü", "</parameter></function>b", 600000,
     "</parameter>|C:b|!call 1 of the answer (f) is malformed: the arguments are longer than 1048576 bytes", TOOLS},
    {"value_string", CODER, "<function=f><parameter=s>", "\"ü", "</parameter></function>b", 400000,
     "</parameter>|C:b|!call 1 of the answer (f) is malformed: the arguments are longer than 1048576 bytes", TOOLS},
    {"values", CODER, "<function=f>", "<parameter=s>xxxxxxxxxxxxxxxx</parameter>", "</function>b", 70000,
     "b|!call 1 of the answer (f) is malformed: the arguments are longer than 1048576 bytes", TOOLS},
    {"deep", HERMES, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": ", "[", "</tool_call>b", 600,
     "[|C:b|!call 1 of the answer (f) is malformed: its text is no JSON", NULL},
    {"deep_before_the_name", HERMES, "<tool_call>{\"arguments\": {\"a\": ", "[", "", 600, "[", NULL},
    /* White space. */
    {"blanks", HERMES, "a", " \n", "<tool_call>{\"name\": \"f\"}</tool_call>", 128, "C:a|F:f|A:{}|E:-", NULL},
    {"many_blanks", HERMES, "a", " \n", "<tool_call>{\"name\": \"f\"}</tool_call>", 129, " \n|F:f|A:{}|E:-", NULL},
    /* Many of all. */
    {"marks", HERMES, "", "<tool_call>", "", 20000, "C:", NULL},
    {"openings", HERMES, "", "<tool_call>{\"a\":[\"", "", 20000, "\"", NULL},
    {"calls", HERMES, "", "<tool_call>{\"name\": \"f\"}</tool_call>", "", 3000, "|F:f|A:{}|E:-", NULL},
};
RF_TEST_LABELLED_CASES(reader, limits, struct limit, limits) {
    char *text = repeated(c->front, c->middle, c->count, c->back);
    struct reading how = {.source = c->source, .tools = c->tools};
    size_t bytes = strlen(text), cuts[3] = {bytes / 7, bytes / 2 + 1, bytes - 3};
    const char *wrong = NULL;
    char *whole = read_answer(&how, text, bytes, NULL, 0, &wrong);
    if (wrong) RF_FAIL("%s", wrong);
    size_t whole_bytes = strlen(whole), end = strlen(c->events);
    RF_ASSERT(whole_bytes >= end);
    if (!strcmp(c->events, "C:"))
        RF_EXPECT(!strncmp(whole, "C:", 2) && !strcmp(whole + 2, text));
    else
        RF_EXPECT_TEXT(whole + whole_bytes - end, c->events);
    char *pieces = read_answer(&how, text, bytes, cuts, 3, &wrong);
    RF_EXPECT(!wrong && !strcmp(pieces, whole));
    free(pieces);
    size_t step = bytes > 100000 ? 997 : 1, count = 0, *many = malloc((bytes / step + 1) * sizeof *many);
    for (size_t at = step; at < bytes; at += step) many[count++] = at;
    pieces = read_answer(&how, text, bytes, many, count, &wrong);
    RF_EXPECT(!wrong && !strcmp(pieces, whole));
    free(pieces);
    free(many);
    free(whole);
    free(text);
}

/* ---- memory and refusals ---- */

struct budget {
    uint64_t used, most, limit;
};
static rf_status charge(void *user, uint64_t bytes) {
    struct budget *budget = user;
    if (bytes > budget->limit - budget->used) return rf_fail(RF_E_NO_MEMORY, "the test's budget");
    budget->used += bytes;
    budget->most = RF_MAX(budget->most, budget->used);
    return RF_OK;
}
static void release(void *user, uint64_t bytes) {
    struct budget *budget = user;
    RF_ASSERT(budget->used >= bytes);
    budget->used -= bytes;
}

/* What is held is charged, given back, and refused in one line. */
RF_TEST(reader, is_charged) {
    char *text = repeated("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"", "x", 500000, "\"}}</tool_call>");
    RF_PARAMS(struct rf_chat_reader_params, params);
    params.calls = true;
    struct budget budget = {.limit = 64u << 20};
    for (int round = 0; round < 2; round++) {
        struct rf_chat_reader *reader = NULL;
        RF_ASSERT_OK(rf_chat_reader_create_for(HERMES, &params, &reader));
        reader->account = (struct rf_account){charge, release, &budget, 0};
        if (round) {
            RF_EXPECT_STATUS(rf_chat_reader_push(reader, text, strlen(text)), RF_E_NO_MEMORY);
            RF_EXPECT_STATUS(rf_chat_reader_push(reader, "x", 1), RF_E_NO_MEMORY); /* and that stays */
            RF_EXPECT_STATUS(rf_chat_reader_finish(reader), RF_E_NO_MEMORY);
        } else {
            RF_EXPECT_OK(rf_chat_reader_push(reader, text, strlen(text)));
            RF_EXPECT_OK(rf_chat_reader_finish(reader));
            RF_EXPECT(budget.most > 500000);
        }
        rf_chat_reader_destroy(&reader);
        RF_EXPECT_UINT(budget.used, 0);
        budget = (struct budget){.limit = 100000};
    }
    free(text);
}

/* Behind a callback that says no nothing comes any more, whichever event it was. */
RF_TEST(reader, a_callback_says_no) {
    for (size_t i = 0; i < RF_COUNT(rows); i++) {
        for (size_t after = 1; after < 8; after++) {
            struct reading how = how_to_read(&rows[i]);
            const char *wrong = NULL;
            RF_TRACE("%s, event %zu", rows[i].label, after);
            char *all = read_answer(&how, rows[i].answer, strlen(rows[i].answer), NULL, 0, &wrong);
            how.refuse_after = after;
            char *events = read_answer(&how, rows[i].answer, strlen(rows[i].answer), NULL, 0, &wrong);
            if (wrong) RF_FAIL("%s", wrong);
            RF_EXPECT(!strcmp(events, all) || strstr(events, "!the caller wants no more of the answer"));
            free(all);
            free(events);
        }
    }
}

RF_TEST(reader, refusals) {
    struct rf_chat_reader *reader = NULL, *none = NULL;
    RF_PARAMS(struct rf_chat_reader_params, params);
    RF_EXPECT_STATUS(rf_chat_reader_create(NULL, &reader), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_chat_reader_create(&params, NULL), RF_E_INVALID);
    params.tools = "{}";
    RF_EXPECT_STATUS(rf_chat_reader_create(&params, &reader), RF_E_SYNTAX);
    RF_EXPECT_CONTAINS(rf_error_text(), "no JSON array");
    params.tools = "[";
    RF_EXPECT_STATUS(rf_chat_reader_create(&params, &reader), RF_E_SYNTAX);
    params.tools = NULL;
    RF_EXPECT(!reader);
    RF_EXPECT_STATUS(rf_chat_reader_push(NULL, "x", 1), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_chat_reader_finish(NULL), RF_E_INVALID);
    RF_ASSERT_OK(rf_chat_reader_create(&params, &reader));
    RF_EXPECT_STATUS(rf_chat_reader_push(reader, NULL, 1), RF_E_INVALID);
    RF_EXPECT_OK(rf_chat_reader_push(reader, NULL, 0));
    RF_EXPECT_OK(rf_chat_reader_push(reader, "x", 1)); /* without a callback */
    RF_EXPECT_OK(rf_chat_reader_finish(reader));
    RF_EXPECT_STATUS(rf_chat_reader_finish(reader), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_chat_reader_push(reader, "x", 1), RF_E_INVALID);
    rf_chat_reader_destroy(&reader);
    RF_EXPECT(!reader);
    rf_chat_reader_destroy(&reader);
    rf_chat_reader_destroy(NULL);
    RF_EXPECT(!none);
}
