"""A byte-level BPE vocabulary: trains one, spells it as GGUF's "gpt2" tokenizer has it, encodes with it.

The text is ASCII (the generator writes no other), so the expression of the pre-tokenizer "gpt-2" needs no table of
Unicode here. Token 0 is <|endoftext|>, 1 to 256 are the bytes, the rest are merges in the order of their rank.
"""
import collections
import re

END = 0
END_TEXT = '<|endoftext|>'
FIRST_BYTE = 1
PIECES = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+")


def byte_characters():
    """The character that spells each byte."""
    plain = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    characters, others = [], 0
    for byte in range(256):
        if byte in plain:
            characters.append(chr(byte))
        else:
            characters.append(chr(0x100 + others))
            others += 1
    return characters


def count_pieces(texts):
    counts = collections.Counter()
    for text in texts:
        counts.update(PIECES.findall(text))
    return counts


def train(counts, vocabulary):
    """Merges, as pairs of token ids, that bring the vocabulary to this size (or as near as the text allows).

    The pair that occurs most often is merged next; of equals the lowest ids, so that the result depends on nothing
    but the counts."""
    words = [([byte + FIRST_BYTE for byte in piece.encode('ascii')], count) for piece, count in sorted(counts.items())]
    pairs, where = collections.Counter(), collections.defaultdict(set)
    for number, (ids, count) in enumerate(words):
        for pair in zip(ids, ids[1:]):
            pairs[pair] += count
            where[pair].add(number)
    merges = []
    while len(merges) + 257 < vocabulary and pairs:
        best = max(pairs, key=lambda pair: (pairs[pair], -pair[0], -pair[1]))
        if pairs[best] < 2:
            break
        merged = len(merges) + 257
        merges.append(best)
        for number in sorted(where.pop(best)):
            ids, count = words[number]
            for pair in zip(ids, ids[1:]):
                pairs[pair] -= count
            ids[:] = merge(ids, best, merged)
            for pair in zip(ids, ids[1:]):
                pairs[pair] += count
                where[pair].add(number)
        pairs = +pairs  # without those that no longer occur
    return merges


def merge(ids, pair, merged):
    result, at = [], 0
    while at < len(ids):
        if at + 1 < len(ids) and ids[at] == pair[0] and ids[at + 1] == pair[1]:
            result.append(merged)
            at += 2
        else:
            result.append(ids[at])
            at += 1
    return result


class Encoder:
    """Encodes with a list of merges; remembers every piece it has seen, for a story's words are few."""

    def __init__(self, merges):
        self.merges = merges
        self.ranks = {pair: rank for rank, pair in enumerate(merges)}
        self.known = {}

    def encode(self, text):
        ids, known = [], self.known
        for piece in PIECES.findall(text):
            found = known.get(piece)
            if found is None:
                found = known[piece] = self.encode_piece(piece)
            ids += found
        return ids

    def encode_piece(self, piece):
        ids = [byte + FIRST_BYTE for byte in piece.encode('ascii')]
        while len(ids) > 1:
            rank, pair = min((self.ranks.get(pair, 1 << 30), pair) for pair in zip(ids, ids[1:]))
            if rank == 1 << 30:
                break
            ids = merge(ids, pair, rank + 257)
        return ids

    def pieces(self):
        """The bytes of every token; of <|endoftext|> none."""
        pieces = [b''] + [bytes([byte]) for byte in range(256)]
        for left, right in self.merges:
            pieces.append(pieces[left] + pieces[right])
        return pieces

    def decode(self, ids):
        pieces = self.pieces()
        return b''.join(pieces[number] for number in ids).decode('ascii', 'replace')

    def spelt(self):
        """Tokens and merges as the file has them."""
        characters = byte_characters()
        tokens = [''.join(characters[byte] for byte in piece) for piece in self.pieces()]
        tokens[END] = END_TEXT
        return tokens, [f'{tokens[left]} {tokens[right]}' for left, right in self.merges]
