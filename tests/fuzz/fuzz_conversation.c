/* libFuzzer: any file given to /load. What is taken can be written, read back the same, and shown to a template. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/cli/conversation.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

static void need(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size) {
    struct conversation conversation = {0}, again = {0};
    char why[CONVERSATION_WHY_BYTES] = "";
    need(conversation_begin(&conversation, NULL, NULL, why) && conversation_begin(&again, NULL, NULL, why), why);
    need(conversation_add_user(&conversation, "hi"), "no memory");
    if (conversation_parse(&conversation, (const char *)bytes, size, why)) {
        char *text = conversation_text(&conversation), *shown = conversation_for_template(&conversation);
        need(text && shown, "what was taken cannot be written");
        need(conversation_parse(&again, text, strlen(text), why), "what was written is refused");
        char *second = conversation_text(&again);
        need(second && !strcmp(text, second), "what was read back is not the same");
        need(conversation_parse(&again, shown, strlen(shown), why), "what a template sees is refused");
        need(conversation_count(&again) == conversation_count(&conversation), "a template sees fewer messages");
        free(conversation_messages(&conversation, why));
        free(text);
        free(shown);
        free(second);
        size_t count = conversation_count(&conversation);
        while (conversation_undo(&conversation)) {
            need(conversation_count(&conversation) < count, "/undo drops nothing");
            count = conversation_count(&conversation);
        }
        need(conversation_set_system(&conversation, "x") && conversation_system(&conversation),
             "/system sets nothing");
        conversation_reset(&conversation);
        need(conversation_count(&conversation) == 1, "/reset keeps the system prompt");
    } else {
        need(*why && conversation_count(&conversation) == 1, "a file that is refused changes the conversation");
    }
    conversation_finish(&conversation);
    conversation_finish(&again);
    return 0;
}
