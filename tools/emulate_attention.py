"""The attention kernels' cases for emulate_amd.py, which imports this and says what a case is."""
import numpy as np

# Tiles are of 16, 32 or 64 keys. One key less is where a mistake by one in "the whole tile is seen" shows, and nowhere else.
TILE_LESS_1 = 31, 63
LOG2_E = 1.4426950408889634
TOLERANCE = {'f32': 2e-5, 'f16': 2e-3, 'bf16': 1.5e-2}  # of attention: weights are rounded to the type, too


def dense(heads, rows, dim):
    """The members of a struct rf_head_strides."""
    return heads * rows * dim, rows * dim, dim


def struct_of(*members):
    """A struct of kernels/attention_args.h by value: members in their order, as uint64_t where they have no type of
    their own; a tuple of strides is three. The structs have no padding."""
    fields = []
    for member in members:
        for value in member if isinstance(member, tuple) else (member,):
            fields.append(value if isinstance(value, np.generic) else np.uint64(value))
    return np.array([tuple(fields)], dtype=[('f%d' % i, field.dtype) for i, field in enumerate(fields)])[0]


def softmax(scores):
    top = scores.max(axis=-1, keepdims=True) if scores.shape[-1] else np.zeros(scores.shape[:-1] + (1,))
    e = np.exp(scores - np.where(np.isinf(top), 0, top))
    total = e.sum(axis=-1, keepdims=True)
    return np.where(total == 0, 0, e / np.where(total == 0, 1, total))


def families(tools):
    """Prefixes and generators, as emulate_amd's FAMILIES; tools is that module."""
    to_type, to_f64, misaligned, Output = tools.to_type, tools.to_f64, tools.misaligned, tools.Output
    u32, f32, i64 = np.uint32, np.float32, np.int64
    number = {'f32': u32(0), 'f16': u32(1), 'bf16': u32(2)}  # enum rf_type

    def tensor(random, kind, *shape, times=1.0, plus=0.0):
        """Bits at an aligned address, and the numbers they stand for."""
        numbers = random.standard_normal(shape).astype(np.float32) * f32(times) + f32(plus)
        bits = misaligned(to_type(kind, numbers.reshape(-1)), 0)
        return bits, to_f64(kind, bits).reshape(shape)

    def packed(random, *shape, times=1.0):
        """Blocks of Q8_0: any elements, and their scales. times: the same for all elements of a row."""
        count = int(np.prod(shape)) // 32
        scale = (0.002 + 0.02 * random.random(count)) * np.broadcast_to(times, shape).reshape(-1)[::32]
        scale = scale.astype(np.float16)
        quants = random.integers(-127, 128, (count, 32)).astype(np.int8)
        blocks = np.concatenate([scale.view(np.uint8).reshape(count, 2), quants.view(np.uint8)], axis=1)
        return misaligned(blocks.reshape(-1), 0), (scale[:, None].astype(np.float64) * quants).reshape(shape)

    def output(kind, count):
        """An output whose first element is at a multiple of 16 bytes."""
        element = 4 if kind == 'f32' else 2
        for offset in range(16):
            out = Output(kind, count, offset)
            if out.data.ctypes.data % 16 == 0:
                return out
        raise AssertionError('no aligned place for elements of %d bytes' % element)

    def attention(q, k, v, sees, scale, mask=None):
        """q [heads, rows, dim], k and v [kv heads, keys, dim], sees: keys a row sees."""
        group = q.shape[0] // k.shape[0]
        k, v = np.repeat(k, group, axis=0), np.repeat(v, group, axis=0)
        scores = np.einsum('hid,hjd->hij', q, k) * scale
        if mask is not None:
            scores = scores + mask
        hidden = np.arange(k.shape[1])[None, :] >= np.asarray(sees)[:, None]
        scores = np.where(hidden[None], -np.inf, scores)
        return np.einsum('hij,hjd->hid', softmax(scores), v)

    def flash_case(random, kind, heads_q, heads_kv, rows, keys, dim, causal, masked, queries, block, shared, plus=0.0,
                   times=1.0):
        """plus: makes scores negative, so that a key that is not there and scores 0 would count most; times: of values."""
        q, wide_q = tensor(random, kind, heads_q, rows, dim, plus=plus)
        k, wide_k = tensor(random, kind, heads_kv, keys, dim, plus=-plus)
        v, wide_v = tensor(random, kind, heads_kv, keys, dim, times=times)
        mask = np.where(random.random((rows, keys)) < 0.3, -np.inf, random.standard_normal((rows, keys))).astype(f32)
        offset = keys - rows if causal else keys
        scale = f32(1 / np.sqrt(dim))
        sees = [min(keys, max(0, i + offset + 1)) for i in range(rows)]
        want = attention(wide_q, wide_k, wide_v, sees, np.float64(scale), mask.astype(np.float64) if masked else None)
        out = output(kind, heads_q * rows * dim)
        args = [out.data, q, k, v, misaligned(mask, 0) if masked else np.uint64(0),
                struct_of(dense(heads_q, rows, dim), dense(heads_q, rows, dim), dense(heads_kv, keys, dim),
                          dense(heads_kv, keys, dim), (0, 0, keys), 1, heads_q, heads_kv, rows, keys, dim, i64(offset), scale,
                          u32(0))]
        blocks = -(-rows // queries) * heads_q
        label = '%d/%d %dx%d d%d%s%s' % (heads_q, heads_kv, rows, keys, dim, ' causal' * causal, ' mask' * masked)
        return (label, (blocks, 1, 1), (block, 1, 1), args, out, want, False,
                {'shared': shared, 'tolerance': TOLERANCE[kind], 'waves': 4})

    def flash_less_1(random, kind, dim, queries, block, shared):
        """Every query sees one key less than a tile has; and the first one does."""
        for keys in TILE_LESS_1:
            yield flash_case(random, kind, 1, 1, 5, keys, dim, False, False, queries, block, shared, plus=1.0)
            last = np.where(np.arange(keys + 1) == keys, 8.0, 1.0)[:, None]
            yield flash_case(random, kind, 1, 1, 2, keys + 1, dim, True, False, queries, block, shared, times=last)

    def flash(name, rest, random):
        yield flash_case(random, rest, 1, 1, 32, 32, 32, False, False, 32, 256, 0)
        yield flash_case(random, rest, 2, 1, 9, 37, 72, True, True, 32, 256, 0)
        yield from flash_less_1(random, rest, 32, 32, 256, 0)

    def shape_of(rest):
        """What the launcher knows of a matrix kernel on AMD, from its name."""
        parts = rest.split('_')
        dim, wide = int(parts[1][1:]), parts[-1] == 'wide'
        queries, keys = (128, 32) if wide else (64, 16 if dim == 256 else 64)
        return parts[0], dim, queries, keys

    def flash_matrix(name, rest, random):
        kind, dim, queries, keys = shape_of(rest)
        shared = max((queries + 2 * keys) * (dim + 8) * 2, 21632)
        yield flash_case(random, kind, 1, 1, 16, keys, dim, False, False, queries, 0, shared)
        yield flash_case(random, kind, 2, 1, 19, keys + 5, dim - 8, True, not rest.endswith('wide'), queries, 0, shared)
        yield from flash_less_1(random, kind, dim, queries, 0, shared)

    def qkt(name, kind, random):
        for heads_q, heads_kv, rows, keys, dim in ((1, 1, 32, 32, 32), (2, 1, 5, 67, 19), (1, 1, 3, 31, 16), (1, 1, 3, 63, 16)):
            (q, wide_q), (k, wide_k) = tensor(random, kind, heads_q, rows, dim), tensor(random, kind, heads_kv, keys, dim)
            out = Output('f32', heads_q * rows * keys)
            want = 0.25 * np.einsum('hid,hjd->hij', wide_q, np.repeat(wide_k, heads_q // heads_kv, axis=0))
            args = [out.data, q, k, struct_of(dense(heads_q, rows, keys), dense(heads_q, rows, dim),
                                              dense(heads_kv, keys, dim), 1, heads_q, heads_kv, rows, keys, dim, f32(0.25),
                                              u32(0))]
            yield ('%d/%d %dx%d d%d' % (heads_q, heads_kv, rows, keys, dim),
                   (-(-rows // 64) * -(-keys // 64) * heads_q, 1, 1), (256, 1, 1), args, out, want, False,
                   {'tolerance': 1e-5})

    def weighted(name, kind, random):
        for heads_q, heads_kv, rows, keys, dim in ((1, 1, 32, 32, 32), (2, 1, 67, 13, 5), (1, 1, 3, 31, 16), (1, 1, 3, 63, 16)):
            (w, wide_w), (v, wide_v) = tensor(random, 'f32', heads_q, rows, keys), tensor(random, kind, heads_kv, keys, dim)
            out = Output(kind, heads_q * rows * dim)
            want = np.einsum('hij,hjd->hid', wide_w, np.repeat(wide_v, heads_q // heads_kv, axis=0))
            args = [out.data, w, v, struct_of(dense(heads_q, rows, dim), dense(heads_q, rows, keys),
                                              dense(heads_kv, keys, dim), 1, heads_q, heads_kv, rows, keys, dim, f32(0),
                                              u32(0))]
            yield ('%d/%d %dx%d d%d' % (heads_q, heads_kv, rows, keys, dim),
                   (-(-rows // 64) * -(-dim // 64) * heads_q, 1, 1), (256, 1, 1), args, out, want, False,
                   {'tolerance': max(1e-5, tools.TOLERANCE[kind])})

    def causal_mask(name, kind, random):
        for batch, heads, rows, columns, offset in ((1, 2, 8, 64, 0), (2, 1, 3, 1101, 400), (1, 1, 5, 3, -2), (1, 1, 4, 31, 27),
                                                    (1, 1, 4, 63, 59)):
            out = Output(kind, batch * heads * rows * columns)
            hidden = np.arange(columns)[None, :] > np.arange(rows)[:, None] + offset
            want = np.broadcast_to(np.where(hidden, -np.inf, 7.0), (batch * heads, rows, columns))
            args = [out.data, struct_of(dense(heads, rows, columns), batch, heads, rows, columns, i64(offset))]
            yield ('%dx%d %dx%d%+d' % (batch, heads, rows, columns, offset), (2, 1, 1), (128, 1, 1), args, out, want, True)

    def replicate(name, bits, random):
        kind = 'f32' if bits == 'b32' else 'f16'
        for batch, heads_q, heads_kv, rows, dim in ((1, 4, 1, 3, 64), (2, 6, 2, 5, 13)):
            value, wide = tensor(random, kind, batch, heads_kv, rows, dim)
            out = output(kind, batch * heads_q * rows * dim)
            want = np.repeat(wide, heads_q // heads_kv, axis=1)
            args = [out.data, value, struct_of(dense(heads_q, rows, dim), dense(heads_kv, rows, dim), batch, heads_q,
                                               heads_kv, rows, dim)]
            yield ('%dx%d/%d %dx%d' % (batch, heads_q, heads_kv, rows, dim), (2, 1, 1), (64, 1, 1), args, out, want, True)

    def paged_setup(random, kind, batch, heads_kv, page_rows, width, dim, holes, lengths=None):
        """Pages in another order; where no lengths are given the last sequence is full and the others are shorter, else the
        value behind the first TILE_LESS_1 is a large one; keys as [sequence] of [heads, keys, dim].
        args_of(heads_q, rows, scale, q_kind, chunk, splits) makes the two structs."""
        count = batch * width + 1
        table = np.arange(count - 1, count - 1 - batch * width, -1).astype(u32).reshape(batch, width)
        times = np.ones((count, 1, page_rows, 1))
        for b, key in enumerate(TILE_LESS_1 if lengths else ()):
            times[table[b, key // page_rows], 0, key % page_rows] = 8.0
        make = packed if kind == 'q8_0' else lambda r, *shape, times=1.0: tensor(r, kind, *shape, times=times)
        k, wide_k = make(random, count, heads_kv, page_rows, dim)
        v, wide_v = make(random, count, heads_kv, page_rows, dim, times=times)
        if holes:
            table[:, 0] = 0xffffffff
        lengths = np.array(lengths or [page_rows * width - 3 * (batch - 1 - b) for b in range(batch)], u32)
        keys, values = [], []
        for b in range(batch):
            rows = [(table[b, j // page_rows], j % page_rows) for j in range(lengths[b])]
            keys.append(np.stack([wide_k[p, :, r] if p < count else np.zeros((heads_kv, dim)) for p, r in rows], axis=1))
            values.append(np.stack([wide_v[p, :, r] if p < count else np.zeros((heads_kv, dim)) for p, r in rows], axis=1))
        absent = np.where([np.arange(page_rows * width) // page_rows == 0], -np.inf if holes else 0.0, 0.0)[0]

        def args_of(heads_q, rows, scale, q_kind, chunk=0, splits=0):
            pages = dense(heads_kv, page_rows, dim)
            return [struct_of(dense(heads_q, rows, dim), dense(heads_q, rows, dim), pages, pages, batch, heads_q, heads_kv,
                              rows, dim, page_rows, count, width, page_rows * width, scale, u32(0)),
                    struct_of(u32(page_rows.bit_length() - 1), number[q_kind], u32(chunk), u32(splits))]

        return k, v, misaligned(table, 0), misaligned(lengths, 0), keys, values, absent, args_of

    def prefill_case(random, kind, heads_q, heads_kv, rows, dim, page_rows, width, holes, queries, block, shared,
                     q_kind=None, lengths=None):
        batch, q_kind = 2, q_kind or ('f16' if kind == 'q8_0' else kind)
        k, v, table, lengths, keys, values, absent, args_of = paged_setup(random, kind, batch, heads_kv, page_rows, width,
                                                                          dim, holes, lengths)
        q, wide_q = tensor(random, q_kind, batch, heads_q, rows, dim)
        scale = f32(1 / np.sqrt(dim))
        want = []
        for b in range(batch):
            n = int(lengths[b])
            sees = [min(n, max(0, n - rows + i + 1)) for i in range(rows)]
            mask = np.broadcast_to(absent[:n], (rows, n))
            want.append(attention(wide_q[b], keys[b], values[b], sees, np.float64(scale), mask))
        out = output(q_kind, batch * heads_q * rows * dim)
        args = [out.data, q, k, v, table, lengths] + args_of(heads_q, rows, scale, q_kind)
        label = q_kind + ' %d/%d q%d d%d pages %dx%d%s' % (heads_q, heads_kv, rows, dim, width, page_rows, ' holes' * holes)
        label += ' keys %d, %d' % tuple(lengths)
        return (label, (-(-rows // queries) * heads_q * batch, 1, 1), (block, 1, 1), args, out, np.stack(want), False,
                {'shared': shared, 'tolerance': max(TOLERANCE[q_kind], TOLERANCE.get(kind, 0)), 'waves': 4})

    def prefill_less_1(random, kind, dim, queries, block, shared):
        """As flash_less_1: the last query sees one key less than a tile has, or the first of two does."""
        for rows in (1, 2):
            lengths = [keys + rows - 1 for keys in TILE_LESS_1]
            yield prefill_case(random, kind, 1, 1, rows, dim, 16, 4, False, queries, block, shared, lengths=lengths)

    def prefill(name, kind, random):
        yield prefill_case(random, kind, 1, 1, 4, 32, 8, 4, False, 32, 256, 0)
        yield prefill_case(random, kind, 2, 1, 7, 96 if kind == 'q8_0' else 72, 4, 10, True, 32, 256, 0, 'f32')
        yield from prefill_less_1(random, kind, 32, 32, 256, 0)

    def paged_matrix(name, rest, random):
        kind, dim, queries, keys = shape_of(rest)
        shared = max((queries + 2 * keys) * (dim + 8) * 2 + 8 * keys, 21632)
        yield prefill_case(random, kind, 1, 1, 16, dim, 16, 2, False, queries, 0, shared)
        yield prefill_case(random, kind, 2, 1, 19, dim - 8, 4, keys // 4 + 2, True, queries, 0, shared, 'f32')
        yield from prefill_less_1(random, kind, dim, queries, 0, shared)

    def decode(name, rest, random):
        """Plain: KIND_gN. On matrix units: matrix_KIND_dD, 4 waves and shared memory as the launcher gives it on AMD."""
        matrix, rest = rest.startswith('matrix_'), rest.replace('matrix_', '')
        kind = 'q8_0' if rest.startswith('q8_0') else rest.split('_')[0]
        together = 8 if matrix else int(rest.split('_g')[1])
        most = int(rest.split('_d')[1]) if matrix else 0
        block, more = ((0, 1, 1), {'waves': 4}) if matrix else ((128, 1, 1), {})
        if matrix:
            more['shared'] = 544 + 288 * (most + 8) + (136 * most if kind == 'q8_0' else 0)
        odd = most if matrix and kind == 'q8_0' else most - 8 if matrix else 96 if kind == 'q8_0' else 72
        own = 'f16' if kind == 'q8_0' else kind
        # The kernels on matrix units copy a tile of 64 keys otherwise where it lies in one page.
        # Splits: one has no keys, or there is one; then results are joined in one part, in several, or not at all.
        large, chunk = (most, 64) if matrix else (160 if kind == 'q8_0' else 136, 16)
        for dim, page_rows, width, holes, chunk, group, q_kind, given in (
                (most or 64, 16, 2, False, 64, together, own, None),
                (odd, 16, 9, True, 128 if matrix else 80, max(1, together - 1), 'f32', None),
                (most or 64, 16, 4, False, 64, together, own, TILE_LESS_1),
                (most or 64, 64, 1, False, 64, together, own, TILE_LESS_1), (most or 64, 64, 2, False, 128, 1, own, None),
                (large, 64, 3, False, chunk, 1, own, (63, 2 * 64 + 16))):
            batch, heads_kv, splits = 2, 1, -(-page_rows * width // chunk)
            heads_q = heads_kv * group
            k, v, table, lengths, keys, values, absent, args_of = paged_setup(random, kind, batch, heads_kv, page_rows,
                                                                              width, dim, holes, given)
            q, wide_q = tensor(random, q_kind, batch, heads_q, 1, dim)
            scale = f32(1 / np.sqrt(dim))
            want = [attention(wide_q[b], keys[b], values[b], [lengths[b]], np.float64(scale), absent[None, :lengths[b]])
                    for b in range(batch)]
            out, tiles = output(q_kind, batch * heads_q * dim), -(-group // together)
            partial, counters = np.uint64(0), np.uint64(0)
            if splits > 1:
                partial = misaligned(np.full(batch * heads_q * splits * (dim + 2), np.nan, f32), 0)
                counters = misaligned(np.zeros(batch * heads_kv * tiles, u32), 0)
            args = [out.data, partial, counters, q, k, v, table, lengths] + args_of(heads_q, 1, scale, q_kind, chunk, splits)
            yield ('%d heads d%d pages %dx%d%s splits %d keys %d, %d' % (heads_q, dim, width, page_rows, ' holes' * holes,
                                                                         splits, *lengths),
                   (tiles * splits * heads_kv * batch, 1, 1), block, args, out, np.stack(want), False,
                   dict(more, tolerance=max(TOLERANCE[q_kind], 1e-4 if kind in ('f32', 'f16') else 1e-3), zeros=counters))

    return (('flash_attention_matrix_', flash_matrix), ('flash_attention_', flash), ('qkt_matmul_', qkt),
            ('weighted_matmul_', weighted), ('causal_mask_', causal_mask), ('kv_replicate_', replicate),
            ('paged_attention_prefill_', prefill), ('paged_attention_matrix_', paged_matrix),
            ('paged_attention_decode_', decode))
