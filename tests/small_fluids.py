"""Fluids on small lattices for tests: where they run, how they start, and how they settle."""

from __future__ import annotations

import numpy as np
import pytest

from haloscope.device.cpu import CpuDevice
from haloscope.solvers.blood.fluid.lattice import WEIGHTS


@pytest.fixture(name="device", scope="module")
def fixture_device():
    return CpuDevice(threads=1)


def random_start(part, seed=1, size=0.02):
    random = np.random.default_rng(seed)
    return WEIGHTS[:, None] * size * random.standard_normal((19, part.owned))


def obstacles(shape, seed=5):
    return np.random.default_rng(seed).random(shape) < 0.04


def settled(fluid, part, steps):
    for _ in range(steps):
        fluid.step()
    density, velocity = fluid.moments()
    return part.coordinates[: part.owned, 1], density, velocity
