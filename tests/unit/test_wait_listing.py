"""Of many wait states the longest are listed, in the order of time; causes add up to the waits."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic_traces import write_synthetic

from haloscope.scope.replay import patterns
from haloscope.scope.replay.inputs import make_inputs
from haloscope.scope.trace.measurement import Measurement, open_measurement


@pytest.fixture(scope="module")
def measurement(tmp_path_factory: pytest.TempPathFactory) -> Measurement:
    folder = tmp_path_factory.mktemp("trace") / "a"
    write_synthetic(folder, 6, 200, imbalance=0.5, jitter=0.3, functions=3, collective_every=7)
    return open_measurement(folder)


def _replayed(measurement: Measurement, threads: int = 2) -> patterns.Replayed:
    return patterns.Replayed(make_inputs(measurement, threads))


def _lengths(replayed: patterns.Replayed) -> np.ndarray:
    return np.sort(replayed.waits["end"] - replayed.waits["begin"])


@pytest.mark.parametrize("most", [1, 57])
def test_the_longest_waits_are_listed(
    measurement: Measurement, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    every = _replayed(measurement)
    assert len(every.waits) > 200
    assert np.all(np.diff(every.waits["begin"]) >= 0)
    monkeypatch.setattr(patterns, "_MOST_WAITS_KEPT", most)
    kept = _replayed(measurement)
    assert len(kept.waits) == most
    assert np.array_equal(_lengths(kept), _lengths(every)[len(every.waits) - most :])
    assert np.all(np.isin(kept.waits, every.waits))
    assert np.all(np.diff(kept.waits["begin"]) >= 0)


def test_costs_have_the_same_bits_on_any_number_of_threads(measurement: Measurement) -> None:
    one, two = _replayed(measurement, 1), _replayed(measurement, 2)
    for name in ("delay_short", "delay_long", "critical_path", "imbalance"):
        assert np.array_equal(one.slots[name], two.slots[name])
    assert one.slots["delay_short"].sum() > 0
