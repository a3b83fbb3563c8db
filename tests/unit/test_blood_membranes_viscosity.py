"""Claims about viscosity of membranes: what it dissipates, and springs that give way in its stead."""

from __future__ import annotations

import numpy as np
import pytest
from small_membranes import KINDS, RIGID, disturbed, forces, membranes

from haloscope.device import open_device
from haloscope.solvers.blood.membranes.membranes import MembraneLaw
from haloscope.solvers.blood.membranes.meshes import MembraneMesh, red_cell


def dissipation(mesh: MembraneMesh, x: np.ndarray, v: np.ndarray, viscosity: float) -> float:
    """Half the power that a surface of flat triangles with a shear viscosity dissipates."""
    total = 0.0
    for triangle in mesh.triangles:
        edges, rates = (values[triangle[1:]] - values[triangle[0]] for values in (x, v))
        normal = np.cross(*edges)
        area = np.linalg.norm(normal) / 2
        frame = np.linalg.qr(edges.T)[0]
        L = np.linalg.solve(edges @ frame, rates @ frame)
        D = (L + L.T) / 2 - np.trace(L) / 2 * np.eye(2)
        total += area * viscosity * (D * D).sum()
    return total


def test_viscosity_dissipates_what_a_newtonian_surface_does():
    mesh = red_cell(92)
    x, v = disturbed(mesh, 1), disturbed(mesh, 1, 1.0, seed=5) - mesh.vertices
    elastic = membranes(mesh, MembraneLaw(2.5), elements="linear")
    law = MembraneLaw(2.5, viscosity=0.4, viscous_stiffness=RIGID)
    viscous = membranes(mesh, law, elements="linear")
    f = forces(viscous, x, v) - forces(elastic, x)
    along = np.random.default_rng(4).standard_normal(x.shape)
    for direction in (v, along):
        h = 1e-3
        low, high = (dissipation(mesh, x[0], (v + s * h * direction)[0], 0.4) for s in (-1, 1))
        assert -(f * direction).sum() == pytest.approx((high - low) / (2 * h), rel=1e-4)


@pytest.mark.parametrize("elements", KINDS)
def test_viscosity_resists_shear_alone_and_never_drives(elements):
    mesh = red_cell(92)
    law = MembraneLaw(1e-12, viscosity=0.4, viscous_stiffness=RIGID)
    cells = membranes(mesh, law, elements=elements)
    x = disturbed(mesh, 1)
    spin = np.cross([0.3, -0.2, 0.5], x) + [1.0, 2.0, 3.0]
    for free in (spin, x):
        assert np.abs(forces(cells, x, free)).max() < 1e-8
    v, w = disturbed(mesh, 1, 1.0, seed=5), disturbed(mesh, 1, 1.0, seed=6)
    assert (forces(cells, x, v) * v).sum() < -1
    across = (forces(cells, x, w) * v).sum()
    assert (forces(cells, x, v) * w).sum() == pytest.approx(across, rel=1e-3)


@pytest.mark.parametrize("elements", KINDS)
@pytest.mark.parametrize(("viscosity", "stiffness"), [(0.4, 0.1), (0.4, 4.0), (0.01, 0.1)])
def test_springs_that_give_way_end_up_with_the_tension_of_the_viscosity(
    elements, viscosity, stiffness
):
    mesh = red_cell(42)
    law = MembraneLaw(1e-12, viscosity=viscosity, viscous_stiffness=stiffness)
    cells = membranes(mesh, law, elements=elements)
    cells.divide(np.array([0]))
    x, v = disturbed(mesh, 1), 1e-5 * disturbed(mesh, 1, 1.0, seed=5)
    wanted = forces(cells, x, v)
    lag = viscosity / stiffness
    steps = round(40 * max(lag, 1.0))
    start = x - steps * v
    cells.set_cells(0, start)
    cells.velocities[...] = np.moveaxis(v, 2, 0).ravel()
    cells.keep_velocities()
    largest = []
    for _ in range(steps):
        cells.advance(0)
        cells.relax(0)
        cells.compute_forces(1)
        largest.append(np.abs(cells.on_host(cells.forces, 1)).max())
    assert cells.on_host(cells.positions, 1) == pytest.approx(x, abs=1e-12)
    scale = np.abs(wanted).max()
    assert cells.on_host(cells.forces, 1) == pytest.approx(wanted, abs=0.02 * scale)
    # At first there is what one step has strained, less than that where the spring is soft.
    assert largest[0] == pytest.approx(scale / (1 + lag), rel=0.05)
    assert (np.diff(largest[:-1]) > -1e-3 * scale).all()
    # Standing still it lets go, by the same share in each step.
    cells.velocities.fill(0.0)
    cells.relax(0)
    cells.compute_forces(1)
    kept = np.abs(cells.on_host(cells.forces, 1)).max()
    assert kept == pytest.approx(scale * lag / (1 + lag), rel=0.05)


@pytest.mark.parametrize("elements", KINDS)
def test_springs_that_do_not_give_way_store_what_they_take(elements):
    """Around a closed path of shapes, areas and shears together, no work is done."""
    mesh = red_cell(42)
    law = MembraneLaw(1e-12, viscosity=1e9, viscous_stiffness=2.0)
    cells = membranes(mesh, law, elements=elements)
    start, *sides = disturbed(mesh, 1), *(disturbed(mesh, 1, 0.2, seed) for seed in (7, 8))
    cells.set_cells(0, start)
    natural = [array.copy() for array in cells.natural]
    work, passed, before = 0.0, 0.0, start
    for angle in np.linspace(0.0, 2 * np.pi, 401)[1:]:
        turn = (1 - np.cos(angle), np.sin(angle))
        x = start + sum(w * (s - mesh.vertices) for w, s in zip(turn, sides, strict=True))
        cells.set_cells(0, (x + before) / 2)
        for array, kept in zip(cells.natural, natural, strict=True):
            array[...] = kept
        cells.compute_forces(1)
        power = float((cells.on_host(cells.forces, 1) * (x - before)).sum())
        work, passed, before = work + power, passed + abs(power), x
    assert passed > 0.1
    assert abs(work) < 1e-4 * passed


@pytest.mark.parametrize("elements", KINDS)
def test_a_membrane_that_only_grows_feels_no_viscosity(elements):
    mesh = red_cell(42)
    cells = membranes(mesh, MembraneLaw(1e-12, viscosity=5.0), elements=elements)
    cells.divide(np.array([0]))
    cells.velocities[...] = np.moveaxis(0.01 * mesh.vertices[None], 2, 0).ravel()
    for _ in range(20):
        cells.advance(0)
        cells.relax(0)
        cells.compute_forces(1)
        assert np.abs(cells.on_host(cells.forces, 1)).max() < 1e-10


def test_a_state_fits_cells_that_became_viscous_or_no_longer_are():
    mesh = red_cell(42)
    plain, viscous = (membranes(mesh, MembraneLaw(1.0, viscosity=mu)) for mu in (0.0, 1.0))
    state = np.random.default_rng(2).standard_normal((3, 2, 42, 3))
    fitted = viscous.fitted(state)
    assert (fitted[:, :2] == state).all()
    assert (fitted[:, 2:] == viscous.settled(state[:, 0])[:, 2:]).all()
    assert (plain.fitted(fitted) == state).all()
    assert viscous.fitted(fitted) is not None
    many = np.repeat(mesh.vertices[None], 130, axis=0) * np.linspace(1, 2, 130)[:, None, None]
    assert (viscous.settled(many)[[0, 100, 129]] == viscous.settled(many[[0, 100, 129]])).all()


@pytest.mark.parametrize("elements", KINDS)
@pytest.mark.parametrize("count", [1, 2, 7, 8, 19])
def test_springs_give_way_alike_whatever_cells_go_side_by_side(elements, count):
    """Once a call, cells of the part alone, in whatever order they stand, and with any threads."""
    mesh = red_cell(42)
    law = MembraneLaw(1.0, viscosity=0.4, viscous_stiffness=0.1)
    rng = np.random.default_rng(count)
    order = rng.permutation(22)
    made = [
        membranes(
            mesh, law, elements=elements, count=22, device=open_device("cpu", threads=threads)
        )
        for threads in (1, 2)
    ]
    for cells in made:
        cells.set_cells(0, disturbed(mesh, 22))
    now = np.array([made[0].on_host(array, 22) for array in made[0].natural])
    start = now + 0.3 * rng.standard_normal(now.shape)
    for cells in made:
        for array, values in zip(cells.natural, start, strict=True):
            array[...] = np.moveaxis(values, 2, 0).ravel()
    together, alone = made[1], made[0]
    together.divide(order[count:], order[:count])
    together.relax(1)
    for one in order[:count]:
        alone.divide(np.array([one]))
        alone.relax(0)
    natural, wanted = (np.array([c.on_host(a, 22) for a in c.natural]) for c in (together, alone))
    assert (natural == wanted).all()
    assert (natural[:, order[count:]] == start[:, order[count:]]).all()
    given_way = now + 0.8 * (start - now)
    chosen, used = order[:count], len(mesh.triangles) - mesh.vertices.shape[0]
    assert natural[0, chosen] == pytest.approx(given_way[0, chosen], abs=1e-12)
    assert natural[1, chosen, :used] == pytest.approx(given_way[1, chosen, :used], abs=1e-12)
