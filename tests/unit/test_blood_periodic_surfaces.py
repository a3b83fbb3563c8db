"""Claims about surfaces whose ends are joined: lattice, walls across the joint, flow, cells, refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from open_vessels import CELLS, cells_there, solver_of
from periodic_surfaces import wavy_tube
from refusals import refused

from haloscope.case.tables import check
from haloscope.errors import InputError
from haloscope.mesh.files.meshio_files import MICROMETRE
from haloscope.mesh.lattice.openings import joint_of
from haloscope.mesh.lattice.voxels import voxelise
from haloscope.mesh.surfaces.surface_files import write_stl
from haloscope.mesh.surfaces.surfaces import Surface
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.filling.filling import cell_counts, filling_of, lumen_of
from haloscope.solvers.blood.outputs.wall_stress import distances_and_normals, wall_points
from haloscope.solvers.blood.solver import BloodSolver
from haloscope.solvers.blood.vessels.vessels import distances_from_walls

PERIOD = 24.0
WAVY = {"swell": 0.15, "wind": 1.5e-6}
AXES = pytest.mark.parametrize("axis", [0, 1, 2], ids="xyz")


def periodic(folder: Path, axis: int = 0, shape: Any = None, **table: Any) -> BloodSolver:
    """A tube of 12 um whose ends are joined, with a pressure gradient along its axis."""
    file = folder / "tube.stl"
    write_stl(str(file), wavy_tube(6e-6, PERIOD * 1e-6, axis, **(shape or {})))
    surface = {"file": str(file), "scale_um": 1e6, "periodic": ["low", "high"]}
    gradient = (2e5 * np.eye(3)[axis]).tolist()
    return solver_of(surface=surface, **{"pressure_gradient_pa_m": gradient, **table})


def by_place(solver: BloodSolver, values: np.ndarray) -> np.ndarray:
    """Values (..., points) in the box of the lattice, (..., x, y, z), 0 where there is no fluid."""
    box = np.zeros((*values.shape[:-1], *solver.vessel.lattice.shape))
    box[..., *solver.part.coordinates[: solver.part.owned].T] = values
    return box


@AXES
def test_a_straight_tube_is_the_periodic_tube(tmp_path: Path, axis: int) -> None:
    made = periodic(tmp_path, axis, relaxation_time=1.0, walls={"kind": "interpolated"})
    shape = {"radius_um": 6.0, "length_um": PERIOD, "axis": "xyz"[axis]}
    gradient = (2e5 * np.eye(3)[axis]).tolist()
    tube = solver_of(
        tube=shape,
        pressure_gradient_pa_m=gradient,
        relaxation_time=1.0,
        walls={"kind": "interpolated"},
    )
    assert made.vessel.lattice.periodic == tuple(a == axis for a in range(3))
    assert made.vessel.lattice.shape[axis] == tube.vessel.lattice.shape[axis] == PERIOD
    # The same points in the same order, in a box with another margin.
    assert made.vessel.lattice.count == tube.vessel.lattice.count
    assert made.notices[0] == (
        f"joined 'low' and 'high': periodic along {'xyz'[axis]} over {PERIOD:g} um"
    )
    for solver in (made, tube):
        solver.advance(600)
    u, v = (solver._moments()[axis] for solver in (made, tube))
    assert np.linalg.norm(u - v) < 5e-3 * np.linalg.norm(v)
    x = made.vessel.lattice.positions(made.part.numbers[: made.part.owned])
    square = (np.delete(x, axis, axis=1) ** 2).sum(axis=1)
    exact = 2e5 * (36e-12 - square) / 4 / made._table.viscosity
    assert np.linalg.norm(u - exact) < 0.02 * np.linalg.norm(exact)


@AXES
def test_where_a_wavy_tube_is_joined_does_not_matter(tmp_path: Path, axis: int) -> None:
    fields, distances = [], []
    for phase in (0.0, np.pi / 2):
        solver = periodic(tmp_path, axis, {**WAVY, "phase": phase}, walls={"kind": "interpolated"})
        solver.advance(200)
        fields.append(by_place(solver, solver._moments()))
        near = distances_from_walls(solver.vessel, solver.part, 3.0)
        walls = wall_points(solver.part)
        normals = np.zeros((3, solver.part.owned))
        normals[:, walls] = distances_and_normals(solver.vessel, solver.part, walls)[1].T
        near = np.concatenate([np.where(np.isinf(near), 9.0, near)[None], normals])
        distances.append(by_place(solver, near))
    # A quarter of the wave ahead is a quarter of the period on.
    quarter = int(PERIOD) // 4
    for one, other in (fields, distances):
        assert np.abs(one).max() > 0.0
        here = np.roll(one, -quarter, axis=axis - 3)
        assert np.allclose(here, other, atol=1e-5 * np.abs(one).max())


def test_a_wavy_tube_conserves_mass_and_passes_it_on(tmp_path: Path) -> None:
    solver = periodic(tmp_path, 0, WAVY)
    mass = []
    for _ in range(2):
        density, velocity = solver.fluid.moments()
        mass.append(density.sum())
        solver.advance(700)
    assert mass[1] == pytest.approx(mass[0], rel=1e-13)
    density, velocity = solver.fluid.moments()
    flow = by_place(solver, density * velocity[0]).sum(axis=(1, 2))
    assert flow.min() > 0.0
    # The same through every plane, those at the joint too.
    assert np.allclose(flow, flow.mean(), rtol=2e-3)
    assert np.abs(velocity[1]).max() > 0.1 * velocity[0].max()


def test_cells_fill_the_joint_and_pass_it(tmp_path: Path) -> None:
    cells = [{**CELLS, "hematocrit": 0.2}]
    repulsion = {"strength_pn": 20.0, "range_um": 1.0}
    solver = periodic(
        tmp_path, 0, WAVY, cells=cells, repulsion=repulsion, pressure_gradient_pa_m=[8e6, 0.0, 0.0]
    )
    start = cells_there(solver)
    lattice = solver.vessel.lattice
    lumen = lumen_of(lattice, 4.0)
    assert [len(start)] == cell_counts(lumen, [filling_of(solver._table.cells[0])])
    # Some begin across it.
    beyond = (start[..., 0] < -0.5) | (start[..., 0] > lattice.shape[0] - 0.5)
    assert beyond.any(axis=1).sum() > 0
    solver.advance(1000)
    there = cells_there(solver)
    assert len(there) == len(start)
    way = there[..., 0].mean(axis=1) - start[..., 0].mean(axis=1)
    assert way.min() > 0.0
    assert way.max() > 3.0
    last = lattice.shape[0] - 0.5
    assert ((start[..., 0].mean(axis=1) < last) & (there[..., 0].mean(axis=1) > last)).any()
    # All vertices stay within the wall, wherever they are in a period.
    middle = start.mean(axis=(0, 1))[1:]
    assert np.abs(there[..., 1:] - middle).max() < 6.0 * 1.15 + 1.5 + 1.0
    inside = solver.suspension.flags_inside(solver.part.owned).sum()
    volume = solver.suspension.kinds[0].kind.mesh.volume() * len(there)
    assert inside == pytest.approx(volume, rel=0.05)


def test_after_a_restart_a_periodic_surface_has_the_same_bits(tmp_path: Path) -> None:
    cells = [{**CELLS, "hematocrit": 0.2}]
    one, two = (periodic(tmp_path, 1, WAVY, cells=cells) for _ in range(2))
    one.advance(60)
    two.restore(one.step, one.scalars(), one.owned)
    two.restore_extras({key: np.array(value) for key, value in one.extras().items()})
    for solver in (one, two):
        solver.advance(60)
    assert np.array_equal(two._moments(), one._moments())
    assert np.array_equal(cells_there(two), cells_there(one))


# Refusals and warnings


def _joined(surface: Surface, *names: str) -> Surface:
    return replace(surface, joined=names or ("low", "high"), unit=MICROMETRE)


def _moved(surface: Surface, change: Any) -> Surface:
    return replace(surface, points=change(surface.points.copy()))


def test_ends_that_do_not_match_are_refused_with_the_reason() -> None:
    tube = wavy_tube(6e-6, PERIOD * 1e-6)

    def wider(points: np.ndarray) -> np.ndarray:
        points[:, 1:] *= 1 + 0.05 * points[:, :1] / (PERIOD * 1e-6)
        return points

    def bulged(points: np.ndarray) -> np.ndarray:
        points[np.abs(points[:, 0] - PERIOD / 2 * 1e-6) < 2e-6, 0] += PERIOD * 1e-6
        return points

    def askew(points: np.ndarray) -> np.ndarray:
        points[:, 0] += 0.1 * points[:, 1]
        return points

    cases = [
        (_joined(_moved(tube, wider)), "outlines of the ends differ by up to 0.3 um across x"),
        (_joined(_moved(tube, bulged)), "reaches from 0 um to .* um along x, beyond its ends at 0"),
        (_joined(_moved(tube, askew)), "its normal is"),
        (_joined(tube, "low", "wall"), "not a flat end"),
        (_joined(tube, "low", "top"), "there is no group 'top'"),
    ]
    for surface, problem in cases:
        with refused(problem=problem):
            voxelise(surface, 1e-6)
    with refused(problem="24 um apart, 21.8182 spacings", remedy="a spacing of 1.09091 um"):
        voxelise(_joined(tube), 1.1e-6)
    fitting = voxelise(_joined(tube), 1.09091e-6)
    assert fitting.shape[0] == 22
    # Where the surface begins does not matter.
    elsewhere = voxelise(_joined(wavy_tube(6e-6, PERIOD * 1e-6, start=0.37e-6)), 1e-6)
    assert elsewhere.count == voxelise(_joined(tube), 1e-6).count


def test_two_ends_that_face_the_same_way_are_not_joined() -> None:
    tube = wavy_tube(6e-6, PERIOD * 1e-6)
    turned = tube.triangles.copy()
    turned[tube.groups == 1] = turned[tube.groups == 1][:, ::-1]
    with refused(problem="low faces \\+x and high faces \\+x", allowed="away from each other"):
        joint_of(_joined(replace(tube, triangles=turned)))


def test_a_spacing_that_is_too_coarse_is_refused_with_one_that_fits() -> None:
    with pytest.raises(InputError) as error:
        voxelise(_joined(wavy_tube(6e-6, PERIOD * 1e-6)), 4e-6)
    fits = float(str(error.value).split("use at most about ")[1].split(" um")[0])
    assert PERIOD / fits == pytest.approx(round(PERIOD / fits), abs=1e-3)
    voxelise(_joined(wavy_tube(6e-6, PERIOD * 1e-6)), fits * 1e-6)


@pytest.mark.parametrize(
    ("more", "location", "problem"),
    [
        ({"periodic": ["low", "low"]}, "blood.surface.periodic", "cannot be joined with itself"),
        ({}, "blood.openings", "driven by a pressure gradient"),
    ],
)
def test_keys_that_contradict_joined_ends_are_refused(
    more: dict[str, Any], location: str, problem: str
) -> None:
    surface = {"file": "a.stl", "periodic": ["low", "high"], **more}
    openings = [{"name": "low", "kind": "pressure"}]
    blood = {"spacing_um": 1.0, "surface": surface, "openings": openings}
    with refused(location=f": {location}$", problem=problem):
        check({"solver": "blood", "blood": blood}, BloodCase, "test")


def test_a_gradient_that_cannot_drive_the_flow_is_noticed(tmp_path: Path) -> None:
    across = periodic(tmp_path, 2, pressure_gradient_pa_m=[0.0, 1e3, 0.0]).notices
    assert any("along y: the vessel is closed along y" in line for line in across)
    assert any(
        "set blood.pressure_gradient_pa_m along z, the periodic axis" in line for line in across
    )
    along = periodic(tmp_path, 2)
    assert not any("nothing drives" in line or "closed" in line for line in along.notices)
    (speed,) = [n.value for n in along.derived() if n.name == "expected speed"]
    assert speed == pytest.approx(2e5 * 36e-12 / 4 / along._table.viscosity * 1e3, rel=0.01)
    assert along._case.boundary_conditions()["ends"] == "periodic from low to high"
    (ends,) = [part for part in along.geometry().parts if part.name == "ends"]
    assert len(ends.corners) == 96
