"""Meshes of curved hexahedra: numbering, neighbours behind faces, and the node orders of file formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

# Conventions, used wherever hexahedra appear:
#
# - An element is the image of the reference cube [-1, 1]^3 with directions i, j, k. Arrays of its
#   nodes are indexed [element, k, j, i]: i runs fastest in memory.
# - Corner ``c = i + 2 j + 4 k`` with i, j, k in (0, 1): the first and last node of each direction.
# - Face ``2 axis + side``: 0 is i = first, 1 is i = last, 2 and 3 are j, 4 and 5 are k.
# - A node of a face has two places (a, b) along the other two directions in the order i, j, k; a
#   runs fastest, so a face's values are indexed [b, a].
# - An orientation says where the node (a, b) of a face lies in its partner's own (a', b'). With
#   bit 4 set a and b change places first; then bit 1 reverses a', bit 2 reverses b'.
#
# Faces are matched by vertex numbers alone. Coordinates say where things are, in messages.

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

FACES = 6
FACE_CORNERS = np.array(
    [[0, 2, 4, 6], [1, 3, 5, 7], [0, 1, 4, 5], [2, 3, 6, 7], [0, 1, 2, 3], [4, 5, 6, 7]]
)
"""Corners of each face in the order (a, b) = 00, 10, 01, 11."""

TRANSPOSED, REVERSED_A, REVERSED_B = 4, 1, 2
# Whether a, b and the outward normal of a face turn like the element's own directions (+1).
_FACE_HANDS = np.array([-1, 1, 1, -1, -1, 1])
# -1 where an orientation mirrors: an odd number of its bits is set.
_ORIENTATION_HANDS = np.array([1, -1, -1, 1, -1, 1, 1, -1])
_SHOWN = 3


# Elements at once: a map takes several times the memory of its result.
_AT_ONCE = 1 << 10

# A map of a block takes parameters (..., 3) in the cube [-1, 1]^3 to places (..., 3).
BlockMap = Callable[[Floats], Floats]


@dataclass(frozen=True, eq=False)
class BlockMapping:
    """Shape of elements cut out of blocks."""

    blocks: Integers  # (elements,): the block of each element
    # (elements, 3): its box in the block's parameter cube.
    lower: Floats
    upper: Floats
    maps: tuple[BlockMap, ...]  # One for each block

    def __call__(self, elements: Integers, reference: Floats) -> Floats:
        """Places (n, points, 3) of reference points (points, 3) in elements (n,)."""
        blocks = self.blocks[elements]
        weight = (1 + reference) / 2
        result = np.empty((len(elements), len(reference), 3))
        for block in np.unique(blocks):
            all_of_block = np.flatnonzero(blocks == block)
            for begin in range(0, len(all_of_block), _AT_ONCE):
                points = all_of_block[begin : begin + _AT_ONCE]
                lower, upper = (ends[elements[points], None] for ends in (self.lower, self.upper))
                # Not lower + w (upper - lower): both ends must be met to the last bit.
                result[points] = self.maps[block](lower * (1 - weight) + upper * weight)
        return result


@dataclass(frozen=True, eq=False)
class HexMesh:
    """Hexahedra, their shape, and what lies behind their faces. See the conventions above."""

    order: int  # Geometric order g; 1 is trilinear
    # float64 (elements, g + 1, g + 1, g + 1, 3), indexed [element, k, j, i, xyz], at nodes of equal
    # distance in reference space.
    coordinates: Floats
    # int64 (elements, 8): vertex numbers of the corners. Partners across a periodic pair have
    # vertices of their own.
    vertices: Integers
    neighbours: Integers  # int64 (elements, 6): element behind each face, or -1
    # int8 (elements, 6): which of that element's faces it is, or -1.
    neighbour_faces: NDArray[np.int8]
    # int8 (elements, 6): how the partner's nodes run against this face's; 0 where none is.
    orientations: NDArray[np.int8]
    # int32 (elements, 6): index into `boundary_names`; -1 inside, and where no name is given.
    boundaries: NDArray[np.int32]
    boundary_names: tuple[str, ...]  # Names of the outer surfaces
    regions: NDArray[np.int32]  # int32 (elements,): index into `region_names`
    region_names: tuple[str, ...]  # Names of the volumes
    # Named surfaces inside the mesh: their faces as int64 (n, 2), element and face, each seen from
    # both sides.
    surfaces: Mapping[str, Integers] = field(default_factory=dict)
    # Exact shape where it is known (generated meshes); None: the polynomial of `coordinates`.
    mapping: BlockMapping | None = None
    notes: tuple[str, ...] = ()  # Assumptions and repairs of the reader, a line each, for the user

    @property
    def count(self) -> int:
        """Number of elements."""
        return len(self.vertices)

    @property
    def corners(self) -> Floats:
        """Coordinates of the corners, (elements, 8, 3)."""
        return corner_coordinates(self.coordinates)

    @property
    def centres(self) -> Floats:
        """Mean of the corners of each element, (elements, 3)."""
        return np.asarray(self.corners.mean(axis=1))

    def face_centres(self, faces: Integers) -> Floats:
        """Mean of the corners of faces (n, 2), each an element and a face number: (n, 3)."""
        element, face = faces.T
        return np.asarray(self.corners[element[:, None], FACE_CORNERS[face]].mean(axis=1))

    def outer_faces(self, name: str | None) -> Integers:
        """Faces (n, 2) of an outer surface; with None those at the edge that have no name."""
        number = -1 if name is None else self.boundary_names.index(name)
        return np.argwhere((self.boundaries == number) & (self.neighbours < 0))


def corner_coordinates(coordinates: Floats) -> Floats:
    """Corners (elements, 8, 3) out of geometry nodes [element, k, j, i, xyz]."""
    last = coordinates.shape[1] - 1
    return coordinates[:, ::last, ::last, ::last].reshape(-1, 8, 3)


def point_text(point: Floats) -> str:
    """A place as it stands in messages."""
    return "(" + ", ".join(f"{value:.6g}" for value in point) + ")"


def elements_text(numbers: Integers, centres: Floats, count: int | None = None) -> str:
    """The first few elements of `count` and where they are; `numbers` (n,) and `centres` (n, 3)."""
    shown = [
        f"element {number} at {point_text(centre)}"
        for number, centre in zip(numbers[:_SHOWN].tolist(), centres, strict=False)
    ]
    more = (len(numbers) if count is None else count) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


@cache
def face_permutation(order: int, orientation: int) -> Integers:
    """Order in which a partner's face nodes are to be read."""
    b, a = np.indices((order + 1, order + 1))
    if orientation & TRANSPOSED:
        a, b = b, a
    if orientation & REVERSED_A:
        a = order - a
    if orientation & REVERSED_B:
        b = order - b
    result = (b * (order + 1) + a).ravel()
    result.setflags(write=False)
    return result


@cache
def face_nodes(order: int) -> Integers:
    """Nodes of an element that lie on each face, (6, (N + 1)^2), a fastest.

    Numbers count the (N + 1)^3 nodes with i fastest.
    """
    nodes = np.arange((order + 1) ** 3).reshape(order + 1, order + 1, order + 1)
    sides = (0, order)
    faces = [
        *(nodes[:, :, side] for side in sides),
        *(nodes[:, side, :] for side in sides),
        *(nodes[side, :, :] for side in sides),
    ]
    result = np.stack([face.ravel() for face in faces])
    result.setflags(write=False)
    return result


def orientation_of(own: Integers, partner: Integers) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
    """Orientation of faces from the numbers of their corners.

    `own`, `partner`: (n, 4): numbers of the corners in the order of `FACE_CORNERS`; equal numbers
    meet.
    """
    # Returns: each (n,); a face does not fit where the partner's corners follow each other
    # otherwise (it is twisted) or some are missing.
    same = own[:, :, None] == partner[:, None, :]
    place = same.argmax(axis=2)
    turn = place[:, 1:] ^ place[:, :1]
    fits = same.any(axis=2).all(axis=1) & (turn[:, 2] == 3)
    fits &= ((turn[:, 0] == 1) & (turn[:, 1] == 2)) | ((turn[:, 0] == 2) & (turn[:, 1] == 1))
    code = place[:, 0] + np.where(turn[:, 0] == 2, TRANSPOSED, 0)
    return code.astype(np.int8), fits


def faces_turn_away(
    own: Integers, partner: Integers, orientations: NDArray[np.int8]
) -> NDArray[np.bool_]:
    """True where two elements of the same handedness lie on opposite sides of their faces."""
    hands = _FACE_HANDS[own] * _FACE_HANDS[partner] * _ORIENTATION_HANDS[orientations]
    return np.asarray(hands == -1)


def face_keys(corners: Integers, vertices: int) -> tuple[Integers, Integers]:
    """Two numbers that faces with the same corners (n, 4) share, whatever their order.

    Each holds two of the vertex numbers, which are below `vertices`; up to 3e9 fit.
    """
    ordered = np.sort(corners, axis=1)
    high = ordered[:, 0] * vertices + ordered[:, 1]
    return high, ordered[:, 2] * vertices + ordered[:, 3]


# A table lists the place (i, j, k), from 0 to the order, of each node of a cell in the file.

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
