/* How much memory the host can spare: MemAvailable, or less where a control group limits this process.
 *
 * The tightest limit of all groups counts. Page cache that a group can drop (inactive_file) is not held against it,
 * as MemAvailable does for the whole machine. */
#include "base/base.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct figures {
    uint64_t available, total;
};

/* How the two versions of control groups name the same things. */
struct version {
    const char *limit, *soft_limit, *usage, *cache_key;
};
static const struct version versions[] = {
    {"memory.limit_in_bytes", NULL, "memory.usage_in_bytes", "total_inactive_file "},
    {"memory.max", "memory.high", "memory.current", "inactive_file "}};

static rf_status read_meminfo(const char *root, struct figures *figures);
static void apply_folder(void *user, int number, const char *folder);

rf_status rf_host_memory(const char *root, uint64_t *available, uint64_t *total) {
    if (!available || !total) return rf_fail(RF_E_INVALID, "rf_host_memory needs places for its results");
    if (!root) root = "";
    struct figures figures;
    rf_status status = read_meminfo(root, &figures);
    if (status != RF_OK) return status;

    rf_cgroup_each(root, "memory", apply_folder, &figures); /* without groups the machine's own figures stand */
    *available = RF_MIN(figures.available, figures.total);
    *total = figures.total;
    return RF_OK;
}

/* Finds the number after a key that stands at the start of a line. */
static bool find_number(const char *text, const char *key, uint64_t *value) {
    size_t length = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        if (strncmp(line, key, length) != 0) continue;
        const char *at = line + length;
        while (*at == ' ' || *at == '\t') at++;
        if (*at < '0' || *at > '9') return false;
        errno = 0;
        *value = strtoull(at, NULL, 10);
        return errno == 0;
    }
    return false;
}

static rf_status read_meminfo(const char *root, struct figures *figures) {
    char path[4096], text[8192];
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    rf_status status = rf_read_text(path, text, sizeof text);
    if (status != RF_OK) return status;
    uint64_t total_kib, available_kib;
    if (!find_number(text, "MemTotal:", &total_kib) ||
        (!find_number(text, "MemAvailable:", &available_kib) && !find_number(text, "MemFree:", &available_kib)) ||
        rf_mul_overflows(total_kib, 1024, &figures->total) ||
        rf_mul_overflows(available_kib, 1024, &figures->available))
        return rf_fail(RF_E_SYNTAX, "%s does not tell MemTotal and MemAvailable", path);
    return RF_OK;
}

/* False where the file does not exist or says "max". */
static bool read_limit(const char *folder, const char *name, uint64_t *limit) {
    char path[4096];
    if (!name || snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return false;
    return rf_read_u64(path, limit) == RF_OK;
}

static void apply_folder(void *user, int number, const char *folder) {
    struct figures *figures = user;
    const struct version *version = &versions[number - 1];
    uint64_t limit = UINT64_MAX, soft = UINT64_MAX, usage = 0, cache = 0;
    bool limited = read_limit(folder, version->limit, &limit);
    limited |= read_limit(folder, version->soft_limit, &soft);
    limit = RF_MIN(limit, soft);
    /* Version 1 expresses "no limit" as a number near the largest of 64 bits. */
    if (!limited || limit >= (UINT64_C(1) << 62) || !read_limit(folder, version->usage, &usage)) return;
    char path[4096], text[8192];
    if (snprintf(path, sizeof path, "%s/memory.stat", folder) < (int)sizeof path &&
        rf_read_text(path, text, sizeof text) == RF_OK)
        find_number(text, version->cache_key, &cache);
    uint64_t left = rf_sub_saturate(limit, rf_sub_saturate(usage, cache));
    figures->available = RF_MIN(figures->available, left);
    figures->total = RF_MIN(figures->total, limit);
}
