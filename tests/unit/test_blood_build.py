"""Claims about the kernel files that are built of a blood case: all that runs ask for, whatever the vessel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from absent_device import AbsentDevice, AbsentKernel
from small_membranes import ownership

from haloscope.case.tables import check
from haloscope.device import jit
from haloscope.device.cpu import CpuDevice
from haloscope.device.declarations import Constants
from haloscope.device.targets import CORES, HostFile, KernelFile, KnownTarget
from haloscope.exchange.engine import ENTRIES, ROWS
from haloscope.exchange.ranks.world import World
from haloscope.run import Simulation
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.coupling.coupling import Coupling, OwnBox
from haloscope.solvers.blood.coupling.inside import Insides
from haloscope.solvers.blood.coupling.repulsion import Repulsion, RepulsionLaw, WallRepulsion
from haloscope.solvers.blood.filling.filling import kind_of
from haloscope.solvers.blood.kernels import manifest
from haloscope.solvers.blood.membranes.membranes import Membranes
from haloscope.solvers.blood.solver import BloodSolver

_CHANNEL = {"channel": {"size_um": [14.0, 12.0, 11.0], "periodic": ["x", "z"]}}
_TUBE = {"tube": {"radius_um": 5.0, "length_um": 12.0, "periodic": False}}
_OPENINGS = [{"name": "inlet", "kind": "velocity"}, {"name": "outlet", "kind": "pressure"}]
_WAVE = {"profile": "womersley", "signal": "sin(t*1e6)", "period_s": 1e-5}
_OSCILLATING = {**_OPENINGS[0], **_WAVE}
_CELL = {
    "vertices": 42,
    "shape": "sphere",
    "radius_um": 2.0,
    "placed": [{"position_um": [6.0, 0.5, 0.0]}],
}


def _case(table: dict[str, Any], **more: Any) -> BloodCase:
    tables = {"output": {"picture": False}, **more}
    data = {"solver": "blood", "blood": {"spacing_um": 1.0, **table}, **tables}
    case = check(data, BloodCase, "test")
    assert isinstance(case, BloodCase)
    return case


def _files(case: BloodCase, target: str, ranks: int = 1) -> set[tuple[str, str]]:
    files = manifest(case, KnownTarget(target), ranks)
    return {_key(*file) for file in files if target == CORES or not isinstance(file, HostFile)}


def _key(source: Path, constants: Constants) -> tuple[str, str]:
    return source.name, jit.kernel_hash(source, constants)


@pytest.mark.parametrize(
    "table",
    [
        {**_CHANNEL, "collision": "bgk", "precision": "single"},
        {**_CHANNEL, "carreau": {"a": 1.25}, "walls": {"kind": "interpolated"}},
        {**_CHANNEL, "walls": {"velocity_m_s": {"y_high": [1e-3, 0.0, 0.0]}}},
        {"tube": {**_TUBE["tube"], "axis": "z"}, "openings": _OPENINGS},
        {**_TUBE, "openings": [_OSCILLATING, _OPENINGS[1]], "precision": "single"},
        {**_TUBE, "openings": _OPENINGS, "cells": [_CELL]},
        {
            **_TUBE,
            "openings": _OPENINGS,
            "delta": "roma",
            "repulsion": {"strength_pn": 0.0},
            "cells": [{**_CELL, "elements": "linear", "viscosity_ratio": 3.0}],
        },
        {
            **_TUBE,
            "openings": [{**_OPENINGS[0], "value": 1e-3, "feeds": True}, _OPENINGS[1]],
            "precision": "single",
            "walls": {"kind": "interpolated"},
            "cells": [{"vertices": 42, "radius_um": 2.0, "hematocrit": 0.1}],
        },
        {
            **_TUBE,
            "openings": [
                {**_OPENINGS[0], "value": 1e-3, "feeds": True},
                {**_OPENINGS[1], "resistance": {"proximal": 1e14}},
            ],
            "walls": {"kind": "interpolated"},
            "cells": [{"vertices": 42, "radius_um": 2.0, "hematocrit": 0.1}],
        },
        {**_TUBE, "openings": _OPENINGS, "cells": [{**_CELL, "stretch": {"force_pn": 1.0}}]},
    ],
    ids=[
        *(
            "single",
            "carreau",
            "moving wall",
            "rows along z",
            "oscillating",
            "cells",
            "other cells",
            "fed",
        ),
        "fed, outlet that reacts",
        "pulled",
    ],
)
def test_a_run_asks_for_no_kernel_that_was_not_built(table, monkeypatch, tmp_path):
    case = _case(table)
    asked: set[tuple[str, str]] = set()
    plain = CpuDevice.kernel

    def kernel(device: CpuDevice, file: Path, name: str, constants: Constants) -> Any:
        asked.add(_key(file, constants))
        return plain(device, file, name, constants)

    monkeypatch.setattr(CpuDevice, "kernel", kernel)
    simulation = Simulation(case, device=CpuDevice(threads=1), world=World())
    simulation.run(2, out=tmp_path, ceilings=False)
    assert len(asked) > (3 if case.blood.cells else 0)
    assert asked <= _files(case, CORES)


class _Recorder(AbsentDevice):
    """A GPU that is absent, and for which nothing is compiled."""

    def __init__(self) -> None:
        super().__init__("sm_90")
        self.asked: list[KernelFile] = []

    def kernel(self, file: Path, name: str, constants: Constants) -> AbsentKernel:
        self.asked.append(KernelFile(file, constants))
        return AbsentKernel(jit.declarations(file, constants, on_gpu=True).kernel(name))


class _Unfilled(BloodSolver):
    """The solver without values: what has cells is made beside it."""

    def _set_drive(self, step: int) -> None:
        pass

    def _set_initial(self) -> None:
        pass

    def _starting_cells(self) -> None:
        return None

    def _set_cells(self) -> None:
        table, device, part = self._table, self._device, self.part
        if not table.cells:
            return
        region = self.medium.region
        box = OwnBox(*part.box, shape=region.shape, periodic=region.periodic)
        Coupling(device, box, part.halo, part.table, self.fluid.stride, kernel=table.delta)
        if table.repulsion.strength_pn > 0:
            law = RepulsionLaw(1.0, table.repulsion.range_um / table.spacing_um)
            Repulsion(device, box, law)
            WallRepulsion(device, box, part.halo, part.table, np.zeros(part.count), law)
        Insides(device, box, part.halo, part.table)
        ownership(device)
        for cell_table in table.cells:
            kind = kind_of(cell_table, self.units)
            membranes = Membranes(device, kind.mesh, 1, kind.law, elements=kind.elements)
            membranes.compute_forces(1)
            membranes.advance(0)
            membranes.relax(0)
            membranes.energies(1)

    def _set_results(self) -> None:
        pass


@pytest.mark.parametrize(
    "table",
    [
        {**_CHANNEL, "collision": "bgk", "precision": "single", "storage": "half"},
        {**_CHANNEL, "carreau": {"a": 1.25}, "walls": {"kind": "interpolated"}},
        {**_CHANNEL, "walls": {"velocity_m_s": {"y_high": [1e-3, 0.0, 0.0]}}},
        {**_TUBE, "openings": _OPENINGS, "walls": {"kind": "interpolated"}, "cells": [_CELL]},
        {**_TUBE, "openings": [_OSCILLATING, {**_OPENINGS[1], "split": 1.0}]},
        {
            **_TUBE,
            "openings": _OPENINGS,
            "delta": "roma",
            "repulsion": {"strength_pn": 0.0},
            "cells": [{**_CELL, "elements": "linear", "membrane_viscosity_un_s_m": 0.1}],
        },
    ],
    ids=["half", "carreau", "moving wall", "cells", "outlet that reacts", "other cells"],
)
@pytest.mark.parametrize("streaming", ["auto", "in place", "two buffers", "push"])
def test_a_gpu_is_asked_for_no_kernel_that_was_not_built(table, streaming):
    case, device = _case({**table, "streaming": streaming}), _Recorder()
    _Unfilled(case, device, World())
    asked = {_key(*file) for file in device.asked}
    built = _files(case, "sm_90")
    assert asked <= built
    # Other ways to step and other rows of neighbours are for other GPUs and vessels.
    assert {name for name, _ in asked} == {name for name, _ in built}


def test_several_ranks_need_the_exchange():
    case = _case({**_TUBE, "openings": _OPENINGS, "cells": [_CELL]}, machine={"transport": "host"})
    files = list(manifest(case, KnownTarget(CORES), 3))
    exchange = {
        (file.constants["INDEX"], file.constants["FIELDS"])
        for file in files
        if file.source.name == "exchange.cpp"
    }
    # Populations one by one; velocities and vertices in threes.
    assert exchange == {(ENTRIES, 1), (ENTRIES, 3), (ROWS, 3)}


@pytest.mark.parametrize(("length", "types"), [(40.0, {"int"}), (4000.0, {"int", "long"})])
def test_long_lists_have_other_indices(length, types):
    table = {"channel": {"size_um": [length] * 3, "periodic": ["x"]}}
    files = manifest(_case({**table, "cells": [{"hematocrit": 0.4}]}), KnownTarget(CORES), 2)
    entries = [file.constants for file in files if file.constants.get("INDEX") == ENTRIES]
    assert {constants["index"] for constants in entries} == types
