/* How many threads can run at once: what the affinity mask has, or less where a control group's quota of CPU time
 * allows less. A container that is given two CPUs' time of a machine with many sees all of them in its mask; a thread
 * for each would spend most of its life stopped. */
#include "base/base.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A quota of time in each period, in microseconds: version 2 has both in one file, "max" for no quota; version 1 in
 * one each, -1 for none. */
static void apply_quota(void *user, int version, const char *folder) {
    uint64_t *cores = user, quota, period;
    char path[4200], text[64];
    if (version == 1) {
        snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
        if (rf_read_u64(path, &quota)) return;
        snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
        if (rf_read_u64(path, &period)) return;
    } else {
        snprintf(path, sizeof path, "%s/cpu.max", folder);
        if (rf_read_text(path, text, sizeof text) || text[0] < '0' || text[0] > '9') return;
        char *rest;
        quota = strtoull(text, &rest, 10);
        period = strtoull(rest, NULL, 10);
    }
    if (!quota || !period) return;
    *cores = RF_MIN(*cores, quota / period + (quota % period != 0));
}

uint64_t rf_quota_cores(const char *root) {
    uint64_t cores = UINT64_MAX;
    rf_cgroup_each(root, "cpu", apply_quota, &cores);
    return cores;
}

unsigned rf_usable_cores(void) {
    cpu_set_t set; /* too small for the largest machines, where the call fails */
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t cores = count > 0 ? (uint64_t)count : 1, quota = rf_quota_cores("");
    return (unsigned)RF_MIN(cores, quota);
}
