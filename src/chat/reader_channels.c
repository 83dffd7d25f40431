/* Answers that consist of messages with headers, as gpt-oss writes them:
 *
 *     <|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…
 *     <|start|>assistant to=functions.NAME<|channel|>commentary json<|message|>{…}<|call|>
 *
 * The channel "analysis" is reasoning, every other is content; a message to functions.NAME is a call. The mark that
 * ends the whole answer is an end token, which is not shown: the answer's end ends the last message. */
#include "chat/reader_impl.h"

const char *const rf_channel_ends[3] = {"<|end|>", "<|return|>", "<|call|>"};

static const char message[] = "<|message|>";

/* What stands behind a mark in the header, up to white space or the next mark; "": nothing. */
static const char *word_behind(const char *header, size_t bytes, const char *mark, size_t *word_bytes) {
    const char *place = memmem(header, bytes, mark, strlen(mark)), *end = header + bytes;
    *word_bytes = 0;
    if (!place) return "";
    place += strlen(mark);
    const char *stop = place;
    while (stop < end && *stop != '<' && !rf_is_blank(*stop)) stop++;
    *word_bytes = (size_t)(stop - place);
    return place;
}

/* The mark that a header may begin with; NULL: it begins with none. *part: more text must come to know. */
static const char *beginning(const struct rf_chat_reader *reader, bool *part) {
    static const char *const beginnings[] = {"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "to="};
    *part = false;
    for (size_t i = 0; i < RF_COUNT(beginnings); i++) {
        enum rf_match match = rf_reader_match(reader, reader->at, beginnings[i]);
        if (match == RF_MATCH_WHOLE) return beginnings[i];
        *part |= match == RF_MATCH_PART;
    }
    return NULL;
}

/* A header of so many bytes, up to "<|message|>": what follows is a call, reasoning or content. */
static rf_status take_header(struct rf_chat_reader *reader, size_t bytes) {
    static const char functions[] = "functions.";
    size_t to_bytes, channel_bytes;
    const char *to = word_behind(reader->text, bytes, "to=", &to_bytes);
    const char *channel = word_behind(reader->text, bytes, "<|channel|>", &channel_bytes);
    bool call =
        reader->params.calls && to_bytes > sizeof functions - 1 && !memcmp(to, functions, sizeof functions - 1);
    if (call) {
        to += sizeof functions - 1;
        to_bytes -= sizeof functions - 1;
        call = rf_name_is_good(to, to_bytes);
    }
    if (call) {
        memcpy(reader->name, to, to_bytes);
        reader->name[to_bytes] = 0;
        reader->has_id = false;
        reader->mode = RF_READ_ARGUMENTS;
        memset(&reader->scan, 0, sizeof reader->scan);
    } else {
        bool analysis = channel_bytes == 8 && !memcmp(channel, "analysis", 8);
        reader->mode = analysis ? RF_READ_REASONING : RF_READ_CONTENT;
        rf_flow_break(&reader->content);
        rf_flow_break(&reader->reasoning);
    }
    rf_reader_drop(reader, bytes + sizeof message - 1);
    return call ? rf_reader_begin_call(reader) : RF_OK;
}

rf_status rf_read_header(struct rf_chat_reader *reader, bool *more) {
    bool part = false;
    rf_reader_skip_blanks(reader); /* from where it stopped the last time */
    const char *mark = reader->at < RF_READER_HELD_MAX ? beginning(reader, &part) : NULL, *end = NULL;
    size_t bytes = RF_MIN(reader->bytes - reader->at, (size_t)RF_READER_HEAD_MAX);
    if (mark) end = memmem(reader->text + reader->at, bytes, message, sizeof message - 1);
    if (end) return take_header(reader, (size_t)(end - reader->text));
    if (!reader->final && (mark ? bytes < RF_READER_HEAD_MAX : part)) {
        *more = false;
        return RF_OK;
    }
    bytes = mark ? reader->at + strlen(mark) : 0; /* no header: text without one is content */
    rf_status status = rf_flow_give(reader, &reader->content, reader->text, bytes);
    rf_reader_drop(reader, bytes);
    reader->at = 0;
    reader->mode = RF_READ_CONTENT;
    return status;
}
