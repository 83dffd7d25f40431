/* See process.h. */
#include "base/process.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>

/* The name stands in parentheses before the rest, and may have some itself. */
static bool read_line(const char *path, struct rf_process *out) {
    enum { PF_EXITING = 4 }; /* of the kernel */
    char text[512];
    FILE *file = fopen(path, "re");
    if (!file) return false;
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    char *open_at = strchr(text, '('), *close_at = strrchr(text, ')');
    int parent = 0;
    unsigned flags = 0;
    if (!open_at || !close_at || sscanf(close_at + 1, " %c %d %*d %*d %*d %*d %u", &out->state, &parent, &flags) != 3)
        return false;
    *close_at = 0;
    out->parent = parent;
    out->ending = flags & PF_EXITING;
    snprintf(out->name, sizeof out->name, "%.31s", open_at + 1);
    return true;
}

bool rf_process_read(pid_t pid, struct rf_process *out) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    return read_line(path, out);
}

bool rf_process_has_state(pid_t pid, const char *states) {
    char path[96];
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *threads = opendir(path);
    for (struct dirent *entry; threads && !found && (entry = readdir(threads));) {
        struct rf_process thread;
        if (!isdigit((unsigned char)entry->d_name[0])) continue;
        snprintf(path, sizeof path, "/proc/%d/task/%.20s/stat", (int)pid, entry->d_name);
        found = read_line(path, &thread) && strchr(states, thread.state);
    }
    if (threads) closedir(threads);
    return found;
}
