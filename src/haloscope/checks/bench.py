"""Kernel rates beside ceilings measured in the same run, and the description of this machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np

from haloscope.device import open_device
from haloscope.device.ceilings import CeilingProbe, measure_ceilings
from haloscope.device.cpu import available_cores, processor_name
from haloscope.device.energy import EnergyMeter
from haloscope.errors import HaloscopeError, InputError
from haloscope.solvers import registry

_SECONDS = 0.25
_REPEATS = 5


def bench(
    solver: str | None = None, *, device: str = "auto", sizes: Sequence[int] | None = None
) -> dict[str, Any]:
    """Time the kernels of a solver, or of all.

    `solver`: name of a solver; all by default; `sizes`: nodes along an axis; the solver's own
    choice by default.
    """
    # Returns: ``device``, ``ceilings`` (GB/s), ``load`` and ``rows``: kernel, size, cells a second,
    # bytes a cell of the model, GB/s, and the fractions of the copy ceiling and of the best one
    # measured beside each timing: medians of the ratios, which noise moves least.
    names = [registry.check_name(solver)] if solver else list(registry.NAMES)
    _check_sizes(names, sizes or ())
    opened = open_device(device)
    probe = CeilingProbe(opened)
    rows = []
    for name in names:
        for kernel in registry.kernels(name).kernels(opened, sizes):
            launches = 1
            opened.seconds(kernel.launch)
            once = opened.seconds(kernel.launch)
            launches = max(1, int(_SECONDS / _REPEATS / max(once, 1e-7)))

            def many(launch: Any = kernel.launch, count: int = launches) -> None:
                for _ in range(count):
                    launch()

            size = kernel.cells * kernel.bytes_per_cell / 1e9
            times, of_copy, of_best = [], [], []
            for _ in range(_REPEATS):
                times.append(opened.seconds(many) / launches)
                beside = probe.measure()
                of_copy.append(size / times[-1] / beside.copy)
                of_best.append(size / times[-1] / beside.best)
            taken = statistics.median(times)
            rows.append(
                {
                    "solver": name,
                    "kernel": kernel.name,
                    "size": kernel.size,
                    "mcells_s": kernel.cells / taken / 1e6,
                    "bytes_per_cell": kernel.bytes_per_cell,
                    "gb_s": size / taken,
                    "fraction_of_copy": statistics.median(of_copy),
                    "fraction": statistics.median(of_best),
                }
            )
    return {
        "device": opened.name,
        "ceilings": probe.measure(_REPEATS).as_dict(),
        "load": os.getloadavg()[0],
        "rows": rows,
    }


def _check_sizes(names: Sequence[str], sizes: Sequence[int]) -> None:
    """Refuse sizes that a solver's kernels do not take, before any of them is timed."""
    least, largest = max((registry.kernels(name).LEAST_SIZE, name) for name in names)
    for size in sizes:
        if size < least:
            raise InputError(
                f"it is too small for the benchmarks of {largest}",
                location=f"--nodes {size}",
                allowed=f"{least} or more",
                remedy="name another solver" if len(names) > 1 else "",
            )


def table(result: dict[str, Any]) -> str:
    """The result of :func:`bench` as text."""
    ceilings = result["ceilings"]
    lines = [
        f"{result['device']}, load {result['load']:.2f}",
        f"ceilings in GB/s: copy {ceilings['copy']:.4g}, update {ceilings['update']:.4g}, "
        f"triad {ceilings['triad']:.4g}",
        f"{'kernel':<28}{'nodes':>14}{'Mcells/s':>10}{'B/cell':>8}{'GB/s':>8}{'of copy':>9}"
        f"{'of best':>9}",
    ]
    lines += [
        f"{row['solver'] + ' ' + row['kernel']:<28}{row['size']:>14}{row['mcells_s']:>10.4g}"
        f"{row['bytes_per_cell']:>8.4g}{row['gb_s']:>8.4g}{row['fraction_of_copy']:>9.2f}"
        f"{row['fraction']:>9.2f}"
        for row in result["rows"]
    ]
    return "\n".join(lines)


def _libraries() -> dict[str, str]:
    """Versions of Python and of the libraries that compute, write files and send messages."""
    import h5py

    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "hdf5": f"{h5py.version.hdf5_version} (h5py {h5py.__version__})",
    }


def _mpi_library() -> str:
    """Name and version of mpi4py's MPI, which this process does not load."""
    from haloscope.exchange.ranks.mpiexec import mpi_of_mpi4py

    flavour, release, _ = mpi_of_mpi4py()
    try:
        binding = f"(mpi4py {importlib.metadata.version('mpi4py')})"
    except importlib.metadata.PackageNotFoundError:
        binding = "(mpi4py)"
    return " ".join(part for part in (flavour, release, binding) if part)


def machine() -> dict[str, Any]:
    """Text and numbers that describe this machine; missing parts are named, not raised."""
    from haloscope.device.jit import find_compiler
    from haloscope.exchange.ranks.mpiexec import find_mpiexec
    from haloscope.run.summary import version

    def tried(call: Any) -> Any:
        try:
            return call()
        except HaloscopeError as error:
            return f"none: {error}"

    cpu = open_device("cpu")
    free, total = cpu.memory()
    description: dict[str, Any] = {
        "haloscope": version(),
        "processor": processor_name(),
        "cores": available_cores(),
        "memory": f"{free / 1e9:.1f} GB free of {total / 1e9:.1f} GB",
        "compiler": tried(lambda: find_compiler().name),
        **_libraries(),
        "mpi": tried(_mpi_library),
        "mpiexec": tried(lambda: str(find_mpiexec().path)),
        "ceilings": tried(lambda: measure_ceilings(cpu).as_dict()),
        "energy": EnergyMeter(cpu).source,
    }
    gpu = tried(lambda: open_device("cuda"))
    if isinstance(gpu, str):
        description["gpu"] = gpu
    else:
        description["gpu"] = f"{gpu.count} x {gpu.name} ({gpu.architecture})"
        description["gpu ceilings"] = measure_ceilings(gpu).as_dict()
        description["gpu energy"] = EnergyMeter(gpu).source
    return description
