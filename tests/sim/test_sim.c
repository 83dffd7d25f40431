/* The simulated driver's settings, memory figures, modules and traps. */
#include "sim_testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

/* ---- settings ---- */

static const char *malformed_part;

static void child_malformed(void) {
    SIM_NEED(hipInit(0) == SIM_INVALID_VALUE);
    SIM_NEED(strstr(rfsim_last_message(), malformed_part) != NULL);
    int count;
    SIM_NEED(hipGetDeviceCount(&count) == SIM_NOT_INITIALIZED);
}

RF_TEST(sim_settings, malformed_ones_are_refused_by_name) {
    static const struct {
        const char *settings, *part;
    } cases[] = {
        {"nonsense", "'nonsense' has no '='"},
        {"nonsense=1", "'nonsense' is no setting"},
        {"gpu0.devices=1", "'devices' is no setting of a device"},
        {"gpu16.vram=1G", "numbered 0 to 15"},
        {"devices=17", "devices=17"},
        {"devices=-1", "devices=-1"},
        {"devices=two", "devices=two"},
        {"vram=", "vram="},
        {"vram=12Gb", "vram=12Gb"},
        {"vram=-1", "vram=-1"},
        {"vram=0", "vram=0"},
        {"vram=99999999999TiB", "vram="},
        {"wave=48", "wave=48"},
        {"arch=rdna3", "arch=rdna3"},
        {"arch=gfx11000", "arch=gfx11000"},
        {"arch=sm_90a", "arch=sm_90a"},
        {"arch=sm_75", "arch=sm_75"},
        {"granularity=0", "granularity=0"},
        {"integrated=yes", "integrated=yes"},
        {"late=-5", "late=-5"},
        {"pace=fast", "pace=fast"},
        {"pci=0000:03:00", "pci=0000:03:00"},
        {"devices=2,gpu0.pci=0000:05:00.0,gpu1.pci=0000:05:00.0", "the same pci"},
        {"desktop@100=1G", "desktop@100=1G"},
        {"desktop@rand/1/0=1G-2G", "desktop@rand"},
        {"desktop@rand/1/5=2G-1G", "desktop@rand"},
        {"fault=hipMalloc:1", "ENTRY:N:KIND"},
        {"fault=hipMallok:1:2", "no such entry point"},
        {"fault=hipMalloc:0:2", "a number from 1"},
        {"fault=hipMalloc:1:0", "kinds are"},
        {"fault=hipMalloc:1:explode", "kinds are"},
        {"fault=hipMalloc:1:hang/3", "kinds are"},
        {"delay=5", "delay=5"},
        {"shuffle=x", "shuffle=x"},
        {"trap=maybe", "trap=maybe"},
        {"stale=2", "stale=2"},
        {"wgp=2", "wgp=2"},
        {"shared=/nonexistent/folder/file", "shared=/nonexistent"},
        {"sysfs=/proc/nowhere", "sysfs=/proc/nowhere"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        malformed_part = cases[i].part;
        RF_NOTE("%s", cases[i].settings);
        sim_expect_exit(sim_child(cases[i].settings, child_malformed), 0);
    }
}

RF_TEST(sim_settings, devices_are_as_configured) {
    sim_begin("devices=3;vram=8GiB;arch=gfx942;gpu1.arch=gfx1201;gpu1.vram=1.5G;gpu1.name=A Radeon\n"
              "gpu2.arch=gfx90a,gpu2.pci=0001:0a:01.2,gpu2.integrated=1");
    int count = 0, value = 0, device = -1;
    size_t bytes = 0;
    char text[64], properties[2048];
    RF_ASSERT_INT(hipGetDeviceCount(&count), 0);
    RF_ASSERT_INT(count, 3);
    RF_ASSERT_INT(hipDeviceGet(&device, 2), 0);
    RF_ASSERT_INT(device, 2);
    RF_ASSERT_INT(hipDeviceGet(&device, 3), SIM_INVALID_DEVICE);
    RF_ASSERT_INT(hipDeviceTotalMem(&bytes, 0), 0);
    RF_ASSERT_INT(bytes, (size_t)8 << 30);
    RF_ASSERT_INT(hipDeviceTotalMem(&bytes, 1), 0);
    RF_ASSERT_INT(bytes, (size_t)3 << 29);
    RF_ASSERT_INT(hipDeviceGetName(text, sizeof text, 1), 0);
    RF_ASSERT_TEXT(text, "A Radeon");
    RF_ASSERT_INT(hipDeviceGetPCIBusId(text, sizeof text, 2), 0);
    RF_ASSERT_TEXT(text, "0001:0a:01.2");
    RF_ASSERT_INT(hipDeviceGetAttribute(&value, SIM_ATTR_WARP, 0), 0);
    RF_ASSERT_INT(value, 64);
    RF_ASSERT_INT(hipDeviceGetAttribute(&value, SIM_ATTR_WARP, 1), 0);
    RF_ASSERT_INT(value, 32);
    RF_ASSERT_INT(hipDeviceGetAttribute(&value, SIM_ATTR_INTEGRATED, 2), 0);
    RF_ASSERT_INT(value, 1);
    RF_ASSERT_INT(hipDeviceGetAttribute(&value, SIM_ATTR_MAJOR, 1), 0);
    RF_ASSERT_INT(value, 12);
    RF_ASSERT_INT(hipDeviceGetAttribute(&value, 4242, 1), SIM_INVALID_VALUE);
    memset(properties, 0x55, sizeof properties);
    RF_ASSERT_INT(hipGetDeviceProperties((hipDeviceProp_t *)(void *)properties, 1), 0);
    RF_ASSERT_TEXT(properties + SIM_PROP5_ARCH, "gfx1201");
    RF_ASSERT_INT(properties[SIM_PROP5_BYTES], 0x55); /* not a byte more than the caller has */
    memset(properties, 0x55, sizeof properties);
    RF_ASSERT_INT(hipGetDevicePropertiesR0600(properties, 2), 0);
    RF_ASSERT_TEXT(properties + SIM_PROP6_ARCH, "gfx90a:sramecc+:xnack-");
    RF_ASSERT_INT(properties[SIM_PROP6_BYTES], 0x55);
    hipUUID a, b;
    RF_ASSERT_INT(hipDeviceGetUuid(&a, 0), 0);
    RF_ASSERT_INT(hipDeviceGetUuid(&b, 1), 0);
    RF_ASSERT(memcmp(a.bytes, b.bytes, 16) != 0);
}

RF_TEST(sim_settings, compute_units_in_wgp_mode) {
    static const int plain[] = {21, 10, 10}, physical[] = {21, 21, 10};
    sim_begin("devices=3,units=21,gpu1.wgp=plain,gpu2.wgp=1");
    for (int i = 0; i < 3; i++) {
        int value = 0;
        RF_ASSERT_INT(hipDeviceGetAttribute(&value, SIM_ATTR_UNITS, i), 0);
        RF_EXPECT_INT(value, plain[i]);
        RF_ASSERT_INT(hipDeviceGetAttribute(&value, SIM_ATTR_PHYSICAL_UNITS, i), 0);
        RF_EXPECT_INT(value, physical[i]);
    }
}

RF_TEST(sim_settings, no_devices_at_all) {
    sim_configure("devices=0");
    int count = -1;
    RF_ASSERT_INT(hipInit(0), SIM_NO_DEVICE);
    RF_ASSERT_INT(hipGetDeviceCount(&count), SIM_NO_DEVICE);
    void *pointer;
    RF_ASSERT_INT(hipMalloc(&pointer, 1), SIM_NO_DEVICE);
}

RF_TEST(sim_settings, each_thread_has_its_own_device) {
    sim_begin("devices=2");
    int device = -1;
    RF_ASSERT_INT(hipGetDevice(&device), 0);
    RF_ASSERT_INT(device, 0);
    RF_ASSERT_INT(hipSetDevice(1), 0);
    RF_ASSERT_INT(hipGetDevice(&device), 0);
    RF_ASSERT_INT(device, 1);
    RF_ASSERT_INT(hipSetDevice(2), SIM_INVALID_DEVICE);
    RF_ASSERT_INT(hipGetDevice(&device), 0);
    RF_ASSERT_INT(device, 1);
}

/* ---- memory figures ---- */

RF_TEST(sim_memory, figures_are_exact) {
    sim_begin("vram=1GiB,desktop=100MiB,context=50MiB,granularity=2MiB");
    size_t before = sim_free_bytes();
    RF_ASSERT_INT(before, (1024 - 100 - 50) * MIB);
    void *small, *large, *never = NULL;
    RF_ASSERT_INT(hipMalloc(&small, 1), 0);
    RF_ASSERT_INT(sim_free_bytes(), before - 2 * MIB);
    RF_ASSERT_INT(hipMalloc(&large, 64 * MIB + 1), 0);
    RF_ASSERT_INT(sim_free_bytes(), before - 68 * MIB);
    RF_ASSERT_INT(hipMalloc(&never, before - 66 * MIB), SIM_OUT_OF_MEMORY);
    RF_ASSERT(never == NULL);
    RF_ASSERT_INT(hipMalloc(&never, SIZE_MAX), SIM_OUT_OF_MEMORY);
    struct rfsim_stats stats = {.struct_size = sizeof stats};
    rfsim_stats(&stats);
    RF_ASSERT_INT(stats.device_bytes, 64 * MIB + 2);
    RF_ASSERT_INT(stats.charged_bytes, 68 * MIB);
    RF_ASSERT_INT(stats.device_count, 2);
    RF_ASSERT_INT(hipFree(large), 0);
    RF_ASSERT_INT(hipFree(large), SIM_INVALID_VALUE);
    RF_ASSERT_INT(hipFree(small), 0);
    RF_ASSERT_INT(sim_free_bytes(), before);
    /* All of it, to the last byte. */
    RF_ASSERT_INT(hipMalloc(&large, before), 0);
    RF_ASSERT_INT(sim_free_bytes(), 0);
    RF_ASSERT_INT(hipMalloc(&small, 1), SIM_OUT_OF_MEMORY);
    RF_ASSERT_INT(hipFree(large), 0);
    rfsim_stats(&stats);
    RF_ASSERT_INT(stats.device_bytes, 0);
}

RF_TEST(sim_memory, fresh_memory_is_garbage_that_the_seed_decides) {
    sim_begin("seed=7,vram=4GiB");
    hipStream_t stream = sim_stream();
    static const size_t sizes[] = {4096, 24 << 20}; /* of malloc, and mapped */
    for (size_t s = 0; s < 2; s++) {
        void *pointer;
        unsigned char *bytes = malloc(sizes[s]);
        RF_ASSERT_INT(hipMalloc(&pointer, sizes[s]), 0);
        RF_ASSERT_INT(hipMemcpyDtoHAsync(bytes, pointer, sizes[s], stream), 0);
        size_t zeros = 0;
        for (size_t i = 0; i < sizes[s]; i++) zeros += bytes[i] == 0;
        RF_ASSERT(zeros < sizes[s] / 64);
        /* and written memory stays written */
        RF_ASSERT_INT(hipMemsetD8Async(pointer, 0xab, sizes[s], stream), 0);
        RF_ASSERT_INT(hipMemcpyDtoHAsync(bytes, pointer, sizes[s], stream), 0);
        RF_ASSERT_INT(bytes[0], 0xab);
        RF_ASSERT_INT(bytes[sizes[s] - 1], 0xab);
        RF_ASSERT_INT(hipFree(pointer), 0);
        free(bytes);
    }
}

RF_TEST(sim_memory, sixteen_gigabytes_cost_nothing_until_written) {
    sim_begin("vram=64GiB");
    void *pointer;
    RF_ASSERT_INT(hipMalloc(&pointer, (size_t)48 << 30), 0);
    hipStream_t stream = sim_stream();
    RF_ASSERT_INT(hipMemsetD8Async((char *)pointer + ((size_t)48 << 30) - 64, 1, 64, stream), 0);
    RF_ASSERT_INT(sim_finish(stream), 0);
    RF_ASSERT_INT(hipFree(pointer), 0);
}

RF_TEST(sim_memory, freed_memory_is_reported_late) {
    sim_begin("vram=1GiB,context=0,late=3000");
    size_t before = sim_free_bytes();
    void *pointer;
    RF_ASSERT_INT(hipMalloc(&pointer, 900 * MIB), 0);
    RF_ASSERT_INT(hipFree(pointer), 0);
    RF_ASSERT_INT(sim_free_bytes(), before - 900 * MIB);
    /* but the process itself may have it again at once */
    RF_ASSERT_INT(hipMalloc(&pointer, 900 * MIB), 0);
    RF_ASSERT_INT(hipFree(pointer), 0);
    while (sim_free_bytes() != before) usleep(10000);
}

RF_TEST(sim_memory, the_desktop_grows_by_calls) {
    sim_begin("vram=1GiB,context=0,desktop=100MiB,desktop@5calls=300MiB,desktop@7calls=50MiB");
    /* hipInit was call 1 */
    RF_ASSERT_INT(sim_free_bytes(), 924 * MIB);
    RF_ASSERT_INT(sim_free_bytes(), 924 * MIB);
    RF_ASSERT_INT(sim_free_bytes(), 924 * MIB);
    RF_ASSERT_INT(sim_free_bytes(), 724 * MIB); /* the fifth */
    void *pointer;
    RF_ASSERT_INT(hipMalloc(&pointer, 800 * MIB), SIM_OUT_OF_MEMORY);
    RF_ASSERT_INT(sim_free_bytes(), 974 * MIB); /* the seventh */
    RF_ASSERT_INT(rfsim_call_count(), 7);
}

RF_TEST(sim_memory, the_desktop_grows_by_time) {
    sim_begin("vram=1GiB,context=0,desktop@50ms=300MiB");
    while (sim_free_bytes() != 724 * MIB) usleep(1000);
}

RF_TEST(sim_memory, the_desktop_walks_from_a_seed) {
    sim_begin("vram=1GiB,context=0,desktop@rand/3/2=100MiB-200MiB");
    size_t seen[8];
    bool moved = false;
    for (size_t i = 0; i < 8; i++) {
        seen[i] = sim_free_bytes();
        RF_ASSERT(seen[i] >= 824 * MIB && seen[i] <= 924 * MIB);
        moved = moved || seen[i] != seen[0];
    }
    RF_ASSERT(moved);
    RF_ASSERT_INT(seen[1], seen[0]); /* calls 2 and 3 see one level */
}

RF_TEST(sim_memory, a_test_sets_the_desktop) {
    void *pointer;
    struct rfsim_stats stats = {.struct_size = sizeof stats};
    sim_begin("vram=1GiB,context=0,desktop=100MiB");
    rfsim_stats(&stats);
    RF_EXPECT(stats.least_free == UINT64_MAX);
    rfsim_set_desktop(0, 300 * MIB);
    rfsim_set_desktop(1, 999 * MIB); /* there is no such device */
    RF_ASSERT_INT(sim_free_bytes(), 724 * MIB);
    RF_ASSERT_INT(hipMalloc(&pointer, 100 * MIB), 0);
    RF_ASSERT_INT(hipFree(pointer), 0);
    rfsim_set_desktop(0, 0);
    RF_ASSERT_INT(sim_free_bytes(), 1024 * MIB);
    RF_ASSERT_INT(hipMalloc(&pointer, 200 * MIB), 0);
    RF_ASSERT_INT(hipFree(pointer), 0);
    rfsim_stats(&stats);
    RF_EXPECT_UINT(stats.least_free, 624 * MIB);
}

RF_TEST(sim_memory, a_blind_driver_ignores_the_desktop) {
    sim_begin("vram=1GiB,context=0,desktop=900MiB,blind=1");
    RF_ASSERT_INT(sim_free_bytes(), 1024 * MIB);
    void *pointer;
    RF_ASSERT_INT(hipMalloc(&pointer, 200 * MIB), SIM_OUT_OF_MEMORY);
}

RF_TEST(sim_memory, a_context_that_does_not_fit) {
    sim_begin("vram=100MiB,context=200MiB");
    RF_ASSERT_INT(hipSetDevice(0), SIM_OUT_OF_MEMORY);
    void *pointer;
    RF_ASSERT_INT(hipMalloc(&pointer, 1), SIM_OUT_OF_MEMORY);
}

/* ---- several processes ---- */

static void temporary(char *path, size_t size, const char *what) {
    const char *folder = getenv("TMPDIR");
    snprintf(path, size, "%s/rfsim-%s-%d", folder ? folder : "/tmp", what, (int)getpid());
}

RF_TEST(sim_shared, memory_of_killed_processes_comes_back) {
    char path[256], settings[400];
    temporary(path, sizeof path, "shared");
    unlink(path);
    snprintf(settings, sizeof settings, "vram=1GiB,context=10MiB,shared=%s", path);
    sim_configure(settings);
    enum { CHILDREN = 6 };
    pid_t children[CHILDREN];
    int ready[2], lingers[2];
    RF_ASSERT_INT(pipe(ready), 0);
    RF_ASSERT_INT(pipe(lingers), 0);
    fflush(NULL);
    for (int i = 0; i < CHILDREN; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            void *pointer;
            char ok = hipInit(0) == 0 && hipMalloc(&pointer, 90 * MIB) == 0;
            alarm(60);
            if (i == 0 && fork() == 0) { /* a child of the child keeps files open, and does not count */
                pid_t me = getpid();
                if (write(lingers[1], &me, sizeof me) == sizeof me) pause();
                _exit(0);
            }
            if (write(ready[1], &ok, 1) != 1) _exit(1);
            pause();
            _exit(0);
        }
    }
    for (int i = 0; i < CHILDREN; i++) {
        char ok = 0;
        RF_ASSERT(read(ready[0], &ok, 1) == 1);
        RF_ASSERT_INT(ok, 1);
    }
    RF_ASSERT_INT(hipInit(0), 0);
    RF_ASSERT_INT(sim_free_bytes(), (1024 - 10 - CHILDREN * 100) * MIB);
    void *pointer;
    RF_ASSERT_INT(hipMalloc(&pointer, 600 * MIB), SIM_OUT_OF_MEMORY);
    for (int i = 0; i < CHILDREN; i++) {
        kill(children[i], SIGKILL);
        waitpid(children[i], NULL, 0);
        RF_EXPECT_INT(sim_free_bytes(), (1024 - 10 - (CHILDREN - 1 - i) * 100) * MIB);
    }
    RF_ASSERT_INT(hipMalloc(&pointer, 600 * MIB), 0);
    pid_t lingering;
    RF_ASSERT(read(lingers[0], &lingering, sizeof lingering) == sizeof lingering);
    kill(lingering, SIGKILL);
    for (int i = 0; i < 1000 && kill(lingering, 0) == 0; i++) usleep(1000);
    unlink(path);
}

static void child_take_and_exit(void) {
    void *pointer;
    SIM_NEED(hipInit(0) == 0);
    SIM_NEED(hipMalloc(&pointer, 100 * MIB) == 0);
}

RF_TEST(sim_shared, memory_of_ended_processes_comes_back_late) {
    char path[256], settings[400];
    temporary(path, sizeof path, "late");
    unlink(path);
    snprintf(settings, sizeof settings, "vram=1GiB,context=0,late=3000,shared=%s", path);
    sim_expect_exit(sim_child(settings, child_take_and_exit), 0);
    sim_begin(settings);
    RF_ASSERT_INT(sim_free_bytes(), 924 * MIB);
    while (sim_free_bytes() != 1024 * MIB) usleep(10000);
    unlink(path);
}

/* ---- the kernel's files ---- */

static void read_text(const char *root, const char *name, char *text, size_t size) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *file = fopen(path, "r");
    if (!file) RF_FAIL("no %s", path);
    size_t got = fread(text, 1, size - 1, file);
    fclose(file);
    while (got && (text[got - 1] == '\n' || text[got - 1] == ' ')) got--;
    text[got] = 0;
}

RF_TEST(sim_sysfs, shows_what_the_kernel_would) {
    char root[256], settings[512], text[2048], own[128];
    temporary(root, sizeof root, "sysfs");
    snprintf(settings, sizeof settings,
             "devices=2,vram=1GiB,context=64MiB,desktop=100MiB,sysfs=%s,gpu1.display=1,gpu1.arch=gfx90a", root);
    sim_begin(settings);
    read_text(root, "bus/pci/devices/0000:03:00.0/mem_info_vram_total", text, sizeof text);
    RF_ASSERT_TEXT(text, "1073741824");
    read_text(root, "bus/pci/devices/0000:03:00.0/mem_info_vram_used", text, sizeof text);
    RF_ASSERT_INT(strtoull(text, NULL, 10), 100 * MIB);
    RF_ASSERT_INT(hipSetDevice(0), 0);
    void *pointer;
    RF_ASSERT_INT(hipMalloc(&pointer, 3 * MIB), 0);
    read_text(root, "bus/pci/devices/0000:03:00.0/mem_info_vram_used", text, sizeof text);
    RF_ASSERT_INT(strtoull(text, NULL, 10), 168 * MIB);
    snprintf(own, sizeof own, "class/kfd/kfd/proc/%d/vram_4096", (int)getpid());
    read_text(root, own, text, sizeof text);
    RF_ASSERT_INT(strtoull(text, NULL, 10), 68 * MIB);
    RF_ASSERT_INT(hipFree(pointer), 0);
    read_text(root, "class/drm/card0/device/mem_info_vram_used", text, sizeof text);
    RF_ASSERT_INT(strtoull(text, NULL, 10), 164 * MIB);
    read_text(root, "bus/pci/devices/0000:03:00.0/drm/card0/card0-DP-1/status", text, sizeof text);
    RF_ASSERT_TEXT(text, "disconnected");
    read_text(root, "class/drm/card1/card1-DP-1/enabled", text, sizeof text);
    RF_ASSERT_TEXT(text, "enabled");
    read_text(root, "class/kfd/kfd/topology/nodes/1/properties", text, sizeof text);
    RF_ASSERT_CONTAINS(text, "gfx_target_version 110000\n");
    RF_ASSERT_CONTAINS(text, "location_id 768\n");
    read_text(root, "class/kfd/kfd/topology/nodes/2/properties", text, sizeof text);
    RF_ASSERT_CONTAINS(text, "gfx_target_version 90010\n");
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    RF_ASSERT_INT(system(command), 0);
}

/* ---- modules ---- */

RF_TEST(sim_module, only_images_that_fit) {
    sim_begin("arch=gfx1100");
    hipModule_t module = NULL;
    hipFunction_t function = NULL;
    char garbage[256] = "\177ELF but nothing else";
    RF_ASSERT_INT(hipModuleLoadData(&module, garbage), SIM_INVALID_IMAGE);
    RF_ASSERT_CONTAINS(rfsim_last_message(), "not an AMD code object");
    RF_ASSERT_INT(hipModuleLoadData(&module, sim_image("gfx942")), SIM_NO_BINARY);
    RF_ASSERT_CONTAINS(rfsim_last_message(), "for gfx942, the device is gfx1100");
    RF_ASSERT(module == NULL);
    RF_ASSERT_INT(hipModuleLoadData(&module, sim_image("gfx1100")), 0);
    RF_ASSERT_INT(hipModuleGetFunction(&function, module, "sim_write"), 0);
    RF_ASSERT_INT(hipModuleGetFunction(&function, module, "softmax_f32"), SIM_NOT_FOUND);
    int value = -1;
    RF_ASSERT_INT(hipFuncGetAttribute(&value, SIM_FUNC_MAX_THREADS, function), 0);
    RF_ASSERT_INT(value, 1024);
    RF_ASSERT_INT(hipModuleUnload(module), 0);
    RF_ASSERT_INT(hipModuleUnload(module), SIM_INVALID_HANDLE);
    RF_ASSERT_INT(hipModuleGetFunction(&function, module, "sim_write"), SIM_INVALID_HANDLE);
    RF_ASSERT_INT(sim_launch(function, 1, 1, NULL, NULL), SIM_INVALID_HANDLE);
}

/* With the name of an NVIDIA GPU the device takes PTX, for it or older ones. */
RF_TEST(sim_module, only_ptx_that_fits) {
    sim_begin("arch=sm_90");
    hipModule_t module = NULL;
    hipFunction_t function = NULL;
    int value = 0;
    RF_ASSERT_INT(hipModuleLoadData(&module, "//\n.version 8.0\n.entry sim_write(\n)\n"), SIM_INVALID_IMAGE);
    RF_ASSERT_INT(hipModuleLoadData(&module, "//\n.target sm_100\n.visible .entry sim_write(\n)\n"), SIM_NO_BINARY);
    RF_ASSERT_CONTAINS(rfsim_last_message(), "for sm_100, the device is sm_90");
    RF_ASSERT_INT(hipModuleLoadData(&module, "//\n.target sm_80a\n.visible .entry sim_write(\n)\n"), SIM_NO_BINARY);
    RF_ASSERT(module == NULL);
    static const char *const good[] = {
        "//\n.target sm_80\n.visible .entry sim_write(\n)\n", "//\n.target sm_90\n.visible .entry sim_write(\n)\n",
        "//\n.target sm_90a\n.visible .entry other(\n)\n.visible .entry sim_write(\n)\n"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        RF_ASSERT_INT(hipModuleLoadData(&module, good[i]), 0);
        RF_ASSERT_INT(hipModuleGetFunction(&function, module, "sim_write"), 0);
        RF_ASSERT_INT(hipModuleGetFunction(&function, module, "sim_writ"), SIM_NOT_FOUND);
        RF_ASSERT_INT(hipModuleUnload(module), 0);
    }
    RF_ASSERT_INT(hipDeviceGetAttribute(&value, SIM_ATTR_SHARED_PER_BLOCK, 0), 0);
    RF_ASSERT_INT(value, 227 << 10);
    RF_ASSERT_INT(hipDeviceGetAttribute(&value, SIM_ATTR_WARP, 0), 0);
    RF_ASSERT_INT(value, 32);
}

static void child_no_library(void) {
    hipModule_t module;
    SIM_NEED(hipInit(0) == 0);
    SIM_NEED(hipModuleLoadData(&module, sim_image("gfx1100")) == SIM_LIBRARY_FAILED);
    SIM_NEED(strstr(rfsim_last_message(), "/nonexistent.so") != NULL);
}

RF_TEST(sim_module, a_missing_kernel_library_is_named) {
    sim_expect_exit(sim_child("kernels=/nonexistent.so", child_no_library), 0);
}

/* ---- traps ---- */

RF_TEST(sim_trap, banned_calls_are_refused_and_remembered) {
    sim_begin("");
    RF_ASSERT_INT(rfsim_trap_count(), 0);
    RF_ASSERT_TEXT(rfsim_last_trap(), "");
    RF_ASSERT_INT(hipDeviceSynchronize(), SIM_NOT_SUPPORTED);
    RF_ASSERT_TEXT(rfsim_last_trap(), "hipDeviceSynchronize");
    RF_ASSERT_INT(hipDeviceReset(), SIM_NOT_SUPPORTED);
    RF_ASSERT_INT(hipMemcpy(NULL, NULL, 0, 0), SIM_NOT_SUPPORTED);
    RF_ASSERT_INT(rfsim_trap_count(), 3);
    RF_ASSERT_INT(rfsim_entry_count("hipDeviceReset"), 1);
    RF_ASSERT_CONTAINS(rfsim_last_message(), "hipMemcpy is banned");
}

static void child_trap(void) {
    hipInit(0);
    hipDeviceSynchronize();
}

static void child_reported(void) {
    void *pointer;
    hipInit(0);
    hipDeviceReset();
    SIM_NEED(hipMalloc(&pointer, 100) == 0);
}

RF_TEST(sim_trap, are_in_the_report_at_exit) {
    char path[256], settings[400], text[512];
    temporary(path, sizeof path, "report");
    unlink(path);
    snprintf(settings, sizeof settings, "report=%s", path);
    sim_expect_exit(sim_child(settings, child_reported), 0);
    read_text("", path, text, sizeof text);
    RF_ASSERT_CONTAINS(text, " calls 3 traps 1 faults 0 launches 0 device_bytes 100 pinned_bytes 0");
    unlink(path);
}

RF_TEST(sim_trap, or_end_the_process) {
    sim_expect_signal(sim_child("trap=abort", child_trap), SIGABRT);
}
