/* What `rocmforge run` and its worker say to each other: frames of a kind, a length and a body, over a socket pair.
 *
 * Both ends are the same program on the same machine, so numbers are in its own byte order. Whoever reads trusts
 * nothing all the same: the other end may have been struck in the middle of a word.
 *
 *     the command                              the worker
 *     HELLO
 *                                              HELLO, then READY or FAILED
 *     ASK, with its number                     PROMPT, then BEATs while it is read, TOKEN and TEXT, END or FAILED
 *     CANCEL, with that number, at any time
 *     QUIT                                     CLOSED or FAILED
 */
#ifndef RF_CLI_RUN_WIRE_H
#define RF_CLI_RUN_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WIRE_VERSION = 1, WIRE_HEAD_BYTES = 8, WIRE_BODY_MAX = 256 << 20 };
enum wire_kind {
    WIRE_HELLO = 1,
    WIRE_ASK,
    WIRE_CANCEL,
    WIRE_QUIT,
    WIRE_READY,
    WIRE_PROMPT,
    WIRE_TOKEN,
    WIRE_TEXT,
    WIRE_BEAT,
    WIRE_END,
    WIRE_FAILED,
    WIRE_CLOSED,
    WIRE_KINDS
};

/* ---- writing ---- */

/* A frame in the making; zero-initialised is empty, and it is kept for the next one. Want of memory shows when it is
 * sent. */
struct wire_out {
    unsigned char *bytes;
    size_t count, capacity;
    bool failed;
};
void wire_begin(struct wire_out *out, enum wire_kind kind);
void wire_put(struct wire_out *out, const void *bytes, size_t count);
void wire_put_u32(struct wire_out *out, uint32_t number);
void wire_put_u64(struct wire_out *out, uint64_t number);
void wire_put_text(struct wire_out *out, const char *text); /* its length, then its bytes */
/* All of it, waiting for the other end to take it; false: that is gone, or there was no memory. */
bool wire_send(int channel, struct wire_out *out);
bool wire_send_hello(int channel, struct wire_out *out);
void wire_out_finish(struct wire_out *out);

/* ---- reading ---- */

/* A frame's body as it is taken apart. Too little of it, or something that is not as it must be, makes it bad for
 * good, and all that is taken from then on is zero or empty. */
struct wire_body {
    enum wire_kind kind;
    const unsigned char *at, *end;
    bool bad;
};
const void *wire_take(struct wire_body *body, size_t count);
uint32_t wire_take_u32(struct wire_body *body);
uint64_t wire_take_u64(struct wire_body *body);
/* Into text, ended by zero; what does not fit makes it bad. */
void wire_take_text(struct wire_body *body, char *text, size_t size);
/* A copy, ended by zero, with no zero in it; NULL: bad, or no memory. The caller frees. */
char *wire_take_copy(struct wire_body *body);
/* Whether all was well and nothing is left. */
bool wire_taken(const struct wire_body *body);

/* What came and was not taken yet; zero-initialised is empty. */
struct wire_in {
    unsigned char *bytes;
    size_t first, count, capacity;
    bool greeted; /* HELLO has come */
    char why[160];
};
enum wire_state { WIRE_FRAME, WIRE_MORE, WIRE_OVER, WIRE_BAD };
/* The next whole frame, its body borrowed until the next call; MORE: it is not all there. BAD: this is no frame, it
 * is not the turn of one, or there is no memory; in->why says so. HELLO is read here and not handed out. */
enum wire_state wire_next(struct wire_in *in, struct wire_body *body);
/* Reads what is there, waiting for it if told to: MORE, or OVER at the end. */
enum wire_state wire_read(int channel, struct wire_in *in, bool wait);
void wire_in_finish(struct wire_in *in);

#endif
