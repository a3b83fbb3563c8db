"""Section of a mesh with a plane: triangles with values, to be drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.io.vtk_arrays import HEXAHEDRON, TETRAHEDRON, VOXEL, CellArrays
from haloscope.mesh.hexes.hexes import vtk_order

Floats = NDArray[np.float64]

# Of bricks; cells of other types are Lagrange hexahedra.
_CORNERS = {
    VOXEL: np.array([(i, j, k) for k in (0, 1) for j in (0, 1) for i in (0, 1)]),
    HEXAHEDRON: vtk_order(1),
}
_LEAST_AREA = 1e-9  # of a triangle over the largest
# Kuhn's division of a brick: from one end of a diagonal to the other along three edges.
_PATHS = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))


@dataclass(frozen=True)
class MeshPlane:
    """Triangles of a section."""

    axis: int
    offset: float  # m
    corners: Floats  # (triangles, 3, 3) in m
    # Corners lie on edges between two points of the mesh: their numbers (triangles, 3, 2), and the
    # share (triangles, 3) of the second.
    ends: NDArray[np.int64]
    shares: Floats
    cells: NDArray[np.int64]  # (triangles,): the cell that each cuts

    def values(self, at_points: NDArray[np.float64]) -> Floats:
        """Values (triangles, 3) at the corners, of those at the points of the mesh."""
        first, second = np.moveaxis(at_points[self.ends], -1, 0)
        return np.asarray(first + self.shares * (second - first))


def middle_plane(arrays: CellArrays) -> MeshPlane:
    """The section across the middle of the shortest side of a mesh."""
    points = arrays.points
    low, high = points.min(axis=0), points.max(axis=0)
    sides = high - low
    # Of equal sides z, as in the pictures of runs.
    axis = 2 - int(np.argmin(np.round(sides[::-1] / sides.max(), 6)))
    offset = float(low[axis] + high[axis]) / 2
    # Points on the plane count as above it.
    distance = points[:, axis] - offset
    above = distance[arrays.connectivity] >= 0
    cells = np.flatnonzero(above.any(axis=1) & ~above.all(axis=1))
    tetrahedra, cells = _tetrahedra(arrays.connectivity[cells], cells, arrays.cell_type)
    ends, cells = _crossed_edges(tetrahedra, distance[tetrahedra] >= 0, cells)
    begin, end = np.moveaxis(distance[ends], -1, 0)
    shares = begin / (begin - end)
    corners = points[ends[..., 0]] + shares[..., None] * (
        points[ends[..., 1]] - points[ends[..., 0]]
    )
    edges = corners[:, 1:] - corners[:, :1]
    areas = np.linalg.norm(np.cross(edges[:, 0], edges[:, 1]), axis=-1)
    # Where the plane passes through points, triangles shrink to lines, which would be drawn as streaks.
    kept = areas > _LEAST_AREA * areas.max(initial=0.0)
    return MeshPlane(axis, offset, corners[kept], ends[kept], shares[kept], cells[kept])


def _tetrahedra(
    connectivity: NDArray[np.int64], cells: NDArray[np.int64], cell_type: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Tetrahedra (n, 4) that cells are divided into, and the cell (n,) of each."""
    if cell_type == TETRAHEDRON:
        return connectivity, cells
    places = _CORNERS.get(cell_type)
    if places is None:
        places = vtk_order(round(connectivity.shape[1] ** (1 / 3)) - 1)
    side = 1 + int(places.max())
    node = np.empty((side,) * 3, np.int64)
    node[tuple(places.T)] = np.arange(len(places))
    pieces = []
    for start in np.ndindex(*(side - 1,) * 3):
        for path in _PATHS:
            steps = np.zeros((4, 3), np.int64)
            for number, axis in enumerate(path):
                steps[number + 1 :, axis] = 1
            pieces.append(node[tuple((start + steps).T)])
    table = np.array(pieces)
    return connectivity[:, table].reshape(-1, 4), np.repeat(cells, len(table))


def _crossed_edges(
    tetrahedra: NDArray[np.int64], above: NDArray[np.bool_], cells: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Edges (triangles, 3, 2) below which ends lie first, and the cell (triangles,) of each triangle."""
    count = above.sum(axis=1)
    sorted_nodes = np.take_along_axis(tetrahedra, np.argsort(above, axis=1, kind="stable"), axis=1)
    # By number of nodes above: corners of triangles as pairs of one below and one above.
    triangles = {
        1: [[(0, 3), (1, 3), (2, 3)]],
        2: [[(0, 2), (0, 3), (1, 3)], [(0, 2), (1, 3), (1, 2)]],
        3: [[(0, 1), (0, 2), (0, 3)]],
    }
    ends = [np.empty((0, 3, 2), np.int64)]
    owners = [np.empty(0, np.int64)]
    for number, shapes in triangles.items():
        chosen = count == number
        for shape in shapes:
            ends.append(sorted_nodes[chosen][:, np.array(shape)])
            owners.append(cells[chosen])
    return np.concatenate(ends), np.concatenate(owners)
