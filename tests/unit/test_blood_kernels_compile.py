"""Claims that blood's kernels compile for an H100 or H200 in all the ways that they are launched."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from absent_device import AbsentDevice
from lattice_tables import box_part
from small_membranes import ownership

from haloscope.case.tables import check
from haloscope.device import jit
from haloscope.device.declarations import Constants
from haloscope.device.targets import KnownTarget
from haloscope.exchange.ranks.world import World
from haloscope.exchange.rows import open_rows
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.cells.shared_vertices import KERNELS, kernels
from haloscope.solvers.blood.coupling.coupling import SUMMING, Coupling, OwnBox, SomeCells
from haloscope.solvers.blood.coupling.repulsion import Repulsion, RepulsionLaw, WallRepulsion
from haloscope.solvers.blood.fluid.boundaries import (
    OpeningTables,
    WallLinkTables,
    split_links,
    wall_constants,
)
from haloscope.solvers.blood.fluid.fluid import SOURCE, Fluid, Opening, WallLinks
from haloscope.solvers.blood.fluid.gpu_layout import KernelVariant, fastest_way
from haloscope.solvers.blood.fluid.lattice import share_out
from haloscope.solvers.blood.fluid.reaction import Reaction
from haloscope.solvers.blood.kernels import manifest
from haloscope.solvers.blood.membranes.membranes import ALONE, MembraneLaw, Membranes
from haloscope.solvers.blood.membranes.meshes import red_cell
from haloscope.solvers.blood.membranes.stretching import Pull, Stretch
from haloscope.solvers.blood.vessels.vessels import open_vessel, wall_links
from haloscope.solvers.carreau import Carreau


def _nvrtc_is_there() -> bool:
    try:
        return importlib.util.find_spec("cuda.bindings.nvrtc") is not None
    except ModuleNotFoundError:
        return False


pytestmark = pytest.mark.skipif(
    not _nvrtc_is_there(), reason="NVRTC is not installed: pip install -e '.[nvrtc]'"
)


class AbsentGpu(AbsentDevice):
    """Sees to it that what was compiled holds the kernel that was asked for."""

    def __init__(self) -> None:
        super().__init__("sm_90")

    def kernel(self, file: Path, name: str, constants: Constants) -> Any:
        asked = super().kernel(file, name, constants)
        code = jit.compile_for_gpu(file, constants, self.target)
        assert f".text.{name}\0".encode() in code, f"{file.name} has no kernel {name}"
        return asked


SHAPE = (7, 6, 5)
BOX = OwnBox((0, 0, 0), SHAPE, SHAPE, (True, True, True))
TABLE = np.zeros([n + 4 for n in reversed(SHAPE)], np.int32)


@pytest.mark.parametrize(
    ("real", "storage", "way", "carreau"),
    [
        ("double", "full", KernelVariant(), None),
        ("double", "full", KernelVariant(buffers=2), None),
        ("double", "full", KernelVariant(buffers=2, pushing=True), None),
        ("single", "full", fastest_way(4), None),
        ("single", "full", fastest_way(4, 2), Carreau(0.3, 0.1, 9, 0.5)),
        ("double", "full", KernelVariant(), Carreau(0.3, 0.1, 9, 0.5, 1.25)),
        ("single", "half", KernelVariant(buffers=2), None),
        ("single", "half", fastest_way(2, 2), None),
    ],
)
def test_the_fluid_compiles(real, storage, way, carreau):
    device, part = AbsentGpu(), box_part(SHAPE, (False, True, False), None, [(0, 0)])
    directions, points = np.nonzero(part.sources == -1)
    links = len(points)
    walls = WallLinks(points, directions + 1, np.full(links, 0.3), np.zeros((links, 3)))
    fluid = Fluid(
        device,
        part,
        tau=0.8,
        real=real,
        storage=storage,
        openings=[Opening(0, 1)],
        walls=walls,
        with_cells=carreau is None,
        inside_tau=1.0,
        carreau=carreau,
        way=way,
    )
    fluid.step()
    steps = {"advance_here", "advance_along" if way.buffers == 1 else "advance_across"}
    names = {"advance_pushing"} if way.pushing else steps
    # Steps between two buffers work out what walls send back, but to points in openings.
    names |= {"openings", "correct_walls"}
    if way.buffers == 2 and not way.pushing:
        names.add("send_back_to")
    assert device.kernels == {("fluid.cpp", name) for name in names}


def test_outlets_that_react_and_inlets_that_oscillate_compile():
    device, part = AbsentGpu(), box_part(SHAPE, (False, True, True), None, [(0, 0), (0, 1)])
    points = np.count_nonzero(OpeningTables(part, ()).numbers == 0)
    modes = np.ones((3, points), np.complex128)
    ends = [Opening(0, 1, np.zeros((points, 3)), modes), Opening(0, -1)]
    fluid = Fluid(device, part, tau=0.8, real="single", openings=ends, reactions=[Reaction(1)])
    fluid.set_waves(0, np.ones(3, np.complex128))
    fluid.step()
    names = {("fluid.cpp", "openings"), ("reaction.cpp", "sum_passed"), ("reaction.cpp", "react")}
    assert names | {("waves.cpp", "add_waves")} <= device.kernels


def test_what_is_built_of_a_case_serves_both_ways_of_streaming():
    channel = {"size_um": [14.0, 12.0, 11.0], "periodic": ["x", "z"]}
    table = {"spacing_um": 1.0, "precision": "single", "channel": channel}
    case = check({"solver": "blood", "blood": table}, BloodCase, "test")
    fluid = [file.constants for file in manifest(case, KnownTarget("sm_90"), 1)]
    # And compact kinds or not, as the vessel itself will say.
    ways = {(constants["BLOCKS_A_PROCESSOR"], constants["KINDS"]) for constants in fluid}
    assert ways == {(fastest_way(4, n).blocks, kinds) for n in (1, 2) for kinds in (1, 2)}
    assert len(ways) == 4


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_120"])
def test_other_gpus_have_the_fastest_ways_too(target):
    """Where launches cannot begin early they do not."""
    device, part = AbsentGpu(), box_part(SHAPE)
    fluid = Fluid(device, part, tau=0.8, way=fastest_way(8, 2))
    assert fluid.constants["EARLY"] == 1
    code = jit.compile_for_gpu(SOURCE, fluid.constants, target)
    assert b".text.advance_across\0" in code


def test_the_coupling_compiles():
    """And its calls give the arguments that kernels for GPUs declare."""
    device = AbsentGpu()
    coupling = Coupling(device, BOX, 2, TABLE, 300, kernel="peskin")
    fluid, positions, forces = (device.zeros((3, n), np.float64) for n in (300, 40, 40))
    rows, span = (device.zeros((2,), np.int32) for _ in range(2))
    coupling.interpolate(fluid, positions, forces, 40)
    coupling.interpolate(fluid, positions, forces, 40, SomeCells(rows, span, 20, beside=True))
    coupling.spread(fluid, positions, forces, 40)
    names = {"interpolate", SUMMING}
    assert {("coupling.cpp", name) for name in names} <= device.kernels


def test_repulsion_compiles():
    device, law = AbsentGpu(), RepulsionLaw(0.1, 1.0)
    Repulsion(device, BOX, law)
    WallRepulsion(device, BOX, 2, TABLE, np.ones(1), law)
    assert {
        ("repulsion.cpp", name) for name in ("watch", "keep_near", "repel_near", "repel_walls")
    } <= device.kernels


def test_rows_of_cells_compile():
    device = AbsentGpu()
    ownership(device)
    names = ("outline", "give_rows", "take_rows")
    assert device.kernels == {("cell_rows.cpp", name) for name in names}


def test_the_pull_on_ends_of_cells_compiles():
    device, mesh = AbsentGpu(), red_cell(42)
    cells = Membranes(device, mesh, 2, MembraneLaw(1.0))
    Pull(device, Stretch.of_mesh(mesh, 1.0, 1.0), mesh).apply(cells, ALONE)
    assert ("stretching.cpp", "pull_ends") in device.kernels


def test_lists_of_shared_vertices_compile():
    device = AbsentGpu()
    kernels(device)
    assert device.kernels == {("shared_vertices.cpp", name) for name in KERNELS}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_shared_rows_compile(dtype):
    device = AbsentGpu()
    opened = open_rows(World(), device, {0: 3}, {0: 3}, 42, 3, dtype, "peer")
    opened.prepare(device.zeros((3 * 42 * 5,), dtype))
    assert device.kernels == {("exchange.cpp", name) for name in ("pack", "unpack")}


@pytest.mark.parametrize(("moving", "walls"), [({}, 1), ({"y_low": [0.01, 0.0, 0.0]}, 2)])
def test_ranks_without_links_have_the_kernels_of_those_with_them(moving, walls):
    """Else one of several would compile what `haloscope build` has not."""
    data = {
        "spacing_um": 1.0,
        "channel": {"size_um": [14.0, 12.0, 11.0], "periodic": ["x", "z"]},
        "walls": {"kind": "interpolated", "velocity_m_s": moving},
    }
    table = check({"solver": "blood", "blood": data}, BloodCase, "test").blood
    vessel = open_vessel(table, World())
    _, whole = share_out(World(), vessel.lattice, table.halo, None)
    links = wall_links(table, vessel, whole, table.units)
    none, _ = split_links(links, 0)
    for neighbour_links in (links, none):
        wall_link_tables = WallLinkTables(
            AbsentGpu(), whole, neighbour_links, (), whole.owned, np.dtype(float)
        )
        assert wall_constants(wall_link_tables.moving)["WALLS"] == walls
