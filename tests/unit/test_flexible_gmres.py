"""Claims about flexible GMRES: its residuals, its orthogonalisation, and what it says where it cannot go on."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from kuhn_boxes import LinearFlow
from stored_elements import assemble, assemble_vector

from haloscope.device.cpu import CpuDevice
from haloscope.exchange.ranks.world import World
from haloscope.numerics.krylov.block_rows import BlockRows, pattern_of
from haloscope.numerics.krylov.flexible_gmres import FlexibleGmres, LinearSolution
from haloscope.numerics.krylov.node_vectors import _PROJECT, NodeVectors
from haloscope.numerics.krylov.smoothers import BlockIlu, PointBlocks
from haloscope.numerics.shared_nodes import SharedNodes, SharedProduct


@pytest.fixture(scope="module")
def device() -> CpuDevice:
    return CpuDevice(threads=1)


def random(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


class Dense:
    """A matrix as a product and, by its inverse, as a preconditioner."""

    def __init__(self, A: np.ndarray) -> None:
        self.A, self.calls = A, 0

    def __call__(self, x: Any, y: Any) -> None:
        self.calls += 1
        y[:] = self.A @ x

    def apply(self, x: Any, y: Any) -> None:
        self(x, y)


class NoPreconditioner:
    """The identity."""

    def apply(self, x: Any, y: Any) -> None:
        y[:] = x


def solved(
    device: Any,
    A: Any,
    b: np.ndarray,
    preconditioner: Any = None,
    restart: int = 30,
    **options: Any,
) -> tuple[LinearSolution, np.ndarray]:
    """The solution of a dense system with 4 unknowns a node."""
    gmres = FlexibleGmres(device, 4, np.ones(len(b) // 4, bool), restart)
    x = device.zeros(b.shape, np.float64)
    settings: dict[str, Any] = {"tolerance": 1e-10, "most_iterations": 200, **options}
    product = A if callable(A) else Dense(A)
    return gmres.solve(product, preconditioner or NoPreconditioner(), b, x, **settings), x


def system(size: int = 80, seed: int = 2) -> np.ndarray:
    """A matrix whose eigenvalues lie about 1."""
    return np.eye(size) + 0.7 * random(size, size, seed=seed) / math.sqrt(size)


def least_residuals(A: np.ndarray, b: np.ndarray, M: np.ndarray, count: int) -> list[float]:
    """The shortest residuals in the spaces of A M with b, by dense least squares."""
    V = np.zeros((len(b), count))
    v, residuals = b / np.linalg.norm(b), [1.0]
    for j in range(count):
        V[:, j] = v
        W = A @ M @ V[:, : j + 1]
        rest = b - W @ np.linalg.lstsq(W, b, rcond=None)[0]
        residuals.append(float(np.linalg.norm(rest) / np.linalg.norm(b)))
        w = A @ M @ v
        for _ in range(2):
            w = w - V[:, : j + 1] @ (V[:, : j + 1].T @ w)
        v = w / np.linalg.norm(w)
    return residuals


def test_residuals_are_the_least_of_each_space(device):
    A, M, b = system(), system(seed=5), random(80)
    result, x = solved(device, A, b, Dense(M), restart=80, tolerance=1e-8)
    assert result.converged
    wanted = least_residuals(A, b, M, result.iterations)
    assert np.allclose(result.history, wanted, rtol=1e-6, atol=1e-13)
    assert np.linalg.norm(b - A @ x) / np.linalg.norm(b) == pytest.approx(result.residual, rel=1e-6)
    assert result.residual <= 1e-8 < result.history[-2]
    assert result.history[-1] == result.residual
    assert len(result.history) == result.iterations + 1


@pytest.mark.parametrize("restart", [5, 12])
def test_restarts_go_on_from_the_true_residual(device, restart):
    A, b = system(), random(80)
    product = Dense(A)
    result, x = solved(device, product, b, restart=restart)
    whole, _ = solved(device, A, b, restart=80)
    assert result.converged
    assert result.iterations > whole.iterations
    first = least_residuals(A, b, np.eye(80), restart)
    assert np.allclose(result.history[: restart + 1], first, rtol=1e-9)
    assert np.linalg.norm(b - A @ x) <= 1e-10 * np.linalg.norm(b)
    # One more for each cycle's end.
    assert product.calls == result.iterations + -(-result.iterations // restart)


def test_a_rounded_product_serves_within_cycles(device):
    A, b = system(), random(80)
    exact, rounded = Dense(A), Dense(A.astype(np.float32).astype(float))
    wanted, _ = solved(device, A, b, tolerance=1e-4)
    result, x = solved(device, exact, b, tolerance=1e-4, rounded=rounded)
    assert result.converged
    assert result.iterations == wanted.iterations == rounded.calls
    assert exact.calls == 1
    assert np.linalg.norm(b - A @ x) / np.linalg.norm(b) == pytest.approx(result.residual, rel=1e-6)


def test_a_product_takes_over_from_one_too_rough(device):
    A, b = system(), random(80)
    exact, rough = Dense(A), Dense(A + 0.03 * random(80, 80, seed=8))
    result, x = solved(device, exact, b, restart=80, rounded=rough)
    assert result.converged
    assert np.linalg.norm(b - A @ x) <= 1e-10 * np.linalg.norm(b)
    # One cycle with each, and the true residual after each.
    assert 0 < rough.calls < result.iterations
    assert exact.calls == result.iterations - rough.calls + 2


def test_a_preconditioner_may_change(device):
    class Changing:
        def __init__(self) -> None:
            self.turn = 0

        def apply(self, x: Any, y: Any) -> None:
            self.turn += 1
            y[:] = (np.eye(80) + 0.2 * random(80, 80, seed=self.turn) / 9) @ x

    A, b = system(), random(80)
    result, x = solved(device, A, b, Changing())
    assert result.converged
    assert np.linalg.norm(b - A @ x) <= 1e-10 * np.linalg.norm(b)


@pytest.mark.parametrize("size", [4, 8])
def test_an_advection_diffusion_system_has_its_known_solution(device, size):
    flow = LinearFlow((6, 5, 4), size, velocity=2.0)
    nodes = len(flow.points)
    shared = SharedNodes(World(), device, np.arange(nodes))
    rows = BlockRows(device, pattern_of(device, flow.elements, nodes), size)
    matrices, vectors = flow.parts(np.arange(len(flow.elements)))
    assemble(rows, matrices)
    b, x = rows.vector(), rows.vector()
    assemble_vector(rows, vectors, b)
    b.reshape(-1, size)[flow.boundary] = flow.exact[flow.boundary]
    rows.fixing(flow.unknowns(flow.boundary))()
    gmres = FlexibleGmres(device, size, shared.owned, 40)
    counts = []
    for preconditioner in (PointBlocks(rows, shared), BlockIlu(rows, shared)):
        preconditioner.update()
        result = gmres.solve(
            *(SharedProduct(rows, shared), preconditioner, b, x),
            tolerance=1e-11,
            most_iterations=300,
        )
        assert result.converged
        assert np.abs(x.reshape(-1, size) - flow.exact).max() < 1e-8
        counts.append(result.iterations)
    assert counts[1] < 0.7 * counts[0]


def test_vectors_stay_orthonormal_where_they_nearly_agree(device):
    """Vectors that differ by parts in 10^9: a single Gram-Schmidt would lose half of all digits."""
    nodes, count, size = 700, 12, 4
    space = NodeVectors(device, count, size, np.ones(nodes, bool))
    vectors = random(nodes * size) + 1e-9 * random(count, nodes * size, seed=7)
    R = np.zeros((count, count))
    for j in range(count):
        space.vectors[j][:] = vectors[j]
        if j == 0:
            R[0, 0] = space.start()
        else:
            R[: j + 1, j] = space.extend(j)()
    V = np.array(space.vectors)
    assert np.abs(V @ V.T - np.eye(count)).max() < 2e-15
    assert np.abs(R.T @ V - vectors).max() < 1e-14 * np.abs(vectors).max() * count


def test_a_vector_that_the_others_span_leaves_zeros(device):
    space = NodeVectors(device, 3, 4, np.ones(50, bool))
    for vector, values in zip(space.vectors, random(3, 200), strict=True):
        vector[:] = values
    space.start()
    space.extend(1)()
    space.vectors[2][:] = 3.0 * space.vectors[0] - 2.0 * space.vectors[1]
    *along, rest = space.extend(2)()
    assert along == pytest.approx([3.0, -2.0], abs=1e-14)
    assert rest == 0.0
    assert (space.vectors[2] == 0).all()


@pytest.mark.parametrize("rest", [1e-9, 0.0])
def test_inner_products_are_exact_but_for_one_rounding(device, rest):
    """Products that cancel but for parts in 10^9 of themselves, or in 10^16."""
    nodes, size = 600, 4
    space = NodeVectors(device, 3, size, np.ones(nodes, bool))
    a, b = random(nodes * size) * 10.0 ** random(nodes * size, seed=3), random(nodes * size, seed=4)
    b[-1] = -math.fsum((a * b)[:-1]) * (1 - rest) / a[-1]
    exact = float(sum(Fraction(p) * Fraction(q) for p, q in zip(a, b, strict=True)))
    terms = np.abs(a * b).sum()
    assert abs(exact) < max(rest, 1e-15) * terms
    space.vectors[0][:], space.vectors[1][:] = a, b
    space._step(1, _PROJECT)
    space._reduce(1, 0)
    assert space._products[2] == float(sum(Fraction(q) ** 2 for q in b))
    assert abs(space._products[0] - exact) <= 1e-29 * terms
    if rest:
        assert space._products[0] == exact
        assert np.dot(a, b) != exact


def test_inner_products_count_each_node_once_in_any_order(device):
    """Nodes in another order, with copies that others own: the same bits."""
    nodes, size = 500, 4
    V = random(4, nodes, size)
    order = np.random.default_rng(3).permutation(nodes)
    copies = np.concatenate([order, order[:77]])
    owned = np.arange(len(copies)) < nodes
    results = []
    for which, counted in ((np.arange(nodes), np.ones(nodes, bool)), (copies, owned)):
        space = NodeVectors(device, 4, size, counted)
        for vector, values in zip(space.vectors, V[:, which], strict=True):
            vector[:] = values.reshape(-1)
        numbers = [space.start(), *itertools.chain(*(space.extend(j)() for j in (1, 2, 3)))]
        results.append((numbers, np.array(space.vectors).reshape(4, -1, size)))
    assert results[0][0] == results[1][0]
    assert np.array_equal(results[0][1][:, copies], results[1][1])


def test_bits_do_not_depend_on_threads():
    results = []
    for threads in (1, 2):
        space = NodeVectors(CpuDevice(threads), 4, 4, np.ones(1000, bool))
        for vector, values in zip(space.vectors, random(4, 4000), strict=True):
            vector[:] = values
        numbers = [space.start(), *itertools.chain(*(space.extend(j)() for j in (1, 2, 3)))]
        results.append((numbers, np.array(space.vectors)))
    assert results[0][0] == results[1][0]
    assert np.array_equal(results[0][1], results[1][1])


def test_a_space_that_is_complete_holds_the_solution(device):
    """Two different eigenvalues: two iterations, though the tolerance cannot be met."""
    A = np.diag(np.repeat([2.0, 5.0], 20))
    b = np.repeat([3.0, 1.0], 20)
    result, x = solved(device, A, b, tolerance=1e-30, most_iterations=50)
    assert result.iterations <= 4
    assert np.abs(x - b / A.diagonal()).max() < 1e-15
    exact, _ = solved(device, A, b, tolerance=1e-14)
    assert (exact.reason, exact.iterations) == ("converged", 2)


def test_the_exact_inverse_needs_one_iteration(device):
    A, b = system(), random(80)
    result, _ = solved(device, A, b, Dense(np.linalg.inv(A)))
    assert (result.reason, result.iterations) == ("converged", 1)


def test_stagnation_is_told(device):
    """A shift of all components: no polynomial below degree 40 helps."""
    b = np.zeros(40)
    b[0] = 1.0
    result, x = solved(device, np.roll(np.eye(40), 1, axis=0), b, restart=8)
    assert (result.reason, result.iterations) == ("stagnated", 8)
    assert result.residual == pytest.approx(1.0)
    assert not result.converged
    shift = Dense(np.roll(np.eye(40), 1, axis=0))
    both, _ = solved(device, shift, b, restart=8, rounded=Dense(shift.A))
    assert (both.reason, both.iterations) == ("stagnated", 16)
    whole, _ = solved(device, np.roll(np.eye(40), 1, axis=0), b, restart=40)
    assert (whole.reason, whole.iterations) == ("converged", 40)
    nothing, x = solved(device, np.zeros((40, 40)), b)
    assert (nothing.reason, nothing.iterations) == ("stagnated", 1)
    assert (x == 0).all()


def test_the_most_iterations_end_it_with_the_best_so_far(device):
    A, b = system(), random(80)
    wanted = least_residuals(A, b, np.eye(80), 7)
    result, x = solved(device, A, b, most_iterations=7)
    assert (result.reason, result.iterations) == ("most iterations", 7)
    assert np.linalg.norm(b - A @ x) / np.linalg.norm(b) == pytest.approx(wanted[7], rel=1e-9)
    none, x = solved(device, A, b, most_iterations=0)
    assert (none.reason, none.residual, none.history) == ("most iterations", 1.0, (1.0,))
    assert (x == 0).all()


def test_values_that_are_not_finite_are_told_and_the_last_good_solution_kept(device):
    A, b = system(), random(80)

    class Failing(Dense):
        def apply(self, x: Any, y: Any) -> None:
            self.calls += 1
            y[:] = x if self.calls != 6 else np.nan

    result, x = solved(device, A, b, Failing(A))
    five, wanted = solved(device, A, b, most_iterations=5)
    assert (result.reason, result.iterations) == ("not finite", 6)
    assert np.abs(x - wanted).max() < 1e-14
    assert result.residual == pytest.approx(five.residual, rel=1e-9)
    b[3] = np.inf
    wrong, x = solved(device, A, b)
    assert (wrong.reason, wrong.iterations) == ("not finite", 0)
    assert (x == 0).all()


def test_a_start_is_taken_where_there_is_one(device):
    A, b = system(), random(80)
    gmres = FlexibleGmres(device, 4, np.ones(20, bool), 30)
    x = device.from_host(np.linalg.solve(A, b) + 1e-4 * random(80, seed=9))
    options: dict[str, Any] = {"tolerance": 1e-6, "most_iterations": 50}
    near = gmres.solve(Dense(A), NoPreconditioner(), b, x, from_zero=False, **options)
    far = gmres.solve(Dense(A), NoPreconditioner(), b, device.zeros((80,), np.float64), **options)
    assert near.history[0] < 1e-3
    assert near.converged
    assert near.iterations < 0.6 * far.iterations
    again = gmres.solve(Dense(A), NoPreconditioner(), b, x, from_zero=False, **options)
    assert (again.reason, again.iterations) == ("converged", 0)


def test_nothing_asked_is_nothing_done(device):
    result, x = solved(device, system(), np.zeros(80))
    assert (result.reason, result.iterations, result.history) == ("converged", 0, (0.0,))
    assert (x == 0).all()
