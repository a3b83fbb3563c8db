"""Compiles every kernel that a case needs into the cache, before a run asks for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from haloscope.case.tables import CaseTable
from haloscope.device import ceilings, jit, require_known
from haloscope.device.cpu import processor_name
from haloscope.device.cuda import architectures_in_sight
from haloscope.device.declarations import Constants
from haloscope.device.jit import Cache
from haloscope.device.targets import CORES, HostFile, KernelFile, KnownTarget
from haloscope.errors import InputError, MachineError
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
        for file in (ceilings.kernel_file(), *registry.manifest(case, target, ranks)):
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
    """Names of the targets, and the notes printed about them."""
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
