/* The `rocmforge` command: finds the subcommand and runs it. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

static int cmd_help(int argc, char **argv);
static int cmd_version(int argc, char **argv);

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    {"doctor", cmd_doctor, "which GPUs there are, usable or why not, and the memory budget"},
    {"run", cmd_run, "a model goes on with a text, or answers in a chat"},
    {"bench", cmd_bench, "how fast a model reads a prompt and writes an answer here"},
    {"logits", cmd_logits, "what a model says of some tokens, as raw numbers"},
    {"kernels", cmd_kernels, "the built-in GPU kernels, their targets and what they need"},
    {"check", cmd_check, "every operation against its reference, on a device; with --bench, its speed"},
    {"info", cmd_info, "what is in a model file, and the memory that its parts need"},
    {"tokenize", cmd_tokenize, "the token ids of a text, by a model's vocabulary"},
    {"detokenize", cmd_detokenize, "the text that token ids stand for"},
    {"test", cmd_test, "runs test executables, each test in a process of its own"},
    {"demo", cmd_demo, "a small demonstration on the best device, the simulated one if there is none"},
    {"version", cmd_version, "the version"},
    {"help", cmd_help, "this text, or a command's"},
};
#define COMMAND_COUNT (sizeof commands / sizeof commands[0])

static void show_commands(FILE *to) {
    fprintf(to, "usage: rocmforge COMMAND [options]\n\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++) fprintf(to, "  %-10s %s\n", commands[i].name, commands[i].summary);
    fprintf(to, "\nrocmforge COMMAND --help tells more. Environment: rocmforge doctor --options.\n"
                "Exit status: 0 done, 1 failed, 2 wrong usage, 77 something needed is absent.\n");
}

static int run_command(int argc, char **argv) {
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(argv[0], commands[i].name) == 0) return commands[i].run(argc, argv);
    return cli_fail(CLI_USAGE, "there is no command \"%s\": rocmforge help lists them", argv[0]);
}

int main(int argc, char **argv) {
    int code;
    if (argc < 2) {
        show_commands(stderr);
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) argv[1] = "help";
    if (strcmp(argv[1], "--version") == 0) argv[1] = "version";
    code = run_command(argc - 1, argv + 1);
    if (fflush(stdout) != 0 || ferror(stdout)) return cli_fail(CLI_FAILED, "standard output could not be written");
    return code;
}

static int cmd_version(int argc, char **argv) {
    static const struct cli_command command = {.name = "version", .usage = "", .summary = "Shows the version.\n"};
    int count, code = cli_parse(&command, argc, argv, &count);
    if (code != CLI_GO_ON) return code;
    printf("rocmforge %s\n", rf_version());
    return CLI_DONE;
}

static int cmd_help(int argc, char **argv) {
    if (argc > 2) return cli_fail(CLI_USAGE, "help takes one command at most");
    if (argc < 2 || argv[1][0] == '-' || strcmp(argv[1], "help") == 0) {
        show_commands(stdout);
        return CLI_DONE;
    }
    char *arguments[] = {argv[1], "--help", NULL};
    return run_command(2, arguments);
}
