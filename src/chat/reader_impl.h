/* What the reader's files share: the table of formats, the reader itself, and the steps of its modes.
 *
 *   reader.c          making a reader, pushing text, finishing; content, reasoning and the marks between them
 *   reader_flow.c     giving out parts: white space, UTF-8, callbacks
 *   reader_formats.c  the table: which marks a model's template uses
 *   reader_calls.c    from a call's mark to its name, arguments as one JSON value, and what follows a call
 *   reader_object.c   calls that are one JSON object: {"name": …, "arguments": {…}}
 *   reader_tagged.c   calls whose arguments are tagged text: <parameter=city>Paris</parameter>
 *   reader_channels.c answers that consist of messages with headers (gpt-oss)
 *   reader_json.c     where a JSON value ends
 *
 * The reader holds text that is not decided yet: `text`, of which the first `at` bytes are looked at. A mode's step
 * decides as much of it as it can. Invariants:
 *   1. what a step decides depends on the text alone, never on where it was cut: a decision is taken at the same
 * byte, whatever follows it, and limits are counted from a call's or a mark's beginning (the tests cut every answer
 * at every byte)
 *   2. until a call's name is certain (`calling`) nothing from its mark on is given out: what turns out to be no call
 *      is content from the mark on
 *   3. `at` is 0 where content, reasoning, a header or what follows a call begins
 *   4. what is held is at most RF_READER_HELD_MAX, or RF_READER_ARGUMENTS_MAX within a call, and a slice of a push */
#ifndef RF_CHAT_READER_IMPL_H
#define RF_CHAT_READER_IMPL_H

#include <rocmforge/chat.h>

#include "base/base.h"
#include "base/json_read.h"

#define RF_READER_HELD_MAX 65536u          /* of what may yet become a call */
#define RF_READER_ARGUMENTS_MAX (1u << 20) /* of one call, in bytes */
#define RF_READER_HEAD_MAX 512u            /* from a call's mark to its arguments; a header of a channel */
#define RF_READER_NAME_MAX 256u            /* of a function, an id, a parameter */
#define RF_READER_BLANKS_MAX 256u          /* white space that may be held back; a longer run is text */
#define RF_READER_DEPTH_MAX 512u           /* of JSON */
#define RF_READER_SLICE_BYTES 4096u        /* of a push, which is read in slices */

/* ---- reader_formats.c ---- */

struct rf_reasoning_format {
    const char *name;
    const char *signs[2]; /* a template that holds these (NULL: none) has this format */
    const char *open, *close;
    const char *drops[3]; /* marks around the content that are no part of it */
    bool anywhere;        /* the mark counts in the middle of an answer too; else only where it begins */
};

enum rf_call_kind {
    RF_CALL_OBJECTS, /* JSON objects with name and arguments, one after the other or in an array */
    RF_CALL_NAMED,   /* a head with the name, then the arguments as a JSON object */
    RF_CALL_TAGGED,  /* a name, then parameters in tags */
};

struct rf_call_format {
    const char *name;
    const char *signs[2];
    enum rf_call_kind kind;
    const char *section, *section_end; /* around all calls; optional in the text */
    const char *open, *close;          /* around one call, or an array of them */
    bool bare;                         /* objects: one that begins the answer needs no mark */
    bool fence;                        /* named: the arguments may be in a fenced block */
    bool objects_too;                  /* named: behind the mark may also be objects */
    /* named: what the head may be: %n is the name, %i the id, %_ something else, %k an id functions.NAME:NUMBER */
    const char *heads[3];
    const char *name_end; /* tagged; NULL: white space or '<' ends the name */
    const char *key_open, *key_end, *value_open, *value_end;
    bool lines; /* tagged: one line end at each end of a value is no part of it */
};

/* The formats of a template; NULL: none. */
const struct rf_reasoning_format *rf_reasoning_format_of(const char *source);
const struct rf_call_format *rf_call_format_of(const char *source);
bool rf_template_has_channels(const char *source);

/* ---- reader_json.c ---- */

/* Finds where a JSON value ends, byte by byte. It follows brackets and strings; whether all of it is valid is seen
 * when the whole is read. Zero-initialised before the first byte, which is not white space. */
struct rf_json_scan {
    unsigned char arrays[RF_READER_DEPTH_MAX / 8]; /* a bit for each open bracket: it is '[' */
    unsigned depth;
    bool begun, string, escape, scalar;
};
enum rf_json_scanned {
    RF_SCAN_MORE,
    RF_SCAN_LAST,   /* this byte ends the value */
    RF_SCAN_BEFORE, /* the value ended before this byte */
    RF_SCAN_WRONG,
};
enum rf_json_scanned rf_json_scan_byte(struct rf_json_scan *scan, char byte);

/* ---- the reader ---- */

/* Where one kind of text goes. */
struct rf_flow {
    bool (*give)(void *user, const char *text, size_t bytes);
    bool begun;    /* text was given out that is not white space */
    bool skipping; /* white space is dropped up to the next text */
    bool gap;      /* the next text is put behind a line end: something else stood between it and the text before */
    bool flowing;  /* the white space at hand is too long to be held back */
    char blanks[RF_READER_BLANKS_MAX];
    size_t blank_bytes; /* held back */
};

enum rf_reader_mode {
    RF_READ_CONTENT,
    RF_READ_REASONING,
    RF_READ_HEADER,    /* of a channel's message */
    RF_READ_SECTION,   /* behind the mark of a section: a call's mark must follow */
    RF_READ_HEAD,      /* behind a call's mark */
    RF_READ_OBJECT,    /* in a JSON object with name and arguments */
    RF_READ_ARGUMENTS, /* in the JSON value that is the arguments */
    RF_READ_KEY,       /* between the parameters of a tagged call */
    RF_READ_VALUE,     /* in the value of a parameter */
    RF_READ_AFTER,     /* behind a call */
    RF_READ_BROKEN,    /* in a call that is malformed */
    RF_READ_MODES
};

/* Where a JSON object with name and arguments is being read (reader_object.c). */
enum rf_object_field { RF_FIELD_OTHER, RF_FIELD_NAME, RF_FIELD_ARGUMENTS, RF_FIELD_ID };
enum rf_object_place {
    RF_OBJECT_FIRST_KEY,
    RF_OBJECT_NEXT_KEY,
    RF_OBJECT_KEY,
    RF_OBJECT_COLON,
    RF_OBJECT_VALUE_BEGIN,
    RF_OBJECT_VALUE,
    RF_OBJECT_COMMA,
};
struct rf_object {
    enum rf_object_place place;
    enum rf_object_field field;
    struct rf_json_scan scan;
    size_t token; /* where the key or value at hand begins */
    bool named, has_arguments;
    bool streaming;                        /* the arguments are given out as they come */
    size_t arguments_from, argument_bytes; /* of arguments that came before the name */
};

struct rf_chat_reader {
    struct rf_chat_reader_params params;
    struct rf_account account;
    const struct rf_reasoning_format *reasoning_format;
    const struct rf_call_format *call_format; /* NULL: no calls are looked for */
    bool channels;
    struct rf_json_tree tools;
    enum rf_reader_mode mode;
    bool final;        /* nothing follows */
    bool finished;     /* rf_chat_reader_finish was called */
    rf_status stopped; /* a push failed: nothing works any more */

    char *held;
    size_t held_capacity;
    char *text; /* in held: what is not decided */
    size_t bytes, at;
    char cut[4]; /* the beginning of a character that is not complete */
    size_t cut_bytes;

    struct rf_flow content, reasoning;

    /* The call at hand. */
    bool calling; /* its name was given out */
    bool bare;    /* it began without a mark */
    bool listing; /* more objects may follow: in an array, or one behind the other */
    bool array, fenced;
    size_t mark_bytes; /* of the mark that began it: what becomes content first if it is no call */
    size_t call_count;
    char name[RF_READER_NAME_MAX + 1], id[RF_READER_NAME_MAX + 1];
    bool has_id;
    char *arguments; /* so far, ended by zero */
    size_t argument_bytes, argument_capacity;
    struct rf_json_scan scan;
    struct rf_object object;
    bool string_value, value_begun; /* tagged: the value at hand is a string that is given out as it comes */
    size_t value_bytes;             /* tagged: of all values so far, as they were written */

    char error[320]; /* the first malformed call; "": none */
};

/* *more: something was decided, so that another step may decide more. */
typedef rf_status (*rf_reader_step)(struct rf_chat_reader *reader, bool *more);

enum rf_match { RF_MATCH_NO, RF_MATCH_PART, RF_MATCH_WHOLE };
/* Whether a mark stands at a place of the text; a part of it at the text's end is one if more may follow. */
enum rf_match rf_reader_match(const struct rf_chat_reader *reader, size_t at, const char *mark);
/* The same at reader->at, behind white space, which is skipped. Fails as RF_MATCH_NO where a call that is not certain
 * yet would hold too much. */
enum rf_match rf_reader_match_next(struct rf_chat_reader *reader, const char *mark);
/* The first place of one of the marks (NULL: none). True: *place and *which tell; false: no mark begins before
 * *place, and the rest may be part of one. */
bool rf_reader_find(const struct rf_chat_reader *reader, size_t from, const char *const *marks, size_t count,
                    size_t *place, size_t *which);
void rf_reader_drop(struct rf_chat_reader *reader, size_t bytes); /* from the front of the text */
static inline bool rf_is_blank(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}
/* False: the byte continues a character. */
static inline bool rf_begins_character(char byte) {
    return ((unsigned char)byte & 0xc0) != 0x80;
}
/* Skips white space at reader->at, within the bounds of what may be held. */
void rf_reader_skip_blanks(struct rf_chat_reader *reader);

/* reader_flow.c */
rf_status rf_flow_give(struct rf_chat_reader *reader, struct rf_flow *flow, const char *text, size_t bytes);
void rf_flow_break(struct rf_flow *flow);                                   /* something else begins */
rf_status rf_flow_end(struct rf_chat_reader *reader, struct rf_flow *flow); /* gives out what it holds back */
rf_status rf_reader_give_arguments(struct rf_chat_reader *reader, const char *text, size_t bytes);
/* The same for a piece of a string's text, escaped. */
rf_status rf_reader_give_escaped(struct rf_chat_reader *reader, const char *text, size_t bytes);
/* A call's name is certain (reader->name, reader->id): gives it out. */
rf_status rf_reader_begin_call(struct rf_chat_reader *reader);
/* The arguments are complete: checks them and gives out the call. */
rf_status rf_reader_end_call(struct rf_chat_reader *reader);
/* The call is malformed: notes the first such case, and goes on behind the call's end, where it has one. */
void rf_reader_break_call(struct rf_chat_reader *reader, const char *format, ...) RF_PRINTF(2, 3);

/* reader_calls.c */
/* A call may begin at the text's first byte, behind a mark of so many bytes. */
void rf_reader_try_call(struct rf_chat_reader *reader, enum rf_reader_mode mode, size_t mark_bytes);
/* It is no call: what began it is content. */
rf_status rf_reader_not_a_call(struct rf_chat_reader *reader);
bool rf_name_is_good(const char *name, size_t bytes);
/* The function of this name among those that were offered; NULL: there is none, or they are not known. */
const json_t *rf_reader_offered(const struct rf_chat_reader *reader, const char *name);
rf_status rf_read_section(struct rf_chat_reader *reader, bool *more);
rf_status rf_read_head(struct rf_chat_reader *reader, bool *more);
rf_status rf_read_arguments(struct rf_chat_reader *reader, bool *more);
rf_status rf_read_after(struct rf_chat_reader *reader, bool *more);
rf_status rf_read_broken(struct rf_chat_reader *reader, bool *more);
/* reader_object.c */
void rf_object_begin(struct rf_chat_reader *reader); /* reader->at is behind its bracket */
rf_status rf_read_object(struct rf_chat_reader *reader, bool *more);
/* reader_tagged.c */
rf_status rf_read_tagged_head(struct rf_chat_reader *reader, bool *more);
rf_status rf_read_key(struct rf_chat_reader *reader, bool *more);
rf_status rf_read_value(struct rf_chat_reader *reader, bool *more);
/* reader_channels.c */
extern const char *const rf_channel_ends[3];
rf_status rf_read_header(struct rf_chat_reader *reader, bool *more);

/* reader.c: a reader for a template's source, without the template. source: NULL: none. */
rf_status rf_chat_reader_create_for(const char *source, const struct rf_chat_reader_params *params,
                                    struct rf_chat_reader **out);

#endif
