"""Claims about maps of messages, and about the placement of ranks that is suggested from them."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread
from refusals import refused

from haloscope.scope import maps
from haloscope.scope.analysis.result import PAIRS, Result
from haloscope.scope.maps import LINKS, Traffic, placement
from haloscope.scope.maps.pictures import MOST_POINTS, binned, save_map, save_receivers, write_maps
from haloscope.scope.trace.measurement import Communicator, Location, Node, Region


def _traffic(size: int, rows: list[tuple[Any, ...]]) -> Traffic:
    """Rows: sender, receiver, messages, empty, bytes, seconds, receive seconds."""
    return Traffic("whole run", size, np.array(rows, LINKS))


def _ring(size: int) -> Traffic:
    rows = [(one, (one + 1) % size, 10, 0, 1000, 0.0, 0.0) for one in range(size)]
    return _traffic(size, sorted(rows))


def _result(pairs: list[tuple[Any, ...]], size: int) -> Result:
    """Two routines that send, one of them by two functions from two call sites."""
    regions = [
        Region("program", "program"),
        Region("gather"),
        Region("scatter"),
        Region("MPI_Send", "mpi", "send"),
        Region("MPI_Isend", "mpi", "isend"),
    ]
    nodes = [
        Node(-1, 0),
        Node(0, 1, "a"),
        Node(0, 1, "b"),
        Node(0, 2),
        Node(1, 3),
        Node(2, 4),
        Node(3, 3),
        Node(0, 3),
    ]
    locations = [Location(rank, 0) for rank in range(size)]
    return Result({}, size, regions, nodes, [], locations, {}, np.array(pairs, PAIRS))


GATHER, GATHER_ELSEWHERE, SCATTER, SENDS_BY_ITSELF = 4, 5, 6, 7


def test_messages_of_a_pair_are_summed_over_call_paths() -> None:
    result = _result(
        [
            (GATHER, 0, 1, 5, 1, 100, 0.5, 0.25),
            (SCATTER, 0, 1, 2, 2, 0, 0.5, 0.5),
            (SCATTER, 2, 0, 1, 0, 8, 0.1, 0.2),
        ],
        3,
    )
    links = maps.whole_run(result).links
    assert links.tolist() == [(0, 1, 7, 3, 100, 1.0, 0.75), (2, 0, 1, 0, 8, 0.1, 0.2)]


def test_routine_holds_the_messages_of_all_functions_and_sites_that_it_sends_by() -> None:
    result = _result(
        [
            (GATHER, 0, 1, 5, 0, 100, 0.1, 0.1),
            (GATHER_ELSEWHERE, 0, 1, 5, 0, 100, 0.1, 0.1),
            (SCATTER, 1, 0, 1, 0, 8, 0.1, 0.9),
        ],
        2,
    )
    routines = maps.routines(result)
    assert [one.path for one in routines] == [("program", "scatter"), ("program", "gather")]
    assert routines[1].nodes == (GATHER, GATHER_ELSEWHERE)
    assert routines[1].links.tolist() == [(0, 1, 10, 0, 200, 0.2, 0.2)]


def test_messages_that_no_routine_is_known_for_are_not_called_a_routine() -> None:
    result = _result([(SENDS_BY_ITSELF, 0, 1, 5, 0, 100, 0.1, 0.1)], 2)
    (routine,) = maps.routines(result)
    assert routine.path == ("(outside of any routine)",)
    assert "program" not in maps.routines_csv([routine])


def test_pairs_of_ranks_that_are_not_there_are_left_out() -> None:
    good = (GATHER, 0, 1, 5, 0, 100, 0, 0)
    result = _result([good, (GATHER, 0, 9, 5, 0, 1, 0, 0), (GATHER, -1, 0, 5, 0, 1, 0, 0)], 2)
    assert len(maps.whole_run(result).links) == 1


def test_messages_of_call_paths_that_are_not_there_are_left_out() -> None:
    good = (GATHER, 0, 1, 5, 0, 100, 0, 0)
    result = _result([good, (99, 0, 1, 5, 0, 1, 0, 0), (-1, 0, 1, 5, 0, 1, 0, 0)], 2)
    (routine,) = maps.routines(result)
    assert routine.links.tolist() == [(0, 1, 5, 0, 100, 0.0, 0.0)]


def test_pairs_that_never_talk_and_pairs_with_empty_messages_only_exchange_nothing() -> None:
    traffic = _traffic(4, [(0, 0, 9, 0, 9, 0, 0), (0, 1, 5, 4, 8, 0, 0), (1, 0, 5, 5, 0, 0, 0)])
    quiet = maps.silence(traffic)
    assert (quiet.pairs, quiet.with_data, quiet.only_empty) == (12, 1, 1)
    assert quiet.share == pytest.approx(11 / 12)


def test_receivers_count_senders_with_data_apart_from_those_without() -> None:
    traffic = _traffic(
        3,
        [
            (0, 2, 5, 1, 80, 0, 0.5),
            (1, 2, 3, 3, 0, 0, 0.25),
            (2, 0, 1, 0, 8, 0, 0.125),
        ],
    )
    rows = maps.receivers(traffic)
    assert rows[2].tolist() == (2, 1, 1, 8, 4, 80, 0.75)
    assert rows[1].tolist() == (1, 0, 0, 0, 0, 0, 0.0)


def test_tables_have_a_line_only_for_pairs_that_talk() -> None:
    lines = maps.links_csv(_traffic(1000, [(3, 7, 5, 1, 80, 0.5, 0.25)])).splitlines()
    assert lines == [
        "sender,receiver,messages,empty,bytes,seconds,receive_seconds",
        "3,7,5,1,80,0.5,0.25",
    ]
    assert len(maps.receivers_csv(_ring(10)).splitlines()) == 11


def test_names_with_commas_and_quotes_stay_one_cell() -> None:
    traffic = Traffic('f<"a", b>', 2, np.zeros(0, LINKS), ("program", 'f<"a", b>'))
    rows = list(csv.reader(maps.routines_csv([traffic]).splitlines()))
    assert rows[1][:2] == ['f<"a", b>', 'program > f<"a", b>']


def test_matrix_is_binned_only_where_ranks_are_more_than_points() -> None:
    small, _, step = binned(_ring(MOST_POINTS), "bytes")
    assert (small.shape, step) == ((MOST_POINTS, MOST_POINTS), 1)
    large, _, step = binned(_ring(4096), "bytes")
    assert step == 8
    assert large.sum() == pytest.approx(4096 * 1000)
    assert large[0, 0] == pytest.approx(7 * 1000)
    assert large[1, 0] == pytest.approx(1000)  # receiver 8 of sender 7


def test_a_point_with_empty_messages_alone_is_told_from_one_with_data() -> None:
    traffic = _traffic(2, [(0, 1, 5, 5, 0, 0, 0), (1, 0, 5, 4, 8, 0, 0)])
    _, empty, _ = binned(traffic, "bytes")
    assert empty.tolist() == [[False, False], [True, False]]


def _lightness(picture: np.ndarray[Any, Any], sender: float, receiver: float, size: int) -> float:
    """Darkest point, from 0 to 3, in the middle of a pair's square in the left matrix."""
    high, wide = picture.shape[:2]
    left, bottom, width, height = 0.065, 0.12, 0.355, 0.7225
    column = int(wide * (left + width * (sender + 0.5) / size))
    row = int(high * (1 - bottom - height * (1 - (receiver + 0.5) / size)))
    return float(picture[row - 1 : row + 2, column - 1 : column + 2, :3].sum(axis=2).min())


@pytest.mark.parametrize("size", [2, 7, 4096])
def test_silent_pairs_are_white_and_more_time_is_darker(tmp_path: Path, size: int) -> None:
    one, other = size // 4, size - 1 - size // 4
    rows: list[tuple[Any, ...]] = [
        (one, other, 5, 0, 80, 1e-3, 1e-3),
        (other, one, 5, 0, 80, 1.0, 1.0),
    ]
    save_map(tmp_path / "map.png", _traffic(size, rows))
    picture = imread(tmp_path / "map.png")
    step = -(-size // MOST_POINTS)
    first, last = (rank - rank % step + (step - 1) / 2 for rank in (one, other))
    assert _lightness(picture, first, first, size) == 3.0
    much, little = (
        _lightness(picture, sender, receiver, size)
        for sender, receiver in ((last, first), (first, last))
    )
    assert much < little < 2.7


@pytest.mark.parametrize("size", [2, 30, 500])
def test_pictures_are_drawn_with_and_without_times(tmp_path: Path, size: int) -> None:
    title = "f<$x_{1}$> \\frac 計算 é"
    for name, seconds in (("timed", 0.5), ("untimed", 0.0)):
        rows = [(one, (one + 1) % size, 10, one % 2, 8, seconds, seconds) for one in range(size)]
        traffic = Traffic(title, size, np.array(sorted(rows), LINKS))
        save_map(tmp_path / f"{name}.png", traffic)
        save_receivers(tmp_path / f"{name}-receivers.png", traffic)
    assert {imread(path).ndim for path in tmp_path.glob("*.png")} == {3}
    assert len(list(tmp_path.iterdir())) == 4


def test_hosts_and_hops_tell_how_far_bytes_go() -> None:
    traffic = _traffic(
        6,
        [(0, 1, 1, 0, 100, 0, 0), (0, 2, 1, 0, 10, 0, 0), (0, 5, 1, 0, 1, 0, 0)],
    )
    hosts = ["a", "a", "b", "b", "b", "b"]
    grid = Communicator("key", tuple(range(6)), (), "grid", (2, 3), (0, 1))
    hop_distances = maps.distances(traffic, hosts, [grid, Communicator("k", (0, 1))])
    assert (hop_distances.hosts, hop_distances.inside, hop_distances.across) == (2, 100, 11)
    # 0 to 1: a step; 0 to 2: a step round the ring of three; 0 to 5: that and one up.
    assert hop_distances.cartesian == [("grid", (2, 3), pytest.approx((100 + 10 + 2) / 111))]


def test_open_ends_of_a_grid_have_no_shorter_way() -> None:
    traffic = _traffic(4, [(0, 3, 1, 0, 100, 0, 0)])
    for period, hops in ((0, 3.0), (1, 1.0)):
        line = Communicator("key", (0, 1, 2, 3), (), "line", (4,), (period,))
        assert maps.distances(traffic, [], [line]).cartesian[0][2] == hops


def _across(traffic: Traffic, hosts: tuple[str, ...] | list[str]) -> int:
    return maps.distances(traffic, hosts).across


def test_ring_dealt_out_to_hosts_in_turn_is_put_together_again() -> None:
    traffic = _ring(16)
    hosts = [f"n{rank % 2}" for rank in range(16)]
    suggestion = placement.suggest(traffic, hosts)
    assert suggestion is not None
    assert suggestion.before == _across(traffic, hosts) == 16_000
    assert suggestion.after == _across(traffic, suggestion.hosts) == 2_000
    assert suggestion.saved == pytest.approx(14 / 16)
    # The lowest ranks stay where they are: a list that people can read.
    assert suggestion.hosts == ("n0",) * 8 + ("n1",) * 8


def test_placement_of_a_periodic_grid_is_one_of_cubes() -> None:
    side, hosts = 8, 8
    index = np.arange(side**3)
    place = np.array(np.unravel_index(index, (side,) * 3))
    rows: list[tuple[Any, ...]] = []
    for axis in range(3):
        other = place.copy()
        other[axis] = (other[axis] + 1) % side
        receiver = np.ravel_multi_index(tuple(other), (side,) * 3)
        rows += [(one, two, 1, 0, 1, 0, 0) for one, two in zip(index, receiver, strict=True)]
    traffic = _traffic(side**3, rows)
    slabs = [f"n{rank // (side**3 // hosts)}" for rank in index]
    suggestion = placement.suggest(traffic, slabs)
    assert suggestion is not None
    # Eight cubes of 4^3: six faces of 16 each, every face shared by two.
    assert suggestion.after == 8 * 6 * 16 // 2
    assert suggestion == placement.suggest(traffic, slabs)


@pytest.mark.parametrize("seed", range(6))
def test_shuffled_ring_is_found_again_and_rank_0_is_on_the_first_host(seed: int) -> None:
    shuffled = np.random.default_rng(seed).permutation(24)
    rows: list[tuple[Any, ...]] = [
        (shuffled[one], shuffled[one - 1], 1, 0, 1000, 0, 0) for one in range(24)
    ]
    suggestion = placement.suggest(_traffic(24, rows), ["n0"] * 8 + ["n1"] * 8 + ["n2"] * 8)
    assert suggestion is not None
    assert suggestion.after == 3_000
    assert suggestion.hosts[0] == "n0"


def test_passes_of_moves_mend_a_bad_start() -> None:
    # Two cliques of eight, tied by one light tie, on alternate numbers.
    rows = [(one, other, 1, 0, 100, 0, 0) for one in range(16) for other in range(one + 2, 16, 2)]
    links = _traffic(16, [*rows, (0, 1, 1, 0, 1, 0, 0)]).links
    graph = placement.Graph(links["sender"], links["receiver"], links["bytes"], 16)
    mended = placement.improved(graph, np.arange(16) < 8)
    assert graph.across(mended.astype(np.int64)) == 1
    assert mended.sum() == 8


def test_hosts_of_unequal_size_keep_their_numbers_of_ranks() -> None:
    hosts = ["big", "small", "big", "big", "small", "big", "big"]
    suggestion = placement.suggest(_ring(7), hosts)
    assert suggestion is not None
    assert suggestion.hosts.count("small") == 2
    assert suggestion.after == 2_000


@pytest.mark.parametrize(
    "hosts",
    [
        ["a"] * 4,
        ["a", "b", "", "b"],
        ["a", "a", "b", "b"],
        [],
        ["a", "b"],
        ["a", "b\nrank 9=c", "a", "b\nrank 9=c"],
        ["a", "-x", "a", "-x"],
    ],
    ids=[
        *("one host", "unknown host", "nothing to gain", "no hosts", "other number of ranks"),
        *("line in a name", "option in a name"),
    ],
)
def test_no_placement_is_suggested_where_there_is_nothing_to_say(hosts: list[str]) -> None:
    assert placement.suggest(_ring(4), hosts) is None


def test_ranks_without_messages_need_no_other_placement() -> None:
    assert placement.suggest(_traffic(4, []), ["a", "b", "a", "b"]) is None


def test_host_files_name_the_host_of_each_rank_in_order() -> None:
    suggestion = placement.Placement(("a", "b", "a"), 10, 5, 20)
    assert suggestion.host_list == "a\nb\na\n"
    assert suggestion.rankfile == "rank 0=a slot=0\nrank 1=b slot=0\nrank 2=a slot=1\n"


def test_maps_replace_those_of_an_earlier_analysis(tmp_path: Path) -> None:
    (tmp_path / "maps").mkdir()
    (tmp_path / "maps" / "stale.csv").touch()
    routine = Traffic("gather", 4, _ring(4).links, ("program", "gather"))
    other = Traffic("scatter", 4, _ring(4).links, ("program", "scatter"))
    better = placement.Placement(("a", "b"), 10, 5, 20)
    pictures = write_maps(tmp_path, _ring(4), [routine, other], better)
    names = {path.name for path in (tmp_path / "maps").iterdir()}
    assert "stale.csv" not in names
    assert {"pairs.csv", "receivers.csv", "routines.csv", "map.png", "receivers.png"} <= names
    assert {"routine-1-map.png", "routine-2-pairs.csv", "placement-hosts.txt"} <= names
    assert [(title, kind) for title, kind, _ in pictures[:3]] == [
        ("whole run", "map"),
        ("whole run", "receivers"),
        ("gather", "map"),
    ]
    assert all((tmp_path / name).is_file() for _, _, name in pictures)
    assert [path.name for path in tmp_path.iterdir()] == ["maps"]


def test_maps_of_a_run_without_messages_have_tables_and_no_pictures(tmp_path: Path) -> None:
    assert write_maps(tmp_path, _traffic(2, []), [], None) == []
    assert sorted(path.suffix for path in (tmp_path / "maps").iterdir()) == [".csv"] * 3


def test_a_file_in_the_place_of_the_maps_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "maps").write_text("mine")
    with refused(location="maps$", problem="not a folder", remedy="move it"):
        write_maps(tmp_path, _ring(4), [], None)
    assert (tmp_path / "maps").read_text() == "mine"
