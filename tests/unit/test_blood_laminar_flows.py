"""Checks the references of laminar flows, coarse runs beside them, and that wrong physics fails."""

from __future__ import annotations

import cmath
import math

import numpy as np
import pytest

from haloscope.checks.verify import solve_with
from haloscope.run.state import Silent
from haloscope.solvers.blood.verification import laminar

# Amplitude and phase in degrees: on the axis, at R/2 and 0.9 R, of the flow and of the wall shear, each
# computed in two ways.
PULSES = {
    3.0: [
        (0.52198, -64.29),
        (0.40829, -56.90),
        (0.11340, -41.02),
        (0.54835, -54.30),
        (0.61529, -35.81),
    ],
    8.0: [
        (0.06173, -91.22),
        (0.06755, -88.67),
        (0.03688, -56.93),
        (0.10480, -78.94),
        (0.23929, -42.23),
    ],
}


def solve(data):
    return solve_with("cpu", Silent())({**data, "machine": {"threads": 1}})


@pytest.mark.parametrize("alpha", PULSES)
def test_amplitudes_of_a_pulsating_tube_are_the_tabulated_ones(alpha):
    exact = laminar.Womersley(alpha)
    values = [*exact.velocity(np.array(laminar.RINGS)), exact.flow, exact.wall_shear]
    for value, (amplitude, degrees) in zip(values, PULSES[alpha], strict=True):
        assert abs(value) == pytest.approx(amplitude, abs=6e-6)
        assert math.degrees(cmath.phase(value)) == pytest.approx(degrees, abs=6e-3)


def test_a_coarse_tube_pulsates_so_and_not_with_another_womersley_number():
    pulse, exact = laminar.pulsating_tube(3.0, 6, solve), laminar.Womersley(3.0)
    for value, true in [
        *zip(pulse.velocities, exact.velocity(np.array(laminar.RINGS)), strict=True),
        (pulse.flow, exact.flow),
    ]:
        assert value == pytest.approx(complex(true), rel=0.03)
    assert pulse.wall_shear == pytest.approx(exact.wall_shear, rel=0.15)
    assert pulse.flow != pytest.approx(laminar.Womersley(2.7).flow, rel=0.1)
    assert pulse.wall_shear != pytest.approx(laminar.Womersley(2.0).wall_shear, rel=0.2)
