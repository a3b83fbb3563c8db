"""Membranes of few cells for tests: how they are made, moved out of shape, and what forces they feel."""

from __future__ import annotations

import functools

import numpy as np

from haloscope.device import open_device
from haloscope.exchange.ranks.world import World
from haloscope.mesh.bisection import bisect
from haloscope.mesh.lattice.lattice_parts import Region
from haloscope.solvers.blood.cells.ownership import CellOwnership
from haloscope.solvers.blood.membranes.membranes import Membranes
from haloscope.solvers.blood.membranes.meshes import MembraneMesh

KINDS = ("loop", "linear")
ALL = {"dilation": 3.0, "area_modulus": 5.0, "volume_modulus": 7.0, "bending_modulus": 0.2}


@functools.cache
def one_core():
    return open_device("cpu", threads=1)


def membranes(mesh, law, *, elements="loop", count=1, capacity=None, device=None) -> Membranes:
    made = Membranes(device or one_core(), mesh, capacity or count, law, elements=elements)
    made.set_cells(0, np.repeat(mesh.vertices[None], count, axis=0))
    return made


def full_region(shape, periodic=(True, True, True), parts=1) -> Region:
    """A cuboid full of points, cut into so many boxes."""
    coordinates = np.stack(np.unravel_index(np.arange(np.prod(shape)), shape[::-1])[::-1], 1)
    return Region(shape, periodic, bisect(World(), coordinates, shape, parts=parts))


def ownership(device, world=None, region=None, kinds=(), *, reach=1.0, interval=50, forget=None):
    """The ownership of cells of which there are none yet."""
    return CellOwnership(
        *(device, world or World(), region or full_region((4, 4, 4)), kinds),
        reach=reach,
        transport="peer",
        interval=interval,
        forget=forget or (lambda array: None),
    )


# So stiff a spring that what is not linear in its strain does not count.
RIGID = 1e6


def forces(cells: Membranes, x: np.ndarray, v: np.ndarray | None = None) -> np.ndarray:
    """Of cells at given places that have been moving with given velocities for long."""
    cells.set_cells(0, x)
    if v is not None:
        rates = (cells.settled(x + v) - cells.settled(x - v)) / 2
        late = cells.settled(x) - cells.law.viscosity / cells.law.viscous_stiffness * rates
        for number, array in enumerate(cells.natural, 2):
            values = array.reshape(3, cells.capacity, cells.vertices)
            values[:, : len(x)] = np.moveaxis(late[:, number], 2, 0)
    cells.compute_forces(len(x))
    return cells.on_host(cells.forces, len(x)).copy()


def disturbed(mesh: MembraneMesh, count: int, size: float = 0.08, seed: int = 1) -> np.ndarray:
    noise = np.random.default_rng(seed).standard_normal((count, len(mesh.vertices), 3))
    return mesh.vertices + size * noise
