/* Streams, events and kernels of the simulated driver: order, waves, barriers, races that it must find. */
#include "sim_testing.h"
#include "base/sanitizers.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *device_memory(size_t bytes) {
    void *memory = NULL;
    RF_ASSERT_INT(hipMalloc(&memory, bytes), 0);
    return memory;
}

static void download(void *to, void *from, size_t bytes, hipStream_t stream) {
    RF_ASSERT_INT(hipMemcpyDtoHAsync(to, from, bytes, stream), 0);
}

/* ---- waves and blocks ---- */

static void check_wave(const char *arch, uint32_t wave) {
    enum { THREADS = 256, BLOCKS = 3, COUNT = THREADS * BLOCKS };
    uint32_t words[COUNT];
    uint64_t ballots[COUNT / 32], expected = 0;
    hipStream_t stream = sim_stream();
    void *out = device_memory(sizeof words), *votes = device_memory(sizeof ballots), *args[] = {&out, &votes};
    RF_ASSERT_INT(sim_launch(sim_function(arch, "sim_wave"), BLOCKS, THREADS, stream, args), 0);
    download(words, out, sizeof words, stream);
    download(ballots, votes, COUNT / wave * sizeof *ballots, stream);
    for (uint32_t lane = 0; lane < wave; lane++) expected |= (uint64_t)(lane % 3 == 1) << lane;
    for (uint32_t i = 0; i < COUNT; i++) RF_ASSERT_INT(words[i], i / wave * wave + (wave - 1 - i % wave));
    for (uint32_t w = 0; w < COUNT / wave; w++) RF_ASSERT(ballots[w] == expected);
}

RF_TEST(sim_kernel, waves_of_32) {
    sim_begin("");
    check_wave("gfx1100", 32);
}
RF_TEST(sim_kernel, waves_of_64) {
    sim_begin("arch=gfx942");
    check_wave("gfx942", 64);
}
RF_TEST(sim_kernel, waves_of_32_shuffled) {
    sim_begin("shuffle=5");
    check_wave("gfx1100", 32);
}
RF_TEST(sim_kernel, waves_of_64_shuffled) {
    sim_begin("arch=gfx942,shuffle=6");
    check_wave("gfx942", 64);
}

static void check_sums(void) {
    enum { BLOCKS = 5 };
    hipStream_t stream = sim_stream();
    void *out = device_memory(BLOCKS * sizeof(uint32_t)), *args[] = {&out};
    for (unsigned threads = 1; threads <= 1024; threads *= 2)
        for (int dynamic = 0; dynamic < 2; dynamic++) {
            uint32_t sums[BLOCKS];
            hipFunction_t function = sim_function("gfx1100", dynamic ? "sim_dynamic_sum" : "sim_block_sum");
            RF_ASSERT_INT(hipModuleLaunchKernel(function, BLOCKS, 1, 1, threads, 1, 1, dynamic ? threads * 4 : 0,
                                                stream, args, NULL),
                          0);
            download(sums, out, sizeof sums, stream);
            for (uint32_t b = 0; b < BLOCKS; b++)
                RF_ASSERT_INT(sums[b], threads * (b * threads) + threads * (threads - 1) / 2);
        }
}

RF_TEST(sim_kernel, barriers_and_shared_memory) {
    sim_begin("");
    check_sums();
}
RF_TEST(sim_kernel, barriers_and_shared_memory_shuffled) {
    sim_begin("shuffle=99");
    check_sums();
}

RF_TEST(sim_kernel, a_grid_has_less_than_2_to_the_32_threads) {
    sim_begin("");
    hipFunction_t function = sim_function("gfx1100", "sim_block_sum");
    void *out = device_memory(64), *args[] = {&out};
    RF_EXPECT_INT(hipModuleLaunchKernel(function, 1u << 26, 1, 1, 64, 1, 1, 0, sim_stream(), args, NULL),
                  SIM_INVALID_CONFIGURATION);
    RF_EXPECT_TEXT(hipGetErrorName(SIM_INVALID_CONFIGURATION), "hipErrorInvalidConfiguration");
}

RF_TEST(sim_kernel, shared_memory_is_fresh_in_every_block) {
    sim_begin("");
    uint32_t words[4];
    hipStream_t stream = sim_stream();
    void *out = device_memory(sizeof words), *args[] = {&out};
    RF_ASSERT_INT(sim_launch(sim_function("gfx1100", "sim_shared_fresh"), 4, 1, stream, args), 0);
    download(words, out, sizeof words, stream);
    for (int i = 0; i < 4; i++) {
        RF_ASSERT(words[i] != 7);
        RF_ASSERT(words[i] != 0);
    }
}

/* ---- divergence ---- */

static int leave(uint32_t first, uint32_t last) {
    hipStream_t stream = sim_stream();
    void *out = device_memory(4096), *args[] = {&out, &first, &last};
    RF_ASSERT_INT(sim_launch(sim_function("gfx1100", "sim_leave"), 1, 128, stream, args), 0);
    return sim_finish(stream);
}

RF_TEST(sim_kernel, whole_waves_may_leave_before_a_barrier) {
    sim_begin("shuffle=3");
    RF_ASSERT_INT(leave(32, 96), 0);
    RF_ASSERT_INT(leave(0, 32), 0);
    RF_ASSERT_INT(leave(0, 128), 0);
    RF_ASSERT_INT(leave(128, 128), 0);
}
RF_TEST(sim_kernel, part_of_a_wave_may_not) {
    sim_begin("");
    RF_ASSERT_INT(leave(40, 41), SIM_LAUNCH_FAILURE);
    RF_ASSERT_CONTAINS(rfsim_last_message(), "sim_leave");
    RF_ASSERT_CONTAINS(rfsim_last_message(), "divergent barrier: in wave 1, 31 of 32 lanes");
}
RF_TEST(sim_kernel, part_of_a_wave_may_not_last_lane) {
    sim_begin("shuffle=8");
    RF_ASSERT_INT(leave(127, 128), SIM_LAUNCH_FAILURE);
    RF_ASSERT_CONTAINS(rfsim_last_message(), "divergent barrier");
}
RF_TEST(sim_kernel, lanes_that_never_meet) {
    sim_begin("");
    hipStream_t stream = sim_stream();
    void *out = device_memory(4096), *args[] = {&out};
    RF_ASSERT_INT(sim_launch(sim_function("gfx1100", "sim_mixed"), 1, 64, stream, args), 0);
    RF_ASSERT_INT(sim_finish(stream), SIM_LAUNCH_FAILURE);
    RF_ASSERT_CONTAINS(rfsim_last_message(), "of 64 lanes 63 wait in a barrier, 1 in a shuffle");
}

/* ---- races inside a block ---- */

static int wrong_neighbours(uint32_t with_barrier) {
    enum { THREADS = 256, BLOCKS = 4 };
    uint32_t words[THREADS * BLOCKS];
    hipStream_t stream = sim_stream();
    void *out = device_memory(sizeof words), *args[] = {&out, &with_barrier};
    RF_ASSERT_INT(sim_launch(sim_function("gfx1100", "sim_neighbour"), BLOCKS, THREADS, stream, args), 0);
    download(words, out, sizeof words, stream);
    int wrong = 0;
    for (uint32_t i = 0; i < THREADS * BLOCKS; i++) wrong += words[i] != (i % THREADS + 1) % THREADS + 1;
    return wrong;
}

RF_TEST(sim_kernel, a_missing_barrier_is_noticed) {
    sim_begin("shuffle=1");
    RF_ASSERT(wrong_neighbours(0) > 100);
    RF_ASSERT_INT(wrong_neighbours(1), 0);
}

/* ---- streams ---- */

static void *increment_many(void *argument) {
    enum { ROUNDS = 60, COUNT = 500 };
    hipFunction_t *functions = argument;
    uint32_t words[COUNT], count = COUNT, value = 3;
    hipStream_t stream = sim_stream();
    void *memory = device_memory(sizeof words), *write_args[] = {&memory, &value, &count},
         *add_args[] = {&memory, &count};
    RF_ASSERT_INT(sim_launch(functions[0], 2, 256, stream, write_args), 0);
    for (int i = 0; i < ROUNDS; i++) RF_ASSERT_INT(sim_launch(functions[1], 2, 256, stream, add_args), 0);
    download(words, memory, sizeof words, stream);
    for (uint32_t i = 0; i < COUNT; i++) RF_ASSERT_INT(words[i], 3 + i + ROUNDS);
    RF_ASSERT_INT(hipStreamDestroy(stream), 0);
    RF_ASSERT_INT(hipFree(memory), 0);
    return NULL;
}

static void many_threads(void) {
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    hipFunction_t functions[] = {sim_function("gfx1100", "sim_write"), sim_function("gfx1100", "sim_increment")};
    for (int i = 0; i < THREADS; i++) RF_ASSERT_INT(pthread_create(&threads[i], NULL, increment_many, functions), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    struct rfsim_stats stats = {.struct_size = sizeof stats};
    rfsim_stats(&stats);
    RF_ASSERT_INT(stats.launches, THREADS * 61);
    RF_ASSERT_INT(stats.device_bytes, 0);
}

RF_TEST(sim_stream, threads_with_streams_of_their_own) {
    sim_begin("");
    many_threads();
}
RF_TEST(sim_stream, threads_with_streams_of_their_own_delayed) {
    sim_begin("delay=4/200us,shuffle=4");
    many_threads();
}

/* Work handed from stream to stream by events, with random delays: a chain of increments in the right order. */
RF_TEST(sim_stream, events_order_streams) {
    sim_begin("delay=77/500us");
    enum { STREAMS = 4, ROUNDS = 40, COUNT = 64 };
    hipStream_t streams[STREAMS];
    hipEvent_t events[STREAMS];
    uint32_t words[COUNT], count = COUNT, value = 0;
    void *memory = device_memory(sizeof words), *write_args[] = {&memory, &value, &count},
         *add_args[] = {&memory, &count};
    hipFunction_t write = sim_function("gfx1100", "sim_write"), add = sim_function("gfx1100", "sim_increment");
    for (int i = 0; i < STREAMS; i++) {
        streams[i] = sim_stream();
        RF_ASSERT_INT(hipEventCreateWithFlags(&events[i], 2), 0);
    }
    RF_ASSERT_INT(sim_launch(write, 1, COUNT, streams[0], write_args), 0);
    for (int round = 0; round < ROUNDS; round++) {
        int from = round % STREAMS, to = (round + 1) % STREAMS;
        RF_ASSERT_INT(hipEventRecord(events[from], streams[from]), 0);
        RF_ASSERT_INT(hipStreamWaitEvent(streams[to], events[from], 0), 0);
        RF_ASSERT_INT(sim_launch(add, 1, COUNT, streams[to], add_args), 0);
    }
    download(words, memory, sizeof words, streams[ROUNDS % STREAMS]);
    for (uint32_t i = 0; i < COUNT; i++) RF_ASSERT_INT(words[i], i + ROUNDS);
}

/* A clock that counts blocks and nothing else; kernels reach pinned memory by its address. */
RF_TEST(sim_stream, a_paced_clock_counts_blocks) {
    float milliseconds = 0;
    hipEvent_t events[2];
    uint32_t *pinned = NULL, count = 64;
    sim_begin("pace=250000");
    hipFunction_t add = sim_function("gfx1100", "sim_increment");
    RF_ASSERT_INT(hipHostMalloc((void **)&pinned, count * sizeof *pinned, 0), 0);
    for (uint32_t i = 0; i < count; i++) pinned[i] = i;
    void *args[] = {&pinned, &count};
    hipStream_t stream = sim_stream();
    for (int i = 0; i < 2; i++) RF_ASSERT_INT(hipEventCreateWithFlags(&events[i], 0), 0);
    for (unsigned blocks = 1; blocks < 5; blocks++) {
        RF_ASSERT_INT(hipEventRecord(events[0], stream), 0);
        RF_ASSERT_INT(sim_launch(add, blocks, 8, stream, args), 0);
        RF_ASSERT_INT(hipEventRecord(events[1], stream), 0);
        RF_ASSERT_INT(sim_finish(stream), 0);
        RF_ASSERT_INT(hipEventElapsedTime(&milliseconds, events[0], events[1]), 0);
        RF_EXPECT(milliseconds == 0.25f * (float)blocks);
    }
    RF_EXPECT_UINT(pinned[0], 4);
    RF_EXPECT_UINT(pinned[31], 31 + 1);
    RF_EXPECT_UINT(pinned[32], 32);
}

RF_TEST(sim_stream, a_full_stream_makes_a_launch_wait) {
    sim_begin("pending=8,fault=hipModuleLaunchKernel:1:work/hang");
    hipStream_t stream = sim_stream();
    uint32_t count = 0;
    void *memory = device_memory(64), *args[] = {&memory, &count};
    hipFunction_t add = sim_function("gfx1100", "sim_increment");
    for (int i = 0; i < 8; i++) RF_ASSERT_INT(sim_launch(add, 1, 1, stream, args), 0);
    /* the ninth would wait for ever; another stream's does not */
    RF_ASSERT_INT(sim_launch(add, 1, 1, sim_stream(), args), 0);
    rfsim_release_hangs();
    RF_ASSERT_INT(sim_launch(add, 1, 1, stream, args), 0);
    RF_ASSERT_INT(sim_finish(stream), 0);
}

/* ---- what only a sanitizer sees ---- */

static const char *racing_order; /* NULL: none */

static void child_race(void) {
    SIM_NEED(hipInit(0) == 0);
    hipStream_t streams[2];
    hipEvent_t event;
    void *memory;
    uint32_t count = 64;
    SIM_NEED(hipMalloc(&memory, 4096) == 0);
    void *args[] = {&memory, &count};
    SIM_NEED(hipEventCreateWithFlags(&event, 2) == 0);
    hipFunction_t add = sim_function("gfx1100", "sim_increment");
    for (int i = 0; i < 2; i++) SIM_NEED(hipStreamCreateWithPriority(&streams[i], 1, 0) == 0);
    SIM_NEED(sim_launch(add, 1, 64, streams[0], args) == 0);
    if (racing_order)
        SIM_NEED(hipEventRecord(event, streams[0]) == 0 && hipStreamWaitEvent(streams[1], event, 0) == 0);
    else
        usleep(100000); /* long over, but nothing says so: still a race */
    SIM_NEED(sim_launch(add, 1, 64, streams[1], args) == 0);
    SIM_NEED(sim_finish(streams[1]) == 0);
    SIM_NEED(sim_finish(streams[0]) == 0);
}

RF_TEST(sim_sanitizer, thread_sanitizer_sees_a_race_between_streams) {
#if !RF_UNDER_TSAN
    RF_SKIP("not built with thread sanitizer");
#endif
    racing_order = "event";
    sim_expect_exit(sim_child("", child_race), 0);
    racing_order = NULL;
    int status = sim_child("", child_race);
    RF_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 66);
}

static size_t beyond;

static void child_overflow(void) {
    SIM_NEED(hipInit(0) == 0);
    void *memory;
    SIM_NEED(hipMalloc(&memory, 4096) == 0);
    hipStream_t stream;
    SIM_NEED(hipStreamCreateWithPriority(&stream, 1, 0) == 0);
    uint64_t address = (uint64_t)(uintptr_t)memory + beyond;
    void *args[] = {&address};
    if (beyond == 0) SIM_NEED(hipFree(memory) == 0);
    SIM_NEED(sim_launch(sim_function("gfx1100", "sim_illegal"), 1, 1, stream, args) == 0);
    sim_finish(stream);
}

RF_TEST(sim_sanitizer, address_sanitizer_sees_overflow_and_use_after_free) {
#if !RF_UNDER_ASAN
    RF_SKIP("not built with address sanitizer");
#endif
    beyond = 4092;
    sim_expect_exit(sim_child("", child_overflow), 0);
    for (beyond = 4096;; beyond = 0) {
        int status = sim_child("", child_overflow);
        RF_ASSERT(WIFSIGNALED(status) || WEXITSTATUS(status) == 1 || WEXITSTATUS(status) > 120);
        if (beyond == 0) break;
    }
}

RF_TEST(sim_kernel, an_illegal_address_is_a_fault_of_the_device) {
#if RF_UNDER_ASAN || RF_UNDER_TSAN
    RF_SKIP("a sanitizer reports it instead");
#endif
    sim_begin("");
    hipStream_t stream = sim_stream();
    uint64_t address = 64;
    void *args[] = {&address};
    RF_ASSERT_INT(sim_launch(sim_function("gfx1100", "sim_illegal"), 1, 64, stream, args), 0);
    RF_ASSERT_INT(sim_finish(stream), SIM_ILLEGAL_ADDRESS);
    RF_ASSERT_CONTAINS(rfsim_last_message(), "touched address 0x40");
}
