"""Looks at simulations from Python on the ranks that it is started with, and prints what rank 0 gets."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from python_cases import CASES, CELLS, case_of

import haloscope
from haloscope.errors import InputError
from haloscope.io.vtk_arrays import CellArrays
from haloscope.run.state import present_arrays


def _digest(values: Any) -> list[Any]:
    array = np.ascontiguousarray(values)
    return [list(array.shape), hashlib.sha256(array.tobytes()).hexdigest()]


class _Grid:
    """Takes the arrays of a grid."""

    def __init__(self, *arrays: Any, **_options: Any) -> None:
        self.arrays = arrays
        self.point_data, self.cell_data, self.field_data = {}, {}, {}


def stand_ins() -> dict[str, ModuleType | None]:
    """Modules in place of xarray, pandas and PyVista."""
    xarray = ModuleType("xarray")
    xarray.Dataset = lambda variables, coordinates, attributes: variables
    pyvista = ModuleType("pyvista")
    pyvista.ImageData = pyvista.UnstructuredGrid = pyvista.PolyData = _Grid
    return {"xarray": xarray, "pandas": None, "pyvista": pyvista}


def digests_by_solver() -> dict[str, Any]:
    """Digests of positions, data sets and cells on rank 0; the other ranks get None of each."""
    digests: dict[str, Any] = {}
    for solver in CASES:
        simulation = haloscope.load(case_of(solver), settings=CELLS if solver == "blood" else {})
        root = simulation.world.is_root
        points = simulation.points()
        assert (points is None) is not root
        digests[solver] = {"points": _digest(points)} if root else {}
        arrays = present_arrays(simulation)
        assert (arrays is None) is not root
        assert (simulation.grid() is None) is not root
        if arrays is not None:
            digests[solver]["grid"] = {
                part: {name: _digest(values) for name, values in getattr(arrays, part, {}).items()}
                for part in ("point_data", "cell_data")
            }
        if isinstance(arrays, CellArrays):
            digests[solver]["mesh"] = [_digest(arrays.points), _digest(arrays.connectivity)]
        try:
            dataset = simulation.dataset()
        except InputError as error:
            digests[solver]["refused"] = error.problem
            continue
        assert (dataset is None) is not root
        if root:
            digests[solver]["dataset"] = {name: _digest(v) for name, (_, v, _) in dataset.items()}
        if solver == "blood":
            cells = simulation.cells()
            assert (cells is None) is not root
            surface = simulation.membranes()
            assert (surface is None) is not root
            if root:
                parts = [*surface.arrays, *surface.cell_data.values()]
                digests["membranes"] = [_digest(part) for part in parts]
                digests["cells"] = [cells["kind"].tolist(), cells["x_um"].round(9).tolist()]
    return digests


if __name__ == "__main__":
    sys.modules.update(stand_ins())
    report = digests_by_solver()
    if "cells" in report:
        print(json.dumps(report))
