/* What a reader makes of an answer, as one text, and what must hold whatever the answer: for tests and the fuzzer. */
#ifndef RF_TESTS_READER_PROPERTY_H
#define RF_TESTS_READER_PROPERTY_H

#include <rocmforge/chat.h>
#include <stdbool.h>
#include <stddef.h>

/* How an answer is read. Zero: as content. */
struct reading {
    const char *source;                           /* a template's source; NULL: none */
    const struct rf_chat_template *chat_template; /* instead of its source */
    const struct rf_chat_prompt *rendered;        /* instead of the prompt's end */
    const char *prompt; /* the end of the prompt, all of it the template's own; NULL: none */
    bool no_calls;
    const char *tools;
    struct rf_runtime *runtime;
    size_t refuse_after; /* events until a callback says no; 0: none does */
};

/* The events of an answer that is pushed in the given pieces; what belongs together is joined:
 *     R:thought|C:text|F:name|A:{"a": 1}|E:id|!why
 * R: reasoning, C: content, F: a call begins, A: its arguments, E: it is complete, with its id or "-"; ! and the
 * error text if finishing fails. The text is allocated. cuts: where pieces end, rising. *wrong: NULL, or what a
 * reader must never do (a part of a character, a call that does not fit its arguments). */
char *read_answer(const struct reading *how, const char *text, size_t bytes, const size_t *cuts, size_t cut_count,
                  const char **wrong);

/* Reads any answer with any format: whole, byte by byte and in two random pieces. NULL: all is well, else what does
 * not hold. */
const char *reader_property(const unsigned char *bytes, size_t size);

#endif
