"""Checks how motions of cells are read off a run, with made-up motions whose answer is known."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.integrate import solve_ivp

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
    one = motions.Spheroid(2.0, 0.02, (5.0, 8.0), 4.0, 0.2, 2.0)
    rows = list(motions.jeffery_check(one, None).values())
    for row in rows[:2]:
        assert row.value == pytest.approx(row.reference, rel=1e-3)
        assert row.ok
    # Disturbed without it by several percent.
    assert orbit(one, 5.0, (6.0, 6.0, 5.0), 0.2, None).period > 1.05 * exact.period
    monkeypatch.setattr(motions, "jeffery", lambda aspect: motions.Orbit(16.5, 4.3))
    assert not any(row.ok for row in list(motions.jeffery_check(one, None).values())[:2])
