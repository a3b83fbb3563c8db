"""Cells that enter a vessel: their parts behind the opening are moved along."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device, Launch
from haloscope.device.targets import KernelFile
from haloscope.solvers.blood.cells.local_cells import LocalCells
from haloscope.solvers.blood.membranes.membranes import ALONE, SHARED, Membranes

SOURCE = Path(__file__).with_name("entering.cpp")

_PARTS = (ALONE, SHARED)
_FETCHING = -1
# Rows of cells for which there is room at first.
_ROOM = 8

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Threshold:
    """Where cells come in."""

    # The way into the vessel is `sign` (1 or -1) along `axis`.
    axis: int
    sign: int
    plane: float  # Coordinate of the opening's points along the axis, in lattice units
    # How far behind it a vertex begins to go with the vessel's fluid, and over which way the fluid
    # takes it over.
    deep: float
    fade: float

    def depths(self, positions: np.ndarray) -> np.ndarray:
        """How far behind the plane positions (..., 3) are."""
        depths: np.ndarray = self.sign * (positions[..., self.axis] - self.plane)
        return depths


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
                axis=at.axis,
                sign=at.sign,
                plane=at.plane,
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
