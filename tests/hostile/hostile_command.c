#include "hostile_command.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "../sanitizer_noise.h"

enum { ARGUMENTS_MAX = 16, TOKENS = 3, ROW_MAX = 64 };
/* A sanitizer would turn a crash into an exit, and a driver that ends the process into a report of leaks. */
#define PLAIN_ENDS "ASAN_OPTIONS=handle_segv=0:handle_abort=0:detect_leaks=0"

const struct hostile_command hostile_commands[COMMANDS] = {
    {"doctor", DOCTOR}, {"info", INFO},         {"bench", BENCH}, {"check", CHECK},
    {"logits", LOGITS}, {"selftest", SELFTEST}, {"run", RUN},     {"demo", DEMO},
};
static const char *const arguments_of[COMMANDS][ARGUMENTS_MAX] = {
    [DOCTOR] = {"doctor", "--json"},
    [INFO] = {"info", "none.gguf", "--json"},
    [BENCH] = {"bench", "-m", "none.gguf", "-p", "2", "-n", "2", "-r", "1", "--json"},
    [CHECK] = {"check", "--op", "causal_mask", "--json"},
    [LOGITS] = {"logits", "-m", "none.gguf", "--tokens", "1,2,3", "--out", "rows"},
    [SELFTEST] = {"selftest", "--quick", "--items", "open,recordings", "--json"},
    [RUN] = {"run", "-m", "model.gguf", "-p", "?", "--temp", "0"},
    [DEMO] = {"demo"},
};

/* ---- running ---- */

/* After this time a command hangs, and a process is left for good: long enough for a machine with many times more
 * work than cores. HOSTILE_PATIENCE_MS shortens it, to look at many failures in little time. */
static int64_t patience_ms(void) {
    const char *text = getenv("HOSTILE_PATIENCE_MS");
    return text ? strtoll(text, NULL, 10) : 300000;
}

static void make_settings(const struct attack *attack, char *text, size_t size) {
    snprintf(text, size, "RF_DRIVER=sim RFSIM=%s%sreport=report RF_LEASE_DIR=%s/leases %s %s%s%s",
             attack->rfsim ? attack->rfsim : "", attack->rfsim && *attack->rfsim ? "," : "", command_folder(),
             PLAIN_ENDS, attack->hostile ? "RF_HIP_LIBRARY=" HOSTILE_DRIVER " HOSTILE=" : "",
             attack->hostile ? attack->hostile : "",
             attack->hangs ? " RF_TIMEOUT_MS=500 RF_PROBE_TIMEOUT_MS=3000" : " RF_PROBE_TIMEOUT_MS=120000");
}

/* In the child. */
static void become(const struct hostile_command *command, const struct attack *attack, char *settings) {
    char *arguments[ARGUMENTS_MAX + 5], number[32];
    static char program[] = "rocmforge", device[] = "--device", gpu[] = "gpu", limit[] = "--limit", limit_s[] = "2";
    int count = 0;
    arguments[count++] = program;
    for (const char *const *at = arguments_of[command->name]; *at; at++) arguments[count++] = (char *)(uintptr_t)*at;
    if (attack->hangs && command->name == SELFTEST) arguments[count++] = limit, arguments[count++] = limit_s;
    if (attack->gpu) arguments[count++] = device, arguments[count++] = gpu;
    arguments[count] = NULL;
    unsetenv("RF_BUDGET");
    for (char *at = strtok(settings, " "); at; at = strtok(NULL, " ")) putenv(at);
    snprintf(number, sizeof number, "%d", (int)getpid());
    setenv("HOSTILE_COMMAND", number, 1);
    setenv("HOSTILE_PIDS", scratch_path("pids"), 1);
    setenv("HOSTILE_DONE", scratch_path("done"), 1);
    setpgid(0, 0); /* so that a signal to a group stays there */
    for (int i = 1; i < NSIG; i++) signal(i, SIG_DFL);
    if (chdir(command_folder()) != 0) _exit(125);
    int in = open("/dev/null", O_RDONLY), out = open("output", O_CREAT | O_TRUNC | O_WRONLY | O_APPEND, 0600),
        errors = open("errors", O_CREAT | O_TRUNC | O_WRONLY | O_APPEND, 0600);
    if (in < 0 || out < 0 || errors < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(errors, 2) < 0) _exit(125);
    for (int fd = 3; fd < 1024; fd++) close(fd);
    execv(ROCMFORGE, arguments);
    _exit(125);
}

static char state_of(pid_t pid) {
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (file && !fgets(text, sizeof text, file)) text[0] = 0;
    if (file) fclose(file);
    const char *end = strrchr(text, ')');
    return end && end[1] ? end[2] : 0;
}

/* Continues the processes that the driver named before it stopped them. */
static void resume_named(void) {
    FILE *file = fopen(scratch_path("pids"), "re");
    long pid;
    while (file && fscanf(file, "%ld", &pid) == 1)
        if (state_of((pid_t)pid) == 'T') kill((pid_t)pid, SIGCONT);
    if (file) fclose(file);
}

/* Reaps what has ended; the command's status, if it is among them, and true. With all: kills the others first. */
static bool reap(pid_t command, int *status) {
    bool ended = false;
    int of_this;
    for (pid_t pid; (pid = waitpid(-1, &of_this, WNOHANG)) > 0;)
        if (pid == command) {
            ended = true;
            *status = of_this;
        }
    return ended;
}

static int kill_children(void) {
    char path[64];
    int count = 0, pid;
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *file = fopen(path, "re");
    for (; file && fscanf(file, "%d", &pid) == 1; count++) kill(pid, SIGKILL);
    if (file) fclose(file);
    return count;
}

static void pause_ms(int ms) {
    nanosleep(&(struct timespec){0, ms * 1000000L}, NULL);
}

/* Nothing is our child any more: those that a command left became it. */
static int await_no_children(void) {
    int ignored, left = 0;
    for (int64_t end = hostile_now_ms() + patience_ms() / 5; waitpid(-1, &ignored, WNOHANG) >= 0 || errno != ECHILD;
         pause_ms(2))
        if (hostile_now_ms() > end) {
            left += kill_children();
            end = hostile_now_ms() + 1000;
            if (left > 1000) break;
        }
    return left;
}

static void read_into(const char *name, char *text, size_t size) {
    FILE *file = fopen(scratch_path(name), "re");
    size_t length = file ? fread(text, 1, size - 1, file) : 0;
    text[length] = 0;
    if (file) fclose(file);
}

/* What the simulated driver said when its process ended; a process that was killed says nothing. */
static void read_report(struct outcome *outcome) {
    FILE *file = fopen(scratch_path("report"), "re");
    char line[256];
    while (file && fgets(line, sizeof line, file)) {
        unsigned long long calls, traps, device, pinned;
        if (sscanf(line, "pid %*d calls %llu traps %llu faults %*u launches %*u device_bytes %llu pinned_bytes %llu",
                   &calls, &traps, &device, &pinned) != 4)
            continue;
        outcome->calls = RF_MAX(outcome->calls, calls);
        outcome->trapped = outcome->trapped || traps;
        outcome->held = outcome->held || device || pinned;
    }
    if (file) fclose(file);
}

void hostile_run(const struct hostile_command *command, const struct attack *attack, struct outcome *outcome) {
    static const char *const files[] = {"output", "errors", "report", "pids", "done", "rows"};
    char settings[1024], copy[1024];
    *outcome = (struct outcome){0};
    RF_ASSERT_INT(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    make_settings(attack, settings, sizeof settings);
    snprintf(copy, sizeof copy, "%s", settings);
    mkdir(scratch_path("leases"), 0700);
    for (size_t i = 0; i < RF_COUNT(files); i++) unlink(scratch_path(files[i]));
    int length = snprintf(outcome->again, sizeof outcome->again, "%s %s", settings, ROCMFORGE);
    for (const char *const *at = arguments_of[command->name]; *at; at++)
        length += snprintf(outcome->again + length, sizeof outcome->again - (size_t)length, " %s", *at);
    fflush(NULL);
    pid_t pid = fork();
    RF_ASSERT(pid >= 0);
    if (!pid) become(command, attack, copy);
    for (int64_t end = hostile_now_ms() + patience_ms(); !reap(pid, &outcome->status); pause_ms(1)) {
        if (attack->resume) {
            resume_named();
            if (state_of(pid) == 'T') kill(pid, SIGCONT);
        }
        if (!outcome->hung && hostile_now_ms() > end) {
            outcome->hung = true;
            kill(-pid, SIGKILL);
            kill(pid, SIGKILL);
        }
    }
    outcome->left = await_no_children();
    read_into("output", outcome->output, sizeof outcome->output);
    read_into("errors", outcome->errors, sizeof outcome->errors);
    drop_sanitizer_noise(outcome->errors);
    outcome->reached = access(scratch_path("done"), F_OK) == 0;
    read_into("done", outcome->entries, sizeof outcome->entries);
    for (char *end = outcome->entries; (end = strchr(end, '\n'));) *end = ' ';
    read_report(outcome);
    RF_NOTE("%-9s %s%s: status %#x%s%s, %s", command->label, attack->hostile ? attack->hostile : "",
            attack->rfsim ? attack->rfsim : "", (unsigned)outcome->status, outcome->reached ? " at " : "",
            outcome->entries, outcome->errors[0] ? outcome->errors : "nothing said\n");
}

void hostile_report(const struct outcome *outcome, const char *wrong) {
    size_t length = strlen(outcome->output);
    rf_test_fail(__FILE__, __LINE__, false, "%s\n  status %#x; said: %.600s\n  output: …%s\n  command: %s", wrong,
                 (unsigned)outcome->status, outcome->errors, outcome->output + (length > 200 ? length - 200 : 0),
                 outcome->again);
}

/* ---- JSON ---- */

static bool skip_json(const char **at, int depth);
static void skip_blanks(const char **at) {
    while (isspace((unsigned char)**at)) ++*at;
}
static bool skip_word(const char **at, const char *word) {
    size_t length = strlen(word);
    bool same = !strncmp(*at, word, length);
    if (same) *at += length;
    return same;
}
static bool skip_string(const char **at) {
    if (!skip_word(at, "\"")) return false;
    while (**at && **at != '"') {
        if ((unsigned char)**at < 0x20) return false;
        *at += **at == '\\' && (*at)[1] ? 2 : 1;
    }
    return skip_word(at, "\"");
}
static bool skip_items(const char **at, int depth, bool keys, const char *end) {
    skip_blanks(at);
    if (skip_word(at, end)) return true;
    do {
        skip_blanks(at);
        if (keys) {
            if (!skip_string(at)) return false;
            skip_blanks(at);
            if (!skip_word(at, ":")) return false;
        }
        if (!skip_json(at, depth + 1)) return false;
        skip_blanks(at);
    } while (skip_word(at, ","));
    return skip_word(at, end);
}
static bool skip_json(const char **at, int depth) {
    skip_blanks(at);
    if (depth > 32) return false;
    if (skip_word(at, "{")) return skip_items(at, depth, true, "}");
    if (skip_word(at, "[")) return skip_items(at, depth, false, "]");
    if (**at == '"') return skip_string(at);
    if (skip_word(at, "null") || skip_word(at, "true") || skip_word(at, "false")) return true;
    char *end;
    strtod(*at, &end);
    bool number = end != *at && (isdigit((unsigned char)**at) || **at == '-');
    *at = end;
    return number;
}
static bool is_json(const char *text) {
    if (!skip_json(&text, 0)) return false;
    skip_blanks(&text);
    return !*text;
}

/* ---- judging ---- */

/* The logits of the undisturbed command, which runs once in this process. */
static const float *expected_rows(size_t *count) {
    static float rows[TOKENS * ROW_MAX];
    static size_t known;
    if (!known) {
        static struct outcome outcome;
        hostile_run(&hostile_commands[LOGITS], &(struct attack){0}, &outcome);
        FILE *file = fopen(scratch_path("rows"), "re");
        known = file ? fread(rows, sizeof *rows, RF_COUNT(rows), file) : 0;
        if (file) fclose(file);
        if (!known) RF_FAIL("no logits: %s", outcome.errors);
    }
    *count = known;
    return rows;
}

static const char *judge_rows(bool exact) {
    float rows[TOKENS * ROW_MAX];
    size_t count, expected_count;
    FILE *file = fopen(scratch_path("rows"), "re");
    if (!file) return "it claims success without a file of logits";
    count = fread(rows, sizeof *rows, RF_COUNT(rows), file);
    fclose(file);
    const float *expected = expected_rows(&expected_count);
    if (count != expected_count) return "it claims success with too few logits";
    if (exact) return memcmp(rows, expected, count * sizeof *rows) ? "the logits have other bits" : NULL;
    return error_of_floats(rows, expected, count) < 1e-3 ? NULL : "it claims success with wrong logits";
}

/* The GPU did the work, by what the output says; a status of 0 is given. */
static bool used_gpu(const struct hostile_command *command, const struct outcome *outcome) {
    const char *output = outcome->output;
    switch (command->name) {
    case DOCTOR: return strstr(output, "\"usable\": true") && !strstr(output, "\"budget\": null");
    case INFO: return strstr(output, "\"where\": \"gpu\"") != NULL;
    case BENCH: return strstr(output, "\"gpu_layers\": 1,") != NULL;
    case SELFTEST: return strstr(output, "\"ok\": 3,") != NULL;
    case RUN: return !strstr(outcome->errors, "continuing on the CPU");
    default: return true;
    }
}

/* Is what a status of 0 claims there? */
static const char *judge_success(const struct hostile_command *command, const struct outcome *outcome, bool exact) {
    const char *output = outcome->output;
    unsigned passed = 0;
    switch (command->name) {
    case LOGITS: return judge_rows(exact);
    case RUN: return strcmp(output, ANSWER "\n") ? "it claims success without the answer" : NULL;
    case DEMO:
        if (!strstr(output, ": right\n") || !strstr(output, "Refused") || !strstr(output, "Ledger    0 live"))
            return "it claims success without the demonstration";
        return NULL;
    default: break;
    }
    if (!is_json(output)) return "it claims success, but its output is not JSON";
    switch (command->name) {
    case DOCTOR:
        if (!used_gpu(command, outcome) && strstr(output, "\"reason\": \"\"") && strstr(output, "_reason\": \"\""))
            return "the GPU's budget is not known, and no reason is given";
        return strstr(output, "\"gpu_available\"") ? NULL : "it claims success without a report";
    case INFO:
        if (!strstr(output, "\"placement\": {") && !strstr(output, "\"placement_error\": \""))
            return "there is no placement, and no reason is given";
        return strstr(output, "\"architecture\": \"llama\"") ? NULL : "it claims success without a description";
    case BENCH: return strstr(output, "\"answer_tokens_per_s\"") ? NULL : "it claims success without figures";
    case CHECK: {
        const char *at = strstr(output, "\"passed\": ");
        if (at) sscanf(at, "\"passed\": %u", &passed);
        return passed > 10 && strstr(output, "\"failed\": 0,") ? NULL : "it claims success without checking";
    }
    default: return strstr(output, "\"failed\": 0,") ? NULL : "it claims success although an item failed";
    }
}

/* One line of our own says why, or the report has an item that failed. A worker whose driver took its channel away
 * says its reason itself; its command then knows of its end only, and says that. */
static const char *judge_failure(const struct hostile_command *command, const struct outcome *outcome) {
    int lines = 0, ends = 0;
    char begin[32]; /* other lines are notes, the log, and what a driver prints */
    snprintf(begin, sizeof begin, "rocmforge: %s: ", command->label);
    for (const char *at = outcome->errors; *at; at += strcspn(at, "\n"), at += *at == '\n')
        if (!strncmp(at, begin, strlen(begin)))
            ++*(strncmp(at + strlen(begin), "the worker process ended", 24) ? &lines : &ends);
    if (command->name == SELFTEST && strstr(outcome->output, "\"result\": \"failed\"")) return NULL;
    if (command->name == CHECK && strstr(outcome->output, "\"verdict\": \"failed\"")) return NULL;
    if (lines > 1 || ends > 1) return "it fails with more than one line";
    return lines + ends ? NULL : "it fails without a line that says why";
}

const char *hostile_judge(const struct hostile_command *command, const struct outcome *outcome,
                          enum verdict verdict) {
    if (outcome->hung) return "it does not end";
    if (outcome->left) return "a process is left";
    if (outcome->trapped) return "a device-wide wait or a reset was called";
    if (!WIFEXITED(outcome->status)) return "the command died of a signal";
    int code = WEXITSTATUS(outcome->status);
    if (code != 0 && code != 1 && code != 77) return "another status than 0, 1 and 77";
    const char *wrong = code ? judge_failure(command, outcome) : judge_success(command, outcome, verdict == EXACT);
    if (wrong) return wrong;
    if ((verdict == DONE || verdict == EXACT) && (code || !used_gpu(command, outcome))) return "it is not done";
    bool tells = command->name == DOCTOR || command->name == INFO || command->name == RUN;
    if (verdict == NOT_DONE && (tells ? code || used_gpu(command, outcome) : !code))
        return tells ? "it fails, or does not tell that the GPU was lost" : "it claims to be done";
    return NULL;
}

const char *hostile_judge_signal(const struct hostile_command *command, const struct outcome *outcome,
                                 enum verdict verdict, int signal_number) {
    bool killed = WIFSIGNALED(outcome->status) && WTERMSIG(outcome->status) == signal_number;
    if (!outcome->hung && !outcome->left && killed) return NULL;
    return hostile_judge(command, outcome, verdict);
}

static struct outcome own; /* of runs that nobody else looks at; large */

uint64_t hostile_calls(const struct hostile_command *command) {
    hostile_run(command, &(struct attack){.hostile = ""}, &own);
    const char *wrong = hostile_judge(command, &own, DONE);
    if (wrong || own.held || !own.calls) RF_FAIL("undisturbed: %s: %s", wrong ? wrong : "", own.errors);
    return own.calls;
}

void hostile_play(const struct hostile_command *command, hostile_play_fn play, int count) {
    uint64_t calls = hostile_calls(command), seed = rf_test_seed();
    if (count == HOSTILE_ONE) play(command, calls, seed);
    /* Neighbouring seeds, and the commands of one, do not play the same. */
    seed = seed * 1009 + (uint64_t)command->name * 7;
    int64_t end = hostile_now_ms() + hostile_seconds() * 1000 / COMMANDS;
    for (int i = 0; count == LONG_FORM ? hostile_now_ms() < end : i < count; i++) play(command, calls, seed++);
    hostile_expect_no_lease();
}

void hostile_expect_no_lease(void) {
    hostile_run(&hostile_commands[DOCTOR], &(struct attack){0}, &own);
    if (!strstr(own.output, "\"leases\": []")) hostile_report(&own, "a lease is left");
}
