"""Migration of cells between ranks: when it happens, and the rows that cells have on the device."""

from __future__ import annotations

import functools
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device
from haloscope.device.targets import KernelFile
from haloscope.errors import FIELDS, SolutionError, counted
from haloscope.exchange.ranks.world import World
from haloscope.solvers.blood.cells.local_cells import CellKind, LocalCells
from haloscope.solvers.blood.cells.shared_vertices import MARGIN, SharedVertices, margin_for
from haloscope.solvers.blood.cells.sharing import (
    Arrival,
    CellOwnership,
    Leaving,
    Region,
    Shares,
    migrate,
)
from haloscope.solvers.blood.membranes.membranes import Membranes

SOURCE = Path(__file__).with_name("cell_rows.cpp")
_DIMENSIONS = 3

Floats = NDArray[np.float64]
Rows = NDArray[np.integer[Any]]

# As in cell_rows.cpp.
_QUANTITIES = 14
_OUTLINE_BLOCK, _ROWS_BLOCK = 32, 128


@dataclass(frozen=True)
class Outlines:
    """Where n cells are, and how fast, in lattice units."""

    # (n, 3) corners of their bounding boxes, and means of their vertices; not wrapped.
    low: Floats
    high: Floats
    centre: Floats
    velocity: Floats  # (n, 3) means of their vertices' velocities
    fastest: Floats  # (n,) largest component of a vertex' velocity
    finite: NDArray[np.bool_]  # (n,) whether all positions and velocities are finite numbers


def fields_of(cells: Membranes) -> int:
    """Values of a vertex in a state."""
    return _DIMENSIONS * len(cells.state)


def kernel_file() -> KernelFile:
    """The kernels that read and rearrange rows of cells."""
    return KernelFile(SOURCE, {"real": "double"})


class CellRows:
    """Reads and rearranges the rows that :class:`Membranes` has for cells, on the device."""

    def __init__(self, device: Device) -> None:
        self._device = device
        source, constants = kernel_file()
        self._outline, self._give, self._take = (
            device.kernel(source, name, constants) for name in ("outline", "give_rows", "take_rows")
        )

    def outlines(self, cells: Membranes, count: int) -> Outlines:
        """Where the first `count` cells are; sums run in an order of their own, the same anywhere."""
        outlines = self._device.zeros((_QUANTITIES * count,), "f8")
        if count:
            self._outline.bind(
                positions=cells.positions,
                velocities=cells.velocities,
                room=cells.capacity,
                a_cell=cells.vertices,
                count=count,
                outlines=outlines,
                extent=(_OUTLINE_BLOCK * count,),
                block=(_OUTLINE_BLOCK,),
            )()
        table = self._device.to_host(outlines).reshape(_QUANTITIES, count)
        low, high, centre, velocity = (table[first : first + 3].T for first in (0, 3, 6, 9))
        return Outlines(low, high, centre, velocity, table[12], table[13] == 1)

    def states(self, cells: Membranes, rows: Rows) -> Floats:
        """States (n, fields, V) of the cells in n rows, on the host: 3 of each array of the state."""
        count, vertices, fields = len(rows), cells.vertices, fields_of(cells)
        if count == 0:
            return np.empty((0, fields, vertices))
        gathered = self._device.empty((count, fields, vertices), "f8")
        places = self._device.from_host(rows.astype(np.int32))
        for number, array in enumerate(cells.state):
            self._give.bind(
                array=array,
                room=cells.capacity,
                a_cell=vertices,
                rows=places,
                count=count,
                states=gathered,
                first=_DIMENSIONS * number,
                fields=fields,
                extent=(_DIMENSIONS * count * _ROWS_BLOCK,),
                block=(_ROWS_BLOCK,),
            )()
        states: Floats = self._device.to_host(gathered)
        return states

    def rearrange(self, cells: Membranes, into: Membranes, rows: Rows, came: Floats) -> None:
        """Make a cell's row that of another, or one that came.

        `rows`: (n,) which row of `cells` each of the first n rows of `into` comes from; -1 - k
        where it is state k of `came`; `came`: states (m, fields, V), on the host.
        """
        count, vertices = len(rows), cells.vertices
        if count == 0:
            return
        states = self._device.from_host(came if len(came) else np.empty((1, 1, 1)))
        places = self._device.from_host(rows.astype(np.int32))
        fields = fields_of(cells)
        for number, (old, new) in enumerate(zip(cells.state, into.state, strict=True)):
            # Forces are set anew before they are used again.
            target: Array = into.forces if cells is into else new
            self._take.bind(
                old=old,
                room=cells.capacity,
                states=states,
                first=_DIMENSIONS * number,
                fields=fields,
                a_cell=vertices,
                rows=places,
                count=count,
                fresh=target,
                fresh_room=into.capacity,
                extent=(_DIMENSIONS * count * _ROWS_BLOCK,),
                block=(_ROWS_BLOCK,),
            )()
            if cells is into:
                used = (slice(None), slice(count))
                shape = (_DIMENSIONS, into.capacity, vertices)
                new.reshape(shape)[used] = target.reshape(shape)[used]


FIRST_STEPS = 4
"""Steps after the start, in which cells may gain any sound speed."""

# Speeds in spacings a step below which it does not matter how slow vertices are.
_STILL = 1e-6


class CellTimetable:
    """Says at which steps cells are looked at and handed over.

    Looks tell the largest speed. Cells are handed over before a vertex at twice that can have left
    the margin since they were handed over last; as long as it cannot have, a look is enough.
    """

    def __init__(self, interval: int, *, hands_over: bool) -> None:
        self._interval, self._hands_over = interval, hands_over
        # Steps after which cells are to be handed over, and after which they are to be looked at;
        # :data:`sys.maxsize`: not before the other.
        self.due, self.look_at = 0, sys.maxsize
        # Steps that were thought of last, and spacings that a vertex may have moved since a hand-over
        # when the next look is due.
        self._last, self._moved = FIRST_STEPS, 0.0
        self._margin = MARGIN

    def handed_over(self, step: int, fastest: float, margin: float = MARGIN) -> None:
        """Take note that cells were handed over after a step, with this largest speed and margin."""
        self._moved, self._margin = 0.0, margin
        if step or not self._hands_over:
            self.looked(step, fastest)
        else:
            self.due, self.look_at = FIRST_STEPS, sys.maxsize

    def looked(self, step: int, fastest: float) -> None:
        """Take note that cells were looked at."""
        pace = max(2 * fastest, _STILL)
        # Speeds grow no faster than this looks again.
        steps = min(self._interval, 2 * max(self._last, FIRST_STEPS))
        self._last = max(1, min(steps, int(self._margin / pace)))
        left = int((self._margin - self._moved) / pace)
        self.due = self.look_at = sys.maxsize
        if self._hands_over and left <= steps:
            self.due = step + max(1, left)
        else:
            self.look_at = step + steps
            self._moved += steps * pace


SPARE = 1 / 64
"""Rows that are worked on beyond those of cells, over the number of these, on several ranks."""

# Room for cells over the rows that are worked on.
_ROOM = 1.25
# Beyond what kernels take for a place, and near enough for a cell to keep its shape.
_PARKED = 2e9

RowNumbers = NDArray[np.int64]


class CellMigration:
    """Sees to it that each cell is held by the ranks that it reaches, and by them alone.

    `reach`: by how much cells are widened, in spacings, with the least margin.
    """

    # The host decides, from a few numbers a cell. Copies stay where they are on the device; only
    # states that are new to a rank pass through the host, and rows move up on the device where
    # others have come or gone. Where nothing has changed only what travels in each step is listed
    # anew. Rows beyond those of cells let the number of cells change a little without other
    # launches.

    def __init__(
        self,
        device: Device,
        world: World,
        region: Region,
        reach: float,
        transport: str,
        forget: Callable[[Array], None],
    ) -> None:
        self._device, self._world, self._region = device, world, region
        self._reach, self._transport, self._forget = reach, transport, forget
        # Spacings that a vertex may move before cells are handed over again. It grows with the
        # largest speed so far, so that hand-overs are not too many.
        self.margin = MARGIN
        # Numbers of cells of each kind, and their centres, when they were looked at last.
        self._seen: dict[str, tuple[RowNumbers, NDArray[np.float64]]] = {}
        self._rows = CellRows(device)

    def own_states(self, local: LocalCells) -> np.ndarray:
        """Of own cells, (n, arrays of the state, V, 3)."""
        cells = local.membranes
        states = self._rows.states(cells, np.flatnonzero(local.own))
        return np.moveaxis(states.reshape(-1, len(cells.state), _DIMENSIONS, cells.vertices), 2, 3)

    def add(self, local: LocalCells, ids: np.ndarray, values: np.ndarray) -> None:
        """Add own cells with states as of `own_states` on this rank alone, to be handed over then."""
        world, held = self._world, local.held
        order = np.argsort(np.concatenate([held.ids, ids]), kind="stable")
        alone = np.zeros((len(ids), world.size), bool)
        alone[:, world.rank] = True
        there = CellOwnership(
            np.concatenate([held.ids, ids])[order],
            np.concatenate([held.own, np.ones(len(ids), bool)])[order],
            np.concatenate([held.holders, alone])[order],
            np.concatenate([held.owners, np.full(len(ids), world.rank)])[order],
        )
        rows = np.concatenate([np.arange(held.count), -1 - np.arange(len(ids))])[order]
        cells = local.membranes
        state = np.moveaxis(values, 3, 2).reshape(len(ids), fields_of(cells), cells.vertices)
        self._arrange(local, Arrival(there, rows, state))

    def outlines(self, local: LocalCells) -> Outlines:
        """Where cells of a kind are that are present."""
        return self._rows.outlines(local.membranes, local.count)

    def look(self, kinds: Sequence[LocalCells]) -> tuple[list[Outlines], float]:
        """Where cells are, and the largest speed on any rank; all ranks call this."""
        all_outlines = [self.outlines(local) for local in kinds]
        heard = np.zeros(1 + len(kinds))
        fault: SolutionError | None = None
        for local, outlines in zip(kinds, all_outlines, strict=True):
            heard[0] = outlines.fastest[local.own].max(initial=heard[0])
            for bad in local.ids[local.own & ~outlines.finite][:1]:
                fault = SolutionError(
                    f"the position of a vertex is NaN{self._last_place(local, int(bad))}",
                    location=f"{local.kind.name} {bad}",
                )
        # One message for both: the largest speed, and how many cells there are.
        heard[0] = heard[0] if fault is None else math.inf
        heard[1:] = [local.own.sum() for local in kinds]
        answers = self._world.allgather(heard)
        fastest = float(answers[:, 0].max())
        if math.isinf(fastest):
            raise_together(self._world, fault)
        _require_all(kinds, answers[:, 1:].sum(axis=0).astype(int).tolist())
        for local, outlines in zip(kinds, all_outlines, strict=True):
            self._seen[local.kind.name] = local.ids, outlines.centre
        return all_outlines, fastest

    def _last_place(self, local: LocalCells, number: int) -> str:
        """Clause on the place of a cell at the previous check; empty where it was absent."""
        ids, centres = self._seen.get(local.kind.name, (np.zeros(0, np.int64), np.zeros((0, 3))))
        place = self._region.wrapped(centres[ids == number])
        if not len(place):
            return ""
        x, y, z = np.rint(place[0]).astype(int).tolist()
        return f"; at the previous check the cell was near lattice point ({x}, {y}, {z})"

    def _count(self, kinds: Sequence[LocalCells], own: Sequence[int], *more: Sequence[int]) -> Any:
        """See that what ranks own is all that there is; sums over ranks of more numbers."""
        owned, *others = self._world.sum(np.array([own, *more], np.int64))
        _require_all(kinds, owned.tolist())
        return others

    def complete(self, kinds: Sequence[LocalCells]) -> None:
        """Put copies of cells where their owners have these; all ranks call this."""
        for local in kinds:
            if local.shared is not None:
                local.shared.complete(local.membranes)

    def migrate(self, kinds: Sequence[LocalCells], *, all_owned: bool = False) -> float:
        """Give cells of some kinds to all ranks that they reach, and count them; all ranks call this.

        Copies of cells that were held before are to be complete.
        """
        looks, fastest = self.look(kinds)
        self.margin = max(self.margin, margin_for(fastest))
        reach = self._reach + self.margin - MARGIN
        leaving = [
            Leaving(
                local.held,
                *(look.low, look.high, look.centre),
                functools.partial(self._flat_states, local.membranes),
            )
            for local, look in zip(kinds, looks, strict=True)
        ]
        arrivals = migrate(self._world, self._region, leaving, reach, all_owned=all_owned)
        shares = [arrival.held.shares(self._world.rank) for arrival in arrivals]
        crowded = [
            bool(share.both) and not (local.shared is not None and local.shared.fits(share))
            for local, share in zip(kinds, shares, strict=True)
        ]
        counts = [int(arrival.held.own.sum()) for arrival in arrivals]
        (needed,) = self._count(kinds, counts, crowded)
        rows = zip(kinds, arrivals, shares, needed.tolist(), strict=True)
        for local, arrival, shared, anew in rows:
            self._arrange(local, arrival)
            self._share(local, shared, anew=bool(anew))
            local.membranes.divide(*_parts(arrival.held))
            local.membranes.keep_velocities()
        self._list_vertices(kinds)
        return fastest

    def _flat_states(self, cells: Membranes, rows: np.ndarray) -> np.ndarray:
        states = self._rows.states(cells, rows)
        return states.reshape(len(rows), fields_of(cells) * cells.vertices)

    def _arrange(self, local: LocalCells, arrival: Arrival) -> None:
        """Give the cells that are present now their rows."""
        cells, count = local.membranes, arrival.held.count
        rows = self._rows_for(local.rows, count)
        if arrival.moves(local.count):
            came = arrival.came.reshape(-1, fields_of(cells), cells.vertices)
            parked = np.full(rows - count, -1 - len(came))
            if rows > count:
                came = np.concatenate([came, _parked_state(local)])
            if rows > cells.capacity:
                local.membranes = room_for(self._device, local.kind, int(_ROOM * rows) + 1)
                self._forget(cells.positions)
                if local.shared is not None:
                    local.shared.forget(cells)
            places = np.concatenate([arrival.rows, parked])
            self._rows.rearrange(cells, local.membranes, places, came)
        local.held, local.rows = arrival.held, rows

    def _rows_for(self, rows: int, count: int) -> int:
        """Rows to work on for a number of cells: as many as before, if that is about right."""
        spare = int(SPARE * count) if self._world.size > 1 else 0
        return rows if count <= rows <= count + 2 * spare else count + spare

    def _share(self, local: LocalCells, shares: Shares, *, anew: bool) -> None:
        """Share cells with those who hold them; with new messages where these have no room on a rank."""
        if anew and local.shared is None:
            local.shared = SharedVertices(
                *(self._world, self._device, self._region, self._reach, self._transport),
                local.membranes.vertices,
            )
        if local.shared is not None:
            if anew:
                local.shared.open(shares)
            local.shared.renew(local.held, shares, self.margin)

    def _list_vertices(self, kinds: Sequence[LocalCells]) -> None:
        """List what travels in each step from now on."""
        listed = [(local.shared, local.membranes) for local in kinds if local.shared is not None]
        if not listed:
            return
        crowded = [shared.count(cells) for shared, cells in listed]
        needed = self._world.sum(np.array(crowded, np.int64)).tolist()
        for (shared, cells), anew in zip(listed, needed, strict=True):
            if anew:
                shared.make_room()
            shared.list(cells)


def _require_all(kinds: Sequence[LocalCells], owned: Sequence[int]) -> None:
    """See that ranks own as many cells of each kind as there are."""
    for local, count in zip(kinds, owned, strict=True):
        if count != local.total:
            raise SolutionError(
                f"{local.total - count} of {counted(local.total, 'cell')} are lost",
                location=f"blood.cells {local.kind.name}",
            )


def _parts(held: CellOwnership) -> tuple[RowNumbers, RowNumbers, RowNumbers]:
    """Places of own cells that no other rank holds, of own cells that others hold, too, and of others'."""
    shared = held.holders.sum(axis=1) > 1
    parts = ~shared, shared & held.own, shared & ~held.own
    alone, own, copies = (np.flatnonzero(part) for part in parts)
    return alone, own, copies


def _parked_state(local: LocalCells) -> np.ndarray:
    """State (1, fields, V) of a cell that meets nothing."""
    state = np.zeros((1, fields_of(local.membranes), local.membranes.vertices))
    state[0, :_DIMENSIONS] = local.kind.mesh.vertices.T + _PARKED
    return state


def room_for(device: Device, kind: CellKind, cells: int) -> Membranes:
    """Membranes with room for so many cells of a kind."""
    return Membranes(device, kind.mesh, cells, kind.law, elements=kind.elements)


def raise_together(world: World, fault: SolutionError | None) -> None:
    """Raise the first fault of the ranks on every rank."""
    if world.any(fault is not None):
        fields = {} if fault is None else {field: getattr(fault, field) for field in FIELDS}
        texts = world.gather_texts(json.dumps(fields) if fields else "")
        raise SolutionError(**json.loads(next(text for text in texts if text)))
