"""Blood's kernels as `haloscope bench` times them, each with its bytes model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from haloscope.device.interface import Device
from haloscope.mesh.lattice.lattice_parts import LatticePart, take
from haloscope.mesh.lattice.shapes import Tube
from haloscope.mesh.lattice.voxels import voxelise
from haloscope.solvers.blood.coupling.coupling import LEAST_HALO, Coupling, OwnBox
from haloscope.solvers.blood.fluid.d3q19 import VELOCITIES
from haloscope.solvers.blood.fluid.fluid import Fluid
from haloscope.solvers.blood.membranes.membranes import MembraneLaw, Membranes
from haloscope.solvers.blood.membranes.meshes import red_cell
from haloscope.solvers.interface import BenchKernel

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
