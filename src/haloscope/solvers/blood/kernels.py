"""Kernels of a blood case: `haloscope build` compiles them, `haloscope bench` times them with their bytes model."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from haloscope.device.interface import Device
from haloscope.device.targets import HostFile, KernelFile, Target
from haloscope.exchange import entries
from haloscope.mesh.lattice.lattice_parts import LatticePart
from haloscope.mesh.lattice.shapes import Tube
from haloscope.mesh.lattice.voxels import voxelise
from haloscope.solvers.blood.case import BloodCase, BloodTable
from haloscope.solvers.blood.case_vessels import SurfaceFile
from haloscope.solvers.blood.cells import local_cells, ownership, shared_vertices
from haloscope.solvers.blood.coupling import coupling, inside, repulsion
from haloscope.solvers.blood.coupling.coupling import LEAST_HALO, Coupling, OwnBox
from haloscope.solvers.blood.filling import packing
from haloscope.solvers.blood.filling.filling import mesh_of
from haloscope.solvers.blood.fluid import boundaries, fluid, reaction
from haloscope.solvers.blood.fluid.fluid import Fluid
from haloscope.solvers.blood.fluid.lattice import DIRECTIONS, whole_part
from haloscope.solvers.blood.fluid.populations import possible_ways
from haloscope.solvers.blood.membranes import membranes, stretching
from haloscope.solvers.blood.membranes.membranes import MembraneLaw, Membranes
from haloscope.solvers.blood.membranes.meshes import red_cell
from haloscope.solvers.blood.sizing import points
from haloscope.solvers.interface import BenchKernel

_DIMENSIONS = 3
# Lattice points of a rank, ghosts included, over the estimate of all: this is an estimate of the volume.
_MOST_OVER_ESTIMATE = 2.0


def manifest(case: BloodCase, target: Target, ranks: int) -> Iterator[KernelFile]:
    """All kernel files that the ranks of a case need on a target."""
    yield from _fluid_files(case.blood, target)
    if case.blood.cells:
        yield from _cell_files(case.blood, target)
    if ranks > 1:
        yield from _exchange_files(case)


def _fluid_files(table: BloodTable, target: Target) -> Iterator[KernelFile]:
    """The fluid in all ways in which a GPU's memory, the vessel and its parts may let it step."""
    on_cores = target.kind == "cpu"
    # Links of the vessel's walls; the periodic flows that feed it have none.
    links: list[bool | None] = [bool(table.walls.velocity_m_s) if table.walls.linked else None]
    if any(opening.feeds for opening in table.openings):
        links.append(None)
    # The file decides whether ends are askew to the axes.
    ends = (False, True) if isinstance(table.vessel, SurfaceFile) and table.openings else (False,)
    # The vessel decides along which axis rows lie; on GPUs also which kinds of rows there are.
    axes: Sequence[int] = (0,)
    if not table.cells:
        axes = range(_DIMENSIONS) if on_cores else (0, 2) if True in ends else (0,)
    if any(opening.profile == "womersley" for opening in table.openings):
        yield boundaries.wave_kernel_file("double" if table.precision == "double" else "float")
    # The periodic flows before inlets have no openings.
    react = any(opening.reacts for opening in table.openings)
    if react:
        yield reaction.kernel_file("double" if table.precision == "double" else "float")
    reacting = (True, False) if react and None in links[1:] else (react,)
    for way in possible_ways(target.kind, table.streaming, table.stored_bytes):
        ways = [way] if on_cores else [way.laid_out(compact=compact) for compact in (True, False)]
        choices = itertools.product(ways, axes, links, ends, reacting)
        for one, rows, moving, tilted, reacts in choices:
            yield fluid.kernel_file(
                target,
                one,
                real=table.precision,
                storage=table.storage,
                with_cells=bool(table.cells),
                contrast=table.inside_tau is not None,
                carreau=None if table.carreau is None else table.carreau.a,
                rows=rows,
                tilted=tilted,
                reacting=reacts,
                moving=moving if fluid.takes_links(one, table.precision) else None,
            )


def _cell_files(table: BloodTable, target: Target) -> Iterator[KernelFile]:
    yield from coupling.kernel_files(target, table.delta)
    if table.repulsion.strength_pn > 0:
        yield repulsion.kernel_file(target)
    yield inside.kernel_file()
    yield ownership.kernel_file()
    for kind in table.cells:
        yield from membranes.kernel_files(
            target,
            functools.partial(mesh_of, kind),
            kind.vertex_count,
            viscous=kind.membrane_viscosity_un_s_m > 0,
            elements=kind.used_elements,
        )
    if any(kind.stretch for kind in table.cells):
        yield stretching.kernel_file()
    # Cells are packed on cores, whatever computes the flow.
    yield HostFile(*packing.kernel_file())
    if any(opening.feeds for opening in table.openings):
        yield local_cells.kernel_file()
    if any(opening.feeds and opening.profile == "parabolic" for opening in table.openings):
        yield local_cells.kernel_file("double" if table.precision == "double" else "float")


def _exchange_files(case: BloodCase) -> Iterator[KernelFile]:
    """The kernels that exchange populations, velocities and vertices."""
    table = case.blood
    most = _MOST_OVER_ESTIMATE * points(table)
    stored = fluid.stored_type(table.precision, table.storage)
    yield from entries.kernel_files(stored, 1, DIRECTIONS * most)
    if table.cells:
        # Values that the host repacks are listed one by one.
        fields = 1 if case.machine.transport == "repacked" else _DIMENSIONS
        yield from entries.kernel_files(np.float64, fields, _DIMENSIONS * most)
        yield from shared_vertices.kernel_files()


# Fewest nodes along an axis: a cell is laid into as many.
LEAST_SIZE = 20
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
    return whole_part(np.arange(along**3), (along, along, along), (True, True, True), halo)


def _in_tube(along: int) -> LatticePart:
    """A periodic tube along x, as wide as the box."""
    lattice = voxelise(Tube(along / 2, float(along)), 1.0)
    return whole_part(lattice.points, lattice.shape, lattice.periodic)


def _fluid(device: Device, name: str, size: str, part: LatticePart) -> BenchKernel:
    flow = Fluid(device, part, tau=_TAU, body_force=(1e-6, 0.0, 0.0))
    steps = 2

    def launch() -> None:
        for _ in range(steps):
            flow.step()

    # The first step after a state was set is unlike those that follow.
    launch()
    return BenchKernel(name, size, steps * part.owned, flow.bytes_a_point, launch)


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
    coupled = Coupling(device, box, LEAST_HALO, part.table, along**3, kernel="peskin")
    u = device.zeros((3 * along**3,), np.float64)
    g = device.zeros((3 * along**3,), np.float64)
    vertices = count * _VERTICES
    x, v, f = cells.positions, cells.velocities, cells.forces
    work: list[tuple[str, int, Callable[[], None]]] = [
        ("interpolate, 4 points", 6, lambda: coupled.interpolate(u, x, v, vertices)),
        ("advance vertices", 9, lambda: cells.advance(0)),
        ("membrane forces, loop", 6, lambda: cells.compute_forces(count)),
        ("spread, 4 points", 6, lambda: coupled.spread(g, x, f, vertices)),
    ]
    for name, values, launch in work:
        yield BenchKernel(name, f"{count} cells", vertices, _DOUBLE * values, launch)
