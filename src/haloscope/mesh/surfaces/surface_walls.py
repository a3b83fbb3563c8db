"""Which triangles of a surface are walls of the fluid in it: all but those that close its openings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from haloscope.mesh.lattice.lattice_runs import Runs, raster
from haloscope.mesh.lattice.openings import ALONG, Opening
from haloscope.mesh.lattice.voxels import Lattice, inside_runs
from haloscope.mesh.surfaces.surfaces import Surface

# Spacings beyond an opening within which a cap is its own: farther than walls are looked for.
_BEYOND = 8.0
# Before it, as an opening lies on the plane of points that is nearest to where it was asked for.
_BEFORE = 0.5 + 1e-6
# Of a triangle that lies on a plane of points: rounding must not put these outside.
_ON_PLANE = 1e-6


def walls_of(lattice: Lattice, surface: Surface) -> Surface:
    """The surface less the caps of openings."""
    caps = np.zeros(len(surface.triangles), bool)
    for opening in lattice.openings:
        if opening.name in surface.names:
            caps |= surface.groups == surface.names.index(opening.name)
        else:
            caps[_caps(lattice, surface, opening)] = True
    if not caps.any():
        return surface
    return replace(surface, triangles=surface.triangles[~caps], groups=surface.groups[~caps])


def _caps(lattice: Lattice, surface: Surface, opening: Opening) -> NDArray[np.int64]:
    """Triangles that close a vessel at an opening, or a little beyond it."""
    axis = opening.axis
    along = (surface.corners[:, :, axis] - lattice.origin[axis]) / lattice.spacing
    beyond = (along - opening.plane) * opening.direction
    normals = surface.normals
    faces = normals[:, axis] * opening.direction >= (1 - ALONG) * np.linalg.norm(normals, axis=1)
    near = (beyond.min(axis=1) >= -_BEFORE) & (beyond.max(axis=1) <= _BEYOND)
    chosen = np.flatnonzero(near & faces)
    middles = (surface.corners[chosen].mean(axis=1) - lattice.origin) / lattice.spacing
    pixels = np.floor(middles + 0.5).astype(np.int64)
    pixels[:, axis] = opening.plane
    hit = np.zeros(len(chosen), bool)
    if not len(chosen):
        return chosen
    shape = np.array(lattice.shape)
    # The first way out is the cap: behind a stretch that is outside lie walls of other limbs.
    steps_out = np.clip(np.floor(beyond[chosen].mean(axis=1) - _ON_PLANE), 0, None).astype(np.int64)
    planes = np.sort([opening.plane, opening.plane + opening.direction * int(steps_out.max())])
    low, high = (
        (pixels[:, 2].min() - 1, pixels[:, 2].max() + 2)
        if axis != 2
        else (planes[0], planes[1] + 1)
    )
    inside = inside_runs(surface, lattice.grid, *np.clip([low, high], 0, shape[2]).tolist())
    one, two = (other for other in range(3) if other != axis)
    # A triangle at the rim may have its middle next to the points of the opening.
    for steps in np.ndindex(3, 3):
        beside = pixels.copy()
        beside[:, [one, two]] += np.array(steps) - 1
        within = ((beside >= 0) & (beside < shape)).all(axis=1)
        hit |= (
            within
            & np.isin(raster(lattice.shape, beside), opening.numbers)
            & _all_inside(inside, beside, axis, opening.direction, steps_out)
        )
    return chosen[hit]


def _all_inside(
    inside: Runs, pixels: NDArray[np.int64], axis: int, direction: int, counts: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether so many points beyond each pixel lie inside; where the grid ends nothing is known, nor needed."""
    good = np.ones(len(pixels), bool)
    for step in range(1, int(counts.max(initial=0)) + 1):
        beyond = pixels.copy()
        beyond[:, axis] += direction * step
        known = (beyond[:, axis] >= 0) & (beyond[:, axis] < inside.shape[axis]) & (step <= counts)
        good[known] &= inside.contains(raster(inside.shape, beyond[known]))
    return good
