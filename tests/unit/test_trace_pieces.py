"""Events read in pieces are those that are read at once, whole traces and broken ones."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from synthetic_traces import write_synthetic

from haloscope.scope.trace.trace import read_events, read_pieces

SIZES = (1, 2, 3, 5, 7, 64, 1000, 1 << 18)


def check(path: Path) -> None:
    whole = read_events(path)
    for size in SIZES:
        pieces = list(read_pieces(path, size))
        for name in ("ticks", "kinds", "payloads", "words"):
            joined = np.concatenate([getattr(piece, name) for piece in pieces])
            np.testing.assert_array_equal(joined, getattr(whole, name))
        assert all(piece.whole for piece in pieces[:-1])
        assert pieces[-1].whole == whole.whole


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """With absolute times in it, since the work is long."""
    write_synthetic(tmp_path, 4, 12, pattern="halo", style="nonblocking", work=60_000_000, jitter=1)
    return tmp_path / "rank-00001.0.events"


def test_pieces_of_any_size_give_the_same_events(events: Path) -> None:
    check(events)
    assert len(list(read_pieces(events, 64))) > 10


@pytest.mark.parametrize("seed", range(8))
def test_pieces_of_broken_files_give_the_same_events(events: Path, seed: int) -> None:
    chance = random.Random(seed)
    data = events.read_bytes()
    at = chance.randrange(64, len(data))
    broken = events.with_name("broken")
    for content in (
        data[:at],
        data[: at // 8 * 8] + bytes(chance.choice((0, 8, 80))),
        data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :],
    ):
        broken.write_bytes(content)
        check(broken)
