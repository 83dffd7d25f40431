/* Regular expressions (see regex.h): a tree first, because what an anchor means depends on where it stands; then
 * nodes. Both walks are recursive, NESTING_MAX deep at most. */
#include "grammar/regex.h"

#include <stdlib.h>

#include "base/utf8.h"
#include "grammar/chars.h"

enum { NESTING_MAX = 250, TIMES_MAX = 1000000000 };

enum tree_kind { TREE_NODE, TREE_SEQUENCE, TREE_CHOICE, TREE_REPEAT, TREE_BEGIN, TREE_END };
struct tree {
    enum tree_kind kind;
    uint32_t node, least, most;
    uint32_t first, last, next; /* children; the next child of the same parent; 0: none */
};
struct parser {
    struct rf_program *program;
    const char *text, *what;
    size_t bytes, at;
    enum rf_regex_mode mode;
    struct rf_list trees; /* number 0 is none */
    uint32_t anything;    /* node of any number of characters; UINT32_MAX: not made yet */
    struct rf_chars chars;
};

static rf_status fail(const struct parser *parser, rf_status status, const char *why) {
    return rf_fail(status, "%s: at byte %zu: %s", parser->what, parser->at, why);
}

static struct tree *tree(const struct parser *parser, uint32_t index) {
    return (struct tree *)parser->trees.data + index;
}

static rf_status add_tree(struct parser *parser, struct tree made, uint32_t *out) {
    return rf_list_add(parser->program, &parser->trees, &made, 1, sizeof made, out);
}

static void add_child(struct parser *parser, uint32_t parent, uint32_t child) {
    struct tree *to = tree(parser, parent);
    if (to->last)
        tree(parser, to->last)->next = child;
    else
        to->first = child;
    to->last = child;
}

static int peek(const struct parser *parser) {
    return parser->at < parser->bytes ? (uint8_t)parser->text[parser->at] : -1;
}

static bool take(struct parser *parser, const char *text) {
    size_t length = strlen(text);
    if (parser->bytes - parser->at < length || memcmp(parser->text + parser->at, text, length)) return false;
    parser->at += length;
    return true;
}

static rf_status read_code(struct parser *parser, uint32_t *code) {
    size_t taken;
    *code = rf_utf8_decode(parser->text + parser->at, parser->bytes - parser->at, &taken);
    if (*code == RF_CODE_INVALID) return fail(parser, RF_E_SYNTAX, "not UTF-8");
    parser->at += taken;
    return RF_OK;
}

/* ---- escapes and classes ---- */

static rf_status read_hex(struct parser *parser, size_t digits, uint32_t *code) {
    *code = 0;
    for (size_t i = 0; i < digits; i++, parser->at++) {
        int c = peek(parser);
        int value = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
        if (value < 0) return fail(parser, RF_E_SYNTAX, "an escape needs more hexadecimal digits");
        *code = *code * 16 + (uint32_t)value;
    }
    return RF_OK;
}

static rf_status read_u(struct parser *parser, uint32_t *code) {
    if (take(parser, "{")) {
        size_t end = parser->at;
        while (end < parser->bytes && parser->text[end] != '}') end++;
        if (end == parser->bytes || end == parser->at || end - parser->at > 6)
            return fail(parser, RF_E_SYNTAX, "\\u{…} needs one to six hexadecimal digits");
        RF_TRY(read_hex(parser, end - parser->at, code));
        parser->at++;
    } else {
        RF_TRY(read_hex(parser, 4, code));
        uint32_t low;
        if (*code >= 0xd800 && *code < 0xdc00 && take(parser, "\\u")) {
            RF_TRY(read_hex(parser, 4, &low));
            if (low < 0xdc00 || low > 0xdfff) return fail(parser, RF_E_SYNTAX, "half a surrogate pair");
            *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
        }
    }
    if (*code > RF_CODE_MAX || (*code >= 0xd800 && *code < 0xe000))
        return fail(parser, RF_E_SYNTAX, "an escape is no character");
    return RF_OK;
}

static rf_status add_letter_class(struct parser *parser, char letter, struct rf_chars *chars) {
    static const struct rf_char_range word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    static const struct rf_char_range space[] = {
        {'\t', '\r'},     {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
        {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
    const struct rf_char_range *ranges = word;
    size_t count = 1;
    struct rf_chars made = {.count = 0};
    if ((letter | 32) == 'w') count = RF_COUNT(word);
    if ((letter | 32) == 's') {
        ranges = space;
        count = parser->mode == RF_REGEX_SEARCH ? RF_COUNT(space) : 2;
    }
    for (size_t i = 0; i < count; i++) RF_TRY(rf_chars_add(&made, ranges[i].low, ranges[i].high));
    if (letter < 'a') RF_TRY(rf_chars_negate(&made));
    return rf_chars_add_all(chars, &made);
}

/* Behind a backslash. *single: it is one character, *code; otherwise its characters were added. */
static rf_status read_escape(struct parser *parser, bool in_class, struct rf_chars *chars, bool *single,
                             uint32_t *code) {
    int c = peek(parser);
    *single = true;
    if (c < 0) return fail(parser, RF_E_SYNTAX, "a backslash at the end");
    if (c >= 0x80) return fail(parser, RF_E_SYNTAX, "an escape that is not known");
    if (strchr("dDwWsS", c)) {
        parser->at++;
        *single = false;
        return add_letter_class(parser, (char)c, chars);
    }
    if (c == 'b' && in_class) {
        parser->at++;
        *code = '\b';
        return RF_OK;
    }
    if (c == 'b' || c == 'B') return fail(parser, RF_E_UNSUPPORTED, "word boundaries (\\b, \\B) are not supported");
    if (c == 'p' || c == 'P')
        return fail(parser, RF_E_UNSUPPORTED, "Unicode properties (\\p, \\P) are not supported");
    if ((c >= '1' && c <= '9') || c == 'k')
        return fail(parser, RF_E_UNSUPPORTED, "back references are not supported");
    static const char letters[] = "nrtfv", codes[] = "\n\r\t\f\v";
    const char *letter = strchr(letters, c);
    parser->at++;
    if (letter && c) {
        *code = (uint8_t)codes[letter - letters];
        return RF_OK;
    }
    if (c == 'x') return read_hex(parser, 2, code);
    if (c == 'u') return read_u(parser, code);
    if (c == 'c' && peek(parser) >= 'A' && ((peek(parser) | 32) <= 'z')) {
        *code = (uint32_t)peek(parser) % 32;
        parser->at++;
        return RF_OK;
    }
    if (c == '0' && !(peek(parser) >= '0' && peek(parser) <= '9')) {
        *code = 0;
        return RF_OK;
    }
    parser->at--;
    if ((c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z'))
        return fail(parser, RF_E_SYNTAX, "an escape that is not known");
    return read_code(parser, code);
}

static rf_status read_class_item(struct parser *parser, bool *single, uint32_t *code) {
    *single = true;
    if (take(parser, "\\")) return read_escape(parser, true, &parser->chars, single, code);
    return read_code(parser, code);
}

/* Behind "[". */
static rf_status read_class(struct parser *parser, uint32_t *node) {
    bool negated = take(parser, "^"), single, last_single;
    uint32_t low, high;
    parser->chars.count = 0;
    if (peek(parser) == ']') return fail(parser, RF_E_SYNTAX, "a class without characters; write \\] for a bracket");
    while (peek(parser) != ']') {
        if (peek(parser) < 0) return fail(parser, RF_E_SYNTAX, "a class that is not closed");
        RF_TRY(read_class_item(parser, &single, &low));
        high = low;
        if (peek(parser) == '-' && parser->at + 1 < parser->bytes && parser->text[parser->at + 1] != ']') {
            if (!single) return fail(parser, RF_E_SYNTAX, "a range that begins with a class");
            parser->at++;
            RF_TRY(read_class_item(parser, &last_single, &high));
            if (!last_single) return fail(parser, RF_E_SYNTAX, "a range that ends with a class");
            if (high < low) return fail(parser, RF_E_SYNTAX, "a range whose end is before its beginning");
        }
        if (single) RF_TRY(rf_chars_add(&parser->chars, low, high));
    }
    parser->at++;
    if (negated) RF_TRY(rf_chars_negate(&parser->chars));
    return rf_add_chars(parser->program, &parser->chars,
                        parser->mode == RF_REGEX_SEARCH ? RF_SPELL_JSON : RF_SPELL_UTF8, node);
}

static rf_status read_dot(struct parser *parser, uint32_t *node) {
    parser->chars.count = 0;
    RF_TRY(rf_chars_add(&parser->chars, '\n', '\n'));
    if (parser->mode == RF_REGEX_SEARCH) {
        RF_TRY(rf_chars_add(&parser->chars, '\r', '\r'));
        RF_TRY(rf_chars_add(&parser->chars, 0x2028, 0x2029));
    }
    RF_TRY(rf_chars_negate(&parser->chars));
    return rf_add_chars(parser->program, &parser->chars,
                        parser->mode == RF_REGEX_SEARCH ? RF_SPELL_JSON : RF_SPELL_UTF8, node);
}

/* ---- the tree ---- */

static uint64_t read_digits(const struct parser *parser, size_t *at) {
    uint64_t number = 0;
    for (; *at < parser->bytes && parser->text[*at] >= '0' && parser->text[*at] <= '9'; ++*at)
        number = RF_MIN(number * 10 + (uint64_t)(parser->text[*at] - '0'), (uint64_t)UINT32_MAX - 1);
    return number;
}

/* "{m}", "{m,}" or "{m,n}" at the present place; false: none of these, and nothing is taken. */
static bool read_bounds(struct parser *parser, uint32_t *least, uint32_t *most) {
    size_t at = parser->at + 1, digits = at;
    uint64_t low = read_digits(parser, &at), high = low;
    if (at == digits || at == parser->bytes) return false;
    if (parser->text[at] == ',') {
        digits = ++at;
        high = read_digits(parser, &at);
        if (at == digits) high = RF_NO_LIMIT;
    }
    if (at == parser->bytes || parser->text[at] != '}') return false;
    *least = (uint32_t)low;
    *most = (uint32_t)high;
    parser->at = at + 1;
    return true;
}

static rf_status read_quantifier(struct parser *parser, uint32_t *item) {
    uint32_t least = 0, most = RF_NO_LIMIT;
    bool found = true;
    if (take(parser, "+"))
        least = 1;
    else if (take(parser, "?"))
        most = 1;
    else if (!take(parser, "*"))
        found = peek(parser) == '{' && read_bounds(parser, &least, &most);
    if (!found) return RF_OK;
    if (least > TIMES_MAX || (most != RF_NO_LIMIT && most > TIMES_MAX))
        return fail(parser, RF_E_NO_MEMORY, "a repetition of more than 1000000000 times");
    if (least > most) return fail(parser, RF_E_SYNTAX, "a repetition whose bounds are the wrong way round");
    if (tree(parser, *item)->kind >= TREE_BEGIN) return fail(parser, RF_E_SYNTAX, "nothing to repeat");
    take(parser, "?"); /* lazy: the same texts match */
    if (peek(parser) == '*' || peek(parser) == '+' || peek(parser) == '?')
        return fail(parser, RF_E_SYNTAX, "nothing to repeat (possessive quantifiers are not supported)");
    uint32_t bounds_least, bounds_most;
    size_t before = parser->at;
    if (peek(parser) == '{' && read_bounds(parser, &bounds_least, &bounds_most)) {
        parser->at = before;
        return fail(parser, RF_E_SYNTAX, "nothing to repeat");
    }
    uint32_t child = *item;
    RF_TRY(add_tree(parser, (struct tree){.kind = TREE_REPEAT, .least = least, .most = most}, item));
    add_child(parser, *item, child);
    return RF_OK;
}

static rf_status read_choice(struct parser *parser, int depth, uint32_t *out);

/* Behind "(". */
static rf_status read_group(struct parser *parser, int depth, uint32_t *out) {
    if (take(parser, "?")) {
        if (peek(parser) == '=' || peek(parser) == '!')
            return fail(parser, RF_E_UNSUPPORTED, "lookahead is not supported");
        take(parser, "P");
        if (take(parser, "<")) {
            if (peek(parser) == '=' || peek(parser) == '!')
                return fail(parser, RF_E_UNSUPPORTED, "lookbehind is not supported");
            while (peek(parser) >= 0 && peek(parser) != '>') parser->at++;
            if (!take(parser, ">")) return fail(parser, RF_E_SYNTAX, "a group's name that is not closed");
        } else if (!take(parser, ":")) {
            return fail(parser, RF_E_UNSUPPORTED,
                        "this kind of group (flags, comments, conditions) is not supported");
        }
    }
    RF_TRY(read_choice(parser, depth + 1, out));
    if (!take(parser, ")")) return fail(parser, RF_E_SYNTAX, "a group that is not closed");
    return RF_OK;
}

static rf_status read_item(struct parser *parser, int depth, uint32_t *out) {
    struct tree made = {.kind = TREE_NODE};
    enum rf_spelling spelling = parser->mode == RF_REGEX_SEARCH ? RF_SPELL_JSON : RF_SPELL_UTF8;
    uint32_t code;
    char text[6];
    bool single;
    if (take(parser, "(")) return read_group(parser, depth, out);
    if (take(parser, "^")) return add_tree(parser, (struct tree){.kind = TREE_BEGIN}, out);
    if (take(parser, "$")) return add_tree(parser, (struct tree){.kind = TREE_END}, out);
    if (take(parser, "[")) {
        RF_TRY(read_class(parser, &made.node));
    } else if (take(parser, ".")) {
        RF_TRY(read_dot(parser, &made.node));
    } else {
        int c = peek(parser);
        parser->chars.count = 0;
        if (c == '*' || c == '+' || c == '?') return fail(parser, RF_E_SYNTAX, "nothing to repeat");
        if (take(parser, "\\")) {
            RF_TRY(read_escape(parser, false, &parser->chars, &single, &code));
        } else {
            single = true;
            RF_TRY(read_code(parser, &code));
        }
        if (single)
            RF_TRY(rf_add_literal(parser->program, text, rf_spell(code, spelling, text), &made.node));
        else
            RF_TRY(rf_add_chars(parser->program, &parser->chars, spelling, &made.node));
    }
    return add_tree(parser, made, out);
}

static rf_status read_sequence(struct parser *parser, int depth, uint32_t *out) {
    RF_TRY(add_tree(parser, (struct tree){.kind = TREE_SEQUENCE}, out));
    while (peek(parser) >= 0 && peek(parser) != '|' && peek(parser) != ')') {
        uint32_t item;
        RF_TRY(read_item(parser, depth, &item));
        RF_TRY(read_quantifier(parser, &item));
        add_child(parser, *out, item);
    }
    return RF_OK;
}

static rf_status read_choice(struct parser *parser, int depth, uint32_t *out) {
    uint32_t sequence;
    if (depth > NESTING_MAX) return fail(parser, RF_E_NO_MEMORY, "groups are nested more than 250 deep");
    RF_TRY(add_tree(parser, (struct tree){.kind = TREE_CHOICE}, out));
    do {
        RF_TRY(read_sequence(parser, depth, &sequence));
        add_child(parser, *out, sequence);
    } while (take(parser, "|"));
    return RF_OK;
}

/* ---- nodes ---- */

static rf_status add_anything(struct parser *parser, uint32_t *out) {
    if (parser->anything == UINT32_MAX) {
        struct rf_chars all = {.count = 0};
        RF_TRY(rf_chars_add(&all, 0, RF_CODE_MAX));
        RF_TRY(rf_add_chars(parser->program, &all, RF_SPELL_JSON, &parser->anything));
        RF_TRY(rf_add_repeat(parser->program, parser->anything, 0, RF_NO_LIMIT, &parser->anything));
    }
    *out = parser->anything;
    return RF_OK;
}

static rf_status emit(struct parser *parser, uint32_t index, bool at_begin, bool at_end, uint32_t *out);

/* Whether what stands before this child must be added inside of it: a group, where the beginning is each
 * alternative's. */
static bool is_group(const struct parser *parser, uint32_t child) {
    return tree(parser, child)->kind == TREE_CHOICE;
}

static rf_status emit_sequence(struct parser *parser, uint32_t index, bool at_begin, bool at_end,
                               struct rf_list *nodes) {
    struct rf_program *program = parser->program;
    bool search = parser->mode == RF_REGEX_SEARCH, anchored = false, ended = false;
    uint32_t node, child = tree(parser, index)->first, last = 0;
    while (child && tree(parser, child)->kind == TREE_BEGIN && at_begin) {
        anchored = true;
        child = tree(parser, child)->next;
    }
    for (uint32_t i = child; i; i = tree(parser, i)->next)
        if (tree(parser, i)->kind != TREE_END) last = i;
    bool inside = at_begin && !anchored && last && is_group(parser, child); /* the group has what comes before */
    if (at_begin && search && !anchored && !inside) {
        RF_TRY(add_anything(parser, &node));
        RF_TRY(rf_list_add(program, nodes, &node, 1, sizeof node, NULL));
    }
    for (bool behind_last = !last; child; child = tree(parser, child)->next) {
        enum tree_kind kind = tree(parser, child)->kind;
        if (kind == TREE_END && at_end && behind_last) {
            ended = true;
            continue;
        }
        if (kind >= TREE_BEGIN)
            return rf_fail(RF_E_UNSUPPORTED,
                           "%s: ^ is supported only at the beginning of an alternative, $ only at its end",
                           parser->what);
        bool has_end = at_end && !tree(parser, child)->next && is_group(parser, child);
        RF_TRY(emit(parser, child, inside, has_end, &node));
        RF_TRY(rf_list_add(program, nodes, &node, 1, sizeof node, NULL));
        inside = false;
        behind_last = child == last;
        ended = ended || has_end; /* the group has what follows */
    }
    if (at_end && search && !ended) {
        RF_TRY(add_anything(parser, &node));
        RF_TRY(rf_list_add(program, nodes, &node, 1, sizeof node, NULL));
    }
    RF_TRY(rf_add_sequence(program, nodes->data, nodes->count, &node));
    return rf_list_add(program, nodes, &node, 1, sizeof node, NULL);
}

static rf_status emit_choice(struct parser *parser, uint32_t index, bool at_begin, bool at_end,
                             struct rf_list *nodes) {
    uint32_t node;
    for (uint32_t child = tree(parser, index)->first; child; child = tree(parser, child)->next) {
        RF_TRY(emit(parser, child, at_begin, at_end, &node));
        RF_TRY(rf_list_add(parser->program, nodes, &node, 1, sizeof node, NULL));
    }
    RF_TRY(rf_add_choice(parser->program, nodes->data, nodes->count, &node));
    return rf_list_add(parser->program, nodes, &node, 1, sizeof node, NULL);
}

static rf_status emit(struct parser *parser, uint32_t index, bool at_begin, bool at_end, uint32_t *out) {
    struct tree part = *tree(parser, index);
    struct rf_list nodes = {0}; /* the last one is the result */
    rf_status status = RF_OK;
    uint32_t child;
    switch (part.kind) {
    case TREE_NODE: *out = part.node; return RF_OK;
    case TREE_REPEAT:
        RF_TRY(emit(parser, part.first, false, false, &child));
        return rf_add_repeat(parser->program, child, part.least, part.most, out);
    case TREE_SEQUENCE: status = emit_sequence(parser, index, at_begin, at_end, &nodes); break;
    case TREE_CHOICE: status = emit_choice(parser, index, at_begin, at_end, &nodes); break;
    case TREE_BEGIN:
    case TREE_END: break;
    }
    if (!status) *out = ((const uint32_t *)nodes.data)[nodes.count - 1];
    rf_account_release(&parser->program->account, (uint64_t)nodes.capacity * sizeof *out);
    free(nodes.data);
    return status;
}

rf_status rf_add_regex(struct rf_program *program, const char *text, size_t bytes, enum rf_regex_mode mode,
                       const char *what, uint32_t *out) {
    struct parser *parser = malloc(sizeof *parser);
    if (!parser) return rf_fail(RF_E_NO_MEMORY, "%s: no host memory", what);
    *parser = (struct parser){
        .program = program, .text = text, .what = what, .bytes = bytes, .mode = mode, .anything = UINT32_MAX};
    uint32_t root;
    rf_status status = add_tree(parser, (struct tree){.kind = TREE_END}, &root);
    if (!status) status = read_choice(parser, 0, &root);
    if (!status && parser->at < bytes) status = fail(parser, RF_E_SYNTAX, "a closing parenthesis without a group");
    if (!status) status = emit(parser, root, true, true, out);
    rf_account_release(&program->account, (uint64_t)parser->trees.capacity * sizeof(struct tree));
    free(parser->trees.data);
    free(parser);
    return status;
}
