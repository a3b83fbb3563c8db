"""Digests and sketches of fields, which do not depend on how the grid is cut: equal bits, or how near.

The digest of a field is the sum modulo 2^64, over all nodes, of a mix of the value's bits with the
node's global number. Sums modulo 2^64 are exact in any order, so each rank adds up its own nodes
and the ranks add up their sums. The mix is no linear function, so that two values that have
changed places show.

A sketch of a field is a few sums of all its values with signs drawn at random. The mean square of a
sum is the field's squared length, and that of differences of two sketches that of the fields'
difference, so that two fields are compared that never were in one place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from haloscope.exchange.ranks.world import World

# The finaliser of SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number
# generators", OOPSLA 2014.
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
# Of a node in sketches, and nodes that are looked at together.
_SIGNS, _AT_ONCE = 64, 4096


def mix(values: np.ndarray) -> np.ndarray:
    """Spread every bit over all 64, in place."""
    values += _GAMMA
    for shift, factor in ((30, _FIRST), (27, _SECOND)):
        values ^= values >> np.uint64(shift)
        values *= factor
    values ^= values >> np.uint64(31)
    return values


class Numbered(Protocol):
    """Fields whose values have global numbers, such as those of blocks or elements."""

    def numbers(self) -> Iterator[NDArray[np.uint64]]:
        """Global numbers of a rank's own values in their order, as arrays one after the other."""


def part_of_digest(values: np.ndarray, numbers: Iterable[NDArray[np.uint64]]) -> int:
    """What some of a field's values add to the digest.

    `values`: of 4 or 8 bytes each.
    """
    unsigned = np.dtype(f"u{values.dtype.itemsize}")
    flat, total, begin = np.ascontiguousarray(values).reshape(-1).view(unsigned), 0, 0
    for numbered in numbers:
        mixed = mix(numbered.reshape(-1).copy())
        mixed ^= flat[begin : begin + numbered.size]
        total += int(mix(mixed).sum(dtype=np.uint64))
        begin += numbered.size
    if begin != flat.size:
        raise ValueError(f"{flat.size} values have {begin} global numbers")
    return total % 2**64


def field_digest(world: World, fields: Numbered, owned: np.ndarray) -> str:
    """Digest of a field; the same on every rank, however many there are."""
    signed = np.array([part_of_digest(owned, fields.numbers())], np.uint64).view(np.int64)
    return f"{int(world.sum(signed).view(np.uint64)[0]):016x}"


def field_sketch(world: World, fields: Numbered, owned: np.ndarray) -> list[float]:
    """Sums of a field with random signs; the same on every rank, but for rounding on any number.

    Each node has 64 signs, the bits of its mixed number: lengths that are worked out from a sketch
    are right to some 10 %.
    """
    flat, sums, begin = np.ascontiguousarray(owned).reshape(-1), np.zeros(_SIGNS), 0
    for numbered in fields.numbers():
        for first in range(0, numbered.size, _AT_ONCE):
            mixed = mix(numbered.reshape(-1)[first : first + _AT_ONCE].copy())
            bits = np.unpackbits(mixed.view(np.uint8)).reshape(-1, _SIGNS)
            values = flat[begin : begin + len(mixed)].astype(np.float64)
            sums += values @ (1.0 - 2.0 * bits)
            begin += len(mixed)
    sketch: list[float] = world.sum(sums).tolist()
    return sketch


def relative_difference(sketch: Sequence[float], reference: Sequence[float]) -> float:
    """Length of the difference of two fields over that of the second, from sketches of both."""
    wanted = np.asarray(reference)
    difference = float(np.linalg.norm(np.asarray(sketch) - wanted))
    length = float(np.linalg.norm(wanted))
    return difference / length if length else difference
