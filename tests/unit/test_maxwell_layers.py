"""Claims about absorbing layers: what goes in does not come back, in every direction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from driven_fields import advance, opened

from haloscope.device.cpu import CpuDevice
from haloscope.domain.hex_generators import SIDE_NAMES, box
from haloscope.errors import InputError
from haloscope.solvers.maxwell.currents import PointDipole
from haloscope.solvers.maxwell.layers import SIDES, Layer
from haloscope.solvers.maxwell.media import Drude, Medium
from haloscope.solvers.maxwell.waveforms import Ricker

CORE = CpuDevice(threads=1)
REFLECTED = 1e-3
"""-60 dB."""


def row(axis: int, half: float = 1.5, width: float = 0.5):
    """Elements in a row along an axis, periodic to its sides."""
    low, high, periodic = [0.0] * 3, [width] * 3, [True] * 3
    low[axis], high[axis], periodic[axis] = -half, half, False
    counts = [1, 1, 1]
    counts[axis] = round(2 * half / width)
    return box(tuple(counts), tuple(low), tuple(high), periodic=tuple(periodic))


def comes_back(axis: int, layer: Layer | None, medium=None, forward: int = 1) -> float:
    """Largest field in the middle after a pulse has met the end, over the pulse's height."""
    medium = medium or Medium()
    mesh = row(axis)
    ends = {f"{'xyz'[axis]}{side}": "pec" for side in "-+"}
    stepping, _, points = opened(mesh, 8, CORE, media=(medium,), layer=layer, boundaries=ends)
    x = points[axis]
    start = np.zeros(stepping.values().shape)
    pulse = np.exp(-((x / 0.22) ** 2))
    e, h = (axis + 1) % 3, (axis + 2) % 3
    start[:, e], start[:, 3 + h] = pulse, forward * pulse / medium.impedance
    stepping.set_fields(start)
    speed = 1 / np.sqrt(medium.permittivity * medium.permeability)
    advance(stepping, 3.0 / speed, 0.5 * np.sqrt(medium.permittivity), 0.8)
    middle = np.abs(x) < 1.0
    return float(np.abs(stepping.values()[:, e][middle]).max())


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("forward", [1, -1])
def test_a_pulse_that_meets_a_layer_is_gone(axis, forward):
    name = "xyz"[axis]
    layer = Layer({f"{name}-": 0.5, f"{name}+": 0.5})
    assert comes_back(axis, layer, forward=forward) < REFLECTED


def test_without_the_layer_the_pulse_comes_back():
    assert comes_back(0, None) > 0.9


# A dipole in the corner of an octant: what symmetry puts on the other sides makes it eight times
# as strong as the eighth that the octant holds.
SYMMETRY = {"x-": "pmc", "y-": "pmc", "z-": "pec", "x+": "pec", "y+": "pec", "z+": "pec"}
PULSE = Ricker(centre=1.0, frequency=1.0)


def octant(elements: int, layer: Layer | None, order: int = 6, until: float = 3.5):
    """Fields around a dipole along z in elements of width 0.5, and where they are."""
    mesh = box((elements,) * 3, upper=(0.5 * elements,) * 3)
    dipole = PointDipole((0.0, 0.0, 0.0), (0.0, 0.0, 1 / 8), PULSE)
    stepping, _, points = opened(
        mesh, order, CORE, layer=layer, currents=(dipole,), boundaries=SYMMETRY
    )
    advance(stepping, until, 0.5, 0.8)
    return stepping.values(), points


def of_dipole(points: np.ndarray, t: float) -> np.ndarray:
    """E of a current of moment g(t) along z: its dipole moment m has m' = g."""
    r = np.sqrt((points**2).sum(axis=0))
    a2, s = np.pi**2 * PULSE.frequency**2, t - r - PULSE.centre
    g = np.exp(-a2 * s * s)
    m, m1, m2 = s * g, (1 - 2 * a2 * s**2) * g, (4 * a2**2 * s**3 - 6 * a2 * s) * g
    normal = points / r
    z = np.array([0.0, 0.0, 1.0])[:, None]
    across = normal * normal[2] - z
    return ((2 * normal * normal[2] + across) * (m / r**3 + m1 / r**2) + across * m2 / r) / (
        4 * np.pi
    )
