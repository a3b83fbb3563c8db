"""Claims about the two-level preconditioner: its coarse matrix, what it solves exactly, what it is worth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kuhn_boxes import LinearFlow, dense
from refusals import refused
from stored_elements import assemble, assemble_vector

from haloscope.device.cpu import CpuDevice
from haloscope.errors import SolutionError
from haloscope.exchange.ranks.world import World
from haloscope.numerics.krylov.block_rows import BlockRows, pattern_of
from haloscope.numerics.krylov.coarse_space import CoarseSpace, coarse_space
from haloscope.numerics.krylov.flexible_gmres import FlexibleGmres, Preconditioner
from haloscope.numerics.krylov.smoothers import BlockIlu, PointBlocks
from haloscope.numerics.krylov.two_level import DenseBlocks, TwoLevel
from haloscope.numerics.shared_nodes import SharedNodes, SharedProduct

SIZE = 4
# As in two_level.cpp.
_SHIFT = 1e-5


class System:
    """A flow-like system on one rank, with given unknowns on the boundary of a box."""

    def __init__(self, cells: tuple[int, int, int], threads: int = 1, size: int = SIZE) -> None:
        self.flow = LinearFlow(cells, size, velocity=0.3)
        self.nodes = len(self.flow.points)
        self.device = CpuDevice(threads=threads)
        self.shared = SharedNodes(World(), self.device, np.arange(self.nodes))
        pattern = pattern_of(self.device, self.flow.elements, self.nodes)
        self.rows = BlockRows(self.device, pattern, size)
        self.matrices, vectors = self.flow.parts(np.arange(len(self.flow.elements)))
        assemble(self.rows, self.matrices)
        self.b = self.rows.vector()
        assemble_vector(self.rows, vectors, self.b)
        # One unknown of the boundary's nodes stays free.
        self.fixed = self.flow.unknowns(self.flow.boundary)
        self.fixed = self.fixed[self.fixed != self.fixed[-1]]
        self.rows.fixing(self.fixed)()
        self.b[self.fixed] = self.flow.exact.reshape(-1)[self.fixed]

    def two_level(self, **options: Any) -> TwoLevel:
        """Preconditioner of the system, taken up."""
        level = TwoLevel(self.rows, self.shared, self.flow.points, **options)
        level.update()
        return level

    def dense(self) -> np.ndarray:
        """The matrix with all its zeros."""
        A = dense(self.flow.elements, self.matrices, self.nodes)
        A[self.fixed] = 0.0
        A[self.fixed, self.fixed] = 1.0
        return A

    def functions(self, space: CoarseSpace) -> np.ndarray:
        """P with all its zeros: none at given unknowns."""
        scalar = np.zeros((self.nodes, space.groups))
        row = np.repeat(np.arange(self.nodes), np.diff(space.starts))
        scalar[row, space.columns] = space.weights
        P = np.kron(scalar, np.eye(self.rows.size))
        P[self.fixed] = 0.0
        return P

    def iterations(self, preconditioner: Preconditioner) -> int:
        """How many flexible GMRES needs."""
        gmres, x = FlexibleGmres(self.device, SIZE, self.shared.owned, 60), self.rows.vector()
        product = SharedProduct(self.rows, self.shared)
        result = gmres.solve(
            product, preconditioner, self.b, x, tolerance=1e-8, most_iterations=400
        )
        assert result.converged
        return result.iterations


@pytest.fixture(scope="module")
def system() -> System:
    return System((5, 4, 4))


def whole(rows: BlockRows) -> np.ndarray:
    """Block rows with all their zeros."""
    size, nodes = rows.size, rows.nodes
    A = np.zeros((nodes, size, nodes, size))
    A[rows.pattern.rows, :, rows.pattern.columns] = rows.values.transpose(0, 2, 1)
    return A.reshape(nodes * size, -1)


@pytest.mark.parametrize("size", [2, 4, 8])
def test_the_coarse_matrix_is_the_product_of_dense_ones(size):
    system = System((4, 4, 3), size=size)
    level = system.two_level(size=6, single=False, make_smoother=PointBlocks)
    assert level.space.groups > 10
    P = system.functions(level.space)
    wanted = P.T @ system.dense() @ P
    # A function that no free unknown has gets the identity's row.
    empty = ~P.any(axis=0)
    wanted[empty, empty] = 1.0
    assert empty.sum() > 0
    diagonal = np.arange(len(P.T))[~empty]
    wanted[diagonal, diagonal] *= 1 + _SHIFT
    assert np.abs(whole(level.coarse_rows) - wanted).max() < 1e-13 * np.abs(wanted).max()


def test_an_error_of_coarse_functions_is_removed_at_once(system):
    level = system.two_level(size=6, single=False, most=1000, make_smoother=PointBlocks)
    P = system.functions(level.space)
    error = P @ np.random.default_rng(3).standard_normal(P.shape[1])
    y = system.rows.vector()
    level.apply(system.device.from_host(system.dense() @ error), y)
    # But for the shift of the coarse diagonal.
    assert np.abs(y - error).max() < 1e-3 * np.abs(error).max()
    # Any other error is not.
    other = np.random.default_rng(4).standard_normal(len(error))
    level.apply(system.device.from_host(system.dense() @ other), y)
    assert np.abs(y - other).max() > 0.1 * np.abs(other).max()


def test_given_unknowns_are_left_to_the_smoother(system):
    x, y, wanted = (system.rows.vector() for _ in range(3))
    x[system.fixed] = np.random.default_rng(5).standard_normal(len(system.fixed))
    points = PointBlocks(system.rows, system.shared)
    points.update()
    points.apply(x, wanted)
    system.two_level(size=6, make_smoother=PointBlocks).apply(x, y)
    assert np.array_equal(y[system.fixed], wanted[system.fixed])


def test_functions_are_shares_of_neighbours_in_connected_groups_of_like_size():
    system = System((9, 8, 8))
    space = coarse_space(system.rows.pattern, system.shared, system.flow.points, 24)
    row = np.repeat(np.arange(system.nodes), np.diff(space.starts))
    assert np.abs(np.bincount(row, space.weights) - 1).max() < 1e-15
    assert space.weights.min() > 0
    assert space.positions.min() >= 0
    assert space.positions.max() <= 1
    assert system.nodes / 24 <= space.groups + 1 < 1.3 * system.nodes / 24
    # Linear in space up to what a group spans.
    middles = np.stack(
        [np.bincount(row, space.weights * axis[space.columns]) for axis in space.positions.T], 1
    )
    assert np.abs(middles - system.flow.points).max() < 0.35


def test_nodes_on_both_sides_of_a_gap_are_never_one_group():
    flow = LinearFlow((3, 3, 3), 2)
    points = np.concatenate([flow.points, flow.points + np.array([0, 0, 1e-3])])
    elements = np.concatenate([flow.elements, flow.elements + len(flow.points)])
    device = CpuDevice(threads=1)
    shared = SharedNodes(World(), device, np.arange(len(points)))
    space = coarse_space(pattern_of(device, elements, len(points)), shared, points, 8)
    row = np.repeat(np.arange(len(points)), np.diff(space.starts))
    side = np.zeros((space.groups, 2), bool)
    side[space.columns, row // len(flow.points)] = True
    assert (side.sum(axis=1) == 1).all()


def test_levels_of_levels_are_nearly_as_good_as_one_coarse_inverse():
    system = System((9, 8, 8))
    points = PointBlocks(system.rows, system.shared)
    ilu = BlockIlu(system.rows, system.shared)
    for alone in (points, ilu):
        alone.update()
    counts = [
        system.iterations(system.two_level(size=10, most=most, make_smoother=make))
        for make in (PointBlocks, BlockIlu)
        for most in (1000, 2)
    ]
    assert max(counts[:2]) < 0.7 * system.iterations(points)
    assert max(counts[2:]) < 0.7 * system.iterations(ilu)
    assert counts[1] <= 1.4 * counts[0]
    assert abs(counts[3] - counts[2]) <= 1


def test_a_level_that_hardly_has_fewer_nodes_is_the_last():
    """Boxes that do not touch: no group holds nodes of two of them."""
    flow = LinearFlow((1, 1, 1), SIZE)
    count, node_count = 40, len(flow.points)
    elements = np.concatenate([flow.elements + box * node_count for box in range(count)])
    points = np.concatenate([flow.points + 2.0 * box for box in range(count)])
    device = CpuDevice(threads=1)
    shared = SharedNodes(World(), device, np.arange(len(points)))
    rows = BlockRows(device, pattern_of(device, elements, len(points)), SIZE)
    matrices = flow.parts(np.arange(len(flow.elements)))[0]
    matrices[:, range(4), range(4)] += np.eye(SIZE)
    assemble(rows, np.concatenate([matrices] * count))
    level, x, y = TwoLevel(rows, shared, points, size=8, most=5), rows.vector(), rows.vector()
    assert level.space.groups == count
    assert isinstance(level._coarse, TwoLevel)
    level.update()
    x[:] = 1.0
    level.apply(x, y)
    rows.multiply(y, x)
    assert np.abs(x - 1.0).max() < 0.5


def test_threads_do_not_change_a_bit():
    results = []
    for threads in (1, 2):
        system = System((6, 5, 5), threads)
        y = system.rows.vector()
        level = system.two_level(size=5, most=4)
        level.apply(system.b, y)
        results.append((y, np.array(level.coarse_rows.values)))
    for one, two in zip(*results, strict=True):
        assert np.array_equal(one, two)


def test_a_dense_inverse_is_one(system):
    wanted = np.linalg.inv(system.dense())
    inverse, x, y = DenseBlocks(system.rows), system.rows.vector(), system.rows.vector()
    x[:] = np.random.default_rng(6).standard_normal(len(x))
    inverse.update()
    inverse.apply(x, y)
    assert np.abs(y - wanted @ x).max() < 1e-11 * np.abs(wanted @ x).max()


def test_a_singular_coarse_matrix_is_refused():
    system = System((2, 2, 2))
    inverse = DenseBlocks(system.rows)
    system.rows.values[...] = 0.0
    with refused(
        SolutionError, problem="coarse matrix .* is singular", remedy="without an equation"
    ):
        inverse.update()
