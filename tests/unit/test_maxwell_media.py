"""Claims about media that conduct or have memory: they do what their permittivity says."""

from __future__ import annotations

import numpy as np
import pytest
from driven_fields import advance, opened
from refusals import refused

from haloscope.device.cpu import CpuDevice
from haloscope.mesh.hexes.hex_generators import box
from haloscope.solvers.maxwell.terms.media import Debye, Drude, Lorentz, Medium

CORE = CpuDevice(threads=1)
K = 2 * np.pi
DRUDE = Drude(plasma_frequency=4.0, collision_rate=0.6)
LORENTZ = Lorentz(strength=1.5, resonance=5.0, damping=0.4)
DEBYE = Debye(strength=2.0, relaxation_time=0.3)
MEDIA = {
    "Drude": Medium(2.0, 1.0, poles=(DRUDE,)),
    "Lorentz": Medium(1.5, 1.3, poles=(LORENTZ,)),
    "Debye": Medium(2.0, 1.0, poles=(DEBYE,)),
    "several": Medium(
        1.2, 1.0, conductivity=0.3, poles=(LORENTZ, DRUDE, Lorentz(0.5, 9.0, 1.0), DEBYE)
    ),
}


def column(axis: int = 0, elements: int = 2):
    """Elements in a row along an axis, periodic all around."""
    counts, upper = [1, 1, 1], [0.5, 0.5, 0.5]
    counts[axis], upper[axis] = elements, 1.0
    return box(tuple(counts), upper=tuple(upper), periodic=(True, True, True))


def frequency(medium: Medium) -> complex:
    """Root of eps(w) mu w^2 = k^2, by Newton's method with differences."""

    def gap(w: complex) -> complex:
        eps = medium.permittivity + 1j * medium.conductivity / w
        for pole in medium.poles:
            if isinstance(pole, Drude):
                a, b = pole.collision_rate, pole.plasma_frequency**2
                eps -= b / (w * (w + 1j * a))
            elif isinstance(pole, Lorentz):
                a, b = pole.damping, pole.resonance**2
                eps += pole.strength * b / (b - 1j * a * w - w * w)
            else:
                eps += pole.strength / (1 - 1j * w * pole.relaxation_time)
        return eps * medium.permeability * w * w - K * K

    w = K / np.sqrt(medium.permittivity * medium.permeability) + 0.5 - 0.1j
    for _ in range(60):
        slope = (gap(w + 1e-6) - gap(w - 1e-6)) / 2e-6
        w -= gap(w) / slope
    assert abs(gap(w)) < 1e-8
    assert w.real > 0.5
    assert w.imag < -1e-3
    return w


@pytest.mark.parametrize(
    ("name", "axis"), [("Drude", 0), ("Lorentz", 1), ("Debye", 2), ("several", 0)]
)
def test_a_standing_wave_obeys_the_dispersion_relation(name, axis):
    medium = MEDIA[name]
    stepping, additions, points = opened(column(axis), 11, CORE, media=(medium,))
    w = frequency(medium)
    x = points[axis]
    e, h = (axis + 1) % 3, (axis + 2) % 3

    def exact(t: float) -> np.ndarray:
        turn = np.exp(-1j * w * t)
        values = np.zeros((len(x), 6, x.shape[1]))
        values[:, e] = (np.cos(K * x) * turn).real
        values[:, 3 + h] = (1j * K * np.sin(K * x) / (medium.permeability * w) * turn).real
        return values

    states = []
    for pole in (*medium.singles, *medium.pairs):
        if isinstance(pole, Drude):
            states.append(pole.plasma_frequency**2 / (pole.collision_rate - 1j * w))
        elif isinstance(pole, Debye):
            states.append(pole.strength / (1 - 1j * w * pole.relaxation_time))
        else:
            b = pole.resonance**2
            P = pole.strength * b / (b - 1j * pole.damping * w - w * w)
            states.extend((-1j * w * P, P))
    kept = np.zeros((len(x), 3 * len(states), x.shape[1]))
    for number, amount in enumerate(states):
        kept[:, 3 * number + e] = (np.cos(K * x) * amount).real
    name = f"medium_{3 * len(states)}"
    additions.restore({name: kept})
    stepping.set_fields(exact(0.0))
    advance(stepping, 0.7, 0.5, 0.15)
    assert np.abs(stepping.values() - exact(0.7)).max() < 1e-8


def test_a_standing_wave_decays_in_a_conducting_medium():
    """Electric and magnetic losses: f'' + (se/eps + sm/mu) f' + (k^2 + se sm) / (eps mu) f = 0."""
    eps, mu, se, sm = 2.0, 1.5, 0.8, 0.5
    medium = Medium(eps, mu, conductivity=se, magnetic_conductivity=sm)
    stepping, _, points = opened(column(), 11, CORE, media=(medium,))
    x = points[0]
    rates = np.array([[-se / eps, -K / eps], [K / mu, -sm / mu]])
    values, vectors = np.linalg.eig(rates)

    def exact(t: float) -> np.ndarray:
        turn = (vectors @ np.diag(np.exp(values * t)) @ np.linalg.inv(vectors)).real
        f, g = turn @ [1.0, 0.0]
        fields = np.zeros((len(x), 6, x.shape[1]))
        fields[:, 1], fields[:, 5] = f * np.cos(K * x), g * np.sin(K * x)
        return fields

    stepping.set_fields(exact(0.0))
    advance(stepping, 1.0, 0.5, 0.15)
    assert np.abs(stepping.values() - exact(1.0)).max() < 1e-8


def test_energy_of_random_fields_never_grows_in_media():
    """Fields and states together lose energy; the fields alone do not end up above their start."""
    stepping, additions, _ = opened(column(), 5, CORE, media=(MEDIA["several"],))
    stepping.set_fields(np.random.default_rng(1).standard_normal(stepping.values().shape))
    stepping.set_step(2e-3)
    before = stepping.energy()
    stepping.advance(2000)
    assert stepping.energy() < 0.5 * before
    assert additions.state("medium_18").shape == (2, 18, 216)


@pytest.mark.parametrize(
    ("make", "fields"),
    [
        (
            lambda: Medium(2.0, poles=(Lorentz(-0.5, 3.0, 0.1),)),
            {"problem": "give energy to waves", "remedy": "strengths positive"},
        ),
        (
            lambda: Medium(2.0, poles=(Lorentz(-0.5, 3.0),)),
            {"location": "strength = -0.5$", "problem": "Lorentz pole without damping"},
        ),
        (lambda: Medium(2.0, poles=(Lorentz(-0.5, 3.0), DRUDE)), {"problem": "without damping"}),
    ],
)
def test_unstable_media_are_refused(make, fields):
    with refused(**fields):
        make()


def test_a_negative_pole_is_allowed_where_another_outweighs_it():
    Medium(2.0, poles=(Lorentz(2.0, 3.0, 0.5), Lorentz(-0.01, 3.0, 0.5)))
    Medium(2.0, poles=(Lorentz(2.0, 3.0), Lorentz(-0.5, 3.0)))


def test_a_pole_without_damping_is_a_medium_like_others():
    with np.errstate(all="raise"):
        assert Medium(2.0, poles=(Lorentz(3.0, 3.0), DRUDE)).states == 3


def test_the_permittivity_is_the_sum_of_its_poles():
    medium = MEDIA["several"]
    w = np.array([1.0, 5.0])
    permittivity = medium.permittivity_at(w)
    expected = medium.permittivity + 0.3j / w
    expected = expected - 16 / (w * (w + 0.6j)) + 37.5 / (25 - 0.4j * w - w * w)
    expected = expected + 0.5 * 81 / (81 - 1j * w - w * w) + 2 / (1 - 0.3j * w)
    assert np.abs(permittivity - expected).max() < 1e-13


def test_the_fastest_rate_bounds_what_a_medium_adds():
    assert Medium(2.0, conductivity=6.0).fastest == pytest.approx(3.0)
    assert Medium(1.0, poles=(Drude(7.0),)).fastest == pytest.approx(7.0)
