"""Claims about the norm: right to rounding, and the same bits for any split, threads and shift."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from haloscope.device.cpu import CpuDevice
from haloscope.exchange.ranks.world import World
from haloscope.numerics.reduce import ChangeNorm

_BOX = (11, 7, 5)


class _Together(World):
    """One of several ranks that run as threads of this process."""

    def __init__(self, rank: int, size: int, slots: list[Any], barrier: threading.Barrier) -> None:
        self.rank, self.size = rank, size
        self._slots, self._barrier = slots, barrier

    def _all(self, value: Any) -> list[Any]:
        self._slots[self.rank] = value
        self._barrier.wait(timeout=30)
        values = list(self._slots)
        self._barrier.wait(timeout=30)
        return values

    def sum(self, values: np.ndarray) -> np.ndarray:
        return np.sum(self._all(values), axis=0, dtype=values.dtype)

    def largest(self, value: float) -> float:
        return max(self._all(value))


def _together(size: int, work: Callable[[World], Any]) -> list[Any]:
    """What each of `size` ranks gets."""
    slots: list[Any] = [None] * size
    barrier = threading.Barrier(size)
    results: list[Any] = [None] * size

    def one(rank: int) -> None:
        try:
            results[rank] = work(_Together(rank, size, slots, barrier))
        except BaseException as error:
            results[rank] = error
            barrier.abort()

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def _norm(
    device: CpuDevice, world: World, dtype: Any, box: tuple[slice, slice, slice] | None = None
) -> ChangeNorm:
    """Norm over a box (x, y, z) of arrays of the shape of _BOX."""
    cut = box or tuple(slice(0, n) for n in _BOX)
    strides = (1, _BOX[0], _BOX[0] * _BOX[1])
    first = sum(part.start * stride for part, stride in zip(cut, strides, strict=True))
    shape = tuple(part.stop - part.start for part in cut)
    return ChangeNorm(device, world, np.dtype(dtype), first, shape, strides[1:])


def _arrays(device: CpuDevice, dtype: Any = "f8", scale: float = 1.0) -> tuple[Any, Any]:
    """Two arrays whose differences spread over ten decades below `scale`."""
    random = np.random.default_rng(5)
    size = math.prod(_BOX)
    a = random.standard_normal(size) * 10.0 ** random.uniform(-10, 0, size) * scale
    b = random.standard_normal(size) * 1e-3 * scale
    return device.from_host(a.astype(dtype)), device.from_host(b.astype(dtype))


def _exact(a: np.ndarray, b: np.ndarray, shift: float, scale: float) -> float:
    change = ((a.astype("f8") - b.astype("f8")) - shift) / scale
    return math.sqrt(math.fsum((change * change).tolist()) / change.size) * scale


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("shift", [0.0, 0.125, -3e4])
def test_the_root_mean_square_is_right_to_rounding(dtype, shift):
    device = CpuDevice(threads=1)
    a, b = _arrays(device, dtype)
    norm = _norm(device, World(), dtype).rms(a, b, shift)
    assert norm == pytest.approx(_exact(a, b, shift, 1.0), rel=1e-12)


@pytest.mark.parametrize("exponent", [-290, -200, -160, -100, 100, 150, 160, 200, 290])
def test_very_small_and_very_large_changes_are_right_too(exponent):
    device = CpuDevice(threads=1)
    scale = 10.0**exponent
    a, b = _arrays(device, scale=scale)
    norm = _norm(device, World(), "f8").rms(a, b)
    assert norm == pytest.approx(_exact(a, b, 0.0, scale), rel=1e-12)


def test_equal_arrays_have_no_change():
    device = CpuDevice(threads=1)
    a, _ = _arrays(device)
    assert _norm(device, World(), "f8").rms(a, a) == 0.0
    assert _norm(device, World(), "f8").rms(a, device.from_host(a - 0.5), 0.5) < 1e-15


def test_the_largest_change_is_found():
    device = CpuDevice(threads=1)
    a, b = _arrays(device)
    norm = _norm(device, World(), "f8")
    assert norm.largest(a, b, 0.25) == np.abs((a - b) - 0.25).max()


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_threads_do_not_change_a_bit(dtype):
    norms = set()
    for threads in (1, 2, 3, 5):
        device = CpuDevice(threads=threads)
        a, b = _arrays(device, dtype)
        norms.add(_norm(device, World(), dtype).rms(a, b, 0.125))
    assert len(norms) == 1


def _cuts(parts: tuple[int, int, int], random: np.random.Generator) -> list[Any]:
    """Boxes of uneven size; some may be empty."""
    axes = []
    for n, count in zip(_BOX, parts, strict=True):
        edges = [0, *sorted(int(e) for e in random.integers(0, n + 1, count - 1)), n]
        axes.append([slice(a, b) for a, b in itertools.pairwise(edges)])
    return [(x, y, z) for z in axes[2] for y in axes[1] for x in axes[0]]


@pytest.mark.parametrize("parts", [(1, 1, 2), (2, 1, 1), (1, 3, 1), (2, 2, 2)])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_splits_over_ranks_do_not_change_a_bit(dtype, parts):
    device = CpuDevice(threads=1)
    a, b = _arrays(device, dtype)
    whole = _norm(device, World(), dtype).rms(a, b, 0.125)
    random = np.random.default_rng(list(parts))
    for _ in range(3):
        boxes = _cuts(parts, random)

        def one(world: World, boxes: list[Any] = boxes) -> float:
            return _norm(device, world, dtype, boxes[world.rank]).rms(a, b, 0.125)

        assert _together(len(boxes), one) == [whole] * len(boxes)


@pytest.mark.parametrize("place", [0, 200, -1])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_a_value_that_is_not_finite_gives_infinity(dtype, value, place):
    device = CpuDevice(threads=2)
    a, b = _arrays(device, dtype)
    norm = _norm(device, World(), dtype)
    spoilt = device.from_host(a)
    spoilt[place] = value
    assert norm.rms(spoilt, b) == math.inf
    assert norm.rms(b, spoilt) == math.inf
    assert norm.largest(spoilt, b) == math.inf
    assert norm.rms(spoilt, spoilt) == math.inf
    assert math.isfinite(norm.rms(a, b))


def test_every_rank_learns_that_one_value_is_not_finite():
    device = CpuDevice(threads=1)
    a, b = _arrays(device)
    a[-1] = math.nan
    boxes = _cuts((1, 1, 3), np.random.default_rng(1))
    norms = _together(3, lambda world: _norm(device, world, "f8", boxes[world.rank]).rms(a, b))
    assert norms == [math.inf] * 3


def test_values_outside_the_box_do_not_count():
    device = CpuDevice(threads=1)
    a, b = _arrays(device)
    box = (slice(1, 10), slice(2, 5), slice(1, 3))
    norm = _norm(device, World(), "f8", box)
    inside = norm.rms(a, b)
    shape = tuple(reversed(_BOX))
    x, y, z = box
    change = (a - b).reshape(shape)[z, y, x]
    assert inside == pytest.approx(math.sqrt((change**2).mean()), rel=1e-12)
    kept = a.reshape(shape)[z, y, x].copy()
    a[...] = math.nan
    a.reshape(shape)[z, y, x] = kept
    assert norm.rms(a, b) == inside
