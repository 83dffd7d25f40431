/* Sizes as people write them. */
#include "base/base.h"
#include <rocmforge/test.h>

#include <stdio.h>

RF_TEST(text, parse_bytes_accepts) {
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {"0", 0},
        {"4096", 4096},
        {"7B", 7},
        {"1K", 1024},
        {"1KiB", 1024},
        {"1KB", 1000},
        {"100MB", 100000000},
        {"3M", UINT64_C(3) << 20},
        {"12GiB", UINT64_C(12) << 30},
        {"12 GiB", UINT64_C(12) << 30},
        {"12gib", UINT64_C(12) << 30},
        {"1.5G", UINT64_C(3) << 29},
        {"0.5KiB", 512},
        {"1.0009765625KiB", 1025},
        {"2TB", UINT64_C(2000000000000)},
        {"1T", UINT64_C(1) << 40},
        {"18446744073709551615", UINT64_MAX},
        {"0.1GB", 100000000},
        {"0.333333333333333333333333333333KB", 333},
    };
    for (size_t i = 0; i < RF_COUNT(cases); i++) {
        uint64_t bytes = 1;
        RF_ASSERT_OK(rf_parse_bytes(cases[i].text, &bytes));
        if (bytes != cases[i].bytes)
            RF_FAIL("%s gives %llu, expected %llu", cases[i].text, (unsigned long long)bytes,
                    (unsigned long long)cases[i].bytes);
    }
}

RF_TEST(text, parse_bytes_refuses) {
    static const char *const cases[] = {
        "",
        " ",
        "x",
        "GiB",
        "-1",
        "+1",
        "1.",
        ".5G",
        "1.5",
        "1.5B",
        "1 2",
        "1G B",
        "1GiBs",
        "0x10",
        "1e9",
        "1,5",
        "1.2.3",
        " 1",
        "1  GiB",
        "nan",
        "1G\n",
        "1P",
        "18446744073709551616",
        "17179869184GiB",
        "99999999999999999999999999G",
    };
    for (size_t i = 0; i < RF_COUNT(cases); i++) {
        uint64_t bytes = 42;
        if (rf_parse_bytes(cases[i], &bytes) != RF_E_SYNTAX) RF_FAIL("\"%s\" was not refused", cases[i]);
        RF_ASSERT(bytes == 42);
        RF_ASSERT(rf_error_text()[0] != 0);
    }
    uint64_t bytes;
    RF_ASSERT_STATUS(rf_parse_bytes(NULL, &bytes), RF_E_INVALID);
    RF_ASSERT_STATUS(rf_parse_bytes("1", NULL), RF_E_INVALID);
}

RF_TEST(text, format_bytes) {
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        {0, "0 B"},
        {1023, "1023 B"},
        {1024, "1 KiB"},
        {1536, "1.5 KiB"},
        {UINT64_C(3) << 29, "1.5 GiB"},
        {(UINT64_C(1) << 20) - 1, "1.0 MiB"}, /* not exactly one */
        {UINT64_C(80) << 30, "80 GiB"},
        {UINT64_MAX, "16.0 EiB"},
    };
    char text[32];
    for (size_t i = 0; i < RF_COUNT(cases); i++)
        RF_ASSERT_TEXT(rf_format_bytes(cases[i].bytes, text, sizeof text), cases[i].text);
    char small[4];
    RF_ASSERT_TEXT(rf_format_bytes(123456, small, sizeof small), "120");
}

RF_TEST(text, what_is_written_can_be_read) {
    struct rf_random random = {rf_test_seed() + 1};
    for (int i = 0; i < 2000; i++) {
        uint64_t bytes = rf_random_next(&random) >> (rf_random_next(&random) % 64), again = 0;
        if (bytes >> 50) continue; /* above the largest unit that is read */
        char text[32];
        rf_format_bytes(bytes, text, sizeof text);
        RF_ASSERT_OK(rf_parse_bytes(text, &again));
        double off = bytes ? ((double)again - (double)bytes) / (double)bytes : (double)again;
        if (off > 0.05 || off < -0.05)
            RF_FAIL("%llu is written %s and read %llu", (unsigned long long)bytes, text, (unsigned long long)again);
    }
}

RF_TEST(text, version) {
    char expected[32];
    snprintf(expected, sizeof expected, "%d.%d.%d", RF_VERSION_MAJOR, RF_VERSION_MINOR, RF_VERSION_PATCH);
    RF_ASSERT_TEXT(rf_version(), expected);
}

RF_TEST(text, checked_arithmetic) {
    uint64_t value;
    RF_ASSERT(!rf_add_overflows(UINT64_MAX - 1, 1, &value));
    RF_ASSERT(value == UINT64_MAX);
    RF_ASSERT(rf_add_overflows(UINT64_MAX, 1, &value));
    RF_ASSERT(rf_mul_overflows(UINT64_C(1) << 32, UINT64_C(1) << 32, &value));
    RF_ASSERT(!rf_round_up_overflows(5, 4, &value));
    RF_ASSERT_INT(value, 8);
    RF_ASSERT(!rf_round_up_overflows(8, 4, &value));
    RF_ASSERT_INT(value, 8);
    RF_ASSERT(rf_round_up_overflows(UINT64_MAX - 1, 4096, &value));
    RF_ASSERT(rf_range_fits(0, 10, 10));
    RF_ASSERT(rf_range_fits(10, 0, 10));
    RF_ASSERT(!rf_range_fits(11, 0, 10));
    RF_ASSERT(!rf_range_fits(5, UINT64_MAX - 2, 10));
    RF_ASSERT(rf_sub_saturate(3, 5) == 0);
    RF_ASSERT(rf_sub_saturate(5, 3) == 2);
}
