#!/usr/bin/env python3
"""Writes src/tokenizer/unicode_table.c: the character classes that tokenizers split text by.

    python3 tools/make_unicode_table.py [--check] [FILE]

The classes come from Python's unicodedata, whose Unicode version is written into the table; white
space is the property White_Space, which unicodedata does not tell and which has not changed since
Unicode 6.3. The same Python gives the same bytes. --check writes nothing and fails where the file
differs, or says that it was made from another Unicode version than this Python knows.
"""
import os
import re
import sys
import unicodedata

# Bits of src/tokenizer/unicode.h, in the order of its enum.
BITS = {"Lu": 0, "Ll": 1, "Lt": 2, "Lm": 3, "Lo": 4, "N": 5, "P": 6, "S": 7, "M": 8}
SPACE_BIT = 9
WHITE_SPACE = {*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F,
               0x3000}


def classes(code):
    category = unicodedata.category(chr(code))
    bit = BITS.get(category, BITS.get(category[0]))
    return (0 if bit is None else 1 << bit) | (1 << SPACE_BIT if code in WHITE_SPACE else 0)


def table():
    ranges, last = [], None
    for code in range(0x110000):
        now = classes(code)
        if now != last:
            ranges.append((code, now))
            last = now
    lines = [
        "/* Character classes of Unicode " + unicodedata.unidata_version + ". Made by tools/make_unicode_table.py: do not",
        " * edit. A range begins at the code point in the low 21 bits, has the classes (enum rf_rune_class)",
        " * in the bits above, and ends where the next begins. */",
        '#include "tokenizer/unicode.h"',
        "",
        f'const char rf_unicode_version[] = "{unicodedata.unidata_version}";',
        "",
        f"const uint32_t rf_unicode_range_count = {len(ranges)};",
        "const uint32_t rf_unicode_ranges[] = {",
    ]
    words = [f"0x{bits << 21 | code:08x}," for code, bits in ranges]
    for at in range(0, len(words), 9):
        lines.append("    " + " ".join(words[at:at + 9]))
    lines.append("};")
    return "\n".join(lines) + "\n"


def main():
    arguments = [a for a in sys.argv[1:] if a != "--check"]
    path = arguments[0] if arguments else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src", "model",
                                                       "unicode_table.c")
    if "--check" not in sys.argv[1:]:
        with open(path, "w", encoding="ascii") as file:
            file.write(table())
        return 0
    with open(path, encoding="ascii") as file:
        there = file.read()
    made_from = re.search(r'rf_unicode_version\[\] = "([^"]*)"', there)
    if not made_from:
        print(f"{path}: no table of this script's", file=sys.stderr)
        return 1
    if made_from.group(1) != unicodedata.unidata_version:
        print(f"{path}: Unicode {made_from.group(1)}, this Python knows {unicodedata.unidata_version}: not compared")
        return 0
    if there != table():
        print(f"{path}: differs from what tools/make_unicode_table.py makes", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
