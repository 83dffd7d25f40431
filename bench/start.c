#include "start.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* If the file exists, writes "OPTION=/build/file" to text and adds it to the options. */
static void beside(const char *option, const char *file, char *text, size_t size, const char **options,
                   size_t *count) {
    char path[PATH_MAX], folder[PATH_MAX];
    const char *given = getenv(option);
    if (given && *given) return;
    ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
    if (length <= 0) return;
    folder[length] = 0;
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(folder, '/');
        if (!slash) return;
        *slash = 0;
    }
    int needed = snprintf(path, sizeof path, "%s/%s", folder, file);
    if (needed < 0 || (size_t)needed >= sizeof path || access(path, R_OK)) return;
    needed = snprintf(text, size, "%s=%s", option, path);
    if (needed > 0 && (size_t)needed < size) options[(*count)++] = text;
}

rf_status start_runtime(rf_log_fn log, struct rf_runtime **out) {
    char helper[PATH_MAX + 32], simulated[PATH_MAX + 32];
    const char *options[4] = {NULL}, *driver = getenv("RF_DRIVER");
    size_t count = 0;
    beside("RF_PROBE_HELPER", "rocmforge-probe", helper, sizeof helper, options, &count);
    if (driver && !strcmp(driver, "sim"))
        beside("RF_HIP_LIBRARY", "librfsim-hip.so", simulated, sizeof simulated, options, &count);
    RF_PARAMS(struct rf_runtime_params, params);
    params.log = log;
    params.options = options;
    return rf_runtime_create(&params, out);
}
