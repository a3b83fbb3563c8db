"""Claims about spectra: their scale, and damped oscillations recovered from sums of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from refusals import refused

from haloscope.errors import SolutionError
from haloscope.numerics.spectrum import fit_exponentials, resonances, spectrum

# Frequency, Q, amplitude, phase; the second and third are closer than the resolution.
MODES = [
    (1.0, 200.0, 1.0, 0.3),
    (1.31, 1e4, 0.5, -2.0),
    (1.3134, 3000.0, 0.2, 1.0),
    (2.2, 30.0, 0.7, 2.5),
]


def _series(samples, interval, modes=MODES, noise=0.0):
    t = interval * np.arange(samples)
    rates = [math.pi * f / q for f, q, _, _ in modes]
    values = sum(
        amplitude * np.exp(-rate * t) * np.cos(2 * np.pi * f * t + phase)
        for (f, _, amplitude, phase), rate in zip(modes, rates, strict=True)
    )
    return values + noise * np.random.default_rng(5).standard_normal(samples)


@pytest.mark.parametrize(
    ("samples", "interval", "band"),
    [(500, 0.1, (0.0, 5.0)), (4000, 0.05, (0.8, 2.5)), (40_000, 0.004, (0.9, 2.3))],
    ids=["whole", "in parts", "filtered"],
)
def test_damped_oscillations_are_recovered(samples, interval, band):
    modes = resonances(_series(samples, interval), interval, band)
    assert len(modes) == len(MODES)
    for mode, (f, q, amplitude, phase) in zip(modes, MODES, strict=True):
        assert mode.frequency == pytest.approx(f, rel=1e-10)
        assert mode.quality == pytest.approx(q, rel=1e-6)
        assert mode.amplitude == pytest.approx(amplitude, rel=1e-6)
        assert mode.phase == pytest.approx(phase, abs=1e-6)
        assert mode.frequency_error < 1e-10
        assert mode.quality_error < 1e-5 * q


def test_one_mode_without_decay_is_told_from_a_slow_one():
    steady = resonances(_series(300, 0.1, [(1.7, math.inf, 2.0, 0.0)]), 0.1, (1.0, 3.0))
    assert len(steady) == 1
    assert abs(steady[0].quality) > 1e10
    growing = resonances(_series(300, 0.1, [(1.7, -50.0, 2.0, 0.0)]), 0.1, (1.0, 3.0))
    assert growing[0].quality == pytest.approx(-50.0)


def test_modes_outside_the_band_do_not_show():
    series = _series(4000, 0.05)
    assert [m.frequency for m in resonances(series, 0.05, (1.2, 1.312))] == [pytest.approx(1.31)]
    assert resonances(series, 0.05, (1.4, 2.1)) == []
    assert resonances(np.zeros(1000), 0.05, (1.4, 2.1)) == []
    loud = series + _series(4000, 0.05, [(3.0, 1e5, 1e4, 0.0)])
    assert len(resonances(loud, 0.05, (0.8, 2.5))) == len(MODES)


@pytest.mark.parametrize("samples", [400, 3000])
def test_errors_tell_how_far_noise_puts_the_modes_off(samples):
    noise = 1e-3
    modes = resonances(_series(samples, 0.05, noise=noise), 0.05, (0.5, 3.0))
    assert 3 <= len(modes) <= 4
    for f, q, amplitude, _ in (MODES[0], MODES[3]):
        mode = min(modes, key=lambda candidate: abs(candidate.frequency - f))
        assert abs(mode.frequency - f) < 5 * mode.frequency_error
        assert abs(mode.quality - q) < 5 * mode.quality_error
        assert mode.frequency_error < 1e-3 * f
        assert mode.quality_error < 0.02 * q
        assert mode.amplitude == pytest.approx(amplitude, rel=0.02)


def test_a_mode_at_the_edge_of_two_parts_of_the_band_is_found_once():
    # 2000 samples 0.05 apart are thinned to every seventh: parts are 2 wide, and meet at 2.8.
    for noise in (0.0, 1e-3):
        series = _series(2000, 0.05, [(2.8, 400.0, 1.0, 0.5)], noise=noise)
        modes = resonances(series, 0.05, (0.9, 4.7))
        assert [mode.frequency for mode in modes] == [pytest.approx(2.8, rel=1e-5)]


def test_noise_alone_holds_no_modes():
    random = np.random.default_rng(3)
    for samples in (200, 300, 1000):
        assert resonances(random.standard_normal(samples), 0.1, (0.5, 4.5)) == []


def test_what_remains_of_a_noisy_series_cannot_be_lowered_by_other_exponents():
    place = np.arange(120)
    exponents = np.array([-0.01 + 0.4j, -0.02 + 0.45j])
    random = np.random.default_rng(8)
    noise = random.standard_normal((2, 120))
    series = np.exp(np.outer(place, exponents)).sum(axis=1) + 0.3 * (noise[0] + 1j * noise[1])
    fitted = fit_exponentials(series)
    assert len(fitted.exponents) == 2
    terms = fitted.amplitudes * np.exp(np.outer(place, fitted.exponents))
    rest = series - terms.sum(axis=1)
    slopes = place[:, None] * terms
    sizes = np.linalg.norm(slopes, axis=0) * np.linalg.norm(rest)
    assert (np.abs(slopes.conj().T @ rest) < 1e-4 * sizes).all()
    assert fitted.noise == pytest.approx(0.3 * math.sqrt(2), rel=0.15)


def test_a_short_complex_series_is_fitted():
    exponents = np.array([-0.01 + 0.4j, -0.02 - 1.1j, 2.9j])
    amplitudes = np.array([1.0, 2.0j, -0.5])
    series = np.exp(np.outer(np.arange(40), exponents)) @ amplitudes
    fitted = fit_exponentials(series)
    order = np.argsort(np.abs(fitted.exponents[:, None] - exponents), axis=0)[0]
    assert len(fitted.exponents) == 3
    np.testing.assert_allclose(fitted.exponents[order], exponents, atol=1e-12)
    np.testing.assert_allclose(fitted.amplitudes[order], amplitudes, atol=1e-11)
    assert fitted.noise < 1e-12


def test_spectrum_of_a_pulse_is_its_transform():
    interval, late = 0.02, 6.0
    t = interval * np.arange(700)
    transform = spectrum(np.exp(-((t - late) ** 2)), interval)
    f = transform.frequencies
    exact = math.sqrt(math.pi) * np.exp(-((np.pi * f) ** 2) + 2j * np.pi * f * late)
    np.testing.assert_allclose(transform.values, exact, atol=1e-12)
    np.testing.assert_array_equal(transform.magnitude, np.abs(transform.values))
    finer = spectrum(np.exp(-((t - late) ** 2)), interval, padding=3)
    np.testing.assert_allclose(finer.values[::3], transform.values, atol=1e-12)


@pytest.mark.parametrize("window", ["none", "hann", "fade"])
def test_every_window_shows_a_steady_oscillation_at_half_its_amplitude_times_the_duration(window):
    interval, samples = 0.01, 4001
    series = 3.0 * np.cos(2 * np.pi * 5.0 * interval * np.arange(samples))
    transform = spectrum(series, interval, window=window)
    place = transform.magnitude.argmax()
    assert transform.frequencies[place] == pytest.approx(5.0, abs=0.02)
    assert transform.magnitude[place] == pytest.approx(3.0 / 2 * samples * interval, rel=1e-2)


def test_what_cannot_be_analysed_is_refused_in_one_line():
    series = _series(400, 0.1)
    for call, fields in (
        (
            lambda: resonances(series[:20], 0.1, (0.5, 4.0)),
            {"problem": r"\(20,\)", "allowed": "at least 32 samples"},
        ),
        (
            lambda: resonances(series, 0.001, (0.5, 4.0)),
            {"problem": "lasts 0.4", "remedy": "^run longer$"},
        ),
        (
            lambda: resonances(series, 0.1, (0.5, 6.0)),
            {"location": "band 0.5 to 6$", "allowed": "0 to 5, half the sampling rate"},
        ),
        (lambda: resonances(series, 0.1, (2.0, 1.0)), {"location": "band 2 to 1$"}),
        (lambda: spectrum(series, 0.0), {"problem": "is 0$", "allowed": "positive"}),
        (
            lambda: spectrum(series, 0.1, window="box"),
            {"location": "window = 'box'", "allowed": "^none, "},
        ),
        (
            lambda: spectrum(series, 0.1, padding=0),
            {"location": "padding = 0$", "allowed": "1 and above"},
        ),
    ):
        with refused(**fields) as refusal:
            call()
        assert "\n" not in refusal.text
    series[7] = math.nan
    with refused(SolutionError, problem="^1 of 400 samples are nan or inf$"):
        spectrum(series, 0.1)
