/* The options table: every row is sound, values are checked when given, overrides win. */
#include "base/base.h"
#include <rocmforge/test.h>

#include <stdlib.h>

static void clear_environment(void) {
    for (size_t i = 0; i < rf_option_count(); i++) unsetenv(rf_option_at(i)->name);
}

static struct rf_options *create(const char *first, const char *second) {
    const char *const overrides[] = {first, second, NULL};
    struct rf_options *options = NULL;
    RF_ASSERT_OK(rf_options_create(overrides, &options));
    return options;
}

static void refuse(const char *override, const char *part) {
    const char *const overrides[] = {override, NULL};
    struct rf_options *options = NULL;
    RF_ASSERT_STATUS(rf_options_create(overrides, &options), RF_E_SYNTAX);
    RF_ASSERT(!options);
    RF_ASSERT_CONTAINS(rf_error_text(), part);
}

RF_TEST(options, table_is_sound) {
    clear_environment();
    RF_ASSERT(rf_option_count() >= 15);
    RF_ASSERT(!rf_option_at(rf_option_count()));
    struct rf_options *options = create(NULL, NULL);
    for (size_t i = 0; i < rf_option_count(); i++) {
        const struct rf_option *row = rf_option_at(i);
        RF_ASSERT(strncmp(row->name, "RF", 2) == 0 && row->help[0]);
        RF_ASSERT_TEXT(rf_options_get(options, row->name), row->default_value);
        for (size_t j = 0; j < i; j++) RF_ASSERT(strcmp(rf_option_at(j)->name, row->name) != 0);
    }
    RF_ASSERT_TEXT(rf_options_get(options, "RF_BUDGET"), "70%");
    RF_ASSERT_INT(rf_options_int(options, "RF_TIMEOUT_MS"), 10000);
    RF_ASSERT(!rf_options_get(options, "RF_NOTHING"));
    RF_ASSERT(!rf_options_get(options, "RF_BUDGE"));
    RF_ASSERT(!rf_options_get(options, NULL));
    rf_options_destroy(&options);
    RF_ASSERT(!options);
    rf_options_destroy(&options);
    rf_options_destroy(NULL);
}

RF_TEST(options, overrides_win_over_the_environment) {
    clear_environment();
    setenv("RF_TIMEOUT_MS", "250", 1);
    setenv("RF_BUDGET", "12GiB", 1);
    setenv("RF_LOG", "", 1); /* empty is not given */
    struct rf_options *options = create("RF_BUDGET=keep=2GiB,50%", NULL);
    RF_ASSERT_INT(rf_options_int(options, "RF_TIMEOUT_MS"), 250);
    RF_ASSERT_TEXT(rf_options_get(options, "RF_BUDGET"), "keep=2GiB,50%");
    RF_ASSERT_TEXT(rf_options_get(options, "RF_LOG"), "warn");
    setenv("RF_TIMEOUT_MS", "9", 1); /* what was created does not change */
    RF_ASSERT_INT(rf_options_int(options, "RF_TIMEOUT_MS"), 250);
    rf_options_destroy(&options);
    options = create("RF_DRIVER=hip", "RF_DRIVER=sim");
    RF_ASSERT_TEXT(rf_options_get(options, "RF_DRIVER"), "sim");
    rf_options_destroy(&options);
    options = create("RF_DRIVER=sim", NULL); /* the simulated driver takes longer on a busy host */
    RF_ASSERT_INT(rf_options_int(options, "RF_TIMEOUT_MS"), 9);
    RF_ASSERT_INT(rf_options_int(options, "RF_PROBE_TIMEOUT_MS"), 200000);
    rf_options_destroy(&options);
    options = create("RF_DRIVER=sim", "RF_TIMEOUT_MS=");
    RF_ASSERT_INT(rf_options_int(options, "RF_TIMEOUT_MS"), 200000);
    rf_options_destroy(&options);
    options = create("RF_TIMEOUT_MS=", NULL); /* an empty override puts the default back */
    RF_ASSERT_INT(rf_options_int(options, "RF_TIMEOUT_MS"), 10000);
    rf_options_destroy(&options);
    clear_environment();
}

RF_TEST(options, wrong_values_are_refused) {
    clear_environment();
    refuse("RF_DRIVER=rocm", "auto|hip|cuda|sim|none");
    refuse("RF_DRIVER=hi", "RF_DRIVER=hi");
    refuse("RF_DRIVER=hip|cuda", "RF_DRIVER");
    refuse("RF_TIMEOUT_MS=0", "from 1 to 3600000");
    refuse("RF_TIMEOUT_MS=3600001", "RF_TIMEOUT_MS=3600001");
    refuse("RF_TIMEOUT_MS=-5", "RF_TIMEOUT_MS");
    refuse("RF_TIMEOUT_MS=10s", "RF_TIMEOUT_MS");
    refuse("RF_TIMEOUT_MS= 5", "RF_TIMEOUT_MS");
    refuse("RF_TIMEOUT_MS=99999999999999999999999999", "RF_TIMEOUT_MS");
    refuse("RF_CHECK=guard,", "guard|poison|handle|launch");
    refuse("RF_CHECK=guard;poison", "RF_CHECK");
    refuse("RF_LOG=verbose", "none|error|warn|info|debug");
    refuse("RF_REPLAY=no", "on|off");
    refuse("RF_NOTHING=1", "RF_NOTHING");
    refuse("RF_BUDGET", "NAME=VALUE");
    refuse("=1", "unknown");
    refuse("RFSIM=devices=2", "environment only");
    setenv("RF_THREADS", "many", 1);
    refuse("RF_LOG=warn", "RF_THREADS=many");
    clear_environment();
}

RF_TEST(options, lists_take_any_words) {
    clear_environment();
    struct rf_options *options = create("RF_CHECK=launch,guard,poison,handle", NULL);
    RF_ASSERT_TEXT(rf_options_get(options, "RF_CHECK"), "launch,guard,poison,handle");
    rf_options_destroy(&options);
    setenv("RFSIM", "anything at all", 1);
    options = create("RF_CHECK=guard", NULL);
    RF_ASSERT_TEXT(rf_options_get(options, "RFSIM"), "anything at all");
    rf_options_destroy(&options);
    clear_environment();
}
