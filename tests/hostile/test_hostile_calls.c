/* A fault at a random driver call of every command: one of the simulated driver's, at one of the calls that the
 * undisturbed command makes, both by the seed. The command fails with a reason or gives the right output, and what it
 * held is given back unless the device was lost. */
#include "hostile_command.h"

#include <stdio.h>
#include <string.h>

/* Codes that a call returns and that lose nothing; the driver in front of the simulated one says which call it was.
 */
static const char *const codes[] = {"1",   "2",   "3",   "100", "101", "209",   "400",   "401",
                                    "500", "701", "801", "901", "-7",  "98765", "-98765"};
/* Faults of the simulated driver: the device is lost, or the process ends, or waits for ever. */
static const char *const faults[] = {"700",      "702",       "719",        "999",         "214",       "loss",
                                     "crash",    "abort",     "exit/0",     "exit/3",      "hang",      "work/700",
                                     "work/719", "work/hang", "work/abort", "work/exit/0", "work/crash"};

static const char *const submissions[] = {"hipModuleLaunchKernel", "hipMemcpyHtoDAsync", "hipMemcpyDtoHAsync",
                                          "hipMemsetD8Async", "hipGraphLaunch"};

static struct outcome outcome;

/* What the driver did not take back is held; the library can do nothing about it. */
static bool may_hold(void) {
    static const char *const entries[] = {"hipFree ", "hipHostFree ", "hipGetDevice ", "hipSetDevice "};
    for (size_t i = 0; i < RF_COUNT(entries); i++)
        if (strstr(outcome.entries, entries[i])) return true;
    return strstr(outcome.errors, "abandoned on device") != NULL;
}

/* The fault and the call that belong to the seed. */
static void play(const struct hostile_command *command, uint64_t calls, uint64_t seed) {
    struct rf_random random = {seed};
    /* The kinds in turn, so that few seeds have all of them. */
    size_t turn = (size_t)(seed % (RF_COUNT(codes) + RF_COUNT(faults)));
    bool code = turn < RF_COUNT(codes);
    const char *kind = code ? codes[turn] : faults[turn - RF_COUNT(codes)], *entry = "any";
    bool in_work = !strncmp(kind, "work/", 5);
    uint64_t nth = rf_random_below(&random, calls) + 1;
    if (rf_random_below(&random, 3) == 0) nth = rf_random_below(&random, 60) + 1; /* while it is opened */
    if (in_work) {                                                                /* at a call that submits some */
        entry = submissions[rf_random_below(&random, RF_COUNT(submissions))];
        nth = rf_random_below(&random, 12) + 1;
    }
    char fault[96];
    if (code)
        snprintf(fault, sizeof fault, "any:any:%llu:code/%s", (unsigned long long)nth, kind);
    else
        snprintf(fault, sizeof fault, "fault=%s:%llu:%s", entry, (unsigned long long)nth, kind);
    RF_TRACE("%s, %s; again: hostile_calls.one/%s --seed %llu", command->label, fault, command->label,
             (unsigned long long)seed);
    hostile_run(command,
                &(struct attack){.hostile = code ? fault : NULL,
                                 .rfsim = code ? NULL : fault,
                                 .hangs = strstr(kind, "hang") != NULL},
                &outcome);
    const char *wrong = hostile_judge(command, &outcome, ANY);
    if (!wrong && code && outcome.held && !may_hold()) wrong = "memory is held at the end";
    if (wrong) hostile_report(&outcome, wrong);
}

/* What a failure names. */
RF_TEST_LABELLED_CASES(hostile_calls, one, struct hostile_command, hostile_commands, .timeout_ms = 3600000) {
    hostile_play(c, play, HOSTILE_ONE);
}

RF_TEST_LABELLED_CASES(hostile_calls, short_form, struct hostile_command, hostile_commands, .timeout_ms = 3600000) {
    hostile_play(c, play, 20);
}

RF_TEST_LABELLED_CASES(hostile_calls, long_form, struct hostile_command, hostile_commands, .tags = "slow,hostile",
                       .timeout_ms = HOSTILE_LONG_MS) {
    hostile_play(c, play, LONG_FORM);
}
