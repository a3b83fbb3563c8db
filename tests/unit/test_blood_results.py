"""Claims about results of blood runs: profiles, viscosity, hematocrits, layer of plasma, wall stress."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from closed_surfaces import tube
from refusals import refused

from haloscope.case.tables import check
from haloscope.device import open_device
from haloscope.exchange.ranks.world import World
from haloscope.mesh.lattice.lattice_parts import take
from haloscope.mesh.surfaces.surface_files import write_stl
from haloscope.numerics.reduce import exact_bin_sums, exact_sum, total
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.coupling.inside import moved_volumes, outermost
from haloscope.solvers.blood.fluid.boundaries import OpeningLinks
from haloscope.solvers.blood.fluid.lattice import VELOCITIES
from haloscope.solvers.blood.membranes.meshes import icosphere, red_cell
from haloscope.solvers.blood.outputs.results import RunResults, flow_lines, wall_warnings
from haloscope.solvers.blood.outputs.wall_stress import (
    distances_and_normals,
    viscous_stress,
    wall_points,
)
from haloscope.solvers.blood.solver import BloodSolver
from haloscope.solvers.blood.vessels.straight_vessels import (
    duct_permeability,
    pries_viscosity,
    straight_vessel,
)


def begin(blood):
    """A solver of a case, and what is to be worked out of its run."""
    case = check({"solver": "blood", "blood": {"spacing_um": 1.0, **blood}}, BloodCase, "test")
    device, world = open_device("cpu", threads=1), World()
    solver = BloodSolver(case, device, world)
    results = RunResults(case, solver.medium, solver.vessel)
    return solver, results


def go(solver, results, steps):
    for _ in range(steps):
        solver.advance(1)
        results.after_step(solver.step)


def run(blood, steps, out=None):
    solver, results = begin({**blood, "profile": {"start": steps, "interval": 1, "bins": 10}})
    solver.advance(steps - 1)
    go(solver, results, 1)
    return results, results.finish(out, solver.step)


# Numbers


def test_viscosity_of_experiments_is_that_of_the_published_formula():
    diameters = (8, 10, 20, 40, 100, 500)
    table = {
        0.2: (1.10, 1.10, 1.18, 1.29, 1.46, 1.67),
        0.3: (1.16, 1.17, 1.31, 1.49, 1.78, 2.14),
        0.45: (1.27, 1.33, 1.59, 1.92, 2.44, 3.11),
    }
    for hematocrit, row in table.items():
        viscosities = [pries_viscosity(diameter, hematocrit) for diameter in diameters]
        assert np.abs(np.array(viscosities) - row).max() < 0.0051
    assert pries_viscosity(20, 0.0) == 1.0


def test_flow_in_a_square_duct_and_between_plates():
    assert duct_permeability(1.0, 1.0) == pytest.approx(0.0351442539, rel=1e-8)
    assert duct_permeability(3.0, 2.0) == duct_permeability(2.0, 3.0)
    assert duct_permeability(2.0, 2e6) == pytest.approx(duct_permeability(2.0, math.inf), rel=1e-5)


def test_sums_are_exact_and_the_same_in_any_order():
    random = np.random.default_rng(1)
    values = random.standard_normal(5000) * 10.0 ** random.integers(-6, 3, 5000)
    bins = random.integers(0, 7, 5000)
    whole = exact_bin_sums(bins, values, 7)
    assert np.array_equal(whole.sum(axis=1), exact_sum(values))
    order = random.permutation(5000)
    parts = [
        exact_bin_sums(bins[chunk], values[chunk], 7) for chunk in np.split(order, [100, 3000])
    ]
    assert np.array_equal(sum(parts), whole)
    # Each number is off by half the fine unit at most.
    for number in range(7):
        assert abs(total(whole)[number] - math.fsum(values[bins == number])) < 1000 * 2.0**-47


def test_volumes_move_with_the_velocity_of_their_centroids():
    mesh = red_cell(162)
    random = np.random.default_rng(2)
    places = mesh.vertices + np.array([[[5.0, -3.0, 9.0]], [[-50.0, 7.0, 1.0]]])
    places = places * random.uniform(0.9, 1.1, places.shape)
    velocities = random.standard_normal(places.shape)
    volume, centre, moved = moved_volumes(places, velocities, mesh.triangles, 1)
    alone = [type(mesh)(vertices, mesh.triangles).volume() for vertices in places]
    assert volume == pytest.approx(alone, rel=1e-12)
    h = 1e-4
    later = moved_volumes(places + h * velocities, velocities, mesh.triangles, 1)[1]
    sooner = moved_volumes(places - h * velocities, velocities, mesh.triangles, 1)[1]
    assert moved / volume == pytest.approx((later - sooner) / (2 * h), abs=1e-6)
    # All move alike.
    moved = moved_volumes(places, np.full(places.shape, 0.25), mesh.triangles, 2)[2]
    assert moved == pytest.approx(0.25 * volume, rel=1e-12)
    assert (centre[0] - centre[1]) == pytest.approx(-10, abs=1.5)


def test_outermost_points_of_a_surface_are_those_of_each_slice():
    mesh = icosphere(3)
    random = np.random.default_rng(3)
    places = np.stack([1.7 * mesh.vertices + shift for shift in ([4.9, 2, 3], [9.2, 0, 1])])
    toward = random.standard_normal((5, 3))
    toward /= np.linalg.norm(toward, axis=1)[:, None]
    # Many points on all triangles.
    corners = random.dirichlet((1, 1, 1), 400)
    points = np.einsum("pk,ntkc->ntpc", corners, places[:, mesh.triangles]).reshape(-1, 3)
    for closed in (True, False):
        extents = outermost(places, places[..., 0], mesh.edges, toward, 10, closed)
        number = np.floor(points[:, 0]).astype(int)
        number = number % 10 if closed else number
        for slice_number in range(10):
            slice_points = points[number == slice_number]
            if not len(slice_points):
                assert (extents[slice_number] == -np.inf).all()
                continue
            nearly = (slice_points @ toward.T).max(axis=0)
            assert (extents[slice_number] >= nearly).all()
            assert extents[slice_number] == pytest.approx(nearly, abs=0.1)
        assert np.isfinite(extents[0]).all() == closed


# Plasma alone


def test_flow_between_plates_has_the_exact_wall_stress_and_viscosity(tmp_path):
    gradient = 1e5
    blood = {
        "pressure_gradient_pa_m": [gradient, 0.0, 0.0],
        "channel": {"size_um": [3.0, 10.0, 3.0], "periodic": ["x", "z"]},
        "relaxation_time": 1.2,
    }
    _, results = run(blood, 1500, tmp_path)
    wall, profile = results.summary["wall_stress"], results.summary["profile"]
    assert wall["points"] == 18
    exact = gradient * 10e-6 / 2
    assert wall["least_pa"] == pytest.approx(exact, rel=3e-6)
    assert wall["largest_pa"] == pytest.approx(exact, rel=3e-6)
    assert profile["wall_stress_by_balance_pa"] == pytest.approx(exact)
    # The mean over ten points exceeds the integral of the parabola by 1/(2 10^2) of it.
    assert profile["apparent_viscosity"] == pytest.approx(1 / 1.005, rel=1e-3)
    y, speed = np.genfromtxt(results.files["profile"], delimiter=",", skip_header=3)[:, 3:5].T
    assert y == pytest.approx(np.arange(10) + 0.5)
    parabola = gradient / (2 * 1.2e-3) * y * (10 - y) * 1e-12 * 1e3
    assert speed == pytest.approx(parabola, rel=2e-3)
    assert (tmp_path / "profile.png").stat().st_size > 10_000
    assert (tmp_path / "wall-stress.vtkhdf").exists()


def test_stress_counts_the_work_of_the_force():
    # A force across the flow, which pressure balances, would show in the stress by u g.
    blood = {
        "pressure_gradient_pa_m": [1e5, 3e7, 0.0],
        "channel": {"size_um": [3.0, 10.0, 3.0], "periodic": ["x", "z"]},
        "relaxation_time": 1.2,
    }
    solver, _ = begin(blood)
    solver.advance(1500)
    populations = solver.fluid.populations()
    force = np.array([1e5, 3e7, 0.0])[:, None] / solver.units.force_density
    force = np.broadcast_to(force, (3, populations.shape[1]))
    shear = viscous_stress(populations, force, 1.2)[3] * solver.units.pressure
    height = solver.part.coordinates[: solver.part.owned, 1] + 0.5
    # The viscosity grows with the density, by the share a in each um, and the flow is zero at both
    # walls: the line of stresses is 0 by G a h^2 / 12 off the middle.
    density = solver.fluid.moments()[0]
    a = (density.max() - density.min()) / 9
    assert a > 3e-3
    assert shear == pytest.approx(1e5 * (5 - height - a * 100 / 12) * 1e-6, abs=2e-5)


@pytest.mark.parametrize(
    ("walls", "axis", "viscosity", "stress"),
    [("halfway", "x", 0.012, 0.4), ("interpolated", "z", 0.01, 0.03)],
)
def test_flow_in_a_tube_has_the_viscosity_of_plasma(walls, axis, viscosity, stress):
    gradient = 1e5 * np.eye(3)["xyz".index(axis)]
    blood = {
        "pressure_gradient_pa_m": gradient.tolist(),
        "tube": {"radius_um": 8.0, "length_um": 3.0, "axis": axis},
        "walls": {"kind": walls},
    }
    _, results = run(blood, 1500)
    profile, wall = results.summary["profile"], results.summary["wall_stress"]
    assert profile["apparent_viscosity"] == pytest.approx(1.0, abs=viscosity)
    assert profile["radius_um"] == pytest.approx(8.0, rel=0.02)
    exact = 1e5 * 8e-6 / 2
    assert wall["mean_pa"] == pytest.approx(exact, rel=0.05)
    # Steps of the lattice disturb the points beside them.
    assert wall["least_pa"] > (1 - stress) * exact
    assert wall["largest_pa"] < (1 + stress) * exact
    along = np.array(wall["mean_vector_pa"])
    assert np.argmax(np.abs(along)) == "xyz".index(axis)


def test_pressure_drives_the_flow_in_an_open_channel():
    blood = {
        "channel": {"size_um": [24.0, 8.0, 2.0], "periodic": ["z"], "open": ["x"]},
        "openings": [
            {"name": "x_low", "kind": "velocity", "value": 2e-3},
            {"name": "x_high", "kind": "pressure"},
        ],
    }
    _, results = run(blood, 2500)
    profile = results.summary["profile"]
    assert profile["mean_speed_m_s"] == pytest.approx(2e-3, rel=5e-3)
    assert profile["apparent_viscosity"] == pytest.approx(1 / (1 + 1 / 128), rel=5e-3)


def test_walls_of_a_surface_have_the_normals_of_the_geometry():
    openings = [{"name": "inlet", "kind": "velocity"}]
    openings += [{"name": f"outlet-{n}", "kind": "pressure"} for n in (1, 2)]
    vessel = {"radius_um": 6.0, "parent_length_um": 12.0, "daughter_length_um": 18.0}
    solver, _ = begin({"bifurcation": vessel, "openings": openings})
    part, points = solver.part, wall_points(solver.part)
    distances, normals = distances_and_normals(solver.vessel, part, points)
    lattice = solver.vessel.lattice
    places = lattice.positions(part.numbers[points]) / lattice.spacing
    parent = (places[:, 0] > 2) & (places[:, 0] < 7)
    across, normals = places[parent, 1:], normals[parent]
    radius = np.linalg.norm(across, axis=1)
    cosine = -(normals[:, 1:] * across).sum(axis=1) / radius
    assert parent.sum() > 100
    assert cosine.min() > 0.99
    assert distances[parent] == pytest.approx(6.0 - radius, abs=0.08)


# By the names of groups; on planes at the caps; on planes before them.
@pytest.mark.parametrize("places", [None, (0.0, 8.0), (0.7, 7.4)])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_layers_before_openings_have_the_wall_stress_of_the_others(tmp_path, axis, places):
    # The caps lie on planes of points, where rounding decides which are inside the surface.
    surface = tube(4.0, 8.0, step=0.5)
    surface = replace(surface, points=np.roll(surface.points, axis, axis=1))
    openings = [
        {"name": "inlet", "kind": "velocity", "value": 1e-3},
        {"name": "outlet", "kind": "pressure"},
    ]
    if places is not None:
        surface = replace(surface, groups=np.zeros_like(surface.groups), names=("wall",))
        for opening, place, direction in zip(openings, places, (-1.0, 1.0), strict=True):
            opening["position_um"] = np.roll([place, 0.0, 0.0], axis).tolist()
            opening["normal"] = np.roll([direction, 0.0, 0.0], axis).tolist()
    write_stl(tmp_path / "tube.stl", surface)
    solver, results = begin({"surface": {"file": str(tmp_path / "tube.stl")}, "openings": openings})
    solver.advance(400)
    results.wall_stress.sample(np.zeros(3))
    layer = solver.part.coordinates[wall_points(solver.part), axis]
    stress = results.wall_stress._magnitude()
    low, high = (opening.plane for opening in solver.vessel.lattice.openings)
    means = np.bincount(layer, stress)[low + 1 : high] / np.bincount(layer)[low + 1 : high]
    assert len(means) >= 6
    assert len(solver.vessel.lattice.openings[0].numbers) > 40
    assert means == pytest.approx(np.full(len(means), means[3]), rel=0.02)


# Cells


# Mass


def _open_tube(walls):
    openings = [
        {"name": "inlet", "kind": "velocity", "value": 0.05},
        {"name": "outlet", "kind": "pressure"},
    ]
    shape = {"radius_um": 4.0, "length_um": 14.0, "periodic": False}
    return begin({"tube": shape, "walls": {"kind": walls}, "openings": openings})[0]


@pytest.mark.parametrize("walls", ["halfway", "interpolated"])
def test_the_mass_in_a_tube_changes_by_what_passes_openings_and_walls(walls):
    solver = _open_tube(walls)
    unit = solver.units.density * solver.units.spacing**3

    def mass():
        return float(solver.fluid.populations()[:, : solver.part.bulk].sum())

    before = mass()
    for _ in range(5):
        solver.advance(1)
        rates = solver.diagnostics()
        change, before = mass() - before, mass()
        at_walls = rates["wall_mass_flow"]
        gain = rates["mass_flow_inlet"] + rates["mass_flow_outlet"] + at_walls
        assert gain * solver.units.time_step / unit == pytest.approx(change, abs=1e-10)
        assert abs(change) > 1e-2
        assert (abs(at_walls) > 1e-3 * rates["mass_flow_inlet"]) == (walls == "interpolated")
    # From populations that a step left with neighbours, too, and that a restart has set.
    passed = solver.fluid.passed_across(1).sum()
    solver.fluid.set_populations(solver.fluid.populations())
    assert solver.fluid.passed_across(1).sum() == pytest.approx(passed, rel=1e-12)


def test_ranks_share_the_links_between_an_opening_and_the_vessel():
    solver = _open_tube("halfway")
    lattice = solver.vessel.lattice
    numbers, shape = lattice.points, lattice.shape
    tags = lattice.opening_numbers(numbers)
    outward = [opening.normal for opening in lattice.openings]

    def links(box):
        part = take(numbers, shape, box, 2, VELOCITIES[1:], openings=tags, outward=outward)
        on_edge = (part.sources >= part.owned).any(axis=0)
        own = OpeningLinks.of(part, 0, on_edge)
        ends = part.numbers[own.points], part.numbers[own.sources]
        return set(zip(*ends, own.directions.tolist(), own.signs.tolist(), strict=True))

    whole = links(((0, 0, 0), shape))
    # Through the plane of the opening, and through planes across it.
    for axis, at in ((0, 1), (1, 4), (2, 3)):
        low, high = list(shape), [0, 0, 0]
        low[axis], high[axis] = at, at
        parts = links(((0, 0, 0), low)), links((high, shape))
        assert parts[0] | parts[1] == whole
        assert not parts[0] & parts[1]
    assert sum(sign for *_, sign in whole) == 0
    assert len(whole) > 8 * len(lattice.openings[0].numbers)


def test_much_that_interpolated_walls_gain_is_a_warning():
    table = _open_tube("interpolated")._table
    rates = {"mass_flow_inlet": 2.0, "mass_flow_outlet": -2.06, "wall_mass_flow": 0.06}
    (line,) = wall_warnings(rates, table)
    assert "gained 3 % of the inflow, so the outflow is too large" in line
    assert "set blood.spacing_um = 0.577 or less" in line
    assert wall_warnings({**rates, "wall_mass_flow": 0.019}, table) == []
    lines = flow_lines({"flow_inlet": 1.0, "flow_outlet": -1.0, **rates}, interpolated=True)
    assert lines[1].endswith("inflow less outflow -3 %, with 3 % gained at interpolated walls")
    rates = {"mass_flow_inlet": 2.0, "mass_flow_outlet": -1.9, "wall_mass_flow": -0.01}
    lines = flow_lines({"flow_inlet": 1.0, "flow_outlet": -1.0, **rates}, interpolated=True)
    assert lines[1].endswith(
        "inflow less outflow 5 %, of which 0.5 % were lost at interpolated walls; 4.5 % are stored in a flow that "
        "is not yet steady"
    )


def _with_a_capsule(profile):
    return {
        "pressure_gradient_pa_m": [3e3, 0.0, 0.0],
        "channel": {"size_um": [14.0, 12.0, 14.0], "periodic": ["x", "z"]},
        "initial": {"u": 5e-3},
        "cells": [
            {
                "shape": "sphere",
                "radius_um": 3.0,
                "vertices": 362,
                "elements": "linear",
                "placed": [{"position_um": [13.13, 5.3, 6.87]}],
            }
        ],
        "profile": profile,
    }


def test_hematocrits_and_the_layer_of_plasma_of_one_capsule():
    solver, results = begin(_with_a_capsule({"start": 1, "bins": 12}))
    go(solver, results, 1)
    profile = results.finish(None, 1).summary["profile"]
    volume = 4 / 3 * math.pi * 27 / (14 * 12 * 14)
    assert profile["tube_hematocrit"] == pytest.approx(volume, rel=0.02)
    means = results.profiles.means()
    share = (means.hematocrit * means.points).sum() / means.points.sum()
    assert share == pytest.approx(volume, rel=0.05)
    # By layers of the ball, which reaches from 2.3 to 8.3 of 12 um.
    assert (means.hematocrit[[0, 1, 8, 9, 10, 11]] == 0).all()
    places = solver.part.coordinates[: solver.part.owned] + 0.5 - (13.13, 5.3, 6.87)
    places[:, [0, 2]] -= 14 * np.round(places[:, [0, 2]] / 14)
    away, layer = np.linalg.norm(places, axis=1), solver.part.coordinates[: solver.part.owned, 1]
    # Flat triangles lie a little inside the ball.
    least, most = (np.bincount(layer[away < r], minlength=12) / 14**2 for r in (2.9, 3.0))
    assert (means.hematocrit >= least - 1e-12).all()
    assert (means.hematocrit <= most + 1e-12).all()
    # Plasma stands still at walls, so that the capsule is faster than the mean.
    faster = 5e-3 / profile["mean_speed_m_s"]
    assert faster > 1.02
    by_cells = profile["discharge_hematocrit"] / profile["tube_hematocrit"]
    by_points = profile["discharge_hematocrit_by_points"] / share
    assert by_cells == pytest.approx(faster, rel=5e-3)
    assert by_points == pytest.approx(faster, rel=5e-3)
    # Slices of the ball along the channel, each as far out as its nearest part to the middle.
    x = np.linspace(10.13, 16.13, 60_001)[1:-1]
    reach = np.sqrt(9 - (x - 13.13) ** 2)
    outer = [reach[np.floor(x) == position].max() for position in np.unique(np.floor(x))]
    assert profile["cell_free_layer_um"] == pytest.approx(6 - np.mean(outer), abs=0.05)
    assert "pries_viscosity" not in profile


def test_a_restart_with_another_time_step_is_refused():
    blood = {"channel": {"size_um": [4.0, 6.0, 5.0]}}
    solver, _ = begin({**blood, "time_step_us": 0.1})
    other, _ = begin({**blood, "time_step_us": 0.05})
    with refused(
        location="checkpoint",
        problem="step is 1e-07 s and that of this case is 5e-08 s; .* lattice",
        remedy="begin anew without --restart",
    ) as refusal:
        other.restore(1, solver.scalars(), solver.owned)
    assert "\n" not in refusal.text


def test_a_restart_takes_a_time_step_that_differs_by_rounding_and_no_other():
    blood = {"channel": {"size_um": [4.0, 6.0, 5.0]}}
    solver, _ = begin(blood)
    step_us = solver.units.time_step * 1e6
    for factor, taken in ((1 + 3e-16, True), (1 - 1e-13, True), (1 + 1e-9, False)):
        other, _ = begin({**blood, "time_step_us": step_us * factor})
        assert other.units.time_step != solver.units.time_step
        if taken:
            other.restore(1, solver.scalars(), solver.owned)
            assert other.step == 1
            continue
        with refused(location="checkpoint") as refusal:
            other.restore(1, solver.scalars(), solver.owned)
        steps = re.search(
            r"step is (\S+) s and that of this case is (\S+) s", refusal.error.problem
        )
        assert steps is not None
        assert [float(time_step) for time_step in steps.groups()] == [
            solver.units.time_step,
            other.units.time_step,
        ]


def test_what_is_followed_after_a_restart_is_that_of_a_run_without_one():
    blood = _with_a_capsule({"start": 3, "interval": 4, "bins": 5})
    blood["drive"] = "1 + sin(1e6*t)"
    solver, _ = begin(blood)
    solver.advance(9)
    solver.follow()
    other, _ = begin(blood)
    values = {name: solver.owned(name) for name in solver.stored}
    other.restore(9, solver.scalars(), values.__getitem__)
    other.restore_extras(solver.extras())
    for instance in (solver, other):
        instance.advance(3)
    assert solver.follow() == other.follow()


def test_a_restart_gives_the_same_means_and_other_samples_begin_anew():
    blood = _with_a_capsule({"start": 3, "interval": 4, "bins": 5})
    solver, results = begin(blood)
    go(solver, results, 9)
    extras = {name: np.array(values) for name, values in results.extras().items()}
    other, resumed = begin(blood)
    values = {name: solver.owned(name) for name in solver.stored}
    other.restore(9, solver.scalars(), values.__getitem__)
    other.restore_extras(solver.extras())
    assert resumed.restore(extras, 9) == ""
    reports = []
    for instance, its in ((solver, results), (other, resumed)):
        go(instance, its, 8)
        reports.append(its.finish(None, instance.step))
    assert reports[0].summary["profile"]["samples"] == 4
    assert reports[0] == reports[1]
    assert reports[0].summary["wall_stress"]["samples"] == 4
    _, changed = begin(_with_a_capsule({"start": 3, "interval": 2, "bins": 5}))
    assert changed.restore(extras, 9) == (
        "profiles begin anew with blood.profile = {start = 3, interval = 2, bins = 5}: 2 samples of "
        "profiles in the checkpoint were taken with {start = 3, interval = 4, bins = 5}; set blood.profile to "
        "these to keep them"
    )
    assert changed.profiles.means() is None
    assert changed.finish(None, 9).notices[-1].startswith("warning: no profiles")


def test_profiles_of_a_vessel_that_is_not_straight_are_refused():
    shape = {"radius_um": 6.0, "parent_length_um": 12.0, "daughter_length_um": 12.0}
    closed = {"size_um": [8.0, 8.0, 8.0], "periodic": []}
    for vessel, problem in (
        ({"bifurcation": shape}, "not straight"),
        ({"channel": closed}, "closed on all sides"),
    ):
        case = check({"solver": "blood", "blood": {**vessel, "profile": {}}}, BloodCase, "test")
        with refused(location="blood.profile", problem=problem, remedy="leave blood.profile out"):
            straight_vessel(case.blood, SimpleNamespace(lattice=SimpleNamespace(spacing=1e-6)))
