/* The same questions to a real driver and to the simulated one; the answers must agree.
 *
 *     driver_conformance --driver cuda [--library libcuda.so.1]
 *     driver_conformance --driver hip --library librfsim-hip.so --image sim_kernels.gfx1100.hsaco
 *     ... --compare FILE     compares with recorded answers; exit 1 if one differs
 *
 * Prints one line per question, "question: answer". Answers are words or codes (the numbers are the same in HIP and
 * CUDA), never times: whether a call blocks is found by asking, after it returned, whether the kernel that ran
 * meanwhile has ended. Standalone: it uses nothing of the library. Each group of questions runs in a process of its
 * own, forked before any driver is touched, so that one group's fault does not spoil the next.
 *
 * Exit status: 0 all answered (and equal), 1 a difference or a question unanswered, 77 no driver or no device. */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "driver_conformance.h"

/* ---- the driver, whichever it is ---- */

struct conformance_driver driver;

static const struct {
    size_t offset;
    const char *hip, *cuda;
} symbols[] = {
#define OFFSET(field) offsetof(struct conformance_driver, field)
    {OFFSET(init), "hipInit", "cuInit"},
    {OFFSET(device_count), "hipGetDeviceCount", "cuDeviceGetCount"},
    {OFFSET(device_get), "hipDeviceGet", "cuDeviceGet"},
    {OFFSET(attribute), "hipDeviceGetAttribute", "cuDeviceGetAttribute"},
    {OFFSET(mem_info), "hipMemGetInfo", "cuMemGetInfo_v2"},
    {OFFSET(mem_alloc), "hipMalloc", "cuMemAlloc_v2"},
    {OFFSET(mem_free), "hipFree", "cuMemFree_v2"},
    {OFFSET(host_alloc), "hipHostMalloc", "cuMemHostAlloc"},
    {OFFSET(host_free), "hipHostFree", "cuMemFreeHost"},
    {OFFSET(to_device), "hipMemcpyHtoDAsync", "cuMemcpyHtoDAsync_v2"},
    {OFFSET(from_device), "hipMemcpyDtoHAsync", "cuMemcpyDtoHAsync_v2"},
    {OFFSET(on_device), "hipMemcpyDtoDAsync", "cuMemcpyDtoDAsync_v2"},
    {OFFSET(fill), "hipMemsetD8Async", "cuMemsetD8Async"},
    {OFFSET(priorities), "hipDeviceGetStreamPriorityRange", "cuCtxGetStreamPriorityRange"},
    {OFFSET(stream_create), "hipStreamCreateWithPriority", "cuStreamCreateWithPriority"},
    {OFFSET(stream_destroy), "hipStreamDestroy", "cuStreamDestroy_v2"},
    {OFFSET(stream_wait), "hipStreamWaitEvent", "cuStreamWaitEvent"},
    {OFFSET(stream_query), "hipStreamQuery", "cuStreamQuery"},
    {OFFSET(event_create), "hipEventCreateWithFlags", "cuEventCreate"},
    {OFFSET(event_destroy), "hipEventDestroy", "cuEventDestroy_v2"},
    {OFFSET(event_record), "hipEventRecord", "cuEventRecord"},
    {OFFSET(event_query), "hipEventQuery", "cuEventQuery"},
    {OFFSET(event_elapsed), "hipEventElapsedTime", "cuEventElapsedTime"},
    {OFFSET(module_load), "hipModuleLoadData", "cuModuleLoadData"},
    {OFFSET(module_unload), "hipModuleUnload", "cuModuleUnload"},
    {OFFSET(function), "hipModuleGetFunction", "cuModuleGetFunction"},
    {OFFSET(function_attribute), "hipFuncGetAttribute", "cuFuncGetAttribute"},
    {OFFSET(function_set_attribute), "hipFuncSetAttribute", "cuFuncSetAttribute"},
    {OFFSET(capture_begin), "hipStreamBeginCapture", "cuStreamBeginCapture_v2"},
    {OFFSET(capture_end), "hipStreamEndCapture", "cuStreamEndCapture"},
    {OFFSET(is_capturing), "hipStreamIsCapturing", "cuStreamIsCapturing"},
    {OFFSET(graph_instantiate), "hipGraphInstantiateWithFlags", "cuGraphInstantiateWithFlags"},
    {OFFSET(graph_launch), "hipGraphLaunch", "cuGraphLaunch"},
    {OFFSET(graph_exec_destroy), "hipGraphExecDestroy", "cuGraphExecDestroy"},
    {OFFSET(graph_destroy), "hipGraphDestroy", "cuGraphDestroy"},
    {OFFSET(launch), "hipModuleLaunchKernel", "cuLaunchKernel"},
    {OFFSET(set_device), "hipSetDevice", NULL},
    {OFFSET(get_device), "hipGetDevice", NULL},
    {OFFSET(context_retain), NULL, "cuDevicePrimaryCtxRetain"},
    {OFFSET(context_set), NULL, "cuCtxSetCurrent"},
    {OFFSET(context_get), NULL, "cuCtxGetCurrent"},
};

/* The first four kernels of sim_kernels.hip. */
static const char ptx[] = ".version 7.0\n"
                          ".target sm_80\n"
                          ".address_size 64\n"
                          ".visible .entry sim_spin(.param .u64 ns) {\n"
                          "  .reg .u64 %limit, %start, %now, %gone;\n"
                          "  .reg .pred %again;\n"
                          "  ld.param.u64 %limit, [ns];\n"
                          "  mov.u64 %start, %globaltimer;\n"
                          "again:\n"
                          "  mov.u64 %now, %globaltimer;\n"
                          "  sub.u64 %gone, %now, %start;\n"
                          "  setp.lt.u64 %again, %gone, %limit;\n"
                          "  @%again bra again;\n"
                          "  ret;\n"
                          "}\n"
                          ".visible .entry sim_write(.param .u64 out, .param .u32 value, .param .u32 count) {\n"
                          "  .reg .u64 %base, %offset;\n"
                          "  .reg .u32 %i, %block, %size, %n, %v;\n"
                          "  .reg .pred %outside;\n"
                          "  ld.param.u64 %base, [out];\n"
                          "  ld.param.u32 %v, [value];\n"
                          "  ld.param.u32 %n, [count];\n"
                          "  mov.u32 %i, %tid.x;\n"
                          "  mov.u32 %block, %ctaid.x;\n"
                          "  mov.u32 %size, %ntid.x;\n"
                          "  mad.lo.u32 %i, %block, %size, %i;\n"
                          "  setp.ge.u32 %outside, %i, %n;\n"
                          "  @%outside ret;\n"
                          "  add.u32 %v, %v, %i;\n"
                          "  mul.wide.u32 %offset, %i, 4;\n"
                          "  add.u64 %base, %base, %offset;\n"
                          "  st.global.u32 [%base], %v;\n"
                          "  ret;\n"
                          "}\n"
                          ".visible .entry sim_increment(.param .u64 values, .param .u32 count) {\n"
                          "  .reg .u64 %base, %offset;\n"
                          "  .reg .u32 %i, %block, %size, %n, %v;\n"
                          "  .reg .pred %outside;\n"
                          "  ld.param.u64 %base, [values];\n"
                          "  ld.param.u32 %n, [count];\n"
                          "  mov.u32 %i, %tid.x;\n"
                          "  mov.u32 %block, %ctaid.x;\n"
                          "  mov.u32 %size, %ntid.x;\n"
                          "  mad.lo.u32 %i, %block, %size, %i;\n"
                          "  setp.ge.u32 %outside, %i, %n;\n"
                          "  @%outside ret;\n"
                          "  mul.wide.u32 %offset, %i, 4;\n"
                          "  add.u64 %base, %base, %offset;\n"
                          "  ld.global.u32 %v, [%base];\n"
                          "  add.u32 %v, %v, 1;\n"
                          "  st.global.u32 [%base], %v;\n"
                          "  ret;\n"
                          "}\n"
                          ".visible .entry sim_illegal(.param .u64 address) {\n"
                          "  .reg .u64 %base;\n"
                          "  .reg .u32 %one;\n"
                          "  ld.param.u64 %base, [address];\n"
                          "  mov.u32 %one, 1;\n"
                          "  st.global.u32 [%base], %one;\n"
                          "  ret;\n"
                          "}\n";

/* ---- answering ---- */

static int answer_pipe = -1;

void answer(const char *question, const char *format, ...) {
    char line[256];
    int length = snprintf(line, sizeof line, "%s: ", question);
    va_list args;
    va_start(args, format);
    length += vsnprintf(line + length, sizeof line - (size_t)length - 1, format, args);
    va_end(args);
    line[length++] = '\n';
    if (write(answer_pipe, line, (size_t)length) != length) _exit(3);
}

void answer_yes(const char *question, bool yes) {
    answer(question, "%s", yes ? "yes" : "no");
}

/* CUDA has a code of its own for PTX that does not parse; HIP has no PTX. */
void answer_code(const char *question, int code) {
    answer(question, "%d", code == 218 ? 200 : code);
}

void must(int code, const char *what) {
    if (code == 0) return;
    answer("broken off", "%s returned %d", what, code);
    _exit(3);
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- a device with what most questions need ---- */

struct conformance_device on;

static bool open_driver(void) {
    if (driver.init(0) != 0) return false;
    int count = 0;
    return driver.device_count(&count) == 0 && count > 0;
}

int make_current(void) {
    if (!driver.cuda) return driver.set_device(0);
    if (!driver.context) {
        int device;
        MUST(driver.device_get(&device, 0));
        MUST(driver.context_retain(&driver.context, device));
    }
    return driver.context_set(driver.context);
}

void set_up(void) {
    if (!open_driver()) _exit(77);
    MUST(make_current());
    MUST(driver.module_load(&on.module, driver.image));
    MUST(driver.function(&on.spin, on.module, "sim_spin"));
    MUST(driver.function(&on.write, on.module, "sim_write"));
    MUST(driver.function(&on.increment, on.module, "sim_increment"));
    MUST(driver.function(&on.illegal, on.module, "sim_illegal"));
    MUST(driver.stream_create(&on.busy, 1, 0));
    MUST(driver.stream_create(&on.other, 1, 0));
    MUST(driver.event_create(&on.spin_done, 2));
    MUST(driver.mem_alloc(&on.memory, MIB));
    void *pinned;
    MUST(driver.host_alloc(&pinned, MIB, 0));
    on.pinned = pinned;
    /* The first launch of a kernel may load it, and wait. */
    uint64_t no_time = 0;
    uint32_t zero = 0;
    void *spin_args[] = {&no_time}, *write_args[] = {&on.memory, &zero, &zero},
         *increment_args[] = {&on.memory, &zero};
    MUST(driver.launch(on.spin, 1, 1, 1, 1, 1, 1, 0, on.busy, spin_args, NULL));
    MUST(driver.launch(on.write, 1, 1, 1, 1, 1, 1, 0, on.other, write_args, NULL));
    MUST(driver.launch(on.increment, 1, 1, 1, 1, 1, 1, 0, on.other, increment_args, NULL));
    while (driver.stream_query(on.busy) == 600 || driver.stream_query(on.other) == 600) usleep(100);
}

static int launch_spin(void *stream, uint64_t ns) {
    void *args[] = {&ns};
    return driver.launch(on.spin, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL);
}

int launch_write(void *memory, uint32_t value, uint32_t count, void *stream) {
    void *args[] = {&memory, &value, &count};
    return driver.launch(on.write, (count + 255) / 256, 1, 1, 256, 1, 1, 0, stream, args, NULL);
}

int launch_increment(void *memory, uint32_t count, void *stream) {
    void *args[] = {&memory, &count};
    return driver.launch(on.increment, (count + 255) / 256, 1, 1, 256, 1, 1, 0, stream, args, NULL);
}

/* Keeps the stream 'busy' busy; spin_done tells how long. */
void begin_spin(void) {
    MUST(launch_spin(on.busy, SPIN_NS));
    MUST(driver.event_record(on.spin_done, on.busy));
    int code = driver.event_query(on.spin_done);
    if (code != 600) must(code ? code : -1, "the spin had ended before the question was asked");
}

bool spin_runs(void) {
    return driver.event_query(on.spin_done) == 600;
}

int finish(void *stream) {
    int code;
    while ((code = driver.stream_query(stream)) == 600) usleep(100);
    return code;
}

void end_spin(void) {
    MUST(finish(on.busy));
}

/* ---- the questions ---- */

static void ask_before_init(void) {
    void *pointer;
    int count;
    answer_code("allocating before initialisation", driver.mem_alloc(&pointer, 1));
    answer_code("counting devices before initialisation", driver.device_count(&count));
}

static void ask_order(void) {
    set_up();
    uint32_t *words = malloc(4096);
    MUST(launch_write(on.memory, 5, 1024, on.busy));
    for (int i = 0; i < 200; i++) MUST(launch_increment(on.memory, 1024, on.busy));
    MUST(driver.from_device(words, on.memory, 4096, on.busy));
    MUST(finish(on.busy));
    bool right = true;
    for (uint32_t i = 0; i < 1024; i++) right = right && words[i] == 205 + i;
    answer_yes("work of one stream runs in order", right);

    begin_spin();
    MUST(launch_write(on.memory, 9, 256, on.other));
    MUST(driver.from_device(on.pinned, on.memory, 1024, on.other));
    MUST(finish(on.other));
    bool overtook = spin_runs();
    end_spin();
    answer_yes("a stream overtakes another", overtook && on.pinned[3] == 12);

    begin_spin();
    MUST(driver.stream_wait(on.other, on.spin_done, 0));
    MUST(launch_increment(on.memory, 256, on.other));
    bool held = driver.stream_query(on.other) == 600;
    while (driver.stream_query(on.other) == 600 && spin_runs()) usleep(100);
    held = held && !spin_runs();
    MUST(finish(on.other));
    answer_yes("a stream waits for another's event", held);

    void *unused;
    MUST(driver.event_create(&unused, 2));
    answer_code("waiting for an event never recorded", driver.stream_wait(on.other, unused, 0));
    MUST(finish(on.other));

    begin_spin();
    MUST(driver.stream_wait(on.other, on.spin_done, 0));
    void *dying;
    MUST(driver.event_create(&dying, 2));
    MUST(driver.event_record(dying, on.busy));
    MUST(driver.stream_wait(on.other, dying, 0));
    answer_code("destroying an event that a stream waits for", driver.event_destroy(dying));
    end_spin();
    MUST(finish(on.other));

    begin_spin();
    MUST(driver.event_record(on.spin_done, on.other)); /* recorded anew elsewhere, where nothing runs */
    MUST(finish(on.other));
    answer_yes("an event means its last record", !spin_runs());
    end_spin();

    void *leaving;
    MUST(driver.stream_create(&leaving, 1, 0));
    on.pinned[0] = 0;
    MUST(launch_spin(leaving, SPIN_NS / 4));
    MUST(launch_write(on.memory, 77, 1, leaving));
    MUST(driver.from_device(on.pinned, on.memory, 4, leaving));
    void *left;
    MUST(driver.event_create(&left, 2));
    MUST(driver.event_record(left, leaving));
    MUST(driver.stream_destroy(leaving));
    int code;
    while ((code = driver.event_query(left)) == 600) usleep(100);
    answer_yes("work goes on after its stream was destroyed", code == 0 && on.pinned[0] == 77);

    void *blocking;
    MUST(driver.stream_create(&blocking, 0, 0));
    MUST(launch_spin(blocking, SPIN_NS));
    MUST(driver.event_record(on.spin_done, blocking));
    MUST(launch_increment(on.memory, 1, NULL));
    MUST(finish(NULL));
    answer_yes("the default stream waits for a blocking stream", !spin_runs());
    MUST(finish(blocking));
    begin_spin();
    MUST(launch_increment(on.memory, 1, NULL));
    MUST(finish(NULL));
    answer_yes("the default stream waits for a non-blocking stream", !spin_runs());
    end_spin();
    MUST(launch_spin(NULL, SPIN_NS));
    MUST(driver.event_record(on.spin_done, NULL));
    MUST(launch_increment(on.memory, 1, blocking));
    MUST(finish(blocking));
    answer_yes("a blocking stream waits for the default stream", !spin_runs());
    MUST(finish(NULL));
}

static void ask_events(void) {
    set_up();
    void *start, *end, *plain;
    float ms = -1;
    MUST(driver.event_create(&start, 0));
    MUST(driver.event_create(&end, 0));
    MUST(driver.event_create(&plain, 2));
    answer_code("querying an event never recorded", driver.event_query(plain));
    answer_code("time between events never recorded", driver.event_elapsed(&ms, start, end));
    MUST(driver.event_record(start, on.busy));
    MUST(launch_spin(on.busy, SPIN_NS));
    MUST(driver.event_record(end, on.busy));
    MUST(driver.event_record(plain, on.busy));
    answer_code("querying an event whose work runs", driver.event_query(end));
    answer_code("querying a stream whose work runs", driver.stream_query(on.busy));
    answer_code("time between events whose work runs", driver.event_elapsed(&ms, start, end));
    MUST(finish(on.busy));
    answer_code("querying an event whose work is done", driver.event_query(end));
    answer_code("querying a stream whose work is done", driver.stream_query(on.busy));
    MUST(driver.event_elapsed(&ms, start, end));
    answer_yes("events time the work between them", ms > 280 && ms < 5000);
    answer_code("time between events made without timing", driver.event_elapsed(&ms, start, plain));
    int least = -100, greatest = -100;
    answer_code("asking for the range of priorities", driver.priorities(&least, &greatest));
    answer_yes("the least priority is the larger number", least > greatest);
    void *stream;
    answer_code("a stream of the least priority", driver.stream_create(&stream, 1, least));
    answer_code("a stream of a priority out of range", driver.stream_create(&stream, 1, 1000));
}

static void ask_blocking(void) {
    set_up();
    void *pointer, *stream, *event, *module, *function, *host;
    size_t free_bytes, total_bytes;
    char *pageable = malloc(8 * MIB);
    void *large;
    memset(pageable, 1, 8 * MIB);
    MUST(driver.mem_alloc(&large, 8 * MIB));
    BLOCKS("allocating blocks", driver.mem_alloc(&pointer, MIB));
    BLOCKS("freeing blocks", driver.mem_free(pointer));
    BLOCKS("allocating pinned memory blocks", driver.host_alloc(&host, MIB, 0));
    BLOCKS("freeing pinned memory blocks", driver.host_free(host));
    BLOCKS("loading a module blocks", driver.module_load(&module, driver.image));
    BLOCKS("finding a function blocks", driver.function(&function, module, "sim_write"));
    BLOCKS("unloading a module blocks", driver.module_unload(module));
    BLOCKS("creating a stream blocks", driver.stream_create(&stream, 1, 0));
    BLOCKS("destroying an idle stream blocks", driver.stream_destroy(stream));
    BLOCKS("creating an event blocks", driver.event_create(&event, 2));
    BLOCKS("recording an event blocks", driver.event_record(event, on.other));
    BLOCKS("destroying an event blocks", driver.event_destroy(event));
    BLOCKS("asking for free memory blocks", driver.mem_info(&free_bytes, &total_bytes));
    BLOCKS("launching blocks", launch_increment(on.memory, 1, on.busy));
    BLOCKS("filling blocks", driver.fill(on.memory, 1, MIB, on.busy));
    BLOCKS("copying on the device blocks", driver.on_device(large, on.memory, MIB, on.busy));
    BLOCKS("a copy from pinned memory, same stream, blocks", driver.to_device(on.memory, on.pinned, MIB, on.busy));
    BLOCKS("a copy to pinned memory, same stream, blocks", driver.from_device(on.pinned, on.memory, MIB, on.busy));
    BLOCKS("a copy from pinned memory, other stream, blocks", driver.to_device(on.memory, on.pinned, MIB, on.other));
    BLOCKS("a small copy from pageable memory, same stream, blocks",
           driver.to_device(on.memory, pageable, 1024, on.busy));
    BLOCKS("a large copy from pageable memory, same stream, blocks",
           driver.to_device(large, pageable, 8 * MIB, on.busy));
    BLOCKS("a copy to pageable memory, same stream, blocks", driver.from_device(pageable, on.memory, MIB, on.busy));
    BLOCKS("a small copy to pageable memory, same stream, blocks",
           driver.from_device(pageable, on.memory, 64, on.busy));
    BLOCKS("a copy from pageable memory, other stream, blocks", driver.to_device(on.memory, pageable, MIB, on.other));
    BLOCKS("a copy to pageable memory, other stream, blocks", driver.from_device(pageable, on.memory, MIB, on.other));
    BLOCKS("making the device current blocks", make_current());
    MUST(driver.stream_create(&stream, 1, 0));
    MUST(launch_spin(stream, SPIN_NS));
    MUST(driver.event_record(on.spin_done, stream));
    MUST(driver.stream_destroy(stream));
    answer_yes("destroying a busy stream blocks", !spin_runs());
    while (spin_runs()) usleep(100);

    /* When is the host's memory read? */
    uint32_t source = 1, seen = 0;
    begin_spin();
    MUST(driver.to_device(on.memory, &source, 4, on.busy));
    source = 2;
    MUST(driver.from_device(on.pinned, on.memory, 4, on.busy));
    end_spin();
    seen = on.pinned[0];
    answer_yes("pageable memory may be reused after the call", seen == 1);
    on.pinned[64] = 1;
    begin_spin();
    MUST(driver.to_device(on.memory, on.pinned + 64, 4, on.busy));
    ((volatile uint32_t *)on.pinned)[64] = 2;
    MUST(driver.from_device(on.pinned, on.memory, 4, on.busy));
    end_spin();
    answer_yes("pinned memory is read late", on.pinned[0] == 2);
}

static void ask_pending(void) {
    set_up();
    unsigned count = 0;
    begin_spin();
    while (spin_runs() && count < 100000) {
        MUST(launch_increment(on.memory, 1, on.busy));
        count++;
    }
    end_spin();
    answer_yes("a launch blocks when very many are pending", count < 100000);
    answer_yes("that is at least 1000", count >= 1000);
    answer_yes("that is at most 1100", count <= 1100);
}

static void ask_codes(void) {
    set_up();
    void *pointer = NULL, *host = NULL, *module, *function;
    size_t free_bytes, total_bytes, free_after;
    int value;
    char *junk = calloc(1, 4096);
    char on_stack[16];
    uint32_t zero = 0;
    void *args[] = {&on.memory, &zero};
    memcpy(junk, "this is no image of any kind", 28);
    MUST(driver.mem_info(&free_bytes, &total_bytes));

    answer_code("freeing NULL", driver.mem_free(NULL));
    answer_code("freeing pinned NULL", driver.host_free(NULL));
    answer_code("allocating 0 bytes", driver.mem_alloc(&pointer, 0));
    answer_code("allocating 0 bytes pinned", driver.host_alloc(&host, 0, 0));
    answer_code("allocating more than there is", driver.mem_alloc(&pointer, total_bytes + MIB));
    answer_code("allocating 2^63 bytes", driver.mem_alloc(&pointer, (size_t)1 << 63));
    MUST(driver.mem_alloc(&pointer, 4 * MIB));
    answer_code("freeing inside an allocation", driver.mem_free((char *)pointer + 256));
    MUST(driver.mem_free(pointer));
    answer_code("freeing twice", driver.mem_free(pointer));
    answer_code("freeing host memory as device memory", driver.mem_free(on_stack));
    answer_code("freeing pageable memory as pinned", driver.host_free(on_stack));
    answer_code("freeing device memory as pinned", driver.host_free(on.memory));

    MUST(driver.mem_info(&free_bytes, &total_bytes));
    MUST(driver.mem_alloc(&pointer, 64 * MIB));
    MUST(driver.mem_info(&free_after, &total_bytes));
    answer_yes("64 MiB take 64 MiB of the free memory", free_bytes - free_after == 64 * MIB);
    MUST(driver.mem_free(pointer));
    MUST(driver.mem_info(&free_after, &total_bytes));
    answer_yes("freeing gives them back", free_bytes == free_after);
    MUST(driver.mem_alloc(&pointer, 64 * MIB + 1));
    MUST(driver.mem_info(&free_after, &total_bytes));
    answer_yes("64 MiB and a byte take 66 MiB", free_bytes - free_after == 66 * MIB);
    answer_yes("allocations are aligned to 256 bytes", ((uintptr_t)pointer & 255) == 0);
    MUST(driver.mem_free(pointer));

    answer_code("an unknown function", driver.function(&function, on.module, "no_such_kernel"));
    answer_code("a malformed image", driver.module_load(&module, junk));
    answer_code("launching no blocks", driver.launch(on.increment, 0, 1, 1, 1, 1, 1, 0, on.busy, args, NULL));
    answer_code("launching no threads", driver.launch(on.increment, 1, 1, 1, 0, 1, 1, 0, on.busy, args, NULL));
    answer_code("launching 2048 threads a block",
                driver.launch(on.increment, 1, 1, 1, 2048, 1, 1, 0, on.busy, args, NULL));
    answer_code("launching 64 x 64 threads a block",
                driver.launch(on.increment, 1, 1, 1, 64, 64, 1, 0, on.busy, args, NULL));
    answer_code("launching 65536 blocks in y",
                driver.launch(on.increment, 1, 65536, 1, 1, 1, 1, 0, on.busy, args, NULL));
    answer_code("launching with 1 MiB of shared memory",
                driver.launch(on.increment, 1, 1, 1, 1, 1, 1, (unsigned)MIB, on.busy, args, NULL));
    answer_code("launching a NULL function", driver.launch(NULL, 1, 1, 1, 1, 1, 1, 0, on.busy, args, NULL));
    answer_code("after these, a good launch", launch_increment(on.memory, 1, on.busy));
    answer_code("and its end", finish(on.busy));

    answer_code("copying 0 bytes", driver.to_device(on.memory, junk, 0, on.busy));
    answer_code("copying past the end of an allocation",
                driver.to_device((char *)on.memory + MIB - 4, on.pinned, MIB, on.busy));
    answer_code("filling 0 bytes", driver.fill(on.memory, 0, 0, on.busy));
    answer_code("a device that does not exist", driver.device_get(&value, 99));
    answer_code("attribute 9999 of a function", driver.function_attribute(&value, 9999, on.increment));
    MUST(driver.function_attribute(&value, 0, on.increment));
    answer_yes("a function takes at least 256 threads", value >= 256);
    MUST(driver.function_attribute(&value, 3, on.increment));
    answer("local bytes of a small function", "%d", value);
    MUST(driver.function_attribute(&value, 1, on.increment));
    answer("static shared bytes of a small function", "%d", value);
    MUST(finish(on.busy));
}

static void ask_stickiness(void) {
    set_up();
    uint64_t address = 0x10;
    void *args[] = {&address}, *pointer, *stream, *event, *module, *host;
    size_t free_bytes, total_bytes;
    int value, code;
    MUST(driver.event_create(&event, 2));
    MUST(launch_spin(on.busy, SPIN_NS / 4)); /* so that the fault comes after the record is submitted */
    answer_code("launching a kernel that will fault",
                driver.launch(on.illegal, 1, 1, 1, 1, 1, 1, 0, on.busy, args, NULL));
    MUST(driver.event_record(event, on.busy));
    while ((code = driver.event_query(event)) == 600) usleep(100);
    answer_code("the event behind it", code);
    answer_code("then the event again", driver.event_query(event));
    answer_code("then the stream", driver.stream_query(on.busy));
    answer_code("then another stream", driver.stream_query(on.other));
    answer_code("then allocating", driver.mem_alloc(&pointer, 4096));
    answer_code("then freeing", driver.mem_free(on.memory));
    answer_code("then asking for free memory", driver.mem_info(&free_bytes, &total_bytes));
    answer_code("then allocating pinned memory", driver.host_alloc(&host, 4096, 0));
    answer_code("then freeing pinned memory", driver.host_free(on.pinned));
    answer_code("then creating a stream", driver.stream_create(&stream, 1, 0));
    answer_code("then creating an event", driver.event_create(&pointer, 2));
    answer_code("then recording an event", driver.event_record(event, on.other));
    answer_code("then destroying an event", driver.event_destroy(event));
    answer_code("then destroying a stream", driver.stream_destroy(on.other));
    answer_code("then launching", launch_increment(on.memory, 1, on.busy));
    answer_code("then filling", driver.fill(on.memory, 0, 16, on.busy));
    answer_code("then loading a module", driver.module_load(&module, driver.image));
    answer_code("then unloading one", driver.module_unload(on.module));
    answer_code("then making the device current", make_current());
    answer_code("then counting devices", driver.device_count(&value));
    answer_code("then initialising", driver.init(0));
}

static void *ask_on_thread(void *unused) {
    (void)unused;
    bool same;
    if (driver.cuda) {
        void *context = NULL;
        same = driver.context_get(&context) == 0 && context != NULL;
    } else {
        int device = -1;
        same = driver.get_device(&device) == 0 && device == 1;
    }
    answer_yes("a new thread inherits the current device", same);
    MUST(make_current());
    void *pointer = NULL;
    answer_code("a new thread allocates on a device it made current", driver.mem_alloc(&pointer, 4096));
    answer_code("and uses a stream of another thread", launch_increment(on.memory, 1, on.busy));
    answer_code("and frees memory of another thread", driver.mem_free(on.memory));
    return NULL;
}

static void ask_threads(void) {
    set_up();
    pthread_t thread;
    if (!driver.cuda) MUST(driver.set_device(1)); /* so run it with RFSIM=devices=2 */
    pthread_create(&thread, NULL, ask_on_thread, NULL);
    pthread_join(thread, NULL);

    MUST(make_current());
    pid_t child = fork();
    if (child == 0) {
        void *pointer;
        answer_code("a forked child allocates", driver.mem_alloc(&pointer, 4096));
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
}

/* ---- running them ---- */

static void (*const groups[])(void) = {ask_before_init, ask_order,      ask_events,  ask_blocking, ask_pending,
                                       ask_codes,       ask_stickiness, ask_threads, ask_capture,  ask_graphs};

static bool load_driver(void) {
    void *library = dlopen(driver.library, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "driver_conformance: %s\n", dlerror());
        return false;
    }
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        const char *name = driver.cuda ? symbols[i].cuda : symbols[i].hip;
        void *symbol = name ? dlsym(library, name) : NULL;
        if (name && !symbol) {
            fprintf(stderr, "driver_conformance: %s has no %s\n", driver.library, name);
            return false;
        }
        memcpy((char *)&driver + symbols[i].offset, &symbol, sizeof symbol);
    }
    return true;
}

/* Reads what the group writes until it ends; kills it after two minutes. */
static int run_group(void (*ask)(void), char *text, size_t size, size_t *length) {
    int ends[2];
    if (pipe(ends) != 0) return 1;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        answer_pipe = ends[1];
        if (!load_driver()) _exit(77);
        ask();
        _exit(0);
    }
    close(ends[1]);
    int64_t deadline = now_ns() + INT64_C(120000000000);
    while (*length < size - 1) {
        struct pollfd wait = {.fd = ends[0], .events = POLLIN};
        int64_t left = (deadline - now_ns()) / 1000000;
        if (left <= 0 || poll(&wait, 1, (int)left) == 0) {
            fprintf(stderr, "driver_conformance: no answer within two minutes\n");
            kill(child, SIGKILL);
            break;
        }
        ssize_t got = read(ends[0], text + *length, size - 1 - *length);
        if (got <= 0) break;
        *length += (size_t)got;
    }
    close(ends[0]);
    text[*length] = 0;
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static char *read_file(const char *path, bool quiet) {
    FILE *file = fopen(path, "rb");
    if (!file) {
        if (!quiet) fprintf(stderr, "driver_conformance: %s: %s\n", path, strerror(errno));
        return NULL;
    }
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    char *text = size >= 0 ? malloc((size_t)size + 1) : NULL;
    size_t got = text ? fread(text, 1, (size_t)size, file) : 0;
    fclose(file);
    if (text) text[got] = 0;
    return text;
}

/* Line by line; says each that differs. */
static int compare(char *actual, char *expected) {
    int differences = 0;
    char *a_rest = actual, *e_rest = expected;
    for (;;) {
        char *a = a_rest ? strsep(&a_rest, "\n") : NULL, *e = e_rest ? strsep(&e_rest, "\n") : NULL;
        if (!a && !e) return differences;
        if (!a || !e || strcmp(a, e)) {
            printf("expected '%s', got '%s'\n", e ? e : "(nothing)", a ? a : "(nothing)");
            differences++;
        }
    }
}

int main(int argc, char **argv) {
    const char *kind = NULL, *library = NULL, *image = NULL, *expected_path = NULL;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--driver") == 0)
            kind = argv[i + 1];
        else if (strcmp(argv[i], "--library") == 0)
            library = argv[i + 1];
        else if (strcmp(argv[i], "--image") == 0)
            image = argv[i + 1];
        else if (strcmp(argv[i], "--compare") == 0)
            expected_path = argv[i + 1];
        else
            kind = NULL, i = argc;
    }
    if (!kind || (strcmp(kind, "cuda") && strcmp(kind, "hip")) ||
        (strcmp(kind, "hip") == 0 && (!library || !image))) {
        fprintf(stderr, "usage: driver_conformance --driver cuda|hip [--library PATH] [--image CODE_OBJECT] "
                        "[--compare FILE]\n");
        return 2;
    }
    driver.cuda = strcmp(kind, "cuda") == 0;
    driver.library = library ? library : "libcuda.so.1";
    driver.image = driver.cuda ? strdup(ptx) : read_file(image, false);
    if (!driver.image) return 1;
    static char text[65536];
    size_t length = 0;
    int result = 0;
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        int status = run_group(groups[i], text, sizeof text, &length);
        if (status == 77) {
            fprintf(stderr, "driver_conformance: no driver or no device\n");
            return 77;
        }
        if (status != 0) {
            fprintf(stderr, "driver_conformance: group %zu ended with status %d\n", i, status);
            result = 1;
        }
    }
    if (!expected_path) {
        fputs(text, stdout);
        return result;
    }
    char *expected = read_file(expected_path, false);
    if (!expected) return 1;
    return compare(text, expected) ? 1 : result;
}
