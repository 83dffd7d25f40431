/* Failing with a reason: one line, per thread, kept around clean-up. */
#include "base/base.h"
#include <rocmforge/test.h>

#include <pthread.h>

RF_TEST(status, every_status_has_its_name) {
    for (int i = 0; i < RF_STATUS_COUNT; i++) {
        const char *name = rf_status_name((rf_status)i);
        RF_ASSERT(strncmp(name, i == 0 ? "RF_OK" : "RF_E_", 5) == 0);
        for (int j = 0; j < i; j++) RF_ASSERT(strcmp(name, rf_status_name((rf_status)j)) != 0);
    }
    RF_ASSERT_TEXT(rf_status_name(RF_E_BUDGET), "RF_E_BUDGET");
    RF_ASSERT_TEXT(rf_status_name(RF_STATUS_COUNT), "RF_E_?");
    RF_ASSERT_TEXT(rf_status_name((rf_status)-1), "RF_E_?");
}

RF_TEST(status, text_says_why) {
    RF_ASSERT_INT(rf_fail(RF_E_BUSY, "%s is held by %d", "it", 7), RF_E_BUSY);
    RF_ASSERT_TEXT(rf_error_text(), "it is held by 7");
    /* the old text may be part of the new one */
    rf_fail(RF_E_IO, "outer: %s", rf_error_text());
    RF_ASSERT_TEXT(rf_error_text(), "outer: it is held by 7");
    RF_ASSERT_INT(rf_fail_within(RF_E_DRIVER, "opening %d", 3), RF_E_DRIVER);
    RF_ASSERT_TEXT(rf_error_text(), "opening 3: outer: it is held by 7");
}

RF_TEST(status, text_is_one_line) {
    rf_fail(RF_E_DRIVER, "driver said: %s", "bad\nworse\r\n\x1b[31mred\t.");
    RF_ASSERT_TEXT(rf_error_text(), "driver said: bad worse   [31mred .");
    for (const char *c = rf_error_text(); *c; c++) RF_ASSERT((unsigned char)*c >= 0x20);
}

RF_TEST(status, long_text_is_cut_between_characters) {
    char words[4000];
    for (size_t i = 0; i + 2 < sizeof words; i += 2) memcpy(words + i, "\xc3\xa4", 3);
    for (int shift = 0; shift < 2; shift++) {
        rf_fail(RF_E_IO, "%s%s", shift ? "x" : "", words);
        const char *text = rf_error_text();
        size_t length = strlen(text);
        RF_ASSERT(length < sizeof(struct rf_saved_error) && length > 1000);
        RF_ASSERT_INT((length - (size_t)shift) % 2, 0);
        rf_fail_within(RF_E_IO, "prefix");
        RF_ASSERT_INT((strlen(rf_error_text()) - (size_t)shift) % 2, 0);
    }
}

RF_TEST(status, cleanup_keeps_the_reason) {
    struct rf_saved_error saved;
    rf_fail(RF_E_BUDGET, "the reason");
    rf_error_save(&saved);
    rf_fail(RF_E_IO, "clean-up failed too");
    rf_error_restore(&saved);
    RF_ASSERT_TEXT(rf_error_text(), "the reason");
}

static void *fail_here(void *name) {
    RF_EXPECT(rf_error_text()[0] == 0);
    for (int i = 0; i < 1000; i++) {
        rf_fail(RF_E_IO, "thread %s", (const char *)name);
        RF_ASSERT(strcmp(rf_error_text() + 7, name) == 0);
    }
    return NULL;
}

RF_TEST(status, text_belongs_to_its_thread) {
    rf_fail(RF_E_IO, "mine");
    pthread_t threads[4];
    static const char *const names[] = {"a", "b", "c", "d"};
    for (int i = 0; i < 4; i++) RF_ASSERT(pthread_create(&threads[i], NULL, fail_here, (void *)names[i]) == 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    RF_ASSERT_TEXT(rf_error_text(), "mine");
}
