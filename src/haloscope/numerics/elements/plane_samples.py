"""Fields on a plane across curved elements, at the points of a regular raster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.exchange.ranks.world import World
from haloscope.mesh.hexes.hexes import Floats, HexMesh, Integers
from haloscope.numerics.elements.element_geometry import in_pieces
from haloscope.numerics.elements.locate import Located, Locator, evaluate

AXES = "xyz"
RASTER_POINTS = 200
_FEWEST_POINTS = 2
_ACROSS = 32


@dataclass(frozen=True)
class PlaneRaster:
    """Points on a plane across an axis: the middles of equal cells that fill a rectangle."""

    axis: str  # ``x``, ``y`` or ``z``: the plane's normal
    offset: float  # Where on it the plane is, in m
    # Coordinates along the other two axes, in the order x, y, z, in m; evenly spaced.
    first: Floats
    second: Floats

    @property
    def names(self) -> tuple[str, str]:
        """Names of the axes along which `first` and `second` run."""
        others = AXES.replace(self.axis, "")
        return others[0], others[1]

    @property
    def shape(self) -> tuple[int, int]:
        """Points along the second and the first axis."""
        return len(self.second), len(self.first)

    @property
    def points(self) -> Floats:
        """All points (n, 3), those along the first axis after each other."""
        result = np.empty((*self.shape, 3))
        result[..., AXES.index(self.axis)] = self.offset
        first, second = (AXES.index(name) for name in self.names)
        result[..., first], result[..., second] = np.meshgrid(self.first, self.second)
        return result.reshape(-1, 3)


def mesh_bounds(mesh: HexMesh, order: int) -> tuple[Floats, Floats]:
    """Least and largest coordinates (3,) of the GLL nodes of a mesh."""
    lower, upper = np.full(3, np.inf), np.full(3, -np.inf)
    for _, places in in_pieces(mesh, order):
        lower = np.minimum(lower, places.min(axis=(0, 1, 2, 3)))
        upper = np.maximum(upper, places.max(axis=(0, 1, 2, 3)))
    return lower, upper


def plane_raster(
    lower: Floats,
    upper: Floats,
    axis: str = "z",
    offset: float | None = None,
    points: int = RASTER_POINTS,
) -> PlaneRaster:
    """Lay a raster across a box.

    `lower`, `upper`: corners of the box (3,), as `mesh_bounds` gives them; `points`: along the
    longer side, at least 2; the cells are about square, but a short side has 32.
    """
    if axis not in ("x", "y", "z"):
        raise InputError(f"axis = {axis!r} of a plane is not known; allowed are x, y and z")
    if points < _FEWEST_POINTS:
        raise InputError(
            f"points = {points} of a plane is out of range; at least {_FEWEST_POINTS} are needed"
        )
    number = AXES.index(axis)
    low, high = float(lower[number]), float(upper[number])
    at = (low + high) / 2 if offset is None else offset
    if not low <= at <= high:
        raise InputError(
            f"a plane at {axis} = {at:g} m misses the mesh, which reaches from {low:g} to "
            f"{high:g} m; move it there"
        )
    others = [other for other in range(3) if other != number]
    lengths = upper[others] - lower[others]
    first, second = (
        start + (np.arange(count) + 0.5) * length / count
        for start, length in zip(lower[others], lengths, strict=True)
        for count in [max(min(points, _ACROSS), round(points * float(length / lengths.max())))]
    )
    return PlaneRaster(axis, at, first, second)


def raster_on_ranks(
    world: World, lower: Floats, upper: Floats, axis: str, offset: float | None, points: int
) -> PlaneRaster:
    """Lay a raster across all ranks' boxes together; all ranks call this, and get the same.

    `lower`, `upper`: corners (3,) of the box around this rank's elements.
    """
    least = -np.array([world.largest(-float(at)) for at in lower])
    most = np.array([world.largest(float(at)) for at in upper])
    return plane_raster(least, most, axis, offset, points)


class PlaneSamples:
    """Samples fields of this rank's elements on a raster."""

    def __init__(self, locator: Locator, raster: PlaneRaster) -> None:
        self.raster = raster
        located = locator.find(raster.points)
        # int64: the elements of the locator that hold points, ascending. Only their values are
        # needed.
        self.rows: Integers = np.unique(located.rows[located.inside])
        places = np.where(located.inside, np.searchsorted(self.rows, located.rows), -1)
        self._located = Located(located.elements, places, located.reference)

    def values(self, values: NDArray[Any]) -> Floats:
        """Values on the raster.

        `values`: (rows, ..., N + 1, N + 1, N + 1): elements `rows`, components, and nodes k, j, i.
        """
        components = values.shape[1:-3]
        flat = evaluate(values, self._located)
        return np.moveaxis(flat, 0, -1).reshape(*components, *self.raster.shape)


def joined_on_root(world: World, own: Floats) -> Floats | None:
    """One array out of those of all ranks, on rank 0; None elsewhere. All ranks call this."""
    if not world.is_root:
        world.send(own, 0)
        return None
    return joined(
        [own, *(world.receive(own.shape, own.dtype, rank) for rank in range(1, world.size))]
    )


def joined(parts: Sequence[Floats]) -> Floats:
    """One array out of those of several ranks: each value from the first that has it."""
    result = parts[0].copy()
    for part in parts[1:]:
        np.copyto(result, part, where=np.isnan(result))
    return result
