/* Commands whose standard input, output or error is closed, or whose output nobody reads. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run_testing.h"

#include "../scratch.h"

#define SIM "RF_DRIVER=sim RF_LEASE_DIR=leases "
#define NOT_WRITTEN "rocmforge: standard output could not be written: Bad file descriptor\n"

static void expect_file_without(const char *name, const char *text) {
    size_t bytes = 0;
    unsigned char *whole = read_bytes(scratch_path(name), &bytes);
    RF_ASSERT(bytes > 0);
    if (memmem(whole, bytes, text, strlen(text))) RF_FAIL("%s holds \"%s\"", name, text);
    free(whole);
}

/* The one file in the folder. */
static const char *lease_file(void) {
    static char name[128];
    FILE *list = popen("ls leases", "r");
    RF_ASSERT(list != NULL);
    char line[100] = "";
    RF_ASSERT(fgets(line, sizeof line, list) != NULL);
    line[strcspn(line, "\n")] = 0;
    pclose(list);
    snprintf(name, sizeof name, "leases/%s", line);
    return name;
}

static void need_folder(void) {
    RF_ASSERT_INT(chdir(command_folder()), 0);
    mkdir("leases", 0700);
}

RF_TEST(closed, check_writes_nothing_into_the_lease_file, .timeout_ms = 300000) {
    need_folder();
    RF_ASSERT_INT(command_run(SIM, "check --op scale -v"), 0);
    RF_ASSERT_CONTAINS(command_output, "scale");
    expect_file_without(lease_file(), "scale");
    RF_EXPECT_INT(command_run(SIM, "check --op scale -v >&-"), 1);
    RF_EXPECT_TEXT(command_errors, NOT_WRITTEN);
    expect_file_without(lease_file(), "scale");
}

RF_TEST(closed, a_chat_reads_no_message_from_elsewhere, .timeout_ms = 300000) {
    static const char *const drivers[] = {"RF_DRIVER=none", "RF_DRIVER=sim"};
    for (size_t i = 0; i < sizeof drivers / sizeof drivers[0]; i++) {
        command_expect_one_line(drivers[i], "run --chat --format chatml -m chat.gguf -n 4 <&-", 1,
                                "standard input could not be read: Bad file descriptor");
        /* The message that was given is answered. */
        RF_EXPECT_INT(command_run(drivers[i], "run --chat --format chatml -m chat.gguf -p '?' -n 4 --temp 0 <&-"), 1);
        RF_EXPECT_TEXT(command_output, "yes\n");
        RF_EXPECT_CONTAINS(command_errors, "standard input could not be read: Bad file descriptor\n");
    }
    command_expect_one_line("", "tokenize -m model.gguf --file - <&-", 1, "Bad file descriptor");
}

RF_TEST(closed, an_answer_that_cannot_be_written_is_a_failure, .timeout_ms = 300000) {
    static const char *const environments[] = {"RF_DRIVER=none", "RF_DRIVER=sim"};
    for (size_t i = 0; i < sizeof environments / sizeof environments[0]; i++) {
        RF_EXPECT_INT(command_run(environments[i], "run -m model.gguf -p '?' --temp 0 >&-"), 1);
        RF_EXPECT_TEXT(command_errors, NOT_WRITTEN);
        RF_EXPECT_INT(command_run(environments[i], "run --chat --format chatml -m chat.gguf -p '?' --temp 0 >&-"), 1);
        RF_EXPECT_TEXT(command_errors, NOT_WRITTEN);
        RF_EXPECT_INT(command_run(environments[i], "run -m model.gguf -p '?' --temp 0 >/dev/full"), 1);
        RF_EXPECT_TEXT(command_errors, "rocmforge: standard output could not be written: No space left on device\n");
    }
}

/* Every command with every combination of closed descriptors ends as it would, but that output which cannot be
 * written is a failure; what it shows where it can is the same, and no file of its own takes their place. */
RF_TEST(closed, every_command_with_every_combination, .timeout_ms = 600000) {
    static const struct {
        const char *arguments;
        bool prints, varies; /* varies: with every run */
    } commands[] = {
        {"version", true, false},
        {"help", true, false},
        {"kernels", true, false},
        {"doctor --quick", true, false},
        {"doctor", true, true},
        {"demo", true, true},
        {"check --op scale", true, true},
        {"info model.gguf", true, true},
        {"tokenize -m model.gguf --text '?'", true, false},
        {"detokenize -m model.gguf --ids 66", true, false},
        {"run -m model.gguf -p '?' --temp 0", true, false},
        {"run -m model.gguf -p '?' --temp 0 --device cpu", true, false},
        {"logits -m model.gguf --tokens 3,4 --out logits", false, false},
        {"bench -m model.gguf -p 2 -n 2 -r 1", true, true},
        {"selftest --items open,cpu-model --quick", true, true},
        {"test -- true", false, false},
    };
    static const char *const closing[] = {"",     "<&-",      ">&-",      "<&- >&-",
                                          "2>&-", "<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-"};
    static char usual[sizeof command_output];
    size_t model_bytes = 0, bytes = 0;
    need_folder();
    unsigned char *model = read_bytes(scratch_path("model.gguf"), &model_bytes);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        for (size_t j = 0; j < sizeof closing / sizeof closing[0]; j++) {
            char arguments[256];
            snprintf(arguments, sizeof arguments, "%s %s", commands[i].arguments, closing[j]);
            RF_TRACE("rocmforge %s", arguments);
            bool no_output = j & 2; /* the bits of j are the three descriptors */
            int code = command_run(SIM, arguments);
            RF_EXPECT_INT(code, no_output && commands[i].prints ? 1 : 0);
            if (no_output) RF_EXPECT_TEXT(command_output, "");
            if (!no_output && commands[i].prints) RF_EXPECT(command_output_bytes > 0);
            if (!j) memcpy(usual, command_output, sizeof usual);
            if (!no_output && !commands[i].varies) RF_EXPECT_TEXT(command_output, usual);
        }
    }
    unsigned char *after = read_bytes(scratch_path("model.gguf"), &bytes);
    RF_EXPECT_UINT(bytes, model_bytes);
    RF_EXPECT(!memcmp(model, after, bytes));
    free(model);
    free(after);
    command_expect_nothing_left();
}

/* ---- a program of its own ---- */

static void expect_closed(const char *when) {
    for (int fd = 0; fd < 3; fd++) {
        char path[32], target[256] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (readlink(path, target, sizeof target - 1) > 0) RF_FAIL("%s: descriptor %d is %s", when, fd, target);
    }
}

/* A program with all three closed opens a runtime, a GPU with its lease, and a model, and has an answer. The
 * simulated driver opens a file when it starts, as real ones do. */
RF_TEST(closed, the_library_takes_none_of_them, .timeout_ms = 300000) {
    static const char *const places[] = {"cpu", "gpu"};
    char leases[SCRATCH_BYTES + 16], shared[SCRATCH_BYTES + 16];
    need_folder();
    snprintf(leases, sizeof leases, "RF_LEASE_DIR=%s", scratch_path("leases"));
    snprintf(shared, sizeof shared, "shared=%s", scratch_path("shared"));
    gpu_need_simulated(shared);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        RF_PARAMS(struct rf_engine_params, params);
        struct gpu gpu = {0};
        struct rf_engine *engine = NULL;
        struct rf_session *session = NULL;
        int kept[3];
        int32_t token = script_byte('?');
        for (int fd = 0; fd < 3; fd++) {
            kept[fd] = fcntl(fd, F_DUPFD_CLOEXEC, 100);
            close(fd);
        }
        gpu_make_runtime(&gpu, (const char *const[]){leases, NULL});
        params.runtime = gpu.runtime;
        params.model = scratch_path("model.gguf");
        params.device = places[i];
        RF_ASSERT_OK(rf_engine_open(&params, &engine));
        expect_closed("the model is open");
        RF_ASSERT_OK(rf_session_create(engine, &session));
        RF_ASSERT_OK(rf_session_eval(session, &token, 1, false, NULL));
        RF_ASSERT_OK(rf_session_sample(session, NULL, &token));
        RF_EXPECT(write(1, "x", 1) == -1 && errno == EBADF);
        expect_closed("a token was drawn");
        rf_session_destroy(&session);
        RF_ASSERT_OK(rf_engine_close(&engine));
        rf_runtime_destroy(&gpu.runtime);
        expect_closed("the model is closed");
        for (int fd = 0; fd < 3; fd++)
            if (kept[fd] >= 0) {
                dup2(kept[fd], fd);
                close(kept[fd]);
            }
    }
    RF_EXPECT(strstr(lease_file(), "gpu-") != NULL); /* the lease was there */
}

/* ---- a reader that has left ---- */

/* Runs the command with a pipe that nobody reads for its output; as waitpid has it. */
static int run_unread(const char *environment, const char *arguments, bool ignore_signal) {
    char command[4096];
    int ends[2], status = -1;
    snprintf(command, sizeof command, "%s exec 2>errors; exec env -u RF_DRIVER -u RF_BUDGET -u RFSIM %s '%s' %s",
             ignore_signal ? "trap '' PIPE;" : "", environment, ROCMFORGE, arguments);
    RF_ASSERT_INT(pipe2(ends, O_CLOEXEC), 0);
    close(ends[0]); /* before there is a child, which may write at once */
    pid_t pid = fork();
    RF_ASSERT(pid >= 0);
    if (!pid) {
        dup2(ends[1], 1);
        signal(SIGPIPE, SIG_DFL);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(99);
    }
    close(ends[1]);
    RF_ASSERT_INT(waitpid(pid, &status, 0), pid);
    size_t bytes;
    unsigned char *errors = read_bytes(scratch_path("errors"), &bytes);
    snprintf(command_errors, sizeof command_errors, "%.*s", (int)bytes, (const char *)errors);
    free(errors);
    return status;
}

RF_TEST(closed, output_that_nobody_reads_ends_silently, .timeout_ms = 600000) {
    static const char *const commands[] = {"version",
                                           "kernels",
                                           "doctor",
                                           "demo",
                                           "check --op scale",
                                           "info model.gguf",
                                           "bench -m model.gguf -p 2 -n 2 -r 1",
                                           "run -m endless.gguf -p '?' --temp 0 -n 9",
                                           "run -m endless.gguf -p '?' --temp 0 -n 9 --device cpu"};
    need_folder();
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        RF_TRACE("rocmforge %s", commands[i]);
        int status = run_unread(SIM, commands[i], false);
        RF_EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);
        RF_EXPECT_TEXT(command_errors, "");
    }
    /* Where the signal is ignored, the failure is told, as other tools do. */
    int status = run_unread(SIM, "run -m endless.gguf -p '?' --temp 0 -n 9", true);
    RF_EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    RF_EXPECT_TEXT(command_errors, "rocmforge: standard output could not be written: Broken pipe\n");
    command_expect_nothing_left();
}
