"""Claims about cells that pass openings: counted out, fed in, the right way out, kept by a restart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from haloscope.case import check
from haloscope.device import open_device
from haloscope.domain.blocks import SIDES
from haloscope.errors import InputError
from haloscope.exchange.world import World
from haloscope.run import Simulation
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.feeder import Feeder
from haloscope.solvers.blood.solver import BloodSolver

# Small cells in a slow flow: they keep their shapes.
CELLS = {
    "vertices": 42,
    "elements": "linear",
    "shape": "sphere",
    "radius_um": 2.0,
    "shear_modulus_un_m": 30.0,
    "area_ratio": 1.0,
    "bending_modulus_j": 1e-18,
}
SPEED = 0.01


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


def test_a_cell_that_comes_to_an_outlet_leaves_and_is_counted():
    placed = [{"position_um": [6.0, 0.0, 0.0]}, {"position_um": [18.0, 0.5, 0.0]}]
    solver = solver_of(**tube(openings=ends(), cells=[{**CELLS, "placed": placed}]))
    suspension, traffic = solver.suspension, solver.traffic
    outlet = solver.vessel.lattice.openings[1]
    for _ in range(20):
        before = cells_there(solver)
        solver.advance(10)
        if traffic.left[0]:
            break
    assert (suspension.kinds[0].total, traffic.left, traffic.entered) == (1, [1], [0])
    told = solver.finish(None, {})
    assert told.summary["cells_through_openings"] == {
        "red-cell": {
            "came_in": 0,
            "left": 1,
            "left_through": {"inlet": 0, "outlet": 1},
        }
    }
    assert "red-cell: 0 came in, 1 left (inlet 0, outlet 1)" in told.lines
    # It was still whole within the vessel, at its end.
    assert outlet.plane - 4 < before[1, :, 0].max() < outlet.plane
    # The other one stays, and goes on.
    assert suspension.table(0)[0].tolist() == [0]
    assert cells_there(solver)[0, :, 0].mean() > before[0, :, 0].mean()


def test_an_opening_that_feeds_keeps_the_number_of_cells():
    solver = solver_of(
        **tube(openings=ends(feeds=True), cells=[{**CELLS, "hematocrit": 0.12}], seed=3)
    )
    traffic, kind = solver.traffic, solver.suspension.kinds[0]
    start, counts = kind.total, []
    for _ in range(25):
        solver.advance(25)
        assert kind.total == start + traffic.entered[0] - traffic.left[0]
        counts.append(kind.total)
    # Each cell was replaced, more than once, at the hematocrit that was asked for: by the volume of meshes.
    assert min(traffic.left[0], traffic.entered[0]) > start
    lattice = solver.vessel.lattice
    points = len(lattice.openings[0].numbers)
    entered = SPEED * solver.time * points * lattice.spacing**2
    asked = 0.12 * entered / (kind.kind.mesh.volume() * lattice.spacing**3)
    assert abs(traffic.entered[0] - asked) < 0.1 * asked
    # Fewer than at the start, for in open ends there are no parts of cells, and those in the middle
    # are fast.
    assert 0.4 * start < np.mean(counts[5:]) < 1.1 * start
    assert min(counts[5:]) >= 1
    ids, _ = solver.suspension.table(0)
    assert len(set(ids.tolist())) == kind.total
    assert ids.max() == start + traffic.entered[0] - 1


def test_without_feeding_a_vessel_drains():
    solver = solver_of(**tube(openings=ends(), cells=[{**CELLS, "hematocrit": 0.12}]))
    start = solver.suspension.kinds[0].total
    solver.advance(450)
    assert start > 3
    assert (solver.traffic.left, solver.traffic.entered) == ([start], [0])
    assert solver.suspension.kinds[0].total == 0
    assert np.isfinite(solver.diagnostics()["largest_speed"])


@pytest.mark.parametrize("what", ["entered", "left"])
def test_a_restart_from_a_step_at_which_a_cell_passed_has_the_same_bits(what):
    given = tube(openings=ends(feeds=True), cells=[{**CELLS, "hematocrit": 0.12}])
    one, two = solver_of(**given), solver_of(**given)
    for _ in range(60):
        before = list(getattr(one.traffic, what))
        one.advance(5)
        if getattr(one.traffic, what) != before:
            break
    assert getattr(one.traffic, what) != before
    two.restore(one.step, one.scalars(), one.owned)
    two.restore_extras({key: np.array(value) for key, value in one.extras().items()})
    for _ in range(3):
        assert np.array_equal(two.fluid.populations(), one.fluid.populations())
        assert np.array_equal(cells_there(two), cells_there(one))
        one.advance(7)
        two.advance(7)


def test_no_cell_leaves_where_the_fluid_comes_in_by_a_pressure():
    openings = [
        {"name": "inlet", "kind": "pressure", "value": 200.0},
        {"name": "outlet", "kind": "pressure"},
    ]
    solver = solver_of(**tube(openings=openings, cells=[{**CELLS, "hematocrit": 0.12}]))
    solver.advance(60)
    assert solver.traffic.left_through[0].tolist() == [0]


def test_a_profile_with_another_mean_feeds_what_flows():
    came = []
    for value, profile in ((SPEED, "uniform"), (SPEED / 3, "3")):
        inlet = {"feeds": True, "value": value, "profile": profile}
        given = tube(openings=ends(**inlet), cells=[{**CELLS, "hematocrit": 0.12}])
        solver = solver_of(**given)
        solver.advance(150)
        came.append(solver.traffic.entered[0])
    assert came[0] == came[1] > 2


def test_a_restart_goes_on_with_the_same_cells_and_feeder():
    given = tube(openings=ends(feeds=True), cells=[{**CELLS, "hematocrit": 0.12}])
    one, two = solver_of(**given), solver_of(**given)
    one.advance(130)
    state = {key: np.array(value) for key, value in one.extras().items()}
    two.restore(one.step, one.scalars(), one.owned)
    two.restore_extras(state)
    for key, value in two.extras().items():
        assert np.array_equal(value, state[key]), key
    one.advance(120)
    two.advance(120)
    assert one.traffic.entered[0] > state["traffic counts"][2, 0] > 0
    assert (two.traffic.left, two.traffic.entered) == (one.traffic.left, one.traffic.entered)
    assert np.array_equal(two.traffic.left_through, one.traffic.left_through)
    ids, places = one.suspension.table(0)
    assert np.array_equal(two.suspension.table(0)[0], ids)
    assert np.array_equal(two.suspension.table(0)[1], places)
    for change, words in (
        ({"traffic counts": None}, "does not say how many cells"),
        ({"traffic counts": np.zeros((3, 2))}, "does not say how many cells"),
        ({"traffic out": np.zeros((3, 1), np.int64)}, "at 3 openings and the case has 2"),
        ({"feeder inlet moved": None}, "no feeder 'inlet'"),
        ({"feeder inlet waiting": np.zeros((1, 7))}, "no feeder 'inlet'"),
    ):
        changed = {key: value for key, value in (state | change).items() if value is not None}
        with pytest.raises(InputError, match=words):
            two.traffic.restore(changed)
    # A checkpoint from before openings were told apart.
    del state["traffic out"]
    two.traffic.restore(state)
    assert not two.traffic.left_through.any()


@pytest.mark.parametrize(
    ("vessel", "outlets", "steps"),
    [
        (
            {
                "bifurcation": {
                    "radius_um": 6.0,
                    "parent_length_um": 14.0,
                    "daughter_length_um": 16.0,
                }
            },
            2,
            400,
        ),
        ({"tree": {"radius_um": 8.0, "length_um": 16.0, "generations": 2}}, 4, 800),
    ],
    ids=["bifurcation", "tree"],
)
def test_no_cell_is_lost_where_vessels_part(vessel, outlets, steps):
    solver = solver_of(
        **vessel,
        openings=[
            {"name": "inlet", "kind": "velocity", "value": SPEED, "feeds": True},
            *({"name": f"outlet-{n + 1}", "kind": "pressure"} for n in range(outlets)),
        ],
        cells=[{**CELLS, "hematocrit": 0.08}],
    )
    traffic, kind = solver.traffic, solver.suspension.kinds[0]
    start = kind.total
    shape = np.array(solver.vessel.lattice.shape)
    for _ in range(steps // 20):
        solver.advance(20)
        vertices = cells_there(solver)
        assert len(vertices) == kind.total == start + traffic.entered[0] - traffic.left[0]
        assert ((vertices > -1) & (vertices < shape)).all()
    assert traffic.left[0] > 3
    assert traffic.entered[0] > 3
    # All branches take cells.
    through = traffic.left_through[:, 0].tolist()
    assert through[0] == 0
    assert min(through[1:]) > 0
    assert sum(through) == traffic.left[0]


def _negative(values: np.ndarray) -> np.ndarray:
    return np.full_like(values, -5)


def _not_a_number(values: np.ndarray) -> np.ndarray:
    return np.full(values.shape, np.nan)


@pytest.mark.parametrize(
    ("damage", "bearable"),
    [
        (_not_a_number, {"feeder inlet waiting"}),
        (
            _negative,
            # Places and sums may be negative, and nothing waits.
            {"sphere vertices", "feeder inlet waiting", "wall stress sums", "cell table"},
        ),
        (lambda values: values.reshape(-1)[:-1], set()),
        (lambda values: values[..., None], set()),
        (lambda values: np.full(values.shape, b"text"), set()),
        (
            lambda values: np.full(values.shape, 0.5),
            {"sphere vertices", "feeder inlet moved", "feeder inlet waiting", "wall stress sums"},
        ),
        (
            lambda values: np.full(values.shape, 1e300),
            {"feeder inlet moved", "feeder inlet waiting"},
        ),
    ],
    ids=["nan", "negative", "short", "deep", "text", "halves", "huge"],
)
def test_damaged_arrays_of_a_checkpoint_are_refused_in_one_line(damage, bearable):
    given = tube(
        openings=ends(feeds=True),
        cells=[{**CELLS, "name": "sphere", "hematocrit": 0.12}],
        profile={"interval": 10, "bins": 4},
    )
    one, two = solver_of(**given), solver_of(**given)
    one.advance(20)
    state = {key: np.array(value) for key, value in one.extras().items()}
    two.restore(one.step, one.scalars(), one.owned)
    taken = set()
    for key, values in state.items():
        try:
            two.restore_extras({**state, key: damage(values)})
        except InputError as told:
            assert "\n" not in str(told)
            continue
        taken.add(key)
    # Sums are whole numbers of which each is possible; other settings begin anew.
    taken = {key for key in taken if not key.startswith("profile ")}
    assert taken <= bearable
    two.restore_extras(state)
    two.advance(10)


def test_waiting_cells_of_no_kind_and_two_cells_of_one_number_are_refused():
    given = tube(openings=ends(feeds=True), cells=[{**CELLS, "hematocrit": 0.12}])
    solver = solver_of(**given)
    state = {key: np.array(value) for key, value in solver.extras().items()}
    for kind in (1.0, -1.0, 0.5, np.nan, 1e300):
        rows = np.zeros((2, 8))
        rows[:, 4] = 1.0
        rows[1, 0] = kind
        with pytest.raises(InputError, match=r"damaged .* 'feeder inlet waiting'|kinds of waiting"):
            solver.traffic.restore({**state, "feeder inlet waiting": rows})
    [name] = [key for key in state if key.endswith(" numbers")]
    state[name][1] = state[name][0]
    with pytest.raises(InputError, match="have one number"):
        solver.suspension.restore(state)
