/* run, bench and logits as a user meets them: exact text from a model that says what it was told, exit status, one
 * line for bad input and nothing left behind, and Ctrl-C. */
#include <rocmforge/test.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../model/infer_testing.h"

#define ANSWER "Grün 🌍!"

/* In the scratch folder: model.gguf goes on after "?" with ANSWER and ends; chat.gguf has ChatML's tokens and answers
 * "yes"; endless.gguf says "dededede…" after "?", and in a chat too; none.gguf has no vocabulary; text.gguf is no
 * model, cut.gguf a part of one. */
static const char *folder(void) {
    static char path[256];
    static struct script script;
    static const struct spec spec = {"none",     "llama",       .layers = 1,        .width = 32,
                                     .heads = 2, .kv_heads = 1, .feed_forward = 32, .vocabulary = 40};
    if (path[0]) return path;
    snprintf(path, sizeof path, "%s", scratch_path("x"));
    *strrchr(path, '/') = 0;
    script_begin(&script, false);
    script_say(&script, script_byte('?'), ANSWER, 2);
    script_write(&script, scratch_path("model.gguf"));
    script_begin(&script, true);
    script_add(&script, "<|im_start|>", RF_TOKEN_CONTROL);
    int32_t end = script_add(&script, "<|im_end|>", RF_TOKEN_CONTROL);
    script_say(&script, script_byte('\n'), "yes", end);
    script_write(&script, scratch_path("chat.gguf"));
    script_say(&script, script_byte('\n'), "de", script_byte('d'));
    script.next[script_byte('?')] = script_byte('d');
    script_write(&script, scratch_path("endless.gguf"));
    infer_model(&spec, "none.gguf");
    write_bytes(scratch_path("text.gguf"), "no model, but a text that is long enough to be looked at", 56);
    size_t bytes;
    unsigned char *whole = read_bytes(scratch_path("model.gguf"), &bytes);
    write_bytes(scratch_path("cut.gguf"), whole, bytes / 2);
    free(whole);
    return path;
}

static char output[1 << 20]; /* of the last run */
static size_t output_bytes;

/* In the folder; arguments may redirect. */
static int run(const char *environment, const char *arguments) {
    char command[4096];
    snprintf(command, sizeof command,
             "cd %s && env -u RF_DRIVER -u RF_BUDGET -u RFSIM RF_LEASE_DIR=%s/leases %s '%s' %s", folder(), folder(),
             environment, ROCMFORGE, arguments);
    FILE *pipe = popen(command, "r");
    RF_ASSERT(pipe != NULL);
    output_bytes = fread(output, 1, sizeof output - 1, pipe);
    output[output_bytes] = 0;
    int status = pclose(pipe);
    RF_ASSERT(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void expect(const char *environment, const char *arguments, const char *text) {
    RF_TRACE("rocmforge %s", arguments);
    RF_EXPECT_INT(run(environment, arguments), 0);
    RF_EXPECT_TEXT(output, text);
}

static void expect_one_line(const char *environment, const char *arguments, int code, const char *part) {
    char with_errors[1024];
    RF_TRACE("rocmforge %s", arguments);
    snprintf(with_errors, sizeof with_errors, "%s 2>&1", arguments); /* nothing on standard output either */
    RF_EXPECT_INT(run(environment, with_errors), code);
    const char *end = strchr(output, '\n');
    if (!end || end[1] || strncmp(output, "rocmforge: ", 11) != 0) RF_FAIL("not one line: %s", output);
    RF_EXPECT_CONTAINS(output, part);
}

static bool is_there(const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder(), name);
    return access(path, F_OK) == 0;
}

/* ---- run ---- */

RF_TEST(run_command, says_what_the_model_says) {
    expect("RF_DRIVER=none", "run -m model.gguf -p 'Say?'", ANSWER "\n");
    expect("RF_DRIVER=none", "run -m model.gguf -p 'Say?' --device cpu --simd scalar --threads 1", ANSWER "\n");
    expect("RF_DRIVER=none", "run -m model.gguf -p '?' -n 2", "Gr\n");
    expect("RF_DRIVER=none", "run -m model.gguf -p '?' --stop ' ' --temp 0 --kv f32 --batch 1", "Grün\n");
    expect("RF_DRIVER=none", "run -m model.gguf -p '?' --ctx 12 --ignore-end --seed 7 -n 3 --repeat-penalty 1.1",
           "Gr\xef\xbf\xbd\n");
    RF_EXPECT_INT(run("RF_DRIVER=none", "run -m model.gguf -p '?' --stats 2>&1 >/dev/null"), 0);
    RF_EXPECT_CONTAINS(output, "0 of 1 layers on a GPU, context 256; prompt 3 tokens");
}

RF_TEST(run_command, on_the_simulated_gpu) {
    expect("RF_DRIVER=sim", "run -m model.gguf -p 'Say?'", ANSWER "\n");
    expect("RF_DRIVER=sim", "run -m model.gguf -p 'Say?' --device gpu --gpu-layers 1 --no-replay -n 4", "Grü\n");
    RF_EXPECT_INT(run("RF_DRIVER=sim", "run -m model.gguf -p '?' --budget 1MiB 2>&1"), 0);
    RF_EXPECT_CONTAINS(output, "note: 1 of 1 layers run on the CPU");
    RF_EXPECT_CONTAINS(output, "\n" ANSWER "\n");
    expect_one_line("RF_DRIVER=sim", "run -m model.gguf -p '?' --budget lots", 2, "lots");
    expect_one_line("RF_DRIVER=sim", "run -m model.gguf -p '?' --budget 1MiB --gpu-layers 1", 1, "RF_E_BUDGET");
    expect_one_line("RF_DRIVER=none", "run -m model.gguf -p '?' --device gpu", 77, "");
    expect_one_line("RF_DRIVER=sim", "run -m model.gguf -p '?' --device 5", 77, "5");
    /* A driver that takes its process down costs one line. A sanitizer would turn the crash into an exit. */
    expect_one_line("ASAN_OPTIONS=handle_segv=0 TSAN_OPTIONS=handle_segv=0 RF_DRIVER=sim "
                    "RFSIM=fault=hipModuleLoadData:1:crash",
                    "run -m model.gguf -p '?' --device gpu", 1, "died of SIG");
}

RF_TEST(run_command, chat) {
    expect("RF_DRIVER=none", "run -m chat.gguf --chat --device cpu <<'END'\nhi\nand more\nEND", "yes\nyes\n");
    expect("RF_DRIVER=none", "run -m chat.gguf --chat -p hi --system 'Be.' </dev/null", "yes\n");
    expect("RF_DRIVER=none", "run -m chat.gguf --chat </dev/null", "");
    expect("RF_DRIVER=sim", "run -m chat.gguf --chat <<'END'\nhi\nand more\nEND", "yes\nyes\n");
    expect_one_line("RF_DRIVER=none", "run -m model.gguf --chat </dev/null", 1, "--format");
    expect_one_line("RF_DRIVER=none", "run -m chat.gguf --chat --format alpaca </dev/null", 2, "alpaca");
    expect_one_line("RF_DRIVER=none", "run -m chat.gguf --chat -p 'hello to you' --ctx 20 </dev/null", 1, "context");
}

RF_TEST(run_command, bad_input_is_one_line) {
    expect_one_line("", "run -p hi", 2, "which model?");
    expect_one_line("", "run -m model.gguf", 2, "-p");
    expect_one_line("", "run -m model.gguf -p", 2, "no value after -p");
    expect_one_line("", "run -m missing.gguf -p '?' --device cpu", 2, "missing.gguf");
    expect_one_line("", "run -m text.gguf -p '?' --device cpu", 2, "text.gguf");
    expect_one_line("", "run -m cut.gguf -p '?' --device cpu", 2, "cut.gguf");
    expect_one_line("", "run -m . -p '?' --device cpu", 1, ".");
    expect_one_line("", "run -m none.gguf -p '?' --device cpu", 1, "no vocabulary");
    expect_one_line("", "run -m model.gguf -p 'a text of more than eight tokens' --ctx 8 --device cpu", 1,
                    "the context holds 8");
    expect_one_line("", "run -m model.gguf -p '?' -n many", 2, "whole number");
    expect_one_line("", "run -m model.gguf -p '?' -n -1", 2, "whole number");
    expect_one_line("", "run -m model.gguf -p '?' -n 99999999999999999999", 2, "whole number");
    expect_one_line("", "run -m model.gguf -p '?' -n 4294967296", 2, "too large");
    expect_one_line("", "run -m model.gguf -p '?' --ctx 99999999", 2, "--ctx 99999999");
    expect_one_line("", "run -m model.gguf -p '?' --kv f64", 2, "f16, f32 and q8_0");
    expect_one_line("", "run -m model.gguf -p '?' --temp hot", 2, "--temp hot");
    expect_one_line("", "run -m model.gguf -p '?' --temp nan", 2, "--temp nan");
    expect_one_line("", "run -m model.gguf -p '?' --top-p 1.5", 2, "0 to 1");
    expect_one_line("", "run -m model.gguf -p '?' --simd sse9 --device cpu", 1, "sse9");
    expect_one_line("", "run -m model.gguf -p '?' extra", 2, "extra");
    if (access("/dev/full", W_OK) == 0)
        RF_EXPECT_INT(run("", "run -m model.gguf -p '?' --device cpu 2>/dev/null >/dev/full"), 1);
}

/* ---- Ctrl-C ---- */

struct process {
    pid_t pid;
    int in, out;
};

/* In a process group of its own, as a shell would. */
static struct process start(const char *const *arguments) {
    struct process process;
    int in[2], out[2];
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    RF_ASSERT(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    RF_ASSERT_INT(
        posix_spawn(&process.pid, ROCMFORGE, &actions, &attributes, (char *const *)(uintptr_t)arguments, environ), 0);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    process.in = in[1];
    process.out = out[0];
    return process;
}

/* Reads until 'count' bytes came, or a line's end where count is 0. */
static size_t listen_to(const struct process *process, size_t count) {
    char byte = 0;
    size_t heard = 0;
    while (count ? heard < count : byte != '\n') {
        if (read(process->out, &byte, 1) != 1) RF_FAIL("it ended after %zu bytes", heard);
        heard++;
    }
    return heard;
}

static const struct interrupted {
    const char *label, *driver, *device;
} interruptions[] = {{"here", "none", "cpu"}, {"worker", "none", "auto"}};
RF_TEST_LABELLED_CASES(run_command, interrupting_an_answer, struct interrupted, interruptions) {
    char model[512];
    int status;
    snprintf(model, sizeof model, "%s/endless.gguf", folder());
    setenv("RF_DRIVER", c->driver, 1);
    const char *chat[] = {"rocmforge", "run", "-m", model, "--chat", "--device", c->device, "--ctx", "60000", NULL};
    struct process process = start(chat);
    for (int turn = 0; turn < 2; turn++) { /* the answer ends, the program does not */
        RF_ASSERT_INT(write(process.in, "hi\n", 3), 3);
        listen_to(&process, 10);
        RF_ASSERT_INT(kill(-process.pid, SIGINT), 0);
        RF_EXPECT(listen_to(&process, 0) < 50000);
    }
    close(process.in);
    RF_ASSERT_INT(waitpid(process.pid, &status, 0), process.pid);
    RF_EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(process.out);

    const char *once[] = {"rocmforge", "run", "-m", model, "-p", "?", "--device", c->device, "--ctx", "60000", NULL};
    process = start(once);
    listen_to(&process, 10);
    RF_ASSERT_INT(kill(-process.pid, SIGINT), 0);
    listen_to(&process, 0);
    RF_ASSERT_INT(waitpid(process.pid, &status, 0), process.pid);
    RF_EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(process.in);
    close(process.out);
}

/* ---- logits ---- */

RF_TEST(logits_command, writes_rows) {
    for (int sim = 0; sim < 2; sim++) {
        size_t bytes;
        RF_ASSERT_INT(
            run(sim ? "RF_DRIVER=sim" : "RF_DRIVER=none", "logits -m model.gguf --tokens 1,66,5 --out rows"), 0);
        RF_EXPECT_UINT(output_bytes, 0);
        unsigned char *file = read_bytes(scratch_path("rows"), &bytes);
        RF_ASSERT_UINT(bytes, 3 * 260 * sizeof(float));
        const float *row = (const float *)(const void *)file + 260;
        RF_EXPECT_DOUBLE((double)row[script_byte('G')], 18.73, 0.01);
        RF_EXPECT_DOUBLE((double)row[script_byte('H')], 0, 0);
        free(file);
        RF_ASSERT_INT(remove(scratch_path("rows")), 0);
    }
    RF_ASSERT_INT(run("RF_DRIVER=none", "logits -m none.gguf --tokens 1,2,3,4,5 --out whole"), 0);
    RF_ASSERT_INT(run("RF_DRIVER=none", "logits -m none.gguf --tokens 1,2,3,4,5 --out parts --chunk 2 --kv f32"), 0);
    size_t whole, parts;
    unsigned char *a = read_bytes(scratch_path("whole"), &whole), *b = read_bytes(scratch_path("parts"), &parts);
    RF_ASSERT_UINT(whole, 5 * 40 * sizeof(float));
    RF_ASSERT_UINT(parts, whole);
    RF_EXPECT_DOUBLE(error_of_floats((float *)(void *)a, (float *)(void *)b, 5 * 40), 0, 1e-10);
    free(a);
    free(b);
}

RF_TEST(logits_command, bad_input_is_one_line) {
    expect_one_line("", "logits --tokens 1 --out bad", 2, "which model?");
    expect_one_line("", "logits -m model.gguf", 2, "--tokens and --out");
    expect_one_line("", "logits -m model.gguf --tokens 1,,2 --out bad --device cpu", 2, "number 2");
    expect_one_line("", "logits -m model.gguf --tokens 1,x --out bad --device cpu", 2, "number 2");
    expect_one_line("", "logits -m model.gguf --tokens -1 --out bad --device cpu", 2, "number 1");
    expect_one_line("", "logits -m model.gguf --tokens 1,260 --out bad --device cpu", 1, "ids go from 0 to 259");
    expect_one_line("", "logits -m model.gguf --tokens 1,2,3 --ctx 2 --out bad --device cpu", 1, "context holds 2");
    expect_one_line("", "logits -m cut.gguf --tokens 1 --out bad --device cpu", 2, "cut.gguf");
    expect_one_line("", "logits -m missing.gguf --tokens 1 --out bad --device cpu", 2, "missing.gguf");
    expect_one_line("RF_DRIVER=sim", "logits -m cut.gguf --tokens 1 --out bad", 2, "cut.gguf");
    RF_EXPECT(!is_there("bad"));
    expect_one_line("", "logits -m model.gguf --tokens 1 --out nowhere/bad --device cpu", 1, "nowhere/bad");
    expect_one_line("", "logits -m model.gguf --tokens 1 --out . --device cpu", 1, "directory");
    if (access("/dev/full", W_OK) == 0) {
        expect_one_line("", "logits -m model.gguf --tokens 1 --out /dev/full --device cpu", 1, "/dev/full");
        RF_EXPECT(access("/dev/full", W_OK) == 0); /* it was not taken for a half-written file */
    }
}

/* ---- bench ---- */

RF_TEST(bench_command, shows_rates) {
    RF_ASSERT_INT(run("RF_DRIVER=none", "bench -m none.gguf -p 16 -n 4 -r 3 -d 5"), 0);
    RF_EXPECT_CONTAINS(output, "prompt      16 tokens");
    RF_EXPECT_CONTAINS(output, "answer       4 tokens");
    RF_EXPECT_CONTAINS(output, "after 21\n");
    RF_EXPECT_CONTAINS(output, "medians of 3 rounds");
    RF_ASSERT_INT(run("RF_DRIVER=none", "bench -m none.gguf -p 0 -n 1 -r 1"), 0);
    RF_ASSERT_INT(run("RF_DRIVER=none", "bench -m none.gguf -p 3 -n 0 -r 1"), 0);
    run("RF_DRIVER=sim", "bench -m none.gguf -p 8 -n 2 -r 1 --json | python3 -c 'import json, sys; r = "
                         "json.load(sys.stdin); print(r[\"gpu_layers\"] == 1 and r[\"prompt_tokens_per_s\"] > 0 and "
                         "r[\"answer_tokens_per_s\"] > 0 and r[\"rounds\"] == 1 and r[\"layers\"] == 1)'");
    RF_EXPECT_TEXT(output, "True\n");
    expect_one_line("", "bench", 2, "which model?");
    expect_one_line("", "bench -m none.gguf -p 0 -n 0", 2, "at least one token");
    expect_one_line("", "bench -m none.gguf -r 0", 2, "rounds");
    expect_one_line("", "bench -m none.gguf -p 20 -n 1 -r 1 --ctx 10 --device cpu", 1, "context holds 10");
    expect_one_line("", "bench -m cut.gguf --device cpu", 2, "cut.gguf");
}
