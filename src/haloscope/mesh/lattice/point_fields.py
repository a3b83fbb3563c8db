"""Fields at points of a sparse lattice: gathered for files, read back, looked at in points.

A field as a whole is one long array, a value a point, in the raster order of all points; where a
point stands in it depends on the lattice alone, not on how the lattice is shared out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.exchange.plan import by_number
from haloscope.exchange.ranks.world import World
from haloscope.io.vtk_arrays import HEXAHEDRON
from haloscope.io.vtkhdf import POINTS, Block, Blocks, Image, VtkhdfWriter
from haloscope.mesh.field_layouts import Piece, Position, RowLayout, StructuredGrid, ranges
from haloscope.mesh.lattice.lattice_parts import Integers, Triple, raster_coordinates

_INSIDE = "inside"
# A file holds all places of the bounding box where at least this share of them is points.
_FULL = 1 / 3
# Of a field on rank 0, and on a rank that reads its own.
_PIECE_BYTES = 1 << 26
# Points that become cells of a file at once.
_CELLS_AT_ONCE = 1 << 16
# Corners (8, 3) of a cube from its point, in spacings, x fastest, and in the order of VTK's hexahedron.
_CORNERS = np.stack(np.meshgrid(*[(-0.5, 0.5)] * 3, indexing="ij")[::-1], axis=-1).reshape(8, 3)
_CUBE = np.array([[0, 1, 3, 2, 4, 5, 7, 6]])


class PointFields(RowLayout):
    """Fields at a lattice's points.

    All ranks make it. It keeps 40 bytes for an own point and needs 40 more at first.
    """

    # `numbers`: int64 (owned,): raster numbers x + nx (y + ny z) of this rank's points, in the
    # order of its arrays; each point of the lattice is on one rank.
    # `origin`, `spacing`: position of point (0, 0, 0), and the distance of points, in m.

    def __init__(
        self,
        world: World,
        numbers: Integers,
        shape: Triple,
        *,
        origin: Position = (0.0, 0.0, 0.0),
        spacing: float = 1.0,
        periodic: tuple[bool, bool, bool] = (False, False, False),
    ) -> None:
        self._lattice, self._periodic = shape, periodic
        self._origin, self._spacing = np.array(origin), spacing
        self._numbers = np.ascontiguousarray(numbers, np.int64)
        places, total = _raster_order(world, self._numbers, int(np.prod(shape)))
        super().__init__(world, places, total, (), len(numbers), "points")
        x, y, z = raster_coordinates(self._numbers, shape).T
        held = [
            np.flatnonzero(world.sum(np.bincount(places, minlength=n)))
            for places, n in ((x, shape[0]), (y, shape[1]))
        ]
        planes = world.sum(np.bincount(z, minlength=shape[2]))
        # Where each plane begins in the whole field, and at last its end.
        self._planes = np.append(0, np.cumsum(planes))
        held.append(np.flatnonzero(planes))
        self._box = tuple((int(rows[0]), int(rows[-1]) + 1) for rows in held)
        self._find = by_number(self._numbers, np.arange(len(self._numbers)))

    def describe(self) -> str:
        """Text that describes the lattice."""
        extents = [end - begin for begin, end in self._box]
        share = self.shape[0] / np.prod(extents)
        return (
            f"{self.shape[0]} points, {100 * share:.3g} % of "
            f"{' x '.join(str(extent) for extent in extents)}"
        )

    def grid(self) -> StructuredGrid | None:
        """The planes of the bounding box, and where the points are in it, on rank 0."""
        numbers = self.collect(self._numbers, 0, self.shape[0])
        if numbers is None:
            return None
        start = np.array([begin for begin, _ in self._box])
        x, y, z = (
            self._origin[axis] + self._spacing * np.arange(begin, end)
            for axis, (begin, end) in enumerate(self._box)
        )
        return StructuredGrid(x, y, z, raster_coordinates(numbers, self._lattice) - start)

    def describe_grid(self) -> str:
        """How far points are apart, and which axes are closed."""
        closed = "".join(
            axis for axis, is_closed in zip("xyz", self._periodic, strict=True) if is_closed
        )
        return f"points {self._spacing:.9g} m apart, periodic along {closed or 'no axis'}"

    def landmarks(self) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.float64]]]:
        """Places of own points in the whole field, and where they lie, in spacings."""
        for begin, end in ranges(len(self._rows), _PIECE_BYTES // 8):
            positions = raster_coordinates(self._numbers[begin:end], self._lattice)
            yield self._rows[begin:end].astype(np.uint64), positions.astype(np.float64)

    def require_inside(self, location: str, position: Position) -> None:
        """Refuse a place with no point of the lattice around it."""
        numbers, weights = self._around([position])
        known = (numbers >= 0) & (weights > 0)
        if self._world.any(bool((self._find(numbers[known]) >= 0).any())):
            return
        own = self._origin + self._spacing * raster_coordinates(self._numbers, self._lattice)
        distances = np.linalg.norm(own - np.array(position), axis=1)
        least = float(distances.min(initial=np.inf))
        near = -self._world.largest(-least)
        # Of points as near as each other the first in raster order is named.
        mine = self._rows[distances == near].min(initial=self.shape[0])
        first = int(-self._world.largest(-float(mine)))
        matches = np.flatnonzero(self._rows == first)
        x, y, z = self._world.sum(own[matches[0]] if len(matches) else np.zeros(3))
        position_text = ", ".join(f"{p:g}" for p in position)
        raise InputError(
            f"({position_text}) m lies outside the lattice; the nearest lattice point is "
            f"({x:.6g}, {y:.6g}, {z:.6g}) m, {near:.3g} m away",
            location=location,
            remedy="give a position inside",
        )

    def sample(self, positions: Sequence[Position], owned: np.ndarray) -> list[float]:
        """Values at places by linear interpolation, the same on every rank.

        Of the eight points around a place those count that the lattice has; nan where it has none.
        """
        numbers, weights = self._around(positions)
        at = self._find(numbers.reshape(-1)).reshape(numbers.shape)
        here = (numbers >= 0) & (at >= 0) & (weights > 0)
        values = np.zeros((2, *numbers.shape))
        values[0, here] = owned[at[here]]
        values[1, here] = 1.0
        # One owner each: all other terms are zero, so the sum is exact.
        value_sums, there = self._world.sum(values)
        weights = weights * there
        with np.errstate(invalid="ignore"):
            result: list[float] = (
                (value_sums * weights).sum(axis=1) / weights.sum(axis=1)
            ).tolist()
        return result

    # Where at least a third of the bounding box is points a file holds an image of it, in which nan
    # stands where there is none, and the array ``inside`` tells which is which. Elsewhere it holds a
    # cube around each point, with scalars in cells and vectors at corners.

    @property
    def _extent(self) -> Triple:
        """Points of the bounding box along z, y and x."""
        width, height, depth = (end - begin for begin, end in self._box)
        return depth, height, width

    @property
    def _as_image(self) -> bool:
        # An image must have two points along x and y.
        share = self.shape[0] / math.prod(self._extent)
        return share >= _FULL and min(self._extent[1:]) > 1

    def _open(self, path: Path, time: float) -> VtkhdfWriter:
        """A file of an image or of cubes."""
        if not self._as_image:
            cubes = Blocks(HEXAHEDRON, [Block(self.shape[0], len(_CORNERS), _CUBE)])
            return VtkhdfWriter(path, cubes, time)
        start = np.array([begin for begin, _ in self._box])
        image = Image(
            self._extent, (self._origin + self._spacing * start).tolist(), (self._spacing,) * 3
        )
        return VtkhdfWriter(path, image, time)

    def _write_places(self, writer: VtkhdfWriter | None) -> None:
        """Write where points are: a mask, or the corners of cubes."""
        image = self._as_image
        if image and writer is not None:
            writer.create(_INSIDE, np.float32)
        for piece in self._pieces(np.dtype(float)):
            numbers = self.collect(self._numbers, *piece.rows)
            if writer is None or numbers is None:
                continue
            if image:
                mask = np.ones(len(numbers), np.float32)
                writer.write(_INSIDE, piece.place, self._block(piece, numbers, mask, 0))
            else:
                middle = raster_coordinates(numbers, self._lattice)[:, None]
                corners = self._origin + self._spacing * (middle + _CORNERS)
                writer.write(POINTS, piece.place, corners)

    def _create(self, writer: Any, name: str, dtype: np.dtype[Any], *, vector: bool) -> None:
        if self._as_image:
            super()._create(writer, name, dtype, vector=vector)
        else:
            writer.create(name, dtype, 3 if vector else 1, per_cell=not vector)

    def _pieces(self, dtype: np.dtype[Any]) -> Iterator[Piece]:
        """Points of some planes of an image, or so many cubes."""
        if not self._as_image:
            for begin, end in ranges(self.shape[0], _CELLS_AT_ONCE):
                yield Piece(begin, (begin, end))
            return
        first = self._box[2][0]
        for plane, end in ranges(self._extent[0], self._planes_at_once):
            rows = int(self._planes[first + plane]), int(self._planes[first + end])
            yield Piece(plane, rows)

    @property
    def _planes_at_once(self) -> int:
        _, height, width = self._extent
        return max(1, _PIECE_BYTES // (8 * height * width))

    def _write_part(
        self, writer: Any | None, name: str, piece: Piece, part: np.ndarray | None
    ) -> None:
        if self._as_image:
            numbers = self.collect(self._numbers, *piece.rows)
            if numbers is not None and part is not None:
                part = self._block(piece, numbers, part, np.nan)
        elif part is not None and part.ndim > 1:
            part = np.broadcast_to(part[:, None], (len(part), len(_CORNERS), 3))
        super()._write_part(writer, name, piece, part)

    def _block(self, piece: Piece, numbers: Integers, rows: np.ndarray, empty: float) -> np.ndarray:
        """Values at points as a block of the image (z, y, x, ...)."""
        depth, height, width = self._extent
        plane = piece.place
        grid = (min(self._planes_at_once, depth - plane), height, width)
        left, front, bottom = (begin for begin, _ in self._box)
        x, y, z = (raster_coordinates(numbers, self._lattice) - (left, front, bottom + plane)).T
        block: np.ndarray = np.full((*grid, *rows.shape[1:]), empty, rows.dtype)
        block[z, y, x] = rows
        return block

    def _around(self, positions: Sequence[Position]) -> tuple[Integers, NDArray[np.float64]]:
        """Raster numbers (n, 8) of the places around positions, -1: none; and their weights."""
        scaled = (np.asarray(positions, np.float64).reshape(-1, 3) - self._origin) / self._spacing
        nearest = np.rint(scaled)
        # What is a point but for rounding is that point alone.
        scaled = np.where(np.abs(scaled - nearest) < 1e-9, nearest, scaled)
        low = np.floor(scaled)
        corners = np.array(list(itertools.product((0, 1), repeat=3)))
        part = (scaled - low)[:, None, :]
        weights = np.where(corners, part, 1 - part).prod(axis=2)
        shape = np.array(self._lattice)
        places = low.astype(np.int64)[:, None, :] + corners
        reach = np.array(self._periodic).astype(np.int64)
        known = ((places >= -reach) & (places < shape + reach)).all(axis=2)
        places = places % shape
        numbers = places @ np.array([1, shape[0], shape[0] * shape[1]])
        return np.where(known, numbers, -1), weights


def _raster_order(world: World, numbers: Integers, places: int) -> tuple[Integers, int]:
    """Where each of a rank's points stands in the raster order of all, and how many there are.

    Rank r gets the numbers of the r-th part of all places, and tells their holders.
    """
    width = -(-places // world.size)
    order = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[order], width * np.arange(world.size + 1))
    parts = [numbers[order[a:b]].view(np.uint8) for a, b in itertools.pairwise(bounds)]
    came = [np.frombuffer(part.tobytes(), np.int64) for part in world.exchange(parts)]
    joined = np.concatenate(came)
    ascending = np.argsort(joined, kind="stable")
    if world.any(bool((np.diff(joined[ascending]) == 0).any())):
        raise InputError("a lattice point is on two ranks", remedy="give each point to one rank")
    counts = world.alltoall(np.full((world.size, 1), len(joined)))[:, 0]
    place = np.empty(len(joined), np.int64)
    place[ascending] = counts[: world.rank].sum() + np.arange(len(joined))
    ends = np.cumsum([len(part) for part in came])[:-1]
    answers = world.exchange([part.view(np.uint8) for part in np.split(place, ends)])
    result = np.empty(len(numbers), np.int64)
    result[order] = np.frombuffer(b"".join(part.tobytes() for part in answers), np.int64)
    return result, int(counts.sum())
