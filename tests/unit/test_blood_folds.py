"""Claims about the guard against folds: its force, where it acts, and that it keeps cells whole."""

from __future__ import annotations

import math

import numpy as np
import pytest
from refusals import refused
from small_membranes import one_core

from haloscope.case.tables import check
from haloscope.errors import SolutionError
from haloscope.exchange.ranks.world import World
from haloscope.run import Simulation
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.membranes.membranes import MembraneLaw, Membranes
from haloscope.solvers.blood.membranes.meshes import (
    MembraneMesh,
    fault,
    fold_onset,
    platelet,
    red_cell,
)

KINDS = ("loop", "linear")
# A guard beside which the rest is nothing.
ALONE = MembraneLaw(1e-9, dilation=10.0, fold_guard=2.0)


def membranes(mesh, law, x, *, elements="loop") -> Membranes:
    made = Membranes(one_core(), mesh, len(x), law, elements=elements)
    made.set_cells(0, x)
    return made


def forces(cells: Membranes, x: np.ndarray) -> np.ndarray:
    cells.set_cells(0, x)
    cells.compute_forces(len(x))
    return cells.on_host(cells.forces, len(x)).copy()


def crumpled(mesh: MembraneMesh, count: int = 3, size: float = 0.25) -> np.ndarray:
    noise = np.random.default_rng(1).standard_normal((count, len(mesh.vertices), 3))
    return mesh.vertices + size * noise


def expected_energy(mesh: MembraneMesh, x: np.ndarray, law: MembraneLaw) -> np.ndarray:
    """Folds, collapsed and thin triangles, from angles, areas and squares of sides: (3,)."""

    def of(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        corners = x[mesh.triangles]
        sides = np.roll(corners, -1, axis=1) - corners
        S = np.cross(sides[:, 0], sides[:, 1]) / 2
        return S, np.linalg.norm(S, axis=1), (sides**2).sum(axis=(1, 2))

    S, area, squares = of(x)
    _, area_at_rest, squares_at_rest = of(mesh.vertices)
    n = S / area[:, None]
    angles = np.arccos(np.clip((n[:, None] * n[mesh.neighbours]).sum(axis=2), -1, 1))
    over = np.maximum(np.cos(fold_onset(mesh) / 2) - np.cos(angles / 2), 0)
    small = np.maximum(law.least_area_ratio - area / area_at_rest, 0)
    thin = np.maximum(0.25 - area / squares / (area_at_rest / squares_at_rest), 0)
    stiffness = law.fold_guard * mesh.area() / len(mesh.triangles)
    # Each edge is met from both sides.
    return stiffness * np.array([(over**2).sum(), (small**2).sum() / 2, (thin**2).sum() / 2])


@pytest.mark.parametrize("elements", KINDS)
def test_the_energy_is_that_of_folds_and_of_small_and_thin_triangles(elements):
    mesh = red_cell(92)
    x = crumpled(mesh)
    cells = membranes(mesh, ALONE, x, elements=elements)
    parts = np.array([expected_energy(mesh, one, ALONE) for one in x])
    assert (parts.sum(axis=0) > 0).all()
    assert cells.energies(3)["folds"] == pytest.approx(parts.sum(axis=1), rel=1e-4)


@pytest.mark.parametrize("elements", KINDS)
def test_forces_are_the_gradient_of_the_energy(elements):
    mesh = red_cell(92)
    x = crumpled(mesh)
    cells = membranes(mesh, ALONE, x, elements=elements)
    f = forces(cells, x)
    along = np.random.default_rng(2).standard_normal(x.shape)

    def slope(h: float) -> np.ndarray:
        energies = []
        for step in (h, -h):
            cells.set_cells(0, x + step * along)
            energies.append(cells.energies(3)["folds"])
        return (energies[0] - energies[1]) / (2 * h)

    h = 2e-5
    derivative = (64 * slope(h / 2) - 20 * slope(h) + slope(2 * h)) / 45
    assert -(f * along).sum(axis=(1, 2)) == pytest.approx(derivative, rel=1e-6)


@pytest.mark.parametrize("elements", KINDS)
def test_the_guard_neither_pulls_nor_turns_a_cell(elements):
    mesh = red_cell(92)
    x = crumpled(mesh)
    f = forces(membranes(mesh, ALONE, x, elements=elements), x)
    rounding = 1e-14 * np.abs(f).sum(axis=(1, 2)).min()
    assert rounding > 1e-14
    assert np.abs(f.sum(axis=1)).max() < rounding
    assert np.abs(np.cross(x, f).sum(axis=1)).max() < 5 * rounding


@pytest.mark.parametrize("elements", KINDS)
def test_forces_have_the_same_bits_whatever_cells_lie_beside(elements):
    mesh = red_cell(92)
    # Folded ones beside smooth ones in the lanes of a vector.
    x = np.concatenate([crumpled(mesh, 5), crumpled(mesh, 6, 0.01)])[[0, 5, 1, 6, 2, 7, 3, 8, 4, 9]]
    together = forces(membranes(mesh, ALONE, x, elements=elements), x)
    for one, wanted in zip(x, together, strict=True):
        alone = membranes(mesh, ALONE, one[None], elements=elements)
        assert (forces(alone, one[None])[0] == wanted).all()


@pytest.mark.parametrize("elements", KINDS)
def test_verified_shapes_keep_their_bits(elements):
    mesh = red_cell(642)
    x = np.stack([mesh.vertices, mesh.vertices * [1.8, 0.6, 0.9], mesh.vertices * [0.8, 0.8, 1.3]])
    law = {"dilation": 10.0, "bending_modulus": 0.2, "area_modulus": 3.0, "volume_modulus": 4.0}
    free = membranes(mesh, MembraneLaw(2.5, **law), x, elements=elements)
    guarded = membranes(mesh, MembraneLaw(2.5, **law, fold_guard=100.0), x, elements=elements)
    assert (guarded.energies(3)["folds"] == 0).all()
    assert (forces(guarded, x) == forces(free, x)).all()


def test_a_shape_with_sharp_edges_is_at_rest_all_the_same():
    mesh = platelet(92, 2.0, 0.1)
    assert math.degrees(fold_onset(mesh)) == pytest.approx(107.7 + 30, abs=0.1)
    cells = membranes(mesh, ALONE, mesh.vertices[None])
    assert cells.energies(1)["folds"][0] == 0


@pytest.mark.parametrize(
    ("law", "ratio"),
    [
        (MembraneLaw(1.0, dilation=10.0), math.sqrt(0.3)),
        (MembraneLaw(1.0, dilation=1.0), 0.2),
        (MembraneLaw(1.0, dilation=0.0), 0.2),
        (MembraneLaw(1.0, "neo-hookean", dilation=10.0), 0.2),
    ],
)
def test_triangles_are_held_where_their_own_law_gives_way(law, ratio):
    assert law.least_area_ratio == pytest.approx(ratio)
    r = np.linspace(0.2, 1.0, 1001)
    if law.elasticity == "skalak":
        resistance = (1 - r) * (1 + law.dilation * r * (1 + r))
        assert r[resistance.argmax()] == pytest.approx(ratio, abs=2e-3)


def sheared(fold_guard: float, *, smooth: bool = False) -> Simulation:
    """Three soft red cells in a small box at a hematocrit of 0.4 and a high rate of shear."""
    size, rate = 9.0, 8000.0
    speed = rate * size * 1e-6 / 2
    blood = {
        "spacing_um": 0.5,
        "relaxation_time": 2.0,
        "seed": 3,
        "channel": {"size_um": [size] * 3, "periodic": ["x", "z"]},
        "walls": {"velocity_m_s": {"y_low": [-speed, 0.0, 0.0], "y_high": [speed, 0.0, 0.0]}},
        "cells": [
            {"hematocrit": 0.4, "vertices": 162, "elements": "linear", "fold_guard": fold_guard}
        ],
        "smooth_creases": smooth,
    }
    case = check({"solver": "blood", "blood": blood}, BloodCase, "test")
    return Simulation(case, device=one_core(), world=World())


@pytest.mark.slow
def test_crowded_cells_crease_without_the_guard_and_go_on_with_it_or_smoothed():
    free, guarded = (sheared(value).solver for value in (0.0, 0.5))
    with refused(SolutionError, problem=r"folded over: .* a crease of 1\d\d degrees"):
        for _ in range(40):
            free.advance(100)
            free.suspension.require_sound()
    guarded.advance(free.step + 300)
    guarded.suspension.require_sound()
    kind = guarded.suspension.kinds[0]
    shapes = kind.membranes.shapes(kind.count)
    assert shapes.volume == pytest.approx(kind.membranes.mesh.volume(), rel=0.005)
    assert kind.membranes.energies(kind.count)["folds"].max() > 0
    # So do cells out of which creases are smoothed, even without the guard.
    smooth = sheared(0.0, smooth=True).solver
    smooth.advance(free.step + 300)
    smooth.suspension.require_sound()
    assert smooth.suspension.smoothed > 0


@pytest.mark.filterwarnings("error")
def test_a_vertex_beyond_all_bounds_is_told_without_warnings():
    mesh = red_cell(162)
    for far in (1e160, 1e300, np.inf, np.nan):
        x = mesh.vertices.copy()
        x[3] = far
        assert "the position of a vertex is NaN" in fault(x, mesh)[0]
    x = mesh.vertices.copy()
    x[3] = 1e6
    assert "times its area at rest" in fault(x, mesh)[0]
