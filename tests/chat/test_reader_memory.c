/* Each allocation of a reader refused in turn: RF_E_NO_MEMORY with a reason, and everything given back (a leak
 * sanitizer sees to the latter). And the fuzzer's seeds, replayed. */
#include <rocmforge/test.h>

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../refused_memory.h"
#include "base/base.h"
#include "chat/reader_impl.h"
#include "reader_property.h"

static const struct {
    const char *source, *text;
} answers[] = {
    {"</think><tool_call>", "<think>a</think>b<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"f\"}</tool_call>c"},
    {"<function=<parameter=", "<function=f><parameter=a>1</parameter><parameter=b>x</parameter></function>"},
    {"<|channel|><|message|><|start|>", "<|channel|>commentary to=functions.f<|message|>{\"a\": 1}"},
};

static rf_status use(const char *source, const char *text) {
    struct rf_chat_reader *reader = NULL;
    RF_PARAMS(struct rf_chat_reader_params, params);
    params.calls = true;
    params.tools = "[{\"name\": \"f\", \"parameters\": {\"properties\": {\"b\": {\"type\": \"string\"}}}}]";
    rf_status status = rf_chat_reader_create_for(source, &params, &reader);
    RF_ASSERT(!status == !!reader);
    for (size_t at = 0; at < strlen(text) && !status; at += 5)
        status = rf_chat_reader_push(reader, text + at, RF_MIN(strlen(text) - at, (size_t)5));
    if (!status) status = rf_chat_reader_finish(reader);
    rf_chat_reader_destroy(&reader);
    return status;
}

RF_TEST(reader, each_allocation_refused) {
    for (size_t i = 0; i < RF_COUNT(answers); i++) {
        long before = allocations;
        RF_ASSERT_OK(use(answers[i].source, answers[i].text));
        long needed = allocations - before;
        RF_EXPECT(needed >= 3);
        for (long n = 0; n < needed; n++) {
            RF_TRACE("answer %zu, allocation %ld", i, n);
            countdown = n;
            rf_status status = use(answers[i].source, answers[i].text);
            countdown = -1;
            RF_EXPECT_STATUS(status, RF_E_NO_MEMORY);
            RF_EXPECT(rf_error_text()[0]);
        }
    }
}

RF_TEST(reader, the_fuzzer_s_seeds) {
    glob_t found;
    RF_ASSERT_INT(glob(FUZZ_CORPUS "/reader/*", 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        unsigned char bytes[4096];
        FILE *file = fopen(found.gl_pathv[i], "rb");
        RF_ASSERT(file != NULL);
        size_t size = fread(bytes, 1, sizeof bytes, file);
        fclose(file);
        const char *wrong = reader_property(bytes, size);
        if (wrong) RF_FAIL("%s: %s", found.gl_pathv[i], wrong);
    }
    RF_EXPECT(found.gl_pathc >= 10);
    globfree(&found);
}
