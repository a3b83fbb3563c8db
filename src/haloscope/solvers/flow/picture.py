"""The picture of a flow: its speed and its pressure on a plane."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from haloscope.exchange.ranks.world import World
from haloscope.numerics.elements.node_fields import NodeFields
from haloscope.numerics.elements.plane_samples import plane_raster
from haloscope.solvers.flow.case import Slice

if TYPE_CHECKING:
    from haloscope.io.field_pictures import FieldPanel, SlicesPicture


def require_plane(world: World, nodes: NDArray[np.float64], wanted: Slice) -> None:
    """Refuse a plane that misses the mesh, before the run; all ranks call this."""
    lower = -np.array([world.largest(float(at)) for at in (-nodes).max(axis=0)])
    upper = np.array([world.largest(float(at)) for at in nodes.max(axis=0)])
    plane_raster(lower, upper, wanted.axis, wanted.offset, wanted.points)


def flow_picture(
    places: NodeFields,
    wanted: Slice,
    state: NDArray[np.float64],
    title: str,
    subtitle: str,
) -> SlicesPicture | None:
    """Draw the state (nodes of this rank, 4), on rank 0; all ranks call this."""
    raster, located = places.sample_plane(wanted.axis, wanted.offset, wanted.points, state)
    if located is None:
        return None
    panels: list[FieldPanel] = [
        {
            "values": np.sqrt((located[:3] ** 2).sum(axis=0)),
            "label": "speed (m/s)",
            "quantity": "u",
            "magnitude": True,
        },
        {"values": located[3], "label": "p (Pa)", "quantity": "p"},
    ]
    return {
        "x": raster.first,
        "y": raster.second,
        "x_label": f"{raster.names[0]} (m)",
        "y_label": f"{raster.names[1]} (m)",
        "panels": panels,
        "title": title,
        "subtitle": f"{raster.axis} = {raster.offset:.4g} m, {subtitle}",
    }
