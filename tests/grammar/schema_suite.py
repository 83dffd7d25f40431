#!/usr/bin/env python3
"""The JSON Schema test suite against the library's grammars.

    schema_suite.py JUDGE SUITE [--table] [--verbose]

JUDGE: the program grammar_judge. SUITE: the folder with draft7 and draft2020-12. Every schema is either refused by
name, or accepts each valid instance and rejects each invalid one; anything else is a failure. --table prints what was
accepted and refused, by reason, for docs/grammar.md. Exits with 1 for a wrong answer.

Instances are written as JSON.stringify writes them: 1.0 is 1, nothing is escaped that need not be. What docs/grammar.md
says of spellings is left out by name (DEVIATIONS) and counted."""
import collections
import json
import pathlib
import re
import subprocess
import sys

DRAFTS = {"draft2020-12": "https://json-schema.org/draft/2020-12/schema",
          "draft7": "http://json-schema.org/draft-07/schema#"}


def stringify(value):
    """As JSON.stringify, but for whole numbers of any size."""
    def plain(value):
        if isinstance(value, float) and value == int(value) and abs(value) < 1e21:
            return int(value)
        if isinstance(value, list):
            return [plain(item) for item in value]
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        return value
    return json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"))


def deviation(file, schema, data, valid):
    """A difference that the documentation names; None: there is none."""
    if file.name == "format.json" and valid and isinstance(data, str) and isinstance(schema, dict) and "format" in schema:
        return "format is an assertion here, not an annotation"
    text = json.dumps(data)
    if valid and "format" in json.dumps(schema) and re.search(r":60(\.\d+)?([zZ+-])", text):
        return "no leap seconds"
    if valid and re.fullmatch(r"-?[0-9.]+e\+[0-9]+", stringify(data)) and "multipleOf" in schema:
        return "no exponents where numbers have bounds or multiples"
    if re.search(r"\\ud[89a-f]", text) and not _is_utf8(data):
        return "half a surrogate pair cannot be written in UTF-8"
    return None


def _is_utf8(data):
    try:
        json.dumps(data, ensure_ascii=False).encode()
        return True
    except UnicodeEncodeError:
        return False


def reason(answer):
    """The keyword that a refusal names."""
    why = answer["why"]
    place, _, what = why.partition(": #")[2].partition(": ")
    what = what or why
    for pattern in (r'format "[^"]*" is not supported', r'the keyword "[^"]*" is not known', r"^(\S+) is not supported$",
                    r"(oneOf|minProperties|uniqueItems|not) is not supported", r"minProperties above", r"\$ref to .*: (.*)$",
                    r"multipleOf", r"(word boundaries|lookahead|lookbehind|back references|Unicode properties)",
                    r"\$id below the root", r"\$schema", r"no text can follow", r"refers to itself", r"an escape that is not known"):
        found = re.search(pattern, what)
        if found:
            return found.group(found.lastindex or 0)
    return what


class Judge:
    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, kind, text, inputs):
        request = json.dumps({"kind": kind, "text": text, "inputs": inputs})
        self.process.stdin.write(request.encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{kind}: the judge ended: {text[:500]}")
        return json.loads(line)


def main():
    judge, suite = Judge(sys.argv[1]), pathlib.Path(sys.argv[2])
    wrong, left_out, rows = [], collections.Counter(), []
    for draft, dialect in DRAFTS.items():
        for file in sorted((suite / draft).rglob("*.json")):
            row = collections.Counter()
            reasons = collections.Counter()
            for case in json.loads(file.read_text()):
                schema = case["schema"]
                if isinstance(schema, dict) and "$schema" not in schema:
                    schema = {"$schema": dialect, **schema}
                tests = []
                for test in case["tests"]:
                    why = deviation(file, case["schema"], test["data"], test["valid"])
                    if why:
                        left_out[why] += 1
                    else:
                        tests.append(test)
                answer = judge.ask("schema", json.dumps(schema), [stringify(test["data"]) for test in tests])
                if "refused" in answer:
                    # a schema without any valid instance may be refused for that
                    empty = "no text can follow" in answer["why"]
                    if empty and any(test["valid"] for test in tests):
                        wrong.append((draft, file.name, case["description"], "", answer["why"]))
                    row["no instance" if empty else "refused"] += 1
                    reasons[reason(answer)] += 1
                    continue
                row["accepted"] += 1
                for test, accepts in zip(tests, answer["accepts"]):
                    row["instances"] += 1
                    if accepts is not test["valid"]:
                        wrong.append((draft, file.name, case["description"], test["description"],
                                      f"{stringify(test['data'])[:100]} should be {test['valid']}, is {accepts}"))
            rows.append((draft, str(file.relative_to(suite / draft)), row, reasons))
    if "--table" in sys.argv:
        print("| draft | file | schemas kept | instances, all right | refused | why |\n|---|---|---|---|---|---|")
        for draft, name, row, reasons in rows:
            because = "; ".join(f"{why} ({count})" if count > 1 else why for why, count in reasons.most_common())
            print(f"| {draft} | {name[:-5]} | {row['accepted']} | {row['instances']} | "
                  f"{row['refused'] + row['no instance']} | {because.replace('|', chr(92) + '|')} |")
    for draft in DRAFTS:
        total = sum((row for d, _, row, _ in rows if d == draft), collections.Counter())
        print(f"{draft}: {total['accepted']} schemas kept with {total['instances']} instances, {total['refused']} refused by "
              f"name, {total['no instance']} refused because no value satisfies them")
    for why, count in left_out.items():
        print(f"left out: {count} instances: {why}")
    for item in wrong:
        print("WRONG", *item, sep=" | ")
    print(f"{len(wrong)} wrong answers")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
