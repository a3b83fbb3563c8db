"""Claims about the series of Mie: published values, limits, reciprocity, conservation of energy."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest

from haloscope.solvers.maxwell.exact import (
    ScatteringSphere,
    _riccati_bessel,
    dielectric_sphere,
)

_TABLE = Path(__file__).with_name("mie_efficiencies.csv")
with _TABLE.open(newline="") as _file:
    ROWS = list(csv.DictReader(line for line in _file if not line.startswith("#")))


def _sphere(row):
    if row["n"] == "inf":
        return conducting_sphere(float(row["x"]))
    return dielectric_sphere(float(row["x"]), complex(float(row["n"]), float(row["kappa"])) ** 2)


def conducting_sphere(size):
    """Sphere of a perfect conductor: the limit of BH eq. 4.53 for a large permittivity."""
    psi, xi = _riccati_bessel(size)
    n = np.arange(1, len(psi))
    slope, outgoing = psi[:-1] - n / size * psi[1:], xi[:-1] - n / size * xi[1:]
    return ScatteringSphere(size, slope / outgoing, psi[1:] / xi[1:])


def absorption(sphere):
    """Absorption efficiency."""
    return sphere.extinction - sphere.scattering


def backscattering(sphere):
    """Radar cross section over pi a^2: that of `cross_section` at theta = pi (BH sec. 4.6)."""
    n = np.arange(1, len(sphere.electric) + 1)
    amplitude = ((2 * n + 1) * (-1.0) ** n * (sphere.electric - sphere.magnetic)).sum()
    return abs(amplitude) ** 2 / sphere.size**2


def asymmetry(sphere):
    """Mean cosine of the scattering angle (BH sec. 4.5)."""
    a, b = sphere.electric, sphere.magnetic
    n = np.arange(1, len(a) + 1)
    m = n[:-1]
    between = (a[:-1] * a[1:].conj() + b[:-1] * b[1:].conj()).real * m * (m + 2) / (m + 1)
    within = (a * b.conj()).real * (2 * n + 1) / (n * (n + 1))
    return 4 / sphere.size**2 * (between.sum() + within.sum()) / sphere.scattering


EFFICIENCIES = {
    "extinction": lambda sphere: sphere.extinction,
    "scattering": lambda sphere: sphere.scattering,
    "backscattering": backscattering,
    "asymmetry": asymmetry,
}


def _unit_of_last_digit(text):
    mantissa, _, exponent = text.partition("e")
    return 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["source"])
def test_published_efficiencies_are_met_to_their_last_digit(row):
    sphere = _sphere(row)
    published = [name for name in EFFICIENCIES if row[name]]
    assert published
    for name in published:
        unit = _unit_of_last_digit(row[name])
        assert EFFICIENCIES[name](sphere) == pytest.approx(float(row[name]), abs=1.01 * unit), name


@pytest.mark.parametrize("size", [1e-3, 0.7, math.pi, 20.0, 3000.0])
def test_a_sphere_without_losses_absorbs_nothing(size):
    for sphere in (conducting_sphere(size), dielectric_sphere(size, 2.25, 1.3)):
        assert sphere.extinction == pytest.approx(sphere.scattering, rel=1e-11)
    assert absorption(dielectric_sphere(size, 2.25 + 0.1j)) > 0


@pytest.mark.parametrize("permittivity", [4.0, 2.0 + 3.0j, -8.0 + 0.5j])
def test_small_spheres_scatter_as_rayleigh_says(permittivity):
    x = 1e-3
    factor = (permittivity - 1) / (permittivity + 2)
    sphere = dielectric_sphere(x, permittivity)
    assert sphere.scattering == pytest.approx(8 / 3 * x**4 * abs(factor) ** 2, rel=1e-4)
    absorbed = 4 * x * factor.imag
    assert absorption(sphere) == pytest.approx(absorbed, rel=1e-4, abs=1e-17)
    k = 2.0
    # The pattern of a dipole along x: nothing goes along x, sin^2 in the plane of the field.
    theta = np.linspace(0, np.pi, 7)
    expected = 4 * np.pi * (x**3 * abs(factor) / k * np.cos(theta)) ** 2
    cross_section = sphere.cross_section(k, theta, 0.0)
    np.testing.assert_allclose(cross_section, expected, rtol=1e-4, atol=1e-5 * expected.max())
    # Its moment is in phase with the incident wave, and so is the field far away.
    phi = 0.4
    field = sphere.far_field(k, theta, phi)
    moment = k**2 * (x / k) ** 3 * factor
    np.testing.assert_allclose(
        field[0], moment * np.cos(theta) * np.cos(phi), atol=1e-4 * abs(moment)
    )
    np.testing.assert_allclose(field[1], np.full(7, -moment * np.sin(phi)), atol=1e-4 * abs(moment))


def test_backscattering_of_a_conductor_peaks_near_size_1_and_tends_to_its_geometric_area():
    # M. I. Skolnik, Introduction to Radar Systems: the largest is 5.6 dB above pi a^2 at k a = 1.
    sizes = np.linspace(0.6, 1.6, 101)
    areas = np.array([backscattering(conducting_sphere(size)) for size in sizes])
    assert 10 * math.log10(areas.max()) == pytest.approx(5.6, abs=0.05)
    assert sizes[areas.argmax()] == pytest.approx(1.0, abs=0.05)
    assert backscattering(conducting_sphere(0.1)) == pytest.approx(9 * 0.1**4, rel=0.03)
    assert backscattering(conducting_sphere(5000.0)) == pytest.approx(1.0, abs=1e-3)


def test_a_conductor_is_the_limit_of_a_large_permittivity():
    limit, sphere = conducting_sphere(1.7), dielectric_sphere(1.7, (1000 + 1000j) ** 2)
    assert sphere.scattering == pytest.approx(limit.scattering, rel=5e-3)
    assert backscattering(sphere) == pytest.approx(backscattering(limit), rel=1e-2)


def test_a_metal_without_losses_takes_the_same_root_whatever_the_sign_of_its_zero():
    one, other = (dielectric_sphere(0.5, complex(-8.0, zero)) for zero in (0.0, -0.0))
    assert one.scattering == other.scattering
    assert one.scattering == pytest.approx(dielectric_sphere(0.5, -8 + 1e-9j).scattering, rel=1e-6)


def test_exchanging_permittivity_and_permeability_exchanges_the_fields():
    one, other = dielectric_sphere(2.3, 3 + 0.2j, 1.4), dielectric_sphere(2.3, 1.4, 3 + 0.2j)
    np.testing.assert_allclose(one.electric, other.magnetic, rtol=1e-12)
    np.testing.assert_allclose(one.magnetic, other.electric, rtol=1e-12)


def test_bistatic_cross_section_integrates_to_the_scattered_power_and_ends_in_the_radar_one():
    k, x = 3.0, 4.2
    sphere = dielectric_sphere(x, 2.5 + 0.1j)
    nodes, weights = np.polynomial.legendre.leggauss(40)
    phi = np.arange(8) * np.pi / 4
    pattern = sphere.cross_section(k, np.arccos(nodes)[:, None], phi)
    total = (weights[:, None] * pattern).sum() * np.pi / 4 / (4 * np.pi)
    area = np.pi * (x / k) ** 2
    assert total == pytest.approx(sphere.scattering * area, rel=1e-12)
    assert sphere.cross_section(k, np.pi, 0.3) == pytest.approx(backscattering(sphere) * area)
    # Optical theorem, BH eq. 4.76.
    assert sphere.extinction * area == pytest.approx(
        4 * np.pi / k**2 * sphere.amplitudes(0.0)[0].real, rel=1e-12
    )
