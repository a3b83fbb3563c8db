"""Claims about what the explorer reads of a result: rows, kept sums, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from refusals import refused

from haloscope.scope.analysis.result import FILE, MANY, WAITS, Result, Subtrees
from haloscope.scope.explorer.report import Report
from haloscope.scope.explorer.stored import Stored
from haloscope.scope.trace.measurement import Location, Node, Region


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
    with refused(problem="links to other files"):
        Stored(folder)
    with h5py.File(folder / FILE, "r+") as file:
        del file["sums/time"]
        file.create_dataset(
            "sums/time/nodes", (10,), "f8", external=[(str(folder / "secret.bin"), 0, 80)]
        )
    with refused(problem="data in other files"):
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
    with refused(location=FILE, problem="cannot read the analysis", remedy="haloscope analyze"):
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


@pytest.mark.parametrize("of", ["values", "sums"])
def test_damage_within_values_is_one_line_whenever_they_are_read(
    sample: tuple[Path, Result], of: str
) -> None:
    folder, _ = sample
    names = ["values/time"] if of == "values" else ["sums/time/nodes", "sums/time/locations"]
    with h5py.File(folder / FILE, "r+") as file:
        for name in names:
            data = file[name][()]
            del file[name]
            file.create_dataset(name, data=data, chunks=data.shape, fletcher32=True)
        places = [file[name].id.get_chunk_info(0).byte_offset for name in names]
    content = bytearray((folder / FILE).read_bytes())
    for place in places:
        content[place] ^= 255
    (folder / FILE).write_bytes(content)
    stored = Stored(folder)
    with refused(
        location=r"analysis\.h5", problem="is damaged", remedy="run haloscope analyze .* again"
    ):
        stored.matrix("time") if of == "values" else stored.sums("time")
    stored.close()
