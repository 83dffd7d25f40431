/* Runs any command under the same lock, deadline, health probe and memory check as a test: a cmocka, GoogleTest,
 * pytest or cargo test binary.
 *
 * The command keeps its own input, output, errors and exit code; what the runner has to say goes to standard error.
 * It gets the whole share through RF_BUDGET, which only programs that use this library respect; RF_TEST_DEVICE names
 * the GPU. */
#include "runner_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_TIMEOUT_MS 600000
#define TURN_PAUSE_NS 100000000
#define TOLERANCE_BYTES (UINT64_C(64) << 20)

static void on_interrupt(int number) {
    (void)number;
    rf_test_interrupted = 1;
}

/* Waits for the GPU's turn; false if it does not come. */
static bool take_turn(struct rf_test_gate *gate, const struct rf_test_settings *settings) {
    while (!rf_test_gate_turn(gate, settings) && !rf_test_interrupted)
        nanosleep(&(struct timespec){0, TURN_PAUSE_NS}, NULL);
    return !gate->lost && !rf_test_interrupted;
}

static void probe(struct rf_test_gate *gate, struct rf_test_health *health) {
    struct rf_test_part part = {0};
    char budget[160] = "";
    if (gate->share && rf_share_lend(gate->share, gate->share_bytes, part.spec, sizeof part.spec) == RF_OK) {
        part.bytes = gate->share_bytes;
        gate->lent_bytes += part.bytes;
        snprintf(budget, sizeof budget, "RF_BUDGET=%s", part.spec);
    }
    rf_test_health_probe(gate->device, budget[0] ? budget : NULL, NULL, 0, health);
    rf_test_gate_reclaim(gate, &part);
}

/* After the command: checks that the device works and that its memory came back. False: the device is lost. */
static bool look_after(struct rf_test_gate *gate, const struct rf_test_health *before) {
    struct rf_test_health after;
    char had[32], has[32];
    int64_t until = rf_test_now_ns() + INT64_C(5000000000);
    for (;;) {
        probe(gate, &after);
        if (!after.good) {
            rf_test_remark("device lost: %s", after.why);
            return false;
        }
        if (after.free_bytes + TOLERANCE_BYTES >= before->free_bytes || rf_test_now_ns() > until) break;
        nanosleep(&(struct timespec){0, TURN_PAUSE_NS}, NULL);
    }
    rf_format_bytes(before->free_bytes, had, sizeof had);
    rf_format_bytes(after.free_bytes, has, sizeof has);
    if (after.free_bytes + TOLERANCE_BYTES < before->free_bytes)
        rf_test_remark("GPU memory did not come back: %s free before, %s after", had, has);
    else
        rf_test_remark("the GPU works: %s free before, %s after", had, has);
    return true;
}

static int run_command(const struct rf_test_settings *settings, struct rf_test_gate *gate) {
    int64_t timeout_ms = settings->timeout_ms ? settings->timeout_ms : DEFAULT_TIMEOUT_MS;
    char device[32], budget[160];
    const char *environment[8];
    size_t count = 0;
    struct rf_test_part part = {0};
    if (gate->gpu) {
        snprintf(device, sizeof device, "RF_TEST_DEVICE=%d", gate->device);
        environment[count++] = device;
    }
    if (gate->share && rf_share_lend(gate->share, gate->share_bytes, part.spec, sizeof part.spec) == RF_OK) {
        part.bytes = gate->share_bytes;
        gate->lent_bytes += part.bytes;
        snprintf(budget, sizeof budget, "RF_BUDGET=%s", part.spec);
        environment[count++] = budget;
    }
    char check[128];
    if (settings->check) {
        snprintf(check, sizeof check, "RF_CHECK=%s", settings->check);
        environment[count++] = check;
    }
    environment[count] = NULL;
    struct rf_test_child child, *children[] = {&child};
    struct rf_test_spawn spawn = {.argv = settings->command,
                                  .environment = environment,
                                  .timeout_ns = (int64_t)((double)timeout_ms * 1e6 * settings->timeout_scale),
                                  .is_command = true};
    int error = rf_test_child_start(&child, &spawn);
    if (error) {
        rf_test_gate_reclaim(gate, &part);
        fprintf(stderr, "%s: %s cannot be run: %s\n", settings->program, settings->command[0], strerror(error));
        return 2;
    }
    /* In its own process group it could not read the terminal, so it becomes the foreground group. */
    bool terminal = isatty(0) && tcgetpgrp(0) == getpgrp();
    void (*old_ttou)(int) = signal(SIGTTOU, SIG_IGN);
    if (terminal) tcsetpgrp(0, child.pid);
    while (!child.ended && !rf_test_interrupted) rf_test_children_serve(children, 1, INT64_C(1000000000));
    int status = child.wait_status;
    bool ended = child.ended, timed_out = child.timed_out;
    if (child.left_behind[0]) {
        char text[480];
        rf_test_child_describe_left(&child, text, sizeof text);
        rf_test_remark("the command %s", text);
    }
    rf_test_child_finish(&child);
    if (terminal) tcsetpgrp(0, getpgrp());
    signal(SIGTTOU, old_ttou);
    rf_test_gate_reclaim(gate, &part);
    if (!ended) {
        rf_test_remark("interrupted: the command was killed");
        return 130;
    }
    if (timed_out) {
        rf_test_remark("timeout: killed after %.1f s", (double)timeout_ms * settings->timeout_scale / 1000);
        return 1;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Whether it can be run at all; checked before the GPU is opened. */
static bool can_run(const char *command) {
    if (strchr(command, '/')) return access(command, X_OK) == 0;
    const char *path = getenv("PATH");
    for (const char *at = path ? path : "/usr/bin:/bin"; *at;) {
        size_t length = strcspn(at, ":");
        char full[4096];
        snprintf(full, sizeof full, "%.*s%s%s", (int)length, at, length ? "/" : "", command);
        if (access(full, X_OK) == 0) return true;
        at += length + (at[length] == ':');
    }
    errno = ENOENT;
    return false;
}

int rf_test_run_command(const struct rf_test_settings *settings) {
    if (!can_run(settings->command[0])) {
        fprintf(stderr, "%s: %s cannot be run: %s\n", settings->program, settings->command[0], strerror(errno));
        return 2;
    }
    struct rf_test_gate gate;
    struct rf_test_health before = {.good = false};
    int code = rf_test_gate_open_for_command(&gate, settings);
    if (code) return code;
    struct sigaction action = {.sa_handler = on_interrupt}, old_int, old_term;
    rf_test_interrupted = 0;
    sigaction(SIGINT, &action, &old_int);
    sigaction(SIGTERM, &action, &old_term);
    rf_test_orphans_begin();
    if (!gate.gpu)
        rf_test_remark("no usable GPU, so no lock and no health probe: %s", gate.why);
    else if (!take_turn(&gate, settings))
        code = 1;
    else
        probe(&gate, &before);
    if (code)
        fprintf(stderr, "%s: %s\n", settings->program, rf_test_interrupted ? "interrupted" : gate.why);
    else if (gate.gpu && !before.good) {
        fprintf(stderr, "%s: the GPU is not usable before the command: %s\n", settings->program, before.why);
        code = 1;
    } else {
        code = run_command(settings, &gate);
        if (gate.gpu && !rf_test_interrupted && !look_after(&gate, &before) && code == 0) code = 1;
    }
    rf_test_orphans_end();
    sigaction(SIGINT, &old_int, NULL);
    sigaction(SIGTERM, &old_term, NULL);
    rf_test_gate_close(&gate);
    return code;
}
