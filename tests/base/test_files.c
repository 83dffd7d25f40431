/* Small files and what the host can spare, read from trees made for the test. */
#include "base/base.h"
#include <rocmforge/test.h>

#include <errno.h>
#include <ftw.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../scratch.h"

#define GIB (UINT64_C(1) << 30)

static char root[256];

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *walk) {
    (void)info, (void)kind, (void)walk;
    return remove(path);
}

static void make_root(void) {
    scratch_folder(root, "files");
}

static void remove_root(void) {
    nftw(root, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static const char *in_root(const char *path) {
    static char full[1024];
    snprintf(full, sizeof full, "%s%s", root, path);
    return full;
}

static void write_bytes(const char *path, const char *content, size_t length) {
    char full[1024];
    snprintf(full, sizeof full, "%s", in_root(path));
    for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        RF_ASSERT(mkdir(full, 0700) == 0 || errno == EEXIST);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    RF_ASSERT(file != NULL);
    RF_ASSERT(fwrite(content, 1, length, file) == length);
    fclose(file);
}

static void write_file(const char *path, const char *content) {
    write_bytes(path, content, strlen(content));
}

RF_TEST(files, read_text) {
    make_root();
    char text[16] = "untouched";
    RF_EXPECT_STATUS(rf_read_text(in_root("/none"), text, sizeof text), RF_E_NOT_FOUND);
    RF_EXPECT_STATUS(rf_read_text(in_root(""), text, sizeof text), RF_E_IO); /* a folder */
    RF_EXPECT(strcmp(text, "untouched") == 0);
    write_file("/a", "  two words \t\n\n");
    RF_EXPECT_OK(rf_read_text(in_root("/a"), text, sizeof text));
    RF_EXPECT(strcmp(text, "  two words") == 0);
    write_file("/a", "0123456789abcdefXYZ");
    RF_EXPECT_OK(rf_read_text(in_root("/a"), text, sizeof text));
    RF_EXPECT(strcmp(text, "0123456789abcde") == 0); /* as much as fits */
    write_file("/a", "");
    RF_EXPECT_OK(rf_read_text(in_root("/a"), text, sizeof text));
    RF_EXPECT(text[0] == 0);
    RF_EXPECT_OK(rf_read_text(in_root("/a"), text, 1));
    RF_EXPECT_STATUS(rf_read_text(in_root("/a"), text, 0), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_read_text(NULL, text, 4), RF_E_INVALID);
    RF_EXPECT(mkfifo(in_root("/fifo"), 0600) == 0);
    RF_EXPECT_OK(rf_read_text(in_root("/fifo"), text, sizeof text)); /* returns although nobody writes */
    remove_root();
}

RF_TEST(files, read_u64) {
    make_root();
    uint64_t value = 1;
    write_file("/n", "18446744073709551615\n");
    RF_EXPECT_OK(rf_read_u64(in_root("/n"), &value));
    RF_EXPECT(value == UINT64_MAX);
    static const char *const wrong[] = {"", "max\n", "-1", "12 34", "18446744073709551616", "1x", "0x10"};
    for (size_t i = 0; i < RF_COUNT(wrong); i++) {
        write_file("/n", wrong[i]);
        value = 7;
        RF_EXPECT_STATUS(rf_read_u64(in_root("/n"), &value), RF_E_SYNTAX);
        RF_EXPECT(value == 7);
    }
    write_bytes("/n",
                "5\0"
                "6",
                3); /* text ends at the zero byte */
    RF_EXPECT_OK(rf_read_u64(in_root("/n"), &value));
    RF_EXPECT_INT(value, 5);
    remove_root();
}

static void write_meminfo(void) {
    write_file("/proc/meminfo", "MemTotal:       16777216 kB\nMemFree:         1000000 kB\n"
                                "MemAvailable:    8388608 kB\nCached:  5 kB\n"); /* 16 GiB and 8 GiB */
}

static void expect_memory(uint64_t expected_available, uint64_t expected_total) {
    uint64_t available = 0, total = 0;
    RF_EXPECT_OK(rf_host_memory(root, &available, &total));
    RF_EXPECT_INT(available, expected_available);
    RF_EXPECT_INT(total, expected_total);
}

RF_TEST(hostmem, whole_machine) {
    make_root();
    uint64_t available = 3, total = 4;
    RF_EXPECT_STATUS(rf_host_memory(root, &available, &total), RF_E_NOT_FOUND);
    write_file("/proc/meminfo", "nonsense\n");
    RF_EXPECT_STATUS(rf_host_memory(root, &available, &total), RF_E_SYNTAX);
    RF_EXPECT(available == 3 && total == 4);
    write_meminfo();
    expect_memory(8 * GIB, 16 * GIB);
    write_file("/proc/self/cgroup", "0::/\n"); /* a group without limit files */
    expect_memory(8 * GIB, 16 * GIB);
    write_file("/proc/meminfo", "MemTotal: 2048 kB\nMemAvailable: 4096 kB\n");
    expect_memory(2048 * 1024, 2048 * 1024); /* never more than there is */
    remove_root();
}

RF_TEST(hostmem, version_2_limits) {
    make_root();
    write_meminfo();
    write_file("/proc/self/cgroup", "0::/user.slice/app.scope\n");
    write_file("/sys/fs/cgroup/user.slice/app.scope/memory.max", "max\n");
    write_file("/sys/fs/cgroup/user.slice/app.scope/memory.current", "1073741824\n");
    expect_memory(8 * GIB, 16 * GIB);
    /* a limit above it counts, less what is used, plus the cache it can drop */
    write_file("/sys/fs/cgroup/user.slice/memory.max", "4294967296\n");
    write_file("/sys/fs/cgroup/user.slice/memory.current", "3221225472\n");
    expect_memory(1 * GIB, 4 * GIB);
    write_file("/sys/fs/cgroup/user.slice/memory.stat", "anon 5\ninactive_file 1073741824\nactive_file 7\n");
    expect_memory(2 * GIB, 4 * GIB);
    /* the tightest wins, throttling included */
    write_file("/sys/fs/cgroup/user.slice/app.scope/memory.high", "1610612736\n");
    expect_memory(GIB / 2, 3 * GIB / 2);
    /* over its limit already */
    write_file("/sys/fs/cgroup/user.slice/app.scope/memory.high", "1000\n");
    expect_memory(0, 1000);
    remove_root();
}

RF_TEST(hostmem, container_without_its_path) {
    make_root();
    write_meminfo();
    write_file("/proc/self/cgroup", "0::/docker/0123abc\n");
    write_file("/sys/fs/cgroup/memory.max", "2147483648\n");
    write_file("/sys/fs/cgroup/memory.current", "1073741824\n");
    expect_memory(1 * GIB, 2 * GIB);
    write_file("/proc/self/cgroup", "0::/../../elsewhere\n");
    expect_memory(1 * GIB, 2 * GIB);
    remove_root();
}

RF_TEST(hostmem, version_1_limits) {
    make_root();
    write_meminfo();
    write_file("/proc/self/cgroup", "12:cpu,cpuacct:/job\n5:hugetlb,memory:/job/step\n1:name=systemd:/x\n");
    write_file("/sys/fs/cgroup/memory/job/step/memory.limit_in_bytes", "9223372036854771712\n");
    write_file("/sys/fs/cgroup/memory/job/step/memory.usage_in_bytes", "5\n");
    expect_memory(8 * GIB, 16 * GIB);
    write_file("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "3221225472\n");
    write_file("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "2147483648\n");
    write_file("/sys/fs/cgroup/memory/job/memory.stat", "cache 1\ntotal_inactive_file 536870912\n");
    expect_memory(3 * GIB / 2, 3 * GIB);
    remove_root();
}

RF_TEST(cores, a_quota_is_rounded_up) {
    make_root();
    RF_EXPECT(rf_quota_cores(root) == UINT64_MAX); /* no groups at all */
    write_file("/proc/self/cgroup", "0::/user.slice/app.scope\n");
    RF_EXPECT(rf_quota_cores(root) == UINT64_MAX);
    static const struct {
        const char *text;
        uint64_t cores;
    } known[] = {{"max 100000\n", UINT64_MAX}, {"200000 100000\n", 2}, {"200001 100000\n", 3},
                 {"5000 100000\n", 1},         {"150000 50000\n", 3},  {"100000\n", UINT64_MAX},
                 {"0 0\n", UINT64_MAX},        {"", UINT64_MAX},       {"-1 100000\n", UINT64_MAX}};
    for (size_t i = 0; i < RF_COUNT(known); i++) {
        write_file("/sys/fs/cgroup/user.slice/app.scope/cpu.max", known[i].text);
        RF_EXPECT_UINT(rf_quota_cores(root), known[i].cores);
    }
    /* the tightest wins, above and at the mount too */
    write_file("/sys/fs/cgroup/user.slice/app.scope/cpu.max", "400000 100000\n");
    write_file("/sys/fs/cgroup/user.slice/cpu.max", "250000 100000\n");
    RF_EXPECT_UINT(rf_quota_cores(root), 3);
    write_file("/sys/fs/cgroup/cpu.max", "100000 100000\n");
    RF_EXPECT_UINT(rf_quota_cores(root), 1);
    remove_root();
}

RF_TEST(cores, version_1_quotas) {
    make_root();
    write_file("/proc/self/cgroup", "4:cpuset:/job\n3:cpu,cpuacct:/job/step\n");
    write_file("/sys/fs/cgroup/cpu/job/step/cpu.cfs_quota_us", "-1\n");
    write_file("/sys/fs/cgroup/cpu/job/step/cpu.cfs_period_us", "100000\n");
    RF_EXPECT(rf_quota_cores(root) == UINT64_MAX);
    write_file("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "150000\n");
    RF_EXPECT(rf_quota_cores(root) == UINT64_MAX); /* a quota without its period */
    write_file("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
    RF_EXPECT_UINT(rf_quota_cores(root), 2);
    remove_root();
}

RF_TEST(cores, of_this_thread) {
    cpu_set_t set, one;
    RF_ASSERT(sched_getaffinity(0, sizeof set, &set) == 0);
    uint64_t quota = rf_quota_cores(""), here = (uint64_t)CPU_COUNT(&set);
    RF_EXPECT_UINT(rf_usable_cores(), RF_MIN(quota, here));
    int first = 0;
    while (!CPU_ISSET(first, &set)) first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    RF_ASSERT(sched_setaffinity(0, sizeof one, &one) == 0);
    RF_EXPECT_UINT(rf_usable_cores(), 1);
}

RF_TEST(hostmem, this_machine) {
    uint64_t available = 0, total = 0;
    rf_fail(RF_E_BUSY, "from before");
    RF_ASSERT_OK(rf_host_memory("", &available, &total));
    RF_ASSERT_TEXT(rf_error_text(), "from before"); /* a missing control group is no failure */
    RF_ASSERT(total > 0 && available <= total);
    RF_ASSERT_STATUS(rf_host_memory("", NULL, &total), RF_E_INVALID);
}
