"""Who copies which entries of whose array: found from global numbers, by all ranks in parallel.

It knows no lattice and no mesh. Each rank says which numbers it wants copies of, and where in its
array each belongs; owners say where they hold theirs. Of that two lists of indices come for each
pair of ranks, the same number of entries in the same order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from haloscope.errors import InputError
from haloscope.exchange.ranks.world import World

Listed = tuple[tuple[int, np.ndarray], ...]
Find = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class Lists:
    """Indices of entries that go to other ranks, and of those that come from them."""

    # The other rank and int64 indices in this rank's array, by ascending rank; the other rank lists
    # as many in the same order. A rank may send to itself.
    sends: Listed
    receives: Listed

    @property
    def sent(self) -> np.ndarray:
        """Indices of all entries that go out, one message after the other."""
        return _joined(self.sends)

    @property
    def received(self) -> np.ndarray:
        """Indices of all entries that come in, one message after the other."""
        return _joined(self.receives)

    @property
    def reversed(self) -> Lists:
        """The way back."""
        return Lists(self.receives, self.sends)


def by_number(numbers: np.ndarray, indices: np.ndarray) -> Find:
    """Find indices of entries by their numbers, in any order; -1 where a number is unknown."""
    order = np.argsort(numbers, kind="stable")
    ascending, places = numbers[order], indices[order]

    def find(wanted: np.ndarray) -> np.ndarray:
        at = np.minimum(np.searchsorted(ascending, wanted), max(len(ascending) - 1, 0))
        if not len(ascending):
            return np.full(len(wanted), -1)
        return np.where(ascending[at] == wanted, places[at], -1)

    return find


def find_owners(world: World, held: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Find which rank holds each of the numbers that this one wants; all ranks call this.

    Rank = number modulo ranks keeps account of who holds a number, so no rank ever has more than
    its own numbers and about as many again.
    """
    # `held`, `wanted`: int64 numbers from 0, in any order; each is held by one rank.
    if not world.present:
        return np.full(len(wanted), world.size - 1)
    kept, _ = _to_ranks(world, held, held % world.size)
    holder = np.repeat(np.arange(world.size), [len(part) for part in kept])
    find = by_number(np.concatenate(kept), holder)
    asked, order = _to_ranks(world, wanted, wanted % world.size)
    answers = [find(part).astype(np.int64) for part in asked]
    owners = np.empty(len(wanted), np.int64)
    owners[order] = np.concatenate(_swap(world, answers))
    return owners


def find_lists(
    world: World, wanted: np.ndarray, indices: np.ndarray, owners: np.ndarray, find: Find
) -> Lists:
    """Make the lists of an exchange; all ranks call this.

    It takes three collective calls; a rank sends 8 bytes for each number that it wants.
    """
    # `wanted`, `indices`: int64 numbers of which this rank wants copies, and where in its array
    # they belong.
    strangers = (owners < 0) | (owners >= world.size)
    fault = ""
    if strangers.any():
        fault = _missing(world.rank, int(wanted[strangers.argmax()]), "any rank")
        wanted, indices, owners = (rows[~strangers] for rows in (wanted, indices, owners))
    asked, order = _to_ranks(world, wanted, owners)
    counts = np.bincount(owners, minlength=world.size)
    targets = np.split(np.asarray(indices, np.int64)[order], np.cumsum(counts)[:-1])
    if not world.present:
        # The others want what this rank wants of them.
        return Lists(_listed(targets), _listed(targets))
    sources = [np.asarray(find(part), np.int64) for part in asked]
    for rank, (part, positions) in enumerate(zip(asked, sources, strict=True)):
        if not fault and (positions < 0).any():
            fault = _missing(rank, int(part[(positions < 0).argmax()]), f"rank {world.rank}")
    faults = [text for text in world.gather_texts(fault) if text]
    if faults:
        raise InputError(faults[0])
    return Lists(_listed(sources), _listed(targets))


def _missing(rank: int, number: int, where: str) -> str:
    return (
        f"rank {rank} wants the value with the number {number} of {where}, which has none of that "
        "number; give owners that agree with what ranks hold"
    )


def _listed(parts: Sequence[np.ndarray]) -> Listed:
    return tuple((rank, part) for rank, part in enumerate(parts) if len(part))


def _joined(listed: Listed) -> np.ndarray:
    return np.concatenate([np.empty(0, np.int64), *(indices for _, indices in listed)])


def _to_ranks(
    world: World, numbers: np.ndarray, ranks: np.ndarray
) -> tuple[list[np.ndarray], np.ndarray]:
    """Give each number to a rank: what came from each, and in which order it was sent."""
    order = np.argsort(ranks, kind="stable")
    bounds = np.searchsorted(ranks[order], np.arange(world.size + 1))
    sorted_numbers = np.asarray(numbers, np.int64)[order]
    return _swap(world, [sorted_numbers[a:b] for a, b in itertools.pairwise(bounds)]), order


def _swap(world: World, parts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Give 64-bit whole numbers ``parts[r]`` to rank r; what came from each."""
    # Bytes that arrive may begin anywhere.
    return [
        np.frombuffer(part.tobytes(), np.int64)
        for part in world.exchange([part.view(np.uint8) for part in parts])
    ]
