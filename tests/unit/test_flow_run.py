"""Claims about runs of flow cases: what they tell and write, go on from, and leave when they break."""

from __future__ import annotations

import csv
import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest

from haloscope.case import check
from haloscope.device import open_device
from haloscope.device.ceilings import Ceilings
from haloscope.errors import InputError, SolutionError
from haloscope.exchange.world import World
from haloscope.io.checkpoint import checkpoint_path, list_checkpoints
from haloscope.run import Simulation
from haloscope.run.checkpointing import write_state
from haloscope.solvers.flow.case import FlowCase
from haloscope.solvers.flow.results import RunResults

_CEILINGS = Ceilings(copy=8.0, update=16.0, triad=12.0, load=0.5)
WALLS = dict.fromkeys(("y_low", "y_high", "z_low", "z_high"), "no-slip")
STEPS = {"scheme": "bdf2", "time_step": 0.1, "end": 0.4}


def channel(**changes):
    """A short square channel, from rest."""
    table = {
        "box": {"cells": [4, 4, 4], "upper": [2.0, 1.0, 1.0]},
        "fluid": {"density": 2.0, "viscosity": 0.5},
        "boundaries": {**WALLS, "x_low": {"speed": 1.0}, "x_high": "open"},
        "forces": [{"name": "walls", "boundaries": list(WALLS), "velocity": 1.0, "area": 2.0}],
    }
    return {"solver": "flow", "flow": {**table, **changes}}


# The same as a file, with steps in time that are solved for to the last digits.
_CHANNEL = """\
solver = "flow"
[flow.box]
cells = [4, 4, 4]
upper = [2.0, 1.0, 1.0]
[flow.fluid]
density = 2.0
viscosity = 0.5
[flow.boundaries]
x_low = { speed = 1.0 }
x_high = "open"
y_low = "no-slip"
y_high = "no-slip"
z_low = "no-slip"
z_high = "no-slip"
[[flow.forces]]
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


def opened(data, **tables) -> Simulation:
    case = check({"output": {"picture": False}, **data, **tables}, FlowCase, "test")
    return Simulation(case, device=open_device("cpu", threads=1), world=World())


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_steady_run_tells_forces_flow_rates_and_what_the_time_went_to(
    tmp_path, call, monkeypatch
):
    monkeypatch.setattr("haloscope.run.summary.measure_ceilings", lambda device, sharing: _CEILINGS)
    path = tmp_path / "channel.toml"
    path.write_text(
        """
        solver = "flow"
        [flow.box]
        cells = [4, 4, 4]
        upper = [2.0, 1.0, 1.0]
        [flow.fluid]
        density = 2.0
        viscosity = 0.5
        [flow.boundaries]
        x_low = { flow_rate = 0.5 }
        x_high = "open"
        y_low = "no-slip"
        y_high = "no-slip"
        z_low = "no-slip"
        z_high = "no-slip"
        [[flow.forces]]
        name = "walls"
        boundaries = ["y_low", "y_high", "z_low", "z_high"]
        [[flow.forces]]
        name = "inlet"
        boundaries = ["x_low"]
        [flow.head]
        inlet = "x_high"
        outlet = "x_low"
        [flow.slice]
        points = 20
        [output]
        probe_interval = 1
        probes = [{ name = "middle", position = [1.0, 0.5, 0.5] }]
        """
    )
    out = tmp_path / "out"
    code, text, err = call("run", path, "--out", out, "--device", "cpu", "--json")
    assert code == 0, err
    told = json.loads(text)
    assert told["converged"]
    assert told["diagnostics"]["residual"] < 1e-8
    flow = told["flow"]
    # Linear elements keep what comes in but for the least-squares terms.
    assert flow["openings"]["x_low"]["flow_rate"] == pytest.approx(-0.5, rel=1e-12)
    assert flow["openings"]["x_high"]["flow_rate"] == pytest.approx(0.5, rel=1e-3)
    pressures = {name: each["pressure"] for name, each in flow["openings"].items()}
    assert flow["pressure_head"] == pressures["x_low"] - pressures["x_high"] > 5.0
    assert flow["newton_iterations_per_hour"] > 0
    assert {"form left and right sides", "GMRES"} <= flow["components"].keys()
    # The reactions of all boundaries balance what flows through: the outlet takes momentum along.
    forces = {name: each["force"] for name, each in flow["forces"].items()}
    assert forces["walls"][0] > 0 > forces["inlet"][0]
    for name, head in (
        ("forces-walls", "Fx"),
        ("newton", "gmres_iterations"),
        ("gmres", "residual"),
    ):
        rows = rows_of(out / f"{name}.csv")
        assert head in rows[0]
        assert int(rows[-1]["step"]) == told["steps"]
    assert float(rows_of(out / "forces-walls.csv")[-1]["Fx"]) == forces["walls"][0]
    probe = rows_of(out / "probe-middle.csv")
    assert [int(row["step"]) for row in probe] == list(range(told["steps"] + 1))
    # In a square duct the fastest is 2.1 times as fast as the mean.
    assert 0.7 < float(probe[-1]["u"]) < 1.2
    with h5py.File(out / "fields.vtkhdf") as file:
        root = file["VTKHDF"]
        points, velocity = root["Points"][:], root["PointData/velocity"][:]
        assert len(points) == 125
        assert len(root["Connectivity"]) == 4 * 384
        inlet = points[:, 0] == 0.0
        assert velocity[inlet, 0].max() == pytest.approx(float(velocity[inlet].max()))
        assert (velocity[(points[:, 1] == 0.0)] == 0.0).all()
    assert (out / "overview.png").stat().st_size > 1000


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
    heard = _Heard()
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
    assert summary["notices"][-1] == heard.lines[1]
    times = [0.1, 0.2] + [0.2 + 0.03 * step for step in range(1, 11)]
    told = rows_of(tmp_path / "forces-inlet.csv")
    assert [int(row["step"]) for row in told] == list(range(1, 13))
    assert [float(row["time"]) for row in told] == pytest.approx(times)
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
    told = opened(data).run(out=whole, restart=True, ceilings=False)
    # Stopped before its first step, and once more after it.
    stopped = opened(data, **keep)
    stopped.run(2, out=parted, restart=True, ceilings=False)
    write_state(stopped, checkpoint_path(parted, 2))
    opened(data, **keep).run(3, out=parted, restart=True, ceilings=False)
    summary = opened(data).run(out=parted, restart=True, ceilings=False)
    assert told["steps"] == summary["steps"] == 6
    assert told["flow"]["time_step_changes"] == summary["flow"]["time_step_changes"]
    assert len(summary["flow"]["time_step_changes"]) == 1
    assert not any("time step" in line for line in summary["notices"])
    for name in ("forces-walls.csv", "newton.csv", "gmres.csv", "energy.csv"):
        assert (whole / name).read_text() == (parted / name).read_text()


def test_a_run_that_breaks_goes_on_with_a_shorter_step(tmp_path):
    solved = {"newton": {"iterations": 2, "tolerance": 1e-3}, "linear": {"tolerance": 1e-6}}
    boundaries = {**WALLS, "x_low": {"speed": "1 + 60*max(t - 0.2, 0)"}, "x_high": "open"}
    data = channel(boundaries=boundaries, time=STEPS, **solved)
    with pytest.raises(SolutionError, match=r"time_step \(now 0.1; --restart takes another"):
        opened(data, checkpoint={"interval": 1}).run(out=tmp_path, ceilings=False)
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
    told = json.loads((two / "summary.json").read_text())
    for one, other in zip(
        summary["flow"]["forces"]["walls"]["force"],
        told["flow"]["forces"]["walls"]["force"],
        strict=True,
    ):
        assert one == pytest.approx(other, abs=1e-6)
    # Reductions are of GMRES and of Newton's residuals, and one rank has none of either.
    several = {"gather", "scatter", "reductions"}
    assert several <= told["flow"]["components"].keys()
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
        ({"newton": {"iterations": 1, "tolerance": 1e-9}}, "did not converge in 1 iteration:"),
        (
            {
                "newton": {"iterations": 2, "tolerance": 1e-9},
                "linear": {"iterations": 1, "tolerance": 1e-9},
            },
            "GMRES ended by 'most iterations'",
        ),
    ],
)
def test_a_step_that_does_not_converge_leaves_the_last_good_one(tmp_path, changes, said):
    start = {"u": "sin(pi*y)*sin(pi*z)", "v": 0.0, "w": 0.0, "p": 3.0}
    simulation = opened(channel(time=STEPS, initial=start, **changes))
    before = [simulation.field(name) for name in "uvwp"]
    with pytest.raises(SolutionError, match=said) as caught:
        simulation.run(out=tmp_path, ceilings=False)
    message = str(caught.value)
    assert "residuals" in message
    assert "flow.time.time_step" in message
    assert "\n" not in message
    assert simulation.step == 0
    for name, values in zip("uvwp", before, strict=True):
        assert np.array_equal(simulation.field(name), values)
    assert list(tmp_path.glob("broken-*.h5"))


@pytest.mark.parametrize("pseudo", [None, 1.0])
def test_steady_flow_that_diverges_ends_with_its_residuals_and_what_to_try(tmp_path, pseudo):
    turning = {"moving": {"rotation": [0.0, 0.0, 1000.0], "centre": [0.2, 0.2, 0.0]}}
    walls = dict.fromkeys(("inlet", "outlet", "walls"), "no-slip")
    table = {
        "cylinder_slice": {"resolution": 4},
        "fluid": {"density": 1000.0, "viscosity": 1e-3},
        "boundaries": {**walls, "back": "slip", "front": "slip", "cylinder": turning},
        "pressure_at": [0.0, 0.0, 0.0],
        "time": {} if pseudo is None else {"pseudo_time_step": pseudo},
    }
    data = {"solver": "flow", "flow": table}
    with pytest.raises(SolutionError, match="Newton's method diverges") as caught:
        opened(data).run(out=tmp_path, ceilings=False)
    message = str(caught.value)
    assert "at first" in message
    assert "pseudo_time_step" in message
    assert "\n" not in message
    assert list(tmp_path.glob("broken-*.h5"))


def test_a_run_that_is_killed_leaves_the_tables_up_to_the_last_step_that_was_told(tmp_path):
    simulation = opened(channel(time=STEPS))
    advance = simulation.solver.advance

    def killed(steps):
        if simulation.step == 3:
            raise KeyboardInterrupt
        advance(steps)

    simulation.solver.advance = killed
    heard = _Heard()
    with pytest.raises(KeyboardInterrupt):
        simulation.run(out=tmp_path, ceilings=False, progress=heard)
    assert len(heard.rates) == 3
    for rate in heard.rates:
        value, unit = rate.split(" ", 1)
        assert float(value) > 0
        assert unit.endswith("nodes/s")
    rows = rows_of(tmp_path / "forces-walls.csv")
    assert [int(row["step"]) for row in rows] == [1, 2, 3]
    assert float(rows[-1]["Fx"]) == simulation.solver.results.last_forces()["walls"][0]
    newton = rows_of(tmp_path / "newton.csv")
    assert sorted({row["step"] for row in newton}) == ["1", "2", "3"]
    assert newton[0]["iteration"] == "0"


class _Heard:
    """Progress that keeps the rates that it is told."""

    def __init__(self) -> None:
        self.rates: list[str] = []
        self.lines: list[str] = []

    def update(self, step, end, rate, residual) -> None:
        self.rates.append(rate)

    def line(self, text) -> None:
        self.lines.append(text)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"time": {}}, "unsteady flow and this case is steady"),
        (
            {"time": {**STEPS, "scheme": "generalised-alpha"}},
            "holds no acceleration x, .* made from",
        ),
        (
            {"boundaries": {**WALLS, "x_low": {"resistance": {"proximal": 1.0}}, "x_high": "open"}},
            "other outlets",
        ),
    ],
)
def test_a_checkpoint_of_another_case_is_refused(tmp_path, changes, said):
    opened(channel(time=STEPS), checkpoint={"at_end": True}).run(1, out=tmp_path, ceilings=False)
    with pytest.raises(InputError, match=said):
        opened(channel(**{"time": STEPS, **changes})).run(
            out=tmp_path, restart=True, ceilings=False
        )


def test_unsteady_flow_does_not_go_on_from_a_steady_one(tmp_path):
    opened(channel(), checkpoint={"at_end": True}).run(1, out=tmp_path, ceilings=False)
    slabs = {**STEPS, "scheme": "space-time"}
    with pytest.raises(InputError, match="of steady flow and this case is unsteady"):
        opened(channel(time=slabs)).run(out=tmp_path, restart=True, ceilings=False)


def test_forces_with_other_columns_begin_anew_at_a_restart(tmp_path):
    opened(channel(time=STEPS), checkpoint={"at_end": True}).run(1, out=tmp_path, ceilings=False)
    forces = [{"name": "walls", "boundaries": ["y_low"]}]
    opened(channel(time=STEPS, forces=forces)).run(2, out=tmp_path, restart=True, ceilings=False)
    rows = rows_of(tmp_path / "forces-walls.csv")
    assert [row["step"] for row in rows] == ["2"]
    assert "cx" not in rows[0]


def test_on_gpus_only_components_that_the_host_waits_for_are_told():
    simulation = opened(channel())
    results = RunResults(simulation.case.flow, _OnGpu(simulation.solver.system))
    with results.phases:
        simulation.solver._steps.advance(0)
    lines = results.finish(None, simulation.solver.state, 1.0, 1).lines
    assert list(results.phases.table(1.0)) == ["form left and right sides", "GMRES"]
    assert sum("on GPUs" in line for line in lines) == 1
    assert not any("matrix-vector" in line for line in lines)


class _OnGpu:
    """A system whose device says that it is a GPU."""

    def __init__(self, system) -> None:
        self._system = system
        self.device = SimpleNamespace(kind="cuda")

    def __getattr__(self, name):
        return getattr(self._system, name)


def test_shear_of_a_plane_flow_is_that_of_a_parabola(tmp_path):
    parabola = {"velocity": ["4*y*(1-y)", 0.0, 0.0]}
    walls = {"y_low": "no-slip", "y_high": "no-slip", "z_low": "slip", "z_high": "slip"}
    data = channel(
        box={"cells": [4, 12, 2], "upper": [1.0, 1.0, 0.5]},
        boundaries={**walls, "x_low": parabola, "x_high": {"velocity": ["4*y*(1-y)", 0.0, 0.0]}},
        pressure_at=[0.0, 0.0, 0.0],
        shear={"thresholds": [1.0], "stagnation_speed": 0.5},
        forces=[],
    )
    summary = opened(data).run(out=tmp_path, ceilings=False)
    # mu du/dy = 0.5 * 4 (1 - 2 y): half of the volume has less than 1 Pa.
    told = summary["shear"]
    assert told["largest_wall_shear"]["y_low"] == pytest.approx(2.0, rel=0.1)
    assert told["volume_shares_of_shear_stress"]["volume"] == pytest.approx([0.5, 0.5], abs=0.05)
    assert told["stagnation"]["volume"] == pytest.approx(1 - math.sqrt(0.5), abs=0.06)
    with h5py.File(tmp_path / "shear.vtkhdf") as file:
        points = file["VTKHDF/Points"][:]
        pull = file["VTKHDF/PointData/wall_shear"][:]
    inner = (points[:, 1] == 0.0) & (points[:, 0] > 0.3) & (points[:, 0] < 0.7)
    assert pull[inner, 0] == pytest.approx(2.0, rel=0.15)
    assert (pull[(points[:, 1] > 0.01) & (points[:, 1] < 0.99)] == 0.0).all()


def test_flow_that_comes_in_follows_its_signal(tmp_path):
    signal = tmp_path / "pulse.csv"
    signal.write_text("time,factor\n0.0,0.0\n0.2,1.0\n0.4,0.5\n")
    inlet = {"flow_rate": "2 + t", "signal": str(signal), "profile": "developed"}
    boundaries = {**WALLS, "x_low": inlet, "x_high": {"pressure": "10*t", "backflow": 0.5}}
    simulation = opened(channel(boundaries=boundaries, time=STEPS))
    for step, factor in ((1, 0.5), (2, 1.0), (3, 0.75)):
        simulation.run(step, ceilings=False)
        openings = simulation.solver.results.openings(simulation.solver.state)
        expected = -(2 + 0.1 * step) * factor
        assert openings["x_low"]["flow_rate"] == pytest.approx(expected, rel=1e-12)
        assert openings["x_high"]["flow_rate"] == pytest.approx(-expected, rel=2e-2)


def test_a_resistance_raises_the_pressure_with_what_flows_out():
    found = []
    for outlet in ("open", {"resistance": {"proximal": 50.0, "outside": 7.0}}):
        boundaries = {**WALLS, "x_low": {"speed": 1.0}, "x_high": outlet}
        simulation = opened(channel(boundaries=boundaries))
        assert simulation.run(ceilings=False)["converged"]
        found.append(simulation.solver.results.openings(simulation.solver.state))
    free, held = found
    raised = 7.0 + 50.0 * held["x_high"]["flow_rate"]
    assert raised == pytest.approx(57.0, rel=1e-2)
    for name in ("x_low", "x_high"):
        assert held[name]["pressure"] - free[name]["pressure"] == pytest.approx(raised, rel=1e-6)


def test_what_turns_with_its_walls_and_its_frame_is_a_solid_rotation():
    turning = {"moving": {"rotation": [0.0, 0.0, 2.0], "centre": [0.5, 0.5, 0.0]}}
    sides = ("x_low", "x_high", "y_low", "y_high", "z_low", "z_high")
    data = channel(
        box={"cells": [3, 3, 3]},
        boundaries=dict.fromkeys(sides, turning),
        zones={"volume": {"rotation": [0.0, 0.0, 2.0], "centre": [0.5, 0.5, 0.0]}},
        pressure_at=[0.5, 0.5, 0.5],
        forces=[],
    )
    simulation = opened(data, run={"tolerance": 1e-9})
    simulation.run(ceilings=False)
    part = simulation.solver.system.part
    own = simulation.solver.places.own_nodes
    x, y, _ = part.nodes[own].T
    # The pressure is a parabola, which linear elements miss a little.
    assert simulation.field("u") == pytest.approx(-2.0 * (y - 0.5), abs=5e-3)
    assert simulation.field("v") == pytest.approx(2.0 * (x - 0.5), abs=5e-3)
    assert simulation.field("w") == pytest.approx(0.0, abs=5e-3)


def test_steady_flow_that_starts_from_its_solution_is_found_at_once():
    """Its residual is rounding from the start, and cannot fall any more."""
    wall = {"moving": {"velocity": [1.0, 0.0, 0.0]}}
    shear = {"velocity": ["y", 0.0, 0.0]}
    data = {
        "solver": "flow",
        "flow": {
            "box": {"cells": [3, 3, 3]},
            "fluid": {"density": 1.0, "viscosity": 0.1},
            "boundaries": {
                "x_low": shear,
                "x_high": shear,
                "y_low": "no-slip",
                "y_high": wall,
                **dict.fromkeys(("z_low", "z_high"), "slip"),
            },
            "pressure_at": [0.0, 0.0, 0.0],
        },
        "run": {"steps": 10},
    }
    residuals = {}
    for start in ("y", "y + 0.01*sin(pi*x)*sin(pi*y)", "0"):
        data["flow"]["initial"] = {"u": start}
        simulation = Simulation(check(data, FlowCase, "case"), name="shear", device="cpu")
        assert simulation.run(ceilings=False)["converged"]
        rows = simulation.solver.results.newton_rows
        residuals[start] = [row[3] for row in rows if row[2] == 0] + [rows[-1][3]]
    # From elsewhere it falls as far as it was asked to, however near that is.
    exact, near, rest = residuals.values()
    assert len(exact) == 2 < len(near)
    assert exact[0] < 1e-12 * rest[0]
    assert near[-1] < 1e-8 * near[0]


def test_steady_flow_from_rest_needs_pseudo_time_at_a_high_reynolds_number():
    sides = ("x_low", "x_high", "y_low", "z_low", "z_high")
    lid = {"y_high": {"moving": {"velocity": [1.0, 0.0, 0.0]}}}
    data = channel(
        box={"cells": [6, 6, 6], "to_walls": 0.5},
        fluid={"density": 1.0, "viscosity": 1e-3},
        boundaries={**dict.fromkeys(sides, "no-slip"), **lid},
        pressure_at=[0.0, 0.0, 0.0],
        forces=[],
        time={"pseudo_time_step": 0.5},
    )
    simulation = opened(data, run={"steps": 40, "tolerance": 1e-6})
    assert simulation.run(ceilings=False)["converged"]
    assert simulation.diagnostics()["largest_speed"] == pytest.approx(1.0)
    assert math.isfinite(simulation.diagnostics()["kinetic_energy"])
