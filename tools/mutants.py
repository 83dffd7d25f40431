"""Finds what can be changed in a C file: the mutants of tools/mutate.py.

A mutant changes one thing in one file. It is a list of edits (offset, length, new text), none of which adds or removes
a line. The kinds:

  compare      a comparison that includes or excludes one more value, or its opposite for == and !=
  arithmetic   + for -, * for /, << for >>, & for |, ++ for --, a sign or ~ left out, and the assignments
  logic        && for ||, a ! left out
  negate       the condition of an if or a while negated
  deadline     a condition that speaks of a deadline or a timeout, never true
  drop         a statement left out: a call, an assignment, break, continue, goto
  return       a return inside a condition or a block left out
  ignore       RF_TRY(call): the call is made, its error is ignored
  lock         a lock not taken: the call that locks and those that unlock the same in this function left out
  constant     a number changed by one, a larger one doubled; true for false

Nothing is changed in comments, strings, preprocessor lines, assertions, what only the checks of invariants compile
("#if RF_CHECKS"), sizes of arrays, and case labels.
"""
import bisect
import hashlib
import re

FOLDERS = ["base", "runtime", "gpu", "ops", "graph", "infer", "gguf", "tokenizer", "testing", "cli"]
GENERATED = {"src/tokenizer/unicode_table.c"}

TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
      |(?P<line>^[ \t]*\#(?:\\\n|/\*.*?\*/|[^\n])*)
      |(?P<text>(?:u8|[LuU])?"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])+')
      |(?P<name>[A-Za-z_]\w*)
      |(?P<number>0[xX][0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?(?:[pP][+-]?\d+)?[uUlLfF]*|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[uUlLfF]*)
      |(?P<mark><<=|>>=|\.\.\.|->|\+\+|--|&&|\|\||[-+*/%&|^=!<>]=|<<|>>|[^\s])""",
    re.S | re.M | re.X)

COMPARE = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
ARITHMETIC = {"+": "-", "-": "+", "*": "/", "/": "*", "%": "*", "<<": ">>", ">>": "<<", "&": "|", "|": "&", "^": "|",
              "+=": "-=", "-=": "+=", "*=": "/=", "/=": "*=", "%=": "*=", "<<=": ">>=", ">>=": "<<=", "&=": "|=",
              "|=": "&=", "^=": "|=", "++": "--", "--": "++"}
LOGIC = {"&&": "||", "||": "&&"}
ASSERTIONS = re.compile(r"rf_assert\w*|static_assert|_Static_assert|RF_INVALID_UNLESS|RF_STATIC_ASSERT")
LOCK = re.compile(r"pthread_(mutex|rwlock|spin)_\w*lock|rf_lease(_table)?_lock|lock|lock_uses")
DEADLINE = re.compile(r"deadline|timeout|timed_out|expired|limit_ns|limit_ms|_due\b|\bdue_|until_ns|now_ns")
TYPES = {"void", "char", "short", "int", "long", "float", "double", "unsigned", "signed", "bool", "const", "struct",
         "union", "enum", "FILE", "DIR", "static", "volatile", "_Atomic", "restrict", "rf_status", "extern", "register",
         "typedef", "typeof", "__typeof__", "_Alignas", "_Thread_local", "inline", "auto"}
CONTROL = {"if", "for", "while", "switch"}
OPERAND_END = re.compile(r"[\w)\]\"']$")


class Mutant:
    """One change. 'change' is what a reader sees: what stood there, and what stands there now."""

    def __init__(self, source, kind, edits, change):
        self.path, self.kind, self.edits, self.change = source.path, kind, sorted(edits), change
        self.line = source.line_of(self.edits[0][0])
        self.function = source.function_at(self.edits[0][0])
        self.text = source.lines[self.line - 1].strip()

    def apply(self, text):
        for at, length, new in reversed(self.edits):
            kept = text[at:at + length].count("\n") - new.count("\n")
            text = text[:at] + new + "\n" * kept + text[at + length:]
        return text

    def key(self):
        return (self.path, self.function, self.kind, self.change, self.text)


class Token:
    __slots__ = ("kind", "text", "at", "end", "partner", "block", "function", "skip", "statement")

    def __init__(self, kind, text, at):
        self.kind, self.text, self.at, self.end = kind, text, at, at + len(text)
        self.partner = None   # the index of the other parenthesis
        self.block = False    # a brace around statements, not around values
        self.function = None  # the name of the function that it is in
        self.skip = False     # nothing may be changed here


class Source:
    def __init__(self, path, text):
        self.path, self.text = path, text
        self.lines = text.split("\n")
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line) + 1)
        self.tokens = []
        self.functions = []  # (offset of '{', offset of '}', name)
        self._read()
        self._pair()
        self._find_functions()
        self._skip_assertions()

    def line_of(self, at):
        return bisect.bisect_right(self.starts, at)

    def function_at(self, at):
        for start, end, name in self.functions:
            if start <= at <= end:
                return name
        return ""

    def function_lines(self, name_at_line):
        """First and last line of the function around a line; None outside of functions."""
        for start, end, _ in self.functions:
            first, last = self.line_of(start), self.line_of(end)
            if first <= name_at_line <= last:
                return first, last
        return None

    def _read(self):
        checks = 0  # how many #if deep inside what only checks compile
        for match in TOKEN.finditer(self.text):
            kind, text = match.lastgroup, match.group()
            if kind == "line":
                words = text.replace("#", "# ", 1).split()
                directive = words[1] if len(words) > 1 else ""
                if directive in ("if", "ifdef", "ifndef"):
                    if checks or "RF_CHECKS" in text:
                        checks += 1
                elif directive == "else" and checks == 1:
                    checks = 0
                elif directive == "endif" and checks:
                    checks -= 1
            elif kind != "comment":
                token = Token(kind, text, match.start())
                token.skip = checks > 0
                self.tokens.append(token)

    def _pair(self):
        stack = []
        for i, token in enumerate(self.tokens):
            if token.kind != "mark":
                continue
            if token.text in "([{":
                stack.append(i)
            elif token.text in ")]}" and stack:
                other = stack.pop()
                token.partner, self.tokens[other].partner = other, i
        for i, token in enumerate(self.tokens):
            if token.text == "{" and token.kind == "mark":
                token.block = self._is_block(i)
                if token.partner is not None:
                    self.tokens[token.partner].block = token.block

    def _is_block(self, i):
        if i == 0:
            return False
        before = self.tokens[i - 1]
        if before.kind == "name":
            return before.text in ("else", "do")
        if before.text in (";", "{", "}", ":"):
            # A nested value in a list of values begins after '{' too.
            if before.text == "{":
                return before.block
            return True
        if before.text != ")" or before.partner is None or before.partner == 0:
            return False
        opener = self.tokens[before.partner - 1]
        return opener.kind == "name" and opener.text not in ("return", "sizeof")

    def _find_functions(self):
        depth = 0
        for i, token in enumerate(self.tokens):
            if token.text == "{" and token.kind == "mark":
                if depth == 0 and token.block and token.partner is not None and self.tokens[i - 1].text == ")":
                    name = self.tokens[self.tokens[i - 1].partner - 1].text
                    self.functions.append((token.at, self.tokens[token.partner].at, name))
                    first = i
                    while first and self.tokens[first - 1].text not in (";", "}"):
                        first -= 1
                    checks = any(t.text == "RF_FOR_CHECKS" for t in self.tokens[first:i])
                    for inner in self.tokens[i:token.partner + 1]:
                        inner.function = name
                        inner.skip |= checks
                depth += 1
            elif token.text == "}" and token.kind == "mark":
                depth = max(0, depth - 1)

    def _skip_assertions(self):
        for i, token in enumerate(self.tokens[:-1]):
            follower = self.tokens[i + 1]
            if token.kind == "name" and ASSERTIONS.fullmatch(token.text) and follower.text == "(" and follower.partner:
                for inner in self.tokens[i:follower.partner + 1]:
                    inner.skip = True
            elif token.text == "case":
                j = i
                while j < len(self.tokens) and self.tokens[j].text != ":":
                    self.tokens[j].skip = True
                    j += 1

    # ---- what can be changed ----

    def mutants(self):
        found = []
        self._statements(found)
        self._operators(found)
        return found

    def _add(self, found, kind, tokens_and_texts, change):
        edits = [(first.at, last.end - first.at, new) for first, last, new in tokens_and_texts]
        found.append(Mutant(self, kind, edits, change))

    def _shown(self, first, last):
        text = re.sub(r"\s+", " ", self.text[first.at:last.end])
        return text if len(text) <= 100 else text[:97] + "…"

    def _operators(self, found):
        tokens = self.tokens
        brackets = []  # whether each open bracket is the size of an array
        values = 0     # depth of braces around values outside of functions
        for i, token in enumerate(tokens):
            if token.kind == "mark" and token.text == "[":
                brackets.append(self._is_declarator(i))
            elif token.kind == "mark" and token.text == "]" and brackets:
                brackets.pop()
            if not token.function:
                if token.text == "{" and not token.block:
                    values += 1
                elif token.text == "}" and not token.block:
                    values = max(0, values - 1)
            if token.skip or (not token.function and not values) or any(brackets):
                continue
            before = tokens[i - 1] if i else None
            if token.kind == "number":
                self._constant(found, token)
            elif token.kind == "name" and token.text in ("true", "false"):
                new = "false" if token.text == "true" else "true"
                self._add(found, "constant", [(token, token, new)], f"{token.text} → {new}")
            elif token.kind == "mark" and token.function:
                self._mark(found, i, token, before)

    def _is_declarator(self, i):
        """Whether the bracket at i gives an array's size: it belongs to a declaration."""
        j = i - 1
        while j > 0 and self.tokens[j].text == "]" and self.tokens[j].partner:
            j = self.tokens[j].partner - 1
        if j < 1 or self.tokens[j].kind != "name":
            return False
        before = self.tokens[j - 1]
        if before.kind == "name":
            return before.text not in ("return", "case", "else", "do", "sizeof")
        if before.text == "*":
            return j >= 2 and self._is_type(j - 2)
        if before.text == ",":  # char a[3], b[4];
            return self._declared_before(j)
        return False

    def _declared_before(self, j):
        depth = 0
        while j > 0:
            j -= 1
            text = self.tokens[j].text
            if text in (")", "]", "}"):
                depth += 1
            elif text in ("(", "[", "{"):
                if depth == 0:
                    return False
                depth -= 1
            elif text == ";" and depth == 0:
                break
        return self.tokens[j + 1].text in TYPES or self.tokens[j + 1].text.endswith("_t")

    def _is_type(self, i):
        token = self.tokens[i]
        if token.kind != "name":
            return False
        return token.text in TYPES or token.text.endswith("_t") or (
            i > 0 and self.tokens[i - 1].text in ("struct", "union", "enum"))

    def _constant(self, found, token):
        text = token.text
        hexadecimal = text[:2].lower() == "0x"
        digits = text.rstrip("uUlL" if hexadecimal else "uUlLfF")
        if (re.search(r"[.pP]", digits) if hexadecimal else re.search(r"[.eE]", digits)):
            value = float.fromhex(digits.rstrip("fF")) if hexadecimal else float(digits)
            new = repr(value * 2 if value else 1.0)
        else:
            octal = len(digits) > 1 and digits[0] == "0" and not hexadecimal
            value = int(digits, 16 if hexadecimal else 8 if octal else 10)
            if value > 0xffffffffffff:
                return
            new = {0: 1, 1: 0}.get(value, value + 1 if value < 10 else value * 2)
            new = hex(new) if hexadecimal else "0" + oct(new)[2:] if octal else str(new)
        new += text[len(digits):]
        self._add(found, "constant", [(token, token, new)], f"{text} → {new}")

    def _mark(self, found, i, token, before):
        text = token.text
        binary = bool(before) and (before.kind in ("name", "number", "text") or before.text in (")", "]")) and \
            before.text not in ("return", "case", "else", "do", "sizeof", "goto")
        if text in COMPARE:
            self._add(found, "compare", [(token, token, COMPARE[text])], f"{text} → {COMPARE[text]}")
        elif text in LOGIC:
            self._add(found, "logic", [(token, token, LOGIC[text])], f"{text} → {LOGIC[text]}")
        elif text in ("++", "--") or (text in ARITHMETIC and text.endswith("=")):
            self._add(found, "arithmetic", [(token, token, ARITHMETIC[text])], f"{text} → {ARITHMETIC[text]}")
        elif text in ARITHMETIC and binary:
            if text in "*&" and (self._is_type(i - 1) or self._is_cast(i - 1)):
                return
            self._add(found, "arithmetic", [(token, token, ARITHMETIC[text])], f"{text} → {ARITHMETIC[text]}")
        elif text in ("-", "~") and not binary:
            self._add(found, "arithmetic", [(token, token, "")], f"{text}x → x")
        elif text == "!":
            self._add(found, "logic", [(token, token, "")], "!x → x")

    def _is_cast(self, i):
        """Whether the ')' at i ends a cast: (type) or (type *)."""
        token = self.tokens[i]
        if token.text != ")" or token.partner is None:
            return False
        j = token.partner + 1
        return self._is_type(j) and all(t.kind == "name" or t.text == "*" for t in self.tokens[j:i])

    # ---- statements ----

    def _statements(self, found):
        for start, end, _ in self.functions:
            first = next(i for i, t in enumerate(self.tokens) if t.at == start)
            self._walk(found, first, self.tokens[first].partner)

    def _walk(self, found, body, close):
        tokens, i, depth = self.tokens, body + 1, 0
        guarded = False  # the statement is the body of an if or a loop
        while i < close:
            token = tokens[i]
            text = token.text
            if text == "{" and token.block:
                depth, i, guarded = depth + 1, i + 1, False
            elif text == "}":
                depth, i, guarded = depth - 1, i + 1, False
            elif text == ";":
                i, guarded = i + 1, False
            elif text in ("else", "do"):
                i, guarded = i + 1, True
            elif text in CONTROL and tokens[i + 1].text == "(" and tokens[i + 1].partner:
                last = tokens[i + 1].partner
                if text in ("if", "while") and not token.skip:
                    self._condition(found, text, i + 2, last - 1)
                i, guarded = last + 1, True
            elif text in ("case", "default"):
                while tokens[i].text != ":":
                    i += 1
                i += 1
            elif token.kind == "name" and tokens[i + 1].text == ":" :
                i += 2
            elif token.kind == "name" and tokens[i + 1].text == "(" and tokens[i + 1].partner and \
                    tokens[tokens[i + 1].partner + 1].text == "{" and tokens[tokens[i + 1].partner + 1].block:
                i, guarded = tokens[i + 1].partner + 1, True  # a loop's macro
            else:
                last = i
                while last < close and tokens[last].text != ";":
                    last = tokens[last].partner if tokens[last].text in ("(", "[", "{") and tokens[last].partner else last
                    last += 1
                if last < close and not any(t.skip for t in tokens[i:last]):
                    self._statement(found, i, last, guarded or depth > 0)
                i, guarded = last + 1, False

    def _condition(self, found, word, first, last):
        if last < first or any(t.skip for t in self.tokens[first:last + 1]):
            return
        one, two = self.tokens[first], self.tokens[last]
        shown = self._shown(one, two)
        text = self.text[one.at:two.end]
        if not (word == "while" and text in ("true", "1")):
            found.append(Mutant(self, "negate", [(one.at, 0, "!("), (two.end, 0, ")")], f"{word} ({shown}) → {word} (!(…))"))
        if DEADLINE.search(text):
            found.append(Mutant(self, "deadline", [(one.at, 0, "0 && ("), (two.end, 0, ")")], f"{word} ({shown}) → never"))

    def _statement(self, found, first, last, inside):
        tokens = self.tokens
        one, name = tokens[first], tokens[first].text
        shown = self._shown(one, tokens[last])
        if name == "return":
            if inside:
                self._add(found, "return", [(one, tokens[last], ";")], f"{shown} → ;")
            return
        if name in ("break", "continue", "goto"):
            self._add(found, "drop", [(one, tokens[last], ";")], f"{shown} → ;")
            return
        if self._is_declaration(first, last) or last == first:
            return
        if one.text == "(" and tokens[first + 1].text == "void" and not any(t.text == "(" for t in tokens[first + 1:last]):
            return
        call = one.kind == "name" and tokens[first + 1].text == "(" and tokens[first + 1].partner == last - 1
        if call and name == "RF_TRY":
            self._add(found, "ignore", [(one, one, "(void)")], f"{shown} → (void)(…);")
        if call and LOCK.fullmatch(name) and "unlock" not in name:
            self._lock(found, first, last, shown)
        else:
            self._add(found, "drop", [(one, tokens[last], ";")], f"{shown} → ;")

    def _is_declaration(self, first, last):
        one = self.tokens[first]
        if one.kind != "name":
            return False
        if one.text in TYPES or one.text.startswith("__"):
            return True
        j = first + 1
        while self.tokens[j].text == "*" and j < last:
            j += 1
        if self.tokens[j].kind == "name" and (j > first + 1 or True):
            return j == first + 1 or self.tokens[j + 1].text in ("=", ";", ",", "[")
        return False

    def _lock(self, found, first, last, shown):
        """Leaves out the call that locks, and every call of this function that unlocks the same."""
        tokens, function = self.tokens, self.tokens[first].function
        argument = [t.text for t in tokens[first + 2:last - 1]]
        name = tokens[first].text
        release = re.sub(r"(rd|wr|try|timed)?lock", "unlock", name)
        edits = [(tokens[first], tokens[last], ";")]
        for i, token in enumerate(tokens[:-2]):
            opener = tokens[i + 1]
            if i != first and token.function == function and token.text in (name, release) and opener.text == "(" and \
                    opener.partner and tokens[opener.partner + 1].text == ";" and \
                    [t.text for t in tokens[i + 2:opener.partner]] == argument:
                edits.append((token, tokens[opener.partner + 1], ";"))
        self._add(found, "lock", edits, f"{shown} and its unlock → ;")


def digest(*parts):
    return hashlib.sha256(":".join(str(part) for part in parts).encode()).digest()


def draw(sources, seed):
    """All mutable lines in an order that only the seed and the lines decide, with one mutant each.

    A line's place depends on its own text, so a change elsewhere in the tree leaves the others where they were."""
    drawn = []
    for source in sources:
        lines = {}
        for mutant in source.mutants():
            lines.setdefault(mutant.line, []).append(mutant)
        seen = {}
        for line in sorted(lines):
            text = lines[line][0].text
            nth = seen[text] = seen.get(text, 0) + 1
            order = digest(seed, source.path, text, nth)
            choice = int.from_bytes(digest(seed, "choice", source.path, text, nth)[:8], "big")
            drawn.append((order, lines[line][choice % len(lines[line])]))
    drawn.sort(key=lambda pair: pair[0])
    return [mutant for _, mutant in drawn]
