/* A conversation: a message, an answer, and so on. The command keeps the conversation, so it survives the loss of a
 * worker.
 *
 * What cannot be understood or answered (a command that does not exist, text that is not UTF-8, a conversation that
 * the template refuses or that is too long for the context) costs one line, and the chat goes on without it. Where
 * nobody sits at a terminal the exit status says so at the end. */
#include "run.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static double rate(uint64_t tokens, uint64_t ns) {
    return ns ? (double)tokens * 1e9 / (double)ns : 0;
}

void run_show_totals(const struct run_chat *chat) {
    const struct run_totals *totals = &chat->totals;
    fprintf(stderr, "[%llu answer%s; prompts %llu tokens, %.1f tokens/s; answers %llu tokens, %.1f tokens/s]\n",
            (unsigned long long)totals->answers, totals->answers == 1 ? "" : "s",
            (unsigned long long)totals->prompt_tokens, rate(totals->prompt_tokens, totals->prompt_ns),
            (unsigned long long)totals->tokens, rate(totals->timed_tokens, totals->answer_ns));
}

/* Which template is used: --format or --chat-template, else the file's own, else the built-in format that the file's
 * tokens suggest. CLI_GO_ON, or the exit code after one line. */
static int choose_template(struct run_chat *chat, bool terminal) {
    const struct run_input *input = &chat->options->input;
    const struct run_info *info = &chat->source->info;
    const char *source = input->chat_template ? input->chat_template : info->chat_template;
    const char *name = input->chat_template ? chat->options->template_file : NULL;
    chat->format = input->format ? input->format : info->format;
    if (source && !input->format) {
        rf_status status = run_template_create(source, name, &chat->chat_template);
        if (status)
            return cli_fail(CLI_FAILED,
                            "run: %s (%s); use another with --chat-template FILE, or a built-in one with --format",
                            rf_error_text(), rf_status_name(status));
        if (terminal) fprintf(stderr, "Chat with %s.", name ? name : "the model's own chat template");
    } else if (chat->format == RF_CHAT_NONE) {
        return cli_fail(CLI_FAILED,
                        "run: this file has no chat template: choose a built-in one with --format chatml, "
                        "llama2, llama3 or mistral, or name a file with --chat-template");
    } else {
        if (!input->format)
            fprintf(stderr, "rocmforge: note: this file has no chat template: using the built-in format %s\n",
                    rf_chat_format_name(chat->format));
        if (terminal) fprintf(stderr, "Chat with the built-in format %s.", rf_chat_format_name(chat->format));
        if (conversation_offers_tools(chat->conversation))
            return cli_fail(CLI_USAGE, "run: --tools: a built-in format cannot offer tools; a chat template can");
    }
    if (terminal) fputs(" An empty line or Ctrl-D ends it, Ctrl-C stops an answer, /help lists commands.\n", stderr);
    return CLI_GO_ON;
}

/* ---- an answer ---- */

static rf_status render(const struct run_chat *chat, struct rf_chat_prompt *prompt, struct run_failure *failure) {
    RF_PARAMS(struct rf_chat_params, params);
    char *text = conversation_for_template(chat->conversation);
    if (!text) return run_fail(failure, RF_E_NO_MEMORY, CLI_FAILED, "no memory for the conversation");
    params.message_bytes = sizeof(struct rf_chat_message);
    params.conversation = text;
    params.conversation_bytes = strlen(text);
    params.bos = chat->source->info.bos;
    params.eos = chat->source->info.eos;
    rf_status status = rf_chat_render(chat->chat_template, &params, prompt);
    free(text);
    return status ? run_fail_status(failure, status) : RF_OK;
}

static void count(struct run_chat *chat) {
    const struct run_stats *stats = &chat->source->stats;
    struct run_totals *totals = &chat->totals;
    totals->answers++;
    totals->prompt_tokens += stats->prompt_tokens;
    totals->prompt_ns += stats->prompt_ns;
    totals->tokens += chat->answer.token_count;
    totals->timed_tokens += stats->tokens;
    totals->answer_ns += stats->answer_ns;
}

/* Answers the conversation's last message, and adds the answer. */
static rf_status answer(struct run_chat *chat, struct run_failure *failure) {
    const struct run_options *options = chat->options;
    RF_PARAMS(struct rf_chat_prompt, prompt);
    struct rf_chat_message *messages = NULL;
    struct run_question question = {.format = chat->format, .grammar = options->input.grammar};
    char why[CONVERSATION_WHY_BYTES];
    rf_status status = RF_OK;
    if (chat->chat_template) {
        status = render(chat, &prompt, failure);
        question.rendered = &prompt;
        question.show_special = true;
    } else {
        messages = conversation_messages(chat->conversation, why);
        if (!messages) status = run_fail(failure, RF_E_INVALID, CLI_FAILED, "%s", why);
        question.messages = messages;
        question.message_count = conversation_count(chat->conversation);
    }
    if (!status) {
        char *tools = conversation_tools(chat->conversation);
        status = run_show_clear(&chat->show, chat->chat_template, &prompt, tools);
        free(tools);
        if (status) run_fail_status(failure, status);
        if (!status && chat->show.reader) question.grammar_after = rf_chat_reader_reasoning_end(chat->show.reader);
    }
    if (!status) status = run_source_answer(chat->source, &question, &chat->answer, &chat->show, failure);
    rf_chat_prompt_finish(&prompt);
    free(messages);
    if (status) return status;
    count(chat);
    const char *content = chat->show.content.text, *reasoning = chat->show.reasoning.text;
    if (conversation_add_answer(chat->conversation, content ? content : "", reasoning,
                                (const char *const *)chat->show.calls, chat->show.call_count))
        return RF_OK;
    return run_fail(failure, RF_E_NO_MEMORY, CLI_FAILED, "no memory for the conversation");
}

/* Whether the chat can go on without what failed: the input was wrong, or too much for the template's limits, the
 * context or the memory. */
static bool is_refusal(rf_status status) {
    return status == RF_E_INVALID || status == RF_E_SYNTAX || status == RF_E_UNSUPPORTED || status == RF_E_NO_MEMORY;
}

/* ---- the chat ---- */

/* Answers the conversation, whose first 'kept' messages stay if that fails. CLI_GO_ON, or the exit code. */
static int take_turn(struct run_chat *chat, size_t kept, bool *refused) {
    struct run_failure failure = {0};
    rf_status status = answer(chat, &failure);
    if (!status) {
        if (run_tell_cut(chat->options, &chat->answer) || chat->show.broken_call) *refused = true;
        return CLI_GO_ON;
    }
    int code = run_show_failure(&failure);
    conversation_cut(chat->conversation, kept);
    if (!is_refusal(status)) return code;
    *refused = true;
    return CLI_GO_ON;
}

/* A message or command. CLI_GO_ON, or the exit code. */
static int handle_line(struct run_chat *chat, const char *line, bool is_message, bool *refused) {
    size_t before = conversation_count(chat->conversation);
    bool ends = false;
    if (!is_message && line[0] == '/' && line[1] != '/') {
        chat->asks = false;
        if (!run_command(chat, line, &ends)) *refused = true;
        if (ends) return CLI_DONE;
        return chat->asks ? take_turn(chat, conversation_count(chat->conversation), refused) : CLI_GO_ON;
    }
    if (!is_message && line[0] == '/') line++;
    if (!conversation_add_user(chat->conversation, line))
        return cli_fail(CLI_FAILED, "run: no memory for the conversation");
    return take_turn(chat, before, refused);
}

/* Reads lines and answers them until the chat ends. */
static int converse(struct run_chat *chat) {
    const struct run_input *input = &chat->options->input;
    bool terminal = chat->lines.terminal, refused = false;
    int code = CLI_GO_ON;
    int presses = 0; /* of Ctrl-C, without a line between them */
    bool discarded = false;
    if (input->prompt && *input->prompt) {
        code = handle_line(chat, input->prompt, true, &refused);
        presses = run_interrupts();
    }
    while (code == CLI_GO_ON && !ferror(stdout) && !input->read_standard && !(terminal && presses > 1)) {
        char *line = NULL, why[CONVERSATION_WHY_BYTES];
        if (terminal && presses)
            fprintf(stderr, "[%s; Ctrl-C again ends the chat]\n", discarded ? "the line is discarded" : "stopped");
        run_forget_interrupts();
        run_catch_interrupts(true);
        enum run_line kind = run_lines_next(&chat->lines, &line, why);
        run_catch_interrupts(false);
        if (kind == RUN_LINE_END && terminal) fputc('\n', stderr);
        if (kind == RUN_LINE_END || (kind == RUN_LINE_INTERRUPTED && !terminal)) break;
        if (kind == RUN_LINE_INTERRUPTED) { /* the line is discarded */
            clearerr(stdin);
            fputc('\n', stderr);
            presses++;
            discarded = true;
            continue;
        }
        presses = 0;
        discarded = false;
        if (kind == RUN_LINE_FAILED) code = cli_fail(CLI_FAILED, "run: %s", why);
        if (kind == RUN_LINE_BAD) {
            cli_fail(CLI_FAILED, "run: %s", why);
            refused = true;
        }
        if (kind > RUN_BLOCK) continue;
        if (*line) {
            run_forget_interrupts();
            code = handle_line(chat, line, kind == RUN_BLOCK, &refused);
            presses = run_interrupts();
        } else {
            code = CLI_DONE;
        }
        free(line);
    }
    if (code == CLI_GO_ON) code = CLI_DONE;
    return code == CLI_DONE && refused && !terminal ? CLI_FAILED : code;
}

int run_chat(struct run_source *source, struct run_options *options) {
    struct run_chat chat = {.source = source, .options = options, .conversation = &options->input.conversation};
    bool terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    int code = choose_template(&chat, terminal);
    if (code != CLI_GO_ON) {
        rf_chat_template_destroy(&chat.chat_template);
        return code;
    }
    run_lines_begin(&chat.lines, terminal, !options->no_history);
    run_show_begin(&chat.show, options);
    code = converse(&chat);
    if (chat.totals.answers && (terminal || options->stats) && !ferror(stdout)) run_show_totals(&chat);
    run_show_finish(&chat.show);
    run_lines_finish(&chat.lines);
    run_answer_finish(&chat.answer);
    rf_chat_template_destroy(&chat.chat_template);
    return code;
}
