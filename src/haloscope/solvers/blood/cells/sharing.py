"""Ownership of cells: own cells, and copies of cells that reach into a rank's box."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from haloscope.exchange.ranks.world import World
from haloscope.mesh.bisection import Boxes

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

# A head says number, owner, and whether a state comes with it; then who holds the cell.
_HEAD = 3
_BITS = 64


@dataclass(frozen=True)
class Region:
    """The bounding cuboid of a lattice and how ranks share it."""

    shape: tuple[int, int, int]  # Points along x, y, z
    periodic: tuple[bool, bool, bool]  # Axes along which it closes on itself
    boxes: Boxes  # Of the ranks; they tile the cuboid

    def wrapped(self, points: np.ndarray) -> np.ndarray:
        """Points (n, 3) in the cuboid, which begins half a spacing before its first lattice point."""
        result = np.array(points, np.float64)
        for axis, count in enumerate(self.shape):
            if self.periodic[axis]:
                result[:, axis] -= count * np.floor((result[:, axis] + 0.5) / count)
        return result

    def owners(self, points: np.ndarray) -> np.ndarray:
        """Ranks in whose boxes points (n, 3) lie; those outside count for the nearest box."""
        ranks: np.ndarray = self.boxes.owners(np.floor(self.wrapped(points) + 0.5))
        return ranks

    def reached(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Which boxes cells reach into, themselves or their periodic images.

        `low`, `high`: corners of the cells' bounding boxes, (n, 3), not wrapped; Returns: (n,
        ranks), bool.
        """
        result = np.ones((len(low), len(self.boxes.lo)), bool)
        for axis, count in enumerate(self.shape):
            if ((self.boxes.hi - self.boxes.lo)[:, axis] == count).all():
                # No cut goes across this axis.
                continue
            begin, end = self.boxes.lo[:, axis] - 0.5, self.boxes.hi[:, axis] - 0.5
            bottom, top = low[:, axis, None], high[:, axis, None]
            if not self.periodic[axis]:
                # What lies outside of the cuboid belongs to the boxes at its sides.
                bottom = np.minimum(bottom, count - 0.5 - 1e-9)
                top = np.maximum(top, -0.5)
                result &= (bottom < end) & (top >= begin)
                continue
            # The image whose top is the first past the box's begin.
            ahead = top - count * np.floor((top - begin) / count)
            result &= ahead - (top - bottom) < end
        return result


@dataclass(frozen=True, eq=False)
class Shares:
    """Places of the cells that a rank and each other one hold, by that rank."""

    both: dict[int, Integers]  # All of them
    # Those that the rank owns, and those that the other one owns.
    sent: dict[int, Integers]
    received: dict[int, Integers]


@dataclass(frozen=True, eq=False)
class CellOwnership:
    """Cells of one kind that a rank holds, in the order of their numbers."""

    ids: Integers  # (n,) their numbers, ascending
    own: Flags  # (n,) which are this rank's own
    holders: Flags  # (n, ranks) which ranks hold them, this one included; the same on all of these
    owners: Integers  # (n,) whose they are; the same, too

    @classmethod
    def nothing(cls, ranks: int) -> CellOwnership:
        """No cell."""
        none = np.zeros(0, np.int64)
        return cls(none, np.zeros(0, bool), np.zeros((0, ranks), bool), none)

    @property
    def count(self) -> int:
        """Cells held."""
        return len(self.ids)

    def shares(self, rank: int) -> Shares:
        """Cells that this rank shares with each other one."""
        others = np.flatnonzero(self.holders.any(axis=0)).tolist()
        both = {other: np.flatnonzero(self.holders[:, other]) for other in others if other != rank}
        return Shares(
            both,
            {other: rows[self.own[rows]] for other, rows in both.items()},
            {other: rows[self.owners[rows] == other] for other, rows in both.items()},
        )


@dataclass(frozen=True, eq=False)
class Leaving:
    """Cells of a kind that a rank knows at a migration."""

    held: CellOwnership  # Those that it holds
    # (n, 3) of these: corners of their bounding boxes and their centres.
    low: Floats
    high: Floats
    centre: Floats
    states: Callable[[Integers], Floats]  # Gives the states (k, values) of the cells in k rows


@dataclass(frozen=True, eq=False)
class Arrival:
    """The cells of a kind that a rank holds after they were handed over."""

    held: CellOwnership  # These
    # (n,) in which row each was before; -1 - k: it was not here, its state is ``came[k]``.
    rows: Integers
    # (m, values) states of cells that were not here.
    came: Floats = field(default_factory=lambda: np.zeros((0, 0)))

    def moves(self, before: int) -> bool:
        """Whether any of `before` rows is another now."""
        return len(self.rows) != before or not np.array_equal(self.rows, np.arange(before))


@dataclass(frozen=True, eq=False)
class _Decision:
    """Next owner and holders of own cells."""

    mine: Integers  # (m,) their places among the cells held
    owners: NDArray[np.int32]  # (m,) their ranks from now on
    holders: Flags  # (m, ranks) who holds them from now on

    @classmethod
    def on(cls, region: Region, kind: Leaving, reach: float) -> _Decision:
        """Decide by where cells are now."""
        mine = np.flatnonzero(kind.held.own)
        owners = region.owners(kind.centre[mine])
        holders = region.reached(kind.low[mine] - reach, kind.high[mine] + reach)
        holders[np.arange(len(mine)), owners] = True
        return cls(mine, owners, holders)

    def changes(self, held: CellOwnership, rank: int) -> bool:
        """Whether anybody else than before owns or holds one of the cells."""
        before = held.holders[self.mine]
        return bool((self.owners != rank).any()) or not np.array_equal(self.holders, before)


def migrate(
    world: World,
    region: Region,
    kinds: Sequence[Leaving],
    reach: float,
    *,
    all_owned: bool = False,
) -> list[Arrival]:
    """Give own cells to all ranks into whose boxes they reach; all ranks call this.

    The owner of a cell decides who holds it from now on, and tells them; whoever did not hold it
    before gets its state, too. Cells that no owner speaks of are held no more.
    """
    # `reach`: by how much cells are widened, in spacings.
    decided = [_Decision.on(region, kind, reach) for kind in kinds]
    pairs = list(zip(kinds, decided, strict=True))
    changed = not all_owned or any(of.changes(kind.held, world.rank) for kind, of in pairs)
    if all_owned and not world.any(changed):
        return [Arrival(kind.held, np.arange(kind.held.count)) for kind in kinds]
    parts: list[list[np.ndarray]] = [[] for _ in range(world.size)]
    for kind, of in pairs:
        for part, words in zip(parts, _pack_leaving(world, kind, of), strict=True):
            part += words
    came = world.exchange([np.concatenate(part).view(np.uint8) for part in parts])
    words = [part.view(np.int64) for part in came]
    arrivals = []
    for kind in kinds:
        width = kind.states(np.zeros(0, np.int64)).shape[1]
        heads, states = [], []
        for rank, said in enumerate(words):
            head, state, words[rank] = _heard(said, world.size, width)
            heads.append(head)
            states.append(state)
        arrivals.append(_arrival(world, kind.held, np.concatenate(heads), np.concatenate(states)))
    return arrivals


def _pack_leaving(world: World, kind: Leaving, decided: _Decision) -> list[list[np.ndarray]]:
    """Words for each rank: how many heads and states, heads, and states of what is new to it."""
    held, ranks = kind.held, world.size
    mine, owners, holders = decided.mine, decided.owners, decided.holders
    new = holders & ~held.holders[mine]
    heads = np.zeros((len(mine), _HEAD + _words(ranks)), np.int64)
    heads[:, 0], heads[:, 1] = held.ids[mine], owners
    packed = np.packbits(holders, axis=1, bitorder="little")
    heads[:, _HEAD:].view(np.uint8)[:, : packed.shape[1]] = packed
    travels = new.any(axis=1)
    states = np.ascontiguousarray(kind.states(mine[travels]), np.float64)
    place = np.cumsum(travels) - 1
    parts = []
    for rank in range(ranks):
        new_holders = np.flatnonzero(holders[:, rank])
        sent = np.flatnonzero(new[:, rank])
        rows = heads[new_holders]
        rows[:, 2] = new[new_holders, rank]
        sizes = np.array([len(new_holders), len(sent)], np.int64)
        parts.append([sizes, rows.ravel(), states[place[sent]].ravel().view(np.int64)])
    return parts


def _words(ranks: int) -> int:
    """64-bit numbers that have a bit for each rank."""
    return -(-ranks // _BITS)


def _heard(words: Integers, ranks: int, width: int) -> tuple[Integers, Floats, Integers]:
    """Heads and states that a rank has told of a kind, and what else it has said."""
    record_size = _HEAD + _words(ranks)
    count, states = words[:2].tolist() if len(words) else (0, 0)
    middle = 2 + count * record_size
    end = middle + states * width
    return (
        words[2:middle].reshape(count, record_size),
        words[middle:end].view(np.float64).reshape(states, width),
        words[end:],
    )


def _arrival(world: World, held: CellOwnership, heads: Integers, came: Floats) -> Arrival:
    """Put what was told of a kind in order."""
    order = np.argsort(heads[:, 0], kind="stable")
    new = heads[:, 2] == 1
    rows = np.where(new, -np.cumsum(new), 0)[order]
    heads, new = heads[order], new[order]
    ids, owners = heads[:, 0].copy(), heads[:, 1]
    known = ids[~new]
    rows[~new] = places = np.searchsorted(held.ids, known)
    if not np.array_equal(np.append(held.ids, -1)[places], known):
        raise RuntimeError("a message names a cell as present that this rank lacks")
    packed = np.ascontiguousarray(heads[:, _HEAD:]).view(np.uint8)
    holders = np.unpackbits(packed, axis=1, count=world.size, bitorder="little").astype(bool)
    return Arrival(CellOwnership(ids, owners == world.rank, holders, owners.copy()), rows, came)
