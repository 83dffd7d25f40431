#!/usr/bin/env python3
"""Runs every extracted AMD kernel on an instruction emulator and compares it with a reference.

  rocmforge kernels --extract gfx1100 DIR && tools/emulate_amd.py DIR…
  tools/emulate_amd.py --rocmforge build/rocmforge [--target gfx1100 --target …] [--kernel NAME]

Needs numpy and two things that are not part of this project, named by the environment:
  TINYGRAD  a tinygrad checkout, whose test/mockgpu/amd/emu.py is the emulator (RDNA3, RDNA4, CDNA3)
  AMD_EMU   a Python file with a class CodeObject(path) that has launch(kernel, grid, block, args, shared)
Without them it exits 77 with one line. Exit 1 if any result differs, or a kernel has no case here. The emulator is slow:
shapes are small, at least one regular and one odd for each kernel.
"""
import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time

TARGETS = ('gfx1100', 'gfx1201', 'gfx942')
GUARD = 16  # elements on both sides of an output that must stay as they were


def absent(what):
    print('emulate_amd: skipped: ' + what)
    sys.exit(77)


try:
    import numpy as np
except ImportError:
    absent('numpy is not installed (package python3-numpy)')


def load_emulator():
    checkout, helper = os.environ.get('TINYGRAD'), os.environ.get('AMD_EMU')
    if not checkout or not os.path.exists(os.path.join(checkout, 'test/mockgpu/amd/emu.py')):
        absent('set TINYGRAD to a tinygrad checkout that has test/mockgpu/amd/emu.py')
    if not helper or not os.path.exists(helper):
        absent('set AMD_EMU to the file that loads code objects into the emulator')
    spec = importlib.util.spec_from_file_location('amd_emu', helper)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.CodeObject


# ---- element types ----

def bf16_bits(values):
    bits = np.asarray(values, np.float32).view(np.uint32)
    rounded = ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7fc0), rounded)


def to_type(name, values):
    """Bits of the type, from numbers."""
    values = np.asarray(values, np.float32)
    with np.errstate(over='ignore'):
        return {'f32': lambda: values.copy(), 'f16': lambda: values.astype(np.float16).view(np.uint16),
                'bf16': lambda: bf16_bits(values)}[name]()


def to_f64(name, data):
    if name == 'bf16':
        return (data.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return (data.view(np.float16) if name == 'f16' else data).astype(np.float64)


TOLERANCE = {'f32': 2e-6, 'f16': 1e-3, 'bf16': 8e-3}  # relative and absolute: 2 units of the type, or of exp2


class Output:
    """An output with guards around it, at an element offset that may spoil its alignment."""

    def __init__(self, kind, count, offset=0):
        self.kind, self.count, self.first = kind, count, GUARD + offset
        self.whole = to_type(kind, np.full(count + 2 * GUARD + offset, 7.0))
        self.before = self.whole.copy()
        self.data = self.whole[self.first:self.first + count]

    def errors(self, want, tolerance, exact):
        """None, or what is wrong; and the largest error."""
        got = to_f64(self.kind, self.data)
        want = np.asarray(want, np.float64).reshape(-1)
        if exact:
            want = to_f64(self.kind, to_type(self.kind, want))
            tolerance = 0
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        with np.errstate(invalid='ignore'):
            error = np.where(same, 0, np.abs(got - want))
            bad = ~same & ~(error <= tolerance + tolerance * np.abs(want))
        largest = float(np.nanmax(error)) if error.size else 0.0
        if bad.any():
            at = int(np.argmax(bad))
            text = 'differs in %d of %d, first at %d: %r, should be %r'
            return text % (bad.sum(), bad.size, at, got[at], want[at]), largest
        self.whole[self.first:self.first + self.count] = self.before[self.first:self.first + self.count]
        if (self.whole != self.before).any():
            at = int(np.argmax(self.whole != self.before)) - self.first
            return 'wrote outside its output, at element %d' % at, largest
        return None, largest


def misaligned(array, offset):
    """The same values at an element offset from a 16-byte boundary, and not at the end of the memory."""
    room = np.zeros(array.size + 32, array.dtype)
    start = (-room.ctypes.data % 16) // array.itemsize + offset
    room[start:start + array.size] = array.reshape(-1)
    return room[start:start + array.size]


# ---- cases: kernel name to a list of (label, grid, block, arguments, output, wanted values, exact) ----

def numbers(random, count):
    return (random.standard_normal(count) * 3).astype(np.float32)


def cases_fill(name, kind, random):
    for count, offset in ((1024, 0), (77, 3)):
        out = Output('f32', count, offset)
        value = np.float32(-2.5) if kind == 'f32' else np.uint32(0x40490fdb)
        want = np.full(count, np.array(value).view(np.float32))
        yield 'n=%d' % count, (2, 1, 1), (64, 1, 1), [out.data, value, np.uint64(count)], out, want, True


# Zeros, infinities, NaN, ties, the largest and smallest of each type, and what lies beyond them.
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 65504, 65519.9, 65520, -7e4, 2**-24, 2**-25, 1.5 * 2**-24, 1e-8,
                    3.4e38, -3.4e38, 1e-40, 2**-133, 1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-8, 1 + 3 * 2**-8, 2**-14 - 2**-25],
                   np.float32)


def cases_copy(name, kinds, random):
    source, target = kinds.split('_')
    for count, offset in ((2048, 0), (333, 1)):
        mixed = numbers(random, count)
        mixed[7:7 + SPECIAL.size] = mixed[-SPECIAL.size:] = SPECIAL
        values = misaligned(to_type(source, mixed), offset)
        out = Output(target, count, offset)
        yield ('n=%d' % count, (2, 1, 1), (64, 1, 1), [out.data, values, np.uint64(count)], out,
               to_f64(source, values), True)


def cases_copy_2d(name, kinds, random):
    source, target = kinds.split('_')
    u = np.uint64
    for rows, columns, transposed in ((4, 64, False), (5, 13, True)):
        values = misaligned(to_type(source, numbers(random, rows * columns)), 0)
        out = Output(target, rows * columns)
        want = to_f64(source, values).reshape(rows, columns)
        if transposed:
            want = want.T
            args = [out.data, values, u(columns), u(rows), u(rows), u(1), u(1), u(columns)]
        else:
            args = [out.data, values, u(rows), u(columns), u(columns), u(1), u(columns), u(1)]
        label = '%dx%d%s' % (rows, columns, ' transposed' if transposed else '')
        yield label, (1, 2, 1), (32, 2, 1), args, out, want, True


def cases_add(name, kind, random):
    for count, offset in ((2048, 0), (301, 1)):
        a, b = (misaligned(to_type(kind, numbers(random, count)), offset) for _ in range(2))
        out = Output(kind, count, offset)
        yield ('n=%d' % count, (2, 1, 1), (64, 1, 1), [out.data, a, b, np.uint64(count)], out,
               to_f64(kind, a) + to_f64(kind, b), True)


def cases_scale(name, kind, random):
    factor = np.float32(1.7)
    for count, offset in ((2048, 0), (301, 1)):
        a = misaligned(to_type(kind, numbers(random, count)), offset)
        out = Output(kind, count, offset)
        yield ('n=%d' % count, (2, 1, 1), (64, 1, 1), [out.data, a, factor, np.uint64(count)], out,
               to_f64(kind, a) * np.float64(factor), True)


# rows, columns, block: a wave's share, a block's, longer; aligned and not, for both wave sizes and all types
ROWS = ((5, 64, 128), (3, 1, 64), (3, 37, 128), (2, 1100, 128), (2, 2052, 192), (2, 2311, 64), (2, 2560, 128),
        (2, 4104, 64))


def cases_softmax(name, kind, random):
    for rows, columns, block in ROWS:
        x = numbers(random, rows * columns).reshape(rows, columns)
        if rows > 2:
            x[1] = -np.inf
        if columns > 1000:
            x[0, 5], x[1, columns - 1] = -np.inf, 80.0
        x = misaligned(x, 0).reshape(rows, columns)
        wide = x.astype(np.float64)
        top = wide.max(axis=1, keepdims=True)
        e = np.exp(wide - np.where(np.isinf(top), 0, top))
        total = e.sum(axis=1, keepdims=True)
        want = np.where(total == 0, 0, e / np.where(total == 0, 1, total))
        out = Output('f32', rows * columns)
        yield ('%dx%d block %d' % (rows, columns, block), (2, 1, 1), (block, 1, 1),
               [out.data, x, np.uint64(rows), np.uint64(columns)], out, want, False)


def cases_rms_norm(name, kind, random):
    eps = np.float32(1e-5)
    for rows, columns, block in ROWS:
        x = misaligned(to_type(kind, numbers(random, rows * columns)), 0)
        weight = misaligned(numbers(random, columns), 0)
        wide = to_f64(kind, x).reshape(rows, columns)
        want = wide / np.sqrt((wide * wide).mean(axis=1, keepdims=True) + np.float64(eps)) * weight
        out = Output(kind, rows * columns)
        yield ('%dx%d block %d' % (rows, columns, block), (2, 1, 1), (block, 1, 1),
               [out.data, x, weight, np.uint64(rows), np.uint64(columns), eps], out, want, False)


FAMILIES = (('fill_', cases_fill), ('copy_2d_', cases_copy_2d), ('copy_', cases_copy), ('add_', cases_add),
            ('scale_', cases_scale), ('softmax_', cases_softmax), ('rms_norm_', cases_rms_norm))


def cases_of(kernel, random):
    for prefix, family in FAMILIES:
        if kernel.startswith(prefix):
            return list(family(kernel, kernel[len(prefix):], random))
    return []


def size_of(argument):
    return 8 if isinstance(argument, np.ndarray) else np.asarray(argument).nbytes


def run_folder(code_object, folder, only):
    with open(os.path.join(folder, 'manifest.json'), encoding='utf-8') as text:
        manifest = json.load(text)
    target, failures, runs = manifest['target'], 0, 0
    objects = {}
    for entry in manifest['kernels']:
        kernel = entry['kernel']
        if only and kernel not in only:
            continue
        cases = cases_of(kernel, np.random.default_rng(20))
        if not cases:
            print('%-8s %-20s FAILED  no case for this kernel in tools/emulate_amd.py' % (target, kernel))
            failures += 1
        if entry['file'] not in objects:
            objects[entry['file']] = code_object(os.path.join(folder, entry['file']))
        for label, grid, block, args, out, want, exact in cases:
            start = time.monotonic()
            sizes = [a['bytes'] for a in entry['arguments']]
            if sizes != [size_of(a) for a in args]:
                wrong, largest = 'argument sizes %s, the manifest says %s' % ([size_of(a) for a in args], sizes), 0.0
            elif block[0] * block[1] > entry['max_threads']:
                wrong, largest = 'the block is larger than the manifest allows', 0.0
            else:
                objects[entry['file']].launch(kernel, grid=grid, block=block, args=args)
                kind = out.kind
                wrong, largest = out.errors(want, TOLERANCE[kind], exact)
            runs += 1
            failures += wrong is not None
            print('%-8s %-20s %-24s %s  largest error %.2g, %.1f s%s' % (
                target, kernel, label, 'FAILED' if wrong else 'ok    ', largest, time.monotonic() - start,
                ': ' + wrong if wrong else ''), flush=True)
    return runs, failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('folders', nargs='*', metavar='DIR', help='written by rocmforge kernels --extract')
    parser.add_argument('--rocmforge', help='the command to extract with, instead of folders')
    parser.add_argument('--target', action='append', help='with --rocmforge; default: ' + ' '.join(TARGETS))
    parser.add_argument('--kernel', action='append', help='only this one')
    args = parser.parse_args()
    if bool(args.folders) == bool(args.rocmforge):
        parser.error('name folders, or --rocmforge')
    code_object = load_emulator()
    with tempfile.TemporaryDirectory() as scratch:
        folders = args.folders
        for target in (args.target or TARGETS) if args.rocmforge else ():
            folders.append(os.path.join(scratch, target))
            subprocess.run([args.rocmforge, 'kernels', '--extract', target, folders[-1]], check=True)
        results = [run_folder(code_object, folder, args.kernel) for folder in folders]
    runs, failures = (sum(column) for column in zip(*results))
    print('%d passed, %d failed' % (runs - failures, failures))
    sys.exit(1 if failures or not runs else 0)


if __name__ == '__main__':
    main()
