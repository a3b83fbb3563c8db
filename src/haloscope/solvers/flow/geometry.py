"""The boundaries of a flow case for the picture of its geometry."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from haloscope.io.figures.geometry_views import Geometry, Part
from haloscope.mesh.tets.node_parts import NodePart


def boundary_geometry(part: NodePart, conditions: Mapping[str, str]) -> Geometry:
    """Own triangles of each boundary with its condition; periodic ones have none."""
    names = [*conditions, *(name for name in part.boundaries if name not in conditions)]
    parts = []
    for name in names:
        triangles = part.boundaries.get(name, np.zeros((0, 3), np.int32))
        condition = conditions.get(name, "")
        parts.append(Part(name, condition, part.nodes[triangles], faces=np.arange(len(triangles))))
    zones = ", ".join(part.zone_names)
    notes = (f"zones of the mesh: {zones}",) if len(part.zone_names) > 1 else ()
    return Geometry(tuple(parts), notes=notes)
