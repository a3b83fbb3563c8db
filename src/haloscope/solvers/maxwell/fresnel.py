"""Normal incidence on a half space or a slab: Fresnel's coefficients, also of media with memory.

All in natural units (c = 1, vacuum impedance 1), with the factor exp(-i w t). The wave runs along
x with E along y and H along z; coefficients are those of E. For H they differ: a published table
that has Z1 and Z2 exchanged gives those of H, or means admittances.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from haloscope.solvers.maxwell.exact import Complexes, Floats, TimeHarmonic


@dataclass(frozen=True)
class Response:
    """What a wave of one frequency sees of a medium, such as Medium.permittivity_at says."""

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
