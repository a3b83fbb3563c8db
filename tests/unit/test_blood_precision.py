"""Claims about cells, which are in double precision, in a fluid that is not."""

from __future__ import annotations

from typing import Any

import numpy as np

from haloscope.case.tables import check
from haloscope.device.cpu import CpuDevice
from haloscope.exchange.ranks.world import World
from haloscope.run import Simulation
from haloscope.solvers.blood.case import BloodCase


def moved(**precision: str) -> tuple[np.ndarray, Any]:
    """How far vertices have gone in 60 steps, in spacings, and the solver."""
    table = {
        "spacing_um": 1.0,
        "relaxation_time": 1.5,
        "channel": {"size_um": [16.0, 12.0, 16.0], "periodic": ["x", "z"]},
        "pressure_gradient_pa_m": [2.0e7, 0.0, 1.0e7],
        "cells": [{"vertices": 92, "hematocrit": 0.08, "viscosity_ratio": 2.0}],
        **precision,
    }
    case = check({"solver": "blood", "blood": table}, BloodCase, "test")
    solver = Simulation(case, device=CpuDevice(threads=1), world=World()).solver
    start = solver.suspension.table(0)[1][:, 0].copy()
    solver.advance(60)
    return solver.suspension.table(0)[1][:, 0] - start, solver


def test_cells_in_single_and_half_precision_go_where_they_go_in_double():
    double, _ = moved()
    assert np.abs(double).max() > 1
    errors = []
    for more, kept in (({}, np.float32), ({"storage": "half"}, np.float16)):
        positions, solver = moved(precision="single", **more)
        assert solver.fluid.state.source.dtype == kept
        assert solver.suspension.kinds[0].membranes.positions.dtype == np.float64
        errors.append(np.abs(positions - double).max())
    assert 0 < errors[0] < 3e-5
    assert errors[0] < errors[1] < 3e-3
