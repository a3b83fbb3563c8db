"""Sums over points and ranks: in fixed order, exact, and as short sketches of fields."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.device.interface import Array, Device, Launch
from haloscope.device.targets import KernelFile, Target
from haloscope.exchange.ranks.world import World
from haloscope.mesh.field_layouts import FieldLayout

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

COARSE_BITS = 20
FINE_BITS = 26


def split(values: ArrayLike) -> tuple[Floats, Floats]:
    """Whole numbers, as floats, of the coarse and the fine unit for each of finite values."""
    scaled = np.asarray(values, np.float64) * 2.0**COARSE_BITS
    coarse = np.floor(scaled)
    return coarse, np.rint((scaled - coarse) * 2.0**FINE_BITS)


def exact_sum(values: ArrayLike) -> Integers:
    """Sum of all values as two integers, (2,)."""
    return np.array([part.astype(np.int64).sum() for part in split(values)], np.int64)


def exact_bin_sums(bins: NDArray[np.integer], values: ArrayLike, count: int) -> Integers:
    """Sums of the values (n,) in each of `count` bins (n,), as two integers each, (2, count)."""
    # Sums of whole numbers below 2^53 are exact in floats, which bincount sums.
    sums = [np.bincount(bins, part, count) for part in split(values)]
    return np.array(sums).astype(np.int64)


def total(sums: Integers) -> Floats:
    """Sums that pairs (2, ...) of integers stand for."""
    result: Floats = sums[0] * 2.0**-COARSE_BITS + sums[1] * 2.0 ** -(COARSE_BITS + FINE_BITS)
    return result


_SOURCE = Path(__file__).with_name("reduce.cpp")
_LANES = 1024
_BLOCKS = 128
_GPU_PARTS = 1 << 16
_FINE_BITS = 30
_LARGEST_EXPONENT = 1000
NOT_FINITE = 1e300


def kernel_file(dtype: np.dtype[Any]) -> KernelFile:
    """The kernels of this module for fields of a type."""
    return KernelFile(_SOURCE, {"real": "float" if dtype == np.float32 else "double"})


def kernel_files(dtype: np.dtype[Any], target: Target) -> list[KernelFile]:
    """All that :class:`ChangeNorm` needs; GPUs find the largest of parts in double precision."""
    double = np.dtype(np.float64)
    return [kernel_file(one) for one in ((dtype,) if target.kind == "cpu" else (dtype, double))]


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
                        values=parts,
                        n=len(parts),
                        result=self._result,
                        blocks=blocks,
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
        # Arguments of kernels: first value of the box, counts, distances of rows and of planes.
        (nx, ny, nz), (sy, sz) = shape, strides
        self._box: dict[str, Any] = {
            "first": first,
            "nx": nx,
            "ny": ny,
            "nz": nz,
            "sy": sy,
            "sz": sz,
        }
        self._parts = min(max(1, shape[1] * shape[2]), 4096)
        if device.kind != "cpu":
            self._parts = _GPU_PARTS
        own = int(np.prod(np.array(shape, np.int64)))
        self.count = int(world.sum(np.array([own], np.int64))[0])
        constants = kernel_file(dtype).constants
        self._largest = device.kernel(_SOURCE, "largest_change", constants)
        self._sum = device.kernel(_SOURCE, "sum_of_squares", constants)
        self._most = device.zeros((self._parts,), "f8")
        self._largest_part = Largest(device, self._most)
        self._high = device.zeros((self._parts,), "i8")
        self._low = device.zeros((self._parts,), "i8")

    def largest(self, a: Array, b: Array, shift: float = 0.0) -> float:
        """Largest ``|a - b - shift|`` of all ranks; infinite where any value is not finite."""
        n = self._parts
        launch = self._largest.bind(
            a=a, b=b, **self._box, shift=shift, parts=self._most, n=n, extent=(n,)
        )
        launch()
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
        launch = self._sum.bind(
            a=a,
            b=b,
            **self._box,
            shift=shift,
            scale=math.ldexp(1.0, exponent),
            fine=math.ldexp(1.0, fine),
            high=self._high,
            low=self._low,
            n=n,
            extent=(n,),
        )
        launch()
        own = np.array(
            [self._device.to_host(part).sum(dtype=np.int64) for part in (self._high, self._low)]
        )
        high, low = (int(value) for value in self._world.sum(own))
        total = Fraction(high) + Fraction(low, 1 << fine)
        return math.ldexp(math.sqrt(float(total / self.count)), -exponent)


# The finaliser of SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number
# generators", OOPSLA 2014.
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
# Of a node in sketches, and nodes that are looked at together.
_SIGNS, _AT_ONCE = 64, 4096


def mix(values: np.ndarray) -> np.ndarray:
    """Spread every bit over all 64, in place."""
    values += _GAMMA
    for shift, factor in ((30, _FIRST), (27, _SECOND)):
        values ^= values >> np.uint64(shift)
        values *= factor
    values ^= values >> np.uint64(31)
    return values


def part_of_digest(values: np.ndarray, numbers: Iterable[NDArray[np.uint64]]) -> int:
    """Contribution of a field's values to the digest.

    `values`: of 4 or 8 bytes each.
    """
    unsigned = np.dtype(f"u{values.dtype.itemsize}")
    flat, total, begin = np.ascontiguousarray(values).reshape(-1).view(unsigned), 0, 0
    for numbered in numbers:
        mixed = mix(numbered.reshape(-1).copy())
        mixed ^= flat[begin : begin + numbered.size]
        total += int(mix(mixed).sum(dtype=np.uint64))
        begin += numbered.size
    if begin != flat.size:
        raise ValueError(f"{flat.size} values but {begin} global numbers")
    return total % 2**64


def field_digest(world: World, fields: FieldLayout, owned: np.ndarray) -> str:
    """Digest of a field; the same on every rank, however many there are."""
    signed = np.array([part_of_digest(owned, fields.numbers())], np.uint64).view(np.int64)
    return f"{int(world.sum(signed).view(np.uint64)[0]):016x}"


def field_sketch(world: World, fields: FieldLayout, owned: np.ndarray) -> list[float]:
    """Sums of a field with random signs; the same on every rank, but for rounding on any number.

    Each node has 64 signs, the bits of its mixed number: lengths that are worked out from a sketch
    are right to some 10 %.
    """
    flat, sums, begin = np.ascontiguousarray(owned).reshape(-1), np.zeros(_SIGNS), 0
    for numbered in fields.numbers():
        for first in range(0, numbered.size, _AT_ONCE):
            mixed = mix(numbered.reshape(-1)[first : first + _AT_ONCE].copy())
            bits = np.unpackbits(mixed.view(np.uint8)).reshape(-1, _SIGNS)
            values = flat[begin : begin + len(mixed)].astype(np.float64)
            sums += values @ (1.0 - 2.0 * bits)
            begin += len(mixed)
    sketch: list[float] = world.sum(sums).tolist()
    return sketch


def relative_difference(sketch: Sequence[float], reference: Sequence[float]) -> float:
    """Length of the difference of two fields over that of the second, from sketches of both."""
    wanted = np.asarray(reference)
    difference = float(np.linalg.norm(np.asarray(sketch) - wanted))
    length = float(np.linalg.norm(wanted))
    return difference / length if length else difference


# Of the sum of absolute values.
_GRID_TOLERANCE = 1e-9


def grid_marks(world: World, grid: FieldLayout) -> dict[str, Any]:
    """Identification of a grid in checkpoints: a text, sums along x, y, z, and those of absolute values.

    All ranks call this; it is the same on each but for rounding, on any number of them.
    """
    sums = np.zeros((2, 3))
    for numbers, positions in grid.landmarks():
        mixed = mix(numbers.astype(np.uint64, copy=True)).view(np.int64)
        weighted = positions * (mixed / 2.0**63)[:, None]
        sums += [weighted.sum(axis=0), np.abs(weighted).sum(axis=0)]
    signed, absolute = world.sum(sums).tolist()
    return {"about": grid.describe_grid(), "sums": signed, "absolute": absolute}


def same_grid(marks: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Whether two grids are the same, by their marks."""
    ours, theirs = (np.array([one["sums"], one["absolute"]], float) for one in (marks, others))
    if ours.shape != (2, 3) or theirs.shape != (2, 3):
        raise ValueError("marks of a grid have the shape (2, 3)")
    near = np.abs(ours - theirs) <= _GRID_TOLERANCE * np.maximum(ours[1], theirs[1])
    return marks["about"] == others["about"] and bool(near.all())
