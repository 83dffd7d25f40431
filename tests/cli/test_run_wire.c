/* What the command and its worker say to each other: frames come back as they were put, in whatever parts they
 * arrive, and nonsense is refused. */
#include <rocmforge/test.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../src/cli/wire.h"
#include "run_testing.h"

static void make_pair(int ends[2]) {
    RF_ASSERT_INT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
}

RF_TEST(run_wire, frames_in_any_parts) {
    int ends[2];
    struct wire_out out = {0};
    make_pair(ends);
    RF_ASSERT(wire_send_hello(ends[0], &out));
    wire_begin(&out, WIRE_ASK);
    wire_put_u32(&out, 7);
    wire_put_u64(&out, UINT64_C(1) << 40);
    wire_put_text(&out, "Grün");
    wire_put_text(&out, "");
    RF_ASSERT(wire_send(ends[0], &out));
    wire_begin(&out, WIRE_QUIT);
    RF_ASSERT(wire_send(ends[0], &out));
    unsigned char all[256];
    ssize_t bytes = recv(ends[1], all, sizeof all, 0);
    RF_ASSERT(bytes > 40);
    for (size_t step = 1; step <= (size_t)bytes; step++) {
        struct wire_in in = {0};
        struct wire_body body;
        int frames = 0;
        RF_TRACE("%zu bytes at a time", step);
        for (size_t at = 0; at < (size_t)bytes; at += step) {
            size_t part = RF_MIN(step, (size_t)bytes - at);
            RF_ASSERT_INT(send(ends[0], all + at, part, 0), part);
            RF_ASSERT_INT(wire_read(ends[1], &in, true), WIRE_MORE);
            while (wire_next(&in, &body) == WIRE_FRAME) {
                frames++;
                if (body.kind == WIRE_QUIT) RF_EXPECT(wire_taken(&body) && frames == 2);
                if (body.kind == WIRE_QUIT) continue;
                RF_EXPECT_INT(body.kind, WIRE_ASK);
                char text[8];
                RF_EXPECT_UINT(wire_take_u32(&body), 7);
                RF_EXPECT_UINT(wire_take_u64(&body), UINT64_C(1) << 40);
                wire_take_text(&body, text, sizeof text);
                RF_EXPECT_TEXT(text, "Grün");
                RF_EXPECT(!wire_taken(&body));
                char *copy = wire_take_copy(&body);
                RF_ASSERT(copy != NULL);
                RF_EXPECT_TEXT(copy, "");
                free(copy);
                RF_EXPECT(wire_taken(&body));
                wire_take_u32(&body); /* there is no more */
                RF_EXPECT(body.bad && !wire_taken(&body));
            }
        }
        RF_EXPECT_INT(frames, 2);
        RF_EXPECT_INT(wire_read(ends[1], &in, false), WIRE_MORE); /* nothing is there, and nobody waits */
        wire_in_finish(&in);
    }
    struct wire_in in = {0};
    close(ends[0]);
    RF_EXPECT_INT(wire_read(ends[1], &in, true), WIRE_OVER);
    RF_EXPECT(!wire_send(ends[1], &out)); /* and no signal */
    wire_in_finish(&in);
    wire_out_finish(&out);
    close(ends[1]);
}

static enum wire_state state_of(const void *bytes, size_t count, char why[160]) {
    struct wire_in in = {.bytes = malloc(count + 1), .count = count, .capacity = count + 1};
    struct wire_body body;
    RF_ASSERT(in.bytes != NULL);
    memcpy(in.bytes, bytes, count);
    enum wire_state state;
    while ((state = wire_next(&in, &body)) == WIRE_FRAME)
        free(wire_take_copy(&body)); /* whatever it is, it is taken within its bounds */
    memcpy(why, in.why, sizeof in.why);
    wire_in_finish(&in);
    return state;
}

RF_TEST(run_wire, nonsense_is_refused) {
    char why[160];
    const uint32_t hello[] = {WIRE_HELLO, 8, 0x52465257, WIRE_VERSION};
    RF_EXPECT_INT(state_of(hello, sizeof hello, why), WIRE_MORE);
    const struct {
        uint32_t words[8];
        size_t count;
        const char *why;
    } bad[] = {{{0, 0}, 2, "not a frame (kind 0"},
               {{WIRE_KINDS, 0}, 2, "not a frame"},
               {{WIRE_ASK, WIRE_BODY_MAX + 1}, 2, "not a frame"},
               {{WIRE_ASK, 0}, 2, "not a greeting"},
               {{WIRE_HELLO, 4}, 2, "not a greeting"},
               {{WIRE_HELLO, 8, 0x52465257, WIRE_VERSION + 1}, 4, "another version"},
               {{WIRE_HELLO, 8, 1, WIRE_VERSION}, 4, "another program"},
               {{WIRE_HELLO, 8, 0x52465257, WIRE_VERSION, WIRE_HELLO, 8}, 6, "second greeting"}};
    for (size_t i = 0; i < RF_COUNT(bad); i++) {
        RF_TRACE("case %zu", i);
        RF_EXPECT_INT(state_of(bad[i].words, bad[i].count * sizeof(uint32_t), why), WIRE_BAD);
        RF_EXPECT_CONTAINS(why, bad[i].why);
    }
    /* Texts that lie about their length, or hold a zero. */
    static const unsigned char short_text[] = {9, 0, 0, 0, 0, 0, 0, 0, 'a'},
                               zero_text[] = {2, 0, 0, 0, 0, 0, 0, 0, 0, 'a'};
    char text[4];
    struct wire_body body = {.at = short_text, .end = short_text + sizeof short_text};
    wire_take_text(&body, text, sizeof text);
    RF_EXPECT(body.bad && !text[0]);
    /* One that has no room: nothing of it is taken. */
    static const unsigned char long_text[] = {4, 0, 0, 0, 0, 0, 0, 0, 'a', 'b', 'c', 'd'};
    char place[12] = "xxxxxxxxxxx";
    body = (struct wire_body){.at = long_text, .end = long_text + sizeof long_text};
    wire_take_text(&body, place, 4);
    RF_EXPECT(body.bad && !place[0]);
    RF_EXPECT_TEXT(place + 1, "xxxxxxxxxx");
    body = (struct wire_body){.at = zero_text, .end = zero_text + sizeof zero_text};
    RF_EXPECT(!wire_take_copy(&body) && body.bad);
    /* Any bytes behind a greeting. */
    struct rf_random random = {rf_test_seed()};
    for (int round = 0; round < 20000; round++) {
        unsigned char bytes[96];
        memcpy(bytes, hello, sizeof hello);
        for (size_t i = sizeof hello; i < sizeof bytes; i++)
            bytes[i] = (unsigned char)(rf_random_next(&random) & (rf_random_below(&random, 2) ? 0xff : 0x0f));
        for (size_t i = sizeof hello + 1; i < sizeof hello + 8; i++)
            if (i != sizeof hello + 4) bytes[i] = 0; /* so that many are frames at first */
        state_of(bytes, sizeof hello + (size_t)rf_random_below(&random, sizeof bytes - sizeof hello), why);
    }
}

/* The worker itself, spoken to by a command that is none. */
enum { REPORT_FD = 9 }; /* WORKER_FD */
RF_TEST(run_wire, a_worker_refuses_nonsense, .timeout_ms = 300000) {
    static const char nonsense[] = "GET / HTTP/1.1\r\n\r\n";
    int ends[2];
    make_pair(ends);
    RF_ASSERT_INT(dup2(ends[1], REPORT_FD), REPORT_FD);
    close(ends[1]);
    RF_ASSERT_INT(send(ends[0], nonsense, sizeof nonsense, 0), sizeof nonsense);
    RF_EXPECT_INT(command_run("RF_DRIVER=none ROCMFORGE_WORKER=0", "run --in-worker -m model.gguf -p '?'"), 1);
    RF_EXPECT_TEXT(command_output, "");
    RF_EXPECT_CONTAINS(command_errors, "rocmforge: run: the worker process: this is not a frame");
    RF_EXPECT(strchr(command_errors, '\n') == command_errors + strlen(command_errors) - 1);
    close(REPORT_FD);
    close(ends[0]);
}

/* A question as the worker takes it: its parts, or what stands in their place. */
struct asked {
    const char *label;
    bool good;
    uint32_t number, kind, special, grammar, has_after;
    const char *text;     /* kind 0 */
    uint64_t bytes;       /* kind 1: what it says, */
    const char *bytes_of; /* and what there is */
    const char *marks;
    uint32_t format, count, role; /* kind 2, of one message */
    size_t further;               /* bytes behind the end */
};

static void put_question(struct wire_out *out, const struct asked *asked) {
    wire_begin(out, WIRE_ASK);
    wire_put_u32(out, asked->number);
    wire_put_u32(out, asked->kind);
    wire_put_u32(out, asked->special);
    wire_put_u32(out, asked->grammar);
    wire_put_text(out, "");
    wire_put_u32(out, asked->has_after);
    wire_put_text(out, "");
    if (asked->text) wire_put_text(out, asked->text);
    if (asked->bytes_of) {
        wire_put_u64(out, asked->bytes);
        wire_put(out, asked->bytes_of, strlen(asked->bytes_of));
        for (const char *mark = asked->marks; *mark; mark++) {
            const unsigned char number = (unsigned char)(*mark - '0');
            wire_put(out, &number, 1);
        }
    }
    if (asked->kind == WIRE_QUESTION_MESSAGES) {
        wire_put_u32(out, asked->format);
        wire_put_u32(out, asked->count);
        wire_put_u32(out, asked->role);
        wire_put_text(out, "hi");
    }
    for (size_t i = 0; i < asked->further; i++) wire_put(out, "x", 1);
}

RF_TEST(run_wire, a_worker_refuses_odd_questions, .timeout_ms = 300000) {
    static const struct asked all[] = {
        {"text", true, 1, 0, .text = "?"},
        {"rendered", true, 1, 1, .bytes = 1, .bytes_of = "?", .marks = "1"},
        {"messages", true, 1, 2, .format = RF_CHAT_CHATML, .count = 1, .role = RF_CHAT_USER},
        {"no number", false, 0, 0, .text = "?"},
        {"no such kind", false, 1, 3, .text = "?"},
        {"odd flag", false, 1, 0, .special = 2, .text = "?"},
        {"odd flag", false, 1, 0, .has_after = 2, .text = "?"},
        {"no such grammar", false, 1, 0, .grammar = 5, .text = "?"},
        {"no text", false, 1, 0, .text = NULL},
        {"too long", false, 1, 0, .text = "?", .further = 1},
        {"fewer bytes", false, 1, 1, .bytes = 2, .bytes_of = "?", .marks = "1"},
        {"more bytes", false, 1, 1, .bytes = 1, .bytes_of = "??", .marks = "11"},
        {"endless", false, 1, 1, .bytes = UINT64_MAX, .bytes_of = "?", .marks = "1"},
        {"fewer marks", false, 1, 1, .bytes = 2, .bytes_of = "??", .marks = "1"},
        {"no mark", false, 1, 1, .bytes = 1, .bytes_of = "?", .marks = "2"},
        {"no message", false, 1, 2, .format = RF_CHAT_CHATML},
        {"no such format", false, 1, 2, .format = 9, .count = 1},
        {"no such role", false, 1, 2, .format = RF_CHAT_CHATML, .count = 1, .role = RF_CHAT_TOOL},
        {"more messages", false, 1, 2, .format = RF_CHAT_CHATML, .count = UINT32_MAX},
        {"more messages", false, 1, 2, .format = RF_CHAT_CHATML, .count = 2}};
    struct wire_out out = {0};
    for (size_t i = 0; i < RF_COUNT(all); i++) {
        int ends[2];
        RF_TRACE("%s", all[i].label);
        make_pair(ends);
        RF_ASSERT_INT(dup2(ends[1], REPORT_FD), REPORT_FD);
        close(ends[1]);
        RF_ASSERT(wire_send_hello(ends[0], &out));
        put_question(&out, &all[i]);
        RF_ASSERT(wire_send(ends[0], &out));
        wire_begin(&out, WIRE_QUIT);
        RF_ASSERT(wire_send(ends[0], &out));
        RF_EXPECT_INT(command_run("RF_DRIVER=none ROCMFORGE_WORKER=0", "run --in-worker -m chat.gguf -p '?'"),
                      all[i].good ? 0 : 1);
        if (!all[i].good) RF_EXPECT_CONTAINS(command_errors, "a frame that makes no sense (kind 2)");
        close(REPORT_FD);
        close(ends[0]);
    }
    wire_out_finish(&out);
}
