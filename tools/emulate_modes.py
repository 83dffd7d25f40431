"""How emulate_amd.py runs the waves of a kernel on the emulator.

The emulator gives a kernel what no GPU promises: registers and LDS that hold zeros, and waves that run one after the
other in the order of their numbers, each up to the next barrier. A mode takes that away:

  forward      waves and blocks in order, garbage in registers and LDS
  reversed     waves and blocks in reversed order, garbage
  interleaved  after 1 to 40 instructions a wave stops and any other wave of its block goes on; blocks in any order; garbage
  zeros        as the emulator does it: in order, zeros

Garbage is random bits, of which a quarter is NaN as f32, f16 and bf16. It fills what hardware leaves undefined when a
wave starts: all VGPRs and AGPRs but the thread's number in v0, that one too in lanes beyond the block's end; all SGPRs but
the arguments' address and the block's number; VCC, SCC, M0; and the LDS of each block. Everything depends on a seed.

In every mode
  - matrix instructions of gfx11 must find in lanes 16 to 31 what lanes 0 to 15 hold in the registers of A and B: hardware
    reads both halves, the emulator only the lower one;
  - matrix instructions must find all lanes active: hardware ignores the mask, the emulator does not;
  - nothing is written behind the LDS that the launch asked for;
  - f32 denormals are kept where the kernel's descriptor says so; the emulator by itself flushes them in every kernel.

run() stands in for run_asm of tinygrad's test/mockgpu/amd/emu.py and uses that file's decoder and instructions.
"""
import contextlib
import ctypes
import itertools
import struct
import zlib

import numpy as np

MODES = ('forward', 'reversed', 'interleaved', 'zeros')
DEFAULT = MODES[:3]
TURN = 40           # instructions that a wave runs at most before another one goes on, in mode interleaved
LDS_GUARD = 4096    # bytes behind the LDS of a block that must stay as they were
INSTRUCTIONS = 20_000_000  # of a block; more is taken for an endless loop
ONE_OVER_TWO_PI = 248, 0x3e22f983  # where the emulator keeps this constant and, by mistake, the wave's hardware number


class Wrong(Exception):
    """A kernel did what hardware does not define, or what this check does not allow."""


def garbage(random, count):
    words = random.integers(0, 1 << 32, count, dtype=np.uint32)
    words[random.integers(0, 4, count, dtype=np.uint8) == 0] |= 0x7fc07fc0
    return words


class Launch:
    """What is known of a launch before the emulator is called."""

    def __init__(self, emulator, program, mode, seed, lds_bytes, keep_denormals):
        self.emulator, self.program, self.mode, self.lds_bytes = emulator, program, mode, lds_bytes
        self.keep_denormals = keep_denormals
        self.random = np.random.default_rng(seed)

    def filled(self, count):
        return np.zeros(count, np.uint32) if self.mode == 'zeros' else garbage(self.random, count)

    # ---- a launch ----

    def run(self, lib, _lib_size, gx, gy, gz, lx, ly, lz, args_ptr, rsrc2=0x19c, scratch_size=0, arch='rdna3',
            user_data=None):
        if scratch_size:
            raise Wrong('uses private memory, which this check does not fill')
        blocks = list(itertools.product(range(gz), range(gy), range(gx)))
        if self.mode == 'reversed':
            blocks.reverse()
        elif self.mode == 'interleaved':
            self.random.shuffle(blocks)
        emu = self.emulator
        with contextlib.nullcontext() if self.keep_denormals else emu._MXCSRContext():
            for z, y, x in blocks:
                lds = self.filled((self.lds_bytes + LDS_GUARD + 3) // 4)
                behind = lds.view(np.uint8)[self.lds_bytes:].copy()
                waves = [Wave(self, lds, start, (lib, start, lx * ly * lz, lx, ly, lz, args_ptr, rsrc2, 0, arch, int(x),
                                                 int(y), int(z), user_data, emu._wave_size(arch)))
                         for start in range(0, lx * ly * lz, emu._wave_size(arch))]
                self.run_block(waves, arch)
                changed = np.flatnonzero(lds.view(np.uint8)[self.lds_bytes:] != behind)
                if changed.size:
                    raise Wrong('wrote %d bytes behind its %d bytes of LDS' % (changed[0], self.lds_bytes))
        return 0

    def run_block(self, waves, arch):
        """Barriers are counted: a wave that waits for its nth one goes on when every wave that has not ended has come to
        n barriers. On gfx12 coming and waiting are two instructions."""
        live, ready, left = list(range(len(waves))), list(range(len(waves))), INSTRUCTIONS
        came, waits = [0] * len(waves), [0] * len(waves)
        while live:
            if not ready:
                raise Wrong('all waves that have not ended wait for others at a barrier')
            number, turn = ready[-1 if self.mode == 'reversed' else 0], INSTRUCTIONS
            if self.mode == 'interleaved':
                number, turn = ready[self.random.integers(len(ready))], int(self.random.integers(1, TURN + 1))
                left -= turn
            stop = waves[number].run(turn, arch)
            if stop is None and (turn == INSTRUCTIONS or left < 0):
                raise Wrong('a block ran more than %d instructions' % INSTRUCTIONS)
            if stop is None:
                continue
            came[number] += stop == 'came'
            waits[number] += stop == 'waits' or (stop == 'came' and arch != 'rdna4')
            if stop == 'ended':
                live.remove(number)
            ready = [wave for wave in live if all(came[other] >= waits[wave] for other in live)]


class Wave:
    def __init__(self, launch, lds, start, arguments):
        self.launch, emu, arch = launch, launch.emulator, arguments[9]
        self.state = emu._init_wave(*arguments)
        size, state = self.state.wave_size, self.state
        state._write_sgpr(*ONE_OVER_TWO_PI)
        self.vgprs = np.asarray(state._vgpr_mv).reshape(256, size)
        self.sgprs = np.asarray(state._sgpr_mv)
        self.all_lanes = (1 << size) - 1
        if launch.mode != 'zeros':
            self.fill(arch, arguments[7], len(arguments[13] or (0, 0)))
        self.buffers = [ctypes.c_uint64(address) for address in (
            state.sgpr_buf._buf.va_addr, state.vgpr_buf._buf.va_addr, 0, lds.ctypes.data, 0, state.accvgpr_buf._buf.va_addr)]

    def fill(self, arch, rsrc2, user):
        """Garbage in all that hardware does not define when a wave starts."""
        state, emu = self.state, self.launch.emulator
        threads = self.vgprs[0, :state.n_lanes].copy()
        self.vgprs[:] = self.launch.filled(self.vgprs.size).reshape(self.vgprs.shape)
        self.vgprs[0, :state.n_lanes] = threads
        if state.accvgpr_buf is not state.vgpr_buf:
            other = np.asarray(state.accvgpr_buf.as_memoryview(force_zero_copy=True).cast('I'))
            other[:] = self.launch.filled(other.size)
        known = set(range(user)) | {126, 127}  # the arguments' address, EXEC
        if arch == 'rdna4':
            known |= {emu.ttmp[7].offset, emu.ttmp[9].offset}
        else:
            first = rsrc2 >> 1 & 31
            known |= set(range(first, first + bin(rsrc2 >> 7 & 7).count('1')))  # the block's number
        if arch != 'cdna':
            known.add(124)  # always reads as zero
        unknown = [register for register in range(128) if register not in known]
        self.sgprs[unknown] = self.launch.filled(len(unknown))
        self.sgprs[emu.SCC.offset] = self.launch.random.integers(2)

    def run(self, turn, arch):
        """Up to turn instructions: 'ended', 'came' to a barrier, 'waits' at one (gfx12), or None."""
        state, buffers, program, end = self.state, self.buffers, self.launch.program, self.launch.emulator.ENDPGM_PC
        for _ in range(turn):
            pc = state.pc
            if pc == end:
                return 'ended'
            entry = program.get(pc)
            if entry is None:
                entry = program[pc] = decoded(self.launch.emulator, pc, arch)
            function, which, stops, operands = entry
            if operands is not None:
                self.check_matrix(operands)
            function(*[buffers[i] for i in which])
            if stops:
                return stops
        return None

    def check_matrix(self, operands):
        """operands: the first registers of A and B and how many each has, where both halves of a wave are read."""
        active = int(self.sgprs[126]) | (int(self.sgprs[127]) << 32 if self.state.wave_size == 64 else 0)
        if active != self.all_lanes:
            raise Wrong('a matrix instruction with inactive lanes (EXEC is %x)' % active)
        for first, count in operands:
            registers = self.vgprs[first:first + count]
            if not np.array_equal(registers[:, :16], registers[:, 16:]):
                raise Wrong('a matrix instruction whose operand v%d to v%d differs between lanes 0 to 15 and 16 to 31' %
                            (first, first + count - 1))


def decoded(emu, pc, arch):
    """The emulator's function of an instruction, which buffers it takes, how it stops a wave, what check_matrix needs."""
    (prg, runtime), inst = emu._decode_at(pc, arch)
    stops, operands, name = None, None, emu._op_name(inst)
    if name in ('S_BARRIER', 'S_BARRIER_SIGNAL'):
        stops = 'came'
    elif name == 'S_BARRIER_WAIT':
        stops = 'waits'
    elif 'WMMA' in name or 'MFMA' in name:
        operands = ()
        if arch == 'rdna3':
            count = 2 if 'IU4' in name else 4 if 'IU8' in name else 8
            operands = tuple((source.offset - 256, count) for source in (inst.src0, inst.src1))
    return runtime.fxn, prg.arg.globals, stops, operands


def code_object_class(base, emulator):
    """base: the class CodeObject of AMD_EMU. A class whose launch takes a mode and a seed, too."""

    class Emulated(base):
        def __init__(self, path):
            super().__init__(path)
            self.program = {}  # of each address in this image, what decoded() gave

        def launch(self, kernel, *, mode, seed, shared=0, **rest):
            descriptor = self.syms[kernel + '.kd']
            group, = struct.unpack_from('<I', self.image, descriptor)
            rsrc1, = struct.unpack_from('<I', self.image, descriptor + 48)
            seed = zlib.crc32(('%s %s %d' % (kernel, mode, seed)).encode())
            launch = Launch(emulator, self.program, mode, seed, group + shared, rsrc1 >> 16 & 3 == 3)
            emulator.run_asm = launch.run
            super().launch(kernel, shared=shared, **rest)

    return Emulated
