"""Claims about the boundaries of a flow over ranks: the same slip, outlets and forces on any number."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

_CONTRACT = Path(__file__).with_name("flow_boundaries_contract.py")


@pytest.fixture(scope="module")
def reports(run_ranks):
    """What the contract prints on 1 and 3 ranks."""
    return {ranks: json.loads(run_ranks(ranks, _CONTRACT).stdout) for ranks in (1, 3)}


def test_boundaries_are_the_same_on_any_number_of_ranks(reports):
    one = reports[1]
    assert max(one["iterations"]) > 5
    assert np.abs(one["resistances"]).min() > 1e-3
    three = reports[3]
    assert np.abs(np.subtract(three["iterations"], one["iterations"])).max() <= 1
    for name, close in (("slip", 1e-12), ("state", 1e-7), ("means", 1e-7), ("forces", 1e-7)):
        assert np.abs(np.subtract(three[name], one[name])).max() < close, name
    assert np.allclose(three["resistances"], one["resistances"], rtol=1e-7)
