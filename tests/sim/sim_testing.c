#include "sim_testing.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

void sim_configure(const char *settings) {
    char text[2048];
    if (rfsim_call_count()) RF_SKIP("needs a process of its own");
    snprintf(text, sizeof text, "kernels=%s,%s", SIM_TEST_KERNELS, settings);
    setenv("RFSIM", text, 1);
}

void sim_begin(const char *settings) {
    sim_configure(settings);
    RF_ASSERT_INT(hipInit(0), 0);
}

const void *sim_image(const char *arch) {
    char path[1024];
    snprintf(path, sizeof path, "%s/sim_kernels.%s.hsaco", SIM_TEST_IMAGES, arch);
    FILE *file = fopen(path, "rb");
    if (!file) RF_FAIL("%s: %s", path, strerror(errno));
    static char image[1 << 20];
    size_t got = fread(image, 1, sizeof image, file);
    fclose(file);
    RF_ASSERT(got > 64 && got < sizeof image);
    return image;
}

hipFunction_t sim_function(const char *arch, const char *name) {
    static hipModule_t module;
    hipFunction_t function = NULL;
    if (!module) RF_ASSERT_INT(hipModuleLoadData(&module, sim_image(arch)), 0);
    RF_ASSERT_INT(hipModuleGetFunction(&function, module, name), 0);
    return function;
}

hipError_t sim_launch(hipFunction_t function, unsigned blocks, unsigned threads, hipStream_t stream, void **args) {
    return hipModuleLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, args, NULL);
}

hipStream_t sim_stream(void) {
    hipStream_t stream = NULL;
    RF_ASSERT_INT(hipStreamCreateWithPriority(&stream, SIM_STREAM_NON_BLOCKING, 0), 0);
    return stream;
}

int sim_finish(hipStream_t stream) {
    int code;
    while ((code = hipStreamQuery(stream)) == SIM_NOT_READY) usleep(50);
    return code;
}

size_t sim_free_bytes(void) {
    size_t free_bytes = 0, total_bytes = 0;
    RF_ASSERT_INT(hipMemGetInfo(&free_bytes, &total_bytes), 0);
    return free_bytes;
}

void sim_child_fail(const char *file, int line, const char *what) {
    fprintf(stderr, "%s:%d: in a child: %s (driver says: %s)\n", file, line, what, rfsim_last_message());
    _exit(101);
}

int sim_child(const char *settings, void (*body)(void)) {
    sim_configure(settings);
    fflush(NULL);
    pid_t child = fork();
    RF_ASSERT(child >= 0);
    if (child == 0) {
        signal(SIGALRM, SIG_DFL);
        signal(SIGSEGV, SIG_DFL);
        signal(SIGABRT, SIG_DFL);
        alarm(30);
        body();
        exit(0);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
}

void sim_expect_exit(int wait_status, int status) {
    if (WIFSIGNALED(wait_status))
        RF_FAIL("the child died of signal %d, expected exit %d", WTERMSIG(wait_status), status);
    RF_ASSERT_INT(WEXITSTATUS(wait_status), status);
}

void sim_expect_signal(int wait_status, int signal_number) {
    if (!WIFSIGNALED(wait_status))
        RF_FAIL("the child exited with %d, expected signal %d", WEXITSTATUS(wait_status), signal_number);
    RF_ASSERT_INT(WTERMSIG(wait_status), signal_number);
}
