"""Claims about runs of flow cases: what they tell and write, and leave when they break."""

from __future__ import annotations

import json
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from refusals import refused
from short_channels import STEPS, Heard, channel, channel_text, opened, rows_of

from haloscope.device.meters import Ceilings
from haloscope.errors import SolutionError
from haloscope.solvers.flow.results import RunResults

_CEILINGS = Ceilings(copy=8.0, update=16.0, triad=12.0, load=0.5)


def test_a_steady_run_tells_forces_flow_rates_and_what_the_time_went_to(
    tmp_path, call, monkeypatch
):
    monkeypatch.setattr("haloscope.run.summary.measure_ceilings", lambda device, sharing: _CEILINGS)
    path = tmp_path / "channel.toml"
    path.write_text(
        channel_text([4, 4, 4], [2.0, 1.0, 1.0], "flow_rate = 0.5")
        + """
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
    summary = json.loads(text)
    assert summary["converged"]
    assert summary["diagnostics"]["residual"] < 1e-8
    flow = summary["flow"]
    # Linear elements keep what comes in but for the least-squares terms.
    assert flow["openings"]["x_low"]["flow_rate"] == pytest.approx(-0.5, rel=1e-12)
    assert flow["openings"]["x_high"]["flow_rate"] == pytest.approx(0.5, rel=1e-3)
    pressures = {name: opening["pressure"] for name, opening in flow["openings"].items()}
    assert flow["pressure_head"] == pressures["x_low"] - pressures["x_high"] > 5.0
    assert flow["newton_iterations_per_hour"] > 0
    assert {"form left and right sides", "GMRES"} <= flow["components"].keys()
    # The reactions of all boundaries balance what flows through: the outlet takes momentum along.
    forces = {name: wall["force"] for name, wall in flow["forces"].items()}
    assert forces["walls"][0] > 0 > forces["inlet"][0]
    for name, head in (
        ("forces-walls", "Fx"),
        ("newton", "gmres_iterations"),
        ("gmres", "residual"),
    ):
        rows = rows_of(out / f"{name}.csv")
        assert head in rows[0]
        assert int(rows[-1]["step"]) == summary["steps"]
    assert float(rows_of(out / "forces-walls.csv")[-1]["Fx"]) == forces["walls"][0]
    probe = rows_of(out / "probe-middle.csv")
    assert [int(row["step"]) for row in probe] == list(range(summary["steps"] + 1))
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
    with refused(SolutionError) as refusal:
        simulation.run(out=tmp_path, ceilings=False)
    message = refusal.text
    assert said in message
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
    with refused(SolutionError, problem="Newton's method diverges.*at first") as refusal:
        opened(data).run(out=tmp_path, ceilings=False)
    message = refusal.text
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
    heard = Heard()
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
