"""A prediction tells apart what the program gains and what its recording took."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from predicted_traces import predicted
from trace_text import parse, write

from haloscope.scope.analysis.whatif import Prediction, predict
from haloscope.scope.trace.measurement import open_measurement

MILLI = 1e-3
COSTS = '{"recording": "mpi", "call": [2e-4, 1e-4], "before": [1e-4, 0], "after": [1e-4, 1e-4]}'


def recorded(folder: Path, text: str, name: str, value: str | None = None) -> Prediction:
    """Predict for a trace whose ranks tell the costs above: of an exchange 0.4 and 0.2 ms."""
    write(parse(text), folder)
    for path in folder.glob("rank-*.def"):
        path.write_text(f"{path.read_text()}{COSTS}\n")
    prediction = predict(open_measurement(folder), name, value)
    assert prediction.baseline == pytest.approx(prediction.measured)
    return prediction


def test_recording_goes_with_the_calls_and_is_no_gain_without_it(tmp_path: Path) -> None:
    prediction = recorded(
        tmp_path,
        """
        ranks 2
        span 0 0.010
        0 0.004..0.006 MPI_Sendrecv : send 1; recv 1
        1 0.004..0.006 MPI_Sendrecv : send 0; recv 0
        """,
        "no-empty-messages",
    )
    # Two milliseconds, and 0.2 of recording after them.
    assert prediction.predicted == pytest.approx((10 - 2 - 0.2) * MILLI)
    # Without recording the call takes 0.4 less from the begin.
    assert prediction.gain_unmeasured == pytest.approx((2 - 0.4) * MILLI)
    assert "gains 0.0022 s, including 0.0006 s of recording" in prediction.notes[0]


def test_who_waits_for_a_recorded_call_waits_less_without_recording(tmp_path: Path) -> None:
    prediction = recorded(
        tmp_path,
        """
        ranks 2
        span 0 0.010
        0 0.004..0.006 MPI_Sendrecv : send 1; recv 1
        1 0.005..0.006 MPI_Sendrecv : send 0; recv 0
        """,
        "no-empty-messages",
    )
    assert prediction.by_rank == pytest.approx([7.8 * MILLI, 8.8 * MILLI])
    assert prediction.gain_unmeasured == pytest.approx((1 - 0.4) * MILLI)


def test_calls_that_stay_gain_nothing_by_not_being_recorded(tmp_path: Path) -> None:
    prediction = recorded(
        tmp_path,
        """
        ranks 2
        span 0 0.010
        0 0.004..0.006 MPI_Sendrecv : send 1 bytes=1; recv 1 bytes=1
        1 0.005..0.006 MPI_Sendrecv : send 0 bytes=1; recv 0 bytes=1
        0 0.007..0.007 MPI_Recv : recv 1 bytes=1
        1 0.006..0.006 MPI_Send : send 0 bytes=1
        """,
        "no-empty-messages",
    )
    assert prediction.predicted == pytest.approx(10 * MILLI)
    assert prediction.gain_unmeasured == pytest.approx(0)


def test_a_flush_keeps_nobody_waiting_without_recording(tmp_path: Path) -> None:
    prediction = recorded(
        tmp_path,
        """
        ranks 2
        span 0 0.010
        region flush measurement flush
        0 0.001..0.002 flush
        0 0.002..0.002 MPI_Send : send 1
        1 0.001..0.002 MPI_Recv : recv 0
        0 0.008..0.009 MPI_Recv : recv 1 bytes=1
        1 0.009..0.009 MPI_Send : send 0 bytes=1
        """,
        "no-empty-messages",
    )
    # Rank 0 gets to its receive at once, but for the 0.1 ms of recording after its send.
    assert prediction.predicted == pytest.approx((10 - 1 - 0.1) * MILLI)
    # Without the flush nobody waits for the empty message.
    assert prediction.gain_unmeasured == pytest.approx(0, abs=1e-9)


def test_recording_in_a_region_is_not_made_faster(tmp_path: Path) -> None:
    text = """
    ranks 1
    span 0 0.010
    0 0.002..0.006 solve
    0 0.003..0.004 step
    """
    prediction = recorded(tmp_path, text, "faster", "solve,2")
    assert prediction.predicted == pytest.approx(8 * MILLI)
    # 0.2 in each of the two visits, 0.1 after the inner one.
    assert prediction.gain_unmeasured == pytest.approx((4 - 0.5) / 2 * MILLI)


def test_a_trace_without_costs_tells_no_gain_without_recording(tmp_path: Path) -> None:
    prediction = predicted(tmp_path, "ranks 1\nspan 0 1\n0 0..1 work", "faster", "work,2")
    assert np.isnan(prediction.gain_unmeasured)


@pytest.mark.parametrize("cost", ["-1e-9", "1", "NaN", '"much"'])
def test_costs_that_cannot_be_are_told(cost: str, tmp_path: Path) -> None:
    write(parse("ranks 1\nspan 0 1\n0 0..1 work"), tmp_path)
    path = tmp_path / "rank-00000.def"
    path.write_text(f"{path.read_text()}{COSTS.replace('2e-4', cost)}\n")
    measurement = open_measurement(tmp_path)
    assert measurement.ranks[0].recording is None
    assert any("invalid line of 'recording'" in line for line in measurement.warnings)
