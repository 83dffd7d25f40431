/* GGUF files that are right: what the writer writes the reader reads, on disk, in memory, in parts;
 * and the real ones. Those that are wrong: test_gguf_malformed.c. */
#include <rocmforge/test.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gguf_property.h"
#include "gguf_testing.h"
#include "support/gguf_write.h"

static struct rf_gguf_string string_of(const char *text) {
    return (struct rf_gguf_string){text, strlen(text)};
}

/* ---- round trips ---- */

static void write_every_value(struct rf_gguf_writer *writer) {
    const struct rf_gguf_string strings[] = {
        string_of("<unk>"), string_of(""), {"\xff\x00\xe2\x96\x81", 5}, string_of("last")};
    const int16_t shorts[] = {-32768, -1, 0, 32767};
    const uint64_t longs[] = {0, UINT64_MAX};
    const float floats[] = {1.5f, -0.0f, 1e30f};
    const unsigned char bools[] = {1, 0, 1};
    rf_gguf_write_value(writer, "u8", RF_GGUF_U8, &(uint8_t){255});
    rf_gguf_write_value(writer, "i8", RF_GGUF_I8, &(int8_t){-128});
    rf_gguf_write_value(writer, "u16", RF_GGUF_U16, &(uint16_t){65535});
    rf_gguf_write_value(writer, "i16", RF_GGUF_I16, &(int16_t){-32768});
    rf_gguf_write_u32(writer, "u32", UINT32_MAX);
    rf_gguf_write_value(writer, "i32", RF_GGUF_I32, &(int32_t){INT32_MIN});
    rf_gguf_write_f32(writer, "f32", 0.1f);
    rf_gguf_write_bool(writer, "true", true);
    rf_gguf_write_bool(writer, "false", false);
    rf_gguf_write_string(writer, "string", "a text");
    rf_gguf_write_string(writer, "empty", "");
    rf_gguf_write_value(writer, "u64", RF_GGUF_U64, &(uint64_t){UINT64_MAX});
    rf_gguf_write_value(writer, "i64", RF_GGUF_I64, &(int64_t){INT64_MIN});
    rf_gguf_write_value(writer, "f64", RF_GGUF_F64, &(double){1e300});
    rf_gguf_write_strings(writer, "strings", strings, 4);
    rf_gguf_write_array(writer, "shorts", RF_GGUF_I16, shorts, 4);
    rf_gguf_write_array(writer, "longs", RF_GGUF_U64, longs, 2);
    rf_gguf_write_array(writer, "floats", RF_GGUF_F32, floats, 3);
    rf_gguf_write_array(writer, "bools", RF_GGUF_BOOL, bools, 3);
    rf_gguf_write_array(writer, "none", RF_GGUF_U32, NULL, 0);
}

static void expect_every_value(const struct rf_gguf *gguf) {
    uint32_t u32;
    uint64_t u64;
    int64_t i64;
    float f32;
    double f64;
    bool b;
    struct rf_gguf_string string;
    struct rf_gguf_array array;
    RF_ASSERT_UINT(rf_gguf_value_count(gguf), 20);
    RF_ASSERT_TEXT(rf_gguf_value_at(gguf, 0)->key, "u8");
    RF_ASSERT(rf_gguf_value_at(gguf, 20) == NULL);
    RF_ASSERT_OK(rf_gguf_get_u32(gguf, "u8", &u32));
    RF_EXPECT_UINT(u32, 255);
    RF_ASSERT_OK(rf_gguf_get_i64(gguf, "i8", &i64));
    RF_EXPECT_INT(i64, -128);
    RF_ASSERT_OK(rf_gguf_get_u64(gguf, "u16", &u64));
    RF_EXPECT_UINT(u64, 65535);
    RF_ASSERT_OK(rf_gguf_get_i64(gguf, "i16", &i64));
    RF_EXPECT_INT(i64, -32768);
    RF_ASSERT_OK(rf_gguf_get_u32(gguf, "u32", &u32));
    RF_EXPECT_UINT(u32, UINT32_MAX);
    RF_ASSERT_OK(rf_gguf_get_i64(gguf, "i32", &i64));
    RF_EXPECT_INT(i64, INT32_MIN);
    RF_ASSERT_OK(rf_gguf_get_f32(gguf, "f32", &f32));
    RF_EXPECT(f32 == 0.1f);
    RF_ASSERT_OK(rf_gguf_get_f64(gguf, "f32", &f64));
    RF_EXPECT(f64 == (double)0.1f);
    RF_ASSERT_OK(rf_gguf_get_bool(gguf, "true", &b));
    RF_EXPECT(b);
    RF_ASSERT_OK(rf_gguf_get_bool(gguf, "false", &b));
    RF_EXPECT(!b);
    RF_ASSERT_OK(rf_gguf_get_string(gguf, "string", &string));
    RF_EXPECT(rf_gguf_string_is(string, "a text") && !rf_gguf_string_is(string, "a tex"));
    RF_ASSERT_OK(rf_gguf_get_string(gguf, "empty", &string));
    RF_EXPECT(rf_gguf_string_is(string, "") && !rf_gguf_string_is(string, "x"));
    RF_ASSERT_OK(rf_gguf_get_u64(gguf, "u64", &u64));
    RF_EXPECT_UINT(u64, UINT64_MAX);
    RF_ASSERT_OK(rf_gguf_get_i64(gguf, "i64", &i64));
    RF_EXPECT_INT(i64, INT64_MIN);
    RF_ASSERT_OK(rf_gguf_get_f64(gguf, "f64", &f64));
    RF_EXPECT(f64 == 1e300);

    static const char *const texts[] = {"<unk>", "", NULL, "last"};
    struct rf_gguf_cursor cursor = {0};
    RF_ASSERT_OK(rf_gguf_get_array(gguf, "strings", RF_GGUF_STRING, &array));
    RF_ASSERT_UINT(array.count, 4);
    while (rf_gguf_array_next_string(&array, &cursor, &string)) {
        const char *text = texts[cursor.index - 1];
        RF_EXPECT(text ? rf_gguf_string_is(string, text)
                       : string.bytes == 5 && memcmp(string.text, "\xff\x00\xe2\x96\x81", 5) == 0);
    }
    RF_EXPECT_UINT(cursor.index, 4);
    RF_ASSERT_OK(rf_gguf_get_int_array(gguf, "shorts", &array));
    RF_EXPECT_INT(rf_gguf_array_int(&array, 0), -32768);
    RF_EXPECT_INT(rf_gguf_array_int(&array, 3), 32767);
    RF_EXPECT_INT(rf_gguf_array_int(&array, 4), 0);
    RF_ASSERT_OK(rf_gguf_get_array(gguf, "longs", RF_GGUF_U64, &array));
    RF_EXPECT_INT(rf_gguf_array_int(&array, 1), INT64_MAX);
    RF_ASSERT_OK(rf_gguf_get_float_array(gguf, "floats", &array));
    RF_EXPECT(rf_gguf_array_float(&array, 0) == 1.5 && signbit(rf_gguf_array_float(&array, 1)));
    RF_EXPECT(rf_gguf_array_float(&array, 2) == (double)1e30f && rf_gguf_array_float(&array, 3) == 0);
    RF_ASSERT_OK(rf_gguf_get_array(gguf, "bools", RF_GGUF_BOOL, &array));
    RF_EXPECT_INT(rf_gguf_array_int(&array, 2), 1);
    RF_ASSERT_OK(rf_gguf_get_array(gguf, "none", RF_GGUF_U32, &array));
    RF_EXPECT_UINT(array.count, 0);
}

RF_TEST(gguf, every_value_type_comes_back) {
    struct rf_gguf_writer *writer = NULL;
    struct rf_gguf *gguf = NULL;
    const char *path = scratch_path("values.gguf");
    RF_ASSERT_OK(rf_gguf_writer_create(&writer));
    write_every_value(writer);
    RF_ASSERT_OK(rf_gguf_writer_finish(writer, path));
    rf_gguf_writer_destroy(&writer);
    RF_ASSERT(writer == NULL);
    RF_ASSERT_OK(rf_gguf_open(path, &gguf));
    RF_ASSERT_TEXT(rf_gguf_path(gguf), path);
    expect_every_value(gguf);
    RF_ASSERT_UINT(rf_gguf_tensor_count(gguf), 0);
    RF_ASSERT_OK(rf_gguf_unchanged(gguf));
    rf_gguf_close(&gguf);
    RF_ASSERT(gguf == NULL);
    rf_gguf_close(&gguf);
}

static const enum rf_dtype file_dtypes[] = {RF_F32,  RF_F16,  RF_BF16, RF_Q4_0, RF_Q4_1, RF_Q5_0,   RF_Q5_1,  RF_Q8_0,
                                            RF_Q2_K, RF_Q3_K, RF_Q4_K, RF_Q5_K, RF_Q6_K, RF_IQ4_NL, RF_IQ4_XS};
#define DTYPE_COUNT (sizeof file_dtypes / sizeof file_dtypes[0])

struct alignment_case {
    const char *label;
    uint32_t alignment; /* 0: not told */
    uint32_t version;
};
static const struct alignment_case alignments[] = {
    {"default", 0, 3}, {"8", 8, 3}, {"64", 64, 3}, {"4096", 4096, 3}, {"version_2", 0, 2}};

RF_TEST_LABELLED_CASES(gguf, every_tensor_type_comes_back, struct alignment_case, alignments) {
    struct rf_gguf_writer *writer = NULL;
    struct rf_gguf *gguf = NULL;
    static unsigned char data[DTYPE_COUNT][3 * 256 * 4];
    const uint64_t shapes[] = {1, 1, 3, 256};
    for (size_t i = 0; i < sizeof data; i++) (&data[0][0])[i] = (unsigned char)(i * 2654435761u >> 13);
    RF_ASSERT_OK(rf_gguf_writer_create(&writer));
    if (c->alignment) RF_ASSERT_OK(rf_gguf_writer_align(writer, c->alignment));
    for (size_t i = 0; i < DTYPE_COUNT; i++) {
        int rank = 2 + (int)(i % 3);
        RF_ASSERT_OK(rf_gguf_write_tensor(writer, rf_dtype_name(file_dtypes[i]), file_dtypes[i], rank,
                                          shapes + 4 - rank, data[i]));
    }
    RF_ASSERT_OK(rf_gguf_write_tensor(writer, "one", RF_F32, 1, (uint64_t[]){1}, data[3]));
    void *bytes;
    size_t size;
    RF_ASSERT_OK(rf_gguf_writer_finish_memory(writer, &bytes, &size));
    rf_gguf_writer_destroy(&writer);
    memcpy((char *)bytes + 4, &c->version, 4);
    const char *path = scratch_path("tensors.gguf");
    write_bytes(path, bytes, size);
    RF_ASSERT_OK(rf_gguf_open(path, &gguf));
    RF_PARAMS(struct rf_gguf_info, info);
    RF_ASSERT_OK(rf_gguf_get_info(gguf, &info));
    RF_EXPECT_UINT(info.version, c->version);
    RF_EXPECT_UINT(info.alignment_bytes, c->alignment ? c->alignment : 32);
    RF_EXPECT_UINT(info.tensor_count, DTYPE_COUNT + 1);
    RF_EXPECT_UINT(info.parameter_count, DTYPE_COUNT * 768 + 1);
    RF_EXPECT_UINT(info.file_bytes, size);
    for (size_t i = 0; i < DTYPE_COUNT; i++) {
        const struct rf_gguf_tensor *tensor = rf_gguf_find_tensor(gguf, rf_dtype_name(file_dtypes[i]));
        RF_TRACE("%s", rf_dtype_name(file_dtypes[i]));
        RF_ASSERT(tensor == rf_gguf_tensor_at(gguf, i));
        RF_ASSERT_INT(tensor->dtype, file_dtypes[i]);
        RF_ASSERT_INT(tensor->rank, 2 + (int)(i % 3));
        for (int d = 0; d < tensor->rank; d++) RF_ASSERT_UINT(tensor->shape[d], shapes[4 - tensor->rank + d]);
        RF_ASSERT_UINT(tensor->bytes, 768 / rf_dtype_block(tensor->dtype) * rf_dtype_block_bytes(tensor->dtype));
        RF_ASSERT_UINT(tensor->offset % info.alignment_bytes, 0);
        RF_ASSERT_BYTES(tensor->data, data[i], tensor->bytes);
        unsigned char copy[3 * 256 * 4];
        RF_ASSERT_OK(rf_gguf_read(gguf, tensor, 3, copy, (size_t)tensor->bytes - 3));
        RF_ASSERT_BYTES(copy, data[i] + 3, tensor->bytes - 3);
        RF_ASSERT_STATUS(rf_gguf_read(gguf, tensor, tensor->bytes - 1, copy, 2), RF_E_INVALID);
        RF_ASSERT_STATUS(rf_gguf_read(gguf, tensor, UINT64_MAX, copy, 2), RF_E_INVALID);
    }
    RF_ASSERT(rf_gguf_find_tensor(gguf, "f3") == NULL && rf_gguf_find_tensor(gguf, "zzz") == NULL);
    RF_ASSERT(rf_gguf_tensor_at(gguf, DTYPE_COUNT + 1) == NULL);
    rf_gguf_close(&gguf);
    RF_ASSERT_OK(rf_gguf_open_memory(bytes, size, NULL, &gguf));
    RF_ASSERT_BYTES(rf_gguf_find_tensor(gguf, "q6_k")->data, data[12], 210);
    rf_gguf_close(&gguf);
    const char *wrong = gguf_reads_soundly(bytes, size, NULL);
    if (wrong) RF_FAIL("%s: %s", wrong, rf_error_text());
    free(bytes);
}

/* ---- getters ---- */

RF_TEST(gguf, a_getter_says_what_is_wrong) {
    struct rf_gguf_writer *writer = NULL;
    struct rf_gguf *gguf = NULL;
    void *bytes;
    size_t size;
    RF_ASSERT_OK(rf_gguf_writer_create(&writer));
    write_every_value(writer);
    RF_ASSERT_OK(rf_gguf_writer_finish_memory(writer, &bytes, &size));
    rf_gguf_writer_destroy(&writer);
    RF_ASSERT_OK(rf_gguf_open_memory(bytes, size, "m", &gguf));
    uint32_t u32 = 77;
    uint64_t u64 = 77;
    int64_t i64 = 77;
    float f32 = 77;
    bool b = false;
    struct rf_gguf_string string = {NULL, 0};
    struct rf_gguf_array array = {0};
    RF_ASSERT_STATUS(rf_gguf_get_u32(gguf, "absent", &u32), RF_E_NOT_FOUND);
    RF_ASSERT_CONTAINS(rf_error_text(), "m: has no key \"absent\"");
    RF_ASSERT_STATUS(rf_gguf_get_u32(gguf, "string", &u32), RF_E_SYNTAX);
    RF_ASSERT_TEXT(rf_error_text(), "m: the key \"string\" must be of type u32, but is of type string");
    RF_ASSERT_STATUS(rf_gguf_get_u32(gguf, "u64", &u32), RF_E_SYNTAX);
    RF_ASSERT_TEXT(rf_error_text(), "m: the key \"u64\" is 18446744073709551615 (u64), which does not fit u32");
    RF_ASSERT_STATUS(rf_gguf_get_u64(gguf, "i8", &u64), RF_E_SYNTAX);
    RF_ASSERT_TEXT(rf_error_text(), "m: the key \"i8\" is -128 (i8), which does not fit u64");
    RF_ASSERT_STATUS(rf_gguf_get_i64(gguf, "u64", &i64), RF_E_SYNTAX);
    RF_ASSERT_STATUS(rf_gguf_get_i64(gguf, "true", &i64), RF_E_SYNTAX);
    RF_ASSERT_STATUS(rf_gguf_get_f32(gguf, "u32", &f32), RF_E_SYNTAX);
    RF_ASSERT_CONTAINS(rf_error_text(), "must be of type f32, but is of type u32");
    RF_ASSERT_STATUS(rf_gguf_get_f32(gguf, "f64", &f32), RF_E_SYNTAX);
    RF_ASSERT_CONTAINS(rf_error_text(), "does not fit f32");
    RF_ASSERT_STATUS(rf_gguf_get_bool(gguf, "u8", &b), RF_E_SYNTAX);
    RF_ASSERT_STATUS(rf_gguf_get_string(gguf, "strings", &string), RF_E_SYNTAX);
    RF_ASSERT_CONTAINS(rf_error_text(), "must be of type string, but is of type array of string");
    RF_ASSERT_STATUS(rf_gguf_get_array(gguf, "shorts", RF_GGUF_STRING, &array), RF_E_SYNTAX);
    RF_ASSERT_CONTAINS(rf_error_text(), "must be of type array of string, but is of type array of i16");
    RF_ASSERT_STATUS(rf_gguf_get_array(gguf, "u8", RF_GGUF_U8, &array), RF_E_SYNTAX);
    RF_ASSERT_STATUS(rf_gguf_get_int_array(gguf, "floats", &array), RF_E_SYNTAX);
    RF_ASSERT_STATUS(rf_gguf_get_int_array(gguf, "bools", &array), RF_E_SYNTAX);
    RF_ASSERT_STATUS(rf_gguf_get_float_array(gguf, "longs", &array), RF_E_SYNTAX);
    RF_ASSERT_STATUS(rf_gguf_get_array(gguf, "absent", RF_GGUF_U8, &array), RF_E_NOT_FOUND);
    RF_ASSERT_STATUS(rf_gguf_get_int_array(gguf, "absent", &array), RF_E_NOT_FOUND);
    RF_ASSERT_STATUS(rf_gguf_get_float_array(gguf, "absent", &array), RF_E_NOT_FOUND);
    RF_ASSERT_CONTAINS(rf_error_text(), "m: has no key \"absent\"");
    RF_ASSERT(u32 == 77 && u64 == 77 && i64 == 77 && f32 == 77 && !b && !string.text && !array.data);
    rf_gguf_close(&gguf);
    free(bytes);
}

/* ---- the public view ---- */

struct parts_seen {
    char text[512];
};

static bool note_part(void *user, const struct rf_model_part *part) {
    static const char *const names[] = {"embedding", "layer", "output", "other"};
    struct parts_seen *seen = user;
    size_t used = strlen(seen->text);
    snprintf(seen->text + used, sizeof seen->text - used, "%s %u: %llu, %llu, %llu; ", names[part->kind], part->layer,
             (unsigned long long)part->tensor_count, (unsigned long long)part->parameter_count,
             (unsigned long long)part->weight_bytes);
    return true;
}

static struct rf_gguf *open_model(struct rf_gguf_writer **writer, void **bytes) {
    struct rf_gguf *gguf = NULL;
    size_t size;
    RF_ASSERT_OK(rf_gguf_writer_finish_memory(*writer, bytes, &size));
    rf_gguf_writer_destroy(writer);
    RF_ASSERT_OK(rf_gguf_open_memory(*bytes, size, "model", &gguf));
    return gguf;
}

RF_TEST(gguf, parts_and_cache_are_added_up) {
    static const float data[64];
    static const char *const names[] = {"output.weight",     "blk.10.a.weight",    "token_embd.weight",
                                        "blk.2.a.weight",    "output_norm.weight", "blk.2.b.weight",
                                        "rope_freqs.weight", "blk.x.weight",       "blk.99999999999.w"};
    struct rf_gguf_writer *writer = NULL;
    void *bytes;
    RF_ASSERT_OK(rf_gguf_writer_create(&writer));
    rf_gguf_write_string(writer, "general.architecture", "llama");
    rf_gguf_write_u32(writer, "llama.block_count", 3);
    rf_gguf_write_u32(writer, "llama.embedding_length", 512);
    rf_gguf_write_u32(writer, "llama.attention.head_count", 8);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        rf_gguf_write_tensor(writer, names[i], RF_F32, 1, (uint64_t[]){i + 1}, data);
    struct rf_gguf *gguf = open_model(&writer, &bytes);
    struct parts_seen seen = {""};
    RF_ASSERT_OK(rf_gguf_visit_parts(gguf, note_part, &seen));
    RF_EXPECT_TEXT(seen.text, "embedding 0: 1, 3, 12; layer 2: 2, 10, 40; layer 10: 1, 2, 8; output 0: 2, 6, 24; "
                              "other 0: 3, 24, 96; ");
    uint64_t kv;
    RF_ASSERT_OK(rf_gguf_kv_bytes(gguf, 1024, RF_F16, &kv)); /* MHA: 3 layers x 8 heads x (64 + 64) */
    RF_EXPECT_UINT(kv, 1024ull * 3 * 8 * 128 * 2);
    RF_ASSERT_OK(rf_gguf_kv_bytes(gguf, 1024, RF_Q8_0, &kv));
    RF_EXPECT_UINT(kv, 1024ull * 3 * 8 * 128 / 32 * 34);
    RF_ASSERT_STATUS(rf_gguf_kv_bytes(gguf, 1024, RF_DTYPE_COUNT, &kv), RF_E_INVALID);
    RF_PARAMS(struct rf_gguf_info, info);
    RF_ASSERT_OK(rf_gguf_get_info(gguf, &info));
    RF_EXPECT(!info.tied_output);
    RF_EXPECT_TEXT(info.architecture, "llama");
    RF_EXPECT_TEXT(info.name, "");
    rf_gguf_close(&gguf);
    free(bytes);
}

RF_TEST(gguf, cache_of_uneven_heads) {
    struct rf_gguf_writer *writer = NULL;
    void *bytes;
    uint64_t kv = 5;
    RF_ASSERT_OK(rf_gguf_writer_create(&writer));
    rf_gguf_write_string(writer, "general.architecture", "x");
    rf_gguf_write_u32(writer, "x.block_count", 3);
    rf_gguf_write_u32(writer, "x.attention.key_length", 48);
    rf_gguf_write_u32(writer, "x.attention.value_length", 16);
    rf_gguf_write_array(writer, "x.attention.head_count_kv", RF_GGUF_I32, (int32_t[]){4, 0, 2}, 3);
    struct rf_gguf *gguf = open_model(&writer, &bytes);
    RF_ASSERT_OK(rf_gguf_kv_bytes(gguf, 10, RF_F32, &kv));
    RF_EXPECT_UINT(kv, 10 * 6 * 64 * 4);
    rf_gguf_close(&gguf);
    free(bytes);

    static const struct {
        uint32_t layers;
        int32_t heads[3];
        const char *part;
    } wrong[] = {{4, {1, 1, 1}, "each of 4 layers"}, {3, {1, -1, 1}, "each of 3 layers"}};
    for (size_t i = 0; i < 2; i++) {
        RF_ASSERT_OK(rf_gguf_writer_create(&writer));
        rf_gguf_write_string(writer, "general.architecture", "x");
        rf_gguf_write_u32(writer, "x.block_count", wrong[i].layers);
        rf_gguf_write_array(writer, "x.attention.head_count_kv", RF_GGUF_I32, wrong[i].heads, 3);
        gguf = open_model(&writer, &bytes);
        RF_EXPECT_STATUS(rf_gguf_kv_bytes(gguf, 10, RF_F32, &kv), RF_E_SYNTAX);
        RF_EXPECT_CONTAINS(rf_error_text(), wrong[i].part);
        rf_gguf_close(&gguf);
        free(bytes);
    }
    /* Numbers that multiply beyond 64 bits. */
    RF_ASSERT_OK(rf_gguf_writer_create(&writer));
    rf_gguf_write_string(writer, "general.architecture", "x");
    rf_gguf_write_value(writer, "x.block_count", RF_GGUF_U64, &(uint64_t){UINT64_MAX});
    rf_gguf_write_u32(writer, "x.attention.head_count", 1);
    rf_gguf_write_value(writer, "x.embedding_length", RF_GGUF_U64, &(uint64_t){UINT64_MAX});
    gguf = open_model(&writer, &bytes);
    RF_EXPECT_STATUS(rf_gguf_kv_bytes(gguf, 10, RF_Q8_0, &kv), RF_E_SYNTAX);
    RF_EXPECT_UINT(kv, 10 * 6 * 64 * 4);
    rf_gguf_close(&gguf);
    free(bytes);
}

RF_TEST(gguf, values_are_shown_safely) {
    struct rf_gguf_writer *writer = NULL;
    void *bytes;
    static char long_text[1000];
    memset(long_text, 'x', sizeof long_text - 1);
    static const char euro[] = "\xe2\x82\xac";
    static char euros[3 * 100 + 1];
    for (int i = 0; i < 100; i++) memcpy(euros + 3 * i, euro, 3);
    int32_t numbers[100] = {-1, 2, 3};
    const struct rf_gguf_string strings[] = {string_of("a\"b"), string_of("\x1b[2J"), string_of(long_text)};
    RF_ASSERT_OK(rf_gguf_writer_create(&writer));
    rf_gguf_write_string(writer, "escapes", "a\nb\t\x1b[31m\x7f\xc2\x9b\xff\xe2\x82 \xc3\xa9 \xed\xa0\x80 \xc0\x80");
    rf_gguf_write_string(writer, "long", long_text);
    rf_gguf_write_string(writer, "euros", euros);
    rf_gguf_write_array(writer, "numbers", RF_GGUF_I32, numbers, 100);
    rf_gguf_write_array(writer, "three", RF_GGUF_I32, numbers, 3);
    rf_gguf_write_strings(writer, "strings", strings, 3);
    rf_gguf_write_array(writer, "empty", RF_GGUF_F64, NULL, 0);
    rf_gguf_write_f32(writer, "tenth", 0.1f);
    struct rf_gguf *gguf = open_model(&writer, &bytes);
    RF_PARAMS(struct rf_gguf_metadata, value);
    RF_ASSERT_OK(rf_gguf_metadata_find(gguf, "escapes", &value));
    RF_EXPECT_TEXT(value.shown,
                   "a\\nb\\t\\x1b[31m\\x7f\\xc2\\x9b\\xff\\xe2\\x82 \xc3\xa9 \\xed\\xa0\\x80 \\xc0\\x80");
    RF_ASSERT_OK(rf_gguf_metadata_find(gguf, "long", &value));
    RF_EXPECT_UINT(value.text_bytes, 999);
    RF_EXPECT(strlen(value.shown) < sizeof value.shown && strlen(value.shown) > 150);
    RF_EXPECT_TEXT(value.shown + strlen(value.shown) - 4, "x\xe2\x80\xa6");
    RF_ASSERT_OK(rf_gguf_metadata_find(gguf, "euros", &value)); /* whole characters, then the mark */
    RF_EXPECT_UINT(strlen(value.shown) % 3, 0);
    RF_EXPECT_TEXT(value.shown + strlen(value.shown) - 6, "\xe2\x82\xac\xe2\x80\xa6");
    RF_ASSERT_OK(rf_gguf_metadata_find(gguf, "numbers", &value));
    RF_EXPECT_TEXT(value.shown, "[-1, 2, 3, 0, 0, 0, 0, 0, \xe2\x80\xa6]");
    RF_EXPECT_TEXT(value.type_name, "array of i32");
    RF_EXPECT_UINT(value.element_count, 100);
    RF_ASSERT_OK(rf_gguf_metadata_find(gguf, "three", &value));
    RF_EXPECT_TEXT(value.shown, "[-1, 2, 3]");
    RF_ASSERT_OK(rf_gguf_metadata_find(gguf, "strings", &value));
    RF_EXPECT_CONTAINS(value.shown, "[\"a\"b\", \"\\x1b[2J\", \"xxxx");
    RF_EXPECT_CONTAINS(value.shown, "x\xe2\x80\xa6\"]");
    RF_ASSERT_OK(rf_gguf_metadata_find(gguf, "empty", &value));
    RF_EXPECT_TEXT(value.shown, "[]");
    RF_ASSERT_OK(rf_gguf_metadata_find(gguf, "tenth", &value));
    RF_EXPECT_TEXT(value.shown, "0.1");
    RF_ASSERT_OK(rf_gguf_metadata_element(gguf, "strings", 1, &value));
    RF_EXPECT_TEXT(value.shown, "\\x1b[2J");
    RF_EXPECT_TEXT(value.type_name, "string");
    RF_ASSERT_OK(rf_gguf_metadata_element(gguf, "numbers", 0, &value));
    RF_EXPECT_INT(value.int_value, -1);
    RF_ASSERT_STATUS(rf_gguf_metadata_element(gguf, "numbers", 100, &value), RF_E_INVALID);
    RF_ASSERT_STATUS(rf_gguf_metadata_element(gguf, "tenth", 0, &value), RF_E_INVALID);
    RF_ASSERT_STATUS(rf_gguf_metadata_at(gguf, 8, &value), RF_E_INVALID);
    RF_ASSERT_STATUS(rf_gguf_metadata_find(gguf, "absent", &value), RF_E_NOT_FOUND);
    /* The file may be changed while it is open: the second string's length then reaches past the array's end. */
    struct rf_gguf_array array;
    RF_ASSERT_OK(rf_gguf_get_array(gguf, "strings", RF_GGUF_STRING, &array));
    unsigned char *second = (unsigned char *)bytes + (array.data - (const unsigned char *)bytes) + 8 + 3;
    RF_ASSERT_INT(second[0], 4);
    memset(second, 0xff, 8);
    RF_ASSERT_OK(rf_gguf_metadata_find(gguf, "strings", &value));
    RF_EXPECT_TEXT(value.shown, "[\"a\"b\"]");
    value.struct_size = 1;
    RF_ASSERT_STATUS(rf_gguf_metadata_at(gguf, 0, &value), RF_E_INVALID);
    rf_gguf_close(&gguf);
    free(bytes);
}

/* ---- the writer ---- */

RF_TEST(gguf, writer_refuses_and_remembers) {
    static const float data[256];
    static const struct {
        const char *name;
        enum rf_dtype dtype;
        int rank;
        uint64_t size;
        const char *part;
    } wrong[] = {
        {"", RF_F32, 1, 4, "1 to 63 bytes"}, {"t", RF_F32, 5, 4, "rank 5"},         {"t", RF_I8, 1, 4, "i8"},
        {"t", RF_F32, 1, 0, "dimension 0"},  {"t", RF_Q4_0, 1, 33, "blocks of 32"},
    };
    struct rf_gguf_writer *writer = NULL;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        RF_ASSERT_OK(rf_gguf_writer_create(&writer));
        const uint64_t shape[5] = {wrong[i].size, 1, 1, 1, 1};
        RF_EXPECT_STATUS(rf_gguf_write_tensor(writer, wrong[i].name, wrong[i].dtype, wrong[i].rank, shape, data),
                         RF_E_INVALID);
        RF_EXPECT_CONTAINS(rf_error_text(), wrong[i].part);
        rf_gguf_writer_destroy(&writer);
    }
    void *bytes = NULL;
    size_t size = 0;
    RF_ASSERT_OK(rf_gguf_writer_create(&writer));
    RF_ASSERT_OK(rf_gguf_write_u32(writer, "twice", 1));
    RF_ASSERT_STATUS(rf_gguf_write_bool(writer, "twice", true), RF_E_INVALID);
    RF_ASSERT_CONTAINS(rf_error_text(), "\"twice\"");
    (void)rf_parse_bytes("x", &(uint64_t){0}); /* another failure in between does not replace the reason */
    RF_ASSERT_STATUS(rf_gguf_write_u32(writer, "other", 1), RF_E_INVALID);
    RF_ASSERT_STATUS(rf_gguf_writer_finish_memory(writer, &bytes, &size), RF_E_INVALID);
    RF_ASSERT_CONTAINS(rf_error_text(), "\"twice\"");
    RF_ASSERT(!bytes && !size);
    rf_gguf_writer_destroy(&writer);

    RF_ASSERT_OK(rf_gguf_writer_create(&writer));
    RF_ASSERT_OK(rf_gguf_write_u32(writer, "k", 1));
    RF_ASSERT_STATUS(rf_gguf_writer_finish(writer, scratch_path("no/such/folder.gguf")), RF_E_IO);
    RF_ASSERT_STATUS(rf_gguf_writer_align(writer, 48), RF_E_INVALID);
    rf_gguf_writer_destroy(&writer);
}

/* ---- the real ones ---- */

static void expect_oracle(const char *path, const char *architecture, enum rf_dtype dtype) {
    struct rf_gguf *gguf = NULL;
    RF_ASSERT_OK(rf_gguf_open(path, &gguf));
    RF_PARAMS(struct rf_gguf_info, info);
    RF_ASSERT_OK(rf_gguf_get_info(gguf, &info));
    RF_EXPECT_TEXT(info.architecture, architecture);
    const struct rf_gguf_tensor *tensor = rf_gguf_find_tensor(gguf, "blk.0.ffn_up.weight");
    RF_ASSERT(tensor != NULL);
    RF_EXPECT_INT(tensor->dtype, dtype);
    char key[64];
    uint32_t embedding, layers;
    snprintf(key, sizeof key, "%s.embedding_length", architecture);
    RF_ASSERT_OK(rf_gguf_get_u32(gguf, key, &embedding));
    snprintf(key, sizeof key, "%s.block_count", architecture);
    RF_ASSERT_OK(rf_gguf_get_u32(gguf, key, &layers));
    RF_EXPECT_INT(tensor->rank, 2);
    RF_EXPECT_UINT(tensor->shape[1], embedding); /* row-major: a row is as long as the embedding */
    uint64_t kv;
    RF_EXPECT_OK(rf_gguf_kv_bytes(gguf, 1, RF_F16, &kv));
    struct parts_seen seen = {""};
    RF_ASSERT_OK(rf_gguf_visit_parts(gguf, note_part, &seen));
    char last[32];
    snprintf(last, sizeof last, "layer %u:", layers - 1);
    RF_EXPECT_CONTAINS(seen.text, "embedding 0:");
    RF_EXPECT_CONTAINS(seen.text, last);
    rf_gguf_close(&gguf);
    size_t size;
    unsigned char *bytes = read_bytes(path, &size);
    bool accepted;
    const char *wrong = gguf_reads_soundly(bytes, size, &accepted);
    if (wrong || !accepted) RF_FAIL("%s: %s: %s", path, wrong ? wrong : "refused", rf_error_text());
    free(bytes);
}

struct oracle_case {
    const char *label, *architecture;
    enum rf_dtype dtype;
};
static const struct oracle_case bundled[] = {
    {"llama-q4_0", "llama", RF_Q4_0}, {"llama-q8_0", "llama", RF_Q8_0}, {"llama-f16", "llama", RF_F16}};

RF_TEST_LABELLED_CASES(gguf, oracle, struct oracle_case, bundled) {
    char path[512];
    snprintf(path, sizeof path, "%s/oracle/%s.gguf", TEST_DATA, c->label);
    expect_oracle(path, c->architecture, c->dtype);
}

static const struct oracle_case elsewhere[] = {
    {"llama-f32", "llama", RF_F32}, {"llama-q4_k_m", "llama", RF_Q4_K},  {"llama-q6_k", "llama", RF_Q6_K},
    {"qwen2-f32", "qwen2", RF_F32}, {"qwen3-f32-tied", "qwen3", RF_F32},
};

static const char *data_folder(void) {
    const char *folder = getenv("RF_TEST_DATA");
    if (!folder || !folder[0]) RF_SKIP("RF_TEST_DATA names no folder with oracle/ and vocab/");
    return folder;
}

RF_TEST_LABELLED_CASES(gguf, oracle_elsewhere, struct oracle_case, elsewhere) {
    char path[512];
    snprintf(path, sizeof path, "%s/oracle/%s.gguf", data_folder(), c->label);
    if (access(path, R_OK) != 0) RF_SKIP("%s is not there", path);
    expect_oracle(path, c->architecture, c->dtype);
}

struct vocabulary_case {
    const char *label, *model;
    uint64_t tokens;
};
static const struct vocabulary_case vocabularies[] = {{"llama-spm", "llama", 32000}, {"gpt-2", "gpt2", 50257}};

RF_TEST_LABELLED_CASES(gguf, vocabulary, struct vocabulary_case, vocabularies) {
    char path[512];
    snprintf(path, sizeof path, "%s/vocab/ggml-vocab-%s.gguf", data_folder(), c->label);
    if (access(path, R_OK) != 0) RF_SKIP("%s is not there", path);
    struct rf_gguf *gguf = NULL;
    struct rf_gguf_string model, token;
    struct rf_gguf_array tokens, types;
    RF_ASSERT_OK(rf_gguf_open(path, &gguf));
    RF_ASSERT_OK(rf_gguf_get_string(gguf, "tokenizer.ggml.model", &model));
    RF_EXPECT(rf_gguf_string_is(model, c->model));
    RF_ASSERT_OK(rf_gguf_get_array(gguf, "tokenizer.ggml.tokens", RF_GGUF_STRING, &tokens));
    RF_EXPECT_UINT(tokens.count, c->tokens);
    RF_ASSERT_OK(rf_gguf_get_int_array(gguf, "tokenizer.ggml.token_type", &types));
    RF_EXPECT_UINT(types.count, c->tokens);
    struct rf_gguf_cursor cursor = {0};
    while (rf_gguf_array_next_string(&tokens, &cursor, &token)) RF_ASSERT(token.bytes < 1000);
    RF_EXPECT_UINT(cursor.index, c->tokens);
    rf_gguf_close(&gguf);
}
