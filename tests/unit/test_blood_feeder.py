"""Claims about periodic flows that feed vessels: their sections, their numbers of cells, what they hand over."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from open_vessels import CELLS, SPEED, cells_there, ends, solver_of, tube, volumes
from refusals import refused

from haloscope.errors import InputError
from haloscope.exchange.ranks.world import World
from haloscope.mesh.blocks import SIDES
from haloscope.solvers.blood.case_cells import CellsTable
from haloscope.solvers.blood.cell_in_outflow import PreInlet
from haloscope.solvers.blood.filling.filling import filling_of
from haloscope.solvers.blood.periodic_flow import best_length, segment_of, whole_cells
from haloscope.solvers.blood.sizing import estimate
from haloscope.solvers.blood.solver import BloodSolver

FED = {**CELLS, "hematocrit": 0.12}


def feeder_of(solver: BloodSolver) -> PreInlet:
    """Of the one opening that is fed."""
    (feeder,) = solver.traffic.feeders.values()
    return feeder


def fed_channel(side: Any, **cells: Any) -> BloodSolver:
    """A short channel that is fed at a side, open at the opposite one."""
    (other,) = [s for s in SIDES if s.axis == side.axis and s != side]
    size = [12.0, 13.0, 14.0]
    return solver_of(
        channel={"size_um": size, "open": ["xyz"[side.axis]], "periodic": []},
        openings=ends(side.name, other.name, feeds=True),
        cells=[{**FED, **cells}],
    )


@pytest.mark.parametrize("side", SIDES, ids=lambda side: side.name)
def test_a_segment_ends_where_its_opening_is(side):
    lattice = fed_channel(side).vessel.lattice
    (opening,) = [o for o in lattice.openings if o.name == side.name]
    segment = segment_of(lattice, opening, 15, World())
    assert segment.lattice.shape[side.axis] == segment.length == 15
    assert segment.lattice.count == 15 * len(opening.numbers)
    assert segment.lattice.periodic == tuple(axis == side.axis for axis in range(3))
    # Its section is that of the opening, and the next point along the way in is the opening itself.
    ahead = np.zeros(3, int)
    ahead[side.axis] = 15 if segment.sign > 0 else -15
    coordinates = segment.section + segment.offset + ahead
    assert np.array_equal(coordinates, lattice.coordinates(opening.numbers))
    assert segment.lattice.contains(segment.section_numbers()).all()
    own = segment.lattice.coordinates(segment.lattice.points) + segment.offset
    beyond = segment.sign * (opening.plane - own[:, side.axis])
    assert (beyond.min(), beyond.max()) == (1, 15)
    assert np.allclose(
        segment.lattice.origin, lattice.origin + lattice.spacing * segment.offset, atol=1e-15
    )


def test_a_segment_closes_where_its_vessel_does():
    solver = solver_of(
        channel={"size_um": [24.0, 10.0, 12.0], "open": ["x"], "periodic": ["z"]},
        openings=ends("x_low", "x_high", feeds=True),
        cells=[FED],
    )
    segment = feeder_of(solver).segment
    assert segment.lattice.periodic == (True, False, True)
    assert segment.lattice.shape[2] == 12
    part = feeder_of(solver).medium.part
    distances = segment.distances(part, 2.0)
    y = part.coordinates[:, 1]
    nearest = np.minimum(y, segment.lattice.shape[1] - 1 - y) + 0.5
    assert np.allclose(distances, np.where(nearest <= 2.0, nearest, np.inf))


@pytest.mark.parametrize("hematocrit", [0.005, 0.12, 0.3])
def test_whole_cells_with_their_share_are_the_hematocrit_asked(hematocrit):
    solver = solver_of(**tube(openings=ends(feeds=True), cells=[FED]))
    lattice = solver.vessel.lattice
    opening, spacing = lattice.openings[0], lattice.spacing
    kinds = [
        CellsTable(**{**CELLS, "hematocrit": hematocrit}),
        CellsTable(**{**CELLS, "name": "none"}),
    ]
    length = best_length(len(opening.numbers), spacing, kinds)
    # Three to four times the widest cell.
    assert 12 <= length <= 16
    points = length * len(opening.numbers)
    cells, shares = whole_cells(kinds, points, spacing)
    volume = filling_of(kinds[0]).volume * 1e-18
    count = cells[0].hematocrit * points * spacing**3 / volume
    assert count == pytest.approx(round(count), abs=1e-9)
    assert round(count) >= 1
    assert shares[0] * round(count) * volume == pytest.approx(hematocrit * points * spacing**3)
    assert shares[0] <= 1.0
    assert (cells[1].hematocrit, shares[1]) == (0.0, 0.0)
    if hematocrit > 0.1:
        assert shares[0] > 0.9


@pytest.mark.parametrize("side", SIDES, ids=lambda side: side.name)
def test_cells_come_in_as_they_are_in_the_segment(side):
    solver = fed_channel(side, shape="biconcave", radius_um=2.5)
    feeder, lattice = feeder_of(solver), solver.vessel.lattice
    cells, mesh = feeder.entering[0], solver.suspension.kinds[0].kind.mesh
    threshold = cells.threshold
    while not len(cells.ids):
        solver.advance(20)
        assert solver.step < 3000
    ids, state = solver.suspension.table(0)
    number, source = cells.ids[-1], cells.sources[-1]
    copy = state[np.searchsorted(ids, number), 0]
    twin = feeder._cells.table(0)[1][source, 0]
    # The copy's foremost vertices are just behind the plane, the rest is before it.
    depth = threshold.depths(copy)
    assert 0.0 <= depth.max() < 1.0
    assert depth.min() < -1.0
    shift = copy - twin
    along = np.zeros(3)
    along[side.axis] = 1.0
    turns = np.rint((shift[0] - feeder.segment.offset)[side.axis] / feeder.segment.length)
    wanted = feeder.segment.offset + turns * feeder.segment.length * along
    assert np.allclose(shift, wanted, atol=1e-9)
    assert volumes(copy[None], mesh.triangles) == pytest.approx(mesh.volume(), rel=0.05)
    # What is before the plane goes on as in the segment, though the fluid of the vessel is not there.
    solver.advance(40)
    ids, state = solver.suspension.table(0)
    after = state[np.searchsorted(ids, number), 0]
    hind = threshold.depths(after) < threshold.deep
    moved = feeder._cells.table(0)[1][source, 0] - twin
    assert hind.sum() > 10
    assert np.allclose((after - copy)[hind], moved[hind], atol=1e-9)
    assert ((after - copy)[hind] @ threshold.normal).min() > 0.0
    assert lattice.openings[0].plane in (0, lattice.shape[side.axis] - 1)


def test_as_much_flows_in_the_segment_as_into_the_vessel():
    solver = solver_of(
        **tube(
            openings=ends(feeds=True, signal="1 + 0.5*sin(6.3e3*t)"),
            cells=[{**CELLS, "hematocrit": 0.3}],
        )
    )
    feeder = feeder_of(solver)
    for _ in range(12):
        solver.advance(100)
        wanted = solver._drive.inflow()["inlet"] / solver.units.velocity
        # At first the fluid flows as it would without cells.
        assert feeder._drive.speed() == pytest.approx(
            wanted, rel=0.15 if solver.step < 500 else 0.1
        )
        # What flows into the vessel is what the case says, whatever the segment does.
        flow = solver.diagnostics()["flow_inlet"]
        points = len(solver.vessel.lattice.openings[0].numbers)
        asked = wanted * solver.units.velocity * points * solver.units.spacing**2
        assert flow == pytest.approx(asked, rel=2e-2, abs=0.0)


def test_a_slow_segment_whose_force_is_set_rarely_flows_as_the_vessel_does():
    table = tube(openings=ends(feeds=True, value=SPEED / 10), cells=[{**CELLS, "hematocrit": 0.3}])
    solver = solver_of(**table)
    assert solver._steps_between_checks == 50
    feeder = feeder_of(solver)
    speeds = []
    for _ in range(30):
        solver.advance(50)
        speeds.append(feeder._drive.speed() * solver.units.velocity / (SPEED / 10))
    # At first the fluid flows as it would without cells; these hold it back four times as much.
    assert np.allclose(speeds[:4], 1.0, atol=0.25)
    assert np.allclose(speeds[4:], 1.0, atol=0.15)
    assert np.allclose(speeds[-10:], 1.0, atol=0.04)
    assert max(np.abs(np.diff(speeds[4:]))) < 0.04


def test_the_mean_velocity_of_a_segment_is_that_of_its_points():
    feeder = feeder_of(fed_channel(SIDES[0]))
    fluid, axis = feeder.medium.fluid, feeder.segment.axis
    along = fluid.velocity.reshape(3, fluid.stride)[axis, : fluid.owned]
    values = np.random.default_rng(4).uniform(-0.2, 0.3, fluid.owned)
    for bad, counts_as in ((0.1, 0.1), (np.nan, 0.0), (7.0, 1.0), (-np.inf, -1.0)):
        along[:] = values
        along[17] = bad
        values[17] = counts_as
        assert feeder._drive.speed() == pytest.approx(
            feeder.segment.sign * values.mean(), rel=1e-12
        )


def test_velocities_at_the_inlet_are_those_of_the_segment_and_others_where_asked():
    for profile, blunt in (("parabolic", True), ("uniform", False)):
        entry = ends(feeds=True, profile=profile)
        solver = solver_of(**tube(openings=entry, cells=[{**CELLS, "hematocrit": 0.3}]))
        solver.advance(600)
        feeder = feeder_of(solver)
        assert feeder.sets_velocities is blunt
        part, segment = solver.part, feeder.segment
        there = np.flatnonzero(part.openings[part.bulk : part.owned] == 0) + part.bulk
        velocity = solver.fluid.moments()[1][:, there]
        if not blunt:
            assert np.allclose(velocity[0], SPEED / solver.units.velocity)
            continue
        inner = feeder.medium.part
        order = np.argsort(inner.numbers[: inner.owned])
        numbers = segment.section_numbers()
        at = order[np.searchsorted(inner.numbers[: inner.owned][order], numbers)]
        fluid = feeder.medium.fluid
        wanted = fluid.velocity.reshape(3, -1)[:, at]
        order = np.searchsorted(solver.vessel.lattice.openings[0].numbers, part.numbers[there])
        more, relative = velocity - wanted[:, order], feeder._profile[order]
        assert np.abs(velocity[1:]).max() > 0.0
        # But for what makes up the flow that is asked for.
        share = more[0] @ relative / (relative @ relative)
        assert np.allclose(more, [share * relative, *np.zeros((2, len(relative)))], atol=1e-12)
        assert abs(share) < 0.1 * velocity[0].mean()


def test_an_inlet_that_feeds_flows_backwards_where_its_signal_says_so():
    for profile in ("parabolic", "uniform"):
        entry = ends(feeds=True, profile=profile, signal="cos(6.3e3*t)")
        solver = solver_of(**tube(openings=entry, cells=[FED]))
        feeder = feeder_of(solver)
        points = len(solver.vessel.lattice.openings[0].numbers)
        flows = []
        for _ in range(9):
            solver.advance(200)
            now = solver._drive.inflow()["inlet"]
            flows.append(now)
            flow = solver.diagnostics()["flow_inlet"]
            assert flow == pytest.approx(now * points * solver.units.spacing**2, rel=1e-9, abs=0.0)
            if now < -0.5 * SPEED:
                # The segment waits, and what was on its way in is gone.
                assert abs(feeder._drive.speed()) < 0.02 * SPEED / solver.units.velocity
                assert not len(feeder.entering[0].ids)
        assert min(flows) < -0.5 * SPEED
        assert solver.traffic.left_through[0, 0] > 0


def test_cells_on_their_way_in_wait_where_the_flow_stands_still():
    entry = ends(feeds=True, signal="0.5 + 0.5*tanh(3e6*(2.5e-4 - t))")
    solver = solver_of(**tube(openings=entry, cells=[{**CELLS, "hematocrit": 0.3}]))
    feeder = feeder_of(solver)
    solver.advance(940)
    waiting = feeder.entering[0].ids.tolist()
    assert waiting
    solver.advance(200)
    assert solver._drive.inflow()["inlet"] == 0.0
    assert feeder.entering[0].ids.tolist() == waiting
    assert solver.traffic.left_through[0].tolist() == [0]


def test_cells_are_handed_over_anew_when_one_comes_in(monkeypatch):
    # It may be faster than those that were there when it was last found out for how long they may wait.
    handed: list[int] = []
    solver = solver_of(**tube(openings=ends(feeds=True), cells=[{**CELLS, "hematocrit": 0.3}]))
    real = solver.suspension.migrate

    def migrate() -> None:
        handed.append(solver.step)
        real()

    monkeypatch.setattr(solver.suspension, "migrate", migrate)
    came = []
    for _ in range(40):
        before = solver.traffic.entered[0]
        solver.advance(solver._steps_between_checks)
        if solver.traffic.entered[0] > before:
            came.append(solver.step)
    assert came
    assert set(came) <= set(handed)


def test_after_a_restart_the_inlet_has_the_velocities_that_it_had():
    table = tube(openings=ends(feeds=True), cells=[{**CELLS, "hematocrit": 0.3}])
    one, two = solver_of(**table), solver_of(**table)
    one.advance(130)
    two.restore(one.step, one.scalars(), one.owned)
    two.restore_extras({key: np.array(value) for key, value in one.extras().items()})
    assert np.array_equal(two._moments(), one._moments())
    one.follow()
    for solver in (one, two):
        solver.advance(1)
    assert two.follow() == one.follow()


@pytest.mark.parametrize(
    "vessel",
    [
        tube(openings=ends(feeds=True)),
        {
            "channel": {"size_um": [24.0, 10.0, 12.0], "open": ["x"], "periodic": ["z"]},
            "openings": ends("x_low", "x_high", feeds=True),
        },
    ],
    ids=["tube", "channel"],
)
def test_what_a_feeder_takes_is_counted_before_a_run(vessel):
    solver = solver_of(**vessel, cells=[FED])
    table = solver._table
    memory = []
    for feeds in (True, False):
        openings = (table.openings[0].model_copy(update={"feeds": feeds}), table.openings[1])
        blood = table.model_copy(update={"openings": openings})
        memory.append(estimate(solver._case.model_copy(update={"blood": blood}))["memory_bytes"])
    points = table.vessel.points(table.spacing)
    counted = points * (memory[0] / memory[1] - 1)
    # Segments have three to four times the length of a cell, and no point on a wall.
    assert 0.6 * counted < feeder_of(solver).medium.lattice.count < 1.05 * counted


def test_the_inlet_that_feeds_is_named_where_cells_do_not_fit(monkeypatch):
    def refuse(*arguments: Any, **more: Any) -> None:
        raise InputError("0.12 is beyond packing", location="hematocrit")

    monkeypatch.setattr("haloscope.solvers.blood.cell_in_outflow.starting_cells", refuse)
    with refused(
        location="^blood.openings inlet, periodic flow that feeds cells: hematocrit$",
        problem="beyond packing",
    ):
        solver_of(**tube(openings=ends(feeds=True), cells=[FED]))


def test_cells_that_keep_an_elastic_shape_do_not_feed_momentum_that_alternates():
    # Halfway walls keep momentum that changes its sign from point to point and step to step; membranes that
    # went with it would push it on, until they break. It took these cells 5,000 steps.
    solver = solver_of(
        tube={"radius_um": 5.0, "length_um": 12.0},
        pressure_gradient_pa_m=[8 * 1.2e-3 * SPEED / 25e-12, 0.0, 0.0],
        cells=[{**CELLS, "vertices": 162, "hematocrit": 0.3}],
    )
    fluid, part = solver.fluid, solver.part
    sign = 1 - 2 * (part.coordinates[: part.owned, 0] % 2)
    speeds = []
    for _ in range(4):
        solver.advance(500)
        u = fluid.moments()[1][0]
        speeds.append(abs(float((u * sign).mean())) / float(u.mean()))
    assert max(speeds) < 1e-3
    assert math.isfinite(solver.diagnostics()["largest_speed"])
    assert len(cells_there(solver)) > 5
