"""Claims about rates of clocks that are told at the end, when they are known better."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from haloscope.scope.trace.measurement import open_measurement
from haloscope.scope.trace.trace import DefinitionsWriter


def lines_of(folder: Path, ranks: list[list[dict[str, Any]]], first_rate: float = 1e9) -> Any:
    for rank, lines in enumerate(ranks):
        with DefinitionsWriter(folder, rank, len(ranks), first_rate, epoch=1000) as writer:
            for line in lines:
                writer.line(line)
            writer.end(1)
    return open_measurement(folder)


def test_a_better_rate_counts_from_its_tick_on(tmp_path: Path):
    measurement = lines_of(tmp_path, [[{"rate": 2e9, "at": 1000}]])
    rate, zero = measurement.ticks_to_seconds(0)
    assert 1000 * rate + zero == pytest.approx(0.0, abs=1e-12)
    assert 3000 * rate + zero == pytest.approx(1e-6)


def test_the_last_rate_that_was_told_counts(tmp_path: Path):
    measurement = lines_of(tmp_path, [[{"rate": 5e8, "at": 1000}, {"rate": 4e9, "at": 1000}]])
    assert measurement.ticks_to_seconds(0)[0] == pytest.approx(0.25e-9)


def test_ranks_of_one_machine_agree_by_their_own_rates(tmp_path: Path):
    # Both clocks show the same at their first tick; the second was taken for too slow.
    ranks = [[{"rate": 1e9, "at": 1000}], [{"rate": 1.25e9, "at": 1000}]]
    measurement = lines_of(tmp_path, ranks)
    (first, zero), (second, shift) = (measurement.ticks_to_seconds(rank) for rank in (0, 1))
    assert 2000 * first + zero == pytest.approx(2250 * second + shift)


def test_offsets_were_measured_in_first_rates_and_rank_0_corrects_all(tmp_path: Path):
    # Rank 1 runs 10 % fast and began 5 us earlier; rank 0 finds that it ticks twice as fast.
    offsets = [
        {"offset": -5e-6, "at": 6000, "round_trip": 0.0},
        {"offset": -6e-6, "at": 17000, "round_trip": 0.0},
    ]
    measurement = lines_of(tmp_path, [[{"rate": 2e9, "at": 1000}], offsets])
    (first, zero), (second, shift) = (measurement.ticks_to_seconds(rank) for rank in (0, 1))
    # Tick 6000 of rank 1 is tick 1000 of rank 0, tick 17000 is tick 11000.
    assert 6000 * second + shift == pytest.approx(1000 * first + zero, abs=1e-12)
    assert 17000 * second + shift == pytest.approx(11000 * first + zero, abs=1e-12)
    assert first == pytest.approx(0.5e-9)


@pytest.mark.parametrize("rate", [0, -1, 1e20, "fast", None])
def test_a_rate_that_makes_no_sense_is_told_and_left_out(tmp_path: Path, rate: Any):
    measurement = lines_of(tmp_path, [[{"rate": rate, "at": 1000}]])
    assert measurement.ticks_to_seconds(0)[0] == pytest.approx(1e-9)
    assert "'rate'" in measurement.warnings[0]
