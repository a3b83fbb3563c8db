"""The polynomial map of a curved element: places, its inverse, and fields at points within.

Points come in blocks: those of a block lie in one element, so that the sums over its nodes are
products of matrices. Arrays of points are indexed [block, point, ...].
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.mesh.hexes.hexes import Floats, Integers
from haloscope.numerics.elements.basis import derivative_matrix, gll_nodes

_MOST_STEPS = 80
_SMALLEST_STEP = 1e-13
_FIRST_DAMPING, _MOST_DAMPING, _DAMPING_CHANGE = 1e-2, 1e9, 3.0
_LITTLE, _MUCH = 0.25, 0.75
_LARGEST_BLOCK = 32
_NUMBERS_AT_ONCE = 1 << 21
_TINY = float(np.finfo(np.float64).tiny)
_ROUNDING = 8 * float(np.finfo(np.float64).eps)


@cache
def _node_scales(order: int) -> Floats:
    """One over the product of a node's distances from the others."""
    x = gll_nodes(order).astype(np.longdouble)
    distance = x[:, None] - x[None, :]
    np.fill_diagonal(distance, 1)
    return np.asarray(1 / distance.prod(axis=1), np.float64)


def gll_basis(order: int, points: Floats) -> Floats:
    """Lagrange polynomials of the GLL nodes at points of any shape: (..., N + 1)."""
    gaps = points[..., None] - gll_nodes(order)
    before, after = np.ones_like(gaps), np.ones_like(gaps)
    for n in range(order):
        before[..., n + 1] = before[..., n] * gaps[..., n]
        after[..., order - n - 1] = after[..., order - n] * gaps[..., order - n]
    return np.asarray(before * after * _node_scales(order))


def blocks(rows: Integers, order: int) -> Iterator[tuple[Integers, Integers, NDArray[np.bool_]]]:
    """Points put together by elements, some blocks at a time.

    `rows`: (points,): the element that each is in, by its row.
    """
    # Returns: the element of each block (blocks,), the numbers of its points and whether each is
    # given there for the first time, (blocks, size): a block that is not full repeats its last.
    if not len(rows):
        return
    sorting = np.argsort(rows, kind="stable")
    elements, begins, counts = np.unique(rows[sorting], return_index=True, return_counts=True)
    size = int(np.clip(round(counts.mean()), 1, _LARGEST_BLOCK))
    blocks_of_element = -(-counts // size)
    group = np.repeat(np.arange(len(elements)), blocks_of_element)
    within = np.arange(len(group)) - np.repeat(
        np.cumsum(blocks_of_element) - blocks_of_element, blocks_of_element
    )
    places = (begins[group] + within * size)[:, None] + np.arange(size)
    ends = (begins + counts)[group][:, None]
    inside = places < ends
    points = sorting[np.minimum(places, ends - 1)]
    nodes = order + 1
    step = max(1, _NUMBERS_AT_ONCE // (3 * nodes**2 * max(2 * size, nodes)))
    for begin in range(0, len(group), step):
        span = slice(begin, begin + step)
        yield elements[group[span]], points[span], inside[span]


def values_at(values: NDArray[Any], reference: Floats) -> Floats:
    """Values at reference points.

    `values`: (blocks, components, n, n, n) at the nodes of each block's element; `reference`:
    (blocks, size, 3).
    """
    count, components, nodes = values.shape[:3]
    basis = gll_basis(nodes - 1, reference)
    sums = values.reshape(count, -1, nodes) @ np.swapaxes(basis[:, :, 0], 1, 2)
    sums = sums.reshape(count, components, nodes, nodes, -1)
    sums = np.einsum("bckjm,bmj->bckm", sums, basis[:, :, 1])
    return np.asarray(np.einsum("bckm,bmk->bmc", sums, basis[:, :, 2]))


def _map(places: Floats, reference: Floats) -> tuple[Floats, Floats]:
    """Places (blocks, size, 3) and their derivatives [block, point, direction, xyz]."""
    count, nodes = places.shape[:2]
    basis = gll_basis(nodes - 1, reference)
    slope = basis @ derivative_matrix(nodes - 1)
    both = np.concatenate([basis[:, :, 2], slope[:, :, 2]], axis=1)
    planes = (both @ places.reshape(count, nodes, -1)).reshape(count, 2, -1, nodes, 3 * nodes)
    plane, plane_k = planes[:, 0], planes[:, 1]
    # Small products of matrices, with the value's weights and the derivative's one upon the other.
    pairs = np.stack([basis, slope], axis=3)
    shape = (*reference.shape[:2], -1, nodes, 3)
    lines = (pairs[:, :, 1] @ plane).reshape(shape)
    line_k = (basis[:, :, 1, None] @ plane_k).reshape(shape)
    values = pairs[:, :, 0] @ lines[:, :, 0]
    along = basis[:, :, 0, None]
    tangent_j, tangent_k = (along @ lines[:, :, 1])[:, :, 0], (along @ line_k[:, :, 0])[:, :, 0]
    return values[:, :, 0], np.stack([values[:, :, 1], tangent_j, tangent_k], axis=2)


def nearest_nodes(places: Floats, targets: Floats) -> Floats:
    """Reference coordinates (blocks, size, 3) of the nodes nearest to points."""
    nodes = places.shape[1]
    middle = places.mean(axis=(1, 2, 3))[:, None]
    flat = places.reshape(len(places), -1, 3) - middle
    squares = (flat**2).sum(axis=2)[:, None] - 2 * (targets - middle) @ np.swapaxes(flat, 1, 2)
    k, j, i = np.unravel_index(squares.argmin(axis=2), (nodes,) * 3)
    return np.asarray(gll_nodes(nodes - 1)[np.stack([i, j, k], axis=2)])


def closest(
    places: Floats, targets: Floats, start: Floats, least_gain: float
) -> tuple[Floats, Floats]:
    """Reference coordinates at which an element comes closest to points.

    Least squares by damped Gauss-Newton steps (Levenberg and Marquardt) that end at the faces of
    the reference cube and go on along them. Within the element they are Newton's.
    """
    # `places`: (blocks, n, n, n, 3): each block's nodes.
    # `targets`, `start`: (blocks, size, 3): points, and reference coordinates to start from.
    # `least_gain`: a point is left once a step would lower its distance by less than this part of
    # it.
    # Returns: (blocks, size, 3) and (blocks, size); a distance may be a local least.
    reference, distances = start.copy(), np.empty(start.shape[:2])
    live = np.arange(len(places))
    at = start
    place, tangents = _map(places, at)
    rest = targets - place
    distance = np.linalg.norm(rest, axis=2)
    damping = np.zeros(distance.shape)
    done = np.zeros(distance.shape, bool)
    rounding = _ROUNDING * np.abs(places).max(axis=(1, 2, 3, 4))[:, None]
    for _ in range(_MOST_STEPS):
        step = np.clip(at + _damped_step(tangents, rest, at, damping), -1, 1) - at
        expected = np.linalg.norm(rest - np.einsum("bmd,bmdx->bmx", step, tangents), axis=2)
        done |= (distance <= rounding) | (np.abs(step).max(axis=2) < _SMALLEST_STEP)
        gain = distance - expected
        done |= (gain >= 0) & (gain * (1 + damping) < least_gain * distance)
        going = ~done.all(axis=1)
        if not going.all():
            ended = live[~going]
            reference[ended], distances[ended] = at[~going], distance[~going]
            if not going.any():
                return reference, distances
            live, places, targets = live[going], places[going], targets[going]
            at, step, expected = at[going], step[going], expected[going]
            tangents, rest, distance = tangents[going], rest[going], distance[going]
            damping, done, rounding = damping[going], done[going], rounding[going]
        trial = at + step
        place, trial_tangents = _map(places, trial)
        trial_rest = targets - place
        trial_distance = np.linalg.norm(trial_rest, axis=2)
        better = (trial_distance < distance) & ~done
        # How much of what a step promised it keeps says how far the map is to be trusted. At a
        # point far from a curved face that is little: the damping settles there.
        promised = np.maximum(distance**2 - expected**2, 0.0)
        kept = distance**2 - trial_distance**2
        at = np.where(better[..., None], trial, at)
        rest = np.where(better[..., None], trial_rest, rest)
        tangents = np.where(better[..., None, None], trial_tangents, tangents)
        distance = np.where(better, trial_distance, distance)
        eased = np.where(damping > _FIRST_DAMPING, damping / _DAMPING_CHANGE, 0.0)
        raised = np.maximum(_DAMPING_CHANGE * damping, _FIRST_DAMPING)
        damping = np.where(
            kept > _MUCH * promised, eased, np.where(kept < _LITTLE * promised, raised, damping)
        )
        done |= damping > _MOST_DAMPING
    reference[live], distances[live] = at, distance
    return reference, distances


def _damped_step(tangents: Floats, rest: Floats, at: Floats, damping: Floats) -> Floats:
    """A step towards the rest of the way; none out through a face of the reference cube."""
    lengths = np.maximum(np.linalg.norm(tangents, axis=3), _TINY)
    unit = tangents / lengths[..., None]
    pull = np.einsum("bmdx,bmx->bmd", unit, rest)
    held = ((at >= 1) & (pull > 0)) | ((at <= -1) & (pull < 0))
    unit = np.where(held[..., None], 0.0, unit)
    matrix = unit @ np.swapaxes(unit, 2, 3)
    # A held direction is cut off from the rest, and its step at the face. The last term keeps
    # flat places soluble.
    matrix[..., range(3), range(3)] += damping[..., None] + held + 1e-14
    return np.asarray(np.linalg.solve(matrix, pull[..., None])[..., 0] / lengths)
