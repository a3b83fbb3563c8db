"""Claims about meshes of tetrahedra: faces, names and orientation; and all that is refused."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from refusals import refused

from haloscope.mesh.tets import tets as tet_faces
from haloscope.mesh.tets.tet_generators import BOX_SIDES, tet_box
from haloscope.mesh.tets.tets import (
    FACE_NODES,
    TetMesh,
    area_vectors,
    make_tet_mesh,
    tet_centres,
    tet_volumes,
)

CORNER = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
ONE = np.array([[0, 1, 2, 3]])
# Two elements on either side of the triangle 1 2 3.
PAIR_NODES = np.vstack([CORNER, [1.0, 1, 1]])
PAIR = np.array([[0, 1, 2, 3], [4, 1, 3, 2]])


def _edge(tets: np.ndarray) -> np.ndarray:
    """Triangles that occur once, by brute force."""
    faces = [tuple(sorted(t[f])) for t in tets for f in FACE_NODES]
    counts = Counter(faces)
    return np.array([face for face in faces if counts[face] == 1])


def _all_named(nodes: np.ndarray, tets: np.ndarray, **more) -> TetMesh:
    return make_tet_mesh(nodes, tets, {"edge": _edge(tets)}, **more)


def _same(one: TetMesh, other: TetMesh) -> bool:
    tables = ("boundaries", "boundary_tets", "surfaces", "surface_tets")
    return all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for name in ("nodes", "tets", "neighbours", "zones")
    ) and all(
        list(getattr(one, name)) == list(getattr(other, name))
        and all(np.array_equal(getattr(one, name)[k], getattr(other, name)[k]) for k in getattr(one, name))
        for name in tables
    )  # fmt: skip


def test_faces_look_outwards_and_lie_opposite_their_corners():
    mesh = _all_named(CORNER, ONE)
    assert mesh.volumes == pytest.approx([1 / 6], rel=1e-15)
    for face, nodes in enumerate(FACE_NODES):
        assert face not in nodes
        normal = area_vectors(CORNER, nodes[None])[0]
        assert normal @ (CORNER[nodes].mean(axis=0) - CORNER.mean(axis=0)) > 0
    assert mesh.boundaries["edge"].tolist() == FACE_NODES.tolist()
    assert mesh.boundary_tets["edge"].tolist() == [0] * 4
    assert (mesh.neighbours == -1).all()


def test_neighbours_are_those_that_a_search_finds():
    mesh = tet_box((2, 3, 2))
    faces = {}
    for element, tet in enumerate(mesh.tets.tolist()):
        for face, nodes in enumerate(FACE_NODES):
            faces.setdefault(frozenset(tet[n] for n in nodes), []).append((element, face))
    assert max(map(len, faces.values())) == 2
    expected = np.full((mesh.count, 4), -1)
    for pair in faces.values():
        if len(pair) == 2:
            (a, f), (b, g) = pair
            expected[a, f], expected[b, g] = b, a
    assert (mesh.neighbours == expected).all()
    assert (expected < 0).sum() == sum(map(len, mesh.boundaries.values()))


def test_boundary_triangles_are_outward_faces_of_their_elements():
    mesh = tet_box((2, 1, 3), shape=lambda x: x + 0.1 * np.sin(x[:, ::-1]))
    total = np.zeros(3)
    for name, triangles in mesh.boundaries.items():
        tets = mesh.tets[mesh.boundary_tets[name]]
        for triangle, tet in zip(triangles, tets, strict=True):
            assert set(triangle) < set(tet)
        areas = area_vectors(mesh.nodes, triangles)
        away = mesh.nodes[triangles].mean(axis=1) - tet_centres(mesh.nodes, tets)
        assert (np.einsum("nx,nx->n", areas, away) > 0).all()
        total += areas.sum(axis=0)
    assert np.abs(total).max() < 1e-14


def test_large_node_numbers_are_matched_alike(monkeypatch):
    rng = np.random.default_rng(1)
    plain = tet_box((3, 2, 2))
    order = rng.permutation(len(plain.nodes))
    nodes = np.empty_like(plain.nodes)
    nodes[order] = plain.nodes
    boundaries = {name: order[faces] for name, faces in plain.boundaries.items()}
    one = make_tet_mesh(nodes, order[plain.tets], boundaries)
    monkeypatch.setattr(tet_faces, "_MOST_IN_ONE_KEY", 0)
    other = make_tet_mesh(nodes, order[plain.tets], boundaries)
    assert _same(one, other)
    assert (one.neighbours == plain.neighbours).all()


def test_named_triangles_may_have_any_order_and_unused_names_are_left_out():
    mesh = make_tet_mesh(CORNER, ONE, {"b": [[3, 2, 1]], "none": [], "a": _edge(ONE)[1:]})
    assert list(mesh.boundaries) == ["b", "a"]
    assert mesh.boundaries["b"].tolist() == [[1, 2, 3]]
    assert mesh.describe() == "1 tetrahedra, 4 nodes, boundaries b (1), a (3)"


@pytest.mark.parametrize(("zones", "first"), [([0, 1], 0), ([1, 0], 1), ([0, 0], 0)])
def test_a_name_inside_becomes_a_surface_that_looks_away_from_the_lower_zone(zones, first):
    named = {"edge": _edge(PAIR), "sheet": [[2, 3, 1]]}
    names = ("rotor", "stator")
    mesh = make_tet_mesh(PAIR_NODES, PAIR, named, np.array(zones), names)
    assert list(mesh.boundaries) == ["edge"]
    assert mesh.surface_tets["sheet"].tolist() == [first]
    normal = area_vectors(mesh.nodes, mesh.surfaces["sheet"])[0]
    assert normal @ (mesh.centres[1 - first] - mesh.centres[first]) > 0
    assert [mesh.zone_names[z] for z in mesh.zones] == [names[z] for z in zones]


def test_a_mesh_that_is_mirrored_throughout_is_turned_with_a_note():
    plain = tet_box((2, 2, 1))
    mirrored = plain.tets[:, [1, 0, 2, 3]]
    mesh = make_tet_mesh(plain.nodes, mirrored, plain.boundaries)
    assert "all 24 elements were numbered left-handed" in mesh.notes[0]
    np.testing.assert_allclose(mesh.volumes, plain.volumes, rtol=1e-14)
    assert (np.sort(mesh.tets, axis=1) == np.sort(plain.tets, axis=1)).all()
    assert plain.notes == ()


@pytest.mark.parametrize("all_others", [False, True])
def test_some_inverted_elements_are_turned_and_reported(all_others):
    plain = tet_box((2, 2, 1))
    tets = plain.tets.copy()
    wrong = np.zeros(len(tets), bool)
    wrong[[5, 7]] = True
    wrong ^= all_others
    tets[wrong] = tets[wrong][:, [1, 0, 2, 3]]
    mesh = make_tet_mesh(plain.nodes, tets, plain.boundaries)
    np.testing.assert_allclose(mesh.volumes, plain.volumes, rtol=1e-14)
    assert np.array_equal(mesh.neighbours[~wrong], plain.neighbours[~wrong])
    count, first = (22, 0) if all_others else (2, 5)
    assert f"{count} of 24 elements were numbered left-handed" in mesh.notes[0]
    assert f"(element {first} at" in mesh.notes[0]


def test_nodes_that_no_element_uses_are_dropped_with_a_note():
    nodes = np.insert(CORNER, 2, [9.0, 9, np.nan], axis=0)
    tets = np.array([[0, 1, 3, 4]])
    mesh = make_tet_mesh(nodes, tets, {"edge": _edge(tets)})
    assert mesh.nodes.tolist() == CORNER.tolist()
    assert mesh.tets.tolist() == ONE.tolist()
    assert mesh.notes == (
        "dropped 1 node that no element uses, the first is number 2 at (9, 9, nan)",
    )
    with refused(
        problem="1 of 1 named triangles are no face of an element, the first, of 'far'",
        remedy="physical groups",
    ):
        make_tet_mesh(nodes, tets, {"far": [[0, 1, 2]]})


def test_faces_without_a_name_are_counted_and_placed():
    with refused(
        problem=r"3 faces at the edge.*\(0, 0.333333, 0.333333\) on element 0$",
        remedy=r"there are: a\)",
    ):
        make_tet_mesh(CORNER, ONE, {"a": [[1, 2, 3]]})
    with refused(
        problem="4 faces at the edge of the mesh without a boundary name", remedy="there are: none"
    ):
        make_tet_mesh(CORNER, ONE, {})


def test_parts_that_do_not_hang_together_are_counted():
    box = tet_box((1, 1, 1))
    nodes = np.vstack([box.nodes, CORNER + 5])
    tets = np.vstack([box.tets, ONE + 8])
    with refused(
        problem=r"falls into 2 parts .* has 1 element, the first is element 6 at \(5.25",
        remedy="merge duplicate nodes",
    ):
        _all_named(nodes, tets)
    # Two elements that meet at an edge alone are apart, too.
    edge = np.vstack([CORNER, -CORNER[2:] - [0.1, 0, 0]])
    with refused(problem="falls into 2 parts that share no face"):
        _all_named(edge, np.array([[0, 1, 2, 3], [0, 1, 4, 5]]))


def test_a_face_of_three_elements_is_refused():
    nodes = np.vstack([PAIR_NODES, [2.0, 1, 1]])
    tets = np.vstack([PAIR, [5, 1, 3, 2]])
    with refused(
        problem=r"3 elements share one face.*element 0 .*element 2 .*\(1 such face\)",
        allowed="at most 2",
    ):
        _all_named(nodes, tets)


def test_elements_on_one_side_of_a_face_are_refused():
    nodes = np.vstack([CORNER, [-0.1, -0.1, -0.1]])
    with refused(problem=r"element 0 .*element 1 .*same side.*\(1 such pair\)"):
        _all_named(nodes, np.array([[0, 1, 2, 3], [4, 1, 2, 3]]))


def test_a_face_with_two_names_is_refused():
    with refused(problem="1 face belongs to two surfaces, the first to 'a' and 'b'"):
        make_tet_mesh(CORNER, ONE, {"a": _edge(ONE), "b": [[1, 3, 2]]})


@pytest.mark.parametrize(
    ("nodes", "tets", "message"),
    [
        (CORNER, np.empty((0, 4), int), "has 0 tetrahedra"),
        (CORNER, [[0, 1, 2, 4]], "1 element with nodes that are not in the mesh, the first is number 0 with node 4 of 4"),
        (CORNER, [[0, 1, -2, 3]], "with node -2 of 4"),
        (CORNER, [[0, 1, 2, 2]], "element 0 at .*same node stands at two corners"),
        (CORNER * [1, 1, 0], ONE, "element 0 at .* has no volume"),
        (CORNER * [1, 1, 1e-15], ONE, "element 0 at .* has no volume"),
        (CORNER[[0, 1, 2, 2]], ONE, "element 0 at .* has no volume"),
        (CORNER + [0, np.inf, 0], ONE, "1 element has nodes with coordinates out of range, the first is element 0 "),
        (CORNER * 1e31, ONE, "coordinates out of range"),
    ],
)  # fmt: skip
def test_elements_that_are_none_are_refused(nodes, tets, message):
    with refused(problem=message) as refusal:
        make_tet_mesh(np.asarray(nodes), np.asarray(tets), {})
    assert "\n" not in refusal.text
    if "out of range" in message:
        assert refusal.error.allowed == "finite numbers up to 1e+30"
        assert refusal.error.remedy == "make the mesh anew"


def test_triangles_with_nodes_that_do_not_exist_are_refused():
    with refused(problem="1 named triangle with nodes that are not in the mesh.*node 7 of 4"):
        make_tet_mesh(CORNER, ONE, {"edge": [[0, 1, 7]]})
    with refused(problem="1 of 5 named triangles are no face of an element, the first, of 'sheet'"):
        make_tet_mesh(PAIR_NODES, PAIR[:1], {"edge": _edge(PAIR[:1]), "sheet": [[0, 1, 1]]})


def test_flat_but_true_elements_are_no_matter_of_scale():
    for size in (1e-9, 1.0, 1e9):
        mesh = _all_named(size * CORNER * [1, 1, 1e-6], ONE)
        assert mesh.volumes == pytest.approx([size**3 * 1e-6 / 6], rel=1e-12)


def test_many_elements_are_listed_short():
    plain = tet_box((2, 2, 2))
    tets = plain.tets.copy()
    tets[:, 3] = tets[:, 2]
    with refused(problem="element 0 at .* and 45 more: the same node"):
        make_tet_mesh(plain.nodes, tets, plain.boundaries)


def test_volumes_know_the_hand_of_the_corners():
    for order in itertools.permutations(range(4)):
        sign = np.linalg.det(np.eye(4)[list(order)])
        assert tet_volumes(CORNER, np.array([order])) == pytest.approx([sign / 6])
    assert tuple(tet_box((1, 1, 1)).boundaries) == BOX_SIDES
