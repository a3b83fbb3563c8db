"""Openings of a surface from a file: those that cut their vessel obliquely, and flat groups without one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from haloscope.errors import InputError
from haloscope.mesh.surfaces.surface_ends import flat_ends, vessel_direction
from haloscope.mesh.surfaces.surfaces import Surface
from haloscope.solvers.blood.case import BloodTable
from haloscope.solvers.blood.case_vessels import SurfaceFile
from haloscope.solvers.blood.vessels.vessels import Vessel

# Between the normal of an opening and its vessel.
_OBLIQUE_DEG, _REFUSED_DEG = 20.0, 50.0
# A group is flat if its end makes up this share of its area.
_FLAT_SHARE = 0.99


def on_surface_openings(table: BloodTable, vessel: Vessel) -> list[str]:
    """Lines on openings that cut their vessel obliquely, and on flat groups of a file that are closed."""
    surface, shape = vessel.geometry, table.vessel
    if not isinstance(surface, Surface) or not isinstance(shape, SurfaceFile):
        return []
    lines = []
    for points, opening in zip(vessel.lattice.openings, vessel.openings, strict=True):
        positions = vessel.lattice.positions(points.numbers)
        radius = math.sqrt(len(positions) / math.pi) * table.spacing
        normal = np.zeros(3)
        normal[points.axis] = points.direction
        direction = vessel_direction(surface, positions.mean(axis=0), normal, radius)
        if direction is None:
            continue
        angle = math.degrees(math.acos(min(1.0, float(direction @ normal))))
        if angle <= _OBLIQUE_DEG:
            continue
        line = (
            f"opening '{opening.name}' at {surface.unit.place(positions.mean(axis=0))} cuts the vessel obliquely: "
            f"its normal is {angle:.0f} degrees from the vessel's axis ({direction[0]:.2f}, {direction[1]:.2f}, "
            f"{direction[2]:.2f})"
        )
        limits = f"allowed are at most {_REFUSED_DEG:g}, sound at most {_OBLIQUE_DEG:g}"
        remedy = "move the opening to where the vessel runs along the normal, or turn the geometry"
        if angle > _REFUSED_DEG:
            raise InputError(f"{line}; {limits}: {remedy}")
        lines.append(
            f"{line}, and velocity profile and flow there are inaccurate; {limits}: {remedy}"
        )
    closed = closed_groups(surface, [opening.name for opening in table.openings])
    if closed and table.openings:
        names = ", ".join(f"'{name}'" for name in closed)
        lines.append(
            f"group{'s' if len(closed) > 1 else ''} {names} of {shape.file} "
            f"{'are' if len(closed) > 1 else 'is'} flat and without [[blood.openings]], so closed by a wall; give "
            "an opening of that name if the vessel goes on there"
        )
    return lines


def closed_groups(surface: Surface, openings: Sequence[str]) -> list[str]:
    """Flat groups of a surface without an opening, but for those that are called walls."""
    return [
        end.group
        for end in flat_ends(surface)
        if end.group not in openings
        and not end.group.lower().startswith("wall")
        and len(surface.names) > 1
        and end.area
        >= _FLAT_SHARE * np.linalg.norm(surface.normals[surface.group(end.group)], axis=1).sum()
    ]
