"""Restarted flexible GMRES on vectors of nodes that ranks may share."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from haloscope.device.interface import Array, Device, Graph
from haloscope.exchange.ranks.world import World
from haloscope.numerics.krylov.node_vectors import Floats, NodeVectors
from haloscope.regions import Region

_PRECONDITIONING = Region("preconditioner")
Product = Callable[[Array, Array], None]
"""Puts A x into y; both have the same bits in all copies of a node."""

CONVERGED = "converged"
MOST_ITERATIONS = "most iterations"
STAGNATED = "stagnated"
NOT_FINITE = "not finite"

# A whole cycle that leaves more than this of the residual gains nothing worth going on for.
_STAGNATION = 0.999
# A residual that is expected to get this near to the wanted one is waited for.
_NEARLY = 1.3


class Preconditioner(Protocol):
    """An approximate inverse; it may change from one application to the next.

    Where it has an attribute `capturable` that is true it does the same launches on the same arrays
    in each application, and nothing on the host: a GPU replays them. So may a product.
    """

    def update(self) -> None:
        """Take the matrix as it is now."""

    def apply(self, x: Array, y: Array) -> None:
        """Put the inverse's product with x into y, complete in all copies of a node."""


@dataclass(frozen=True)
class LinearSolution:
    """How the solution of a linear system went."""

    # Why it ended: `converged`, `most iterations`, `stagnated` (a whole cycle gained nothing, or
    # the space of the preconditioned matrix holds no better solution) or `not finite`.
    reason: str
    iterations: int  # Products with the matrix inside cycles
    residual: float  # Length of b - A x over that of b at the end, computed from x
    # Relative residuals: of the start, then after each iteration. Those within a cycle are the
    # least squares problem's own; those that ended a cycle are replaced by the true ones.
    history: tuple[float, ...]

    @property
    def converged(self) -> bool:
        """Whether the tolerance was met."""
        return self.reason == CONVERGED


class FlexibleGmres:
    """FGMRES(m) of Saad (SIAM J. Sci. Comput. 14, 1993, 461), with room that is used again.

    `owned`: whether this rank owns each of its nodes, (nodes,): each node counts once in the world.
    """

    def __init__(
        self,
        device: Device,
        size: int,
        owned: np.ndarray,
        restart: int = 30,
        world: World | None = None,
        transport: str = "auto",
    ) -> None:
        self.restart = restart
        self._space = NodeVectors(device, restart + 1, size, owned, world, transport)
        self._directions = NodeVectors(device, restart, size, owned, world, transport)
        self._device = device
        # Iterations of a cycle that were done before, and those that a GPU has recorded.
        self._recorded_with: tuple[Product, Preconditioner] | None = None
        self._met: set[int] = set()
        self._graphs: dict[int, Graph] = {}
        # A GPU computes one iteration more while the host looks at the last: it waits only where
        # that seems to be the last one of all.
        self._ahead = 0 if device.kind == "cpu" else 1

    def length(self, vector: Array) -> float:
        """Length of a vector with complete copies of nodes: rounded once, whoever has which node."""
        self._space.vectors[0][:] = vector
        return self._space.start()

    def solve(
        self,
        product: Product,
        preconditioner: Preconditioner,
        b: Array,
        x: Array,
        *,
        tolerance: float,
        most_iterations: int,
        from_zero: bool = True,
        rounded: Product | None = None,
        length: float | None = None,
    ) -> LinearSolution:
        """Solve A x = b."""
        scale = self.length(b) if length is None else length
        history: list[float] = []
        if from_zero or scale == 0.0:
            x[:] = 0.0
        if scale == 0.0:
            return LinearSolution(CONVERGED, 0, 0.0, (0.0,))
        if not math.isfinite(scale):
            return LinearSolution(NOT_FINITE, 0, math.nan, (math.nan,))
        rest, iterations, reason = scale, 0, ""
        if not from_zero:
            rest = self._residual(product, b, x)
        history.append(rest / scale)
        inside = rounded or product
        while not reason:
            if rest <= tolerance * scale:
                reason = CONVERGED
            elif not math.isfinite(rest):
                reason = NOT_FINITE
            elif iterations >= most_iterations:
                reason = MOST_ITERATIONS
            else:
                steps = min(self.restart, most_iterations - iterations)
                cycle = self._cycle(inside, preconditioner, rest, tolerance * scale, steps)
                iterations += len(cycle.lengths)
                history += [length / scale for length in cycle.lengths]
                self._directions.add_to(x, np.array(cycle.factors))
                before, rest = rest, self._residual(product, b, x)
                history[-1] = rest / scale
                if not cycle.finite:
                    reason = NOT_FINITE
                elif (
                    rest > tolerance * scale
                    and inside is not product
                    and (cycle.lengths[-1] <= tolerance * scale or rest > _STAGNATION * before)
                ):
                    inside = product
                elif rest > max(_STAGNATION * before, tolerance * scale) and (
                    cycle.complete or len(cycle.lengths) == self.restart
                ):
                    reason = STAGNATED
        return LinearSolution(reason, iterations, rest / scale, tuple(history))

    def _residual(self, product: Product, b: Array, x: Array) -> float:
        """Make the first vector b - A x over its length, and return that."""
        product(x, self._space.vectors[0])
        self._space.subtract_from(b, 0)
        return self._space.start()

    def _cycle(
        self,
        product: Product,
        preconditioner: Preconditioner,
        length: float,
        wanted: float,
        steps: int,
    ) -> _Cycle:
        """Extend the space until the residual is short enough, and find the best solution in it.

        What was computed ahead of the iteration that ends it is left aside.
        """
        problem = _LeastSquares(length)
        lengths: list[float] = []
        finite, complete = True, False
        under_way: deque[Callable[[], Floats]] = deque()
        j, ended = 0, False
        while not ended:
            ahead = 0 if _nearly(lengths, wanted) else self._ahead
            if j < steps and len(under_way) <= ahead:
                self._iterate(product, preconditioner, j)
                under_way.append(self._space.fetch(j + 1))
                j += 1
                continue
            if not under_way:
                break
            column = under_way.popleft()()
            finite = bool(np.isfinite(column).all())
            lengths.append(problem.add(column.tolist()) if finite else math.nan)
            # The space holds all that the matrix makes of it: it cannot grow.
            complete = finite and float(column[-1]) == 0.0
            ended = complete or not lengths[-1] > wanted
        return _Cycle(lengths, problem.solve(), finite, complete)

    def _iterate(self, product: Product, preconditioner: Preconditioner, j: int) -> None:
        """Add vector j + 1; a GPU records that when it is done for the second time, and replays it."""
        V, Z = self._space.vectors, self._directions.vectors

        def work() -> None:
            with _PRECONDITIONING:
                preconditioner.apply(V[j], Z[j])
            product(Z[j], V[j + 1])
            self._space.launch(j + 1)

        if self._recorded_with != (product, preconditioner):
            self._recorded_with, self._met, self._graphs = (product, preconditioner), set(), {}
        if j in self._graphs:
            self._graphs[j].replay()
        elif j in self._met and self._may_record(product, preconditioner):
            self._graphs[j] = self._device.graph(work)
            self._graphs[j].replay()
        else:
            # The first time arrays are bound, which a graph does not allow.
            self._met.add(j)
            work()

    def _may_record(self, product: Product, preconditioner: Preconditioner) -> bool:
        """Whether all parts say of themselves that they work on a GPU alone, on the same arrays."""
        parts = (product, preconditioner, self._space)
        return self._ahead > 0 and all(getattr(part, "capturable", False) for part in parts)


def _nearly(lengths: list[float], wanted: float) -> bool:
    """Whether the next iteration will be the last one if it gains about what this one has."""
    return len(lengths) > 1 and lengths[-1] ** 2 <= _NEARLY * wanted * lengths[-2]


@dataclass(frozen=True)
class _Cycle:
    lengths: list[float]
    factors: list[float]
    finite: bool
    complete: bool


class _LeastSquares:
    """The small problem min |length e_1 - H y|, by Givens rotations as H's columns come.

    In plain Python: all ranks get the same bits whatever their processors and libraries.
    """

    def __init__(self, length: float) -> None:
        self._right = [length]
        self._rotations: list[tuple[float, float]] = []
        self._columns: list[list[float]] = []

    def add(self, column: list[float]) -> float:
        """Take column j of H, (j + 2,); returns the length of the residual."""
        for k, (c, s) in enumerate(self._rotations):
            column[k], column[k + 1] = (
                c * column[k] + s * column[k + 1],
                c * column[k + 1] - s * column[k],
            )
        below, above = column.pop(), column[-1]
        radius = math.sqrt(above * above + below * below)
        # A column of zeros leaves the residual as it is.
        c, s = (above / radius, below / radius) if radius else (0.0, 1.0)
        column[-1] = radius
        self._rotations.append((c, s))
        self._columns.append(column)
        last = self._right.pop()
        self._right += [c * last, -s * last]
        return abs(self._right[-1])

    def solve(self) -> list[float]:
        """The factors y of the columns; a last column that adds nothing gets 0."""
        count = len(self._columns)
        y = [0.0] * count
        for k in reversed(range(count)):
            if self._columns[k][k] == 0.0:
                continue
            rest = self._right[k]
            for later in range(k + 1, count):
                rest -= self._columns[later][k] * y[later]
            y[k] = rest / self._columns[k][k]
        return y
