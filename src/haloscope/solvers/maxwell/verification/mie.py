"""Scattering of a plane wave by a sphere: Mie's series, and runs compared with it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.errors import InputError
from haloscope.solvers.maxwell.case import LIGHT
from haloscope.solvers.maxwell.outputs.far_field import FarField
from haloscope.solvers.maxwell.solver import MaxwellSolver
from haloscope.solvers.verification import Solve

# Fields vary as exp(-i w t), so that an absorbing medium has a permittivity with a positive
# imaginary part. The sphere's permittivity and permeability are relative to those of the medium
# around it, which is lossless; x = k a is its size parameter, k the wavenumber outside. The wave
# travels along +z and is polarised along x; theta is the angle from +z, the forward direction.
#
# Formulas: C. F. Bohren, D. R. Huffman, Absorption and Scattering of Light by Small Particles,
# Wiley 1983 (BH), chapter 4.

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

SMALLEST_SIZE, LARGEST_SIZE = 1e-6, 1e5
"""Size parameters that are accepted."""
_LARGE = 1e200


@dataclass(frozen=True, eq=False)
class Sphere:
    """Coefficients of the scattered wave; made by `dielectric_sphere`."""

    size: float  # x = k a
    # a_n and b_n for n from 1 on (BH eq. 4.53), complex (terms,).
    electric: Complexes
    magnetic: Complexes

    @property
    def _degrees(self) -> Floats:
        return np.arange(1.0, len(self.electric) + 1)

    @property
    def scattering(self) -> float:
        """Scattering efficiency: cross section over pi a^2 (BH eq. 4.61)."""
        coefficients = np.abs(self.electric) ** 2 + np.abs(self.magnetic) ** 2
        return float(2 / self.size**2 * ((2 * self._degrees + 1) * coefficients).sum())

    @property
    def extinction(self) -> float:
        """Extinction efficiency: scattering and absorption (BH eq. 4.62)."""
        coefficients = (self.electric + self.magnetic).real
        return float(2 / self.size**2 * ((2 * self._degrees + 1) * coefficients).sum())

    def amplitudes(self, theta: ArrayLike) -> tuple[Complexes, Complexes]:
        """S1 (across the plane of scattering) and S2 (within it), BH eq. 4.74.

        `theta`: scattering angles in rad, any shape; Returns: complex, shaped as `theta`.
        """
        cosine = np.cos(np.asarray(theta, np.float64))
        across, within = np.zeros(cosine.shape, complex), np.zeros(cosine.shape, complex)
        last, this = np.zeros_like(cosine), np.ones_like(cosine)
        for n, (a, b) in enumerate(zip(self.electric, self.magnetic, strict=True), start=1):
            # pi_n is `this`, tau_n by BH eq. 4.47.
            tau = n * cosine * this - (n + 1) * last
            weight = (2 * n + 1) / (n * (n + 1))
            across += weight * (a * this + b * tau)
            within += weight * (a * tau + b * this)
            last, this = this, ((2 * n + 1) * cosine * this - (n + 1) * last) / n
        return across, within

    def far_field(self, wavenumber: float, theta: ArrayLike, phi: ArrayLike) -> Complexes:
        """E_theta and E_phi of the scattered wave far away, times r exp(-i k r).

        The incident wave is exp(i k z) along x at t = 0, of amplitude 1; the sphere's centre is the
        origin (BH eqs. 4.74-4.76 with 3.12).
        """
        # `theta`, `phi`: directions in rad; shapes that broadcast.
        # Returns: in m: relative to the incident amplitude.
        across, within = self.amplitudes(theta)
        angle = np.asarray(phi, np.float64)
        parts = np.broadcast_arrays(np.cos(angle) * within, -np.sin(angle) * across)
        return np.asarray(1j / wavenumber * np.stack(parts))

    def cross_section(self, wavenumber: float, theta: ArrayLike, phi: ArrayLike) -> Floats:
        """Bistatic radar cross section 4 pi r^2 |E_s|^2 / |E_i|^2 in m^2.

        Parameters as for `far_field`; phi = 0 is the plane of the electric field.
        """
        return np.asarray(
            4 * np.pi * (np.abs(self.far_field(wavenumber, theta, phi)) ** 2).sum(axis=0)
        )


def dielectric_sphere(size: float, permittivity: complex, permeability: complex = 1.0) -> Sphere:
    """Sphere of a medium.

    `permittivity`, `permeability`: relative to the medium around; imaginary parts not negative. The
    refractive index is the root of their product with an imaginary part that is not negative.
    """
    _require_size(size)
    for name, value in (("permittivity", permittivity), ("permeability", permeability)):
        number = complex(value)
        if not np.isfinite(number) or number == 0 or number.imag < 0:
            raise InputError(
                "out of range",
                location=f"sphere: {name} = {value}",
                allowed="finite numbers other than 0 with an imaginary part of 0 or more (fields vary as "
                "exp(-i w t))",
            )
    # Each root is one in the first quadrant; abs() takes the sign from a negative zero.
    epsilon, mu = (complex(v.real, abs(v.imag)) for v in (permittivity, permeability))
    index = np.sqrt(epsilon) * np.sqrt(mu)
    if size * abs(index) > 2 * LARGEST_SIZE:
        raise InputError(
            f"the size inside is {size * abs(index):g} (size parameter times refractive index)",
            location="sphere",
            allowed=f"at most {2 * LARGEST_SIZE:g}",
            remedy="treat the sphere as a perfect conductor",
        )
    psi, xi = _riccati_bessel(size)
    n = np.arange(1, len(psi))
    slope = _logarithmic_derivative(complex(size * index), len(psi) - 1)

    def coefficient(factor: complex) -> Complexes:
        inside = factor * slope + n / size
        numerator = inside * psi[1:] - psi[:-1]
        return np.asarray(numerator / (inside * xi[1:] - xi[:-1]))

    return Sphere(size, coefficient(mu / index), coefficient(index / mu))


def _require_size(size: float) -> None:
    if not SMALLEST_SIZE <= size <= LARGEST_SIZE:
        raise InputError(
            f"the size parameter k a is {size:g}",
            location="sphere",
            allowed=f"{SMALLEST_SIZE:g} to {LARGEST_SIZE:g}",
            remedy="choose another radius or frequency",
        )


def _terms(size: float) -> int:
    # W. J. Wiscombe, Appl. Opt. 19 (1980) 1505, adds 4.05 x^(1/3) + 2 for 1e-8; this is for 1e-15.
    return math.ceil(size + 7 * math.cbrt(size) + 8)


def _first_of_downward(size: float, terms: int) -> int:
    """Degree so far beyond both that what a downward recurrence begins with is forgotten."""
    return math.ceil(max(size, terms) + 10 * math.cbrt(max(size, 1.0)) + 20)


def _riccati_bessel(x: float) -> tuple[Floats, Complexes]:
    """psi_n = x j_n and xi_n = x (j_n + i y_n) for n from 0.

    j_n by downward recurrence (J. C. P. Miller's), y_n by upward recurrence: each stable.
    """
    terms = _terms(x)
    psi = np.zeros(terms + 1)
    above, this = 0.0, 1.0
    for n in range(_first_of_downward(x, terms), 0, -1):
        if n <= terms:
            psi[n] = this
        above, this = this, (2 * n + 1) / x * this - above
        if abs(this) > _LARGE:
            psi /= _LARGE
            above, this = above / _LARGE, this / _LARGE
    psi[0] = this
    zero, one = math.sin(x), math.sin(x) / x - math.cos(x)
    # sin x / x - cos x loses digits for a small x, and either may be near a zero.
    psi *= zero / psi[0] if abs(zero) > abs(one) else one / psi[1]
    second = np.zeros(terms + 1)
    second[0], second[1] = -math.cos(x), -math.cos(x) / x - math.sin(x)
    for n in range(1, terms):
        second[n + 1] = (2 * n + 1) / x * second[n] - second[n - 1]
    return psi, psi + 1j * second


def _logarithmic_derivative(z: complex, terms: int) -> Complexes:
    """psi_n'(z) / psi_n(z) for n from 1 to `terms`, downward (BH eq. 4.89)."""
    result = np.zeros(terms, complex)
    value = 0j
    for n in range(_first_of_downward(abs(z), terms), 0, -1):
        if n <= terms:
            result[n - 1] = value
        value = n / z - 1 / (value + n / z)
    return result


_SIDES = ("x-", "x+", "y-", "y+", "z-", "z+")
_RADIUS = 0.1  # m
_HALF_WIDTH = 0.16  # m, of the box that holds the total field
_MARGIN = 0.14  # m: an element without absorption, and one that absorbs
_END = 24e-9  # s: the sphere rings for long
_PULSE = {"kind": "modulated-gaussian", "centre": 2.2e-9, "width": 0.5e-9, "frequency": 0.9e9}
_POLAR = 181


def sphere_case(
    order: int = 5,
    *,
    permittivity: float = 4.0,
    frequencies: Sequence[float] = (0.6e9, 0.8e9),
    core: int = 2,
    rings: int = 1,
) -> dict[str, Any]:
    """Data of a case: the sphere of radius 0.1 m in vacuum, with a pulse along z from below.

    The sphere and a box around it hold the total field; then follow a shell of elements for the
    scattered field, in which the far field's surface lies, and an absorbing layer.
    """
    # `frequencies`: in Hz, from 0.4 to 1.4 GHz: there the pulse has content.
    return {
        "solver": "maxwell",
        "title": "A dielectric sphere in a plane wave",
        "maxwell": {
            "order": order,
            "end_time": _END,
            "sphere": {
                "radius": _RADIUS,
                "core": core,
                "rings": rings,
                "box_half_width": _HALF_WIDTH,
                "outer_rings": 1,
                "margin": _MARGIN,
                "margin_layers": 2,
            },
            "boundaries": dict.fromkeys(_SIDES, "absorbing"),
            "materials": [{"region": "inner", "permittivity": permittivity}],
            "layer": {"thickness": dict.fromkeys(_SIDES, _MARGIN / 2)},
            "waves": [
                {
                    "direction": [0.0, 0.0, 1.0],
                    "polarisation": [1.0, 0.0, 0.0],
                    "waveform": _PULSE,
                    "inside": ["inner", "outer"],
                }
            ],
            "far_field": {"frequencies": list(frequencies), "theta": _POLAR},
        },
        "run": {"diagnostics_interval": 100},
        "output": {"fields": False},
    }


@dataclass(frozen=True, eq=False)
class Deviations:
    """Deviations of a run from the series, over all frequencies."""

    # Largest difference of the bistatic cross section in the planes of E and H over the series'
    # value in the same direction.
    bistatic: float
    # Largest relative difference of the total cross sections.
    scattering: float
    extinction: float


def mie_deviations(solve: Solve, data: Mapping[str, Any] | None = None) -> Deviations:
    """Run the sphere and compare it with the series."""
    case_data = dict(data or sphere_case())
    solver = solve(case_data).solver
    if not isinstance(solver, MaxwellSolver) or solver.results.radiation is None:
        raise InputError(
            "the case of a sphere has no far field", remedy="use a case of sphere_case"
        )
    radiation, table = solver.results.radiation, case_data["maxwell"]
    incident = radiation.incident
    assert incident is not None
    theta, phi = np.linspace(0, np.pi, _POLAR)[:, None], np.array([0.0, np.pi / 2])
    far_field: FarField = radiation.pattern(theta, phi)
    values = far_field.cross_section(incident[1])
    powers = radiation.powers()
    assert powers.scattering is not None
    assert powers.extinction is not None
    permittivity = table["materials"][0]["permittivity"]
    radius = table["sphere"]["radius"]
    worst = np.zeros(3)
    for number, frequency in enumerate(table["far_field"]["frequencies"]):
        k = 2 * math.pi * frequency / LIGHT
        exact: Sphere = dielectric_sphere(k * radius, permittivity)
        wanted = exact.cross_section(k, theta, phi)
        apart = np.abs(values[number] - wanted)
        disc = math.pi * radius**2
        deviations: Floats = np.array(
            [
                (apart / wanted).max(),
                abs(powers.scattering[number] / (exact.scattering * disc) - 1),
                abs(powers.extinction[number] / (exact.extinction * disc) - 1),
            ]
        )
        worst = np.maximum(worst, deviations)
    return Deviations(*worst.tolist())


def mie_scattering(solve: Solve, order: int = 5, permittivity: float = 4.0) -> float:
    """Largest relative deviation of the bistatic cross section from the series of Mie.

    Parameters as for `mie_deviations` and `sphere_case`.
    """
    return mie_deviations(solve, sphere_case(order, permittivity=permittivity)).bistatic
