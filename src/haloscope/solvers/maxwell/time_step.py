"""The longest stable time step: guessed from the shape of the elements, found from eigenvalues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.device.interface import Array, Device
from haloscope.errors import InputError
from haloscope.exchange.ranks.world import World
from haloscope.numerics.elements.element_maps import tangents
from haloscope.numerics.time_integration import (
    LSERK4,
    KrylovSpace,
    LowStorage,
    Operator,
    step_limits,
)

Floats = NDArray[np.float64]

MARGIN = 0.95
"""Largest share of the bound that a step may take."""

# Bounds on cubes of width h over h / c, upwind flux; from order 5 on the faces' eigenvalue
# -2 N (N + 1) c / h alone decides.
_LOW_ORDERS = {1: 0.809, 2: 0.322, 3: 0.179, 4: 0.114}
# Arnoldi steps at once, for that many vectors of fields are stored; and in all, least and most.
_DIMENSION, _LEAST_EVALUATIONS, _MOST_EVALUATIONS = 8, 80, 160
# Rounds end when the bound changes by no more; then it may still fall by about as much.
_CHANGE = 0.005
# Ritz vectors that allow steps up to this times the shortest have a share in the next start.
_WIDER = 1.15
_NODES_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class StepBound:
    """How long a stable time step may be."""

    # What the shape of the elements suggests; safe unless they are sheared strongly.
    geometric: float
    limit: float  # What the eigenvalues found so far allow
    converged: bool  # Whether the last of them were no stricter than those before
    evaluations: int  # Of the right-hand side, to find that out

    @property
    def largest(self) -> float:
        """The bound; steps above :data:`MARGIN` of it are refused."""
        return self.limit if self.converged else min(self.limit, self.geometric)


def cube_factor(order: int, scheme: LowStorage = LSERK4) -> float:
    """Bound on cubes of width h, over h / c."""
    return _LOW_ORDERS.get(order, scheme.real_limit / (2 * order * (order + 1)))


def geometric_bounds(coordinates: Floats, speed: ArrayLike, scheme: LowStorage = LSERK4) -> Floats:
    """Bound of each element by the upwind flux at its corners.

    `coordinates`: (elements, N + 1, N + 1, N + 1, 3) at the nodes, indexed [element, k, j, i, xyz];
    `speed`: of light in each element, (elements,) or one for all.
    """
    # A node where faces of normals n_d meet loses tangential components at the rate c N (N + 1) / 2
    # times M = sum_d |grad r_d| (I - n_d n_d^T), n_d along grad r_d (r_d from -1 to 1), if the
    # neighbours have the opposite sign. On a cube the largest eigenvalue of M is 4 / h; the bound
    # of cubes is scaled by it. It is taken over all nodes, so that bent faces count.
    elements, size = coordinates.shape[:2]
    speeds = np.broadcast_to(np.asarray(speed, np.float64), (elements,))
    rate = np.empty(elements)
    step = max(1, _NODES_AT_ONCE // size**3)
    for first in range(0, elements, step):
        span = slice(first, min(first + step, elements))
        gradients = np.linalg.inv(np.stack(tangents(coordinates[span]), axis=-2))
        length = np.linalg.norm(gradients, axis=-2)
        along = np.einsum("...xd,...yd->...xy", gradients / length[..., None, :], gradients)
        matrix = length.sum(axis=-1)[..., None, None] * np.eye(3) - along
        largest = np.linalg.eigvalsh(matrix)[..., -1]
        rate[span] = largest.reshape(len(largest), -1).max(axis=1)
    return cube_factor(size - 1, scheme) * 4 / (speeds * rate)


def find_bound(
    operator: Operator,
    start: Array,
    geometric: float,
    device: Device,
    world: World | None = None,
    scheme: LowStorage = LSERK4,
    dimension: int = _DIMENSION,
) -> StepBound:
    """Longest step that the operator's own eigenvalues allow."""
    # An Arnoldi process of few steps, begun again with what of its start belongs to those Ritz
    # values that leave the region of stability first (explicit restarts: Saad, Numerical methods
    # for large eigenvalue problems, 2nd edition, 2011, section 6.4), until the bound stays where it
    # is. It comes out up to some percent above the true one, which :data:`MARGIN` covers. With a
    # start that is the same for any number of ranks, all but its last bits are the same too.
    ranks = world or World()
    space = KrylovSpace(device, len(start), dimension, start.dtype, ranks)
    next_start = device.zeros((len(start),), start.dtype)
    next_start[:] = start
    limit, evaluations, converged = np.inf, 0, False
    while evaluations < _MOST_EVALUATIONS:
        basis = space.build(operator, next_start)
        evaluations += basis.dimension
        ritz = basis.ritz
        limits = step_limits(scheme, ritz.values)
        shortest = float(limits.min(initial=np.inf))
        # All ranks decide by the root's.
        now = min(limit, float(ranks.broadcast(np.array([shortest]))[0]))
        stayed = now >= (1 - _CHANGE) * limit
        limit = now
        converged = basis.next == 0.0 or (stayed and evaluations >= _LEAST_EVALUATIONS)
        if converged:
            break
        # A function of the projected matrix times e_1: real, and the last bits change it little.
        share = np.clip((_WIDER * shortest - limits) / ((_WIDER - 1) * shortest), 0.0, 1.0)
        first = np.linalg.lstsq(ritz.vectors, np.eye(len(share), 1)[:, 0], rcond=None)[0]
        factors = np.ascontiguousarray((ritz.vectors @ (share * first)).real)
        space.combine(ranks.broadcast(factors), next_start)
    least = -ranks.largest(-geometric)
    return StepBound(least, limit, converged, evaluations)


def random_start(elements: NDArray[np.integer], values: int) -> Floats:
    """Numbers from -1 to 1 that depend on an element's number alone, not on the rank that has it.

    Made by the function splitmix64 (Steele, Lea and Flood, OOPSLA 2014) of each value's place.
    `elements`: numbers in the whole mesh, (own,).
    """
    # The annotations of NumPy take these for floating-point numbers.
    place: Any = np.asarray(elements, np.uint64)[:, None] * np.uint64(values)
    mixed: Any = place + np.arange(1, values + 1, dtype=np.uint64)
    mixed = mixed * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return np.asarray((mixed >> np.uint64(11)) * 2.0**-52 - 1.0)


def require_stable(dt: float, bound: float, unit: str = "") -> None:
    """Refuse a time step above :data:`MARGIN` of the bound."""
    # As it is told, so that what is told is allowed.
    most = float(f"{MARGIN * bound:.4g}")
    if not 0 < dt <= most:
        unit_text = f" {unit}" if unit else ""
        raise InputError(
            "out of range",
            location=f"time step {dt:g}{unit_text}",
            allowed=f"above 0 and at most {most:g}{unit_text} ({MARGIN:g} of the bound "
            f"{bound:.4g}{unit_text}, above which this mesh, order and media are unstable)",
            remedy="remove maxwell.time_step for an automatic step",
        )
