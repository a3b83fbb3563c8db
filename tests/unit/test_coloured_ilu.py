"""Claims about block ILU(0) by colours: it is that of dense loops in this order, whatever the threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kuhn_boxes import LinearFlow, dense, kuhn_box
from refusals import refused
from stored_elements import assemble, assemble_vector

from haloscope.device.cpu import CpuDevice
from haloscope.errors import SolutionError
from haloscope.exchange.ranks.world import World
from haloscope.numerics.krylov.block_rows import BlockRows, pattern_of
from haloscope.numerics.krylov.flexible_gmres import FlexibleGmres
from haloscope.numerics.krylov.smoothers import ColouredIlu, PointBlocks, colours_of
from haloscope.numerics.shared_nodes import SharedNodes, SharedProduct


def alone(device: Any, nodes: int) -> SharedNodes:
    return SharedNodes(World(), device, np.arange(nodes))


def filled(device: Any, size: int) -> tuple[BlockRows, np.ndarray]:
    """Rows of a small box in an order of nodes without sense, and the dense matrix."""
    points, elements = kuhn_box((3, 2, 2))
    rng = np.random.default_rng(1)
    elements = rng.permutation(len(points))[elements]
    matrices = rng.standard_normal((len(elements), 4, 4, size, size))
    matrices[:, range(4), range(4)] += 4 * size * np.eye(size)
    rows = BlockRows(device, pattern_of(device, elements, len(points)), size)
    assemble(rows, matrices)
    return rows, dense(elements, matrices, len(points))


def test_neighbours_have_different_colours():
    device = CpuDevice(threads=1)
    _, elements = kuhn_box((7, 6, 5))
    pattern = pattern_of(device, elements, 8 * 7 * 6)
    colours = colours_of(device, pattern)
    across = pattern.rows != pattern.columns
    assert (colours[pattern.rows] != colours[pattern.columns])[across].all()
    assert 4 <= colours.max() + 1 <= 12


@pytest.mark.parametrize("size", [2, 4, 8])
def test_it_is_that_of_dense_loops_in_the_order_of_colours(size):
    device = CpuDevice(threads=1)
    rows, A = filled(device, size)
    nodes = rows.nodes
    met = np.zeros((nodes, nodes), bool)
    met[rows.pattern.rows, rows.pattern.columns] = True
    order = np.argsort(colours_of(device, rows.pattern), kind="stable")
    at = [slice(i * size, (i + 1) * size) for i in order]
    F, L = A.copy(), np.eye(len(A))
    for i in range(nodes):
        for k in range(i):
            if not met[order[i], order[k]]:
                continue
            L[at[i], at[k]] = F[at[i], at[k]] @ np.linalg.inv(F[at[k], at[k]])
            for j in range(k + 1, nodes):
                if met[order[k], order[j]] and met[order[i], order[j]]:
                    F[at[i], at[j]] -= L[at[i], at[k]] @ F[at[k], at[j]]
            F[at[i], at[k]] = 0
    x = np.random.default_rng(2).standard_normal(nodes * size)
    wanted = np.linalg.solve(F, np.linalg.solve(L, x))
    for single, within in ((False, 1e-12), (True, 1e-5)):
        ilu, y = ColouredIlu(rows, alone(device, nodes), single=single), rows.vector()
        for _ in range(2):  # a second update takes the matrix anew
            ilu.update()
        ilu.apply(device.from_host(x), y)
        assert np.abs(y - wanted).max() < within * np.abs(wanted).max()
    assert not np.allclose(A @ wanted, x)  # there is fill that it leaves out


def test_bits_do_not_depend_on_threads():
    results = []
    for threads in (1, 2):
        device = CpuDevice(threads)
        rows, _ = filled(device, 4)
        ilu, y = ColouredIlu(rows, alone(device, rows.nodes)), rows.vector()
        ilu.update()
        ilu.apply(device.from_host(np.sin(np.arange(4.0 * rows.nodes))), y)
        results.append(y)
    assert np.array_equal(*results)


def test_it_takes_fewer_iterations_than_point_blocks():
    device = CpuDevice(threads=1)
    flow = LinearFlow((8, 8, 8), 4, velocity=2.0)
    nodes = len(flow.points)
    rows = BlockRows(device, pattern_of(device, flow.elements, nodes), 4)
    matrices, vectors = flow.parts(np.arange(len(flow.elements)))
    assemble(rows, matrices)
    b, x = rows.vector(), rows.vector()
    assemble_vector(rows, vectors, b)
    b.reshape(-1, 4)[flow.boundary] = flow.exact[flow.boundary]
    rows.fixing(flow.unknowns(flow.boundary))()
    shared, counts = alone(device, nodes), []
    gmres = FlexibleGmres(device, 4, shared.owned, 40)
    for preconditioner in (PointBlocks(rows, shared), ColouredIlu(rows, shared)):
        preconditioner.update()
        result = gmres.solve(
            *(SharedProduct(rows, shared), preconditioner, b, x),
            tolerance=1e-10,
            most_iterations=300,
        )
        assert result.converged
        assert np.abs(x.reshape(-1, 4) - flow.exact).max() < 1e-7
        counts.append(result.iterations)
    assert counts[1] < 0.7 * counts[0]


def test_singular_blocks_are_told():
    device = CpuDevice(threads=1)
    rows, _ = filled(device, 4)
    rows.values[...] = 0
    with refused(SolutionError, problem="singular diagonal blocks of 36", remedy="an equation"):
        ColouredIlu(rows, alone(device, rows.nodes)).update()
