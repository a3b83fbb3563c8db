"""How the volumes of cells move, and how near to the walls they come, from their vertices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# So many values of triangles at once stay in the caches.
_VALUES = 1 << 18


def moved_volumes(
    positions: Floats, velocities: Floats, triangles: NDArray[np.integer], axis: int
) -> tuple[Floats, Floats, Floats]:
    """Volumes of closed surfaces, their centroids, and volumes times the centroids' velocities.

    `positions`, `velocities`: of vertices, (n, V, 3); `triangles`: (E, 3), counter-clockwise seen
    from outside; Returns: volumes V (n,), centroids x_c (n,), and V dx_c/dt (n,).
    """
    # With x the position along the axis, x_c that of the centroid and u_n the velocity along the
    # outward normal, V dx_c/dt is the integral of (x - x_c) u_n over the surface (Reynolds'
    # transport theorem); exact for flat triangles with velocities that are linear on each.
    volumes = np.empty((3, len(positions)))
    portion = max(1, _VALUES // len(triangles))
    for first in range(0, len(positions), portion):
        span = slice(first, first + portion)
        volumes[:, span] = _moved(positions[span], velocities[span], triangles, axis)
    volume, centre, moved = volumes
    return volume, centre, moved


def _moved(x: Floats, u: Floats, triangles: NDArray[np.integer], axis: int) -> list[Floats]:
    start = x[:, :1]
    corners = [np.ascontiguousarray((x - start)[:, triangles[:, k]]) for k in range(3)]
    # Normals as long as twice the triangles' areas.
    normal = np.cross(corners[1] - corners[0], corners[2] - corners[0])
    volume = (corners[0] * normal).sum(axis=2).sum(axis=1) / 6
    a, b, c = (np.ascontiguousarray(corner[..., axis]) for corner in corners)
    square = a * a + b * b + c * c + a * b + b * c + c * a
    centre = (np.ascontiguousarray(normal[..., axis]) * square).sum(axis=1) / 24 / volume
    a, b, c = (along - centre[:, None] for along in (a, b, c))
    p, q, r = ((u[:, triangles[:, k]] * normal).sum(axis=2) for k in range(3))
    swept = (a + b + c) * (p + q + r) + a * p + b * q + c * r
    return [volume, centre + start[:, 0, axis], swept.sum(axis=1) / 24]


def outermost(
    positions: Floats,
    along: Floats,
    edges: NDArray[np.integer],
    toward: Floats,
    slices: int,
    closed: bool,
) -> Floats:
    """How far surfaces reach in given directions, slice by slice along a vessel.

    A surface of flat triangles reaches farthest within a slice at a vertex or where an edge passes
    into the next slice.
    """
    # `positions`: of vertices, (n, V, 3).
    # `along`: where they are along the vessel, in slices, (n, V).
    # `edges`: (E, 2), vertices at the ends of each edge.
    # `toward`: directions, (k, 3), each of length 1.
    # Returns: (slices, k); -inf where a slice holds no surface.
    outermost = np.full((slices, len(toward)), -np.inf)
    vertices = positions.shape[1]
    points, places = positions.reshape(-1, 3), along.reshape(-1)
    ends = (np.arange(len(positions))[:, None, None] * vertices + edges).reshape(-1, 2)
    a, b = places[ends[:, 0]], places[ends[:, 1]]
    first = np.ceil(np.minimum(a, b)).astype(np.int64)
    count = np.maximum(np.floor(np.maximum(a, b)).astype(np.int64) - first + 1, 0)
    edge = np.repeat(np.arange(len(ends)), count)
    border = first[edge] + np.arange(len(edge)) - (np.cumsum(count) - count)[edge]
    start, stop, a, b = ends[edge, 0], ends[edge, 1], a[edge], b[edge]
    part = np.where(a == b, 0.0, (border - a) / np.where(a == b, 1.0, b - a))
    number = np.concatenate([np.floor(places).astype(np.int64), border - 1, border])
    if closed:
        number %= slices
    order = np.argsort(number, kind="stable")
    order = order[(number[order] >= 0) & (number[order] < slices)]
    present, begin = np.unique(number[order], return_index=True)
    if not len(present):
        return outermost
    for view, direction in enumerate(toward):
        # A product of each coordinate on its own: the same bits for any number of points.
        x, y, z = (points[:, axis] * direction[axis] for axis in range(3))
        reach = x + y + z
        crossing = reach[start] + part * (reach[stop] - reach[start])
        values = np.concatenate([reach, crossing, crossing])[order]
        outermost[present, view] = np.maximum.reduceat(values, begin)
    return outermost
