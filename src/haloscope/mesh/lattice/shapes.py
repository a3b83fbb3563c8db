"""Boxes and tubes: their insides, walls and lattices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.mesh.blocks import AXES, SIDES, Side, Triple
from haloscope.mesh.files.meshio_files import METRE, LengthUnit
from haloscope.mesh.lattice.lattice_runs import Flags

Floats = NDArray[np.float64]
Ends = Literal["walls", "open", "periodic"]

# Share of a spacing by which a length may miss a whole number of spacings.
_WHOLE = 1e-6


@dataclass(frozen=True)
class Grid:
    """A box of lattice points."""

    shape: Triple  # Points along x, y, z
    origin: Floats  # Position in m of the first point, shape (3,)
    spacing: float  # Distance between points in m
    periodic: Flags = (False, False, False)  # Whether the box closes on itself along x, y, z


def _spacing_for_all(lengths: Sequence[float], spacing: float) -> float:
    """The spacing nearest to one, of which lengths are whole numbers; of the first where none is near."""
    first = lengths[0]
    count = max(1, round(first / spacing))
    counts = range(max(1, count // 2), 2 * count + 1)
    fitting = [n for n in counts if all(_is_whole(length, first / n) for length in lengths)]
    return first / min(fitting or [count], key=lambda n: abs(first / n - spacing))


def _is_whole(length: float, spacing: float) -> bool:
    count = round(length / spacing)
    return count >= 1 and abs(length / spacing - count) <= _WHOLE * count


def _whole(
    length: float, spacing: float, key: str, unit: LengthUnit, others: Sequence[float] = ()
) -> int:
    """Spacings of a length; `others`: lengths that must be whole numbers of a spacing, too."""
    count = round(length / spacing)
    if not _is_whole(length, spacing):
        near = _spacing_for_all([length, *others], spacing)
        raise InputError(
            f"this is {length / spacing:.6g} spacings of {unit.length(spacing)}",
            location=f"{key} = {unit.length(length)}",
            allowed="a whole number of spacings",
            remedy=f"use a spacing of {unit.length(near)}",
        )
    return count


def _points(
    length: float,
    spacing: float,
    ends: Ends,
    key: str,
    unit: LengthUnit,
    others: Sequence[float] = (),
) -> tuple[int, float]:
    """Points along an axis from 0 to a length, and where the first of them is."""
    if ends == "periodic":
        return _whole(length, spacing, key, unit, others), spacing / 2
    if ends == "open":
        return _whole(length, spacing, key, unit, others) + 1, 0.0
    # As many points as fit strictly between the walls, the same distance from both.
    count = max(1, math.ceil(length / spacing - _WHOLE))
    return count, (length - (count - 1) * spacing) / 2


def _require_length(name: str, length: float) -> None:
    if not (math.isfinite(length) and length > 0):
        raise InputError(
            "out of range", location=f"{name} = {length:g} m", allowed="lengths above 0"
        )


@dataclass(frozen=True)
class Box:
    """A box from the origin of coordinates, as a channel between plates or a duct."""

    lengths: tuple[float, float, float]  # Along x, y, z, in m
    ends: tuple[Ends, Ends, Ends]

    def __post_init__(self) -> None:
        for axis, length in zip(AXES, self.lengths, strict=True):
            _require_length(f"length along {axis}", length)

    @property
    def _walled(self) -> list[int]:
        return [axis for axis in range(3) if self.ends[axis] == "walls"]

    @property
    def across(self) -> float:
        """Least distance in m between opposite walls; infinite without walls."""
        return min((self.lengths[axis] for axis in self._walled), default=math.inf)

    @property
    def open_sides(self) -> tuple[Side, ...]:
        """Sides that are openings; the first or last plane of points lies on each."""
        return tuple(side for side in SIDES if self.ends[side.axis] == "open")

    def grid(self, spacing: float, unit: LengthUnit = METRE) -> Grid:
        """Box of lattice points that holds the shape; messages have lengths in the unit."""
        others = [self.lengths[axis] for axis in range(3) if axis not in self._walled]
        (nx, x), (ny, y), (nz, z) = (
            _points(length, spacing, ends, f"length along {axis}", unit, others)
            for axis, length, ends in zip(AXES, self.lengths, self.ends, strict=True)
        )
        px, py, pz = (ends == "periodic" for ends in self.ends)
        return Grid((nx, ny, nz), np.array([x, y, z]), spacing, (px, py, pz))

    def inside(self, positions: Floats) -> NDArray[np.bool_]:
        """Whether positions (..., 3) in m lie inside the walls."""
        return np.asarray(self.wall_distances(positions) > 0)

    def link_fractions(self, positions: Floats, links: Floats) -> Floats:
        """Fraction of links (n, 3) in m, from positions (n, 3) inside, at which a wall is met."""
        fractions = np.full(len(positions), np.inf)
        for axis in self._walled:
            x, step = positions[:, axis], links[:, axis]
            room = np.where(step > 0, self.lengths[axis] - x, -x)
            met = step != 0
            fractions[met] = np.minimum(fractions[met], room[met] / step[met])
        return fractions

    def wall_distances(self, positions: Floats) -> Floats:
        """Distances in m of positions (..., 3) from the nearest wall, negative outside."""
        if not self._walled:
            return np.full(np.shape(positions)[:-1], np.inf)
        x = positions[..., self._walled]
        lengths = np.array(self.lengths)[self._walled]
        depth = np.minimum(x, lengths - x)
        beyond = np.linalg.norm(np.minimum(depth, 0), axis=-1)
        return np.asarray(np.where(beyond > 0, -beyond, depth.min(axis=-1)))


@dataclass(frozen=True)
class Tube:
    """A straight round tube; its axis starts at the origin of coordinates."""

    # In m.
    radius: float
    length: float
    axis: int = 0  # 0, 1 or 2: the axis of coordinates along which it lies
    ends: Literal["open", "periodic"] = "periodic"

    def __post_init__(self) -> None:
        _require_length("radius", self.radius)
        _require_length("length", self.length)

    @property
    def across(self) -> float:
        """Diameter in m."""
        return 2 * self.radius

    @property
    def open_sides(self) -> tuple[Side, ...]:
        """Sides that are openings."""
        return tuple(s for s in SIDES if s.axis == self.axis and self.ends == "open")

    def grid(self, spacing: float, unit: LengthUnit = METRE) -> Grid:
        """Box of lattice points that holds the shape, with the axis at the middle."""
        count, first = _points(2 * self.radius, spacing, "walls", "diameter", unit)
        shape, origin = [count] * 3, np.full(3, first - self.radius)
        shape[self.axis], origin[self.axis] = _points(
            self.length, spacing, self.ends, "length", unit
        )
        px, py, pz = (a == self.axis and self.ends == "periodic" for a in range(3))
        return Grid((shape[0], shape[1], shape[2]), origin, spacing, (px, py, pz))

    def _across(self, vectors: Floats) -> Floats:
        return np.delete(vectors, self.axis, axis=-1)

    def inside(self, positions: Floats) -> NDArray[np.bool_]:
        """Whether positions (..., 3) in m lie inside the wall."""
        return np.asarray((self._across(positions) ** 2).sum(axis=-1) < self.radius**2)

    def link_fractions(self, positions: Floats, links: Floats) -> Floats:
        """Fraction of links (n, 3) at which the wall is met: the positive root for |x + q c| = R."""
        x, c = self._across(positions), self._across(links)
        square = (c**2).sum(axis=1)
        half = (x * c).sum(axis=1)
        room = self.radius**2 - (x**2).sum(axis=1)
        root = np.sqrt(np.maximum(half**2 + square * room, 0))
        # Of the two ways to write the root the one without cancellation.
        fractions = np.full(len(x), np.inf)
        away = half > 0
        fractions[away] = room[away] / (half + root)[away]
        toward = ~away & (square > 0)
        fractions[toward] = (root - half)[toward] / square[toward]
        return fractions

    def wall_distances(self, positions: Floats) -> Floats:
        """Distances in m of positions (..., 3) from the wall, negative outside."""
        return np.asarray(self.radius - np.linalg.norm(self._across(positions), axis=-1))


Shape = Box | Tube
"""A geometry defined by formulas."""
