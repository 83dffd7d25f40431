#!/usr/bin/python3
"""compare.py RENDERER FOLDER              every FOLDER/*.jinja with FOLDER/cases.json; error_*.jinja fail, the others do not
compare.py RENDERER --random COUNT [SEED]  random templates and variables
compare.py RENDERER --expected FOLDER      FOLDER/*.jinja with cases.json against FOLDER/expected.json, without jinja2

Renders with python3-jinja2 and with RENDERER (tests/template/render_main.c) and compares: the same text, or an error
from both. jinja2 is set up as the transformers library does it: trim_blocks, lstrip_blocks, loop controls, a
`generation` tag, tojson without HTML escapes, the immutable sandbox. Exit status: 0 all the same, 1 not, 77 no jinja2.
"""
import glob
import json
import os
import random
import subprocess
import sys
from datetime import datetime


def environment():
    try:
        from jinja2 import nodes
        from jinja2.exceptions import TemplateError
        from jinja2.ext import Extension, loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        print("python3-jinja2 is not installed")
        sys.exit(77)

    class Generation(Extension):
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

        def _same(self, caller):
            return caller()

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise TemplateError(message)

    now = datetime(2026, 7, 26, 12, 30)
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.filters["from_json"] = json.loads
    env.globals.update(raise_exception=raise_exception, strftime_now=lambda f: now.strftime(f))
    return env


class Renderer:
    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def render(self, source, case):
        source, case = source.encode(), json.dumps(case).encode()
        self.process.stdin.write(b"%d %d\n" % (len(source), len(case)) + source + case)
        self.process.stdin.flush()
        head = self.process.stdout.readline().decode().split()
        if not head:
            sys.exit("the renderer ended: " + repr(source.decode()))
        text = self.process.stdout.read(int(head[-1])).decode()
        return ("text", text) if head[0] == "ok" else ("error", head[1] + ": " + text)


def expected_of(env, source, case):
    variables = dict({"bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True, "tools": None},
                     **{k: v for k, v in case.items() if k != "name"})
    try:
        return "text", env.from_string(source).render(**variables)
    except Exception as error:  # whatever a template can do to Python
        return "error", f"{type(error).__name__}: {error}"


def same(expected, got):
    return expected == got if expected[0] == "text" else got[0] == "error"


def excused(expected, got):
    """What docs/chat.md says differs: integers beyond 64 bits, and limits."""
    return got[0] == "error" and ("64 bits" in got[1] or "not supported" in got[1] or "cannot be printed" in got[1])


# ---- random templates ----

WORDS = ["a", "b c", " x ", "<|im_end|>", "Äß", "naïve", "1", "", "A-b", "line\\nend", "it's", '{"k": [1, 2.5, null]}', "%s", "{}", "π", "<b>"]
NAMES = ["s", "n", "f", "xs", "d", "nothing", "flag", "ms", "undefd", "t", "nested"]


class Maker:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.depth = 0
        self.loops = 0
        self.wild = self.random.choice([0, 0, 0.05, 1])  # how often any value stands anywhere
        self.names = list(NAMES)

    def pick(self, *options):
        return self.random.choice(options)

    def lazy(self, *options):
        return self.random.choice(options)()

    def quoted(self, text):
        return "'" + text.replace("'", "\\'") + "'"

    def literal(self):
        r = self.random
        return self.pick(self.quoted(r.choice(WORDS)), str(r.randint(-3, 12)), self.pick("1.5", "0.1", "2.0", "1e20", "-0.5"),
                         "true", "false", "none", "[]", "{}", "[1, 2, 3]", "{'a': 1, 'b': 'x'}", "(1, 'z')", "['b', 'A', 'c']")

    def name(self):
        return self.random.choice(self.names)

    def typed(self, kind):
        """An expression that is likely to be of a kind: a text, a number, a list, a dictionary, a condition."""
        self.depth += 1
        try:
            r = self.random
            t = lambda kind: f"({self.typed(kind)})"
            w = lambda: self.quoted(r.choice(WORDS))
            if self.depth > 5 or r.random() < .2:
                return {"s": self.pick("s", w(), "nested['a'].nope|default('z')"), "n": self.pick("n", "n", str(r.randint(0, 9)), "f"),
                        "l": self.pick("xs", "ms", "[1, 2, 3]", "['b', 'A', 'c']", "messages", "range(4)"), "d": self.pick("d", "nested", "{'a': 1, 'b': 'x'}"),
                        "b": self.pick("flag", "true", "xs", "undefd", "nothing", "s")}[kind]
            if kind == "s":
                return self.lazy(lambda: f"({t('s')} + {t('s')})", lambda: f"({t('s')} ~ {t(self.pick('s', 'n', 'b', 'l', 'd'))})", lambda: f"{t('s')}[{self.pick('1:', ':-1', '::-1', ':3', '-2:', '::2')}]",
                                 lambda: f"({t('s')} * {r.randint(0, 3)})", lambda: f"({t('s')} if {t('b')} else {t('s')})", lambda: f"{t('s')}.{self.pick('upper()', 'lower()', 'strip()', 'title()', 'capitalize()', 'swapcase()', 'zfill(5)', 'center(8)', 'lstrip()')}",
                                 lambda: f"{t('s')}.replace({w()}, {w()})", lambda: f"({t('s')}|{self.pick('trim', 'upper', 'lower', 'title', 'capitalize', 'indent', 'safe', 'escape', 'string', 'center(9)', 'truncate(6, true)', 'first', 'reverse')})|string",
                                 lambda: f"({t('l')}|join({w()}))", lambda: f"({t(self.pick('d', 'l', 's', 'n', 'b'))}|tojson{self.pick('', '(indent=2)', '(ensure_ascii=true)')})", lambda: f"'%s and %d' % ({t('s')}, {r.randint(0, 9)})",
                                 lambda: f"'{{}}: {{:>5}}'.format({t('s')}, {t('s')})", lambda: f"({t('s')} or {t('s')})", lambda: f"({t('s')}.split({w()})|last)", lambda: f"({t('s')}|replace('a', {w()}))", lambda: f"({t(self.pick('n', 'l', 'd', 'b'))}|string)")
            if kind == "n":
                return self.lazy(lambda: f"({t('n')} {self.pick('+', '-', '*')} {t('n')})", lambda: f"({t('n')} {self.pick('//', '%', '/')} {r.randint(1, 5)})", lambda: f"({t('l')}|length)", lambda: f"(-{t('n')})", lambda: f"({t('s')}|length)",
                                 lambda: f"({t('n')}|{self.pick('abs', 'int', 'float', 'round', 'round(2)')})", lambda: f"{t('s')}.{self.pick('find', 'count', 'rfind')}({w()})", lambda: f"({t('n')} if {t('b')} else {t('n')})", lambda: f"({t('s')}|int)", lambda: f"({t('s')}|wordcount)")
            if kind == "l":
                return self.lazy(lambda: f"({t('l')} + {t('l')})|list", lambda: f"{t('l')}[{self.pick('1:', ':-1', '::-1', ':2')}]", lambda: f"[{t('s')}, {t('n')}]", lambda: f"({t('d')}|{self.pick('items', 'list', 'dictsort')})|list", lambda: f"{t('d')}.{self.pick('items', 'keys', 'values')}()|list",
                                 lambda: f"{t('s')}.split({self.pick('', w(), w() + ', 1')})", lambda: f"(ms|{self.pick('map(attribute=' + chr(39) + 'role' + chr(39) + ')', 'selectattr(' + chr(39) + 'a' + chr(39) + ')', 'sort(attribute=' + chr(39) + 'a' + chr(39) + ')', 'groupby(' + chr(39) + 'role' + chr(39) + ')')})|list",
                                 lambda: f"({t('l')}|{self.pick('reverse', 'select', 'map(' + chr(39) + 'string' + chr(39) + ')', 'list', 'batch(2)', 'slice(2)', 'reject(' + chr(39) + 'string' + chr(39) + ')')})|list", lambda: f"{t('s')}.splitlines()", lambda: f"(['b', 'a', 'C']|sort)", lambda: f"({t('s')}|list)")
            if kind == "d":
                return self.lazy(lambda: f"{{{t('s')}: {t('n')}, 'z': {t('s')}}}", lambda: f"dict(a={t('s')}, b={t('l')})", lambda: f"({t('d')}|default({t('d')}))", lambda: f"({t('d')} or {t('d')})", lambda: "nested.a", lambda: "d")
            return self.lazy(lambda: f"({t('n')} {self.pick('<', '>', '==', '<=', '!=')} {t('n')})", lambda: f"({t('s')} {self.pick('==', 'in', 'not in', '<')} {t('s')})", lambda: f"(not {t('b')})", lambda: f"({t('b')} {self.pick('and', 'or')} {t('b')})",
                             lambda: f"({t(self.pick('s', 'n', 'l', 'd'))} is {self.pick('', 'not ')}{self.pick('defined', 'string', 'none', 'mapping', 'iterable', 'sequence', 'number', 'boolean', 'integer', 'float')})", lambda: f"{t('s')}.{self.pick('startswith', 'endswith')}({w()})",
                             lambda: f"({t('n')} in {t('l')})", lambda: f"({self.name()} is {self.pick('defined', 'undefined', 'none')})", lambda: f"({t('l')} == {t('l')})")
        finally:
            self.depth -= 1

    def value(self):
        self.depth += 1
        try:
            if self.random.random() > self.wild:
                return self.typed(self.pick("s", "s", "n", "l", "d", "b"))
            if self.depth > 4:
                return self.pick(self.literal(), self.name())
            kind = self.random.randint(0, 15)
            v = self.value
            if kind < 2:
                return self.literal()
            if kind < 5:
                return self.name()
            if kind == 5:
                return f"({v()} {self.pick('+', '-', '*', '/', '//', '%', '~', '**' if self.random.random() < .2 else '+')} {v()})"
            if kind == 6:
                return f"({v()} {self.pick('==', '!=', '<', '<=', '>', '>=', 'in', 'not in')} {v()})"
            if kind == 7:
                return f"({v()} {self.pick('and', 'or')} {v()})"
            if kind == 8:
                return self.pick(f"(not {v()})", f"(-{v()})", f"({v()} if {v()} else {v()})", f"({v()} if {v()})")
            if kind == 9:
                return f"{self.name()}{self.pick('[0]', '[-1]', '[1:]', '[:-1]', '[::-1]', '[::2]', '[1:3]', '[-2:]', f'[{self.literal()}]')}"
            if kind == 10:
                return f"{self.base()}.{self.pick('a', 'b', 'items', 'role', 'content', 'x')}"
            if kind == 11:
                return f"{self.base()}.{self.method()}"
            if kind == 12 or kind == 13:
                return f"({v()}|{self.filter()})"
            if kind == 14:
                return f"({v()} is {self.pick('', 'not ')}{self.test()})"
            return self.pick(f"[{v()}, {v()}]", f"{{'k': {v()}, 2: {v()}}}", f"({v()}, {v()})", f"range({self.random.randint(-2, 5)})",
                             f"dict(a={v()})", "namespace(q=1).q", f"'%s|%5s|%-4d|%.2f' % ({v()}, {v()}, {self.random.randint(0, 99)}, 1.25)",
                             f"{v()} < {v()} < {v()}", "strftime_now('%d %b %Y %H:%M')")
        finally:
            self.depth -= 1

    def base(self):
        return self.pick(self.name(), self.name(), self.name(), f"({self.value()})")

    def method(self):
        w = lambda: self.quoted(self.random.choice(WORDS))
        return self.pick("upper()", "lower()", "strip()", "lstrip()", "rstrip()", "title()", "capitalize()", "split()", f"split({w()})",
                         f"split({w()}, 1)", f"rsplit({w()}, 1)", f"replace({w()}, {w()})", f"startswith({w()})", f"endswith({w()})", f"find({w()})",
                         f"count({w()})", f"strip({w()})", "items()", "keys()|list", "values()|list", "get('a')", "get('zz', 5)", "splitlines()",
                         f"join(xs)", f"format({self.value()}, {self.value()})", "isdigit()", "isalpha()", "isupper()", "pop()", "append(1)",
                         f"removeprefix({w()})", f"partition({w()})", "index('a')", "zfill(6)", "center(9)", "swapcase()", "rjust(7, '.')", "copy()",
                         "isspace()", f"rfind({w()})", "nope()")

    def filter(self):
        w = lambda: self.quoted(self.random.choice(WORDS))
        return self.pick("tojson", "tojson(indent=2)", "tojson(ensure_ascii=true)", "tojson(sort_keys=true)", "tojson(separators=(',', ':'))", "length", "trim",
                         "string", f"default({self.literal()})", f"default({self.literal()}, true)", "join", f"join({w()})", "items|list", "list", "safe", "lower",
                         "upper", "dictsort", "dictsort(reverse=true)", "replace('a', 'b')", f"replace({w()}, {w()}, 1)", "indent", "indent(2, true)",
                         "indent(3, blank=true)", "int", "int(7)", "float", "unique|list", "sort", "sort(reverse=true)", "min", "max", "first", "last",
                         "capitalize", "title", "reverse|list", "map('upper')|list", "map(attribute='a')|list", "map(attribute='role')|join(',')",
                         "map('default', 3)|list", "select|list", "reject|list", "select('string')|list", "reject('none')|list", "selectattr('a')|list",
                         "selectattr('role', 'equalto', 'user')|list", "rejectattr('role', 'eq', 'user')|map(attribute='content')|list", "sum", "abs",
                         "round", "round(1)", "round(1, 'floor')", "count", "escape", "e", "wordcount", "center(12)", "truncate(6, true)", "truncate(5)",
                         "batch(2)|list", "slice(2)|list", "groupby('role')|list", "sort(attribute='a')", "attr('a')", "from_json", "format(1, 'x')",
                         "map('length')|list", "sum(attribute='a')", "select('>', 1)|list", "d('q')", "map('tojson')|join(';')", "string|length")

    def test(self):
        return self.pick("defined", "undefined", "string", "none", "mapping", "iterable", "sequence", "true", "false", "boolean", "number", "integer",
                         "float", "odd", "even", "divisibleby(3)", "lower", "upper", f"eq({self.literal()})", f"in {self.base()}", "sameas(none)",
                         f"gt({self.literal()})", "callable", "escaped", "filter", "ne 1")

    def text(self):
        return self.pick("text", " ", "\n", "  \n", "x\n  ", "<|im_start|>", "\n\n  ", "é", "{ ", "tail ")

    def tag(self, inside):
        return f"{{%{self.pick('', '', '-', '+')} {inside} {self.pick('', '', '-')}%}}"

    def block(self, depth=0):
        out = ""
        for _ in range(self.random.randint(1, 3)):
            out += self.statement(depth)
        return out

    def statement(self, depth):
        r, tag, v = self.random, self.tag, self.value
        kind = r.randint(0, 17) if depth < 3 else r.randint(0, 6)
        if kind < 3:
            return self.text()
        if kind < 7:
            return f"{{{{{self.pick('', '', '-')} {v()} {self.pick('', '', '-')}}}}}"
        if kind == 7:
            return f"{{#{self.pick('', '-')} note {self.pick('', '-', '+')}#}}"
        if kind < 10:
            out = tag(f"if {v()}") + self.block(depth + 1)
            if r.random() < .3:
                out += tag(f"elif {v()}") + self.block(depth + 1)
            if r.random() < .5:
                out += tag("else") + self.block(depth + 1)
            return out + tag("endif")
        if kind < 13:
            target = self.pick("i", "i", "i, j", "(i, j)")
            out = tag(f"for {target} in {v()}{self.pick('', '', '', f' if {v()}')}")
            before = list(self.names)
            self.names += ["i", "loop.index", "loop.first", "loop.last", "loop.index0", "loop.length", "loop.revindex", "loop.previtem", "loop.nextitem"]
            self.loops += 1
            out += self.block(depth + 1)
            if r.random() < .2:
                out += tag(f"if {v()}") + tag(self.pick("break", "continue")) + tag("endif") + self.block(depth + 1)
            self.loops -= 1
            self.names = before
            if r.random() < .2:
                out += tag("else") + self.block(depth + 1)
            return out + tag("endfor")
        if kind == 13:
            return tag(f"set {self.pick('v', 'w', 's', 'n', 'v, w')} = {v()}") + "{{ v }}{{ w }}"
        if kind == 14:
            return tag(f"set v{self.pick('', '|upper', '|trim|length')}") + self.block(depth + 1) + tag("endset") + "[{{ v }}]"
        if kind == 15:
            return tag("set ns = namespace(x=0, y='')") + tag(f"for i in {self.pick('xs', 'range(3)', 'ms')}") + \
                tag(f"set ns.x = {self.pick('ns.x + 1', 'i', v())}") + self.block(depth + 1) + tag("endfor") + "{{ ns.x }}"
        if kind == 16:
            name = self.pick("m1", "m2")
            before, loops = list(self.names), self.loops
            self.names += ["p", "q"]
            out = tag(f"macro {name}(p, q={v()})") + self.block(depth + 1) + tag("endmacro")
            self.names, self.loops = before, loops
            return out + f"{{{{ {name}({v()}{self.pick('', ', 1', ', q=2')}){self.pick('', '|trim', '|upper')} }}}}"
        if r.random() < .5:
            return tag("generation") + self.block(depth + 1) + tag("endgeneration")
        chain = self.pick("upper", "trim", "indent(2)", "replace('a', 'b')", "lower|trim")
        return tag("filter " + chain) + self.block(depth + 1) + tag("endfilter")

    def data(self, depth=0):
        r = self.random
        kind = r.randint(0, 9 if depth < 2 else 5)
        if kind < 2:
            return r.choice(WORDS)
        if kind == 2:
            return r.choice([0, 1, -1, 2, 7, 10, 123456789012])
        if kind == 3:
            return r.choice([0.0, 1.0, -2.5, 0.1, 1e-7, 1.5e300, 123456.789])
        if kind == 4:
            return r.choice([True, False, None])
        if kind == 5:
            return r.choice(["user", "Hello World", "über <b>", "a,b,c", "10", " 3.7 ", "0x1f"])
        if kind < 8:
            return [self.data(depth + 1) for _ in range(r.randint(0, 4))]
        return {r.choice(["a", "b", "role", "content", "x", "items", "B"]): self.data(depth + 1) for _ in range(r.randint(0, 4))}

    def case(self):
        r = self.random
        return {"messages": [{"role": r.choice(["user", "assistant", "system"]), "content": r.choice(WORDS)} for _ in range(r.randint(0, 3))],
                "s": r.choice(WORDS), "n": r.randint(-5, 20), "f": r.choice([0.5, 2.0, -1.25, 1e16, 1e22, 3.14159]), "flag": r.random() < .5,
                "xs": [self.data(1) for _ in range(r.randint(0, 4))], "d": {k: self.data(1) for k in r.sample(["a", "b", "role", "x", "items"], r.randint(0, 4))},
                "nothing": None, "ms": [{"role": r.choice(["user", "tool"]), "content": r.choice(WORDS), "a": r.randint(0, 3)} for _ in range(r.randint(0, 3))],
                "t": self.data(), "nested": {"a": {"b": [1, {"a": self.data(1)}]}}}


def compare_random(env, renderer, count, seed):
    different = excuses = texts = 0
    for i in range(seed, seed + count):
        maker = Maker(i)
        source, case = maker.block(), maker.case()
        expected = expected_of(env, source, case)
        if expected[0] == "text" and (" object at 0x" in expected[1] or "<built-in" in expected[1] or "<function" in expected[1] or "<class" in expected[1] or "<bound" in expected[1]):
            continue  # an address
        got = renderer.render(source, case)
        texts += expected[0] == "text"
        if same(expected, got):
            continue
        if excused(expected, got):
            excuses += 1
            continue
        different += 1
        if different <= 10:
            print(f"seed {i}: {source!r}\n  case {json.dumps(case)}\n  jinja2 {expected}\n  here   {got}")
    print(f"{count} random templates from seed {seed}, {texts} of them with a text: {different} differ, {excuses} refused as documented")
    return different


def compare_folder(env, renderer, folder, expected_file=None):
    cases = json.load(open(os.path.join(folder, "cases.json"), encoding="utf-8"))
    known = json.load(open(expected_file, encoding="utf-8")) if expected_file else None
    different = count = 0
    for path in sorted(glob.glob(os.path.join(folder, "*.jinja"))):
        with open(path, encoding="utf-8", newline="") as file:
            source = file.read()
        for case in cases:
            if known:
                row = known[os.path.basename(path)]
                row = row.get(case["name"]) or row["*"]
                expected = ("text", row["text"]) if "text" in row else ("error", row["error"])
            else:
                expected = expected_of(env, source, case)
                if (expected[0] == "error") != os.path.basename(path).startswith("error_"):
                    sys.exit(f"{path}: jinja2 gives {expected}")
            got = renderer.render(source, case)
            count += 1
            if not same(expected, got):
                different += 1
                print(f"{os.path.basename(path)}, {case['name']}:\n  expected {expected}\n  here     {got}")
    print(f"{count} renderings: {different} differ")
    return different or not count


def main():
    renderer = Renderer(sys.argv[1])
    if sys.argv[2] == "--random":
        return compare_random(environment(), renderer, int(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    if sys.argv[2] == "--expected":
        return compare_folder(None, renderer, sys.argv[3], os.path.join(sys.argv[3], "expected.json"))
    return compare_folder(environment(), renderer, sys.argv[2])


sys.exit(1 if main() else 0)
