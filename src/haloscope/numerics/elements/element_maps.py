"""Curved elements: polynomials at their nodes, the map and its inverse, Jacobians, normals, thickness, bad elements."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.errors import InputError, counted
from haloscope.exchange.ranks.world import World
from haloscope.io.vtk_arrays import LAGRANGE_HEXAHEDRON
from haloscope.io.vtkhdf import Block, Blocks
from haloscope.mesh.hexes.hexes import (
    FACES,
    Floats,
    HexMesh,
    Integers,
    elements_text,
    face_nodes,
    vtk_order,
)
from haloscope.mesh.hexes.mesh_parts import MeshPart
from haloscope.mesh.hexes.shared_meshes import centres_of, first_rows

# Matrices act on values at nodes: ``matrix @ values``. What is returned for an order is computed
# once, in extended precision where the machine has it, and may not be written to.

# np.longdouble; NumPy's own annotations lose track of it in arithmetic.
Extended = NDArray[Any]

_NEWTON_STEPS = 100
_HIGHEST = 256


def _frozen(values: Extended) -> Floats:
    result = values.astype(np.float64)
    result.setflags(write=False)
    return result


def _require_order(order: int) -> None:
    if not 1 <= order <= _HIGHEST:
        raise ValueError(f"order {order} is out of range; allowed: 1 to {_HIGHEST}")


def _legendre(order: int, x: Extended) -> tuple[Extended, ...]:
    """P_order and P_(order - 1) at points, by the recurrence of Bonnet."""
    last, this = np.zeros_like(x), np.ones_like(x)
    for n in range(order):
        last, this = this, ((2 * n + 1) * x * this - n * last) / (n + 1)
    return this, last


def legendre(order: int, points: ArrayLike) -> Floats:
    """Legendre polynomial P_order at points.

    `order`: degree, from 0; `points`: any shape; Returns: the values, of the shape of `points`;
    P_order(1) = 1.
    """
    if order < 0:
        raise ValueError(f"order {order} of the polynomial is negative")
    return _legendre(order, np.asarray(points, np.longdouble))[0].astype(np.float64)


@cache
def _extended_nodes(order: int) -> Extended:
    """Gauss-Lobatto-Legendre nodes in extended precision: -1, 1 and the roots of P'_order."""
    _require_order(order)
    x = -np.cos(np.pi * np.arange(order + 1, dtype=np.longdouble) / order)
    tolerance = 4 * np.finfo(np.longdouble).eps
    for _ in range(_NEWTON_STEPS):
        this, last = _legendre(order, x)
        # (1 - x^2) P'_N = N (P_(N-1) - x P_N); its derivative is -N (N + 1) P_N.
        step = (last - x * this) / ((order + 1) * this)
        x = x + step
        if np.abs(step).max() < tolerance:
            break
    # The nodes mirror each other exactly, so that a face turned round meets its partner.
    x = (x - x[::-1]) / 2
    x[0], x[-1] = -1, 1
    return x


@cache
def gll_nodes(order: int) -> Floats:
    """Gauss-Lobatto-Legendre nodes, ascending from -1 to 1.

    Returns: the zeros of (1 - x^2) P'_N(x); x[j] = -x[N - j] exactly.
    """
    return _frozen(_extended_nodes(order))


@cache
def gll_weights(order: int) -> Floats:
    """Weights of the quadrature on GLL nodes, exact to degree 2 N - 1.

    Returns: 2 / (N (N + 1) P_N(x)^2); their sum is 2.
    """
    value = _legendre(order, _extended_nodes(order))[0]
    return _frozen(2 / (order * (order + 1) * value**2))


@cache
def derivative_matrix(order: int) -> Floats:
    """Derivatives at the GLL nodes of the polynomial through values at them.

    Returns: P_N(x_i) / (P_N(x_j) (x_i - x_j)); the diagonal is the negative sum of the rest of its
    row, so that the derivative of a constant vanishes.
    """
    x = _extended_nodes(order)
    value = _legendre(order, x)[0]
    distance = x[:, None] - x[None, :]
    np.fill_diagonal(distance, 1)
    matrix = value[:, None] / (value[None, :] * distance)
    np.fill_diagonal(matrix, 0)
    np.fill_diagonal(matrix, -matrix.sum(axis=1))
    return _frozen(matrix)


def equispaced_nodes(order: int) -> Floats:
    """Nodes of equal distance, ascending from -1 to 1, as mesh files and VTK place them."""
    _require_order(order)
    return np.asarray((2.0 * np.arange(order + 1) - order) / order)


def interpolation_matrix(nodes: ArrayLike, points: ArrayLike) -> Floats:
    """Values at points of the polynomial through values at nodes.

    The second barycentric form (Berrut and Trefethen, SIAM Review 46, 2004, eq. 4.2).
    `nodes`: distinct points where values are given, shape (n,).
    """
    # `points`: where they are wanted, shape (m,); a point that is a node takes that node's value as
    # it is.
    x = np.asarray(nodes, np.longdouble)
    wanted = np.asarray(points, np.longdouble)
    if x.ndim != 1 or wanted.ndim != 1 or len(np.unique(x)) != len(x):
        raise ValueError("interpolation needs distinct nodes and points, each a list of numbers")
    distance = x[:, None] - x[None, :]
    np.fill_diagonal(distance, 1)
    # Twice the distance over the length keeps the products near 1 at high orders.
    span = x.max() - x.min() if len(x) > 1 else np.longdouble(1)
    weights = 1 / (distance * (4 / span)).prod(axis=1)
    gap = wanted[:, None] - x[None, :]
    hit = gap == 0
    gap[hit] = 1
    terms = weights[None, :] / gap
    at_node = hit.any(axis=1)
    terms[at_node] = hit[at_node]
    return np.asarray(terms / terms.sum(axis=1, keepdims=True), np.float64)


@cache
def equispaced_to_gll(geometry_order: int, order: int) -> Floats:
    """Interpolation from equispaced nodes of one order to the GLL nodes of another."""
    return _frozen_matrix(equispaced_nodes(geometry_order), gll_nodes(order))


@cache
def gll_to_equispaced(order: int, output_order: int) -> Floats:
    """Interpolation from the GLL nodes of one order to equispaced nodes of another."""
    return _frozen_matrix(gll_nodes(order), equispaced_nodes(output_order))


def _frozen_matrix(nodes: Floats, points: Floats) -> Floats:
    matrix = interpolation_matrix(nodes, points)
    matrix.setflags(write=False)
    return matrix


class ElementCells:
    """Lagrange cells of elements with fields at GLL nodes.

    VTK takes the nodes of such a cell to stand at equal distances: values and coordinates are
    interpolated there, exactly, since they are polynomials of the same order.
    """

    def __init__(self, order: int) -> None:
        self.points = (order + 1) ** 3  # Of an element
        self._interpolation = gll_to_equispaced(order, order)
        # What is already at the file's nodes stays as it is to the last bit.
        self._is_identity = np.array_equal(self._interpolation, np.eye(order + 1))
        # Nodes, i fastest, in the order in which VTK lists them.
        self._listing = np.asarray(vtk_order(order), np.int64) @ (order + 1) ** np.arange(3)

    def layout(self, elements: int) -> Blocks:
        """Points and cells of a file."""
        corners = np.arange(self.points)[None]
        return Blocks(LAGRANGE_HEXAHEDRON, [Block(elements, self.points, corners)])

    def at_points(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values (elements, points) from (elements, n, n, n), or (..., 3) from (elements, 3, n, n, n)."""
        columns = values.reshape(len(values), -1, *values.shape[-3:])
        if not self._is_identity:
            for axis in (2, 3, 4):
                moved = np.tensordot(columns, self._interpolation, axes=(axis, 1))
                columns = np.moveaxis(moved, -1, axis)
        listed = columns.reshape(*columns.shape[:2], -1)[:, :, self._listing]
        rows = np.moveaxis(listed, 1, 2).astype(values.dtype, copy=False)
        return rows[..., 0] if values.ndim == 4 else rows


@cache
def element_cells(order: int) -> ElementCells:
    """Lagrange cells of elements of an order."""
    return ElementCells(order)


# Points come in blocks: those of a block lie in one element, so that the sums over its nodes are
# products of matrices. Arrays of points are indexed [block, point, ...].

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


# Arrays of nodes are indexed [element, k, j, i]; see `haloscope.mesh.hexes.hexes` for the conventions.

SMALLEST_JACOBIAN = 0.01
"""Least Jacobian determinant at a node over the element's mean that is accepted."""
_NODES_AT_ONCE = 1 << 20


def along_all_axes(matrix: Floats, values: Floats) -> Floats:
    """Apply a matrix (m, n) along k, j and i of values (elements, n, n, n, components)."""
    for axis in (1, 2, 3):
        values = np.moveaxis(np.tensordot(matrix, values, axes=(1, axis)), 0, axis)
    return np.ascontiguousarray(values)


def nodes(mesh: HexMesh, order: int, elements: Integers | None = None) -> Floats:
    """Coordinates of GLL nodes.

    By the mesh's own mapping where it has one, so that generated curved surfaces are met exactly;
    otherwise by isoparametric interpolation of its geometry nodes.
    """
    chosen = np.arange(mesh.count) if elements is None else elements
    if mesh.mapping is None:
        return along_all_axes(equispaced_to_gll(mesh.order, order), mesh.coordinates[chosen])
    line = gll_nodes(order)
    k, j, i = np.meshgrid(line, line, line, indexing="ij")
    places = mesh.mapping(chosen, np.stack([i, j, k], axis=-1).reshape(-1, 3))
    size = order + 1
    return places.reshape(len(chosen), size, size, size, 3)


def tangents(places: Floats) -> tuple[Floats, Floats, Floats]:
    """Derivatives of coordinates along i, j and k by the nodal derivative, shaped as `places`."""
    matrix = derivative_matrix(places.shape[1] - 1)
    along_i = np.einsum("im,ekjmx->ekjix", matrix, places, optimize=True)
    along_j = np.einsum("jm,ekmix->ekjix", matrix, places, optimize=True)
    along_k = np.einsum("km,emjix->ekjix", matrix, places, optimize=True)
    return along_i, along_j, along_k


def jacobians(places: Floats) -> Floats:
    """Jacobian determinant a_i . (a_j x a_k) at nodes (elements, k, j, i)."""
    a_i, a_j, a_k = tangents(places)
    return np.asarray(np.einsum("...x,...x->...", a_i, np.cross(a_j, a_k)))


def volume_weights(order: int) -> Floats:
    """Quadrature weights of an element's nodes, indexed [k, j, i]; their sum is 8."""
    w = gll_weights(order)
    return w[:, None, None] * w[:, None] * w


def face_normals(places: Floats) -> Floats:
    """Outward normals times area per unit of reference area, at the nodes of each face."""
    order = places.shape[1] - 1
    turned = [part.reshape(len(places), (order + 1) ** 3, 3) for part in tangents(places)]
    result = np.empty((len(places), FACES, (order + 1) ** 2, 3))
    for face, chosen in enumerate(face_nodes(order)):
        axis, side = divmod(face, 2)
        first, second = (turned[(axis + step) % 3][:, chosen] for step in (1, 2))
        result[:, face] = (2 * side - 1) * np.cross(first, second)
    return result


def thickness(places: Floats) -> Floats:
    """Least thickness of elements along their directions i, j, k: an h for time steps.

    Twice the reciprocal of the gradient of each reference coordinate, the least over the nodes; on
    a brick its edge lengths. A skewed element is thinner than its edges are long.
    """
    a = tangents(places)
    jacobian = np.abs(np.einsum("...x,...x->...", a[0], np.cross(a[1], a[2])))
    result = np.empty((len(places), 3))
    for axis in range(3):
        area = np.linalg.norm(np.cross(a[(axis + 1) % 3], a[(axis + 2) % 3]), axis=-1)
        # A direction without area at a node is as thin as can be.
        local = 2 * jacobian / np.maximum(area, np.finfo(float).tiny)
        result[:, axis] = local.min(axis=(1, 2, 3))
    return result


def in_pieces(mesh: HexMesh, order: int) -> Iterator[tuple[Integers, Floats]]:
    """Elements some at a time with their nodes, so that large meshes need little memory."""
    step = max(1, _NODES_AT_ONCE // (order + 1) ** 3)
    for begin in range(0, mesh.count, step):
        elements = np.arange(begin, min(begin + step, mesh.count))
        yield elements, nodes(mesh, order, elements)


def jacobian_ratios(mesh: HexMesh, order: int) -> NDArray[np.float64]:
    """Least Jacobian determinant of each element over the magnitude of its mean.

    The mean is the quadrature's; a ratio is -inf where that is not above 0 or no number.
    """
    weights = volume_weights(order)
    result = np.empty(mesh.count)
    for elements, places in in_pieces(mesh, order):
        values = jacobians(places)
        mean = (values * weights).sum(axis=(1, 2, 3)) / 8
        least = values.min(axis=(1, 2, 3))
        result[elements] = np.where(mean > 0, least / np.where(mean > 0, mean, 1.0), -np.inf)
    return result


def check_jacobians(
    world: World, part: MeshPart, order: int, smallest: float = SMALLEST_JACOBIAN
) -> None:
    """Refuse a mesh with elements that are inside out or nearly flat; all ranks call this."""
    ratios = jacobian_ratios(part.mesh, order)
    bad = ratios < smallest
    if not world.any(bool(bad.any())):
        return
    inverted = int(world.sum(np.array([(ratios[bad] <= 0).sum()]))[0])
    worst = -world.largest(float(-ratios[bad].min(initial=np.inf)))
    first, count = first_rows(world, part.elements[bad])
    centres = centres_of(world, part.mesh, part.elements, first)
    problem = (
        counted(inverted, "of them is negative", "of them are negative")
        if inverted
        else "none of them is negative"
    )
    least = "an element is inside out" if np.isneginf(worst) else f"the least is {worst:.3g}"
    raise InputError(
        f"the Jacobian determinant is below {smallest:g} of its mean at order {order} in {count} "
        f"of {counted(part.whole, 'element')} ({problem}; {least})",
        location=elements_text(first, centres, count),
        remedy="mesh these places anew",
    )
