"""Fourier transforms of fields at a few frequencies, summed up while a run goes on.

A near-to-far-field transform, or a map of the field at a frequency, then needs no history of the
fields. Sums are kept on the device, in double precision whatever the fields are in.

Convention: fields vary as exp(-i w t), v(t) = Re[V exp(-i w t)], so a transform is
V(w) = integral of v(t) exp(+i w t) dt, summed as v(t_n) exp(i w t_n) times a weight (the step
between samples; half of it at either end makes the trapezoidal rule). For a pulse that begins and
ends at rest the sum converges faster than any power of the step once the pulse is resolved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device
from haloscope.errors import InputError

Complexes = NDArray[np.complex128]
Floats = NDArray[np.float64]


class RunningTransform:
    """Transforms of a set of values at some frequencies."""

    def __init__(
        self,
        device: Device,
        count: int,
        angular_frequencies: Sequence[float] | Floats,
        interval: float,
    ) -> None:
        rates = np.asarray(angular_frequencies, np.float64)
        if rates.ndim != 1 or not len(rates) or not (np.isfinite(rates) & (rates > 0)).all():
            raise InputError(
                "out of range",
                location=f"running transform: angular frequencies {rates.tolist()}",
                allowed="one or more positive numbers",
            )
        if not (math.isfinite(interval) and 0 < interval * rates.max() < math.pi):
            raise InputError(
                f"samples are {interval:g} apart, too far for the highest angular frequency {rates.max():g}",
                location="running transform",
                allowed=f"less than {math.pi / rates.max():g} apart",
                remedy="sample more often or lower the frequency",
            )
        self.angular_frequencies = rates
        self.interval = float(interval)
        self.samples = 0
        self.duration = 0.0
        self._device = device
        # Cosine and sine sums of each frequency.
        self._sums = device.zeros((2 * len(rates), count), np.float64)
        self._product = device.empty((count,), np.float64)
        # cos(w t - pi / 2) is the sine.
        self._phases = [(rate, shift) for rate in rates.tolist() for shift in (0.0, math.pi / 2)]

    def accumulate(self, values: Array, t: float, weight: float | None = None) -> None:
        """Add a sample.

        `values`: the device's array with `count` numbers, in any shape. It is read by the main
        stream in order, so the caller may change it right after.
        """
        xp = self._device.xp
        weight = self.interval if weight is None else weight
        flat = values.reshape(-1)
        for total, (rate, shift) in zip(self._sums, self._phases, strict=True):
            factor = weight * math.cos(rate * t - shift)
            xp.multiply(flat, factor, out=self._product, dtype=np.float64)
            xp.add(total, self._product, out=total)
        self.samples += 1
        self.duration += weight

    def transforms(self) -> Complexes:
        """The integrals of v exp(i w t) dt so far, on the host: (frequencies, count)."""
        sums = self._device.to_host(self._sums)
        return np.asarray(sums[0::2] + 1j * sums[1::2])

    def state(self) -> dict[str, NDArray[np.float64]]:
        """State for a checkpoint: ``sums`` (2 frequencies, count) and ``taken`` (2,)."""
        taken = np.array([float(self.samples), self.duration])
        return {"sums": self._device.to_host(self._sums), "taken": taken}

    def restore(self, state: dict[str, NDArray[np.float64]]) -> None:
        """Go on from what `state` gave."""
        shape = state["sums"].shape
        if shape != self._sums.shape:
            raise InputError(
                f"the checkpoint holds sums of shape {shape}, this run {self._sums.shape}",
                location="running transform",
                remedy="continue with the same frequencies and the same surface",
            )
        self._sums[...] = self._device.from_host(np.ascontiguousarray(state["sums"], np.float64))
        self.samples, self.duration = int(state["taken"][0]), float(state["taken"][1])
