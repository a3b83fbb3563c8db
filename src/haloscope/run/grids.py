"""The present state of a run as arrays of a VTK data set, for PyVista, and as an xarray data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError, imported
from haloscope.io.vtk_arrays import ImageArrays, VtkArrays
from haloscope.mesh.field_layouts import StructuredGrid
from haloscope.run.state import RunState

INSIDE = "inside"
"""Of a regular grid with places outside the domain: 1 where there are values, else 0."""


def present_arrays(state: RunState) -> VtkArrays | None:
    """All fields and their vectors with positions, on rank 0; all ranks call this."""
    solver, layout = state.solver, state.solver.layout
    fields = {
        name: layout.collect(solver.relative(name), 0, layout.shape[0]) for name in solver.fields
    }
    grid, cells = layout.grid(), layout.cells()
    values = {name: field for name, field in fields.items() if field is not None}
    time = float(solver.step) if solver.time is None else solver.time
    if cells is not None:
        columns = {name: cells.at_points(field) for name, field in values.items()}
        data = _with_vectors(columns, solver.vectors)
        return replace(cells.arrays, point_data=data, time=time)
    if grid is None:
        return None
    columns = {name: grid.spread(field).reshape(-1) for name, field in values.items()}
    data = _with_vectors(columns, solver.vectors)
    if grid.places is not None:
        inside = np.nan_to_num(grid.spread(np.ones(len(grid.places), np.float32)))
        data[INSIDE] = inside.reshape(-1)
    return _image(grid, data, time)


def _image(grid: StructuredGrid, data: Mapping[str, NDArray[Any]], time: float) -> ImageArrays:
    axes = (grid.x, grid.y, grid.z)
    x, y, z = (float(axis[0]) for axis in axes)
    lengths = [
        float(axis[-1] - axis[0]) / (len(axis) - 1) if len(axis) > 1 else 0.0 for axis in axes
    ]
    # VTK wants a positive distance along an axis of one point, too.
    dx, dy, dz = (length or max(lengths) or 1.0 for length in lengths)
    shape = len(grid.z), len(grid.y), len(grid.x)
    return ImageArrays(shape, (x, y, z), (dx, dy, dz), data, time)


def _with_vectors(
    columns: Mapping[str, NDArray[Any]], vectors: Mapping[str, Any]
) -> dict[str, NDArray[Any]]:
    """Scalars (points,) and, beside them, vectors (points, 3) of their components; 0 along z in a plane."""
    data = dict(columns)
    for vector, names in vectors.items():
        components = [columns[name] for name in names]
        components += [np.zeros_like(components[0])] * (3 - len(components))
        data[vector] = np.stack(components, axis=1)
    return data


def data_set(state: RunState, fields: Mapping[str, np.ndarray | None]) -> Any:
    """Fields on a regular grid as an xarray data set on rank 0; None on other ranks."""
    solver = state.solver
    grid = solver.layout.grid()
    if not state.world.any(grid is not None):
        raise InputError(
            f"the values of {solver.name} are not on a regular grid",
            location="dataset",
            allowed="cases of cavity and blood",
            remedy="use field(name) with points()",
        )
    xarray = imported("xarray", "dataset")
    if grid is None:
        return None
    coordinates: dict[str, Any] = {
        axis: (axis, positions, {"units": "m", "long_name": f"position along {axis}"})
        for axis, positions in (("z", grid.z), ("y", grid.y), ("x", grid.x))
    }
    coordinates["step"] = solver.step
    if solver.time is not None:
        coordinates["time"] = ((), solver.time, {"units": "s", "long_name": "physical time"})
    variables = {}
    for name, values in fields.items():
        if values is None:
            continue
        field = solver.fields[name]
        described = {"units": field.unit, "long_name": field.meaning}
        variables[name] = (("z", "y", "x"), grid.spread(values), described)
    title = state.case.title or state.name
    return xarray.Dataset(variables, coordinates, {"title": title, "solver": solver.name})
