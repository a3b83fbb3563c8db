"""Solves a flow-like system on the ranks that it is started with, and prints what must not depend on them.

Every rank makes the whole mesh and takes its own elements. Checked here: products, copies of shared
nodes, overlap, complete blocks of ILU(0), reductions an iteration.
"""

from __future__ import annotations

import json

import numpy as np
from kuhn_boxes import LinearFlow, dense
from stored_elements import assemble, assemble_vector

from haloscope.device.cpu import CpuDevice
from haloscope.exchange.ranks.world import World, open_world
from haloscope.numerics.krylov.block_rows import BlockRows, pattern_of
from haloscope.numerics.krylov.flexible_gmres import FlexibleGmres
from haloscope.numerics.krylov.smoothers import BlockIlu, ColouredIlu, PointBlocks
from haloscope.numerics.shared_nodes import SharedNodes, SharedProduct, sums_between_shared

SIZE, RESTART = 4, 12


def own_part(flow: LinearFlow, world: World) -> tuple[np.ndarray, np.ndarray]:
    """Elements of this rank, and its nodes: those that others have too come last."""
    middle = flow.points[flow.elements].mean(axis=1)
    angle = np.arctan2(middle[:, 1] - 0.4, middle[:, 0] - 0.45)
    part = np.argsort(np.argsort(angle)) * world.size // len(angle)
    mine = np.flatnonzero(part == world.rank)
    holders = np.zeros(len(flow.points), int)
    for rank in range(world.size):
        holders[np.unique(flow.elements[part == rank])] += 1
    nodes = np.unique(flow.elements[mine])
    return mine, np.concatenate([nodes[holders[nodes] == 1], nodes[holders[nodes] > 1]])


def main() -> None:
    """Solve, check, and print iterations and residuals on the first rank."""
    world, device = open_world(), CpuDevice(threads=1)
    flow = LinearFlow((6, 6, 5), SIZE, velocity=2.0)
    mine, nodes = own_part(flow, world)
    local = np.full(len(flow.points), -1)
    local[nodes] = np.arange(len(nodes))
    shared = SharedNodes(world, device, nodes)
    rows = BlockRows(device, pattern_of(device, local[flow.elements[mine]], len(nodes)), SIZE)
    matrices, vectors = flow.parts(mine)
    assemble(rows, matrices)
    b, x, again = rows.vector(), rows.vector(), rows.vector()
    assemble_vector(rows, vectors, b)
    if world.size > 1:
        shared.sums(SIZE).swap(b)
    fixed = local[flow.boundary][local[flow.boundary] >= 0]
    rows.fixing(flow.unknowns(fixed), shared.owned)()
    b.reshape(-1, SIZE)[fixed] = flow.exact[nodes[fixed]]

    whole_matrices, _ = flow.parts(np.arange(len(flow.elements)))
    A = dense(flow.elements, whole_matrices, len(flow.points))
    rows_fixed = flow.unknowns(flow.boundary)
    A[rows_fixed] = 0.0
    A[rows_fixed, rows_fixed] = 1.0
    unknowns = flow.unknowns(nodes)
    vector = np.random.default_rng(5).standard_normal(len(A))
    product = SharedProduct(rows, shared)
    product(device.from_host(vector[unknowns]), x)
    assert np.abs(x - (A @ vector)[unknowns]).max() < 1e-13
    SharedProduct(rows, shared, overlap=False)(device.from_host(vector[unknowns]), again)
    assert np.array_equal(x, again)
    assert world.size == 1 or 0 < shared.first_shared < len(nodes)
    assert world.sum(np.array([shared.owned.sum()]))[0] == len(flow.points)

    ilu = BlockIlu(rows, shared, single=False)
    if ilu._sums is not None:
        blocks = device.from_host(rows.values)
        ilu._sums.swap(blocks)
        square = A.reshape(len(flow.points), SIZE, len(flow.points), SIZE)
        wanted = square[nodes[rows.pattern.rows], :, nodes[rows.pattern.columns]]
        assert np.abs(blocks.transpose(0, 2, 1) - wanted).max() < 1e-13

    reductions = 0
    sum_up = world.allgather

    def counted(values: np.ndarray) -> np.ndarray:
        nonlocal reductions
        reductions += 1
        return sum_up(values)

    world.allgather = counted  # type: ignore[method-assign]
    gmres = FlexibleGmres(device, SIZE, shared.owned, RESTART, world)
    report = {}
    coloured = ColouredIlu(rows, shared, single=False)
    if not shared.alone:
        # The blocks between shared nodes are the whole matrix's.
        blocks = device.from_host(rows.values)
        sums_between_shared(rows, shared).swap(blocks)
        square = A.reshape(len(flow.points), SIZE, len(flow.points), SIZE)
        wanted = square[nodes[rows.pattern.rows], :, nodes[rows.pattern.columns]]
        assert np.abs(blocks.transpose(0, 2, 1) - wanted).max() < 1e-13
    for name, preconditioner in (
        ("points", PointBlocks(rows, shared)),
        ("ilu", ilu),
        ("coloured", coloured),
    ):
        preconditioner.update()
        reductions = 0
        result = gmres.solve(product, preconditioner, b, x, tolerance=1e-9, most_iterations=400)
        assert result.converged
        cycles = -(-result.iterations // RESTART)
        # One for each vector, for each cycle's start and for b, and few second turns.
        fewest = result.iterations + cycles + 1
        assert world.size == 1 or fewest <= reductions <= 1.5 * fewest
        assert np.abs(x.reshape(-1, SIZE) - flow.exact[nodes]).max() < 1e-6
        again[:] = x
        shared.take_owners(again, SIZE)
        assert np.array_equal(again, x)
        report[name] = {"iterations": result.iterations, "history": result.history}
    if world.is_root:
        print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
