"""Claims about the Python interface over ranks: rank 0 gets the same arrays as one rank alone."""

from __future__ import annotations

import json
import sys

import python_contract


def test_points_data_sets_and_cells_are_the_same_on_two_ranks_as_on_one(run_ranks, monkeypatch):
    for name, module in python_contract.stand_ins().items():
        monkeypatch.setitem(sys.modules, name, module)
    one = python_contract.digests_by_solver()
    assert set(one) == {"cavity", "flow", "maxwell", "blood", "cells", "membranes"}
    assert "regular grid" in one["flow"]["refused"]
    assert one["cells"][0] == ["left", "right"]
    assert json.loads(run_ranks(2, python_contract.__file__).stdout) == one
