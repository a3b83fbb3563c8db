"""Claims about numbers of things in messages: one is one, several are several."""

from __future__ import annotations

import numpy as np
import pytest

from haloscope.errors import counted


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ((1, "rank"), "1 rank"),
        ((0, "rank"), "0 ranks"),
        ((2, "rank"), "2 ranks"),
        ((np.int64(1), "axis", "axes"), "1 axis"),
        ((np.int64(3), "axis", "axes"), "3 axes"),
        ((f"{1.00001:.4g}", "step"), "1 step"),
        ((f"{1.5:.4g}", "step"), "1.5 steps"),
        ((f"{1_000_000:,}", "call"), "1,000,000 calls"),
    ],
)
def test_one_thing_is_called_otherwise_than_several(given, text):
    assert counted(*given) == text
