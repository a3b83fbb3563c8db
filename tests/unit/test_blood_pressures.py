"""Claims about flow between pressures: what goes in comes out, whatever the walls are and however long."""

from __future__ import annotations

import numpy as np
import pytest

from haloscope.case.tables import check
from haloscope.device import open_device
from haloscope.exchange.ranks.world import World
from haloscope.run import Simulation
from haloscope.solvers.blood.case import BloodCase

ENDS = [
    {"name": "inlet", "kind": "pressure", "value": 10.0},
    {"name": "outlet", "kind": "pressure"},
]


def solver_of(**table):
    data = {
        "solver": "blood",
        "blood": {
            "spacing_um": 0.5,
            "relaxation_time": 2.0,
            "tube": {"radius_um": 2.0, "length_um": 12.5, "periodic": False},
            "openings": ENDS,
            **table,
        },
    }
    case = check(data, BloodCase, "test")
    return Simulation(case, device=open_device("cpu", threads=1), world=World()).solver


def flux_by_plane(solver) -> np.ndarray:
    """Flow through each plane of points."""
    u = solver.relative("u").astype(float)
    x = solver.vessel.lattice.coordinates(solver.part.numbers[: solver.part.owned])[:, 0]
    return np.bincount(x, u)


@pytest.mark.parametrize("collision", ["trt", "bgk"])
def test_flow_between_pressures_is_the_same_in_all_planes_and_steps(collision):
    solver = solver_of(collision=collision)
    solver.advance(1500)
    one = flux_by_plane(solver)
    solver.advance(1)
    other = flux_by_plane(solver)
    inner = slice(1, -1)
    assert one[inner] == pytest.approx(np.full(len(one) - 2, one.mean()), rel=0.01)
    assert other == pytest.approx(one, rel=0.01)


def test_pressures_that_are_there_at_the_start_do_not_come_up_again():
    solver = solver_of(initial={"p": "10*(1 - x/12.5e-6)"}, openings=[ENDS[0], ENDS[1]])
    solver.advance(3)
    inlet = solver.vessel.lattice.openings[0].numbers
    at = np.isin(solver.part.numbers[: solver.part.owned], inlet)
    assert solver.relative("p")[at].mean() == pytest.approx(10.0, rel=0.05)
