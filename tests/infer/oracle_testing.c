#include "oracle_testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rocmforge/test.h>

#include "arch_testing.h"
#include "base/base.h"
#include "gguf_testing.h"

bool oracle_find(const struct oracle *oracle, char *path, size_t size) {
    const char *folders[] = {getenv("RF_TEST_DATA"), TEST_DATA};
    for (size_t i = 0; i < RF_COUNT(folders); i++) {
        snprintf(path, size, "%s/oracle/%s.gguf", folders[i] ? folders[i] : "", oracle->label);
        if (folders[i] && !access(path, R_OK)) return true;
    }
    return false;
}

int32_t answers_token(const struct answers *answers, uint32_t step) {
    int32_t token;
    memcpy(&token, answers->greedy + (size_t)step * (1 + answers->vocabulary) * 4, sizeof token);
    return token;
}
const float *answers_step(const struct answers *answers, uint32_t step) {
    return (const float *)(const void *)(answers->greedy + (size_t)step * (1 + answers->vocabulary) * 4 + 4);
}

void answers_open(const char *model_path, struct answers *answers) {
    char path[512];
    size_t bytes;
    int32_t head[3];
    snprintf(path, sizeof path - 8, "%s", model_path);
    strcpy(path + strlen(path) - strlen("gguf"), "logits");
    *answers = (struct answers){.file = read_bytes(path, &bytes)};
    RF_ASSERT(bytes >= sizeof head);
    memcpy(head, answers->file, sizeof head);
    size_t vocabulary = (size_t)head[0], prompt = (size_t)head[1], steps = (size_t)head[2];
    RF_ASSERT_UINT(bytes, 4 * (3 + prompt + prompt * vocabulary + steps * (1 + vocabulary)));
    answers->vocabulary = (uint32_t)vocabulary;
    answers->prompt = (uint32_t)prompt;
    answers->steps = (uint32_t)steps;
    answers->tokens = (const int32_t *)answers->file + 3;
    answers->logits = (const float *)(answers->tokens + prompt);
    answers->greedy = (const char *)(answers->logits + prompt * vocabulary);
}

void answers_compare(const struct answers *answers, const float *rows, const float *const *expected, size_t count,
                     double bound, const char *what) {
    double error = 0, size = 0, worst = 0;
    for (size_t r = 0; r < count; r++) {
        const float *row = rows + r * answers->vocabulary;
        double of_row = error_of_floats(row, expected[r], answers->vocabulary), size_of_row = 0;
        for (uint32_t i = 0; i < answers->vocabulary; i++)
            size_of_row += (double)expected[r][i] * (double)expected[r][i];
        RF_TRACE("%s, row %zu", what, r);
        RF_EXPECT_DOUBLE(of_row, 0, 2 * bound);
        worst = RF_MAX(worst, of_row);
        error += of_row * size_of_row;
        size += size_of_row;
    }
    RF_NOTE("%s: %.2g, a row at most %.2g", what, error / size, worst);
    RF_EXPECT_DOUBLE(error / size, 0, bound);
}
