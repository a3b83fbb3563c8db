"""Claims about a measurement as arrays: `haloscope.scope.open`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from refusals import refused
from synthetic_traces import write_synthetic
from trace_text import parse, write

import haloscope.scope
from haloscope.scope.analysis.analyze import analyze
from haloscope.scope.analysis.recorded_run import RecordedRun

LATE = Path(__file__).with_name("traces") / "late_sender.trace"


@pytest.fixture
def late(tmp_path: Path) -> RecordedRun:
    """The trace of one late sender."""
    write(parse(LATE.read_text()), tmp_path)
    return haloscope.scope.open(tmp_path)


def test_the_call_tree_has_the_time_of_every_path(late: RecordedRun):
    tree = late.call_tree("time", "late_sender")
    assert {len(column) for column in tree.values()} == {len(late.result.nodes)}
    own = dict(zip(tree["path"].tolist(), tree["time"].tolist(), strict=True))
    assert sum(own.values()) == pytest.approx(late.result.total("time"))
    whole = late.call_tree("time", inclusive=True)
    roots = whole["parent"] == -1
    assert whole["time"][roots].sum() == pytest.approx(sum(own.values()))
    deepest = tree["path"].tolist()[int(np.argmax(tree["depth"]))]
    assert deepest.count("/") == tree["depth"].max()


def test_waits_name_path_cause_and_time(late: RecordedRun):
    waits = late.waits()
    metrics = waits["metric"].tolist()
    (row,) = (number for number, name in enumerate(metrics) if name == "late_sender")
    length = waits["end"][row] - waits["begin"][row]
    assert length == pytest.approx(late.metric("late_sender").sum())
    assert waits["path"][row].endswith("MPI_Recv")
    assert waits["cause_rank"][row] != waits["rank"][row]


def test_metrics_are_listed_with_their_parents_and_totals(late: RecordedRun):
    metrics = late.metrics()
    totals = dict(zip(metrics["name"].tolist(), metrics["total"].tolist(), strict=True))
    assert totals["late_sender"] == late.result.total("late_sender") > 0
    assert set(metrics["parent"].tolist()) <= {"", *totals}


def test_events_are_in_seconds_of_the_run_with_their_paths(late: RecordedRun):
    events = late.events(0)
    assert np.all(np.diff(events["seconds"]) >= 0)
    assert events["seconds"][0] == pytest.approx(0.0, abs=1e-9)
    enters = events["kind"] == "ENTER"
    assert all(events["path"][enters])
    assert not any(events["path"][~enters])
    assert "SEND" in set(events["kind"].tolist()) | set(late.events(1)["kind"].tolist())


def test_seconds_begin_with_the_run_whenever_the_machine_was_started(late, tmp_path: Path):
    folder = tmp_path / "later"
    folder.mkdir()
    write(parse(LATE.read_text()), folder, epoch=1_140_533_177_323)
    seconds = haloscope.scope.open(folder).events(0)["seconds"]
    np.testing.assert_allclose(seconds, late.events(0)["seconds"], atol=1e-6)


def test_the_message_matrix_has_the_sums_of_all_pairs(tmp_path: Path):
    write_synthetic(tmp_path, 4, 10, pattern="ring")
    run = haloscope.scope.open(tmp_path)
    counts, sizes = run.messages("messages"), run.messages()
    assert counts.shape == sizes.shape == (4, 4)
    assert counts.sum() == run.pairs()["messages"].sum() > 0
    assert sizes.sum() == run.result.pairs["bytes"].sum()
    assert np.all(np.diag(counts) == 0)


def test_a_stored_analysis_is_read_and_gives_the_same(tmp_path: Path):
    write(parse(LATE.read_text()), tmp_path)
    replayed = haloscope.scope.open(tmp_path)
    assert not (tmp_path / "analysis.h5").exists()
    analyze(tmp_path)
    stored = haloscope.scope.open(str(tmp_path))
    for name in ("time", "late_sender", "visits"):
        np.testing.assert_array_equal(stored.metric(name), replayed.metric(name))
    assert stored.call_tree()["path"].tolist() == replayed.call_tree()["path"].tolist()
    assert "2 ranks" in repr(stored)


def test_unknown_names_and_places_are_refused(late: RecordedRun, tmp_path: Path):
    with refused(location="metric 'tim'", problem="unknown metric"):
        late.metric("tim")
    with refused(location="'size'", allowed="messages, empty, bytes"):
        late.messages("size")
    with refused(location="rank 9, number 0", problem="no such location"):
        late.events(9)
    with refused(location="nothing"):
        haloscope.scope.open(tmp_path / "nothing")
