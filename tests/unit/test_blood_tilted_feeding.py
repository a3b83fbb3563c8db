"""Claims about cells that are fed through ends askew to the axes: the turn, velocities of links, flow, restarts."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from open_vessels import CELLS, SPEED, cells_there, ends, solver_of, volumes
from refusals import refused

from haloscope.mesh.lattice.tilted_openings import TiltedOpening
from haloscope.mesh.surfaces.surface_files import write_stl
from haloscope.solvers.blood.cell_in_outflow import PreInlet
from haloscope.solvers.blood.fed_inlets import FedLinks
from haloscope.solvers.blood.fluid.lattice import VELOCITIES, WEIGHTS
from haloscope.solvers.blood.periodic_flow import require_room
from haloscope.solvers.blood.solver import BloodSolver
from haloscope.solvers.blood.verification.flows import tilted_tube
from haloscope.solvers.blood.vessels.vessels import link_positions, link_weights

RADIUS = 5.0
TILTED = {
    "30": (math.cos(math.pi / 6), 0.3, 0.4),
    "111": (-1.0, 1.0, 1.0),
    "down": (0.2, 0.3, -1.0),
}
CROWD = {**CELLS, "hematocrit": 0.2}
_PUSH = {"strength_pn": 20.0, "range_um": 1.0}


def fed(folder: Path, normal: Any, **more: Any) -> BloodSolver:
    """A tube of 40 um along a direction that is fed at its end in the origin."""
    file = folder / "tube.stl"
    write_stl(str(file), tilted_tube(normal, RADIUS * 1e-6))
    surface = {"file": str(file), "scale_um": 1e6}
    return solver_of(surface=surface, **{"openings": ends(feeds=True), "cells": [CROWD], **more})


def feeder_of(solver: BloodSolver) -> PreInlet:
    """Of the one opening that is fed."""
    (feeder,) = solver.traffic.feeders.values()
    return feeder


def positions(solver: BloodSolver, vertices: np.ndarray) -> np.ndarray:
    """In m, of places in lattice units."""
    lattice = solver.vessel.lattice
    return lattice.origin + lattice.spacing * vertices


@pytest.mark.parametrize("normal", TILTED.values(), ids=TILTED)
def test_a_turned_segment_lies_before_its_end(tmp_path: Path, normal: Any) -> None:
    solver = fed(tmp_path, normal)
    feeder, (opening, _) = feeder_of(solver), solver.vessel.lattice.openings
    segment, turn = feeder.segment, feeder.segment.turn
    assert turn is not None
    assert isinstance(opening, TiltedOpening)
    assert np.allclose(turn.turn @ turn.turn.T, np.eye(3), atol=1e-14)
    assert np.linalg.det(turn.turn) == pytest.approx(1.0)
    inward = segment.sign * np.eye(3)[segment.axis]
    assert np.allclose(turn.turned(inward), -opening.normal, atol=1e-14)
    assert np.allclose(turn.back(turn.turned(np.arange(3.0))), np.arange(3.0))
    # Its points follow each other from the first behind the end, all within the outline.
    own = segment.lattice.coordinates(segment.lattice.points).astype(float)
    there = positions(solver, turn.turned(own) + turn.shift)
    heights = opening.heights(there) * 1e6
    assert np.allclose(np.unique(np.round(heights, 9)), np.arange(segment.length) + 1.0)
    across = np.linalg.norm(
        there - opening.middle - heights[:, None] * 1e-6 * opening.normal, axis=1
    )
    assert across.max() < RADIUS * 1e-6 * 1.001
    assert across.max() > RADIUS * 1e-6 - 1.5e-6
    assert len(segment.section) == pytest.approx(opening.size * 1e12, rel=0.02)
    ahead = inward * segment.length
    section = positions(solver, turn.turned(segment.section + ahead) + turn.shift)
    assert np.allclose(opening.heights(section), 0.0, atol=1e-18)


def test_links_take_the_velocity_of_the_segment_at_their_middles(tmp_path: Path) -> None:
    solver = fed(tmp_path, TILTED["down"])
    feeder, lattice = feeder_of(solver), solver.vessel.lattice
    opening, segment, turn = lattice.openings[0], feeder.segment, feeder.segment.turn
    inlet = feeder._inlet
    assert isinstance(inlet, FedLinks)
    # A velocity that goes straight up and down across the section comes out exactly between its points.
    rng = np.random.default_rng(5)
    slope, constant = 1e-3 * rng.standard_normal((3, 3)), 1e-2 * rng.standard_normal(3)
    slope[:, segment.axis] = 0.0
    fluid, part = feeder.medium.fluid, feeder.medium.part
    places = part.coordinates[: part.owned]
    fluid.velocity.reshape(3, -1)[:, : part.owned] = (places @ slope.T + constant).T
    inlet.set(SPEED)
    thrown = inlet.own_velocities()
    area = opening.size / lattice.spacing**2
    assert thrown.sum() == pytest.approx(SPEED * area, rel=1e-12)
    middles = (link_positions(opening, lattice) - lattice.origin) / lattice.spacing
    local = turn.back(middles - turn.shift)
    velocity = turn.turned(local @ slope.T + constant)
    links = opening.links.astype(np.int64)
    weight = WEIGHTS[1] * (np.abs(links).sum(axis=1) == 1) + WEIGHTS[-1] * (
        np.abs(links).sum(axis=1) == 2
    )
    assert set(WEIGHTS[1:].tolist()) == set(weight.tolist())
    assert {tuple(c) for c in links.tolist()} < {tuple(c) for c in VELOCITIES.tolist()}
    expected = -6 * weight * (links * velocity).sum(axis=1)
    relative = link_weights(opening) * feeder._profile / area
    # Away from the wall, where all four points are there.
    axis_place = local - local @ np.eye(3)[segment.axis][:, None] * np.eye(3)[segment.axis]
    middle = segment.section.mean(axis=0)
    middle[segment.axis] = 0.0
    inner = np.linalg.norm(axis_place - middle, axis=1) < RADIUS - 1.5
    assert inner.sum() > 50
    more = (thrown - expected)[inner]
    lacking = more @ relative[inner] / (relative[inner] @ relative[inner])
    assert np.allclose(more, lacking * relative[inner], atol=1e-14)


def test_cells_come_in_turned_and_go_on_as_in_the_segment(tmp_path: Path) -> None:
    solver = fed(tmp_path, TILTED["30"], cells=[{**CROWD, "shape": "biconcave", "radius_um": 2.5}])
    feeder = feeder_of(solver)
    cells, turn = feeder.entering[0], feeder.segment.turn
    threshold, mesh = cells.threshold, solver.suspension.kinds[0].kind.mesh
    while not len(cells.ids):
        solver.advance(20)
        assert solver.step < 3000
    number, source = cells.ids[-1], cells.sources[-1]
    ids, state = solver.suspension.table(0)
    copy = state[np.searchsorted(ids, number)]
    twin = feeder._cells.table(0)[1][source]
    assert 0.0 <= threshold.depths(copy[0]).max() < 1.0
    assert threshold.depths(copy[0]).min() < -1.0
    # The same shape, turned, somewhere else; and velocities.
    shift = copy[0] - turn.turned(twin[0])
    assert np.allclose(shift, shift[0], atol=1e-9)
    assert np.allclose(copy[1], turn.turned(twin[1]), atol=1e-14)
    assert volumes(copy[:1], mesh.triangles) == pytest.approx(mesh.volume(), rel=0.05)
    solver.advance(40)
    ids, state = solver.suspension.table(0)
    after = state[np.searchsorted(ids, number), 0]
    hind = threshold.depths(after) < threshold.deep
    moved = turn.turned(feeder._cells.table(0)[1][source, 0] - twin[0])
    assert hind.sum() > 10
    assert np.allclose((after - copy[0])[hind], moved[hind], atol=1e-9)
    assert ((after - copy[0])[hind] @ threshold.normal).min() > 0.0


def test_as_many_cells_come_in_as_along_an_axis_and_none_gets_out_elsewhere(tmp_path: Path) -> None:
    entered = []
    steps, hematocrit = 1800, 0.25
    for normal in ((1.0, 0.0, 0.0), TILTED["30"]):
        cells = [{**CROWD, "hematocrit": hematocrit}]
        solver = fed(tmp_path, normal, cells=cells, repulsion=_PUSH)
        feeder = feeder_of(solver)
        unit = np.array(normal) / np.linalg.norm(normal)
        wanted = math.pi * RADIUS**2 * 1e-12 * SPEED
        for _ in range(6):
            solver.advance(steps // 6)
            there = positions(solver, cells_there(solver)) * 1e6
            along = there @ unit
            # Within the wall, and no further before the end than one cell reaches.
            across = np.linalg.norm(there - along[..., None] * unit, axis=2)
            # Walls push within a spacing; a tenth of one may be lost.
            assert across.max() < RADIUS + 0.1
            ids = solver.suspension.table(0)[0]
            inside = ~np.isin(ids, feeder.entering[0].ids)
            assert along[inside].min() > 0.0
            inner = feeder._cells.table(0)[1][:, 0, :, feeder.segment.axis]
            assert along.min() > -np.ptp(inner, axis=1).max() - 0.5
            assert along.max() < 8 * RADIUS + 1.0
        opening = solver.vessel.lattice.openings[0]
        if isinstance(opening, TiltedOpening):
            passed = -solver.fluid.passed(0).sum() * 1e-18 / solver.units.time_step
            assert passed == pytest.approx(wanted, rel=1e-3)
        volume = solver.suspension.kinds[0].kind.mesh.volume() * 1e-18
        area = opening.size if isinstance(opening, TiltedOpening) else len(opening.numbers) * 1e-12
        flow = area * SPEED * solver.time
        entered.append(solver.traffic.entered[0] * volume / flow / hematocrit)
        assert solver.traffic.left_through[0, 0] == 0
    # Cells are faster than the fluid, along any direction alike.
    assert 1.0 < entered[0] < 1.5
    assert entered[1] == pytest.approx(entered[0], rel=0.1)


def test_after_a_restart_a_turned_inlet_has_the_same_bits(tmp_path: Path) -> None:
    one, two = (fed(tmp_path, TILTED["111"]) for _ in range(2))
    one.advance(130)
    assert len(feeder_of(one).entering[0].ids)
    two.restore(one.step, one.scalars(), one.owned)
    two.restore_extras({key: np.array(value) for key, value in one.extras().items()})
    for solver in (one, two):
        solver.advance(60)
    assert np.array_equal(two._moments(), one._moments())
    assert np.array_equal(cells_there(two), cells_there(one))
    assert np.array_equal(
        feeder_of(two)._inlet.own_velocities(), feeder_of(one)._inlet.own_velocities()
    )


def test_an_inlet_with_another_part_of_the_vessel_before_it_is_refused(tmp_path: Path) -> None:
    solver = fed(tmp_path, TILTED["30"])
    lattice = solver.vessel.lattice
    inlet, outlet = lattice.openings
    require_room(lattice, inlet, 4.0)
    # The inlet a little inside, so that the rest of the tube lies before it.
    unit = np.array(TILTED["30"])
    inside = replace(outlet, middle=inlet.middle + 9e-6 * unit, sides=inlet.sides + 9e-6 * unit)
    with refused(
        location="blood.openings outlet.feeds",
        problem=r"part of the vessel lies before it at \(.*\) um",
        allowed="within 4 um before the inlet",
    ):
        require_room(lattice, inside, 4.0)
