/* Reading JSON (see json_read.h). */
#include "base/json_read.h"

enum { TREE_BYTES_FOR_EACH = 27, TREE_BYTES_LEAST = 4096 };

rf_status rf_json_read(const struct rf_account *account, const char *text, size_t bytes, const char *what,
                       struct rf_json_tree *tree) {
    if (bytes > RF_JSON_BYTES_MAX)
        return rf_fail(RF_E_NO_MEMORY, "%s: %zu bytes of JSON; at most %u are read", what, bytes, RF_JSON_BYTES_MAX);
    struct rf_json_tree made = {.account = rf_account_open(account)};
    rf_status status = rf_account_charge(&made.account, TREE_BYTES_LEAST + (uint64_t)bytes * TREE_BYTES_FOR_EACH);
    if (status) return rf_fail_within(status, "%s", what);
    json_error_t error;
    made.root =
        json_loadb(bytes ? text : "", bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    if (!made.root) {
        rf_account_close(&made.account);
        if (json_error_code(&error) == json_error_out_of_memory)
            return rf_fail(RF_E_NO_MEMORY, "%s: no host memory for its JSON", what);
        return rf_fail(RF_E_SYNTAX, "%s is not JSON: line %d, column %d: %s", what, error.line, error.column,
                       error.text);
    }
    *tree = made;
    return RF_OK;
}

void rf_json_tree_finish(struct rf_json_tree *tree) {
    json_decref(tree->root);
    rf_account_close(&tree->account);
    *tree = (struct rf_json_tree){0};
}
