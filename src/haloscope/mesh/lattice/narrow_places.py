"""Where a vessel has too few lattice points across it.

The depth of a point is the number of steps along the axes to the nearest point outside. Across a
vessel it rises to the middle: a point of depth d with no deeper one within a few points lies in the
middle of a vessel of 2 d - 1 or 2 d points. At a corner, a rim or a bump of the wall there is a
deeper point, so these do not count; nor does a narrow place much shorter than it is wide.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from haloscope.mesh.grid.blocks import Triple
from haloscope.mesh.lattice.lattice_runs import Runs, raster, unraster
from haloscope.mesh.lattice.openings import Opening
from haloscope.mesh.surfaces.orientation import spread

Mask = NDArray[np.bool_]

# Points in each direction within which a deeper one is looked for: the edge of a wedge, whichever
# way it is turned to the lattice, has one nearer.
_NEAR = 2
# Points of the box of lattice points that are looked at together.
_CHUNK = 2**24


def narrow_place(
    runs: Runs,
    shape: Triple,
    openings: tuple[Opening, ...],
    slab: tuple[int, int],
    least_across: int,
) -> tuple[int, int] | None:
    """Look for vessels with fewer than a number of points across.

    Returns: raster number of a point in the middle of the narrowest place, and how many points
    there are across it at most; None where the lattice is fine enough.
    """
    depths = (least_across - 1) // 2
    if depths == 0:
        return None
    margin = depths + _NEAR
    nx, ny, _ = shape
    planes = max(1, _CHUNK // ((nx + 2 * margin) * (ny + 2 * margin)))
    worst = None
    for start in range(slab[0], slab[1], planes):
        stop = min(start + planes, slab[1])
        mask = _mask(runs, shape, openings, start, stop, margin)
        for depth in range(1, depths + 1):
            deeper = _eroded(mask)
            middle = mask & ~_dilated(deeper)
            middle = middle[margin:-margin, margin:-margin, margin:-margin]
            if middle.any():
                z, y, x = np.argwhere(middle)[0]
                number = int(raster(shape, np.array([[x, y, z + start]]))[0])
                if worst is None or 2 * depth < worst[1]:
                    worst = (number, 2 * depth)
                break
            mask = deeper
    return worst


def _mask(
    runs: Runs, shape: Triple, openings: tuple[Opening, ...], start: int, stop: int, margin: int
) -> Mask:
    """Fluid in planes z from start up to stop with a margin on all sides, (z, y, x)."""
    nx, ny, _ = shape
    mask = np.zeros((stop - start + 2 * margin, ny + 2 * margin, nx + 2 * margin), bool)

    near = runs.slab(max(0, start - margin), min(shape[2], stop + margin))
    # By runs: a row of the mask is wider than one of the box.
    row, x = np.divmod(near.first, nx)
    z, y = np.divmod(row, ny)
    first = ((z + margin - start) * (ny + 2 * margin) + y + margin) * (nx + 2 * margin) + margin + x
    run, place = spread(near.stop - near.first)
    mask.ravel()[first[run] + place] = True
    for opening in openings:
        coordinates = unraster(shape, opening.numbers) + margin - np.array([0, 0, start])
        for _ in range(margin):
            coordinates[:, opening.axis] += opening.direction
            x, y, z = coordinates.T
            there = (z >= 0) & (z < len(mask))
            mask[z[there], y[there], x[there]] = True
    return mask


def _eroded(mask: Mask) -> Mask:
    """Points whose six neighbours along the axes are all in the mask."""
    inner = mask.copy()
    for axis in range(3):
        low = (slice(None),) * axis
        inner[(*low, slice(1, None))] &= mask[(*low, slice(None, -1))]
        inner[(*low, slice(None, -1))] &= mask[(*low, slice(1, None))]
    return inner


def _dilated(mask: Mask) -> Mask:
    """Points within the cubes of 2 `_NEAR` + 1 points around those of the mask."""
    for axis in range(3):
        low = (slice(None),) * axis
        for _ in range(_NEAR):
            wider = mask.copy()
            wider[(*low, slice(1, None))] |= mask[(*low, slice(None, -1))]
            wider[(*low, slice(None, -1))] |= mask[(*low, slice(1, None))]
            mask = wider
    return mask
