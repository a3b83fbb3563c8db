"""Cores that pass for a GPU on which the fluid's kernels run: their own code, by one thread or by warps."""

from __future__ import annotations

import ctypes
import subprocess
from dataclasses import replace
from pathlib import Path

from gpu_branches import run_functions

from haloscope.device import jit
from haloscope.device.cpu import CpuDevice, CpuKernel
from haloscope.device.jit import find_compiler, source_text
from haloscope.solvers.blood.fluid.fluid import SOURCE

_ONE_THREAD = """
#define FOR_EACH(i, n) for (long i = 0; i < (long)(n); i++)
#define FOR_EACH_FROM(i, n, backward)                                                    \\
  for (long i##_th = 0, i; i##_th < (long)(n) &&                                         \\
                           (i = (backward) ? (long)(n) - 1 - i##_th : i##_th, true);     \\
       i##_th++)
#define SHARED(type, name, count) static type name[count]
static const struct { unsigned x; } threadIdx = {0};
INLINE void __syncwarp() {}
INLINE int __shfl_sync(unsigned, int value, int) { return value; }
INLINE void wait_for_launches_before() {}
INLINE void let_next_launch_begin() {}
template <typename T>
INLINE T load_with_line(const T *p) { return *p; }
INLINE float absolute(float a) { return std::fabs(a); }
#define PARTS(k, n) for (long k = 0; k < (long)(n); k++)
"""


def compiled(folder, text, *flags):
    """A library of kernels that the program itself would compile otherwise."""
    source, library = folder / "fluid.cpp", folder / "fluid.so"
    source.write_text(text)
    always = ["-std=c++17", "-O1", "-ffp-contract=off", "-fno-math-errno", "-shared", "-fPIC"]
    command = [*find_compiler().command, *always, *flags, "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))


# What instructions of GPUs do, by the type that cores have.
_CONVERSIONS = {
    'asm("cvt.f32.f16 %0, %1;" : "=f"(a) : "h"(bits));': (
        "_Float16 half; __builtin_memcpy(&half, &bits, 2); a = half;"
    ),
    'asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(rounded_for_half(a * SCALE)));': (
        "_Float16 half = (_Float16)rounded_for_half(a * SCALE); __builtin_memcpy(&bits, &half, 2);"
    ),
}


# What the kernel itself has of a GPU, and how blocks of two warps run it.
_BY_WARPS = """
#define SHARED(type, name, count) static type name[count]
#define FOR_EACH_FROM(i, n, backward)                                                    \\
  for (long i = ((backward) ? gridDim.x - 1 - blockIdx.x : blockIdx.x) *                 \\
                    (long)blockDim.x + threadIdx.x;                                      \\
       i < (long)(n); i += (long)gridDim.x * blockDim.x)
#define FOR_EACH(i, n) FOR_EACH_FROM(i, n, false)
#define PARTS(k, n) FOR_EACH(k, n)
INLINE void __syncwarp() { warps[threadIdx.x / 32]->arrive_and_wait(); }
INLINE int __shfl_sync(unsigned, int value, int from) {
  const int warp = threadIdx.x / 32;
  exchanged[warp][0][threadIdx.x % 32] = value;
  __syncwarp();
  const int found = exchanged[warp][0][from];
  __syncwarp();
  return found;
}
INLINE void wait_for_launches_before() {}
INLINE void let_next_launch_begin() {}
template <typename T>
INLINE T load_with_line(const T *p) { return *p; }
INLINE float absolute(float a) { return std::fabs(a); }
"""
_RUN_BY_WARPS = "launch((count + 63) / 64, 64, 0, [=] {{ {}; }});"


class PassingForGpu(CpuDevice):
    """Cores that run the code of GPUs, with the constants that a fluid asks for.

    Warps are of one thread: `boundaries.WARP` is to say so. `by_warps`: steps between two buffers with walls
    inside go by warps of 32 threads, each a thread of the processor.
    """

    kind = "cuda"

    def __init__(self, folder, by_warps=False):
        super().__init__(threads=1)
        self._folder, self._by_warps, self._compiled = folder, by_warps, {}

    def kernel(self, file, name, constants):
        by_warps = self._by_warps and name == "advance_across"
        declared = jit.declarations(file, constants, on_gpu=True)
        key = (by_warps, *sorted(constants.items()))
        if key not in self._compiled:
            prelude = Path(__file__).parent / "unit" / "one_thread_gpu.hpp"
            defined = "".join(f"#define {name} {value}\n" for name, value in key[1:])
            text = source_text(SOURCE)
            for instruction, same in _CONVERSIONS.items():
                assert instruction in text
                text = text.replace(instruction, same)
            folder = self._folder / f"fluid-{len(self._compiled)}"
            folder.mkdir()
            words, runs, flags = _ONE_THREAD, "", ("-march=native",)
            if by_warps:
                prelude = prelude.with_name("threads_gpu.hpp")
                only = replace(declared, kernels={name: declared.kernel(name)})
                words, runs = _BY_WARPS, run_functions(text, only, "", _RUN_BY_WARPS)
                flags = ("-std=c++20", "-w", "-pthread")
            parts = (defined, jit.DECLARATIONS.read_text(), prelude.read_text(), words, text, runs)
            text = "\n".join(parts)
            self._compiled[key] = compiled(folder, text, *flags)
        run = f"run_{name}" if by_warps else name
        return CpuKernel(self._compiled[key][run], declared.kernel(name))


class Compiled(CpuDevice):
    """Cores, under any name, with a library compiled before."""

    def __init__(self, library, kind):
        super().__init__(threads=1)
        self._library, self.kind = library, kind

    def kernel(self, file, name, constants):
        declaration = jit.declarations(file, constants, on_gpu=False).kernel(name)
        return CpuKernel(self._library[name], declaration)
