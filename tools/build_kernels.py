#!/usr/bin/env python3
"""Builds the GPU kernels and refuses bad ones.

  device  one source for one target: a blob (PTX or AMD code object), its metadata as JSON, and the blob compressed
  sibling a blob for one target made from the blob of another, whose code is the same
  verify  compiles for the siblings and compares the result with what 'sibling' makes
  host    one source as plain C for one wave size: an object of a host kernel library
  link    host objects into a library for the simulated driver
  table   the metadata of many blobs into one C file that embeds them
  targets prints every known target; with --siblings those that are made from others, as SIBLING=OTHER
  check   only looks for the tools, so that a missing one stops the configuration with one line

The lint is part of 'device' and 'table': see kernel_metadata.py. Needs Python 3.8, clang 19 with lld, and zstd;
'table' needs none of them, and what it writes can be compiled by any C compiler (see --help of table).
"""
import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True  # nothing but sources in the source tree
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import kernel_metadata as meta  # noqa: E402

WARNINGS = ['-Wall', '-Wextra', '-Wshadow', '-Wno-unknown-cuda-version', '-Wno-unknown-pragmas', '-Werror']


def fail(message):
    sys.exit('build_kernels: ' + message)


def find_clang(otherwise=None):
    """clang-19, or a bare clang that says it is version 19, or otherwise."""
    if shutil.which('clang-19'):
        return shutil.which('clang-19')
    path = shutil.which('clang')
    if path:
        text = subprocess.run([path, '--version'], stdout=subprocess.PIPE, universal_newlines=True).stdout
        if re.search(r'clang version 19\.', text):
            return path
    if otherwise:
        return otherwise
    fail('clang 19 not found: install the packages clang-19 and lld-19, which build the GPU kernels')


def find_lld():
    for name in ('ld.lld-19', 'ld.lld', 'lld-19'):
        if shutil.which(name):
            return
    fail('lld 19 not found: install the package lld-19, which links the AMD kernels')


def find_zstd():
    path = shutil.which('zstd')
    if not path:
        fail('zstd not found: install the package zstd, which compresses the kernels in the library')
    return path


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    sys.stderr.write(done.stdout)
    if done.returncode:
        sys.exit(1)


def check_source(path):
    """Kernels see kernels/*.h only."""
    with open(path, encoding='utf-8') as source:
        for number, line in enumerate(source, 1):
            if re.match(r'\s*#\s*include', line) and not re.match(r'#include "kernels/\w+\.h"\s*$', line):
                fail('%s:%d: a kernel may include "kernels/….h" only: %s' % (path, number, line.strip()))


def check_hidden_reads(paths):
    """Kernels read no hidden arguments but through kernel.h, which reads the block counts: see drop_unread_hidden."""
    for path in paths:
        if os.path.basename(path) == 'kernel.h':
            continue
        with open(path, encoding='utf-8') as source:
            for number, line in enumerate(source, 1):
                if 'implicitarg_ptr' in line:
                    fail('%s:%d: a kernel may not read hidden arguments by itself; kernel.h has the block counts'
                         % (path, number))


def module_of(path):
    return os.path.splitext(os.path.basename(path))[0]


def common_flags(args):
    flags = ['-I' + args.include, '-ffp-contract=fast'] + WARNINGS
    if args.depfile:
        flags += ['-MD', '-MF', args.depfile, '-MT', args.out]
    return flags


def headers_of(source, include):
    """The kernels' headers that a source needs, and that those need."""
    found, left = set(), [source]
    while left:
        with open(left.pop(), encoding='utf-8') as text:
            for name in re.findall(r'^\s*#\s*include\s+"(kernels/[\w.]+)"', text.read(), re.M):
                path = os.path.join(include, name)
                if path not in found:
                    found.add(path)
                    left.append(path)
    return sorted(found)


def in_cache(name, key):
    """The path in $RF_KERNEL_CACHE of what has this name and this key (a hash); None without a cache."""
    folder = os.environ.get('RF_KERNEL_CACHE')
    return folder and os.path.join(folder, '%s.%s' % (name, key.hexdigest()[:32]))


def keep(path, kept):
    """Copies a file into the cache, whole or not at all: several builds may write it at the same time."""
    if kept:
        os.makedirs(os.path.dirname(kept), exist_ok=True)
        part = '%s.%d' % (kept, os.getpid())
        shutil.copyfile(path, part)
        os.replace(part, kept)


def compile_or_recall(args, command, empty):
    """Compiles, unless what the same source, headers and flags gave lies in $RF_KERNEL_CACHE: the builds of one
    tree need the same blobs."""
    if not os.environ.get('RF_KERNEL_CACHE'):
        return run(command + [args.source, '-o', args.out])
    headers = headers_of(args.source, args.include)
    key = hashlib.sha256()
    places = {'-I' + args.include, args.depfile, args.out, '--cuda-path=' + empty}
    key.update(repr([word for word in command if word not in places]).encode())
    for path in [args.source] + headers:
        with open(path, 'rb') as text:
            key.update(hashlib.sha256(text.read()).digest())
    kept = in_cache('%s.%s' % (module_of(args.source), args.target), key)
    if os.path.exists(kept):
        shutil.copyfile(kept, args.out)
        if args.depfile:
            with open(args.depfile, 'w', encoding='utf-8') as depfile:
                depfile.write('%s: %s\n' % (args.out, ' '.join([args.source] + headers)))
        return
    run(command + [args.source, '-o', args.out])
    keep(args.out, kept)


def pack(data, path):
    """Writes data as one zstd frame with its size and a checksum; the same bytes every time with one version of zstd.
    What the same data gave before is taken from $RF_KERNEL_CACHE."""
    command = [find_zstd(), '-19', '--single-thread', '--check', '--quiet', '--stdout', '--stream-size=%d' % len(data)]
    kept = in_cache('packed', hashlib.sha256(repr(command[1:]).encode() + data))
    if not (kept and os.path.exists(kept)):
        packed = subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True).stdout
        with open(path, 'wb') as out:
            out.write(packed)
        keep(path, kept)
        return len(packed)
    shutil.copyfile(kept, path)
    return os.path.getsize(path)


def device(args):
    check_source(args.source)
    check_hidden_reads([args.source] + headers_of(args.source, args.include))
    clang = find_clang()
    kind = meta.target_kind(args.target)
    if not kind:
        fail('%s is no known target; known: %s' % (args.target, ' '.join(meta.TARGETS)))
    data = compile_device(args, clang, kind)
    with open(args.source, encoding='utf-8') as source:
        write_device(args, module_of(args.source), meta.matrix_kernels(source.read()), data)


def compile_device(args, clang, kind):
    """What the compiler makes of args.source for args.target, as it is in the library."""
    with tempfile.TemporaryDirectory() as empty:
        command = [clang, '--cuda-device-only', '-O3'] + common_flags(args)
        if kind == 'ptx':
            # An empty toolkit folder keeps clang from adopting the version of one it finds; the feature
            # asks for the oldest PTX that has the target, which older drivers accept.
            version = meta.PTX_VERSIONS[args.target].replace('.', '')
            command += ['-x', 'cuda', '--cuda-gpu-arch=' + args.target, '-nocudainc', '-nocudalib',
                        '--cuda-path=' + empty, '--cuda-feature=+ptx' + version, '-S']
        else:
            find_lld()
            command += ['-x', 'hip', '--offload-arch=' + args.target, '-nogpuinc', '-nogpulib',
                        '-mcode-object-version=5', '--no-gpu-bundle-output', '-fuse-cuid=none']
        compile_or_recall(args, command, empty)
    with open(args.out, 'rb') as blob:
        data = blob.read()
    return meta.drop_unread_hidden(data) if kind == 'amd' else data


def write_device(args, module, matrix, data):
    """Lints a blob and writes it, its metadata and, if asked for, the blob compressed."""
    kind = meta.target_kind(args.target)
    try:
        kernels = meta.read_ptx(data.decode(), args.target) if kind == 'ptx' else meta.read_elf(data, args.target)
        meta.lint(kernels, args.target, args.waivers)
    except meta.Refused as refused:
        if os.path.exists(args.out):
            os.unlink(args.out)
        fail('%s for %s: %s' % (module, args.target, refused))
    with open(args.out, 'wb') as blob:
        blob.write(data)
    info = {'module': module, 'target': args.target, 'file': os.path.basename(args.out), 'bytes': len(data),
            'matrix': matrix, 'kernels': kernels}
    if args.pack:
        info['packed_file'] = os.path.basename(args.pack)
        info['packed_bytes'] = pack(data + b'\0' if kind == 'ptx' else data, args.pack)
    with open(args.metadata, 'w', encoding='utf-8') as out:
        json.dump(info, out, indent=1)


def sibling(args):
    with open(args.of, encoding='utf-8') as text:
        info = json.load(text)
    with open(os.path.join(os.path.dirname(args.of), info['file']), 'rb') as blob:
        data = blob.read()
    try:
        data = meta.make_sibling(data, info['target'], args.target)
    except meta.Refused as refused:
        fail('%s for %s: %s' % (info['module'], args.target, refused))
    write_device(args, info['module'], info['matrix'], data)


def targets(args):
    print(','.join('%s=%s' % pair for pair in meta.SIBLINGS.items()) if args.siblings else ','.join(meta.TARGETS))


def verify(args):
    """Compiles each source for every sibling target and for those they are made from, and compares."""
    from concurrent.futures import ThreadPoolExecutor  # here, for the other commands run hundreds of times in a build
    clang = find_clang()
    find_lld()
    targets = sorted(set(meta.SIBLINGS) | set(meta.SIBLINGS.values()))
    wanted = [(source, target) for source in args.sources for target in targets]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as threads:
        def build(pair):
            source, target = pair
            out = os.path.join(folder, '%s.%s' % (module_of(source), target))
            return compile_device(argparse.Namespace(source=source, target=target, include=args.include, out=out,
                                                     depfile=None), clang, 'amd')
        blobs = dict(zip(wanted, threads.map(build, wanted)))
    different = 0
    for source in args.sources:
        for target, other in meta.SIBLINGS.items():
            if meta.make_sibling(blobs[source, other], other, target) != blobs[source, target]:
                different += 1
                print('%s: the code for %s is not that for %s: take %s out of SIBLINGS in kernel_metadata.py'
                      % (source, target, other, target))
    print('%d sources for %s: %d differ from what is made of a sibling' % (
        len(args.sources), ', '.join(meta.SIBLINGS), different))
    if different:
        sys.exit(1)


def sanitizer_flags(names):
    if names in ('', 'none'):
        return []
    flags = ['-fsanitize=' + names, '-fno-sanitize-recover=all', '-fno-omit-frame-pointer']
    if 'thread' in names.split(','):
        # Lanes switch stacks on one thread: TSan must not keep a shadow call stack of them.
        flags += ['-mllvm', '-tsan-instrument-func-entry-exit=0']
    return flags


def host(args):
    check_source(args.source) if args.source.endswith('.hip') else None
    command = [find_clang(), '-x', 'c', '-std=gnu11', '-O2', '-gline-tables-only', '-fPIC', '-fvisibility=hidden', '-fno-math-errno',
               '-Wstrict-prototypes', '-Wmissing-prototypes', '-c']
    if args.wave:
        command.append('-DRF_WAVE=%d' % args.wave)
    command += sanitizer_flags(args.sanitize) + common_flags(args)
    if args.source.endswith('.hip'):
        args.target = 'wave%d' % args.wave
        compile_or_recall(args, command, '')
    else:
        run(command + [args.source, '-o', args.out])


def link(args):
    # Undefined symbols stay: a sanitizer's runtime comes with the program. The bounds of the kernels' section
    # are each library's own.
    flags = ['-shared', '-Wl,-soname,' + os.path.basename(args.out), '-Wl,-z,start-stop-visibility=hidden',
             '-Wno-unused-command-line-argument'] + sanitizer_flags(args.sanitize)
    # Objects that were built elsewhere can be linked by any compiler.
    run([find_clang('cc')] + flags + args.objects + ['-o', args.out, '-lm'])


def table(args):
    modules = []
    for path in args.metadata:
        with open(path, encoding='utf-8') as text:
            modules.append(json.load(text))
    modules.sort(key=lambda m: (m['module'], meta.TARGETS.index(m['target'])))
    try:
        meta.lint_together(modules, args.waivers)
    except meta.Refused as refused:
        fail(str(refused))
    folder = os.path.relpath(os.path.dirname(args.metadata[0]) or '.')
    with open(args.out, 'w', encoding='utf-8') as out:
        out.write(meta.c_table(modules, args.style, args.name, folder))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest='command', required=True)
    waivers = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'kernel_waivers.txt')

    def command(name, function, help_text):
        sub = commands.add_parser(name, help=help_text, description=help_text)
        sub.set_defaults(run=function)
        sub.add_argument('--waivers', default=waivers)
        return sub

    command('check', lambda args: (find_clang(), find_lld(), find_zstd()), 'look for the tools')
    sub = command('targets', targets, 'every known target')
    sub.add_argument('--siblings', action='store_true', help='those that are made from others')
    sub = command('verify', verify, 'whether the siblings are right')
    sub.add_argument('sources', nargs='+')
    sub.add_argument('--include', required=True, help='the folder that holds kernels/')
    for name, function, text in (('device', device, 'one source for one target'),
                                 ('sibling', sibling, 'one source for one target, from the blob of another'),
                                 ('host', host, 'one source as C')):
        sub = command(name, function, text)
        if name == 'sibling':
            sub.add_argument('of', help="the other target's JSON; its blob lies beside it")
        else:
            sub.add_argument('source')
            sub.add_argument('--include', required=True, help='the folder that holds kernels/')
            sub.add_argument('--depfile')
        sub.add_argument('--out', required=True)
        if name != 'host':
            sub.add_argument('--target', required=True)
            sub.add_argument('--metadata', required=True, help='JSON to write')
            sub.add_argument('--pack', help='the compressed blob to write, which a builtin table embeds')
        else:
            sub.add_argument('--wave', type=int, choices=(0, 32, 64), default=0, help='0: not a kernel source')
            sub.add_argument('--sanitize', default='none', help="as Meson's b_sanitize")
    sub = command('link', link, 'a host kernel library')
    sub.add_argument('objects', nargs='+')
    sub.add_argument('--out', required=True)
    sub.add_argument('--sanitize', default='none')
    sub = command('table', table, 'One C file that embeds the blobs beside the metadata. The assembler finds them by '
                  'a path relative to the folder where this ran; to compile it elsewhere give '
                  "-DRF_BLOB_DIR='\"FOLDER\"'.")
    sub.add_argument('metadata', nargs='+')
    sub.add_argument('--out', required=True)
    sub.add_argument('--style', choices=('builtin', 'images'), required=True)
    sub.add_argument('--name', required=True, help='prefix of the symbols')
    args = parser.parse_args()
    args.run(args)


if __name__ == '__main__':
    main()
