"""Claims about restarts of blood: what is another grid, or another kind of cell, is refused."""

from __future__ import annotations

from typing import Any

import pytest

from haloscope.case import check
from haloscope.device.cpu import CpuDevice
from haloscope.errors import InputError
from haloscope.exchange.world import World
from haloscope.run import Simulation
from haloscope.run.progress import Silent
from haloscope.solvers.blood.case import BloodCase

_TABLE = {
    "spacing_um": 1.0,
    "time_step_us": 0.1,
    "channel": {"size_um": [16.0, 12.0, 16.0], "periodic": ["x", "z"]},
    "cells": [{"vertices": 92, "hematocrit": 0.08}],
}


def _opened(**changes: Any) -> Simulation:
    data = {
        "solver": "blood",
        "blood": {**_TABLE, **changes},
        "output": {"fields": False, "picture": False},
        "checkpoint": {"at_end": True},
    }
    case = check(data, BloodCase, "test")
    return Simulation(case, device=CpuDevice(threads=1), world=World())


class _Heard(Silent):
    """Keeps the lines that users are told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A folder with a checkpoint of step 2."""
    out = tmp_path_factory.mktemp("saved")
    _opened().run(2, out=out, ceilings=False)
    return out


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"channel": {"size_um": [12.0, 16.0, 16.0], "periodic": ["x", "z"]}}, "another grid"),
        ({"channel": {"size_um": [16.0, 12.0, 16.0], "periodic": ["x"]}}, "periodic along xz"),
        (
            {
                "spacing_um": 1.01,
                "channel": {**_TABLE["channel"], "size_um": [16.16, 12.12, 16.16]},
            },
            "apart",
        ),
        (
            {"cells": [{"vertices": 92, "hematocrit": 0.08, "radius_um": 3.8}]},
            "another shape at rest",
        ),
    ],
    ids=["shape", "periodic", "spacing", "cells"],
)
def test_another_grid_or_other_cells_are_refused(saved, changes, said):
    with pytest.raises(InputError, match=said):
        _opened(**changes).run(4, out=saved, restart=True, ceilings=False)


def test_another_modulus_is_taken(saved):
    stiffer = [{"vertices": 92, "hematocrit": 0.08, "shear_modulus_un_m": 3.0}]
    _opened(cells=stiffer).run(3, out=saved, restart=True, ceilings=False)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"interval": 1, "bins": 4}, []),
        ({"interval": 2, "bins": 4}, ["profiles begin anew with blood.profile = {start = 0, "]),
        (None, ["2 samples of profiles in the checkpoint left out: the case asks for none"]),
    ],
    ids=["same", "other", "none"],
)
def test_samples_of_profiles_that_a_restart_leaves_out_are_told_in_one_line(tmp_path, asked, said):
    _opened(profile={"interval": 1, "bins": 4}).run(2, out=tmp_path, ceilings=False)
    heard = _Heard()
    changes = {} if asked is None else {"profile": asked}
    summary = _opened(**changes).run(4, out=tmp_path, restart=True, progress=heard, ceilings=False)
    told = [line for line in heard.lines if "of profiles in" in line]
    assert [line[: len(begin)] for line, begin in zip(told, said, strict=True)] == said
    assert [line for line in summary["notices"] if "of profiles in" in line] == told
    assert all(line.endswith("to keep them") for line in told)
