"""Claims about sections of meshes: they cover the plane once, and linear fields are exact on them."""

from __future__ import annotations

import numpy as np
import pytest

from haloscope.io.vtk_arrays import CellArrays
from haloscope.mesh.hexes.hexes import vtk_order
from haloscope.run.finished import middle_plane

_VOXEL = np.array([(i, j, k) for k in (0, 1) for j in (0, 1) for i in (0, 1)])
_UPPER = np.array([2.0, 1.5, 1.0])


def _bricks(count: int, places: np.ndarray, cell_type: int) -> CellArrays:
    """A box of count^3 bricks that share no points; `places`: nodes of a brick, as of VTK."""
    starts = np.array(list(np.ndindex(count, count, count)))
    nodes = (starts[:, None] + places / places.max()) / count * _UPPER
    connectivity = np.arange(len(starts) * len(places)).reshape(len(starts), -1)
    return CellArrays(nodes.reshape(-1, 3), connectivity, cell_type)


def _tetrahedra(count: int) -> CellArrays:
    """Five tetrahedra a brick; faces of neighbours do not match, as points are not shared."""
    bricks = _bricks(count, _VOXEL, 11)
    table = np.array([(0, 1, 2, 4), (3, 1, 2, 7), (5, 1, 4, 7), (6, 2, 4, 7), (1, 2, 4, 7)])
    return CellArrays(bricks.points, bricks.connectivity[:, table].reshape(-1, 4), 10)


_MESHES = {
    "tetrahedra": lambda count: _tetrahedra(count),
    "voxels": lambda count: _bricks(count, _VOXEL, 11),
    "hexahedra": lambda count: _bricks(count, vtk_order(1), 12),
    "Lagrange cells of order 3": lambda count: _bricks(count, vtk_order(3), 72),
}


@pytest.mark.parametrize("kind", _MESHES)
# The middle plane cuts cells, or lies on faces of cells.
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_section_covers_the_plane_once_and_linear_fields_are_exact(kind: str, count: int) -> None:
    mesh = _MESHES[kind](count)
    plane = middle_plane(mesh)
    assert (plane.axis, plane.offset) == (2, 0.5)
    edges = plane.corners[:, 1:] - plane.corners[:, :1]
    areas = np.linalg.norm(np.cross(edges[:, 0], edges[:, 1]), axis=-1) / 2
    assert areas.sum() == pytest.approx(2.0 * 1.5, rel=1e-9)
    assert np.allclose(plane.corners[..., 2], 0.5)
    slopes = np.array([3.0, -2.0, 5.0])
    assert np.allclose(plane.values(mesh.points @ slopes), plane.corners @ slopes)
    # Each triangle lies in the cell that it is said to cut.
    corners = mesh.points[mesh.connectivity[plane.cells]]
    middles = plane.corners.mean(axis=1)
    assert (middles >= corners.min(axis=1) - 1e-9).all()
    assert (middles <= corners.max(axis=1) + 1e-9).all()


def test_the_plane_lies_across_the_shortest_side() -> None:
    mesh = _tetrahedra(2)
    turned = CellArrays(mesh.points[:, [2, 0, 1]], mesh.connectivity, mesh.cell_type)
    assert middle_plane(turned).axis == 0
    cube = CellArrays(mesh.points / _UPPER, mesh.connectivity, mesh.cell_type)
    assert middle_plane(cube).axis == 2
