"""Small vessels with open ends and small cells in them, for tests of what passes openings."""

from __future__ import annotations

from typing import Any

import numpy as np

from haloscope.case.tables import check
from haloscope.device import open_device
from haloscope.exchange.ranks.world import World
from haloscope.run import Simulation
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.solver import BloodSolver

# Small cells, which keep their shapes, in a fast flow: they go far in few steps.
CELLS = {
    "vertices": 42,
    "elements": "linear",
    "shape": "sphere",
    "radius_um": 2.0,
    "shear_modulus_un_m": 100.0,
    "area_ratio": 1.0,
    "bending_modulus_j": 3e-18,
}
SPEED = 0.03


def solver_of(**table: Any) -> BloodSolver:
    """A case of the blood solver, with its cells in place."""
    data = {"solver": "blood", "blood": {"spacing_um": 1.0, "relaxation_time": 1.5, **table}}
    case = check(data, BloodCase, "test")
    solver = Simulation(case, device=open_device("cpu", threads=1), world=World()).solver
    assert isinstance(solver, BloodSolver)
    return solver


def ends(inlet: str = "inlet", outlet: str = "outlet", **more: Any) -> list[dict[str, Any]]:
    """An opening where the fluid comes in and one where it leaves."""
    entry = {"name": inlet, "kind": "velocity", "value": SPEED, **more}
    return [entry, {"name": outlet, "kind": "pressure"}]


def tube(length: float = 24.0, **more: Any) -> dict[str, Any]:
    """An open tube along x."""
    return {"tube": {"radius_um": 5.0, "length_um": length, "periodic": False}, **more}


def cells_there(solver: BloodSolver) -> np.ndarray:
    """Vertices (n, V, 3) of all cells, in lattice units."""
    vertices: np.ndarray = solver.suspension.table(0)[1][:, 0]
    return vertices


def volumes(vertices: np.ndarray, triangles: np.ndarray) -> np.ndarray:
    """Enclosed volumes, negative where a membrane is inside out."""
    a, b, c = np.moveaxis(vertices[:, triangles], 2, 0)
    return np.einsum("nti,nti->n", a, np.cross(b, c)) / 6
