"""Claims about the two-level preconditioner over ranks: iterations stay where they are on one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

_CONTRACT = Path(__file__).with_name("two_level_contract.py")
_SHARED = {"PYTHONPATH": str(Path(__file__).parents[1])}


@pytest.fixture(scope="module")
def reports(run_ranks):
    """What the contract prints on 1, 2 and 4 ranks."""
    return {
        ranks: json.loads(run_ranks(ranks, _CONTRACT, environment=_SHARED).stdout)
        for ranks in (1, 2, 4)
    }


def test_with_point_blocks_the_residuals_do_not_depend_on_the_ranks(reports):
    one = reports[1]["points"]
    for ranks in (2, 4):
        several = reports[ranks]["points"]
        assert abs(several["iterations"] - one["iterations"]) <= 1
        # Later ones show what A P loses in single precision, in another order of sums.
        assert np.allclose(several["history"][:10], one["history"][:10], rtol=1e-3, atol=0)


def test_with_overlapping_ilu_iterations_grow_by_a_fifth_at_most(reports):
    one = reports[1]["usual"]["iterations"]
    for ranks in (2, 4):
        iterations = reports[ranks]["usual"]["iterations"]
        assert iterations <= 1.2 * one
        assert iterations < 0.8 * reports[ranks]["plain"]["iterations"]
