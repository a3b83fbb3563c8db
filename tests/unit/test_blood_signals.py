"""Claims about signals and profiles of openings that come from tables."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from refusals import refused

from haloscope.case.tables import check
from haloscope.device import open_device
from haloscope.errors import SolutionError
from haloscope.exchange.ranks.world import World
from haloscope.solvers import registry
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.outputs import profiles
from haloscope.solvers.blood.signals import read_signal

_SPEED = 0.01


def _channel(openings, **keys):
    data = {
        "solver": "blood",
        "blood": {
            "spacing_um": 1.0,
            "channel": {"size_um": [8.0, 8.0, 3.0], "periodic": ["z"], "open": ["x"]},
            "openings": openings,
            **keys,
        },
    }
    return registry.make_solver(
        check(data, BloodCase, "test"), open_device("cpu", threads=1), World()
    )


def test_a_heart_that_beats_begins_its_table_again(tmp_path):
    path = tmp_path / "heart.csv"
    path.write_text("t (s),factor\n0,1\n0.2,3\n0.8,1\n")
    once, again = read_signal(str(path), "key"), read_signal(str(path), "key", 0.8)
    for t, one in ((0.0, 1.0), (0.1, 2.0), (0.2, 3.0), (0.5, 2.0)):
        assert once(t) == pytest.approx(one)
        assert again(t + 1.6) == pytest.approx(one)
    assert once(5.0) == 1.0
    assert not once.steady
    assert read_signal(2.0, "key").steady
    assert read_signal("1 + t", "key", 2.0)(5.0) == 2.0


def test_the_largest_value_of_a_signal_is_that_up_to_a_time(tmp_path):
    path = tmp_path / "heart.csv"
    path.write_text("-1,9\n0,1\n0.2,-3\n0.8,1\n")
    table, beats = read_signal(str(path), "key"), read_signal(str(path), "key", 0.5)
    for until, largest in ((0.0, 1.0), (0.1, 1.0), (0.15, 2.0), (7.0, 3.0)):
        assert table.largest(until) == pytest.approx(largest)
        assert beats.largest(until) == pytest.approx(largest)
    assert read_signal(2.0, "key").largest(1.0) == 2.0
    assert read_signal("1 - 4*t", "key").largest(2.0) == pytest.approx(7.0)
    assert read_signal("1 - 4*t", "key", 1.0).largest(2.0) == pytest.approx(3.0)
    # What is not finite is told when it is reached.
    assert read_signal("1/t", "key").largest(0.0) == 0.0


@pytest.mark.parametrize(
    ("text", "period", "fields"),
    [
        (
            "0,1\n0.2,3\n",
            0.8,
            {"location": "^inlet.signal$", "problem": "0 to 0.2 s and its period is 0.8 s"},
        ),
        ("0,1\n0.2,high\n", None, {"location": "^inlet.signal: .*heart.csv, line 2"}),
        (
            "0,1\n",
            None,
            {
                "location": "^inlet.signal: ",
                "problem": "1 row of numbers",
                "allowed": "at least 2",
            },
        ),
    ],
)
def test_tables_that_do_not_do_are_told_with_their_key(tmp_path, text, period, fields):
    path = tmp_path / "heart.csv"
    path.write_text(text)
    with refused(**fields):
        read_signal(str(path), "inlet.signal", period)


def test_a_table_that_is_not_there_is_told_with_its_key():
    with refused(location="^inlet.signal: table nothing.csv$", problem="it cannot be read"):
        read_signal("nothing.csv", "inlet.signal")


def test_an_inlet_takes_its_profile_and_its_signal_from_tables(tmp_path):
    profile, signal = tmp_path / "profile.csv", tmp_path / "signal.csv"
    profile.write_text("0,2\n4e-6,0\n")
    solver = _channel(
        [
            {"name": "x_low", "kind": "velocity", "value": _SPEED, "profile": str(profile)},
            {"name": "x_high", "kind": "pressure"},
        ]
    )
    part, units = solver.part, solver.units
    inlet = np.flatnonzero(part.openings[: part.owned] == 0)
    x = solver.vessel.lattice.positions(part.numbers[inlet])
    away = np.hypot(*(x[:, axis] - x[:, axis].mean() for axis in (1, 2)))
    signal.write_text(f"0,0\n{40 * units.time_step!r},1\n")
    pulsed = _channel(
        [
            {
                "name": "x_low",
                "kind": "velocity",
                "value": _SPEED,
                "profile": str(profile),
                "signal": str(signal),
            },
            {"name": "x_high", "kind": "pressure"},
        ]
    )
    for one, factor in ((solver, 1.0), (pulsed, 0.5)):
        one.advance(21)
        speed = one.relative("u")[inlet]
        wanted = factor * _SPEED * 2 * np.maximum(1 - away / 4e-6, 0)
        assert np.abs(speed - wanted).max() < 1e-9 * _SPEED


def test_profiles_of_a_flow_that_broke_stop_the_run_in_a_line():
    broken = np.zeros((3, 4))
    broken[1, 2] = np.nan
    sampled = profiles.Profiles.__new__(profiles.Profiles)
    sampled._sums, sampled._profile = {}, SimpleNamespace(bins=2)
    sampled.vessel, sampled._chosen = SimpleNamespace(axis=0), np.arange(4)
    sampled._fluid = SimpleNamespace(moments=lambda: (np.ones(4), broken))
    sampled._world, sampled._suspension = World(), None
    with refused(SolutionError, problem="velocities of the fluid are not finite"):
        sampled.sample(10)


def test_a_flow_that_becomes_too_fast_for_the_lattice_stops_the_run():
    solver = _channel(
        [
            {"name": "x_low", "kind": "velocity", "value": _SPEED, "signal": "1 + 2e2*(t>2e-6)"},
            {"name": "x_high", "kind": "pressure"},
        ],
        end_time_ms=1e-3,
    )
    solver.follow()
    # Longer than was said beforehand.
    solver.advance(30)
    with refused(SolutionError, problem="lattice Mach number of [0-9.]+", allowed="at most 0.4"):
        solver.follow()


def test_a_run_with_interpolated_walls_says_what_mass_they_cost():
    tube = {"tube": {"radius_um": 4.0, "length_um": 3.0}, "pressure_gradient_pa_m": [1e7, 0.0, 0.0]}
    data = {
        "solver": "blood",
        "blood": {"spacing_um": 1.0, "walls": {"kind": "interpolated"}, **tube},
    }
    solver = registry.make_solver(
        check(data, BloodCase, "test"), open_device("cpu", threads=1), World()
    )
    solver.advance(40)
    density, _ = solver.fluid.moments()
    line = solver.headline(solver.diagnostics())[-1]
    assert f"mean density {density.mean() - 1:+.2g} relative to that at rest" in line
    assert abs(density.mean() - 1) > 1e-12


# Smooth curves and flow rates


def _wave(path, count=24, period=0.8):
    """A table of a smooth periodic wave, and the wave."""

    def wave(t):
        turns = 2 * np.pi * np.asarray(t) / period
        return 1 + 0.5 * np.cos(turns - 0.3) + 0.2 * np.sin(2 * turns)

    times = np.linspace(0.0, period, count + 1)
    rows = zip(times.tolist(), wave(times).tolist(), strict=True)
    path.write_text("t,f\n" + "".join(f"{t!r},{f!r}\n" for t, f in rows))
    return wave


@pytest.mark.parametrize(
    ("interpolation", "modes", "within"),
    [("periodic", None, 1e-3), ("fourier", 2, 1e-3), ("fourier", 8, 1e-3), ("fourier", 1, None)],
)
def test_smooth_curves_follow_a_smooth_wave(tmp_path, interpolation, modes, within):
    wave = _wave(tmp_path / "wave.csv")
    signal = read_signal(str(tmp_path / "wave.csv"), "key", 0.8, interpolation, modes)
    times = np.linspace(0, 0.8, 1001)
    values = np.array([signal(t) for t in times])
    if within is None:
        # The second mode is left out, and the line on the curve tells how large it is.
        assert np.abs(values - wave(times)).max() == pytest.approx(0.2, rel=0.01)
        assert f"Fourier series of {modes} modes through 25 rows" in signal.smoothness()
        assert "at most 0.2 " in signal.smoothness()
        return
    np.testing.assert_allclose(values, wave(times), atol=within)
    assert signal(0.3 + 8 * 0.8) == pytest.approx(signal(0.3), rel=1e-9)
    # Slopes are those of the wave, too, also where the period begins again.
    slopes = [(signal(t + 1e-4) - signal(t - 1e-4)) / 2e-4 for t in (0.0, 0.1, 0.8)]
    exact = [(wave(t + 1e-4) - wave(t - 1e-4)) / 2e-4 for t in (0.0, 0.1, 0.8)]
    np.testing.assert_allclose(slopes, exact, atol=0.05)
    assert signal.largest(0.8) == pytest.approx(np.abs(wave(times)).max(), rel=1e-3)
    assert signal.mean(5.0) == pytest.approx(1.0, rel=1e-3)


def test_a_table_that_does_not_close_is_missed_at_its_end(tmp_path):
    path = tmp_path / "open.csv"
    path.write_text("0,1\n0.2,2\n0.4,1.5\n0.6,1.2\n0.8,1.3\n")
    signal = read_signal(str(path), "key", 0.8, "periodic")
    assert "misses by at most 0.3 (15 % of the largest)" in signal.smoothness()
    assert read_signal(str(path), "key", 0.8).smoothness() == ""


@pytest.mark.parametrize(
    ("more", "fields"),
    [
        ({"interpolation": "periodic", "signal": "1+t"}, {"problem": "no CSV file"}),
        ({"interpolation": "periodic", "period_s": None}, {"problem": "period_s is missing"}),
        ({"modes": 3}, {"problem": 'interpolation is "linear"'}),
        (
            {"interpolation": "fourier", "modes": 20},
            {"allowed": "at least 41 for 20 Fourier modes"},
        ),
        ({"interpolation": "periodic", "period_s": 8e-4}, {"remedy": "from milliseconds"}),
    ],
)
def test_smooth_curves_without_rows_or_a_period_are_refused(tmp_path, more, fields):
    _wave(tmp_path / "wave.csv")
    inlet = {"kind": "velocity", "value": _SPEED, "signal": str(tmp_path / "wave.csv")}
    opening = {"name": "x_low", **inlet, "period_s": 0.8, **more}
    opening = {key: value for key, value in opening.items() if value is not None}
    with refused(**fields):
        _channel([opening, {"name": "x_high", "kind": "pressure"}])


def test_a_flow_rate_is_what_comes_in(tmp_path):
    """Whatever the profile; over the area of the opening's points."""
    _wave(tmp_path / "wave.csv")
    rate = _SPEED * 8e-6 * 3e-6
    for profile in ("parabolic", "uniform", "0.3 + 1e5*y"):
        inlet = {"kind": "velocity", "value": rate, "value_unit": "m3/s", "profile": profile}
        inlet |= {"signal": str(tmp_path / "wave.csv"), "period_s": 0.8, "interpolation": "fourier"}
        solver = _channel([{"name": "x_low", **inlet}, {"name": "x_high", "kind": "pressure"}])
        factor = solver.vessel.openings[0].time_signal()(0.0)
        assert solver.diagnostics()["flow_x_low"] / rate == pytest.approx(factor, rel=1e-9)
        lines = [line for line in solver.notices if "is a mean velocity of" in line]
        assert lines[0].startswith("x_low: a flow rate of 0.24 nl/s")
        assert sum("Fourier series of 8 modes" in line for line in solver.notices) == 1
