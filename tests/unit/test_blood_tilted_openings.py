"""Claims about openings askew to the axes: their links, their formulas, exact flow, mass, restarts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from lattice_tables import TwoArrays, box_part
from open_vessels import solver_of
from small_fluids import fixture_device, random_start  # noqa: F401

from haloscope.case.tables import check
from haloscope.exchange.ranks.world import World
from haloscope.mesh.lattice.lattice_parts import OUTSIDE
from haloscope.mesh.lattice.tilted_openings import TiltedOpening
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.fluid import boundaries
from haloscope.solvers.blood.fluid.fluid import Carreau, Fluid, Opening
from haloscope.solvers.blood.fluid.lattice import OPPOSITE, VELOCITIES, WEIGHTS, share_out
from haloscope.solvers.blood.vessels.vessels import (
    fluid_openings,
    link_weights,
    open_vessel,
    relative_velocities,
)

HERE = Path(__file__).parent
NORMALS = np.array([[-0.9, 0.3, 0.1], [0.8, -0.2, 0.5]])
NORMALS /= np.linalg.norm(NORMALS, axis=1)[:, None]
FORCE = np.array([1e-3, -5e-4, 2e-4])


class Tilted(TwoArrays):
    """A velocity at one end and a density with developed flow at the other, link by link."""

    drives = (1.0, 1.0)
    thrown = np.zeros(0)
    passed = np.zeros((18, 0))

    def stream(self, after: np.ndarray) -> None:
        before, rho, u = self.f, self.density(), self.velocity()
        super().stream(after)
        plus = 1 / self.tau
        minus = 1 / (0.5 + self.magic / (self.tau - 0.5))
        g = self.force[:, 0]
        self.passed = np.zeros((18, self.part.owned))
        rows, points = np.nonzero(self.part.sources == -2)
        for row, x, push in zip(rows, points, self.thrown, strict=True):
            self.f[row + 1, x] = after[OPPOSITE[row + 1], x] + self.drives[0] * push
            self.passed[row, x] = -self.drives[0] * push
        n = NORMALS[1]
        rows, points = np.nonzero(self.part.sources == -3)
        for row, x in zip(rows, points, strict=True):
            far = before[:, x] - _equilibrium(rho[x], u[:, x]) + 1.5 * WEIGHTS * (VELOCITIES @ g)
            pi = np.einsum("ia,ib,i->ab", VELOCITIES, VELOCITIES, far)
            strain = -3 * plus / (2 * rho[x]) * pi
            i = OPPOSITE[row + 1]
            c = VELOCITIES[i]
            tangential = c - (c @ n) * n
            ghost = (u[:, x] @ n + 2 * tangential @ strain @ n) * n
            end = self.drives[1]
            if u[:, x] @ n < 0:
                end -= 1.5 * rho[x] * (u[:, x] @ n) ** 2
            even, odd = (far[i] + far[OPPOSITE[i]]) / 2, (far[i] - far[OPPOSITE[i]]) / 2
            arrives = _equilibrium(end, ghost)[OPPOSITE[i]] + (1 - plus) * even - (1 - minus) * odd
            arrives += 1.5 * WEIGHTS[i] * (VELOCITIES[OPPOSITE[i]] @ g)
            self.passed[row, x] = after[i, x] - arrives
            self.f[row + 1, x] = arrives


def _equilibrium(rho: float, u: np.ndarray) -> np.ndarray:
    c_u = VELOCITIES @ u
    return WEIGHTS * rho * (1 + 3 * c_u + 4.5 * c_u**2 - 1.5 * u @ u)


def _openings(part: Any) -> tuple[boundaries.TiltedOpening, boundaries.TiltedOpening]:
    links = [np.nonzero(part.sources == -2 - k) for k in (0, 1)]
    thrown = 1e-3 * np.random.default_rng(4).standard_normal(len(links[0][0]))
    return (
        boundaries.TiltedOpening(NORMALS[0], links[0][1], links[0][0] + 1, thrown),
        boundaries.TiltedOpening(NORMALS[1], links[1][1], links[1][0] + 1),
    )


def test_tilted_openings_equal_the_formulas_on_two_arrays(device: Any) -> None:
    part = box_part((6, 5, 4), (False, False, True), openings=[(0, 0), (0, 1)])
    openings = _openings(part)
    fluid = Fluid(device, part, tau=0.7, openings=openings, body_force=FORCE)
    start = random_start(part)
    plain = Tilted(part, start + WEIGHTS[:, None], 0.7, 3 / 16, FORCE[:, None])
    plain.thrown = openings[0].thrown
    fluid.set_populations(start)
    for step in range(5):
        plain.drives = (1 + 0.2 * step, 1.01 - 0.001 * step)
        for k, number in enumerate(plain.drives):
            fluid.drive(k, number)
        density, velocity = fluid.moments()
        assert np.abs(density - plain.density()).max() < 1e-14
        assert np.abs(velocity - plain.velocity()).max() < 1e-14
        fluid.step()
        plain.step()
        assert np.abs(fluid.populations() + WEIGHTS[:, None] - plain.f).max() < 1e-14
        for k in (0, 1):
            mine = plain.passed[part.sources == -2 - k]
            assert np.abs(np.sort(fluid.passed(k)) - np.sort(mine)).max() < 1e-14


@pytest.mark.parametrize(
    "keys",
    [
        {"real": "single"},
        {"real": "single", "storage": "half"},
        {"carreau": Carreau(0.1, 0.1, 50.0, 0.4)},
    ],
    ids=["single", "half", "carreau"],
)
def test_other_precisions_and_a_law_without_thinning_follow(device: Any, keys: Any) -> None:
    part = box_part((6, 5, 4), (False, False, True), openings=[(0, 0), (0, 1)])
    start = random_start(part, size=1e-3)
    states = []
    for more in ({}, keys):
        fluid = Fluid(device, part, tau=0.8, openings=_openings(part), **more)
        fluid.set_populations(start)
        for _ in range(4):
            fluid.step()
        states.append(fluid.populations())
    assert np.abs(states[0] - states[1]).max() < 2e-3 * np.abs(states[0]).max()


def test_points_on_an_axis_keep_their_bits_beside_a_tilted_opening(device: Any) -> None:
    part = box_part((6, 5, 4), (False, False, True), openings=[(0, 0), (0, 1)])
    alone = Fluid(device, part, tau=0.8, openings=(Opening(0, 1), Opening(0, -1)))
    mixed = Fluid(device, part, tau=0.8, openings=(Opening(0, 1), _openings(part)[1]))
    for fluid in (alone, mixed):
        fluid.set_populations(random_start(part))
        fluid.step()
    at_low = part.coordinates[:, 0] == 0
    # What has arrived there after a step comes from these points and their neighbours.
    assert np.array_equal(alone.populations()[:, at_low], mixed.populations()[:, at_low])


# The links of a surface


def _table(**more: Any) -> Any:
    openings = [
        {"name": "inlet", "kind": "velocity", "value": 1e-3},
        {"name": "outlet", "kind": "pressure"},
    ]
    surface = {"file": str(HERE / "bend.obj"), "scale_um": 1.0}
    blood = {"spacing_um": 1.0, "surface": surface, "openings": openings, **more}
    return check({"solver": "blood", "blood": blood}, BloodCase, "test").blood


def test_links_are_those_that_meet_the_end_before_the_wall() -> None:
    vessel = open_vessel(_table(), World())
    lattice = vessel.lattice
    for opening in lattice.openings:
        assert isinstance(opening, TiltedOpening)
        at = lattice.positions(opening.points)
        way = opening.links * lattice.spacing
        height = (at - opening.middle) @ opening.normal
        assert (height <= 1e-12).all()
        assert (height + way @ opening.normal >= -1e-12).all()
        # They pass the plane within the outline, a polygon of 16 sides.
        through = at - (height / (way @ opening.normal))[:, None] * way
        assert (np.linalg.norm(through - opening.middle, axis=1) < 6e-6 * (1 + 1e-6)).all()
        # As many as pass a plane in the mean: the sum of their weights is the area.
        flow = link_weights(opening).sum() * lattice.spacing**2
        assert flow == pytest.approx(opening.size, rel=0.1, abs=0.0)
        assert not lattice.contains(np.unique(opening.numbers)[:0]).any()
        assert lattice.contains(opening.numbers).all()


@pytest.mark.parametrize("profile", ["parabolic", "uniform"])
def test_flow_in_is_the_mean_over_the_whole_end(profile: str) -> None:
    table = _table()
    vessel = open_vessel(table, World())
    opening = vessel.lattice.openings[0]
    assert isinstance(opening, TiltedOpening)
    key = table.openings[0].model_copy(update={"profile": profile})
    values = relative_velocities(key, opening, vessel.lattice)
    flow = link_weights(opening) @ values * vessel.lattice.spacing**2
    assert flow == pytest.approx(opening.size, rel=1e-12, abs=0.0)
    assert values.max() == pytest.approx(2.0 if profile == "parabolic" else 1.0, rel=0.1)


def test_ranks_share_the_links() -> None:
    table = _table()
    vessel = open_vessel(table, World())
    _, part = share_out(World(), vessel.lattice, 2)
    openings = fluid_openings(vessel, part, table.units)
    for number, (opening, points) in enumerate(zip(openings, vessel.lattice.openings, strict=True)):
        assert isinstance(opening, boundaries.TiltedOpening)
        assert isinstance(points, TiltedOpening)
        assert len(opening.points) == len(points.points)
        assert (part.sources == OUTSIDE - number).sum() == len(points.points)
    assert openings[1].thrown is None


# Whole runs

_CASE = """
solver = "blood"
[blood]
spacing_um = 1.2
[blood.walls]
kind = "{walls}"
[blood.surface]
file = "{file}"
scale_um = 1.0
[[blood.openings]]
name = "inlet"
kind = "velocity"
value = 1e-3
[[blood.openings]]
name = "outlet"
kind = "pressure"
signal = {signal}
value = {value}
[run]
steps = {steps}
[checkpoint]
interval = 40
[output]
picture = false
"""


def _run(
    call: Callable[..., tuple[int, str, str]], folder: Path, *more: str, **keys: Any
) -> dict[str, Any]:
    case = folder / "case.toml"
    settings = {"walls": "halfway", "signal": 1.0, "value": 0.0, "steps": 80} | keys
    case.write_text(_CASE.format(file=HERE / "bend.obj", **settings))
    code, out, err = call("run", str(case), "--json", *more)
    assert code == 0, err
    result: dict[str, Any] = json.loads(out)
    return result


def test_a_bend_conserves_mass_and_carries_the_given_flow(
    tmp_path: Path, call: Callable[..., tuple[int, str, str]]
) -> None:
    summary = _run(call, tmp_path, "--out", str(tmp_path / "out"), steps=2000)
    numbers = summary["diagnostics"]
    area = 110.2e-12
    assert numbers["flow_inlet"] == pytest.approx(1e-3 * area, rel=2e-3, abs=0.0)
    into, out = numbers["mass_flow_inlet"], -numbers["mass_flow_outlet"]
    assert out == pytest.approx(into, rel=5e-4, abs=0.0)
    # Volumes differ by the densities.
    assert 0 < -numbers["flow_outlet"] / numbers["flow_inlet"] - 1 < 2e-3


@pytest.mark.parametrize("walls", ["halfway", "interpolated"])
def test_inflow_less_outflow_is_what_is_lost_at_walls(walls: str) -> None:
    surface = {"file": str(HERE / "bend.obj"), "scale_um": 1.0}
    solver = solver_of(
        spacing_um=2.0,
        relaxation_time=1.0,
        surface=surface,
        walls={"kind": walls},
        openings=[
            {"name": "inlet", "kind": "velocity", "value": 2e-3},
            {"name": "outlet", "kind": "pressure"},
        ],
    )
    solver.advance(2501)
    numbers = solver.diagnostics()
    into, gained = numbers["mass_flow_inlet"], numbers["wall_mass_flow"]
    missing = into + numbers["mass_flow_outlet"]
    assert abs(missing + gained) < 1e-4 * into
    *_, line, _ = solver.headline(numbers)
    if walls == "halfway":
        assert gained == 0.0
        assert line.endswith("%")
        assert "walls" not in line
    else:
        # On so coarse a lattice: six spacings across.
        assert gained == pytest.approx(0.0276 * into, rel=0.01)
        assert line.endswith(
            "inflow less outflow -2.76 %, with 2.76 % gained at interpolated walls"
        )
    warnings = [line for line in solver.finish(None, {}).notices if "interpolated walls" in line]
    assert len(warnings) == (walls == "interpolated")


def test_a_restart_has_the_same_bits(
    tmp_path: Path, call: Callable[..., tuple[int, str, str]]
) -> None:
    varying = {"signal": '"1 + 0.5*sin(2*pi*t/1e-5)"', "value": 30.0}
    _run(call, tmp_path, "--out", str(tmp_path / "whole"), **varying)
    _run(call, tmp_path, "--out", str(tmp_path / "half"), steps=40, **varying)
    _run(call, tmp_path, "--out", str(tmp_path / "half"), "--restart", **varying)
    with (
        h5py.File(tmp_path / "whole" / "fields.vtkhdf") as whole,
        h5py.File(tmp_path / "half" / "fields.vtkhdf") as rest,
    ):
        names = [name for name in whole["VTKHDF/CellData"] if name != "steps"]
        assert names
        for name in names:
            last = whole[f"VTKHDF/CellData/{name}"][()]
            np.testing.assert_array_equal(last, rest[f"VTKHDF/CellData/{name}"][()])
