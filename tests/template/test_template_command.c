/* rocmforge template, as a user runs it. */
#include <rocmforge/test.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../command_line.h"
#include "../scratch.h"
#include "../support/gguf_write.h"

static char folder[SCRATCH_BYTES];

static void write_file(const char *name, const char *text) {
    char path[SCRATCH_BYTES + 32];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    RF_ASSERT(file != NULL);
    fputs(text, file);
    fclose(file);
}

static void write_model(const char *name, const char *chat_template) {
    struct rf_gguf_string tokens[] = {{"<unk>", 5}, {"<|begin|>", 9}, {"<|end|>", 7}};
    struct rf_gguf_writer *writer = NULL;
    char path[SCRATCH_BYTES + 32];
    RF_ASSERT_OK(rf_gguf_writer_create(&writer));
    rf_gguf_write_strings(writer, "tokenizer.ggml.tokens", tokens, 3);
    rf_gguf_write_u32(writer, "tokenizer.ggml.bos_token_id", 1);
    rf_gguf_write_u32(writer, "tokenizer.ggml.eos_token_id", 2);
    if (chat_template) rf_gguf_write_string(writer, "tokenizer.chat_template", chat_template);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    RF_ASSERT_OK(rf_gguf_writer_finish(writer, path));
    rf_gguf_writer_destroy(&writer);
}

static void write_files(void) {
    if (folder[0]) return;
    scratch_folder(folder, "template");
    write_file("t.jinja",
               "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{{ eos_token }}"
               "{{ strftime_now('%H:%M') }}{{ x }}\n");
    write_file("bad.jinja", "\n{% if %}");
    write_file("one.json", "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi \\\"you\\\"\\n\"}], \"x\": 1}");
    write_file("list.json",
               "[{\"name\": \"a\", \"messages\": [], \"x\": 1}, {\"name\": \"b\", \"messages\": [], \"x\": 2, "
               "\"bos_token\": \"B\"}]");
    write_file("role.json", "{\"messages\": [{\"role\": \"pope\", \"content\": \"x\"}]}");
    write_model("model.gguf", "{{ bos_token }}{{ messages|length }}{{ eos_token }}");
    write_model("none.gguf", NULL);
}

static void expect(const char *arguments, const char *text) {
    write_files();
    expect_in(folder, arguments, text);
}
static void expect_one_line(const char *arguments, int code, const char *part) {
    write_files();
    expect_one_line_in(folder, arguments, code, part);
}

RF_TEST(template_command, renders) {
    expect("template --file t.jinja --case one.json --now 2026-07-26T12:30", "<s><user>Hi \"you\"\n</s>12:301");
    expect("template --file t.jinja --case list.json --name b --now 2026-07-26T09:05", "B</s>09:052");
    expect("template --file - --case one.json --now 2026-07-26T12:30 <t.jinja", "<s><user>Hi \"you\"\n</s>12:301");
    expect("template --file t.jinja --case - --now 2026-07-26T12:30 <one.json", "<s><user>Hi \"you\"\n</s>12:301");
    expect("template -m model.gguf --case one.json", "<|begin|>1<|end|>");
    expect("template --file t.jinja --case one.json --now 2026-07-26T12:30 --marks",
           "template     \"<s><user>\"\nconversation \"Hi \\\"you\\\"\\n\"\ntemplate     \"</s>\"\n"
           "conversation \"12\"\ntemplate     \":\"\nconversation \"301\"\n");
}

RF_TEST(template_command, one_line_for_each_mistake) {
    expect_one_line("template", 2, "give either -m or --file");
    expect_one_line("template --file t.jinja -m model.gguf --case one.json", 2, "give either -m or --file");
    expect_one_line("template --file t.jinja", 2, "--case CASE.json");
    expect_one_line("template --file - --case -", 2, "standard input");
    expect_one_line("template --file nope.jinja --case one.json", 1, "nope.jinja cannot be read: No such file");
    expect_one_line("template --file t.jinja --case nope.json", 1, "nope.json cannot be read: No such file");
    expect_one_line("template --file . --case one.json", 1, "Is a directory");
    expect_one_line("template --file bad.jinja --case one.json", 2, "bad.jinja, line 2: expected an expression");
    expect_one_line("template --file t.jinja --case list.json", 1, "say which by its name");
    expect_one_line("template --file t.jinja --case list.json --name c", 2, "no conversation is named \"c\"");
    expect_one_line("template --file t.jinja --case t.jinja", 2, "the conversation is not JSON");
    expect_one_line("template --file t.jinja --case role.json", 1, "the role \"pope\" is not known");
    expect_one_line("template --file t.jinja --case one.json --now yesterday", 1, "\"yesterday\" is no time");
    expect_one_line("template -m none.gguf --case one.json", 1,
                    "none.gguf holds no chat template: give one with --file");
    expect_one_line("template -m nope.gguf --case one.json", 2, "nope.gguf");
}
