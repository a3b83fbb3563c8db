"""Claims about what is built of blood: all kernels that a run asks for, whatever the vessel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from absent_device import AbsentDevice, AbsentWorld

from haloscope.case.tables import check
from haloscope.device import jit
from haloscope.device.cpu import CpuDevice
from haloscope.device.declarations import Constants
from haloscope.device.targets import CORES
from haloscope.exchange.ranks.world import World
from haloscope.run import Simulation
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.kernels import ask_for_kernels

_CHANNEL = {"channel": {"size_um": [14.0, 12.0, 11.0], "periodic": ["x", "z"]}}
_TUBE = {"tube": {"radius_um": 5.0, "length_um": 12.0, "periodic": False}}
_OPENINGS = [{"name": "inlet", "kind": "velocity"}, {"name": "outlet", "kind": "pressure"}]
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


@pytest.mark.parametrize(
    "table",
    [
        {**_CHANNEL, "collision": "bgk", "precision": "single"},
        {**_CHANNEL, "carreau": {}, "walls": {"kind": "interpolated"}},
        {**_CHANNEL, "walls": {"velocity_m_s": {"y_high": [1e-3, 0.0, 0.0]}}},
        {"tube": {**_TUBE["tube"], "axis": "z"}, "openings": _OPENINGS},
        {**_TUBE, "openings": _OPENINGS, "cells": [_CELL]},
        {
            **_TUBE,
            "openings": _OPENINGS,
            "delta": "roma",
            "repulsion": {"strength_pn": 0.0},
            "cells": [{**_CELL, "elements": "linear", "viscosity_ratio": 3.0}],
        },
    ],
    ids=["single", "carreau", "moving wall", "rows along z", "cells", "other cells"],
)
def test_a_run_asks_for_no_kernel_that_was_not_built(table, monkeypatch, tmp_path):
    absent = AbsentDevice(CORES)
    case = _case(table)
    ask_for_kernels(case, absent, World())
    built = {(file.file, file.hash) for file in absent.files}
    asked: set[tuple[str, str]] = set()
    plain = CpuDevice.kernel

    def kernel(device: CpuDevice, file: Path, name: str, constants: Constants) -> Any:
        asked.add((file.name, jit.kernel_hash(file, constants)))
        return plain(device, file, name, constants)

    monkeypatch.setattr(CpuDevice, "kernel", kernel)
    simulation = Simulation(case, device=CpuDevice(threads=1), world=World())
    simulation.run(2, out=tmp_path, ceilings=False)
    assert len(asked) > (3 if case.blood.cells else 0)
    assert asked <= built


def test_several_ranks_need_the_exchange():
    absent = AbsentDevice(CORES)
    case = _case({**_TUBE, "openings": _OPENINGS, "cells": [_CELL]}, machine={"transport": "host"})
    ask_for_kernels(case, absent, AbsentWorld(3))
    exchange = [(file.file, file.constants.get("FIELDS")) for file in absent.files]
    # Populations one by one; velocities and vertices in threes.
    assert {("gather_scatter.cpp", 1), ("gather_scatter.cpp", 3)} <= set(exchange)
    assert ("shared_rows.cpp", 3) in exchange


def test_a_vessel_of_any_size_is_built_without_its_points():
    absent = AbsentDevice(CORES)
    size = [4000.0, 4000.0, 4000.0]
    huge = {"channel": {"size_um": size, "periodic": ["x"]}, "cells": [{"hematocrit": 0.4}]}
    ask_for_kernels(_case(huge, machine={"transport": "host"}), absent, AbsentWorld(2))
    indices = {file.constants.get("index") for file in absent.files}
    assert "long" in indices
