/* Every command that uses a worker, with a driver that ends, hangs, prints, leaves processes or attacks its parent;
 * and a worker whose command is killed, that cannot be killed or cannot start. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run_testing.h"
#include "../dead_process.h"

#define SIM "ASAN_OPTIONS=handle_segv=0:verify_asan_link_order=0 TSAN_OPTIONS=handle_segv=0 RF_DRIVER=sim "
/* With one of its behaviours behind it. */
#define BAD SIM "RF_HIP_LIBRARY=" BAD_DRIVER_LIBRARY " BAD_DRIVER="

/* failure: what a job that is not finished gives; fault: a driver call that it makes, and what 'at' says then. */
struct job {
    const char *name, *arguments, *fault, *at;
    int failure;
    bool shows; /* the reason stands on standard output */
};
#define OPENING "hipStreamCreateWithPriority:1"
static const struct job jobs[] = {
    {"doctor", "doctor", OPENING, "opening the device", 0, true},
    {"demo", "demo --device gpu", OPENING, "opening the device", 1, false},
    {"kernels", "kernels --device 0", OPENING, "opening the device", 1, false},
    {"check", "check --op fill --device gpu", "hipModuleLaunchKernel:2", "fill ", 1, false},
    {"bench", "bench -m model.gguf -p 4 -n 3 -r 1 --device gpu --json", "hipGraphLaunch:3", "round ", 1, false},
    {"logits", "logits -m model.gguf --tokens 1,2 --out rows --device gpu", "hipMemcpyDtoHAsync:1",
     "evaluating the tokens", 1, false},
    {"info", "info model.gguf --brief --device gpu", OPENING, "opening model.gguf", 1, false},
};

static int run_job(const struct job *job, const char *environment) {
    RF_TRACE("%s rocmforge %s", environment, job->arguments);
    remove(scratch_path("rows"));
    int code = command_run(environment, job->arguments);
    RF_NOTE("%s rocmforge %s: %d\n%s%s", environment, job->arguments, code, command_output, command_errors);
    return code;
}

static const char *reason_of(const struct job *job) {
    return job->shows ? command_output : command_errors;
}

static void expect_failure(const struct job *job, int code, const char *part) {
    RF_EXPECT_INT(code, job->failure);
    RF_EXPECT_CONTAINS(reason_of(job), part);
    RF_EXPECT(access(scratch_path("rows"), F_OK) != 0);
}

/* What a job says that did all its work. */
static void expect_success(const struct job *job, int code) {
    static const struct {
        const char *name, *part;
    } parts[] = {{"doctor", "70% of "},   {"demo", ": right\n"}, {"kernels", "softmax_f32"},  {"check", " 0 failed"},
                 {"bench", "\"rounds\""}, {"logits", ""},        {"info", "\nPlacement\n  S"}};
    RF_EXPECT_INT(code, 0);
    for (size_t i = 0; i < RF_COUNT(parts); i++)
        if (!strcmp(parts[i].name, job->name)) RF_EXPECT_CONTAINS(command_output, parts[i].part);
    if (!strcmp(job->name, "logits")) RF_EXPECT(access(scratch_path("rows"), F_OK) == 0);
}

/* ---- ends ---- */

RF_TEST(worker, an_exit_without_the_closing_message_is_a_failure, .timeout_ms = 600000) {
    gpu_need_simulated("");
    for (size_t i = 0; i < RF_COUNT(jobs); i++) {
        char environment[256], at[128];
        snprintf(environment, sizeof environment, SIM "RFSIM=fault=%s:exit/0", jobs[i].fault);
        snprintf(at, sizeof at, "the worker process ended with status 0, most likely inside the driver, at: %s",
                 jobs[i].at);
        expect_failure(&jobs[i], run_job(&jobs[i], environment), at);
    }
    RF_EXPECT_INT(command_run(SIM "RFSIM=fault=" OPENING ":exit/0", "selftest --items open"), 1);
    RF_EXPECT_CONTAINS(command_output, "the worker process ended without a result");
    command_expect(SIM "RFSIM=fault=" OPENING ":exit/0", "run -m model.gguf -p '?'", ANSWER "\n");
    RF_EXPECT_CONTAINS(command_errors, "the worker process ended with status 0");
    command_expect_nothing_left();
}

/* Whoever starts the command may ignore SIGCHLD, and then nobody is told how a child ended. */
RF_TEST(worker, sigchld_may_be_ignored, .timeout_ms = 600000) {
    gpu_need_simulated("");
    for (size_t i = 0; i < RF_COUNT(jobs); i++) {
        char environment[256];
        expect_success(&jobs[i], run_job(&jobs[i], "--ignore-signal=CHLD " SIM));
        snprintf(environment, sizeof environment, "--ignore-signal=CHLD " SIM "RFSIM=fault=%s:crash", jobs[i].fault);
        expect_failure(&jobs[i], run_job(&jobs[i], environment), "died of SIGSEGV");
    }
    command_expect_nothing_left();
}

/* ---- hangs ---- */

RF_TEST(worker, silence_has_a_deadline, .timeout_ms = 1200000) {
    gpu_need_simulated("");
    for (size_t i = 0; i < RF_COUNT(jobs); i++) {
        char at[128];
        int code = -1;
        snprintf(at, sizeof at, " s; the worker process was killed, at: %s", jobs[i].at);
        /* What comes before the hang must be done before its deadline: try longer ones. */
        for (int ms = 500; ms <= 32000; ms *= 4) {
            char environment[256];
            snprintf(environment, sizeof environment,
                     SIM "RF_TIMEOUT_MS=%d RF_PROBE_TIMEOUT_MS=%d RFSIM=fault=%s:hang", ms, ms * 2, jobs[i].fault);
            code = run_job(&jobs[i], environment);
            if (strstr(reason_of(&jobs[i]), at)) break;
        }
        expect_failure(&jobs[i], code, "the driver did not answer for ");
        RF_EXPECT_CONTAINS(reason_of(&jobs[i]), at);
    }
    command_expect_nothing_left();
}

/* SIGKILL without effect stands in for a process that hangs inside the kernel. The command gives up and says so. */
RF_TEST(worker, one_that_cannot_be_killed_is_left, .timeout_ms = 600000) {
    static const char *const what[] = {"kill", "signals"};
    gpu_need_simulated("");
    for (size_t i = 0; i < RF_COUNT(what); i++)
        for (int ms = 500; ms <= 32000; ms *= 4) {
            char environment[512];
            snprintf(environment, sizeof environment,
                     SIM "LD_PRELOAD=" FAILING_CALLS " FAILING=%s RF_TIMEOUT_MS=%d RF_PROBE_TIMEOUT_MS=%d "
                         "RFSIM=fault=" OPENING ":hang",
                     what[i], ms, ms * 2);
            RF_EXPECT_INT(run_job(&jobs[1], environment), 1);
            if (!strstr(command_errors, "did not answer") && ms < 32000) continue;
            RF_EXPECT_CONTAINS(command_errors, "was killed, but does not end: it hangs inside the kernel");
            break;
        }
    command_expect_nothing_left();
}

/* ---- what a driver does beside its work ---- */

static void expect_json(const char *arguments, const char *condition) {
    char with_python[512];
    snprintf(with_python, sizeof with_python,
             "%s | python3 -c 'import json, sys; r = json.load(sys.stdin); print(%s)'", arguments, condition);
    command_expect(BAD "print", with_python, "True\n");
    RF_EXPECT_CONTAINS(command_errors, "the driver says hello\nand again\n");
}

RF_TEST(worker, what_a_driver_prints_is_no_output, .timeout_ms = 600000) {
    gpu_need_simulated("");
    expect_json("bench -m model.gguf -p 4 -n 2 -r 1 --device gpu --json", "r[\"rounds\"] == 1");
    expect_json("check --op fill --device gpu --json", "r[\"failed\"] == 0 and r[\"passed\"] > 10");
    expect_json("doctor --json", "r[\"devices\"][0][\"budget\"] > 0");
    expect_json("info model.gguf --json --device gpu", "r[\"placement\"][\"context\"] > 0");
    command_expect(BAD "print", "run -m model.gguf -p '?' --device gpu", ANSWER "\n");
    /* A file that is this process's output, not the worker's. */
    char plain[1 << 12];
    RF_EXPECT_INT(command_run(SIM, "logits -m model.gguf --tokens 1,2 --out /dev/stdout --device gpu"), 0);
    size_t bytes = command_output_bytes;
    RF_ASSERT(bytes > 0);
    memcpy(plain, command_output, RF_MIN(bytes, sizeof plain));
    RF_EXPECT_INT(command_run(BAD "print", "logits -m model.gguf --tokens 1,2 --out /dev/stdout --device gpu"), 0);
    RF_ASSERT_UINT(command_output_bytes, bytes);
    RF_EXPECT(!memcmp(plain, command_output, RF_MIN(bytes, sizeof plain)));
}

/* Waits for processes that are about to end; one that stays is killed, and the test fails. */
static void expect_dead(long pid) {
    for (int i = 0; i < 12000 && !is_dead(pid); i++) rf_sleep_ns(RF_MS(5));
    if (is_dead(pid)) return;
    kill((pid_t)pid, SIGKILL);
    RF_FAIL("process %ld is still there", pid);
}

static void expect_noted_are_dead(int least) {
    FILE *list = fopen(scratch_path("pids"), "r");
    long pid;
    int count = 0;
    for (; list && fscanf(list, "%ld", &pid) == 1; count++) expect_dead(pid);
    if (list) fclose(list);
    remove(scratch_path("pids"));
    RF_EXPECT(count >= least);
}

RF_TEST(worker, what_a_driver_leaves_behind_is_killed, .timeout_ms = 600000) {
    gpu_need_simulated("");
    for (size_t i = 0; i < RF_COUNT(jobs); i++) {
        expect_success(&jobs[i], run_job(&jobs[i], BAD "daemon BAD_DRIVER_PIDS=pids"));
        expect_noted_are_dead(2);
    }
    /* A process that keeps the channel open does not look like a worker that lives. */
    for (size_t i = 0; i < RF_COUNT(jobs); i++) {
        int code = run_job(&jobs[i], BAD "daemon-with-channel BAD_DRIVER_PIDS=pids");
        expect_failure(&jobs[i], code, "the worker process ended with status 0");
        expect_noted_are_dead(2);
    }
    command_expect(BAD "daemon BAD_DRIVER_PIDS=pids", "run -m model.gguf -p '?' --device gpu", ANSWER "\n");
    expect_noted_are_dead(2);
    RF_EXPECT_INT(command_run(BAD "daemon BAD_DRIVER_PIDS=pids", "selftest --items open --limit 200"), 0);
    expect_noted_are_dead(2);
}

RF_TEST(worker, a_driver_that_attacks_its_parent_ends_itself, .timeout_ms = 600000) {
    static const struct {
        const char *bad, *part;
    } attacks[] = {{"kill-parent", "died of SIGKILL"},
                   {"daemon-and-kill-parent", "died of SIGKILL"},
                   {"kill-group", "died of SIGTERM"}};
    gpu_need_simulated("");
    for (size_t a = 0; a < RF_COUNT(attacks); a++) {
        char environment[512];
        snprintf(environment, sizeof environment, BAD "%s BAD_DRIVER_PIDS=pids", attacks[a].bad);
        for (size_t i = 0; i < RF_COUNT(jobs); i++) {
            expect_failure(&jobs[i], run_job(&jobs[i], environment), attacks[a].part);
            expect_noted_are_dead(1);
        }
        command_expect(environment, "run -m model.gguf -p '?'", ANSWER "\n");
        RF_EXPECT_CONTAINS(command_errors, attacks[a].part);
        expect_noted_are_dead(1);
        RF_EXPECT_INT(command_run(environment, "selftest --items open --limit 200"), 1);
        RF_EXPECT_CONTAINS(command_output, attacks[a].part);
        expect_noted_are_dead(1);
    }
    /* A keeper that was stopped cannot clean up; it is killed, and the worker with it. */
    for (int ms = 500; ms <= 32000; ms *= 4) {
        char environment[512];
        snprintf(environment, sizeof environment,
                 BAD "stop-parent BAD_DRIVER_PIDS=pids RF_TIMEOUT_MS=%d RF_PROBE_TIMEOUT_MS=%d", ms, ms * 2);
        RF_EXPECT_INT(run_job(&jobs[1], environment), 1);
        expect_noted_are_dead(0);
        if (strstr(command_errors, "did not answer")) break;
    }
    RF_EXPECT_CONTAINS(command_errors, "; the worker process was killed, at: opening the device");
}

/* ---- its command is killed, or it does not start ---- */

/* The only child of a process; 0: there is none yet. */
static pid_t child_of(pid_t pid) {
    char path[64];
    int child = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
    FILE *file = fopen(path, "r");
    if (!file && !is_dead(pid)) RF_SKIP("this kernel does not tell a process's children");
    if (file && fscanf(file, "%d", &child) != 1) child = 0;
    if (file) fclose(file);
    return child;
}

RF_TEST(worker, ends_with_its_command, .timeout_ms = 600000) {
    char model[512], rows[512];
    gpu_need_simulated("");
    snprintf(model, sizeof model, "%s/model.gguf", command_folder());
    snprintf(rows, sizeof rows, "%s/rows", command_folder());
    const char *const commands[][12] = {
        {"rocmforge", "doctor"},
        {"rocmforge", "demo", "--device", "gpu"},
        {"rocmforge", "kernels", "--device", "0"},
        {"rocmforge", "check", "--op", "fill"},
        {"rocmforge", "bench", "-m", model, "--device", "gpu"},
        {"rocmforge", "logits", "-m", model, "--tokens", "1", "--out", rows, "--device", "gpu"},
        {"rocmforge", "info", model},
        {"rocmforge", "selftest", "--items", "open"},
        {"rocmforge", "run", "-m", model, "-p", "?"},
    };
    setenv("RF_DRIVER", "sim", 1);
    setenv("RFSIM", "fault=" OPENING ":hang", 1); /* it never ends by itself */
    setenv("RF_TIMEOUT_MS", "3600000", 1);
    for (size_t i = 0; i < RF_COUNT(commands); i++) {
        RF_TRACE("rocmforge %s", commands[i][1]);
        struct process process = process_start(commands[i]);
        pid_t keeper = 0, worker = 0;
        /* The probe's helper has a child too: the worker is this program. */
        for (int look = 0; look < 12000 && !worker; look++) {
            char path[64], name[64] = "";
            keeper = child_of(process.pid);
            pid_t found = keeper ? child_of(keeper) : 0;
            snprintf(path, sizeof path, "/proc/%d/cmdline", (int)found);
            FILE *file = found ? fopen(path, "r") : NULL;
            if (file && fread(name, 1, sizeof name - 1, file) && !strcmp(name, "rocmforge")) worker = found;
            if (file) fclose(file);
            rf_sleep_ns(RF_MS(5));
        }
        RF_ASSERT(worker > 0);
        RF_ASSERT_INT(kill(process.pid, SIGKILL), 0);
        int status = process_end(&process);
        RF_EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        expect_dead(worker);
        expect_dead(keeper);
    }
}

/* If the command ends before the worker can ask to be told, nobody would tell it: it looks. */
RF_TEST(worker, does_not_start_for_a_command_that_is_gone, .timeout_ms = 300000) {
    int ends[2];
    RF_ASSERT_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    RF_ASSERT_INT(dup2(ends[1], 9), 9);
    close(ends[1]);
    RF_EXPECT_INT(command_run(SIM "ROCMFORGE_WORKER=1", "doctor --budget-of 0"), 1);
    RF_EXPECT_TEXT(command_output, "");
    close(9);
    char byte;
    RF_EXPECT_INT(recv(ends[0], &byte, 1, 0), 0);
    close(ends[0]);
}

RF_TEST(worker, one_that_cannot_start_is_a_reason, .timeout_ms = 600000) {
    static const char *const what[] = {"spawn/0", "fork"};
    gpu_need_simulated("");
    for (size_t w = 0; w < RF_COUNT(what); w++) {
        char environment[512];
        snprintf(environment, sizeof environment, SIM "LD_PRELOAD=" FAILING_CALLS " FAILING=%s", what[w]);
        for (size_t i = 0; i < RF_COUNT(jobs); i++)
            expect_failure(&jobs[i], run_job(&jobs[i], environment),
                           "the worker process could not start: Resource temporarily unavailable");
    }
}

/* No report comes from a worker that cannot start: nothing may be read from where it would be. */
static void expect_no_report(const char *under) {
    char environment[512];
    snprintf(environment, sizeof environment, SIM "LD_PRELOAD=" FAILING_CALLS " FAILING=spawn/0 %s", under);
    int code = command_run(environment, "doctor");
    RF_NOTE("%s", command_errors);
    RF_EXPECT_INT(code, 0);
    RF_EXPECT_CONTAINS(command_output, "unknown: the worker process could not start: ");
}

RF_TEST(worker, doctor_reads_no_report_that_did_not_come, .timeout_ms = 600000) {
    gpu_need_simulated("");
    expect_no_report("");
    if (command_run("valgrind -q", "version") != 0) RF_SKIP("no valgrind that runs this build, to see a wrong read");
    expect_no_report("valgrind -q --error-exitcode=99");
}
