"""Kernels of cases compiled into the cache before a run, kernels of solvers timed, and the description of this machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from haloscope.case.tables import CaseTable
from haloscope.device import jit, meters, open_device, require_known
from haloscope.device.cpu import available_cores, processor_name
from haloscope.device.cuda import architectures_in_sight
from haloscope.device.declarations import Constants
from haloscope.device.jit import Cache
from haloscope.device.meters import CeilingProbe, EnergyMeter, measure_ceilings
from haloscope.device.targets import CORES, HostFile, KernelFile, KnownTarget
from haloscope.errors import HaloscopeError, InputError, MachineError
from haloscope.solvers import registry


@dataclass(frozen=True)
class CompiledFile:
    """A kernel file that was compiled, or found in the cache."""

    file: str  # Name of the source
    constants: Constants
    hash: str  # As in summaries; see :func:`haloscope.device.jit.kernel_hash`
    target: str  # ``cpu``, or an architecture such as ``sm_90``
    seconds: float  # Time that it took
    cached: bool  # Whether it was in the cache already


def build(
    case: CaseTable,
    *,
    device: str | None = None,
    architectures: Sequence[str] = (),
    ranks: int = 1,
    log: Callable[[CompiledFile], None] | None = None,
) -> dict[str, Any]:
    """Compile the kernels of a case for cores like those of this machine, or for GPUs.

    The kernel files follow from the case, the target and the number of ranks, without a mesh or fields.
    """
    # `device`: ``cpu``, ``cuda`` (the GPUs of this machine) or ``auto`` (those, or the cores where
    # there are none), in place of the case's own.
    # Returns: ``files``: for each compiled file its ``file``, ``target`` (``cpu`` or the
    # architecture), ``constants``, ``hash``, ``seconds`` and ``cached``; ``kernels``: names of the
    # kernels in them, by source; ``folder``: the cache; ``ranks``; ``notes``: sentences on
    # what the files are good for.
    registry.check_ranks(case, ranks)
    targets, notes = _targets(device, case.machine.device, architectures)
    cache = Cache()
    files: list[CompiledFile] = []
    kernels: dict[str, set[str]] = {}
    for name in targets:
        target = KnownTarget(name)
        wanted = {}
        for file in (meters.kernel_file(), *registry.manifest(case, target, ranks)):
            own = KnownTarget(CORES) if isinstance(file, HostFile) else target
            wanted[file.source, jit.kernel_hash(*file), own] = file
        if any(own.kind == "cpu" for _, _, own in wanted):
            jit.remember_compiler()
        for (_, _, own), file in wanted.items():
            files.append(_compile(file, own, cache))
            if log is not None:
                log(files[-1])
            declared = jit.declarations(*file, on_gpu=own.kind == "cuda").kernels
            kernels.setdefault(file.source.name, set()).update(declared)
    return {
        "files": [vars(file) for file in files],
        "kernels": {file: sorted(names) for file, names in sorted(kernels.items())},
        "folder": str(cache.folder),
        "ranks": ranks,
        "notes": notes,
    }


def _targets(
    asked: str | None, of_case: str, architectures: Sequence[str]
) -> tuple[list[str], list[str]]:
    if asked is not None:
        require_known(asked)
    if architectures:
        if asked == "cpu":
            raise InputError(
                "it applies to GPUs only, but --device is cpu",
                location="--arch",
                remedy="leave out one of them",
            )
        known = [f"sm_{number}" for number in jit.known_architectures()]
        for architecture in architectures:
            if architecture not in known:
                raise InputError(
                    "this NVRTC does not support it",
                    location=f"--arch {architecture}",
                    allowed=", ".join(known),
                )
        return list(dict.fromkeys(architectures)), []
    notes = []
    kind = asked or of_case
    if kind != "cpu":
        try:
            return architectures_in_sight(), []
        except MachineError as error:
            if kind == "cuda":
                raise MachineError(
                    error.problem,
                    location=error.location,
                    allowed=error.allowed,
                    remedy=f"{error.remedy}, or name the GPUs to compile for: --arch sm_90",
                ) from (error)
        notes.append(
            "no GPU can be used: these kernels are for cores; set --arch to compile for GPUs "
            "of other machines"
        )
    notes.append(
        "kernels for cores are compiled with -march=native: they run on processors of this type "
        f"only ({processor_name()})"
    )
    return [CORES], notes


def _compile(file: KernelFile, target: KnownTarget, cache: Cache) -> CompiledFile:
    before, start = len(cache.built), time.perf_counter()
    if target.kind == "cpu":
        jit.compile_for_cores(*file, cache)
    else:
        jit.compile_for_gpu(*file, target.name, cache)
    taken, cached = time.perf_counter() - start, len(cache.built) == before
    key = jit.kernel_hash(*file)
    return CompiledFile(file.source.name, dict(file.constants), key, target.name, taken, cached)


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
    from haloscope.exchange.ranks.launch import mpi_of_mpi4py

    flavour, release, _ = mpi_of_mpi4py()
    try:
        binding = f"(mpi4py {importlib.metadata.version('mpi4py')})"
    except importlib.metadata.PackageNotFoundError:
        binding = "(mpi4py)"
    return " ".join(part for part in (flavour, release, binding) if part)


def machine() -> dict[str, Any]:
    """Text and numbers that describe this machine; missing parts are named, not raised."""
    from haloscope.device.jit import find_compiler
    from haloscope.exchange.ranks.launch import find_mpiexec
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
