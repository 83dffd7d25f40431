/* Budget, floor, pool and ledger: what is granted, what is refused, and that the ledger agrees with the driver. */
#include "gpu_testing.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/device.h"

/* Allocates until an allocation is refused; returns how much was granted. */
static uint64_t creep(struct gpu *gpu, uint64_t each, struct rf_buffer **buffers, size_t most, size_t *count) {
    uint64_t sum = 0;
    RF_PARAMS(struct rf_buffer_params, params);
    params.bytes = each;
    for (*count = 0; *count < most; ++*count, sum += each) {
        rf_status status = rf_buffer_create_safe(gpu->device, &params, &buffers[*count]);
        if (status == RF_E_BUDGET) break;
        RF_ASSERT_OK(status);
        struct rf_memory_info info = gpu_memory(gpu);
        RF_ASSERT(info.held_bytes <= info.budget_bytes);
        RF_ASSERT(info.free_bytes >= info.floor_bytes);
    }
    return sum;
}

RF_TEST(budget, creep_stays_within_every_spec, .tags = "sim") {
    static const struct {
        const char *spec;
        uint64_t most; /* by hand: free0 is 8 GiB - 1 GiB desktop - 64 MiB context */
    } cases[] = {
        {"70%", (7 * GIB - 64 * MIB) * 7 / 10},
        {"10%", (7 * GIB - 64 * MIB) / 10},
        {"1GiB", GIB},
        {"100%", 7 * GIB - 64 * MIB},
        {"keep=2GiB", 5 * GIB - 64 * MIB},
        {"keep=50%", (7 * GIB - 64 * MIB) / 2},
        {"90%,512MiB,keep=1GiB", 512 * MIB},
        {"90%,keep=5GiB", 2 * GIB - 64 * MIB},
    };
    static struct rf_buffer *buffers[4096];
    gpu_need_simulated("vram=8GiB,desktop=1GiB,context=64MiB");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gpu gpu = {0};
        size_t count;
        gpu_open(&gpu, cases[i].spec);
        uint64_t sum = creep(&gpu, 30 * MIB + 17, buffers, 4096, &count);
        struct rf_memory_info info = gpu_memory(&gpu);
        RF_NOTE("%s: %zu buffers, %llu MiB", cases[i].spec, count, (unsigned long long)(sum / MIB));
        RF_EXPECT(sum <= cases[i].most);
        RF_EXPECT(gpu_sim_device_bytes() <= cases[i].most);
        RF_EXPECT(info.held_bytes <= info.budget_bytes && info.budget_bytes <= cases[i].most + 1);
        RF_EXPECT_INT(info.held_bytes - info.driver_bytes, gpu_sim_device_bytes());
        /* The budget is not too small either: at most one more allocation would have fitted. */
        RF_EXPECT(sum + 4 * 32 * MIB > cases[i].most - cases[i].most / 8);
        RF_ASSERT_CONTAINS(rf_error_text(), "refused 32 MiB");
        while (count) RF_ASSERT_OK(rf_buffer_destroy(&buffers[--count]));
        gpu_close(&gpu);
    }
}

RF_TEST(budget, creep_by_the_kernels_figure, .gpu = true) {
    /* The second witness: the bytes that the kernel or NVML reports for this process. */
    static struct rf_buffer *buffers[4096];
    char rfsim[700], sysfs[700];
    if (gpu_simulated()) {
        snprintf(rfsim, sizeof rfsim, "vram=16GiB,context=300MiB,sysfs=%s/sys", gpu_folder());
        gpu_set_sim(rfsim);
    }
    snprintf(sysfs, sizeof sysfs, "RF_SYSFS=%s%s", gpu_simulated() ? gpu_folder() : "/sys",
             gpu_simulated() ? "/sys" : "");
    struct gpu gpu = {0};
    size_t count;
    gpu_make_runtime(&gpu, (const char *const[]){sysfs, NULL});
    gpu_open(&gpu, "4GiB");
    uint64_t sum = creep(&gpu, 100 * MIB + 1, buffers, 4096, &count);
    struct rf_memory_info info = gpu_memory(&gpu);
    RF_NOTE("asked %llu MiB, ledger %llu MiB, the kernel's figure %llu MiB, budget %llu MiB",
            (unsigned long long)(sum / MIB), (unsigned long long)(info.held_bytes / MIB),
            (unsigned long long)(info.process_bytes / MIB), (unsigned long long)(info.budget_bytes / MIB));
    RF_EXPECT(info.held_bytes <= 4 * GIB && sum > 3 * GIB);
    RF_EXPECT(info.process_bytes <= 4 * GIB);
    while (count) RF_ASSERT_OK(rf_buffer_destroy(&buffers[--count]));
    gpu_close(&gpu);
}

RF_TEST(budget, a_driver_that_grows_stays_within, .tags = "sim") {
    static struct rf_buffer *buffers[4096], *small[256];
    char rfsim[700], sysfs[700];
    snprintf(rfsim, sizeof rfsim, "vram=16GiB,context=300MiB,grows=2MiB,sysfs=%s/sys", gpu_folder());
    snprintf(sysfs, sizeof sysfs, "RF_SYSFS=%s/sys", gpu_folder());
    gpu_need_simulated(rfsim);
    struct gpu gpu = {0};
    size_t count, small_count;
    gpu_make_runtime(&gpu, (const char *const[]){sysfs, NULL});
    gpu_open(&gpu, "4GiB");
    uint64_t sum = creep(&gpu, 100 * MIB + 1, buffers, 4096, &count);
    creep(&gpu, 2 * MIB + 1, small, 256, &small_count);
    RF_ASSERT_CONTAINS(rf_error_text(), "that the driver took for itself meanwhile");
    struct rf_memory_info info = gpu_memory(&gpu);
    RF_NOTE("asked %llu MiB and %zu more buffers, ledger %llu KiB, the kernel's figure %llu KiB",
            (unsigned long long)(sum / MIB), small_count, (unsigned long long)(info.held_bytes >> 10),
            (unsigned long long)(info.process_bytes >> 10));
    RF_EXPECT(info.process_bytes > info.held_bytes && info.process_bytes <= 4 * GIB);
    while (small_count) RF_ASSERT_OK(rf_buffer_destroy(&small[--small_count]));
    while (count) RF_ASSERT_OK(rf_buffer_destroy(&buffers[--count]));
    gpu_close(&gpu);
}

/* The same while a queue is stuck: the driver's free would wait for it, so what is refused waits for a quiet moment,
 * and counts as held until then. */
RF_TEST(budget, what_is_refused_late_is_freed_at_a_quiet_moment, .tags = "sim") {
    static struct rf_buffer *buffers[4096], *small[256];
    char rfsim[700], sysfs[700];
    snprintf(rfsim, sizeof rfsim, "vram=16GiB,context=300MiB,grows=2MiB,sysfs=%s/sys", gpu_folder());
    snprintf(sysfs, sizeof sysfs, "RF_SYSFS=%s/sys", gpu_folder());
    gpu_need_simulated(rfsim);
    struct gpu gpu = {0};
    struct gpu_hold hold = {0};
    size_t count, small_count;
    gpu_make_runtime(&gpu, (const char *const[]){sysfs, NULL});
    gpu_open(&gpu, "4GiB");
    gpu_hold_prepare(&gpu, &hold);
    RF_ASSERT_OK(gpu_hold_launch(&gpu, &hold, gpu.queue));
    creep(&gpu, 100 * MIB + 1, buffers, 4096, &count);
    struct rf_memory_info before = gpu_memory(&gpu);
    creep(&gpu, 2 * MIB + 1, small, 256, &small_count);
    RF_ASSERT_CONTAINS(rf_error_text(), "that the driver took for itself meanwhile");
    struct rf_memory_info stuck = gpu_memory(&gpu);
    RF_EXPECT(stuck.pool_bytes > before.pool_bytes);
    RF_EXPECT_INT(stuck.held_bytes, stuck.driver_bytes + stuck.used_bytes + stuck.pool_bytes);
    RF_EXPECT(stuck.held_bytes <= 4 * GIB);
    gpu_hold_end(&gpu, &hold);
    RF_ASSERT_OK(rf_queue_wait(gpu.queue, RF_TIMEOUT_DEFAULT));
    RF_ASSERT_OK(rf_device_trim(gpu.device, RF_TIMEOUT_DEFAULT));
    struct rf_memory_info after = gpu_memory(&gpu);
    RF_EXPECT_INT(after.pool_bytes, before.pool_bytes); /* the rest of a slab that the hold uses */
    RF_EXPECT_INT(after.held_bytes, stuck.held_bytes - (stuck.pool_bytes - after.pool_bytes));
    gpu_hold_finish(&hold);
    while (small_count) RF_ASSERT_OK(rf_buffer_destroy(&small[--small_count]));
    while (count) RF_ASSERT_OK(rf_buffer_destroy(&buffers[--count]));
    gpu_close(&gpu);
}

RF_TEST(budget, the_drivers_own_bytes_are_charged) {
    char rfsim[700], sysfs[700];
    snprintf(rfsim, sizeof rfsim, "vram=4GiB,context=300MiB,sysfs=%s/sys", gpu_folder());
    snprintf(sysfs, sizeof sysfs, "RF_SYSFS=%s/sys", gpu_folder());
    gpu_need_simulated(rfsim);
    struct gpu gpu = {0};
    gpu_make_runtime(&gpu, (const char *const[]){sysfs, NULL});
    gpu_open(&gpu, "1GiB");
    struct rf_memory_info info = gpu_memory(&gpu);
    RF_EXPECT_INT(info.free0_bytes, 4 * GIB);
    /* With the memory for kernels that are not loaded yet. */
    RF_EXPECT(info.driver_bytes > 300 * MIB && info.driver_bytes <= 310 * MIB);
    RF_EXPECT_INT(info.held_bytes, info.driver_bytes);
    RF_EXPECT(info.available_bytes <= 724 * MIB);
    gpu_close(&gpu);
    gpu_make_runtime(&gpu, (const char *const[]){sysfs, NULL});
    RF_EXPECT_STATUS(gpu_try_open(&gpu, "100MiB"), RF_E_BUDGET);
    RF_ASSERT_CONTAINS(rf_error_text(), "driver's own");
    rf_runtime_destroy(&gpu.runtime);
}

/* ---- figures that cannot be ---- */

RF_TEST(budget, a_driver_that_claims_too_much_is_refused) {
    gpu_need_simulated("vram=16GiB,claims=4194304TiB");
    struct gpu gpu = {0};
    gpu_make_runtime(&gpu, NULL);
    RF_EXPECT_STATUS(gpu_try_open(&gpu, NULL), RF_E_DRIVER);
    RF_EXPECT_CONTAINS(rf_error_text(), "the driver says that 4 EiB of 4 EiB are free on a GPU of 16 GiB");
    rf_runtime_destroy(&gpu.runtime);
}

RF_TEST(budget, a_driver_that_claims_too_much_is_capped_by_the_kernel) {
    char rfsim[700], sysfs[700];
    snprintf(rfsim, sizeof rfsim, "vram=16GiB,desktop=2GiB,claims=4194304TiB,sysfs=%s/sys", gpu_folder());
    snprintf(sysfs, sizeof sysfs, "RF_SYSFS=%s/sys", gpu_folder());
    gpu_need_simulated(rfsim);
    struct gpu gpu = {0};
    gpu_make_runtime(&gpu, (const char *const[]){sysfs, NULL});
    gpu_open(&gpu, "70%");
    struct rf_memory_info info = gpu_memory(&gpu);
    RF_EXPECT_INT(info.total_bytes, 16 * GIB);
    RF_EXPECT_INT(info.free0_bytes, 14 * GIB);
    RF_EXPECT_INT(info.budget_bytes, 14 * GIB * 7 / 10);
    RF_EXPECT(info.free_bytes <= 14 * GIB);
    const char *first = strstr(gpu_log(), "the driver says that 4 EiB of 4 EiB are free");
    RF_ASSERT(first != NULL);
    RF_EXPECT(!strstr(first + 1, "the driver says that")); /* once */
    gpu_close(&gpu);
}

/* The kernel's tree says 8 GiB, the driver 16. */
RF_TEST(budget, a_gpu_has_what_the_kernel_says) {
    static const struct {
        const char *name, *text;
    } files[] = {{"mem_info_vram_total", "8589934592\n"}, {"mem_info_vram_used", "1073741824\n"}};
    char path[700], sysfs[700], command[800];
    gpu_need_simulated("vram=16GiB");
    snprintf(command, sizeof command, "mkdir -p %s/tree/bus/pci/devices/0000:03:00.0", gpu_folder());
    RF_ASSERT_INT(system(command), 0);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        snprintf(path, sizeof path, "%s/tree/bus/pci/devices/0000:03:00.0/%s", gpu_folder(), files[i].name);
        FILE *file = fopen(path, "we");
        RF_ASSERT(file != NULL);
        fputs(files[i].text, file);
        fclose(file);
    }
    snprintf(sysfs, sizeof sysfs, "RF_SYSFS=%s/tree", gpu_folder());
    struct gpu gpu = {0};
    gpu_make_runtime(&gpu, (const char *const[]){sysfs, NULL});
    RF_PARAMS(struct rf_device_info, about);
    RF_ASSERT_OK(rf_device_info_at(gpu.runtime, 0, &about));
    RF_EXPECT_INT(about.total_bytes, 8 * GIB);
    RF_EXPECT_INT(about.free_bytes, 7 * GIB);
    gpu_open(&gpu, "70%");
    struct rf_memory_info info = gpu_memory(&gpu);
    RF_EXPECT_INT(info.total_bytes, 8 * GIB);
    RF_EXPECT_INT(info.budget_bytes, 7 * GIB * 7 / 10);
    RF_EXPECT_CONTAINS(gpu_log(), "by the kernel's figures");
    gpu_close(&gpu);
}

RF_TEST(budget, a_growing_desktop_is_left_its_floor) {
    /* The desktop grows from 1 to 6 of 8 GiB at some call while we allocate. */
    gpu_need_simulated("vram=8GiB,desktop=1GiB,desktop@600calls=6GiB,context=0");
    static struct rf_buffer *buffers[4096];
    struct gpu gpu = {.modules = "fill"}; /* each kernel costs some calls */
    size_t count;
    gpu_open(&gpu, "70%");
    uint64_t sum = 0;
    RF_PARAMS(struct rf_buffer_params, params);
    params.bytes = 16 * MIB;
    params.direct = true;
    struct rf_memory_info info;
    for (count = 0; count < 4096; count++) {
        uint64_t before = gpu_memory(&gpu).free_bytes;
        rf_status status = rf_buffer_create_safe(gpu.device, &params, &buffers[count]);
        if (status == RF_E_BUDGET) break;
        RF_ASSERT_OK(status);
        info = gpu_memory(&gpu);
        /* An allocation of ours never broke the floor: the memory that was free before it was enough for both. */
        RF_ASSERT(before >= info.floor_bytes + params.bytes || info.free_bytes >= info.floor_bytes);
        sum += params.bytes;
    }
    info = gpu_memory(&gpu);
    RF_EXPECT(sum < info.budget_bytes); /* it stopped short of the budget because of the floor */
    RF_ASSERT_CONTAINS(rf_error_text(), "must stay free");
    while (count) RF_ASSERT_OK(rf_buffer_destroy(&buffers[--count]));
    gpu_close(&gpu);
}

RF_TEST(budget, set_budget_shrinks_and_grows, .gpu = true) {
    struct gpu gpu = {0};
    gpu_open(&gpu, "50%");
    struct rf_memory_info before = gpu_memory(&gpu);
    char spec[64];
    snprintf(spec, sizeof spec, "%llu", (unsigned long long)(before.held_bytes + 8 * MIB));
    RF_ASSERT_OK(rf_device_set_budget(gpu.device, spec));
    RF_PARAMS(struct rf_buffer_params, params);
    struct rf_buffer *buffer = NULL;
    params.bytes = 16 * MIB;
    RF_EXPECT_STATUS(rf_buffer_create_safe(gpu.device, &params, &buffer), RF_E_BUDGET);
    RF_ASSERT_OK(rf_device_set_budget(gpu.device, "50%"));
    RF_ASSERT_OK(rf_buffer_create_safe(gpu.device, &params, &buffer));
    RF_EXPECT_STATUS(rf_device_set_budget(gpu.device, "nonsense"), RF_E_SYNTAX);
    RF_EXPECT_STATUS(rf_device_set_budget(gpu.device, NULL), RF_E_INVALID);
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    gpu_close(&gpu);
}

RF_TEST(budget, a_second_lease_gets_only_the_rest, .gpu = true) {
    /* Two runtimes stand for two processes: each has a lease of its own. */
    gpu_need_own_leases();
    struct gpu first = {0}, second = {0};
    gpu_make_runtime(&first, NULL);
    gpu_open(&first, "1GiB");
    gpu_make_runtime(&second, NULL);
    RF_EXPECT_STATUS(gpu_try_open(&second, "1GiB"), RF_E_BUDGET);
    RF_ASSERT_CONTAINS(rf_error_text(), "other");
    RF_ASSERT_OK(gpu_try_open(&second, "3GiB"));
    struct rf_memory_info info = gpu_memory(&second);
    RF_EXPECT(info.budget_bytes <= 2 * GIB);
    RF_ASSERT_OK(rf_queue_destroy(&second.queue));
    RF_ASSERT_OK(rf_device_close(&second.device));
    rf_runtime_destroy(&second.runtime);
    gpu_close(&first);
}

RF_TEST(budget, a_lent_part_serves_a_child, .gpu = true) {
    gpu_need_own_leases();
    struct gpu parent = {0}, child = {0};
    char spec[128];
    gpu_make_runtime(&parent, NULL);
    gpu_open(&parent, "2GiB");
    RF_ASSERT_OK(rf_device_lend(parent.device, GIB, spec, sizeof spec));
    RF_EXPECT_INT(gpu_memory(&parent).lent_bytes, GIB);
    /* What is lent counts as held: it cannot be allocated, promised or lent a second time. */
    struct rf_memory_info lender = gpu_memory(&parent);
    uint64_t rest = lender.budget_bytes - lender.held_bytes - GIB, most = 0;
    char second[128];
    bool yes = true;
    RF_PARAMS(struct rf_buffer_params, wanted);
    struct rf_buffer *buffer = NULL;
    wanted.bytes = rest + 2 * MIB;
    wanted.direct = true;
    RF_EXPECT_STATUS(rf_buffer_create_safe(parent.device, &wanted, &buffer), RF_E_BUDGET);
    RF_ASSERT_OK(rf_can_allocate(parent.device, wanted.bytes, &yes));
    RF_EXPECT(!yes);
    RF_ASSERT_OK(rf_safe_alloc_size(parent.device, &most));
    RF_EXPECT(most <= rest && lender.available_bytes <= rest);
    RF_EXPECT_STATUS(rf_device_lend(parent.device, rest + 1, second, sizeof second), RF_E_BUDGET);
    gpu_make_runtime(&child, NULL);
    RF_ASSERT_OK(gpu_try_open(&child, spec));
    RF_EXPECT_INT(gpu_memory(&child).budget_bytes, GIB);
    RF_EXPECT_STATUS(rf_device_reclaim(parent.device, spec), RF_E_BUSY);
    RF_ASSERT_OK(rf_queue_destroy(&child.queue));
    RF_ASSERT_OK(rf_device_close(&child.device));
    rf_runtime_destroy(&child.runtime);
    /* A budget of its own lies inside the part that RF_BUDGET lends. */
    char option[160];
    snprintf(option, sizeof option, "RF_BUDGET=%s", spec);
    gpu_make_runtime(&child, (const char *const[]){option, NULL});
    RF_ASSERT_OK(gpu_try_open(&child, "768MiB"));
    RF_EXPECT_INT(gpu_memory(&child).budget_bytes, 768 * MIB);
    RF_ASSERT_OK(rf_queue_destroy(&child.queue));
    RF_ASSERT_OK(rf_device_close(&child.device));
    rf_runtime_destroy(&child.runtime);
    RF_ASSERT_OK(rf_device_reclaim(parent.device, spec));
    RF_EXPECT_INT(gpu_memory(&parent).lent_bytes, 0);
    RF_ASSERT_OK(rf_buffer_create_safe(parent.device, &wanted, &buffer)); /* what came back can be allocated */
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    RF_EXPECT_STATUS(rf_device_lend(parent.device, 64 * GIB * 64, spec, sizeof spec), RF_E_BUDGET);
    gpu_close(&parent);
}

RF_TEST(pool, reuses_in_queue_order, .gpu = true) {
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    RF_PARAMS(struct rf_buffer_params, params);
    params.bytes = 3 * MIB;
    params.queue = gpu.queue;
    struct rf_buffer *buffer = NULL;
    struct gpu_hold hold;
    gpu_hold_prepare(&gpu, &hold);
    RF_ASSERT_OK(rf_buffer_create_safe(gpu.device, &params, &buffer));
    uint64_t address = rf_buffer_address(buffer), held = gpu_memory(&gpu).held_bytes;
    RF_ASSERT_OK(gpu_hold_launch(&gpu, &hold, gpu.queue));
    RF_ASSERT_OK(rf_fill(gpu.queue, buffer, 0, 3 * MIB, 1));
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    /* The same queue may reuse it at once, another queue only when the work is done. */
    struct rf_queue *other_queue = NULL;
    RF_ASSERT_OK(rf_queue_create(gpu.device, NULL, &other_queue));
    struct rf_buffer *other = NULL;
    params.queue = other_queue;
    RF_ASSERT_OK(rf_buffer_create_safe(gpu.device, &params, &other));
    RF_EXPECT(rf_buffer_address(other) != address);
    params.queue = gpu.queue;
    RF_ASSERT_OK(rf_buffer_create_safe(gpu.device, &params, &buffer));
    RF_EXPECT(rf_buffer_address(buffer) == address);
    gpu_hold_end(&gpu, &hold);
    RF_ASSERT_OK(rf_queue_wait(gpu.queue, RF_TIMEOUT_DEFAULT));
    gpu_hold_finish(&hold);
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    RF_ASSERT_OK(rf_buffer_destroy(&other));
    RF_ASSERT_OK(rf_device_trim(gpu.device, RF_TIMEOUT_DEFAULT));
    RF_EXPECT_INT(gpu_memory(&gpu).pool_bytes, 0);
    RF_EXPECT(gpu_memory(&gpu).held_bytes < held);
    RF_ASSERT_OK(rf_queue_destroy(&other_queue));
    gpu_close(&gpu);
}

RF_TEST(pool, idle_memory_makes_room_for_what_is_asked, .gpu = true) {
    struct gpu gpu = {0};
    gpu_open(&gpu, "1GiB");
    struct rf_memory_info info = gpu_memory(&gpu);
    uint64_t half = (info.budget_bytes - info.held_bytes) / 16;
    struct rf_buffer *some[12];
    for (int i = 0; i < 12; i++) some[i] = gpu_buffer(&gpu, half);
    for (int i = 0; i < 12; i++) RF_ASSERT_OK(rf_buffer_destroy(&some[i]));
    info = gpu_memory(&gpu);
    RF_ASSERT(info.pool_bytes >= 16 * MIB);
    /* More than the budget has beside what the pool keeps. */
    uint64_t large_bytes = info.budget_bytes - info.held_bytes + info.pool_bytes / 2;
    struct rf_buffer *large = gpu_buffer(&gpu, large_bytes);
    RF_EXPECT_INT(gpu_memory(&gpu).pool_bytes, 0);
    RF_ASSERT_OK(rf_buffer_destroy(&large));
    gpu_close(&gpu);
}

RF_TEST(pool, books_survive_random_use, .gpu = true, .timeout_ms = 600000) {
    struct gpu gpu = {0};
    gpu_open(&gpu, "2GiB");
    struct rf_random random = {rf_test_seed() + 1};
    enum { SLOTS = 64 };
    struct rf_buffer *slots[SLOTS] = {0};
    unsigned char marks[SLOTS];
    for (int round = 0; round < 2000; round++) {
        size_t at = rf_random_below(&random, SLOTS);
        if (slots[at]) {
            unsigned char got[2];
            uint64_t bytes = rf_buffer_bytes(slots[at]);
            RF_ASSERT_OK(rf_copy_from_device_safe(gpu.queue, &got[0], slots[at], 0, 1));
            RF_ASSERT_OK(rf_copy_from_device_safe(gpu.queue, &got[1], slots[at], bytes - 1, 1));
            RF_ASSERT_INT(got[0], marks[at]);
            RF_ASSERT_INT(got[1], marks[at]);
            RF_ASSERT_OK(rf_buffer_destroy(&slots[at]));
        } else {
            RF_PARAMS(struct rf_buffer_params, params);
            params.bytes = 1 + rf_random_below(&random, rf_random_below(&random, 4) ? 100 * KIB : 3 * MIB);
            params.direct = rf_random_below(&random, 8) == 0;
            params.queue = rf_random_below(&random, 2) ? gpu.queue : NULL;
            RF_ASSERT_OK(rf_buffer_create_safe(gpu.device, &params, &slots[at]));
            marks[at] = (unsigned char)rf_random_next(&random);
            RF_ASSERT_OK(rf_fill(gpu.queue, slots[at], 0, params.bytes, marks[at]));
        }
        if (gpu_simulated()) {
            struct rf_memory_info info = gpu_memory(&gpu);
            RF_ASSERT_INT(info.held_bytes - info.driver_bytes, gpu_sim_device_bytes());
        }
    }
    for (int i = 0; i < SLOTS; i++) RF_ASSERT_OK(rf_buffer_destroy(&slots[i]));
    gpu_close(&gpu);
}

RF_TEST(pool, is_trimmed_when_a_desktop_takes_the_floor) {
    /* The desktop grows while the pool holds idle memory; the next call notices. */
    gpu_need_simulated("vram=4GiB,context=0,desktop=0");
    struct gpu gpu = {0};
    gpu_open(&gpu, "70%");
    struct rf_buffer *buffers[8], *small = gpu_buffer(&gpu, 100);
    for (int i = 0; i < 8; i++) buffers[i] = gpu_buffer(&gpu, 32 * MIB);
    for (int i = 0; i < 8; i++) RF_ASSERT_OK(rf_buffer_destroy(&buffers[i]));
    RF_EXPECT(gpu_memory(&gpu).pool_bytes >= 200 * MIB);
    gpu_sim_set_desktop(3 * GIB);
    usleep(150000); /* calls look at the floor every 100 ms */
    RF_ASSERT_OK(rf_buffer_destroy(&small));
    struct rf_memory_info info = gpu_memory(&gpu);
    RF_EXPECT(info.free_bytes < info.floor_bytes);
    RF_EXPECT_INT(info.pool_bytes, 0);
    RF_EXPECT_INT(gpu_sim_device_bytes(), 0);
    gpu_close(&gpu);
}

/* Memory that the driver does not take back stays in the books: it is held, and called abandoned. */
RF_TEST(ledger, memory_that_cannot_be_given_back_stays_held) {
    gpu_need_simulated("vram=4GiB,context=0,fault=hipFree:1:801");
    struct gpu gpu = {.modules = "fill"};
    gpu_open(&gpu, "1GiB");
    RF_ASSERT_INT(gpu_sim_entry_calls("hipFree"), 0);
    RF_PARAMS(struct rf_buffer_params, params);
    params.bytes = 512 * MIB;
    params.direct = true;
    struct rf_buffer *buffer = NULL, *second = NULL;
    RF_ASSERT_OK(rf_buffer_create_safe(gpu.device, &params, &buffer));
    uint64_t held = gpu_memory(&gpu).held_bytes;
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    RF_ASSERT_OK(rf_device_trim(gpu.device, RF_TIMEOUT_DEFAULT));
    RF_ASSERT_INT(gpu_sim_entry_calls("hipFree"), 1);
    struct rf_memory_info info = gpu_memory(&gpu);
    RF_EXPECT_INT(info.held_bytes, held);
    RF_EXPECT_INT(info.abandoned_bytes, 512 * MIB);
    RF_EXPECT_INT(info.used_bytes, 0);
    RF_EXPECT_INT(gpu_sim_device_bytes(), 512 * MIB);
    RF_ASSERT_CONTAINS(gpu_log(), "could not be given back");
    /* The budget has no room for it a second time. */
    params.bytes = 600 * MIB;
    RF_EXPECT_STATUS(rf_buffer_create_safe(gpu.device, &params, &second), RF_E_BUDGET);
    RF_ASSERT_OK(rf_queue_destroy(&gpu.queue));
    (void)rf_device_close(&gpu.device);
    rf_runtime_destroy(&gpu.runtime);
}

/* Locks the first byte of each file in a folder until this process ends, as a process does that decides on a lease.
 */
static bool lock_every_file(const char *folder) {
    struct dirent *entry;
    int count = 0;
    DIR *list = opendir(folder);
    while (list && (entry = readdir(list))) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
        int fd = openat(dirfd(list), entry->d_name, O_RDWR | O_CLOEXEC);
        if (fd >= 0 && fcntl(fd, F_SETLK, &lock) == 0) count++;
    }
    return count > 0;
}

/* No memory is granted while somebody else of this user decides on the same free bytes. */
RF_TEST(budget, a_grant_waits_for_the_lock_of_the_leases) {
    char option[700];
    gpu_need_simulated("vram=4GiB,context=0");
    snprintf(option, sizeof option, "RF_LEASE_DIR=%s/leases", gpu_folder());
    struct gpu gpu = {.modules = "fill"};
    gpu_make_runtime(&gpu, (const char *const[]){option, "RF_TIMEOUT_MS=1000", NULL});
    gpu_open(&gpu, "1GiB");
    int decide[2], done[2];
    char byte = 0;
    RF_ASSERT(pipe(decide) == 0 && pipe(done) == 0);
    pid_t child = fork();
    RF_ASSERT(child >= 0);
    if (!child) {
        close(done[1]);
        byte = lock_every_file(option + strlen("RF_LEASE_DIR=")) ? 'y' : 'n';
        _exit(write(decide[1], &byte, 1) == 1 && read(done[0], &byte, 1) == 0 ? 0 : 1);
    }
    close(done[0]);
    RF_ASSERT_INT(read(decide[0], &byte, 1), 1);
    RF_ASSERT_INT(byte, 'y');
    RF_PARAMS(struct rf_buffer_params, params);
    params.bytes = 4 * MIB;
    params.direct = true;
    struct rf_buffer *buffer = NULL;
    uint64_t calls = gpu_sim_entry_calls("hipMalloc");
    RF_EXPECT_STATUS(rf_buffer_create_safe(gpu.device, &params, &buffer), RF_E_BUSY);
    RF_EXPECT_INT(gpu_sim_entry_calls("hipMalloc"), calls);
    close(done[1]);
    RF_ASSERT_INT(waitpid(child, NULL, 0), child);
    RF_ASSERT_OK(rf_buffer_create_safe(gpu.device, &params, &buffer));
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    gpu_close(&gpu);
}

RF_TEST(budget, an_integrated_gpu_draws_on_the_host_too) {
    gpu_need_simulated("vram=8GiB,context=0,integrated=1");
    struct gpu gpu = {0};
    gpu_make_runtime(&gpu, (const char *const[]){"RF_HOST_BUDGET=256MiB", NULL});
    gpu_open(&gpu, "4GiB");
    RF_PARAMS(struct rf_buffer_params, params);
    struct rf_buffer *fits = gpu_buffer(&gpu, 128 * MIB), *refused = NULL;
    params.bytes = 200 * MIB;
    RF_EXPECT_STATUS(rf_buffer_create_safe(gpu.device, &params, &refused), RF_E_NO_MEMORY);
    RF_ASSERT_CONTAINS(rf_error_text(), "RF_HOST_BUDGET");
    bool yes = true;
    RF_ASSERT_OK(rf_can_allocate(gpu.device, 200 * MIB, &yes));
    RF_EXPECT(!yes);
    RF_ASSERT_OK(rf_buffer_destroy(&fits));
    RF_ASSERT_OK(rf_device_trim(gpu.device, RF_TIMEOUT_DEFAULT));
    RF_ASSERT_OK(rf_buffer_create_safe(gpu.device, &params, &refused));
    RF_ASSERT_OK(rf_buffer_destroy(&refused));
    gpu_close(&gpu);
}

static bool count_one(void *user, const struct rf_allocation *a) {
    struct {
        uint64_t bytes;
        int count, line;
        const char *label;
    } *seen = user;
    if (a->kind == RF_ALLOC_BUFFER) {
        seen->bytes += a->bytes;
        seen->count++;
        seen->line = a->site.line;
        RF_EXPECT(strstr(a->site.file, "test_memory.c") != NULL);
        RF_EXPECT_INT(strcmp(a->label, "weights"), 0);
        RF_EXPECT(a->age_ns >= 0);
    }
    return true;
}

RF_TEST(ledger, knows_every_allocation_and_its_site, .gpu = true) {
    struct gpu gpu = {0};
    gpu_open(&gpu, NULL);
    RF_PARAMS(struct rf_buffer_params, params);
    struct rf_buffer *buffer = NULL;
    params.bytes = 1;
    params.label = "weights";
    RF_ASSERT_OK(rf_buffer_create_safe(gpu.device, &params, &buffer));
    int line = __LINE__ - 1;
    struct {
        uint64_t bytes;
        int count, line;
        const char *label;
    } seen = {0};
    RF_ASSERT_OK(rf_device_ledger(gpu.device, count_one, &seen));
    RF_EXPECT_INT(seen.count, 1);
    RF_EXPECT_INT(seen.bytes, 1);
    RF_EXPECT_INT(seen.line, line);
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    gpu_close(&gpu);
}

/* ---- pinned memory as a buffer ---- */

RF_TEST(pinned_buffer, is_used_like_a_buffer, .gpu = true) {
    enum { COUNT = 1000 };
    float values[COUNT], got[COUNT];
    struct gpu gpu = {0};
    struct rf_pinned *pinned = NULL;
    struct rf_buffer *buffer = NULL, *again = NULL, *view = NULL;
    gpu_need_simulated("");
    gpu_open(&gpu, NULL);
    for (int i = 0; i < COUNT; i++) values[i] = (float)i;
    uint64_t held = gpu_memory(&gpu).held_bytes;
    RF_ASSERT_OK(rf_pinned_create(gpu.device, sizeof values, &pinned));
    RF_EXPECT_STATUS(rf_pinned_buffer(NULL, &buffer), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_pinned_buffer(pinned, NULL), RF_E_INVALID);
    RF_ASSERT_OK(rf_pinned_buffer(pinned, &buffer));
    RF_ASSERT_OK(rf_pinned_buffer(pinned, &again));
    RF_EXPECT_UINT(rf_buffer_bytes(buffer), sizeof values);
    RF_EXPECT_UINT(gpu_memory(&gpu).held_bytes, held); /* it is host memory */
    RF_ASSERT_OK(rf_copy_to_device_safe(gpu.queue, buffer, 0, values, sizeof values));
    RF_EXPECT(!memcmp(rf_pinned_data(pinned), values, sizeof values));

    /* A kernel reads and writes it in place, also when recorded. */
    struct rf_recording *recording = NULL;
    const struct rf_kernel *scale = gpu_kernel(&gpu, "scale_f32");
    RF_ASSERT_OK(rf_buffer_view(again, 0, sizeof values, &view));
    RF_ASSERT_OK(rf_queue_record_begin(gpu.queue, "twice"));
    RF_ASSERT_OK(GPU_LAUNCH(gpu.queue, scale, COUNT, rf_arg_buffer(view), rf_arg_buffer(view), rf_arg_f32(2),
                            rf_arg_i64(COUNT)));
    RF_ASSERT_OK(rf_queue_record_end(gpu.queue, &recording));
    RF_ASSERT_OK(rf_recording_run(gpu.queue, recording));
    RF_ASSERT_OK(rf_copy_from_device_safe(gpu.queue, got, buffer, 0, sizeof got)); /* waits for the kernel */
    for (int i = 0; i < COUNT; i++) RF_ASSERT(got[i] == 2 * values[i]);

    /* Operations that drivers do not agree on. */
    struct rf_buffer *other = gpu_buffer(&gpu, sizeof values);
    RF_EXPECT_STATUS(rf_fill(gpu.queue, buffer, 0, 4, 1), RF_E_UNSUPPORTED);
    RF_EXPECT_STATUS(rf_copy_on_device(gpu.queue, other, 0, buffer, 0, 4), RF_E_UNSUPPORTED);
    RF_EXPECT_STATUS(rf_copy_on_device(gpu.queue, buffer, 0, other, 0, 4), RF_E_UNSUPPORTED);
    RF_EXPECT_STATUS(rf_upload_async(gpu.queue, buffer, 0, pinned, 0, 4), RF_E_UNSUPPORTED);
    RF_ASSERT_OK(rf_device_check_guards(gpu.device, RF_TIMEOUT_DEFAULT));

    /* The handles may be destroyed in any order; the last one frees the memory. */
    RF_ASSERT_OK(rf_pinned_destroy(&pinned));
    RF_ASSERT_OK(rf_buffer_destroy(&buffer));
    RF_ASSERT_OK(rf_buffer_destroy(&again));
    RF_ASSERT_OK(rf_buffer_destroy(&view));
    RF_ASSERT_OK(rf_recording_run(gpu.queue, recording));
    RF_ASSERT_OK(rf_queue_wait(gpu.queue, RF_TIMEOUT_DEFAULT));
    RF_ASSERT_OK(rf_recording_destroy(&recording));
    RF_ASSERT_OK(rf_buffer_destroy(&other));
    gpu_close(&gpu);
}
