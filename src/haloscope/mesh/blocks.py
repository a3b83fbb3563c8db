"""Cartesian grids cut into blocks, one a rank, their halos, and fields on them: gathered, read back, sampled."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Box
from haloscope.errors import InputError, counted
from haloscope.exchange.plan import Message, Plan
from haloscope.exchange.ranks.world import World
from haloscope.io.vtkhdf import Image, VtkhdfWriter
from haloscope.mesh.field_layouts import FieldLayout, Read, StructuredGrid

# Triples are in the order (x, y, z), x fastest in memory; arrays are indexed (z, y, x).

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
                f"it makes {counted(product, 'block')}, but the run has {counted(ranks, 'rank')}",
                location=f"machine.decomposition = {list(wanted)}",
                allowed=f"three numbers whose product is {ranks}",
            )
        if not fits(wanted):
            limits = [max(1, n // thinnest) for n in nodes]
            raise InputError(
                f"it cuts {list(nodes)} nodes into blocks thinner than {thinnest} nodes",
                location=f"machine.decomposition = {list(wanted)}",
                allowed=f"at most {limits} blocks along x, y, z",
            )
        return Blocks(nodes, wanted)
    axes = {"auto": 3, "1d": 1, "2d": 2, "3d": 3}[wanted]
    # Ties are broken towards cutting the slow axes: fewest along x, then along y.
    candidates = [parts for parts in _arrangements(ranks, axes) if fits(parts)]
    if not candidates:
        raise InputError(
            f"{ranks} ranks do not fit on {list(nodes)} nodes with blocks at least {thinnest} "
            f"nodes thick and {counted(axes, 'axis', 'axes')} cut",
            allowed=f"at most {counted(most, 'rank')} (blocks in all axes)",
            remedy="start fewer ranks",
        )
    return Blocks(nodes, min(candidates, key=lambda parts: (sum(parts), parts)))


@dataclass(frozen=True)
class Layout:
    """How the fields of a block lie in one flat array."""

    shape: Triple  # Owned nodes along x, y, z
    strides: Triple  # Distance between neighbours along x, y, z, in values
    first: int  # Index of the first owned node within a field
    field_stride: int  # Distance between the starts of two fields
    ghosts: Triple  # Ghost layers that are allocated around the owned nodes along x, y, z
    # Axes from the one whose nodes lie side by side in memory to the one whose nodes lie furthest
    # apart; of one order on all ranks.
    axes: Triple = (0, 1, 2)


def halo_plan(
    block: Block, layout: Layout, widths: Sequence[int], axes: Sequence[int] = (0, 1, 2)
) -> Plan:
    """Plan that fills the ghost layers of a block from its neighbours, sides only.

    Edges and corners stay as they are: star stencils do not read them.
    """
    for side in block.neighbours:
        thickness = min(layout.ghosts[side.axis], layout.shape[side.axis])
        if max(widths) > thickness:
            raise InputError(
                f"a halo of {max(widths)} layers does not fit: along {'xyz'[side.axis]} a "
                f"block has {counted(layout.shape[side.axis], 'node')} and "
                f"{counted(layout.ghosts[side.axis], 'ghost layer')}",
                remedy="use fewer ranks along this axis",
            )
    sends: dict[int, list[Box]] = {}
    receives: dict[int, list[Box]] = {}
    for side in SIDES:
        if side.axis not in axes:
            continue
        if side in block.neighbours:
            other = block.neighbours[side]
            sends.setdefault(other, []).extend(_layers(layout, side, widths, inside=True))
        # A message is packed in the order of the sender's sides, so the receiver goes through
        # the sides that face them.
        if side.opposite in block.neighbours:
            other = block.neighbours[side.opposite]
            boxes = _layers(layout, side.opposite, widths, inside=False)
            receives.setdefault(other, []).extend(boxes)

    def messages(lists: dict[int, list[Box]]) -> tuple[Message, ...]:
        return tuple(Message(rank, tuple(lists[rank])) for rank in sorted(lists) if lists[rank])

    return Plan(messages(sends), messages(receives))


def _layers(layout: Layout, side: Side, widths: Sequence[int], *, inside: bool) -> list[Box]:
    """Boxes, one a field: the owned layers at a side, or the ghost layers beyond it."""
    boxes = []
    for field, width in enumerate(widths):
        if width == 0:
            continue
        counts = list(layout.shape)
        counts[side.axis] = width
        if side.direction < 0:
            start = 0 if inside else -width
        else:
            start = layout.shape[side.axis] - (width if inside else 0)
        first = field * layout.field_stride + layout.first + start * layout.strides[side.axis]
        # A long direction goes innermost: along rows unless these are cut.
        a, b, c = layout.axes
        if side.axis == a:
            a, b, c = b, c, a
        boxes.append(
            Box(
                first,
                (counts[a], counts[b], counts[c]),
                (layout.strides[a], layout.strides[b], layout.strides[c]),
            )
        )
    return boxes


Region = tuple[slice, slice, slice]


def whole(blocks: Blocks) -> Region:
    """The region of all nodes, as slices along x, y, z."""
    return (slice(0, blocks.nodes[0]), slice(0, blocks.nodes[1]), slice(0, blocks.nodes[2]))


def _overlap(start: Triple, stop: Triple, region: Region) -> Region | None:
    cuts = []
    for low, high, part in zip(start, stop, region, strict=True):
        begin, end = max(low, part.start), min(high, part.stop)
        if begin >= end:
            return None
        cuts.append(slice(begin, end))
    return (cuts[0], cuts[1], cuts[2])


def _relative(cut: Region, start: tuple[int, ...]) -> tuple[slice, slice, slice]:
    """Slices for an array in the order (z, y, x) whose first node is `start` along x, y, z."""
    x, y, z = (
        slice(part.start - first, part.stop - first) for part, first in zip(cut, start, strict=True)
    )
    return (z, y, x)


def collect(world: World, blocks: Blocks, owned: np.ndarray, region: Region) -> np.ndarray | None:
    """Gather a region of a field on rank 0.

    `owned`: this rank's owned values, shape (nz, ny, nx) of its block; Returns: on rank 0 the
    values, shape (z, y, x) of the region; None elsewhere.
    """
    mine = blocks.block(world.rank)
    cut = _overlap(mine.start, mine.stop, region)
    if not world.is_root:
        if cut is not None:
            world.send(owned[_relative(cut, mine.start)], 0)
        return None
    origin = tuple(part.start for part in region)
    result = np.empty(tuple(part.stop - part.start for part in reversed(region)), owned.dtype)
    for block in blocks.all():
        part = _overlap(block.start, block.stop, region)
        if part is None:
            continue
        place = _relative(part, origin)
        if block.rank == world.rank:
            result[place] = owned[_relative(part, block.start)]
        else:
            shape = tuple(s.stop - s.start for s in place)
            result[place] = world.receive(shape, owned.dtype, block.rank)
    return result


def node_values(world: World, blocks: Blocks, owned: np.ndarray, nodes: list[Triple]) -> np.ndarray:
    """Values of single nodes on every rank, exactly as their owners hold them.

    `nodes`: global node numbers (x, y, z); Returns: one float64 a node.
    """
    mine = blocks.block(world.rank)
    values = np.zeros(len(nodes))
    for i, node in enumerate(nodes):
        if all(a <= n < b for a, n, b in zip(mine.start, node, mine.stop, strict=True)):
            x, y, z = (n - a for n, a in zip(node, mine.start, strict=True))
            values[i] = owned[z, y, x]
    # One owner each: all other terms are zero, so the sum is exact.
    return world.sum(values)


def interpolation(
    position: tuple[float, float, float], spacing: tuple[float, float, float], nodes: Triple
) -> tuple[list[Triple], np.ndarray]:
    """Nodes and weights of trilinear interpolation at a point of a grid that starts at 0.

    A point on the last node takes the cell below it; an axis with one node has weight 1 on it.
    """
    low, fraction = [], []
    for x, h, n in zip(position, spacing, nodes, strict=True):
        cell = min(max(int(x / h), 0), max(n - 2, 0))
        low.append(cell)
        fraction.append(x / h - cell if n > 1 else 0.0)
    corners: list[Triple] = []
    weights = []
    for corner in itertools.product((0, 1), repeat=3):
        weight = 1.0
        for c, f in zip(corner, fraction, strict=True):
            weight *= f if c else 1.0 - f
        if weight != 0.0:
            corners.append((low[0] + corner[0], low[1] + corner[1], low[2] + corner[2]))
            weights.append(weight)
    return corners, np.array(weights)


class BlockFields(FieldLayout):
    """Fields on a grid.

    A field as a whole has the shape (nz, ny, nx); a rank's own values that of its block.
    `spacing`: distances of nodes in m.
    """

    def __init__(self, world: World, blocks: Blocks, spacing: tuple[float, float, float]) -> None:
        super().__init__(world, tuple(reversed(blocks.nodes)), list(blocks.parts))
        self._blocks, self._spacing = blocks, spacing

    def describe(self) -> str:
        """Text that describes the grid."""
        return " x ".join(str(n) for n in self._blocks.nodes if n > 1) + " nodes"

    def describe_parts(self) -> str:
        """How it is shared out, for people."""
        return " x ".join(map(str, self._blocks.parts))

    def collect(self, owned: np.ndarray, begin: int, end: int) -> np.ndarray | None:
        """Planes `begin` to `end` of a field on rank 0, from all ranks' own values."""
        region = whole(self._blocks)
        part = (region[0], region[1], slice(begin, end))
        return collect(self._world, self._blocks, owned, part)

    def grid(self) -> StructuredGrid | None:
        """Coordinates of the nodes along the axes, on rank 0."""
        if not self._world.is_root:
            return None
        x, y, z = (
            np.asarray(spacing * np.arange(nodes), np.float64)
            for spacing, nodes in zip(self._spacing, self._blocks.nodes, strict=True)
        )
        return StructuredGrid(x, y, z)

    def own(self, read: Read) -> np.ndarray:
        """Own values of a field on this rank, which `read` gives by slices of its axes."""
        block = self._blocks.block(self._world.rank)
        cuts = (slice(a, b) for a, b in zip(block.start, block.stop, strict=True))
        return read(tuple(reversed(tuple(cuts))))

    def numbers(self) -> Iterator[NDArray[np.uint64]]:
        """Global numbers of a rank's own values, a plane at a time."""
        block, (nx, ny, _) = self._blocks.block(self._world.rank), self._blocks.nodes
        x, y, z = (
            np.arange(a, b, dtype=np.uint64) for a, b in zip(block.start, block.stop, strict=True)
        )
        in_plane = y[:, None] * np.uint64(nx) + x
        for plane in z:
            yield in_plane + plane * np.uint64(nx * ny)

    def describe_grid(self) -> str:
        """Nodes, and their distances."""
        distances = " x ".join(f"{h:.9g}" for h in self._spacing)
        return f"{' x '.join(map(str, self._blocks.nodes))} nodes, {distances} m apart"

    def require_inside(self, location: str, position: tuple[float, float, float]) -> None:
        """Refuse a point outside."""
        nodes = self._blocks.nodes
        for axis, (x, h, n) in enumerate(zip(position, self._spacing, nodes, strict=True)):
            limit = h * (n - 1)
            if not -1e-9 * h <= x <= limit * (1 + 1e-9):
                raise InputError(
                    f"{'xyz'[axis]} = {x:g} m lies outside the grid",
                    location=location,
                    allowed=f"0 to {limit:g} m",
                )

    def sample(
        self, positions: Sequence[tuple[float, float, float]], owned: np.ndarray
    ) -> list[float]:
        """Values at points by linear interpolation, the same on every rank."""
        samples = []
        for position in positions:
            corners, weights = interpolation(position, self._spacing, self._blocks.nodes)
            samples.append(float(node_values(self._world, self._blocks, owned, corners) @ weights))
        return samples

    def _open(self, path: Path, time: float) -> VtkhdfWriter:
        nz, ny, nx = self.shape
        return VtkhdfWriter(path, Image((nz, ny, nx), (0.0, 0.0, 0.0), self._spacing), time)

    def _write_places(self, writer: VtkhdfWriter | None) -> None:
        """None: an image has the places of its nodes."""
