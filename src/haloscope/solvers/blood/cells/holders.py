"""Who holds which cells: hand-overs between ranks, with the rows that cells have on the device."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device
from haloscope.errors import SolutionError
from haloscope.exchange.world import World
from haloscope.solvers.blood.cells.present_cells import CellKind, Present
from haloscope.solvers.blood.cells.rows import CellRows, Outlines, fields_of
from haloscope.solvers.blood.cells.shared_vertices import MARGIN, SharedVertices, margin_for
from haloscope.solvers.blood.cells.sharing import Arrival, Held, Leaving, Region, Shares, hand_over
from haloscope.solvers.blood.membranes.membranes import Membranes

SPARE = 1 / 64
"""Rows that are worked on beyond those of cells, over the number of these, on several ranks."""

# Room for cells over the rows that are worked on.
_ROOM = 1.25
# Beyond what kernels take for a place, and near enough for a cell to keep its shape.
_PARKED = 2e9
_DIMENSIONS = 3

Rows = NDArray[np.int64]


class Holders:
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
        self._seen: dict[str, tuple[Rows, NDArray[np.float64]]] = {}
        self._rows = CellRows(device)

    def own_states(self, given: Present) -> np.ndarray:
        """Of own cells, (n, arrays of the state, V, 3)."""
        cells = given.membranes
        states = self._rows.states(cells, np.flatnonzero(given.own))
        return np.moveaxis(states.reshape(-1, len(cells.state), _DIMENSIONS, cells.vertices), 2, 3)

    def add(self, given: Present, ids: np.ndarray, values: np.ndarray) -> None:
        """Add own cells with states as of `own_states` on this rank alone, to be handed over then."""
        world, held = self._world, given.held
        order = np.argsort(np.concatenate([held.ids, ids]), kind="stable")
        alone = np.zeros((len(ids), world.size), bool)
        alone[:, world.rank] = True
        there = Held(
            np.concatenate([held.ids, ids])[order],
            np.concatenate([held.own, np.ones(len(ids), bool)])[order],
            np.concatenate([held.holders, alone])[order],
            np.concatenate([held.owners, np.full(len(ids), world.rank)])[order],
        )
        rows = np.concatenate([np.arange(held.count), -1 - np.arange(len(ids))])[order]
        cells = given.membranes
        state = np.moveaxis(values, 3, 2).reshape(len(ids), fields_of(cells), cells.vertices)
        self._arrange(given, Arrival(there, rows, state))

    def outlines(self, given: Present) -> Outlines:
        """Where cells of a kind are that are present."""
        return self._rows.outlines(given.membranes, given.count)

    def look(self, kinds: Sequence[Present]) -> tuple[list[Outlines], float]:
        """Where cells are, and the largest speed on any rank; all ranks call this."""
        found = [self.outlines(given) for given in kinds]
        heard = np.zeros(1 + len(kinds))
        fault = ""
        for given, outlines in zip(kinds, found, strict=True):
            heard[0] = outlines.fastest[given.own].max(initial=heard[0])
            for bad in given.ids[given.own & ~outlines.finite][:1]:
                fault = f"{given.kind.name} {bad} has a vertex whose position is no number"
                fault += self._last_place(given, int(bad))
        # One message for both: the largest speed, and how many cells there are.
        heard[0] = math.inf if fault else heard[0]
        heard[1:] = [given.own.sum() for given in kinds]
        told = self._world.allgather(heard)
        fastest = float(told[:, 0].max())
        if math.isinf(fastest):
            raise_together(self._world, fault)
        _require_all(kinds, told[:, 1:].sum(axis=0).astype(int).tolist())
        for given, outlines in zip(kinds, found, strict=True):
            self._seen[given.kind.name] = given.ids, outlines.centre
        return found, fastest

    def _last_place(self, given: Present, number: int) -> str:
        """Where a cell was when cells were looked at before, in words; nothing where it was not there."""
        ids, centres = self._seen.get(given.kind.name, (np.zeros(0, np.int64), np.zeros((0, 3))))
        place = self._region.wrapped(centres[ids == number])
        if not len(place):
            return ""
        x, y, z = np.rint(place[0]).astype(int).tolist()
        return f"; when cells were looked at before, it was around point ({x}, {y}, {z}) of the lattice"

    def _count(self, kinds: Sequence[Present], own: Sequence[int], *more: Sequence[int]) -> Any:
        """See that what ranks own is all that there is; sums over ranks of more numbers."""
        owned, *others = self._world.sum(np.array([own, *more], np.int64))
        _require_all(kinds, owned.tolist())
        return others

    def complete(self, kinds: Sequence[Present]) -> None:
        """Put copies of cells where their owners have these; all ranks call this."""
        for given in kinds:
            if given.shared is not None:
                given.shared.complete(given.membranes)

    def hand_over(self, kinds: Sequence[Present], *, all_owned: bool = False) -> float:
        """Give cells of some kinds to all ranks that they reach, and count them; all ranks call this.

        Copies of cells that were held before are to be complete.
        """
        looks, fastest = self.look(kinds)
        self.margin = max(self.margin, margin_for(fastest))
        reach = self._reach + self.margin - MARGIN
        leaving = [
            Leaving(
                given.held,
                *(look.low, look.high, look.centre),
                functools.partial(self._flat_states, given.membranes),
            )
            for given, look in zip(kinds, looks, strict=True)
        ]
        arrivals = hand_over(self._world, self._region, leaving, reach, all_owned=all_owned)
        shares = [each.held.shares(self._world.rank) for each in arrivals]
        crowded = [
            bool(each.both) and not (given.shared is not None and given.shared.fits(each))
            for given, each in zip(kinds, shares, strict=True)
        ]
        counts = [int(each.held.own.sum()) for each in arrivals]
        (needed,) = self._count(kinds, counts, crowded)
        each = zip(kinds, arrivals, shares, needed.tolist(), strict=True)
        for given, arrival, shared, anew in each:
            self._arrange(given, arrival)
            self._share(given, shared, anew=bool(anew))
            given.membranes.divide(*_parts(arrival.held))
            given.membranes.keep_velocities()
        self._list_vertices(kinds)
        return fastest

    def _flat_states(self, cells: Membranes, rows: np.ndarray) -> np.ndarray:
        states = self._rows.states(cells, rows)
        return states.reshape(len(rows), fields_of(cells) * cells.vertices)

    def _arrange(self, given: Present, arrival: Arrival) -> None:
        """Give the cells that are present now their rows."""
        cells, count = given.membranes, arrival.held.count
        rows = self._rows_for(given.rows, count)
        if arrival.moves(given.count):
            came = arrival.came.reshape(-1, fields_of(cells), cells.vertices)
            parked = np.full(rows - count, -1 - len(came))
            if rows > count:
                came = np.concatenate([came, _parked_state(given)])
            if rows > cells.capacity:
                given.membranes = room_for(self._device, given.kind, int(_ROOM * rows) + 1)
                self._forget(cells.positions)
                if given.shared is not None:
                    given.shared.forget(cells)
            places = np.concatenate([arrival.rows, parked])
            self._rows.rearrange(cells, given.membranes, places, came)
        given.held, given.rows = arrival.held, rows

    def _rows_for(self, rows: int, count: int) -> int:
        """Rows to work on for a number of cells: as many as before, if that is about right."""
        spare = int(SPARE * count) if self._world.size > 1 else 0
        return rows if count <= rows <= count + 2 * spare else count + spare

    def _share(self, given: Present, shares: Shares, *, anew: bool) -> None:
        """Share cells with those who hold them; with new messages where these have no room on a rank."""
        if anew and given.shared is None:
            given.shared = SharedVertices(
                *(self._world, self._device, self._region, self._reach, self._transport),
                given.membranes.vertices,
            )
        if given.shared is not None:
            if anew:
                given.shared.open(shares)
            given.shared.renew(given.held, shares, self.margin)

    def _list_vertices(self, kinds: Sequence[Present]) -> None:
        """List what travels in each step from now on."""
        listed = [(given.shared, given.membranes) for given in kinds if given.shared is not None]
        if not listed:
            return
        crowded = [shared.count(cells) for shared, cells in listed]
        needed = self._world.sum(np.array(crowded, np.int64)).tolist()
        for (shared, cells), anew in zip(listed, needed, strict=True):
            if anew:
                shared.make_room()
            shared.list(cells)


def _require_all(kinds: Sequence[Present], owned: Sequence[int]) -> None:
    """See that ranks own as many cells of each kind as there are."""
    for given, count in zip(kinds, owned, strict=True):
        if count != given.total:
            raise SolutionError(
                f"cells of kind {given.kind.name} are lost: {given.total - count} of {given.total}"
            )


def _parts(held: Held) -> tuple[Rows, Rows, Rows]:
    """Places of own cells that no other rank holds, of own cells that others hold, too, and of others'."""
    shared = held.holders.sum(axis=1) > 1
    parts = ~shared, shared & held.own, shared & ~held.own
    alone, own, copies = (np.flatnonzero(part) for part in parts)
    return alone, own, copies


def _parked_state(given: Present) -> np.ndarray:
    """State (1, fields, V) of a cell that meets nothing."""
    state = np.zeros((1, fields_of(given.membranes), given.membranes.vertices))
    state[0, :_DIMENSIONS] = given.kind.mesh.vertices.T + _PARKED
    return state


def room_for(device: Device, kind: CellKind, cells: int) -> Membranes:
    """Membranes with room for so many cells of a kind."""
    return Membranes(device, kind.mesh, cells, kind.law, elements=kind.elements)


def raise_together(world: World, fault: str) -> None:
    """Give up on every rank where one has a fault."""
    if world.any(bool(fault)):
        raise SolutionError(next(t for t in world.gather_texts(fault) if t))
