/* Reading JSON, which always comes from outside: strict, bounded, and charged to a budget.
 *
 * The parser is jansson; docs/dependencies.md has the reasons. It refuses duplicate keys, malformed UTF-8, integers
 * beyond 64 bits and nesting deeper than 2,048; keys keep their order. Its tree takes up to 27 times the bytes of the
 * text, which is charged before it is made; parsing needs 256 KiB of stack. Whoever walks a tree bounds the depth of
 * that walk.
 *
 * Threads: a tree belongs to one thread at a time. */
#ifndef RF_BASE_JSON_READ_H
#define RF_BASE_JSON_READ_H

#include <jansson.h>

#include "base/base.h"

#define RF_JSON_BYTES_MAX (16u << 20)

/* Zero-initialised: none. */
struct rf_json_tree {
    json_t *root;
    struct rf_account account; /* what the tree is charged to */
};

/* Reads one value of any kind. account: NULL charges nothing. what: names the text in the error text. RF_E_SYNTAX:
 * where it is malformed, and how. RF_E_NO_MEMORY: longer than RF_JSON_BYTES_MAX, or more than the budget has. *tree
 * is unchanged then. */
rf_status rf_json_read(const struct rf_account *account, const char *text, size_t bytes, const char *what,
                       struct rf_json_tree *tree);
void rf_json_tree_finish(struct rf_json_tree *tree);

#endif
