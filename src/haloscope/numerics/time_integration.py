"""Time integration of linear systems: low-storage Runge-Kutta steps and their limits, exponentials in Krylov spaces."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.polynomial import polynomial
from numpy.typing import ArrayLike, NDArray

from haloscope.device.interface import Array, Device
from haloscope.device.targets import KernelFile
from haloscope.errors import SolutionError
from haloscope.exchange.ranks.world import World


@dataclass(frozen=True)
class LowStorage:
    """An explicit Runge-Kutta scheme that keeps one increment beside the state.

    Each stage computes ``k = a k + dt f(u, t + c dt)`` and then ``u = u + b k``.
    """

    # Coefficients by stage.
    a: tuple[float, ...]
    b: tuple[float, ...]
    c: tuple[float, ...]
    # The scheme is stable for eigenvalues times the step from -real_limit on the real axis to 0,
    # and up to +-imaginary_limit on the imaginary one.
    real_limit: float
    imaginary_limit: float

    @property
    def stages(self) -> int:
        """Number of stages."""
        return len(self.a)


LSERK4 = LowStorage(
    a=(
        0.0,
        -567301805773 / 1357537059087,
        -2404267990393 / 2016746695238,
        -3550918686646 / 2091501179385,
        -1275806237668 / 842570457699,
    ),
    b=(
        1432997174477 / 9575080441755,
        5161836677717 / 13612068292357,
        1720146321549 / 2090206949498,
        3134564353537 / 4481467310338,
        2277821191437 / 14882151754819,
    ),
    c=(
        0.0,
        1432997174477 / 9575080441755,
        2526269341429 / 6820363962896,
        2006345519317 / 3224310063776,
        2802321613138 / 2924317926251,
    ),
    real_limit=4.657,
    imaginary_limit=3.341,
)
"""Fourth order in five stages: Carpenter and Kennedy, NASA TM 109112 (1994)."""


Floats = NDArray[np.float64]

# A ray is followed to this distance from 0 in steps of this length, and its end is then halved in.
_FARTHEST, _STEP, _HALVINGS = 12.0, 0.004, 40
_ROUNDING = 1e-9
_AT_ONCE = 256


@cache
def stability_polynomial(scheme: LowStorage) -> tuple[float, ...]:
    """Coefficients r_0, r_1, ... of R(z): a step takes u' = lambda u from u to R(lambda dt) u."""
    increment: NDArray[Any] = np.zeros(1)
    state: NDArray[Any] = np.ones(1)
    for a, b in zip(scheme.a, scheme.b, strict=True):
        increment = polynomial.polyadd(a * increment, polynomial.polymulx(state))
        state = polynomial.polyadd(state, b * increment)
    return tuple(np.trim_zeros(state, "b").tolist())


def is_stable(scheme: LowStorage, z: ArrayLike) -> NDArray[np.bool_]:
    """Whether steps do not grow more than the solution does: |R(z)| <= max(1, |exp(z)|)."""
    values = np.asarray(z, np.complex128)
    growth = np.abs(polynomial.polyval(values, stability_polynomial(scheme)))
    return np.asarray(growth <= np.maximum(1.0, np.exp(values.real)) * (1 + _ROUNDING))


def step_limits(scheme: LowStorage, eigenvalues: ArrayLike) -> Floats:
    """Longest time step that each eigenvalue allows.

    `eigenvalues`: of the right-hand side, (n,), complex; Returns: the step with which the ray from
    0 through the eigenvalue first leaves the region of stability; infinite for the eigenvalue 0.
    """
    values = np.atleast_1d(np.asarray(eigenvalues, np.complex128))
    parts = np.array_split(values, -(-len(values) // _AT_ONCE) or 1)
    return np.concatenate([_limits(scheme, part) for part in parts])


def _limits(scheme: LowStorage, values: NDArray[Any]) -> Floats:
    size = np.abs(values)
    rays = np.exp(1j * np.angle(values))[:, None]
    places = np.arange(1, round(_FARTHEST / _STEP) + 1) * _STEP
    left = ~is_stable(scheme, rays * places)
    high = np.where(left.any(axis=1), places[left.argmax(axis=1)], _FARTHEST)
    low = high - _STEP
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        inside = is_stable(scheme, rays[:, 0] * middle)
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return np.asarray(np.divide(low, size, out=np.full(len(values), np.inf), where=size > 0))


Operator = Callable[[Array], Array]
"""Gives A v for a device array v; the result is read before the next call, v is not kept."""

_SOURCE = Path(__file__).with_name("krylov.cpp")
# As in krylov.cpp; blocks are many enough for a GPU and the same on every machine.
_LANES, _BLOCKS = 256, 512
# A new direction shorter than this many roundings of the vector it is left from is nothing new.
_ROUNDINGS = 1000.0
# How a step within one space shrinks: at most so much at once, and not below a share of the whole.
_SAFETY, _LEAST_FACTOR, _LEAST_STEP = 0.9, 0.1, 1e-6
_MOST_TRIES = 100


def kernel_file(dtype: Any) -> KernelFile:
    """The kernels of a space of vectors of float64 or float32."""
    return KernelFile(_SOURCE, {"real": "float" if np.dtype(dtype) == np.float32 else "double"})


@dataclass(frozen=True)
class RitzValues:
    """Eigenvalues of a projection, which approach the outer ones of the operator."""

    values: NDArray[np.complex128]  # Complex, largest magnitude first
    residuals: Floats  # Length of ``A x - value x`` for each one's vector x of length 1
    # Coefficients of x in the vectors of the space, (m, m), a column each.
    vectors: NDArray[np.complex128]


@dataclass(frozen=True)
class Projection:
    """Result of the Arnoldi process: ``A V_m = V_m H + next e_m^T v_(m+1)``."""

    matrix: Floats  # H, upper Hessenberg, (m, m)
    # Length of what A adds to the space; 0 where the space holds all that A makes of the start
    # ("happy breakdown"): eigenvalues and exponential are then exact.
    next: float
    norm: float  # Of the start

    @property
    def dimension(self) -> int:
        """Number m of vectors; 0 if the start was zero."""
        return len(self.matrix)

    @property
    def ritz(self) -> RitzValues:
        """Eigenvalues of H."""
        values, vectors = np.linalg.eig(self.matrix)
        order = np.argsort(-np.abs(values), kind="stable")
        residuals = self.next * np.abs(vectors[-1:]).reshape(-1)
        return RitzValues(
            values[order].astype(np.complex128),
            residuals[order],
            vectors[:, order].astype(np.complex128),
        )


class KrylovSpace:
    """Room for the vectors of an Arnoldi process, used again and again."""

    def __init__(
        self,
        device: Device,
        size: int,
        dimension: int,
        dtype: Any = np.float64,
        world: World | None = None,
    ) -> None:
        if dimension < 1:
            raise ValueError(f"the Krylov space has dimension {dimension}; allowed: at least 1")
        self.device, self.size, self.dimension = device, size, dimension
        # float64 or float32; sums are made in double precision.
        self.dtype, self._world = np.dtype(dtype), world or World()
        self._rounding = _ROUNDINGS * float(np.finfo(self.dtype).eps)
        self._vectors = device.zeros((dimension + 1, size), self.dtype)
        self._parts = device.zeros(((dimension + 1) * _BLOCKS,), np.float64)
        source, constants = kernel_file(self.dtype)
        self._products = device.kernel(source, "products", constants)
        self._combination = device.kernel(source, "combination", constants)

    def products(self, vectors: Array, vector: Array) -> Floats:
        """Inner products of vectors (count, size) with another one, over all ranks."""
        count = len(vectors)
        self._products.bind(
            extent=(_BLOCKS * _LANES,),
            block=(_LANES,),
            vectors=vectors,
            other=vector,
            n=self.size,
            count=count,
            parts=self._parts,
            blocks=_BLOCKS,
        )()
        parts = self.device.to_host(self._parts[: count * _BLOCKS])
        # The sum of floating-point numbers may differ in the last bit from rank to rank.
        own = np.array([sum(row) for row in parts.reshape(count, _BLOCKS).tolist()])
        result = self._world.broadcast(self._world.sum(own))
        if not np.isfinite(result).all():
            raise SolutionError(
                "the operator produced values that are not finite",
                remedy="look for a medium or an element whose numbers are out of range",
            )
        return result

    def combine(self, factors: Floats, result: Array, keep: float = 0.0) -> None:
        """``result = keep * result + sum of factors[v] * vector v``."""
        self._combination.bind(
            extent=(_BLOCKS * _LANES,),
            block=(_LANES,),
            vectors=self._vectors,
            factors=self.device.from_host(np.asarray(factors, np.float64)),
            n=self.size,
            count=len(factors),
            keep=keep,
            result=result,
            blocks=_BLOCKS,
        )()

    def build(self, operator: Operator, start: Array) -> Projection:
        """Orthonormal vectors that span start, A start, A^2 start, ... by the Arnoldi process.

        Classical Gram-Schmidt twice, which keeps orthogonality to rounding (Giraud, Langou and
        Rozloznik, Comput. Math. Appl. 50, 2005).
        """
        wanted = self.dimension
        V = self._vectors
        V[0] = start
        norm = self._length(0)
        H = np.zeros((wanted + 1, wanted))
        if norm == 0.0:
            return Projection(H[:0, :0], 0.0, 0.0)
        V[0] *= 1 / norm
        for j in range(wanted):
            V[j + 1] = operator(V[j])
            before = 0.0
            for turn in range(2):
                *along, square = self.products(V[: j + 2], V[j + 1])
                before = before if turn else math.sqrt(square)
                self.combine(-np.array(along), V[j + 1], keep=1.0)
                H[: j + 1, j] += along
            # Of what is left after both turns.
            left = self._length(j + 1)
            if left <= self._rounding * before:
                return Projection(H[: j + 1, : j + 1], 0.0, norm)
            H[j + 1, j] = left
            V[j + 1] *= 1 / left
        return Projection(H[:wanted], float(H[wanted, wanted - 1]), norm)

    def exponential(
        self, operator: Operator, state: Array, dt: float, tolerance: float = 1e-10
    ) -> tuple[int, float]:
        """Replace a state u by exp(dt A) u."""
        # ``u <- norm(u) V_m exp(dt H_m) e_1``, in as many substeps as the tolerance needs. The
        # error of a substep t is taken for ``h t norm(u) |e_m^T phi_1(t H_m) e_1|``, h = H_(m+1, m)
        # (Saad, SIAM J. Numer. Anal. 29, 1992, 209, section 5). Where the space is complete it is
        # 0.
        done, error, substeps, first = 0.0, 0.0, 0, 0.0
        while done < dt:
            projection = self.build(operator, state)
            substeps += 1
            first = first or projection.norm
            if projection.dimension == 0:
                break
            allowed = tolerance * first / dt
            # The root's, since the last bits of the others may differ.
            step, estimate, *coefficients = self._world.broadcast(
                self._substep(projection, dt - done, dt, allowed)
            ).tolist()
            self.combine(np.array(coefficients), state)
            # The last substep ends the step exactly.
            done = dt if step == dt - done else done + step
            error += estimate
        return substeps, error / first if first else 0.0

    def _substep(self, projection: Projection, left: float, dt: float, allowed: float) -> Floats:
        """Longest step within a space whose error is allowed, that error, the result's factors."""
        from scipy.linalg import expm

        m, step = projection.dimension, left
        for _ in range(_MOST_TRIES):
            # The last column of exp([t H, t e_1; 0, 0]) is t phi_1(t H) e_1 (Saad, theorem 1).
            extended = np.zeros((m + 1, m + 1))
            extended[:m, :m] = step * projection.matrix
            extended[0, m] = step
            power = expm(extended)
            estimate = float(projection.next * projection.norm * abs(power[m - 1, m]))
            if estimate <= allowed * step:
                return np.array([step, estimate, *(projection.norm * power[:m, 0])])
            # The estimate grows with the power m of the step, what is allowed with the step.
            ratio = (allowed * step / estimate) ** (1 / max(1, m - 1))
            step *= max(_LEAST_FACTOR, _SAFETY * ratio)
            if not step > _LEAST_STEP * dt:
                break
        raise SolutionError(
            f"the exponential of the operator needs more than {1 / _LEAST_STEP:g} substeps in a "
            f"time step of {dt:g} with Krylov spaces of dimension {self.dimension}",
            remedy="use a shorter step, a larger dimension or a larger tolerance",
        )

    def _length(self, vector: int) -> float:
        basis_vector = self._vectors[vector : vector + 1]
        return math.sqrt(self.products(basis_vector, basis_vector[0])[0])
