/* The `rocmforge` command: finds the subcommand and runs it. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

#include "base/descriptors.h"

static int cmd_help(int argc, char **argv);
static int cmd_version(int argc, char **argv);

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    {"doctor", cmd_doctor, "show the GPUs, whether each is usable or why not, and the memory budget"},
    {"selftest", cmd_selftest, "check a GPU that is new to you, in two minutes, and write a report to send"},
    {"run", cmd_run, "generate text with a model: continue a prompt, or chat"},
    {"bench", cmd_bench, "measure how fast a model runs on this machine"},
    {"logits", cmd_logits, "write the raw logits of a model for some tokens"},
    {"kernels", cmd_kernels, "list the built-in GPU kernels, their targets and the resources they need"},
    {"check", cmd_check, "check every operation on a device against its reference; with --bench, measure it"},
    {"info", cmd_info, "show what is in a model file, and the memory that its parts need"},
    {"tokenize", cmd_tokenize, "turn text into token ids with the vocabulary of a model"},
    {"detokenize", cmd_detokenize, "turn token ids back into text"},
    {"template", cmd_template, "show the prompt that a chat template makes of a conversation"},
    {"test", cmd_test, "run test executables, each test in its own process"},
    {"demo", cmd_demo, "run a small demonstration on the best device, or on the simulated one"},
    {"version", cmd_version, "show the version"},
    {"help", cmd_help, "show this list, or the help of a command"},
};
#define COMMAND_COUNT (sizeof commands / sizeof commands[0])

static void show_commands(FILE *to) {
    fprintf(to, "usage: rocmforge COMMAND [options]\n\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++) fprintf(to, "  %-10s %s\n", commands[i].name, commands[i].summary);
    fprintf(to, "\nUse rocmforge COMMAND --help for details, rocmforge doctor --options for environment variables.\n"
                "Exit status: 0 success, 1 failure, 2 wrong usage, 77 something needed is missing.\n");
}

static int run_command(int argc, char **argv) {
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(argv[0], commands[i].name) == 0) return commands[i].run(argc, argv);
    return cli_fail(CLI_USAGE, "there is no command \"%s\": rocmforge help lists them", argv[0]);
}

int main(int argc, char **argv) {
    if (!rf_reserve_standard_fds()) return CLI_FAILED; /* nothing could be said where errors are read */
    cli_output_begin();
    if (!cli_worker_enter()) return CLI_FAILED;
    if (argc < 2) {
        show_commands(stderr);
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) argv[1] = "help";
    if (strcmp(argv[1], "--version") == 0) argv[1] = "version";
    return cli_worker_finish(cli_output_end(run_command(argc - 1, argv + 1)));
}

static int cmd_version(int argc, char **argv) {
    static const struct cli_command command = {.name = "version", .usage = "", .summary = "Shows the version.\n"};
    int count, code = cli_parse(&command, argc, argv, &count);
    if (code != CLI_GO_ON) return code;
    printf("rocmforge %s\n", rf_version());
    return CLI_DONE;
}

static int cmd_help(int argc, char **argv) {
    if (argc > 2) return cli_fail(CLI_USAGE, "help takes at most one command");
    if (argc < 2 || argv[1][0] == '-' || strcmp(argv[1], "help") == 0) {
        show_commands(stdout);
        return CLI_DONE;
    }
    char *arguments[] = {argv[1], "--help", NULL};
    return run_command(2, arguments);
}
