/* What the host can spare: MemAvailable, or less where a control group limits this process.
 *
 * Every group from this process's own up to the root may hold a limit; the tightest counts.
 * Inside a container the path in /proc/self/cgroup may not exist below the mount: the walk
 * ends at the mount itself, which is then the container's group. Page cache that a group can
 * drop (inactive_file) is not held against it, as MemAvailable does for the whole machine. */
#include "base/base.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct figures {
    uint64_t available, total;
};

/* How the two versions of control groups name the same things. */
struct version {
    const char *mount, *limit, *soft_limit, *usage, *cache_key;
};
static const struct version version1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", NULL,
                                        "memory.usage_in_bytes", "total_inactive_file "};
static const struct version version2 = {"/sys/fs/cgroup", "memory.max", "memory.high", "memory.current",
                                        "inactive_file "};

static rf_status read_meminfo(const char *root, struct figures *figures);
static void apply_groups(const char *root, const struct version *version, const char *group, struct figures *figures);
static bool find_group(const char *membership, bool v2, char *group, size_t size);

rf_status rf_host_memory(const char *root, uint64_t *available, uint64_t *total) {
    if (!available || !total) return rf_fail(RF_E_INVALID, "rf_host_memory needs places for its results");
    if (!root) root = "";
    struct figures figures;
    rf_status status = read_meminfo(root, &figures);
    if (status != RF_OK) return status;

    /* Without control groups the machine's own figures stand, and that is no failure. */
    struct rf_saved_error saved;
    rf_error_save(&saved);
    char path[4096], membership[8192], group[2048];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    if (rf_read_text(path, membership, sizeof membership) == RF_OK) {
        if (find_group(membership, false, group, sizeof group)) apply_groups(root, &version1, group, &figures);
        if (find_group(membership, true, group, sizeof group)) apply_groups(root, &version2, group, &figures);
    }
    rf_error_restore(&saved);
    *available = RF_MIN(figures.available, figures.total);
    *total = figures.total;
    return RF_OK;
}

/* The number after a key at the start of a line. */
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

/* Lines are "ID:CONTROLLERS:PATH"; version 2 is "0::PATH". */
static bool find_group(const char *membership, bool v2, char *group, size_t size) {
    for (const char *line = membership; line && *line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        const char *controllers = strchr(line, ':');
        const char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        size_t controllers_length = (size_t)(path - controllers - 1);
        bool match = v2 ? controllers_length == 0 && strncmp(line, "0:", 2) == 0 : false;
        for (const char *word = controllers + 1; !v2 && word < path; word += strcspn(word, ",:") + 1)
            match |= strcspn(word, ",:") == 6 && strncmp(word, "memory", 6) == 0;
        if (!match) continue;
        size_t length = strcspn(path + 1, "\n");
        if (length >= size) return false;
        memcpy(group, path + 1, length);
        group[length] = 0;
        /* A process outside its namespace's root sees "/../..": only the mount is ours to read. */
        if (strstr(group, "..")) group[0] = 0;
        return true;
    }
    return false;
}

/* False where there is no such file or it says "max". */
static bool read_limit(const char *folder, const char *name, uint64_t *limit) {
    char path[4096];
    if (!name || snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return false;
    return rf_read_u64(path, limit) == RF_OK;
}

static void apply_folder(const char *folder, const struct version *version, struct figures *figures) {
    uint64_t limit = UINT64_MAX, soft = UINT64_MAX, usage = 0, cache = 0;
    bool limited = read_limit(folder, version->limit, &limit);
    limited |= read_limit(folder, version->soft_limit, &soft);
    limit = RF_MIN(limit, soft);
    /* Version 1 says "no limit" with a number near the largest. */
    if (!limited || limit >= (UINT64_C(1) << 62) || !read_limit(folder, version->usage, &usage)) return;
    char path[4096], text[8192];
    if (snprintf(path, sizeof path, "%s/memory.stat", folder) < (int)sizeof path &&
        rf_read_text(path, text, sizeof text) == RF_OK)
        find_number(text, version->cache_key, &cache);
    uint64_t left = rf_sub_saturate(limit, rf_sub_saturate(usage, cache));
    figures->available = RF_MIN(figures->available, left);
    figures->total = RF_MIN(figures->total, limit);
}

static void apply_groups(const char *root, const struct version *version, const char *group,
                         struct figures *figures) {
    char folder[4096];
    int mount_length = snprintf(folder, sizeof folder, "%s%s", root, version->mount);
    int length = snprintf(folder, sizeof folder, "%s%s%s", root, version->mount, group);
    if (length < 0 || length >= (int)sizeof folder) return;
    while (length > mount_length) {
        while (length > mount_length && folder[length - 1] == '/') length--;
        folder[length] = 0;
        if (length > mount_length) apply_folder(folder, version, figures);
        while (length > mount_length && folder[length - 1] != '/') length--;
    }
    folder[mount_length] = 0;
    apply_folder(folder, version, figures);
}
