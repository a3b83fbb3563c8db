"""Fields on elements of which each rank knows its own only; see `element_fields` for the rest."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from haloscope.domain.hexes import Floats, HexMesh, Integers
from haloscope.domain.mesh_parts import MeshPart, some_of
from haloscope.exchange.block_fields import arrays_of
from haloscope.exchange.rows import give_rows
from haloscope.exchange.world import World
from haloscope.numerics.cell_output import open_cells
from haloscope.numerics.element_fields import ElementFields, Found, Position
from haloscope.numerics.element_geometry import nodes
from haloscope.numerics.locate import Located, Locator, Nearest
from haloscope.numerics.plane_samples import (
    PlaneRaster,
    PlaneSamples,
    joined,
    mesh_bounds,
    plane_raster,
)

_REGION = "region"
# Elements whose nodes are computed and sent at once.
_AT_ONCE = 512


class PartLocator(Locator):
    """Finds points in a rank's elements; where several meet the one with the lowest number has it.

    Parameters
    ----------
    mesh
        The rank's elements.
    order
        Order N of their nodes.
    numbers
        Of these elements in the whole mesh.
    some
        Those of `mesh` that may hold points; None: all.
    """

    def __init__(
        self, mesh: HexMesh, order: int, numbers: Integers, some: Integers | None = None
    ) -> None:
        chosen = np.arange(len(numbers)) if some is None else some
        self._rows = chosen[np.argsort(numbers[chosen], kind="stable")]
        self._numbers = numbers[self._rows]
        super().__init__(some_of(mesh, self._rows), order)

    def find(self, points: ArrayLike) -> Located:
        """Find elements by their numbers in the whole mesh, and by their rows on this rank."""
        found = super().find(points)
        if not len(self._rows):
            return found
        inside = found.inside
        return Located(
            np.where(inside, self._numbers[found.rows], -1),
            np.where(inside, self._rows[found.rows], -1),
            found.reference,
        )

    def nearest(self, points: ArrayLike) -> Nearest:
        """As :meth:`Locator.nearest`, with numbers in the whole mesh."""
        found = super().nearest(points)
        known = found.elements >= 0
        numbers = np.where(known, self._numbers[found.elements], -1) if known.any() else -1
        return replace(found, elements=np.broadcast_to(numbers, known.shape))


class PartFields(ElementFields):
    """As :class:`ElementFields`, without a rank that has the whole mesh; all ranks make one.

    Parameters
    ----------
    world
        The ranks.
    part
        This rank's elements.
    order
        N.
    """

    def __init__(self, world: World, part: MeshPart, order: int) -> None:
        own = part.mesh.count
        super().__init__(world, part.mesh, order, np.full(own, world.rank), part.elements)
        self.shape = (part.whole, *self.shape[1:])
        self._fewest, self._most = -int(world.largest(-own)), int(world.largest(own))

    def describe(self) -> str:
        """What there is, for people."""
        whole = self.shape[0]
        return f"{whole} elements of order {self._order}, {whole * (self._order + 1) ** 3} nodes"

    def describe_parts(self) -> str:
        """How it is shared out, for people."""
        return f"{self._world.size} parts of {self._fewest} to {self._most} elements"

    def collect(self, owned: np.ndarray, begin: int, end: int) -> np.ndarray | None:
        """Elements `begin` to `end` of a field on rank 0, from all ranks' own values."""
        rows = self._between(begin, end)
        return self._on_root(owned[rows], rows, begin, end)

    def _between(self, begin: int, end: int) -> Integers:
        """Own elements with numbers from `begin` to `end`, ascending."""
        cut = np.searchsorted(self._elements[self._sorted], (begin, end))
        return self._sorted[slice(*cut)]

    def _on_root(
        self, values: np.ndarray, rows: Integers, begin: int, end: int
    ) -> np.ndarray | None:
        """Values of all elements `begin` to `end` on rank 0, from those of own ones."""
        to_root = np.zeros(len(rows), np.int64)
        (numbers, found), _ = give_rows(self._world, [self._elements[rows], values], to_root)
        if not self._world.is_root:
            return None
        result = np.empty((end - begin, *values.shape[1:]), values.dtype)
        result[numbers - begin] = found
        return result

    @property
    def locator(self) -> PartLocator:
        """Finds points in own elements."""
        if not isinstance(self._locator, PartLocator):
            self._locator = PartLocator(self._mesh, self._order, self._elements)
        return self._locator

    def locate(self, positions: Sequence[Position]) -> Found:
        """Find which points lie in elements of this rank; each is in one element of one rank."""
        located = self.locator.find(np.asarray(positions, np.float64).reshape(-1, 3))
        # Where elements of several ranks meet the lowest number has the point.
        none = self.shape[0]
        given = np.where(located.inside, located.elements, none)
        lowest = np.array([-self._world.largest(-float(element)) for element in given])
        points = np.flatnonzero((located.elements == lowest) & located.inside)
        return Found(points, located.rows[points], located.weights(self._order)[points])

    def sample_plane(
        self, axis: str, offset: float | None, points: int, values: Callable[[Integers], Floats]
    ) -> tuple[PlaneRaster, Floats | None]:
        """As :meth:`ElementFields.sample_plane`."""
        low, high = mesh_bounds(self._mesh, self._order)
        lower = -np.array([self._world.largest(-float(at)) for at in low])
        upper = np.array([self._world.largest(float(at)) for at in high])
        raster = plane_raster(lower, upper, axis, offset, points)
        samples = PlaneSamples(self.locator, raster)
        own = samples.values(values(samples.rows))
        if not self._world.is_root:
            self._world.send(own, 0)
            return raster, None
        parts = [own]
        for rank in range(1, self._world.size):
            parts.append(self._world.receive(own.shape, own.dtype, rank))
        return raster, joined(parts)

    def write(
        self,
        path: Path,
        values: Mapping[str, Callable[[], np.ndarray]],
        vectors: Mapping[str, Sequence[str]],
        time: float,
    ) -> None:
        """As :meth:`ElementFields.write`; places are gathered like the fields."""
        with contextlib.ExitStack() as stack:
            writer, whole = None, self.shape[0]
            if self._world.is_root:
                writer = stack.enter_context(
                    open_cells(path, elements=whole, order=self._order, time=time)
                )
                writer.create(_REGION, np.int32, per_element=True)
            for begin in range(0, whole, _AT_ONCE):
                end = min(begin + _AT_ONCE, whole)
                rows = self._between(begin, end)
                places = nodes(self._mesh, self._order, rows)
                regions = self._on_root(self._mesh.regions[rows], rows, begin, end)
                everywhere = self._on_root(places, rows, begin, end)
                if writer is not None and regions is not None and everywhere is not None:
                    writer.write(_REGION, begin, regions)
                    writer.place(begin, everywhere)
            for name, begin, part in arrays_of(self, values, vectors, writer, axis=1):
                if writer is not None:
                    writer.write(name, begin, part)
