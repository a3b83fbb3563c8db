"""Claims about restarts of flow runs: what they go on with, bit by bit, and what they refuse."""

from __future__ import annotations

import json
import shutil

import h5py
import numpy as np
import pytest
from refusals import refused
from short_channels import STEPS, WALLS, Heard, channel, channel_text, opened, rows_of

from haloscope.errors import SolutionError
from haloscope.io.checkpoint import checkpoint_path, list_checkpoints
from haloscope.run.checkpointing import write_state

# The short channel as a file, with steps in time that are solved for to the last digits.
_CHANNEL = f"""\
{channel_text([4, 4, 4], [2.0, 1.0, 1.0], "speed = 1.0")}[[flow.forces]]
name = "walls"
boundaries = ["y_low", "y_high", "z_low", "z_high"]
[flow.time]
scheme = "bdf2"
time_step = 0.1
end = 0.4
[flow.newton]
iterations = 6
tolerance = 1e-10
[flow.linear]
tolerance = 1e-6
[checkpoint]
interval = 2
keep = 5
[output]
picture = false
"""


@pytest.mark.parametrize("scheme", ["bdf2", "generalised-alpha", "space-time"])
def test_a_restart_gives_the_same_bits_and_tables(tmp_path, scheme):
    data = channel(time={**STEPS, "scheme": scheme})
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    opened(data).run(out=whole, ceilings=False)
    opened(data, checkpoint={"at_end": True}).run(2, out=parted, ceilings=False)
    summary = opened(data).run(out=parted, restart=True, ceilings=False)
    assert summary["steps_this_run"] == 2
    for name in ("forces-walls.csv", "newton.csv", "gmres.csv", "energy.csv"):
        assert (whole / name).read_text() == (parted / name).read_text()
    with h5py.File(whole / "fields.vtkhdf") as one, h5py.File(parted / "fields.vtkhdf") as other:
        for name in ("velocity", "p"):
            assert np.array_equal(
                one[f"VTKHDF/PointData/{name}"], other[f"VTKHDF/PointData/{name}"]
            )


def test_damaged_tables_of_a_checkpoint_are_refused_in_one_line():
    simulation = opened(channel(time=STEPS))
    simulation.run(1, ceilings=False)
    solver = simulation.solver
    extras = dict(solver.extras())
    solver.restore_extras(extras)
    for name in ("newton", "gmres", "iterations"):
        for damaged in (extras[name][..., :-1], np.full(extras[name].shape, b"text")):
            with refused(location=f"^checkpoint: '{name}'$", problem="damaged") as refusal:
                solver.restore_extras({**extras, name: damaged})
            assert "\n" not in refusal.text
    for name, damaged in (
        ("iterations", np.full(4, -1)),
        ("iterations", np.full(4, np.nan)),
        ("time steps", np.zeros((2, 3))),
    ):
        with refused(location=f"^checkpoint: '{name}'$", problem="damaged"):
            solver.restore_extras({**extras, name: damaged})
    for name in ("newton", "iterations"):
        with refused(location=f"^checkpoint: '{name}'$", problem="missing"):
            solver.restore_extras({k: v for k, v in extras.items() if k != name})


@pytest.mark.parametrize("scheme", ["bdf2", "generalised-alpha", "space-time"])
def test_a_restart_with_another_time_step_keeps_the_clock(tmp_path, scheme):
    """A plug that a constant pressure drives gets faster at a constant rate: u = p t / (rho L)."""
    data = channel(
        box={"cells": [2, 1, 1], "upper": [2.0, 1.0, 1.0]},
        boundaries={**dict.fromkeys(WALLS, "slip"), "x_low": {"pressure": 6.0}, "x_high": "open"},
        forces=[{"name": "inlet", "boundaries": ["x_low"]}],
        newton={"iterations": 6, "tolerance": 1e-10},
        linear={"tolerance": 1e-6},
        time={**STEPS, "scheme": scheme},
    )
    tables = {
        "checkpoint": {"at_end": True},
        "output": {
            "picture": False,
            "interval": 2,
            "probe_interval": 3,
            "probes": [{"name": "middle", "position": [1.0, 0.5, 0.5]}],
        },
    }
    opened(data, **tables).run(2, out=tmp_path, ceilings=False)
    data["flow"]["time"] |= {"time_step": 0.03, "end": 0.5}
    heard = Heard()
    simulation = opened(data, **tables)
    summary = simulation.run(out=tmp_path, restart=True, ceilings=False, progress=heard)
    # 0.3 s are left: ten steps of 0.03 s.
    assert (summary["steps"], summary["steps_this_run"]) == (12, 10)
    assert summary["diagnostics"]["time"] == pytest.approx(0.5, rel=1e-12)
    assert summary["diagnostics"]["time_step"] == pytest.approx(0.03, rel=1e-12)
    (change,) = summary["flow"]["time_step_changes"]
    assert change == pytest.approx({"step": 2, "time": 0.2, "from": 0.1, "to": 0.03})
    assert heard.lines[0].startswith("restarted from")
    said = "the time step changes from 0.1 to 0.03 s after step 2, at 0.2 s"
    assert heard.lines[1].startswith(said)
    assert heard.lines[1] in summary["notices"]
    times = [0.1, 0.2] + [0.2 + 0.03 * step for step in range(1, 11)]
    rows = rows_of(tmp_path / "forces-inlet.csv")
    assert [int(row["step"]) for row in rows] == list(range(1, 13))
    assert [float(row["time"]) for row in rows] == pytest.approx(times)
    probed = rows_of(tmp_path / "probe-middle.csv")
    assert [int(row["step"]) for row in probed] == [0, 3, 6, 9, 12]
    for row in probed[1:]:
        assert float(row["time"]) == pytest.approx(times[int(row["step"]) - 1])
        assert float(row["u"]) == pytest.approx(1.5 * float(row["time"]), rel=1e-8)
    assert simulation.field("u") == pytest.approx(0.75, rel=1e-8)
    with h5py.File(tmp_path / "fields-0000000004.vtkhdf") as file:
        assert file["VTKHDF/FieldData/TimeValue"][0] == pytest.approx(0.26)


def test_after_a_change_of_the_time_step_restarts_give_the_same_bits(tmp_path):
    boundaries = {
        **WALLS,
        "x_low": {"speed": "1 + t"},
        "x_high": {"resistance": {"proximal": 1.0, "distal": 2.0, "compliance": 0.1}},
    }
    keep = {"checkpoint": {"at_end": True}}
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    opened(channel(boundaries=boundaries, time=STEPS), **keep).run(2, out=whole, ceilings=False)
    shutil.copytree(whole, parted)
    data = channel(boundaries=boundaries, time={**STEPS, "time_step": 0.05})
    resumed = opened(data).run(out=whole, restart=True, ceilings=False)
    # Stopped before its first step, and once more after it.
    stopped = opened(data, **keep)
    stopped.run(2, out=parted, restart=True, ceilings=False)
    write_state(stopped, checkpoint_path(parted, 2))
    opened(data, **keep).run(3, out=parted, restart=True, ceilings=False)
    summary = opened(data).run(out=parted, restart=True, ceilings=False)
    assert resumed["steps"] == summary["steps"] == 6
    assert resumed["flow"]["time_step_changes"] == summary["flow"]["time_step_changes"]
    assert len(summary["flow"]["time_step_changes"]) == 1
    assert not any("time step" in line for line in summary["notices"])
    for name in ("forces-walls.csv", "newton.csv", "gmres.csv", "energy.csv"):
        assert (whole / name).read_text() == (parted / name).read_text()


def test_a_run_that_breaks_goes_on_with_a_shorter_step(tmp_path):
    solved = {"newton": {"iterations": 2, "tolerance": 1e-3}, "linear": {"tolerance": 1e-6}}
    boundaries = {**WALLS, "x_low": {"speed": "1 + 60*max(t - 0.2, 0)"}, "x_high": "open"}
    data = channel(boundaries=boundaries, time=STEPS, **solved)
    with refused(SolutionError) as refusal:
        opened(data, checkpoint={"interval": 1}).run(out=tmp_path, ceilings=False)
    assert "shorten flow.time.time_step (now 0.1; a restart may take another)" in refusal.text
    data["flow"]["time"] = {**STEPS, "time_step": 0.02}
    assert opened(data).run(out=tmp_path, restart=True, ceilings=False)["steps"] == 12


def test_ranks_go_on_with_another_time_step_as_one_does(tmp_path, call):
    path, two, one = tmp_path / "channel.toml", tmp_path / "two", tmp_path / "one"
    path.write_text(_CHANNEL)
    code, _, err = call("run", path, "--out", two, "--ranks", 2, "--steps", 2, "--device", "cpu")
    assert code == 0, err
    shutil.copytree(two, one)
    changed = ["--set", "flow.time.time_step=0.05", "--restart", "--device", "cpu"]
    code, _, err = call("run", path, "--out", two, "--ranks", 2, *changed)
    assert code == 0, err
    code, _, err = call("run", path, "--out", one, *changed)
    assert code == 0, err
    said = "the time step changes from 0.1 to 0.05 s after step 2, at 0.2 s"
    assert err.count(said) == 1
    fields = []
    for folder in (one, two):
        summary = json.loads((folder / "summary.json").read_text())
        assert summary["steps"] == 6
        assert sum(said in line for line in summary["notices"]) == 1
        with h5py.File(folder / "fields.vtkhdf") as file:
            fields.append(file["VTKHDF/PointData/velocity"][:])
    assert fields[0] == pytest.approx(fields[1], abs=1e-8)


def test_ranks_give_what_one_gives_and_restart_on_other_numbers_of_ranks(tmp_path, call):
    settings = {
        "time": STEPS,
        "newton": {"iterations": 6, "tolerance": 1e-10},
        "linear": {"tolerance": 1e-6},
    }
    path = tmp_path / "channel.toml"
    path.write_text(_CHANNEL)
    two = tmp_path / "two"
    code, _, err = call("run", path, "--out", two, "--ranks", 2, "--device", "cpu")
    assert code == 0, err
    alone = opened(channel(**settings))
    summary = alone.run(out=tmp_path / "one", ceilings=False)
    with h5py.File(two / "fields.vtkhdf") as file:
        velocity, pressure = (file[f"VTKHDF/PointData/{name}"][:] for name in ("velocity", "p"))
    mine = np.stack([alone.field(name) for name in "uvw"], axis=1)
    assert velocity == pytest.approx(mine, abs=1e-8)
    assert pressure == pytest.approx(alone.field("p"), abs=1e-6)
    document = json.loads((two / "summary.json").read_text())
    for one, other in zip(
        summary["flow"]["forces"]["walls"]["force"],
        document["flow"]["forces"]["walls"]["force"],
        strict=True,
    ):
        assert one == pytest.approx(other, abs=1e-6)
    # Reductions are of GMRES and of Newton's residuals, and one rank has none of either.
    several = {"gather", "scatter", "reductions"}
    assert several <= document["flow"]["components"].keys()
    assert not several & summary["flow"]["components"].keys()
    # One rank goes on from the second step of two.
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    shutil.copy(list_checkpoints(two)[0], mixed)
    again = opened(channel(**settings))
    assert again.run(out=mixed, restart=True, ceilings=False)["steps_this_run"] == 2
    assert again.field("p") == pytest.approx(alone.field("p"), abs=1e-6)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"time": {}}, "unsteady flow, and the case is of steady flow"),
        (
            {"time": {**STEPS, "scheme": "generalised-alpha"}},
            "does not hold acceleration x, .* needs to continue",
        ),
        (
            {"boundaries": {**WALLS, "x_low": {"resistance": {"proximal": 1.0}}, "x_high": "open"}},
            "other outlets",
        ),
        ({"box": {"cells": [4, 4, 4], "upper": [2.0, 1.0, 1.1]}}, "another grid"),
    ],
)
def test_a_checkpoint_of_another_case_is_refused(tmp_path, changes, said):
    opened(channel(time=STEPS), checkpoint={"at_end": True}).run(1, out=tmp_path, ceilings=False)
    with refused(problem=said):
        opened(channel(**{"time": STEPS, **changes})).run(
            out=tmp_path, restart=True, ceilings=False
        )


def test_unsteady_flow_does_not_go_on_from_a_steady_one(tmp_path):
    opened(channel(), checkpoint={"at_end": True}).run(1, out=tmp_path, ceilings=False)
    slabs = {**STEPS, "scheme": "space-time"}
    with refused(problem="of steady flow, and the case is of unsteady flow"):
        opened(channel(time=slabs)).run(out=tmp_path, restart=True, ceilings=False)


def test_forces_with_other_columns_begin_anew_at_a_restart(tmp_path):
    opened(channel(time=STEPS), checkpoint={"at_end": True}).run(1, out=tmp_path, ceilings=False)
    forces = [{"name": "walls", "boundaries": ["y_low"]}]
    opened(channel(time=STEPS, forces=forces)).run(2, out=tmp_path, restart=True, ceilings=False)
    rows = rows_of(tmp_path / "forces-walls.csv")
    assert [row["step"] for row in rows] == ["2"]
    assert "cx" not in rows[0]
