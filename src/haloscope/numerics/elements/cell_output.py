"""Fields at GLL nodes as cells of a file: what the file's nodes are and in which order.

VTK takes the nodes of a Lagrange cell to stand at equal distances, so values and coordinates are
interpolated to such nodes: exactly, since they are polynomials of the same order. Linear cells
stand between the GLL nodes themselves and carry the values as they were computed.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from haloscope.io.vtkhdf_cells import CellWriter
from haloscope.mesh.hexes.node_orders import vtk_order
from haloscope.numerics.elements.basis import gll_to_equispaced


def open_cells(
    path: str | Path,
    *,
    elements: int,
    order: int,
    linear: bool = False,
    time: float | None = None,
) -> CellWriter:
    """Open a VTKHDF file for fields at the GLL nodes of elements.

    `time`: time of the fields, in s; Returns: to be used in a ``with`` statement; takes coordinates
    and values at GLL nodes.
    """
    return CellWriter(
        path,
        elements=elements,
        interpolation=np.eye(order + 1) if linear else gll_to_equispaced(order, order),
        node_order=None if linear else vtk_order(order),
        time=time,
    )
