/* A conversation: the messages, and what else the chat template sees ("tools", "enable_thinking", …).
 *
 * It is kept as JSON, in the form that people's files and OpenAI's API have: so a conversation that was loaded is
 * saved again with everything that it held, also with what this program does not know. conversation.c is the only
 * file of the command that reads JSON: from files and options, so it is strict (jansson: no duplicate keys, no
 * malformed UTF-8) and bounded.
 *
 * Invariants: a message has a known role; its content is text, a list of parts, or null beside tool calls; a tool
 * call has a name, and its arguments are a JSON object. What would break them is refused and changes nothing. */
#ifndef RF_CLI_CONVERSATION_H
#define RF_CLI_CONVERSATION_H

#include <stdbool.h>
#include <stddef.h>

#include <rocmforge/chat.h>

enum { CONVERSATION_BYTES_MAX = 16 << 20, CONVERSATION_WHY_BYTES = 512 };

/* Zero-initialised: not begun. */
struct conversation {
    void *root;
};

/* tools, variables: JSON texts (an array, an object), or NULL. On failure 'why' says what is wrong with which. */
bool conversation_begin(struct conversation *conversation, const char *tools, const char *variables,
                        char why[CONVERSATION_WHY_BYTES]);
void conversation_finish(struct conversation *conversation);

size_t conversation_count(const struct conversation *conversation);
/* Whether the last message waits for an answer: a user's, or the result of a tool. */
bool conversation_waits(const struct conversation *conversation);
bool conversation_offers_tools(const struct conversation *conversation);
/* The tools as JSON, which the caller frees; NULL: none are offered, or no memory. */
char *conversation_tools(const struct conversation *conversation);
/* The text of the system prompt, borrowed; NULL: none. */
const char *conversation_system(const struct conversation *conversation);

/* These return false where there is no memory; nothing is changed then. Texts must be UTF-8. */
bool conversation_set_system(struct conversation *conversation, const char *text); /* NULL: remove it */
bool conversation_add_user(struct conversation *conversation, const char *text);
/* calls: JSON texts of objects with "name", "arguments" and perhaps "id", as conversation_call makes them. */
bool conversation_add_answer(struct conversation *conversation, const char *text, const char *reasoning,
                             const char *const *calls, size_t call_count);
/* A call as one line of JSON, which the caller frees; NULL: no memory, or the arguments are no JSON object. */
char *conversation_call(const struct rf_chat_tool_call *call);

/* Drops all messages behind the first 'count'. */
void conversation_cut(struct conversation *conversation, size_t count);
/* Drops all but the system prompt. */
void conversation_reset(struct conversation *conversation);
/* Drops the last message of the user and what follows it; false: there is none. */
bool conversation_undo(struct conversation *conversation);

/* The whole as JSON, for a file. The caller frees it; NULL: no memory. */
char *conversation_text(const struct conversation *conversation);
/* The same for rf_chat_params.conversation, as templates want it: reasoning by each of the names that they use, and
 * the arguments of calls as objects. */
char *conversation_for_template(const struct conversation *conversation);
/* Replaces the conversation by one that was read from a file. Variables that the text does not hold stay. On failure
 * nothing is changed. */
bool conversation_parse(struct conversation *conversation, const char *text, size_t bytes,
                        char why[CONVERSATION_WHY_BYTES]);
/* The messages for a built-in format, which knows texts only. Those are borrowed; the array is freed by the caller.
 * NULL: 'why' says which message it cannot show. */
struct rf_chat_message *conversation_messages(const struct conversation *conversation,
                                              char why[CONVERSATION_WHY_BYTES]);

#endif
