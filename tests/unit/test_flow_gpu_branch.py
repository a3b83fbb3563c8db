"""Claims that the GPU branch of the flow equations gives the bits of cores, tried on cores."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_branches import ThreadsGpu

from haloscope.device.cpu import CpuDevice
from haloscope.mesh.tets.tet_generators import tet_box
from haloscope.numerics.krylov.block_rows import BlockRows, pattern_of
from haloscope.solvers.carreau import Carreau
from haloscope.solvers.flow.equations.equations import (
    FlowEquations,
    MatrixFreeEquations,
    Medium,
    UnstoredRows,
)

TURNING = Medium(1.3, 0.4, (0.1, 0.2, -0.3), (0.5, -0.7, 0.9), (0.1, 0.2, 0.3))


@pytest.fixture(scope="module")
def devices(tmp_path_factory):
    return ThreadsGpu(tmp_path_factory.mktemp("gpu")), CpuDevice(threads=1)


def around_an_axis(count):
    """Tetrahedra that share an edge: its ends have more places than a GPU's threads at once."""
    angles = 2 * np.pi * np.arange(count) / count
    ring = np.stack([np.cos(angles), np.sin(angles), 0 * angles], axis=1)
    own = np.arange(count)
    tets = np.stack([0 * own, 0 * own + 1, 2 + own, 2 + (own + 1) % count], axis=1)
    return np.vstack([[(0, 0, -0.5), (0, 0, 0.5)], ring]), tets


def in_a_box():
    mesh = tet_box((2, 1, 1), (0, 0, 0), (1.0, 0.7, 0.6))
    return mesh.nodes, mesh.tets


@pytest.mark.parametrize("mesh", [in_a_box(), around_an_axis(50)], ids=["box", "axis"])
def test_rows_have_the_bits_of_cores(devices, mesh):
    (nodes, tets), random, results = mesh, np.random.default_rng(1), []
    state, past = random.standard_normal((len(nodes), 4)), random.standard_normal((len(nodes), 3))
    # Viscosities that depend on the shear rate go through pow, which is another one on GPUs.
    media = [TURNING, Medium(0.7, 0.2)]
    zones = np.arange(len(tets)) % 3 // 2
    for device in devices:
        rows = BlockRows(device, pattern_of(devices[1], tets, len(nodes)), 4)
        equations = FlowEquations(rows, nodes, media, zones)
        equations.set_time(2.2, 3.0)
        first, second = rows.vector(), rows.vector()
        rows.values[...] = np.nan
        equations.residual(device.from_host(state.ravel()), device.from_host(past.ravel()), first)
        equations.linearise(device.from_host(state.ravel()), device.from_host(past.ravel()), second)
        results.append([first, second, rows.values])
    for actual, wanted in zip(*results, strict=True):
        assert np.abs(wanted).max() > 0
        assert np.array_equal(actual, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [in_a_box(), around_an_axis(50)], ids=["box", "axis"])
def test_rows_that_are_not_stored_have_the_bits_of_cores(devices, mesh):
    (nodes, tets), random, results = mesh, np.random.default_rng(3), []
    state, x = random.standard_normal((2, 4 * len(nodes)))
    past, fixed = random.standard_normal(3 * len(nodes)), np.array([2, 7, 21])
    zones = np.arange(len(tets)) % 3 // 2
    for device in devices:
        rows = UnstoredRows(device, pattern_of(devices[1], tets, len(nodes)))
        equations = MatrixFreeEquations(rows, nodes, [TURNING, Medium(0.7, 0.2)], zones)
        equations.set_time(2.2, 3.0)
        residual, product = rows.vector(), rows.vector()
        rows.values[...] = product[...] = residual[...] = np.nan
        equations.linearise(device.from_host(state), device.from_host(past), residual)
        rows.fixing(fixed)()
        rows.multiply(device.from_host(x), product)
        results.append([residual, rows.values, rows.is_fixed, product])
    for actual, wanted in zip(*results, strict=True):
        assert np.array_equal(actual, wanted)
    assert np.array_equal(product[fixed], x[fixed])


@pytest.mark.slow
def test_a_shear_thinning_medium_is_that_of_cores(devices):
    (nodes, tets), random, results = in_a_box(), np.random.default_rng(2), []
    state, past = random.standard_normal(4 * len(nodes)), np.zeros(3 * len(nodes))
    for device in devices:
        rows = BlockRows(device, pattern_of(devices[1], tets, len(nodes)), 4)
        medium = Medium(1.3, 0.4, carreau=Carreau(0.4, 0.05, 2.0, 0.6))
        equations, residual = FlowEquations(rows, nodes, [medium]), rows.vector()
        equations.set_time(2.2, 3.0)
        equations.linearise(device.from_host(state), device.from_host(past), residual)
        results.append([residual, rows.values])
    for actual, wanted in zip(*results, strict=True):
        assert np.abs(actual - wanted).max() < 1e-13 * np.abs(wanted).max()
