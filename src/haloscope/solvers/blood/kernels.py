"""Kernels of a blood case: `haloscope build` compiles them, `haloscope bench` times them with their bytes model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np

from haloscope.device.interface import Device
from haloscope.exchange.lists import open_lists
from haloscope.exchange.plan import Lists
from haloscope.exchange.ranks.world import World
from haloscope.exchange.shared_rows import open_shared_rows
from haloscope.mesh.lattice.lattice_parts import LatticePart, take
from haloscope.mesh.lattice.shapes import Tube
from haloscope.mesh.lattice.voxels import voxelise
from haloscope.solvers.blood.case import BloodCase, BloodTable
from haloscope.solvers.blood.case_vessels import Channel, OpeningTable, WallsTable
from haloscope.solvers.blood.cell_kinds import kind_of, lumen_of, shape_of
from haloscope.solvers.blood.cells.entering import SOURCE as ENTERING
from haloscope.solvers.blood.cells.migration import CellRows
from haloscope.solvers.blood.cells.shared_vertices import kernels as kernels_of_lists
from haloscope.solvers.blood.coupling.coupling import LEAST_HALO, Coupling, OwnBox
from haloscope.solvers.blood.coupling.inside import Insides
from haloscope.solvers.blood.coupling.repulsion import Repulsion, RepulsionLaw, WallRepulsion
from haloscope.solvers.blood.filling.packing import Cells, Packing
from haloscope.solvers.blood.fluid.fluid import SOURCE, Fluid
from haloscope.solvers.blood.fluid.lattice import DIRECTIONS, VELOCITIES
from haloscope.solvers.blood.membranes.membranes import MembraneLaw, Membranes
from haloscope.solvers.blood.membranes.meshes import red_cell
from haloscope.solvers.blood.solver import BloodSolver
from haloscope.solvers.interface import BenchKernel

# None depends on how large the vessel is: a small box with what else the case says stands for it, so that any
# vessel is built at once and in no memory. Where its form decides between kernels, all of them are built.

_SPACINGS = 12.0
_DIMENSIONS = 3


class _Unfilled(BloodSolver):
    """The solver without its fields and cells: on a device that runs nothing these are nowhere."""

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
        CellRows(device)
        for cell_table in table.cells:
            kind = kind_of(cell_table, self.units)
            membranes = Membranes(device, kind.mesh, 1, kind.law, elements=kind.elements)
            membranes.compute_forces(1)
            membranes.advance(0)
            membranes.relax(0)
            membranes.energies(1)
        if device.kind == "cpu":
            # Cells are packed on cores, whatever computes the flow.
            lumen = lumen_of(self.vessel.lattice, 2 * table.cells[0].radius_um)
            nothing = Cells(np.zeros((0, 3)), np.zeros((0, 4)), np.zeros(0, np.int64))
            Packing(device, lumen, [shape_of(table.cells[0])], nothing)

    def _set_results(self) -> None:
        pass


def ask_for_kernels(case: BloodCase, device: Device, world: World) -> None:
    """Ask a device for every kernel that a rank of a case needs; for a device that runs none."""
    small_cases = [_small(case)]
    if any(opening.feeds for opening in case.blood.openings):
        for name in ("fetch", "lead"):
            device.kernel(ENTERING, name, {"real": "double"})
        real = "double" if case.blood.precision == "double" else "float"
        device.kernel(ENTERING, "set_inlet", {"real": real})
        small_cases.append(_feeding(small_cases[0]))
    for small in (one for small_case in small_cases for one in _in_all_ways(small_case, device)):
        solver = _Unfilled(small, device, World())
        if device.kind != "cpu" and small.blood.streaming != "push":
            # Whether points share compact rows the vessel itself will say.
            device.kernel(SOURCE, "advance_here", solver.fluid.constants_elsewhere())
    if device.kind == "cpu" and not case.blood.cells:
        # Along which axis rows lie the vessel itself will say.
        for axis in range(_DIMENSIONS):
            device.kernel(SOURCE, "advance", solver.fluid.constants | {"ROWS_ALONG": axis})
    if world.size > 1:
        _ask_for_exchange(case, device, world, solver)


def _in_all_ways(case: BloodCase, device: Device) -> list[BloodCase]:
    """The case with both ways of streaming where a GPU's free memory will choose between them."""
    if device.kind == "cpu" or case.blood.streaming != "auto":
        return [case]
    return [
        case.model_copy(update={"blood": case.blood.model_copy(update={"streaming": streaming})})
        for streaming in ("in place", "two buffers")
    ]


def _small(case: BloodCase) -> BloodCase:
    """The case with a small box in place of its vessel."""
    table = case.blood
    size = _SPACINGS * table.spacing_um
    vessel = table.vessel
    if isinstance(vessel, Channel):
        box = vessel.model_copy(update={"size_um": (size, size, size)})
        openings = table.openings
    else:
        ends: tuple[Literal["x"], ...] = ("x",) if table.openings else ()
        box = Channel(size_um=(size, size, size), periodic=() if ends else ("x",), open=ends)
        names = ("x_low", "x_high") if ends else ()
        openings = tuple(OpeningTable(name=name, kind="pressure") for name in names)
    shapes = dict.fromkeys(("tube", "bifurcation", "tree", "surface"))
    small = table.model_copy(update={**shapes, "channel": box, "openings": openings})
    return case.model_copy(update={"blood": small})


def _feeding(case: BloodCase) -> BloodCase:
    """A periodic flow that feeds a vessel, in place of that."""
    table = case.blood
    assert table.channel is not None
    size = table.channel.size_um
    box = Channel(size_um=size, periodic=("x",))
    update = {"channel": box, "openings": (), "walls": WallsTable()}
    return case.model_copy(update={"blood": table.model_copy(update=update)})


def _ask_for_exchange(case: BloodCase, device: Device, world: World, solver: BloodSolver) -> None:
    """Ask for what ranks exchange populations, velocities and vertices with."""
    table, transport = case.blood, case.machine.transport
    # Long lists have indices of another type.
    values = DIRECTIONS * _points_of_rank(table, world.size)
    one = ((1, np.array([values - 1])),)
    stored = solver.fluid.populations_array.dtype
    state = device.zeros((values,), stored)
    lists = Lists(one, one)
    open_lists(world, device, lists, stored, transport, state=state).forward.prepare(state)
    if not table.cells:
        return
    stride = values // DIRECTIONS
    ends = ((1, np.array([stride - 1])),)
    velocity = device.zeros((_DIMENSIONS * stride,), np.float64)
    lists = Lists(ends, ends)
    open_lists(
        world, device, lists, np.float64, transport, fields=_DIMENSIONS, field_stride=stride
    ).forward.prepare(velocity)
    vertices = device.zeros((_DIMENSIONS,), np.float64)
    kernels_of_lists(device)
    for completes in (True, False):
        open_shared_rows(
            *(world, device, {0: 1}, {0: 1}, 1, _DIMENSIONS, np.float64, transport),
            completes=completes,
            state=vertices,
        ).prepare(vertices)


def _points_of_rank(table: BloodTable, ranks: int) -> int:
    return max(1, int(table.vessel.points(table.spacing) / ranks))


_SIZES = {"cpu": (96, 160), "cuda": (256, 384)}
_DOUBLE = 8
_TAU = 0.8
_VERTICES = 642
# Spacing of 0.5 um.
_RADIUS = 3.91 / 0.5
_ACROSS, _THICK = 20, 10
"""Points of the lattice that a cell takes in the array of cells: a hematocrit of 0.19."""
_LAW = MembraneLaw(0.01, "skalak", 10.0, 1e-3, "reference", 0.01, 0.01)


def kernels(device: Device, sizes: Sequence[int] | None = None) -> Iterator[BenchKernel]:
    """Steps of the fluid alone, dense and in a tube, and what cells need in a step."""
    # Bytes a point and step: populations read and written, and in steps that need them where
    # neighbours lie. Bytes a vertex: its positions, velocities and forces, read or written once;
    # what it reads and writes of the fluid stays in caches.
    for along in sizes or _SIZES[device.kind]:
        yield _fluid(device, "fluid, dense", f"{along}^3", _dense(along))
        part = _in_tube(along)
        yield _fluid(device, "fluid, in a tube", f"{part.owned} points", part)
        yield from _cells(device, along)


def _dense(along: int, halo: int = 1) -> LatticePart:
    """A periodic box of points."""
    shape = (along, along, along)
    return take(
        np.arange(along**3),
        shape,
        (np.zeros(3, np.int64), np.array(shape)),
        halo,
        VELOCITIES[1:],
        periodic=(True, True, True),
    )


def _in_tube(along: int) -> LatticePart:
    """A periodic tube along x, as wide as the box."""
    lattice = voxelise(Tube(along / 2, float(along)), 1.0)
    return take(
        lattice.points,
        lattice.shape,
        (np.zeros(3, np.int64), np.array(lattice.shape)),
        1,
        VELOCITIES[1:],
        periodic=lattice.periodic,
    )


def _fluid(device: Device, name: str, size: str, part: LatticePart) -> BenchKernel:
    fluid = Fluid(device, part, tau=_TAU, body_force=(1e-6, 0.0, 0.0))
    steps = 2

    def launch() -> None:
        for _ in range(steps):
            fluid.step()

    # The first step after a state was set is unlike those that follow.
    launch()
    return BenchKernel(name, size, steps * part.owned, fluid.bytes_a_point, launch)


def _cells(device: Device, along: int) -> Iterator[BenchKernel]:
    """Red cells side by side in a periodic box."""
    part = _dense(along, LEAST_HALO)
    box = OwnBox(*part.box, shape=(along, along, along), periodic=(True, True, True))
    mesh = red_cell(_VERTICES, _RADIUS)
    across, high = along // _ACROSS, along // _THICK
    centres = np.stack(
        np.meshgrid(
            _ACROSS * (np.arange(across) + 0.5),
            _ACROSS * (np.arange(across) + 0.5),
            _THICK * (np.arange(high) + 0.5),
            indexing="ij",
        ),
        axis=-1,
    ).reshape(-1, 3)
    count = len(centres)
    cells = Membranes(device, mesh, count, _LAW)
    cells.set_cells(0, mesh.vertices + centres[:, None])
    cells.divide(np.arange(count), np.arange(0))
    coupling = Coupling(device, box, LEAST_HALO, part.table, along**3, kernel="peskin")
    u = device.zeros((3 * along**3,), np.float64)
    g = device.zeros((3 * along**3,), np.float64)
    vertices = count * _VERTICES
    x, v, f = cells.positions, cells.velocities, cells.forces
    work: list[tuple[str, int, Callable[[], None]]] = [
        ("interpolate, 4 points", 6, lambda: coupling.interpolate(u, x, v, vertices)),
        ("advance vertices", 9, lambda: cells.advance(0)),
        ("membrane forces, loop", 6, lambda: cells.compute_forces(count)),
        ("spread, 4 points", 6, lambda: coupling.spread(g, x, f, vertices)),
    ]
    for name, values, launch in work:
        yield BenchKernel(name, f"{count} cells", vertices, _DOUBLE * values, launch)
