/* The frames that a command and its worker exchange over a socket pair: a kind, a length and a body.
 *
 * Both ends are the same program on the same machine, so numbers are in native byte order. The reader still trusts
 * nothing: the other end may have died or been corrupted in the middle of a frame.
 *
 * `rocmforge run`:
 *
 *     the command                              the worker
 *     HELLO
 *                                              HELLO, then READY or FAILED
 *     ASK, with its number                     PROMPT, BEATs while it is evaluated, TOKEN and TEXT, END or FAILED
 *     CANCEL, with that number, at any time
 *     QUIT                                     CLOSED or FAILED
 *
 * A job (worker.h), where only the worker speaks: HELLO, then AT, OUTPUT and ERROR in any order, then FINISHED.
 */
#ifndef RF_CLI_WIRE_H
#define RF_CLI_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WIRE_VERSION = 3, WIRE_HEAD_BYTES = 8, WIRE_BODY_MAX = 256 << 20 };
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
    WIRE_AT,
    WIRE_OUTPUT,
    WIRE_ERROR,
    WIRE_FINISHED,
    WIRE_KINDS
};

/* What an ASK holds: a text to continue, a conversation that the command has rendered (its bytes, then a mark for
 * each), or messages for a built-in format. */
enum wire_question { WIRE_QUESTION_TEXT, WIRE_QUESTION_RENDERED, WIRE_QUESTION_MESSAGES, WIRE_QUESTION_KINDS };

/* ---- writing ---- */

/* A frame that is being built; zero-initialised: empty. Its memory is reused for the next frame. If memory runs out,
 * sending fails. */
struct wire_out {
    unsigned char *bytes;
    size_t count, capacity;
    bool failed;
};
void wire_begin(struct wire_out *out, enum wire_kind kind);
void wire_put(struct wire_out *out, const void *bytes, size_t count);
void wire_put_u32(struct wire_out *out, uint32_t number);
void wire_put_u64(struct wire_out *out, uint64_t number);
void wire_put_text(struct wire_out *out, const char *text); /* writes its length, then its bytes */
/* Sends the whole frame, waiting for the other end to take it; false: the other end is gone, or memory ran out. */
bool wire_send(int channel, struct wire_out *out);
bool wire_send_hello(int channel, struct wire_out *out);
void wire_out_finish(struct wire_out *out);

/* ---- reading ---- */

/* The body of a frame while it is read. If it is too short, or something in it is malformed, it stays bad, and
 * everything read from then on is zero or empty. */
struct wire_body {
    enum wire_kind kind;
    const unsigned char *at, *end;
    bool bad;
};
const void *wire_take(struct wire_body *body, size_t count);
uint32_t wire_take_u32(struct wire_body *body);
uint64_t wire_take_u64(struct wire_body *body);
/* Copies a text, ended by zero; a text that does not fit makes the body bad. */
void wire_take_text(struct wire_body *body, char *text, size_t size);
/* A copy, ended by zero; text that holds a zero byte is bad. NULL: bad, or no memory. The caller frees it. */
char *wire_take_copy(struct wire_body *body);
/* Whether nothing was malformed and the whole body was read. */
bool wire_taken(const struct wire_body *body);

/* What was received and not yet read; zero-initialised: empty. */
struct wire_in {
    unsigned char *bytes;
    size_t first, count, capacity;
    bool greeted; /* HELLO was received */
    char why[160];
};
enum wire_state { WIRE_FRAME, WIRE_MORE, WIRE_OVER, WIRE_BAD };
/* The next complete frame; its body is borrowed until the next call. MORE: it is not complete yet. BAD: this is not a
 * frame, it is out of order, or memory ran out; in->why says which. HELLO is handled here and not returned. */
enum wire_state wire_next(struct wire_in *in, struct wire_body *body);
/* Receives what has arrived, waiting for it if wait is true. Returns MORE, or OVER at the end of the channel. */
enum wire_state wire_read(int channel, struct wire_in *in, bool wait);
void wire_in_finish(struct wire_in *in);

#endif
