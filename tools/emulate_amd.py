#!/usr/bin/env python3
"""Runs every extracted AMD kernel on an instruction emulator and compares it with a reference.

  rocmforge kernels --extract gfx1100 DIR && tools/emulate_amd.py DIR…
  tools/emulate_amd.py --rocmforge build/rocmforge [--target gfx1100 --target …] [--kernel PATTERN …] [--modes MODE,…]
  tools/emulate_amd.py --rocmforge build/rocmforge --list
  tools/emulate_amd.py --self-test [--target gfx1100 --target …]

Needs numpy and two things that are not part of this project, named by the environment:
  TINYGRAD  a tinygrad checkout, whose test/mockgpu/amd/emu.py is the emulator (RDNA3, RDNA4, CDNA3)
  AMD_EMU   a Python file with a class CodeObject(path) that has launch(kernel, grid, block, args, shared)
Without them it exits 77 with one line. Exit 1 if any result differs, or a kernel has less than two cases here. The
emulator is slow: shapes are small, at least one regular and one odd for each kernel. --list needs no emulator: it counts
the cases of each kernel, compares their arguments with the manifest and runs nothing.

Every case runs in several modes, which emulate_modes.py describes: waves in order, in reversed order and interleaved, with
garbage in registers and LDS. All modes must give the same bits. --self-test compiles kernels with planted faults
(emulate_planted.py) and expects the modes to find them.

Before it is believed, the emulator (tinygrad a9069c177a, August 2026) needs six corrections in emu.py. It
  - computes LDS addresses of inactive lanes too, and crashes on them: take 0 there;
  - CDNA: stores VGPRs to LDS where the instruction says AGPRs (make_srcs ignores acc for DS);
  - CDNA: ignores neg and abs of SDWA operands;
  - CDNA: takes v128 and up in 16-bit VOP1, VOP2 and VOPC for high halves, as RDNA3 and RDNA4 do and CDNA does not;
  - returns what an atomic found only by glc: CDNA says so by sc0, RDNA4 by the lowest bit of th;
  - WMMA: reads v128 and up for an accumulator that is an inline constant: kernels with more than 128 VGPRs differ.
"""
import argparse
import faulthandler
import fnmatch
import importlib
import importlib.util
import json
import math
import os
import struct
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


sys.dont_write_bytecode = True  # nothing but sources in the source tree
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import emulate_attention  # noqa: E402
import emulate_modes  # noqa: E402
import emulate_planted  # noqa: E402
import emulate_quant  # noqa: E402


def load_emulator():
    checkout, helper = os.environ.get('TINYGRAD'), os.environ.get('AMD_EMU')
    if not checkout or not os.path.exists(os.path.join(checkout, 'test/mockgpu/amd/emu.py')):
        absent('set TINYGRAD to a tinygrad checkout that has test/mockgpu/amd/emu.py')
    if not helper or not os.path.exists(helper):
        absent('set AMD_EMU to the file that loads code objects into the emulator')
    spec = importlib.util.spec_from_file_location('amd_emu', helper)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path.insert(0, checkout)
    return emulate_modes.code_object_class(module.CodeObject, importlib.import_module('test.mockgpu.amd.emu'))


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
                'bf16': lambda: bf16_bits(values), 'u8': lambda: values.astype(np.uint8)}[name]()


def to_f64(name, data):
    if name == 'bf16':
        return (data.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return (data.view(np.float16) if name == 'f16' else data).astype(np.float64)


TOLERANCE = {'f32': 2e-6, 'f16': 1e-3, 'bf16': 8e-3, 'u8': 0}  # relative and absolute: 2 units of the type, or of exp2


class Output:
    """An output with guards around it, at an element offset that may spoil its alignment."""

    def __init__(self, kind, count, offset=0):
        self.kind, self.count, self.first = kind, count, GUARD + offset
        self.whole = to_type(kind, np.full(count + 2 * GUARD + offset, 7.0))
        self.before = self.whole.copy()
        self.data = self.whole[self.first:self.first + count]

    def errors(self, want, tolerance, exact):
        """None, or what is wrong; the largest error; the largest share of what is allowed."""
        got = to_f64(self.kind, self.data)
        want = np.asarray(want, np.float64).reshape(-1)
        if exact:
            want = to_f64(self.kind, to_type(self.kind, want))
            tolerance = 0
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        with np.errstate(invalid='ignore'):
            error = np.where(same, 0, np.abs(got - want))
            allowed = tolerance + tolerance * np.abs(want)
            bad = ~same & ~(error <= allowed)
            share = np.where(same, 0, error / np.where(allowed > 0, allowed, 1))
        largest, share = (float(np.nanmax(all_of)) if all_of.size else 0.0 for all_of in (error, share))
        if bad.any():
            at = int(np.argmax(bad))
            text = 'differs in %d of %d, first at %d: %r, should be %r'
            return text % (bad.sum(), bad.size, at, got[at], want[at]), largest, share
        self.whole[self.first:self.first + self.count] = self.before[self.first:self.first + self.count]
        if (self.whole != self.before).any():
            at = int(np.argmax(self.whole != self.before)) - self.first
            return 'wrote outside its output, at element %d' % at, largest, share
        return None, largest, share


def misaligned(array, offset):
    """The same values at an element offset from a 16-byte boundary, and not at the end of the memory."""
    room = np.zeros(array.size + 32, array.dtype)
    start = (-room.ctypes.data % 16) // array.itemsize + offset
    room[start:start + array.size] = array.reshape(-1)
    return room[start:start + array.size]


# ---- cases: kernel name to a list of (label, grid, block, arguments, output, wanted values, exact[, more]) ----
# more: {'shared': dynamic bytes, 'tolerance': another one, 'waves': of a block that is given as 0 threads, 'zeros': an
# argument that the kernel must leave as zeros}.

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
    for rows, columns, transposed in ((4, 64, False), (5, 13, True)):
        values = misaligned(to_type(source, numbers(random, rows * columns)), 0)
        out = Output(target, rows * columns)
        want = to_f64(source, values).reshape(rows, columns)
        if transposed:
            want = want.T
            args = [out.data, values, struct_of('<6Q', columns, rows, rows, 1, 1, columns)]
        else:
            args = [out.data, values, struct_of('<6Q', rows, columns, columns, 1, columns, 1)]
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


def norm_args(rows, columns, eps):
    """struct rf_norm_args of src/kernels/norm_args.h"""
    return struct_of('<QQfI', rows, columns, eps, 0)


def kinds_of(kinds):
    """The types of in and out: 'f16' is both, 'f32_f16' one and the other."""
    return kinds.split('_') if '_' in kinds else (kinds, kinds)


def cases_rms_norm(name, kinds, random):
    eps = np.float32(1e-5)
    kind, target = kinds_of(kinds)
    for rows, columns, block in ROWS:
        x = misaligned(to_type(kind, numbers(random, rows * columns)), 0)
        weight = misaligned(numbers(random, columns), 0)
        wide = to_f64(kind, x).reshape(rows, columns)
        want = wide / np.sqrt((wide * wide).mean(axis=1, keepdims=True) + np.float64(eps)) * weight
        out = Output(target, rows * columns)
        yield ('%dx%d block %d' % (rows, columns, block), (2, 1, 1), (block, 1, 1),
               [out.data, x, weight, norm_args(rows, columns, eps)], out, want, False)


FAMILIES = (('fill_', cases_fill), ('copy_2d_', cases_copy_2d), ('copy_', cases_copy), ('add_', cases_add),
            ('scale_', cases_scale), ('softmax_', cases_softmax), ('rms_norm_', cases_rms_norm))


FAMILIES += emulate_attention.families(sys.modules[__name__])
FAMILIES += emulate_quant.families(sys.modules[__name__])


# ---- a transformer's glue ----

def struct_of(fmt, *values):
    """A struct that is passed by value."""
    return np.frombuffer(struct.pack(fmt, *values), 'V%d' % struct.calcsize(fmt))[0]


def bytes_of(array):
    return np.ascontiguousarray(array).view(np.uint8).reshape(-1)


def byte_output(before, offset=0):
    """An output of any type, compared byte by byte; what it holds before the launch."""
    raw = bytes_of(before)
    out = Output('u8', raw.size, offset)
    out.data[:] = raw
    return out


def cases_activation(name, kinds, random):
    function = name.split('_gate_')[0]
    kind, target = kinds_of(kinds)
    for rows, columns, gate_row, offset in ((2, 256, 512, 0), (3, 37, 41, 1)):
        gate = misaligned(to_type(kind, numbers(random, rows * gate_row)), offset)
        up = misaligned(to_type(kind, numbers(random, rows * columns)), offset)
        x = to_f64(kind, gate).reshape(rows, gate_row)[:, :columns]
        erf = np.vectorize(math.erf)
        act = {'silu': lambda: x / (1 + np.exp(-x)),
               'gelu': lambda: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3))),
               'gelu_erf': lambda: 0.5 * x * (1 + erf(x / np.sqrt(2)))}[function]()
        out = Output(target, rows * columns, offset)
        args = [out.data, gate, up, struct_of('<5QII', rows, columns, columns, gate_row, columns, 0, 0)]
        yield '%dx%d' % (rows, columns), (1, 2, 1), (64, 1, 1), args, out, act * to_f64(kind, up).reshape(rows, columns), False


def cases_multiply(name, kind, random):
    add = name.startswith('multiply_add_')
    for rows, columns, offset in ((2, 1024, 0), (3, 61, 1)):
        a, b = (misaligned(to_type(kind, numbers(random, rows * columns)), offset) for _ in range(2))
        c = misaligned(to_type(kind, numbers(random, columns)), offset)
        out = Output(kind, rows * columns, offset)
        want = (to_f64(kind, a) * to_f64(kind, b)).reshape(rows, columns)
        args = [out.data, a, b] + ([c] if add else []) + [struct_of('<6Q', rows, columns, columns, columns, columns, 0)]
        yield '%dx%d' % (rows, columns), (1, 2, 1), (64, 1, 1), args, out, want + to_f64(kind, c) if add else want, not add or kind != 'f32'


def cases_layer_norm(name, kind, random):
    eps = np.float32(1e-5)
    for rows, columns, block in ROWS:
        x = misaligned(to_type(kind, numbers(random, rows * columns)), 0)
        weight, bias = (misaligned(numbers(random, columns), 0) for _ in range(2))
        wide = to_f64(kind, x).reshape(rows, columns)
        want = (wide - wide.mean(axis=1, keepdims=True)) / np.sqrt(wide.var(axis=1, keepdims=True) + np.float64(eps))
        out = Output(kind, rows * columns)
        yield ('%dx%d block %d' % (rows, columns, block), (2, 1, 1), (block, 1, 1),
               [out.data, x, weight, bias, norm_args(rows, columns, eps)], out, want * weight + bias, False)


def cases_add_norm(name, kind, random):
    eps = np.float32(1e-5)
    for rows, columns, block in ROWS:
        a, b = (misaligned(to_type(kind, numbers(random, rows * columns)), 0) for _ in range(2))
        weight = misaligned(numbers(random, columns), 0)
        wide = to_f64(kind, to_type(kind, to_f64(kind, a) + to_f64(kind, b))).reshape(rows, columns)
        want = wide / np.sqrt((wide * wide).mean(axis=1, keepdims=True) + np.float64(eps)) * weight
        for which in ('sum', 'norm'):
            out, other = Output(kind, rows * columns), Output(kind, rows * columns)
            pair = [out.data, other.data] if which == 'sum' else [other.data, out.data]
            yield ('%dx%d block %d %s' % (rows, columns, block, which), (2, 1, 1), (block, 1, 1),
                   pair + [a, b, weight, norm_args(rows, columns, eps)], out,
                   wide if which == 'sum' else want, which == 'sum')


def cases_softmax_mask(name, kind, random):
    for rows, columns, block in ((4, 64, 128), (4, 37, 64), (2, 1100, 128), (2, 2311, 64)):
        x = misaligned(numbers(random, rows * columns), 0).reshape(rows, columns)
        mask = to_type(kind, np.where(random.random((rows // 2, columns)) < 0.3, -np.inf, 0.5))
        mask[0, 0] = 0
        mask = misaligned(mask, 0)
        s = x.astype(np.float64) * 0.25 + to_f64(kind, mask).reshape(rows // 2, columns)[np.arange(rows) % (rows // 2)]
        e = np.exp(s - s.max(axis=1, keepdims=True))
        out = Output('f32', rows * columns)
        args = [out.data, x, mask, struct_of('<4QfI', rows, columns, rows // 2, 2, 0.25, 0)]
        yield '%dx%d block %d' % (rows, columns, block), (2, 1, 1), (block, 1, 1), args, out, e / e.sum(axis=1, keepdims=True), False


def cases_permute(name, kinds, random):
    source, target = kinds.split('_')
    for shape, order, offset in (((2, 3, 4, 16), (0, 2, 1, 3), 0), ((2, 3, 5, 7), (3, 1, 0, 2), 1)):
        count = int(np.prod(shape))
        values = misaligned(to_type(source, numbers(random, count)), offset)
        in_stride = [int(np.prod(shape[i + 1:])) for i in range(4)]
        moved = [shape[i] for i in order]
        out_stride = [0] * 4
        for at, i in enumerate(order):
            out_stride[i] = int(np.prod(moved[at + 1:]))
        out = Output(target, count)
        want = to_f64(source, values).reshape(shape).transpose(order)
        args = [out.data, values, struct_of('<12Q', *shape, *out_stride, *in_stride)]
        yield str(order), (1, 2, 3), (16, 4, 1), args, out, want, True


def cases_transpose(name, size, random):
    kind = 'f32' if size == '4' else 'f16'
    for matrices, rows, columns in ((1, 72, 136), (2, 37, 45)):
        values = misaligned(to_type(kind, numbers(random, matrices * rows * columns)), 0)
        out = Output(kind, values.size)
        want = to_f64(kind, values).reshape(matrices, rows, columns).transpose(0, 2, 1)
        strides = (rows * columns, rows, rows * columns, columns)
        args = [out.data, values, struct_of('<7Q', matrices, rows, columns, *strides)]
        yield '%dx%dx%d' % (matrices, rows, columns), (2, 1, 1), (32, 8, 1), args, out, want, True


def cases_concat(name, size, random):
    kind = 'f32' if size == '4' else 'f16'
    for outer, widths in ((6, (64, 32, 0, 8)), (3, (5, 1, 7, 2))):
        parts = [to_type(kind, numbers(random, outer * w)) if w else np.zeros(1, to_type(kind, [0]).dtype) for w in widths]
        out = Output(kind, outer * sum(widths))
        want = np.concatenate([to_f64(kind, p).reshape(outer, w) for p, w in zip(parts, widths) if w], axis=1)
        args = [out.data] + parts + [struct_of('<5Q', outer, *widths)]
        yield str(widths), (1, 2, 1), (64, 1, 1), args, out, want, True


def rope_steps(rotated):
    return [round(10000.0 ** (-2 * i / rotated) / (2 * math.pi) * 2 ** 64) % 2 ** 64 for i in range(rotated // 2)]


def rotated_by(x, positions, rotated, halves, steps):
    """x: [tokens, heads, dim]"""
    x = x.copy()
    for t, position in enumerate(positions):
        for i, step in enumerate(steps):
            angle = (step * int(position) % 2 ** 64) / 2 ** 64 * 2 * math.pi
            first, second = (i, i + rotated // 2) if halves else (2 * i, 2 * i + 1)
            a, b = x[t, :, first].copy(), x[t, :, second].copy()
            x[t, :, first], x[t, :, second] = a * math.cos(angle) - b * math.sin(angle), a * math.sin(angle) + b * math.cos(angle)
    return x


def rope_args(tokens, heads, dim, rotated, halves):
    """struct rf_rope_args of kernels/cache_args.h, of dense arrays."""
    return struct_of('<5Q4IfI', tokens, heads * dim, dim, heads * dim, dim, heads, dim, rotated, halves, 1, 0)


def kv_append_args(tokens, heads, dim, page_rows, pages, table, rotation=(0, 0), queries=(0, 0, 0, 0), cache=0):
    """struct rf_kv_append_args; rotation: rotated and halves; queries: q_token, q_out_token, q_heads, q_half."""
    return struct_of('<10Q6If3I', tokens, heads * dim, heads * dim, heads * page_rows * dim, page_rows * dim, dim,
                     table.shape[1], table.shape[0], *queries[:2], heads, dim, page_rows, pages, *rotation, 1,
                     *queries[2:], cache)


def cases_rope(name, kind, random):
    kind, to = kind.split('_') if '_' in kind else (kind, kind)
    for tokens, heads, dim, rotated, halves in ((2, 3, 64, 64, 1), (2, 5, 32, 16, 0), (3, 2, 10, 6, 0)):
        values = to_type(kind, numbers(random, tokens * heads * dim))
        positions = np.array([70001, -5, 3][:tokens], np.int32)
        steps = rope_steps(rotated)
        want = rotated_by(to_f64(kind, values).reshape(tokens, heads, dim), positions, rotated, halves, steps)
        out = Output(to, values.size)
        args = [out.data, values, positions, np.array(steps, np.uint64), rope_args(tokens, heads, dim, rotated, halves)]
        yield '%dx%dx%d' % (tokens, heads, dim), (2, 1, 1), (64, 1, 1), args, out, want, False


def near_half(values):
    """Whether a quotient of the blocks of 32 of tokens 0 and 2 is within 2e-4 of a half."""
    blocks = values[[0, 2]].reshape(-1, 32)
    x = np.abs(blocks) * (127 / np.abs(blocks).max(axis=1, keepdims=True))
    return (np.abs(x % 1 - 0.5) < 2e-4).any()


def cases_kv_append(name, kind, random):
    u = np.uint64
    rope = name.startswith('rope_')
    # The last two are what the kernels take eight elements at a time: whole heads turned, of 128 elements.
    for heads, dim, halves, rotated in ((2, 64, 1, 32), (1, 96 if kind == 'q8_0' else 74, 0, 36), (3, 128, 1, 128),
                                        (5, 128, 0, 128)):
        positions, sequences = np.array([5, -1, 0, 9], np.int32), np.array([0, 0, 1, 0], np.uint32)
        table, page_rows, pages, tokens = np.array([[2, 0], [1, 7]], np.uint32), 4, 3, 4
        steps = rope_steps(rotated)
        k, v = (numbers(random, tokens * heads * dim).reshape(tokens, heads, dim) for _ in range(2))
        turn = lambda k: rotated_by(k.astype(np.float64), positions, rotated, halves, steps) if rope else k.astype(np.float64)
        while rope and kind == 'q8_0' and near_half(turn(k)):  # a quotient near a half may round to its neighbour
            k = numbers(random, tokens * heads * dim).reshape(tokens, heads, dim)
        new = turn(k)
        for which in ('k', 'v'):
            source = new if which == 'k' else v.astype(np.float64)
            want = np.full((pages, heads, page_rows, dim), 7.0)
            for t, place in ((0, (0, 1)), (2, (1, 0))):  # position 5 is row 1 of page 0, position 0 row 0 of page 1
                want[place[0], :, place[1]] = source[t]
            if kind == 'q8_0':
                blocks = source.astype(np.float32).reshape(tokens, heads, dim // 32, 32)
                d = (np.abs(blocks).max(axis=3) / np.float32(127)).astype(np.float32)
                x = blocks * (np.float32(1) / d)[..., None]
                q = (np.sign(x) * np.floor(np.abs(x) + np.float32(0.5))).astype(np.int8)
                raw = np.concatenate([bytes_of(d.astype(np.float16)).reshape(*d.shape, 2), q.view(np.uint8)], axis=3)
                want = np.full((pages, heads, page_rows, dim // 32 * 34), 7, np.uint8)
                for t, place in ((0, (0, 1)), (2, (1, 0))):
                    want[place[0], :, place[1]] = raw[t].reshape(heads, -1)
            element = 'u8' if kind == 'q8_0' else kind
            out, other = Output(element, want.size), Output(element, want.size)
            caches = [out.data, other.data] if which == 'k' else [other.data, out.data]
            shape = tokens, heads, dim, page_rows, pages, table
            inputs = [k, v, positions, sequences, table]
            args = caches + inputs
            if rope:
                args += [np.array(steps, np.uint64), u(0), u(0), kv_append_args(*shape, (rotated, halves))]
            else:
                args += [kv_append_args(*shape)]
            exact = kind == 'q8_0' or (kind != 'f32' and not rope)
            yield '%d heads of %d, %s' % (heads, dim, which), (2, heads, 2), (64, 1, 1), args, out, want, exact
        for to in ('f32', 'f16') if rope else ():
            more = heads + 1
            q = numbers(random, tokens * more * dim).reshape(tokens, more, dim)
            out = Output(to, tokens * (more * dim + 4))
            want = np.full((tokens, more * dim + 4), 7.0)
            want[:, :more * dim] = rotated_by(q.astype(np.float64), positions, rotated, halves, steps).reshape(tokens, -1)
            caches = [Output(element, pages * heads * page_rows * dim * 2).data for _ in range(2)]
            queries = more * dim, more * dim + 4, more, to == 'f16'
            yield ('%d heads of %d, q to %s' % (more, dim, to), (2, more, 3), (64, 1, 1),
                   caches + inputs + [np.array(steps, np.uint64), out.data, q,
                                      kv_append_args(*shape, (rotated, halves), queries)], out, want, False)


# ---- argmax and the sampler: the workspace after each stage, byte by byte ----

def sampling_key(values):
    bits = np.asarray(values, np.float32).view(np.uint32)
    bits = np.where(bits == 0x80000000, 0, bits).astype(np.uint32)
    key = np.where(bits >> 31, ~bits, bits | 0x80000000).astype(np.uint32)
    return np.where(np.isnan(values), np.uint32(0), key)


def sampling_weight(y):
    power = 0x38e48
    for c in (0x29b919, 0x139d6cc, 0x71a4bb5, 0x1ebfaaa0, 0x58b90ae7, 0x80000000):
        power = c - (power * ((y << 8) & 0xffffffff) >> 32)
    return 0 if y >> 24 > 40 else (power << 9) >> (y >> 24)


class Sampling:
    """The stages of kernels/sample.hip in Python's integers; one row, chunks of 1024."""
    LAYOUT = [('state', '<u8', (6, 4)), ('settings', 'V48'), ('best', '<u8', 1024), ('sum', '<u8', 1024), ('at_cut', '<u4', 1024),
              ('histogram', [('weight', '<u8', 1024), ('count', '<u4', 1024)], 5)]

    def __init__(self, random, count, top_k, top_p):
        self.count, self.top_k, self.top_p, self.chunks = count, top_k, top_p, -(-count // 1024)
        self.logits = numbers(random, count)
        self.logits[count // 3] = np.nan
        self.logits[count // 2] = -np.inf
        self.logits[count // 4] = self.logits.astype(np.float64)[np.isfinite(self.logits)].max()  # a tie of the best
        self.window = np.array([0, count // 4, -1, count + 5, 0], np.int32)
        self.biases = np.array([(1, 3.5), (count // 4, -0.75), (-2, 9), (count - 1, -1), (count, 1)],
                               [('token', '<i4'), ('value', '<f4')])
        self.allowed = random.integers(0, 2**32, -(-count // 32)).astype(np.uint32)
        self.space = np.frombuffer(bytes([7]) * np.dtype(self.LAYOUT).itemsize, self.LAYOUT).copy()
        self.values = np.full(count, 0x07070707, np.uint32)
        self.scale = np.float32(1.4426950408889634)
        self.least, self.draw = 1 << 34, 1 << 24
        self.random = np.array([0x123456789abcdef, 42], np.uint64)

    def workspace(self):
        return np.concatenate([bytes_of(self.space), bytes_of(self.values)])

    def settings(self, window, biases, top_k, top_p):
        """struct rf_sample_settings of kernels/sampling_args.h."""
        return struct_of('<Q5I5f', self.least, window, biases, top_k, top_p, self.draw, self.scale, 2, 0.5, 0.25, 0.375)

    def keys(self, window=None, biases=None):
        window = self.window if window is None else self.window[:window]
        biases = self.biases if biases is None else self.biases[:biases]
        self.space['settings'][0] = self.settings(window.size, biases.size, self.top_k, self.top_p)
        x = self.logits.copy()
        for token in set(window.tolist()):
            if 0 <= token < self.count:
                x[token] = x[token] * np.float32(0.5) if x[token] > 0 else x[token] * np.float32(2)
                # 0.375 times a small number is exact in f64, and so is the sum: one rounding
                x[token] = np.float32(np.float64(x[token]) - 0.375 * window.tolist().count(token)) - np.float32(0.25)
        for token, value in biases:
            if 0 <= token < self.count:
                x[token] += value
        self.values = sampling_key(x)
        self.values[[not self.allowed[i // 32] >> np.uint32(i % 32) & np.uint32(1) for i in range(self.count)]] = 0
        packed = [(int(k) << 32) | (~i & 0xffffffff) for i, k in enumerate(self.values)]
        for c in range(self.chunks):
            self.space['best'][0, c] = max(packed[c * 1024:(c + 1) * 1024])
        for part in ('weight', 'count'):
            self.space['histogram'][part][:] = 0
        self.best = max(packed)

    def count_into(self, stage, chosen):
        h = self.space['histogram'][0, stage]
        sums = [0] * 1024
        for bin_, y in chosen:
            h['count'][bin_] += 1
            sums[bin_] += sampling_weight(y)
        h['weight'][:] = sums

    def weigh(self):
        most = self.best >> 32
        value = lambda k: np.uint32(k & 0x7fffffff if k >> 31 else ~k & 0xffffffff).view(np.float32)
        y = []
        for key in map(int, self.values):
            if key <= 0x7fffff:
                y.append(0xffffffff)
            elif key == most:
                y.append(0)
            else:
                octaves = np.float32(np.float32(value(most) - value(key)) * self.scale)
                y.append(int(octaves * np.float32(2 ** 24)) if octaves < 64 else 2 ** 30 - 1)
        self.values = np.array(y, np.uint32)
        self.count_into(0, [(v >> 20, v) for v in y if v < 2 ** 30])

    def order(self):
        return sorted((int(y), i) for i, y in enumerate(self.values) if y < 2 ** 30)

    def refine(self, stage):
        """By the whole order rather than by histograms: the cut is where they must end up."""
        order = self.order()
        if stage == 1:
            self.target = min(self.top_k, len(order))
        if stage == 3:
            total = sum(sampling_weight(y) for y, _ in order[:self.target_k])
            self.target = max(1, total * self.top_p >> 32)
        shift = 20 if stage in (1, 3) else 10
        if stage in (1, 2):
            self.target_k = min(self.top_k, len(order))
            cut = order[self.target_k - 1][0]
            before = [y for y, _ in order if y >> shift < cut >> shift]
            left = self.target_k - len(before)
        else:
            running = 0
            for y, _ in order:
                running += sampling_weight(y)
                if running >= self.target:
                    cut = y
                    break
            before = [y for y, _ in order if y >> shift < cut >> shift]
            left = self.target - sum(map(sampling_weight, before))
        self.space['state'][0, stage, :2] = cut >> shift, left
        self.space['state'][0, stage, 2] = sum(map(sampling_weight, before))
        self.count_into(stage, [(y >> shift - 10 & 1023, y) for y, _ in order if y >> shift == cut >> shift])
        self.cut = cut

    def sums(self):
        order = self.order()
        running, kept = 0, 0
        for y, _ in order[:self.target_k]:
            if running >= self.target:
                break
            running += sampling_weight(y)
            kept += 1
        self.kept = order[:kept]
        at = sum(y == self.cut for y, _ in self.kept)
        self.space['state'][0, 5, :3] = self.cut, at, 0
        drawn = lambda y: sampling_weight(y) if sampling_weight(y) >= self.least else 0
        for c in range(self.chunks):
            part = [int(y) for y in self.values[c * 1024:(c + 1) * 1024]]
            self.space['sum'][0, c] = sum(drawn(y) for y in part if y < self.cut)
            self.space['at_cut'][0, c] = part.count(self.cut)
        self.drawn = drawn

    def token(self):
        k0, k1 = (int(self.random[0]) >> s & 0xffffffff for s in (0, 32))
        c = [int(self.random[1]) & 0xffffffff, int(self.random[1]) >> 32, 0, 0]
        for _ in range(10):
            a, b = 0xd2511f53 * c[0], 0xcd9e8d57 * c[2]
            c = [b >> 32 ^ c[1] ^ k0, b & 0xffffffff, a >> 32 ^ c[3] ^ k1, a & 0xffffffff]
            k0, k1 = k0 + 0x9e3779b9 & 0xffffffff, k1 + 0xbb67ae85 & 0xffffffff
        point = (c[0] | c[1] << 32) * sum(self.drawn(y) for y, _ in self.kept) >> 64
        for y, i in sorted(self.kept, key=lambda pair: pair[1]):
            point -= self.drawn(y)
            if point < 0:
                return i


def sample_args(s, row_bytes, stage):
    """struct rf_sample_args of kernels/sampling_args.h; one row."""
    return struct_of('<7Q7I5f4I', 1, s.count, s.window.size, s.biases.size, s.allowed.size, s.least, row_bytes, s.count,
                     s.window.size, s.biases.size, s.top_k, s.top_p, s.draw, 0, s.scale, 2, 0.5, 0.25, 0.375, 0, 1024,
                     s.chunks, stage)


def cases_sample_keys_by_row(name, kind, random):
    for count, window in ((1500, 2), (37, 9)):  # the second is longer than the window that there is
        s = Sampling(random, count, 5, 0)
        out, row_bytes = byte_output(s.workspace()), s.workspace().size
        settings = np.frombuffer(s.settings(window, 3, 5, 77).tobytes(), np.uint8).copy()  # top_p is off in the arguments
        s.keys(min(window, s.window.size), 3)
        args = [out.data, s.logits, s.window, s.biases, s.allowed, settings, sample_args(s, row_bytes, 0)]
        yield '%d, window %d' % (count, window), (s.chunks, 1, 1), (256, 1, 1), args, out, s.workspace(), True


def cases_advance(name, kind, random):
    for rows, slots, columns, counts, given in ((3, 8, 16, (16, 5, 0), True), (70, 3, 7, (9, 1), True), (2, 1, 4, (3,), False)):
        numbers32 = lambda n: random.integers(-2**31, 2**31, n).astype(np.int32)
        drawn, tokens, positions, lengths = (numbers32(rows) for _ in range(4))
        seeds, ring = random.integers(0, 2**63, 2 * rows).astype(np.uint64), numbers32(2 * rows * slots)
        window = numbers32(rows * columns)
        settings = np.zeros((rows, 12), np.uint32)
        settings[:, 2] = [counts[r % len(counts)] for r in range(rows)]
        before = [bytes_of(a).copy() for a in (ring, window, seeds, tokens, positions, lengths)]
        sizes = [b.size for b in before]
        starts = np.concatenate([[0], np.cumsum(sizes)])  # one output of all that is written, side by side
        out = byte_output(np.concatenate(before))
        place = lambda i: out.data[starts[i]:starts[i + 1]]
        for r in range(rows):
            n, count = int(lengths[r]) & 0xffffffff, min(int(settings[r, 2]), columns)
            ring[2 * (r * slots + n % slots):][:2] = lengths[r], drawn[r]
            if given and count:
                window[r * columns + n % count] = drawn[r]
            seeds[2 * r + 1] += np.uint64(given)
        with np.errstate(over='ignore'):
            positions, lengths = positions + np.int32(1), lengths + np.int32(1)
        want = np.concatenate([bytes_of(a) for a in (ring, window, seeds, drawn, positions, lengths)])
        null = np.uint64(0)
        args = [place(3), place(4), place(5), place(2) if given else null, place(1) if given else null, place(0), drawn,
                settings if given else null, struct_of('<2Q2I', rows, columns, columns, slots)]
        yield '%d rows, %d slots' % (rows, slots), (2, 1, 1), (32, 1, 1), args, out, want, True


def cases_sample(name, kind, random):
    for count, top_k, top_p in ((1500, 300, 0.9), (37, 9, 0.7)):
        s = Sampling(random, count, top_k, int(top_p * 2 ** 32))
        grid, block, label = (s.chunks, 1, 1), (256, 1, 1), '%d top_k %d top_p %g' % (count, top_k, top_p)
        stages = [('sample_keys', s.keys), ('sample_weigh', s.weigh)]
        stages += [('sample_refine', lambda stage=stage: s.refine(stage)) for stage in (1, 2, 3, 4)]
        stages += [('sample_sums', s.sums)]
        for number, (kernel, step) in enumerate(stages):
            out = byte_output(s.workspace())
            step()
            if kernel != name:
                continue
            args = [out.data] + ([s.logits, s.window, s.biases, s.allowed] if name == 'sample_keys' else [])
            args.append(sample_args(s, out.count, number - 1 if name == 'sample_refine' else 0))
            yield '%s, %d' % (label, number), grid, block, args, out, s.workspace(), True
        if name == 'sample_draw':
            out, workspace = byte_output(np.zeros(1, np.int32)), s.workspace()
            args = [out.data, workspace, s.random, sample_args(s, workspace.size, 0)]
            yield label, (1, 1, 1), block, args, out, bytes_of(np.array([s.token()], np.int32)), True


def cases_argmax(name, kind, random):
    for rows, columns in ((2, 1024), (3, 1037)):
        x = numbers(random, rows * columns).reshape(rows, columns)
        x[0, 5] = np.nan
        x[1, 7] = x[1, columns - 1] = 50
        chunks = -(-columns // 1024)
        packed = [[max((int(k) << 32) | (~(c * 1024 + i) & 0xffffffff) for i, k in enumerate(sampling_key(row[c * 1024:(c + 1) * 1024])))
                   for c in range(chunks)] for row in x]
        best = np.array(packed, np.uint64)
        label = '%dx%d' % (rows, columns)
        args = struct_of('<4Q2I', rows, columns, columns, chunks, 1024, chunks)  # struct rf_argmax_args
        if name == 'argmax_rows':
            out = byte_output(np.zeros(rows, np.int32))
            want = bytes_of(np.array([np.nanargmax(row) for row in x], np.int32))
            yield label, (2, 1, 1), (256, 1, 1), [out.data, best, args], out, want, True
        else:
            out = byte_output(np.zeros((rows, chunks), np.uint64))
            yield label, (chunks, 2, 1), (256, 1, 1), [out.data, x, args], out, bytes_of(best), True


FAMILIES = (('silu_gate_', cases_activation), ('gelu_gate_', cases_activation), ('gelu_erf_gate_', cases_activation),
            ('multiply_add_', cases_multiply), ('multiply_', cases_multiply), ('layer_norm_', cases_layer_norm),
            ('add_rms_norm_', cases_add_norm), ('softmax_mask_f32_', cases_softmax_mask), ('permute_', cases_permute),
            ('transpose_', cases_transpose), ('concat_', cases_concat), ('rope_kv_append_', cases_kv_append),
            ('kv_append_', cases_kv_append), ('rope_', cases_rope), ('argmax_', cases_argmax),
            ('sample_keys_by_row', cases_sample_keys_by_row), ('sample_', cases_sample), ('advance', cases_advance)) + FAMILIES


def cases_of(kernel, random):
    for prefix, family in FAMILIES:
        if kernel.startswith(prefix):
            return list(family(kernel, kernel[len(prefix):], random))
    return []


def size_of(argument):
    return 8 if isinstance(argument, np.ndarray) else np.asarray(argument).nbytes


def wrong_arguments(entry, args, block):
    """None, or how a case departs from the manifest."""
    sizes, given = [a['bytes'] for a in entry['arguments']], [size_of(a) for a in args]
    if sizes != given:
        return 'argument sizes %s, the manifest says %s' % (given, sizes)
    return 'the block is larger than the manifest allows' if block[0] * block[1] > entry['max_threads'] else None


def run_case(code_object, entry, target, case, mode, seed):
    """None, or what is wrong; the largest error; the largest share of what is allowed; the output's bits."""
    _, grid, block, args, out, want, exact, *more = case
    more = more[0] if more else {}
    block = block if block[0] else (more['waves'] * (64 if target.startswith('gfx9') else 32), 1, 1)
    wrong = wrong_arguments(entry, args, block)
    if wrong or not code_object:
        return wrong, 0.0, 0.0, None
    try:
        code_object.launch(entry['kernel'], grid=grid, block=block, args=args, shared=more.get('shared', 0), mode=mode,
                           seed=seed)
    except emulate_modes.Wrong as error:
        return str(error), 0.0, 0.0, None
    bits = out.data.tobytes()
    if np.any(more.get('zeros', 0)):
        return 'counters are %s after it' % more['zeros'], 0.0, 0.0, bits
    return (*out.errors(want, more.get('tolerance', TOLERANCE[out.kind]), exact), bits)


def run_folder(code_object, folder, only, modes, seed):
    """code_object: None to list."""
    with open(os.path.join(folder, 'manifest.json'), encoding='utf-8') as text:
        manifest = json.load(text)
    target, failures, runs, kernels = manifest['target'], 0, 0, 0
    objects, began = {}, time.monotonic()
    for entry in manifest['kernels']:
        kernel = entry['kernel']
        if only and not any(fnmatch.fnmatchcase(kernel, pattern) for pattern in only):
            continue
        # Each mode has arrays of its own, with the same numbers in them.
        cases = list(zip(*[cases_of(kernel, np.random.default_rng(20)) for _ in modes]))
        kernels += 1
        if len(cases) < 2:
            print('%-8s %-20s FAILED  %d cases for this kernel in tools/emulate_amd.py; two at least' % (target, kernel,
                                                                                                     len(cases)))
            failures += 1
        elif not code_object:
            print('%-8s %-36s %d cases' % (target, kernel, len(cases)))
        if code_object and entry['file'] not in objects:
            objects[entry['file']] = code_object(os.path.join(folder, entry['file']))
        for in_modes in cases:
            start, problems, largest, share, first = time.monotonic(), [], 0.0, 0.0, None
            if code_object:  # named before it runs: an address that a kernel makes of garbage ends this process
                print('%-8s %-20s %-24s ' % (target, kernel, in_modes[0][0]), end='', flush=True)
            for mode, case in zip(modes, in_modes):
                wrong, error, of_allowed, bits = run_case(objects.get(entry['file']), entry, target, case, mode, seed)
                first = bits if first is None else first
                if not wrong and bits != first:
                    wrong = 'its bits are not those of mode ' + modes[0]
                if wrong:
                    problems.append(mode + ': ' + wrong)
                largest, share = max(largest, error), max(share, of_allowed)
            runs += 1
            failures += len(problems) > 0
            if code_object:
                print('%s  largest error %.2g, %.2f of the tolerance, %.1f s%s' % (
                    'FAILED' if problems else 'ok    ', largest, share, time.monotonic() - start,
                    ''.join('; ' + problem for problem in problems)), flush=True)
            elif problems:
                print('%-8s %-20s %-24s FAILED  %s' % (target, kernel, in_modes[0][0], problems[0]))
    print('%-8s %d kernels, %d cases%s' % (target, kernels, runs, ', each in the modes %s; %.0f s' % (
        ', '.join(modes), time.monotonic() - began) if code_object else ''))
    return runs, failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('folders', nargs='*', metavar='DIR', help='written by rocmforge kernels --extract')
    parser.add_argument('--rocmforge', help='the command to extract with, instead of folders')
    parser.add_argument('--target', action='append', help='with --rocmforge; default: ' + ' '.join(TARGETS))
    parser.add_argument('--kernel', action='append', metavar='PATTERN', help='only those of such a name')
    parser.add_argument('--modes', default=','.join(emulate_modes.DEFAULT), metavar='MODE,…',
                        help='of %s; default: %%(default)s' % ', '.join(emulate_modes.MODES))
    parser.add_argument('--seed', type=int, default=0, help='of the garbage and of the order of waves')
    parser.add_argument('--list', action='store_true', help='the cases of each kernel; nothing is run')
    parser.add_argument('--self-test', action='store_true', help='kernels with planted faults; default: all targets')
    args = parser.parse_args()
    if not args.self_test and bool(args.folders) == bool(args.rocmforge):
        parser.error('name folders, or --rocmforge')
    modes = args.modes.split(',')
    for mode in modes:
        if mode not in emulate_modes.MODES:
            parser.error('--modes: %r is none of %s' % (mode, ', '.join(emulate_modes.MODES)))
    code_object = None if args.list else load_emulator()
    faulthandler.enable()
    with tempfile.TemporaryDirectory() as scratch:
        if args.self_test:
            results = [emulate_planted.self_test(code_object, emulate_modes.Wrong, target, scratch)
                       for target in args.target or TARGETS]
            right, wrong = (sum(column) for column in zip(*results))
            print('%d runs as they should be, %d not' % (right, wrong))
            sys.exit(1 if wrong else 0)
        folders = args.folders
        for target in (args.target or TARGETS) if args.rocmforge else ():
            folders.append(os.path.join(scratch, target))
            subprocess.run([args.rocmforge, 'kernels', '--extract', target, folders[-1]], check=True)
        results = [run_folder(code_object, folder, args.kernel, modes, args.seed) for folder in folders]
    runs, failures = (sum(column) for column in zip(*results))
    print(('%d cases fit, %d things are wrong' if args.list else '%d passed, %d failed') % (runs - failures, failures))
    sys.exit(1 if failures or not runs else 0)


if __name__ == '__main__':
    main()
