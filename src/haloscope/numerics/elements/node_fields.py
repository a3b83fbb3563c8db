"""Fields at the nodes of tetrahedra shared out over ranks: gathered for files, read back, sampled at points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.exchange.plan import rows_on_root
from haloscope.exchange.ranks.world import World
from haloscope.io.vtk_arrays import TETRAHEDRON, CellArrays, MeshCells
from haloscope.io.vtkhdf import CONNECTIVITY, POINTS, Mesh, VtkhdfWriter
from haloscope.mesh.field_layouts import Position, RowLayout, ranges
from haloscope.mesh.tets.node_parts import NodePart
from haloscope.numerics.elements.element_fields import PlaneRaster, joined_on_root, raster_on_ranks
from haloscope.numerics.elements.locate import BoxBins, held_points, refuse_outside

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Barycentric coordinates down to this count as inside: points on faces have an element for sure.
_TOLERANCE = 1e-9
_CORNERS = 4


@dataclass(frozen=True)
class TetPoints:
    """Where points lie."""

    # int64 (points,): number in the whole mesh of the element that holds the point, the lowest
    # where several meet; -1 where none does.
    elements: Integers
    nodes: Integers  # (points, 4): its corners
    weights: Floats  # (points, 4): values of the corners' linear functions; 0 outside

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Whether an element holds the point, (points,)."""
        return np.asarray(self.elements >= 0)

    def values(self, at_nodes: Floats) -> Floats:
        """Values (points, ...) of fields given at nodes (nodes, ...); 0 outside."""
        return np.asarray(np.einsum("pc,pc...->p...", self.weights, at_nodes[self.nodes]))


class TetLocator:
    """Finds points in tetrahedra.

    `nodes`: places (nodes, 3); `tets`: (elements, 4): nodes of their corners; `numbers`: of the
    elements in the whole mesh; by default they are the whole.
    """

    def __init__(
        self, nodes: Floats, tets: NDArray[np.integer], numbers: Integers | None = None
    ) -> None:
        self._nodes, self._tets = nodes, np.asarray(tets, np.int64)
        self._numbers = np.arange(len(tets)) if numbers is None else numbers
        corners = nodes[self._tets]
        lower, upper = corners.min(axis=1), corners.max(axis=1)
        room = _TOLERANCE * (upper - lower).max(axis=1, keepdims=True)
        self._bins = BoxBins(lower - room, upper + room) if len(tets) else None

    def find(self, points: ArrayLike) -> TetPoints:
        """Find the elements that hold points (n, 3)."""
        targets = np.asarray(points, np.float64).reshape(-1, 3)
        best = np.full(len(targets), np.iinfo(np.int64).max)
        corners = np.zeros((len(targets), _CORNERS), np.int64)
        weights = np.zeros((len(targets), _CORNERS))
        if self._bins is not None:
            for which, candidates in self._bins.pairs(targets):
                barycentric = self._weights(candidates, targets[which])
                held = barycentric.min(axis=1) >= -_TOLERANCE
                which, candidates, barycentric = which[held], candidates[held], barycentric[held]
                # The lowest number comes last, and stays.
                order = np.argsort(-self._numbers[candidates], kind="stable")
                which, candidates, barycentric = which[order], candidates[order], barycentric[order]
                better = self._numbers[candidates] < best[which]
                which, candidates, barycentric = (
                    which[better],
                    candidates[better],
                    barycentric[better],
                )
                best[which] = self._numbers[candidates]
                corners[which], weights[which] = self._tets[candidates], barycentric
        return TetPoints(np.where(best < np.iinfo(np.int64).max, best, -1), corners, weights)

    def _weights(self, elements: Integers, points: Floats) -> Floats:
        """Barycentric coordinates (n, 4) of points, one an element."""
        corners = self._nodes[self._tets[elements]]
        origin = corners[:, 0]
        edges = [corners[:, corner] - origin for corner in (1, 2, 3)]
        reach = points - origin
        across = [_cross(edges[(k + 1) % 3], edges[(k + 2) % 3]) for k in range(3)]
        sixfold = _dot(edges[0], across[0])
        others = [_dot(reach, vector) / sixfold for vector in across]
        return np.stack([1 - ((others[0] + others[1]) + others[2]), *others], axis=1)


def _dot(a: Floats, b: Floats) -> Floats:
    return np.asarray(a[:, 0] * b[:, 0] + a[:, 1] * b[:, 1] + a[:, 2] * b[:, 2])


def _cross(a: Floats, b: Floats) -> Floats:
    return np.stack(
        [
            a[:, (k + 1) % 3] * b[:, (k + 2) % 3] - a[:, (k + 2) % 3] * b[:, (k + 1) % 3]
            for k in range(3)
        ],
        axis=1,
    )


_ZONE = "zone"
# Rows of files that are read, and elements that are sent, at once.
_AT_ONCE = 1 << 20


class NodeFields(RowLayout):
    """Fields at the nodes of tetrahedra.

    A field as a whole has the shape (nodes,). A rank's own values are those of the nodes that it
    owns, ascending in their global numbers; all ranks make one.
    """

    def __init__(self, world: World, part: NodePart) -> None:
        owned = np.flatnonzero(part.owned)
        # int64: places of the own nodes in this rank's arrays.
        self.own_nodes: Integers = owned[np.argsort(part.node_numbers[owned])]
        numbers = part.node_numbers[self.own_nodes]
        super().__init__(world, numbers, part.whole_nodes, (), len(part.tets), "tetrahedra")
        self._part = part
        self._tets = np.argsort(part.tet_numbers)
        self._locator: TetLocator | None = None

    def describe(self) -> str:
        """Text that describes the mesh."""
        return f"{self._part.whole_tets} tetrahedra, {self._part.whole_nodes} nodes"

    def points(self) -> Floats | None:
        """Positions of all nodes on rank 0, (nodes, 3) in m."""
        return self.collect(self._part.nodes[self.own_nodes], 0, self.shape[0])

    def cells(self) -> MeshCells | None:
        """The tetrahedra and their zones, on rank 0."""
        points = self.points()
        nodes, zones = self._tets_on_root(0, self._part.whole_tets)
        if points is None or nodes is None or zones is None:
            return None
        arrays = CellArrays(points, nodes, TETRAHEDRON, cell_data={_ZONE: zones})
        return MeshCells(arrays, lambda values: values)

    def _tets_on_root(self, begin: int, end: int) -> tuple[Integers | None, np.ndarray | None]:
        """Nodes (n, 4) and zones (n,) of tetrahedra `begin` to `end` on rank 0."""
        part = self._part
        span = np.searchsorted(part.tet_numbers, (begin, end), sorter=self._tets)
        tets = self._tets[slice(*span)]
        numbers = part.tet_numbers[tets]
        corners = np.asarray(part.node_numbers[part.tets[tets]], np.int64)
        nodes = rows_on_root(self._world, corners, numbers, begin, end)
        zones = part.zones[tets].astype(np.int32)
        return nodes, rows_on_root(self._world, zones, numbers, begin, end)

    def describe_grid(self) -> str:
        """Tetrahedra that nodes are joined to."""
        return f"{self._part.whole_tets} tetrahedra"

    def landmarks(self) -> Iterator[tuple[NDArray[np.uint64], Floats]]:
        """Own nodes, and where they lie in m."""
        for begin, end in ranges(len(self._rows), _AT_ONCE):
            places = self._part.nodes[self.own_nodes[begin:end]]
            yield self._rows[begin:end].astype(np.uint64), places

    @property
    def locator(self) -> TetLocator:
        """Finds points in own elements."""
        if self._locator is None:
            part = self._part
            self._locator = TetLocator(part.nodes, part.tets, part.tet_numbers)
        return self._locator

    def locate(self, positions: Sequence[Position]) -> tuple[Integers, TetPoints]:
        """Find points in elements of this rank; each is in one element of one rank."""
        located = self.locator.find(np.asarray(positions, np.float64))
        return held_points(self._world, located.elements, self._part.whole_tets), located

    def require_inside(self, location: str, position: Position) -> None:
        """Refuse a point outside the mesh."""
        mine, _ = self.locate([position])
        if self._world.any(len(mine) > 0):
            return
        distances = np.linalg.norm(self._part.nodes - np.array(position), axis=1)
        refuse_outside(self._world, location, position, float(distances.min()), "node")

    def sample_plane(
        self, axis: str, offset: float | None, points: int, values: Floats
    ) -> tuple[PlaneRaster, Floats | None]:
        """Sample fields (nodes of this rank, components) on a plane across an axis.

        Returns: on rank 0 (components, second, first), nan outside the mesh; None elsewhere.
        """
        lower, upper = self._part.nodes.min(axis=0), self._part.nodes.max(axis=0)
        raster = raster_on_ranks(self._world, lower, upper, axis, offset, points)
        located = self.locator.find(raster.points)
        flat = np.where(located.inside[:, None], located.values(values), np.nan)
        own = np.ascontiguousarray(flat.T).reshape(-1, *raster.shape)
        return raster, joined_on_root(self._world, own)

    def _open(self, path: Path, time: float) -> VtkhdfWriter:
        """A file of tetrahedra."""
        part = self._part
        mesh = Mesh(TETRAHEDRON, 4, part.whole_nodes, part.whole_tets)
        return VtkhdfWriter(path, mesh, time)

    def _write_places(self, writer: VtkhdfWriter | None) -> None:
        """Write nodes, elements and zones, gathered on rank 0 piece by piece."""
        if writer is not None:
            writer.create(_ZONE, np.int32, per_cell=True)
        for begin, end in ranges(self._part.whole_nodes, _AT_ONCE):
            places = self.collect(self._part.nodes[self.own_nodes], begin, end)
            if writer is not None and places is not None:
                writer.write(POINTS, begin, places)
        for begin, end in ranges(self._part.whole_tets, _AT_ONCE):
            nodes, zones = self._tets_on_root(begin, end)
            if writer is not None and nodes is not None and zones is not None:
                writer.write(CONNECTIVITY, begin, nodes.astype(np.int64))
                writer.write(_ZONE, begin, zones)
