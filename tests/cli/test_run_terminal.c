/* A chat on a terminal: the line that is edited, its history, Ctrl-C, and what is dimmed. The terminal is a pseudo
 * terminal of the command's own session, so Ctrl-C is a byte that is typed. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run_testing.h"

enum { PATIENCE_MS = 60000 };

struct screen {
    pid_t pid;
    int terminal;
    size_t used;
    char text[65536]; /* all that was written, and not looked for yet */
};

static void screen_start(struct screen *screen, const char *const *arguments) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    *screen = (struct screen){.terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)};
    if (screen->terminal < 0 || grantpt(screen->terminal) || unlockpt(screen->terminal))
        RF_SKIP("this machine gives no terminal");
    posix_spawn_file_actions_init(&actions);
    /* The first terminal that the leader of a session opens is its own. */
    posix_spawn_file_actions_addopen(&actions, 0, ptsname(screen->terminal), O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&actions, 0, 1);
    posix_spawn_file_actions_adddup2(&actions, 0, 2);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    RF_ASSERT_INT(
        posix_spawn(&screen->pid, ROCMFORGE, &actions, &attributes, (char *const *)(uintptr_t)arguments, environ), 0);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
}

static bool read_more(struct screen *screen) {
    struct pollfd polled = {.fd = screen->terminal, .events = POLLIN};
    if (poll(&polled, 1, PATIENCE_MS) <= 0) RF_FAIL("nothing came; so far: %s", screen->text);
    RF_ASSERT(screen->used < sizeof screen->text - 1);
    ssize_t count = read(screen->terminal, screen->text + screen->used, sizeof screen->text - 1 - screen->used);
    if (count <= 0) return false; /* the other end is closed */
    screen->used += (size_t)count;
    screen->text[screen->used] = 0;
    return true;
}

/* Waits until this was written, and forgets all up to its end. */
static void screen_expect(struct screen *screen, const char *text) {
    RF_TRACE("expecting %s", text);
    const char *found;
    while (!(found = strstr(screen->text, text)))
        if (!read_more(screen)) RF_FAIL("it ended; the last was: %s", screen->text);
    size_t end = (size_t)(found - screen->text) + strlen(text);
    memmove(screen->text, screen->text + end, screen->used - end + 1);
    screen->used -= end;
}

static void screen_type(struct screen *screen, const char *text) {
    RF_ASSERT_INT(write(screen->terminal, text, strlen(text)), strlen(text));
}

/* Reads to the end; the exit status. */
static int screen_end(struct screen *screen) {
    int status = -1;
    while (read_more(screen)) continue;
    RF_ASSERT_INT(waitpid(screen->pid, &status, 0), screen->pid);
    close(screen->terminal);
    RF_ASSERT(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static char model_path[512], state[512];

static void prepare(const char *model) {
    snprintf(model_path, sizeof model_path, "%s/%s", command_folder(), model);
    snprintf(state, sizeof state, "%s/state", command_folder());
    setenv("XDG_STATE_HOME", state, 1);
    setenv("RF_DRIVER", "none", 1);
    setenv("TERM", "xterm", 1);
    setenv("LC_ALL", "C.UTF-8", 1);
    unsetenv("NO_COLOR");
}

static void chat_start(struct screen *screen, const char *further) {
    const char *arguments[] = {"rocmforge", "run",      "-m",     model_path, "--chat", "--device",
                               "cpu",       "--format", "chatml", further,    NULL};
    screen_start(screen, arguments);
    screen_expect(screen, "Chat with the built-in format chatml. An empty line or Ctrl-D ends it");
    screen_expect(screen, "> ");
}

static void read_history(char text[4096]) {
    char path[600];
    size_t bytes;
    snprintf(path, sizeof path, "%s/rocmforge/history", state);
    unsigned char *all = read_bytes(path, &bytes);
    snprintf(text, 4096, "%.*s", (int)bytes, (const char *)all);
    free(all);
    struct stat about;
    RF_ASSERT_INT(stat(path, &about), 0);
    RF_EXPECT_INT(about.st_mode & 0777, 0600);
}

RF_TEST(run_terminal, lines_and_their_history, .timeout_ms = 300000) {
    static struct screen screen;
    char text[4096];
    prepare("chat.gguf");
    chat_start(&screen, NULL);
    screen_type(&screen, "Grün\n");
    screen_expect(&screen, "yes");
    screen_expect(&screen, "> ");
    screen_type(&screen, " secret\n"); /* kept nowhere */
    screen_expect(&screen, "yes");
    screen_expect(&screen, "> ");
    screen_type(&screen, "\"\"\"\n");
    screen_expect(&screen, ". ");
    screen_type(&screen, "more\"\"\"\n");
    screen_expect(&screen, "yes");
    screen_expect(&screen, "> ");
    screen_type(&screen, "/stats\n");
    screen_expect(&screen, "[3 answers; ");
    screen_expect(&screen, "> ");
    screen_type(&screen, "\n");
    screen_expect(&screen, "[3 answers; prompts ");
    screen_expect(&screen, " tokens/s]");
    RF_EXPECT_INT(screen_end(&screen), 0);
    read_history(text);
    RF_EXPECT_TEXT(text, "Grün\n\"\"\"\nmore\"\"\"\n/stats\n");
    /* The next chat begins with them: up, up, up, up is the first. */
    chat_start(&screen, NULL);
    screen_type(&screen, "\033[A\033[A\033[A\033[A");
    screen_expect(&screen, "Grün");
    screen_type(&screen, "\n");
    screen_expect(&screen, "yes");
    screen_expect(&screen, "> ");
    screen_type(&screen, "\004"); /* Ctrl-D */
    RF_EXPECT_INT(screen_end(&screen), 0);
    read_history(text);
    RF_EXPECT_TEXT(text, "Grün\n\"\"\"\nmore\"\"\"\n/stats\nGrün\n");
    /* Unless one wants none. */
    chat_start(&screen, "--no-history");
    screen_type(&screen, "unseen\n");
    screen_expect(&screen, "yes");
    screen_expect(&screen, "> ");
    screen_type(&screen, "\004");
    RF_EXPECT_INT(screen_end(&screen), 0);
    read_history(text);
    RF_EXPECT(!strstr(text, "unseen"));
}

RF_TEST(run_terminal, history_is_bounded, .timeout_ms = 300000) {
    static struct screen screen;
    char path[600];
    struct stat about;
    prepare("chat.gguf");
    RF_ASSERT(mkdir(state, 0700) == 0 || errno == EEXIST);
    snprintf(path, sizeof path, "%s/rocmforge", state);
    RF_ASSERT(mkdir(path, 0700) == 0 || errno == EEXIST);
    snprintf(path, sizeof path, "%s/rocmforge/history", state);
    FILE *file = fopen(path, "w");
    RF_ASSERT(file != NULL);
    for (int i = 0; i < 5000; i++) fprintf(file, "line %d\n", i);
    fputs("half a line", file);
    RF_ASSERT_INT(fclose(file), 0);
    RF_ASSERT_INT(chmod(path, 0644), 0);
    chat_start(&screen, NULL);
    screen_type(&screen, "\033[A");
    screen_expect(&screen, "line 4999");
    screen_type(&screen, "\n");
    screen_expect(&screen, "yes");
    screen_expect(&screen, "> ");
    screen_type(&screen, "\004");
    RF_EXPECT_INT(screen_end(&screen), 0);
    size_t bytes, lines = 0;
    unsigned char *all = read_bytes(path, &bytes);
    for (size_t i = 0; i < bytes; i++) lines += all[i] == '\n';
    RF_EXPECT_UINT(lines, 1001);
    RF_EXPECT(bytes > 10 && !memcmp(all, "line 4000\n", 10));
    free(all);
    RF_ASSERT_INT(stat(path, &about), 0);
    RF_EXPECT_INT(about.st_mode & 0777, 0600);
    /* A folder in its place costs a note, and nothing else. */
    RF_ASSERT(unlink(path) == 0 && mkdir(path, 0700) == 0);
    const char *arguments[] = {"rocmforge", "run", "-m",       model_path, "--chat",
                               "--device",  "cpu", "--format", "chatml",   NULL};
    screen_start(&screen, arguments);
    screen_expect(&screen, "note: lines are not kept in ");
    screen_expect(&screen, "> ");
    screen_type(&screen, "hi\n");
    screen_expect(&screen, "yes");
    screen_expect(&screen, "> ");
    screen_type(&screen, "\004");
    RF_EXPECT_INT(screen_end(&screen), 0);
    RF_ASSERT_INT(rmdir(path), 0);
}

RF_TEST(run_terminal, interrupts, .timeout_ms = 300000) {
    static struct screen screen;
    prepare("endless.gguf");
    chat_start(&screen, "--no-history");
    /* At the prompt: the first discards the line, and a line that is sent begins anew. */
    screen_type(&screen, "never sent\003");
    screen_expect(&screen, "[the line is discarded; Ctrl-C again ends the chat]");
    screen_expect(&screen, "> ");
    screen_type(&screen, "/stats\n");
    screen_expect(&screen, "[0 answers; ");
    screen_expect(&screen, "> ");
    screen_type(&screen, "\003");
    screen_expect(&screen, "[the line is discarded");
    screen_expect(&screen, "> ");
    screen_type(&screen, "\003");
    RF_EXPECT_INT(screen_end(&screen), 0);
    /* In an answer, which is longer than the terminal holds unread: the first stops it; the next one, at the prompt,
     * ends the chat. */
    chat_start(&screen, "--ctx=60000");
    screen_type(&screen, "hi\n");
    screen_expect(&screen, "dedede");
    screen_type(&screen, "\003");
    screen_expect(&screen, "[stopped; Ctrl-C again ends the chat]");
    screen_expect(&screen, "> ");
    screen_type(&screen, "\003");
    screen_expect(&screen, "[1 answer; ");
    RF_EXPECT_INT(screen_end(&screen), 0);
}

/* Reasoning is shown, dimmed where there are colours and marked where there are none. */
RF_TEST(run_terminal, reasoning_is_told_apart, .timeout_ms = 300000) {
    static struct screen screen;
    static struct script script;
    prepare("think.gguf");
    script_begin(&script, true);
    script.chat_template = "{{ messages[-1].content }}{# </think> #}?";
    int32_t think = script_add(&script, "<think>", RF_TOKEN_CONTROL);
    int32_t thought = script_add(&script, "</think>", RF_TOKEN_CONTROL);
    script.next[script_byte('?')] = think;
    script_say(&script, think, "hm", thought);
    script_say(&script, thought, "yes", 2);
    script_write(&script, scratch_path("think.gguf"));
    const char *arguments[] = {"rocmforge", "run", "-m", model_path, "--chat", "--no-history",
                               "--device",  "cpu", NULL, NULL,       NULL};
    for (int i = 0; i < 4; i++) {
        RF_TRACE("case %d", i);
        if (i == 1) setenv("NO_COLOR", "1", 1);
        if (i == 2) {
            unsetenv("NO_COLOR");
            setenv("TERM", "dumb", 1);
        }
        arguments[8] = i == 3 ? "--reasoning" : NULL;
        arguments[9] = i == 3 ? "hide" : NULL;
        screen_start(&screen, arguments);
        screen_expect(&screen, "Chat with the model's own chat template.");
        screen_expect(&screen, "> ");
        screen_type(&screen, "hi\n");
        screen_expect(&screen, "hi\r\n");
        screen_expect(&screen, i == 0 ? "\033[2mh" : i == 3 ? "yes\r\n" : "<think>\r\nhm\r\n</think>\r\nyes\r\n");
        if (i == 0) screen_expect(&screen, "\033[0m\r\n\r\nyes\r\n");
        screen_expect(&screen, "> ");
        screen_type(&screen, "\n");
        RF_EXPECT_INT(screen_end(&screen), 0);
    }
}
