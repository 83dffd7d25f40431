"""Kernels with one known fault each, for tools/emulate_amd.py --self-test: the modes of emulate_modes.py find it.

Each kernel is compiled for the target and runs in every mode. Listed are the modes in which its output must be wrong or
its run refused; in all others it must pass. The kernels without a fault show that the modes refuse nothing else.
"""
import os
import subprocess
import sys

import numpy as np

SOURCE = r'''/* Planted faults. Blocks of 128 threads; out and in are of the same length. */
#include "kernels/kernel.h"

typedef _Float16 half16 __attribute__((ext_vector_type(16)));
typedef _Float16 half8 __attribute__((ext_vector_type(8)));
typedef _Float16 half4 __attribute__((ext_vector_type(4)));
typedef float float8 __attribute__((ext_vector_type(8)));
typedef float float4_ __attribute__((ext_vector_type(4)));

#define PLANT(name) RF_KERNEL(name, 128, (float *, out), (const float *, in), (uint32_t, never))
#define WHERE uint32_t me = rf_thread_x(), at = rf_block_x() * 128 + me; (void)me; (void)at; (void)never

PLANT(good) {
    RF_SHARED(float, room, 128);
    WHERE;
    room[me] = in[at];
    rf_barrier();
    float other = room[me ^ 64];
    rf_barrier();
    room[me] = other;
    rf_barrier();
    out[at] = room[me ^ 64];
}
PLANT(lower_waves_unawaited) {
    RF_SHARED(float, room, 128);
    WHERE;
    room[me] = in[at];
    out[at] = me < 64 ? in[at] : room[me - 64] - in[at - 64] + in[at];
}
PLANT(upper_waves_unawaited) {
    RF_SHARED(float, room, 128);
    WHERE;
    room[me] = in[at];
    out[at] = me >= 64 ? in[at] : room[me + 64] - in[at + 64] + in[at];
}
PLANT(counted_without_atomics) {
    RF_SHARED(uint32_t, room, 1);
    WHERE;
    if (me == 0) room[0] = 0;
    rf_barrier();
    RF_NO_UNROLL
    for (uint32_t i = 0; i < 100; i++) {
        if (rf_lane() == 0) room[0] = room[0] + 1;
        __asm__ volatile("" ::: "memory"); /* each addition is a load and a store */
    }
    rf_barrier();
    out[at] = room[0] == 100 * (128 / RF_WAVE) ? in[at] : 0.0f;
}
PLANT(blocks_in_order) {
    WHERE;
    out[at] = rf_block_x() && ((volatile float *)out)[me] != in[me] ? 0.0f : in[at];
}
PLANT(shared_unwritten) {
    RF_SHARED(float, room, 128);
    WHERE;
    if (never) room[me] = in[at];
    rf_barrier();
    out[at] = room[me ^ 1] + in[at];
}
PLANT(vector_register_unwritten) {
    WHERE;
    uint32_t zero;
    __asm__ volatile("v_mov_b32 %0, v90" : "=v"(zero)::"v90");
    out[at] = zero ? 0.0f : in[at];
}
PLANT(scalar_register_unwritten) {
    WHERE;
    uint32_t zero;
    __asm__ volatile("s_mov_b32 %0, s90" : "=s"(zero)::"s90");
    out[at] = zero ? 0.0f : in[at];
}
PLANT(behind_shared) {
    RF_SHARED_DYNAMIC(float, room);
    WHERE;
    room[me] = in[at];
    if (me == 5) room[128] = in[at];
    rf_barrier();
    out[at] = room[me];
}
PLANT(denormals_kept) {
    WHERE;
    float tiny = rf_f32_of_bits(0x00800000u + never) * 0.5f;
    out[at] = rf_bits_of_f32(tiny) == 0x00400000u ? in[at] : 0.0f;
}
/* A product of zeros, which changes nothing; word 3 of A is other in the upper half of a wave. */
RF_DEVICE float product(uint32_t half, float add) {
#if defined(__gfx11__) || defined(__GFX11__)
    half16 a = {0}, b = {0};
    float8 sums = {0};
    a[3] = half ? 1.0f : 0.0f;
    return add + __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, sums)[0];
#elif defined(__GFX12__)
    half8 a = {0}, b = {0};
    float8 sums = {0};
    a[3] = half ? 1.0f : 0.0f;
    return add + __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, sums)[0];
#else
    half4 a = {0}, b = {0};
    float4_ sums = {0};
    a[3] = half ? 1.0f : 0.0f;
    return add + __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, sums, 0, 0, 0)[0];
#endif
}
PLANT(matrix_good) {
    WHERE;
    out[at] = product(rf_lane() % 16 == 3, in[at]);
}
PLANT(matrix_halves_differ) {
    WHERE;
    out[at] = product(rf_lane() / 16 % 2, in[at]);
}
PLANT(matrix_lanes_inactive) {
    WHERE;
    out[at] = in[at];
    if (rf_lane() != 7) out[at] = product(never, in[at]);
}
'''

EVERY = ('forward', 'reversed', 'interleaved', 'zeros')
ORDERS = {'lower_waves_unawaited': ('reversed', 'interleaved'), 'upper_waves_unawaited': ('forward', 'interleaved', 'zeros'),
          'counted_without_atomics': ('interleaved',), 'blocks_in_order': ('reversed',)}
GARBAGE = ('shared_unwritten', 'vector_register_unwritten', 'scalar_register_unwritten')
GOOD = ('good', 'matrix_good', 'denormals_kept')


def modes_that_find(kernel, target):
    if kernel in GOOD or (kernel == 'matrix_halves_differ' and not target.startswith('gfx11')):
        return ()
    return EVERY[:3] if kernel in GARBAGE else ORDERS.get(kernel, EVERY)


def self_test(code_object, wrong_type, target, folder):
    """How many of the runs came out as they should, and how many not."""
    here = os.path.dirname(os.path.abspath(__file__))
    source, blob = (os.path.join(folder, 'planted.' + end) for end in ('hip', target + '.hsaco'))
    with open(source, 'w', encoding='utf-8') as file:
        file.write(SOURCE)
    subprocess.run([sys.executable, os.path.join(here, 'build_kernels.py'), 'device', source, '--target', target, '--include',
                    os.path.join(here, '..', 'src'), '--out', blob, '--metadata', blob + '.json'], check=True)
    planted, right, unexpected = code_object(blob), 0, 0
    kernels = [name[:-3] for name in sorted(planted.syms) if name.endswith('.kd')]
    for kernel in kernels:
        for mode in EVERY:
            numbers = np.arange(1, 257, dtype=np.float32)
            out, found = np.zeros_like(numbers), None
            try:
                planted.launch(kernel, grid=(2, 1, 1), block=(128, 1, 1), args=[out, numbers, np.uint32(0)],
                               shared=512 if kernel == 'behind_shared' else 0, mode=mode, seed=0)
                if (out != numbers).any():
                    found = 'output differs'
            except wrong_type as error:
                found = str(error)
            should = mode in modes_that_find(kernel, target)
            if bool(found) == should:
                right += 1
            else:
                unexpected += 1
                print('self-test: %s: %s, mode %s: %s' % (target, kernel, mode, found or 'the fault was not found'))
    print('%-8s self-test, %d planted kernels' % (target, len(kernels)))
    return right, unexpected
