/* Sets of characters as bytes (see chars.h). */
#include "grammar/chars.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"

rf_status rf_chars_add(struct rf_chars *chars, uint32_t low, uint32_t high) {
    if (chars->count == RF_CHAR_RANGES_MAX)
        return rf_fail(RF_E_NO_MEMORY, "a class has more than %d ranges", RF_CHAR_RANGES_MAX);
    if (low <= high) chars->ranges[chars->count++] = (struct rf_char_range){low, RF_MIN(high, RF_CODE_MAX)};
    return RF_OK;
}

rf_status rf_chars_add_all(struct rf_chars *chars, const struct rf_chars *more) {
    for (size_t i = 0; i < more->count; i++) RF_TRY(rf_chars_add(chars, more->ranges[i].low, more->ranges[i].high));
    return RF_OK;
}

static int by_low(const void *a, const void *b) {
    uint32_t x = ((const struct rf_char_range *)a)->low, y = ((const struct rf_char_range *)b)->low;
    return x < y ? -1 : x > y;
}

/* Sorted, and none touches another. */
static void tidy(struct rf_chars *chars) {
    size_t kept = 0;
    qsort(chars->ranges, chars->count, sizeof *chars->ranges, by_low);
    for (size_t i = 0; i < chars->count; i++) {
        struct rf_char_range *range = &chars->ranges[i];
        if (kept && range->low <= chars->ranges[kept - 1].high + 1)
            chars->ranges[kept - 1].high = RF_MAX(chars->ranges[kept - 1].high, range->high);
        else
            chars->ranges[kept++] = *range;
    }
    chars->count = kept;
}

rf_status rf_chars_negate(struct rf_chars *chars) {
    struct rf_chars others = {.count = 0};
    uint32_t next = 0;
    tidy(chars);
    for (size_t i = 0; i < chars->count; i++) {
        if (chars->ranges[i].low > next) RF_TRY(rf_chars_add(&others, next, chars->ranges[i].low - 1));
        next = chars->ranges[i].high + 1;
    }
    if (next <= RF_CODE_MAX) RF_TRY(rf_chars_add(&others, next, RF_CODE_MAX));
    *chars = others;
    return RF_OK;
}

size_t rf_spell(uint32_t code, enum rf_spelling spelling, char out[6]) {
    static const char short_forms[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    if (spelling == RF_SPELL_JSON) {
        for (size_t i = 0; i + 1 < sizeof short_forms; i += 2)
            if (code == (uint8_t)short_forms[i]) {
                out[0] = '\\';
                out[1] = short_forms[i + 1];
                return 2;
            }
        if (code < 0x20) {
            memcpy(out, "\\u00", 4);
            out[4] = "01"[code / 16];
            out[5] = "0123456789abcdef"[code % 16];
            return 6;
        }
    }
    return rf_utf8_encode(code, out);
}

/* The parts of a set, to be joined by a choice. */
struct parts {
    struct rf_program *program;
    struct rf_byte_class ascii;
    bool has_ascii;
    uint32_t *nodes;
    size_t count, capacity;
    struct rf_account account;
};
static rf_status add_part(struct parts *parts, uint32_t node) {
    if (parts->count == parts->capacity) {
        size_t capacity = 2 * parts->capacity + 16;
        RF_TRY(rf_account_resize(&parts->account, (void **)&parts->nodes, parts->capacity * sizeof node,
                                 capacity * sizeof node, "a class"));
        parts->capacity = capacity;
    }
    parts->nodes[parts->count++] = node;
    return RF_OK;
}

/* Code points of one length in UTF-8. Splits the range until each byte can be chosen by itself; the depth is at most
 * two for each byte. */
static rf_status split(struct parts *parts, uint32_t low, uint32_t high, size_t length) {
    for (uint32_t i = 1; i < length; i++) {
        uint32_t mask = (1u << 6 * i) - 1;
        if ((low & ~mask) == (high & ~mask)) continue;
        if (low & mask) {
            RF_TRY(split(parts, low, low | mask, length));
            return split(parts, (low | mask) + 1, high, length);
        }
        if ((high & mask) != mask) {
            RF_TRY(split(parts, low, (high & ~mask) - 1, length));
            return split(parts, high & ~mask, high, length);
        }
    }
    char first[4], last[4];
    uint32_t nodes[4], node;
    rf_utf8_encode(low, first);
    rf_utf8_encode(high, last);
    for (size_t i = 0; i < length; i++)
        RF_TRY(rf_add_range(parts->program, (uint8_t)first[i], (uint8_t)last[i], &nodes[i]));
    RF_TRY(rf_add_sequence(parts->program, nodes, length, &node));
    return add_part(parts, node);
}

static rf_status add_range(struct parts *parts, uint32_t low, uint32_t high, enum rf_spelling spelling) {
    static const struct rf_char_range lengths[] = {
        {0x80, 0x7ff}, {0x800, 0xd7ff}, {0xe000, 0xffff}, {0x10000, RF_CODE_MAX}};
    for (uint32_t code = low; code <= RF_MIN(high, 0x7fu); code++) {
        char text[6];
        size_t bytes = rf_spell(code, spelling, text);
        if (bytes == 1) {
            parts->ascii.bits[code / 32] |= 1u << code % 32;
            parts->has_ascii = true;
            continue;
        }
        uint32_t node;
        RF_TRY(rf_add_literal(parts->program, text, bytes, &node));
        RF_TRY(add_part(parts, node));
    }
    for (size_t i = 0; i < RF_COUNT(lengths); i++) {
        uint32_t from = RF_MAX(low, lengths[i].low), to = RF_MIN(high, lengths[i].high);
        if (from <= to) RF_TRY(split(parts, from, to, from < 0x800 ? 2 : from < 0x10000 ? 3 : 4));
    }
    return RF_OK;
}

rf_status rf_add_chars(struct rf_program *program, struct rf_chars *chars, enum rf_spelling spelling, uint32_t *out) {
    struct parts parts = {.program = program, .account = rf_account_open(&program->account)};
    rf_status status = RF_OK;
    uint32_t node;
    tidy(chars);
    for (size_t i = 0; i < chars->count && !status; i++)
        status = add_range(&parts, chars->ranges[i].low, chars->ranges[i].high, spelling);
    if (!status && parts.has_ascii) {
        status = rf_add_class(program, &parts.ascii, &node);
        if (!status) status = add_part(&parts, node);
    }
    if (!status) status = rf_add_choice(program, parts.nodes, parts.count, out);
    free(parts.nodes);
    rf_account_close(&parts.account);
    return status;
}
