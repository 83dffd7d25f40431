/* What the tests of the ladder share: a model, a GPU that is small for it, and a generation to compare with. The
 * simulated desktop grows and shrinks between tokens; tokens are those of an undisturbed run, so logits can be
 * compared at every position. */
#ifndef LADDER_TESTING_H
#define LADDER_TESTING_H

#include "infer_testing.h"

/* Each cache has more than a MiB, so it is an allocation of its own; layers are small and share allocations. */
enum { LAYERS = 3, VOCABULARY = 64, CONTEXT = 2304 };
extern const struct spec tower;
/* The engine needs little compared with this; the floor is 32 MiB. */
extern const struct where squeezed;
extern const struct rf_engine_params usual;

enum { PROMPT = 12, SAID = 24 };
struct text {
    int32_t *tokens; /* the prompt, then the generated tokens */
    float *rows;     /* logits after each token from the prompt's last on */
    uint32_t count;  /* number of generated tokens */
};
void fill_prompt(int32_t *tokens);
/* A generation that nothing disturbs. free_text frees it. */
void make_text(const struct where *where, uint32_t count, struct text *text);
void free_text(struct text *text);
const float *row_of(const struct text *text, uint32_t index);
/* How its tokens are drawn. There is a penalty, because otherwise the model repeats one token. */
struct rf_sample_params sampling(void);
/* Rows must be identical to the bit as long as only caches moved. */
void compare_row(const float *row, const float *expected, bool exact);

/* What the desktop may take without anything moving. */
uint64_t free_above_floor(const struct infer *infer);

#endif
