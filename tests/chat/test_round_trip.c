/* From messages to a prompt and back: what a real template makes of an assistant's message is read back into the same
 * reasoning, content and calls. The templates are in the folder that RF_TEST_DATA names. */
#include <rocmforge/chat.h>
#include <rocmforge/test.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "reader_property.h"

#define CITY "{\"city\": \"Paris\", \"unit\": \"x <b> \\\"q\\\" }\"}"
#define SUM "{\"a\": 1, \"b\": [2, {\"c\": null}]}"
#define TOOLS                                                                                                        \
    "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"description\": \"The weather\", "         \
    "\"parameters\": {\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\", \"description\": "     \
    "\"c\"}, \"unit\": {\"type\": \"string\", \"description\": \"u\"}}, \"required\": [\"city\"]}}}, {\"type\": "    \
    "\"function\", \"function\": {\"name\": \"add\", \"description\": \"Adds\", \"parameters\": {\"type\": "         \
    "\"object\", \"properties\": {\"a\": {\"type\": \"number\", \"description\": \"a\"}, \"b\": {\"type\": "         \
    "\"array\", \"description\": \"b\"}}, \"required\": [\"a\"]}}}]"

static const struct rf_chat_tool_call calls[] = {{"call12345", "get_weather", CITY}, {"call67890", "add", SUM}};

/* What a template keeps of a message. */
enum {
    THINKS = 1,   /* the reasoning of an answer */
    CALLS = 2,    /* one call */
    TWO = 4,      /* two, with reasoning and content beside them */
    NO_TEXT = 8,  /* but the content beside calls is lost */
    THINKING = 16 /* a message's member "thinking" is the reasoning */
};
struct row {
    const char *label; /* the file's name; "+" and what follows it tells two rows apart */
    const char *end;   /* what the template puts behind an answer */
    int keeps;
    const char *ids[2]; /* NULL: none */
};
static const struct row rows[] = {
    {"Bielik-11B-v3.0-Instruct", "<|im_end|>", THINKS | TWO, {NULL, NULL}},
    {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "<|END_OF_TURN_TOKEN|>", CALLS | TWO | NO_TEXT, {"0", "1"}},
    {"GLM-4.6", "", THINKS | CALLS | TWO, {NULL, NULL}},
    {"MiMo-VL", "<|im_end|>", CALLS, {NULL, NULL}},
    {"MiniMax-M1", "<end_of_sentence>", CALLS, {NULL, NULL}},
    {"MiniMax-M3", "[e~[", THINKS, {NULL, NULL}},
    {"Mistral-Small-3.2-24B-Instruct-2506", "</s>", CALLS, {"call12345", "call67890"}},
    {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "<|im_end|>", THINKS | TWO, {NULL, NULL}},
    {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "<|im_end|>", CALLS, {NULL, NULL}},
    {"Qwen-Qwen2.5-7B-Instruct", "<|im_end|>", CALLS, {NULL, NULL}},
    {"Qwen-Qwen3-0.6B", "<|im_end|>", THINKS | CALLS | TWO, {NULL, NULL}},
    {"Qwen3.5-4B", "<|im_end|>", THINKS | TWO, {NULL, NULL}},
    {"Reka-Edge", "<sep>", THINKS | TWO, {NULL, NULL}},
    {"deepseek-ai-DeepSeek-V3.2", "<｜end▁of▁sentence｜>", THINKS | TWO, {NULL, NULL}},
    {"deepseek-ai-DeepSeek-V4-Flash-0731", "<｜end▁of▁sentence｜>", THINKS | CALLS | TWO, {NULL, NULL}},
    {"deepseek-ai-DeepSeek-V4", "<｜end▁of▁sentence｜>", THINKS | CALLS | TWO, {NULL, NULL}},
    {"ibm-granite-granite-4.1", "<|end_of_text|>", CALLS, {NULL, NULL}},
    {"meetkai-functionary-medium-v3.1", "<|eom_id|>", CALLS, {NULL, NULL}},
    {"meta-llama-Llama-3.1-8B-Instruct", "<|eot_id|>", CALLS, {NULL, NULL}},
    {"meta-llama-Llama-3.2-3B-Instruct", "<|eot_id|>", CALLS, {NULL, NULL}},
    {"mistralai-Ministral-3-14B-Reasoning-2512", "</s>", CALLS, {NULL, NULL}},
    {"moonshotai-Kimi-K2", "<|im_end|>", CALLS, {"functions.get_weather:0", "functions.add:1"}},
    {"openai-gpt-oss-120b", "<|return|>", THINKS | THINKING, {NULL, NULL}},
    {"openai-gpt-oss-120b+calls", "<|call|>", CALLS, {NULL, NULL}},
    {"poolside-Laguna-S-2.1", "</assistant>", THINKS | CALLS | TWO, {NULL, NULL}},
    {"poolside-Laguna-XS-2.1", "</assistant>", THINKS | TWO, {NULL, NULL}},
    {"poolside-Laguna-XS.2", "</assistant>", THINKS | TWO, {NULL, NULL}},
    {"unsloth-Apriel-1.5", "<|end|>", CALLS, {NULL, NULL}},
};

static char *read_whole(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    if (!file) RF_SKIP("no %s", path);
    char *text = malloc(1 << 20);
    *bytes = fread(text, 1, 1 << 20, file);
    fclose(file);
    return text;
}

static struct rf_chat_prompt render(const struct rf_chat_template *chat_template,
                                    const struct rf_chat_message *messages, size_t count, bool thinks) {
    RF_PARAMS(struct rf_chat_params, params);
    RF_PARAMS(struct rf_chat_prompt, prompt);
    params.message_bytes = sizeof *messages;
    params.messages = messages;
    params.message_count = count;
    params.tools = TOOLS;
    params.variables = thinks ? "{\"enable_thinking\": true, \"thinking\": true}" : NULL;
    params.no_generation_prompt = count > 1;
    params.bos = "<s>";
    params.eos = "</s>";
    params.now = "2026-07-26T12:30";
    RF_ASSERT_OK(rf_chat_render(chat_template, &params, &prompt));
    return prompt;
}

static struct rf_chat_prompt render_json(const struct rf_chat_template *chat_template) {
    static const char text[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", "
                               "\"content\": \"CONTENT\", \"thinking\": \"REASON\"}], \"tools\": " TOOLS
                               ", \"add_generation_prompt\": false}";
    RF_PARAMS(struct rf_chat_params, params);
    RF_PARAMS(struct rf_chat_prompt, prompt);
    params.conversation = text;
    params.conversation_bytes = sizeof text - 1;
    params.bos = "<s>";
    params.eos = "</s>";
    params.now = "2026-07-26T12:30";
    RF_ASSERT_OK(rf_chat_render(chat_template, &params, &prompt));
    return prompt;
}

static void expect_back(const struct rf_chat_template *chat_template, const struct row *row, bool reasoning,
                        bool content, size_t call_count) {
    const struct rf_chat_message messages[] = {
        {.role = RF_CHAT_USER, .text = "Q"},
        {.role = RF_CHAT_ASSISTANT,
         .text = content ? "CONTENT" : "",
         .reasoning = reasoning ? "REASON" : NULL,
         .tool_calls = call_count ? calls : NULL,
         .tool_call_count = call_count},
    };
    struct rf_chat_prompt prompt = render(chat_template, messages, 1, reasoning);
    struct rf_chat_prompt whole =
        row->keeps & THINKING ? render_json(chat_template) : render(chat_template, messages, 2, reasoning);
    RF_TRACE("reasoning %d, content %d, %zu calls", reasoning, content, call_count);
    RF_ASSERT(whole.bytes > prompt.bytes && !memcmp(whole.text, prompt.text, prompt.bytes));
    const char *answer = whole.text + prompt.bytes;
    size_t bytes = whole.bytes - prompt.bytes;
    if (*row->end) {
        const char *end = memmem(answer, bytes, row->end, strlen(row->end));
        RF_ASSERT(end != NULL);
        bytes = (size_t)(end - answer);
    }
    char expected[1024];
    bool text = content && !(call_count && row->keeps & NO_TEXT);
    int used = snprintf(expected, sizeof expected, "%s%s", reasoning ? "|R:REASON" : "", text ? "|C:CONTENT" : "");
    for (size_t i = 0; i < call_count; i++)
        used += snprintf(expected + used, sizeof expected - (size_t)used, "|F:%s|A:%s|E:%s", calls[i].name,
                         calls[i].arguments, row->ids[i] ? row->ids[i] : "-");
    struct reading how = {.chat_template = chat_template, .rendered = &prompt, .tools = TOOLS};
    const char *wrong = NULL;
    size_t *cuts = malloc((bytes + 1) * sizeof *cuts);
    for (size_t i = 0; i < bytes; i++) cuts[i] = i;
    for (int pass = 0; pass < 2; pass++) {
        char *events = read_answer(&how, answer, bytes, cuts, pass ? bytes : 0, &wrong);
        /* White space behind an answer's text, before what ends it, is content. */
        size_t length = strlen(events);
        while (length && strchr(" \n", events[length - 1])) events[--length] = 0;
        RF_EXPECT_TEXT(events, expected + 1);
        if (wrong) RF_FAIL("%s", wrong);
        free(events);
    }
    free(cuts);
    rf_chat_prompt_finish(&prompt);
    rf_chat_prompt_finish(&whole);
}

RF_TEST_LABELLED_CASES(round_trip, messages, struct row, rows) {
    const char *folder = getenv("RF_TEST_DATA");
    if (!folder || !folder[0]) RF_SKIP("RF_TEST_DATA names no folder with templates/");
    char path[512];
    snprintf(path, sizeof path, "%s/templates/%.*s.jinja", folder, (int)strcspn(c->label, "+"), c->label);
    RF_PARAMS(struct rf_chat_template_params, params);
    char *source = read_whole(path, &params.source_bytes);
    struct rf_chat_template *chat_template = NULL;
    params.source = source;
    RF_ASSERT_OK(rf_chat_template_create(&params, &chat_template));
    free(source);
    if (c->keeps & THINKS) expect_back(chat_template, c, true, true, 0);
    if (c->keeps & CALLS) expect_back(chat_template, c, false, false, 1);
    if (c->keeps & TWO) expect_back(chat_template, c, true, true, 2);
    rf_chat_template_destroy(&chat_template);
}
