"""Velocities of an opening whose profile changes over time: a sum of oscillating profiles, on the device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device
from haloscope.device.targets import KernelFile

_SOURCE = Path(__file__).with_name("waves.cpp")
_BLOCK = (256,)


def kernel_file(real: str) -> KernelFile:
    """The kernel; `real`: type of the fluid."""
    return KernelFile(_SOURCE, {"real": real})


class Waves:
    """One opening's; `profiles`: (modes, points or links); `places`: of these in `target`."""

    def __init__(
        self,
        device: Device,
        real: str,
        profiles: NDArray[np.complex128],
        places: NDArray[np.integer[Any]],
        target: Array,
    ) -> None:
        self._device = device
        modes, count = profiles.shape
        parts = np.stack([profiles.real, profiles.imag], axis=1)
        self._amplitudes = device.zeros((2 * modes,), np.float64)
        file = kernel_file(real)
        self._launch = None
        if count:
            self._launch = device.kernel(file.source, "add_waves", file.constants).bind(
                profiles=device.from_host(np.ascontiguousarray(parts).ravel()),
                amplitudes=self._amplitudes,
                modes=modes,
                count=count,
                places=device.from_host(places.astype(np.int32)),
                target=target,
                extent=(count,),
                block=_BLOCK,
            )

    def set(self, amplitudes: NDArray[np.complex128]) -> None:
        """Set the velocities of the next step: with amplitudes (modes,) that hold the phases."""
        if self._launch is not None:
            parts = np.stack([amplitudes.real, amplitudes.imag], axis=1).ravel()
            self._amplitudes[...] = self._device.from_host(np.ascontiguousarray(parts))
            self._launch()
