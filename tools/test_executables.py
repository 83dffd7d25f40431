#!/usr/bin/env python3
"""Prints the paths of a build folder's test executables, one a line.

They are asked of Meson rather than found by their names, so that what an older build left
behind is not run. --prefix names others, such as bench_; --all prints whatever the folders build,
the samples and libraries that tests use included.
"""
import argparse
import json
import os
import sys


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prefix", default="test_")
    parser.add_argument("--folder", action="append", help="only those of this folder of tests; may be repeated")
    parser.add_argument("--all", action="store_true", help="not only executables with that prefix")
    parser.add_argument("build")
    arguments = parser.parse_args()
    with open(os.path.join(arguments.build, "meson-info", "intro-targets.json"), encoding="utf-8") as file:
        targets = json.load(file)
    for target in targets:
        folder = os.path.basename(os.path.dirname(target["defined_in"]))
        if arguments.folder and folder not in arguments.folder:
            continue
        if arguments.all or (target["type"] == "executable" and target["name"].startswith(arguments.prefix)):
            print(os.path.relpath(target["filename"][0]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
