#!/usr/bin/env python3
"""Refuses what the layers forbid.

  - an #include that reaches upward: each layer may use only those listed for it below
  - an #include of another layer's private header, NAME_impl.h
  - a device-wide wait or a reset, by any name, outside the simulated driver that traps them
  - a call in the library that ends the process or prints, outside src/base/assert.c
  - a call in the library that opens a descriptor, which may be 0, 1 or 2, outside src/base/descriptors.c
  - with --library FILE: such a name, or anything of the checks of src/base/assert.h, in the built library
  - with --checked-library FILE (of a build with the option 'checks'): such a name, or no checks

--self-test plants one of each in a folder of its own and expects it to be found. Reads code only: comments are taken out first, and for calls string literals too.
"""
import argparse
import os
import re
import sys
import tempfile

# layer: (layers it may include besides itself, public headers it may include; None: all)
LAYERS = {
    "base": (set(), {"base.h"}),
    "runtime": ({"base"}, {"base.h"}),
    "gpu": ({"base", "runtime"}, {"base.h", "gpu.h"}),
    "sim": (set(), set()),
    "kernels": (set(), set()),
    "cpu": ({"base", "runtime", "gpu"}, None),
    "ops": ({"base", "runtime", "gpu", "cpu"}, None),
    "graph": ({"base", "runtime", "gpu", "cpu", "ops"}, None),
    "gguf": ({"base"}, {"base.h", "gpu.h", "model.h"}),
    "tokenizer": ({"base", "gguf"}, {"base.h", "gpu.h", "model.h", "tokenizer.h"}),
    "template": ({"base", "runtime", "tokenizer"}, {"base.h", "chat.h", "tokenizer.h"}),
    "chat": ({"base", "runtime", "tokenizer", "template"}, {"base.h", "chat.h", "tokenizer.h"}),
    "grammar": ({"base", "runtime", "tokenizer"}, {"base.h", "grammar.h", "tokenizer.h"}),
    "infer": ({"base", "runtime", "gpu", "cpu", "ops", "graph", "gguf", "tokenizer", "template", "chat", "grammar"}, None),
    "testing": (set(), None),
    "cli": (set(), None),
}
EXTRA_INCLUDES = {("sim", "kernels/host_abi.h"), ("sim", "base/assert.h"), ("testing", "base/assert.h"),
                  # they depend on nothing else in the library and are compiled into the command and the harness
                  ("cli", "base/json.h"), ("cli", "base/utf8.h"), ("cli", "base/keeper.h"), ("cli", "base/descriptors.h"),
                  ("testing", "base/json.h"), ("testing", "base/utf8.h"), ("testing", "base/descriptors.h"),
                  ("testing", "base/struct_size.h"), ("testing", "base/sanitizers.h"), ("testing", "base/process.h")}
ARGUMENT_READERS = {"cpu", "ops"}  # of the structs that kernels take: kernels/NAME_args.h, plain C
LIBRARY_LAYERS = {"base", "runtime", "gpu", "cpu", "ops", "graph", "gguf", "tokenizer", "template", "chat", "grammar", "infer"}
PROGRAMS = {"src/gpu/probe_helper.c", "src/base/keeper.c", "src/base/process.c"}  # parts of programs, not of the library
DESCRIPTORS = "src/base/descriptors.c"  # opens what the library opens
ASSERT = "src/base/assert.c"  # a failed check prints its place and aborts; compiled by the option 'checks' only
CHECK_MARKS = ["rf_assert_failed", "it is a defect of ROCmForge", "rf_pool_is_valid", "rf_timeline_is_valid",
               "rf_ledger_is_valid", "rf_lease_table_is_valid", "rf_graph_is_valid", "rf_plan_is_valid"]

BANNED = ["hipDeviceSynchronize", "cuCtxSynchronize", "hipDeviceReset", "cuDevicePrimaryCtxReset",
          "cudaDeviceSynchronize", "cudaDeviceReset", "hipDevicePrimaryCtxReset", "hipCtxSynchronize"]
# Written in pieces, the whole name would not be found in the source; in the library it would.
BANNED_TAILS = ["DeviceSynchronize", "CtxSynchronize", "DeviceReset", "PrimaryCtxReset"]
ENDS_PROCESS = re.compile(r"(?<![\w>.])(abort|exit|_exit|_Exit|quick_exit)\s*\(")
PRINTS = re.compile(r"(?<![\w>.])(printf|vprintf|puts|putchar|perror)\s*\(|(?<!\w)(stderr|stdout)(?!\w)")
OPENS = re.compile(r"(?<![\w>.])(open|open64|openat|creat|fopen|freopen|opendir|pipe|pipe2|socket|socketpair|accept|accept4|"
                   r"memfd_create|shm_open|eventfd|signalfd|timerfd_create|epoll_create1?|inotify_init1?|dup|dup2|dup3|"
                   r"mkstemp|mkostemp|tmpfile|popen)\s*\(")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', re.MULTILINE)
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def without_comments(text):
    return TOKEN.sub(lambda m: blank(m) if m.group(0).startswith("/") else m.group(0), text)


def without_literals(text):
    return TOKEN.sub(blank, text)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def check_include(layer, quote, name, folder):
    """None, or why this include is refused."""
    uses, public = LAYERS[layer]
    if name.endswith(".c"):
        return "a .c file is compiled, not included"
    if name.startswith("rocmforge/"):
        header = name.split("/", 1)[1]
        if public is not None and header not in public:
            return f"{layer} may not see the public header {header}"
        return None
    if quote == "<":
        return None  # the system's
    if ".." in name.split("/"):
        return "name the layer, not the way to it"
    if "/" not in name:
        return None if os.path.exists(os.path.join(folder, name)) else "no such file in this layer"
    target = name.split("/", 1)[0]
    if target != layer and name.endswith("_impl.h"):
        return f"{name} is {target}'s own"
    if target == layer or target in uses or (layer, name) in EXTRA_INCLUDES:
        return None
    if layer in ARGUMENT_READERS and re.fullmatch(r"kernels/\w+_args\.h", name):
        return None
    return f"{layer} may not use {target}"


def check_file(path, layer, problems):
    with open(path, encoding="utf-8") as file:
        text = without_comments(file.read())
    for match in INCLUDE.finditer(text):
        reason = check_include(layer, match.group(1), match.group(2), os.path.dirname(path))
        if reason:
            problems.append(f"{path}:{line_of(text, match.start())}: includes {match.group(2)}: {reason}")
    if layer != "sim":
        for name in BANNED:
            for match in re.finditer(rf"\b{name}\b", text):
                problems.append(f"{path}:{line_of(text, match.start())}: {name} waits for or resets the whole device")
    if layer in LIBRARY_LAYERS and path.replace(os.sep, "/") not in PROGRAMS | {ASSERT}:
        code = without_literals(text)
        for match in ENDS_PROCESS.finditer(code):
            problems.append(f"{path}:{line_of(code, match.start())}: {match.group(1)}() ends the caller's process")
        for match in PRINTS.finditer(code):
            problems.append(f"{path}:{line_of(code, match.start())}: the library never prints")
        for match in OPENS.finditer(code) if path.replace(os.sep, "/") != DESCRIPTORS else ():
            problems.append(f"{path}:{line_of(code, match.start())}: {match.group(1)}() may return descriptor 0, 1 or 2: "
                            "use base/descriptors.h")


def check_library(path, checked, problems):
    with open(path, "rb") as file:
        content = file.read()
    marks = [mark for mark in CHECK_MARKS if mark.encode() in content]
    if checked and not marks:
        problems.append(f"{path}: it has no checks: was it built with -Dchecks=2?")
    if not checked:
        problems.extend(f"{path}: it holds {mark}, which is of a build with checks" for mark in marks)
    for tail in BANNED_TAILS:
        if tail.encode() in content:
            problems.append(f"{path}: its strings hold {tail}")


def check_tree(problems):
    """Checks src below the current folder; the number of files looked at."""
    files = 0
    for layer in sorted(os.listdir("src")):
        if not os.path.isdir(os.path.join("src", layer)):
            continue
        if layer not in LAYERS:
            problems.append(f"src/{layer}: a new layer: say in tools/check_layers.py what it may use")
            continue
        for folder, _, names in os.walk(os.path.join("src", layer)):
            for name in sorted(names):
                if name.endswith((".c", ".h", ".hip")):
                    check_file(os.path.join(folder, name), layer, problems)
                    files += 1
    return files


PLANTED = [  # file, content, what is said of it (None: nothing)
    ("src/base/a.c", '#include "gpu/driver.h"\n', "base may not use gpu"),
    ("src/base/a.c", "#include <rocmforge/gpu.h>\n", "may not see the public header gpu.h"),
    ("src/gpu/a.c", '# include "cpu/x.h"\n', "gpu may not use cpu"),
    ("src/gpu/a.c", '/* #include "cpu/x.h" */\n#include "base/base.h"\n#include <stdio.h>\n', None),
    ("src/gpu/a.c", '#include "../cpu/x.h"\n', "name the layer"),
    ("src/gpu/a.c", '#include "b.c"\n', "compiled, not included"),
    ("src/infer/a.c", '#include "gpu/device_impl.h"\n', "gpu's own"),
    ("src/infer/a.c", '#include "gpu/device.h"\n', None),
    ("src/runtime/a.c", '#include "gpu/device.h"\n', "runtime may not use gpu"),
    ("src/sim/a.c", '#include "kernels/host_abi.h"\n', None),
    ("src/sim/a.c", '#include "kernels/kernel.h"\n', "sim may not use kernels"),
    ("src/ops/a.c", '#include "kernels/norm_args.h"\n', None),
    ("src/ops/a.c", '#include "kernels/kernel.h"\n', "ops may not use kernels"),
    ("src/gpu/a.c", '#include "kernels/norm_args.h"\n', "gpu may not use kernels"),
    ("src/kernels/a.hip", '#include "base/base.h"\n', "kernels may not use base"),
    ("src/cli/a.c", '#include "base/base.h"\n', "cli may not use base"),
    ("src/cli/a.c", '#include "base/json.h"\n#include "base/utf8.h"\n', None),
    ("src/testing/a.c", '#include "base/json.h"\n#include "base/utf8.h"\n', None),
    ("src/testing/a.c", '#include "base/text.h"\n', "testing may not use base"),
    ("src/testing/a.c", "#include <rocmforge/test.h>\n", None),
    ("src/testing/a.c", '#include "base/struct_size.h"\n', None),
    ("src/testing/a.c", '#include "base/base.h"\n', "testing may not use base"),
    ("src/gpu/a.c", 'static const char *name = "hipDeviceSynchronize";\n', "whole device"),
    ("src/gpu/a.c", "// hipDeviceReset is never called\n", None),
    ("src/sim/a.c", "int hipDeviceSynchronize(void);\n", None),
    ("src/gpu/a.c", "void f(void) { abort(); }\n", "ends the caller's process"),
    ("src/gpu/a.c", "void f(void) { my_exit(1); x->exit(2); g(\"exit(\"); }\n", None),
    ("src/base/a.c", "void f(void) { fprintf(stderr, x); }\n", "never prints"),
    ("src/base/assert.c", "void f(void) { fprintf(stderr, x); abort(); }\n", None),
    ("src/base/assert.h", "static inline void f(void) { abort(); }\n", "ends the caller's process"),
    ("src/gpu/assert.c", "void f(void) { abort(); }\n", "ends the caller's process"),
    ("src/base/b.c", "void f(void) { puts(x); }\n", "never prints"),
    ("src/gpu/a.c", "int f(void) { return open(path, O_RDONLY); }\n", "may return descriptor 0, 1 or 2"),
    ("src/gguf/a.c", "int f(void) { return memfd_create(name, 0); }\n", "may return descriptor 0, 1 or 2"),
    ("src/gpu/a.c", "int f(void) { return rf_open(path, O_RDONLY, 0) + x->open(y) + g(\"open(\"); }\n", None),
    ("src/base/descriptors.c", "int f(void) { return open(path, O_RDONLY); }\n", None),
    ("src/base/a.c", "int f(void) { return open(path, O_RDONLY); }\n", "may return descriptor 0, 1 or 2"),
    ("src/cli/a.c", "int f(void) { return open(path, O_RDONLY); }\n", None),
    ("src/sim/a.c", '#include "base/assert.h"\n', None),
    ("src/sim/a.c", '#include "base/base.h"\n', "sim may not use base"),
    ("src/testing/a.c", '#include "base/assert.h"\n', None),
    ("src/testing/a.c", "void f(void) { exit(1); }\n", None),
    ("src/newlayer/a.c", "", "a new layer"),
]
PLANTED_LIBRARIES = [  # content, built with checks, what is said of it (None: nothing)
    (b"\0rf_status\0", False, None),
    (b"\0hipDeviceReset\0", False, "its strings hold DeviceReset"),
    (b"\0rf_assert_failed\0", False, "which is of a build with checks"),
    (b"\0rf_pool_is_valid\0", False, "which is of a build with checks"),
    (b"\0rf_assert_failed\0", True, None),
    (b"\0rf_status\0", True, "it has no checks"),
]


def self_test():
    wrong = 0
    for path, content, expected in PLANTED:
        with tempfile.TemporaryDirectory() as folder:
            os.makedirs(os.path.join(folder, os.path.dirname(path)))
            with open(os.path.join(folder, path), "w", encoding="utf-8") as file:
                file.write(content)
            before = os.getcwd()
            os.chdir(folder)
            problems = []
            check_tree(problems)
            os.chdir(before)
        good = len(problems) == 1 and expected in problems[0] if expected else not problems
        if not good:
            print(f"self-test: {path} with {content!r}: expected {expected!r}, found {problems}", file=sys.stderr)
            wrong += 1
    for content, checked, expected in PLANTED_LIBRARIES:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            problems = []
            check_library(file.name, checked, problems)
        good = len(problems) == 1 and expected in problems[0] if expected else not problems
        if not good:
            print(f"self-test: a library with {content!r}: expected {expected!r}, found {problems}", file=sys.stderr)
            wrong += 1
    cases = len(PLANTED) + len(PLANTED_LIBRARIES)
    print(f"layers: self-test, {cases - wrong} of {cases} cases right")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    parser.add_argument("--library", action="append", default=[], help="a built library to look into")
    parser.add_argument("--checked-library", action="append", default=[], help="one built with the option 'checks'")
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    libraries = [(os.path.abspath(library), False) for library in arguments.library]
    libraries += [(os.path.abspath(library), True) for library in arguments.checked_library]
    os.chdir(arguments.root)
    problems = []
    files = check_tree(problems)
    for library, checked in libraries:
        check_library(library, checked, problems)
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        print(f"layers: {files} files, nothing reaches upward")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
