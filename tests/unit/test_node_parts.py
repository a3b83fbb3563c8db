"""Claims about parts of tetrahedral meshes: elements once, nodes shared, all ranks of one mind."""

from __future__ import annotations

import itertools
import json
import threading
from collections import deque

import numpy as np
import pytest
from refusals import refused
from thread_gpus import Meeting, ThreadWorld, on_ranks

from haloscope.errors import InputError, MachineError
from haloscope.exchange.plan import find_sharing
from haloscope.exchange.ranks.world import World
from haloscope.mesh import partition
from haloscope.mesh.tets.node_parts import (
    NodePart,
    node_graph,
    node_part,
    node_part_on_ranks,
    partition_tets,
    reverse_cuthill_mckee,
    share_nodes,
)
from haloscope.mesh.tets.tet_generators import cylinder_channel, tet_box
from haloscope.mesh.tets.tets import TetMesh, area_vectors, make_tet_mesh, tet_volumes


def _shuffled(mesh: TetMesh, seed: int = 0) -> TetMesh:
    """The same mesh in no order at all, as files may have it, with two zones and a sheet between."""
    rng = np.random.default_rng(seed)
    node, element = rng.permutation(len(mesh.nodes)), rng.permutation(mesh.count)
    nodes = np.empty_like(mesh.nodes)
    nodes[node] = mesh.nodes
    zones = (mesh.centres[element, 2] > mesh.nodes[:, 2].mean()).astype(np.int32)
    named = {name: node[faces] for name, faces in mesh.boundaries.items()}
    tets = node[mesh.tets[element]]
    shuffled = make_tet_mesh(nodes, tets, named, zones, ("low", "high"))
    inside = shuffled.neighbours >= 0
    between = inside & (shuffled.zones[:, None] != shuffled.zones[shuffled.neighbours])
    sheet = np.array([np.delete(shuffled.tets[e], f) for e, f in np.argwhere(between)])
    return make_tet_mesh(nodes, tets, {**named, "sheet": np.unique(np.sort(sheet), axis=0)}, zones, ("low", "high"))  # fmt: skip


@pytest.fixture(scope="module")
def mesh() -> TetMesh:
    return _shuffled(cylinder_channel(4, layers=4))


def _parts(mesh: TetMesh, ranks: int, method: str = "auto") -> list[NodePart]:
    shares = share_nodes(mesh, partition_tets(mesh, ranks, method).parts, ranks)
    return [node_part(mesh, shares, rank) for rank in range(ranks)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
@pytest.mark.parametrize("method", ["graph", "coordinates"])
def test_parts_cover_each_element_once_and_agree_on_shared_nodes(mesh, ranks, method):
    if method == "graph":
        pytest.importorskip("pymetis")
    parts = _parts(mesh, ranks, method)
    held = [set(part.node_numbers.tolist()) for part in parts]
    every = np.concatenate([part.tet_numbers for part in parts])
    assert np.array_equal(np.sort(every), np.arange(mesh.count))
    assert set().union(*held) == set(range(len(mesh.nodes)))
    for part in parts:
        assert (part.whole_nodes, part.whole_tets) == (len(mesh.nodes), mesh.count)
        assert (part.tets.dtype, part.node_numbers.dtype) == (np.int32, np.int64)
        assert np.array_equal(part.node_numbers[part.tets], mesh.tets[part.tet_numbers])
        assert np.array_equal(part.nodes, mesh.nodes[part.node_numbers])
        assert np.array_equal(part.zones, mesh.zones[part.tet_numbers])
        assert len(held[part.rank]) == len(part.node_numbers) == part.tets.max() + 1
        holders = [[r for r in range(ranks) if n in held[r]] for n in part.node_numbers.tolist()]
        assert part.multiplicity.tolist() == [len(sharers) for sharers in holders]
        assert part.owners.tolist() == [sharers[0] for sharers in holders]
        assert ((part.multiplicity > 1) == (np.arange(len(holders)) >= part.interior)).all()
        outer = (part.tets >= part.interior).any(axis=1)
        assert outer.tolist() == [e < part.outer_tets for e in range(len(outer))]
        expected = {
            r: sorted(held[part.rank] & held[r])
            for r in range(ranks)
            if r != part.rank and held[part.rank] & held[r]
        }
        assert list(part.neighbours) == sorted(expected)
        for rank, nodes in part.neighbours.items():
            assert part.node_numbers[nodes].tolist() == expected[rank]
        assert part.numbers.tolist() == [
            n + 1 if len(sharers) > 1 else 0
            for n, sharers in zip(part.node_numbers.tolist(), holders, strict=True)
        ]
    assert sum(int(part.owned.sum()) for part in parts) == len(mesh.nodes)
    assert sum((1 / part.multiplicity).sum() for part in parts) == pytest.approx(len(mesh.nodes))


@pytest.mark.parametrize("ranks", [1, 5])
def test_surfaces_go_with_their_elements_and_keep_their_sides(mesh, ranks):
    parts = _parts(mesh, ranks)
    assert list(mesh.surfaces) == ["sheet"]
    for kind in ("boundaries", "surfaces"):
        whole = getattr(mesh, kind)
        tets = mesh.boundary_tets if kind == "boundaries" else mesh.surface_tets
        for name in whole:
            rows, owners = [], []
            for part in parts:
                of = part.boundary_tets if kind == "boundaries" else part.surface_tets
                local = getattr(part, kind)[name]
                assert (local.dtype, of[name].dtype) == (np.int32, np.int32)
                assert all(set(t) < set(part.tets[e]) for t, e in zip(local, of[name], strict=True))
                rows.append(part.node_numbers[local])
                owners.append(part.tet_numbers[of[name]])
            order = np.argsort(np.concatenate(owners), kind="stable")
            assert np.array_equal(np.concatenate(owners)[order], tets[name])
            # Two triangles of one element may change places.
            both = (np.concatenate(rows)[order], whole[name])
            one, other = (sorted(map(tuple, faces.tolist())) for faces in both)
            assert one == other
    held = sum(tet_volumes(part.nodes, part.tets).sum() for part in parts)
    assert held == pytest.approx(mesh.volumes.sum())
    area = sum(area_vectors(p.nodes, t).sum(axis=0) for p in parts for t in p.boundaries.values())
    assert np.abs(area).max() < 1e-14


def test_the_exchange_finds_the_same_neighbours(mesh):
    parts = _parts(mesh, 4)

    def work(world: World) -> None:
        part = parts[world.rank]
        sharing = find_sharing(world, part.numbers)
        for rank in set(sharing.ranks.tolist()) | set(part.neighbours):
            groups = sharing.groups[sharing.ranks == rank]
            assert (sharing.here[groups] == 1).all()
            assert np.array_equal(sharing.first_positions[groups], part.neighbours[rank])

    on_ranks(4, work)


def test_parts_are_the_same_on_every_run(mesh):
    for one, other in zip(_parts(mesh, 3), _parts(mesh, 3), strict=True):
        assert np.array_equal(one.node_numbers, other.node_numbers)
        assert np.array_equal(one.tets, other.tets)


def test_what_is_shared_is_reported(mesh):
    shares = share_nodes(mesh, partition_tets(mesh, 4).parts, 4)
    held = [set(node_part(mesh, shares, rank).node_numbers.tolist()) for rank in range(4)]
    between = [[len(a & b) for b in held] for a in held]
    assert shares.between().tolist() == between
    shared = 100 * np.mean(shares.multiplicity > 1)
    touching = sum(between[a][b] > 0 for a in range(4) for b in range(a))
    assert f"{shared:.1f} % are shared, {touching} of 6 pairs of ranks" in shares.describe()


def test_node_graphs_and_orders_are_those_of_a_plain_search():
    mesh = _shuffled(tet_box((3, 2, 2)))
    starts, near = node_graph(mesh.tets, len(mesh.nodes))
    graph = {n: set() for n in range(len(mesh.nodes))}
    for tet in mesh.tets.tolist():
        for a in tet:
            graph[a] |= set(tet) - {a}
    assert [near[a:b].tolist() for a, b in itertools.pairwise(starts)] == [
        sorted(graph[n]) for n in graph
    ]
    order = reverse_cuthill_mckee(starts, near)[::-1].tolist()
    # Cuthill and McKee's own words: number the neighbours of each node in turn by their degrees.
    plain, waiting = [order[0]], deque([order[0]])
    while waiting:
        new = sorted(graph[waiting.popleft()] - set(plain), key=lambda n: (len(graph[n]), n))
        plain += new
        waiting.extend(new)
    assert order == plain


def test_all_parts_of_a_graph_are_ordered():
    elements = np.array([[0, 4, 6, 8], [1, 3, 5, 7], [3, 5, 7, 2]])
    order = reverse_cuthill_mckee(*node_graph(elements, 9))
    assert sorted(order.tolist()) == list(range(9))
    even = [n % 2 == 0 and n != 2 for n in order.tolist()]
    assert np.abs(np.diff(even)).sum() == 1


def test_neighbours_come_near_each_other_in_memory():
    mesh = _shuffled(tet_box((12, 4, 4)))

    def width(part: NodePart) -> int:
        spans = part.tets.max(axis=1) - part.tets.min(axis=1)
        return int(spans[(part.tets < part.interior).all(axis=1)].max())

    assert (mesh.tets.max(axis=1) - mesh.tets.min(axis=1)).max() > 280
    # A plane across the box has 25 nodes, and elements lie between two planes.
    assert width(_parts(mesh, 1)[0]) < 2 * 25
    assert all(width(part) < 2 * 25 for part in _parts(mesh, 2))


@pytest.mark.parametrize(
    ("parts", "problem", "allowed"),
    [
        ([0, 0, 2, 2, 2, 0], r"rank 1 of 4 without elements \(2 empty ranks\)", "^$"),
        ([0] * 6, "rank 1 of 4", "^$"),
        ([0, 1, 2, 3, 4, 0], "each of 6 elements", "^ranks 0 to 3, "),
        ([0, 1, 2, -1, 0, 0], "each of 6 elements", "^ranks 0 to 3, "),
        ([0, 1, 2, 3], "each of 6 elements", "^ranks 0 to 3, "),
    ],
)
def test_an_empty_rank_and_wrong_partitions_are_refused(parts, problem, allowed):
    with refused(problem=problem, allowed=allowed, remedy="partition .* mesh anew") as refusal:
        share_nodes(tet_box((1, 1, 1)), np.array(parts), 4)
    assert "\n" not in refusal.text


def test_more_ranks_than_elements_and_unknown_methods_are_refused():
    with refused(problem="7 parts for a mesh of 6 elements", allowed="^1 to 6$"):
        partition_tets(tet_box((1, 1, 1)), 7)
    with refused(location="method 'best'", problem="unknown", allowed="auto, graph"):
        partition_tets(tet_box((1, 1, 1)), 2, "best")
    assert set(partition_tets(tet_box((1, 1, 1)), 6).parts) == set(range(6))


def _together(ranks: int, work) -> list:
    """What each rank returns or raises."""
    meeting = Meeting(ranks)
    outcomes: list = [None] * ranks

    def one(rank: int) -> None:
        try:
            outcomes[rank] = work(ThreadWorld(rank, ranks, meeting))
        except (InputError, MachineError) as error:
            outcomes[rank] = error

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return outcomes


def _fields(part: NodePart) -> str:
    def plain(value):
        if isinstance(value, dict):
            return {str(key): plain(member) for key, member in value.items()}
        return [str(value.dtype), value.tolist()] if isinstance(value, np.ndarray) else value

    return json.dumps({name: plain(value) for name, value in part.__dict__.items()})


def test_each_rank_gets_its_part_from_rank_0(mesh):
    made = []

    def make() -> TetMesh:
        made.append(threading.get_ident())
        return mesh

    outcomes = _together(3, lambda world: node_part_on_ranks(world, make))
    assert len(made) == 1
    for (part, lines), expected in zip(outcomes, _parts(mesh, 3), strict=True):
        assert _fields(part) == _fields(expected)
        assert bool(lines) == (part.rank == 0)
    assert "boundaries inlet (" in outcomes[0][1][0]
    assert "pairs of ranks share nodes" in outcomes[0][1][-1]
    alone, lines = node_part_on_ranks(World(), make)
    assert (alone.interior, alone.neighbours, len(lines)) == (len(mesh.nodes), {}, 1)


@pytest.mark.parametrize("kind", [InputError, MachineError])
def test_what_rank_0_refuses_all_ranks_refuse(kind):
    def make() -> TetMesh:
        raise kind("no mesh today")

    errors = _together(3, lambda world: node_part_on_ranks(world, make))
    assert [(type(error), str(error)) for error in errors] == [(kind, "no mesh today")] * 3
    box = tet_box((1, 1, 1))
    for error in _together(7, lambda world: node_part_on_ranks(world, lambda: box)):
        assert "7 parts for a mesh of 6 elements; allowed: 1 to 6" in str(error)


def test_without_metis_the_graph_is_refused_on_all_ranks(monkeypatch):
    def missing(required: bool) -> None:
        if required:
            raise MachineError("needs pymetis")

    monkeypatch.setattr(partition, "find_metis", missing)
    box = tet_box((2, 1, 1))
    errors = _together(2, lambda world: node_part_on_ranks(world, lambda: box, "graph"))
    assert [str(error) for error in errors] == ["needs pymetis"] * 2
    assert [len(part.tets) for part, _ in _together(2, lambda w: node_part_on_ranks(w, lambda: box))] == [6, 6]  # fmt: skip
