/* Renders templates that come on standard input, for tests/template/compare.py. A request is a line with two lengths,
 * then so many bytes of a template's source and of a conversation in JSON. The answer is a line "ok BYTES" or
 * "error STATUS BYTES", then the text or the error text. */
#include <rocmforge/chat.h>

#include <stdio.h>
#include <stdlib.h>

static char *read_bytes(size_t count) {
    char *bytes = malloc(count + 1);
    if (!bytes || fread(bytes, 1, count, stdin) != count) exit(1);
    bytes[count] = 0;
    return bytes;
}

int main(void) {
    size_t source_bytes, conversation_bytes;
    char line[64];
    while (fgets(line, sizeof line, stdin) && sscanf(line, "%zu %zu", &source_bytes, &conversation_bytes) == 2) {
        char *source = read_bytes(source_bytes), *conversation = read_bytes(conversation_bytes);
        struct rf_chat_template *chat_template = NULL;
        RF_PARAMS(struct rf_chat_template_params, made);
        RF_PARAMS(struct rf_chat_params, params);
        RF_PARAMS(struct rf_chat_prompt, prompt);
        made.source = source;
        made.source_bytes = source_bytes;
        params.conversation = conversation;
        params.conversation_bytes = conversation_bytes;
        params.bos = "<s>";
        params.eos = "</s>";
        params.now = "2026-07-26T12:30";
        rf_status status = rf_chat_template_create(&made, &chat_template);
        if (!status) status = rf_chat_render(chat_template, &params, &prompt);
        if (status) {
            const char *text = rf_error_text();
            size_t bytes = 0;
            while (text[bytes]) bytes++;
            printf("error %s %zu\n%s", rf_status_name(status), bytes, text);
        } else {
            printf("ok %zu\n", prompt.bytes);
            fwrite(prompt.text, 1, prompt.bytes, stdout);
        }
        fflush(stdout);
        rf_chat_prompt_finish(&prompt);
        rf_chat_template_destroy(&chat_template);
        free(source);
        free(conversation);
    }
    return 0;
}
