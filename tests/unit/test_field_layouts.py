"""Claims about layouts of numbered rows: own values come back whatever the order, gaps and pieces."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from haloscope.exchange.ranks.world import World
from haloscope.mesh import field_layouts
from haloscope.mesh.field_layouts import RowLayout


class _Rows(RowLayout):
    def describe(self) -> str:
        return "rows"

    def describe_grid(self) -> str:
        return "rows"

    def require_inside(self, location: str, position: Any) -> None:
        pytest.fail("no test writes a file or samples a point")

    def _open(self, path: Path, time: float) -> Any:
        pytest.fail("no test writes a file or samples a point")

    def _write_places(self, writer: Any | None) -> None:
        pytest.fail("no test writes a file or samples a point")


@pytest.mark.parametrize("row", [(), (2, 3)])
@pytest.mark.parametrize(("gap", "piece"), [(0, 1 << 26), (16, 1 << 26), (1 << 16, 64), (0, 1)])
def test_own_values_are_read_whatever_the_order_gaps_and_pieces(monkeypatch, row, gap, piece):
    monkeypatch.setattr(field_layouts, "_GAP_BYTES", gap)
    monkeypatch.setattr(field_layouts, "_PIECE_BYTES", piece)
    numbers = np.random.default_rng(3).permutation(40)[:17]
    rows = _Rows(World(), numbers, 40, row, len(numbers), "rows")
    whole = np.random.default_rng(4).uniform(size=(40, *row)).astype(np.float32)
    read = []

    def stretch(slices: tuple[slice, ...]) -> np.ndarray:
        read.append(slices[0])
        return whole[slices]

    own = rows.own(stretch)
    assert own.dtype == whole.dtype
    assert np.array_equal(own, whole[numbers])
    size = 8 * math.prod(row)
    assert max(part.stop - part.start for part in read) <= max(1, piece // size)
    if gap == 0:
        # Without gaps that are read through, no value of others is read.
        assert sum(part.stop - part.start for part in read) == len(numbers)
    every = np.arange(whole.size).reshape(whole.shape)
    assert np.array_equal(np.concatenate(list(rows.numbers())), every[numbers].ravel())


def test_a_rank_without_rows_has_no_values():
    rows = _Rows(World(), np.empty(0, np.int64), 5, (2,), 0, "rows")
    assert rows.own(lambda slices: np.ones(3)[slices]).shape == (0, 2)
    assert list(rows.numbers()) == []
    assert rows.describe_parts() == "1 parts of 0 to 0 rows"
