"""Claims about the cavity's arithmetic: precision, and that tiles, passes and threads change no bit."""

from __future__ import annotations

import numpy as np
import pytest
from dialect import LEAST_ROOTS
from refusals import refused
from small_cavities import PLANE, flow_data, simulate, swirl

from haloscope.device.cpu import CpuDevice
from haloscope.solvers.cavity import stepping as two_steps
from haloscope.solvers.cavity import updates
from haloscope.solvers.cavity.block_nodes import physics_values
from haloscope.solvers.cavity.stepping import Stepping


@pytest.mark.parametrize("step", ["local", "global"])
@pytest.mark.parametrize("settings", [PLANE, ()], ids=["plane", "box"])
def test_single_precision_follows_double_precision(settings, step):
    double, single = (
        simulate([*settings, f"cavity.time_step={step}", f"cavity.precision={precision}"])
        for precision in ("double", "single")
    )
    for simulation in (double, single):
        simulation.solver.advance(60)
    assert single.field("T").dtype == np.float32
    speed = max(np.abs(field).max() for name, field in double.fields.items() if name in "uvw")
    for name, field in double.fields.items():
        scale = speed if name in "uvw" else np.abs(field).max()
        # The differences of T that drive the flow are a thirtieth of T itself.
        within = 1e-6 if name == "T" else 1e-4
        assert np.abs(single.field(name) - field).max() <= within * scale, name


@pytest.mark.parametrize(("precision", "real"), [("double", "double"), ("single", "float")])
def test_the_wave_speed_is_the_root_of_a_number_in_range_however_slow_the_flow(precision, real):
    driven = ("cavity.rayleigh=0", "cavity.walls.y_high.velocity=[1e-28, 0.0, 0.0]")
    settings = [*driven, "cavity.kappa=1e-300", f"cavity.precision={precision}"]
    still = physics_values(simulate(settings).solver.flow)
    assert 4 * still["floor2"] == LEAST_ROOTS[real]
    wide = simulate([*settings, "cavity.size=[1e6, 2e6, 4e6]"]).solver.flow
    steps = physics_values(wide)
    assert 4 * steps["floor2"] * max(steps[axis] for axis in ("ax", "ay", "az")) ** 2 >= (
        LEAST_ROOTS[real] * (1 - 1e-12)
    )
    usual = simulate([f"cavity.precision={precision}"]).solver.flow
    speed2 = usual.kappa * usual.reference_velocity**2
    assert physics_values(usual)["floor2"] == speed2 > 0


@pytest.mark.parametrize("tiles", [(1, 1), (3, 2), (5, 100), (100, 5), (100, 100)])
@pytest.mark.parametrize("settings", [PLANE, ()], ids=["plane", "box"])
def test_tiles_do_not_change_a_bit(monkeypatch, settings, tiles):
    case_settings = [*settings, "cavity.time_step=global"]
    usual = simulate(case_settings)
    usual.run(60, ceilings=False)
    monkeypatch.setattr(updates, "core_tiles", lambda *unused: tiles)
    other = simulate(case_settings)
    other.run(60, ceilings=False)
    np.testing.assert_equal(flow_data(other), flow_data(usual))


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("cavity.time_step=global", "cavity.precision=single"),
        ("cavity.gravity=[3.0, -8.0, 2.0]", "cavity.walls.z_low.temperature=300 + 20*x"),
        (
            *("cavity.walls.y_high.velocity=[0.05, 0.0, 0.02]", "cavity.time_step=global"),
            *("cavity.walls.x_low.temperature=adiabatic", "cavity.walls.y_low.temperature=303.0"),
            "cavity.walls.x_high.temperature=297.0",
        ),
    ],
    ids=["as it is", "global single", "gravity aslant", "lid and floor"],
)
def test_two_steps_in_one_pass_over_memory_do_not_change_a_bit(monkeypatch, settings, threads):
    case_settings = ["cavity.nodes=[19, 37, 14]", *swirl(3), *settings]
    usual = simulate(case_settings)
    assert not usual.solver.stepping.twice  # too small a grid to pay
    usual.run(71, ceilings=False)
    monkeypatch.setattr(two_steps, "_FROM_BYTES", 0)
    monkeypatch.setattr(Stepping, "choose_passes", lambda stepping: None)
    twice = simulate(case_settings, device=CpuDevice(threads=threads))
    assert twice.solver.stepping.twice
    twice.run(71, ceilings=False)
    np.testing.assert_equal(flow_data(twice), flow_data(usual))


def test_the_trial_of_two_steps_in_one_pass_leaves_the_state_as_it_was(monkeypatch):
    usual = simulate(swirl(3))
    monkeypatch.setattr(two_steps, "_FROM_BYTES", 0)
    tried = simulate(swirl(3))
    np.testing.assert_equal(tried.fields, usual.fields)
    for simulation in (tried, usual):
        simulation.run(30, ceilings=False)
    np.testing.assert_equal(flow_data(tried), flow_data(usual))


def test_rows_along_another_axis_do_not_change_a_bit():
    case_settings = ["cavity.nodes=[13, 19, 21]", "cavity.gravity=[3.0, -8.0, 2.0]", *swirl(3)]
    simulations = [
        simulate([*case_settings, f"machine.packing={packing}"]) for packing in ("auto", "all")
    ]
    axes = [simulation.solver.nodes.layout.axes for simulation in simulations]
    assert axes == [(2, 1, 0), (0, 1, 2)]
    for simulation in simulations:
        simulation.run(71, ceilings=False)
    np.testing.assert_equal(flow_data(simulations[0]), flow_data(simulations[1]))


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("settings", [PLANE, ()], ids=["plane", "box"])
def test_threads_do_not_change_a_bit(settings, threads):
    one = simulate(settings)
    one.run(60, ceilings=False)
    several = simulate(settings, device=CpuDevice(threads=threads))
    several.run(60, ceilings=False)
    np.testing.assert_equal(flow_data(several), flow_data(one))


def test_an_initial_field_that_is_not_finite_is_refused_with_its_key():
    with refused(location=r"cavity\.initial\.T"):
        simulate(["cavity.initial.T=300 + 1/(x - 0.025)", "cavity.nodes=15", "cavity.size=0.05"])
