/* The oracle: small models and the logits that an independent engine gives for them (tests/data/README.md), from the
 * folder that RF_TEST_DATA names or from the test data. */
#ifndef ORACLE_TESTING_H
#define ORACLE_TESTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct oracle {
    const char *label;
    double bound; /* of sum((a-b)^2) / sum(b^2) */
};
static const struct oracle oracles[] = {{"llama-f32", 1e-9},  {"llama-f16", 2e-6},     {"llama-q4_0", 2e-3},
                                        {"llama-q8_0", 2e-3}, {"llama-q4_k_m", 2e-3},  {"llama-q6_k", 2e-3},
                                        {"qwen2-f32", 1e-9},  {"qwen3-f32-tied", 1e-9}};

/* Finds the model's path; false if the model is not here. */
bool oracle_find(const struct oracle *oracle, char *path, size_t size);

struct answers {
    void *file; /* the caller frees */
    uint32_t vocabulary, prompt, steps;
    const int32_t *tokens; /* prompt */
    const float *logits;   /* a row for each token of the prompt */
    const char *greedy;    /* for each step: a token and the row that it was chosen from */
};
/* Opens the expected logits of the model at this path. */
void answers_open(const char *model_path, struct answers *answers);
int32_t answers_token(const struct answers *answers, uint32_t step);
const float *answers_step(const struct answers *answers, uint32_t step);
/* The bound applies to all rows together, as it was measured for the oracle; a single row may be off by twice
 * that. */
void answers_compare(const struct answers *answers, const float *rows, const float *const *expected, size_t count,
                     double bound, const char *what);

#endif
