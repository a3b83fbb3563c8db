"""Runs of the Maxwell solver that measure how a sphere with a conducting wall rings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from haloscope.device.interface import Device
from haloscope.mesh.hexes.hex_generators import sphere
from haloscope.numerics.spectrum import resonances
from haloscope.solvers.maxwell import exact
from haloscope.solvers.maxwell.exact import TAU, Floats, TimeHarmonic
from haloscope.solvers.maxwell.verification import Run

MODES = (("tm", 1, 1), ("tm", 2, 1), ("te", 1, 1))
"""Kind, degree and radial number; all have Ex, save on planes."""
_SAMPLES_A_PERIOD = 16
_PROBE = (0.31, 0.23, 0.42)
_STEPS_A_SAMPLE = 8
# Share by which the band of the probe reaches beyond the modes.
_BEYOND = 0.3


def _opened(
    order: int, device: Device, modes: Sequence[tuple[str, int, int]], core: int, rings: int
) -> tuple[Run, dict[str, TimeHarmonic]]:
    run = Run(sphere(1.0, core=core, rings=rings), order, device, boundaries={"wall": "pec"})
    return run, {f"{kind}{m}{n}": exact.sphere(kind, m, n) for kind, m, n in modes}


def _together(run: Run, waves: Mapping[str, TimeHarmonic]) -> Floats:
    return np.asarray(sum(run.at(wave, 0.0) for wave in waves.values()))


def frequencies_by_projection(
    order: int,
    device: Device,
    *,
    modes: Sequence[tuple[str, int, int]] = MODES,
    core: int = 1,
    rings: int = 1,
    share: float = 0.8,
    until: float = 6.0,
) -> dict[str, tuple[float, float]]:
    """Frequencies of resonances of the unit sphere with a conducting wall, beside the exact ones."""
    # All modes start at once. At equal times the fields are projected on each mode's own E and H:
    # these are cos w t and sin w t, and the slope of their phase is the frequency. Modes are
    # orthogonal, and damping changes no phase.
    run, waves = _opened(order, device, modes, core, rings)
    shapes = {name: _shapes(run, wave) for name, wave in waves.items()}
    steps = run.start(_together(run, waves), until, share)
    fastest = max(wave.frequency for wave in waves.values())
    samples = min(steps, math.ceil(until * fastest / TAU * _SAMPLES_A_PERIOD))
    taken = np.linspace(0, steps, samples + 1).round().astype(int)
    phases: dict[str, list[float]] = {name: [0.0] for name in waves}
    for before, after in itertools.pairwise(taken.tolist()):
        run.stepping.advance(after - before)
        fields = run.stepping.values()
        for name, shape in shapes.items():
            electric, magnetic = (fields * shape).sum(axis=(0, 2)).reshape(2, 3).sum(axis=1)
            phases[name].append(math.atan2(magnetic, electric))
    times = taken * (until / steps)
    return {
        name: (float(np.polyfit(times, np.unwrap(phases[name]), 1)[0]), wave.frequency)
        for name, wave in waves.items()
    }


def _shapes(run: Run, wave: TimeHarmonic) -> Floats:
    """What the fields are multiplied by and summed: 1 where E or H is that of the mode."""
    phasor = np.moveaxis(wave.phasor(run.points), 0, 1)
    shape = np.concatenate([phasor[:, :3].real, phasor[:, 3:].imag], axis=1)
    weighted = shape * run.weights[:, None]
    size = (weighted * shape).sum(axis=(0, 2)).reshape(2, 3).sum(axis=1)
    return np.asarray(weighted / np.repeat(size, 3)[:, None])


def frequencies_by_probe(
    order: int,
    device: Device,
    *,
    modes: Sequence[tuple[str, int, int]] = MODES,
    core: int = 1,
    rings: int = 1,
    share: float = 0.8,
    until: float = 24.0,
) -> dict[str, tuple[float, float]]:
    """The same from Ex at one node over time, by harmonic inversion and without the modes' shapes."""
    run, waves = _opened(order, device, modes, core, rings)
    steps = run.start(_together(run, waves), until, share)
    away = np.linalg.norm(run.points - np.reshape(_PROBE, (3, 1, 1)), axis=0)
    element, node = np.unravel_index(away.argmin(), away.shape)
    series = [run.stepping.values()[element, 0, node]]
    for _ in range(steps // _STEPS_A_SAMPLE):
        run.stepping.advance(_STEPS_A_SAMPLE)
        series.append(run.stepping.values()[element, 0, node])
    exactly = {name: wave.frequency for name, wave in waves.items()}
    band = (
        min(exactly.values()) * (1 - _BEYOND) / TAU,
        max(exactly.values()) * (1 + _BEYOND) / TAU,
    )
    peaks = resonances(np.array(series), _STEPS_A_SAMPLE * until / steps, band)
    measured = np.array([TAU * peak.frequency for peak in peaks] or [math.nan])
    return {
        name: (float(measured[np.abs(measured - true).argmin()]), true)
        for name, true in exactly.items()
    }
