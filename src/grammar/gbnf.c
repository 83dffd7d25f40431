/* GBNF: rules "name ::= alternatives", with literals in quotation marks, classes in brackets, groups, "." for any
 * character, * + ? {m} {m,} {m,n}, and comments from # to the end of the line. A rule ends at the end of a line,
 * unless a group is open or an alternative is still to come.
 *
 * Groups nest NESTING_MAX deep at most, and so does the recursion here. Rules may be used before they are defined.
 * Names of tokens (<name>, <[id]>) are not supported: a grammar is about text. */
#include "grammar/gbnf.h"

#include <stdlib.h>

#include "base/utf8.h"
#include "grammar/chars.h"

enum { NESTING_MAX = 250, NAME_MAX = 100, TIMES_MAX = 1000000000, RULES_MAX = 50000 };

struct named {
    const char *name;
    size_t bytes;
    uint32_t rule, node;
    uint32_t line, used_line; /* 0: not defined; not used */
};
struct parser {
    struct rf_program *program;
    const char *text, *what;
    size_t bytes, at;
    uint32_t line;
    struct rf_list names; /* of struct named */
    uint32_t *table;      /* place in names plus 1, by hash */
    struct rf_list items; /* nodes of the sequences and choices that are open */
    struct rf_chars chars;
};
enum { TABLE = 1 << 17 };

static rf_status fail(const struct parser *parser, rf_status status, const char *why) {
    return rf_fail(status, "%s: line %u: %s", parser->what, parser->line, why);
}

static int peek(const struct parser *parser) {
    return parser->at < parser->bytes ? (uint8_t)parser->text[parser->at] : -1;
}

/* Blanks and comments; line ends too where they mean nothing. */
static void skip(struct parser *parser, bool line_ends) {
    for (int c; (c = peek(parser)) >= 0; parser->at++) {
        if (c == '#') {
            while (peek(parser) >= 0 && peek(parser) != '\n' && peek(parser) != '\r') parser->at++;
            parser->at--;
            continue;
        }
        if ((c == '\n' || c == '\r') && !line_ends) return;
        if (c != ' ' && c != '\t' && c != '\n' && c != '\r') return;
        parser->line += c == '\n';
    }
}

static bool is_word(int c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* ---- rules by name ---- */

static rf_status find_rule(struct parser *parser, const char *name, size_t bytes, struct named **out) {
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ (uint8_t)name[i]) * 16777619u;
    uint32_t slot = hash % TABLE;
    for (; parser->table[slot]; slot = (slot + 1) % TABLE) {
        struct named *known = (struct named *)parser->names.data + parser->table[slot] - 1;
        if (known->bytes == bytes && !memcmp(known->name, name, bytes)) {
            *out = known;
            return RF_OK;
        }
    }
    if (bytes > NAME_MAX) return fail(parser, RF_E_SYNTAX, "a rule's name is longer than 100 bytes");
    if (parser->names.count == RULES_MAX) return fail(parser, RF_E_NO_MEMORY, "more than 50000 rules");
    struct named made = {.name = name, .bytes = bytes};
    uint32_t index;
    RF_TRY(rf_add_rule(parser->program, name, bytes, parser->line, &made.rule, &made.node));
    RF_TRY(rf_list_add(parser->program, &parser->names, &made, 1, sizeof made, &index));
    parser->table[slot] = index + 1;
    *out = (struct named *)parser->names.data + index;
    return RF_OK;
}

static rf_status read_name(struct parser *parser, struct named **out) {
    size_t from = parser->at;
    while (is_word(peek(parser))) parser->at++;
    if (parser->at == from) return fail(parser, RF_E_SYNTAX, "a rule's name is expected here");
    return find_rule(parser, parser->text + from, parser->at - from, out);
}

/* ---- characters ---- */

static rf_status read_hex(struct parser *parser, int digits, uint32_t *code) {
    *code = 0;
    for (int i = 0; i < digits; i++, parser->at++) {
        int c = peek(parser);
        int value = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
        if (value < 0) return fail(parser, RF_E_SYNTAX, "an escape needs more hexadecimal digits");
        *code = *code << 4 | (uint32_t)value;
    }
    if (*code > RF_CODE_MAX || (*code >= 0xd800 && *code < 0xe000))
        return fail(parser, RF_E_SYNTAX, "an escape is no character");
    return RF_OK;
}

static rf_status read_char(struct parser *parser, uint32_t *code) {
    size_t taken;
    if (peek(parser) < 0) return fail(parser, RF_E_SYNTAX, "the text ends inside a literal or a class");
    if (peek(parser) == '\\') {
        static const char letters[] = "nrt\"\\[]-^", codes[] = "\n\r\t\"\\[]-^";
        parser->at++;
        int c = peek(parser);
        const char *letter = c > 0 ? strchr(letters, c) : NULL;
        if (c < 0) return fail(parser, RF_E_SYNTAX, "the text ends inside an escape");
        parser->at++;
        if (letter) *code = (uint8_t)codes[letter - letters];
        if (letter) return RF_OK;
        if (c == 'x') return read_hex(parser, 2, code);
        if (c == 'u') return read_hex(parser, 4, code);
        if (c == 'U') return read_hex(parser, 8, code);
        return fail(parser, RF_E_SYNTAX,
                    "an escape that is not known; there are \\n \\r \\t \\\" \\\\ \\[ \\] \\x \\u \\U");
    }
    *code = rf_utf8_decode(parser->text + parser->at, parser->bytes - parser->at, &taken);
    if (*code == RF_CODE_INVALID) return fail(parser, RF_E_SYNTAX, "not UTF-8");
    if (*code == '\n') return fail(parser, RF_E_SYNTAX, "a literal or class is not closed on its line");
    parser->at += taken;
    return RF_OK;
}

static rf_status read_class(struct parser *parser, uint32_t *out) {
    bool negated = false;
    parser->at++;
    parser->chars.count = 0;
    if (peek(parser) == '^') {
        negated = true;
        parser->at++;
    }
    while (peek(parser) != ']') {
        uint32_t low, high;
        RF_TRY(read_char(parser, &low));
        high = low;
        if (peek(parser) == '-' && parser->at + 1 < parser->bytes && parser->text[parser->at + 1] != ']') {
            parser->at++;
            RF_TRY(read_char(parser, &high));
            if (high < low) return fail(parser, RF_E_SYNTAX, "a range whose end is before its beginning");
        }
        RF_TRY(rf_chars_add(&parser->chars, low, high));
    }
    parser->at++;
    if (negated) RF_TRY(rf_chars_negate(&parser->chars));
    return rf_add_chars(parser->program, &parser->chars, RF_SPELL_UTF8, out);
}

static rf_status read_literal(struct parser *parser, uint32_t *out) {
    struct rf_node node = {.kind = RF_NODE_LITERAL, .a = parser->program->bytes.count};
    parser->at++;
    while (peek(parser) != '"') {
        uint32_t code;
        char text[6];
        RF_TRY(read_char(parser, &code));
        size_t bytes = rf_spell(code, RF_SPELL_UTF8, text);
        RF_TRY(rf_list_add(parser->program, &parser->program->bytes, text, (uint32_t)bytes, 1, NULL));
    }
    parser->at++;
    node.b = parser->program->bytes.count - node.a;
    return node.b ? rf_add_node(parser->program, node, out) : rf_add_empty(parser->program, out);
}

/* ---- alternatives ---- */

static const uint32_t *items_from(const struct parser *parser, uint32_t first) {
    return parser->items.count > first ? (const uint32_t *)parser->items.data + first : NULL;
}

static rf_status read_number(struct parser *parser, uint32_t *number) {
    uint64_t value = 0;
    if (!(peek(parser) >= '0' && peek(parser) <= '9'))
        return fail(parser, RF_E_SYNTAX, "a number is expected in a repetition");
    for (; peek(parser) >= '0' && peek(parser) <= '9'; parser->at++)
        value = RF_MIN(value * 10 + (uint64_t)(peek(parser) - '0'), (uint64_t)UINT32_MAX);
    if (value > TIMES_MAX) return fail(parser, RF_E_NO_MEMORY, "a repetition of more than 1000000000 times");
    *number = (uint32_t)value;
    return RF_OK;
}

static rf_status read_times(struct parser *parser, bool inside, uint32_t *item) {
    uint32_t least = 0, most = RF_NO_LIMIT;
    int c = peek(parser);
    parser->at++;
    if (c == '+') least = 1;
    if (c == '?') most = 1;
    if (c == '{') {
        skip(parser, inside);
        RF_TRY(read_number(parser, &least));
        most = least;
        skip(parser, inside);
        if (peek(parser) == ',') {
            parser->at++;
            most = RF_NO_LIMIT;
            skip(parser, inside);
            if (peek(parser) != '}') RF_TRY(read_number(parser, &most));
            skip(parser, inside);
        }
        if (peek(parser) != '}') return fail(parser, RF_E_SYNTAX, "a repetition that is not closed");
        parser->at++;
    }
    if (least > most) return fail(parser, RF_E_SYNTAX, "a repetition whose bounds are the wrong way round");
    return rf_add_repeat(parser->program, *item, least, most, item);
}

static rf_status read_alternatives(struct parser *parser, int depth, uint32_t *out);

/* *found: an item was there. */
static rf_status read_item(struct parser *parser, int depth, bool *found, uint32_t *out) {
    struct named *rule;
    int c = peek(parser);
    *found = true;
    if (c == '"') return read_literal(parser, out);
    if (c == '[') return read_class(parser, out);
    if (c == '.') {
        parser->at++;
        parser->chars.count = 0;
        RF_TRY(rf_chars_add(&parser->chars, 0, RF_CODE_MAX));
        return rf_add_chars(parser->program, &parser->chars, RF_SPELL_UTF8, out);
    }
    if (c == '(') {
        if (depth == NESTING_MAX) return fail(parser, RF_E_NO_MEMORY, "groups are nested more than 250 deep");
        parser->at++;
        RF_TRY(read_alternatives(parser, depth + 1, out));
        if (peek(parser) != ')') return fail(parser, RF_E_SYNTAX, "a group that is not closed");
        parser->at++;
        return RF_OK;
    }
    if (c == '<' || c == '!') return fail(parser, RF_E_UNSUPPORTED, "tokens by name or number are not supported");
    *found = is_word(c);
    if (!*found) return RF_OK;
    RF_TRY(read_name(parser, &rule));
    if (!rule->used_line) rule->used_line = parser->line;
    *out = rule->node;
    return RF_OK;
}

static rf_status read_sequence(struct parser *parser, int depth, uint32_t *out) {
    uint32_t first = parser->items.count, item;
    bool found;
    while (true) {
        skip(parser, depth > 0);
        RF_TRY(read_item(parser, depth, &found, &item));
        if (!found) break;
        for (skip(parser, depth > 0); peek(parser) > 0 && strchr("*+?{", peek(parser)); skip(parser, depth > 0))
            RF_TRY(read_times(parser, depth > 0, &item));
        RF_TRY(rf_list_add(parser->program, &parser->items, &item, 1, sizeof item, NULL));
    }
    RF_TRY(rf_add_sequence(parser->program, items_from(parser, first), parser->items.count - first, out));
    parser->items.count = first;
    return RF_OK;
}

static rf_status read_alternatives(struct parser *parser, int depth, uint32_t *out) {
    uint32_t first = parser->items.count, sequence;
    while (true) {
        RF_TRY(read_sequence(parser, depth, &sequence));
        RF_TRY(rf_list_add(parser->program, &parser->items, &sequence, 1, sizeof sequence, NULL));
        skip(parser, depth > 0);
        if (peek(parser) != '|') break;
        parser->at++;
        skip(parser, true); /* an alternative may begin on the next line */
    }
    RF_TRY(rf_add_choice(parser->program, items_from(parser, first), parser->items.count - first, out));
    parser->items.count = first;
    return RF_OK;
}

static rf_status read_rule(struct parser *parser) {
    struct named *rule;
    uint32_t body, line = parser->line;
    RF_TRY(read_name(parser, &rule));
    uint32_t index = (uint32_t)(rule - (struct named *)parser->names.data);
    skip(parser, false);
    if (parser->bytes - parser->at < 3 || memcmp(parser->text + parser->at, "::=", 3))
        return fail(parser, RF_E_SYNTAX, "::= is expected behind a rule's name");
    if (rule->line)
        return rf_fail(RF_E_SYNTAX, "%s: line %u: rule \"%.*s\" is defined on line %u already", parser->what, line,
                       (int)rule->bytes, rule->name, rule->line);
    parser->at += 3;
    rule->line = line;
    ((struct rf_rule *)parser->program->rules.data)[rule->rule].line = line;
    skip(parser, true);
    RF_TRY(read_alternatives(parser, 0, &body));
    rule = (struct named *)parser->names.data + index;
    rf_rule_set(parser->program, rule->rule, body);
    if (peek(parser) >= 0 && peek(parser) != '\n' && peek(parser) != '\r')
        return fail(parser, RF_E_SYNTAX, "a line's end is expected here");
    return RF_OK;
}

static rf_status read_grammar(struct parser *parser) {
    struct named *root;
    for (skip(parser, true); peek(parser) >= 0; skip(parser, true)) RF_TRY(read_rule(parser));
    for (uint32_t i = 0; i < parser->names.count; i++) {
        const struct named *rule = (const struct named *)parser->names.data + i;
        if (!rule->line)
            return rf_fail(RF_E_SYNTAX, "%s: line %u: rule \"%.*s\" is not defined", parser->what, rule->used_line,
                           (int)rule->bytes, rule->name);
    }
    RF_TRY(find_rule(parser, "root", 4, &root));
    if (!root->line) return rf_fail(RF_E_SYNTAX, "%s: rule \"root\" is not defined", parser->what);
    parser->program->root = root->node;
    return RF_OK;
}

rf_status rf_gbnf_compile(struct rf_program *program, const char *text, size_t bytes, const char *what) {
    struct parser *parser = NULL;
    struct rf_account account = rf_account_open(&program->account);
    uint64_t table_bytes = TABLE * sizeof *parser->table;
    RF_TRY(rf_account_resize(&account, (void **)&parser, 0, sizeof *parser, what));
    *parser = (struct parser){.program = program, .text = text, .what = what, .bytes = bytes, .line = 1};
    rf_status status = rf_account_resize(&account, (void **)&parser->table, 0, table_bytes, what);
    if (!status) {
        memset(parser->table, 0, table_bytes);
        status = read_grammar(parser);
    }
    rf_account_release(&program->account, (uint64_t)parser->names.capacity * sizeof(struct named) +
                                              (uint64_t)parser->items.capacity * sizeof(uint32_t));
    free(parser->names.data);
    free(parser->items.data);
    free(parser->table);
    free(parser);
    rf_account_close(&account);
    return status;
}
