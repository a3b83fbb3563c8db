"""Claims about when the flow that profiles are taken of is called steady, and what is told if not."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from haloscope.case.tables import check
from haloscope.device import open_device
from haloscope.exchange.ranks.world import World
from haloscope.numerics.reduce import exact_sum
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.outputs.profiles import (
    STRETCHES,
    Steadiness,
    add_sample,
    largest_change,
    means_of_parts,
)
from haloscope.solvers.blood.signals import read_signal
from haloscope.solvers.blood.solver import BloodSolver

_PLATES = {
    "spacing_um": 1.0,
    "relaxation_time": 1.2,
    "channel": {"size_um": [2.0, 10.0, 2.0], "periodic": ["x", "z"]},
    "pressure_gradient_pa_m": [1e5, 0.0, 0.0],
}
# 1 / (1 + 1 / (2 n^2)) with n = 10 points between the plates.
_EXACT = 1 / 1.005
_CAPSULE = {
    "shape": "sphere",
    "radius_um": 2.5,
    "vertices": 162,
    "elements": "linear",
    "placed": [{"position_um": [7.0, 6.0, 7.0]}],
}


def _solver(blood, **profile):
    plates = {
        key: value for key, value in _PLATES.items() if key != "channel" or "tube" not in blood
    }
    data = {**plates, **blood, "profile": {"bins": 5, **profile}}
    case = check({"solver": "blood", "blood": data}, BloodCase, "test")
    return BloodSolver(case, open_device("cpu", threads=1), World())


def _run(blood, steps, **profile):
    """The summary's profile at the end, and the lines on the viscosity and on the flow."""
    solver = _solver(blood, **profile)
    solver.advance(steps)
    return _told(solver)


def _told(solver):
    results = solver.finish(None, {})
    at = next(n for n, line in enumerate(results.lines) if line.startswith("apparent viscosity"))
    return results.summary["profile"], "\n".join(results.lines[at : at + 2])


# Flows that are not steady


def test_a_short_run_tells_that_its_viscosity_is_not_of_a_steady_flow():
    profile, line = _run({}, 40, interval=4)
    assert profile["apparent_viscosity"] > 2 * _EXACT
    assert profile["steady"] is False
    # h^2 / (pi^2 nu)
    startup = 1e-10 / (math.pi**2 * 1.2e-3 / 1025)
    assert profile["startup_time_s"] == pytest.approx(startup)
    # In its first moments the flow grows evenly from 0; it doubles in the time that it has had.
    assert profile["flow_change"] == pytest.approx(
        1.8 * startup / profile["change_time_s"], rel=0.2
    )
    assert "between walls 10 um apart (the flow is not steady)\n" in line
    assert "\nthe flow is not steady: it changes by +" in line
    assert f"{100 * profile['flow_change']:+.3g} % in 8.65 us" in line
    assert "its start-up takes 43.3 us" in line
    assert line.endswith("run longer or raise blood.profile.start")


@pytest.mark.parametrize("start", [0, 100, 200])
def test_no_flow_is_called_steady_whose_viscosity_is_not_that_of_the_steady_one(start):
    solver = _solver({}, start=start, interval=10)
    called = []
    while solver.step < 22_000 if start == 0 else solver.step < 2_000:
        solver.advance(max(20, solver.step // 2) if solver.step else start + 1)
        profile = solver.finish(None, {}).summary["profile"]
        if profile is not None and profile["steady"]:
            assert profile["apparent_viscosity"] == pytest.approx(_EXACT, rel=0.01)
            called.append(solver.step)
    # Nor does any flow stay unsteady.
    assert called
    assert called[-1] == solver.step


def test_the_change_in_a_startup_time_is_what_is_missing_to_the_steady_flow():
    # Late in the start-up one part of it is left, which falls by e in that time.
    for start in (60, 120):
        profile, _ = _run({}, start + 9, start=start, interval=2)
        missing = profile["apparent_viscosity"] / _EXACT - 1
        assert 0.03 < missing < 0.5
        assert profile["flow_change"] == pytest.approx(missing, rel=0.1)
        assert profile["steady"] is False


def test_means_that_are_not_of_a_steady_flow_get_a_warning_and_others_none():
    for steps, start, warned in ((40, 20, 1), (600, 500, 0)):
        solver = _solver({}, start=start, interval=10)
        solver.advance(steps)
        notices = [line for line in solver.finish(None, {}).notices if "not final" in line]
        assert len(notices) == warned
        assert all(
            line.startswith(
                "warning: mean profile and apparent viscosity not final: the flow is not"
            )
            for line in notices
        )


def test_a_flow_that_stands_still_for_a_moment_is_not_steady():
    # As plasma that begins to move in a vessel all at once slows down beside walls first.
    plug = {"initial": {"u": 6.5e-4}}
    solver = _solver(plug, interval=1)
    flows = [math.inf]
    for _ in range(80):
        solver.advance(1)
        flows.append(float(solver.relative("u").mean()))
    slowest = int(np.argmin(flows))
    assert 2 < slowest < 79
    # Two samples, before and after that moment, at which the flow is the same.
    start = slowest - 2
    last = min(range(slowest, 80), key=lambda step: abs(flows[step] - flows[start]))
    profile, line = _run(plug, last, start=start, interval=last - start)
    assert abs(profile["flow_change"]) < 0.01
    assert abs(profile["apparent_viscosity"] / _EXACT - 1) > 0.02
    assert profile["steady"] is False
    assert "start-up takes" in line


def test_flow_that_follows_a_signal_is_not_steady_however_its_samples_lie():
    period = 100
    step = _solver({}).units.time_step
    drive = f"1 + 0.5*sin(2*pi*t/{period * step!r})"
    profile, line = _run({"drive": drive}, 1001, start=500, interval=period)
    assert abs(profile["flow_change"]) < 0.01
    assert profile["drive_change"] == pytest.approx(2 / 3, rel=1e-4)
    assert profile["steady"] is False
    assert "its driving force changes by 66.7 % meanwhile" in line
    # One that has come to its end does not count any more.
    profile, _ = _run({"drive": f"min(1, t/{50 * step!r})"}, 1000, start=600, interval=10)
    assert profile["drive_change"] == 0.0
    assert profile["steady"] is True


def test_a_pressure_gradient_that_still_settles_is_told():
    blood = {
        "channel": {"size_um": [24.0, 8.0, 2.0], "periodic": ["z"], "open": ["x"]},
        "pressure_gradient_pa_m": [0.0, 0.0, 0.0],
        "relaxation_time": 1.0,
        "openings": [
            {"name": "x_low", "kind": "velocity", "value": 2e-3},
            {"name": "x_high", "kind": "pressure"},
        ],
    }
    profile, line = _run(blood, 400, start=200, interval=5)
    assert abs(profile["gradient_change"]) > 0.01
    assert profile["steady"] is False
    assert "its pressure gradient changes by" in line
    profile, line = _run(blood, 1200, start=1000, interval=5)
    assert abs(profile["gradient_change"]) < 1e-4
    assert profile["steady"] is True
    assert "between walls 8 um apart\nthe flow is steady: it changes by" in line


def test_one_sample_does_not_tell_whether_a_flow_is_steady():
    profile, line = _run({}, 600, start=600)
    assert profile["steady"] is None
    assert profile["flow_change"] is None
    assert " (the flow may not be steady)\n" in line
    assert "\nwhether the flow is steady is unknown from one sample" in line
    # That it began a moment ago does.
    assert _run({}, 10, start=10)[0]["steady"] is False
    assert "NaN" not in json.dumps(profile)


def test_cells_that_have_gone_a_short_way_keep_a_flow_from_being_called_steady():
    blood = {
        "channel": {"size_um": [14.0, 12.0, 14.0], "periodic": ["x", "z"]},
        "cells": [_CAPSULE],
    }
    profile, line = _run(blood, 600, start=400, interval=10)
    assert abs(profile["flow_change"]) < 0.01
    gone = profile["mean_speed_m_s"] * 600 * _solver(blood).units.time_step / 12e-6
    assert profile["diameters_passed"] == pytest.approx(gone)
    assert profile["steady"] is False
    assert (
        f"blood has travelled {gone:.3g} of the 25 diameters in which the distribution of cells"
        in line
    )


def test_a_viscosity_of_unsteady_blood_is_not_held_against_experiments():
    blood = {
        "tube": {"radius_um": 6.0, "length_um": 12.0},
        "cells": [{**_CAPSULE, "placed": [{"position_um": [6.0, 0.0, 0.0]}]}],
    }
    profile, line = _run(blood, 30, interval=5)
    assert profile["steady"] is False
    assert " (the flow is not steady); experiments " in line
    assert "Pries et al. 1992)\nthe flow is not steady: it changes by" in line
    # Of the viscosity over that of experiments.
    assert f"{100 * profile['over_pries']:+.2g} %" not in line


def test_blood_counts_as_new_once_it_has_gone_through_a_vessel_with_open_ends():
    judged = Steadiness(0.0, 0.0, 1.0, 0.0, 1e-3, 1.0, diameters=4.0, length=3.0)
    assert judged.steady is True
    judged = Steadiness(0.0, 0.0, 1.0, 0.0, 1e-3, 1.0, diameters=2.0, length=3.0)
    assert judged.steady is False
    assert "2 of the 3 diameters" in judged.describe()


def test_a_restart_tells_the_same_of_a_flow():
    # More samples than there are sums, before and after.
    solver, again = _solver({}, interval=1), _solver({}, interval=1)
    solver.advance(70)
    values = {name: solver.owned(name) for name in solver.stored}
    again.restore(70, solver.scalars(), values.__getitem__)
    again.restore_extras({name: np.array(array) for name, array in solver.extras().items()})
    reports = []
    for instance in (solver, again):
        instance.advance(70)
        reports.append(_told(instance))
    assert reports[0] == reports[1]
    assert reports[0] == _run({}, 140, interval=1)


# Sums


@pytest.mark.parametrize("samples", [1, 2, 3, 7, 63, 64, 65, 100, 128, 129, 1000])
def test_means_of_parts_are_those_of_the_samples_themselves(samples):
    values = np.random.default_rng(samples).standard_normal(samples)
    sums = np.zeros((2, STRETCHES), np.int64)
    for taken, value in enumerate(values):
        add_sample(sums, taken, exact_sum([value]))
    means, middles = means_of_parts(sums, samples)
    assert len(means) == min(4, samples)
    # Parts are runs of samples around their middles, about as long as each other.
    sizes, begin = [], 0
    for mean, middle in zip(means, middles, strict=True):
        size = round(2 * (middle - begin)) + 1
        assert mean == pytest.approx(values[begin : begin + size].mean(), abs=1e-12)
        begin += size
        sizes.append(size)
    assert begin == samples
    assert max(sizes) <= 2 * min(sizes)


def test_the_largest_change_has_its_sign_and_goes_on_for_a_startup_time():
    times = np.array([0.0, 1.0, 2.0, 3.0])
    assert largest_change(np.array([1.0, 3.0, 2.0, 2.0]), times, 1.0) == (2.0, 3.0)
    assert largest_change(np.array([3.0, 2.0, 1.0, 2.0]), times, 1.0) == (-2.0, 3.0)
    # Halves are alike.
    assert largest_change(np.array([1.0, 2.0, 2.0, 1.0]), times, 1.0)[0] == 1.0
    assert largest_change(np.array([1.0, 1.0, 3.0, 2.0]), times, 10.0) == (20.0, 10.0)
    assert math.isnan(largest_change(np.array([1.0]), times[:1], 1.0)[0])


def test_the_change_of_a_signal_is_that_between_two_times(tmp_path):
    path = tmp_path / "heart.csv"
    path.write_text("0,1\n0.2,3\n0.8,1\n")
    once, again = read_signal(str(path), "key"), read_signal(str(path), "key", 0.8)
    assert once.change(0.0, 9.0) == pytest.approx(2 / 3)
    assert once.change(0.8, 9.0) == 0.0
    assert once.change(0.1, 0.3) == pytest.approx((3 - 2) / 3)
    assert again.change(1.7, 1.9) == pytest.approx((3 - 2) / 3)
    # Over the end of a period, where it is 1.
    assert again.change(0.7, 0.9) == pytest.approx((2 - 1) / 2)
    assert again.change(5.0, 9.0) == pytest.approx(2 / 3)
    assert read_signal(2.0, "key").change(0.0, 1.0) == 0.0
    assert read_signal("t", "key").change(1.0, 4.0) == pytest.approx(0.75)
