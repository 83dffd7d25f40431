/* What can be typed in a chat besides messages. What a command has to say goes to standard error: standard output is
 * the model's. A command that is refused costs one line and changes nothing. */
#include "run.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static bool refuse(const char *format, ...) RF_PRINTF(1, 2);
static bool refuse(const char *format, ...) {
    char line[1200];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    cli_fail(CLI_FAILED, "run: %s", line);
    return false;
}

/* A name as it was typed; "~/" is the home folder. */
static bool find_path(const char *name, const char *typed, char path[4096]) {
    const char *home = getenv("HOME");
    bool at_home = !strncmp(typed, "~/", 2) && home;
    if (!*typed) return refuse("%s needs the name of a file", name);
    int length = snprintf(path, 4096, "%s%s", at_home ? home : "", at_home ? typed + 1 : typed);
    return (length > 0 && length < 4000) || refuse("%s: the name of the file is too long", name);
}

static const char *plural(size_t count) {
    return count == 1 ? "" : "s";
}

/* ---- the commands ---- */

static bool save(struct run_chat *chat, const char *rest) {
    char path[4096], why[CONVERSATION_WHY_BYTES];
    if (!find_path("/save", rest, path)) return false;
    char *text = conversation_text(chat->conversation);
    struct run_text file = {0};
    bool good = text && run_text_add(&file, text, strlen(text)) && run_text_add(&file, "\n", 1);
    free(text);
    if (!good) snprintf(why, sizeof why, "no memory for the conversation");
    good = good && run_replace_file(path, file.text, file.bytes, why);
    free(file.text);
    if (!good) return refuse("/save: %s", why);
    size_t count = conversation_count(chat->conversation);
    fprintf(stderr, "[saved %zu message%s to %s]\n", count, plural(count), path);
    return true;
}

static bool load(struct run_chat *chat, const char *rest) {
    char path[4096], why[CONVERSATION_WHY_BYTES];
    const char *unread = NULL;
    size_t bytes = 0;
    if (!find_path("/load", rest, path)) return false;
    FILE *file = fopen(path, "rbe");
    if (!file) return refuse("/load: %s: it cannot be read: %s", path, strerror(errno));
    char *text = run_read_file(file, &bytes, &unread);
    fclose(file);
    if (!text) return refuse("/load: %s: it cannot be read: %s", path, unread);
    bool good = conversation_parse(chat->conversation, text, bytes, why);
    free(text);
    if (!good) return refuse("/load: %s: %s; the conversation is as it was", path, why);
    size_t count = conversation_count(chat->conversation);
    fprintf(stderr, "[loaded %zu message%s from %s]\n", count, plural(count), path);
    chat->asks = conversation_waits(chat->conversation);
    return true;
}

static bool reset(struct run_chat *chat, const char *rest) {
    (void)rest;
    conversation_reset(chat->conversation);
    fputs("[the conversation begins anew]\n", stderr);
    return true;
}

static bool undo(struct run_chat *chat, const char *rest) {
    (void)rest;
    if (!conversation_undo(chat->conversation)) return refuse("/undo: there is nothing to undo");
    size_t count = conversation_count(chat->conversation);
    fprintf(stderr, "[the last question and its answer are forgotten; %zu message%s left]\n", count, plural(count));
    return true;
}

static bool set_system(struct run_chat *chat, const char *rest) {
    bool removes = !strcmp(rest, "-");
    const char *now = conversation_system(chat->conversation);
    if (!*rest) {
        fprintf(stderr, "[%s%s]\n", now ? "the system prompt: " : "there is no system prompt", now ? now : "");
        return true;
    }
    if (!conversation_set_system(chat->conversation, removes ? NULL : rest))
        return refuse("/system: no memory for the system prompt");
    fprintf(stderr, "[the system prompt is %s]\n", removes ? "removed" : "set");
    return true;
}

static bool stats(struct run_chat *chat, const char *rest) {
    const struct run_info *info = &chat->source->info;
    (void)rest;
    fprintf(stderr, "[%s, %u of %u layers on a GPU; %zu of %u tokens of the context]\n", info->device,
            chat->totals.answers ? chat->source->stats.device_layers : info->device_layers, info->layers,
            chat->answer.id_count + chat->answer.token_count, info->context);
    run_show_totals(chat);
    return true;
}

static bool help(struct run_chat *chat, const char *rest);

static const struct {
    const char *name, *value, *help;
    bool (*run)(struct run_chat *chat, const char *rest);
} commands[] = {
    {"/help", "", "show this", help},
    {"/reset", "", "begin anew; the system prompt stays", reset},
    {"/undo", "", "forget the last question and its answer", undo},
    {"/save", " FILE", "write the conversation to a file, as JSON", save},
    {"/load", " FILE", "go on with a conversation from such a file", load},
    {"/system", " TEXT", "set the system prompt; - removes it, nothing shows it", set_system},
    {"/stats", "", "show device, context and tokens per second", stats},
    {"/exit", "", "end the chat; so do an empty line, Ctrl-D, and Ctrl-C twice", NULL},
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

static bool help(struct run_chat *chat, const char *rest) {
    (void)chat;
    (void)rest;
    for (size_t i = 0; i < COMMANDS; i++) {
        char left[32];
        snprintf(left, sizeof left, "%s%s", commands[i].name, commands[i].value);
        fprintf(stderr, "  %-14s %s\n", left, commands[i].help);
    }
    fputs("  //TEXT         send a line that begins with /\n"
          "  TEXT\\          the message goes on in the next line\n"
          "  \"\"\"            a message of several lines, until \"\"\" at the end of a line\n"
          "Ctrl-C stops an answer.\n",
          stderr);
    return true;
}

bool run_command(struct run_chat *chat, const char *line, bool *ends) {
    size_t length = strcspn(line, " \t\n");
    const char *rest = line + length + strspn(line + length, " \t\n");
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strlen(commands[i].name) != length || memcmp(commands[i].name, line, length) != 0) continue;
        if (!commands[i].value[0] && *rest) return refuse("%s takes no value", commands[i].name);
        if (!commands[i].run) *ends = true;
        return !commands[i].run || commands[i].run(chat, rest);
    }
    return refuse("there is no command %.*s: /help lists them; // sends a line that begins with /",
                  length < 60 ? (int)length : 60, line);
}
