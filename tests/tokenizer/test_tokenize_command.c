/* rocmforge tokenize and detokenize as a user meets them, with a small vocabulary written here. */
#include <rocmforge/test.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/gguf_write.h"

#include "../command_line.h"
#include "../scratch.h"
#include "base/sanitizers.h"

static char folder[SCRATCH_BYTES];

/* model.gguf: bytes as in "llama" vocabularies from id 3, then "▁" 259 and "▁h" 260; empty.gguf: no
 * vocabulary. */
static void write_models(void) {
    static char spellings[256][8];
    struct rf_gguf_string tokens[261] = {{"<unk>", 5}, {"<s>", 3}, {"</s>", 4}};
    int32_t types[261] = {2, 3, 3};
    float scores[261] = {0};
    struct rf_gguf_writer *writer = NULL;
    char path[SCRATCH_BYTES + 16];
    if (folder[0]) return;
    scratch_folder(folder, "tokenize");
    for (int byte = 0; byte < 256; byte++) {
        snprintf(spellings[byte], sizeof spellings[byte], "<0x%02X>", (unsigned)byte);
        tokens[3 + byte] = (struct rf_gguf_string){spellings[byte], 6};
        types[3 + byte] = 6;
    }
    tokens[259] = (struct rf_gguf_string){"▁", 3};
    tokens[260] = (struct rf_gguf_string){"▁h", 4};
    types[259] = types[260] = 1;
    RF_ASSERT_OK(rf_gguf_writer_create(&writer));
    rf_gguf_write_string(writer, "tokenizer.ggml.model", "llama");
    rf_gguf_write_strings(writer, "tokenizer.ggml.tokens", tokens, 261);
    rf_gguf_write_array(writer, "tokenizer.ggml.token_type", RF_GGUF_I32, types, 261);
    rf_gguf_write_array(writer, "tokenizer.ggml.scores", RF_GGUF_F32, scores, 261);
    snprintf(path, sizeof path, "%s/model.gguf", folder);
    RF_ASSERT_OK(rf_gguf_writer_finish(writer, path));
    rf_gguf_writer_destroy(&writer);
    RF_ASSERT_OK(rf_gguf_writer_create(&writer));
    rf_gguf_write_string(writer, "general.architecture", "llama");
    snprintf(path, sizeof path, "%s/empty.gguf", folder);
    RF_ASSERT_OK(rf_gguf_writer_finish(writer, path));
    rf_gguf_writer_destroy(&writer);
}

static void expect(const char *arguments, const char *text) {
    write_models();
    expect_in(folder, arguments, text);
}
static void expect_one_line(const char *arguments, int code, const char *part) {
    write_models();
    expect_one_line_in(folder, arguments, code, part);
}

RF_TEST(tokenize_command, encodes) {
    expect("tokenize -m model.gguf --text 'hi!'", "1 260 108 36\n");
    expect("tokenize -m model.gguf --text 'hi!' --no-bos", "260 108 36\n");
    expect("tokenize -m model.gguf --text '' --no-bos", "\n");
    expect("tokenize -m model.gguf --text '</s>' --no-bos --parse-special", "2\n");
    expect("tokenize -m model.gguf --text=-x --no-bos", "259 48 123\n");
    expect("tokenize -m model.gguf --file - --no-bos < /dev/null", "\n");
    expect("tokenize -m model.gguf --help | head -1",
           "usage: rocmforge tokenize -m M (--text T | --file F) [--no-bos] "
           "[--no-eos] [--parse-special]\n");
}

RF_TEST(tokenize_command, decodes) {
    expect("detokenize -m model.gguf --ids 1,260,108,36", "hi!");
    expect("detokenize -m model.gguf --ids ' 1, 260 108\t36,'", "hi!");
    expect("detokenize -m model.gguf --ids 1,260,2 --special", "<s>h</s>");
    expect("detokenize -m model.gguf --ids ''", "");
    expect("detokenize --help | head -1", "usage: rocmforge detokenize -m M (--ids 1,2,3 | --file F) [--special]\n");
}

RF_TEST(tokenize_command, any_bytes_come_back_through_files) {
    char path[SCRATCH_BYTES + 16];
    unsigned char bytes[5000];
    struct rf_random random = {rf_test_seed() + 11};
    write_models();
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)rf_random_below(&random, 256);
    snprintf(path, sizeof path, "%s/in.bin", folder);
    FILE *file = fopen(path, "wb");
    RF_ASSERT(file != NULL && fwrite(bytes, 1, sizeof bytes, file) == sizeof bytes && fclose(file) == 0);
    RF_ASSERT_INT(run_in(folder, "tokenize -m model.gguf --file in.bin > ids.txt"), 0);
    RF_ASSERT_INT(run_in(folder, "detokenize -m model.gguf --file ids.txt"), 0);
    RF_ASSERT_UINT(output_bytes, sizeof bytes);
    RF_ASSERT_BYTES((const uint8_t *)output, bytes, sizeof bytes);
}

/* A sanitizer takes more addresses than the limit leaves. */
#if !RF_UNDER_ASAN && !RF_UNDER_TSAN
RF_TEST(tokenize_command, a_text_without_end_is_one_line) {
    char command[512];
    write_models();
    snprintf(command, sizeof command,
             "help >/dev/null; ulimit -v 400000; '%s' tokenize -m model.gguf --file /dev/zero", ROCMFORGE);
    expect_one_line(command, 1, "tokenize: no memory for /dev/zero");
}
#endif

RF_TEST(tokenize_command, bad_input_is_one_line) {
    expect_one_line("tokenize --text x", 2, "no model given");
    expect_one_line("tokenize -m model.gguf", 2, "either --text or --file");
    expect_one_line("tokenize -m model.gguf --text x --file y", 2, "either --text or --file");
    expect_one_line("tokenize -m model.gguf --file none.txt", 1, "none.txt");
    expect_one_line("tokenize -m model.gguf --file .", 1, "directory");
    expect_one_line("tokenize -m none.gguf --text x", 2, "none.gguf");
    expect_one_line("tokenize -m empty.gguf --text x", 2, "no vocabulary");
    expect_one_line("tokenize -m model.gguf --text x extra", 2, "extra");
    expect_one_line("detokenize -m model.gguf", 2, "either --ids or --file");
    expect_one_line("detokenize -m model.gguf --ids 1,261", 1, "261");
    expect_one_line("detokenize -m model.gguf --ids 1,x2", 2, "\"x2\"");
    expect_one_line("detokenize -m model.gguf --ids 1,-2", 2, "\"-2\"");
    expect_one_line("detokenize -m model.gguf --ids 1.5", 2, "\"1.5\"");
    expect_one_line("detokenize -m model.gguf --ids 99999999999999999999", 2, "not a token id");
    expect_one_line("detokenize -m model.gguf --file model.gguf", 2, "not a token id");
    expect_one_line("detokenize -m empty.gguf --ids 1", 2, "no vocabulary");
    RF_EXPECT_INT(run_in(folder, "tokenize -m model.gguf --text x 2>&1 > /dev/full"), 1);
    RF_EXPECT_CONTAINS(output, "could not be written");
}
