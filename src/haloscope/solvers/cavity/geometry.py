"""The walls of a cavity for the picture of its geometry."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from haloscope.io.figures.geometry_views import Geometry, Part, box_side
from haloscope.mesh.blocks import SIDES
from haloscope.solvers.cavity.case import Flow


def walls_geometry(flow: Flow, conditions: Mapping[str, str], *, is_root: bool) -> Geometry:
    """The walls with their conditions; lines in two dimensions. Rank 0 alone has them."""
    upper = np.array(flow.size)
    parts = []
    for side in SIDES:
        if side.name not in conditions:
            continue
        if flow.table.dimensions == 2:
            ends = np.tile(upper * (side.direction > 0), (2, 1))
            ends[:, 1 - side.axis] = 0.0, upper[1 - side.axis]
            corners = ends[None]
        else:
            corners = box_side(np.zeros(3), upper, side.axis, side.direction)
        parts.append(Part(side.name, conditions[side.name], corners if is_root else corners[:0]))
    return Geometry(tuple(parts))
