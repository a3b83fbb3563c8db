"""Exact solutions of Maxwell's equations: resonators, waves, Fresnel's coefficients of half spaces and slabs, Mie's series."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.errors import InputError
from haloscope.numerics.elements.element_maps import legendre
from haloscope.solvers.maxwell.elements import Material

# All in natural units: c = 1, vacuum impedance 1, H times eta0, time in metres of light. A solution
# takes points (3, ...) and a time and gives (6, ...): Ex, Ey, Ez, Hx, Hy, Hz.

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]
Solution = Callable[[Floats, float], Floats]

TAU = 2 * np.pi
# Of a spherical Bessel function's zeros, whose distance is at least about pi.
_SCAN = 0.25
Triple = tuple[int, int, int]
Lengths = tuple[float, float, float]


@dataclass(frozen=True)
class TimeHarmonic:
    """A solution that swings at one frequency: the real part of phasor times exp(-i w t)."""

    frequency: float  # Angular frequency w
    phasor: Callable[[Floats], Complexes]  # Of points (3, ...): complex fields (6, ...)

    def __call__(self, points: Floats, time: float) -> Floats:
        """Fields (6, ...) at points (3, ...) and a time."""
        fields = self.phasor(np.asarray(points, np.float64))
        return np.asarray((fields * np.exp(-1j * self.frequency * time)).real)


def _standing(electric: list[Floats], magnetic: list[Floats]) -> Complexes:
    """Phasor of an electric field that goes with cos w t and a magnetic one with sin w t."""
    return np.concatenate([np.stack(electric) + 0j, 1j * np.stack(magnetic)])


def periodic_box(length: float = TAU) -> TimeHarmonic:
    """Standing wave in a periodic cube: E as cos w t, w = sqrt 3 on [0, 2 pi]^3.

    From the tests of NekCEM (3dboxper); the equations hold by insertion.
    """
    scale = TAU / length
    w = np.sqrt(3)

    def phasor(points: Floats) -> Complexes:
        s, c = np.sin(scale * points), np.cos(scale * points)
        electric = [np.zeros_like(s[0]), c[0] * s[1] * s[2], c[0] * c[1] * c[2]]
        magnetic = [2 * c[0] * s[1] * c[2], -s[0] * c[1] * c[2], s[0] * s[1] * s[2]]
        return _standing(electric, [part / w for part in magnetic])

    return TimeHarmonic(float(w * scale), phasor)


def conducting_box(length: float = 1.0) -> TimeHarmonic:
    """Standing wave in a cube [0, length]^3 with perfectly conducting walls: H as cos w t.

    From the tests of NekCEM (3dboxpec); w = pi sqrt 3 on the unit cube.
    """
    w = np.pi * np.sqrt(3) / length

    def phasor(points: Floats) -> Complexes:
        s, c = np.sin(np.pi * points / length), np.cos(np.pi * points / length)
        electric = [-c[0] * s[1] * s[2], s[0] * c[1] * s[2], np.zeros_like(s[0])]
        magnetic = [-s[0] * c[1] * c[2], -c[0] * s[1] * c[2], 2 * c[0] * c[1] * s[2]]
        # E goes with sin w t and H with cos w t: i times what goes the other way.
        fields = _standing(
            [part / np.sqrt(2) for part in electric], [-part / np.sqrt(6) for part in magnetic]
        )
        return np.asarray(1j * fields)

    return TimeHarmonic(float(w), phasor)


def cavity(kind: str, numbers: Triple, size: Lengths = (1.0, 1.0, 1.0)) -> TimeHarmonic:
    """Mode of the rectangular cavity [0, a] x [0, b] x [0, d] with conducting walls.

    Pozar, Microwave Engineering, section 6.3: E = A (c s s, s c s, s s c) with A . k = 0.
    """
    k = np.pi * np.array(numbers) / np.array(size)
    across = k[0] ** 2 + k[1] ** 2
    te = np.array([k[1], -k[0], 0.0])
    A = te if kind == "te" else np.array([-k[0] * k[2], -k[1] * k[2], across])
    # Which components do not vanish for want of half waves.
    seen = [k[(i + 1) % 3] > 0 and k[(i + 2) % 3] > 0 for i in range(3)]
    if not any(seen[i] and A[i] != 0 for i in range(3)):
        label = "".join(str(number) for number in numbers)
        raise InputError(
            f"the cavity has no mode {kind}{label}", remedy="use a mode with more half waves"
        )
    A = A / np.linalg.norm(A)
    w = float(np.linalg.norm(k))
    B = np.cross(k, A) / w

    def phasor(points: Floats) -> Complexes:
        s, c = (np.stack([wave(k[i] * points[i]) for i in range(3)]) for wave in (np.sin, np.cos))
        electric = [A[i] * c[i] * s[(i + 1) % 3] * s[(i + 2) % 3] for i in range(3)]
        magnetic = [-B[i] * s[i] * c[(i + 1) % 3] * c[(i + 2) % 3] for i in range(3)]
        return _standing(electric, magnetic)

    return TimeHarmonic(w, phasor)


def waveguide(
    kind: str,
    azimuthal: int = 0,
    radial: int = 1,
    *,
    radius: float = 1.0,
    length: float = TAU,
    periods: int = 1,
) -> TimeHarmonic:
    """Mode that runs along z in a circular guide around the z axis with a conducting wall.

    Pozar, Microwave Engineering, section 3.4: the axial field is J_m(K rho) cos(m phi) cos(w t - k
    z), w^2 = k^2 + K^2, K R a zero of J_m (``tm``: Ez) or of J_m' (``te``: Hz).
    """
    from scipy.special import jn_zeros, jnp_zeros, jv

    # `azimuthal`, `radial`: m from 0, and which zero, from 1.
    m = azimuthal
    K = float((jn_zeros if kind == "tm" else jnp_zeros)(m, radial)[-1]) / radius
    k = TAU * periods / length
    w = float(np.hypot(k, K))

    def phasor(points: Floats) -> Complexes:
        x, y, z = points
        rho, phi = np.hypot(x, y), np.arctan2(y, x)
        below, above = jv(m - 1, K * rho), jv(m + 1, K * rho)
        axial = jv(m, K * rho) * np.cos(m * phi)
        outward = K * (below - above) / 2 * np.cos(m * phi)
        around = -K * (below + above) / 2 * np.sin(m * phi) if m else np.zeros_like(x)
        dx = np.cos(phi) * outward - np.sin(phi) * around
        dy = np.sin(phi) * outward + np.cos(phi) * around
        # With exp(i k z - i w t): the field along z, its own transverse part, and the other's.
        own = [1j * k / K**2 * dx, 1j * k / K**2 * dy, axial + 0j]
        turned = [-1j * w / K**2 * dy, 1j * w / K**2 * dx, 0j * axial]
        parts = own + turned if kind == "tm" else [-part for part in turned] + own
        return np.asarray(np.stack(parts) * np.exp(1j * k * z))

    return TimeHarmonic(w, phasor)


def sphere_frequency(kind: str, degree: int = 1, radial: int = 1, radius: float = 1.0) -> float:
    """Angular frequency of a resonance of a sphere with a conducting wall."""
    # w R is a zero of j_l (``te``) or of (x j_l)' (``tm``); Jackson, Classical Electrodynamics,
    # section 9.8 and problem 9.22. Lowest: TM11 2.743707269992269, TM21 3.870238580222165, TE11
    # 4.493409457909064.
    from scipy.optimize import brentq
    from scipy.special import spherical_jn

    function = _riccati_derivative if kind == "tm" else spherical_jn
    # Zeros lie above l (DLMF 10.21.3) and less than pi + l apart.
    steps = np.arange(1.0, math.ceil(radial * (math.pi + degree) / _SCAN) + 1)
    x: Floats = degree + _SCAN * steps
    values = function(degree, x)
    before = np.flatnonzero(np.diff(np.signbit(values)))[radial - 1]
    zero = brentq(lambda x: function(degree, x), x[before], x[before + 1], xtol=1e-15)
    return float(zero) / radius


def _over_argument(degree: int, x: Floats) -> Floats:
    """j_l(x) / x for l from 1, also at x = 0: (j_(l-1) + j_(l+1)) / (2 l + 1), DLMF 10.51.1."""
    from scipy.special import spherical_jn

    both = spherical_jn(degree - 1, x) + spherical_jn(degree + 1, x)
    return np.asarray(both / (2 * degree + 1))


def _riccati_derivative(degree: int, x: Floats) -> Floats:
    """(x j_l(x))' / x = j_(l-1) - l j_l / x for l from 1, DLMF 10.51.2; also at x = 0."""
    from scipy.special import spherical_jn

    return np.asarray(spherical_jn(degree - 1, x) - degree * _over_argument(degree, x))


def sphere(kind: str, degree: int = 1, radial: int = 1, radius: float = 1.0) -> TimeHarmonic:
    """Resonance of a sphere around the origin with a conducting wall, alike around the z axis.

    Stratton, Electromagnetic Theory, section 7.11: M = curl(r psi), N = curl M / w with psi = j_l(w
    r) P_l(cos theta); E goes with cos w t and is N (``tm``) or M (``te``).
    """
    w = sphere_frequency(kind, degree, radial, radius)
    many = degree * (degree + 1)

    def phasor(points: Floats) -> Complexes:
        x, y, z = points
        r = np.sqrt(x * x + y * y + z * z)
        middle = r == 0
        by_r = 1 / np.where(middle, 1.0, r)
        cosine = z * by_r
        value, slope = legendre(degree, cosine), _legendre_slope(degree, cosine)
        q = _over_argument(degree, w * r)
        around = w * q * slope
        across = _riccati_derivative(degree, w * r)
        outward = (many * q * value - across * slope * cosine) * by_r
        M = [-y * around, x * around, np.zeros_like(x)]
        N = [x * outward, y * outward, z * outward + across * slope]
        return (
            _standing(N, [-part for part in M])
            if kind == "tm"
            else _standing(M, [-part for part in N])
        )

    return TimeHarmonic(w, phasor)


def _legendre_slope(degree: int, x: Floats) -> Floats:
    """P_l'(x) as the sum of (2 n + 1) P_n over n = l - 1, l - 3, ..., DLMF 14.10."""
    result = np.zeros_like(x)
    for n in range(degree - 1, -1, -2):
        result += (2 * n + 1) * legendre(n, x)
    return result


def pulse_at_interface(
    shape: Callable[[Floats], Floats], first: Material, second: Material
) -> Solution:
    """Pulse along x that meets another medium at x = 0, without dispersion.

    With Z = sqrt(mu / eps) the reflected E is r = (Z2 - Z1) / (Z1 + Z2) times the incident one, the
    transmitted one 2 Z2 / (Z1 + Z2) (Jackson, section 7.3). E along y, H along z.
    """
    Z1, Z2 = first.impedance, second.impedance
    r, t = (Z2 - Z1) / (Z1 + Z2), 2 * Z2 / (Z1 + Z2)
    v1, v2 = (1 / np.sqrt(m.permittivity * m.permeability) for m in (first, second))

    def solution(points: Floats, time: float) -> Floats:
        x = points[0]
        there, back = shape(x - v1 * time), r * shape(-x - v1 * time)
        beyond = t * shape(v1 / v2 * x - v1 * time)
        result = np.zeros((6, *x.shape))
        result[1] = np.where(x < 0, there + back, beyond)
        result[5] = np.where(x < 0, (there - back) / Z1, beyond / Z2)
        return result

    return solution


_ROUND = re.compile(r"(waveguide|sphere)-(te|tm)(\d)(\d)")
_CAVITY = re.compile(r"cavity-(te|tm)(\d)(\d)(\d)")
FORMS = (
    "periodic-box, conducting-box, cavity-te101 (te or tm and three numbers), waveguide-tm01 (te "
    "or tm and two numbers), sphere-tm11 (te or tm and two numbers, the first from 1)"
)


def named(
    name: str, *, radius: float = 1.0, length: float = 1.0, size: Lengths = (1.0, 1.0, 1.0)
) -> TimeHarmonic:
    """Solution by the name that a case file gives."""
    if name == "periodic-box":
        return periodic_box(length)
    if name == "conducting-box":
        return conducting_box(length)
    if match := _CAVITY.fullmatch(name):
        kind, m, n, p = match.groups()
        return cavity(kind, (int(m), int(n), int(p)), size)
    if match := _ROUND.fullmatch(name):
        shape, kind, first, second = match.groups()
        m, n = int(first), int(second)
        if n >= 1 and shape == "waveguide":
            return waveguide(kind, m, n, radius=radius, length=length)
        if n >= 1 and m >= 1:
            return sphere(kind, m, n, radius)
    raise InputError("unknown solution", location=f"solution = {name!r}", allowed=FORMS)


# All in natural units (c = 1, vacuum impedance 1), with the factor exp(-i w t). The wave runs along
# x with E along y and H along z; coefficients are those of E. For H they differ: a published table
# that has Z1 and Z2 exchanged gives those of H, or means admittances.


@dataclass(frozen=True)
class Response:
    """Response of a medium to a wave of one frequency, for example Medium.permittivity_at."""

    # Relative, with an imaginary part of at least 0 where the medium absorbs.
    permittivity: complex = 1.0
    permeability: complex = 1.0

    @property
    def index(self) -> complex:
        """Refractive index; its imaginary part is not negative, so that waves decay."""
        root = np.sqrt(complex(self.permittivity * self.permeability))
        return complex(-root if root.imag < 0 else root)

    @property
    def impedance(self) -> complex:
        """Z = sqrt(mu / eps), as mu / n, which takes the branch of the index."""
        return complex(self.permeability / self.index)


VACUUM = Response()


def interface(first: Response, second: Response) -> tuple[complex, complex]:
    """Reflected and transmitted amplitude of E over the incident one, on a half space.

    r = (Z2 - Z1) / (Z1 + Z2), t = 2 Z2 / (Z1 + Z2); Jackson, Classical Electrodynamics,
    section 7.3 at normal incidence.
    """
    total = first.impedance + second.impedance
    return (second.impedance - first.impedance) / total, 2 * second.impedance / total


def slab(
    frequency: float,
    thickness: float,
    inside: Response,
    before: Response = VACUUM,
    behind: Response = VACUUM,
) -> tuple[complex, complex]:
    """Reflected E at the front face and transmitted E at the back face over the incident one.

    The sum over all passages, Born and Wolf, Principles of Optics, section 1.6.4:
    r = (r12 + r23 p^2) / (1 + r12 r23 p^2), t = t12 t23 p / (1 + r12 r23 p^2), p = exp(i n w d).
    """
    r12, t12 = interface(before, inside)
    r23, t23 = interface(inside, behind)
    p = np.exp(1j * inside.index * frequency * thickness)
    total = 1 + r12 * r23 * p**2
    return complex((r12 + r23 * p**2) / total), complex(t12 * t23 * p / total)


def slab_wave(
    frequency: float,
    thickness: float,
    inside: Response,
    before: Response = VACUUM,
    behind: Response = VACUUM,
) -> TimeHarmonic:
    """The steady field around a slab in 0 < x < d, lit from x < 0 by E = cos(n1 w x - w t).

    A thickness of infinity makes it a half space. With the phasor's E also the currents of a medium
    with memory are known: J = -i w (eps - eps_inf) E.
    """
    half_space = np.isinf(thickness)
    r12, t12 = interface(before, inside)
    if half_space:
        r, forward, backward, t = r12, t12, 0j, 0j
    else:
        r, t = slab(frequency, thickness, inside, before, behind)
        r23, _ = interface(inside, behind)
        p = np.exp(1j * inside.index * frequency * thickness)
        forward = complex(t12 / (1 + r12 * r23 * p**2))
        backward = complex(forward * r23 * p**2)

    def phasor(points: Floats) -> Complexes:
        x = points[0]
        result = np.zeros((6, *x.shape), np.complex128)

        def fill(
            tangential: Floats, medium: Response, start: float, to: complex, back: complex
        ) -> None:
            phase = 1j * medium.index * frequency * (x[tangential] - start)
            there = to * np.exp(phase)
            again = back * np.exp(-phase) if back else np.zeros_like(phase)
            result[1, tangential] = there + again
            result[5, tangential] = (there - again) / medium.impedance

        fill(x < 0, before, 0.0, 1.0, r)
        fill((x >= 0) & (x <= thickness), inside, 0.0, forward, backward)
        if not half_space:
            fill(x > thickness, behind, thickness, t, 0j)
        return result

    return TimeHarmonic(frequency, phasor)


# Mie's series. Fields vary as exp(-i w t), so that an absorbing medium has a permittivity with a
# positive imaginary part. The sphere's permittivity and permeability are relative to those of the
# medium around it, which is lossless; x = k a is its size parameter, k the wavenumber outside. The
# wave travels along +z and is polarised along x; theta is the angle from +z, the forward direction.
#
# Formulas: C. F. Bohren, D. R. Huffman, Absorption and Scattering of Light by Small Particles,
# Wiley 1983 (BH), chapter 4.

_LARGE = 1e200


@dataclass(frozen=True, eq=False)
class ScatteringSphere:
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
        """S1 (across the plane of scattering) and S2 (within it) at angles in rad, BH eq. 4.74."""
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


def dielectric_sphere(
    size: float, permittivity: complex, permeability: complex = 1.0
) -> ScatteringSphere:
    """Sphere of a medium.

    `permittivity`, `permeability`: relative to the medium around; imaginary parts not negative. The
    refractive index is the root of their product with an imaginary part that is not negative.
    """
    # Each root is one in the first quadrant; abs() takes the sign from a negative zero.
    epsilon, mu = (complex(v.real, abs(v.imag)) for v in (permittivity, permeability))
    index = np.sqrt(epsilon) * np.sqrt(mu)
    psi, xi = _riccati_bessel(size)
    n = np.arange(1, len(psi))
    slope = _logarithmic_derivative(complex(size * index), len(psi) - 1)

    def coefficient(factor: complex) -> Complexes:
        inside = factor * slope + n / size
        numerator = inside * psi[1:] - psi[:-1]
        return np.asarray(numerator / (inside * xi[1:] - xi[:-1]))

    return ScatteringSphere(size, coefficient(mu / index), coefficient(index / mu))


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
