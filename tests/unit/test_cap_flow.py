"""Claims about developed flow through flat ends: exact for circles and ellipses, Womersley's for oscillations."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.special import jv

from haloscope.case.tables import check
from haloscope.device.cpu import CpuDevice
from haloscope.exchange.ranks.world import World
from haloscope.run import Simulation
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.solver import BloodSolver
from haloscope.solvers.blood.vessels.cap_flow import CapRaster
from haloscope.solvers.blood.vessels.vessels import (
    Vessel,
    developed_profile,
    mean_of,
    open_vessel,
    opening_area,
    oscillating_profile,
)

NORMAL = np.array([1.0, 1.0, 1.0]) / np.sqrt(3)


def _ellipse(a: float, b: float, sides: int = 4000) -> np.ndarray:
    """Outline (n, 2, 3) of an elliptic end askew to the axes."""
    one = np.cross(NORMAL, [0.0, 0.0, 1.0])
    one /= np.linalg.norm(one)
    other = np.cross(NORMAL, one)
    turns = np.linspace(0, 2 * np.pi, sides, endpoint=False)
    rim = a * np.cos(turns)[:, None] * one + b * np.sin(turns)[:, None] * other
    return np.stack([rim, np.roll(rim, -1, axis=0)], axis=1) + np.array([3.0, -2.0, 5.0])


@pytest.mark.parametrize(("a", "b"), [(5.3, 5.3), (5.0, 2.5)])
@pytest.mark.parametrize("spacing", [1.0, 0.5, 0.25])
def test_steady_flow_of_an_ellipse_is_exact(a: float, b: float, spacing: float) -> None:
    # As fine an outline as differs from the ellipse by 1e-7 of its size.
    raster = CapRaster.of(_ellipse(a, b), NORMAL, spacing)
    assert raster.area == pytest.approx(np.pi * a * b, rel=1e-5)
    places = raster.origin + spacing * (np.argwhere(raster.number >= 0) @ raster.axes)
    offset = places - np.array([3.0, -2.0, 5.0])
    one = np.cross(NORMAL, [0.0, 0.0, 1.0]) / np.linalg.norm(np.cross(NORMAL, [0.0, 0.0, 1.0]))
    x, y = offset @ one, offset @ np.cross(NORMAL, one)
    exact = (1 - (x / a) ** 2 - (y / b) ** 2) / (2 / a**2 + 2 / b**2)
    solution = raster.solved()
    assert raster.count > 30
    np.testing.assert_allclose(solution, exact, atol=2e-6 * exact.max())
    # Bilinear between raster points, 0 outside.
    np.testing.assert_allclose(raster.at(solution, places + 0.3 * NORMAL), solution, atol=1e-12)
    assert raster.at(solution, places + np.array([100.0, 0.0, 0.0])).max() == 0.0
    assert raster.mean(solution) == pytest.approx(1 / (4 / a**2 + 4 / b**2), rel=0.25 * spacing)


@pytest.mark.parametrize("alpha", [3.0, 8.0])
def test_oscillating_flow_is_womersleys(alpha: float) -> None:
    # J. R. Womersley, J. Physiol. 127 (1955) 553: with rate i w/nu = i (alpha/R)^2.
    radius = 6.0
    raster = CapRaster.of(_ellipse(radius, radius), NORMAL, 0.2)
    rate = 1j * (alpha / radius) ** 2
    places = raster.origin + 0.2 * (np.argwhere(raster.number >= 0) @ raster.axes)
    r = np.linalg.norm(places - np.array([3.0, -2.0, 5.0]), axis=1)
    k = 1j**1.5 * alpha
    exact = (1 - jv(0, k * r / radius) / jv(0, k)) / rate
    solution = raster.solved(rate)
    assert np.abs(solution - exact).max() < 2e-3 * np.abs(exact).max()


def test_an_end_of_two_pieces_has_no_flow_between() -> None:
    both = np.concatenate([_ellipse(2.0, 2.0), _ellipse(2.0, 2.0) + 5.0 * np.array([1, -1, 0])])
    raster = CapRaster.of(both, NORMAL, 0.5)
    one = CapRaster.of(_ellipse(2.0, 2.0), NORMAL, 0.5)
    assert raster.area == pytest.approx(2 * one.area)
    assert raster.solved().max() == pytest.approx(one.solved().max(), rel=0.02)


# On a lattice


_VESSELS = {
    "channel": {
        "channel": {"size_um": [6.0, 20.0, 3.0], "periodic": ["z"], "open": ["x"]},
        "openings": [
            {"name": "x_low", "kind": "velocity", "value": 1e-3},
            {"name": "x_high", "kind": "pressure"},
        ],
    },
    "bend": {
        "surface": {"file": str(Path(__file__).parent / "bend.obj"), "scale_um": 1.0},
        "openings": [
            {"name": "inlet", "kind": "velocity", "value": 1e-3},
            {"name": "outlet", "kind": "pressure"},
        ],
    },
}


def _vessel(name: str, spacing: float = 1.0) -> Vessel:
    blood = {"spacing_um": spacing, **_VESSELS[name]}
    case = check({"solver": "blood", "blood": blood}, BloodCase, "")
    assert isinstance(case, BloodCase)
    return open_vessel(case.blood, World())


@pytest.mark.parametrize("name", _VESSELS)
def test_profiles_that_oscillate_carry_their_mean_and_slow_ones_are_steady(name: str) -> None:
    vessel = _vessel(name)
    opening = vessel.lattice.openings[0]
    for rate in (1e-6j, 1e11j):
        values = oscillating_profile(opening, vessel.lattice, rate)
        parts = [mean_of(part, opening, vessel.lattice) for part in (values.real, values.imag)]
        np.testing.assert_allclose(parts, [1.0, 0.0], atol=1e-9)
    slow = oscillating_profile(opening, vessel.lattice, 1e-6j)
    steady = developed_profile(opening, vessel.lattice)
    np.testing.assert_allclose(slow, steady, atol=1e-6 * steady.max())


@pytest.mark.parametrize("alpha", [2.0, 5.0])
def test_oscillating_flow_between_plates_is_of_second_order(alpha: float) -> None:
    errors = []
    k = 1j**0.5 * alpha
    for spacing in (1.0, 0.5):
        lattice = _vessel("channel", spacing).lattice
        opening = lattice.openings[0]
        y = lattice.positions(opening.numbers)[:, 1] / 10e-6 - 1
        exact = (1 - np.cosh(k * y) / np.cosh(k)) / (1 - np.tanh(k) / k)
        values = oscillating_profile(opening, lattice, 1j * (alpha / 10e-6) ** 2)
        errors.append(np.abs(values - exact).max())
    assert errors[1] < 0.01
    assert np.log2(errors[0] / errors[1]) > 1.6


@pytest.mark.parametrize("name", _VESSELS)
def test_velocities_are_the_sum_of_the_modes_now_and_after_a_restart(
    name: str, tmp_path: Path
) -> None:
    inlet, outlet = _VESSELS[name]["openings"]
    wave = {"profile": "womersley", "signal": "1 + 0.4*cos(3e5*t)", "period_s": math.tau / 3e5}
    blood = {"spacing_um": 1.0, **_VESSELS[name], "openings": [{**inlet, **wave}, outlet]}
    settings = {"output": {"fields": False, "picture": False}, "checkpoint": {"at_end": True}}

    def opened() -> Simulation:
        case = check({"solver": "blood", "blood": blood, **settings}, BloodCase, "")
        return Simulation(case, device=CpuDevice(threads=1), world=World())

    whole = opened()
    whole.run(45, out=tmp_path / "whole", ceilings=False)
    opened().run(20, out=tmp_path / "half", ceilings=False)
    rest = opened()
    rest.run(45, out=tmp_path / "half", restart=True, ceilings=False)
    one, other = whole.solver, rest.solver
    assert isinstance(one, BloodSolver)
    assert isinstance(other, BloodSolver)
    np.testing.assert_array_equal(one.fluid.populations(), other.fluid.populations())
    numbers = one.diagnostics()
    assert numbers == other.diagnostics()
    # What came in during the last step is the signal at its beginning, over the exact area.
    lattice = one.vessel.lattice
    rate = 1e-3 * opening_area(lattice.openings[0], lattice)
    now = 3e5 * 44 * one.units.time_step
    ratio = numbers[f"flow_{inlet['name']}"] / rate
    assert ratio == pytest.approx(1 + 0.4 * math.cos(now), rel=2e-3)
    if name == "channel":
        opening, nu = lattice.openings[0], 1.2e-3 / 1025
        wave = oscillating_profile(opening, lattice, 3e5j / nu) * np.exp(1j * now)
        exact = developed_profile(opening, lattice) + 0.4 * wave.real
        velocity = one.fluid.opening_velocities[0] * one.units.velocity / 1e-3
        in_openings = np.arange(one.part.bulk, one.part.owned)
        own = one.part.openings[in_openings] == 0
        at = np.searchsorted(opening.numbers, one.part.numbers[in_openings[own]])
        np.testing.assert_allclose(velocity[own], exact[at], atol=1e-4)
    phasors = one.vessel.openings[0].time_signal().phasors(0.25 * math.tau / 3e5)
    np.testing.assert_allclose(phasors, [1.0, 0.4j, *[0.0] * 7], atol=1e-5)
