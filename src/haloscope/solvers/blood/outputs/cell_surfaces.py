"""Membranes of all cells as surfaces: files for ParaView, and the arrays of such a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from haloscope.exchange.plan import to_root
from haloscope.exchange.ranks.world import World
from haloscope.io.vtk_arrays import TRIANGLE, CellArrays
from haloscope.io.vtkhdf import POINTS, Block, Blocks, VtkhdfWriter
from haloscope.mesh.lattice.lattice_parts import Region
from haloscope.solvers.blood.cells.local_cells import OwnCells, own_cells
from haloscope.solvers.blood.cells.suspension import Suspension
from haloscope.solvers.blood.units import LatticeUnits

Floats = NDArray[np.float64]


def write_cells(
    path: Path,
    suspension: Suspension,
    region: Region,
    origin: Floats,
    units: LatticeUnits,
    world: World,
    time: float,
) -> None:
    """Write all cells for ParaView, in m as the fields are; all ranks call this.

    `suspension`, `region`, `origin`, `units`, `world`: the cells, their box, position in m of its
    first lattice point, units, and the ranks; `time`: in s.
    """
    # Points have the arrays ``velocity`` (m/s) and ``force`` (N, of the membrane on the fluid),
    # triangles ``number`` and ``kind``, the latter by its place among the kinds of the case. Rank 0
    # holds the cells of one rank at a time.
    kinds, bodies = _bodies(suspension, region, origin, units, world)
    if not world.is_root:
        for _ in bodies:
            pass
        return
    with VtkhdfWriter(path, Blocks(TRIANGLE, kinds, "float32"), time) as writer:
        for name in ("velocity", "force"):
            writer.create(name, np.float32, 3)
        writer.create("number", np.int64, per_cell=True)
        writer.create("kind", np.int32, per_cell=True)
        for kind, places, numbers, state in bodies:
            for part, name in enumerate((POINTS, "velocity", "force")):
                writer.write(name, places, state[:, part], kind)
            writer.write("number", places, numbers, kind)
            writer.write("kind", places, np.full(len(numbers), kind, np.int32), kind)


def membrane_arrays(
    suspension: Suspension,
    region: Region,
    origin: Floats,
    units: LatticeUnits,
    world: World,
    time: float,
) -> CellArrays | None:
    """The arrays of a file of :func:`write_cells`, on rank 0; None elsewhere. All ranks call this."""
    kinds, bodies = _bodies(suspension, region, origin, units, world)
    states = [np.empty((kind.count, 3, kind.points, 3), np.float32) for kind in kinds]
    numbers = [np.empty(kind.count, np.int64) for kind in kinds]
    for kind, places, ids, state in bodies:
        states[kind][places] = state
        numbers[kind][places] = ids
    if not world.is_root:
        return None
    positions, velocities, forces = (
        np.concatenate([state[:, part].reshape(-1, 3) for state in states]) for part in range(3)
    )
    triangles = [len(kind.corners) for kind in kinds]
    counts = [kind.count for kind in kinds]
    return CellArrays(
        positions.astype(np.float64),
        np.concatenate([np.empty((0, 3), np.int64), *Blocks(TRIANGLE, kinds).connectivity()]),
        TRIANGLE,
        {"velocity": velocities, "force": forces},
        {
            "number": np.concatenate(list(map(np.repeat, numbers, triangles))),
            "kind": np.repeat(
                np.arange(len(kinds), dtype=np.int32), np.multiply(counts, triangles)
            ),
        },
        time,
    )


def _bodies(
    suspension: Suspension, region: Region, origin: Floats, units: LatticeUnits, world: World
) -> tuple[
    list[Block], Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]]
]:
    """Kinds of all cells and, on rank 0, kind, places in it, numbers and state of cells, rank by rank.

    All ranks go through the second.
    """
    own = [own_cells(local, region) for local in suspension.kinds]
    ids = [np.sort(to_root(world, cells.ids)) for cells in own]
    portions = _portions(world, [(cells.ids, _state(cells, origin, units)) for cells in own])
    kinds = [
        Block(len(numbers), local.membranes.vertices, local.kind.mesh.triangles)
        for local, numbers in zip(suspension.kinds, ids, strict=True)
    ]
    placed = (
        (kind, np.searchsorted(ids[kind], numbers), numbers, state)
        for kind, numbers, state in portions
    )
    return kinds, placed


def _state(cells: OwnCells, origin: Floats, units: LatticeUnits) -> NDArray[np.float32]:
    """Positions, velocities and forces in SI units, (n, 3, V, 3), as files hold them."""
    states = np.empty((len(cells.ids), 3, *cells.positions.shape[1:]), np.float32)
    states[:, 0] = origin + units.spacing * cells.positions
    states[:, 1] = units.velocity * cells.velocities
    states[:, 2] = units.force * cells.forces
    return states


def _portions(
    world: World, own: Sequence[tuple[NDArray[np.int64], NDArray[np.float32]]]
) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.float32]]]:
    """Kind, numbers and state of cells, rank by rank, on rank 0; all ranks go through this."""
    for kind, (ids, state) in enumerate(own):
        if not world.is_root:
            world.send(np.array([len(ids)], np.int64), 0)
            if len(ids):
                world.send(ids, 0)
                world.send(state, 0)
            continue
        yield kind, ids, state
        for rank in range(1, world.size):
            count = int(world.receive((1,), np.int64, rank)[0])
            if count:
                numbers = world.receive((count,), np.int64, rank)
                yield kind, numbers, world.receive((count, *state.shape[1:]), np.float32, rank)
