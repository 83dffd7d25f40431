#!/usr/bin/env python3
"""Random regular expressions and grammars against recognisers that know nothing of the library's.

    random_languages.py JUDGE COUNT [--seed N]

Regular expressions: Python's re, whole match. The same ones as a schema's "pattern": Python's search. Grammars in GBNF:
a recogniser by memoised spans, below. Texts are random walks through the expression, changed in places, and random
ones. Exits with 1 for a difference."""
import json
import random
import re
import signal
import subprocess
import sys

ALPHABET = "abc01 _-\n\u00e9\u4e2d\U0001f600\"\\"


# ---- regular expressions: a tree, its spelling, and a text that it may match ----

def make_regex(rng, depth):
    kind = rng.choice(["char"] * 5 + ["class"] * 3 + ["dot", "escape"] + (["seq"] * 4 + ["alt"] * 3 + ["rep"] * 4 if depth < 5 else []))
    if kind == "char":
        return ("char", rng.choice(ALPHABET))
    if kind == "class":
        return ("class", rng.random() < 0.3, "".join(rng.sample("abc01\u00e9\u4e2d", rng.randint(1, 4))), rng.choice(["", "\\d", "\\w", "\\s", "a-c", "\u4e00-\u4fff"]))
    if kind == "dot":
        return ("dot",)
    if kind == "escape":
        return ("escape", rng.choice("dwsDWS"))
    if kind == "seq":
        return ("seq", [make_regex(rng, depth + 1) for _ in range(rng.randint(0, 4))])
    if kind == "alt":
        return ("alt", [make_regex(rng, depth + 1) for _ in range(rng.randint(1, 3))])
    low = rng.randint(0, 3)
    return ("rep", make_regex(rng, depth + 1), *rng.choice([(0, None), (1, None), (0, 1), (low, low), (low, None), (low, low + rng.randint(0, 3))]), rng.random() < 0.2)


def spell_regex(node):
    kind = node[0]
    if kind == "char":
        return re.escape(node[1]) if node[1] not in "\n\"-_ " else {"\n": "\\n"}.get(node[1], node[1])
    if kind == "class":
        return "[" + ("^" if node[1] else "") + node[2] + node[3] + "]"
    if kind == "dot":
        return "."
    if kind == "escape":
        return "\\" + node[1]
    if kind == "seq":
        return "".join(spell_regex(part) for part in node[1])
    if kind == "alt":
        return "(?:" + "|".join(spell_regex(part) for part in node[1]) + ")"
    _, inner, low, high, lazy = node
    mark = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((low, high)) or (
        f"{{{low}}}" if low == high else f"{{{low},}}" if high is None else f"{{{low},{high}}}")
    return f"(?:{spell_regex(inner)}){mark}" + ("?" if lazy else "")


def walk_regex(rng, node):
    kind = node[0]
    if kind == "char":
        return node[1]
    if kind in ("class", "dot", "escape"):
        return rng.choice(ALPHABET)
    if kind == "seq":
        return "".join(walk_regex(rng, part) for part in node[1])
    if kind == "alt":
        return walk_regex(rng, rng.choice(node[1]))
    _, inner, low, high, _ = node
    return "".join(walk_regex(rng, inner) for _ in range(rng.randint(low, low + 2 if high is None else high)))


# ---- GBNF: the same tree with references to rules, and a recogniser ----

def make_rule(rng, rules, depth, consumed):
    kinds = ["text"] * 4 + ["class"] * 3 + (["seq"] * 4 + ["alt"] * 3 + ["rep"] * 2 if depth < 3 else []) + (["ref"] * 3 if consumed else [])
    kind = rng.choice(kinds)
    if kind == "text":
        return ("text", "".join(rng.choice("ab1\u00e9\"\\\n") for _ in range(rng.randint(1, 2))))
    if kind == "class":
        return ("set", rng.random() < 0.3, "".join(rng.sample("abc1\u00e9\u4e2d]^-", rng.randint(1, 3))))
    if kind == "ref":
        return ("ref", rng.randrange(rules))
    if kind == "seq":
        parts = [make_rule(rng, rules, depth + 1, consumed)]
        for _ in range(rng.randint(0, 2)):
            parts.append(make_rule(rng, rules, depth + 1, consumed or must(parts)))
        return ("seq", parts)
    if kind == "alt":
        return ("alt", [make_rule(rng, rules, depth + 1, consumed) for _ in range(rng.randint(1, 3))])
    return ("rep", make_rule(rng, rules, depth + 1, consumed), *rng.choice([(0, None), (1, None), (0, 1), (1, 2), (2, 2)]))


def must(parts):
    """Whether these surely take a character: behind them a reference is no left recursion."""
    return any(part[0] in ("text", "set") for part in parts)


def spell_rule(node):
    kind = node[0]
    escape = lambda text, also: "".join("\\" + c if c in also else {"\n": "\\n", "\u4e2d": "\\u4e2d"}.get(c, c) for c in text)
    if kind == "text":
        return '"' + escape(node[1], '"\\') + '"'
    if kind == "set":
        return "[" + ("^" if node[1] else "") + escape(node[2], "\\[]^-") + "]"
    if kind == "ref":
        return f"r{node[1]}"
    if kind == "seq":
        return " ".join(spell_rule(part) for part in node[1])
    if kind == "alt":
        return "(" + " | ".join(spell_rule(part) for part in node[1]) + ")"
    _, inner, low, high = node
    mark = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((low, high)) or (f"{{{low}}}" if low == high else f"{{{low},{high}}}")
    return f"({spell_rule(inner)}){mark}"


def recognise(rules, text):
    """The ends of all spans from a place that a node matches; grows until nothing changes, so any recursion is fine."""
    table = {}

    def ends(node, at):
        kind = node[0]
        if kind == "text":
            return {at + len(node[1])} if text.startswith(node[1], at) else set()
        if kind == "set":
            return {at + 1} if at < len(text) and ((text[at] in node[2]) != node[1]) else set()
        if kind == "ref":
            return table.setdefault((node[1], at), set())
        if kind == "seq":
            places = {at}
            for part in node[1]:
                places = {end for place in places for end in ends(part, place)}
            return places
        if kind == "alt":
            return {end for part in node[1] for end in ends(part, at)}
        _, inner, low, high = node
        found, places = set(), {at}
        for times in range(len(text) + low + 2):
            if times >= low:
                if places <= found and times > low:
                    break
                found |= places
            if times == high:
                break
            places = {end for place in places for end in ends(inner, place)}
        return found

    changed = True
    table[(0, 0)] = set()
    while changed:
        changed = False
        for rule, at in list(table):
            before = len(table)
            now = ends(rules[rule], at)
            if now - table[(rule, at)] or len(table) > before:
                table[(rule, at)] |= now
                changed = True
    return len(text) in table[(0, 0)]


def walk_rule(rng, rules, node, depth=0):
    kind = node[0]
    if depth > 12:
        return ""
    if kind == "text":
        return node[1]
    if kind == "set":
        return rng.choice("abc1\u00e9\u4e2d]^-") if node[1] else rng.choice(node[2])
    if kind == "ref":
        return walk_rule(rng, rules, rules[node[1]], depth + 1)
    if kind == "seq":
        return "".join(walk_rule(rng, rules, part, depth + 1) for part in node[1])
    if kind == "alt":
        return walk_rule(rng, rules, rng.choice(node[1]), depth + 1)
    _, inner, low, high = node
    return "".join(walk_rule(rng, rules, inner, depth + 1) for _ in range(rng.randint(low, low + 2 if high is None else high)))


def change(rng, text, alphabet):
    text = list(text)
    for _ in range(rng.choice([0, 0, 1, 2])):
        at = rng.randint(0, len(text))
        if rng.random() < 0.5:
            text[at:at] = rng.choice(alphabet)
        else:
            text[at:at + 1] = []
    return "".join(text)[:40]


class Judge:
    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, kind, text, inputs):
        self.process.stdin.write(json.dumps({"kind": kind, "text": text, "inputs": inputs}).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the judge ended at {kind} {text!r}")
        return json.loads(line)


class Slow(Exception):
    """Python's matcher backtracks, and may take for ever."""


def stop_waiting(*_):
    raise Slow


def all_match(match, texts):
    """None: it took too long to say."""
    signal.signal(signal.SIGALRM, stop_waiting)
    signal.setitimer(signal.ITIMER_REAL, 1)
    try:
        return [bool(match(text)) for text in texts]
    except Slow:
        return None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def main():
    judge, count = Judge(sys.argv[1]), int(sys.argv[2])
    seed = int(sys.argv[sys.argv.index("--seed") + 1]) if "--seed" in sys.argv else 1
    wrong = tried = accepted = refused = limits = slow = 0

    def compare(kind, spelling, inputs, expected, answer):
        nonlocal wrong, tried, accepted, refused, limits, slow
        if expected is None:
            slow += 1
            return
        if "refused" in answer:
            refused += 1
            if not re.search(r"no text can follow|automaton of more than|too ambiguous here|begins with itself", answer["why"]):
                wrong += 1
                print(f"REFUSED {kind} {spelling!r}: {answer['why']}")
            return
        for text, right, given in zip(inputs, expected, answer["accepts"]):
            tried += 1
            limits += given == "limit"
            accepted += right
            if given != "limit" and given is not right:
                wrong += 1
                print(f"WRONG {kind} {spelling!r}: {text!r} is {right}, not {given}")

    for number in range(count):
        rng = random.Random(f"{seed}.{number}")
        tree = make_regex(rng, 0)
        spelling = spell_regex(tree)
        inputs = [change(rng, walk_regex(rng, tree), ALPHABET) for _ in range(12)] + ["", "a"]
        compiled = re.compile(spelling, re.A)
        compare("regex", spelling, inputs, all_match(compiled.fullmatch, inputs), judge.ask("regex", spelling, inputs))
        # ECMAScript's . and \s know more characters than Python's with re.A; none of ALPHABET but the line end
        front, back = rng.choice(["", "^"]), rng.choice(["", "$"])
        pattern = f"{front}(?:{spelling}){back}"
        searched = re.compile(f"{front}(?:{spelling}){back and chr(92) + 'Z'}", re.A)
        compare("pattern", pattern, inputs, all_match(searched.search, inputs),
                judge.ask("schema", json.dumps({"type": "string", "pattern": pattern}),
                          [json.dumps(text, ensure_ascii=False) for text in inputs]))
        rules = [make_rule(rng, 3, 0, False) for _ in range(3)]
        grammar = "\n".join(f"r{i} ::= {spell_rule(rule)}" for i, rule in enumerate(rules)) + "\nroot ::= r0\n"
        inputs = [change(rng, walk_rule(rng, rules, rules[0]), "ab1\u00e9") for _ in range(10)] + [""]
        compare("gbnf", grammar, inputs, [recognise(rules, text) for text in inputs], judge.ask("gbnf", grammar, inputs))
    print(f"{tried} texts compared, {accepted} of them accepted; {refused} languages refused, {limits} texts reached a limit, {slow} took Python too long; {wrong} wrong")
    sys.exit(bool(wrong) or accepted * 20 < tried)


if __name__ == "__main__":
    main()
