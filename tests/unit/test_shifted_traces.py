"""Traces that do not count the messages of a pause are paired as their times and sizes allow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from trace_text import parse, write

from haloscope.scope.replay import analyse
from haloscope.scope.trace.measurement import open_measurement

TRACES = Path(__file__).with_name("traces")


def _analysed(text, folder, **opening):
    """Analyse a trace as if its tracer had not counted what it skipped."""
    write(parse(text), folder)
    for path in folder.glob("*.def"):
        first, *rest = path.read_text().splitlines(keepends=True)
        path.write_text(json.dumps({**json.loads(first), **opening}) + "\n" + "".join(rest))
    return analyse(open_measurement(folder), 1, correct_clocks=False)


def _without_skips(name):
    lines = (TRACES / f"{name}.trace").read_text().splitlines()
    return "\n".join(line for line in lines if " skipped " not in line.split("#")[0])


@pytest.mark.parametrize(("name", "late"), [("receive_in_a_pause", 3.0), ("sends_in_a_pause", 2.5)])
def test_an_old_trace_gives_the_waits_of_one_that_counts(tmp_path, name, late):
    result = _analysed(_without_skips(name), tmp_path, format=1)
    assert result.total("late_sender") == pytest.approx(late)
    assert result.about["warnings"] == []
    assert result.about["channels_without_pairs"] == 0


def test_an_old_trace_gives_the_waits_of_collectives_of_one_that_counts(tmp_path):
    text = _without_skips("collectives_in_a_pause_of_one_rank")
    result = _analysed(text, tmp_path, format=1)
    assert result.by_rank("wait_at_barrier").tolist() == pytest.approx([0, 2])
    assert result.about["warnings"] == []


def test_the_pause_is_taken_that_contradicts_the_sizes_least(tmp_path):
    """Of two pauses only the second explains that eight bytes are received before it."""
    sizes = (8, 8, 80, 80)
    lines = ["ranks 2", "span 0 20"]
    lines += [
        f"0 {2 * n + 1}..{2 * n + 1} MPI_Send : send 1 bytes={b}" for n, b in enumerate(sizes)
    ]
    lines += ["1 0.2 pause", "1 0.4 resume"]
    lines += ["1 0.5..1 MPI_Recv : recv 0 bytes=8", "1 2..3 MPI_Recv : recv 0 bytes=8"]
    lines += ["1 4 pause", "1 5.5 resume", "1 6..7 MPI_Recv : recv 0 bytes=80"]
    result = _analysed("\n".join(lines), tmp_path, format=1)
    assert result.about["skipped_receives"] == 1
    assert result.total("late_sender") == pytest.approx(0.5 + 1 + 1)


def test_pairs_that_no_pause_explains_show_no_waits(tmp_path):
    lines = ["ranks 2", "span 0 20", "0 5..5 MPI_Send : send 1 bytes=8"]
    lines += ["0 9..9 MPI_Send : send 1 bytes=8", "1 1 pause", "1 2 resume"]
    lines += ["1 3..4 MPI_Recv : recv 0 bytes=8"]
    result = _analysed("\n".join(lines), tmp_path, format=1)
    assert result.about["channels_without_pairs"] == 1
    assert result.total("late_sender") == 0


def test_a_trace_that_counts_is_taken_as_it_is(tmp_path):
    result = _analysed(_without_skips("receive_in_a_pause"), tmp_path)
    assert result.about["unmatched_sends"] == 2
