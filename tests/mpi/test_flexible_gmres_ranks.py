"""Claims about flexible GMRES over ranks: with point blocks it takes the same way on any number of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

_CONTRACT = Path(__file__).with_name("flexible_gmres_contract.py")
_SHARED = {"PYTHONPATH": str(Path(__file__).parents[1])}


@pytest.fixture(scope="module")
def reports(run_ranks):
    """What the contract prints on 1, 2 and 3 ranks."""
    return {
        ranks: json.loads(run_ranks(ranks, _CONTRACT, environment=_SHARED).stdout)
        for ranks in (1, 2, 3)
    }


def test_point_blocks_take_the_same_iterations_and_residuals_on_any_ranks(reports):
    one = reports[1]["points"]
    assert one["iterations"] > 24  # restarts are among them
    for ranks in (2, 3):
        several = reports[ranks]["points"]
        assert several["iterations"] == one["iterations"]
        assert np.allclose(several["history"], one["history"], rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", ["ilu", "coloured"])
def test_ilu_of_overlapping_parts_stays_better_than_point_blocks(reports, name):
    for ranks in (1, 2, 3):
        assert reports[ranks][name]["iterations"] < 0.6 * reports[ranks]["points"]["iterations"]
