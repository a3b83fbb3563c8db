"""Claims about points in tetrahedra: which element holds them, linear values, fields on many nodes."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
from refusals import refused

from haloscope.exchange.ranks.world import World
from haloscope.io.vtk_arrays import TETRAHEDRON
from haloscope.io.vtkhdf import CONNECTIVITY, POINTS, Mesh, VtkhdfWriter
from haloscope.mesh.tets.node_parts import node_part_on_ranks
from haloscope.mesh.tets.tet_generators import cylinder_channel, tet_box
from haloscope.numerics.elements.node_fields import NodeFields, TetLocator


def _linear(x):
    return np.stack([1 + x @ [2.0, -3.0, 0.5], x @ [0.0, 1.0, 4.0]], axis=1)


def test_linear_fields_are_exact_at_any_point_and_others_are_found_outside():
    mesh = cylinder_channel(4)
    rng = np.random.default_rng(3)
    points = rng.uniform(0, 1, (400, 3)) * [2.5, 0.41, 0.41]
    placed = TetLocator(mesh.nodes, mesh.tets).find(points)
    # The cylinder is a polygon here: points well within it are in no element, those well without are.
    radius = np.hypot(points[:, 0] - 0.5, points[:, 1] - 0.2)
    assert not placed.inside[radius < 0.04].any()
    assert placed.inside[radius > 0.051].all()
    assert placed.inside.any()
    inside = placed.inside
    values = placed.values(_linear(mesh.nodes))
    assert values[inside] == pytest.approx(_linear(points[inside]), abs=1e-12)
    assert (values[~inside] == 0).all()
    assert (placed.weights[inside] >= -1e-9).all()


def test_where_elements_meet_the_lowest_number_has_the_point():
    mesh = tet_box((2, 2, 2))
    numbers = np.random.default_rng(1).permutation(mesh.count)
    placed = TetLocator(mesh.nodes, mesh.tets, numbers).find(mesh.nodes)
    for node, element in enumerate(placed.elements):
        assert element == numbers[(mesh.tets == node).any(axis=1)].min()


def test_points_that_are_no_numbers_are_nowhere():
    mesh = tet_box((1, 1, 1))
    placed = TetLocator(mesh.nodes, mesh.tets).find([[np.nan, 0.5, 0.5], [0.5, 0.5, 0.5]])
    assert placed.inside.tolist() == [False, True]


def test_fields_of_nodes_are_sampled_collected_and_read_back():
    world = World()
    part, _ = node_part_on_ranks(world, lambda: tet_box((3, 2, 2), upper=(3.0, 1.0, 1.0)))
    fields = NodeFields(world, part)
    values = _linear(part.nodes)
    points = [(0.1, 0.2, 0.3), (2.9, 0.9, 0.1)]
    mine, located = fields.locate(points)
    assert mine.tolist() == [0, 1]
    assert located.values(values) == pytest.approx(_linear(np.array(points)))
    raster, plane = fields.sample_plane("y", 0.25, 12, values)
    assert plane.shape == (2, *raster.shape)
    sampled = np.moveaxis(plane, 0, -1).reshape(-1, 2)
    assert sampled == pytest.approx(_linear(raster.points))
    own = values[fields.own_nodes, 0]
    whole = fields.collect(own, 0, part.whole_nodes)
    assert whole == pytest.approx(values[np.argsort(part.node_numbers), 0])
    assert np.array_equal(fields.own(lambda slices: whole[slices]), own)
    with refused(location="^probe a$", problem=r"\(9, 0, 0\) lies outside the mesh, 6 m"):
        fields.require_inside("probe a", (9.0, 0.0, 0.0))


def test_a_file_of_tetrahedra_holds_what_was_written_and_refuses_what_does_not_fit(tmp_path):
    path = tmp_path / "a.vtkhdf"
    places = np.eye(4, 3)
    with VtkhdfWriter(path, Mesh(TETRAHEDRON, 4, 4, 1), 2.5) as writer:
        writer.create("velocity", np.float64, 3)
        writer.create("zone", np.int32, per_cell=True)
        writer.write(POINTS, 0, places[:2])
        writer.write(POINTS, 2, places[2:])
        writer.write(CONNECTIVITY, 0, np.array([[0, 1, 2, 3]]))
        writer.write("velocity", 0, 2 * places)
        writer.write("zone", 0, np.array([7], np.int32))
        with refused(problem="have the shape"):
            writer.write("zone", 1, np.array([7], np.int32))
        with refused(problem="have the type float32"):
            writer.write("velocity", 0, places.astype(np.float32))
        with refused(problem="taken, empty"):
            writer.create("zone", np.int32)
    with h5py.File(path) as file:
        root = file["VTKHDF"]
        assert root.attrs["Type"] == b"UnstructuredGrid"
        assert root["Types"][:].tolist() == [10]
        assert root["Offsets"][:].tolist() == [0, 4]
        assert np.array_equal(root["Connectivity"][:], np.arange(4))
        assert np.array_equal(root["Points"][:], places)
        assert np.array_equal(root["PointData/velocity"][:], 2 * places)
        assert root["FieldData/TimeValue"][0] == 2.5
    with (
        refused(problem="0 places written; there are 4"),
        VtkhdfWriter(tmp_path / "b.vtkhdf", Mesh(TETRAHEDRON, 4, 4, 1)),
    ):
        pass
    assert not (tmp_path / "b.vtkhdf").exists()
