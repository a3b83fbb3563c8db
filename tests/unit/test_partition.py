"""Claims about partitions: every part has elements and its share, few faces cut, always the same."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from refusals import refused

from haloscope.errors import MachineError
from haloscope.exchange.ranks.world import World
from haloscope.mesh import partition as partitions
from haloscope.mesh.hexes.hex_generators import box, cylinder, sphere
from haloscope.mesh.hexes.mesh_parts import take
from haloscope.mesh.partition import Partition, bisect, dual_graph, graph_of


def partition(mesh, parts, weights=None, method="auto") -> Partition:
    """Parts of a mesh that one rank has."""
    graph = graph_of(take(mesh, np.arange(mesh.count)))
    load = np.ones(mesh.count) if weights is None else weights
    return partitions.partition(World(), graph, load, method, parts=parts)


_METHODS = ["coordinates", "graph"]


@pytest.fixture(params=_METHODS)
def method(request):
    if request.param == "graph":
        pytest.importorskip("pymetis")
    return request.param


@pytest.mark.parametrize("parts", [1, 2, 3, 5, 8, 55, 56])
def test_every_part_has_elements_and_the_report_is_true(method, parts):
    mesh = sphere(1.0)
    mesh_partition = partition(mesh, parts, method=method)
    assert mesh_partition.method == method
    assert mesh_partition.parts.dtype == np.int32
    sizes = np.bincount(mesh_partition.parts, minlength=parts)
    assert len(sizes) == parts
    assert sizes.min() >= 1
    assert (mesh_partition.loads == sizes).all()
    assert mesh_partition.imbalance == pytest.approx(sizes.max() * parts / mesh.count - 1)
    cut = sum(
        mesh_partition.parts[element] != mesh_partition.parts[other]
        for element in range(mesh.count)
        for other in mesh.neighbours[element]
        if other > element
    )
    assert mesh_partition.edge_cut == cut
    assert (
        f"{mesh.count} elements in {parts} part{'s' * (parts > 1)} by {method}"
        in mesh_partition.describe()
    )


@pytest.mark.parametrize("parts", [2, 3, 7])
def test_the_same_mesh_is_cut_the_same_way_again(method, parts):
    mesh = cylinder(1.0, 0.0, 3.0, layers=5, periodic=True)
    first = partition(mesh, parts, method=method)
    again = partition(mesh, parts, method=method)
    assert (first.parts == again.parts).all()


def test_cubes_are_cut_as_well_as_can_be(method):
    mesh = box((8, 8, 8))
    for parts, faces in ((2, 64), (4, 128), (8, 192)):
        mesh_partition = partition(mesh, parts, method=method)
        assert mesh_partition.imbalance < 0.05
        assert mesh_partition.edge_cut <= 1.4 * faces
        if method == "coordinates":
            assert (mesh_partition.edge_cut, mesh_partition.imbalance) == (faces, 0)


def test_weights_decide_the_shares(method):
    mesh = box((16, 4, 4))
    weights = np.where(mesh.centres[:, 0] < 0.25, 3.0, 1.0)
    mesh_partition = partition(mesh, 4, weights, method=method)
    assert mesh_partition.loads.sum() == weights.sum()
    assert mesh_partition.imbalance < 0.06
    assert np.ptp(np.bincount(mesh_partition.parts)) > 10


def test_one_heavy_element_leaves_no_part_empty(method):
    mesh = box((6, 1, 1))
    weights = np.array([1e6, 1, 1, 1, 1, 1])
    for parts in (2, 3, 5, 6):
        mesh_partition = partition(mesh, parts, weights, method=method)
        assert np.bincount(mesh_partition.parts, minlength=parts).min() >= 1


def test_auto_takes_the_better_of_what_is_there(monkeypatch):
    mesh = box((9, 5, 7))
    plain = partition(mesh, 6, method="coordinates")
    monkeypatch.setitem(sys.modules, "pymetis", None)
    alone = partition(mesh, 6)
    assert alone.method == "coordinates"
    assert (alone.parts == plain.parts).all()
    with refused(MachineError, remedy=r"pip install -e '[^']*\[mesh\]'"):
        partition(mesh, 6, method="graph")
    monkeypatch.undo()
    pytest.importorskip("pymetis")
    best = min(plain.edge_cut, partition(mesh, 6, method="graph").edge_cut)
    assert partition(mesh, 6).edge_cut <= best


def test_bisection_does_not_depend_on_the_order_of_elements():
    centres = np.random.default_rng(0).uniform(size=(100, 3))
    order = np.random.default_rng(1).permutation(100)
    numbers, weights = np.arange(100), np.ones(100)
    parts = bisect(World(), centres, numbers, weights, 7)
    assert (bisect(World(), centres[order], order, weights, 7) == parts[order]).all()


@pytest.mark.parametrize("parts", [2, 5, 8])
def test_each_cut_is_where_elements_in_order_share_the_load_best(parts):
    random = np.random.default_rng(0)
    for centres in (random.normal(size=(97, 3)), box((7, 5, 6)).centres):
        count = len(centres)
        heavy = np.where(np.arange(count) == 1, 1e6, 1)
        for weights in (np.ones(count), random.integers(2, 4, count) / 2, heavy):
            cut = bisect(World(), centres, np.arange(count), weights, parts)
            assert (cut == _sorted_and_cut(centres, parts, weights)).all()


def _sorted_and_cut(centres, parts, weights):
    """Recursive bisection by sorting, as a reference."""
    result = np.zeros(len(centres), np.int32)
    waiting = [(np.arange(len(centres)), 0, parts)]
    while waiting:
        elements, first, count = waiting.pop()
        if count == 1:
            result[elements] = first
            continue
        places = centres[elements]
        axis = int(np.ptp(places, axis=0).argmax())
        elements = elements[np.lexsort([places[:, (axis + step) % 3] for step in (2, 1, 0)])]
        low = count // 2
        sums = np.cumsum(weights[elements])
        at = int(np.abs(sums - sums[-1] * low / count).argmin()) + 1
        at = min(max(at, low), len(elements) - (count - low))
        waiting += [(elements[:at], first, low), (elements[at:], first + low, count - low)]
    return result


def test_the_graph_counts_faces_and_leaves_out_loops():
    mesh = box((2, 1, 3), periodic=(True, True, False))
    starts, neighbours, faces = dual_graph(mesh.neighbours)
    rows = [neighbours[starts[e] : starts[e + 1]].tolist() for e in range(mesh.count)]
    # Along x two elements share two faces, along y each meets itself.
    assert rows == [[1, 2], [0, 3], [0, 3, 4], [1, 2, 5], [2, 5], [3, 4]]
    assert faces[starts[2] : starts[3]].tolist() == [1, 2, 1]


@pytest.mark.parametrize("parts", [0, -1, 9])
def test_more_parts_than_elements_are_refused(parts):
    with refused(problem=f"^{parts} parts for a mesh of 8 elements$", allowed="^1 to 8$"):
        partition(box((2, 2, 2)), parts)


def test_an_unknown_method_is_refused():
    with refused(location="'magic'", problem="unknown", allowed="auto, graph"):
        partition(box((1, 1, 1)), 1, method="magic")
