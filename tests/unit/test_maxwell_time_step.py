"""Claims about the longest stable time step: on cubes as published, on other elements as found."""

from __future__ import annotations

import numpy as np
import pytest
from refusals import refused

from haloscope.device.cpu import CpuDevice
from haloscope.mesh.hexes.hex_generators import box, cylinder
from haloscope.mesh.hexes.hexes import HexMesh
from haloscope.numerics.elements.element_maps import nodes
from haloscope.numerics.time_integration import LSERK4, is_stable, stability_polynomial, step_limits
from haloscope.solvers.maxwell.elements import Material
from haloscope.solvers.maxwell.resolution import (
    StepBound,
    cube_factor,
    find_bound,
    geometric_bounds,
    random_start,
    require_stable,
)
from haloscope.solvers.maxwell.stepping import Stepping

# Bounds over h / c on cubes: shared knowledge of this discretisation with LSERK4.
CUBES = {1: 0.809, 2: 0.322, 3: 0.179, 4: 0.114, 5: 0.0776, 7: 0.0416, 14: 0.0111}


def bounded(mesh: HexMesh, order: int, **options) -> tuple[Stepping, StepBound]:
    """Fields of a mesh, and the bound of their time step."""
    coordinates = nodes(mesh, order)
    walls = dict.fromkeys(mesh.boundary_names, "pec")
    stepping = Stepping(mesh, coordinates, order, CpuDevice(threads=1), boundaries=walls, **options)
    device = stepping._device
    values = len(stepping.fields) // mesh.count
    start = device.from_host(random_start(np.arange(mesh.count), values).ravel())
    geometric = float(geometric_bounds(coordinates, 1.0).min())
    return stepping, find_bound(stepping.right_hand_side, start, geometric, device)


def test_the_stability_polynomial_is_that_of_a_scheme_of_fourth_order():
    assert np.allclose(stability_polynomial(LSERK4)[:5], [1, 1, 1 / 2, 1 / 6, 1 / 24], rtol=1e-12)
    assert stability_polynomial(LSERK4)[5] == pytest.approx(1 / 200, rel=1e-6)


def test_a_step_multiplies_by_the_polynomial():
    z, u, k = -0.7 + 2.1j, 1.0 + 0j, 0j
    for a, b in zip(LSERK4.a, LSERK4.b, strict=True):
        k = a * k + z * u
        u = u + b * k
    assert np.polynomial.polynomial.polyval(z, stability_polynomial(LSERK4)) == pytest.approx(u)


def test_the_limits_on_the_axes_are_those_of_the_scheme():
    limits = step_limits(LSERK4, [-2.0, 1j, -4j, 0.0])
    assert limits[0] == pytest.approx(LSERK4.real_limit / 2, rel=1e-4)
    assert limits[1] == pytest.approx(LSERK4.imaginary_limit, rel=1e-4)
    assert limits[2] == pytest.approx(LSERK4.imaginary_limit / 4, rel=1e-4)
    assert np.isinf(limits[3])


def test_the_region_ends_where_the_limits_say():
    values = -1.0 + 3.0 * np.exp(1j * np.linspace(0, 2 * np.pi, 300))
    values = values[values.real < 0]
    limits = step_limits(LSERK4, values)
    assert is_stable(LSERK4, 0.999 * limits * values).all()
    assert not is_stable(LSERK4, 1.001 * limits * values).any()


def test_an_eigenvalue_that_makes_the_solution_itself_grow_is_no_matter_of_the_step():
    assert is_stable(LSERK4, 0.1)
    assert step_limits(LSERK4, [0.01 + 1j])[0] > 0.98 * LSERK4.imaginary_limit


@pytest.mark.parametrize("order", CUBES)
def test_bounds_on_cubes_are_the_published_ones(order):
    """A wall mirrors the fields: one cube between walls stands for many at high orders."""
    cubes = 2 if order < 7 else 1
    _, bound = bounded(box((cubes,) * 3, periodic=(cubes > 1,) * 3), order)
    assert bound.converged
    assert bound.limit == pytest.approx(CUBES[order] / cubes, rel=0.03)
    assert bound.geometric == pytest.approx(cube_factor(order) / cubes, rel=1e-9)
    assert cube_factor(order) == pytest.approx(CUBES[order], rel=0.01)
    assert bound.largest == bound.limit


def test_walls_change_little_and_a_slower_medium_allows_longer_steps():
    _, walled = bounded(box((2, 2, 2)), 5)
    assert walled.limit == pytest.approx(0.5 * CUBES[5], rel=0.03)
    _, slow = bounded(box((2, 2, 2)), 5, materials=(Material(4.0, 1.0),))
    assert slow.limit == pytest.approx(2 * walled.limit, rel=0.01)
    places = nodes(box((2, 2, 2)), 5)
    half = geometric_bounds(places, 0.5)
    assert np.allclose(half, 2 * geometric_bounds(places, np.ones(8)), rtol=1e-12)


FLAT = box((2, 2, 2), upper=(1.0, 0.7, 0.2), periodic=(True,) * 3)
WARPED = box((2, 2, 2), periodic=(True,) * 3, warp=0.06)
SHEARED = box((2, 2, 2), upper=(1.0, 0.1, 0.1), periodic=(True,) * 3, warp=0.06)
ROUND = cylinder(1.0, 0.0, 1.0, core=1, rings=1, layers=1)


@pytest.mark.parametrize(
    ("mesh", "order", "upwind"),
    [
        (FLAT, 3, True),
        (FLAT, 4, False),
        (WARPED, 3, True),
        (WARPED, 5, True),
        (SHEARED, 4, True),
        (ROUND, 4, True),
    ],
    ids=["flat", "flat, central flux", "warped", "warped, order 5", "sheared", "round"],
)
def test_steps_below_the_bound_are_stable_and_those_above_are_not(mesh, order, upwind):
    stepping, bound = bounded(mesh, order, upwind=upwind)
    assert bound.converged
    random = np.random.default_rng(2).standard_normal(stepping.values().shape)
    energies = {}
    for share in (0.95, 1.1):
        stepping.set_fields(random)
        start = stepping.energy()
        stepping.set_step(share * bound.largest)
        stepping.advance(250)
        energies[share] = stepping.energy() / start
    assert energies[0.95] < 1.0
    assert energies[1.1] > 1e3


def test_the_guess_from_the_shape_is_safe_for_elements_that_are_not_sheared():
    for mesh in (FLAT, WARPED, ROUND):
        _, bound = bounded(mesh, 4)
        assert 0.3 * bound.limit < bound.geometric < bound.limit


def test_a_bound_that_was_not_settled_is_no_longer_than_the_guess():
    unsettled = StepBound(geometric=0.5, limit=0.8, converged=False, evaluations=160)
    assert unsettled.largest == 0.5
    assert StepBound(0.5, 0.8, True, 48).largest == 0.8
    assert StepBound(0.5, 0.3, False, 160).largest == 0.3


def test_a_random_start_is_the_same_however_elements_are_shared_out():
    whole = random_start(np.arange(500), 60)
    chosen = np.array([7, 499, 3])
    assert np.array_equal(random_start(chosen, 60), whole[chosen])
    assert abs(whole.mean()) < 0.02
    assert (whole**2).mean() == pytest.approx(1 / 3, rel=0.03)
    assert -1 <= whole.min() < -0.999
    assert 0.999 < whole.max() < 1
    assert len(np.unique(whole)) == whole.size
    # Neither values that follow each other nor elements that do are alike.
    assert abs(np.corrcoef(whole[:, :-1].ravel(), whole[:, 1:].ravel())[0, 1]) < 0.02
    assert abs(np.corrcoef(whole[:-1].ravel(), whole[1:].ravel())[0, 1]) < 0.02


def test_the_bound_hardly_knows_the_last_bits_of_what_it_starts_with():
    """So that rounding, which differs from one number of ranks to another, does not decide it."""
    mesh = box((2, 2, 2), periodic=(True,) * 3)
    stepping, first = bounded(mesh, 4)
    start = random_start(np.arange(mesh.count), 6 * 125).ravel()
    start *= 1 + 1e-15 * np.random.default_rng(1).standard_normal(len(start))
    again = find_bound(stepping.right_hand_side, start, 1.0, stepping._device)
    assert again.limit == pytest.approx(first.limit, rel=1e-9)
    assert first.evaluations == again.evaluations


def test_a_step_above_the_bound_is_refused_with_the_bound():
    require_stable(0.07912, 0.08328)
    with refused(location=r"^time step 0\.08 ns$", allowed=r"at most 0\.07912 ns .* 0\.08328 ns"):
        require_stable(0.08, 0.08328, "ns")
    for time_step in (0.0, -1.0, float("nan")):
        with refused(allowed="^above 0"):
            require_stable(time_step, 0.0831)
