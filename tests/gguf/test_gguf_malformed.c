/* GGUF files that are wrong: each kind of damage is refused with one line that names it; a file cut
 * at any byte, or with any byte flipped, is refused or read soundly; parts that do not belong
 * together; files that are no files, and one that shrinks while it is open. */
#include <rocmforge/test.h>

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gguf_property.h"
#include "gguf_testing.h"
#include "support/gguf_write.h"

#define DIMENSIONS(...) ((const uint64_t[]){__VA_ARGS__, 0})

/* ---- one kind of damage each ---- */

static void nothing(struct blob *b) {
    (void)b;
}
static void three_bytes(struct blob *b) {
    blob_add(b, "GGU", 3);
}
static void other_magic(struct blob *b) {
    blob_add(b,
             "\x7f"
             "ELF",
             4);
    blob_zeros(b, 60);
}
static void swapped_magic(struct blob *b) {
    blob_add(b, "FUGG", 4);
    blob_zeros(b, 60);
}
static void swapped_version(struct blob *b) {
    blob_header(b, 0x03000000, 0, 0);
}
static void version_0(struct blob *b) {
    blob_header(b, 0, 0, 0);
}
static void version_1(struct blob *b) {
    blob_header(b, 1, 0, 0);
}
static void version_4(struct blob *b) {
    blob_header(b, 4, 0, 0);
}
static void header_cut(struct blob *b) {
    blob_header(b, 3, 0, 0);
    b->used = 20;
}
static void many_keys(struct blob *b) {
    blob_header(b, 3, 0, UINT64_C(1) << 60);
    blob_key_u32(b, "k", 1);
}
static void many_tensors(struct blob *b) {
    blob_header(b, 3, UINT64_MAX, 1);
    blob_key_u32(b, "k", 1);
}
static void one_key_too_few(struct blob *b) {
    blob_header(b, 3, 0, 2);
    blob_key_u32(b, "a_long_enough_key", 1);
}
static void key_length_wraps(struct blob *b) {
    blob_header(b, 3, 0, 1);
    blob_u64(b, UINT64_MAX - 7);
    blob_zeros(b, 32);
}
static void key_empty(struct blob *b) {
    blob_header(b, 3, 0, 1);
    blob_key_u32(b, "", 1);
    blob_zeros(b, 8);
}
static void key_too_long(struct blob *b) {
    blob_header(b, 3, 0, 1);
    blob_u64(b, 65536);
    for (int i = 0; i < 65536; i++) blob_add(b, "k", 1);
    blob_u32(b, RF_GGUF_U8);
    blob_zeros(b, 1);
}
static void key_with_escape(struct blob *b) {
    blob_header(b, 3, 0, 1);
    blob_key_u32(b, "a\x1b[2Jb", 1);
}
static void key_twice(struct blob *b) {
    blob_header(b, 3, 0, 3);
    blob_key_u32(b, "twice", 1);
    blob_key_u32(b, "between", 1);
    blob_key_string(b, "twice", "x");
}
static void value_type_13(struct blob *b) {
    blob_header(b, 3, 0, 1);
    blob_string(b, "k");
    blob_u32(b, 13);
    blob_zeros(b, 8);
}
static void value_cut(struct blob *b) {
    blob_header(b, 3, 0, 1);
    blob_string(b, "k");
    blob_u32(b, RF_GGUF_U64);
    blob_zeros(b, 7);
}
static void bool_of_2(struct blob *b) {
    blob_header(b, 3, 0, 1);
    blob_string(b, "k");
    blob_u32(b, RF_GGUF_BOOL);
    blob_add(b, "\2", 1);
}
static void bool_of_2_in_array(struct blob *b) {
    blob_header(b, 3, 0, 1);
    blob_string(b, "k");
    blob_u32(b, RF_GGUF_ARRAY);
    blob_u32(b, RF_GGUF_BOOL);
    blob_u64(b, 3);
    blob_add(b, "\0\1\2", 3);
}
static void string_length_wraps(struct blob *b) {
    blob_header(b, 3, 0, 1);
    blob_string(b, "k");
    blob_u32(b, RF_GGUF_STRING);
    blob_u64(b, UINT64_MAX);
    blob_zeros(b, 16);
}
static void array_of(struct blob *b, uint32_t type, uint64_t count) {
    blob_header(b, 3, 0, 1);
    blob_string(b, "k");
    blob_u32(b, RF_GGUF_ARRAY);
    blob_u32(b, type);
    blob_u64(b, count);
}
static void array_type_99(struct blob *b) {
    array_of(b, 99, 0);
}
static void array_of_too_many(struct blob *b) {
    array_of(b, RF_GGUF_U32, (UINT64_C(1) << 62) + 1); /* 4 bytes each: wraps to 4 */
    blob_zeros(b, 4);
}
static void strings_too_many(struct blob *b) {
    array_of(b, RF_GGUF_STRING, UINT64_C(1) << 40);
    blob_zeros(b, 64);
}
static void string_in_array_cut(struct blob *b) {
    array_of(b, RF_GGUF_STRING, 2);
    blob_string(b, "fine");
    blob_u64(b, 100);
    blob_zeros(b, 99);
}
static void arrays_too_deep(struct blob *b) {
    array_of(b, RF_GGUF_ARRAY, 1);
    for (int i = 0; i < 100; i++) {
        blob_u32(b, RF_GGUF_ARRAY);
        blob_u64(b, 1);
    }
}
static void alignment_of_type_u64(struct blob *b) {
    blob_header(b, 3, 0, 1);
    blob_string(b, "general.alignment");
    blob_u32(b, RF_GGUF_U64);
    blob_u64(b, 32);
}
static void alignment_0(struct blob *b) {
    blob_header(b, 3, 0, 1);
    blob_key_u32(b, "general.alignment", 0);
}
static void alignment_48(struct blob *b) {
    blob_header(b, 3, 0, 1);
    blob_key_u32(b, "general.alignment", 48);
}
static void alignment_4(struct blob *b) {
    blob_header(b, 3, 0, 1);
    blob_key_u32(b, "general.alignment", 4);
}

/* A tensor of f32, then its data. */
static void one_tensor(struct blob *b, const char *name, const uint64_t *dimensions, uint32_t type, uint64_t offset,
                       size_t data) {
    blob_header(b, 3, 1, 0);
    blob_tensor(b, name, dimensions, type, offset);
    blob_pad(b, 32);
    blob_zeros(b, data);
}
static void tensor_cut(struct blob *b) {
    blob_header(b, 3, 2, 0);
    blob_tensor(b, "first_of_both", DIMENSIONS(4, 1), 0, 0);
    blob_string(b, "second");
    blob_u32(b, 1);
    blob_zeros(b, 3);
}
static void tensor_without_name(struct blob *b) {
    one_tensor(b, "", DIMENSIONS(4), 0, 0, 16);
}
static void tensor_name_too_long(struct blob *b) {
    char name[257];
    memset(name, 'n', 256);
    name[256] = 0;
    one_tensor(b, name, DIMENSIONS(4), 0, 0, 16);
}
static void tensor_name_not_ascii(struct blob *b) {
    one_tensor(b, "t\xff", DIMENSIONS(4), 0, 0, 16);
}
static void tensor_twice(struct blob *b) {
    blob_header(b, 3, 2, 0);
    blob_tensor(b, "same", DIMENSIONS(4), 0, 0);
    blob_tensor(b, "same", DIMENSIONS(4), 0, 32);
    blob_pad(b, 32);
    blob_zeros(b, 64);
}
static void rank_0(struct blob *b) {
    one_tensor(b, "tensor_t", (const uint64_t[]){0}, 0, 0, 16);
}
static void rank_5(struct blob *b) {
    one_tensor(b, "t", DIMENSIONS(1, 1, 1, 1, 1), 0, 0, 16);
}
static void rank_of_2_to_31(struct blob *b) {
    blob_header(b, 3, 1, 0);
    blob_string(b, "t");
    blob_u32(b, UINT32_C(1) << 31);
    blob_zeros(b, 64);
}
static void dimension_0(struct blob *b) {
    blob_header(b, 3, 1, 0);
    blob_string(b, "t");
    blob_u32(b, 2);
    blob_u64(b, 4);
    blob_u64(b, 0);
    blob_u32(b, 0);
    blob_u64(b, 0);
    blob_pad(b, 32);
}
static void dimensions_wrap(struct blob *b) {
    one_tensor(b, "t", DIMENSIONS(UINT64_C(1) << 32, UINT64_C(1) << 32), 0, 0, 16);
}
static void bytes_wrap(struct blob *b) {
    one_tensor(b, "t", DIMENSIONS(UINT64_C(1) << 62), 0, 0, 16);
}
static void dimension_negative(struct blob *b) {
    one_tensor(b, "t", DIMENSIONS(UINT64_MAX), 2, 0, 16);
}
static void half_a_block(struct blob *b) {
    one_tensor(b, "t", DIMENSIONS(48), 2, 0, 64);
}
static void rows_of_half_a_block(struct blob *b) {
    one_tensor(b, "t", DIMENSIONS(128, 2), 12, 0, 144); /* 256 elements in all, but not in a row */
}
static void type_removed(struct blob *b) {
    one_tensor(b, "t", DIMENSIONS(32), 4, 0, 64);
}
static void type_iq2_xxs(struct blob *b) {
    one_tensor(b, "t", DIMENSIONS(256), 16, 0, 66);
}
static void type_i32(struct blob *b) {
    one_tensor(b, "t", DIMENSIONS(4), 26, 0, 16);
}
static void type_mxfp4(struct blob *b) {
    one_tensor(b, "t", DIMENSIONS(32), 39, 0, 32);
}
static void type_9999(struct blob *b) {
    one_tensor(b, "t", DIMENSIONS(32), 9999, 0, 32);
}
static void offset_odd(struct blob *b) {
    one_tensor(b, "t", DIMENSIONS(4), 0, 8, 64);
}
static void offset_wraps(struct blob *b) {
    one_tensor(b, "t", DIMENSIONS(4), 0, UINT64_MAX - 31, 64);
}
static void offset_past_the_end(struct blob *b) {
    one_tensor(b, "t", DIMENSIONS(4), 0, 64, 64);
}
static void data_a_byte_short(struct blob *b) {
    one_tensor(b, "t", DIMENSIONS(4), 0, 0, 15);
}
static void data_absent(struct blob *b) {
    blob_header(b, 3, 1, 0);
    blob_tensor(b, "t", DIMENSIONS(4), 0, 0);
}
static void tensors_overlap(struct blob *b) {
    blob_header(b, 3, 3, 0);
    blob_tensor(b, "last", DIMENSIONS(4), 0, 96);
    blob_tensor(b, "over", DIMENSIONS(9), 0, 32);
    blob_tensor(b, "under", DIMENSIONS(4), 0, 64);
    blob_pad(b, 32);
    blob_zeros(b, 128);
}
static void tensors_in_one_place(struct blob *b) {
    blob_header(b, 3, 2, 0);
    blob_tensor(b, "a", DIMENSIONS(1), 0, 0);
    blob_tensor(b, "b", DIMENSIONS(1), 0, 0);
    blob_pad(b, 32);
    blob_zeros(b, 32);
}
static void part_of_three(struct blob *b) {
    blob_header(b, 3, 0, 3);
    blob_key_u32(b, "split.no", 0);
    blob_key_u32(b, "split.count", 3);
    blob_key_u32(b, "split.tensors.count", 0);
}
static void split_count_negative(struct blob *b) {
    blob_header(b, 3, 0, 1);
    blob_string(b, "split.count");
    blob_u32(b, RF_GGUF_I32);
    blob_u32(b, UINT32_MAX);
}
static void split_tensors_missing(struct blob *b) {
    blob_header(b, 3, 0, 3);
    blob_key_u32(b, "split.no", 0);
    blob_key_u32(b, "split.count", 1);
    blob_key_u32(b, "split.tensors.count", 5);
}

struct damage {
    const char *label;
    void (*build)(struct blob *blob);
    rf_status status;
    const char *part; /* of the reason */
};
static const struct damage damages[] = {
    {"nothing", nothing, RF_E_SYNTAX, "is no GGUF file"},
    {"three_bytes", three_bytes, RF_E_SYNTAX, "is no GGUF file"},
    {"other_magic", other_magic, RF_E_SYNTAX, "7f 45 4c 46"},
    {"swapped_magic", swapped_magic, RF_E_UNSUPPORTED, "big-endian"},
    {"swapped_version", swapped_version, RF_E_UNSUPPORTED, "big-endian"},
    {"version_0", version_0, RF_E_UNSUPPORTED, "version 0, supported are 2 and 3"},
    {"version_1", version_1, RF_E_UNSUPPORTED, "version 1, supported are 2 and 3"},
    {"version_4", version_4, RF_E_UNSUPPORTED, "version 4, supported are 2 and 3"},
    {"header_cut", header_cut, RF_E_SYNTAX, "the header wants 8 bytes at byte 16, but the file ends at 20"},
    {"many_keys", many_keys, RF_E_SYNTAX, "claims 1152921504606846976 keys"},
    {"many_tensors", many_tensors, RF_E_SYNTAX, "18446744073709551615 tensors"},
    {"one_key_too_few", one_key_too_few, RF_E_SYNTAX, "key 2 wants 8 bytes"},
    {"key_length_wraps", key_length_wraps, RF_E_SYNTAX, "key 1 wants 18446744073709551608 bytes"},
    {"key_empty", key_empty, RF_E_SYNTAX, "the name of key 1 has 0 bytes"},
    {"key_too_long", key_too_long, RF_E_SYNTAX, "has 65536 bytes, allowed are 1 to 65535"},
    {"key_with_escape", key_with_escape, RF_E_SYNTAX, "holds the byte 0x1b"},
    {"key_twice", key_twice, RF_E_SYNTAX, "the key \"twice\" comes twice"},
    {"value_type_13", value_type_13, RF_E_SYNTAX, "key 1 (\"k\") has a value of type 13"},
    {"value_cut", value_cut, RF_E_SYNTAX, "key 1 (\"k\") wants 8 bytes"},
    {"bool_of_2", bool_of_2, RF_E_SYNTAX, "a bool of 2"},
    {"bool_of_2_in_array", bool_of_2_in_array, RF_E_SYNTAX, "a bool of 2"},
    {"string_length_wraps", string_length_wraps, RF_E_SYNTAX, "wants 18446744073709551615 bytes"},
    {"array_type_99", array_type_99, RF_E_SYNTAX, "type 99"},
    {"array_of_too_many", array_of_too_many, RF_E_SYNTAX, "an array of 4611686018427387905 elements"},
    {"strings_too_many", strings_too_many, RF_E_SYNTAX, "an array of 1099511627776 elements"},
    {"string_in_array_cut", string_in_array_cut, RF_E_SYNTAX, "wants 100 bytes"},
    {"arrays_too_deep", arrays_too_deep, RF_E_SYNTAX, "nests arrays deeper than 4"},
    {"alignment_of_type_u64", alignment_of_type_u64, RF_E_SYNTAX, "of type u64 instead of u32"},
    {"alignment_0", alignment_0, RF_E_SYNTAX, "is 0, which is no power of two"},
    {"alignment_4", alignment_4, RF_E_SYNTAX, "is 4, which is no power of two from 8 up"},
    {"alignment_48", alignment_48, RF_E_SYNTAX, "is 48, which is no power of two"},
    {"tensor_cut", tensor_cut, RF_E_SYNTAX, "tensor 2 (\"second\") wants 8 bytes"},
    {"tensor_without_name", tensor_without_name, RF_E_SYNTAX, "the name of tensor 1 has 0 bytes"},
    {"tensor_name_too_long", tensor_name_too_long, RF_E_SYNTAX, "has 256 bytes, allowed are 1 to 255"},
    {"tensor_name_not_ascii", tensor_name_not_ascii, RF_E_SYNTAX, "holds the byte 0xff"},
    {"tensor_twice", tensor_twice, RF_E_SYNTAX, "the tensor \"same\" comes twice"},
    {"rank_0", rank_0, RF_E_SYNTAX, "has 0 dimensions"},
    {"rank_5", rank_5, RF_E_SYNTAX, "has 5 dimensions, allowed are 1 to 4"},
    {"rank_of_2_to_31", rank_of_2_to_31, RF_E_SYNTAX, "has 2147483648 dimensions"},
    {"dimension_0", dimension_0, RF_E_SYNTAX, "a dimension of 0"},
    {"dimensions_wrap", dimensions_wrap, RF_E_SYNTAX, "overflows its size"},
    {"bytes_wrap", bytes_wrap, RF_E_SYNTAX, "overflows"},
    {"dimension_negative", dimension_negative, RF_E_SYNTAX, "comes in blocks of 32"},
    {"half_a_block", half_a_block, RF_E_SYNTAX, "rows of 48 elements, but Q4_0 comes in blocks of 32"},
    {"rows_of_half_a_block", rows_of_half_a_block, RF_E_SYNTAX, "rows of 128 elements, but Q4_K"},
    {"type_removed", type_removed, RF_E_UNSUPPORTED, "the type Q4_2 (number 4), which is not supported"},
    {"type_iq2_xxs", type_iq2_xxs, RF_E_UNSUPPORTED,
     "the type IQ2_XXS (number 16), which is not supported; supported are F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, "
     "Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, BF16"},
    {"type_i32", type_i32, RF_E_UNSUPPORTED, "the type I32 (number 26)"},
    {"type_mxfp4", type_mxfp4, RF_E_UNSUPPORTED, "the type MXFP4 (number 39)"},
    {"type_9999", type_9999, RF_E_SYNTAX, "the type number 9999, which is not known"},
    {"offset_odd", offset_odd, RF_E_SYNTAX, "offset 8, which is no multiple of the alignment 32"},
    {"offset_wraps", offset_wraps, RF_E_SYNTAX, "but the file ends at"},
    {"offset_past_the_end", offset_past_the_end, RF_E_SYNTAX, "but the file ends at"},
    {"data_a_byte_short", data_a_byte_short, RF_E_SYNTAX, "has 16 bytes from byte 64 on, but the file ends at 79"},
    {"data_absent", data_absent, RF_E_SYNTAX, "but the file ends at"},
    {"tensors_overlap", tensors_overlap, RF_E_SYNTAX, "the tensors \"over\" and \"under\" overlap"},
    {"tensors_in_one_place", tensors_in_one_place, RF_E_SYNTAX, "overlap"},
    {"part_of_three", part_of_three, RF_E_SYNTAX, "one of the 3 parts of a split model"},
    {"split_count_negative", split_count_negative, RF_E_SYNTAX, "\"split.count\""},
    {"split_tensors_missing", split_tensors_missing, RF_E_SYNTAX, "has 5 tensors"},
};

/* From memory of the exact size, and from a file. */
RF_TEST_LABELLED_CASES(gguf, refuses, struct damage, damages) {
    struct blob blob = {0};
    struct rf_gguf *gguf = NULL;
    c->build(&blob);
    unsigned char *exact = malloc(blob.used ? blob.used : 1);
    RF_ASSERT(exact != NULL);
    if (blob.used) memcpy(exact, blob.data, blob.used);
    RF_EXPECT_STATUS(rf_gguf_open_memory(exact, blob.used, "m", &gguf), c->status);
    RF_EXPECT_CONTAINS(rf_error_text(), c->part);
    RF_EXPECT(strncmp(rf_error_text(), "m: ", 3) == 0);
    RF_EXPECT(gguf == NULL);
    const char *path = scratch_path("damaged.gguf");
    write_bytes(path, exact, blob.used);
    RF_EXPECT_STATUS(rf_gguf_open(path, &gguf), c->status);
    RF_EXPECT_CONTAINS(rf_error_text(), path);
    RF_EXPECT(gguf == NULL);
    free(exact);
    blob_free(&blob);
}

/* The largest counts a small file can claim cost no memory. */
RF_TEST(gguf, hostile_counts_cost_no_memory) {
    static void (*const hostile[])(struct blob *) = {many_keys,           many_tensors,      key_length_wraps,
                                                     string_length_wraps, array_of_too_many, strings_too_many};
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
        struct blob blob = {0};
        struct rf_gguf *gguf = NULL;
        hostile[i](&blob);
        RF_EXPECT_STATUS(rf_gguf_open_memory(blob.data, blob.used, "m", &gguf), RF_E_SYNTAX);
        blob_free(&blob);
    }
    getrusage(RUSAGE_SELF, &after);
    RF_EXPECT(after.ru_maxrss - before.ru_maxrss < 16 * 1024); /* KiB */
}

/* A file with holes: 256 GiB by its size, nothing in it. A count that fits the size costs nothing
 * either, because no key is there. */
RF_TEST(gguf, a_huge_hollow_file_costs_no_memory) {
    const char *path = scratch_path("hollow.gguf");
    struct blob blob = {0};
    struct rf_gguf *gguf = NULL;
    struct rusage before, after;
    blob_header(&blob, 3, UINT32_MAX, UINT32_MAX);
    write_bytes(path, blob.data, blob.used);
    blob_free(&blob);
    if (truncate(path, (off_t)1 << 38) != 0) RF_SKIP("this file system has no files of 256 GiB");
    getrusage(RUSAGE_SELF, &before);
    RF_EXPECT_STATUS(rf_gguf_open(path, &gguf), RF_E_SYNTAX);
    RF_EXPECT_CONTAINS(rf_error_text(), "the name of key 1 has 0 bytes");
    getrusage(RUSAGE_SELF, &after);
    RF_EXPECT(after.ru_maxrss - before.ru_maxrss < 16 * 1024);
}

/* ---- cut and flipped anywhere ---- */

/* A small file with something of everything. */
static unsigned char *small_model(size_t *size) {
    static unsigned char data[256];
    struct rf_gguf_writer *writer = NULL;
    void *bytes;
    const struct rf_gguf_string strings[] = {{"<s>", 3}, {"", 0}, {"\xe2\x96\x81the", 6}};
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * 37);
    RF_ASSERT_OK(rf_gguf_writer_create(&writer));
    rf_gguf_write_string(writer, "general.architecture", "llama");
    rf_gguf_write_u32(writer, "llama.block_count", 2);
    rf_gguf_write_u32(writer, "llama.embedding_length", 32);
    rf_gguf_write_u32(writer, "llama.attention.head_count", 4);
    rf_gguf_write_array(writer, "llama.attention.head_count_kv", RF_GGUF_U32, (uint32_t[]){2, 1}, 2);
    rf_gguf_write_f32(writer, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    rf_gguf_write_strings(writer, "tokenizer.ggml.tokens", strings, 3);
    rf_gguf_write_array(writer, "tokenizer.ggml.scores", RF_GGUF_F32, (float[]){0, -1, -2}, 3);
    rf_gguf_write_bool(writer, "tokenizer.ggml.add_bos_token", true);
    rf_gguf_writer_align(writer, 64);
    rf_gguf_write_tensor(writer, "token_embd.weight", RF_Q8_0, 2, (uint64_t[]){3, 32}, data);
    rf_gguf_write_tensor(writer, "blk.0.attn_norm.weight", RF_F32, 1, (uint64_t[]){32}, data);
    rf_gguf_write_tensor(writer, "blk.1.attn_norm.weight", RF_BF16, 1, (uint64_t[]){32}, data);
    rf_gguf_write_tensor(writer, "output.weight", RF_Q4_0, 2, (uint64_t[]){3, 32}, data);
    RF_ASSERT_OK(rf_gguf_writer_finish_memory(writer, &bytes, size));
    rf_gguf_writer_destroy(&writer);
    return bytes;
}

static void expect_sound(const unsigned char *bytes, size_t size, bool *accepted, size_t at, unsigned what) {
    unsigned char *exact = malloc(size ? size : 1); /* of the exact size: a sanitizer sees a step too far */
    RF_ASSERT(exact != NULL);
    if (size) memcpy(exact, bytes, size);
    const char *wrong = gguf_reads_soundly(exact, size, accepted);
    if (wrong) RF_FAIL("byte %zu, change 0x%02x: %s: %s", at, what, wrong, rf_error_text());
    free(exact);
}

RF_TEST(gguf, truncated_at_every_byte) {
    size_t size;
    unsigned char *bytes = small_model(&size);
    bool accepted;
    size_t end = size; /* the last tensor's padding may be missing */
    while (end && !bytes[end - 1]) end--;
    for (size_t cut = 0; cut < size; cut++) {
        expect_sound(bytes, cut, &accepted, cut, 0);
        if (accepted && cut < end) RF_FAIL("cut at byte %zu of %zu it is accepted", cut, size);
    }
    expect_sound(bytes, size, &accepted, size, 0);
    RF_ASSERT(accepted);
    free(bytes);
}

RF_TEST(gguf, flipped_at_every_byte, .timeout_ms = 1500000) {
    static const unsigned char changes[] = {0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xff};
    size_t size, refused = 0, taken = 0;
    unsigned char *bytes = small_model(&size);
    size_t most = size < 4096 ? size : 4096;
    for (size_t at = 0; at < most; at++)
        for (size_t i = 0; i < sizeof changes; i++) {
            bool accepted;
            bytes[at] ^= changes[i];
            expect_sound(bytes, size, &accepted, at, changes[i]);
            bytes[at] ^= changes[i];
            if (accepted)
                taken++;
            else
                refused++;
        }
    RF_NOTE("%zu changes refused, %zu read", refused, taken);
    RF_ASSERT(refused > 1000 && taken > 1000); /* structure is noticed, data is data */
    free(bytes);
}

/* The real files: the header's first 4 KiB flipped, and cut at every 4 KiB. */
RF_TEST(gguf, real_file_flipped_and_cut, .timeout_ms = 1500000) {
    size_t size;
    unsigned char *bytes = read_bytes(TEST_DATA "/oracle/llama-q4_0.gguf", &size);
    for (size_t at = 0; at < 4096; at++) {
        struct rf_gguf *gguf = NULL;
        bytes[at] ^= 0xff;
        rf_status status = rf_gguf_open_memory(bytes, size, "m", &gguf);
        RF_ASSERT(status == RF_OK || status == RF_E_SYNTAX || status == RF_E_UNSUPPORTED);
        rf_gguf_close(&gguf);
        bytes[at] ^= 0xff;
    }
    for (size_t cut = 0; cut < size; cut += 4096) {
        struct rf_gguf *gguf = NULL;
        RF_ASSERT_STATUS(rf_gguf_open_memory(bytes, cut, "m", &gguf), RF_E_SYNTAX);
    }
    free(bytes);
}

/* What fuzzing found worth keeping. */
RF_TEST(gguf, fuzzing_corpus) {
    DIR *folder = opendir(FUZZ_CORPUS "/gguf");
    RF_ASSERT(folder != NULL);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (entry->d_name[0] == '.') continue;
        char path[1024];
        size_t size;
        snprintf(path, sizeof path, "%s/%s", FUZZ_CORPUS "/gguf", entry->d_name);
        RF_TRACE("%s", path);
        unsigned char *bytes = read_bytes(path, &size);
        expect_sound(bytes, size, NULL, 0, 0);
        free(bytes);
        count++;
    }
    closedir(folder);
    RF_ASSERT(count >= 6);
}

/* ---- split models ---- */

struct part_plan {
    int number, count; /* split.no, split.count; count 0: no such keys */
    int total;         /* split.tensors.count */
    const char *tensor;
};

static const char *write_part(const char *name, const struct part_plan *plan) {
    static const float data[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct rf_gguf_writer *writer = NULL;
    RF_ASSERT_OK(rf_gguf_writer_create(&writer));
    if (plan->number == 0) rf_gguf_write_string(writer, "general.architecture", "llama");
    if (plan->count) {
        rf_gguf_write_value(writer, "split.no", RF_GGUF_U16, &(uint16_t){(uint16_t)plan->number});
        rf_gguf_write_value(writer, "split.count", RF_GGUF_U16, &(uint16_t){(uint16_t)plan->count});
        rf_gguf_write_value(writer, "split.tensors.count", RF_GGUF_I32, &(int32_t){plan->total});
    }
    rf_gguf_write_tensor(writer, plan->tensor, RF_F32, 1, (uint64_t[]){8}, data);
    const char *path = scratch_path(name);
    RF_ASSERT_OK(rf_gguf_writer_finish(writer, path));
    rf_gguf_writer_destroy(&writer);
    return path;
}

RF_TEST(gguf, split_model_from_any_part) {
    write_part("m-00001-of-00003.gguf", &(struct part_plan){0, 3, 3, "token_embd.weight"});
    write_part("m-00002-of-00003.gguf", &(struct part_plan){1, 3, 3, "blk.0.w"});
    write_part("m-00003-of-00003.gguf", &(struct part_plan){2, 3, 3, "output.weight"});
    for (int i = 1; i <= 3; i++) {
        char name[32];
        struct rf_gguf *gguf = NULL;
        snprintf(name, sizeof name, "m-%05d-of-00003.gguf", i);
        RF_ASSERT_OK(rf_gguf_open(scratch_path(name), &gguf));
        RF_PARAMS(struct rf_gguf_info, info);
        RF_ASSERT_OK(rf_gguf_get_info(gguf, &info));
        RF_EXPECT_UINT(info.file_count, 3);
        RF_EXPECT_UINT(info.tensor_count, 3);
        RF_EXPECT_TEXT(info.architecture, "llama");
        RF_EXPECT_CONTAINS(rf_gguf_path(gguf), "m-00001-of");
        const struct rf_gguf_tensor *tensor = rf_gguf_find_tensor(gguf, "output.weight");
        RF_ASSERT(tensor != NULL);
        RF_EXPECT_UINT(tensor->file, 2);
        float values[8];
        RF_ASSERT_OK(rf_gguf_read(gguf, tensor, 0, values, sizeof values));
        RF_EXPECT(values[7] == 8 && memcmp(values, tensor->data, sizeof values) == 0);
        RF_ASSERT_OK(rf_gguf_unchanged(gguf));
        rf_gguf_close(&gguf);
    }
}

struct bad_split {
    const char *label;
    struct part_plan parts[2]; /* tensor NULL: no such file */
    rf_status status;
    const char *reason;
};
static const struct bad_split bad_splits[] = {
    {"missing", {{0, 2, 2, "a"}, {0}}, RF_E_NOT_FOUND, "part 2 of 2 of this model must lie beside"},
    {"first_missing", {{0}, {1, 2, 2, "a"}}, RF_E_NOT_FOUND, "-00001-of-00002.gguf"},
    {"swapped",
     {{1, 2, 2, "a"}, {0, 2, 2, "b"}},
     RF_E_SYNTAX,
     "is part 1 (split.no, from 0), but its name says part 0"},
    {"other_count", {{0, 3, 2, "a"}, {1, 2, 2, "b"}}, RF_E_SYNTAX, "is one of 3 parts"},
    {"no_keys", {{0, 2, 2, "a"}, {1, 0, 0, "b"}}, RF_E_SYNTAX, "has no key \"split.count\""},
    {"not_all_tensors", {{0, 2, 3, "a"}, {1, 2, 3, "b"}}, RF_E_SYNTAX, "has 3 tensors"},
    {"parts_disagree", {{0, 2, 2, "a"}, {1, 2, 7, "b"}}, RF_E_SYNTAX, "has 7 tensors"},
    {"tensor_in_both", {{0, 2, 2, "a"}, {1, 2, 2, "a"}}, RF_E_SYNTAX, "the tensor \"a\" comes twice"},
};

RF_TEST_LABELLED_CASES(gguf, refuses_split, struct bad_split, bad_splits) {
    struct rf_gguf *gguf = NULL;
    const char *path = NULL;
    for (int i = 0; i < 2; i++) {
        char name[32];
        snprintf(name, sizeof name, "s-%05d-of-00002.gguf", i + 1);
        if (c->parts[i].tensor) path = write_part(name, &c->parts[i]);
    }
    RF_EXPECT_STATUS(rf_gguf_open(path, &gguf), c->status);
    RF_EXPECT_CONTAINS(rf_error_text(), c->reason);
    RF_EXPECT(gguf == NULL);
}

RF_TEST(gguf, split_part_under_another_name) {
    struct rf_gguf *gguf = NULL;
    const char *path = write_part("renamed.gguf", &(struct part_plan){0, 3, 3, "a"});
    RF_ASSERT_STATUS(rf_gguf_open(path, &gguf), RF_E_SYNTAX);
    RF_ASSERT_CONTAINS(rf_error_text(), "NAME-00001-of-00003.gguf");
    path = write_part("whole.gguf", &(struct part_plan){0, 1, 1, "a"}); /* one of one is whole */
    RF_ASSERT_OK(rf_gguf_open(path, &gguf));
    rf_gguf_close(&gguf);
    path = write_part("x-00001-of-00001.gguf", &(struct part_plan){0, 0, 0, "a"});
    RF_ASSERT_OK(rf_gguf_open(path, &gguf));
    rf_gguf_close(&gguf);
    path = write_part("x-00002-of-00001.gguf", &(struct part_plan){0, 0, 0, "a"}); /* no part's name */
    RF_ASSERT_OK(rf_gguf_open(path, &gguf));
    rf_gguf_close(&gguf);
}

/* ---- no files, and files that change ---- */

RF_TEST(gguf, refuses_what_is_no_file) {
    struct rf_gguf *gguf = NULL;
    RF_EXPECT_STATUS(rf_gguf_open(scratch_path("absent.gguf"), &gguf), RF_E_NOT_FOUND);
    RF_EXPECT_CONTAINS(rf_error_text(), "absent.gguf: cannot be opened: No such file");
    RF_EXPECT_STATUS(rf_gguf_open("/", &gguf), RF_E_IO);
    RF_EXPECT_CONTAINS(rf_error_text(), "is a folder");
    RF_EXPECT_STATUS(rf_gguf_open("/dev/null", &gguf), RF_E_IO);
    const char *path = scratch_path("pipe.gguf");
    RF_ASSERT(mkfifo(path, 0600) == 0);
    RF_EXPECT_STATUS(rf_gguf_open(path, &gguf), RF_E_IO); /* and does not wait for a writer */
    RF_EXPECT_CONTAINS(rf_error_text(), "a device or pipe");
    path = scratch_path("empty.gguf");
    write_bytes(path, "", 0);
    RF_EXPECT_STATUS(rf_gguf_open(path, &gguf), RF_E_SYNTAX);
    RF_EXPECT_CONTAINS(rf_error_text(), "is empty");
    write_bytes(path, "G", 1);
    RF_EXPECT_STATUS(rf_gguf_open(path, &gguf), RF_E_SYNTAX);
    RF_EXPECT(!strstr(rf_error_text(), "is empty"));
    RF_EXPECT_STATUS(rf_gguf_open(NULL, &gguf), RF_E_INVALID);
    RF_EXPECT_STATUS(rf_gguf_open_memory(NULL, 0, NULL, &gguf), RF_E_INVALID);
    RF_EXPECT(gguf == NULL);
}

RF_TEST(gguf, a_file_that_shrinks) {
    size_t size;
    unsigned char *bytes = small_model(&size);
    struct rf_gguf *gguf = NULL;
    const char *path = scratch_path("shrinks.gguf");
    write_bytes(path, bytes, size);
    RF_ASSERT_OK(rf_gguf_open(path, &gguf));
    const struct rf_gguf_tensor *tensor = rf_gguf_find_tensor(gguf, "output.weight");
    unsigned char data[54];
    RF_ASSERT_UINT(tensor->bytes, sizeof data);
    RF_ASSERT_OK(rf_gguf_read(gguf, tensor, 0, data, sizeof data));
    RF_ASSERT_OK(rf_gguf_unchanged(gguf));
    RF_ASSERT(truncate(path, (off_t)tensor->offset + 10) == 0);
    RF_ASSERT_STATUS(rf_gguf_read(gguf, tensor, 0, data, sizeof data), RF_E_IO);
    RF_ASSERT_CONTAINS(rf_error_text(), "shortened while it was open");
    RF_ASSERT_OK(rf_gguf_read(gguf, tensor, 0, data, 10));
    RF_ASSERT_STATUS(rf_gguf_unchanged(gguf), RF_E_IO);
    rf_gguf_close(&gguf);
    free(bytes);
}

RF_TEST(gguf, tells_where_files_are_mapped) {
    size_t size;
    unsigned char *bytes = small_model(&size);
    const char *path = scratch_path("mapped.gguf");
    write_bytes(path, bytes, size);
    RF_EXPECT(!rf_gguf_mapped(NULL) && !rf_gguf_mapped(bytes));
    for (int round = 0; round < 3; round++) {
        struct rf_gguf *open[3] = {NULL};
        const unsigned char *first[3];
        for (int i = 0; i < 3; i++) {
            RF_ASSERT_OK(rf_gguf_open(path, &open[i]));
            const struct rf_gguf_tensor *tensor = rf_gguf_tensor_at(open[i], 0);
            first[i] = (const unsigned char *)tensor->data - tensor->offset;
            RF_EXPECT(rf_gguf_mapped(first[i]) && rf_gguf_mapped(first[i] + size - 1));
            RF_EXPECT(!rf_gguf_mapped(first[i] + size) && !rf_gguf_mapped(first[i] - 1));
        }
        for (int i = 0; i < 3; i++) {
            int which = (i + round) % 3;
            rf_gguf_close(&open[which]);
            RF_EXPECT(!rf_gguf_mapped(first[which]));
            for (int j = i + 1; j < 3; j++) RF_EXPECT(rf_gguf_mapped(first[(j + round) % 3]));
        }
    }
    struct rf_gguf *borrowed = NULL; /* memory is not a map of ours */
    RF_ASSERT_OK(rf_gguf_open_memory(bytes, size, NULL, &borrowed));
    RF_EXPECT(!rf_gguf_mapped(bytes));
    rf_gguf_close(&borrowed);
    free(bytes);
}

/* While others open and close theirs, one's own file is always known, and nothing else is. */
static void *open_and_ask(void *user) {
    const char *path = user;
    bool right = true;
    for (int round = 0; round < 50 && right; round++) {
        struct rf_gguf *gguf = NULL;
        if (rf_gguf_open(path, &gguf)) return NULL;
        right = rf_gguf_mapped(rf_gguf_tensor_at(gguf, 0)->data) && !rf_gguf_mapped(&round);
        rf_gguf_close(&gguf);
    }
    return right ? user : NULL;
}
RF_TEST(gguf, tells_where_files_are_mapped_to_many_threads) {
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    size_t size;
    unsigned char *bytes = small_model(&size);
    char path[512];
    snprintf(path, sizeof path, "%s", scratch_path("many.gguf"));
    write_bytes(path, bytes, size);
    for (int i = 0; i < THREADS; i++) RF_ASSERT(pthread_create(&threads[i], NULL, open_and_ask, path) == 0);
    for (int i = 0; i < THREADS; i++) {
        void *right = NULL;
        RF_ASSERT(pthread_join(threads[i], &right) == 0);
        RF_EXPECT(right == path);
    }
    free(bytes);
}

/* Nothing stays open or allocated after failures and successes. */
RF_TEST(gguf, gives_back_its_descriptors) {
    struct rf_gguf *gguf = NULL;
    const char *path = scratch_path("bad.gguf");
    write_bytes(path, "GGUF\3\0\0\0xxxx", 12);
    int before = dup(0);
    RF_ASSERT(before >= 0);
    close(before);
    for (int i = 0; i < 10; i++) RF_ASSERT_STATUS(rf_gguf_open(path, &gguf), RF_E_SYNTAX);
    RF_ASSERT_OK(rf_gguf_open(TEST_DATA "/oracle/llama-q4_0.gguf", &gguf));
    rf_gguf_close(&gguf);
    int after = dup(0);
    close(after);
    RF_ASSERT_INT(after, before);
}
