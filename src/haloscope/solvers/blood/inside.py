"""Which lattice points lie inside cells: for the viscosity of what cells hold.

The closed surfaces are cut by the lattice's rows along x. A surface that is entered adds 1 to the
points behind, one that is left takes 1 away: each point gets its winding number, exactly, since
triangles that share an edge share the very numbers of where it is cut, and a row through a vertex
belongs to one side of it. Cells that overlap do not cancel each other.

On the host, at set-up and every few steps. The cost is that of the cuts: about half a
microsecond a triangle on one core (a cell of 2,048 triangles, 8 lattice units across: 1 ms), and
one pass over the own box.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.solvers.blood.coupling import OwnBox

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_CELLS_AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class ClosedCells:
    """Cells of one kind as closed surfaces.

    Attributes
    ----------
    positions
        Host array (3, cells, vertices), lattice units; they go on over periodic ends.
    triangles
        Vertices of each triangle (triangles, 3), counter-clockwise seen from outside.
    """

    positions: Floats
    triangles: Integers

    def __post_init__(self) -> None:
        edges = self.triangles[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2)
        there = np.unique(edges, axis=0)
        back = np.unique(edges[:, ::-1], axis=0)
        if len(there) != len(edges) or not np.array_equal(there, back):
            raise InputError(
                "a cell's surface is not closed or not oriented; each edge must belong to two "
                "triangles that run through it in opposite directions"
            )


def inside_flags(
    kinds: list[ClosedCells], box: OwnBox, halo: int, table: NDArray[np.int32], owned: int
) -> NDArray[np.uint8]:
    """Flag the own points that lie inside some cell.

    Parameters
    ----------
    kinds
        All cells that reach into the own box, of all kinds.
    box, halo, table
        The rank's own points, and the numbers of points around them; see
        :class:`haloscope.solvers.blood.coupling.Coupling`.
    owned
        Own points; their numbers come first.

    Returns
    -------
    ndarray
        (owned,) uint8: 1 inside, 0 outside. A point on a surface may be either.
    """
    winding = winding_numbers(kinds, box)
    own = table[tuple(slice(halo, halo + n) for n in reversed(box.counts))]
    flags = np.zeros(owned, np.uint8)
    there = own >= 0
    flags[own[there]] = winding[there] != 0
    return flags


def winding_numbers(kinds: list[ClosedCells], box: OwnBox) -> NDArray[np.int32]:
    """How many cells each place of the own box lies in, (z, y, x).

    Parameters
    ----------
    kinds
        All cells that reach into the own box, of all kinds.
    box
        The rank's own points within the lattice.
    """
    nx, ny, nz = box.counts
    # One place more along x, for surfaces that are met only behind the box.
    steps = np.zeros((nz, ny, nx + 1), np.int32)
    for kind in kinds:
        for positions in _images(kind.positions, box):
            for first in range(0, positions.shape[1], _CELLS_AT_ONCE):
                part = positions[:, first : first + _CELLS_AT_ONCE]
                _add_cuts(steps, part, kind.triangles)
    return np.cumsum(steps[:, :, :-1], axis=2, dtype=np.int32)


def _images(positions: Floats, box: OwnBox) -> list[Floats]:
    """Periodic images of the cells that reach into the box, from its first point."""
    low, high = positions.min(axis=2), positions.max(axis=2)
    known = np.isfinite(low).all(axis=0) & np.isfinite(high).all(axis=0)
    positions, low, high = positions[:, known], low[:, known], high[:, known]
    if low.shape[1] == 0:
        return []
    shifts = []
    for d, n in enumerate(box.shape):
        if not box.periodic[d]:
            shifts.append([0])
            continue
        # Each cell to the first period, and from there to all that meet the box.
        home = n * np.floor(low[d] / n)
        low[d], high[d] = low[d] - home, high[d] - home
        positions[d] -= home[:, None]
        begin = math.floor((box.low[d] - high[d].max()) / n)
        end = math.ceil((box.high[d] - low[d].min()) / n)
        shifts.append([n * k for k in range(begin, end + 1)])
    found = []
    for shift in itertools.product(*shifts):
        moved = np.subtract(shift, box.low)
        # Surfaces left of the box change nothing in it, and those right of it neither.
        meets = np.all(
            (high + moved[:, None] >= 0)
            & (low + moved[:, None] <= np.reshape(box.counts, (3, 1)) - 1),
            axis=0,
        )
        if meets.any():
            found.append(positions[:, meets] + moved[:, None, None])
    return found


def _whole_between(low: Floats, high: Floats, count: int) -> tuple[Integers, Integers]:
    """Of each pair the planes with low <= plane < high below `count`: pair by pair, and planes."""
    first = np.clip(np.ceil(low), 0, count).astype(np.int64)
    after = np.clip(np.ceil(high), 0, count).astype(np.int64)
    counts = np.maximum(after - first, 0)
    pairs = np.repeat(np.arange(len(counts)), counts)
    begins = np.cumsum(counts) - counts
    return pairs, first[pairs] + np.arange(len(pairs)) - begins[pairs]


def _add_cuts(steps: NDArray[np.int32], positions: Floats, triangles: Integers) -> None:
    """Add where rows along x meet the surfaces, +1 or -1, to the first point behind."""
    nz, ny, places = steps.shape
    vertices = positions.shape[2]
    flat = positions.reshape(3, -1)
    corners = (np.arange(positions.shape[1])[:, None, None] * vertices + triangles).reshape(-1, 3)
    z = flat[2][corners]
    cut, plane = _whole_between(z.min(axis=1), z.max(axis=1), nz)
    # A plane cuts two edges of a triangle: those from below, or in it, to above. It runs from the
    # edge that goes up to the one that comes down.
    corners = corners[cut]
    above = flat[2][corners] > plane[:, None]
    begin, end = (
        np.argmax(change, axis=1)
        for change in (above > np.roll(above, -1, axis=1), above < np.roll(above, -1, axis=1))
    )
    rows = np.arange(len(cut))
    ends = []
    for edge in (begin, end):
        one, two = corners[rows, edge], corners[rows, (edge + 1) % 3]
        # The same edge in the same direction, whichever triangle asks.
        one, two = np.minimum(one, two), np.maximum(one, two)
        t = (plane - flat[2][one]) / (flat[2][two] - flat[2][one])
        ends.append([flat[d][one] + t * (flat[d][two] - flat[d][one]) for d in (0, 1)])
    (x0, y0), (x1, y1) = ends
    cut, row = _whole_between(np.minimum(y0, y1), np.maximum(y0, y1), ny)
    x0, y0, x1, y1 = (one[cut] for one in (x0, y0, x1, y1))
    x = x0 + (row - y0) / (y1 - y0) * (x1 - x0)
    behind = np.clip(np.ceil(x), 0, places - 1).astype(np.int64)
    sign = np.where(y1 > y0, -1, 1).astype(np.int32)
    np.add.at(steps, (plane[cut], row, behind), sign)
