"""Claims about running transforms: they equal the integral, go on from a state, refuse aliases."""

from __future__ import annotations

import math

import numpy as np
from refusals import refused

from haloscope.device.cpu import CpuDevice
from haloscope.numerics.spectrum import RunningTransform

RATES = [3.0, 7.5]


def _pulse(t):
    """Gaussian pulses of three places, later from place to place."""
    late = t - np.array([4.0, 4.5, 5.0])
    return np.exp(-(late**2)) * np.cos(6 * late)


def _exact(rate):
    shape = (
        math.sqrt(math.pi)
        / 2
        * (math.exp(-((rate - 6) ** 2) / 4) + math.exp(-((rate + 6) ** 2) / 4))
    )
    return shape * np.exp(1j * rate * np.array([4.0, 4.5, 5.0]))


def _run(transform, times, dt, dtype=np.float64):
    for t in times:
        transform.accumulate(_pulse(t).astype(dtype), t, dt)


def test_transform_of_a_pulse_is_its_integral():
    dt = 0.05
    transform = RunningTransform(CpuDevice(1), 3, RATES, dt)
    _run(transform, np.arange(0, 11, dt), dt)
    expected = np.array([_exact(rate) for rate in RATES])
    np.testing.assert_allclose(transform.transforms(), expected, atol=1e-6 * abs(expected).max())
    single = RunningTransform(CpuDevice(1), 3, RATES, dt)
    _run(single, np.arange(0, 11, dt), dt, np.float32)
    np.testing.assert_allclose(single.transforms(), expected, atol=3e-6 * abs(expected).max())


def test_amplitudes_of_a_steady_oscillation_are_exact_over_whole_periods():
    amplitude = np.array([[2.0 - 1.0j, 0.5j], [1.0, -3.0]])
    steps = 96
    dt = 2 * math.pi / 1.5 / steps  # both frequencies have whole periods in it
    transform = RunningTransform(CpuDevice(1), 4, RATES, dt)
    for t in 10 + dt * np.arange(steps):
        field = sum(
            (a * np.exp(-1j * w * t)).real
            for a, w in zip((amplitude, 1j * amplitude), RATES, strict=True)
        )
        transform.accumulate(field, t)
    assert transform.samples == steps
    np.testing.assert_allclose(
        transform.transforms() * 2 / transform.duration,
        [amplitude.ravel(), 1j * amplitude.ravel()],
        atol=1e-12,
    )


def test_going_on_from_a_state_gives_the_same_bits():
    dt, times = 0.05, np.arange(0, 11, 0.05)
    whole = RunningTransform(CpuDevice(1), 3, RATES, dt)
    _run(whole, times, dt)
    first, second = (RunningTransform(CpuDevice(1), 3, RATES, dt) for _ in range(2))
    _run(first, times[:90], dt)
    second.restore(first.state())
    _run(second, times[90:], dt)
    assert np.array_equal(whole.transforms(), second.transforms())
    assert (second.samples, second.duration) == (whole.samples, whole.duration)


def test_what_cannot_be_transformed_is_refused():
    device = CpuDevice(1)
    with refused(
        problem="0.05 apart.* 70$", allowed="^less than 0.0448", remedy="sample more often"
    ):
        RunningTransform(device, 3, [3.0, 70.0], 0.05)
    with refused(location=r"angular frequencies \[\]", allowed="positive"):
        RunningTransform(device, 3, [], 0.05)
    with refused(problem="the checkpoint holds", remedy="same frequencies"):
        RunningTransform(device, 3, RATES, 0.05).restore(
            RunningTransform(device, 3, [1.0], 0.05).state()
        )
