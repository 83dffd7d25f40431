/* What the kernel's files and NVML say, from trees and a library made for the purpose. */
#include "helpers.h"
#include "gpu/witness_impl.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#define UUID(last) "GPU-5a000000-0000-0000-0000-00000000000" last
#define PCI "bus/pci/devices/0000:03:00.0"

static void expect_memory(struct rf_witness *witness, bool integrated, uint64_t free_bytes, uint64_t total) {
    uint64_t got_free = 0, got_total = 0;
    RF_ASSERT_OK(rf_witness_memory(witness, integrated, &got_free, &got_total));
    RF_ASSERT_INT(got_free, free_bytes);
    RF_ASSERT_INT(got_total, total);
}

static void expect_no_memory(struct rf_witness *witness, bool integrated) {
    uint64_t got_free = 77, got_total = 78;
    RF_ASSERT_STATUS(rf_witness_memory(witness, integrated, &got_free, &got_total), RF_E_UNSUPPORTED);
    RF_ASSERT(got_free == 77 && got_total == 78);
}

static void amd_card(const char *root) {
    write_file(root, PCI "/mem_info_vram_total", "21458059264\n");
    write_file(root, PCI "/mem_info_vram_used", "1458059264\n");
    write_file(root, PCI "/mem_info_gtt_total", "8000000000\n");
    write_file(root, PCI "/mem_info_gtt_used", "1000000000\n");
}

RF_TEST(witness, reads_vram_and_gtt) {
    char root[64];
    struct rf_witness *witness;
    make_folder(root, sizeof root);
    amd_card(root);
    RF_ASSERT_OK(rf_witness_create(RF_DRIVER_HIP, root, "0000:03:00.0", "GPU-x", &witness));
    RF_ASSERT_TEXT(rf_witness_name(witness), "sysfs");
    expect_memory(witness, false, UINT64_C(20000000000), UINT64_C(21458059264));
    expect_memory(witness, true, UINT64_C(27000000000), UINT64_C(29458059264));
    /* In place, as sysfs does, and replaced, as a test tree may be. */
    write_file(root, PCI "/mem_info_vram_used", "21458059264\n");
    expect_memory(witness, false, 0, UINT64_C(21458059264));
    char from[256], to[256];
    write_file(root, "fresh", "458059264\n");
    snprintf(from, sizeof from, "%s/fresh", root);
    snprintf(to, sizeof to, "%s/" PCI "/mem_info_vram_used", root);
    RF_ASSERT(rename(from, to) == 0);
    expect_memory(witness, false, UINT64_C(21000000000), UINT64_C(21458059264));
    write_file(root, PCI "/mem_info_vram_used", "1458059264             \n"); /* of a fixed width */
    expect_memory(witness, false, UINT64_C(20000000000), UINT64_C(21458059264));
    /* More used than there is: nothing free, no wrapping. */
    write_file(root, PCI "/mem_info_vram_used", "99999999999\n");
    expect_memory(witness, false, 0, UINT64_C(21458059264));
    rf_witness_destroy(&witness);
    RF_ASSERT(witness == NULL);
    rf_witness_destroy(&witness);
    rf_witness_destroy(NULL);
    remove_folder(root);
}

RF_TEST(witness, addresses_in_any_spelling_and_none_that_is_not_one) {
    static const char *const good[] = {"0000:03:00.0", "00000000:03:00.0", "0:3:0.0"};
    static const char *const bad[] = {"0000:04:00.0", "../0000:03:00.0",        "0000:03:00",   "0000:03:00.0/",
                                      "03:00.0",      "0000:03:00.00000000000", "0000:03:00.9", "x",
                                      "0000:103:00.0"};
    char root[64];
    struct rf_witness *witness;
    make_folder(root, sizeof root);
    amd_card(root);
    write_file(root, "bus/pci/devices/0000:0a:00.0/mem_info_vram_total", "5\n");
    write_file(root, "bus/pci/devices/0000:0a:00.0/mem_info_vram_used", "1\n");
    for (size_t i = 0; i < RF_COUNT(good); i++) {
        RF_ASSERT_OK(rf_witness_create(RF_DRIVER_HIP, root, good[i], NULL, &witness));
        expect_memory(witness, false, UINT64_C(20000000000), UINT64_C(21458059264));
        rf_witness_destroy(&witness);
    }
    RF_ASSERT_OK(rf_witness_create(RF_DRIVER_HIP, root, "0000:0A:00.0", NULL, &witness));
    expect_memory(witness, false, 4, 5);
    rf_witness_destroy(&witness);
    for (size_t i = 0; i < RF_COUNT(bad); i++) {
        RF_ASSERT_OK(rf_witness_create(RF_DRIVER_HIP, root, bad[i], NULL, &witness));
        RF_ASSERT_TEXT(rf_witness_name(witness), "none");
        expect_no_memory(witness, false);
        RF_ASSERT_INT(rf_witness_display(witness), RF_UNKNOWN);
        rf_witness_destroy(&witness);
    }
    remove_folder(root);
}

RF_TEST(witness, files_that_hold_no_number) {
    static const char *const texts[] = {"", "\n", "-5\n", "abc\n", "12x\n", "18446744073709551616\n", "0x10\n"};
    char root[64];
    struct rf_witness *witness;
    make_folder(root, sizeof root);
    amd_card(root);
    for (size_t i = 0; i < RF_COUNT(texts); i++) {
        write_file(root, PCI "/mem_info_vram_used", texts[i]);
        RF_ASSERT_OK(rf_witness_create(RF_DRIVER_HIP, root, "0000:03:00.0", NULL, &witness));
        expect_no_memory(witness, false);
        RF_ASSERT_CONTAINS(rf_error_text(), "mem_info_vram_used");
        rf_witness_destroy(&witness);
    }
    /* Totals whose sum is more than 64 bits say. */
    write_file(root, PCI "/mem_info_vram_used", "1\n");
    write_file(root, PCI "/mem_info_vram_total", "18446744073709551615\n");
    RF_ASSERT_OK(rf_witness_create(RF_DRIVER_HIP, root, "0000:03:00.0", NULL, &witness));
    expect_no_memory(witness, true);
    expect_memory(witness, false, UINT64_MAX - 1, UINT64_MAX);
    rf_witness_destroy(&witness);
    remove_folder(root);
}

RF_TEST(witness, without_an_address_only_the_only_card) {
    char root[64];
    struct rf_witness *witness;
    make_folder(root, sizeof root);
    write_file(root, "class/drm/card0/device/vendor", "0x8086\n");
    write_file(root, "class/drm/card0-DP-1/status", "connected\n");
    RF_ASSERT_OK(rf_witness_create(RF_DRIVER_HIP, root, "", NULL, &witness));
    expect_no_memory(witness, false);
    rf_witness_destroy(&witness);
    write_file(root, "class/drm/card1/device/mem_info_vram_total", "100\n");
    write_file(root, "class/drm/card1/device/mem_info_vram_used", "30\n");
    RF_ASSERT_OK(rf_witness_create(RF_DRIVER_HIP, root, NULL, NULL, &witness));
    expect_memory(witness, false, 70, 100);
    expect_no_memory(witness, true); /* no GTT figures there */
    rf_witness_destroy(&witness);
    write_file(root, "class/drm/card2/device/mem_info_vram_total", "100\n");
    RF_ASSERT_OK(rf_witness_create(RF_DRIVER_HIP, root, NULL, NULL, &witness));
    expect_no_memory(witness, false); /* which of the two? */
    rf_witness_destroy(&witness);
    RF_ASSERT_OK(rf_witness_create(RF_DRIVER_HIP, "/nonexistent", NULL, NULL, &witness));
    expect_no_memory(witness, false);
    rf_witness_destroy(&witness);
    RF_ASSERT_STATUS(rf_witness_create(RF_DRIVER_HIP, root, NULL, NULL, NULL), RF_E_INVALID);
    remove_folder(root);
}

RF_TEST(witness, display) {
    char root[64];
    struct rf_witness *witness;
    make_folder(root, sizeof root);
    amd_card(root);
    RF_ASSERT_OK(rf_witness_create(RF_DRIVER_HIP, root, "0000:03:00.0", NULL, &witness));
    RF_ASSERT_INT(rf_witness_display(witness), RF_UNKNOWN);
    write_file(root, PCI "/drm/renderD128/dev", "226:128\n");
    RF_ASSERT_INT(rf_witness_display(witness), RF_UNKNOWN);
    write_file(root, PCI "/drm/card1/dev", "226:1\n");
    RF_ASSERT_INT(rf_witness_display(witness), RF_NO);
    write_file(root, PCI "/drm/card1/card1-DP-1/status", "disconnected\n");
    write_file(root, PCI "/drm/card1/card1-DP-1/enabled", "enabled\n");
    write_file(root, PCI "/drm/card1/card1-DP-2/status", "connected\n");
    write_file(root, PCI "/drm/card1/card1-DP-2/enabled", "disabled\n");
    RF_ASSERT_INT(rf_witness_display(witness), RF_NO);
    write_file(root, PCI "/drm/card1/card1-HDMI-A-1/status", "connected\n");
    write_file(root, PCI "/drm/card1/card1-HDMI-A-1/enabled", "enabled\n");
    RF_ASSERT_INT(rf_witness_display(witness), RF_YES);
    rf_witness_destroy(&witness);
    /* An NVIDIA card without NVML is judged by the same files. */
    RF_ASSERT_OK(rf_witness_create_with(RF_DRIVER_CUDA, root, "/nonexistent.so", "0000:03:00.0", NULL, &witness));
    RF_ASSERT_INT(rf_witness_display(witness), RF_YES);
    RF_ASSERT_TEXT(rf_witness_name(witness), "none");
    expect_no_memory(witness, false);
    rf_witness_destroy(&witness);
    /* With NVML, which says no, a lit connector still counts. */
    RF_ASSERT_OK(rf_witness_create_with(RF_DRIVER_CUDA, root, FAKE_NVML, "0000:03:00.0", UUID("0"), &witness));
    RF_ASSERT_INT(rf_witness_display(witness), RF_YES);
    rf_witness_destroy(&witness);
    remove_folder(root);
}

/* ---- this process ---- */

#define CLIENT(driver, pdev, id, rest)                                                                               \
    "pos:\t0\nflags:\t02\ndrm-driver:\t" driver "\ndrm-pdev:\t" pdev "\ndrm-client-id:\t" id "\n" rest

RF_TEST(witness, fdinfo_counts_each_client_once) {
    char root[64];
    uint64_t bytes = 5;
    make_folder(root, sizeof root);
    write_file(root, "0", "pos:\t0\nflags:\t0100002\nmnt_id:\t25\n");
    RF_ASSERT_STATUS(rf_witness_fdinfo(root, "0000:03:00.0", false, &bytes), RF_E_UNSUPPORTED);
    RF_ASSERT_INT(bytes, 5);
    write_file(root, "5",
               CLIENT("amdgpu", "0000:03:00.0", "11", "drm-memory-vram:\t100 KiB\ndrm-memory-gtt: \t3 MiB\n"));
    write_file(root, "6",
               CLIENT("amdgpu", "0000:03:00.0", "11", "drm-memory-vram:\t100 KiB\ndrm-memory-gtt: \t3 MiB\n"));
    RF_ASSERT_OK(rf_witness_fdinfo(root, "0000:03:00.0", false, &bytes));
    RF_ASSERT_INT(bytes, 100 << 10);
    write_file(root, "7", CLIENT("amdgpu", "0000:03:00.0", "12", "drm-total-vram:\t1 MiB\ndrm-total-gtt:\t7\n"));
    write_file(root, "8", CLIENT("amdgpu", "0000:04:00.0", "13", "drm-memory-vram:\t900 KiB\n"));
    write_file(root, "9", CLIENT("amdgpu", "0000:03:00.0", "14", "drm-memory-vram:\tlots\n"));
    RF_ASSERT_OK(rf_witness_fdinfo(root, "0000:03:00.0", false, &bytes));
    RF_ASSERT_INT(bytes, (100 << 10) + (1 << 20));
    RF_ASSERT_OK(rf_witness_fdinfo(root, "0000:03:00.0", true, &bytes));
    RF_ASSERT_INT(bytes, (100 << 10) + (1 << 20) + (3 << 20) + 7);
    write_file(root, "10", CLIENT("amdgpu", "0000:05:00.0", "15", "drm-memory-vram:\t2 GiB\n"));
    RF_ASSERT_OK(rf_witness_fdinfo(root, "0000:05:00.0", false, &bytes));
    RF_ASSERT_INT(bytes, UINT64_C(2) << 30);
    RF_ASSERT_STATUS(rf_witness_fdinfo("/nonexistent", "", false, &bytes), RF_E_UNSUPPORTED);
    RF_ASSERT_OK(rf_witness_fdinfo(root, "", false, &bytes));
    RF_ASSERT_INT(bytes, (1000 << 10) + (1 << 20) + (UINT64_C(2) << 30));
    remove_folder(root);
}

RF_TEST(witness, kfd_by_the_gpus_number) {
    char root[64], name[128];
    struct rf_witness *witness;
    uint64_t bytes = 5;
    make_folder(root, sizeof root);
    amd_card(root);
    write_file(root, "class/kfd/kfd/topology/nodes/0/gpu_id", "0\n");
    write_file(root, "class/kfd/kfd/topology/nodes/0/properties", "cpu_cores_count 16\nlocation_id 768\ndomain 0\n");
    write_file(root, "class/kfd/kfd/topology/nodes/1/gpu_id", "4242\n");
    write_file(root, "class/kfd/kfd/topology/nodes/1/properties", "simd_count 84\nlocation_id 1024\ndomain 0\n");
    write_file(root, "class/kfd/kfd/topology/nodes/2/gpu_id", "5151\n");
    write_file(root, "class/kfd/kfd/topology/nodes/2/properties", "simd_count 84\nlocation_id 768\ndomain 0\n");
    snprintf(name, sizeof name, "class/kfd/kfd/proc/%d/vram_4242", (int)getpid());
    write_file(root, name, "111\n");
    RF_ASSERT_OK(rf_witness_create(RF_DRIVER_HIP, root, "0000:03:00.0", NULL, &witness));
    RF_ASSERT_STATUS(rf_witness_process(witness, &bytes), RF_E_UNSUPPORTED);
    RF_ASSERT_INT(bytes, 5);
    snprintf(name, sizeof name, "class/kfd/kfd/proc/%d/vram_5151", (int)getpid());
    write_file(root, name, "222\n");
    RF_ASSERT_OK(rf_witness_process(witness, &bytes));
    RF_ASSERT_INT(bytes, 222);
    rf_witness_destroy(&witness);
    remove_folder(root);
}

/* ---- NVML ---- */

static struct rf_witness *nvml(const char *library, const char *pci, const char *uuid) {
    struct rf_witness *witness;
    RF_ASSERT_OK(rf_witness_create_with(RF_DRIVER_CUDA, "/nonexistent", library, pci, uuid, &witness));
    return witness;
}

static void expect_nvml(const char *library, const char *pci, const char *uuid, uint64_t process,
                        enum rf_tristate display) {
    struct rf_witness *witness = nvml(library, pci, uuid);
    uint64_t bytes = 5;
    RF_ASSERT_TEXT(rf_witness_name(witness), "nvml");
    expect_memory(witness, false, 600, 1000);
    if (process) {
        RF_ASSERT_OK(rf_witness_process(witness, &bytes));
        RF_ASSERT_INT(bytes, process);
    } else {
        RF_ASSERT_STATUS(rf_witness_process(witness, &bytes), RF_E_UNSUPPORTED);
        RF_ASSERT_INT(bytes, 5);
    }
    RF_ASSERT_INT(rf_witness_display(witness), display);
    rf_witness_destroy(&witness);
}

RF_TEST(witness, nvml_by_uuid_and_by_address) {
    expect_nvml(FAKE_NVML, "", UUID("0"), 123, RF_NO);
    expect_nvml(FAKE_NVML, "", &UUID("0")[4], 123, RF_NO); /* without the prefix */
    expect_nvml(FAKE_NVML, "0000:65:00.0", "GPU-unknown", 123, RF_NO);
    expect_nvml(FAKE_NVML, "00000000:65:00.0", "", 123, RF_NO);
    expect_nvml(FAKE_NVML, "", UUID("3"), 123, RF_YES);
    expect_nvml(FAKE_NVML, "", UUID("4"), 0, RF_NO); /* another pid namespace */
    expect_nvml(FAKE_NVML, "", UUID("5"), 0, RF_NO); /* no figure */
    expect_nvml(FAKE_NVML, "", UUID("6"), 123, RF_UNKNOWN);
    expect_nvml(FAKE_NVML, "", UUID("7"), 123, RF_NO);
    expect_nvml(FAKE_NVML, "", UUID("8"), 123, RF_UNKNOWN); /* a list that grows while it is asked for */
    expect_nvml(FAKE_NVML_OLD, "", UUID("0"), 123, RF_UNKNOWN);
    expect_nvml(FAKE_NVML_OLD, "0000:65:00.0", NULL, 123, RF_UNKNOWN);
    /* Every start was ended. */
    void *library = dlopen(FAKE_NVML, RTLD_NOW | RTLD_LOCAL);
    int *started = library ? dlsym(library, "fake_nvml_started") : NULL;
    RF_ASSERT(started != NULL);
    RF_ASSERT_INT(*started, 0);
}

RF_TEST(witness, nvml_that_is_no_use) {
    static const struct {
        const char *library, *pci, *uuid;
    } cases[] = {
        {FAKE_NVML, "", ""},
        {FAKE_NVML, "0000:66:00.0", "GPU-5a"},
        {FAKE_NVML_BROKEN, "0000:65:00.0", UUID("0")},
        {"/nonexistent.so", "0000:65:00.0", UUID("0")},
        {"/proc/self/maps", "0000:65:00.0", UUID("0")}, /* not a library */
    };
    for (size_t i = 0; i < RF_COUNT(cases); i++) {
        struct rf_witness *witness = nvml(cases[i].library, cases[i].pci, cases[i].uuid);
        uint64_t bytes;
        RF_ASSERT_TEXT(rf_witness_name(witness), "none");
        expect_no_memory(witness, false);
        RF_ASSERT_STATUS(rf_witness_process(witness, &bytes), RF_E_UNSUPPORTED);
        RF_ASSERT_INT(rf_witness_display(witness), RF_UNKNOWN);
        rf_witness_destroy(&witness);
    }
    struct rf_witness *lost = nvml(FAKE_NVML, "", UUID("1")), *liar = nvml(FAKE_NVML, "", UUID("2"));
    expect_no_memory(lost, false);
    expect_no_memory(liar, false);
    RF_ASSERT_CONTAINS(rf_error_text(), "cannot be");
    rf_witness_destroy(&lost);
    rf_witness_destroy(&liar);
}

/* ---- threads ---- */

static void *ask_often(void *user) {
    for (int i = 0; i < 2000; i++) {
        uint64_t free_bytes, total;
        RF_ASSERT_OK(rf_witness_memory(user, i & 1, &free_bytes, &total));
        RF_ASSERT(free_bytes <= total);
    }
    return NULL;
}

RF_TEST(witness, asked_from_several_threads_while_files_are_replaced) {
    char root[64], from[256], to[256];
    struct rf_witness *witness;
    pthread_t threads[4];
    make_folder(root, sizeof root);
    amd_card(root);
    RF_ASSERT_OK(rf_witness_create(RF_DRIVER_HIP, root, "0000:03:00.0", NULL, &witness));
    for (int i = 0; i < 4; i++) RF_ASSERT(pthread_create(&threads[i], NULL, ask_often, witness) == 0);
    snprintf(from, sizeof from, "%s/fresh", root);
    snprintf(to, sizeof to, "%s/" PCI "/mem_info_vram_used", root);
    for (int i = 0; i < 200; i++) {
        char text[32];
        snprintf(text, sizeof text, "%d\n", i);
        write_file(root, "fresh", text);
        RF_ASSERT(rename(from, to) == 0);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    rf_witness_destroy(&witness);
    remove_folder(root);
}
