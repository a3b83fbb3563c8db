"""Compiles every kernel that a case needs into the cache, before a run asks for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from haloscope.case.tables import CaseTable
from haloscope.device import jit, require_known
from haloscope.device.absent import CORES, AbsentDevice, CompiledFile
from haloscope.device.ceilings import CeilingProbe
from haloscope.device.cpu import processor_name
from haloscope.device.cuda import architectures_in_sight
from haloscope.device.jit import Cache
from haloscope.errors import InputError, MachineError
from haloscope.exchange.ranks.world import AbsentWorld, World
from haloscope.solvers import registry


def build(
    case: CaseTable,
    *,
    device: str | None = None,
    architectures: Sequence[str] = (),
    ranks: int = 1,
    log: Callable[[CompiledFile], None] | None = None,
) -> dict[str, Any]:
    """Compile the kernels of a case for cores like those of this machine, or for GPUs.

    Nothing of the case is computed and its fields take no memory, so that any size will do.
    """
    # `device`: ``cpu``, ``cuda`` (the GPUs of this machine) or ``auto`` (those, or the cores where
    # there are none), in place of the case's own.
    # Returns: ``files``: for each compiled file its ``file``, ``target`` (``cpu`` or the
    # architecture), ``constants``, ``hash``, ``seconds`` and ``cached``; ``kernels``: names of what
    # is in them for this case, by source; ``folder``: the cache; ``ranks``; ``notes``: sentences on
    # what the files are good for.
    registry.check_ranks(case, ranks)
    targets, notes = _targets(device, case.machine.device, architectures)
    files = []
    kernels: dict[str, set[str]] = {}
    for target in targets:
        absent = AbsentDevice(target, log=log)
        if absent.kind == "cpu":
            jit.remember_compiler()
        CeilingProbe(absent)
        world = AbsentWorld(ranks) if ranks > 1 else World()
        registry.ask_for_kernels(_with_all_transports(case, absent.kind), absent, world)
        files += [vars(file) for file in absent.files]
        for file, name in absent.kernels:
            kernels.setdefault(file, set()).add(name)
    return {
        "files": files,
        "kernels": {file: sorted(names) for file, names in sorted(kernels.items())},
        "folder": str(Cache().folder),
        "ranks": ranks,
        "notes": notes,
    }


def _targets(
    asked: str | None, of_case: str, architectures: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Compile targets, and the line printed about them."""
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


def _with_all_transports(case: CaseTable, kind: str) -> CaseTable:
    """The case with the transport that needs every kernel any transport needs."""
    changes = {"transport": "host" if kind == "cpu" else "peer", "progress": "none"}
    if case.machine.packing in ("x", "none"):  # packs less, and what it does else needs MPI
        changes["packing"] = "all"
    return case.model_copy(update={"machine": case.machine.model_copy(update=changes)})
