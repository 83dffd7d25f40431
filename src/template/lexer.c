/* From source to tokens, with white space taken away as the signs - and + and the settings trim_blocks (a newline
 * behind a block's end) and lstrip_blocks (blanks before a block on its line) say.
 *
 * Invariants: the source is valid UTF-8 with "\n" as its only line end, which rf_tpl_lex sees to; a token's text lies
 * in the arena. The rules and their order are those of jinja2's lexer. */
#include <stdlib.h>

#include "base/utf8.h"
#include "template/template_impl.h"

struct lexer {
    struct rf_arena *arena;
    const char *name;
    const char *source;
    size_t bytes, at;
    size_t counted;     /* lines were counted up to here */
    uint32_t line;      /* at counted */
    bool line_starting; /* what was read last ended a line */
    struct rf_tpl_tokens *tokens;
    char open[RF_TPL_NESTING_MAX]; /* brackets */
    size_t open_count;
};

static rf_status lex_source(struct lexer *lexer);

rf_status rf_tpl_lex(struct rf_arena *arena, const char *name, const char *source, size_t bytes,
                     struct rf_tpl_tokens *tokens) {
    char *clean = rf_arena_take_raw(arena, bytes + 1);
    if (!clean) return RF_E_NO_MEMORY;
    size_t length = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (source[i] == '\r' && i + 1 < bytes && source[i + 1] == '\n') continue;
        clean[length++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (length && clean[length - 1] == '\n') length--; /* one newline at the end is not part of the template */
    clean[length] = 0;
    struct lexer lexer = {.arena = arena,
                          .name = name,
                          .source = clean,
                          .bytes = length,
                          .line = 1,
                          .line_starting = true,
                          .tokens = tokens};
    return lex_source(&lexer);
}

/* ---- tools ---- */

static uint32_t line_at(struct lexer *lexer, size_t at) {
    for (; lexer->counted < at; lexer->counted++) lexer->line += lexer->source[lexer->counted] == '\n';
    return lexer->line;
}

static rf_status add(struct lexer *lexer, struct rf_tpl_token token, size_t at) {
    struct rf_tpl_tokens *tokens = lexer->tokens;
    if (tokens->count == tokens->capacity) {
        size_t capacity = tokens->capacity ? 2 * tokens->capacity : 256;
        struct rf_tpl_token *grown =
            rf_arena_regrow(lexer->arena, tokens->items, tokens->count * sizeof *grown, capacity * sizeof *grown);
        if (!grown) return RF_E_NO_MEMORY;
        tokens->items = grown;
        tokens->capacity = capacity;
    }
    token.line = line_at(lexer, at);
    tokens->items[tokens->count++] = token;
    return RF_OK;
}

static rf_status add_source(struct lexer *lexer, enum rf_tpl_token_kind kind, size_t from, size_t to) {
    return add(lexer, (struct rf_tpl_token){.kind = kind, .text = lexer->source + from, .length = to - from}, from);
}

RF_PRINTF(3, 4) static rf_status fail(struct lexer *lexer, size_t at, const char *format, ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return rf_fail(RF_E_SYNTAX, "%s, line %u: %s", lexer->name, line_at(lexer, at), text);
}

static uint32_t code_at(const struct lexer *lexer, size_t at, size_t *taken) {
    return rf_utf8_decode(lexer->source + at, lexer->bytes - at, taken);
}

static size_t behind_space(const struct lexer *lexer, size_t at) {
    size_t taken;
    while (at < lexer->bytes && rf_code_is_space(code_at(lexer, at, &taken))) at += taken;
    return at;
}

static size_t before_space(const struct lexer *lexer, size_t from, size_t to) {
    while (to > from) {
        size_t start = to - 1, taken;
        while (start > from && ((unsigned char)lexer->source[start] & 0xc0) == 0x80) start--;
        if (!rf_code_is_space(code_at(lexer, start, &taken))) break;
        to = start;
    }
    return to;
}

static bool has(const struct lexer *lexer, size_t at, const char *text) {
    size_t length = strlen(text);
    return length <= lexer->bytes - at && memcmp(lexer->source + at, text, length) == 0;
}

/* ---- text between tags ---- */

/* The text from at to the tag, whose sign is given, less the white space that the sign or the settings take away. */
static rf_status add_data(struct lexer *lexer, size_t from, size_t tag, char sign, bool is_block) {
    size_t to = tag;
    if (sign == '-')
        to = before_space(lexer, from, tag);
    else if (sign != '+' && is_block) {
        size_t start = tag;
        while (start > from && lexer->source[start - 1] != '\n') start--;
        if ((start > from || lexer->line_starting) && behind_space(lexer, start) >= tag) to = start;
    }
    return to > from ? add_source(lexer, RF_TOK_DATA, from, to) : RF_OK;
}

static void step_to(struct lexer *lexer, size_t at) {
    lexer->line_starting = at > 0 && lexer->source[at - 1] == '\n';
    lexer->at = at;
}

/* at: of "%}" or "#}", or of the sign before it. Returns where the source goes on; 0: no such end is there. */
static size_t block_end(const struct lexer *lexer, size_t at, const char *end) {
    char sign = at < lexer->bytes ? lexer->source[at] : 0;
    if (sign == '-' || sign == '+') {
        if (!has(lexer, at + 1, end)) return 0;
        return sign == '-' ? behind_space(lexer, at + 3) : at + 3;
    }
    if (!has(lexer, at, end)) return 0;
    return at + 2 + (at + 2 < lexer->bytes && lexer->source[at + 2] == '\n');
}

static rf_status lex_comment(struct lexer *lexer, size_t tag) {
    for (size_t at = lexer->at; at < lexer->bytes; at++) {
        size_t end = block_end(lexer, at, "#}");
        if (!end) continue;
        step_to(lexer, end);
        return RF_OK;
    }
    return fail(lexer, tag, "a comment is not ended by #}");
}

/* Whether a raw block begins behind "{%" and its sign: where its text begins; 0: no. */
static size_t raw_begin(const struct lexer *lexer, size_t at) {
    at = behind_space(lexer, at);
    if (!has(lexer, at, "raw")) return 0;
    at = behind_space(lexer, at + 3);
    if (has(lexer, at, "-%}")) return behind_space(lexer, at + 3);
    return has(lexer, at, "%}") ? at + 2 : 0;
}

static rf_status lex_raw(struct lexer *lexer, size_t tag, size_t from) {
    step_to(lexer, from);
    for (size_t at = from; at + 1 < lexer->bytes; at++) {
        if (!has(lexer, at, "{%")) continue;
        char sign = at + 2 < lexer->bytes ? lexer->source[at + 2] : 0;
        if (sign != '-' && sign != '+') sign = 0;
        size_t word = behind_space(lexer, at + 2 + (sign != 0));
        if (!has(lexer, word, "endraw")) continue;
        size_t end = block_end(lexer, behind_space(lexer, word + 6), "%}");
        if (!end) continue;
        RF_TRY(add_data(lexer, from, at, sign, true));
        step_to(lexer, end);
        return RF_OK;
    }
    return fail(lexer, tag, "a raw block is not ended by {%% endraw %%}");
}

/* ---- inside tags ---- */

static bool is_digit(int c) {
    return c >= '0' && c <= '9';
}

/* Digits with single underscores between them; returns where they end. */
static size_t digits(const struct lexer *lexer, size_t at, int base) {
    size_t from = at;
    for (;; at++) {
        int c = at < lexer->bytes ? lexer->source[at] : 0;
        bool fits = base == 16 ? is_digit(c) || ((c | 32) >= 'a' && (c | 32) <= 'f') : c >= '0' && c < '0' + base;
        if (fits) continue;
        if (c != '_' || at == from || lexer->source[at - 1] == '_') break;
    }
    return at > from && lexer->source[at - 1] == '_' ? at - 1 : at;
}

/* A float where the source has one at this place: where it ends; 0: there is none. */
static size_t float_end(const struct lexer *lexer, size_t at) {
    if (at > 0 && lexer->source[at - 1] == '.') return 0;
    size_t end = digits(lexer, at, 10);
    bool is_float = false;
    if (end < lexer->bytes && lexer->source[end] == '.' && digits(lexer, end + 1, 10) > end + 1) {
        end = digits(lexer, end + 1, 10);
        is_float = true;
    }
    if (end < lexer->bytes && (lexer->source[end] | 32) == 'e') {
        size_t exponent = end + 1;
        if (exponent < lexer->bytes && (lexer->source[exponent] == '+' || lexer->source[exponent] == '-')) exponent++;
        if (digits(lexer, exponent, 10) > exponent) {
            end = digits(lexer, exponent, 10);
            is_float = true;
        }
    }
    return is_float ? end : 0;
}

static rf_status lex_number(struct lexer *lexer) {
    size_t from = lexer->at, end = float_end(lexer, from);
    struct rf_tpl_token token = {.kind = RF_TOK_FLOAT, .text = lexer->source + from};
    if (end) {
        token.length = end - from;
        if (!rf_tpl_read_float(token.text, token.length, &token.real))
            return fail(lexer, from, "\"%.*s\" is not a number", (int)RF_MIN(token.length, (size_t)40), token.text);
    } else {
        token.kind = RF_TOK_INTEGER;
        int prefix = from + 1 < lexer->bytes && lexer->source[from] == '0' ? lexer->source[from + 1] | 32 : 0;
        int base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 10;
        size_t start = from + (base == 10 ? 0 : 2);
        /* behind a prefix one underscore may stand before the first digit */
        if (base != 10 && start < lexer->bytes && lexer->source[start] == '_') start++;
        end = digits(lexer, start, base);
        if (base != 10 && end == start) base = 10, end = from + 1;
        if (base == 10 && lexer->source[from] == '0') { /* a zero is followed by zeros only */
            end = from + 1;
            while (end < lexer->bytes &&
                   (lexer->source[end] == '0' || (lexer->source[end] == '_' && has(lexer, end + 1, "0"))))
                end++;
        }
        token.length = end - from;
        if (!rf_tpl_read_int(token.text, token.length, base == 10 ? 10 : 0, &token.integer))
            return fail(lexer, from, "the integer %.*s has more than 64 bits", (int)RF_MIN(token.length, (size_t)40),
                        token.text);
    }
    lexer->at = end;
    return add(lexer, token, from);
}

/* Reads count hexadecimal digits; false: there are not so many. */
static bool read_hex(const char *text, size_t bytes, size_t count, uint32_t *code) {
    *code = 0;
    if (bytes < count) return false;
    for (size_t i = 0; i < count; i++) {
        int c = text[i] | 32;
        if (!is_digit(text[i]) && !(c >= 'a' && c <= 'f')) return false;
        *code = *code * 16 + (uint32_t)(is_digit(text[i]) ? text[i] - '0' : c - 'a' + 10);
    }
    return true;
}

/* One escape behind a backslash, as Python's unicode-escape has it: how many bytes it takes; 0: it is malformed.
 * An escape that is not known stays as it is, backslash included. */
static size_t unescape(const char *text, size_t bytes, char *out, size_t *out_bytes) {
    static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
    const char *simple = text[0] ? strchr(from, text[0]) : NULL;
    uint32_t code = 0;
    size_t taken;
    if (simple) {
        out[(*out_bytes)++] = to[simple - from];
        return 1;
    }
    if (text[0] == '\n') return 1;
    if (text[0] >= '0' && text[0] <= '7') {
        for (taken = 0; taken < 3 && taken < bytes && text[taken] >= '0' && text[taken] <= '7'; taken++)
            code = code * 8 + (uint32_t)(text[taken] - '0');
    } else if (text[0] == 'x' || text[0] == 'u' || text[0] == 'U') {
        taken = text[0] == 'x' ? 2 : text[0] == 'u' ? 4 : 8;
        if (!read_hex(text + 1, bytes - 1, taken, &code) || code > 0x10ffff) return 0;
        if (code >= 0xd800 && code < 0xe000) return 0; /* half of a pair: no text by itself */
        taken++;
    } else if (text[0] == 'N') {
        return 0; /* by name: not supported */
    } else {
        out[(*out_bytes)++] = '\\';
        return SIZE_MAX;
    }
    *out_bytes += rf_utf8_encode(code, out + *out_bytes);
    return taken;
}

static rf_status lex_string(struct lexer *lexer) {
    size_t from = lexer->at, end = from + 1;
    char quote = lexer->source[from];
    while (end < lexer->bytes && lexer->source[end] != quote) end += lexer->source[end] == '\\' ? 2 : 1;
    if (end >= lexer->bytes) return fail(lexer, from, "a string is not ended by %c", quote);
    char *out = rf_arena_take_raw(lexer->arena, end - from);
    if (!out) return RF_E_NO_MEMORY;
    size_t length = 0;
    for (size_t at = from + 1; at < end;) {
        if (lexer->source[at] != '\\') {
            out[length++] = lexer->source[at++];
            continue;
        }
        size_t taken = unescape(lexer->source + at + 1, end - at - 1, out, &length);
        if (!taken) return fail(lexer, at, "an escape in a string is malformed or not supported (\\N, half pairs)");
        at += taken == SIZE_MAX ? 1 : taken + 1;
    }
    lexer->at = end + 1;
    return add(lexer, (struct rf_tpl_token){.kind = RF_TOK_STRING, .text = out, .length = length}, from);
}

static rf_status lex_operator(struct lexer *lexer) {
    static const char *const operators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                            "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    size_t from = lexer->at;
    for (size_t i = 0; i < RF_COUNT(operators); i++) {
        if (!has(lexer, from, operators[i])) continue;
        char c = operators[i][0];
        if (c == '(' || c == '[' || c == '{') {
            if (lexer->open_count == RF_COUNT(lexer->open))
                return fail(lexer, from, "brackets are nested deeper than %d", RF_TPL_NESTING_MAX);
            lexer->open[lexer->open_count++] = c == '(' ? ')' : (char)(c + 2);
        } else if (c == ')' || c == ']' || c == '}') {
            if (!lexer->open_count) return fail(lexer, from, "unexpected \"%c\"", c);
            if (lexer->open[--lexer->open_count] != c)
                return fail(lexer, from, "unexpected \"%c\", expected \"%c\"", c, lexer->open[lexer->open_count]);
        }
        lexer->at += strlen(operators[i]);
        return add_source(lexer, RF_TOK_OPERATOR, from, lexer->at);
    }
    unsigned char c = (unsigned char)lexer->source[from];
    size_t taken = rf_text_char_bytes(c);
    return c > ' ' && c != 0x7f ? fail(lexer, from, "unexpected character \"%.*s\"", (int)taken, lexer->source + from)
                                : fail(lexer, from, "unexpected character with the code %u", c);
}

static rf_status lex_tag(struct lexer *lexer, size_t tag, bool is_block) {
    lexer->open_count = 0;
    for (;;) {
        lexer->at = behind_space(lexer, lexer->at);
        size_t at = lexer->at, end = 0, taken;
        if (at >= lexer->bytes) return fail(lexer, tag, "a tag is not ended by %s", is_block ? "%}" : "}}");
        if (lexer->open_count)
            end = 0;
        else if (is_block)
            end = block_end(lexer, at, "%}");
        else if (has(lexer, at, "-}}"))
            end = behind_space(lexer, at + 3);
        else if (has(lexer, at, "}}"))
            end = at + 2;
        if (end) {
            step_to(lexer, end);
            return add_source(lexer, is_block ? RF_TOK_BLOCK_END : RF_TOK_VARIABLE_END, at, at + 2);
        }
        uint32_t code = code_at(lexer, at, &taken);
        if (code < 0x80 && is_digit((int)code)) {
            RF_TRY(lex_number(lexer));
        } else if (rf_code_is_word(code)) {
            do {
                lexer->at += taken;
            } while (lexer->at < lexer->bytes && rf_code_is_word(code_at(lexer, lexer->at, &taken)));
            RF_TRY(add_source(lexer, RF_TOK_NAME, at, lexer->at));
        } else if (code == '\'' || code == '"') {
            RF_TRY(lex_string(lexer));
        } else {
            RF_TRY(lex_operator(lexer));
        }
    }
}

static rf_status lex_source(struct lexer *lexer) {
    while (lexer->at < lexer->bytes) {
        size_t from = lexer->at, tag = from;
        while (tag < lexer->bytes &&
               !(lexer->source[tag] == '{' && tag + 1 < lexer->bytes &&
                 (lexer->source[tag + 1] == '{' || lexer->source[tag + 1] == '%' || lexer->source[tag + 1] == '#')))
            tag++;
        if (tag >= lexer->bytes) {
            RF_TRY(add_source(lexer, RF_TOK_DATA, from, lexer->bytes));
            break;
        }
        char kind = lexer->source[tag + 1], sign = tag + 2 < lexer->bytes ? lexer->source[tag + 2] : 0;
        if (sign != '-' && sign != '+') sign = 0;
        RF_TRY(add_data(lexer, from, tag, sign, kind != '{'));
        lexer->at = tag + 2 + (sign != 0);
        size_t raw = kind == '%' ? raw_begin(lexer, lexer->at) : 0;
        if (kind == '#') {
            RF_TRY(lex_comment(lexer, tag));
        } else if (raw) {
            RF_TRY(lex_raw(lexer, tag, raw));
        } else {
            RF_TRY(add_source(lexer, kind == '%' ? RF_TOK_BLOCK_BEGIN : RF_TOK_VARIABLE_BEGIN, tag, tag + 2));
            RF_TRY(lex_tag(lexer, tag, kind == '%'));
        }
    }
    return add_source(lexer, RF_TOK_END, lexer->bytes, lexer->bytes);
}
