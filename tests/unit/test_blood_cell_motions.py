"""Checks how motions of cells are read off a run, with made-up motions whose answer is known."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from haloscope.case.tables import check
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.verification import motions


def turned(aspect: float, strain: float, looks: int) -> np.ndarray:
    """Angles of the axis in Jeffery's equation, from its way to the slow part of the turn on."""

    def rate(_: float, angle: np.ndarray) -> np.ndarray:
        square = aspect**2
        return (square * np.cos(angle) ** 2 + np.sin(angle) ** 2) / (square + 1)

    times = np.arange(looks) * strain
    return solve_ivp(rate, (0, times[-1]), [0.7], t_eval=times, rtol=1e-10, atol=1e-12).y[0]


@pytest.mark.parametrize(("aspect", "period"), [(2.0, 15.708), (4.0, 26.704)])
def test_jeffery_s_orbits_are_read_off_with_their_period_and_speeds(aspect, period):
    exact = motions.jeffery(aspect)
    assert exact.period == pytest.approx(period, abs=5e-4)
    angles = turned(aspect, 0.125, round(0.6 * period / 0.125))
    # As a cell's inclination has it: of the long axis, between -pi/2 and pi/2, against the clock.
    seen = (math.pi / 2 - angles + math.pi / 2) % math.pi - math.pi / 2
    measured = motions.orbit_of(motions.turned_by(seen), 0.125)
    assert measured.period == pytest.approx(exact.period, rel=1e-3)
    assert measured.speeds == pytest.approx(exact.speeds, rel=0.01)


def test_orbits_are_extrapolated_to_no_spacing_and_no_walls(monkeypatch):
    exact = motions.jeffery(2.0)

    def orbit(one, resolution, box, reynolds, solve):
        disturbed = (1 + 0.8 / resolution**2) * (1 + 5 / box[0] ** 3) * (1 + 0.001 * reynolds)
        return SimpleNamespace(period=exact.period * disturbed, speeds=exact.speeds * disturbed)

    monkeypatch.setattr(motions, "orbit", orbit)
    one = motions.Spheroid(2.0, 0.02, (5.0, 8.0), 4.0, 6.0, 2.0, 0.2, 0.03)
    rows = list(motions.jeffery_check(one, None).values())
    for row in rows[:2]:
        assert row.value == pytest.approx(row.reference, rel=1e-3)
        assert row.ok
    # Disturbed without it by several percent.
    assert orbit(one, 5.0, (6.0, 6.0, 5.0), 0.2, None).period > 1.05 * exact.period
    monkeypatch.setattr(motions, "jeffery", lambda aspect: motions.Orbit(16.5, 4.3))
    assert not any(row.ok for row in list(motions.jeffery_check(one, None).values())[:2])


def test_states_tell_rolling_from_tumbling_and_discs_from_other_shapes():
    disc = np.diag([0.09, 1.0, 0.81])

    def about_z(angle):
        c, s = math.cos(angle), math.sin(angle)
        return np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])

    turns = [about_z(angle) for angle in np.linspace(0, 3, 7)]
    tumbling = motions.state_of(np.array([turn @ disc @ turn.T for turn in turns]))
    assert (tumbling.rolling, tumbling.roundness) == pytest.approx((0.0, 0.9), abs=1e-12)
    wheel = np.diag([1.0, 0.36, 0.16])
    rolling = motions.state_of(np.array([turn @ wheel @ turn.T for turn in turns]))
    assert (rolling.rolling, rolling.roundness) == pytest.approx((1.0, 0.6))


def test_states_in_another_order_fail(monkeypatch):
    states = {10.0: (0.8, 0.95), 40.0: (0.9, 0.9), 400.0: (0.95, 0.6)}
    monkeypatch.setattr(motions, "sheared_state", lambda rate, _: motions.State(*states[rate]))
    assert all(row.ok for row in motions.states_check(None).values())
    states[10.0], states[400.0] = states[400.0], states[10.0]
    assert not any(row.ok for row in motions.states_check(None).values())


def test_the_layer_without_cells_is_compared_with_that_of_thicker_blood(monkeypatch):
    layers = {0.15: motions.Layer(4.0, 0.15), 0.45: motions.Layer(1.5, 0.44)}
    monkeypatch.setattr(motions, "free_layer", lambda hematocrit, _: layers[hematocrit])
    assert all(row.ok for row in motions.free_layer_check(None).values())
    layers[0.45] = motions.Layer(4.0, 0.3)
    assert [row.ok for row in motions.free_layer_check(None).values()] == [False, True, False]


def test_crowds_are_measured_once_the_flow_has_gone_its_way():
    case = motions.crowd(0.3)
    checked = check(case, BloodCase, "crowd").blood
    assert checked.inside_tau == pytest.approx(2.0)
    plasma = 2e-3
    profile, steps = case["blood"]["profile"], case["run"]["steps"]
    ways = [n * checked.units.time_step * plasma for n in (profile["start"], steps)]
    assert ways == pytest.approx([250e-6, 350e-6], rel=1e-4)
    assert (steps - profile["start"]) // profile["interval"] in range(190, 211)


def test_a_passage_tells_speed_and_dent_across_the_ends_of_the_box():
    cup = np.array(
        [[2.0, 0, 0], [-1.0, 2, 0], [-1.0, -2, 0], [0.5, 1, 1], [0.5, 1, -1], [-1, 0, 0]]
    )
    cup -= cup.mean(axis=0)
    # 0.5 um beside the middle; 8 um a look, through the end of the periodic box.
    way = np.array([[(4 + 8 * n) % 24, 6.5, 5.0] for n in range(5)])
    interval = 8e-6 / (1.5 * 1.3e-3)
    passage = motions.passage_of(cup[None] + way[:, None], interval)
    assert (passage.speed, passage.beside) == pytest.approx((1.5, 0.5))
    hollow = (cup[:, 0] ** 3).mean() / (cup[:, 0] ** 2).mean() ** 1.5
    assert passage.hollow == pytest.approx(hollow)
    turned = motions.passage_of(cup[None] * [-1, 1, 1] + way[:, None], interval)
    assert turned.hollow == pytest.approx(-hollow)


def test_cells_out_of_the_middle_of_a_capillary_or_slower_fail(monkeypatch):
    seen = {
        (2 / 3, 0.0): motions.Passage(1.50, 0.1, 0.4),
        (0.5, 0.0): motions.Passage(1.48, 0.1, 0.4),
        (2 / 3, 1.5): motions.Passage(1.49, 0.2, 0.4),
    }
    monkeypatch.setattr(motions, "passage", lambda spacing, beside, _: seen[spacing, beside])
    assert all(row.ok for row in motions.capillary_check(None).values())
    seen[0.5, 0.0] = motions.Passage(1.3, 1.2, 0.1)
    seen[2 / 3, 1.5] = motions.Passage(1.2, 2.0, 0.1)
    assert not any(row.ok for row in motions.capillary_check(None).values())


def test_the_capillary_is_in_whole_spacings_at_a_reynolds_number_of_one():
    for spacing in (2 / 3, 0.5):
        case = motions.capillary(spacing, 1.5)
        table = check(case, BloodCase, "capillary").blood
        assert table.inside_tau == pytest.approx(2.0)
        sides = np.array(table.channel.size_um) / spacing
        assert sides == pytest.approx(np.round(sides))
        assert case["run"]["steps"] * table.units.time_step * 1.3e-3 == pytest.approx(
            240e-6, rel=1e-4
        )
        reynolds = table.density_kg_m3 * 1.3e-3 * 12e-6 / table.viscosity
        assert reynolds == pytest.approx(1.0, rel=0.01)
