"""Claims about cells that pass openings: counted out, fed in, the right way out, kept by a restart."""

from __future__ import annotations

import numpy as np
import pytest
from open_vessels import CELLS, SPEED, cells_there, ends, solver_of, tube
from refusals import refused

from haloscope.errors import InputError


def test_a_cell_that_comes_to_an_outlet_leaves_and_is_counted():
    placed = [{"position_um": [6.0, 0.0, 0.0]}, {"position_um": [18.0, 0.5, 0.0]}]
    solver = solver_of(**tube(openings=ends(), cells=[{**CELLS, "placed": placed}]))
    suspension, traffic = solver.suspension, solver.traffic
    outlet = solver.vessel.lattice.openings[1]
    for _ in range(20):
        before = cells_there(solver)
        solver.advance(50)
        if traffic.left[0]:
            break
    assert (suspension.kinds[0].total, traffic.left, traffic.entered) == (1, [1], [0])
    results = solver.finish(None, {})
    assert results.summary["cells_through_openings"] == {
        "red-cell": {
            "came_in": 0,
            "left": 1,
            "left_through": {"inlet": 0, "outlet": 1},
        }
    }
    assert "red-cell: 0 entered, 1 left (inlet 0, outlet 1)" in results.lines
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
        solver.advance(125)
        assert kind.total == start + traffic.entered[0] - traffic.left[0]
        counts.append(kind.total)
    # Each cell was replaced, more than once, at the hematocrit that was asked for.
    assert min(traffic.left[0], traffic.entered[0]) > start
    lattice = solver.vessel.lattice
    points = len(lattice.openings[0].numbers)
    entered = SPEED * solver.time * points * lattice.spacing**2
    asked = 0.12 * entered / (kind.kind.mesh.volume() * lattice.spacing**3)
    # Cells are faster than the mean of the fluid, as they keep off the walls (Fahraeus).
    assert 0.95 * asked < traffic.entered[0] < 1.6 * asked
    # About as many as at the start are there, with those that are on their way in.
    assert 0.7 * start < np.mean(counts[5:]) < 1.3 * start
    assert min(counts[5:]) >= 0.5 * start
    ids, _ = solver.suspension.table(0)
    assert len(set(ids.tolist())) == kind.total
    assert ids.max() == start + traffic.entered[0] - 1


def test_without_feeding_a_vessel_drains():
    solver = solver_of(**tube(openings=ends(), cells=[{**CELLS, "hematocrit": 0.12}]))
    start = solver.suspension.kinds[0].total
    solver.advance(2250)
    assert start > 3
    assert (solver.traffic.left, solver.traffic.entered) == ([start], [0])
    assert solver.suspension.kinds[0].total == 0
    assert np.isfinite(solver.diagnostics()["largest_speed"])


@pytest.mark.parametrize(("name", "ratio"), [("entered", 1.0), ("entered", 4.0), ("left", 1.0)])
def test_a_restart_from_a_step_at_which_a_cell_passed_has_the_same_bits(name, ratio):
    # What is inside of cells is found every 7 steps.
    table = tube(
        openings=ends(feeds=True),
        cells=[{**CELLS, "hematocrit": 0.12, "viscosity_ratio": ratio}],
        inside_interval=7,
    )
    one, two = solver_of(**table), solver_of(**table)
    for _ in range(300):
        before = list(getattr(one.traffic, name))
        one.advance(5)
        if getattr(one.traffic, name) != before:
            break
    assert getattr(one.traffic, name) != before
    two.restore(one.step, one.scalars(), one.owned)
    two.restore_extras({key: np.array(value) for key, value in one.extras().items()})
    for _ in range(3):
        assert np.array_equal(two.fluid.populations(), one.fluid.populations())
        assert np.array_equal(cells_there(two), cells_there(one))
        one.advance(7)
        two.advance(7)


@pytest.mark.parametrize(
    ("inlet", "more", "steps"),
    [
        ({"value": SPEED / 100}, {}, 50),
        ({"value": SPEED / 100}, {"cell_interval": 200}, 200),
        ({"value": SPEED}, {}, 14),
        ({"value": SPEED / 5}, {}, 50),
        ({"value": SPEED / 5, "profile": "5"}, {}, 29),
        # A spacing in so many steps.
        ({"value": 160 * SPEED}, {"relaxation_time": 0.55}, 7),
        # What flows then is not known before.
        ({"value": SPEED / 100}, {"pressure_gradient_pa_m": [1e3, 0.0, 0.0]}, 10),
        ({"kind": "pressure", "value": 20.0}, {}, 10),
        ({"kind": "pressure", "value": 20.0}, {"cell_interval": 20}, 4),
        ({"value": SPEED / 100, "signal": "1 + sin(t)"}, {}, 4),
    ],
)
def test_openings_are_looked_at_before_cells_have_gone_far(inlet, more, steps):
    solver = solver_of(**tube(openings=ends(**inlet), cells=[CELLS | {"hematocrit": 0.1}], **more))
    assert solver._steps_between_checks == steps


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
        table = tube(openings=ends(**inlet), cells=[{**CELLS, "hematocrit": 0.12}])
        solver = solver_of(**table)
        solver.advance(900)
        came.append(solver.traffic.entered[0])
    assert came[0] == came[1] > 2


def test_a_restart_goes_on_with_the_same_cells_and_feeder():
    table = tube(openings=ends(feeds=True), cells=[{**CELLS, "hematocrit": 0.12}])
    one, two = solver_of(**table), solver_of(**table)
    one.advance(1150)
    state = {key: np.array(value) for key, value in one.extras().items()}
    two.restore(one.step, one.scalars(), one.owned)
    two.restore_extras(state)
    for key, value in two.extras().items():
        assert np.array_equal(value, state[key]), key
    one.advance(400)
    two.advance(400)
    assert one.traffic.entered[0] > state["traffic counts"][2, 0] > 0
    assert (two.traffic.left, two.traffic.entered) == (one.traffic.left, one.traffic.entered)
    assert np.array_equal(two.traffic.left_through, one.traffic.left_through)
    ids, places = one.suspension.table(0)
    assert np.array_equal(two.suspension.table(0)[0], ids)
    assert np.array_equal(two.suspension.table(0)[1], places)
    for change, problem in (
        ({"traffic counts": None}, "lacks the counts of cells"),
        ({"traffic counts": np.zeros((3, 2))}, "lacks the counts of cells"),
        ({"traffic out": np.zeros((3, 1), np.int64)}, "at 3 openings and the case has 2"),
        ({"feeder inlet points": None}, "lacks the periodic flow that feeds 'inlet'"),
        ({"feeder inlet drive": np.zeros(3)}, "its shape is"),
        ({"feeder inlet entering 0": np.full((2, 1), 99)}, "lists unknown cells"),
        ({"feeder inlet entering 0": np.zeros((2, 2))}, "or one twice"),
    ):
        changed = {key: value for key, value in (state | change).items() if value is not None}
        with refused(problem=problem):
            two.traffic.restore(changed, one.step)
    # A checkpoint from before openings were told apart.
    del state["traffic out"]
    two.traffic.restore(state, one.step)
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
            2000,
        ),
        ({"tree": {"radius_um": 8.0, "length_um": 16.0, "generations": 2}}, 4, 4000),
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
    for _ in range(steps // 100):
        solver.advance(100)
        vertices = cells_there(solver)
        assert len(vertices) == kind.total == start + traffic.entered[0] - traffic.left[0]
        # Those that come in are still to some part before the plane of the inlet.
        within = ((vertices > -1) & (vertices < shape)).all(axis=(1, 2))
        entering = solver.traffic.feeders["inlet"].entering[0].ids
        assert within[~np.isin(solver.suspension.table(0)[0], entering)].all()
    assert traffic.left[0] > 3
    assert traffic.entered[0] > 3
    # All branches take cells.
    through = traffic.left_through[:, 0].tolist()
    assert through[0] == 0
    assert min(through[1:]) > 0
    assert sum(through) == traffic.left[0]


# What may be any number.
SIGNED = {
    "feeder inlet inlet",
    "sphere vertices",
    "feeder inlet sphere vertices",
    "feeder inlet points",
    "feeder inlet drive",
}


def _negative(values: np.ndarray) -> np.ndarray:
    return np.full_like(values, -5)


def _not_a_number(values: np.ndarray) -> np.ndarray:
    return np.full(values.shape, np.nan)


@pytest.mark.parametrize(
    ("damage", "bearable"),
    [
        (_not_a_number, set()),
        (_negative, SIGNED | {"feeder inlet turns 0", "wall stress sums", "cell table"}),
        (lambda values: values.reshape(-1)[:-1], set()),
        (lambda values: values[..., None], set()),
        (lambda values: np.full(values.shape, b"text"), set()),
        (
            lambda values: np.full(values.shape, 0.5),
            SIGNED | {"feeder inlet due", "wall stress sums"},
        ),
        (lambda values: np.full(values.shape, 1e300), {"feeder inlet points"}),
    ],
    ids=["nan", "negative", "short", "deep", "text", "halves", "huge"],
)
def test_damaged_arrays_of_a_checkpoint_are_refused_in_one_line(damage, bearable):
    table = tube(
        openings=ends(feeds=True),
        cells=[{**CELLS, "name": "sphere", "hematocrit": 0.12}],
        profile={"interval": 10, "bins": 4},
    )
    one, two = solver_of(**table), solver_of(**table)
    while not len(one.traffic.feeders["inlet"].entering[0].ids):
        one.advance(20)
    state = {key: np.array(value) for key, value in one.extras().items()}
    two.restore(one.step, one.scalars(), one.owned)
    taken = set()
    for key, values in state.items():
        try:
            two.restore_extras({**state, key: damage(values)})
        except InputError as error:
            assert "\n" not in str(error)
            continue
        taken.add(key)
    # Sums are whole numbers of which each is possible; other settings begin anew.
    taken = {key for key in taken if not key.startswith("profile ")}
    assert taken <= bearable
    two.restore_extras(state)
    two.advance(10)


def test_two_cells_of_one_number_are_refused():
    table = tube(openings=ends(feeds=True), cells=[{**CELLS, "hematocrit": 0.12}])
    solver = solver_of(**table)
    state = {key: np.array(value) for key, value in solver.extras().items()}
    for owner, problem in (
        ("", "have the same number"),
        ("feeder inlet ", "cells are missing in the periodic flow that feeds 'inlet'"),
    ):
        name = f"{owner}red-cell numbers"
        damaged = {**state, name: state[name].copy()}
        damaged[name][1] = damaged[name][0]
        with refused(location="checkpoint", problem=problem, remedy="restart from an earlier one"):
            solver.restore_extras(damaged)
