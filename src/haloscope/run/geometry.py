"""The picture of a case's geometry before its first step, of what all ranks have of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from haloscope.errors import MachineError
from haloscope.exchange.images import merge_images
from haloscope.io.figures.figure import save
from haloscope.io.figures.geometry_pictures import geometry_picture
from haloscope.io.figures.geometry_views import (
    MOST_MESH_LINES,
    Geometry,
    Marks,
    draw_views,
    with_counts,
)
from haloscope.run.state import RunState


def save_geometry_picture(state: RunState, path: Path) -> None:
    """Draw boundaries by their conditions, bodies, sources and probes; all ranks call this."""
    solver, world = state.solver, state.world
    geometry = _with_probes(solver.geometry(), state)
    title = state.case.title or state.name
    subtitle = f"{solver.name}: {solver.layout.describe()}"
    if geometry.planar:
        if world.is_root:
            make_picture_folder(path.parent)
            save(path, geometry_picture(geometry, None, title, subtitle))
        return
    lower, upper = geometry.bounds()
    lower = np.array([-world.largest(-float(end)) for end in lower])
    upper = np.array([world.largest(float(end)) for end in upper])
    faces = [0 if part.faces is None else len(np.unique(part.faces)) for part in geometry.parts]
    triangles = sum(len(part.corners) for part in geometry.parts)
    all_faces, all_triangles = world.sum(np.array([sum(faces), triangles], np.int64)).tolist()
    views = draw_views(
        geometry, lower, upper, rank=world.rank, mesh_lines=all_faces <= MOST_MESH_LINES
    )
    drawn = int(world.sum(np.array([views.drawn], np.int64))[0])
    for image in views.images:
        merge_images(world, image)
    if world.is_root:
        make_picture_folder(path.parent)
        geometry = with_counts(geometry, drawn, all_triangles)
        save(path, geometry_picture(geometry, views, title, subtitle))


def _with_probes(geometry: Geometry, state: RunState) -> Geometry:
    probes = state.case.output.probes
    if not probes:
        return geometry
    points = np.array([probe.position for probe in probes], np.float64)
    marks = Marks("probes", points, tuple(probe.name for probe in probes))
    return replace(geometry, marks=(*geometry.marks, marks))


def make_picture_folder(folder: Path) -> None:
    """Make the folder of a picture."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MachineError(
            f"the folder cannot be created ({error.strerror})",
            location=str(folder),
            remedy="work in another folder, or set output.picture = false",
        ) from error
