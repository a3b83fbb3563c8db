"""Memory of a blood run on a device, by lattice point and vertex, known before the run.

The arrays that grow with the case, as a GPU has them. Cores keep other lists, of about the same size.
"""

from __future__ import annotations

import math

_REAL, _INDEX, _LONG = 8, 4, 8
_MOVED = 3 * _REAL

ROOM = 1.25
"""Cells that there is room for, over those that are there (ownership.py)."""
NEAR_GROWTH = 1.5
"""Entries for what is near that a GPU has room for, over those that are needed at first."""
OUTPUTS = 2 * _MOVED
"""Bytes of a vertex that outputs and checkpoints take for a while: positions and velocities by cell; as
many again of viscous membranes."""

# Of the vertices within reach that a plane like a membrane would have. Counted on the cells of
# bench/blood_gpu.py: hematocrit 0.4, 642 vertices a cell, reach 1.4 um.
_FACING = 0.22
_TILES_A_VERTEX = 8


def bytes_a_point(*, with_cells: bool, repulsion: bool) -> int:
    """Bytes of a lattice point beside its populations."""
    # Which neighbours it has; with cells the fluid's force and velocity, a table of points to
    # couple them and another one, with steps along rows, to find what is inside; for repulsion
    # bins, and a table, distances and flags of what is near walls.
    total = _INDEX
    if with_cells:
        total += 2 * _MOVED + _INDEX + 2 * _INDEX
    if with_cells and repulsion:
        total += 2 * _INDEX + _INDEX + _REAL + 1
    return total


def bytes_a_vertex(
    *, repulsion: bool, viscous: bool = False, near: float = 0.0, room: float = ROOM
) -> float:
    """Bytes of a vertex."""
    # Positions, velocities now and before, and forces; where it was in single precision, and tiles that it is near.
    total = 4 * _MOVED * room + _MOVED / 2 + _TILES_A_VERTEX * _INDEX
    if viscous:
        # Natural metrics of the elements, in two arrays like the others.
        total += 2 * _MOVED * room
    if repulsion:
        # Position and cell now, where it was, and its place among bins with its cell there.
        total += 4 * _REAL + _MOVED / 2 + 2 * _INDEX
        # Its list: whose it is, how long, where it begins, and what it holds.
        total += 2 * _INDEX + _LONG + _INDEX * (NEAR_GROWTH * near + 1)
    return total


def near_vertices(vertices: int, volume: float, reach: float) -> float:
    """Vertices of other cells that are near one in a crowd, about."""
    least_area = math.cbrt(36 * math.pi * volume**2)
    return _FACING * math.pi * reach**2 * vertices / least_area
