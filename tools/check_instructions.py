#!/usr/bin/env python3
"""Looks into the kernels' instructions: kernels that are named for the matrix units use them, others do not; and no
kernel for AMD has flat loads or stores, which the compiler uses where it no longer knows that memory is global.

  tools/check_instructions.py build/rocmforge

For each target of the build: wmma on gfx11 and gfx12, mfma on gfx9, mma in PTX. Kernels are found by their names
(*_matrix_*, matmul_tile_*, matmul_wide_*). GPUs without matrix units have kernels of those names that do without.
AMD code is disassembled by llvm-objdump, of package llvm-19.
"""
import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

NAMED = ('*_matrix_*', 'matmul_tile_*', 'matmul_wide_*')
INSTRUCTIONS = ((r'gfx1[12]', r'\bv_s?wmma_'), (r'gfx9[04]', r'\bv_mfma_'), (r'sm_[89]', r'\bw?g?mma\.'))

FLAT = r'\bflat_(load|store)'


def main():
    if len(sys.argv) != 2:
        sys.exit('usage: check_instructions.py build/rocmforge')
    objdump = shutil.which('llvm-objdump-19') or shutil.which('llvm-objdump')
    listed = json.loads(output([sys.argv[1], 'kernels', '--json']))
    targets = sorted({kernel['target'] for kernel in listed['kernels']})
    wrong = checked = 0
    with tempfile.TemporaryDirectory() as folder:
        for target in targets:
            pattern = next((p for name, p in INSTRUCTIONS if re.match(name, target)), None)
            if not pattern:
                continue
            if not target.startswith('sm_') and not objdump:
                sys.exit('check_instructions: llvm-objdump is not there: install llvm-19')
            place = os.path.join(folder, target)
            output([sys.argv[1], 'kernels', '--extract', target, place])
            used, flat = set(), set()
            for file in sorted(os.listdir(place)):
                if not file.endswith('.json'):
                    used |= users(os.path.join(place, file), objdump, pattern)
                    if not target.startswith('sm_'):
                        flat |= users(os.path.join(place, file), objdump, FLAT)
            for kernel in sorted(flat):
                wrong += 1
                print('%s: %s has flat loads or stores' % (target, kernel))
            for kernel in (k['kernel'] for k in listed['kernels'] if k['target'] == target):
                named = any(fnmatch.fnmatch(kernel, name) for name in NAMED)
                checked += named
                if named != (kernel in used):
                    wrong += 1
                    print('%s: %s %s the matrix units' % (target, kernel, 'does not use' if named else 'uses'))
    print('%d kernels of %s use the matrix units, %d things are wrong' % (checked, ', '.join(targets), wrong))
    return 1 if wrong or not checked else 0


def output(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit('check_instructions: %s: %s' % (' '.join(command), done.stderr.strip()))
    return done.stdout


def users(path, objdump, pattern):
    """Names of the kernels in a blob that have such an instruction."""
    if path.endswith('.ptx'):
        with open(path, encoding='utf-8') as file:
            text = file.read()
        start = r'^\s*(?:\.visible\s+)?\.entry\s+(\w+)'
    else:
        text = output([objdump, '-d', '--no-show-raw-insn', path])
        start = r'^[0-9a-f]+ <(\w+)>:'
    found, name = set(), None
    for line in text.split('\n'):
        begins = re.match(start, line)
        if begins:
            name = begins.group(1)
        elif name and re.search(pattern, line):
            found.add(name)
    return found


if __name__ == '__main__':
    sys.exit(main())
