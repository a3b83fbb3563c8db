"""Claims that blood's kernels compile for an H100 or H200 in all the ways that they are launched."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lattice_tables import box_part

from haloscope.device import jit
from haloscope.device.absent import AbsentDevice
from haloscope.solvers.blood.coupling import WAYS, Coupling, OwnBox
from haloscope.solvers.blood.fluid import Carreau, Fluid, Opening, WallLinks
from haloscope.solvers.blood.fluid_gpu import Way
from haloscope.solvers.blood.repulsion import Repulsion, RepulsionLaw, WallRepulsion


def _nvrtc_is_there() -> bool:
    try:
        return importlib.util.find_spec("cuda.bindings.nvrtc") is not None
    except ModuleNotFoundError:
        return False


pytestmark = pytest.mark.skipif(
    not _nvrtc_is_there(), reason="NVRTC is not installed: pip install 'haloscope[nvrtc]'"
)


class AbsentGpu(AbsentDevice):
    """Sees to it that what was compiled holds the kernel that was asked for."""

    def __init__(self) -> None:
        super().__init__("sm_90")

    def kernel(self, file: Path, name: str, constants: jit.Constants) -> Any:
        asked = super().kernel(file, name, constants)
        code = jit.compile_for_gpu(file, constants, self.target)
        assert f".text.{name}\0".encode() in code, f"{file.name} has no kernel {name}"
        return asked


SHAPE = (7, 6, 5)
BOX = OwnBox((0, 0, 0), SHAPE, SHAPE, (True, True, True))
TABLE = np.zeros([n + 4 for n in reversed(SHAPE)], np.int32)


@pytest.mark.parametrize(
    ("real", "way", "carreau"),
    [
        ("double", Way(), None),
        ("single", Way(together=2), None),
        (
            "single",
            Way(kinds=False, threads=128, blocks=4, passing=True),
            Carreau(0.3, 0.1, 9, 0.5),
        ),
    ],
)
def test_the_fluid_compiles(real, way, carreau):
    device, part = AbsentGpu(), box_part(SHAPE, (False, True, False), None, [(0, 0)])
    directions, points = np.nonzero(part.sources == -1)
    links = len(points)
    walls = WallLinks(points, directions + 1, np.full(links, 0.3), np.zeros((links, 3)))
    fluid = Fluid(
        device,
        part,
        tau=0.8,
        real=real,
        openings=[Opening(0, 1)],
        walls=walls,
        with_cells=carreau is None,
        inside_tau=1.0,
        carreau=carreau,
        way=way,
    )
    fluid.step()
    names = ("advance_here", "advance_along", "openings", "correct_walls")
    assert device.kernels == {("fluid.cpp", name) for name in names}


@pytest.mark.parametrize("way", WAYS)
def test_the_coupling_compiles(way):
    device = AbsentGpu()
    Coupling(device, BOX, 2, TABLE, 300, kernel="peskin", way=way)
    wanted = {"in order": "spread_in_order", "fixed point": "spread_fixed_point"}
    names = {"interpolate", "advance", wanted.get(way, "spread_atomically")}
    assert {("coupling.cpp", name) for name in names} <= device.kernels


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_repulsion_compiles(dtype):
    device, law = AbsentGpu(), RepulsionLaw(0.1, 1.0)
    Repulsion(device, BOX, law, dtype=dtype)
    WallRepulsion(device, BOX, 2, TABLE, np.ones(1), law, dtype=dtype)
    assert {("repulsion.cpp", name) for name in ("place", "repel", "repel_walls")} <= device.kernels
