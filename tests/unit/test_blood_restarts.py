"""Claims about restarts of blood: a checkpoint of another grid or another kind of cell is refused."""

from __future__ import annotations

import os
import re
from typing import Any

import pytest
from refusals import refused

from haloscope.case.tables import check
from haloscope.device.cpu import CpuDevice
from haloscope.exchange.ranks.world import World
from haloscope.run import Simulation
from haloscope.run.state import Silent
from haloscope.solvers.blood.case import BloodCase

_TABLE = {
    "spacing_um": 1.0,
    "time_step_us": 0.1,
    "channel": {"size_um": [16.0, 12.0, 16.0], "periodic": ["x", "z"]},
    "cells": [{"vertices": 92, "hematocrit": 0.08}],
}


def _opened(output: dict[str, Any] | None = None, **changes: Any) -> Simulation:
    data = {
        "solver": "blood",
        "blood": {**_TABLE, **changes},
        "output": {"fields": False, "picture": False} if output is None else output,
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
    with refused(problem=said):
        _opened(**changes).run(4, out=saved, restart=True, ceilings=False)


def test_another_modulus_is_taken(saved):
    stiffer = [{"vertices": 92, "hematocrit": 0.08, "shear_modulus_un_m": 3.0}]
    _opened(cells=stiffer).run(3, out=saved, restart=True, ceilings=False)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"interval": 1, "bins": 4}, []),
        ({"interval": 2, "bins": 4}, ["profiles begin anew with blood.profile = {start = 0, "]),
        (None, ["2 samples of profiles in the checkpoint left out: the case has no blood.profile"]),
    ],
    ids=["same", "other", "none"],
)
def test_samples_of_profiles_that_a_restart_leaves_out_are_told_in_one_line(tmp_path, asked, said):
    _opened(profile={"interval": 1, "bins": 4}).run(2, out=tmp_path, ceilings=False)
    heard = _Heard()
    changes = {} if asked is None else {"profile": asked}
    summary = _opened(**changes).run(4, out=tmp_path, restart=True, progress=heard, ceilings=False)
    notices = [line for line in heard.lines if "of profiles in" in line]
    assert [line[: len(begin)] for line, begin in zip(notices, said, strict=True)] == said
    assert [line for line in summary["notices"] if "of profiles in" in line] == notices
    assert all(line.endswith("to keep them") for line in notices)


# The table of cells


def _table(folder: Any) -> list[list[str]]:
    """Step, kind and number of each row."""
    lines = (folder / "cells.csv").read_text().splitlines()
    return [[*line.split(",")[:1], *line.split(",")[2:4]] for line in lines[1:]]


@pytest.fixture
def tabled(tmp_path):
    """A folder of its own with the checkpoint of step 2 and a table of steps 0, 1 and 2."""
    out = tmp_path / "run"
    _opened(output={"interval": 1, "fields": False, "picture": False}).run(
        2, out=out, ceilings=False
    )
    return out


def _resumed(out: Any) -> list[str]:
    heard = _Heard()
    _opened().run(4, out=out, restart=True, progress=heard, ceilings=False)
    return [line for line in heard.lines if line.startswith(str(out / "cells.csv"))]


@pytest.mark.parametrize(
    ("damage", "place", "problem"),
    [
        (lambda path: path.write_bytes(path.read_bytes() + b"\xff\xfe\x80"), r", byte \d+", "not UTF-8"),
        (lambda path: path.write_bytes(bytes(100)), ", line 1", "lacks the header of a table of cells"),
        (lambda path: path.write_text("step,kind\n1,red-cell\n"), ", line 1", "lacks the header of a table"),
        (lambda path: path.write_text(path.read_text().replace("\n1,", "\n\u00b2,", 1)), r", line \d+", "not a row"),
        (lambda path: path.write_text(path.read_text().replace("\n1,", f"\n{'1' * 5000},", 1)), r", line \d+", "not a row"),
        (lambda path: path.write_text(path.read_text().replace("\n1,", "\n1;", 1)), r", line \d+", "not a row"),
        (lambda path: path.write_text(path.read_text() + "\n\n"), r", line \d+", "not a row"),
        (lambda path: (path.unlink(), path.mkdir()), "", "is not a file"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "", "is not a file"),
    ],
)  # fmt: skip
def test_a_damaged_table_of_cells_is_refused_before_a_step_is_taken(tabled, damage, place, problem):
    path = tabled / "cells.csv"
    damage(path)
    simulation = _opened()
    with refused(
        location=f"^{re.escape(str(path))}{place}$", problem=problem, remedy="then restart$"
    ) as refusal:
        simulation.run(4, out=tabled, restart=True, ceilings=False)
    assert "\n" not in refusal.text
    assert refusal.error.exit_code == 2
    assert simulation.step == 2
    assert simulation.steps_timed == 0
    # As the message says.
    path.rename(tabled / "aside")
    assert "lost rows: it holds 0 of the" in _resumed(tabled)[0]


def test_a_table_of_cells_goes_on_and_rows_past_the_checkpoint_go(tabled):
    rows = _table(tabled)
    with (tabled / "cells.csv").open("a") as file:
        file.write("3," + ",".join(["0"] * 33) + "\n3,0.1,red-c\u00e9")
    assert _resumed(tabled) == []
    assert [row for row in _table(tabled) if row[0] != "4"] == rows
    assert "4" in [row[0] for row in _table(tabled)]


@pytest.mark.parametrize("interval", [0, 1])
def test_rows_that_are_lost_are_told(tmp_path, interval):
    # Without an interval the end of the run writes them, after the checkpoint.
    tabled = tmp_path / "run"
    output = {"interval": interval, "fields": False, "picture": False}
    _opened(output=output).run(2, out=tabled, ceilings=False)
    path = tabled / "cells.csv"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]) + lines[-1][:-5])
    [line] = _resumed(tabled)
    assert f"it holds {len(lines) - 2} of the {len(lines) - 1} rows written up to step 2" in line
    # Once: the next checkpoint counts what there is.
    heard = _Heard()
    _opened().run(5, out=tabled, restart=True, progress=heard, ceilings=False)
    assert not any("lost rows" in line for line in heard.lines)
