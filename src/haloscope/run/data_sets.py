"""States of simulations as xarray data sets, and tables as pandas data frames."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from haloscope.errors import InputError, MachineError
from haloscope.run.state import RunState


def imported(package: str, purpose: str) -> Any:
    """A package of the extra `notebook`; its error names the extra."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise MachineError(
            f"{package} cannot be imported ({error})",
            location=purpose,
            remedy="run pip install 'haloscope[notebook]'",
        ) from error


def data_frame(columns: Mapping[str, np.ndarray]) -> Any:
    """Columns as a data frame; None without pandas."""
    try:
        pandas: Any = importlib.import_module("pandas")
    except ImportError:
        return None
    return pandas.DataFrame(dict(columns))


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
