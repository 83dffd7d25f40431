/* How many threads can run at once: the number of CPUs in the affinity mask, or less where a control group's quota of
 * CPU time allows less. A container that may use two CPUs' time on a machine with many CPUs sees all of them in its
 * mask. If it started a thread for each CPU, these threads would be stopped most of the time. */
#include "base/base.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Reads a quota of CPU time per period, both in microseconds. Version 2 has both in one file, and "max" means no
 * quota; version 1 has a file for each, and -1 means no quota. */
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
    cpu_set_t set; /* it is too small for the largest machines: there the call fails */
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t cores = count > 0 ? (uint64_t)count : 1, quota = rf_quota_cores("");
    return (unsigned)RF_MIN(cores, quota);
}
