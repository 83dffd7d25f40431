/* Loading driver libraries, what codes mean, architectures, contexts. */
#include "gpu/driver_impl.h"
#include "probe_testing.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "../scratch.h"

static void check_refused(enum rf_driver_kind kind, const char *path, const char *reason) {
    struct rf_driver driver;
    memset(&driver, 0x44, sizeof driver);
    RF_EXPECT_STATUS(rf_driver_load(kind, path, &driver), RF_E_NO_DRIVER);
    RF_ASSERT_CONTAINS(rf_error_text(), reason);
    RF_ASSERT_CONTAINS(rf_error_text(), path);
    RF_ASSERT(strchr(rf_error_text(), '\n') == NULL);
    for (size_t i = 0; i < sizeof driver; i++) RF_ASSERT(((unsigned char *)&driver)[i] == 0x44);
}

RF_TEST(driver, loads) {
    struct rf_driver driver;
    RF_ASSERT_OK(rf_driver_load(RF_DRIVER_HIP, HOSTILE("GOOD"), &driver));
    RF_ASSERT_OK(rf_driver_init(&driver));
    RF_ASSERT_TEXT(driver.label, "HIP 6.3");
    RF_ASSERT_INT(driver.version, 60300000);
    RF_ASSERT(!driver.simulated && driver.library && driver.launch && driver.v.hip.error_name);
    RF_ASSERT(!driver.stream_priorities && !driver.function_set_attribute); /* optional, and absent here */
    RF_ASSERT_TEXT(rf_driver_error_name(&driver, 999), "hipErrorUnknown");
    RF_ASSERT_TEXT(rf_driver_error_name(&driver, 12345), "unknown error");

    RF_ASSERT_OK(rf_driver_load(RF_DRIVER_HIP, HOSTILE("NO_IDENTITY"), &driver));
    RF_ASSERT(!driver.device_uuid && !driver.device_pci); /* optional too */

    RF_ASSERT_OK(rf_driver_load(RF_DRIVER_CUDA, DRIVER_FOLDER "/fake-cuda.so", &driver));
    RF_ASSERT_OK(rf_driver_init(&driver));
    RF_ASSERT_TEXT(driver.label, "CUDA 12.4");
    RF_ASSERT(driver.device_uuid); /* by its older name */
    RF_ASSERT_TEXT(rf_driver_error_name(&driver, 999), "CUDA_ERROR_UNKNOWN");
    RF_ASSERT_TEXT(rf_driver_error_name(&driver, 12345), "unknown error");
}

RF_TEST(driver, refuses_what_is_no_driver) {
    struct rf_driver driver;
    check_refused(RF_DRIVER_HIP, "/nonexistent/libamdhip64.so", "does not exist");
    check_refused(RF_DRIVER_CUDA, "/nonexistent/libcuda.so", "CUDA driver");
    check_refused(RF_DRIVER_HIP, "/tmp", "a folder");
    check_refused(RF_DRIVER_HIP, "/dev/null", "a special file");
    check_refused(RF_DRIVER_HIP, "/etc/passwd", "cannot be loaded");
    check_refused(RF_DRIVER_HIP, "libnonexistent-for-sure.so.9", "not found");
    check_refused(RF_DRIVER_HIP, HOSTILE("MISSING_SYMBOL"), "has no hipModuleLaunchKernel");
    check_refused(RF_DRIVER_CUDA, HOSTILE("GOOD"), "has no cuInit");
    check_refused(RF_DRIVER_HIP, DRIVER_FOLDER "/fake-cuda.so", "has no hipInit");
    RF_EXPECT_STATUS(rf_driver_load((enum rf_driver_kind)7, NULL, &driver), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_driver_load(RF_DRIVER_HIP, NULL, NULL), RF_E_INVALID);
}

/* Opening a FIFO for reading would block for ever. */
RF_TEST(driver, refuses_a_fifo, .timeout_ms = 10000) {
    char path[SCRATCH_BYTES];
    scratch_folder(path, "driver-fifo");
    char fifo[SCRATCH_BYTES + 8];
    snprintf(fifo, sizeof fifo, "%s/f", path);
    RF_ASSERT(mkfifo(fifo, 0600) == 0);
    check_refused(RF_DRIVER_HIP, fifo, "a special file");
    unlink(fifo);
    rmdir(path);
}

/* A library whose header says another machine, and one cut short. */
RF_TEST(driver, refuses_a_foreign_or_damaged_library) {
    char path[SCRATCH_BYTES], *bytes = malloc(1 << 20);
    FILE *from = fopen(HOSTILE("GOOD"), "rb");
    RF_ASSERT(bytes && from);
    size_t length = fread(bytes, 1, 1 << 20, from);
    fclose(from);
    RF_ASSERT(length > 4096 && length < 1 << 20);
    int fd = scratch_file(path, "driver-foreign");
    bytes[18] = (char)(bytes[18] == 40 ? 62 : 40); /* e_machine */
    RF_ASSERT(fd >= 0 && write(fd, bytes, length) == (ssize_t)length);
    check_refused(RF_DRIVER_HIP, path, "cannot be loaded");
    RF_ASSERT(ftruncate(fd, 40) == 0);
    check_refused(RF_DRIVER_HIP, path, "cannot be loaded");
    RF_ASSERT(ftruncate(fd, 0) == 0);
    check_refused(RF_DRIVER_HIP, path, "cannot be loaded");
    close(fd);
    unlink(path);
    free(bytes);
}

/* ---- where the library is looked for ---- */

static void put_folder(const char *root, const char *path, const char *library) {
    char command[1024];
    snprintf(command, sizeof command, "mkdir -p %s/%s/lib", root, path);
    RF_ASSERT(system(command) == 0);
    if (!library) return;
    snprintf(command, sizeof command, "ln -s %s %s/%s/lib/librf-test-hip.so.6", HOSTILE("GOOD"), root, path);
    RF_ASSERT(system(command) == 0);
}

static void remove_tree(const char *root) {
    char command[512];
    snprintf(command, sizeof command, "chmod -R u+rwx %s && rm -r %s", root, root);
    RF_ASSERT(system(command) == 0);
}

RF_TEST(driver, folders_are_tried_newest_version_first) {
    static const char *const expected[] = {"given/lib",
                                           "opt/rocm/lib",
                                           "opt/rocm/core/lib",
                                           "opt/rocm/core-10.0/lib",
                                           "opt/rocm/core-9.1/lib",
                                           "opt/rocm/core-7.14.0/lib",
                                           "opt/rocm-6.10.0/lib",
                                           "opt/rocm-6.9.1/lib",
                                           "opt/rocm-6.2.4/lib",
                                           "opt/rocm-5.2/lib"};
    static const char *const made[] = {"opt/rocm-5.2",      "opt/rocm-6.10.0", "opt/rocm-6.9.1",
                                       "opt/rocm-6.2.4",    "opt/rocm-old",    "opt/rocm/core-10.0",
                                       "opt/rocm/core-9.1", "opt/other-7.0",   "opt/rocm/core-7.14.0"};
    char root[SCRATCH_BYTES], given[512], opt[512], folders[RF_FOLDERS_MAX][RF_FOLDER_BYTES];
    scratch_folder(root, "driver-opt");
    for (size_t i = 0; i < RF_COUNT(made); i++) put_folder(root, made[i], NULL);
    snprintf(given, sizeof given, "%s/given", root);
    snprintf(opt, sizeof opt, "%s/opt", root);
    struct rf_driver_places places = {.rocm_path = given, .opt = opt};
    RF_ASSERT_INT(rf_hip_folders(&places, folders, RF_FOLDERS_MAX), RF_COUNT(expected));
    for (size_t i = 0; i < RF_COUNT(expected); i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", root, expected[i]);
        RF_EXPECT_TEXT(folders[i], path);
    }
    RF_ASSERT_INT(rf_hip_folders(&places, folders, 5), 5); /* no more than there is room for */
    places.rocm_path = "relative";                         /* the current folder is never looked at */
    RF_ASSERT_INT(rf_hip_folders(&places, folders, RF_FOLDERS_MAX), RF_COUNT(expected) - 1);
    places.rocm_path = NULL;
    places.opt = "/nonexistent";
    RF_ASSERT_INT(rf_hip_folders(&places, folders, RF_FOLDERS_MAX), 2);
    remove_tree(root);
}

RF_TEST(driver, loads_from_the_folders) {
    static const char *const names[] = {"libnonexistent-for-sure.so.9", "librf-test-hip.so.6", NULL};
    static const char *const no_names[] = {"libnonexistent-for-sure.so.9", NULL};
    char root[SCRATCH_BYTES], command[512];
    struct rf_driver driver;
    scratch_folder(root, "driver-opt");
    struct rf_driver_places places = {.names = no_names, .opt = root};
    RF_EXPECT_STATUS(rf_driver_load_from(RF_DRIVER_HIP, &places, &driver), RF_E_NO_DRIVER);
    RF_ASSERT_CONTAINS(rf_error_text(),
                       "libamdhip64.so (.10 to .5) not found, nor in $ROCM_PATH/lib or /opt/rocm*/lib");
    RF_ASSERT_CONTAINS(rf_error_text(), "RF_HIP_LIBRARY");

    put_folder(root, "rocm-6.9.0", "older");
    put_folder(root, "rocm-6.10.0", NULL);
    places.names = names;
    RF_ASSERT_OK(rf_driver_load_from(RF_DRIVER_HIP, &places, &driver));
    RF_ASSERT_CONTAINS(driver.path, "hostile-GOOD.so");
    /* A file that is no library is passed over, and named if nothing else is found. */
    snprintf(command, sizeof command, "echo no > %s/rocm-6.10.0/lib/librf-test-hip.so.6", root);
    RF_ASSERT(system(command) == 0);
    RF_ASSERT_OK(rf_driver_load_from(RF_DRIVER_HIP, &places, &driver));
    snprintf(command, sizeof command, "rm %s/rocm-6.9.0/lib/*", root);
    RF_ASSERT(system(command) == 0);
    RF_EXPECT_STATUS(rf_driver_load_from(RF_DRIVER_HIP, &places, &driver), RF_E_NO_DRIVER);
    RF_ASSERT_CONTAINS(rf_error_text(), "rocm-6.10.0/lib/librf-test-hip.so.6 cannot be loaded");
    remove_tree(root);
}

/* The names that are tried are those that any ROCm since 5 may have, the newest first. */
RF_TEST(driver, names_of_the_hip_library) {
    const char *const *names = rf_driver_vendor_hip.libraries;
    for (int version = 10; version >= 5; version--) {
        char name[32];
        snprintf(name, sizeof name, "libamdhip64.so.%d", version);
        RF_ASSERT_TEXT(*names++, name);
    }
    RF_ASSERT_TEXT(names[0], "libamdhip64.so");
    RF_ASSERT(names[1] == NULL);
}

RF_TEST(driver, codes) {
    static const int fatal[] = {4,   214, 220, 226, 700, 702, 709, 710, 714,
                                715, 716, 717, 718, 719, 721, 810, 911, 999};
    static const int passing[] = {0,   1,   2,   3,   46,  100, 101, 200,  201, 209,
                                  304, 400, 600, 701, 720, 801, 802, 1052, -1};
    for (size_t i = 0; i < RF_COUNT(fatal); i++) {
        RF_ASSERT(rf_driver_is_fatal(fatal[i]));
        RF_ASSERT_INT(rf_driver_status(fatal[i]), RF_E_DEVICE_LOST);
    }
    for (size_t i = 0; i < RF_COUNT(passing); i++) RF_ASSERT(!rf_driver_is_fatal(passing[i]));
    RF_ASSERT_INT(rf_driver_status(0), RF_OK);
    RF_ASSERT_INT(rf_driver_status(2), RF_E_DEVICE_MEMORY);
    RF_ASSERT_INT(rf_driver_status(100), RF_E_NO_DEVICE);
    RF_ASSERT_INT(rf_driver_status(101), RF_E_NO_DEVICE);
    RF_ASSERT_INT(rf_driver_status(209), RF_E_UNSUPPORTED);
    RF_ASSERT_INT(rf_driver_status(801), RF_E_UNSUPPORTED);
    RF_ASSERT_INT(rf_driver_status(1), RF_E_DRIVER);
    RF_ASSERT_INT(rf_driver_status(600), RF_E_DRIVER);
}

RF_TEST(driver, attributes_and_arch) {
    struct rf_driver driver;
    char arch[32] = "untouched";
    int value = -5;
    setenv("HOSTILE_ARCH", "gfx90a:sramecc+", 1);
    RF_ASSERT_OK(rf_driver_load(RF_DRIVER_HIP, HOSTILE("GOOD"), &driver));
    RF_ASSERT_INT(rf_driver_attribute(&driver, &value, RF_ATTR_WARP_SIZE, 0), 0);
    RF_ASSERT_INT(value, 32);
    RF_ASSERT_INT(rf_driver_attribute(&driver, &value, RF_ATTR_MAX_SHARED_PER_BLOCK_OPTIN, 0), 0);
    RF_ASSERT_INT(value, 65536);
    RF_ASSERT_INT(rf_driver_attribute(&driver, &value, RF_ATTR_COUNT, 0), RF_DRV_INVALID_VALUE);
    RF_ASSERT_INT(value, 65536);
    RF_ASSERT_INT(rf_driver_arch(&driver, 0, NULL, arch, sizeof arch), 0);
    RF_ASSERT_TEXT(arch, "gfx90a");
    RF_ASSERT_OK(rf_driver_load(RF_DRIVER_HIP, HOSTILE("ARCH_NEW_LAYOUT"), &driver));
    RF_ASSERT_INT(rf_driver_arch(&driver, 0, NULL, arch, sizeof arch), 0);
    RF_ASSERT_TEXT(arch, "gfx90a");
    RF_ASSERT_OK(rf_driver_load(RF_DRIVER_CUDA, DRIVER_FOLDER "/fake-cuda.so", &driver));
    RF_ASSERT_INT(rf_driver_arch(&driver, 0, NULL, arch, sizeof arch), 0);
    RF_ASSERT_TEXT(arch, "sm_90");
}

/* ---- the kernel's topology files ---- */

RF_TEST(driver, kfd_names) {
    static const struct {
        uint64_t version;
        const char *arch;
    } cases[] = {{110000, "gfx1100"}, {90402, "gfx942"},   {90010, "gfx90a"},
                 {90006, "gfx906"},   {100300, "gfx1030"}, {100306, "gfx1036"},
                 {110501, "gfx1151"}, {120001, "gfx1201"}, {90012, "gfx90c"}};
    char arch[32];
    for (size_t i = 0; i < RF_COUNT(cases); i++) {
        RF_ASSERT(rf_kfd_arch_name(cases[i].version, arch, sizeof arch));
        RF_ASSERT_TEXT(arch, cases[i].arch);
    }
    RF_ASSERT(!rf_kfd_arch_name(0, arch, sizeof arch));
    RF_ASSERT(!rf_kfd_arch_name(99999999, arch, sizeof arch));
    RF_ASSERT(!rf_kfd_arch_name(90099, arch, sizeof arch));
    RF_ASSERT(!rf_kfd_arch_name(UINT64_MAX, arch, sizeof arch));
}

static void put_node(const char *root, int node, const char *text) {
    char command[1024];
    snprintf(command, sizeof command, "mkdir -p %s/class/kfd/kfd/topology/nodes/%d", root, node);
    RF_ASSERT(system(command) == 0);
    snprintf(command, sizeof command, "%s/class/kfd/kfd/topology/nodes/%d/properties", root, node);
    FILE *file = fopen(command, "w");
    RF_ASSERT(file != NULL);
    fputs(text, file);
    fclose(file);
}

RF_TEST(driver, kfd_lookup) {
    char root[SCRATCH_BYTES], arch[32] = "", command[512];
    scratch_folder(root, "driver-sysfs");
    RF_ASSERT(!rf_kfd_arch_at(root, "0000:3a:00.0", arch, sizeof arch));
    put_node(root, 0, "cpu_cores_count 16\ngfx_target_version 0\nlocation_id 0\ndomain 0\n");
    put_node(root, 1, "simd_count 192\ngfx_target_version 110000\nlocation_id 768\ndomain 0\nunique_id 1\n");
    put_node(root, 2, "gfx_target_version 90402\nlocation_id 14849\ndomain 1\n"); /* 3a:00.1 */
    put_node(root, 3, "gfx_target_version 100306\nlocation_id 14848");            /* as old kernels write it */
    put_node(root, 4, "garbage\n\n gfx_target_version\nlocation_id x\n");
    RF_ASSERT(rf_kfd_arch_at(root, "0000:03:00.0", arch, sizeof arch));
    RF_ASSERT_TEXT(arch, "gfx1100");
    RF_ASSERT(rf_kfd_arch_at(root, "0001:3A:00.1", arch, sizeof arch));
    RF_ASSERT_TEXT(arch, "gfx942");
    RF_ASSERT(!rf_kfd_arch_at(root, "0000:04:00.0", arch, sizeof arch));
    RF_ASSERT(!rf_kfd_arch_at(root, "nonsense", arch, sizeof arch));

    /* The driver whose property struct holds nonsense is answered from here. */
    struct rf_driver driver;
    RF_ASSERT_OK(rf_driver_load(RF_DRIVER_HIP, HOSTILE("ARCH_NONSENSE"), &driver));
    RF_ASSERT_INT(rf_driver_arch(&driver, 0, root, arch, sizeof arch), 0);
    RF_ASSERT_TEXT(arch, "gfx1036");
    RF_ASSERT(rf_driver_arch(&driver, 1, root, arch, sizeof arch) != 0);
    snprintf(command, sizeof command, "rm -r %s", root);
    RF_ASSERT(system(command) == 0);
}

/* ---- contexts ---- */

RF_TEST(context, hip_restores_the_callers_device) {
    struct rf_driver driver;
    struct rf_context first = {0}, second = {0}, closed = {0};
    struct rf_entered outer, inner;
    int device = -1;
    RF_ASSERT_OK(rf_driver_load(RF_DRIVER_HIP, HOSTILE("GOOD"), &driver));
    RF_ASSERT_INT(rf_context_open(&driver, 0, &first), 0);
    RF_ASSERT_INT(rf_context_open(&driver, 1, &second), 0);
    RF_ASSERT(first.open && second.open && second.device == 1);
    driver.v.hip.get_device(&device);
    RF_ASSERT_INT(device, 0); /* opening the second left the caller's */

    RF_ASSERT_INT(rf_context_enter(&driver, &second, &outer), 0);
    RF_ASSERT_INT(rf_context_enter(&driver, &first, &inner), 0);
    driver.v.hip.get_device(&device);
    RF_ASSERT_INT(device, 0);
    rf_context_leave(&driver, &inner);
    driver.v.hip.get_device(&device);
    RF_ASSERT_INT(device, 1);
    RF_ASSERT_INT(rf_context_enter(&driver, &second, &inner), 0); /* again: nothing to restore */
    RF_ASSERT(!inner.restore);
    rf_context_leave(&driver, &inner);
    rf_context_leave(&driver, &outer);
    driver.v.hip.get_device(&device);
    RF_ASSERT_INT(device, 0);

    RF_ASSERT(rf_context_open(&driver, 9, &closed) != 0);
    RF_ASSERT(!closed.open);
    RF_ASSERT_INT(rf_context_enter(&driver, &closed, &inner), RF_DRV_NOT_INITIALIZED);
    RF_ASSERT(!inner.restore);
    RF_ASSERT_INT(rf_context_close(&driver, &first), 0);
    RF_ASSERT_INT(rf_context_close(&driver, &first), 0);
    RF_ASSERT(!first.open);
}

RF_TEST(context, cuda_restores_the_callers_context) {
    struct rf_driver driver;
    struct rf_context context = {0};
    struct rf_entered outer, inner;
    void *current = NULL;
    char foreign;
    RF_ASSERT_OK(rf_driver_load(RF_DRIVER_CUDA, DRIVER_FOLDER "/fake-cuda.so", &driver));
    RF_ASSERT(rf_context_open(&driver, 1, &context) != 0);
    RF_ASSERT_INT(rf_context_open(&driver, 0, &context), 0);
    driver.v.cuda.context_get(&current);
    RF_ASSERT(current == NULL); /* opening makes nothing current */
    driver.v.cuda.context_set(&foreign);
    RF_ASSERT_INT(rf_context_enter(&driver, &context, &outer), 0);
    RF_ASSERT_INT(rf_context_enter(&driver, &context, &inner), 0);
    RF_ASSERT(outer.restore && !inner.restore);
    driver.v.cuda.context_get(&current);
    RF_ASSERT(current == context.handle);
    rf_context_leave(&driver, &inner);
    rf_context_leave(&driver, &outer);
    driver.v.cuda.context_get(&current);
    RF_ASSERT(current == &foreign);
    RF_ASSERT_INT(rf_context_close(&driver, &context), 0);
    RF_ASSERT(!context.open && !context.handle);
}
