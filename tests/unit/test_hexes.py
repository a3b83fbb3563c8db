"""Claims about faces of hexahedra: who meets whom, in which orientation, and what is refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from refusals import refused
from turned_meshes import TURNS, connected, face_gap, turn, turned, whole_rows

from haloscope.exchange.ranks.world import World
from haloscope.mesh.hexes.hex_generators import SIDE_NAMES, box, cylinder, sphere
from haloscope.mesh.hexes.hexes import (
    FACE_CORNERS,
    HexMesh,
    face_nodes,
    face_permutation,
    orientation_of,
)
from haloscope.mesh.hexes.shared_meshes import check_boundaries
from haloscope.mesh.hexes.shared_periodic import join_periodic


def _joined(mesh, first, second, translation=None, **options) -> HexMesh:
    pair = (first, second, translation)
    return join_periodic(World(), whole_rows(mesh), pair, **options).whole_mesh()


def _check_boundaries(mesh: HexMesh) -> None:
    check_boundaries(World(), whole_rows(mesh))


def _require_mutual(mesh: HexMesh) -> None:
    element, face = np.nonzero(mesh.neighbours >= 0)
    partner, behind = mesh.neighbours[element, face], mesh.neighbour_faces[element, face]
    assert (mesh.neighbours[partner, behind] == element).all()
    assert (mesh.neighbour_faces[partner, behind] == face).all()
    assert (mesh.boundaries[element, face] == -1).all()
    there = mesh.orientations[element, face]
    back = mesh.orientations[partner, behind]
    for one, other in set(zip(there.tolist(), back.tolist(), strict=True)):
        identity = face_permutation(3, one)[face_permutation(3, other)]
        assert (identity == np.arange(16)).all()


def test_corners_faces_and_nodes_follow_the_documented_numbers():
    mesh = box((1, 1, 1), upper=(1.0, 2.0, 4.0))
    corners = mesh.corners[0]
    for number, corner in enumerate(corners):
        assert tuple(corner) == ((number & 1), 2 * (number >> 1 & 1), 4 * (number >> 2))
    for face in range(6):
        axis, side = divmod(face, 2)
        assert (corners[FACE_CORNERS[face], axis] == side * (1, 2, 4)[axis]).all()
        a, b = [other for other in range(3) if other != axis]
        assert (corners[FACE_CORNERS[face], a] > 0).tolist() == [False, True, False, True]
        assert (corners[FACE_CORNERS[face], b] > 0).tolist() == [False, False, True, True]
    k, j, i = np.unravel_index(face_nodes(3), (4, 4, 4))
    for face in range(6):
        axis, side = divmod(face, 2)
        assert ((i, j, k)[axis][face] == 3 * side).all()
        a, b = [place[face] for other, place in enumerate((i, j, k)) if other != axis]
        assert (a == np.tile(np.arange(4), 4)).all()
        assert (b == np.repeat(np.arange(4), 4)).all()
    assert (mesh.boundaries[0] == np.arange(6)).all()


@pytest.mark.parametrize("orientation", range(8))
def test_an_orientation_is_found_from_corners_and_permutes_nodes_alike(orientation):
    partner = np.array([[10, 11, 12, 13]])
    own = partner[:, face_permutation(1, orientation)]
    codes, fits = orientation_of(own, partner)
    assert fits.all()
    assert codes[0] == orientation
    assert sorted(face_permutation(5, orientation)) == list(range(36))


def test_orientations_are_those_of_the_documentation():
    n = 2
    for orientation in range(8):
        permutation = face_permutation(n, orientation)
        for b in range(n + 1):
            for a in range(n + 1):
                p, q = (b, a) if orientation & 4 else (a, b)
                p = n - p if orientation & 1 else p
                q = n - q if orientation & 2 else q
                assert permutation[b * (n + 1) + a] == q * (n + 1) + p


@pytest.mark.parametrize("first", range(24))
def test_two_elements_meet_however_they_are_turned(first):
    plain = box((2, 1, 1), warp=0.1)
    for second in range(24):
        coordinates, vertices = plain.coordinates.copy(), plain.vertices.copy()
        for element, number in enumerate((first, second)):
            axes, flips = TURNS[number]
            coordinates[element] = turn(plain.coordinates[element, None], axes, flips)[0]
            corners = plain.vertices[element].reshape(1, 2, 2, 2)
            vertices[element] = turn(corners, axes, flips).reshape(8)
        mesh = connected(coordinates, vertices)
        assert (mesh.neighbours >= 0).sum() == 2
        assert face_gap(mesh, 3) < 1e-14


@pytest.mark.parametrize(
    "plain", [box((3, 4, 3), warp=0.1), cylinder(1.0, 0.0, 2.0, layers=2), sphere(2.0)]
)
def test_face_nodes_agree_in_all_eight_orientations(plain):
    assert face_gap(plain, 5) < 4e-15
    mesh = turned(plain)
    assert set(mesh.orientations[mesh.neighbours >= 0]) == set(range(8))
    _require_mutual(mesh)
    assert face_gap(mesh, 5) < 1e-14
    assert mesh.boundary_names == plain.boundary_names
    assert ((mesh.neighbours >= 0).sum(axis=1) == (plain.neighbours >= 0).sum(axis=1)).all()


def test_a_wrong_orientation_is_seen_by_the_check_that_these_tests_use():
    mesh = turned(box((2, 2, 2)))
    wrong = dataclasses.replace(mesh, orientations=mesh.orientations ^ 1)
    assert face_gap(wrong, 5) > 0.1


@pytest.mark.parametrize("elements", [(1, 1, 1), (2, 1, 1), (2, 2, 2), (1, 3, 2)])
@pytest.mark.parametrize("warp", [0.0, 0.1])
def test_periodic_boxes_of_one_or_two_elements_close_on_themselves(elements, warp):
    mesh = box(elements, (0.0, -1.0, 2.0), (1.0, 1.0, 5.0), periodic=(True, True, True), warp=warp)
    assert (mesh.neighbours >= 0).all()
    assert mesh.boundary_names == ()
    _require_mutual(mesh)
    assert face_gap(mesh, 4, np.array([1.0, 2.0, 3.0])) < 1e-14
    if elements == (1, 1, 1):
        assert mesh.neighbour_faces[0].tolist() == [1, 0, 3, 2, 5, 4]


def test_periodic_faces_meet_in_all_orientations_of_turned_elements():
    mesh = turned(box((4, 4, 4)))
    for axis, name in enumerate("xyz"):
        shift = tuple(float(axis == other) for other in range(3))
        mesh = _joined(mesh, f"{name}-", f"{name}+", None if axis else shift)
    assert (mesh.neighbours >= 0).all()
    assert set(mesh.orientations.ravel()) == set(range(8))
    _require_mutual(mesh)
    assert face_gap(mesh, 3, np.ones(3)) < 1e-14


def test_periodic_faces_are_found_within_the_tolerance_and_not_beyond():
    mesh = box((3, 3, 3))
    moved = mesh.coordinates.copy()
    # Every vertex of x+ moves its own way, by far less than a face's size.
    far = moved[..., 0] == 1
    moved[far] += 1e-7 * np.sin(10 * moved[far] + 1)
    mesh = dataclasses.replace(mesh, coordinates=moved)
    joined = _joined(mesh, "x-", "x+", (1.0, 0.0, 0.0))
    assert joined.boundary_names == ("y-", "y+", "z-", "z+")
    with refused(location="periodic pair 'x-', 'x\\+'", problem="^. of 9 faces .* no partner"):
        _joined(mesh, "x-", "x+", (1.0, 0.0, 0.0), tolerance=1e-8)


def test_partners_almost_as_far_as_the_tolerance_are_all_found():
    mesh = box((1, 16, 16), grading=(1.0, 1.7, 1.3))
    moved = mesh.coordinates.copy()
    far = moved[..., 0] == 1
    moved[far] += 2e-4 * np.sin(300 * moved[far] + 1)
    joined = _joined(
        dataclasses.replace(mesh, coordinates=moved), "x-", "x+", (1.0, 0.0, 0.0), tolerance=1e-2
    )
    assert (joined.neighbours[:, 0] == np.arange(256)).all()


def test_a_periodic_face_without_a_partner_is_named_with_its_place():
    mesh = box((2, 2, 2))
    with refused(
        location=r"'x-', 'x\+'$",
        problem=r"^4 of 4 faces .* no partner.*element 0 at \(0, 0.25, 0.25\).* "
        r"no face is at \(0.9, 0.25, 0.25\)",
        remedy="translated copy",
    ):
        _joined(mesh, "x-", "x+", (0.9, 0.0, 0.0))


def test_periodic_surfaces_with_other_faces_are_refused():
    cut = cylinder(1.0, 0.0, 1.0)
    names = cut.boundaries.copy()
    # One face of the top is named like the wall.
    element = np.flatnonzero(cut.boundaries[:, 5] >= 0)[0]
    names[element, 5] = cut.boundary_names.index("wall")
    less = dataclasses.replace(cut, boundaries=names)
    with refused(problem="faces? of the first surface .* no partner.* element 0 at"):
        _joined(less, "bottom", "top", (0.0, 0.0, 1.0))
    with refused(problem="of the second surface have no partners"):
        _joined(less, "top", "bottom", (0.0, 0.0, -1.0))


def test_periodic_surfaces_of_other_shape_are_refused():
    mesh = box((2, 2, 2), warp=0.1)
    flat = dataclasses.replace(box((2, 2, 2)), coordinates=mesh.coordinates.copy(), order=2)
    bent = flat.coordinates
    element = np.flatnonzero(flat.boundaries[:, 1] >= 0)[0]
    bent[element, 1, 1, -1, 0] += 0.01
    with refused(
        problem=f"^1 face of another shape.*and element {element}$", allowed="translated copies"
    ):
        _joined(flat, "x-", "x+", (1.0, 0.0, 0.0))


def test_periodic_surfaces_on_the_same_side_are_refused():
    mesh = box((1, 2, 1))
    names = mesh.boundaries.copy()
    names[0, 0], names[1, 0] = 0, 1
    both = dataclasses.replace(mesh, boundaries=names)
    names[:, 1] = 2
    with refused(problem="bound the mesh on the same side", remedy="opposite surfaces"):
        _joined(both, "x-", "x+", (0.0, 0.5, 0.0))


def test_periodic_names_must_be_two_that_exist():
    mesh = box((2, 2, 2))
    with refused(problem="no boundary 'left'", allowed=r"^x-, x\+, "):
        _joined(mesh, "left", "x+")
    with refused(location="'x-', 'x-'$", problem="the same", allowed="two boundaries"):
        _joined(mesh, "x-", "x-")


def test_an_edge_of_the_mesh_without_a_name_is_counted_and_placed():
    mesh = box((2, 2, 2))
    _check_boundaries(mesh)
    names = mesh.boundaries.copy()
    names[names == SIDE_NAMES.index("y+")] = -1
    with refused(
        problem=r"^4 faces at the edge.*\(0.25, 1, 0.25\) on element 2$", remedy="named .* group"
    ):
        _check_boundaries(dataclasses.replace(mesh, boundaries=names))
    # Periodic faces need no name.
    _check_boundaries(box((1, 1, 1), periodic=(True, True, True)))


def test_a_name_inside_the_mesh_becomes_a_surface_seen_from_both_sides():
    plain = box((2, 1, 1))
    names = plain.boundaries.copy()
    names[0, 1] = names[1, 0] = 6
    mesh = connected(
        plain.coordinates,
        plain.vertices,
        boundaries=names,
        boundary_names=(*SIDE_NAMES, "sheet"),
    )
    assert mesh.boundary_names == SIDE_NAMES
    assert mesh.surfaces["sheet"].tolist() == [[0, 1], [1, 0]]
    assert (mesh.boundaries == plain.boundaries).all()


def test_names_that_no_outer_face_bears_are_left_out():
    plain = box((1, 1, 1))
    mesh = connected(
        plain.coordinates,
        plain.vertices,
        boundaries=np.full((1, 6), 2, np.int32),
        boundary_names=("a", "b", "c"),
    )
    assert mesh.boundary_names == ("c",)
    assert (mesh.boundaries == 0).all()


def test_a_face_of_three_elements_is_refused_with_their_places():
    plain = box((3, 1, 1))
    vertices = plain.vertices.copy()
    shared = vertices[0, FACE_CORNERS[1]]
    vertices[2, FACE_CORNERS[0]] = shared
    vertices[2, FACE_CORNERS[1]] = [90, 91, 92, 93]
    with refused(
        location="^element 0 at .*element 2 at",
        problem="^3 elements share one face",
        allowed="at most 2",
    ):
        connected(plain.coordinates, vertices)


def test_a_twisted_face_is_refused_with_both_elements():
    plain = box((2, 1, 1))
    vertices = plain.vertices.copy()
    vertices[1, [2, 6]] = vertices[1, [6, 2]]
    with refused(
        location="^element 0 at .* and element 1 at", problem="is twisted", remedy="node order"
    ):
        connected(plain.coordinates, vertices)


def test_elements_on_the_same_side_of_a_face_are_refused():
    plain = box((2, 1, 1))
    vertices = plain.vertices.copy()
    # Mirrored corners: inside out.
    vertices[1] = vertices[1].reshape(2, 2, 2)[:, :, ::-1].ravel()
    with refused(location="^element 0 at .* and element 1 at", problem="inside out"):
        connected(plain.coordinates, vertices)
    twice = np.repeat(plain.vertices[:1], 2, axis=0)
    with refused(problem=r"they overlap.*\(6 such pairs\)$"):
        connected(plain.coordinates, twice)


def test_a_collapsed_element_is_refused():
    plain = box((2, 1, 1))
    vertices = plain.vertices.copy()
    vertices[1, 3] = vertices[1, 1]
    with refused(
        location=r"^element 1 at \(0.75, 0.5, 0.5\)$",
        problem="one vertex is two corners",
        allowed="8 distinct corners",
    ):
        connected(plain.coordinates, vertices)


def test_many_elements_are_listed_short():
    plain = box((3, 3, 1))
    vertices = plain.vertices.copy()
    vertices[:, 7] = vertices[:, 6]
    with refused(location="and 6 more$", problem="one vertex is two corners"):
        connected(plain.coordinates, vertices)
