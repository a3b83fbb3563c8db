"""Cube reports: read back by another program, they hold every value where it belongs."""

from __future__ import annotations

import tarfile
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from refusals import refused

from haloscope.scope.analysis.metrics import BY_NAME, METRICS
from haloscope.scope.analysis.result import Result
from haloscope.scope.export.cubex import write_cubex
from haloscope.scope.trace.measurement import Communicator, Location, Node, Region

pycubexr = pytest.importorskip(
    "pycubexr", reason="pycubexr is not installed (pip install pycubexr)"
)


def result_of(seed: int = 1) -> Result:
    """Two hosts, three ranks, a thread and a GPU stream; a call tree that is no list."""
    regions = [
        Region("program", "program"),
        Region("main", "function", "other", "main.c", 12),
        Region("MPI_Send", "mpi", "send"),
        Region("a < b && \"c\" > 'd'\x01\x1b\ud800", "user"),
    ]
    nodes = [
        Node(-1, 0),
        Node(0, 1),
        Node(1, 2, "a.out+0x11"),
        Node(0, 3),
        Node(1, 2, "a.out+0x22"),
        Node(3, 2),
        Node(1, 3),
    ]
    locations = [
        Location(0, 0, name="main"),
        Location(0, 1, name="thread 1"),
        Location(0, 2, "stream", "stream 7", 0),
        Location(1, 0, name="main"),
        Location(2, 0, name="main"),
    ]
    random = np.random.default_rng(seed)
    shape = (len(nodes), len(locations))
    values = {}
    for metric in METRICS:
        if metric.name in ("delay", "delay_short", "delay_long"):
            continue
        numbers = random.random(shape) * (random.random(shape) < 0.5)
        values[metric.name] = numbers if metric.unit == "s" else np.floor(1e6 * numbers)
    values["bytes_sent"][0, 0] = 2.0**52 + 1
    comms = [
        Communicator("0" * 16, (0, 1, 2), name="world"),
        Communicator("1" * 16, (2, 1), name="grid", dims=(1, 2), periods=(0, 1)),
    ]
    return Result({"command": ["./a.out"]}, 3, regions, nodes, comms, locations, values)


def metrics_below(metrics: list, parent: str = "") -> list[tuple[str, str]]:
    below = []
    for metric in metrics:
        below.append((metric.name, parent))
        below += metrics_below(metric.childs, metric.name)
    return below


def test_every_value_is_read_back_where_it_belongs(tmp_path: Path) -> None:
    result = result_of()
    path = tmp_path / "report.cubex"
    # The host of rank 1 comes first in no order of names: columns are moved.
    write_cubex(result, path, {0: "n2", 1: "n1", 2: "n2"})
    with pycubexr.CubexParser(path) as cube:
        places = cube.get_locations()
        groups = {
            place.id: group
            for host in cube._anchor_result.system_tree_nodes[0]._system_tree_node_children
            for group in host.all_location_groups()
            for place in group.all_locations()
        }
        column_of = {
            (int(groups[place.id].rank), int(place.rank)): column
            for column, place in enumerate(places)
        }
        assert [place.id for place in places] == list(range(5))
        assert len(cube.all_cnodes()) == len(result.nodes)
        read = {metric.name for metric in cube.all_metrics()}
        assert read == set(result.values)
        for name, expected in result.values.items():
            values = cube.get_metric_values(cube.get_metric_by_name(name))
            for number in range(len(result.nodes)):
                row = values.cnode_values(cube.get_cnode(number))
                for index, place in enumerate(result.locations):
                    column = column_of[place.rank, place.number]
                    assert row[column] == expected[number, index], (name, number, index)


def test_trees_are_those_of_the_result(tmp_path: Path) -> None:
    result = result_of()
    path = tmp_path / "report.cubex"
    write_cubex(result, path, {0: "n2", 1: "n1", 2: "n2"})
    with pycubexr.CubexParser(path) as cube:
        for name, parent in metrics_below(cube.get_metrics()):
            assert BY_NAME[name].parent == parent
        for number, node in enumerate(result.nodes):
            read = cube.get_cnode(number)
            assert (read.parent.id if read.parent else -1) == node.parent
            assert read.parameters.get("call site", "") == node.site
        assert cube.get_cnode(1).region.name == "main"
        assert cube.get_cnode(1).region.mod == "main.c"
        hosts = cube._anchor_result.system_tree_nodes[0]._system_tree_node_children
        assert [host.name for host in hosts] == ["n2", "n1"]
        assert [group.name for group in hosts[0].all_location_groups()] == [
            "rank 0",
            "GPUs of rank 0",
            "rank 2",
        ]


def test_values_stay_exclusive_along_the_call_tree(tmp_path: Path) -> None:
    result = result_of()
    path = tmp_path / "report.cubex"
    write_cubex(result, path)
    with pycubexr.CubexParser(path) as cube:
        values = cube.get_metric_values(cube.get_metric_by_name("time"))
        root = values.cnode_values(cube.get_cnode(0), convert_to_inclusive=True)
        # Columns are those of the result where there is one host.
        np.testing.assert_allclose(root, result.inclusive(result.value("time"))[0])


def test_names_from_a_hostile_trace_are_text(tmp_path: Path) -> None:
    path = tmp_path / "report.cubex"
    write_cubex(result_of(), path)
    with pycubexr.CubexParser(path) as cube:
        assert cube.get_cnode(3).region.name == "a < b && \"c\" > 'd'\ufffd\ufffd\ufffd"


def test_cartesian_communicators_are_topologies(tmp_path: Path) -> None:
    path = tmp_path / "report.cubex"
    write_cubex(result_of(), path)
    with tarfile.open(path) as archive:
        member = archive.extractfile("anchor.xml")
        assert member is not None
        root = ElementTree.parse(member).getroot()
    (cart,) = root.iter("cart")
    assert cart.get("name") == "grid"
    assert [(dim.get("size"), dim.get("periodic")) for dim in cart.iter("dim")] == [
        ("1", "false"),
        ("2", "true"),
    ]
    # Rank 2 is the first of the communicator; its only location is the fifth.
    assert {coord.get("locId"): coord.text for coord in cart.iter("coord")} == {
        "4": "0 0",
        "3": "0 1",
    }


def test_no_member_fills_its_last_block(tmp_path: Path) -> None:
    # Cube and tar disagree about what follows such a member.
    result = result_of()
    path = tmp_path / "report.cubex"

    def sizes(length: int) -> list[int]:
        result.about["command"] = ["x" * length]
        write_cubex(result, path)
        with tarfile.open(path) as archive:
            return [member.size for member in archive.getmembers()]

    length = 512 - sizes(0)[0] % 512
    for more in (length - 1, length, length + 1):
        read = sizes(more)
        assert len(read) == 1 + 2 * len(result.values)
        assert all(size % 512 for size in read)


def test_a_result_without_values_is_refused(tmp_path: Path) -> None:
    result = result_of()
    result.values = {"time": np.zeros((7, 5))}
    with refused(problem="no values", remedy="haloscope analyze"):
        write_cubex(result, tmp_path / "report.cubex")
    assert not list(tmp_path.iterdir())


def test_a_metric_without_its_parents_brings_them_along(tmp_path: Path) -> None:
    result = result_of()
    result.values = {"late_sender": result.values["late_sender"]}
    path = tmp_path / "report.cubex"
    write_cubex(result, path)
    with pycubexr.CubexParser(path) as cube:
        assert metrics_below(cube.get_metrics()) == [
            ("time", ""),
            ("execution", "time"),
            ("mpi", "execution"),
            ("mpi_communication", "mpi"),
            ("p2p_communication", "mpi_communication"),
            ("late_sender", "p2p_communication"),
        ]
        for metric in cube.all_metrics():
            assert cube.get_metric_values(metric).num_locations() == 5
