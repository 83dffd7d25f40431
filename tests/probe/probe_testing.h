/* What the probe's tests share. */
#ifndef PROBE_TESTING_H
#define PROBE_TESTING_H

#include "gpu/driver.h"
#include "gpu/image.h"
#include "gpu/probe.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rocmforge/test.h>

#include "../dead_process.h"

#define HOSTILE(name) DRIVER_FOLDER "/hostile-" name ".so"

/* Probes with these options ("NAME=VALUE", ended by NULL) over those that every test wants:
 * HIP only, the helper of this build. The result is the caller's to free. */
static inline struct rf_probe_result *probe_with(const char *const *more) {
    const char *all[16] = {("RF_PROBE_HELPER=" PROBE_HELPER), "RF_DRIVER=hip", "RF_PROBE_TIMEOUT_MS=60000"};
    size_t count = 3;
    for (size_t i = 0; more && more[i] && count < RF_COUNT(all) - 1; i++) {
        size_t name = strcspn(more[i], "="), at = 0;
        while (at < count && strncmp(all[at], more[i], name + 1) != 0) at++;
        all[at] = more[i];
        if (at == count) count++;
    }
    struct rf_options *options = NULL;
    RF_ASSERT_OK(rf_options_create(all, &options));
    struct rf_probe_result *result = malloc(sizeof *result);
    RF_ASSERT(result != NULL);
    memset(result, 0x77, sizeof *result);
    rf_probe_run(options, result);
    rf_options_destroy(&options);
    return result;
}
#define PROBE(...) probe_with((const char *const[]){__VA_ARGS__, NULL})

/* An architecture that this build has kernels for. */
static inline const char *built_arch(const char *prefix) {
    for (size_t i = 0; i < rf_image_count(); i++)
        if (strncmp(rf_image_at(i)->target, prefix, strlen(prefix)) == 0) return rf_image_at(i)->target;
    RF_SKIP("this build has no kernels for %s*", prefix);
    return NULL;
}

#endif
