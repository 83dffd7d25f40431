/* run, bench and logits as a user meets them: exact text from a model that says what it was told, exit status, one
 * line for bad input and nothing left behind, and Ctrl-C. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run_testing.h"

static bool is_there(const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", command_folder(), name);
    return access(path, F_OK) == 0;
}

/* ---- run ---- */

RF_TEST(run_command, says_what_the_model_says) {
    command_expect("RF_DRIVER=none", "run -m model.gguf -p 'Say?'", ANSWER "\n");
    command_expect("RF_DRIVER=none", "run -m model.gguf -p 'Say?' --device cpu --simd scalar --threads 1",
                   ANSWER "\n");
    command_expect("RF_DRIVER=none", "run -m model.gguf -p '?' -n 2", "Gr\n");
    command_expect("RF_DRIVER=none", "run -m model.gguf -p '?' --stop ' ' --temp 0 --kv f32 --batch 1", "Grün\n");
    command_expect("RF_DRIVER=none",
                   "run -m model.gguf -p '?' --ctx 12 --ignore-end --seed 7 -n 3 --repeat-penalty 1.1",
                   "Gr\xef\xbf\xbd\n");
    RF_EXPECT_INT(command_run("RF_DRIVER=none", "run -m model.gguf -p '?' --stats 2>&1 >/dev/null"), 0);
    RF_EXPECT_CONTAINS(command_output, "0 of 1 layers on a GPU, context 256; prompt 3 tokens");
    double prompt = 0, answer = 0;
    int tokens = 0;
    RF_ASSERT_INT(sscanf(strstr(command_output, "prompt 3 tokens"),
                         "prompt 3 tokens, %lf tokens/s; answer %d tokens, "
                         "%lf tokens/s",
                         &prompt, &tokens, &answer),
                  3);
    RF_EXPECT_INT(tokens, (int)strlen(ANSWER)); /* a token for each byte */
    RF_EXPECT(prompt > 0 && answer > 0);
}

/* endless.gguf repeats itself unless that is penalized. */
RF_TEST(run_command, penalties_end_repetition) {
    static const char *const drivers[] = {"RF_DRIVER=none", "RF_DRIVER=sim"};
    static const char *const penalties[] = {"--presence-penalty 100", "--frequency-penalty 100"};
    for (int i = 0; i < 4; i++) {
        char command[200];
        snprintf(command, sizeof command, "run -m endless.gguf -p '?' -n 6 --temp 0 %s", penalties[i / 2]);
        RF_TRACE("%s %s", drivers[i % 2], command);
        command_expect(drivers[i % 2], "run -m endless.gguf -p '?' -n 6 --temp 0", "dedede\n");
        RF_EXPECT_INT(command_run(drivers[i % 2], command), 0);
        RF_EXPECT(!strncmp(command_output, "de", 2) && !strstr(command_output + 2, "d"));
        RF_EXPECT(!strstr(command_output + 2, "e"));
    }
}

RF_TEST(run_command, on_the_simulated_gpu) {
    command_expect("RF_DRIVER=sim", "run -m model.gguf -p 'Say?'", ANSWER "\n");
    command_expect("RF_DRIVER=sim", "run -m model.gguf -p 'Say?' --device gpu --gpu-layers 1 --no-replay -n 4",
                   "Grü\n");
    RF_EXPECT_INT(command_run("RF_DRIVER=sim", "run -m model.gguf -p '?' --budget 5MiB 2>&1"), 0);
    RF_EXPECT_CONTAINS(command_output, "note: 1 of 1 layers run on the CPU");
    RF_EXPECT_CONTAINS(command_output, "\n" ANSWER "\n");
    command_expect_one_line("RF_DRIVER=sim", "run -m model.gguf -p '?' --budget lots", 2, "lots");
    command_expect_one_line("RF_DRIVER=sim", "run -m model.gguf -p '?' --budget 5MiB --gpu-layers 1", 1,
                            "RF_E_BUDGET");
    command_expect_one_line("RF_DRIVER=none", "run -m model.gguf -p '?' --device gpu", 77, "");
    command_expect_one_line("RF_DRIVER=sim", "run -m model.gguf -p '?' --device 5", 77, "5");
    /* A driver that takes its process down costs one line. A sanitizer would turn the crash into an exit. */
    command_expect_one_line("ASAN_OPTIONS=handle_segv=0 TSAN_OPTIONS=handle_segv=0 RF_DRIVER=sim "
                            "RFSIM=fault=hipModuleLoadData:1:crash",
                            "run -m model.gguf -p '?' --device gpu", 1, "died of SIG");
}

RF_TEST(run_command, chat) {
    command_expect("RF_DRIVER=none", "run -m chat.gguf --chat --device cpu <<'END'\nhi\nand more\nEND", "yes\nyes\n");
    command_expect("RF_DRIVER=none", "run -m chat.gguf --chat -p hi --system 'Be.' </dev/null", "yes\n");
    command_expect("RF_DRIVER=none", "run -m chat.gguf --chat </dev/null", "");
    command_expect("RF_DRIVER=sim", "run -m chat.gguf --chat <<'END'\nhi\nand more\nEND", "yes\nyes\n");
    command_expect_one_line("RF_DRIVER=none", "run -m model.gguf --chat </dev/null", 1, "--format");
    command_expect_one_line("RF_DRIVER=none", "run -m chat.gguf --chat --format alpaca </dev/null", 2, "alpaca");
    command_expect_one_line("RF_DRIVER=none",
                            "run -m chat.gguf --chat --format chatml -p 'hello to you' --ctx 20 "
                            "</dev/null",
                            1, "context");
    /* A format that nobody chose is named. */
    command_expect("RF_DRIVER=none", "run -m chat.gguf --chat -p hi </dev/null", "yes\n");
    RF_EXPECT_TEXT(command_errors,
                   "rocmforge: note: this file has no chat template: using the built-in format chatml\n");
}

RF_TEST(run_command, bad_input_is_one_line) {
    command_expect_one_line("", "run -p hi", 2, "no model given");
    command_expect_one_line("", "run -m model.gguf", 2, "-p");
    command_expect_one_line("", "run -m model.gguf -p", 2, "a value is missing after -p");
    command_expect_one_line("", "run -m missing.gguf -p '?' --device cpu", 2, "missing.gguf");
    command_expect_one_line("", "run -m text.gguf -p '?' --device cpu", 2, "text.gguf");
    command_expect_one_line("", "run -m cut.gguf -p '?' --device cpu", 2, "cut.gguf");
    command_expect_one_line("", "run -m . -p '?' --device cpu", 1, ".");
    command_expect_one_line("", "run -m none.gguf -p '?' --device cpu", 1, "no vocabulary");
    command_expect_one_line("", "run -m model.gguf -p 'a text of more than eight tokens' --ctx 8 --device cpu", 1,
                            "the context holds 8");
    command_expect_one_line("", "run -m model.gguf -p '?' -n many", 2, "whole number");
    command_expect_one_line("", "run -m model.gguf -p '?' -n -1", 2, "whole number");
    command_expect_one_line("", "run -m model.gguf -p '?' -n 99999999999999999999", 2, "whole number");
    command_expect_one_line("", "run -m model.gguf -p '?' -n 4294967296", 2, "too large");
    command_expect_one_line("", "run -m model.gguf -p '?' --ctx 99999999", 2, "--ctx 99999999");
    command_expect_one_line("", "run -m model.gguf -p '?' --kv f64", 2, "f16, f32 and q8_0");
    command_expect_one_line("", "run -m model.gguf -p '?' --temp hot", 2, "--temp hot");
    command_expect_one_line("", "run -m model.gguf -p '?' --temp nan", 2, "--temp nan");
    command_expect_one_line("", "run -m model.gguf -p '?' --top-p 1.5", 2, "0 to 1");
    command_expect_one_line("", "run -m model.gguf -p '?' --presence-penalty 101", 2, "-100 to 100");
    command_expect_one_line("", "run -m model.gguf -p '?' --frequency-penalty nan", 2, "-100 to 100");
    command_expect_one_line("", "run -m model.gguf -p '?' --simd sse9 --device cpu", 1, "sse9");
    command_expect_one_line("", "run -m model.gguf -p '?' extra", 2, "extra");
    if (access("/dev/full", W_OK) == 0)
        RF_EXPECT_INT(command_run("", "run -m model.gguf -p '?' --device cpu 2>/dev/null >/dev/full"), 1);
}

/* ---- Ctrl-C ---- */

static const struct interrupted {
    const char *label, *driver, *device;
} interruptions[] = {{"here", "none", "cpu"}, {"worker", "none", "auto"}, {"gpu", "sim", "gpu"}};
RF_TEST_LABELLED_CASES(run_command, interrupting_an_answer, struct interrupted, interruptions) {
    char model[512];
    int status;
    snprintf(model, sizeof model, "%s/endless.gguf", command_folder());
    setenv("RF_DRIVER", c->driver, 1);
    const char *chat[] = {"rocmforge", "run", "-m", model, "--chat", "--device", c->device, "--ctx", "60000", NULL};
    struct process process = process_start(chat);
    for (int turn = 0; turn < 2; turn++) { /* the answer ends, the program does not */
        RF_ASSERT_INT(write(process.in, "hi\n", 3), 3);
        process_hear(&process, 10);
        RF_ASSERT_INT(kill(-process.pid, SIGINT), 0);
        RF_EXPECT(process_hear(&process, 0) < 50000);
    }
    status = process_end(&process);
    RF_EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);

    const char *once[] = {"rocmforge", "run", "-m", model, "-p", "?", "--device", c->device, "--ctx", "60000", NULL};
    process = process_start(once);
    process_hear(&process, 10);
    RF_ASSERT_INT(kill(-process.pid, SIGINT), 0);
    process_hear(&process, 0);
    status = process_end(&process);
    RF_EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* A chat that waits for a line ends, even though more lines could come. */
RF_TEST(run_command, interrupting_a_chat_that_waits) {
    char model[512];
    int status = -1;
    snprintf(model, sizeof model, "%s/chat.gguf", command_folder());
    setenv("RF_DRIVER", "none", 1);
    const char *chat[] = {"rocmforge", "run", "-m", model, "--chat", "--device", "cpu", NULL};
    struct process process = process_start(chat);
    RF_ASSERT_INT(write(process.in, "hi\n", 3), 3);
    process_hear(&process, 0);
    pid_t ended = 0;
    for (int i = 0; i < 600 && !ended; i++) { /* one that comes before it waits is forgotten */
        RF_ASSERT_INT(kill(process.pid, SIGINT), 0);
        for (int k = 0; k < 10 && !(ended = waitpid(process.pid, &status, WNOHANG)); k++) rf_sleep_ns(RF_MS(10));
    }
    RF_EXPECT_INT(ended, process.pid);
    RF_EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    if (!ended) kill(process.pid, SIGKILL);
    close(process.in);
    close(process.out);
}

/* ---- logits ---- */

RF_TEST(logits_command, writes_rows) {
    for (int sim = 0; sim < 2; sim++) {
        size_t bytes;
        RF_ASSERT_INT(
            command_run(sim ? "RF_DRIVER=sim" : "RF_DRIVER=none", "logits -m model.gguf --tokens 1,66,5 --out rows"),
            0);
        RF_EXPECT_UINT(command_output_bytes, 0);
        unsigned char *file = read_bytes(scratch_path("rows"), &bytes);
        RF_ASSERT_UINT(bytes, 3 * 260 * sizeof(float));
        const float *row = (const float *)(const void *)file + 260;
        RF_EXPECT_DOUBLE((double)row[script_byte('G')], 18.73, 0.01);
        RF_EXPECT_DOUBLE((double)row[script_byte('H')], 0, 0);
        free(file);
        RF_ASSERT_INT(remove(scratch_path("rows")), 0);
    }
    RF_ASSERT_INT(command_run("RF_DRIVER=none", "logits -m none.gguf --tokens 1,2,3,4,5 --out whole"), 0);
    RF_ASSERT_INT(
        command_run("RF_DRIVER=none", "logits -m none.gguf --tokens 1,2,3,4,5 --out parts --chunk 2 --kv f32"), 0);
    size_t whole, parts;
    unsigned char *a = read_bytes(scratch_path("whole"), &whole), *b = read_bytes(scratch_path("parts"), &parts);
    RF_ASSERT_UINT(whole, 5 * 40 * sizeof(float));
    RF_ASSERT_UINT(parts, whole);
    RF_EXPECT_DOUBLE(error_of_floats((float *)(void *)a, (float *)(void *)b, 5 * 40), 0, 1e-10);
    free(a);
    free(b);
}

/* As many as are given: the context is the model's business. */
RF_TEST(logits_command, takes_many_tokens) {
    static char arguments[3900] = "logits -m none.gguf --out rows --ctx 2048 --tokens 1";
    size_t used = strlen(arguments), bytes;
    for (int i = 1; i < 1500; i++) used += (size_t)snprintf(arguments + used, sizeof arguments - used, ",%d", i % 10);
    RF_ASSERT_INT(command_run("RF_DRIVER=none", arguments), 0);
    free(read_bytes(scratch_path("rows"), &bytes));
    RF_EXPECT_UINT(bytes, (size_t)1500 * 40 * sizeof(float));
    RF_ASSERT_INT(remove(scratch_path("rows")), 0);
}

RF_TEST(logits_command, bad_input_is_one_line) {
    command_expect_one_line("", "logits --tokens 1 --out bad", 2, "no model given");
    command_expect_one_line("", "logits -m model.gguf", 2, "--tokens and --out");
    command_expect_one_line("", "logits -m model.gguf --tokens 1,,2 --out bad --device cpu", 2, "number 2");
    command_expect_one_line("", "logits -m model.gguf --tokens 1,x --out bad --device cpu", 2, "number 2");
    command_expect_one_line("", "logits -m model.gguf --tokens -1 --out bad --device cpu", 2, "number 1");
    command_expect_one_line("", "logits -m model.gguf --tokens 1,260 --out bad --device cpu", 1,
                            "ids go from 0 to 259");
    command_expect_one_line("", "logits -m model.gguf --tokens 1,2,3 --ctx 2 --out bad --device cpu", 1,
                            "context holds 2");
    command_expect_one_line("", "logits -m cut.gguf --tokens 1 --out bad --device cpu", 2, "cut.gguf");
    command_expect_one_line("", "logits -m missing.gguf --tokens 1 --out bad --device cpu", 2, "missing.gguf");
    command_expect_one_line("RF_DRIVER=sim", "logits -m cut.gguf --tokens 1 --out bad", 2, "cut.gguf");
    RF_EXPECT(!is_there("bad"));
    command_expect_one_line("", "logits -m model.gguf --tokens 1 --out nowhere/bad --device cpu", 1, "nowhere/bad");
    command_expect_one_line("", "logits -m model.gguf --tokens 1 --out . --device cpu", 1, "directory");
    if (access("/dev/full", W_OK) == 0) {
        command_expect_one_line("", "logits -m model.gguf --tokens 1 --out /dev/full --device cpu", 1, "/dev/full");
        RF_EXPECT(access("/dev/full", W_OK) == 0); /* it was not taken for a half-written file */
    }
}

/* ---- bench ---- */

RF_TEST(bench_command, shows_rates) {
    RF_ASSERT_INT(command_run("RF_DRIVER=none", "bench -m none.gguf -p 16 -n 4 -r 3 -d 5"), 0);
    RF_EXPECT_CONTAINS(command_output, "prompt      16 tokens");
    RF_EXPECT_CONTAINS(command_output, "answer       4 tokens");
    RF_EXPECT_CONTAINS(command_output, "after 21\n");
    RF_EXPECT_CONTAINS(command_output, "medians of 3 rounds");
    RF_ASSERT_INT(command_run("RF_DRIVER=none", "bench -m none.gguf -p 3,20 -n 2 -r 1 --batch 8"), 0);
    RF_EXPECT_CONTAINS(command_output, "prompt       3 tokens");
    RF_EXPECT_CONTAINS(command_output, " 3 at a time\nprompt      20 tokens");
    RF_EXPECT_CONTAINS(command_output, " 8 at a time\nanswer       2 tokens");
    RF_EXPECT_CONTAINS(command_output, "after 3\n");
    RF_ASSERT_INT(command_run("RF_DRIVER=none", "bench -m none.gguf -p 0 -n 1 -r 1"), 0);
    RF_ASSERT_INT(command_run("RF_DRIVER=none", "bench -m none.gguf -p 3 -n 0 -r 1"), 0);
    command_run("RF_DRIVER=sim",
                "bench -m none.gguf -p 8 -n 2 -r 1 --json | python3 -c 'import json, sys; r = "
                "json.load(sys.stdin); print(r[\"gpu_layers\"] == 1 and r[\"prompt_tokens_per_s\"] > 0 and "
                "r[\"answer_tokens_per_s\"] > 0 and r[\"rounds\"] == 1 and r[\"layers\"] == 1 and "
                "r[\"prompts\"][0][\"tokens\"] == "
                "r[\"prompts\"][0][\"tokens_at_a_time\"] == 8)'");
    RF_EXPECT_TEXT(command_output, "True\n");
    command_expect_one_line("", "bench", 2, "no model given");
    command_expect_one_line("", "bench -m none.gguf -p 4,x", 2, "-p 4,x");
    command_expect_one_line("", "bench -m none.gguf -p ,", 2, "-p ,");
    command_expect_one_line("", "bench -m none.gguf -p 1,2,3,4,5,6,7,8,9", 2, "1 to 8 numbers");
    command_expect_one_line("", "bench -m none.gguf -p 0 -n 0", 2, "at least one token");
    command_expect_one_line("", "bench -m none.gguf -r 0", 2, "rounds");
    command_expect_one_line("", "bench -m none.gguf -p 20 -n 1 -r 1 --ctx 10 --device cpu", 1, "context holds 10");
    command_expect_one_line("", "bench -m cut.gguf --device cpu", 2, "cut.gguf");
}
