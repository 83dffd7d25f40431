"""Writes GGUF files, version 3: values of metadata, the table of tensors, blocks of Q8_0.

Shared by make_random_model.py and stories/train_model.py. Python's standard library only. Shapes are row-major here,
as matrices are thought of; the file has them reversed. A file appears under its name when it is complete, or not at
all.
"""
import contextlib
import os
import struct

# GGUF's number, elements and bytes of a block.
TYPES = {
    'f32': (0, 1, 4),
    'f16': (1, 1, 2),
    'bf16': (30, 1, 2),
    'q4_0': (2, 32, 18),
    'q8_0': (8, 32, 34),
    'q4_k': (12, 256, 144),
    'q6_k': (14, 256, 210),
}
ALIGNMENT = 32


@contextlib.contextmanager
def new_file(path):
    """An unbuffered file that takes its name when the block ends without a failure."""
    partial = path + '.partial'
    try:
        with open(partial, 'wb', buffering=0) as file:
            yield file
        os.replace(partial, path)
    except BaseException:
        if os.path.exists(partial):
            os.unlink(partial)
        raise


def write_head(file, keys, tensors):
    """keys: (name, encoded value); tensors: (name, shape, type), whose data must follow in this order, each padded."""
    keys, tensors = list(keys), list(tensors)
    head = [b'GGUF', struct.pack('<IQQ', 3, len(tensors), len(keys))]
    head += [text(key) + value for key, value in keys]
    offset = 0
    for name, shape, kind in tensors:
        head.append(text(name) + struct.pack('<I', len(shape)))
        head.append(b''.join(struct.pack('<Q', size) for size in reversed(shape)))
        head.append(struct.pack('<IQ', TYPES[kind][0], offset))
        size = bytes_of(shape, kind)
        offset += size + padding(size)
    head = b''.join(head)
    write_all(file, head + bytes(padding(len(head))))


def write_all(file, data):
    data = memoryview(data)
    while len(data):
        data = data[file.write(data):]


# ---- values, with their types ----

def text(value):
    encoded = value.encode()
    return struct.pack('<Q', len(encoded)) + encoded


def string(value):
    return struct.pack('<I', 8) + text(value)


def u32(value):
    return struct.pack('<II', 4, value)


def f32(value):
    return struct.pack('<If', 6, value)


def boolean(value):
    return struct.pack('<I?', 7, value)


def array(kind, elements):
    return struct.pack('<IIQ', 9, kind, len(elements)) + b''.join(elements)


def strings(values):
    return array(8, [text(value) for value in values])


def i32s(values):
    return array(5, [struct.pack('<i', value) for value in values])


def f32s(values):
    return array(6, [struct.pack('<f', value) for value in values])


# ---- sizes ----

def elements_of(shape):
    count = 1
    for size in shape:
        count *= size
    return count


def bytes_of(shape, kind):
    _, block, size = TYPES[kind]
    return elements_of(shape) // block * size


def padding(size):
    return -size % ALIGNMENT


# ---- Q8_0: a scale in f16 and 32 bytes, value = scale * byte ----

def quantize_q8_0(values):
    if len(values) % 32:
        raise ValueError(f'{len(values)} values are no multiple of 32')
    pack = struct.Struct('<e32b').pack
    blocks = []
    for at in range(0, len(values), 32):
        block = values[at:at + 32]
        largest = max(max(block), -min(block))
        scale = struct.unpack('<e', struct.pack('<e', largest / 127))[0]
        if scale == 0:
            blocks.append(bytes(34))
            continue
        factor = 1 / scale
        blocks.append(pack(scale, *[max(-127, min(127, round(value * factor))) for value in block]))
    return b''.join(blocks)


def dequantize_q8_0(data):
    values = []
    for scale, *block in struct.iter_unpack('<e32b', data):
        values += [scale * value for value in block]
    return values
