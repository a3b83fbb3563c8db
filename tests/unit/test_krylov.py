"""Claims about Krylov spaces: outer eigenvalues, the exponential, its error, spaces that are complete."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import pytest
from refusals import refused
from scipy.linalg import expm

from haloscope.device.cpu import CpuDevice
from haloscope.errors import SolutionError
from haloscope.exchange.ranks.world import World
from haloscope.numerics.time_integration import KrylovSpace, RitzValues


@pytest.fixture(scope="module")
def device() -> CpuDevice:
    return CpuDevice(threads=1)


def stable(size: int, seed: int = 1) -> np.ndarray:
    """A random matrix whose eigenvalues lie left of the imaginary axis."""
    matrix = np.random.default_rng(seed).standard_normal((size, size)) / math.sqrt(size)
    return matrix - 1.2 * np.eye(size)


def skew(size: int) -> np.ndarray:
    matrix = np.random.default_rng(2).standard_normal((size, size)) / math.sqrt(size)
    return matrix - matrix.T


def power(matrix: np.ndarray) -> np.ndarray:
    """Exponential by eigenvectors."""
    values, vectors = np.linalg.eig(matrix)
    return ((vectors * np.exp(values)) @ np.linalg.inv(vectors)).real


def random(size: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size)


def exponential(
    operator: Any, state: Any, dt: float, dimension: int, tolerance: float, device: CpuDevice
) -> tuple[int, float]:
    """One step in a space of its own."""
    space = KrylovSpace(device, len(state), dimension, state.dtype)
    return space.exponential(operator, state, dt, tolerance)


def ritz_values(device: CpuDevice, operator: Any, start: np.ndarray, steps: int) -> RitzValues:
    return KrylovSpace(device, len(start), steps, start.dtype).build(operator, start).ritz


def test_the_vectors_are_orthonormal_and_satisfy_the_relation_of_arnoldi(device):
    A = stable(500)
    space = KrylovSpace(device, 500, 40)
    relation = space.build(lambda v: A @ v, random(500))
    V = np.asarray(space._vectors)
    assert np.abs(V @ V.T - np.eye(41)).max() < 1e-14
    left = A @ V[:40].T - V[:40].T @ relation.matrix
    left[:, -1] -= relation.next * V[40]
    assert np.abs(left).max() < 1e-14
    assert relation.norm == pytest.approx(np.linalg.norm(random(500)), rel=1e-14)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_ritz_values_find_eigenvalues_that_lie_apart(device, seed):
    """Two far ones on the left, a pair far up and down, and one to the right of a random cloud."""
    size, seen = 300, random(300 * 300, seed).reshape(300, 300)
    block = stable(size, seed)
    block[-5:, :] = block[:, -5:] = 0.0
    block[-5, -5], block[-4, -4], block[-1, -1] = -9.0, -7.5, 2.5
    block[-3:-1, -3:-1] = [[-1.0, 8.0], [-8.0, -1.0]]
    change = np.linalg.qr(seen)[0]
    A = change @ block @ change.T
    exact = np.linalg.eigvals(A)
    ritz = ritz_values(device, lambda v: A @ v, random(size), 30)
    assert np.abs(ritz.values).max() == pytest.approx(np.abs(exact).max(), rel=1e-9)
    assert ritz.values.real.max() == pytest.approx(exact.real.max(), rel=1e-9)
    assert ritz.values.imag.max() == pytest.approx(exact.imag.max(), rel=1e-9)
    # A residual bounds the distance to an eigenvalue of a matrix that is nearly normal.
    near = np.abs(ritz.values[:, None] - exact[None, :]).min(axis=1)
    assert (near[:4] < 1e-6).all()
    assert (ritz.residuals[:4] < 1e-6).all()
    assert ritz.residuals.max() > 1e-3


@pytest.mark.parametrize("dt", [0.3, 3.0, 20.0])
@pytest.mark.parametrize("tolerance", [1e-6, 1e-11])
def test_the_exponential_is_as_near_as_its_estimate_says(device, dt, tolerance):
    A, u = stable(200), random(200)
    state = device.from_host(u)
    substeps, error = exponential(lambda v: A @ v, state, dt, 20, tolerance, device)
    wanted = power(dt * A) @ u
    miss = np.linalg.norm(state - wanted) / np.linalg.norm(u)
    assert error <= tolerance
    # Saad's estimate is the first term of a series; rounding comes on top.
    assert miss <= 3 * error + 1e-13
    assert substeps == 1 if dt == 0.3 else substeps > (dt == 20.0)


def test_a_skew_operator_conserves_the_norm(device):
    A = skew(400)
    state = device.from_host(random(400))
    start = np.linalg.norm(state)
    space = KrylovSpace(device, 400, 24)
    for _ in range(20):
        space.exponential(lambda v: A @ v, state, 1.0, 1e-14)
    assert np.linalg.norm(state) == pytest.approx(start, rel=1e-12)
    exact = expm(20.0 * A) @ random(400)
    assert np.abs(state - exact).max() < 1e-11


def test_a_space_that_is_complete_gives_the_exact_result(device):
    """A start within six eigenvectors: nothing new comes after six steps, and that is a success."""
    A = 5 * skew(100)
    values, vectors = np.linalg.eig(A)
    order = np.argsort(values.imag)
    u = sum((vectors[:, n] * values[n] ** 2).real for n in order[:3])
    space = KrylovSpace(device, 100, 30)
    relation = space.build(lambda v: A @ v, u)
    assert relation.dimension == 6
    assert relation.next == 0.0
    ritz = np.sort(np.linalg.eigvals(relation.matrix).imag)
    assert np.abs(ritz[:3] - values.imag[order[:3]]).max() < 1e-10
    state = device.from_host(u)
    assert space.exponential(lambda v: A @ v, state, 50.0, 1e-12) == (1, 0.0)
    exact = expm(50.0 * A) @ u
    assert np.linalg.norm(state - exact) < 1e-10 * np.linalg.norm(u)


def test_simple_starts(device):
    space = KrylovSpace(device, 5, 4)
    state = device.from_host(np.zeros(5))
    assert space.exponential(lambda v: v, state, 1.0) == (1, 0.0)
    assert not state.any()
    state = device.from_host(np.arange(5.0))
    assert space.exponential(lambda v: 0 * v, state, 1.0) == (1, 0.0)
    assert np.allclose(state, np.arange(5.0), rtol=1e-15)
    assert space.exponential(lambda v: -2 * v, state, 1.0) == (1, 0.0)
    assert np.allclose(state, np.exp(-2) * np.arange(5.0), rtol=1e-14)
    none = ritz_values(device, lambda v: v, np.zeros(5), 3)
    assert not len(none.values)


def test_single_precision(device):
    A = stable(300).astype(np.float32)
    state = device.from_host(random(300).astype(np.float32))
    _, error = exponential(lambda v: A @ v, state, 0.5, 20, 1e-5, device)
    wanted = power(0.5 * A.astype(np.float64)) @ random(300)
    assert error <= 1e-5
    assert np.linalg.norm(state - wanted) < 3e-6 * np.linalg.norm(wanted)
    assert ritz_values(device, lambda v: A @ v, state, 20).values.dtype == np.complex128


def test_what_cannot_be_done_is_told(device):
    state = device.from_host(random(50))
    with refused(SolutionError, problem="not finite", remedy="a medium or an element"):
        exponential(lambda v: v * np.inf, state, 1.0, 5, 1e-8, device)
    stiff = np.linspace(0, 1e12, 50)
    with refused(
        SolutionError,
        problem=r"more than 1e\+06 substeps",
        remedy="shorter step, a larger dimension",
    ):
        exponential(lambda v: -stiff * v, state, 1.0, 2, 1e-12, device)


def test_threads_and_ranks_give_the_same(device):
    """The bits do not depend on threads; ranks agree with each other to the bit."""
    size, cut = 3 * 256 * 512 + 77, 256 * 512 + 5
    diagonal, u = np.linspace(-1, 0, size), random(size)
    results = []
    for threads in (1, 2):
        state = device.from_host(u)
        space = KrylovSpace(CpuDevice(threads=threads), size, 8)
        space.exponential(lambda v: diagonal * v, state, 1.0, 1e-8)
        results.append(np.array(state))
    assert np.array_equal(*results)
    barrier, slots, parts = threading.Barrier(2), [None, None], [None, None]

    class Rank(World):
        size = 2

        def sum(self, values: np.ndarray) -> np.ndarray:
            slots[self.rank] = values
            barrier.wait(30)
            total = slots[0] + slots[1]
            barrier.wait(30)
            return total

    def one(rank: int) -> None:
        world: Any = Rank()
        world.rank = rank
        own = slice(0, cut) if rank == 0 else slice(cut, size)
        state = device.from_host(u[own])
        space = KrylovSpace(CpuDevice(threads=1), len(state), 8, world=world)
        space.exponential(lambda v: diagonal[own] * v, state, 1.0, 1e-8)
        parts[rank] = np.array(state)

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert np.abs(np.concatenate(parts) - results[0]).max() < 1e-14
