"""Claims about elements at GLL nodes: exact metrics, thickness, and bad elements named."""

from __future__ import annotations

import dataclasses

import numpy as np
from refusals import refused

from haloscope.exchange.ranks.world import World
from haloscope.mesh.hexes.hex_generators import box, sphere
from haloscope.mesh.hexes.mesh_parts import take
from haloscope.numerics.elements import element_maps
from haloscope.numerics.elements.element_maps import (
    check_jacobians,
    face_normals,
    gll_nodes,
    jacobian_ratios,
    jacobians,
    nodes,
    thickness,
)


def _check(mesh, order, **options):
    part = take(mesh, np.arange(mesh.count))
    check_jacobians(World(), part, order, **options)


def _skewed():
    mesh = box((2, 1, 1), upper=(4.0, 1.0, 1.0))
    coordinates = mesh.coordinates.copy()
    coordinates[..., 0] += coordinates[..., 1]
    return dataclasses.replace(mesh, coordinates=coordinates)


def test_nodes_of_a_brick_are_gll_points_with_i_fastest():
    places = nodes(box((1, 1, 1), (-1, -2, -3), (1, 2, 3)), 4)[0]
    line = gll_nodes(4)
    np.testing.assert_allclose(places[0, 0, :, 0], line, atol=1e-15)
    np.testing.assert_allclose(places[0, :, 0, 1], 2 * line, atol=1e-15)
    np.testing.assert_allclose(places[:, 0, 0, 2], 3 * line, atol=1e-15)


def test_jacobians_and_normals_of_a_skewed_brick_are_exact():
    places = nodes(_skewed(), 5)
    np.testing.assert_allclose(jacobians(places), 2 / 8, atol=1e-13)
    normals = face_normals(places)[0]
    # Areas: each face's normal times area over 4, outward.
    expected = [(-1, 1, 0), (1, -1, 0), (0, -2, 0), (0, 2, 0), (0, 0, -2), (0, 0, 2)]
    for face in range(6):
        np.testing.assert_allclose(normals[face], np.tile(expected[face], (36, 1)) / 4, atol=1e-13)


def test_thickness_is_the_distance_of_opposite_faces():
    np.testing.assert_allclose(
        thickness(nodes(_skewed(), 3)), np.tile([2 / np.sqrt(2), 1, 1], (2, 1)), rtol=1e-13
    )


def test_normals_of_partners_are_opposite():
    mesh = sphere(1.0)
    normals = face_normals(nodes(mesh, 4)).mean(axis=2)
    element, face = np.nonzero(mesh.neighbours >= 0)
    other = normals[mesh.neighbours[element, face], mesh.neighbour_faces[element, face]]
    assert np.abs(normals[element, face] + other).max() < 1e-14


def test_inverted_elements_are_named_with_their_places():
    mesh = box((3, 1, 1))
    coordinates = mesh.coordinates.copy()
    # One corner of elements 0 and 1 is pushed through the opposite face of the second.
    coordinates[0, 1, 1, 1, 0] = coordinates[1, 1, 1, 0, 0] = 1.5
    bad = dataclasses.replace(mesh, coordinates=coordinates)
    with refused(
        location="^element 1 at", problem="1 of 3 elements.*1 of them is negative", remedy="anew"
    ):
        _check(bad, 4)
    assert (jacobian_ratios(bad, 4) > 0).tolist() == [True, False, True]


def test_elements_inside_out_are_refused():
    mesh = box((2, 2, 2))
    mirrored = dataclasses.replace(mesh, coordinates=mesh.coordinates * np.array([-1.0, 1, 1]))
    with refused(location="and 5 more$", problem="8 of 8 elements.*inside out"):
        _check(mirrored, 3)


def test_flat_corners_are_refused_below_the_limit_alone():
    mesh = box((2, 1, 1))
    coordinates = mesh.coordinates.copy()
    # At two thirds of the way the corner would lie in the plane of its three neighbours.
    coordinates[1, 1, 1, 1] = (0.5 + 0.5 * 0.67, 0.67, 0.67)
    flat = dataclasses.replace(mesh, coordinates=coordinates)
    ratio = jacobian_ratios(flat, 3)[1]
    assert 0 < ratio < 0.1
    _check(flat, 3, smallest=ratio * 0.9)
    with refused(problem="none of them is negative; the least is"):
        _check(flat, 3, smallest=ratio * 1.1)


def test_coordinates_that_are_no_numbers_do_not_pass():
    mesh = box((2, 1, 1))
    coordinates = mesh.coordinates.copy()
    coordinates[1, 0, 0, 0, 0] = np.nan
    with refused(problem="1 of 2 elements"):
        _check(dataclasses.replace(mesh, coordinates=coordinates), 2)


def test_pieces_of_a_mesh_give_the_same_as_the_whole(monkeypatch):
    mesh = sphere(1.0)
    whole = jacobian_ratios(mesh, 3)
    monkeypatch.setattr(element_maps, "_NODES_AT_ONCE", 500)
    np.testing.assert_array_equal(jacobian_ratios(mesh, 3), whole)
