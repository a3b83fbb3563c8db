"""Runs the GPU branches of kernels on cores: the threads of a block are threads of the processor."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path
from typing import Any

from haloscope.device import jit
from haloscope.device.cpu import CpuDevice, CpuKernel, launch_of
from haloscope.device.declarations import Declarations, separated

_MOST_BLOCKS = 2
_WORDS = """
#define SHARED(type, name, count) static type name[count]
#define PRIVATE(type, name, count) type name
#define MINE(name, i) name
#define FOR_EACH(i, n)                                                             \\
  for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < (long)(n);        \\
       i += (long)gridDim.x * blockDim.x)
#define PARTS(k, n) FOR_EACH(k, n)
#define THREADS2(j, i, nj, ni)                                                     \\
  for (int j = threadIdx.x / (ni); j < (int)(nj); j += blockDim.x / (ni))          \\
    for (int i = threadIdx.x % (ni), once = 1; once; once = 0)
struct alignas(16) double2 { double x, y; };
struct alignas(8) float2 { float x, y; };
template <typename T>
static T __ldcs(const T *p) { return *p; }
static void atomic_add(long *p, long v) { __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
static double absolute(double a) { return std::fabs(a); }
static double larger(double a, double b) { return a > b ? a : b; }
static double of_lane(double value, int lane) {
  const int warp = threadIdx.x / 32;
  exchanged[warp][0][threadIdx.x % 32] = value;
  warps[warp]->arrive_and_wait();
  const double other = exchanged[warp][0][lane];
  warps[warp]->arrive_and_wait();
  return other;
}
static double __shfl_xor_sync(unsigned, double value, int mask) {
  return of_lane(value, threadIdx.x % 32 ^ mask);
}
static double __shfl_sync(unsigned, double value, int lane, int width) {
  return of_lane(value, threadIdx.x % 32 / width * width + lane);
}
"""
_KERNEL = re.compile(r"^KERNEL(_BOUNDS)?\((.*?)\) \{", re.MULTILINE | re.DOTALL)


def run_functions(text: str, declarations: Declarations, more: str, launch: str) -> str:
    """A function `run_NAME` for each kernel: its own parameters after `more`, and a call inside `launch`."""
    written: dict[str, str] = {}
    for match in _KERNEL.finditer(text):
        name, *parameters = separated(match[2])[1 if match[1] else 0 :]
        if name not in declarations.kernels:
            continue
        # Of several that have this name the first that is declared so; macros stand for what they hold.
        declared = {argument.name for argument in declarations.kernels[name].arguments}
        names = {match[1] for one in parameters if (match := re.search(r"(\w+)\)$", one))}
        if names <= declared:
            written.setdefault(name, "".join(f", {parameter}" for parameter in parameters))
    runs = []
    for name, kernel in declarations.kernels.items():
        call = f"{name}({', '.join(argument.name for argument in kernel.arguments)})"
        parameters = f"{more}{written[name]}".removeprefix(", ")
        runs.append(f'extern "C" void run_{name}({parameters}) {{ {launch.format(call)} }}')
    return "\n".join(runs)


class ThreadsGpu(CpuDevice):
    """Runs the GPU branch of kernels: the threads of a block are threads here, see threads_gpu.hpp."""

    def __init__(self, folder: Path) -> None:
        super().__init__(threads=1)
        self._folder, self._built = folder, {}

    def kernel(self, file: Path, name: str, constants: Any) -> Any:
        key = jit.kernel_hash(file, constants)
        if key not in self._built:
            self._built[key] = self._build(file, constants, self._folder / key)
        declaration = jit.declarations(file, constants, on_gpu=True).kernel(name)
        return _Kernel(self._built[key][f"run_{name}"], declaration)

    def _build(self, file: Path, constants: Any, place: Path) -> ctypes.CDLL:
        text = jit.source_text(file)
        defined = "".join(f"#define {name} {value}\n" for name, value in constants.items())
        prelude = (Path(__file__).parent / "unit" / "threads_gpu.hpp").read_text()
        runs = run_functions(
            text,
            jit.declarations(file, constants, on_gpu=True),
            "long of_blocks, long of_threads, long of_shared",
            "if (!launch(of_blocks, of_threads, of_shared, [=] {{ {}; }})) abort();",
        )
        source, built = place.with_suffix(".cpp"), place.with_suffix(".so")
        source.write_text(
            "\n".join([jit.DECLARATIONS.read_text(), prelude, _WORDS, defined, text, runs])
        )
        flags = ("-std=c++20", "-O1", "-w", "-shared", "-fPIC", "-pthread", "-ffp-contract=off")
        command = [*jit.find_compiler().command, *flags, "-o", str(built), str(source)]
        subprocess.run(command, check=True)
        return ctypes.CDLL(str(built))


class _Kernel(CpuKernel):
    def bind(
        self,
        *,
        extent: Any,
        block: Any = (64,),
        shared: int = 0,
        stream: Any = None,
        **arguments: Any,
    ) -> Any:
        # Fewer blocks than asked for: they go round.
        blocks = min(-(-extent[0] // block[0]), _MOST_BLOCKS)
        launch = int(blocks), int(block[0]), int(shared)
        return launch_of(self._function, [*launch, *self.declaration.order(arguments)])
