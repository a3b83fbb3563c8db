"""Claims about the explorer's data: how findings, comparisons and messages are put together."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from explorer_samples import write_sample

from haloscope.scope.analysis.metrics import METRICS
from haloscope.scope.analysis.result import FILE, PAIRS, Result
from haloscope.scope.diagnosis.findings import SPENT_ONCE
from haloscope.scope.explorer import report as reports
from haloscope.scope.explorer.report import Report, topologies
from haloscope.scope.trace.measurement import Communicator, Location, Node, Region

# -- findings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    ["{", "[1, {}]", '{"findings": 3}', '{"measuring": 3}', '{"measuring": {"text": 3}}',
     '{"notes": "x"}', "[" * 5000, '"x"'],
)  # fmt: skip
def test_findings_that_are_none_leave_the_report_readable(
    sample: tuple[Path, Result], content: str
) -> None:
    folder, _ = sample
    (folder / "findings.json").write_text(content)
    side = Report(folder).meta()["sides"][0]
    assert all(finding["metric"] == -1 for finding in side["findings"])
    assert side["measuring"] is None
    assert side["notes"] == []


@pytest.mark.parametrize(
    ("share", "is_large"), [("0.049", False), ("0.05", True), ("NaN", False), ('"1"', False)]
)
def test_what_measuring_took_is_large_from_the_share_of_the_terminal(
    sample: tuple[Path, Result], share: str, is_large: bool
) -> None:
    folder, _ = sample
    content = f'{{"measuring": {{"text": "The measurement took it.", "share": {share}}}}}'
    (folder / "findings.json").write_text(content)
    measuring = Report(folder).meta()["sides"][0]["measuring"]
    assert measuring == {"text": "The measurement took it.", "is_large": is_large}


def test_findings_name_metric_call_path_and_ranks_of_the_page(
    sample: tuple[Path, Result],
) -> None:
    folder, result = sample
    report = Report(folder)
    written = json.loads((folder / "findings.json").read_text())["findings"]
    findings = report.meta()["sides"][0]["findings"]
    assert len(findings) == len(written) > 2
    for one, source in zip(findings, written, strict=True):
        assert METRICS[one["metric"]].name == source["metric"]
        assert list(result.path_of(one["node"])) == source["call_path"]
        assert one["ranks"] == source["ranks"]


@pytest.mark.parametrize(
    ("once", "begin"),
    [([False, False, True, True], 2), ([True, True], None), ([True, False], None),
     ([False, "true"], None), ([None, None], None)],
)  # fmt: skip
def test_heading_of_the_terminal_stands_above_the_first_finding_that_is_spent_once(
    sample: tuple[Path, Result], once: list[Any], begin: int | None
) -> None:
    folder, _ = sample
    findings = [{"metric": "mpi"} | ({} if one is None else {"once": one}) for one in once]
    (folder / "findings.json").write_text(json.dumps({"findings": findings}))
    headings = [one["heading"] for one in Report(folder).meta()["sides"][0]["findings"]]
    assert headings == [SPENT_ONCE if number == begin else "" for number in range(len(once))]


def test_notes_of_the_analysis_reach_the_page_and_older_folders_have_none(
    sample: tuple[Path, Result],
) -> None:
    folder, _ = sample
    written = json.loads((folder / "findings.json").read_text())
    assert Report(folder).meta()["sides"][0]["notes"] == written.pop("notes") != []
    for older in (written, written["findings"]):
        (folder / "findings.json").write_text(json.dumps(older))
        side = Report(folder).meta()["sides"][0]
        assert side["notes"] == side["left_out"] == []
        assert len(side["findings"]) == len(written["findings"])


# -- comparison -----------------------------------------------------------------------------------


def test_comparison_matches_call_paths_by_name_and_ranks_by_number(tmp_path: Path) -> None:
    def write(name: str, nodes: list[Node], ranks: int, time: list[float]) -> Result:
        regions = [Region("program"), Region("a"), Region("b"), Region("only " + name)]
        values = np.outer(time, np.arange(1.0, ranks + 1))
        result = Result({}, ranks, regions, nodes, [], [Location(r, 0) for r in range(ranks)],
                        {"time": values})  # fmt: skip
        (tmp_path / name).mkdir()
        result.save(tmp_path / name / FILE)
        return result

    # The same tree in another order, with a call site split in two, and a path of its own each.
    write("x", [Node(-1, 0), Node(0, 1, "s1"), Node(0, 1, "s2"), Node(1, 2), Node(0, 3)], 2,
          [1, 2, 4, 8, 16])  # fmt: skip
    write("y", [Node(-1, 0), Node(0, 3), Node(0, 1), Node(2, 2)], 3, [100, 200, 300, 400])
    report = Report(tmp_path / "x", tmp_path / "y")
    names = [" > ".join(_names(report, node)) for node in range(len(report.parents))]
    assert sorted(names) == [
        "program", "program > a", "program > a > b", "program > only x", "program > only y",
    ]  # fmt: skip
    alone = np.zeros(len(names), bool)
    alone[names.index("program > a")] = True
    assert report.row(0, "time", alone, False).tolist() == [6, 12, 0]
    assert report.row(1, "time", alone, False).tolist() == [300, 600, 900]
    arrays = report.arrays()
    by_name = dict(zip(names, arrays["nodes1"][0] - arrays["nodes0"][0], strict=True))
    assert by_name["program > a > b"] == 400 * 6 - 8 * 3
    assert by_name["program > only x"] == -16 * 3
    assert by_name["program > only y"] == 200 * 6


def test_comparison_matches_streams_with_streams(tmp_path: Path) -> None:
    def write(name: str, kinds: str, time: list[float]) -> None:
        places = [
            Location(0, number, "stream" if kind == "s" else "thread")
            for number, kind in enumerate(kinds)
        ]
        result = Result({}, 1, [Region("program")], [Node(-1, 0)], [], places,
                        {"time": np.array([time])})  # fmt: skip
        (tmp_path / name).mkdir()
        result.save(tmp_path / name / FILE)

    write("x", "tsst", [1, 2, 4, 8])
    write("y", "tts", [10, 20, 40])
    report = Report(tmp_path / "x", tmp_path / "y")
    assert [place.kind for place in report.places] == ["thread"] * 2 + ["stream"] * 2
    all_nodes = np.ones(1, bool)
    assert report.row(0, "time", all_nodes, False).tolist() == [1, 8, 2, 4]
    assert report.row(1, "time", all_nodes, False).tolist() == [10, 20, 40, 0]


def _names(report: Report, node: int) -> list[str]:
    names: list[str] = []
    while node >= 0:
        names.insert(0, report.name_of(node))
        node = int(report.parents[node])
    return names


def test_folders_whose_names_say_too_little_are_told_with_the_one_that_holds_them(
    tmp_path: Path,
) -> None:
    folders = [tmp_path / name for name in ("run/measurement", "a/waits", "b/waits")]
    for folder in folders:
        write_sample(folder, ranks=2, steps=1, trace=False)

    def folder_names(*paths: Path) -> list[str]:
        return [side["folder"] for side in Report(*paths).meta()["sides"]]

    assert folder_names(folders[0]) == ["run/measurement"]
    assert folder_names(folders[1]) == ["waits"]
    assert folder_names(folders[1], folders[2]) == ["a/waits", "b/waits"]


# -- topologies -----------------------------------------------------------------------------------


def test_topologies_that_do_not_fit_are_left_out(tmp_path: Path) -> None:
    comms = [
        Communicator("1", (0, 1, 2, 3), (), "grid", (2, 2), (0, 1)),
        Communicator("2", (0, 1), (), "part", (2,), (0,)),
        Communicator("3", (0, 1, 2), (), "wrong", (2, 2), (0, 0)),
        Communicator("4", (0, 9), (), "far", (2,), (0,)),
        Communicator("5", (0, 1, 2, 3), (), "plain", (), ()),
    ]
    Result({}, 4, [Region("p")], [Node(-1, 0)], comms, [Location(r, 0) for r in range(4)], {}).save(
        tmp_path / FILE
    )
    assert [one["name"] for one in Report(tmp_path).meta()["topologies"]] == ["grid", "part"]


@pytest.mark.parametrize(
    ("blocks", "dims"),
    [
        ([3, 2, 1], [1, 2, 3]),
        ([2, 2, 1], None),
        ([1, 1], None),
        ("x", None),
        ([6, "a"], None),
        ([3, 2, 1, 1], None),
    ],
)
def test_blocks_of_a_run_are_a_topology_where_each_rank_has_one(blocks: Any, dims: Any) -> None:
    places = [Location(rank, 0) for rank in range(6)]
    result = Result({"blocks": blocks}, 6, [], [], [], places, {})
    grids = topologies([result], 6)
    assert [one["dims"] for one in grids] == ([dims] if dims else [])
    assert all(one["axes"] == ["z", "y", "x"] for one in grids)
    assert all(one["members"] == list(range(6)) for one in grids)


# -- messages -------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [2, 5, 64])
@pytest.mark.parametrize("window", [((0, 9), (0, 9)), ((2, 7), (3, 9)), ((4, 5), (4, 6))])
def test_cells_of_the_map_add_up_to_the_pairs_in_them(
    sample: tuple[Path, Result], most: int, window: tuple[tuple[int, int], tuple[int, int]]
) -> None:
    _, result = sample
    senders, receivers = window
    cells = reports.cells(result.pairs, senders, receivers, most)
    columns = min(most, senders[1] - senders[0])
    expected: dict[int, list[Any]] = {}
    for pair in result.pairs:
        if senders[0] <= pair["sender"] < senders[1] and (
            receivers[0] <= pair["receiver"] < receivers[1]
        ):
            rows = min(most, receivers[1] - receivers[0])
            column = (pair["sender"] - senders[0]) * columns // (senders[1] - senders[0])
            row = (pair["receiver"] - receivers[0]) * rows // (receivers[1] - receivers[0])
            cell = expected.setdefault(int(row * columns + column), [set(), 0, 0.0])
            cell[0].add((int(pair["sender"]), int(pair["receiver"])))
            cell[1] += int(pair["bytes"])
            cell[2] += float(pair["seconds"])
    assert cells["cell"].tolist() == sorted(expected)
    for place, cell in enumerate(sorted(expected)):
        assert cells["pairs"][place] == len(expected[cell][0])
        assert cells["bytes"][place] == expected[cell][1]
        assert cells["seconds"][place] == pytest.approx(expected[cell][2])


def test_receivers_count_senders_of_data_apart_from_senders_of_nothing() -> None:
    pairs = np.zeros(4, PAIRS)
    pairs["sender"], pairs["receiver"] = [0, 0, 1, 2], [3, 3, 3, 1]
    pairs["messages"], pairs["empty"] = [5, 2, 4, 1], [5, 1, 4, 0]
    receivers = reports.by_receiver(pairs, 4)
    assert receivers["senders"].tolist() == [0, 1, 0, 1]
    assert receivers["empty_senders"].tolist() == [0, 0, 0, 1]
    assert receivers["messages"].tolist() == [0, 1, 0, 11]


# -- command --------------------------------------------------------------------------------------


def test_command_says_what_a_folder_lacks(
    tmp_path: Path, call: Callable[..., tuple[int, str, str]]
) -> None:
    code, _, error = call("explore", tmp_path / "none")
    assert (code, error.count("\n")) == (2, 1)
    assert "is not a folder" in error
    code, _, error = call("explore", tmp_path)
    assert (code, error.count("\n")) == (2, 1)
    assert f"haloscope analyze {tmp_path}" in error
    (tmp_path / FILE).write_bytes(b"no HDF5")
    code, _, error = call("explore", tmp_path)
    assert (code, error.count("\n")) == (2, 1)


def test_command_finds_the_measurement_in_the_folder_of_a_run(tmp_path: Path) -> None:
    write_sample(tmp_path / "measurement", ranks=2, steps=1, trace=False)
    assert Report(tmp_path).size == 2


def test_other_commands_load_nothing_of_the_explorer() -> None:
    code = (
        "import sys, haloscope.commands.cli; "
        "sys.exit(any(name.startswith(('haloscope.scope.explorer', 'http.server')) "
        "for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
