#!/usr/bin/env python3
"""Refuses public structs that could not grow, or that no longer fit programs built for 0.1.0.

  - struct_size that is not the first field
  - a struct inside another by value, unless its comment says "Frozen": if it grew, what follows it would move
  - a struct without struct_size whose comment says neither "Frozen" nor "grow at its end"
  - a field of 0.1.0 (tests/abi/0.1.0) that moved, changed its type or is gone; a new one among the old, or in the
    padding behind them, which old programs do not set; a frozen struct that changed
  - an enumerator of 0.1.0 with another number
  - a function that takes a struct with struct_size and is not named in tests/abi/test_struct_size.c

The structs of test.h belong to a static library, which is compiled with its users: only the first rule and struct_size
inside another struct count there. --self-test plants one of each and expects it to be found.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
HEADERS = ["base.h", "chat.h", "gpu.h", "grammar.h", "graph.h", "infer.h", "model.h", "ops.h", "tokenizer.h", "test.h"]
COMPILER = "clang-19"

# Fields of 0.1.0 whose bytes have another name now.
REPLACED = {("rf_generate_params", "sampling"): "read from 'reserved' where the struct is one of 0.1.0"}
# Structs of 0.1.0 that only the functions in src/infer/abi_0_1_0.c still take.
OLD_LAYOUT = {"rf_generate_result": "rf_session_generate"}
RENAMED = {"RF_ROLE_VALUE": "RF_ROLE_RESULT"}
LAST = re.compile(r"_COUNT$|^RF_PASSES_ALL$|^RF_SPECIAL_ALL$")  # counts what is before it


class Struct:
    def __init__(self, size, fields):
        self.size = size
        self.fields = fields  # (offset, type, name), in order, those of the struct itself


def compile_headers(include, extra, arguments):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "all.c")
        with open(path, "w", encoding="utf-8") as file:
            for header in HEADERS:
                if os.path.exists(os.path.join(include, "rocmforge", header)):
                    file.write(f"#include <rocmforge/{header}>\n")
            file.write(extra)
        output = os.path.join(folder, "program")
        command = [COMPILER, "-std=c11", "-I", include, path] + [a.replace("OUTPUT", output) for a in arguments]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return subprocess.run([output], check=True, capture_output=True, text=True).stdout if "OUTPUT" in arguments else said


def read_structs(include):
    text = compile_headers(include, "", ["-fsyntax-only", "-Xclang", "-fdump-record-layouts-complete"])
    structs = {}
    for record in text.split("*** Dumping AST Record Layout")[1:]:
        lines = [line for line in record.splitlines() if "|" in line]
        name = re.match(r"\s*0 \| struct (rf_\w+)$", lines[0])
        size = re.search(r"\[sizeof=(\d+)", record)
        if not name or not size:
            continue
        fields = []
        for line in lines[1:]:
            field = re.match(r"\s*(\d+) \|   (\S.*) (\w+)$", line)
            if field:
                kind = re.sub(r"\(unnamed at [^)]*\)", "(unnamed)", field.group(2))
                fields.append((int(field.group(1)), kind, field.group(3)))
        structs[name.group(1)] = Struct(int(size.group(1)), fields)
    return structs


def read_notes(include):
    """struct name: (header, what the comment right before it says)"""
    notes = {}
    for header in HEADERS:
        path = os.path.join(include, "rocmforge", header)
        if not os.path.exists(path):
            continue
        with open(path, encoding="utf-8") as file:
            text = file.read()
        for match in re.finditer(r"(/\*(?:(?!\*/).)*\*/\n)?struct (rf_\w+) \{", text, re.DOTALL):
            notes[match.group(2)] = (header, match.group(1) or "")
    return notes


def read_enumerators(include):
    names = []
    for header in HEADERS:
        path = os.path.join(include, "rocmforge", header)
        if not os.path.exists(path):
            continue
        with open(path, encoding="utf-8") as file:
            text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.DOTALL)
        for body in re.findall(r"\benum \w+ \{(.*?)\}", text, re.DOTALL):
            names += re.findall(r"(?:^|,)\s*(RF_\w+)", body)
    lines = "".join(f'    printf("{name} %lld\\n", (long long){name});\n' for name in names)
    said = compile_headers(include, f"#include <stdio.h>\nint main(void) {{\n{lines}}}\n", ["-o", "OUTPUT"])
    return dict(line.split() for line in said.splitlines())


def check_rules(structs, notes, problems):
    for name, struct in structs.items():
        header, note = notes.get(name, ("", ""))
        sized = any(field == "struct_size" for _, _, field in struct.fields)
        if sized and struct.fields[0][2] != "struct_size":
            problems.append(f"{header}: struct {name}: struct_size is not its first field")
        if not sized and header != "test.h" and "Frozen" not in note and "grow at its end" not in note:
            problems.append(f"{header}: struct {name} has no struct_size, and its comment says neither \"Frozen\" nor "
                            "\"May grow at its end\"")
        for _, kind, field in struct.fields:
            inner = re.match(r"struct (rf_\w+)(\[\d+\])*$", kind)
            if not inner or inner.group(1) not in structs:
                continue
            grows = any(f == "struct_size" for _, _, f in structs[inner.group(1)].fields)
            frozen = "Frozen" in notes.get(inner.group(1), ("", ""))[1]
            if grows or (header != "test.h" and not frozen):
                problems.append(f"{header}: struct {name} holds struct {inner.group(1)} by value ('{field}'), which may "
                                "grow: use a pointer, or declare that one frozen")


def check_against(old, old_notes, structs, notes, problems):
    for name, before in old.items():
        if old_notes.get(name, ("", ""))[0] == "test.h" or name in OLD_LAYOUT:
            continue
        now = structs.get(name)
        if not now:
            problems.append(f"struct {name} of 0.1.0 is gone")
            continue
        header, note = notes[name]
        for index, (offset, kind, field) in enumerate(before.fields):
            found = now.fields[index] if index < len(now.fields) else None
            same = found and found[0] == offset and (found[1] == kind or (name, field) in REPLACED)
            if not same:
                problems.append(f"{header}: struct {name}: '{field}' of 0.1.0, {kind} at byte {offset}, is not there")
        for offset, _, field in now.fields[len(before.fields):]:
            if offset < before.size:
                problems.append(f"{header}: struct {name}: '{field}' is new and lies at byte {offset} of the "
                                f"{before.size} that 0.1.0 had: old programs do not set it")
        if "Frozen" in note and now.size != before.size:
            problems.append(f"{header}: struct {name} is frozen, and has {now.size} bytes instead of {before.size}")


def check_enumerators(before, now, problems):
    for name, value in before.items():
        found = now.get(RENAMED.get(name, name))
        if found is None or (found != value and not LAST.search(name)):
            problems.append(f"{name} was {value} in 0.1.0 and is {found or 'gone'}: programs have the number in them")


def check_functions(include, structs, test, problems):
    """Each function with a parameter that has struct_size is tested."""
    with open(test, encoding="utf-8") as file:
        tested = file.read()
    for header in HEADERS:
        path = os.path.join(include, "rocmforge", header)
        if header == "test.h" or not os.path.exists(path):
            continue
        with open(path, encoding="utf-8") as file:
            text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.DOTALL)
        for name, parameters in re.findall(r"RF_API [^;(]*?\b(rf_\w+)\((.*?)\);", text, re.DOTALL):
            parameters = re.sub(r"\([^()]*\)", "", parameters)  # those of callbacks
            sized = [kind for kind in re.findall(r"struct (rf_\w+) \*\w", parameters)
                     if kind in structs and structs[kind].fields[0][2] == "struct_size"]
            names = name + "|" + re.sub(r"_(at|sized)$", "", name)  # as it is, or as its macro is called
            if sized and not re.search(rf"\b(PARAMS|GROWN|RESULT)\(({names})\b", tested):
                problems.append(f"{header}: {name} takes struct {sized[0]}: it needs a row in {test}")


def check(include, old_include, test):
    problems = []
    structs, notes = read_structs(include), read_notes(include)
    check_rules(structs, notes, problems)
    check_against(read_structs(old_include), read_notes(old_include), structs, notes, problems)
    check_enumerators(read_enumerators(old_include), read_enumerators(include), problems)
    check_functions(include, structs, test, problems)
    return problems, len(structs)


SOUND = ("/* Frozen. */\nstruct rf_a {\n    int x;\n};\nstruct rf_b {\n    unsigned long struct_size;\n    struct rf_a a;\n};\n"
         "enum rf_e { RF_ONE = 1, RF_TWO };\n#define RF_API\nRF_API int rf_tested(const struct rf_b *b);\n")
PLANTED = [  # what is replaced in the sound header, by what, and what is said of it (None: nothing)
    ("", "", None),
    ("    struct rf_a a;", "    struct rf_a a;\n    long more;", None),
    ("enum rf_e { RF_ONE = 1, RF_TWO };", "enum rf_e { RF_ONE = 1, RF_TWO, RF_THREE };", None),
    ("    unsigned long struct_size;\n    struct rf_a a;", "    struct rf_a a;\n    unsigned long struct_size;", "first field"),
    ("/* Frozen. */\n", "/* May grow at its end. */\n", "by value"),
    ("/* Frozen. */\n", "", "neither"),
    ("    int x;", "    int x, y;", "frozen, and has 8"),
    ("    int x;", "    float x;", "is not there"),
    ("    struct rf_a a;", "    long more;\n    struct rf_a a;", "'a' of 0.1.0"),
    ("    struct rf_a a;", "    struct rf_a a;\n    int more;", "at byte 12 of the 16"),
    ("struct rf_b {", "struct rf_c {", "rf_b of 0.1.0 is gone"),
    ("int rf_tested(", "int rf_other(", "rf_other takes struct rf_b"),
    ("int rf_tested(", "int rf_other(struct rf_a *a, int (*f)(const struct rf_b *b));\nRF_API int rf_tested(", None),
    ("RF_ONE = 1", "RF_ONE", "RF_ONE was 1 in 0.1.0 and is 0"),
    ("struct rf_a a;\n};\n", "struct rf_a a;\n};\nstruct rf_c {\n    unsigned long struct_size;\n    struct rf_b b;\n};\n", "by value"),
]


def self_test():
    wrong = 0
    for old, new, expected in PLANTED:
        with tempfile.TemporaryDirectory() as folder:
            for place, text in (("old", SOUND), ("new", SOUND.replace(old, new) if old else SOUND)):
                os.makedirs(os.path.join(folder, place, "rocmforge"))
                with open(os.path.join(folder, place, "rocmforge", "base.h"), "w", encoding="utf-8") as file:
                    file.write(text)
            test = os.path.join(folder, "test.c")
            with open(test, "w", encoding="utf-8") as file:
                file.write("PARAMS(rf_tested, …)\n")
            problems, _ = check(os.path.join(folder, "new"), os.path.join(folder, "old"), test)
        if (not any(expected in problem for problem in problems)) if expected else problems:
            print(f"self-test: {new!r} for {old!r}: expected {expected!r}, found {problems}", file=sys.stderr)
            wrong += 1
    print(f"structs: self-test, {len(PLANTED) - wrong} of {len(PLANTED)} cases right")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--self-test", action="store_true")
    if parser.parse_args().self_test:
        return self_test()
    os.chdir(ROOT)
    problems, count = check("include", "tests/abi/0.1.0", "tests/abi/test_struct_size.c")
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        print(f"structs: {count} public ones, each can grow or is frozen, and programs built for 0.1.0 fit")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
