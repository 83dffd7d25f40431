"""Cases of emulate_amd.py for the quantized types and the products with weights.

Blocks are decoded here a second time, from the description of the formats, by index arithmetic that shares nothing with
the kernels or the C references.
"""
import numpy as np

# name: elements and bytes of a block, and where its f16 fields are
BLOCKS = {'q4_0': (32, 18, (0,)), 'q4_1': (32, 20, (0, 2)), 'q5_0': (32, 22, (0,)), 'q5_1': (32, 24, (0, 2)),
          'q8_0': (32, 34, (0,)), 'q2_k': (256, 84, (80, 82)), 'q3_k': (256, 110, (108,)), 'q4_k': (256, 144, (0, 2)),
          'q5_k': (256, 176, (0, 2)), 'q6_k': (256, 210, (208,)), 'iq4_nl': (32, 18, (0,)), 'iq4_xs': (256, 136, (0,))}
FLOATS = ('f32', 'f16', 'bf16')
IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])


def random_blocks(random, kind, count):
    """Any bits, but scales that make values of about 1."""
    elements, size, fields = BLOCKS[kind]
    most = 0.01 if kind in ('q8_0', 'q2_k') else 0.001 if elements == 256 or kind == 'iq4_nl' else 0.1
    blocks = random.integers(0, 256, (count, size), dtype=np.uint8)
    for at in fields:
        blocks[:, at:at + 2] = random.uniform(most / 5, most, count).astype(np.float16).view(np.uint8).reshape(count, 2)
    return blocks


def decode(kind, blocks):
    """[count, elements] as f64."""
    b = blocks.astype(np.int64)
    elements, _, fields = BLOCKS[kind]
    half = [blocks[:, at:at + 2].copy().view(np.float16).astype(np.float64) for at in fields]
    e = np.arange(elements)
    scale = half[0]
    if kind == 'q8_0':
        return scale * blocks[:, 2:].view(np.int8)
    if elements == 32:
        first = {'q4_0': 2, 'q4_1': 4, 'q5_0': 6, 'q5_1': 8, 'iq4_nl': 2}[kind]
        q = b[:, first + e % 16] >> 4 * (e // 16) & 15
        if kind.startswith('q5'):
            q = q | (b[:, first - 4 + e // 8] >> e % 8 & 1) << 4
        if kind == 'iq4_nl':
            return scale * IQ4[q]
        return scale * q + half[1] if len(fields) == 2 else scale * (q - (16 if kind == 'q5_0' else 8))
    h, p, line, k, j = e // 128, e % 128 // 32, e % 32, e // 16, e // 32
    if kind == 'q2_k':
        return scale * (b[:, k] & 15) * (b[:, 16 + 32 * h + line] >> 2 * p & 3) - half[1] * (b[:, k] >> 4)
    if kind == 'q3_k':
        q = (b[:, 32 + 32 * h + line] >> 2 * p & 3) | (b[:, line] >> (4 * h + p) & 1) << 2
        s = (b[:, 96 + k % 8] >> 4 * (k // 8) & 15) | (b[:, 104 + k % 4] >> 2 * (k // 4) & 3) << 4
        return scale * (s - 32) * (q - 4)
    if kind in ('q4_k', 'q5_k'):
        low = j < 4
        s = np.where(low, b[:, 4 + j % 4] & 63, (b[:, 12 + j % 4] & 15) | (b[:, 4 + j % 4] >> 6) << 4)
        m = np.where(low, b[:, 8 + j % 4] & 63, (b[:, 12 + j % 4] >> 4) | (b[:, 8 + j % 4] >> 6) << 4)
        q = b[:, (16 if kind == 'q4_k' else 48) + 32 * (j // 2) + line] >> 4 * (j % 2) & 15
        if kind == 'q5_k':
            q = q | (b[:, 16 + line] >> j & 1) << 4
        return scale * s * q - half[1] * m
    if kind == 'q6_k':
        q = (b[:, 64 * h + 32 * (p % 2) + line] >> 4 * (p // 2) & 15) | (b[:, 128 + 32 * h + line] >> 2 * p & 3) << 4
        return scale * blocks[:, 192 + k].view(np.int8) * (q - 32)
    s = (b[:, 4 + j // 2] >> 4 * (j % 2) & 15) | ((b[:, 2:3] | b[:, 3:4] << 8) >> 2 * j & 3) << 4
    return scale * (s - 32) * IQ4[b[:, 8 + 16 * j + line % 16] >> 4 * (line // 16) & 15]


def aligned(array):
    """The same bytes at a multiple of 16, and not at the end of the memory."""
    raw = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
    room = np.zeros(raw.size + 64, np.uint8)
    start = -room.ctypes.data % 16
    room[start:start + raw.size] = raw
    return room[start:start + raw.size]


def quantize_q8(x):
    """[rows, columns] of f32 to bytes of blocks: f32 scale, f32 sum, 32 bytes."""
    x = np.asarray(x, np.float32).reshape(-1, 32)
    largest = np.abs(x).max(axis=1, keepdims=True)
    with np.errstate(divide='ignore'):
        inverse = np.where(largest > 0, np.float32(127) / largest, np.float32(0)).astype(np.float32)
    q = np.rint(x * inverse).astype(np.int8)
    scale = (largest / np.float32(127)).astype(np.float32)
    total = (scale * q.astype(np.int32).sum(axis=1, keepdims=True).astype(np.float32)).astype(np.float32)
    return np.concatenate([scale.view(np.uint8), total.view(np.uint8), q.view(np.uint8)], axis=1), scale * q


PAIRS_NOTES = 128  # RF_PAIRS_NOTES


def dots_shared(kind, m, k):
    """Dynamic shared memory of dots.h for a block of 64 threads, at either wave size."""
    elements, size, _ = BLOCKS[kind]
    lane, most = 96 if kind == 'q6_k' else 80, 0
    for wave in (32, 64):
        slot = (wave * 64 // elements * size + 29) // 16 * 16
        most = max(most, m * -(-k // (64 * wave)) * wave * lane + 64 // wave * 2 * slot)
    return most


def pairs_shared(kind, k):
    """Likewise of pairs.h; its notes come first."""
    if kind in FLOATS:  # slices of 16 elements a lane; x is f32
        return PAIRS_NOTES + max(-(-k // (16 * wave)) * 64 * wave + 64 // wave * 2 * 2 * 32 * wave for wave in (32, 64))
    elements, size, _ = BLOCKS[kind]
    lane, most = 96 if kind == 'q6_k' else 80, 0
    for wave in (32, 64):
        most = max(most, -(-k // (64 * wave)) * wave * lane + 64 // wave * 2 * 2 * (wave * 64 // elements * size))
    return PAIRS_NOTES + most


def families(main):
    null = np.uint64(0)

    # The structs of kernels/matmul_args.h and quant_args.h.
    def matmul_args(m, n, k, x_stride=None, out_stride=None, x_q8=0):
        return main.struct_of('<5Q2I', n, k, m, k if x_stride is None else x_stride,
                              n if out_stride is None else out_stride, x_q8, 0)

    def matmul_split(depth, parts, stages):
        return main.struct_of('<Q2I', depth, parts, stages)

    def out_aligned(kind, count):
        """An output whose data starts at a multiple of 16 bytes."""
        step = 4 if kind == 'f32' else 2
        for offset in range(16 // step):
            out = main.Output(kind, count, offset)
            if out.data.ctypes.data % 16 == 0:
                return out
        raise AssertionError('memory at an odd address')

    def weights_of(random, kind, rows, columns):
        """Device bytes and values [rows, columns]."""
        if kind in FLOATS:
            bits = main.to_type(kind, random.standard_normal(rows * columns))
            return aligned(bits), main.to_f64(kind, bits).reshape(rows, columns)
        elements = BLOCKS[kind][0]
        blocks = random_blocks(random, kind, rows * columns // elements)
        return aligned(blocks), decode(kind, blocks).reshape(rows, columns)

    def cases_dequantize(name, kinds, random):
        kind, target = kinds.rsplit('_', 1)
        for count in (2, 13):
            data, values = weights_of(random, kind, count, BLOCKS[kind][0])
            out = out_aligned(target, values.size)
            yield '%d blocks' % count, (1, 1, 1), (64, 1, 1), [out.data, data, main.struct_of('<Q', values.size)], out, \
                values.astype(np.float32), True

    def cases_embedding(name, kinds, random):
        kind, target = kinds.rsplit('_', 1)
        for columns in (256, 37) if kind in FLOATS else (256, 512):
            data, values = weights_of(random, kind, 3, columns)
            index = np.array([2, -1, 0, 3], np.int32)
            out = out_aligned(target, 4 * columns)
            want = np.zeros((4, columns))
            want[0], want[2] = values[2], values[0]
            yield 'columns %d' % columns, (1, 2, 1), (64, 1, 1), \
                [out.data, data, index, main.struct_of('<3Q', 4, columns, 3)], out, want.astype(np.float32), True

    def cases_quantize(name, kind, random):
        for rows, columns, stride in ((1, 64, 64), (3, 96, 128)):
            bits = main.to_type(kind, random.standard_normal(rows * stride))
            x = main.to_f64(kind, bits).reshape(rows, stride)[:, :columns]
            out = out_aligned('f32', rows * columns // 32 * 10)
            want = quantize_q8(x)[0].reshape(-1).view(np.float32)
            yield '%dx%d' % (rows, columns), (1, 2, 1), (64, 1, 1), \
                [out.data, aligned(bits), main.struct_of('<3Q', rows, columns, stride)], out, want, True

    def product(random, kind, x_kind, m, n, k, gated, more):
        """Weights, gate, x, bias, residual as device arrays, the output and what is wanted."""
        out_kind = 'f32' if x_kind == 'q8' else x_kind
        data, values = weights_of(random, kind, n, k)
        gate, gate_values = weights_of(random, kind, n, k)
        bits = main.to_type(out_kind, random.standard_normal(m * k))
        x, x_values = aligned(bits), main.to_f64(out_kind, bits).reshape(m, k)
        if more.get('unit'):  # what the matrix units make of the operands
            values, x_values = (main.to_f64(more['unit'], main.to_type(more['unit'], v)).reshape(v.shape)
                                for v in (values.astype(np.float32), x_values.astype(np.float32)))
        if x_kind == 'q8':
            blocks, exact = quantize_q8(x_values)
            x, x_values = aligned(blocks), exact.reshape(m, k).astype(np.float64)
        bias = random.standard_normal(n).astype(np.float32)
        residual = main.to_type(out_kind, random.standard_normal(m * n))
        want, scale = x_values @ values.T, np.abs(x_values) @ np.abs(values).T
        if gated:
            up = x_values @ gate_values.T
            with np.errstate(over='ignore'):
                want = want / (1 + np.exp(-want)) * up
            scale = scale * (1 + np.abs(up)) + scale * (np.abs(x_values) @ np.abs(gate_values).T)
        else:
            want = want + bias + main.to_f64(out_kind, residual).reshape(m, n)
        # With f16 operands a unit may take what lies below 2^-14 for zero.
        floor = 2e-4 if more.get('unit') else main.TOLERANCE[out_kind]
        tolerance = max(main.TOLERANCE[out_kind], floor, 1e-6 * float(scale.max()))
        return data, gate, x, bias, residual, main.Output(out_kind, m * n), want, {'tolerance': tolerance}

    def cases_pairs(kind, random):
        x_kind = 'f32' if kind in FLOATS else 'q8'
        for n, k, gated in ((5, 4096, False), (3, 2048, True), (3, 2304 if kind in FLOATS else 2048, False)):
            data, gate, x, bias, residual, out, want, more = product(random, kind, x_kind, 1, n, k, gated, {})
            if gated:
                bias = residual = null
            else:
                gate = null
            more['shared'] = pairs_shared(kind, k)
            yield '1x%dx%d%s' % (n, k, ' gate' if gated else ''), (2, 1, 1), (64, 1, 1), \
                [out.data, null, null, data, gate, null, x, null, null, bias, residual,
                 main.struct_of('<4QfI', k, n, 0, 0, 0.0, (2 if gated else 0) + (x_kind == 'q8'))], out, want, False, \
                more

    def packed_q8_0(values):
        """Blocks of a Q8_0 cache; and whether a quotient is so near a half that it may round to its neighbour."""
        blocks = values.astype(np.float32).reshape(-1, 32)
        d = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
        x = blocks * (np.float32(1) / d)
        q = (np.sign(x) * np.floor(np.abs(x) + np.float32(0.5))).astype(np.int8)
        near = (np.abs(np.abs(x) % 1 - 0.5) < 1e-3).any()
        return np.concatenate([d.astype(np.float16).view(np.uint8), q.view(np.uint8)], axis=1).reshape(-1), near

    def cases_qkv(kind, random):
        """One output of each case is compared: queries, or a cache. The token is at row 1 of page 0."""
        for which, q_heads, heads, dim, rotated, halves, cache, q_kind in (
                ('q', 2, 1, 32, 32, 1, 'f16', 'f16'), ('k', 1, 2, 32, 16, 0, 'f16', 'f32'),
                ('v', 1, 1, 64, 32, 1, 'f32', 'f16'), ('q', 3, 1, 32, 24, 0, 'q8_0', 'f32'),
                ('k', 1, 1, 96, 64, 1, 'q8_0', 'f32'), ('v', 1, 2, 32, 32, 0, 'q8_0', 'f32')):
            k = 512 if kind in FLOATS else 2048 if kind == 'q6_k' else 256  # rows of whole 16 bytes
            positions, page_rows, pages = [5], 4, 3
            table, steps, near = np.array([[2, 0], [1, 7]], np.uint32), main.rope_steps(rotated), True
            while near:
                x = random.standard_normal((1, k)).astype(np.float32)
                y = x.astype(np.float64) if kind in FLOATS else quantize_q8(x)[1].reshape(1, k).astype(np.float64)
                parts, scale = {}, 0
                for name, count in (('k', heads), ('v', heads), ('q', q_heads)):
                    data, values = weights_of(random, kind, count * dim, k)
                    parts[name] = data, (y @ values.T).reshape(1, count, dim)
                    scale = max(scale, float((np.abs(y) @ np.abs(values).T).max()))
                want = parts[which][1]
                if which != 'v':
                    want = main.rotated_by(want, positions, rotated, halves, steps)
                row, near = packed_q8_0(want) if cache == 'q8_0' and which != 'q' else (want.reshape(-1), False)
            tolerance = max(main.TOLERANCE['f32'], 2e-6 * scale)
            caches = {name: main.Output('u8' if cache == 'q8_0' else cache, pages * heads * page_rows * dim //
                                        (32 if cache == 'q8_0' else 1) * (34 if cache == 'q8_0' else 1)) for name in 'kv'}
            q_out, raw = main.Output(q_kind, q_heads * dim), [np.zeros(len(parts[n][0]) * 4, np.float32) for n in 'kvq']
            out = q_out if which == 'q' else caches[which]
            if which != 'q':
                whole = np.full((pages, heads, page_rows, row.size // heads), 7, row.dtype)
                whole[0, :, 1] = row.reshape(heads, -1)
                row = whole
                tolerance = max(tolerance, main.TOLERANCE.get(cache, 0))
            else:
                tolerance = max(tolerance, main.TOLERANCE[q_kind])
            counters = np.zeros(2 * heads, np.uint32)
            shape = 1, heads, dim, page_rows, pages, table
            queries = q_heads * dim, q_heads * dim, q_heads, q_kind == 'f16'
            yield '%s %d/%d heads of %d, %s cache, %d turned' % (which, q_heads, heads, dim, cache, rotated), (2, 1, 1), \
                (64, 1, 1), [*raw, *(parts[n][0] for n in 'kvq'), aligned(x), null, null, caches['k'].data,
                             caches['v'].data, q_out.data, np.array(positions, np.int32), np.zeros(1, np.uint32), table,
                             np.array(steps, np.uint64), counters,
                             main.struct_of('<4QfI', k, heads * dim, heads * dim, q_heads * dim, 0.0, 8),
                             main.kv_append_args(*shape, (rotated, halves), queries, {'f32': 0, 'f16': 1, 'q8_0': 2}[cache])], \
                out, row, out.kind == 'u8', \
                {'shared': pairs_shared(kind, k), 'tolerance': tolerance, 'zeros': counters}

    def cases_matvec(name, kinds, random):
        if kinds.endswith('_pairs'):
            yield from cases_pairs(kinds[:-len('_pairs')], random)
            return
        if kinds.endswith('_qkv'):
            yield from cases_qkv(kinds[:-len('_qkv')], random)
            return
        kind, x_kind, columns = kinds.rsplit('_', 2)
        columns = int(columns)
        k = 40 if kind in FLOATS else BLOCKS[kind][0]
        shapes = [(columns, 3, 2 * k, False), (max(1, columns - 1), 2, 37 if kind in FLOATS else k, True)]
        for m, n, k, gated in shapes:
            data, gate, x, bias, residual, out, want, more = product(random, kind, x_kind, m, n, k, gated, {})
            if not gated:
                gate = null
            else:
                bias = residual = null
            args = [out.data, data, gate, x, bias, residual, matmul_args(m, n, k, x_q8=int(x_kind == 'q8'))]
            if x_kind == 'q8':
                more['shared'] = dots_shared(kind, m, k)
            yield '%dx%dx%d%s' % (m, n, k, ' gate' if gated else ''), (2, 1, 1), (64, 1, 1), args, out, want, False, more
        if x_kind == 'q8':  # f32 that the kernel rounds itself; more than a slice of a wave
            m, n, k = columns, 3, 4096 + BLOCKS[kind][0]
            data, _, _, bias, residual, out, want, more = product(random, kind, 'f32', m, n, k, False, {})
            values = decode(kind, data.reshape(-1, BLOCKS[kind][1])).reshape(n, k)
            x = random.standard_normal((m, k)).astype(np.float32)
            want = quantize_q8(x)[1].reshape(m, k).astype(np.float64) @ values.T + bias + \
                main.to_f64('f32', residual).reshape(m, n)
            more['shared'] = dots_shared(kind, m, k)
            yield '%dx%dx%d f32' % (m, n, k), (1, 1, 1), (64, 1, 1), \
                [out.data, data, null, aligned(x), bias, residual, matmul_args(m, n, k)], out, want, False, more

    def cases_matmul(name, kinds, random, unit=None):
        kind, x_kind = kinds.rsplit('_', 1)
        k = 40 if kind in FLOATS else BLOCKS[kind][0]
        for m, n, k in ((5, 17, k), (3, 2, k if unit or kind not in FLOATS else 7)):
            data, _, x, bias, residual, out, want, more = product(random, kind, x_kind, m, n, k, False, {'unit': unit})
            yield '%dx%dx%d' % (m, n, k), (1, 1, 1), (256, 1, 1), \
                [out.data, data, x, bias, residual, matmul_args(m, n, k)], out, want, False, more

    def cases_matmul_units(name, kinds, random):
        # Operands of the units' type; x may be narrower than the output. The last case splits k in two.
        unit, out_kind = kinds.rsplit('_', 1)
        for m, n, k, parts in ((5, 17, 40, 1), (3, 2, 72, 1), (2, 3, 72, 2)):
            data, _, x, bias, residual, out, want, more = product(random, unit, unit, m, n, k, False, {'unit': unit})
            residual_values = main.to_f64(unit, residual).reshape(m, n)
            if parts == 1:
                residual = main.to_type(out_kind, residual_values.reshape(-1))
                out = main.Output(out_kind, m * n)
                if out_kind != 'f32':
                    more['tolerance'] = max(more['tolerance'], main.TOLERANCE[out_kind])
                arguments = [out.data, data, x, bias, residual, null]
            else:
                whole = want - bias - residual_values
                x_values = main.to_f64(unit, np.asarray(x).view(np.uint16)[:m * k]).reshape(m, k)
                w_values = main.to_f64(unit, np.asarray(data).view(np.uint16)[:n * k]).reshape(n, k)
                first = x_values[:, :64] @ w_values[:, :64].T
                want = np.concatenate([first, whole - first])
                out = main.Output('f32', 2 * m * n)
                arguments = [null, data, x, null, null, out.data]
            yield '%dx%dx%d%s' % (m, n, k, ' split' if parts > 1 else ''), (1, 1, parts), (256, 1, 1), \
                arguments + [matmul_args(m, n, k), matmul_split(64 if parts > 1 else 128, parts, 2)], out, want, \
                False, more

    def cases_matmul_gate(name, kinds, random):
        # More columns than a wave has, of both matrices; then more than a block has.
        unit, out_kind = kinds.rsplit('_', 1)
        for m, n, k in ((5, 70, 40), (3, 2, 72), (2, 131, 24)):
            weights, w_values = weights_of(random, unit, n, k)
            gate, g_values = weights_of(random, unit, n, k)
            bits = main.to_type(unit, random.standard_normal(m * k) / 4)
            x = main.to_f64(unit, bits).reshape(m, k)
            first, second = x @ w_values.T, x @ g_values.T
            out = main.Output(out_kind, m * n)
            yield '%dx%dx%d' % (m, n, k), (-(-n // 128), 1, 1), (256, 1, 1), \
                [out.data, weights, gate, aligned(bits), matmul_args(m, n, k), matmul_split(128, 1, 2)], out, \
                first / (1 + np.exp(-first)) * second, False, {'tolerance': max(2e-4, main.TOLERANCE[out_kind])}

    def cases_matmul_round(name, kind, random):
        for m, k, stride in ((1, 8, 8), (3, 40, 48)):
            x = random.standard_normal(m * stride).astype(np.float32)
            out = out_aligned(kind, m * k)
            want = main.to_f64(kind, main.to_type(kind, x.reshape(m, stride)[:, :k].reshape(-1)))
            yield '%dx%d' % (m, k), (1, 2, 1), (64, 1, 1), \
                [out.data, aligned(x), matmul_args(m, 0, k, stride)], out, want.astype(np.float32), True

    def cases_matmul_join(name, kind, random):
        for m, n, parts in ((1, 3, 1), (3, 70, 4)):
            partial = random.standard_normal((parts, m, n)).astype(np.float32)
            bias = random.standard_normal(n).astype(np.float32)
            residual = main.to_type(kind, random.standard_normal(m * n))
            want = partial.astype(np.float64).sum(0) + bias + main.to_f64(kind, residual).reshape(m, n)
            out = main.Output(kind, m * n)
            yield '%dx%d of %d' % (m, n, parts), (1, 2, 1), (64, 1, 1), \
                [out.data, partial.reshape(-1), bias, residual, matmul_args(m, n, 0), matmul_split(0, parts, 0)], out, want, False

    return (('dequantize_', cases_dequantize), ('embedding_', cases_embedding), ('quantize_q8_', cases_quantize),
            ('matvec_', cases_matvec), ('matmul_wide_gate_', cases_matmul_gate), ('matmul_tile_', cases_matmul_units),
            ('matmul_wide_', cases_matmul_units),
            ('matmul_round_', cases_matmul_round), ('matmul_join_', cases_matmul_join), ('matmul_', cases_matmul))
