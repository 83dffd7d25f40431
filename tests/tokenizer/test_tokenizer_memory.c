/* Each allocation of the tokenizer refused in turn: RF_E_NO_MEMORY with a reason, results untouched,
 * everything given back (a leak sanitizer sees to the latter). And the fuzzer's seeds, replayed. */
#include <rocmforge/test.h>

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../refused_memory.h"
#include "gguf_testing.h"
#include "support/gguf_write.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer_property.h"

#define TEXT "ab<x>  abab\n\nxab 123"

static rf_status use(const struct rf_gguf *gguf) {
    struct rf_tokenizer *tokenizer = NULL;
    static const struct rf_decode_params show = {.struct_size = sizeof show, .show_special = true};
    static const struct rf_encode_params special = {.struct_size = sizeof special, .parse_special = true};
    int32_t *ids = NULL;
    char *text = NULL;
    size_t count = 0, bytes = 0;
    rf_status status = rf_tokenizer_from_gguf(gguf, &tokenizer);
    if (!status) status = rf_tokenizer_encode(tokenizer, TEXT, strlen(TEXT), &special, &ids, &count);
    if (!status) status = rf_tokenizer_decode(tokenizer, ids, count, &show, &text, &bytes);
    long left = countdown;
    countdown = -1; /* what is checked here may allocate */
    RF_ASSERT(status ? text == NULL : bytes == strlen(TEXT) && memcmp(text, TEXT, bytes) == 0);
    RF_ASSERT(ids != NULL || status);
    rf_token_ids_destroy(&ids);
    rf_text_destroy(&text);
    rf_tokenizer_destroy(&tokenizer);
    countdown = left;
    return status;
}

/* Every byte, and a few more. */
static void write_model(const char *family, void **bytes, size_t *size) {
    bool llama = strcmp(family, "llama") == 0;
    static const struct rf_gguf_string merges[] = {{"a b", 3}, {"ab ab", 5}, {"x ab", 4}};
    static char spellings[256][8];
    struct rf_gguf_string tokens[258];
    int32_t types[258];
    struct rf_gguf_writer *writer = NULL;
    for (int byte = 0; byte < 256; byte++) {
        char raw = (char)byte;
        size_t length = llama ? (size_t)snprintf(spellings[byte], sizeof spellings[byte], "<0x%02X>", (unsigned)byte)
                              : spell_bytes(&raw, 1, spellings[byte]);
        tokens[byte] = (struct rf_gguf_string){spellings[byte], length};
        types[byte] = llama ? RF_TOKEN_BYTE : RF_TOKEN_NORMAL;
    }
    tokens[256] = (struct rf_gguf_string){"ab", 2};
    types[256] = RF_TOKEN_NORMAL;
    tokens[257] = (struct rf_gguf_string){"<x>", 3};
    types[257] = RF_TOKEN_CONTROL;
    RF_ASSERT_OK(rf_gguf_writer_create(&writer));
    rf_gguf_write_string(writer, "tokenizer.ggml.model", family);
    rf_gguf_write_string(writer, "tokenizer.ggml.pre", "llama-bpe");
    rf_gguf_write_strings(writer, "tokenizer.ggml.tokens", tokens, 258);
    rf_gguf_write_strings(writer, "tokenizer.ggml.merges", merges, 3);
    rf_gguf_write_array(writer, "tokenizer.ggml.token_type", RF_GGUF_I32, types, 258);
    rf_gguf_write_bool(writer, "tokenizer.ggml.add_bos_token", false);
    RF_ASSERT_OK(rf_gguf_writer_finish_memory(writer, bytes, size));
    rf_gguf_writer_destroy(&writer);
}

RF_TEST(tokenizer, every_allocation_refused) {
    static const char *const families[] = {"gpt2", "llama"};
    for (size_t i = 0; i < 2; i++) {
        RF_TRACE("%s", families[i]);
        void *bytes = NULL;
        size_t size = 0;
        struct rf_gguf *gguf = NULL;
        write_model(families[i], &bytes, &size);
        RF_ASSERT_OK(rf_gguf_open_memory(bytes, size, NULL, &gguf));
        RF_ASSERT_OK(use(gguf));
        long number = 0;
        for (;; number++) {
            RF_ASSERT(number < 1000);
            countdown = number;
            rf_status status = use(gguf);
            bool was_reached = countdown < 0;
            countdown = -1;
            if (!was_reached) break; /* there are no more */
            if (status != RF_E_NO_MEMORY) RF_FAIL("allocation %ld refused: %s", number, rf_status_name(status));
            RF_ASSERT_CONTAINS(rf_error_text(), "memory");
        }
        RF_ASSERT(number > 10);
        rf_gguf_close(&gguf);
        free(bytes);
    }
}

RF_TEST(tokenizer, the_fuzzers_seeds) {
    glob_t found;
    RF_ASSERT_INT(glob(FUZZ_CORPUS "/tokenizer/*", 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        size_t size;
        unsigned char *bytes = read_bytes(found.gl_pathv[i], &size);
        const char *wrong = tokenizer_property(bytes, size);
        if (wrong) RF_FAIL("%s: %s", found.gl_pathv[i], wrong);
        free(bytes);
    }
    RF_ASSERT(found.gl_pathc > 10);
    globfree(&found);
}
