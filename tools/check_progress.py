#!/usr/bin/env python3
"""Checks what `make build` and its kin show while they work: tools/build.py and tools/setup.sh, with a Ninja, a Meson
and an apt-get that do nothing but print. The last line is "N passed, N failed, N skipped"."""
import io
import os
import pty
import select
import shutil
import subprocess
import sys
import tempfile
from unittest import mock

sys.dont_write_bytecode = True  # nothing but sources in the source tree
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import build  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KERNELS = ['Generating src/kernels/%s.gfx1100.hsaco with a custom command' % name for name in ('add', 'copy', 'fill')]
SOURCES = ['Compiling C object rocmforge.p/src_cli_main.c.o', 'Linking target rocmforge']
STEPS = KERNELS + SOURCES
WARNING = '../src/cli/main.c:1:2: warning: a warning, with 100% of its words'

NINJA = '''#!/bin/sh
# Prints the lines of $STEPS behind NINJA_STATUS, and behind each what $MESSAGE has; exits with $RESULT.
echo "$*" >>"$CALLS"
echo "ninja: Entering directory"
[ -s "$STEPS" ] || { echo "ninja: no work to do."; exit 0; }
case " $* " in *' -n '*) sed "s/^/$NINJA_STATUS/" "$STEPS"; exit 0 ;; esac
while read -r step; do
    echo "$NINJA_STATUS$step"
    case $step in *main.c.o) [ -z "$MESSAGE" ] || echo "$MESSAGE" ;; esac
done <"$STEPS"
exit "$RESULT"
'''
MESON = '''#!/bin/sh
echo "The Meson build system"
echo "meson.build:1: WARNING: look here"
echo "this went wrong, or not"
exit "$RESULT"
'''
APT_GET = '''#!/bin/sh
echo "Reading package lists..."
echo "dlstatus:1:12.5:Retrieving file 1 of 8" >&3
echo "pmstatus:lld-19:40.25:Unpacking lld-19 (amd64)" >&3
echo "pmstatus:lld-19:80.0:Configuring lld-19 (amd64)" >&3
exit "$RESULT"
'''
DATE = '''#!/bin/sh
# Ten seconds later each time.
echo x >>"$CALLS"
expr "$(wc -l <"$CALLS")" '*' 10
'''


class Place:
    """A folder with the stand-ins, and the environment that finds them."""

    def __init__(self):
        self.folder = tempfile.mkdtemp()
        self.build = os.path.join(self.folder, 'build')
        self.bin = os.path.join(self.folder, 'bin')
        os.mkdir(self.build)
        os.mkdir(self.bin)
        self.environment = dict(os.environ, PATH=self.bin + ':' + os.environ['PATH'], TERM='xterm', COLUMNS='100',
                                CALLS=os.path.join(self.folder, 'calls'), STEPS=os.path.join(self.folder, 'steps'),
                                RESULT='0', MESSAGE='')
        for name in ('CLICOLOR_FORCE', 'NINJA_STATUS'):
            self.environment.pop(name, None)
        self.program('ninja', NINJA)
        self.program('meson', MESON)
        self.steps(STEPS)

    def program(self, name, text):
        path = os.path.join(self.bin, name)
        with open(path, 'w') as file:
            file.write(text)
        os.chmod(path, 0o755)

    def steps(self, steps):
        with open(self.environment['STEPS'], 'w') as file:
            file.writelines(step + '\n' for step in steps)

    def calls(self):
        with open(self.environment['CALLS']) as file:
            return file.read().splitlines()

    def run(self, *command, terminal=False, **environment):
        """Exit status, and what it printed on both streams."""
        environment = dict(self.environment, **environment)
        if not terminal:
            done = subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, timeout=60,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
            return done.returncode, done.stdout
        ours, theirs = pty.openpty()
        child = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        output = b''
        while select.select([ours], [], [], 60)[0]:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            output += piece
        os.close(ours)
        return child.wait(60), output.decode().replace('\r\n', '\n')

    def make(self, *arguments, **others):
        return self.run('tools/build.py', self.build, *arguments, **others)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown_at(stream, seconds):
    """What a build shows on this stream that makes one of STEPS each time these seconds have passed."""
    now = [1000]
    with mock.patch.object(build.time, 'monotonic', lambda: now[0]), mock.patch.object(sys, 'stderr', stream), \
            mock.patch.dict(os.environ, TERM='xterm', COLUMNS='100'):
        progress = build.Progress('there')
        progress.begin(STEPS)
        for step in STEPS:
            now[0] += seconds
            progress.step(step)
            progress.tick()
        progress.end(True)
    return stream.getvalue()


def on_screen(text):
    """What is left on a terminal: a carriage return with 'erase the line' begins the line anew."""
    return '\n'.join(line.split('\r\x1b[K')[-1] for line in text.split('\n'))


def same(found, expected):
    if found != expected:
        raise AssertionError('%r is not %r' % (found, expected))


def contains(text, part):
    if part not in text:
        raise AssertionError('%r is not in %r' % (part, text))


def nothing_to_build_prints_nothing(place):
    place.steps([])
    same(place.make(), (0, ''))
    same(place.make(terminal=True), (0, ''))
    same(len(place.calls()), 2)  # Ninja looked once each time


def a_pipe_gets_few_lines(place):
    begins = 'building into there: GPU kernels (3), library and command (2)\n'
    same(shown_at(io.StringIO(), 0.1), begins)
    same(shown_at(io.StringIO(), 35), begins +
         'building for 35 s: GPU kernels 1 of 3\n'
         'building for 1 min 10 s: GPU kernels 2 of 3\n'
         'building for 1 min 45 s: library and command 0 of 2\n'
         'building for 2 min 20 s: library and command 1 of 2\n'
         'building for 2 min 55 s: the last step\n'
         'built in 2 min 55 s\n')
    same(shown_at(io.StringIO(), 4).count('\n'), 3)  # at the beginning, after 12 s, at the end after 20 s
    status, text = place.make()
    same((status, text.splitlines()[0]), (0, begins.replace('there', place.build).rstrip()))


def a_terminal_gets_one_line(place):
    text = shown_at(Terminal(), 0.1)
    for part in ('GPU kernels 1 of 3', 'GPU kernels 2 of 3', 'library and command 1 of 2'):
        contains(text, '\r\x1b[Kbuilding for 0 s: ' + part)
    same(on_screen(text), '')
    status, text = place.make(terminal=True, MESSAGE=WARNING)
    same(status, 0)
    contains(text, '\r\x1b[Kbuilding for ')
    contains(on_screen(text), WARNING + '\n')
    for line in place.make(terminal=True, COLUMNS='30')[1].split('\r\x1b[K'):
        if len(line) >= 30:
            raise AssertionError('wider than the terminal: %r' % line)


def messages_and_failures_are_shown_in_full(place):
    status, text = place.make(MESSAGE=WARNING, RESULT='7')
    same(status, 7)
    contains(text, '\n' + WARNING + '\n')
    same('Compiling' in text or 'Entering' in text or 'built in' in text, False)


def the_configuration_is_one_line(place):
    same(place.run('tools/build.py', '--configure', 'there', '-Dchecks=2'),
         (0, 'configuring there\nmeson.build:1: WARNING: look here\n'))
    status, text = place.run('tools/build.py', '--configure', 'there', RESULT='5')
    same(status, 5)
    contains(text, 'this went wrong, or not\n')


def a_changed_meson_file_is_configured_first(place):
    place.steps(['Regenerating build files.'])
    place.program('ninja', NINJA.replace('exit "$RESULT"', ': >"$STEPS"'))  # after which nothing is left to do
    same(place.make(), (0, 'configuring %s again\n' % place.build))
    same([call.split()[-1] for call in place.calls()], ['-n', 'build.ninja', '-n'])


def make_shows_it(place):
    open(os.path.join(place.build, 'build.ninja'), 'w').close()
    command = ('make', '--no-print-directory', 'build', 'BUILD=' + place.build)
    status, text = place.run(*command)
    same(status, 0)
    contains(text, 'building into %s: GPU kernels (3)' % place.build)
    place.steps([])
    same(place.run(*command), (0, ''))


def setup_says_what_it_installs(place):
    """Nothing is there but the shell's own tools, so everything is missing."""
    for name in ('sh', 'env', 'expr', 'wc'):
        os.symlink(shutil.which(name), os.path.join(place.bin, name))
    for name in ('ninja', 'meson'):
        os.remove(os.path.join(place.bin, name))
    place.program('id', '#!/bin/sh\necho 0\n')
    place.program('apt-cache', '#!/bin/sh\nexit 0\n')
    place.program('apt-get', APT_GET)
    place.program('date', DATE)
    place.environment['PATH'] = place.bin
    status, text = place.run(os.path.join(ROOT, 'tools/setup.sh'))
    same(status, 0)
    contains(text, 'setup: installing gcc ')
    contains(text, 'setup: downloading, 12%\n')
    contains(text, 'setup: installing, 40%: Unpacking lld-19 (amd64)\n')
    same('Reading package lists' in text, False)
    status, text = place.run(os.path.join(ROOT, 'tools/setup.sh'), terminal=True)
    same(status, 0)
    contains(text, '\r\x1b[Ksetup: installing, 80%: Configuring lld-19 (amd64)\r\x1b[K')
    same(len(on_screen(text).splitlines()), 1)  # which packages; of the progress nothing stays
    status, text = place.run(os.path.join(ROOT, 'tools/setup.sh'), RESULT='100')
    same(status, 100)


CHECKS = (nothing_to_build_prints_nothing, a_pipe_gets_few_lines, a_terminal_gets_one_line,
          messages_and_failures_are_shown_in_full, the_configuration_is_one_line,
          a_changed_meson_file_is_configured_first, make_shows_it, setup_says_what_it_installs)


def main():
    failed = 0
    for check in CHECKS:
        place = Place()
        try:
            check(place)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            failed += 1
            print('FAIL  %s\n      %s' % (check.__name__, error))
        finally:
            shutil.rmtree(place.folder)
    print('%d passed, %d failed, 0 skipped' % (len(CHECKS) - failed, failed))
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
