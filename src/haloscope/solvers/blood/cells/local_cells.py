"""Cells that a rank holds: owners and other holders, own cells on the host, and cells that enter a vessel."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device, Launch
from haloscope.device.targets import KernelFile
from haloscope.exchange.ranks.world import World
from haloscope.mesh.lattice.lattice_parts import Region
from haloscope.solvers.blood.cells.shared_vertices import SharedVertices
from haloscope.solvers.blood.membranes.membranes import ALONE, OWN, SHARED, MembraneLaw, Membranes
from haloscope.solvers.blood.membranes.meshes import CellShapes, MembraneMesh
from haloscope.solvers.blood.membranes.stretching import Stretch

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class CellKind:
    """Mesh and laws of a kind of cells, in lattice units."""

    name: str  # For people
    mesh: MembraneMesh  # Shape at rest
    law: MembraneLaw  # Of the membrane
    elements: Literal["loop", "linear"] = "loop"  # ``loop`` or ``linear``
    contrast: bool = False  # Whether the fluid inside is more or less viscous
    stretch: Stretch | None = None  # Where they are pulled apart


@dataclass(eq=False)
class LocalCells:
    """The n cells of one kind that are present on a rank: own ones, and copies of others'."""

    kind: CellKind  # What they are made of
    membranes: Membranes  # Positions, velocities and forces of their vertices
    rank: int
    ids: Integers  # (n,) their numbers, ascending; another array after each change
    owners: Integers  # (n,) ranks, the same on all that hold the cell; -1: it is taken out
    holders: Flags  # (n, ranks) which ranks hold them, this one included; the same on all of these
    total: int = 0  # How many there are on all ranks
    # Rows of the arrays that are worked on: those of the cells present, and some in which a cell is
    # parked outside all lattices, so that launches suit other numbers of cells, too.
    rows: int = 0
    # What gives copies of cells the velocities and forces of vertices that another rank knows.
    shared: SharedVertices | None = None

    @classmethod
    def none(cls, kind: CellKind, membranes: Membranes, world: World) -> LocalCells:
        """No cell of a kind."""
        return cls(kind, membranes, world.rank, *_nothing(world.size))

    def clear(self) -> None:
        """Hold no cell from now on."""
        self.total = 0
        self.ids, self.owners, self.holders = _nothing(self.holders.shape[1])

    def disown(self, gone: Flags) -> None:
        """Take cells out at the next migration: what nobody owns is held by nobody after it."""
        self.owners = np.where(gone & self.own, -1, self.owners)

    @property
    def own(self) -> Flags:
        """Which cells are this rank's own, (n,)."""
        own: Flags = self.owners == self.rank
        return own

    @property
    def count(self) -> int:
        """Cells present."""
        return len(self.ids)

    @property
    def vertices(self) -> int:
        """Of all rows that are worked on."""
        return self.rows * self.membranes.vertices

    def has(self, part: int) -> bool:
        """Whether there is any cell of a part."""
        parts = self.membranes.parts
        return any(parts[OWN:]) if part == SHARED else parts[part] > 0

    def parts(self) -> tuple[Integers, Integers, Integers]:
        """Rows of own cells that no other rank holds, of own cells that others hold, too, and of others'."""
        shared = self.holders.sum(axis=1) > 1
        parts = ~shared, shared & self.own, shared & ~self.own
        alone, own, copies = (np.flatnonzero(part) for part in parts)
        return alone, own, copies

    def sharing(self) -> tuple[dict[int, Integers], Integers]:
        """Rows of the cells that each other rank holds, too, by rank; and the owners of all cells."""
        others = np.flatnonzero(self.holders.any(axis=0)).tolist()
        rows = {rank: np.flatnonzero(self.holders[:, rank]) for rank in others if rank != self.rank}
        return rows, self.owners

    def fits_messages(self) -> bool:
        """Whether there is room in messages for the cells that are shared."""
        rows, owners = self.sharing()
        return not rows or (self.shared is not None and self.shared.fits(rows, owners))


def _nothing(ranks: int) -> tuple[Integers, Integers, Flags]:
    """Numbers, owners and holders of no cells."""
    none = np.zeros(0, np.int64)
    return none, none, np.zeros((0, ranks), bool)


@dataclass(frozen=True)
class OwnCells:
    """The n own cells of one kind, by number, in lattice units."""

    ids: NDArray[np.int64]  # (n,) their numbers
    # (n, V, 3) of their vertices; cells are moved by whole periods so that their centres lie in the
    # box. Forces are those of the membrane alone.
    positions: Floats
    velocities: Floats
    forces: Floats
    shapes: CellShapes  # Volumes, areas, centres (in the box) and moments
    # (n,) energies.
    elastic: Floats
    bending: Floats
    folds: Floats

    @property
    def stress(self) -> Floats:
        """(n, 3, 3) stress that membranes add to the suspension, on the cells' volumes."""
        # The stresslet of the forces F that the vertices at x exert on the fluid, over the volume:
        # -sum (x F + F x)/2 (G. K. Batchelor, J. Fluid Mech. 41, 1970, 545, without the term of a
        # different viscosity inside). Multiplied by the share of cells in the volume it is their
        # part of the mean stress.
        arms = self.positions - self.shapes.centre[:, None]
        moments = -np.einsum("nvi,nvj->nij", arms, self.forces)
        with np.errstate(divide="ignore", invalid="ignore"):
            stress: Floats = (moments + moments.swapaxes(1, 2)) / (
                2 * self.shapes.volume[:, None, None]
            )
        return stress


def own_cells(local: LocalCells, region: Region) -> OwnCells:
    """Bring the own cells of a kind to the host."""
    m, own, count = local.membranes, local.own, local.count
    # What was spread to the fluid holds repulsion too, and that only of vertices in this rank's box.
    spread = m.forces.copy()
    m.compute_forces(count)
    positions, velocities, forces = (
        m.on_host(array, count)[own] for array in (m.positions, m.velocities, m.forces)
    )
    m.forces[...] = spread
    shapes = m.shapes(count).chosen(own)
    energies = m.energies(count)
    shift = region.wrapped(shapes.centre) - shapes.centre
    return OwnCells(
        local.ids[own],
        positions + shift[:, None],
        velocities,
        forces,
        replace(shapes, centre=shapes.centre + shift),
        energies["elastic"][own],
        energies["bending"][own],
        energies["folds"][own],
    )


SOURCE = Path(__file__).with_name("entering.cpp")

_PARTS = (ALONE, SHARED)
_FETCHING = -1
# Rows of cells for which there is room at first.
_ROOM = 8


@dataclass(frozen=True, eq=False)
class Threshold:
    """Where cells come in; in lattice units."""

    # Into the vessel, of length 1, and a point in the opening's plane, (3,).
    normal: Floats
    point: Floats
    turn: Floats  # Makes velocities of the vessel out of those of the segment, (3, 3)
    # How far behind the plane a vertex begins to go with the vessel's fluid, and over which way the
    # fluid takes it over.
    deep: float
    fade: float

    def depths(self, positions: Floats) -> Floats:
        """How far behind the plane positions (..., 3) are."""
        # Term by term: the sum is the same however many there are.
        x, y, z = ((positions[..., a] - self.point[a]) * self.normal[a] for a in range(3))
        return np.asarray(x + y + z)


def kernel_file(real: str = "double") -> KernelFile:
    """The kernels of entering cells, and of inlets of a fluid with numbers of a type."""
    return KernelFile(SOURCE, {"real": real})


class EnteringCells:
    """Entering cells of one kind, and the velocities of their vertices.

    `led`: velocities of their vertices in lattice units, on the device: component d of vertex v of
    the k-th at (d * room + k) * vertices + v.
    """

    def __init__(self, device: Device, threshold: Threshold, local: LocalCells) -> None:
        self._device, self.threshold, self._local = device, threshold, local
        source, constants = kernel_file()
        self._lead, self._fetch = (
            device.kernel(source, name, constants) for name in ("lead", "fetch")
        )
        # Their numbers, the same on every rank, (n,), in the order of their coming.
        self.ids: Integers = np.zeros(0, np.int64)
        # Numbers of the cells of the segment that they were made of, (n,).
        self.sources: Integers = np.zeros(0, np.int64)
        self._listed: Integers | None = None  # Numbers of the cells present when rows were listed
        self._times_made = 0
        frame = np.concatenate([threshold.turn.ravel(), threshold.normal, threshold.point])
        self._frame = device.from_host(frame)
        self._make_room(_ROOM)

    def _make_room(self, room: int) -> None:
        device, vertices = self._device, self._local.membranes.vertices
        self.room = room
        self._times_made += 1
        self.led: Array = device.zeros((3 * room * vertices,), "f8")
        self._lists = {
            part: tuple(device.zeros((size,), np.int32) for size in (room, room, 1))
            for part in _PARTS
        }
        self._twins = device.zeros((room,), np.int32), device.zeros((1,), np.int32)
        # By part, and the one that fetches.
        self._launches: dict[int, tuple[Array, Launch]] = {}

    def keep(self, ids: Integers, sources: Integers) -> None:
        """Say which cells are on their way in, and of which of the segment they were made."""
        self.ids, self.sources = np.asarray(ids, np.int64), np.asarray(sources, np.int64)
        if len(self.ids) > self.room:
            self._make_room(2 * len(self.ids))
        self._listed = None
        values = np.zeros(self.room, np.int32)
        values[: len(sources)] = sources
        self._write(self._twins, (values, np.array([len(sources)], np.int32)))

    def _write(self, arrays: Iterable[Array], values: Iterable[np.ndarray]) -> None:
        for array, host in zip(arrays, values, strict=True):
            array[...] = self._device.from_host(host)

    def list(self) -> None:
        """Find the rows of these cells, where others than before may be present."""
        local = self._local
        if self._listed is local.ids:
            return
        self._listed = local.ids
        places = np.flatnonzero(np.isin(self.ids, local.ids))
        rows = np.searchsorted(local.ids, self.ids[places])
        shared = local.holders[rows].sum(axis=1) > 1
        for part, chosen in zip(_PARTS, (~shared, shared), strict=True):
            count = int(chosen.sum())
            values = np.zeros((2, self.room), np.int32)
            values[:, :count] = rows[chosen], places[chosen]
            self._write(self._lists[part], (*values, np.array([count], np.int32)))

    @property
    def bound_to(self) -> tuple[object, ...]:
        """Values that launches depend on; they are rebuilt when these change."""
        return (self._times_made, len(self.ids) > 0)

    def fetch(self, cells: Membranes) -> None:
        """Take over the velocities of their sources, all of which are cells of this rank by number."""
        if not len(self.ids):
            return

        def bind() -> Launch:
            rows, count = self._twins
            return self._fetch.bind(
                velocities=cells.velocities,
                capacity=cells.capacity,
                a_cell=cells.vertices,
                rows=rows,
                count=count,
                led=self.led,
                room=self.room,
                extent=(self.room * cells.vertices,),
            )

        self._launch(_FETCHING, cells.velocities, bind)

    def known(self, local: LocalCells) -> np.ndarray:
        """Velocities of sources that are this rank's own among cells, 0 of others, on the host, (3, n, V)."""
        m = local.membranes
        known_velocities = np.zeros((3, len(self.sources), m.vertices))
        here = np.flatnonzero(np.isin(self.sources, local.ids[local.own]))
        if here.size:
            rows = np.searchsorted(local.ids, self.sources[here])
            velocities = m.velocities.reshape(3, m.capacity, m.vertices)
            known_velocities[:, here] = self._device.to_host(
                velocities[:, self._device.from_host(rows)]
            )
        return known_velocities

    def gathered(self, velocities: np.ndarray) -> None:
        """Take over the sum of what all ranks knew, (3, n V)."""
        count = len(self.ids)
        if count:
            values = np.ascontiguousarray(velocities).reshape(3, count, -1)
            self.led.reshape(3, self.room, -1)[:, :count] = self._device.from_host(values)

    def lead(self, part: int) -> None:
        """Give vertices of cells of a part that are not yet in the vessel their velocities."""
        if not len(self.ids):
            return
        m, at = self._local.membranes, self.threshold

        def bind() -> Launch:
            rows, places, count = self._lists[part]
            return self._lead.bind(
                positions=m.view(m.positions, part),
                velocities=m.view(m.velocities, part),
                capacity=m.capacity,
                a_cell=m.vertices,
                rows=rows,
                places=places,
                count=count,
                led=self.led,
                room=self.room,
                frame=self._frame,
                deep=at.deep,
                fade=at.fade,
                extent=(self.room * m.vertices,),
            )

        self._launch(part, m.positions, bind)

    def _launch(self, name: int, array: Array, bind: Callable[[], Launch]) -> None:
        """Start what was bound for an array, and bind it where that is another."""
        bound_for, launch = self._launches.get(name, (None, None))
        if launch is None or bound_for is not array:
            launch = bind()
            self._launches[name] = array, launch
        launch()
