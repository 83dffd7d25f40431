#!/usr/bin/env python3
"""Runs the commands that a document shows, so that it cannot go stale.

Every block fenced as ```sh is run, from the root of the source tree, as one shell: a variable
exported in a line holds for the lines after it. A command is a line, with those that it continues
on by a backslash. It must exit with 0; where it must not, a comment at its end says so:

    build/rocmforge test build/tests/misbehaving/misbehaving       # exits 1
    ./run_gpu_tests.sh                             # exits 0 or 77

Blocks fenced otherwise (```text, ```c) are not run. --build names the build folder that stands
for build/ in the commands, and is in their environment as BUILD. The last line is "N passed, N failed, N skipped"; exit status 1 if a
command failed.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Command:
    def __init__(self, path, line, text):
        self.place = "%s:%d" % (os.path.relpath(path, ROOT), line)
        self.text = text
        found = re.search(r"#\s*exits\s+(\d+(?:\s+or\s+\d+)*)\s*$", text)
        self.expected = [int(number) for number in re.findall(r"\d+", found.group(1))] if found else [0]


def blocks_of(path):
    """Lists of commands, one list a block."""
    blocks, block, pending = [], None, None
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            line = line.rstrip("\n")
            if block is None:
                if re.match(r"```sh\s*$", line):
                    block = []
                continue
            if line.startswith("```"):
                if pending:
                    sys.exit("%s:%d: the block ends in a backslash" % (path, number))
                blocks.append(block)
                block = None
                continue
            if pending:
                pending.text += "\n" + line
                current = pending
            else:
                if not line.strip() or line.lstrip().startswith("#"):
                    continue
                current = Command(path, number, line)
            if line.endswith("\\"):
                pending = current
            else:
                block.append(Command(path, int(current.place.rsplit(":", 1)[1]), current.text))
                pending = None
    if block is not None:
        sys.exit("%s: a block is not closed" % path)
    return blocks


def in_build_folder(text, build):
    return re.sub(r"(?<![\w./-])build/", lambda _: build + "/", text)


def script_of(block, build):
    """Each command, then its exit status on descriptor 9: what the commands print is theirs."""
    lines = []
    for index, command in enumerate(block):
        lines += [in_build_folder(command.text, build), "echo %d $? >&9" % index]
    return "\n".join(lines) + "\n"


def run_block(block, build, timeout, verbose):
    """Runs it, prints a line per command and returns how many failed."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as statuses:
        shell = subprocess.Popen(["bash", "-c", "exec 9>&%d\n" % statuses.fileno() + script_of(block, build)],
                                 cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                 pass_fds=[statuses.fileno()], start_new_session=True,
                                 env=dict(os.environ, BUILD=build))
        try:
            shell.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, 9)
            shell.wait()
        statuses.seek(0)
        ends = dict(tuple(map(int, line.split())) for line in statuses.read().splitlines())
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    failed = 0
    for index, command in enumerate(block):
        status = ends.get(index)
        good = status in command.expected
        failed += not good
        why = "" if good else "  (did not end)" if status is None else "  (exit status %d)" % status
        print("%s  %s  %s%s" % ("ok  " if good else "FAIL", command.place, " ".join(command.text.split()), why))
    if failed or verbose:
        print("      " + text.rstrip("\n").replace("\n", "\n      "))
    sys.stdout.flush()
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build", help="the build folder (default: build)")
    parser.add_argument("--timeout", type=int, default=600, help="seconds for a block (default: 600)")
    parser.add_argument("--verbose", action="store_true", help="show what the commands print")
    parser.add_argument("--list", action="store_true", help="show the commands and run none")
    parser.add_argument("document", nargs="+")
    arguments = parser.parse_args()
    build = os.path.relpath(arguments.build, ROOT)
    if build.startswith(".."):
        build = os.path.abspath(arguments.build)
    passed = failed = 0
    for document in arguments.document:
        for block in blocks_of(document):
            if arguments.list:
                for command in block:
                    print("%s  %s" % (command.place, in_build_folder(command.text, build)))
                continue
            bad = run_block(block, build, arguments.timeout, arguments.verbose)
            failed += bad
            passed += len(block) - bad
    if not arguments.list:
        print("%d passed, %d failed, 0 skipped" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
