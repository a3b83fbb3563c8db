"""Predicts for traces that are written as text, sure that their own time comes out unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest
from trace_text import parse, write

from haloscope.scope.analysis.whatif import Prediction, predict
from haloscope.scope.trace.measurement import open_measurement

PING = """
ranks 2
span 0 10
0 1..2 MPI_Send : send 1 bytes=16
1 0..3 MPI_Recv : recv 0 bytes=16
"""


def predicted(folder: Path, text: str, name: str, value: str | None = None) -> Prediction:
    """Predict a change of a trace whose measured time the replay gives exactly."""
    write(parse(text), folder)
    prediction = predict(open_measurement(folder), name, value)
    assert prediction.baseline == pytest.approx(prediction.measured)
    assert prediction.model_error == pytest.approx(0)
    return prediction
