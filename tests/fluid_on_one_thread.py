"""Cores that pass for a GPU on which the fluid's kernels run: their own code, by one thread."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

from haloscope.device.cpu import CpuDevice, CpuKernel
from haloscope.device.jit import find_compiler, source_text
from haloscope.solvers.blood.fluid import SOURCE

_ONE_THREAD = """
#define FOR_EACH(i, n) for (long i = 0; i < (long)(n); i++)
#define FOR_EACH_FROM(i, n, backward)                                                    \\
  for (long i##_th = 0, i; i##_th < (long)(n) &&                                         \\
                           (i = (backward) ? (long)(n) - 1 - i##_th : i##_th, true);     \\
       i##_th++)
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


class PassingForGpu(CpuDevice):
    """Cores that run the code of GPUs, with the constants that a fluid asks for."""

    kind = "cuda"

    def __init__(self, folder):
        super().__init__(threads=1)
        self._folder, self._compiled = folder, {}

    def kernel(self, file, name, constants):
        key = tuple(sorted(constants.items()))
        if key not in self._compiled:
            prelude = Path(__file__).parent / "unit" / "one_thread_gpu.hpp"
            defined = "".join(f"#define {name} {value}\n" for name, value in key)
            text = source_text(SOURCE)
            for instruction, same in _CONVERSIONS.items():
                assert instruction in text
                text = text.replace(instruction, same)
            folder = self._folder / f"fluid-{len(self._compiled)}"
            folder.mkdir()
            text = defined + prelude.read_text() + _ONE_THREAD + text
            self._compiled[key] = compiled(folder, text, "-march=native")
        return CpuKernel(self._compiled[key][name])


class Compiled(CpuDevice):
    """Cores, under any name, with a library compiled before."""

    def __init__(self, library, kind):
        super().__init__(threads=1)
        self._library, self.kind = library, kind

    def kernel(self, file, name, constants):
        return CpuKernel(self._library[name])
