"""Fields at points of a sparse lattice: gathered for files, read back, looked at in points.

A field as a whole is one long array, a value a point, in the raster order of all points; where a
point stands in it depends on the lattice alone, not on how the lattice is shared out.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.exchange.plan import by_number, rows_on_root
from haloscope.exchange.ranks.world import World
from haloscope.mesh.blocks import StructuredGrid
from haloscope.mesh.lattice.lattice_parts import Integers, Triple, raster_coordinates

Position = tuple[float, float, float]
Values = Mapping[str, Callable[[], np.ndarray]]

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


class PointFields:
    """Where the values of fields at a lattice's points lie: in space, on ranks, in files.

    All ranks make it, and call each of its methods, together. It keeps 32 bytes for an own point
    and needs 40 more at first.
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
        self._world, self._lattice, self._periodic = world, shape, periodic
        self._origin, self._spacing = np.array(origin), spacing
        self._numbers = np.ascontiguousarray(numbers, np.int64)
        self._places, total = _raster_order(world, self._numbers, int(np.prod(shape)))
        self._sorted = np.argsort(self._places, kind="stable")
        self.shape = (total,)
        self.parts = [world.size]
        self._counts = world.sum(np.bincount([world.rank], [len(numbers)], world.size)).astype(int)
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

    def describe_parts(self) -> str:
        """How it is shared out, for people."""
        return f"{self._world.size} parts of {self._counts.min()} to {self._counts.max()} points"

    def collect(self, owned: np.ndarray, begin: int, end: int) -> np.ndarray | None:
        """Places `begin` to `end` of a field on rank 0, from all ranks' own values."""
        order = self._sorted[self._cut(begin, end)]
        return rows_on_root(self._world, owned[order], self._places[order], begin, end)

    def points(self) -> NDArray[np.float64] | None:
        """Positions of all points on rank 0, (points, 3) in m."""
        grid = self.grid()
        return None if grid is None else grid.points()

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

    def cells(self) -> None:
        """None: the points are on a regular grid."""
        return None

    def own(self, read: Callable[[tuple[slice, ...]], np.ndarray]) -> np.ndarray:
        """Own values of a field on this rank, which `read` gives by slices of its axes.

        It reads the stretch between the first and the last own point, some of it at a time.
        """
        step = _PIECE_BYTES // 8
        result: np.ndarray | None = None
        for begin in range(0, self.shape[0], step):
            order = self._sorted[self._cut(begin, begin + step)]
            if not len(order):
                continue
            places = self._places[order]
            first = int(places[0])
            part = read((slice(first, int(places[-1]) + 1),))
            if result is None:
                result = np.empty(len(self._places), part.dtype)
            result[order] = part[places - first]
        return np.empty(0) if result is None else result

    def numbers(self) -> Iterator[NDArray[np.uint64]]:
        """Global numbers of own values in their order, as arrays one after the other."""
        step = _PIECE_BYTES // 8
        for begin in range(0, len(self._places), step):
            yield self._places[begin : begin + step].astype(np.uint64)

    def describe_grid(self) -> str:
        """How far points are apart, and which axes are closed."""
        closed = "".join(
            axis for axis, is_closed in zip("xyz", self._periodic, strict=True) if is_closed
        )
        return f"points {self._spacing:.9g} m apart, periodic along {closed or 'no axis'}"

    def landmarks(self) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.float64]]]:
        """Places of own points in the whole field, and where they lie, in spacings."""
        step = _PIECE_BYTES // 8
        for begin in range(0, len(self._places), step):
            span = slice(begin, begin + step)
            positions = raster_coordinates(self._numbers[span], self._lattice)
            yield self._places[span].astype(np.uint64), positions.astype(np.float64)

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
        mine = self._places[distances == near].min(initial=self.shape[0])
        first = int(-self._world.largest(-float(mine)))
        matches = np.flatnonzero(self._places == first)
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

    def write(
        self, path: Path, values: Values, vectors: Mapping[str, Sequence[str]], time: float
    ) -> None:
        """Write fields as VTKHDF, gathered on rank 0 some points at a time."""
        # Where at least a third of the bounding box is points the file holds an image of it, in
        # which nan stands where there is none, and the array ``inside`` tells which is which.
        # Elsewhere it holds a cube around each point, with scalars in cells and vectors at corners.
        depth, height, width = (end - begin for begin, end in reversed(self._box))
        share = self.shape[0] / (depth * height * width)
        # An image must have two points along x and y.
        if share >= _FULL and min(height, width) > 1:
            self._write_image(path, values, vectors, time, (depth, height, width))
        else:
            self._write_cells(path, values, vectors, time)

    def _write_image(
        self,
        path: Path,
        values: Values,
        vectors: Mapping[str, Sequence[str]],
        time: float,
        shape: Triple,
    ) -> None:
        from haloscope.io.vtkhdf import Image, VtkhdfWriter

        start = np.array([begin for begin, _ in self._box])
        with contextlib.ExitStack() as stack:
            writer = None
            if self._world.is_root:
                origin = self._origin + self._spacing * start
                image = Image(shape, origin.tolist(), (self._spacing,) * 3)
                writer = stack.enter_context(VtkhdfWriter(path, image, time))
                writer.create(_INSIDE, np.float32)
            for plane, bounds in self._slabs(shape):
                numbers = self.collect(self._numbers, *bounds)
                if writer is not None and numbers is not None:
                    mask = np.ones(len(numbers), np.float32)
                    writer.write(_INSIDE, plane, self._block(shape, plane, numbers, mask, 0))
            for name, columns in _arrays(values, vectors).items():
                owned = [values[column]() for column in columns]
                if writer is not None:
                    writer.create(name, owned[0].dtype, 3 if name in vectors else 1)
                for plane, bounds in self._slabs(shape):
                    numbers = self.collect(self._numbers, *bounds)
                    rows = self._rows(owned, *bounds, vector=name in vectors)
                    if writer is not None and numbers is not None and rows is not None:
                        block = self._block(shape, plane, numbers, rows, np.nan)
                        writer.write(name, plane, block)

    def _slabs(self, shape: Triple) -> Iterator[tuple[int, tuple[int, int]]]:
        """Planes of the bounding box that are written at once: the first, and their points."""
        step = self._slab(shape)
        first = self._box[2][0]
        for plane in range(0, shape[0], step):
            end = min(plane + step, shape[0])
            yield plane, (int(self._planes[first + plane]), int(self._planes[first + end]))

    def _slab(self, shape: Triple) -> int:
        return max(1, _PIECE_BYTES // (8 * shape[1] * shape[2]))

    def _block(
        self, shape: Triple, plane: int, numbers: Integers, rows: np.ndarray, empty: float
    ) -> np.ndarray:
        """Values at points as a block of the image (z, y, x, ...), from a plane on."""
        grid = (min(self._slab(shape), shape[0] - plane), *shape[1:])
        left, front, bottom = (begin for begin, _ in self._box)
        start = (left, front, bottom + plane)
        x, y, z = (raster_coordinates(numbers, self._lattice) - start).T
        block: np.ndarray = np.full((*grid, *rows.shape[1:]), empty, rows.dtype)
        block[z, y, x] = rows
        return block

    def _write_cells(
        self, path: Path, values: Values, vectors: Mapping[str, Sequence[str]], time: float
    ) -> None:
        from haloscope.io.vtk_arrays import HEXAHEDRON
        from haloscope.io.vtkhdf import POINTS, Block, Blocks, VtkhdfWriter

        with contextlib.ExitStack() as stack:
            writer = None
            if self._world.is_root:
                cubes = Blocks(HEXAHEDRON, [Block(self.shape[0], 8, _CUBE)])
                writer = stack.enter_context(VtkhdfWriter(path, cubes, time))
            for begin, end in self._pieces():
                numbers = self.collect(self._numbers, begin, end)
                if writer is not None and numbers is not None:
                    middle = raster_coordinates(numbers, self._lattice)[:, None]
                    writer.write(POINTS, begin, self._origin + self._spacing * (middle + _CORNERS))
            for name, columns in _arrays(values, vectors).items():
                owned = [values[column]() for column in columns]
                vector = name in vectors
                if writer is not None:
                    writer.create(name, owned[0].dtype, *(3,) * vector, per_cell=not vector)
                for begin, end in self._pieces():
                    rows = self._rows(owned, begin, end, vector=vector)
                    if writer is None or rows is None:
                        continue
                    if vector:
                        rows = np.broadcast_to(rows[:, None], (len(rows), 8, 3))
                    writer.write(name, begin, rows)

    def _pieces(self) -> Iterator[tuple[int, int]]:
        """Places of the whole field that become cells at once."""
        for begin in range(0, self.shape[0], _CELLS_AT_ONCE):
            yield begin, min(begin + _CELLS_AT_ONCE, self.shape[0])

    def _rows(
        self, owned: Sequence[np.ndarray], begin: int, end: int, *, vector: bool
    ) -> np.ndarray | None:
        """Values of places of the whole field on rank 0, those of a vector side by side."""
        rows = [self.collect(own, begin, end) for own in owned]
        columns = [column for column in rows if column is not None]
        if not columns:
            return None
        if not vector:
            return columns[0]
        columns += [np.zeros_like(columns[0])] * (3 - len(columns))
        return np.stack(columns, axis=1)

    def _cut(self, begin: int, end: int) -> slice:
        """Which of the own points, in raster order, have these places in the whole field."""
        first, last = np.searchsorted(self._places, (begin, end), sorter=self._sorted)
        return slice(int(first), int(last))

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


def _arrays(values: Values, vectors: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """The fields of each array of a file: of a scalar one, of a vector its components."""
    components = {name for group in vectors.values() for name in group}
    return {**{name: (name,) for name in values if name not in components}, **vectors}
