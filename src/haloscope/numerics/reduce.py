"""Norms whose bits do not depend on threads, ranks or the device."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np

from haloscope.device.interface import Array, Device, Launch
from haloscope.exchange.ranks.world import World

_SOURCE = Path(__file__).with_name("reduce.cpp")
_LANES = 1024
_BLOCKS = 128
_GPU_PARTS = 1 << 16
_FINE_BITS = 30
_LARGEST_EXPONENT = 1000
NOT_FINITE = 1e300


class Largest:
    """Largest value of an array of float64 on a device."""

    def __init__(self, device: Device, values: Array) -> None:
        self._device = device
        self._result = values
        self._launches: list[Launch] = []
        if device.kind != "cpu":
            kernel = device.kernel(_SOURCE, "largest", {"real": "double"})
            for blocks in (min(_BLOCKS, -(-len(values) // _LANES)), 1):
                parts, self._result = self._result, device.zeros((blocks,), "f8")
                self._launches.append(
                    kernel.bind(
                        parts,
                        len(parts),
                        self._result,
                        blocks,
                        extent=(blocks * _LANES,),
                        block=(_LANES,),
                    )
                )

    def __call__(self) -> float:
        """The largest value now."""
        for launch in self._launches:
            launch()
        return float(self._device.to_host(self._result).max())


class ChangeNorm:
    """Root mean square of the difference of two arrays over boxes that the ranks own."""

    # The squares are added as integers after scaling by a power of two that the largest of them
    # decides; the largest and integer sums do not depend on any order (the idea of reproducible
    # summation by pre-rounding: Demmel and Nguyen, IEEE Trans. Comput. 64, 2015).

    def __init__(
        self,
        device: Device,
        world: World,
        dtype: np.dtype,
        first: int,
        shape: tuple[int, int, int],
        strides: tuple[int, int],
    ) -> None:
        self._device, self._world = device, world
        self._box = (first, *shape, *strides)
        self._parts = min(max(1, shape[1] * shape[2]), 4096)
        if device.kind != "cpu":
            self._parts = _GPU_PARTS
        own = int(np.prod(np.array(shape, np.int64)))
        self.count = int(world.sum(np.array([own], np.int64))[0])
        real = "float" if dtype == np.float32 else "double"
        constants = {"real": real}
        self._largest = device.kernel(_SOURCE, "largest_change", constants)
        self._sum = device.kernel(_SOURCE, "sum_of_squares", constants)
        self._most = device.zeros((self._parts,), "f8")
        self._largest_part = Largest(device, self._most)
        self._high = device.zeros((self._parts,), "i8")
        self._low = device.zeros((self._parts,), "i8")

    def largest(self, a: Array, b: Array, shift: float = 0.0) -> float:
        """Largest ``|a - b - shift|`` of all ranks; infinite where any value is not finite."""
        n = self._parts
        self._largest.bind(a, b, *self._box, float(shift), self._most, n, extent=(n,))()
        most = self._world.largest(self._largest_part())
        return math.inf if most >= NOT_FINITE else most

    def rms(self, a: Array, b: Array, shift: float = 0.0) -> float:
        """Root of the mean of ``(a - b - shift)**2`` over the boxes of all ranks."""
        most = self.largest(a, b, shift)
        if most == 0.0 or math.isinf(most):
            return most
        # Every scaled square is below 2**(62 - bits of the count): the sum fits 63 bits.
        room = 62 - self.count.bit_length()
        exponent = min(room // 2 - math.frexp(most)[1], _LARGEST_EXPONENT)
        fine = min(_FINE_BITS, room)
        n = self._parts
        self._sum.bind(
            a,
            b,
            *self._box,
            float(shift),
            math.ldexp(1.0, exponent),
            math.ldexp(1.0, fine),
            self._high,
            self._low,
            n,
            extent=(n,),
        )()
        own = np.array(
            [self._device.to_host(part).sum(dtype=np.int64) for part in (self._high, self._low)]
        )
        high, low = (int(value) for value in self._world.sum(own))
        total = Fraction(high) + Fraction(low, 1 << fine)
        return math.ldexp(math.sqrt(float(total / self.count)), -exponent)
