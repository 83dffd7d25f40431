/* Signals to every command and its worker at a random moment. A moment is an event, not a time: the driver sends the
 * signal itself when it is called for the nth time, or the test sends it when the nth byte of an answer has come.
 *
 * What must follow: a signal that ends a program ends the command, by that signal or with a reason; one that hits the
 * worker alone is a lost GPU; one that nobody waits for, and a stop that is followed by a continue, change nothing.
 */
#include "hostile_command.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum effect { ENDS, NOTHING, STOPS };
static const struct signal_row {
    const char *name;
    int number;
    enum effect effect;
} signals[] = {
    {"INT", SIGINT, ENDS},      {"TERM", SIGTERM, ENDS},  {"HUP", SIGHUP, ENDS},      {"QUIT", SIGQUIT, ENDS},
    {"PIPE", SIGPIPE, ENDS},    {"KILL", SIGKILL, ENDS},  {"CHLD", SIGCHLD, NOTHING}, {"WINCH", SIGWINCH, NOTHING},
    {"CONT", SIGCONT, NOTHING}, {"STOP", SIGSTOP, STOPS},
};
static const char *const targets[] = {"command", "worker", "group"};

static struct outcome outcome;

/* What Ctrl-C leaves of an answer, or of a list of items, is in order too. */
static bool is_interrupted(const struct hostile_command *command, const struct signal_row *row) {
    size_t same = 0;
    while (outcome.output[same] && outcome.output[same] == (ANSWER "\n")[same]) same++;
    int code = WIFEXITED(outcome.status) ? WEXITSTATUS(outcome.status) : -1;
    if (outcome.hung || outcome.left) return false;
    if (command->name == RUN && row->number == SIGINT && code == 0) {
        const char *rest = outcome.output + same;
        /* Each byte of a part of a character shows as U+FFFD. */
        for (int i = 0; i < 3 && !strncmp(rest, "\xef\xbf\xbd", 3); i++) rest += 3;
        return !*rest || !strcmp(rest, "\n");
    }
    if (command->name == SELFTEST && code == 1) return strstr(outcome.output, "\"interrupted\": true") != NULL;
    /* The reader of its output has gone: nobody is there to be told. */
    return row->number == SIGPIPE && code == 1;
}

static const char *judge(const struct hostile_command *command, const struct signal_row *row, bool to_command) {
    if (row->effect != ENDS) return hostile_judge(command, &outcome, outcome.reached ? DONE : ANY);
    if (is_interrupted(command, row)) return NULL;
    return to_command ? hostile_judge_signal(command, &outcome, ANY, row->number)
                      : hostile_judge(command, &outcome, ANY);
}

/* The signal, the process and the driver call that belong to the seed. */
static void send_one(const struct hostile_command *command, uint64_t calls, uint64_t seed) {
    struct rf_random random = {seed};
    /* In turn, so that few seeds have all of them. */
    const struct signal_row *row = &signals[seed % RF_COUNT(signals)];
    const char *target = targets[seed / RF_COUNT(signals) % RF_COUNT(targets)];
    uint64_t nth = rf_random_below(&random, rf_random_below(&random, 3) ? calls : RF_MIN(calls, (uint64_t)60)) + 1;
    char what[40], hostile[96];
    /* A command that is dead must take its worker along, even one that does not return. */
    bool kills = row->effect == ENDS && row->number != SIGINT && row->number != SIGPIPE;
    bool hangs = kills && !strcmp(target, "command");
    snprintf(what, sizeof what, "%s/%s/%s", hangs ? "signal-hang" : "signal", target, row->name);
    snprintf(hostile, sizeof hostile, "worker:any:%llu:%s", (unsigned long long)nth, what);
    RF_TRACE("%s, %s; again: hostile_signals.one/%s --seed %llu", command->label, hostile, command->label,
             (unsigned long long)seed);
    hostile_run(command, &(struct attack){.hostile = hostile, .resume = row->effect == STOPS}, &outcome);
    const char *wrong = judge(command, row, strcmp(target, "worker") != 0);
    if (wrong) hostile_report(&outcome, wrong);
}

/* What a failure names. */
RF_TEST_LABELLED_CASES(hostile_signals, one, struct hostile_command, hostile_commands, .timeout_ms = 3600000) {
    hostile_play(c, send_one, HOSTILE_ONE);
}

RF_TEST_LABELLED_CASES(hostile_signals, short_form, struct hostile_command, hostile_commands, .timeout_ms = 3600000) {
    hostile_play(c, send_one, 14);
}

RF_TEST_LABELLED_CASES(hostile_signals, long_form, struct hostile_command, hostile_commands, .tags = "slow,hostile",
                       .timeout_ms = HOSTILE_LONG_MS) {
    hostile_play(c, send_one, LONG_FORM);
}

/* ---- in the middle of an answer ---- */

static struct process start_answer(void) {
    static char model[512];
    const char *arguments[] = {"rocmforge", "run", "-m", model, "-p", "?", "--ctx", "60000", NULL};
    snprintf(model, sizeof model, "%s/endless.gguf", command_folder());
    setenv("RF_DRIVER", "sim", 1);
    setenv("RFSIM", "", 1);
    return process_start(arguments);
}

/* Reads what still comes, and waits for the end. */
static int drain(struct process *process) {
    char ignored[4096];
    while (read(process->out, ignored, sizeof ignored) > 0) continue;
    return process_end(process);
}

static void expect_ended_by(int status, int number) {
    bool in_order = number == SIGINT && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!in_order && !(WIFSIGNALED(status) && WTERMSIG(status) == number))
        RF_FAIL("status %#x after %s", (unsigned)status, sigabbrev_np(number));
}

/* After the nth byte. More must come if the signal does not end the command; Ctrl-C then does. */
static void send_after(const struct signal_row *row, bool to_worker, size_t bytes) {
    RF_TRACE("SIG%s to the %s after %zu bytes", row->name, to_worker ? "worker" : "command", bytes);
    struct process process = start_answer();
    process_hear(&process, bytes);
    pid_t pid = to_worker ? process_worker(&process) : process.pid;
    RF_ASSERT_INT(kill(pid, row->number), 0);
    /* run does not die when its reader goes away: it notices when it writes. */
    if (row->effect == ENDS && !to_worker && row->number != SIGPIPE) {
        expect_ended_by(drain(&process), row->number);
        return;
    }
    if (row->effect == STOPS) RF_ASSERT_INT(kill(pid, SIGCONT), 0);
    process_hear(&process, 20);
    RF_ASSERT_INT(kill(-process.pid, SIGINT), 0);
    expect_ended_by(drain(&process), SIGINT);
}

RF_TEST(hostile_signals, in_an_answer, .timeout_ms = 3600000) {
    struct rf_random random = {rf_test_seed()};
    gpu_need_simulated("");
    /* Whoever started the tests may ignore some, as a shell does for what it runs in the background. */
    for (size_t i = 0; i < RF_COUNT(signals); i++)
        if (signals[i].effect == ENDS && signals[i].number != SIGPIPE) signal(signals[i].number, SIG_DFL);
    for (size_t i = 0; i < RF_COUNT(signals); i++)
        for (int to_worker = 0; to_worker < 2; to_worker++)
            send_after(&signals[i], to_worker, (size_t)rf_random_below(&random, 12) + 1);
    command_expect_nothing_left();
}
