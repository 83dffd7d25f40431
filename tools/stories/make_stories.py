#!/usr/bin/env python3
"""Writes simple English stories: the text that the bundled model is trained on.

    tools/stories/make_stories.py --count 5
    tools/stories/make_stories.py --split held-out --count 8 --separator '\\n====\\n'

A story is a function of its split and number, on every machine. The splits draw from different seeds; train_model.py
checks that no held-out story is among those it trains on. Stories have 60 to 250 words.
"""
import argparse
import os
import random
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import plots  # noqa: E402
import teller  # noqa: E402

FEWEST_WORDS, WORDS_MAX = 60, 250


def story(split, number):
    rng = random.Random(f'{split} {number}')
    while True:
        told = teller.Story(rng)
        plot = told.pick(plots.PLOTS)
        plots.opening(told)
        plot(told)
        text = told.text()
        if FEWEST_WORDS <= text.count(' ') + text.count('\n') + 1 <= WORDS_MAX:
            return text


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--split', choices=('train', 'held-out'), default='train')
    parser.add_argument('--first', type=int, default=0, help='number of the first story')
    parser.add_argument('--count', type=int, default=1)
    parser.add_argument('--separator', default='\\n\\n', help='between stories; \\n is a new line')
    args = parser.parse_args()
    separator = args.separator.replace('\\n', '\n')
    print(separator.join(story(args.split, number) for number in range(args.first, args.first + args.count)))


if __name__ == '__main__':
    main()
