"""A plane of lattice points, gathered for a picture."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.exchange.ranks.world import World
from haloscope.mesh.lattice.lattice_parts import LatticePart
from haloscope.mesh.lattice.voxels import Lattice
from haloscope.solvers.blood.case import MICRO, Slice

Floats = NDArray[np.float64]

# Of a spacing: what rounding may put beyond a wall.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Plane:
    """Values on a plane of lattice points."""

    # Positions in m along the plane's two axes.
    x: Floats
    y: Floats
    offset: float  # Position of the plane on its normal, in m
    values: Floats  # (fields, len(y), len(x)); nan where there is no point


def require_plane(lattice: Lattice, wanted: Slice) -> None:
    """Refuse a plane that misses the vessel, before the run."""
    if wanted.offset_um is None:
        return
    low, high = (float(corner["xyz".index(wanted.axis)]) / MICRO for corner in lattice.bounds)
    slack = _ROUNDING * lattice.spacing / MICRO
    if not low - slack <= wanted.offset_um <= high + slack:
        # Rounding must not make 1e-16 of 0.
        low, high = (round(end / slack) * slack for end in (low, high))
        raise InputError(
            f"blood.slice.offset_um = {wanted.offset_um:g} misses the vessel, which reaches from {low:.6g} to "
            f"{high:.6g} um along {wanted.axis}; give a value between these"
        )


def plane_of(
    world: World,
    lattice: Lattice,
    part: LatticePart,
    fields: Floats,
    axis: int,
    offset: float | None,
) -> Plane | None:
    """Fields on the plane of points nearest to an offset, on rank 0; all ranks call this.

    `fields`: own values, (fields, owned); `axis`, `offset`: normal of the plane and its position in
    m; None: the middle.
    """
    planes = lattice.shape[axis]
    index = planes // 2
    if offset is not None:
        low, high = (int(end[axis]) for end in lattice.runs.extent())
        index = round((offset - float(lattice.origin[axis])) / lattice.spacing)
        index = min(max(index, low), high)
    coordinates = part.coordinates[: part.owned]
    chosen = np.flatnonzero(coordinates[:, axis] == index)
    across = [other for other in range(3) if other != axis]
    places = np.ascontiguousarray(coordinates[chosen][:, across], np.int32)
    values = np.ascontiguousarray(fields[:, chosen], np.float64)
    nothing = np.empty(0, np.uint8)
    sent = [nothing] * world.size
    sent[0] = places.reshape(-1).view(np.uint8)
    came = world.exchange(sent)
    sent[0] = values.T.reshape(-1).view(np.uint8) if values.size else nothing
    received = world.exchange(sent)
    if not world.is_root:
        return None
    width, height = (lattice.shape[other] for other in across)
    result = np.full((len(fields), height, width), np.nan)
    for where, plane_values in zip(came, received, strict=True):
        if not len(where):
            continue
        i, j = np.frombuffer(where.tobytes(), np.int32).reshape(-1, 2).T
        result[:, j, i] = np.frombuffer(plane_values.tobytes()).reshape(-1, len(fields)).T
    x, y = (
        np.float64(lattice.origin[other]) + lattice.spacing * np.arange(lattice.shape[other])
        for other in across
    )
    return Plane(x, y, float(lattice.origin[axis]) + lattice.spacing * index, result)
