/* See wire.h. */
#include "wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { MAGIC = 0x52465257, READ_BYTES = 64 << 10 };

/* Makes room for more bytes after the first count. */
static bool grow(unsigned char **bytes, size_t count, size_t *capacity, size_t more) {
    if (*capacity - count >= more) return true;
    if (more > SIZE_MAX / 4 - count) return false;
    size_t wanted = 2 * (count + more);
    unsigned char *grown = realloc(*bytes, wanted);
    if (!grown) return false;
    *bytes = grown;
    *capacity = wanted;
    return true;
}

/* ---- writing ---- */

void wire_put(struct wire_out *out, const void *bytes, size_t count) {
    if (out->failed || !count) return;
    out->failed = !grow(&out->bytes, out->count, &out->capacity, count);
    if (out->failed) return;
    memcpy(out->bytes + out->count, bytes, count);
    out->count += count;
}
void wire_put_u32(struct wire_out *out, uint32_t number) {
    wire_put(out, &number, sizeof number);
}
void wire_put_u64(struct wire_out *out, uint64_t number) {
    wire_put(out, &number, sizeof number);
}
void wire_put_text(struct wire_out *out, const char *text) {
    size_t length = strlen(text);
    wire_put_u64(out, length);
    wire_put(out, text, length);
}

void wire_begin(struct wire_out *out, enum wire_kind kind) {
    out->count = 0;
    out->failed = false;
    wire_put_u32(out, kind);
    wire_put_u32(out, 0); /* the length, filled in when the frame is sent */
}

bool wire_send(int channel, struct wire_out *out) {
    if (out->failed || out->count - WIRE_HEAD_BYTES > WIRE_BODY_MAX) return false;
    uint32_t length = (uint32_t)(out->count - WIRE_HEAD_BYTES);
    memcpy(out->bytes + 4, &length, sizeof length);
    for (size_t sent = 0; sent < out->count;) {
        ssize_t count = send(channel, out->bytes + sent, out->count - sent, MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return false;
        sent += (size_t)count;
    }
    return true;
}

bool wire_send_hello(int channel, struct wire_out *out) {
    wire_begin(out, WIRE_HELLO);
    wire_put_u32(out, MAGIC);
    wire_put_u32(out, WIRE_VERSION);
    return wire_send(channel, out);
}

void wire_out_finish(struct wire_out *out) {
    free(out->bytes);
    *out = (struct wire_out){0};
}

/* ---- a body ---- */

const void *wire_take(struct wire_body *body, size_t count) {
    if (body->bad || (size_t)(body->end - body->at) < count) {
        body->bad = true;
        return NULL;
    }
    const void *taken = body->at;
    body->at += count;
    return taken;
}
uint32_t wire_take_u32(struct wire_body *body) {
    uint32_t number = 0;
    const void *from = wire_take(body, sizeof number);
    if (from) memcpy(&number, from, sizeof number);
    return number;
}
uint64_t wire_take_u64(struct wire_body *body) {
    uint64_t number = 0;
    const void *from = wire_take(body, sizeof number);
    if (from) memcpy(&number, from, sizeof number);
    return number;
}

/* The bytes of a text, none of which may be zero. */
static const void *take_text(struct wire_body *body, size_t *length) {
    uint64_t count = wire_take_u64(body);
    const void *from = count <= WIRE_BODY_MAX ? wire_take(body, (size_t)count) : NULL;
    if (!from || memchr(from, 0, (size_t)count)) {
        body->bad = true;
        return NULL;
    }
    *length = (size_t)count;
    return from;
}

void wire_take_text(struct wire_body *body, char *text, size_t size) {
    size_t length = 0;
    const void *from = take_text(body, &length);
    if (from && length >= size) body->bad = true;
    if (!from || body->bad) length = 0;
    if (length) memcpy(text, from, length);
    text[length] = 0;
}

char *wire_take_copy(struct wire_body *body) {
    size_t length = 0;
    const void *from = take_text(body, &length);
    if (!from) return NULL;
    char *copy = malloc(length + 1);
    if (!copy) {
        body->bad = true;
        return NULL;
    }
    memcpy(copy, from, length);
    copy[length] = 0;
    return copy;
}

bool wire_taken(const struct wire_body *body) {
    return !body->bad && body->at == body->end;
}

/* ---- frames ---- */

static enum wire_state refuse(struct wire_in *in, uint32_t kind, uint32_t length, const char *what) {
    snprintf(in->why, sizeof in->why, "%s (kind %u, %u bytes)", what, kind, length);
    return WIRE_BAD;
}

enum wire_state wire_next(struct wire_in *in, struct wire_body *body) {
    for (;;) {
        uint32_t kind, length;
        if (in->count - in->first < WIRE_HEAD_BYTES) return WIRE_MORE;
        const unsigned char *head = in->bytes + in->first;
        memcpy(&kind, head, sizeof kind);
        memcpy(&length, head + 4, sizeof length);
        if (!kind || kind >= WIRE_KINDS || length > WIRE_BODY_MAX)
            return refuse(in, kind, length, "this is not a frame");
        if (!in->greeted && (kind != WIRE_HELLO || length != 8))
            return refuse(in, kind, length, "the first frame is not a greeting");
        if (in->greeted && kind == WIRE_HELLO) return refuse(in, kind, length, "a second greeting");
        if (in->count - in->first - WIRE_HEAD_BYTES < length) return WIRE_MORE;
        head += WIRE_HEAD_BYTES;
        *body = (struct wire_body){.kind = (enum wire_kind)kind, .at = head, .end = head + length};
        in->first += WIRE_HEAD_BYTES + length;
        if (kind != WIRE_HELLO) return WIRE_FRAME;
        if (wire_take_u32(body) != MAGIC || wire_take_u32(body) != WIRE_VERSION)
            return refuse(in, kind, length, "the greeting is from another program or another version");
        in->greeted = true;
    }
}

enum wire_state wire_read(int channel, struct wire_in *in, bool wait) {
    if (in->first) { /* reuse the room of what was read */
        memmove(in->bytes, in->bytes + in->first, in->count - in->first);
        in->count -= in->first;
        in->first = 0;
    }
    for (;;) {
        if (!grow(&in->bytes, in->count, &in->capacity, READ_BYTES)) {
            snprintf(in->why, sizeof in->why, "no memory for more than the %zu bytes received", in->count);
            return WIRE_BAD;
        }
        ssize_t count = recv(channel, in->bytes + in->count, READ_BYTES, wait ? 0 : MSG_DONTWAIT);
        if (count > 0) {
            in->count += (size_t)count;
            return WIRE_MORE;
        }
        if (count < 0 && errno == EINTR) continue;
        return count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? WIRE_MORE : WIRE_OVER;
    }
}

void wire_in_finish(struct wire_in *in) {
    free(in->bytes);
    *in = (struct wire_in){0};
}
