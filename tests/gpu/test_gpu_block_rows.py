"""Claims about block rows and flexible GMRES on a GPU: they have the bits of cores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kuhn_boxes import LinearFlow, kuhn_box
from stored_elements import assemble, assemble_vector

from haloscope.exchange.ranks.world import World
from haloscope.numerics.krylov.block_rows import BlockRows, pattern_of
from haloscope.numerics.krylov.flexible_gmres import FlexibleGmres
from haloscope.numerics.krylov.node_vectors import NodeVectors
from haloscope.numerics.krylov.smoothers import PointBlocks
from haloscope.numerics.shared_nodes import SharedNodes, SharedProduct


@pytest.mark.parametrize("n", [(1, 1, 1), (5, 4, 3), (20, 20, 20)])
@pytest.mark.parametrize("size", [2, 4, 8])
def test_assembly_and_product(gpu, cores, assert_close, size, n):
    points, elements = kuhn_box(n)
    rng = np.random.default_rng(1)
    elements = rng.permutation(len(points))[rng.permutation(elements)]
    nodes = len(points)
    matrices = rng.standard_normal((len(elements), 4, 4, size, size))
    vectors, components = (
        rng.standard_normal((len(elements), 4, size)),
        rng.standard_normal(nodes * size),
    )
    results = []
    for device in (gpu, cores):
        rows = BlockRows(device, pattern_of(device, elements, nodes), size)
        assemble(rows, matrices)
        rows.fixing(np.array([1, size + 1]))()
        x, y, z, v = device.from_host(components), rows.vector(), rows.vector(), rows.vector()
        rows.multiply(x, y, rows.range_of(1, nodes))
        assemble_vector(rows, vectors, v)
        points_of = PointBlocks(rows, SharedNodes(World(), device, np.arange(nodes)))
        points_of.update()
        points_of.apply(x, z)
        arrays = {"matrix": rows.values, "product": y, "right-hand side": v, "point blocks": z}
        results.append({name: device.to_host(values) for name, values in arrays.items()})
    assert_close(*results, within=1e-12)
    assert all(np.array_equal(results[0][name], results[1][name]) for name in results[0])


@pytest.mark.parametrize("nodes", [1, 127, 128, 50_001])
def test_orthogonalisation(gpu, cores, assert_close, nodes):
    rng = np.random.default_rng(2)
    count = min(20, nodes)
    components, owned = rng.standard_normal((count, 4 * nodes)), rng.random(nodes) < 0.9
    owned[0] = True
    results = []
    for device in (gpu, cores):
        space = NodeVectors(device, count, 4, owned)
        for vector, values in zip(space.vectors, components, strict=True):
            vector[:] = device.from_host(values)
        numbers = [space.start()]
        for j in range(1, count):
            numbers += space.extend(j)().tolist()
        last = device.to_host(space.vectors[-1])
        results.append({"numbers": np.array(numbers), "last": last})
    assert_close(*results, within=1e-12)
    assert np.array_equal(results[0]["last"], results[1]["last"])


@pytest.mark.parametrize("size", [4, 8])
def test_flexible_gmres(gpu, cores, assert_close, size):
    flow = LinearFlow((8, 8, 8), size, velocity=2.0)
    nodes = len(flow.points)
    matrices, vectors = flow.parts(np.arange(len(flow.elements)))
    results: list[dict[str, Any]] = []
    for device in (gpu, cores):
        shared = SharedNodes(World(), device, np.arange(nodes))
        rows = BlockRows(device, pattern_of(device, flow.elements, nodes), size)
        assemble(rows, matrices)
        rows.fixing(flow.unknowns(flow.boundary))()
        right, x = rows.vector(), rows.vector()
        assemble_vector(rows, vectors, right)
        on_host = device.to_host(right).reshape(nodes, size)
        on_host[flow.boundary] = flow.exact[flow.boundary]
        right[:] = device.from_host(on_host.reshape(-1))
        points = PointBlocks(rows, shared)
        points.update()
        gmres = FlexibleGmres(device, size, shared.owned, 15)
        result = gmres.solve(
            *(SharedProduct(rows, shared), points, right, x), tolerance=1e-10, most_iterations=300
        )
        assert result.converged
        assert np.abs(device.to_host(x).reshape(nodes, size) - flow.exact).max() < 1e-7
        results.append({"history": np.array(result.history), "solution": device.to_host(x)})
    assert_close(*results, within=1e-12)
    assert np.array_equal(results[0]["history"], results[1]["history"])
