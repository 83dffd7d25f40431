#!/usr/bin/env python3
"""Writes src/template/case_table.c: the upper- and lower-case forms of code points, from this Python's Unicode data.

  tools/make_case_table.py > src/template/case_table.c

Rows are runs of code points with the same distance to their other form, every code point or every second one. Forms
of more than one code point stand in a list of their own."""
import sys
import unicodedata


def runs(form):
    """(first, last, step, distance) for each run; single code points only."""
    pairs = []
    for code in range(0x110000):
        if 0xD800 <= code < 0xE000:
            continue
        other = form(chr(code))
        if len(other) == 1 and ord(other) != code:
            pairs.append((code, ord(other) - code))
    rows = []
    for code, distance in pairs:
        if rows:
            first, last, step, delta = rows[-1]
            gap = code - last
            if delta == distance and gap in (1, 2) and (first == last or gap == step):
                rows[-1] = (first, code, gap, delta)
                continue
        rows.append((code, code, 1, distance))
    return rows


def longer(form):
    return [(code, form(chr(code))) for code in range(0x110000)
            if not 0xD800 <= code < 0xE000 and len(form(chr(code))) > 1]


def main():
    out = sys.stdout.write
    out(f"/* Upper and lower case, Unicode {unicodedata.unidata_version}. Made by tools/make_case_table.py: do not edit. */\n")
    out('#include "template/unicode_text.h"\n\n')
    for name, form in (("upper", str.upper), ("lower", str.lower)):
        rows = runs(form)
        out(f"const size_t rf_case_{name}_count = {len(rows)};\n")
        out(f"const struct rf_case_run rf_case_{name}[] = {{\n")
        line = "   "
        for first, last, step, delta in rows:
            item = f" {{0x{first:x}, 0x{last:x}, {step}, {delta}}},"
            if len(line) + len(item) > 118:
                out(line + "\n")
                line = "   "
            line += item
        out(line + "\n};\n\n")
    for name, form in (("upper", str.upper), ("lower", str.lower)):
        rows = longer(form)
        out(f"const size_t rf_case_{name}_long_count = {len(rows)};\n")
        out(f"const struct rf_case_long rf_case_{name}_long[] = {{\n")
        line = "   "
        for code, text in rows:
            codes = [ord(c) for c in text] + [0] * (3 - len(text))
            item = f" {{0x{code:x}, {{{', '.join(hex(c) for c in codes)}}}}},"
            if len(line) + len(item) > 118:
                out(line + "\n")
                line = "   "
            line += item
        out(line + "\n};\n" + ("\n" if name == "upper" else ""))


main()
