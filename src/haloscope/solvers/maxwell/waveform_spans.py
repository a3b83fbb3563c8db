"""When waveforms have ended, and up to which frequency they have content, both to rounding."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from haloscope.solvers.maxwell.currents import Current
from haloscope.solvers.maxwell.incident import PlaneWave
from haloscope.solvers.maxwell.waveforms import (
    Gaussian,
    ModulatedGaussian,
    RampedSine,
    Ricker,
    Table,
    Waveform,
)

# exp(-s^2) is below 2e-11 from here on; its spectrum exp(-(pi f w)^2) at pi f w likewise.
_FADED = 5.0
# The same for (1 - 2 s^2) exp(-s^2).
_FADED_RICKER = 5.4
# Of a table's spectrum what is below this part of its largest value counts for nothing.
_LEAST = 1e-8
# Where a spectrum has fallen to 1 % of its peak: exp(-s^2) and, for Ricker's, s^2 exp(1 - s^2). The
# same of the pulses themselves in time.
_MAIN = 0.01
_MAIN_GAUSSIAN = math.sqrt(-math.log(_MAIN))
_MAIN_RICKER = 2.764
_MAIN_RICKER_TIME = 2.684
# Times at which a pulse is looked at for its largest value.
_LOOKS = 1000


def end(waveform: Waveform) -> float:
    """Time from which a waveform is 0; inf for one that goes on."""
    if isinstance(waveform, RampedSine):
        return math.inf
    if isinstance(waveform, Ricker):
        return waveform.centre + _FADED_RICKER / (math.pi * waveform.frequency)
    if isinstance(waveform, Gaussian | ModulatedGaussian):
        return waveform.centre + _FADED * waveform.width
    return waveform.start + waveform.spacing * (len(waveform.values) - 1)


def highest_frequency(waveform: Waveform) -> float:
    """Frequency above which a waveform has no content."""
    if isinstance(waveform, RampedSine):
        return waveform.frequency
    if isinstance(waveform, Ricker):
        return waveform.frequency * _FADED
    if isinstance(waveform, Gaussian):
        return _FADED / (math.pi * waveform.width)
    if isinstance(waveform, ModulatedGaussian):
        return waveform.frequency + _FADED / (math.pi * waveform.width)
    heights = np.abs(np.fft.rfft(waveform.values))
    last = np.flatnonzero(heights >= _LEAST * heights.max())
    return float(last[-1]) / (len(waveform.values) * waveform.spacing) if len(last) else 0.0


def main_frequency(waveform: Waveform) -> float:
    """Frequency at which a waveform's spectrum has fallen to 1 % of its peak."""
    if isinstance(waveform, RampedSine):
        return waveform.frequency
    if isinstance(waveform, Ricker):
        return waveform.frequency * _MAIN_RICKER
    if isinstance(waveform, Gaussian):
        return _MAIN_GAUSSIAN / (math.pi * waveform.width)
    if isinstance(waveform, ModulatedGaussian):
        return waveform.frequency + _MAIN_GAUSSIAN / (math.pi * waveform.width)
    heights = np.abs(np.fft.rfft(waveform.values))
    last = np.flatnonzero(heights >= _MAIN * heights.max())
    return float(last[-1]) / (len(waveform.values) * waveform.spacing) if heights.any() else 0.0


def main_end(waveform: Waveform) -> float:
    """Time from which a waveform stays below 1 % of its peak; inf for one that goes on."""
    if isinstance(waveform, RampedSine):
        return math.inf
    if isinstance(waveform, Ricker):
        return waveform.centre + _MAIN_RICKER_TIME / (math.pi * waveform.frequency)
    if isinstance(waveform, Gaussian | ModulatedGaussian):
        return waveform.centre + _MAIN_GAUSSIAN * waveform.width
    heights = np.abs(waveform.values)
    last = np.flatnonzero(heights > _MAIN * heights.max())
    return waveform.start + waveform.spacing * float(last[-1]) if len(last) else waveform.start


def main_begin(waveform: Waveform) -> float:
    """Time up to which a waveform stays below 1 % of its peak; inf for one that is 0 throughout."""
    if isinstance(waveform, RampedSine):
        return 0.0
    if isinstance(waveform, Ricker):
        return waveform.centre - _MAIN_RICKER_TIME / (math.pi * waveform.frequency)
    if isinstance(waveform, Gaussian | ModulatedGaussian):
        return waveform.centre - _MAIN_GAUSSIAN * waveform.width
    heights = np.abs(waveform.values)
    first = np.flatnonzero(heights > _MAIN * heights.max())
    return waveform.start + waveform.spacing * float(first[0]) if len(first) else math.inf


def largest_cut(waveform: Waveform) -> float:
    """Part of its peak at which a waveform jumps: where time 0 cuts it, or where its table ends."""
    if isinstance(waveform, RampedSine) or math.isinf(main_begin(waveform)):
        return 0.0
    if isinstance(waveform, Table):
        heights = np.abs(waveform.values)
        ends = [heights[0], heights[-1]]
        times = waveform.start + waveform.spacing * np.arange(len(heights))
        return float(max(*ends, heights[times <= 0].max(initial=0.0)) / heights.max())
    before = np.linspace(min(main_begin(waveform), 0.0), 0.0, _LOOKS)
    heights = np.abs(waveform(np.linspace(main_begin(waveform), main_end(waveform), _LOOKS)))
    return float(np.abs(waveform(before)).max() / heights.max())


def sources_end(currents: Sequence[Current], waves: Sequence[PlaneWave], across: float) -> float:
    """Time after which nothing drives the fields; 0 without sources."""
    ends = [end(current.waveform) for current in currents]
    ends += [end(wave.waveform) + across for wave in waves]
    return max([0.0, *ends])
