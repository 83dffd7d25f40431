"""A story while it is told: who is in it, what has been said, and a small language of templates.

In a template [one|two|three] is one of these, [|perhaps] may be nothing, and {h}, {h.his}, {o.n} stand for what the
story knows by that name. {h~} is the name of a character, or the pronoun where the sentence before leaves no doubt who
is meant. Sentences begin with capitals and "a" becomes "an" by themselves. A closing quotation mark ends the sentence
or goes on with who said it, so that nothing after it needs a capital.

Everything random comes from the story's own generator: the same number gives the same story.
"""
import re

import lexicon as lex

PRONOUNS = {'she': {'he': 'she', 'him': 'her', 'his': 'her', 'self': 'herself'},
            'he': {'he': 'he', 'him': 'him', 'his': 'his', 'self': 'himself'}}
PARSED = {}
TOKENS = re.compile(r'[\[\]|]|\{[^}]*\}|[^\[\]|{]+')
CAPITAL = re.compile(r'(^|[.!?] |(?:^| )")([a-z])')
ARTICLE = re.compile(r'\b([Aa]) (?=[aeiouAEIOU](?!ni|se|ne\b))')


def parse(template):
    """A list of: text; (name, attribute); a list of alternatives, which are such lists."""
    stack = [[[]]]
    for token in TOKENS.findall(template):
        if token == '[':
            stack.append([[]])
        elif token == '|':
            stack[-1].append([])
        elif token == ']':
            alternatives = stack.pop()
            stack[-1][-1].append(alternatives)
        elif token[0] == '{':
            name, _, attribute = token[1:-1].partition('.')
            stack[-1][-1].append((name, attribute))
        else:
            stack[-1][-1].append(token)
    if len(stack) != 1 or len(stack[0]) != 1:
        raise ValueError(f'brackets do not match: {template}')
    return stack[0][0]


class Story:
    def __init__(self, rng):
        self.random = rng.random
        self.known = {}
        self.paragraphs = [[]]
        self.mentioned, self.mentioned_before = set(), set()
        self.names = set()

    # ---- telling ----

    def tell(self, template, **more):
        """Adds one sentence or a few."""
        self.known.update(more)
        self.mentioned_before, self.mentioned = self.mentioned, set()
        self.paragraphs[-1].append(self.finished(self.expand(template)))

    def maybe(self, chance, template, **more):
        if self.random() < chance:
            self.tell(template, **more)

    def phrase(self, template):
        return self.expand(template)

    def paragraph(self):
        if self.paragraphs[-1]:
            self.paragraphs.append([])
        self.mentioned = set()

    def text(self):
        return '\n'.join(' '.join(sentences) for sentences in self.paragraphs if sentences)

    def finished(self, text):
        text = CAPITAL.sub(lambda match: match.group(1) + match.group(2).upper(), text)
        return ARTICLE.sub(lambda match: match.group(1) + 'n ', text)

    def expand(self, template):
        parsed = PARSED.get(template)
        if parsed is None:
            parsed = PARSED[template] = parse(template)
        out = []
        self.expand_nodes(parsed, out)
        return ''.join(out)

    def expand_nodes(self, nodes, out):
        for node in nodes:
            if isinstance(node, str):
                out.append(node)
            elif isinstance(node, tuple):
                out.append(self.look_up(*node))
            else:
                self.expand_nodes(node[int(self.random() * len(node))], out)

    def look_up(self, name, attribute):
        choose = name[-1] == '~'
        if choose:
            name = name[:-1]
        value = self.known[name]
        if isinstance(value, str):
            return value
        if 'he' not in value:
            return value[attribute or 'name']
        self.mentioned.add(name)
        if choose and self.clear(name, value) and self.random() < 0.65:
            return value['he']
        return value[attribute or 'name']

    def clear(self, name, value):
        before = self.mentioned_before
        return name in before and all(other == name or self.known[other]['he'] != value['he'] for other in before)

    # ---- choosing ----

    def pick(self, choices):
        return choices[int(self.random() * len(choices))]

    def some(self, choices, count):
        """Different ones, in random order."""
        left = list(choices)
        return [left.pop(int(self.random() * len(left))) for _ in range(count)]

    def chance(self, share):
        return self.random() < share

    # ---- who, what, where ----

    def person(self, name, he, kind, home, went):
        return {'name': name, **PRONOUNS[he], 'kind': kind, 'home': home, 'went': went}

    def new_name(self, names):
        while True:
            name = self.pick(names)
            if name not in self.names:
                self.names.add(name)
                return name

    def child(self):
        he = self.pick(('he', 'she'))
        kind = 'girl' if he == 'she' else 'boy'
        return self.person(self.new_name(lex.GIRLS if he == 'she' else lex.BOYS), he, kind, 'house',
                           self.pick(('walked', 'went', 'ran')))

    def animal(self, other_than=''):
        while True:
            kind, home, went = self.pick(lex.ANIMALS)
            if kind != other_than:
                break
        return self.person(self.new_name(lex.CREATURES), self.pick(('he', 'she')), kind, home, went)

    def one_like(self, other):
        return self.child() if other['kind'] in ('girl', 'boy') else self.animal(other['kind'])

    def grown_up(self, hero):
        """Somebody older: of the family, from the village, or a wise animal."""
        chance = self.random()
        if hero['kind'] not in ('girl', 'boy'):
            who, he = self.pick(lex.WISE)
            if chance < 0.4:
                who, he = self.pick(lex.FAMILY)
                return self.person(f'{hero["his"]} {who}', he, who, 'house', 'went')
            return self.person(f'the {who}', he, who, 'tree', 'went')
        if chance < 0.6:
            who, he = self.pick(lex.FAMILY)
            return self.person(f'{hero["his"]} {who}', he, who, 'house', 'went')
        return self.neighbour()

    def neighbour(self):
        trade, ware = self.pick(lex.TRADES)
        he = 'he' if trade.endswith('man') else self.pick(('he', 'she'))
        name = ('Mr. ' if he == 'he' else 'Mrs. ') + self.new_name(lex.SURNAMES)
        return {**self.person(name, he, 'grown-up', 'house', 'went'), 'trade': trade, 'ware': ware}

    def thing(self, nouns, noun=None):
        noun = noun or self.pick(nouns)
        adjective = self.pick(lex.COLOURS if self.chance(0.6) else lex.MATERIALS)
        if adjective in noun or self.chance(0.08):
            return {'name': noun, 'n': noun}
        return {'name': f'{adjective} {noun}', 'n': noun}

    def things(self, count):
        """With different nouns."""
        nouns = self.some(lex.TOYS + lex.TREASURES[:-1] + lex.HANDY, count)
        return [self.thing(None, noun) for noun in dict.fromkeys(nouns)] if len(set(nouns)) == count else \
            self.things(count)

    def place(self, other=None):
        while True:
            name, inside, to, sights = self.pick(lex.OUTDOORS)
            if other is None or name != other['name']:
                return {'name': name, 'in': f'{inside} {name}', 'to': f'{to} {name}', 'sight': self.pick(sights)}
