/* The helper that reads and fills structs of other versions, with a struct that has grown. */
#include <rocmforge/test.h>

#include "base/base.h"
#include "base/struct_size.h"

struct first {
    size_t struct_size;
    int64_t a;
};
struct now {
    size_t struct_size;
    int64_t a;
    int64_t b, c;
};

static rf_status read_now(struct now *own, const void *given) {
    return RF_PARAMS_READ_SINCE(struct now, b, own, (const struct now *)given, "f");
}

RF_TEST(struct_size, missing_fields_are_zero) {
    struct now own;
    memset(&own, 0xa5, sizeof own);
    const struct first old = {sizeof old, 7};
    RF_ASSERT_OK(read_now(&own, &old));
    RF_EXPECT_UINT(own.struct_size, sizeof own);
    RF_EXPECT_INT(own.a, 7);
    RF_EXPECT_INT(own.b, 0);
    RF_EXPECT_INT(own.c, 0);
    const struct now between = {offsetof(struct now, c), 7, 8, 9}; /* of a version that had no c */
    RF_ASSERT_OK(read_now(&own, &between));
    RF_EXPECT_INT(own.b, 8);
    RF_EXPECT_INT(own.c, 0);
}

RF_TEST(struct_size, unknown_bytes_must_be_zero) {
    struct {
        struct now known;
        int64_t newer[2];
    } given = {{sizeof given, 1, 2, 3}, {0, 0}};
    struct now own = {0};
    RF_ASSERT_OK(read_now(&own, &given));
    RF_EXPECT_INT(own.c, 3);
    RF_EXPECT_UINT(own.struct_size, sizeof own);
    own = (struct now){.a = 42};
    given.newer[1] = INT64_C(1) << 56;
    RF_EXPECT_STATUS(read_now(&own, &given), RF_E_INVALID);
    RF_EXPECT_TEXT(rf_error_text(),
                   "f: struct now has 48 bytes, this library knows the first 32 of them, and byte 47 is set: the "
                   "program uses a field of a newer library; install that one, or leave the field 0");
    RF_EXPECT_INT(own.a, 42);
}

RF_TEST(struct_size, sizes_that_never_were) {
    struct now given = {0}, own;
    RF_EXPECT_STATUS(read_now(&own, NULL), RF_E_INVALID);
    RF_EXPECT_TEXT(rf_error_text(), "f: struct now is NULL");
    RF_EXPECT_STATUS(read_now(&own, &given), RF_E_INVALID);
    RF_EXPECT_TEXT(rf_error_text(),
                   "f: the struct_size of struct now is not set, this library's has 32 bytes; declare "
                   "it with RF_PARAMS(struct now, name)");
    const size_t wrong[] = {1, 8, 15, 17, 31, 33, RF_STRUCT_BYTES_MAX + 8, SIZE_MAX, SIZE_MAX - 7};
    for (size_t i = 0; i < RF_COUNT(wrong); i++) {
        given.struct_size = wrong[i];
        RF_EXPECT_STATUS(read_now(&own, &given), RF_E_INVALID);
        RF_EXPECT_CONTAINS(rf_error_text(),
                           "was never its size: this library's has 32 bytes, the first release's had "
                           "16");
        RF_EXPECT_STATUS(RF_RESULT_CHECK(struct now, &given, "f"), RF_E_INVALID);
    }
}

RF_TEST(struct_size, results_are_written_up_to_the_callers_size) {
    const struct now filled = {sizeof filled, 1, 2, 3};
    for (size_t size = 16; size <= 56; size += 8) {
        unsigned char given[64];
        int64_t fields[7];
        RF_TRACE("struct_size %zu", size);
        memset(given, 0xa5, sizeof given);
        memcpy(given, &size, sizeof size);
        rf_result_write(given, &filled, sizeof filled);
        memcpy(fields, given, sizeof fields);
        RF_EXPECT_UINT(fields[0], size);
        for (size_t i = 1; i < size / 8; i++) RF_EXPECT_INT(fields[i], i <= 3 ? (int64_t)i : 0);
        for (size_t i = size; i < sizeof given; i++) RF_EXPECT_UINT(given[i], 0xa5);
    }
}
