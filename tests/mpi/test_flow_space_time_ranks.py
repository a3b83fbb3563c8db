"""Claims about space-time slabs over ranks: the same iterations, residuals and state on any number."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

_CONTRACT = Path(__file__).with_name("flow_space_time_contract.py")


@pytest.fixture(scope="module")
def reports(run_ranks):
    """What the contract prints on 1 and 3 ranks."""
    return {ranks: json.loads(run_ranks(ranks, _CONTRACT).stdout) for ranks in (1, 3)}


def test_ranks_take_the_same_way_to_the_same_state(reports):
    one = reports[1]
    assert min(one["iterations"][0]) > 10
    three = reports[3]
    assert np.abs(np.subtract(three["iterations"], one["iterations"])).max() <= 1
    for mine, others in zip(three["residuals"], one["residuals"], strict=True):
        assert np.allclose(mine[:3], others[:3], rtol=1e-4)
    assert np.abs(np.subtract(three["state"], one["state"])).max() < 1e-9
