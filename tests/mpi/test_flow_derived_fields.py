"""Claims about fields derived from a flow over ranks: the same on any number."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

_CONTRACT = Path(__file__).with_name("derived_fields_contract.py")


@pytest.fixture(scope="module")
def reports(run_ranks):
    """What the contract prints on 1 and 3 ranks."""
    return {ranks: json.loads(run_ranks(ranks, _CONTRACT).stdout) for ranks in (1, 3)}


def test_fields_at_nodes_are_the_same_on_three_ranks_as_on_one(reports):
    one = np.array(reports[1]["fields"]).reshape(-1, 4)
    assert (np.abs(one).max(axis=0) > 1e-4).all()
    assert np.allclose(reports[3]["fields"], reports[1]["fields"], rtol=1e-12, atol=1e-17)
    assert not reports[3]["differs"]


def test_shares_of_volume_have_the_same_bits(reports):
    assert min(reports[1]["shares"][0]) > 0.02
    assert reports[3]["shares"] == reports[1]["shares"]
