/* How answers are shown: see run.h.
 *
 * Standard output holds what the model said and nothing else. All pieces are written at once, so that whoever reads
 * sees the answer grow. A piece of dimmed text ends with the sequence that undims it: a line about a lost GPU may
 * come behind any piece. */
#include "run.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- text that grows ---- */

bool run_text_add(struct run_text *to, const char *text, size_t bytes) {
    if (to->capacity - to->bytes < bytes + 1) {
        if (bytes > SIZE_MAX / 4 - to->bytes) return false;
        size_t wanted = 2 * (to->bytes + bytes) + 64;
        char *grown = realloc(to->text, wanted);
        if (!grown) return false;
        to->text = grown;
        to->capacity = wanted;
    }
    memcpy(to->text + to->bytes, text, bytes);
    to->bytes += bytes;
    to->text[to->bytes] = 0;
    return true;
}

void run_text_clear(struct run_text *text) {
    text->bytes = 0;
    if (text->text) text->text[0] = 0;
}

/* ---- beginning and ending ---- */

void run_show_begin(struct run_show *show, const struct run_options *options) {
    const char *no_colour = getenv("NO_COLOR"), *terminal = getenv("TERM");
    bool on_terminal = isatty(STDOUT_FILENO);
    *show =
        (struct run_show){.shows_reasoning = options->reasoning ? !strcmp(options->reasoning, "show") : on_terminal,
                          .colours = on_terminal && !(no_colour && *no_colour) && terminal && *terminal &&
                                     strcmp(terminal, "dumb") != 0};
}

static void drop_calls(struct run_show *show) {
    while (show->call_count) free(show->calls[--show->call_count]);
}

void run_show_finish(struct run_show *show) {
    rf_chat_reader_destroy(&show->reader);
    drop_calls(show);
    free(show->calls);
    free(show->content.text);
    free(show->reasoning.text);
    *show = (struct run_show){0};
}

/* ---- parts ---- */

static bool out_of_memory(struct run_show *show) {
    show->no_memory = true;
    return false;
}

static void write_text(struct run_show *show, const char *text, size_t bytes) {
    if (!bytes) return;
    fwrite(text, 1, bytes, stdout);
    show->line_open = text[bytes - 1] != '\n';
}
static void end_line(struct run_show *show) {
    if (show->line_open) write_text(show, "\n", 1);
}

static void end_reasoning(struct run_show *show) {
    if (show->last != SHOWN_REASONING || !show->shows_reasoning) return;
    end_line(show);
    if (show->colours)
        write_text(show, "\n", 1);
    else
        write_text(show, "</think>\n", 9);
}

static bool show_reasoning(void *user, const char *text, size_t bytes) {
    struct run_show *show = user;
    if (!show->reasoning.bytes) /* models begin it on a new line */
        for (; bytes && *text == '\n'; text++) bytes--;
    if (!bytes) return true;
    if (!run_text_add(&show->reasoning, text, bytes)) return out_of_memory(show);
    if (show->shows_reasoning) {
        if (show->last != SHOWN_REASONING) {
            end_line(show);
            if (!show->colours) write_text(show, "<think>\n", 8);
        }
        if (show->colours) fputs("\033[2m", stdout);
        write_text(show, text, bytes);
        if (show->colours) fputs("\033[0m", stdout);
    }
    show->last = SHOWN_REASONING;
    return cli_output_flush();
}

static bool show_content(void *user, const char *text, size_t bytes) {
    struct run_show *show = user;
    if (show->reader && !show->content.bytes) /* as above: it begins behind the reasoning, or the template's end */
        for (; bytes && *text == '\n'; text++) bytes--;
    if (!bytes) return true;
    if (!run_text_add(&show->content, text, bytes)) return out_of_memory(show);
    end_reasoning(show);
    show->last = SHOWN_CONTENT;
    write_text(show, text, bytes);
    return cli_output_flush();
}

static bool show_call(void *user, size_t index, const struct rf_chat_tool_call *call) {
    struct run_show *show = user;
    (void)index;
    char *line = conversation_call(call);
    char **grown = line ? realloc(show->calls, (show->call_count + 1) * sizeof *grown) : NULL;
    if (!grown) {
        free(line);
        return out_of_memory(show);
    }
    show->calls = grown;
    show->calls[show->call_count++] = line;
    end_reasoning(show);
    end_line(show);
    show->last = SHOWN_CALL;
    write_text(show, line, strlen(line));
    write_text(show, "\n", 1);
    return cli_output_flush();
}

/* ---- an answer ---- */

rf_status run_show_clear(struct run_show *show, const struct rf_chat_template *chat_template,
                         const struct rf_chat_prompt *prompt, const char *tools) {
    rf_chat_reader_destroy(&show->reader);
    drop_calls(show);
    run_text_clear(&show->content);
    run_text_clear(&show->reasoning);
    show->last = SHOWN_NOTHING;
    show->line_open = show->no_memory = show->broken_call = false;
    if (!chat_template) return RF_OK;
    RF_PARAMS(struct rf_chat_reader_params, params);
    params.chat_template = chat_template;
    params.prompt = prompt;
    params.calls = tools != NULL;
    params.tools = tools;
    params.content = show_content;
    params.reasoning = show_reasoning;
    params.call_end = show_call;
    params.user = show;
    return rf_chat_reader_create(&params, &show->reader);
}

bool run_show_text(struct run_show *show, const char *text, size_t bytes) {
    if (!show->reader) return show_content(show, text, bytes);
    rf_status status = rf_chat_reader_push(show->reader, text, bytes);
    if (status == RF_E_NO_MEMORY) show->no_memory = true;
    return !status;
}

rf_status run_show_end(struct run_show *show) {
    rf_status status = show->reader ? rf_chat_reader_finish(show->reader) : RF_OK;
    if (status == RF_E_NO_MEMORY) show->no_memory = true;
    show->broken_call = status == RF_E_SYNTAX;
    end_reasoning(show);
    if (show->last != SHOWN_CALL && !(show->last == SHOWN_REASONING && show->shows_reasoning))
        write_text(show, "\n", 1);
    cli_output_flush(); /* a reader at the other end of a pipe waits for the end of the line */
    return show->broken_call ? status : RF_OK;
}
