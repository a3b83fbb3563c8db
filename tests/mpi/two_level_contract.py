"""Solves a flow-like system with the two-level preconditioner on the ranks that it is started with.

Checked here: the coarse space and its matrix, which every rank has alike, against dense products, and
that the wide ILU holds the whole matrix of a rank's nodes and their neighbours.
"""

from __future__ import annotations

import json

import numpy as np
from flexible_gmres_contract import SIZE, own_part
from kuhn_boxes import LinearFlow, dense
from stored_elements import assemble, assemble_vector

from haloscope.device.cpu import CpuDevice
from haloscope.errors import SolutionError
from haloscope.exchange.plan import all_rows
from haloscope.exchange.ranks.world import open_world
from haloscope.numerics.krylov.block_rows import BlockRows, pattern_of
from haloscope.numerics.krylov.flexible_gmres import FlexibleGmres
from haloscope.numerics.krylov.smoothers import BlockIlu, OverlappingIlu, PointBlocks
from haloscope.numerics.krylov.two_level import TwoLevel
from haloscope.numerics.shared_nodes import SharedNodes, SharedProduct

_GROUP = 12
# As in two_level.cpp.
_SHIFT = 1e-5


def main() -> None:
    """Solve, check, and print iterations and residuals on the first rank."""
    world, device = open_world(), CpuDevice(threads=1)
    flow = LinearFlow((7, 6, 6), SIZE, velocity=0.3)
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
    # An end of the box is left free, so that coarse functions differ from zero on a boundary.
    fixed_nodes = flow.boundary[flow.points[flow.boundary, 0] > 0]
    fixed = local[fixed_nodes][local[fixed_nodes] >= 0]
    rows.fixing(flow.unknowns(fixed), shared.owned)()
    b.reshape(-1, SIZE)[fixed] = flow.exact[nodes[fixed]]

    whole_matrices, _ = flow.parts(np.arange(len(flow.elements)))
    A = dense(flow.elements, whole_matrices, len(flow.points))
    rows_fixed = flow.unknowns(fixed_nodes)
    A[rows_fixed] = 0.0
    A[rows_fixed, rows_fixed] = 1.0

    two = TwoLevel(rows, shared, flow.points[nodes], size=_GROUP, single=False, most=1000)
    two.update()
    space, size = two.space, SIZE
    P = np.zeros((len(flow.points), space.groups))
    P[nodes[np.repeat(np.arange(len(nodes)), np.diff(space.starts))], space.columns] = space.weights
    P = all_rows(world, P[None]).max(axis=0)
    P = np.kron(P, np.eye(size))
    P[rows_fixed] = 0.0
    wanted = P.T @ A @ P
    diagonal = np.arange(len(wanted))
    empty = ~P.any(axis=0)
    wanted[diagonal, diagonal] = np.where(empty, 1.0, wanted[diagonal, diagonal] * (1 + _SHIFT))
    coarse = two.coarse_rows
    coarse_matrix = np.zeros((space.groups, size, space.groups, size))
    coarse_matrix[coarse.pattern.rows, :, coarse.pattern.columns] = coarse.values.transpose(0, 2, 1)
    assert np.abs(coarse_matrix.reshape(wanted.shape) - wanted).max() < 1e-13 * np.abs(wanted).max()
    # Every rank has the same bits.
    copies = all_rows(world, np.array(coarse.values)[None])
    assert (copies == copies[0]).all()

    ilu = OverlappingIlu(rows, shared, single=False)
    ilu.update()
    if ilu._wide is not None:
        wide = ilu._wide
        values = wide.rows.values
        square = A.reshape(len(flow.points), size, len(flow.points), size)
        numbers = wide.numbers
        assert np.array_equal(numbers[: len(nodes)], nodes)
        neighbours = np.unique(flow.elements[np.isin(flow.elements, nodes).any(axis=1)])
        assert np.array_equal(np.sort(numbers), neighbours)
        pattern = wide.rows.pattern
        first, second = numbers[pattern.rows], numbers[pattern.columns]
        assert np.abs(values.transpose(0, 2, 1) - square[first, :, second]).max() < 1e-13
        outside = np.ones((len(numbers),) * 2, bool)
        outside[pattern.rows, pattern.columns] = False
        assert not square[numbers][:, :, numbers].any(axis=(1, 3))[outside].any()

    gmres = FlexibleGmres(device, SIZE, shared.owned, 60, world)
    product = SharedProduct(rows, shared)
    report = {}
    plain = BlockIlu(rows, shared)
    points = TwoLevel(
        *(rows, shared, flow.points[nodes]), size=_GROUP, most=8, make_smoother=PointBlocks
    )
    usual = TwoLevel(rows, shared, flow.points[nodes], size=_GROUP, most=8)
    for name, preconditioner in (("plain", plain), ("points", points), ("usual", usual)):
        preconditioner.update()
        result = gmres.solve(product, preconditioner, b, x, tolerance=1e-8, most_iterations=200)
        assert result.converged
        again[:] = x
        shared.take_owners(again, SIZE)
        assert np.array_equal(again, x)
        report[name] = {"iterations": result.iterations, "history": result.history}
    # What one rank cannot factorise ends all of them.
    if world.rank == world.size - 1:
        rows.values[...] = np.nan
    try:
        ilu.update()
    except SolutionError as error:
        assert "singular" in str(error)
    else:
        raise AssertionError("factors of what is no number were found")
    if world.is_root:
        print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
