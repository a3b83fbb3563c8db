"""Checks the references of laminar flows, coarse runs beside them, and that wrong physics fails."""

from __future__ import annotations

import cmath
import math

import numpy as np
import pytest

from haloscope.checks.verify import solve_with
from haloscope.mesh.surfaces.surfaces import check
from haloscope.run.state import Silent
from haloscope.solvers.blood.fluid.lattice import VELOCITIES, WEIGHTS
from haloscope.solvers.blood.outputs.wall_stress import viscous_stress
from haloscope.solvers.blood.verification import laminar
from haloscope.solvers.carreau import Carreau

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


# By law and gradient in Pa/m: largest velocity in m/s, and its ratio to the mean; computed in two ways.
CHANNELS = {
    ("Carreau-Yasuda", 100.0): (0.00442345, 1.33269),
    ("Carreau-Yasuda", 1e3): (0.120396, 1.45533),
    ("Carreau-Yasuda", 1e4): (1.40609, 1.49214),
    ("Carreau", 100.0): (0.00432905, 1.35245),
    ("Carreau", 1e3): (0.110240, 1.45023),
    ("Carreau", 1e4): (1.36245, 1.48769),
}


@pytest.mark.parametrize(("law", "gradient"), CHANNELS)
def test_velocities_of_shear_thinning_channels_are_the_tabulated_ones(law, gradient):
    peak, mean = laminar.thinned_channel(laminar.law_of(law), gradient)
    assert (peak, peak / mean) == pytest.approx(CHANNELS[law, gradient], rel=4e-6)


def test_a_viscosity_without_thinning_gives_a_parabola():
    law = Carreau(2.0, 2.0, 1.0, 0.5, 1.25)
    peak, mean = laminar.thinned_channel(law, 3.0)
    assert peak == pytest.approx(3.0 * laminar.HALF_WIDTH**2 / 4)
    assert peak / mean == pytest.approx(1.5)


def test_a_coarse_channel_thins_with_its_law_and_not_with_the_other():
    peak, mean = laminar.measured_channel("Carreau-Yasuda", 1e3, 10, solve)
    right, other = (
        laminar.thinned_channel(laminar.law_of(law), 1e3) for law in ("Carreau-Yasuda", "Carreau")
    )
    assert (peak, peak / mean) == pytest.approx((right[0], right[0] / right[1]), rel=0.02)
    assert peak > 1.05 * other[0]


@pytest.mark.parametrize("a", [0.5, 1.25, 2.0])
def test_wall_stress_takes_the_viscosity_of_the_law(a):
    law = Carreau(0.3, 0.02, 3000.0, 0.3568, a)
    # Second moments of plane shear at a rate follow from the stress that the law gives it.
    rate = np.array([1e-6, 1e-4, 1e-2])
    time = 0.5 + 3 * law.viscosity(rate)
    populations = np.zeros((19, 3))
    for i, c in enumerate(VELOCITIES):
        populations[i] = -3 * WEIGHTS[i] * time * c[0] * c[1] * rate
    stress = viscous_stress(populations, np.zeros((3, 3)), 1.0, law)
    assert stress[3] == pytest.approx(law.viscosity(rate) * rate, rel=1e-9)


def test_friction_in_bends_is_white_s():
    values = [laminar.friction_in_bend(dean) for dean in (5.0, 20.0, 50.0, 100.0, 200.0)]
    assert values == pytest.approx([1.0, 1.035, 1.246, 1.530, 1.943], abs=6e-4)


def test_the_surface_of_a_bend_is_half_of_a_torus_with_the_ends_across_it():
    surface = laminar.bend(2.0)
    checked = check(surface)
    assert checked.oriented
    assert not checked.leaks
    corners = surface.points[surface.triangles]
    a, b, c = np.moveaxis(corners, 1, 0)
    volume = float((a * np.cross(b, c)).sum()) / 6
    # Pappus: the area of the circle times the way of its centre.
    assert volume == pytest.approx(math.pi * 2.0**2 * math.pi * 6.0, rel=2e-3)


def test_a_bend_that_flows_slowly_is_as_a_straight_tube():
    assert laminar.bend_friction(5.0, 4, solve) == pytest.approx(1.0, abs=0.15)
