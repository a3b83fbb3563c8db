"""Claims about smoothing: creases go, what is smooth stays, and flows that feed use it."""

from __future__ import annotations

import numpy as np
import pytest
from open_vessels import CELLS, cells_there, ends, solver_of, tube, volumes

from haloscope.solvers.blood.membranes.meshes import (
    COLLAPSING,
    CREASED,
    SMOOTHING_STEPS,
    red_cell,
    smoothed,
    sphere,
    triangle_normals,
)


@pytest.mark.parametrize(
    "mesh", [red_cell(642), red_cell(162), sphere(42, 1.0)], ids=["642", "162", "42"]
)
def test_a_smooth_cell_stays_as_it_is(mesh):
    stretched = mesh.vertices * (1.5, 0.8, 0.8)
    for x in (mesh.vertices, stretched):
        assert np.array_equal(smoothed(x, mesh), x)


@pytest.mark.parametrize("vertex", [0, 5, 40, 100])
def test_creases_go_and_the_rest_of_the_cell_stays(vertex):
    mesh = red_cell(162)
    x = mesh.vertices.copy()
    centre = x.mean(axis=0)
    # Through the membrane on the other side.
    x[vertex] = centre - 1.2 * (x[vertex] - centre)
    smooth = smoothed(x, mesh)
    normals, area = triangle_normals(smooth, mesh.triangles)
    folds = (normals[:, None] * normals[mesh.neighbours]).sum(axis=2)
    assert folds.min() > -0.3
    corners = smooth[mesh.triangles]
    sides = ((corners - np.roll(corners, 1, axis=1)) ** 2).sum(axis=(1, 2))
    assert (4 * np.sqrt(3) * area / sides).min() >= 0.25
    moved = np.linalg.norm(smooth - x, axis=1) > 0
    assert moved[vertex]
    assert moved.sum() < 60
    # Far more than a crease takes; the volume stays all the same.
    assert volumes(smooth[None], mesh.triangles) == pytest.approx(
        volumes(x[None], mesh.triangles), rel=2e-3
    )
    assert np.array_equal(x[~moved], mesh.vertices[~moved])


def test_what_feeds_a_vessel_is_kept_smooth_and_says_so():
    solver = solver_of(**tube(openings=ends(feeds=True), cells=[{**CELLS, "hematocrit": 0.12}]))
    (feeder,) = solver.traffic.feeders.values()
    cells = feeder._cells.kinds[0]
    m = cells.membranes
    cell = m.positions.reshape(3, m.capacity, m.vertices)[:, 1]
    one, other = m.mesh.edges[50]
    cell[:, one] = 0.95 * cell[:, other] + 0.05 * cell[:, one]
    assert m.shapes(cells.count).quality[1] < 0.15
    feeder._cells.smooth(CREASED, [np.array([1])])
    assert feeder.smoothed == 0
    feeder._cells.smooth(CREASED, [np.array([0])])
    assert feeder.smoothed == 1
    assert m.shapes(cells.count).quality.min() > 0.15
    assert cells.ids.tolist() == list(range(cells.total))
    results = solver.finish(None, {})
    assert results.summary["feeders"]["inlet"]["smoothed"] == 1
    assert any(
        "creases were smoothed 1 time in the periodic flow before it" in line
        for line in results.lines
    )
    # It goes on, and restarts with the count.
    solver.advance(20)
    other = solver_of(**tube(openings=ends(feeds=True), cells=[{**CELLS, "hematocrit": 0.12}]))
    other.restore(solver.step, solver.scalars(), solver.owned)
    other.restore_extras({key: np.array(value) for key, value in solver.extras().items()})
    assert next(iter(other.traffic.feeders.values())).smoothed == 1


@pytest.mark.parametrize("wanted", [True, False])
def test_creases_of_cells_in_a_vessel_are_smoothed_and_told_unless_they_are_to_stay(wanted):
    closed = {
        "channel": {"size_um": [16.0, 16.0, 16.0], "periodic": ["x", "y", "z"]},
        "cells": [{**CELLS, "hematocrit": 0.05, "membrane_viscosity_un_s_m": 0.02}],
        "smooth_creases": wanted,
    }
    solver = solver_of(**closed)
    cells = solver.suspension.kinds[0]
    m = cells.membranes
    cell = m.positions.reshape(3, m.capacity, m.vertices)[:, 2]
    one, other = m.mesh.edges[50]
    before = cells_there(solver).copy()
    solver.advance(SMOOTHING_STEPS - 1)
    cell = cells.membranes.positions.reshape(3, m.capacity, m.vertices)[:, 2]
    cell[:, one] = 0.97 * cell[:, other] + 0.03 * cell[:, one]
    creased = cells_there(solver).copy()
    assert cells.membranes.shapes(cells.count).quality[2] < COLLAPSING
    solver.advance(1)
    quality = cells.membranes.shapes(cells.count).quality
    results = solver.finish(None, {})
    assert results.summary["creases_smoothed"] == solver.suspension.smoothed == int(wanted)
    assert any("creases of cells were smoothed 1 time" in line for line in results.lines) == wanted
    assert (quality[2] > CREASED) == wanted
    assert cells.ids.tolist() == list(range(cells.total))
    # Others, and most of that cell, stay.
    after = cells_there(solver)
    moved = np.linalg.norm(after - creased, axis=2)
    assert moved[[0, 1]].max() < 0.05
    assert (moved[2] > 0.05).any() == wanted
    assert np.isfinite(after).all()
    assert after.shape == before.shape
    again = solver_of(**closed)
    again.restore(solver.step, solver.scalars(), solver.owned)
    again.restore_extras({key: np.array(value) for key, value in solver.extras().items()})
    assert again.suspension.smoothed == int(wanted)
    for instance in (solver, again):
        instance.advance(150)
    assert np.array_equal(cells_there(again), cells_there(solver))
