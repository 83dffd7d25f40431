/* Drivers that misbehave behind the simulated one (hostile_hip.c), under every command that uses a GPU. What a driver
 * does comes from tables; when it does it, where the table does not say, from the seed: at one of the driver calls
 * that the undisturbed command makes. */
#include "hostile_command.h"

#include <stdio.h>
#include <string.h>

/* ---- one attack ---- */

static struct outcome outcome;

static bool attack(const struct hostile_command *command, const char *where, const char *when, const char *what,
                   enum verdict verdict, bool hangs) {
    char hostile[128];
    snprintf(hostile, sizeof hostile, "%s:%s:%s", where, when, what);
    RF_TRACE("%s, HOSTILE=%s", command->label, hostile);
    const struct attack how = {.hostile = hostile, .hangs = hangs};
    hostile_run(command, &how, &outcome);
    const char *wrong = hostile_judge(command, &outcome, verdict);
    if (wrong) hostile_report(&outcome, wrong);
    return outcome.reached;
}

/* ---- the tables ---- */

struct behaviour {
    const char *what;
    enum verdict early; /* what the command makes of it where the device is being opened */
    bool hangs;
};
/* Called once by every command when it opens the device. */
#define EARLY "hipMemGetInfo:1"

static const struct behaviour behaviours[] = {
    {"crash", NOT_DONE, false},
    {"abort", NOT_DONE, false},
    {"abort-elsewhere", NOT_DONE, false},
    {"exit/0", NOT_DONE, false},
    {"exit/3", NOT_DONE, false},
    {"quick-exit/0", NOT_DONE, false},
    {"quick-exit/77", NOT_DONE, false},
    {"hang", NOT_DONE, true},
    {"stop", NOT_DONE, true},
    {"exit-handler", ANY, true},
    {"print", DONE, false},
    {"close", ANY, true},
    {"close-others", ANY, true},
    {"round", EXACT, false},
    {"daemon", DONE, false},
    {"sleep", DONE, false},
    {"environment", ANY, false},
    {"mask", DONE, false},
    {"signal/parent/TERM", ANY, false},
    {"signal/parent/KILL", ANY, false},
    {"signal/command/CHLD", DONE, false},
    {"code/1", ANY, false},
    {"code/-1", ANY, false},
    {"code/2147483647", ANY, false},
    {"code/-2147483648", ANY, false},
    {"code/600", ANY, true}, /* "not ready", where nothing is waited for */
};

/* In the worker: while it opens the device, and at one of its other calls. */
RF_TEST_LABELLED_CASES(hostile_drivers, misbehave, struct hostile_command, hostile_commands, .timeout_ms = 3600000) {
    struct rf_random random = {rf_test_seed()};
    uint64_t calls = hostile_calls(c);
    for (size_t i = 0; i < RF_COUNT(behaviours); i++) {
        const struct behaviour *behaviour = &behaviours[i];
        char when[32];
        snprintf(when, sizeof when, "any:%llu", (unsigned long long)rf_random_below(&random, calls) + 1);
        attack(c, "worker", EARLY, behaviour->what, behaviour->early, behaviour->hangs);
        bool later = behaviour->early == DONE || behaviour->early == EXACT;
        attack(c, "worker", when, behaviour->what, later ? behaviour->early : ANY, behaviour->hangs);
    }
    hostile_expect_no_lease();
}

/* In the probe's helper: as if there were no GPU. */
RF_TEST_LABELLED_CASES(hostile_drivers, misbehave_in_the_probe, struct hostile_command, hostile_commands,
                       .timeout_ms = 3600000) {
    static const struct behaviour some[] = {
        {"crash", ANY, false},
        {"exit/0", ANY, false},
        {"quick-exit/77", ANY, false},
        {"hang", ANY, true},
        {"stop", ANY, true},
        {"print", DONE, false},
        {"daemon", ANY, false},
        {"exit-handler", DONE, false},
        {"signal/parent/TERM", ANY, false},
        {"close", ANY, true},
        {"code/-2147483648", ANY, false},
    };
    struct rf_random random = {rf_test_seed()};
    for (size_t i = 0; i < RF_COUNT(some); i++) {
        char when[32];
        snprintf(when, sizeof when, "any:%llu", (unsigned long long)rf_random_below(&random, 8) + 1);
        bool reached = attack(c, "probe", when, some[i].what, some[i].early, some[i].hangs);
        /* A short deadline may pass before the call. */
        RF_EXPECT(reached || some[i].hangs);
    }
    attack(c, "probe", "load:1", "crash", ANY, false);
    attack(c, "worker", "load:1", "crash", ANY, false);
    hostile_expect_no_lease();
}

/* What a driver says about itself, wrong from some call on, in every process. */
static const struct untruth {
    const char *when, *how;
} untruths[] = {
    {"hipGetDeviceCount:1+", "minus"},
    {"hipGetDeviceCount:1+", "zero"},
    {"hipGetDeviceCount:1+", "huge"},
    {"hipDriverGetVersion:1+", "minus"},
    {"hipDriverGetVersion:1+", "huge"},
    {"hipDeviceGet:1+", "minus"},
    {"hipDeviceGetName:1+", "one"},
    {"hipDeviceGetName:1+", "huge"},
    {"hipDeviceGetPCIBusId:1+", "one"},
    {"hipDeviceGetPCIBusId:1+", "huge"},
    {"hipDeviceGetUuid:1+", "zero"},
    {"hipDeviceTotalMem:1+", "zero"},
    {"hipDeviceTotalMem:1+", "one"},
    {"hipDeviceTotalMem:1+", "huge"},
    {"hipDeviceTotalMem:1+", "minus"},
    {"hipMemGetInfo:1+", "zero"},
    {"hipMemGetInfo:1+", "huge"},
    {"hipMemGetInfo:1+", "minus"},
    {"hipMemGetInfo:1+", "contrary"},
    {"hipMemGetInfo:3+", "zero"},
    {"hipMemGetInfo:3+", "contrary"},
    {"hipDeviceGetAttribute:1+", "zero"},
    {"hipDeviceGetAttribute:1+", "one"},
    {"hipDeviceGetAttribute:1+", "minus"},
    {"hipDeviceGetAttribute:1+", "huge"},
    {"hipFuncGetAttribute:1+", "zero"},
    {"hipFuncGetAttribute:1+", "minus"},
    {"hipFuncGetAttribute:1+", "huge"},
    {"hipDeviceGetStreamPriorityRange:1+", "huge"},
    {"hipDeviceGetStreamPriorityRange:1+", "contrary"},
    {"hipEventElapsedTime:1+", "nan"},
    {"hipEventElapsedTime:1+", "minus"},
    {"hipMalloc:1+", "zero"},
    {"hipMalloc:2", "one"},
    {"hipHostMalloc:1+", "zero"},
    {"hipStreamCreateWithPriority:1+", "zero"},
    {"hipEventCreateWithFlags:1+", "zero"},
    {"hipModuleLoadData:1+", "zero"},
    {"hipModuleGetFunction:1+", "zero"},
    {"hipStreamEndCapture:1+", "zero"},
    {"hipStreamIsCapturing:1+", "minus"},
    {"hipGraphInstantiateWithFlags:1+", "zero"},
    {"hipGetDevice:1+", "minus"},
    {"hipGetErrorName:1+", "zero"},
    /* Success, and nothing is handed out. */
    {"hipGetDeviceCount:1+", "nothing"},
    {"hipDriverGetVersion:1+", "nothing"},
    {"hipDeviceGet:1+", "nothing"},
    {"hipDeviceGetName:1+", "nothing"},
    {"hipDeviceGetPCIBusId:1+", "nothing"},
    {"hipDeviceTotalMem:1+", "nothing"},
    {"hipDeviceGetUuid:1+", "nothing"},
    {"hipDeviceGetAttribute:1+", "nothing"},
    {"hipMemGetInfo:1+", "nothing"},
    {"hipMalloc:1+", "nothing"},
    {"hipHostMalloc:1+", "nothing"},
    {"hipStreamCreateWithPriority:1+", "nothing"},
    {"hipEventCreateWithFlags:1+", "nothing"},
    {"hipEventElapsedTime:1+", "nothing"},
    {"hipModuleLoadData:1+", "nothing"},
    {"hipModuleGetFunction:1+", "nothing"},
    {"hipFuncGetAttribute:1+", "nothing"},
    {"hipStreamEndCapture:1+", "nothing"},
    {"hipGraphInstantiateWithFlags:1+", "nothing"},
    {"hipGetDevicePropertiesR0600:1+", "nothing"},
};

static void tell_untruth(const struct hostile_command *command, size_t i) {
    char what[32];
    snprintf(what, sizeof what, "%s%s", strcmp(untruths[i].how, "nothing") ? "lie/" : "", untruths[i].how);
    attack(command, "any", untruths[i].when, what, ANY, true);
}

/* Each of these under two commands, chosen by the seed. */
RF_TEST(hostile_drivers, lie, .timeout_ms = 3600000) {
    struct rf_random random = {rf_test_seed()};
    for (size_t i = 0; i < RF_COUNT(untruths); i++)
        for (int k = 0; k < 2; k++) tell_untruth(&hostile_commands[rf_random_below(&random, COMMANDS)], i);
    hostile_expect_no_lease();
}

/* ---- at random ---- */

/* The attack that belongs to the seed: a behaviour at any call, or something untrue. */
static void play(const struct hostile_command *command, uint64_t calls, uint64_t seed) {
    struct rf_random random = {seed};
    const struct behaviour *behaviour = &behaviours[rf_random_below(&random, RF_COUNT(behaviours))];
    char when[32];
    RF_TRACE("again: hostile_drivers.one/%s --seed %llu", command->label, (unsigned long long)seed);
    if (rf_random_below(&random, 2)) {
        tell_untruth(command, (size_t)rf_random_below(&random, RF_COUNT(untruths)));
        return;
    }
    snprintf(when, sizeof when, "any:%llu", (unsigned long long)rf_random_below(&random, calls) + 1);
    bool harmless = behaviour->early == DONE || behaviour->early == EXACT;
    attack(command, "worker", when, behaviour->what, harmless ? behaviour->early : ANY, behaviour->hangs);
}

/* What a failure names. */
RF_TEST_LABELLED_CASES(hostile_drivers, one, struct hostile_command, hostile_commands, .timeout_ms = 3600000) {
    hostile_play(c, play, HOSTILE_ONE);
}

RF_TEST_LABELLED_CASES(hostile_drivers, long_form, struct hostile_command, hostile_commands, .tags = "slow,hostile",
                       .timeout_ms = HOSTILE_LONG_MS) {
    hostile_play(c, play, LONG_FORM);
}
