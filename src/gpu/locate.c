/* See locate.h. It looks only at places fixed relative to this code, never at the current folder or $PATH, because
 * the file that is found is executed. */
#include "gpu/locate.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__x86_64__)
#define MULTIARCH "x86_64-linux-gnu"
#elif defined(__aarch64__)
#define MULTIARCH "aarch64-linux-gnu"
#else
#define MULTIARCH "."
#endif

rf_status rf_locate_simulated_driver(char *path, size_t size) {
    static const char *const candidates[] = {"librfsim-hip.so", "../lib/librfsim-hip.so",
                                             "../lib/" MULTIARCH "/librfsim-hip.so", "../lib64/librfsim-hip.so",
                                             NULL};
    return rf_locate_file(candidates, path, size);
}

/* The folder libexec/ is one level up from bin/ and lib/, and two from lib/<multiarch>/. */
rf_status rf_locate_probe_helper(char *path, size_t size) {
    static const char *const candidates[] = {"rocmforge-probe", "../libexec/rocmforge/rocmforge-probe",
                                             "../../libexec/rocmforge/rocmforge-probe", NULL};
    return rf_locate_file(candidates, path, size);
}

rf_status rf_locate_file(const char *const *candidates, char *path, size_t size) {
    char folder[PATH_MAX], candidate[PATH_MAX + 128];
    rf_status status = rf_locate_own_folder(folder, sizeof folder);
    if (status != RF_OK) return status;
    for (size_t i = 0; candidates[i]; i++) {
        struct stat info;
        int length = snprintf(candidate, sizeof candidate, "%s/%s", folder, candidates[i]);
        if (length < 0 || (size_t)length >= sizeof candidate || (size_t)length >= size) continue;
        if (stat(candidate, &info) != 0 || !S_ISREG(info.st_mode)) continue;
        memcpy(path, candidate, (size_t)length + 1);
        return RF_OK;
    }
    return rf_fail(RF_E_NOT_FOUND, "%s is neither in %s nor where an installation has it", candidates[0], folder);
}

rf_status rf_locate_own_folder(char *folder, size_t size) {
    static const char here = 0; /* an address inside this code */
    char path[PATH_MAX];
    Dl_info info;
    struct link_map *map = NULL;
    if (!dladdr1(&here, &info, (void **)&map, RTLD_DL_LINKMAP) || !map)
        return rf_fail(RF_E_NOT_FOUND, "the dynamic linker does not know where this code was loaded from");
    if (!map->l_name || !map->l_name[0]) { /* the executable: its name may be relative to a former current folder */
        ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
        if (length <= 0) return rf_fail(RF_E_NOT_FOUND, "/proc/self/exe cannot be read");
        path[length] = 0;
    } else if (!realpath(map->l_name, path)) {
        return rf_fail(RF_E_NOT_FOUND, "%s, which holds this code, is no longer there", map->l_name);
    }
    char *slash = strrchr(path, '/');
    if (!slash || (size_t)(slash - path) >= size) return rf_fail(RF_E_NOT_FOUND, "%s is not an absolute path", path);
    *slash = 0;
    memcpy(folder, path, (size_t)(slash - path) + 1);
    return RF_OK;
}
