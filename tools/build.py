#!/usr/bin/env python3
"""Configures and builds, and says what it does and how far it is.

  tools/build.py --configure FOLDER [MESON_FLAG…]   meson setup
  tools/build.py FOLDER [TARGET…]                   ninja

On a terminal one line is rewritten; elsewhere there is a line when it begins and one every ten seconds.
Messages of compilers and of installation are shown in full, Meson's output only if it fails. Where
everything is built already nothing is printed. All of it goes to standard error, and the exit status is
that of Meson or Ninja.
"""
import collections
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import time

EVERY_S = 10     # between lines where standard error is no terminal
MARK = '\x1e'    # begins Ninja's own line for a step; no message has it
# What a step belongs to, by Ninja's description of it; the first that matches. Shown in this order.
PHASES = (
    ('GPU kernels', r'\.(ptx|hsaco)\b'),
    ('simulated GPU', r'\.wave(32|64)\.o\b|librfsim|host_library'),
    ('tests', r'(?:^| )(tests|bench|examples)/'),
    ('installation', r'^Installing files'),
    ('library and command', r''),
)


def phase_of(description):
    return next(name for name, pattern in PHASES if re.search(pattern, description))


def duration(seconds):
    seconds = int(seconds)
    return '%d s' % seconds if seconds < 60 else '%d min %d s' % divmod(seconds, 60)


class Progress:
    """The one line, or the few lines."""

    def __init__(self, folder):
        self.terminal = sys.stderr.isatty() and os.environ.get('TERM', 'dumb') != 'dumb'
        self.folder = folder
        self.began = self.last = time.monotonic()
        self.shown = False  # the line is on the terminal
        self.totals = collections.Counter()
        self.done = collections.Counter()

    def elapsed(self):
        return time.monotonic() - self.began

    def begin(self, descriptions):
        self.totals = collections.Counter(map(phase_of, descriptions))
        if not self.terminal:
            self.say('building into %s: %s' % (self.folder, ', '.join(
                '%s (%d)' % (name, self.totals[name]) for name, _ in PHASES if self.totals[name])))

    def step(self, description):
        self.done[phase_of(description)] += 1

    def tick(self):
        if self.terminal:
            self.rewrite(self.line())
        elif time.monotonic() - self.last >= EVERY_S:
            self.last = time.monotonic()
            self.say(self.line())

    def line(self):
        """What is not complete yet. Ninja works on the phases one after the other, by and large."""
        parts = ['%s %d of %d' % (name, self.done[name], self.totals[name])
                 for name, _ in PHASES if self.done[name] < self.totals[name]]
        begun = [part for part in parts if ' 0 of ' not in part] or parts
        return 'building for %s: %s' % (duration(self.elapsed()), ', '.join(begun) or 'the last step')

    def rewrite(self, text):
        width = shutil.get_terminal_size().columns
        sys.stderr.write('\r\x1b[K' + (text if len(text) < width else text[:max(width - 2, 0)] + '…'))
        sys.stderr.flush()
        self.shown = True

    def clear(self):
        if self.shown:
            sys.stderr.write('\r\x1b[K')
            self.shown = False

    def say(self, text):
        self.clear()
        sys.stderr.write(text + '\n')
        sys.stderr.flush()

    def end(self, good):
        self.clear()
        if good and self.elapsed() >= EVERY_S:
            self.say('built in %s' % duration(self.elapsed()))


def follow(command, environment, each, tick):
    """Runs a command, calls each(line) for each line it prints and tick() now and then; returns the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # for the child
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             env=environment)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: child.send_signal(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the child too; it ends, then we do
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        rest = b''
        while True:
            if selector.select(timeout=1):
                piece = os.read(child.stdout.fileno(), 65536)
                if not piece:
                    break
                *lines, rest = (rest + piece).split(b'\n')
                for line in lines:
                    each(line.decode('utf-8', 'replace'))
            tick()
    if rest:
        each(rest.decode('utf-8', 'replace'))
    status = child.wait()
    return status if status >= 0 else 128 - status


def configure(progress, command, what):
    """Runs Meson; returns the exit status."""
    output = []

    def tick():
        if progress.terminal:
            progress.rewrite('%s for %s' % (what, duration(progress.elapsed())))

    if not progress.terminal:
        progress.say(what)
    status = follow(command, os.environ, output.append, tick)
    for line in output:
        if status or re.search(r'\b(WARNING|DEPRECATION|ERROR)\b', line):
            progress.say(line.lstrip(MARK))
    progress.clear()
    return status


def pending(folder, targets):
    """Descriptions of the steps to be made. A failure here is left to the build, which shows it."""
    done = subprocess.run(['ninja', '-C', folder, '-n'] + targets, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, env=dict(os.environ, NINJA_STATUS=MARK))
    lines = done.stdout.decode('utf-8', 'replace').split('\n')
    return done.returncode == 0, [line[1:] for line in lines if line.startswith(MARK)]


def build(folder, targets):
    known, steps = pending(folder, targets)
    if known and not steps:
        return 0
    progress = Progress(folder)
    if any(step.startswith('Regenerating build files') for step in steps):
        status = configure(progress, ['ninja', '-C', folder, 'build.ninja'], 'configuring %s again' % folder)
        if status:
            return status
        known, steps = pending(folder, targets)
        if known and not steps:
            return 0
        progress = Progress(folder)
    if known:
        progress.begin(steps)
    environment = dict(os.environ, NINJA_STATUS=MARK)
    if progress.terminal:
        environment.setdefault('CLICOLOR_FORCE', '1')  # Ninja would strip the compilers' colours in a pipe

    def each(line):
        if line.startswith(MARK):
            progress.step(line[1:])
        elif not re.match(r"ninja: (Entering directory|no work to do)", line):
            progress.say(line)

    status = follow(['ninja', '-C', folder] + targets, environment, each, progress.tick)
    progress.end(status == 0)
    return status


def main(arguments):
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `make 2>&1 | head` ends quietly
    if arguments[:1] == ['--configure'] and len(arguments) > 1:
        return configure(Progress(arguments[1]), ['meson', 'setup'] + arguments[1:], 'configuring ' + arguments[1])
    if not arguments or arguments[0].startswith('-'):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    return build(arguments[0], arguments[1:])


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
