"""Exchange of the vertices of cells that several ranks hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Device, Launch
from haloscope.device.targets import KernelFile
from haloscope.exchange import rows as row_exchange
from haloscope.exchange.engine import Exchange
from haloscope.exchange.ranks.world import World
from haloscope.exchange.rows import Rows, open_rows
from haloscope.mesh.lattice.lattice_parts import Region
from haloscope.solvers.blood.membranes.membranes import COPIES, OWN, SHARED, Membranes

SOURCE = Path(__file__).with_name("shared_vertices.cpp")
KERNELS = ("count_travelling", "add_up_lines", "list_travelling")

MARGIN = 2.0
"""Least spacings that a vertex may move before cells are handed over again."""
# The widest, and steps in which a vertex at twice the largest speed is not to use margins up. On four GPUs one of 6
# makes a step at rest 6 % longer than one of 4.
_MOST_MARGIN = 4.0
_STEPS_APART = 40

# As in shared_vertices.cpp.
_LANES, _SUMS, _LISTS = 32, 128, 4
_HERE, _THERE, _ELSEWHERE = range(3)
_GROWTH, _SPARE_LINES = 1.15, 4
_DIMENSIONS = 3

RowNumbers = NDArray[np.int64]
RowsOfRanks = Mapping[int, RowNumbers]
Counts = Mapping[int, int]


def margin_for(fastest: float) -> float:
    """Margin in spacings that is worth its while where the largest speed is so many spacings a step."""
    wanted = MARGIN * math.ceil(2 * fastest * _STEPS_APART / MARGIN)
    return min(max(MARGIN, wanted), _MOST_MARGIN)


class SharedVertices:
    """Exchanges of the vertices of those cells of a kind that this rank and another hold.

    `reach`: how far outside of a rank's box vertices are of use to it before cells are handed over
    again, in spacings, with the least margin.
    """

    # A vertex gets its velocity from the rank in whose box it is, and its force from the owner of
    # its cell. Owners get the velocities of all vertices. Others get velocities and forces of those
    # vertices alone that can come near their boxes before lists are made anew; of a copy, the other
    # vertices stay behind until :meth:`complete` puts them where the owner has them.

    def __init__(
        self,
        world: World,
        device: Device,
        region: Region,
        reach: float,
        transport: str,
        vertices: int,
    ) -> None:
        self._world, self._device, self._region = world, device, region
        self._reach, self._margin = reach, MARGIN
        self._transport, self._vertices = transport, vertices
        self._kernels = kernels(device)
        # Exchanges of whole cells, and of the vertices that are listed.
        self.whole: Exchange[Rows] | None = None
        self.velocities: Exchange[Rows] | None = None
        self.forces: Exchange[Rows] | None = None
        # Lines of the kernels, and how many there is room for.
        self._lines = np.zeros(0, np.int32)
        self._room = -1
        # What launches are bound to, and these.
        self._bound: tuple[tuple[object, ...], list[Launch]] = ((), [])
        self._bound_margin = MARGIN
        self._sent_counts: NDArray[np.int32] = np.zeros((0, _LISTS), np.int32)

    @property
    def exchanges(self) -> tuple[Exchange[Rows] | None, Exchange[Rows] | None]:
        """Exchanges of each step."""
        return self.velocities, self.forces

    @property
    def capturable(self) -> bool:
        """Whether what a step exchanges may be captured into a graph."""
        return all(exchange is None or exchange.capturable for exchange in self.exchanges)

    @property
    def bytes_sent(self) -> int:
        """Bytes of the messages of a step, with the room that they have."""
        return sum(exchange.bytes_sent for exchange in self.exchanges if exchange is not None)

    def fits(self, cells: RowsOfRanks, owners: RowNumbers) -> bool:
        """Whether there is room for cells: rows of those that each other rank holds, and owners of all."""
        counts = map(_counts, self._sent_and_received(cells, owners))
        return self.whole is not None and self.whole.index.fits(*counts)

    def _sent_and_received(
        self, cells: RowsOfRanks, owners: RowNumbers
    ) -> tuple[RowsOfRanks, RowsOfRanks]:
        """Rows that this rank owns, and rows that the other rank owns, of those that both hold."""
        rank = self._world.rank
        sent = {other: rows[owners[rows] == rank] for other, rows in cells.items()}
        return sent, {other: rows[owners[rows] == other] for other, rows in cells.items()}

    def open(self, cells: RowsOfRanks, owners: RowNumbers) -> None:
        """Make room for the cells that are shared; all ranks call this."""
        sent, received = map(_counts, self._sent_and_received(cells, owners))
        self.whole = self._opened(sent, received, self._vertices, self.whole, False)
        ranks, boxes = [*self.whole.index.rooms[0], self._world.rank], self._region.boxes
        table = np.concatenate([boxes.lo[ranks] - 0.5, (boxes.hi - boxes.lo)[ranks]], axis=1)
        periods = np.where(self._region.periodic, self._region.shape, 0)
        self._boxes = self._device.from_host(
            np.concatenate([table.ravel(), periods]).astype(np.float64)
        )
        self._on_device = self._device.zeros((_LISTS * max(1, len(ranks) - 1),), np.int32)
        self._room = -1

    def renew(self, cells: RowsOfRanks, owners: RowNumbers, margin: float) -> None:
        """Share these cells from now on, of which no vertex moves by more than a margin."""
        assert self.whole is not None
        self._margin = margin
        rank = self._world.rank
        row_exchange.renew(self.whole, *self._sent_and_received(cells, owners))
        lines, begins = [], [0]
        for message, other in enumerate(self.whole.index.rooms[0]):
            rows = cells.get(other, np.zeros(0, np.int64))
            owner = owners[rows]
            who = np.where(owner == rank, _HERE, np.where(owner == other, _THERE, _ELSEWHERE))
            lines.append(np.stack([np.full(len(rows), message), rows, who], axis=1))
            begins.append(begins[-1] + len(rows))
        count = begins[-1]
        if count > self._room:
            self._room = int(_GROWTH * count) + _SPARE_LINES
            self._table = self._device.zeros(
                (1 + len(begins) + _DIMENSIONS * self._room,), np.int32
            )
            self._line_counts = self._device.zeros((_LISTS * self._room,), np.int32)
            self._lines = np.zeros(0, np.int32)
        words = np.concatenate([[count], begins, *(line.ravel() for line in lines)]).astype(
            np.int32
        )
        table = np.zeros(1 + len(begins) + _DIMENSIONS * self._room, np.int32)
        table[: len(words)] = words
        if not np.array_equal(table, self._lines):
            self._lines = table
            self._table[...] = self._device.from_host(table)

    def count(self, cells: Membranes) -> bool:
        """Count what is to be listed; whether there is too little room for it."""
        self._bind(cells)
        for launch in self._bound[1][:2]:
            launch()
        messages = self._messages
        counts = self._device.to_host(self._on_device)[: _LISTS * messages]
        self._sent_counts = counts.reshape(messages, _LISTS)
        return any(
            exchange is None or not exchange.index.fits(*counts)
            for exchange, counts in zip(self.exchanges, self._wanted(), strict=True)
        )

    def make_room(self) -> None:
        """Open exchanges with room for what was counted; all ranks call this."""
        velocities, forces = self._wanted()
        self.velocities = self._opened(*velocities, 1, self.velocities, True)
        self.forces = self._opened(*forces, 1, self.forces, False)

    def _name_parts(self, cells: Membranes) -> None:
        """Tell the exchanges of each step which cells they send and fill."""
        for exchange, array, sent, filled in (
            (self.velocities, cells.velocities, SHARED, SHARED),
            (self.forces, cells.forces, OWN, COPIES),
        ):
            if exchange is not None:
                views = cells.view(array, sent), cells.view(array, filled)
                exchange.name_parts(array, sent=views[0], filled=views[1])

    def list(self, cells: Membranes) -> None:
        """List what was counted."""
        self._bind(cells)
        self._bound[1][2]()

    def complete(self, cells: Membranes) -> None:
        """Give copies the state that their owners have of the cells; all ranks call this."""
        if self.whole is not None:
            self._device.fork()
            for array in cells.state:
                self.whole.swap(array)
            self._device.join()

    def forget(self, cells: Membranes) -> None:
        """Let go of arrays that will not be given again."""
        for exchange in (self.whole, *self.exchanges):
            if exchange is not None:
                for array in (*cells.state, cells.forces):
                    exchange.forget(array)
        self._bound = ((), [])

    @property
    def _messages(self) -> int:
        assert self.whole is not None
        return len(self.whole.index.rooms[0])

    def _wanted(self) -> tuple[tuple[Counts, Counts], tuple[Counts, Counts]]:
        """Entries to send to and to get from each other rank: of velocities, and of forces."""
        assert self.whole is not None
        a, b, c, d = (
            dict(zip(self.whole.index.rooms[0], counts, strict=True))
            for counts in self._sent_counts.T.tolist()
        )
        return (a, b), (c, d)

    def _opened(
        self,
        sent: Counts,
        received: Counts,
        width: int,
        before: Exchange[Rows] | None,
        completes: bool,
    ) -> Exchange[Rows]:
        return open_rows(
            *(self._world, self._device, sent, received, width, _DIMENSIONS, np.float64),
            self._transport,
            completes=completes,
            before=before,
            stream=self._device.side,
        )

    def _bind(self, cells: Membranes) -> None:
        """Bind launches where cells, lines or lists lie elsewhere than before."""
        key: tuple[Any, ...] = (cells, self._table, self._boxes, *self.exchanges)
        bound_for, margin = self._bound[0], self._bound_margin
        same = len(key) == len(bound_for) and margin == self._margin
        if same and all(a is b for a, b in zip(key, bound_for, strict=True)):
            return
        count, add_up, fill = self._kernels
        messages = self._messages
        lines = {"table": self._table, "messages": messages, "counts": self._line_counts}
        arguments: dict[str, Any] = {
            "positions": cells.positions,
            "vertices": cells.capacity * cells.vertices,
            "a_cell": cells.vertices,
            **lines,
            "boxes": self._boxes,
            "reach": self._reach + self._margin - MARGIN,
            "margin": self._margin,
        }
        totals = self._on_device
        bound = [
            count.bind(**arguments, extent=(_LANES * max(1, self._room),), block=(_LANES,)),
            add_up.bind(**lines, totals=totals, extent=(_SUMS * max(1, messages),), block=(_SUMS,)),
        ]
        if self.velocities is not None and self.forces is not None:
            arrays = (self.velocities, self.forces)
            firsts = np.concatenate([one for exchange in arrays for one in exchange.index.firsts])
            (velocities_out, velocities_in), (forces_out, forces_in) = (
                exchange.index.lists for exchange in arrays
            )
            bound.append(
                fill.bind(
                    **arguments,
                    totals=totals,
                    firsts=self._device.from_host(np.append(firsts, 0).astype(np.int32)),
                    velocities_out=velocities_out,
                    velocities_in=velocities_in,
                    forces_out=forces_out,
                    forces_in=forces_in,
                    extent=(_LANES * max(1, self._room, messages),),
                    block=(_LANES,),
                )
            )
        self._bound, self._bound_margin = (key, bound), self._margin
        self._name_parts(cells)


def kernel_file() -> KernelFile:
    """The kernels that list which vertices travel."""
    return KernelFile(SOURCE, {"real": "double"})


def kernel_files() -> list[KernelFile]:
    """The kernels that list travelling vertices, and that exchange their velocities and forces."""
    exchanges = [
        row_exchange.kernel_file(np.float64, _DIMENSIONS, completes=completes)
        for completes in (True, False)
    ]
    return [kernel_file(), *exchanges]


def kernels(device: Device) -> list[Any]:
    """Kernels that make the lists, in order."""
    source, constants = kernel_file()
    return [device.kernel(source, name, constants) for name in KERNELS]


def _counts(rows: RowsOfRanks) -> dict[int, int]:
    return {rank: len(listed) for rank, listed in rows.items()}
