"""Surfaces of triangles read from VTK's .vtp files, with groups by face ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.mesh.files.vtk_xml import SURFACE_CELLS, VtkXml, open_vtk_xml
from haloscope.mesh.surfaces.surfaces import mended_fans, spread

Integers = NDArray[np.int64]

GROUP_ARRAYS = ("ModelFaceID", "CellEntityIds")
"""Cell arrays whose whole numbers name groups: those of SimVascular and of VMTK."""

_SAVE = "save the surface anew as PolyData"


def read_vtp(
    path: Path, unnamed: str, most_groups: int
) -> tuple[NDArray[np.float64], NDArray[np.int32], tuple[str, ...]]:
    """Corners (n, 3, 3) of triangles, the group (n,) of each, and the names of groups.

    Polygons become fans around their first corner, or ears, and strips triangles; vertices and lines are left
    out. `unnamed`: name of the one group of a file without face ids.
    """
    file = open_vtk_xml(path)
    if file.root.get("type") != "PolyData":
        raise InputError(
            f"it holds a data set of the kind {str(file.root.get('type'))[:40]!r}",
            allowed="PolyData",
            remedy="extract its surface (ParaView: Extract Surface) and save it as .vtp",
        )
    count = file.count("NumberOfPoints")
    places = file.array("Points")
    points = np.zeros((0, 3)) if places is None else places.astype(np.float64)
    if points.size != 3 * count:
        raise file.damaged("Points")
    points = points.reshape(-1, 3)
    parts: list[Integers] = []
    cells: list[Integers] = []
    begin = 0
    for kind in SURFACE_CELLS:
        cell_count = file.count(f"NumberOf{kind}")
        if cell_count and kind in ("Polys", "Strips"):
            triangles, cell = _triangles(file, kind, cell_count)
            if triangles.size and not 0 <= triangles.min() <= triangles.max() < count:
                raise file.damaged(f"{kind} connectivity")
            parts.append(mended_fans(points, triangles, cell) if kind == "Polys" else triangles)
            cells.append(cell + begin)
        begin += cell_count
    if not parts:
        return np.zeros((0, 3, 3)), np.zeros(0, np.int32), (unnamed,)
    groups, names = _groups(file, np.concatenate(cells), begin, unnamed, most_groups)
    return points[np.concatenate(parts)], groups, names


def _triangles(file: VtkXml, kind: str, count: int) -> tuple[Integers, Integers]:
    """Triangles (n, 3) of polygons or strips, and the cell (n,) of each."""
    connectivity, offsets = file.array(kind, "connectivity"), file.array(kind, "offsets")
    if connectivity is None or offsets is None or len(offsets) < count:
        raise file.damaged(f"{kind} offsets")
    # With 0 before the first end in files of VTK 2 and later, or without.
    ends = offsets[-count:].astype(np.int64)
    begins = np.concatenate([[0], ends[:-1]])
    corners = ends - begins
    if corners.min() < 0 or ends[-1] > len(connectivity):
        raise file.damaged(f"{kind} offsets")
    if (corners < 3).any():
        raise InputError(
            f"cell {int((corners < 3).argmax())} of {kind} has {int(corners.min())} corners",
            allowed="3 corners or more",
            remedy=_SAVE,
        )
    cell, place = spread(corners - 2)
    first = begins[cell]
    at = np.stack([first, first + place + 1, first + place + 2], axis=1)
    if kind == "Strips":
        at[:, 0] = first + place
        odd = place % 2 == 1
        at[odd, 1], at[odd, 2] = at[odd, 2], at[odd, 1].copy()
    return connectivity.astype(np.int64)[at], cell


def _groups(
    file: VtkXml, cells: Integers, count: int, unnamed: str, most: int
) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """The group of each triangle by the face id of its cell, and the names: the ids."""
    for name in GROUP_ARRAYS:
        ids: NDArray[Any] | None = file.array("CellData", name)
        if ids is None:
            continue
        if len(ids) != count:
            raise file.damaged(name)
        if not np.isfinite(ids).all() or (np.round(ids) != ids).any():
            raise InputError(
                "its face ids are no whole numbers",
                location=f"array '{name}'",
                remedy=_SAVE,
            )
        values, group = np.unique(ids[cells].astype(np.int64), return_inverse=True)
        if len(values) > most:
            raise InputError(
                f"it holds {len(values)} face ids",
                location=f"array '{name}'",
                allowed=f"at most {most}",
                remedy=_SAVE,
            )
        return group.reshape(-1).astype(np.int32), tuple(str(value) for value in values)
    return np.zeros(len(cells), np.int32), (unnamed,)
