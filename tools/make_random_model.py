#!/usr/bin/env python3
"""Writes a GGUF model of a given shape with random weights: for benchmarks and tests of size, not of sense.

    tools/make_random_model.py --arch llama --dim 4096 --layers 32 --heads 32 --kv-heads 8 --ff 14336 \\
        --vocab 128256 --type q4_0 --out /tmp/8b.gguf

Weights have a deviation near 1 / sqrt(columns), so that activations and logits stay finite and of ordinary size. Each
type's blocks are drawn once, a prime number of them, and repeated from another block on for each tensor: rows differ,
and a file is written as fast as the disk takes it. The same arguments give the same file.
"""
import argparse
import os
import random
import struct
import sys

from gguf_writer import (TYPES, bytes_of, elements_of, f32, f32s, i32s, new_file, padding, string, strings, u32, write_all,
                         write_head)

PATTERN_BYTES = 16 << 20


def main():
    args = arguments()
    tensors = list(tensors_of(args))
    for name, shape, kind in tensors:
        if shape[-1] % TYPES[kind][1]:
            sys.exit(f'{name}: rows of {shape[-1]} are no multiple of the {TYPES[kind][1]} elements in a block of '
                     f'{kind}; choose another --type or size')
    try:
        with new_file(args.out) as file:
            write_model(file, args, tensors)
    except OSError as error:
        sys.exit(f'{args.out}: {error.strerror}')
    print(f'{args.out}: {os.path.getsize(args.out)} bytes, '
          f'{sum(elements_of(shape) for _, shape, _ in tensors)} parameters')


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--arch', choices=('llama', 'qwen2', 'qwen3'), default='llama')
    parser.add_argument('--dim', type=positive, default=2048)
    parser.add_argument('--layers', type=positive, default=16)
    parser.add_argument('--heads', type=positive, default=32)
    parser.add_argument('--kv-heads', type=positive, default=8)
    parser.add_argument('--head-width', type=positive, help='default: dim / heads')
    parser.add_argument('--ff', type=positive, default=8192)
    parser.add_argument('--vocab', type=positive, default=32000)
    parser.add_argument('--ctx', type=positive, default=8192)
    parser.add_argument('--rope-base', type=float, default=10000.0)
    parser.add_argument('--type', choices=sorted(TYPES), default='q4_0')
    parser.add_argument('--output-type', choices=sorted(TYPES), help='of the output matrix; default: --type')
    parser.add_argument('--tied', action='store_true', help='no output matrix: the embedding serves')
    parser.add_argument('--vocab-tokens', choices=('spm', 'none'), default='spm',
                        help='a vocabulary of bytes and fillers, or none')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--out', required=True)
    args = parser.parse_args()
    if args.head_width is None:
        if args.dim % args.heads:
            parser.error(f'--heads {args.heads} does not divide --dim {args.dim}: give --head-width')
        args.head_width = args.dim // args.heads
    if args.heads % args.kv_heads:
        parser.error(f'--kv-heads {args.kv_heads} does not divide --heads {args.heads}')
    if args.vocab_tokens == 'spm' and args.vocab < 259:
        parser.error('--vocab below 259 has no room for bytes: use --vocab-tokens none')
    return args


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f'{value} is not above 0')
    return value


# ---- what is in the file ----

def tensors_of(args):
    """(name, row-major shape, type)"""
    queries, keys = args.heads * args.head_width, args.kv_heads * args.head_width
    yield 'token_embd.weight', (args.vocab, args.dim), args.type
    for layer in range(args.layers):
        prefix = f'blk.{layer}.'
        yield prefix + 'attn_norm.weight', (args.dim,), 'f32'
        yield prefix + 'attn_q.weight', (queries, args.dim), args.type
        yield prefix + 'attn_k.weight', (keys, args.dim), args.type
        yield prefix + 'attn_v.weight', (keys, args.dim), args.type
        yield prefix + 'attn_output.weight', (args.dim, queries), args.type
        if args.arch == 'qwen2':
            yield prefix + 'attn_q.bias', (queries,), 'f32'
            yield prefix + 'attn_k.bias', (keys,), 'f32'
            yield prefix + 'attn_v.bias', (keys,), 'f32'
        if args.arch == 'qwen3':
            yield prefix + 'attn_q_norm.weight', (args.head_width,), 'f32'
            yield prefix + 'attn_k_norm.weight', (args.head_width,), 'f32'
        yield prefix + 'ffn_norm.weight', (args.dim,), 'f32'
        yield prefix + 'ffn_gate.weight', (args.ff, args.dim), args.type
        yield prefix + 'ffn_up.weight', (args.ff, args.dim), args.type
        yield prefix + 'ffn_down.weight', (args.dim, args.ff), args.type
    yield 'output_norm.weight', (args.dim,), 'f32'
    if not args.tied:
        yield 'output.weight', (args.vocab, args.dim), args.output_type or args.type


def keys_of(args):
    """(key, encoded value with its type)"""
    arch = args.arch
    yield 'general.architecture', string(arch)
    yield 'general.name', string(f'random {arch} {args.dim}x{args.layers} {args.type}')
    yield f'{arch}.context_length', u32(args.ctx)
    yield f'{arch}.embedding_length', u32(args.dim)
    yield f'{arch}.block_count', u32(args.layers)
    yield f'{arch}.feed_forward_length', u32(args.ff)
    yield f'{arch}.attention.head_count', u32(args.heads)
    yield f'{arch}.attention.head_count_kv', u32(args.kv_heads)
    yield f'{arch}.attention.key_length', u32(args.head_width)
    yield f'{arch}.attention.value_length', u32(args.head_width)
    yield f'{arch}.attention.layer_norm_rms_epsilon', f32(1e-5)
    yield f'{arch}.rope.dimension_count', u32(args.head_width)
    yield f'{arch}.rope.freq_base', f32(args.rope_base)
    yield f'{arch}.vocab_size', u32(args.vocab)
    if args.vocab_tokens == 'none':
        yield 'tokenizer.ggml.model', string('no_vocab')
        return
    tokens = ['<unk>', '<s>', '</s>'] + [f'<0x{byte:02X}>' for byte in range(256)]
    kinds = [2, 3, 3] + [6] * 256  # unknown, control, byte
    fillers = args.vocab - len(tokens)
    tokens += [f'\u2581w{number}' for number in range(fillers)]
    kinds += [1] * fillers
    yield 'tokenizer.ggml.model', string('llama')
    yield 'tokenizer.ggml.tokens', strings(tokens)
    yield 'tokenizer.ggml.scores', f32s([-number for number in range(args.vocab)])
    yield 'tokenizer.ggml.token_type', i32s(kinds)
    yield 'tokenizer.ggml.bos_token_id', u32(1)
    yield 'tokenizer.ggml.eos_token_id', u32(2)
    yield 'tokenizer.ggml.unknown_token_id', u32(0)


# ---- random blocks ----

def half(value):
    """Both bytes of a positive f16; the low one None where it may be anything, which varies the value by a quarter."""
    low, high = struct.pack('<e', value)
    return (low if high == 0 else None), high


def put_half(data, at, size, value):
    low, high = half(value)
    count = len(data) // size
    data[at + 1::size] = bytes([high]) * count
    if low is not None:
        data[at::size] = bytes([low]) * count


def put_sign_and_exponent(data, at, size, value, bits):
    """The highest byte of a float: random sign, the exponent of value; 'bits' of the exponent are in the byte."""
    packed = struct.pack('<f', value)[3] if bits == 7 else struct.pack('<e', value)[1] & 0x7c
    keep = 0x80 if bits == 7 else 0x83  # the sign, and of an f16 two bits of the mantissa
    table = bytes((byte & keep) | (packed & 0x7f) for byte in range(256))
    data[at::size] = data[at::size].translate(table)


def random_blocks(kind, columns, seed):
    size = TYPES[kind][2]
    deviation = columns ** -0.5
    count = prime_below(PATTERN_BYTES // size)
    data = bytearray(random.Random(f'{seed} {kind} {columns}').randbytes(count * size))
    if kind == 'f32':
        put_sign_and_exponent(data, 3, 4, deviation, 7)
    elif kind == 'bf16':
        put_sign_and_exponent(data, 1, 2, deviation, 7)
    elif kind == 'f16':
        put_sign_and_exponent(data, 1, 2, deviation, 5)
    elif kind == 'q4_0':  # scale * (0 to 15 - 8)
        put_half(data, 0, size, deviation / 4.6)
    elif kind == 'q8_0':  # scale * (-128 to 127)
        put_half(data, 0, size, deviation / 74)
    elif kind == 'q4_k':  # scale * (0 to 63) * (0 to 15) - minimum * (0 to 63)
        put_half(data, 0, size, deviation / 261)
        put_half(data, 2, size, deviation / 261 * 7.6)
    elif kind == 'q6_k':  # scale * (-128 to 127) * (0 to 63 - 32)
        put_half(data, size - 2, size, deviation / 1367)
    return bytes(data)


def prime_below(number):
    while any(number % divisor == 0 for divisor in range(2, int(number ** 0.5) + 1)):
        number -= 1
    return number


def vector(name, count, seed):
    """Norms are near 1, biases near 0."""
    draw = random.Random(f'{seed} {name}')
    middle = 1.0 if 'norm' in name else 0.0
    return struct.pack(f'<{count}f', *(middle + draw.uniform(-0.1, 0.1) for _ in range(count)))


# ---- writing ----

def write_model(file, args, tensors):
    write_head(file, keys_of(args), tensors)
    patterns = {}
    for number, (name, shape, kind) in enumerate(tensors):
        size = bytes_of(shape, kind)
        if len(shape) == 1:
            write_all(file, vector(name, shape[0], args.seed) + bytes(padding(size)))
            continue
        key = kind, shape[-1]
        if key not in patterns:
            patterns[key] = random_blocks(kind, shape[-1], args.seed)
        write_pattern(file, patterns[key], TYPES[kind][2], number * 7919 + args.seed, size)
        write_all(file, bytes(padding(size)))


def write_pattern(file, pattern, block, start, size):
    """size bytes of the pattern, which is whole blocks, from block 'start' on, round and round."""
    view = memoryview(pattern)
    at = start * block % len(pattern)
    while size:
        count = min(size, len(pattern) - at)
        write_all(file, view[at:at + count])
        size -= count
        at = 0


if __name__ == '__main__':
    main()
