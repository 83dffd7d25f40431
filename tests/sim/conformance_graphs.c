/* Questions about capturing a stream and running what was captured. */
#include "driver_conformance.h"

#include <pthread.h>

enum { GLOBAL, THREAD_LOCAL, RELAXED };

/* What the device holds at the start of on.memory. */
static uint32_t first_word(void) {
    MUST(driver.from_device(on.pinned, on.memory, 4, on.other));
    MUST(finish(on.other));
    return on.pinned[0];
}

/* An executable graph that adds 1 to the first words. */
static void *capture_increment(uint32_t count) {
    void *graph, *executable;
    MUST(driver.capture_begin(on.busy, RELAXED));
    MUST(launch_increment(on.memory, count, on.busy));
    MUST(driver.capture_end(on.busy, &graph));
    MUST(driver.graph_instantiate(&executable, graph, 0));
    MUST(driver.graph_destroy(graph));
    return executable;
}

static void *end_on_thread(void *unused) {
    (void)unused;
    void *graph = NULL;
    MUST(make_current());
    answer_code("ending a relaxed capture on another thread", driver.capture_end(on.busy, &graph));
    return NULL;
}

static void *end_local_on_thread(void *unused) {
    (void)unused;
    void *graph = NULL;
    MUST(make_current());
    answer_code("ending a thread-local capture on another thread", driver.capture_end(on.busy, &graph));
    return NULL;
}

void ask_capture(void) {
    set_up();
    void *graph = NULL, *executable = NULL, *pointer, *event, *host;
    pthread_t thread;
    int status = -1;
    answer_code("beginning to capture the default stream", driver.capture_begin(NULL, RELAXED));
    answer_code("ending a capture that was not begun", driver.capture_end(on.busy, &graph));
    MUST(launch_write(on.memory, 10, 256, on.busy));
    MUST(finish(on.busy));
    answer_code("beginning a capture", driver.capture_begin(on.busy, RELAXED));
    answer_code("beginning it once more", driver.capture_begin(on.busy, RELAXED));
    MUST(driver.is_capturing(on.busy, &status));
    answer("the state of a stream that is captured", "%d", status);
    answer_code("launching into it", launch_increment(on.memory, 256, on.busy));
    answer_code("filling into it", driver.fill((char *)on.memory + 2048, 9, 64, on.busy));
    answer_code("copying on the device into it",
                driver.on_device((char *)on.memory + 4096, on.memory, 1024, on.busy));
    answer_code("copying from pinned memory into it",
                driver.to_device((char *)on.memory + 8192, on.pinned + 256, 4, on.busy));
    answer_code("copying to pinned memory into it", driver.from_device(on.pinned + 512, on.memory, 8, on.busy));
    answer_code("allocating meanwhile, relaxed", driver.mem_alloc(&pointer, MIB));
    answer_code("allocating pinned memory meanwhile, relaxed", driver.host_alloc(&host, 4096, 0));
    answer_code("freeing meanwhile, relaxed", driver.mem_free(pointer));
    answer_code("freeing pinned memory meanwhile, relaxed", driver.host_free(host));
    answer_code("querying an event of before meanwhile, relaxed", driver.event_query(on.spin_done));
    answer_code("querying another stream meanwhile, relaxed", driver.stream_query(on.other));
    answer_yes("what is captured runs", first_word() != 10);
    answer_code("ending the capture", driver.capture_end(on.busy, &graph));
    MUST(driver.is_capturing(on.busy, &status));
    answer("the state of the stream then", "%d", status);
    answer_code("instantiating the graph", driver.graph_instantiate(&executable, graph, 0));
    answer_code("destroying the graph", driver.graph_destroy(graph));
    answer_yes("none of this ran anything", first_word() == 10);
    int code = 0;
    for (int i = 0; i < 100 && !code; i++) {
        on.pinned[256] = 1000 + (uint32_t)i;
        code = driver.graph_launch(executable, i % 2 ? on.busy : on.other);
        if (!code) code = finish(i % 2 ? on.busy : on.other);
    }
    answer_code("running it 100 times, on two streams", code);
    answer_yes("the launch ran each time", on.pinned[512] == 110 && on.pinned[513] == 111 && first_word() == 110);
    MUST(driver.from_device(on.pinned, on.memory, 16384, on.other));
    MUST(finish(on.other));
    answer_yes("so did the fill and the copy", on.pinned[512] == 0x09090909 && on.pinned[1024] == 110);
    answer_yes("pinned memory is read when it runs", on.pinned[2048] == 1099);
    answer_code("destroying the executable graph", driver.graph_exec_destroy(executable));

    MUST(driver.capture_begin(on.busy, RELAXED));
    MUST(driver.capture_end(on.busy, &graph));
    answer_code("instantiating a graph of nothing", driver.graph_instantiate(&executable, graph, 0));
    answer_code("running it", driver.graph_launch(executable, on.busy));
    MUST(finish(on.busy));

    /* What spoils a capture. */
    MUST(driver.capture_begin(on.busy, RELAXED));
    MUST(launch_increment(on.memory, 1, on.busy));
    answer_code("querying a stream that is captured", driver.stream_query(on.busy));
    MUST(driver.is_capturing(on.busy, &status));
    answer("the state of the stream after that", "%d", status);
    answer_code("launching into it after that", launch_increment(on.memory, 1, on.busy));
    answer_code("ending the capture after that", driver.capture_end(on.busy, &graph));
    answer_yes("there is a graph then", graph != NULL);
    answer_code("launching after that", launch_increment(on.memory, 1, on.busy));
    MUST(finish(on.busy));
    MUST(driver.event_create(&event, 2));
    MUST(driver.event_record(event, on.other));
    MUST(finish(on.other));
    MUST(driver.capture_begin(on.busy, RELAXED));
    answer_code("waiting in a capture for an event outside", driver.stream_wait(on.busy, event, 0));
    answer_code("ending that capture", driver.capture_end(on.busy, &graph));
    MUST(driver.capture_begin(on.busy, THREAD_LOCAL));
    answer_code("allocating meanwhile, thread-local", driver.mem_alloc(&pointer, MIB));
    answer_code("ending the capture after that", driver.capture_end(on.busy, &graph));
    MUST(driver.capture_begin(on.busy, RELAXED));
    answer_code("recording an event in a capture", driver.event_record(event, on.busy));
    answer_code("querying it", driver.event_query(event));
    driver.capture_end(on.busy, &graph);

    MUST(driver.capture_begin(on.busy, RELAXED));
    pthread_create(&thread, NULL, end_on_thread, NULL);
    pthread_join(thread, NULL);
    MUST(driver.capture_begin(on.busy, THREAD_LOCAL));
    pthread_create(&thread, NULL, end_local_on_thread, NULL);
    pthread_join(thread, NULL);
    driver.capture_end(on.busy, &graph);

    answer_code("setting a function's dynamic shared memory", driver.function_set_attribute(on.increment, 8, 16384));
    answer_code("setting attribute 9999 of a function", driver.function_set_attribute(on.increment, 9999, 1));
}

void ask_graphs(void) {
    set_up();
    void *graph, *executable, *doomed;
    MUST(launch_write(on.memory, 0, 256, on.busy));
    executable = capture_increment(256);
    MUST(driver.graph_launch(executable, on.busy));
    MUST(finish(on.busy));
    BLOCKS("beginning a capture blocks", driver.capture_begin(on.other, RELAXED));
    BLOCKS("capturing a launch blocks", launch_increment(on.memory, 256, on.other));
    BLOCKS("ending a capture blocks", driver.capture_end(on.other, &graph));
    BLOCKS("instantiating a graph blocks", driver.graph_instantiate(&doomed, graph, 0));
    BLOCKS("destroying a graph blocks", driver.graph_destroy(graph));
    BLOCKS("launching a graph, other stream, blocks", driver.graph_launch(doomed, on.other));
    MUST(finish(on.other));
    BLOCKS("destroying an executable graph blocks", driver.graph_exec_destroy(doomed));
    BLOCKS("launching a graph, same stream, blocks", driver.graph_launch(executable, on.busy));
    answer_yes("it ran behind that", first_word() == 3);
    /* Capturing a stream that has work to do. */
    begin_spin();
    MUST(driver.capture_begin(on.busy, RELAXED));
    answer_code("querying an event behind work of before, in a capture", driver.event_query(on.spin_done));
    MUST(launch_increment(on.memory, 256, on.busy));
    MUST(driver.capture_end(on.busy, &graph));
    end_spin();
    MUST(driver.graph_instantiate(&doomed, graph, 0));
    begin_spin();
    MUST(driver.graph_launch(doomed, on.busy));
    answer_code("destroying an executable graph that is queued", driver.graph_exec_destroy(doomed));
    end_spin();
    answer_yes("it ran all the same", first_word() == 4);
    unsigned count = 0;
    for (; count < 1000; count++) MUST(driver.graph_launch(executable, on.busy));
    MUST(finish(on.busy));
    answer_yes("a thousand runs in a row", first_word() == 1004);
    /* A fault in a graph. */
    uint64_t address = 0x10;
    void *args[] = {&address};
    MUST(driver.capture_begin(on.busy, RELAXED));
    answer_code("capturing a launch that will fault",
                driver.launch(on.illegal, 1, 1, 1, 1, 1, 1, 0, on.busy, args, NULL));
    MUST(driver.capture_end(on.busy, &graph));
    answer_code("instantiating it", driver.graph_instantiate(&doomed, graph, 0));
    MUST(driver.graph_launch(doomed, on.busy));
    answer_code("its end", finish(on.busy));
    answer_code("then beginning a capture", driver.capture_begin(on.other, RELAXED));
    answer_code("then running a graph", driver.graph_launch(executable, on.other));
    answer_code("then destroying an executable graph", driver.graph_exec_destroy(executable));
}
