/* A chat as a user meets it: in a pipe, with the model's own template, reasoning, tool calls, files and commands.
 * test_run_terminal.c has the terminal. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "run_testing.h"

#define TEMPLATE                                                                                                     \
    "{%- for m in messages %}{% if m.content == 'forbidden' %}{{ raise_exception('not that') }}{% endif %}"          \
    "{{ '<|im_start|>' + m.role + '\\n' }}"                                                                          \
    "{% if m.tool_calls %}{% for c in m.tool_calls %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"   \
    "{% endif %}{{ m.content }}{{ '<|im_end|>\\n' }}{% endfor %}"                                                    \
    "{% if add_generation_prompt %}<|im_start|>assistant"                                                            \
    "{% if enable_thinking is defined and not enable_thinking %}#{% else %}{{ '\\n' }}{% endif %}{% endif %}"        \
    "{# </think> #}"

/* In the folder: think.gguf has a template; it answers "<think>hm</think>yes", or "no" where thinking is off.
 * calls.gguf answers with a call. loop.gguf has the template too, and says "dedede…"; braces.gguf "no {}no {}…"
 * behind "?". */
static void make_models(void) {
    static struct script script;
    command_folder();
    script_begin(&script, true);
    script.chat_template = TEMPLATE;
    script_add(&script, "<|im_start|>", RF_TOKEN_CONTROL);
    int32_t end = script_add(&script, "<|im_end|>", RF_TOKEN_CONTROL);
    int32_t think = script_add(&script, "<think>", RF_TOKEN_CONTROL);
    int32_t thought = script_add(&script, "</think>", RF_TOKEN_CONTROL);
    script.next[script_byte('\n')] = think;
    script_say(&script, think, "hm", thought);
    script_say(&script, thought, "yes", end);
    script_say(&script, script_byte('#'), "no", end);
    script_write(&script, scratch_path("think.gguf"));
    int32_t call = script_add(&script, "<tool_call>", RF_TOKEN_CONTROL);
    int32_t text = script_add(&script, "{\"name\":\"f\",\"arguments\":{\"a\":", RF_TOKEN_USER_DEFINED);
    int32_t rest = script_add(&script, "1}}", RF_TOKEN_USER_DEFINED);
    int32_t called = script_add(&script, "</tool_call>", RF_TOKEN_CONTROL);
    script.next[script_byte('\n')] = call;
    script.next[call] = text;
    script.next[text] = rest;
    script.next[rest] = called;
    script.next[called] = end;
    script_write(&script, scratch_path("calls.gguf"));
    script_say(&script, script_byte('\n'), "de", script_byte('d'));
    script_write(&script, scratch_path("loop.gguf"));
    script_say(&script, script_byte('?'), "no {}", script_byte('?'));
    script_write(&script, scratch_path("braces.gguf"));
}

static void write_text(const char *name, const char *text) {
    write_bytes(scratch_path(name), text, strlen(text));
}

static json_t *read_json(const char *name) {
    json_error_t error;
    json_t *root = json_load_file(scratch_path(name), 0, &error);
    if (!root) RF_FAIL("%s: %s", name, error.text);
    return root;
}
/* Whether a file of the folder holds this, and the parts of it in any order. */
static void expect_json(const char *name, const char *expected) {
    json_t *root = read_json(name), *wanted = json_loads(expected, 0, NULL);
    RF_ASSERT(wanted != NULL);
    char *text = json_dumps(root, JSON_COMPACT);
    if (!json_equal(root, wanted)) RF_FAIL("%s holds %s, expected %s", name, text, expected);
    free(text);
    json_decref(root);
    json_decref(wanted);
}
/* The contents of its messages. */
static void expect_contents(const char *name, const char *const *expected) {
    json_t *root = read_json(name), *messages = json_object_get(root, "messages"), *message;
    size_t i;
    RF_TRACE("%s", name);
    json_array_foreach(messages, i, message) {
        RF_ASSERT(expected[i] != NULL);
        RF_EXPECT_TEXT(json_string_value(json_object_get(message, "content")), expected[i]);
    }
    RF_EXPECT(!expected[i]);
    json_decref(root);
}
#define EXPECT_CONTENTS(name, ...) expect_contents(name, (const char *const[]){__VA_ARGS__, NULL})

/* ---- prompts ---- */

RF_TEST(run_input, prompts_from_anywhere) {
    command_folder();
    write_text("prompt", "Say?\n");
    write_text("broken", "a\xff?\n");
    command_expect("RF_DRIVER=none", "run -m model.gguf --file prompt", ANSWER "\n");
    command_expect("RF_DRIVER=none", "run -m model.gguf -p - <prompt", ANSWER "\n");
    command_expect("RF_DRIVER=none", "run -m model.gguf --file - <prompt", ANSWER "\n");
    command_expect("RF_DRIVER=none", "run -m model.gguf --file broken", ANSWER "\n"); /* a text of any bytes */
    command_expect("RF_DRIVER=sim", "run -m model.gguf -p - <prompt", ANSWER "\n");   /* the worker has no input */
    command_expect("RF_DRIVER=none", "run -m chat.gguf --chat -p - <prompt", "yes\n");
    command_expect("RF_DRIVER=none", "run -m chat.gguf --chat --file prompt --system-file prompt </dev/null",
                   "yes\n");
    /* Several stops: each counts, whichever is given last. */
    command_expect("RF_DRIVER=none", "run -m model.gguf -p '?' --stop ' ' --stop '!' --stop never", "Grün\n");
    command_expect("RF_DRIVER=none", "run -m model.gguf -p '?' --stop never --stop '!' --stop=' '", "Grün\n");
    command_expect("RF_DRIVER=sim", "run -m model.gguf -p '?' --stop ü --stop ' '", "Gr\n");
}

RF_TEST(run_input, what_is_wrong_is_one_line) {
    char stops[2048] = "run -m model.gguf -p '?'", large[64];
    command_folder();
    write_text("broken", "a\xff?\n");
    write_text("list", "[1]");
    write_text("nameless", "[{\"type\": \"function\", \"function\": {\"description\": \"?\"}}]");
    write_bytes(scratch_path("zero"), "a\0b", 3);
    int file = open(scratch_path("large"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    RF_ASSERT(file >= 0 && ftruncate(file, (16 << 20) + 2) == 0);
    close(file);
    for (int i = 0; i < 65; i++) strcat(stops, " --stop x");
    static const struct {
        const char *arguments;
        int code;
        const char *part;
    } bad[] = {
        {"-p a --file b", 2, "either -p or --file"},
        {"--file missing", 2, "missing: it cannot be read: No such file"},
        {"--file .", 2, "Is a directory"},
        {"--file zero", 2, "byte 1 is zero"},
        {"--file large", 2, "larger than 16 MiB"},
        {"-p hi --system a", 2, "--system is for a chat"},
        {"-p hi --tools list", 2, "--tools is for a chat"},
        {"--chat --file broken", 2, "broken: byte 1 is not UTF-8"},
        {"--chat -p $(printf '\\377')", 2, "-p: byte 0 is not UTF-8"},
        {"--chat --system a --system-file b", 2, "either --system or --system-file"},
        {"--chat --system-file missing", 2, "--system-file missing"},
        {"--chat --reasoning maybe", 2, "show or hide"},
        {"--chat --format chatml --chat-template prompt", 2, "either --format or --chat-template"},
        {"--chat --chat-template missing", 2, "missing"},
        {"--chat --tools list", 2, "tool 1 has no name"},
        {"--chat --tools nameless", 2, "tool 1 has no name"},
        {"--chat --tools broken", 2, "not UTF-8"},
        {"--chat --chat-template-kwargs '{'", 2, "--chat-template-kwargs: not JSON: line 1"},
        {"--chat --chat-template-kwargs '[1]'", 2, "not a JSON object"},
        {"--chat --chat-template-kwargs '{\"a\": 1, \"a\": 2}'", 2, "duplicate"},
        {"--chat --chat-template-kwargs '{\"messages\": 1}'", 2, "cannot be a variable"},
        {"--chat --file - --system-file - </dev/null", 2, "only once"},
        {"-p a --json --regex b", 2, "either --json or --regex"},
        {"-p a --json-schema b --grammar c", 2, "either --json-schema or --grammar"},
        {"-p a --json-schema missing", 2, "missing"},
    };
    for (size_t i = 0; i < RF_COUNT(bad); i++) {
        char arguments[256]; /* no model is opened: this one does not exist */
        snprintf(arguments, sizeof arguments, "run -m missing.gguf %s", bad[i].arguments);
        command_expect_one_line("RF_DRIVER=none", arguments, bad[i].code, bad[i].part);
    }
    command_expect_one_line("RF_DRIVER=none", stops, 2, "--stop is given more than 64 times");
    snprintf(large, sizeof large, "run -m model.gguf -p - <large");
    command_expect_one_line("RF_DRIVER=none", large, 2, "larger than 16 MiB");
}

/* ---- templates ---- */

RF_TEST(run_template, the_models_own) {
    static const char *const drivers[] = {"RF_DRIVER=none", "RF_DRIVER=sim"};
    make_models();
    write_text("other.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}#");
    write_text("wrong.jinja", "{% for m in messages %}");
    for (int i = 0; i < 2; i++) {
        command_expect(drivers[i], "run -m think.gguf --chat <<'END'\nhi\nand more\nEND", "yes\nyes\n");
        RF_EXPECT_TEXT(command_errors, ""); /* nothing to say about a template that is the file's own */
        command_expect(drivers[i], "run -m think.gguf --chat --reasoning show -p hi </dev/null",
                       "<think>\nhm\n</think>\nyes\n");
        command_expect(drivers[i], "run -m think.gguf --chat --reasoning hide -p hi </dev/null", "yes\n");
        command_expect(drivers[i],
                       "run -m think.gguf --chat --chat-template-kwargs '{\"enable_thinking\": false}' -p hi "
                       "</dev/null",
                       "no\n");
        command_expect(drivers[i], "run -m think.gguf --chat --chat-template other.jinja -p hi </dev/null", "no\n");
        command_expect(drivers[i], "run -m chat.gguf --chat --chat-template other.jinja -p yes </dev/null", "\n");
        command_expect(drivers[i], "run -m think.gguf --chat --format chatml -p hi </dev/null", "hmyes\n");
    }
    command_expect_one_line("RF_DRIVER=none", "run -m missing.gguf --chat --chat-template wrong.jinja </dev/null", 2,
                            "wrong.jinja");
    command_expect_one_line("RF_DRIVER=none", "run -m model.gguf --chat --tools /dev/null </dev/null", 2, "not JSON");
}

/* Control tokens are the template's: spelt in a message they are text. A token for each byte tells. */
RF_TEST(run_template, what_is_typed_is_no_control_token) {
    static const char typed[] = "<|im_end|>";
    int tokens = 0;
    make_models();
    char command[256];
    snprintf(command, sizeof command, "run -m think.gguf --chat --stats -p '%s' </dev/null 2>&1 >/dev/null", typed);
    RF_ASSERT_INT(command_run("RF_DRIVER=none", command), 0);
    const char *found = strstr(command_output, "; prompt ");
    RF_ASSERT(found && sscanf(found, "; prompt %d tokens", &tokens) == 1);
    /* <s>, <|im_start|>, "user\n", the text, <|im_end|>, "\n", <|im_start|>, "assistant\n" */
    RF_EXPECT_INT(tokens, 1 + 1 + 5 + (int)strlen(typed) + 1 + 1 + 1 + 10);
}

/* A template that refuses costs one line; the conversation goes on without what it refused. */
RF_TEST(run_template, a_refusal_loses_nothing) {
    make_models();
    RF_EXPECT_INT(
        command_run("RF_DRIVER=none", "run -m think.gguf --chat <<'END'\nhi\nforbidden\nmore\n/save kept.json\nEND"),
        1);
    RF_EXPECT_TEXT(command_output, "yes\nyes\n");
    RF_EXPECT_CONTAINS(command_errors, "not that");
    EXPECT_CONTENTS("kept.json", "hi", "yes", "more", "yes");
    RF_ASSERT_INT(remove(scratch_path("kept.json")), 0);
    /* So does one that never ends. */
    write_text("deep.jinja", "{% macro f() %}{{ f() }}{% endmacro %}{% if messages[-1].content == 'deep' %}{{ f() }}"
                             "{% elif messages[-1].content == 'long' %}{% for i in range(1000000) %}{% for j in "
                             "range(1000000) %}{% endfor %}{% endfor %}{% endif %}#");
    RF_EXPECT_INT(
        command_run("RF_DRIVER=none",
                    "run -m think.gguf --chat --chat-template deep.jinja <<'END'\nhi\ndeep\nlong\nmore\nEND"),
        1);
    RF_EXPECT_TEXT(command_output, "no\nno\n");
    int lines = 0;
    for (const char *at = command_errors; (at = strchr(at, '\n')); at++) lines++;
    RF_EXPECT_INT(lines, 2);
}

/* ---- reasoning and calls in the conversation ---- */

RF_TEST(run_chat, reasoning_has_its_own_field) {
    make_models();
    command_expect("RF_DRIVER=none", "run -m think.gguf --chat --system Be. <<'END'\nhi\n/save c.json\nEND", "yes\n");
    expect_json(
        "c.json",
        "{\"messages\": [{\"role\": \"system\", \"content\": \"Be.\"}, {\"role\": \"user\", \"content\": \"hi\"}, "
        "{\"role\": \"assistant\", \"content\": \"yes\", \"reasoning_content\": \"hm\"}]}");
    struct stat about;
    RF_ASSERT_INT(stat(scratch_path("c.json"), &about), 0);
    RF_EXPECT_INT(about.st_mode & 0777, 0600);
    RF_ASSERT_INT(remove(scratch_path("c.json")), 0);
}

RF_TEST(run_chat, tool_calls) {
    make_models();
    write_text("tools.json",
               "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": \"does\", \"parameters\": "
               "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}}}}}]");
    /* None were offered: what looks like a call is text. */
    command_expect("RF_DRIVER=none", "run -m calls.gguf --chat -p hi </dev/null",
                   "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}}</tool_call>\n");
    command_expect("RF_DRIVER=sim", "run -m calls.gguf --chat --tools tools.json <<'END'\nhi\n/save c.json\nEND",
                   "{\"name\":\"f\",\"arguments\":{\"a\":1}}\n");
    json_t *root = read_json("c.json");
    const json_t *answer = json_array_get(json_object_get(root, "messages"), 1);
    const json_t *call = json_array_get(json_object_get(answer, "tool_calls"), 0);
    json_t *wanted = json_pack("{s:s, s:{s:i}}", "name", "f", "arguments", "a", 1);
    RF_EXPECT(json_equal(json_object_get(call, "function"), wanted));
    RF_EXPECT_UINT(json_array_size(json_object_get(root, "tools")), 1);
    json_decref(wanted);
    json_decref(root);
    /* Cut inside the call: no line of JSON, and one that says so. */
    RF_EXPECT_INT(command_run("RF_DRIVER=none", "run -m calls.gguf --chat --tools tools.json -n 2 -p hi </dev/null"),
                  1);
    RF_EXPECT_TEXT(command_output, "\n");
    RF_EXPECT_CONTAINS(command_errors, "rocmforge: run: the answer ends inside a tool call: ");
    RF_ASSERT_INT(remove(scratch_path("c.json")), 0);
}

/* What was loaded is saved again, also what this program does not know; a file that ends with a question, or with the
 * result of a call, is answered at once. */
RF_TEST(run_chat, load_and_save_lose_nothing) {
    static const char conversation[] =
        "{\"messages\": [{\"role\": \"developer\", \"content\": [{\"type\": \"text\", \"text\": \"Be.\"}]}, "
        "{\"role\": \"user\", \"content\": \"Grün \\\\ \\\"hi\\\" \\u0001\", \"x\": {\"y\": [1, 2.5, null]}}, "
        "{\"role\": \"assistant\", \"content\": null, \"reasoning_content\": \"hm\", \"tool_calls\": [{\"id\": "
        "\"c1\", "
        "\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": \"ü\"}}}, "
        "{\"function\": {\"name\": \"g\", \"arguments\": \"{}\"}}]}, "
        "{\"role\": \"tool\", \"tool_call_id\": \"c1\", \"name\": \"f\", \"content\": \"{}\"}], \"further\": 7}";
    make_models();
    write_text("in.json", conversation);
    command_expect("RF_DRIVER=none",
                   "run -m think.gguf --chat --ctx 2000 <<'END'\n/load in.json\n/save out.json\nmore\nEND",
                   "yes\nyes\n");
    json_t *root = read_json("out.json"), *messages = json_object_get(root, "messages");
    RF_EXPECT_UINT(json_array_size(messages), 5);
    json_array_remove(messages, 4);
    json_t *wanted = json_loads(conversation, 0, NULL);
    RF_EXPECT(json_equal(root, wanted));
    json_decref(wanted);
    json_decref(root);
    RF_ASSERT_INT(remove(scratch_path("out.json")), 0);
}

RF_TEST(run_chat, damaged_files_are_refused) {
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"", "not JSON"},
        {"{\"messages\": [", "not JSON"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"\xff\"}]}", "decode byte 0xff"},
        {"[]", "no list of \"messages\""},
        {"{\"messages\": {}}", "no list of \"messages\""},
        {"{\"messages\": [1]}", "message 1 is not a JSON object"},
        {"{\"messages\": [{\"content\": \"a\"}]}", "message 1 has no role"},
        {"{\"messages\": [{\"role\": \"wizard\", \"content\": \"a\"}]}", "unknown role \"wizard\""},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"user\"}]}",
         "message 2 has no content"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": 1}]}", "message 1 has no content"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": [1]}]}", "part of its content"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\", \"tool_calls\": [{}]}]}", "of the assistant"},
        {"{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"arguments\": {}}}]}]}",
         "a tool call has no name"},
        {"{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{\"name\": \"\", \"arguments\": {}}]}]}",
         "a tool call has no name"},
        {"{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{\"name\": \"f\", \"arguments\": \"[]\"}]}]}",
         "not a JSON object"},
        {"{\"messages\": [], \"tools\": [{}]}", "tool 1 has no name"},
        {"{\"messages\": [], \"messages\": []}", "duplicate"},
    };
    make_models();
    for (size_t i = 0; i < RF_COUNT(bad); i++) {
        RF_TRACE("%s", bad[i].text);
        write_text("bad.json", bad[i].text);
        RF_EXPECT_INT(command_run("RF_DRIVER=none", "run -m think.gguf --chat <<'END'\nhi\n/load bad.json\n"
                                                    "/load nowhere.json\n/load .\n/load\n/save out.json\nEND"),
                      1);
        RF_EXPECT_TEXT(command_output, "yes\n");
        RF_EXPECT_CONTAINS(command_errors, bad[i].why);
        RF_EXPECT_CONTAINS(command_errors, "the conversation is as it was");
        RF_EXPECT_CONTAINS(command_errors, "nowhere.json: it cannot be read");
        int lines = 0;
        for (const char *at = command_errors; (at = strchr(at, '\n')); at++) lines++;
        RF_EXPECT_INT(lines, 5);
        EXPECT_CONTENTS("out.json", "hi", "yes");
    }
    /* Neither does a file that cannot be written cost anything. */
    RF_ASSERT_INT(chmod(scratch_path("out.json"), 0644), 0);
    RF_EXPECT_INT(command_run("RF_DRIVER=none", "run -m think.gguf --chat <<'END'\nhi\n/save nowhere/out.json\n"
                                                "/save .\n/save /dev/null\n/save\n/save out.json\nEND"),
                  1);
    RF_EXPECT_CONTAINS(command_errors, "nowhere/out.json: it cannot be written: No such file");
    RF_EXPECT_CONTAINS(command_errors, ".: it cannot be written: Is a directory");
    RF_EXPECT_CONTAINS(command_errors, "/dev/null: it cannot be written");
    struct stat about;
    RF_ASSERT_INT(stat(scratch_path("out.json"), &about), 0);
    RF_EXPECT_INT(about.st_mode & 0777, 0600); /* it is a new one */
    RF_ASSERT_INT(remove(scratch_path("out.json")), 0);
}

/* Templates disagree about where the reasoning of an earlier turn stands, and want arguments as objects. */
RF_TEST(run_chat, what_templates_see) {
    static const char *const names[] = {"reasoning_content", "reasoning", "thinking"};
    make_models();
    write_text("in.json", "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", "
                          "\"content\": null, \"reasoning_content\": \"#\", \"tool_calls\": [{\"function\": "
                          "{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": \\\"#\\\"}\"}}]}, {\"role\": \"tool\", "
                          "\"content\": \"r\"}]}");
    for (size_t i = 0; i < RF_COUNT(names); i++) {
        char text[200];
        snprintf(text, sizeof text, "{{ messages[1].%s }}", names[i]);
        write_text("sees.jinja", text);
        command_expect("RF_DRIVER=none",
                       "run -m think.gguf --chat --chat-template sees.jinja <<'END'\n/load in.json\nEND", "no\n");
    }
    write_text("sees.jinja", "{{ messages[1].tool_calls[0].function.arguments.a }}");
    command_expect("RF_DRIVER=none",
                   "run -m think.gguf --chat --chat-template sees.jinja <<'END'\n/load in.json\nEND", "no\n");
}

/* ---- commands and lines ---- */

RF_TEST(run_chat, commands) {
    make_models();
    RF_ASSERT_INT(command_run("RF_DRIVER=none",
                              "run -m think.gguf --chat --system Be. <<'END'\n/help\nhi\nmore\n/undo\n"
                              "/stats\n/save a.json\n/reset\n/save b.json\n/system Do.\n/system\n"
                              "/save c.json\n/system -\n/save d.json\n/exit\nnever\nEND"),
                  0);
    RF_EXPECT_TEXT(command_output, "yes\nyes\n");
    RF_EXPECT_CONTAINS(command_errors, "/undo         "); /* the help */
    RF_EXPECT_CONTAINS(command_errors, "[2 answers; prompts ");
    RF_EXPECT_CONTAINS(command_errors, "the system prompt: Do.");
    EXPECT_CONTENTS("a.json", "Be.", "hi", "yes");
    EXPECT_CONTENTS("b.json", "Be.");
    expect_json("c.json", "{\"messages\": [{\"role\": \"system\", \"content\": \"Do.\"}]}");
    expect_json("d.json", "{\"messages\": []}");
    for (int i = 0; i < 4; i++) {
        char name[8];
        snprintf(name, sizeof name, "%c.json", 'a' + i);
        RF_ASSERT_INT(remove(scratch_path(name)), 0);
    }
    RF_EXPECT_INT(
        command_run("RF_DRIVER=none",
                    "run -m think.gguf --chat <<'END'\n/undo\n/foo bar\n/reset now\n//hi\n/save a.json\nEND"),
        1);
    RF_EXPECT_TEXT(command_output, "yes\n");
    RF_EXPECT_CONTAINS(command_errors, "nothing to undo");
    RF_EXPECT_CONTAINS(command_errors, "there is no command /foo: /help lists them; // sends");
    RF_EXPECT_CONTAINS(command_errors, "/reset takes no value");
    EXPECT_CONTENTS("a.json", "/hi", "yes");
    RF_ASSERT_INT(remove(scratch_path("a.json")), 0);
}

RF_TEST(run_chat, messages_of_several_lines) {
    make_models();
    write_text("lines",
               "a\\\nb\\\n\\\nc\n\"\"\"\n/x\n\ny\\\n\"\"\"\n\"\"\"one\"\"\"\n\"\"\"p\nq\"\"\"\n/save a.json\nend\\");
    command_expect("RF_DRIVER=none", "run -m think.gguf --chat <lines", "yes\nyes\nyes\nyes\nyes\n");
    EXPECT_CONTENTS("a.json", "a\nb\n\nc", "yes", "/x\n\ny\\", "yes", "one", "yes", "p\nq", "yes");
    RF_ASSERT_INT(remove(scratch_path("a.json")), 0);
    /* What is no text is not sent, and the next line is. */
    static const char odd[] = "a\xff\nb\0c\nhi\n\"\"\"\nopen\n";
    write_bytes(scratch_path("lines"), odd, sizeof odd - 1);
    RF_EXPECT_INT(command_run("RF_DRIVER=none", "run -m think.gguf --chat <lines"), 1);
    RF_EXPECT_TEXT(command_output, "yes\n");
    RF_EXPECT_CONTAINS(command_errors, "byte 1 of the line is not UTF-8");
    RF_EXPECT_CONTAINS(command_errors, "zero byte");
    RF_EXPECT_CONTAINS(command_errors, "inside a block");
}

/* ---- the GPU is lost ---- */

/* In the middle of an answer to a rendered conversation: it goes on, with its reasoning and what follows. */
RF_TEST(run_chat, a_templated_answer_goes_on, .timeout_ms = 600000) {
    gpu_need_simulated("");
    make_models();
    for (int nth = 1; nth <= 6; nth++) {
        char environment[128];
        snprintf(environment, sizeof environment, "RF_DRIVER=sim RFSIM=fault=hipGraphLaunch:%d:%s", nth,
                 nth % 2 ? "abort" : "loss");
        RF_TRACE("%s", environment);
        command_expect(environment,
                       "run -m think.gguf --chat --reasoning show <<'END'\nhi\nand more\n/save a.json\nEND",
                       "<think>\nhm\n</think>\nyes\n<think>\nhm\n</think>\nyes\n");
        RF_EXPECT_CONTAINS(command_errors, "; continuing on the CPU: ");
        expect_json("a.json", "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": \"assistant\", "
                              "\"content\": \"yes\", \"reasoning_content\": \"hm\"}, "
                              "{\"role\": \"user\", \"content\": \"and more\"}, {\"role\": \"assistant\", "
                              "\"content\": \"yes\", \"reasoning_content\": \"hm\"}]}");
    }
    RF_ASSERT_INT(remove(scratch_path("a.json")), 0);
    command_expect_nothing_left();
}

/* ---- output that must parse ---- */

RF_TEST(run_grammar, answers_follow_it) {
    static const char *const drivers[] = {"RF_DRIVER=none", "RF_DRIVER=sim"};
    make_models();
    write_text("schema.json", "{\"type\": \"object\", \"properties\": {\"d\": {\"enum\": [\"de\", \"ed\"]}}, "
                              "\"required\": [\"d\"], \"additionalProperties\": false}");
    write_text("opens.jinja", "{{ messages[-1].content }}{# </think> #}<think>");
    write_text("grammar", "root ::= \"de\" [a-z] \"!\"\n");
    for (int i = 0; i < 2; i++) {
        RF_TRACE("%s", drivers[i]);
        command_expect(drivers[i], "run -m endless.gguf -p '?' --regex '(de){3}'", "dedede\n");
        command_expect(drivers[i], "run -m endless.gguf -p '?' --grammar grammar", "ded!\n");
        RF_EXPECT_INT(command_run(drivers[i], "run -m endless.gguf -p '?' --json-schema schema.json >object"), 0);
        json_t *object = read_json("object");
        const char *d = json_string_value(json_object_get(object, "d"));
        RF_EXPECT(d && (!strcmp(d, "de") || !strcmp(d, "ed")));
        json_decref(object);
        RF_EXPECT_INT(command_run(drivers[i], "run -m braces.gguf -p '? ' --json >object"), 0);
        object = read_json("object");
        RF_EXPECT(json_is_object(object));
        json_decref(object);
        /* In a chat: behind the reasoning, where the template has begun it; else from the beginning. */
        command_expect(drivers[i], "run -m think.gguf --chat --regex 'yes|no' -p hi </dev/null", "yes\n");
        command_expect(drivers[i], "run -m loop.gguf --chat --regex '(de){2}' <<'END'\nhi\nmore\nEND",
                       "dede\ndede\n");
        command_expect(drivers[i],
                       "run -m think.gguf --chat --chat-template opens.jinja --regex no --reasoning show -p hi "
                       "</dev/null",
                       "<think>\nhm\n</think>\nno\n");
        /* Cut by length, or by a stop text. */
        RF_EXPECT_INT(command_run(drivers[i], "run -m endless.gguf -p '?' --regex '(de){30}' -n 5"), 1);
        RF_EXPECT_TEXT(command_output, "deded\n");
        RF_EXPECT_TEXT(command_errors, "rocmforge: run: the answer was cut after 5 tokens: it is not complete by the "
                                       "regular expression\n");
        RF_EXPECT_INT(command_run(drivers[i], "run -m endless.gguf -p '?' --regex '(de){30}' --stop ed"), 1);
        RF_EXPECT_CONTAINS(command_errors, "stopped after");
    }
    RF_EXPECT_INT(command_run("RF_DRIVER=none", "run -m endless.gguf -p '?' --json -n 1"), 1);
    RF_EXPECT_TEXT(command_errors, "rocmforge: run: the answer was cut after 1 token: it is not complete JSON\n");
    write_text("bad", "{\"type\": \"nonsense\"}");
    command_expect_one_line("RF_DRIVER=none", "run -m missing.gguf -p a --json-schema bad", 2, "--json-schema: ");
    command_expect_one_line("RF_DRIVER=none", "run -m missing.gguf -p a --json-schema grammar", 2, "grammar");
    command_expect_one_line("RF_DRIVER=none", "run -m missing.gguf -p a --grammar bad", 2, "--grammar: ");
    command_expect_one_line("RF_DRIVER=none", "run -m missing.gguf -p a --regex '(a'", 2, "--regex: ");
}

/* The worker is lost in the middle of an answer that must parse: what follows fits what was said. */
RF_TEST(run_grammar, outlives_the_gpu, .timeout_ms = 600000) {
    gpu_need_simulated("");
    make_models();
    for (int nth = 1; nth <= 5; nth += 2) {
        char environment[128];
        snprintf(environment, sizeof environment, "RF_DRIVER=sim RFSIM=fault=hipModuleLaunchKernel:%d:abort",
                 40 * nth);
        RF_TRACE("%s", environment);
        command_expect(environment, "run -m endless.gguf -p '?' --regex '(de){4}!'", "dededede!\n");
    }
}
