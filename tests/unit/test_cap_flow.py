"""Claims about developed flow through flat ends: exact for circles and ellipses, Womersley's for oscillations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import jv

from haloscope.solvers.blood.vessels.cap_flow import CapRaster

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
