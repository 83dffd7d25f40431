#include "old_program.h"

struct rf_runtime *runtime;

static int lines;
static void keep_line(void *user, enum rf_log_level level, const char *line) {
    CHECK(user == &runtime && level >= RF_LOG_ERROR && level <= RF_LOG_DEBUG && *line);
    lines++;
}

/* old_program PART [MODEL [DEVICE]] */
int main(int argc, char **argv) {
    extern void *const functions_0_1_0[];
    for (size_t i = 0; functions_0_1_0[i]; i++) CHECK(functions_0_1_0[i] != (void *)runtime);
    const char *part = argc > 1 ? argv[1] : "";
    static const char *const options[] = {"RF_LOG=debug", "RF_TIMEOUT_MS=600000", NULL};
    RF_PARAMS(struct rf_runtime_params, params);
    params.log = keep_line;
    params.log_user = &runtime;
    params.options = options;
    CHECK(strcmp(rf_version(), "") != 0);
    OK(rf_runtime_create(&params, &runtime));
    CHECK(!strcmp(rf_runtime_option(runtime, "RF_TIMEOUT_MS"), "600000"));
    CHECK(rf_option_count() && rf_option_at(0)->name && rf_option_at(0)->help);
    if (!strcmp(part, "devices"))
        use_devices();
    else if (!strcmp(part, "memory"))
        use_memory();
    else if (!strcmp(part, "queues"))
        use_queues();
    else if (!strcmp(part, "graphs"))
        use_graphs();
    else if (!strcmp(part, "model") && argc > 2)
        use_model(argv[2]);
    else if (!strcmp(part, "engine") && argc > 3)
        use_engine(argv[2], argv[3]);
    else
        return fprintf(stderr, "old_program: no such part\n"), 2;
    rf_runtime_destroy(&runtime);
    CHECK(!runtime);
    if (!strcmp(part, "queues")) CHECK(lines); /* launches are logged */
    printf("%s: as in 0.1.0\n", part);
    return 0;
}
