"""Small cases of all solvers as dicts, whose first state is a known function of the position."""

from __future__ import annotations

from typing import Any

_COMMON = {"machine": {"device": "cpu", "threads": 1}}
_WALLS = dict.fromkeys(("y_low", "y_high", "z_low", "z_high"), "no-slip")
SLOPE = (3.0, -2.0, 1.0)
"""Gradient of the field that rises evenly, in its unit per size of the case."""

CASES: dict[str, tuple[str, float, dict[str, Any]]] = {
    "cavity": (
        "T",
        0.05,
        {
            "solver": "cavity",
            "cavity": {"nodes": [12, 6, 7], "size": [0.04, 0.03, 0.05]},
            "run": {"steps": 4},
        },
    ),
    "flow": (
        "p",
        2.0,
        {
            "solver": "flow",
            "flow": {
                "box": {"cells": [3, 2, 2], "upper": [2.0, 1.0, 1.0]},
                "fluid": {"density": 2.0, "viscosity": 0.5},
                "boundaries": {**_WALLS, "x_low": {"speed": 1.0}, "x_high": "open"},
                "time": {"scheme": "bdf2", "time_step": 0.1, "end": 0.4},
            },
        },
    ),
    "maxwell": (
        "Ez",
        0.3,
        {
            "solver": "maxwell",
            "maxwell": {
                "order": 3,
                "end_time": 1e-10,
                "box": {"elements": [3, 2, 2], "lower": [-0.1] * 3, "upper": [0.2] * 3},
                "boundaries": dict.fromkeys(("x-", "x+", "y-", "y+", "z-", "z+"), "pec"),
            },
        },
    ),
    "blood": (
        "p",
        1e-5,
        {
            "solver": "blood",
            "blood": {
                "spacing_um": 1.0,
                "tube": {"radius_um": 5.0, "length_um": 12.0, "periodic": True},
                "pressure_gradient_pa_m": [1e4, 0.0, 0.0],
            },
            "run": {"steps": 4},
        },
    ),
}
"""By solver: the field that rises evenly, the size in m, and the tables of the case."""

CELLS = {
    "blood.tube": {"radius_um": 6.0, "length_um": 14.0, "periodic": True},
    "blood.initial": {},
    "blood.cells": [
        {"name": name, "shape": "sphere", "radius_um": 2.0, "vertices": 42, "placed": [place]}
        for name, place in (
            ("left", {"position_um": [3.5, 0.0, 0.0]}),
            ("right", {"position_um": [10.5, 0.0, 0.0]}),
        )
    ],
}
"""Settings that put two cells of different kinds into the case of blood."""


def case_of(solver: str, **output: Any) -> dict[str, Any]:
    """Tables of a small case of a solver; `output`: keys of its table `output`."""
    field, size, tables = CASES[solver]
    rise = " + ".join(f"({slope / size})*{axis}" for slope, axis in zip(SLOPE, "xyz", strict=True))
    own = {**tables[solver], "initial": {field: f"10 + {rise}"}}
    return {**tables, **_COMMON, solver: own, "output": {"picture": False, **output}}
