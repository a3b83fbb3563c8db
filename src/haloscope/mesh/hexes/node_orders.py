"""Where file formats put the nodes of a hexahedron, and their way into the order [k, j, i].

A table lists the place (i, j, k), from 0 to the order, of each node of a cell in the file.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from haloscope.mesh.hexes.hexes import Floats, Integers

_CORNERS = [(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (1, 1, 1), (0, 1, 1)]
# Corners at the ends of Gmsh's edges and around its faces, in its order.
_GMSH_EDGES = [
    *((0, 1), (0, 3), (0, 4), (1, 2), (1, 5), (2, 3)),
    *((2, 6), (3, 7), (4, 5), (4, 7), (5, 6), (6, 7)),
]
_GMSH_FACES = [(0, 3, 2, 1), (0, 1, 5, 4), (0, 4, 7, 3), (1, 2, 6, 5), (2, 3, 7, 6), (4, 5, 6, 7)]
_SAMPLE = 1000


def _frozen(places: list[tuple[int, int, int]]) -> Integers:
    table = np.array(places, np.int64)
    table.setflags(write=False)
    return table


@cache
def vtk_order(order: int, old: bool = False) -> Integers:
    """Nodes of VTK's Lagrange hexahedron: corners, edges, faces, inside; (nodes, 3)."""
    inner = range(1, order)
    places = [(i * order, j * order, k * order) for i, j, k in _CORNERS]
    for k in (0, order):
        places += [(i, 0, k) for i in inner]
        places += [(order, j, k) for j in inner]
        places += [(i, order, k) for i in inner]
        places += [(0, j, k) for j in inner]
    upright = [(0, 0), (order, 0), (order, order), (0, order)]
    if old:
        upright[2:] = upright[:1:-1]
    places += [(i, j, k) for i, j in upright for k in inner]
    places += [(i, j, k) for i in (0, order) for k in inner for j in inner]
    places += [(i, j, k) for j in (0, order) for k in inner for i in inner]
    places += [(i, j, k) for k in (0, order) for j in inner for i in inner]
    places += [(i, j, k) for k in inner for j in inner for i in inner]
    return _frozen(places)


def _gmsh_quad(order: int) -> list[tuple[int, int]]:
    """Places in a square: corners, edges round it, then the same for the square inside."""
    if order < 0:
        return []
    if order == 0:
        return [(0, 0)]
    inner = range(1, order)
    places = [(0, 0), (order, 0), (order, order), (0, order)]
    places += [(n, 0) for n in inner] + [(order, n) for n in inner]
    places += [(order - n, order) for n in inner] + [(0, order - n) for n in inner]
    return places + [(a + 1, b + 1) for a, b in _gmsh_quad(order - 2)]


@cache
def gmsh_order(order: int) -> Integers:
    """Nodes of Gmsh's complete hexahedron: corners, edges, faces, then the cube inside."""
    if order == 0:
        return _frozen([(0, 0, 0)])
    corners = np.array(_CORNERS)
    places = [order * corners]
    for begin, end in _GMSH_EDGES:
        step = corners[end] - corners[begin]
        places += [order * corners[begin] + n * step for n in range(1, order)]
    for a, b, _, d in _GMSH_FACES:
        along, up = corners[b] - corners[a], corners[d] - corners[a]
        for p, q in _gmsh_quad(order - 2):
            places.append(order * corners[a] + (p + 1) * along + (q + 1) * up)
    if order > 1:
        places.append(gmsh_order(order - 2) + 1)
    return _frozen([tuple(place) for place in np.vstack(places).tolist()])


def _candidates(cell_type: str, count: int) -> list[Integers]:
    """Tables that a cell of this type and number of nodes may follow."""
    if count in (20, 24):
        return [vtk_order(2)[:count]]
    order = round(count ** (1 / 3)) - 1
    if order < 1 or (order + 1) ** 3 != count:
        return []
    if cell_type == "VTK_LAGRANGE_HEXAHEDRON":
        return [vtk_order(order), vtk_order(order, old=True)]
    if order <= 2:
        return [vtk_order(order)]
    return [gmsh_order(order), vtk_order(order), vtk_order(order, old=True)]


def _distance_from_straight(points: Floats, table: Integers) -> float:
    """How far nodes lie from where the corners alone would put them, in the mean square."""
    order = table.max()
    xi = table / order
    corners = np.array(_CORNERS)
    weights = np.where(corners[None], xi[:, None], 1 - xi[:, None]).prod(axis=2)
    positions = (table[:, None] == order * corners[None]).all(axis=2).argmax(axis=0)
    straight = np.einsum("nc,ecx->enx", weights, points[:, positions])
    return float(((points - straight) ** 2).sum())


def _complete(values: Floats, known_faces: int) -> None:
    """Fill in the middles of faces from `known_faces` on, and of the cell, of 27 nodes [k, j, i]."""
    # The middle of a face is that of the serendipity square: half the sum of its edges less a
    # quarter of its corners. The cell's is half its faces less a quarter of its edges plus an
    # eighth of its corners, which is what the 20- and 24-node shape functions give.
    for face in range(known_faces, 6):
        axis, side = divmod(face, 2)
        # A view of the face: what is written to it is written to the values.
        square = np.moveaxis(values, 3 - axis, 1)[:, 2 * side]
        edges = square[:, 0, 1] + square[:, 2, 1] + square[:, 1, 0] + square[:, 1, 2]
        corners = square[:, 0, 0] + square[:, 2, 0] + square[:, 0, 2] + square[:, 2, 2]
        square[:, 1, 1] = edges / 2 - corners / 4
    blend = np.array([0.5, -1.0, 0.5])
    weights = np.einsum("k,j,i->kji", blend, blend, blend)
    weights[1, 1, 1] = 0
    values[:, 1, 1, 1] = 0
    values[:, 1, 1, 1] = np.einsum("kji,ekjix->ex", weights, values)


def node_table(points: Floats, cells: Integers, cell_type: str) -> Integers | None:
    """Where nodes of cells stand, (nodes, 3).

    Where a type is known with several node orders, the one that bends the elements least is taken:
    a wrong one tears them.
    """
    # `points`: (points, 3).
    # `cells`: (elements, nodes): numbers of points in the file's order.
    tables = _candidates(cell_type, cells.shape[1])
    if len(tables) < 2:
        return tables[0] if tables else None
    sample = points[cells[:: max(1, len(cells) // _SAMPLE)]]
    return min(tables, key=lambda order: _distance_from_straight(sample, order))


def in_tensor(points: Floats, cells: Integers, table: Integers) -> Floats:
    """Geometry nodes of cells in the order [element, k, j, i, xyz]."""
    size = int(table.max()) + 1
    values = np.full((len(cells), size, size, size, 3), np.nan)
    i, j, k = table.T
    values[:, k, j, i] = points[cells]
    if cells.shape[1] < size**3:
        # VTK lists the middles of faces in the order of our face numbers.
        _complete(values, cells.shape[1] - 20)
    return values
