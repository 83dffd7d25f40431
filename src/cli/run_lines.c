/* The lines of a chat: see run.h.
 *
 *   a line                  is a message, or a command where it begins with '/'
 *   a line that ends in \   goes on in the next line
 *   """                     begins a block, which ends with the next """ at the end of a line
 *
 * The same holds for a terminal and for a pipe. On a terminal lines are edited (libedit), and kept for the next chat
 * in $XDG_STATE_HOME/rocmforge/history, which only its owner may read: a line of the file for each line, the newest
 * last, at most HISTORY_LINES of them. A line is appended when it was typed, so several chats at once and a chat that
 * is killed lose none. A line that begins with a blank is kept nowhere. A file that cannot be kept is worth one note.
 */
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef RF_HAVE_EDITLINE
#include <editline/readline.h>
#include <locale.h>
#endif

/* ---- the file ---- */

#ifdef RF_HAVE_EDITLINE
enum { HISTORY_LINES = 1000, HISTORY_BYTES = 1 << 20 };

static const char *history_folder(char *path, size_t size) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    bool set = state && state[0] == '/';
    if (!set && !(home && home[0] == '/')) return NULL;
    int length = snprintf(path, size, "%s%s/rocmforge", set ? state : home, set ? "" : "/.local/state");
    return length > 0 && (size_t)length + 32 < size ? path : NULL;
}

static bool make_folders(char *path) {
    for (char *at = path + 1; *at; at++) {
        if (*at != '/') continue;
        *at = 0;
        bool made = mkdir(path, 0700) == 0 || errno == EEXIST;
        *at = '/';
        if (!made) return false;
    }
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

/* The last lines of the file; *cut: it has more. The caller frees the text. */
static char *read_last(int file, size_t *bytes, bool *cut) {
    struct stat about;
    if (fstat(file, &about) != 0) return NULL;
    size_t size = (size_t)about.st_size, take = size < HISTORY_BYTES ? size : HISTORY_BYTES;
    char *text = malloc(take + 1);
    ssize_t got = text ? pread(file, text, take, (off_t)(size - take)) : -1;
    if (got < 0) {
        free(text);
        return NULL;
    }
    size_t count = (size_t)got, first = 0, lines = 0;
    while (count && text[count - 1] != '\n') count--; /* half a line */
    for (size_t at = count; at > 0 && lines <= HISTORY_LINES; at--)
        if (text[at - 1] == '\n' && lines++ == HISTORY_LINES) first = at;
    if (take < size && !first) { /* the first line may be half a one */
        const char *end = memchr(text, '\n', count);
        first = end ? (size_t)(end - text) + 1 : count;
    }
    *cut = first > 0 || count < (size_t)got;
    *bytes = count - first;
    memmove(text, text + first, *bytes);
    text[*bytes] = 0;
    return text;
}

static int open_file(const char *path) {
    struct stat about;
    int file = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);
    if (file < 0) return -1;
    bool good = fstat(file, &about) == 0 && S_ISREG(about.st_mode);
    if (!good) errno = EINVAL;
    if (good && (about.st_mode & 077)) good = fchmod(file, 0600) == 0;
    if (good) return file;
    int error = errno;
    close(file);
    errno = error;
    return -1;
}

static void load_history(struct run_lines *lines) {
    char path[4096], why[CONVERSATION_WHY_BYTES];
    using_history();
    stifle_history(HISTORY_LINES);
    if (!history_folder(path, sizeof path)) return;
    bool there = make_folders(path);
    strcat(path, "/history");
    if (there) lines->history = open_file(path);
    if (lines->history < 0) {
        fprintf(stderr, "rocmforge: note: lines are not kept in %s: %s\n", path, strerror(errno));
        return;
    }
    size_t bytes = 0;
    bool cut = false;
    char *text = read_last(lines->history, &bytes, &cut);
    if (text && cut && run_replace_file(path, text, bytes, why)) {
        close(lines->history);
        lines->history = open_file(path);
    }
    for (char *line = text, *end; line && (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        if (*line) add_history(line);
    }
    free(text);
}

static void keep_line(struct run_lines *lines, const char *line) {
    size_t length = strlen(line);
    if (!length || *line == ' ' || *line == '\t') return;
    add_history(line);
    char *copy = lines->history >= 0 && run_first_bad_byte(line, length) == length ? malloc(length + 1) : NULL;
    if (!copy) return;
    memcpy(copy, line, length);
    copy[length] = '\n';
    if (write(lines->history, copy, length + 1) != (ssize_t)(length + 1)) { /* at once, so that lines do not mix */
        fprintf(stderr, "rocmforge: note: the history of lines cannot be written: %s\n", strerror(errno));
        close(lines->history);
        lines->history = -1;
    }
    free(copy);
}
#endif

void run_lines_begin(struct run_lines *lines, bool terminal, bool keeps_history) {
    *lines = (struct run_lines){.terminal = terminal, .history = -1};
#ifdef RF_HAVE_EDITLINE
    /* So that libedit knows the characters that are typed: UTF-8, as everywhere here. */
    if (terminal && (!setlocale(LC_CTYPE, "") || MB_CUR_MAX == 1)) setlocale(LC_CTYPE, "C.UTF-8");
    if (terminal && keeps_history) load_history(lines);
#else
    (void)keeps_history;
#endif
}

void run_lines_finish(struct run_lines *lines) {
    if (lines->history >= 0) close(lines->history);
    lines->history = -1;
}

/* ---- one line ---- */

#ifdef RF_HAVE_EDITLINE
/* What libedit's callback leaves for read_typed; only the thread that reads lines uses it. */
static char *typed;
static bool typed_ended;

static void take_typed(char *line) {
    typed = line;
    typed_ended = true;
}

/* A line that is edited on the terminal. NULL: Ctrl-C, or the end of the input. SIGINT is let in only while this
 * waits for a key: with readline() one that comes just before is noticed by the next key only. */
static char *read_typed(struct run_lines *lines, const char *prompt) {
    sigset_t interrupt, before, waiting;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    pthread_sigmask(SIG_BLOCK, &interrupt, &before);
    waiting = before;
    sigdelset(&waiting, SIGINT);
    typed = NULL;
    typed_ended = false;
    rl_callback_handler_install(prompt, take_typed);
    while (!typed_ended && !run_interrupts()) {
        struct pollfd polled = {.fd = STDIN_FILENO, .events = POLLIN};
        int count = ppoll(&polled, 1, NULL, &waiting);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0 || (polled.revents & (POLLHUP | POLLERR | POLLNVAL))) break; /* the terminal is gone */
        rl_callback_read_char();
    }
    rl_callback_handler_remove();
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!typed && !run_interrupts()) lines->over = true;
    return typed;
}
#endif

/* NULL: Ctrl-C, or the input ended, or *error says why it cannot be read. *zero: it holds a zero byte. */
static char *read_line(struct run_lines *lines, const char *prompt, int *error, bool *zero) {
    *error = 0;
    *zero = false;
#ifdef RF_HAVE_EDITLINE
    if (lines->terminal) {
        char *line = read_typed(lines, prompt);
        if (line) keep_line(lines, line);
        return line;
    }
#else
    if (lines->terminal) {
        fputs(prompt, stderr);
        fflush(stderr);
    }
#endif
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length = getline(&line, &capacity, stdin);
    if (length < 0) {
        *error = ferror(stdin) && errno != EINTR ? errno : 0; /* EINTR: Ctrl-C */
        if (!run_interrupts()) lines->over = true;
        free(line);
        return NULL;
    }
    if (length && line[length - 1] == '\n') line[--length] = 0;
    *zero = strlen(line) != (size_t)length;
    return line;
}

static enum run_line refuse(char why[CONVERSATION_WHY_BYTES], enum run_line result, const char *what) {
    snprintf(why, CONVERSATION_WHY_BYTES, "%s", what);
    return result;
}

/* ---- several ---- */

static bool ends_with(const char *text, size_t bytes, const char *end) {
    size_t length = strlen(end);
    return bytes >= length && !memcmp(text + bytes - length, end, length);
}

enum run_line run_lines_next(struct run_lines *lines, char **out, char why[CONVERSATION_WHY_BYTES]) {
    struct run_text whole = {0};
    bool block = false, more = true, zero = false, kept = true;
    int error = 0;
    for (bool first = true; more && kept; first = false) {
        bool has_zero = false;
        char *line = read_line(lines, first ? "> " : ". ", &error, &has_zero);
        zero = zero || has_zero;
        if (!line && !first && lines->over && !error && !block) break; /* the line ended in \ and nothing follows */
        if (!line) {
            free(whole.text);
            if (error) {
                snprintf(why, CONVERSATION_WHY_BYTES, "standard input could not be read: %s", strerror(error));
                return RUN_LINE_FAILED;
            }
            if (block && lines->over)
                return refuse(why, RUN_LINE_BAD, "the input ended inside a block that \"\"\" began: it was not sent");
            return lines->over ? RUN_LINE_END : RUN_LINE_INTERRUPTED;
        }
        const char *text = line;
        size_t bytes = strlen(line);
        if (first && !strncmp(text, "\"\"\"", 3)) {
            block = true;
            text += 3;
            bytes -= 3;
        }
        bool closed = block && ends_with(text, bytes, "\"\"\""), goes_on = !block && ends_with(text, bytes, "\\");
        if (closed) bytes -= 3;
        if (goes_on) bytes--;
        more = block ? !closed : goes_on;
        /* A block's first and last line may hold nothing but the marks. */
        bool bare = block && !bytes && (first || closed);
        kept = run_text_add(&whole, text, bytes) && (!more || bare || run_text_add(&whole, "\n", 1));
        if (closed && bare && whole.bytes && whole.text[whole.bytes - 1] == '\n') whole.text[--whole.bytes] = 0;
        free(line);
    }
    size_t bad = kept ? run_first_bad_byte(whole.text, whole.bytes) : 0;
    enum run_line result = RUN_LINE;
    if (!kept)
        result = refuse(why, RUN_LINE_FAILED, "no memory for the line");
    else if (zero)
        result = refuse(why, RUN_LINE_BAD, "a line holds a zero byte: it was not sent");
    else if (bad < whole.bytes) {
        result = RUN_LINE_BAD;
        snprintf(why, CONVERSATION_WHY_BYTES, "byte %zu of the line is not UTF-8: it was not sent", bad);
    }
    if (result != RUN_LINE) {
        free(whole.text);
        return result;
    }
    *out = whole.text;
    return block ? RUN_BLOCK : RUN_LINE;
}
