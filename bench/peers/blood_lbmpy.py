"""The fluid's step in lbmpy, for bench/blood_against_lbmpy.py: answers a line of JSON to each line.

D3Q19, two relaxation times, one array updated in place: patterns AA and esoteric pull. Timed are lbmpy's
kernels alone, and whole steps of a periodic box: kernels and its handling of the ends.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import lbmpy
import pystencils
from cpuinfo import get_cpu_info
from lbmpy import LBMConfig, LBMOptimisation, LBStencil, Method, Stencil, create_lb_function
from lbmpy.advanced_streaming import LBMPeriodicityHandling, Timestep


def _flags() -> list[str]:
    """What this processor offers."""
    flags: list[str] = get_cpu_info()["flags"]
    return flags


class Peer:
    """Kernels of both parities and their array."""

    def __init__(self, points: int, threads: int, pattern: str, real: str) -> None:
        stencil = LBStencil(Stencil.D3Q19)
        dtype = {"double": "float64", "single": "float32"}[real]
        self._data = pystencils.create_data_handling(
            domain_size=(points,) * 3,
            default_layout="fzyx",
            default_target=pystencils.Target.CPU,
            periodicity=True,
        )
        field = self._data.add_array("pdfs", values_per_cell=19, dtype=dtype, alignment=64)
        self._data.fill("pdfs", 0.0, ghost_layers=True)
        self._kernels = {
            step: self._kernel(stencil, field, pattern, step, threads, dtype)
            for step in (Timestep.EVEN, Timestep.ODD)
        }
        self._ends = LBMPeriodicityHandling(stencil, self._data, "pdfs", streaming_pattern=pattern)

    def _kernel(
        self, stencil: Any, field: Any, pattern: str, step: Any, threads: int, dtype: str
    ) -> Any:
        method = LBMConfig(
            stencil=stencil,
            method=Method.TRT,
            relaxation_rates=[1 / 0.6, 1 / (3 / 16 / 0.1 + 0.5)],
            compressible=True,
            zero_centered=True,
            streaming_pattern=pattern,
            timestep=step,
        )
        machine = pystencils.CreateKernelConfig(
            target=pystencils.Target.X86_AVX512
            if "avx512f" in _flags()
            else pystencils.Target.X86_AVX,
            default_dtype=dtype,
        )
        machine.cpu.openmp.enable = True
        machine.cpu.openmp.num_threads = threads
        machine.cpu.vectorize.enable = True
        machine.cpu.vectorize.assume_inner_stride_one = True
        return create_lb_function(
            lbm_config=method,
            lbm_optimisation=LBMOptimisation(symbolic_field=field, symbolic_temporary_field=field),
            config=machine,
        )

    def seconds_per_step(self, steps: int, *, with_ends: bool = False) -> float:
        """Time pairs of an even and an odd step."""
        start = time.perf_counter()
        for _ in range(steps):
            for step, kernel in self._kernels.items():
                self._data.run_kernel(kernel)
                if with_ends:
                    self._ends(step)
        return (time.perf_counter() - start) / (2 * steps)


def main() -> None:
    """Answer until told to quit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=5, help="of steps, a timing")
    parser.add_argument("--real", choices=["double", "single"], default="double")
    options = parser.parse_args()
    peers = {
        pattern: Peer(options.points, options.threads, pattern, options.real)
        for pattern in ("aa", "esopull")
    }
    for peer in peers.values():
        peer.seconds_per_step(1)
    for line in sys.stdin:
        word = line.strip()
        if word == "quit":
            return
        if word == "info":
            answer: dict[str, Any] = {"lbmpy": lbmpy.__version__, "threads": options.threads}
        else:
            answer = {}
            for name, peer in peers.items():
                answer[name] = peer.seconds_per_step(options.pairs)
                answer[f"{name} with ends"] = peer.seconds_per_step(options.pairs, with_ends=True)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
