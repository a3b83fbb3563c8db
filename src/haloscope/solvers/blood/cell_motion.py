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

    With x the position along the axis, x_c that of the centroid and u_n the velocity along the
    outward normal, V dx_c/dt is the integral of (x - x_c) u_n over the surface (Reynolds'
    transport theorem); exact for flat triangles with velocities that are linear on each.

    Parameters
    ----------
    positions, velocities
        Of vertices, (n, V, 3).
    triangles
        (E, 3), counter-clockwise seen from outside.
    axis
        Along which centroids and their velocities are asked for.

    Returns
    -------
    tuple of ndarray
        Volumes V (n,), centroids x_c (n,), and V dx_c/dt (n,).
    """
    found = np.empty((3, len(positions)))
    portion = max(1, _VALUES // len(triangles))
    for first in range(0, len(positions), portion):
        some = slice(first, first + portion)
        found[:, some] = _moved(positions[some], velocities[some], triangles, axis)
    volume, centre, moved = found
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


def outermost(positions: Floats, along: Floats, toward: Floats, slices: int) -> Floats:
    """How far points reach in given directions, slice by slice along a vessel.

    Parameters
    ----------
    positions
        Of points, (n, 3).
    along
        Where they are along the vessel, in slices: from 0 to below `slices`, (n,).
    toward
        Directions, (k, 3), each of length 1.
    slices
        How many there are.

    Returns
    -------
    ndarray
        (slices, k); -inf where a slice holds no point.
    """
    found = np.full((slices, len(toward)), -np.inf)
    number = np.minimum(along.astype(np.int64), slices - 1)
    order = np.argsort(number, kind="stable")
    present, begin = np.unique(number[order], return_index=True)
    if not len(present):
        return found
    for view, direction in enumerate(toward):
        # A product of each coordinate on its own: the same bits for any number of points.
        x, y, z = (positions[order, a] * direction[a] for a in range(3))
        found[present, view] = np.maximum.reduceat(x + y + z, begin)
    return found
