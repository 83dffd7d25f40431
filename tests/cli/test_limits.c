/* run where the system gives too little of something for a GPU: it uses the CPU, and says why in one line. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run_testing.h"

#include "../sanitizer_noise.h"

#define ASK "run -m model.gguf -p '?' --temp 0"

/* A sanitizer looks for leaks with a process and descriptors of its own. */
#define SIM "ASAN_OPTIONS=detect_leaks=0 RF_DRIVER=sim "

/* before: a shell's command that ends with ";", or a program that runs the command. */
static int run_by(const char *before, const char *environment, const char *arguments) {
    char line[1024];
    snprintf(line, sizeof line, "cd %s && exec >output 2>errors; %s env -u RF_BUDGET -u RFSIM %s %s '%s' %s",
             command_folder(), strchr(before, ';') ? before : "", environment, strchr(before, ';') ? "" : before,
             ROCMFORGE, arguments);
    int status = system(line);
    size_t bytes;
    unsigned char *text = read_bytes(scratch_path("output"), &bytes);
    snprintf(command_output, sizeof command_output, "%.*s", (int)bytes, (const char *)text);
    free(text);
    text = read_bytes(scratch_path("errors"), &bytes);
    snprintf(command_errors, sizeof command_errors, "%.*s", (int)bytes, (const char *)text);
    free(text);
    drop_sanitizer_noise(command_errors);
    RF_ASSERT(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void expect_cpu_with_one_line(const char *part) {
    RF_EXPECT_TEXT(command_output, ANSWER "\n");
    const char *end = strchr(command_errors, '\n');
    if (!end || end[1]) RF_FAIL("not one line: %s", command_errors);
    RF_EXPECT_CONTAINS(command_errors, "rocmforge: note: the GPU cannot be used; continuing on the CPU: ");
    RF_EXPECT_CONTAINS(command_errors, part);
}

/* With any number of descriptors that the model itself can be opened with there is an answer; below those that a
 * worker takes it comes from the CPU. */
RF_TEST(limits, few_descriptors, .timeout_ms = 600000) {
    bool from_gpu = false;
    static const int limits[] = {6, 7, 8, 9, 10, 11, 12, 16, 32};
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        char limit[32];
        RF_TRACE("%d descriptors", limits[i]);
        snprintf(limit, sizeof limit, "ulimit -n %d;", limits[i]);
        RF_EXPECT_INT(run_by(limit, SIM, ASK), 0);
        if (command_errors[0])
            expect_cpu_with_one_line("");
        else
            from_gpu = true;
        RF_EXPECT_TEXT(command_output, ANSWER "\n");
    }
    RF_EXPECT(from_gpu);
    RF_EXPECT_INT(run_by("ulimit -n 7;", SIM, ASK), 0);
    expect_cpu_with_one_line("the worker process could not start: Too many open files");
    /* Who asks for the GPU is told. */
    RF_EXPECT_INT(run_by("ulimit -n 7;", SIM, ASK " --device gpu"), 1);
    RF_EXPECT_CONTAINS(command_errors, "Too many open files");
}

RF_TEST(limits, no_process_and_no_thread, .timeout_ms = 300000) {
    static const char *const kinds[] = {NO_MORE " processes", NO_MORE " threads"};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        int code = run_by(kinds[i], SIM "RF_THREADS=4", ASK);
        if (code == 77) RF_SKIP("the kernel takes no filter of system calls");
        RF_EXPECT_INT(code, 0);
        expect_cpu_with_one_line("the worker process could not start: Resource temporarily unavailable");
        RF_EXPECT_INT(run_by(kinds[i], SIM "RF_THREADS=4", ASK " --device gpu"), 1);
        RF_EXPECT_CONTAINS(command_errors, "Resource temporarily unavailable");
    }
}

/* A driver whose memory figures cannot be. */
RF_TEST(limits, a_driver_that_claims_too_much, .timeout_ms = 300000) {
    RF_EXPECT_INT(run_by("", SIM "RFSIM=claims=4194304TiB", ASK), 0);
    expect_cpu_with_one_line("the driver says that 4 EiB of 4 EiB are free on a GPU of 16 GiB");
}

/* A lease that cannot be had, for whatever reason. */
RF_TEST(limits, no_lease, .timeout_ms = 300000) {
    command_folder();
    write_bytes(scratch_path("file"), "x", 1);
    mkdir(scratch_path("open"), 0700);
    RF_ASSERT_INT(chmod(scratch_path("open"), 0777), 0);
    static const struct {
        const char *folder, *part;
    } cases[] = {{"file", "not a folder"}, {"open", "open to other users"}, {"nowhere/at/all", "lease folder"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char environment[128];
        snprintf(environment, sizeof environment, SIM "RF_LEASE_DIR=%s", cases[i].folder);
        RF_TRACE("%s", environment);
        RF_EXPECT_INT(run_by("", environment, ASK), 0);
        expect_cpu_with_one_line(cases[i].part);
    }
}
