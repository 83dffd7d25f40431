"""What a kernel blob says about itself, what is refused, and the C table made of it.

Reads PTX text and AMD code objects (ELF with a MessagePack note) without any tool. Refused: spills, private
memory (unless waived in kernel_waivers.txt), dynamic stack, more shared memory than the target has, the wrong code
object or PTX version or target, modules for sm_90a with kernels that other targets have, a kernel without its
descriptor, a hidden argument that the oldest HIP does not know, calls that nothing resolves, and kernels that
differ in name or arguments between targets.
"""
import fnmatch
import os
import re
import struct

# sm_90a has only the kernels that need it, beside those for sm_90.
TARGETS = ['sm_80', 'sm_90', 'sm_90a', 'gfx90a', 'gfx942', 'gfx1030', 'gfx1031', 'gfx1032', 'gfx1034', 'gfx1035',
           'gfx1036', 'gfx1100', 'gfx1101', 'gfx1102', 'gfx1103', 'gfx1150', 'gfx1151', 'gfx1200', 'gfx1201']
# Targets for which the compiler makes the same code as for another one, byte for byte but for the target's name and
# number: a blob is made from the other's (make_sibling). 'build_kernels.py verify' compiles for both and compares.
# (gfx1033 is none: it has no dot products of bytes.)
SIBLINGS = {'gfx1031': 'gfx1030', 'gfx1032': 'gfx1030', 'gfx1034': 'gfx1030', 'gfx1035': 'gfx1030',
            'gfx1036': 'gfx1030', 'gfx1200': 'gfx1201'}
# EF_AMDGPU_MACH of the ELF header's flags.
MACHINES = {'gfx1030': 0x36, 'gfx1031': 0x37, 'gfx1032': 0x38, 'gfx1034': 0x3e, 'gfx1035': 0x3d,
            'gfx1036': 0x45, 'gfx1200': 0x48, 'gfx1201': 0x4e}
SHT_NOTE, PT_NOTE, E_FLAGS = 7, 4, 48
OWN = ('sm_90a',)  # targets with kernels of their own, which the others need not have
PTX_VERSIONS = {'sm_80': '7.0', 'sm_90': '7.8', 'sm_90a': '8.0'}
STATIC_SHARED_LIMIT = {'ptx': 48 << 10, 'amd': 64 << 10}
ELF_OSABI_HSA, ELF_ABIVERSION_V5 = 64, 3

def oldest_hip():
    """The oldest HIP that the kernels must load on, as (major, minor): src/gpu/driver_hip.c refuses older ones."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'src', 'gpu', 'driver_hip.c')
    with open(path, encoding='utf-8') as source:
        version = int(re.search(r'OLDEST_VERSION = (\d+)', source.read()).group(1))
    return version // 10000000, version // 100000 % 100


OLDEST_HIP = oldest_hip()
# The first HIP whose reader of the metadata knows an argument kind, by the tags of ROCm/ROCclr (to 5.5) and ROCm/clr
# (from 5.6): the table of value kinds in device/devkernel.hpp. Before that it leaves the kernel without a signature,
# and hipModuleLoadData dereferences NULL. Debian's libamdhip64 5.2.3 has exactly the strings of (5, 2) and older.
HIDDEN_SINCE = {(5, 0): ('global_offset_x', 'global_offset_y', 'global_offset_z', 'none', 'printf_buffer',
                         'default_queue', 'completion_action', 'multigrid_sync_arg', 'hostcall_buffer'),
                (5, 1): ('block_count_x', 'block_count_y', 'block_count_z', 'group_size_x', 'group_size_y',
                         'group_size_z', 'remainder_x', 'remainder_y', 'remainder_z', 'grid_dims', 'private_base',
                         'shared_base', 'queue_ptr'),
                (5, 2): ('heap_v1',),
                (6, 1): ('dynamic_lds_size',)}


class Refused(Exception):
    pass


def has_matrix_units(target):
    return not target.startswith('gfx10')


def matrix_kernels(source):
    """The kernels, by pattern, that a source has only for targets with matrix units: "rf-matrix: PATTERN …" in a
    comment."""
    words = ' '.join(re.findall(r'rf-matrix:([\w* ]*)', source)).split()
    return [word for word in words if word != '*']  # the comment's end


def target_kind(target):
    return None if target not in TARGETS else 'ptx' if target.startswith('sm_') else 'amd'


# ---- PTX ----

PTX_BYTES = {'8': 1, '16': 2, '32': 4, '64': 8}


def read_ptx(text, target):
    version = re.search(r'^\.version\s+(\S+)', text, re.M)
    found = re.search(r'^\.target\s+(\w+)', text, re.M)
    if not version or version.group(1) != PTX_VERSIONS[target]:
        raise Refused('PTX version is %s, should be %s' % (version and version.group(1), PTX_VERSIONS[target]))
    if not found or found.group(1) != target:
        raise Refused('PTX target is %s' % (found and found.group(1)))
    if re.search(r'^\s*\.extern\s+\.func', text, re.M):
        raise Refused('calls a function that is not there: %s' % re.search(r'\.extern\s+\.func.*', text).group(0))
    shared = {}
    first = re.search(r'\.entry', text)
    for size, name in shared_variables(text[:first.start()] if first else text):
        shared[name] = size
    kernels = []
    for match in re.finditer(r'\.entry\s+(\w+)\s*\((.*?)\)(.*?)\{(.*?)^\}', text, re.M | re.S):
        name, params, directives, body = match.groups()
        sizes = []
        pattern = r'\.param\s+(?:\.align\s+\d+\s+)?\.[a-z](\d+)\s+(?:\.ptr[^,\n]*?\s)?\w+(\[\d+\])?'
        for kind, count in re.findall(pattern, params):
            sizes.append(PTX_BYTES[kind] * (int(count[1:-1]) if count else 1))
        if len(sizes) != len(re.findall(r'\.param', params)):
            raise Refused('%s: parameters not understood: %s' % (name, params))
        bound = re.search(r'\.maxntid\s+(\d+)', directives)
        if not bound:
            raise Refused('%s: no .maxntid: use RF_KERNEL' % name)
        used = sum(size for size, _ in shared_variables(body))
        used += sum(size for variable, size in shared.items() if re.search(r'\b%s\b' % re.escape(variable), body))
        local = sum(int(n) for n in re.findall(r'\.local\s+\.align\s+\d+\s+\.b8\s+\w+\[(\d+)\]', body))
        kernels.append({'name': name, 'args': sizes, 'max_threads': int(bound.group(1)), 'shared': used,
                        'vector_registers': -1, 'scalar_registers': -1, 'scratch': local, 'spills': -1,
                        'early': early(name, body)})
    if len(kernels) != len(re.findall(r'\.entry\s', text)):
        raise Refused('an .entry was not understood')
    # The library cuts the text into kernels (src/gpu/ptx.c): what they share must come first, and nothing between them.
    rest = re.sub(r'\.visible\s+\.entry\s+\w+\s*\(.*?\).*?\{.*?^\}', '', text[text.find('.visible .entry'):], flags=re.M | re.S)
    if kernels and re.sub(r'//[^\n]*', '', rest).strip():
        raise Refused('something that is no kernel follows the first kernel: %s' % rest.strip().split('\n')[0])
    return sorted(kernels, key=lambda k: k['name'])


def early(name, body):
    """Whether the kernel waits by itself for the work before it (rf_grid_wait): then it may be started early. Every
    way through it must wait, which is why nothing may leave it before."""
    wait = body.find('griddepcontrol.wait')
    if wait >= 0 and re.search(r'\bret;', body[:wait]):
        raise Refused('%s may end before it waits for the work before it: call rf_grid_wait first' % name)
    if wait < 0 and 'griddepcontrol.launch_dependents' in body:
        raise Refused('%s lets others start and does not wait itself: call rf_grid_wait' % name)
    return int(wait >= 0)


def shared_variables(text):
    for kind, name, count in re.findall(r'^\s*\.shared\s+(?:\.align\s+\d+\s+)?\.[a-z](\d+)\s+([\w$]+)(?:\[(\d+)\])?',
                                        text, re.M):
        yield PTX_BYTES[kind] * int(count or 1), name


# ---- AMD code objects ----

def read_elf(data, target):
    if data[:4] != b'\x7fELF' or data[4] != 2 or data[7] != ELF_OSABI_HSA:
        raise Refused('not an AMD code object')
    if data[8] != ELF_ABIVERSION_V5:
        raise Refused('code object version is V%d, should be V5' % (data[8] + 2))
    sections = read_sections(data)
    note = next((n for n in notes(data, sections) if n[0] == 'AMDGPU' and n[1] == 32), None)
    if not note:
        raise Refused('no metadata note')
    info, _ = unpack(note[2], 0)
    if not info['amdhsa.target'].endswith('--' + target):
        raise Refused('target is %s' % info['amdhsa.target'])
    symbols = set(read_symbols(data, sections))
    kernels = []
    for k in info['amdhsa.kernels']:
        if k['.symbol'] not in symbols:
            raise Refused('%s: no descriptor %s' % (k['.name'], k['.symbol']))
        if k.get('.uses_dynamic_stack'):
            raise Refused('%s: needs a stack of unknown size (recursion or an indirect call)' % k['.name'])
        for argument in k.get('.args', []):
            check_hidden(k['.name'], argument['.value_kind'])
        sizes = [a['.size'] for a in k.get('.args', []) if not a['.value_kind'].startswith('hidden_')]
        kernels.append({'name': k['.name'], 'args': sizes, 'max_threads': k['.max_flat_workgroup_size'],
                        'shared': k['.group_segment_fixed_size'], 'vector_registers': k['.vgpr_count'],
                        'scalar_registers': k['.sgpr_count'], 'scratch': k['.private_segment_fixed_size'],
                        'spills': k['.vgpr_spill_count'] + k['.sgpr_spill_count']})
    return sorted(kernels, key=lambda k: k['name'])


def check_hidden(kernel, kind):
    """Refuses a hidden argument that a HIP as old as OLDEST_HIP does not know."""
    if not kind.startswith('hidden_'):
        return
    since = next((version for version, kinds in HIDDEN_SINCE.items() if kind[len('hidden_'):] in kinds), None)
    if since is None or since > OLDEST_HIP:
        raise Refused('%s asks for the argument %s, which HIP knows %s; the kernels must load on HIP %d.%d'
                      % (kernel, kind, 'from %d.%d on' % since if since else 'in no version in HIDDEN_SINCE',
                         *OLDEST_HIP))


# The compiler lists the size of the dynamic shared memory among the arguments of a kernel that has any. Nothing reads
# it: a kernel reaches its hidden arguments through implicitarg_ptr only, which build_kernels.py allows in kernel.h
# alone, for the block counts. So its place can be one that HIP does not fill.
UNREAD_HIDDEN, NO_ARGUMENT = 'hidden_dynamic_lds_size', 'hidden_none'


def text_bytes(text):
    """A short text in MessagePack."""
    assert len(text) < 32
    return bytes([0xa0 | len(text)]) + text.encode()


def drop_unread_hidden(data):
    """The same code object with no argument of the kind UNREAD_HIDDEN. The note becomes shorter; what follows it in the
    file stays where it is, and zeros fill the gap, so nothing else changes but the note's sizes."""
    def change(info):
        for argument in (a for k in info['amdhsa.kernels'] for a in k.get('.args', [])):
            if argument['.value_kind'] == UNREAD_HIDDEN:
                argument['.value_kind'] = NO_ARGUMENT

    return rewrite_note(data, UNREAD_HIDDEN, NO_ARGUMENT, change)


def make_sibling(data, target, sibling):
    """The code object of a target as the compiler would make it for the target's sibling."""
    def change(info):
        info['amdhsa.target'] = 'amdgcn-amd-amdhsa--' + sibling

    out = bytearray(rewrite_note(data, 'amdgcn-amd-amdhsa--' + target, 'amdgcn-amd-amdhsa--' + sibling, change))
    flags, = struct.unpack_from('<I', data, E_FLAGS)
    if SIBLINGS.get(sibling) != target or flags & 0xff != MACHINES[target]:
        raise Refused('a code object of %s (machine %#x) cannot become one of %s' % (target, flags & 0xff, sibling))
    struct.pack_into('<I', out, E_FLAGS, flags & ~0xff | MACHINES[sibling])
    return bytes(out)


def rewrite_note(data, old_text, new_text, change):
    """The code object with one text of its metadata replaced by another, not longer one. `change` does the same to the
    unpacked metadata: anything else that the replacement of bytes might have hit is refused."""
    section = next((s for s in read_sections(data) if s['type'] == SHT_NOTE), None)
    if not section:
        raise Refused('no metadata note')
    at = section['offset']
    name_bytes, old_bytes, _ = struct.unpack_from('<III', data, at)
    body = at + 12 + (name_bytes + 3) // 4 * 4
    before = data[body:body + old_bytes]
    after = before.replace(text_bytes(old_text), text_bytes(new_text))
    if after == before:
        return data
    wanted, _ = unpack(before, 0)
    change(wanted)
    if unpack(after, 0) != (wanted, len(after)) or body + (old_bytes + 3) // 4 * 4 != at + section['size']:
        raise Refused('the metadata note could not be rewritten')
    out = bytearray(data)
    struct.pack_into('<I', out, at + 4, len(after))
    out[body:at + section['size']] = after.ljust(at + section['size'] - body, b'\0')
    size = body - at + (len(after) + 3) // 4 * 4
    struct.pack_into('<Q', out, section['header'] + 32, size)
    for header in note_segments(data):
        if struct.unpack_from('<QQ', data, header + 32) != (section['size'], section['size']):
            raise Refused('the note is not a segment of its own')
        struct.pack_into('<QQ', out, header + 32, size, size)
    return bytes(out)


def note_segments(data):
    """Where the program headers of notes begin."""
    offset, = struct.unpack_from('<Q', data, 32)
    size, count = struct.unpack_from('<HH', data, 54)
    return [at for at in range(offset, offset + size * count, size) if struct.unpack_from('<I', data, at)[0] == PT_NOTE]


def read_sections(data):
    offset, = struct.unpack_from('<Q', data, 40)
    size, count = struct.unpack_from('<HH', data, 58)
    keys = ('name', 'type', 'flags', 'address', 'offset', 'size', 'link', 'info', 'align', 'entry')
    return [dict(zip(keys, struct.unpack_from('<IIQQQQIIQQ', data, offset + i * size)), header=offset + i * size)
            for i in range(count)]


def notes(data, sections):
    for section in (s for s in sections if s['type'] == SHT_NOTE):
        at, end = section['offset'], section['offset'] + section['size']
        while at + 12 <= end:
            name_size, size, kind = struct.unpack_from('<III', data, at)
            body = at + 12 + (name_size + 3) // 4 * 4
            yield data[at + 12:at + 12 + name_size].rstrip(b'\0').decode(), kind, data[body:body + size]
            at = body + (size + 3) // 4 * 4


def read_symbols(data, sections):
    for section in (s for s in sections if s['type'] in (2, 11)):
        strings = sections[section['link']]['offset']
        for at in range(section['offset'], section['offset'] + section['size'], 24):
            name = strings + struct.unpack_from('<I', data, at)[0]
            defined = struct.unpack_from('<H', data, at + 6)[0]
            if defined:
                yield data[name:data.index(b'\0', name)].decode()


def unpack(data, at):
    """One MessagePack value and where the next begins."""
    tag = data[at]
    at += 1
    if tag < 0x80:
        return tag, at
    if tag >= 0xe0:
        return tag - 256, at
    if tag < 0x90:
        return unpack_map(data, at, tag & 15)
    if tag < 0xa0:
        return unpack_list(data, at, tag & 15)
    if tag < 0xc0:
        return data[at:at + (tag & 31)].decode(), at + (tag & 31)
    if tag in (0xc0, 0xc2, 0xc3):
        return {0xc0: None, 0xc2: False, 0xc3: True}[tag], at
    numbers = {0xcc: '>B', 0xcd: '>H', 0xce: '>I', 0xcf: '>Q', 0xd0: '>b', 0xd1: '>h', 0xd2: '>i', 0xd3: '>q',
               0xca: '>f', 0xcb: '>d'}
    if tag in numbers:
        return struct.unpack_from(numbers[tag], data, at)[0], at + struct.calcsize(numbers[tag])
    sized = {0xd9: '>B', 0xda: '>H', 0xdb: '>I', 0xdc: '>H', 0xdd: '>I', 0xde: '>H', 0xdf: '>I'}
    if tag not in sized:
        raise Refused('metadata not understood (MessagePack tag %#x)' % tag)
    count, = struct.unpack_from(sized[tag], data, at)
    at += struct.calcsize(sized[tag])
    if tag <= 0xdb:
        return data[at:at + count].decode(), at + count
    return unpack_list(data, at, count) if tag <= 0xdd else unpack_map(data, at, count)


def unpack_list(data, at, count):
    values = []
    for _ in range(count):
        value, at = unpack(data, at)
        values.append(value)
    return values, at


def unpack_map(data, at, count):
    values = {}
    for _ in range(count):
        key, at = unpack(data, at)
        values[key], at = unpack(data, at)
    return values, at


# ---- lint ----

def read_waivers(path):
    waivers = []
    with open(path, encoding='utf-8') as lines:
        for number, line in enumerate(lines, 1):
            words = line.split('#')[0].split(None, 2)
            if words and len(words) < 3:
                raise Refused('%s:%d: a waiver needs a kernel, a target and a reason' % (path, number))
            if words:
                waivers.append((words[0], words[1]))
    return waivers


def lint(kernels, target, waiver_path):
    waivers = read_waivers(waiver_path)
    limit = STATIC_SHARED_LIMIT[target_kind(target)]
    if not kernels:
        raise Refused('no kernel in it')
    for kernel in kernels:
        name = kernel['name']
        if kernel['spills'] > 0:
            raise Refused('%s spills %d registers: lower its max_threads or hold less' % (name, kernel['spills']))
        if kernel['scratch'] and (name, target) not in waivers and (name, '*') not in waivers:
            raise Refused('%s keeps %d bytes a thread in private memory: an array is indexed by a variable, or a loop '
                          'over it is not unrolled (or waive it in kernel_waivers.txt)' % (name, kernel['scratch']))
        if kernel['shared'] > limit:
            raise Refused('%s has %d bytes of shared memory, the target %d' % (name, kernel['shared'], limit))


def lint_together(modules, waiver_path):
    seen = {}
    for module in modules:
        for kernel in module['kernels']:
            key = kernel['name']
            here = (module['module'], kernel['args'], kernel['max_threads'])
            before, where = seen.setdefault(key, (here, module['target']))
            if before[0] != here[0]:
                raise Refused('%s is in %s and in %s' % (key, before[0], here[0]))
            if before != here:
                raise Refused('%s: arguments or block size differ between %s %s and %s %s'
                              % (key, where, before[1:], module['target'], here[1:]))
    for name in {m['module'] for m in modules}:
        of_module = {m['target'] for m in modules if m['module'] == name}
        if of_module & set(OWN) and of_module - set(OWN):
            raise Refused('%s is built for %s and for %s: kernels that need %s are modules of their own'
                          % (name, min(of_module & set(OWN)), min(of_module - set(OWN)), OWN[0]))
        general = [m for m in modules if m['module'] == name and m['target'] not in OWN]
        everywhere = {k['name'] for m in general for k in m['kernels']}
        for module in general:
            names, absent = {k['name'] for k in module['kernels']}, set()
            if not has_matrix_units(module['target']):
                absent = {n for n in everywhere if any(fnmatch.fnmatchcase(n, p) for p in module.get('matrix', []))}
            if everywhere - absent - names:
                raise Refused('%s has no %s' % (module['target'], ', '.join(sorted(everywhere - absent - names))))
            if absent & names:
                raise Refused('%s has no matrix units, but has %s: its source names it after "rf-matrix:"'
                              % (module['target'], ', '.join(sorted(absent & names))))
    for name, target in read_waivers(waiver_path):
        used = [k for m in modules for k in m['kernels'] if k['name'] == name and target in ('*', m['target'])]
        if used and not any(k['scratch'] for k in used):
            raise Refused('the waiver "%s %s" is needed no more: remove it' % (name, target))


# ---- the C table ----

def c_table(modules, style, name, folder):
    """One C file: the blobs by .incbin, and what <rocmforge/gpu.h> declares about them; gpu/image.h, if they are the
    library's own."""
    lines = ['/* Generated by tools/build_kernels.py: kernel blobs and what is in them. */',
             '#include <rocmforge/gpu.h>'] + (['#include "gpu/image.h"'] if style == 'builtin' else []) + ['',
             '#ifndef RF_BLOB_DIR', '#define RF_BLOB_DIR "%s"' % folder, '#endif', '']
    file = 'packed_file' if style == 'builtin' else 'file'
    for i, module in enumerate(modules):
        symbol = '%s_blob_%d' % (name, i)
        lines += ['__asm__(".pushsection .rodata\\n.balign 64\\n"',
                  '        ".globl %s\\n.hidden %s\\n%s:\\n"' % (symbol, symbol, symbol),
                  '        ".incbin \\"" RF_BLOB_DIR "/%s\\"\\n"' % module[file],
                  '        ".byte 0\\n.popsection\\n");',
                  'extern const unsigned char %s[] __attribute__((visibility("hidden")));' % symbol]
    lines.append('')
    lines += c_images(modules, name) if style == 'images' else c_builtin(modules, name)
    return '\n'.join(lines) + '\n'


def image_bytes(module):
    """A PTX image counts its NUL."""
    return module['bytes'] + (1 if target_kind(module['target']) == 'ptx' else 0)


def c_kernels(modules, name):
    """The rows of all kernels, in the order of the modules."""
    shapes, lines = {}, []
    for module in modules:
        for kernel in module['kernels']:
            args = tuple(kernel['args'])
            if args not in shapes:
                shapes[args] = '%s_args_%d' % (name, len(shapes))
                lines.append('static const uint32_t %s[] = {%s};' % (shapes[args], ', '.join(map(str, args))))
    lines.append('static const struct rf_builtin_kernel kernels[] = {')
    for m in modules:
        for k in m['kernels']:
            lines.append('    {"%s", "%s", "%s", %d, %s, %d, %d, %d, %d, %d, %d, %d},' % (
                k['name'], m['module'], m['target'], len(k['args']), shapes[tuple(k['args'])], k['max_threads'],
                k['shared'], k['vector_registers'], k['scalar_registers'],
                -1 if k['spills'] < 0 else k['scratch'], k['spills'], k.get('early', 0)))
    return lines + ['};']


def c_images(modules, name):
    groups = sorted({m['module'] for m in modules})
    lines = ['extern const struct rf_kernel_image %s_images[];' % name, 'extern const size_t %s_image_count;' % name,
             'extern const int %s_image_groups[];' % name] + c_kernels(modules, name)
    lines.append('const struct rf_kernel_image %s_images[] = {' % name)
    first = 0
    for i, m in enumerate(modules):
        lines.append('    {"%s", %s_blob_%d, %d, &kernels[%d], %d},'
                     % (m['target'], name, i, image_bytes(m), first, len(m['kernels'])))
        first += len(m['kernels'])
    numbers = ', '.join(str(groups.index(m['module'])) for m in modules)
    return lines + ['};', 'const int %s_image_groups[] = {%s};' % (name, numbers),
                    'const size_t %s_image_count = %d;' % (name, len(modules))]


def c_builtin(modules, name):
    lines = c_kernels(modules, name) + ['static const struct rf_image images[] = {']
    lines += ['    {"%s", "%s", %s_blob_%d, %d, %d},'
              % (m['module'], m['target'], name, i, m['packed_bytes'], image_bytes(m)) for i, m in enumerate(modules)]
    lines += ['};', 'const char rf_image_known_targets[] = "%s";' % ''.join(' ' + target for target in TARGETS), '']
    for what, row in (('rf_builtin_kernel', 'kernels'), ('rf_image', 'images')):
        count = 'sizeof(%s) / sizeof(%s[0])' % (row, row)
        lines += ['size_t %s_count(void) { return %s; }' % (what, count),
                  'const struct %s *%s_at(size_t index) {' % (what, what),
                  '    return index < %s ? &%s[index] : NULL;' % (count, row), '}']
    return lines
