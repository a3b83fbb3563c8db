"""Cartesian grids cut into blocks, one a rank.

Triples are in the order (x, y, z), x fastest in memory; arrays are indexed (z, y, x).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from haloscope.errors import InputError, counted

Triple = tuple[int, int, int]
AXES = "xyz"


@dataclass(frozen=True)
class Side:
    """One of the six sides of a block: axis 0, 1, 2 and direction -1 (low) or +1 (high)."""

    axis: int
    direction: int

    @property
    def opposite(self) -> Side:
        """The side that faces this one."""
        return Side(self.axis, -self.direction)

    @property
    def name(self) -> str:
        """Name as in case files, such as ``x_low``."""
        return f"{AXES[self.axis]}_{'low' if self.direction < 0 else 'high'}"


SIDES = tuple(Side(axis, direction) for axis in range(3) for direction in (-1, 1))


@dataclass(frozen=True)
class Block:
    """The part of the grid that one rank owns."""

    rank: int  # Its owner
    place: Triple  # Position among the blocks, (x, y, z)
    # First owned node and the one after the last, in global numbers.
    start: Triple
    stop: Triple
    # Rank across each side; a side at the edge of a grid that is not periodic is absent.
    neighbours: dict[Side, int]

    @property
    def shape(self) -> Triple:
        """Owned nodes along x, y, z."""
        return (
            self.stop[0] - self.start[0],
            self.stop[1] - self.start[1],
            self.stop[2] - self.start[2],
        )

    @property
    def walls(self) -> tuple[Side, ...]:
        """Sides without a neighbour."""
        return tuple(side for side in SIDES if side not in self.neighbours)


@dataclass(frozen=True)
class Blocks:
    """A grid of nodes cut into a Cartesian arrangement of blocks."""

    nodes: Triple
    parts: Triple
    periodic: tuple[bool, bool, bool] = (False, False, False)

    @property
    def count(self) -> int:
        """Number of blocks."""
        return self.parts[0] * self.parts[1] * self.parts[2]

    def _bounds(self, axis: int, place: int) -> tuple[int, int]:
        nodes, parts = self.nodes[axis], self.parts[axis]
        return place * nodes // parts, (place + 1) * nodes // parts

    def _rank(self, place: tuple[int, ...]) -> int:
        return place[0] + self.parts[0] * (place[1] + self.parts[1] * place[2])

    def block(self, rank: int) -> Block:
        """Block of a rank."""
        px, py, _ = self.parts
        place = (rank % px, rank // px % py, rank // (px * py))
        bounds = [self._bounds(axis, place[axis]) for axis in range(3)]
        neighbours = {}
        for side in SIDES:
            other = list(place)
            other[side.axis] += side.direction
            inside = 0 <= other[side.axis] < self.parts[side.axis]
            if inside or self.periodic[side.axis]:
                other[side.axis] %= self.parts[side.axis]
                neighbours[side] = self._rank(tuple(other))
        (x0, x1), (y0, y1), (z0, z1) = bounds
        return Block(rank, place, (x0, y0, z0), (x1, y1, z1), neighbours)

    def all(self) -> Iterator[Block]:
        """Every block, in the order of ranks."""
        return (self.block(rank) for rank in range(self.count))

    @cached_property
    def thinnest(self) -> Triple:
        """Nodes of the thinnest block along each axis."""
        return (
            self.nodes[0] // self.parts[0],
            self.nodes[1] // self.parts[1],
            self.nodes[2] // self.parts[2],
        )


def _arrangements(ranks: int, cut_axes: int) -> list[Triple]:
    """All ways to write `ranks` as px * py * pz with 1 along the axes that are not cut."""
    arrangements = []
    divisors = [part for part in range(1, ranks + 1) if ranks % part == 0]
    for px, py in itertools.product(divisors, repeat=2):
        if ranks % (px * py) == 0:
            parts = (px, py, ranks // (px * py))
            if sum(part > 1 for part in parts) <= cut_axes:
                arrangements.append(parts)
    return arrangements


def arrange(
    nodes: Triple, ranks: int, wanted: str | Triple = "auto", *, thinnest: int = 1
) -> Blocks:
    """Cut a grid for a number of ranks."""
    # `wanted`: ``auto``: as even as possible in all axes, the slowest index (z) cut first, as in
    # Xue and Roy, section 3.2; ``1d``, ``2d``, ``3d``: the same with at most that many axes cut; or
    # the blocks along x, y, z.
    usable = [n for n in nodes if n > 1]
    most = 1
    for n in usable:
        most *= max(1, n // thinnest)

    def fits(parts: Triple) -> bool:
        return all(p == 1 or n // p >= thinnest for n, p in zip(nodes, parts, strict=True))

    if not isinstance(wanted, str):
        product = wanted[0] * wanted[1] * wanted[2]
        if product != ranks:
            raise InputError(
                f"machine.decomposition = {list(wanted)} makes {counted(product, 'block')}, but the run has "
                f"{counted(ranks, 'rank')}; give three numbers whose product is {ranks}"
            )
        if not fits(wanted):
            limits = [max(1, n // thinnest) for n in nodes]
            raise InputError(
                f"machine.decomposition = {list(wanted)} cuts {list(nodes)} nodes into blocks "
                f"thinner than {thinnest} nodes; at most {limits} blocks fit along x, y, z"
            )
        return Blocks(nodes, wanted)
    axes = {"auto": 3, "1d": 1, "2d": 2, "3d": 3}[wanted]
    # Ties are broken towards cutting the slow axes: fewest along x, then along y.
    candidates = [parts for parts in _arrangements(ranks, axes) if fits(parts)]
    if not candidates:
        raise InputError(
            f"{ranks} ranks do not fit on {list(nodes)} nodes with blocks at least {thinnest} "
            f"nodes thick and {counted(axes, 'axis', 'axes')} cut; at most "
            f"{counted(most, 'rank fits', 'ranks fit')} (blocks in all axes)"
        )
    return Blocks(nodes, min(candidates, key=lambda parts: (sum(parts), parts)))
