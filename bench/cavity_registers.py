"""Prints the registers and local memory of the cavity's tiled update, without a GPU.

    python bench/cavity_registers.py --nvdisasm nvdisasm

For both tiles, precisions and time steps, and the axes in each order that cases come to (rows, rows of
a plane, planes), with the cuts that they have there: registers, bytes of the stack and, where a
disassembler is given, loads and stores of local memory between a plane's gate and the end of its column;
there should be none. Versions of NVRTC differ in it: LD_PRELOAD takes another one.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from haloscope.case.tables import check
from haloscope.device import jit
from haloscope.device.declarations import Constants
from haloscope.solvers.cavity import block_nodes
from haloscope.solvers.cavity.block_nodes import SOURCE, kernel_constants
from haloscope.solvers.cavity.case import CavityCase, Flow

# Orders of the axes, and axes that are cut.
CASES = (
    ((0, 1, 2), ()),
    ((0, 1, 2), (1,)),
    ((0, 2, 1), (2,)),
    ((1, 0, 2), (0,)),
    ((0, 1, 2), (1, 2)),
    ((2, 1, 0), ()),
    ((2, 1, 0), (0, 1)),
)
_OF_UPDATE = re.compile(r"update_tiles.*?(\d+) bytes stack frame.*?Used (\d+) registers", re.DOTALL)
_LOCAL = re.compile(r"\b(STL|LDL)\b")


def compiled(constants: Constants, architecture: str) -> tuple[str, bytes]:
    """What the assembler says of all kernels of the source, and their cubin."""
    from cuda.bindings import nvrtc

    text = jit.assemble(SOURCE, constants)
    options = (f"--gpu-architecture={architecture}", *jit._CUDA_FLAGS, "--ptxas-options=-v")

    def sized(ask: Any, fetch: Any) -> bytes:
        _, size = ask(program)
        buffer = b" " * size
        fetch(program, buffer)
        return buffer

    _, program = nvrtc.nvrtcCreateProgram(text.encode(), SOURCE.name.encode(), 0, [], [])
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])
    log = sized(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog).decode()
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise SystemExit(log)
    return log, sized(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)


def local_memory_of_planes(cubin: bytes, nvdisasm: str) -> int:
    """Loads and stores of local memory from the wait for a plane to the first fence behind it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "update.cubin"
        file.write_bytes(cubin)
        done = subprocess.run(
            [nvdisasm, "-c", str(file)], capture_output=True, text=True, check=True
        )
    body = done.stdout.partition(".text.update_tiles")[2].partition("\n.section")[0]
    planes = body.partition("TRYWAIT")[2].partition("MEMBAR.SC.SYS")[0]
    # The last barrier is the column's end: only what is before it comes plane by plane.
    return len(_LOCAL.findall(planes.rpartition("BAR.SYNC")[0].rpartition("BRA")[0]))


def main() -> None:
    """Print a line a kernel."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--architecture", default="sm_90")
    parser.add_argument("--nvdisasm", help="the disassembler of the CUDA toolkit")
    options = parser.parse_args()
    for precision in ("double", "single"):
        for mode in ("global", "local"):
            table = {"nodes": 64, "time_step": mode, "precision": precision}
            case = check({"solver": "cavity", "cavity": table}, CavityCase, "benchmark")
            assert isinstance(case, CavityCase)
            for axes, cut in CASES:
                constants = kernel_constants(Flow(case.cavity), "cuda", axes, cut)
                for tiles in (block_nodes.TILES, block_nodes.LARGE_TILES):
                    tile = tiles[str(constants["real"])]
                    every = {**constants, **block_nodes.tile_constants(tile)}
                    log, cubin = compiled(every, options.architecture)
                    match = _OF_UPDATE.search(log)
                    stack, registers = match.groups() if match else ("?", "?")
                    local_memory = ""
                    if options.nvdisasm:
                        count = local_memory_of_planes(cubin, options.nvdisasm)
                        local_memory = f", local memory {count} times a plane"
                    print(
                        f"{precision} {mode:6} axes {axes} cut {cut!s:6} tile {tile.x}x{tile.y}: "
                        f"{registers} registers, stack {stack} B{local_memory}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
