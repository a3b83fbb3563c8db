"""Claims about the explorer's data: what is read, put together, packed and written as one file."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import matplotlib
import numpy as np
import pytest
from explorer_samples import write_sample
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.scope.diagnosis.findings import SPENT_ONCE
from haloscope.scope.explorer import page as pages
from haloscope.scope.explorer import traffic
from haloscope.scope.explorer.embed import write_page
from haloscope.scope.explorer.pack import compressed, pack
from haloscope.scope.explorer.report import Report
from haloscope.scope.explorer.stored import Stored
from haloscope.scope.explorer.topologies import topologies
from haloscope.scope.measurement import Communicator, Location, Node, Region
from haloscope.scope.metrics import METRICS, NUMBER
from haloscope.scope.result import FILE, PAIRS, WAITS, Result
from haloscope.scope.subtrees import MANY, Subtrees

STATIC = Path(pages.__file__).with_name("static")


def _unpack(data: bytes) -> tuple[Any, dict[str, NDArray[Any]]]:
    """A pack as the page reads it."""
    length = struct.unpack("<I", data[:4])[0]
    head = json.loads(data[8 : 8 + length])
    arrays = {
        name: np.frombuffer(data, f"<{kind}", count, 8 + length + offset)
        for name, (kind, offset, count) in head["arrays"].items()
    }
    return head["meta"], arrays


def _packs(text: str) -> dict[str, bytes]:
    """The packs in a page, decompressed."""
    found = re.findall(r'<script type="text/plain" data-pack="([\w-]+)">([^<]*)</script>', text)
    return {name: gzip.decompress(base64.b64decode(data)) for name, data in found}


@pytest.fixture
def sample(tmp_path: Path) -> tuple[Path, Result]:
    """A measurement of nine ranks without a trace."""
    return tmp_path / "run", write_sample(tmp_path / "run", ranks=9, steps=2, trace=False)


# -- packs ----------------------------------------------------------------------------------------


def test_packs_hold_what_was_put_in() -> None:
    arrays = {
        "f": np.array([1.5, -2.0]),
        "i": np.array([1, 2, 3], np.int32),
        "b": np.array([7, 255], np.uint8),
        "l": np.array([1 << 40, -1]),
        "t": np.array([[True, False]]),
    }
    meta, found = _unpack(pack({"a": ["ä", 1]}, arrays))
    assert meta == {"a": ["ä", 1]}
    for name, values in arrays.items():
        assert np.array_equal(found[name], values.ravel())


def test_what_json_cannot_say_does_not_reach_the_page() -> None:
    meta, found = _unpack(
        pack(
            {
                "nan": float("nan"),
                "lone": "\ud800x",
                "big": 10**400,
                "deep": [[[[[[[[[[[[[1]]]]]]]]]]]]],
            },
            {"values": np.array([np.nan, np.inf, 1.0])},
        )
    )
    assert meta["nan"] is None
    assert meta["lone"] == "?x"
    assert meta["big"] is None
    assert found["values"].tolist() == [0.0, 0.0, 1.0]


def test_compression_gives_the_same_bytes_again() -> None:
    assert compressed(b"haloscope" * 100) == compressed(b"haloscope" * 100)


# -- page -----------------------------------------------------------------------------------------


def test_policy_allows_the_page_its_own_script_and_nothing_else() -> None:
    text = pages.page()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert len(scripts) == 1
    wanted = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{wanted}'" in policy[1]
    assert "default-src 'none'" in policy[1]
    assert "unsafe" not in policy[1]
    assert "connect-src 'self'" in policy[1]
    assert "connect-src 'none'" in pages.page({})


def test_page_names_no_other_machine() -> None:
    assert not re.findall(r"(?:https?:)?//[a-z]+\.[a-z]+", pages.page())


def test_script_never_makes_markup_of_data() -> None:
    for path in STATIC.glob("*.js"):
        text = path.read_text()
        assert text.startswith("// "), f"{path.name} does not say why it exists"
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word not in text, path.name


def test_every_module_is_part_of_the_page() -> None:
    text = pages.page()
    for path in STATIC.glob("*.js"):
        assert f'modules["{path.name}"] =' in text


def test_modules_in_a_circle_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "main.js").write_text('import { a } from "./other.js";\n')
    (tmp_path / "other.js").write_text('import { b } from "./main.js";\n')
    monkeypatch.setattr(pages, "_STATIC", tmp_path)
    with pytest.raises(ValueError, match="in a circle"):
        pages._linked()


def test_style_or_script_that_would_end_its_element_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "main.js").write_text('const text = "</script>";\n')
    monkeypatch.setattr(pages, "_STATIC", tmp_path)
    with pytest.raises(ValueError, match="holds"):
        pages._linked()


@pytest.mark.parametrize("name", ["viridis", "cividis"])
def test_scales_are_those_of_matplotlib(name: str) -> None:
    text = (STATIC / "colours.js").read_text()
    block = re.search(rf"  {name}:\n((?:\s+\"[0-9a-f]+\"[ +,]*\n)+)", text)
    assert block is not None
    digits = "".join(re.findall(r'"([0-9a-f]+)"', block[1]))
    anchors = np.array([[int(digits[p + c : p + c + 2], 16) for c in (0, 2, 4)]
                        for p in range(0, len(digits), 6)])  # fmt: skip
    wanted = 255 * matplotlib.colormaps[name](np.linspace(0, 1, len(anchors)))[:, :3]
    assert np.abs(anchors - wanted).max() <= 0.5001
    between = np.stack(
        [np.interp(np.linspace(0, 32, 257), np.arange(33), anchors[:, c]) for c in range(3)], 1
    )
    exact = 255 * matplotlib.colormaps[name](np.linspace(0, 1, 257))[:, :3]
    assert np.abs(between - exact).max() < 6


# -- results --------------------------------------------------------------------------------------


@pytest.mark.parametrize("exclusive", [False, True])
def test_rows_equal_those_of_the_whole_result(sample: tuple[Path, Result], exclusive: bool) -> None:
    folder, result = sample
    report = Report(folder)
    random = np.random.default_rng(5)
    for name in ("time", "mpi", "late_sender", "visits", "gpu"):
        values = result.exclusive(name) if exclusive else result.value(name)
        for share in (0.1, 0.5, 0.9, 1.0):
            nodes = random.random(len(result.nodes)) < share
            row = report.row(0, name, nodes, exclusive)
            expected = values[nodes].sum(axis=0)
            assert np.allclose(row, expected, rtol=1e-11, atol=1e-12 * result.total("time"))


def test_sums_are_there_also_where_the_file_has_none(sample: tuple[Path, Result]) -> None:
    folder, result = sample
    with h5py.File(folder / FILE, "r+") as file:
        del file["sums"]
    stored = Stored(folder)
    nodes, places = stored.sums("time")
    assert np.allclose(nodes, result.value("time").sum(axis=1))
    assert np.allclose(places, result.value("time").sum(axis=0))


def test_large_metric_is_read_a_few_rows_at_a_time(
    sample: tuple[Path, Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, result = sample
    stored = Stored(folder)
    monkeypatch.setattr("haloscope.scope.explorer.stored._MOST_BLOCK_BYTES", 200)
    monkeypatch.setattr("haloscope.scope.explorer.stored._KEPT_BYTES", 400)
    nodes = np.arange(len(result.nodes)) % 3 == 0
    assert np.allclose(stored.row("time", nodes), result.value("time")[nodes].sum(axis=0))
    assert stored._kept_bytes <= 400


def test_file_that_leads_to_other_files_is_refused(sample: tuple[Path, Result]) -> None:
    folder, _ = sample
    (folder / "secret.bin").write_bytes(b"\1" * 80)
    with h5py.File(folder / FILE, "r+") as file:
        del file["sums/time"]
        file["sums/time"] = h5py.ExternalLink("elsewhere.h5", "/values")
    with pytest.raises(InputError, match="links to other files"):
        Stored(folder)
    with h5py.File(folder / FILE, "r+") as file:
        del file["sums/time"]
        file.create_dataset(
            "sums/time/nodes", (10,), "f8", external=[(str(folder / "secret.bin"), 0, 80)]
        )
    with pytest.raises(InputError, match="other files"):
        Stored(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"nodes": [Node(-1, 0), Node(5, 0)]},
        {"nodes": [Node(-1, 99)]},
        {"nodes": []},
        {"locations": [Location(7, 0)]},
        {"size": 0},
    ],
)
def test_result_whose_numbers_lead_nowhere_is_one_clear_error(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    fields: dict[str, Any] = {
        "about": {}, "size": 1, "regions": [Region("a")], "nodes": [Node(-1, 0)], "comms": [],
        "locations": [Location(0, 0)], "values": {},
    }  # fmt: skip
    Result(**{**fields, **change}).save(tmp_path / FILE)
    with pytest.raises(InputError, match="not a result that this version reads"):
        Stored(tmp_path)


def test_pairs_and_waits_that_do_not_fit_are_left_out_and_told(
    sample: tuple[Path, Result],
) -> None:
    folder, result = sample
    pairs, waits = result.pairs.copy(), np.zeros(6, WAITS)
    pairs["receiver"][0] = 900
    waits["node"][:3] = -5
    waits["end"][3] = np.nan
    waits["delay_node"][4] = len(result.nodes)
    result.pairs, result.waits = pairs, waits
    result.save(folder / FILE)
    stored = Stored(folder)
    assert len(stored.result.pairs) == len(pairs) - 1
    assert len(stored.result.waits) == len(waits) - 5
    assert len(stored.left_out) == 2


def test_sums_over_large_subtrees_are_kept_and_not_added_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(5)
    count, places = 400, 6
    # Two roots; subtrees are not one stretch of numbers.
    parents = [-1, 0, -1] + [int(random.integers(max(0, n - 60), n)) for n in range(3, count)]
    values = random.random((count, places)) * (random.random((count, 1)) < 0.7)
    Result(
        {}, places, [Region("f", "function")], [Node(parent, 0) for parent in parents], [],
        [Location(rank, 0) for rank in range(places)], {"time": values, "computation": values},
    ).save(tmp_path / FILE)  # fmt: skip
    stored = Stored(tmp_path)
    kept = Subtrees(parents).nodes
    assert 2 < len(kept) <= count // MANY
    for node in range(count):
        inside = np.zeros(count, bool)
        inside[node] = True
        for below in range(node + 1, count):
            inside[below] = parents[below] >= 0 and inside[parents[below]]
        assert np.allclose(stored.row("time", inside), values[inside].sum(axis=0), rtol=1e-12)
        # Without the sums all rows are read, in one piece here.
        monkeypatch.setattr(stored, "_has_sums", False)
        assert np.allclose(stored.row("time", inside), values[inside].sum(axis=0), rtol=1e-12)
        monkeypatch.setattr(stored, "_has_sums", True)
        # A set that leaves something below out is added up row by row.
        if inside.sum() > 1:
            inside[np.flatnonzero(inside)[-1]] = False
            assert np.allclose(stored.row("time", inside), values[inside].sum(axis=0), rtol=1e-12)


def test_a_subtree_is_a_few_sums_and_few_rows() -> None:
    random = np.random.default_rng(1)
    parents = [-1] + [int(random.integers(max(0, n - 40), n)) for n in range(1, 1000)]
    subtrees = Subtrees(parents)
    assert len(subtrees.nodes) <= 1000 // MANY
    inside = np.zeros(1000, bool)
    inside[1] = True
    for below in range(2, 1000):
        inside[below] = inside[parents[below]]
    sums, rest = subtrees.parts(inside)
    assert len(sums) >= 1
    assert rest.sum() < 2 * MANY < inside.sum()
    assert Subtrees([-1, 5, 7]).nodes.tolist() == []


@pytest.mark.parametrize("nodes", [[[1]], [5, 3], np.zeros(10**6, np.int64), [0.5], [-4, 900]])
def test_kept_sums_that_do_not_fit_are_not_used(tmp_path: Path, nodes: Any) -> None:
    values = np.ones((300, 2))
    Result(
        {}, 2, [Region("f", "function")], [Node(-1, 0)] + [Node(n // 2, 0) for n in range(299)], [],
        [Location(0, 0), Location(1, 0)], {"time": values},
    ).save(tmp_path / FILE)  # fmt: skip
    inside = np.ones(300, bool)
    inside[0] = False
    with h5py.File(tmp_path / FILE, "a") as file:
        file["subtrees/values/time"][...] = 1000.0
    assert Stored(tmp_path).row("time", inside).min() > 1000
    with h5py.File(tmp_path / FILE, "a") as file:
        del file["subtrees/nodes"]
        file["subtrees/nodes"] = nodes
    assert Stored(tmp_path).row("time", inside).tolist() == [299.0, 299.0]


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
    told = f'{{"measuring": {{"text": "Measuring took it.", "share": {share}}}}}'
    (folder / "findings.json").write_text(told)
    measuring = Report(folder).meta()["sides"][0]["measuring"]
    assert measuring == {"text": "Measuring took it.", "is_large": is_large}


def test_findings_name_metric_call_path_and_ranks_of_the_page(
    sample: tuple[Path, Result],
) -> None:
    folder, result = sample
    report = Report(folder)
    written = json.loads((folder / "findings.json").read_text())["findings"]
    found = report.meta()["sides"][0]["findings"]
    assert len(found) == len(written) > 2
    for one, source in zip(found, written, strict=True):
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
    found = [{"metric": "mpi"} | ({} if one is None else {"once": one}) for one in once]
    (folder / "findings.json").write_text(json.dumps({"findings": found}))
    told = [one["heading"] for one in Report(folder).meta()["sides"][0]["findings"]]
    assert told == [SPENT_ONCE if number == begin else "" for number in range(len(once))]


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

    def told(*some: Path) -> list[str]:
        return [side["folder"] for side in Report(*some).meta()["sides"]]

    assert told(folders[0]) == ["run/measurement"]
    assert told(folders[1]) == ["waits"]
    assert told(folders[1], folders[2]) == ["a/waits", "b/waits"]


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
    found = topologies([result], 6)
    assert [one["dims"] for one in found] == ([dims] if dims else [])
    assert all(one["axes"] == ["z", "y", "x"] for one in found)
    assert all(one["members"] == list(range(6)) for one in found)


# -- messages -------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [2, 5, 64])
@pytest.mark.parametrize("window", [((0, 9), (0, 9)), ((2, 7), (3, 9)), ((4, 5), (4, 6))])
def test_cells_of_the_map_add_up_to_the_pairs_in_them(
    sample: tuple[Path, Result], most: int, window: tuple[tuple[int, int], tuple[int, int]]
) -> None:
    _, result = sample
    senders, receivers = window
    found = traffic.cells(result.pairs, senders, receivers, most)
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
    assert found["cell"].tolist() == sorted(expected)
    for place, cell in enumerate(sorted(expected)):
        assert found["pairs"][place] == len(expected[cell][0])
        assert found["bytes"][place] == expected[cell][1]
        assert found["seconds"][place] == pytest.approx(expected[cell][2])


def test_receivers_count_senders_of_data_apart_from_senders_of_nothing() -> None:
    pairs = np.zeros(4, PAIRS)
    pairs["sender"], pairs["receiver"] = [0, 0, 1, 2], [3, 3, 3, 1]
    pairs["messages"], pairs["empty"] = [5, 2, 4, 1], [5, 1, 4, 0]
    found = traffic.by_receiver(pairs, 4)
    assert found["senders"].tolist() == [0, 1, 0, 1]
    assert found["empty_senders"].tolist() == [0, 0, 0, 1]
    assert found["messages"].tolist() == [0, 1, 0, 11]


# -- one file -------------------------------------------------------------------------------------


def _row_of(packs: dict[str, bytes], metric: str, nodes: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Values by location, exclusive along the metrics, as the page puts them together."""
    _, values = _unpack(packs["values0"])
    meta, _ = _unpack(packs["head"])
    places = len(meta["places"])
    total = np.zeros(places)
    high = low = 0
    for row, kind in enumerate(values["kind"].tolist()):
        numbers = np.zeros(places)
        if kind in (1, 2):
            numbers += values["high_bytes"][high : high + places]
            high += places
        if kind == 2:
            numbers = 256 * numbers + values["low_bytes"][low : low + places]
            low += places
        if values["metric"][row] == NUMBER[metric] and nodes[values["node"][row]]:
            total += values["low"][row] + values["step"][row] * numbers
    return total


def test_values_in_a_file_are_those_of_the_result_to_16_bits(
    sample: tuple[Path, Result], tmp_path: Path
) -> None:
    folder, result = sample
    size, left_out = write_page(Report(folder), tmp_path / "page.html")
    assert size == (tmp_path / "page.html").stat().st_size
    assert left_out == []
    packs = _packs((tmp_path / "page.html").read_text())
    for name in ("computation", "late_sender", "visits", "messages_sent", "wait_at_barrier"):
        for node in range(len(result.nodes)):
            nodes = np.arange(len(result.nodes)) == node
            expected = result.exclusive(name)[node]
            step = (expected.max() - expected.min()) / 65535
            assert np.abs(_row_of(packs, name, nodes) - expected).max() <= 0.5001 * step + 1e-12


def test_file_keeps_its_limit_by_leaving_small_values_out_and_says_so(
    tmp_path: Path,
) -> None:
    random = np.random.default_rng(2)
    nodes = [Node(-1, 0)] + [Node(0, 1, str(site)) for site in range(120)]
    weights = 10.0 ** -np.arange(0, 12.1, 0.1)
    time = random.random((121, 400)) * weights[:, None]
    Result(
        {}, 400, [Region("p"), Region("f")], nodes, [], [Location(r, 0) for r in range(400)],
        {"time": time},
    ).save(tmp_path / FILE)  # fmt: skip
    most = len(pages.page({})) + 60_000
    size, left_out = write_page(Report(tmp_path), tmp_path / "page.html", most)
    assert size <= most
    assert any("small values" in note for note in left_out)
    packs = _packs((tmp_path / "page.html").read_text())
    meta, arrays = _unpack(packs["head"])
    assert meta["left_out"] == left_out
    assert np.allclose(arrays["nodes0"], time.sum(axis=1))
    # The greatest rows are exact to 16 bits, the smallest keep their sums.
    first = np.arange(121) == 0
    assert np.abs(_row_of(packs, "time", first) - time[0]).max() < 1e-4
    assert _row_of(packs, "time", ~first).sum() == pytest.approx(time[1:].sum(), rel=1e-3)


def test_file_holds_no_markup_but_its_own(tmp_path: Path) -> None:
    write_sample(tmp_path / "run", ranks=4, steps=1, hostile=True)
    write_page(Report(tmp_path / "run"), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "hacked" not in text
    assert "onerror" not in text


# -- command --------------------------------------------------------------------------------------


def test_command_writes_one_file(
    sample: tuple[Path, Result], tmp_path: Path, call: Callable[..., tuple[int, str, str]]
) -> None:
    code, out, _ = call("explore", sample[0], "--html", tmp_path / "page.html")
    assert code == 0
    assert re.fullmatch(r".*page\.html: [\d.]+ MB\n", out)
    assert set(_packs((tmp_path / "page.html").read_text())) == {
        "head", "values0", "pairs0", "waits0",
    }  # fmt: skip


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
        "import sys, haloscope.cli; "
        "sys.exit(any(name.startswith(('haloscope.scope.explorer', 'http.server')) "
        "for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
