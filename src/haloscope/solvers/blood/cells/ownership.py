"""Ownership of cells: who owns each, who holds copies, in which rows, and when that is decided again."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device, Kernel
from haloscope.device.targets import KernelFile
from haloscope.errors import SolutionError, counted
from haloscope.exchange.plan import first_fault, to_root
from haloscope.exchange.ranks.world import World
from haloscope.mesh.lattice.lattice_parts import Region
from haloscope.solvers.blood.cells.local_cells import CellKind, Flags, Integers, LocalCells
from haloscope.solvers.blood.cells.shared_vertices import MARGIN, SharedVertices, margin_for
from haloscope.solvers.blood.membranes.membranes import Membranes

SOURCE = Path(__file__).with_name("cell_rows.cpp")
KERNELS = ("outline", "give_rows", "take_rows")
_DIMENSIONS = 3
# As in cell_rows.cpp.
_QUANTITIES = 14
_OUTLINE_BLOCK, _ROWS_BLOCK = 32, 128

FIRST_STEPS = 4
"""Steps after the start, in which cells may gain any sound speed."""
# Speeds in spacings a step below which it does not matter how slow vertices are.
_STILL = 1e-6

SPARE = 1 / 64
"""Rows that are worked on beyond those of cells, over the number of these, on several ranks."""
ROOM = 1.25
"""Room for cells over the rows that are worked on."""
# Beyond what kernels take for a place, and near enough for a cell to keep its shape.
_PARKED = 2e9

# A head says number, owner, and whether a state comes with it; then who holds the cell.
_HEAD, _BITS = 3, 64

Floats = NDArray[np.float64]
Rows = NDArray[np.integer[Any]]
Decision = tuple[NDArray[np.int32], Flags]
"""Owners (m,) and holders (m, ranks) of a rank's m own cells of a kind from now on."""


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


@dataclass(frozen=True, eq=False)
class Arrival:
    """The n cells of a kind that a rank holds after a migration; see :class:`LocalCells`."""

    ids: Integers
    owners: Integers
    holders: Flags
    rows: Integers  # (n,) row before; -1 - k: the cell was not here, its state is ``came[k]``
    came: Floats  # (m, fields, V) states of cells that were not here


class CellOwnership:
    """Owners, copies and rows of the cells on a rank, and the steps at which they change.

    `reach`: by how much cells are widened, in spacings, with the least margin; `interval`: most
    steps between two looks; `forget`: gets the positions of membranes that give way to larger ones.
    """

    # The host decides, from a few numbers a cell. Copies stay where they are on the device; only
    # states that are new to a rank pass through the host, and rows move up on the device where
    # others have come or gone. Where nothing has changed only what travels in each step is listed
    # anew. Rows beyond those of cells let the number of cells change a little without other
    # launches.
    #
    # Looks tell the largest speed. Cells migrate before a vertex at twice that can have left the
    # margin since the last migration; as long as it cannot have, a look is enough.

    def __init__(
        self,
        device: Device,
        world: World,
        region: Region,
        kinds: Sequence[CellKind],
        *,
        reach: float,
        transport: str,
        interval: int,
        forget: Callable[[Array], None],
    ) -> None:
        self._device, self._world, self._region = device, world, region
        self._reach, self._transport, self._forget = reach, transport, forget
        source, constants = kernel_file()
        self._outline, self._give, self._take = (
            device.kernel(source, name, constants) for name in KERNELS
        )
        self.kinds = [LocalCells.none(kind, room_for(device, kind, 1), world) for kind in kinds]
        # Spacings that a vertex may move before cells migrate again. It grows with the largest speed
        # so far, so that migrations are not too many.
        self.margin = MARGIN
        # Numbers of cells of each kind, and their centres, when they were looked at last.
        self._seen: dict[str, tuple[Integers, Floats]] = {}
        # By kind, for the cells that were present and the step.
        self._outlines: dict[str, tuple[Integers, int, Outlines]] = {}
        # Steps done; those after which cells migrate, and after which they are looked at;
        # :data:`sys.maxsize`: not before the other.
        self.step, self.due, self.look_at = 0, 0, sys.maxsize
        # Steps that were planned last, spacings that a vertex may have moved since the last migration
        # when the next look is due, and its margin.
        self._interval, self._planned = interval, FIRST_STEPS
        self._moved, self._planned_margin = 0.0, MARGIN

    # When

    def plan_after_migration(self, fastest: float, margin: float = MARGIN) -> None:
        """Plan the next look or migration after one with this largest speed and margin."""
        self._moved, self._planned_margin = 0.0, margin
        if self.step or self._world.size == 1:
            self.plan_after_look(fastest)
        else:
            self.due, self.look_at = FIRST_STEPS, sys.maxsize

    def plan_after_look(self, fastest: float) -> None:
        """Plan the next look or migration."""
        pace = max(2 * fastest, _STILL)
        # Speeds grow no faster than this looks again.
        steps = min(self._interval, 2 * max(self._planned, FIRST_STEPS))
        self._planned = max(1, min(steps, int(self._planned_margin / pace)))
        left = int((self._planned_margin - self._moved) / pace)
        self.due = self.look_at = sys.maxsize
        if self._world.size > 1 and left <= steps:
            self.due = self.step + max(1, left)
        else:
            self.look_at = self.step + steps
            self._moved += steps * pace

    # Where

    def owners(self, vertices: np.ndarray) -> np.ndarray:
        """Ranks of cells with vertices (n, V, 3) in lattice units."""
        return self._region.owners(vertices.mean(axis=1))

    def outlines(self, local: LocalCells) -> Outlines:
        """Where the cells present are after this step; of others' copies only what is near here counts."""
        ids, step, outlines = self._outlines.get(local.kind.name, (None, -1, None))
        if outlines is None or ids is not local.ids or step != self.step:
            outlines = self.outlines_of(local.membranes, local.count)
            self._outlines[local.kind.name] = local.ids, self.step, outlines
        return outlines

    def look(self) -> None:
        """Check that all cells have places, and plan by their speed; all ranks call this."""
        self.plan_after_look(self._measure(self.kinds)[1])

    def _measure(self, kinds: Sequence[LocalCells]) -> tuple[list[Outlines], float]:
        """Where cells are, and the largest speed on any rank; all ranks call this."""
        all_outlines = [self.outlines_of(local.membranes, local.count) for local in kinds]
        values = np.zeros(1 + len(kinds))
        fault: SolutionError | None = None
        for local, outlines in zip(kinds, all_outlines, strict=True):
            values[0] = outlines.fastest[local.own].max(initial=values[0])
            for bad in local.ids[local.own & ~outlines.finite][:1]:
                fault = SolutionError(
                    f"the position of a vertex is NaN{self._last_place(local, int(bad))}",
                    location=f"{local.kind.name} {bad}",
                )
        # One message for both: the largest speed, and how many cells there are.
        values[0] = values[0] if fault is None else math.inf
        values[1:] = [local.own.sum() for local in kinds]
        answers = self._world.allgather(values)
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

    # Who

    def add(
        self,
        local: LocalCells,
        ids: np.ndarray,
        vertices: np.ndarray,
        states: np.ndarray | None = None,
    ) -> None:
        """Keep own ones of cells that all ranks know, on this rank alone until they migrate.

        `vertices`: (n, V, 3); `states`: (n, arrays of the state, V, 3); None: of cells at rest.
        """
        world, cells = self._world, local.membranes
        mine = self.owners(vertices) == world.rank
        states = cells.settled(vertices[mine]) if states is None else states[mine]
        local.total += len(ids)
        ids = np.asarray(ids, np.int64)[mine]
        every = np.concatenate([local.ids, ids])
        order = np.argsort(every, kind="stable")
        alone = np.zeros((len(ids), world.size), bool)
        alone[:, world.rank] = True
        arrival = Arrival(
            every[order],
            np.concatenate([local.owners, np.full(len(ids), world.rank)])[order],
            np.concatenate([local.holders, alone])[order],
            np.concatenate([np.arange(local.count), -1 - np.arange(len(ids))])[order],
            np.moveaxis(states, 3, 2).reshape(len(ids), fields_of(cells), cells.vertices),
        )
        self._arrange(local, arrival)

    def place(
        self,
        local: LocalCells,
        ids: np.ndarray,
        vertices: np.ndarray,
        states: np.ndarray | None = None,
    ) -> None:
        """Put cells into the fluid, see :meth:`add`; all ranks call this."""
        self.complete([local])
        self.add(local, ids, vertices, states)
        self.migrate_kinds([local])

    def remove(self, local: LocalCells, gone: np.ndarray) -> int:
        """Take out own cells by their numbers; all ranks call this. Returns how many in all."""
        self.complete([local])
        removed = int(self._world.sum(np.array([len(gone)]))[0])
        local.total -= removed
        local.disown(np.isin(local.ids, gone))
        self.migrate_kinds([local])
        return removed

    def migrate(self) -> None:
        """Give all cells to the ranks that they reach, and plan the next time; all ranks call this."""
        if self._world.size == 1:
            # All cells are here, and stay.
            self.plan_after_migration(self._measure(self.kinds)[1])
        else:
            self.complete(self.kinds)
            fastest = self.migrate_kinds(self.kinds, all_owned=True)
            self.plan_after_migration(fastest, self.margin)

    def migrate_kinds(self, kinds: Sequence[LocalCells], *, all_owned: bool = False) -> float:
        """Give cells of these kinds to all ranks that they reach; the largest speed; all ranks call this.

        Copies are to be complete. `all_owned`: no cell was disowned since the last migration.
        """
        all_outlines, fastest = self._measure(kinds)
        self.margin = max(self.margin, margin_for(fastest))
        decisions = [
            self.decide(local, outlines)
            for local, outlines in zip(kinds, all_outlines, strict=True)
        ]
        changed = not all_owned or any(
            (owners != local.rank).any() or not np.array_equal(holders, local.holders[local.own])
            for local, (owners, holders) in zip(kinds, decisions, strict=True)
        )
        if all_owned and not self._world.any(changed):
            arrivals = [_unchanged(local) for local in kinds]
        else:
            arrivals = self.exchange(kinds, decisions)
        for local, arrival in zip(kinds, arrivals, strict=True):
            self._arrange(local, arrival)
        self._share(kinds)
        return fastest

    def decide(self, local: LocalCells, outlines: Outlines) -> Decision:
        """Decide by where own cells are who owns and who holds them from now on."""
        mine = local.own
        reach = self._reach + self.margin - MARGIN
        owners = self._region.owners(outlines.centre[mine])
        holders = self._region.reached(outlines.low[mine] - reach, outlines.high[mine] + reach)
        holders[np.arange(len(owners)), owners] = True
        return owners, holders

    def exchange(self, kinds: Sequence[LocalCells], decisions: Sequence[Decision]) -> list[Arrival]:
        """Send numbers, owners and holders of own cells to their holders, and states to new ones.

        All ranks call this. Cells that no owner sends are held no more.
        """
        world = self._world
        parts: list[list[np.ndarray]] = [[] for _ in range(world.size)]
        for local, decision in zip(kinds, decisions, strict=True):
            for part, words in zip(parts, self._pack(local, decision), strict=True):
                part += words
        came = world.exchange([np.concatenate(part).view(np.uint8) for part in parts])
        words = [part.view(np.int64) for part in came]
        arrivals = []
        for local in kinds:
            width = fields_of(local.membranes) * local.membranes.vertices
            heads, states = [], []
            for rank, message in enumerate(words):
                head, state, words[rank] = _unpack(message, world.size, width)
                heads.append(head)
                states.append(state)
            arrivals.append(_arrival(local, np.concatenate(heads), np.concatenate(states)))
        return arrivals

    def _pack(self, local: LocalCells, decision: Decision) -> list[list[np.ndarray]]:
        """Words for each rank: how many heads and states, heads, and states of what is new to it."""
        mine, (owners, holders) = np.flatnonzero(local.own), decision
        new = holders & ~local.holders[mine]
        heads = pack_heads(local.ids[mine], owners, holders)
        travels = new.any(axis=1)
        states = self.states_of_rows(local.membranes, mine[travels])
        place = np.cumsum(travels) - 1
        parts = []
        for rank in range(holders.shape[1]):
            new_holders = np.flatnonzero(holders[:, rank])
            sent = np.flatnonzero(new[:, rank])
            rows = heads[new_holders]
            rows[:, 2] = new[new_holders, rank]
            sizes = np.array([len(new_holders), len(sent)], np.int64)
            parts.append([sizes, rows.ravel(), states[place[sent]].ravel().view(np.int64)])
        return parts

    # In which rows

    def _run(
        self, kernel: Kernel, cells: Membranes, blocks: tuple[int, int], **arguments: Any
    ) -> None:
        """Run a kernel on rows of cells in so many blocks of so many threads."""
        count, threads = blocks
        arguments |= {"room": cells.capacity, "a_cell": cells.vertices}
        kernel.bind(**arguments, extent=(count * threads,), block=(threads,))()

    def outlines_of(self, cells: Membranes, count: int) -> Outlines:
        """Where the first `count` cells are; sums run in an order of their own, the same anywhere."""
        outlines = self._device.zeros((_QUANTITIES * count,), "f8")
        if count:
            arrays = {"positions": cells.positions, "velocities": cells.velocities}
            arrays["outlines"] = outlines
            self._run(self._outline, cells, (count, _OUTLINE_BLOCK), **arrays, count=count)
        table = self._device.to_host(outlines).reshape(_QUANTITIES, count)
        low, high, centre, velocity = (table[first : first + 3].T for first in (0, 3, 6, 9))
        return Outlines(low, high, centre, velocity, table[12], table[13] == 1)

    def states_of_rows(self, cells: Membranes, rows: Rows) -> Floats:
        """States (n, fields, V) of the cells in n rows, on the host: 3 of each array of the state."""
        count, vertices, fields = len(rows), cells.vertices, fields_of(cells)
        if count == 0:
            return np.empty((0, fields, vertices))
        gathered = self._device.empty((count, fields, vertices), "f8")
        blocks = _DIMENSIONS * count, _ROWS_BLOCK
        places = self._device.from_host(rows.astype(np.int32))
        for number, array in enumerate(cells.state):
            at = {"rows": places, "count": count, "first": _DIMENSIONS * number, "fields": fields}
            self._run(self._give, cells, blocks, array=array, states=gathered, **at)
        return self._device.to_host(gathered)

    def states(self, local: LocalCells, rows: Rows) -> Floats:
        """States (n, arrays of the state, V, 3) of the cells in n rows, on the host."""
        cells = local.membranes
        states = self.states_of_rows(cells, rows)
        shape = len(rows), len(cells.state), _DIMENSIONS, cells.vertices
        return np.moveaxis(states.reshape(shape), 2, 3)

    def states_of(self, local: LocalCells, numbers: np.ndarray) -> np.ndarray:
        """States (n, arrays of the state, V, 3) of cells by their numbers, on every rank; all ranks call this."""
        m = local.membranes
        states = np.zeros((len(numbers), len(m.state), m.vertices, _DIMENSIONS))
        here = np.flatnonzero(np.isin(numbers, local.ids[local.own]))
        states[here] = self.states(local, np.searchsorted(local.ids, numbers[here]))
        # Each is one rank's, and 0 on the others.
        return self._world.sum(states)

    def table(self, local: LocalCells) -> tuple[np.ndarray, np.ndarray]:
        """Numbers (n,) and states (n, arrays of the state, V, 3) of all cells of a kind; all ranks call this.

        By number, on rank 0; none on other ranks.
        """
        own = np.flatnonzero(local.own)
        ids = to_root(self._world, local.ids[own])
        states = to_root(self._world, self.states(local, own))
        order = np.argsort(ids, kind="stable")
        return ids[order], states[order]

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
            arrays = {"old": old, "states": states, "fresh": target, "fresh_room": into.capacity}
            at = {"rows": places, "count": count, "first": _DIMENSIONS * number, "fields": fields}
            self._run(self._take, cells, (_DIMENSIONS * count, _ROWS_BLOCK), **arrays, **at)
            if cells is into:
                used = (slice(None), slice(count))
                shape = (_DIMENSIONS, into.capacity, vertices)
                new.reshape(shape)[used] = target.reshape(shape)[used]

    def _arrange(self, local: LocalCells, arrival: Arrival) -> None:
        """Give the cells that are present now their rows."""
        cells, count = local.membranes, len(arrival.ids)
        rows = self._rows_for(local.rows, count)
        if not np.array_equal(arrival.rows, np.arange(local.count)):
            came, parked = arrival.came, np.full(rows - count, -1 - len(arrival.came))
            if rows > count:
                came = np.concatenate([came, _parked_state(local)])
            if rows > cells.capacity:
                local.membranes = room_for(self._device, local.kind, int(ROOM * rows) + 1)
                self._forget(cells.positions)
                if local.shared is not None:
                    local.shared.forget(cells)
            places = np.concatenate([arrival.rows, parked])
            self.rearrange(cells, local.membranes, places, came)
        local.ids, local.owners, local.holders = arrival.ids, arrival.owners, arrival.holders
        local.rows = rows

    def _rows_for(self, rows: int, count: int) -> int:
        """Rows to work on for a number of cells: as many as before, if that is about right."""
        spare = int(SPARE * count) if self._world.size > 1 else 0
        return rows if count <= rows <= count + 2 * spare else count + spare

    # Copies

    def complete(self, kinds: Sequence[LocalCells]) -> None:
        """Put copies of cells where their owners have these; all ranks call this."""
        for local in kinds:
            if local.shared is not None:
                local.shared.complete(local.membranes)

    def _share(self, kinds: Sequence[LocalCells]) -> None:
        """Share cells with those who hold them, and list what travels in each step from now on.

        With new messages where old ones have no room on a rank; all ranks call this.
        """
        crowded = [not local.fits_messages() for local in kinds]
        owned = [int(local.own.sum()) for local in kinds]
        owned_by_all, needed = self._world.sum(np.array([owned, crowded], np.int64)).tolist()
        _require_all(kinds, owned_by_all)
        for local, anew in zip(kinds, needed, strict=True):
            if anew and local.shared is None:
                local.shared = SharedVertices(
                    *(self._world, self._device, self._region, self._reach, self._transport),
                    local.membranes.vertices,
                )
            if local.shared is not None:
                if anew:
                    local.shared.open(*local.sharing())
                local.shared.renew(*local.sharing(), self.margin)
            local.membranes.divide(*local.parts())
            local.membranes.keep_velocities()
        listed = [(local.shared, local.membranes) for local in kinds if local.shared is not None]
        if not listed:
            return
        crowded = [shared.count(cells) for shared, cells in listed]
        needed = self._world.sum(np.array(crowded, np.int64)).tolist()
        for (shared, cells), anew in zip(listed, needed, strict=True):
            if anew:
                shared.make_room()
            shared.list(cells)


def kernel_file() -> KernelFile:
    """The kernels that read and rearrange rows of cells."""
    return KernelFile(SOURCE, {"real": "double"})


def fields_of(cells: Membranes) -> int:
    """Values of a vertex in a state."""
    return _DIMENSIONS * len(cells.state)


def room_for(device: Device, kind: CellKind, cells: int) -> Membranes:
    """Membranes with room for so many cells of a kind."""
    return Membranes(device, kind.mesh, cells, kind.law, elements=kind.elements)


def raise_together(world: World, fault: SolutionError | None) -> None:
    """Raise the first fault of the ranks on every rank."""
    if world.any(fault is not None):
        raise SolutionError(**first_fault(world, fault) or {})


def _require_all(kinds: Sequence[LocalCells], owned: Sequence[int]) -> None:
    """See that ranks own as many cells of each kind as there are."""
    for local, count in zip(kinds, owned, strict=True):
        if count != local.total:
            raise SolutionError(
                f"{local.total - count} of {counted(local.total, 'cell')} are lost",
                location=f"blood.cells {local.kind.name}",
            )


def _parked_state(local: LocalCells) -> np.ndarray:
    """State (1, fields, V) of a cell that meets nothing."""
    state = np.zeros((1, fields_of(local.membranes), local.membranes.vertices))
    state[0, :_DIMENSIONS] = local.kind.mesh.vertices.T + _PARKED
    return state


def _unchanged(local: LocalCells) -> Arrival:
    """All cells of a kind stay where they are."""
    rows = np.arange(local.count)
    return Arrival(local.ids, local.owners, local.holders, rows, np.zeros((0, 0, 0)))


def pack_heads(ids: Integers, owners: NDArray[np.int32], holders: Flags) -> Integers:
    """Heads (n, words) of cells in messages, of whose states none comes."""
    heads = np.zeros((len(ids), _head_words(holders.shape[1])), np.int64)
    heads[:, 0], heads[:, 1] = ids, owners
    packed = np.packbits(holders, axis=1, bitorder="little")
    heads[:, _HEAD:].view(np.uint8)[:, : packed.shape[1]] = packed
    return heads


def holders_of(heads: Integers, ranks: int) -> Flags:
    """Which ranks hold the cells of heads, (n, ranks)."""
    packed = np.ascontiguousarray(heads[:, _HEAD:]).view(np.uint8)
    return np.unpackbits(packed, axis=1, count=ranks, bitorder="little").astype(bool)


def _head_words(ranks: int) -> int:
    """64-bit numbers of a head, with a bit for each rank."""
    return _HEAD + math.ceil(ranks / _BITS)


def _unpack(words: Integers, ranks: int, width: int) -> tuple[Integers, Floats, Integers]:
    """Heads and states of a kind in a message, and its other words."""
    record_size = _head_words(ranks)
    count, states = words[:2].tolist() if len(words) else (0, 0)
    middle = 2 + count * record_size
    end = middle + states * width
    return (
        words[2:middle].reshape(count, record_size),
        words[middle:end].view(np.float64).reshape(states, width),
        words[end:],
    )


def _arrival(local: LocalCells, heads: Integers, came: Floats) -> Arrival:
    """Put the cells of a kind that messages named in order."""
    order = np.argsort(heads[:, 0], kind="stable")
    new = heads[:, 2] == 1
    rows = np.where(new, -np.cumsum(new), 0)[order]
    heads, new = heads[order], new[order]
    ids, owners = heads[:, 0].copy(), heads[:, 1].copy()
    known = ids[~new]
    rows[~new] = places = np.searchsorted(local.ids, known)
    if not np.array_equal(np.append(local.ids, -1)[places], known):
        raise RuntimeError("a message names a cell as present that this rank lacks")
    states = came.reshape(len(came), fields_of(local.membranes), local.membranes.vertices)
    return Arrival(ids, owners, holders_of(heads, local.holders.shape[1]), rows, states)
