"""Checks that a message that was not recorded does not shift the pairs of later ones."""

from __future__ import annotations

from measuring import PROGRAMS, compiled, flavour, measure, told_by
from test_provoked_waits import MOST_RUNS, YIELDING
from test_provoked_waits import PROGRAMS as WAIT_PROGRAMS

from haloscope.scope.analysis.analyze import analyze, as_json
from haloscope.scope.replay import analyse

LATE, NOISE = 0.15, 0.07  # seconds, of which the second may be wrong
# Waits of rank 1, the only ones.
LATE_SENDERS = (
    "paused_receive",
    "paused_send",
    "posted_and_completed_in_a_pause",
    "completed_in_a_pause",
    "posted_in_a_pause",
    "completed_by_status",
    "given_away",
    "cancelled_and_given_away",
    "persistent_and_cancelled",
    "buffered",
    "filtered",
)


def _waits(result, metric):
    """Seconds of a metric by rank and scene."""
    values = result.value(metric)
    waits = {}
    for node in range(len(values)):
        path = result.path_of(node)
        for place, seconds in enumerate(values[node]):
            if seconds and len(path) > 2:
                key = result.locations[place].rank, path[2]
                waits[key] = waits.get(key, 0.0) + float(seconds)
    return waits


def _wrong(result):
    expected = {
        "late_sender": {(1, scene): LATE for scene in LATE_SENDERS},
        "late_post": {(0, "paused_epoch"): LATE},
        "wait_at_nxn": {(1, "paused_collectives"): LATE},
    }
    wrong = []
    for metric, waits in expected.items():
        analysed_waits = _waits(result, metric)
        wrong += [
            f"{metric} {key}: {analysed_waits.get(key, 0.0):.3f} s for {waits.get(key, 0.0)} s"
            for key in sorted({*analysed_waits, *waits})
            if abs(analysed_waits.get(key, 0.0) - waits.get(key, 0.0)) > NOISE
        ]
    return wrong


def test_each_late_message_is_found_where_another_one_was_not_recorded(tmp_path):
    mpi = flavour("mpi4py")
    path = compiled(
        mpi, WAIT_PROGRAMS / "skipped.c", tmp_path, "-finstrument-functions", "-rdynamic"
    )
    names = tmp_path / "names"
    names.write_text("MPI_Mrecv\n")
    for turn in range(MOST_RUNS):
        folder = tmp_path / str(turn)
        options = ("--trace", "--filter", names)
        measured, _ = measure(mpi, 2, [path, tmp_path], folder, *options, environment=YIELDING)
        result = analyse(measured)
        about = result.about
        assert about["warnings"] == []
        skipped = tuple(about[f"skipped_{kind}"] for kind in ("sends", "receives", "collectives"))
        assert skipped == (1, 6, 3)
        if not (wrong := _wrong(result)):
            break
    assert not wrong
    analysis = as_json(analyze(folder))
    assert analysis["warnings"] == []
    assert analysis["messages"]["skipped"] == {"sends": 1, "receives": 6, "collectives": 3}
    expected = "skipped: 1 send, 6 receives and 3 collective operations"
    assert [note for note in analysis["notes"] if note.startswith(expected)]


def test_an_exchange_counts_the_bytes_that_came_not_those_of_its_buffer(tmp_path):
    mpi = flavour("mpi4py")
    path = compiled(mpi, PROGRAMS / "exchanges.c", tmp_path)
    measured, _ = measure(mpi, 2, [path], tmp_path / "m")
    result = analyse(measured)
    assert result.about["warnings"] == []
    # Each rank sends the ints of its rank and one, and each of its buffers holds 100.
    assert result.by_rank("bytes_sent").tolist() == [16, 32]
    assert result.by_rank("bytes_received").tolist() == [32, 16]
    counts = told_by(measured)
    assert sum(counts.open_receives.values()) == 0
