"""Claims that the GPU branches of block rows and of flexible GMRES give the bits of cores, tried on cores."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_branches import ThreadsGpu
from kuhn_boxes import kuhn_box
from stored_elements import assemble, assemble_vector

from haloscope.device.cpu import CpuDevice
from haloscope.exchange.ranks.world import World
from haloscope.numerics.krylov.block_rows import BlockRows, pattern_of
from haloscope.numerics.krylov.node_vectors import NodeVectors
from haloscope.numerics.krylov.smoothers import ColouredIlu, PointBlocks
from haloscope.numerics.shared_nodes import SharedNodes


@pytest.fixture(scope="module")
def devices(tmp_path_factory):
    return ThreadsGpu(tmp_path_factory.mktemp("gpu")), CpuDevice(threads=1)


def random(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("size", [4, pytest.param(8, marks=pytest.mark.slow)])
def test_rows_have_the_bits_of_cores(devices, size):
    points, elements = kuhn_box((2, 2, 1))
    nodes, results = len(points), []
    matrices = random(len(elements), 4, 4, size, size)
    matrices[:, range(4), range(4)] += 4 * size * np.eye(size)
    for device in devices:
        rows = BlockRows(device, pattern_of(devices[1], elements, nodes), size)
        assemble(rows, matrices)
        rows.fixing(np.array([3, 8 * size]))()
        x, y, z, v = (rows.vector() for _ in range(4))
        x[:] = random(nodes * size)
        # Neither a whole number of blocks nor of warps.
        rows.multiply(x, y, rows.range_of(1, nodes))
        assemble_vector(rows, random(len(elements), 4, size), v)
        shared = SharedNodes(World(), device, np.arange(nodes))
        preconditioner = PointBlocks(rows, shared)
        preconditioner.update()
        preconditioner.apply(x, z)
        results.append([rows.values, y, z, v])
    for actual, wanted in zip(*results, strict=True):
        assert np.abs(wanted).max() > 0
        assert np.array_equal(actual, wanted)


@pytest.mark.slow  # many launches, each of which starts threads
def test_coloured_factors_have_the_bits_of_cores(devices):
    points, elements = kuhn_box((2, 2, 1))
    nodes, results = len(points), []
    matrices = random(len(elements), 4, 4, 4, 4)
    matrices[:, range(4), range(4)] += 16 * np.eye(4)
    for device in devices:
        rows = BlockRows(device, pattern_of(devices[1], elements, nodes), 4)
        assemble(rows, matrices)
        x, y = rows.vector(), rows.vector()
        x[:] = random(nodes * 4)
        factors = ColouredIlu(rows, SharedNodes(World(), device, np.arange(nodes)))
        factors.update()
        factors.apply(x, y)
        results.append(y)
    assert np.abs(results[1]).max() > 0
    assert np.array_equal(*results)


def test_orthogonalisation_has_the_bits_of_cores(devices):
    nodes, count, results = 200, 4, []
    owned = np.arange(nodes) % 7 > 0
    for device in devices:
        space = NodeVectors(device, count, 4, owned)
        for vector, values in zip(space.vectors, random(count, 4 * nodes), strict=True):
            vector[:] = values
        numbers = [space.start()]
        for j in range(1, count):
            numbers += space.extend(j)().tolist()
        result = device.from_host(random(4 * nodes, seed=2))
        space.add_to(result, np.array([0.5, -2.0, 3.0]))
        space.subtract_from(result, 2)
        results.append((numbers, np.array(space.vectors), result))
    for actual, wanted in zip(*results, strict=True):
        assert np.array_equal(actual, wanted)
