/* Faults of each kind, at the call they were set on, and what is left afterwards. */
#include "sim_testing.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

RF_TEST(sim_fault, a_code_at_the_nth_call_only) {
    sim_begin("fault=hipMalloc:2:2");
    void *a, *b = NULL;
    RF_ASSERT_INT(hipMalloc(&a, 1), 0);
    RF_ASSERT_INT(hipMalloc(&b, 1), SIM_OUT_OF_MEMORY);
    RF_ASSERT(b == NULL);
    RF_ASSERT_INT(hipMalloc(&b, 1), 0);
    struct rfsim_stats stats = {.struct_size = sizeof stats};
    rfsim_stats(&stats);
    RF_ASSERT_INT(stats.faults, 1);
    RF_ASSERT_INT(stats.calls, 4);
    RF_ASSERT_INT(rfsim_entry_count("hipMalloc"), 3);
    RF_ASSERT_INT(rfsim_entry_count("hipNothing"), UINT64_MAX);
}

RF_TEST(sim_fault, a_code_from_the_nth_call_on) {
    sim_begin("fault=hipMemGetInfo:2+:1");
    size_t a, b;
    RF_ASSERT_INT(hipMemGetInfo(&a, &b), 0);
    for (int i = 0; i < 5; i++) RF_ASSERT_INT(hipMemGetInfo(&a, &b), SIM_INVALID_VALUE);
}

RF_TEST(sim_fault, any_counts_every_call) {
    sim_begin("fault=any:3:2");
    size_t a, b;
    int count;
    RF_ASSERT_INT(hipGetDeviceCount(&count), 0);
    RF_ASSERT_INT(hipMemGetInfo(&a, &b), SIM_OUT_OF_MEMORY);
    RF_ASSERT_INT(hipMemGetInfo(&a, &b), 0);
}

RF_TEST(sim_fault, at_a_call_that_a_seed_chooses) {
    sim_begin("fault=hipMemGetInfo:rand/11/20:2");
    size_t a, b;
    int failed = 0;
    for (int i = 0; i < 20; i++) failed += hipMemGetInfo(&a, &b) == SIM_OUT_OF_MEMORY;
    RF_ASSERT_INT(failed, 1);
}

RF_TEST(sim_fault, fatal_codes_stay) {
    sim_begin("devices=2,fault=hipMalloc:1:719");
    void *pointer;
    size_t a, b;
    RF_ASSERT_INT(hipMalloc(&pointer, 1), SIM_LAUNCH_FAILURE);
    RF_ASSERT_INT(hipMalloc(&pointer, 1), SIM_LAUNCH_FAILURE);
    RF_ASSERT_INT(hipMemGetInfo(&a, &b), SIM_LAUNCH_FAILURE);
    /* the other device is well */
    RF_ASSERT_INT(hipSetDevice(1), 0);
    RF_ASSERT_INT(hipMalloc(&pointer, 1), 0);
    RF_ASSERT_INT(hipSetDevice(0), 0);
    RF_ASSERT_INT(hipMalloc(&pointer, 1), SIM_LAUNCH_FAILURE);
}

RF_TEST(sim_fault, loss) {
    sim_begin("fault=hipFree:1:loss");
    void *pointer;
    RF_ASSERT_INT(hipMalloc(&pointer, 1), 0);
    RF_ASSERT_INT(hipFree(pointer), SIM_UNKNOWN);
    RF_ASSERT_INT(hipFree(pointer), SIM_UNKNOWN);
}

RF_TEST(sim_fault, work_faults_show_later) {
    sim_begin("fault=hipModuleLaunchKernel:2:work/700");
    void *memory;
    RF_ASSERT_INT(hipMalloc(&memory, 4096), 0);
    uint32_t count = 16, value = 1;
    void *args[] = {&memory, &value, &count};
    hipStream_t stream = sim_stream();
    hipFunction_t write = sim_function("gfx1100", "sim_write");
    hipEvent_t first, second;
    RF_ASSERT_INT(hipEventCreateWithFlags(&first, 2), 0);
    RF_ASSERT_INT(hipEventCreateWithFlags(&second, 2), 0);
    RF_ASSERT_INT(sim_launch(write, 1, 16, stream, args), 0);
    RF_ASSERT_INT(sim_finish(stream), 0);
    RF_ASSERT_INT(sim_launch(write, 1, 16, stream, args), 0);
    int code;
    while ((code = hipStreamQuery(stream)) == SIM_NOT_READY) usleep(100);
    RF_ASSERT_INT(code, SIM_ILLEGAL_ADDRESS);
    RF_ASSERT_INT(hipEventQuery(first), SIM_ILLEGAL_ADDRESS);
    RF_ASSERT_INT(hipFree(memory), SIM_ILLEGAL_ADDRESS);
}

/* ---- those that a process does not survive ---- */

static void child_two_calls(void) {
    void *pointer;
    SIM_NEED(hipInit(0) == 0);
    SIM_NEED(hipMalloc(&pointer, 1) == 0);
    hipMalloc(&pointer, 1);
}

RF_TEST(sim_fault, crash) {
    sim_expect_signal(sim_child("fault=hipMalloc:2:crash", child_two_calls), SIGSEGV);
}
RF_TEST(sim_fault, abort) {
    sim_expect_signal(sim_child("fault=hipMalloc:2:abort", child_two_calls), SIGABRT);
}
RF_TEST(sim_fault, exit) {
    sim_expect_exit(sim_child("fault=hipMalloc:2:exit/42", child_two_calls), 42);
}

static void child_hang(void) {
    alarm(1);
    child_two_calls();
}

RF_TEST(sim_fault, hang) {
    sim_expect_signal(sim_child("fault=hipMalloc:2:hang", child_hang), SIGALRM);
}

static void child_work(void) {
    void *memory;
    SIM_NEED(hipInit(0) == 0);
    SIM_NEED(hipMalloc(&memory, 4096) == 0);
    hipStream_t stream;
    SIM_NEED(hipStreamCreateWithPriority(&stream, 1, 0) == 0);
    SIM_NEED(hipMemsetD8Async(memory, 0, 16, stream) == 0);
    sim_finish(stream);
}

RF_TEST(sim_fault, abort_in_the_work) {
    sim_expect_signal(sim_child("fault=hipMemsetD8Async:1:work/abort", child_work), SIGABRT);
}
RF_TEST(sim_fault, crash_in_the_work) {
    sim_expect_signal(sim_child("fault=hipMemsetD8Async:1:work/crash", child_work), SIGSEGV);
}

/* ---- hangs of the work ---- */

static void *free_it(void *pointer) {
    return hipFree(pointer) == 0 ? pointer : NULL; /* must wait for the stream that hangs */
}

RF_TEST(sim_fault, a_stuck_stream_stops_who_waits_for_it_and_nobody_else) {
    sim_begin("fault=hipMemsetD8Async:1:work/hang");
    void *memory, *more;
    hipStream_t stuck = sim_stream(), other = sim_stream();
    RF_ASSERT_INT(hipMalloc(&memory, 4096), 0);
    RF_ASSERT_INT(hipMemsetD8Async(memory, 1, 16, stuck), 0);
    RF_ASSERT_INT(hipMemsetD8Async((char *)memory + 64, 1, 16, other), 0);
    RF_ASSERT_INT(sim_finish(other), 0);
    RF_ASSERT_INT(hipStreamQuery(stuck), SIM_NOT_READY);
    RF_ASSERT_INT(hipMalloc(&more, 4096), 0);
    RF_ASSERT_INT(hipStreamDestroy(other), 0);
    pthread_t thread;
    void *freed = NULL;
    RF_ASSERT_INT(pthread_create(&thread, NULL, free_it, more), 0);
    usleep(50000);
    struct rfsim_stats stats = {.struct_size = sizeof stats};
    rfsim_stats(&stats);
    RF_ASSERT_INT(stats.device_count, 2); /* not freed */
    rfsim_release_hangs();
    RF_ASSERT_INT(pthread_join(thread, &freed), 0);
    RF_ASSERT(freed == more);
    RF_ASSERT_INT(hipStreamQuery(stuck), 0);
}

static void child_leave_stuck(void) {
    void *memory;
    SIM_NEED(hipInit(0) == 0);
    SIM_NEED(hipMalloc(&memory, 4096) == 0);
    hipStream_t stream;
    SIM_NEED(hipStreamCreateWithPriority(&stream, 1, 0) == 0);
    SIM_NEED(hipMemsetD8Async(memory, 0, 16, stream) == 0);
    SIM_NEED(hipStreamDestroy(stream) == 0);
}

RF_TEST(sim_fault, a_process_may_end_with_a_stuck_stream) {
    sim_expect_exit(sim_child("fault=hipMemsetD8Async:1:work/hang", child_leave_stuck), 0);
}

/* A fork of a process that uses the driver cannot. */
RF_TEST(sim_fault, a_forked_child_has_no_driver) {
    sim_begin("");
    void *pointer;
    RF_ASSERT_INT(hipMalloc(&pointer, 1), 0);
    pid_t child = fork();
    if (child == 0) _exit(hipMalloc(&pointer, 1) == SIM_NOT_INITIALIZED ? 0 : 1);
    int status = -1;
    while (waitpid(child, &status, 0) < 0) {
    }
    sim_expect_exit(status, 0);
}
