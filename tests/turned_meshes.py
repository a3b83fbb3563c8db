"""Meshes whose elements are turned at random, so that faces meet in every orientation."""

from __future__ import annotations

import itertools

import numpy as np

from haloscope.exchange.ranks.world import World
from haloscope.mesh.hexes.hexes import FACE_CORNERS, HexMesh, face_nodes, face_permutation
from haloscope.mesh.hexes.mesh_parts import ElementRows, rows_of, unconnected
from haloscope.mesh.hexes.shared_meshes import connect
from haloscope.numerics.elements.element_maps import nodes

# A turn: which old direction each new one is, and whether it is reversed. All 24 without mirrors.
TURNS = [
    (axes, flips)
    for axes in itertools.permutations(range(3))
    for flips in itertools.product((False, True), repeat=3)
    if np.linalg.det(np.eye(3)[list(axes)]) * (-1) ** sum(flips) > 0
]


def connected(
    coordinates: np.ndarray,
    vertices: np.ndarray,
    *,
    boundaries: np.ndarray | None = None,
    boundary_names: tuple[str, ...] = (),
    regions: np.ndarray | None = None,
    region_names: tuple[str, ...] = ("volume",),
) -> HexMesh:
    """A whole mesh of elements whose faces are matched on one rank."""
    count = len(vertices)
    regions = np.zeros(count, np.int32) if regions is None else regions
    mesh = unconnected(coordinates, vertices, regions, region_names, boundary_names, boundaries)
    return connect(World(), mesh, np.arange(count), count, int(vertices.max()) + 1).whole_mesh()


def whole_rows(mesh: HexMesh) -> ElementRows:
    """All elements of a mesh, as one rank has them."""
    return rows_of(mesh, np.arange(mesh.count))


def turn(values: np.ndarray, axes: tuple[int, ...], flips: tuple[bool, ...]) -> np.ndarray:
    """Values [element, k, j, i, ...] in an element's new directions."""
    moved = np.moveaxis(values, [3 - axis for axis in axes], [3, 2, 1])
    for axis, flip in enumerate(flips):
        if flip:
            moved = np.flip(moved, 3 - axis)
    return moved


def turned(mesh: HexMesh, seed: int = 0) -> HexMesh:
    """The same mesh with each element turned at random; shape by its geometry nodes."""
    choice = np.random.default_rng(seed).integers(len(TURNS), size=mesh.count)
    coordinates, vertices = mesh.coordinates.copy(), mesh.vertices.copy()
    for number, (axes, flips) in enumerate(TURNS):
        chosen = choice == number
        coordinates[chosen] = turn(mesh.coordinates[chosen], axes, flips)
        corners = mesh.vertices[chosen].reshape(-1, 2, 2, 2)
        vertices[chosen] = turn(corners, axes, flips).reshape(-1, 8)
    # Names of faces go by their corners, which keep their numbers.
    result = connected(coordinates, vertices, regions=mesh.regions, region_names=mesh.region_names)
    names = named_like(mesh, result)
    return connected(
        coordinates,
        vertices,
        boundaries=names,
        boundary_names=mesh.boundary_names,
        regions=mesh.regions,
        region_names=mesh.region_names,
    )


def named_like(mesh: HexMesh, other: HexMesh) -> np.ndarray:
    """Boundary numbers of another mesh with the same elements and vertices, face by face."""
    corners = np.sort(mesh.vertices[:, FACE_CORNERS], axis=2)
    wanted = np.sort(other.vertices[:, FACE_CORNERS], axis=2)
    same = (wanted[:, :, None] == corners[:, None]).all(axis=3)
    return np.take_along_axis(mesh.boundaries, same.argmax(axis=2), axis=1)


def face_gap(mesh: HexMesh, order: int, period: np.ndarray | None = None) -> float:
    """Largest distance of two nodes that meet, after whole periods are taken off."""
    flat = nodes(mesh, order).reshape(mesh.count, -1, 3)
    table = face_nodes(order)
    worst = 0.0
    for element, face in np.argwhere(mesh.neighbours >= 0):
        partner, behind = mesh.neighbours[element, face], mesh.neighbour_faces[element, face]
        permutation = face_permutation(order, int(mesh.orientations[element, face]))
        gap = flat[element, table[face]] - flat[partner, table[behind]][permutation]
        if period is not None:
            gap = gap - period * np.rint(gap / period)
        worst = max(worst, float(np.abs(gap).max()))
    return worst
