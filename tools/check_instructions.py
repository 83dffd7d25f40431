#!/usr/bin/env python3
"""Looks into the kernels' instructions, for each target of the build:

  - kernels that are named for the matrix units use them, and others do not
  - no kernel for AMD has flat loads or stores, which the compiler uses where it no longer knows that memory is global
  - no kernel for AMD reaches a barrier with memory operations under way that the barrier should order

  tools/check_instructions.py build/rocmforge
  tools/check_instructions.py --self-test

Matrix units: wmma on gfx11 and gfx12, mfma on gfx9, mma in PTX, wgmma for sm_90a. Kernels are found by their names
(*_matrix_*, *_group_*, matmul_tile_*, matmul_wide_*). For sm_90a also: every kernel uses wgmma, or it would not need
that target; products in a row are one chain on the same registers; maps are read where the arguments are; nothing is kept in
local memory; a wait for a barrier can end in a trap. Targets without matrix units lack them (rf-matrix in the
sources). Targets whose code is that of another, byte for byte (SIBLINGS in kernel_metadata.py), are left out.

Barriers: s_barrier (s_barrier_signal on gfx12) makes the waves of a block meet, and nothing else. An LDS operation that
a wave has issued but not waited for may still be under way behind it, and another wave then reads old data or overwrites
what is still to be read. The compiler inserts the waits for the fences of rf_barrier() (src/kernels/kernel.h). The rule:
on every path to a barrier, each of these operations is followed by its wait.

  operation                                         wait, up to gfx11         wait, gfx12
  ds_* that reads or writes LDS (not the            s_waitcnt lgkmcnt(0)      s_wait_dscnt 0
    permutations, which only move registers)
  loads from global memory straight into LDS        s_waitcnt vmcnt(0)        s_wait_loadcnt 0
  stores and atomics without a result to global     s_waitcnt_vscnt 0         s_wait_storecnt 0
    memory, from gfx10 on

Before gfx10 the waves of a block share one vector cache, which keeps their operations on global memory in order, so
stores need no wait at a barrier there, unless the waves of a block may be on several compute units (tgsplit): then the
check says so. A wait for a count above 0 never counts as a wait, which is stricter than the hardware. Paths are followed
by a forward data-flow analysis over the basic blocks: what may be under way at the start of a block is the union over
its predecessors. A jump to a computed address cannot be followed and is reported.

--self-test checks the barrier rule and those for sm_90a with listings that hold one known mistake each, or none.
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

sys.dont_write_bytecode = True  # nothing but sources in the source tree
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import kernel_metadata as meta  # noqa: E402

NAMED = ('*_matrix_*', '*_group_*', 'matmul_tile_*', 'matmul_wide_*')
INSTRUCTIONS = ((r'gfx1[12]', r'\bv_s?wmma_'), (r'gfx9[04]', r'\bv_mfma_'), (r'sm_90a', r'\bwgmma\.mma_async\.'),
                (r'sm_[89]', r'\bmma\.'))

FLAT = r'\bflat_(load|store)'

# What an instruction leaves under way. Permutations of lanes use the LDS hardware but no LDS memory.
LDS = re.compile(r'ds_(?!bpermute|permute|swizzle|nop|gws|consume|append|ordered)\w+')
DIRECT = re.compile(r'(global|buffer)_load_lds|buffer_load_\w+ .*\blds$')
STORE = re.compile(r'(global|buffer)_(store|atomic)_')
INSTRUCTION = re.compile(r'(?m)^\t(\S+)[ \t]*(.*?)[ \t]*// *([0-9A-F]+):')
COMPUTED = ('s_setpc_b64', 's_swappc_b64', 's_call_b64')


def main():
    if len(sys.argv) != 2:
        sys.exit('usage: check_instructions.py build/rocmforge, or --self-test')
    if sys.argv[1] == '--self-test':
        return self_test()
    objdump = shutil.which('llvm-objdump-19') or shutil.which('llvm-objdump')
    listed = json.loads(output([sys.argv[1], 'kernels', '--json']))
    built = {kernel['target'] for kernel in listed['kernels']}
    targets = sorted(target for target in built if meta.SIBLINGS.get(target) not in built)
    wrong = checked = barriers = 0
    with tempfile.TemporaryDirectory() as folder:
        for target in targets:
            pattern = next((p for name, p in INSTRUCTIONS if re.match(name, target)), None)
            amd = not target.startswith('sm_')
            if not pattern and not amd:
                continue
            if amd and not objdump:
                sys.exit('check_instructions: llvm-objdump is not there: install llvm-19')
            place = os.path.join(folder, target)
            output([sys.argv[1], 'kernels', '--extract', target, place])
            used = set()
            for file in sorted(os.listdir(place)):
                if file.endswith('.json'):
                    continue
                kernels = kernels_of(os.path.join(place, file), objdump)
                used |= {kernel for kernel, code in kernels.items() if pattern and re.search(pattern, code)}
                if target == 'sm_90a':
                    for kernel, code in kernels.items():
                        problems = check_hopper(kernel, code)
                        wrong += len(problems)
                        for problem in problems:
                            print('%s: %s: %s' % (target, kernel, problem))
                if not amd:
                    continue
                if re.match('gfx9', target) and '.amdhsa_tg_split 1' in output(
                        [objdump, '-D', '-j', '.rodata', os.path.join(place, file)]):
                    wrong += 1
                    print('%s: %s: waves of a block may be on several compute units: the barrier rule does not cover '
                          'that' % (target, file))
                for kernel, code in kernels.items():
                    if re.search(FLAT, code):
                        wrong += 1
                        print('%s: %s has flat loads or stores' % (target, kernel))
                    found, problems = check_barriers(target, code)
                    barriers += found
                    wrong += len(problems)
                    for problem in problems:
                        print('%s: %s: %s' % (target, kernel, problem))
            for kernel in (k['kernel'] for k in listed['kernels'] if k['target'] == target) if pattern else ():
                named = any(fnmatch.fnmatch(kernel, name) for name in NAMED)
                checked += named
                if named != (kernel in used):
                    wrong += 1
                    print('%s: %s %s the matrix units' % (target, kernel, 'does not use' if named else 'uses'))
    print('%d kernels of %s use the matrix units, %d barriers, %d things are wrong' % (checked, ', '.join(targets), barriers,
                                                                                     wrong))
    return 1 if wrong or not checked else 0


def output(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit('check_instructions: %s: %s' % (' '.join(command), done.stderr.strip()))
    return done.stdout


def kernels_of(path, objdump):
    """The code of each kernel in a blob, as text."""
    if path.endswith('.ptx'):
        with open(path, encoding='utf-8') as file:
            text = file.read()
        start = r'(?m)^\s*(?:\.visible\s+)?\.entry\s+(\w+)'
    else:
        text = output([objdump, '-d', path])
        start = r'(?m)^[0-9a-f]+ <(\w+)>:'
    parts = re.split(start, text)
    return dict(zip(parts[1::2], parts[2::2]))


# ---- Hopper's own instructions ----

def check_hopper(kernel, code):
    """What is wrong with the PTX of a kernel for sm_90a."""
    problems = []
    if not re.search(r'\bwgmma\.mma_async\.', code):
        problems.append('it has no wgmma: build it for sm_90')
    if '.local' in code:
        problems.append('it keeps something in local memory')
    for block in re.split(r'(?m)^\$\w+:', code):
        for batch in re.split(r'wgmma\.commit_group', block):
            chains = re.findall(r'wgmma\.mma_async\.\S+ \{([^}]*)\}', batch)
            if len(set(chains)) > 1:
                problems.append('products in a row have different sums: registers are moved between them')
    if re.search(r'wgmma\.mma_async', code.partition('wgmma.fence')[0]):
        problems.append('products without a fence before them')
    if 'cp.async.bulk.tensor' in code and 'cvta.param' not in code:
        problems.append('a tensor map is not read where the arguments are')
    waits, traps = len(re.findall(r'mbarrier\.try_wait', code)), len(re.findall(r'\btrap;', code))
    if waits and not traps:
        problems.append('a wait that nothing ends')
    return problems


# ---- barriers ----

def left_under_way(target, op, operands):
    """The kinds of operations that an instruction begins and does not wait for."""
    if LDS.match(op):
        return {'an LDS operation'}
    if DIRECT.match(op + ' ' + operands):
        return {'a load into LDS'}
    if STORE.match(op) and not target.startswith('gfx9'):
        return {'a global store'}
    return set()


def waited_for(op, operands):
    """The kinds of operations of which none is under way behind an instruction."""
    done = set()
    if op == 's_waitcnt':
        done |= {'an LDS operation'} if 'lgkmcnt(0)' in operands else set()
        done |= {'a load into LDS'} if 'vmcnt(0)' in operands else set()
    elif op == 's_waitcnt_vscnt' and operands.endswith(' 0x0'):
        done.add('a global store')
    elif op.startswith('s_wait_') and re.fullmatch(r'0x[0-9a-f]+', operands):
        low, high = int(operands, 16) & 0x3f, int(operands, 16) >> 8
        parts = op[len('s_wait_'):].split('_')  # of two counts the first one is in the high half
        counts = dict(zip(parts, (high, low) if len(parts) == 2 else (low,)))
        done |= {'an LDS operation'} if counts.get('dscnt') == 0 else set()
        done |= {'a load into LDS'} if counts.get('loadcnt') == 0 else set()
        done |= {'a global store'} if counts.get('storecnt') == 0 else set()
    return done


def check_barriers(target, text):
    """How many barriers a kernel has, and what is wrong with them."""
    if 's_barrier' not in text:
        return 0, []
    code = [(int(at, 16), op, operands) for op, operands, at in INSTRUCTION.findall(text)]
    is_barrier = lambda op: op in ('s_barrier', 's_barrier_signal')
    count = sum(is_barrier(op) for _, op, _ in code)
    problems = ['%s at %x: the barriers behind it cannot be checked' % (op, at) for at, op, _ in code if op in COMPUTED]
    places = {at: index for index, (at, _, _) in enumerate(code)}
    jumps = {}  # index of a branch: index of its target
    for index, (at, op, operands) in enumerate(code):
        if op == 's_branch' or op.startswith('s_cbranch_'):
            distance = int(operands.split()[-1], 0)
            to = at + 4 + 4 * (distance - 0x10000 if distance > 0x7fff else distance)
            if to not in places:
                problems.append('a branch at %x leaves the kernel' % at)
            else:
                jumps[index] = places[to]
    cuts = set(jumps) | {index for index, (_, op, _) in enumerate(code) if op == 's_endpgm'}
    starts = sorted({0} | set(jumps.values()) | {index + 1 for index in cuts if index + 1 < len(code)})
    ends = starts[1:] + [len(code)]
    entering = {start: set() for start in starts}
    end_of = dict(zip(starts, ends))
    reached, todo = {0}, [0]
    while todo:
        start = todo.pop()
        state = set(entering[start])
        for _, op, operands in code[start:end_of[start]]:
            state = (state - waited_for(op, operands)) | left_under_way(target, op, operands)
        last = end_of[start] - 1
        following = [jumps[last]] if last in jumps else []
        if code[last][1] not in ('s_branch', 's_endpgm') and end_of[start] < len(code):
            following.append(end_of[start])
        for to in following:
            if to not in reached or not state <= entering[to]:
                reached.add(to)
                entering[to] |= state
                todo.append(to)
    for start in sorted(reached):
        state = set(entering[start])
        for at, op, operands in code[start:end_of[start]]:
            if is_barrier(op) and state:
                problems.append('the barrier at %x may be reached with %s under way' % (at, ' and '.join(sorted(state))))
            state = (state - waited_for(op, operands)) | left_under_way(target, op, operands)
    return count, problems


# name, target, listing (one instruction of 4 bytes a line, labels as "name:", branches name them), what is found
PLANTED = (
    ('a wait before the barrier', 'gfx942', 'ds_write_b32 v0, v1; s_waitcnt lgkmcnt(0); s_barrier; s_endpgm', None),
    ('no wait', 'gfx942', 'ds_write_b32 v0, v1; s_barrier; s_endpgm', 'an LDS operation'),
    ('a read without a wait', 'gfx942', 'ds_read_b128 v[0:3], v4; s_barrier; s_endpgm', 'an LDS operation'),
    ('the wait is behind the barrier', 'gfx942', 'ds_write_b32 v0, v1; s_barrier; s_waitcnt lgkmcnt(0); s_endpgm',
     'an LDS operation'),
    ('a wait for another counter', 'gfx942', 'ds_write_b32 v0, v1; s_waitcnt vmcnt(0); s_barrier; s_endpgm',
     'an LDS operation'),
    ('a wait for all but one', 'gfx942', 'ds_write_b32 v0, v1; s_waitcnt lgkmcnt(1); s_barrier; s_endpgm',
     'an LDS operation'),
    ('one write more behind the wait', 'gfx942',
     'ds_write_b32 v0, v1; s_waitcnt vmcnt(0) lgkmcnt(0); ds_write_b32 v0, v2; s_barrier; s_endpgm', 'an LDS operation'),
    ('a permutation', 'gfx942', 'ds_bpermute_b32 v0, v1, v2; s_barrier; s_endpgm', None),
    ('the wait on one of two paths', 'gfx942',
     'ds_write_b32 v0, v1; s_cbranch_scc1 over; s_waitcnt lgkmcnt(0); over: s_barrier; s_endpgm', 'an LDS operation'),
    ('a write on one of two paths', 'gfx942',
     's_cbranch_execz over; ds_write_b32 v0, v1; over: s_barrier; s_endpgm', 'an LDS operation'),
    ('the wait on both paths', 'gfx942',
     'ds_write_b32 v0, v1; s_cbranch_scc1 over; s_waitcnt lgkmcnt(0); s_branch on; over: s_waitcnt lgkmcnt(0); '
     'on: s_barrier; s_endpgm', None),
    ('from the end of a loop to its start', 'gfx942',
     'again: s_barrier; ds_read_b32 v0, v1; s_cbranch_scc1 again; s_endpgm', 'an LDS operation'),
    ('a loop that waits', 'gfx942',
     'again: s_barrier; ds_read_b32 v0, v1; s_waitcnt lgkmcnt(0); s_cbranch_scc1 again; s_endpgm', None),
    ('behind the end of the kernel', 'gfx942', 'ds_write_b32 v0, v1; s_endpgm; s_barrier; s_endpgm', None),
    ('a load into LDS', 'gfx942', 'global_load_lds_dword v[0:1], off; s_waitcnt lgkmcnt(0); s_barrier; s_endpgm',
     'a load into LDS'),
    ('a load into LDS, waited for', 'gfx942', 'global_load_lds_dword v[0:1], off; s_waitcnt vmcnt(0); s_barrier; s_endpgm',
     None),
    ('a buffer load into LDS', 'gfx942', 'buffer_load_dword v0, s[0:3], 0 offen lds; s_barrier; s_endpgm',
     'a load into LDS'),
    ('a global store on gfx9', 'gfx942', 'global_store_dword v[0:1], v2, off; s_barrier; s_endpgm', None),
    ('a computed jump', 'gfx942', 's_setpc_b64 s[0:1]; s_barrier; s_endpgm', 'cannot be checked'),
    ('no wait', 'gfx1100', 'ds_store_b32 v0, v1; s_barrier; s_endpgm', 'an LDS operation'),
    ('a global store', 'gfx1100', 'global_store_b32 v[0:1], v2, off; s_barrier; s_endpgm', 'a global store'),
    ('a global store, waited for', 'gfx1100',
     'global_store_b32 v[0:1], v2, off; s_waitcnt_vscnt null, 0x0; s_barrier; s_endpgm', None),
    ('no wait', 'gfx1201', 'ds_store_b32 v0, v1; s_barrier_signal -1; s_barrier_wait 0xffff; s_endpgm', 'an LDS operation'),
    ('a wait for another counter', 'gfx1201',
     'ds_store_b32 v0, v1; s_wait_loadcnt 0x0; s_barrier_signal -1; s_barrier_wait 0xffff; s_endpgm', 'an LDS operation'),
    ('two counters, one of them not 0', 'gfx1201',
     'ds_store_b32 v0, v1; s_wait_storecnt_dscnt 0x1; s_barrier_signal -1; s_barrier_wait 0xffff; s_endpgm',
     'an LDS operation'),
    ('two counters', 'gfx1201', 'global_store_b32 v[0:1], v2, off; ds_store_b32 v0, v1; s_wait_storecnt_dscnt 0x0; '
     's_barrier_signal -1; s_barrier_wait 0xffff; s_endpgm', None),
)


MULTIPLY = 'wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%s}, %%rd1, %%rd2, 1, 1, 1, 0, 0;\n'
HOPPER = 'cvta.param.u64 %rd3, p;\ncp.async.bulk.tensor.2d [%rd3];\nwgmma.fence.sync.aligned;\n' + MULTIPLY % '%f1, %f2'
# name, PTX, what is found
PLANTED_HOPPER = (
    ('a good one', HOPPER + MULTIPLY % '%f1, %f2' + 'mbarrier.try_wait p;\n$L__BB0_1:\n\ttrap;\n', None),
    ('no product', 'mma.sync.aligned;\n', 'it has no wgmma'),
    ('local memory', HOPPER + '.local .align 16 .b8 __local_depot0[128];\n', 'local memory'),
    ('sums that move', HOPPER + 'mov.f32 %f3, %f1;\n' + MULTIPLY % '%f3, %f2', 'different sums'),
    ('no fence', MULTIPLY % '%f1, %f2', 'without a fence'),
    ('two batches', HOPPER + 'wgmma.commit_group;\n' + MULTIPLY % '%f3, %f4', None),
    ('a copied map', HOPPER.replace('cvta.param.u64', 'cvta.to.global.u64'), 'where the arguments are'),
    ('an endless wait', HOPPER + 'mbarrier.try_wait p;\n', 'a wait that nothing ends'),
)


def self_test():
    wrong = 0
    for name, code, expected in PLANTED_HOPPER:
        problems = check_hopper(name, code)
        if bool(problems) != bool(expected) or (expected and expected not in problems[0]):
            wrong += 1
            print('self-test: sm_90a, %s: expected %r, found %r' % (name, expected, problems), file=sys.stderr)
    for name, target, listing, expected in PLANTED:
        lines, labels = [], {}
        for index, line in enumerate(listing.split('; ')):
            label, colon, rest = line.partition(': ')
            if colon:
                labels[label] = index
            lines.append((rest if colon else line).split(' ', 1))
        text = []
        for index, (op, *operands) in enumerate(lines):
            if 'branch' in op:
                operands = [str((labels[operands[0]] - index - 1) & 0xffff)]
            text.append('\t%s %s // %012X: 00000000' % (op, ''.join(operands), 0x1000 + 4 * index))
        problems = check_barriers(target, '\n'.join(text))[1]
        if bool(problems) != bool(expected) or (expected and expected not in problems[0]):
            wrong += 1
            print('self-test: %s, %s: expected %r, found %r' % (target, name, expected, problems), file=sys.stderr)
    count = len(PLANTED) + len(PLANTED_HOPPER)
    print('instructions: self-test, %d of %d cases right' % (count - wrong, count))
    return 1 if wrong else 0


if __name__ == '__main__':
    sys.exit(main())
