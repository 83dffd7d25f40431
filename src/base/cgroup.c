/* The control groups that this process is in.
 *
 * Every group from the process's own up to the root may hold a limit; the visitor decides which of them counts.
 * Inside a container the path in /proc/self/cgroup may not exist below the mount: the walk ends at the mount itself,
 * which is then the container's group. Nothing here fails: where there are no groups, none is visited. */
#include "base/base.h"

#include <stdio.h>

/* Lines are "ID:CONTROLLERS:PATH"; version 2 is "0::PATH". */
static bool find_group(const char *membership, int version, const char *controller, char *group, size_t size) {
    size_t name_length = strlen(controller);
    for (const char *line = membership; line && *line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        const char *controllers = strchr(line, ':');
        const char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        size_t controllers_length = (size_t)(path - controllers - 1);
        bool match = version == 2 && controllers_length == 0 && strncmp(line, "0:", 2) == 0;
        for (const char *word = controllers + 1; version == 1 && word < path; word += strcspn(word, ",:") + 1)
            match |= strcspn(word, ",:") == name_length && strncmp(word, controller, name_length) == 0;
        if (!match) continue;
        size_t length = strcspn(path + 1, "\n");
        if (length >= size) return false;
        memcpy(group, path + 1, length);
        group[length] = 0;
        /* A process outside its namespace's root sees "/../..": then only the mount itself can be read. */
        if (strstr(group, "..")) group[0] = 0;
        return true;
    }
    return false;
}

static void visit_upwards(const char *mount, const char *group, int version, rf_cgroup_fn visit, void *user) {
    char folder[4096];
    int mount_length = (int)strlen(mount);
    int length = snprintf(folder, sizeof folder, "%s%s", mount, group);
    if (length < 0 || length >= (int)sizeof folder) return;
    while (length > mount_length) {
        while (length > mount_length && folder[length - 1] == '/') length--;
        folder[length] = 0;
        if (length > mount_length) visit(user, version, folder);
        while (length > mount_length && folder[length - 1] != '/') length--;
    }
    folder[mount_length] = 0;
    visit(user, version, folder);
}

void rf_cgroup_each(const char *root, const char *controller, rf_cgroup_fn visit, void *user) {
    struct rf_saved_error saved;
    rf_error_save(&saved); /* a missing file is no failure, here and in visitors */
    char path[4096], membership[8192], group[2048], mount[4096];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    if (rf_read_text(path, membership, sizeof membership) == RF_OK)
        for (int version = 1; version <= 2; version++) {
            int length = snprintf(mount, sizeof mount, "%s/sys/fs/cgroup%s%s", root, version == 1 ? "/" : "",
                                  version == 1 ? controller : "");
            if (length > 0 && length < (int)sizeof mount &&
                find_group(membership, version, controller, group, sizeof group))
                visit_upwards(mount, group, version, visit, user);
        }
    rf_error_restore(&saved);
}
