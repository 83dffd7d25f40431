/* What the commands say of a model's placement, as a table and as JSON, with budgets from nothing to enough; and what
 * they say to budgets, contexts and devices that make no sense. */
#include "../infer/infer_testing.h"
#include "../testing/run_report.h"

#include <stdio.h>
#include <string.h>

/* Layers of a few MiB, so that budgets can cut between them. */
static const struct spec thick = {"llama",    "llama",       .layers = 4,         .width = 256,
                                  .heads = 4, .kv_heads = 2, .feed_forward = 768, .vocabulary = 512};
#define ROUND "-p 1 -n 0 -r 1"

static const char *model(void) {
    static char path[512];
    if (!path[0]) snprintf(path, sizeof path, "%s", infer_model(&thick, "thick.gguf"));
    return path;
}

/* The command on the simulated driver; what is asked of the model stands behind its name. */
static int on_sim(const char *command, const char *arguments) {
    bool positional = !strcmp(command, "info");
    return run_command("env -u RF_BUDGET -u RF_HOST_BUDGET %s '%s' %s %s'%s' %s", simulated(""), ROCMFORGE, command,
                       positional ? "" : "-m ", model(), arguments);
}

static void expect_one_line(const char *command, const char *arguments, int code, const char *part) {
    RF_TRACE("rocmforge %s %s", command, arguments);
    RF_EXPECT_INT(on_sim(command, arguments), code);
    const char *end = strchr(report, '\n');
    if (!end || end[1] || strncmp(report, "rocmforge: ", 11) != 0) RF_FAIL("not one line: %s", report);
    RF_EXPECT_CONTAINS(report, part);
}

RF_TEST(model_commands, a_table_of_what_is_where) {
    /* All of it. */
    RF_ASSERT_INT(on_sim("bench", ROUND " --stats"), 0);
    RF_EXPECT_CONTAINS(report, "; budget ");
    RF_EXPECT_CONTAINS(report, "; context 2 of 512 tokens, cache f16\n  embedding, layers 0 to 3, output ");
    RF_EXPECT(!strstr(report, "spilled") && !strstr(report, "note:") && !strstr(report, "host budget"));
    /* A part. */
    RF_ASSERT_INT(on_sim("bench", ROUND " --stats --gpu-layers 1"), 0);
    RF_EXPECT_CONTAINS(report, "\n  embedding, layers 0 to 2 ");
    RF_EXPECT_CONTAINS(report, "cache  CPU\n  layer 3, output ");
    RF_EXPECT_CONTAINS(report, "\n  spilled: each token reads ");
    RF_EXPECT_CONTAINS(report, " of weights from host memory, about ");
    RF_EXPECT_CONTAINS(report, "note: 3 of 4 layers run on the CPU");
    /* Nothing. */
    RF_ASSERT_INT(on_sim("logits", "--tokens 1,2 --out /dev/null --budget 5MiB --stats"), 0);
    RF_EXPECT_CONTAINS(report, "budget 5 MiB");
    RF_EXPECT_CONTAINS(report, "\n  embedding, layers 0 to 3, output ");
    RF_EXPECT_CONTAINS(report, "cache  CPU\n");
    RF_EXPECT_CONTAINS(report, "note: 4 of 4 layers run on the CPU");
    /* Not in a pipe, unless asked for. */
    RF_ASSERT_INT(on_sim("logits", "--tokens 1,2 --out /dev/null"), 0);
    RF_EXPECT_TEXT(report, "");
    RF_ASSERT_INT(on_sim("bench", ROUND " --device cpu --stats"), 0);
    RF_EXPECT_CONTAINS(report, "threads; host budget ");
    RF_EXPECT_CONTAINS(report, "; context 2 of 512 tokens, cache f16\n  embedding, layers 0 to 3, output ");
    RF_EXPECT_CONTAINS(report, " million parameters, ");
    /* The host's budget is told where something runs there: as it was given, and what of it is taken. */
    RF_ASSERT_INT(on_sim("bench", ROUND " --device cpu --stats --host-budget 96MiB"), 0);
    RF_EXPECT_CONTAINS(report, "threads; host budget 96 MiB, of which ");
    RF_EXPECT_CONTAINS(report, " is taken; context 2 of 512 ");
    RF_ASSERT_INT(on_sim("bench", ROUND " --stats --gpu-layers 1 --host-budget 96MiB"), 0);
    RF_EXPECT_CONTAINS(report, "; host budget 96 MiB, of which ");
}

/* info says beforehand what bench then does, budget by budget; and bench's figures add up. */
RF_TEST(model_commands, info_plans_what_bench_does, .timeout_ms = 1500000) {
    static const char *const budgets[] = {"0", "26MiB", "32MiB", "1GiB"};
    for (size_t i = 0; i < RF_COUNT(budgets); i++) {
        RF_TRACE("a budget of %s", budgets[i]);
        RF_ASSERT_INT(
            run_command("cd '%s' && env -u RF_BUDGET -u RF_HOST_BUDGET %s sh -c '\"%s\" info \"%s\" --brief "
                        "--json --ctx 6 --budget %s >plan 2>errors && \"%s\" bench -m \"%s\" " ROUND
                        " --ctx 6 --budget %s --json >done 2>errors' && python3 -c '\n"
                        "import json\n"
                        "plan, done = json.load(open(\"plan\")), json.load(open(\"done\"))\n"
                        "a, b = plan[\"placement\"], done[\"placement\"]\n"
                        "layers = [{p[\"where\"]: p[\"layers\"] for p in x[\"parts\"]} for x in (a, b)]\n"
                        "assert layers[0] == layers[1], layers\n"
                        "assert sum(layers[1].values()) == done[\"layers\"] == 4\n"
                        "assert layers[1].get(\"gpu\", 0) == done[\"gpu_layers\"]\n"
                        "for p, q in zip(a[\"parts\"], b[\"parts\"]):\n"
                        "    assert p[\"kv_bytes\"] == q[\"kv_bytes\"] > 0, (p, q)\n"
                        "    assert abs(p[\"weight_bytes\"] - q[\"weight_bytes\"]) < 16384, (p, q)\n"
                        "whole = done[\"gpu_layers\"] == 4\n"
                        "assert b[\"degraded\"] == (b[\"notice\"] is not None) == (not whole), b\n"
                        "assert (b[\"spilled_weight_bytes\"] > 0) == (not whole), b\n"
                        "assert (b[\"spilled_ms_per_token\"] is None) == whole, b\n"
                        "assert a[\"budget_bytes\"] == b[\"budget_bytes\"]\n"
                        "assert b[\"host_budget_bytes\"] > b[\"host_used_bytes\"] > 0\n"
                        "print(done[\"gpu_layers\"], b[\"budget_bytes\"])'",
                        enter_simulated(), simulated(""), ROCMFORGE, model(), budgets[i], ROCMFORGE, model(),
                        budgets[i]),
            0);
        int layers = report[0] - '0';
        RF_EXPECT(i == 0 ? layers == 0 : i + 1 == RF_COUNT(budgets) ? layers == 4 : layers > 0 && layers < 4);
    }
}

RF_TEST(model_commands, info_shows_a_placement) {
    RF_ASSERT_INT(on_sim("info", "--brief"), 0);
    RF_EXPECT_CONTAINS(report, "\nPlacement\n  Simulated GPU 0");
    RF_EXPECT_CONTAINS(report, "; context 512 of 512 tokens, cache f16\n");
    RF_ASSERT_INT(on_sim("info", "--brief --device cpu --ctx 100 --kv f32"), 0);
    RF_EXPECT_CONTAINS(report, "; context 100 of 512 tokens, cache f32\n");
    RF_EXPECT_CONTAINS(report, "; host budget ");
    RF_EXPECT(!strstr(report, "is taken")); /* nothing is */
    /* A split: the host's budget comes from the worker, which plans, as the GPU's does. */
    RF_ASSERT_INT(on_sim("info", "--brief --ctx 6 --budget 26MiB --host-budget 96MiB"), 0);
    RF_EXPECT_CONTAINS(report, "; budget 26 MiB, of which ");
    RF_EXPECT_CONTAINS(report, "; host budget 96 MiB");
    RF_EXPECT_CONTAINS(report, "cache  CPU\n  layer");
    RF_ASSERT_INT(on_sim("info", "--brief --json --ctx 6 --budget 26MiB --host-budget 96MiB"), 0);
    RF_EXPECT_CONTAINS(report, "\"host_budget_bytes\": 100663296,");
    /* Everything, for programs. */
    RF_ASSERT_INT(
        run_command("cd '%s' && env -u RF_BUDGET -u RF_HOST_BUDGET %s '%s' info '%s' --json --ctx 6 --kv q8_0 "
                    "--budget 26MiB >all 2>errors && python3 -c '\n"
                    "import json\n"
                    "all = json.load(open(\"all\"))\n"
                    "p = all[\"placement\"]\n"
                    "assert list(p) == [\"device\", \"budget_bytes\", \"driver_bytes\", \"scratch_bytes\", "
                    "\"host_budget_bytes\", \"host_used_bytes\", \"context\", \"trained_context\", \"kv\", "
                    "\"parts\", \"degraded\", \"notice\", \"spilled_weight_bytes\", "
                    "\"spilled_ms_per_token\"], list(p)\n"
                    "assert p[\"kv\"] == \"q8_0\" and p[\"scratch_bytes\"] > 0 and p[\"driver_bytes\"] > 0\n"
                    "print(\"all there\")'",
                    enter_simulated(), simulated(""), ROCMFORGE, model()),
        0);
    RF_EXPECT_TEXT(report, "all there\n");
    /* A driver that takes its process down costs the placement, not the rest. */
    RF_ASSERT_INT(run_command("ASAN_OPTIONS=handle_segv=0 %s '%s' info --brief '%s'",
                              simulated("fault=hipStreamCreateWithPriority:1:crash"), ROCMFORGE, model()),
                  0);
    RF_EXPECT_CONTAINS(report, "all weights");
    RF_EXPECT_CONTAINS(report, "unknown: the worker process died of SIGSEGV");
    /* So does one that ends it without a word. */
    RF_ASSERT_INT(run_command("%s '%s' info --brief '%s'", simulated("fault=hipStreamCreateWithPriority:1:exit"),
                              ROCMFORGE, model()),
                  0);
    RF_EXPECT_CONTAINS(report, "all weights");
    RF_EXPECT_CONTAINS(report, "unknown: the worker process ");
    /* So does a model that cannot be run. */
    static const struct spec odd = {"odd",      "mamba9",      .layers = 1,        .width = 32,
                                    .heads = 2, .kv_heads = 1, .feed_forward = 32, .vocabulary = 40};
    RF_ASSERT_INT(run_command("RF_DRIVER=none '%s' info --brief '%s'", ROCMFORGE, infer_model(&odd, "odd.gguf")), 0);
    RF_EXPECT_CONTAINS(report, "all weights");
    RF_EXPECT_CONTAINS(report, "unknown: ");
    RF_EXPECT_CONTAINS(report, "mamba9");
    RF_EXPECT_CONTAINS(report, "\n  layer 0 ");
    expect_one_line("info", "--budget lots", 2, "lots");
    expect_one_line("info", "--device 7", 77, "'7'");
    expect_one_line("info", "--kv f64", 2, "f16, f32 and q8_0");
    expect_one_line("info", "--in-worker", 2, "internal");
}

/* Arrays, whose first elements are shown, with the types that they have. */
RF_TEST(model_commands, info_shows_metadata_as_json) {
    static struct script script;
    char path[512];
    snprintf(path, sizeof path, "%s", scratch_path("words.gguf"));
    script_begin(&script, true);
    script_write(&script, path);
    RF_ASSERT_INT(
        run_command("RF_DRIVER=none '%s' info --json '%s' | python3 -c '\n"
                    "import json, sys\n"
                    "keys = {m[\"key\"]: m for m in json.load(sys.stdin)[\"metadata\"]}\n"
                    "tokens, types = (keys[\"tokenizer.ggml.\" + k] for k in (\"tokens\", \"token_type\"))\n"
                    "assert tokens[\"count\"] == types[\"count\"] > 200\n"
                    "for array, kind in ((tokens, str), (types, int)):\n"
                    "    assert 4 <= len(array[\"first\"]) < 100, array\n"
                    "    assert all(type(x) is kind for x in array[\"first\"]), array\n"
                    "print(\"arrays\")'",
                    ROCMFORGE, path),
        0);
    RF_EXPECT_TEXT(report, "arrays\n");
}

/* ---- what makes no sense ---- */

RF_TEST(model_commands, budgets_that_make_no_sense) {
    static const char *const nonsense[] = {"lots", "-5GiB",  "0%",    "1000%",
                                           "\"\"", "12XiB",  "keep=", "keep=100%",
                                           "nan%", "1GiB,,", "part=", "99999999999999999999GiB"};
    char arguments[128];
    for (size_t i = 0; i < RF_COUNT(nonsense); i++) {
        snprintf(arguments, sizeof arguments, ROUND " --budget %s", nonsense[i]);
        expect_one_line("bench", arguments, 2, "allowed: 70%, 12GiB");
        snprintf(arguments, sizeof arguments, ROUND " --device cpu --host-budget %s", nonsense[i]);
        expect_one_line("bench", arguments, 2, "host");
    }
    /* Too small for anything: the CPU, with a notice; but one line where the GPU was insisted on. */
    static const char *const small[] = {"0", "1", "1KiB", "keep=99GiB"};
    for (size_t i = 0; i < RF_COUNT(small); i++) {
        RF_TRACE("a budget of %s", small[i]);
        snprintf(arguments, sizeof arguments, ROUND " --budget %s", small[i]);
        RF_EXPECT_INT(on_sim("bench", arguments), 0);
        RF_EXPECT_CONTAINS(report, "rocmforge: note: ");
        RF_EXPECT_CONTAINS(report, "budget");
        RF_EXPECT_CONTAINS(report, "; 0 of 4 layers on a GPU\n");
        snprintf(arguments, sizeof arguments, ROUND " --budget %s --gpu-layers 4", small[i]);
        expect_one_line("bench", arguments, 1, "RF_E_BUDGET");
    }
}

/* Every command that takes a budget refuses a malformed one, and malformed options, where there is no GPU too. */
RF_TEST(model_commands, budgets_that_make_no_sense_without_a_gpu) {
    static const char *const commands[] = {"run -p x -n 1 -m", "bench " ROUND " -m",
                                           "logits --tokens 1 --out /dev/null -m", "info"};
    static const char *const places[] = {"auto", "cpu"};
    for (size_t i = 0; i < RF_COUNT(commands); i++)
        for (size_t k = 0; k < RF_COUNT(places); k++) {
            RF_TRACE("rocmforge %s on %s", commands[i], places[k]);
            RF_EXPECT_INT(run_command("env -u RF_BUDGET RF_DRIVER=none '%s' %s '%s' --device %s --budget lots",
                                      ROCMFORGE, commands[i], model(), places[k]),
                          2);
            RF_EXPECT_CONTAINS(report, "budget \"lots\"");
            RF_EXPECT(strchr(report, '\n') == report + strlen(report) - 1);
            static const char *const options[] = {"RF_BUDGET", "RF_HOST_BUDGET"};
            for (size_t o = 0; o < RF_COUNT(options); o++) {
                RF_EXPECT_INT(run_command("env -u RF_BUDGET RF_DRIVER=none %s=lots '%s' %s '%s' --device %s",
                                          options[o], ROCMFORGE, commands[i], model(), places[k]),
                              2);
                RF_EXPECT_CONTAINS(report, "\"lots\"");
                RF_EXPECT(strchr(report, '\n') == report + strlen(report) - 1);
            }
        }
}

RF_TEST(model_commands, what_fits_nowhere) {
    /* A context for which neither the device nor the host has room. */
    expect_one_line("bench", ROUND " --ctx 16777216 --device cpu --host-budget 64MiB", 1, "a smaller context");
    expect_one_line("bench", ROUND " --ctx 16777216 --budget 64MiB --host-budget 96MiB", 1, "a smaller context");
    expect_one_line("bench", ROUND " --ctx 99999999", 2, "--ctx 99999999");
    /* Without one it is as large as the host's budget allows, and that is said. */
    RF_ASSERT_INT(on_sim("logits", "--tokens 1 --out /dev/null --device cpu --host-budget 4MiB"), 0);
    RF_ASSERT_INT(on_sim("info", "--brief --device cpu --host-budget 4MiB"), 0);
    RF_EXPECT_CONTAINS(report, "context 256 of 512 tokens");
    RF_EXPECT_CONTAINS(report, "note: the context is 256 tokens");
    /* No host memory for the GPU's staging: the CPU, with a notice. */
    RF_ASSERT_INT(on_sim("bench", ROUND " --host-budget 16MiB"), 0);
    RF_EXPECT_CONTAINS(report, "note: it runs on the CPU: ");
    RF_EXPECT_CONTAINS(report, "--host-budget");
    expect_one_line("bench", ROUND " --host-budget 16MiB --device gpu", 1, "--host-budget");
    expect_one_line("bench", ROUND " --duty 101", 2, "--duty 101");
    expect_one_line("bench", ROUND " --kernel-ms 99999999", 2, "--kernel-ms 99999999");
    expect_one_line("bench", ROUND " --device 7", 77, "'7'");
    expect_one_line("bench", ROUND " --device nonsense", 77, "'nonsense'");
}

/* The file of a model that runs is cut: one line, whatever the kernel sends. */
RF_TEST(model_commands, a_file_that_is_cut_while_it_is_used) {
    static struct script script;
    char path[512];
    snprintf(path, sizeof path, "%s", scratch_path("cut.gguf"));
    script_begin(&script, true);
    script_add(&script, "<|im_start|>", RF_TOKEN_CONTROL);
    int32_t end = script_add(&script, "<|im_end|>", RF_TOKEN_CONTROL);
    script_say(&script, script_byte('\n'), "yes", end);
    script_write(&script, path);
    RF_EXPECT_INT(
        run_command("cd '%s' && rm -f in out && mkfifo in out && { RF_DRIVER=none '%s' run -m '%s' --chat "
                    "--device cpu <in >out 2>said & } && exec 3>in 4<out && echo hi >&3 && read -r answer <&4 "
                    "&& truncate -s 4096 '%s' && echo hi >&3 && exec 3>&-; wait $!; code=$?; echo \"$answer\"; "
                    "cat said; exit $code",
                    enter_simulated(), ROCMFORGE, path, path),
        1);
    RF_EXPECT_CONTAINS(report, "yes\nrocmforge: ");
    RF_EXPECT_CONTAINS(report, path);
    RF_EXPECT_CONTAINS(last_line(), "can no longer be read");
}
