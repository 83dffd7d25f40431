/* The budget grammar: what it takes, what it refuses and how it says so, and the arithmetic. */
#include "gpu/budget.h"
#include <rocmforge/test.h>

#include <locale.h>
#include <stdio.h>

#define KI(n) (UINT64_C(n) << 10)
#define GI(n) (UINT64_C(n) << 30)

static struct rf_budget_spec parsed(const char *text) {
    struct rf_budget_spec spec = {0};
    RF_ASSERT_OK(rf_budget_parse(text, &spec));
    return spec;
}

static void expect_terms(const char *text, uint64_t base, uint64_t limit, uint64_t floor_bytes) {
    struct rf_budget_spec spec = parsed(text);
    uint64_t got_limit = 1, got_floor = 1;
    rf_budget_eval(&spec, base, &got_limit, &got_floor);
    if (got_limit != limit || got_floor != floor_bytes)
        RF_FAIL("%s of %llu: limit %llu floor %llu, expected %llu and %llu", text, (unsigned long long)base,
                (unsigned long long)got_limit, (unsigned long long)got_floor, (unsigned long long)limit,
                (unsigned long long)floor_bytes);
}

RF_TEST(spec, limits_and_floors) {
    expect_terms("70%", 1000, 700, 300);
    expect_terms("50%", 1000, 500, 300); /* the floor is at most 30% unless keep= says so */
    expect_terms("90%", 1000, 900, 100);
    expect_terms("100%", 1000, 1000, 0);
    expect_terms("12.5%", 1000, 125, 300);
    expect_terms("0.000001%", UINT64_C(100000000), 1, 30000000);
    expect_terms("600", 1000, 600, 300);
    expect_terms("800", 1000, 800, 200);
    expect_terms("5000", 1000, 1000, 0); /* a cap above what there is */
    expect_terms("0", 1000, 0, 300);
    expect_terms("keep=200", 1000, 800, 200);
    expect_terms("keep=0", 1000, 1000, 0);
    expect_terms("keep=5000", 1000, 0, 5000);
    expect_terms("keep=30%", 1000, 700, 300);
    expect_terms("keep=30%", 1001, 700, 301); /* what stays free is rounded up */
    expect_terms("keep=0%", 1000, 1000, 0);
    expect_terms("70%,keep=100", 1000, 700, 100);
    expect_terms("90%,keep=500", 1000, 500, 500);
    expect_terms("keep=100,keep=20%", 1000, 800, 200);
    expect_terms("70%,600,keep=100", 1000, 600, 100);
    expect_terms("part=12-3-abc:400", 1000, 400, 300);
    expect_terms("70%", 0, 0, 0);
}

RF_TEST(spec, huge_memory_is_exact) {
    uint64_t base = UINT64_C(1) << 63;
    expect_terms("50%", base, base / 2, (uint64_t)((unsigned __int128)base * 3 / 10));
    expect_terms("100%", UINT64_MAX, UINT64_MAX, 0);
    expect_terms("70%", UINT64_MAX, (uint64_t)((unsigned __int128)UINT64_MAX * 7 / 10),
                 (uint64_t)((unsigned __int128)UINT64_MAX * 3 / 10));
    /* Every percentage with up to six decimals survives its stay in a double. */
    struct rf_random random = {rf_test_seed() + 1};
    for (int i = 0; i < 20000; i++) {
        uint64_t micro = 1 + rf_random_below(&random, 100000000);
        uint64_t bytes = rf_random_next(&random);
        char text[48];
        snprintf(text, sizeof text, "%llu.%06llu%%", (unsigned long long)(micro / 1000000),
                 (unsigned long long)(micro % 1000000));
        struct rf_budget_spec spec = parsed(text);
        uint64_t limit, floor_bytes;
        rf_budget_eval(&spec, bytes, &limit, &floor_bytes);
        RF_ASSERT(limit == (uint64_t)((unsigned __int128)bytes * micro / 100000000));
    }
}

RF_TEST(spec, sizes_units_and_blanks) {
    RF_ASSERT(parsed("12GiB").cap_bytes == GI(12));
    RF_ASSERT(parsed("1.5G").cap_bytes == GI(1) + GI(1) / 2);
    RF_ASSERT(parsed("100MB").cap_bytes == 100000000);
    RF_ASSERT(parsed("1.5 GiB").cap_bytes == GI(1) + GI(1) / 2);
    RF_ASSERT(parsed("  4KiB\t, keep=2KiB , 50% ").cap_bytes == KI(4));
    RF_ASSERT(parsed("18446744073709551615").cap_bytes == UINT64_MAX);
    struct rf_budget_spec part = parsed("part=123-4-00ff:99");
    RF_ASSERT(part.has_part && part.part_bytes == 99);
    RF_ASSERT_TEXT(part.part_id, "123-4-00ff");
}

RF_TEST(spec, repeated_parts_keep_the_stricter) {
    RF_ASSERT(parsed("70%,50%,60%").percent == 50);
    RF_ASSERT(parsed("9G,3G,5G").cap_bytes == GI(3));
    RF_ASSERT(parsed("keep=1G,keep=3G,keep=2G").keep_bytes == GI(3));
    RF_ASSERT(parsed("keep=10%,keep=30%,keep=20%").keep_percent == 30);
}

RF_TEST(spec, a_zeroed_spec_is_the_default) {
    struct rf_budget_spec spec = {0};
    uint64_t limit, floor_bytes;
    rf_budget_eval(&spec, 1000, &limit, &floor_bytes);
    RF_ASSERT_INT(limit, 700);
    RF_ASSERT_INT(floor_bytes, 300);
}

static const struct {
    const char *text, *says, *also;
} refused[] = {
    {"", "part 1", "empty"},
    {" ", "part 1", "empty"},
    {"70%,", "part 2", "empty"},
    {",70%", "part 1", "empty"},
    {"70%,,5G", "part 2", "empty"},
    {"0%", "more than 0%", "at character 1"},
    {"0.0%", "more than 0%", "0.0%"},
    {"100.000001%", "at most 100%", "100.000001%"},
    {"101%", "at most 100%", "101%"},
    {"99999999999999999999999999%", "at most 100%", "part 1"},
    {"-5%", "negative", "-5%"},
    {"-5", "negative", "-5"},
    {"5G, -3G", "negative", "at character 5"},
    {"%", "percentage", "at character 1"},
    {".5%", "percentage", ".5%"},
    {"5.%", "percentage", "5.%"},
    {"5,5%x", "part 2", "at character 3"},
    {"1.2.3%", "percentage", "1.2.3%"},
    {"0.0000001%", "six decimals", "0.0000001%"},
    {"70 %", "percentage", "70 %"},
    {"70%%", "percentage", "70%%"},
    {"nan%", "percentage", "nan%"},
    {"inf", "neither", "allowed: 70%, 12GiB"},
    {"1e9", "neither", "1e9"},
    {"0x10", "neither", "0x10"},
    {"+5G", "neither", "+5G"},
    {"5 0G", "neither", "5 0G"},
    {"12XiB", "12XiB", "keep=2GiB"},
    {"18446744073709551616", "64 bits", "part 1"},
    {"17179869184GiB", "64 bits", "part 1"},
    {"keep=", "keep= wants", "at character 1"},
    {"keep=100%", "no budget", "keep=100%"},
    {"keep=250%", "no budget", "keep=250%"},
    {"keep=-1G", "neither", "keep=-1G"},
    {"keep= 1G", "neither", "keep= 1G"},
    {"Keep=1G", "neither", "Keep=1G"},
    {"keep=1G=2G", "neither", "keep=1G=2G"},
    {"part=", "ID:BYTES", "part="},
    {"part=:5", "ID:BYTES", "part=:5"},
    {"part=1-2-3", "ID:BYTES", "part=1-2-3"},
    {"part=1-2-3:", "BYTES", "part=1-2-3:"},
    {"part=1-2-3:0", "BYTES", "part=1-2-3:0"},
    {"part=1-2-3:5G", "BYTES", "part=1-2-3:5G"},
    {"part=1-2-3:18446744073709551616", "BYTES", "part="},
    {"part=../x:5", "ID:BYTES", "part=../x:5"},
    {"part=1-2-3:5,part=1-2-3:5", "only one", "part 2"},
    {"\x01\x1b[31m", "\"??[31m\"", "allowed"},
    {"\xd9\xa1%", "\"??%\"", "allowed"},
};

RF_TEST(spec, refusals_name_the_part_and_what_is_allowed) {
    for (size_t i = 0; i < RF_COUNT(refused); i++) {
        struct rf_budget_spec spec, before;
        memset(&spec, 0x5a, sizeof spec);
        before = spec;
        rf_status status = rf_budget_parse(refused[i].text, &spec);
        if (status != RF_E_SYNTAX) RF_FAIL("\"%s\" was taken", refused[i].text);
        RF_ASSERT_CONTAINS(rf_error_text(), refused[i].says);
        RF_ASSERT_CONTAINS(rf_error_text(), refused[i].also);
        RF_ASSERT_CONTAINS(rf_error_text(), "allowed:");
        RF_ASSERT(memcmp(&spec, &before, sizeof spec) == 0);
    }
    struct rf_budget_spec spec;
    RF_ASSERT_STATUS(rf_budget_parse(NULL, &spec), RF_E_INVALID);
    RF_ASSERT_STATUS(rf_budget_parse("70%", NULL), RF_E_INVALID);
}

RF_TEST(spec, overlong_text_is_cut_in_the_message_only) {
    static char text[100001];
    memset(text, '7', sizeof text - 2);
    struct rf_budget_spec spec;
    RF_ASSERT_STATUS(rf_budget_parse(text, &spec), RF_E_SYNTAX);
    RF_ASSERT_CONTAINS(rf_error_text(), "77...");
    RF_ASSERT(strchr(rf_error_text(), '\n') == NULL);
    text[sizeof text - 2] = '%';
    RF_ASSERT_STATUS(rf_budget_parse(text, &spec), RF_E_SYNTAX);
    /* Many parts are no trouble. */
    size_t used = 0;
    while (used + 8 < sizeof text) used += (size_t)sprintf(text + used, "%s70%%", used ? "," : "");
    RF_ASSERT_OK(rf_budget_parse(text, &spec));
}

RF_TEST(spec, the_locale_does_not_matter) {
    /* Where a comma is the decimal point, as on many desktops; harmless where not installed. */
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "C.UTF-8"};
    for (size_t i = 0; i < RF_COUNT(names); i++) {
        setlocale(LC_ALL, names[i]);
        RF_ASSERT(parsed("12.5%").percent == 12.5);
        RF_ASSERT(parsed("1.5K").cap_bytes == 1536);
        struct rf_budget_spec two = parsed("1,5");
        RF_ASSERT(two.cap_bytes == 1);
    }
    setlocale(LC_ALL, "C");
}

/* What holds for every spec that is taken, whatever it is. */
static void check_properties(const struct rf_budget_spec *spec, uint64_t base) {
    uint64_t limit, floor_bytes, less_limit, less_floor;
    rf_budget_eval(spec, base, &limit, &floor_bytes);
    RF_ASSERT(limit <= base);
    if (spec->has_cap) RF_ASSERT(limit <= spec->cap_bytes);
    if (spec->has_part) RF_ASSERT(limit <= spec->part_bytes);
    if (spec->has_keep) RF_ASSERT(floor_bytes >= spec->keep_bytes);
    if (spec->has_keep || spec->has_keep_percent)
        RF_ASSERT(limit == 0 || limit + floor_bytes <= base);
    else
        RF_ASSERT(floor_bytes <= base - limit && floor_bytes <= base / 10 * 3 + 3);
    /* More memory never means less budget. */
    rf_budget_eval(spec, base / 2, &less_limit, &less_floor);
    RF_ASSERT(less_limit <= limit && less_floor <= floor_bytes);
}

RF_TEST(spec, seeded_mutations, .timeout_ms = 30000) {
    static const char *const seeds[] = {"70%", "12GiB,keep=2GiB", "keep=30%,50%,1.5G",
                                        "part=12-3-0123456789abcdef:4096", "0.5%,keep=12.25%"};
    static const char alphabet[] = "0123456789.,%=:- \tkeparGiBMT\x01\xff";
    struct rf_random random = {rf_test_seed() + 2};
    int taken = 0, turned_down = 0;
    for (int i = 0; i < 200000; i++) {
        char text[160];
        snprintf(text, sizeof text, "%s", seeds[rf_random_below(&random, RF_COUNT(seeds))]);
        for (uint64_t edits = rf_random_below(&random, 4); edits; edits--) {
            size_t length = strlen(text);
            size_t at = rf_random_below(&random, length + 1);
            char with = alphabet[rf_random_below(&random, sizeof alphabet - 1)];
            switch (rf_random_below(&random, 3)) {
            case 0:
                if (at < length) text[at] = with;
                break;
            case 1:
                if (length + 2 < sizeof text) {
                    memmove(text + at + 1, text + at, length - at + 1);
                    text[at] = with;
                }
                break;
            default:
                if (at < length) memmove(text + at, text + at + 1, length - at);
            }
        }
        struct rf_budget_spec spec;
        rf_status status = rf_budget_parse(text, &spec);
        RF_ASSERT(status == RF_OK || status == RF_E_SYNTAX);
        if (status) {
            turned_down++;
            continue;
        }
        taken++;
        check_properties(&spec, rf_random_next(&random) >> rf_random_below(&random, 64));
        check_properties(&spec, UINT64_MAX);
    }
    RF_NOTE("%d taken, %d refused", taken, turned_down);
    RF_ASSERT(taken > 10000 && turned_down > 10000);
}
